"""Factors, column names and terms as plain values for JSON, and back with every value checked."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bbl.checks import flag
from bbl.design.factors import Factor
from bbl.design.interactions import Cube, Interactions, term_keys
from bbl.design.values import KINDS
from bbl.errors import BBLTypeError

__all__ = ["factor_from_dict", "factor_to_dict", "name_from_list", "name_to_list", "terms_from_dict", "terms_to_dict"]


def factor_to_dict(factor: Factor) -> dict[str, Any]:
    """Return name, levels and kinds of a factor as plain lists, strings and numbers."""
    levels = [[kind, str(v) if kind == "other" else v] for kind, v in zip(factor.kinds, factor.levels, strict=True)]
    stored = {"name": name_to_list(factor.name), "levels": levels, "ordered": factor.ordered}
    return stored | ({"declared": True} if factor.declared else {})


def factor_from_dict(stored: Mapping, least: int = 2) -> Factor:
    """Return the factor of `least` or more levels that `factor_to_dict` stored; a ValueError names the problem."""
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
        flag("declared", stored.get("declared", False)),
    )
    if len(set(zip(factor.kinds, factor.levels, strict=True))) < max(len(pairs), least):
        raise ValueError(f"{factor.name!r} has too few levels, or one twice")
    return factor


def name_to_list(name: Hashable) -> list:
    """Return the name of a column as plain values."""
    if isinstance(name, tuple):
        return ["tuple", [name_to_list(element) for element in name]]
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
        return tuple(name_from_list(element) for element in value)
    if not isinstance(value, {"bool": bool, "string": str, "number": int | float}[kind]):
        raise ValueError(f"{value!r} is no column name")
    return value


def terms_to_dict(terms: Interactions, m: int) -> dict[str, Any]:
    """Return the terms of a design of `m` predictors: ``pairs``, and with higher orders ``terms`` of order 3, 4, ..."""
    rows = [
        "all" if terms.count(k) == math.comb(m, k) else terms.listed(k).tolist()
        for k in range(2, max(terms.order, 2) + 1)
    ]
    return {"pairs": rows[0]} | ({"terms": rows[1:]} if len(rows) > 1 else {})


def terms_from_dict(stored: Mapping, m: int) -> Interactions:
    """Return the terms that `terms_to_dict` stored; a ValueError names the problem."""
    orders = [stored["pairs"], *stored.get("terms", [])]  # files from before higher orders have pairs alone
    if len(orders) > max(m - 1, 1):
        raise ValueError("terms of more predictors than there are")
    rows = [_stored_rows(stored_terms, k, m) for k, stored_terms in enumerate(orders, 2)]
    full = next((at for at, term_rows in enumerate(rows) if term_rows is not None), len(rows))
    cube = Cube(np.arange(m), 1 + full) if full else Cube()
    extra_terms = {
        k: Interactions(Cube(np.arange(m), k)).listed(k) if term_rows is None else term_rows
        for k, term_rows in enumerate(rows[full:], 2 + full)
    }
    return Interactions(cube, {k: term_rows for k, term_rows in extra_terms.items() if len(term_rows)})


def _stored_rows(stored: Any, k: int, m: int) -> np.ndarray | None:
    """Return stored terms of order k as an array (T, k); None for all of them."""
    if isinstance(stored, str) and stored == "all":
        return None
    rows = np.array(stored).reshape(-1, k)
    if len(rows) and rows.dtype.kind != "i":
        raise ValueError("terms are no integers")
    rows = rows.astype(np.intp)
    if len(rows) and (rows.min() < 0 or rows.max() >= m or (rows[:, 1:] <= rows[:, :-1]).any()):
        raise ValueError("terms out of range")
    if (np.diff(term_keys(rows)[0]) <= 0).any():
        raise ValueError("terms out of order")
    return rows
