"""Factors, column names and pairs as plain values for JSON, and back with every value checked."""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bbl.checks import flag
from bbl.design.factors import KINDS, Factor
from bbl.errors import BBLTypeError

__all__ = ["factor_from_dict", "factor_to_dict", "name_from_list", "name_to_list", "stored_pairs"]


def factor_to_dict(factor: Factor) -> dict[str, Any]:
    """Return name, levels and kinds of a factor as plain lists, strings and numbers."""
    levels = [[kind, str(v) if kind == "other" else v] for kind, v in zip(factor.kinds, factor.levels, strict=True)]
    return {"name": name_to_list(factor.name), "levels": levels, "ordered": factor.ordered}


def factor_from_dict(stored: Mapping, least: int = 2) -> Factor:
    """Return the factor of `least` or more levels that `factor_to_dict` stored; a ValueError says what is wrong."""
    pairs = [(kind, value) for kind, value in stored["levels"]]
    for kind, value in pairs:
        allowed: Any = {"bool": bool, "number": numbers.Real}.get(kind, str)
        if kind not in KINDS or not isinstance(value, allowed) or (kind == "number" and isinstance(value, bool)):
            raise ValueError(f"{value!r} is no level")
        if kind == "number" and not np.isfinite(value):
            raise ValueError(f"{value!r} is no level")
    factor = Factor(
        name_from_list(stored["name"]),
        tuple(value for _, value in pairs),
        tuple(kind for kind, _ in pairs),
        flag("ordered", stored["ordered"]),
    )
    if len(set(zip(factor.kinds, factor.levels, strict=True))) < max(len(pairs), least):
        raise ValueError(f"{factor.name!r} has too few levels, or one twice")
    return factor


def name_to_list(name: Hashable) -> list:
    """Return the name of a column as plain values."""
    if isinstance(name, tuple):
        return ["tuple", [name_to_list(part) for part in name]]
    for kind, allowed in (("bool", bool), ("string", str), ("number", int | float)):
        if isinstance(name, allowed):
            return [kind, name]
    raise BBLTypeError(
        f"the column name {name!r} cannot be stored. Rename the columns: data.columns.astype(str).", column=name
    )


def name_from_list(stored: Any) -> Hashable:
    """Return the name that `name_to_list` stored; a ValueError, TypeError or LookupError if it is none."""
    kind, value = stored
    if kind == "tuple":
        return tuple(name_from_list(part) for part in value)
    if not isinstance(value, {"bool": bool, "string": str, "number": int | float}[kind]):
        raise ValueError(f"{value!r} is no column name")
    return value


def stored_pairs(stored: Any, m: int) -> np.ndarray:
    """Return the pairs (P, 2) of a stored design of `m` predictors; a ValueError says what is wrong with them."""
    if isinstance(stored, str) and stored == "all":
        return np.column_stack(np.triu_indices(m, 1)).astype(np.intp)
    pairs = np.array(stored).reshape(-1, 2)
    if len(pairs) and pairs.dtype.kind != "i":
        raise ValueError("pairs are no integers")
    pairs = pairs.astype(np.intp)
    keys = pairs[:, 0] * m + pairs[:, 1]
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= m or (pairs[:, 0] >= pairs[:, 1]).any()):
        raise ValueError("pairs out of range")
    if (np.diff(keys) <= 0).any():
        raise ValueError("pairs out of order")
    return pairs
