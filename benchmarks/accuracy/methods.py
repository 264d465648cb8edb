"""Methods of the accuracy benchmark: each fits one split and gives rows of scores."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bbl.bayesnet.learners import LEARNERS, Task
from bbl.bayesnet.parameters import Recipe
from bbl.bayesnet.parameters import fit as fit_tables
from bbl.bayesnet.predict import class_scores as network_scores
from bbl.boltzmann.averaging import fit_average
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.tuning import NFOLD
from bbl.crossval import Scored, score_settings
from bbl.design.labels import Labels
from bbl.engines import PREPARED_AS, Engine, MeanField, NaiveBayes, PseudoLikelihood
from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.elimination import elimination_order
from bbl.model.energy import Energy
from bbl.model.layout import Layout
from bbl.model.logz import approximate_log_z, exact_log_z, resolve_log_z
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import CALIBRATE, fit_calibration
from bbl.stats.metrics import class_scores, log_probabilities
from benchmarks.accuracy.data import Data

TOLERANCE = 1e-6
GRIDS = {kind.tuned.option: np.array(kind.tuned.grid) for kind in (MeanField, PseudoLikelihood)}
BBL: dict[str, tuple[Engine, bool]] = {  # the engine, and whether every kind of ln Z is compared
    "bbl naive": (NaiveBayes(), False),
    "bbl mf": (MeanField(), True),
    "bbl pseudo": (PseudoLikelihood(lambdah=None, tolerance=TOLERANCE), True),
    "bbl pseudo, lambdah 0": (PseudoLikelihood(lambdah=0.0, tolerance=TOLERANCE), False),
    "bbl pseudo, lambdah 0.0001": (PseudoLikelihood(lambdah=0.0001, tolerance=TOLERANCE), False),
}
RECIPE = ("bbl mf", "bbl pseudo, lambdah 0.0001")
BETTER, MEAN = (
    ("bbl " + name, "auto", "temperature") for name in ("better of both", "mean of both")
)
AUTO, NETWORKS = "bbl auto", {"TAN": "tan_cl", "AODE": "aode"}
ON_MNIST = (AUTO, "bbl naive", *RECIPE, "CategoricalNB", "random forest", "gradient boosting")
BINS = 15
TINY = 1e-15
EXACT_CELLS = 1e6
AIS_LIMIT, AIS_STEPS, AIS_CHAINS = 30, 100, 128
PAIR_COLUMNS = 3000
PIXELS = 700  # beyond, only the ln Z that "auto" stands for


def metrics(log_p: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float, str]:
    """Return accuracy, log-loss, expected calibration error, Brier score, and the sums that make up
    the error.

    These are hits less the largest probability, summed in each of 15 bins of that probability: they
    can be pooled.
    """
    best, p = log_p.argmax(axis=1), np.exp(log_p)
    hit, sure = best == y, p.max(axis=1)
    bin_of = np.minimum((sure * BINS).astype(int), BINS - 1)
    gap = np.bincount(bin_of, hit.astype(float) - sure, BINS)
    loss = -np.maximum(log_p[np.arange(len(y)), y], np.log(TINY)).mean()
    p[np.arange(len(y)), y] -= 1.0
    brier, gaps = float((p**2).sum(axis=1).mean()), " ".join(f"{g:.4g}" for g in gap)
    return float(hit.mean()), float(loss), float(np.abs(gap).sum() / len(y)), brier, gaps


# -- bbl -------------------------------------------------------------------------------------------


def kinds_of(auto: str, layout: Layout, every: bool) -> list[str]:
    """Return the kinds of ln Z that are affordable: all, or only the one that stands for "auto"."""
    if not every or layout.m > PIXELS:
        return [auto]
    exact = elimination_order(layout.n_levels, layout.mask, EXACT_CELLS) is not None
    return ["pseudo", "half", "mf"] + ["exact"] * exact + ["ais"] * (layout.m <= AIS_LIMIT)


def path_scores(
    train: Sample,
    codes: np.ndarray,
    layout: Layout,
    K: int,
    engine: Engine,
    values,
    kinds: list[str],
    rng,
) -> dict[str, np.ndarray]:
    """Fit one path of settings, and return the class scores (S, N, K) of `codes` with each kind of
    ln Z.
    """
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
    if "exact" in kinds:
        log_z["exact"][:] = [exact_log_z(layout, t) for t in theta]
    share = np.array([g.total for g in groups]) / train.total
    energy = [Energy(layout, t)(codes) for t in theta]
    return {
        k: np.array([class_scores(e, z, share) for e, z in zip(energy, log_z[k], strict=True)])
        for k in kinds
    }


def one_log_z(kind: str, rows: Sample, layout: Layout, fit, rng) -> float:
    """Return ln Z of one group; the exact one comes later, for all groups together."""
    if kind == "ais":
        return annealed_log_z(
            layout, fit.theta, annealing_start(rows, layout), AIS_STEPS, AIS_CHAINS, rng
        ).log_z
    if kind == "mf" and fit.mf_log_z is not None:
        return fit.mf_log_z
    return (
        0.0 if kind == "exact" else approximate_log_z(kind, rows, layout, fit.theta, fit.site_theta)
    )


def run_bbl(
    name: str, engine: Engine, every: bool, kept: dict, data: Data, split
) -> Iterator[tuple]:
    """Tune and calibrate on shuffled folds of the training rows as bbl() does, for all ln Z and
    calibrations.

    The recommended settings' log-probabilities, cross-validated log-loss and seconds go to `kept`.
    """
    begin = time.process_time()
    rng = np.random.default_rng(0)
    train, test = (np.asarray(part) for part in split)
    sample = Sample(
        np.ascontiguousarray(data.codes[train]), np.ones(len(train)), data.y[train].astype(np.intp)
    )
    layout = engine.layout(sample, Layout(data.n_levels))
    auto = resolve_log_z("auto", layout, engine.log_z)
    kinds = kinds_of(auto, layout, every)
    values = GRIDS.get(engine.tuned.option)
    call = partial(
        path_scores, layout=layout, K=data.K, engine=engine, values=values, kinds=kinds, rng=rng
    )
    order, inner = [], []
    for held in shuffled_folds(sample, NFOLD, rng).validation_weights:
        order.append(np.flatnonzero(held))
        inner.append(call(sample.rows(held == 0), np.ascontiguousarray(sample.codes[order[-1]])))
    rows, y = np.concatenate(order), data.y[test]
    fold = np.repeat(np.arange(len(order)), [len(part) for part in order])
    outer = call(sample, np.ascontiguousarray(data.codes[test]))
    fitted = time.process_time() - begin
    for kind in kinds:
        out_of_fold = np.concatenate([part[kind] for part in inner], axis=1)
        # a row whose class was not in the rows fitted to tells nothing about settings
        known = np.isfinite(out_of_fold[0][np.arange(len(rows)), sample.y[rows]])
        at = rows[known]
        scored = Scored(
            out_of_fold[:, known],
            sample.y[at],
            sample.weights[at],
            fold[known],
            [],
            [],
            "class_scores",
        )
        for calibrate in CALIBRATE:
            if calibrate == "temperature" and kind != auto:
                continue
            losses, best = score_settings(scored, "logloss", calibrate)
            calibrated = fit_calibration(scored.scores[best], scored.y, scored.weights, calibrate)
            log_p, loss = log_probabilities(calibrated(outer[kind][best])), float(losses[best, 0])
            setting = "" if values is None else f"{values[best]:.3g}"
            if calibrate == "temperature":
                kept[name] = (log_p, loss, fitted)
            for label in [kind] + ["auto"] * (kind == auto):
                yield (name, label, calibrate, *metrics(log_p, y), setting, loss, fitted)


def recipes(kept: dict, y: np.ndarray) -> Iterator[tuple]:
    """Yield what two recommended fits give together: the one of smaller cross-validated log-loss,
    and their mean.
    """
    if not set(RECIPE) <= set(kept):
        return
    fits = [kept[name] for name in RECIPE]
    best = min(fits, key=lambda fit: fit[1])
    mean = np.logaddexp(fits[0][0], fits[1][0]) - np.log(2.0)
    seconds = sum(fit[2] for fit in fits)
    yield (*BETTER, *metrics(best[0], y), "", best[1], seconds)
    yield (*MEAN, *metrics(mean, y), "", np.nan, seconds)


# -- scikit-learn ----------------------------------------------------------------------------------


def _minus_log_loss(model, X, y) -> float:
    """Score of rows whose class was among those fitted to (scikit-learn's own gives nan where one
    was not).
    """
    at = np.searchsorted(model.classes_, y)
    known = np.isin(y, model.classes_)
    p = model.predict_proba(X)[known, at[known]]
    return float(np.log(np.maximum(p, TINY)).mean())


def sklearn_models(data: Data) -> dict[str, Any]:
    """Return the models that are compared; pairwise terms only where their columns are few."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.naive_bayes import CategoricalNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures

    def one_hot(**options) -> OneHotEncoder:
        return OneHotEncoder(
            categories=[np.arange(L) for L in data.n_levels], drop="first", **options
        )

    def logistic() -> GridSearchCV:
        """Ridge logistic regression, its penalty by 5-fold cross-validation of the log-loss."""
        grid = {"C": 10.0 ** np.arange(-3, 3.1, 1.0)}
        return GridSearchCV(
            LogisticRegression(max_iter=300, tol=1e-3), grid, scoring=_minus_log_loss, cv=5
        )

    factors = [L > 2 for L in data.n_levels]
    models = {
        "CategoricalNB": CategoricalNB(min_categories=data.n_levels),
        "logistic": make_pipeline(one_hot(), logistic()),
        "random forest": make_pipeline(one_hot(), RandomForestClassifier(300, random_state=0)),
        "gradient boosting": HistGradientBoostingClassifier(
            categorical_features=factors, random_state=0
        ),
    }
    D = int((data.n_levels - 1).sum())
    if D * (D - 1) // 2 * (1 if data.K == 2 else data.K // 4 + 1) <= PAIR_COLUMNS:
        products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
        models["logistic, pairs"] = make_pipeline(
            one_hot(sparse_output=False), products, logistic()
        )
    return models


def run_sklearn(name: str, model, data: Data, split) -> Iterator[tuple]:
    """Fit and score one model; classes absent from the training rows get probability 0."""
    begin = time.process_time()
    train, test = split
    model.fit(data.codes[train], data.y[train])
    log_p = np.full((len(test), data.K), -np.inf)
    with np.errstate(divide="ignore"):
        log_p[:, model.classes_] = np.log(model.predict_proba(data.codes[test]))
    yield (name, "", "", *metrics(log_p, data.y[test]), "", np.nan, time.process_time() - begin)


# -- averages, networks, boosted trees -------------------------------------------------------------


def _train(data: Data, split) -> tuple[Sample, np.ndarray, np.ndarray]:
    """Return the training rows, and codes and classes of the test rows."""
    train, test = (np.asarray(part) for part in split)
    sample = Sample(
        np.ascontiguousarray(data.codes[train]), np.ones(len(train)), data.y[train].astype(np.intp)
    )
    return sample, np.ascontiguousarray(data.codes[test]), data.y[test]


def run_auto(data: Data, split) -> Iterator[tuple]:
    """Fit ``method="auto"``; the setting is the weights of its members."""
    begin = time.process_time()
    sample, codes, y = _train(data, split)
    levels = tuple(tuple(range(L)) for L in data.n_levels)
    labels = Labels("y", tuple(range(data.K)), tuple(f"x{i}" for i in range(len(levels))), levels)
    rng = np.random.default_rng(0)
    rows = FitData(sample, Layout(data.n_levels), data.K, labels)
    found = fit_average(rows, FitSpec(PREPARED_AS, rng=rng))
    log_p = log_probabilities(found.class_scores(codes))
    setting = " ".join(
        f"{member.engine.name}:{w:.2f}"
        for member, w in zip(found.members, found.weights, strict=True)
    )
    yield (
        AUTO,
        "auto",
        "temperature",
        *metrics(log_p, y),
        setting,
        np.nan,
        time.process_time() - begin,
    )


def run_network(name: str, learner: str, data: Data, split) -> Iterator[tuple]:
    """Fit a Bayesian network classifier whose tables have a pseudocount of 1 in each cell."""
    begin, rng = time.process_time(), np.random.default_rng(0)
    sample, codes, y = _train(data, split)
    options = LEARNERS[learner].check_options({}, ())
    dags = LEARNERS[learner].learn(Task(sample, data.n_levels, data.K, rng), options).dags
    network = fit_tables(
        dags, sample, data.n_levels, data.K, Recipe(1.0), rng, LEARNERS[learner].averages
    ).network
    log_p = log_probabilities(network_scores(network.log_joint(codes)))
    yield (name, "", "", *metrics(log_p, y), "", np.nan, time.process_time() - begin)


def run_catboost(data: Data, split) -> Iterator[tuple]:
    """Fit CatBoost, which is no dependency of bbl, at its defaults; nothing where it is not
    installed.
    """
    try:
        from catboost import CatBoostClassifier
    except ImportError:
        return
    begin = time.process_time()
    (train, test), every = split, list(range(data.codes.shape[1]))
    kind = "Logloss" if data.K == 2 else "MultiClass"
    model = CatBoostClassifier(
        loss_function=kind,
        cat_features=every,
        thread_count=1,
        verbose=False,
        random_seed=0,
        allow_writing_files=False,
    )
    model.fit(data.codes[train].astype(int), data.y[train])
    log_p = np.full((len(test), data.K), -np.inf)
    with np.errstate(divide="ignore"):
        log_p[:, np.asarray(model.classes_, dtype=int)] = np.log(
            model.predict_proba(data.codes[test].astype(int))
        )
    yield (
        "CatBoost",
        "",
        "",
        *metrics(log_p, data.y[test]),
        "",
        np.nan,
        time.process_time() - begin,
    )


def methods_of(data: Data, kept: dict) -> dict[str, Callable[..., Iterator[tuple]]]:
    """Return the methods (data, split) -> rows that a data set is given to; of all of MNIST, those
    that finish.
    """
    jobs: dict[str, Callable] = {
        name: partial(run_bbl, name, *how, kept) for name, how in BBL.items()
    }
    jobs |= {
        name: partial(run_sklearn, name, model) for name, model in sklearn_models(data).items()
    }
    jobs |= {AUTO: run_auto, "CatBoost": run_catboost}
    jobs |= {name: partial(run_network, name, learner) for name, learner in NETWORKS.items()}
    return {name: job for name, job in jobs.items() if data.name != "mnist" or name in ON_MNIST}
