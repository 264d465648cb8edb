"""Probability tables of families: their layout in one array, counts of rows, and Dirichlet
estimates.

A *family* is a feature with its feature parents; the class (K values) is also a parent of every
feature. A parent *configuration* is a combination of the parents' levels; a *cell* is a combination
of a configuration and a level of the feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from bbl._ext.network import families as kernel
from bbl.bayesnet.dag import Family
from bbl.memory import check_memory
from bbl.rows.sample import Rows

__all__ = ["Families", "class_counts", "class_probabilities", "dirichlet", "gaps"]

BLOCK = 65536  # number of rows of a file that are read and counted at a time


class Families:
    """Tables of families, stored one after another in one array (cells, K).

    The K values of a cell, one for each class, are adjacent. The table of a feature has axes
    (parents..., feature, class) and is C-contiguous.

    Parameters
    ----------
    families : sequence of (int, tuple of int)
        Each feature and its feature parents, as positions of columns of the codes.
    n_levels : sequence of int, length m
        Number of declared levels of every column.
    K : int
        Number of classes.
    context : (int, int), optional
        A column of the codes, such as the fold, and its number of values. There is a copy of all
        tables for each value, and each row uses the copy for its value.

    Attributes
    ----------
    families, n_levels, K, context
        The arguments, with `families` as a tuple and `n_levels` as a list.
    cells : int
        Number of cells of all tables in one copy.
    start : ndarray of intp, shape (families + 1,)
        First cell of each table; the last entry is `cells`.

    Examples
    --------
    >>> families = Families([(0, ()), (1, (0,))], [2, 3], K=2)
    >>> families.cells, families.shape(1)
    (8, (2, 3, 2))
    """

    def __init__(
        self,
        families: Sequence[Family],
        n_levels: Sequence[int] | np.ndarray,
        K: int,
        context: tuple[int, int] | None = None,
    ):
        self.families = tuple(families)
        self.K = K
        self.context = context
        self.n_levels = [int(L) for L in n_levels]
        # the variables of all families, and the number of cells between successive levels of each
        # variable; see `_cell_index`
        scope: list[int] = []
        stride: list[int] = []
        # start of each family in `scope` and in the cells
        scope_start = [0]
        start = [0]
        cells = 0
        for i, parents in self.families:
            size = 1
            # the level of the feature varies fastest over the cells, then the level of its last
            # parent
            for v in (i, *reversed(parents)):
                scope.append(v)
                stride.append(size)
                size *= self.n_levels[v]
            cells += size
            if context is not None:
                scope.append(context[0])
                stride.append(0)  # set below: number of cells of all families
            scope_start.append(len(scope))
            start.append(cells)
        self.cells = cells
        # counts, their totals and probabilities, with 8 bytes each for each cell and class
        check_memory(
            24.0 * cells * K * (1 if context is None else context[1]),
            f"Tables of {len(self.families)} families with {cells:,} cells for each of {K} classes",
            "Use fewer feature parents, or merge levels.",
        )
        self._scope_start = np.array(scope_start, dtype=np.intp)
        self._scope = np.array(scope, dtype=np.intp)
        self._stride = np.array(stride, dtype=np.intp)
        self.start = np.array(start, dtype=np.intp)
        if context is not None:  # the last variable of each family
            self._stride[self._scope_start[1:] - 1] = cells

    @property
    def _cell_index(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Arrays that kernels use to locate cells.

        The cell of a row in the table of family f is ``start[f] + sum(codes[scope[s]] *
        stride[s])``, summed over ``scope_start[f] <= s < scope_start[f + 1]``.
        """
        return self._scope_start, self._scope, self._stride, self.start[:-1]

    @property
    def _copies(self) -> int:
        """Number of copies of all tables, which is one for each value of the context."""
        return 1 if self.context is None else self.context[1]

    def shape(self, f: int) -> tuple[int, ...]:
        """Return the shape (parents..., feature, class) of the table of family `f`."""
        i, parents = self.families[f]
        return (*(self.n_levels[v] for v in (*parents, i)), self.K)

    def table(self, flat: np.ndarray, f: int) -> np.ndarray:
        """Return the table of family `f` as a view of `flat` (cells, K).

        If there is a context, it is the first axis.
        """
        shape = self.shape(f)
        if self.context is None:
            return flat[self.start[f] : self.start[f + 1]].reshape(shape)
        copies = flat.reshape(self._copies, self.cells, self.K)
        return copies[:, self.start[f] : self.start[f + 1]].reshape(self._copies, *shape)

    @cached_property
    def widths(self) -> np.ndarray:
        """Number of levels (J,) of the feature for each of the J parent configurations."""
        levels = np.array([self.n_levels[i] for i, _ in self.families], dtype=np.intp)
        # each family has cells / levels configurations; 1 avoids a division by 0
        return np.repeat(levels, np.diff(self.start) // np.maximum(levels, 1))

    def sum_over_levels(self, flat: np.ndarray) -> np.ndarray:
        """Replace each cell of `flat` (cells, K) by the sum over the cells with the same parent
        configuration.
        """
        if not self.cells:  # `reduceat` needs at least one cell
            return flat.copy()
        copies = flat.reshape(-1, self.cells, self.K)
        configuration_start = np.cumsum(self.widths) - self.widths
        return np.repeat(
            np.add.reduceat(copies, configuration_start, axis=1), self.widths, axis=1
        ).reshape(flat.shape)

    @cached_property
    def cell_widths(self) -> np.ndarray:
        """Number of levels of each cell's feature, shape (cells,)."""
        return np.repeat(self.widths, self.widths)

    @cached_property
    def cell_family(self) -> np.ndarray:
        """Position of the family of each cell, shape (cells,)."""
        return np.repeat(np.arange(len(self.families)), np.diff(self.start))

    def zeros(self) -> np.ndarray:
        """Return tables of zeros, with shape (cells, K) for each copy, one copy after another."""
        return np.zeros((self._copies * self.cells, self.K))

    def count(self, sample: Rows, weights: np.ndarray | None = None) -> np.ndarray:
        """Return weighted counts (cells, K).

        Each family is counted in the rows where all its variables are known.

        With a context, the shape is (copies * cells, K), as in `zeros`. If given, `weights` (n,)
        replaces the weights of the sample. Rows with an unknown class (``y < 0``) are not counted.
        """
        out = self.zeros()
        for chunk in sample.chunks(BLOCK):  # `response` (rows,): class codes
            # rows in memory are a single chunk; only for them, `weights` may be given
            chunk_weights = chunk.weights if weights is None else weights
            if chunk.n:
                unknown = gaps(chunk.missing, chunk.codes)
                kernel.add_counts(
                    chunk.codes, unknown, chunk.response, chunk_weights, *self._cell_index, out
                )
        return out

    def spread(
        self, codes: np.ndarray, missing: np.ndarray | None, values: np.ndarray
    ) -> np.ndarray:
        """Sum `values` (n, K) over the rows in each cell; the result has shape (cells, K) for each
        copy.
        """
        out = self.zeros()
        if len(codes):
            kernel.add_to_cells(codes, gaps(missing, codes), values, *self._cell_index, out)
        return out

    def score(
        self, table: np.ndarray, codes: np.ndarray, missing: np.ndarray | None, out: np.ndarray
    ) -> np.ndarray:
        """Add the entries of `table` that belong to each row to `out` (n, K), for families without
        missing values.

        `table` has shape (cells, K) for each copy, as in `zeros`.
        """
        if len(codes):
            kernel.add_from_cells(codes, gaps(missing, codes), table, *self._cell_index, out)
        return out


def gaps(missing: np.ndarray | None, codes: np.ndarray) -> np.ndarray:
    """Return the mask of missing values for kernels, as uint8 (n, columns).

    If `missing` is None, the shape is (0, columns).
    """
    if missing is None:
        return np.empty((0, codes.shape[1]), dtype=np.uint8)
    return np.ascontiguousarray(missing).view(np.uint8)


def dirichlet(
    counts: np.ndarray, totals: np.ndarray, widths: np.ndarray, smooth: float
) -> np.ndarray:
    """Return Dirichlet estimates ``(N_ijk + a) / (N_ij + r_i a)`` (cells, K).

    If the denominator is zero, the estimate is ``1 / r_i``. `counts` (cells, K) contains the count
    N_ijk of each cell, `totals` (cells, K) the count N_ij of its parent configuration, and `widths`
    (cells,) the number of levels r_i of its feature; `smooth` is the prior count a of a cell.
    """
    widths = widths[:, None]
    denominator = totals + widths * smooth
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, (counts + smooth) / denominator, 1.0 / widths)


def class_counts(sample: Rows, K: int) -> np.ndarray:
    """Return the total weight of each class, shape (K,)."""
    return sample.group_totals(K)  # the groups of a sample are the classes


def class_probabilities(sample: Rows, K: int, smooth: float) -> np.ndarray:
    """Return the class probabilities ``(N_c + a) / (N + K a)`` (K,) for N rows with a known class,
    where a = `smooth`.
    """
    counts = class_counts(sample, K)
    # in the form of the table of a single feature with the K classes as levels
    return dirichlet(counts[:, None], np.full((K, 1), counts.sum()), np.full(K, K), smooth)[:, 0]
