"""Every public method and property of a result, found by introspection, and whether two answers are
alike.
"""

from __future__ import annotations

import dataclasses
import inspect
import numbers
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

import bbl
from bbl.report.machine.summary import Summary
from bbl.results.model import ModelResults
from scenarios.case import Case, LawBroken, expect

__all__ = ["COSTLY", "answer", "difference", "public_names"]

COSTLY = {  # milliseconds, about, of what takes more than a few
    "avg_comparisons": 30,
    "avg_predictions": 20,
    "comparisons": 60,
    "predictions": 30,
    "bootstrap": 60,
    "importance": 40,
    "report": 600,
    "plot": 150,
    "plot_network": 150,
    "plot_logo": 150,
    "plot_mosaic": 150,
    "plot_coefficients": 150,
    "summary": 20,
    "conf_int": 20,
    "bse": 20,
    "pvalues": 20,
    "tvalues": 20,
    "cov_params": 20,
    "claic": 20,
    "clbic": 20,
    "inference": 20,
}
NOT_ASKED = {
    "save": "it has a law of its own",
    "report": "it has a law of its own",
    "write_bif": "it writes a file",
    "explore": "it writes a file, and its section is in the report",
    "compare": "it is anova, which is a function",
    "training": "the encoded rows, for the package itself",
    "estimate": "arrays, for the package itself; its attributes are public properties",
    "design": "how rows are encoded, for the package itself",
    "network": "arrays, for the package itself",
}
# of a tuning: its `engine` is the model's
NOT_IN_FILES = ("training", "scored", "engine")
SAVES_TIME = {
    "nboot": 2,
    "nfold": 2,
    "seed": 1,
    "verbose": 0,
    "n_jobs": 1,
    "n_steps": 20,
    "pvalues": "auto",
}


def required(case: Case, name: str) -> Any:
    """Return a value for an argument that has no default."""
    values: dict[str, Callable[[], Any]] = {
        "newdata": lambda: case.new_frame,
        "n": lambda: 2,
        "k": lambda: 1,
        "priors": lambda: "equal",
        "var": lambda: case.table.names[0],  # a search may have left all features out
        "group": lambda: case.fit.labels.groups[0],
        "a": lambda: case.table.names[0],
        "b": lambda: case.fit.labels.names[-1],
        "x": lambda: (case.table.numbers or case.table.names)[0],
        "y": lambda: (case.table.numbers or case.fit.labels.names)[-1],
    }
    if name not in values:
        raise LawBroken(
            f"argument {name!r} is new to the machine: enter a value in "
            "tests/scenarios/introspection.py"
        )
    return values[name]()


def public_names(result: Any) -> list[str]:
    """Return the names of what a user can ask a result, in order."""
    return [name for name in dir(result) if not name.startswith("_") and name not in NOT_ASKED]


def answer(case: Case, result: Any, name: str, new: bool = True) -> tuple[str, Any]:
    """Ask a result for a public name; return ``"value"`` or ``"refused"`` and what it said. Other
    errors pass.
    """
    import matplotlib.pyplot as plt

    try:
        found = getattr(result, name)
        if isinstance(found, types.MethodType | types.FunctionType):
            found = found(**_arguments(case, found, new))
        if isinstance(found, Iterator):
            found = list(found)
        if isinstance(found, pd.DataFrame):
            expect(found.columns.is_unique, f"{name}() has columns {list(found.columns)}")
            named = [n for n in found.index.names if n is not None]
            expect(
                not set(named) & set(found.columns),
                f"{name}() has index names {named} among its columns",
            )
        return "value", found
    except bbl.BBLError as error:
        return "refused", str(error)
    finally:
        plt.close("all")


def _arguments(case: Case, method: Callable, new: bool) -> dict[str, Any]:
    """Return arguments with which a method is asked."""
    out = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in SAVES_TIME:
            out[name] = SAVES_TIME[name]
        elif name == "newdata" and new or parameter.default is parameter.empty:
            out[name] = required(case, name)
    return out


def difference(a: Any, b: Any, where: str = "it") -> str:
    """Return where two answers differ, numbers to the last bit; empty if they are alike."""
    near = any(isinstance(a, kind) and isinstance(b, kind) for kind in (float, pd.Index))
    if type(a) is not type(b) and not near:
        return f"{where} is {type(a).__name__} and {type(b).__name__}"
    if isinstance(a, pd.DataFrame | pd.Series | pd.Index):
        return _of_frames(a, b, where)
    if isinstance(a, np.ndarray):
        alike = a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        return "" if alike else f"{where} is {a!r} and {b!r}"
    if isinstance(a, str | bytes | types.NoneType):
        return "" if a == b else f"{where} is {a!r} and {b!r}"
    if isinstance(a, numbers.Number):
        return "" if a == b or (a != a and b != b) else f"{where} is {a!r} and {b!r}"
    if isinstance(a, Mapping):
        if list(a) != list(b):
            return f"{where} has keys {list(a)} and {list(b)}"
        return next((d for k in a if (d := difference(a[k], b[k], f"{where}[{k!r}]"))), "")
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where} has length {len(a)} and {len(b)}"
        return next(
            (d for k in range(len(a)) if (d := difference(a[k], b[k], f"{where}[{k}]"))), ""
        )
    if dataclasses.is_dataclass(a) and not isinstance(a, ModelResults | Summary):
        names = [f.name for f in dataclasses.fields(a) if f.name not in NOT_IN_FILES]
        return next(
            (d for n in names if (d := difference(getattr(a, n), getattr(b, n), f"{where}.{n}"))),
            "",
        )
    text = repr(a)
    return (
        ""
        if " at 0x" in text or "Axes" in text or text == repr(b)
        else f"{where} is {text} and {b!r}"
    )


def _comparable(cell: Any) -> Any:
    """Return a cell of a frame such that equal ones compare as equal: tuples that hold nan do
    not.
    """
    return repr(cell) if isinstance(cell, tuple) else cell


def _of_frames(a: Any, b: Any, where: str) -> str:
    try:
        if isinstance(a, pd.DataFrame):
            a, b = a.map(_comparable), b.map(_comparable)
            pd.testing.assert_frame_equal(a, b, check_exact=True, check_index_type="equiv")
        elif isinstance(a, pd.Series):
            pd.testing.assert_series_equal(a, b, check_exact=True, check_index_type="equiv")
        else:
            pd.testing.assert_index_equal(a, b, exact="equiv")
    except AssertionError as error:
        return f"{where}: {' '.join(str(error).split())}"
    return ""
