"""Hints of fitted models: effects, evaluations, tests, draws and figures."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import bbl
from advice.common import DATA, FITTED, GAPS, QUIET, RATINGS, blocks, case, fit, in_folder, patched
from bbl import networks
from bbl.report.machine.plot import plot_configurations

QUICK = {"chains": 2, "warmup": 20, "draws": 20}
THREE = DATA.assign(y=np.where(DATA["a"] == DATA["b"], DATA["y"], "u"))
POSSIBLE = DATA[(DATA["a"] == 0) | (DATA["b"] == 0)]
BOTH = pd.DataFrame({"a": [1], "b": [1]})
BLANK = GAPS[GAPS["a"].isna()]
DROPPING = fit("y ~ a + b", GAPS, missing="drop")
STREAMED = fit("y ~ a + b", lambda: iter([DATA]))
SAMPLED = replace(
    STREAMED,
    _source=None,
    _kept=replace(STREAMED._kept, expansion=np.full(STREAMED._kept.sample.n, 1.5)),
)
CHANGED = replace(SAMPLED, _source=replace(STREAMED._source, rows={"a": 7}))
PRIOR_COUNT = fit("y ~ a + b", lambda: iter([DATA]), prior_count=1)
PRIOR_COUNT = replace(
    PRIOR_COUNT, _kept=replace(PRIOR_COUNT._kept, expansion=SAMPLED._kept.expansion)
)
SUMMED = fit("y ~ a + b", GAPS, missing="marginal")
EXACT = fit("~ a*b + c", DATA, method="ml")
AVERAGE = bbl.average([FITTED, fit("y ~ .")], weights="equal")
BOOST = fit("y ~ a + b", method="boosting")
CONDITIONAL = fit("y ~ a + b", method="conditional")
RELEVANT = fit("y ~ .", relevance=0.9)
TREE = networks.bnc("tan_cl", "y ~ .", DATA, 1)


def hidden(**options: Any) -> Any:
    options = {"hidden": 2} | QUICK | options
    return fit("y ~ a + b", method="bayes", prior="conjugate", **options)


def banned(formula: str = "y ~ a*b + c", table: Any = BOTH, **options: Any) -> Any:
    return fit(formula, POSSIBLE, method="ml", structural_zeros=table, **options)


def reloaded(folder: Any, model: Any = FITTED, store_data: bool = False) -> Any:
    model.save(folder / "m.bbl", store_data=store_data)
    return bbl.load(folder / "m.bbl")


def closed(call: Any) -> Any:
    """Return a call that closes the figures that it draws."""

    def draw() -> Any:
        try:
            return call()
        finally:
            plt.close("all")

    return draw


EFFECTS = {
    "explanations of an average": case(
        r"Explain a member, fit\.members\[0\]\.explain\(...\), or fit with method='pseudo'",
        lambda: bbl.average([fit("y ~ a*b"), fit("y ~ a + b")]).explain(DATA),
        lambda: bbl.average([fit("y ~ a*b"), fit("y ~ a + b")]).members[0].explain(DATA),
        lambda: fit("y ~ a*b", method="pseudo").explain(DATA),
    ),
    "effects of no predictor": case(
        "Choose from the predictors 'a', 'b', 'c'",
        lambda: FITTED.avg_comparisons("z"),
        lambda: FITTED.avg_comparisons("a"),
    ),
    "effects of an empty list": case(
        "Name at least one predictor",
        lambda: FITTED.avg_comparisons([]),
        lambda: FITTED.avg_comparisons(["a"]),
    ),
    "effects of no level": case(
        "List at least one level, or leave the predictor out",
        lambda: FITTED.avg_comparisons("a", grid={"b": []}),
        lambda: FITTED.avg_comparisons("a", grid={"b": [0]}),
        lambda: FITTED.avg_comparisons("a"),
    ),
    "effects of an unknown level": case(
        "Choose from the levels 0, 1",
        lambda: FITTED.avg_comparisons("a", grid={"b": [7]}),
        lambda: FITTED.avg_comparisons("a", grid={"b": [0, 1]}),
    ),
    "a cross of one predictor": case(
        "Name them in variables",
        lambda: FITTED.avg_comparisons("a", cross=True),
        lambda: FITTED.avg_comparisons(["a", "b"], cross=True),
    ),
    "too many quantities": case(
        "Choose fewer predictors, or pairs of levels",
        patched("bbl.results.effect_contrasts.MAX_QUANTITIES", 1, lambda: FITTED.avg_comparisons()),
        patched(
            "bbl.results.effect_contrasts.MAX_QUANTITIES", 1, lambda: FITTED.avg_comparisons("a")
        ),
    ),
    "a grid and rows": case(
        "Pass newdata or grid",
        lambda: FITTED.avg_comparisons("a", newdata=DATA, grid="mode"),
        lambda: FITTED.avg_comparisons("a", newdata=DATA),
        lambda: FITTED.avg_comparisons("a", grid="mode"),
    ),
    "effects without rows": case(
        r"Pass newdata= or grid=, or save the model with store_data=True",
        in_folder(lambda f: reloaded(f).avg_comparisons("a")),
        in_folder(lambda f: reloaded(f).avg_comparisons("a", newdata=DATA)),
        in_folder(lambda f: reloaded(f).avg_comparisons("a", grid="mode")),
        in_folder(lambda f: reloaded(f, store_data=True).avg_comparisons("a")),
    ),
    "effects of incomplete rows": case(
        "Pass rows without missing values",
        lambda: DROPPING.avg_comparisons("a", newdata=BLANK),
        lambda: DROPPING.avg_comparisons("a", newdata=DATA),
    ),
    "a large grid": case(
        "Use grid='mode', or a dict of levels of some predictors",
        patched(
            "bbl.results.effect_values.MAX_GRID",
            1,
            lambda: FITTED.avg_comparisons("a", grid="balanced"),
        ),
        lambda: FITTED.avg_comparisons("a", grid="mode"),
        lambda: FITTED.avg_comparisons("a", grid={"b": [0, 1]}),
    ),
    "a grid of impossible rows": case(
        "Use other levels",
        lambda: banned().avg_predictions("c", grid={"a": [1], "b": [1]}),
        lambda: banned().avg_predictions("c", grid={"a": [0], "b": [1]}),
    ),
    "effects by no predictor": case(
        "Use predictors or columns of newdata",
        lambda: FITTED.avg_comparisons("a", by="z"),
        lambda: FITTED.avg_comparisons("a", by="b"),
        lambda: FITTED.avg_comparisons("a", by="z", newdata=DATA.assign(z=1)),
    ),
    "errors of a saved fit": case(
        r"Save it with store_data=True",
        in_folder(lambda f: reloaded(f).avg_comparisons("a", newdata=DATA)),
        in_folder(lambda f: reloaded(f, store_data=True).avg_comparisons("a", newdata=DATA)),
    ),
    "errors without a covariance": case(
        "Use se='bootstrap'",
        lambda: fit("y ~ a + b", method="mf").avg_comparisons("a"),
        lambda: fit("y ~ a + b", method="mf").avg_comparisons("a", se="bootstrap", nboot=3),
    ),
    "errors of relevant predictors": case(
        "Use se='bootstrap', which repeats the selection in each refit",
        lambda: RELEVANT.avg_comparisons(),
        lambda: RELEVANT.avg_comparisons(se="bootstrap", nboot=3),
    ),
    "errors of a temperature": case(
        "Fit with calibrate='none' or 'offset', or use se=False",
        lambda: fit(calibrate="temperature").avg_comparisons("a"),
        lambda: fit(calibrate="none").avg_comparisons("a"),
        lambda: fit(calibrate="offset").avg_comparisons("a"),
        lambda: fit(calibrate="temperature").avg_comparisons("a", se=False),
    ),
}

JUDGED = {
    "rows that cannot be judged": case(
        "Pass rows that have both",
        lambda: DROPPING.evaluate(BLANK),
        lambda: DROPPING.evaluate(DATA),
    ),
    "an explanation of no group": case(
        "Choose one of",
        lambda: FITTED.explain(DATA, of=("s", "z")),
        lambda: FITTED.explain(DATA, of=("s", "t")),
    ),
    "a composite of no complete row": case(
        "Compare aic or bic, or fit with missing='level'",
        lambda: composite("marginal").claic,
        lambda: (composite("level", method="naive").aic, composite("level").claic),
    ),
    "a splitter that is a number": case(
        r"Use nfold=3\.",
        lambda: FITTED.crossVal(cv=3, **QUIET),
        lambda: FITTED.crossVal(nfold=3, shuffle=True, seed=0, **QUIET),
    ),
    "folds of a saved fit": case(
        r"Call bbl\.crossVal\(.*\), or save models with store_data=True",
        in_folder(lambda f: reloaded(f).crossVal(**QUIET)),
        lambda: bbl.crossVal(formula="y ~ .^2", data=DATA, **QUIET),
        in_folder(lambda f: reloaded(f, store_data=True).crossVal(**QUIET)),
    ),
    "an unknown option of folds": case(
        "Pass one of .*lambda_",
        lambda: FITTED.crossVal(eps=[0.1], **QUIET),
        lambda: FITTED.crossVal(lambda_=[0.1], **QUIET),
    ),
    "coefficients of a chosen average": case(
        r"Call coef\(\) on one of cv\.model\.members",
        lambda: AVERAGE_CV().coef(),
        lambda: AVERAGE_CV().model.members[0].coef(),
    ),
    "probabilities of a density": case(
        "For the scores of all settings, see cvframe",
        lambda: bbl.crossVal("~ .", DATA, **QUIET).evaluate(),
        lambda: bbl.crossVal("~ .", DATA, **QUIET).cvframe,
    ),
    "rows without weight": case(
        "Give at least one",
        lambda: weightless(),
        lambda: FITTED.pnll(DATA),
    ),
    "a reconstruction with zeros": case(
        "Use method='exact'",
        lambda: banned().reconstruct(POSSIBLE.assign(c=np.nan), method="gibbs", **QUIET),
        lambda: banned().reconstruct(POSSIBLE.assign(c=np.nan), method="exact", **QUIET),
    ),
    "a table of no group": case(
        "Choose from the groups",
        lambda: FITTED.inference().table(of=("s", "z")),
        lambda: FITTED.inference().table(of=("s", "t")),
    ),
    "a pooled conditional fit": case(
        r"Pass two groups, of=\(a, b\)",
        lambda: CONDITIONAL.inference().table(of="pooled"),
        lambda: CONDITIONAL.inference().table(of=("s", "t")),
    ),
    "an explanation with zeros of a group": case(
        r"Use importance\(\)",
        lambda: banned(table=BOTH.assign(y="s")).explain(),
        lambda: banned(table=BOTH.assign(y="s")).importance(POSSIBLE),
    ),
    "an explanation of hidden units": case(
        r"Call importance\(\), or fit with hidden=0",
        lambda: hidden().explain(DATA),
        lambda: hidden().importance(DATA),
        lambda: hidden(hidden=0).explain(DATA),
    ),
    "goodness of relevant predictors": case(
        "Fit without relevance",
        lambda: fit("y ~ a + b", method="ml", relevance=0.9).goodness_of_fit(),
        lambda: fit("y ~ a + b", method="ml").goodness_of_fit(),
    ),
    "goodness of another method": case(
        "Choose method='ml'",
        lambda: FITTED.goodness_of_fit(),
        lambda: fit(method="ml").goodness_of_fit(),
    ),
    "goodness of incomplete rows": case(
        "Fit with missing='drop' or missing='level'",
        lambda: gapped("marginal").goodness_of_fit(),
        lambda: gapped("drop").goodness_of_fit(),
        lambda: gapped("level").goodness_of_fit(),
    ),
    "the mean of hidden units": case(
        "Use draws='all'",
        lambda: hidden().predict(DATA, draws="mean"),
        lambda: hidden().predict(DATA, draws="all"),
    ),
    "tests of relevant predictors": case(
        r"Fit without relevance, or assess predictions with crossVal\(\) and evaluate\(\)",
        lambda: RELEVANT.inference().bse,
        lambda: fit("y ~ .").inference().bse,
        lambda: (RELEVANT.crossVal(**QUIET), RELEVANT.evaluate()),
    ),
    "chains with zeros": case(
        r"Draw independent rows with sample\(\), or list the counts of all rows with cells\(\)",
        lambda: bbl.mcSample(banned(), nsteps=20, **QUIET),
        lambda: banned().sample(5),
        lambda: banned().cells(),
    ),
    "tests of incomplete rows": case(
        "Compare the criteria",
        lambda: bbl.anova(gapped("marginal"), gapped("marginal", "y ~ a + b")),
        lambda: bbl.etable([gapped("marginal"), gapped("marginal", "y ~ a + b")]),
    ),
    "models of the same terms": case(
        "Compare the criteria",
        lambda: bbl.anova(fit("y ~ a*b + c"), fit("y ~ a + b*c")),
        lambda: bbl.etable([fit("y ~ a*b + c"), fit("y ~ a + b*c")]),
    ),
    "logistic models of the same terms": case(
        "Compare the criteria",
        lambda: bbl.anova(logistic("y ~ a"), logistic("y ~ b")),
        lambda: bbl.etable([logistic("y ~ a"), logistic("y ~ b")]),
    ),
    "models of other predictors": case(
        r"Test the predictor in summary\(\)",
        lambda: bbl.anova(fit("y ~ a"), fit("y ~ a + b")),
        lambda: fit("y ~ a + b").summary(),
    ),
    "odds ratios of boosting": case(
        "Choose method='ml' or method='pseudo'",
        lambda: fit("y ~ a*b", method="mf").odds_ratios(),
        lambda: fit("y ~ a*b", method="ml").odds_ratios(),
        lambda: fit("y ~ a*b", method="pseudo").odds_ratios(),
    ),
    "odds ratios without pairs": case(
        r"Use a formula such as 'a\*b \+ c'",
        lambda: fit("~ a + b + c", method="ml").odds_ratios(),
        lambda: fit("~ a*b + c", method="ml").odds_ratios(),
    ),
    "odds ratios of a name": case(
        r"Pass a list of pairs of predictors, \[\(a, b\)\]",
        lambda: EXACT.odds_ratios(pairs=["a"]),
        lambda: EXACT.odds_ratios(pairs=[("a", "b")]),
    ),
    "odds ratios of no predictor": case(
        "Choose from the predictors 'a', 'b', 'c'",
        lambda: EXACT.odds_ratios(pairs=[("a", "z")]),
        lambda: EXACT.odds_ratios(pairs=[("a", "b")]),
    ),
    "odds ratios of no pair": case(
        r"List the interacting pairs with interactions\(\)",
        lambda: EXACT.odds_ratios(pairs=[("a", "c")]),
        lambda: EXACT.interactions(),
    ),
    "draws of a closed form": case(
        "Choose method='bayes'",
        lambda: FITTED.posterior,
        lambda: fit("y ~ a", method="bayes", **QUICK).posterior,
    ),
    "a bootstrap of chosen terms": case(
        r"Assess predictions with crossVal\(\)",
        lambda: fit("y ~ .", method="shbm").bootstrap(nboot=3),
        lambda: fit("y ~ .", method="shbm").crossVal(nfold=2, **QUIET),
    ),
    "a permutation of two groups": case(
        "Use of='group', or pvalues='auto'",
        lambda: FITTED.interactions(of=("s", "t"), pvalues="permutation"),
        lambda: FITTED.interactions(of="group", pvalues="permutation"),
        lambda: FITTED.interactions(of=("s", "t"), pvalues="auto"),
    ),
    "rows of a saved fit": case(
        "Pass newdata=, save the model with store_data=True, or refit it to a table in memory",
        in_folder(lambda f: reloaded(f).evaluate()),
        in_folder(lambda f: reloaded(f).evaluate(DATA)),
        in_folder(lambda f: reloaded(f, store_data=True).evaluate()),
    ),
    "a number of rows of a joint fit": case(
        "Omit the rows argument",
        lambda: fit("y ~ a + b", method="conditional", ridge=0).inference(rows=200),
        lambda: fit("y ~ a + b", method="conditional", ridge=0).inference(),
    ),
    "all rows of data read in batches": case(
        r"Omit the rows argument, or refit the model to a table in memory",
        lambda: SAMPLED.inference(rows="all"),
        lambda: SAMPLED.inference(),
        lambda: fit(data=bbl.sample_rows(lambda: iter([DATA]), 500_000)).inference(rows="all"),
    ),
    "results that need all rows in batches": case(
        r"Pass newdata=, or refit the model to a table in memory",
        lambda: SAMPLED.evaluate(),
        lambda: SAMPLED.evaluate(DATA),
        lambda: fit(data=bbl.sample_rows(lambda: iter([DATA]), 500_000)).evaluate(),
    ),
    "single rows of an evaluation in batches": case(
        r"Evaluate newdata=bbl\.sample_rows\(data, 4\)",
        patched(
            "bbl.results.evaluation.EXACT_ROWS",
            4,
            lambda: FITTED.evaluate(lambda: iter([DATA])).predicted,
        ),
        lambda: FITTED.evaluate(newdata=bbl.sample_rows(lambda: iter([DATA]), 4)).predicted,
    ),
    "bootstrap of effects in batches": case(
        r"Omit the se argument, or pass newdata=bbl\.sample_rows",
        lambda: FITTED.avg_comparisons("a", newdata=lambda: iter([DATA]), se="bootstrap"),
        lambda: FITTED.avg_comparisons("a", newdata=lambda: iter([DATA])),
        lambda: FITTED.avg_comparisons(
            "a", newdata=bbl.sample_rows(lambda: iter([DATA]), 99), se="bootstrap", nboot=3, **QUIET
        ),
    ),
    "units of effects in batches": case(
        r"List only predictors, or pass newdata=bbl\.sample_rows",
        lambda: FITTED.avg_comparisons("a", newdata=lambda: iter([DATA]), by="y"),
        lambda: FITTED.avg_comparisons("a", newdata=lambda: iter([DATA]), by="b"),
        lambda: FITTED.avg_comparisons(
            "a", newdata=bbl.sample_rows(lambda: iter([DATA]), 99), by="y"
        ),
    ),
    "units with gaps in batches": case(
        r"Pass newdata=bbl\.sample_rows",
        lambda: SUMMED.avg_comparisons("b", newdata=lambda: iter([GAPS]), by="a"),
        lambda: SUMMED.avg_comparisons("b", newdata=bbl.sample_rows(GAPS, 99), by="a"),
    ),
    "effects of incomplete rows in batches": case(
        "Pass rows without missing values",
        lambda: DROPPING.avg_comparisons("a", newdata=lambda: iter([BLANK])),
        lambda: DROPPING.avg_comparisons("a", newdata=lambda: iter([DATA])),
    ),
    "weights of new rows in batches": case(
        "Add them to the data as a column",
        lambda: FITTED.evaluate(lambda: iter([DATA]), np.ones(len(DATA))),
        lambda: FITTED.evaluate(lambda: iter([DATA.assign(w=1)]), "w"),
    ),
    "changed data": case(
        r"Refit the model, or pass newdata=",
        lambda: CHANGED.evaluate(),
        lambda: CHANGED.evaluate(DATA),
        lambda: fit("y ~ a + b", lambda: iter([DATA])).evaluate(),
    ),
    "a file written since the fit": case(
        r"Refit the model, or pass newdata=",
        in_folder(lambda folder: written(folder).evaluate()),
        in_folder(lambda folder: written(folder).evaluate(DATA)),
        in_folder(lambda folder: fit("y ~ a + b", write(folder)).evaluate()),
    ),
    "a file written between the passes": case(
        "Read the data again when no process is writing to it",
        patched(
            "bbl.design.streams.passes.changed_file",
            lambda before, now: "part.parquet",
            in_folder(lambda folder: fit("y ~ a + b", write(folder))),
        ),
        in_folder(lambda folder: fit("y ~ a + b", write(folder))),
    ),
    "composite criteria of a sample": case(
        r"Refit the model to a table in memory",
        lambda: PRIOR_COUNT.claic,
        lambda: fit(data=bbl.sample_rows(lambda: iter([DATA]), 500), prior_count=1).claic,
    ),
    "values of no variable": case(
        "Choose one of",
        lambda: TREE.values("z"),
        lambda: TREE.values("a"),
    ),
    "batches of nothing": case(
        r"Pass newdata, or call predict\(\) without arguments",
        lambda: list(FITTED.predict_batches(None)),
        lambda: list(FITTED.predict_batches(DATA)),
        lambda: FITTED.predict(),
    ),
    "chains of an average": case(
        r"Call mcSample\(\) on one of fit\.members",
        lambda: AVERAGE.mcSample(),
        lambda: AVERAGE.members[0].mcSample(nsteps=20, **QUIET),
    ),
    "folds of an average": case(
        r"Call crossVal\(\) on each of fit\.members",
        lambda: AVERAGE.crossVal(**QUIET),
        lambda: [member.crossVal(**QUIET) for member in AVERAGE.members],
    ),
    "criteria of an average": case(
        r"Assess its predictions with evaluate\(\), or use the likelihoods of fit\.members",
        lambda: AVERAGE.aic,
        lambda: AVERAGE.evaluate(),
        lambda: [member.aic for member in AVERAGE.members],
    ),
    "coefficients of averaged networks": case(
        r"For the probability tables of networks, use fit\.members\[0\]\.params",
        lambda: bbl.average([TREE, networks.bnc("nb", "y ~ .", DATA, 1)]).coef(),
        lambda: bbl.average([TREE, networks.bnc("nb", "y ~ .", DATA, 1)]).members[0].params,
    ),
    "shares of a table of numbers": case(
        "Pass 'response', or 'prob' for categorical tables",
        lambda: blocks(groups=(2, 2)).predict(RATINGS, type="prob"),
        lambda: blocks(groups=(2, 2)).predict(RATINGS, type="response"),
    ),
    "a new row without cells": case(
        "Add some of its cells to newdata, including the column 'rating'",
        lambda: blocks(groups=(2, 2)).predict(pd.DataFrame({"user": [99], "movie": [0]})),
        lambda: blocks(groups=(2, 2)).predict(
            pd.DataFrame({"user": [99], "movie": [0], "rating": [1.0]})
        ),
    ),
}


def logistic(formula: str) -> Any:
    return fit(formula, method="conditional", ridge=0, ordered="nominal")


def gapped(missing: str, formula: str = "y ~ a*b") -> Any:
    return fit(formula, GAPS, missing=missing, method="ml")


def composite(missing: str, **options: Any) -> Any:
    odd = (np.arange(60) % 2 == 0) | (DATA["y"] == "t")
    data = DATA.assign(a=DATA["a"].where(odd), b=DATA["b"].where(~odd | (DATA["y"] == "t")))
    return fit("y ~ a + b", data, missing=missing, **options)


def drawn(nsteps: int) -> Any:
    return bbl.mcSample(FITTED, nsteps=nsteps, seed=0, **QUIET)


@functools.cache
def AVERAGE_CV() -> Any:
    return bbl.crossVal("y ~ a + b", DATA, method="auto", nfold=2, **QUIET)


def weightless() -> Any:
    return DROPPING.pnll(BLANK)


def tables(model: Any) -> Any:
    return model.coef().h["s"], model.coef().J["s"]


LONELY = np.zeros((1, 3))
FIGURES = {
    "a figure of couplings without couplings": case(
        "Omit the pairs argument to plot fields",
        closed(lambda: fit("y ~ a").inference().plot(pairs=True)),
        closed(lambda: fit("y ~ a").inference().plot()),
    ),
    "a figure of no group": case(
        "Choose from 's', 't'",
        closed(lambda: FITTED.plot_network(groups=["z"])),
        closed(lambda: FITTED.plot_network(groups=["s"])),
    ),
    "a figure of groups that are empty": case(
        "Name at least one",
        closed(lambda: FITTED.plot_network(groups=[])),
        closed(lambda: FITTED.plot_network(groups=["s"])),
    ),
    "a comparison of a table": case(
        r"Pass results of mlestimate\(\) or randompar\(\), or pairs \(h, J\)",
        closed(lambda: bbl.plot_comparison(DATA, tables(FITTED))),
        closed(lambda: bbl.plot_comparison(tables(FITTED), tables(fit()))),
    ),
    "a comparison of other predictors": case(
        "Compare models with the same predictors and pairs",
        closed(lambda: bbl.plot_comparison(tables(FITTED), tables(fit("y ~ a")))),
        closed(lambda: bbl.plot_comparison(tables(FITTED), tables(fit()))),
    ),
    "a comparison of other sizes": case(
        r"Compare models with the same parameters",
        closed(lambda: bbl.plot_comparison(([[0.0]], []), ([[0.0, 1.0]], []))),
        closed(lambda: bbl.plot_comparison(([[0.0]], []), ([[0.5]], []))),
    ),
    "pixels of another shape": case(
        "Pass positions too",
        closed(lambda: plot_configurations(LONELY, shape=(2, 2))),
        closed(lambda: plot_configurations(LONELY, shape=(2, 2), positions=[0, 1, 2])),
    ),
    "a network of triples": case(
        r"Draw terms of three or more predictors with plot_terms\(\)",
        closed(lambda: TRIPLES().plot_network()),
        closed(lambda: TRIPLES().plot_terms()),
    ),
    "a long logo": case(
        "Fit a model with fewer predictors",
        patched(
            "bbl.report.machine.plot_logo.MAX_POSITIONS",
            2,
            closed(lambda: FITTED.plot_logo()),
        ),
        patched(
            "bbl.report.machine.plot_logo.MAX_POSITIONS",
            2,
            closed(lambda: fit("y ~ a + b").plot_logo()),
        ),
    ),
    "a mosaic of many cells": case(
        r"List the residuals with cells\(\), or fit a model with fewer predictors",
        patched("bbl.report.machine.plot_mosaic.MAX_TILES", 4, closed(lambda: EXACT.plot_mosaic())),
        lambda: EXACT.cells(),
        patched(
            "bbl.report.machine.plot_mosaic.MAX_TILES",
            4,
            closed(lambda: fit("~ a*b", method="ml").plot_mosaic()),
        ),
    ),
    "a term of two": case(
        r"List the terms with interactions\(order=3\)",
        closed(lambda: fit("y ~ .^3").plot_terms(term=("a", "b"))),
        closed(lambda: fit("y ~ .^3").interactions(order=3)),
    ),
    "no terms of three": case(
        r"Draw fields and pairs with plot\(\)",
        closed(lambda: FITTED.plot_terms()),
        closed(lambda: FITTED.plot()),
    ),
}


def TRIPLES() -> Any:
    return fit("y ~ a*b*c - a:b - a:c - b:c")


def write(folder: Path) -> Path:
    """Write the table to a Parquet file and return its path."""
    DATA.to_parquet(folder / "part.parquet")
    return folder / "part.parquet"


def written(folder: Path) -> Any:
    """Return a fit to a file that was written again since."""
    path = write(folder)
    found = fit("y ~ a + b", path)
    DATA.iloc[::-1].to_parquet(path)
    # as of a sample, which does not suffice for an evaluation
    return replace(found, _kept=replace(found._kept, expansion=SAMPLED._kept.expansion))


TABLE = EFFECTS | JUDGED | FIGURES
