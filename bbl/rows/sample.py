"""Rows, the contract of every kind of encoded sample, and Sample, the kind that has its codes in memory."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from bbl.errors import DataError
from bbl.memory import check_memory

__all__ = ["Rows", "Sample", "Sums", "code_dtype", "concatenate"]

TABLE_STATES = 65536  # up to so many possible states, equal rows are counted in a table, however few the rows
Sums = TypeVar("Sums")  # additive over rows: a number, an array, or a list or tuple of them

EXACT_BITS = 53  # of a float64's significand
EXACT = 2.0**EXACT_BITS  # float64 holds all whole numbers up to here


def code_dtype(n_levels) -> np.dtype:
    """Return the narrowest kernel code type (uint8, uint16 or int32) that holds every level."""
    top = int(np.max(n_levels, initial=2))
    return np.dtype(np.uint8 if top <= 256 else np.uint16 if top <= 65536 else np.int32)


class Rows(ABC):
    """Encoded rows of one data set, wherever their codes are: `Sample`, `FileSample` or `ClusterSample`.

    Attributes
    ----------
    in_memory : bool
        Whether the codes are arrays of this process (`Sample`); else rows are read in blocks (`StoredSample`).
    remote : bool
        Whether reading rows sends them over a network.
    """

    in_memory: ClassVar[bool]
    remote: ClassVar[bool] = False

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of stored rows."""

    @property
    @abstractmethod
    def m(self) -> int:
        """Number of predictors."""

    @property
    @abstractmethod
    def total(self) -> float:
        """Sum of the weights: the number of observations."""

    @property
    @abstractmethod
    def whole(self) -> bool:
        """Whether all weights are whole numbers, so that a row of weight w stands for w rows."""

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether no value is missing."""

    @property
    @abstractmethod
    def unweighted(self) -> bool:
        """Whether all weights are 1."""

    @property
    def exact(self) -> bool:
        """Whether every sum of weights is exact, and so the same in any order of the rows."""
        return self.whole and self.total < EXACT

    @property
    @abstractmethod
    def pooled(self) -> Rows:
        """The same rows as one group."""

    @abstractmethod
    def group(self, y: int) -> Rows:
        """Return the rows of response group `y`."""

    @abstractmethod
    def group_totals(self, K: int) -> np.ndarray:
        """Return the sum of weights (K,) of each response group; rows of an unknown group are in none."""

    @abstractmethod
    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows at rising positions `index`, in memory."""

    @abstractmethod
    def collapsed(self, n_levels: Sequence[int] | np.ndarray) -> Rows:
        """Return one row per distinct state where rows are in memory, elsewhere the rows themselves."""

    @abstractmethod
    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows in order, at most `size` of them at a time."""

    @abstractmethod
    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield rows that are in memory as one chunk, others `size` at a time."""

    @abstractmethod
    def sums(self, name: Hashable, function: Callable[[Sample], Sums]) -> Sums:
        """Return the sum of ``function(block)`` over all rows; stored rows keep it under its `name`."""

    @abstractmethod
    def grouped_sums(self, name: Hashable, function: Callable[[Sample], Sums], K: int | None) -> Sums:
        """Return `sums`, as lists of arrays; with a response, those of each of K groups along a first axis.

        Given rows that have a response, `function` returns arrays with that axis itself.
        """

    @abstractmethod
    def draw(self, size: int, rng: np.random.Generator) -> Sample:
        """Return stored rows, or about `size` of them at random without replacement; rows in memory as they are."""

    @abstractmethod
    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback(number of passes so far)`` after each pass over stored rows; None ends that."""


@dataclass(frozen=True)
class Sample(Rows):
    """Encoded rows in memory.

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

    in_memory = True
    client: ClassVar[Any] = None  # of a cluster whose workers all have the rows; see `SharedSample`

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
        """Yield the rows in order, `size` of them at a time."""
        for first in range(0, self.n, size):
            yield self.rows(slice(first, first + size))

    def sums(self, name: Hashable, function: Callable[[Sample], Sums]) -> Sums:
        """Return ``function`` of all rows at once; nothing is kept."""
        return function(self)

    def grouped_sums(self, name: Hashable, function: Callable[[Sample], Sums], K: int | None) -> Sums:
        """Return ``function`` of all rows at once, which splits them by response group itself."""
        return function(self)

    def draw(self, size: int, rng: np.random.Generator) -> Sample:
        """Return the rows themselves, however many."""
        return self

    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield all rows as one chunk, whatever the `size`."""
        yield self

    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Do nothing: rows in memory need no passes."""

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

    def group_totals(self, K: int) -> np.ndarray:
        """Return the sum of weights (K,) of each response group; rows of an unknown group are in none."""
        has_group = self.response >= 0
        return np.bincount(self.response[has_group], self.weights[has_group], K)

    def by_state(self, n_levels, K: int) -> Sample:
        """Return one row per distinct state of each of K groups, in a fixed order."""
        groups = [self.rows(self.response == y).pooled.collapsed(n_levels) for y in range(K)]
        return replace(concatenate(groups), y=np.repeat(np.arange(K), [group_sample.n for group_sample in groups]))

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
        if states > max(2 * self.n, TABLE_STATES):
            codes = np.ascontiguousarray(self.codes)
            if codes.itemsize == 1:
                order, new, covers_all = _by_first(self, n_levels)
                if new.all():
                    return Sample(codes[order], self.weights[order])
                if covers_all:
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


def concatenate(samples: Sequence[Sample]) -> Sample:
    """Return the rows of one or more samples as one sample; it has a response if all of them have one."""
    y = missing = None
    if all(sample.y is not None for sample in samples):
        y = np.concatenate([sample.response for sample in samples])
    if any(sample.missing is not None for sample in samples):
        missing = np.concatenate(
            [np.zeros(sample.codes.shape, bool) if sample.missing is None else sample.missing for sample in samples]
        )
    codes, weights = ([getattr(sample, name) for sample in samples] for name in ("codes", "weights"))
    return Sample(np.concatenate(codes), np.concatenate(weights), y, missing)


def _by_first(sample: Sample, n_levels) -> tuple[np.ndarray, np.ndarray, bool]:
    """Sort rows by their first predictors: by as many as one exact float64 key can number the joint levels of.

    Keys rise in lexicographic order of the codes, which is the order of their bytes where a code is one byte.

    Returns
    -------
    order : ndarray of intp, shape (n,)
        Row positions by rising key.
    new : ndarray of bool, shape (n,)
        Which of the ordered rows have another key than the row before.
    covers_all : bool
        Whether keys cover all predictors, so that rows of equal keys are equal.
    """
    states = np.cumprod(np.asarray(n_levels[:EXACT_BITS], dtype=float))
    first = int(np.count_nonzero(states <= EXACT))
    place = states[first - 1] / states[:first]
    key = np.concatenate([block.codes[:, :first] @ place for block in sample.blocks()])
    order = np.argsort(key)
    key = key[order]
    return order, np.append(True, key[1:] > key[:-1]), first == sample.m
