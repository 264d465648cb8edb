"""Tests of working statistics under a sampling design, corrected by their generalised design effects (Rao & Scott)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["CorrectedTest", "design_effects", "rao_scott", "rao_scott_wald"]


class CorrectedTest(NamedTuple):
    """A statistic with the second-order correction of Rao & Scott.

    Attributes
    ----------
    statistic : float
        The working statistic over the mean of its design effects.
    F, df, ddf, p : float
        The F statistic, its degrees of freedom, and the probability that F exceeds it.
    """

    statistic: float
    F: float
    df: float
    ddf: float
    p: float


def design_effects(covariance: np.ndarray, working: np.ndarray) -> np.ndarray:
    """Return the eigenvalues (q,) of ``working^-1 covariance``, both symmetric; rounding below zero is none.

    Not a number if the covariance is not known.
    """
    from scipy.linalg import eigh

    if not np.isfinite(covariance).all():
        return np.full(len(covariance), np.nan)
    return np.maximum(eigh(covariance, working, eigvals_only=True), 0.0)


def rao_scott(statistic: float, effects: np.ndarray, df: float) -> CorrectedTest:
    """Test a statistic that is distributed as ``sum effects_k chi2_1``, with effects estimated on `df` degrees.

    ``F = statistic / sum(effects)`` with ``sum(effects)^2 / sum(effects^2)`` and that times `df` degrees of freedom
    (Rao & Scott 1984; Thomas & Rao 1987).

    Examples
    --------
    >>> rao_scott(8.0, np.array([2.0, 2.0]), 30.0)._asdict()  # doctest: +ELLIPSIS
    {'statistic': 4.0, 'F': 2.0, 'df': 2.0, 'ddf': 60.0, 'p': 0.144...}
    """
    from scipy.special import fdtrc

    total = float(effects.sum())
    if not total > 0.0 or df <= 0:
        return CorrectedTest(np.nan, np.nan, np.nan, np.nan, np.nan)  # nothing varies
    ndf = total**2 / float((effects**2).sum())
    F = max(statistic, 0.0) / total
    return CorrectedTest(statistic * len(effects) / total, F, ndf, ndf * df, float(fdtrc(ndf, ndf * df, F)))


def rao_scott_wald(
    tables: Sequence[np.ndarray], covariances: Sequence[np.ndarray], working: Sequence[np.ndarray], df: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test that tables of parameters (q,) are zero by their working Wald statistics, corrected by `rao_scott`.

    Parameters
    ----------
    tables : sequence of ndarray, shape (q,)
    covariances, working : sequence of ndarray, shape (q, q)
        Design covariances, and those of the working statistics.
    df : float
        Degrees of freedom of the design.

    Returns
    -------
    statistic, df, p : ndarray, shape (number of tables,)
        Working statistics over the mean design effect, numbers of parameters, and p-values.
    """
    statistic, p = np.full((2, len(tables)), np.nan)
    for k, (theta, V, W) in enumerate(zip(tables, covariances, working, strict=True)):
        try:
            effects = design_effects(V, W)
        except np.linalg.LinAlgError:  # any working covariance is valid; a diagonal one is regular
            W = np.diag(V.diagonal())
            effects = design_effects(V, W)
        test = rao_scott(float(theta @ np.linalg.solve(W, theta)), effects, df)
        statistic[k], p[k] = test.statistic, test.p
    return statistic, np.array([len(theta) for theta in tables], dtype=np.intp), p
