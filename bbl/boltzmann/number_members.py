"""Data and location models for the members of ``method="auto"`` with numeric predictors.

There are three types of members: methods for categorical predictors combined with a normal density
of the numeric predictors, methods that use intervals, and regressions.

A *member* is a tuned engine with its fit to all rows; see `bbl.boltzmann.averaging`. K, m, n, N and
q are the numbers of groups, predictors, rows, held-out rows and numeric predictors. The codes of a
numeric predictor are deviations from a centre.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.boltzmann.job import FitData
from bbl.crossval import Scored, calibrated
from bbl.design.labels import Labels
from bbl.design.numbers import NumberMoments
from bbl.errors import DataError
from bbl.model.layout import Layout
from bbl.model.location import LocationModel
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample, code_dtype
from bbl.stats.averaging import averaged_scores
from bbl.stats.cuts import quantile_cuts

__all__ = [
    "HeldOutDensities",
    "NumberIntervals",
    "choose_densities",
    "interval_data",
    "regressor_data",
]

INTERVALS = 5  # of each number, with about the same number of rows
PRIOR_COUNT = 1.0  # of the means and covariances of numbers, as of tables of levels in naive Bayes


@dataclass(frozen=True, eq=False)
class NumberIntervals:
    """Intervals that replace the values of the numeric predictors.

    Attributes
    ----------
    n_levels : ndarray of int, shape (m,)
        Number of levels of each predictor, where intervals count as levels.
    numbers : ndarray of int, shape (q,)
        Positions of the numeric predictors.
    cuts : tuple of q ndarrays
        Upper ends of all intervals except the last, as increasing codes.
    """

    n_levels: np.ndarray
    numbers: np.ndarray
    cuts: tuple[np.ndarray, ...]

    @classmethod
    def of_rows(cls, rows: Sample, n_levels: np.ndarray, numbers: np.ndarray) -> NumberIntervals:
        """Return intervals that contain approximately equal numbers of rows."""
        cuts = tuple(quantile_cuts(rows.codes[:, i], rows.weights, INTERVALS) for i in numbers)
        n_levels = np.array(n_levels)
        n_levels[numbers] = [len(own) + 1 for own in cuts]
        return cls(n_levels, numbers, cuts)

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """Return codes (n, m) with values of numeric predictors replaced by intervals."""
        out = np.array(codes, dtype=float)
        for i, cuts in zip(self.numbers, self.cuts, strict=True):
            out[:, i] = np.searchsorted(cuts, codes[:, i], side="left")
        return np.ascontiguousarray(out.astype(code_dtype(self.n_levels)))

    def rows(self, rows: Sample) -> Sample:
        """Return the rows with integer codes of intervals."""
        return replace(rows, codes=self(rows.codes))


def all_terms(layout: Layout, model: LocationModel) -> list[tuple[int, int]]:
    """Return the pairs of a formula: those in `layout`, and those with numeric predictors."""
    pairs = [(int(i), int(j)) for i, j in layout.pairs]
    for k, i in enumerate(model.numbers.tolist()):
        pairs += [(i, int(j)) for j in np.flatnonzero(model.partners[k])]
        pairs += [(i, int(model.numbers[j])) for j in range(k) if model.correlated[k, j]]
    return pairs


def interval_data(data: FitData, model: LocationModel, intervals: NumberIntervals) -> FitData:
    """Return the data with intervals of numeric predictors, and all terms of the formula."""
    labels = cast(Labels, data.labels)
    levels = list(labels.levels)
    n_ordered = np.array(data.layout.n_ordered)
    for i in model.numbers:
        levels[i] = tuple(f"interval {k + 1}" for k in range(intervals.n_levels[i]))
        n_ordered[i] = intervals.n_levels[i]
    layout = Layout(intervals.n_levels, all_terms(data.layout, model), n_ordered=n_ordered)
    return replace(
        data,
        sample=intervals.rows(data.rows),
        layout=layout,
        labels=Labels(labels.response, labels.groups, labels.names, tuple(levels)),
        selections={},
    )


def regressor_data(data: FitData, model: LocationModel) -> FitData:
    """Return the data with numeric predictors as regressors, and all terms of the formula."""
    rows = data.rows
    units = np.full((data.layout.m, 2), np.nan)
    n_levels = np.array(data.layout.n_levels)
    labels = cast(Labels, data.labels)
    levels = list(labels.levels)
    for i in model.numbers:
        moments = NumberMoments(labels.names[i])
        moments.add(rows.codes[:, i], rows.weights)
        units[i] = moments.mean, moments.sd
        n_levels[i] = 2
        levels[i] = ("mean", "slope")
    layout = Layout(
        n_levels,
        all_terms(data.layout, model),
        n_ordered=data.layout.n_ordered,
        numbers=units,
    )
    return replace(data, layout=layout, labels=replace(labels, levels=tuple(levels)), selections={})


@dataclass(frozen=True)
class HeldOutDensities:
    """A location model, and the log densities (N, K) of the numeric predictors in held-out rows."""

    model: LocationModel
    log_density: np.ndarray


def choose_densities(
    data: FitData,
    model: LocationModel,
    folds: Folds,
    scored: Sequence[Scored],
    calibrate: str,
) -> HeldOutDensities | None:
    """Return the variant of a location `model` with the smallest out-of-fold log-loss.

    Variants differ in `covariance` and `transform`, in whether the numeric predictors are
    correlated, and in whether their means depend on levels. `scored` contains the members'
    out-of-fold class scores from the categorical predictors, which are averaged with equal weights.
    The result is None if all variants have singular covariances.
    """
    log_p = averaged_scores(
        [calibrated(one, one.scores[0], calibrate) for one in scored],
        np.full(len(scored), 1.0 / len(scored)),
    )
    best: HeldOutDensities | None = None
    best_loss = np.inf
    for variant, densities in _held_out_densities(data, model, folds):
        scores = calibrated(scored[0], log_p + densities, calibrate)
        loss = scored[0].log_loss(scores, _is_possible(scored[0], scores))
        if loss < best_loss:
            best_loss = loss
            best = HeldOutDensities(variant, densities)
    return best


def _is_possible(scored: Scored, scores: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of the rows whose group has training rows in the row's fold."""
    return np.isfinite(scores[np.arange(len(scored.y)), scored.y])


def _held_out_densities(
    data: FitData, model: LocationModel, folds: Folds
) -> Iterator[tuple[LocationModel, np.ndarray]]:
    """Yield each variant of a location model with the log densities (N, K) of held-out rows.

    The variants are fitted to the training rows of each fold. Second moments are computed once for
    each fold and transformation, including the predictors with level effects.
    """
    sample = data.rows
    model = replace(
        model,
        prior_count=PRIOR_COUNT,
        divisor="moment",
        shrink=0.0,
        tuned=("covariance", "transform"),
        keeps_prior_count=True,
    )
    if sample.missing is not None and sample.missing[:, model.used].any():
        model = replace(model, partners=np.zeros_like(model.partners))
    parts = [
        (folds.one(f).training(sample), folds.one(f).validation(sample)[0])
        for f in range(len(folds))
    ]
    for transform in ("none", "normal"):
        moments = []
        for training, _ in parts:
            scores = replace(model, transform=transform).normal_scores(training)
            moments.append((model.moments(training, data.K, scores), scores))
        for variant in _variants(replace(model, transform=transform)):
            columns = np.arange(model.p + model.q)
            if variant.p < model.p:  # no partners
                columns = np.append(0, columns[model.p :])
            try:
                yield (
                    variant,
                    np.concatenate(
                        [
                            variant.from_moments(
                                T[:, columns[:, None], columns], scores
                            ).log_density(validation.codes, validation.missing)
                            for (T, scores), (_, validation) in zip(moments, parts, strict=True)
                        ]
                    ),
                )
            except DataError:  # a singular covariance
                continue


def _variants(model: LocationModel) -> Iterator[LocationModel]:
    """Yield the variants of a location model that are described in `choose_densities`."""
    independent = np.eye(model.q, dtype=bool)
    no_partners = np.zeros_like(model.partners)
    correlations = [model.correlated] + [independent] * bool(model.correlated.sum() > model.q)
    partners = [model.partners] + [no_partners] * bool(model.partners.any())
    for covariance, correlated, own in itertools.product(
        ("shared", "group"), correlations, partners
    ):
        yield replace(model, covariance=covariance, correlated=correlated, partners=own)
