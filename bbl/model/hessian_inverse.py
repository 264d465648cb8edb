"""Inverses of Hessians, and which parameters they determine. A parameter is *determined* if H has
information on it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bbl._ext.model import eigen

__all__ = ["ZERO_EIGENVALUE", "ZERO_LOADING", "Solve", "informed", "inverse", "solver"]

# diagonal element of a mean Hessian that counts as zero; the square of its inverse is finite
NO_INFORMATION = 1e-100
# a Hessian scaled to unit diagonal is regular if all its squared Cholesky pivots are larger
MIN_PIVOT = 1e-10
# times the number of parameters: eigenvalues of a scaled Hessian below count as zero
ZERO_EIGENVALUE = 1e-13
# a parameter is undetermined if its squared loadings on the zero eigenvectors sum to more
ZERO_LOADING = 1e-9

# from a score (p,) to the inverse Hessian times the score (p,)
Solve = Callable[[np.ndarray], np.ndarray]


def inverse(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the (pseudo-)inverse (p, p) of a Hessian, and whether each parameter is determined.

    A parameter is not determined if its row of H is zero, or if it takes part in a combination
    along which H is zero. For the other parameters the inverse does not depend on the undetermined
    ones.
    """
    from scipy.linalg import lapack

    cholesky, scale, is_informed = _cholesky(H)
    if cholesky is None:
        return _pseudo_inverse(H, scale, is_informed)
    # lower triangle of the inverse of the scaled Hessian
    inverted = np.tril(lapack.dpotri(cholesky, lower=1)[0])
    inverted += np.tril(inverted, -1).T
    inverted /= scale[:, None]
    inverted /= scale
    return inverted, is_informed  # all True: a zero row would have made H singular


def solver(H: np.ndarray) -> tuple[Solve, np.ndarray, bool]:
    """Return ``score -> inverse(H)[0] @ score``, whether each parameter is determined, and whether
    H is regular.

    For a regular Hessian this takes a third of the time of its inverse.
    """
    from scipy.linalg import lapack

    cholesky, scale, is_informed = _cholesky(H)
    if cholesky is None:
        inverted, is_informed = _pseudo_inverse(H, scale, is_informed)
        return inverted.__matmul__, is_informed, False
    return (
        lambda score: lapack.dpotrs(cholesky, score / scale, lower=1)[0] / scale,
        is_informed,
        True,
    )


def informed(H: np.ndarray, min_information: float) -> np.ndarray:
    """Return which parameters (p,) take no part in the directions without information.

    H (p, p) is scaled to unit diagonal. A direction without information is an eigenvector with an
    eigenvalue below `min_information`. A parameter takes no part if its squared loadings on all
    these directions sum to less than `min_information`, too.
    """
    is_informed = H.diagonal() > NO_INFORMATION
    scale = np.sqrt(np.where(is_informed, H.diagonal(), 1.0))
    scaled = H / np.outer(scale, scale)
    eigenvalues, eigenvectors = eigen.eigenvectors(scaled, min_information)
    return is_informed & (
        (eigenvectors[:, eigenvalues < min_information] ** 2).sum(axis=1) < min_information
    )


def _cholesky(H: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Scale a Hessian H (p, p) to unit diagonal and factor it.

    Returns the lower Cholesky factor of ``H / outer(scale, scale)``, None if it is singular; the
    scale (p,); and whether each diagonal element of H is nonzero (p,).
    """
    from scipy.linalg import lapack

    is_informed = H.diagonal() > NO_INFORMATION
    scale = np.sqrt(np.where(is_informed, H.diagonal(), 1.0))
    scaled = H / scale[:, None]
    scaled /= scale
    # the transpose is equal and needs no copy
    cholesky, failed_at = lapack.dpotrf(scaled.T, lower=1, overwrite_a=1)
    is_regular = not failed_at and cholesky.diagonal().min() ** 2 > MIN_PIVOT
    return cholesky if is_regular else None, scale, is_informed


def _pseudo_inverse(
    H: np.ndarray, scale: np.ndarray, is_informed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return `inverse` of a singular Hessian; `scale` and `is_informed` are the last two results of
    `_cholesky`.
    """
    scales = np.outer(scale, scale)
    # eigenvalues (p,), eigenvectors in the columns (p, p)
    eigenvalues, eigenvectors = eigen.eigenvectors(H / scales)
    is_curved = eigenvalues > ZERO_EIGENVALUE * len(H)
    determined = is_informed & ((eigenvectors[:, ~is_curved] ** 2).sum(axis=1) < ZERO_LOADING)
    return (eigenvectors[:, is_curved] / eigenvalues[is_curved]) @ eigenvectors[
        :, is_curved
    ].T / scales, determined
