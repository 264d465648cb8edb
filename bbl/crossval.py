"""Cross-validation of anything that scores rows: pooled scores of all folds, one figure per setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bbl.errors import DataError
from bbl.parallel import run_tasks
from bbl.rows.dealing import AnyFolds
from bbl.rows.folds import Fold
from bbl.rows.sample import Rows
from bbl.stats.calibration import fit_calibration
from bbl.stats.loss_record import log_share
from bbl.stats.metrics import SCORES, auc, mean_loss
from bbl.stats.scores import link, log_probabilities

__all__ = [
    "Scored",
    "calibrated",
    "check_trained",
    "cross_validate",
    "fold_log_shares",
    "one_standard_error",
    "score_settings",
]


class Classifier(Protocol):
    """Interface of a cross-validated model: class scores of encoded rows."""

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K)."""
        ...


@dataclass(frozen=True)
class Scored:
    """Pooled validation predictions of every setting.

    Attributes
    ----------
    scores : ndarray, shape (S, N, K)
        Class scores of the N validated rows (fold by fold), for each of S settings.
    y, weights, fold, rows : ndarray, shape (N,)
        Group, weight and fold of each, and its position in the sample (-1 of rows in a file).
    fits : list of lists of Classifier
        What was fitted in each fold, at each setting.
    judge : str
        Which method of the fits the scores are of.
    """

    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    fold: np.ndarray
    rows: np.ndarray
    fits: list[list[Any]]
    judge: str

    def log_shares(self, totals: np.ndarray) -> np.ndarray:
        """Return the logarithms of the groups' shares in the rows that each fold leaves, shape (F, K).

        `totals` (K,) are the groups' weights in all rows, which the folds part.
        """
        cells = self.fold * len(totals) + self.y
        held = np.bincount(cells, self.weights, (self.fold.max(initial=0) + 1) * len(totals))
        return log_share(np.maximum(totals - held.reshape(-1, len(totals)), 0.0))

    def log_loss(self, scores: np.ndarray, at: np.ndarray | slice = slice(None)) -> float:
        """Return the log-loss of the groups by the scores (N, K) of a setting; of one group, that of the rows."""
        scores, y, weights = scores[at], self.y[at], self.weights[at]
        if scores.shape[1] == 1:
            return mean_loss(-scores[:, 0], weights)
        return SCORES["logloss"](log_probabilities(scores), y, weights)


def check_trained(n: float) -> None:
    """Raise a DataError if a fold has no training rows."""
    if not n:
        raise DataError(
            "A fold leaves no rows to train on. Give more rows. crossVal takes fewer folds (nfold); a fit whose "
            "options are numbers, without calibrate, needs none.",
            argument="nfold",
        )


def _run_fold(
    sample: Rows, fold: Fold, fit: Callable, judge: str, *arguments: Any
) -> tuple[Sequence[Classifier], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Fit on the training rows of a fold; return fits, scores, and group, weight, position of validation rows."""
    train = fold.training(sample)
    check_trained(train.n)
    try:
        fits = fit(train, *arguments)
    except DataError as error:
        text = f"In the training rows of a fold: {error}"
        raise DataError(text, column=error.column, argument=error.argument) from None
    held, weights, rows = fold.validation(sample)
    scores = np.array([getattr(fold_fit, judge)(held.codes, held.missing) for fold_fit in fits])
    return fits, scores, held.response, weights, rows


def cross_validate(
    sample: Rows,
    folds: AnyFolds,
    fit: Callable[..., Sequence[Classifier]],
    arguments: Sequence[tuple] | None = None,
    *,
    judge: str = "class_scores",
    workers: int = 1,
    progress: Callable | None = None,
) -> Scored:
    """Fit on the training rows of every fold, and score the rows that it validates.

    Parameters
    ----------
    fit : callable
        ``fit(train, *own)`` returns what is fitted to a sample, one for each setting; it knows the family of models.
    arguments : sequence of tuples, optional
        ``own`` of each fold: its generator, its warm starts; none by default.
    judge : str, default "class_scores"
        The method of what is fitted that scores rows: ``(codes, missing)`` to an array (n, K).
    workers : int, default 1
        Folds are spread over that many.
    """
    fold_arguments = [()] * len(folds) if arguments is None else arguments
    tasks = [(sample, folds.one(f), fit, judge, *extra_arguments) for f, extra_arguments in enumerate(fold_arguments)]
    runs = run_tasks(_run_fold, tasks, workers, progress, shared=not sample.in_memory)
    scores = np.concatenate([run[1] for run in runs], axis=1)
    y, weights, rows = (np.concatenate([run[k] for run in runs]) for k in (2, 3, 4))
    fold = np.repeat(np.arange(len(runs)), [len(run[4]) for run in runs])
    return Scored(scores, y, weights, fold, rows, [list(run[0]) for run in runs], judge)


def fold_log_shares(sample: Rows, folds: AnyFolds, K: int) -> np.ndarray:
    """Return the logarithms of the groups' shares in the training rows of each fold, shape (F, K)."""
    return log_share(np.array([folds.one(f).group_totals(sample, K) for f in range(len(folds))]))


def calibrated(scored: Scored, scores: np.ndarray, kind: str) -> np.ndarray:
    """Return the scores (N, K) of one setting, each fold calibrated on the others; of a single one each half of it."""
    if kind == "none":
        return scores
    out = np.empty_like(scores)
    calibration = fit_calibration(scores, scored.y, scored.weights, kind)
    parts = scored.fold if len(np.unique(scored.fold)) > 1 else np.arange(len(scores)) % 2
    for f in np.unique(parts):
        here = parts == f
        fitted = fit_calibration(scores[~here], scored.y[~here], scored.weights[~here], kind, calibration)
        out[here] = fitted(scores[here])
    return out


def score_settings(scored: Scored, score: str, calibrate: str = "none") -> tuple[np.ndarray, int]:
    """Return the table of scores (S, 3) for ``"auc"`` (value, lower, upper) or (S, 1) else, and the best row."""
    table: list[tuple[float, ...]] = []
    for setting in scored.scores:
        scores = calibrated(scored, setting, calibrate)
        if score == "auc":
            table.append(auc(link(scores)[:, 1], scored.y == 1, scored.weights))
        elif score in ("logloss", "pnll"):
            table.append((scored.log_loss(scores),))
        else:
            table.append((SCORES[score](log_probabilities(scores), scored.y, scored.weights),))
    values = np.array(table)
    column = -values[:, 0] if score in ("logloss", "brier", "pnll") else values[:, 0]
    return values, int(np.argmax(np.where(np.isnan(column), -np.inf, column)))


def one_standard_error(scored: Scored, values: np.ndarray, best: int, calibrate: str, simpler: str) -> int:
    """Return the simplest setting whose log-loss is within one standard error (over folds) of the best one's.

    `simpler` is ``"larger"`` where larger values are simpler (penalties), ``"smaller"`` for ``eps``.
    """
    losses = []
    for setting in scored.scores:
        scores = calibrated(scored, setting, calibrate)
        by_fold = [scored.fold == f for f in np.unique(scored.fold)]  # some folds may be empty
        losses.append([scored.log_loss(scores, f) for f in by_fold])
    table = np.array(losses)
    error = table[best].std(ddof=1) / np.sqrt(table.shape[1])
    good = np.flatnonzero(table.mean(axis=1) <= table[best].mean() + error)
    order = values[good] if simpler == "larger" else -values[good]
    return int(good[np.argmax(order)]) if len(good) else best
