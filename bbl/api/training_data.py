"""Training data of the public functions that fit models: check the arguments and encode the rows.

*Data read in batches* (files, Dask, ...) are read by a *source* and are never entirely in memory.
`lazy_source` returns None for a table in memory.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from bbl.boltzmann.job import FitData
from bbl.design.design import Design, EncodingRules
from bbl.design.frames import Frame, to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.dask_passes import OnCluster
from bbl.design.streams.passes import encode_source
from bbl.design.streams.source import Source
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import RowFolds, TableLike, Weights
from bbl.errors import DataWarning, OptionError
from bbl.memory import check_memory, out_of_memory
from bbl.model.layout import Layout
from bbl.parallel import progress_bar
from bbl.rows.fold_assignment import FoldAssignment, StoredFolds
from bbl.rows.folds import Folds, splitter_folds
from bbl.rows.sample import concatenate
from bbl.rows.stored import StoredSample

__all__ = [
    "FEWER_PREDICTORS",
    "data_arguments",
    "encode_data",
    "load_rows",
    "refuse_batches",
    "user_folds",
    "warn_of_table",
]


def data_arguments(data: object, weights: object = None, design: object = None) -> dict[str, Any]:
    """Return the call's arguments `data`, `weights` and `design` as they are printed, by name.

    As in R, a printed call shows the names of the caller's variables. Data that are not stored in a
    variable are omitted; weights and designs are then replaced by their type.
    """
    arguments: dict[str, Any] = {}
    data_name = _variable_name(data)
    if data_name is not None:
        arguments["data"] = data_name
    if weights is not None:
        is_column = isinstance(weights, str)
        arguments["weights"] = weights if is_column else _name_or_type(weights)
    if design is not None:
        arguments["design"] = _name_or_type(design)
    return arguments


def _name_or_type(value: object) -> str:
    """Return the name of the caller's variable that contains `value`, or the type of `value`, such
    as ``<ndarray>``.
    """
    return _variable_name(value) or f"<{type(value).__name__}>"


def _variable_name(value: object) -> str | None:
    """Return the name of the variable that refers to `value` in the first caller outside this
    package.

    Return None if no variable refers to the value, for example because it is an expression. Names
    that begin with an underscore are ignored because consoles use them for their last results.
    """
    frame = inspect.currentframe()
    while frame is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    if frame is None:
        return None
    for variables in (frame.f_locals, frame.f_globals):
        for name, held in list(variables.items()):
            if held is value and not name.startswith("_"):
                return name
    return None


def _is_inside(module: str) -> bool:
    """Return whether a module with this name is part of this package."""
    return module == "bbl" or module.startswith("bbl.")


MANY_GROUPS = 25  # if there are more integer groups, the response is probably a numeric quantity
FEWEST_CELLS = 8  # smaller tables of counts do not cause a warning


def warn_of_table(encoded: FitData, is_weighted: bool, stacklevel: int) -> None:
    """Warn if the response looks like a numeric quantity, or if the rows look like a table of
    counts without weights.

    `stacklevel` is the argument of `warnings.warn`, counted from the caller.
    """
    response = encoded.design.response
    if (
        encoded.K > MANY_GROUPS
        and set(response.kinds) == {"number"}  # the kind of each level
        and all(level == int(level) for level in response.levels)
    ):
        warnings.warn(
            DataWarning(
                f"The response {response.name!r} has {encoded.K} distinct numbers, and a separate "
                "model is fitted to each of these groups.",
                hint=f"If it is a quantity, bin it first: bbl.bin(data, {response.name!r}).",
            ),
            stacklevel=stacklevel + 1,
        )
    if not is_weighted and encoded.frame is not None:
        counts = _unused_counts(encoded.frame, encoded)
        if counts is not None and _has_each_combination_equally(encoded):
            warnings.warn(
                DataWarning(
                    "Every combination of levels occurs in the same number of rows, so all "
                    "coefficients are 0.",
                    hint=f"If column {counts!r} contains counts, use weights={counts!r}.",
                ),
                stacklevel=stacklevel + 1,
            )


def _unused_counts(frame: Frame, encoded: FitData) -> object:
    """Return the name of the first unused column of non-negative integers that are not all equal,
    or None.
    """
    used_names = {
        encoded.design.response.name,
        *(factor.name for factor in encoded.design.predictors),
    }
    for name in frame.columns:
        if name in used_names:
            continue
        column = frame.column(name)
        if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(
            column.dtype
        ):
            continue
        values = column.to_numpy(dtype=float, na_value=np.nan)
        if (
            len(values)
            and (values >= 0).all()
            and (values == np.floor(values)).all()
            and np.ptp(values) > 0
        ):
            return name
    return None


def _has_each_combination_equally(encoded: FitData) -> bool:
    """Return whether all combinations of groups and levels occur equally often."""
    sample = encoded.rows
    shape = (encoded.K, *map(int, encoded.design.n_levels))
    n_cells = int(np.prod(shape, dtype=float))
    # equal counts in all cells add up to a multiple of the number of cells
    if (
        sample.missing is not None
        or not FEWEST_CELLS <= n_cells <= sample.n
        or sample.weights.sum() % n_cells
    ):
        return False
    codes = encoded.design.level_codes(sample.codes)
    cells = np.ravel_multi_index((sample.response, *codes.T.astype(np.intp)), shape)
    return len(np.unique(np.bincount(cells, sample.weights, n_cells))) == 1


# advice if there is not enough memory
FEWER_ROWS = (
    "Use fewer rows or columns, or pass the path of a Parquet file, which is read in batches."
)
FEWER_PREDICTORS = "Use fewer predictors or levels, or a formula with fewer interactions."


def refuse_batches(data: object, purpose: str, argument: str) -> None:
    """Raise an OptionError if `data` is read in batches; `purpose` names the argument or task that
    requires all rows in memory.
    """
    source = lazy_source(data)
    if source is not None:
        raise OptionError(
            f"{purpose} requires all rows in memory, but {source.text} is read in batches.",
            argument=argument,
            hint="Pass a table, or a random sample of the rows: bbl.sample_rows(data, 100_000).",
        )


def encode_data(
    formula: str,
    data: TableLike | Source,
    weights: Weights | None = None,
    *,
    rules: EncodingRules,
    xlevels: Mapping[Any, Any] | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    survey: SurveyDesign | None = None,
    assignment: FoldAssignment | None = None,
    cluster: OnCluster | None = None,
    verbose: int = 1,
    workers: int = 1,
) -> FitData:
    """Read a formula and the data, check the weights, and encode the rows, but do not create the
    layout.

    Parameters
    ----------
    formula, data, weights, xlevels, novarOk, missing
        Unchecked arguments, described in `bbl.bbl`.
    rules : EncodingRules
        Terms, weights and missing values accepted by the engine or learner.
    survey : SurveyDesign, optional
        Sampling design, which specifies the column of weights.
    assignment, cluster, verbose, workers
        For data read in batches: the fold assignment, the Dask workers that read the rows, the
        verbosity (0 hides the progress bar), and the number of threads.
    """
    layout = cast(Layout, None)  # the terms of the layout depend on the model family
    if isinstance(data, Source):
        with (
            progress_bar(None, "reading", verbose) as progress,
            out_of_memory("The formula and the levels of the data", FEWER_PREDICTORS),
        ):
            encoded = encode_source(
                data,
                formula,
                weights,
                xlevels,
                novarOk,
                missing,
                assignment=assignment,
                step=progress,
                cluster=cluster,
                rules=rules,
                workers=workers,
            )
        labels = encoded.design.labels
        return FitData(
            encoded.sample,
            layout,
            len(labels.groups),
            labels,
            design=encoded.design,
            assigned_folds=encoded.folds,
            source=encoded.source,
        )
    with out_of_memory("The formula and the encoded rows", FEWER_ROWS):
        frame = to_frame(data)
        drawn = None
        if survey is not None:
            weights, drawn = survey.read(frame)  # of all rows of the table
            # columns of the sampling design are not predictors
            rules = replace(rules, aside=survey.columns, sampled=True)
        design, sample, index, row_positions = Design.from_data(
            formula, frame, weights, xlevels, novarOk, missing, rules
        )
        if survey is not None:
            design = replace(design, weights=survey.weights)
    return FitData(
        sample,
        layout,
        len(design.labels.groups),
        design.labels,
        design=design,
        index=index,
        frame=frame,
        row_positions=row_positions,
        survey=None if drawn is None else drawn.of_rows(row_positions, sample.weights),
    )


def load_rows(data: FitData) -> FitData:
    """Load rows from a file or a cluster into memory, with one byte per value, together with their
    folds.

    Raises
    ------
    MemoryError
        If the codes do not fit into memory.
    """
    if data.sample.in_memory:
        return data
    stored = cast(StoredSample, data.sample)
    check_memory(
        2.0 * stored.nbytes + 24.0 * stored.n,
        f"The codes of {stored.n:,} rows",
        "Choose method='pseudo' or 'mf', or fit the model to bbl.sample_rows(data, 500_000).",
    )
    rng = np.random.default_rng(0)  # not used, because all rows are drawn
    folds = data.assigned_folds
    if not isinstance(folds, StoredFolds):
        sample = stored.draw(stored.n, rng)
    else:
        # first the validation rows of each fold, then the rows that are training rows in all folds
        numbers = [*range(len(folds)), -1]
        parts = [stored.fold(f) for f in numbers]
        loaded = [part.draw(part.n, rng) for part in parts]
        sample = concatenate(loaded)
        fold_of_row = np.repeat(numbers, [part.n for part in loaded])
        validation = np.where(fold_of_row == np.arange(len(folds))[:, None], sample.weights, 0.0)
        folds = Folds(sample.weights - validation, validation)
    stored.close()
    return replace(data, sample=sample, assigned_folds=folds)


def user_folds(cv: RowFolds, data: TableLike, encoded: FitData) -> Folds:
    """Return the folds of a splitter or of pairs of row positions, restricted to the fitted rows.

    Parameters
    ----------
    cv : scikit-learn splitter or iterable of (train, validation) row positions
        Positions refer to all rows of the data, including those that are not fitted.
    data : table
        Data passed to the splitter's ``split``; they are converted to a DataFrame if they have no
        shape.
    encoded : FitData
        The same data, encoded in memory.
    """
    if isinstance(cv, int | np.integer):
        raise OptionError(
            f"cv={cv} is not a splitter.", argument="cv", hint=f"For {cv} folds use nfold={cv}."
        )
    frame = cast(Frame, encoded.frame)
    row_positions = encoded.row_positions
    weights = np.zeros(frame.n)  # of all rows; 0 for rows that are not fitted
    weights[row_positions] = encoded.rows.weights
    if not hasattr(data, "shape"):
        data = pd.DataFrame({name: frame.column(name).array for name in frame.columns})
    y = encoded.design.groups(frame)  # response codes of all rows, for ``cv.split(data, y)``
    folds = splitter_folds(cv, data, y, weights)
    # train, held (folds, rows): each fold's weights of training and of validation rows
    return Folds(folds.train[:, row_positions], folds.validation_weights[:, row_positions])
