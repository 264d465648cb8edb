"""Covariance of the intercepts and parameters of all groups in a penalised conditional fit."""

from __future__ import annotations

import numpy as np

from bbl.engines.conditional.kernel import Basis, determined, to_tables
from bbl.engines.conditional.multinomial import contrasts, information

__all__ = ["coefficient_covariance"]


def coefficient_covariance(
    basis: Basis, p: np.ndarray, weights: np.ndarray, ridge: float, intercept_penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariance of all coefficients, and a mask of those determined by the data.

    Each of the K groups has an intercept (column 0) and `size` parameters. The covariance is ``H^-1
    I H^-1`` for deviations from the mean over groups, where I is the multinomial information matrix
    of the weights of the r basis functions and of the constant, and H is I plus the penalties.

    Parameters
    ----------
    basis : Basis
        The basis of the fit. Its `functions` (n, r) are the values of the r basis functions at the
        n distinct training rows.
    p : ndarray, shape (n, K)
        Fitted probabilities of the groups.
    weights : ndarray, shape (n,)
        Number of observations of each row.
    ridge, intercept_penalty : float
        Penalties per observation on the function weights and on the intercepts.

    Returns
    -------
    covariance : ndarray, shape (K, 1 + size, K, 1 + size)
    is_determined : ndarray of bool, shape (1 + size,)
        Whether each coefficient is determined by the data rather than by the penalty.
    """
    from scipy.linalg import cho_factor, cho_solve

    n, r = basis.functions.shape
    K = p.shape[1]
    total = weights.sum()
    # per observation: I and H divided by `total`, the number of observations
    fisher = information(np.column_stack([basis.functions, np.ones(n)]), p, weights / total)
    H = fisher.copy()
    H[np.diag_indices_from(H)] += np.tile(np.append(np.full(r, ridge), intercept_penalty), K - 1)
    # (r, size) and (r,): parameters and intercept of each function
    tables, constants = to_tables(basis, np.eye(r))
    # intercept and parameters of each basis function; the last row is the constant function
    coefficients = np.zeros((r + 1, 1 + tables.shape[1]))
    coefficients[:r, 0], coefficients[:r, 1:], coefficients[r, 0] = constants, tables, 1.0
    # maps function weights in contrasts of groups to coefficients of groups; shape (K (1 + size),
    # (K - 1) (r + 1))
    to_groups = np.kron(contrasts(K), coefficients.T)
    solved = cho_solve(cho_factor(H), to_groups.T)
    covariance = solved.T @ (fisher @ solved) / total
    is_determined = np.append(True, determined(basis, tables, weights))  # True: the intercept
    return covariance.reshape(K, 1 + tables.shape[1], K, -1), is_determined
