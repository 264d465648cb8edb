"""Gauges: simplex coding, zero-sum tables and the reference gauge of a flat parameter vector, and maps between them.

Which level is the reference does not change a model, but it changes what a prior or a norm of its parameters says. In
simplex coding each level of a predictor is a corner of a regular simplex: fields are ``C_i b_i``, couplings
``C_i B_ij C_j'``, which are the tables of the zero-sum gauge. The rows of the contrasts C have unit norm, so the
variance of a coupling is that of the entries of B, whatever the numbers of levels; with two levels it is the Ising
model, whose spins are -1 and +1. A vector in simplex coding is laid out like one in the reference gauge.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from bbl.model.layout import Layout
from bbl.model.regressors import to_sites

__all__ = [
    "GAUGES",
    "change_coordinates",
    "contrasts",
    "equal_tables",
    "level_shares",
    "orthonormal_bases",
    "penalty_metric",
    "reference_fields",
    "reference_covariance",
    "reference_variance",
    "scale_variance",
    "simplex_gradient",
    "to_reference",
    "to_simplex",
    "zero_sum",
]


GAUGES = ("reference", "zero-sum")  # in which coordinates a method shrinks


@lru_cache(maxsize=256)
def contrasts(L: int) -> np.ndarray:
    """Return the simplex contrasts C (L, L - 1): columns that sum to zero, rows of unit norm, a row for each level.

    Helmert's columns: the k-th compares level k with all levels before it. ``C'C`` is ``L / (L - 1)`` times the
    identity.

    Examples
    --------
    >>> contrasts(2).ravel().tolist()
    [-1.0, 1.0]
    >>> (contrasts(3) @ contrasts(3).T).round(12).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    C = np.zeros((L, max(L - 1, 0)))
    for k in range(1, L):
        C[:k, k - 1], C[k, k - 1] = -1.0, k
        C[:, k - 1] *= np.sqrt(L / (L - 1.0) / (k * (k + 1.0)))
    C.setflags(write=False)
    return C


def orthonormal_bases(layout: Layout) -> list[np.ndarray]:
    """Return for each predictor orthonormal contrasts of all its levels less those of the reference level.

    Each is (L - 1, L - 1), a row for each non-reference level: with indicators o of these, ``basis.T @ o`` are the
    contrasts of a row up to a constant. Which level is the reference makes a rotation of them.
    """
    tables = [(contrasts(L), np.sqrt(1.0 - 1.0 / L)) for L in layout.n_levels.tolist()]
    return [(C[1:] - C[0]) * norm for C, norm in tables]


def change_coordinates(layout: Layout, M: np.ndarray, bases: list[np.ndarray]) -> None:
    """Replace a matrix (D, D) over non-reference levels by ``B' M B``, B being the `bases` of the predictors."""
    for a, b, basis in zip(layout.start[:-1], layout.start[1:], bases, strict=True):
        M[a:b] = basis.T @ M[a:b]
        M[:, a:b] = M[:, a:b] @ basis


def zero_sum(tables: np.ndarray, order: int = 2) -> np.ndarray:
    """Return tables (..., L_i, L_j) less the means over their rows and columns: couplings in the zero-sum gauge.

    With terms of more predictors, of this `order`, less the means over each of the last axes.
    """
    for axis in range(-1, -1 - order, -1):
        tables = tables - tables.mean(axis=axis, keepdims=True)
    return tables


def equal_tables(layout: Layout) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
    """Yield the pairs whose tables have equal shapes, shape by shape.

    Yields
    ------
    rows : ndarray of intp, shape (n,)
        Which of `layout.pairs`.
    cells : ndarray of intp, shape (n, (L_i - 1) (L_j - 1))
        Where their couplings lie in the parameter vector.
    L_i, L_j : int
    """
    levels = layout.n_levels[layout.pairs]
    for a, b in np.unique(levels, axis=0):
        rows = np.flatnonzero((levels == (a, b)).all(axis=1))
        yield rows, layout.pair_start[rows, None] + np.arange((a - 1) * (b - 1)), int(a), int(b)


def _blocks(layout: Layout, theta: np.ndarray) -> Iterator[tuple]:
    """Yield tables of equal shapes (..., n, L_i - 1, L_j - 1) with their cells and the columns of their fields."""
    if layout.order > 2:
        raise ValueError("these gauges are of pairs")
    lead = theta.shape[:-1]
    for rows, cells, a, b in equal_tables(layout):
        if a > 1 and b > 1:
            i, j = layout.pairs[rows].T
            field_columns = layout.start[i, None] + np.arange(a - 1), layout.start[j, None] + np.arange(b - 1)
            yield (
                theta[..., cells].reshape(*lead, len(rows), a - 1, b - 1),
                cells,
                field_columns,
                contrasts(a),
                contrasts(b),
            )


def _by_predictor(layout: Layout) -> Iterator[tuple[slice, np.ndarray]]:
    for i in np.flatnonzero(layout.n_levels > 1):
        yield slice(int(layout.start[i]), int(layout.start[i + 1])), contrasts(int(layout.n_levels[i]))


def _add(out: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    """Add `values` (..., n, A) to the `columns` (n, A) of `out`, which may repeat."""
    at: Any = (..., columns)
    np.add.at(out, at, values)


def _flat(tables: np.ndarray) -> np.ndarray:
    return tables.reshape(*tables.shape[:-2], -1)


def to_reference(layout: Layout, simplex: np.ndarray) -> np.ndarray:
    """Return parameters in the reference gauge: ``h_i(0) = J_ij(0, .) = J_ij(., 0) = 0``.

    Parameters
    ----------
    layout : Layout
        Of fields and pairs.
    simplex : ndarray, shape (..., layout.size)
        In simplex coding; all leading axes (draws, say) go along.

    Returns
    -------
    ndarray, shape (..., layout.size)
        The same model: energies differ by one constant.

    Examples
    --------
    >>> to_reference(Layout([2, 2]), np.array([0.0, 0.0, 0.25])).tolist()
    [-0.5, -0.5, 1.0]
    """
    out = np.zeros(simplex.shape)
    for field_columns, C in _by_predictor(layout):
        out[..., field_columns] = simplex[..., field_columns] @ (C[1:] - C[0]).T
    for B, cells, (to_i, to_j), C, R in _blocks(layout, simplex):
        P = C[1:] - C[0]
        Q = R[1:] - R[0]
        rows = P @ B
        out[..., cells] = _flat(rows @ Q.T)
        _add(out, to_i, rows @ R[0])
        _add(out, to_j, (C[0] @ B) @ Q.T)
    return out


def to_simplex(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return parameters (..., layout.size) of the reference gauge in simplex coding; the inverse of `to_reference`.

    Examples
    --------
    >>> to_simplex(Layout([2, 2]), np.array([-0.5, -0.5, 1.0])).tolist()
    [0.0, 0.0, 0.25]
    """
    out, fields = np.zeros(theta.shape), theta[..., : layout.D].astype(float)
    for J, cells, (to_i, to_j), C, R in _blocks(layout, theta):
        a, b = len(C), len(R)
        out[..., cells] = _flat((C[1:].T @ J) @ R[1:]) * ((a - 1.0) * (b - 1.0) / (a * b))
        _add(fields, to_i, J.sum(axis=-1) / b)
        _add(fields, to_j, J.sum(axis=-2) / a)
    for field_columns, C in _by_predictor(layout):
        out[..., field_columns] = fields[..., field_columns] @ C[1:] * ((len(C) - 1.0) / len(C))
    return out


def simplex_gradient(layout: Layout, gradient: np.ndarray) -> np.ndarray:
    """Return the gradient (..., layout.size) by parameters in simplex coding, given that by the reference gauge."""
    out = np.zeros(gradient.shape)
    for field_columns, C in _by_predictor(layout):
        out[..., field_columns] = gradient[..., field_columns] @ (C[1:] - C[0])
    for G, cells, (of_i, of_j), C, R in _blocks(layout, gradient):
        P = C[1:] - C[0]
        Q = R[1:] - R[0]
        B = (P.T @ G) @ Q
        B += (gradient[..., of_i] @ P)[..., :, None] * R[0]
        B += C[0][:, None] * (gradient[..., of_j] @ Q)[..., None, :]
        out[..., cells] = _flat(B)
    return out


def reference_covariance(layout: Layout, covariance: np.ndarray) -> np.ndarray:
    """Return the covariance (size, size) in the reference gauge of parameters with this one in simplex coding."""
    return to_reference(layout, to_reference(layout, covariance).T)


def reference_variance(layout: Layout, variance: np.ndarray) -> np.ndarray:
    """Return the variances (..., layout.size) in the reference gauge of uncorrelated parameters in simplex coding.

    Parameters
    ----------
    layout : Layout
    variance : ndarray, shape (..., layout.size)
    """
    out = np.zeros(variance.shape)
    for field_columns, C in _by_predictor(layout):
        out[..., field_columns] = variance[..., field_columns] @ ((C[1:] - C[0]) ** 2).T
    for V, cells, (to_i, to_j), C, R in _blocks(layout, variance):
        P = (C[1:] - C[0]) ** 2
        Q = (R[1:] - R[0]) ** 2
        rows = P @ V
        out[..., cells] = _flat(rows @ Q.T)
        _add(out, to_i, rows @ R[0] ** 2)
        _add(out, to_j, (C[0] ** 2 @ V) @ Q.T)
    return out


def scale_variance(layout: Layout, simplex: np.ndarray, of_group: np.ndarray) -> np.ndarray:
    """Return the variances in the reference gauge that come from one uncertain factor for each table.

    Parameters
    ----------
    layout : Layout
    simplex : ndarray, shape (layout.size,)
        What the factors multiply, in simplex coding.
    of_group : ndarray, shape (m + P,)
        Variances of the factors: of each predictor's fields, then of each pair's couplings; independent.
    """
    out, m = np.zeros(simplex.shape), layout.m
    for i, (field_columns, C) in zip(np.flatnonzero(layout.n_levels > 1), _by_predictor(layout), strict=True):
        out[field_columns] = of_group[i] * (simplex[field_columns] @ (C[1:] - C[0]).T) ** 2
    shapes = (rows for rows, _, a, b in equal_tables(layout) if a > 1 and b > 1)
    for rows, (B, cells, (to_i, to_j), C, R) in zip(shapes, _blocks(layout, simplex), strict=True):
        P, Q, factor = C[1:] - C[0], R[1:] - R[0], of_group[m + rows]
        first = P @ B
        out[cells] = _flat(factor[:, None, None] * (first @ Q.T) ** 2)
        _add(out, to_i, factor[:, None] * (first @ R[0]) ** 2)
        _add(out, to_j, factor[:, None] * ((C[0] @ B) @ Q.T) ** 2)
    return out


def level_shares(layout: Layout) -> np.ndarray:
    """Return ``1 / L_j`` of the predictor of each column, shape (D,): what a column counts in the mean over levels."""
    return np.repeat(1.0 / layout.n_levels, layout.n_levels - 1)


def penalty_metric(layout: Layout, lambda_: float, lambdah: float) -> np.ndarray:
    """Return the matrix Q (1 + D, 1 + D) of the penalties of a predictor's solution in the zero-sum gauge, with pairs.

    Its solution x has a row for each non-reference level and the columns of the site matrix that it uses. Its couplings
    in the zero-sum gauge are ``M_i J_ij M_j`` with ``M = I - 1 1'/L``, its fields ``M_i (h_i + sum_j J_ij 1/L_j)``, all
    levels included; ``lambda_/2`` and ``lambdah/2`` times the sums of squares are ``tr(x' M_i x Q) / 2``, the rows
    and columns of `M_i` and Q that belong to reference levels left out.

    Examples
    --------
    >>> penalty_metric(Layout([2, 2]), 1.0, 0.0)
    array([[0. , 0. , 0. ],
           [0. , 0.5, 0. ],
           [0. , 0. , 0.5]])
    """
    share = level_shares(layout)
    mean = np.append(1.0, share)
    Q = lambdah * np.outer(mean, mean)
    for lo, hi in zip(layout.start[:-1].tolist(), layout.start[1:].tolist(), strict=True):
        pair_columns = slice(1 + lo, 1 + hi)
        Q[pair_columns, pair_columns] += lambda_ * (np.eye(hi - lo) - (share[lo] if hi > lo else 0.0))
    return Q


def reference_fields(layout: Layout, theta: np.ndarray, site_theta: np.ndarray) -> np.ndarray:
    """Return the fields (D,) of a model whose couplings were averaged in the zero-sum gauge.

    Averaging couplings (eq. 18) leaves the fields of which gauge it is done in as they are, and so moves those of all
    others. The couplings themselves are the same in the reference gauge.

    Parameters
    ----------
    layout : Layout
        Of pairs.
    theta : ndarray, shape (layout.size,)
        The model, averaged in the reference gauge.
    site_theta : ndarray, shape (layout.D, 1 + D)
        What was averaged.
    """
    moved = to_sites(layout, theta)[:, 1:] - site_theta[:, 1:]
    return theta[: layout.D] - moved @ level_shares(layout)
