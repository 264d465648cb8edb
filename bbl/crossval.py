"""Cross-validation: folds x settings over the estimation, pooled predictions, one score per setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.estimate import Estimate, Problem, check_annealing, estimate_path, guard_memory, problems
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.errors import DataError
from bbl.model.layout import Layout
from bbl.model.marginal import MarginalEnergy
from bbl.parallel import run_tasks
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration
from bbl.stats.metrics import SCORES, auc
from bbl.stats.scores import link, log_probabilities

__all__ = [
    "Scored",
    "calibrated",
    "cross_validate",
    "one_standard_error",
    "score_settings",
]


@dataclass(frozen=True)
class Scored:
    """Pooled validation predictions of every setting.

    Attributes
    ----------
    scores : ndarray, shape (S, N, K)
        Class scores ``ln p_y + E_y - ln Z_y`` of the N validated rows (fold by fold), for each of S settings.
    y, weights, fold, rows : ndarray, shape (N,)
        Group, weight and fold of each, and its position in the sample.
    last : list of Estimate
        The last fold's fit at each setting.
    found : list of Problem
        What did not converge.
    """

    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    fold: np.ndarray
    rows: np.ndarray
    last: list[Estimate]
    found: list[Problem]


def _run_fold(
    sample: Sample,
    weights: np.ndarray,
    held: np.ndarray,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    values,
    log_z: str,
    rng,
    trails,
) -> tuple[list[Estimate], np.ndarray, np.ndarray]:
    """Fit on the training `weights` of one fold, and score what it holds."""
    train = sample.weighted(weights)
    if not train.n:
        raise DataError("A fold leaves no rows to train on; give fewer folds (nfold) or more data.", argument="nfold")
    try:
        fits = estimate_path(
            train, layout, len(labels.groups), engine, values, log_z=log_z, rng=rng, labels=labels, trails=trails
        )
    except DataError as error:
        text = f"In the training rows of a fold: {error}"
        raise DataError(text, column=error.column, argument=error.argument) from None
    rows = np.flatnonzero(held > 0)
    rows = rows[np.argsort(sample.response[rows], kind="stable")]
    held_out = sample.rows(rows)
    energies = (MarginalEnergy(f.parameters.layout, f.parameters.theta) for f in fits)
    scores = [f.class_scores(E, held_out.codes, held_out.missing) for f, E in zip(fits, energies, strict=True)]
    return fits, np.array(scores), rows


def cross_validate(
    sample: Sample,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    folds: Folds,
    *,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
    progress: Callable | None = None,
    trails: Sequence[Sequence[dict[float, np.ndarray]]] | None = None,
) -> Scored:
    """Fit every setting on every fold; the settings of a fold share warm starts or one eigendecomposition.

    With `trails`, one for each group of each fold, settings are fitted just well enough to compare them, see
    `Engine.compare`; the trails get what was fitted.
    """
    K = len(labels.groups)
    nfold, fitted = len(folds), engine.restrict(layout)
    models = K * nfold * (1 if values is None else len(values))
    check_annealing(log_z, fitted, models, workers)
    guard_memory(sample.n, fitted, K, engine, values, min(workers, nfold), folds=nfold)
    rngs = rng.spawn(nfold)
    known = [None] * nfold if trails is None else trails
    parts = zip(folds.train, folds.held, rngs, known, strict=True)
    tasks = [(sample, train, held, labels, layout, engine, values, log_z, r, trail) for train, held, r, trail in parts]
    runs = run_tasks(_run_fold, tasks, workers, progress)
    if trails is not None and values is not None:
        for run, own in zip(runs, trails, strict=True):
            for value, fit in zip(values, run[0], strict=True):
                for trail, group in zip(own, fit.fits, strict=True):
                    if group.site_theta is not None:  # a group without rows has none
                        trail[float(value)] = group.site_theta
    rows = np.concatenate([run[2] for run in runs])
    weights = np.concatenate([held[run[2]] for held, run in zip(folds.held, runs, strict=True)])
    found = [
        problem._replace(group=f"fold {f + 1}, {problem.group}")
        for f, run in enumerate(runs)
        for fit in run[0]
        for problem in problems(fit, labels)
    ]
    scores = np.concatenate([run[1] for run in runs], axis=1)
    fold = np.repeat(np.arange(len(runs)), [len(run[2]) for run in runs])
    return Scored(scores, sample.response[rows], weights, fold, rows, runs[-1][0], found)


def calibrated(scored: Scored, scores: np.ndarray, kind: str) -> np.ndarray:
    """Return the scores (N, K) of one setting, each fold calibrated on the others."""
    if kind == "none":
        return scores
    out = np.empty_like(scores)
    for f in np.unique(scored.fold):
        here = scored.fold == f
        fitted = fit_calibration(scores[~here], scored.y[~here], scored.weights[~here], kind)
        out[here] = fitted(scores[here])
    return out


def score_settings(scored: Scored, score: str, calibrate: str = "none") -> tuple[np.ndarray, int]:
    """Return the table of scores (S, 3) for ``"auc"`` (value, lower, upper) or (S, 1) else, and the best row."""
    table: list[tuple[float, ...]] = []
    for setting in scored.scores:
        scores = calibrated(scored, setting, calibrate)
        if score == "auc":
            table.append(auc(link(scores)[:, 1], scored.y == 1, scored.weights))
        else:
            table.append((SCORES[score](log_probabilities(scores), scored.y, scored.weights),))
    values = np.array(table)
    column = -values[:, 0] if score in ("logloss", "brier") else values[:, 0]
    return values, int(np.argmax(np.where(np.isnan(column), -np.inf, column)))


def one_standard_error(scored: Scored, values: np.ndarray, best: int, calibrate: str, simpler: str) -> int:
    """Return the simplest setting whose log-loss is within one standard error (over folds) of the best one's.

    `simpler` is ``"larger"`` where larger values are simpler (penalties), ``"smaller"`` for ``eps``.
    """
    losses = []
    for setting in scored.scores:
        log_p = log_probabilities(calibrated(scored, setting, calibrate))
        by_fold = [scored.fold == f for f in np.unique(scored.fold)]  # some folds may be empty
        losses.append([SCORES["logloss"](log_p[f], scored.y[f], scored.weights[f]) for f in by_fold])
    table = np.array(losses)
    error = table[best].std(ddof=1) / np.sqrt(table.shape[1])
    good = np.flatnonzero(table.mean(axis=1) <= table[best].mean() + error)
    order = values[good] if simpler == "larger" else -values[good]
    return int(good[np.argmax(order)]) if len(good) else best
