"""Laws of inference: tests, intervals and criteria."""

from __future__ import annotations

import tempfile

import numpy as np
import pandas as pd

import bbl
from bbl.errors import BBLError
from scenarios import build
from scenarios.case import TOLERANCE, Case, expect, expect_close
from scenarios.laws import law


def tests_are_there(case: Case) -> bool:
    """Whether there are standard errors and tests."""
    return (
        case.has_tests
        and case.in_memory
        and (case.s.weights != "real" or bool(case.s.design))
        and case.s.options.get("symmetrize", True)
        and case.fit.estimate.parameters.layout.size <= 200
        and len(case.fit.labels.groups) <= 4
    )


def which(case: Case) -> list:
    """Return what tables can be of."""
    groups = list(case.fit.labels.groups)
    of: list = ["group"]
    if case.fit.estimate.parameters.pooled is not None:
        of.append("pooled")
    if len(groups) > 1:
        of.append((groups[0], groups[-1]))
    return of


@law(tests_are_there, cost=30)
def p_and_interval_agree(case: Case) -> None:
    """A p-value is below 0.05 if and only if the 95 % interval excludes 0, and parameters without a
    test have no interval.
    """
    of = which(case)
    table = case.fit.inference().table(of[case.rng.integers(len(of))])
    p, lower, upper = (table[c].to_numpy(float) for c in ("p", "lower", "upper"))
    there = ~np.isnan(p)
    expect(((p[there] >= 0) & (p[there] <= 1)).all(), "a p-value is outside 0 to 1")
    expect(not (lower[there] > upper[there]).any(), "a lower limit is above the upper one")
    out = (lower > 0) | (upper < 0)
    clear = there & (np.abs(p - 0.05) > 1e-6) & ~np.isnan(lower) & ~np.isnan(upper)
    wrong = clear & (out != (p < 0.05))
    expect(not wrong.any(), f"p and interval: {table[wrong].head(3).to_dict('records')}")


@law(lambda case: tests_are_there(case) and case.classes, cost=40)
def one_hypothesis_has_one_p_value(case: Case) -> None:
    """The p-value of a hypothesis is the same for either of two groups (except for Wald tests of
    interacting predictors).

    Wald tests of predictors that interact, and all under a sampling design, are of the difference
    from the pooled fit itself: two groups can have the same coupling, and all rows another one.
    """
    groups = list(case.fit.labels.groups)
    inference = case.fit.inference()
    if len(groups) < 2:
        return
    a, b = inference.tests((groups[0], groups[1])), inference.tests((groups[1], groups[0]))
    expect_close(a["p"], b["p"], "tests of (a, b) and (b, a)", rtol=1e-6)
    a, b = inference.table((groups[0], groups[1])), inference.table((groups[1], groups[0]))
    expect_close(a["p"], b["p"], "table of (a, b) and (b, a)", rtol=1e-6)
    expect_close(a["estimate"], -b["estimate"], "estimates of (a, b) and (b, a)")
    expect_close(a["lower"], -b["upper"], "limits of (a, b) and (b, a)", rtol=1e-6)
    if len(groups) == 2 and case.fit.estimate.parameters.pooled is not None:
        of = inference.tests("pooled")
        one, other = (
            part.reset_index(drop=True)
            for part in (of.iloc[: len(of) // 2], of.iloc[len(of) // 2 :])
        )
        interacting = pd.concat(
            [of["predictor"][of["predictor2"].notna()], of["predictor2"].dropna()]
        )
        is_wald, of_one = (
            one["test"].str.contains("Wald|Rao-Scott"),
            one["predictor"].isin(interacting),
        )
        of_itself = is_wald & (of_one | one["predictor2"].notna() | bool(case.s.design))
        expect(
            (one["test"] == other["test"])[~of_itself].all(),
            "kinds of pooled tests of either group",
        )
        expect_close(
            one["p"][~of_itself], other["p"][~of_itself], "pooled tests of either group", rtol=1e-6
        )


@law(tests_are_there, cost=15)
def criteria_go_by_the_same_rows(case: Case) -> None:
    """AIC and BIC are consistent with the log-likelihood and the numbers of parameters and
    observations.
    """
    fit = case.fit
    likelihood = fit.logLik()
    if likelihood.log_z is not None:  # an approximate ln Z: there are no criteria
        return
    expect_close(fit.aic, -2 * likelihood + 2 * likelihood.df, "AIC")
    expect_close(fit.bic, -2 * likelihood + np.log(fit.nobs()) * likelihood.df, "BIC")
    expect(likelihood.df == fit.n_parameters, "df of the log-likelihood")
    rows = bbl.anova(fit, fit)
    expect_close(rows["AIC"], [fit.aic] * 2, "AIC of anova")


@law(tests_are_there, cost=25)
def conf_int_is_the_table(case: Case) -> None:
    """params, bse, pvalues and conf_int() are columns of inference().table()."""
    table = case.fit.inference().table()
    expect_close(case.fit.params, table["estimate"], "params")
    expect_close(case.fit.bse, table["se"], "bse")
    expect_close(case.fit.pvalues, table["p"], "pvalues")
    expect_close(case.fit.conf_int(), table[["lower", "upper"]], "conf_int()")
    expect(case.fit.params.index.equals(case.fit.conf_int().index), "indexes differ")


def may_have_a_design(case: Case) -> bool:
    """Whether the scenario's call may be made with a sampling design."""
    is_refused = bool(case.s.numbers) and (
        case.s.method == "conditional"
        or "cv" in [case.s.options.get(name) for name in ("covariance", "shrink", "transform")]
    )
    return case.has_tests and case.in_memory and not (case.is_tuned or case.s.design or is_refused)


@law(may_have_a_design, cost=60)
def a_sampling_design_does_not_change_estimates(case: Case) -> None:
    """A sampling design does not change estimates; its p-values and intervals agree; it is saved
    with the model.
    """
    table = case.table.take(build.kept_rows(case.s, case.table))
    frame, n = table.frame(), table.n
    names = (name for name in (f"design{k}" for k in range(100)) if name not in frame)
    stratum, cluster, weight = next(names), next(names), next(names)
    codes = case.rng.integers(0, 9, n)
    weights = np.ones(n) if table.weights is None else table.weights
    drawn = frame.assign(**{stratum: codes // 3, cluster: codes, weight: weights})
    design = bbl.survey(weight, strata=stratum, cluster=cluster, lonely="adjust")
    text = build.formula(case.s, table)
    if table.weights is not None and isinstance(case.s.terms, int):
        text += f" - {build.quoted(table.weight_name)}"
    plain = build.fit(case.s, table, frame)
    fit = build.fit(case.s, table, drawn, weights=None, design=design, formula=text)
    # weights of a design are scaled to the effective number of rows, so that sums round otherwise;
    # pseudo-likelihood may stop at another point where the gradient is small. As the Hessian is at
    # least the penalty, these are apart by at most the sum of both gradients over the penalty.
    tolerance = 1e-9
    if case.s.method == "pseudo":
        engine = plain.engine
        least_penalty = max(float(np.min(engine.lambda_)), 1e-300)
        tolerance = min(TOLERANCE, max(tolerance, 2.0 * engine.tolerance / least_penalty))
    expect_close(
        fit.estimate.parameters.theta,
        plain.estimate.parameters.theta,
        "estimates of the weights",
        tolerance,
        tolerance,
    )
    try:
        inference = fit.inference()
    except BBLError:  # a group without rows
        return
    if not 0 < fit.estimate.parameters.layout.size <= 60:
        return
    frame = inference.table()
    clear = frame["p"].notna() & ((frame["p"] - 0.05).abs() > 1e-6)
    out = (frame["lower"] > 0) | (frame["upper"] < 0)
    expect(not (clear & (out != (frame["p"] < 0.05))).any(), "p and interval")
    tests, covariance = inference.tests(), inference.cov_params()
    expect(tests["p"].dropna().between(0, 1).all(), "a p-value is outside 0 to 1")
    expect_close(
        np.sqrt(np.diag(covariance)), inference.bse, "standard errors and covariances", rtol=1e-6
    )
    with tempfile.TemporaryDirectory() as folder:
        fit.save(f"{folder}/fit.bbl", store_data=True)
        loaded = bbl.load(f"{folder}/fit.bbl")
    expect_close(loaded.bse, inference.bse, "standard errors of a loaded fit", rtol=1e-9)
    str(fit.summary())
