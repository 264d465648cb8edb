"""The names by which a caller knows the arguments of a call, for its printed form."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["data_arguments"]


def data_arguments(data: object, weights: object = None, design: object = None) -> dict[str, Any]:
    """Return the arguments `data`, `weights` and `design` of a call as they are printed, by name.

    As R does, a call names the variables of its caller. Data without a variable are left out of
    it; weights and a design are then named by their type.
    """
    arguments: dict[str, Any] = {}
    data_name = _variable_name(data)
    if data_name is not None:
        arguments["data"] = data_name
    if weights is not None:
        is_column = isinstance(weights, str)
        arguments["weights"] = weights if is_column else _name_or_type(weights)
    if design is not None:
        arguments["design"] = _name_or_type(design)
    return arguments


def _name_or_type(value: object) -> str:
    """Return the name of the caller's variable that holds `value`, or its type such as
    ``<ndarray>``.
    """
    return _variable_name(value) or f"<{type(value).__name__}>"


def _variable_name(value: object) -> str | None:
    """Return the name of the variable of the first caller outside this package that holds `value`.

    None if there is none, as for an expression. Names that begin with an underscore are not
    considered: consoles keep their last results under such names.
    """
    frame = inspect.currentframe()
    while frame is not None and _is_inside(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    if frame is None:
        return None
    for variables in (frame.f_locals, frame.f_globals):
        for name, held in list(variables.items()):
            if held is value and not name.startswith("_"):
                return name
    return None


def _is_inside(module: str) -> bool:
    """Return whether a module of this name is part of this package."""
    return module == "bbl" or module.startswith("bbl.")
