"""Comparison of exact maximum likelihood with stored outputs of R's log-linear models: cases,
measured differences.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from rcompare import Check
from scipy.stats import chi2

import bbl
from bbl.errors import ConvergenceWarning, DataWarning
from bbl.model.layout import Layout

RULES = {
    "fit": (
        "One model: fitted counts, deviance, Pearson's statistic, log-likelihood, AIC and BIC, "
        "degrees of freedom, coefficients, standard errors and some covariances of glm, loglm and "
        "loglin, iterated to convergence."
    ),
    "boundary": (
        "The same if the maximum is only reached in a limit: fitted counts and degrees of freedom "
        "of the extended maximum likelihood estimate, and which coefficients diverge."
    ),
    "dropped": "Likelihood-ratio tests of single terms: drop1.",
    "nested": "A sequence of models: deviances, and the likelihood-ratio tests of anova.",
    "conditional_independence": (
        "Conditional independence in strata: deviances, Pearson's statistics and likelihood-ratio "
        "tests; odds ratios of the strata; the Cochran-Mantel-Haenszel tests, from statsmodels."
    ),
    "logit_equivalence": (
        "Coefficients, standard errors and covariances of a logit model, from the equivalent "
        "log-linear model."
    ),
}
# tolerances: most numbers; standard errors and p-values; integers
RELATIVE, ERRORS, COUNT = 1e-8, 1e-7, 0.0
ZEROS = "structural_zero"  # column that marks cells that cannot occur
NEAR_ZERO = 1e-9  # absolute, of deviances of models that fit exactly


def folder() -> Path:
    """Return where the stored cases should be."""
    shared = Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    return shared / "reference" / "loglin"


def read(name: str) -> dict:
    """Return a stored case."""
    return json.loads((folder() / f"{name}.json").read_text(encoding="utf-8"))


def names() -> list[str]:
    """Return the cases that are compared: all but step paths and plain odds ratios."""
    kinds = ("fit", "nested", "conditional_independence", "logit_equivalence")
    return [
        path.stem for path in sorted(folder().glob("*.json")) if read(path.stem)["kind"] in kinds
    ]


def compare(name: str) -> list[Check]:
    """Return the measured differences of a case."""
    case = read(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of maxima on the boundary
        warnings.simplefilter("ignore", DataWarning)  # of levels that are absent
        return {
            "fit": compare_fit,
            "nested": compare_nested,
            "conditional_independence": compare_strata,
            "logit_equivalence": compare_logit,
        }[case["kind"]](case)


def table(case: dict) -> pd.DataFrame:
    """Return the table of a case; levels keep their order, and cells that cannot occur have no
    rows.
    """
    columns = {}
    for column in case["data"]["columns"]:
        if column["type"] == "factor":
            codes = [-1 if code is None else code for code in column["codes"]]
            columns[column["name"]] = pd.Categorical.from_codes(codes, column["levels"])
        else:
            columns[column["name"]] = column["values"]
    frame = pd.DataFrame(columns)
    if ZEROS in frame:
        frame.loc[frame[ZEROS] == 1, "n"] = 0
    return frame


def fitted(case: dict, formula: str):
    """Fit a formula to the table of a case."""
    factors = [c for c in case["data"]["columns"] if c["type"] == "factor"]
    levels = {c["name"]: c["levels"] for c in factors}
    used = {name: levels[name] for name in levels if name in formula}
    data = table(case)
    zeros = ZEROS if ZEROS in data else None
    return bbl.bbl(
        formula, data, weights="n", method="ml", xlevels=used, novarOk=True, structural_zeros=zeros
    )


def relative(found, expected, least: float = 1.0) -> float:
    """Return the largest difference, relative to what is expected where that exceeds `least`."""
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    return float(
        np.max(np.abs(found - expected) / np.maximum(np.abs(expected), least), initial=0.0)
    )


def deviance(fit, n: np.ndarray) -> float:
    """Return twice the log-likelihood ratio of the saturated model and a fit."""
    seen = n[n > 0]
    return 2.0 * (float(seen @ np.log(seen / seen.sum())) - float(fit.logLik()))


def covariance(fit) -> np.ndarray:
    """Return the covariance of all parameters, also of those that `inference` has no test of: too
    few rows.
    """
    rows = fit.training.pooled
    return fit.engine.influence(rows, fit.estimate.parameters.layout)[0].covariance(rows)


def coefficients(fit) -> pd.DataFrame:
    """Return estimates and standard errors by all of R's ways to write the name of a
    coefficient.
    """
    rows, se = fit.inference().table(), np.sqrt(np.diag(covariance(fit)))
    assert (
        (rows["se"] - se).abs().fillna(0.0) <= 1e-12 * np.nanmax(se, initial=0.0)
    ).all()  # where `inference` has any, it is that
    by_name = {}
    for position, row in enumerate(rows.itertuples()):
        members = []
        for part in range(1, 1 + sum(column.startswith("predictor") for column in rows.columns)):
            suffix = "" if part == 1 else str(part)
            predictor = getattr(row, f"predictor{suffix}")
            if isinstance(predictor, str):
                members.append(f"{predictor}{getattr(row, f'level{suffix}')}")
        for order in itertools.permutations(members):
            by_name[":".join(order)] = (position, row.estimate, se[position])
    return pd.DataFrame.from_dict(by_name, orient="index", columns=["position", "estimate", "se"])


def compare_fit(case: dict) -> list[Check]:
    """Compare one model."""
    result, fit, data = case["result"], fitted(case, case["model"]["formula"]), table(case)
    rule = "fit" if result["mle_exists"] else "boundary"
    n = data["n"].to_numpy(dtype=float)
    counts = n.sum() * np.exp(fit.score_samples(data).to_numpy())
    expected = np.array(result["fitted"], dtype=float)
    positive = expected > 0
    pearson = np.sum((n - counts)[positive] ** 2 / counts[positive])
    df = int(result["n_cells_fitted_positive"]) - 1 - fit.n_parameters
    by_name, R = coefficients(fit), result["coefficients"]
    rows = [k for k, name in enumerate(R["names"]) if name != "(Intercept)"]
    found = by_name.loc[[R["names"][k] for k in rows]]
    estimable = np.array(R["estimable"], dtype=bool)[rows]
    estimates = np.array([R["estimate"][k] for k in rows], dtype=float)
    errors = np.array([R["se"][k] for k in rows], dtype=float)
    kernel = result["loglik"]["multinomial_kernel"]
    checks = [
        Check("fitted", relative(counts[positive], expected[positive], 1e-300), RELATIVE, rule),
        Check(
            "deviance",
            relative(deviance(fit, n), result["G2"]),
            RELATIVE if result["G2"] > 1 else NEAR_ZERO,
            rule,
        ),
        Check("Pearson's statistic", relative(pearson, result["X2"]), RELATIVE, rule),
        Check("log-likelihood", relative(float(fit.logLik()), kernel), RELATIVE, rule),
        Check("AIC", relative(fit.aic, result["aic"]["multinomial_kernel"]), RELATIVE, rule),
        Check("BIC", relative(fit.bic, result["bic"]["multinomial_kernel"]), RELATIVE, rule),
        Check("degrees of freedom", abs(df - result["df"]), COUNT, rule),
        Check(
            "coefficients",
            relative(found["estimate"][estimable], estimates[estimable]),
            RELATIVE,
            rule,
        ),
        Check(
            "standard errors",
            relative(found["se"][estimable], errors[estimable], 1e-300),
            ERRORS,
            rule,
        ),
        Check(
            "covariances", covariance_difference(fit, by_name, result["covariance"]), ERRORS, rule
        ),
    ]
    if not positive.all():
        checks.append(
            Check("fitted counts of zero", float(counts[~positive].max()), RELATIVE, rule)
        )
    if rule == "boundary":
        checks.append(
            Check("not estimable", float(np.sum(found["se"].isna() == estimable)), COUNT, rule)
        )
    return checks + compare_dropped(fit, result["drop1"])


def covariance_difference(fit, by_name: pd.DataFrame, expected: dict) -> float:
    """Return the largest difference from covariances of some coefficients, as a share of the
    largest of them.
    """
    kept = [k for k, name in enumerate(expected["names"]) if name != "(Intercept)"]
    if not kept:
        return 0.0
    at = by_name.loc[[expected["names"][k] for k in kept], "position"].to_numpy(dtype=int)
    by_r = np.array(expected["matrix"], dtype=float)[np.ix_(kept, kept)]
    return float(np.abs(covariance(fit)[np.ix_(at, at)] - by_r).max() / np.abs(by_r).max())


def compare_dropped(fit, expected: dict | None) -> list[Check]:
    """Compare the likelihood ratios of a fit and models without one of its interactions."""
    if expected is None:  # as where the maximum is in a limit
        return []
    layout, rows = fit.estimate.parameters.layout, fit.training.pooled
    large = fit.engine.maximum_likelihood(rows, layout)
    checks = []
    for term, df, ratio, p in zip(
        *(expected[name] for name in ("term", "df", "LRT", "p")), strict=True
    ):
        scope = tuple(sorted(fit.labels.names.index(name) for name in term.split(":")))
        if len(scope) == 1:  # a predictor always has its field
            continue
        terms = [other for other in layout.scopes[layout.m :] if tuple(other) != scope]
        small = fit.engine.maximum_likelihood(rows, Layout(layout.n_levels, terms, layout.support))
        found = 2.0 * (large.log_likelihood - small.log_likelihood)
        checks += [
            Check(f"{term}: likelihood ratio", relative(found, ratio), RELATIVE, "dropped"),
            Check(
                f"{term}: degrees of freedom",
                float(abs(large.rank - small.rank - df)),
                COUNT,
                "dropped",
            ),
            Check(f"{term}: p", p_difference(float(chi2.sf(found, df)), p), ERRORS, "dropped"),
        ]
    return checks


def compare_nested(case: dict) -> list[Check]:
    """Compare a sequence of models, each with the one before."""
    n, result = table(case)["n"].to_numpy(dtype=float), case["result"]
    fits = [fitted(case, model["formula"]) for model in case["models"]]
    tests = bbl.anova(*fits)
    found = [deviance(fit, n) for fit in fits]
    df = [len(n) - 1 - fit.n_parameters for fit in fits]
    kind = "nested"
    checks = [
        Check("deviances", relative(found, result["G2"]), RELATIVE, kind),
        Check(
            "degrees of freedom", float(np.abs(np.subtract(df, result["df"])).max()), COUNT, kind
        ),
    ]
    for k in range(1, len(fits)):
        name, row = f"model {k + 1}", tests.iloc[k]
        checks.append(
            Check(
                f"{name}: likelihood ratio",
                relative(found[k - 1] - found[k], result["LRT"][k]),
                RELATIVE,
                kind,
            )
        )
        checks += compare_test(
            name, row, result["LRT"][k], result["delta_df"][k], result["p"][k], kind
        )
    return checks


def compare_test(
    name: str, row: pd.Series, ratio: float, df: int, p: float, kind: str
) -> list[Check]:
    """Compare a row of `anova`; where cells are sparse, or models not nested, it has no
    likelihood-ratio test.
    """
    if row["test"] != "likelihood ratio":
        return []
    return [
        Check(f"{name}: ratio of anova", relative(row["ratio"], ratio), RELATIVE, kind),
        Check(f"{name}: df of anova", abs(float(row["df"]) - df), COUNT, kind),
        Check(f"{name}: p of anova", p_difference(row["p"], p), ERRORS, kind),
    ]


def p_difference(found: float, expected: float) -> float:
    """Return the relative difference of p-values, of tiny ones on the logarithmic scale."""
    if expected < 1e-10:
        return 0.0 if found == expected else relative(np.log(found), np.log(expected), 1e-300)
    return relative(found, expected, 1e-300)


def compare_strata(case: dict) -> list[Check]:
    """Compare conditional independence in strata with all pairs, and both with the saturated
    model.
    """
    row, column, strata = (case["vars"][name] for name in ("row", "column", "strata"))
    strata = [strata] if isinstance(strata, str) else strata
    kind, result, n = (
        "conditional_independence",
        case["result"]["loglinear"],
        table(case)["n"].to_numpy(dtype=float),
    )
    inside = "*".join(strata)
    independent = fitted(case, f"~ {row}*{inside} + {column}*{inside}")
    homogeneous = fitted(case, f"~ {row}*{inside} + {column}*{inside} + {row}:{column}")
    checks = []
    for name, fit in (
        ("conditional_independence", independent),
        ("homogeneous_association", homogeneous),
    ):
        words, test, expected = name.replace("_", " "), fit.goodness_of_fit(), result[name]
        checks += [
            Check(f"{words}: deviance", relative(deviance(fit, n), expected["G2"]), RELATIVE, kind),
            Check(
                f"{words}: Pearson's statistic",
                relative(test.loc["X2", "value"], expected["X2"]),
                RELATIVE,
                kind,
            ),
            Check(f"{words}: df", abs(int(test["df"].iloc[0]) - expected["df"]), COUNT, kind),
        ]
        for statistic in ("G2", "X2") if "p_G2" in expected else ():
            difference = p_difference(float(test.loc[statistic, "p"]), expected[f"p_{statistic}"])
            checks.append(Check(f"{words}: p", difference, ERRORS, kind))
    expected = result["LR_given_homogeneous"]
    ratio = deviance(independent, n) - deviance(homogeneous, n)
    checks.append(Check("likelihood ratio", relative(ratio, expected["LRT"]), RELATIVE, kind))
    checks += compare_pearson(case, independent, row, column, strata)
    test = bbl.anova(independent, homogeneous).iloc[1]
    checks += compare_test("all pairs", test, expected["LRT"], expected["df"], expected["p"], kind)
    return (
        checks + compare_two_by_two(case, row, column, strata)
        if "woolf" in case["result"]
        else checks
    )


def compare_pearson(
    case: dict, independent, row: str, column: str, strata: list[str]
) -> list[Check]:
    """Compare Pearson's statistics of each stratum and of the margin over all strata."""
    kind, result, cells = "conditional_independence", case["result"], independent.cells()
    by_r = result["marginal_pearson"]
    by_stratum = (
        (cells["pearson"] ** 2).groupby([cells[name] for name in strata], observed=False).sum()
    )
    marginal = fitted(case, f"~ {row} + {column}").goodness_of_fit().loc["X2"]
    return [
        Check(
            "Pearson's statistic of strata",
            relative(by_stratum, result["stratum_pearson"]["X2"]),
            RELATIVE,
            kind,
        ),
        Check(
            "Pearson's statistic of all", relative(marginal["value"], by_r["X2"]), RELATIVE, kind
        ),
        Check("df of all", abs(int(marginal["df"]) - by_r["df"]), COUNT, kind),
        Check("p of all", p_difference(float(marginal["p"]), by_r["p"]), ERRORS, kind),
    ]


def compare_two_by_two(case: dict, row: str, column: str, strata: list[str]) -> list[Check]:
    """Compare the odds ratios of strata with two rows and two columns, and the tests of a common
    one by statsmodels.
    """
    kind, result = "conditional_independence", case["result"]
    saturated = fitted(case, f"~ {'*'.join([row, column, *strata])}")
    expected = result["stratum_log_odds_ratio"]
    ratios = saturated.odds_ratios([(row, column)])
    checks = [
        Check(
            "log odds ratios",
            relative(ratios["log_odds_ratio"], expected["estimate"]),
            RELATIVE,
            kind,
        ),
        Check(
            "errors of log odds ratios",
            relative(ratios["se"], expected["se"], 1e-300),
            ERRORS,
            kind,
        ),
    ]
    from statsmodels.stats.contingency_tables import StratifiedTable

    counts = table(case).pivot_table("n", [row, column], strata, "sum", observed=False)
    tables = StratifiedTable([stratum.reshape(2, 2) for stratum in counts.to_numpy(dtype=float).T])
    for name, with_correction in (("cmh_correct", True), ("cmh_uncorrected", False)):
        by_r, test = result[name], tables.test_null_odds(correction=with_correction)
        checks += [
            Check(
                f"{name}: Mantel-Haenszel statistic",
                relative(test.statistic, by_r["statistic"]),
                RELATIVE,
                kind,
            ),
            # the p-value of statsmodels, 1 less a probability, is 0 below 1e-16
            Check(
                f"{name}: Mantel-Haenszel p",
                p_difference(chi2.sf(test.statistic, 1), by_r["p"]),
                ERRORS,
                kind,
            ),
            Check(
                f"{name}: common odds ratio",
                relative(tables.oddsratio_pooled, by_r["common_OR"]),
                RELATIVE,
                kind,
            ),
            Check(
                f"{name}: limits",
                relative(tables.oddsratio_pooled_confint(), by_r["conf95"]),
                ERRORS,
                kind,
            ),
        ]
    return checks


def compare_logit(case: dict) -> list[Check]:
    """Compare the coefficients of a logit with those of the log-linear model's terms that hold the
    response.
    """
    fit, result, kind = fitted(case, case["loglinear_formula"]), case["result"], "logit_equivalence"
    found, covariances, checks = coefficients(fit), covariance(fit), []
    for level, expected in result["coefficients"].items():
        response = f"{case['response']}{level}"
        rows = found.loc[[_with_response(name, response) for name in expected["names"]]]
        at = rows["position"].to_numpy(dtype=int)
        difference = np.abs(covariances[np.ix_(at, at)] - np.array(expected["covariance"])).max()
        checks += [
            Check(
                f"{level}: coefficients",
                relative(rows["estimate"], expected["estimate"]),
                RELATIVE,
                kind,
            ),
            Check(
                f"{level}: standard errors",
                relative(rows["se"], expected["se"], 1e-300),
                ERRORS,
                kind,
            ),
            Check(
                f"{level}: covariances",
                difference / np.abs(expected["covariance"]).max(),
                ERRORS,
                kind,
            ),
        ]
    data = table(case)
    n = data["n"].to_numpy(dtype=float)
    counts = n.sum() * np.exp(fit.score_samples(data).to_numpy())
    return [
        *checks,
        Check("deviance", relative(deviance(fit, n), result["G2"]), RELATIVE, kind),
        Check("fitted", relative(counts, result["fitted"], 1e-300), RELATIVE, kind),
    ]


def _with_response(name: str, response: str) -> str:
    return response if name == "(Intercept)" else f"{name}:{response}"
