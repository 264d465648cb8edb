"""Cross-validation: folds x settings over the estimation, pooled predictions, one score per setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bbl.config import run_tasks
from bbl.design.labels import Labels
from bbl.design.sample import Sample
from bbl.engines import Engine
from bbl.errors import DataError, OptionError
from bbl.estimate import Estimate, check_annealing, estimate_path, guard_memory, problems
from bbl.model.calibration import fit_calibration
from bbl.model.layout import Layout
from bbl.model.marginal import MarginalEnergy
from bbl.model.metrics import SCORES, auc
from bbl.model.predict import link, log_probabilities

__all__ = [
    "Folds",
    "Scored",
    "consecutive_folds",
    "calibrated",
    "cross_validate",
    "one_standard_error",
    "score_settings",
    "shuffled_folds",
    "splitter_folds",
]


@dataclass(frozen=True)
class Folds:
    """Folds as weights: row k is validated ``held[f, k]`` times in fold f and trained on with the rest of its weight.

    A weight is the same as repeating the row, so a row's copies may fall into different folds.
    """

    held: np.ndarray

    def expanded_rows(self, sample: Sample) -> list[np.ndarray]:
        """Return, for each fold, the validated rows of the weight-expanded data, group by group."""
        start = np.concatenate(([0], np.cumsum(sample.weights)))[:-1] + np.cumsum(self.held, axis=0) - self.held
        out = []
        by_group = np.argsort(sample.response, kind="stable")
        for held, first in zip(self.held, start, strict=True):
            copies = held[by_group].astype(np.intp)
            within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
            out.append(np.repeat(first[by_group].astype(np.intp), copies) + within)
        return out


def _fold_sizes(total: float, nfold: int) -> np.ndarray:
    """Return R's fold sizes: ``max(1, total // nfold)`` each, the last takes the rest."""
    each = max(1, int(total) // nfold)
    edges = np.minimum(np.arange(nfold + 1) * each, total)
    edges[-1] = total
    return np.diff(edges)


def consecutive_folds(sample: Sample, nfold: int) -> Folds:
    """Return R's folds: consecutive blocks within each response group, not shuffled."""
    held = np.zeros((nfold, sample.n))
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        end = np.cumsum(sample.weights[rows])
        edge = np.concatenate(([0.0], np.cumsum(_fold_sizes(end[-1] if len(end) else 0.0, nfold))))
        inside = np.minimum(end, edge[1:, None]) - np.maximum(end - sample.weights[rows], edge[:-1, None])
        held[:, rows] = np.maximum(inside, 0.0)
    return Folds(held)


def shuffled_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return folds of the same sizes, drawn at random within each response group."""
    held = np.zeros((nfold, sample.n))
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        # every copy of a row is dealt by itself: a random order of all copies, cut at the fold sizes
        copies = rng.permutation(np.repeat(rows, sample.weights[rows].astype(np.intp)))
        cuts = np.cumsum(_fold_sizes(len(copies), nfold)).astype(np.intp)[:-1]
        for f, part in enumerate(np.split(copies, cuts)):
            np.add.at(held[f], part, 1.0)
    return Folds(held)


def splitter_folds(sample: Sample, splitter) -> Folds:
    """Return the folds of a scikit-learn splitter (or an iterable of train/validation row positions)."""
    held = []
    try:
        for _, validation in splitter.split(sample.codes, sample.y) if hasattr(splitter, "split") else splitter:
            rows = np.zeros(sample.n)
            rows[np.asarray(validation)] = sample.weights[np.asarray(validation)]
            held.append(rows)
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"cv gives no folds of these {sample.n} rows ({error}). Give a scikit-learn splitter, or pairs of row "
            "positions (train, validation).",
            argument="cv",
        ) from error
    if len(held) < 2:
        raise OptionError("cv gives fewer than 2 folds.", argument="cv")
    return Folds(np.array(held))


@dataclass(frozen=True)
class Scored:
    """Pooled validation predictions of every setting.

    Attributes
    ----------
    scores : ndarray, shape (S, N, K)
        Class scores ``ln p_y + E_y - ln Z_y`` of the N validated rows (fold by fold), for each of S settings.
    y, weights, fold : ndarray, shape (N,)
    last : list of Estimate
        The last fold's fit at each setting.
    found : list of str
        What did not converge, in words.
    """

    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    fold: np.ndarray
    last: list[Estimate]
    found: list[str]


def _run_fold(
    sample: Sample, held: np.ndarray, labels: Labels, layout: Layout, engine: Engine, values, log_z: str, rng
) -> tuple[list[Estimate], np.ndarray, np.ndarray]:
    """Fit on what one fold leaves, and score what it holds."""
    train = sample.weighted(sample.weights - held)
    if not train.n:
        raise DataError("A fold leaves no rows to train on; give fewer folds (nfold) or more data.", argument="nfold")
    try:
        fits = estimate_path(train, layout, len(labels.groups), engine, values, log_z=log_z, rng=rng, labels=labels)
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
) -> Scored:
    """Fit every setting on every fold; the settings of a fold share warm starts or one eigendecomposition."""
    K = len(labels.groups)
    nfold, fitted = len(folds.held), engine.restrict(layout)
    models = K * nfold * (1 if values is None else len(values))
    check_annealing(log_z, fitted, models, workers)
    guard_memory(sample.n, fitted, K, engine, values, min(workers, nfold), folds=nfold)
    rngs = rng.spawn(nfold)
    tasks = [(sample, held, labels, layout, engine, values, log_z, r) for held, r in zip(folds.held, rngs, strict=True)]
    runs = run_tasks(_run_fold, tasks, workers, progress)
    rows = np.concatenate([run[2] for run in runs])
    weights = np.concatenate([held[run[2]] for held, run in zip(folds.held, runs, strict=True)])
    found = [f"fold {f + 1}, {text}" for f, run in enumerate(runs) for fit in run[0] for text in problems(fit, labels)]
    scores = np.concatenate([run[1] for run in runs], axis=1)
    fold = np.repeat(np.arange(len(runs)), [len(run[2]) for run in runs])
    return Scored(scores, sample.response[rows], weights, fold, runs[-1][0], found)


def calibrated(scored: Scored, scores: np.ndarray, kind: str) -> np.ndarray:
    """Return the scores (N, K) of one setting, each fold calibrated on the others."""
    if kind == "none":
        return scores
    out = np.empty_like(scores)
    for f in range(int(scored.fold.max()) + 1):
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
        by_fold = [scored.fold == f for f in range(int(scored.fold.max()) + 1)]
        losses.append([SCORES["logloss"](log_p[f], scored.y[f], scored.weights[f]) for f in by_fold])
    table = np.array(losses)
    error = table[best].std(ddof=1) / np.sqrt(table.shape[1])
    good = np.flatnonzero(table.mean(axis=1) <= table[best].mean() + error)
    order = values[good] if simpler == "larger" else -values[good]
    return int(good[np.argmax(order)]) if len(good) else best
