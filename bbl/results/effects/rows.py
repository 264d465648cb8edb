"""Rows over which effects are averaged: training rows, new rows, or a grid, in units that are
averaged separately.

n rows of m predictors, U units. Codes are the numbers of levels: code a of predictor i is
``labels.levels[i][a]``.
"""

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
from bbl.design.weights import name_new_rows, refuse_weights
from bbl.errors import BBLTypeError, DataError, Hint, OptionError
from bbl.results.classifier_base import ClassifierBase
from bbl.results.effects.contrasts import find_level_codes, find_predictors
from bbl.rows.sample import Sample, code_dtype

__all__ = ["GRIDS", "EffectRows", "make_effect_rows"]

MAX_GRID = 1_000_000  # rows of a balanced grid
GRIDS = ("balanced", "mode")  # values of the argument `grid` besides a dict


@dataclass(frozen=True)
class EffectRows:
    """Rows in U units: the values of `by`, or single rows.

    Attributes
    ----------
    codes : ndarray, shape (n, m)
        Level codes, unit after unit.
    missing : ndarray of bool, shape (n, m), or None
        Missing cells; None if there are none.
    weights : ndarray, shape (n,)
        Weights of the rows in the average of their unit; they sum to 1 in every unit.
    starts : ndarray of int, shape (U + 1,)
        Unit u has the rows ``starts[u]:starts[u + 1]``; no unit is empty.
    keys : DataFrame
        A row for each unit: the values of the columns that `by` names, or the label of the row in
        the column ``row``.
    text : str
        Description of the rows in titles, such as "training rows".
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
        """Return the rows of the units ``first:stop``, as units 0, 1, ..."""
        rows = slice(int(self.starts[first]), int(self.starts[stop]))
        return EffectRows(
            self.codes[rows],
            None if self.missing is None else self.missing[rows],
            self.weights[rows],
            self.starts[first : stop + 1] - self.starts[first],
            self.keys.iloc[first:stop],
            self.text,
            self.is_rowwise,
        )


@dataclass(frozen=True)
class _EncodedRows:
    """Encoded rows, not yet in units.

    Attributes
    ----------
    codes : ndarray, shape (n, m)
        Level codes.
    missing : ndarray of bool, shape (n, m), or None
        Missing cells; None if there are none.
    weights : ndarray, shape (n,)
    index : pandas.Index
        Labels of the rows.
    text : str
        Description of the rows in titles.
    table_and_kept : (Frame, ndarray of bool) or None
        Of new rows: the table that they come from, and which of its rows are kept. None for other
        rows.
    """

    codes: np.ndarray
    missing: np.ndarray | None
    weights: np.ndarray
    index: pd.Index
    text: str
    table_and_kept: tuple[Any, np.ndarray] | None = None


def make_effect_rows(
    fit: ClassifierBase, newdata: object, weights: Any, grid: object, by: object, is_rowwise: bool
) -> EffectRows:
    """Return the rows of a call in units, over each of which effects are averaged separately.

    A unit is all rows with equal values of `by`; if `is_rowwise`, each row is a unit, and `by` is
    not used. `newdata`, `weights`, `grid` and `by` are arguments of ``fit.avg_comparisons``.
    """
    if grid is not None and newdata is not None:
        raise OptionError(
            "newdata and grid exclude each other: a grid makes its own rows.",
            argument="grid",
            hint="Give newdata or grid.",
        )
    if newdata is None:
        if weights is not None:
            refuse_weights(
                weights
            )  # raises an error if there are any: weights are those of new rows
    else:
        newdata = to_frame(newdata, "newdata")
        if is_rowwise and weights is None:
            weights = np.ones(newdata.n)  # single rows are not weighted; none is left out
    rows = (
        _make_grid(fit, grid)
        if grid is not None
        else _get_training_rows(fit)
        if newdata is None
        else _encode_new_rows(fit, newdata, weights)
    )
    if is_rowwise:
        starts = np.arange(len(rows.codes) + 1)  # one row in each unit, with weight 1
        keys = pd.DataFrame({"row": rows.index.to_numpy()})
        return EffectRows(
            rows.codes,
            rows.missing,
            np.ones(len(rows.codes)),
            starts,
            keys,
            rows.text,
            is_rowwise=True,
        )
    return _merge_units(fit, rows, by)


def _get_training_rows(fit: ClassifierBase) -> _EncodedRows:
    """Return the training rows; a DataError if the model has none."""
    if fit.training is None:
        raise DataError(
            "This model has no training rows to average over: it was saved without them, or "
            "fitted to data that were read in batches.",
            hint=Hint(
                "Give newdata= or grid=; or save it with store_data=True.",
                command_line="Give a table after the model, or --grid; or save the model with "
                "--store-data.",
            ),
        )
    rows = fit.training
    return _EncodedRows(rows.codes, rows.missing, rows.weights, fit._index(), "training rows")


def _encode_new_rows(fit: ClassifierBase, newdata: object, weights: Any) -> _EncodedRows:
    """Return new rows without those of weight 0 and those that the fit would have dropped for
    missing values.

    `weights` is an array, the name of a column of `newdata`, or None for weights of 1. A DataError
    if no row remains.
    """
    frame = to_frame(newdata, "newdata")
    codes, missing = fit.design.encode(frame)
    row_weights, weights_column = fit.design.weigh(frame, weights)
    dropped = fit.design.dropped(frame)  # (n,), or None if the fit drops no rows
    is_kept = (row_weights > 0) & (True if dropped is None else ~dropped)
    if not is_kept.any():
        raise DataError(
            "newdata has no row with a prediction.",
            argument="newdata",
            hint="Give rows without missing values.",
        )
    missing = None if missing is None else missing[is_kept]
    return _EncodedRows(
        codes[is_kept],
        missing,
        row_weights[is_kept],
        frame.index[is_kept],
        name_new_rows(weights_column),
        (frame, is_kept),
    )


def _make_grid(fit: ClassifierBase, grid: object) -> _EncodedRows:
    """Return the rows that `grid` describes, each of weight 1: all combinations of some levels of
    each predictor.

    If `grid` is "balanced" these are all levels of a predictor, if it is "mode" the most frequent
    one. A dict names the levels of some predictors; the others have their most frequent level.
    """
    labels = fit.labels
    # the most frequent level: `_counts` has the weighted counts (K, L_i) of its L_i levels for each
    # predictor
    code_lists: list[list[int]] = [[int(np.argmax(counts.sum(axis=0)))] for counts in fit._counts]
    if isinstance(grid, Mapping):
        for name, levels in grid.items():
            (i,) = find_predictors(labels, [name], "grid")
            code_lists[i] = find_level_codes(labels, i, levels, "grid")
        text = "a grid"
    elif not isinstance(grid, str):
        raise BBLTypeError(
            f"grid must be 'balanced', 'mode' or a dict of levels by predictor; got {grid!r}.",
            argument="grid",
            value=grid,
        )
    elif choice("grid", grid, GRIDS) == "balanced":
        code_lists = [list(range(len(levels))) for levels in labels.levels]
        text = "a balanced grid"
    else:
        text = "the row of the modes"
    n = math.prod(len(code_list) for code_list in code_lists)
    if n > MAX_GRID:
        raise OptionError(
            f"The grid would have {n:.0e} rows, more than {MAX_GRID:,}.",
            argument="grid",
            hint="Give grid='mode', or a dict of levels of some predictors.",
        )
    codes = (
        # without predictors it is (1, 0): one row of no cells
        np.array(list(itertools.product(*code_lists)))
        .reshape(n, len(code_lists))
        .astype(code_dtype(fit.design.n_levels))
    )
    codes = _drop_impossible(fit, codes)
    return _EncodedRows(codes, None, np.ones(len(codes)), pd.RangeIndex(len(codes)), text)


def _drop_impossible(fit: ClassifierBase, codes: np.ndarray) -> np.ndarray:
    """Return the rows of a grid (n, m) without those in cells that cannot occur (structural zeros).

    The fit refuses to score such rows by an error whose ``rows`` (n,) says which they are. An
    OptionError if no row remains.
    """
    # a loop: each member of an average has its own zeros, and the first that refuses rows raises
    while len(codes):
        try:
            fit._encoded_scores(codes, missing=None, dropped=None, priors=None)
        except ImpossibleRowsError as error:
            codes = codes[~error.rows]
        else:
            return codes
    raise OptionError(
        "The grid has no row that can occur: all are in cells of structural_zeros.",
        argument="grid",
        hint="Give other levels.",
    )


def _merge_units(fit: ClassifierBase, rows: _EncodedRows, by: object) -> EffectRows:
    """Return rows in units of equal values of `by`, a single unit of all rows if it is None.

    Within a unit equal rows are merged, and ordered by their codes, so that sums do not depend on
    the order of `rows`.
    """
    names, unit_numbers, keys = _number_units(fit, rows, by)
    merged_units = []
    for unit in range(len(keys)):
        is_in_unit = unit_numbers == unit
        missing = None if rows.missing is None else rows.missing[is_in_unit]
        unit_sample = Sample(
            np.ascontiguousarray(rows.codes[is_in_unit]),
            rows.weights[is_in_unit],
            y=None,
            missing=missing,
        )
        # equal rows merged, with summed weights
        merged_units.append(unit_sample.collapsed(fit.design.n_levels))
    missing = None
    if rows.missing is not None:  # then each `merged` has a mask too; its declared type allows None
        missing = np.concatenate(
            [
                np.zeros(merged.codes.shape, bool) if merged.missing is None else merged.missing
                for merged in merged_units
            ]
        )
    return EffectRows(
        np.concatenate([merged.codes for merged in merged_units]),
        missing if missing is not None and missing.any() else None,
        np.concatenate([merged.weights / merged.weights.sum() for merged in merged_units]),
        np.cumsum([0, *(merged.n for merged in merged_units)]),  # starts
        pd.DataFrame(
            keys, columns=pd.Index(names, dtype=object, tupleize_cols=False), dtype=object
        ),
        rows.text,
        is_rowwise=False,
    )


def _number_units(
    fit: ClassifierBase, rows: _EncodedRows, by: object
) -> tuple[list[Hashable], np.ndarray, list[list]]:
    """Return (the names of `by`, the unit number of each row (n,), the values of these names in
    each unit).
    """
    if by is None:
        return [], np.zeros(len(rows.codes), dtype=np.intp), [[]]  # one unit, without values
    predictors = list(fit.labels.names)
    # a tuple may be the name of a predictor; lists, which are not hashable, never are
    names = [by] if isinstance(by, str) or (isinstance(by, Hashable) and by in predictors) else None
    if names is None:
        if not isinstance(by, list | tuple | np.ndarray):
            raise BBLTypeError(
                f"by must be a name or a list of names; got {by!r}.", argument="by", value=by
            )
        names = list(by)
    if not names:
        return _number_units(fit, rows, by=None)
    codes_by_name = []
    levels_by_name = []
    for name in names:
        if name in predictors:
            i = predictors.index(name)
            column_codes = rows.codes[:, i].astype(np.intp)
            levels = list(fit.labels.levels[i])
            if rows.missing is not None:  # missing cells have a further code, for None
                column_codes = np.where(rows.missing[:, i], len(levels), column_codes)
                levels.append(None)
        else:
            column_codes, levels = _encode_by_column(rows, name, predictors)
        codes_by_name.append(column_codes)
        levels_by_name.append(levels)
    if len(set(names)) < len(names):
        raise OptionError(f"by names a column twice: {names!r}.", argument="by")
    # the distinct rows of codes are the units, in the order of these codes
    combinations, unit_numbers = np.unique(
        np.column_stack(codes_by_name), axis=0, return_inverse=True
    )
    keys = [
        [levels[code] for levels, code in zip(levels_by_name, row, strict=True)]
        for row in combinations.tolist()
    ]
    return names, unit_numbers.ravel(), keys  # ravel: (n, 1) in some versions of numpy


def _encode_by_column(
    rows: _EncodedRows, name: Hashable, predictors: list
) -> tuple[np.ndarray, list]:
    """Return (codes (n,), values) of the column `name` of new rows, which is no predictor; code k
    is ``values[k]``.

    Values are sorted, if they have an order; the last value, None, stands for missing cells.
    `predictors` are the names of the predictors, for the error if there is no such column.
    """
    frame, is_kept = rows.table_and_kept or (None, None)
    if frame is None or not frame.has(name):
        candidates = predictors if frame is None else [*predictors, *frame.columns]
        raise OptionError(
            f"by={name!r} is not a predictor.",
            argument="by",
            hint=f"{near_match(name, candidates)}Name predictors, or columns of newdata.",
            value=name,
        )
    cells = pd.Series(np.asarray(frame.column(name), dtype=object)[is_kept])
    codes, first_seen_values = pd.factorize(cells, use_na_sentinel=True)
    distinct_values: list[Any] = list(first_seen_values)
    try:
        order = sorted(range(len(distinct_values)), key=lambda k: distinct_values[k])
    except TypeError:  # values without a common order stay in the order of their first rows
        order = list(range(len(distinct_values)))
    rank = np.empty(len(distinct_values) + 1, dtype=np.intp)
    rank[order] = np.arange(len(distinct_values))
    rank[-1] = len(distinct_values)  # missing values have the code -1, which takes the last rank
    return rank[codes], [*(distinct_values[k] for k in order), None]
