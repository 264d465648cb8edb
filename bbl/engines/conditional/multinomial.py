"""Information and covariances of class differences in ridge-penalised multinomial regression."""

from __future__ import annotations

import numpy as np

__all__ = ["contrasts", "difference_covariance", "information"]


def contrasts(K: int) -> np.ndarray:
    """Return orthonormal contrasts (K, K - 1) of classes: columns of unit norm that sum to zero."""
    centring = np.eye(K) - 1.0 / K  # projects onto vectors that sum to zero
    # left singular vectors; the last has singular value 0
    return np.linalg.svd(centring)[0][:, : K - 1]


def information(functions: np.ndarray, p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the information ``sum_n w_n C'(diag(p_n) - p_n p_n')C kron z_n z_n'``.

    The matrix has (K - 1) r rows and columns, one for each contrast of classes and each function,
    ordered by contrast. `functions` (n, r) contains z_n, `p` (n, K) the class probabilities,
    `weights` (n,) w_n, and C (K, K - 1) is `contrasts(K)`.
    """
    r = functions.shape[1]
    C = contrasts(p.shape[1])
    contrast_means = p @ C  # (n, K - 1)
    out = np.empty((C.shape[1], r, C.shape[1], r))
    for k in range(C.shape[1]):
        for j in range(k + 1):
            # row weights times the covariances of two contrasts of the class indicators
            block_weights = weights * (
                p @ (C[:, k] * C[:, j]) - contrast_means[:, k] * contrast_means[:, j]
            )
            out[k, :, j] = (functions * block_weights[:, None]).T @ functions
            out[j, :, k] = out[k, :, j]
    return out.reshape(C.shape[1] * r, -1)


def difference_covariance(
    functions: np.ndarray,
    p: np.ndarray,
    weights: np.ndarray,
    ridge: float,
    intercept_penalty: float,
    pair: tuple[int, int],
) -> np.ndarray:
    """Return the covariance (r, r) of the difference in coefficients between two classes.

    The difference is class ``pair[0]`` minus class ``pair[1]``, and the covariance is ``H^-1 I
    H^-1``. I is the Fisher information, i.e. the covariance of the score if rows are fixed and
    classes are drawn from `p`. H is I plus the number of observations times the diagonal matrix of
    penalties. At the optimum, coefficients sum to zero over the classes, so contrasts of classes
    are used in the computation.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        Regressors. A constant is added as the last column.
    p : ndarray, shape (n, K)
        Class probabilities at the optimum of the penalised likelihood.
    weights : ndarray, shape (n,)
        Number of observations of each row.
    ridge, intercept_penalty : float
        Penalties on coefficients and on intercepts, per observation.
    pair : (int, int)
        The two classes.
    """
    from scipy.linalg import cho_factor, cho_solve

    r = functions.shape[1]
    K = p.shape[1]
    total = weights.sum()
    # fisher and H are per observation: I and H divided by `total`
    fisher = information(np.column_stack([functions, np.ones(len(functions))]), p, weights / total)
    H = fisher.copy()
    penalty = np.tile(np.append(np.full(r, ridge), intercept_penalty), K - 1)
    # for each contrast, r coefficients followed by the intercept
    H[np.diag_indices_from(H)] += penalty
    C = contrasts(K)
    # columns ((K - 1) (r + 1), r) for the difference of the two classes' coefficients, without
    # intercept
    contrast_columns = np.kron((C[pair[0]] - C[pair[1]])[:, None], np.eye(r + 1)[:, :r])
    solved = cho_solve(cho_factor(H, overwrite_a=True), contrast_columns)
    return (solved.T @ fisher @ solved) / total
