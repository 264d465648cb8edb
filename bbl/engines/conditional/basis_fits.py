"""Conditional-likelihood fits in a basis of the kernel, for up to a few thousand distinct rows."""

from __future__ import annotations

import numpy as np

from bbl._ext.conditional.multinomial import Panels
from bbl.engines.conditional.discriminative import HARMLESS, Solution, Tolerance, solve
from bbl.engines.conditional.folds import EARLY, RANK, falling_ridges, group_weights
from bbl.engines.conditional.kernel import make_basis, to_tables
from bbl.engines.engine_fit import JointFit
from bbl.engines.traits import OutOfFoldScores
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

__all__ = ["fit_by_basis"]


def fit_by_basis(
    sample: Sample,
    layout: Layout,
    K: int,
    scale: float,
    ridges: list[float],
    oof_scores: OutOfFoldScores | None,
    tolerance: Tolerance | None,
    ordered: str,
) -> list[JointFit]:
    """Fit all K groups at each ridge in decreasing order, with warm starts.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    K : int
    scale : float
        Weight of couplings relative to fields.
    ridges : list of float
    oof_scores : OutOfFoldScores or None
        Fixed class scores, used as an offset in the fit: `scores` (N, K) of N rows of the sample,
        with positions `rows` (N,) and weights `weights` (N,).
    tolerance : Tolerance or None
        If None, fits stop early. The ridge is then decreased to its final value in a few steps,
        with few iterations at each step.
    ordered : {"nominal", "linear", "cumulative"}
        Coding for ordered predictors.

    Returns
    -------
    list of JointFit
        One fit for each ridge, in the order of `ridges`.
    """
    # weights (n, K): weight of each group at each row. Equal rows are merged and sorted, so that
    # neither repetition nor order makes a difference.
    if oof_scores is None:
        codes, distinct_row = np.unique(sample.codes, axis=0, return_inverse=True)
        weights = group_weights(
            distinct_row.ravel(), len(codes), sample.response, sample.weights, K
        )
        scores = None
    else:
        codes = sample.codes[oof_scores.rows]
        scores = oof_scores.scores
        weights = np.zeros((len(codes), K))
        weights[np.arange(len(codes)), sample.response[oof_scores.rows]] = oof_scores.weights
    basis = make_basis(codes, weights.sum(axis=1), layout, scale, RANK, ordered)
    # positions, the largest ridge first
    order = sorted(range(len(ridges)), key=lambda k: ridges[k], reverse=True)
    panels = Panels(basis.functions)
    if tolerance is None:
        solutions: list[Solution] = []
        # path of the previous fit, which the next fit continues if its path is an extension
        fitted_path: list[float] = []
        for k in order:
            path = falling_ridges(ridges[k])
            goes_on = 0 < len(fitted_path) < len(path) and path[: len(fitted_path)] == fitted_path
            start, rest = (
                (solutions[-1].unknowns, path[len(fitted_path) :]) if goes_on else (None, path)
            )
            solutions.append(solve(panels, basis.spectrum, weights, rest, scores, EARLY, start)[-1])
            fitted_path = path
    else:
        solutions = solve(
            panels, basis.spectrum, weights, [ridges[k] for k in order], scores, tolerance
        )
    # parameters of the functions of all groups and fits; the weights (r, K) are stacked side by
    # side
    theta, constant = to_tables(basis, np.hstack([solution.weights for solution in solutions]))
    theta = theta.reshape(len(ridges), K, -1)
    constant = constant.reshape(len(ridges), K)
    fits: dict[int, JointFit] = {}  # by position in `ridges`
    for k, solution, tables, constants in zip(order, solutions, theta, constant, strict=True):
        # with early stopping, `solution.converged` refers to the coarse tolerance EARLY
        converged = solution.gradient <= HARMLESS if tolerance is None else solution.converged
        summary = solution.temperature, solution.loss, solution.gradient, solution.evaluations
        fits[k] = JointFit(tables, constants + solution.offset, *summary, converged)
    return [fits[k] for k in range(len(ridges))]
