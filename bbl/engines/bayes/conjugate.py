"""The conjugate posterior of the thesis: closed form, for coefficients of codes and of numbers between -1 and 1."""

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
    """Return the mean (d,) of the conjugate posterior, and independent draws (chains, draws, d), in simplex coding.

    The prior ``Z(phi)^n exp(-c |phi|^2)`` cancels the normaliser of the likelihood, so that each coefficient is normal
    by itself, with mean ``S / 2c`` and variance ``1 / 2c``: S is the sum over the rows of what it multiplies (Li 2014,
    section 3.2.2).
    """
    mean = simplex_sums(rows, layout) / (2.0 * c)
    return mean, mean + rng.normal(size=(*shape, layout.size)) / np.sqrt(2.0 * c)


def conjugate_scores(X: np.ndarray, weights: np.ndarray, c: float, new: np.ndarray) -> np.ndarray:
    """Return the un-normalised scores (k,) of rows `new` (k, m) under the posterior mean given rows `X` (n, m).

    Of numbers between -1 and 1: ``alpha' x + sum_{j<l} beta_jl x_j x_l`` with ``alpha = sum_k x_k / 2c`` and
    ``beta_jl = sum_k x_kj x_kl / 2c`` (Li 2014, eq. 3.5).

    Examples
    --------
    >>> conjugate_scores(np.array([[1.0, -1.0]]), np.ones(1), 0.5, np.array([[1.0, -1.0], [1.0, 1.0]])).tolist()
    [3.0, -1.0]
    """
    with serial_blas():
        second = (X * weights[:, None]).T @ X
        pairs = ((new @ second) * new).sum(axis=1) - new**2 @ second.diagonal()
        return (new @ (weights @ X) + 0.5 * pairs) / (2.0 * c)


def signed_log(scores: np.ndarray) -> np.ndarray:
    """Return the thesis' h of scores: ``sgn(t) ln |t|`` where ``|t| >= 2``, the line ``t ln(2) / 2`` between (eq. 3.6).

    Examples
    --------
    >>> signed_log(np.array([-(np.e**3), 0.0, 1.0, 2.0])).round(4).tolist()
    [-3.0, 0.0, 0.3466, 0.6931]
    """
    size = np.abs(scores)
    return np.sign(scores) * np.where(size < 2.0, size * (0.5 * np.log(2.0)), np.log(np.maximum(size, 2.0)))
