"""Likelihood ratio tests of nested Boltzmann machines: functions that the result classes take over as methods."""

from __future__ import annotations

import numpy as np

from bbl.boltzmann.inference.nested import RatioTest, TermTests, nested_test
from bbl.boltzmann.inference.significance import Kind
from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.report.text import label_text
from bbl.results.machine.machine import MachineResults
from bbl.results.model import ModelResults
from bbl.rows.sample import Sample

__all__ = ["machine_ratio_test"]


def machine_ratio_test(self: MachineResults, other: ModelResults) -> dict[str, float | int | str]:
    """Return ``df``, ``test`` and, where there are any, ``ratio`` and ``p`` of the test of two nested fits.

    Raises
    ------
    DataError, OptionError
        If the fits are not nested, not of the same complete rows, not both machines, or a method has no equations.
    """
    large, shared = _nested(self, other)
    rows = large._full_groups()
    if rows.missing is not None:
        raise DataError("with missing values, models of different terms have different rows; see the criteria.")
    groups = [rows.group(y) for y in range(len(large.labels.groups))]
    result = nested_test(groups, large.parameters.layout, large.parameters.theta, shared)
    if isinstance(result, RatioTest):
        return {"ratio": result.statistic, "df": result.df, "p": result.p, "test": "composite likelihood ratio"}
    if np.isnan(result.p):
        return {"df": result.df, "test": f"no test: {_refusal(large.labels, result)}"}
    return {"df": result.df, "p": result.p, "test": f"least p of {result.tested} tests of terms, times {result.tested}"}


def _refusal(labels: Labels, tests: TermTests) -> str:
    """Return in words why the first term has no test, and how many more have none."""
    g, scope, kind = tests.refused[0]
    term = ":".join(label_text(labels.names[i]) for i in scope)
    n_more = len(tests.refused) - 1
    reason = (Kind.FEW if kind == Kind.EXACT else kind).text
    return f"{term} in {label_text(labels.groups[g])}, {reason}" + (f"; and {n_more} more" if n_more else "")


def _nested(one: MachineResults, other: ModelResults) -> tuple[MachineResults, np.ndarray]:
    """Return the larger of two nested fits to the same rows, and which of its terms (T,) the smaller one has."""
    one.engine.check_equations()
    if not isinstance(other, MachineResults):
        raise OptionError("the test is one of Boltzmann machines.")
    other.engine.check_equations()
    large, small = (one, other) if one.n_parameters >= other.n_parameters else (other, one)
    names, small_names = large.labels.names, small.labels.names
    if set(names) != set(small_names):
        extra = next(x for x in (*names, *small_names) if (x in names) != (x in small_names))
        raise DataError(
            f"{extra!r} is a predictor of one model alone, and a likelihood of other predictors is no matter of "
            "comparison. See summary() for the test of a predictor."
        )
    columns = [small_names.index(name) for name in names]  # of the small model, in the order of the large one
    if not _same_rows(large, small, columns):
        raise DataError("the models were fitted to different rows, groups or levels.")
    position = {column: i for i, column in enumerate(columns)}
    terms = [frozenset(scope) for scope in large.parameters.layout.scopes[len(names) :]]
    small_terms = {frozenset(position[i] for i in scope) for scope in small.parameters.layout.scopes[len(names) :]}
    if not small_terms < set(terms):
        kind = "pairs" if max(map(len, small_terms | set(terms)), default=2) < 3 else "terms"
        same = small_terms == set(terms)
        relation = f"have the same {kind}" if same else f"are not nested: each has {kind} that the other has not"
        raise DataError(f"the models {relation}; see the criteria.")
    return large, np.array([term in small_terms for term in terms])


def _same_rows(large: MachineResults, small: MachineResults, columns: list[int]) -> bool:
    """Return whether two fits have the same distinct rows and weights; `columns` are those of `small` in order."""
    a, b = large.labels, small.labels
    if a.response != b.response or a.groups != b.groups or a.levels != tuple(b.levels[i] for i in columns):
        return False
    rows, small_rows = large._rows(), small._rows()
    codes = np.ascontiguousarray(small_rows.codes[:, columns])
    reordered = Sample(codes, small_rows.weights, small_rows.y, small_rows.missing)
    n_levels = large.design.n_levels
    return all(
        p.codes.shape == q.codes.shape
        and np.array_equal(p.codes, q.codes)
        and np.array_equal(p.weights, q.weights)
        and np.array_equal(p.missing is None, q.missing is None)
        for p, q in (
            (rows.group(y).collapsed(n_levels), reordered.group(y).collapsed(n_levels)) for y in range(len(a.groups))
        )
    )
