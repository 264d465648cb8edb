"""Conditional fits to the training rows of each fold, with a common kernel basis for all folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bbl._ext.conditional.multinomial import Panels
from bbl.engines.conditional.discriminative import (
    CALIBRATION,
    COMPARISON,
    Solution,
    Tolerance,
    solve,
)
from bbl.engines.conditional.kernel import Basis, make_basis
from bbl.engines.conditional.likelihood import design
from bbl.engines.conditional.maximum import ConditionalMaximum, find_maximum
from bbl.engines.conditional.ordinal_maximum import find_ordinal_maximum
from bbl.engines.conditional.ordinal_solve import OrdinalSolution, solve_ordinal
from bbl.model.cumulative import log_group_probabilities
from bbl.model.layout import Layout
from bbl.parallel import run_tasks, serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample

__all__ = ["EARLY", "RANK", "HeldOut", "falling_ridges", "group_weights"]

RANK = 600  # maximum number of basis functions
# for the fit at each ridge on a path with early stopping
EARLY = Tolerance(gradient=3e-4, gain=1e-6, rounds=200)
FIRST_RIDGE = 0.1  # upper bound of the ridges before the last one in a path with early stopping
RIDGE_RATIO = 10.0  # ratio of successive ridges of the path


def group_weights(
    distinct_row: np.ndarray, n: int, y: np.ndarray, weights: np.ndarray, K: int
) -> np.ndarray:
    """Return the weights (n, K) of the groups at n distinct rows.

    For each of N rows, `distinct_row`, `y` and `weights` (N,) contain the index of the distinct
    row, the group and the weight.
    """
    out = np.zeros((n, K))
    np.add.at(out, (distinct_row, y), weights)
    return out


def falling_ridges(ridge: float) -> list[float]:
    """Return a decreasing sequence of ridges that ends at `ridge`, for early stopping.

    Examples
    --------
    >>> falling_ridges(1e-3), falling_ridges(1.0)
    ([0.1, 0.01, 0.001], [1.0])
    """
    is_below = 0.0 < ridge < FIRST_RIDGE
    # with 1e-6 here and twelve digits below, rounding changes neither the number of steps nor the
    # ridges
    steps = (
        int(np.floor(np.log(FIRST_RIDGE / ridge) / np.log(RIDGE_RATIO) + 1e-6)) if is_below else 0
    )
    return [float(f"{ridge * RIDGE_RATIO**k:.12g}") for k in range(steps, -1, -1)]


class HeldOut:
    """Out-of-fold class scores from conditional fits to the training rows of each fold.

    All fits use the kernel basis of all rows, which depends only on the predictors. Each fit starts
    from the earlier fit to the same fold with the nearest ridge. With early stopping, it starts
    from the fit with the next larger ridge in the sequence.

    Parameters
    ----------
    sample : Sample
        All training and validation rows, including n distinct rows.
    layout : Layout
    K : int
        Number of groups.
    folds : Folds
        `train` (folds, rows) contains the weights of all rows in the training set of each fold.

    Attributes
    ----------
    codes : ndarray, shape (n, m)
        The distinct rows, one fold after the other. The training set of a fold therefore excludes
        entire panels of rows.
    distinct_row : ndarray of intp
        Index of the distinct row for each row of the sample.
    fold_weights : list of ndarrays, shape (n, K)
        Training weights of the groups at the distinct rows, for each fold.
    weights : ndarray, shape (n,)
        Total weights of the distinct rows over all folds.
    bases : dict of tuple to Basis
        Kernel bases. The keys are the kernel's options, i.e. the scale and the coding of ordered
        predictors.
    panels : dict of tuple to Panels
        The functions of the most recent basis, which are shared by all folds. With early stopping,
        they are in single precision.
    fits : dict of tuple to list of Solution
        Fits of all folds. The keys are the kernel's options and the ridge. With early stopping,
        these fits are reused; all compared engines have the same value of this option. Otherwise,
        later fits start from them.
    """

    def __init__(self, sample: Sample, layout: Layout, K: int, folds: Folds) -> None:
        codes, distinct_row = np.unique(sample.codes, axis=0, return_inverse=True)
        n = len(codes)
        y = sample.response
        fold_weights = [
            group_weights(distinct_row.ravel(), n, y, weights, K) for weights in folds.train
        ]
        order = _order_by_fold(fold_weights)
        self.codes = codes[order]
        self.distinct_row = np.argsort(order)[distinct_row.ravel()]
        self.fold_weights = [weights[order] for weights in fold_weights]
        self.layout = layout
        self.K = K
        self.weights = np.bincount(self.distinct_row, sample.weights, n)
        self.bases: dict[tuple, Basis] = {}
        self.panels: dict[tuple, Panels] = {}
        self.fits: dict[tuple[tuple, float], list[Solution]] = {}
        # the most recent fits of all folds to an ordered response, by options and logits
        self.ordinal_fits: dict[tuple, list[OrdinalSolution]] = {}

    def __call__(
        self,
        engine: Any,
        ridge: float,
        rows: Sequence[np.ndarray],
        exactly: bool = False,
        workers: int = 1,
    ) -> np.ndarray:
        """Return the class scores (N, K) of the N validation rows, fold by fold.

        Parameters
        ----------
        engine : Conditional
            The engine whose `scale`, `ordered` and `early_stopping` are used.
        ridge : float
            Penalty; with 0, the likelihood is maximised.
        rows : sequence of ndarrays of int
            Positions of each fold's validation rows in the sample.
        exactly : bool, default False
            Whether fits must be precise enough for calibration, and not only for comparison.
        workers : int, default 1
            Number of folds fitted in parallel.
        """
        if not ridge:
            return self._score_unpenalised(engine.logits, rows, workers)
        options = float(engine.scale), engine.ordered
        with serial_blas():
            if options not in self.bases:
                self.bases[options] = make_basis(
                    self.codes, self.weights, self.layout, options[0], RANK, options[1]
                )
            basis = self.bases[options]
            if engine.logits != "nominal":
                return self._score_ordinal(engine.logits, options, ridge, rows, workers)
            if engine.early_stopping:
                fits: list[Solution] = []
                for path_ridge in falling_ridges(ridge):
                    if (options, path_ridge) not in self.fits:
                        self.fits[options, path_ridge] = self._fit_folds(
                            options, path_ridge, EARLY, fits, workers
                        )
                    fits = self.fits[options, path_ridge]
            else:
                ridges = [
                    fitted_ridge
                    for fitted_options, fitted_ridge in self.fits
                    if fitted_options == options
                ]
                nearest = min(
                    ridges, key=lambda fitted_ridge: abs(np.log(fitted_ridge / ridge)), default=None
                )
                warm_starts = [] if nearest is None else self.fits[options, nearest]
                fits = self._fit_folds(
                    options, ridge, CALIBRATION if exactly else COMPARISON, warm_starts, workers
                )
                self.fits[options, ridge] = fits
        # the scores of all distinct rows, for all folds at once, from functions (n, r), weights (r,
        # K) and offsets (K,)
        all_scores = (basis.functions @ np.hstack([fit.weights for fit in fits])).reshape(
            len(self.codes), -1, self.K
        )
        fold_scores = []
        for f, (fit, weights, validated_rows) in enumerate(
            zip(fits, self.fold_weights, rows, strict=True)
        ):
            scores = all_scores[self.distinct_row[validated_rows], f] + fit.offset
            scores[:, weights.sum(axis=0) == 0.0] = -np.inf  # groups without training rows
            fold_scores.append(scores)
        return np.concatenate(fold_scores)

    def _score_ordinal(
        self,
        logits: str,
        options: tuple,
        ridge: float,
        rows: Sequence[np.ndarray],
        workers: int,
    ) -> np.ndarray:
        """Return the log probabilities (N, K) of the validation rows with ordered logits.

        `options` contains the kernel's options. The other arguments are the same as in `__call__`.
        """
        functions = self.bases[options].functions
        starts = self.ordinal_fits.get((options, logits), [None] * len(self.fold_weights))
        tasks = [
            (functions, weights, logits, ridge, start)
            for weights, start in zip(self.fold_weights, starts, strict=True)
        ]
        fits = run_tasks(solve_ordinal, tasks, workers)
        self.ordinal_fits[options, logits] = fits
        return np.concatenate(
            [
                fit.group_scores(functions[self.distinct_row[validated]] @ fit.weights, self.K)
                for fit, validated in zip(fits, rows, strict=True)
            ]
        )

    def _score_unpenalised(
        self, logits: str, rows: Sequence[np.ndarray], workers: int
    ) -> np.ndarray:
        """Return unpenalised class scores (N, K) of the validation rows, fold by fold.

        `rows` and `workers` are the same as in `__call__`.
        """
        tasks = [(self.codes, weights, self.layout, logits) for weights in self.fold_weights]
        fold_scores = []
        with serial_blas():
            for maximum, validated_rows in zip(
                run_tasks(_maximise_fold, tasks, workers), rows, strict=True
            ):
                # `maximum` has coefficients (K, 1 + size) for the columns of the design
                scores = (
                    design(self.codes[self.distinct_row[validated_rows]], self.layout)
                    @ maximum.coefficients.T
                )
                # `maximum.groups` are the groups with training rows
                scores[:, np.setdiff1d(np.arange(self.K), maximum.groups)] = -np.inf
                if logits == "cumulative":
                    scores = log_group_probabilities(scores)
                fold_scores.append(scores)
        return np.concatenate(fold_scores)

    def _fit_folds(
        self,
        options: tuple,
        ridge: float,
        tolerance: Tolerance,
        warm_starts: list[Solution],
        workers: int,
    ) -> list[Solution]:
        """Return the fits of all folds.

        `warm_starts` contains earlier fits of all folds to start from, or is empty.
        """
        basis = self.bases[options]
        if options not in self.panels:
            self.panels = {
                options: Panels(basis.functions, "single" if tolerance is EARLY else "double")
            }
        starts = (
            [fit.unknowns for fit in warm_starts]
            if warm_starts
            else [None] * len(self.fold_weights)
        )
        tasks = [
            (self.panels[options], basis.spectrum, weights, ridge, tolerance, start)
            for weights, start in zip(self.fold_weights, starts, strict=True)
        ]
        return run_tasks(_fit_fold, tasks, workers)


def _order_by_fold(fold_weights: list[np.ndarray]) -> np.ndarray:
    """Return the order of n rows, sorted by the first fold that has them in its validation set.

    Rows that are never held out come last.

    `fold_weights` contains, for each fold, the training weights (n, K) of the groups at the rows.
    """
    is_left_out = np.array([~weights.any(axis=1) for weights in fold_weights])  # (folds, n)
    first_fold = np.where(is_left_out.any(axis=0), is_left_out.argmax(axis=0), len(is_left_out))
    return np.argsort(first_fold, kind="stable")


def _maximise_fold(
    codes: np.ndarray, weights: np.ndarray, layout: Layout, logits: str
) -> ConditionalMaximum:
    """Maximise the likelihood of a fold's training rows; see `_fit_fold`."""
    rows = np.flatnonzero(weights.any(axis=1))
    if logits != "nominal":
        return find_ordinal_maximum(codes[rows], weights[rows], layout, logits)
    return find_maximum(codes[rows], weights[rows], layout)


def _fit_fold(
    functions: Panels,
    spectrum: np.ndarray,
    weights: np.ndarray,
    ridge: float,
    tolerance: Tolerance,
    start: np.ndarray | None,
) -> Solution:
    """Return the fit to a fold's training rows.

    `weights` (n, K) contains the weight of each group at each distinct row, which is zero for
    held-out rows. `start` contains the starting values, which are the parameters of an earlier fit,
    or is None.
    """
    # there is only one ridge
    return solve(functions, spectrum, weights, [ridge], None, tolerance, start)[0]
