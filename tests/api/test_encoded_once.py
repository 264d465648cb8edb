"""Every verb and method that takes a table frames it once, reads each column once, and checks its
weights once.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold

import bbl
import bbl.sklearn
from bbl import networks
from bbl.api import training_data
from bbl.boltzmann import estimate
from bbl.design import design as design_module
from bbl.design import values, weights
from bbl.design.design import Design
from bbl.design.frames import Frame, to_frame
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.errors import DataError
from bbl.model.regressors import Regressors

N_ROWS = 120
FORMULA = "y ~ a + b + c"
COLUMNS = ("column y", "column a", "column b", "column c")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Return 120 rows of a class `y`, three predictors and weights `w`."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, (N_ROWS, 3))
    y = (rng.random(N_ROWS) < 0.1 + 0.3 * codes[:, 0]).astype(int)
    return pd.DataFrame(codes, columns=["a", "b", "c"]).assign(y=y, w=rng.integers(1, 4, N_ROWS))


@pytest.fixture(scope="module")
def models(table) -> dict:
    """Return a fitted model of each kind, and the structure of a network."""
    fit = bbl.bbl(FORMULA, table, "w", verbose=0)
    structure = networks.nb(FORMULA, table, weights="w")
    return {
        "machine": fit,
        "density": bbl.bbl("~ a + b + c", table, "w", verbose=0),
        "shooter": bbl.shooter(FORMULA, table, "w", verbose=0),
        "structure": structure,
        "network": networks.lp(structure, table, 1, weights="w"),
        "average": bbl.average([fit, fit], "equal"),
        "estimator": bbl.sklearn.ShooterClassifier().fit(table[["a", "b", "c"]], table["y"]),
    }


@pytest.fixture
def counts(models, monkeypatch) -> Counter:
    """Return a counter of framed tables, encodings, columns that are read, and weights that are
    checked.
    """
    counter: Counter = Counter()

    def count(function, key) -> None:
        def counted(*arguments, **options):
            counter[key(*arguments)] += 1
            return function(*arguments, **options)

        for module in [
            module for name, module in sys.modules.items() if name.partition(".")[0] == "bbl"
        ]:
            if vars(module).get(function.__name__) is function:
                monkeypatch.setattr(module, function.__name__, counted)

    def count_method(method) -> None:
        def counted(*arguments, **options):
            counter["encodings"] += 1
            return method(*arguments, **options)

        monkeypatch.setattr(Design, method.__name__, counted)

    count(to_frame, lambda data, *_: "no frames" if isinstance(data, Frame) else "frames")
    count(values.factorise, lambda name, *_: f"column {name}")
    count(weights.check_weights, lambda *_: "weights")
    count_method(Design.from_data)
    count_method(Design.encode)
    return counter


FITS = {
    "bbl": lambda table, _: bbl.bbl(FORMULA, table, "w", verbose=0),
    "bbl, tuned": lambda table, _: bbl.bbl(
        FORMULA, table, "w", lambda_="cv", calibrate="temperature", verbose=0
    ),
    "bbl, auto": lambda table, _: bbl.bbl(FORMULA, table, "w", method="auto", verbose=0),
    "crossVal": lambda table, _: bbl.crossVal(FORMULA, table, "w", shuffle=True, seed=1, verbose=0),
    "crossVal, splitter": lambda table, _: bbl.crossVal(
        FORMULA, table, "w", cv=KFold(3), verbose=0
    ),
    "shooter": lambda table, _: bbl.shooter(FORMULA, table, "w", verbose=0),
    "nb": lambda table, _: networks.nb("y", table, weights="w"),
    "tan_cl": lambda table, _: networks.tan_cl(FORMULA, table, weights="w"),
    "tan_hc": lambda table, _: networks.tan_hc(FORMULA, table, weights="w", verbose=0),
    "aode": lambda table, _: networks.aode(FORMULA, table, weights="w"),
    "bnc": lambda table, _: networks.bnc("tan_cl", FORMULA, table, 1, weights="w", verbose=0),
    "lp": lambda table, models: networks.lp(models["structure"], table, 1, weights="w"),
    "cv": lambda table, models: networks.cv(models["network"], table, 3, weights="w", verbose=0),
    "cv, splitter": lambda table, models: networks.cv(
        models["network"], table, folds=KFold(3), weights="w", verbose=0
    ),
}


@pytest.mark.parametrize("verb", FITS)
def test_a_verb_frames_encodes_and_weighs_its_data_once(verb, table, models, counts):
    FITS[verb](table, models)
    assert (counts["frames"], counts["encodings"], counts["weights"]) == (1, 1, 1)
    splits = "splitter" in verb  # it sees the class of every row, fitted or not
    assert [counts[column] for column in COLUMNS] == [1 + splits, 1, 1, 1]


METHODS = {
    "predict": lambda model, table: model.predict(table),
    "predict_batches": lambda model, table: list(model.predict_batches(table, verbose=0)),
    "explain": lambda model, table: model.explain(table),
    "evaluate": lambda model, table: model.evaluate(table, "w"),
    "importance": lambda model, table: model.importance(table, "w"),
    "log_scores": lambda model, table: bbl.log_scores(model, table),
    "score_samples": lambda model, table: model.score_samples(table),
    "pnll": lambda model, table: model.pnll(table, "w"),
    "reconstruct": lambda model, table: model.reconstruct(table, verbose=0),
    "logLik": lambda model, table: model.logLik(table),
    "cLogLik": lambda model, table: model.cLogLik(table),
}
COMMON = ("predict", "predict_batches", "explain", "evaluate", "importance")
CASES = {
    "machine": (*COMMON, "log_scores", "pnll", "score_samples", "reconstruct"),
    "density": ("score_samples", "pnll", "reconstruct"),
    "shooter": COMMON,
    "network": (*COMMON, "logLik", "cLogLik"),
    "average": ("predict", "predict_batches", "evaluate", "importance"),
    "estimator": ("predict",),
}


@pytest.mark.parametrize(
    ("kind", "method"), [(kind, method) for kind in CASES for method in CASES[kind]]
)
def test_a_method_frames_encodes_and_weighs_new_data_once(kind, method, table, models, counts):
    METHODS[method](models[kind], table[["a", "b", "c"]] if kind == "estimator" else table)
    takes_weights = method in ("evaluate", "importance", "pnll")
    assert (counts["frames"], counts["encodings"], counts["weights"]) == (1, 1, takes_weights)
    assert [counts[column] for column in COLUMNS][1:] == [1, 1, 1] and counts["column y"] <= 1


def test_cross_validated_networks_refuse_weights_of_another_index(table, models):
    with pytest.raises(DataError, match="weights is a Series with a different index"):
        networks.cv(models["network"], table, 3, weights=table["w"][::-1], verbose=0)


def test_a_fit_does_its_work_once(table, monkeypatch):
    """Two groups and both together share one layout, whose regressors are built once."""
    counter: Counter = Counter()

    def count(owner, name) -> None:
        function = getattr(owner, name)

        def counted(*arguments, **options):
            counter[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    count(Regressors, "__init__")
    count(design_module, "parse")
    count(design_module, "to_frame")
    count(training_data, "to_frame")
    count(estimate, "guard_memory")
    count(PseudoLikelihood, "memory")
    bbl.bbl("y ~ .^2", table, "w", verbose=0)
    assert counter == {"__init__": 1, "parse": 1, "to_frame": 1, "guard_memory": 1, "memory": 1}
