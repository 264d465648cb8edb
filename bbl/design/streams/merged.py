"""`Merged`: a column's distinct values and their counts, merged over batches of a source."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from bbl.design.factors import Factor, check_discrete, has_many_fractions, refuse_identifier
from bbl.design.frames import describe_difference
from bbl.design.values import Column, Counted, level_key

__all__ = ["Merged"]

# a column with more distinct values raises an error because it looks like an identifier
MAX_DISTINCT = 1_000_000
# a column looks like an identifier if it has this many distinct values and only slightly more rows
MANY_DISTINCT = 16_384
ROWS_OF_A_VALUE = 1.1
# a column is first checked at this number of distinct values, and again each time the number
# doubles
FIRST_CHECK_AT = 12


class Merged:
    """The distinct values of a column and their counts, merged over batches.

    Attributes
    ----------
    name, values, kinds, order_problem
        As in `Column`.
    counts, totals : ndarray, shape (number of values,)
        Number of rows and sum of weights for each value.
    declared : bool or None
        Whether all batches so far have declared categories; None before the first batch with
        values.
    ordered : bool
        Whether the categories of a batch are declared as ordered.
    listed : bool
        Whether the levels of the column are listed in `xlevels`; the number of values is then not
        limited.
    """

    def __init__(self, name: Hashable, listed: bool = False):
        self.listed = listed
        self.name = name
        self.values: list[Any] = []
        self.kinds: list[str] = []
        self.counts = np.zeros(0, dtype=np.int64)
        self.totals = np.zeros(0)
        self.declared: bool | None = None
        self.ordered = False
        self.order_problem = ""
        self._position: dict[tuple[str, Any], int] = {}  # in `values`, by `level_key`
        self._next_check_at = FIRST_CHECK_AT

    def add(self, column: Column, weights: np.ndarray | None) -> None:
        """Add the rows of a batch with `weights` (n,); None stands for weights of 1.

        Columns with too many values raise an error.
        """
        counts = column.value_rows()
        self._merge(column, counts, counts if weights is None else column.value_rows(weights))

    def _merge(self, column: Column, counts: np.ndarray, totals: np.ndarray) -> None:
        """Add a column's values, with the number of rows and the weight of each value."""
        self._merge_declarations(column)
        positions = np.empty(len(counts), dtype=np.intp)  # positions in `self.values`
        for k, (kind, value) in enumerate(zip(column.kinds, column.values, strict=True)):
            positions[k] = self._position.setdefault(level_key(kind, value), len(self.values))
            if positions[k] == len(self.values):  # this is a new value
                self.values.append(value)
                self.kinds.append(kind)
        n_new = len(self.values) - len(self.counts)
        self.counts = np.append(self.counts, np.zeros(n_new, dtype=np.int64))
        self.totals = np.append(self.totals, np.zeros(n_new))
        # several values of the column may have the same position
        np.add.at(self.counts, positions, counts)
        np.add.at(self.totals, positions, totals)
        if len(self.values) > self._next_check_at and not (self.declared or self.listed):
            self._check()

    def _merge_declarations(self, column: Column) -> None:
        """Update `declared`, `ordered` and `order_problem`.

        All batches must declare the same categories in the same order.
        """
        if set(column.kinds) <= {"missing"}:  # without values, categories are not declared
            return
        categories = [
            v for v, kind in zip(column.values, column.kinds, strict=True) if kind != "missing"
        ]
        if self.declared is None:
            # `_categories`: the categories of the first batch with values
            self.declared = column.declared
            self.ordered = column.ordered
            self._categories = categories
        problem = column.order_problem
        if self.declared != column.declared or self.ordered != column.ordered:
            problem = (
                problem
                or "does not have the same categories in all batches. Declare the same "
                "categories everywhere"
            )
        elif self.declared and categories != self._categories:
            problem = problem or describe_difference(self._categories, categories, "batches")
        self.order_problem = self.order_problem or problem
        self.declared = self.declared and column.declared
        self.ordered = self.ordered or column.ordered

    def _check(self) -> None:
        """Raise an error for continuous columns and identifiers early, before their values exhaust
        memory.
        """
        self._next_check_at = 2 * len(self.values)
        # Further rows do not make a column of fractions discrete, but rare integers may become
        # frequent.
        if has_many_fractions(self.kinds, self.values):
            check_discrete(self.counted())
        L = len(self.values)
        n_rows = float(max(self.counts.sum(), self.totals.sum()))
        if L > MAX_DISTINCT or (L > MANY_DISTINCT and n_rows < ROWS_OF_A_VALUE * L):
            refuse_identifier(self.name, L, n_rows, set(self.kinds) <= {"number", "missing"}, True)

    def counted(self) -> Counted:
        """Return the values that occur and all declared values.

        A missing value comes last, and is included only if it occurs.
        """
        kept = self._kept_positions()
        return Counted(
            self.name,
            self.counts[kept],
            [self.values[k] for k in kept],
            [self.kinds[k] for k in kept],
            bool(self.declared),
            self.ordered,
            self.order_problem,
        )

    def counted_totals(self) -> np.ndarray:
        """Return the total weight of each value in `counted`."""
        return self.totals[self._kept_positions()]

    def _kept_positions(self) -> list[int]:
        """Return the positions of the values of `counted` among the merged values, in the order of
        `counted`.
        """
        candidates = (
            range(len(self.kinds)) if self.declared else np.flatnonzero(self.counts).tolist()
        )
        kept = [k for k in candidates if self.kinds[k] != "missing" or self.counts[k]]
        # a stable sort moves the missing value to the end and keeps the order of the other values
        return sorted(kept, key=lambda k: self.kinds[k] == "missing")

    def by_level(
        self, factor: Factor, argument: str, skip_missing: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of rows (L,) and the sum of weights (L,) for each level of `factor`.

        Missing values are treated as a level unless `skip_missing`. `argument` is the name of the
        data in messages.
        """
        kept_positions = [
            k
            for k in np.flatnonzero(self.counts)
            if not (skip_missing and self.kinds[k] == "missing")
        ]
        values = [self.values[k] for k in kept_positions]
        kinds = [self.kinds[k] for k in kept_positions]
        # a column with one row for each value that occurs
        column = Column(
            self.name,
            np.arange(len(kept_positions)),
            values,
            kinds,
            bool(self.declared),
            self.ordered,
        )
        codes = factor.encode(column, argument=argument)[0]
        L = len(factor.levels)
        # sum the counts and the weights over the values of each level
        return np.bincount(codes, self.counts[kept_positions], L), np.bincount(
            codes, self.totals[kept_positions], L
        )

    def join(self, other: Merged) -> None:
        """Add the values and counts of `other` batches of the column."""
        declarations = bool(other.declared), other.ordered, other.order_problem
        no_rows = np.zeros(0, dtype=np.intp)
        column = Column(self.name, no_rows, other.values, other.kinds, *declarations)
        self._merge(column, other.counts, other.totals)
