"""The interface of encoded rows (`Rows`), rows in memory (`Sample`), and weighted counts of
levels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.errors import DataError
from bbl.memory import check_memory

__all__ = [
    "Rows",
    "Sample",
    "Sums",
    "code_dtype",
    "concatenate",
    "level_counts",
    "nominal_codes",
]


def level_counts(
    sample: Rows,
    n_levels: Sequence[int] | np.ndarray,
    K: int | None = None,
    gaps: bool = False,
    once: bool = False,
) -> list[np.ndarray]:
    """Return the weighted count of each level of each predictor.

    Parameters
    ----------
    sample : Rows
        Rows of a single group, or rows with a response. Missing values and rows of an unknown group
        are not counted.
    n_levels : sequence of int, length m
        Number of levels of each predictor.
    K : int, optional
        Number of groups; required if the last groups may have no rows.
    gaps : bool, default False
        Whether to count missing values as an additional level.
    once : bool, default False
        Whether each row counts once, regardless of its weight.

    Returns
    -------
    list of m ndarrays, shape (L_i,), or (K, L_i) if the sample has a response; with `gaps`, L_i + 1
    instead of L_i
    """
    count_block = partial(
        _block_level_counts, n_levels=[int(L) + gaps for L in n_levels], K=K, gaps=gaps, once=once
    )
    # rows outside memory store the sums of their blocks with this key
    return sample.grouped_sums(("levels", gaps, once), count_block, K)


def _block_level_counts(
    sample: Sample, n_levels: list[int], K: int | None, gaps: bool, once: bool
) -> list[np.ndarray]:
    """Return `level_counts` for rows in memory; with `gaps`, `n_levels` includes the level of
    missing values.
    """
    if sample.y is not None and (sample.y < 0).any():  # rows of an unknown group
        sample = sample.rows(sample.y >= 0)
    if sample.codes.dtype.kind == "f":  # numeric predictors have one level
        n_real = np.array(n_levels) - gaps
        # the values of a regressor are not codes of its two levels
        is_code = (n_real > 1) & (sample.codes >= 0.0) & (sample.codes < n_real)
        codes = np.where(is_code, sample.codes, 0.0).astype(code_dtype(n_levels))
        sample = replace(sample, codes=codes)
    # by default, the largest group that occurs plus 1; `initial` is needed if there are no rows (no
    # group) or no response (one group)
    K = K or int(sample.response.max(initial=-1 if sample.y is not None else 0)) + 1
    # columns of each predictor in `counts`
    column_edges = np.concatenate(([0], np.cumsum(n_levels, dtype=np.intp)))
    counts = np.zeros((K, column_edges[-1]))
    missing = None if sample.missing is None else sample.missing.view(np.uint8)
    # this adds the weights to `counts` in place
    weights = np.ones(sample.n) if once else sample.weights
    kernel.level_counts(sample.codes, sample.y, weights, missing, gaps, column_edges, counts)
    count_table = counts[0] if sample.y is None else counts  # without a response, K is 1
    return [count_table[..., start:end] for start, end in pairwise(column_edges.tolist())]


# if there are at most this many possible states, identical rows are merged by a table, regardless
# of the number of rows
MIN_TABLE_STATES = 65536

Sums = TypeVar("Sums")  # sums over rows: a number, an array, or a list or tuple of them

FLOAT_BITS = 53  # number of bits in the significand of a float64
MAX_EXACT = 2.0**FLOAT_BITS  # float64 represents all integers up to this value exactly


def code_dtype(n_levels: int | Sequence[int] | np.ndarray) -> np.dtype:
    """Return the smallest code type (uint8, uint16 or int32) for codes up to the largest of
    `n_levels`.
    """
    # 2: without predictors
    most_levels = n_levels if isinstance(n_levels, int) else int(np.max(n_levels, initial=2))
    return np.dtype(
        np.uint8 if most_levels <= 256 else np.uint16 if most_levels <= 65536 else np.int32
    )


def nominal_codes(codes: np.ndarray, is_number: np.ndarray, n_levels: np.ndarray) -> np.ndarray:
    """Return codes (n, m) as integers, with 0 for numeric predictors.

    The mask `is_number` (m,) marks the numeric predictors, which have a single level in engines and
    energies.
    """
    if codes.dtype.kind != "f":
        return codes
    return np.where(is_number, 0.0, codes).astype(code_dtype(n_levels))


class Rows(ABC):
    """Encoded rows of one data set: `Sample`, `FileSample` or `ClusterSample`."""

    # whether codes are arrays of this process; otherwise, rows are read in blocks
    in_memory: ClassVar[bool]
    remote: ClassVar[bool] = False  # whether reading rows involves a network

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
        """Whether all weights are integers, so that a row of weight w represents w identical
        rows.
        """

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether no value is missing."""

    @property
    @abstractmethod
    def unweighted(self) -> bool:
        """Whether all weights are 1."""

    def close(self) -> None:  # noqa: B027  # rows in memory have nothing to delete
        """Delete rows that are stored outside the memory of this process."""

    @property
    def exact(self) -> bool:
        """Whether sums of weights are exact, so that they do not depend on the order of rows."""
        return self.whole and self.total < MAX_EXACT

    @property
    @abstractmethod
    def pooled(self) -> Rows:
        """The same rows, all in one group."""

    @abstractmethod
    def group(self, y: int) -> Rows:
        """Return the rows of response group `y`."""

    @abstractmethod
    def group_totals(self, K: int) -> np.ndarray:
        """Return the total weight (K,) of each response group, excluding rows of an unknown
        group.
        """

    @abstractmethod
    def only(self, predictors: np.ndarray) -> Rows:
        """Return the rows with only these predictors."""

    @abstractmethod
    def nominal(self, is_number: np.ndarray, n_levels: np.ndarray) -> Rows:
        """Return the rows with `nominal_codes` and without missing numeric values."""

    @abstractmethod
    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows at increasing positions `index`, in memory."""

    @abstractmethod
    def collapsed(self, n_levels: Sequence[int] | np.ndarray) -> Rows:
        """Return one row for each distinct state if rows are in memory, and the unchanged rows
        otherwise.
        """

    @abstractmethod
    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows in order, at most `size` at a time."""

    @abstractmethod
    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield rows in memory as one chunk, and other rows `size` at a time."""

    @abstractmethod
    def sums(self, name: Hashable, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over blocks of all rows.

        A `StoredSample` caches it under `name`.

        Rows in a file are processed by `workers` threads.
        """

    @abstractmethod
    def grouped_sums(
        self, name: Hashable, function: Callable[[Sample], Sums], K: int | None
    ) -> Sums:
        """Return the `sums` of a function that returns a list of arrays; with a response, the sums
        are by group.

        For rows with a response, `function` must return arrays (K, ...), where entry y is the sum
        over group y; for rows without a response, it returns arrays (...). A `Sample` calls it with
        all rows and their response; a `StoredSample` calls it with the rows of each of the K groups
        and stacks the results. If K is None, the number of groups is one more than the largest
        group code that occurs.
        """

    @abstractmethod
    def draw(self, size: int, rng: np.random.Generator) -> Sample:
        """Return about `size` random rows of a `StoredSample`, drawn without replacement, or all
        rows of a `Sample`.
        """

    @abstractmethod
    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback(number of passes so far)`` after each pass over rows outside memory; None
        stops the calls.
        """


@dataclass(frozen=True)
class Sample(Rows):
    """Encoded rows in memory.

    Attributes
    ----------
    codes : ndarray of uint8, uint16 or int32, shape (n, m), C-contiguous
        Level codes ``0..L_i-1``; 0 is the reference level, and is also the code of missing values.
    weights : ndarray of float64, shape (n,)
        Positive frequencies, or other positive values if the method accepts them
        (`Engine.weights`).
    y : ndarray of intp, shape (n,), or None
        Response codes, -1 if the group is unknown; None for a single group.
    missing : ndarray of bool, shape (n, m), or None
        Mask of missing values; None if all values are known.
    """

    codes: np.ndarray
    weights: np.ndarray
    y: np.ndarray | None = None
    missing: np.ndarray | None = None

    in_memory = True
    # Dask client of a cluster whose workers hold the rows; see `SharedSample`
    client: ClassVar[Any] = None

    @property
    def response(self) -> np.ndarray:
        """Response codes (n,); zeros for a single group."""
        return np.zeros(self.n, dtype=np.intp) if self.y is None else self.y

    @property
    def n(self) -> int:
        """Number of rows."""
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
        """Whether all weights are integers."""
        return bool((self.weights == np.floor(self.weights)).all())

    def check_whole(self, what: str) -> None:
        """Raise a DataError unless weights are integers.

        `what` is the beginning of the message, including the verb, for example "The bootstrap
        requires".
        """
        if not self.whole:
            raise DataError(
                f"{what} integer weights (row counts), but the weights of this fit are not "
                f"integers.",
                argument="weights",
                hint=(
                    "If they are sampling weights, fit with design=bbl.survey(weights=...). "
                    "Otherwise, pass counts as weights, or fit without weights."
                ),
            )

    def rows(self, index: np.ndarray | np.bool_ | bool | slice) -> Sample:
        """Return the rows selected by `index`: a mask, positions or a slice."""
        y = None if self.y is None else self.y[index]
        missing = None if self.missing is None else self.missing[index]
        if missing is not None and not missing.any():
            missing = None
        return Sample(np.ascontiguousarray(self.codes[index]), self.weights[index], y, missing)

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows in order, `size` of them at a time."""
        for first in range(0, self.n, size):
            yield self.rows(slice(first, first + size))

    def sums(self, name: Hashable, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the result of `function` for all rows at once, without caching it."""
        return function(self)

    def grouped_sums(
        self, name: Hashable, function: Callable[[Sample], Sums], K: int | None
    ) -> Sums:
        """Return the result of `function` for all rows at once; with a response, its arrays have
        shape (K, ...).
        """
        return function(self)

    def draw(self, size: int, rng: np.random.Generator) -> Sample:
        """Return all rows."""
        return self

    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield all rows as one chunk, regardless of `size`."""
        yield self

    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Do nothing, because rows in memory need no passes."""

    def weighted(self, weights: np.ndarray) -> Sample:
        """Return the rows with new `weights` (n,), without rows of weight 0."""
        return replace(self, weights=weights).rows(weights > 0)

    @property
    def counted(self) -> Sample:
        """The rows with positive weight, each with weight 1; counts are then exact."""
        return self.weighted((self.weights > 0.0).astype(float))

    @property
    def complete_rows(self) -> Sample:
        """The rows without missing values."""
        return self if self.missing is None else self.rows(~self.missing.any(axis=1))

    def systematic_sample(self, size: int) -> Sample:
        """Return all rows if there are at most `size`, and otherwise a systematic sample.

        The sample consists of `size` draws at equal steps of the cumulative weights. The weight of
        a drawn row is the number of times that it was drawn.
        """
        if self.n <= size:
            return self
        draws = (np.arange(size) + 0.5) * (self.total / size)  # in 0..total
        rows = np.searchsorted(np.cumsum(self.weights), draws, side="right")  # row of each draw
        return self.weighted(np.bincount(rows, minlength=self.n).astype(float))

    @property
    def pooled(self) -> Sample:
        """The same rows, without a response."""
        return self if self.y is None else replace(self, y=None)

    def only(self, predictors: np.ndarray) -> Sample:
        """Return the rows with only these predictors."""
        missing = None
        if self.missing is not None:
            missing = np.ascontiguousarray(self.missing[:, predictors])
            missing = missing if missing.any() else None
        codes = np.ascontiguousarray(self.codes[:, predictors])
        return replace(self, codes=codes, missing=missing)

    def nominal(self, is_number: np.ndarray, n_levels: np.ndarray) -> Sample:
        """Return the rows with `nominal_codes` and without missing numeric values."""
        missing = None if self.missing is None else self.missing & ~is_number
        if missing is not None and not missing.any():
            missing = None
        return replace(self, codes=nominal_codes(self.codes, is_number, n_levels), missing=missing)

    def group(self, y: int) -> Sample:
        """Return the rows of group `y` as a single group.

        Without a response, all rows are in group 0.
        """
        return self.rows(self.response == y).pooled

    def group_totals(self, K: int) -> np.ndarray:
        """Return the total weight (K,) of each response group, excluding rows of an unknown
        group.
        """
        has_group = self.response >= 0
        return np.bincount(self.response[has_group], weights=self.weights[has_group], minlength=K)

    def by_state(self, n_levels: Sequence[int] | np.ndarray, K: int) -> Sample:
        """Return one row for each distinct state in each of K groups, in a fixed order."""
        groups = [self.rows(self.response == y).pooled.collapsed(n_levels) for y in range(K)]
        return replace(
            concatenate(groups),
            y=np.repeat(np.arange(K), [group_sample.n for group_sample in groups]),
        )

    def collapsed(self, n_levels: Sequence[int] | np.ndarray) -> Sample:
        """Return one row for each distinct state, with its total weight, in a fixed order of the
        states.

        Sums over rows are then faster. The sums are bitwise identical for any order of the rows,
        and if rows are repeated instead of weighted. Rows with a response and rows without
        predictors are returned unchanged.
        """
        n_states = math.prod(int(L) for L in n_levels)
        if self.y is not None or not self.n or not self.codes.shape[1]:
            return self
        if (
            self.codes.dtype.kind == "f"
        ):  # there are numeric predictors, so equal rows are found by their bytes
            is_nan = False if self.missing is None else self.missing
            # + 0.0 is needed because the bytes of -0.0 differ from those of 0.0
            merged = Sample(np.where(is_nan, np.nan, self.codes + 0.0), self.weights)._sort_states(
                n_levels
            )
            missing = None if self.missing is None else np.isnan(merged.codes)
            return replace(merged, codes=np.nan_to_num(merged.codes), missing=missing)
        # estimate in bytes: three copies of the codes, and 40 bytes for each row for positions and
        # state numbers
        check_memory(
            self.n * (3.0 * self.codes.itemsize * self.codes.shape[1] + 40.0),
            f"Finding duplicates among {self.n:,} rows",
            "Use fewer rows, or read them in batches.",
        )
        # missing values are an additional level while rows are compared
        if self.missing is not None:
            levels = np.asarray(n_levels)
            codes = np.where(self.missing, levels, self.codes).astype(code_dtype(levels + 1))
            rows = Sample(codes, self.weights).collapsed(levels + 1)
            missing = rows.codes == levels
            return Sample(
                np.where(missing, 0, rows.codes).astype(self.codes.dtype),
                rows.weights,
                missing=missing,
            )
        # because a table of states would be larger than the rows
        if n_states > max(2 * self.n, MIN_TABLE_STATES):
            return self._sort_states(n_levels)
        shape = tuple(int(L) for L in n_levels)
        state_of_row = np.ravel_multi_index(tuple(self.codes.T.astype(np.intp)), shape)
        weights = np.bincount(state_of_row, self.weights)  # weight of each state
        states = np.flatnonzero(weights)  # the states that occur
        codes = np.column_stack(np.unravel_index(states, shape)).astype(self.codes.dtype)
        return Sample(codes, weights[states])

    def _sort_states(self, n_levels: Sequence[int] | np.ndarray) -> Sample:
        """Return the result of `collapsed`, computed by sorting numeric keys or bytes.

        Values must not be missing. Keys are used only if the codes are bytes, because keys and
        codes are then in the same order; see `_sort_by_key`.
        """
        codes = np.ascontiguousarray(self.codes)
        if codes.itemsize == 1:
            sorted_rows, is_new, covers_all = _sort_by_key(self, n_levels)
            if is_new.all():  # no two rows are equal
                return Sample(codes[sorted_rows], self.weights[sorted_rows])
            if covers_all:
                state_of_row = np.empty(self.n, dtype=np.intp)
                # states are numbered in sorted order
                state_of_row[sorted_rows] = np.cumsum(is_new) - 1
                return Sample(codes[sorted_rows[is_new]], np.bincount(state_of_row, self.weights))
        # keys of only some of the predictors cannot identify equal rows. Compare all bytes
        # (slower), where each row is viewed as one value of raw bytes
        row_bytes = codes.view(np.dtype((np.void, codes.itemsize * codes.shape[1])))[:, 0]
        _, first_row, state_of_row = np.unique(row_bytes, return_index=True, return_inverse=True)
        return Sample(codes[first_row], np.bincount(state_of_row, self.weights))


def concatenate(samples: Sequence[Sample]) -> Sample:
    """Concatenate one or more samples; the result has a response if all samples have a response."""
    y = missing = None
    if all(sample.y is not None for sample in samples):
        y = np.concatenate([sample.response for sample in samples])
    if any(sample.missing is not None for sample in samples):
        missing = np.concatenate(
            [
                np.zeros(sample.codes.shape, bool) if sample.missing is None else sample.missing
                for sample in samples
            ]
        )
    codes, weights = (
        [getattr(sample, array_name) for sample in samples] for array_name in ("codes", "weights")
    )
    return Sample(np.concatenate(codes), np.concatenate(weights), y, missing)


def _sort_by_key(
    sample: Sample, n_levels: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Sort rows by a float64 key that identifies the joint levels of the first predictors.

    The key for codes c_i is ``sum_i c_i prod_{j > i} L_j``, over as many of the first predictors as
    possible without exceeding `MAX_EXACT`; keys are then exact. Keys sort rows in lexicographic
    order of their codes, as do the bytes of one-byte codes.

    Returns
    -------
    order : ndarray of intp, shape (n,)
        Row positions by increasing key.
    is_new : ndarray of bool, shape (n,)
        Whether the key of each sorted row differs from that of the previous row.
    covers_all : bool
        Whether keys cover all predictors, so that rows with equal keys are equal.
    """
    # number of states of the first 1, 2, ... predictors; if all have two levels, at most FLOAT_BITS
    # predictors fit
    n_states = np.cumprod(np.asarray(n_levels[:FLOAT_BITS], dtype=float))
    n_first = int(np.count_nonzero(n_states <= MAX_EXACT))
    # the key of a row is the sum of codes times place values, like a number whose digits have
    # different bases
    place_values = n_states[n_first - 1] / n_states[:n_first]
    # one block after another, so that only the codes of one block are converted to floats at a time
    keys = np.concatenate([block.codes[:, :n_first] @ place_values for block in sample.blocks()])
    order = np.argsort(keys)
    keys = keys[order]
    return order, np.append(True, keys[1:] > keys[:-1]), n_first == sample.m
