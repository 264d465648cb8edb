"""Tables of families: their layout in one array, counts of rows in them, and Dirichlet estimates.

A family is a feature and its feature parents; the class (K values) is a further parent of every
feature. A parent configuration is one combination of the parents' levels; a cell is a configuration
with one level of the feature.
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

BLOCK = 65536  # rows of a file that are read and counted at a time


class Families:
    """Tables of families, one after the other in one array (cells, K): the K classes of a cell lie
    side by side.

    The table of a feature has the axes (parents..., feature, class), C-contiguous.

    Parameters
    ----------
    families : sequence of (int, tuple of int)
        Each feature and its feature parents, as positions of columns of the codes.
    n_levels : sequence of int, length m
        Declared levels of every column.
    K : int
        Classes.
    context : (int, int), optional
        A column of the codes and its number of values, such as the fold: all tables are repeated
        for each value, and a row uses the copy of its value.

    Attributes
    ----------
    families, n_levels, K, context
        As given; `families` is a tuple, `n_levels` a list.
    cells : int
        Number of cells of all tables, in one copy.
    start : ndarray of intp, shape (families + 1,)
        First cell of each table, then `cells`.

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
        # variables of all families, and how many cells lie between two successive levels of each,
        # see `_cell_index`
        scope: list[int] = []
        stride: list[int] = []
        # where each family starts in `scope` and in the cells
        scope_start = [0]
        start = [0]
        cells = 0
        for i, parents in self.families:
            size = 1
            # the feature runs fastest over the cells, then its last parent
            for v in (i, *reversed(parents)):
                scope.append(v)
                stride.append(size)
                size *= self.n_levels[v]
            cells += size
            if context is not None:
                scope.append(context[0])
                stride.append(0)  # set below: the cells of all families
            scope_start.append(len(scope))
            start.append(cells)
        self.cells = cells
        # counts, their totals and probabilities, 8 bytes each, for every cell and class
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
        """Arrays by which kernels find cells: family f is at ``start[f] + sum(codes[scope[s]] *
        stride[s])``.

        The sum is over ``scope_start[f] <= s < scope_start[f + 1]``.
        """
        return self._scope_start, self._scope, self._stride, self.start[:-1]

    @property
    def _copies(self) -> int:
        """Copies of all tables: the values of the context."""
        return 1 if self.context is None else self.context[1]

    def shape(self, f: int) -> tuple[int, ...]:
        """Return the shape (parents..., feature, class) of the table of family `f`."""
        i, parents = self.families[f]
        return (*(self.n_levels[v] for v in (*parents, i)), self.K)

    def table(self, flat: np.ndarray, f: int) -> np.ndarray:
        """Return the table of family `f` as a view of `flat` (cells, K); a context becomes the
        first axis.
        """
        shape = self.shape(f)
        if self.context is None:
            return flat[self.start[f] : self.start[f + 1]].reshape(shape)
        copies = flat.reshape(self._copies, self.cells, self.K)
        return copies[:, self.start[f] : self.start[f + 1]].reshape(self._copies, *shape)

    @cached_property
    def widths(self) -> np.ndarray:
        """Number of levels of the feature of each of the J parent configurations of all families,
        shape (J,).
        """
        levels = np.array([self.n_levels[i] for i, _ in self.families], dtype=np.intp)
        # each family has cells / levels configurations
        # 1: no division by 0
        return np.repeat(levels, np.diff(self.start) // np.maximum(levels, 1))

    def sum_over_levels(self, flat: np.ndarray) -> np.ndarray:
        """Return, for each cell of `flat` (cells, K), the sum over the cells of its parent
        configuration.
        """
        if not self.cells:  # `reduceat` needs a cell
            return flat.copy()
        copies = flat.reshape(-1, self.cells, self.K)
        configuration_start = np.cumsum(self.widths) - self.widths
        return np.repeat(
            np.add.reduceat(copies, configuration_start, axis=1), self.widths, axis=1
        ).reshape(flat.shape)

    @cached_property
    def cell_widths(self) -> np.ndarray:
        """Number of levels of the feature of each cell, shape (cells,)."""
        return np.repeat(self.widths, self.widths)

    @cached_property
    def cell_family(self) -> np.ndarray:
        """Number of the family of each cell, shape (cells,)."""
        return np.repeat(np.arange(len(self.families)), np.diff(self.start))

    def zeros(self) -> np.ndarray:
        """Return tables of zeros, (cells, K) for each copy, one copy after the other."""
        return np.zeros((self._copies * self.cells, self.K))

    def count(self, sample: Rows, weights: np.ndarray | None = None) -> np.ndarray:
        """Return weighted counts (cells, K), each family's of the rows in which none of its
        variables is missing.

        With a context the shape is (copies * cells, K), as of `zeros`. `weights` (n,) replace those
        of the sample. Rows of unknown class (``y < 0``) do not count.
        """
        out = self.zeros()
        for chunk in sample.chunks(BLOCK):  # `response` (rows,): class codes
            # rows in memory, for which `weights` are given, are one chunk
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
        """Return, for each cell (cells, K), in each copy, the sum of `values` (n, K) over the rows
        that are in it.
        """
        out = self.zeros()
        if len(codes):
            kernel.add_to_cells(codes, gaps(missing, codes), values, *self._cell_index, out)
        return out

    def score(
        self, table: np.ndarray, codes: np.ndarray, missing: np.ndarray | None, out: np.ndarray
    ) -> np.ndarray:
        """Add to each row of `out` (n, K) its entries of `table`, one for each family without
        missing values.

        `table` has the shape (cells, K) for each copy, as of `zeros`.
        """
        if len(codes):
            kernel.add_from_cells(codes, gaps(missing, codes), table, *self._cell_index, out)
        return out


def gaps(missing: np.ndarray | None, codes: np.ndarray) -> np.ndarray:
    """Return the mask of missing values for kernels: uint8 (n, columns), or (0, columns) if
    `missing` is None.
    """
    if missing is None:
        return np.empty((0, codes.shape[1]), dtype=np.uint8)
    return np.ascontiguousarray(missing).view(np.uint8)


def dirichlet(
    counts: np.ndarray, totals: np.ndarray, widths: np.ndarray, smooth: float
) -> np.ndarray:
    """Return ``(N_ijk + a) / (N_ij + r_i a)`` of shape (cells, K), and ``1 / r_i`` where the
    denominator is zero.

    `counts` (cells, K) holds N_ijk, the rows in each cell; `totals` (cells, K) N_ij, those in its
    parent configuration; `widths` (cells,) r_i, the number of levels of its feature; `smooth` is
    the prior count a of a cell.
    """
    widths = widths[:, None]
    denominator = totals + widths * smooth
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > 0, (counts + smooth) / denominator, 1.0 / widths)


def class_counts(sample: Rows, K: int) -> np.ndarray:
    """Return the weight (K,) of the rows of each class."""
    return sample.group_totals(K)  # the groups of a sample are its classes


def class_probabilities(sample: Rows, K: int, smooth: float) -> np.ndarray:
    """Return ``(N_c + a) / (N + K a)``, shape (K,), over the N rows of known class; `smooth` is the
    prior count a.
    """
    counts = class_counts(sample, K)
    # as a table of one feature, whose K levels are the classes
    return dirichlet(counts[:, None], np.full((K, 1), counts.sum()), np.full(K, K), smooth)[:, 0]
