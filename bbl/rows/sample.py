"""Sample: the encoded rows of one data set (codes, response, weights) as plain arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bbl.errors import DataError
from bbl.memory import check_memory

__all__ = ["Sample", "code_dtype"]

FEW_STATES = 65536
EXACT_BITS = 53
EXACT = 2.0**EXACT_BITS  # whole numbers below it are exact


def code_dtype(n_levels) -> np.dtype:
    """Return the narrowest kernel code type (uint8, uint16 or int32) that holds every level."""
    top = int(np.max(n_levels, initial=2))
    return np.dtype(np.uint8 if top <= 256 else np.uint16 if top <= 65536 else np.int32)


@dataclass(frozen=True)
class Sample:
    """Encoded rows.

    Attributes
    ----------
    codes : ndarray of uint8, uint16 or int32, shape (n, m), C-contiguous
        Level codes ``0..L_i-1``; code 0 is the reference level, and stands where a value is missing.
    weights : ndarray of float64, shape (n,)
        Positive: how often each row was observed, or other numbers where the method takes them (`Engine.weights`).
    y : ndarray of intp, shape (n,), or None
        Response codes; None for one group.
    missing : ndarray of bool, shape (n, m), or None
        Which values are missing; None if none are.
    """

    codes: np.ndarray
    weights: np.ndarray
    y: np.ndarray | None = None
    missing: np.ndarray | None = None

    @property
    def response(self) -> np.ndarray:
        """Response codes (n,); zeros for one group."""
        return np.zeros(self.n, dtype=np.intp) if self.y is None else self.y

    @property
    def n(self) -> int:
        """Number of stored rows."""
        return len(self.codes)

    @property
    def m(self) -> int:
        """Number of predictors."""
        return self.codes.shape[1]

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return self.missing is None

    @property
    def unweighted(self) -> bool:
        """Whether all weights are 1."""
        return bool((self.weights == 1.0).all())

    @property
    def total(self) -> float:
        """Sum of the weights: the number of observations."""
        return float(self.weights.sum())

    @property
    def whole(self) -> bool:
        """Whether all weights are whole numbers, so that a row of weight w stands for w rows."""
        return bool((self.weights == np.floor(self.weights)).all())

    @property
    def exact(self) -> bool:
        """Whether every sum of weights is exact, and so the same in any order of the rows."""
        return self.whole and self.total < EXACT

    def check_whole(self, what: str) -> None:
        """Raise a DataError that says `what` counts rows, if weights are not whole numbers."""
        if not self.whole:
            raise DataError(
                f"{what} by how often each row was observed, and the weights of this fit are not whole numbers. Fit "
                "with counts as weights, or without.",
                argument="weights",
            )

    def rows(self, index) -> Sample:
        """Return the sample of the rows selected by `index` (a mask or positions)."""
        y = None if self.y is None else self.y[index]
        missing = None if self.missing is None else self.missing[index]
        if missing is not None and not missing.any():
            missing = None
        return Sample(np.ascontiguousarray(self.codes[index]), self.weights[index], y, missing)

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows in order, `size` of them at a time: what sums over rows go by."""
        for first in range(0, self.n, size):
            yield self.rows(slice(first, first + size))

    def sums(self, name: Hashable, function: Callable[[Sample], Any]) -> Any:
        """Return what is additive over rows, in one go; `StoredSample.sums` keeps it under its `name`."""
        return function(self)

    def weighted(self, weights: np.ndarray) -> Sample:
        """Return the rows of positive weight, with these `weights` (n,) in place of their own."""
        return replace(self, weights=weights).rows(weights > 0)

    @property
    def complete_rows(self) -> Sample:
        """The rows in which no value is missing."""
        return self if self.missing is None else self.rows(~self.missing.any(axis=1))

    def systematic_sample(self, size: int) -> Sample:
        """Return at most `size` rows, evenly by weight; their weights say how often each was taken."""
        if self.n <= size:
            return self
        at = (np.arange(size) + 0.5) * (self.total / size)
        chosen = np.searchsorted(np.cumsum(self.weights), at, side="right")
        return self.weighted(np.bincount(chosen, minlength=self.n).astype(float))

    @property
    def pooled(self) -> Sample:
        """The same rows as one group."""
        return replace(self, y=None)

    def group(self, y: int) -> Sample:
        """Return the rows of response group `y`."""
        return self.rows(self.y == y).pooled

    def by_state(self, n_levels, K: int) -> Sample:
        """Return one row per distinct state of each of K groups, in a fixed order."""
        parts = [self.rows(self.response == y).pooled.collapsed(n_levels) for y in range(K)]
        missing = [
            np.zeros(group_sample.codes.shape, dtype=bool) if group_sample.missing is None else group_sample.missing
            for group_sample in parts
        ]
        return Sample(
            np.concatenate([group_sample.codes for group_sample in parts]),
            np.concatenate([group_sample.weights for group_sample in parts]),
            np.repeat(np.arange(K), [group_sample.n for group_sample in parts]),
            None if self.missing is None else np.concatenate(missing),
        )

    def collapsed(self, n_levels) -> Sample:
        """Return one row per distinct state, in a fixed order of states.

        Sums over rows then cost less, and neither repeated rows (against weights) nor the order of rows make a
        difference, to the last bit.
        """
        states = math.prod(int(L) for L in n_levels)
        if self.y is not None or not self.n or not self.codes.shape[1]:
            return self
        # a copy of the codes, sorted, and positions; or the number of each row's state
        check_memory(
            self.n * (3.0 * self.codes.itemsize * self.codes.shape[1] + 40.0),
            f"Looking for equal ones among {self.n:,} rows",
            "Use fewer rows, or read them in batches.",
        )
        if self.missing is not None:  # one more level, while rows are compared
            levels = np.asarray(n_levels)
            coded = np.where(self.missing, levels, self.codes).astype(code_dtype(levels + 1))
            rows = Sample(coded, self.weights).collapsed(levels + 1)
            missing = rows.codes == levels
            return Sample(np.where(missing, 0, rows.codes).astype(self.codes.dtype), rows.weights, None, missing)
        if states > max(2 * self.n, FEW_STATES):
            codes = np.ascontiguousarray(self.codes)
            if codes.itemsize == 1:
                order, new, every = _by_first(self, n_levels)
                if new.all():
                    return Sample(codes[order], self.weights[order])
                if every:
                    state_of_row = np.empty(self.n, dtype=np.intp)
                    state_of_row[order] = np.cumsum(new) - 1
                    return Sample(codes[order[new]], np.bincount(state_of_row, self.weights))
            whole_rows = codes.view(np.dtype((np.void, codes.itemsize * codes.shape[1])))[:, 0]
            _, first, state_of_row = np.unique(whole_rows, return_index=True, return_inverse=True)
            return Sample(codes[first], np.bincount(state_of_row, self.weights))
        shape = tuple(int(L) for L in n_levels)
        key = np.ravel_multi_index(tuple(self.codes.T.astype(np.intp)), shape)
        weights = np.bincount(key, self.weights)
        seen = np.flatnonzero(weights)
        codes = np.column_stack(np.unravel_index(seen, shape)).astype(self.codes.dtype)
        return Sample(codes, weights[seen])


def _by_first(sample: Sample, n_levels) -> tuple[np.ndarray, np.ndarray, bool]:
    """Sort rows by their first predictors, those that one number tells: in the order of bytes, where codes are bytes.

    Returns
    -------
    order : ndarray of intp, shape (n,)
    new : ndarray of bool, shape (n,)
        Which of the ordered rows differ there from the one before.
    every : bool
        Whether that is all predictors.
    """
    states = np.cumprod(np.asarray(n_levels[:EXACT_BITS], dtype=float))
    first = int(np.count_nonzero(states <= EXACT))
    place = states[first - 1] / states[:first]
    key = np.concatenate([block.codes[:, :first] @ place for block in sample.blocks()])
    order = np.argsort(key)
    key = key[order]
    return order, np.append(True, key[1:] > key[:-1]), first == sample.m
