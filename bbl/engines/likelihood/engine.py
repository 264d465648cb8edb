"""Engine `MaximumLikelihood`: exact maximum likelihood for log-linear models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bbl.checks import integer, real
from bbl.engines.base import PENALTY, Engine, absent_levels, check_orders, penalty_option
from bbl.engines.engine_fit import EngineFit, LikelihoodMaximum, Note, Unpenalised
from bbl.engines.level_scores import (
    NOMINAL,
    LevelScores,
    check_linear,
    layout_scores,
    linear_options,
)
from bbl.engines.likelihood.existence import first_parameters, holds_absent_level
from bbl.engines.likelihood.influence import LikelihoodInfluence
from bbl.engines.likelihood.solve import (
    MAX_CELLS,
    MAX_NEWTON_SIZE,
    MAX_STATES,
    Penalty,
    Solution,
    Solver,
    least_width,
    n_states,
    tree_cells,
    tree_order,
)
from bbl.engines.likelihood.tree import components, tree_memory
from bbl.engines.likelihood.zeros import check_zeros, determined_by_states, rank_of_states
from bbl.errors import DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.moments import level_counts
from bbl.rows.sample import Rows, Sample

if TYPE_CHECKING:
    from bbl.design.design import Design

__all__ = ["MaximumLikelihood"]

MAX_ORDER = 99  # maximum order of terms
# gradient norm that changes coefficients in the fourth decimal at most, so no warning is needed
HARMLESS = 1e-6
NOT_CONVERGED = "the likelihood was not maximised"


@dataclass(frozen=True)
class MaximumLikelihood(Engine):
    """Fit log-linear models with terms of any order by exact maximum likelihood.

    Decomposable models are fitted in closed form, models with up to 65,536 states by Newton's
    method on a table of all states, and other models by L-BFGS with exact gradients from a junction
    tree.

    Parameters
    ----------
    lambda_ : float or sequence of float, default 0.0
        L2 penalty on couplings, per observation. A sequence contains one penalty for each order:
        pairs, terms of three predictors, and so on.
    lambdah : float, default 0.0
        L2 penalty on fields.
    prior_count : float, default 0.0
        Number of additional rows, spread evenly over all possible states. For a model without
        couplings or structural zeros, the fit is the same as naive Bayes with this `prior_count`.
    tolerance : float, default 1e-10
        Norm of the gradient of the mean log-likelihood at which the iteration stops.
    itmax : int, default 200
        Maximum number of Newton steps. L-BFGS may take ten times as many.
    ordered : {"nominal", "linear"}, default "nominal"
        Couplings of ordered predictors with three or more levels. With ``"linear"``, couplings are
        linear in the level scores, as in `PseudoLikelihood`: linear by linear association for two
        ordered predictors, or row effects for an ordered and a nominal predictor.
    level_scores : dict of list, optional
        Scores of the levels of some predictors for ``ordered="linear"``, as in `PseudoLikelihood`.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.

    Notes
    -----
    If cells are empty, the likelihood may increase indefinitely along some combinations of
    parameters, even if no margin is zero. These parameters are reported as not estimable. They are
    found by a linear programme if the number of states times the number of parameters is at most 2
    million, and otherwise from zero margins of terms. The fit then returns the limit, where some
    states have probability zero, and the degrees of freedom refer to the remaining states and
    parameters (Fienberg & Rinaldo 2012, Annals of Statistics 40). Missing values are marginalised
    on a table of all states, as in the EM algorithm, which is valid if they are missing at random.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ Class * Sex + Age",
    ...     titanic,
    ...     "Freq",
    ...     method=bbl.MaximumLikelihood(),
    ...     verbose=0,
    ... )
    >>> fit.logLik()
    'log Lik.' -3869.678 (df=16)
    """

    lambda_: float | tuple[float, ...] = 0.0
    lambdah: float = 0.0
    prior_count: float = 0.0
    tolerance: float = 1e-10
    itmax: int = 200
    ordered: str = NOMINAL
    level_scores: LevelScores | None = None
    name = "ml"
    order = MAX_ORDER
    tuned = PENALTY
    solves = True
    zeros = True
    has_likelihood = True
    errors = "Standard errors from the Fisher information of the exact likelihood."
    weights = "real"
    streams = True
    takes_start = True

    def __post_init__(self):
        object.__setattr__(self, "lambda_", penalty_option(self.lambda_))
        object.__setattr__(self, "lambdah", real("lambdah", self.lambdah, 0.0))
        object.__setattr__(self, "prior_count", real("prior_count", self.prior_count, 0.0))
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0, open_low=True))
        object.__setattr__(self, "itmax", integer("itmax", self.itmax, 1))
        ordered, level_scores = linear_options(self.ordered, self.level_scores)
        object.__setattr__(self, "ordered", ordered)
        object.__setattr__(self, "level_scores", level_scores)

    @property
    def penalised(self) -> bool:
        """Whether a penalty is applied."""
        return bool(np.any(self.lambda_)) or bool(self.lambdah) or bool(self.prior_count)

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each."""
        return super().refusals() | {
            "composite_criteria": "method='ml' maximises the full likelihood, so use aic and bic"
        }

    def scores(self, design: Design) -> list[np.ndarray | None] | None:
        """Return the level scores of a design's predictors; None for nominal couplings."""
        return layout_scores(design, self.ordered, self.level_scores)

    def layout(self, sample: Rows, layout: Layout) -> Layout:
        """Return the layout unchanged, or raise an error if exact sums would be too large."""
        check_orders(self.lambda_, layout)
        check_linear(self.ordered, layout)
        if layout.support is not None:
            check_zeros(layout)
        for component in components(layout):
            is_listed = n_states(component.layout) <= MAX_STATES
            if not is_listed and not sample.complete:
                raise DataError(
                    "method='ml' sums over missing values on a table of all states, which is "
                    f"limited to {MAX_STATES:,} states, but {component.layout.m} interacting "
                    f"predictors have {n_states(component.layout):.3g}.",
                    argument="missing",
                    hint="Use missing='level', missing='drop' or method='pseudo'.",
                )
            if not is_listed and tree_order(component.layout) is None:
                raise OptionError(
                    f"The exact likelihood of these {layout.m:,} predictors and "
                    f"{layout.n_terms:,} interactions requires a table of at least "
                    f"{least_width(component.layout):,} predictors, and tables of more than "
                    f"{MAX_CELLS:.2g} cells in total.",
                    argument="method",
                    hint="Choose method='pseudo', or a formula with fewer interactions.",
                )
        return layout

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, of the tables and of the Fisher information if it is used.

        The Fisher information is required for Newton's method. `n` and `settings` have no effect.
        """
        needed = 0.0
        for component in components(layout):
            if n_states(component.layout) <= MAX_STATES:
                # four matrices (size, size) and eight tables of all states, with 8 bytes per number
                information = 32.0 * float(min(component.layout.size, MAX_NEWTON_SIZE)) ** 2
                needed = max(needed, 64.0 * n_states(component.layout) + information)
            else:
                needed = max(needed, tree_memory(tree_cells(component.layout)))
        return needed

    def penalty(self, layout: Layout, lambda_: float | tuple[float, ...]) -> Penalty:
        """Return the penalty of each parameter and the prior count, given `lambda_`."""
        ridge = np.full(layout.size, self.lambdah)
        n_orders = len(layout.terms)  # one array of terms for each order from 2 on
        # strict=False, below: a penalty for pairs may be given even if the model has no terms
        by_order = lambda_ if isinstance(lambda_, tuple) else (lambda_,) * n_orders
        # positions at which an order's tables begin in the parameter vector, followed by the end of
        # the last one
        for table_starts, order_lambda in zip(layout.term_start, by_order, strict=False):
            ridge[table_starts[0] : table_starts[-1]] = order_lambda
        return Penalty(ridge, self.prior_count)

    def path(
        self,
        sample: Rows,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
        start: np.ndarray | None = None,
    ):
        """Fit one group at each penalty in `values`, or at `lambda_` if `values` is None.

        The iteration starts at the parameters `start` (layout.size,) if they are given. `workers`
        is not used here, but is part of the signature of all engines.
        """
        grid = [self.lambda_] if values is None else [float(value) for value in values]
        solver = Solver(layout, self.tolerance, self.itmax)
        penalties = [self.penalty(layout, value) for value in grid]
        return [
            self._finish(sample, layout, solver.fit(sample, p, start), p.ridge) for p in penalties
        ]

    def _finish(
        self, sample: Rows, layout: Layout, solution: Solution, ridge: np.ndarray
    ) -> EngineFit:
        """Return the fit, with notes on absent levels and convergence.

        ``solution.determined`` (size,) is a mask of the parameters with a finite and unique
        maximum. ``solution.basis`` (size,) is a mask with as many parameters as the fit has degrees
        of freedom. `ridge` (size,) contains the penalties.
        """
        notes: tuple[Note, ...] = ()
        # parameters of levels without rows, which are reported in notes
        absent = np.zeros(layout.size, dtype=bool)
        if not self.prior_count and not self.lambdah:
            counts = level_counts(sample, layout.n_levels)
            notes = absent_levels(counts, hint="Set lambdah > 0 or prior_count > 0.")
            absent = holds_absent_level(layout, counts)
        is_converged = solution.norm <= max(self.tolerance, HARMLESS)
        if not is_converged:
            detail = f"gradient norm {solution.norm:.2g} after {solution.n_iter} steps"
            is_penalised = bool(self.prior_count or ridge.any())
            notes += (
                Note(
                    predictor=-1,  # the fit as a whole
                    level=-1,
                    what=NOT_CONVERGED,
                    detail=detail,
                    hint=(
                        "Increase itmax."
                        if is_penalised
                        else "Increase itmax, or set lambda_ > 0 or prior_count > 0."
                    ),
                ),
            )
        without_optimum = ~solution.determined & ~absent
        if layout.support is not None:
            could_be_determined = determined_by_states(layout)
            # Parameters that are undetermined because of structural zeros alone are not reported,
            # with one exception: if no other parameter lacks an optimum, but the rank of the fit is
            # lower than the possible states allow, the fit is a limit where some of these states
            # have probability zero, and only those parameters show it.
            if (
                without_optimum & could_be_determined
            ).any() or solution.basis.sum() >= rank_of_states(layout, ridge):
                without_optimum &= could_be_determined
        unbounded = first_parameters(layout, without_optimum)
        converged = np.full(layout.m, is_converged)
        # each tuple in `unbounded` begins with the predictor
        converged[[i for i, *_ in unbounded]] = False
        return EngineFit(
            solution.theta,
            solution.value,
            grad_norm=np.full(layout.m, solution.norm),
            n_iter=np.full(layout.m, solution.n_iter),
            converged=converged,
            notes=notes,
            unbounded=unbounded,
            rank=None if solution.basis.all() else int(solution.basis.sum()),
        )

    def influence(
        self, sample: Sample, layout: Layout, site_theta: np.ndarray | None = None
    ) -> tuple[LikelihoodInfluence, Sample]:
        """Refit a group, and return the influence of rows on the estimate, with these rows."""
        return self._influence(sample, layout, None), sample

    def _influence(
        self, sample: Sample, layout: Layout, start: np.ndarray | None
    ) -> LikelihoodInfluence:
        """Fit a group from `start`, and return the influence of rows on the estimate."""
        penalty = self.penalty(layout, self.lambda_)
        solution = Solver(layout, self.tolerance, self.itmax).fit(sample, penalty, start)
        return LikelihoodInfluence(sample, layout, solution, penalty)

    def unpenalised(
        self, rows: Sample, layout: Layout, start: np.ndarray, sites: np.ndarray
    ) -> Unpenalised:
        """Fit all parameters of a group jointly, without a penalty.

        The iteration starts at `start` (layout.size,). The result has the attributes `theta`, which
        is the estimate, and `determined`, which is a mask of the identified parameters. `sites` is
        not used, because predictors are not regressed on each other.
        """
        influence = MaximumLikelihood(tolerance=self.tolerance, itmax=self.itmax)._influence(
            rows, layout, start
        )
        return Unpenalised(influence.theta, influence.determined, influence)

    def influence_at(
        self, rows: Sample, layout: Layout, theta: np.ndarray, site_theta: np.ndarray | None
    ) -> tuple[LikelihoodInfluence, Sample]:
        """Return the influence of rows on the estimate `theta`, and the sample `rows`.

        `theta` was estimated from all rows. The sample only determines which parameters are
        identified.
        """
        return self._influence_of_sample(rows, layout, theta), rows

    def _influence_of_sample(
        self, rows: Sample, layout: Layout, theta: np.ndarray
    ) -> LikelihoodInfluence:
        """Return the influence of rows on the estimate `theta`, given a sample of rows."""
        penalty = self.penalty(layout, self.lambda_)
        solution = Solver(layout, self.tolerance, self.itmax).fit(rows, penalty, theta)
        return LikelihoodInfluence(rows, layout, replace(solution, theta=theta), penalty)

    def unpenalised_from(
        self,
        rows: Sample,
        layout: Layout,
        theta: np.ndarray,
        site_theta: np.ndarray | None,
        sites: np.ndarray,
        kept: Sample,
    ) -> Unpenalised:
        """Take a Newton step from `theta` to the unpenalised estimate, given a sample of rows."""
        engine = MaximumLikelihood(tolerance=self.tolerance, itmax=self.itmax)
        if self.penalised:
            pull = self._influence_of_sample(rows, layout, theta).pull
            theta = theta - engine._influence_of_sample(rows, layout, theta).times_inverse(pull)
        influence = engine._influence_of_sample(rows, layout, theta)
        return Unpenalised(influence.theta, influence.determined, influence)

    def maximum_likelihood(self, rows: Sample, layout: Layout) -> LikelihoodMaximum:
        """Return the unpenalised maximum of the likelihood of `rows`."""
        penalty = Penalty(np.zeros(layout.size), 0.0)
        solution = Solver(layout, self.tolerance, self.itmax).fit(rows, penalty)
        # value is per observation; basis marks as many parameters as the fit has degrees of freedom
        rank = int(solution.basis.sum())
        return LikelihoodMaximum(rows.total * solution.value, rank, solution.theta)
