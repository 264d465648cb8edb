"""Rows over which effects are averaged: training rows, new rows, or a grid, in units that are averaged separately."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.checks import choice, near_match
from bbl.design.frames import to_frame
from bbl.design.weights import named_weights, own_weights
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.results.effects.fit import EffectFit
from bbl.results.effects.questions import level_codes, predictor_numbers
from bbl.rows.sample import Sample, code_dtype

__all__ = ["GRIDS", "EffectRows", "effect_rows"]

MAX_GRID = 1_000_000  # rows of a balanced grid
GRIDS = ("balanced", "mode")


@dataclass(frozen=True)
class EffectRows:
    """Rows in U units: the values of `by`, or single rows.

    Attributes
    ----------
    codes : ndarray, shape (n, m)
        Level codes, unit after unit.
    missing : ndarray of bool, shape (n, m), or None
    weights : ndarray, shape (n,)
        They sum to 1 in every unit.
    starts : ndarray of int, shape (U + 1,)
        Unit u has the rows ``starts[u]:starts[u + 1]``.
    keys : DataFrame
        A row for each unit, and a column for each name of `by`; of single rows the column ``row`` with their labels.
    text : str
        What the rows are, for the note under tables.
    is_rowwise : bool
        Whether units are single rows.
    """

    codes: np.ndarray
    missing: np.ndarray | None
    weights: np.ndarray
    starts: np.ndarray
    keys: pd.DataFrame
    text: str
    is_rowwise: bool

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.starts) - 1

    def units(self, first: int, stop: int) -> EffectRows:
        """Return the units ``first:stop``."""
        rows = slice(int(self.starts[first]), int(self.starts[stop]))
        return EffectRows(
            self.codes[rows], None if self.missing is None else self.missing[rows], self.weights[rows],
            self.starts[first : stop + 1] - self.starts[first], self.keys.iloc[first:stop], self.text,
            self.is_rowwise,
        )  # fmt: skip


@dataclass(frozen=True)
class _Encoded:
    """Encoded rows with labels, and the table that they come from."""

    codes: np.ndarray
    missing: np.ndarray | None
    weights: np.ndarray
    index: pd.Index
    text: str
    table_and_kept: tuple[Any, np.ndarray] | None = None  # the table of new rows, and which of them are kept


def effect_rows(
    fit: EffectFit, newdata: object, weights: Any, grid: object, by: object, is_rowwise: bool
) -> EffectRows:
    """Return the rows of a call; arguments as of ``fit.avg_comparisons``, each row a unit if `is_rowwise`."""
    if grid is not None and newdata is not None:
        raise OptionError("Give newdata or grid, not both: a grid makes its own rows.", argument="grid")
    if newdata is None:
        own_weights(weights)
    rows = _grid(fit, grid) if grid is not None else _training(fit) if newdata is None else _new(fit, newdata, weights)
    if is_rowwise:
        starts = np.arange(len(rows.codes) + 1)
        keys = pd.DataFrame({"row": rows.index.to_numpy()}).reset_index(drop=True)
        return EffectRows(rows.codes, rows.missing, np.ones(len(rows.codes)), starts, keys, rows.text, True)
    return _units(fit, rows, by)


def _training(fit: EffectFit) -> _Encoded:
    """Return the training rows."""
    if fit.training is None:
        raise DataError(
            "This model has no training rows to average over: it was saved without them, or fitted to data that were "
            "read in batches. Give newdata= or grid=; or save it with store_data=True."
        )
    rows = fit.training
    return _Encoded(rows.codes, rows.missing, rows.weights, fit._index(), "training rows")


def _new(fit: EffectFit, newdata: object, weights: Any) -> _Encoded:
    """Return new rows without those of weight 0 and those that the fit would have dropped."""
    frame = to_frame(newdata, "newdata")
    codes, missing = fit.design.encode(frame)
    row_weights = named_weights(weights, frame, whole=False)[1]
    dropped = fit.design.dropped(frame)
    keep = (row_weights > 0) & (True if dropped is None else ~dropped)
    if not keep.any():
        raise DataError("newdata has no row with a prediction; give rows without missing values.", argument="newdata")
    missing = None if missing is None else missing[keep]
    return _Encoded(codes[keep], missing, row_weights[keep], frame.index[keep], "new rows", (frame, keep))


def _grid(fit: EffectFit, grid: object) -> _Encoded:
    """Return made rows: all combinations of levels, the modes of all predictors, or given levels of some."""
    labels = fit.labels
    values: list[list[int]] = [[int(np.argmax(counts.sum(axis=0)))] for counts in fit._counts]
    if isinstance(grid, Mapping):
        for name, levels in grid.items():
            i = predictor_numbers(labels, [name], "grid")[0]
            values[i] = level_codes(labels, i, levels, "grid")
        text = "a grid"
    elif not isinstance(grid, str):
        raise BBLTypeError(
            f"grid must be 'balanced', 'mode' or a dict of levels by predictor; got {grid!r}.", argument="grid"
        )
    elif choice("grid", grid, GRIDS) == "balanced":
        values, text = [list(range(len(levels))) for levels in labels.levels], "a balanced grid"
    else:
        text = "the row of the modes"
    n = math.prod(len(v) for v in values)
    if n > MAX_GRID:
        raise OptionError(
            f"The grid would have {n:.0e} rows, more than {MAX_GRID:,}. Give grid='mode', or a dict of levels of some "
            "predictors.",
            argument="grid",
        )
    codes = np.array(list(itertools.product(*values))).reshape(n, len(values)).astype(code_dtype(fit.design.n_levels))
    codes = _possible(fit, codes)
    return _Encoded(codes, None, np.ones(len(codes)), pd.RangeIndex(len(codes)), text)


def _possible(fit: EffectFit, codes: np.ndarray) -> np.ndarray:
    """Return the rows of a grid (n, m) without those in cells that cannot occur (structural zeros)."""
    while len(codes):
        try:
            fit._encoded_scores(codes, None, None, None)
        except ImpossibleRowsError as error:
            codes = codes[~error.rows]
        else:
            return codes
    raise OptionError(
        "The grid has no row that can occur: all are in cells of structural_zeros. Give other levels.", argument="grid"
    )


def _units(fit: EffectFit, rows: _Encoded, by: object) -> EffectRows:
    """Return rows in units of equal values of `by`, equal rows merged, in a fixed order."""
    names, numbers, keys = _by(fit, rows, by)
    parts = []
    for unit in range(len(keys)):
        of_unit = numbers == unit
        missing = None if rows.missing is None else rows.missing[of_unit]
        sample = Sample(np.ascontiguousarray(rows.codes[of_unit]), rows.weights[of_unit], None, missing)
        parts.append(sample.collapsed(fit.design.n_levels))
    missing = None
    if rows.missing is not None:
        missing = np.concatenate([np.zeros(p.codes.shape, bool) if p.missing is None else p.missing for p in parts])
    return EffectRows(
        np.concatenate([p.codes for p in parts]),
        missing if missing is not None and missing.any() else None,
        np.concatenate([p.weights / p.weights.sum() for p in parts]),
        np.cumsum([0, *(p.n for p in parts)]),
        pd.DataFrame(keys, columns=pd.Index(names, dtype=object, tupleize_cols=False), dtype=object),
        rows.text,
        False,
    )


def _by(fit: EffectFit, rows: _Encoded, by: object) -> tuple[list[Hashable], np.ndarray, list[list]]:
    """Return the names of `by`, the number of the unit of each row (n,), and the values of each unit."""
    if by is None:
        return [], np.zeros(len(rows.codes), dtype=np.intp), [[]]
    predictors = list(fit.labels.names)
    names = [by] if isinstance(by, str) or (isinstance(by, Hashable) and by in predictors) else None
    if names is None:
        if not isinstance(by, list | tuple | np.ndarray):
            raise BBLTypeError(f"by must be a name or a list of names; got {by!r}.", argument="by")
        names = list(by)
    if not names:
        return _by(fit, rows, None)
    columns, values = [], []
    for name in names:
        if name in predictors:
            i = predictors.index(name)
            column, levels = rows.codes[:, i].astype(np.intp), list(fit.labels.levels[i])
            if rows.missing is not None:
                column = np.where(rows.missing[:, i], len(levels), column)
                levels.append(None)
        else:
            column, levels = _new_column(rows, name, predictors)
        columns.append(column)
        values.append(levels)
    if len(set(names)) < len(names):
        raise OptionError(f"by names a column twice: {names!r}.", argument="by")
    combinations, numbers = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    keys = [[levels[code] for levels, code in zip(values, row, strict=True)] for row in combinations.tolist()]
    return names, numbers.ravel(), keys


def _new_column(rows: _Encoded, name: Hashable, predictors: list) -> tuple[np.ndarray, list]:
    """Return codes (n,) and values of a column of the new rows that is no predictor; the last, None, is a gap."""
    frame, kept = rows.table_and_kept or (None, None)
    if frame is None or not frame.has(name):
        columns = predictors if frame is None else [*predictors, *frame.columns]
        raise OptionError(
            f"by={name!r} is no predictor{near_match(name, columns) or '.'} Name predictors, or columns of newdata.",
            argument="by",
        )
    column = pd.Series(np.asarray(frame.column(name), dtype=object)[kept])
    codes, distinct = pd.factorize(column, use_na_sentinel=True)
    values: list[Any] = list(distinct)
    try:
        order = sorted(range(len(values)), key=lambda k: values[k])
    except TypeError:  # values of types that have no order stay in the order in which they come
        order = list(range(len(values)))
    rank = np.empty(len(values) + 1, dtype=np.intp)
    rank[order] = np.arange(len(values))
    rank[-1] = len(values)  # of missing values, whose code is -1: they come last
    return rank[codes], [*(values[k] for k in order), None]
