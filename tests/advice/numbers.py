"""Hints about numeric predictors."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bbl
from advice.common import DATA, case, fit, patched

RNG = np.random.default_rng(7)
ROWS = DATA.assign(x=RNG.normal(size=60), z=RNG.normal(size=60), w=1.0)
COPY = ROWS.assign(z=2.0 * ROWS["x"])
FLAT = ROWS.assign(x=np.where(ROWS["y"] == "s", 1.0, ROWS["x"]))
GAPS = ROWS.assign(a=ROWS["a"].astype("Int64").mask(np.arange(60) % 7 == 0))
FEW = ROWS.assign(x=np.arange(60) % 3)
NEW = pd.DataFrame({"a": [pd.NA], "b": [0], "c": [1], "x": [0.5], "z": [0.0]})
LEVELS = DATA.assign(
    k=pd.Categorical(np.array(list("lmh"))[np.arange(60) % 3], list("lmh"), ordered=True),
    a=pd.Categorical(np.arange(60) // 3 % 3, [0, 1, 2], ordered=True),
)
PAGE = Path(tempfile.gettempdir(), "bbl_numbers.html")
FORMULA = "y ~ a + b + x + a:x"


DESIGN = {"design": bbl.survey("w")}


def numeric(formula: str = FORMULA, data: Any = ROWS, **options: Any) -> Any:
    return fit(formula, data, **{"numeric": "x"} | options)


def scored(**options: Any) -> Any:
    """Fit couplings that are linear in the scores of an ordered predictor."""
    return fit("y ~ k*a", LEVELS, method="ml", ordered="linear", **options)


def hidden(n: int) -> Any:
    """Fit a posterior of machines with hidden units."""
    options = {"prior": "conjugate", "warmup": 10, "draws": 8, "chains": 1, "seed": 1}
    return fit("y ~ a + b", method="bayes", hidden=n, **options)


def quiet_few(**options: Any) -> Any:
    """Fit a number with three values."""
    return fit("y ~ a + x", FEW, **options)


def effects(newdata: Any, **options: Any) -> Any:
    """Return effects in a new row."""
    return numeric(missing="marginal").avg_comparisons("b", newdata=newdata, **options)


TABLE = {
    "a figure of fields without fields": case(
        r"Use the plot\(\) method of the fit, which shows numeric predictors",
        lambda: numeric("y ~ x", method="ml").inference().plot(),
        lambda: numeric("y ~ x", method="ml").plot(),
    ),
    "a tuned covariance under a design": case(
        r"Omit the covariance argument\.",
        lambda: numeric(covariance="cv", **DESIGN),
        lambda: numeric(**DESIGN),
    ),
    "a tuned transform without classes": case(
        "Use transform='none' or transform='normal'",
        lambda: numeric("~ a + x", transform="cv"),
        lambda: numeric("~ a + x", transform="none"),
        lambda: numeric("~ a + x", transform="normal"),
    ),
    "steps of a fit with numbers": case(
        r"Compare formulas with bbl\.anova\(\), or bin the numeric predictors",
        lambda: bbl.step(numeric(method="ml")),
        lambda: bbl.anova(numeric("y ~ a + x", method="ml"), numeric(method="ml")),
        lambda: bbl.step(fit("y ~ a*x", bbl.bin(ROWS, "x", bins=3), method="ml")),
    ),
    "discriminants of a copy": case(
        "Leave 'z' out of the formula",
        lambda: numeric("y ~ x + z", COPY, numeric=["x", "z"]).discriminants(),
        lambda: numeric("y ~ x", COPY).discriminants(),
    ),
    "numbers in a posterior": case(
        "Choose method='pseudo', or bin the numeric predictors with bbl.bin",
        lambda: numeric(method="pvi", n_iter=20),
        lambda: numeric(method="pseudo"),
        lambda: fit(FORMULA, bbl.bin(ROWS, "x", bins=3), method="pvi", n_iter=20),
    ),
    "a covariance of no numbers": case(
        "List numeric predictors, for example numeric='age', or omit the covariance argument",
        lambda: fit("y ~ a", covariance="shared"),
        lambda: numeric(covariance="shared"),
        lambda: fit("y ~ a"),
    ),
    "numbers and a choice of predictors": case(
        "Leave out one of them, or bin the numeric predictors with bbl.bin",
        lambda: numeric(relevance=0.05),
        lambda: numeric(),
        lambda: fit("y ~ a + b", relevance=0.05),
        lambda: fit("y ~ a + x", bbl.bin(ROWS, "x", bins=3), relevance=0.05),
    ),
    "a number in a term of three": case(
        "Remove the term, or combine its other predictors into one column",
        lambda: numeric("y ~ a*b*x", method="ml"),
        lambda: numeric("y ~ a*b + x", method="ml"),
        lambda: numeric("y ~ ab*x", ROWS.assign(ab=ROWS["a"] * 2 + ROWS["b"]), method="ml"),
    ),
    "a mean that depends on a missing value": case(
        r"Drop these rows \(missing='drop'\), make missing values a level",
        lambda: numeric(data=GAPS, missing="marginal"),
        lambda: numeric(data=GAPS, missing="drop"),
        lambda: numeric(data=GAPS, missing="level"),
        lambda: numeric("y ~ a + b + x", GAPS, missing="marginal"),
    ),
    "a number with few values": case(
        "Remove 'x' from numeric to estimate a separate parameter for each value",
        lambda: quiet_few(numeric="x"),
        lambda: quiet_few(),
    ),
    "a constant number": case(
        "Leave 'x' out of the formula",
        lambda: numeric(data=ROWS.assign(x=1.0)),
        lambda: fit("y ~ a + b"),
    ),
    "a number that is constant in a group": case(
        "Use covariance='shared', shrink=0.1, or leave 'x' out",
        lambda: numeric(data=FLAT),
        lambda: numeric(data=FLAT, covariance="shared"),
        lambda: numeric(data=FLAT, shrink=0.1),
        lambda: fit("y ~ a + b"),
    ),
    "a copied number": case(
        "Use shrink=0.1, or leave 'z' out of the formula",
        lambda: numeric("y ~ x*z", COPY, numeric=["x", "z"]),
        lambda: numeric("y ~ x", COPY),
        lambda: numeric("y ~ x*z", COPY, numeric=["x", "z"], shrink=0.1),
    ),
    "too many missing levels": case(
        "Predict rows with fewer missing values",
        patched(
            "bbl.model.location.MAX_STATES", 1, lambda: numeric(missing="marginal").predict(NEW)
        ),
        lambda: numeric(missing="marginal").predict(NEW.assign(a=1)),
    ),
    "errors of a row whose mean is unknown": case(
        "Use se='bootstrap' or se=False, or complete rows",
        lambda: effects(NEW),
        lambda: effects(NEW, se="bootstrap", nboot=3),
        lambda: effects(NEW, se=False),
        lambda: effects(NEW.assign(a=1)),
    ),
    "predictions at no values": case(
        r"Pass values, for example variables=.*avg_comparisons\('x'\)",
        lambda: numeric().avg_predictions(variables="x"),
        lambda: numeric().avg_predictions(variables={"x": [0.0, 1.0]}),
        lambda: numeric().avg_comparisons("x"),
    ),
    "averages by a number": case(
        "Use predictors with levels, or a column of intervals",
        lambda: numeric().avg_predictions(by="x"),
        lambda: numeric().avg_predictions(by="a"),
        lambda: numeric().avg_predictions(
            by="half", newdata=ROWS.assign(half=np.where(ROWS["x"] > 0, "high", "low"))
        ),
    ),
    "slopes of levels": case(
        r"Compare levels with avg_comparisons\(\), or fit with numeric=",
        lambda: numeric().avg_slopes("a"),
        lambda: numeric().avg_comparisons("a"),
        lambda: numeric().avg_slopes("x"),
    ),
    "a step without numbers": case(
        "Omit the step argument",
        lambda: fit("y ~ a").avg_comparisons(step=1),
        lambda: fit("y ~ a").avg_comparisons(),
    ),
    "a step of levels": case(
        "Choose from the numeric predictors 'x'",
        lambda: numeric().avg_comparisons(step={"a": 1}),
        lambda: numeric().avg_comparisons(step={"x": 1}),
    ),
    "regions of levels": case(
        "Choose from 'x'",
        lambda: numeric().plot_regions("a", "x"),
        lambda: numeric("y ~ x*z", numeric=["x", "z"]).plot_regions("x", "z"),
    ),
    "discriminants without classes": case(
        "Use a formula with a response",
        lambda: numeric("~ a + x").discriminants(),
        lambda: numeric("y ~ a + x").discriminants(),
    ),
    "a figure of discriminants without classes": case(
        "Use a formula with a response",
        lambda: numeric("~ a + x").plot_discriminants(),
        lambda: numeric("y ~ a + x").plot_discriminants(),
    ),
    "a reconstruction of numbers": case(
        r"Bin the numeric predictors with bbl.bin\(\) before you fit",
        lambda: numeric().reconstruct(ROWS.head(2).assign(a=None)),
        lambda: fit("y ~ a + x", bbl.bin(ROWS, "x", bins=3)).reconstruct(
            ROWS.head(2).assign(a=None)
        ),
    ),
    "a page of normal scores": case(
        "Fit with transform='none'",
        lambda: numeric(transform="normal").explore(PAGE),
        lambda: numeric(transform="none").explore(PAGE),
    ),
    "a page of a regression on numbers": case(
        r"Bin it with bbl.bin\(\)",
        lambda: bbl.shooter("y ~ a + x", ROWS, numeric=["x"], lambda_=1).explore(PAGE),
        lambda: bbl.shooter("y ~ a + x", bbl.bin(ROWS, "x", bins=3), lambda_=1).explore(PAGE),
    ),
    "a page of large tables": case(
        "Use fewer predictors or terms",
        patched(
            "bbl.report.explore.score_model.MAX_NUMBERS", 8, lambda: fit("y ~ .^2").explore(PAGE)
        ),
        patched(
            "bbl.report.explore.score_model.MAX_NUMBERS", 8, lambda: fit("y ~ a").explore(PAGE)
        ),
    ),
    "a page of hidden units": case(
        "Fit with hidden=0",
        lambda: hidden(1).explore(PAGE),
        lambda: hidden(0).explore(PAGE),
    ),
    "models with other level scores": case(
        "Compare the criteria",
        lambda: bbl.anova(scored(), scored(level_scores={"k": [0, 1, 9]})),
        lambda: [scored().aic, scored(level_scores={"k": [0, 1, 9]}).aic],
    ),
    "means without numbers": case(
        "List numeric predictors in the call, for example numeric='age'",
        lambda: fit("y ~ a").means(),
        lambda: numeric().means(),
    ),
    "a covariance of regressors": case(
        "Omit the covariance argument, or choose method='pseudo'",
        lambda: numeric(method="conditional", covariance="shared"),
        lambda: numeric(method="conditional"),
        lambda: numeric(method="pseudo", covariance="shared"),
    ),
    "a start with numbers": case(
        r"Omit the start argument, or bin the numeric predictors with bbl.bin\(\)",
        lambda: numeric(method="conditional", start="pseudo"),
        lambda: numeric(method="conditional"),
        lambda: fit("y ~ a + x", bbl.bin(ROWS, "x", bins=3), method="conditional", start="pseudo"),
    ),
    "a missing regressor": case(
        "Predict only the other rows, fill in the value, or fit with method='pseudo'",
        lambda: numeric(method="conditional").predict(ROWS.assign(x=None)),
        lambda: numeric(method="conditional").predict(ROWS),
        lambda: numeric(method="pseudo", missing="marginal").predict(ROWS.assign(x=None)),
    ),
    "the square of a number": case(
        "Remove it, or choose method='conditional'",
        lambda: numeric("y ~ a + x:x"),
        lambda: numeric("y ~ a + x"),
        lambda: numeric("y ~ a + x:x", method="conditional"),
    ),
    "an average of densities and regressions": case(
        "Fit all models to the same data with the same numeric argument, or use method='auto'",
        lambda: bbl.average([numeric(), numeric(method="conditional")], weights="equal"),
        lambda: bbl.average([numeric(), numeric(method="mf")], weights="equal"),
        lambda: numeric(method="auto"),
    ),
}
