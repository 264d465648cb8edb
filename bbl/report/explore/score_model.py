"""Class scores of a model as sums of tables, which the script of an HTML page evaluates.

There are K groups and m predictors, and predictor i has L_i levels. A numeric predictor has one
level and no tables.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bbl.errors import OptionError
from bbl.model.attribution import Factors
from bbl.model.elimination import elimination_order

__all__ = [
    "ScoreMixture",
    "ScoreModel",
    "ScoreNode",
    "ScoreNumbers",
    "ScoreSum",
    "ScoreTerm",
    "check_size",
    "list_terms",
    "pack",
]

# of all tables on a page, 8 bytes each and 11 as text: about half a megabyte
MAX_NUMBERS = 48_000
# table cells, summed over groups and members, of the exact sum over unknown predictors: takes a
# browser less than 0.1 s
MAX_CELLS = 2**16


@dataclass(frozen=True)
class ScoreTerm:
    """A term of the class scores.

    Attributes
    ----------
    scope : tuple of int
        The predictors on the axes of the table.
    table : ndarray, shape (K, L_1, ...), or (1, L_1, ...) if the groups share it
    name : str
        Title of the term; empty for structural zeros, which are not part of explanations.
    shown : tuple of int
        The predictors whose levels label the term.
    origins : dict of int to float
        Numeric regressors among the predictors, which have axes of length one: the table is
        multiplied by their differences from these values.
    """

    scope: tuple[int, ...]
    table: np.ndarray
    name: str = ""
    shown: tuple[int, ...] = ()
    origins: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoreNumbers:
    """Normal densities of q numeric predictors given the levels of the others (see
    `bbl.model.location`).

    Attributes
    ----------
    numbers : tuple of int
        Positions of the numeric predictors among all predictors.
    names : tuple of str
        Titles of the terms, one for each of `components`.
    components : tuple of tuples of int
        Sets of correlated numeric predictors, as positions in `numbers`.
    centers : ndarray, shape (q,)
        Values of the numeric predictors that have code 0.
    partners : tuple of int
        The predictors on which means depend, in the order of the columns of `means`.
    needs : tuple of tuples of int
        For each numeric predictor, the predictors on which its mean depends.
    means : ndarray, shape (K, p, q)
        Coefficients of a constant and of the partners' non-reference levels.
    covariances : ndarray, shape (K, q, q)
    """

    numbers: tuple[int, ...]
    names: tuple[str, ...]
    components: tuple[tuple[int, ...], ...]
    centers: np.ndarray
    partners: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]
    means: np.ndarray
    covariances: np.ndarray

    @property
    def size(self) -> int:
        """Number of stored numbers."""
        return self.centers.size + self.means.size + self.covariances.size

    def n_states(self, n_levels: np.ndarray) -> float:
        """Return the number of combinations of the partners' levels."""
        return float(np.prod(n_levels[list(self.partners)].astype(float)))


@dataclass(frozen=True, kw_only=True)
class ScoreNode:
    """Class scores before and after calibration.

    Attributes
    ----------
    temperature : float
        Factor that multiplies the scores.
    offset : ndarray, shape (K,), or None
        Offset that is added to the scores after the multiplication.
    empty : ndarray, shape (K,), or None
        Scores of a row without known predictors, which are not calibrated; None if they follow
        from the tables.
    needed : tuple of int
        Predictors that must be known unless all are unknown.
    equal_if_impossible : bool
        Whether a row that is impossible in all groups gets equal scores.
    """

    temperature: float = 1.0
    offset: np.ndarray | None = None
    empty: np.ndarray | None = None
    needed: tuple[int, ...] = ()
    equal_if_impossible: bool = False


@dataclass(frozen=True, kw_only=True)
class ScoreSum(ScoreNode):
    """Class scores that are a constant plus a sum of tables.

    Attributes
    ----------
    constant : ndarray, shape (K,)
    terms : sequence of ScoreTerm
    sums_unknown : bool
        Whether scores are log-sum-exps over the levels of unknown predictors. If not, a term
        with an unknown predictor contributes 0.
    is_cumulative : bool
        Whether the sums are cumulative logits of an ordered response; see `bbl.model.cumulative`.
    numbers : ScoreNumbers or None
        Log densities that are added to the sums.
    """

    constant: np.ndarray
    terms: Sequence[ScoreTerm]
    sums_unknown: bool = True
    is_cumulative: bool = False
    numbers: ScoreNumbers | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreMixture(ScoreNode):
    """Class scores of a weighted average of models.

    Attributes
    ----------
    weights : ndarray, shape (M,)
        Weights of the members, which sum to 1.
    members : sequence of ScoreSum or ScoreMixture
    averages_posteriors : bool
        Whether P(group | row) of the members is averaged. If not, P(group, row) is.
    """

    weights: np.ndarray
    members: Sequence[ScoreSum | ScoreMixture]
    averages_posteriors: bool


@dataclass(frozen=True)
class ScoreModel:
    """Class scores, and the terms that explain them.

    Attributes
    ----------
    scores : ScoreSum or ScoreMixture
    explained : ScoreSum or None
        Terms that add up to the scores: `scores` itself or, if predictions are averaged over
        posterior draws, the terms at the mean of the draws, which add up to the scores only
        approximately.
    unexplained : str
        A sentence that explains why there are no terms.
    """

    scores: ScoreSum | ScoreMixture
    explained: ScoreSum | None
    unexplained: str = ""


def check_size(n_numbers: int) -> None:
    """Raise an OptionError if tables with a total of `n_numbers` entries are too large for a
    page.
    """
    if n_numbers > MAX_NUMBERS:
        raise OptionError(
            f"The tables of this model contain {n_numbers:,} numbers, but a page can "
            f"contain at most {MAX_NUMBERS:,}.",
            hint="Use fewer predictors or terms.",
        )


def list_terms(
    factors: Factors, names: Sequence[str], origins: Mapping[int, float] | None = None
) -> list[ScoreTerm]:
    """Return the terms with these tables, named after their predictors in ``names`` (m,). `origins`
    contains the origins of numeric regressors.
    """
    origins = origins or {}
    return [
        ScoreTerm(
            scope,
            table,
            ":".join(names[i] for i in scope),
            scope,
            {i: origins[i] for i in scope if i in origins},
        )
        for scope, table in factors.items()
    ]


@dataclass
class _Numbers:
    """Arrays that are stored one after another in a single string."""

    arrays: list[np.ndarray] = field(default_factory=list)
    size: int = 0

    def add(self, array: np.ndarray) -> int:
        """Store an array in C order and return the position of its first number."""
        start = self.size
        self.arrays.append(np.ascontiguousarray(array, dtype="<f8").ravel())
        self.size += array.size
        return start

    def as_text(self) -> str:
        """Return all numbers as base64 of little-endian float64."""
        flat = np.concatenate([np.zeros(0), *self.arrays]).astype("<f8")
        return base64.b64encode(flat.tobytes()).decode()


def pack(model: ScoreModel, n_levels: np.ndarray) -> dict[str, Any]:
    """Return the model as a dict for JSON. All numbers are stored exactly, in a single string.

    Raises an OptionError if the tables are too large for a page.

    Examples
    --------
    >>> table = np.log([[0.9, 0.1], [0.2, 0.8]])
    >>> scores = ScoreSum(constant=np.zeros(2), terms=[ScoreTerm((0,), table, "a", (0,))])
    >>> packed = pack(ScoreModel(scores, scores), np.array([2]))
    >>> packed["unknown"]
    {'most': 1, 'never': []}
    """
    K = len(next(_sums(model.scores)).constant)
    check_size(sum(_size(node) for node in _sums(model.scores)))
    orders, most = _plan_unknown(model.scores, n_levels, K)
    numbers = _Numbers()
    packed: dict[str, Any] = {"scores": _pack_node(model.scores, numbers, orders)}
    if model.explained is model.scores:
        packed["explained"] = "scores"
    elif model.explained is not None:
        packed["explained"] = _pack_node(model.explained, numbers, orders)
    else:
        packed["explained"] = None
    packed["unexplained"] = model.unexplained
    packed["unknown"] = {"most": most, "never": sorted(_never_unknown(model.scores))}
    packed["numbers"] = numbers.as_text()
    return packed


def _size(node: ScoreSum) -> int:
    """Return the number of entries in all tables of a sum."""
    n_numbers = 0 if node.numbers is None else node.numbers.size
    return n_numbers + sum(term.table.size for term in node.terms)


def _sums(node: ScoreSum | ScoreMixture) -> Iterator[ScoreSum]:
    """Yield each `ScoreSum` in a mixture, which may contain other mixtures."""
    if isinstance(node, ScoreSum):
        yield node
    else:
        for member in node.members:
            yield from _sums(member)


def _never_unknown(node: ScoreSum | ScoreMixture) -> set[int]:
    """Return the predictors that every member requires to be known."""
    if isinstance(node, ScoreSum):
        return set(node.needed)
    return set(node.needed) | set.intersection(*(_never_unknown(m) for m in node.members))


def _scopes(node: ScoreSum) -> tuple[tuple[int, ...], ...]:
    """Return the predictors of each term."""
    return tuple(term.scope for term in node.terms)


def _plan_unknown(
    root: ScoreSum | ScoreMixture, n_levels: np.ndarray, K: int
) -> tuple[dict[tuple, list[int]], int]:
    """Return how unknown predictors are marginalised. The result is a pair: the elimination orders
    of all predictors, by the scopes of a sum, and the largest number of categorical predictors that
    may be unknown at once (m if all may be unknown).

    All predictors may be unknown if the sum over all of them is affordable. Otherwise, the number
    of unknown predictors is limited so that even the predictors with the most levels do not have
    too many combinations. Numeric predictors may always be unknown. Sums over the predictors on
    which their means depend are computed one combination at a time.
    """
    m = len(n_levels)
    summed = [node for node in _sums(root) if node.sums_unknown]
    orders: dict[tuple, list[int]] = {}
    costs: dict[tuple, float] = {}
    for node in summed:
        scopes = _scopes(node)
        if scopes in orders:
            continue
        mask = np.zeros((m, m), dtype=bool)
        for scope in scopes:
            mask[np.ix_(scope, scope)] = True
        np.fill_diagonal(mask, False)
        plan = elimination_order(n_levels, mask, MAX_CELLS)
        orders[scopes], costs[scopes] = (list(range(m)), np.inf) if plan is None else plan
    total = 0.0
    for node in summed:
        n_states = 1.0 if node.numbers is None else node.numbers.n_states(n_levels)
        total += costs[_scopes(node)] * n_states
    if K * total <= MAX_CELLS:
        return orders, m
    # all combinations of u predictors, and half as many, ... while these are summed one by one
    combinations = np.cumprod(np.sort(n_levels[n_levels > 1])[::-1].astype(float))
    most = int((2.0 * K * len(summed) * combinations <= MAX_CELLS).sum())
    return dict.fromkeys(orders, list(range(m))), most


def _pack_node(
    node: ScoreSum | ScoreMixture, numbers: _Numbers, orders: dict[tuple, list[int]]
) -> dict[str, Any]:
    """Return a node as a dict; its arrays are added to `numbers`."""
    packed: dict[str, Any] = {"temperature": node.temperature, "needed": list(node.needed)}
    packed["equalIfImpossible"] = node.equal_if_impossible
    for name, array in (("offset", node.offset), ("empty", node.empty)):
        packed[name] = None if array is None else numbers.add(array)
    if isinstance(node, ScoreMixture):
        packed["averagesPosteriors"] = node.averages_posteriors
        packed["weights"] = numbers.add(node.weights)
        packed["members"] = [_pack_node(member, numbers, orders) for member in node.members]
        return packed
    packed["constant"] = numbers.add(node.constant)
    packed["sumsUnknown"] = node.sums_unknown
    packed["isCumulative"] = node.is_cumulative
    packed["numbers"] = None if node.numbers is None else _pack_numbers(node.numbers, numbers)
    packed["order"] = orders.get(_scopes(node), [])
    packed["terms"] = [
        {
            "name": term.name,
            "scope": [int(i) for i in term.scope],
            "shown": [int(i) for i in term.shown],
            "origins": {str(i): origin for i, origin in term.origins.items()},
            "shared": len(term.table) == 1 and len(node.constant) > 1,
            "start": numbers.add(term.table),
        }
        for term in node.terms
    ]
    return packed


def _pack_numbers(model: ScoreNumbers, numbers: _Numbers) -> dict[str, Any]:
    """Return the densities of numeric predictors as a dict; their arrays are added to `numbers`."""
    return {
        "numbers": list(model.numbers),
        "names": list(model.names),
        "components": [list(component) for component in model.components],
        "partners": list(model.partners),
        "needs": [list(own) for own in model.needs],
        "columns": model.means.shape[1],
        "centers": numbers.add(model.centers),
        "means": numbers.add(model.means),
        "covariances": numbers.add(model.covariances),
    }
