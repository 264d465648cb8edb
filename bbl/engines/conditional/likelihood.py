"""The likelihood P(group | row) of distinct rows, and its Fisher information."""

# The *design* of a row consists of a one, for the intercept, and the indicators of its fields and
# couplings. Numeric predictors are standardised, because rounding errors in products of values far
# from zero would be large; `bbl.model.number_terms.to_raw` converts their coefficients. A *cell* is
# a combination of a distinct row and a group. Letters: n distinct rows, k groups with rows, p
# columns of the design.

from __future__ import annotations

import numpy as np

from bbl.engines.likelihood.influence import row_indicators
from bbl.engines.likelihood.newton import Objective
from bbl.model.layout import Layout

__all__ = ["Likelihood", "design", "information", "raw_design"]


def design(codes: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the design (n, 1 + size) of rows (n, m), with standardised numeric predictors."""
    if layout.numbers is not None:
        standardised = (codes - layout.numbers[:, 0]) / layout.numbers[:, 1]
        codes = np.where(layout.is_number, standardised, codes)
    return raw_design(codes, layout)


def raw_design(codes: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the design (n, 1 + size) of rows (n, m), with unscaled numeric predictors."""
    return np.column_stack([np.ones(len(codes)), row_indicators(layout, codes)])


def information(Z: np.ndarray, p: np.ndarray, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return ``sum_n w_n (diag(p_n) - p_n p_n') kron z_n z_n'`` for the `free` coefficients.

    These are coefficients of all groups except the first. `Z` (n, c) contains z_n, `p` (n, k) the
    probabilities of the groups, `weights` (n,) w_n, and `free` (k - 1, c) marks the coefficients to
    include. The result is a square matrix with one row for each included coefficient, group by
    group.
    """
    # positions of each group's free coefficients in the result: starts[a] .. stops[a]
    stops = np.cumsum(free.sum(axis=1))
    starts = stops - free.sum(axis=1)
    out = np.empty((int(free.sum()),) * 2)
    for a in range(len(free)):
        root_weights = np.sqrt(weights * p[:, 1 + a] * np.maximum(1.0 - p[:, 1 + a], 0.0))
        scaled = Z[:, free[a]] * root_weights[:, None]
        # a symmetric product takes half the work
        out[starts[a] : stops[a], starts[a] : stops[a]] = scaled.T @ scaled
        for b in range(a):
            cross_weights = -weights * p[:, 1 + a] * p[:, 1 + b]
            block = (Z[:, free[a]] * cross_weights[:, None]).T @ Z[:, free[b]]
            out[starts[a] : stops[a], starts[b] : stops[b]] = block
            out[starts[b] : stops[b], starts[a] : stops[a]] = block.T
    return out


class Likelihood(Objective):
    """The mean of ln P(group | row), as an `Objective` for Newton's method.

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design.
    shares : ndarray, shape (n, k)
        Fraction of the total weight in each cell. Only groups with rows are included, and the
        reference group is the first.
    support : ndarray of bool, shape (n, k)
        Cells with positive probability.
    free : ndarray of bool, shape (k - 1, p)
        Coefficients to estimate; the others are zero.

    Attributes
    ----------
    row_shares : ndarray, shape (n,)
        Fraction of the total weight in each row.
    observed : ndarray of bool, shape (n, k)
        Cells with positive weight.
    p : ndarray, shape (n, k)
        Group probabilities at the last argument of `value`.
    log_likelihood : float
        Mean log-likelihood at the last argument of `value`.
    """

    def __init__(self, Z: np.ndarray, shares: np.ndarray, support: np.ndarray, free: np.ndarray):
        self.Z = Z
        self.shares = shares
        self.support = support
        self.free = free
        self.row_shares = shares.sum(axis=1)
        self.observed = shares > 0.0

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Return the coefficients (k - 1, p) of groups after the first, given the free ones."""
        out = np.zeros(self.free.shape)
        out[self.free] = theta
        return out

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at the free coefficients `theta`, and set `p`."""
        scores = np.zeros(self.shares.shape)
        scores[:, 1:] = self.Z @ self.spread(theta).T
        scores[~self.support] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        norm = p.sum(axis=1)
        self.p = p / norm[:, None]
        self.log_likelihood = float(
            self.shares[self.observed] @ scores[self.observed] - self.row_shares @ np.log(norm)
        )
        return self.log_likelihood

    def gradient(self) -> np.ndarray:
        """Return the gradient for the free coefficients at the last argument of `value`."""
        residual = self.shares - self.row_shares[:, None] * self.p
        return (residual[:, 1:].T @ self.Z)[self.free]

    def curvatures(self) -> list[np.ndarray]:
        """Return the Fisher information of one observation, as a list with one element."""
        return [information(self.Z, self.p, self.row_shares, self.free)]
