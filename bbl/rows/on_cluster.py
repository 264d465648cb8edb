"""Encoded rows on the workers of a Dask cluster, which sum over rows and select rows.

A *part* is a subset of the data that is stored on one worker. A *bucket* contains the rows of one
response group and fold; a *block* contains some of the rows of a bucket in one part. A *future* is
Dask's reference to a value on a worker.
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
from bbl.rows.sample import Sample, Sums, code_dtype
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

# proportion of a worker's memory for cached results, above which Dask starts to spill data to disk
CACHE_SHARE = 0.5
# number of partial sums that are added in one task; the client adds the last ones
SUMS_PER_TASK = 8


class Part(dict[Bucket, Sample]):
    """The rows of a part by bucket, with cached results for its blocks.

    A copy starts with an empty cache.
    """

    def __init__(self, rows: Mapping[Bucket, Sample]):
        super().__init__(rows)  # a Part is a dict of samples by bucket
        self.cache = BlockCache(_free_cache_bytes)

    def __reduce__(self) -> tuple:
        """Pickle the rows without the cache."""
        return Part, (dict(self),)


def active_client(client: object = None) -> Client | None:
    """Return `client` if it is given, otherwise the active Dask client, or None if there is none.

    Raise an error if `client` is not a Dask client.
    """
    if client is not None:
        if not all(hasattr(client, name) for name in ("submit", "gather", "scheduler_info")):
            raise BBLTypeError(
                f"client must be a dask.distributed.Client, not {type(client).__name__}.",
                argument="client",
            )
        return cast("Client", client)
    if "distributed" not in sys.modules:  # an active client cannot exist
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None


def n_threads(client: Client) -> int:
    """Return the number of tasks that the workers of a client can run simultaneously."""
    # n_workers=-1 lists all workers; some versions of Dask list five by default
    return max(
        1,
        sum(
            worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()
        ),
    )


def call(client: Client, function: Callable, *arguments: object) -> Future:
    """Submit ``function(*arguments)`` and return its future; Dask computes it again if its worker
    is lost.

    Large values are also sent as arguments, because scattered values are lost if their worker is
    lost.
    """
    return calls(client, function, *([argument] for argument in arguments))[0]


def calls(client: Client, function: Callable, *columns: list) -> list[Future]:
    """Submit ``function(columns[0][k], columns[1][k], ...)`` for all k in one message, and return
    the futures in the order of k.
    """
    # suppress warnings about large arguments, which are intended: see `call`
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        # not pure: the function is called again for equal arguments
        return client.map(function, *columns, pure=False)


def remote_value(client: Client, value: object) -> Future:
    """Return the future of a value that is sent to one worker; other workers fetch it from
    there.
    """
    return call(client, _identity, value)


@dataclass(eq=False)
class CodeParts(RowStore):
    """The parts of a data set on the workers of a cluster."""

    client: Client
    parts: list[Future]  # futures of `Part`
    # for each part: number of rows, total weight, and whether weights are integers
    sizes: list[dict[Bucket, tuple[int, float, bool]]]
    n_levels: np.ndarray  # (m,): number of levels of each predictor
    dtype: np.dtype  # type of the codes
    weighted: bool  # whether weights may differ from 1
    masked: bool  # whether values may be missing
    chunk_rows: int = CHUNK_ROWS  # maximum number of rows in a block
    passes: int = 0  # number of passes over the rows so far
    passed: Callable[[int], None] | None = None  # called with `passes` after each pass
    # cached results of `StoredSample.sums`
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

    def nominal(self, is_number: np.ndarray, n_levels: np.ndarray) -> CodeParts:
        """Return the parts with integer codes; see `Rows.nominal`."""
        arguments = remote_value(self.client, (is_number, n_levels))
        parts = calls(self.client, _nominal_part, self.parts, [arguments] * len(self.parts))
        return replace(self, parts=parts, dtype=code_dtype(n_levels), passes=0, sums={})

    def only(self, predictors: np.ndarray) -> CodeParts:
        """Return the parts with only these predictors."""
        chosen = remote_value(self.client, predictors)
        parts = calls(self.client, _part_of, self.parts, [chosen] * len(self.parts))
        return replace(self, parts=parts, n_levels=self.n_levels[predictors], passes=0, sums={})

    def sum_blocks(
        self, function: Callable, buckets: Sequence[Bucket], grouped: bool, per_bucket: bool = False
    ) -> Any:
        """Return the sum of ``function(block)`` over the blocks of `buckets`, or one sum for each
        bucket if `per_bucket`.

        The blocks have a response if `grouped`. A fixed number of sums is added at a time, in the
        order of the parts, so rounding does not depend on the number of workers or on lost workers.
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
        """Delete the rows on the workers."""
        self.parts = []


@dataclass(frozen=True, eq=False)
class ClusterSample(StoredSample):
    """Encoded rows on the workers of a cluster.

    Attributes
    ----------
    file : CodeParts
        The parts, with the rows of all buckets.
    buckets : tuple of Bucket
        The buckets in this sample, in order.
    grouped : bool
        Whether rows have a response. If False, they form a single group.
    extra : Sample or None
        A few additional rows of one group, which are in memory and follow the rows of the buckets.
    """

    file: CodeParts

    remote = True

    @property
    def client(self) -> Client:
        """The Dask client."""
        return self.file.client

    @property
    def cluster_threads(self) -> int:
        """Number of tasks that the workers can run simultaneously."""
        return n_threads(self.client)

    def blocks(self, size: int = 4096) -> Iterator[Sample]:
        """Yield the rows, up to `size` at a time; one bucket of a part is transferred at a time."""
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
        is ignored.
        """
        total = self.file.sum_blocks(function, self.buckets, self.grouped)
        self._count_pass()
        return total if self.extra is None else add_sums(total, function(self.extra))

    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows of the buckets, without `extra`, at increasing positions `index` in the
        order of `blocks`.
        """
        # by part number and bucket: requested positions among the rows of that bucket in that part
        positions: dict[int, dict[Bucket, np.ndarray]] = {}
        for bucket, k, start, n in self._spans():
            # the requested rows among the n rows that begin at `start`
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
        """Return rows in memory, together with the client.

        Each worker can then keep a copy of the rows and fit some of the predictors.
        """
        return SharedSample(sample.codes, sample.weights, sample.y, sample.missing, self.client)

    def _spans(self) -> list[tuple[Bucket, int, int, int]]:
        """Return (bucket, part number, first position, number of rows) for each nonempty bucket of
        each part.

        The order is by bucket and then by part, as in `blocks`; positions refer to all rows.
        """
        spans = []
        start = 0
        for bucket in self.buckets:
            for k, part_sizes in enumerate(self.file.sizes):
                n_rows = part_sizes.get(bucket, (0,))[0]  # 0 if the part has no rows in the bucket
                if n_rows:
                    spans.append((bucket, k, start, n_rows))
                start += n_rows
        return spans

    def _parts_with(self, bucket: Bucket) -> list[Future]:
        """Return the futures of those parts that have rows in a bucket."""
        return [
            remote
            for remote, sizes in zip(self.file.parts, self.file.sizes, strict=True)
            if bucket in sizes
        ]

    def _bucket_sums(
        self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket], workers: int
    ) -> dict[Bucket, Sums]:
        """Return the sum of ``function(block)`` over the blocks of each bucket in `buckets`.

        All workers of the cluster are used; `workers` is ignored.
        """
        return self.file.sum_blocks(function, buckets, self.grouped, per_bucket=True)

    def _find_certain_rows(self, certain: CertainRows) -> np.ndarray:
        """Return the increasing positions of the rows that are always drawn."""
        # empty without spans
        return np.concatenate(
            [np.zeros(0, dtype=np.int64), *self._call_on_spans(_find_certain, certain)]
        )

    def _draw_at_rates(self, rates: DrawRates) -> tuple[np.ndarray, np.ndarray]:
        """Return the increasing positions of rows drawn at these rates, and the inverse of each
        row's probability.
        """
        draws = self._call_on_spans(_draw, rates)
        # empty without spans
        return (
            np.concatenate([np.zeros(0, dtype=np.int64), *(positions for positions, _ in draws)]),
            np.concatenate([np.zeros(0), *(expansion for _, expansion in draws)]),
        )

    def _call_on_spans(self, function: Callable, argument: object) -> list[Any]:
        """Return ``function(part, bucket, first, argument)`` for each span, computed by the
        workers.

        `first` is the position of the span's first row among all rows.
        """
        spans = self._spans()
        parts = [self.file.parts[k] for _, k, *_ in spans]
        buckets = [bucket for bucket, *_ in spans]
        starts = [start for _, _, start, _ in spans]
        arguments = [remote_value(self.client, argument)] * len(spans)
        results: list[Any] = self.client.gather(
            calls(self.client, function, parts, buckets, starts, arguments)
        )
        return results


@dataclass(frozen=True)
class SharedSample(Sample):
    """Rows in memory that are small enough for each worker of a cluster to keep a copy."""

    client: Client | None = None  # type: ignore[misc]  # a field where other samples in memory have None


# The following functions run on workers.


def _identity(value: object) -> object:
    """Return the value, which was transferred to the worker by the call."""
    return value


def _get_bucket(part: Part, bucket: Bucket) -> Sample:
    """Return the rows of one bucket in a part."""
    return part[bucket]


def _with_response(rows: Sample, bucket: Bucket, grouped: bool) -> Sample:
    """Return the rows of a bucket, with the group of the bucket as response if `grouped`."""
    return replace(rows, y=np.full(rows.n, bucket[0], dtype=np.intp)) if grouped else rows


def _sum_part(
    part: Part, arguments: tuple[Callable[[Sample], Any], tuple[Bucket, ...], bool, bool]
) -> Any:
    """Return the sum over the blocks of a part; see `CodeParts.sum_blocks`."""
    function, buckets, grouped, per_bucket = arguments
    bucket_sums: dict[Bucket, Any] = {}
    total = None
    for bucket in buckets:
        total = None if per_bucket else total  # each bucket starts with an empty sum
        # always CHUNK_ROWS, the default of `CodeParts.chunk_rows`: the number k of a block is a
        # cache key, so the block must always contain the same rows
        for k, block in enumerate(part[bucket].blocks(CHUNK_ROWS) if bucket in part else ()):
            rows = _with_response(block, bucket, grouped)
            total = add_sums(total, part.cache.apply(function, (bucket, k), rows))
        if per_bucket:
            bucket_sums[bucket] = total
    return bucket_sums if per_bucket else total


def _free_cache_bytes(cached_bytes: int) -> float:
    """Return the number of bytes that this worker can still use for its cache.

    `cached_bytes`, the number of bytes in the cache, is not used because the cache is part of the
    memory of the worker's process.
    """
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit  # in bytes; None without a limit
    free = CACHE_SHARE * available_memory()
    return (
        free
        if limit is None
        else min(free, CACHE_SHARE * limit - worker.monitor.get_process_memory())
    )


def _add_parts(*sums: Any) -> Any:
    """Add up results of `_sum_part`, which are sums or dicts of sums by bucket; None is an empty
    sum.
    """
    if isinstance(sums[0], dict):
        return {bucket: _add_parts(*(part_sum[bucket] for part_sum in sums)) for bucket in sums[0]}
    total = None
    for part_sum in sums:
        total = total if part_sum is None else add_sums(total, part_sum)
    return total


def _select_rows(part: Part, positions: dict[Bucket, np.ndarray]) -> dict[Bucket, Sample]:
    """Return the rows at `positions` in each bucket of a part, by bucket."""
    return {
        bucket: part[bucket].rows(bucket_positions)
        for bucket, bucket_positions in positions.items()
    }


def _nominal_part(part: Part, arguments: tuple[np.ndarray, np.ndarray]) -> Part:
    """Return a part with integer codes; `arguments` are those of `Sample.nominal`."""
    return Part({bucket: rows.nominal(*arguments) for bucket, rows in part.items()})


def _part_of(part: Part, predictors: np.ndarray) -> Part:
    """Return a part with only these predictors."""
    return Part({bucket: rows.only(predictors) for bucket, rows in part.items()})


def _find_certain(part: Part, bucket: Bucket, first: int, certain: CertainRows) -> np.ndarray:
    """Return the positions of those rows of a bucket that are always drawn."""
    return first + np.flatnonzero(certain.among(part[bucket]))


def _draw(
    part: Part, bucket: Bucket, first: int, rates: DrawRates
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the drawn rows of a bucket and the inverse of their
    probabilities.
    """
    drawn, expansion = rates.draw(part[bucket], first)
    return first + drawn, expansion
