"""`Merged`: the distinct values of a column and their counts, merged over the batches of a source.

A `Column` has `codes` (n,) of rows into its distinct `values`, and the `kinds` of these values
("number", ..., "missing"). It says whether these are declared categories, whether these are
ordered, and why that order is unknown, if it is (`order_problem`). A `Factor` has the name and the
L levels of a column; ``encode(column)`` returns the codes of a column as numbers of levels, and a
mask of unknown values. `level_key` returns a key that is equal for equal values.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from bbl.design.columns import refuse_identifier
from bbl.design.factors import Factor
from bbl.design.frames import describe_difference
from bbl.design.values import Column, Counted, check_discrete, level_key

__all__ = ["Merged"]

MAX_DISTINCT = 1_000_000  # distinct values of a column; with more it is refused as an identifier
# distinct values at which a column is first checked; then whenever their number has doubled
FIRST_CHECK_AT = 4096


class Merged:
    """The distinct values of a column and their counts, merged over batches.

    Attributes
    ----------
    name, values, kinds, order_problem
        As those of `Column`.
    counts, totals : ndarray, shape (number of values,)
        Number of rows, and sum of the weights, of each value.
    declared : bool or None
        Whether all batches so far have declared categories; None before the first batch with
        values.
    ordered : bool
        Whether a batch declares its categories as ordered.
    """

    def __init__(self, name: Hashable):
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
        """Add the rows of a batch with `weights` (n,), None for ones; refuse columns with too many
        values.
        """
        codes = column.codes
        counts = np.bincount(codes, minlength=len(column.values))  # of the batch's values
        self._merge_declarations(column)
        positions = np.empty(len(counts), dtype=np.intp)  # of the batch's values in `self.values`
        for k, (kind, value) in enumerate(zip(column.kinds, column.values, strict=True)):
            positions[k] = self._position.setdefault(level_key(kind, value), len(self.values))
            if positions[k] == len(self.values):  # a new value
                self.values.append(value)
                self.kinds.append(kind)
        n_new = len(self.values) - len(self.counts)
        self.counts = np.append(self.counts, np.zeros(n_new, dtype=np.int64))
        self.totals = np.append(self.totals, np.zeros(n_new))
        # several values of the batch may have one position
        np.add.at(self.counts, positions, counts)
        np.add.at(
            self.totals,
            positions,
            counts if weights is None else np.bincount(codes, weights, len(counts)),
        )
        if len(self.values) > self._next_check_at and not self.declared:
            self._check()

    def _merge_declarations(self, column: Column) -> None:
        """Update `declared`, `ordered` and `order_problem`: all batches must declare the same
        categories and order.
        """
        if set(column.kinds) <= {"missing"}:  # no values, so nothing is declared
            return
        categories = [
            v for v, kind in zip(column.values, column.kinds, strict=True) if kind != "missing"
        ]
        if self.declared is None:
            # `_categories`: those of the first batch that has values
            self.declared = column.declared
            self.ordered = column.ordered
            self._categories = categories
        problem = column.order_problem
        if self.declared != column.declared or self.ordered != column.ordered:
            problem = problem or "is not of the same categories in all batches. Declare them alike"
        elif self.declared and categories != self._categories:
            problem = problem or describe_difference(self._categories, categories, "batches")
        self.order_problem = self.order_problem or problem
        self.declared = self.declared and column.declared
        self.ordered = self.ordered or column.ordered

    def _check(self) -> None:
        """Refuse continuous columns and identifiers early, before their values fill the memory."""
        self._next_check_at = 2 * len(self.values)
        # more rows may come: so many that check_discrete judges by the number of values, not by
        # their share of rows
        n_rows = 2**62
        check_discrete(self.name, list(zip(self.kinds, self.values, strict=True)), n_rows)
        if len(self.values) > MAX_DISTINCT:
            refuse_identifier(self.name, len(self.values), float(self.totals.sum()))

    def counted(self) -> Counted:
        """Return the values that occur, and all declared values; the missing value is last, and
        only if it occurs.
        """
        candidates = (
            range(len(self.kinds)) if self.declared else np.flatnonzero(self.counts).tolist()
        )
        kept_positions = [k for k in candidates if self.kinds[k] != "missing" or self.counts[k]]
        # moves it to the end, and keeps the order
        kept_positions.sort(key=lambda k: self.kinds[k] == "missing")
        values = [self.values[k] for k in kept_positions]
        kinds = [self.kinds[k] for k in kept_positions]
        declarations = bool(self.declared), self.ordered, self.order_problem
        return Counted(self.name, self.counts[kept_positions], values, kinds, *declarations)

    def by_level(
        self, factor: Factor, argument: str, skip_missing: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows (L,) and the sum of weights (L,) of each level of `factor`.

        Missing values count as a level unless `skip_missing`. `argument` is the name of the data in
        messages.
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
        # sums of the counts, and of the weights, of the values of each level
        return np.bincount(codes, self.counts[kept_positions], L), np.bincount(
            codes, self.totals[kept_positions], L
        )

    def join(self, other: Merged) -> None:
        """Add the values and counts of `other` batches of the column."""
        declarations = bool(other.declared), other.ordered, other.order_problem
        # a batch without rows adds the values; their counts follow
        no_rows = np.zeros(0, dtype=np.intp)
        self.add(Column(self.name, no_rows, other.values, other.kinds, *declarations), weights=None)
        keys = (
            level_key(kind, value) for kind, value in zip(other.kinds, other.values, strict=True)
        )
        # of the values of `other` in `self.values`
        positions = [self._position[key] for key in keys]
        np.add.at(self.counts, positions, other.counts)
        np.add.at(self.totals, positions, other.totals)
