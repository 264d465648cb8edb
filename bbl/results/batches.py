"""Predictions as frames, also of rows that are read in batches: frame by frame, or as a Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

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
    scores: np.ndarray, groups: tuple, type: str, index: pd.Index, response: Any, costs: np.ndarray | None = None
) -> pd.DataFrame | pd.Series:
    """Return class scores (n, K) as R's frame of predictions, or the groups alone: most likely, or of least cost."""
    columns = pd.Index(groups, dtype=object)
    chosen = first_largest(scores) if costs is None else least_cost(log_probabilities(scores), costs)
    codes = np.where(np.isnan(scores).any(axis=1), -1, chosen)
    name = response if type == "class" else distinct_names([*groups, "yhat"])[-1]
    best = pd.Series(pd.Categorical.from_codes(codes, columns.infer_objects()), index=index, name=name)
    if type == "class":
        return best
    values = link(scores) if type == "link" else np.exp(log_probabilities(scores))
    return pd.concat([pd.DataFrame(values, index=index, columns=columns), best], axis=1)


def new_frames(design: Design, newdata: Any, source: Source | None) -> Iterator[Frame]:
    """Yield the rows of a source, or of a table, with the predictors of a model.

    Rows of Arrow data are numbered on from batch to batch; tables of pandas keep their index.
    """
    if source is None:
        yield to_frame(newdata, "newdata")
        return
    names, known, first = [f.name for f in design.predictors], source.frame("newdata"), 0
    for name in names:
        known.column(name)
    for frame, _ in source.batches(names):
        index = frame.index if frame.arrow is None else pd.RangeIndex(first, first + frame.n)
        first += frame.n
        yield replace(frame, index=index, argument="newdata")


def write_frames(frames: Iterator[pd.DataFrame], path: Any) -> int:
    """Write frames with the same columns to one Parquet file, whose name appears when it is whole; return the rows."""
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

    target = Path(path)
    part, writer, n = target.with_name(target.name + ".part"), None, 0
    try:
        for frame in frames:
            table = Table.from_pandas(_as_text(frame), preserve_index=False)
            with _writing(target):
                if writer is None:
                    writer = ParquetWriter(part, table.schema)
                writer.write_table(table)
            n += len(frame)
        if writer is None:
            raise DataError("newdata has no rows, so there is nothing to write.", argument="newdata")
        with _writing(target):
            writer.close()
            os.replace(part, target)
    except BaseException:
        if writer is not None:
            with suppress(OSError):  # of a disk that is full, again
                writer.close()
        part.unlink(missing_ok=True)
        raise
    return n


def _as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of predictions for Parquet: names are text, and so are groups of several types in its last."""
    *columns, groups = (frame.iloc[:, k] for k in range(frame.shape[1]))
    if infer_dtype(groups.cat.categories).startswith("mixed"):
        groups = groups.cat.rename_categories(distinct_names(map(str, groups.cat.categories)))
    return pd.concat([*columns, groups], axis=1).set_axis(distinct_names(map(str, frame.columns)), axis=1)


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Say what cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"predictions cannot be written to {str(target)!r} ({error.strerror or error}). Free some room, or give "
            "another folder.",
            argument="to",
        ) from error
