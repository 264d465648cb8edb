"""Encoded rows on the workers of a Dask cluster: functions are sent to the workers, sums and drawn
rows come back.

A *part* holds rows of one part of the data, on one worker. A *bucket* has the rows of one response
group and fold; a *block* is a chunk of one bucket of one part. A *future* is Dask's handle of a
value on a worker. A `Sample` has the codes (n, m), weights (n,), groups `y` (n,) or None, and marks
of missing values (n, m) or None, of rows in memory. `BlockCache.apply(function, block_key, block)`
returns ``function(block)``; it may cache a part of the work on a block. ``add_sums(total, term)``
adds numbers or arrays; a total of None is an empty sum.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bbl.errors import BBLTypeError
from bbl.memory import available_memory
from bbl.rows.sample import Sample, Sums
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
    from distributed import Client, Future

__all__ = [
    "ClusterSample",
    "CodeParts",
    "Part",
    "SharedSample",
    "active_client",
    "call",
    "calls",
    "n_threads",
    "remote_value",
]

# share of a worker's memory up to which results are cached; above it Dask begins to write to disk
CACHE_SHARE = 0.5
SUMS_PER_TASK = 8  # partial sums that one task adds; the client adds the last ones


class Part(dict[Bucket, Sample]):
    """The rows of a part, by bucket, with a cache of results of its blocks; copies of a part have
    an empty cache.
    """

    def __init__(self, rows: Mapping[Bucket, Sample]):
        super().__init__(rows)  # a Part is a dict of samples by bucket
        self.cache = BlockCache(_free_cache_bytes)

    def __reduce__(self) -> tuple:
        """Pickle the rows without the cache."""
        return Part, (dict(self),)


def active_client(client: object = None) -> Client | None:
    """Return `client`, or else the active Dask client, or else None; refuse an object that is no
    Dask client.
    """
    if client is not None:
        if not all(hasattr(client, name) for name in ("submit", "gather", "scheduler_info")):
            raise BBLTypeError(
                f"client must be a dask.distributed.Client, not {type(client).__name__}.",
                argument="client",
            )
        return cast("Client", client)
    if "distributed" not in sys.modules:  # then there is no active client
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None


def n_threads(client: Client) -> int:
    """Return the number of tasks that the workers of a client run at a time."""
    # n_workers=-1: of all workers; some versions of Dask list five by default
    return max(
        1,
        sum(
            worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
        ),
    )


def call(client: Client, function: Callable, *arguments: object) -> Future:
    """Submit ``function(*arguments)`` and return its future; Dask computes it again if its worker
    is lost.

    Large values, too, are sent as arguments: scattered values would be lost with their worker.
    """
    return calls(client, function, *([argument] for argument in arguments))[0]


def calls(client: Client, function: Callable, *columns: list) -> list[Future]:
    """Submit ``function(columns[0][k], columns[1][k], ...)`` for all k in one message; return the
    futures, by k.
    """
    # no warnings about large arguments, which are sent on purpose: see `call`
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        # not pure: equal arguments are computed again
        return client.map(function, *columns, pure=False)


def remote_value(client: Client, value: object) -> Future:
    """Return the future of a value that is sent to one worker, from which other workers get it."""
    return call(client, _identity, value)


@dataclass(eq=False)
class CodeParts(RowStore):
    """The parts of a data set on the workers of a cluster."""

    client: Client
    parts: list[Future]  # of `Part`
    # of each part: rows, sum of weights, whether weights are whole
    sizes: list[dict[Bucket, tuple[int, float, bool]]]
    n_levels: np.ndarray  # (m,); of each predictor
    dtype: np.dtype  # of codes
    weighted: bool  # whether weights may differ from 1
    masked: bool  # whether values may be missing
    chunk_rows: int = CHUNK_ROWS  # rows of a block
    passes: int = 0  # number of passes over the rows
    passed: Callable[[int], None] | None = None  # called with `passes` after each pass
    # results of `StoredSample.sums`
    sums: dict[tuple[Hashable, Bucket], Any] = field(default_factory=dict)
    buckets: dict[Bucket, BucketSize] = field(init=False)  # sizes over all parts

    def __post_init__(self) -> None:
        """Add up the sizes of the parts by bucket."""
        self.m = len(self.n_levels)
        self.buckets = {}
        for part_sizes in self.sizes:
            for bucket, size in part_sizes.items():
                self.buckets.setdefault(bucket, BucketSize()).add(*size)

    def finish(self) -> ClusterSample:
        """Return all rows."""
        return ClusterSample(self, tuple(sorted(self.buckets)))

    def sum_blocks(
        self, function: Callable, buckets: Sequence[Bucket], grouped: bool, per_bucket: bool = False
    ) -> Any:
        """Return the sum of ``function(block)`` over the blocks of `buckets`, by bucket if
        `per_bucket`.

        Blocks have a response if `grouped`. Sums are added in the order of the parts, a fixed
        number of them at a time, so that rounding depends neither on the number of workers nor on a
        lost worker.
        """
        arguments = remote_value(self.client, (function, tuple(buckets), grouped, per_bucket))
        sums = calls(self.client, _sum_part, self.parts, [arguments] * len(self.parts))
        while len(sums) > SUMS_PER_TASK:
            starts = range(0, len(sums), SUMS_PER_TASK)
            sums = [
                call(self.client, _add_parts, *sums[start : start + SUMS_PER_TASK])
                for start in starts
            ]
        return _add_parts(*self.client.gather(sums))

    def close(self) -> None:
        """Release the rows on the workers."""
        self.parts = []


@dataclass(frozen=True, eq=False)
class ClusterSample(StoredSample):
    """Encoded rows on the workers of a cluster.

    Attributes
    ----------
    file : CodeParts
        The parts, with the rows of all buckets.
    buckets : tuple of Bucket
        The buckets that are rows of this sample, in their order.
    grouped : bool
        Whether rows have a response; else they are one group.
    extra : Sample or None
        A few more rows in memory, of one group, that follow those of the buckets.
    """

    file: CodeParts

    remote = True

    @property
    def client(self) -> Client:
        """The Dask client."""
        return self.file.client

    @property
    def cluster_threads(self) -> int:
        """Number of tasks that the workers run at a time."""
        return n_threads(self.client)

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows, up to `size` at a time; the network transfers one bucket of a part at a
        time.
        """
        for bucket in self.buckets:
            for remote_part in self._parts_with(bucket):
                rows = self.client.gather(call(self.client, _get_bucket, remote_part, bucket))
                yield from (
                    _with_response(sample, bucket, self.grouped) for sample in rows.blocks(size)
                )
        if self.extra is not None:
            yield self.extra

    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks, computed on the cluster; `workers`
        is not used.
        """
        total = self.file.sum_blocks(function, self.buckets, self.grouped)
        self._count_pass()
        return total if self.extra is None else add_sums(total, function(self.extra))

    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows of the buckets, not of `extra`, at rising positions `index` in the order
        of `blocks`.
        """
        # by number of the part and by bucket: wanted positions among the rows of that bucket in
        # that part
        positions: dict[int, dict[Bucket, np.ndarray]] = {}
        for bucket, k, start, n in self._spans():
            # the wanted rows that the n rows from `start` on hold
            in_span = slice(np.searchsorted(index, start), np.searchsorted(index, start + n))
            positions.setdefault(k, {})[bucket] = index[in_span] - start
        selected = calls(
            self.client,
            _select_rows,
            [self.file.parts[k] for k in positions],
            list(positions.values()),
        )
        rows_of_part = dict(zip(positions, self.client.gather(selected), strict=True))
        blocks = [
            _with_response(rows_of_part[k][bucket], bucket, self.grouped)
            for bucket, k, _, _ in self._spans()
        ]
        return self._concatenate(blocks)

    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory with the client, so that each worker can hold them and fit a share
        of predictors.
        """
        return SharedSample(sample.codes, sample.weights, sample.y, sample.missing, self.client)

    def _spans(self) -> list[tuple[Bucket, int, int, int]]:
        """Return (bucket, part number, first position, number of rows) for each bucket of each part
        with rows of it.

        They are ordered by bucket, then part, as in `blocks`; positions are those among all rows.
        """
        spans = []
        start = 0
        for bucket in self.buckets:
            for k, part_sizes in enumerate(self.file.sizes):
                n_rows = part_sizes.get(bucket, (0,))[0]  # 0 if the part has no rows of the bucket
                if n_rows:
                    spans.append((bucket, k, start, n_rows))
                start += n_rows
        return spans

    def _parts_with(self, bucket: Bucket) -> list[Future]:
        """Return the futures of the parts with rows of a bucket."""
        return [
            remote
            for remote, sizes in zip(self.file.parts, self.file.sizes, strict=True)
            if bucket in sizes
        ]

    def _bucket_sums(
        self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket], workers: int
    ) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each of the `buckets`.

        The cluster computes it on all of its workers; `workers` is not used.
        """
        return self.file.sum_blocks(function, buckets, self.grouped, per_bucket=True)

    def _find_rare_rows(self, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the rising positions of rows with a rare level, given as pairs (predictor, its
        rare levels).
        """
        spans = self._spans()
        remote_levels = remote_value(self.client, rare_levels)
        parts = [self.file.parts[k] for _, k, *_ in spans]
        buckets = [bucket for bucket, *_ in spans]
        rare_rows = self.client.gather(
            calls(self.client, _find_rare, parts, buckets, [remote_levels] * len(spans))
        )
        positions = [
            start + span_rows for (_, _, start, _), span_rows in zip(spans, rare_rows, strict=True)
        ]
        # empty if there are no spans
        return np.concatenate([np.zeros(0, dtype=np.int64), *positions])


@dataclass(frozen=True)
class SharedSample(Sample):
    """Rows in memory, few enough for every worker of a cluster to hold all of them."""

    client: Client | None = None  # type: ignore[misc]  # a field where other samples in memory have None


# The functions from here on run on workers.


def _identity(value: object) -> object:
    """Return the value, which the call has brought to the worker."""
    return value


def _get_bucket(part: Part, bucket: Bucket) -> Sample:
    """Return the rows of a bucket of a part."""
    return part[bucket]


def _with_response(rows: Sample, bucket: Bucket, grouped: bool) -> Sample:
    """Return rows of a bucket, with its group as their response if `grouped`."""
    return replace(rows, y=np.full(rows.n, bucket[0], dtype=np.intp)) if grouped else rows


def _sum_part(
    part: Part, arguments: tuple[Callable[[Sample], Any], tuple[Bucket, ...], bool, bool]
) -> Any:
    """Return the sum over the blocks of a part; `arguments` and result are those of
    `CodeParts.sum_blocks`.
    """
    function, buckets, grouped, per_bucket = arguments
    bucket_sums: dict[Bucket, Any] = {}
    total = None
    for bucket in buckets:
        total = None if per_bucket else total  # each bucket begins with an empty sum
        # CHUNK_ROWS, the default of `CodeParts.chunk_rows`: block k, a key of the cache, must keep
        # its rows
        for k, block in enumerate(part[bucket].blocks(CHUNK_ROWS) if bucket in part else ()):
            rows = _with_response(block, bucket, grouped)
            total = add_sums(total, part.cache.apply(function, (bucket, k), rows))
        if per_bucket:
            bucket_sums[bucket] = total
    return bucket_sums if per_bucket else total


def _free_cache_bytes(cached_bytes: int) -> float:
    """Return the bytes that this worker may still cache.

    Argument `cached_bytes`, the bytes that it has cached, is not used: they are in the memory of
    the worker's process.
    """
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit  # bytes; None for no limit
    free = CACHE_SHARE * available_memory()
    return (
        free
        if limit is None
        else min(free, CACHE_SHARE * limit - worker.monitor.get_process_memory())
    )


def _add_parts(*sums: Any) -> Any:
    """Return the sum of results of `_sum_part`: all sums, or all dicts of sums by bucket. None is
    an empty sum.
    """
    if isinstance(sums[0], dict):
        return {bucket: _add_parts(*(part_sum[bucket] for part_sum in sums)) for bucket in sums[0]}
    total = None
    for part_sum in sums:
        total = total if part_sum is None else add_sums(total, part_sum)
    return total


def _select_rows(part: Part, positions: dict[Bucket, np.ndarray]) -> dict[Bucket, Sample]:
    """Return the rows at the `positions` in each bucket of a part, by bucket."""
    return {
        bucket: part[bucket].rows(bucket_positions)
        for bucket, bucket_positions in positions.items()
    }


def _find_rare(part: Part, bucket: Bucket, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return the positions of the rows of a bucket that have a rare level."""
    return np.flatnonzero(has_rare_level(part[bucket], rare_levels))
