"""Accuracy of bbl's methods and of scikit-learn's on categorical data: ``python -m benchmarks.accuracy``."""

from __future__ import annotations

import argparse
import re
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from bbl.boltzmann.tuning import GRIDS, NFOLD
from bbl.crossval import Scored, score_settings
from bbl.engines import Engine, MeanField, NaiveBayes, PseudoLikelihood
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.elimination import elimination_order
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.logz import approximate_log_z, exact_log_z, resolve_log_z
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import CALIBRATE, fit_calibration
from bbl.stats.scores import class_scores, log_probabilities
from benchmarks.accuracy_data import NAMES, Data, load
from benchmarks.accuracy_report import RECIPE, write

RESULTS = Path(__file__).resolve().parent / "results"
WHAT = ("data", "fold", "method", "log_z", "calibrate")
COLUMNS = (*WHAT, "accuracy", "log_loss", "ece", "setting", "cv_loss", "seconds")
BINS = 15
TINY = 1e-15
EXACT_CELLS = 1e6
AIS_LIMIT, AIS_STEPS, AIS_CHAINS = 30, 100, 128
PAIR_COLUMNS = 3000
PIXELS = 700  # beyond, only the ln Z that "auto" stands for
TOLERANCE = 1e-6


def metrics(log_p: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy, log-loss and expected calibration error (15 bins of the largest probability)."""
    best = log_p.argmax(axis=1)
    hit, sure = best == y, np.exp(log_p.max(axis=1))
    bin_of = np.minimum((sure * BINS).astype(int), BINS - 1)
    gap = np.bincount(bin_of, hit.astype(float) - sure, BINS)
    loss = -np.maximum(log_p[np.arange(len(y)), y], np.log(TINY)).mean()
    return float(hit.mean()), float(loss), float(np.abs(gap).sum() / len(y))


# -- bbl --------------------------------------------------------------------------------------------------------------


def kinds_of(engine: Engine, layout: Layout, every: bool) -> list[str]:
    """Return the kinds of ln Z that are affordable: all, or only the one that stands for "auto"."""
    exact = elimination_order(layout.n_levels, layout.mask, EXACT_CELLS) is not None
    if not every or layout.m > PIXELS:
        return [auto_kind(engine, layout)]
    return ["pseudo", "half", "mf"] + ["exact"] * exact + ["ais"] * (layout.m <= AIS_LIMIT)


def auto_kind(engine: Engine, layout: Layout) -> str:
    """Return what log_z="auto" stands for."""
    return resolve_log_z("auto", layout, engine.log_z)


def path_scores(
    train: Sample, codes: np.ndarray, layout: Layout, K: int, engine: Engine, values, kinds: list[str], rng
) -> dict[str, np.ndarray]:
    """Fit one path of settings, and return the class scores (S, N, K) of `codes` with each kind of ln Z."""
    S = 1 if values is None else len(values)
    theta = np.zeros((S, K, layout.size))
    log_z = {kind: np.zeros((S, K)) for kind in kinds}
    groups = [train.group(k) for k in range(K)]
    for k, group in enumerate(groups):
        if not group.n:
            continue
        rows = engine.prepare(group.collapsed(layout.n_levels), layout)
        for s, fit in enumerate(engine.path(rows, layout, values, 1)):
            theta[s, k] = fit.theta
            for kind in kinds:
                log_z[kind][s, k] = one_log_z(kind, rows, layout, fit, rng)
    share = np.array([g.total for g in groups]) / train.total
    energy = [Energy(layout, t)(codes) for t in theta]
    for s in range(S if "exact" in kinds else 0):
        log_z["exact"][s] = exact_log_z(layout, theta[s])
    return {
        kind: np.array([class_scores(e, z, share) for e, z in zip(energy, log_z[kind], strict=True)]) for kind in kinds
    }


def one_log_z(kind: str, rows: Sample, layout: Layout, fit, rng) -> float:
    """Return ln Z of one group; the exact one comes later, for all groups together."""
    if kind == "ais":
        return annealed_log_z(layout, fit.theta, annealing_start(rows, layout), AIS_STEPS, AIS_CHAINS, rng).log_z
    if kind == "mf" and fit.mf_log_z is not None:
        return fit.mf_log_z
    return 0.0 if kind == "exact" else approximate_log_z(kind, rows, layout, fit.theta, fit.site_theta)


def run_bbl(name: str, engine: Engine, every: bool, kept: dict, data: Data, split) -> Iterator[tuple]:
    """Tune and calibrate on shuffled folds of the training rows as bbl() does, for all ln Z and calibrations.

    The recommended settings' log-probabilities, cross-validated log-loss and seconds go to `kept`.
    """
    begin = time.process_time()
    rng = np.random.default_rng(0)
    train, test = (np.asarray(part) for part in split)
    layout = engine.restrict(Layout(data.n_levels))
    kinds = kinds_of(engine, layout, every)
    values = GRIDS[engine.tuned] if engine.tuned else None
    sample = Sample(np.ascontiguousarray(data.codes[train]), np.ones(len(train)), data.y[train].astype(np.intp))
    call = partial(path_scores, layout=layout, K=data.K, engine=engine, values=values, kinds=kinds, rng=rng)
    order, fold, inner = [], [], []
    for f, held in enumerate(shuffled_folds(sample, NFOLD, rng).held):
        rows = np.flatnonzero(held)
        inner.append(call(sample.rows(held == 0), np.ascontiguousarray(sample.codes[rows])))
        order.append(rows)
        fold.append(np.full(len(rows), f))
    rows, y = np.concatenate(order), data.y[test]
    outer = call(sample, np.ascontiguousarray(data.codes[test]))
    fitted = time.process_time() - begin
    for kind in kinds:
        out_of_fold = np.concatenate([part[kind] for part in inner], axis=1)
        # a row whose class was not in the rows fitted to tells nothing about settings
        known = np.isfinite(out_of_fold[0][np.arange(len(rows)), sample.y[rows]])
        out_of_fold = out_of_fold[:, known]
        at = rows[known]
        scored = Scored(out_of_fold, sample.y[at], sample.weights[at], np.concatenate(fold)[known], [], [])
        for calibrate in CALIBRATE:
            if calibrate == "temperature" and kind != auto_kind(engine, layout):
                continue
            losses, best = score_settings(scored, "logloss", calibrate)
            fitted_to = fit_calibration(out_of_fold[best], scored.y, scored.weights, calibrate)
            log_p = log_probabilities(fitted_to(outer[kind][best]))
            setting = "" if values is None else f"{values[best]:.3g}"
            if calibrate == "temperature":
                kept[name] = (log_p, float(losses[best, 0]), fitted)
            for label in [kind] + ["auto"] * (kind == auto_kind(engine, layout)):
                yield (name, label, calibrate, *metrics(log_p, y), setting, float(losses[best, 0]), fitted)


BBL = {
    "bbl naive": (NaiveBayes(), False),
    "bbl mf": (MeanField(), True),
    "bbl pseudo": (PseudoLikelihood(lambdah=None, tolerance=TOLERANCE), True),
    "bbl pseudo, lambdah 0": (PseudoLikelihood(lambdah=0.0, tolerance=TOLERANCE), False),
    "bbl pseudo, lambdah 0.0001": (PseudoLikelihood(lambdah=0.0001, tolerance=TOLERANCE), False),
}


ON_MNIST = ("bbl naive", *RECIPE, "CategoricalNB", "random forest", "gradient boosting")

# -- scikit-learn -----------------------------------------------------------------------------------------------------


def _one_hot(data: Data, pairs: bool):
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures

    levels = [np.arange(L) for L in data.n_levels]
    hot = OneHotEncoder(categories=levels, drop="first", sparse_output=not pairs)
    return make_pipeline(hot, PolynomialFeatures(2, interaction_only=True, include_bias=False)) if pairs else hot


def _logistic(data: Data, pairs: bool) -> Any:
    """Ridge logistic regression, its penalty by 5-fold cross-validation of the log-loss."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    grid = {"C": 10.0 ** np.arange(-3, 3.1, 1.0)}
    search = GridSearchCV(LogisticRegression(max_iter=300, tol=1e-3), grid, scoring=_minus_log_loss, cv=5)
    return make_pipeline(_one_hot(data, pairs), search)


def _minus_log_loss(model, X, y) -> float:
    """Score of rows whose class was among those fitted to (scikit-learn's own gives nan where one was not)."""
    at = np.searchsorted(model.classes_, y)
    known = np.isin(y, model.classes_)
    p = model.predict_proba(X)[known, at[known]]
    return float(np.log(np.maximum(p, TINY)).mean())


def sklearn_models(data: Data) -> dict[str, Any]:
    """Return the models that are compared; pairwise terms only where their columns are few."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.naive_bayes import CategoricalNB
    from sklearn.pipeline import make_pipeline

    D = int((data.n_levels - 1).sum())
    models = {
        "CategoricalNB": CategoricalNB(min_categories=data.n_levels),
        "logistic": _logistic(data, False),
        "random forest": make_pipeline(_one_hot(data, False), RandomForestClassifier(300, random_state=0)),
        "gradient boosting": HistGradientBoostingClassifier(
            categorical_features=[L > 2 for L in data.n_levels], random_state=0
        ),
    }
    if D * (D - 1) // 2 * (1 if data.K == 2 else data.K // 4 + 1) <= PAIR_COLUMNS:
        models["logistic, pairs"] = _logistic(data, True)
    return models


def run_sklearn(name: str, model, data: Data, split) -> Iterator[tuple]:
    """Fit and score one model; classes absent from the training rows get probability 0."""
    begin = time.process_time()
    train, test = split
    model.fit(data.codes[train], data.y[train])
    with np.errstate(divide="ignore"):
        found = np.log(model.predict_proba(data.codes[test]))
    log_p = np.full((len(test), data.K), -np.inf)
    log_p[:, model.classes_] = found
    yield (name, "", "", *metrics(log_p, data.y[test]), "", np.nan, time.process_time() - begin)


# -- all of it --------------------------------------------------------------------------------------------------------


def recipes(kept: dict, y: np.ndarray) -> Iterator[tuple]:
    """Yield what two recommended fits give together: the one of smaller cross-validated log-loss, and their mean."""
    if not set(RECIPE) <= set(kept):
        return
    fits = [kept[name] for name in RECIPE]
    best = min(fits, key=lambda fit: fit[1])
    mean = np.logaddexp(fits[0][0], fits[1][0]) - np.log(2.0)
    seconds = sum(fit[2] for fit in fits)
    yield ("bbl better of both", "auto", "temperature", *metrics(best[0], y), "", best[1], seconds)
    yield ("bbl mean of both", "auto", "temperature", *metrics(mean, y), "", np.nan, seconds)


def run_split(data: Data, number: int, only: str) -> list[tuple]:
    """Return the rows of every method on one split."""
    rows: list[tuple] = []
    kept: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jobs = [partial(run_bbl, name, *how, kept) for name, how in BBL.items()]
        jobs += [partial(run_sklearn, name, model) for name, model in sklearn_models(data).items()]
        if data.name == "mnist":
            jobs = [job for job in jobs if job.args[0] in ON_MNIST]
        for job in jobs:
            if re.search(only, job.args[0]):
                begin = time.process_time()
                rows += [(data.name, number, *row) for row in job(data, data.splits[number])]
                print(f"{data.name} {number}: {job.args[0]}, {time.process_time() - begin:.1f} s", flush=True)
    return rows + [(data.name, number, *row) for row in recipes(kept, data.y[data.splits[number][1]])]


def store(rows: list[tuple], out: Path) -> None:
    """Put the rows into ``accuracy.csv`` in place of those of the same data, split and method; write the report."""
    file = out / "accuracy.csv"
    frame = pd.DataFrame(rows, columns=COLUMNS)
    if file.is_file():
        old = pd.read_csv(file, keep_default_na=False)
        key = ["data", "fold", "method"]
        seen = set(frame[key].astype(str).agg("|".join, axis=1))
        frame = pd.concat([old[~old[key].astype(str).agg("|".join, axis=1).isin(seen)], frame], ignore_index=True)
    out.mkdir(parents=True, exist_ok=True)
    order = {name: at for at, name in enumerate(NAMES)}
    frame = frame.sort_values(["data", "fold"], key=lambda c: c.map(order) if c.name == "data" else c, kind="stable")
    frame.to_csv(file, index=False, float_format="%.6g")
    write(frame, out)


def main() -> None:
    """Run and write ``results/accuracy.csv``, ``accuracy.md`` and ``accuracy.png``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=list(NAMES))
    parser.add_argument("--method", default="", help="only methods whose names match this regular expression")
    parser.add_argument("--splits", type=int, default=100, help="at most so many splits of a data set")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    for name in args.data:
        begin = time.time()
        data = load(name)
        todo = range(min(args.splits, len(data.splits))) if data else ()
        runs = Parallel(n_jobs=args.jobs)(delayed(run_split)(data, number, args.method) for number in todo)
        rows = [row for run in runs for row in run]
        if rows:
            store(rows, args.out)
        print(f"{name}: {len(rows)} rows, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
