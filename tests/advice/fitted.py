"""Hints about numeric predictors, unknown values, and what fitted models of each kind lack."""

import functools
import io
import sys
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import bbl
from advice.common import (
    DATA,
    FITTED,
    GAPS,
    NUMBERS,
    QUIET,
    blocks,
    case,
    fit,
    in_folder,
    patched,
    shot,
)
from bbl import networks
from bbl.results.machine import nested

CONDITIONAL = fit("y ~ a + b", method="conditional")
FLAT = {"method": "pvi", "n_iter": 5, "chains": 10}
GAMMA = pd.DataFrame({"y": ["s", "t"] * 6, "x": np.arange(12) / 7})


def numeric(data: Any = NUMBERS, formula: str = "y ~ x", **options: Any) -> Any:
    return shot(formula, data, numeric=["x"], **options)


ENDLESS = NUMBERS.assign(x=NUMBERS["x"].where(NUMBERS.index > 0, np.inf))
HOLED = NUMBERS.assign(x=NUMBERS["x"].where(NUMBERS.index > 0))
WORDY = NUMBERS.assign(x=NUMBERS["x"].map(str).where(NUMBERS.index > 0, "u"))

NUMERIC = {
    "a number of no predictor": case(
        "List only predictors of the formula",
        lambda: numeric(formula="y ~ a"),
        lambda: numeric(formula="y ~ x"),
    ),
    "levels of a number": case(
        "Remove 'x' from xlevels or from numeric",
        lambda: numeric(xlevels={"x": [0, 1]}),
        lambda: numeric(),
    ),
    "a number that is missing": case(
        r"Drop the rows \(missing='drop'\), or fill in the values",
        lambda: numeric(HOLED),
        lambda: numeric(HOLED, missing="drop"),
        lambda: numeric(HOLED.fillna({"x": 0.0})),
    ),
    "a number that is infinite": case(
        "Replace them with finite numbers, or leave these rows out",
        lambda: numeric(ENDLESS),
        lambda: numeric(ENDLESS.replace(np.inf, 3.0)),
        lambda: numeric(ENDLESS[1:]),
    ),
    "a number that is a word": case(
        r"Convert the column with pandas\.to_numeric, or list only numeric columns in numeric",
        lambda: numeric(WORDY),
        lambda: numeric(WORDY.assign(x=pd.to_numeric(WORDY["x"], errors="coerce")), missing="drop"),
        lambda: shot("y ~ a", WORDY),
    ),
    "standardised levels": case(
        "Use numeric=True, or list the names of the numeric predictors",
        lambda: shot("y ~ x", GAMMA, standardise=True),
        lambda: shot("y ~ x", GAMMA, standardise=True, numeric=True),
        lambda: shot("y ~ x", GAMMA, standardise=True, numeric=["x"]),
    ),
    "numeric that is a number": case(
        "Use numeric=True if all predictors are numeric",
        lambda: shot("y ~ x", GAMMA, numeric=3),
        lambda: shot("y ~ x", GAMMA, numeric=True),
    ),
    "explanations of numbers": case(
        r"Call coef\(\)",
        lambda: shot("y ~ x", GAMMA, numeric=True).explain(GAMMA),
        lambda: shot("y ~ x", GAMMA, numeric=True).coef(),
    ),
    "characters that are a list": case(
        r'Pass the characters as one string, such as gaps="-"',
        lambda: bbl.readFasta(io.StringIO(">u\nA-\n"), gaps=["-"]),
        lambda: bbl.readFasta(io.StringIO(">u\nA-\n"), gaps="-"),
    ),
    "characters with a space": case(
        "Leave the spaces out",
        lambda: bbl.readFasta(io.StringIO(">u\nA-\n"), gaps="- ."),
        lambda: bbl.readFasta(io.StringIO(">u\nA-\n"), gaps="-."),
    ),
}
WEIGHED = fit("y ~ a", DATA.assign(n=1), weights="n")
UNKNOWN = DATA.assign(a="z")
ORDER = {
    "unordered": pd.CategoricalDtype(["p", "q"], ordered=True),
    "other": pd.CategoricalDtype(["q", "p"], ordered=True),
}


def batches(*kinds: str) -> Any:
    """Return a source whose batches declare the column d with these orders."""
    table = DATA.assign(d=np.where(DATA["a"] == 0, "p", "q"))
    return lambda: iter([table.assign(d=table["d"].astype(ORDER[kind])) for kind in kinds])


VALUES = {
    "orders that differ": case(
        r"Declare the same categories .*, or pass its levels in order: xlevels=\{'d': \[\.\.\.\]\}",
        lambda: fit("y ~ d", batches("unordered", "other")),
        lambda: fit("y ~ d", batches("unordered", "unordered")),
        lambda: fit("y ~ d", batches("unordered", "other"), xlevels={"d": ["p", "q"]}),
    ),
    "new weights that are wrong": case(
        r"Correct it, or pass weights=numpy\.ones\(len\(newdata\)\) to weight rows equally",
        lambda: WEIGHED.evaluate(DATA.assign(n=-1)),
        lambda: WEIGHED.evaluate(DATA.assign(n=1)),
        lambda: WEIGHED.evaluate(DATA.assign(n=-1), weights=np.ones(len(DATA))),
    ),
    "a column of unknown levels": case(
        "Use the same type as in the training data|Check that it is the same column as in the "
        "training data",
        lambda: fit("y ~ b + a", PEOPLED).predict(PEOPLED.assign(a="z"), unseen="ignore"),
        lambda: fit("y ~ b + a", PEOPLED).predict(PEOPLED, unseen="ignore"),
    ),
    "a figure on one axes": case(
        r"Pass 3 axes\.",
        lambda: drawn(1),
        lambda: drawn(3),
    ),
    "a group of no evaluation": case(
        "Choose one of 's', 't'",
        lambda: FITTED.evaluate(DATA).roc("z"),
        lambda: FITTED.evaluate(DATA).roc("s"),
    ),
    "rows without a prediction": case(
        "Pass rows that have both",
        lambda: DROPPING.importance(GAPS[GAPS["a"].isna()]),
        lambda: DROPPING.importance(GAPS.dropna()),
    ),
    "importance by refits": case(
        r"Pass newdata=\.",
        lambda: SHOT.importance(),
        lambda: SHOT.importance(DATA),
    ),
    "refits of chosen terms": case(
        r"Use se=False\.",
        lambda: SHOT.avg_comparisons("a", se="bootstrap"),
        lambda: SHOT.avg_comparisons("a", se=False),
    ),
    "effects of the mean of draws": case(
        "Use se='bootstrap'",
        lambda: posterior()._with_point_estimate("mean").avg_comparisons("a"),
        lambda: posterior().avg_comparisons("a", se="bootstrap", nboot=2),
    ),
    "an emptied group": case(
        r"Fit with refit=True\.",
        lambda: ungrouped().inference(),
        lambda: FITTED.inference(),
    ),
    "a comparison of an approximate ln Z": case(
        "Fit with log_z='ais', which estimates ln Z by annealed importance sampling",
        lambda: bbl.anova(FITTED, fit("y ~ .^2", log_z="half")),
        lambda: bbl.anova(FITTED, fit("y ~ .^2", log_z="ais")),
    ),
    "a test of too few clusters": case(
        "Compare the criteria",
        lambda: nested._check_has_p_value(np.nan),
        lambda: FITTED.compare(fit("y ~ .")),
    ),
    "an effect source without errors": case(
        "Use se='bootstrap'|Use se=False",
        lambda: SHOT.avg_comparisons("a"),
        lambda: SHOT.avg_comparisons("a", se=False),
    ),
    "a group of no covariance": case(
        "Choose one of",
        lambda: FITTED.inference().cov_params("z"),
        lambda: FITTED.inference().cov_params("s"),
    ),
    "profiles without Firth": case(
        r"Fit with method='conditional' and ridge='firth', or use the intervals from table\(\)",
        lambda: UNPENALISED.inference().profile(),
        lambda: fit("y ~ a", method="conditional", ridge="firth").inference().profile(),
        lambda: UNPENALISED.inference().table(of=("s", "t")),
    ),
    "Firth beside maximum likelihood": case(
        "Fit both models with the same ridge",
        lambda: bbl.anova(UNPENALISED, fit("y ~ a + b", method="conditional", ridge="firth")),
        lambda: bbl.anova(UNPENALISED, fit("y ~ a + b", method="conditional", ridge=0)),
    ),
    "chains that do not mix": case(
        "Increase nsteps, and do not use these draws as a sample",
        patched("bbl.results.machine.monte_carlo.MAX_RHAT", 0.5, lambda: sampled(200)),
        lambda: sampled(400),
    ),
    "a joint state of hidden units": case(
        "Use type='class', which fills in each cell separately",
        lambda: ZEROS.reconstruct(GAPPED, type="joint", **QUIET),
        lambda: ZEROS.reconstruct(GAPPED, type="class", **QUIET),
    ),
    "a joint state of many cells": case(
        "Use type='class', which fills each cell separately, or pass rows with fewer missing cells",
        patched(
            "bbl.model.clamped.MAX_CELLS",
            1,
            lambda: FULL.reconstruct(GAPPED, type="joint", **QUIET),
        ),
        patched(
            "bbl.model.clamped.MAX_CELLS",
            1,
            lambda: FULL.reconstruct(GAPPED, type="class", **QUIET),
        ),
        lambda: FULL.reconstruct(GAPPED.assign(b=0), type="joint", **QUIET),
    ),
    "draws for ArviZ": case(
        r"Run pip install arviz, or use to_frame\(\) and summary\(\)",
        lambda: without_arviz(),
        lambda: posterior().posterior.to_frame(),
        lambda: posterior().posterior.summary(),
    ),
    "errors of averaged tables": case(
        "Fit without manb_prior, wanbia, awnb_trees or awnb_bootstrap",
        lambda: networks.lp(BAYES, DATA, 1, manb_prior=0.5).params_se,
        lambda: networks.lp(BAYES, DATA, 1).params_se,
    ),
    "a network of an average": case(
        "Choose learner='nb' or learner='tan_cl'",
        lambda: networks.bnc("aode", "y ~ .", DATA, 1).plot(),
        lambda: closed(networks.bnc("nb", "y ~ .", DATA, 1).plot),
        lambda: closed(networks.bnc("tan_cl", "y ~ .", DATA, 1).plot),
    ),
    "cells of a saved table": case(
        r"Save it with store_data=True",
        in_folder(lambda f: kept(f, False).fitted()),
        in_folder(lambda f: kept(f, True).fitted()),
    ),
    "one prior without scales": case(
        "Omit the scale argument, or use prior='gaussian'",
        lambda: fit("y ~ a", prior="flat", scale=1.0, **FLAT),
        lambda: fit("y ~ a", prior="flat", **FLAT),
        lambda: fit("y ~ a", prior="gaussian", scale=1.0, **FLAT),
    ),
    "scales that are centred": case(
        "Leave out centred or empirical_bayes",
        lambda: fit("y ~ a", centred=True, empirical_bayes=True, **FLAT),
        lambda: fit("y ~ a", centred=True, **FLAT),
        lambda: fit("y ~ a", empirical_bayes=True, **FLAT),
    ),
    "linear response without scales": case(
        "Use sd='factorised', or omit the centred argument",
        lambda: fit("y ~ a", centred=True, sd="lrvb", **FLAT),
        lambda: fit("y ~ a", centred=True, sd="factorised", **FLAT),
        lambda: fit("y ~ a", sd="lrvb", **FLAT),
    ),
    "a test of relevant predictors": case(
        r"Fit without relevance, or assess predictions with crossVal\(\) and evaluate\(\)",
        lambda: fit("y ~ .", relevance=0.9).inference(),
        lambda: fit("y ~ .").inference(),
    ),
    "an approximate likelihood": case(
        "Fit with log_z='ais', which estimates ln Z by annealed importance sampling",
        lambda: fit("y ~ .^2", log_z="half").aic,
        lambda: fit("y ~ .^2", log_z="ais").aic,
    ),
}
PEOPLED = pd.concat([DATA] * 2, ignore_index=True).assign(a=lambda d: d["a"].map({0: "p", 1: "q"}))
UNPENALISED = fit("y ~ a", method="conditional", ridge=0)
SHOT = shot("y ~ a + b")
DROPPING = fit("y ~ a + b", GAPS, missing="drop")
FULL = fit("~ a*b + c", DATA, method="ml")
ZEROS = fit(
    "~ a*b + c",
    DATA[(DATA["a"] == 0) | (DATA["b"] == 0)],
    method="ml",
    structural_zeros=pd.DataFrame({"a": [1], "b": [1]}),
)
GAPPED = pd.DataFrame({"a": [None], "b": [None], "c": [0]})
BAYES = networks.structure("y", {"a": [], "b": []})


@functools.cache
def posterior() -> Any:
    return fit("y ~ a", method="bayes", chains=2, warmup=20, draws=20)


def ungrouped() -> Any:
    """Return a fit in which the first group has no rows, as one of a fold may have."""
    estimate = replace(FITTED.estimate, class_prior=np.array([0.0, 1.0]))
    return replace(FITTED, estimate=estimate)


def closed(draw: Any) -> Any:
    """Draw, and close the figures."""
    try:
        return draw()
    finally:
        plt.close("all")


def drawn(n: int) -> Any:
    return closed(lambda: FITTED.plot(axes=plt.subplots(1, n)[1]))


def sampled(nsteps: int) -> Any:
    return FITTED.mcSample(nsteps=nsteps, draws=True, seed=0, **QUIET)


def without_arviz() -> Any:
    with mock.patch.dict(sys.modules, arviz=None):
        return posterior().posterior.to_arviz()


@functools.cache
def biclustered() -> Any:
    return blocks()


def kept(folder: Any, store_data: bool) -> Any:
    biclustered().save(folder / "m.bbl", store_data=store_data)
    return bbl.load(folder / "m.bbl")


TABLE = NUMERIC | VALUES
