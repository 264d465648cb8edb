"""Conditional likelihood of the training rows of all folds, over one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bbl.engines.conditional.discriminative import NEAR, ROUGH, Solution, Tolerance, solve
from bbl.engines.conditional.kernel import Basis, make_basis
from bbl.model.layout import Layout
from bbl.parallel import run_tasks, serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample

__all__ = ["EARLY", "RANK", "HeldOut", "falling_ridges", "group_weights"]

RANK = 600  # functions that make up the kernel
EARLY = Tolerance(3e-4, 1e-6, 200)  # where each fit ends that stops early
STRONG = 0.1  # the ridge of the first of them,
FALL = 10.0  # and what each is divided by


def group_weights(at: np.ndarray, n: int, y: np.ndarray, weights: np.ndarray, K: int) -> np.ndarray:
    """Return the weight (n, K) of each group at distinct rows, of which the rows are number `at`."""
    out = np.zeros((n, K))
    np.add.at(out, (at, y), weights)
    return out


def falling_ridges(ridge: float) -> list[float]:
    """Return the ridges that lead to one where fits stop early.

    Examples
    --------
    >>> falling_ridges(1e-3), falling_ridges(1.0)
    ([0.1, 0.01, 0.001], [1.0])
    """
    steps = int(np.floor(np.log(STRONG / ridge) / np.log(FALL) + 1e-6)) if 0.0 < ridge < STRONG else 0
    return [float(f"{ridge * FALL**k:.12g}") for k in range(steps, -1, -1)]


class HeldOut:
    """Conditional fits to the training rows of all folds, over one kernel, that of all rows.

    The kernel knows predictors only. Fits start from those that were made of the same fold before: from the nearest, or
    where they stop early from that of the next stronger ridge, as the fit to all rows does.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    K : int
    folds : Folds
    """

    def __init__(self, sample: Sample, layout: Layout, K: int, folds: Folds) -> None:
        self.codes, at = np.unique(sample.codes, axis=0, return_inverse=True)
        self.at, self.layout, self.K = at.ravel(), layout, K
        n, y = len(self.codes), sample.response
        self.hits = [group_weights(self.at, n, y, weights, K) for weights in folds.train]
        self.weights = np.bincount(self.at, sample.weights, n)
        self.bases: dict[float, Basis] = {}
        self.found: dict[tuple[float, float], list[Solution]] = {}

    def __call__(
        self, engine: Any, ridge: float, rows: Sequence[np.ndarray], exactly: bool = False, workers: int = 1
    ) -> np.ndarray:
        """Return the class scores (N, K) of the rows that are held, fold by fold.

        Parameters
        ----------
        engine : Engine
            A `Conditional`, whose `scale` and `early_stopping` count.
        ridge : float
        rows : sequence of ndarrays
            Positions of the rows that each fold holds.
        exactly : bool
            Whether scores are to be calibrated, or compared with those of other settings.
        workers : int
        """
        scale = float(engine.scale)
        with serial_blas():
            if scale not in self.bases:
                self.bases[scale] = make_basis(self.codes, self.weights, self.layout, scale, RANK)
            basis = self.bases[scale]
            if engine.early_stopping:
                solved: list[Solution] = []
                for each in falling_ridges(ridge):
                    if (scale, each) not in self.found:
                        self.found[scale, each] = self._solved(basis, each, EARLY, solved, workers)
                    solved = self.found[scale, each]
            else:
                same_scale = [fold_solutions for tau, fold_solutions in self.found if tau == scale]
                near = min(same_scale, key=lambda own: abs(np.log(own / ridge)), default=None)
                begun = [] if near is None else self.found[scale, near]
                solved = self._solved(basis, ridge, NEAR if exactly else ROUGH, begun, workers)
                self.found[scale, ridge] = solved
        parts = []
        for fold_solutions, hits, held in zip(solved, self.hits, rows, strict=True):
            scores = (basis.functions @ fold_solutions.weights + fold_solutions.offset)[self.at[held]]
            scores[:, hits.sum(axis=0) == 0.0] = -np.inf
            parts.append(scores)
        return np.concatenate(parts)

    def _solved(
        self, basis: Basis, ridge: float, tolerance: Tolerance, begun: list[Solution], workers: int
    ) -> list[Solution]:
        """Return the fits of all folds, starting from others of the same folds if there are any."""
        starts = [solution.unknowns for solution in begun] if begun else [None] * len(self.hits)
        tasks = [(basis, hits, ridge, tolerance, x) for hits, x in zip(self.hits, starts, strict=True)]
        return run_tasks(_solve_fold, tasks, workers)


def _solve_fold(
    basis: Basis, hits: np.ndarray, ridge: float, tolerance: Tolerance, start: np.ndarray | None
) -> Solution:
    rows = np.flatnonzero(hits.any(axis=1))
    functions = basis.functions.T[:, rows].T  # column by column again
    return solve(functions, basis.spectrum, hits[rows], [ridge], None, tolerance, start)[0]
