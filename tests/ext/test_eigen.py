"""Eigenvectors of symmetric matrices: those of numpy, also where its algorithm fails."""

import numpy as np
import pytest

from bbl._ext.model.eigen import eigenvectors


def singular(n=80, rank=30, seed=0):
    factor = np.random.default_rng(seed).normal(size=(n, rank))
    return factor @ factor.T


def fail(matrix):
    raise np.linalg.LinAlgError("Eigenvalues did not converge")


@pytest.mark.parametrize("n", [1, 80, 600])
@pytest.mark.parametrize("fails", [False, True])
def test_eigenvectors_are_those_of_the_matrix(monkeypatch, n, fails):
    matrix = singular(n, (n + 1) // 2)
    expected = np.linalg.eigvalsh(matrix)
    if fails:
        monkeypatch.setattr(np.linalg, "eigh", fail)
    values, vectors = eigenvectors(matrix.copy())
    np.testing.assert_allclose(values, expected, atol=1e-12 * n * expected[-1])
    np.testing.assert_allclose(
        (vectors * values) @ vectors.T, matrix, atol=1e-12 * n * expected[-1]
    )
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), atol=1e-12)


def test_a_matrix_that_is_not_finite_is_refused(monkeypatch):
    monkeypatch.setattr(np.linalg, "eigh", fail)
    matrix = singular()
    matrix[3, 3] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="did not converge"):
        eigenvectors(matrix)
