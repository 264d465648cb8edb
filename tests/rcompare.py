"""Comparison of the package with the stored outputs of R's bbl 1.0.0: rules in words, and measured
differences.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import rcases
import reference as oracle
from scipy.special import chdtrc

import bbl
from bbl.errors import ConvergenceWarning, DataWarning

CLOSED, EXACT = 1e-10, 1e-8  # tolerances: closed forms; converged pseudo-likelihood

RULES = {
    "exact": "Converged pseudo-likelihood is compared with the exact optimum stored with R's runs.",
    "closed": "Closed forms (mean field, naive Bayes, eq. 27) equal R's results.",
    "distance": (
        "R's best run agrees within its recorded distance from the optimum (1e-3 if none is "
        "recorded)."
    ),
    "oracle": (
        "R's runs contain no converged value: compared with an enumeration at the exact optimum."
    ),
    "weights": (
        "R sums ln Z, logLik and lkh over rows without their weights: compared with a weighted "
        "enumeration."
    ),
    "additive": (
        "R divides ln Z of additive mean-field fits by the number of predictors: compared with an "
        "enumeration."
    ),
    "partial": (
        "R inverts the full C and does not remove dropped pairs from h and ln Z, which here use "
        "only the pairs of the model: J is compared with R, h and ln Z with an enumeration."
    ),
    "extra row": (
        "A predictor is constant at its reference level in a group: R's extra row repeats this "
        "level and has no effect, ours takes another level. Compared with an enumeration, which "
        "reproduces R's value with R's row."
    ),
    "one level": (
        "A predictor with one level (novarOk) gets a second one that never occurs, as in R: "
        "compared with an enumeration, and with R's best run to 1e-4."
    ),
    "no optimum": (
        "A level is absent from a group and lambdah = 0, so there is no finite optimum: "
        "coefficients are finite, a warning names the level, and probabilities agree with R up to "
        "R's tolerance."
    ),
    "absent": (
        "A level is absent from a group without a prior count: R's field is -Inf; here it is "
        "finite, a warning names the level, and its probability is still zero."
    ),
    "NaN": "R's chi-square is NaN if a level is absent (0 ln 0); here 0 ln 0 = 0.",
    "sparse": (
        "If expected counts are small, p is exact here, and degrees of freedom count the levels "
        "and groups that occur: R's p is recomputed from the same chi-square and R's degrees of "
        "freedom."
    ),
    "negative": "With a prior count, R's chi-square can be negative; here it is then zero.",
    "naive": "R's mlestimate(naive=TRUE, method='mf') still uses eps; here it is naive Bayes.",
    "error": "Input that R refuses is refused.",
    "folds": "Folds equal R's, row by row.",
    "scoring": "R's stored validation predictions are scored in the same way as by pROC.",
    "table": "The table of scores equals R's; with pseudo-likelihood, up to R's tolerance.",
    "blocks": (
        "Contiguous folds lose whole levels and lambdah = 0: there is no converged value, and R's "
        "result changes by 0.04 with its tolerance."
    ),
    "map": (
        "The sampler visits the most probable state, whose energy equals the enumerated one (R's "
        "is wrong)."
    ),
    "labels": "Predicted labels equal R's.",
}


@dataclass(frozen=True)
class Check:
    """One measured difference: it has to be at most `tolerance`, under the rule of RULES named
    `rule`.
    """

    quantity: str
    difference: float
    tolerance: float
    rule: str

    @property
    def passed(self) -> bool:
        return bool(self.difference <= self.tolerance)


def gap(found, wanted) -> float:
    """Return the largest absolute difference; NaN only matches NaN, infinities only themselves."""
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    if found.shape != wanted.shape:
        return np.inf
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(found - wanted))
    return float(np.max(np.nan_to_num(off, nan=np.inf), initial=0.0))


def relative(found, wanted) -> float:
    """Return the largest difference relative to ``max(1, |wanted|)``."""
    wanted = np.asarray(wanted, dtype=float)
    scale = np.maximum(1.0, np.abs(wanted))
    return gap(np.asarray(found, dtype=float) / scale, wanted / scale)


def quietly(call, *args, **kwargs):
    """Return the result of a call and the text of the ConvergenceWarnings that it gave; R's
    settings earn others.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call(*args, **kwargs)
    others = [w for w in caught if not issubclass(w.category, ConvergenceWarning | DataWarning)]
    if others:
        raise AssertionError(f"unexpected warning: {others[0].message}")
    return result, [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]


def coefficients(fit, problem, g):
    """Return ``(h, J)`` of group number `g` (None for the pooled fit), read by label."""
    coef = fit.coef()
    label = None if g is None else problem.groups[g]
    h = coef.h0 if g is None else coef.h[label]
    J = coef.J0 if g is None else coef.J[label]
    own = [pd.Index(levels[1:]) for levels in problem.levels]
    fields = [labelled(h[n], levels) for n, levels in zip(problem.names, own, strict=True)]
    tables = {
        (i, j): labelled(J[problem.names[i], problem.names[j]], own[i], own[j])
        for i, j in problem.pairs
    }
    return fields, tables


def labelled(table, *labels):
    """Return the values under these labels of each axis, which are looked up one by one only if in
    another order.
    """
    in_order = all(found.equals(own) for found, own in zip(table.axes, labels, strict=True))
    return (table if in_order else table.loc[labels]).to_numpy()


def model_gap(found, wanted) -> tuple[float, float]:
    """Return the largest differences of two models' fields and couplings."""
    (h1, J1), (h2, J2) = found, wanted
    if J1.keys() != J2.keys():
        return np.inf, np.inf
    return max(gap(a, b) for a, b in zip(h1, h2, strict=True)), max(
        (gap(J1[p], J2[p]) for p in J1), default=0.0
    )


class Expected:
    """What a fit has to be: the oracle's model, ln Z and lkh of every group of a case, and the
    pooled model.
    """

    def __init__(self, case, problem, rows=None, setting=None, pooled=True, rule="spec"):
        rows = slice(None) if rows is None else rows
        self.args, self.rule = {**case.args, **(setting or {})}, rule
        x, y, w = problem.x[rows], problem.y[rows], problem.w[rows]
        self.problem, self.x, self.y, self.w = problem, x, y, w
        self.share = np.array([w[y == g].sum() for g in range(problem.K)]) / w.sum()
        self.models, self.lz, lkh = [], [], 0.0
        for g in range(problem.K):
            s = y == g
            h, J, lz, value = self.group(case, x[s], w[s])
            self.models.append((h, J))
            self.lz.append(lz)
            lkh += value * w[s].sum()
        self.lkh = lkh
        self.pooled = self.group(case, x, w)[:2] if pooled else None
        self.log_likelihood = float(
            np.sum(w * (self.energy(x)[np.arange(len(y)), y] - np.array(self.lz)[y]))
        )

    def group(self, case, x, w):
        """Return ``h, J, ln Z`` and the objective per observation of one set of rows."""
        L, pairs = self.problem.L, self.problem.pairs
        if case.method == "pseudo" and pairs:
            lambdah = self.args.get("lambdah", 0.0)
            lambda_ = self.args.get("lambda", 1e-5)
            fit = oracle.PseudoFit(
                x, w, L, pairs, lambda_, lambda_ if lambdah is None else lambdah, self.rule
            )
            return fit.h, fit.J, fit.log_z(case.half), fit.lkh
        prior = self.args.get("prior.count", 1.0) if case.method == "mf" else 0.0
        if pairs:
            h, J, lz, _ = oracle.mean_field(x, w, L, pairs, self.args.get("eps", 0.9), prior)
        else:
            h, J, lz = oracle.naive_bayes(x, w, L, prior)
        return h, J, lz, float(np.sum(w * (oracle.energy(h, J, x) - lz)) / w.sum())

    def energy(self, x):
        """Return the energies (n, K)."""
        return np.column_stack([oracle.energy(h, J, x) for h, J in self.models])

    def predict(self, x):
        """Return links and probabilities (n, K)."""
        return oracle.posterior(self.energy(x), self.lz, self.share)


def compare_labels(yhat, prob, groups) -> float:
    """Return how far below the highest probability the chosen label lies, at worst."""
    at = np.array([groups.index(v) for v in yhat])
    return float(np.max(prob.max(axis=1) - prob[np.arange(len(at)), at], initial=0.0))


def fit_case(case, data=None, formula=None, args=None):
    """Fit a formula case with R's arguments; return the results and the warnings."""
    data = case.data if data is None else data
    return quietly(bbl.bbl, formula or case.formula, data, case.weights, **case.keywords(args))


def raises(case) -> list[Check]:
    """Check that a case which R refuses is refused, naming the predictor."""
    try:
        fit_case(case)
    except bbl.errors.BBLError as error:
        named = str(error.column) in case.runs["default"]["error"]
        return [Check(f"error: {error}", 0.0 if named else 1.0, 0.0, "error")]
    return [Check("no error was raised", 1.0, 0.0, "error")]


# -- fits of a formula -----------------------------------------------------------------------------
def compare_fit(case) -> list[Check]:
    """kind "bbl": coefficients, ln Z, lkh, df, logLik, summary, fitted values, residuals,
    predictions.
    """
    run = case.best()
    if "error" in run:
        return raises(case)
    problem = case.problem()
    fit, warned = fit_case(case)
    if min(problem.L) < 2:
        return compare_one_level(case, problem, fit)
    if not run.get("independent_check", {}).get("optimum_exists", True):
        return compare_no_optimum(case, problem, fit, warned)
    want = Expected(case, problem, pooled=case.args.get("testNull", True))
    return (
        compare_model(case, problem, fit, want, run, warned)
        + compare_numbers(case, problem, fit, want, run)
        + compare_summary(case, problem, fit)
        + compare_predictions(case, problem, fit, want, run)
    )


def rule_of(case, problem) -> str:
    """Return the rule that the coefficients and the ln Z of a fit fall under."""
    if case.method == "pseudo":
        return "extra row" if problem.pairs and problem.odd_augmentation else "exact"
    if problem.additive:
        return "additive"
    m = len(problem.L)
    return "closed" if len(problem.pairs) == m * (m - 1) // 2 else "partial"


def compare_model(case, problem, fit, want, run, warned) -> list[Check]:
    """Coefficients of all groups and of the pooled fit, and ln Z."""
    rule, pseudo, checks = rule_of(case, problem), case.method == "pseudo", []
    tolerance = EXACT if pseudo else CLOSED
    stored = run["independent_check"]["exact"] if pseudo else run["coefficients"]
    for g, label in enumerate(problem.rgroups):
        found = coefficients(fit, problem, g)
        r = problem.r_parameters(stored["h"][label], (stored["J"] or {}).get(label))
        dh, dJ = model_gap(found, want.models[g])
        if rule == "extra row":
            s = problem.y == g
            again = oracle.PseudoFit(
                problem.x[s],
                problem.w[s],
                problem.L,
                problem.pairs,
                case.lambda_,
                case.lambdah,
                "r",
            )
            checks.append(
                Check(
                    "R's h, oracle with R's row", model_gap((again.h, again.J), r)[0], EXACT, rule
                )
            )
            checks += [Check("h", dh, EXACT, rule), Check("J", dJ, EXACT, rule)]
        elif any(np.isinf(h).any() for h in r[0]):
            known = [np.isfinite(h) for h in r[0]]
            dh = max(gap(a[k], b[k]) for a, b, k in zip(found[0], r[0], known, strict=True))
            checks += [
                Check("h of levels that occur", dh, CLOSED, "absent"),
                Check("J", dJ, CLOSED, "absent"),
            ]
            named = any(
                repr(problem.groups[g]) in text and "never occurs" in text for text in warned
            )
            checks.append(
                Check("warning for the absent level", 0.0 if named else 1.0, 0.0, "absent")
            )
        else:
            dh_r, dJ_r = model_gap(found, r)
            checks.append(Check("J", dJ_r, tolerance, "exact" if pseudo else "closed"))
            checks.append(
                Check(
                    "h",
                    dh if rule == "partial" else dh_r,
                    tolerance,
                    "closed" if rule == "additive" else rule,
                )
            )
        lz = fit.log_z[problem.groups[g]]
        weighted = "weights" if rule == "exact" and not problem.unweighted else rule
        checks.append(Check("ln Z", gap(lz, want.lz[g]), tolerance, weighted))
        if rule == "exact":
            checks.append(
                Check("stored ln Z", gap(lz, stored["lz_weighted"][label]), tolerance, weighted)
            )
        if rule == "closed":
            checks.append(Check("stored ln Z", gap(lz, run["lz"][label]), tolerance, rule))
    if run["coefficients"].get("h0") is None:
        return [
            *checks,
            Check(
                "a pooled fit was made",
                float(fit.estimate.parameters.pooled is not None),
                0.0,
                rule,
            ),
        ]
    dh, dJ = model_gap(coefficients(fit, problem, None), want.pooled)
    checks += [
        Check("h0", dh, tolerance, "oracle" if pseudo else rule),
        Check("J0", dJ, tolerance, "oracle" if pseudo else rule),
    ]
    if rule in ("closed", "additive"):
        c = run["coefficients"]
        dh, dJ = model_gap(coefficients(fit, problem, None), problem.r_parameters(c["h0"], c["J0"]))
        checks += [Check("R's h0", dh, CLOSED, "closed"), Check("R's J0", dJ, CLOSED, "closed")]
    return checks


def compare_numbers(case, problem, fit, want, run) -> list[Check]:
    """lkh, df, nobs and logLik; R's own where it weights rightly and stands at its optimum."""
    rule = rule_of(case, problem)
    tolerance = EXACT if case.method == "pseudo" else CLOSED
    own = rule if problem.unweighted else "weights"
    checks = [
        Check("df", abs(fit.estimate.parameters.layout.size - run["df"]), 0.0, "closed"),
        Check("nobs", abs(fit.nobs() - problem.w.sum()), 0.0, own),
        Check("lkh", relative(fit.lkh, want.lkh), tolerance, own),
        Check("logLik", relative(fit.logLik(), want.log_likelihood), tolerance, own),
        Check(
            "df of logLik",
            abs(fit.logLik().df - fit.estimate.parameters.layout.size * problem.K),
            0.0,
            "oracle",
        ),
    ]
    if problem.unweighted and rule == "exact":
        checks.append(
            Check(
                "R's lkh",
                relative(fit.lkh, run["independent_check"]["exact"]["lkh_r"]),
                EXACT,
                rule,
            )
        )
    if problem.unweighted and rule == "closed":
        checks.append(Check("R's lkh", relative(fit.lkh, run["lkh"]), CLOSED, rule))
        if (run.get("logLik") or {}).get("value"):
            checks.append(
                Check("R's logLik", relative(fit.logLik(), run["logLik"]["value"][0]), CLOSED, rule)
            )
    return checks


def compare_summary(case, problem, fit) -> list[Check]:
    """Naive Bayes coefficients and the test of eq. (27), with and without a prior count."""
    checks = []
    for stored in case.runs["default"].get("summary") or []:
        prior = stored["prior_count"]
        tables, title = fit.summary(prior_count=prior).tables, f"summary({prior}) "
        q, _ = oracle.ratio_test(problem.x, problem.w, problem.y, problem.L, prior)
        groups = [problem.y == g for g in range(len(problem.groups))]
        tests = tables["tests"].to_dict("index")
        for i, (name, rname) in enumerate(zip(problem.names, problem.rnames, strict=True)):
            want = [stored["h"][g][rname] for g in problem.rgroups] + [stored["h0"][rname]] * bool(
                stored.get("h0")
            )
            want = np.array([rcases.array(list(fields.values())) for fields in want]).T
            columns = [*problem.groups, "pooled"][: want.shape[1]]
            found = labelled(
                tables["h"].loc[name, columns], pd.Index(problem.levels[i][1:]), pd.Index(columns)
            )
            known = np.isfinite(want)
            checks.append(Check(title + "h", gap(found[known], want[known]), CLOSED, "closed"))
            test, r = tests[name], rcases.number(stored["chisqNaive"][rname])
            counts = np.array(
                [np.bincount(problem.x[own, i], problem.w[own], problem.L[i]) for own in groups]
            )
            seen = counts[counts.any(axis=1)][:, counts.any(axis=0)]
            least = np.outer(seen.sum(axis=1), seen.sum(axis=0)).min() / seen.sum()
            sparse = "sparse" if least < 5.0 or seen.shape != counts.shape else "closed"
            checks.append(
                Check(
                    title + "df",
                    abs(test["df"] - (seen.shape[0] - 1) * (seen.shape[1] - 1)),
                    0.0,
                    sparse,
                )
            )
            if np.isnan(r):
                checks.append(Check(title + "chisq", relative(test["chisq"], q[i]), 1e-9, "NaN"))
                continue
            if r < 0:
                checks.append(Check(title + "chisq", test["chisq"], 0.0, "negative"))
                continue
            own_p = (
                test["Pr(>chisq)"]
                if sparse == "closed"
                else chdtrc(stored["dfNaive"][rname], test["chisq"])
            )
            log_p = np.log([own_p, rcases.number(stored["pvNaive"][rname])])
            checks.append(Check(title + "chisq", relative(test["chisq"], r), 1e-9, "closed"))
            checks.append(Check(title + "ln p", relative(log_p[0], log_p[1]), 1e-9, sparse))
    return checks


def compare_predictions(case, problem, fit, want, run) -> list[Check]:
    """Links, probabilities and labels of newdata; fitted values and residuals of the training
    rows.
    """
    rule = rule_of(case, problem)
    tolerance = EXACT if case.method == "pseudo" else CLOSED
    own = rule if problem.unweighted else "weights"
    fitted = want.predict(want.x)[1]
    hit = fitted.argmax(axis=1) == want.y
    # ties may go either way
    clear = np.sort(fitted, axis=1)[:, -1] - np.sort(fitted, axis=1)[:, -2] > 1e-9
    checks = [
        Check("fitted", gap(fit.fitted()[problem.groups].to_numpy(), fitted), tolerance, own),
        Check(
            "residuals", float(np.sum(fit.residuals().to_numpy()[clear] != hit[clear])), 0.0, own
        ),
    ]
    stored = run.get("predict")
    if not stored:
        return checks
    link, prob = want.predict(problem.encode(case.newdata))
    new = fit.predict(case.newdata, type="link"), fit.predict(case.newdata, type="prob")
    certain = np.isfinite(link) & (prob > 1e-250)
    rows = len(stored["yhat"])
    checks += [
        Check(
            "link",
            relative(new[0][problem.groups].to_numpy()[certain], link[certain]),
            tolerance,
            own,
        ),
        Check("prob", gap(new[1][problem.groups].to_numpy(), prob), tolerance, own),
        Check("yhat", compare_labels(new[1]["yhat"], prob, problem.groups), tolerance, own),
        Check(
            "class",
            float((fit.predict(case.newdata, type="class") != new[0]["yhat"]).sum()),
            0.0,
            own,
        ),
    ]
    if problem.unweighted and rule in ("exact", "closed"):
        reach, rule = (CLOSED, rule) if rule == "closed" else (prob_reach(problem, run), "distance")
        found = new[1][problem.groups].to_numpy()[:rows]
        checks.append(Check("R's prob", gap(found, rcases.array(stored["prob"])), reach, rule))
        typed = [problem.groups[problem.rgroups.index(str(v))] for v in stored["yhat"]]
        checks.append(
            Check("R's yhat", compare_labels(typed, prob[:rows], problem.groups), 2 * reach, rule)
        )
    return checks


def prob_reach(problem, run) -> float:
    """Return how far R's probabilities can lie from the optimum's, from the recorded distances of
    its coefficients.
    """
    d = run["independent_check"]
    score = (
        len(problem.L) * d["max_abs_diff_h"]
        + len(problem.pairs) * d["max_abs_diff_J"]
        + d["max_abs_diff_lz_r"]
    )
    # a link moves by twice a score, a probability by a quarter of a link
    return min(2 * score / 4, 0.05)


def compare_no_optimum(case, problem, fit, warned) -> list[Check]:
    """No finite optimum: finite coefficients, a warning, and the probabilities of the limit."""
    new = problem.encode(case.newdata)
    prob = fit.predict(case.newdata, type="prob")[problem.groups].to_numpy()
    limit = Expected(case, problem, pooled=False).predict(new)[1]
    stored = rcases.array(case.runs.get("exhausted", case.best())["predict"]["prob"])
    named = [t for t in warned if "never occurs" in t]
    checks = [
        Check(
            "coefficients that are not finite",
            float(np.sum(~np.isfinite(fit.estimate.parameters.theta))),
            0.0,
            "no optimum",
        ),
        Check("warning for the absent level", 0.0 if named else 1.0, 0.0, "no optimum"),
        Check("prob", gap(prob, limit), 1e-6, "no optimum"),
        Check(
            "yhat",
            compare_labels(fit.predict(case.newdata, type="class"), limit, problem.groups),
            1e-6,
            "no optimum",
        ),
    ]
    if not problem.odd_augmentation:
        return [*checks, Check("R's prob", gap(prob, stored), 1e-4, "no optimum")]
    own = Expected(case, problem, pooled=False, rule="r").predict(new)[1]
    return [*checks, Check("R's prob, oracle with R's row", gap(own, stored), 1e-3, "extra row")]


def compare_one_level(case, problem, fit) -> list[Check]:
    """A predictor with one level, which gets a second one that never occurs, as in R."""
    run = case.runs["exhausted"]
    problem.levels = [list(levels) for levels in fit.labels.levels]
    problem.L = [len(levels) for levels in problem.levels]
    want, checks = Expected(case, problem, pooled=False), []
    for g, label in enumerate(problem.rgroups):
        found = coefficients(fit, problem, g)
        c = run["coefficients"]
        for title, other, reach in (
            ("", want.models[g], EXACT),
            ("R's ", problem.r_parameters(c["h"][label], c["J"][label]), 1e-4),
        ):
            dh, dJ = model_gap(found, other)
            checks += [
                Check(title + "h", dh, reach, "one level"),
                Check(title + "J", dJ, reach, "one level"),
            ]
        checks.append(
            Check(
                "R's ln Z", gap(fit.log_z[problem.groups[g]], run["lz"][label]), 1e-4, "one level"
            )
        )
    prob = want.predict(problem.encode(case.newdata))[1]
    found = fit.predict(case.newdata, type="prob")[problem.groups].to_numpy()
    return [
        *checks,
        Check("ln Z", gap(fit.log_z, want.lz), EXACT, "one level"),
        Check("lkh", relative(fit.lkh, want.lkh), EXACT, "one level"),
        Check("R's lkh", relative(fit.lkh, run["lkh"]), 1e-8, "one level"),
        Check("prob", gap(found, prob), EXACT, "one level"),
        Check("R's prob", gap(found, rcases.array(run["predict"]["prob"])), 1e-4, "one level"),
    ]
