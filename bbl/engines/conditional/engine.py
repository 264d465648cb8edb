"""Conditional likelihood: fields and couplings of all groups at once, fitted to P(group | row)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bbl.checks import flag, integer, real
from bbl.engines.base import Engine
from bbl.engines.conditional.discriminative import CLOSE, HARMLESS, SLIGHT, Tolerance, bounded, minibatches, solve
from bbl.engines.conditional.folds import EARLY, RANK, HeldOut, falling_ridges, group_weights
from bbl.engines.conditional.full_batch import FullBatch
from bbl.engines.conditional.kernel import determined, make_basis, to_tables
from bbl.engines.conditional.multinomial import difference_covariance
from bbl.engines.engine_fit import JointFit
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.engines.traits import JointTraits, OutOfFoldScores, Tuned
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration

__all__ = ["Conditional"]

SINGLE_GROUPS = "Single groups of a conditional fit have no standard errors, and nothing has tests"
NOTHING_SUMMED_OUT = "missing or unseen values cannot be summed out"
SCALES = (0.5, 0.1, 8.0)  # what scale="cv" tries
ROWS = 5000  # up to so many distinct rows go by functions that make up the kernel, more by minibatches and L-BFGS
COMPARED = Tolerance(1e-5, 1e-9, 400)  # of fits by themselves that are compared
FINISHED = Tolerance(0.5 * HARMLESS, 0.0, 1000)  # of fits to many rows


@dataclass(frozen=True)
class Conditional(Engine):
    """Conditional likelihood: the fields and couplings that predict the response best.

    All groups are fitted jointly: ``-mean ln P(y|x) + ridge/2 |f|^2`` is minimised, where ``ln P(y|x)`` is up to its
    normaliser ``T s_y(x) + b_y + f_y(x)``, and `f` is linear in centred indicators of levels and in the products of
    those of interacting predictors. The objective is convex. Only differences between groups mean anything, and P(x|y)
    is not modelled: there are neither likelihoods of rows nor ln Z, and nothing can be summed out.

    Parameters
    ----------
    ridge : float, default 1e-3
        Penalty; ``inf`` leaves f out, so that a `start` is calibrated and no more.
    scale : float or "cv", default 0.5
        How much couplings may weigh against fields.
    start : {None, "pseudo"}, default None
        What is refined: nothing, ``s = 0``; or a pseudo-likelihood fit, whose class scores are taken out of fold
        while f is fitted. Scores of rows that it was fitted to would leave nothing to learn.
    lambda_ : float or "cv", default "cv"
        Penalty of that pseudo-likelihood fit; its `prior_count` is 1.
    epochs : int, default 8
        How often minibatches take each row where over 5,000 are distinct; L-BFGS over all rows goes on from there.
    early_stopping : bool, default False
        Whether the fit ends before its optimum. Of up to 5,000 distinct rows, ridges fall by tenths from 0.1 to
        `ridge`, and each fit begins where the one before it stopped, after few steps; of more, it ends with the
        minibatches. Where the optimum is certain of all training rows, what is on the way there may predict better.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is outside its range, naming it.
    """

    ridge: float = 1e-3
    scale: float | str = 0.5
    start: str | None = None
    lambda_: float | str = "cv"
    epochs: int = 8
    early_stopping: bool = False
    name = "conditional"
    tuned = Tuned(
        "ridge", "ridge", r"$\rho$", r"Penalty $\rho$", tuple(10.0 ** np.arange(-6.0, -0.9)),
        "larger", logarithmic=True,
    )  # fmt: skip
    log_z = "half"

    def __post_init__(self):
        object.__setattr__(self, "ridge", real("ridge", self.ridge, 0.0, open_low=True, finite=False))
        for name in ("scale", "lambda_"):
            value = getattr(self, name)
            if value != "cv":
                if isinstance(value, str):
                    raise OptionError(f"{name}={value!r} is unknown; give a number or 'cv'.", argument=name)
                object.__setattr__(self, name, real(name, value, 0.0))
        if self.start not in (None, "pseudo"):
            raise OptionError(f"start={self.start!r} is unknown; give None or 'pseudo'.", argument="start")
        object.__setattr__(self, "epochs", integer("epochs", self.epochs, 1))
        object.__setattr__(self, "early_stopping", flag("early_stopping", self.early_stopping))

    @property
    def penalised(self) -> bool:
        """Always: without a penalty there is no finite optimum."""
        return True

    @property
    def stops_early(self) -> bool:
        """Whether it is asked to end before its optimum."""
        return self.early_stopping

    def variants(self) -> tuple[Engine, ...]:
        """Return the engine with each `scale` that is to be tried."""
        return tuple(replace(self, scale=each) for each in SCALES) if self.scale == "cv" else (self,)

    def generative_start(self) -> tuple[Engine, tuple[float, ...] | None] | None:
        """Return the pseudo-likelihood fit that is the `start`, and the penalties that are tried."""
        if self.start is None:
            return None
        if isinstance(self.lambda_, str):
            return PseudoLikelihood(prior_count=1.0), PseudoLikelihood.tuned.grid
        return PseudoLikelihood(self.lambda_, prior_count=1.0), None

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes of the functions of the rows, or of three tables in single precision for each group."""
        rank = min(n, RANK)
        if n <= ROWS:
            return 8.0 * n * (4.0 * rank + 2.0 * float(layout.n_levels.sum())) + 24.0 * rank**2
        return (12.0 if self.early_stopping else 60.0) * layout.D**2 + 80.0 * layout.size

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, each with the reason."""
        reasons = super().refusals()
        unmodelled = f"method={cls.name!r} does not model the predictors, so missing values cannot be summed out"
        reasons |= {"missing_marginal": unmodelled, "importance": NOTHING_SUMMED_OUT}
        errors = ("standard_errors", "covariances", "tests", "pooled", "composite_criteria")
        del reasons["differences"]
        return reasons | dict.fromkeys(errors, SINGLE_GROUPS)

    def check_equations(self) -> None:
        """Raise an OptionError: parameters of one group are not identified, penalised estimates have no tests."""
        raise OptionError(
            f"{SINGLE_GROUPS}: only differences between groups mean anything, and the penalty shrinks them. Ask for "
            "two groups, of=(a, b), which have intervals, or take method='pseudo' for tests.",
            argument="of",
        )

    def check_differences(self, n: int) -> None:
        """Raise an OptionError if a fit to `n` distinct rows has no standard errors of differences between groups."""
        why = (
            "It refines a generative fit, whose own uncertainty is not known here"
            if self.start is not None
            else f"It was fitted to {n} distinct rows (over {ROWS}), of which no information matrix is made"
            if n > ROWS
            else "It stopped early, before its optimum"
            if self.early_stopping
            else "ridge=inf leaves nothing to estimate"
            if not np.isfinite(self.ridge)
            else None
        )
        if why is not None:
            raise OptionError(
                f"This conditional fit has no standard errors: {why}. Refit to resampled rows (the bootstrap), or take "
                "start=None with up to 5,000 distinct rows, a finite ridge and no early_stopping.",
                argument="method",
            )

    def difference(
        self, codes: np.ndarray, weights: np.ndarray, p: np.ndarray, layout: Layout, pair: tuple[int, int]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the covariance of the functions' weights in one group less another's, and what turns them into tables.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
            Distinct rows, in order.
        weights : ndarray, shape (n,)
            How often each was observed.
        p : ndarray, shape (n, K)
            Fitted probabilities of the groups.
        layout : Layout
        pair : (int, int)

        Returns
        -------
        covariance : ndarray, shape (r, r)
        tables : ndarray, shape (r, layout.size)
            Fields and couplings of each function, in the reference gauge.
        determined : ndarray of bool, shape (layout.size,)
            Which of them the rows determine, not the penalty.
        """
        rank, K = min(len(codes), RANK), p.shape[1]
        check_memory(
            self.memory(len(codes), layout) + 32.0 * ((rank + 1) * (K - 1)) ** 2 + 16.0 * rank * layout.size,
            f"Standard errors of {layout.size} parameters in {K} groups",
            "Use fewer predictors or fewer interactions.",
        )
        with serial_blas():
            basis = make_basis(codes, weights, layout, float(self.scale), RANK)
            covariance = difference_covariance(basis.functions, p, weights, self.ridge, SLIGHT, pair)
            tables = to_tables(basis, np.eye(len(covariance)))[0]
            return covariance, tables, determined(basis, tables, weights)

    def path(self, sample, layout, values=None, workers=1):
        """Refuse a group by itself."""
        raise OptionError(
            f"{self.refusals()['no_response']}, so all groups at once; give a formula with a response, or take "
            "method='pseudo'.",
            argument="method",
        )

    def fit_groups(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        values: Sequence[float] | None,
        oof_scores: OutOfFoldScores | None,
        rng: np.random.Generator,
    ) -> list[JointFit]:
        """Fit all groups at each of `values` of `ridge`, or at its own."""
        if isinstance(self.scale, str):
            raise OptionError("scale='cv' is chosen by bbl(); give crossVal a number.", argument="scale")
        if sample.missing is not None:
            raise OptionError(
                f"{self.refusals()['missing_marginal']}. Give them a level of their own (missing='level'), or "
                "drop their rows (missing='drop').",
                argument="missing",
            )
        if K < 2:
            return self.path(sample, layout)
        grid = [self.ridge] if values is None else [float(value) for value in values]
        check_memory(
            (K if sample.n > ROWS else 1) * self.memory(sample.n, layout),
            f"A conditional fit of {layout.D} levels to {sample.n} rows",
            "Use fewer predictors, fewer interactions or fewer rows.",
        )
        with serial_blas():
            if sample.n <= ROWS:
                return self._exact(sample, layout, K, grid, oof_scores, CLOSE if values is None else COMPARED)
            return self._of_many(sample, layout, K, grid, oof_scores, rng)

    def held_out(self, sample: Sample, layout: Layout, K: int, folds: Folds) -> HeldOut | None:
        """Return what scores the rows that folds validate, where the kernel of all rows serves every fold."""
        if sample.n > ROWS or K < 2 or self.start is not None or sample.missing is not None:
            return None
        check_memory(
            len(SCALES) * self.memory(sample.n, layout),
            f"A conditional fit of {layout.D} levels to {sample.n} rows",
            "Use fewer predictors, fewer interactions or fewer rows.",
        )
        return HeldOut(sample, layout, K, folds)

    def _exact(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        grid: list,
        oof_scores: OutOfFoldScores | None,
        tolerance: Tolerance,
    ) -> list[JointFit]:
        if oof_scores is None:  # neither repeated rows nor their order make a difference
            codes, at = np.unique(sample.codes, axis=0, return_inverse=True)
            hits = group_weights(at.ravel(), len(codes), sample.response, sample.weights, K)
            scores = None
        else:
            codes, scores = sample.codes[oof_scores.rows], oof_scores.scores
            hits = np.zeros((len(codes), K))
            hits[np.arange(len(codes)), sample.response[oof_scores.rows]] = oof_scores.weights
        basis = make_basis(codes, hits.sum(axis=1), layout, float(self.scale), RANK)
        order = sorted(range(len(grid)), key=lambda k: grid[k], reverse=True)
        if self.early_stopping:
            paths = [falling_ridges(grid[k]) for k in order]
            solved = [solve(basis.functions, basis.spectrum, hits, path, scores, EARLY)[-1] for path in paths]
        else:
            solved = solve(basis.functions, basis.spectrum, hits, [grid[k] for k in order], scores, tolerance)
        theta, constant = to_tables(basis, np.hstack([solution.weights for solution in solved]))
        theta, constant = theta.reshape(len(grid), K, -1), constant.reshape(len(grid), K)
        out: list[JointFit] = [None] * len(grid)  # type: ignore[list-item]
        for k, solution, tables, c in zip(order, solved, theta, constant, strict=True):
            reached = solution.gradient <= HARMLESS if self.early_stopping else solution.converged
            out[k] = JointFit(
                tables,
                c + solution.offset,
                solution.temperature,
                solution.loss,
                solution.gradient,
                solution.evaluations,
                reached,
            )
        return out

    def _of_many(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        grid: list,
        oof_scores: OutOfFoldScores | None,
        rng: np.random.Generator,
    ) -> list[JointFit]:
        """Fit by minibatches, and by L-BFGS over all rows from there, or from the fit of the next larger ridge."""
        out: list[JointFit] = [None] * len(grid)  # type: ignore[list-item]
        rows = sample if oof_scores is None else replace(sample.rows(oof_scores.rows), weights=oof_scores.weights)
        scores, slight = (None, SLIGHT) if oof_scores is None else (bounded(oof_scores.scores), 1.0 / rows.total)
        fit = None
        for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
            engine = replace(self, ridge=grid[k])
            full = FullBatch(
                rows.codes, rows.response, rows.weights, layout, K, float(self.scale), grid[k], slight, scores
            )
            if fit is None or self.early_stopping:
                fit = engine.by_batches(sample, layout, K, oof_scores, rng)
            unknowns = full.unknowns(fit.theta, fit.constant, fit.temperature)
            if not self.early_stopping:
                unknowns = full.minimise(unknowns, FINISHED.gradient, FINISHED.rounds)
                theta, constant, temperature = full.tables(unknowns)
                fit = fit._replace(theta=theta, constant=constant, temperature=temperature)
            gradient = float(np.abs(full(unknowns)[1]).max())
            fit = fit._replace(loss=full.loss, gradient=gradient, evaluations=full.evaluations)
            fit = out[k] = fit._replace(converged=gradient <= HARMLESS)
        return out

    def by_batches(
        self, sample: Sample, layout: Layout, K: int, oof_scores: OutOfFoldScores | None, rng: np.random.Generator
    ) -> JointFit:
        """Fit all groups by minibatches, however few the rows are; see `fit_groups`."""
        if oof_scores is None:
            return minibatches(sample.codes, sample.response, sample.weights, layout, K, float(self.scale), self.ridge,
                               self.epochs, rng)  # fmt: skip
        y = sample.response[oof_scores.rows]
        heat = fit_calibration(oof_scores.scores, y, oof_scores.weights, "temperature")
        fit = minibatches(sample.codes[oof_scores.rows], y, oof_scores.weights, layout, K, float(self.scale),
                          self.ridge, self.epochs, rng, bounded(heat(oof_scores.scores)))  # fmt: skip
        return fit._replace(constant=fit.constant + heat.offset, temperature=heat.temperature)

    joint: ClassVar[JointTraits] = JointTraits(fit_groups, generative_start, check_differences, difference)
