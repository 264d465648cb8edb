"""A case: a scenario with its table, its fitted model and the warnings on the way; what laws are
functions of.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

import bbl
from scenarios import build
from scenarios.build import Table
from scenarios.scenario import MEMORY, Scenario

__all__ = ["Case", "LawBroken", "expect", "strict_warnings"]

OURS = (bbl.ConvergenceWarning, bbl.DataWarning)
TOLERANCE = 1e-5  # of optimisers that stop at a gradient; scaled weights differ by rounding alone


class LawBroken(AssertionError):
    """A law does not hold."""


def expect(holds: Any, what: str) -> None:
    """Raise `LawBroken` that says what does not hold."""
    if not holds:
        raise LawBroken(what)


def expect_close(a: Any, b: Any, what: str, rtol: float = 1e-9, atol: float = 1e-9) -> None:
    """Raise `LawBroken` unless two arrays are equal up to rounding, with missing values in the same
    places.
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    expect(a.shape == b.shape, f"{what}: shapes {a.shape} and {b.shape}")
    if not np.allclose(a, b, rtol, atol, equal_nan=True):
        with np.errstate(all="ignore"):
            far = np.abs(a - b) - rtol * np.abs(b)
        at = np.unravel_index(
            np.nanargmax(np.where(np.isnan(a) != np.isnan(b), np.inf, np.nan_to_num(far))), a.shape
        )
        raise LawBroken(f"{what}: {a[at]!r} and {b[at]!r} at {tuple(map(int, at))}")


@contextmanager
def strict_warnings(messages: list[str]):
    """Collect warnings of the package as text; any other is a failure."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for each in caught:
        if not issubclass(each.category, OURS) and "missing from font" not in str(each.message):
            raise LawBroken(
                f"{each.category.__name__}: {each.message} ({each.filename}:{each.lineno})"
            )
        messages.append(f"{each.category.__name__}: {each.message}")


class Case:
    """A scenario that is being judged.

    Attributes
    ----------
    s : Scenario
    table : Table
    warnings : list of str
        What the package warned of, in all calls so far.
    rng : numpy.random.Generator
        What laws draw from; reset by the runner before each law, so that a law alone draws the
        same.
    """

    def __init__(self, scenario: Scenario):
        self.s = scenario
        self.table: Table = build.make_table(scenario)
        self.warnings: list[str] = []
        self.rng = np.random.default_rng(0)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The table as a pandas frame."""
        return self.table.frame()

    @cached_property
    def plain_frame(self) -> pd.DataFrame:
        """The table without the columns of a sampling design."""
        return self.table.frame(design=False)

    @cached_property
    def new(self) -> Table:
        """Rows to predict."""
        return build.new_table(self.s, self.table)

    @cached_property
    def new_frame(self) -> pd.DataFrame:
        """Rows to predict, with a response, as a pandas frame."""
        return self.new.frame()

    @cached_property
    def fit(self) -> Any:
        """The model of the scenario."""
        with build.source(self.s.source, self.frame, self.s.seed) as data:
            return build.fit(self.s, self.table, data)

    def refit(
        self,
        table: Table | None = None,
        source: str | None = None,
        scenario: Scenario | None = None,
        **changes,
    ):
        """Fit another table, source or scenario."""
        s = scenario or self.s
        frame = self.frame if table is None else table.frame()
        table = table or self.table
        with build.source(source or s.source, frame, s.seed) as data:
            return build.fit(s, table, data, **changes)

    # what conditions of laws ask for

    @property
    def in_memory(self) -> bool:
        """Whether the model brings its training rows along."""
        return self.s.source in MEMORY

    @property
    def engine(self) -> Any:
        """The engine of a Boltzmann machine; None for other models."""
        return getattr(self.fit, "engine", None) if self.s.family == "bbl" else None

    @property
    def has_tests(self) -> bool:
        """Whether parameters have standard errors and tests: not of predictors that the rows have
        chosen.
        """
        return (
            self.engine is not None
            and self.engine.has_tests
            and self.fit.estimate.relevance is None
        )

    @property
    def classes(self) -> bool:
        """Whether the model has classes."""
        return hasattr(type(self.fit), "predict")

    @property
    def is_tuned(self) -> bool:
        """Whether folds decide on something, so that the order of rows does too."""
        o = self.s.options
        cv = any(
            o.get(name) in ("cv", "cv-1se")
            for name in (
                "lambda_",
                "eps",
                "ridge",
                "scale",
                "ordered",
                "logits",
                "iss",
                "relevance",
            )
        )
        searched = self.s.method in ("tan_hc", "tan_hcsp", "fssj", "bsej", "auto")
        return (
            cv
            or searched
            or o.get("calibrate", "none") != "none"
            or o.get("average") == "cv"
            or "start" in o
        )

    @property
    def converged(self) -> bool:
        """Whether there is one finite optimum, which was reached."""
        return not any("ConvergenceWarning" in text for text in self.warnings)

    def probabilities(self, fit: Any, rows: Any = None) -> pd.DataFrame:
        """Return the class probabilities of new rows, groups by name."""
        frame = fit.predict(self.new_frame if rows is None else rows, type="prob")
        return frame.iloc[:, :-1]
