"""Validate row weights, and scale real-valued weights to the effective sample size.

Integer weights without a sampling design are counts: a row with weight w is equivalent to w
identical rows. All other weights are arbitrary up to a constant factor. They are scaled by
`weight_unit` when data are encoded, so that they sum to the effective number of rows ``(sum w)^2 /
sum w^2`` (Kish 1965).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pandas as pd

from bbl.checks import near_match
from bbl.design.frames import Frame
from bbl.errors import BBLTypeError, DataError, Hint, OptionError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "WeightSums",
    "are_whole",
    "as_rows",
    "check_total",
    "check_weights",
    "name_new_rows",
    "named_weights",
    "refuse_weights",
    "weight_unit",
]

MAX_TOTAL = 2.0**53  # sums of integer weights are exact in float64 up to this value
# smallest sum of real-valued weights, because their squares are summed; its inverse is the largest
MIN_TOTAL = 1e-100


def are_whole(weights: np.ndarray) -> bool:
    """Return whether all weights are integers."""
    return bool((weights == np.floor(weights)).all())


def weight_unit(total: float, squares: float, least: float, most: float) -> float:
    """Return the divisor of real-valued weights that makes them sum to the effective number of
    rows.

    The arguments are the sum of the weights, their sum of squares, their minimum and their maximum.
    If all weights are equal, the divisor is this weight, so that each scaled weight is exactly 1.

    Examples
    --------
    >>> weights = np.array([0.2, 0.4])
    >>> unit = weight_unit(weights.sum(), (weights**2).sum(), 0.2, 0.4)
    >>> bool(np.isclose((weights / unit).sum(), 0.6**2 / (0.2**2 + 0.4**2)))
    True
    """
    return most if least == most else squares / total


@dataclass(kw_only=True)
class WeightSums:
    """Sums and extremes of the positive weights of rows that are read in parts."""

    total: float = 0.0  # sum of weights
    squares: float = 0.0  # sum of squared weights
    least: float = np.inf  # the smallest weight
    most: float = 0.0  # the largest weight
    whole: bool = True  # whether all weights are integers

    def add_weights(self, weights: np.ndarray) -> None:
        """Add rows with these weights (n,)."""
        self.total += float(weights.sum())
        self.squares += float(weights @ weights)
        self.least = min(self.least, float(weights.min(initial=np.inf)))
        self.most = max(self.most, float(weights.max(initial=0.0)))
        self.whole = self.whole and are_whole(weights)

    @property
    def divisor(self) -> float:
        """Divisor of real-valued weights; see `weight_unit`."""
        return weight_unit(self.total, self.squares, self.least, self.most)


def as_rows(weights: np.ndarray) -> np.ndarray:
    """Scale positive real-valued weights so that they sum to the effective number of rows."""
    unit = weight_unit(float(weights.sum()), float(weights @ weights), weights.min(), weights.max())
    return weights / unit


def named_weights(
    weights: Hashable | ArrayLike | None, frame: Frame, whole: bool = True
) -> tuple[Hashable | None, np.ndarray]:
    """Return the name of the column of weights (None if `weights` is an array or None), and the
    weights (n,).

    `whole` is the same as in `check_weights`.
    """
    if frame.n == 0:
        raise DataError(
            f"{frame.argument} has no rows.",
            hint="Provide at least one row for each response group.",
        )
    if weights is not None and frame.has(weights):
        return weights, check_weights(frame.column(weights), frame.n, whole=whole)
    if isinstance(weights, str):
        near = near_match(weights, frame.columns)
        raise DataError(
            f"weights={weights!r} is not a column of the data.",
            argument="weights",
            column=weights,
            hint=Hint(
                f"{near}Pass the name of a column, or an array.",
                command_line=f"{near}Pass the name of a column.",
            ),
            value=weights,
        )
    return None, check_weights(
        weights, frame.n, index=frame.index if frame.has_index else None, whole=whole
    )


def check_weights(
    weights: Hashable | ArrayLike | None,
    n: int,
    argument: str = "weights",
    index: pd.Index | None = None,
    whole: bool = True,
    part: bool = False,
    positive: bool = False,
) -> np.ndarray:
    """Return weights as float64; raise an error if any is negative, if all are zero or, with
    `whole`, if any is fractional.

    Parameters
    ----------
    weights : array_like of shape (n,), or None for all ones
    n : int
        Number of rows.
    argument : str, default "weights"
        Name of the argument, for messages.
    index : pandas.Index, optional
        Row labels of the table. Weights in a pandas Series must have the same index.
    whole : bool, default True
        Whether weights are counts and must therefore be integers.
    part : bool, default False
        Whether the n rows are only part of the data; all of them may then have weight 0.
    positive : bool, default False
        Whether the caller does not accept weights of 0; hints then ask for positive weights.

    Returns
    -------
    ndarray of float64, shape (n,)

    Raises
    ------
    BBLTypeError
        If weights are not numbers.
    DataError
        If the shape or index is wrong, or a weight is negative, fractional, missing or infinite.

    Examples
    --------
    >>> check_weights([2, 0, 1], 3)
    array([2., 0., 1.])
    """
    if weights is None:
        return np.ones(n)

    def fail(problem: str, error: type = DataError) -> NoReturn:
        """Raise an error of the given class; in the message, `problem` follows the argument's
        name.
        """
        kind = "integer" if whole else "number"
        wanted = f"positive {kind}" if positive else f"non-negative {kind}"
        raise error(
            f"{argument} {problem}.",
            argument=argument,
            hint=f"Pass one {wanted} for each of the {n} rows.",
        )

    if isinstance(weights, pd.Series) and index is not None and not weights.index.equals(index):
        raise DataError(
            f"{argument} is a Series with a different index than the data.",
            argument=argument,
            hint=(
                f"Align it with {argument}.reindex(data.index), or pass {argument}.to_numpy() "
                "to match by position."
            ),
        )
    try:
        array = np.asarray(weights)
    except (ValueError, TypeError):
        fail("are not an array", BBLTypeError)
    if array.ndim == 0:
        fail(f"must be an array or the name of a column; got {weights!r}", BBLTypeError)
    if array.ndim != 1:
        fail(f"have {array.ndim} dimensions", BBLTypeError)
    if array.dtype == object:
        is_missing = pd.isna(array)
        other_objects = [v for v in array[~is_missing] if not isinstance(v, numbers.Real | Decimal)]
        if other_objects and isinstance(other_objects[0], pd.Interval):
            raise BBLTypeError(
                f"{argument} were cut into intervals: {other_objects[0]}.",
                argument=argument,
                hint="Specify the weights when you bin the table: bbl.bin(data, weights=...).",
            )
        if other_objects:
            fail(f"contain {other_objects[0]!r}, which is not a number", BBLTypeError)
        array = np.where(is_missing, np.nan, array).astype(float)
    if array.dtype.kind not in "biuf":  # booleans, integers, floats
        fail(f"have type {array.dtype}, which is not numeric", BBLTypeError)
    if len(array) != n:
        fail(f"have length {len(array)}, but there are {n} rows")
    array = array.astype(np.float64)
    is_invalid = ~(np.isfinite(array) & (array >= 0))
    if whole:
        is_invalid |= array != np.floor(array)
    if is_invalid.any():
        row = int(is_invalid.argmax())
        fail(
            f"must all be {'non-negative integers' if whole else 'finite and non-negative'}, but "
            f"row {row} has {array[row]:g}"
        )
    if not part:
        check_total(float(array.sum()), are_whole(array), fail)
    return array


def check_total(total: float, whole: bool, fail: Callable[[str], NoReturn]) -> None:
    """Call `fail` with a description of the problem if the sum of the weights is invalid.

    `whole` indicates whether all weights are integers.
    """
    if not total:
        fail("are all zero")
    if total > (MAX_TOTAL if whole else 1.0 / MIN_TOTAL):
        fail(f"sum to {total:g}, which is too large for computations")
    if total < MIN_TOTAL:
        fail(f"sum to {total:g}, which is too small for computations")


def name_new_rows(weights_column: Hashable | None) -> str:
    """Return a phrase about new rows for printed output; `weights_column` comes from
    `Design.weigh`.
    """
    return "new rows" if weights_column is None else f"new rows, weighted by {weights_column!r}"


def refuse_weights(weights: Hashable | ArrayLike | None) -> None:
    """Raise an error if `weights` are given without newdata, because the weights of training rows
    are those of the fit.
    """
    if weights is not None:
        raise OptionError(
            "weights requires newdata. For the training rows, the weights of the fit are used.",
            argument="weights",
            hint="Omit the weights argument, or pass newdata too.",
        )
