"""Rao-Scott tests: statistics that ignore the sampling design are corrected for design effects.

A *working* statistic is computed as if rows were sampled independently, under the *working
covariance* of its parameters. Under the design, it is distributed as a weighted sum of chi-square
variables. The weights are the generalised *design effects*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["CorrectedTest", "design_effects", "rao_scott", "rao_scott_wald"]


class CorrectedTest(NamedTuple):
    """A test statistic with the second-order Rao-Scott correction.

    Attributes
    ----------
    statistic : float
        Working statistic divided by the mean design effect.
    F : float
        F statistic.
    df : float
        Numerator degrees of freedom.
    ddf : float
        Denominator degrees of freedom.
    p : float
        Upper tail probability of the F statistic.
    """

    statistic: float
    F: float
    df: float
    ddf: float
    p: float


def design_effects(covariance: np.ndarray, working_covariance: np.ndarray) -> np.ndarray:
    """Return the design effects (q,): eigenvalues of ``working_covariance^-1 covariance``.

    Negative eigenvalues are set to 0. `covariance` (q, q) is the design covariance of q parameters.
    If it is not finite, the design effects are nan.
    """
    from scipy.linalg import eigh

    if not np.isfinite(covariance).all():
        return np.full(len(covariance), np.nan)
    return np.maximum(eigh(covariance, working_covariance, eigvals_only=True), 0.0)


def rao_scott(statistic: float, effects: np.ndarray, design_df: float) -> CorrectedTest:
    """Test a working statistic that is distributed as ``sum_k effects[k] X_k``.

    X_k are chi-square variables with one degree of freedom.

    ``F = statistic / sum(effects)`` has ``sum(effects)^2 / sum(effects^2)`` numerator degrees of
    freedom. The denominator degrees of freedom are `design_df` times as many, because `effects` are
    estimated with the `design_df` degrees of freedom of the design (Rao & Scott 1984; Thomas & Rao
    1987).

    Examples
    --------
    >>> rao_scott(8.0, np.array([2.0, 2.0]), 30.0)._asdict()  # doctest: +ELLIPSIS
    {'statistic': 4.0, 'F': 2.0, 'df': 2.0, 'ddf': 60.0, 'p': 0.144...}
    """
    from scipy.special import fdtrc

    sum_of_effects = float(effects.sum())
    if not sum_of_effects > 0.0 or design_df <= 0:
        return CorrectedTest(np.nan, np.nan, np.nan, np.nan, np.nan)  # nothing varies
    numerator_df = sum_of_effects**2 / float((effects**2).sum())
    F = max(statistic, 0.0) / sum_of_effects
    return CorrectedTest(
        statistic=statistic * len(effects) / sum_of_effects,
        F=F,
        df=numerator_df,
        ddf=numerator_df * design_df,
        p=float(fdtrc(numerator_df, numerator_df * design_df, F)),
    )


def rao_scott_wald(
    tables: Sequence[np.ndarray],
    covariances: Sequence[np.ndarray],
    working_covariances: Sequence[np.ndarray],
    design_df: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Test the hypothesis that each parameter table is zero, with the Rao-Scott correction.

    Parameters
    ----------
    tables : sequence of ndarray, shape (q,)
        Estimated parameters of each table.
    covariances : sequence of ndarray, shape (q, q)
        Design covariance V of each table.
    working_covariances : sequence of ndarray, shape (q, q)
        Working covariance W of each table.
    design_df : float
        Degrees of freedom of the design.

    Returns
    -------
    statistic, df, p : ndarray, shape (number of tables,)
        Working statistics divided by the mean design effect, numbers of parameters, and p-values.
        The statistic and p are nan for tables with an unknown design covariance.
    """
    statistic, p = np.full((2, len(tables)), np.nan)
    for k, (theta, V, W) in enumerate(zip(tables, covariances, working_covariances, strict=True)):
        if not np.isfinite(V).all():
            continue
        try:
            effects = design_effects(V, W)
        # W is not positive definite; any working covariance is valid, so use a diagonal one
        except np.linalg.LinAlgError:
            W = np.diag(V.diagonal())
            effects = design_effects(V, W)
        test = rao_scott(float(theta @ np.linalg.solve(W, theta)), effects, design_df)
        statistic[k] = test.statistic
        p[k] = test.p
    return statistic, np.array([len(theta) for theta in tables], dtype=np.intp), p
