"""Information of multinomial logistic regression with a ridge, and covariances of differences between classes."""

from __future__ import annotations

import numpy as np

__all__ = ["contrasts", "difference_covariance", "information"]


def contrasts(K: int) -> np.ndarray:
    """Return orthonormal contrasts (K, K - 1) of classes, whose columns sum to zero."""
    simplex = np.eye(K) - 1.0 / K
    return np.linalg.svd(simplex)[0][:, : K - 1]


def information(functions: np.ndarray, p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ``sum_n w_n C'(diag(p_n) - p_n p_n')C kron z_n z_n'``, with C the `contrasts` of the classes.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
        z_n of each row.
    p : ndarray, shape (n, K)
        Probabilities of the classes.
    weights : ndarray, shape (n,)

    Returns
    -------
    ndarray, shape ((K - 1) r, (K - 1) r)
    """
    r, C = functions.shape[1], contrasts(p.shape[1])
    mean = p @ C
    out = np.empty((C.shape[1], r, C.shape[1], r))
    for k in range(C.shape[1]):
        for j in range(k + 1):
            block_weights = weights * (p @ (C[:, k] * C[:, j]) - mean[:, k] * mean[:, j])
            out[k, :, j] = (functions * block_weights[:, None]).T @ functions
            out[j, :, k] = out[k, :, j]
    return out.reshape(C.shape[1] * r, -1)


def difference_covariance(
    functions: np.ndarray, p: np.ndarray, weights: np.ndarray, ridge: float, slight: float, pair: tuple[int, int]
) -> np.ndarray:
    """Return the covariance of the weights of functions in one class less those in another.

    Parameters
    ----------
    functions : ndarray, shape (n, r)
    p : ndarray, shape (n, K)
        Probabilities of the classes where the penalised likelihood is highest.
    weights : ndarray, shape (n,)
        How often each row was observed.
    ridge, slight : float
        Penalties, for each observation, of the weights and of the offsets.
    pair : (int, int)

    Returns
    -------
    ndarray, shape (r, r)

    Notes
    -----
    ``H^-1 I H^-1`` with the information I, which is the covariance of the scores, and ``H = I + n ridge``; the rows are
    taken as they are, the classes as drawn from `p`. Weights of all classes sum to zero at the optimum, so that
    contrasts of classes are all there is to them.
    """
    from scipy.linalg import cho_factor, cho_solve

    r, K = functions.shape[1], p.shape[1]
    total = weights.sum()
    fisher = information(np.column_stack([functions, np.ones(len(functions))]), p, weights / total)
    H = fisher.copy()
    penalty = np.tile(np.append(np.full(r, ridge), slight), K - 1)
    H[np.diag_indices_from(H)] += penalty
    C = contrasts(K)
    contrast_columns = np.kron((C[pair[0]] - C[pair[1]])[:, None], np.eye(r + 1)[:, :r])
    solved = cho_solve(cho_factor(H, overwrite_a=True), contrast_columns)
    return (solved.T @ fisher @ solved) / total
