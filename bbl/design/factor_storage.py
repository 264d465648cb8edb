"""Convert factors, column names and terms to and from plain values for JSON.

Invalid stored values raise errors.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bbl.checks import flag
from bbl.design.factors import Factor
from bbl.design.interactions import Cube, Interactions, term_keys
from bbl.design.numbers import NumberFactor
from bbl.design.values import KINDS
from bbl.errors import BBLTypeError

__all__ = [
    "factor_from_dict",
    "factor_to_dict",
    "name_from_list",
    "name_to_list",
    "terms_from_dict",
    "terms_to_dict",
]


def factor_to_dict(factor: Factor) -> dict[str, Any]:
    """Return the name, levels and kinds of a factor as plain lists, strings and numbers."""
    levels = [
        [kind, str(v) if kind == "other" else v]
        for kind, v in zip(factor.kinds, factor.levels, strict=True)
    ]
    stored = {"name": name_to_list(factor.name), "levels": levels, "ordered": factor.ordered}
    if isinstance(factor, NumberFactor):
        # the last only for numbers of Boltzmann machines, which earlier versions cannot load
        own_sd = [factor.sd] if factor.is_measured else []
        stored["number"] = [factor.center, factor.scale, factor.mean, *own_sd]
    # omitted if False, which is the default in `factor_from_dict` because older files do not have
    # it
    return stored | ({"declared": True} if factor.declared else {})


def factor_from_dict(stored: Mapping, min_levels: int = 2) -> Factor:
    """Restore a factor from `factor_to_dict`; raise an error for fewer than `min_levels` levels."""
    kind_value_pairs = [(kind, value) for kind, value in stored["levels"]]
    for kind, value in kind_value_pairs:
        # bool is a subclass of Real; it raises an error below
        allowed_type: Any = {"bool": bool, "number": numbers.Real}.get(kind, str)
        if (
            kind not in KINDS
            or not isinstance(value, allowed_type)
            or (kind == "number" and isinstance(value, bool))
        ):
            raise ValueError(f"{value!r} is not a level")
        if kind == "number" and not np.isfinite(value):
            raise ValueError(f"{value!r} is not a level")
    if "number" in stored:
        return _number_from_dict(stored, kind_value_pairs)
    factor = Factor(
        name_from_list(stored["name"]),
        tuple(value for _, value in kind_value_pairs),
        tuple(kind for kind, _ in kind_value_pairs),
        flag("ordered", stored["ordered"]),
        flag("declared", stored.get("declared", False)),
    )
    # there are fewer distinct levels than levels, or than `min_levels`
    if len(set(zip(factor.kinds, factor.levels, strict=True))) < max(
        len(kind_value_pairs), min_levels
    ):
        raise ValueError(f"{factor.name!r} has too few levels, or a duplicate level")
    return factor


def _number_from_dict(stored: Mapping, kind_value_pairs: list[tuple[str, Any]]) -> NumberFactor:
    """Restore a numeric factor from `factor_to_dict`, given its levels as (kind, value) pairs."""
    center, scale, mean, *own_sd = stored["number"]
    sd = own_sd[0] if own_sd else 0.0
    numbers_in_file = (center, scale, mean, sd)
    is_finite = all(type(v) is float and math.isfinite(v) for v in numbers_in_file)
    if not is_finite or scale <= 0 or sd < 0 or len(own_sd) > 1:
        raise ValueError("its scale is malformed")
    if not 1 <= len(kind_value_pairs) <= 2:
        raise ValueError(f"{stored['name']!r} is not a valid numeric predictor")
    return NumberFactor(
        name_from_list(stored["name"]),
        tuple(value for _, value in kind_value_pairs),
        tuple(kind for kind, _ in kind_value_pairs),
        center=center,
        scale=scale,
        mean=mean,
        sd=sd,
    )


def name_to_list(name: Hashable) -> list:
    """Return a column name as a list [kind, value]; the value of a tuple contains one such list for
    each element.
    """
    if isinstance(name, tuple):
        return ["tuple", [name_to_list(element) for element in name]]
    # bool first, because True is also an int
    for kind, allowed_type in (("bool", bool), ("string", str), ("number", int | float)):
        if isinstance(name, allowed_type):
            return [kind, name]
    raise BBLTypeError(
        f"the column name {name!r} cannot be stored.",
        column=name,
        hint="Rename the columns: data.columns.astype(str).",
    )


def name_from_list(stored: Any) -> Hashable:
    """Restore a column name from the result of `name_to_list`."""
    kind, value = stored
    if kind == "tuple":
        return tuple(name_from_list(element) for element in value)
    if not isinstance(value, {"bool": bool, "string": str, "number": int | float}[kind]):
        raise ValueError(f"{value!r} is not a column name")
    return value


def terms_to_dict(terms: Interactions, m: int) -> dict[str, Any]:
    """Return the terms of `m` predictors as ``{"pairs": terms of order 2, "terms": [terms of order
    3, ...]}``.

    The terms of each order are a list of lists of predictor positions, or ``"all"`` for all terms
    of that order.
    """
    terms_by_order = [
        "all" if terms.count(k) == math.comb(m, k) else terms.list_terms(k).tolist()
        for k in range(2, max(terms.order, 2) + 1)  # "pairs" is stored even without terms
    ]
    return {"pairs": terms_by_order[0]} | (
        {"terms": terms_by_order[1:]} if len(terms_by_order) > 1 else {}
    )


def terms_from_dict(stored: Mapping, m: int) -> Interactions:
    """Restore the terms of `m` predictors from the result of `terms_to_dict`."""
    # older files, which do not support higher orders, only have pairs
    stored_orders = [stored["pairs"], *stored.get("terms", [])]
    if len(stored_orders) > max(m - 1, 1):  # orders 2 to m; "pairs" is present for any m
        raise ValueError("a term has more predictors than the model")
    # terms_by_order[0] contains the terms (T, 2) of order 2, and so on; None stands for all terms
    # of an order
    terms_by_order = [
        _terms_from_list(stored_terms, k, m) for k, stored_terms in enumerate(stored_orders, 2)
    ]
    # number of leading Nones; the orders 2 to 1 + n_full are complete and form a cube
    n_full = next(
        (n for n, terms in enumerate(terms_by_order) if terms is not None), len(terms_by_order)
    )
    cube = Cube(np.arange(m), 1 + n_full) if n_full else Cube()
    added_terms = {
        # Interactions checks the required memory before it lists the terms of a cube
        k: Interactions(Cube(np.arange(m), k)).list_terms(k) if terms is None else terms
        for k, terms in enumerate(terms_by_order[n_full:], 2 + n_full)
    }
    return Interactions(cube, {k: terms for k, terms in added_terms.items() if len(terms)})


def _terms_from_list(stored: object, k: int, m: int) -> np.ndarray | None:
    """Return stored terms of order k as an array (T, k), or None if they are stored as
    ``"all"``.
    """
    if isinstance(stored, str) and stored == "all":
        return None
    terms = np.array(stored).reshape(-1, k)
    if len(terms) and terms.dtype.kind != "i":  # an empty array has dtype float
        raise ValueError("terms are not integers")
    terms = terms.astype(np.intp)
    if len(terms) and (
        terms.min() < 0 or terms.max() >= m or (terms[:, 1:] <= terms[:, :-1]).any()
    ):
        raise ValueError("terms out of range")
    if (np.diff(term_keys(terms)[0]) <= 0).any():
        raise ValueError("terms out of order")
    return terms
