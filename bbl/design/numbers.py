"""`NumberFactor`: a numeric predictor, with functions that read and validate its values."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from bbl.checks import near_match
from bbl.design.factors import Factor
from bbl.design.frames import Frame
from bbl.design.values import is_missing
from bbl.errors import BBLTypeError, DataError, DataWarning, OptionError

__all__ = [
    "NumberFactor",
    "NumberMoments",
    "choose_numbers",
    "looks_measured",
    "read_numbers",
    "refuse_listed_levels",
]

# a numeric predictor with at most this many distinct values causes a warning
FEW_VALUES = 5
# integer columns with more distinct values are numeric predictors if ``numeric=True``
MAX_INTEGER_LEVELS = 20


@dataclass(frozen=True)
class NumberFactor(Factor):
    """A numeric predictor with codes ``(x - center) / scale`` in float64.

    In tables of weights, its two levels are labels for the codes 0 and 1. A column with a single
    value has one level.

    Attributes
    ----------
    center, scale : float
        Either 0 and 1, or the weighted mean and standard deviation of the training values.
    mean : float
        Weighted mean of the training codes, used for unknown values.
    sd : float
        Weighted standard deviation of the training values for numeric predictors of a Boltzmann
        machine; 0 for others.
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
    def of_moments(cls, moments: NumberMoments, is_regressor: bool = False) -> NumberFactor:
        """Return a numeric predictor of a Boltzmann machine, given the moments of the training
        values.

        In a location model, codes are deviations from the mean, and the factor has only the level
        "mean". The codes of a regressor are its values; level 1 represents its slope.

        Raises
        ------
        DataError
            If all values are equal.
        """
        name = moments.name
        if moments.low >= moments.high:
            raise DataError(
                f"column {name!r} has only the value {moments.low:g}."
                if moments.low == moments.high
                else f"column {name!r} has no values.",
                column=name,
                argument="numeric",
                hint=f"Leave {name!r} out of the formula.",
            )
        mean = moments.mean
        sd = moments.sd
        if is_regressor:
            return cls(name, ("0", "slope"), ("string",) * 2, mean=mean, sd=sd)
        return cls(name, ("mean",), ("string",), center=mean, sd=sd)

    @property
    def is_measured(self) -> bool:
        """Whether the predictor belongs to a Boltzmann machine; see `measured`."""
        return self.sd > 0.0

    @property
    def is_regressor(self) -> bool:
        """Whether this is a regressor of a Boltzmann machine; see `measured`."""
        return self.sd > 0.0 and len(self.levels) == 2

    def padded(self) -> NumberFactor:
        """Return the factor unchanged; numeric predictors do not need a second level."""
        return self

    def to_codes(self, values: np.ndarray) -> np.ndarray:
        """Return the codes (n,) of values (n,), with nan for missing values."""
        return (values - self.center) / self.scale if self.scale != 1.0 else values - self.center


@dataclass
class NumberMoments:
    """Weighted mean, sum of squares and range of a numeric column, accumulated over batches.

    Attributes
    ----------
    name : column name
    total, mean : float
        Sum of the weights, and weighted mean.
    squares : float
        Weighted sum of squared deviations from the mean.
    low, high : float
        The smallest and the largest value.
    distinct : ndarray
        The distinct values, of which at most `FEW_VALUES` + 1 are kept.
    n_missing : int
        Number of missing values.
    """

    name: Hashable
    total: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    distinct: np.ndarray = field(default_factory=lambda: np.zeros(0))
    n_missing: int = 0

    @property
    def sd(self) -> float:
        """Standard deviation, computed with the total weight as divisor."""
        return float(np.sqrt(self.squares / self.total))

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Add values (n,) with `weights` (n,), where nan is a missing value."""
        is_nan = np.isnan(values)
        if is_nan.any():
            values = values[~is_nan]
            weights = weights[~is_nan]
        batch = NumberMoments(self.name, n_missing=int(is_nan.sum()))
        if len(values):
            batch.total = float(weights.sum())
            # subtracting the first value preserves precision if the mean is large
            batch.mean = float(values[0] + weights @ (values - values[0]) / batch.total)
            batch.squares = float(weights @ (values - batch.mean) ** 2)
            batch.low = float(values.min())
            batch.high = float(values.max())
            if len(self.distinct) <= FEW_VALUES:
                batch.distinct = np.unique(values)[: FEW_VALUES + 1]
        self.join(batch)

    def join(self, other: NumberMoments) -> None:
        """Add the moments of other rows (Chan, Golub & LeVeque 1983)."""
        self.n_missing += other.n_missing
        if not other.total:
            return
        total = self.total + other.total
        difference = other.mean - self.mean
        self.squares += other.squares + difference**2 * (self.total * other.total / total)
        self.mean += difference * (other.total / total)
        self.total = total
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        self.distinct = np.unique(np.append(self.distinct, other.distinct))[: FEW_VALUES + 1]

    def refuse_missing(self, missing: str) -> None:
        """Raise a DataError if values are missing; `missing` is the same as in
        `Design.from_data`.
        """
        if self.n_missing:
            values = f"{self.n_missing} missing value{'s' * (self.n_missing > 1)}"
            raise DataError(
                f"column {self.name!r} has {values}, but a numeric predictor cannot have a "
                "separate level for missing values."
                if missing == "level"
                else f"column {self.name!r} has {values}.",
                column=self.name,
                argument="missing" if missing == "level" else None,
                hint="Drop the rows (missing='drop'), or fill in the values.",
            )

    def warn_of_few_values(self, stacklevel: int) -> None:
        """Warn if a numeric predictor of a location model has only a few distinct values."""
        n_distinct = len(self.distinct)
        if n_distinct <= FEW_VALUES:
            warnings.warn(
                DataWarning(
                    f"column {self.name!r} has only {n_distinct} values, but is modelled as "
                    "normally distributed.",
                    hint=(
                        f"Remove {self.name!r} from numeric to estimate a separate parameter for "
                        "each value."
                    ),
                    column=self.name,
                    argument="numeric",
                ),
                stacklevel=stacklevel,
            )


def choose_numbers(
    numeric: bool | tuple[Hashable, ...], predictors: tuple[Hashable, ...], frame: Frame | None
) -> tuple[Hashable, ...]:
    """Return the names of the numeric predictors.

    Parameters
    ----------
    numeric : True, or tuple of column names
        As in `EncodingRules`.
    predictors : tuple of column names
    frame : Frame or None
        With ``numeric=True``, the rows that determine which columns are selected; None selects all
        predictors.

    Raises
    ------
    OptionError
        If a name is not a predictor.
    """
    if isinstance(numeric, bool):
        if frame is None:
            return predictors
        return tuple(name for name in predictors if looks_measured(frame.column(name)))
    for name in numeric:
        if name not in predictors:
            raise OptionError(
                f"numeric contains {name!r}, which is not a predictor.",
                argument="numeric",
                value=name,
                hint=f"{near_match(name, predictors)}List only predictors of the formula.",
            )
    return numeric


def refuse_listed_levels(name: Hashable, levels_by_name: Mapping[Hashable, Factor]) -> None:
    """Raise an OptionError if `xlevels` lists levels of a numeric column."""
    if name in levels_by_name:
        raise OptionError(
            f"xlevels lists levels for {name!r}, which is numeric.",
            argument="xlevels",
            hint=f"Remove {name!r} from xlevels or from numeric.",
        )


def looks_measured(series: pd.Series) -> bool:
    """Return whether ``numeric=True`` selects a column.

    It selects float columns, and integer columns with more than 20 distinct values.
    """
    kind = getattr(series.dtype, "kind", "O")
    if isinstance(series.dtype, pd.CategoricalDtype):
        return False
    return kind == "f" or (kind in "iu" and series.nunique() > MAX_INTEGER_LEVELS)


def read_numbers(name: Hashable, series: pd.Series, argument: str = "data") -> np.ndarray:
    """Return a column of finite numbers as float64 (n,), with nan for missing values.

    Raises
    ------
    BBLTypeError
        If a value is not a number; booleans are treated as 0 and 1.
    DataError
        If a value is infinite.
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
    """Return a value as a float, or nan if it is missing; raise a BBLTypeError if it is not a
    number.
    """
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
