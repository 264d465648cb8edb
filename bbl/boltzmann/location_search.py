"""Select the options of a location model by cross-validation."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from bbl.errors import DataError
from bbl.model.location import LocationModel
from bbl.model.moments import level_counts, smoothed
from bbl.rows.folds import systematic_folds
from bbl.rows.sample import Sample
from bbl.stats.metrics import first_largest, log_probabilities

__all__ = ["choose_location"]

NFOLD = 5
# the settings of each option, the simplest first, which is chosen if losses are equal
SETTINGS: dict[str, tuple[Any, ...]] = {
    "covariance": ("shared", "group"),
    "transform": ("none", "normal"),
    "shrink": (0.0, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0),
}


def choose_location(rows: Sample, K: int, model: LocationModel) -> LocationModel:
    """Return the location model, with unspecified options selected by out-of-fold log-loss.

    Scores are computed with naive Bayes for the categorical predictors. For data without classes,
    the loss is minus the log density of the numeric predictors. Folds do not depend on random
    numbers or on the order of the rows. Moments are computed once for each fold and transformation,
    and reused for all settings.
    """
    names = model.undecided
    candidates = [
        replace(model, tuned=names, **dict(zip(names, values, strict=True)))
        for values in itertools.product(*(SETTINGS[name] for name in names))
    ]
    losses = np.zeros(len(candidates))
    folds = systematic_folds(rows, NFOLD)
    for train_weights, held_weights in zip(folds.train, folds.validation_weights, strict=True):
        if not train_weights.any() or not held_weights.any():
            continue
        train = _weighted(rows, train_weights)
        held = _weighted(rows, held_weights)
        of_levels = _naive_scores(train, held, K, model) if K > 1 else np.zeros((held.n, 1))
        for transform in dict.fromkeys(candidate.transform for candidate in candidates):
            scores = replace(model, transform=transform).normal_scores(train)
            T = model.moments(train, K, scores)
            for k, candidate in enumerate(candidates):
                if candidate.transform != transform:
                    continue
                try:
                    location = candidate.from_moments(T, scores)
                except DataError:  # a singular covariance
                    losses[k] = np.inf
                    continue
                densities = of_levels + location.log_density(held.codes)
                if K > 1:
                    densities = log_probabilities(densities)
                own = densities[np.arange(held.n), held.response]
                losses[k] -= held.weights @ own
    return candidates[int(first_largest(-losses))]


def _weighted(rows: Sample, weights: np.ndarray) -> Sample:
    """Return the rows that have positive weights, with these weights."""
    positions = np.flatnonzero(weights > 0.0)
    return replace(rows.rows(positions), weights=weights[positions])


def _naive_scores(train: Sample, held: Sample, K: int, model: LocationModel) -> np.ndarray:
    """Return naive Bayes class scores (n, K) of held-out rows from the categorical predictors.

    The prior count is 1. Unknown levels are ignored.
    """
    levels = model.without_numbers(held)
    n_levels = model.n_levels[model.categories]
    totals = train.group_totals(K)
    out = np.tile(np.log(totals + 0.5), (held.n, 1))
    for g in range(K):
        shares = smoothed(level_counts(model.without_numbers(train.group(g)), n_levels), 1.0)
        for i, share in enumerate(shares):
            known = np.ones(held.n) if levels.missing is None else ~levels.missing[:, i]
            out[:, g] += known * np.log(share)[levels.codes[:, i].astype(np.intp)]
    return out
