"""Sources for Parquet files and pyarrow Datasets, which are read one fragment at a time, without
reading ahead.

A *fragment* is one file of a Dataset; a Parquet file consists of *row groups*. *Partition keys* are
columns whose values are part of the directory names.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bbl.design.frames import declared_order, is_dictionary
from bbl.design.streams.source import (
    BATCH_ROWS,
    BUFFER_BYTES,
    Batch,
    FileVersions,
    Source,
    arrow_batch,
    pyarrow_for,
)
from bbl.errors import BBLError, BBLTypeError, DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from distributed import Client
    from pyarrow import Schema
    from pyarrow.dataset import Dataset, Fragment

__all__ = ["SUFFIXES", "dataset_source", "parquet_source"]

PART_ROWS = 2**19  # minimum number of rows of a Parquet file that are read in a cluster task
SUFFIXES = (".parquet", ".parq", ".pq")


def _find_files(path: str, argument: str) -> list[str]:
    """Return the sorted Parquet files in a path, directory or glob, or raise an error."""
    if os.path.isdir(path):
        paths_in_folder = sorted(str(p) for p in Path(path).rglob("*") if p.suffix in SUFFIXES)
        # skip hidden files and directories
        paths = [
            p
            for p in paths_in_folder
            if not any(name[0] in "._" for name in Path(p).relative_to(path).parts)
        ]
    elif os.path.exists(path):
        paths = [path]
    else:
        paths = sorted(glob.glob(path, recursive=True))
    is_formula = "~" in path and os.sep not in path and Path(path).suffix not in SUFFIXES
    is_path = os.sep in path or Path(path).suffix or glob.has_magic(path)
    if not paths and (is_formula or not is_path):  # `data` is probably not intended as a path
        raise BBLTypeError(
            f"{argument} must be a table (a pandas or polars DataFrame, a pyarrow Table, a dict "
            f"of lists) or the path of Parquet data; got the string {path!r}.",
            argument=argument,
            hint="Pass the formula first, then the data." if is_formula else None,
            value=path,
        )
    if not paths:
        raise DataError(
            f"{argument}={path!r} is not a Parquet file, or a directory or glob of Parquet files "
            f"({', '.join(SUFFIXES)}).",
            argument=argument,
            hint="Check the path. Read files in other formats into a table first.",
            value=path,
        )
    return paths


def parquet_source(paths: list[str], argument: str) -> Source:
    """Return the Parquet files in paths, directories and globs as one source."""
    pa = pyarrow_for("A Parquet file")
    files = [file for path in paths for file in _find_files(path, argument)]
    root = paths[0] if len(paths) == 1 and os.path.isdir(paths[0]) else None
    # within a directory, names of subdirectories such as year=2024 contain partition keys
    partitioning = (
        pa.dataset.partitioning(flavor="hive")
        if any("=" in file for file in files) and root
        else None
    )
    try:
        data = pa.dataset.dataset(
            files, format="parquet", partitioning=partitioning, partition_base_dir=root
        )
    except Exception as error:
        raise DataError(
            f"{argument}: {files[0]!r} cannot be read as Parquet ({error}).",
            argument=argument,
            hint=(
                "Read it first: data=pandas.read_csv(path)."
                if files[0].endswith((".csv", ".tsv", ".txt", ".csv.gz"))
                else "Check the file."
            ),
        ) from error
    if len(files) == 1:
        return dataset_source(data, repr(files[0]))
    return dataset_source(data.replace_schema(_schema_of_all(data)), "the Parquet data")


def _schema_of_all(data: Dataset) -> Schema:
    """Return the schema of the first file, followed by columns that occur only in later files."""
    import pyarrow as pa

    fields = {field.name: field for field in data.schema}
    for fragment in data.get_fragments():
        try:
            file_schema = fragment.physical_schema
        except (pa.ArrowException, OSError):  # an error that names the file is raised later
            continue
        for field in file_schema:
            # nullable, because the column is missing in the first file
            fields.setdefault(field.name, field.with_nullable(True))
    return pa.schema(fields.values(), metadata=data.schema.metadata)


def dataset_source(
    data: Dataset, text: str, only: tuple[int, list[int] | None] | None = None
) -> Source:
    """Return a pyarrow Dataset as a source, which is called `text` in messages.

    With ``only=(k, row_groups)``, the source contains only these row groups (None for all) of
    fragment k.
    """
    pa = pyarrow_for("A Dataset")
    ds = pa.dataset
    schema = data.schema

    def read(names: list) -> Iterator[Batch]:
        """Yield the batches of all fragments with the columns `names`."""
        k, row_groups = (0, None) if only is None else only
        # all fragments, or only fragment k
        for fragment in islice(data.get_fragments(), k, None if only is None else k + 1):
            if row_groups is not None:
                fragment = fragment.subset(row_group_ids=row_groups)
            place = _place_of(fragment.path) if getattr(fragment, "path", "") else text
            try:
                yield from read_fragment(fragment, place, names)
            except BBLError:
                raise
            except Exception as error:
                error.bbl_place = place  # type: ignore[attr-defined]  # for `Source.batches`
                raise

    def read_fragment(fragment: Fragment, place: str, names: list) -> Iterator[Batch]:
        """Yield the batches of one fragment.

        Text columns are read as Arrow dictionaries, and partition keys are added as columns.
        """
        file_schema = fragment.physical_schema
        partition_keys = ds.get_partition_keys(fragment.partition_expression)
        _check_schema(place, file_schema, partition_keys, schema, names)
        file_columns = [name for name in names if name not in partition_keys]
        types = {name: file_schema.field(name).type for name in file_columns}
        texts = [
            name
            for name, type_ in types.items()
            if _kind(type_) == "text" and not is_dictionary(type_)
        ]
        declared = declared_order(file_schema, partition_keys)
        if isinstance(fragment, ds.ParquetFileFragment):
            # If a column is not stored as a dictionary, the order of its categories is unknown.
            # Such columns (`lost`) raise an error if the order matters.
            lost = _stored_without_dictionary(fragment, declared.categories | declared.ordered)
            declared = declared._replace(
                categories=declared.categories - lost, lost=declared.lost | lost
            )
            # the same fragment, with options to read text columns as dictionaries and the file in
            # pieces
            options = ds.ParquetReadOptions(dictionary_columns=texts)
            scan = ds.ParquetFragmentScanOptions(
                use_buffered_stream=True, buffer_size=BUFFER_BYTES, pre_buffer=False
            )
            file_format = ds.ParquetFileFormat(
                read_options=options, default_fragment_scan_options=scan
            )
            # the fragment may only have some of the file's row groups
            row_groups = [row_group.id for row_group in fragment.row_groups]
            fragment = file_format.make_fragment(
                fragment.path, fragment.filesystem, row_groups=row_groups
            )
        # The filter of Dataset.filter(), or None. Fragments do not contain it, and there is no
        # public attribute.
        row_filter = getattr(data, "_scan_options", {}).get("filter")
        one_at_a_time = {
            "batch_size": BATCH_ROWS,
            "batch_readahead": 0,
            "fragment_readahead": 0,
            "use_threads": False,
        }
        for batch in fragment.to_batches(columns=file_columns, filter=row_filter, **one_at_a_time):
            for name in names:
                if name in partition_keys:
                    batch = batch.append_column(
                        name, pa.array([partition_keys[name]] * batch.num_rows)
                    )
            yield arrow_batch(batch, place, declared)

    def parts(names: list, client: Client) -> list[tuple]:
        """Return (function, *arguments) for the source of each part; see `Source.parts`.

        The parameters are for other sources and are not used here.
        """
        return [
            (dataset_source, data, text, (k, row_groups))
            for k, fragment in enumerate(data.get_fragments())
            for row_groups in _split_row_groups(fragment)
        ]

    def file_versions() -> FileVersions:
        """Return the size and modification time of each file; see `Source.file_versions`."""
        paths = getattr(data, "files", [])  # datasets of tables in memory have no files
        if not paths:
            return {}
        return {
            _place_of(info.path): (info.size, info.mtime_ns)
            for info in data.filesystem.get_file_info(paths)
        }

    return Source(tuple(schema.names), read, text, parts, file_versions=file_versions)


def _place_of(path: str) -> str:
    """Return the name of a file in messages."""
    return f"the file {path!r}"


def _stored_without_dictionary(fragment: Fragment, names: frozenset[str]) -> frozenset[str]:
    """Return the columns in `names` that are stored without a dictionary.

    Such columns of a Parquet file do not have a declared order.
    """
    column_paths = set()
    # without names, the metadata do not need to be read
    for row_group in fragment.row_groups if names else ():
        metadata = fragment.metadata.row_group(row_group.id)
        columns = (metadata.column(j) for j in range(metadata.num_columns))
        column_paths |= {
            column.path_in_schema for column in columns if not column.has_dictionary_page
        }
    return names & column_paths


def _split_row_groups(fragment: Fragment) -> list[list[int] | None]:
    """Return lists of consecutive row groups of a Parquet file, or [None] for other file formats.

    Each list except the last contains at least `PART_ROWS` rows.
    """
    parts: list[list[int] | None] = []
    # number of rows of the last part; initially full, so that the first row group starts a new part
    n_rows = PART_ROWS
    for row_group in getattr(fragment, "row_groups", ()):
        if n_rows >= PART_ROWS:
            parts.append([])
            n_rows = 0
        parts[-1].append(row_group.id)  # type: ignore[union-attr]
        n_rows += row_group.num_rows
    return parts or [None]


def _kind(type_: pa.DataType) -> str:
    """Return "bool", "number", "text" or "none" (nulls) for an Arrow type, or the name of any other
    type.
    """
    import pyarrow.types as pat

    if pat.is_dictionary(type_):
        return _kind(type_.value_type)
    if pat.is_boolean(type_):
        return "bool"
    if pat.is_integer(type_) or pat.is_floating(type_) or pat.is_decimal(type_):
        return "number"
    if pat.is_string(type_) or pat.is_large_string(type_) or pat.is_string_view(type_):
        return "text"
    return "none" if pat.is_null(type_) else str(type_)


def _check_schema(
    place: str, file_schema: Schema, partition_keys: dict, schema: Schema, names: list
) -> None:
    """Raise an error if one of the columns `names` of a file is absent, or differs in kind from
    `schema`.

    `schema` is the source's schema, and `place` the file's name in messages; `partition_keys` maps
    the partition keys in the file's path to their values.
    """
    for name in names:
        if name in partition_keys:
            continue
        if name not in file_schema.names:
            raise DataError(
                f"{place} has no column {name!r}, but other files do.",
                column=name,
                argument="data",
                hint="Leave the file out, or rewrite it.",
            )
        file_type = file_schema.field(name).type
        source_type = schema.field(name).type
        # a column of nulls ("none") matches any other
        if _kind(file_type) != _kind(source_type) and "none" not in (
            _kind(file_type),
            _kind(source_type),
        ):
            raise DataError(
                f"column {name!r} is of type {file_type} in {place} but of type {source_type} "
                f"elsewhere, so values cannot be compared.",
                column=name,
                argument="data",
                hint="Rewrite the files with a common type.",
            )
