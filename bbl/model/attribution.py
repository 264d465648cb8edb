"""Attribution: contributions of the terms of a model to the scores of a row, in the zero-sum gauge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from bbl.memory import check_memory

__all__ = ["Factors", "contributions", "zero_sum_factors"]

Scope = tuple[int, ...]
Factors = Mapping[Scope, np.ndarray]  # predictors, and their table (K, levels...) with all levels


def zero_sum_factors(factors: Iterable[tuple[Scope, np.ndarray]]) -> tuple[dict[Scope, np.ndarray], np.ndarray]:
    """Return factors in the zero-sum gauge: each table sums to zero over each of its predictors.

    Parameters
    ----------
    factors : iterable of (tuple of k ints, ndarray (K, L_1, ..., L_k))
        Terms of the energy with all levels, as of `Layout.factors`.

    Returns
    -------
    terms : dict of tuple of int to ndarray
        The same energies but for a constant: a main effect for each predictor, and what terms add beyond those of fewer
        predictors (Hoeffding's decomposition under equal weights of all levels).
    constant : ndarray, shape (K,)

    Examples
    --------
    >>> terms, constant = zero_sum_factors(
    ...     [((0,), np.array([[0.0, 1.0]])), ((0, 1), np.array([[[0.0, 0.0], [0.0, 4.0]]]))]
    ... )
    >>> terms[0,].tolist(), terms[1,].tolist(), terms[0, 1].tolist(), constant.tolist()
    ([[-1.5, 1.5]], [[-1.0, 1.0]], [[[1.0, -1.0], [-1.0, 1.0]]], [1.5])
    """
    terms: dict[Scope, np.ndarray] = {}
    constant: np.ndarray | float = 0.0
    for scope, table in factors:
        for k in range(len(scope) + 1):
            for kept_axes in combinations(range(len(scope)), k):
                gone = tuple(1 + axis for axis in range(len(scope)) if axis not in kept_axes)
                mean_table = table.mean(axis=gone) if gone else table
                for axis in range(1, k + 1):
                    mean_table = mean_table - mean_table.mean(axis=axis, keepdims=True)
                if kept_axes:
                    sub_scope = tuple(scope[axis] for axis in kept_axes)
                    terms[sub_scope] = terms[sub_scope] + mean_table if sub_scope in terms else mean_table
                else:
                    constant = constant + mean_table
    order = sorted(terms, key=lambda own: (len(own), own))
    return {sub_scope: terms[sub_scope] for sub_scope in order}, np.asarray(constant)


def contributions(terms: Factors, K: int, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
    """Return the contributions (n, K, T) of T terms to K scores of rows; zero if a member of a term is missing."""
    check_memory(
        8.0 * len(codes) * K * len(terms), f"Explaining {len(codes)} rows by {len(terms)} terms", "Explain fewer rows."
    )
    out = np.zeros((len(codes), K, len(terms)))
    for t, (scope, table) in enumerate(terms.items()):
        where: Any = (slice(None), *(codes[:, i].astype(np.intp) for i in scope))
        out[:, :, t] = table[where].T
        if missing is not None:
            out[missing[:, list(scope)].any(axis=1), :, t] = 0.0
    return out
