"""Parquet files and pyarrow Datasets as sources: fragment by fragment, nothing read ahead."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bbl.design.frames import declared_order, is_dictionary
from bbl.design.streams.source import BUFFER, ROWS, Batch, Source, arrow_batch, pyarrow_for
from bbl.errors import BBLError, BBLTypeError, DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from distributed import Client
    from pyarrow import Schema
    from pyarrow.dataset import Dataset, Fragment

__all__ = ["dataset_source", "parquet_source"]

PART = 2**19  # rows of a Parquet file, at least, that one task of a cluster reads
SUFFIXES = (".parquet", ".parq", ".pq")


def _files(path: str, argument: str) -> list[str]:
    """Return the Parquet files that a path, a folder or a glob stands for, in order."""
    if os.path.isdir(path):
        inside = sorted(str(p) for p in Path(path).rglob("*") if p.suffix in SUFFIXES)
        paths = [p for p in inside if not any(component[0] in "._" for component in Path(p).relative_to(path).parts)]
    elif os.path.exists(path):
        paths = [path]
    else:
        paths = sorted(glob.glob(path, recursive=True))
    is_formula = "~" in path and os.sep not in path and Path(path).suffix not in SUFFIXES
    is_path = os.sep in path or Path(path).suffix or glob.has_magic(path)
    if not paths and (is_formula or not is_path):
        hint = " The formula comes first, then the data." if is_formula else ""
        raise BBLTypeError(
            f"{argument} must be a table (a pandas or polars DataFrame, a pyarrow Table, a dict of lists) or the path "
            f"of Parquet data; got the text {path!r}.{hint}",
            argument=argument,
        )
    if not paths:
        raise DataError(
            f"{argument}={path!r} is no Parquet file, and no folder or glob of any ({', '.join(SUFFIXES)}). Check the "
            "path; of other formats give a table.",
            argument=argument,
        )
    return paths


def parquet_source(paths: list[str], argument: str) -> Source:
    """Return the Parquet files of some paths, folders and globs as one source."""
    pa = pyarrow_for("A Parquet file")
    files = [file for path in paths for file in _files(path, argument)]
    root = paths[0] if len(paths) == 1 and os.path.isdir(paths[0]) else None
    partitioning = pa.dataset.partitioning(flavor="hive") if any("=" in file for file in files) and root else None
    try:
        data = pa.dataset.dataset(files, format="parquet", partitioning=partitioning, partition_base_dir=root)
    except Exception as error:
        raise DataError(
            f"{argument}: {files[0]!r} cannot be read as Parquet ({error}). Check the file.", argument=argument
        ) from error
    return dataset_source(data, "the Parquet data" if len(files) > 1 else repr(files[0]))


def dataset_source(data: Dataset, text: str, only: tuple[int, list[int] | None] | None = None) -> Source:
    """Return a pyarrow Dataset as a source: fragment by fragment, nothing read ahead.

    Or `only` a fragment of it, and row groups of that, if they are given.
    """
    pa = pyarrow_for("A Dataset")
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

    def _fragment(fragment: Fragment, place: str, schema: Schema, names: list) -> Iterator[Batch]:
        fragment_schema = fragment.physical_schema
        fixed = ds.get_partition_keys(fragment.partition_expression)
        _check_schema(place, fragment_schema, fixed, schema, names)
        inside = [name for name in names if name not in fixed]
        strings = [
            name
            for name in inside
            if _kind(fragment_schema.field(name).type) == "text" and not is_dictionary(fragment_schema.field(name).type)
        ]
        declared = declared_order(fragment_schema, fixed)
        if isinstance(fragment, ds.ParquetFileFragment):
            plain = _without_dictionary(fragment, declared.categories | declared.ordered)
            declared = declared._replace(categories=declared.categories - plain, lost=declared.lost | plain)
            how = ds.ParquetReadOptions(dictionary_columns=strings)
            scan = ds.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=BUFFER, pre_buffer=False)
            form = ds.ParquetFileFormat(read_options=how, default_fragment_scan_options=scan)
            row_groups = [row_group.id for row_group in fragment.row_groups]
            fragment = form.make_fragment(fragment.path, fragment.filesystem, row_groups=row_groups)
        row_filter = getattr(data, "_scan_options", {}).get("filter")  # of Dataset.filter()
        one_at_a_time = {"batch_size": ROWS, "batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
        for batch in fragment.to_batches(columns=inside, filter=row_filter, **one_at_a_time):
            for name in names:
                if name in fixed:
                    batch = batch.append_column(name, pa.array([fixed[name]] * batch.num_rows))
            yield arrow_batch(batch, place, declared)

    def parts(names: list, client: Client) -> list[tuple]:
        return [
            (dataset_source, data, text, (k, groups))
            for k, fragment in enumerate(data.get_fragments())
            for groups in _row_groups(fragment)
        ]

    return Source(tuple(schema.names), read, text, parts)


def _without_dictionary(fragment: Fragment, names: frozenset[str]) -> frozenset[str]:
    """Return those of the columns that a Parquet file stores value by value, which lose the order of categories."""
    column_paths = set()
    for group in fragment.row_groups if names else ():
        chunks = fragment.metadata.row_group(group.id)
        columns = (chunks.column(j) for j in range(chunks.num_columns))
        column_paths |= {one.path_in_schema for one in columns if not one.has_dictionary_page}
    return names & column_paths


def _row_groups(fragment: Fragment) -> list[list[int] | None]:
    """Return the row groups of a Parquet file in parts of about equal size; None for a file of another kind."""
    out: list[list[int] | None] = []
    rows = PART
    for row_group in getattr(fragment, "row_groups", ()):
        if rows >= PART:
            out.append([])
            rows = 0
        out[-1].append(row_group.id)  # type: ignore[union-attr]
        rows += row_group.num_rows
    return out or [None]


def _kind(type_: pa.DataType) -> str:
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


def _check_schema(place: str, file_schema: Schema, fixed: dict, schema: Schema, names: list) -> None:
    """Refuse a file that lacks a column, or has it of another kind than the first file."""
    for name in names:
        if name in fixed:
            continue
        if name not in file_schema.names:
            raise DataError(
                f"{place} has no column {name!r}, which others have. Leave the file out, or write it again.",
                column=name,
                argument="data",
            )
        here, there = file_schema.field(name).type, schema.field(name).type
        if _kind(here) != _kind(there) and "none" not in (_kind(here), _kind(there)):
            raise DataError(
                f"column {name!r} is of type {here} in {place}, and of type {there} elsewhere: values could not be "
                "told to be the same. Write the file again with one type.",
                column=name,
                argument="data",
            )
