"""Does it match R? Every stored output of R's bbl 1.0.0 against the package, each under a rule stated in words."""

import numpy as np
import pytest

import bbl
import rcases
import reference as oracle
from bbl.model.metrics import auc
from rcompare import (
    RULES,
    Check,
    Expected,
    coefficients,
    compare_labels,
    finite,
    fit_case,
    gap,
    model_gap,
    quietly,
    raises,
    relative,
)

CLOSED, EXACT = 1e-10, 1e-8


# -- fits --------------------------------------------------------------------------------------------------------------
def compare_fit(case):
    """kind "bbl": coefficients, ln Z, lkh, df, logLik, summary, fitted values, residuals, predictions."""
    run = case.best()
    if "error" in run:
        return raises(case)
    problem = case.problem()
    fit, warned = fit_case(case)
    if min(problem.L) < 2:
        return compare_one_level(case, problem, fit)
    check = run.get("independent_check", {})
    if not check.get("optimum_exists", True):
        return compare_no_optimum(case, problem, fit, warned)
    want = Expected(case, problem)
    checks = compare_model(case, problem, fit, want, run)
    checks += compare_numbers(case, problem, fit, want, run)
    checks += compare_summary(problem, fit, run)
    checks += compare_predictions(case, problem, fit, want, run)
    if case.method == "mf" and any(np.isinf(h).any() for h, _ in r_models(problem, run)):
        checks.append(Check("warning for the absent level", 1.0 - any("d3" in w for w in warned), 0.0, "absent"))
    return checks


def r_models(problem, run):
    """Return R's coefficients of every group."""
    c = run["coefficients"]
    return [problem.r_parameters(c["h"][g], (c["J"] or {}).get(g)) for g in problem.rgroups]


def rule_of(case, problem):
    """Return the rule that the coefficients and the ln Z of a fit fall under."""
    if case.method == "pseudo":
        if problem.pairs and problem.odd_augmentation:
            return "extra row"
        return "exact"
    if problem.additive:
        return "additive"
    m = len(problem.L)
    return "closed" if len(problem.pairs) == m * (m - 1) // 2 else "partial"


def compare_model(case, problem, fit, want, run):
    """Coefficients of all groups and of the pooled fit, and ln Z."""
    rule, checks = rule_of(case, problem), []
    tolerance = EXACT if case.method == "pseudo" else CLOSED
    pseudo = case.method == "pseudo"
    stored = run["independent_check"]["exact"] if pseudo else run["coefficients"]
    for g, label in enumerate(problem.rgroups):
        found = coefficients(fit, problem, g)
        r = problem.r_parameters(stored["h"][label], (stored["J"] or {}).get(label))
        dh, dJ = model_gap(found, want.models[g])
        if rule == "extra row":
            again = oracle.PseudoFit(*group_rows(problem, g), problem.L, problem.pairs, case.lambda_, case.lambdah, "r")
            checks += [
                Check(f"{label}: h", dh, EXACT, rule),
                Check(f"{label}: J", dJ, EXACT, rule),
                Check(f"{label}: R's own h from the oracle with R's row", model_gap((again.h, again.J), r)[0], EXACT, rule),
            ]
        elif any(np.isinf(h).any() for h in r[0]):
            known = [np.isfinite(h) for h in r[0]]
            dh = max(gap(a[k], b[k]) for a, b, k in zip(found[0], r[0], known, strict=True))
            checks += [Check(f"{label}: finite h", dh, CLOSED, "absent"), Check(f"{label}: J", dJ, CLOSED, "absent")]
        else:
            dh_r, dJ_r = model_gap(found, r)
            checks.append(Check(f"{label}: J", dJ_r, tolerance, "closed" if rule == "partial" else rule))
            if rule == "partial":
                dh_r = dh
            checks.append(Check(f"{label}: h", dh_r, tolerance, "closed" if rule == "additive" else rule))
        lz_rule = rule if rule != "exact" or problem.unweighted else "weights"
        checks.append(Check(f"{label}: ln Z", gap(fit.log_z[problem.groups[g]], want.lz[g]), tolerance, lz_rule))
        if rule == "closed":
            checks.append(Check(f"{label}: R's ln Z", gap(fit.log_z[problem.groups[g]], run["lz"][label]), CLOSED, rule))
        if rule == "exact":
            off = gap(fit.log_z[problem.groups[g]], stored["lz_weighted"][label])
            checks.append(Check(f"{label}: stored weighted ln Z", off, EXACT, lz_rule))
    if run["coefficients"].get("h0") is not None:
        found = coefficients(fit, problem, None)
        dh, dJ = model_gap(found, want.pooled)
        checks += [
            Check("h0", dh, tolerance, "oracle" if pseudo else rule),
            Check("J0", dJ, tolerance, "oracle" if pseudo else rule),
        ]
    else:
        checks.append(Check("no pooled fit", float(fit.params.pooled is not None), 0.0, "oracle"))
    return checks


def group_rows(problem, g):
    """Return codes and weights of one group."""
    return problem.x[problem.y == g], problem.w[problem.y == g]


def compare_numbers(case, problem, fit, want, run):
    """lkh, df, nobs and logLik; R's own where it weights rightly and has its optimum."""
    rule = rule_of(case, problem)
    tolerance = EXACT if case.method == "pseudo" else CLOSED
    own = rule if problem.unweighted else "weights"
    checks = [
        Check("df", abs(fit.df - run["df"]), 0.0, "closed"),
        Check("nobs", abs(fit.nobs() - problem.w.sum()), 0.0, "closed" if problem.unweighted else "weights"),
        Check("lkh", relative(fit.lkh, want.lkh), tolerance, own),
        Check("logLik", relative(fit.logLik(), want.log_likelihood), tolerance, own),
        Check("logLik df", abs(fit.logLik().df - fit.df * problem.K), 0.0, "oracle"),
    ]
    if problem.unweighted and rule == "exact":
        checks.append(Check("R's lkh", relative(fit.lkh, run["independent_check"]["exact"]["lkh_r"]), EXACT, rule))
    if problem.unweighted and rule == "closed":
        checks.append(Check("R's lkh", relative(fit.lkh, run["lkh"]), CLOSED, rule))
        if (run.get("logLik") or {}).get("value"):
            checks.append(Check("R's logLik", relative(fit.logLik(), run["logLik"]["value"][0]), CLOSED, rule))
    return checks


def compare_summary(problem, fit, run):
    """Naive Bayes coefficients and the test of eq. (27), with and without a prior count."""
    checks = []
    for stored in run.get("summary") or case_default_summary(run):
        prior = stored["prior_count"]
        tables = fit.summary(prior_count=prior).tables
        q, df = oracle.ratio_test(problem.x, problem.w, problem.y, problem.L, prior)
        nan = False
        for i, rname in enumerate(problem.rnames):
            table = tables[problem.names[i]]
            levels = problem.levels[i][1:]
            for g, label in enumerate(problem.rgroups):
                want = rcases.array(list(stored["h"][label][rname].values()))
                found = table.loc[problem.groups[g], levels].to_numpy(dtype=float)
                known = np.isfinite(want)
                checks.append(Check(f"summary({prior}) h", gap(found[known], want[known]), CLOSED, "closed"))
            r = rcases.number(stored["chisqNaive"][rname])
            nan |= np.isnan(r)
            chisq, dof, p = (table.attrs[k] for k in ("chisq", "df", "p"))
            checks += [
                Check(f"summary({prior}) chisq", relative(chisq, q[i] if np.isnan(r) else r), 1e-9, "NaN" if nan else "closed"),
                Check(f"summary({prior}) df", abs(dof - df[i]), 0.0, "closed"),
            ]
            if not np.isnan(r):
                want_p = rcases.number(stored["pvNaive"][rname])
                checks.append(Check(f"summary({prior}) p", gap(np.log(p), np.log(want_p)), 1e-8, "closed"))
    return checks
