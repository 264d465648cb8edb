"""The base class `Engine` of inference methods, the option ``lambda_``, and warm starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bbl.capabilities import ABSENT, NOT_COUNTS
from bbl.checks import real
from bbl.design.factors import Factor
from bbl.engines.engine_fit import EngineFit, Equations, LikelihoodMaximum, Note, Unpenalised
from bbl.engines.traits import JointTraits, PosteriorTraits, Tuned
from bbl.errors import OptionError
from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout
from bbl.model.regressors import from_sites, to_sites
from bbl.model.scored_influence import influence_of
from bbl.model.unpenalised import unpenalised
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample

if TYPE_CHECKING:
    from bbl.design.design import Design
    from bbl.model.support import Support

__all__ = [
    "NEED_ERRORS",
    "PENALTY",
    "SPARSE_GRID",
    "Engine",
    "WarmStarts",
    "absent_levels",
    "check_orders",
    "check_two_levels",
    "penalty_option",
]


class WarmStarts(dict[float, np.ndarray]):
    """Solutions for each value of the tuned option (the setting), and a cache for other results.

    Parameters
    ----------
    solutions : mapping of float to ndarray
        The solution at each setting, not symmetrised (see `EngineFit.site_theta`).
    keeps : bool
        Whether to cache results that do not depend on the setting, if there is enough memory. The
        cache is not pickled, so other processes compute these results again.
    """

    def __init__(self, solutions: Mapping[float, np.ndarray] | None = None, keeps: bool = False):
        super().__init__(solutions or {})
        self.keeps = keeps
        self._results: dict[str, Any] = {}

    def __reduce__(self):  # pickles only the solutions
        return WarmStarts, (dict(self), self.keeps)

    def cached(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of ``make()``, which is cached under `name` if `keeps` is True."""
        if name in self._results:
            return self._results[name]
        result = make()
        if self.keeps:
            self._results[name] = result
        return result


PENALTY = Tuned(
    "lambda_",
    "lambda",
    r"$\lambda$",
    r"Penalty $\lambda$",
    tuple(10.0 ** np.arange(-4.0, 1.01, 0.5)),
    simpler="larger",
    logarithmic=True,
)
# values that "cv" tries for a penalty on norms; beyond 0.3 hardly any couplings remain
SPARSE_GRID = tuple(10.0 ** np.arange(-2.5, -0.49, 0.25))


def penalty_option(lambda_: object) -> float | tuple[float, ...]:
    """Return the option ``lambda_`` as a non-negative number, or as a tuple of such numbers.

    Raises
    ------
    OptionError, BBLTypeError
        If a number is negative or not finite, or a sequence is empty.
    """
    # a string is a sequence too; `real` rejects it
    if isinstance(lambda_, Sequence | np.ndarray) and not isinstance(lambda_, str):
        if not len(lambda_):
            raise OptionError(
                "lambda_ is empty.",
                argument="lambda_",
                hint="Pass a single number, or one number for each order.",
            )
        return tuple(real("lambda_", value, 0.0) for value in lambda_)
    return real("lambda_", lambda_, 0.0)


def check_orders(lambda_: float | tuple[float, ...], layout: Layout) -> None:
    """Raise an OptionError if a sequence of penalties does not match the orders of `layout`.

    The message mentions `crossVal`, because the user may have intended a grid of penalties.
    """
    # orders 2, 3, ...; a model without terms has a penalty on pairs too
    n_orders = max(layout.order, 2) - 1
    if isinstance(lambda_, tuple) and len(lambda_) != n_orders:
        raise OptionError(
            f"lambda_ must contain one number for each order from 2 to {n_orders + 1}, but it "
            f"contains {len(lambda_)}.",
            argument="lambda_",
            hint=(
                f"Pass {f'{n_orders} numbers' if n_orders > 1 else 'one number'}, or use crossVal "
                "to compare a grid of values."
            ),
        )


NO_EQUATIONS = (
    "Standard errors are available for methods that solve likelihood equations (such as 'pseudo' "
    "and 'naive')"
)
# capabilities that are missing in a prediction method without standard errors
NEED_ERRORS = (
    "standard_errors",
    "covariances",
    "tests",
    "pooled",
    "differences",
    "composite_criteria",
    "odds_ratios",
    "effects",
    "survey",
)
SHARED_ROWS = (
    "The pooled fit and the group fits share rows, so their posteriors are not independent"
)


@dataclass(frozen=True)
class Engine:
    """Base class of inference methods, with their options and capabilities.

    Callers use only the attributes below, and never inspect an engine's name or options.

    Attributes
    ----------
    name : str
        Name in the ENGINES table.
    order : int
        Highest interaction order that the engine fits: 1 for fields only (regardless of the
        formula), 2 for pairs.
    order_reason : str
        Reason why higher orders are not available, for the error message.
    tuned : Tuned or None
        The option that `crossVal` tunes.
    log_z : str
        The default method for ln Z if computing the exact value would take too long.
    needs : {"each", "pairs", "neighbours"}
        What must be observed in at least one row, if some values are missing: each predictor, both
        predictors of each pair, or each predictor together with all predictors that it interacts
        with.
    weights : {"counts", "real"}
        Whether row weights must be frequencies ("counts") or can be any positive numbers ("real").
        Standard errors and tests require frequencies in both cases.
    joint : JointTraits or None
        How the engine fits P(group | row) for all groups at once, without `path`; None if it fits
        each group separately.
    regresses : bool
        Whether numeric predictors are regressors with slopes, instead of normally distributed
        variables in a location model.
    collapses : bool
        Whether identical rows are merged, in a fixed order, before they are passed to `path`.
        Engines that only count levels and pairs do not need this.
    streams : bool
        Whether `path` reads rows block by block and therefore accepts a `StoredSample` that is
        larger than memory.
    loads : bool
        Whether rows read in batches are loaded into memory as one-byte codes, because the engine
        needs all rows at once; see `fits_in_rounds` for exceptions.
    solves : bool
        Whether the engine solves likelihood equations and can therefore provide standard errors.
    zeros : bool
        Whether layouts may have structural zeros (see `Layout.support`).
    has_likelihood : bool
        Whether unpenalised fits maximise the likelihood, so that nested models can be compared by
        likelihood-ratio tests.
    errors : str
        Source of the standard errors, for notes under tables.
    samples : bool
        Whether `path` draws random numbers and therefore also accepts `rng` and `progress`.
    takes_start : bool
        Whether `path` accepts initial parameters ``start`` (layout.size,), for example from a fit
        to the same rows with different weights. Up to the engine's tolerance, the solution is the
        same as without `start`.
    chooses : bool
        Whether the engine selects the terms separately for each group, so that each fit has its own
        layout.
    posterior : PosteriorTraits or None
        Description of the posterior that is stored in fits, including whether draws (`has_draws`)
        and the progress of the fit (`keeps_history`) are stored; None if fits have no posterior.
    sized_by : tuple of str
        Names of options that increase the memory used by a fit.
    classifier : dict
        Defaults of `BBLClassifier` that differ from the engine's own. With these defaults, any
        table can be fitted.
    """

    name: ClassVar[str]
    order: ClassVar[int] = 2
    order_reason: ClassVar[str] = ""
    tuned: ClassVar[Tuned | None] = None
    log_z: ClassVar[str] = "exact"
    needs: ClassVar[str] = "each"
    weights: ClassVar[str] = "counts"
    joint: ClassVar[JointTraits | None] = None
    regresses: ClassVar[bool] = False
    collapses: ClassVar[bool] = True
    streams: ClassVar[bool] = False
    loads: ClassVar[bool] = False
    solves: ClassVar[bool] = False
    zeros: ClassVar[bool] = False
    has_likelihood: ClassVar[bool] = False
    errors: ClassVar[str] = "Sandwich (Godambe) standard errors of the pseudo-likelihood estimator."
    samples: ClassVar[bool] = False
    takes_start: ClassVar[bool] = False
    chooses: ClassVar[bool] = False
    posterior: ClassVar[PosteriorTraits | None] = None
    sized_by: ClassVar[tuple[str, ...]] = ()
    classifier: ClassVar[dict[str, Any]] = {}

    @property
    def penalised(self) -> bool:
        """Whether a penalty shrinks the estimates towards zero."""
        return False

    @property
    def numbers_advice(self) -> str:
        """Advice about a numeric column that is not a factor, for error messages."""
        if "numeric" in self.refusals():
            return ""
        return "To model its mean and variance instead, list it in numeric=."

    @property
    def has_tests(self) -> bool:
        """Whether standard errors and tests are available for the estimates."""
        return self.solves

    @property
    def has_profiles(self) -> bool:
        """Whether tests and intervals can also be based on the profile penalised likelihood."""
        return False

    @property
    def has_design_errors(self) -> bool:
        """Whether standard errors and tests can account for a sampling design."""
        return self.has_tests

    @property
    def grid(self) -> tuple[float, ...]:
        """Values of the tuned option that ``"cv"`` compares; empty if no option is tuned."""
        return () if self.tuned is None else self.tuned.grid

    @property
    def inert(self) -> tuple[str, ...]:
        """Options that have no effect, given the values of the other options."""
        return ()

    @property
    def two_sided(self) -> bool:
        """Whether ``J_ij`` and ``J_ji`` are separate estimates that are not averaged."""
        return False

    @property
    def stops_early(self) -> bool:
        """Whether an option causes fits to stop before reaching the optimum."""
        return False

    @property
    def setting(self) -> float:
        """Value of the tuned option; nan if it is not a single number."""
        value = float("nan") if self.tuned is None else getattr(self, self.tuned.option)
        return float("nan") if isinstance(value, (tuple, str)) else float(value)

    def generator(self, rng: np.random.Generator) -> np.random.Generator:
        """Return the random generator for fits: `rng`, unless the engine has its own seed."""
        return rng

    def check_missing(self, sample: Sample) -> None:
        """Raise an OptionError for missing values that the method cannot marginalise."""
        reason = self.refusals().get("missing_marginal")
        # a mask (n, m) of missing values; None if there are none
        if reason is not None and sample.missing is not None:
            raise OptionError(
                f"{reason}.",
                argument="missing",
                hint=(
                    "Make missing values a separate level (missing='level'), or drop their rows "
                    "(missing='drop')."
                ),
            )

    def fits_in_rounds(self, layout: Layout, K: int) -> bool:
        """Return whether a joint fit of K groups can read rows from a file, although `streams` is
        False.
        """
        return False

    def check_numbers(self) -> None:
        """Raise an OptionError if an option cannot be combined with numeric predictors."""

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each.

        The keys are from `bbl.capabilities.CAPABILITIES`. The reasons are used in error messages
        and listed in the guide. The reason is `ABSENT` if the method does not have an option.
        """
        method = f"method={cls.name!r}"
        reasons: dict[str, str] = {}
        if cls.order == 2:  # engines of order 1 accept any formula and ignore its interactions
            reasons["third_order"] = cls.order_reason or "the model is pairwise"
        if not (cls.streams or cls.loads):
            reasons["batches"] = reasons["missing_marginal_batches"] = (
                f"{method} requires all rows in memory"
            )
        elif cls.streams and cls.needs == "neighbours":
            reasons["missing_marginal_batches"] = (
                f"missing='marginal' with {method} requires all rows in memory"
            )
        if cls.weights == "counts":
            reasons["real_weights"] = NOT_COUNTS
        if not cls.solves:
            reasons["survey"] = (
                f"{method} does not provide standard errors that account for a sampling design"
            )
        if cls.tuned is None:
            reasons["tuning"] = ABSENT
        if "gauge" not in {option.name for option in fields(cls)}:
            reasons["gauge"] = ABSENT
        if not cls.zeros:
            reasons["structural_zeros"] = (
                f"{method} assumes that every combination of levels can occur"
            )
        if cls.joint:
            only_conditional = f"{method} fits only P(y|x)"
            need_density = (
                "no_response",
                "mlestimate",
                "bootstrap",
                "likelihood",
                "mcSample",
                "sample",
                "density",
            )
            reasons |= dict.fromkeys(need_density, only_conditional)
            reasons["missing_marginal"] = (
                f"{method} does not model the predictors, so it cannot average over missing values"
            )
            if cls.loads:
                reasons["missing_marginal_batches"] = reasons["missing_marginal"]
            reasons["importance"] = "predictions cannot be averaged over missing or unseen values"
        if cls.chooses or cls.posterior:
            why_not = (
                "selects terms automatically"
                if cls.chooses
                else "has priors that shrink irrelevant terms"
            )
            reasons["relevance"] = f"{method} {why_not}"
        if cls.chooses:
            reasons["mlestimate"] = (
                f"{method} selects terms that fields and pairwise couplings cannot represent"
            )
            reasons["bootstrap"] = (
                f"{method} selects different terms for different rows, so refits have different "
                f"parameters"
            )
        if cls.posterior:
            reasons |= dict.fromkeys(
                ("tests", "composite_criteria"),
                f"{method} provides a posterior distribution, not tests",
            )
            reasons["pooled"] = SHARED_ROWS
            reasons["numeric"] = (
                f"{method} has no posterior for the means and covariances of numeric predictors"
            )
        elif not cls.solves:
            need_equations = (
                "standard_errors",
                "covariances",
                "tests",
                "pooled",
                "differences",
                "composite_criteria",
            )
            reasons |= dict.fromkeys(need_equations, f"{NO_EQUATIONS}, not for {method}")
        if not (cls.solves or cls.joint or (cls.posterior and cls.posterior.has_draws)):
            reasons["effects"] = (
                f"{method} provides neither a covariance matrix of its estimates nor posterior "
                "draws"
            )
        if not (cls.posterior and cls.posterior.has_draws):
            reasons["draws"] = f"{method} has no posterior draws"
            if cls.posterior:
                reasons["covariances"] = (
                    f"{method} stores standard deviations of the parameters, but no covariances"
                )
        if not (cls.posterior and cls.posterior.keeps_history):
            reasons["history"] = f"{method} does not record a history"
        if not cls.has_likelihood:
            reasons["goodness_of_fit"] = f"{method} does not maximise the likelihood of a table"
        if cls.order == 1:
            reasons |= dict.fromkeys(
                ("plot_network", "odds_ratios"), "The model has no interactions"
            )
        elif "tests" in reasons:
            reasons["odds_ratios"] = reasons["tests"]
        return reasons

    def check_density(self, what: str) -> None:
        """Raise an OptionError if P(row | group), which `what` requires, is not modelled."""
        if self.joint:
            raise OptionError(
                f"{what} requires a model of the predictors, P(x|y), but "
                f"{self.refusals()['density']}: only differences in its scores between groups are "
                "meaningful.",
                argument="method",
                hint="Choose method='pseudo', or assess predictions with evaluate().",
            )

    @classmethod
    def classifier_defaults(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Return the defaults of `BBLClassifier` for an engine with these `options`, as a dict."""
        return cls.classifier

    def stepwise(self, sample: Any, layout: Layout) -> bool:
        """Return whether to compare only a few settings at a time, using warm starts.

        The comparison starts with the strongest penalty. `sample` contains the rows of all groups.
        """
        return False

    def variants(self) -> tuple[Engine, ...]:
        """Return the engines that are compared at each value of the tuned option."""
        return (self,)

    @property
    def cumulative(self) -> bool:
        """Whether the parameters define cumulative logits instead of class scores."""
        return False

    @property
    def is_ordinal(self) -> bool:
        """Whether all groups have the same parameters, up to a factor."""
        return False

    @property
    def calibrates(self) -> bool:
        """Whether class scores can be calibrated.

        Calibration requires that multiples of class scores are valid scores.
        """
        return True

    def for_response(self, response: Factor) -> Engine:
        """Return the engine adapted to this response.

        A LevelError is raised if an option requires ordered groups and the groups are not ordered.
        """
        return self

    def for_rows(self, layout: Layout, total: float) -> Engine:
        """Return the engine adapted to rows with this layout and `total` weight.

        An OptionError is raised if an option requires ordered levels and no predictor has three or
        more of them.
        """
        return self

    def scores(self, design: Design) -> list[np.ndarray | None] | None:
        """Return the level scores of a design's predictors; None if couplings do not use scores."""
        return None

    def layout_of(self, design: Design, terms: Any, support: Support | None = None) -> Layout:
        """Return the layout of a design's predictors with the given `terms`.

        If `terms` is None, the layout has all pairs.
        """
        return Layout(
            design.n_levels,
            terms,
            support,
            design.n_ordered,
            self.scores(design),
            design.regressors,
        )

    def held_out(
        self, sample: Sample, layout: Layout, K: int, folds: Folds
    ) -> Callable[..., np.ndarray] | None:
        """Return a function that fits all folds together, or None if they are fitted separately.

        `K` is the number of groups. The function takes one of the `variants`, a value of the tuned
        option, the positions of each fold's validation rows, ``exactly`` (whether the scores will
        be calibrated rather than just compared), and ``workers``. The function returns the class
        scores (N, K) of the validation rows, fold by fold.
        """
        return None

    def widened(self, layout: Layout, max_size: float = math.inf) -> Layout:
        """Return the layout of the predictors, followed by the engine's hidden units if it has any.

        A ValueError is raised if the layout has more than `max_size` parameters, which is possible
        if a model file has been manipulated. A fit with hidden units stores draws of all
        parameters, shape (chains, draws, size), in ``state["hidden"]``.
        """
        return layout

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout of the parameters that are fitted to the rows of all groups."""
        return layout

    def check_equations(self) -> None:
        """Raise an OptionError if the engine has no `equations` for standard errors."""
        reason = self.refusals().get("tests")
        if reason is not None:
            raise OptionError(
                f"{reason}.",
                argument="method",
                hint="Use inference().table() and interactions()." if self.posterior else None,
            )

    def equations(
        self, sample: Sample, layout: Layout, site_theta: np.ndarray | None = None
    ) -> Equations:
        """Return a group's likelihood equations for standard errors.

        Call `check_equations` first.

        `site_theta` (layout.D, 1 + D) is the solution of the equations if the fit stored it. If it
        is None, the group is fitted again.
        """
        raise NotImplementedError

    def check_composite(self) -> None:
        """Raise an OptionError if the engine does not provide composite-likelihood criteria."""
        if not self.joint:  # joint fits are refused for a different reason, below
            self.check_equations()
        reason = self.refusals().get("composite_criteria")
        if reason is not None:
            raise OptionError(f"{reason}.", argument="method")

    def influence(
        self, sample: Any, layout: Layout, site_theta: np.ndarray | None = None
    ) -> tuple[RowInfluence, Any]:
        """Return the influence of rows on the estimate of a group, and the fitted rows.

        `site_theta` is the same as in `equations`.
        """
        equations = self.equations(sample, layout, site_theta)._asdict()
        rows = equations.pop("rows")
        # the other fields of `Equations` are keyword arguments of `influence_of`
        return influence_of(rows, layout, **equations), rows

    def unpenalised(
        self, rows: Sample, layout: Layout, start: np.ndarray, sites: np.ndarray
    ) -> Unpenalised:
        """Fit the rows of a group by unpenalised pseudo-likelihood, for tests of any method.

        Parameters
        ----------
        rows : Sample
        layout : Layout
        start : ndarray, shape (layout.size,)
            The fitted parameters.
        sites : ndarray of int
            Predictors that have enough rows to be regressed on the other predictors. The returned
            parameters of the remaining predictors are not meaningful.
        """
        # `to_sites` arranges the parameters by site (a predictor as the response), as in
        # `EngineFit.site_theta`. `determined` has the same shape (layout.D, 1 + D): a row for each
        # level, columns for the field and D regressors.
        with serial_blas():  # once instead of in each pass over the rows
            site_theta, determined = unpenalised(rows, layout, to_sites(layout, start), sites)
            influence = influence_of(rows, layout, site_theta, lambda_=0.0, lambdah=0.0)
        # `from_sites` averages over the sites of a term, so the mean is 1 if the parameter is
        # determined at all of them
        is_determined = from_sites(layout, determined.astype(float)) == 1.0
        return Unpenalised(from_sites(layout, site_theta), is_determined, influence)

    def log_pseudo_likelihood(self, fit: EngineFit, layout: Layout) -> float | None:
        """Return the mean unpenalised log pseudo-likelihood, or None if it is not available."""
        return None

    def influence_at(
        self, rows: Sample, layout: Layout, theta: np.ndarray, site_theta: np.ndarray | None
    ) -> tuple[RowInfluence, Sample]:
        """Return the influence of sampled rows on a group's fit, followed by these rows.

        The model is not refitted. `theta` (layout.size,) contains the group's parameters.
        `site_theta` contains the solution at each site, or is None if it was not kept. This method
        requires that `streams` and `solves` are True.
        """
        raise NotImplementedError

    def unpenalised_from(
        self,
        rows: Sample,
        layout: Layout,
        theta: np.ndarray,
        site_theta: np.ndarray | None,
        sites: np.ndarray,
        kept: Sample,
    ) -> Unpenalised:
        """Take a Newton step from a group's fit to its unpenalised optimum, using a sample of rows.

        `rows` is a random sample of the fitted rows. At the fitted parameters, the gradient over
        all rows equals the gradient of the penalty, so the sample is only needed for the Hessian.
        `kept` contains `rows` and possibly more of the fitted rows. The other arguments are the
        same as in `influence_at` and `unpenalised`.
        """
        raise NotImplementedError

    def maximum_likelihood(self, rows: Sample, layout: Layout) -> LikelihoodMaximum:
        """Return the unpenalised maximum of the likelihood of `rows`.

        This method requires that `has_likelihood` is True.
        """
        raise NotImplementedError

    def prepare(self, sample: Any, layout: Layout) -> Any:
        """Return the rows of `sample` in the form that `path` fits.

        Some methods add a row or drop incomplete rows.
        """
        return sample

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the working memory, in bytes, of a fit to `n` rows at a number of `settings`."""
        return 0.0

    def stored_memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the working memory, in bytes, for `n` rows read block by block (see `streams`)."""
        return self.memory(n, layout, settings)

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
    ):
        """Fit one group at each of the `values` of the tuned option.

        If `values` is None, the engine's own setting is used. The result contains one `EngineFit`
        for each value. If `samples` is True, there are two more arguments: ``rng``, a Generator for
        this group, and ``progress``, which is None or a function that is called as
        ``progress(share, note)`` whenever another part of the fit is finished. An OptionError is
        raised if the engine fits all groups at once.
        """
        if not self.joint:
            raise NotImplementedError
        raise OptionError(
            f"{self.refusals()['no_response']}, so it fits all groups at once.",
            argument="method",
            hint="Pass a formula with a response, or choose method='pseudo'.",
        )

    def compare(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None,
        warm_starts: WarmStarts,
    ) -> list[EngineFit]:
        """Fit one group at each of the `values`, just precisely enough to compare their losses.

        By default this is the same as `path`.

        Parameters
        ----------
        warm_starts : WarmStarts
            Solutions from earlier comparisons on the same rows. New solutions may be added. A value
            that already has a solution is fitted again with higher precision.
        """
        return self.path(sample, layout, values)

    def fit(
        self,
        sample: Any,
        layout: Layout,
        workers: int = 1,
        rng: np.random.Generator | None = None,
        start: np.ndarray | None = None,
    ) -> EngineFit:
        """Fit one group at the engine's own setting.

        `rng` is used only if `samples` is True, and `start` (layout.size,) only if `takes_start` is
        True.
        """
        path: Callable[..., list[EngineFit]] = self.path
        options: dict[str, Any] = {"rng": rng, "progress": None} if self.samples else {}
        if self.takes_start:
            options["start"] = start
        # None: one fit, at the engine's own setting
        return path(sample, layout, None, workers, **options)[0]

    def at(self, value: float) -> Engine:
        """Return the same engine with the tuned option set to `value`."""
        assert self.tuned is not None  # noqa: S101  # settings require a tuned option
        return replace(self, **{self.tuned.option: value})


def absent_levels(counts: list[np.ndarray], *, hint: str) -> tuple[Note, ...]:
    """Return a note for each level that does not occur and therefore has no finite field.

    `counts` contains the weights or frequencies (L_i,) of each predictor's levels; `hint` states
    how to make the fields finite.
    """
    if all(n.all() for n in counts):  # the usual case, and quick to check
        return ()
    text = "never occurs, so its field has no finite estimate"
    return tuple(
        Note(i, int(a), text, hint=hint)
        for i, n in enumerate(counts)
        for a in np.flatnonzero(n == 0)
    )


def check_two_levels(layout: Layout) -> None:
    """Raise an OptionError for ``penalty="l1"`` if a predictor has more than two levels."""
    if (layout.n_levels > 2).any():
        raise OptionError(
            f"penalty='l1' requires predictors with two levels, but some have "
            f"{int(layout.n_levels.max())}. The couplings set to zero would depend on the "
            f"reference level.",
            hint="Use penalty='group', which sets whole coupling tables to zero.",
            argument="penalty",
            value="l1",
        )
