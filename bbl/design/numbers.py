"""`NumberFactor`: a numeric predictor, with functions to read and validate its values."""

from __future__ import annotations

import numbers
from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.factors import Factor
from bbl.design.values import is_missing
from bbl.errors import BBLTypeError, DataError

__all__ = ["NumberFactor", "looks_measured", "read_numbers"]

MAX_INTEGER_LEVELS = 20  # integer columns with more values are numeric with ``numeric=True``


@dataclass(frozen=True)
class NumberFactor(Factor):
    """A numeric predictor with codes ``(x - center) / scale`` in float64.

    Its two levels are labels for the codes 0 and 1 in tables of weights. A column with a single
    value has one level.

    Attributes
    ----------
    center, scale : float
        Either 0 and 1, or the weighted mean and standard deviation of the training values.
    mean : float
        Weighted mean of the training codes, used for unknown values.
    sd : float
        Weighted standard deviation of the training values, for numbers of a Boltzmann machine; 0
        for others.
    """

    center: float = 0.0
    scale: float = 1.0
    mean: float = 0.0
    sd: float = 0.0

    @classmethod
    def of_values(
        cls, name: Hashable, values: np.ndarray, weights: np.ndarray, standardise: bool
    ) -> NumberFactor:
        """Return the factor for training `values` (n,) with `weights` (n,)."""
        is_constant = bool((values == values[:1]).all())
        total = weights.sum()
        # subtracting the first value preserves precision if the mean is large
        mean = float(values[0] + weights @ (values - values[0]) / total) if len(values) else 0.0
        center = 0.0
        scale = 1.0
        if standardise and not is_constant:
            center = mean
            scale = float(np.sqrt(weights @ (values - mean) ** 2 / total))
        levels = ("mean", "+1 SD") if standardise else ("0", "+1")
        n_levels = 1 if is_constant else 2
        return cls(
            name,
            levels[:n_levels],
            ("string",) * n_levels,
            center=center,
            scale=scale,
            mean=(mean - center) / scale,
        )

    @classmethod
    def measured(
        cls, name: Hashable, values: np.ndarray, weights: np.ndarray, is_regressor: bool = False
    ) -> NumberFactor:
        """Return a numeric predictor of a Boltzmann machine, given training `values` and `weights`
        (n,).

        In a location model, codes are deviations from the mean, and the factor has the single
        level "mean". The codes of a regressor are its values; its level 1 stands for its slope.

        Raises
        ------
        DataError
            If all values are equal.
        """
        if bool((values == values[:1]).all()):
            raise DataError(
                f"column {name!r} has only the value {values[0]:g}."
                if len(values)
                else f"column {name!r} has no values.",
                column=name,
                argument="numeric",
                hint=f"Leave {name!r} out of the formula.",
            )
        mean = float(values[0] + weights @ (values - values[0]) / weights.sum())
        sd = float(np.sqrt(weights @ (values - mean) ** 2 / weights.sum()))
        if is_regressor:
            return cls(name, ("0", "slope"), ("string",) * 2, mean=mean, sd=sd)
        return cls(name, ("mean",), ("string",), center=mean, sd=sd)

    @property
    def is_measured(self) -> bool:
        """Whether the predictor belongs to a Boltzmann machine; see `measured`."""
        return self.sd > 0.0

    @property
    def is_regressor(self) -> bool:
        """Whether it is a regressor of a Boltzmann machine, see `measured`."""
        return self.sd > 0.0 and len(self.levels) == 2

    def padded(self) -> NumberFactor:
        """Return the factor unchanged; numeric predictors do not need a second level."""
        return self

    def to_codes(self, values: np.ndarray) -> np.ndarray:
        """Return the codes (n,) of values (n,); nan for missing values."""
        return (values - self.center) / self.scale if self.scale != 1.0 else values - self.center


def looks_measured(series: pd.Series) -> bool:
    """Return whether ``numeric=True`` selects a column: its type is a float, or an integer with
    more than 20 distinct values.
    """
    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, pd.CategoricalDtype):
        return False
    return kind == "f" or (kind in "iu" and series.nunique() > MAX_INTEGER_LEVELS)


def read_numbers(name: Hashable, series: pd.Series, argument: str = "data") -> np.ndarray:
    """Return a column of finite numbers as float64 (n,); nan for missing values.

    Raises
    ------
    BBLTypeError
        If a value is not a number; booleans are 0 and 1.
    DataError
        If a number is infinite.
    """
    kind = getattr(series.dtype, "kind", "O")
    if kind in "biuf" and not isinstance(series.dtype, pd.CategoricalDtype):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = np.array([_to_float(name, value) for value in series.tolist()], dtype=np.float64)
    if np.isinf(values).any():
        count = int(np.isinf(values).sum())
        raise DataError(
            f"column {name!r} of {argument} has {count} infinite value{'s' * (count > 1)}.",
            column=name,
            argument=argument,
            hint="Replace them with finite numbers, or leave these rows out.",
        )
    return values


def _to_float(name: Hashable, value: Any) -> float:
    """Return a number as float, or nan for a missing value; otherwise raise a BBLTypeError."""
    if is_missing(value):
        return float("nan")
    if not isinstance(value, numbers.Real | Decimal | np.bool_):
        raise BBLTypeError(
            f"column {name!r} has the value {value!r}, which is not a number.",
            column=name,
            value=value,
            argument="numeric",
            hint="Convert the column with pandas.to_numeric, or list only numeric columns in "
            "numeric.",
        )
    return float(value)
