"""`StoredSample`: encoded rows in a file or on a cluster, with sums over blocks and random samples.

A *bucket* contains the rows of one response group and fold; a *pass* reads all rows once. K is the
number of groups and m the number of predictors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from bbl.rows.sample import Rows, Sample, Sums, concatenate, level_counts

__all__ = [
    "CHUNK_ROWS",
    "Bucket",
    "BucketSize",
    "CertainRows",
    "DrawRates",
    "Drawn",
    "RowStore",
    "StoredSample",
    "add_sums",
    "balanced_rates",
    "find_rare_levels",
]

CHUNK_ROWS = 65536  # maximum number of rows that are stored and read together
# if a level would have fewer rows in a sample, all its rows are included, up to half the sample
RARE_LEVEL_ROWS = 100
# maximum number of rows of a level that a sample for standard errors draws on purpose: the relative
# error of a standard error from n rows is about 1 / sqrt(2n), or 1 %
SCARCE_LEVEL_ROWS = 5000.0

# response group, and the fold that validates the rows; -1 stands for an unknown group or no fold
Bucket = tuple[int, int]


@dataclass
class BucketSize:
    """Size of a bucket."""

    n: int = 0  # number of rows
    total: float = 0.0  # total weight
    whole: bool = True  # whether all weights are integers

    def add(self, n: int, total: float, whole: bool) -> None:
        """Add more rows to the bucket."""
        self.n = self.n + n
        self.total = self.total + total
        self.whole = self.whole and whole


class RowStore(ABC):
    """A store of encoded rows outside the memory of this process, such as a file or a cluster."""

    dtype: np.dtype  # type of the codes
    weighted: bool  # whether rows have weights; otherwise, all weights are 1
    masked: bool  # whether values may be missing
    chunk_rows: int  # maximum number of rows of a block, which are read at a time
    # cached sums by ((name, grouped), bucket); see `StoredSample.sums`
    sums: dict[tuple[Hashable, Bucket], Any]
    passes: int  # number of passes made by `StoredSample.summed`
    passed: Callable[[int], None] | None  # called with `passes` after each pass
    m: int  # number of predictors
    buckets: Mapping[Bucket, BucketSize]  # size of each bucket

    @abstractmethod
    def nominal(self, is_number: np.ndarray, n_levels: np.ndarray) -> RowStore:
        """Return a view of the complete store with integer codes; see `Rows.nominal`."""

    @abstractmethod
    def only(self, predictors: np.ndarray) -> RowStore:
        """Return a view of the complete store with only these predictors."""

    @abstractmethod
    def close(self) -> None:
        """Remove the rows."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """A random sample of stored rows.

    Attributes
    ----------
    sample : Sample
        The rows, with the weights that they have in the data.
    expansion : ndarray, shape (n,)
        Number of stored rows represented by each drawn row. This is the inverse of the row's
        probability of being drawn, and 1 for rows that are always drawn.
    """

    sample: Sample
    expansion: np.ndarray


@dataclass(frozen=True, eq=False)
class StoredSample(Rows):
    """The rows in selected buckets of a store, which are read in blocks."""

    file: RowStore
    buckets: tuple[Bucket, ...]  # the buckets in the sample, in order
    grouped: bool = True  # whether rows have a response; otherwise, they are one group
    # a few additional rows in memory, without missing values and with integer weights, that follow
    # the stored rows. Engines add them to the rows of one group, for example a row with other
    # levels of constant predictors. Such a sample is not divided further
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
        """Number of tasks that a cluster can run simultaneously on these rows, or 0 if the rows are
        in a file.
        """

    @property
    def pooled(self) -> Self:
        """The same rows, all in one group."""
        return replace(self, grouped=False)

    def group(self, y: int) -> Self:
        """Return the rows of response group `y`."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[0] == y), grouped=False)

    def group_totals(self, K: int) -> np.ndarray:
        """Return the total weight (K,) of each response group, excluding rows of an unknown
        group.
        """
        return np.array([self.group(y).total for y in range(K)])

    def fold(self, f: int) -> Self:
        """Return the validation rows of fold `f`."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] == f))

    def without(self, f: int) -> Self:
        """Return the training rows of fold `f`: all rows except its validation rows."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] != f))

    def collapsed(self, n_levels: Sequence[int] | np.ndarray) -> Self:
        """Return the rows unchanged; equal rows are not merged."""
        return self

    def chunks(self, size: int) -> Iterator[Sample]:
        """Yield the rows `size` at a time."""
        return self.blocks(size)

    def on_pass(self, callback: Callable[[int], None] | None) -> None:
        """Call ``callback(number of passes so far)`` after each pass over the rows; None stops the
        calls.
        """
        self.file.passed = callback

    @abstractmethod
    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks, in one pass without caching."""

    def nominal(self, is_number: np.ndarray, n_levels: np.ndarray) -> Self:
        """Return the rows with integer codes and without missing numeric values."""
        extra = None if self.extra is None else self.extra.nominal(is_number, n_levels)
        return replace(self, file=self.file.nominal(is_number, n_levels), extra=extra)

    def only(self, predictors: np.ndarray) -> Self:
        """Return the rows with only these predictors."""
        extra = None if self.extra is None else self.extra.only(predictors)
        return replace(self, file=self.file.only(predictors), extra=extra)

    @abstractmethod
    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory for a fit; on a cluster, they are a `SharedSample` for all
        workers.
        """

    @abstractmethod
    def _bucket_sums(
        self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket], workers: int
    ) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each bucket in `buckets`, by
        `workers` threads.
        """

    @abstractmethod
    def _find_certain_rows(self, certain: CertainRows) -> np.ndarray:
        """Return the increasing positions of the rows that are always drawn."""

    @abstractmethod
    def _draw_at_rates(self, rates: DrawRates) -> tuple[np.ndarray, np.ndarray]:
        """Return the increasing positions of rows drawn at these rates, and the inverse of each
        row's probability.
        """

    def sums(self, name: Hashable, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks.

        The sum of each bucket is cached under `name`; sums over other groups and folds then do not
        need another pass.
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
        # without rows, the function of an empty block returns zeros of the correct shape
        return function(self._concatenate([])) if total is None else total

    def grouped_sums(
        self, name: Hashable, function: Callable[[Sample], Sums], K: int | None
    ) -> Any:
        """Return the `sums` of a function that returns a list of arrays; with a response, the sums
        are by group.

        `function` is called with blocks of one group, without a response. It returns arrays (...),
        which are stacked to arrays (K, ...).
        """
        if not self.grouped:
            return self.sums(name, function)
        # by default, the largest group that occurs plus 1
        K = K or 1 + max((y for y, _ in self.buckets), default=-1)
        groups = [self.group(y).sums(name, function) for y in range(K)]
        return [np.stack(group_sums) for group_sums in zip(*groups, strict=True)]

    def draw(
        self,
        size: int,
        rng: np.random.Generator,
        rare: Sequence[np.ndarray] | None = None,
        heavy: float = np.inf,
    ) -> Sample:
        """Return a random sample of about `size` rows, drawn without replacement, in the order of
        the blocks.

        Parameters
        ----------
        size : int
        rng : numpy.random.Generator
        rare : sequence of m ndarrays of int, optional
            Rare levels of each predictor. All rows with a rare level are included. The weights of
            other rows are divided by their probability of being drawn; weighted sums then estimate
            the sums over all rows. By default, weights are unchanged.
        heavy : float, optional
            Rows with a larger weight are included like those with a rare level.

        Returns
        -------
        Sample
            Exactly `size` rows, or all rows if there are fewer; more if rows with rare levels make
            up over half of `size`.
        """
        if size >= self.n:
            return self._concatenate(list(self.blocks(self.file.chunk_rows)))  # all rows
        if self.extra is not None:
            drawn = replace(self, extra=None).draw(size, rng, rare, heavy)
            return concatenate([drawn, self.extra])
        certain = CertainRows.of(rare, heavy if self.file.weighted else np.inf)
        rare_rows = (
            self._find_certain_rows(certain)
            if certain.rare or certain.heavy < np.inf
            else np.zeros(0, dtype=np.int64)
        )
        n_common_rows = self.n - len(rare_rows)
        # draw at least half of `size` rows from the rows without rare levels, regardless of the
        # number of other rows, to estimate their sums
        n_drawn = min(n_common_rows, max(size - len(rare_rows), size // 2))
        common_rows = _draw_positions(n_common_rows, n_drawn, rng)
        # convert positions among the rows without rare levels to positions among all rows by adding
        # the number of rare rows before them. Before rare row j, there are rare_rows[j] - j rows
        # without rare levels
        common_rows += np.searchsorted(
            rare_rows - np.arange(len(rare_rows)), common_rows, side="right"
        )
        positions = np.sort(np.concatenate([rare_rows, common_rows]))
        sample = self.rows(positions)
        if rare is None and not len(rare_rows):
            return sample
        is_rare = np.isin(positions, rare_rows, assume_unique=True)
        # a common row is drawn with probability n_drawn / n_common_rows; max(1, ...) has no effect
        # if no row is drawn
        expansion = np.where(is_rare, 1.0, n_common_rows / max(1, n_drawn))
        return replace(sample, weights=sample.weights * expansion)

    def balanced_draw(self, size: int, n_levels: np.ndarray) -> Drawn:
        """Return about `size` rows, drawn at the rates of `balanced_rates` with a fixed seed.

        Additional rows in memory (`extra`) are ignored.
        """
        stored = replace(self, extra=None)
        rates = balanced_rates(level_counts(stored.pooled, n_levels), stored.total, size)
        positions, expansion = stored._draw_at_rates(rates)
        return Drawn(stored.rows(positions), expansion)

    def rare_levels(self, size: int, n_levels: np.ndarray) -> list[np.ndarray] | None:
        """Return the rare levels of each predictor, or None if there are none; see
        `find_rare_levels`.

        A sample of `size` rows contains all rows with a rare level.
        """
        return find_rare_levels(level_counts(self.pooled, n_levels), self.total, size)

    def close(self) -> None:
        """Delete the store with all its buckets."""
        self.file.close()

    def _count_pass(self) -> None:
        """Count a pass over the rows, and report the number of passes to the callback of
        `on_pass`.
        """
        self.file.passes += 1
        if self.file.passed is not None:
            self.file.passed(self.file.passes)

    def _concatenate(self, blocks: list[Sample]) -> Sample:
        """Return blocks of these rows as one sample; it is empty if the sample has no blocks."""
        if blocks:
            return concatenate(blocks)
        codes = np.zeros((0, self.m), dtype=self.file.dtype)
        return Sample(codes, np.zeros(0), np.zeros(0, dtype=np.intp) if self.grouped else None)


def add_sums(total: Any, term: Any) -> Any:
    """Return ``total + term`` as a new object; None stands for an empty sum.

    Both are numbers or arrays, or lists or tuples of these, which are added element by element.
    """
    if isinstance(term, list | tuple):
        return type(term)(
            add_sums(None if total is None else total[k], element) for k, element in enumerate(term)
        )
    return term + 0.0 if total is None else total + term  # + 0.0 copies an array


@dataclass(frozen=True)
class CertainRows:
    """The rows that are always drawn because they have a rare level or a large weight.

    Attributes
    ----------
    rare : list of (int, ndarray of int)
        Pairs of a predictor and its rare levels.
    heavy : float
        Rows with a larger weight are always drawn.
    """

    rare: list[tuple[int, np.ndarray]]
    heavy: float = np.inf

    @classmethod
    def of(cls, rare: Sequence[np.ndarray] | None, heavy: float = np.inf) -> CertainRows:
        """Return an object that selects the rows with a rare level, given the rare levels of each
        of the m predictors, and those with a larger weight than `heavy`.
        """
        return cls([(i, levels) for i, levels in enumerate(rare or ()) if len(levels)], heavy)

    def among(self, rows: Sample) -> np.ndarray:
        """Return a mask of the rows that are always drawn, shape (n,)."""
        is_certain = rows.weights > self.heavy
        for i, levels in self.rare:
            is_certain |= np.isin(rows.codes[:, i], levels)
        return is_certain


@dataclass(frozen=True)
class DrawRates:
    """Rates at which rows are drawn, independently of each other.

    A row of weight w is drawn with probability ``min(1, rate * w)``, where the rate is the sum of a
    common rate and the additional rates of its levels.

    Attributes
    ----------
    common : float
    scarce : list of (int, ndarray of float)
        Pairs of a predictor and the additional rates of its levels (L_i,), for predictors with
        scarce levels.
    """

    common: float
    scarce: list[tuple[int, np.ndarray]]

    def draw(self, rows: Sample, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the drawn rows among `rows`, and the inverse of each row's
        probability.

        `first` is the position of the first row among all rows. The seed is fixed. Whether a row is
        drawn depends only on its position among all rows, and not on the division into blocks.
        """
        rate = np.full(rows.n, self.common)
        for i, level_rates in self.scarce:
            rate += level_rates[rows.codes[:, i].astype(np.intp)]
        probability = np.minimum(1.0, rate * rows.weights)
        generator = np.random.PCG64(0)
        generator.advance(first)  # one random number for each row
        drawn = np.flatnonzero(np.random.Generator(generator).random(rows.n) < probability)
        return drawn, 1.0 / probability[drawn]


def balanced_rates(level_weights: list[np.ndarray], total: float, size: int) -> DrawRates:
    """Return rates that draw about `size` rows, including as many rows as possible of each scarce
    level.

    Half of the rows are drawn in proportion to their weights. The other half increases the number
    of rows of each level to a common number, which is at most SCARCE_LEVEL_ROWS; for levels with
    fewer rows, all of them are drawn. If fewer rows are sufficient, the remaining ones are added to
    the first half.

    Parameters
    ----------
    level_weights : list of m ndarrays, shape (L_i,)
        Weights of the levels of each predictor in all rows, which are treated as numbers of rows.
    total : float
        Weight of all rows.
    size : int
    """
    from scipy.optimize import bisect

    rate = 0.5 * size / total
    weights = np.concatenate([np.zeros(0), *(each for each in level_weights if len(each) > 1)])

    def n_added(level_rows: float) -> float:
        """Return the number of rows needed to increase each level to `level_rows` rows."""
        return float(np.maximum(np.minimum(weights, level_rows) - rate * weights, 0.0).sum())

    level_rows = SCARCE_LEVEL_ROWS
    if n_added(level_rows) > 0.5 * size:
        level_rows = bisect(lambda rows: n_added(rows) - 0.5 * size, 0.0, level_rows)
    scarce = []
    for i, of_levels in enumerate(level_weights):
        if len(of_levels) == 1:  # a numeric or constant predictor
            continue
        has_rows = of_levels > 0.0
        needed = np.divide(level_rows, of_levels, out=np.zeros(len(of_levels)), where=has_rows)
        added = np.maximum(needed - rate, 0.0)
        if added.any():
            scarce.append((i, added))
    return DrawRates((size - n_added(level_rows)) / total, scarce)


def find_rare_levels(
    level_weights: list[np.ndarray], total: float, size: int
) -> list[np.ndarray] | None:
    """Return the rare levels of each predictor, or None if there are none.

    A sample of `size` rows contains all rows with a rare level.

    The levels of all predictors are sorted by weight. The first of them are rare, as long as their
    total weight is at most half of `size` and a simple random sample is expected to contain each of
    them in fewer than RARE_LEVEL_ROWS rows. Levels with the same weight as the last of these are
    also rare. Weights are treated as numbers of rows.

    Parameters
    ----------
    level_weights : list of m ndarrays, shape (L_i,)
        Weights of the levels of each predictor in all rows.
    total : float
        Weight of all rows.
    size : int
    """
    sorted_weights = np.sort(np.concatenate([np.zeros(0), *level_weights]))
    sorted_weights = sorted_weights[np.cumsum(sorted_weights) <= size / 2]
    # initial=0: no level is rare, or only levels that do not occur are rare
    max_rare_weight = sorted_weights[sorted_weights < RARE_LEVEL_ROWS * total / size].max(
        initial=0.0
    )
    if not max_rare_weight:
        return None
    return [
        np.flatnonzero((weights > 0) & (weights <= max_rare_weight)) for weights in level_weights
    ]


def _draw_positions(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the positions 0..n-1 in increasing order, drawn without replacement.

    If `size` is at most n / 2, memory use depends only on `size`.
    """
    if 2 * size > n:  # draw the positions that are left out
        return np.setdiff1d(np.arange(n), _draw_positions(n, n - size, rng), assume_unique=True)
    candidates = np.zeros(0, dtype=np.int64)
    while len(candidates) < size:  # the distinct values of independent draws are a random set
        # draw a few more values than needed (1/8 and 16), because some are repeated
        candidates = np.union1d(
            candidates, rng.integers(n, size=size - len(candidates) + size // 8 + 16)
        )
    return np.sort(rng.choice(candidates, size, replace=False, shuffle=False))
