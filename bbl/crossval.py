"""Cross-validation of models that score rows: fit the model in each fold, pool the scores, compare
settings.
"""

# Letters: S settings (values of a penalty or another option), F folds, K response groups, N
# validation rows in all folds.
#
# A fold has the methods `training`, which returns its training rows, ``group_totals(sample, K)``,
# their total weights by group, and `validation`, which returns the validation rows (`codes` (n, m),
# a mask `missing` (n, m) or None, and groups `response` (n,)), their weights, and their positions
# in the sample. ``folds.one(f)`` is fold f.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bbl.errors import DataError
from bbl.parallel import run_tasks
from bbl.rows.fold_assignment import AnyFolds
from bbl.rows.folds import Fold
from bbl.rows.sample import Rows
from bbl.stats.calibration import fit_calibration
from bbl.stats.metrics import SCORES, auc, link, log_probabilities, log_share, mean_loss

__all__ = [
    "Classifier",
    "Refit",
    "Scored",
    "Scores",
    "calibrated",
    "check_trained",
    "cross_validate",
    "fold_log_shares",
    "one_standard_error",
    "score_settings",
]

# scores for which lower values are better; for all other scores, higher values are better
LESS_IS_BETTER = ("logloss", "brier", "pnll")


# Maps level codes (n, m) and a mask of missing values (n, m) or None to class scores (n, K).
Scores = Callable[[np.ndarray, "np.ndarray | None"], np.ndarray]


class Classifier(Protocol):
    """Interface of a cross-validated model, which returns class scores of encoded rows."""

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K)."""
        ...


class Refit(Classifier, Protocol):
    """A model that was refitted to other rows, and can be averaged with other such models."""

    @property
    # the predictors that must be observed to score a row, or None
    def needed(self) -> np.ndarray | None: ...


@dataclass(frozen=True)
class Scored:
    """Out-of-fold scores for each setting, pooled over the folds.

    Attributes
    ----------
    scores : ndarray, shape (S, N, K)
        Class scores of the validation rows, fold by fold, from models that were not fitted to these
        rows.
    y, weights, fold, rows : ndarray, shape (N,)
        Group, weight and fold of each row, and its position in the sample (-1 for rows in a file).
    fits : list of lists of Classifier
        ``fits[f][s]`` is the model with setting s, fitted to the training rows of fold f.
    score_method : str
        Name of the models' method that returned the scores, such as ``"class_scores"``.
    """

    scores: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    fold: np.ndarray
    rows: np.ndarray
    fits: list[list[Any]]
    score_method: str

    def log_shares(self, totals: np.ndarray) -> np.ndarray:
        """Return the log class proportions in the training rows of each fold, shape (F, K).

        `totals` (K,) contains the weight of each group in all rows. Each row is a validation row in
        one fold and a training row in all others.
        """
        # the initial value is needed without validation rows
        K = len(totals)
        n_folds = self.fold.max(initial=0) + 1
        # weights of the validation rows, one bin for each fold and group
        validation_totals = np.bincount(
            self.fold * K + self.y, weights=self.weights, minlength=n_folds * K
        )
        # the maximum is needed because rounding errors may result in differences slightly below 0
        return log_share(np.maximum(totals - validation_totals.reshape(-1, K), 0.0))

    def log_loss(self, scores: np.ndarray, selected: np.ndarray | slice = slice(None)) -> float:
        """Return the weighted mean of ``-ln P(y | x)``, given the class scores (N, K) for a
        setting.

        With K = 1 (no response), scores are ``ln P(x)``, and the negative of their mean is
        returned. `selected` is a mask (N,) that restricts the mean to some of the validation rows.
        """
        scores = scores[selected]
        y = self.y[selected]
        weights = self.weights[selected]
        if scores.shape[1] == 1:
            return mean_loss(-scores[:, 0], weights)
        return SCORES["logloss"](log_probabilities(scores), y, weights)


def check_trained(n: float) -> None:
    """Raise a DataError if `n`, the number or weight of a fold's training rows, is 0."""
    if not n:
        raise DataError(
            "A fold has no training rows.",
            argument="nfold",
            hint=(
                "Pass more rows, use fewer folds (nfold in crossVal), or avoid cross-validation: "
                "pass numbers instead of 'cv', and omit the calibrate argument."
            ),
        )


def _run_fold(
    sample: Rows, fold: Fold, fit: Callable, score_method: str, *arguments: Any
) -> tuple[Sequence[Classifier], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Fit the models with all settings to the training rows of a fold, and score its validation
    rows.

    ``fit(training_rows, *arguments)`` returns the S models, whose method named `score_method`
    scores rows. Return these models, their scores (S, n, K), and the group, weight and position in
    `sample` of each of the n validation rows.
    """
    training_rows = fold.training(sample)
    check_trained(training_rows.n)
    try:
        fits = fit(training_rows, *arguments)
    except DataError as error:
        raise DataError(
            f"In the training rows of a fold: {error.message}",
            hint=error.hint,
            column=error.column,
            argument=error.argument,
            value=error.value,
        ) from None
    validation, weights, positions = fold.validation(sample)
    # the method of this name of each model
    scores = np.array(
        [getattr(fold_fit, score_method)(validation.codes, validation.missing) for fold_fit in fits]
    )
    return fits, scores, validation.response, weights, positions


def cross_validate(
    sample: Rows,
    folds: AnyFolds,
    fit: Callable[..., Sequence[Classifier]],
    arguments: Sequence[tuple] | None = None,
    *,
    score_method: str = "class_scores",
    workers: int = 1,
    progress: Callable | None = None,
) -> Scored:
    """Fit models to the training rows of each fold, score the validation rows, and pool the scores.

    Parameters
    ----------
    sample : Rows
    folds : Folds or StoredFolds
    fit : callable
        ``fit(train, *fold_arguments)`` returns one fitted model for each setting.
    arguments : sequence of F tuples, optional
        The ``fold_arguments`` of each fold, such as its random generator and warm starts; empty
        tuples by default.
    score_method : str, default "class_scores"
        Name of the models' method that scores rows: it maps ``(codes, missing)`` to an array (n,
        K).
    workers : int, default 1
        Number of workers among which the folds are divided. Workers are threads, or processes if
        the user has set a process-based joblib backend and the rows are in memory; see `run_tasks`.
    progress : callable, optional
        Called without arguments after each fold.
    """
    fold_arguments = [()] * len(folds) if arguments is None else arguments
    tasks = [
        (sample, folds.one(f), fit, score_method, *extra_arguments)
        for f, extra_arguments in enumerate(fold_arguments)
    ]
    # `run_tasks` uses threads unless the user has set a joblib backend with processes, to which
    # tasks are pickled. shared=True requires threads, because rows outside memory belong to an open
    # file or a client, which cannot be pickled.
    fold_results = run_tasks(_run_fold, tasks, workers, progress, shared=not sample.in_memory)
    # F elements each
    fits, fold_scores, fold_y, fold_weights, fold_rows = zip(*fold_results, strict=True)
    scores = np.concatenate(fold_scores, axis=1)
    y, weights, rows = (
        np.concatenate(fold_arrays) for fold_arrays in (fold_y, fold_weights, fold_rows)
    )
    fold = np.repeat(np.arange(len(fold_results)), [len(positions) for positions in fold_rows])
    return Scored(scores, y, weights, fold, rows, [list(models) for models in fits], score_method)


def fold_log_shares(sample: Rows, folds: AnyFolds, K: int) -> np.ndarray:
    """Return the log class proportions in the training rows of each fold, shape (F, K)."""
    return log_share(np.array([folds.one(f).group_totals(sample, K) for f in range(len(folds))]))


def calibrated(scored: Scored, scores: np.ndarray, kind: str) -> np.ndarray:
    """Return the class scores (N, K) for a setting; the scores of each fold are calibrated on the
    scores of the other folds.

    `kind` is "offset" or "temperature" (see `fit_calibration`), or "none" to return the scores
    unchanged. If there is only one fold, its even-numbered and odd-numbered rows are calibrated on
    each other. The optimisation of each calibration starts from the calibration on all rows.
    """
    if kind == "none":
        return scores
    calibrated_scores = np.empty_like(scores)
    all_rows_calibration = fit_calibration(scores, scored.y, scored.weights, kind)
    # if there is one fold, even and odd rows
    fold = scored.fold if len(np.unique(scored.fold)) > 1 else np.arange(len(scores)) % 2
    for f in np.unique(fold):
        in_fold = np.flatnonzero(fold == f)
        others = np.flatnonzero(fold != f)
        # take is five times faster than a mask
        calibration = fit_calibration(
            scores.take(others, axis=0),
            scored.y[others],
            scored.weights[others],
            kind,
            all_rows_calibration,
        )
        calibrated_scores[in_fold] = calibration(scores.take(in_fold, axis=0))
    return calibrated_scores


def score_settings(scored: Scored, score: str, calibrate: str = "none") -> tuple[np.ndarray, int]:
    """Return the scores of all S settings, and the position of the best setting.

    `score` is ``"auc"``, ``"logloss"``, ``"pnll"`` (without a response, the mean negative log
    pseudo-likelihood of the rows) or another key of `SCORES`; `calibrate` is the `kind` in
    `calibrated`. For ``"auc"``, the table has shape (S, 3) and contains the value and its lower and
    upper confidence limits; otherwise, it has shape (S, 1). A setting whose score is nan is the
    best only if all scores are nan.
    """
    table: list[tuple[float, ...]] = []
    for setting_scores in scored.scores:
        scores = calibrated(scored, setting_scores, calibrate)
        if score == "auc":
            # log odds of the second of the two groups
            table.append(auc(link(scores)[:, 1], scored.y == 1, scored.weights))
        elif score in ("logloss", "pnll"):
            table.append((scored.log_loss(scores),))
        else:  # a function of log-probabilities (N, K), groups (N,) and weights (N,)
            table.append((SCORES[score](log_probabilities(scores), scored.y, scored.weights),))
    values = np.array(table)  # scores, as opposed to the values of the settings: (S, 3) or (S, 1)
    to_maximise = -values[:, 0] if score in LESS_IS_BETTER else values[:, 0]
    return values, int(np.argmax(np.where(np.isnan(to_maximise), -np.inf, to_maximise)))


def one_standard_error(
    scored: Scored, values: np.ndarray, best: int, calibrate: str, simpler: str
) -> int:
    """Return the position of the simplest setting within one standard error of the `best` log-loss.

    Given the losses l_f of F folds, setting s is within one standard error if ``mean l_f(s) <= mean
    l_f(best) + sd l_f(best) / sqrt(F)``. `values` (S,) contains the value of the penalty or option
    in each setting. `simpler` is ``"larger"`` if larger values result in simpler models, as for
    penalties, or ``"smaller"``, as for ``eps``, the weight of the couplings in mean field.
    `calibrate` is the `kind` in `calibrated`.
    """
    # folds without rows are omitted
    fold_masks = [scored.fold == f for f in np.unique(scored.fold)]
    losses = []
    for setting_scores in scored.scores:
        scores = calibrated(scored, setting_scores, calibrate)
        losses.append([scored.log_loss(scores, mask) for mask in fold_masks])  # l_f of each fold f
    loss_table = np.array(losses)  # (S, folds)
    # standard error of the mean over folds
    standard_error = loss_table[best].std(ddof=1) / np.sqrt(loss_table.shape[1])
    candidates = np.flatnonzero(loss_table.mean(axis=1) <= loss_table[best].mean() + standard_error)
    simplicity = values[candidates] if simpler == "larger" else -values[candidates]
    # nan losses leave no candidates
    return int(candidates[np.argmax(simplicity)]) if len(candidates) else best
