"""Conversion of parameters between the reference gauge, the zero-sum gauge and simplex coding.

In *simplex coding*, zero-sum tables have as many parameters as in the reference gauge, in the same
order. Each level of predictor i is a corner of a regular simplex, which is a row of the contrasts
``C_i`` (L_i, L_i - 1). Fields are ``C_i b_i``, and couplings are ``C_i B_ij C_j'``. The rows of C
have unit norm, so the variance of a coupling equals the variance of the entries of B regardless of
the number of levels. With two levels, this is the Ising model.

Below, C and R are the contrasts of the two predictors i and j in a pair, and P and Q are the
contrasts of their non-reference levels relative to the reference level: ``P = C[1:] - C[0]``, ``Q =
R[1:] - R[0]``. Couplings are averaged over their sites as in eq. 18 of Woo & Wang (2022).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import get_args

import numpy as np

from bbl.choices import Gauge
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
    "reference_covariance",
    "reference_fields",
    "reference_variance",
    "scale_variance",
    "simplex_gradient",
    "to_reference",
    "to_simplex",
    "zero_sum",
]

GAUGES = get_args(Gauge)  # coordinates for penalising parameters


@lru_cache(maxsize=256)
def contrasts(L: int) -> np.ndarray:
    """Return the simplex contrasts C (L, L - 1), with rows of unit norm and zero-sum columns.

    These are Helmert contrasts: column k compares level k with all previous levels. ``C'C`` equals
    ``L / (L - 1)`` times the identity.

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
    """Return a basis (L - 1, L - 1) of orthonormal level contrasts for each predictor.

    Columns are contrasts. Row a - 1 contains the contrasts of level a minus the contrasts of the
    reference level. If ``o`` (L - 1,) contains the indicators of an observed level, ``basis.T @ o``
    therefore equals the contrasts of this level up to a constant vector. Changing the reference
    level only rotates the contrasts.
    """
    # the scale makes the columns of C orthonormal, since C'C is L / (L - 1) times the identity
    contrasts_and_scales = [
        (contrasts(L), np.sqrt(1.0 - 1.0 / L)) for L in layout.n_levels.tolist()
    ]
    return [(C[1:] - C[0]) * scale for C, scale in contrasts_and_scales]


def change_coordinates(layout: Layout, M: np.ndarray, bases: list[np.ndarray]) -> None:
    """Replace M (D, D) by ``B' M B`` in place, where B is block diagonal with blocks `bases`."""
    for a, b, basis in zip(layout.start[:-1], layout.start[1:], bases, strict=True):
        M[a:b] = basis.T @ M[a:b]
        M[:, a:b] = M[:, a:b] @ basis


def zero_sum(tables: np.ndarray, order: int = 2) -> np.ndarray:
    """Return the zero-sum couplings of a term of k = `order` predictors,
    shape (..., L_i, L_j, ...).

    The means over each of the last k axes are subtracted.
    """
    for axis in range(-1, -1 - order, -1):
        tables = tables - tables.mean(axis=axis, keepdims=True)
    return tables


def equal_tables(layout: Layout) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
    """Yield all pairs, grouped by the shape of their tables.

    Yields
    ------
    pair_rows : ndarray of intp, shape (n,)
        Rows of `layout.pairs`.
    cells : ndarray of intp, shape (n, (L_i - 1) (L_j - 1))
        Positions of their couplings in the parameter vector.
    L_i, L_j : int
    """
    levels = layout.n_levels[layout.pairs]
    for L_i, L_j in np.unique(levels, axis=0):
        pair_rows = np.flatnonzero((levels == (L_i, L_j)).all(axis=1))
        yield (
            pair_rows,
            layout.pair_start[pair_rows, None] + np.arange((L_i - 1) * (L_j - 1)),
            int(L_i),
            int(L_j),
        )


def _stacked_tables(layout: Layout, theta: np.ndarray) -> Iterator[tuple]:
    """Yield ``(tables, cells, (columns_i, columns_j), C, R)`` for the pairs of each table shape.

    For the n pairs (i, j), `tables` (..., n, L_i - 1, L_j - 1) contains the couplings in `theta`
    (..., size), and `cells` (n, (L_i - 1) (L_j - 1)) their positions. `columns_i` (n, L_i - 1) and
    `columns_j` (n, L_j - 1) contain the positions of the fields of i and j. C (L_i, L_i - 1) and R
    (L_j, L_j - 1) are the contrasts of i and j.
    """
    if layout.order > 2:
        raise ValueError("these gauges are for pairs")
    leading_shape = theta.shape[:-1]
    for pair_rows, cells, L_i, L_j in equal_tables(layout):
        if L_i > 1 and L_j > 1:
            i, j = layout.pairs[pair_rows].T
            field_columns = (
                layout.start[i, None] + np.arange(L_i - 1),
                layout.start[j, None] + np.arange(L_j - 1),
            )
            tables = theta[..., cells].reshape(*leading_shape, len(pair_rows), L_i - 1, L_j - 1)
            yield tables, cells, field_columns, contrasts(L_i), contrasts(L_j)


def _field_slices(layout: Layout) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the field positions and contrasts of each predictor with several levels."""
    for i in np.flatnonzero(layout.n_levels > 1):
        yield (
            slice(int(layout.start[i]), int(layout.start[i + 1])),
            contrasts(int(layout.n_levels[i])),
        )


def _add_at(out: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    """Add `values` (..., n, A) to the `columns` (n, A) of `out` (..., size) in place; columns may
    be repeated.
    """
    np.add.at(out, (..., columns), values)  # type: ignore[arg-type]


def _flatten_tables(tables: np.ndarray) -> np.ndarray:
    """Reshape `tables` (..., A, B) to (..., A B)."""
    return tables.reshape(*tables.shape[:-2], -1)


def to_reference(layout: Layout, simplex: np.ndarray) -> np.ndarray:
    """Return parameters in the reference gauge: ``h_i(0) = J_ij(0, .) = J_ij(., 0) = 0``.

    ``J_ij = P B_ij Q'``; ``h_i = P b_i`` plus ``P B_ij R[0]`` from each pair (i, j) and ``Q B_ji'
    C[0]`` from each pair (j, i), where C and R belong to the first and the second predictor in the
    pair, respectively.

    Parameters
    ----------
    layout : Layout
        Layout of fields and pairs.
    simplex : ndarray, shape (..., layout.size)
        Parameters in simplex coding; leading axes (such as draws) are kept.

    Returns
    -------
    ndarray, shape (..., layout.size)
        Parameters of the same model, up to a constant in the energies.

    Examples
    --------
    >>> to_reference(Layout([2, 2]), np.array([0.0, 0.0, 0.25])).tolist()
    [-0.5, -0.5, 1.0]
    """
    out = np.zeros(simplex.shape)
    for field_columns, C in _field_slices(layout):
        out[..., field_columns] = simplex[..., field_columns] @ (C[1:] - C[0]).T
    # couplings to the reference level of one predictor are added to the fields of the other
    for B, cells, (columns_i, columns_j), C, R in _stacked_tables(layout, simplex):
        P = C[1:] - C[0]
        Q = R[1:] - R[0]
        PB = P @ B
        out[..., cells] = _flatten_tables(PB @ Q.T)
        _add_at(out, columns_i, PB @ R[0])
        _add_at(out, columns_j, (C[0] @ B) @ Q.T)
    return out


def to_simplex(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Convert parameters (..., layout.size) from the reference gauge to simplex coding (inverse of
    `to_reference`).

    With zeros for the reference levels in h and J, ``B_ij = k_i k_j C' J_ij R`` where ``k = (L
    - 1) / L``, and ``b_i = k_i C' (h_i + sum_j mean_b J_ij(., b))``.

    Examples
    --------
    >>> to_simplex(Layout([2, 2]), np.array([-0.5, -0.5, 1.0])).tolist()
    [0.0, 0.0, 0.25]
    """
    out = np.zeros(theta.shape)
    fields = theta[..., : layout.D].astype(float)
    for J, cells, (columns_i, columns_j), C, R in _stacked_tables(layout, theta):
        L_i = len(C)
        L_j = len(R)
        # the factors invert C'C = L / (L - 1) times the identity
        out[..., cells] = _flatten_tables((C[1:].T @ J) @ R[1:]) * (
            (L_i - 1.0) * (L_j - 1.0) / (L_i * L_j)
        )
        # means of the couplings over all levels of the other predictor (0 at its reference level)
        # are added to the fields
        _add_at(fields, columns_i, J.sum(axis=-1) / L_j)
        _add_at(fields, columns_j, J.sum(axis=-2) / L_i)
    for field_columns, C in _field_slices(layout):
        out[..., field_columns] = fields[..., field_columns] @ C[1:] * ((len(C) - 1.0) / len(C))
    return out


def simplex_gradient(layout: Layout, gradient: np.ndarray) -> np.ndarray:
    """Convert a gradient (..., size) from the reference gauge to simplex coding.

    This is the transpose of `to_reference`: for a table B, the result is ``P' G Q + P' g_i R[0]' +
    C[0] g_j' Q``, where G is the gradient with respect to the couplings of i and j, and g_i and g_j
    are the gradients with respect to their fields.
    """
    out = np.zeros(gradient.shape)
    for field_columns, C in _field_slices(layout):
        out[..., field_columns] = gradient[..., field_columns] @ (C[1:] - C[0])
    for G, cells, (columns_i, columns_j), C, R in _stacked_tables(layout, gradient):
        P = C[1:] - C[0]
        Q = R[1:] - R[0]
        B = (P.T @ G) @ Q
        B += (gradient[..., columns_i] @ P)[..., :, None] * R[0]
        B += C[0][:, None] * (gradient[..., columns_j] @ Q)[..., None, :]
        out[..., cells] = _flatten_tables(B)
    return out


def reference_covariance(layout: Layout, covariance: np.ndarray) -> np.ndarray:
    """Convert a covariance (size, size) from simplex coding to the reference gauge."""
    # apply the map to one axis, then to the other
    return to_reference(layout, to_reference(layout, covariance).T)


def reference_variance(layout: Layout, variance: np.ndarray) -> np.ndarray:
    """Convert variances (..., layout.size) from simplex coding to the reference gauge.

    The parameters are uncorrelated in simplex coding, with variances `variance` (..., layout.size).
    """
    out = np.zeros(variance.shape)  # apply the map of `to_reference` with squared coefficients
    for field_columns, C in _field_slices(layout):
        out[..., field_columns] = variance[..., field_columns] @ ((C[1:] - C[0]) ** 2).T
    for V, cells, (columns_i, columns_j), C, R in _stacked_tables(layout, variance):
        P = (C[1:] - C[0]) ** 2
        Q = (R[1:] - R[0]) ** 2
        PV = P @ V
        out[..., cells] = _flatten_tables(PV @ Q.T)
        _add_at(out, columns_i, PV @ R[0] ** 2)
        _add_at(out, columns_j, (C[0] ** 2 @ V) @ Q.T)
    return out


def scale_variance(layout: Layout, simplex: np.ndarray, factor_variance: np.ndarray) -> np.ndarray:
    """Return reference-gauge variances of tables that are multiplied by uncertain factors, shape
    (size,).

    A parameter is a sum of contributions, one from each table (see `to_reference`). Its variance is
    the sum of each squared contribution times the variance of its factor.

    Parameters
    ----------
    layout : Layout
    simplex : ndarray, shape (layout.size,)
        Parameters in simplex coding; each table is multiplied by its own factor.
    factor_variance : ndarray, shape (m + P,)
        Variances of the independent factors: one for the fields of each predictor, then one for the
        couplings of each pair.
    """
    out = np.zeros(simplex.shape)
    m = layout.m
    for i, (field_columns, C) in zip(
        np.flatnonzero(layout.n_levels > 1), _field_slices(layout), strict=True
    ):
        out[field_columns] = factor_variance[i] * (simplex[field_columns] @ (C[1:] - C[0]).T) ** 2
    # the rows of `layout.pairs` in each yield of `_stacked_tables`, which skips pairs without
    # couplings
    pair_rows = (rows for rows, _, L_i, L_j in equal_tables(layout) if L_i > 1 and L_j > 1)
    for rows, (B, cells, (columns_i, columns_j), C, R) in zip(
        pair_rows, _stacked_tables(layout, simplex), strict=True
    ):
        P = C[1:] - C[0]
        Q = R[1:] - R[0]
        pair_variance = factor_variance[m + rows]
        PB = P @ B
        out[cells] = _flatten_tables(pair_variance[:, None, None] * (PB @ Q.T) ** 2)
        _add_at(out, columns_i, pair_variance[:, None] * (PB @ R[0]) ** 2)
        _add_at(out, columns_j, pair_variance[:, None] * ((C[0] @ B) @ Q.T) ** 2)
    return out


def level_shares(layout: Layout) -> np.ndarray:
    """Return ``1 / L_j`` (D,), the weight of each column in an unweighted mean over levels."""
    return np.repeat(1.0 / layout.n_levels, layout.n_levels - 1)


def penalty_metric(layout: Layout, lambda_: float, lambdah: float) -> np.ndarray:
    """Return the matrix Q (1 + D, 1 + D) of site i's zero-sum penalty in a model with pairs.

    The site solution x has a row for each non-reference level of site i, and 1 + D columns: the
    field, followed by the couplings to all columns. In the zero-sum gauge, the couplings between
    all levels are ``M_i J_ij M_j``, where ``M = I - 1 1'/L``, and the fields ``M_i (h_i + sum_j
    J_ij 1/L_j)``. Then ``lambda_/2`` times the sum of squared couplings plus ``lambdah/2`` times
    the sum of squared fields equals ``tr(x' M_i x Q) / 2``, where the rows and columns of the
    reference levels are omitted from `M_i` and Q.

    Examples
    --------
    >>> penalty_metric(Layout([2, 2]), 1.0, 0.0)
    array([[0. , 0. , 0. ],
           [0. , 0.5, 0. ],
           [0. , 0. , 0.5]])
    """
    shares = level_shares(layout)
    field_map = np.append(1.0, shares)  # weights of the columns in a zero-sum field
    Q = lambdah * np.outer(field_map, field_map)
    for lo, hi in zip(layout.start[:-1].tolist(), layout.start[1:].tolist(), strict=True):
        # empty for a predictor with one level, which has no columns
        pair_columns = slice(1 + lo, 1 + hi)
        # lambda_ M_j without the reference level, since the weights are 1 / L_j
        Q[pair_columns, pair_columns] += lambda_ * (
            np.eye(hi - lo) - (shares[lo] if hi > lo else 0.0)
        )
    return Q


def reference_fields(layout: Layout, theta: np.ndarray, site_theta: np.ndarray) -> np.ndarray:
    """Return the fields that correspond to averaging couplings in the zero-sum gauge, shape (D,).

    Averaging the couplings from the two sites of a pair (eq. 18) leaves the fields unchanged only
    in the gauge used for the average. The zero-sum fields are ``h_i + sum_j J_ij 1/L_j``, centred.
    The result keeps these fields unchanged, so the change in the sum is subtracted from h_i.
    Couplings in the reference gauge do not depend on the gauge used for the average.

    Parameters
    ----------
    layout : Layout
        Layout of fields and pairs.
    theta : ndarray, shape (layout.size,)
        The model, averaged in the reference gauge.
    site_theta : ndarray, shape (layout.D, 1 + D)
        The solutions of all sites before averaging: row (i, a) contains the field of level a of
        site i, followed by its couplings to all columns.
    """
    # (D, D): averaged couplings minus the site's couplings; `to_sites` has the shape of
    # `site_theta`
    J_change = to_sites(layout, theta)[:, 1:] - site_theta[:, 1:]
    return theta[: layout.D] - J_change @ level_shares(layout)
