"""`Source`: data that can be gone over more than once, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from bbl.design.frames import DeclaredOrder, Frame, decoded
from bbl.errors import BBLError, BBLTypeError, DataError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa
    from distributed import Client

__all__ = ["BUFFER", "ROWS", "Batch", "Source", "arrow_batch", "pyarrow_for"]

ROWS = 65536  # of a batch, where the source lets it be chosen
BUFFER = 2**20  # bytes of a column that are read at a time


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


def arrow_batch(batch: pa.RecordBatch, place: str, declared: DeclaredOrder) -> Batch:
    """Return a pyarrow RecordBatch as a batch; `declared` is what the schema of its source says of categories."""
    names = tuple(batch.schema.names)

    def get(k: int) -> pd.Series:
        return decoded(batch.column(k), names[k] in declared.categories)

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
    parts: Callable[[list, Client], list[tuple]] | None = None
    distributed: bool = False

    def frame(self, argument: str) -> Frame:
        """Return a table of no rows with these columns, which raises the error of a column that is not there."""
        return Frame(self.columns, pd.RangeIndex(0), lambda k: pd.Series(dtype=object), argument)

    def has(self, name: object) -> bool:
        """Return whether `name`, of any type, is the name of a column."""
        return isinstance(name, Hashable) and name in self.columns

    def batches(self, names: Iterable[Hashable]) -> Iterator[Batch]:
        """Yield all rows; an error of the reader becomes a DataError that names the source."""
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


def pyarrow_for(what: str) -> ModuleType:
    """Return pyarrow, which reads `what`."""
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
