"""A source read by the workers of a Dask cluster, each part once: codes stay on the worker that made them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.design import Design
from bbl.design.streams.passes import Reader, Seen, Used, encode_rows, look
from bbl.design.streams.source import Source
from bbl.errors import OptionError
from bbl.rows.dealing import Dealer, Sink, StoredFolds, TableSink, make_sink
from bbl.rows.on_cluster import ClusterSample, CodeParts, Part, active_client, calls, remote_value
from bbl.rows.sample import Sample, code_dtype, concatenate
from bbl.rows.stored import Bucket

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["OnCluster", "passes"]


def passes(source: Source | None, client: Client | None) -> OnCluster | None:
    """Return who makes the passes over a source: the workers of a cluster, or None for this process.

    A Dask DataFrame goes to the client that is active, other data that have parts to one that is given: their files
    have to be where the workers can read them.

    Raises
    ------
    OptionError
        If a client is given for data that have no parts.
    """
    dask_client = active_client(client)
    if client is not None and (source is None or source.parts is None):
        problem = "tables in memory are not" if source is None else f"{source.text} cannot be"
        raise OptionError(
            f"client= is for data that workers read in parts, and {problem} read so. Give a Dask DataFrame, Parquet "
            "files or a pyarrow Dataset; folds of tables in memory go to a cluster by joblib.parallel_config('dask').",
            argument="client",
        )
    if dask_client is None or source is None or source.parts is None:
        return None
    return OnCluster(dask_client) if client is not None or source.distributed else None


@dataclass
class OnCluster:
    """Makes the passes of `encode_source` on the workers of a client; what the first reads they keep for the second."""

    client: Client
    seen: list[Seen] = field(default_factory=list)
    read: list[Future] = field(default_factory=list)

    def look(self, reader: Reader) -> Seen:
        """Make the first pass: each part by itself, then merged in their order."""
        names = [*reader.terms.columns, *([] if reader.weights is None else [reader.weights])]
        assert reader.source.parts is not None  # noqa: S101  # checked by passes()
        parts = reader.source.parts(list(dict.fromkeys(names)), self.client)
        remote_reader = remote_value(self.client, _without_source(reader))
        self.read = calls(self.client, _look, [remote_reader] * len(parts), *map(list, zip(*parts, strict=True)))
        self.seen = self.client.gather(calls(self.client, _seen, self.read))
        merged_values = reduce(_joined, self.seen[1:], _copy(self.seen[0]))
        if reader.step is not None:
            reader.step(1.0, f"pass 1, {merged_values.n:,} rows")
        return merged_values

    def make_sink(self, n: int, n_levels: np.ndarray, K: int, nfold: int, weighted: bool, masked: bool) -> Sink:
        """Return where rows go, as `bbl.rows.dealing.make_sink`: few states to a table, others stay on the workers."""

        def on_workers(*_: object) -> ClusterSink:
            return ClusterSink(self.client, n_levels, weighted, masked)

        return make_sink(n, n_levels, K, nfold, weighted, masked, on_workers)

    def encode_rows(self, reader: Reader, design: Design, dealer: Dealer | None, sink: Any) -> int:
        """Make the second pass; return how many rows there were."""
        dealers = [None] * len(self.seen) if dealer is None else dealer.for_parts(*self._sizes(design))
        table = sink if isinstance(sink, TableSink) else None
        remote_arguments = remote_value(self.client, (_without_source(reader), design, table))
        parts = calls(self.client, _encode, [remote_arguments] * len(self.read), dealers, self.read)
        self.read = []
        if isinstance(sink, TableSink):
            encoded_parts = self.client.gather(parts)
            for _, counts in encoded_parts:
                sink.counts += counts
            return sum(n for n, _ in encoded_parts)
        sink.parts = parts
        sink.sizes = self.client.gather(calls(self.client, _size, parts))
        return sum(n for part_sizes in sink.sizes for n, _, _ in part_sizes.values())

    def _sizes(self, design: Design) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return rows and weight (K,) of each group in each part."""
        if not design.classes:
            return [np.array([float(part_seen.n)]) for part_seen in self.seen], [
                np.array([part_seen.total]) for part_seen in self.seen
            ]
        level_weights = [
            part_seen.columns[design.response.name].by_level(design.response, "data", True) for part_seen in self.seen
        ]
        return [rows for rows, _ in level_weights], [totals for _, totals in level_weights]


@dataclass
class ClusterSink:
    """Rows that stay on their workers."""

    client: Client
    n_levels: np.ndarray
    weighted: bool
    masked: bool
    parts: list[Future] = field(default_factory=list)
    sizes: list[dict] = field(default_factory=list)

    def finish(self, nfold: int) -> tuple[ClusterSample, StoredFolds | None]:
        """Return all rows, and their folds."""
        dtype = code_dtype(self.n_levels)
        file = CodeParts(self.client, self.parts, self.sizes, self.n_levels, dtype, self.weighted, self.masked)
        return file.finish(), StoredFolds(nfold) if nfold else None

    def close(self) -> None:
        """Let the workers forget the rows."""
        self.parts = []


@dataclass
class _PartSink:
    """Rows of a part on their worker."""

    buckets: dict[Bucket, list[Sample]] = field(default_factory=dict)

    def put(self, y: int, f: int, rows: Sample) -> None:
        self.buckets.setdefault((y, f), []).append(rows)

    def finish(self) -> Part:
        return Part({bucket: concatenate(chunks) for bucket, chunks in self.buckets.items()})


def _without_source(reader: Reader) -> Reader:
    """Return a reader without its source, for workers, which have their own sources."""
    return replace(reader, source=Source(reader.source.columns, iter, ""), step=None)


# what runs on workers


def _look(reader: Reader, make: Callable, *source: Any) -> tuple[Seen, list[Used]]:
    used_batches: list[Used] = []
    return look(replace(reader, source=make(*source)), used_batches), used_batches


def _seen(first_pass: tuple[Seen, list[Used]]) -> Seen:
    return first_pass[0]


def _encode(arguments: tuple, dealer: Dealer | None, first_pass: tuple[Seen, list[Used]]) -> Any:
    reader, design, table = arguments
    sink = _PartSink() if table is None else replace(table)
    n = encode_rows(replace(reader, cached_batches=first_pass[1]), design, dealer, sink)
    return sink.finish() if isinstance(sink, _PartSink) else (n, sink.counts)


def _size(part: Part) -> dict[Bucket, tuple[int, float, bool]]:
    return {bucket: (rows.n, rows.total, rows.whole) for bucket, rows in part.items()}


def _copy(seen: Seen) -> Seen:
    return _joined(Seen({name: type(column)(name) for name, column in seen.columns.items()}), seen)


def _joined(one: Seen, other: Seen) -> Seen:
    one.join(other)
    return one
