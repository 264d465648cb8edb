"""Make the two passes over a `Source` on a Dask cluster; the workers read *parts* and keep their
rows.

A *future* is Dask's handle for a value on a worker, a *sink* stores encoded rows, and an *assigner*
assigns rows to folds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from bbl.design.design import Design
from bbl.design.streams.passes import SourceSummary, encode_rows, summarise
from bbl.design.streams.reader import Reader, UsedRows
from bbl.design.streams.source import Source
from bbl.errors import OptionError
from bbl.rows.fold_assignment import FoldAssigner, Sink, StoredFolds, TableSink, make_sink
from bbl.rows.on_cluster import ClusterSample, CodeParts, Part, active_client, calls, remote_value
from bbl.rows.sample import Sample, concatenate
from bbl.rows.stored import Bucket

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["OnCluster", "choose_cluster"]


def choose_cluster(source: Source | None, client: Client | None) -> OnCluster | None:
    """Return the cluster that makes the passes over a source, or None if this process makes them.

    A Dask DataFrame is read with `client` or, by default, the active client. Other partitioned data
    are read on a cluster only if `client` is given, because its workers need access to the files.
    Data without parts raise an error if `client` is given.
    """
    dask_client = active_client(client)
    if client is not None and (source is None or source.parts is None):
        problem = "the data is a table in memory"
        if source is not None:
            problem = f"{source.text} cannot be read in partitions"
        raise OptionError(
            f"client= requires data that workers can read in partitions, but {problem}.",
            argument="client",
            hint=(
                "Pass a Dask DataFrame, Parquet files or a pyarrow Dataset. To distribute the "
                "folds of a table in memory, use joblib.parallel_config('dask')."
            ),
        )
    if dask_client is None or source is None or source.parts is None:
        return None
    return OnCluster(dask_client) if client is not None or source.distributed else None


@dataclass
class OnCluster:
    """Make the passes of `encode_source` on workers, which cache the batches for the second
    pass.
    """

    client: Client
    summaries: list[SourceSummary] = field(default_factory=list)  # one for each part
    # futures of (summary, list of batches), one for each part
    first_passes: list[Future] = field(default_factory=list)

    def summarise(self, reader: Reader) -> SourceSummary:
        """Make the first pass over each part, and merge the summaries in the order of the parts."""
        # `names` may contain a name twice
        names = [*reader.terms.columns, *([] if reader.weights is None else [reader.weights])]
        assert reader.source.parts is not None  # noqa: S101  # checked by choose_cluster()
        parts = reader.source.parts(list(dict.fromkeys(names)), self.client)
        remote_reader = remote_value(self.client, _without_source(reader))
        # functions, first arguments, second arguments, ...
        argument_columns = map(list, zip(*parts, strict=True))
        self.first_passes = calls(
            self.client, _summarise_part, [remote_reader] * len(parts), *argument_columns
        )
        self.summaries = self.client.gather(calls(self.client, _get_summary, self.first_passes))
        # copied because `_join` changes it
        merged_summary = reduce(_join, self.summaries[1:], _copy(self.summaries[0]))
        if reader.step is not None:
            reader.step(1.0, f"pass 1, {merged_summary.n:,} rows")
        return merged_summary

    def make_sink(
        self,
        n: int,
        n_levels: np.ndarray,
        K: int,
        nfold: int,
        weighted: bool,
        masked: bool,
        dtype: np.dtype,
    ) -> Sink:
        """Return a `TableSink` if the number of states is small, and otherwise a `ClusterSink`.

        The arguments are the same as in `bbl.rows.fold_assignment.make_sink`.
        """

        def make_cluster_sink(*_: object) -> ClusterSink:
            """Return an empty sink on the cluster; the arguments, which other sinks need, are
            ignored.
            """
            return ClusterSink(self.client, n_levels, weighted, masked, dtype)

        return make_sink(n, n_levels, K, nfold, weighted, masked, make_cluster_sink, dtype)

    def encode_rows(
        self,
        reader: Reader,
        design: Design,
        assigner: FoldAssigner | None,
        sink: TableSink | ClusterSink,
    ) -> int:
        """Make the second pass over each part, store the rows in the sink, and return the number of
        rows.
        """
        # one assigner for each part; together, they assign rows in the same way as `assigner`
        assigners = (
            [None] * len(self.summaries)
            if assigner is None
            else assigner.split_by_part(*self._group_sizes(design))
        )
        # each part fills a separate table
        table_sink = sink if isinstance(sink, TableSink) else None
        arguments = remote_value(self.client, (_without_source(reader), design, table_sink))
        # futures of a `Part`, or of (number of rows, counts of states) with a `TableSink`
        results = calls(
            self.client,
            _encode_part,
            [arguments] * len(self.first_passes),
            assigners,
            self.first_passes,
        )
        self.first_passes = []  # deletes the cached batches on the workers
        if isinstance(sink, TableSink):
            part_tables = self.client.gather(results)
            for _, counts in part_tables:
                sink.counts += counts
            return sum(n for n, _ in part_tables)
        sink.parts = results
        sink.sizes = self.client.gather(calls(self.client, _bucket_sizes, results))
        # see `_bucket_sizes`
        return sum(n for part_sizes in sink.sizes for n, _, _ in part_sizes.values())

    def _group_sizes(self, design: Design) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return two arrays (K,) for each part: the number of rows and the total weight of each
        group.
        """
        if not design.classes:
            totals = [np.array([summary.total]) for summary in self.summaries]
            return [np.array([float(summary.n)]) for summary in self.summaries], totals
        name = design.response.name
        response = design.response
        part_sizes = [
            summary.columns[name].by_level(response, "data", skip_missing=True)
            for summary in self.summaries
        ]
        return [rows for rows, _ in part_sizes], [totals for _, totals in part_sizes]


@dataclass
class ClusterSink(Sink):
    """A sink that leaves rows on the workers, as one `Part` for each part of the source."""

    client: Client
    n_levels: np.ndarray  # (m,); number of levels of each predictor
    weighted: bool  # whether weights may differ from 1
    masked: bool  # whether values may be missing
    dtype: np.dtype  # type of the codes
    parts: list[Future] = field(default_factory=list)  # futures of a `Part`
    sizes: list[dict] = field(default_factory=list)  # one for each part, as in `CodeParts`

    def finish(self, nfold: int) -> tuple[ClusterSample, StoredFolds | None]:
        """Return all rows and their folds; the folds are None if `nfold` is 0."""
        code_parts = CodeParts(
            self.client,
            self.parts,
            self.sizes,
            self.n_levels,
            self.dtype,
            self.weighted,
            self.masked,
        )
        return code_parts.finish(), StoredFolds(nfold) if nfold else None

    def close(self) -> None:
        """Delete the rows on the workers."""
        self.parts = []


@dataclass
class _PartSink:
    """A sink on a worker, for the rows of one part, by bucket (group, fold)."""

    buckets: dict[Bucket, list[Sample]] = field(default_factory=dict)

    def put(self, y: int, f: int, rows: Sample) -> None:
        """Store rows of group `y` that belong to the validation rows of fold `f`."""
        self.buckets.setdefault((y, f), []).append(rows)

    def finish(self) -> Part:
        """Return all rows as one `Part`."""
        return Part({bucket: concatenate(chunks) for bucket, chunks in self.buckets.items()})


def _without_source(reader: Reader) -> Reader:
    """Return a copy of a reader without its source. The copy can be sent to workers,
    which read the source of a part instead.

    The reading function is replaced by `iter`, which can be pickled and is never called.
    """
    return replace(reader, source=Source(reader.source.columns, iter, ""), step=None)


# The functions below run on workers.


def _summarise_part(
    reader: Reader, make_source: Callable, *arguments: Any
) -> tuple[SourceSummary, list[UsedRows]]:
    """Make the first pass over ``make_source(*arguments)``; return the summary and the batches."""
    batches: list[UsedRows] = []
    return summarise(replace(reader, source=make_source(*arguments)), batches), batches


def _get_summary(first_pass: tuple[SourceSummary, list[UsedRows]]) -> SourceSummary:
    """Return the summary from the result of `_summarise_part`."""
    return first_pass[0]


def _encode_part(
    arguments: tuple,
    assigner: FoldAssigner | None,
    first_pass: tuple[SourceSummary, list[UsedRows]],
) -> Part | tuple[int, np.ndarray]:
    """Make the second pass over a part.

    Return its rows or, with a `TableSink`, the number of rows and the counts of the states.
    `arguments` are (reader, design, the `TableSink` or None).
    """
    reader, design, table_sink = arguments
    # `replace` resets the `counts` to 0
    sink = _PartSink() if table_sink is None else replace(table_sink)
    n = encode_rows(replace(reader, cached_batches=first_pass[1]), design, assigner, sink)
    return sink.finish() if isinstance(sink, _PartSink) else (n, sink.counts)


def _bucket_sizes(part: Part) -> dict[Bucket, tuple[int, float, bool]]:
    """Return, for each bucket, the number of rows, the sum of weights, and whether all weights are
    integers.
    """
    return {bucket: (rows.n, rows.total, rows.whole) for bucket, rows in part.items()}


def _copy(summary: SourceSummary) -> SourceSummary:
    """Return a copy of a summary, into which other summaries can be merged."""
    # merge it into an empty summary; ``type(column)(name)`` is a `Merged` without values
    return _join(
        SourceSummary(
            {name: type(column)(name, column.listed) for name, column in summary.columns.items()},
            {name: type(moments)(name) for name, moments in summary.numbers.items()},
        ),
        summary,
    )


def _join(summary: SourceSummary, other: SourceSummary) -> SourceSummary:
    """Merge `other` into a summary in place, and return the summary."""
    summary.join(other)
    return summary
