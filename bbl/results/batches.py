"""Frames of predictions, and of rows read in batches: one frame after the other, or all in a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

from bbl.design.design import Design
from bbl.design.frames import Frame, to_frame
from bbl.design.streams.source import Source
from bbl.errors import DataError
from bbl.names import distinct_names
from bbl.stats.scores import least_cost, link, log_probabilities
from bbl.stats.ties import first_largest

__all__ = ["new_frames", "prediction_frame", "write_frames"]


def prediction_frame(
    scores: np.ndarray, groups: tuple, type: str, index: pd.Index, response: Hashable, costs: np.ndarray | None = None
) -> pd.DataFrame | pd.Series:
    """Return class scores (n, K) as R's frame of predictions; for ``type="class"`` the predicted groups alone.

    Predicted is the most likely group or, with a matrix of `costs` (K, K), that of least expected cost.
    """
    columns = pd.Index(groups, dtype=object)
    chosen = first_largest(scores) if costs is None else least_cost(log_probabilities(scores), costs)
    codes = np.where(np.isnan(scores).any(axis=1), -1, chosen)
    name = response if type == "class" else distinct_names([*groups, "yhat"])[-1]
    best = pd.Series(pd.Categorical.from_codes(codes, columns.infer_objects()), index=index, name=name)
    if type == "class":
        return best
    values = link(scores) if type == "link" else np.exp(log_probabilities(scores))
    return pd.concat([pd.DataFrame(values, index=index, columns=columns), best], axis=1)


def new_frames(design: Design, newdata: object, source: Source | None) -> Iterator[Frame]:
    """Yield the predictors of new rows, batch by batch from a source, or at once from a table.

    Rows of Arrow data are numbered on from batch to batch; tables of pandas keep their index.
    """
    if source is None:
        yield to_frame(newdata, "newdata")
        return
    names, empty, n_read = [f.name for f in design.predictors], source.frame("newdata"), 0
    for name in names:
        empty.column(name)  # raises if the source lacks it
    for frame, _ in source.batches(names):
        index = frame.index if frame.arrow is None else pd.RangeIndex(n_read, n_read + frame.n)
        n_read += frame.n
        yield replace(frame, index=index, argument="newdata")


def write_frames(frames: Iterator[pd.DataFrame], path: str | os.PathLike) -> int:
    """Write frames with the same columns to one Parquet file; return the number of rows.

    They go to ``path + ".part"``, which gets its final name when all are written.
    """
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

    target = Path(path)
    unfinished, writer, n = target.with_name(target.name + ".part"), None, 0
    try:
        for frame in frames:
            table = Table.from_pandas(_as_text(frame), preserve_index=False)
            with _writing(target):
                if writer is None:
                    writer = ParquetWriter(unfinished, table.schema)
                writer.write_table(table)
            n += len(frame)
        if writer is None:
            raise DataError("newdata has no rows, so there is nothing to write.", argument="newdata")
        with _writing(target):
            writer.close()
            os.replace(unfinished, target)
    except BaseException:
        if writer is not None:
            with suppress(OSError):  # a full disk raises again
                writer.close()
        unfinished.unlink(missing_ok=True)
        raise
    return n


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of predictions for Parquet: column names, and groups of mixed types in its last, as text."""
    *columns, groups = (frame.iloc[:, k] for k in range(frame.shape[1]))
    if infer_dtype(groups.cat.categories).startswith("mixed"):
        groups = groups.cat.rename_categories(distinct_names(map(str, groups.cat.categories)))
    return pd.concat([*columns, groups], axis=1).set_axis(distinct_names(map(str, frame.columns)), axis=1)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turn an OSError into a DataError that names the file and the reason."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"predictions cannot be written to {str(target)!r} ({error.strerror or error}). Free some room, or give "
            "another folder.",
            argument="to",
        ) from error
