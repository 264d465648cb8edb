"""Comparison of the package with R on the MNIST digits: 100 pixels of three digits, and the whole
data set.
"""

from __future__ import annotations

import numpy as np
import rcases
from rcompare import CLOSED, EXACT, Check, Expected, fit_case, gap, quietly, relative

import bbl


def compare_large(case):
    """kind "bbl_large": 100 pixels of three digits: all fields, 400 couplings, ln Z,
    predictions.
    """
    run = case.best()
    pixels = [c for c in case.data.columns if c != "y"]
    digits = list(run["lz"])
    on = ~np.eye(len(pixels), dtype=bool)
    levels = {p: ["0", "1"] for p in pixels}
    problem = rcases.Problem(
        case.data, None, {"groupname": "y", "groups": digits, "qJ": on.tolist(), "xlevels": levels}
    )
    fit, _ = fit_case(case)
    want = Expected(case, problem, pooled=False)
    coef, check = fit.coef(), run.get("independent_check", {})
    mf = case.method == "mf"
    rule, tolerance = ("closed", CLOSED) if mf else ("exact", EXACT)
    h, J = (run["h"], run["selected_J"]) if mf else (check["exact_h"], check["exact_J_selected"])
    lz = run["lz"] if mf else check["exact_lz_r"]
    checks = [
        Check("df", abs(fit.estimate.parameters.layout.size - run["df"]), 0.0, "closed"),
        Check("lkh", relative(fit.lkh, want.lkh), tolerance, rule),
    ]
    for digit in digits:
        g = int(digit)
        found = [coef.h[g][p].loc[1] for p in pixels]
        checks.append(Check("h", gap(found, [h[digit][p]["1"] for p in pixels]), tolerance, rule))
        pairs = [coef.J[g][e["i"], e["j"]].loc[1, 1] for e in J[digit]]
        checks.append(Check("J", gap(pairs, [e["value"] for e in J[digit]]), tolerance, rule))
        checks.append(Check("ln Z", relative(fit.log_z[g], lz[digit]), tolerance, rule))
    link, prob = want.predict(problem.encode(case.newdata))
    groups = problem.groups
    new = fit.predict(case.newdata)
    checks.append(
        Check(
            "link", relative(new[groups].to_numpy(), link), tolerance, "closed" if mf else "oracle"
        )
    )
    checks.append(
        Check(
            "R's yhat",
            float(sum(str(a) != b for a, b in zip(new["yhat"], run["test"]["yhat"], strict=True))),
            0.0,
            "labels",
        )
    )
    if mf:
        checks.append(
            Check(
                "R's link",
                relative(new[groups].to_numpy(), rcases.array(run["test"]["link"])),
                CLOSED,
                rule,
            )
        )
    return checks


def compare_mnist(case):
    """kind "mnist_mf": the whole down-sampled MNIST data by mean field, or by naive Bayes."""
    out = case.raw["output"]
    train, test = rcases.mnist(rcases.folder())
    if "naive_formula" in out:
        fit, _ = quietly(
            bbl.bbl, "y ~ .^2", train, method="mf", eps=0.0, log_z="mf", testNull=False
        )
        zero, _ = quietly(bbl.bbl, "y ~ .", train, method="mf", log_z="mf", testNull=False)
        yhat = [str(v) for v in fit.predict(test, type="class")]
        wrong = float(sum(a != b for a, b in zip(yhat, out["eps0"]["yhat"], strict=True)))
        m = train.shape[1] - 1
        lz = [zero.log_z[int(d)] / m for d in out["naive_formula"]["lz"]]
        return [
            Check("eps = 0: labels that differ from R's", wrong, 0.0, "labels"),
            Check(
                "additive: ln Z / m is R's ln Z",
                gap(lz, list(out["naive_formula"]["lz"].values())),
                CLOSED,
                "additive",
            ),
            Check(
                "additive = eps 0",
                gap(zero.predict(test).iloc[:, :10], fit.predict(test).iloc[:, :10]),
                1e-8,
                "additive",
            ),
        ]
    fit, _ = quietly(bbl.bbl, "y ~ .^2", train, method="mf", eps=0.05, log_z="mf")
    kept = [c for c in train.columns if c != "y"]
    coef = fit.coef()
    checks = [Check("columns kept", float(kept != case.input["kept_columns"]), 0.0, "closed")]
    layout = fit.estimate.parameters.layout
    for g, digit in enumerate(out["groups"]):
        k = int(digit)
        fields = {n: v["1"] for n, v in out["selected_h"][digit].items()}
        checks.append(
            Check(
                "h",
                gap([coef.h[k][n].loc[1] for n in fields], list(fields.values())),
                CLOSED,
                "closed",
            )
        )
        J = out["selected_J"][digit]
        found = [coef.J[k][e["i"], e["j"]].loc[1, 1] for e in J]
        checks.append(Check("J", gap(found, [e["value"] for e in J]), CLOSED, "closed"))
        checks.append(Check("ln Z", relative(fit.log_z[k], out["lz"][digit]), CLOSED, "closed"))
        theta = fit.estimate.parameters.theta[g]
        h, pairs = theta[: layout.D], theta[layout.D :]
        sums = [h.sum(), abs(h).sum(), 2 * pairs.sum(), 2 * abs(pairs).sum(), abs(pairs).max()]
        checks.append(
            Check(
                "sums over all h and J",
                relative(sums, list(out["sums"][digit].values())),
                CLOSED,
                "closed",
            )
        )
    h0 = out["h0_selected"]
    checks.append(
        Check(
            "h0",
            gap([coef.h0[n].loc[1] for n in h0], [v["1"] for v in h0.values()]),
            CLOSED,
            "closed",
        )
    )
    checks.append(Check("lkh", relative(fit.lkh, out["lkh"]), CLOSED, "closed"))
    checks.append(Check("df", abs(fit.estimate.parameters.layout.size - out["df"]), 0.0, "closed"))
    groups = [int(d) for d in out["groups"]]
    new = fit.predict(test)
    link = rcases.array(out["test"]["link_first20"])
    checks.append(
        Check("link of 20 rows", relative(new[groups].to_numpy()[:20], link), CLOSED, "closed")
    )
    checks.append(
        Check(
            "highest link",
            relative(new[groups].max(axis=1), out["test"]["max_link"]),
            CLOSED,
            "closed",
        )
    )
    for kind, yhat in (("test", new["yhat"]), ("train", fit.predict(type="class"))):
        wrong = sum(str(a) != b for a, b in zip(yhat, out[kind]["yhat"], strict=True))
        checks.append(Check(f"{kind} labels that differ from R's", float(wrong), 0.0, "labels"))
    accuracy = np.mean(new["yhat"].to_numpy() == test["y"].to_numpy())
    return [
        *checks,
        Check("test accuracy", gap(accuracy, out["test"]["accuracy"]), 1e-12, "labels"),
    ]
