"""Types of data arguments: tables, data read in batches, weights and folds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pandas as pd
from numpy.typing import ArrayLike

from bbl.design.frames import Frame
from bbl.rows.folds import Splitter

__all__ = ["Batches", "RowFolds", "Splitter", "TableLike", "Weights"]


class InterchangeTable(Protocol):
    """A polars DataFrame, pyarrow Table or other table in memory that supports the dataframe
    interchange protocol.
    """

    def __dataframe__(self, nan_as_null: bool = ..., allow_copy: bool = ...) -> Any:
        """Return the table in the form defined by the protocol."""
        ...


class ArrowStream(Protocol):
    """A pyarrow RecordBatchReader, DuckDB relation or other object that can be read as batches of
    Arrow data.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = ...) -> object:
        """Return a capsule that contains a stream of the Arrow C interface."""
        ...


TableLike: TypeAlias = Frame | pd.DataFrame | InterchangeTable | ArrowStream | Mapping[Any, Any]
Batches: TypeAlias = (
    str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Callable[[], Iterator[TableLike]]
    | ArrowStream
)
Weights: TypeAlias = str | ArrayLike  # a column name, or one number for each row
# positions of training and validation rows
RowFolds: TypeAlias = Splitter | Iterable[tuple[ArrayLike, ArrayLike]]
