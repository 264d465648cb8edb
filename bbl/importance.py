"""Importance of predictors: log-losses of a classifier with one predictor summed out, against those
with all.

n rows, m predictors, K classes. The log-loss of a row is ``-ln P(its class | its predictors)``. A
`Sample` has the codes (n, m) of rows, marks `missing` (n, m) or None, and the classes `response`
(n,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl.crossval import Classifier, cross_validate
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities, row_loss

__all__ = ["losses_without", "validated_losses"]


@dataclass(frozen=True)
class Without:
    """A classifier that sums predictor `i` out of every row; with `i` = -1 it uses all
    predictors.
    """

    classifier: Classifier
    i: int

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows, predictor `i` being treated as
        missing.
        """
        if self.i >= 0:
            missing = np.zeros(codes.shape, dtype=bool) if missing is None else missing.copy()
            missing[:, self.i] = True
        return self.classifier.class_scores(codes, missing)


def losses_without(classifier: Classifier, rows: Sample) -> np.ndarray:
    """Return the log-losses (1 + m, n) of rows: row 0 with all m predictors, row 1 + i without
    predictor i.
    """
    scores = (
        Without(classifier, i).class_scores(rows.codes, rows.missing)
        for i in range(-1, rows.codes.shape[1])
    )
    return np.array(
        [row_loss(log_probabilities(class_scores), rows.response) for class_scores in scores]
    )


def validated_losses(
    sample: Sample,
    folds: Folds,
    refit: Callable,
    rngs: list,
    workers: int,
    progress: Callable | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cross-validate `losses_without`; return losses (1 + m, N), groups (N,) and weights (N,) of N
    validated rows.

    ``refit(train, rng)`` returns a classifier that is fitted to the training rows of a fold; `rngs`
    has one generator for each fold. `workers` threads share the folds; `progress` is called after
    each.
    """

    def fit(train: Sample, rng: np.random.Generator) -> list[Without]:
        """Return the refitted classifier as 1 + m settings: with all predictors, then without each
        of them.
        """
        fold_model = refit(train, rng)
        return [Without(fold_model, i) for i in range(-1, sample.codes.shape[1])]

    # scored.scores: (1 + m, N, K), of the N validated rows; scored.y, scored.weights: (N,)
    scored = cross_validate(
        sample, folds, fit, [(rng,) for rng in rngs], workers=workers, progress=progress
    )
    losses = np.array(
        [row_loss(log_probabilities(class_scores), scored.y) for class_scores in scored.scores]
    )
    return losses, scored.y, scored.weights
