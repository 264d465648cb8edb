"""Following advice: an error or warning that says ``name=value`` is taken by its word."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections.abc import Iterator
from typing import Any

import bbl
from bbl import networks
from bbl.engines import ENGINES
from scenarios.case import Case, LawBroken
from scenarios.scenario import Scenario

__all__ = ["advised", "follow"]

VALUE = r"('[^']*'|\"[^\"]*\"|True|False|-?\d+(?:\.\d+)?(?:e-?\d+)?)"
ADVICE = re.compile(rf"\b(\w+)=({VALUE}(?:(?:, | or |, or ){VALUE})*)")
# what is advised of data or another call: it cannot be followed by changing an argument here
QUOTING = {
    "newdata",
    "unseen",
    "store_data",
    "score",
    "shuffle",
    "of",
    "draws",
    "formula",
    "nfold",
    "columns",
}


def advised(text: str) -> Iterator[dict[str, Any]]:
    """Yield what a hint advises, as arguments and values."""
    before: dict[str, Any] = {}
    end = -1
    for each in ADVICE.finditer(text):
        together = before if text[end : each.start()] in (" with ", " and ") else {}
        for value in re.findall(VALUE, each[2]):
            before = together | {each[1]: ast.literal_eval(value)}
            yield before
        end = each.end()


def known_arguments(s: Scenario) -> set[str]:
    """Return the names that a call takes."""
    function = {
        "bbl": bbl.bbl,
        "shooter": bbl.shooter,
        "network": networks.bnc,
        "average": bbl.average,
    }[s.family]
    names = set(inspect.signature(function).parameters)
    if s.family == "bbl" and s.method in ENGINES:
        names |= {f.name for f in dataclasses.fields(ENGINES[s.method])}
    return names


def changed(s: Scenario, name: str, value: Any) -> Scenario | None:
    """Return the scenario with an argument changed; None if it is not one of the call."""
    if name == "method" and s.family == "bbl":
        # a complaint about the method names it
        if value not in (*ENGINES, "auto") or value == s.method:
            return None
        # advised of formulas that have one
        if value in ("conditional", "blanket", "boosting") and not s.response:
            return None
        # advised if predictors are few
        if value == "ml" and math.prod(s.levels[i] + 1 for i in s.used) > 2**24:
            return None
        names = known_arguments(dataclasses.replace(s, method=value, options={}))
        return dataclasses.replace(
            s, method=value, options={k: v for k, v in s.options.items() if k in names}
        )
    if name in QUOTING or name not in known_arguments(s) or s.family == "average":
        return None
    return dataclasses.replace(s, options=s.options | {name: value})


def follow(case: Case, error: bbl.BBLError) -> None:
    """Raise `LawBroken` if an argument that an error advises is refused, or leads to the same
    error.
    """
    alternatives = list(advised(error.hint or ""))
    for changes in alternatives:
        if any(changes.items() < other.items() for other in alternatives):
            continue  # of what is advised together, one alone
        s: Scenario | None = case.s
        for name, value in changes.items():
            s = s and changed(s, name, value)
        if s is None:
            continue
        try:
            case.refit(scenario=s)
        except bbl.BBLError as again:
            of_data = isinstance(again, bbl.errors.DataError)  # these may not allow all
            refused = again.argument in changes and not of_data
            if str(again) == str(error) or refused:
                raise LawBroken(
                    f"advice {changes} of {str(error)!r} gives {str(again)!r}"
                ) from again
