"""Hints of methods and their options, of scores and limits, and of the functions below them."""

from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import bbl
from advice.common import (
    DATA,
    FITTED,
    GAPS,
    QUIET,
    WIDE,
    case,
    fit,
    patched,
    raising,
)
from bbl.engines import PseudoLikelihood
from bbl.engines.engine_fit import NoProgress
from bbl.model.chains import Chains, gibbs
from bbl.model.higher import Tables
from bbl.model.listing import state_energies

QUICK = {"chains": 2, "warmup": 20, "draws": 20}
PAIRS = DATA[["a", "b", "c"]]
ORDERED = DATA.assign(a=pd.Categorical(np.arange(60) % 3, ordered=True))
UNORDERED = ORDERED.assign(a=ORDERED["a"].astype(str))
ZEROS_IN_ORDER = ORDERED[(ORDERED["a"] != 2) | (ORDERED["b"] == 0)]
THIRD = pd.DataFrame({"a": [2], "b": [1]})
THREE = DATA.assign(y=np.where(DATA["a"] == DATA["b"], DATA["y"], "u"))
HOLES = DATA.assign(
    a=DATA["a"].where((np.arange(60) % 2 == 0) | (DATA["y"] == "t")),
    b=DATA["b"].where((np.arange(60) % 2 == 1) | (DATA["y"] == "t")),
)
UNSEEN = DATA.assign(a=DATA["a"].where(DATA["y"] == "t"))
REAL = DATA.assign(w=1.0 + np.arange(60) / 60)
CLUSTERED = DATA.assign(w=1.0, c=np.arange(60) // 20)
BOTH = pd.DataFrame({"a": [1], "b": [1]})
POSSIBLE = DATA[(DATA["a"] == 0) | (DATA["b"] == 0)]
FIELDS = ([0.5, -1.0], [[0.0, 3.0], [3.0, 0.0]], [2, 2])
BATCHES = {"data": lambda: iter([DATA])}


def conditional(formula: str = "y ~ a + b", data: Any = DATA, **options: Any) -> Any:
    return fit(formula, data, method="conditional", **options)


def linear(formula: str = "y ~ a + b", data: Any = ORDERED, **options: Any) -> Any:
    return fit(formula, data, ordered="linear", **options)


def crossed(formula: str = "y ~ .", data: Any = DATA, **options: Any) -> Any:
    return bbl.crossVal(formula, data, **options, **QUIET)


def zeros(formula: str = "~ a*b + c", table: Any = BOTH, data: Any = POSSIBLE, **o: Any) -> Any:
    return fit(formula, data, method="ml", structural_zeros=table, **o)


def energies(h: Any = FIELDS[0], J: Any = FIELDS[1]) -> Any:
    return state_energies(h, J, [2, 2])


ENGINES = {
    "an option of another engine": case(
        "Its options are .*lambda_",
        lambda: fit(eps=0.5),
        lambda: fit(lambda_=0.5),
    ),
    "options beside an engine": case(
        r"Pass lambda_ to PseudoLikelihood\(\.\.\.\) itself",
        lambda: fit(method=PseudoLikelihood(), lambda_=0.1),
        lambda: fit(method=PseudoLikelihood(lambda_=0.1)),
    ),
    "missing values that are not summed": case(
        r"Make missing values a separate level .*\(missing='level'\), or drop .*\(missing='drop'\)",
        lambda: conditional(data=GAPS, missing="marginal"),
        lambda: conditional(data=GAPS, missing="level"),
        lambda: conditional(data=GAPS, missing="drop"),
    ),
    "the distribution of rows": case(
        r"Choose method='pseudo', or assess predictions with evaluate\(\)",
        lambda: bbl.mcSample(conditional(), nsteps=20),
        lambda: bbl.mcSample(fit("y ~ a + b", method="pseudo"), nsteps=20, **QUIET),
        lambda: conditional().evaluate(),
    ),
    "errors of a posterior": case(
        r"Use inference\(\)\.table\(\) and interactions\(\)",
        lambda: fit("y ~ a*b", method="bayes", **QUICK).inference().tests(),
        lambda: fit("y ~ a*b", method="bayes", **QUICK).inference().table(),
        lambda: fit("y ~ a*b", method="bayes", **QUICK).interactions(),
    ),
    "no response": case(
        "Pass a formula with a response, or choose method='pseudo'",
        lambda: conditional("~ a + b"),
        lambda: conditional("y ~ a + b"),
        lambda: fit("~ a + b", method="pseudo"),
    ),
    "rows of an exchange": case(
        "Use sampler='pseudo'",
        patched(
            "bbl.engines.bayes.engine.MAX_STATES",
            2,
            patched("bbl.engines.bayes.engine.MAX_SWEPT_ROWS", 10.0, lambda: exchanged("exchange")),
        ),
        lambda: exchanged("pseudo"),
    ),
    "a prior of too few rows": case(
        r"Omit the c argument, or pass at least c=n/10",
        lambda: fit(method="bayes", prior="conjugate", c=0.5, **QUICK),
        lambda: fit(method="bayes", prior="conjugate", **QUICK),
        lambda: fit(method="bayes", prior="conjugate", c=6.0, **QUICK),
    ),
    "a scale that is text": case(
        r"Pass a number or 'cv'\.",
        lambda: conditional(scale="x"),
        lambda: conditional(scale=0.5),
        lambda: conditional("y ~ a*b", scale="cv"),
    ),
    "an order without a penalty": case(
        "Use ridge='cv' or ridge > 0, or ordered='nominal'",
        lambda: conditional(data=ORDERED, ridge=0, ordered="linear"),
        lambda: conditional(data=ORDERED, ridge="cv", ordered="linear"),
        lambda: conditional(data=ORDERED, ridge=0.1, ordered="linear"),
        lambda: conditional(data=ORDERED, ridge=0, ordered="nominal"),
    ),
    "a start without a penalty": case(
        "Use start=None, or ridge > 0",
        lambda: conditional(ridge=0, start="pseudo", ordered="nominal"),
        lambda: conditional(ridge=0, start=None, ordered="nominal"),
        lambda: conditional(ridge=0.1, start="pseudo"),
    ),
    "a start with Firth's penalty": case(
        "Use start=None, or ridge > 0",
        lambda: conditional(ridge="firth", start="pseudo", ordered="nominal"),
        lambda: conditional(ridge="firth", start=None, ordered="nominal"),
        lambda: conditional(ridge=0.1, start="pseudo"),
    ),
    "an order that only conditional likelihood has": case(
        "Use ordered='linear', or method='conditional'",
        lambda: fit(data=ORDERED, ordered="cumulative"),
        lambda: fit(data=ORDERED, ordered="linear"),
        lambda: conditional(data=ORDERED, ordered="cumulative"),
    ),
    "scores of nominal levels": case(
        "Use ordered='linear', or omit the level_scores argument",
        lambda: fit(data=ORDERED, level_scores={"a": [1, 2, 4]}),
        lambda: fit(data=ORDERED, level_scores={"a": [1, 2, 4]}, ordered="linear"),
        lambda: fit(data=ORDERED),
    ),
    "scores that are not in a dict": case(
        "Map each predictor to the scores of its levels",
        lambda: linear(level_scores=3),
        lambda: linear(level_scores={"a": [1, 2, 4]}),
    ),
    "scores that are not in a list": case(
        r"List one score for each level, such as \[8, 12, 16\]",
        lambda: linear(level_scores={"a": 3}),
        lambda: linear(level_scores={"a": [8, 12, 16]}),
    ),
    "equal scores": case(
        "List the scores in increasing order, and merge levels with equal scores",
        lambda: linear(level_scores={"a": [1, 1, 2]}),
        lambda: linear(level_scores={"a": [1, 2, 4]}),
        lambda: fit(data=ORDERED.assign(a=ORDERED["a"].astype(int) // 2)),
    ),
    "scores of an unknown predictor": case(
        "List only predictors of the formula",
        lambda: linear(level_scores={"z": [1, 2, 4]}),
        lambda: linear(level_scores={"a": [1, 2, 4]}),
    ),
    "scores of some levels": case(
        "List one score for each of the levels 0, 1, 2",
        lambda: linear(level_scores={"a": [1, 2]}),
        lambda: linear(level_scores={"a": [1, 2, 4]}),
    ),
    "scores of two levels": case(
        "Leave 'b' out of level_scores",
        lambda: linear(level_scores={"a": [1, 2, 4], "b": [0, 1]}),
        lambda: linear(level_scores={"a": [1, 2, 4]}),
    ),
    "an order that is not declared": case(
        r"Declare them as an ordered pd\.Categorical, pass their level_scores, or use",
        lambda: fit(data=UNORDERED, ordered="linear"),
        lambda: fit(data=ORDERED, ordered="linear"),
        lambda: fit(data=UNORDERED, ordered="linear", level_scores={"a": [0, 1, 2]}),
        lambda: fit(data=UNORDERED, ordered="nominal"),
    ),
    "an order of codes": case(
        r"Call bbl\.bbl\('~ \.', data, \.\.\.\), or use ordered='nominal'",
        lambda: bbl.mlestimate(np.arange(60)[:, None] % 3, ordered="linear"),
        lambda: fit("~ .", ORDERED[["a", "b"]], ordered="linear"),
        lambda: bbl.mlestimate(np.arange(60)[:, None] % 3, ordered="nominal"),
    ),
    "an order with structural zeros": case(
        "Use ordered='nominal', or omit the structural_zeros argument",
        lambda: zeros(data=ZEROS_IN_ORDER, table=THIRD, ordered="linear"),
        lambda: zeros(data=ZEROS_IN_ORDER, table=THIRD, ordered="nominal"),
        lambda: zeros(data=ZEROS_IN_ORDER, table=None, ordered="linear"),
    ),
    "an order with a sparse penalty": case(
        "Use ordered='nominal', or omit the penalty argument",
        lambda: fit("y ~ .^2", ORDERED, ordered="linear", penalty="group", lambda_=0.1),
        lambda: fit("y ~ .^2", ORDERED, ordered="nominal", penalty="group", lambda_=0.1),
        lambda: fit("y ~ .^2", ORDERED, ordered="linear", lambda_=0.1),
    ),
    "an order of two levels": case(
        r"Declare them as an ordered pd\.Categorical, or use ordered='nominal'",
        lambda: conditional(ordered="linear"),
        lambda: conditional(data=ORDERED, ordered="linear"),
        lambda: conditional(ordered="nominal"),
    ),
    "errors of a refined fit": case(
        "For effects, use se='bootstrap'. Otherwise, refit to .* rows with start=None",
        lambda: conditional(start="pseudo").inference().table(of=("s", "t")),
        lambda: conditional(start="pseudo").avg_comparisons("a", se="bootstrap", nboot=3),
        lambda: conditional(start=None, ridge=0.1).inference().table(of=("s", "t")),
    ),
    "a coding that is chosen": case(
        "Pass a single coding to crossVal",
        lambda: crossed(data=ORDERED, method="conditional", ordered="cv", scale=0.5),
        lambda: crossed(data=ORDERED, method="conditional", ordered="linear", scale=0.5),
    ),
    "too many coefficients": case(
        "Use ridge='cv', fewer predictors or fewer interactions",
        patched("bbl.engines.conditional.maximum.MAX_COEFFICIENTS", 2, lambda: maximal()),
        lambda: conditional(ridge="cv"),
        patched("bbl.engines.conditional.maximum.MAX_COEFFICIENTS", 2, lambda: maximal("y ~ a")),
    ),
    "profile limits of another penalty": case(
        r"Fit with method='conditional' and ridge='firth', or use the intervals from table\(\)",
        lambda: maximal("y ~ a").inference().profile(),
        lambda: conditional("y ~ a", ridge="firth").inference().profile(),
        lambda: maximal("y ~ a").inference().table(),
    ),
    "groups without complete rows": case(
        r"Leave some predictors out, or make .*\(missing='level'\)",
        lambda: fit("y ~ a + b", HOLES, method="shbm", missing="marginal"),
        lambda: fit("y ~ b + c", HOLES, method="shbm", missing="marginal"),
        lambda: fit("y ~ a + b", HOLES, method="shbm", missing="level"),
    ),
    "sums over missing values": case(
        "Use missing='level', missing='drop' or method='pseudo'",
        patched("bbl.engines.likelihood.engine.MAX_STATES", 2, lambda: summed("marginal")),
        patched("bbl.engines.likelihood.engine.MAX_STATES", 2, lambda: summed("level")),
        patched("bbl.engines.likelihood.engine.MAX_STATES", 2, lambda: summed("drop")),
        lambda: fit("y ~ a*b", GAPS, missing="marginal", method="pseudo"),
    ),
    "an exact likelihood of many": case(
        "Choose method='pseudo', or a formula with fewer interactions",
        lambda: fit("~ .^2", WIDE, method="ml"),
        lambda: fit("~ .^2", WIDE, method="pseudo", lambda_=0.1),
        lambda: fit("~ v0*v1 + v2", WIDE, method="ml"),
    ),
    "zeros of many states": case(
        "Pass a table with only the columns .* or a formula with fewer predictors or interactions",
        patched(
            "bbl.engines.likelihood.zeros.MAX_STATES", 4, lambda: zeros("~ a*b*c", BOTH.assign(c=1))
        ),
        patched("bbl.engines.likelihood.zeros.MAX_STATES", 4, lambda: zeros("~ a*b + c")),
        patched("bbl.engines.likelihood.zeros.MAX_STATES", 4, lambda: zeros("~ a*b")),
    ),
    "no penalty": case(
        "Pass a single number, or one number for each order",
        lambda: fit("y ~ .^3", lambda_=[]),
        lambda: fit("y ~ .^3", lambda_=0.1),
        lambda: fit("y ~ .^3", lambda_=[0.1, 0.2]),
    ),
    "norms without a penalty": case(
        r"Set lambda_ > 0, such as 0\.03, or omit the penalty argument",
        lambda: fit(penalty="l1", lambda_=0),
        lambda: fit(penalty="l1", lambda_=0.03),
        lambda: fit(lambda_=0),
    ),
    "norms of fields": case(
        r"Use lambdah=0, or omit the penalty argument",
        lambda: fit(penalty="l1", lambda_=0.03, lambdah=0.1),
        lambda: fit(penalty="l1", lambda_=0.03, lambdah=0),
        lambda: fit(lambda_=0.03, lambdah=0.1),
    ),
    "a gauge of many rows": case(
        "Omit the gauge argument, or pass a table with a sample of the rows",
        patched(
            "bbl.engines.pseudo.engine.few_enough",
            lambda *o: False,
            lambda: in_batches(gauge="zero-sum"),
        ),
        lambda: in_batches(),
        lambda: fit("y ~ .", BROAD.head(50), gauge="zero-sum"),
    ),
    "joint levels": case(
        "Merge levels, or leave the term out",
        patched("bbl.engines.pseudo.engine.MAX_LEVELS", 2, lambda: fit("y ~ a*b*t", TRIPLE)),
        patched(
            "bbl.engines.pseudo.engine.MAX_LEVELS", 2, lambda: fit("y ~ (a + b + t)^2", TRIPLE)
        ),
        patched("bbl.engines.pseudo.engine.MAX_LEVELS", 2, lambda: fit("y ~ a*b*c", TRIPLE)),
    ),
    "norms of batches": case(
        "Pass a table, or omit the penalty argument",
        lambda: in_batches(penalty="l1", lambda_=0.03),
        lambda: fit(penalty="l1", lambda_=0.03),
        lambda: in_batches(lambda_=0.03),
    ),
    "norms of three": case(
        "Use a formula with pairs only, or method='shbm'",
        lambda: fit("y ~ .^3", penalty="l1", lambda_=0.03),
        lambda: fit("y ~ .^2", penalty="l1", lambda_=0.03),
        lambda: fit("y ~ .", method="shbm"),
    ),
    "norms of three levels": case(
        "Use penalty='group'",
        lambda: fit("y ~ a*b", ORDERED, penalty="l1", lambda_=0.03),
        lambda: fit("y ~ a*b", ORDERED, penalty="group", lambda_=0.03),
    ),
    "errors of norms": case(
        r"Use penalty='l2', or call bootstrap\(\) to see how estimates vary",
        lambda: fit(penalty="l1", lambda_=0.03).inference().bse,
        lambda: fit(penalty="l2", lambda_=0.03).inference().bse,
        lambda: fit(penalty="l1", lambda_=0.03).bootstrap(nboot=3, seed=0),
    ),
    "errors of two estimates": case(
        r"Fit with symmetrize=True\.",
        lambda: fit(symmetrize=False).inference().bse,
        lambda: fit(symmetrize=True).inference().bse,
    ),
    "linear response of many": case(
        "Use sd='factorised', or choose method='bayes'",
        patched(
            "bbl.engines.variational.engine.MAX_MULTIPLICATIONS", 1.0, lambda: variational("lrvb")
        ),
        lambda: variational("factorised"),
        lambda: fit("y ~ a", method="bayes", **QUICK),
    ),
}


def exchanged(sampler: str) -> Any:
    return fit("y ~ a*b", method="bayes", sampler=sampler, **QUICK)


def maximal(formula: str = "y ~ a + b") -> Any:
    return conditional(formula, ridge=0, ordered="nominal")


def summed(missing: str) -> Any:
    return fit("y ~ a*b", GAPS, missing=missing, method="ml")


def in_batches(**options: Any) -> Any:
    return fit("y ~ .", lambda: iter([BROAD]), **options)


def variational(sd: str) -> Any:
    return fit("y ~ a", method="pvi", sd=sd, likelihood="sampled", draws=2, chains=20, n_iter=20)


MACHINES = {
    "annealing for hours": case(
        "Use log_z='auto' or 'half'",
        patched("bbl.boltzmann.estimate.MAX_ANNEALING_SECONDS", 0.0, lambda: annealed("ais")),
        lambda: annealed("auto"),
        lambda: annealed("half"),
    ),
    "a predictor unknown in a group": case(
        r"Leave it out of the formula, or .*\(missing='level'\)",
        lambda: fit("y ~ a + b", UNSEEN, missing="marginal"),
        lambda: fit("y ~ b", UNSEEN, missing="marginal"),
        lambda: fit("y ~ a + b", UNSEEN, missing="level"),
    ),
    "neighbours that are not known together": case(
        "fewer interactions, choose method='mf' with log_z='ais', or .*missing='level'",
        lambda: fit("y ~ a*b", HOLES, missing="marginal"),
        lambda: fit("y ~ a + b", HOLES, missing="marginal"),
        lambda: fit("y ~ a*b", APART, missing="marginal", method="mf", log_z="ais"),
        lambda: fit("y ~ a*b", HOLES, missing="level"),
    ),
    "a pair that is never known": case(
        r"Leave it out of the formula, or .*\(missing='level'\)",
        lambda: fit("y ~ a*b", HOLES, missing="marginal", method="mf", log_z="ais"),
        lambda: fit("y ~ a", HOLES, missing="marginal", method="mf", log_z="ais"),
        lambda: fit("y ~ a*b", HOLES, missing="level", method="mf", log_z="ais"),
    ),
    "a fit that stalls": case(
        r"Merge rare levels \(bbl\.lump\), use a larger lambda_",
        lambda: stalled(),  # noqa: PLW0108
        lambda: in_batches(lambda_=1.0),
        lambda: in_batches(),
    ),
    "the score of a density": case(
        "Use score='logloss'",
        lambda: crossed(score="pnll"),
        lambda: crossed(score="logloss"),
    ),
    "an area of three groups": case(
        "Use score='accuracy'",
        lambda: crossed(data=THREE, score="auc"),
        lambda: crossed(data=THREE, score="accuracy"),
    ),
    "folds of few clusters": case(
        r"Use fewer folds in crossVal \(nfold\), or pass a number instead of 'cv'",
        lambda: clustered(nfold=5),
        lambda: clustered(nfold=3),
        lambda: fit("y ~ a + b", CLUSTERED, design=DESIGN, lambda_=0.1),
    ),
    "ln Z of hidden units": case(
        "Use log_z='auto'",
        lambda: hidden(log_z="half"),
        lambda: hidden(log_z="auto"),
    ),
    "scores of a fit without a distribution": case(
        "Use complete rows of known levels, or fit with method='pseudo'",
        lambda: conditional("y ~ a*b").predict(UNKNOWN, unseen="ignore"),
        lambda: conditional("y ~ a*b").predict(DATA),
        lambda: fit("y ~ a*b", method="pseudo").predict(UNKNOWN, unseen="ignore"),
    ),
    "too many cells": case(
        "Use fewer predictors, or compare models of any size with aic and bic",
        patched("bbl.boltzmann.inference.goodness.MAX_CELLS", 4, lambda: exact("~ a*b*c").cells()),
        patched("bbl.boltzmann.inference.goodness.MAX_CELLS", 4, lambda: exact("~ a*b").cells()),
        lambda: (exact("~ a*b*c").aic, exact("~ a*b*c").bic),
    ),
    "too many odds ratios": case(
        "Leave this pair out of pairs, or use a formula with fewer terms of three predictors",
        patched(
            "bbl.boltzmann.inference.odds_ratios.MAX_CONTRASTS",
            1,
            lambda: fit("~ a*b*c", PAIRS).odds_ratios(),
        ),
        lambda: fit("~ a*b + b*c", PAIRS).odds_ratios(),
        lambda: fit("~ a*b*c", PAIRS).odds_ratios(pairs=[("a", "b")]),
    ),
    "permutations of billions": case(
        "Use pvalues='auto'",
        lambda: billions().interactions(pvalues="permutation"),
        lambda: billions().interactions(pvalues="auto"),
    ),
    "errors of an approximate ln Z": case(
        "Use se='bootstrap', or fit with log_z='exact'",
        lambda: annealed("ais").avg_comparisons("a"),
        lambda: annealed("ais").avg_comparisons("a", se="bootstrap", nboot=3),
        lambda: annealed("exact").avg_comparisons("a"),
    ),
    "moments of many": case(
        r"Use se='bootstrap'\.",
        patched(
            "bbl.boltzmann.inference.score_covariance.tree_order",
            lambda *o, **p: None,
            lambda: fit().avg_comparisons("a"),  # a new fit: errors are kept
        ),
        lambda: FITTED.avg_comparisons("a", se="bootstrap", nboot=3),
    ),
    "replicates that lose a group": case(
        r"Merge rare groups, or omit the type argument of the design",
        lambda: replicated(LOSING, replicates=["r2", "r3"], type="bootstrap").inference().bse,
        lambda: replicated(
            LOSING.replace({"y": {"rare": "s"}}), replicates=["r2", "r3"], type="bootstrap"
        ).inference(),
        lambda: replicated(LOSING).inference().bse,
    ),
    "log-losses that are too large": case(
        r"Calibrate them \(calibrate='offset' or 'temperature'\), or choose lambda_ by log-loss",
        lambda: excessive(),
        lambda: fit(calibrate="offset"),
        lambda: fit(calibrate="temperature"),
        lambda: bbl.crossVal("y ~ .^2", DATA, score="logloss", **QUIET),
        lambda: fit(lambda_="cv"),
        lambda: fit(method="naive"),
    ),
    "rows in order": case(
        "Use shuffle=True with a seed",
        lambda: crossed(data=SORTED),
        lambda: crossed(data=SORTED, shuffle=True, seed=0),
    ),
    "zeros about many predictors": case(
        "Use a table with only the columns that define the zeros",
        patched(
            "bbl.boltzmann.structural_zeros.MAX_STATES",
            4,
            lambda: zeros("~ a*b*c", BOTH.assign(c=1)),
        ),
        patched("bbl.boltzmann.structural_zeros.MAX_STATES", 4, lambda: zeros("~ a*b + c")),
    ),
    "zeros everywhere": case(
        "Leave some out",
        lambda: zeros("~ a*b", pd.DataFrame({"a": [0, 1]})),
        lambda: zeros(
            "~ a*b",
            pd.DataFrame({"a": [1]}),
            POSSIBLE[POSSIBLE["a"] == 0],
            novarOk=True,
            xlevels={"a": [0, 1]},
        ),
    ),
    "new rows in a cell that cannot occur": case(
        "Leave such rows out",
        lambda: zeros("y ~ a*b").predict(BOTH),
        lambda: zeros("y ~ a*b").predict(POSSIBLE),
    ),
    "a cell that occurs": case(
        "Leave the cell out of structural_zeros, or drop these rows",
        lambda: zeros("~ a*b", data=DATA),
        lambda: fit("~ a*b", DATA, method="ml"),
        lambda: zeros("~ a*b", data=POSSIBLE),
    ),
    "a fold that leaves no rows": case(
        r"Pass more rows, use fewer folds \(nfold in crossVal\), or avoid .* calibrate",
        lambda: tiny(lambda_="cv"),
        lambda: fit("y ~ a + b", DATA, lambda_="cv"),
        lambda: tiny(lambda_=0.1),
    ),
    "an error in a fold": case(
        ".",
        lambda: crossed("y ~ a + b", LONELY, missing="marginal", nfold=2),
        lambda: crossed("y ~ b", LONELY, missing="marginal", nfold=2),
        lambda: crossed("y ~ a + b", LONELY, missing="level", nfold=2),
    ),
}
LONELY = DATA.assign(a=DATA["a"].where(np.arange(60) >= 30))
SORTED = pd.concat([DATA] * 4, ignore_index=True).sort_values("a", ignore_index=True)
LOSING = DATA.assign(
    w=1.0,
    y=np.where(np.arange(60) < 12, "rare", DATA["y"]),
    r2=np.where(np.arange(60) < 12, 0.0, 1.0 + np.arange(60) % 2),
    r3=np.where(np.arange(60) < 12, 0.0, 1.0 + np.arange(60) % 3),
)
BROAD = WIDE.assign(y=["s", "t"] * 40)
DESIGN = bbl.survey("w", cluster="c")
THIRDS = np.arange(60) % 3
TRIPLE = DATA.assign(t=np.arange(60) % 3)
APART = DATA.assign(a=DATA["a"].where(THIRDS > 0), b=DATA["b"].where(THIRDS > 1))
UNKNOWN = DATA.assign(a=[7, *DATA["a"][1:]])


def replicated(data: Any, **design: Any) -> Any:
    return fit("y ~ a + b", data, design=bbl.survey("w", **design))


def annealed(log_z: str) -> Any:
    return fit("y ~ a*b", log_z=log_z)


def stalled() -> Any:
    with mock.patch("bbl.boltzmann.estimate.run_tasks", raising(NoProgress(0, 0.1, 10, 60))):
        return in_batches()


def clustered(**options: Any) -> Any:
    return crossed("y ~ a + b", CLUSTERED, design=DESIGN, **options)


def hidden(**options: Any) -> Any:
    return fit("y ~ a + b", method="bayes", prior="conjugate", hidden=2, **QUICK, **options)


def exact(formula: str) -> Any:
    return fit(formula, PAIRS, method="ml")


def billions() -> Any:
    return fit("~ a*b", DATA.assign(n=10**8), weights="n")


def excessive() -> Any:
    """Fit with the limits of a log-loss below zero: every loss is then too large."""
    limits = {"MIN_ERRORS": -1e3, "MIN_EXCESS": -1.0}
    with mock.patch.multiple("bbl.boltzmann.prediction_checks", **limits):
        return fit()


def tiny(**options: Any) -> Any:
    return fit("y ~ a + b", pd.DataFrame({"a": [0, 1], "b": [0, 1], "y": ["s", "t"]}), **options)


SMALL = np.array([[0.0, 3.0], [3.0, 0.0]])
FUNCTIONS = {
    "memory that is missing": case(
        ".",
        patched("bbl.api.training_data.Design.from_data", raising(MemoryError()), fit),
        lambda: fit(),
    ),
    "couplings that are infinite": case(
        "Refit with a penalty",
        lambda: Chains(*FIELDS, 2, 1, more=Tables(None, np.array([np.inf]))),
        lambda: bbl.mcSample(fit(lambda_=0.1), nsteps=20, **QUIET),
    ),
    "a step of many sweeps": case(
        "Use at most n_sweeps",
        lambda: gibbs(*FIELDS, n_sweeps=10, thin=20, rng=1),
        lambda: gibbs(*FIELDS, n_sweeps=10, thin=10, rng=1),
    ),
    "a list of many states": case(
        r"Draw some with gibbs\(\)",
        lambda: state_energies(np.zeros(21), np.zeros((21, 21)), [2] * 21),
        lambda: gibbs(np.zeros(21), np.zeros((21, 21)), [2] * 21, n_sweeps=2, rng=1),
    ),
    "fields that are infinite": case(
        "Refit with a penalty",
        lambda: energies(h=[np.inf, 0.0]),
        lambda: energies(),
    ),
    "couplings of one triangle": case(
        "Make it symmetric: fill both triangles",
        lambda: energies(J=np.triu(SMALL)),
        lambda: energies(J=SMALL),
    ),
    "couplings of one predictor": case(
        "Set those blocks to 0",
        lambda: energies(J=SMALL + np.eye(2)),
        lambda: energies(J=SMALL),
    ),
    "an exact reconstruction": case(
        "Use method='gibbs' or 'mf'",
        patched("bbl.model.clamped.MAX_CELLS", 1.0, lambda: rebuilt("exact")),
        lambda: rebuilt("gibbs"),
        lambda: rebuilt("mf"),
    ),
    "missing values and zeros": case(
        "Pass rows with fewer missing values",
        patched(
            "bbl.model.marginal.CELLS",
            1,
            lambda: impossible().predict(BLANK),
        ),
        lambda: impossible().predict(POSSIBLE),
    ),
    "errors of missing cells": case(
        "Use se='bootstrap' or se=False, or rows with fewer missing cells",
        patched("bbl.model.score_gradient.MAX_STATES", 1, lambda: gapped()),
        lambda: gapped(se="bootstrap", nboot=3),
        lambda: gapped(se=False),
        lambda: FITTED.avg_comparisons("a", newdata=DATA),
    ),
    "rows of many states": case(
        "Fit a model with fewer predictors",
        patched("bbl.model.states.MAX_STATES", 4, lambda: zeros("~ a*b*c").sample(5)),
        patched("bbl.model.states.MAX_STATES", 4, lambda: zeros("~ a*b").sample(5)),
    ),
    "folds that are no folds": case(
        "Pass a scikit-learn splitter, or pairs of row positions",
        lambda: crossed(cv=[1, 2]),
        lambda: crossed(cv=[(range(30), range(30, 60)), (range(30, 60), range(30))]),
        lambda: crossed(nfold=2, shuffle=True, seed=0),
    ),
    "rows that are not counted": case(
        r"fit with design=bbl\.survey\(weights=\.\.\.\). Otherwise, pass counts",
        lambda: fit("y ~ a + b", REAL, weights="w").inference().bse,
        lambda: fit("y ~ a + b", REAL, design=bbl.survey(weights="w")).inference().bse,
        lambda: fit("y ~ a + b", REAL.assign(w=2), weights="w").inference().bse,
        lambda: fit("y ~ a + b", REAL).inference().bse,
    ),
    "counts of a sample": case(
        r"Use inference\(\)",
        lambda: replicated(CLUSTERED, cluster="c").bootstrap(nboot=3),
        lambda: replicated(CLUSTERED, cluster="c").inference(),
    ),
}


def rebuilt(method: str) -> Any:
    return FITTED.reconstruct(GAPS.assign(y=DATA["y"]), method=method, **QUIET)


BLANK = POSSIBLE.assign(a=np.nan, b=np.nan)


def impossible() -> Any:
    return zeros("y ~ a*b + c", missing="marginal")


def gapped(**options: Any) -> Any:
    return fit("y ~ a*b", GAPS, missing="marginal").avg_comparisons("a", **options)


TABLE = ENGINES | MACHINES | FUNCTIONS
