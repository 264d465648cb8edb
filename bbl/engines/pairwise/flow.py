"""Engine `ProbabilityFlow`: minimum probability flow (Sohl-Dickstein et al. 2011)."""

# Parameters (size,) are in simplex coding; X (n, D) are the indicators of rows.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bbl.checks import integer, real
from bbl.engines.base import absent_levels
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.pairwise.base import PairwiseEngine
from bbl.engines.pairwise.penalties import TablePenalty
from bbl.engines.variational.persistent import simplex_tables
from bbl.memory import check_memory
from bbl.model.fields import mean_pseudo_log_likelihood
from bbl.model.gauge import to_reference
from bbl.model.layout import Layout
from bbl.model.moments import level_counts, one_hot
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["Flow", "ProbabilityFlow", "minimise"]

CHUNK = 2048  # rows whose flows are in memory at once
# gradient norm that changes parameters in the fourth decimal at most, so no warning is needed
HARMLESS = 1e-6
GROWTH = 0.95  # factor of the curvature after each step, so that steps can become longer

Objective = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class ProbabilityFlow(PairwiseEngine):
    """Fit fields and pair couplings by minimum probability flow (Sohl-Dickstein et al. 2011).

    Probability flows from each row x to all states x' that differ from it in one predictor, at the
    rate ``exp((E(x') - E(x)) / 2)``, where E is the model's energy. The estimate minimises half the
    mean flow out of the rows, plus the penalty. The objective is convex and does not involve ln Z.
    If the frequencies of the rows equal the probabilities under a model, the minimum is at this
    model. The method is provided for comparison with pseudo-likelihood, which is usually more
    accurate.

    Parameters
    ----------
    lambda_ : float, default 1e-5
        Penalty on couplings, on the scale of ``method="pseudo", gauge="zero-sum"``. With 0,
        couplings without a finite optimum increase in magnitude until the gradient is below the
        tolerance.
    lambdah : float, default 0.0
        L2 penalty on fields.
    penalty : {"l2", "l1", "group"}, default "l2"
        Penalty on the couplings of a pair. ``"l2"`` is ``lambda_ / 2`` times their sum of squares
        in the zero-sum gauge. ``"l1"``, for predictors with two levels, is `lambda_` times
        ``|J_ij|``. ``"group"``, for any number of levels, is `lambda_` times the Frobenius norm of
        the table ``J_ij`` in the zero-sum gauge. With ``"l1"`` and ``"group"``, some tables are
        exactly zero.
    tolerance : float, default 1e-8
        Gradient norm, or violation of the optimality conditions, at which the fit stops.
    itmax : int, default 5000
        Maximum number of iterations.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.

    References
    ----------
    Sohl-Dickstein J, Battaglino PB, DeWeese MR (2011). New method for parameter estimation in
    probabilistic models: minimum probability flow. Physical Review Letters 107:220601.

    Beck A, Teboulle M (2009). A fast iterative shrinkage-thresholding algorithm for linear inverse
    problems. SIAM Journal on Imaging Sciences 2:183-202.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ .^2", titanic, "Freq", method=bbl.ProbabilityFlow(lambda_=0.01), verbose=0
    ... )
    >>> round(fit.score(), 3)
    0.785
    """

    tolerance: float = 1e-8
    itmax: int = 5000
    name = "mpf"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0, open_low=True))
        object.__setattr__(self, "itmax", integer("itmax", self.itmax, 1))

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each."""
        return super().refusals() | {
            "missing_marginal": "method='mpf' requires complete rows because it compares states"
        }

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, for a chunk of rows, two matrices and some vectors."""
        return 8.0 * (6.0 * min(n, CHUNK) * layout.D + 2.0 * layout.D**2 + 30.0 * layout.size)

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
    ) -> list[EngineFit]:
        """Fit one group at each penalty in `values`, in decreasing order, with warm starts.

        `workers` is not used here, but is part of the signature of all engines.
        """
        self.check_missing(sample)
        grid = [self.lambda_] if values is None else [float(value) for value in values]
        check_memory(
            self.memory(sample.n, layout),
            f"Minimum probability flow of {layout.size:,} parameters",
            "Use fewer predictors.",
        )
        if not layout.D:  # no parameters
            fit = EngineFit(np.zeros(0), 0.0, converged=np.ones(layout.m, dtype=bool))
            return [fit] * len(grid)
        flow = Flow(sample, layout)
        simplex = np.zeros(layout.size)
        fits: dict[int, EngineFit] = {}
        with serial_blas():
            for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
                engine = replace(self, lambda_=grid[k])
                penalty = TablePenalty(layout, self.penalty, grid[k], self.lambdah)
                minimum = minimise(flow, penalty, simplex, self.tolerance, self.itmax)
                simplex = minimum.simplex
                fits[k] = engine._finish(sample, layout, minimum)
        return [fits[k] for k in range(len(grid))]

    def _finish(self, sample: Sample, layout: Layout, minimum: Minimum) -> EngineFit:
        """Return the fit, with notes on absent levels and convergence."""
        notes: tuple[Note, ...] = ()
        if not self.lambdah:
            notes = absent_levels(level_counts(sample, layout.n_levels), hint="Set lambdah > 0.")
        is_converged = minimum.norm <= max(self.tolerance, HARMLESS)
        if not is_converged:
            what = "the flow did not reach its minimum"
            detail = f"gradient norm {minimum.norm:.2g} after {minimum.n_iter} iterations"
            notes += (Note(-1, -1, what, detail, hint="Increase itmax or lambda_."),)
        theta = to_reference(layout, minimum.simplex)
        return EngineFit(
            theta,
            mean_pseudo_log_likelihood(layout, theta, sample),
            grad_norm=np.full(layout.m, minimum.norm),
            n_iter=np.full(layout.m, minimum.n_iter),
            converged=np.full(layout.m, is_converged),
            notes=notes,
        )


class Flow:
    """Half the mean flow out of the rows, and its gradient, as a function of parameters (size,)."""

    def __init__(self, sample: Sample, layout: Layout):
        self.layout = layout
        self.tables = simplex_tables(layout)
        self.rows = sample
        has_levels = layout.n_levels > 1
        # first column and number of columns in X, for predictors that have any
        self.first_column = layout.start[:-1][has_levels]
        self.n_columns = layout.n_levels[has_levels] - 1

    def __call__(self, simplex: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and the gradient (size,)."""
        D = self.layout.D
        h = np.zeros(D)
        J = np.zeros((D, D))
        self.tables.couple(simplex, h, J)  # writes h and J, in the reference gauge
        value = 0.0
        # derivatives of twice the flow in fields and couplings
        by_field = np.zeros(D)
        by_coupling = np.zeros((D, D))
        for chunk in self.rows.blocks(CHUNK):
            X = one_hot(chunk.codes, self.layout)
            weights = chunk.weights / self.rows.total
            out, slope = self._flows(X, X @ J + h)
            value += float(weights @ out)
            slope *= weights[:, None]
            by_field += slope.sum(axis=0)
            by_coupling += slope.T @ X
        # a coupling occurs in both predictors' flows; the kernel expects fields on the diagonal
        by_coupling += by_coupling.T.copy()  # a copy: the sum overwrites its operand
        np.fill_diagonal(by_coupling, by_field)
        gradient = np.empty(self.layout.size)
        # the transpose of the gauge map; 0.0: a gradient has no total
        self.tables.features(by_coupling, 0.0, gradient)
        return 0.5 * value, 0.25 * gradient

    def _flows(self, X: np.ndarray, field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the flow (n,) out of each row, and twice its derivatives (n, D) by `field`.

        `field` (n, D) is the field of each level given the other predictors.
        """
        own = np.add.reduceat(X * field, self.first_column, axis=1)  # the row's own levels
        with np.errstate(over="ignore"):  # a trial step may be too long
            to_level = np.exp(0.5 * (field - np.repeat(own, self.n_columns, axis=1))) * (1.0 - X)
            # flow to the reference level, from rows at other levels
            is_elsewhere = np.add.reduceat(X, self.first_column, axis=1)
            to_reference_level = np.exp(-0.5 * own) * is_elsewhere
        out = np.add.reduceat(to_level, self.first_column, axis=1) + to_reference_level
        return out.sum(axis=1), to_level - X * np.repeat(out, self.n_columns, axis=1)


class Minimum(NamedTuple):
    """The minimum of a penalised objective: parameters (size,), norm and number of iterations.

    The norm is the violation of the optimality conditions.
    """

    simplex: np.ndarray
    norm: float
    n_iter: int


def minimise(
    objective: Objective, penalty: TablePenalty, start: np.ndarray, tolerance: float, itmax: int
) -> Minimum:
    """Minimise a smooth convex objective plus a penalty, from `start` (size,).

    The method is L-BFGS or, if the penalty is not smooth, accelerated proximal gradient descent
    (Beck & Teboulle 2009) with restarts.
    """

    def smooth(simplex: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the value and gradient of the objective plus the L2 penalty."""
        value, gradient = objective(simplex)
        shrunk = penalty.ridge * simplex
        return value + 0.5 * float(shrunk @ simplex), gradient + shrunk

    if penalty.threshold.any():
        return _proximal(smooth, penalty, start, tolerance, itmax)
    from scipy.optimize import minimize

    found = minimize(
        smooth,
        start,
        jac=True,
        method="L-BFGS-B",
        # gtol bounds the largest component of the gradient; with ftol 0, stop only at rounding
        # error
        options={"gtol": tolerance / np.sqrt(len(start)), "ftol": 0.0, "maxiter": itmax},
    )
    return Minimum(found.x, float(np.linalg.norm(found.jac)), int(found.nit))


def _proximal(
    smooth: Objective, penalty: TablePenalty, start: np.ndarray, tolerance: float, itmax: int
) -> Minimum:
    """Minimise the sum of `smooth` and the norms in `penalty`."""
    current = start
    ahead = start  # extrapolated point, at which the gradient is evaluated
    value, gradient = smooth(ahead)
    curvature = 1.0
    momentum = 1.0
    norm = np.inf
    for n_iter in range(1, itmax + 1):
        while True:  # a curvature that bounds the objective along the step
            steps = np.full(len(penalty.threshold), 1.0 / curvature)
            new = penalty.shrink(ahead - gradient / curvature, steps)
            new_value, new_gradient = smooth(new)
            move = new - ahead
            bound = value + gradient @ move + 0.5 * curvature * (move @ move)
            if new_value <= bound + 1e-14 * abs(value):  # up to rounding errors
                break
            curvature *= 2.0
        norm = float(np.linalg.norm(penalty.violation(new, new_gradient)))
        if norm <= tolerance:
            return Minimum(new, norm, n_iter)
        if (ahead - new) @ (new - current) > 0.0:  # the momentum points uphill
            momentum = 1.0
        next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = new + (momentum - 1.0) / next_momentum * (new - current)
        current = new
        momentum = next_momentum
        curvature *= GROWTH
        value, gradient = smooth(ahead)
    return Minimum(current, norm, itmax)
