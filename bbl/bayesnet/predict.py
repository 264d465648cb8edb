"""Prediction: the log joint of class and known features, exactly, whatever is missing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bbl._ext.network import families as kernel
from bbl.bayesnet.dag import Dag, Family
from bbl.bayesnet.families import Families, class_probabilities, dirichlet, gaps
from bbl.memory import check_memory
from bbl.model.elimination import Factor, elimination_order, log_sum
from bbl.rows.on_disk import Rows

__all__ = ["Network", "add_features", "class_scores", "estimate", "log_table"]

CELLS = 2**21  # cells of a table of many rows that is held at a time


@dataclass(frozen=True, eq=False)
class Network:
    """A structure with its tables.

    Attributes
    ----------
    dag : Dag
    families : Families
        Where the tables lie, in the order of ``dag.families``.
    prior : ndarray, shape (K,)
        Probabilities of the classes.
    theta : ndarray, shape (cells, K)
        Probability of each level of a feature given its parents and the class.

    Examples
    --------
    >>> dag = Dag(((0, ()),))
    >>> network = Network(dag, Families(dag.families, [2], 2), np.array([0.5, 0.5]), np.array([[0.9, 0.2], [0.1, 0.8]]))
    >>> np.exp(network.log_joint(np.array([[0], [1]], dtype=np.uint8))).round(2)
    array([[0.45, 0.1 ],
           [0.05, 0.4 ]])
    """

    dag: Dag
    families: Families
    prior: np.ndarray
    theta: np.ndarray

    @property
    def K(self) -> int:
        """Number of classes."""
        return len(self.prior)

    @property
    def n_params(self) -> int:
        """Free parameters: ``(r_i - 1)`` for each configuration of the parents, and those of the classes."""
        return self.K - 1 + self.K * int((self.families.widths - 1).sum())

    def log_joint(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(c, known features)`` (n, K); missing features are summed out, exactly."""
        out = np.empty((len(codes), self.K))
        out[:] = log_table(self.prior)
        return add_features(self.families, self.theta, self._log_theta, codes, missing, out)

    @cached_property
    def _log_theta(self) -> np.ndarray:
        return log_table(self.theta)


def log_table(theta: np.ndarray) -> np.ndarray:
    """Return the logarithm of probabilities, -inf of zero."""
    with np.errstate(divide="ignore"):
        return np.log(theta)


def estimate(dag: Dag, sample: Rows, n_levels: np.ndarray, K: int, smooth: float) -> Network:
    """Return the network with Dirichlet estimates of its tables (available cases, one `smooth` for all)."""
    families = Families(dag.families, list(n_levels), K)
    counts = families.count(sample)
    theta = dirichlet(counts, families.sums(counts), families.cell_widths, smooth)
    return Network(dag, families, class_probabilities(sample, K, smooth), theta)


def class_scores(log_joint: np.ndarray) -> np.ndarray:
    """Return the log joint as class scores: where every class has probability zero they are equal, else as they are."""
    impossible: np.ndarray = (log_joint == -np.inf).all(axis=1)
    return np.where(impossible[:, None], 0.0, log_joint) if impossible.any() else log_joint


def add_features(
    families: Families,
    theta: np.ndarray,
    log_theta: np.ndarray,
    codes: np.ndarray,
    missing: np.ndarray | None,
    out: np.ndarray,
) -> np.ndarray:
    """Add the log-probability of the known features, given each class, to `out` (n, K).

    Families without a missing variable add their entry. What the others sum to over the missing features comes from
    one pass from the leaves up where each feature has one feature parent at most, else from variable elimination in
    each component.
    """
    families.score(log_theta, codes, missing, out)
    if missing is None or all(not parents for _, parents in families.families):
        return out  # a missing leaf sums to one
    if all(len(parents) <= 1 for _, parents in families.families):
        _add_forest(families, theta, codes, missing, out)
    else:
        _add_components(families, log_theta, codes, missing, out)
    return out


def _add_forest(families: Families, theta: np.ndarray, codes: np.ndarray, missing: np.ndarray, out: np.ndarray) -> None:
    """Add what missing features of a forest sum to, by messages from the leaves to the roots."""
    m, K = codes.shape[1], families.K
    levels = np.ones(m, dtype=np.intp)
    parent, family_offset, above, start = np.full(m, -1, dtype=np.intp), *(np.zeros(m, dtype=np.intp) for _ in range(3))
    for f, (i, parents) in enumerate(families.families):
        levels[i], family_offset[i], start[i] = families.n_levels[i], 1, families.start[f]
        if parents:
            parent[i], above[i] = parents[0], families.n_levels[i]
    message = np.cumsum(levels) - levels
    scratch = np.empty(2 * K * int(levels.sum()))
    context = np.zeros(len(codes), dtype=np.intp)
    if families.context is not None:
        context = codes[:, families.context[0]].astype(np.intp) * families.cells
    order = np.array([i for layer in Dag(families.families).layers for i in layer][::-1], dtype=np.intp)
    full = np.zeros(m, dtype=np.uint8)
    where = (order, parent, levels, family_offset, above, start, context, message * K)
    kernel.forest(codes, gaps(missing, codes), theta, *where, scratch, full, out)


def _add_components(
    families: Families, log_theta: np.ndarray, codes: np.ndarray, missing: np.ndarray, out: np.ndarray
) -> None:
    """Add what missing features sum to, component by component; rows that lack the same features go together."""
    number = {family: f for f, family in enumerate(families.families)}
    dag = Dag(families.families)
    place = {i: at for at, i in enumerate(i for layer in dag.layers for i in layer)}
    for component in dag.components:
        downwards = sorted(((i, dag.parents[i]) for i in component), key=lambda family: place[family[0]])
        within = missing[:, component]
        rows = np.flatnonzero(within.any(axis=1))
        if not len(rows) or len(component) == 1:
            continue
        patterns, pattern_of_row = np.unique(within[rows], axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            unknown = frozenset(i for i, gone in zip(component, pattern, strict=True) if gone)
            touched = sorted(_summed_families(downwards, unknown), key=number.__getitem__)
            if touched:
                here = rows[pattern_of_row.ravel() == p]
                scopes = [unknown.intersection((i, *parents)) for i, parents in touched]
                order, cells = _order(scopes, families.n_levels, families.K)
                block = max(1, int(CELLS // (cells * families.K)))
                for lo in range(0, len(here), block):
                    row_block = here[lo : lo + block]
                    factors = [_reduced(families, log_theta, number[f], codes[row_block], unknown) for f in touched]
                    out[row_block] += log_sum(factors, order).reshape(len(row_block), families.K)


def _summed_families(downwards: list[Family], unknown: frozenset[int]) -> list[Family]:
    """Return the families of a component that the sum over unknown features takes; `downwards` has parents first.

    They are those of known features with an unknown parent, and those of unknown features with a child among them:
    what has no known descendant sums to one.
    """
    summed: list[Family] = []
    needed: set[int] = set()
    for i, parents in reversed(downwards):
        if i in needed if i in unknown else not unknown.isdisjoint(parents):
            summed.append((i, parents))
            needed.update(parents)
    return summed


def _order(scopes: list[frozenset[int]], n_levels: list[int], K: int) -> tuple[list[int], float]:
    """Return the order in which unknown features are summed out, and the cells that this takes for a row and class."""
    names = sorted(frozenset().union(*scopes))
    at = {v: place for place, v in enumerate(names)}
    mask = np.zeros((len(names), len(names)), dtype=bool)
    for scope in scopes:
        inside = [at[v] for v in scope]
        mask[np.ix_(inside, inside)] = True
    np.fill_diagonal(mask, False)
    elimination = elimination_order(np.array([n_levels[v] for v in names]), mask, np.inf)
    assert elimination is not None  # noqa: S101  # there is no limit
    order, cells = elimination
    check_memory(
        24.0 * cells * K,
        f"Summing {len(names)} missing features out of a row, with {cells:,.0f} cells for each of {K} classes,",
        "Use fewer feature parents, or leave out rows with so many missing values.",
    )
    return [names[place] for place in order], cells


def _reduced(families: Families, log_theta: np.ndarray, f: int, codes: np.ndarray, unknown: frozenset[int]) -> Factor:
    """Return the log of a family's table at the known features of each row, as a table over the unknown ones.

    Its first axis goes over rows and, within each, classes.
    """
    i, parents = families.families[f]
    table, scope = families.table(log_theta, f), [*parents, i]
    if families.context is not None:
        scope = [families.context[0], *scope]
    known_axes = [a for a, v in enumerate(scope) if v not in unknown]
    free = [a for a, v in enumerate(scope) if v in unknown]
    table = table.transpose([*known_axes, len(scope), *free])
    table = table[tuple(codes[:, scope[a]] for a in known_axes)]
    table = np.broadcast_to(table, (len(codes), families.K, *table.shape[table.ndim - len(free) :]))
    return tuple(scope[a] for a in free), table.reshape(-1, *table.shape[2:])
