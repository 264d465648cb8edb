"""Likelihood ratio test of two fits with different models of their numeric predictors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bbl.errors import OptionError
from bbl.model.location import Location, LocationModel
from bbl.results.machine.machine import MachineResults

__all__ = ["differ_in_numbers", "number_ratio_test"]


def differ_in_numbers(fit: MachineResults, other: MachineResults) -> bool:
    """Return whether two fits have different models of their numeric predictors.

    Raises an OptionError if the fits have different predictors, or only one of them has numeric
    predictors.
    """
    one = fit.estimate.location
    two = other.estimate.location
    if one is None and two is None:
        return False
    if one is None or two is None or fit.labels.names != other.labels.names:
        raise OptionError("the models have different predictors, or different numeric predictors.")
    if not np.array_equal(one.model.numbers, two.model.numbers):
        raise OptionError("the models have different numeric predictors.")
    return not (
        np.array_equal(one.model.partners, two.model.partners)
        and np.array_equal(one.model.correlated, two.model.correlated)
        and one.model.covariance == two.model.covariance
    )


def number_ratio_test(fit: MachineResults, other: MachineResults) -> dict[str, float | int | str]:
    """Return the test of nested models of the numeric predictors: ``df``, ``ratio``, ``p`` and
    ``test``.

    Covariances are divided by the number of rows, regardless of the divisor used in the fits. Box's
    M, with its correction for small groups, tests whether groups with the same means have equal
    covariances.
    """
    from scipy.special import chdtrc

    one, two = fit._location(), other._location()
    for result in (fit, other):
        if result.survey is not None:
            raise OptionError(
                "likelihood ratios of numeric predictors assume independently sampled rows, but "
                "this model was fitted with a sampling design."
            )
    if fit._categorical.estimate.parameters.layout != other._categorical.estimate.parameters.layout:
        raise OptionError(
            "the models differ in both couplings and numeric predictors: change only one of these."
        )
    if "normal" in (one.model.transform, two.model.transform):
        raise OptionError(
            "numeric predictors are replaced by normal scores, so there is no likelihood."
        )
    if not (
        np.allclose(one.n, two.n)
        and np.allclose(_number_moments(one), _number_moments(two), rtol=1e-8)
    ):
        raise OptionError("the models were fitted to different rows.")
    small, large = (one, two) if one.n_parameters <= two.n_parameters else (two, one)
    if not _is_nested(small.model, large.model):
        raise OptionError(
            "are not nested: each has means or correlations that the other does not have."
        )
    fit._checked_rows()  # raises an error for weights that are not counts
    q = small.model.q
    has_same_means = np.array_equal(small.model.partners, large.model.partners)
    if (
        has_same_means
        and small.model.covariance != large.model.covariance
        and (small.model.correlated.all() and large.model.correlated.all())
    ):
        statistic, df = _box_m(large)
        return {"ratio": statistic, "df": df, "p": float(chdtrc(df, statistic)), "test": "Box's M"}
    fits = [
        replace(part.model, divisor="ml", prior_count=0.0, shrink=0.0).from_moments(part.T)
        for part in (small, large)
    ]
    log_likelihoods = [
        -0.5 * sum(n * (np.linalg.slogdet(S)[1] + q) for n, S in zip(part.n, part.S, strict=True))
        for part in fits
    ]
    ratio = max(2.0 * float(log_likelihoods[1] - log_likelihoods[0]), 0.0)
    df = large.n_parameters - small.n_parameters
    return {
        "ratio": ratio,
        "df": df,
        "p": float(chdtrc(df, ratio)) if df else np.nan,
        "test": "likelihood ratio of the numbers",
    }


def _number_moments(location: Location) -> np.ndarray:
    """Return the sums of squares and products (K, q, q) of the numeric predictors."""
    return location.T[:, location.model.p :, location.model.p :]


def _is_nested(small: LocationModel, large: LocationModel) -> bool:
    """Return whether a model of the numeric predictors is a special case of another."""
    return bool(
        (small.partners <= large.partners).all()
        and (small.correlated <= large.correlated).all()
        and (small.covariance == "shared" or large.covariance == "group")
    )


def _box_m(location: Location) -> tuple[float, int]:
    """Return Box's (1949) M multiplied by his correction factor, and the degrees of freedom."""
    q = location.model.q
    used = location.n > 0.0
    df = location.n[used] - location.ranks[used].mean(axis=1)
    sums = location.residual_sums[used]
    pooled = np.linalg.slogdet(sums.sum(axis=0) / df.sum())[1]
    of_groups = [np.linalg.slogdet(S / d)[1] for S, d in zip(sums, df, strict=True)]
    M = df.sum() * pooled - df @ np.array(of_groups)
    K = len(df)
    factor = 1.0 - (2.0 * q**2 + 3.0 * q - 1.0) / (6.0 * (q + 1.0) * (K - 1.0)) * (
        (1.0 / df).sum() - 1.0 / df.sum()
    )
    return float(M * factor), (K - 1) * q * (q + 1) // 2
