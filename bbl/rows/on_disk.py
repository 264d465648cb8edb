"""Encoded rows in a temporary file, for data that do not fit into memory.

A *bucket* contains the rows of one response group and fold, divided into *chunks* of equal length.
"""

from __future__ import annotations

import copy
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
from bbl.memory import available_memory, return_freed_memory
from bbl.parallel import Stopped, read_ahead, stop_flag
from bbl.rows.sample import Rows, Sample, Sums, code_dtype
from bbl.rows.staged import BlockCache
from bbl.rows.stored import (
    CHUNK_ROWS,
    Bucket,
    BucketSize,
    CertainRows,
    DrawRates,
    RowStore,
    StoredSample,
    add_sums,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["CodeFile", "FileSample", "Rows"]

BUFFER_BYTES = 2**25  # maximum size in bytes of the rows waiting to be written, over all buckets
CACHE_BYTES = 2**29  # maximum size of the cache of blocks in bytes
CACHE_SHARE = 0.5  # maximum proportion of the available memory for a new block in the cache
# minimum number of rows in a full chunk, even if many buckets share the buffer
MIN_CHUNK_ROWS = 1024
REMEDY = (
    "Set the environment variable TMPDIR to a directory with enough free space, or use fewer "
    "predictors."
)


@dataclass
class _BucketChunks(BucketSize):
    """The rows of a bucket: chunks in the file, and rows that have not been written yet.

    The last chunk may be shorter.
    """

    offsets: list[int] = field(default_factory=list)  # position in the file of each chunk
    waiting: list[Sample] = field(default_factory=list)
    n_waiting: int = 0  # number of rows in `waiting`


class CodeFile(RowStore):
    """A temporary file of encoded rows by bucket; rows keep their order within a bucket.

    A chunk contains the codes of its rows, followed by their weights (if `weighted`) and bits for
    missing values (if `masked`). If the operating system allows it, the file has no name and is
    removed when the process ends.

    Parameters
    ----------
    m : int
        Number of predictors.
    dtype : numpy dtype
        Type of the codes (see `bbl.rows.sample.code_dtype`).
    weighted : bool, default False
        Whether weights are stored (float64). If False, all weights are 1.
    masked : bool, default False
        Whether values may be missing; one bit per value is stored.
    buckets : int, default 1
        Maximum number of buckets, which share the buffer of waiting rows.

    Attributes
    ----------
    mask_bytes, row_bytes : int
        Bytes per row for missing values, and in total.
    chunk_rows : int
        Number of rows in a full chunk.
    buckets : dict of Bucket to _BucketChunks
        The rows of each bucket. The parameter of this name is a number.
    sums : dict
        Cached results of `StoredSample.sums`, by bucket.
    size : int
        Number of bytes written.
    passes : int
        Number of passes over the rows.
    passed : callable or None
        Function called with `passes` after each pass.
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
        self.stored_dtype = self.dtype  # type of the codes in the file
        self.stored_m = m  # number of predictors in the file
        self.columns: np.ndarray | None = None  # the predictors that are read; see `only`
        # the arguments of `Sample.nominal` for the rows that are read; see `nominal`
        self.as_nominal: tuple[np.ndarray, np.ndarray] | None = None
        self.weighted = weighted
        self.masked = masked
        # for each row, one bit for each value, in whole bytes
        self.mask_bytes = (m + 7) // 8 if masked else 0
        self.row_bytes = m * self.dtype.itemsize + 8 * weighted + self.mask_bytes
        # the number of rows that fit into the buffer for all buckets
        self.chunk_rows = int(
            np.clip(BUFFER_BYTES // max(1, self.row_bytes * buckets), MIN_CHUNK_ROWS, CHUNK_ROWS)
        )
        self.buckets: dict[Bucket, _BucketChunks] = {}
        self.sums: dict[tuple[Hashable, Bucket], Any] = {}
        self.size = 0
        self.passes = 0
        self.passed: Callable[[int], None] | None = None
        self.origin: CodeFile | None = None  # the file behind this view
        self.cache = BlockCache(_free_cache_bytes)
        self._lock = threading.Lock()  # threads share the file position
        self._file = tempfile.TemporaryFile(prefix="bbl-", buffering=0)  # noqa: SIM115  # closed by close()
        # closed at the latest when the last reference to this object is deleted
        weakref.finalize(self, self._file.close)

    def check_room(self, n: int) -> None:
        """Raise a DataError if there is not enough disk space for `n` rows."""
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if n * self.row_bytes > free:
            raise DataError(
                f"The codes of {n:,} rows require {n * self.row_bytes / 2**30:.1f} GiB in "
                f"{folder!r}, but only {free / 2**30:.1f} GiB are free.",
                argument="data",
                hint=REMEDY,
            )

    def append(self, bucket: Bucket, rows: Sample) -> None:
        """Append rows to a bucket; the group of the bucket replaces the response of the rows."""
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
        # weights follow if they are stored; otherwise, they are not read
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
        """Append an array of uint8 to the file; if this fails, close the file and raise a
        DataError.
        """
        unwritten = data.data  # memoryview of the bytes
        try:
            while len(unwritten):  # a call may write only a part
                n_written = self._file.write(unwritten)
                unwritten = unwritten[n_written:]
        except OSError as error:
            self.close()
            raise DataError(
                "The codes of the rows cannot be written to a temporary file in "
                f"{tempfile.gettempdir()!r} ({error.strerror or error}).",
                argument="data",
                hint=REMEDY,
            ) from error
        self.size += data.nbytes

    def _read_into(self, target: np.ndarray, offset: int) -> None:
        """Fill the array `target` with the bytes of the file that start at `offset`.

        The file is not mapped into memory, because memory use would then grow with the number of
        rows read.
        """
        unfilled = target.reshape(-1).view(np.uint8).data
        with self._lock:
            self._file.seek(offset)
            while len(unfilled):  # a call may read only a part
                n_bytes = self._file.readinto(unfilled)
                if not n_bytes:
                    raise DataError(
                        "The temporary file that contains the codes has been truncated.",
                        argument="data",
                    )
                unfilled = unfilled[n_bytes:]

    def read(self, bucket: Bucket, first: int, last: int, y: int | None) -> Sample:
        """Return rows `first` to `last` - 1 of a bucket, with the response `y`, which is None for
        rows without a response.
        """
        n = last - first
        codes = np.empty((n, self.stored_m), dtype=self.stored_dtype)
        weights = np.ones(n)
        packed_missing = np.zeros((n, self.mask_bytes), dtype=np.uint8)
        chunks = self.buckets[bucket]
        n_read = 0
        itemsize = self.stored_dtype.itemsize
        while n_read < n:
            # chunk number, and number of its rows before the first requested one
            k, skipped_rows = divmod(first + n_read, self.chunk_rows)
            chunk_size = min(self.chunk_rows, chunks.n - k * self.chunk_rows)
            out_rows = slice(n_read, min(n, n_read + chunk_size - skipped_rows))
            offset = chunks.offsets[k]
            self._read_into(codes[out_rows], offset + skipped_rows * self.stored_m * itemsize)
            offset += chunk_size * self.stored_m * itemsize  # a chunk's weights follow its codes
            if self.weighted:
                self._read_into(weights[out_rows], offset + 8 * skipped_rows)
                offset += 8 * chunk_size  # the bits for missing values follow the weights
            if self.masked:
                self._read_into(packed_missing[out_rows], offset + skipped_rows * self.mask_bytes)
            n_read = out_rows.stop
        missing = (
            np.unpackbits(packed_missing, axis=1, count=self.stored_m).view(bool)
            if packed_missing.any()
            else None
        )
        rows = Sample(codes, weights, None if y is None else np.full(n, y, dtype=np.intp), missing)
        if self.as_nominal is not None:
            rows = rows.nominal(*self.as_nominal)
        return rows if self.columns is None else rows.only(self.columns)

    def nominal(self, is_number: np.ndarray, n_levels: np.ndarray) -> CodeFile:
        """Return a view of the complete file with integer codes; see `Rows.nominal`."""
        view = self._view()
        view.as_nominal = (is_number, n_levels)
        view.dtype = code_dtype(n_levels)
        return view

    def only(self, predictors: np.ndarray) -> CodeFile:
        """Return a view of the complete file with only these predictors."""
        view = self._view()
        view.columns = predictors if self.columns is None else self.columns[predictors]
        view.m = len(predictors)
        return view

    def _view(self) -> CodeFile:
        """Return a copy of this object that reads the same file."""
        view = copy.copy(self)
        view.sums = {}
        view.cache = BlockCache(_free_cache_bytes)
        view.origin = self  # the file is closed when its last reference is deleted
        return view

    def close(self) -> None:
        """Delete the file and its cache, which may contain hundreds of megabytes."""
        self.cache.clear()
        self._file.close()
        return_freed_memory()


@dataclass(frozen=True, eq=False)
class FileSample(StoredSample):
    """Encoded rows in a `CodeFile`.

    Attributes
    ----------
    file : CodeFile
        The file, with the rows of all buckets.
    buckets : tuple of Bucket
        The buckets in this sample, in order.
    grouped : bool
        Whether rows have a response. If False, they form a single group.
    extra : Sample or None
        A few additional rows of one group, which are in memory and follow the rows of the buckets.
    """

    file: CodeFile

    @property
    def cluster_threads(self) -> int:
        """Number of tasks that a cluster can run simultaneously, or 0 for a file."""
        return 0

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows, up to `size` at a time; each block contains rows of one bucket."""
        for bucket in self.buckets:
            # bucket[0] is the group
            y = bucket[0] if self.grouped else None
            n = self.file.buckets[bucket].n
            for start in range(0, n, size):
                yield self.file.read(bucket, start, min(n, start + size), y)
        if self.extra is not None:
            yield self.extra

    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks in their order, computed by
        `workers` threads.
        """
        total: Any = None
        # shape (1,); nonzero if another thread of the same call was interrupted or has failed
        stop = stop_flag()
        for block_sum in read_ahead(partial(self._apply, function), self._keyed_blocks(), workers):
            if stop[0]:
                # ends this task silently; `run_tasks` raises the error of the other thread
                raise Stopped
            total = add_sums(total, block_sum)
        self._count_pass()
        return total

    def _keyed_blocks(self) -> Iterator[tuple[tuple[Bucket, int] | None, Sample]]:
        """Yield (key, block) for all blocks.

        The key is (bucket, number of the block in the bucket), or None for rows in memory.
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
        """Return ``function(block)`` for a pair (key, block) from `_keyed_blocks`, using the
        cache.
        """
        block_key, block = keyed_block
        return (
            function(block)
            if block_key is None
            else self.file.cache.apply(function, block_key, block)
        )

    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows of the buckets, without `extra`, at increasing positions `index` in the
        order of `blocks`.
        """
        # start: position of the bucket's first row
        blocks = []
        start = 0
        for bucket in self.buckets:
            n = self.file.buckets[bucket].n
            # requested positions among the rows of the bucket
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
        """Return rows in memory unchanged."""
        return sample

    def _bucket_sums(
        self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket], workers: int
    ) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each bucket in `buckets`, by
        `workers` threads.
        """
        # not cached, because the caller stores these sums, so they are computed only once
        sums: dict[Bucket, Any] = dict.fromkeys(buckets)
        for bucket in buckets:
            blocks = replace(self, buckets=(bucket,), extra=None).blocks(self.file.chunk_rows)
            for block_sum in read_ahead(function, blocks, workers):
                sums[bucket] = add_sums(sums[bucket], block_sum)
        return sums

    def _find_certain_rows(self, certain: CertainRows) -> np.ndarray:
        """Return the increasing positions of the rows that are always drawn."""
        # start: position of the block's first row
        positions = [np.zeros(0, dtype=np.int64)]
        start = 0
        for block in self.blocks(self.file.chunk_rows):
            positions.append(start + np.flatnonzero(certain.among(block)))
            start += block.n
        return np.concatenate(positions)

    def _draw_at_rates(self, rates: DrawRates) -> tuple[np.ndarray, np.ndarray]:
        """Return the increasing positions of rows drawn at these rates, and the inverse of each
        row's probability.
        """
        positions = [np.zeros(0, dtype=np.int64)]
        expansions = [np.zeros(0)]
        start = 0
        for block in self.blocks(self.file.chunk_rows):
            drawn, expansion = rates.draw(block, start)
            positions.append(start + drawn)
            expansions.append(expansion)
            start += block.n
        return np.concatenate(positions), np.concatenate(expansions)


def _free_cache_bytes(cached_bytes: int) -> float:
    """Return the number of additional bytes that can be cached if the cache contains `cached_bytes`
    bytes.
    """
    return min(CACHE_BYTES - cached_bytes, CACHE_SHARE * available_memory())
