"""Speed of Bayesian network classifiers beside other libraries, in one run: ``python -m
benchmarks.networks``.
"""

from __future__ import annotations

import argparse
import os
import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from bbl import networks

RESULTS = Path(__file__).resolve().parent / "results"
SIZES = {"d1": (10_000, 20), "d2": (100_000, 50)}
LEVELS, CLASSES = 4, 3
GAPS = 0.1  # share of cells that are missing in incomplete rows
# rows that these are given to predict; times are scaled to all
FEW = {"pgmpy": 300, "pyagrum": 2000}
# bnclassify 0.4.8 on the same kind of data, user s of one core, quoted from another machine
QUOTED = {
    ("d1", "nb"): (0.009, 0.009),
    ("d1", "tan_cl"): (0.19, 0.003),
    ("d1", "aode"): (0.060, 0.061),
    ("d2", "nb"): (0.040, 0.083),
    ("d2", "tan_cl"): (3.2, 0.11),
    ("d2", "aode"): (1.99, 5.8),
}


def draw(n: int, m: int, seed: int = 0) -> pd.DataFrame:
    """Return rows of a random tree-augmented naive Bayes, as categories."""
    rng = np.random.default_rng(seed)
    y, X = rng.integers(0, CLASSES, n), np.zeros((n, m), dtype=np.intp)
    for i in range(m):
        parent = X[:, rng.integers(0, i)] if i else np.zeros(n, dtype=np.intp)
        edges = rng.dirichlet(np.ones(LEVELS), size=(CLASSES, LEVELS)).cumsum(axis=-1)
        X[:, i] = (rng.random(n)[:, None] > edges[y, parent]).sum(axis=1).clip(0, LEVELS - 1)
    data = {f"x{i}": pd.Categorical.from_codes(X[:, i], list("abcd")) for i in range(m)}
    return pd.DataFrame({**data, "class": pd.Categorical.from_codes(y, list("uvw"))})


def gappy(data: pd.DataFrame) -> pd.DataFrame:
    """Return the features with a tenth of their cells missing."""
    X = data.drop(columns="class")
    blank = np.random.default_rng(1).random(X.shape) < GAPS
    return pd.DataFrame({c: X[c].mask(blank[:, k]) for k, c in enumerate(X)})


def user_seconds(work: Callable) -> tuple[float, Any]:
    """Return the CPU seconds (user) of this process that `work` takes, and what it returns."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    out = work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, out


def bbl_times(learner: str, data: pd.DataFrame) -> list[tuple[str, float, float]]:
    """Return what is timed of ours: complete rows, and incomplete ones."""
    fit_s, fit = user_seconds(lambda: networks.bnc(learner, "class", data, 1))
    new, blank = data.drop(columns="class"), gappy(data)
    predict_s, _ = user_seconds(lambda: fit.predict(new, type="class"))
    blank_s, _ = user_seconds(lambda: fit.predict(blank, type="class"))
    return [("bbl", fit_s, predict_s), ("bbl, incomplete rows", fit_s, blank_s)]


def sklearn_times(data: pd.DataFrame) -> tuple[float, float]:
    """Return fit and prediction of CategoricalNB, from codes."""
    from sklearn.naive_bayes import CategoricalNB

    X, y = (
        np.column_stack([data[c].cat.codes for c in data.columns[:-1]]),
        data["class"].cat.codes.to_numpy(),
    )
    fit_s, fit = user_seconds(lambda: CategoricalNB(alpha=1.0).fit(X, y))
    return fit_s, user_seconds(lambda: fit.predict(X))[0]


def skbayes_times(data: pd.DataFrame, order: int) -> tuple[float, float]:
    """Return fit and prediction of scikit-bayes' AnDE: naive Bayes of order 0, AODE of order 1."""
    from skbn.ande import AnDE

    X, y = (
        np.column_stack([data[c].cat.codes for c in data.columns[:-1]]),
        data["class"].cat.codes.to_numpy(),
    )
    few = min(len(X), 10_000)
    fit_s, fit = user_seconds(lambda: AnDE(n_dependence=order).fit(X, y))
    return fit_s, user_seconds(lambda: fit.predict(X[:few]))[0] * len(X) / few


def pyagrum_times(learner: str, data: pd.DataFrame) -> tuple[float, float]:
    """Return fit and prediction of pyAgrum's BNClassifier, from strings."""
    from pyagrum.lib.discreteTypeProcessor import DiscreteTypeProcessor
    from pyagrum.skbn import BNClassifier

    method = {"nb": "NaiveBayes", "tan_cl": "TAN"}[learner]
    text = data.astype(str)
    X, y = text.drop(columns="class"), text["class"]
    kinds = DiscreteTypeProcessor()
    model = BNClassifier(
        type_processor=kinds, learningMethod=method, prior="Smoothing", priorWeight=1
    )
    fit_s, _ = user_seconds(lambda: model.fit(X, y))
    few = FEW["pyagrum"]
    return fit_s, user_seconds(lambda: model.predict(X.head(few)))[0] * len(X) / few


def pgmpy_times(learner: str, data: pd.DataFrame) -> tuple[float, float]:
    """Return fit and prediction of pgmpy: naive Bayes, or a Chow-Liu tree with its tables."""
    from pgmpy.estimators import TreeSearch
    from pgmpy.models import DiscreteBayesianNetwork

    text = data.astype(str)

    def fit() -> Any:
        edges: Any = [("class", x) for x in text.columns[:-1]]
        if learner == "tan_cl":
            search = TreeSearch(text, root_node="x0", n_jobs=1)
            edges = search.estimate("tan", class_node="class", show_progress=False).edges()
        model = DiscreteBayesianNetwork(edges)
        model.fit(text)
        return model

    fit_s, model = user_seconds(fit)
    few = FEW["pgmpy"]
    new = text.drop(columns="class").head(few)
    return fit_s, user_seconds(lambda: model.predict(new, n_jobs=1))[0] * len(data) / few


def rows(name: str, peers: list[str]) -> list[dict[str, Any]]:
    """Return all measurements of one size."""
    data = draw(*SIZES[name])
    found = []

    def add(learner: str, library: str, fit_s: float, predict_s: float) -> None:
        found.append(
            {
                "data": name,
                "learner": learner,
                "library": library,
                "fit": fit_s,
                "predict": predict_s,
            }
        )
        print(found[-1], flush=True)

    for learner in ("nb", "tan_cl", "aode"):
        for row in bbl_times(learner, data):
            add(learner, *row)
        add(learner, "R bnclassify (quoted)", *QUOTED[name, learner])
    timed: dict[tuple[str, str], Callable] = {
        ("sklearn", "nb"): lambda: sklearn_times(data),
        ("scikit-bayes", "nb"): lambda: skbayes_times(data, 0),
        ("scikit-bayes", "aode"): lambda: skbayes_times(data, 1),
        ("pyagrum", "nb"): lambda: pyagrum_times("nb", data),
        ("pyagrum", "tan_cl"): lambda: pyagrum_times("tan_cl", data),
        ("pgmpy", "nb"): lambda: pgmpy_times("nb", data),
        ("pgmpy", "tan_cl"): lambda: pgmpy_times("tan_cl", data),
    }
    for (library, learner), work in timed.items():
        if library in peers:
            add(learner, library, *work())
    return found


def report(found: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the measurements with the ratio of fit and prediction together to ours."""
    table = pd.DataFrame(found)
    table["both"] = table["fit"] + table["predict"]
    own = table[table["library"] == "bbl"].set_index(["data", "learner"])["both"]
    keys = pd.MultiIndex.from_frame(table[["data", "learner"]])
    table["times bbl"] = table["both"].to_numpy() / own.reindex(keys).to_numpy()
    return table.sort_values(["data", "learner", "times bbl"], ignore_index=True)


def main() -> None:
    """Measure, print, and write ``results/networks.csv``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument(
        "--peers", nargs="*", default=["sklearn", "scikit-bayes", "pyagrum", "pgmpy"]
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "networks.csv")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    bbl_times("nb", draw(100, 2))  # imports are not timed
    table = report([row for name in args.sizes for row in rows(name, args.peers)])
    table.to_csv(args.out, index=False, float_format="%.4g")
    print(table.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
