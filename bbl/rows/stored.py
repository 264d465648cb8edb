"""`StoredSample`: encoded rows on disk or on a cluster, with sums over blocks and random samples.

A *bucket* contains the rows of one response group and fold; a *pass* reads all rows once. K is the
number of groups, m of predictors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bbl.rows.sample import Rows, Sample, Sums, concatenate

__all__ = [
    "CHUNK_ROWS",
    "Bucket",
    "BucketSize",
    "RowStore",
    "StoredSample",
    "add_sums",
    "has_rare_level",
]

CHUNK_ROWS = 65536  # maximum number of rows stored and read together

# response group, and the fold that validates the rows; -1 for an unknown group or no fold
Bucket = tuple[int, int]


@dataclass
class BucketSize:
    """Size of a bucket."""

    n: int = 0  # number of rows
    total: float = 0.0  # total weight
    whole: bool = True  # whether all weights are integers

    def add(self, n: int, total: float, whole: bool) -> None:
        """Add further rows of the bucket."""
        self.n = self.n + n
        self.total = self.total + total
        self.whole = self.whole and whole


class RowStore(ABC):
    """A store of encoded rows outside the memory of this process, such as a file or a cluster."""

    dtype: np.dtype  # of codes
    weighted: bool  # whether rows have weights; otherwise all are 1
    masked: bool  # whether values may be missing
    chunk_rows: int  # number of rows of a block, read at a time
    # cached sums by ((name, grouped), bucket); see `StoredSample.sums`
    sums: dict[tuple[Hashable, Bucket], Any]
    passes: int  # number of passes made by `StoredSample.summed`
    passed: Callable[[int], None] | None  # called with `passes` after each pass
    m: int  # number of predictors
    buckets: Mapping[Bucket, BucketSize]  # size of each bucket

    @abstractmethod
    def close(self) -> None:
        """Remove the rows."""


@dataclass(frozen=True, eq=False)
class StoredSample(Rows):
    """The rows of some buckets of a store, read block by block."""

    file: RowStore
    buckets: tuple[Bucket, ...]  # the buckets in the sample, in order
    grouped: bool = True  # whether rows have a response; otherwise they are one group
    # a few additional rows in memory, complete and with integer weights, that follow the stored
    # rows. Engines add them to the rows of one group, for example a row with other levels of
    # constant predictors; such a sample is not split further
    extra: Sample | None = None

    in_memory = False

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(self.file.buckets[b].n for b in self.buckets) + (
            0 if self.extra is None else self.extra.n
        )

    @property
    def m(self) -> int:
        """Number of predictors."""
        return self.file.m

    @property
    def total(self) -> float:
        """Sum of the weights: the number of observations."""
        bucket_total = float(sum(self.file.buckets[b].total for b in self.buckets))
        return bucket_total if self.extra is None else bucket_total + self.extra.total

    @property
    def whole(self) -> bool:
        """Whether all weights are integers."""
        return all(self.file.buckets[b].whole for b in self.buckets)

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return not self.file.masked

    @property
    def unweighted(self) -> bool:
        """Whether all weights are 1."""
        return not self.file.weighted

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self.n * self.m * self.file.dtype.itemsize

    @property
    @abstractmethod
    def cluster_threads(self) -> int:
        """Number of tasks that a cluster can run simultaneously on these rows; 0
        without a cluster.
        """

    @property
    def pooled(self) -> Self:
        """The same rows as one group."""
        return replace(self, grouped=False)

    def group(self, y: int) -> Self:
        """Return the rows of response group `y`."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[0] == y), grouped=False)

    def group_totals(self, K: int) -> np.ndarray:
        """Return the total weight (K,) of each response group, excluding rows of an
        unknown group.
        """
        return np.array([self.group(y).total for y in range(K)])

    def fold(self, f: int) -> Self:
        """Return the validation rows of fold `f`."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] == f))

    def without(self, f: int) -> Self:
        """Return the training rows of fold `f`: all rows except its validation rows."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] != f))

    def collapsed(self, n_levels: Sequence[int] | np.ndarray) -> Self:
        """Return the rows unchanged, without merging equal rows."""
        return self

    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield the rows `size` at a time."""
        return self.blocks(size)

    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback(number of passes so far)`` after each pass over the rows; None stops
        this.
        """
        self.file.passed = callback

    @abstractmethod
    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks in a fixed order, in one pass,
        without caching.
        """

    @abstractmethod
    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory ready for a fit: on a cluster, a `SharedSample` that all workers
        can hold.
        """

    @abstractmethod
    def _bucket_sums(
        self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket], workers: int
    ) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each bucket in `buckets`, by
        `workers` threads.
        """

    @abstractmethod
    def _find_rare_rows(self, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the increasing positions of rows with a rare level; `rare_levels` are pairs
        (predictor, its rare levels).
        """

    def sums(self, name: Hashable, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks.

        The sum of each bucket is cached under `name`, so that sums over other groups and folds need
        no additional pass.
        """
        # blocks with and without a response are cached separately
        stored_sums = self.file.sums
        total = None
        key = (name, self.grouped)
        unread_buckets = [bucket for bucket in self.buckets if (key, bucket) not in stored_sums]
        if unread_buckets:
            bucket_sums = self._bucket_sums(function, unread_buckets, workers)
            stored_sums.update({(key, bucket): bucket_sums[bucket] for bucket in unread_buckets})
        for bucket in self.buckets:
            total = add_sums(total, stored_sums[key, bucket])
        if self.extra is not None:
            total = add_sums(total, function(self.extra))
        # without rows, the function of an empty block gives zeros of the right shape
        return function(self._concatenate([])) if total is None else total

    def grouped_sums(
        self, name: Hashable, function: Callable[[Sample], Sums], K: int | None
    ) -> Any:
        """Return the `sums` of a function that returns a list of arrays; with a response, each has
        shape (K, ...).

        `function` is called with blocks of one group without a response and returns arrays (...),
        the entries y of the result.
        """
        if not self.grouped:
            return self.sums(name, function)
        # by default the largest group that occurs plus 1
        K = K or 1 + max((y for y, _ in self.buckets), default=-1)
        groups = [self.group(y).sums(name, function) for y in range(K)]
        return [np.stack(group_sums) for group_sums in zip(*groups, strict=True)]

    def draw(
        self, size: int, rng: np.random.Generator, rare: Sequence[np.ndarray] | None = None
    ) -> Sample:
        """Return a random sample of about `size` rows, without replacement, in block order.

        Parameters
        ----------
        size : int
        rng : numpy.random.Generator
        rare : sequence of m ndarrays of int, optional
            Rare levels of each predictor. All rows with a rare level are included, and the weights
            of the other rows are divided by their probability of being drawn, so that weighted sums
            estimate those of all rows. By default weights stay unchanged.

        Returns
        -------
        Sample
            Exactly `size` rows, or all rows if there are fewer; more if rows with rare levels make
            up over half of `size`.
        """
        if size >= self.n:
            return self._concatenate(list(self.blocks(self.file.chunk_rows)))  # all rows
        if self.extra is not None:
            return concatenate([replace(self, extra=None).draw(size, rng, rare), self.extra])
        rare_levels = [(i, levels) for i, levels in enumerate(rare or ()) if len(levels)]
        rare_rows = (
            self._find_rare_rows(rare_levels) if rare_levels else np.zeros(0, dtype=np.int64)
        )
        n_common_rows = self.n - len(rare_rows)
        # draw at least half of `size` rows without rare levels, however many others there are, to
        # estimate their sums
        n_drawn = min(n_common_rows, max(size - len(rare_rows), size // 2))
        common_rows = _draw_positions(n_common_rows, n_drawn, rng)
        # turn positions among the rows without rare levels into positions among all rows by adding
        # the number of rare rows before them; before rare row j there are rare_rows[j] - j rows
        # without rare levels
        common_rows += np.searchsorted(
            rare_rows - np.arange(len(rare_rows)), common_rows, side="right"
        )
        positions = np.sort(np.concatenate([rare_rows, common_rows]))
        sample = self.rows(positions)
        if rare is None:
            return sample
        is_rare = np.isin(positions, rare_rows, assume_unique=True)
        # a common row is drawn with probability n_drawn / n_common_rows; max(1, ...) is unused if
        # none is drawn
        return replace(
            sample, weights=sample.weights * np.where(is_rare, 1.0, n_common_rows / max(1, n_drawn))
        )

    def close(self) -> None:
        """Remove the store with all its buckets."""
        self.file.close()

    def _count_pass(self) -> None:
        """Count a pass over the rows, and report it to the callback of `on_pass`."""
        self.file.passes += 1
        if self.file.passed is not None:
            self.file.passed(self.file.passes)

    def _concatenate(self, blocks: list[Sample]) -> Sample:
        """Return blocks of these rows as one sample; it is empty without blocks."""
        if blocks:
            return concatenate(blocks)
        codes = np.zeros((0, self.m), dtype=self.file.dtype)
        return Sample(codes, np.zeros(0), np.zeros(0, dtype=np.intp) if self.grouped else None)


def add_sums(total: Any, term: Any) -> Any:
    """Return ``total + term`` as a new object; a `total` of None is an empty sum.

    Both are numbers or arrays, or lists or tuples of these, which are added entry by entry.
    """
    if isinstance(term, list | tuple):
        return type(term)(
            add_sums(None if total is None else total[k], element) for k, element in enumerate(term)
        )
    return term + 0.0 if total is None else total + term  # + 0.0 copies an array


def has_rare_level(rows: Sample, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return which rows (n,) have a rare level; `rare_levels` are pairs (predictor, its rare
    levels).
    """
    is_rare = np.zeros(rows.n, dtype=bool)
    for i, levels in rare_levels:
        is_rare |= np.isin(rows.codes[:, i], levels)
    return is_rare


def _draw_positions(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the positions 0..n-1, drawn without replacement, in increasing order.

    If `size` is at most n / 2, memory use depends only on `size`.
    """
    if 2 * size > n:  # draw the positions to leave out
        return np.setdiff1d(np.arange(n), _draw_positions(n, n - size, rng), assume_unique=True)
    candidates = np.zeros(0, dtype=np.int64)
    while len(candidates) < size:  # distinct values of independent draws are a random set
        # a few more draws than missing (1/8 and 16), as some are repeated
        candidates = np.union1d(
            candidates, rng.integers(n, size=size - len(candidates) + size // 8 + 16)
        )
    return np.sort(rng.choice(candidates, size, replace=False, shuffle=False))
