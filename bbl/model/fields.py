"""Fields of levels in models with terms of any order, and the pseudo-likelihood of rows.

The *field* of a level in a row is its log odds against the reference level given the other
predictors, the exponent of eq. 13 of Woo & Wang (2022). Without couplings it equals the parameter
h of the level, the *constant field*.
"""

from __future__ import annotations

import numpy as np

from bbl.memory import check_memory
from bbl.model.energy import conditionals
from bbl.model.layout import Layout, term_columns
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import one_hot
from bbl.model.regressors import to_matrix
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["Fields", "mean_pseudo_log_likelihood", "pseudo_log_likelihood"]

ROWS = 2048  # rows per chunk
# largest number of products of indicators (rows times parameters) computed at once
CHUNK_CELLS = 2**22


class Fields:
    """Computes the fields (n, D) of rows under one model from the indicators of their levels.

    The field of a level is its constant field plus, for each coupling that involves the level, the
    product of the coupling and the indicators of its other levels.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
        Constant fields, followed by the couplings of pairs, of terms with three members, and so on.

    Attributes
    ----------
    D : int
    h : ndarray, shape (D,)
        Constant fields.
    J : ndarray, shape (D, D)
        Symmetric pair couplings; zero between levels of the same predictor, so that a field depends
        only on other predictors.
    higher_terms : list of tuples (ndarray, csr_array)
        For each order k = 3, 4, ... and each position a < k in a term, two arrays for the T nonzero
        couplings of order k: the columns (k - 1, T) of the levels of the members other than a, and
        a sparse matrix (T, D) that contains each coupling in the column of the level of member a.

    Examples
    --------
    >>> fields = Fields(Layout([2, 2]), np.array([1.0, 2.0, 4.0]))
    >>> fields(np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([[1., 6.],
           [3., 4.]])
    """

    def __init__(self, layout: Layout, theta: np.ndarray):
        from scipy.sparse import csr_array

        check_memory(8.0 * layout.D**2, f"Fields of {layout.D} levels", "Use fewer predictors.")
        self.D = layout.D
        # constant fields and couplings of pairs come first in `theta`, as in the layout without
        # higher terms
        pair_layout = layout if layout.order <= 2 else Layout(layout.n_levels, layout.pairs)
        self.h, self.J = to_matrix(pair_layout, theta[: pair_layout.size])
        self.higher_terms: list[tuple[np.ndarray, csr_array]] = []
        if layout.order > 2:
            # (order, size): column of the level of each member of a parameter's term, or -1
            columns = term_columns(layout)
            order = (columns >= 0).sum(axis=0)  # (size,): order of the parameter's term
            for k in range(3, layout.order + 1):
                parameters = np.flatnonzero((order == k) & (theta != 0.0))
                T = len(parameters)
                member_columns = columns[:k, parameters]
                for axis in range(k):  # position of a member in its term
                    couplings = csr_array(
                        (theta[parameters], (np.arange(T), member_columns[axis])), (T, layout.D)
                    )
                    self.higher_terms.append((np.delete(member_columns, axis, axis=0), couplings))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return the fields (n, D) for level indicators X (n, D) or their means (mean field)."""
        with serial_blas():  # single-threaded, so that sums do not depend on the number of threads
            # `J` is zero within a predictor, so its own indicators are ignored
            out = X @ self.J + self.h
        chunk_rows = max(
            1, CHUNK_CELLS // max([1, *(columns.shape[1] for columns, _ in self.higher_terms)])
        )
        for lo in range(0, len(X), chunk_rows):
            chunk = X[lo : lo + chunk_rows]
            for other_columns, couplings in self.higher_terms:
                # (rows, T): 1 where a row has all other levels of a coupling
                out[lo : lo + chunk_rows] += chunk[:, other_columns].prod(axis=1) @ couplings
        return out


def pseudo_log_likelihood(
    layout: Layout, theta: np.ndarray, codes: np.ndarray, missing: np.ndarray | None = None
) -> np.ndarray:
    """Return ``sum_i ln P(x_i | the other predictors)`` (n,) of rows under one model.

    Missing predictors are marginalised and do not contribute a term to the sum.

    Parameters
    ----------
    layout : Layout
    theta : ndarray, shape (layout.size,)
    codes : ndarray, shape (n, m)
    missing : ndarray of bool, shape (n, m), optional

    Examples
    --------
    >>> theta = np.array([1.0, 2.0, 4.0])
    >>> pseudo_log_likelihood(Layout([2, 2]), theta, np.array([[1, 1]], dtype=np.uint8)).round(4)
    array([-0.0092])
    """
    if layout.support is not None:
        is_missing = np.zeros(codes.shape, dtype=bool) if missing is None else missing
        return _sum_log_conditionals(layout, theta, codes, is_missing)
    out = np.zeros(len(codes))
    is_complete = np.ones(len(codes), dtype=bool) if missing is None else ~missing.any(axis=1)
    if is_complete.any():
        fields = Fields(layout, theta)
        complete_rows = np.flatnonzero(is_complete)
        for lo in range(0, len(complete_rows), ROWS):
            rows = complete_rows[lo : lo + ROWS]
            X = one_hot(codes[rows], layout)
            field = fields(X)
            # subtract the log-normalisers, the first result of `conditionals`
            out[rows] = (X * field).sum(axis=1) - conditionals(field, layout)[0].sum(axis=1)
    if missing is not None and not is_complete.all():
        rows = np.flatnonzero(~is_complete)
        out[rows] = _sum_log_conditionals(layout, theta, codes[rows], missing[rows])
    return out


def mean_pseudo_log_likelihood(layout: Layout, theta: np.ndarray, sample: Sample) -> float:
    """Return the mean log pseudo-likelihood of the complete rows, or nan if no row is complete."""
    complete = sample if sample.missing is None else sample.rows(~sample.missing.any(axis=1))
    if not complete.n:
        return float("nan")
    return (
        float(complete.weights @ pseudo_log_likelihood(layout, theta, complete.codes))
        / complete.total
    )


def _sum_log_conditionals(
    layout: Layout, theta: np.ndarray, codes: np.ndarray, missing: np.ndarray
) -> np.ndarray:
    """Return the `pseudo_log_likelihood` (n,), computed from energies.

    For each predictor i, energies are computed with x_i replaced by each of its levels: ``ln P(x_i
    | others) = E(x) - ln sum_a exp E(x with a for x_i)``. Unlike `Fields`, this method supports
    missing values and structural zeros.
    """
    # the energy of a row is the log-sum over its missing predictors, or -inf if the row cannot
    # occur
    energy = MarginalEnergy(layout, theta[None])
    out = np.zeros(len(codes))
    for i in range(layout.m):
        known_rows = np.flatnonzero(~missing[:, i])
        level_energy = np.empty((len(known_rows), layout.n_levels[i]))
        for a in range(layout.n_levels[i]):
            rows = codes[known_rows].copy()
            rows[:, i] = a
            level_energy[:, a] = energy(rows, missing[known_rows])[:, 0]  # the one model
        largest = level_energy.max(axis=1, keepdims=True)
        # a row that cannot occur stays at -inf
        level_energy -= np.where(np.isneginf(largest), 0.0, largest)
        # the sum is at least 1, or 0 for a row that cannot occur: the maximum keeps its log finite
        log_p = level_energy - np.log(
            np.maximum(np.exp(level_energy).sum(axis=1, keepdims=True), 1.0)
        )
        out[known_rows] += log_p[np.arange(len(known_rows)), codes[known_rows, i]]
    return out
