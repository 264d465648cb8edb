"""`Source`: data that can be read repeatedly, in batches.

A *part* of a source is read in one task on a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import pandas as pd

from bbl.design.frames import DeclaredOrder, Frame, decode_arrow
from bbl.errors import BBLError, BBLTypeError, DataError

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa
    from distributed import Client

__all__ = [
    "BATCH_ROWS",
    "BUFFER_BYTES",
    "Batch",
    "FileVersions",
    "Source",
    "TrainingSource",
    "arrow_batch",
    "changed_file",
    "pyarrow_for",
]

BATCH_ROWS = 65536  # number of rows of a batch, if the source allows a choice
BUFFER_BYTES = 2**20  # number of bytes of a column that are read at a time


# Maps the place of each file in messages to its size in bytes and its modification time in
# nanoseconds (None if unknown).
FileVersions = dict[str, tuple[int | None, int | None]]


class Batch(NamedTuple):
    """Some rows of a source."""

    frame: Frame  # the rows as a table
    place: str  # the file or partition of the rows, for messages; may be empty


def arrow_batch(batch: pa.RecordBatch, place: str, declared: DeclaredOrder) -> Batch:
    """Return a pyarrow RecordBatch as a `Batch`.

    `declared` contains the names of the columns declared as categories in the source's schema.
    """
    names = tuple(batch.schema.names)

    def get(k: int) -> pd.Series:
        """Return column k."""
        return decode_arrow(batch.column(k), declared=names[k] in declared.categories)

    return Batch(
        Frame(names, pd.RangeIndex(batch.num_rows), get, "data", arrow=batch, declared=declared),
        place,
    )


@dataclass(frozen=True)
class Source:
    """Data that can be read repeatedly, in batches.

    Attributes
    ----------
    columns : tuple of column names
        All columns of the data.
    read : callable
        ``read(names)`` returns an iterator of batches with these columns.
    text : str
        Name of the data in messages, such as ``"the LazyFrame"``.
    parts : callable, optional
        ``parts(names, client)`` returns a tuple (function, *arguments) for each part. On a worker,
        ``function(*arguments)`` returns the source of the part.
    distributed : bool
        Whether the data are already on the workers of a cluster.
    is_reread : bool
        Whether the data can be read again after the fit; False for a stream that can be read only
        once and is kept in a temporary copy during the fit.
    file_versions : callable, optional
        ``file_versions()`` returns the size and the time of the last change of each file, by the
        file's place in messages.
    """

    columns: tuple[Hashable, ...]
    read: Callable[[list], Iterator[Batch]]
    text: str
    parts: Callable[[list, Client], list[tuple]] | None = None
    distributed: bool = False
    is_reread: bool = True
    file_versions: Callable[[], FileVersions] = dict

    def frame(self, argument: str) -> Frame:
        """Return an empty table with these columns, which is used to check names.

        `argument` is its name in messages.
        """
        return Frame(self.columns, pd.RangeIndex(0), lambda k: pd.Series(dtype=object), argument)

    def has(self, name: object) -> TypeGuard[Hashable]:
        """Return whether there is a column `name`, which may have any type."""
        return isinstance(name, Hashable) and name in self.columns

    def batches(self, names: Iterable[Hashable]) -> Iterator[Batch]:
        """Yield all rows with the columns `names`, and convert errors of the reader to
        DataErrors.
        """
        place = self.text
        batches = self.read(list(dict.fromkeys(names)))  # each name only once
        try:
            for batch in batches:
                place = batch.place or self.text
                yield batch
        except (BBLError, MemoryError):
            raise
        # pyarrow, duckdb, polars, dask and readers of users raise errors of many types
        except Exception as error:
            # readers set this attribute if an error occurs before the first batch of a file
            place = getattr(error, "bbl_place", place)
            raise DataError(
                f"{place} cannot be read ({type(error).__name__}: {error}).",
                argument="data",
                hint="Check the source, or read it again.",
            ) from error
        finally:
            if hasattr(batches, "close"):  # a generator may hold open files
                batches.close()


@dataclass(frozen=True, eq=False)
class TrainingSource:
    """The training data of a fit, which can be read again for results that require all rows.

    Attributes
    ----------
    source : Source
    rows : dict of str to int
        Number of rows of each file or partition.
    file_versions : dict
        `Source.file_versions` at the time of the fit.
    """

    source: Source
    rows: dict[str, int]
    file_versions: FileVersions

    def __reduce__(self) -> tuple:
        """Pickle as None, because readers cannot be pickled."""
        return type(None), ()

    def check_files(self) -> None:
        """Raise a DataError that names the first file that was modified since the fit."""
        place = changed_file(self.file_versions, self.source.file_versions())
        if place is not None:
            raise DataError(
                f"{place} changed since the fit.",
                argument="data",
                hint="Refit the model, or pass newdata=.",
            )

    def check(self, rows: dict[str, int]) -> None:
        """Raise a DataError that names the first file or partition that was modified, or whose
        number of rows changed, since the fit.
        """
        for place in dict.fromkeys((*self.rows, *rows)):
            n_before = self.rows.get(place, 0)
            n_now = rows.get(place, 0)
            if n_before != n_now:
                raise DataError(
                    f"{place or self.source.text} changed since the fit: it had "
                    f"{n_before:,} rows then and has {n_now:,} rows now.",
                    argument="data",
                    hint="Refit the model, or pass newdata=.",
                )
        self.check_files()


def changed_file(before: FileVersions, now: FileVersions) -> str | None:
    """Return the name of the first file with a different size or modification time, or None."""
    places = dict.fromkeys((*before, *now))
    return next((place for place in places if before.get(place) != now.get(place)), None)


def pyarrow_for(what: str) -> ModuleType:
    """Return the module pyarrow; if it is not installed, raise a BBLTypeError that `what` requires
    it.
    """
    try:
        import pyarrow
        import pyarrow.dataset  # noqa: F401  # modules that callers use
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise BBLTypeError(
            f"{what} cannot be read without pyarrow, which is not installed.",
            argument="data",
            hint="Install the extra: pip install 'boltzmann-bayes[arrow]'.",
        ) from None
    return pyarrow
