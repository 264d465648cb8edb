"""Numeric codings of predictor levels for the conditional likelihood.

The *features* of a level are the numbers that represent it. Nominal predictors have an indicator
for each level. Ordered predictors have a single feature with equally spaced values (linear), or an
indicator for each threshold (cumulative).
"""

# L levels have d features; m predictors have F features in all, in the order of predictors. A
# *contrast* assigns a number to each level, and only differences between these numbers matter.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from bbl.choices import LevelCoding
from bbl.model.gauge import contrasts
from bbl.model.layout import Layout

__all__ = ["CODINGS", "Coding", "coding_of"]

CODINGS = get_args(LevelCoding)


@dataclass(frozen=True)
class Coding:
    """The features of the levels of all predictors.

    Attributes
    ----------
    n_levels : ndarray, shape (m,)
        Number of levels L_i of each predictor.
    features : tuple of m ndarrays, shapes (L_i, d_i), or None
        Features of each predictor's levels. None represents the identity matrix, i.e. an indicator
        for each level. For a numeric predictor, the array contains the features of the codes 0 and
        1.
    numbers : ndarray, shape (m, 2), or None
        Mean and standard deviation of each numeric predictor; see `Layout`. The feature of a
        numeric predictor is its number of standard deviations from the mean.
    """

    n_levels: np.ndarray
    features: tuple[np.ndarray | None, ...]
    numbers: np.ndarray | None = None

    @cached_property
    def widths(self) -> np.ndarray:
        """The number of features of each predictor, shape (m,)."""
        pairs = zip(self.features, self.n_levels, strict=True)
        return np.array(
            [L if features is None else features.shape[1] for features, L in pairs], dtype=np.intp
        )

    @cached_property
    def columns(self) -> list[slice]:
        """The column range of each predictor among the F features."""
        ends = np.cumsum(self.widths).tolist()
        return [
            slice(end - width, end) for end, width in zip(ends, self.widths.tolist(), strict=True)
        ]

    @cached_property
    def is_nominal(self) -> bool:
        """Whether every predictor has an indicator for each level."""
        return all(features is None for features in self.features)

    def contrast_layout(self, layout: Layout) -> Layout:
        """Return the layout of fields and couplings of contrasts, with the terms of `layout`.

        A nominal predictor has L_i - 1 contrasts, and any other predictor has one for each feature.
        Contrasts replace the non-reference levels, so each predictor has one more level in this
        layout than it has contrasts.
        """
        pairs = zip(self.widths, self.features, strict=True)
        return Layout(
            np.array([d if features is None else d + 1 for d, features in pairs]),
            layout.terms,
            numbers=layout.numbers,
        )

    def row_features(self, codes: np.ndarray) -> np.ndarray:
        """Return the features (n, F) of encoded rows (n, m)."""
        out = np.zeros((len(codes), int(self.widths.sum())))
        row = np.arange(len(codes))
        for i, (columns, features) in enumerate(zip(self.columns, self.features, strict=True)):
            if self.is_number(i):
                out[:, columns.start] = self.standardised(i, codes[:, i])
            elif features is None:
                out[row, columns.start + codes[:, i].astype(np.intp)] = 1.0
            else:
                out[:, columns] = features[codes[:, i].astype(np.intp)]
        return out

    def is_number(self, i: int) -> bool:
        """Return whether predictor i is numeric."""
        return self.numbers is not None and bool(self.numbers[i, 1] > 0.0)

    def standardised(self, i: int, codes: np.ndarray) -> np.ndarray:
        """Return the feature (n,) of numeric predictor i, given its values `codes` (n,)."""
        assert self.numbers is not None  # noqa: S101
        mean, sd = self.numbers[i]
        return (codes - mean) / sd

    def feature_means(self, level_shares: list[np.ndarray]) -> np.ndarray:
        """Return the means (F,) of all features, given the level proportions of the predictors."""
        pairs = zip(level_shares, self.features, strict=True)
        return np.concatenate(
            [shares if features is None else shares @ features for shares, features in pairs]
        )

    def values_at_levels(self, i: int, values: np.ndarray) -> np.ndarray:
        """Convert slopes (..., d_i) of predictor i's features to level values (..., L_i)."""
        features = self.features[i]
        return values if features is None else values @ features.T

    def differences(self, predictors: Sequence[int], slopes: np.ndarray) -> np.ndarray:
        """Return the values at the non-reference levels minus the values at the reference levels.

        `slopes` (..., sum of d_i) contains the slopes of the predictors' features, in the order of
        `predictors`. The result has shape (..., sum of L_i - 1).
        """
        if not len(predictors):
            return np.empty((*slopes.shape[:-1], 0))
        ends = np.cumsum(self.widths[list(predictors)])[:-1]
        values = [
            self.values_at_levels(i, own)
            for i, own in zip(predictors, np.split(slopes, ends, axis=-1), strict=True)
        ]
        return np.concatenate(
            [at_levels[..., 1:] - at_levels[..., :1] for at_levels in values], axis=-1
        )

    def squared_distances(self, i: int, point: np.ndarray) -> np.ndarray:
        """Return the squared distances (L_i,) of predictor i's levels from a point (d_i,)."""
        features = self.features[i]
        if features is None:
            # |e_a - point|^2 of the indicators e_a of level a
            return 1.0 - 2.0 * point + point @ point
        return ((features - point) ** 2).sum(axis=1)

    def squared_steps(self) -> np.ndarray:
        """Return the squared distances (D,) of non-reference levels from the reference level."""
        steps = [  # 2: the squared distance between two indicators
            np.full(int(L) - 1, 2.0)
            if features is None
            else ((features[1:] - features[0]) ** 2).sum(axis=1)
            for features, L in zip(self.features, self.n_levels, strict=True)
        ]
        return np.concatenate([np.empty(0), *steps])  # the empty array is for no predictors

    def uncorrelated_contrasts(self, i: int, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return contrasts that span predictor i's features, and their variances (r,).

        The r contrasts (L_i - 1, r) are the values at the non-reference levels minus the value at
        the reference level. They are uncorrelated over the rows and orthonormal in the kernel, i.e.
        their values V (L_i, r) at all levels satisfy ``V V' = F F'``, where F (L_i, d_i) contains
        the centred features. `shares` (L_i,) contains the proportions of the levels.
        """
        features = self.features[i]
        L = len(shares)
        if features is None:
            # (L_i, r): simplex contrasts with columns of unit norm
            spanning = contrasts(L) * np.sqrt(1.0 - 1.0 / L)
        else:
            left, singular_values, _ = np.linalg.svd(
                features - features.mean(axis=0), full_matrices=False
            )
            # (L_i, d_i), as centred features are linearly independent; the right factor is only a
            # rotation
            spanning = left * singular_values
        mean = shares @ spanning
        # rotated to the eigenvectors of their covariance over the rows
        variance, rotation = np.linalg.eigh(
            (spanning * shares[:, None]).T @ spanning - np.outer(mean, mean)
        )
        values = spanning @ rotation
        return values[1:] - values[0], np.maximum(variance, 0.0)


def coding_of(layout: Layout, ordered: str) -> Coding:
    """Return the coding for a layout, which uses `ordered` for ordered predictors.

    `ordered` is "nominal", "linear" or "cumulative"; other predictors have indicators.
    `layout.n_ordered` (m,) is the number of ordered levels of each predictor, which come first. If
    there are fewer than three, all codings are equivalent. The distance between the first and the
    last ordered level is the same as between two levels of a nominal predictor, so predictors with
    two levels are treated in the same way by all codings. A level after the ordered levels
    represents missing values. It has an indicator, and is equally distant from the first and the
    last level. The feature of a numeric predictor is its standardised value.
    """
    features = [
        None if ordered == "nominal" or k < 3 else _features(int(k), int(L), ordered)
        for k, L in zip(layout.n_ordered, layout.n_levels, strict=True)
    ]
    for i in np.flatnonzero(layout.is_number):
        mean, sd = layout.numbers[i]
        features[i] = (np.array([[0.0], [1.0]]) - mean) / sd
    return Coding(layout.n_levels, tuple(features), layout.numbers)


def _features(k: int, L: int, ordered: str) -> np.ndarray:
    """Return the features (L, d) of L levels, where the first k levels are ordered.

    Examples
    --------
    >>> (_features(3, 3, "linear") / np.sqrt(2.0)).ravel().tolist()
    [-0.5, 0.0, 0.5]
    >>> (2.0 * _features(3, 4, "cumulative")).round(3).tolist()
    [[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.449]]
    """
    # in_order (k, d) is scaled so that its first and last rows are sqrt(2) apart, like two
    # indicators
    position = np.arange(k)
    if ordered == "linear":
        in_order = np.sqrt(2.0) * (position / (k - 1.0) - 0.5)[:, None]
    else:
        in_order = np.where(position[:, None] > np.arange(k - 1), 0.5, -0.5) * np.sqrt(
            2.0 / (k - 1.0)
        )
    # each unordered level has an indicator, at a squared distance of 1/2 + 3/2 = 2 from the first
    # and the last ordered level
    features = np.zeros((L, in_order.shape[1] + L - k))
    features[:k, : in_order.shape[1]] = in_order
    features[k:, in_order.shape[1] :] = np.sqrt(1.5) * np.eye(L - k)
    return features
