"""Encoded rows in a temporary file, for data that are too large for memory: `CodeFile` and
`FileSample`.

A *bucket* has the rows of one response group and fold, stored in *chunks* of equal length. A
`Sample` has the codes (n, m), weights (n,), groups `y` (n,) or None, and marks of missing values
(n, m) or None, of n rows in memory.

`BlockCache.apply(function, block_key, block)` returns ``function(block)``; it may cache a part of
the work on a block. ``read_ahead(function, blocks, workers)`` yields ``function(block)`` of each
block in order, computed by threads. ``add_sums(total, term)`` adds numbers or arrays; a total of
None is an empty sum.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.errors import DataError
from bbl.memory import available_memory
from bbl.parallel import Stopped, read_ahead, stop_flag
from bbl.rows.sample import Rows, Sample, Sums
from bbl.rows.staged import BlockCache
from bbl.rows.stored import (
    CHUNK_ROWS,
    Bucket,
    BucketSize,
    RowStore,
    StoredSample,
    add_sums,
    has_rare_level,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["CodeFile", "FileSample", "Rows"]

BUFFER_BYTES = 2**25  # of rows that wait to be written, all buckets together
CACHE_BYTES = 2**29  # greatest size of the cache of blocks as the kernels read them
CACHE_SHARE = 0.5  # greatest share of the available memory that a new block in the cache may take
MIN_CHUNK_ROWS = 1024  # least number of rows of a full chunk, even if many buckets share the buffer
REMEDY = (
    "Set the environment variable TMPDIR to a folder with enough space for them, or use fewer "
    "predictors."
)


@dataclass
class _BucketChunks(BucketSize):
    """The rows of a bucket: chunks in the file, the last of which may be shorter, and rows that
    wait to be written.
    """

    offsets: list[int] = field(default_factory=list)  # bytes in the file before each chunk
    waiting: list[Sample] = field(default_factory=list)
    n_waiting: int = 0  # rows in `waiting`


class CodeFile(RowStore):
    """A temporary file of encoded rows by bucket; rows keep their order within a bucket.

    Each chunk has the codes of its rows, then their weights if `weighted`, then bits of missing
    values if `masked`. The file has no name where the system allows that, so that it disappears
    with the process.

    Parameters
    ----------
    m : int
        Number of predictors.
    dtype : numpy dtype
        Of the codes, see `bbl.rows.sample.code_dtype`.
    weighted : bool, default False
        Whether weights are stored (float64); else all are 1.
    masked : bool, default False
        Whether values may be missing; one bit is stored for each value.
    buckets : int, default 1
        Greatest number of buckets, which share the buffer of waiting rows.

    Attributes
    ----------
    mask_bytes, row_bytes : int
        Bytes of the bits of missing values of a row, and of a row in all.
    chunk_rows : int
        Rows of a full chunk.
    buckets : dict of Bucket to _BucketChunks
        Here not a number, but the rows of each bucket.
    sums : dict
        Results of `StoredSample.sums`, of single buckets.
    size : int
        Bytes written.
    passes : int
        Number of passes over the rows.
    passed : callable or None
        Called with `passes` after each pass.
    """

    def __init__(
        self,
        m: int,
        dtype: DTypeLike,
        weighted: bool = False,
        masked: bool = False,
        buckets: int = 1,
    ):
        self.m = m
        self.dtype = np.dtype(dtype)
        self.weighted = weighted
        self.masked = masked
        # of a row: one bit for each value, in whole bytes
        self.mask_bytes = (m + 7) // 8 if masked else 0
        self.row_bytes = m * self.dtype.itemsize + 8 * weighted + self.mask_bytes
        # so many rows that the waiting ones of all buckets fit into the buffer
        self.chunk_rows = int(
            np.clip(BUFFER_BYTES // max(1, self.row_bytes * buckets), MIN_CHUNK_ROWS, CHUNK_ROWS)
        )
        self.buckets: dict[Bucket, _BucketChunks] = {}
        self.sums: dict[tuple[Hashable, Bucket], Any] = {}
        self.size = 0
        self.passes = 0
        self.passed: Callable[[int], None] | None = None
        self.cache = BlockCache(_free_cache_bytes)
        self._lock = threading.Lock()  # threads share the position of the file
        self._file = tempfile.TemporaryFile(prefix="bbl-", buffering=0)  # noqa: SIM115  # closed by close()
        # at the latest with the last reference to this object
        weakref.finalize(self, self._file.close)

    def check_room(self, n: int) -> None:
        """Raise a DataError if the disk has no room for `n` rows."""
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if n * self.row_bytes > free:
            raise DataError(
                f"the codes of {n:,} rows need {n * self.row_bytes / 2**30:.1f} GiB in "
                f"{folder!r}, where {free / 2**30:.1f} GiB are free. {REMEDY}",
                argument="data",
            )

    def append(self, bucket: Bucket, rows: Sample) -> None:
        """Add rows to the end of a bucket, whose group replaces their response."""
        chunks = self.buckets.setdefault(bucket, _BucketChunks())
        chunks.waiting.append(rows)
        chunks.n_waiting += rows.n
        chunks.n += rows.n
        chunks.total += rows.total
        chunks.whole = chunks.whole and rows.whole
        while chunks.n_waiting >= self.chunk_rows:
            self._write(chunks, self.chunk_rows)

    def finish(self) -> FileSample:
        """Write the waiting rows, and return all rows as a sample."""
        for chunks in self.buckets.values():
            if chunks.n_waiting:
                self._write(chunks, chunks.n_waiting)
        return FileSample(self, tuple(sorted(self.buckets)))

    def _write(self, chunks: _BucketChunks, count: int) -> None:
        """Write the first `count` waiting rows of a bucket as one chunk."""
        codes = np.concatenate([rows.codes for rows in chunks.waiting])
        arrays = [np.ascontiguousarray(codes[:count], dtype=self.dtype)]
        # weights follow if they are stored; else they are not read
        rows_left = Sample(codes[count:], np.empty(0))
        if self.weighted:
            weights = np.concatenate([rows.weights for rows in chunks.waiting])
            arrays.append(weights[:count])
            rows_left = replace(rows_left, weights=weights[count:])
        if self.masked:
            missing = np.zeros(codes.shape, dtype=bool)
            start = 0
            for rows in chunks.waiting:
                if rows.missing is not None:
                    missing[start : start + rows.n] = rows.missing
                start += rows.n
            arrays.append(np.packbits(missing[:count], axis=1))
            rows_left = replace(rows_left, missing=missing[count:])
        chunks.waiting = [rows_left] if rows_left.n else []
        chunks.n_waiting = rows_left.n
        chunks.offsets.append(self.size)
        for array in arrays:
            self._write_bytes(array.reshape(-1).view(np.uint8))

    def _write_bytes(self, data: np.ndarray) -> None:
        """Append an array of uint8 to the file; if that fails, close the file and raise a
        DataError.
        """
        unwritten = data.data  # memoryview of the bytes
        try:
            while len(unwritten):  # one call may write a part only
                n_written = self._file.write(unwritten)
                unwritten = unwritten[n_written:]
        except OSError as error:
            self.close()
            raise DataError(
                "the codes of the rows cannot be written to a temporary file in "
                f"{tempfile.gettempdir()!r} ({error.strerror or error}). {REMEDY}",
                argument="data",
            ) from error
        self.size += data.nbytes

    def _read_into(self, target: np.ndarray, offset: int) -> None:
        """Fill the array `target` with the bytes of the file from `offset` on.

        The file is not mapped into memory, so that memory does not grow with the rows that were
        read.
        """
        unfilled = target.reshape(-1).view(np.uint8).data
        with self._lock:
            self._file.seek(offset)
            while len(unfilled):  # one call may read a part only
                n_bytes = self._file.readinto(unfilled)
                if not n_bytes:
                    raise DataError(
                        "the temporary file of codes has been truncated.",
                        argument="data",
                    )
                unfilled = unfilled[n_bytes:]

    def read(self, bucket: Bucket, first: int, last: int, y: int | None) -> Sample:
        """Return rows `first` to `last` - 1 of a bucket, all with the response `y` (None for no
        response).
        """
        n = last - first
        codes = np.empty((n, self.m), dtype=self.dtype)
        weights = np.ones(n)
        packed_missing = np.zeros((n, self.mask_bytes), dtype=np.uint8)
        chunks = self.buckets[bucket]
        n_read = 0
        itemsize = self.dtype.itemsize
        while n_read < n:
            # number of the chunk, and rows of it before the first wanted one
            k, skipped_rows = divmod(first + n_read, self.chunk_rows)
            chunk_size = min(self.chunk_rows, chunks.n - k * self.chunk_rows)
            out_rows = slice(n_read, min(n, n_read + chunk_size - skipped_rows))
            offset = chunks.offsets[k]
            self._read_into(codes[out_rows], offset + skipped_rows * self.m * itemsize)
            offset += chunk_size * self.m * itemsize  # the weights of a chunk follow its codes
            if self.weighted:
                self._read_into(weights[out_rows], offset + 8 * skipped_rows)
                offset += 8 * chunk_size  # the bits of missing values follow the weights
            if self.masked:
                self._read_into(packed_missing[out_rows], offset + skipped_rows * self.mask_bytes)
            n_read = out_rows.stop
        missing = (
            np.unpackbits(packed_missing, axis=1, count=self.m).view(bool)
            if packed_missing.any()
            else None
        )
        return Sample(codes, weights, None if y is None else np.full(n, y, dtype=np.intp), missing)

    def close(self) -> None:
        """Remove the file, and what is cached of it."""
        self.cache.clear()
        self._file.close()


@dataclass(frozen=True, eq=False)
class FileSample(StoredSample):
    """Encoded rows in a `CodeFile`.

    Attributes
    ----------
    file : CodeFile
        The file, with the rows of all buckets.
    buckets : tuple of Bucket
        The buckets that are rows of this sample, in their order.
    grouped : bool
        Whether rows have a response; else they are one group.
    extra : Sample or None
        A few more rows in memory, of one group, that follow those of the buckets.
    """

    file: CodeFile

    @property
    def cluster_threads(self) -> int:
        """Number of tasks that a cluster runs at a time: 0, as there is no cluster."""
        return 0

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows, up to `size` at a time, each block from one bucket."""
        for bucket in self.buckets:
            # bucket[0] is the group
            y = bucket[0] if self.grouped else None
            n = self.file.buckets[bucket].n
            for start in range(0, n, size):
                yield self.file.read(bucket, start, min(n, start + size), y)
        if self.extra is not None:
            yield self.extra

    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks, in order; `workers` threads share
        the pass.
        """
        total: Any = None
        # shape (1,); not 0 if another thread of the same call was interrupted or failed
        stop = stop_flag()
        for block_sum in read_ahead(partial(self._apply, function), self._keyed_blocks(), workers):
            if stop[0]:
                # ends this task without a message; `run_tasks` raises the error of the other thread
                raise Stopped
            total = add_sums(total, block_sum)
        self._count_pass()
        return total

    def _keyed_blocks(self) -> Iterator[tuple[tuple[Bucket, int] | None, Sample]]:
        """Yield (key, block) for all blocks: the key is (bucket, number in the bucket), None for
        the rows in memory.
        """
        for bucket in self.buckets:
            for k, block in enumerate(
                replace(self, buckets=(bucket,), extra=None).blocks(self.file.chunk_rows)
            ):
                yield (bucket, k), block
        if self.extra is not None:
            yield None, self.extra

    def _apply(
        self,
        function: Callable[[Sample], Sums],
        keyed_block: tuple[tuple[Bucket, int] | None, Sample],
    ) -> Sums:
        """Return ``function(block)`` of a pair (key, block) of `_keyed_blocks`, with the help of
        the cache.
        """
        block_key, block = keyed_block
        return (
            function(block)
            if block_key is None
            else self.file.cache.apply(function, block_key, block)
        )

    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows of the buckets, not of `extra`, at rising positions `index` in the order
        of `blocks`.
        """
        # start: position of the bucket's first row
        blocks = []
        start = 0
        for bucket in self.buckets:
            n = self.file.buckets[bucket].n
            # wanted positions among the rows of the bucket
            positions = (
                index[np.searchsorted(index, start) : np.searchsorted(index, start + n)] - start
            )
            y = bucket[0] if self.grouped else None
            chunk_of_position = positions // self.file.chunk_rows
            for k in np.unique(chunk_of_position):
                chunk_start = int(k) * self.file.chunk_rows
                chunk = self.file.read(
                    bucket, chunk_start, min(n, chunk_start + self.file.chunk_rows), y
                )
                blocks.append(chunk.rows(positions[chunk_of_position == k] - chunk_start))
            start += n
        return self._concatenate(blocks)

    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory unchanged: there is no cluster."""
        return sample

    def _bucket_sums(
        self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket], workers: int
    ) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each of the `buckets`, by
        `workers` threads.
        """
        # without the cache of blocks: the caller stores these sums, so that they are computed once
        sums: dict[Bucket, Any] = dict.fromkeys(buckets)
        for bucket in buckets:
            blocks = replace(self, buckets=(bucket,), extra=None).blocks(self.file.chunk_rows)
            for block_sum in read_ahead(function, blocks, workers):
                sums[bucket] = add_sums(sums[bucket], block_sum)
        return sums

    def _find_rare_rows(self, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the rising positions of rows with a rare level, given as pairs (predictor, its
        rare levels).
        """
        # start: position of the block's first row
        positions = [np.zeros(0, dtype=np.int64)]
        start = 0
        for block in self.blocks(self.file.chunk_rows):
            positions.append(start + np.flatnonzero(has_rare_level(block, rare_levels)))
            start += block.n
        return np.concatenate(positions)


def _free_cache_bytes(cached_bytes: int) -> float:
    """Return how many more bytes of a file's blocks may be cached; `cached_bytes` are cached
    already.
    """
    return min(CACHE_BYTES - cached_bytes, CACHE_SHARE * available_memory())
