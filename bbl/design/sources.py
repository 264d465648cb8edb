"""Sources: data that are read batch by batch, as often as needed: Parquet, Arrow, DuckDB, polars, Dask, callables."""

from __future__ import annotations

import glob
import os
import tempfile
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bbl.design.frames import Frame, decoded, pandas_categories, to_frame
from bbl.errors import BBLError, BBLTypeError, DataError

__all__ = ["Batch", "Source", "lazy_source"]

ROWS = 65536  # of a batch, where the source lets it be chosen
PART = 2**19  # rows of a Parquet file, at least, that one task of a cluster reads
BUFFER = 2**20  # bytes of a column that are read at a time
SUFFIXES = (".parquet", ".parq", ".pq")


class Batch(NamedTuple):
    """Some rows of a source.

    Attributes
    ----------
    frame : Frame
    place : str
        Where they are from, for messages: a file, a partition; empty if there is nothing to tell.
    """

    frame: Frame
    place: str


def _arrow_batch(batch: Any, place: str, declared: frozenset[str] = frozenset()) -> Batch:
    names = tuple(batch.schema.names)

    def get(k: int) -> pd.Series:
        return decoded(batch.column(k), names[k] in declared)

    return Batch(Frame(names, pd.RangeIndex(batch.num_rows), get, "data", batch, declared), place)


@dataclass(frozen=True)
class Source:
    """Data that can be gone over more than once, some rows at a time.

    Attributes
    ----------
    columns : tuple
        Column names.
    read : callable
        From names of columns to an iterator of batches that have them.
    text : str
        What it is, in words.
    parts : callable, optional
        From names of columns and a Dask client to (function, arguments) of each part, of which some worker makes a
        source of it.
    distributed : bool
        Whether the parts are on workers anyhow.
    """

    columns: tuple[Hashable, ...]
    read: Callable[[list], Iterator[Batch]]
    text: str
    parts: Callable[[list, Any], list[tuple]] | None = None
    distributed: bool = False

    def frame(self, argument: str) -> Frame:
        """Return a table of no rows with these columns, which raises the error of a column that is not there."""
        return Frame(self.columns, pd.RangeIndex(0), lambda k: pd.Series(dtype=object), argument)

    def has(self, name: object) -> bool:
        """Return whether `name`, of any type, is the name of a column."""
        return isinstance(name, Hashable) and name in self.columns

    def batches(self, names: Iterable[Hashable]) -> Iterator[Batch]:
        """Yield all rows; an error of the reader becomes a DataError that says what was read."""
        wanted = list(dict.fromkeys(names))
        place = self.text
        rows = self.read(wanted)
        try:
            for batch in rows:
                place = batch.place or self.text
                yield batch
        except (BBLError, MemoryError):
            raise
        except Exception as error:  # of pyarrow, duckdb, polars, dask or the user's own reader: all have their classes
            where = getattr(error, "bbl_place", place)
            raise DataError(
                f"{where} cannot be read ({type(error).__name__}: {error}). Check the source, or read it again.",
                argument="data",
            ) from error
        finally:
            if hasattr(rows, "close"):
                rows.close()


def lazy_source(data: Any, argument: str = "data") -> Source | None:
    """Return `data` as a `Source`, if it is of a kind that is read batch by batch; None if it is a table in memory.

    Parameters
    ----------
    data : object
        A Parquet path, list or glob of paths, a folder of them; a pyarrow Dataset or RecordBatchReader; anything with
        ``__arrow_c_stream__`` that is no table in memory; a polars LazyFrame; a Dask DataFrame; a callable that
        returns an iterator of batches, each a table of any kind.
    argument : str, default "data"

    Raises
    ------
    DataError, BBLTypeError
        If there is no such file, or pyarrow is not installed.
    """
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike):
        return _parquet([os.fspath(data)], argument)
    if isinstance(data, list | tuple) and data and all(isinstance(one, str | os.PathLike) for one in data):
        return _parquet([os.fspath(one) for one in data], argument)
    kind, module = type(data).__name__, type(data).__module__.partition(".")[0]
    if kind == "LazyFrame" and module == "polars":
        return _polars(data)
    if module.startswith("dask") and hasattr(data, "partitions"):
        return _dask(data)
    if module == "pyarrow" and hasattr(data, "get_fragments"):
        return _dataset(data, f"the {kind}")
    if module == "pyarrow" and kind == "RecordBatchReader":
        spool = _Spool(data)
        return Source(tuple(data.schema.names), spool.read, spool.text)
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__len__"):
        return _stream(data)
    if hasattr(data, "__arrow_c_stream__") and module == "duckdb":
        return _stream(data)
    if callable(data) and not hasattr(data, "__dataframe__") and not isinstance(data, type):
        return _called(data)
    return None


def _pyarrow(what: str) -> Any:
    try:
        import pyarrow
        import pyarrow.dataset  # noqa: F401  # the modules that are used
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BBLTypeError(
            f"{what} is read with pyarrow, which is not installed. Install the extra: pip install "
            "'boltzmann-bayes[arrow]'.",
            argument="data",
        ) from None
    return pyarrow


def _files(path: str, argument: str) -> list[str]:
    """Return the Parquet files that a path, a folder or a glob stands for, in order."""
    if os.path.isdir(path):
        inside = sorted(str(p) for p in Path(path).rglob("*") if p.suffix in SUFFIXES)
        found = [p for p in inside if not any(part[0] in "._" for part in Path(p).relative_to(path).parts)]
    elif os.path.exists(path):
        found = [path]
    else:
        found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise DataError(
            f"{argument}={path!r} is no Parquet file, and no folder or glob of any ({', '.join(SUFFIXES)}). Check the "
            "path; of other formats give a table.",
            argument=argument,
        )
    return found


def _parquet(paths: list[str], argument: str) -> Source:
    pa = _pyarrow("A Parquet file")
    files = [file for path in paths for file in _files(path, argument)]
    root = paths[0] if len(paths) == 1 and os.path.isdir(paths[0]) else None
    partitioning = pa.dataset.partitioning(flavor="hive") if any("=" in file for file in files) and root else None
    try:
        data = pa.dataset.dataset(files, format="parquet", partitioning=partitioning, partition_base_dir=root)
    except Exception as error:
        raise DataError(
            f"{argument}: {files[0]!r} cannot be read as Parquet ({error}). Check the file.", argument=argument
        ) from error
    return _dataset(data, "the Parquet data" if len(files) > 1 else repr(files[0]))


def _dataset(data: Any, text: str, only: tuple[int, list[int] | None] | None = None) -> Source:
    """Return a pyarrow Dataset as a source: fragment by fragment, nothing read ahead.

    Or `only` a fragment of it, and row groups of that, if they are given.
    """
    pa = _pyarrow("A Dataset")
    ds = pa.dataset
    schema = data.schema

    def read(names: list) -> Iterator[Batch]:
        first, groups = (0, None) if only is None else only
        for fragment in islice(data.get_fragments(), first, None if only is None else first + 1):
            if groups is not None:
                fragment = fragment.subset(row_group_ids=groups)
            place = f"the file {fragment.path!r}" if getattr(fragment, "path", "") else text
            try:
                yield from _fragment(fragment, place, schema, names)
            except BBLError:
                raise
            except Exception as error:
                error.bbl_place = place  # type: ignore[attr-defined]
                raise

    def _fragment(fragment: Any, place: str, schema: Any, names: list) -> Iterator[Batch]:
        own = fragment.physical_schema
        fixed = ds.get_partition_keys(fragment.partition_expression)
        _check_schema(place, own, fixed, schema, names)
        inside = [name for name in names if name not in fixed]
        strings = [name for name in inside if _kind(own.field(name).type) == "text"]
        declared = frozenset(pandas_categories(own))
        if isinstance(fragment, ds.ParquetFileFragment):
            how = ds.ParquetReadOptions(dictionary_columns=strings)
            scan = ds.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=BUFFER, pre_buffer=False)
            form = ds.ParquetFileFormat(read_options=how, default_fragment_scan_options=scan)
            fragment = form.make_fragment(
                fragment.path, fragment.filesystem, row_groups=[own.id for own in fragment.row_groups]
            )
        kept = getattr(data, "_scan_options", {}).get("filter")  # of Dataset.filter()
        told = {"batch_size": ROWS, "batch_readahead": 0, "fragment_readahead": 0, "use_threads": False, "filter": kept}
        for batch in fragment.to_batches(columns=inside, **told):
            for name in names:
                if name in fixed:
                    batch = batch.append_column(name, pa.array([fixed[name]] * batch.num_rows))
            yield _arrow_batch(batch, place, declared)

    def parts(names: list, client: Any) -> list[tuple]:
        found = enumerate(data.get_fragments())
        return [(_dataset, data, text, (k, groups)) for k, fragment in found for groups in _row_groups(fragment)]

    return Source(tuple(schema.names), read, text, parts)


def _row_groups(fragment: Any) -> list[list[int] | None]:
    """Return the row groups of a Parquet file in parts of about equal size; None for a file of another kind."""
    out: list[list[int] | None] = []
    rows = PART
    for own in getattr(fragment, "row_groups", ()):
        if rows >= PART:
            out.append([])
            rows = 0
        out[-1].append(own.id)  # type: ignore[union-attr]
        rows += own.num_rows
    return out or [None]


def _kind(type_: Any) -> str:
    """Return what kind of levels a column of an Arrow type has."""
    import pyarrow.types as of

    if of.is_dictionary(type_):
        return _kind(type_.value_type)
    if of.is_boolean(type_):
        return "bool"
    if of.is_integer(type_) or of.is_floating(type_) or of.is_decimal(type_):
        return "number"
    if any(is_(type_) for is_ in (of.is_string, of.is_large_string, of.is_string_view)):
        return "text"
    return "none" if of.is_null(type_) else str(type_)


def _check_schema(place: str, own: Any, fixed: dict, schema: Any, names: list) -> None:
    """Refuse a file that lacks a column, or has it of another kind than the first file."""
    for name in names:
        if name in fixed:
            continue
        if name not in own.names:
            raise DataError(
                f"{place} has no column {name!r}, which others have. Leave the file out, or write it again.",
                column=name,
                argument="data",
            )
        here, there = own.field(name).type, schema.field(name).type
        if _kind(here) != _kind(there) and "none" not in (_kind(here), _kind(there)):
            raise DataError(
                f"column {name!r} is of type {here} in {place}, and of type {there} elsewhere: values could not be "
                "told to be the same. Write the file again with one type.",
                column=name,
                argument="data",
            )


def _stream(data: Any) -> Source:
    """Return anything that gives an Arrow stream each time it is asked."""
    pa = _pyarrow(f"A {type(data).__name__}")
    columns = getattr(data, "columns", None)
    names = tuple(columns) if isinstance(columns, list | tuple) else None
    if names is None:
        names = tuple(pa.RecordBatchReader.from_stream(data).schema.names)
    text = f"the {type(data).__name__}"

    def read(wanted: list) -> Iterator[Batch]:
        own = data
        if hasattr(data, "project") and all(isinstance(name, str) for name in wanted):  # a relation: only these columns
            own = data.project(", ".join('"' + name.replace('"', '""') + '"' for name in wanted))
        for batch in pa.RecordBatchReader.from_stream(own):
            for first in range(0, batch.num_rows, ROWS):
                yield _arrow_batch(batch.slice(first, ROWS), "")

    return Source(names, read, text)


class _Spool:
    """A stream that can be read once: what is needed of it goes to a temporary Parquet file without a name."""

    text = "the RecordBatchReader"

    def __init__(self, reader: Any):
        self.pa, self.reader = _pyarrow("A RecordBatchReader"), reader
        self.names: list | None = None

    def read(self, wanted: list) -> Iterator[Batch]:
        """Yield the rows: the first time while they are spooled, from then on from the file."""
        if self.names is None:
            self._spool(wanted)
        if not set(wanted) <= set(self.names or ()):
            raise DataError(
                f"{self.text} has been read, and cannot be read again. Give what it was made from, or a callable that "
                "returns a new one.",
                argument="data",
            )
        self.file.seek(0)
        file = self.pa.parquet.ParquetFile(self.file, pre_buffer=False, buffer_size=BUFFER)
        for batch in file.iter_batches(ROWS, columns=wanted, use_threads=False):
            yield _arrow_batch(batch, "")

    def _spool(self, wanted: list) -> None:
        self.file = tempfile.TemporaryFile(prefix="bbl-")  # noqa: SIM115
        weakref.finalize(self, self.file.close)
        self.names = wanted
        schema = self.pa.schema([self.reader.schema.field(k) for k in wanted])
        to = self.pa.parquet.ParquetWriter(self.file, schema)
        for batch in self.reader:
            with _spooling():
                to.write_batch(batch.select(wanted))
        with _spooling():
            to.close()


@contextmanager
def _spooling() -> Iterator[None]:
    """Say that it is the temporary file that cannot be written, and where it lies."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"what a reader gave cannot be kept in a temporary file in {tempfile.gettempdir()!r} "
            f"({error.strerror or error}). Free some room, or set TMPDIR to a folder of a larger disk.",
            argument="data",
        ) from error


def _polars(data: Any) -> Source:
    """Return a polars LazyFrame: its own engine goes over it, in batches."""
    _pyarrow("A LazyFrame")
    if not hasattr(data, "collect_batches"):
        raise BBLTypeError(
            "a LazyFrame is read in batches from polars 1.34 on. Update polars, or write the frame with sink_parquet() "
            "and give the file.",
            argument="data",
        )
    names = tuple(data.collect_schema().names())

    def read(wanted: list) -> Iterator[Batch]:
        for part in data.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True):
            for batch in part.to_arrow().to_batches():
                yield _arrow_batch(batch, "")

    return Source(names, read, "the LazyFrame")


def _dask(data: Any) -> Source:
    """Return a Dask DataFrame: one partition at a time, wherever Dask computes it."""

    def read(wanted: list) -> Iterator[Batch]:
        own = data[wanted]
        for k in range(data.npartitions):
            place = f"partition {k} of the Dask DataFrame"
            try:
                part = own.partitions[k].compute()
            except Exception as error:
                error.bbl_place = place  # type: ignore[attr-defined]
                raise
            yield Batch(to_frame(part), place)

    def parts(names: list, client: Any) -> list[tuple]:
        found = client.compute(data[names].to_delayed())
        return [(_partition, own, f"partition {k} of the Dask DataFrame") for k, own in enumerate(found)]

    return Source(tuple(data.columns), read, "the Dask DataFrame", parts, distributed=True)


def _partition(frame: Any, place: str) -> Source:
    """Return a partition on its worker."""
    return Source(tuple(frame.columns), lambda wanted: iter([Batch(to_frame(frame[wanted]), place)]), place)


def _called(data: Callable) -> Source:
    """Return a callable that gives an iterator of tables, a new one each time it is called."""
    text = f"what {getattr(data, '__name__', type(data).__name__)}() returns"

    def tables() -> Iterator[Any]:
        found = data()
        if not isinstance(found, Iterable) or isinstance(found, str | bytes | dict | pd.DataFrame):
            raise BBLTypeError(
                f"data is a callable that returns {type(found).__name__}, not an iterator of tables. Let it yield "
                "data frames, pyarrow tables or dicts of lists, and start anew each time it is called.",
                argument="data",
            )
        return iter(found)

    def read(wanted: list) -> Iterator[Batch]:
        for k, table in enumerate(tables()):
            place = f"batch {k} of {text}"
            yield Batch(to_frame(table), place)

    first = next(tables(), None)
    if first is None:
        raise DataError(f"{text} has no batches. Give at least one row for each response group.", argument="data")
    return Source(to_frame(first).columns, read, text)
