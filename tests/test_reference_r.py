"""Does it match R? Every stored output of R's bbl 1.0.0 against the package, each under a rule
stated in words.
"""

import itertools

import numpy as np
import pytest
import rcases
import reference as oracle
from rcompare import (
    CLOSED,
    EXACT,
    RULES,
    Check,
    Expected,
    compare_fit,
    compare_model,
    compare_numbers,
    compare_predictions,
    fit_case,
    gap,
    model_gap,
    quietly,
)
from rmnist import compare_large, compare_mnist
from threadpoolctl import threadpool_limits

import bbl
from bbl.stats.metrics import auc

# crossVal: how far a pseudo-likelihood table may be from R's, whose own moves with its tolerance
# (see reproduction.md)
TABLES = {"ma0014_cv_pseudo_paper": 1e-4, "sim_binary8_cv": 1e-4, "titanic_cv_shuffled": 2e-4}


def cv_problem(case):
    """Return the codes of a cross-validation's weight-expanded data."""
    stored = case.runs["default"]["stored_model"]
    names = list(stored["xlevels"])
    on = ~np.eye(len(names), dtype=bool)
    if "^2" not in case.formula:
        on[:] = False
        for entry in stored["coefficients"]["J"][stored["groups"][0]]:
            i, j = names.index(entry["i"]), names.index(entry["j"])
            on[i, j] = on[j, i] = True
    run = {k: stored[k] for k in ("xlevels", "groups")}
    run |= {"groupname": case.formula.split("~")[0].strip(), "qJ": on.tolist()}
    return rcases.Problem(rcases.expand(case.data, case.weights), None, run)


def compare_cross_validation(case):
    """kind "crossVal": folds, table, best setting, scoring of stored predictions, model of the last
    fold.
    """
    problem = cv_problem(case)
    cv, _ = quietly(
        bbl.crossVal,
        case.formula,
        case.data,
        case.weights,
        refit=False,
        verbose=0,
        **case.keywords(),
    )
    stored = [np.array(f) - 1 for f in case.raw["folds"]["validation_rows"]]
    counts = np.split(cv.observed["weights"], np.cumsum([len(f) for f in cv.folds])[:-1])
    folds = oracle.expanded_folds(
        cv.folds, counts, np.ones(len(case.data)) if case.weights is None else case.weights
    )
    same = len(folds) == len(stored) and all(map(np.array_equal, folds, stored))
    checks = [Check("folds", float(not same), 0.0, "folds")]
    checks += compare_table(case, problem, cv, stored)
    checks += compare_pooled(case, problem, cv, stored)
    if case.name != "titanic_cv_paper":  # the last fold of that one loses whole levels
        checks += compare_last_fold(case, problem, cv, stored[-1])
    if "panel_truth" in case.raw:
        yhat = cv.predict(case.newdata, type="class")
        checks.append(
            Check(
                "codons predicted wrongly",
                float((yhat != case.raw["panel_truth"]).sum()),
                0.0,
                "labels",
            )
        )
    return checks


def compare_table(case, problem, cv, folds):
    """The score of every setting; the setting and the score of the best one."""
    frame = case.best()["cvframe"]
    columns = list(frame)
    checks = [Check("columns", float(list(cv.cvframe.columns) != columns), 0.0, "table")]
    found = cv.cvframe[columns[1:]].to_numpy()
    want = np.column_stack([rcases.array(frame[c]) for c in columns[1:]])
    checks.append(Check("settings", gap(cv.cvframe[columns[0]], frame[columns[0]]), 1e-15, "table"))
    if case.name == "titanic_cv_paper":
        own = np.array([oracle_table(case, problem, folds, value) for value in frame["lambda"]])
        return [
            *checks,
            Check("R's table", gap(found, want), 0.05, "blocks"),
            Check("table of the limit, by the oracle", gap(found, own), 1e-6, "blocks"),
        ]
    tolerance = TABLES.get(case.name, CLOSED)
    for k, value in enumerate(frame[columns[0]]):
        rule, target = "table", want[k]
        if gap(found[k], target) > tolerance and fold_with_extra_row(case, problem, folds):
            rule, target = "extra row", oracle_table(case, problem, folds, value)
            own = oracle_table(case, problem, folds, value, "r")
            checks.append(
                Check(f"R's table at {value:g}, oracle with R's row", gap(own, want[k]), 1e-8, rule)
            )
        checks.append(Check(f"table at {value:g}", gap(found[k], target), tolerance, rule))
    checks.append(Check("regstar", gap(cv.regstar, case.best()["regstar"]), 1e-15, "table"))
    checks.append(Check("maxscore", gap(cv.maxscore, np.nanmax(found[:, 0])), 0.0, "table"))
    return checks


def fold_with_extra_row(case, problem, folds):
    """Return whether some training fold has a predictor that is constant at its reference level in
    a group.
    """
    return case.method == "pseudo" and any(
        ((rows == rows[0]).all(axis=0) & (rows[0] == 0)).any()
        for fold in folds
        for g in range(problem.K)
        for rows in [np.delete(problem.x, fold, axis=0)[np.delete(problem.y, fold) == g]]
    )


def oracle_table(case, problem, folds, value, rule="spec"):
    """Return the score of one penalty by the oracle: AUC and its limits, or accuracy."""
    links, truth = [], []
    for fold in folds:
        keep = np.setdiff1d(np.arange(len(problem.y)), fold)
        fits = []
        for g in range(problem.K):
            s = keep[problem.y[keep] == g]
            fits.append(
                oracle.PseudoFit(
                    problem.x[s], problem.w[s], problem.L, problem.pairs, value, case.lambdah, rule
                )
            )
        E = np.column_stack([oracle.energy(f.h, f.J, problem.x[fold]) for f in fits])
        share = np.bincount(problem.y[keep], minlength=problem.K) / len(keep)
        links.append(oracle.posterior(E, [f.log_z() for f in fits], share)[0])
        truth.append(problem.y[fold])
    links, truth = np.concatenate(links), np.concatenate(truth)
    if "AUC" in case.runs["default"]["cvframe"]:
        return np.array(oracle.delong(links[:, 1], truth == 1)[:3])
    return np.array([np.mean(links.argmax(axis=1) == truth)])


def compare_pooled(case, problem, cv, folds):
    """R's validation predictions scored by the package; the package's own predictions scored by the
    oracle.
    """
    truth = problem.y[np.concatenate(folds)]
    checks, pooled = [], case.raw["folds"].get("pooled_at_regstar")
    frame = case.runs["default"]["cvframe"]
    if pooled and "AUC" in frame:
        at = int(np.argmax(frame["AUC"]))
        found = auc(rcases.array(pooled["link"])[:, 1], truth == 1, np.ones(len(truth)))
        checks.append(
            Check(
                "R's predictions",
                gap(found, [frame[k][at] for k in ("AUC", "ci1", "ci2")]),
                1e-12,
                "scoring",
            )
        )
    if pooled and "score" in frame:
        hits = [problem.rgroups.index(v) for v in pooled["yhat"]] == truth
        checks.append(
            Check("R's predictions", gap(hits.mean(), max(frame["score"])), 1e-12, "scoring")
        )
    times = cv.observed["weights"].astype(int)
    own = cv.pooled.loc[cv.pooled.index.repeat(times)]
    y = problem.group_codes(cv.observed["y"].repeat(times))
    best = cv.cvframe.iloc[int(np.nanargmax(cv.cvframe.iloc[:, 1])), 1:]
    if "AUC" in frame:
        wanted = oracle.delong(own[problem.groups[1]].to_numpy(), y == 1)[:3]
    else:
        wanted = [np.mean(problem.group_codes(own["yhat"]) == y)]
    return [*checks, Check("own predictions", gap(best, wanted), 1e-12, "scoring")]


def compare_last_fold(case, problem, cv, fold):
    """The model that R keeps: its coefficients and its predictions of new data."""
    run = case.best()
    regstar = run["regstar"]
    rows = np.setdiff1d(np.arange(len(problem.y)), fold)
    setting = {"lambda" if case.method == "pseudo" else "eps": regstar}
    want = Expected(case, problem, rows, setting)
    newdata = problem.encode(case.newdata)
    prob = want.predict(newdata)[1]
    found = cv.predict(case.newdata, type="prob")[problem.groups].to_numpy()
    if case.method == "mf":
        full = len(problem.pairs) == len(problem.L) * (len(problem.L) - 1) // 2
        assert full, (
            "a mean-field cross-validation of a partial formula has no stored number to compare "
            "with"
        )
        return [
            Check("last fold: prob", gap(found, prob), CLOSED, "closed"),
            Check(
                "last fold: R's prob",
                gap(found, rcases.array(run["predict"]["prob"])),
                CLOSED,
                "closed",
            ),
        ]
    stored = rcases.array(run["predict"]["prob"])
    infinite = case.lambdah == 0 and absent_level(problem, rows)
    odd = fold_with_extra_row(case, problem, [fold])
    rule = "no optimum" if infinite else "oracle"
    checks = [Check("last fold: prob", gap(found, prob), 1e-6 if infinite else EXACT, rule)]
    if not odd:
        checks.append(
            Check(
                "last fold: R's prob",
                gap(found, stored),
                1e-3,
                "no optimum" if infinite else "distance",
            )
        )
    return checks


def absent_level(problem, rows):
    """Return whether some group has no row with some level."""
    return any(
        len(np.unique(problem.x[rows][problem.y[rows] == g, i])) < n
        for g in range(problem.K)
        for i, n in enumerate(problem.L)
    )


def compare_mlestimate(case):
    """kind "mlestimate": fields, couplings of all ordered pairs, lkh and ln Z of one group of
    codes.
    """
    args = case.args
    x = np.array(case.input["xi"])
    w = np.ones(len(x)) if case.weights is None else case.weights
    m = x.shape[1]
    qJ = case.input.get("qJ")
    L = args.get("L") or [max(2, int(n)) for n in x.max(axis=0) + 1]
    pairs = {
        p
        for p in itertools.combinations(range(m), 2)
        if not args.get("naive") and (qJ is None or qJ[p[0]][p[1]])
    }
    fit, _ = quietly(bbl.mlestimate, x, case.weights, qJ, **case.keywords())
    run = case.runs.get("exhausted", case.runs["default"])
    J = {
        (e["i"] - 1, e["j"] - 1): rcases.array(e["values"])
        for e in run["J"]
        if e["values"] is not None
    }
    J = {p: table for p, table in J.items() if tuple(sorted(p)) in pairs}
    r = [rcases.array(h) for h in run["h"]], J
    if case.method == "pseudo":
        exact = oracle.PseudoFit(x, w, L, pairs, case.lambda_, case.lambdah)
        tables = exact.J_raw if args.get("symmetrize") is False else both(exact.J)
        want, lz, lkh, tolerance = (exact.h, tables), exact.log_z(case.half), exact.lkh, EXACT
        rule = "oracle" if (w == 1).all() else "weights"
    else:
        eps = 0.0 if args.get("naive") else args.get("eps", 0.9)
        h, tables, lz, _ = oracle.mean_field(x, w, L, pairs, eps, args.get("prior.count", 1.0))
        want, lkh = (h, both(tables)), float(np.mean(oracle.energy(h, tables, x) - lz))
        rule = "naive" if args.get("naive") else "partial" if qJ is not None else "closed"
        tolerance = CLOSED
    dh, dJ = model_gap((fit.h, fit.J), want)
    checks = [
        Check("h", dh, tolerance, rule),
        Check("J", dJ, tolerance, rule),
        Check("ln Z", gap(fit.lz, lz), tolerance, rule),
        Check("lkh", gap(fit.lkh, lkh), tolerance, rule),
    ]
    dh, dJ = model_gap((fit.h, fit.J), r)
    reach, rule_r = (CLOSED, "closed") if case.method == "mf" else (1e-3, "distance")
    if rule not in ("naive", "partial"):
        checks.append(Check("R's h", dh, reach, rule_r))
    if rule == "closed":
        checks += [
            Check("R's ln Z", gap(fit.lz, run["lz"]), CLOSED, rule),
            Check("R's lkh", gap(fit.lkh, run["lkh"]), CLOSED, rule),
        ]
    if case.method == "pseudo":
        checks.append(Check("R's lkh", gap(fit.lkh, run["lkh"]), 1e-8, rule_r))
        if (w == 1).all():
            checks.append(Check("R's ln Z", gap(fit.lz, run["lz"]), reach, rule_r))
    return [*checks, Check("R's J", dJ, reach, rule_r)]


def both(J):
    """Return couplings with both orders of every pair."""
    return J | {(j, i): table.T for (i, j), table in J.items()}


def compare_split(case):
    """kind "split": two fits of the training half, their predictions, accuracy and AUC on the test
    half.
    """
    rows, test = (np.array(case.input[k]) - 1 for k in ("train_rows_1based", "test_rows_1based"))
    train, held = case.data.iloc[rows].reset_index(drop=True), case.data.iloc[test]
    checks = []
    for model in case.raw["models"].values():
        part = rcases.Part(case, train, model)
        problem = part.problem()
        fit, _ = fit_case(part)
        run, want = part.best(), Expected(part, problem)
        checks += compare_model(part, problem, fit, want, run, [])
        checks += compare_numbers(part, problem, fit, want, run)
        checks += compare_predictions(part, problem, fit, want, run)
        y = problem.group_codes(held[problem.response])
        hits = fit.predict(held, type="class").to_numpy() == held[problem.response].to_numpy()
        checks.append(
            Check("test accuracy", gap(hits.mean(), run["test"]["accuracy"]), 1e-12, "labels")
        )
        for kind in ("prob", "link"):
            roc = run["test"][f"roc_{kind}"]
            found = auc(
                fit.predict(held, type=kind)[problem.groups[1]].to_numpy(), y == 1, np.ones(len(y))
            )
            checks.append(
                Check(
                    f"test AUC of {kind}",
                    gap(found, [roc["auc"], *roc["delong_ci95"]]),
                    1e-12,
                    "scoring",
                )
            )
    return checks


def compare_sampling(case):
    """kind "mcSample": the most probable state, its energy, and ln Z by enumeration."""
    model, exact = case.raw["model"], case.raw["exact"]
    groups, names = list(model["coefficients"]["h"]), list(model["xlevels"])
    on = np.zeros((len(names), len(names)), dtype=bool)
    for e in model["coefficients"]["J"][groups[0]]:
        on[names.index(e["i"]), names.index(e["j"])] = on[
            names.index(e["j"]), names.index(e["i"])
        ] = True
    run = {"groupname": case.formula.split("~")[0].strip(), "groups": groups, "qJ": on.tolist()}
    problem = rcases.Problem(case.data, case.weights, {**run, "xlevels": model["xlevels"]})
    fit, _ = fit_case(case)
    draw = bbl.mcSample(fit, nsteps=1000, seed=1, verbose=0)
    want, checks = Expected(case, problem), []
    for g, label in enumerate(groups):
        h, J = problem.r_parameters(
            model["coefficients"]["h"][label], model["coefficients"]["J"][label]
        )
        off = gap(oracle.log_partition(h, J, problem.L), exact["log_partition_function"][label])
        checks.append(Check("ln Z of R's model by enumeration", off, CLOSED, "map"))
        state, top = oracle.highest(*want.models[g], problem.L)
        seen = draw.xmax[problem.groups[g]].loc[problem.names].tolist()
        stored = [exact["map"][label][n] for n in names]
        checks.append(Check("configuration", float(seen != stored), 0.0, "map"))
        checks.append(
            Check(
                "configuration of the oracle",
                float(problem_state(problem, state) != stored),
                0.0,
                "map",
            )
        )
        checks.append(Check("energy", gap(draw.emax[problem.groups[g]], top), EXACT, "map"))
    return checks


def problem_state(problem, state):
    """Return the labels of a state."""
    return [levels[a] for levels, a in zip(problem.levels, state, strict=True)]


KINDS = {
    "bbl": compare_fit,
    "crossVal": compare_cross_validation,
    "mlestimate": compare_mlestimate,
    "split": compare_split,
    "mcSample": compare_sampling,
    "bbl_large": compare_large,
    "mnist_mf": compare_mnist,
}


def compare(case):
    """Return the measured differences of one stored case, each with its tolerance and its rule."""
    with threadpool_limits(1):  # the oracle multiplies many small matrices
        return KINDS[case.kind](case)


def test_all_cases_are_there(shared):
    """The folder holds the 93 cases, so that none is passed over unseen."""
    assert len(rcases.names()) == 93


# 100 and more pixels in the oracle's loops
LONG = {name for name in rcases.names() if name.startswith("mnist_")}
LONG |= {"codon_cv_paper", "titanic_cv_paper"}  # whole tables of the paper


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in rcases.names() or [None]],
)
@pytest.mark.thinned(6)
def test_matches_r(name, shared):
    """Every stored case agrees with R, or differs as its rule says."""
    checks = compare(rcases.Case(name))
    assert checks
    assert {c.rule for c in checks} <= RULES.keys()
    failed = [c for c in checks if not c.passed]
    assert not failed, "\n".join(
        f"{c.quantity}: {c.difference:.3g} > {c.tolerance:.3g} ({c.rule}: {RULES[c.rule]})"
        for c in failed
    )
