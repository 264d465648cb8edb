"""Penalties on whole tables of couplings, in simplex coding."""

# The norm of a pair's coefficients in simplex coding is proportional to the Frobenius norm of its
# table in the zero-sum gauge.

from __future__ import annotations

import numpy as np

from bbl.model.layout import Layout

__all__ = ["TablePenalty"]


class TablePenalty:
    """Penalty `lambda_` on the couplings of pairs, and L2 penalty `lambdah` on fields.

    If `kind` is ``"l2"``, the penalty is ``lambda_ / 2`` times the squared norm of each pair's
    table in the zero-sum gauge. If it is ``"group"``, the penalty is `lambda_` times the norm. If
    it is ``"l1"``, the penalty is `lambda_` times twice the norm, which for two levels is the
    absolute coupling in the reference gauge.

    Attributes
    ----------
    cuts : ndarray of intp, shape (G + 1,)
        Position of the first parameter of each nonempty table, followed by the number of
        parameters.
    sizes : ndarray of intp, shape (G,)
        Number of parameters in each table.
    ridge : ndarray, shape (size,)
        Weight of half the square of each parameter. The weight is zero for couplings if norms are
        penalised.
    threshold : ndarray, shape (G,)
        Weight of the norm of each table. The weight is zero for fields, and for all tables if the
        penalty is L2.
    """

    def __init__(self, layout: Layout, kind: str, lambda_: float, lambdah: float):
        table_cuts = np.concatenate([layout.start, layout.pair_start[1:]])
        tables = np.flatnonzero(np.diff(table_cuts))
        self.cuts = np.append(table_cuts[tables], layout.size).astype(np.intp)
        self.sizes = np.diff(self.cuts)
        # squared ratio of the two norms for each table: C'C = L / (L - 1) I for the contrasts C
        L = np.maximum(layout.n_levels, 2).astype(float)
        ratio = L / (L - 1.0)
        ratio = np.concatenate([ratio, ratio[layout.pairs].prod(axis=1)])[tables]
        is_pair = tables >= layout.m
        # weight of half the squared norm in the zero-sum gauge
        squared = np.where(is_pair, lambda_ if kind == "l2" else 0.0, lambdah)
        self.ridge = np.repeat(squared * ratio, self.sizes)
        weight = {"l2": 0.0, "group": 1.0, "l1": 2.0}[kind] * lambda_
        self.threshold = np.where(is_pair, weight, 0.0) * np.sqrt(ratio)

    def norms(self, simplex: np.ndarray) -> np.ndarray:
        """Return the norm (G,) of each table of parameters `simplex` (size,)."""
        return np.sqrt(self.sum_tables(simplex**2))

    def sum_tables(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (G,) of `values` (size,) over each table."""
        return np.add.reduceat(values, self.cuts[:-1]) if len(values) else np.zeros(0)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return the element of `values` (G,) for each parameter's table, as an array (size,)."""
        return np.repeat(values, self.sizes)

    def value(self, simplex: np.ndarray) -> float:
        """Return the penalty at `simplex` (size,)."""
        return float(0.5 * (self.ridge @ simplex**2) + self.threshold @ self.norms(simplex))

    def shrink(self, simplex: np.ndarray, step: np.ndarray) -> np.ndarray:
        """Apply the proximal map of the norms, with a step length in `step` (G,) for each table."""
        norms = self.norms(simplex)
        left = np.maximum(norms - step * self.threshold, 0.0)
        return simplex * self.spread(left / np.maximum(norms, 1e-300))

    def violation(self, simplex: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Return the violation (G,) of the optimality conditions for each table.

        `gradient` (size,) is the gradient of the objective without the norms, including the L2
        penalty.
        """
        norms = self.norms(simplex)
        slope = gradient + simplex * self.spread(self.threshold / np.maximum(norms, 1e-300))
        at_zero = np.maximum(self.norms(gradient) - self.threshold, 0.0)
        return np.where(norms > 0.0, self.norms(slope), at_zero)
