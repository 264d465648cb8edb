"""Computation of effects: rows to average over, average probabilities in scenarios, contrasts,
standard errors and intervals.
"""
# Dimensions: S scenarios (some predictors set to a level each in every row), Q quantities
# (contrasts of averages of scenarios), U units (sets of rows that are averaged, or single rows), K
# groups, n rows of m predictors, R replicates (refits or posterior draws).
#
# Delta method: with coefficients b of covariance V, a quantity q of averages A_s has the variance
# ``g' V g``, where ``g = sum_s (dq / dA_s) (dA_s / db)``. The statistic is (q - null) / se, where
# ``null`` is the value under no effect: 0, or 1 for ratios. With numeric predictors, intervals are
# asymmetric, and se is replaced by the width on the side of ``null``; see `_with_moved_limits`.

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from bbl.boltzmann.structural_zeros import ImpossibleRowsError
from bbl.checks import choice, near_match
from bbl.crossval import Scores
from bbl.design.frames import to_frame
from bbl.design.numbers import NumberFactor
from bbl.design.streams.adapters import lazy_source
from bbl.design.weights import name_new_rows, refuse_weights
from bbl.errors import BBLTypeError, DataError, Hint, OptionError
from bbl.memory import check_memory
from bbl.model.location_gradient import NumberScoreGradient
from bbl.model.score_gradient import ScoreGradient
from bbl.results.batches import Block, find_weights_column, new_blocks
from bbl.results.classifier_base import ClassifierBase
from bbl.results.effect_contrasts import (
    TRANSFORMS,
    Contrasts,
    Scenario,
    Shift,
    contrast_values,
    find_level_codes,
    find_predictors,
)
from bbl.results.error_source import DeltaMethod
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities
from bbl.stats.student import t_quantile, two_sided_p
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "GRIDS",
    "EffectRows",
    "EffectValues",
    "StreamedRows",
    "estimate_by_delta_method",
    "estimate_by_design_replicates",
    "estimate_by_replicates",
    "estimate_effects",
    "estimate_streamed",
    "make_effect_rows",
    "make_streamed_rows",
]


MAX_GRID = 1_000_000  # rows of a balanced grid
GRIDS = ("balanced", "mode")  # values of the argument `grid` other than a dict


@dataclass(frozen=True)
class EffectRows:
    """Rows in U units: groups of rows with equal values of `by`, or single rows.

    Attributes
    ----------
    codes : ndarray, shape (n, m)
        Level codes, unit after unit.
    missing : ndarray of bool, shape (n, m), or None
        Missing cells; None if there are none.
    weights : ndarray, shape (n,)
        Weights of the rows in the average of their unit; they sum to 1 in every unit.
    starts : ndarray of int, shape (U + 1,)
        Unit u consists of the rows ``starts[u]:starts[u + 1]``; units are not empty.
    keys : DataFrame
        A row for each unit: the values of the columns in `by`, or the row label in the column
        ``row``.
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
        """Return the rows of the units ``first:stop``, renumbered from 0."""
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
    """Encoded rows that are not yet assigned to units.

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
        For new rows: their table, and a mask of the rows that are kept. None for other rows.
    """

    codes: np.ndarray
    missing: np.ndarray | None
    weights: np.ndarray
    index: pd.Index
    text: str
    table_and_kept: tuple[Any, np.ndarray] | None = None


@dataclass(frozen=True)
class StreamedRows:
    """Rows of data read in batches, in units with equal values of some predictors.

    Attributes
    ----------
    blocks : callable
        ``blocks()`` returns an iterator over all blocks of rows and displays the progress.
    by : list of int
        Positions of the predictors whose levels define the units.
    n_levels : tuple of int
        Number of levels of these predictors.
    names : list
        Names of these predictors.
    levels : list of tuple
        Levels of these predictors.
    text : str
        Description of the rows in titles.
    """

    blocks: Callable[[], Iterator[Block]]
    by: list[int]
    n_levels: tuple[int, ...]
    names: list[Hashable]
    levels: list[tuple]
    text: str

    @property
    def n_units(self) -> int:
        """Number of units, including units without rows."""
        return math.prod(self.n_levels)

    def parts(self) -> Iterator[tuple[np.ndarray, EffectRows]]:
        """Yield the unit numbers and the rows of each block. Rows keep their own weights."""
        for block in self.blocks():
            if not len(block.codes):
                continue
            if block.missing is not None and block.missing[:, self.by].any():
                raise DataError(
                    "A predictor in by= has missing values, which are not supported for data "
                    "read in batches.",
                    argument="by",
                    hint="Pass newdata=bbl.sample_rows(data, 100_000).",
                )
            unit_numbers = np.zeros(len(block.codes), dtype=np.intp)
            if self.by:
                by_codes = block.codes[:, self.by].T.astype(np.intp)
                unit_numbers = np.ravel_multi_index(tuple(by_codes), self.n_levels)
            order = np.argsort(unit_numbers, kind="stable") if self.by else slice(None)
            units, starts = np.unique(unit_numbers[order], return_index=True)
            yield (
                units,
                EffectRows(
                    np.ascontiguousarray(block.codes[order]),
                    None if block.missing is None else block.missing[order],
                    block.weights[order],
                    np.append(starts, len(block.codes)),
                    pd.DataFrame(index=range(len(units))),
                    self.text,
                    is_rowwise=False,
                ),
            )

    def keys(self, units: np.ndarray) -> pd.DataFrame:
        """Return the values of the predictors in `by` for some units."""
        codes = np.unravel_index(units, self.n_levels) if self.by else ()
        values = [
            [levels[code] for levels, code in zip(self.levels, row, strict=True)]
            for row in zip(*codes, strict=True)
        ]
        names = pd.Index(self.names, dtype=object, tupleize_cols=False)
        return pd.DataFrame(values if self.by else [[]], columns=names, dtype=object)


def make_streamed_rows(
    fit: ClassifierBase, newdata: object, weights: Any, grid: object, by: object, verbose: int
) -> StreamedRows | None:
    """Return the rows of a call if they are read in batches, and otherwise None.

    These are rows of `newdata`, or training rows that the fit does not keep. Arguments are as in
    `make_effect_rows`.
    """
    training = fit._rereads if newdata is None and grid is None else None
    source = lazy_source(newdata, "newdata") if training is None else training.source
    if source is None or grid is not None:
        return None
    if training is not None:
        refuse_weights(weights)
    column = find_weights_column(fit.design, source, weights)
    predictors = list(fit.labels.names)
    names = [] if by is None else [by] if by in predictors else by
    if not isinstance(names, list | tuple) or not all(name in predictors for name in names):
        raise OptionError(
            f"by must be a list of predictors because {source.text} is read in batches; "
            f"got {by!r}.",
            argument="by",
            hint="List only predictors, or pass newdata=bbl.sample_rows(data, 100_000).",
            value=by,
        )
    positions = [predictors.index(name) for name in names]

    def blocks() -> Iterator[Block]:
        """Read the data."""
        return new_blocks(
            fit.design, source, column, "averaging", training=training, verbose=verbose
        )

    return StreamedRows(
        blocks,
        positions,
        tuple(int(fit.design.n_levels[i]) for i in positions),
        list(names),
        [tuple(fit.labels.levels[i]) for i in positions],
        "training rows"
        if training is not None
        else name_new_rows(column if weights is None else None),
    )


def make_effect_rows(
    fit: ClassifierBase, newdata: object, weights: Any, grid: object, by: object, is_rowwise: bool
) -> EffectRows:
    """Return the rows of a call in units. Effects are averaged within each unit.

    A unit consists of all rows with equal values of `by`. With `is_rowwise`, each row is a unit and
    `by` is ignored. `newdata`, `weights`, `grid` and `by` are described in ``fit.avg_comparisons``.
    """
    if grid is not None and newdata is not None:
        raise OptionError(
            "newdata and grid cannot be combined: a grid generates its own rows.",
            argument="grid",
            hint="Pass newdata or grid.",
        )
    if newdata is None:
        if weights is not None:
            refuse_weights(
                weights
            )  # raises an error if weights are given: they apply only to new rows
    else:
        newdata = to_frame(newdata, "newdata")
        if is_rowwise and weights is None:
            weights = np.ones(newdata.n)  # single rows are unweighted, and none is excluded
    rows = (
        _make_grid(fit, grid)
        if grid is not None
        else _get_training_rows(fit, is_rowwise)
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


def _get_training_rows(fit: ClassifierBase, is_rowwise: bool) -> _EncodedRows:
    """Return the training rows. Raises a DataError if the model has none.

    The order of rows that were read in batches is not known, so effects of single rows
    (`is_rowwise`) are not available.
    """
    kept = fit._kept
    if fit.training is None and (kept is None or not kept.is_complete or is_rowwise):
        raise DataError(
            "This model has no training rows to average over: it was saved without them, or "
            "fitted to data read in batches.",
            hint=Hint(
                "Pass newdata= or grid=, or save the model with store_data=True.",
                command_line=(
                    "Pass a table after the model, use --grid, or save the model with --store-data."
                ),
            ),
        )
    rows = fit._all_rows()
    # rows that were read in batches have no labels
    index = fit._index() if kept is None else pd.RangeIndex(rows.n)
    return _EncodedRows(rows.codes, rows.missing, rows.weights, index, "training rows")


def _encode_new_rows(fit: ClassifierBase, newdata: object, weights: Any) -> _EncodedRows:
    """Return the encoded new rows.

    Rows with weight 0, and rows that the fit would have dropped because of missing values, are
    excluded.

    `weights` is an array, the name of a column of `newdata`, or None for weights of 1. Raises a
    DataError if no row remains.
    """
    frame = to_frame(newdata, "newdata")
    codes, missing = fit.design.encode(frame)
    row_weights, weights_column = fit.design.weigh(frame, weights)
    dropped = fit.design.dropped(frame)  # (n,), or None if the fit drops no rows
    is_kept = (row_weights > 0) & (True if dropped is None else ~dropped)
    if not is_kept.any():
        raise DataError(
            "newdata has no rows that can be predicted.",
            argument="newdata",
            hint="Pass rows without missing values.",
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
    """Return the rows of a `grid`, each with weight 1: all combinations of selected levels of each
    predictor.

    "balanced" selects all levels of a predictor, and "mode" its most frequent level. A dict
    specifies the levels of some predictors; the other predictors have their most frequent level.
    Numeric predictors are set to their means.
    """
    labels = fit.labels
    # the most frequent level: `_counts` has each predictor's weighted level counts (K, L_i)
    code_lists: list[list] = [[int(np.argmax(counts.sum(axis=0)))] for counts in fit._counts]
    means = {i: [cast(NumberFactor, fit.design.predictors[i]).mean] for i in labels.measured}
    for i, mean in means.items():
        code_lists[i] = mean
    if isinstance(grid, Mapping):
        for name, levels in grid.items():
            (i,) = find_predictors(labels, [name], "grid")
            code_lists[i] = find_level_codes(labels, i, levels, "grid")
        text = "a grid"
    elif not isinstance(grid, str):
        raise BBLTypeError(
            "grid must be 'balanced', 'mode' or a dict that maps predictors to levels; "
            f"got {grid!r}.",
            argument="grid",
            value=grid,
        )
    elif choice("grid", grid, GRIDS) == "balanced":
        code_lists = [
            means.get(i, list(range(len(levels)))) for i, levels in enumerate(labels.levels)
        ]
        text = "a balanced grid"
    else:
        text = "a row of the most frequent levels"
    n = math.prod(len(code_list) for code_list in code_lists)
    if n > MAX_GRID:
        raise OptionError(
            f"The grid would have {n:.0e} rows, more than {MAX_GRID:,}.",
            argument="grid",
            hint="Use grid='mode', or a dict of levels of some predictors.",
        )
    codes = (
        # without predictors: shape (1, 0), one row without cells
        np.array(list(itertools.product(*code_lists)))
        .reshape(n, len(code_lists))
        .astype(fit.design.code_dtype)
    )
    codes = _drop_impossible(fit, codes)
    return _EncodedRows(codes, None, np.ones(len(codes)), pd.RangeIndex(len(codes)), text)


def _drop_impossible(fit: ClassifierBase, codes: np.ndarray) -> np.ndarray:
    """Return the rows of a grid (n, m), except rows in cells that cannot occur (structural zeros).

    Such rows are identified by the attribute ``rows`` (n,) of the error that is raised when they
    are scored. Raises an OptionError if no row remains.
    """
    # a loop: each member of an average has its own zeros, and only the first error is raised
    while len(codes):
        try:
            fit._encoded_scores(codes, missing=None, dropped=None, priors=None)
        except ImpossibleRowsError as error:
            codes = codes[~error.rows]
        else:
            return codes
    raise OptionError(
        "Every row of the grid is in a cell that is a structural zero.",
        argument="grid",
        hint="Use other levels.",
    )


def _merge_units(fit: ClassifierBase, rows: _EncodedRows, by: object) -> EffectRows:
    """Return rows in units with equal values of `by`, or in a single unit if `by` is None.

    Within a unit, equal rows are merged and sorted by their codes, which makes sums independent of
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
        # merge equal rows and sum their weights
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
    """Return the names in `by`, the unit number (n,) of each row, and the values of these columns
    in each unit.
    """
    if by is None:
        return [], np.zeros(len(rows.codes), dtype=np.intp), [[]]  # one unit, without values
    predictors = list(fit.labels.names)
    # a tuple may be a predictor's name; a list is not hashable and cannot be one
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
            if i in fit.labels.measured:
                raise OptionError(
                    f"by={name!r} is a numeric predictor, which has no levels.",
                    argument="by",
                    hint="Use predictors with levels, or a column of intervals in newdata.",
                )
            column_codes = rows.codes[:, i].astype(np.intp)
            levels = list(fit.labels.levels[i])
            if rows.missing is not None:  # missing cells get an additional code, for None
                column_codes = np.where(rows.missing[:, i], len(levels), column_codes)
                levels.append(None)
        else:
            column_codes, levels = _encode_by_column(rows, name, predictors)
        codes_by_name.append(column_codes)
        levels_by_name.append(levels)
    if len(set(names)) < len(names):
        raise OptionError(f"by contains a duplicate column: {names!r}.", argument="by")
    # the distinct rows of codes are the units, sorted by these codes
    combinations, unit_numbers = np.unique(
        np.column_stack(codes_by_name), axis=0, return_inverse=True
    )
    keys = [
        [levels[code] for levels, code in zip(levels_by_name, row, strict=True)]
        for row in combinations.tolist()
    ]
    return names, unit_numbers.ravel(), keys  # ravel: (n, 1) in some numpy versions


def _encode_by_column(
    rows: _EncodedRows, name: Hashable, predictors: list
) -> tuple[np.ndarray, list]:
    """Return the codes (n,) and values of a column of new rows that is not a predictor; code k
    means ``values[k]``.

    Values are sorted if they can be compared. The last value, None, represents missing cells.
    `predictors` contains the names of the predictors, for the error if the column does not exist.
    """
    frame, is_kept = rows.table_and_kept or (None, None)
    if frame is None or not frame.has(name):
        candidates = predictors if frame is None else [*predictors, *frame.columns]
        raise OptionError(
            f"by={name!r} is not a predictor.",
            argument="by",
            hint=f"{near_match(name, candidates)}Use predictors or columns of newdata.",
            value=name,
        )
    cells = pd.Series(np.asarray(frame.column(name), dtype=object)[is_kept])
    codes, first_seen_values = pd.factorize(cells, use_na_sentinel=True)
    distinct_values: list[Any] = list(first_seen_values)
    try:
        order = sorted(range(len(distinct_values)), key=lambda k: distinct_values[k])
    except TypeError:  # values that cannot be compared are ordered by first occurrence
        order = list(range(len(distinct_values)))
    rank = np.empty(len(distinct_values) + 1, dtype=np.intp)
    rank[order] = np.arange(len(distinct_values))
    rank[-1] = len(distinct_values)  # missing values have the code -1, which is ranked last
    return rank[codes], [*(distinct_values[k] for k in order), None]


BLOCK = 2**22  # derivatives that are in memory at a time, in numbers: 32 MiB
# smallest distance between a contrast and its limit, relative to the symmetric half-width
LEAST_WIDTH = 0.25


@dataclass(frozen=True)
class EffectValues:
    """Estimates of all quantities, with standard errors, limits and tests.

    Attributes
    ----------
    estimate : ndarray, shape (Q, U, K)
    std_error, low, high, statistic, p : ndarray, shape (Q, U, K)
        Standard errors, limits of the intervals, test statistics and p-values; nan if not
        available.
    has_errors : bool
        Whether standard errors were computed.
    is_partial : ndarray of bool, shape (Q, U, K), or None
        Whether the standard error excludes some survey replicates because their estimates are not
        finite; None for other sources of standard errors.
    is_impossible : ndarray of bool, shape (Q, U), or None
        Whether a scenario of the quantity sets rows to levels that cannot occur together
        (structural zeros).
    """

    estimate: np.ndarray
    std_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    statistic: np.ndarray
    p: np.ndarray
    has_errors: bool = True
    is_partial: np.ndarray | None = None
    is_impossible: np.ndarray | None = None


def _set_levels(rows: EffectRows, scenario: Scenario) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the codes (n, m) and missing cells (n, m) or None of rows after setting the levels of
    a scenario.
    """
    codes = rows.codes.copy()
    missing = None if rows.missing is None else rows.missing.copy()
    for i, code in scenario:
        if isinstance(code, Shift):  # missing numbers stay missing
            codes[:, i] += code.amount
            continue
        codes[:, i] = code
        if missing is not None:
            missing[:, i] = False
    return codes, missing if missing is not None and missing.any() else None


def average_probabilities(contrasts: Contrasts, rows: EffectRows, scores: Scores) -> np.ndarray:
    """Return the average probabilities of the groups in each scenario and unit, shape (S, U, K)."""
    # `_row_probabilities` returns codes, missing cells and, at [2], the probabilities
    return np.array(
        [
            _average_by_unit(_row_probabilities(scores, rows, scenario)[2], rows)
            for scenario in contrasts.scenarios
        ]
    )


def _row_probabilities(
    scores: Scores, rows: EffectRows, scenario: Scenario
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return codes (n, m), missing cells (n, m) or None, and probabilities (n, K) of rows in a
    scenario.

    Probabilities are nan if the scenario moves a row to a cell that cannot occur. For such rows,
    the function `scores` of a fit raises an `ImpossibleRowsError`, and the class score function of
    a refit returns -inf for all groups.
    """
    codes, missing = _set_levels(rows, scenario)
    try:
        with np.errstate(invalid="ignore"):  # -inf - -inf is nan
            return codes, missing, np.exp(log_probabilities(scores(codes, missing)))
    except ImpossibleRowsError as error:
        if not scenario:  # the rows themselves cannot occur
            raise
        # (n,): the rows without scores are those that cannot occur
        possible = ~error.rows
        K = error.n_groups
    # a second call scores the other rows, if any; it does not use the weights and units of
    # `possible_rows`
    possible_rows = replace(
        rows, codes=codes[possible], missing=None if missing is None else missing[possible]
    )
    p = np.full((len(codes), K), np.nan)
    if possible.any():
        p[possible] = _row_probabilities(scores, possible_rows, scenario)[2]
    return codes, missing, p


def _average_by_unit(p: np.ndarray, rows: EffectRows) -> np.ndarray:
    """Return the averages (U, K) of probabilities (n, K) over the rows of each unit, with weights
    that sum to 1.
    """
    # sums from each start to the next, or to the end
    return np.add.reduceat(p * rows.weights[:, None], rows.starts[:-1], axis=0)


def compute_contrasts(contrasts: Contrasts, average_by_scenario: np.ndarray) -> np.ndarray:
    """Compute the quantities (Q, U, K) from the averages (S, U, K)."""
    transform = contrasts.transform
    return np.array(  # [0]: without derivatives
        [
            contrast_values(transform, average_by_scenario[q.scenarios], q.signs)[0]
            for q in contrasts.quantities
        ]
    )


def estimate_effects(contrasts: Contrasts, rows: EffectRows, scores: Scores) -> EffectValues:
    """Compute estimates only; standard errors, limits and tests are nan."""
    return _without_errors(contrasts, average_probabilities(contrasts, rows, scores))


def _without_errors(contrasts: Contrasts, average_by_scenario: np.ndarray) -> EffectValues:
    """Return estimates from averages (S, U, K)."""
    estimates = compute_contrasts(contrasts, average_by_scenario)
    no_values = np.full(estimates.shape, np.nan)
    return EffectValues(
        estimates,
        *(no_values,) * 5,  # std_error, low, high, statistic, p
        has_errors=False,
        is_impossible=_find_impossible(contrasts, average_by_scenario),
    )


def _find_impossible(contrasts: Contrasts, average_by_scenario: np.ndarray) -> np.ndarray:
    """Return a mask (Q, U) of quantities with a scenario whose average is nan, given averages
    (S, U, K).
    """
    return np.array(
        [np.isnan(average_by_scenario[q.scenarios]).any(axis=(0, 2)) for q in contrasts.quantities]
    )


def estimate_by_delta_method(
    contrasts: Contrasts, rows: EffectRows, scores: Scores, delta: DeltaMethod, level: float
) -> EffectValues:
    """Return estimates with standard errors by the delta method, and normal or t limits; with
    numeric predictors, the limits are those of `_with_moved_limits`.

    The t distributions have the degrees of freedom of ``delta.covariance``, which are infinite
    without a sampling design or numeric predictors. Units are processed in blocks, because the
    derivatives of all units may not fit into memory.
    """
    K = delta.gradient.n_groups
    n_coefficients = delta.gradient.n_coefficients
    # derivatives of a unit: (S, K, K, n_coefficients), of K probabilities with respect to the
    # coefficients of K groups, and (Q, K, K, n_coefficients), of quantities
    n_derivatives = max(len(contrasts.scenarios), len(contrasts.quantities)) * K * K
    block_units = max(1, BLOCK // (n_derivatives * n_coefficients))
    blocks = []
    for first_unit in range(0, rows.n_units, block_units):
        units = rows.units(first_unit, min(first_unit + block_units, rows.n_units))
        averages, derivatives = _scenario_sums(contrasts, units, scores, delta.gradient)
        values, df, gradients = _combine(contrasts, averages, derivatives, delta, level)
        if isinstance(delta.gradient, NumberScoreGradient):
            values = _with_moved_limits(
                contrasts, units, scores, delta, values, df, gradients, level
            )
        blocks.append(values)
    return _join_units(blocks)


def _join_units(blocks: Sequence[EffectValues]) -> EffectValues:
    """Return the effects of the units of all blocks."""

    def join(name: str) -> np.ndarray:
        """Return an array of all units."""
        return np.concatenate([getattr(block, name) for block in blocks], axis=1)

    return EffectValues(
        join("estimate"),
        join("std_error"),
        join("low"),
        join("high"),
        join("statistic"),
        join("p"),
        is_impossible=join("is_impossible"),
    )


def estimate_streamed(
    contrasts: Contrasts,
    rows: StreamedRows,
    scores: Scores,
    delta: DeltaMethod | None,
    level: float,
) -> tuple[EffectValues, pd.DataFrame]:
    """Return the effects in rows that are read in batches, and the keys of the units that have
    rows.

    The data are read in one pass. Standard errors require `delta`. At the end, sums over batches
    are divided by the weights of the units.
    """
    S = len(contrasts.scenarios)
    U = rows.n_units
    totals = np.zeros(U)
    sums: np.ndarray | None = None
    derivative_sums: np.ndarray | None = None
    for units, part in rows.parts():
        totals[units] += np.add.reduceat(part.weights, part.starts[:-1])
        averages, derivatives = _scenario_sums(
            contrasts, part, scores, None if delta is None else delta.gradient
        )
        if sums is None:
            sums = np.zeros((S, U, averages.shape[2]))
            if delta is not None:
                check_memory(
                    8.0 * S * U * derivatives[0][0].size,
                    f"Derivatives of {S * U:,} averages",
                    "List fewer predictors in the arguments variables and by.",
                )
                derivative_sums = np.zeros((S, U, *derivatives[0].shape[1:]))
        sums[:, units] += averages
        for s, derivative in enumerate(derivatives):
            assert derivative_sums is not None  # noqa: S101  # there is a delta
            derivative_sums[s, units] += derivative
    if sums is None:
        raise DataError(
            "newdata has no rows that can be predicted.",
            argument="newdata",
            hint="Pass rows without missing values.",
        )
    filled = np.flatnonzero(totals > 0.0)
    average_by_scenario = sums[:, filled] / totals[filled][:, None]
    if delta is None or derivative_sums is None:
        return _without_errors(contrasts, average_by_scenario), rows.keys(filled)
    derivative_averages = derivative_sums[:, filled] / totals[filled][:, None, None, None]
    values, *_ = _combine(contrasts, average_by_scenario, list(derivative_averages), delta, level)
    return values, rows.keys(filled)


def _scenario_sums(
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    gradient: ScoreGradient | NumberScoreGradient | None,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the weighted sums (S, U, K) of probabilities in each scenario and unit, and their
    derivatives.

    There is one array (U, K, K, 1 + size) of derivatives for each scenario if `gradient` is not
    None.
    """
    sums = []
    derivatives = []
    for scenario in contrasts.scenarios:
        codes, missing, p = _row_probabilities(scores, rows, scenario)
        sums.append(_average_by_unit(p, rows))
        if gradient is not None:
            derivatives.append(gradient.sums(codes, missing, p, rows.weights, rows.starts))
    return np.array(sums), derivatives


def _combine(
    contrasts: Contrasts,
    average_by_scenario: np.ndarray,
    derivatives_by_scenario: list[np.ndarray],
    delta: DeltaMethod,
    level: float,
) -> tuple[EffectValues, np.ndarray, list[np.ndarray]]:
    """Return effects with symmetric limits by the delta method, their degrees of freedom (Q, U, K),
    and the gradient (U, K, K, 1 + size) of each quantity.

    The gradient is computed by the chain rule. It combines the derivatives (s, U, K) of a quantity
    with respect to its averages, and the derivatives (U, K, K, 1 + size) of the K averages in each
    of S scenarios with respect to the intercepts and the `size` parameters of all K groups.
    """
    estimates = []
    variances = []
    df = []
    gradients = []
    for quantity in contrasts.quantities:
        contrast, derivatives_by_average = contrast_values(
            contrasts.transform, average_by_scenario[quantity.scenarios], quantity.signs
        )
        gradient = np.zeros(derivatives_by_scenario[0].shape)
        # 0 / 0 and x / 0, if probabilities are 0
        with np.errstate(invalid="ignore", over="ignore"):
            for derivative_by_average, s in zip(
                derivatives_by_average, quantity.scenarios, strict=True
            ):
                gradient += derivative_by_average[:, :, None, None] * derivatives_by_scenario[s]
            variances.append(delta.covariance.variances(gradient))  # (U, K)
            own_df = delta.covariance.degrees_of_freedom(gradient)
            df.append(np.broadcast_to(own_df, variances[-1].shape))
        gradients.append(gradient)
        estimates.append(contrast)
    all_df = np.array(df)
    values = _add_t_limits(contrasts, np.array(estimates), np.sqrt(variances), all_df, level)
    is_impossible = _find_impossible(contrasts, average_by_scenario)
    return replace(values, is_impossible=is_impossible), all_df, gradients


def _with_moved_limits(
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    delta: DeltaMethod,
    values: EffectValues,
    df: np.ndarray,
    gradients: list[np.ndarray],
    level: float,
) -> EffectValues:
    """Return effects with limits that are computed by moving the coefficients by t standard errors
    along the least favourable direction of each effect.

    Averages of probabilities are bounded. The slope of an effect, and with it the standard error,
    therefore depends on the estimates, and symmetric limits are too narrow where the slope is
    small. The limits are those of the ABC method (DiCiccio & Efron 1992) without its bias
    correction and acceleration. Class scores change linearly during a move.

    A contrast of probabilities that are close to 0 or 1 may not be monotone along the move. The
    distance of its limits from the estimate is therefore at least `LEAST_WIDTH` times the symmetric
    half-width. This is the largest deviation from the estimate of a parabola that returns to the
    estimate at the end of the move. Tests divide the distance from the null value by the width of
    the interval on that side, so they agree with the interval.
    """
    K = delta.gradient.n_groups
    # moves (Q, K, U, K, 1 + size) of all coefficients, for each quantity and group
    quantiles = t_quantile(0.5 + level / 2, df)
    moves = []
    for gradient, quantile in zip(gradients, quantiles, strict=True):
        move = delta.covariance.directions(gradient) * quantile[..., None, None]
        moves.append(np.moveaxis(move, 1, 0))
    # averages of a quantity's scenarios, with moves in both directions
    averages = [
        np.empty((2, len(quantity.scenarios), rows.n_units, K)) for quantity in contrasts.quantities
    ]
    for s, scenario in enumerate(contrasts.scenarios):
        codes, missing, p = _row_probabilities(scores, rows, scenario)
        with np.errstate(divide="ignore"):  # ln 0
            log_p = np.log(p)
        users = [
            (q, position)
            for q, quantity in enumerate(contrasts.quantities)
            for position, own in enumerate(quantity.scenarios)
            if own == s
        ]
        n_users = max(1, BLOCK // (len(codes) * K * K))
        for first in range(0, len(users), n_users):
            some = users[first : first + n_users]
            changes = delta.gradient.score_changes(
                codes, missing, np.concatenate([moves[q] for q, _ in some]), rows.starts
            )
            for (q, position), own_changes in zip(some, np.split(changes, len(some)), strict=True):
                for side, sign in enumerate((-1.0, 1.0)):
                    with np.errstate(invalid="ignore"):  # nan
                        moved = log_p + sign * own_changes  # (K, n, K)
                    for k in range(K):
                        own_p = np.exp(log_probabilities(moved[k]))
                        averages[q][side, position, :, k] = _average_by_unit(own_p, rows)[:, k]
    limits = np.stack(
        [
            contrast_values(contrasts.transform, np.moveaxis(own, 1, 0), quantity.signs)[0]
            for own, quantity in zip(averages, contrasts.quantities, strict=True)
        ],
        axis=1,
    )
    is_known = values.std_error > 0.0
    null = TRANSFORMS[contrasts.transform].null
    is_contrast = np.array([len(quantity.scenarios) > 1 for quantity in contrasts.quantities])
    with np.errstate(invalid="ignore", divide="ignore"):  # without a standard error
        least = is_contrast[:, None, None] * LEAST_WIDTH * quantiles * values.std_error
        below = np.maximum(values.estimate - limits[0], least)
        above = np.maximum(limits[1] - values.estimate, least)
        # a null value at a limit has a p-value of 1 - level
        width = np.where(values.estimate > null, below, above)
        statistic = (values.estimate - null) / width * quantiles
    return replace(
        values,
        low=np.where(is_known, values.estimate - below, values.low),
        high=np.where(is_known, values.estimate + above, values.high),
        statistic=np.where(is_known, statistic, values.statistic),
        p=np.where(is_known, two_sided_p(statistic, df), values.p),
    )


def estimate_by_replicates(
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    replicates: Sequence[Scores],
    level: float,
    has_tests: bool,
) -> EffectValues:
    """Compute estimates with standard errors and percentile limits over R `replicates`.

    Each replicate is a class score function. The standard error is the standard deviation over the
    replicates. The results are nan for a quantity that is undefined in some replicate. With
    `has_tests`, z statistics and p-values from a normal distribution are computed; otherwise they
    are nan.
    """
    estimates, replicate_estimates, is_impossible = _estimate_replicates(
        contrasts, rows, scores, replicates
    )
    # `null` is the value under no effect; no warning if a replicate is undefined or a standard
    # error is 0
    with np.errstate(divide="ignore", invalid="ignore"):
        se = replicate_estimates.std(axis=0, ddof=1)
        low, high = np.quantile(replicate_estimates, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        z = (
            (estimates - TRANSFORMS[contrasts.transform].null) / se
            if has_tests
            else np.full(estimates.shape, np.nan)
        )
    # infinite degrees of freedom: normal p-values
    return EffectValues(
        estimates, se, low, high, z, two_sided_p(z, np.inf), is_impossible=is_impossible
    )


def estimate_by_design_replicates(
    contrasts: Contrasts,
    rows: EffectRows,
    scores: Scores,
    replicates: Sequence[Scores],
    survey: SurveySample,
    level: float,
) -> EffectValues:
    """Compute estimates with t limits, and with standard errors from refits to the replicate
    weights of a survey.

    `replicates` contains R class score functions, one for each refit;
    ``survey.replicates.deviations(estimates, full)`` returns the scaled deviations (R, p) of the
    estimates in the replicates (R, p) from the estimates from all rows, `full` (p,).
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its caller
    estimates, replicate_values, is_impossible = _estimate_replicates(
        contrasts, rows, scores, replicates
    )
    # (R, Q U K); and (Q U K, 1), so that ``flat_estimates[k]`` is a vector (1,), as required by
    # `deviations`
    flat_replicates = replicate_values.reshape(len(replicate_values), -1)
    flat_estimates = estimates.reshape(-1, 1)
    is_partial = ~np.isfinite(flat_replicates).all(axis=0)  # (Q U K,)
    # (R, Q U K): their squares sum to the variances; zeros are placeholders for partial quantities
    deviations = survey.replicates.deviations(
        np.where(is_partial, 0.0, flat_replicates), np.where(is_partial, 0.0, flat_estimates[:, 0])
    )
    # `deviations` excludes replicates that are not finite in all of its columns; so it is called
    # separately for each partial quantity, to replace the zeros
    for k in np.flatnonzero(is_partial & np.isfinite(flat_estimates[:, 0])):
        deviations[:, [k]] = survey.replicates.deviations(
            flat_replicates[:, [k]], flat_estimates[k]
        )
    se = np.sqrt((deviations**2).sum(axis=0)).reshape(estimates.shape)
    effect_values = _add_t_limits(contrasts, estimates, se, survey.df, level)
    return replace(
        effect_values, is_partial=is_partial.reshape(estimates.shape), is_impossible=is_impossible
    )


def _estimate_replicates(
    contrasts: Contrasts, rows: EffectRows, scores: Scores, replicates: Sequence[Scores]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the quantities (Q, U, K), their values (R, Q, U, K) in each replicate, and a mask
    (Q, U) of impossible quantities.
    """
    average_by_scenario = average_probabilities(contrasts, rows, scores)
    estimates = compute_contrasts(contrasts, average_by_scenario)
    check_memory(
        8.0 * estimates.size * len(replicates),
        f"{len(replicates)} replicates of {estimates.size:,} effects",
        "List fewer predictors in the variables argument, or average over rows.",
    )
    replicate_estimates = np.array(
        [
            compute_contrasts(contrasts, average_probabilities(contrasts, rows, replicate))
            for replicate in replicates
        ]
    )
    return estimates, replicate_estimates, _find_impossible(contrasts, average_by_scenario)


def _add_t_limits(
    contrasts: Contrasts,
    estimates: np.ndarray,
    se: np.ndarray,
    df: np.ndarray | float,
    level: float,
) -> EffectValues:
    """Return estimates (Q, U, K) with limits and tests based on t distributions, or on the normal
    distribution if `df` is infinite.

    `se` (Q, U, K) contains the standard errors.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        half_width = t_quantile(0.5 + level / 2, df) * se
        t = (estimates - TRANSFORMS[contrasts.transform].null) / se
    return EffectValues(
        estimates, se, estimates - half_width, estimates + half_width, t, two_sided_p(t, df)
    )
