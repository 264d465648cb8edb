"""Specifications of the arrays in a model file (dtype, shape, range), and the check of arrays against them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["FINITE", "NON_NEGATIVE", "PROBABILITY", "ArraySpec", "check_arrays", "refuse_unknown"]

LARGEST_FLOAT = float(np.finfo(float).max)
FINITE = (-LARGEST_FLOAT, LARGEST_FLOAT)
NON_NEGATIVE = (0.0, LARGEST_FLOAT)
PROBABILITY = (0.0, 1.0)


@dataclass(frozen=True)
class ArraySpec:
    """Required dtype, shape and range of an array of a model file.

    Attributes
    ----------
    kind : {"f", "i", "b"}
        ``dtype.kind``: floats, signed integers or bools.
    shape : tuple of int or None
        None for an axis of any length.
    interval : tuple of two floats, optional
        Least and largest value; nan is refused. By default any value is accepted, nan included.
    required : bool, default True
        Whether every model file of the same kind has the array.
    """

    kind: str
    shape: tuple[int | None, ...]
    interval: tuple[float, float] | None = None
    required: bool = True

    def admits(self, array: np.ndarray) -> bool:
        """Return whether an array has this dtype and shape, and no value outside the interval."""
        if array.dtype.kind != self.kind or array.ndim != len(self.shape):
            return False
        if any(required not in (None, length) for required, length in zip(self.shape, array.shape, strict=True)):
            return False
        return self.interval is None or bool(((array >= self.interval[0]) & (array <= self.interval[1])).all())


def check_arrays(arrays: Mapping[str, np.ndarray], specs: Mapping[str, ArraySpec]) -> None:
    """Raise a ValueError if an array is missing or violates its specification; arrays without one are ignored.

    Kernels rely on shapes and ranges, and the checksum of a file does not prove that this package wrote it.
    """
    for name, spec in specs.items():
        if spec.required and name not in arrays:
            raise ValueError(f"it lacks the array {name!r}")
        if name in arrays and not spec.admits(arrays[name]):
            raise ValueError(f"the array {name!r} is not as saved")


def refuse_unknown(arrays: Mapping[str, np.ndarray], names: Iterable[str]) -> None:
    """Raise a ValueError for an array whose name is not in `names`, those of the arrays of a kind of model."""
    if unknown := arrays.keys() - set(names):
        raise ValueError(f"{sorted(unknown)[0]!r} is no array of such a model")
