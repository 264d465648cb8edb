"""Tables of predictions, prediction of new rows in batches, and prediction files.

Below, n is the number of rows and K is the number of groups.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from bbl.design.design import Design
from bbl.design.frames import Frame, to_frame
from bbl.design.streams.parquet import SUFFIXES
from bbl.design.streams.reader import place_in_errors
from bbl.design.streams.source import Source, TrainingSource
from bbl.design.weights import check_weights
from bbl.errors import DataError, OptionError
from bbl.parallel import progress_bar
from bbl.report.text import distinct_names
from bbl.stats.metrics import first_largest, least_cost, link, log_probabilities

__all__ = [
    "Block",
    "as_polars",
    "find_weights_column",
    "is_polars",
    "new_blocks",
    "new_frames",
    "prediction_frame",
    "write_frames",
]


def prediction_frame(
    scores: np.ndarray,
    groups: tuple,
    type: str,
    index: pd.Index,
    response: Hashable,
    costs: np.ndarray | None = None,
) -> pd.DataFrame | pd.Series:
    """Return predictions from class scores (n, K): a column for each group and ``yhat``, or only
    ``yhat`` if `type` is "class".

    ``yhat`` is the most probable group or, with `costs` (K, K; observed by predicted), the group
    with the lowest expected cost. It is missing if scores are nan. Depending on `type`, the other
    columns contain probabilities or links, where the link of a group is its score minus the
    log-sum-exp of the other scores.
    """
    # column names in addition to yhat; as categories, groups keep their type in the data
    columns = pd.Index(groups, dtype=object)
    predicted = (
        first_largest(scores) if costs is None else least_cost(log_probabilities(scores), costs)
    )
    group_codes = np.where(np.isnan(scores).any(axis=1), -1, predicted)
    # yhat_ if a group is named yhat
    name = response if type == "class" else distinct_names([*groups, "yhat"])[-1]
    yhat = pd.Series(
        pd.Categorical.from_codes(group_codes, columns.infer_objects()), index=index, name=name
    )
    if type == "class":
        return yhat
    score_columns = link(scores) if type == "link" else np.exp(log_probabilities(scores))
    return pd.concat([pd.DataFrame(score_columns, index=index, columns=columns), yhat], axis=1)


def new_frames(design: Design, newdata: object, source: Source | None) -> Iterator[Frame]:
    """Yield tables with the predictors in new rows: the batches of `source`, or all rows of
    `newdata` if `source` is None.

    Pandas tables keep their index. The rows of Arrow batches are numbered from 0, continuing across
    batches.
    """
    if source is None:
        yield to_frame(newdata, "newdata")
        return
    # `source.frame` returns a table without rows, to check the names of columns
    names = [f.name for f in design.predictors]
    empty_frame = source.frame("newdata")
    n_read = 0
    for name in names:
        empty_frame.column(name)  # raises a DataError if the source lacks the column
    for frame, _ in source.batches(names):  # _: name of the file or part
        # `arrow` is None for pandas tables
        row_labels = frame.index if frame.arrow is None else pd.RangeIndex(n_read, n_read + frame.n)
        n_read += frame.n
        yield replace(frame, index=row_labels, argument="newdata")


@dataclass(frozen=True)
class Block:
    """Encoded rows of one batch, without dropped rows and rows of weight 0.

    Attributes
    ----------
    codes : ndarray, shape (n, m)
    missing : ndarray of bool, shape (n, m), or None
    weights : ndarray, shape (n,)
    y : ndarray of intp, shape (n,)
        Group of each row, -1 if unknown; zeros if not requested.
    left_out : float
        Total weight of the dropped rows in the batch.
    n_left_out : int
        Number of dropped rows with a positive weight.
    """

    codes: np.ndarray
    missing: np.ndarray | None
    weights: np.ndarray
    y: np.ndarray
    left_out: float
    n_left_out: int


def find_weights_column(design: Design, source: Source, weights: object) -> Hashable | None:
    """Return the name of the weights column of new rows that are read in batches, or None.

    By default this is the column that contained the training weights, if the new data have it.
    """
    if weights is None:
        return design.weights if source.has(design.weights) else None
    if source.has(weights):
        return weights
    raise OptionError(
        f"weights must be the name of a column because {source.text} is read in batches; "
        f"got {weights!r}.",
        argument="weights",
        hint="Add them to the data as a column.",
    )


def new_blocks(
    design: Design,
    source: Source,
    weights: Hashable | None,
    title: str,
    *,
    unseen: str = "raise",
    has_response: bool = False,
    training: TrainingSource | None = None,
    verbose: int = 1,
) -> Iterator[Block]:
    """Yield the encoded rows of each batch of a source, and show a progress bar.

    Parameters
    ----------
    design : Design
    source : Source
    weights : column name, optional
    title : str
        Title of the progress bar.
    unseen : {"raise", "ignore"}
    has_response : bool, default False
        Whether to read the response.
    training : TrainingSource, optional
        The same source, if it contains the training data. An error is then raised if a file was
        modified after the fit or if its number of rows has changed.
    verbose : int, default 1
    """
    names = [f.name for f in design.predictors]
    names += [design.response.name] * has_response
    names += [] if weights is None else [weights]
    empty_frame = source.frame("newdata")
    for name in names:
        empty_frame.column(name)  # raises a DataError if the source lacks the column
    if training is not None:
        training.check_files()
    n_read = 0
    rows_by_place: Counter[str] = Counter()
    with progress_bar(None, title, verbose) as progress:
        for frame, place in source.batches(names):
            n_read += frame.n
            rows_by_place[place] += frame.n
            with place_in_errors(place):
                yield _encode_block(design, frame, weights, unseen, has_response)
            progress(1.0, f"{n_read:,} rows")
    if training is not None:
        training.check(rows_by_place)


def _encode_block(
    design: Design, frame: Frame, weights: Hashable | None, unseen: str, has_response: bool
) -> Block:
    """Return the encoded rows of a batch that are used."""
    frame = replace(frame, argument="newdata")
    row_weights = np.ones(frame.n)
    if weights is not None:
        row_weights = check_weights(frame.column(weights), frame.n, whole=False, part=True)
    y = design.encode_response(frame) if has_response else np.zeros(frame.n, dtype=np.intp)
    dropped = design.dropped(frame)
    is_used = (row_weights > 0.0) & (True if dropped is None else ~dropped)
    codes, missing = design.encode(frame, unseen)
    left_out = float(row_weights[~is_used].sum())  # rows of weight 0 add nothing
    n_left_out = int((row_weights[~is_used] > 0.0).sum())
    if not is_used.all():
        codes = codes[is_used]
        missing = None if missing is None else missing[is_used]
        row_weights = row_weights[is_used]
        y = y[is_used]
    return Block(codes, missing, row_weights, y, left_out, n_left_out)


def as_polars(predictions: pd.DataFrame | pd.Series) -> Any:
    """Return predictions as a polars DataFrame or Series without row labels.

    Groups have the same type as in the data.
    """
    import polars as pl

    def convert(name: str, series: pd.Series) -> pl.Series:
        """Return one column as a polars Series."""
        return pl.Series(name, [None if pd.isna(value) else value for value in series.tolist()])

    if isinstance(predictions, pd.Series):
        return convert(str(predictions.name), predictions)
    names = distinct_names(map(str, predictions.columns))
    return pl.DataFrame([convert(name, predictions.iloc[:, k]) for k, name in enumerate(names)])


def is_polars(data: object) -> bool:
    """Return whether `data` is a polars DataFrame. Does not require polars."""
    return (
        type(data).__module__.partition(".")[0] == "polars" and type(data).__name__ == "DataFrame"
    )


def write_frames(frames: Iterator[pd.DataFrame], path: str | os.PathLike[str]) -> int:
    """Write frames with the same columns to one CSV or Parquet file, depending on its extension,
    and return the number of rows.

    The file has the name ``path + ".part"`` until it is complete.
    """
    target = Path(path)
    unfinished_path = target.with_name(target.name + ".part")
    writer = _make_writer(target, unfinished_path)
    n_rows_written = 0
    try:
        for frame in frames:
            with _convert_write_errors(target):
                writer.write(frame)
            n_rows_written += len(frame)
        if not writer.is_open:
            raise DataError(
                "newdata has no rows, so there is nothing to write.", argument="newdata"
            )
        with _convert_write_errors(target):
            writer.close()
            os.replace(unfinished_path, target)
    except BaseException:
        with suppress(OSError):  # if the disk is full, closing also fails
            writer.close()
        unfinished_path.unlink(missing_ok=True)
        raise
    return n_rows_written


def _make_writer(target: Path, unfinished_path: Path) -> _CSVWriter | _ParquetWriter:
    """Return the writer for the file type of `target`, or raise an error if it is not supported."""
    suffix = target.suffix.lower()
    if suffix == ".csv":
        return _CSVWriter(unfinished_path)
    if suffix in SUFFIXES or not suffix:
        return _ParquetWriter(unfinished_path)
    raise OptionError(
        f"to={str(target)!r} is neither a CSV nor a Parquet file.",
        argument="to",
        value=str(target),
        hint="Pass a name that ends in .csv or .parquet.",
    )


class _CSVWriter:
    """Writes frames to one CSV file, which is opened by the first frame."""

    def __init__(self, path: Path):
        self.path = path
        self.file: IO[str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a frame was written."""
        return self.file is not None

    def write(self, frame: pd.DataFrame) -> None:
        """Append the rows of a frame; the first frame also writes the column names."""
        is_first = self.file is None
        if self.file is None:
            self.file = self.path.open("w", encoding="utf-8", newline="")
        frame.to_csv(self.file, index=False, header=is_first, lineterminator="\n")

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()


class _ParquetWriter:
    """Writes frames to one Parquet file, which is opened by the first frame."""

    def __init__(self, path: Path):
        self.path = path
        self.writer: Any = None

    @property
    def is_open(self) -> bool:
        """Whether a frame was written."""
        return self.writer is not None

    def write(self, frame: pd.DataFrame) -> None:
        """Append the rows of a frame."""
        from pyarrow import Table
        from pyarrow.parquet import ParquetWriter

        table = Table.from_pandas(_make_labels_text(frame), preserve_index=False)
        if self.writer is None:
            self.writer = ParquetWriter(self.path, table.schema)
        self.writer.write_table(table)

    def close(self) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()


def _make_labels_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return predictions with text column names for Parquet.

    The groups (last column) are converted to text if they have different types.
    """
    *columns, yhat = (frame.iloc[:, k] for k in range(frame.shape[1]))
    if infer_dtype(yhat.cat.categories).startswith("mixed"):
        yhat = yhat.cat.rename_categories(distinct_names(map(str, yhat.cat.categories)))
    return pd.concat([*columns, yhat], axis=1).set_axis(
        distinct_names(map(str, frame.columns)), axis=1
    )


@contextmanager
def _convert_write_errors(target: Path) -> Iterator[None]:
    """Convert an OSError in the ``with`` block to a DataError that names the file and the
    reason.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"predictions cannot be written to {str(target)!r} ({error.strerror or error}).",
            argument="to",
            hint="Free some space, or pass another directory.",
        ) from error
