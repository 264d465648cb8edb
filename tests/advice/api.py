"""Hints of public functions: machines, networks, biclusters and their judging."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold

import bbl
from advice.common import (
    DATA,
    FITTED,
    GAPS,
    QUIET,
    blocks,
    case,
    fit,
    in_folder,
    patched,
    shot,
)
from bbl import networks

NOISE = np.random.default_rng(0).normal(size=(40, 30))
COINS = NOISE[:20, :20] < 0
REPEATED = pd.DataFrame(
    [(u, m, 2.0 + s * (1 + (u + m) % 3)) for u in range(6) for m in range(5) for s in (-1, 1)],
    columns=["user", "movie", "rating"],
)
THREE = DATA.assign(y=np.where(DATA["a"] == DATA["b"], DATA["y"], "u"))
CONSTANT_FEATURES = DATA.assign(a=1, b=1, c=1)
CROSSED = pd.DataFrame(
    [(a, b, y, 3 + a) for a in (0, 1) for b in (0, 1) for y in "st"], columns=["a", "b", "y", "n"]
)


def reversed_levels() -> Any:
    return fit(FITTED.formula, xlevels={"a": FITTED.labels.levels[0][::-1]})


def rated(**options: Any) -> Any:
    return bbl.bicluster(None, COINS, method="mcmc", **options, **QUIET)


BICLUSTERS = {
    "blocks that have not mixed": case(
        "Increase warmup, draws or thin",
        lambda: rated(draws=8, warmup=0, n_init=2),
        lambda: rated(draws=8, warmup=50, n_init=2),
        lambda: rated(draws=50, warmup=0, n_init=2),
        lambda: rated(draws=8, warmup=0, n_init=2, thin=5),
    ),
    "groups that still move": case(
        r"Increase max_iter\.",
        lambda: bbl.bicluster(None, NOISE, (5, 5), max_iter=1, **QUIET),
        lambda: bbl.bicluster(None, NOISE, (5, 5), max_iter=100, **QUIET),
    ),
    "groups of a method that finds them": case(
        "Omit the groups argument, or choose method='prototype'",
        lambda: rated(groups=(2, 2)),
        lambda: rated(draws=8, warmup=8),
        lambda: blocks(groups=(2, 2), method="prototype"),
    ),
    "ratings off the scale": case(
        r"Use scale=\(lowest, highest\), or choose method='prototype'",
        lambda: blocks(groups=None, method="genetic", generations=2),
        lambda: blocks(groups=None, method="genetic", generations=2, scale=(0, 2)),
        lambda: blocks(groups=(2, 2), method="prototype"),
    ),
    "an option of another method": case(
        "Its options are .*metric",
        lambda: blocks(groups=(2, 2), sigma=1.0),
        lambda: blocks(groups=(2, 2), metric="squared"),
    ),
    "averages that are equal": case(
        "Use metric='squared', or 'levels' if the response has few values",
        lambda: blocks(data=REPEATED, metric="pearson", groups=(2, 2)),
        lambda: blocks(data=REPEATED, metric="squared", groups=(2, 2)),
        lambda: blocks(
            data=REPEATED.drop_duplicates(["user", "movie"]), metric="levels", groups=(2, 2)
        ),
    ),
    "the most groups": case(
        r"Increase max_groups above 2, or pass groups=\.",
        lambda: blocks(data=CHECKED, groups=None, max_groups=2),
        lambda: blocks(data=CHECKED, groups=None, max_groups=4, n_init=2),
        lambda: blocks(data=CHECKED, groups=(3, 3)),
    ),
}
CHECKED = None

SPINS = fit("~ .^2", DATA[["a", "b", "c"]])
PAIR = (np.zeros(2), np.zeros((2, 2)))

CALLS = {
    "an effective size": case(
        "Increase n_steps or batch",
        lambda: bbl.effective_size(PROTEINS, n_steps=1, batch=2, **QUIET),
        lambda: bbl.effective_size(PROTEINS, n_steps=300, batch=2, **QUIET),
        lambda: bbl.effective_size(PROTEINS, n_steps=300, batch=20, **QUIET),
    ),
    "a name that is no predictor": case(
        "Include every name in predictors",
        lambda: bbl.enrichment([("a", "b"), ("a", "c")], [("a", "b")], predictors=["a", "b"]),
        lambda: bbl.enrichment([("a", "b"), ("a", "c")], [("a", "b")], predictors=["a", "b", "c"]),
    ),
    "a pair of one name": case(
        "Pass two different names for each pair",
        lambda: bbl.enrichment([("a", "b"), ("a", "c")], [("a", "a")]),
        lambda: bbl.enrichment([("a", "b"), ("a", "c")], [("a", "b")]),
    ),
    "a file of another kind": case(
        r"Omit kind, or use kind=bbl\.BBL",
        in_folder(lambda f: bbl.load(saved(f), kind=bbl.ShooterResults)),
        in_folder(lambda f: bbl.load(saved(f))),
        in_folder(lambda f: bbl.load(saved(f), kind=bbl.BBLResults)),
    ),
    "predictors that differ": case(
        r"Fit all models with the same predictors in the formula\.",
        lambda: bbl.average([FITTED, fit("y ~ a")], weights="equal"),
        lambda: bbl.average([FITTED, fit(FITTED.formula)], weights="equal"),
    ),
    "levels that differ": case(
        r"Fit all models with xlevels=\{'a': \[",
        lambda: bbl.average([FITTED, reversed_levels()], weights="equal"),
        lambda: bbl.average([reversed_levels(), reversed_levels()], weights="equal"),
    ),
    "groups that differ": case(
        r"Fit all models with the same response\.",
        lambda: bbl.average([FITTED, fit(FITTED.formula, data=THREE)], weights="equal"),
        lambda: bbl.average([FITTED, fit(FITTED.formula)], weights="equal"),
    ),
    "priors that differ": case(
        r"Average the fits returned by fit\.with_priors\(None\), and set the priors of the average "
        r"with with_priors\(\)",
        lambda: bbl.average([FITTED, FITTED.with_priors("equal")]),
        lambda: bbl.average(
            [FITTED.with_priors(None), FITTED.with_priors("equal").with_priors(None)]
        ).with_priors("equal"),
    ),
    "an average of what is not refitted": case(
        "Use weights='equal'",
        lambda: bbl.average([FITTED, shot()], weights="cv"),
        lambda: bbl.average([FITTED, shot()], weights="equal"),
    ),
    "an average of other rows": case(
        "Use weights='equal'",
        lambda: bbl.average([FITTED, fit(data=DATA.head(40))], weights="cv"),
        lambda: bbl.average([FITTED, fit(data=DATA.head(40))], weights="equal"),
    ),
    "auto under a design": case(
        "Choose method='pseudo' or 'naive', or 'ml' if .*. If the weights are counts",
        lambda: sampled("auto"),
        *(lambda method=method: sampled(method) for method in ("pseudo", "naive", "ml")),
        lambda: fit(data=DATA.assign(w=2), weights="w", method="auto"),
    ),
    "weights that are not counts": case(
        r"Round them if they are counts. .* pass design=bbl\.survey\(weights=",
        lambda: fit(data=DATA.assign(w=1.0 + DATA["a"] / 2), weights="w"),
        lambda: fit(data=DATA.assign(w=1), weights="w"),
        lambda: sampled("pseudo"),
    ),
    "relevance without classes": case(
        "Omit the relevance argument, or pass a formula with a response",
        lambda: fit("~ .", relevance=0.05),
        lambda: fit("~ ."),
        lambda: fit("y ~ .", relevance=0.5),
    ),
    "a method without a design": case(
        "Choose method='pseudo' or 'naive', 'ml' if .*, or 'conditional' with ridge=0",
        lambda: sampled("mf"),
        *(lambda method=method: sampled(method) for method in ("pseudo", "naive", "ml")),
        lambda: sampled("conditional", ridge=0, ordered="nominal"),
        lambda: fit("y ~ a + b", DATA.assign(w=1.5), weights="w", method="mf"),
    ),
    "relevance of a method": case(
        "Omit the relevance argument, or choose method='pseudo'",
        lambda: fit("y ~ .", method="blanket", relevance=0.5),
        lambda: fit("y ~ .", method="blanket"),
        lambda: fit("y ~ .", method="pseudo", relevance=0.5),
    ),
    "relevance under a design": case(
        "Leave out relevance or design",
        lambda: sampled("pseudo", relevance=0.5),
        lambda: sampled("pseudo"),
        lambda: fit("y ~ a + b", relevance=0.5),
    ),
    "batches of a method": case(
        "Choose one of .*'pseudo'.*, or pass a random sample of the rows",
        lambda: fit(data=lambda: iter([DATA]), method="mpf"),
        lambda: fit(data=lambda: iter([DATA]), method="pseudo"),
        lambda: fit(data=bbl.sample_rows(lambda: iter([DATA]), 40, seed=0), method="mpf"),
    ),
    "missing values in batches": case(
        "Choose method='mf', or missing='level' or 'drop'",
        lambda: fit("y ~ a + b", lambda: iter([GAPS]), missing="marginal"),
        lambda: fit("y ~ a + b", lambda: iter([GAPS]), missing="marginal", method="mf"),
        lambda: fit("y ~ a + b", lambda: iter([GAPS]), missing="level"),
        lambda: fit("y ~ a + b", lambda: iter([GAPS]), missing="drop"),
    ),
    "a rule that is unknown": case(
        "Pass a number, or one of 'cv'",
        lambda: fit(lambda_="cvv"),
        lambda: fit(lambda_=0.1),
        lambda: fit(lambda_="cv"),
    ),
    "a rule as relevance": case(
        "Call crossVal once for each level, or call bbl.. with relevance=",
        lambda: bbl.crossVal("y ~ .", DATA, relevance="cv", **QUIET),
        lambda: bbl.crossVal("y ~ .", DATA, relevance=0.5, **QUIET),
        lambda: fit("y ~ .", relevance="cv"),
    ),
    "amounts as groups": case(
        r"If it is a quantity, bin it first: bbl\.bin\(data, 'x'\)",
        lambda: fit("x ~ a", AMOUNTS),
        lambda: fit("x ~ a", bbl.bin(AMOUNTS, "x")),
    ),
    "strata as an argument": case(
        r"Specify the sampling design: design=bbl\.survey",
        lambda: fit("y ~ a", DATA.assign(w=1.0, h=0), weights="w", strata="h"),
        lambda: fit("y ~ a", DATA.assign(w=1.0, h=0), design=bbl.survey("w", strata="h")),
    ),
    "a family": case(
        "method='conditional' with ridge=0 is logistic regression",
        lambda: fit("y ~ a", family="binomial"),
        lambda: fit("y ~ a", method="conditional", ridge=0),
    ),
    "a wrong call": case(
        "Its arguments are weights, strata",
        lambda: bbl.survey(DATA, weights="w"),
        lambda: bbl.survey(weights="w"),
    ),
    "counts as a predictor": case(
        "If column 'n' contains counts, use weights='n'",
        lambda: fit("y ~ a + b", CROSSED),
        lambda: fit("y ~ a + b", CROSSED, weights="n"),
    ),
    "codes of terms that are chosen": case(
        r"Use a formula without a response, bbl\('~ \.', data, method='shbm'\)",
        lambda: bbl.mlestimate(DATA[["a", "b"]].to_numpy(), method="shbm", **QUIET),
        lambda: fit("~ .", DATA[["a", "b"]], method="shbm"),
    ),
    "labels of other columns": case(
        r"Reindex it, or pass qJ\.to_numpy\(\) to match by position",
        lambda: labelled(MASK.iloc[::-1, ::-1]),
        lambda: labelled(MASK.iloc[::-1, ::-1].reindex(index=["a", "b"], columns=["a", "b"])),
        lambda: labelled(MASK.iloc[::-1, ::-1].to_numpy()),
    ),
    "interactions of one side": case(
        r"Set both\.",
        lambda: labelled(np.array([[0, 1], [0, 0]])),
        lambda: labelled(np.array([[0, 1], [1, 0]])),
    ),
    "no predictors to draw": case(
        "Pass at least one list of levels",
        lambda: bbl.randompar([]),
        lambda: bbl.randompar([[0, 1]]),
    ),
    "a group named twice": case(
        "Name each group once",
        lambda: bbl.randomsamp([[0, 1]], ["s", "s"], par=[ALONE, ALONE], nsample=5),
        lambda: bbl.randomsamp([[0, 1]], ["s", "t"], par=[ALONE, ALONE], nsample=5),
    ),
    "a group of one": case(
        "Omit the group argument",
        lambda: bbl.to_spins(PARAMETERS, group="s"),
        lambda: bbl.to_spins(PARAMETERS),
    ),
    "spins of three": case(
        r"Use a formula with pairs only, such as '~ \.\^2', without hidden units",
        lambda: bbl.to_spins(fit("~ .^3", DATA[["a", "b", "c"]])),
        lambda: bbl.to_spins(fit("~ .^2", DATA[["a", "b", "c"]])),
    ),
    "spins of a table": case(
        r"Pass the result of bbl\(\), crossVal\(\), mlestimate\(\) or randompar\(\)",
        lambda: bbl.to_spins(DATA),
        lambda: bbl.to_spins(SPINS),
        lambda: bbl.to_spins(bbl.crossVal("~ .^2", DATA[["a", "b"]], **QUIET)),
        lambda: bbl.to_spins(bbl.mlestimate(DATA[["a", "b"]].to_numpy(), **QUIET)),
        lambda: bbl.to_spins(PARAMETERS),
    ),
    "spins of text": case(
        r"Pass arrays of shapes \(m,\) and \(m, m\)",
        lambda: bbl.from_spins(["x"], [["y"]]),
        lambda: bbl.from_spins(*PAIR),
    ),
    "spins of another shape": case(
        r"Pass b with shape \(m,\) and M with shape \(m, m\)",
        lambda: bbl.from_spins([1.0], np.zeros((2, 2))),
        lambda: bbl.from_spins(*PAIR),
    ),
    "spins that are infinite": case(
        "Replace them",
        lambda: bbl.from_spins([np.inf, 0.0], np.zeros((2, 2))),
        lambda: bbl.from_spins([0.0, 0.0], np.zeros((2, 2))),
    ),
    "spins of half a matrix": case(
        r"To use both triangles of M, pass \(M \+ M\.T\) / 2",
        lambda: bbl.from_spins([0.0, 0.0], HALF),
        lambda: bbl.from_spins([0.0, 0.0], (HALF + HALF.T) / 2),
    ),
    "spins of three levels": case(
        r"Merge its levels into two with bbl\.bin or bbl\.lump, or leave it out of the formula",
        lambda: bbl.to_spins(fit("~ a*t", TRIPLE)),
        lambda: bbl.to_spins(fit("~ a*t", bbl.bin(TRIPLE, columns=["t"], bins=2))),
        lambda: bbl.to_spins(fit("~ a*b", TRIPLE)),
    ),
    "couplings of three spins": case(
        "Leave out terms that involve three or more predictors",
        lambda: bbl.to_spins(TRIPLET),
        lambda: bbl.to_spins(PARAMETERS),
    ),
    "spins of several groups": case(
        "Pass one of 's', 't'",
        lambda: bbl.to_spins(FITTED),
        lambda: bbl.to_spins(FITTED, "s"),
        lambda: bbl.to_spins(FITTED, "t"),
    ),
    "steps without a likelihood": case(
        r"Fit the formula with method='ml'\.",
        lambda: bbl.step(FITTED, **QUIET),
        lambda: bbl.step(fit(method="ml"), **QUIET),
    ),
    "steps with a penalty": case(
        "Fit without lambda_, lambdah or prior_count",
        lambda: bbl.step(fit(method="ml", lambda_=0.1), **QUIET),
        lambda: bbl.step(fit(method="ml"), **QUIET),
    ),
    "steps of calibrated classes": case(
        "Fit with calibrate='none', then calibrate the fit of the selected formula",
        lambda: bbl.step(fit(method="ml", calibrate="temperature"), **QUIET),
        lambda: fit(
            bbl.step(fit(method="ml", calibrate="none"), **QUIET).fit.formula,
            method="ml",
            calibrate="temperature",
        ),
    ),
    "steps of relevant predictors": case(
        "Fit without relevance",
        lambda: bbl.step(fit(method="ml", relevance=0.9), **QUIET),
        lambda: bbl.step(fit(method="ml"), **QUIET),
    ),
    "a scope with a response": case(
        "Write '~' and the interactions",
        lambda: bbl.step(fit("y ~ a + b + c", method="ml"), scope=("~ 1", "a ~ b*c"), **QUIET),
        lambda: bbl.step(fit("y ~ a + b + c", method="ml"), scope=("~ 1", "~ a*b + c"), **QUIET),
    ),
    "steps from a small scope": case(
        r"Use a larger model\.",
        lambda: bbl.step(fit("y ~ a*b + c", method="ml"), scope=("~ 1", "~ a + b + c"), **QUIET),
        lambda: bbl.step(fit("y ~ a*b + c", method="ml"), scope=("~ 1", "~ a*b + c"), **QUIET),
    ),
    "steps to large tables": case(
        "Use a smaller scope",
        patched("bbl.engines.likelihood.engine.MAX_STATES", 4, lambda: wide_steps()),
        lambda: bbl.step(fit("~ a + b + c", method="ml"), scope=("~ 1", "~ a*b + c"), **QUIET),
    ),
    "zeros of another method": case(
        "Choose method='ml', or omit the structural_zeros argument",
        lambda: fit("~ a*b", POSSIBLE, structural_zeros=BOTH),
        lambda: fit("~ a*b", POSSIBLE, structural_zeros=BOTH, method="ml"),
        lambda: fit("~ a*b", POSSIBLE),
    ),
    "zeros and ln Z": case(
        "Omit the log_z argument",
        lambda: fit("~ a*b", POSSIBLE, structural_zeros=BOTH, method="ml", log_z="ais"),
        lambda: fit("~ a*b", POSSIBLE, structural_zeros=BOTH, method="ml"),
    ),
    "zeros of batches": case(
        "Pass a table of the distinct rows with their counts as weights",
        lambda: fit("~ a*b", lambda: iter([POSSIBLE]), structural_zeros=BOTH, method="ml"),
        lambda: fit(
            "~ a*b",
            POSSIBLE.value_counts(["a", "b"]).reset_index(),
            weights="count",
            structural_zeros=BOTH,
            method="ml",
        ),
    ),
    "all pairs of many": case(
        r"Use screen='heredity'\.",
        patched("bbl.api.shooter.MAX_ALL_PAIRS", 2, lambda: shot(screen="all")),
        patched("bbl.api.shooter.MAX_ALL_PAIRS", 2, lambda: shot(screen="heredity")),
    ),
    "groups that are separated": case(
        "Use refit=False, or a larger lambda_",
        lambda: shot("y ~ .", APART, lambda_=1.0),
        lambda: shot("y ~ .", APART, lambda_=1.0, refit=False),
        lambda: shot("y ~ .", APART, lambda_=20.0),
    ),
    "batches where rows are needed": case(
        "Pass a table, or a random sample",
        lambda: shot("y ~ .", lambda: iter([DATA])),
        lambda: shot("y ~ .", DATA),
        lambda: shot("y ~ .", bbl.sample_rows(lambda: iter([DATA]), 50, seed=0)),
    ),
}
APART = DATA.assign(y=np.where(DATA["a"] == 1, "s", "t"))
POSSIBLE = DATA[(DATA["a"] == 0) | (DATA["b"] == 0)]
BOTH = pd.DataFrame({"a": [1], "b": [1]})
HALF = np.array([[0.0, 1.0], [0.0, 0.0]])
TRIPLE = DATA.assign(t=np.arange(60) % 3)
MASK = pd.DataFrame([[0, 1], [1, 0]], ["a", "b"], ["a", "b"])
ALONE = bbl.randompar([[0, 1]], seed=0)
PARAMETERS = bbl.randompar([[0, 1]] * 3, seed=0)
TRIPLET = dataclasses.replace(PARAMETERS, J={(0, 1, 2): np.ones((1, 1, 1))})
AMOUNTS = DATA.assign(x=np.arange(60) % 30)
PROTEINS = np.random.default_rng(0).integers(0, 4, (100, 20))


def saved(folder: Any) -> Any:
    FITTED.save(folder / "m.bbl")
    return folder / "m.bbl"


def sampled(method: str, **options: Any) -> Any:
    data = DATA.assign(w=1.0 + DATA["a"] / 2)
    return fit("y ~ a + b", data, method=method, design=bbl.survey("w"), **options)


def labelled(mask: Any) -> Any:
    return bbl.mlestimate(DATA[["a", "b"]], qJ=mask, **QUIET)


def wide_steps() -> Any:
    return patched(
        "bbl.engines.likelihood.solve.MAX_CELLS",
        9.0,
        lambda: bbl.step(fit("~ a + b + c", method="ml"), scope=("~ 1", "~ a*b*c"), **QUIET),
    )()


def network(learner: str = "nb", **options: Any) -> Any:
    return networks.bnc(learner, "y ~ .", DATA, 1, **options)


def half_known() -> Any:
    return networks.bnc("nb", "y ~ .", HALF_KNOWN, 1, missing="marginal")


NB = networks.nb("y", DATA)

NETWORKS = {
    "a class of no column": case(
        "Pass the name of the class, or a formula such as 'class ~ .'",
        lambda: networks.nb("yy", DATA),
        lambda: networks.nb("y", DATA),
        lambda: networks.nb("y ~ .", DATA),
    ),
    "folds that are numbers": case(
        "For each fold, pass the positions of its validation rows",
        lambda: networks.cv(network(), DATA, folds=["x", "z"]),
        lambda: networks.cv(network(), DATA, folds=[range(30), range(30, 60)]),
    ),
    "folds of rare classes": case(
        r"Use fewer folds \(k\), or merge rare classes",
        lambda: networks.cv(networks.bnc("nb", "y", RARELY, 1), RARELY, k=5),
        lambda: networks.cv(networks.bnc("nb", "y", RARELY, 1), RARELY, k=2),
        lambda: networks.cv(networks.bnc("nb", "y", DATA, 1), DATA, k=5),
    ),
    "the class as a feature": case(
        "Leave its entry out",
        lambda: networks.structure("y", {"y": [], "a": []}),
        lambda: networks.structure("y", {"a": []}),
    ),
    "the class as a parent": case(
        "Leave the class out of the lists",
        lambda: networks.structure("y", {"a": ["y"]}),
        lambda: networks.structure("y", {"a": []}),
    ),
    "a parent that is no feature": case(
        "Add an entry for it",
        lambda: networks.structure("y", {"a": ["b"]}),
        lambda: networks.structure("y", {"a": ["b"], "b": []}),
    ),
    "a parent twice": case(
        "List each parent only once",
        lambda: networks.structure("y", {"a": ["b", "b"], "b": []}),
        lambda: networks.structure("y", {"a": ["b"], "b": []}),
    ),
    "arcs in a cycle": case(
        "Reverse or drop one of its arcs",
        lambda: networks.structure("y", {"a": ["b"], "b": ["a"]}),
        lambda: networks.structure("y", {"a": ["b"], "b": []}),
    ),
    "weights of an average": case(
        "Omit the wanbia argument",
        lambda: network("aode", wanbia=True),
        lambda: network("aode"),
    ),
    "averages without a prior": case(
        r"Use smooth=1\.",
        lambda: networks.lp(NB, DATA, smooth=0, manb_prior=0.5),
        lambda: networks.lp(NB, DATA, smooth=1, manb_prior=0.5),
    ),
    "a weight of no feature": case(
        "Use weights for features only",
        lambda: networks.lp(NB, DATA, smooth=1, wanbia={"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}),
        lambda: networks.lp(NB, DATA, smooth=1, wanbia={"a": 1.0, "b": 1.0, "c": 1.0}),
    ),
    "a feature without a weight": case(
        "Pass a weight for each feature",
        lambda: networks.lp(NB, DATA, smooth=1, wanbia={"a": 1.0, "b": 1.0}),
        lambda: networks.lp(NB, DATA, smooth=1, wanbia={"a": 1.0, "b": 1.0, "c": 1.0}),
    ),
    "two policies of missing values": case(
        "Fit all models with the same missing option",
        lambda: networks.cv(
            [networks.bnc("nb", "y", GAPS, 1, missing=m) for m in ("drop", "level")], GAPS, k=3
        ),
        lambda: networks.cv(
            [networks.bnc(n, "y", GAPS, 1, missing="level") for n in ("nb", "tan_cl")], GAPS, k=3
        ),
    ),
    "an area of three classes": case(
        "Use score='accuracy'",
        lambda: networks.cv(networks.bnc("nb", "y", THREE, 1), THREE, k=2, score="auc"),
        lambda: networks.cv(networks.bnc("nb", "y", THREE, 1), THREE, k=2, score="accuracy"),
    ),
    "a fold without rows": case(
        r"Use fewer folds \(k\)",
        lambda: networks.cv(half_known(), HALF_KNOWN, folds=[range(30), range(30, 60)]),
        lambda: networks.cv(half_known(), HALF_KNOWN, k=2),
    ),
    "two columns as one": case(
        r"Combine several columns first, such as data\['a'\]\.astype\(str\) \+ ' '",
        lambda: networks.cmi(["a", "b"], "y", DATA),
        lambda: networks.cmi(
            "ab",
            "y",
            DATA.assign(ab=DATA["a"].astype(str) + " " + DATA["b"].astype(str)),
        ),
    ),
    "folds of some rows": case(
        "Pass a splitter such as KFold, or lists of row positions",
        lambda: networks.tan_hc("y", DATA, folds=PARTIAL, **QUIET),
        lambda: networks.tan_hc("y", DATA, folds=KFold(2), **QUIET),
        lambda: networks.tan_hc("y", DATA, folds=[range(30), range(30, 60)], **QUIET),
    ),
    "a root of no feature": case(
        "Choose one of a, b, c",
        lambda: networks.tan_cl("y", DATA, root="d"),
        lambda: networks.tan_cl("y", DATA, root="a"),
    ),
    "trees without a split": case(
        "Omit awnb_trees and awnb_bootstrap, or draw more rows",
        lambda: networks.lp(networks.nb("y", PLAIN), PLAIN, smooth=1, awnb_trees=2),
        lambda: networks.lp(networks.nb("y", PLAIN), PLAIN, smooth=1),
    ),
}
HALF_KNOWN = DATA.assign(y=DATA["y"].where(np.arange(60) < 30))
RARELY = DATA.assign(y=["r", "r", *DATA["y"][2:]])
PLAIN = CONSTANT_FEATURES


class Partial(KFold):
    """Folds that leave the last rows out of training."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
        for train, held in super().split(X, y, groups):
            yield train[:-5], held


PARTIAL = Partial(2)
CHECKED = pd.DataFrame(
    [(u, m, 2.0 * (u % 3) + 5.0 * (m % 3) + (u + m) % 2) for u in range(9) for m in range(9)],
    columns=["user", "movie", "rating"],
)

TABLE = BICLUSTERS | CALLS | NETWORKS
