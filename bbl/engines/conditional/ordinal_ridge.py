"""Ridge-penalised fits of an ordered response, with one function f of the predictors.

With up to a few thousand distinct rows, f is a sum of functions in a kernel basis, as for nominal
groups. With more rows, it is a sum of level contrasts and their products. Both are orthonormal in
the kernel, so the penalty is the sum of squares of their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bbl.engines.conditional.coding import coding_of
from bbl.engines.conditional.folds import RANK, group_weights
from bbl.engines.conditional.kernel import (
    Basis,
    determined,
    make_basis,
    shares_and_factors,
    to_tables,
)
from bbl.engines.conditional.maximum import MAX_COEFFICIENTS
from bbl.engines.conditional.ordinal_logits import OrdinalLogits, ordinal_logits
from bbl.engines.conditional.ordinal_solve import solve_ordinal
from bbl.engines.engine_fit import JointFit, Limit
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = [
    "fit_ordinal",
    "ordinal_coefficient_covariance",
    "ordinal_difference_covariance",
]

CONVERGED = 1e-6  # norm of the gradient that changes coefficients in the fourth decimal at most


@dataclass(frozen=True)
class _Functions:
    """Values of functions at n distinct rows, and the fields and couplings of their weighted sums.

    Attributes
    ----------
    values : ndarray, shape (n, r)
    to_tables : callable
        ``to_tables(weights)`` returns the parameters (size,) of the sum with weights (r,) in the
        reference gauge, and its value at the reference levels.
    """

    values: np.ndarray
    to_tables: Callable[[np.ndarray], tuple[np.ndarray, float]]


def _basis_functions(basis: Basis) -> _Functions:
    """Return the functions of a kernel basis."""

    def tables(weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the parameters and the constant of a weighted sum of the functions."""
        theta, constant = to_tables(basis, weights[:, None])
        return theta[0], float(constant[0])

    return _Functions(basis.functions, tables)


def _contrast_functions(
    codes: np.ndarray, weights: np.ndarray, layout: Layout, tau: float, ordered: str
) -> _Functions:
    """Return centred level contrasts and their products, which have unit norm in the kernel.

    `codes` (n, m) contains the distinct rows and `weights` (n,) their weights.
    """
    coding = coding_of(layout, ordered)
    level_shares, factors = shares_and_factors(codes, weights / weights.sum(), layout, coding, tau)
    # values (L, d) of each predictor's contrasts at all levels, with mean 0 over the rows
    contrasts = []
    for i, shares in enumerate(level_shares):
        from_reference = coding.uncorrelated_contrasts(i, shares)[0]
        values = np.vstack([np.zeros(from_reference.shape[1]), from_reference])
        contrasts.append(values - shares @ values)
    products = [(int(i), int(j)) for i, j in layout.pairs]
    sizes = [values.shape[1] for values in contrasts]
    r = sum(sizes) + sum(sizes[i] * sizes[j] for i, j in products)
    if r > MAX_COEFFICIENTS:
        raise OptionError(
            "With more than 5,000 distinct rows, ordered logits estimate all coefficients at "
            f"once and support at most {MAX_COEFFICIENTS:,}, but this model has {r:,}.",
            argument="logits",
            hint="Use logits='nominal', fewer predictors or fewer interactions.",
        )
    check_memory(
        8.0 * (2.0 * len(codes) * r + 4.0 * r * r),
        f"A design matrix with {r:,} columns for {len(codes):,} distinct rows",
        "Use logits='nominal', fewer predictors or fewer interactions.",
    )
    roots = np.sqrt(factors)
    at_rows = [values[codes[:, i]] for i, values in enumerate(contrasts)]
    parts = [roots[0] * values for values in at_rows]
    parts += [
        roots[1] * (at_rows[i][:, :, None] * at_rows[j][:, None, :]).reshape(len(codes), -1)
        for i, j in products
    ]
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]

    def tables(weights: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the parameters and the constant of a weighted sum of the functions."""
        theta = np.zeros(layout.size)
        constant = 0.0
        own = np.split(weights, ends)
        for i, values in enumerate(contrasts):
            at_levels = roots[0] * (values @ own[i])
            theta[layout.start[i] : layout.start[i + 1]] += at_levels[1:] - at_levels[0]
            constant += float(at_levels[0])
        for k, (i, j) in enumerate(products):
            pair_weights = roots[1] * own[layout.m + k].reshape(sizes[i], sizes[j])
            table = contrasts[i] @ pair_weights @ contrasts[j].T
            constant += float(table[0, 0])
            theta[layout.start[i] : layout.start[i + 1]] += table[1:, 0] - table[0, 0]
            theta[layout.start[j] : layout.start[j + 1]] += table[0, 1:] - table[0, 0]
            couplings = table[1:, 1:] - table[1:, :1] - table[:1, 1:] + table[0, 0]
            theta[layout.pair_start[k] : layout.pair_start[k + 1]] = couplings.ravel()
        return theta, constant

    values = np.column_stack(parts) if parts else np.zeros((len(codes), 0))
    return _Functions(values, tables)


def fit_ordinal(
    sample: Sample,
    layout: Layout,
    K: int,
    name: str,
    scale: float,
    ridges: Sequence[float],
    ordered: str,
    max_basis_rows: int,
) -> list[JointFit]:
    """Fit an ordered response at each ridge in decreasing order, with warm starts.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    K : int
        Number of groups.
    name : {"adjacent", "cumulative"}
    scale : float
        Weight of couplings relative to fields.
    ridges : sequence of float
    ordered : {"nominal", "linear", "cumulative"}
        Coding of ordered predictors.
    max_basis_rows : int
        Maximum number of rows for which a kernel basis is used.

    Returns
    -------
    list of JointFit
        One fit for each ridge, in the order of `ridges`.
    """
    codes, distinct_row = np.unique(sample.codes, axis=0, return_inverse=True)
    counts = group_weights(distinct_row.ravel(), len(codes), sample.response, sample.weights, K)
    weights = counts.sum(axis=1)
    functions = (
        _basis_functions(make_basis(codes, weights, layout, scale, RANK, ordered))
        if sample.n <= max_basis_rows
        else _contrast_functions(codes, weights, layout, scale, ordered)
    )
    rank = coding_of(layout, ordered).contrast_layout(layout).size
    fits: dict[int, JointFit] = {}
    solution = None
    for k in sorted(range(len(ridges)), key=lambda k: ridges[k], reverse=True):
        solution = solve_ordinal(functions.values, counts, name, ridges[k], solution)
        groups = solution.logits.groups
        table, constant = functions.to_tables(solution.weights)
        theta = np.zeros((K, layout.size))
        theta[groups] = np.outer(solution.logits.multipliers, table)
        constants = np.zeros(K)
        constants[groups] = np.append(0.0, solution.intercepts)
        constants[groups] += solution.logits.multipliers * constant
        # the groups share one table of parameters
        limits = [
            Limit(rank if len(groups) > 1 and g == groups[1] else 0, unbounded=(), notes=())
            for g in range(K)
        ]
        fits[k] = JointFit(
            theta,
            constants,
            temperature=1.0,
            loss=solution.loss,
            gradient=solution.gradient,
            evaluations=solution.n_iter,
            converged=solution.gradient <= CONVERGED,
            limits=limits,
        )
    return [fits[k] for k in range(len(ridges))]


def _covariance_of_unknowns(
    basis: Basis, p: np.ndarray, weights: np.ndarray, name: str, ridge: float
) -> tuple[OrdinalLogits, np.ndarray]:
    """Return the logits, and the covariance ``H^-1 I H^-1`` of the intercepts and function weights.

    I is the Fisher information at the fitted probabilities p (n, K), and H is I plus the penalty.
    """
    from scipy.linalg import cho_factor, cho_solve

    logits = ordinal_logits(name, np.flatnonzero(p.sum(axis=0) > 0.0))
    own = p[:, logits.groups]
    f, c = logits.intercepts_of(own)
    total = weights.sum()
    expected = own * (weights / total)[:, None]
    d = logits.derivatives(f, c, expected)
    k = len(c)
    fisher = np.empty((k + basis.functions.shape[1],) * 2)
    fisher[:k, :k] = d.minus_cc
    fisher[:k, k:] = d.minus_cf.T @ basis.functions
    fisher[k:, :k] = fisher[:k, k:].T
    fisher[k:, k:] = (basis.functions * d.minus_ff[:, None]).T @ basis.functions
    H = fisher.copy()
    H[np.diag_indices_from(H)] += np.append(
        np.zeros(k), np.full(len(H) - k, ridge * logits.penalty_factor)
    )
    solved = cho_solve(cho_factor(H), fisher)
    return logits, cho_solve(cho_factor(H), solved.T) / total


def ordinal_difference_covariance(
    basis: Basis,
    p: np.ndarray,
    weights: np.ndarray,
    name: str,
    ridge: float,
    pair: tuple[int, int],
) -> np.ndarray:
    """Return the covariance (r, r) of the difference in function weights between two groups.

    The difference is group ``pair[0]`` minus group ``pair[1]``.

    The arguments are the same as in `bbl.engines.conditional.multinomial.difference_covariance`.
    """
    logits, covariance = _covariance_of_unknowns(basis, p, weights, name, ridge)
    k = len(logits.groups) - 1
    multipliers = np.zeros(p.shape[1])
    multipliers[logits.groups] = logits.multipliers
    return (multipliers[pair[0]] - multipliers[pair[1]]) ** 2 * covariance[k:, k:]


def ordinal_coefficient_covariance(
    basis: Basis, p: np.ndarray, weights: np.ndarray, name: str, ridge: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariance of all coefficients, and a mask of those determined by the data.

    The result has the same form as in
    `bbl.engines.conditional.coefficients.coefficient_covariance`, but is relative to the first
    group.
    """
    logits, covariance = _covariance_of_unknowns(basis, p, weights, name, ridge)
    k = len(logits.groups) - 1
    r = basis.functions.shape[1]
    tables, constants = to_tables(basis, np.eye(r))
    size = tables.shape[1]
    # maps intercepts and weights to coefficients of all groups, (K, 1 + size, k + r)
    to_groups = np.zeros((p.shape[1], 1 + size, k + r))
    for position, g in enumerate(logits.groups):
        if position:
            to_groups[g, 0, position - 1] = 1.0
        to_groups[g, 0, k:] = logits.multipliers[position] * constants
        to_groups[g, 1:, k:] = logits.multipliers[position] * tables.T
    flat = to_groups.reshape(-1, k + r)
    is_determined = np.append(True, determined(basis, tables, weights))
    return (flat @ covariance @ flat.T).reshape(p.shape[1], 1 + size, p.shape[1], 1 + size), (
        is_determined
    )
