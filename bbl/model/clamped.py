"""Conditional distribution of a row's unknown predictors given its known predictors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.errors import OptionError
from bbl.model.chains import gibbs
from bbl.model.elimination import elimination_order, log_sum, most_probable
from bbl.model.energy import conditionals
from bbl.model.fields import Fields
from bbl.model.higher import split
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import one_hot

__all__ = [
    "MARGINS",
    "Clamped",
    "exact_margins",
    "gibbs_margins",
    "joint_mode",
    "margins",
    "mean_field_margins",
]

MARGINS = ("auto", "exact", "gibbs", "mf")
# maximum cost in table cells, for all margins of a row, up to which "auto" is exact
AUTO_CELLS = 2**19
MAX_CELLS = 3e7  # maximum cost in table cells, for all margins of a row, allowed for "exact"
BLOCK_CELLS = 2**20  # table cells of the rows that are processed at once
CHAINS = 32  # Gibbs chains per row
BURN_IN = 50  # sweeps before the first draw
SWEEPS = 200  # after the burn-in
THIN = 5  # sweeps between draws
DAMPING = 0.8  # weight of the new margins in a mean-field step
MEAN_FIELD_TOLERANCE = 1e-10  # largest change of a margin at which mean field has converged
MEAN_FIELD_ITERATIONS = 2000  # maximum number of mean-field steps


class Component(NamedTuple):
    """A set of predictors connected by interactions, its elimination order, and the cost."""

    members: np.ndarray  # (c,) of intp: predictors, increasing
    order: list[int]  # the same predictors
    cost: float  # table cells needed to eliminate all of them once


class Clamped:
    """Conditional model of the predictors `unknown` given all others: a smaller Boltzmann machine.

    A coupling between known and unknown predictors is added to the parameter of the unknown
    predictors if the known predictors of the row have the levels of the coupling. For example, with
    predictor 0 unknown and predictor 1 known, the field of predictor 0 is ``h_0 + J_01`` if
    predictor 1 has code 1, and ``h_0`` if it has code 0.

    Parameters
    ----------
    layout : Layout
    unknown : ndarray of int, shape (u,)
        Unknown predictors, in increasing order.

    Attributes
    ----------
    layout : Layout
        Layout of the smaller model.
    _full_layout : Layout
        Layout of the full model; its `order` is the largest number of predictors in a term.
    _source : ndarray of intp, shape (sources,)
        Positions of the full model's parameters that involve an unknown predictor.
    _known_columns : ndarray, shape (order, sources)
        Columns of the known levels of these parameters. Unknown and absent members have the index D
        or -1, which selects a column of ones.
    _target : ndarray of intp, shape (sources,)
        Position in the smaller model of the parameter to which each source contributes.

    Examples
    --------
    >>> clamped = Clamped(Layout([2, 2]), np.array([0]))
    >>> clamped.theta(np.array([1.0, 2.0, 4.0]), np.array([[0, 1], [0, 0]], dtype=np.uint8))
    array([[5.],
           [1.]])
    """

    def __init__(self, layout: Layout, unknown: np.ndarray):
        self._full_layout = layout
        # (order, size): column of the level of each member of a parameter's term
        columns = term_columns(layout)
        # column in the smaller model of each level of an unknown predictor; D for other levels and
        # at index -1, which `columns` contains where a parameter has no further predictor
        new_column = np.full(layout.D + 1, layout.D)
        unknown_columns = layout.columns(unknown)
        new_column[unknown_columns] = np.arange(len(unknown_columns))
        # (order, size): columns in the smaller model of the levels of each parameter: first the
        # unknown levels, then D
        smaller_columns = np.sort(new_column[columns], axis=0)
        # parameters with an unknown predictor
        self._source = np.flatnonzero(smaller_columns[0] < layout.D)
        smaller_columns = smaller_columns[:, self._source]
        source_columns = columns[:, self._source]
        # (order, sources): columns of the known levels of each source parameter; D and -1 select
        # the last column of the indicators in `theta`, a column of ones
        self._known_columns = np.where(
            new_column[source_columns] < layout.D, layout.D, source_columns
        )
        # position in `unknown` of the predictor of each column of the smaller model; the final -1
        # is never read by a parameter
        predictor_of_column = np.append(
            np.repeat(np.arange(len(unknown)), layout.n_levels[unknown] - 1), -1
        )
        # number of unknown predictors of each source parameter
        n_unknown = (smaller_columns < layout.D).sum(axis=0)
        # orders k of the smaller model's terms; its terms are the distinct sets of k unknown
        # predictors of a parameter
        unknown_counts = [k for k in range(2, layout.order + 1) if (n_unknown == k).any()]
        terms = [
            np.unique(predictor_of_column[smaller_columns[:k, n_unknown == k]].T, axis=0)
            for k in unknown_counts
        ]
        self.layout = Layout(layout.n_levels[unknown], terms)
        # parameters of the two models are matched by keys: the columns of their unknown levels as
        # digits in base `radix`, with the last digit value for "none"
        radix = len(unknown_columns) + 1
        source_keys = _keys(
            np.where(smaller_columns < layout.D, smaller_columns, len(unknown_columns)), radix
        )
        target_columns = term_columns(self.layout)
        # keys of both models have the same number of digits; the smaller model may have terms of
        # lower order, so its keys are padded with -1
        padding = np.full(
            (max(0, len(smaller_columns) - len(target_columns)), target_columns.shape[1]), -1
        )
        target_columns = np.concatenate([target_columns, padding])[: len(smaller_columns)]
        target_keys = _keys(
            np.where(target_columns < 0, len(unknown_columns), target_columns), radix
        )
        by_key = np.argsort(target_keys)
        # parameter of the smaller model that each source parameter contributes to
        self._target = by_key[np.searchsorted(target_keys[by_key], source_keys)]

    def theta(self, theta: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the parameters (n, size) of the smaller model in each row of `codes` (n, m).

        `theta` contains the parameters of the full model.
        """
        X = np.column_stack([one_hot(codes, self._full_layout), np.ones(len(codes))])
        source_theta = theta[self._source]
        out = np.empty((len(codes), self.layout.size))
        for row, x in zip(out, X, strict=True):
            # a source parameter contributes if the row has all of its known levels
            row[:] = np.bincount(
                self._target, source_theta * x[self._known_columns].prod(axis=0), self.layout.size
            )
        return out


def _keys(columns: np.ndarray, radix: int) -> np.ndarray:
    """Encode each column of `columns` (order, T) as an integer with its entries as digits."""
    # objects hold integers of any size
    key = np.zeros(columns.shape[1], dtype=object if radix ** len(columns) > 2**62 else np.int64)
    for column in columns:
        key = key * radix + column
    return key


def margins(layout: Layout, theta: np.ndarray, method: str, rng: np.random.Generator) -> np.ndarray:
    """Return the probability of each non-reference level in n models, shape (n, layout.D).

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (n, layout.size)
    method : {"auto", "exact", "gibbs", "mf"}
        Variable elimination, Gibbs sampling or mean field; "auto" uses variable elimination if it
        is fast and Gibbs sampling otherwise.
    rng : numpy.random.Generator

    Raises
    ------
    OptionError
        If "exact" would require more than 3e7 table cells for a row.
    """
    if method in ("auto", "exact"):
        components = _components(layout, AUTO_CELLS if method == "auto" else MAX_CELLS)
        if components is not None:
            # number of rows for which neither the margins nor the tables of a component exceed
            # `BLOCK_CELLS`
            block_rows = max(
                1, int(BLOCK_CELLS / max(layout.D, *(cost for *_, cost in components)))
            )
            blocks = [
                theta[first : first + block_rows] for first in range(0, len(theta), block_rows)
            ]
            return np.concatenate([exact_margins(layout, block, components) for block in blocks])
        if method == "exact":
            raise OptionError(
                f"method='exact' would sum over more than {MAX_CELLS:.0e} table cells for "
                f"{layout.m} unknown predictors in one row.",
                argument="method",
                hint="Use method='gibbs' or 'mf'.",
            )
    if method == "mf":
        return np.array([mean_field_margins(layout, parameters) for parameters in theta])
    return np.array([gibbs_margins(layout, parameters, rng) for parameters in theta])


def _components(layout: Layout, limit: float) -> list[Component] | None:
    """Return the components of a layout, or None if the margins require more than `limit` table
    cells.
    """
    from scipy.sparse.csgraph import connected_components

    # `mask` (m, m): whether two predictors share a term
    n_components, component_of = connected_components(layout.mask, directed=False)
    components: list[Component] = []
    cost = 0.0
    for c in range(n_components):
        members = np.flatnonzero(component_of == c)
        # (order, cost), with predictors numbered by their position in `members`
        elimination = elimination_order(
            layout.n_levels[members], layout.mask[np.ix_(members, members)], limit
        )
        if elimination is None:
            return None
        # one elimination for each margin; a single predictor needs no elimination
        cost += elimination[1] * (len(members) if len(members) > 1 else 0)
        if cost > limit:
            return None
        components.append(Component(members, members[elimination[0]].tolist(), elimination[1]))
    return components


def joint_mode(
    layout: Layout, theta: np.ndarray, allowed: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable joint state (n, m) of each of n models and its log-probability (n,).

    The models share a layout. `allowed` contains, for each predictor, a mask (L_i,) of the levels
    that the state may have.

    Raises
    ------
    OptionError
        If the elimination would require more than 3e7 table cells for a row.
    """
    components = _components(layout, MAX_CELLS)
    if components is None:
        raise OptionError(
            f"type='joint' would search more than {MAX_CELLS:.0e} table cells for {layout.m} "
            "unknown predictors in one row.",
            argument="type",
            hint=(
                "Use type='class', which fills each cell separately, or pass rows with fewer "
                "missing cells."
            ),
        )
    block_rows = max(1, int(BLOCK_CELLS / max(layout.D, *(cost for *_, cost in components))))
    states = np.zeros((len(theta), layout.m), dtype=np.intp)
    log_p = np.zeros(len(theta))
    with np.errstate(divide="ignore"):
        bars = [((i,), np.log(levels.astype(float))[None]) for i, levels in enumerate(allowed)]
    for first in range(0, len(theta), block_rows):
        block = slice(first, first + block_rows)
        factors = layout.factors(theta[block])
        for members, order, _ in components:
            member_set = set(members.tolist())
            own = [factor for factor in factors if factor[0][0] in member_set]
            n_models = len(theta[block])
            state, value = most_probable([*own, *(bars[i] for i in order)], order, n_models)
            states[block, members] = state
            log_p[block] += value - log_sum(own, order)
    return states, log_p


def exact_margins(layout: Layout, theta: np.ndarray, components: list[Component]) -> np.ndarray:
    """Compute `margins` (n, layout.D) by variable elimination within each component.

    ``P(x_i)`` is proportional to the sum of ``exp(energy)`` over the other predictors of its
    component.
    """
    # factors: (scope, table (n, L_i, ...)) of each term
    probabilities = np.empty((len(theta), layout.D))
    factors = layout.factors(theta)
    for members, order, _ in components:
        member_set = set(members.tolist())
        # all predictors of a term are in the same component
        component_factors = [(scope, table) for scope, table in factors if scope[0] in member_set]
        for i in members:
            log_p = log_sum(component_factors, [k for k in order if k != i])
            p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
            # column 0 is the reference level
            probabilities[:, layout.start[i] : layout.start[i + 1]] = (
                p / p.sum(axis=1, keepdims=True)
            )[:, 1:]
    return probabilities


def gibbs_margins(layout: Layout, theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Estimate `margins` (D,) of one model from conditional probabilities in Gibbs draws."""
    h, J, higher_terms = split(layout, theta)
    samples = gibbs(h, J, layout.n_levels, SWEEPS, CHAINS, rng, BURN_IN, THIN, more=higher_terms)
    draws = np.asarray(samples.draws).reshape(-1, layout.m)  # from (chains, draws per chain, m)
    # [1]: the probabilities of the levels in each draw given the other predictors
    return conditionals(Fields(layout, theta)(one_hot(draws, layout)), layout)[1].mean(axis=0)


def mean_field_margins(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Approximate `margins` (D,) of one model by mean field.

    The margins r solve ``r = P(x | r)``, where the levels of the other predictors are replaced by
    their probabilities in r. The iterations are damped: each moves r by a fraction of 0.8
    (`DAMPING`) of the distance to the right-hand side.
    """
    fields = Fields(layout, theta)
    r = conditionals(theta[None, : layout.D], layout)[1]  # (1, D): probabilities without couplings
    for _ in range(MEAN_FIELD_ITERATIONS):
        change = conditionals(fields(r), layout)[1] - r
        r = r + DAMPING * change
        if np.abs(change).max(initial=0.0) < MEAN_FIELD_TOLERANCE:  # 0 without any levels
            break
    return r[0]
