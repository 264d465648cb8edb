"""Conditional likelihood: fields and couplings of all groups at once, fitted to P(group | row)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bbl.checks import integer, real
from bbl.engines.base import Engine, Given, JointFit, Tuned
from bbl.engines.pseudo import PseudoLikelihood
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.discriminative import CLOSE, bounded, make_basis, minibatches, solve, to_tables
from bbl.model.layout import Layout
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration

__all__ = ["Conditional"]

SCALES = (0.1, 0.5, 8.0)  # what scale="cv" tries
ROWS = 5000  # up to so many rows are solved exactly, more by minibatches
RANK = 600  # functions that make up the kernel
COMPARED = 1e-5  # gradient at which a fit ends that is compared with others


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
        How often each row is taken where there are over 5,000: these are fitted by minibatches.

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
    name = "conditional"
    tuned = Tuned(
        "ridge", "ridge", r"$\rho$", r"Penalty $\rho$", 0.0, np.inf, tuple(10.0 ** np.arange(-6.0, -0.9)),
        "larger", logarithmic=True,
    )  # fmt: skip
    joint: ClassVar[bool] = True
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

    @property
    def penalised(self) -> bool:
        """Always: without a penalty there is no finite optimum."""
        return True

    def variants(self) -> tuple[Engine, ...]:
        """Return the engine with each `scale` that is to be tried."""
        return tuple(replace(self, scale=each) for each in SCALES) if self.scale == "cv" else (self,)

    def refined(self) -> tuple[Engine, Sequence[float] | None] | None:
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
        return 12.0 * layout.D**2

    def check_equations(self) -> None:
        """Raise an OptionError: an estimate is drawn towards zero by as much as it is uncertain."""
        raise OptionError(
            "A penalised conditional fit has no standard errors that hold: only differences between groups mean "
            "anything, and the penalty shrinks them. Take method='pseudo' for tests, or refit to resampled rows.",
            argument="method",
        )

    def path(self, sample, layout, values=None, workers=1):
        """Refuse a group by itself."""
        raise OptionError(
            "method='conditional' fits P(group | row), so all groups at once; give a formula with a response, or take "
            "method='pseudo'.",
            argument="method",
        )

    def fit_groups(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        values: Sequence[float] | None,
        given: Given | None,
        rng: np.random.Generator,
    ) -> list[JointFit]:
        """Fit all groups at each of `values` of `ridge`, or at its own."""
        if isinstance(self.scale, str):
            raise OptionError("scale='cv' is chosen by bbl(); give crossVal a number.", argument="scale")
        if sample.missing is not None:
            raise OptionError(
                "method='conditional' does not model the predictors, so missing values cannot be summed out. Give them "
                "a level of their own (missing='level'), or drop their rows (missing='drop').",
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
                return self._exact(sample, layout, K, grid, given, CLOSE if values is None else COMPARED)
            return [self._by_batches(sample, layout, K, ridge, given, rng) for ridge in grid]

    def _exact(
        self, sample: Sample, layout: Layout, K: int, grid: list, given: Given | None, tolerance: float
    ) -> list[JointFit]:
        if given is None:  # neither repeated rows nor their order make a difference
            codes, hits = _distinct(sample, layout, K)
            scores = None
        else:
            codes, scores = sample.codes[given.rows], given.scores
            hits = np.zeros((len(codes), K))
            hits[np.arange(len(codes)), sample.response[given.rows]] = given.weights
        basis = make_basis(codes, hits.sum(axis=1), layout, float(self.scale), RANK)
        order = sorted(range(len(grid)), key=lambda at: grid[at], reverse=True)
        solved = solve(basis(codes), basis.spectrum, hits, [grid[at] for at in order], scores, tolerance)
        theta, constant = to_tables(basis, np.hstack([found.weights for found in solved]))
        theta, constant = theta.reshape(len(grid), K, -1), constant.reshape(len(grid), K)
        out: list[JointFit] = [None] * len(grid)  # type: ignore[list-item]
        for at, found, own, c in zip(order, solved, theta, constant, strict=True):
            out[at] = JointFit(own, c + found.offset, found.temperature, found.loss, found.converged)
        return out

    def _by_batches(
        self, sample: Sample, layout: Layout, K: int, ridge: float, given: Given | None, rng: np.random.Generator
    ) -> JointFit:
        if given is None:
            return minibatches(sample.codes, sample.response, sample.weights, layout, K, float(self.scale), ridge,
                               self.epochs, rng)  # fmt: skip
        y = sample.response[given.rows]
        heat = fit_calibration(given.scores, y, given.weights, "temperature")
        found = minibatches(sample.codes[given.rows], y, given.weights, layout, K, float(self.scale), ridge,
                            self.epochs, rng, bounded(heat(given.scores)))  # fmt: skip
        return found._replace(constant=found.constant + heat.offset, temperature=heat.temperature)


def _distinct(sample: Sample, layout: Layout, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows (n, m) in a fixed order, and the weight (n, K) of each group at them."""
    levels = np.append(layout.n_levels, K)
    width = max(sample.codes.dtype, np.min_scalar_type(K - 1), key=lambda dtype: np.dtype(dtype).itemsize)
    both = Sample(np.column_stack([sample.codes, sample.response]).astype(width), sample.weights).collapsed(levels)
    codes = np.ascontiguousarray(both.codes[:, :-1].astype(sample.codes.dtype))
    first = np.append(True, (codes[1:] != codes[:-1]).any(axis=1))
    hits = np.zeros((int(first.sum()), K))
    np.add.at(hits, (np.cumsum(first) - 1, both.codes[:, -1].astype(np.intp)), both.weights)
    return codes[first], hits
