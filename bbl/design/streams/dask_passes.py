"""A source read by the workers of a Dask cluster, each part once: codes stay on the worker that made them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.design import Design
from bbl.design.streams.passes import Reader, SourceSummary, UsedRows, encode_rows, look
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
    """Return the cluster whose workers make the passes over a source, or None for this process.

    A Dask DataFrame is read by the active client; other data with parts by `client`, if one is given: its workers have
    to be able to read the files.

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
    """Makes the passes of `encode_source` on the workers of a client, which keep the batches for the second pass."""

    client: Client
    summaries: list[SourceSummary] = field(default_factory=list)  # of the parts
    first_passes: list[Future] = field(default_factory=list)  # the summary and the batches of each part

    def look(self, reader: Reader) -> SourceSummary:
        """Make the first pass over each part, and merge the summaries in the order of the parts."""
        names = [*reader.terms.columns, *([] if reader.weights is None else [reader.weights])]
        assert reader.source.parts is not None  # noqa: S101  # checked by passes()
        parts = reader.source.parts(list(dict.fromkeys(names)), self.client)
        remote_reader = remote_value(self.client, _without_source(reader))
        makers = map(list, zip(*parts, strict=True))
        self.first_passes = calls(self.client, _look, [remote_reader] * len(parts), *makers)
        self.summaries = self.client.gather(calls(self.client, _summary, self.first_passes))
        merged_summary = reduce(_join, self.summaries[1:], _copy(self.summaries[0]))
        if reader.step is not None:
            reader.step(1.0, f"pass 1, {merged_summary.n:,} rows")
        return merged_summary

    def make_sink(self, n: int, n_levels: np.ndarray, K: int, nfold: int, weighted: bool, masked: bool) -> Sink:
        """Return the sink of rows, as `bbl.rows.dealing.make_sink`: a table for few states, else the workers."""

        def on_workers(*_: object) -> ClusterSink:
            return ClusterSink(self.client, n_levels, weighted, masked)

        return make_sink(n, n_levels, K, nfold, weighted, masked, on_workers)

    def encode_rows(self, reader: Reader, design: Design, dealer: Dealer | None, sink: Any) -> int:
        """Make the second pass; return the number of rows."""
        dealers = [None] * len(self.summaries) if dealer is None else dealer.for_parts(*self._sizes(design))
        table = sink if isinstance(sink, TableSink) else None
        remote_arguments = remote_value(self.client, (_without_source(reader), design, table))
        parts = calls(self.client, _encode, [remote_arguments] * len(self.first_passes), dealers, self.first_passes)
        self.first_passes = []
        if isinstance(sink, TableSink):
            encoded_parts = self.client.gather(parts)
            for _, counts in encoded_parts:
                sink.counts += counts
            return sum(n for n, _ in encoded_parts)
        sink.parts = parts
        sink.sizes = self.client.gather(calls(self.client, _size, parts))
        return sum(n for part_sizes in sink.sizes for n, _, _ in part_sizes.values())

    def _sizes(self, design: Design) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the number of rows (K,) and the weight (K,) of each group, for each part."""
        if not design.classes:
            totals = [np.array([summary.total]) for summary in self.summaries]
            return [np.array([float(summary.n)]) for summary in self.summaries], totals
        level_weights = [
            summary.columns[design.response.name].by_level(design.response, "data", True) for summary in self.summaries
        ]
        return [rows for rows, _ in level_weights], [totals for _, totals in level_weights]


@dataclass
class ClusterSink:
    """Sink of rows that stay on their workers, as one `Part` for each part of the source."""

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
        """Release the rows on the workers."""
        self.parts = []


@dataclass
class _PartSink:
    """Sink of the rows of one part, on its worker: by group and fold."""

    buckets: dict[Bucket, list[Sample]] = field(default_factory=dict)

    def put(self, y: int, f: int, rows: Sample) -> None:
        self.buckets.setdefault((y, f), []).append(rows)

    def finish(self) -> Part:
        return Part({bucket: concatenate(chunks) for bucket, chunks in self.buckets.items()})


def _without_source(reader: Reader) -> Reader:
    """Return a reader without its source, for workers, which have their own sources."""
    return replace(reader, source=Source(reader.source.columns, iter, ""), step=None)


# what runs on workers


def _look(reader: Reader, make: Callable, *source: Any) -> tuple[SourceSummary, list[UsedRows]]:
    used_batches: list[UsedRows] = []
    return look(replace(reader, source=make(*source)), used_batches), used_batches


def _summary(first_pass: tuple[SourceSummary, list[UsedRows]]) -> SourceSummary:
    return first_pass[0]


def _encode(arguments: tuple, dealer: Dealer | None, first_pass: tuple[SourceSummary, list[UsedRows]]) -> Any:
    reader, design, table = arguments
    sink = _PartSink() if table is None else replace(table)
    n = encode_rows(replace(reader, cached_batches=first_pass[1]), design, dealer, sink)
    return sink.finish() if isinstance(sink, _PartSink) else (n, sink.counts)


def _size(part: Part) -> dict[Bucket, tuple[int, float, bool]]:
    return {bucket: (rows.n, rows.total, rows.whole) for bucket, rows in part.items()}


def _copy(summary: SourceSummary) -> SourceSummary:
    return _join(SourceSummary({name: type(column)(name) for name, column in summary.columns.items()}), summary)


def _join(summary: SourceSummary, other: SourceSummary) -> SourceSummary:
    summary.join(other)
    return summary
