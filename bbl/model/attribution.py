"""Contributions of model terms to the class scores of rows, in the zero-sum gauge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from bbl.memory import check_memory

__all__ = ["Factors", "contributions", "zero_sum_factors"]

Scope = tuple[int, ...]
Factors = Mapping[Scope, np.ndarray]


def zero_sum_factors(
    factors: Iterable[tuple[Scope, np.ndarray]], slopes: Sequence[int] = ()
) -> tuple[dict[Scope, np.ndarray], np.ndarray]:
    """Convert factors to the zero-sum gauge and return the tables and the remaining constant.

    Parameters
    ----------
    factors : iterable of (tuple of k ints, ndarray (K, L_1, ..., L_k))
        Tables of the energy as returned by `Layout.factors`: the predictors of each table (its
        scope), and its values over all levels of these predictors for K groups.
    slopes : sequence of int, optional
        Numeric predictors: their axes have length one, and tables are multiplied by their values
        (see `bbl.model.number_terms.centred_factors`).

    Returns
    -------
    terms : dict of tuple of int to ndarray
        Tables with the same total energy up to the constant: main effects, and interactions from
        which all lower-order effects are removed (Hoeffding's decomposition with equal weights for
        all levels).
    constant : ndarray, shape (K,)
        Sum of the means of all tables.

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
        slope_axes = {axis for axis, i in enumerate(scope) if i in slopes}
        for k in range(len(scope) + 1):
            for kept_axes in combinations(range(len(scope)), k):
                averaged_axes = tuple(
                    1 + axis for axis in range(len(scope)) if axis not in kept_axes
                )
                if not slope_axes <= set(kept_axes):
                    continue
                # the part of the table due to this subset of the scope: the mean over the other
                # axes, minus its own means along each kept axis
                effect = table.mean(axis=averaged_axes) if averaged_axes else table
                for axis, kept_axis in enumerate(kept_axes, 1):
                    if kept_axis not in slope_axes:
                        effect = effect - effect.mean(axis=axis, keepdims=True)
                if kept_axes:
                    sub_scope = tuple(scope[axis] for axis in kept_axes)
                    terms[sub_scope] = terms[sub_scope] + effect if sub_scope in terms else effect
                else:
                    constant = constant + effect
    ordered = sorted(terms, key=lambda scope: (len(scope), scope))
    return {sub_scope: terms[sub_scope] for sub_scope in ordered}, np.asarray(constant)


def contributions(
    terms: Factors,
    K: int,
    codes: np.ndarray,
    missing: np.ndarray | None = None,
    origins: Mapping[int, float] | None = None,
) -> np.ndarray:
    """Return the contributions (n, K, T) of T terms to the K scores of each row of `codes` (n, m).

    A term contributes zero in rows where one of its predictors is marked in `missing` (n, m).
    `origins` maps the position of each numeric predictor to the value at which its effect is zero.
    """
    origins = origins or {}
    check_memory(
        8.0 * len(codes) * K * len(terms),
        f"Explaining {len(codes)} rows with {len(terms)} terms",
        "Explain fewer rows.",
    )
    out = np.zeros((len(codes), K, len(terms)))
    for t, (scope, table) in enumerate(terms.items()):
        scope_codes = tuple(
            np.zeros(len(codes), dtype=np.intp) if i in origins else codes[:, i].astype(np.intp)
            for i in scope
        )
        # (n, K): the table's cell at each row's levels
        out[:, :, t] = np.moveaxis(table, 0, -1)[scope_codes]
        for i in scope:
            if i in origins:
                out[:, :, t] *= (codes[:, i] - origins[i])[:, None]
        if missing is not None:
            out[missing[:, list(scope)].any(axis=1), :, t] = 0.0
    return out
