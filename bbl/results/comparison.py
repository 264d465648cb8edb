"""Comparison: fitted models side by side, and the test of each against the one before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.nested import RatioTest, TermTests, nested_test
from bbl.boltzmann.inference.significance import Kind
from bbl.design.labels import Labels
from bbl.errors import BBLError, BBLTypeError, DataError, OptionError
from bbl.report.text import label_text
from bbl.rows.sample import Sample

__all__ = ["check_fits", "compared_fits", "criteria"]

RATIO = "composite likelihood ratio"


def check_fits(fits: Any, least: int = 1) -> dict[Hashable, Any]:
    """Return fitted classifiers by name, after checking that they are some; those of a sequence are numbered."""
    if isinstance(fits, dict):
        named = dict(fits)
    else:
        if isinstance(fits, str) or not isinstance(fits, Sequence):
            fits = [fits]
        named = {f"({k})": fit for k, fit in enumerate(fits, 1)}
    wrong = [fit for fit in named.values() if not hasattr(fit, "n_parameters") or not hasattr(fit, "logLik")]
    if wrong or len(named) < least:
        got = f"{wrong[0]!r}"[:80] if wrong else f"{len(named)} of them"
        raise BBLTypeError(f"fits must be {least} or more fitted models; got {got}.", argument="fits")
    return named


def compared_fits(fits: Any) -> pd.DataFrame:
    """Return the table of ``anova``; see there."""
    named = check_fits(fits, 2)
    models = list(named.values())
    rows = []
    for k, (name, fit) in enumerate(named.items()):
        row: dict[str, Any] = {
            "model": f"{label_text(name)} {_title(fit)}",
            "parameters": fit.n_parameters,
            **criteria(fit, models[0]),
            **dict.fromkeys(("ratio", "p"), np.nan),
            "df": 0,
            "test": "",
        }
        if k:
            row |= _against(models[k - 1], fit)
        rows.append(row)
    order = ["parameters", "logLik", "AIC", "BIC", "clAIC", "ratio", "df", "p", "test"]
    return pd.DataFrame(rows).set_index("model")[order].rename_axis(None)


def criteria(fit: Any, first: Any) -> dict[str, float]:
    """Return log-likelihood, AIC, BIC and composite-likelihood AIC of a fit, nan where it has none.

    Beside the `first` fit, a fit to another number of observations has no criteria: they would count other rows.
    """
    found = {}
    for title, name in (("logLik", "logLik"), ("AIC", "aic"), ("BIC", "bic"), ("clAIC", "claic")):
        try:
            value = getattr(fit, name)
            found[title] = float(value() if callable(value) else value)
        except (AttributeError, BBLError):
            found[title] = float("nan")
    if fit.nobs() != first.nobs():
        found |= dict.fromkeys(("AIC", "BIC", "clAIC"), float("nan"))
    return found


def _title(fit: Any) -> str:
    how = getattr(fit, "engine", None)
    return f"{label_text(fit.formula)}, {fit.kind if how is None else how.name}"


def _against(one: Any, other: Any) -> dict[str, Any]:
    """Return the test of two fits, or why there is none."""
    try:
        large, kept = _nested(one, other)
        found = _tested(large, kept)
    except (DataError, OptionError) as error:
        return {"test": f"no test: {error}"}
    if isinstance(found, RatioTest):
        return {"ratio": found.statistic, "df": found.df, "p": found.p, "test": RATIO}
    if np.isnan(found.p):
        return {"df": found.df, "test": f"no test: {_refusal(large.labels, found)}"}
    return {"df": found.df, "p": found.p, "test": f"least p of {found.tested} tests of terms, times {found.tested}"}


def _refusal(labels: Labels, found: TermTests) -> str:
    """Return in words why no term has a test."""
    g, scope, kind = found.refused[0]
    term = ":".join(label_text(labels.names[i]) for i in scope)
    more = f"; and {len(found.refused) - 1} more" if len(found.refused) > 1 else ""
    return f"{term} in {label_text(labels.groups[g])}, {(Kind.FEW if kind == Kind.EXACT else kind).text}{more}"


def _tested(large: Any, kept: np.ndarray) -> RatioTest | TermTests:
    rows = large._full_groups()
    if rows.missing is not None:
        raise DataError("with missing values, models of different terms have different rows; see the criteria.")
    groups = [rows.group(y) for y in range(len(large.labels.groups))]
    return nested_test(groups, large.parameters.layout, large.parameters.theta, kept)


def _nested(one: Any, other: Any) -> tuple[Any, np.ndarray]:
    """Return the larger of two nested fits to the same rows, and which of its terms the smaller one has."""
    for fit in (one, other):
        if not hasattr(fit, "engine"):
            raise OptionError("the test is one of Boltzmann machines.")
        fit.engine.check_equations()
    large, small = (one, other) if one.n_parameters >= other.n_parameters else (other, one)
    names, fewer = large.labels.names, small.labels.names
    if set(names) != set(fewer):
        extra = next(x for x in (*names, *fewer) if (x in names) != (x in fewer))
        raise DataError(
            f"{extra!r} is a predictor of one model alone, and a likelihood of other predictors is no matter of "
            "comparison. See summary() for the test of a predictor."
        )
    at = [fewer.index(name) for name in names]
    if not _same_rows(large, small, at):
        raise DataError("the models were fitted to different rows, groups or levels.")
    place = {old: new for new, old in enumerate(at)}
    terms = [frozenset(scope) for scope in large.parameters.layout.scopes[len(names) :]]
    fewer_terms = {frozenset(place[i] for i in scope) for scope in small.parameters.layout.scopes[len(names) :]}
    if not fewer_terms < set(terms):
        same, kind = (
            fewer_terms == set(terms),
            "pairs" if max(map(len, fewer_terms | set(terms)), default=2) < 3 else "terms",
        )
        what = f"have the same {kind}" if same else f"are not nested: each has {kind} that the other has not"
        raise DataError(f"the models {what}; see the criteria.")
    return large, np.array([term in fewer_terms for term in terms])


def _same_rows(large: Any, small: Any, at: list[int]) -> bool:
    a, b = large.labels, small.labels
    if a.response != b.response or a.groups != b.groups or a.levels != tuple(b.levels[i] for i in at):
        return False
    one, other = large._rows(), small._rows()
    other = Sample(np.ascontiguousarray(other.codes[:, at]), other.weights, other.y, other.missing)
    parts = [[x.group(y).collapsed(large.design.n_levels) for y in range(len(a.groups))] for x in (one, other)]
    return all(
        p.codes.shape == q.codes.shape
        and np.array_equal(p.codes, q.codes)
        and np.array_equal(p.weights, q.weights)
        and np.array_equal(p.missing is None, q.missing is None)
        for p, q in zip(*parts, strict=True)
    )
