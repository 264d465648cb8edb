"""Closed-form posterior under Li's (2014) conjugate prior, for levels or values in [-1, 1]."""

from __future__ import annotations

import numpy as np

from bbl.engines.bayes.posterior import simplex_sums
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["conjugate_draws", "conjugate_scores", "signed_log"]


def conjugate_draws(
    rows: Sample, layout: Layout, c: float, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior mean (d,) of a layout's coefficients, and draws (*shape, d).

    Both are in simplex coding. `c` is the factor in the prior and `shape` is (chains, draws). The
    prior ``Z(phi)^n exp(-c |phi|^2)`` cancels the normalising constant of the likelihood. The
    coefficients are then independent and normal, with means ``S / 2c`` and variance ``1 / 2c``. S,
    computed by `simplex_sums`, contains the sum of each coefficient's feature over the rows (Li
    2014, section 3.2.2).
    """
    mean = simplex_sums(rows, layout) / (2.0 * c)
    return mean, mean + rng.normal(size=(*shape, layout.size)) / np.sqrt(2.0 * c)


def conjugate_scores(
    X: np.ndarray, weights: np.ndarray, c: float, new_rows: np.ndarray
) -> np.ndarray:
    """Return the unnormalised scores (k,) of `new_rows` (k, m) at the posterior mean.

    The posterior is conditional on rows `X` (n, m) of values in [-1, 1] with `weights` (n,); `c` is
    the factor in the prior. The score is ``alpha' x + sum_{j<l} beta_jl x_j x_l`` with ``alpha =
    sum_k x_k / 2c`` and ``beta_jl = sum_k x_kj x_kl / 2c`` (Li 2014, eq. 3.5).

    Examples
    --------
    >>> conjugate_scores(
    ...     np.array([[1.0, -1.0]]), np.ones(1), 0.5, np.array([[1.0, -1.0], [1.0, 1.0]])
    ... ).tolist()
    [3.0, -1.0]
    """
    with serial_blas():
        cross_products = (X * weights[:, None]).T @ X
        # twice the sum over pairs j < l, as each pair occurs in both orders
        pair_sums = ((new_rows @ cross_products) * new_rows).sum(
            axis=1
        ) - new_rows**2 @ cross_products.diagonal()
        return (new_rows @ (weights @ X) + 0.5 * pair_sums) / (2.0 * c)


def signed_log(scores: np.ndarray) -> np.ndarray:
    """Return the transform ``sgn(t) ln |t|`` of scores t, or ``t ln(2) / 2`` if ``|t| < 2``.

    See Li (2014), eq. 3.6.

    Examples
    --------
    >>> signed_log(np.array([-(np.e**3), 0.0, 1.0, 2.0])).round(4).tolist()
    [-3.0, 0.0, 0.3466, 0.6931]
    """
    magnitude = np.abs(scores)
    return np.sign(scores) * np.where(
        magnitude < 2.0, magnitude * (0.5 * np.log(2.0)), np.log(np.maximum(magnitude, 2.0))
    )
