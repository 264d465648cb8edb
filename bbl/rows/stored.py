"""StoredSample: what encoded rows on disk and on a cluster have in common; sums over their blocks, drawn rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from bbl.rows.sample import Rows, Sample, Sums, concatenate

__all__ = ["CHUNK_ROWS", "Bucket", "RowStore", "StoredSample", "add_sums"]

CHUNK_ROWS = 65536  # rows of a bucket that are stored and read together, at most

Bucket = tuple[int, int]  # response group, fold


class BucketSize(Protocol):
    """Number of rows of a bucket, the sum of their weights, and whether all weights are whole numbers."""

    n: int
    total: float
    whole: bool


class RowStore(Protocol):
    """Codes outside of this process's memory: `CodeFile` or `CodeParts`.

    Attributes
    ----------
    weighted : bool
        Whether rows have weights; else all are 1.
    masked : bool
        Whether values may be missing.
    chunk_rows : int
        Rows of a block that a pass reads at a time.
    sums : dict of ((name, grouped), bucket) to array, number or list of them
        What `StoredSample.sums` has computed.
    passes : int
        Passes over rows that `StoredSample.summed` has made.
    passed : callable or None
        Called with `passes` after each of them.
    """

    dtype: np.dtype
    weighted: bool
    masked: bool
    chunk_rows: int
    sums: dict[tuple[Hashable, Bucket], Any]
    passes: int
    passed: Callable[[int], None] | None

    @property
    def m(self) -> int:
        """Number of predictors."""

    @property
    def buckets(self) -> Mapping[Bucket, BucketSize]:
        """Size of each bucket."""

    def close(self) -> None:
        """Remove the rows."""


@dataclass(frozen=True, eq=False)
class StoredSample(Rows):
    """Encoded rows that are read block by block, in buckets: one for each response group and fold.

    Attributes
    ----------
    file : RowStore
    buckets : tuple of (group, fold)
        The buckets whose rows these are, in their order.
    grouped : bool
        Whether rows have a response; else they are one group.
    extra : Sample or None
        A few rows of one group behind those of the store.
    """

    file: RowStore
    buckets: tuple[Bucket, ...]
    grouped: bool = True
    extra: Sample | None = None

    in_memory = False

    @property
    def n(self) -> int:
        """Number of stored rows."""
        return sum(self.file.buckets[b].n for b in self.buckets) + (0 if self.extra is None else self.extra.n)

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
        """Whether all weights are whole numbers."""
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
        """Bytes that the codes of the rows take."""
        return self.n * self.m * self.file.dtype.itemsize

    @property
    @abstractmethod
    def cluster_threads(self) -> int:
        """Number of tasks that a cluster runs at a time on these rows; 0 without a cluster."""

    @property
    def pooled(self) -> Self:
        """The same rows as one group."""
        return replace(self, grouped=False)

    def group(self, y: int) -> Self:
        """Return the rows of response group `y`."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[0] == y), grouped=False)

    def group_totals(self, K: int) -> np.ndarray:
        """Return the sum of weights (K,) of each response group; rows of an unknown group are in none."""
        return np.array([self.group(y).total for y in range(K)])

    def fold(self, f: int) -> Self:
        """Return the rows that fold `f` validates."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] == f))

    def without(self, f: int) -> Self:
        """Return the rows that fold `f` is trained on: all that it does not validate."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] != f))

    def collapsed(self, n_levels: Sequence[int] | np.ndarray) -> Self:
        """Return the rows themselves: equal ones are not looked for."""
        return self

    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield the rows `size` at a time."""
        return self.blocks(size)

    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback(number of passes so far)`` after each pass over the rows; None ends that."""
        self.file.passed = callback

    @abstractmethod
    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks, in a fixed order, by one pass that is not kept."""

    @abstractmethod
    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory as a fit of them needs them: on a cluster, such that all workers can have them."""

    @abstractmethod
    def _bucket_sums(self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket]) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each of some buckets."""

    @abstractmethod
    def _rows_with(self, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the rising positions of rows with a rare level; pairs of predictor and its levels say which."""

    def sums(self, name: Hashable, function: Callable[[Sample], Sums]) -> Sums:
        """Return the sum of ``function(block)`` over all blocks.

        It is kept for each group and fold under its `name`, so that sums over other groups and folds, and over all
        rows, need no pass more.
        """
        stored_sums, running_sum, kind = self.file.sums, None, (name, self.grouped)
        unread = [bucket for bucket in self.buckets if (kind, bucket) not in stored_sums]
        if unread:
            bucket_sums = self._bucket_sums(function, unread)
            stored_sums.update({(kind, bucket): bucket_sums[bucket] for bucket in unread})
        for bucket in self.buckets:
            running_sum = add_sums(running_sum, stored_sums[kind, bucket])
        if self.extra is not None:
            running_sum = add_sums(running_sum, function(self.extra))
        return function(self._concatenated([])) if running_sum is None else running_sum

    def grouped_sums(self, name: Hashable, function: Callable[[Sample], Sums], K: int | None) -> Any:
        """Return `sums`, as lists of arrays; with a response, those of each of K groups along a first axis."""
        if not self.grouped:
            return self.sums(name, function)
        K = K or 1 + max((y for y, _ in self.buckets), default=-1)
        groups = [self.group(y).sums(name, function) for y in range(K)]
        return [np.stack(group_sums) for group_sums in zip(*groups, strict=True)]

    def draw(self, size: int, rng: np.random.Generator, rare: Sequence[np.ndarray] | None = None) -> Sample:
        """Return a random sample of about `size` rows, without replacement, in the order of the blocks.

        Parameters
        ----------
        size : int
        rng : numpy.random.Generator
        rare : sequence of m ndarrays of int, optional
            Levels of each predictor whose rows are all taken; the weights of the others are divided by their
            probability of being drawn, so that weighted sums estimate those of all rows. Without it weights stay.

        Returns
        -------
        Sample
            Exactly `size` rows (all, if there are no more); more if rows with rare levels are over half of them.
        """
        if size >= self.n:
            return self._concatenated(list(self.blocks(self.file.chunk_rows)))
        if self.extra is not None:
            return concatenate([replace(self, extra=None).draw(size, rng, rare), self.extra])
        rare_levels = [(i, levels) for i, levels in enumerate(rare or ()) if len(levels)]
        rare_rows = self._rows_with(rare_levels) if rare_levels else np.zeros(0, dtype=np.int64)
        n_common_rows = self.n - len(rare_rows)
        n_drawn = min(n_common_rows, max(size - len(rare_rows), size // 2))
        drawn = _choose(n_common_rows, n_drawn, rng)
        # from positions among the rows without rare levels to positions among all rows
        drawn += np.searchsorted(rare_rows - np.arange(len(rare_rows)), drawn, side="right")
        positions = np.sort(np.concatenate([rare_rows, drawn]))
        sample = self.rows(positions)
        if rare is None:
            return sample
        is_rare = np.isin(positions, rare_rows, assume_unique=True)
        return replace(sample, weights=sample.weights * np.where(is_rare, 1.0, n_common_rows / max(1, n_drawn)))

    def close(self) -> None:
        """Remove the store, with the rows of all its buckets."""
        self.file.close()

    def _count_pass(self) -> None:
        """Count a pass over the rows, and report it to the callback of `on_pass`."""
        self.file.passes += 1
        if self.file.passed is not None:
            self.file.passed(self.file.passes)

    def _concatenated(self, blocks: list[Sample]) -> Sample:
        """Return blocks of these rows, perhaps none, as one sample."""
        if blocks:
            return concatenate(blocks)
        codes = np.zeros((0, self.m), dtype=self.file.dtype)
        return Sample(codes, np.zeros(0), np.zeros(0, dtype=np.intp) if self.grouped else None)


def add_sums(total: Any, term: Any) -> Any:
    """Return ``total + term`` of numbers, arrays, or lists or tuples of them, as a new object; None is an empty sum."""
    if isinstance(term, list | tuple):
        return type(term)(add_sums(None if total is None else total[k], element) for k, element in enumerate(term))
    return term + 0.0 if total is None else total + term


def _choose(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the positions 0..n-1, drawn without replacement, rising; memory grows with `size` only."""
    if 2 * size > n:
        return np.setdiff1d(np.arange(n), _choose(n, n - size, rng), assume_unique=True)
    chosen = np.zeros(0, dtype=np.int64)
    while len(chosen) < size:  # distinct numbers of independent draws are a random set
        chosen = np.union1d(chosen, rng.integers(n, size=size - len(chosen) + size // 8 + 16))
    return np.sort(rng.choice(chosen, size, replace=False, shuffle=False))
