"""Hints about ordered responses."""

from typing import Any

import numpy as np
import pandas as pd

import bbl
from advice.common import DATA, case, fit, patched

RATED = DATA.assign(
    y=pd.Categorical(
        np.where(np.arange(60) % 3 == 0, "mid", np.where(DATA["y"] == "s", "low", "high")),
        ["low", "mid", "high"],
        ordered=True,
    )
)
PLAIN = RATED.assign(y=RATED["y"].astype(str))
DESIGN = {"data": RATED.assign(w=1.0, c=np.arange(60) // 5), "design": bbl.survey("w", cluster="c")}


def rated(formula: str = "y ~ a + b", data: Any = RATED, **options: Any) -> Any:
    return fit(
        formula,
        data,
        **{"method": "conditional", "ridge": 0, "logits": "cumulative"} | options,
    )


def declared() -> Any:
    levels = ["high", "low", "mid"]
    return PLAIN.assign(y=pd.Categorical(PLAIN["y"], categories=levels, ordered=True))


def compared(**options: Any) -> Any:
    fits = (rated(logits=logits, **options) for logits in ("adjacent", "nominal"))
    return bbl.anova(*fits)


TABLE = {
    "an unordered response": case(
        r"data\['y'\] = pd\.Categorical\(data\['y'\], categories=\['high', 'low', 'mid'\], "
        r"ordered=True\)",
        lambda: rated(data=PLAIN),
        lambda: rated(data=declared()),
    ),
    "Firth's penalty of an ordered response": case(
        "Use ridge=0 or ridge='cv', or logits='nominal'",
        lambda: rated(ridge="firth"),
        lambda: rated(ridge=0),
        lambda: rated(ridge="cv"),
        lambda: rated(ridge="firth", logits="nominal"),
    ),
    "logits that are chosen": case(
        "Pass 'nominal', 'adjacent' or 'cumulative' to crossVal",
        lambda: bbl.crossVal("y ~ a", RATED, method="conditional", logits="cv", verbose=0),
        lambda: bbl.crossVal("y ~ a", RATED, method="conditional", logits="adjacent", verbose=0),
    ),
    "calibrated cumulative logits": case(
        "Omit the calibrate argument, or use logits='adjacent'",
        lambda: rated(ridge=0.1, calibrate="offset"),
        lambda: rated(ridge=0.1),
        lambda: rated(ridge=0.1, logits="adjacent", calibrate="offset"),
    ),
    "thresholds of nominal groups": case(
        "Fit with method='conditional' and either logits='cumulative' or logits='adjacent'",
        lambda: rated(logits="nominal").thresholds,
        lambda: rated(logits="cumulative").thresholds,
        lambda: rated(logits="adjacent").thresholds,
    ),
    "thresholds of a multinomial regression": case(
        "Fit with method='conditional', ridge=0 and either logits='cumulative' or "
        "logits='adjacent'",
        lambda: rated(logits="nominal").inference().thresholds(),
        lambda: rated(logits="cumulative").inference().thresholds(),
        lambda: rated(logits="adjacent").inference().thresholds(),
    ),
    "two groups with the same effects": case(
        r"Pass of=\('mid', 'low'\)",
        lambda: rated().inference().table(of=("high", "mid")),
        lambda: rated().inference().table(of=("mid", "low")),
    ),
    "an explanation of two groups": case(
        "Omit of=",
        lambda: rated().explain(RATED.head(2), of=("high", "low")),
        lambda: rated().explain(RATED.head(2)),
    ),
    "an explanation with priors": case(
        "Omit the priors argument",
        lambda: rated().explain(RATED.head(2), priors="equal"),
        lambda: rated().explain(RATED.head(2)),
    ),
    "an explanation of a fit with priors": case(
        "Fit without priors, or with logits='adjacent'",
        lambda: rated(priors="equal").explain(RATED.head(2)),
        lambda: rated().explain(RATED.head(2)),
        lambda: rated(priors="equal", logits="adjacent").explain(RATED.head(2)),
    ),
    "effects of a fit with priors": case(
        "Fit without priors, or use se='bootstrap'",
        lambda: rated(priors="equal").avg_comparisons("a"),
        lambda: rated().avg_comparisons("a"),
        lambda: rated(priors="equal").avg_comparisons("a", se="bootstrap", nboot=5),
    ),
    "adjacent logits with further terms": case(
        "Compare the criteria",
        lambda: bbl.anova(rated("y ~ a*b", logits="adjacent"), rated(logits="nominal")),
        lambda: rated("y ~ a*b", logits="adjacent").compare(rated(logits="nominal")),
    ),
    "equal steps and Firth's penalty": case(
        "Fit both models with ridge=0",
        lambda: bbl.anova(rated(logits="adjacent"), rated(logits="nominal", ridge="firth")),
        compared,
    ),
    "equal steps under a sampling design": case(
        "Compare the criteria",
        lambda: compared(**DESIGN),
        lambda: rated(logits="adjacent", **DESIGN).compare(rated(logits="nominal", **DESIGN)),
    ),
    "too many coefficients of an ordered response": case(
        "Use ridge='cv', fewer predictors or fewer interactions",
        patched("bbl.engines.conditional.ordinal_maximum.MAX_COEFFICIENTS", 2, rated),
        lambda: rated(ridge="cv"),
        patched(
            "bbl.engines.conditional.ordinal_maximum.MAX_COEFFICIENTS", 2, lambda: rated("y ~ a")
        ),
    ),
    "too many contrasts of many rows": case(
        "Use logits='nominal', fewer predictors or fewer interactions",
        lambda: crowded(),
        lambda: crowded(logits="nominal"),
        lambda: crowded("y ~ a"),
    ),
}


def crowded(formula: str = "y ~ a + b", **options: Any) -> Any:
    small = patched(
        "bbl.engines.conditional.ordinal_ridge.MAX_COEFFICIENTS",
        1,
        lambda: rated(formula, ridge=0.1, **options),
    )
    return patched("bbl.engines.conditional.engine.ROWS", 2, small)()
