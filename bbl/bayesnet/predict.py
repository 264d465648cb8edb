"""Exact log joint probabilities of the class and the known features of a row.

Missing features are marginalised. A `Factor` consists of a tuple of variables and a log table (n K,
levels of the variables...) for n rows and K classes; `log_sum` marginalises a product of factors
over one variable after another.
"""

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
from bbl.rows.sample import Sample

__all__ = ["Network", "add_features", "class_scores", "estimate", "log_table", "sum_at_class"]

# maximum number of cells, for all rows and classes, in memory during an elimination: 16 MiB
ELIMINATION_CELLS = 2**21


@dataclass(frozen=True, eq=False)
class Network:
    """A structure with its tables.

    Attributes
    ----------
    dag : Dag
    families : Families
        Layout of the tables, in the order of ``dag.families``.
    prior : ndarray, shape (K,)
        Class probabilities.
    theta : ndarray, shape (cells, K)
        Probability of each level of a feature given its parents and the class.

    Examples
    --------
    >>> dag = Dag(((0, ()),))
    >>> network = Network(
    ...     dag,
    ...     Families(dag.families, [2], 2),
    ...     np.array([0.5, 0.5]),
    ...     np.array([[0.9, 0.2], [0.1, 0.8]]),
    ... )
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
        """Number of free parameters: K - 1 for the prior, and r_i - 1 for each configuration and
        class.
        """
        return self.K - 1 + self.K * int((self.families.widths - 1).sum())

    def log_joint(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(c, known features)`` (n, K), marginalised over missing features."""
        out = np.empty((len(codes), self.K))
        out[:] = log_table(self.prior)
        return add_features(self.families, self.theta, self._log_theta, codes, missing, out)

    @cached_property
    def _log_theta(self) -> np.ndarray:
        """``ln theta``, shape (cells, K)."""
        return log_table(self.theta)


def log_table(theta: np.ndarray) -> np.ndarray:
    """Return ``ln theta``, which is -inf where a probability is zero."""
    with np.errstate(divide="ignore"):
        return np.log(theta)


def estimate(dag: Dag, sample: Rows, n_levels: np.ndarray, K: int, smooth: float) -> Network:
    """Return the network with Dirichlet estimates of its tables.

    `smooth` is the prior count added to each cell. Each family is estimated from the rows where all
    its variables are known.
    """
    families = Families(dag.families, list(n_levels), K)
    counts = families.count(sample)
    theta = dirichlet(counts, families.sum_over_levels(counts), families.cell_widths, smooth)
    return Network(dag, families, class_probabilities(sample, K, smooth), theta)


def sum_at_class(log_p: np.ndarray, rows: Sample) -> float:
    """Return the sum over rows i of ``weights[i] * log_p[i, y_i]``, or nan if any y_i is missing.

    ``rows.response`` (n,) contains the class codes y, which are negative if missing.
    """
    if (rows.response < 0).any():
        return float("nan")
    return float(rows.weights @ log_p[np.arange(rows.n), rows.response])


def class_scores(log_joint: np.ndarray) -> np.ndarray:
    """Return `log_joint` (n, K), with zeros in rows where all classes have probability zero.

    All classes are then equally probable in such rows; with -inf, the softmax would be nan.
    """
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
    """Add the log-probability of the known features given each class to `out` (n, K), and return
    `out`.

    `theta` and `log_theta` (cells, K) contain the tables. The log-probability of a family without
    missing values is its table entry. Other families are marginalised over missing features. This
    is done by messages from the leaves to the root if features have at most one feature parent, and
    otherwise by variable elimination in each connected component.
    """
    families.score(log_theta, codes, missing, out)  # families without missing values
    if missing is None or all(not parents for _, parents in families.families):
        return out  # missing features without children sum to one
    if all(len(parents) <= 1 for _, parents in families.families):
        _add_forest_sums(families, theta, codes, missing, out)
    else:
        _add_component_sums(families, log_theta, codes, missing, out)
    return out


def _add_forest_sums(
    families: Families, theta: np.ndarray, codes: np.ndarray, missing: np.ndarray, out: np.ndarray
) -> None:
    """Marginalise over missing features, where no feature has more than one parent, and add the
    result to `out` (n, K).
    """
    # arrays (m,) are indexed by the column of the codes; columns that are not features (the fold,
    # and excluded features) are never visited
    m = codes.shape[1]
    K = families.K
    levels = np.ones(m, dtype=np.intp)
    parent = np.full(m, -1, dtype=np.intp)
    # the cell of a feature is start + stride * its code + parent_stride * its parent's code
    stride, parent_stride, start = (np.zeros(m, dtype=np.intp) for _ in range(3))
    for f, (i, parents) in enumerate(families.families):
        levels[i] = families.n_levels[i]
        stride[i] = 1
        start[i] = families.start[f]
        if parents:
            parent[i] = parents[0]
            parent_stride[i] = families.n_levels[i]
    # the message of each feature in `scratch`, for one class
    message_start = np.cumsum(levels) - levels
    # working memory of the kernel: messages received, and the message being sent
    scratch = np.empty(2 * K * int(levels.sum()))
    first_cell = np.zeros(len(codes), dtype=np.intp)  # in the tables of each row's context
    if families.context is not None:
        first_cell = codes[:, families.context[0]].astype(np.intp) * families.cells
    # `layers`: features whose parents are in earlier layers
    children_first = np.array(
        [i for layer in Dag(families.families).layers for i in layer][::-1], dtype=np.intp
    )
    has_message = np.zeros(m, dtype=np.uint8)  # working memory of the kernel
    forest = (
        children_first,
        parent,
        levels,
        stride,
        parent_stride,
        start,
        first_cell,
        message_start * K,
    )
    kernel.add_forest_sums(codes, gaps(missing, codes), theta, *forest, scratch, has_message, out)


def _add_component_sums(
    families: Families,
    log_theta: np.ndarray,
    codes: np.ndarray,
    missing: np.ndarray,
    out: np.ndarray,
) -> None:
    """Marginalise over missing features, for each component and set of missing features, and add
    the result to `out` (n, K).
    """
    family_number = {family: number for number, family in enumerate(families.families)}
    dag = Dag(families.families)
    topological_rank = {
        i: position for position, i in enumerate(i for layer in dag.layers for i in layer)
    }
    for component in dag.components:  # tuples of features connected by arcs
        parents_first = sorted(
            ((i, dag.parents[i]) for i in component), key=lambda family: topological_rank[family[0]]
        )
        component_missing = missing[:, component]
        rows = np.flatnonzero(component_missing.any(axis=1))
        if not len(rows) or len(component) == 1:  # a missing feature without arcs sums to one
            continue
        patterns, pattern_of_row = np.unique(component_missing[rows], axis=0, return_inverse=True)
        for p, pattern in enumerate(patterns):
            unknown = frozenset(
                i for i, is_missing in zip(component, pattern, strict=True) if is_missing
            )
            # in the order of the tables
            summed = sorted(
                _find_summed_families(parents_first, unknown), key=family_number.__getitem__
            )
            if summed:
                # ravel: NumPy 2.0 returns the shape (rows, 1)
                pattern_rows = rows[pattern_of_row.ravel() == p]
                scopes = [unknown.intersection((i, *parents)) for i, parents in summed]
                order, cells = _plan_elimination(scopes, families.n_levels, families.K)
                batch_size = max(1, int(ELIMINATION_CELLS // (cells * families.K)))
                for first in range(0, len(pattern_rows), batch_size):
                    batch = pattern_rows[first : first + batch_size]
                    factors = [
                        _condition_family(
                            families, log_theta, family_number[family], codes[batch], unknown
                        )
                        for family in summed
                    ]
                    out[batch] += log_sum(factors, order).reshape(len(batch), families.K)


def _find_summed_families(parents_first: list[Family], unknown: frozenset[int]) -> list[Family]:
    """Return those families of a component whose product must be summed over unknown features.

    These are the families of known features with an unknown parent, and of unknown features with a
    known descendant. The table of an unknown feature without known descendants sums to one.
    `parents_first` contains the families of the component, each after the families of its parents.
    """
    summed: list[Family] = []
    parents_of_summed: set[int] = set()
    for i, parents in reversed(parents_first):
        # an unknown feature is included if it is a parent in a family that is summed, because it
        # then has a known descendant; a known feature is included if it has an unknown parent
        is_summed = i in parents_of_summed if i in unknown else not unknown.isdisjoint(parents)
        if is_summed:
            summed.append((i, parents))
            parents_of_summed.update(parents)
    return summed


def _plan_elimination(
    scopes: list[frozenset[int]], n_levels: list[int], K: int
) -> tuple[list[int], float]:
    """Return the elimination order of the unknown features, and the number of table cells.

    Cells are counted for one row and class. `scopes` contains the unknown features of each family.
    """
    features = sorted(frozenset().union(*scopes))
    position = {v: index for index, v in enumerate(features)}
    are_neighbours = np.zeros((len(features), len(features)), dtype=bool)
    for scope in scopes:
        positions = [position[v] for v in scope]
        are_neighbours[np.ix_(positions, positions)] = True
    np.fill_diagonal(are_neighbours, False)
    # (order, cells), by positions in `features`
    elimination = elimination_order(
        np.array([n_levels[v] for v in features]), are_neighbours, np.inf
    )
    assert elimination is not None  # noqa: S101  # there is no limit
    order, cells = elimination
    # log weights, their differences from the maximum, and exponentials, with 8 bytes each
    check_memory(
        24.0 * cells * K,
        (
            f"Averaging over {len(features)} missing features of a row, with {cells:,.0f} cells "
            f"for "
            f"each of {K} classes,"
        ),
        "Use fewer feature parents, or leave out rows with so many missing values.",
    )
    return [features[index] for index in order], cells


def _condition_family(
    families: Families, log_theta: np.ndarray, f: int, codes: np.ndarray, unknown: frozenset[int]
) -> Factor:
    """Return family `f` as a factor of its unknown variables, given the known features of the rows.

    The factor consists of the variables and the log table.

    The table has shape (n * K, levels of the unknown variables...) for n rows `codes`, where the
    classes of a row are adjacent. `unknown` contains the unknown features of the component.
    """
    i, parents = families.families[f]
    table = families.table(log_theta, f)
    scope = [*parents, i]
    if families.context is not None:
        scope = [families.context[0], *scope]
    known_axes = [a for a, v in enumerate(scope) if v not in unknown]
    unknown_axes = [a for a, v in enumerate(scope) if v in unknown]
    # the class axis, which is the last axis of the table, is moved between known and unknown
    # variables
    table = table.transpose([*known_axes, len(scope), *unknown_axes])
    # (n, K, unknown...), or (K, unknown...)
    table = table[tuple(codes[:, scope[a]] for a in known_axes)]
    table = np.broadcast_to(
        table, (len(codes), families.K, *table.shape[table.ndim - len(unknown_axes) :])
    )
    return tuple(scope[a] for a in unknown_axes), table.reshape(-1, *table.shape[2:])
