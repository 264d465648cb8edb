"""First section of a classifier's HTML report: accuracy, calibration and the most important
predictors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from bbl.boltzmann.prediction_checks import naive_scores
from bbl.crossval import Scores
from bbl.errors import OptionError
from bbl.importance import losses_without
from bbl.report.page import Card, Part
from bbl.report.text import label_text
from bbl.results.evaluation import Evaluation
from bbl.rows.sample import Sample
from bbl.stats.metrics import calibration_error, log_loss, log_probabilities, log_share, mean_loss

__all__ = ["overview_part"]

MAX_SCORED_ROWS = 1000  # rows that are scored again without each predictor
MAX_PREDICTORS = 100  # with more predictors, their importance is not computed
N_DRIVERS = 3  # most important predictors that are named
MIN_INCREASE = 1e-3  # smallest increase in log-loss for which a predictor is named
# mean distance of predicted probabilities from observed proportions that is called small
SMALL_CALIBRATION_ERROR = 0.03


def overview_part(
    evaluation: Evaluation,
    class_scores: Scores,
    counts: Sequence[np.ndarray],
    shares: np.ndarray,
    rows: Sample,
    are_new: bool,
) -> Part:
    """Return the section that summarises the predictions in sentences.

    Parameters
    ----------
    evaluation : Evaluation
    class_scores : callable
        Returns the class scores of encoded rows.
    counts : sequence of ndarrays, shape (K, L_i)
        For each predictor, the weighted counts of its L_i levels in the training rows of each of
        the K groups.
    shares : ndarray, shape (K,)
        Class proportions in the training rows.
    rows : Sample
        The encoded rows of `evaluation`, or a sample of them; may be empty.
    are_new : bool
        Whether these are new rows instead of training rows.
    """
    naive_loss = None
    if rows.n and not evaluation.labels.numbers:  # numbers have no level counts
        scores = naive_scores(counts, log_share(shares), rows)  # class scores of naive Bayes (n, K)
        naive_loss = log_loss(log_probabilities(scores), rows.response, rows.weights)
    sentences = [
        _accuracy_sentence(evaluation),
        _loss_sentence(evaluation, naive_loss),
        _calibration_sentence(evaluation),
    ]
    if rows.n and rows.codes.shape[1] <= MAX_PREDICTORS:
        with suppress(OptionError):  # the model may be unable to marginalise over predictors
            sentences.append(_drivers_sentence(class_scores, rows, evaluation.labels.names))
    if not are_new:
        sentences.append(
            "These scores are from the training rows. Expect less accurate predictions on new rows."
        )
    return Part("In short", sentences, cards=_key_figures(evaluation))


def _key_figures(evaluation: Evaluation) -> list[Card]:
    """Return the scores as cards, with the scores obtained without predictors for comparison."""
    scores = evaluation.scores
    cards = []
    for name, title, is_share in (
        ("accuracy", "Accuracy", True),
        ("AUC", "AUC", False),
        ("log-loss", "Log-loss", False),
        ("Brier score", "Brier score", False),
    ):
        estimate, baseline = scores.loc[name, ["estimate", "baseline"]].to_numpy(float)
        value, other = (
            f"{number:.1%}" if is_share else f"{number:.3f}" for number in (estimate, baseline)
        )
        cards.append(Card(title, value, f"{other} without predictors"))
    return cards


def _accuracy_sentence(evaluation: Evaluation) -> str:
    """Return a sentence that compares the accuracy with always predicting the most frequent
    group.
    """
    accuracy, baseline = evaluation.scores.loc["accuracy", ["estimate", "baseline"]].to_numpy(float)
    return (
        f"Of the {evaluation.what}, {accuracy:.1%} are classified correctly. Always predicting "
        f"the most frequent group would give {baseline:.1%}."
    )


def _loss_sentence(evaluation: Evaluation, naive_loss: float | None) -> str:
    """Return a sentence that compares the log-loss with the log-loss of the class proportions.

    If `naive_loss`, the log-loss of naive Bayes, is not None, it is included in the comparison.
    """
    # ``loss`` of the predictions, and ``baseline``, the log-loss of the class proportions
    record = evaluation.log_loss
    if record.is_worse:
        return record.verdict  # a warning
    text = (
        f"The log-loss is {record.loss:.3g}, compared with {record.baseline:.3g} for the class "
        "proportions"
    )
    if naive_loss is None:
        return f"{text}."
    return (
        f"{text} and {naive_loss:.3g} for naive Bayes, which has no interactions (lower is better)."
    )


def _calibration_sentence(evaluation: Evaluation) -> str:
    """Return a sentence on the calibration, i.e. the distance between predicted probabilities and
    observed proportions.
    """
    p = np.exp(log_probabilities(evaluation.class_scores))
    # mean distance from observed proportions
    error = calibration_error(p, evaluation.observed, evaluation.weights)
    verdict = (
        "they are well calibrated"
        if error <= SMALL_CALIBRATION_ERROR
        else "interpret them with caution"
    )
    return (
        f"Predicted probabilities are {100.0 * error:.1f} percentage points away from the "
        f"observed proportions on average: {verdict}."
    )


def _drivers_sentence(class_scores: Scores, rows: Sample, names: Sequence) -> str:
    """Return a sentence on the predictors whose removal increases the log-loss most."""
    rows = rows.systematic_sample(MAX_SCORED_ROWS) if rows.n > MAX_SCORED_ROWS else rows
    # mean log-loss with all predictors, then without each of them
    losses = [mean_loss(loss, rows.weights) for loss in losses_without(class_scores, rows)]
    increase = np.array(losses[1:]) - losses[0]
    drivers = [
        int(i)
        for i in np.argsort(-increase, kind="stable")[:N_DRIVERS]
        if increase[i] > MIN_INCREASE
    ]
    if not drivers:
        return "No single predictor reduces the log-loss substantially."
    driver_list = "; ".join(f"{label_text(names[i])} (+{increase[i]:.3f})" for i in drivers)
    return f"Most important predictors, by the increase in log-loss without them: {driver_list}."
