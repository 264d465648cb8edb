"""Hints of warnings about fits that did not converge, or whose estimates are not finite."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import bbl
from advice.common import DATA, case, fit
from bbl.engines.conditional import many_rows

LEVELS = DATA.assign(a=np.where(DATA["y"] == "t", np.arange(60) % 3, DATA["a"]))
NO_C = DATA.assign(c=np.where(DATA["y"] == "t", np.arange(60) % 2, 0))
COPY = DATA.assign(d=DATA["a"])
RNG = np.random.default_rng(1)
SPLIT = pd.DataFrame({"y": list("uuvv") * 5, "a": list("ppqq") * 5})
FEW = pd.DataFrame({"y": list("stst"), "a": [0, 1, 1, 0], "b": [0, 1, 0, 0]})
EXACT = {"method": "conditional", "ridge": 0}
FIRST = RNG.integers(0, 2, 300)
ALIKE = pd.DataFrame(
    {name: np.where(RNG.random(300) < 0.8, FIRST, RNG.integers(0, 2, 300)) for name in "abcd"}
)
HOLES = ALIKE.astype(object).mask(RNG.random(ALIKE.shape) < 0.1)


WIDE = pd.DataFrame(RNG.integers(0, 3, (800, 12))).add_prefix("x")
WIDE["y"] = np.where((WIDE["x0"] < 2) & (RNG.random(800) < 0.7), "s", "t")
PSU = np.repeat(np.arange(8), 15)
SPARSE = pd.DataFrame({"psu": PSU, "a": RNG.integers(0, 2, 120), "w": 1.0}).assign(
    # with a=1, all rows of y=0 are in the first cluster
    y=lambda d: np.where((d["a"] == 1) & (d["psu"] > 0), 1, RNG.integers(0, 2, 120))
)


def replicated(
    data: Any = SPARSE, method: str = "ml", type: str | None = None, **options: Any
) -> Any:
    """Return the standard errors of a fit to clusters, by replicates if there is a `type`."""
    design = bbl.survey("w", cluster="psu", type=type)
    return fit("y ~ a", data, method=method, design=design, **options).inference().table()


def sampled(**design: Any) -> Any:
    """Fit clusters of rows."""
    return fit("y ~ a", SPARSE, method="ml", design=bbl.survey("w", cluster="psu", **design))


def settled(formula: str, data: Any = DATA, **options: Any) -> Callable[[], Any]:
    """Return a call that fails if the fit does not converge or has infinite estimates."""

    def call() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", bbl.ConvergenceWarning)
            return fit(formula, data, **options)

    return call


def in_batches(**options: Any) -> Any:
    """Fit rows in batches, of which only a few fit into memory."""
    limits = {"MIN_SAMPLE": 50, "ROWS_PER_COLUMN": 1, "FULL_FIT_FACTOR": 2}
    with (
        mock.patch("bbl.rows.fold_assignment.MAX_TABLE_CELLS", 0),
        mock.patch.multiple("bbl.engines.pseudo.blocks", **limits),
    ):
        return fit("y ~ . + x0:x1", lambda: iter([WIDE]), **options)


def many_rows_fit(rounds: int, ridge: float = 1e-6) -> Any:
    """Fit by the solver for many rows, which may end after a few rounds."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 3, (600, 3)), columns=list("abc")).assign(
        y=rng.integers(0, 3, 600)
    )
    finished = many_rows.FINISHED._replace(rounds=rounds)
    with ExitStack() as stack:
        stack.enter_context(mock.patch("bbl.engines.conditional.engine.ROWS", 50))
        stack.enter_context(mock.patch("bbl.engines.conditional.many_rows.FINISHED", finished))
        return fit("y ~ a*b + b*c", data, method="conditional", ridge=ridge)


def flat_response(**options: Any) -> Any:
    """Fit with a linear response that does not exist."""
    nothing = mock.patch(
        "bbl.engines.variational.engine.response_sd",
        lambda *args: np.full(6, np.nan),
    )
    with nothing:
        return fit("~ .^2", ALIKE[["a", "b", "c"]], method="pvi", sd="lrvb", n_iter=50, **options)


TABLE = {
    "a level that naive Bayes never sees": case(
        "Set prior_count > 0",
        lambda: fit("y ~ a", LEVELS, method="naive", prior_count=0),
        settled("y ~ a", LEVELS, method="naive", prior_count=1),
    ),
    "a level that mean field never sees": case(
        "Set prior_count > 0",
        lambda: fit("y ~ a*b", LEVELS, method="mf", prior_count=0, eps=0.1),
        settled("y ~ a*b", LEVELS, method="mf", prior_count=1, eps=0.1),
    ),
    "a level that contrastive divergence never sees": case(
        "Set lambdah > 0",
        lambda: fit("y ~ a*b", LEVELS, method="pcd", n_iter=30, seed=0),
        lambda: fit("y ~ a*b", LEVELS, method="pcd", n_iter=30, seed=0, lambdah=0.1),
    ),
    "chains of few iterations": case(
        "Increase n_iter",
        lambda: fit("y ~ c", method="pcd", n_iter=30, seed=0),
        settled("y ~ c", method="pcd", n_iter=1000, seed=0),
    ),
    "a level that probability flow never sees": case(
        "Set lambdah > 0",
        lambda: fit("y ~ a*b", LEVELS, method="mpf"),
        settled("y ~ a*b", LEVELS, method="mpf", lambdah=0.1, lambda_=0.1),
    ),
    "a flow of few iterations": case(
        "Increase itmax or lambda_",
        lambda: fit("~ b*c", method="mpf", itmax=1, lambda_=0.001),
        settled("~ b*c", method="mpf", itmax=5000, lambda_=0.001),
        settled("~ b*c", method="mpf", lambda_=0.1),
    ),
    "a fit of one iteration": case(
        "Increase itmax, tolerance or lambda_",
        lambda: fit("~ .^2", ALIKE, itmax=1),
        settled("~ .^2", ALIKE, itmax=500),
        settled("~ .^2", ALIKE, itmax=1, tolerance=10.0),
        settled("~ .^2", ALIKE, itmax=100, lambda_=0.5),
    ),
    "a bootstrap under a design": case(
        "Omit the se argument. For bootstrap replicate weights, pass type='bootstrap'",
        lambda: sampled().avg_comparisons("a", se="bootstrap", nboot=3),
        lambda: sampled().avg_comparisons("a"),
        lambda: sampled(type="bootstrap", replicates=20).avg_comparisons("a"),
    ),
    "a level that pseudo-likelihood never sees": case(
        "Set lambdah > 0",
        lambda: fit("y ~ a + b", LEVELS, lambdah=0),
        settled("y ~ a + b", LEVELS, lambdah=0.1),
    ),
    "a level in order that pseudo-likelihood never sees": case(
        "Set lambdah > 0",
        lambda: fit("y ~ a*b", LEVELS, ordered="linear", level_scores={"a": [0, 1, 2]}),
        settled("y ~ a*b", LEVELS, ordered="linear", level_scores={"a": [0, 1, 2]}, lambdah=0.1),
    ),
    "a level that a sparse fit never sees": case(
        "Use penalty='l2' and lambdah > 0",
        lambda: fit("y ~ b*c", NO_C, penalty="group", lambda_=0.01, xlevels={"c": [0, 1, 2]}),
        settled("y ~ b*c", NO_C, lambda_=0.01, lambdah=0.1, xlevels={"c": [0, 1, 2]}),
    ),
    "a level that batches never see": case(
        "Set lambdah > 0",
        lambda: in_batches(lambdah=0),
        lambda: in_batches(lambdah=0.1),
    ),
    "a level that the likelihood never sees": case(
        "Set lambdah > 0 or prior_count > 0",
        lambda: fit("y ~ a*b", LEVELS, method="ml"),
        settled("y ~ a + b", LEVELS, method="ml", lambdah=0.1, lambda_=0.1),
        settled("y ~ a*b", LEVELS, method="ml", prior_count=0.5),
    ),
    "a likelihood of one step": case(
        r"Increase itmax, or set lambda_ > 0 or prior_count > 0",
        lambda: fit("~ .^2", HOLES, method="ml", missing="marginal", itmax=1),
        settled("~ .^2", HOLES, method="ml", missing="marginal", itmax=500),
    ),
    "a level that a regression never sees": case(
        "Set ridge > 0",
        lambda: fit("y ~ a + b", xlevels={"a": [0, 1, 2]}, **EXACT),
        settled("y ~ a + b", xlevels={"a": [0, 1, 2]}, method="conditional", ridge=0.1),
    ),
    "groups that predictors separate": case(
        "Use ridge='firth'.*or ridge='cv'",
        lambda: fit("y ~ a", SPLIT, **EXACT),
        settled("y ~ a", SPLIT, method="conditional", ridge="firth"),
        settled("y ~ a", SPLIT, method="conditional", ridge="cv"),
    ),
    "fewer rows than coefficients": case(
        "Use ridge='cv'",
        lambda: fit("y ~ a*b", FEW, **EXACT),
        settled("y ~ a*b", pd.concat([FEW] * 5), method="conditional", ridge="cv"),
    ),
    "a copy of a predictor": case(
        "Leave one of the terms out, or use ridge='cv'",
        lambda: fit("y ~ a + b + d", COPY, **EXACT),
        settled("y ~ a + b", COPY, **EXACT),
        settled("y ~ a + b + d", COPY, method="conditional", ridge="cv"),
    ),
    "a regression of few rounds": case(
        "Increase ridge", lambda: many_rows_fit(2), lambda: many_rows_fit(200, 0.1)
    ),
    "a refit of few iterations": case(
        "Increase ridge, or use refit='pseudo'",
        lambda: fit("~ .", ALIKE, method="shbm", order=2, refit="pcd", n_iter=10, seed=3),
        settled("~ .", ALIKE, method="shbm", order=2, refit="pseudo"),
    ),
    "no linear response": case(
        "Use prior='gaussian'",
        flat_response,
        settled(
            "~ .^2", ALIKE[["a", "b", "c"]], method="pvi", sd="lrvb", prior="gaussian", n_iter=3000
        ),
    ),
    "a replicate that separates groups": case(
        "Omit the type argument to .*merge rare levels, or set prior_count",
        lambda: replicated(type="JK1"),
        lambda: replicated(),
        lambda: replicated(SPARSE.assign(a=SPARSE["psu"] % 2), type="JK1"),
        lambda: replicated(method="naive", prior_count=1.0, type="JK1"),
    ),
}
