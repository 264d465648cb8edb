"""Solver for ridge-penalised fits of an ordered response, given the functions that sum to f."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl.engines.conditional.ordinal_logits import OrdinalLogits, ordinal_logits
from bbl.engines.conditional.ordinal_maximum import OrdinalLikelihood
from bbl.engines.likelihood.newton import maximise

__all__ = ["OrdinalSolution", "solve_ordinal"]

TOLERANCE = 1e-10  # norm of the gradient of the mean objective; one more step follows
ITMAX = 100  # maximum number of Newton steps


class OrdinalSolution(NamedTuple):
    """The maximum of a penalised likelihood.

    Attributes
    ----------
    logits : OrdinalLogits
    intercepts : ndarray, shape (k - 1,)
    weights : ndarray, shape (r,)
        Weights of the r functions in f.
    loss : float
        Log-loss on the fitted rows, excluding the penalty.
    gradient : float
        Norm of the gradient.
    n_iter : int
    """

    logits: OrdinalLogits
    intercepts: np.ndarray
    weights: np.ndarray
    loss: float
    gradient: float
    n_iter: int

    def group_scores(self, f: np.ndarray, K: int) -> np.ndarray:
        """Return ln P(group) (n, K), given f (n,); -inf for groups without rows."""
        out = np.full((len(f), K), -np.inf)
        out[:, self.logits.groups] = self.logits.log_p(f, self.intercepts)
        return out


def solve_ordinal(
    functions: np.ndarray,
    counts: np.ndarray,
    name: str,
    ridge: float,
    start: OrdinalSolution | None = None,
) -> OrdinalSolution:
    """Maximise the mean of ``ln P(group | row)`` minus ``ridge/2 |f|^2`` times `penalty_factor`.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
    counts : ndarray, shape (n, K)
        Weight of each group in each row.
    name : {"adjacent", "cumulative"}
    ridge : float
        Penalty on f. With ``inf``, f is omitted.
    start : OrdinalSolution, optional
        A solution with the same functions, used to start the iteration.
    """
    groups = np.flatnonzero(counts.sum(axis=0) > 0.0)
    logits = ordinal_logits(name, groups)
    n_intercepts = len(groups) - 1
    r = functions.shape[1]
    own = counts[:, groups]
    unknowns = np.append(logits.intercepts(own.sum(axis=0)), np.zeros(r))
    if start is not None and np.array_equal(start.logits.groups, groups):
        unknowns = np.append(start.intercepts, start.weights)
    free = np.full(n_intercepts + r, n_intercepts > 0)
    penalty = 0.0
    if np.isfinite(ridge):
        penalty = ridge * logits.penalty_factor
    else:
        free[n_intercepts:] = False
        unknowns[n_intercepts:] = 0.0
    likelihood = OrdinalLikelihood(logits, functions, own / own.sum(), free, unknowns, penalty)
    maximum = maximise(likelihood, unknowns[free], TOLERANCE, ITMAX)
    likelihood.value(maximum.theta)
    norm = float(np.linalg.norm(likelihood.gradient()))
    unknowns = likelihood.spread(maximum.theta)
    return OrdinalSolution(
        logits,
        unknowns[:n_intercepts],
        unknowns[n_intercepts:],
        -likelihood.log_likelihood,
        norm,
        maximum.n_iter,
    )
