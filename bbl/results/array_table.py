"""Specification (dtype, shape and range) and validation of the arrays in a model file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "FINITE",
    "NON_NEGATIVE",
    "POSITIVE",
    "PROBABILITY",
    "ArraySpec",
    "check_arrays",
    "check_types",
]

# intervals of `ArraySpec`: smallest and largest value
LARGEST_FLOAT = float(np.finfo(float).max)
FINITE = (-LARGEST_FLOAT, LARGEST_FLOAT)
NON_NEGATIVE = (0.0, LARGEST_FLOAT)
POSITIVE = (float(np.nextafter(0.0, 1.0)), LARGEST_FLOAT)  # from the smallest float above 0
PROBABILITY = (0.0, 1.0)


@dataclass(frozen=True)
class ArraySpec:
    """Required dtype, shape and range of an array in a model file.

    A *symbol* is a named length, such as ``"K"``, and ``"K+1"`` stands for this length plus one.

    Attributes
    ----------
    kind : {"f", "i", "u", "b"}
        ``dtype.kind``: floats, signed integers, unsigned integers or bools.
    shape : tuple of int or str
        Lengths and symbols.
    interval : tuple of a float and a float or str, optional
        Smallest and largest value, inclusive; or the smallest value and a symbol whose value is an
        exclusive upper bound. nan is not allowed. By default, any value is accepted, including nan.
    required : bool or str, default True
        Whether every model file of the same kind must contain the array, or the name of another
        array whose presence requires it.
    sum_tolerance : float, optional
        Largest deviation of the sum of all values from 1; any sum is accepted by default.
    """

    kind: str
    shape: tuple[int | str, ...]
    interval: tuple[float, float | str] | None = None
    required: bool | str = True
    sum_tolerance: float | None = None

    def admits(self, array: np.ndarray, sizes: dict[str, int]) -> bool:
        """Return whether an array meets the specification; `sizes` contains the known lengths by
        symbol.

        Modifies `sizes` in place: an unknown symbol is added with the length of its axis.
        """
        if array.dtype.kind != self.kind or array.ndim != len(self.shape):
            return False
        for expected, length in zip(self.shape, array.shape, strict=True):
            if length != (
                expected if isinstance(expected, int) else sizes.setdefault(expected, length)
            ):
                return False
        if self.interval is not None:
            least, largest = self.interval
            is_low_enough = array < sizes[largest] if isinstance(largest, str) else array <= largest
            if not (is_low_enough & (array >= least)).all():
                return False
        return self.sum_tolerance is None or bool(abs(array.sum() - 1.0) <= self.sum_tolerance)


def check_arrays(
    arrays: Mapping[str, np.ndarray], table: Mapping[str, ArraySpec], **sizes: int
) -> None:
    """Raise a ValueError unless `arrays` match the specifications in `table`.

    `sizes` contains the known values of symbols. Any other symbol is determined by the first array
    that uses it. The check is necessary because kernels rely on shapes and ranges, and the checksum
    of a file does not prove that the file was written by this package.
    """
    if unknown := arrays.keys() - table.keys():
        raise ValueError(f"this kind of model has no array {min(unknown)!r}")
    sizes |= {f"{symbol}+1": size + 1 for symbol, size in sizes.items()}
    for name, spec in table.items():
        # `required`: True, False, or the name of the array that implies this one
        is_required = spec.required in arrays if isinstance(spec.required, str) else spec.required
        if name in arrays:
            if not spec.admits(arrays[name], sizes):
                raise ValueError(f"the array {name!r} is malformed")
        elif is_required:
            raise ValueError(f"it lacks the array {name!r}")


def check_types(stored: Mapping[str, Any], types: Mapping[str, type]) -> None:
    """Raise a ValueError unless the entries of `stored` have the types in `types`."""
    for name, expected in types.items():
        if type(stored[name]) is not expected:
            raise ValueError(f"{name!r} is malformed")
