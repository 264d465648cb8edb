"""Warnings about training tables: amounts taken for groups, and tables of counts whose counts were
not named.

`FitData` are rows as codes: ``encoded.rows`` (a `Sample`), the `frame` that they come from
(None for data that are read in batches), the `design` with the response and the predictors, and K,
the number of groups.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from bbl.boltzmann.job import FitData
from bbl.design.frames import Frame
from bbl.errors import DataWarning

__all__ = ["warn_of_table"]

MANY_GROUPS = 25  # more groups that are whole numbers are probably amounts
FEWEST_CELLS = 8  # cells of a table of counts, with fewer of which there is no warning


def warn_of_table(encoded: FitData, is_weighted: bool, stacklevel: int) -> None:
    """Warn if the response looks like an amount, or the rows like the cells of a table of counts
    without weights.

    `stacklevel` is that of `warnings.warn`, counted from the caller.
    """
    response = encoded.design.response
    if (
        encoded.K > MANY_GROUPS
        and set(response.kinds) == {"number"}  # the kind of each level
        and all(level == int(level) for level in response.levels)
    ):
        warnings.warn(
            DataWarning(
                f"Response {response.name!r} has {encoded.K} groups that are numbers, and each is "
                "fitted with its own model.",
                hint=f"If it is an amount, bin it first: bbl.bin(data, {response.name!r}).",
            ),
            stacklevel=stacklevel + 1,
        )
    if not is_weighted and encoded.frame is not None:
        counts = _unused_counts(encoded.frame, encoded)
        if counts is not None and _has_each_combination_equally(encoded):
            warnings.warn(
                DataWarning(
                    "Every combination of levels occurs in equally many rows, so all "
                    "coefficients are 0.",
                    hint=f"If column {counts!r} contains counts, give weights={counts!r}.",
                ),
                stacklevel=stacklevel + 1,
            )


def _unused_counts(frame: Frame, encoded: FitData) -> object:
    """Return the name of the first unused column of whole numbers from 0 on, not all equal; None
    without one.
    """
    used_names = {
        encoded.design.response.name,
        *(factor.name for factor in encoded.design.predictors),
    }
    for name in frame.columns:
        column = frame.column(name)
        if (
            name in used_names
            or not pd.api.types.is_numeric_dtype(column.dtype)
            or pd.api.types.is_bool_dtype(column.dtype)
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
    """Return whether all combinations of groups and levels occur in equally many rows."""
    sample = encoded.rows
    shape = (encoded.K, *map(int, encoded.design.n_levels))
    n_cells = int(np.prod(shape, dtype=float))
    # cells of equal counts: their sum is a multiple of the number of cells
    if (
        sample.missing is not None
        or not FEWEST_CELLS <= n_cells <= sample.n
        or sample.weights.sum() % n_cells
    ):
        return False
    cells = np.ravel_multi_index((sample.response, *sample.codes.T.astype(np.intp)), shape)
    return len(np.unique(np.bincount(cells, sample.weights, n_cells))) == 1
