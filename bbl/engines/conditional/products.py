"""Products with a design matrix of level indicators, computed from tables of composite predictors.

A *composite* is a set of predictors whose joint levels are coded as one number. Sums over rows are
computed from tables of the joint levels of two composites (for gradients) or of four (for
information matrices). This requires only one addition for each row and table. The design has n rows
and p = 1 + size columns, and D is the number of non-reference levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np

from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["DesignProducts", "has_products"]

MAX_PAIR_STATES = 2**16  # joint levels of two composites; the table stays in the second-level cache
# joint levels of four composites, unless a single predictor has more levels
MAX_QUAD_STATES = 2**16
MAX_STATES = 2**22  # beyond, tables are larger than the products they replace
BLOCK_ROWS = 16_384  # rows at a time for tables of two composites
MAX_TABLE_BYTES = 2**25  # of tables that are filled at a time
QUAD_ROWS = 2**17  # rows at a time for tables of four composites
MAX_QUADS = 50_000  # sets of four composites


def has_products(layout: Layout) -> bool:
    """Return whether `DesignProducts` can be used.

    All predictors must be nominal, terms must have at most two predictors, and the tables must not
    have too many levels.
    """
    if layout.numbers is not None or layout.scores is not None or layout.order > 2:
        return False
    levels = np.sort(layout.n_levels)[::-1]
    return float(np.prod(levels[:4], dtype=float)) <= MAX_STATES


class _Composites:
    """Composites of consecutive predictors, with at most `max_states` joint levels each.

    Parameters
    ----------
    layout : Layout
    max_states : float
        Maximum number of joint levels of a composite of several predictors.
    order : int
        Maximum number of indicators in a function of a composite; see `functions`.

    Attributes
    ----------
    members : list of lists of int
        The predictors of each composite. Constant predictors are omitted.
    n_states : list of int
        Number of joint levels of each composite.
    of_predictor : dict of int to int
        The composite of each predictor.
    dtype : type
        Type of the composites' codes.
    """

    def __init__(self, layout: Layout, max_states: float, order: int):
        self.order = order
        self.n_levels = layout.n_levels.astype(np.intp)
        self.members: list[list[int]] = []
        self.n_states: list[int] = []
        for i in np.flatnonzero(self.n_levels > 1).tolist():
            n = int(self.n_levels[i])
            if self.members and self.n_states[-1] * n <= max_states:
                self.members[-1].append(i)
                self.n_states[-1] *= n
            else:
                self.members.append([i])
                self.n_states.append(n)
        largest = max(self.n_states, default=1)
        self.dtype = np.uint8 if largest <= 2**8 else np.uint16 if largest <= 2**16 else np.uint32
        self.of_predictor = {i: c for c, own in enumerate(self.members) for i in own}

    def codes(self, codes: np.ndarray) -> list[np.ndarray]:
        """Return the codes (n,) of each composite, from the codes (n, m) of its predictors."""
        out = []
        for own in self.members:
            joint = codes[:, own[0]].astype(np.intp)
            for i in own[1:]:
                joint *= self.n_levels[i]
                joint += codes[:, i]
            out.append(joint)
        return out

    @cached_property
    def functions(self) -> list[list[tuple[tuple[int, int], ...]]]:
        """The functions of each composite: products of the indicators of up to `order` levels.

        A function is a tuple of (predictor, level) pairs, ordered by predictor. The first function
        is the constant 1, represented by an empty tuple.
        """
        out = []
        for own in self.members:
            singles = [[(i, a) for a in range(1, int(self.n_levels[i]))] for i in own]
            functions: list[tuple[tuple[int, int], ...]] = [()]
            for order in range(1, self.order + 1):
                for chosen in combinations(singles, order):
                    functions += list(product(*chosen))
            out.append(functions)
        return out

    @cached_property
    def values(self) -> list[np.ndarray]:
        """Values (functions, states) of the functions of each composite at its joint levels."""
        out = []
        for own, functions in zip(self.members, self.functions, strict=True):
            levels = np.indices([int(self.n_levels[i]) for i in own]).reshape(len(own), -1)
            place = {i: k for k, i in enumerate(own)}
            out.append(
                np.array(
                    [
                        np.all([levels[place[i]] == a for i, a in function], axis=0)
                        if function
                        else np.ones(levels.shape[1], dtype=bool)
                        for function in functions
                    ],
                    dtype=float,
                )
            )
        return out

    def to_functions(self, subset: tuple[int, ...], cells: np.ndarray) -> np.ndarray:
        """Convert a table of several composites to sums of products of the composites' functions.

        `cells` contains the total row weight at each joint level of the composites in `subset`.
        """
        for c in subset:  # each step moves the first axis to the end
            values = self.values[c]
            cells = cells.reshape(values.shape[1], -1).T @ values.T
        return cells.ravel()

    @cached_property
    def positions(self) -> list[dict[tuple[tuple[int, int], ...], int]]:
        """Position of each function among the functions of its composite."""
        return [{function: k for k, function in enumerate(own)} for own in self.functions]


@dataclass(frozen=True)
class _PairTable:
    """A table of two composites, and the design columns with sums that are computed from it.

    A column is the product of one function of each composite. In most columns, one of the two
    functions is the constant 1, or both are indicators of single levels. Products with tables
    therefore use only the few functions that occur in columns of two factors, and the margins of
    the table for the other columns.

    Attributes
    ----------
    composites : (int, int)
        The two composites; the second is -1 if the table has only one.
    values : tuple of two ndarrays, shapes (functions, states)
        Values of each composite's functions at its joint levels.
    alone : tuple of two pairs of ndarrays of intp, shape (C,)
        For each composite, the design columns with no other factor, and the position of their
        function.
    columns : ndarray of intp, shape (C,)
        The columns with two factors.
    factors : tuple of two ndarrays, shapes (used functions, states)
        Values of the functions that occur in `columns`.
    cells : tuple of two ndarrays of intp, shape (C,)
        For each of `columns`, the positions of its two functions in `factors`.
    """

    composites: tuple[int, int]
    values: tuple[np.ndarray, np.ndarray]
    alone: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    columns: np.ndarray
    factors: tuple[np.ndarray, np.ndarray]
    cells: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(
        cls,
        composites: tuple[int, int],
        values: tuple[np.ndarray, np.ndarray],
        columns: np.ndarray,
        functions: tuple[np.ndarray, np.ndarray],
    ) -> _PairTable:
        """Return the table for `columns` (C,) with the positions of their two `functions`."""
        first, second = functions
        joint = (first > 0) & (second > 0)
        used, places = zip(
            *(np.unique(own[joint], return_inverse=True) for own in functions), strict=True
        )
        return cls(
            composites,
            values,
            (
                (columns[second == 0], first[second == 0]),
                (columns[(first == 0) & (second > 0)], second[(first == 0) & (second > 0)]),
            ),
            columns[joint],
            (values[0][used[0]], values[1][used[1]]),
            (places[0].ravel(), places[1].ravel()),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of joint levels of each composite."""
        return self.values[0].shape[1], self.values[1].shape[1]

    def lookup(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the contribution (k, cells) of each cell to the scores."""
        k = len(coefficients)
        first, second = self.factors
        tables = np.zeros((k, len(first), len(second)))
        tables[:, self.cells[0], self.cells[1]] = coefficients[:, self.columns]
        out = first.T @ tables @ second
        for axis, (columns, functions) in enumerate(self.alone):
            own = coefficients[:, columns] @ self.values[axis][functions]
            out += np.expand_dims(own, 2 - axis)
        return out.reshape(k, -1)

    def to_columns(self, total: np.ndarray, out: np.ndarray) -> None:
        """Write the sums of this table's columns to `out` (k, p), given the totals (k, cells)."""
        first, second = self.factors
        total = total.reshape(len(out), *self.shape)
        sums = first @ (total @ second.T)
        out[:, self.columns] = sums[:, self.cells[0], self.cells[1]]
        for axis, (columns, functions) in enumerate(self.alone):
            if len(columns):
                out[:, columns] = total.sum(axis=2 - axis) @ self.values[axis][functions].T


class DesignProducts:
    """Products with the design (n, 1 + size) of rows, without forming it.

    Parameters
    ----------
    layout : Layout
        Layout of nominal predictors, with at most two predictors in a term; see `has_products`.
    """

    def __init__(self, layout: Layout):
        self.layout = layout
        self.p = 1 + layout.size

    # -- scores and sums ---------------------------------------------------------------------------

    @cached_property
    def _of_two(self) -> _Composites:
        """The composites used in tables of two composites."""
        return _Composites(self.layout, np.sqrt(MAX_PAIR_STATES), 2)

    @cached_property
    def _pair_tables(self) -> list[_PairTable]:
        """The tables of all columns of the design; each column is assigned to one table."""
        composites = self._of_two
        chosen: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        interacting = {
            tuple(sorted({composites.of_predictor[i], composites.of_predictor[j]}))
            for i, j in self.layout.pairs.tolist()
            if i in composites.of_predictor and j in composites.of_predictor
        }
        # the table for functions of a single composite
        home: dict[int, tuple[int, ...]] = {}
        for pair in sorted(interacting, key=len, reverse=True):
            for c in pair:
                home.setdefault(c, pair)
        for c in range(len(composites.members)):
            home.setdefault(c, (c,))
        for column, function in enumerate(_columns(self.layout)):
            parts: dict[int, list[tuple[int, int]]] = {}
            for i, a in function:
                parts.setdefault(composites.of_predictor[i], []).append((i, a))
            key = tuple(sorted(parts))
            table = key if len(key) == 2 else home[key[0] if key else 0]
            first, second = table if len(table) == 2 else (table[0], -1)
            cells = [
                composites.positions[c][tuple(parts.get(c, ()))] if c >= 0 else 0
                for c in (first, second)
            ]
            chosen.setdefault((first, second), []).append((column, cells[0], cells[1]))
        out = []
        for pair, entries in chosen.items():
            columns, rows, others = np.array(entries, dtype=np.intp).T
            values = (self._values(pair[0]), self._values(pair[1]))
            out.append(_PairTable.of(pair, values, columns, (rows, others)))
        return out

    @cached_property
    def key(self) -> tuple[bytes, bytes]:
        """Cache key that identifies the layout."""
        return self.layout.n_levels.tobytes(), self.layout.pairs.tobytes()

    def compact_codes(self, rows: Sample) -> np.ndarray:
        """Return the codes (q, n) of the q composites of rows, for `scores_and_sums`."""
        return self._compact(rows.codes)

    def _compact(self, codes: np.ndarray) -> np.ndarray:
        """Return the codes (q, n) of composites, from codes (n, m) of predictors."""
        composites = self._of_two
        out = np.empty((len(composites.members), len(codes)), dtype=composites.dtype)
        for first in range(0, len(codes), BLOCK_ROWS):
            rows = slice(first, min(len(codes), first + BLOCK_ROWS))
            for own, joint in zip(out, composites.codes(codes[rows]), strict=True):
                own[rows] = joint
        return out

    def _values(self, composite: int) -> np.ndarray:
        """Return the values of a composite's functions; -1 stands for the constant 1."""
        return np.ones((1, 1)) if composite < 0 else self._of_two.values[composite]

    def _cells(self, codes: np.ndarray) -> list[np.ndarray]:
        """Return the cell (b,) of each row in each table, from codes (q, b) of composites."""
        n_states = self._of_two.n_states
        wide = codes.astype(np.intp)
        out = []
        for table in self._pair_tables:
            first, second = table.composites
            if second < 0:
                out.append(wide[first])
                continue
            cell = wide[first] * n_states[second]
            cell += wide[second]
            out.append(cell)
        return out

    def scores_and_sums(
        self, codes: np.ndarray, lookups: list[np.ndarray], residuals: Callable
    ) -> tuple[float, np.ndarray]:
        """Return the sums over rows of a function of the scores, and of residuals times the design.

        Parameters
        ----------
        codes : ndarray, shape (q, n)
            Codes of composites, from `compact_codes`.
        lookups : list of ndarrays, shape (k, cells)
            Result of `lookups` for the coefficients of k groups.
        residuals : callable
            ``residuals(rows, scores)`` takes a slice of b rows and their scores (k, b), which it
            may overwrite. It returns a number and the residuals (k, b).

        Returns
        -------
        value : float
            Sum of the numbers that `residuals` returns.
        sums : ndarray, shape (k, p)
            Sums over rows of the residuals times the design.
        """
        n = codes.shape[1]
        totals = [np.zeros(lookup.shape) for lookup in lookups]
        value = 0.0
        for first in range(0, n, BLOCK_ROWS):
            rows = slice(first, min(n, first + BLOCK_ROWS))
            cells = self._cells(codes[:, rows])
            scores = self._look_up(cells, lookups, rows.stop - rows.start)
            own, values = residuals(rows, scores)
            value += own
            self._add(totals, cells, values)
        return value, self._to_columns(totals)

    def _add(self, totals: list[np.ndarray], cells: list[np.ndarray], values: np.ndarray) -> None:
        """Add the `values` (k, b) of rows to the totals (k, cells) of each table."""
        for total, cell in zip(totals, cells, strict=True):
            for own, one in zip(total, values, strict=True):
                own += np.bincount(cell, one, len(own))

    def scores(self, codes: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Return ``design @ coefficients.T`` (n, k), from codes (n, m) and `coefficients`
        (k, p).
        """
        out = np.empty((len(codes), len(coefficients)))
        lookups = self.lookups(coefficients)
        for first in range(0, len(codes), BLOCK_ROWS):
            rows = slice(first, min(len(codes), first + BLOCK_ROWS))
            cells = self._cells(self._compact(codes[rows]))
            out[rows] = self._look_up(cells, lookups, rows.stop - rows.start).T
        return out

    def sums(self, codes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return ``values.T @ design`` (k, p), from codes (n, m) and `values` (n, k)."""
        k = values.shape[1]
        columns = np.ascontiguousarray(values.T)
        totals = [np.zeros((k, table.shape[0] * table.shape[1])) for table in self._pair_tables]
        for first in range(0, len(codes), BLOCK_ROWS):
            rows = slice(first, min(len(codes), first + BLOCK_ROWS))
            self._add(totals, self._cells(self._compact(codes[rows])), columns[:, rows])
        return self._to_columns(totals)

    def lookups(self, coefficients: np.ndarray) -> list[np.ndarray]:
        """Return the contributions (k, cells) of each table's cells to the scores, for
        `coefficients` (k, p).
        """
        return [table.lookup(coefficients) for table in self._pair_tables]

    def _look_up(self, cells: list[np.ndarray], lookups: list[np.ndarray], n: int) -> np.ndarray:
        """Return the scores (k, n) of rows, given their cell in each table."""
        scores = np.zeros((len(lookups[0]), n))
        for cell, lookup in zip(cells, lookups, strict=True):
            for g, own in enumerate(lookup):
                scores[g] += own.take(cell)
        return scores

    def _to_columns(self, totals: list[np.ndarray]) -> np.ndarray:
        """Return the sums (k, p) of columns, given the totals (k, cells) of each table."""
        out = np.zeros((len(totals[0]), self.p))
        for table, total in zip(self._pair_tables, totals, strict=True):
            table.to_columns(total, out)
        return out

    # -- information -------------------------------------------------------------------------------

    @cached_property
    def _of_four(self) -> _Composites:
        """The composites used in tables of four composites."""
        return _Composites(self.layout, float(MAX_QUAD_STATES) ** 0.25, 4)

    @property
    def n_quads(self) -> float:
        """Upper bound on the number of tables of four composites."""
        q = float(len(self._of_four.members))
        return max(1.0, q * (q - 1) * (q - 2) * (q - 3) / 24.0)

    @cached_property
    def _moments(self) -> _Moments:
        """Positions of the moments of up to four levels."""
        return _Moments(self.layout, self._of_four)

    def gram(self, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return ``design.T @ (weights * design)`` (p, p), from `weights` (n,)."""
        return self.grams(codes, weights[None])[0]

    def grams(self, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the results (w, p, p) of `gram` for each of w sets of `weights` (w, n)."""
        return self.grams_of(self.moments(codes, weights))

    def grams_of(self, moments: np.ndarray) -> np.ndarray:
        """Return the results (w, p, p) of `grams`, given the `moments` (w, M)."""
        index = self._moments.index
        out = np.empty((len(moments), self.p, self.p))
        for one, own in zip(out, moments, strict=True):
            np.take(np.append(own, 0.0), index, out=one)
        return out

    def moments(self, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the moments (w, M) for each of w sets of `weights` (w, n).

        Each moment is the total weight of the rows that have all levels of a pair of design
        columns, i.e. up to four levels.
        """
        out = np.zeros((len(weights), self._moments.size))
        tables = self._moments.tables
        cells = [_n_cells(self._of_four, subset) for subset, *_ in tables]
        # as many tables at a time as fit into memory
        step = max(1, int(MAX_TABLE_BYTES // (8.0 * len(weights) * max(cells, default=1))))
        for first in range(0, len(tables), step):
            self._add_moments(out, codes, weights, tables[first : first + step])
        return out

    def _add_moments(
        self, out: np.ndarray, codes: np.ndarray, weights: np.ndarray, tables: list
    ) -> None:
        """Compute the moments that belong to `tables`, and write them to `out` (w, M)."""
        composites = self._of_four
        totals = [np.zeros((len(weights), _n_cells(composites, subset))) for subset, *_ in tables]
        for first in range(0, len(codes), QUAD_ROWS):
            rows = slice(first, min(len(codes), first + QUAD_ROWS))
            joint = _JointCodes(composites, codes[rows])
            for (subset, *_), total in zip(tables, totals, strict=True):
                cell = joint(subset)
                for own, weight in zip(total, weights, strict=True):
                    own += np.bincount(cell, weight[rows], len(own))
        for (subset, moments, positions), total in zip(tables, totals, strict=True):
            for row, own in zip(out, total, strict=True):
                np.take(composites.to_functions(subset, own), positions, out=row[moments])


class _JointCodes:
    """Codes of the joint levels of up to four composites, for a block of rows.

    Parameters
    ----------
    composites : _Composites
    codes : ndarray, shape (n, m)
        Levels of the predictors.
    """

    def __init__(self, composites: _Composites, codes: np.ndarray):
        self.n_states = composites.n_states
        self.codes = composites.codes(codes)
        self.n = len(codes)
        self.pairs: dict[tuple[int, ...], np.ndarray] = {}

    def _of_pair(self, pair: tuple[int, ...]) -> np.ndarray:
        """Return the joint codes (n,) of up to two composites, which are cached."""
        if len(pair) < 2:
            return self.codes[pair[0]] if pair else np.zeros(self.n, dtype=np.intp)
        if pair not in self.pairs:
            joint = self.codes[pair[0]] * self.n_states[pair[1]] + self.codes[pair[1]]
            self.pairs[pair] = joint.astype(np.uint16 if joint.max(initial=0) < 2**16 else np.intp)
        return self.pairs[pair]

    def __call__(self, subset: tuple[int, ...]) -> np.ndarray:
        """Return the joint codes (n,) of the composites in `subset`."""
        low = subset[2:]
        n_low = int(np.prod([self.n_states[c] for c in low], dtype=np.intp))
        joint = self._of_pair(subset[:2]).astype(np.intp)
        if low:
            joint *= n_low
            joint += self._of_pair(low)
        return joint


def _n_cells(composites: _Composites, subset: tuple[int, ...]) -> int:
    """Return the number of joint levels of the composites in `subset`."""
    return int(np.prod([composites.n_states[c] for c in subset], dtype=np.intp))


def _columns(layout: Layout) -> list[tuple[tuple[int, int], ...]]:
    """Return the (predictor, level) pairs of each column of the design, intercept first."""
    out: list[tuple[tuple[int, int], ...]] = [()]
    for scope in layout.scopes:
        levels = (range(1, int(layout.n_levels[i])) for i in scope)
        out += [tuple(zip(scope, chosen, strict=True)) for chosen in product(*levels)]
    return out


def _levels(scope: tuple[int, ...], i: int, n_levels: np.ndarray) -> np.ndarray:
    """Return the level of predictor `i`, minus 1, in each column of a term."""
    shape = [int(n_levels[j]) - 1 for j in scope]
    return np.indices(shape)[scope.index(i)].ravel()


def _positions(
    scope: tuple[int, ...], strides: dict[int, int], n_levels: np.ndarray, skipped: set[int]
) -> np.ndarray:
    """Return the position of each column of a term, which is a sum of levels times strides.

    The sum is over the predictors of the term that are not in `skipped`.
    """
    out = np.zeros(1, dtype=np.intp)
    for i in scope:
        own = np.arange(int(n_levels[i]) - 1) * (0 if i in skipped else strides[i])
        out = (out[:, None] + own).ravel()
    return out


class _Moments:
    """Positions of moments: weighted counts of rows with given levels of up to four predictors.

    Attributes
    ----------
    size : int
        Number M of moments.
    tables : list
        For each table, its composites, a slice of the moments, and the positions of these moments
        among the products of the composites' functions.
    index : ndarray of int, shape (p, p)
        The moment of each product of two columns of the design; M for products that are always 0.
    """

    def __init__(self, layout: Layout, composites: _Composites):
        self.n_levels = layout.n_levels.astype(np.intp)
        n_levels = self.n_levels
        scopes = [scope for scope in [(), *layout.scopes] if all(n_levels[i] > 1 for i in scope)]
        # columns of each scope, in the design
        starts = {(): 0} | {
            scope: 1 + int(start)
            for scope, start in zip(layout.scopes, layout.cuts[:-1], strict=True)
        }
        pairs = [
            (one, other, tuple(sorted({*one, *other})))
            for s, one in enumerate(scopes)
            for other in scopes[s:]
        ]
        by_table = _assign_to_tables({union for *_, union in pairs}, composites)
        offsets: dict[tuple[int, ...], int] = {}
        self.size = 0
        self.tables: list[tuple[tuple[int, ...], slice, np.ndarray]] = []
        for subset, unions in by_table.items():
            start = self.size
            for union in unions:
                offsets[union] = self.size
                self.size += int(np.prod(n_levels[list(union)] - 1, dtype=np.intp))
            positions = _function_positions(subset, unions, composites, n_levels)
            self.tables.append((subset, slice(start, self.size), positions))
        p = 1 + layout.size
        self.index = np.full((p, p), self.size, dtype=np.int32)
        # blocks of terms with the same numbers of levels differ only in their offset
        known: dict[tuple, np.ndarray] = {}
        for one, other, union in pairs:
            key = (
                tuple(map(union.index, one)),
                tuple(map(union.index, other)),
                tuple(n_levels[list(union)].tolist()),
            )
            block = known.get(key)
            if block is None:
                block = known[key] = self._products(one, other, union)
            a, b = starts[one], starts[other]
            target = self.index[a : a + len(block), b : b + block.shape[1]]
            np.add(block, offsets[union], out=target)
            if len(union) < len(one) + len(other):
                target[block < 0] = self.size
        np.minimum(self.index, self.index.T, out=self.index)

    def _products(
        self, one: tuple[int, ...], other: tuple[int, ...], union: tuple[int, ...]
    ) -> np.ndarray:
        """Return the position of each product of two terms' columns among the moments of their
        union.

        The position is a large negative number for products that are always 0.
        """
        n_levels = self.n_levels
        strides = {}
        stride = 1
        for i in reversed(union):
            strides[i] = stride
            stride *= int(n_levels[i]) - 1
        left = _positions(one, strides, n_levels, set())
        right = _positions(other, strides, n_levels, set(one))
        out = left[:, None] + right
        shared = set(one) & set(other)
        if shared:
            conflict = np.zeros(out.shape, dtype=bool)
            for i in shared:
                conflict |= _levels(one, i, n_levels)[:, None] != _levels(other, i, n_levels)
            out[conflict] = -(2**30)
        return out.astype(np.int32)


def _assign_to_tables(
    unions: set[tuple[int, ...]], composites: _Composites
) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the sets of predictors whose moments are computed from each table of composites."""
    by_subset: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for union in sorted(unions):
        subset = tuple(sorted({composites.of_predictor[i] for i in union}))
        by_subset.setdefault(subset, []).append(union)
    # smaller sets of composites are sums over a larger table, if there is one
    tables: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    containing: dict[tuple[int, ...], tuple[int, ...]] = {}
    for subset in sorted(by_subset, key=len, reverse=True):
        home = containing.get(subset)
        if home is None:
            home = subset or (0,) * bool(composites.members)
            for order in range(len(home) + 1):
                for smaller in combinations(home, order):
                    containing.setdefault(smaller, home)
        tables.setdefault(home, []).extend(by_subset[subset])
    return tables


def _function_positions(
    subset: tuple[int, ...],
    unions: list[tuple[int, ...]],
    composites: _Composites,
    n_levels: np.ndarray,
) -> np.ndarray:
    """Return the positions of the moments of `unions` among the products of functions of the
    composites in `subset`.
    """
    of_scope: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
    out = [np.zeros(0, dtype=np.intp)]
    for union in unions:
        position = np.zeros(1, dtype=np.intp)
        # the predictors of a union are ordered, and so are those of consecutive composites
        for c in subset:
            scope = tuple(i for i in union if composites.of_predictor[i] == c)
            own = of_scope.get((c, scope))
            if own is None:
                own = of_scope[c, scope] = np.array(
                    [
                        composites.positions[c][tuple(zip(scope, levels, strict=True))]
                        for levels in product(*(range(1, int(n_levels[i])) for i in scope))
                    ]
                )
            position = np.add.outer(position * len(composites.functions[c]), own).ravel()
        out.append(position)
    return np.concatenate(out)
