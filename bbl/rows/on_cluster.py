"""Rows whose codes stay on the workers of a Dask cluster: functions travel there, and sums and drawn rows come back."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.errors import BBLTypeError
from bbl.memory import available_memory
from bbl.rows.sample import Sample, Sums
from bbl.rows.stored import CHUNK_ROWS, Bucket, StoredSample, add_sums

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = [
    "ClusterSample",
    "CodeParts",
    "Part",
    "SharedSample",
    "Staged",
    "active_client",
    "call",
    "calls",
    "remote_value",
    "n_threads",
]

CACHE_SHARE = 0.5  # of a worker's memory that may be full of what is kept; above it Dask begins to write to disk
SUMS_PER_TASK = 8  # sums that are added by one task, and the last ones by the client


class Part(dict[Bucket, Sample]):
    """The rows of a part of the data on one worker, and cached results of their blocks, which copies do not have."""

    def __init__(self, rows: Mapping[Bucket, Sample]):
        super().__init__(rows)
        self.cached: dict[Hashable, Any] = {}

    def __reduce__(self) -> tuple:
        return Part, (dict(self),)

    def cached_result(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, an object with ``nbytes``, or has returned before."""
        result = self.cached.get(key)
        if result is None:
            result = make()
            if result.nbytes <= _room():
                self.cached[key] = result
        return result


@dataclass(frozen=True)
class Staged:
    """A function of blocks whose first stage is the same in every pass; a worker caches the result of that stage.

    Attributes
    ----------
    key : hashable
        Of all that the first stage depends on beside the block.
    first : callable
        From a block to an object with ``nbytes``.
    then : callable
        From that object and the block to the sums.
    """

    key: Hashable
    first: Callable[[Sample], Any]
    then: Callable[[Any, Sample], Any]

    def __call__(self, block: Sample) -> Any:
        return self.then(self.first(block), block)


def active_client(client: Any = None) -> Client | None:
    """Return the Dask client that is given or active, or None.

    Raises
    ------
    BBLTypeError
        If `client` is something else.
    """
    if client is not None:
        if not all(hasattr(client, name) for name in ("submit", "gather", "scheduler_info")):
            raise BBLTypeError(
                f"client must be a dask.distributed.Client, not {type(client).__name__}.", argument="client"
            )
        return client
    if "distributed" not in sys.modules:  # nobody has made one
        return None
    from distributed import default_client

    try:
        return default_client()
    except ValueError:
        return None


def n_threads(client: Client) -> int:
    """Return how many tasks the workers run at a time."""
    return max(1, sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()))


def call(client: Client, function: Callable, *arguments: object) -> Future:
    """Return the future of ``function(*arguments)``; it is computed again if its worker is lost.

    Parameters travel as arguments of tasks, however large: what is scattered is lost with its worker.
    """
    return calls(client, function, *([one] for one in arguments))[0]


def calls(client: Client, function: Callable, *columns: list) -> list[Future]:
    """Return the futures of `call` with each row of arguments, given by columns; the scheduler gets one message."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        return client.map(function, *columns, pure=False)


def remote_value(client: Client, value: object) -> Future:
    """Return the future of a value, which goes to one worker and from there to those that need it."""
    return call(client, _same, value)


@dataclass(eq=False)
class CodeParts:
    """Codes of the parts of a data set, each on some worker: what `bbl.rows.on_disk.CodeFile` is to a file.

    Attributes
    ----------
    client : dask.distributed.Client
    parts : list of futures of Part
    sizes : list of dict of bucket to (rows, sum of weights, whether all weights are whole)
        Of each part.
    n_levels : ndarray, shape (m,)
    dtype : numpy dtype
    weighted, masked : bool
    """

    client: Client
    parts: list[Future]
    sizes: list[dict[Bucket, tuple[int, float, bool]]]
    n_levels: np.ndarray
    dtype: np.dtype
    weighted: bool
    masked: bool
    chunk_rows: int = CHUNK_ROWS
    passes: int = 0
    passed: Callable[[int], None] | None = None
    sums: dict[tuple[Hashable, Bucket], Any] = field(default_factory=dict)
    buckets: dict[Bucket, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = {}
        for part_sizes in self.sizes:
            for bucket, size in part_sizes.items():
                self.buckets.setdefault(bucket, _Size()).add(*size)

    @property
    def m(self) -> int:
        """Number of predictors."""
        return len(self.n_levels)

    def finish(self) -> ClusterSample:
        """Return all rows."""
        return ClusterSample(self, tuple(sorted(self.buckets)))

    def over(self, function: Callable, buckets: Sequence[Bucket], grouped: bool, each: bool = False) -> Any:
        """Return the sum of ``function(block)`` over the blocks of some buckets, or with `each` a dict of their sums.

        Sums are added in the order of the parts, a fixed number of them at a time, so the bits depend neither on the
        number of workers nor on which of them is lost.
        """
        remote_arguments = remote_value(self.client, (function, tuple(buckets), grouped, each))
        sums = calls(self.client, _part_sums, self.parts, [remote_arguments] * len(self.parts))
        while len(sums) > SUMS_PER_TASK:
            sums = [call(self.client, _add, *sums[k : k + SUMS_PER_TASK]) for k in range(0, len(sums), SUMS_PER_TASK)]
        return _add(*self.client.gather(sums))

    def close(self) -> None:
        """Let the workers forget the rows."""
        self.parts = []


@dataclass
class _Size:
    """Rows and weight of a bucket, all parts together."""

    n: int = 0
    total: float = 0.0
    whole: bool = True

    def add(self, n: int, total: float, whole: bool) -> None:
        """Add those of a part."""
        self.n, self.total, self.whole = self.n + n, self.total + total, self.whole and whole


@dataclass(frozen=True, eq=False)
class ClusterSample(StoredSample):
    """Encoded rows on the workers of a cluster."""

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
        """Yield the rows, up to `size` of them at a time; they come over the network, a bucket of a part at a time."""
        for bucket in self.buckets:
            for remote_part in self._parts_with(bucket):
                rows = self.client.gather(call(self.client, _bucket_of, remote_part, bucket))
                yield from (_grouped(sample, bucket, self.grouped) for sample in rows.blocks(size))
        if self.extra is not None:
            yield self.extra

    def summed(self, function: Callable[[Sample], Sums], workers: int = 1) -> Sums:
        """Return the sum of ``function(block)`` over all blocks, computed where they are."""
        total = self.file.over(function, self.buckets, self.grouped)
        self._count_pass()
        return total if self.extra is None else add_sums(total, function(self.extra))

    def rows(self, index: np.ndarray) -> Sample:
        """Return the rows at rising positions `index` in the order of `blocks`."""
        positions_in: dict[int, dict[Bucket, np.ndarray]] = {}  # of each part and bucket
        for bucket, k, first, n in self._spans():
            inside = slice(np.searchsorted(index, first), np.searchsorted(index, first + n))
            positions_in.setdefault(k, {})[bucket] = index[inside] - first
        drawn = calls(self.client, _select, [self.file.parts[k] for k in positions_in], list(positions_in.values()))
        rows_of_part = dict(zip(positions_in, self.client.gather(drawn), strict=True))
        blocks = [_grouped(rows_of_part[k][bucket], bucket, self.grouped) for bucket, k, _, _ in self._spans()]
        return self._concatenated(blocks)

    def spread(self, sample: Sample) -> Sample:
        """Return rows in memory that all workers shall have, to share the predictors among them."""
        return SharedSample(sample.codes, sample.weights, sample.y, sample.missing, self.client)

    def _spans(self) -> list[tuple[Bucket, int, int, int]]:
        """Return bucket, part, first position and number of rows, in the order of `blocks`."""
        out, first = [], 0
        for bucket in self.buckets:
            for k, part_sizes in enumerate(self.file.sizes):
                n = part_sizes.get(bucket, (0,))[0]
                if n:
                    out.append((bucket, k, first, n))
                first += n
        return out

    def _parts_with(self, bucket: Bucket) -> list[Future]:
        """Return the futures of the parts that have rows of a bucket."""
        return [remote for remote, sizes in zip(self.file.parts, self.file.sizes, strict=True) if bucket in sizes]

    def _bucket_sums(self, function: Callable[[Sample], Sums], buckets: Sequence[Bucket]) -> dict[Bucket, Sums]:
        return self.file.over(function, buckets, self.grouped, each=True)

    def _rows_with(self, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
        """Return the rising positions of rows with a rare level; pairs of predictor and its levels say which."""
        spans, remote_levels = self._spans(), remote_value(self.client, rare_levels)
        parts, buckets = [self.file.parts[k] for _, k, *_ in spans], [bucket for bucket, *_ in spans]
        rare_rows = self.client.gather(calls(self.client, _rare_in, parts, buckets, [remote_levels] * len(spans)))
        positions = [first + part_rows for (_, _, first, _), part_rows in zip(spans, rare_rows, strict=True)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *positions])


@dataclass(frozen=True)
class SharedSample(Sample):
    """Rows in memory, few enough for every worker of a cluster to have them all."""

    client: Client | None = None  # type: ignore[misc]  # a field where other samples in memory have None


# what runs on workers


def _same(value: Any) -> Any:
    return value


def _bucket_of(part: Part, bucket: Bucket) -> Sample:
    return part[bucket]


def _grouped(rows: Sample, bucket: Bucket, grouped: bool) -> Sample:
    return replace(rows, y=np.full(rows.n, bucket[0], dtype=np.intp)) if grouped else rows


def _part_sums(part: Part, arguments: tuple) -> Any:
    """Return the sum over the blocks of a part, or a dict of those of each bucket."""
    function, buckets, grouped, each = arguments
    running_sum: Any = {} if each else None
    for bucket in buckets:
        bucket_sum = None if each else running_sum
        for k, block in enumerate(part[bucket].blocks(CHUNK_ROWS) if bucket in part else ()):
            rows = _grouped(block, bucket, grouped)
            if isinstance(function, Staged):
                first = part.cached_result((function.key, bucket, k), partial(function.first, rows))
                bucket_sum = add_sums(bucket_sum, function.then(first, rows))
            else:
                bucket_sum = add_sums(bucket_sum, function(rows))
        if each:
            running_sum[bucket] = bucket_sum
        else:
            running_sum = bucket_sum
    return running_sum


def _room() -> float:
    """Return the bytes that this worker may yet keep."""
    from distributed import get_worker

    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    free = CACHE_SHARE * available_memory()
    return free if limit is None else min(free, CACHE_SHARE * limit - worker.monitor.get_process_memory())


def _add(*sums: Any) -> Any:
    """Return the sum of what `_part_sums` returned."""
    if isinstance(sums[0], dict):
        return {bucket: _add(*(part_sum[bucket] for part_sum in sums)) for bucket in sums[0]}
    running_sum = None
    for part_sum in sums:
        running_sum = running_sum if part_sum is None else add_sums(running_sum, part_sum)
    return running_sum


def _select(part: Part, wanted: dict[Bucket, np.ndarray]) -> dict[Bucket, Sample]:
    return {bucket: part[bucket].rows(at) for bucket, at in wanted.items()}


def _rare_in(part: Part, bucket: Bucket, rare_levels: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """Return the positions of the rows of a bucket that have a rare level."""
    rows = part[bucket]
    is_rare = np.zeros(rows.n, dtype=bool)
    for i, levels in rare_levels:
        is_rare |= np.isin(rows.codes[:, i], levels)
    return np.flatnonzero(is_rare)
