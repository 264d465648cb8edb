"""Create a `Source` from data read in batches: Arrow, DuckDB, polars, Dask, callables.

DuckDB's lazy tables are called *relations*; its categorical type is *enum*.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from bbl.design.frames import declared_order, to_frame
from bbl.design.streams.parquet import dataset_source, parquet_source
from bbl.design.streams.source import BATCH_ROWS, Batch, Source, arrow_batch, pyarrow_for
from bbl.errors import BBLTypeError, DataError

if TYPE_CHECKING:
    import dask.dataframe as dd
    import polars as pl
    import pyarrow as pa
    from distributed import Client

    from bbl.design.table_types import ArrowStream, TableLike

__all__ = ["lazy_source"]


def lazy_source(data: Any, argument: str = "data") -> Source | None:
    """Return `data` as a `Source` if it is read in batches, and otherwise None.

    Parameters
    ----------
    data : object
        A path, list of paths, glob or directory of Parquet files; a pyarrow Dataset or
        RecordBatchReader; an object with ``__arrow_c_stream__`` that is not a table in memory; a
        polars LazyFrame; a Dask DataFrame; or a callable that returns an iterator of tables.
    argument : str, default "data"
        Name of the argument, for messages.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike):
        return parquet_source([os.fspath(data)], argument)
    if (
        isinstance(data, list | tuple)
        and data
        and all(isinstance(path, str | os.PathLike) for path in data)
    ):
        return parquet_source([os.fspath(path) for path in data], argument)
    kind = type(data).__name__
    module = type(data).__module__.partition(".")[0]
    if kind == "LazyFrame" and module == "polars":
        return _polars_source(data)
    if module.startswith("dask") and hasattr(data, "partitions"):
        return _dask_source(data)
    if module == "pyarrow" and hasattr(data, "get_fragments"):
        return dataset_source(data, f"the {kind}")
    if module == "pyarrow" and kind == "RecordBatchReader":
        spool = _Spool(data)
        return Source(tuple(data.schema.names), spool.read, spool.text, is_reread=False)
    # tables in memory have a length
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__len__"):
        return _stream_source(data)
    # relations also have a length
    if hasattr(data, "__arrow_c_stream__") and module in ("duckdb", "_duckdb"):
        return _stream_source(data)
    # Classes, and callable tables in memory (with ``__dataframe__``), are not functions that return
    # tables.
    if callable(data) and not hasattr(data, "__dataframe__") and not isinstance(data, type):
        return _callable_source(data)
    return None


def _stream_source(data: ArrowStream) -> Source:
    """Return the source for an object whose ``__arrow_c_stream__`` creates a new Arrow stream in
    each call.
    """
    pa = pyarrow_for(f"A {type(data).__name__}")
    columns = getattr(data, "columns", None)
    names = tuple(columns) if isinstance(columns, list | tuple) else None
    if names is None:
        names = tuple(pa.RecordBatchReader.from_stream(data).schema.names)
    types = getattr(data, "types", ())  # only relations have types
    # empty for objects of other types
    enum_columns = [
        name
        for name, type_ in zip(names, types, strict=False)
        if getattr(type_, "id", "") == "enum"
    ]
    text = f"the {type(data).__name__}"

    def read(wanted: list) -> Iterator[Batch]:
        """Yield the batches of a new stream, with enum columns marked as ordered."""
        projected = data
        # the object is a relation
        if hasattr(data, "project") and all(isinstance(name, str) for name in wanted):
            # in SQL, names are quoted, and quotes within a name are doubled
            projected = data.project(
                ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
            )
        stream = pa.RecordBatchReader.from_stream(projected)
        ordered_columns = [name for name in stream.schema.names if name in enum_columns]
        declared = declared_order(stream.schema)
        declared = declared._replace(ordered=declared.ordered.union(ordered_columns))
        for batch in stream:
            for name in ordered_columns:
                batch = _mark_ordered(batch, name)
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield arrow_batch(batch.slice(start, BATCH_ROWS), "", declared)

    return Source(names, read, text)


def _mark_ordered(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return a batch with the dictionary of column `name` marked as ordered."""
    column = batch.column(name)
    ordered_column = type(column).from_arrays(column.indices, column.dictionary, ordered=True)
    return batch.set_column(batch.schema.get_field_index(name), name, ordered_column)


class _Spool:
    """A RecordBatchReader, which can be read only once, and a copy of the requested columns.

    The copy is a temporary Arrow `file`, created by the first `read`. `pa` is the module pyarrow.
    """

    text = "the RecordBatchReader"

    def __init__(self, reader: pa.RecordBatchReader):
        self.pa = pyarrow_for("A RecordBatchReader")
        self.reader = reader
        self.names: list | None = None  # columns in the file; None before the reader is read

    def read(self, wanted: list) -> Iterator[Batch]:
        """Yield all rows from the file. The first call creates the file, with the requested
        columns.
        """
        if self.names is None:
            self._spool(wanted)
        if not set(wanted) <= set(self.names or ()):  # some column has not been copied
            raise DataError(
                f"{self.text} was already read and cannot be read again.",
                argument="data",
                hint=("Pass the object that created it, or a callable that returns a new one."),
            )
        self.file.seek(0)
        for batch in self.pa.ipc.open_stream(self.file):
            yield arrow_batch(batch.select(wanted), "", declared_order(self.reader.schema))

    def _spool(self, wanted: list) -> None:
        """Copy the requested columns to the temporary file."""
        self.file = tempfile.TemporaryFile(prefix="bbl-")  # noqa: SIM115
        # closes the file when this object is garbage-collected
        weakref.finalize(self, self.file.close)
        self.names = wanted
        schema = self.pa.schema([self.reader.schema.field(k) for k in wanted])
        writer = self.pa.ipc.new_stream(
            self.file, schema, options=self.pa.ipc.IpcWriteOptions(compression="lz4")
        )
        # outside the ``with`` block, because an OSError of the reader is not an error in writing
        for batch in self.reader:
            with _explain_write_errors():
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    writer.write_batch(batch.select(wanted).slice(start, BATCH_ROWS))
        with _explain_write_errors():
            writer.close()


@contextmanager
def _explain_write_errors() -> Iterator[None]:
    """Convert an OSError in the ``with`` block to a DataError that names the directory."""
    try:
        yield
    except OSError as error:
        raise DataError(
            "The reader's rows cannot be stored in a temporary file in "
            f"{tempfile.gettempdir()!r} ({error.strerror or error}).",
            argument="data",
            hint="Free some space, or set TMPDIR to a directory on a larger disk.",
        ) from error


def _polars_source(data: pl.LazyFrame) -> Source:
    """Return the source for a polars LazyFrame, collected in batches by polars."""
    pyarrow_for("A LazyFrame")
    if not hasattr(data, "collect_batches"):
        raise BBLTypeError(
            "Reading a LazyFrame in batches requires polars 1.34 or later.",
            argument="data",
            hint="Update polars, or write the frame with sink_parquet() and pass the file.",
        )
    import polars as pl

    names = tuple(data.collect_schema().names())
    # not all versions have UInt128
    wide_types = [getattr(pl, name) for name in ("UInt128", "Int128") if hasattr(pl, name)]
    casts = dict.fromkeys(wide_types, pl.Float64)

    def read(wanted: list) -> Iterator[Batch]:
        """Collect and yield the batches."""
        for frame in data.select(wanted).collect_batches(
            chunk_size=BATCH_ROWS, maintain_order=True
        ):
            # pyarrow does not have 128-bit integers
            table = frame.cast(casts).to_arrow()
            for batch in table.to_batches():
                yield arrow_batch(batch, "", declared_order(table.schema))

    return Source(names, read, "the LazyFrame")


def _dask_source(data: dd.DataFrame) -> Source:
    """Return the source for a Dask DataFrame; its batches are the partitions, computed by Dask."""

    def read(wanted: list) -> Iterator[Batch]:
        """Yield each partition; if an error occurs, set the error's `bbl_place` to the partition's
        name, for `Source.batches`.
        """
        projected = data[wanted]
        for k in range(data.npartitions):
            place = f"partition {k} of the Dask DataFrame"
            try:
                partition = projected.partitions[k].compute()
            except Exception as error:
                error.bbl_place = place  # type: ignore[attr-defined]
                raise
            yield Batch(to_frame(partition), place)

    def parts(names: list, client: Client) -> list[tuple]:
        """Return (function, *arguments) for the source of each partition; see `Source.parts`."""
        # futures of pandas DataFrames, one for each partition
        partitions = client.compute(data[names].to_delayed())
        places = (f"partition {k} of the Dask DataFrame" for k in range(len(partitions)))
        return [
            (_partition_source, partition, place)
            for partition, place in zip(partitions, places, strict=True)
        ]

    return Source(tuple(data.columns), read, "the Dask DataFrame", parts, distributed=True)


def _partition_source(frame: pd.DataFrame, place: str) -> Source:
    """Return the source of one computed partition; this function runs on the partition's worker."""
    return Source(
        tuple(frame.columns), lambda wanted: iter([Batch(to_frame(frame[wanted]), place)]), place
    )


def _callable_source(data: Callable) -> Source:
    """Return the source for a callable that returns a new iterator of tables each time it is
    called.
    """
    text = f"the iterator returned by {getattr(data, '__name__', type(data).__name__)}()"

    def make_tables() -> Iterator[TableLike]:
        """Return a new iterator of tables; raise an error if the callable returns anything else."""
        iterator = data()
        if not isinstance(iterator, Iterable) or isinstance(
            iterator, str | bytes | dict | pd.DataFrame
        ):
            raise BBLTypeError(
                f"data is a callable that returns {type(iterator).__name__}, not an iterator "
                "of tables.",
                argument="data",
                hint=(
                    "Yield data frames, pyarrow tables or dicts of lists, and start from the "
                    "beginning on each call."
                ),
            )
        return iter(iterator)

    def read(wanted: list) -> Iterator[Batch]:
        """Yield each table with all its columns, not only the `wanted` ones."""
        for k, table in enumerate(make_tables()):
            place = f"batch {k} of {text}"
            yield Batch(to_frame(table), place)

    first_table = next(make_tables(), None)  # determines the columns of the source
    if first_table is None:
        raise DataError(
            f"{text} has no batches.",
            argument="data",
            hint="Provide at least one row for each response group.",
        )
    return Source(to_frame(first_table).columns, read, text)
