"""StoredSample: encoded rows that are too many for memory, in a temporary file that leaves with its object."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from bbl.errors import DataError
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample

__all__ = ["PIECE", "Bucket", "CodeFile", "Rows", "StoredSample", "added", "joined"]

PIECE = 65536  # rows of a bucket that lie together in the file
BUFFER = 2**25  # bytes of rows that wait to be written, all buckets together
FEWEST = 1024
REMEDY = "Point the environment variable TMPDIR to a folder with room for them, or use fewer predictors."

Bucket = tuple[int, int]  # response group, fold


@dataclass
class _Pieces:
    """Where the rows of a bucket lie: pieces of equal length, but for the last."""

    at: list[int] = field(default_factory=list)
    n: int = 0
    total: float = 0.0
    whole: bool = True
    waiting: list[Sample] = field(default_factory=list)
    held: int = 0


class CodeFile:
    """A temporary file of codes, row by row, in a bucket for each response group and fold.

    It has no name where the system allows that, so nothing can be left behind. Rows keep their order within a bucket.

    Parameters
    ----------
    m : int
        Number of predictors.
    dtype : numpy dtype
        Of the codes, see `bbl.rows.sample.code_dtype`.
    weighted : bool, default False
        Whether rows have weights, of 8 bytes each; else all are 1.
    masked : bool, default False
        Whether values may be missing: one bit for each value.
    buckets : int, default 1
        How many there will be at most; they share the memory of rows that wait to be written.
    """

    def __init__(self, m: int, dtype: Any, weighted: bool = False, masked: bool = False, buckets: int = 1):
        self.m, self.dtype, self.weighted, self.masked = m, np.dtype(dtype), weighted, masked
        self.bits = (m + 7) // 8 if masked else 0
        self.row = m * self.dtype.itemsize + 8 * weighted + self.bits  # bytes
        self.piece = int(np.clip(BUFFER // max(1, self.row * buckets), FEWEST, PIECE))
        self.buckets: dict[Bucket, _Pieces] = {}
        self.sums: dict[tuple[Hashable, Bucket], Any] = {}
        self.size, self.passes = 0, 0
        self.passed: Callable[[int], None] | None = None
        self._lock = threading.Lock()
        self._file = tempfile.TemporaryFile(prefix="bbl-", buffering=0)  # noqa: SIM115  # closed by close()
        weakref.finalize(self, self._file.close)  # or with the last who holds it

    def check_room(self, n: int) -> None:
        """Raise a DataError if `n` rows will not go onto the disk."""
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if n * self.row > free:
            raise DataError(
                f"the codes of {n:,} rows need {n * self.row / 2**30:.1f} GiB in {folder!r}, where {free / 2**30:.1f} "
                f"GiB are free. {REMEDY}",
                argument="data",
            )

    def append(self, bucket: Bucket, rows: Sample) -> None:
        """Put rows at the end of a bucket; their response is not looked at."""
        pieces = self.buckets.setdefault(bucket, _Pieces())
        pieces.waiting.append(rows)
        pieces.held += rows.n
        pieces.n += rows.n
        pieces.total += rows.total
        pieces.whole = pieces.whole and rows.whole
        while pieces.held >= self.piece:
            self._write(pieces, self.piece)

    def finish(self) -> StoredSample:
        """Write what waits, and return all rows."""
        for pieces in self.buckets.values():
            if pieces.held:
                self._write(pieces, pieces.held)
        return StoredSample(self, tuple(sorted(self.buckets)))

    def _write(self, own: _Pieces, count: int) -> None:
        codes = np.concatenate([rows.codes for rows in own.waiting])
        parts = [np.ascontiguousarray(codes[:count], dtype=self.dtype)]
        remainder = Sample(codes[count:], np.empty(0))
        if self.weighted:
            weights = np.concatenate([rows.weights for rows in own.waiting])
            parts.append(weights[:count])
            remainder = replace(remainder, weights=weights[count:])
        if self.masked:
            blank = np.zeros(codes.shape, dtype=bool)
            first = 0
            for rows in own.waiting:
                if rows.missing is not None:
                    blank[first : first + rows.n] = rows.missing
                first += rows.n
            parts.append(np.packbits(blank[:count], axis=1))
            remainder = replace(remainder, missing=blank[count:])
        own.waiting, own.held = ([remainder] if remainder.n else []), remainder.n
        own.at.append(self.size)
        for piece in parts:
            self._put(piece.reshape(-1).view(np.uint8))

    def _put(self, data: np.ndarray) -> None:
        view = data.data
        try:
            while len(view):
                written = self._file.write(view)
                view = view[written:]
        except OSError as error:
            self.close()
            raise DataError(
                f"the codes of the rows cannot be written to a temporary file in {tempfile.gettempdir()!r} "
                f"({error.strerror or error}). {REMEDY}",
                argument="data",
            ) from error
        self.size += data.nbytes

    def _get(self, out: np.ndarray, at: int) -> None:
        """Fill `out` from the file; pages are not mapped, so what was read is not held."""
        view = out.reshape(-1).view(np.uint8).data
        with self._lock:
            self._file.seek(at)
            while len(view):
                count = self._file.readinto(view)
                if not count:
                    raise DataError("the temporary file of codes is shorter than it was written.", argument="data")
                view = view[count:]

    def read(self, bucket: Bucket, first: int, last: int, y: int | None) -> Sample:
        """Return rows `first` to `last` of a bucket, as of response `y`."""
        n = last - first
        codes, weights = np.empty((n, self.m), dtype=self.dtype), np.ones(n)
        bits = np.zeros((n, self.bits), dtype=np.uint8)
        pieces, done, itemsize = self.buckets[bucket], 0, self.dtype.itemsize
        while done < n:
            k, skip = divmod(first + done, self.piece)
            size = min(self.piece, pieces.n - k * self.piece)
            target = slice(done, min(n, done + size - skip))
            at = pieces.at[k]
            self._get(codes[target], at + skip * self.m * itemsize)
            at += size * self.m * itemsize
            if self.weighted:
                self._get(weights[target], at + 8 * skip)
                at += 8 * size
            if self.masked:
                self._get(bits[target], at + skip * self.bits)
            done = target.stop
        missing = np.unpackbits(bits, axis=1, count=self.m).view(bool) if bits.any() else None
        return Sample(codes, weights, None if y is None else np.full(n, y, dtype=np.intp), missing)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


@dataclass(frozen=True, eq=False)
class StoredSample:
    """Encoded rows in a `CodeFile`: what `Sample` is where rows are gone over block by block.

    Attributes
    ----------
    file : CodeFile
    buckets : tuple of (group, fold)
        Whose rows these are, in their order.
    grouped : bool
        Whether rows have a response; else they are one group.
    extra : Sample or None
        A few rows of one group behind those of the file.
    remote : bool
        Whether rows come over a network.
    """

    remote: ClassVar[bool] = False

    file: CodeFile
    buckets: tuple[Bucket, ...]
    grouped: bool = True
    extra: Sample | None = None

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
    def pooled(self) -> StoredSample:
        """The same rows as one group."""
        return replace(self, grouped=False)

    def group(self, y: int) -> StoredSample:
        """Return the rows of response group `y`."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[0] == y), grouped=False)

    def fold(self, f: int) -> StoredSample:
        """Return the rows that fold `f` holds."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] == f))

    def without(self, f: int) -> StoredSample:
        """Return the rows that fold `f` is trained on: all that it does not hold."""
        return replace(self, buckets=tuple(b for b in self.buckets if b[1] != f))

    def collapsed(self, n_levels: Sequence[int]) -> StoredSample:
        """Return the rows themselves: equal ones are not looked for."""
        return self

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows, up to `size` of them at a time, each block of one group and fold."""
        for bucket in self.buckets:
            y, n = bucket[0] if self.grouped else None, self.file.buckets[bucket].n
            for first in range(0, n, size):
                yield self.file.read(bucket, first, min(n, first + size), y)
        if self.extra is not None:
            yield self.extra

    def summed(self, function: Callable[[Sample], Any], workers: int = 1) -> Any:
        """Return the sum of ``function(block)`` over all blocks, in their order, by a pass that threads share."""
        running_sum, blocks = None, self.blocks(self.file.piece)
        while block_batch := list(islice(blocks, workers)):
            for block_sum in run_tasks(function, [(block,) for block in block_batch], workers, shared=True):
                running_sum = added(running_sum, block_sum)
        count_pass(self.file)
        return running_sum

    def sums(self, name: Hashable, function: Callable[[Sample], Any]) -> Any:
        """Return what is additive over rows: the sum of ``function(block)`` over all blocks.

        It is kept for each group and fold under its `name`, so that other groups, folds and all rows cost no pass more.
        """
        running_sum = None
        for bucket in self.buckets:
            key = ((name, self.grouped), bucket)
            if key not in self.file.sums:
                bucket_sum: Any = None
                for block in replace(self, buckets=(bucket,), extra=None).blocks(self.file.piece):
                    bucket_sum = added(bucket_sum, function(block))
                self.file.sums[key] = bucket_sum
            running_sum = added(running_sum, self.file.sums[key])
        if self.extra is not None:
            running_sum = added(running_sum, function(self.extra))
        return function(joined([], self)) if running_sum is None else running_sum

    def draw(self, size: int, rng: np.random.Generator, rare: Sequence[np.ndarray] | None = None) -> Sample:
        """Return a random sample of about `size` rows, without replacement, in the order of the file.

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
            return joined(list(self.blocks(self.file.piece)), self)
        if self.extra is not None:
            return joined([replace(self, extra=None).draw(size, rng, rare), self.extra], self)
        rare_levels = [(i, levels) for i, levels in enumerate(rare or ()) if len(levels)]
        rare_rows = self._rows_with(rare_levels) if rare_levels else np.zeros(0, dtype=np.int64)
        n_other_rows = self.n - len(rare_rows)
        wanted = min(n_other_rows, max(size - len(rare_rows), size // 2))
        drawn = _choose(n_other_rows, wanted, rng)
        # positions among the rows that are not kept, to positions among all
        drawn += np.searchsorted(rare_rows - np.arange(len(rare_rows)), drawn, side="right")
        where = np.sort(np.concatenate([rare_rows, drawn]))
        sample = self.rows(where)
        if rare is None:
            return sample
        scale = np.where(np.isin(where, rare_rows, assume_unique=True), 1.0, n_other_rows / max(1, wanted))
        return replace(sample, weights=sample.weights * scale)

    def rows(self, positions: np.ndarray) -> Sample:
        """Return the rows at rising `positions` in the order of `blocks`."""
        parts, first = [], 0
        for bucket in self.buckets:
            n = self.file.buckets[bucket].n
            block_positions = (
                positions[np.searchsorted(positions, first) : np.searchsorted(positions, first + n)] - first
            )
            y = bucket[0] if self.grouped else None
            for k in np.unique(block_positions // self.file.piece):
                start = int(k) * self.file.piece
                here = block_positions[block_positions // self.file.piece == k] - start
                block = self.file.read(bucket, start, min(n, start + self.file.piece), y)
                parts.append(block.rows(here))
            first += n
        return joined(parts, self)

    def _rows_with(self, few: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the positions of rows in which some predictor has one of the levels that go with it."""
        row_positions, first = [np.zeros(0, dtype=np.int64)], 0
        for block in self.blocks(self.file.piece):
            hit = np.zeros(block.n, dtype=bool)
            for i, levels in few:
                hit |= np.isin(block.codes[:, i], levels)
            row_positions.append(first + np.flatnonzero(hit))
            first += block.n
        return np.concatenate(row_positions)

    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory as all who take part in a fit shall have them: here as they are."""
        return sample

    def close(self) -> None:
        """Remove the file, of whatever rows."""
        self.file.close()


def count_pass(file: Any) -> None:
    """Count a pass over rows of a `CodeFile`, or what is like one, and tell who wants to know."""
    file.passes += 1
    if file.passed is not None:
        file.passed(file.passes)


def added(one: Any, other: Any) -> Any:
    """Return the sum of numbers, arrays, or lists or tuples of them, as a new object; None is nothing yet."""
    if isinstance(other, list | tuple):
        return type(other)(added(None if one is None else one[k], term) for k, term in enumerate(other))
    return other + 0.0 if one is None else one + other


def _choose(n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `size` of the positions 0..n-1, drawn at random without replacement, rising; memory goes by `size`."""
    if 2 * size > n:
        return np.setdiff1d(np.arange(n), _choose(n, n - size, rng), assume_unique=True)
    chosen = np.zeros(0, dtype=np.int64)
    while len(chosen) < size:  # distinct numbers of independent draws are a random set
        chosen = np.union1d(chosen, rng.integers(n, size=size - len(chosen) + size // 8 + 16))
    return np.sort(rng.choice(chosen, size, replace=False, shuffle=False))


def joined(parts: list[Sample], whole: StoredSample) -> Sample:
    """Return blocks as one sample."""
    if not parts:
        empty = np.zeros((0, whole.m), dtype=whole.file.dtype)
        return Sample(empty, np.zeros(0), np.zeros(0, dtype=np.intp) if whole.grouped else None)
    blanks = None
    if any(block.missing is not None for block in parts):
        blanks = np.concatenate([np.zeros(p.codes.shape, bool) if p.missing is None else p.missing for p in parts])
    y = np.concatenate([block.response for block in parts]) if whole.grouped else None
    return Sample(np.concatenate([p.codes for p in parts]), np.concatenate([p.weights for p in parts]), y, blanks)


Rows = Sample | StoredSample
