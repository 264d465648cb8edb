"""CodeFile and FileSample: encoded rows that are too many for memory, in a temporary file."""

from __future__ import annotations

import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.errors import DataError
from bbl.parallel import run_tasks
from bbl.rows.sample import Rows, Sample, Sums
from bbl.rows.stored import CHUNK_ROWS, Bucket, StoredSample, add_sums

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["CodeFile", "FileSample", "Rows"]

BUFFER = 2**25  # bytes of rows that wait to be written, all buckets together
MIN_CHUNK_ROWS = 1024  # however many buckets share the buffer
REMEDY = "Point the environment variable TMPDIR to a folder with room for them, or use fewer predictors."


@dataclass
class _BucketChunks:
    """The rows of a bucket: chunks of equal length in the file, but for the last; and rows that wait to be written."""

    offsets: list[int] = field(default_factory=list)  # of each chunk in the file, in bytes
    n: int = 0
    total: float = 0.0
    whole: bool = True
    waiting: list[Sample] = field(default_factory=list)
    n_waiting: int = 0


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

    def __init__(self, m: int, dtype: DTypeLike, weighted: bool = False, masked: bool = False, buckets: int = 1):
        self.m, self.dtype, self.weighted, self.masked = m, np.dtype(dtype), weighted, masked
        self.mask_bytes = (m + 7) // 8 if masked else 0
        self.row_bytes = m * self.dtype.itemsize + 8 * weighted + self.mask_bytes
        self.chunk_rows = int(np.clip(BUFFER // max(1, self.row_bytes * buckets), MIN_CHUNK_ROWS, CHUNK_ROWS))
        self.buckets: dict[Bucket, _BucketChunks] = {}
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
        if n * self.row_bytes > free:
            raise DataError(
                f"the codes of {n:,} rows need {n * self.row_bytes / 2**30:.1f} GiB in {folder!r}, where "
                f"{free / 2**30:.1f} GiB are free. {REMEDY}",
                argument="data",
            )

    def append(self, bucket: Bucket, rows: Sample) -> None:
        """Put rows at the end of a bucket; their response is not looked at."""
        chunks = self.buckets.setdefault(bucket, _BucketChunks())
        chunks.waiting.append(rows)
        chunks.n_waiting += rows.n
        chunks.n += rows.n
        chunks.total += rows.total
        chunks.whole = chunks.whole and rows.whole
        while chunks.n_waiting >= self.chunk_rows:
            self._write(chunks, self.chunk_rows)

    def finish(self) -> FileSample:
        """Write what waits, and return all rows."""
        for chunks in self.buckets.values():
            if chunks.n_waiting:
                self._write(chunks, chunks.n_waiting)
        return FileSample(self, tuple(sorted(self.buckets)))

    def _write(self, chunks: _BucketChunks, count: int) -> None:
        codes = np.concatenate([rows.codes for rows in chunks.waiting])
        arrays = [np.ascontiguousarray(codes[:count], dtype=self.dtype)]
        remainder = Sample(codes[count:], np.empty(0))
        if self.weighted:
            weights = np.concatenate([rows.weights for rows in chunks.waiting])
            arrays.append(weights[:count])
            remainder = replace(remainder, weights=weights[count:])
        if self.masked:
            blank = np.zeros(codes.shape, dtype=bool)
            first = 0
            for rows in chunks.waiting:
                if rows.missing is not None:
                    blank[first : first + rows.n] = rows.missing
                first += rows.n
            arrays.append(np.packbits(blank[:count], axis=1))
            remainder = replace(remainder, missing=blank[count:])
        chunks.waiting, chunks.n_waiting = ([remainder] if remainder.n else []), remainder.n
        chunks.offsets.append(self.size)
        for array in arrays:
            self._put(array.reshape(-1).view(np.uint8))

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
        """Fill `out` from the file; pages are not mapped, so memory does not grow with the rows that were read."""
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
        bits = np.zeros((n, self.mask_bytes), dtype=np.uint8)
        chunks, done, itemsize = self.buckets[bucket], 0, self.dtype.itemsize
        while done < n:
            k, skip = divmod(first + done, self.chunk_rows)
            size = min(self.chunk_rows, chunks.n - k * self.chunk_rows)
            target = slice(done, min(n, done + size - skip))
            at = chunks.offsets[k]
            self._get(codes[target], at + skip * self.m * itemsize)
            at += size * self.m * itemsize
            if self.weighted:
                self._get(weights[target], at + 8 * skip)
                at += 8 * size
            if self.masked:
                self._get(bits[target], at + skip * self.mask_bytes)
            done = target.stop
        missing = np.unpackbits(bits, axis=1, count=self.m).view(bool) if bits.any() else None
        return Sample(codes, weights, None if y is None else np.full(n, y, dtype=np.intp), missing)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


@dataclass(frozen=True, eq=False)
class FileSample(StoredSample):
    """Encoded rows in a `CodeFile`."""

    file: CodeFile

    @property
    def cluster_threads(self) -> int:
        """0: there is no cluster."""
        return 0

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows, up to `size` of them at a time, each block of one group and fold."""
        for bucket in self.buckets:
            y, n = bucket[0] if self.grouped else None, self.file.buckets[bucket].n
            for first in range(0, n, size):
                yield self.file.read(bucket, first, min(n, first + size), y)
        if self.extra is not None:
            yield self.extra

    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks, in their order, by a pass that threads share."""
        running_sum: Any = None
        blocks = self.blocks(self.file.chunk_rows)
        while block_batch := list(islice(blocks, workers)):
            for block_sum in run_tasks(function, [(block,) for block in block_batch], workers, shared=True):
                running_sum = add_sums(running_sum, block_sum)
        self._count_pass()
        return running_sum

    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows at rising positions `index` in the order of `blocks`."""
        blocks, first = [], 0
        for bucket in self.buckets:
            n = self.file.buckets[bucket].n
            positions = index[np.searchsorted(index, first) : np.searchsorted(index, first + n)] - first
            y = bucket[0] if self.grouped else None
            for k in np.unique(positions // self.file.chunk_rows):
                start = int(k) * self.file.chunk_rows
                here = positions[positions // self.file.chunk_rows == k] - start
                block = self.file.read(bucket, start, min(n, start + self.file.chunk_rows), y)
                blocks.append(block.rows(here))
            first += n
        return self._concatenated(blocks)

    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory as they are."""
        return sample

    def _bucket_sums(self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket]) -> dict[Bucket, Sums]:
        out: dict[Bucket, Any] = dict.fromkeys(buckets)
        for bucket in buckets:
            for block in replace(self, buckets=(bucket,), extra=None).blocks(self.file.chunk_rows):
                out[bucket] = add_sums(out[bucket], function(block))
        return out

    def _rows_with(self, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the rising positions of rows with a rare level; pairs of predictor and its levels say which."""
        row_positions, first = [np.zeros(0, dtype=np.int64)], 0
        for block in self.blocks(self.file.chunk_rows):
            is_rare = np.zeros(block.n, dtype=bool)
            for i, levels in rare_levels:
                is_rare |= np.isin(block.codes[:, i], levels)
            row_positions.append(first + np.flatnonzero(is_rare))
            first += block.n
        return np.concatenate(row_positions)
