"""Store factors, column names and terms as plain values for JSON, and read them; corrupt values are
errors.

A `Factor` has the name, the levels and their kinds of a column. A *term* of order k is a set of k
predictors; T terms are an array (T, k). ``Cube(columns, k)`` is the set of all terms of order 2 to
k of the predictors `columns`, and ``Interactions(cube, added)`` that of a cube and further terms,
by order. ``count(k)`` is the number of terms of order k, ``list_terms(k)`` the array of them,
`order` the highest order. ``term_keys(terms)`` returns a list of one array (T,) of integers, which
rise if the terms are in lexicographic order.
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
    """Return name, levels and kinds of a factor as plain lists, strings and numbers."""
    levels = [
        [kind, str(v) if kind == "other" else v]
        for kind, v in zip(factor.kinds, factor.levels, strict=True)
    ]
    stored = {"name": name_to_list(factor.name), "levels": levels, "ordered": factor.ordered}
    if isinstance(factor, NumberFactor):
        stored["number"] = [factor.center, factor.scale, factor.mean]
    # left out if False: `factor_from_dict` takes absence for False, as files from before this entry
    # lack it
    return stored | ({"declared": True} if factor.declared else {})


def factor_from_dict(stored: Mapping, min_levels: int = 2) -> Factor:
    """Return the factor that `factor_to_dict` stored; fewer than `min_levels` levels are an
    error.
    """
    kind_value_pairs = [(kind, value) for kind, value in stored["levels"]]
    for kind, value in kind_value_pairs:
        # a bool is a Real, too, and is refused below
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
    # fewer distinct levels than levels, or than `min_levels`
    if len(set(zip(factor.kinds, factor.levels, strict=True))) < max(
        len(kind_value_pairs), min_levels
    ):
        raise ValueError(f"{factor.name!r} has too few levels, or a duplicate level")
    return factor


def _number_from_dict(stored: Mapping, kind_value_pairs: list[tuple[str, Any]]) -> NumberFactor:
    """Return the numeric factor that `factor_to_dict` stored, given the pairs of its levels."""
    center, scale, mean = stored["number"]
    if not all(type(v) is float and math.isfinite(v) for v in (center, scale, mean)) or scale <= 0:
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
    )


def name_to_list(name: Hashable) -> list:
    """Return the name of a column as a list [kind, value]; a tuple's value is the list of its
    elements' lists.
    """
    if isinstance(name, tuple):
        return ["tuple", [name_to_list(element) for element in name]]
    # bool first, as True is an int, too
    for kind, allowed_type in (("bool", bool), ("string", str), ("number", int | float)):
        if isinstance(name, allowed_type):
            return [kind, name]
    raise BBLTypeError(
        f"the column name {name!r} cannot be stored.",
        column=name,
        hint="Rename the columns: data.columns.astype(str).",
    )


def name_from_list(stored: Any) -> Hashable:
    """Return the name that `name_to_list` stored."""
    kind, value = stored
    if kind == "tuple":
        return tuple(name_from_list(element) for element in value)
    if not isinstance(value, {"bool": bool, "string": str, "number": int | float}[kind]):
        raise ValueError(f"{value!r} is not a column name")
    return value


def terms_to_dict(terms: Interactions, m: int) -> dict[str, Any]:
    """Return terms of `m` predictors as ``{"pairs": terms of order 2, "terms": [terms of order 3,
    ...]}``.

    The terms of an order are a list of lists of positions of predictors; or ``"all"``, if they are
    all that there are.
    """
    terms_by_order = [
        "all" if terms.count(k) == math.comb(m, k) else terms.list_terms(k).tolist()
        for k in range(2, max(terms.order, 2) + 1)  # "pairs" is stored even if there are no terms
    ]
    return {"pairs": terms_by_order[0]} | (
        {"terms": terms_by_order[1:]} if len(terms_by_order) > 1 else {}
    )


def terms_from_dict(stored: Mapping, m: int) -> Interactions:
    """Return the terms of `m` predictors that `terms_to_dict` stored."""
    # files from before higher orders have pairs alone
    stored_orders = [stored["pairs"], *stored.get("terms", [])]
    if len(stored_orders) > max(m - 1, 1):  # orders 2 to m; "pairs" is there for any m
        raise ValueError("terms with more predictors than there are")
    # terms_by_order[0] has the terms (T, 2) of order 2, and so on; None stands for all terms of an
    # order
    terms_by_order = [
        _terms_from_list(stored_terms, k, m) for k, stored_terms in enumerate(stored_orders, 2)
    ]
    # number of leading Nones; the orders 2 to 1 + n_full are complete, so that they form a cube
    n_full = next(
        (n for n, terms in enumerate(terms_by_order) if terms is not None), len(terms_by_order)
    )
    cube = Cube(np.arange(m), 1 + n_full) if n_full else Cube()
    added_terms = {
        # Interactions checks the memory before it lists the terms of a cube
        k: Interactions(Cube(np.arange(m), k)).list_terms(k) if terms is None else terms
        for k, terms in enumerate(terms_by_order[n_full:], 2 + n_full)
    }
    return Interactions(cube, {k: terms for k, terms in added_terms.items() if len(terms)})


def _terms_from_list(stored: object, k: int, m: int) -> np.ndarray | None:
    """Return stored terms of order k as an array (T, k); None if all terms are stored as
    ``"all"``.
    """
    if isinstance(stored, str) and stored == "all":
        return None
    terms = np.array(stored).reshape(-1, k)
    if len(terms) and terms.dtype.kind != "i":  # an array of no terms is one of floats
        raise ValueError("terms are not integers")
    terms = terms.astype(np.intp)
    if len(terms) and (
        terms.min() < 0 or terms.max() >= m or (terms[:, 1:] <= terms[:, :-1]).any()
    ):
        raise ValueError("terms out of range")
    if (np.diff(term_keys(terms)[0]) <= 0).any():
        raise ValueError("terms out of order")
    return terms
