"""Engine `PseudoLikelihood`: fit the conditional distribution of each predictor (section 2.2)."""

# Site solutions `site_theta` have shape (layout.D, 1 + D), with columns for the field and for the D
# columns of the `Regressors`. Symmetrisation averages couplings over their sites.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import numpy as np

from bbl._ext.pseudo.pseudo import CONVERGED, STUCK, memory_estimate
from bbl.checks import choice, flag, integer, real
from bbl.choices import PairPenalty
from bbl.engines.base import (
    PENALTY,
    SPARSE_GRID,
    Engine,
    WarmStarts,
    absent_levels,
    check_orders,
    check_two_levels,
    penalty_option,
)
from bbl.engines.engine_fit import EngineFit, Equations, Note, Unpenalised
from bbl.engines.level_scores import (
    NOMINAL,
    LevelScores,
    check_linear,
    layout_scores,
    linear_options,
)
from bbl.engines.pseudo.blocks import (
    Corrected,
    few_enough,
    rounds_memory,
    sample_size,
    site_moments,
)
from bbl.engines.pseudo.solvers import (
    FINEST,
    FLOOR,
    POLISH_SIZE,
    Sites,
    Solution,
    is_small,
    make_cluster_solver,
    make_solver,
    n_shares,
    prefers_dual_ascent,
    solve_by_newton,
)
from bbl.engines.pseudo.sparse_sites import solve_sparse
from bbl.errors import OptionError
from bbl.model.gauge import GAUGES, reference_fields
from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout
from bbl.model.logz import zero_sum_log_z
from bbl.model.moments import level_counts, log_ratio, smoothed, usable_rows, usable_weight
from bbl.model.regressors import from_sites, penalties, regressors, to_sites
from bbl.model.scored_influence import influence_of
from bbl.model.scored_sites import (
    ScoredFit,
    ScoredPenalty,
    fit_scored_sites,
    scored_hessians,
    scored_memory,
)
from bbl.model.scores import score_map, site_scores_of
from bbl.model.site_hessians import site_hessians, site_scores, solver
from bbl.model.unpenalised import unbounded_parameters
from bbl.parallel import serial_blas
from bbl.rows.sample import Rows, Sample, code_dtype
from bbl.rows.stored import StoredSample

if TYPE_CHECKING:
    from bbl.design.design import Design

__all__ = [
    "CLOSE_COMPARISON_NORM",
    "PseudoLikelihood",
    "extrapolate",
    "solve_available",
    "solve_complete",
]


COMPARISON_NORM = 3e-4  # gradient norm precise enough to compare penalties
# gradient norm precise enough to compare penalties with nearly equal losses
CLOSE_COMPARISON_NORM = 2e-5
# A solver stops when the probability of an absent level, which is the gradient in its field, is
# about tolerance ** ABSENT_POWER. The power exceeds 1 because the last step goes far beyond the
# tolerance; its value is empirical.
ABSENT_POWER = 1.84


def solve_available(
    engine: Any,
    sample: Sample,
    layout: Layout,
    usable: np.ndarray,
    grid: list,
    workers: int,
    warm_starts: Mapping[float, np.ndarray] | None,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Fit each site to its usable rows at each penalty in `grid`.

    `engine` is a `PseudoLikelihood`. `usable` (n, m) marks the rows where a site and its neighbours
    are observed. Sites with the same usable rows form a group, and each group is fitted as a
    separate model. `warm_starts` contains earlier solutions by penalty, and `start` is the same as
    in `solve_complete`.
    """
    all_columns = regressors(layout)
    out: list[Solution] = [
        (np.zeros((layout.D, 1 + all_columns.D)), Sites(layout.m), None) for _ in grid
    ]
    sites_by_rows: dict[bytes, list[int]] = {}
    for i in range(layout.m):
        sites_by_rows.setdefault(usable[:, i].tobytes(), []).append(i)
    for site_group in sites_by_rows.values():
        # a model of these sites and their neighbours, where the neighbours' solutions are not used
        is_kept = np.array(layout.mask[site_group].any(axis=0))
        is_kept[site_group] = True
        # the predictors of this model, and their numbers in it
        predictors = np.flatnonzero(is_kept)
        number = np.cumsum(is_kept) - 1
        # the terms of the group's sites, for each order
        terms = [
            number[term_array[np.isin(term_array, site_group).any(axis=1)]]
            for term_array in layout.terms
        ]
        sub_layout = Layout(layout.n_levels[predictors], terms)
        usable_data = sample.rows(usable[:, site_group[0]])
        sub_sample = Sample(
            np.ascontiguousarray(usable_data.codes[:, predictors]), usable_data.weights
        ).collapsed(sub_layout.n_levels)
        # entries (rows, columns) of the whole solution and rows of the group's solution for the
        # group's sites; column 0 is the field
        entries = np.ix_(
            layout.columns(site_group),
            np.append(0, 1 + all_columns.positions(sub_layout, predictors)),
        )
        sub_levels = sub_layout.columns(number[site_group])
        share = sub_sample.total / sample.total

        def restrict(site_theta: np.ndarray) -> np.ndarray:
            """Extract the group's solution from a complete solution, with zeros for other sites."""
            out = np.zeros((sub_layout.D, entries[1].size))  # noqa: B023  # called at once
            out[sub_levels] = site_theta[entries]  # noqa: B023
            return out

        sub_starts = (
            None
            if warm_starts is None
            else WarmStarts({k: restrict(v) for k, v in warm_starts.items()})
        )
        sub_start = None if start is None else restrict(start)
        solutions = solve_complete(
            engine, sub_sample, sub_layout, grid, workers, sub_starts, start=sub_start
        )
        for (site_theta, sites, _), (sub_theta, sub_sites, _) in zip(out, solutions, strict=True):
            site_theta[entries] = sub_theta[sub_levels]
            # copy the reports on the group's sites; objectives are means, so multiply them by the
            # group's fraction of the rows
            sites.take(site_group, sub_sites, number[site_group], share)
    return out


def solve_complete(
    engine: Any,
    sample: Sample,
    layout: Layout,
    grid: list,
    workers: int,
    warm_starts: WarmStarts | None = None,
    counts: list[np.ndarray] | None = None,
    start: np.ndarray | None = None,
) -> list[Solution]:
    """Fit complete rows at each penalty in `grid`, in decreasing order, with warm starts.

    If `warm_starts` is given, fits stop as soon as they are precise enough to compare penalties
    (see `PseudoLikelihood.compare`), and their solutions are added to `warm_starts`. `counts`
    contains the weights (L_i,) of each predictor's levels; if it is None, they are computed. The
    first fit starts at the solution `start` (layout.D, 1 + D) if given, and otherwise at a solution
    without couplings. Solutions are returned in the order of `grid`.
    """
    if engine.sparse:
        return solve_sparse(engine, sample, layout, grid, workers)
    out: list[Any] = [None] * len(grid)
    solve: Any = None
    prepared_for: tuple[bool, str] | None = None  # algorithm and precision of `solve`
    # results that do not depend on the penalty are computed once for all comparisons, if memory
    # permits
    cached = WarmStarts().cached if warm_starts is None else warm_starts.cached
    takes_newton = cached("small", partial(is_small, sample.n, layout))
    # without a penalty the field of an absent level decreases until its gradient is well below the
    # tolerance: start there
    starts_at_stop = warm_starts is not None and not takes_newton and engine.diverges(min(grid))
    site_theta = np.empty((0, 0))
    if start is not None:
        site_theta = start.copy()
    elif not warm_starts:
        site_theta = _start(
            engine, counts or level_counts(sample, layout.n_levels), layout, starts_at_stop
        )
    sample = cached("codes", partial(_joint_levels, sample, layout))
    # fit_engine: the engine with the tolerance and precision of the most recent fit
    sites = None
    fit_engine = engine
    for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
        lambda_ = grid[k]
        # all fits of a comparison except its first, which is exact unless it starts where exact
        # fits stop
        if warm_starts is not None and (warm_starts or starts_at_stop):
            site_theta = extrapolate(warm_starts, lambda_) if warm_starts else site_theta
            comparison_norm = CLOSE_COMPARISON_NORM if lambda_ in warm_starts else COMPARISON_NORM
            tolerance = max(engine.tolerance, comparison_norm)
            # cache this: `replace` validates all options again
            fit_engine = cached(
                f"to {tolerance}", partial(replace, engine, tolerance=tolerance, precision="single")
            )
        elif sites is not None:  # not the first fit: the previous one keeps its array
            site_theta = site_theta.copy()
        if takes_newton:
            solve = solve_by_newton
        else:
            # the solver is kept until another algorithm or precision is needed
            is_local = n_shares(sample) == 1
            is_dual = is_local and prefers_dual_ascent(fit_engine, sample, layout, lambda_)
            if (is_dual, fit_engine.precision) != prepared_for:
                prepared_for = (is_dual, fit_engine.precision)
                solve = cached(
                    f"solver {prepared_for}", partial(_solver, fit_engine, sample, layout, is_dual)
                )
        sites = Sites(layout.m)
        normaliser = solve(
            fit_engine,
            sample,
            layout,
            lambda_,
            engine.lambdah_at(lambda_),
            site_theta,
            sites,
            workers,
        )
        if warm_starts is not None:
            warm_starts[lambda_] = site_theta
        out[k] = (site_theta, sites, normaliser)
    return out


def _start(
    engine: Any, counts: list[np.ndarray], layout: Layout, starts_at_stop: bool
) -> np.ndarray:
    """Return a solution (layout.D, 1 + D) without couplings.

    `counts` contains the weights (L_i,) of each predictor's levels. A prior count is added for each
    level. If `starts_at_stop` is True, the prior count is omitted, and absent levels have the
    probability at which a solver would stop.
    """
    site_theta = np.zeros((layout.D, 1 + regressors(layout).D))
    level_shares = smoothed(counts, 0.0 if starts_at_stop else engine.prior_count or 1.0)
    least_share = engine.tolerance**ABSENT_POWER if starts_at_stop else 0.0
    site_theta[:, 0] = np.concatenate(
        [np.empty(0), *(log_ratio(np.maximum(shares, least_share)) for shares in level_shares)]
    )
    return site_theta


def _joint_levels(sample: Sample, layout: Layout) -> Sample:
    """Return the rows with their `Regressors` codes, including joint levels if needed."""
    regs = regressors(layout)
    return replace(sample, codes=regs.codes(sample.codes)) if regs.sets else sample


def _solver(engine: Any, sample: Sample, layout: Layout, is_dual: bool) -> Callable:
    """Return the solver for all sites: L-BFGS, or dual coordinate ascent if `is_dual` is True.

    If the rows are on a cluster, it runs there, and the workers choose the algorithm.
    """
    if n_shares(sample) > 1:
        return make_cluster_solver(sample, layout, engine.precision, engine.prior_count)
    return make_solver(sample, layout, engine.precision, engine.prior_count, is_dual)


def extrapolate(warm_starts: Mapping[float, np.ndarray], lambda_: float) -> np.ndarray:
    """Return the solution at `lambda_`, interpolated linearly in the logarithm of the penalty.

    The adjacent stronger and weaker penalties are used for interpolation, and the two strongest or
    weakest penalties for extrapolation. With a single solution or a penalty of 0, the nearest
    solution is copied.
    """
    fitted_penalties = sorted(warm_starts)
    if len(fitted_penalties) == 1 or lambda_ <= 0.0 or fitted_penalties[0] <= 0.0:
        return warm_starts[min(fitted_penalties, key=lambda other: abs(other - lambda_))].copy()
    # position of the next stronger penalty, at least 1 so that a weaker one precedes it
    upper = min(max(int(np.searchsorted(fitted_penalties, lambda_)), 1), len(fitted_penalties) - 1)
    weak = fitted_penalties[upper - 1]
    strong = fitted_penalties[upper]
    share = float(np.log(lambda_ / weak) / np.log(strong / weak))
    out = share * warm_starts[strong]
    out += (1.0 - share) * warm_starts[weak]
    return out


# Newton steps to the optimum without a penalty, from a sample of the rows
MAX_CORRECTED_STEPS = 16
LONGEST_STEP = 2.0  # largest change of a parameter in a step; longer steps are shortened
STEP_TOLERANCE = 1e-6  # a fit has converged if a step changes no parameter by more than this
DIVERGING_STEP = 1e-3  # a parameter that changes by more in the last step has no finite optimum
# gradient norm that changes coefficients in the fourth decimal at most, so no warning is needed
HARMLESS = 1e-6
MAX_ORDER = 99  # maximum order of terms
MAX_LEVELS = 65535  # maximum number of levels in the kernel


@dataclass(frozen=True)
class PseudoLikelihood(Engine):
    """Fit fields and couplings by penalised pseudo-likelihood, eqs. (10)-(18).

    Parameters
    ----------
    lambda_ : float or sequence of float, default 1e-5
        L2 penalty on couplings, per observation. A sequence contains one penalty for each order:
        pairs, terms of three predictors, and so on.
    lambdah : float or None, default 0.0
        L2 penalty on fields. If None, it is equal to `lambda_`.
    tolerance : float, default 1e-10
        Gradient norm of a predictor's objective at or below which its fit is considered converged.
    itmax : int, default 1000
        Maximum number of iterations for each predictor.
    prior_count : float, default 0.0
        Pseudocount c, spread evenly over the levels of each predictor. In each conditional
        distribution, a row's observed level has weight ``1 - c/(n + c)``, and the remaining weight
        is divided equally among all levels. Without couplings, this is naive Bayes with the same
        `prior_count`. A prior count keeps the fields of absent levels finite; a value of 1 is
        suitable for classification.
    symmetrize : bool, default True
        Whether to average ``J_ij`` and ``J_ji`` (eq. 18), and similarly for terms of any order.
        Otherwise, ``J_ij`` with ``i < j`` is taken from the fit of predictor i.
    precision : {"double", "single"}, default "double"
        Numerical precision of large fits. Single precision requires half the working memory and
        about half the time, but the smallest possible tolerance is then 1e-5, which results in
        about four correct digits. Small fits always use double precision.
    penalty : {"l2", "l1", "group"}, default "l2"
        Penalty on the couplings of pairs. ``"l2"`` is ``lambda_ / 2`` times their sum of squares,
        as in the paper. The other penalties make some couplings exactly zero. Each predictor is
        then regressed on the others by a sparse (multinomial) logistic regression, which is solved
        exactly. ``"l1"``, for predictors with two levels, is `lambda_` times the sum of ``|J_ij|``
        in the reference gauge, which is an L1 penalty on products of 0/1 columns. ``"group"``, for
        any number of levels, is `lambda_` times the sum of the Frobenius norms of the tables
        ``J_ij`` in the zero-sum gauge, which makes entire tables zero. For two levels, this norm is
        half of ``|J_ij|``. With ``"l1"`` and ``"group"``, fields are not penalised, `lambdah` and
        `prior_count` must be 0, and standard errors are not available. ``lambda_="cv"`` compares
        nine values from 0.003 to 0.3. A symmetrised coupling is zero only if it is zero for both
        predictors.
    gauge : {"reference", "zero-sum"}, default "reference"
        Whether to penalise the fields and couplings of non-reference levels, as in the paper, or
        (for models with pairs only) of all levels, in the zero-sum gauge. The two solutions of a
        pair are then also averaged in the zero-sum gauge. With "zero-sum", probabilities do not
        depend on the choice of reference levels, except with ``log_z="mf"``, eq. (32), or if a
        predictor is constant in a group and neither `lambdah` nor `prior_count` is positive. The
        same `lambda_` is a weaker penalty in the zero-sum gauge; with two levels, it is a quarter
        as strong.
    ordered : {"nominal", "linear"}, default "nominal"
        Couplings of ordered predictors with three or more levels. With ``"linear"``, they are
        linear in the level scores: ``J_ij(a, b) = theta_ij u_i(a) u_j(b)`` for two ordered
        predictors, where theta is the log odds ratio for adjacent levels, and ``u_i(a) phi_j(b)``
        for an ordered and a nominal predictor. Fields are not restricted. Penalties apply to the
        couplings of all levels, as with ``"nominal"``, so their strength does not depend on the
        unit of the scores.
    level_scores : dict of list, optional
        Scores of the levels of some predictors, such as ``{"edu": [8, 12, 16]}``, for
        ``ordered="linear"``. Scores can also be given for predictors that are not declared as
        ordered. By default the levels are equally spaced: 0, 1, 2, ...

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ .^2", titanic, "Freq", method=bbl.PseudoLikelihood(lambda_=0.01), verbose=0
    ... )
    >>> round(fit.score(), 3)
    0.783
    """

    lambda_: float | tuple[float, ...] = 1e-5
    lambdah: float | None = 0.0
    tolerance: float = 1e-10
    itmax: int = 1000
    symmetrize: bool = True
    prior_count: float = 0.0
    precision: str = "double"
    gauge: str = "reference"
    penalty: str = "l2"
    ordered: str = NOMINAL
    level_scores: LevelScores | None = None
    name = "pseudo"
    order = MAX_ORDER
    tuned = PENALTY
    needs = "neighbours"
    solves = True
    weights = "real"
    # small enough to make little difference with many predictors, large enough to bound the fields
    # of absent levels
    classifier: ClassVar[dict[str, Any]] = {"lambdah": 1e-4}
    log_z = "half"
    streams = True
    takes_start = True

    def __post_init__(self):
        object.__setattr__(self, "lambda_", penalty_option(self.lambda_))
        if self.lambdah is not None:
            object.__setattr__(self, "lambdah", real("lambdah", self.lambdah, 0.0))
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0, open_low=True))
        object.__setattr__(self, "itmax", integer("itmax", self.itmax, 1))
        object.__setattr__(self, "prior_count", real("prior_count", self.prior_count, 0.0))
        object.__setattr__(self, "symmetrize", flag("symmetrize", self.symmetrize))
        choice("precision", self.precision, tuple(FINEST))
        choice("gauge", self.gauge, GAUGES)
        choice("penalty", self.penalty, get_args(PairPenalty))
        if self.ordered != NOMINAL or self.level_scores is not None:
            ordered, level_scores = linear_options(self.ordered, self.level_scores)
            object.__setattr__(self, "ordered", ordered)
            object.__setattr__(self, "level_scores", level_scores)
        if self.sparse:
            self._check_sparse()

    def _check_sparse(self) -> None:
        """Raise an OptionError for options that cannot be combined with a sparse penalty."""
        if not _positive(self.lambda_):
            raise OptionError(
                f"penalty={self.penalty!r} requires a positive lambda_; got {self.lambda_!r}.",
                hint="Set lambda_ > 0, such as 0.03, or omit the penalty argument.",
                argument="lambda_",
                value=self.lambda_,
            )
        if self.ordered != NOMINAL:
            raise OptionError(
                f"penalty={self.penalty!r} cannot be combined with ordered={self.ordered!r}.",
                hint="Use ordered='nominal', or omit the penalty argument.",
                argument="ordered",
                value=self.ordered,
            )
        for name in ("lambdah", "prior_count"):
            value = getattr(self, name)
            if value != 0.0:
                raise OptionError(
                    f"penalty={self.penalty!r} does not penalise fields, but {name} is {value!r}.",
                    hint=f"Use {name}=0, or omit the penalty argument.",
                    argument=name,
                    value=value,
                )

    @classmethod
    def classifier_defaults(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Return the `classifier` defaults, or an empty dict with a sparse penalty."""
        return cls.classifier if options.get("penalty", "l2") == "l2" else {}

    @property
    def sparse(self) -> bool:
        """Whether the penalty makes couplings exactly zero."""
        return self.penalty != "l2"

    @property
    def grid(self) -> tuple[float, ...]:
        """Values of `lambda_` that ``"cv"`` compares."""
        return SPARSE_GRID if self.sparse else self.tuned.grid

    @property
    def penalised(self) -> bool:
        """Whether a penalty is applied."""
        # lambdah None: the same as lambda_
        return _positive(self.lambda_) or bool(self.lambdah) or bool(self.prior_count)

    @property
    def zero_sum(self) -> bool:
        """Whether penalties apply to fields and couplings in the zero-sum gauge."""
        return self.gauge != GAUGES[0] or self.penalty == "group"  # GAUGES[0]: "reference"

    @property
    def two_sided(self) -> bool:
        """Whether the two solutions of a pair are kept separate."""
        return not self.symmetrize

    def scores(self, design: Design) -> list[np.ndarray | None] | None:
        """Return the level scores of a design's predictors; None for nominal couplings."""
        if self.ordered == NOMINAL:
            return None
        return layout_scores(design, self.ordered, self.level_scores)

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout unchanged, or raise an OptionError if its terms are not supported."""
        check_orders(self.lambda_, layout)
        if self.ordered != NOMINAL:
            check_linear(self.ordered, layout)
        if self.sparse:
            self._check_sparse_layout(sample, layout)
        if self.zero_sum and not sample.in_memory and not few_enough(sample.n, layout):
            raise OptionError(
                f"gauge={self.gauge!r} requires all rows in memory, but there are "
                f"{sample.n:,} rows.",
                argument="gauge",
                hint="Omit the gauge argument, or pass a table with a sample of the rows.",
                value=self.gauge,
            )
        if self.zero_sum and layout.order > 2:
            raise OptionError(
                f"gauge={self.gauge!r} supports terms of up to two predictors, but the model has "
                f"terms of {layout.order}.",
                argument="gauge",
                hint="Pass a formula with pairs only, or omit the gauge argument.",
                value=self.gauge,
            )
        n_levels = int(regressors(layout).n_levels.max(initial=0))
        if layout.order > 2 and n_levels > MAX_LEVELS:
            raise OptionError(
                f"In a term, the predictors that another one is regressed on have {n_levels - 1:,} "
                f"combinations of levels, but at most {MAX_LEVELS - 1:,} are supported.",
                argument="formula",
                hint="Merge levels, or leave the term out.",
            )
        return layout

    def _check_sparse_layout(self, sample: Sample, layout: Layout) -> None:
        """Raise an OptionError if the sparse penalty cannot be used with these rows and terms."""
        what = f"penalty={self.penalty!r}"
        if not sample.in_memory:
            raise OptionError(
                f"{what} requires all rows in memory.",
                hint="Pass a table, or omit the penalty argument.",
                argument="penalty",
            )
        if layout.order > 2:
            raise OptionError(
                f"{what} supports only pairs, but the model has terms of {layout.order} "
                "predictors.",
                hint="Use a formula with pairs only, or method='shbm'.",
                argument="penalty",
            )
        if self.penalty == "l1":
            check_two_levels(layout)

    def stepwise(self, sample: Rows, layout: Layout) -> bool:
        """Return whether fits are too slow to compare more than a few penalties at a time."""
        if self.sparse or not layout.m:  # one path over all penalties is fastest; no predictors
            return False
        if not sample.in_memory:
            return True
        # the number of distinct rows in a group is bounded by the number of states, where missing
        # values count as a level, and by the number of rows
        states = math.prod(int(L) + (not sample.complete) for L in layout.n_levels)
        return not is_small(
            min(states, int(np.bincount(cast(Sample, sample).response).max(initial=0))), layout
        )

    def check_equations(self) -> None:
        """Raise an OptionError unless couplings are symmetrised and have an L2 penalty.

        Standard errors are not available in other cases.
        """
        if self.sparse:
            raise OptionError(
                f"Fits with penalty={self.penalty!r} have no standard errors: estimates that the "
                f"penalty sets to zero are not normally distributed.",
                hint="Use penalty='l2', or call bootstrap() to see how estimates vary.",
                argument="penalty",
                value=self.penalty,
            )
        if not self.symmetrize:
            raise OptionError(
                "Standard errors are only available for symmetrised couplings.",
                argument="symmetrize",
                hint="Fit with symmetrize=True.",
            )

    def equations(
        self, sample: Rows, layout: Layout, site_theta: np.ndarray | None = None
    ) -> Equations:
        """Return a group's likelihood equations, with the solution before symmetrisation."""
        if self.sparse:
            self.check_equations()
        rows = self.prepare(sample, layout)
        if site_theta is None:  # too large to be kept, or not in a model file
            site_theta = np.asarray(self.fit(rows, layout).site_theta)
        return Equations(
            site_theta,
            self.lambda_,
            self.lambdah_at(self.lambda_),
            rows,
            self.prior_count,
            self.zero_sum,
        )

    def log_pseudo_likelihood(self, fit: EngineFit, layout: Layout) -> float | None:
        """Return the mean unpenalised log pseudo-likelihood, or None if the fit has a prior count.

        It is computed from the objective and the site solution of the fit. This is not possible
        with a prior count, which changes the rows.
        """
        if fit.site_theta is None or self.prior_count or self.zero_sum:
            return None
        penalty = np.append(self.lambdah_at(self.lambda_), penalties(layout, self.lambda_))
        return fit.lkh + 0.5 * float((penalty * fit.site_theta**2).sum())

    def influence_at(
        self, rows: Sample, layout: Layout, theta: np.ndarray, site_theta: np.ndarray | None
    ) -> tuple[RowInfluence, Sample]:
        """Return the influence of sampled rows on the fit to all rows, followed by these rows."""
        return self.influence(
            rows, layout, to_sites(layout, theta) if site_theta is None else site_theta
        )

    def unpenalised_from(
        self,
        rows: Sample,
        layout: Layout,
        theta: np.ndarray,
        site_theta: np.ndarray | None,
        sites: np.ndarray,
        kept: Sample,
    ) -> Unpenalised:
        """Return the unpenalised optimum over all rows, given their fit and a sample of the rows.

        As in `Corrected`, a linear term is added to the sample's objective, which makes its
        gradient at the fitted parameters equal to the gradient over all rows. The optimum is then
        found by Newton's method. The sample only affects the change in the gradient between the fit
        and the optimum. Gradients are therefore computed from all rows that were `kept`, and
        Hessians, which take longer, from `rows`.
        """
        fitted = to_sites(layout, theta) if site_theta is None else site_theta
        # at the fit, the gradient of the log-likelihood of all rows equals the penalty's gradient
        # minus the contribution of a prior count
        penalty = np.append(self.lambdah_at(self.lambda_), penalties(layout, self.lambda_))
        gradient = penalty * fitted
        if self.prior_count:
            gradient += site_moments(kept, layout, 0.0) - site_moments(
                kept, layout, self.prior_count
            )
        optimum = fitted.copy()
        determined = np.zeros(fitted.shape, dtype=bool)
        columns = regressors(layout).columns
        linear: dict[int, np.ndarray] = {}
        remaining = sites.tolist()
        for _ in range(MAX_CORRECTED_STEPS):
            unconverged = []
            scores = site_scores(kept, layout, optimum, remaining)
            hessians = (
                {i: H for i, (_, H) in site_hessians(rows, layout, optimum, remaining).items()}
                if layout.scores is None
                else scored_hessians(rows, layout, optimum, remaining)
            )
            for i, H in hessians.items():
                cells = np.ix_(np.arange(layout.start[i], layout.start[i + 1]), columns[i])
                # the first score is that of the sample at the fit
                linear.setdefault(i, gradient[cells].ravel() - scores[i])
                corrected = scores[i] + linear[i]
                solve, is_informed, _ = solver(H)
                if layout.scores is None:
                    step = solve(corrected)
                else:
                    site_map = site_scores_of(layout).maps[i]  # H is of the free parameters
                    step = site_map.expand(solve(site_map.gather(corrected)))
                    is_informed = is_informed[site_map.index]
                largest = float(np.abs(step).max(initial=0.0))
                step *= min(1.0, LONGEST_STEP / largest if largest else 1.0)
                optimum[cells] += step.reshape(-1, len(columns[i]))
                # parameters that still change in the last step have no finite optimum
                is_determined = is_informed & (np.abs(step) < DIVERGING_STEP)
                determined[cells] = is_determined.reshape(-1, len(columns[i]))
                if largest > STEP_TOLERANCE:
                    unconverged.append(i)
            remaining = unconverged
            if not remaining:
                break
        influence = influence_of(rows, layout, optimum, lambda_=0.0, lambdah=0.0)
        all_determined = from_sites(layout, determined.astype(float)) == 1.0
        return Unpenalised(from_sites(layout, optimum), all_determined, influence)

    def prepare(self, sample: Rows, layout: Layout) -> Rows:
        """Return the rows, and add the row described in section 2.2 if a predictor is constant.

        In the additional row, constant predictors have the first level that does not occur, and all
        other predictors have their reference level. With missing values, a predictor is treated as
        constant if it is constant in the rows to which it is fitted. No row is added if a prior
        count, or a penalty on fields in the zero-sum gauge, already keeps fields finite.
        """
        if not sample.in_memory:
            return self._prepare_stored(cast(StoredSample, sample), layout)
        sample = cast(Sample, sample)
        has_bounded_fields = self.zero_sum and self.lambdah_at(self.lambda_) > 0.0
        if not sample.n or self.prior_count or has_bounded_fields:
            return sample
        if sample.missing is None:
            first_codes = sample.codes[0]
            varies = (sample.codes != first_codes).any(axis=0)
        else:
            # (n, m); argmax is the first usable row of each predictor
            usable = usable_rows(sample, layout)
            first_codes = sample.codes[usable.argmax(axis=0), np.arange(layout.m)]
            varies = ((sample.codes != first_codes) & usable).any(axis=0)
        constant = ~varies & (layout.n_levels > 1)
        if not constant.any():
            return sample
        extra = np.where(constant & (first_codes == 0), 1, 0).astype(sample.codes.dtype)
        missing = (
            None
            if sample.missing is None
            else np.vstack([sample.missing, np.zeros(layout.m, dtype=bool)])
        )
        return Sample(
            np.vstack([sample.codes, extra]), np.append(sample.weights, 1.0), missing=missing
        )

    def _prepare_stored(self, rows: StoredSample, layout: Layout) -> Rows:
        """Prepare rows in a file in the same way as `prepare`.

        The rows are loaded into memory if there are only a few.
        """
        if not rows.complete:  # public functions refuse this earlier, with advice
            raise OptionError(
                "With missing values, method='pseudo' uses different rows for each predictor, "
                "which is not possible when rows are read in blocks.",
                argument="missing",
            )
        if few_enough(rows.n, layout):
            # equal rows merged
            all_rows = rows.draw(rows.n, np.random.default_rng(0)).collapsed(layout.n_levels)
            # on a cluster, send them to all workers
            return rows.spread(cast(Sample, self.prepare(all_rows, layout)))
        # the zero-sum gauge, which `prepare` considers too, is refused for so many rows
        if self.prior_count:
            return rows
        level_weights = level_counts(rows, layout.n_levels)
        # the level of a constant predictor
        only_level = np.array([int(np.argmax(counts)) for counts in level_weights])
        constant = np.array([np.count_nonzero(counts) < 2 for counts in level_weights]) & (
            layout.n_levels > 1
        )
        if not constant.any():
            return rows
        extra = np.where(constant & (only_level == 0), 1, 0).astype(code_dtype(layout.n_levels))
        return replace(rows, extra=Sample(extra[None], np.ones(1)))

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, for two solutions, the kernel's rows and joint-level codes.

        `settings` has no effect.
        """
        if not layout.m:  # no predictors
            return 0.0
        regs = regressors(layout)
        if layout.scores is not None:
            return scored_memory(layout) + 16.0 * layout.D * regs.D
        row_bytes, task_bytes = memory_estimate(
            n, regs.n_levels, precision=self.precision, sites=layout.m
        )
        return (
            16.0 * layout.D * regs.D
            + (row_bytes + task_bytes)
            + 4.0 * n * (len(regs.n_levels) - layout.m)
        )

    def stored_memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, of a fit to rows in a file.

        The model is fitted to a sample, or to all rows if there are only a few.
        """
        if layout.scores is not None:
            return self.memory(n, layout, settings)
        if few_enough(n, layout):
            return self.memory(n, layout, settings)
        return self.memory(sample_size(layout), layout, settings) + rounds_memory(layout)

    def path(
        self,
        sample: Rows,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
        start: np.ndarray | None = None,
        warm_starts: WarmStarts | None = None,
    ) -> list[EngineFit]:
        """Fit one group at each penalty in `values`.

        With missing values, each predictor is fitted to the rows where it and its neighbours are
        observed. The first fit starts at `start` (layout.size,). If `warm_starts` is given, fits
        stop as soon as they are precise enough to compare penalties; see `compare`.
        """
        grid = [self.lambda_] if values is None else [float(value) for value in values]
        site_start = None if start is None else to_sites(layout, start)
        if layout.scores is not None:
            return self._path_scored(sample, layout, grid, workers, warm_starts, site_start)
        if not sample.in_memory:
            return self._path_stored(
                cast(StoredSample, sample), layout, grid, workers, warm_starts, site_start
            )
        sample = cast(Sample, sample)
        site_rows = sample
        counts = None
        if sample.missing is None:
            counts = None if warm_starts else level_counts(sample, layout.n_levels)
            solutions = solve_complete(
                self, sample, layout, grid, workers, warm_starts, counts, site_start
            )
        else:
            usable = usable_rows(sample, layout)
            solutions = solve_available(
                self, sample, layout, usable, grid, workers, warm_starts, site_start
            )
            site_rows = replace(sample, missing=~usable)  # to count the levels of usable rows
        absent: tuple[Note, ...] = ()  # notes on levels that never occur
        if warm_starts is None and self.diverges(min(grid)):
            absent = absent_levels(
                counts or level_counts(site_rows, layout.n_levels),
                hint="Use penalty='l2' and lambdah > 0." if self.sparse else "Set lambdah > 0.",
            )
        share_count = n_shares(sample)
        fits = []
        for lambda_, (site_theta, sites, normaliser) in zip(grid, solutions, strict=True):
            fit = self._finish(sample, layout, lambda_, site_theta, sites, normaliser, absent)
            if share_count > 1:  # on a cluster: summaries show the number of its threads
                fit = replace(fit, state={"shared": np.array([share_count])})
            fits.append(self._symmetrise_zero_sum(sample, layout, fit) if self.zero_sum else fit)
        return fits

    def compare(
        self, sample: Rows, layout: Layout, values: Sequence[float] | None, warm_starts: WarmStarts
    ) -> list[EngineFit]:
        """Fit one group at each penalty in `values`, with just enough precision to compare them.

        The first fit either is exact or starts near the point at which exact fits stop. Fields
        without a finite optimum therefore agree with the fields from `path`. Later fits start from
        an extrapolation of the nearest fits (see `extrapolate`), stop at a larger tolerance and use
        single precision. Penalties that are already in `warm_starts` are fitted again with higher
        precision. All solutions are added to `warm_starts`.
        """
        return self.path(sample, layout, values, warm_starts=warm_starts)

    def _symmetrise_zero_sum(self, rows: Rows, layout: Layout, fit: EngineFit) -> EngineFit:
        """Average the solutions of each pair and compute ln Z in the zero-sum gauge.

        In this gauge, tables sum to zero along each axis. The parameters `theta` of the returned
        fit are in the reference gauge.
        """
        assert fit.site_theta is not None  # noqa: S101  # true for all fits of this engine
        theta = fit.theta.copy()
        theta[: layout.D] = reference_fields(layout, fit.theta, fit.site_theta)
        return replace(
            fit,
            theta=theta,
            normaliser=partial(zero_sum_log_z, rows, layout, theta, fit.site_theta),
        )

    def _path_stored(
        self,
        rows: StoredSample,
        layout: Layout,
        grid: list,
        workers: int,
        warm_starts: WarmStarts | None,
        start: np.ndarray | None,
    ) -> list[EngineFit]:
        """Fit rows in a file in rounds, at each penalty in `grid` in decreasing order.

        The first fit starts at the solution `start` (layout.D, 1 + D), which is by default naive
        Bayes with a prior count of 1. If `warm_starts` is given, it starts at an extrapolation of
        the solutions in it. See `Corrected`.
        """
        out: list[Any] = [None] * len(grid)
        engine = (
            self
            if warm_starts is None
            else replace(self, tolerance=max(self.tolerance, CLOSE_COMPARISON_NORM))
        )
        counts = level_counts(rows, layout.n_levels)
        absent = (
            absent_levels(counts, hint="Set lambdah > 0.")
            if warm_starts is None and self.diverges(min(grid))
            else ()
        )
        site_theta = extrapolate(warm_starts, max(grid)) if warm_starts else start
        if site_theta is None:
            shares = [(weights + 1.0 / len(weights)) / (weights.sum() + 1.0) for weights in counts]
            site_theta = np.zeros((layout.D, 1 + regressors(layout).D))
            site_theta[:, 0] = np.concatenate([log_ratio(level_shares) for level_shares in shares])
        rounds = Corrected(engine, rows, layout, workers)
        for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
            lambda_ = grid[k]
            site_theta = site_theta.copy()
            sites = rounds.fit(lambda_, self.lambdah_at(lambda_), site_theta, self.itmax)
            fit = engine._finish(
                rows, layout, lambda_, site_theta, sites, rounds.normaliser(site_theta), absent
            )
            out[k] = replace(fit, state=rounds.state())
        return out

    def _path_scored(
        self,
        rows: Rows,
        layout: Layout,
        grid: list,
        workers: int,
        warm_starts: WarmStarts | None,
        start: np.ndarray | None,
    ) -> list[EngineFit]:
        """Fit couplings that are linear in scores, at each penalty in `grid` in decreasing order.

        Rows may be in memory or in a file. Rows in memory may have missing values. The first fit
        starts at the solution `start` (layout.D, 1 + D), which by default has no couplings. If
        `warm_starts` is given, it starts at an extrapolation of the solutions in it, and new
        solutions are added.
        """
        out: list[Any] = [None] * len(grid)
        site_rows = rows
        if not rows.complete:  # missing values of each site, for the counts of its levels
            rows = cast(Sample, rows)
            site_rows = replace(rows, missing=~usable_rows(rows, layout))
        counts = level_counts(site_rows, layout.n_levels)
        absent = (
            absent_levels(counts, hint="Set lambdah > 0.")
            if warm_starts is None and self.diverges(min(grid))
            else ()
        )
        site_theta = start
        if site_theta is None and not warm_starts:
            site_theta = _start(self, counts, layout, starts_at_stop=False)
        for k in sorted(range(len(grid)), key=lambda k: grid[k], reverse=True):
            lambda_ = grid[k]
            if warm_starts:
                site_theta = extrapolate(warm_starts, lambda_)
            lambdah = self.lambdah_at(lambda_)
            fit = fit_scored_sites(
                rows,
                layout,
                cast(np.ndarray, site_theta),
                ScoredPenalty(lambda_, lambdah, self.prior_count, self.zero_sum),
                tolerance=self.tolerance,
                itmax=self.itmax,
                floor=FLOOR["double"],
                workers=workers,
            )
            site_theta = fit.site_theta
            if warm_starts is not None:
                warm_starts[lambda_] = site_theta
            out[k] = self._finish_scored(rows, layout, lambda_, fit, counts, absent)
        return out

    def _finish_scored(
        self,
        rows: Rows,
        layout: Layout,
        lambda_: float | tuple[float, ...],
        fit: ScoredFit,
        counts: list[np.ndarray],
        absent: tuple[Note, ...],
    ) -> EngineFit:
        """Return the symmetrised fit for `_path_scored`, with notes and the parameter count."""
        sites = Sites(layout.m)
        # means over the usable rows of a site, as a share of all rows
        sites.value = fit.value * (usable_weight(rows, layout) / rows.total)
        sites.norm = fit.norm
        sites.n_iter = fit.n_iter
        sites.status[:] = np.where(fit.converged, CONVERGED, STUCK)
        unbounded: tuple[tuple[int, ...], ...] = ()
        if not _positive(lambda_) and not self.prior_count:
            unbounded = _first_undetermined(layout, fit.determined, counts)
        finished = self._finish(
            rows, layout, lambda_, fit.site_theta, sites, None, absent, unbounded
        )
        if self.zero_sum:
            finished = self._symmetrise_zero_sum(rows, layout, finished)
        shared = score_map(layout)
        return replace(finished, rank=None if shared is None else shared.n)

    def diverges(self, lambda_) -> bool:
        """Return whether fields of absent levels diverge with this penalty on couplings.

        They diverge if fields are not penalised and the prior count is zero.
        """
        return self.lambdah_at(lambda_) == 0.0 and not self.prior_count

    def lambdah_at(self, lambda_) -> float:
        """Return the penalty on fields, which is fixed or equal to the penalty on couplings."""
        first_lambda = lambda_[0] if isinstance(lambda_, tuple) else lambda_
        return float(first_lambda) if self.lambdah is None else self.lambdah

    def _finish(
        self,
        sample: Rows,
        layout: Layout,
        lambda_: float | tuple[float, ...],
        site_theta: np.ndarray,
        sites: Sites,
        normaliser: Callable | None,
        absent: tuple[Note, ...],
        unbounded: tuple[tuple[int, ...], ...] | None = None,
    ) -> EngineFit:
        """Return the symmetrised fit (eq. 18), with notes on non-convergence and absent levels.

        `sites` contains reports (m,) on the fits of the sites: the minimum `value`, the gradient
        `norm`, `n_iter` and `status`. ``normaliser(half)`` returns ln Z. `unbounded` is the same as
        in `EngineFit`; if it is None, it is computed.
        """
        theta = from_sites(layout, site_theta, self.symmetrize)
        notes = absent if self.diverges(lambda_) else ()
        for i in np.flatnonzero((sites.status != CONVERGED) & ~(sites.norm <= HARMLESS)):
            detail = f"gradient norm {sites.norm[i]:.2g} after {sites.n_iter[i]} iterations"
            what = "did not converge"
            notes += (Note(int(i), -1, what, detail, hint="Increase itmax, tolerance or lambda_."),)
        # a penalty on fields alone leaves couplings unbounded
        if unbounded is None and not _positive(lambda_) and not self.prior_count:
            with serial_blas():
                unbounded = unbounded_parameters(
                    sample, layout, site_theta, max_parameters=POLISH_SIZE
                )
        value = -float(sites.value.sum())
        converged = sites.status == CONVERGED
        unbounded = unbounded or ()
        converged[[i for i, *_ in unbounded]] = False  # i: the predictor, first in each tuple
        return EngineFit(
            theta,
            value,
            site_theta,
            normaliser=normaliser,
            grad_norm=sites.norm,
            n_iter=sites.n_iter,
            converged=converged,
            notes=notes,
            unbounded=unbounded,
        )


def _first_undetermined(
    layout: Layout, determined: np.ndarray, counts: list[np.ndarray]
) -> tuple[tuple[int, ...], ...]:
    """Return one parameter without a finite optimum for each site that has such parameters.

    The result has the form of `EngineFit.unbounded`. `determined` (layout.D, 1 + D) marks
    parameters with a finite optimum. Levels that have no rows in `counts` are not considered,
    because there are separate notes on them.
    """
    regs = regressors(layout)
    out = []
    for i in np.flatnonzero(layout.n_levels > 1):
        columns = regs.columns_of(int(i))
        has_rows = (counts[i][1:] > 0.0) & (counts[i][0] > 0.0)
        levels = np.arange(layout.start[i], layout.start[i + 1])[has_rows]
        cells = np.argwhere(~determined[np.ix_(levels, columns)])
        if len(cells):
            # a coupling if there is one, otherwise the field
            row, column = max(cells.tolist(), key=lambda cell: cell[1] > 0)
            members = regs.members(int(columns[column]) - 1) if column else []
            out.append(
                (
                    int(i),
                    int(levels[row] - layout.start[i]) + 1,
                    *(code for member in members for code in member),
                )
            )
    return tuple(out)


def _positive(lambda_: float | tuple[float, ...]) -> bool:
    """Return whether a penalty on couplings is positive."""
    return any(lambda_) if isinstance(lambda_, tuple) else bool(lambda_)
