"""The distinct values of a column and their counts, merged over batches, and judged while they come."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from bbl.design.columns import refuse_identifier
from bbl.design.factors import Factor
from bbl.design.frames import differing_categories
from bbl.design.values import Column, Counted, check_discrete, level_key

__all__ = ["Merged"]

MAX_DISTINCT = 1_000_000  # distinct values of a column that are kept at most
FIRST_CHECK_AT = 4096  # distinct values of a column at which it is first checked, before all batches are read


class Merged:
    """The distinct values of a column and their counts, merged over batches."""

    def __init__(self, name: Hashable):
        self.name, self.values, self.kinds = name, [], []  # type: tuple[Hashable, list, list[str]]
        self.counts, self.totals = np.zeros(0, dtype=np.int64), np.zeros(0)
        self.declared: bool | None = None
        self.ordered = False
        self.order_problem = ""
        self._position: dict[tuple[str, Any], int] = {}
        self._next_check_at = FIRST_CHECK_AT

    def add(self, column: Column, weights: np.ndarray | None) -> None:
        """Add the rows of a batch."""
        codes = column.codes
        counts = np.bincount(codes, minlength=len(column.values))
        self._declare(column)
        where = np.empty(len(counts), dtype=np.intp)
        for k, (kind, value) in enumerate(zip(column.kinds, column.values, strict=True)):
            where[k] = self._position.setdefault(level_key(kind, value), len(self.values))
            if where[k] == len(self.values):
                self.values.append(value)
                self.kinds.append(kind)
        grown = len(self.values) - len(self.counts)
        self.counts = np.append(self.counts, np.zeros(grown, dtype=np.int64))
        self.totals = np.append(self.totals, np.zeros(grown))
        np.add.at(self.counts, where, counts)
        np.add.at(self.totals, where, counts if weights is None else np.bincount(codes, weights, len(counts)))
        if len(self.values) > self._next_check_at and not self.declared:
            self._check()

    def _declare(self, column: Column) -> None:
        """Merge what batches declare: an order that some declare has to be that of all."""
        if set(column.kinds) <= {"missing"}:
            return
        categories = [v for v, kind in zip(column.values, column.kinds, strict=True) if kind != "missing"]
        if self.declared is None:
            self.declared, self.ordered, self._categories = column.declared, column.ordered, categories
        problem = column.order_problem
        if self.declared != column.declared or self.ordered != column.ordered:
            problem = problem or "is not of the same categories in all batches. Declare them alike"
        elif self.declared and categories != self._categories:
            problem = problem or differing_categories(self._categories, categories, "batches")
        self.order_problem = self.order_problem or problem
        self.declared, self.ordered = self.declared and column.declared, self.ordered or column.ordered

    def _check(self) -> None:
        """Refuse early what will be refused, before its values fill the memory."""
        self._next_check_at = 2 * len(self.values)
        check_discrete(self.name, list(zip(self.kinds, self.values, strict=True)), 2**62)
        if len(self.values) > MAX_DISTINCT:
            refuse_identifier(self.name, len(self.values), float(self.totals.sum()))

    def counted(self) -> Counted:
        """Return the values that occur, and those that are declared; missing ones are the last."""
        here = range(len(self.kinds)) if self.declared else np.flatnonzero(self.counts).tolist()
        values_in_order = sorted((k for k in here if self.kinds[k] != "missing" or self.counts[k]), key=self._last)
        values, kinds = [self.values[k] for k in values_in_order], [self.kinds[k] for k in values_in_order]
        return Counted(
            self.name,
            self.counts[values_in_order],
            values,
            kinds,
            bool(self.declared),
            self.ordered,
            self.order_problem,
        )

    def _last(self, k: int) -> bool:
        return self.kinds[k] == "missing"

    def by_level(self, factor: Factor, argument: str, skip_missing: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and total weight (L,) of each level of `factor`; missing values count if they are a level."""
        at = [k for k in np.flatnonzero(self.counts) if not (skip_missing and self.kinds[k] == "missing")]
        values, kinds = [self.values[k] for k in at], [self.kinds[k] for k in at]
        column = Column(self.name, np.arange(len(at)), values, kinds, bool(self.declared), self.ordered)
        codes, L = factor.encode(column, argument=argument)[0], len(factor.levels)
        return np.bincount(codes, self.counts[at], L), np.bincount(codes, self.totals[at], L)

    def join(self, other: Merged) -> None:
        """Add the values and counts of other batches."""
        none = np.zeros(0, dtype=np.intp)
        declared = bool(other.declared), other.ordered, other.order_problem
        self.add(Column(self.name, none, other.values, other.kinds, *declared), None)
        at = [self._position[level_key(kind, value)] for kind, value in zip(other.kinds, other.values, strict=True)]
        np.add.at(self.counts, at, other.counts)
        np.add.at(self.totals, at, other.totals)
