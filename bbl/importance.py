"""Importance of predictors: log-losses of a classifier after marginalising over one predictor.

The numbers of rows, predictors and classes are n, m and K. The log-loss of a row is ``-ln P(its
class | its predictors)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl.crossval import Scores, cross_validate
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities, row_loss

__all__ = ["losses_without", "validated_losses"]


@dataclass(frozen=True)
class Without:
    """A classifier with these `scores` that marginalises over predictor `i` in every row.

    If `i` is -1, all predictors are used.
    """

    scores: Scores
    i: int

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows, where predictor `i` is treated as
        missing.
        """
        if self.i >= 0:
            missing = np.zeros(codes.shape, dtype=bool) if missing is None else missing.copy()
            missing[:, self.i] = True
        return self.scores(codes, missing)


def losses_without(scores: Scores, rows: Sample) -> np.ndarray:
    """Return the log-losses (1 + m, n) of a classifier with these class `scores`.

    Row 0 contains the losses with all m predictors, and row 1 + i the losses without predictor i.
    """
    scores_without = (
        Without(scores, i).class_scores(rows.codes, rows.missing)
        for i in range(-1, rows.codes.shape[1])
    )
    return np.array(
        [
            row_loss(log_probabilities(class_scores), rows.response)
            for class_scores in scores_without
        ]
    )


def validated_losses(
    sample: Sample,
    folds: Folds,
    refit: Callable,
    rngs: list,
    workers: int,
    progress: Callable | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cross-validate `losses_without`.

    Return the losses (1 + m, N), groups (N,) and weights (N,) of the N held-out rows.

    ``refit(train, rng)`` returns a classifier fitted to the training rows of a fold; `rngs`
    contains one generator for each fold. The folds are processed by `workers` threads; `progress`
    is called after each fold.
    """

    def fit(train: Sample, rng: np.random.Generator) -> list[Without]:
        """Return the refitted classifier with 1 + m settings: with all predictors, and without each
        of them.
        """
        fold_model = refit(train, rng)
        return [Without(fold_model.class_scores, i) for i in range(-1, sample.codes.shape[1])]

    # scored.scores: (1 + m, N, K), scored.y and scored.weights: (N,), of the N held-out rows
    scored = cross_validate(
        sample, folds, fit, [(rng,) for rng in rngs], workers=workers, progress=progress
    )
    losses = np.array(
        [row_loss(log_probabilities(class_scores), scored.y) for class_scores in scored.scores]
    )
    return losses, scored.y, scored.weights
