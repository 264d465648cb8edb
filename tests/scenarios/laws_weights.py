"""The law of scale: real-valued weights and sampling weights are known up to a factor."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from bbl.report.machine.summary import Summary
from bbl.results.model import ModelResults
from scenarios import build
from scenarios.case import TOLERANCE, Case, LawBroken, expect, strict_warnings
from scenarios.introspection import answer
from scenarios.laws import law
from scenarios.laws_answers import drawn
from scenarios.laws_public_functions import validated

SOFT = 1e-3  # of numbers printed with four digits
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


def has_no_counts(case: Case) -> bool:
    """Whether the rows of the fit have weights that do not count them."""
    weights = case.table.weights
    if weights is None:
        return False
    kept = weights[build.kept_rows(case.s, case.table)]
    return bool(case.s.design) or not (kept == np.floor(kept)).all()


def rescaled(case: Case) -> tuple[float, Case]:
    """Return a factor, and the case with weights times the factor."""
    weights = case.table.weights.astype(float)
    factor = 10.0 ** case.rng.uniform(-6, 6)
    if case.rng.random() < 0.2:
        factor = 1.0 / weights[build.kept_rows(case.s, case.table)].sum()
    other = Case(case.s)
    other.table = dataclasses.replace(case.table, weights=weights * factor)
    other.rng = case.rng
    return factor, other


def words(text: str) -> str:
    """Return a text without its numbers."""
    return re.sub(r"[\s|.+=-]+", " ", NUMBER.sub("#", text))


def numbers(text: str) -> list[float]:
    """Return the numbers in a text."""
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def unlike(a: Any, b: Any, where: str) -> str:
    """Return where two answers differ by more than rounding; empty if they are alike."""
    if isinstance(a, pd.DataFrame):
        expect(list(a.columns) == list(b.columns), f"{where}: other columns")
        parts = [
            (a.iloc[:, k].tolist(), b.iloc[:, k].tolist(), name) for k, name in enumerate(a.columns)
        ]
        return next((d for x, y, k in parts if (d := unlike(x, y, f"{where}[{k!r}]"))), "")
    if isinstance(a, pd.Series | pd.Index):
        return unlike(a.tolist(), b.tolist(), where)
    if isinstance(a, np.ndarray):
        if a.dtype.kind == "f" and a.shape == b.shape:
            alike = np.allclose(a, b, TOLERANCE, TOLERANCE, equal_nan=True)
            return "" if alike else f"{where} is {a!r} and {b!r}"
        return unlike(a.tolist(), b.tolist(), where)
    if isinstance(a, Real) and isinstance(b, Real):
        alike = np.isclose(float(a), float(b), TOLERANCE, TOLERANCE, equal_nan=True)
        return "" if alike else f"{where} is {a!r} and {b!r}"
    if isinstance(a, str) and isinstance(b, str):
        x, y = numbers(a), numbers(b)
        alike = words(a) == words(b) and np.allclose(x, y, SOFT, SOFT, equal_nan=True)
        return "" if alike else f"{where} is {a!r} and {b!r}"
    if isinstance(a, Mapping):
        expect(list(a) == list(b), f"{where} has keys {list(a)} and {list(b)}")
        return next((d for k in a if (d := unlike(a[k], b[k], f"{where}[{k!r}]"))), "")
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where} has length {len(a)} and {len(b)}"
        pairs = enumerate(zip(a, b, strict=True))
        return next((d for k, (x, y) in pairs if (d := unlike(x, y, f"{where}[{k}]"))), "")
    if dataclasses.is_dataclass(a) and not isinstance(a, ModelResults | Summary):
        # a start at the optimum takes no or one iteration, by rounding
        left_out = {"engine", "n_iter"}
        names = [f.name for f in dataclasses.fields(a) if f.name not in left_out]
        found = (unlike(getattr(a, n), getattr(b, n), f"{where}.{n}") for n in names)
        return next((d for d in found if d), "")
    if isinstance(a, Summary):
        return unlike(str(a), str(b), where)
    return ""


@law(has_no_counts, cost=4)
def the_scale_of_weights_does_not_matter(case: Case) -> None:
    """Multiplying real-valued or sampling weights by a constant does not change results, warnings
    and errors.
    """
    factor, other = rescaled(case)
    with strict_warnings(other.warnings):
        other.fit  # noqa: B018
    expect(
        not unlike(sorted(case.warnings), sorted(other.warnings), "warnings"),
        f"warnings: weights times {factor:g}: {case.warnings} and {other.warnings}",
    )
    for name in drawn(case, case.fit, 6):
        new = bool(case.rng.integers(2))
        messages: list[str] = []
        messages_other: list[str] = []
        with strict_warnings(messages):
            said, found = answer(case, case.fit, name, new)
        with strict_warnings(messages_other):
            said_other, found_other = answer(other, other.fit, name, new)
        expect(
            not unlike(sorted(messages), sorted(messages_other), "warnings"),
            f"{name}: weights times {factor:g}: {messages} and {messages_other}",
        )
        expect(said == said_other, f"{name}: weights times {factor:g}: {found} and {found_other}")
        difference = unlike(found, found_other, name)
        expect(not difference, f"{name}: weights times {factor:g}: {difference}")


@law(lambda case: has_no_counts(case) and case.s.family == "bbl" and case.in_memory, cost=30)
def the_scale_of_weights_does_not_matter_for_validation(case: Case) -> None:
    """Cross-validation does not depend on the scale of real-valued or sampling weights."""
    factor, other = rescaled(case)
    found = []
    for each in (case, other):
        try:
            found.append(validated(each).cvframe)
        except Exception as error:
            if not type(error).__module__.startswith("bbl"):
                raise
            found.append(str(error))
    if type(found[0]) is not type(found[1]):
        raise LawBroken(f"crossVal: weights times {factor:g}: {found[0]} and {found[1]}")
    difference = unlike(found[0], found[1], "cvframe")
    expect(not difference, f"crossVal: weights times {factor:g}: {difference}")
