"""Hints about methods, their options, and the data of a fit."""

from typing import Any

import numpy as np
import pandas as pd

import bbl
from advice.common import (
    CONSTANT,
    DATA,
    FITTED,
    GAPS,
    LONG,
    NEW,
    NUMBERS,
    PEOPLE,
    QUIET,
    RATINGS,
    RNG,
    SEEN,
    SILENT,
    WEIGHTED,
    WIDE,
    approximate,
    blanks,
    blocks,
    fit,
    shot,
    survey_fit,
)
from advice.sites import Advice
from bbl import networks

GREY = pd.DataFrame({"y": DATA["y"], "a": np.random.default_rng(0).uniform(-1, 1, len(DATA))})
# a quick posterior
FEW: dict = {"chains": 2, "warmup": 20, "draws": 20}

TABLE = {
    "blanks of pseudo": blanks(lambda **o: fit("y ~ a + b", GAPS, **o), ("marginal",)),
    "blanks of mf": blanks(lambda **o: fit("y ~ a + b", GAPS, method="mf", **o), ("marginal",)),
    "blanks of naive": blanks(
        lambda **o: fit("y ~ a + b", GAPS, method="naive", **o), ("marginal",)
    ),
    "blanks of shbm": blanks(lambda **o: fit("y ~ a + b", GAPS, method="shbm", **o), ("marginal",)),
    "blanks of auto": blanks(lambda **o: fit("y ~ a + b", GAPS, method="auto", **o), ("marginal",)),
    "blanks of conditional": blanks(lambda **o: fit("y ~ a + b", GAPS, method="conditional", **o)),
    "blanks of bayes": blanks(
        lambda **o: fit("y ~ a + b", GAPS, method="bayes", chains=2, warmup=20, draws=20, **o)
    ),
    "blanks of shooter": blanks(lambda **o: shot("y ~ a + b", GAPS, **o)),
    "blanks of crossVal": blanks(
        lambda **o: bbl.crossVal("y ~ a + b", GAPS, **o, **QUIET), ("marginal",)
    ),
    "blanks of nb": blanks(
        lambda missing="raise": networks.nb("y", GAPS, missing=missing), ("marginal",)
    ),
    "blanks of codes": blanks(
        lambda **o: bbl.mlestimate(GAPS[["a", "b", "c"]].to_numpy(dtype=float), **o, **QUIET),
        ("marginal",),
    ),
    "blanks of codes, bayes": blanks(
        lambda **o: bbl.mlestimate(
            GAPS[["a", "b", "c"]].to_numpy(dtype=float),
            method="bayes",
            chains=2,
            warmup=20,
            draws=20,
            **o,
            **QUIET,
        )
    ),
    "unknown response": Advice(
        r"Drop these rows: data\.dropna\(subset=\['y'\]\), or pass missing='drop' to drop all "
        r"rows with missing values",
        lambda: fit("y ~ c", SILENT),
        (
            lambda: fit("y ~ c", SILENT.dropna(subset=["y"])),
            lambda: fit("y ~ c", SILENT, missing="drop"),
        ),
    ),
    "draws beyond memory": Advice(
        "Lower draws, warmup or chains",
        lambda: fit(method="bayes", draws=10**9),
        (lambda: fit(method="bayes", draws=50, warmup=50, chains=2),),
    ),
    "three factors of a two-way table": Advice(
        r"Write it like 'rating ~ user\*movie'",
        lambda: blocks("rating ~ user*movie*a", RATINGS.assign(a=1)),
        (lambda: blocks("rating ~ user*movie"),),
    ),
    "interactions of shooter": Advice(
        r"Write 'y ~ \.' or 'y ~ a \+ b', and set the maximum number of predictors per term",
        lambda: shot("y ~ a*b*c"),
        (lambda: shot("y ~ ."), lambda: shot("y ~ a + b", order=2)),
    ),
    "interactions of a network": Advice(
        r"Write 'class ~ \.' or 'class ~ a \+ b', and specify a structure by hand with "
        r"networks\.structure\(\)",
        lambda: networks.nb("y ~ a*b*c", DATA),
        (
            lambda: networks.nb("y ~ .", DATA),
            lambda: networks.nb("y ~ a + b", DATA),
            lambda: networks.structure("y", {"a": [], "b": ["a"]}),
        ),
    ),
    "a term of three with mf": Advice(
        r"Write \(a \+ b\)\^2|Write \(a \+ b \+ c\)\^2|\^2 for all pairs",
        lambda: fit("y ~ a*b*c", method="mf"),
        (lambda: fit("y ~ (a + b + c)^2", method="mf"),),
    ),
    "penalties by order": Advice(
        r"Pass a single number, or one number for each order\.",
        lambda: shot(order=2, lambda_=(1.0, 2.0, 3.0)),
        (lambda: shot(order=2, lambda_=2.0), lambda: shot(order=2, lambda_=(1.0, 2.0))),
    ),
    "penalties of shbm": Advice(
        r"Pass 2 penalties, one for each number of predictors in a term, or a single number\.",
        lambda: fit("y ~ .", method="shbm", lambda_=(1.0,)),
        (
            lambda: fit("y ~ .", method="shbm", lambda_=(5.0, 5.0)),
            lambda: fit("y ~ .", method="shbm", lambda_=5.0),
        ),
    ),
    "no term is left": Advice(
        "Use a smaller lambda_, or 'ebic' or 'cv'",
        lambda: shot(lambda_=1e6),
        (
            lambda: shot(lambda_=1.0),
            lambda: shot(lambda_="ebic"),
            lambda: shot(lambda_="cv", nfold=2),
        ),
    ),
    "states of an exact refit": Advice(
        r"Use refit='pseudo'\.",
        lambda: fit(
            "~ .",
            pd.DataFrame(RNG.integers(0, 2, (40, 21))).add_prefix("v"),
            method="shbm",
            order=2,
            lambda_=30.0,
            refit="exact",
        ),
        (
            lambda: fit(
                "~ .",
                pd.DataFrame(RNG.integers(0, 2, (40, 21))).add_prefix("v"),
                method="shbm",
                order=2,
                lambda_=30.0,
                refit="pseudo",
            ),
        ),
    ),
    "continuous": Advice(
        r"[Cc]ut it into intervals with bbl.bin\(data, 'x'\) or pandas.cut. .*astype",
        lambda: fit("y ~ x", NUMBERS),
        (
            lambda: fit("y ~ x", bbl.bin(NUMBERS, columns=["x"])),
            lambda: fit("y ~ x", NUMBERS.assign(x=pd.cut(NUMBERS["x"], 3))),
            lambda: fit("y ~ x", NUMBERS.assign(x=NUMBERS["x"].astype("category"))),
        ),
    ),
    "identifier": Advice(
        r"Leave it out of the formula \(- person\)",
        lambda: fit("y ~ .", PEOPLE),
        (
            lambda: fit("y ~ . - person", PEOPLE),
            lambda: fit("y ~ .", PEOPLE.assign(person=PEOPLE["person"].str[:2])),
            lambda: fit("y ~ .", PEOPLE.assign(person=PEOPLE["person"].astype("category"))),
        ),
    ),
    "constant": Advice(
        r"removeConst\(data\), give their levels in xlevels, or pass novarOk=True",
        lambda: fit("y ~ .", CONSTANT),
        (
            lambda: fit("y ~ .", bbl.removeConst(CONSTANT)),
            lambda: fit("y ~ .", CONSTANT, xlevels={"d": [1, 2]}),
            lambda: fit("y ~ .", CONSTANT, novarOk=True),
        ),
    ),
    "real weights": Advice(
        r"Pass one non-negative integer for each of the 60 rows\.",
        lambda: fit("y ~ a + b", WEIGHTED, weights="n", method="shbm"),
        (lambda: fit("y ~ a + b", WEIGHTED.assign(n=2), weights="n", method="shbm"),),
    ),
    "new level": Advice(
        r"Refit with these levels \(or list them in xlevels\), or pass unseen='ignore'",
        lambda: FITTED.predict(NEW),
        (
            lambda: fit(data=pd.concat([DATA, NEW.assign(y="s")])).predict(NEW),
            lambda: fit(xlevels={"a": [0, 1, 5]}).predict(NEW),
            lambda: FITTED.predict(NEW, unseen="ignore"),
        ),
    ),
    "gaps in new data": Advice(
        "Predict only the other rows, or fit with missing='marginal', which averages over",
        lambda: FITTED.predict(GAPS),
        (lambda: fit(missing="marginal").predict(GAPS),),
    ),
    "one group": Advice(
        r"Use data with at least two groups\.",
        lambda: fit(data=DATA.assign(y="s")),
        (lambda: fit(data=DATA),),
    ),
    "priors that are no shares": Advice(
        r"Use class proportions that sum to 1\.",
        lambda: fit(priors={"s": 0.5, "t": 0.6}),
        (lambda: fit(priors={"s": 0.4, "t": 0.6}),),
    ),
    "unknown priors": Advice(
        r"Pass 'equal', or a dict of class proportions\.",
        lambda: fit(priors="even"),
        (lambda: fit(priors="equal"), lambda: fit(priors={"s": 0.4, "t": 0.6})),
    ),
    "no threads": Advice(
        r"Pass 1 for one thread, or -1 for all cores\.",
        lambda: fit(n_jobs=0),
        (lambda: fit(n_jobs=1), lambda: fit(n_jobs=-1)),
    ),
    "unknown method": Advice(
        "Choose one of",
        lambda: fit(method="psuedo"),
        (lambda: fit(method="pseudo"),),
    ),
    "options of auto": Advice(
        r"Choose a single method such as method='pseudo', or pass your own fits to average\(\)\.",
        lambda: fit(method="auto", lambda_=0.1),
        (lambda: fit(method="pseudo", lambda_=0.1),),
    ),
    "auto without a response": Advice(
        r"Choose method='pseudo'\.",
        lambda: fit("~ .", DATA, method="auto"),
        (lambda: fit("~ .", DATA, method="pseudo"),),
    ),
    "auto is calibrated": Advice(
        r"Omit the calibrate argument\.",
        lambda: fit(method="auto", calibrate="offset"),
        (lambda: fit(method="auto"),),
    ),
    "calibration without classes": Advice(
        r"Omit the calibrate argument, or pass a formula with a response\.",
        lambda: fit("~ .", DATA, calibrate="temperature"),
        (lambda: fit("~ .", DATA), lambda: fit(calibrate="temperature")),
    ),
    "priors without classes": Advice(
        r"Omit the priors argument\.",
        lambda: fit("~ .", DATA, priors="equal"),
        (lambda: fit("~ .", DATA),),
    ),
    "folds of cv": Advice(
        r"For 3 folds use nfold=3\.",
        lambda: bbl.crossVal("y ~ .", DATA, cv=3, **QUIET),
        (lambda: bbl.crossVal("y ~ .", DATA, nfold=3, shuffle=True, seed=0, **QUIET),),
    ),
    "score of a density": Advice(
        r"Use score='logloss' or 'pnll'\.",
        lambda: bbl.crossVal("~ .", DATA, score="auc", **QUIET),
        tuple(lambda s=s: bbl.crossVal("~ .", DATA, score=s, **QUIET) for s in ("logloss", "pnll")),
    ),
    "an estimate with a rule in crossVal": Advice(
        r"Pass a number to crossVal\.",
        lambda: bbl.crossVal("y ~ .", DATA, method="conditional", scale="cv", **QUIET),
        (lambda: bbl.crossVal("y ~ .", DATA, method="conditional", scale=0.5, **QUIET),),
    ),
    "tests of a conditional fit": Advice(
        r"Pass two groups, of=\(a, b\), for intervals, or use ridge=0,",
        lambda: fit("y ~ a", method="conditional").inference().tests(),
        (
            lambda: fit("y ~ a", method="conditional").inference().table(of=("s", "t")),
            lambda: fit("y ~ a", method="conditional", ridge=0).inference().tests(),
            lambda: fit("y ~ a", method="conditional", ridge="firth").inference().tests(),
            lambda: fit("y ~ a", method="pseudo").inference().tests(),
        ),
    ),
    "no model of rows": Advice(
        r"Choose method='pseudo', or assess predictions with evaluate\(\)\.",
        lambda: fit("y ~ a", method="conditional").logLik(),
        (
            lambda: fit("y ~ a", method="pseudo").logLik(),
            lambda: fit("y ~ a", method="conditional", ridge=0).logLik(),
            lambda: fit("y ~ a", method="conditional").evaluate(),
        ),
    ),
    "no classes": Advice(
        r"Use a formula with a response.*score_samples\(\).*reconstruct\(\)",
        lambda: fit("~ .", DATA).predict(DATA),
        (
            lambda: fit("y ~ .").predict(DATA),
            lambda: fit("~ .", DATA).score_samples(DATA),
            lambda: fit("~ .", DATA).reconstruct(DATA.assign(a=np.nan), **QUIET),
        ),
    ),
    "no pooled fit": Advice(
        r"Fit with testNull=True\.",
        lambda: fit(testNull=False).inference().tests(of="pooled"),
        (lambda: fit(testNull=True).inference().tests(of="pooled"),),
    ),
    "no cross-validation": Advice(
        r"Fit with lambda_='cv' \(or eps='cv'\), or use crossVal\(\)\.",
        lambda: FITTED.plot(kind="cv"),
        (
            lambda: fit(lambda_="cv").plot(kind="cv"),
            lambda: bbl.crossVal("y ~ .", DATA, **QUIET).plot(),
        ),
    ),
    "an exact posterior of many states": Advice(
        r"Use sampler='exchange' or 'pseudo', or 'auto' to choose automatically\.",
        lambda: many_states(sampler="exact"),
        tuple(lambda s=s: many_states(sampler=s) for s in ("exchange", "pseudo", "auto")),
    ),
    "chains fewer than draws": Advice(
        r"Use at least chains=20\.",
        lambda: fit("y ~ .", method="pvi", chains=10, draws=20),
        (lambda: fit("y ~ .", method="pvi", chains=20, draws=20, n_iter=20),),
    ),
    "a start that is unknown": Advice(
        r"Pass None or 'pseudo'\.",
        lambda: fit("y ~ .", method="conditional", start="mf"),
        (
            lambda: fit("y ~ .", method="conditional", start=None),
            lambda: fit("y ~ .", method="conditional", start="pseudo"),
        ),
    ),
    "zero-sum of terms of three": Advice(
        r"Pass a formula with pairs only, or omit the gauge argument\.",
        lambda: fit("y ~ .^3", gauge="zero-sum"),
        (lambda: fit("y ~ .^2", gauge="zero-sum"), lambda: fit("y ~ .^3")),
    ),
    "folds of a network": Advice(
        "Use fewer folds",
        lambda: networks.cv(networks.bnc("nb", "y", DATA.head(6)), DATA.head(6), k=10),
        (lambda: networks.cv(networks.bnc("nb", "y", DATA.head(6)), DATA.head(6), k=2),),
    ),
    "groups of a criterion": Advice(
        "Use groups=",
        lambda: blocks(metric="pearson", groups=None),
        (lambda: blocks(metric="pearson", groups=(2, 2)),),
    ),
    "a posterior of two-way groups": Advice(
        "Fit with method='mcmc'",
        lambda: blocks(groups=(2, 2)).plot_similarity(),
        (
            lambda: blocks(
                "~ user*movie", SEEN, None, method="mcmc", draws=20, warmup=20
            ).plot_similarity(),
        ),
    ),
    "a logistic of dates": Advice(
        "For dates, extract a part such as the month",
        lambda: fit("y ~ d", DATA.assign(d=pd.date_range("2020-01-01", periods=60))),
        (lambda: fit("y ~ d", DATA.assign(d=pd.date_range("2020-01-01", periods=60).month)),),
    ),
    "two columns of one name": Advice(
        "Rename the columns",
        lambda: fit("y ~ a", pd.concat([DATA, DATA[["a"]]], axis=1)),
        (lambda: fit("y ~ a", pd.concat([DATA, DATA[["a"]].add_suffix("2")], axis=1)),),
    ),
    "weights of another index": Advice(
        r"Align it with weights\.reindex\(data\.index\), or pass weights\.to_numpy\(\)",
        lambda: fit(weights=pd.Series(np.ones(60), index=range(5, 65))),
        (lambda: fit(weights=pd.Series(np.ones(60), index=range(5, 65)).to_numpy()),),
    ),
    "chains beyond memory": Advice(
        "Lower draws or chains",
        lambda: fit(method="pvi", draws=10**9, chains=10**9),
        (lambda: fit(method="pvi", draws=2, chains=20, n_iter=20),),
    ),
    "a gauge of the posterior of all": Advice(
        "Use of='group', or two groups",
        lambda: approximate().table(of="pooled"),
        (lambda: approximate().table(of="group"), lambda: approximate().table(of=("s", "t"))),
    ),
    "covariances of the approximation": Advice(
        r"Use bse, or choose method='bayes', which provides draws\.",
        lambda: approximate().cov_params(),
        (
            lambda: approximate().bse,
            lambda: (
                fit("y ~ a", method="bayes", chains=2, warmup=20, draws=50).inference().cov_params()
            ),
        ),
    ),
    "models side by side": Advice(
        r"Pass all models in one list: etable\(\[fit, other\]\)",
        lambda: bbl.etable(FITTED, FITTED),
        (lambda: bbl.etable([FITTED, FITTED]),),
    ),
    "a closed form": Advice(
        "Leave sampler='auto'",
        lambda: fit(method="bayes", prior="conjugate", sampler="exact"),
        (
            lambda: fit(
                method="bayes", prior="conjugate", sampler="auto", chains=2, warmup=20, draws=20
            ),
        ),
    ),
    "grey values in the conjugate model": Advice(
        r"declare it: .*bbl\.ScoreFeatures\('conjugate'\)",
        lambda: fit("y ~ a", GREY, method="bayes", prior="conjugate"),
        (
            lambda: fit("y ~ a", bbl.bin(GREY, "a"), method="bayes", prior="conjugate", **FEW),
            lambda: bbl.ScoreFeatures("conjugate").fit(GREY[["a"]], GREY["y"]),
        ),
    ),
    "layers of hidden units": Advice(
        r"Pass one number, or .*bbl\.ScoreFeatures\('conjugate', options=\{'hidden': \(5, 3\)\}\)",
        lambda: fit(method="bayes", prior="conjugate", hidden=(5, 3)),
        (
            lambda: fit(method="bayes", prior="conjugate", hidden=5, **FEW),
            lambda: bbl.ScoreFeatures("conjugate", options={"hidden": (5, 3)}).fit(
                GREY[["a"]], GREY["y"]
            ),
        ),
    ),
    "hidden pairs": Advice(
        "Use hidden=2 or more",
        lambda: fit(method="bayes", prior="conjugate", hidden_pairs=True),
        (
            lambda: fit(
                method="bayes",
                prior="conjugate",
                hidden_pairs=True,
                hidden=2,
                chains=2,
                warmup=20,
                draws=20,
            ),
        ),
    ),
    "linear response": Advice(
        r"Use likelihood='sampled', or sd='factorised'\.",
        lambda: fit(method="pvi", sd="lrvb", likelihood="pseudo"),
        (
            lambda: fit(
                method="pvi", sd="lrvb", likelihood="sampled", draws=2, chains=20, n_iter=20
            ),
            lambda: fit(
                method="pvi", sd="factorised", likelihood="pseudo", draws=2, chains=20, n_iter=20
            ),
        ),
    ),
    "penalties of pseudo-likelihood": Advice(
        "Pass one number, or use crossVal",
        lambda: fit("y ~ .^2", lambda_=[0.1, 0.2]),
        (
            lambda: fit("y ~ .^2", lambda_=0.1),
            lambda: bbl.crossVal("y ~ .^2", DATA, lambda_=[0.1, 0.2], **QUIET),
        ),
    ),
    "averages over subsets": Advice(
        r"Choose learner='nb', or omit the manb_prior argument\.",
        lambda: networks.lp(networks.tan_cl("y", DATA), DATA, smooth=1.0, manb_prior=0.5),
        (
            lambda: networks.lp(networks.nb("y", DATA), DATA, smooth=1.0, manb_prior=0.5),
            lambda: networks.lp(networks.tan_cl("y", DATA), DATA, smooth=1.0),
        ),
    ),
    "two kinds of weights": Advice(
        r"Pass one of them\.",
        lambda: networks.lp(networks.nb("y", DATA), DATA, smooth=1.0, manb_prior=0.5, wanbia=True),
        (
            lambda: networks.lp(networks.nb("y", DATA), DATA, smooth=1.0, manb_prior=0.5),
            lambda: networks.lp(networks.nb("y", DATA), DATA, smooth=1.0, wanbia=True),
        ),
    ),
    "a class of many numbers": Advice(
        r"[Cc]ut it into intervals with bbl.bin\(data, 'x'\) or pandas.cut. .*astype",
        lambda: networks.nb("x", LONG),
        (
            lambda: networks.nb("x", bbl.bin(LONG, "x")),
            lambda: networks.nb("x", LONG.assign(x=LONG["x"].astype("category"))),
            lambda: networks.nb("a", LONG.drop(columns="x")),
        ),
    ),
    "parents that are no list": Advice(
        r"Write \['a'\]",
        lambda: networks.structure("y", {"a": [], "b": "a"}),
        (lambda: networks.structure("y", {"a": [], "b": ["a"]}),),
    ),
    "levels twice": Advice(
        "List each level only once",
        lambda: fit(xlevels={"a": [0, 1, 1]}),
        (lambda: fit(xlevels={"a": [0, 1]}),),
    ),
    "levels that are not listed": Advice(
        "Add them to", lambda: fit(xlevels={"a": [0]}), (lambda: fit(xlevels={"a": [0, 1]}),)
    ),
    "levels of no column": Advice(
        "Leave it out", lambda: fit(xlevels={"z": [0]}), (lambda: fit(),)
    ),
    "weights of no column": Advice(
        "Pass the name of a column, or an array",
        lambda: fit(weights="m"),
        (lambda: fit("y ~ a", DATA.assign(m=1), weights="m"), lambda: fit(weights=np.ones(60))),
    ),
    "a name with a space": Advice(
        "in backticks",
        lambda: fit("y ~ a b", DATA.rename(columns={"a": "a b"})),
        (lambda: fit("y ~ `a b`", DATA.rename(columns={"a": "a b"})),),
    ),
    "lists of other lengths": Advice(
        "Pass lists of equal length",
        lambda: fit("y ~ a", {"y": ["s", "t"], "a": [1]}),
        (lambda: fit("y ~ a", {"y": ["s", "t"], "a": [1, 0]}),),
    ),
    "bins without groups": Advice(
        r"Set response to the column with the groups\.",
        lambda: bbl.bin(NUMBERS, columns=["x"], method="mdl"),
        (lambda: bbl.bin(NUMBERS, columns=["x"], method="mdl", response="y"),),
    ),
    "an exact ln Z of many predictors": Advice(
        r"Use log_z='auto' or 'ais', or fewer interactions\.",
        lambda: fit("~ .^2", WIDE, lambda_=0.1, log_z="exact"),
        (
            lambda: fit("~ .^2", WIDE, lambda_=0.1, log_z="auto"),
            lambda: fit("~ .^2", WIDE, lambda_=0.1, log_z="ais"),
            lambda: fit("~ .", WIDE, log_z="exact"),
        ),
    ),
    "items of random partitions": Advice(
        "Pass the number of items, or the group of each item",
        lambda: bbl.du_process([[0, 1]]),
        (lambda: bbl.du_process(3, 2), lambda: bbl.du_process([0, 1, 0], 2)),
    ),
    "a choice of the numbers of groups": Advice(
        "Fit with groups=None",
        lambda: blocks(groups=(2, 2)).plot_selection(),
        (lambda: blocks(groups=None, max_groups=3).plot_selection(),),
    ),
    "a response of two-way pairs": Advice(
        "Write it like 'rating ~ user\\*movie', or use method='mcmc' for pairs that are either "
        "present or absent",
        lambda: blocks("~ user*movie"),
        (
            lambda: blocks("rating ~ user*movie"),
            lambda: blocks("~ user*movie", SEEN, None, method="mcmc", draws=20, warmup=20),
        ),
    ),
}


def many_states(**options: Any) -> Any:
    wide = (
        pd.DataFrame(np.random.default_rng(1).integers(0, 2, (30, 18)))
        .add_prefix("v")
        .assign(y=["s", "t"] * 15)
    )
    formula = "y ~ v0*v1 + " + " + ".join(f"v{i}" for i in range(2, 18))
    return fit(formula, wide, method="bayes", chains=2, warmup=10, draws=10, **options)


TABLE |= {
    "an argument of R": Advice(
        r"Did you mean 'nsteps'\?",
        lambda: bbl.mcSample(FITTED, **{"nstep": 20}),
        (lambda: bbl.mcSample(FITTED, nsteps=20, **QUIET),),
    ),
    "a seed that is text": Advice(
        r"Create one with numpy\.random\.default_rng\(\)",
        lambda: bbl.mcSample(FITTED, nsteps=20, seed="x"),
        (lambda: bbl.mcSample(FITTED, nsteps=20, seed=np.random.default_rng(), **QUIET),),
    ),
    "a grid without values": Advice(
        "Pass at least one value",
        lambda: bbl.crossVal("y ~ .", DATA, lambda_=[], **QUIET),
        (lambda: bbl.crossVal("y ~ .", DATA, lambda_=[0.1], **QUIET),),
    ),
    "axes of a kind": Advice(
        r"Draw a network with plot_network\(\). For other figures, pass kind=",
        lambda: FITTED.plot("network"),
        (lambda: FITTED.plot_network(), lambda: FITTED.plot(kind="confusion", newdata=DATA)),
    ),
    "design beside weights": Advice(
        "Omit the weights argument",
        lambda: bbl.bbl("y ~ a", DATA.assign(w=1.0), "w", design=bbl.survey("w"), **QUIET),
        (lambda: survey_fit(),),
    ),
    "replicates without a type": Advice(
        "Set type to one of",
        lambda: survey_fit(replicates=["r1", "r2"]),
        (lambda: survey_fit(replicates=["r1", "r2"], type="JK1"),),
    ),
    "replicates without factors": Advice(
        r"Set rscales to \(n - 1\)/n for each replicate",
        lambda: survey_fit(replicates=["r1", "r2"], type="JKn"),
        (lambda: survey_fit(replicates=["r1", "r2"], type="JKn", rscales=[0.5, 0.5]),),
    ),
    "rho of another type": Advice(
        "Omit the rho argument, or use type='Fay'",
        lambda: survey_fit(replicates=["r1", "r2"], type="BRR", rho=0.5),
        (
            lambda: survey_fit(replicates=["r1", "r2"], type="BRR"),
            lambda: survey_fit(replicates=["r1", "r2"], type="Fay", rho=0.5),
        ),
    ),
    "Fay without rho": Advice(
        "Pass rho, or use type='BRR' if no rho was used",
        lambda: survey_fit(replicates=["r1", "r2"], type="Fay"),
        (
            lambda: survey_fit(replicates=["r1", "r2"], type="Fay", rho=0.5),
            lambda: survey_fit(replicates=["r1", "r2"], type="BRR"),
        ),
    ),
    "mse of a design without replicates": Advice(
        "Omit the mse argument, or choose a type of replicates",
        lambda: survey_fit(cluster="c", mse=True),
        (
            lambda: survey_fit(cluster="c"),
            lambda: survey_fit(strata="h", cluster="c", nested=True, type="JKn", mse=True),
        ),
    ),
    "scale of a design without replicates": Advice(
        "Omit the scale argument",
        lambda: survey_fit(cluster="c", scale=0.5),
        (lambda: survey_fit(cluster="c"),),
    ),
    "strata as values": Advice(
        "Add the values to the table as a column, and pass its name",
        lambda: bbl.survey("w", strata=DATA["a"]),
        (lambda: bbl.survey("w", strata="a"),),
    ),
    "coefficients of an average": Advice(
        r"fit\.members\[0\]\.inference",
        lambda: bbl.average([fit("y ~ a*b"), fit("y ~ a + b")]).inference(),
        (lambda: bbl.average([fit("y ~ a*b"), fit("y ~ a + b")]).members[0].inference(),),
    ),
}
