"""The runner: draws scenarios, chooses laws, checks them, and tells failures apart."""

from __future__ import annotations

import traceback
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import bbl
from scenarios import (  # noqa: F401
    laws_answers,
    laws_effects,
    laws_equivalence,
    laws_inference,
    laws_predictions,
    laws_public_functions,
    laws_weights,
)
from scenarios.case import Case, LawBroken, strict_warnings
from scenarios.exceptions import exception
from scenarios.laws import LAWS, Law
from scenarios.scenario import Scenario, draw

__all__ = ["Outcome", "run", "run_seed"]

BUDGET = 25.0  # milliseconds of laws in a scenario, about
HERE = Path(bbl.__file__).parent


@dataclass
class Outcome:
    """What became of a scenario.

    Attributes
    ----------
    failures : list of (law, kind, message)
        `kind` tells failures apart: exception, and where in the package.
    refused : str
        The message with which the fit was refused; empty if it was not.
    checked : list of str
        The laws that were checked.
    excepted : Counter
        Laws that were not, by the sentence that says why.
    """

    failures: list[tuple[str, str, str]] = field(default_factory=list)
    refused: str = ""
    checked: list[str] = field(default_factory=list)
    excepted: Counter = field(default_factory=Counter)


def described(error: BaseException) -> tuple[str, str]:
    """Return the kind of an error, and it as text."""
    if isinstance(error, LawBroken):
        return "LawBroken: " + str(error).split(":")[0][:60], str(error)
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(str(HERE)):
            place = f" in {Path(frame.filename).relative_to(HERE.parent)}:{frame.name}"
    return type(error).__name__ + place, f"{type(error).__name__}: {error}{place}"


def run(s: Scenario, names: list[str] | None = None) -> Outcome:
    """Fit a scenario and check laws: those of `names`, or a few that are drawn from its seed."""
    outcome, case = Outcome(), Case(s)
    try:
        with strict_warnings(case.warnings):
            case.fit  # noqa: B018
    except bbl.BBLError as error:
        outcome.refused = str(error)
        if names is None or "advice_works" in names:
            check(laws_answers.REFUSED, case, outcome, error)
        return outcome
    except Exception as error:
        outcome.failures.append(("fit", *described(error)))
        return outcome
    for law in (
        chosen(case, outcome) if names is None else [LAWS[name] for name in names if name in LAWS]
    ):
        if names is not None and (not applies(law, case) or exception(law.name, case)):
            continue
        check(law, case, outcome)
    return outcome


def applies(law: Law, case: Case) -> bool:
    """Return whether a law can be asked of a case."""
    return bool(law.when(case))


def chosen(case: Case, outcome: Outcome) -> list[Law]:
    """Draw laws that apply, cheap ones more often, until the budget is spent."""
    rng = np.random.default_rng([case.s.seed, 7])
    laws = list(LAWS.values())
    weights = np.array([law.cost**-0.75 for law in laws])
    order = np.argsort(rng.exponential(size=len(laws)) / weights)
    spent, found = 0.0, []
    for k in order:
        law = laws[k]
        if spent >= BUDGET:
            break
        if not applies(law, case):
            continue
        reason = exception(law.name, case)
        if reason:
            outcome.excepted[law.name, reason] += 1
            continue
        found.append(law)
        spent += law.cost
    return found


def check(law: Law, case: Case, outcome: Outcome, *given) -> None:
    """Check a law, and enter its failure."""
    case.rng = np.random.default_rng([case.s.seed, 8, zlib.crc32(law.name.encode())])
    outcome.checked.append(law.name)
    try:
        with strict_warnings([]):
            law.check(case, *given)
    except Exception as error:
        outcome.failures.append((law.name, *described(error)))


def run_seed(seed: int) -> Outcome:
    """Draw the scenario of a seed and run it."""
    return run(draw(seed))
