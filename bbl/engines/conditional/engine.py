"""Engine `Conditional`: fit P(group | row) jointly for all K groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast, get_args

import numpy as np

from bbl.checks import choice, flag, integer, real
from bbl.choices import Logits
from bbl.design.factors import Factor
from bbl.engines.base import Engine
from bbl.engines.conditional.basis_fits import fit_by_basis
from bbl.engines.conditional.coding import CODINGS, coding_of
from bbl.engines.conditional.coefficients import coefficient_covariance
from bbl.engines.conditional.discriminative import (
    FINAL,
    OFFSET_PENALTY,
    Tolerance,
    bound_scores,
    fit_minibatches,
)
from bbl.engines.conditional.folds import RANK, HeldOut, group_weights
from bbl.engines.conditional.influence import ConditionalInfluence, influence_of_sample
from bbl.engines.conditional.kernel import determined, make_basis, to_tables
from bbl.engines.conditional.many_rows import fit_many_rows
from bbl.engines.conditional.maximum import find_maximum
from bbl.engines.conditional.multinomial import difference_covariance
from bbl.engines.conditional.ordinal_influence import OrdinalInfluence
from bbl.engines.conditional.ordinal_maximum import find_ordinal_maximum
from bbl.engines.conditional.ordinal_ridge import (
    fit_ordinal,
    ordinal_coefficient_covariance,
    ordinal_difference_covariance,
)
from bbl.engines.conditional.rounds import can_fit_in_rounds, fit_in_rounds
from bbl.engines.conditional.unbounded import limits
from bbl.engines.engine_fit import JointFit, Limit
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.engines.traits import JointTraits, OutOfFoldScores, Tuned
from bbl.errors import Hint, LevelError, OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.number_terms import to_raw
from bbl.parallel import serial_blas
from bbl.rows.folds import Folds
from bbl.rows.sample import Sample
from bbl.rows.stored import StoredSample
from bbl.stats.calibration import fit_calibration

__all__ = ["Conditional"]

SINGLE_GROUPS = (
    "A conditional fit with ridge > 0 provides no standard errors for single groups and no tests"
)
LOGITS = get_args(Logits)
RIDGE = 1e-3  # default for up to `RIDGE_ROWS` rows; decreases with the number of rows beyond
RIDGE_ROWS = 5000  # weighted number of rows: the default ridge is 5 / n beyond
SCALES = (0.5, 0.1, 8.0)  # values that scale="cv" tries, the default first
# maximum number of distinct rows for a basis of the kernel; beyond, minibatches and L-BFGS
ROWS = 5000
# for fits in a basis, to compare ridges
COMPARED = Tolerance(gradient=1e-5, gain=1e-9, rounds=400)


@dataclass(frozen=True)
class Conditional(Engine):
    """Fit fields and couplings by conditional likelihood, to predict the response.

    All groups are fitted jointly by minimising ``-mean ln P(y|x) + ridge/2 |f|^2``. Up to its
    normaliser, ``ln P(y|x)`` is ``T s_y(x) + b_y + f_y(x)``, where `f` is linear in centred level
    indicators and in products of indicators of interacting predictors. The objective is convex.
    Numeric predictors are regressors. Their standardised values are used instead of indicators,
    including in squares (``u:u``). Only differences between groups are identified. P(x|y) is not
    modelled, so row likelihoods and ln Z are not available, and missing values cannot be
    marginalised.

    Parameters
    ----------
    ridge : float or "firth", optional
        Penalty on f. The default is 1e-3 for up to 5,000 rows and 5 / n for more, so that the
        penalty becomes negligible as the number of rows increases. With real-valued weights, n is
        the effective number of rows. With ``inf``, f is omitted, and the scores of `start` are only
        calibrated. With 0, the likelihood is maximised, as in logistic and multinomial regression,
        and standard errors and tests are available. The parameters of the first group are then
        zero, and all others are log odds ratios relative to this group. "firth" maximises the
        likelihood times the square root of the determinant of its Fisher information (Firth 1993,
        Biometrika 80), with the same parameters, standard errors and tests. Its estimates are
        finite even if groups are separated, and less biased in small samples.
    scale : float or "cv", default 0.5
        Weight of couplings relative to fields.
    start : {None, "pseudo"}, default None
        Source of the class scores s, which are 0 (None) or come from a pseudo-likelihood fit.
        Out-of-fold scores are used when f is fitted, because in-sample scores would overfit and
        leave nothing for f to explain.
    lambda_ : float or "cv", default "cv"
        Penalty of the pseudo-likelihood fit, which uses a `prior_count` of 1.
    epochs : int, default 8
        Number of passes over the rows in minibatches if there are more than 5,000 distinct rows.
        The fit is then completed by L-BFGS on all rows.
    early_stopping : bool, default False
        Whether to stop before the optimum, which may improve predictions that would otherwise be
        overconfident. With up to 5,000 distinct rows, the ridge decreases from about 0.1 to `ridge`
        by factors of 10, with few steps at each value. With more rows, the fit stops after the
        minibatches.
    ordered : {"nominal", "linear", "cumulative", "cv"}, default "nominal"
        Coding of ordered predictors with three or more levels. "nominal": one parameter for each
        level. "linear": one slope over equally spaced levels (interactions are linear by linear).
        "cumulative": one parameter for each level, where the penalty shrinks the differences
        between adjacent levels. "cv": the best of the three by cross-validation. In all cases,
        parameters are reported for each level.
    logits : {"nominal", "adjacent", "cumulative", "cv"}, default "nominal"
        Logits for a response that is declared as ordered. "nominal" ignores the order, and each
        group has its own function f of the predictors. With the other logits, all groups have the
        same function f, so there are fewer parameters. "adjacent": ``ln P(next group) / P(group)``
        is a threshold plus f, as in multinomial regression with equal steps (VGAM's ``acat``).
        "cumulative": ``ln P(y <= group) / P(y > group)`` is a threshold minus f, as in the
        proportional odds model (``ordinal::clm``, ``MASS::polr``). "cv": the best of the three by
        cross-validation.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range or not available.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method=bbl.Conditional(), verbose=0)
    >>> round(fit.score(), 3)
    0.791
    """

    ridge: float | str | None = None
    scale: float | str = 0.5
    start: str | None = None
    lambda_: float | str = "cv"
    epochs: int = 8
    early_stopping: bool = False
    ordered: str = "nominal"
    logits: str = "nominal"
    name = "conditional"  # this and the following attributes are described in `Engine`
    loads = True
    tuned = Tuned(
        "ridge",
        "ridge",
        r"$\rho$",
        r"Penalty $\rho$",
        tuple(10.0 ** np.arange(-6.0, -0.9)),
        "larger",
        logarithmic=True,
        rules=("firth",),
    )
    log_z = "half"
    weights = "real"
    regresses = True
    errors = "Standard errors from the Fisher information of P(y|x)."

    def __post_init__(self):
        # `real`, `integer` and `flag` check and convert values
        if self.ridge is not None and not self.firth:
            object.__setattr__(self, "ridge", real("ridge", self.ridge, 0.0, finite=False))
        for name in ("scale", "lambda_"):
            value = getattr(self, name)
            if value != "cv":
                if isinstance(value, str):
                    raise OptionError(
                        f"{name}={value!r} is unknown.",
                        argument=name,
                        hint="Pass a number or 'cv'.",
                    )
                object.__setattr__(self, name, real(name, value, 0.0))
        if self.start not in (None, "pseudo"):
            raise OptionError(
                f"start={self.start!r} is unknown.",
                argument="start",
                hint="Pass None or 'pseudo'.",
                value=self.start,
            )
        object.__setattr__(self, "epochs", integer("epochs", self.epochs, 1))
        object.__setattr__(self, "early_stopping", flag("early_stopping", self.early_stopping))
        choice("ordered", self.ordered, (*CODINGS, "cv"))
        choice("logits", self.logits, (*LOGITS, "cv"))
        if self.logits != "nominal":
            self._check_ordinal()
        if not self.penalised:
            self._check_unpenalised()
            if self.ordered != "nominal":
                raise OptionError(
                    f"ordered={self.ordered!r} requires a penalty.",
                    argument="ordered",
                    hint="Use ridge='cv' or ridge > 0, or ordered='nominal'.",
                    value=self.ordered,
                )

    @property
    def inert(self) -> tuple[str, ...]:
        """Options that have no effect: `lambda_` without a start, `epochs` with ordered logits."""
        return ("lambda_",) * (self.start is None) + ("epochs",) * self.is_ordinal

    @property
    def is_ordinal(self) -> bool:
        """Whether all groups have the same function f of the predictors."""
        return self.logits in ("adjacent", "cumulative")

    @property
    def cumulative(self) -> bool:
        """Whether the parameters define cumulative logits instead of class scores."""
        return self.logits == "cumulative"

    @property
    def calibrates(self) -> bool:
        """Whether class scores can be calibrated, which is not possible with cumulative logits."""
        return self.logits in ("nominal", "adjacent")

    def check_numbers(self) -> None:
        """Raise an OptionError if the fit would start from a model without the numeric
        predictors.
        """
        if self.start is not None:
            raise OptionError(
                f"start={self.start!r} is not available with numeric predictors.",
                argument="start",
                hint="Omit the start argument, or bin the numeric predictors with bbl.bin().",
                value=self.start,
            )

    def _check_ordinal(self) -> None:
        """Raise an OptionError for options that are not available with an ordered response."""
        for name, is_given, advice in (
            ("ridge", self.firth, "ridge=0 or ridge='cv'"),
            ("start", self.start is not None, "start=None"),
            ("early_stopping", self.early_stopping, "early_stopping=False"),
        ):
            if is_given:
                raise OptionError(
                    f"{name}={getattr(self, name)!r} is only available with logits='nominal'.",
                    argument=name,
                    hint=f"Use {advice}, or logits='nominal'.",
                    value=getattr(self, name),
                )

    def _check_unpenalised(self) -> None:
        """Raise an OptionError for options that require a penalty to have an effect.

        For example, ``scale=0`` removes the couplings by means of the penalty.
        """
        for name, is_given, advice in (
            ("start", self.start is not None, "start=None"),
            ("early_stopping", self.early_stopping, "early_stopping=False"),
            (
                "scale",
                self.scale in ("cv", 0.0),
                "scale=0.5 and a formula without interactions",
            ),
        ):
            if is_given:
                raise OptionError(
                    f"ridge={self.ridge if self.firth else 0!r} maximises the "
                    f"{'penalised ' * self.firth}likelihood, so the fit does not depend on {name}.",
                    argument=name,
                    hint=f"Use {advice}, or ridge > 0.",
                )

    @property
    def firth(self) -> bool:
        """Whether Firth's penalty (half the log determinant of the information) is used."""
        return self.ridge == "firth"

    @property
    def _ridge(self) -> float:
        """The ridge as a number: 0 with Firth's penalty; by default, the value for few rows."""
        if self.ridge is None:
            return RIDGE
        return 0.0 if isinstance(self.ridge, str) else self.ridge

    @property
    def penalised(self) -> bool:
        """Whether a ridge shrinks the estimates.

        Single groups then have no standard errors. Firth's penalty is not included, because it
        corrects bias and allows tests of the estimates.
        """
        return self._ridge > 0.0

    @property
    def has_profiles(self) -> bool:
        """Whether profile likelihoods are available, which requires Firth's penalty."""
        return self.firth

    @property
    def has_design_errors(self) -> bool:
        """Whether standard errors account for a sampling design; False for penalised fits."""
        return self.has_tests and not self.firth

    def ridge_of(self, total: float) -> float:
        """Return the ridge as a number.

        The default depends on the `total` weight of the rows.
        """
        if self.ridge is None and total:
            return RIDGE * min(1.0, RIDGE_ROWS / total)
        return self._ridge

    @property
    def has_tests(self) -> bool:
        """Whether estimates have standard errors and tests; False if there is a ridge."""
        return not self.penalised

    @property
    def stops_early(self) -> bool:
        """Whether fits stop before reaching the optimum."""
        return self.early_stopping

    def variants(self) -> tuple[Engine, ...]:
        """Return the engines to compare, one for each scale and coding."""
        scales = SCALES if self.scale == "cv" else (self.scale,)
        codings = CODINGS if self.ordered == "cv" else (self.ordered,)
        logits = LOGITS if self.logits == "cv" else (self.logits,)
        return tuple(
            replace(self, scale=scale, ordered=ordered, logits=name)
            for name in logits
            for scale in scales
            for ordered in codings
        )

    def for_response(self, response: Factor) -> Engine:
        """Return the engine adapted to this response.

        With two groups, all logits are equivalent, so ``logits="cv"`` becomes "nominal". A
        LevelError is raised if the logits require an ordered response and the response is not
        ordered.
        """
        if self.logits == "nominal":
            return self
        if not response.ordered:
            name = response.name
            levels = list(response.levels)
            shown = ", ".join(map(repr, levels[:3])) + ", ..." * (len(levels) > 3)
            raise LevelError(
                f"logits={self.logits!r} requires an ordered response, but the levels of {name!r} "
                "are not declared in order.",
                argument="logits",
                column=name,
                hint=Hint(
                    f"Declare their order: data[{name!r}] = pd.Categorical(data[{name!r}], "
                    f"categories=[{shown}], ordered=True), with the levels from lowest to highest.",
                    command_line=f"Declare their order: --levels {name}=LOWEST,...,HIGHEST.",
                    estimators="Declare their order: y = pd.Categorical(y, categories=["
                    f"{shown}], ordered=True), with the classes from lowest to highest.",
                ),
                value=self.logits,
            )
        if self.logits == "cv" and len(response.levels) < 3:
            return replace(self, logits="nominal")
        return self

    def for_rows(self, layout: Layout, total: float) -> Engine:
        """Return the engine with the ridge used for this layout and total row weight.

        If no predictor is ordered, ``ordered="cv"`` becomes "nominal", and other codings raise an
        OptionError.
        """
        engine = self if self.firth else replace(self, ridge=self.ridge_of(total))
        # n_ordered (m,): the number of ordered levels
        if self.ordered == "nominal" or (layout.n_ordered > 2).any():
            return engine
        if self.ordered == "cv":
            return replace(engine, ordered="nominal")
        raise OptionError(
            f"ordered={self.ordered!r} requires ordered predictors with three or more levels, but "
            f"there are none.",
            argument="ordered",
            hint="Declare them as an ordered pd.Categorical, or use ordered='nominal'.",
            value=self.ordered,
        )

    def generative_start(self) -> tuple[Engine, tuple[float, ...] | None] | None:
        """Return the engine for the start and the penalties to compare; None if `start` is None.

        The penalties are None if the penalty of this engine is already set.
        """
        if self.start is None:
            return None
        if isinstance(self.lambda_, str):
            return PseudoLikelihood(prior_count=1.0), PseudoLikelihood.tuned.grid
        return PseudoLikelihood(self.lambda_, prior_count=1.0), None

    def fits_in_rounds(self, layout: Layout, K: int) -> bool:
        """Return whether rows may stay in a file; see `can_fit_in_rounds`."""
        return can_fit_in_rounds(self, layout, K)

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, of a fit to `n` distinct rows.

        If `n` exceeds `ROWS`, this is the memory for a single group.
        """
        rank = min(n, RANK)  # of the basis
        # 8 bytes each: four arrays (n, r) of functions, two (n, F) of features, three (r, r)
        if n <= ROWS or layout.numbers is not None:
            return 8.0 * n * (4.0 * rank + 2.0 * float(layout.n_levels.sum())) + 24.0 * rank**2
        # three tables (D, D) of 4 bytes for minibatches; six of 8 bytes for L-BFGS; about ten
        # parameter vectors
        return (12.0 if self.early_stopping else 60.0) * layout.D**2 + 80.0 * layout.size

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each."""
        reasons = super().refusals()
        errors = ("standard_errors", "covariances", "tests")
        # available without likelihood equations: see `difference`
        del reasons["differences"]
        reasons |= dict.fromkeys(errors, SINGLE_GROUPS)
        no_density = reasons["density"]
        return reasons | {
            "likelihood": f"{no_density}, so its likelihood is only available with ridge=0",
            "pooled": (
                f"method={cls.name!r} fits all groups at once, so there is no pooled fit to "
                "compare with"
            ),
            "survey": (
                f"method={cls.name!r} provides standard errors that account for a sampling design "
                "only with ridge=0"
            ),
            "composite_criteria": f"{no_density}, which has no composite likelihood",
            "odds_ratios": f"{no_density}, which does not determine the odds of predictors",
        }

    def check_equations(self) -> None:
        """Raise an OptionError if there is a ridge.

        A single group is then not identified, and penalised estimates cannot be tested.
        """
        if self.has_tests:
            return
        raise OptionError(
            f"{SINGLE_GROUPS}: only differences between groups are meaningful, and the penalty "
            f"shrinks them.",
            argument="of",
            hint=(
                "Pass two groups, of=(a, b), for intervals, or use ridge=0, "
                "ridge='firth' or method='pseudo' for tests."
            ),
        )

    def check_differences(self, n: int) -> None:
        """Raise an OptionError if group differences of fits to `n` rows have no standard errors."""
        cause = (
            "it starts from a generative fit, whose uncertainty is not available here"
            if self.start is not None
            else (
                f"it was fitted to {n} distinct rows, but the information matrix is computed for "
                f"at most {ROWS}"
            )
            if n > ROWS
            else "it stopped early, before its optimum"
            if self.early_stopping
            else "with ridge=inf there is nothing to estimate"
            if not np.isfinite(self._ridge)
            else None
        )
        if cause is not None:
            raise OptionError(
                f"This conditional fit has no standard errors: {cause}.",
                argument="method",
                hint=(
                    "For effects, use se='bootstrap'. Otherwise, refit to at most 5,000 distinct "
                    "rows with start=None, early_stopping=False and a finite ridge."
                ),
            )

    def difference(
        self,
        codes: np.ndarray,
        weights: np.ndarray,
        p: np.ndarray,
        layout: Layout,
        pair: tuple[int, int],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the covariance of the difference between two groups' function weights.

        The rows must be distinct and sorted. `codes` (n, m) contains their levels, `weights` (n,)
        their numbers of observations, and `p` (n, K) the fitted probabilities of the groups.

        Returns
        -------
        covariance : ndarray, shape (r, r)
        tables : ndarray, shape (r, layout.size)
            Fields and couplings of each of the r basis functions, in the reference gauge.
        determined : ndarray of bool, shape (layout.size,)
            Whether each parameter is determined by the data rather than by the penalty.
        """
        rank = min(len(codes), RANK)
        K = p.shape[1]
        # a fit, four matrices of the size of the information of (rank + 1) (K - 1) weights, and
        # two of the size of `tables`
        check_memory(
            self.memory(len(codes), layout)
            + 32.0 * ((rank + 1) * (K - 1)) ** 2
            + 16.0 * rank * layout.size,
            f"Standard errors of {layout.size} parameters in {K} groups",
            "Use fewer predictors or fewer interactions.",
        )
        with serial_blas():
            basis = make_basis(codes, weights, layout, float(self.scale), RANK, self.ordered)
            ridge = self.ridge_of(weights.sum())
            covariance = (
                ordinal_difference_covariance(basis, p, weights, self.logits, ridge, pair)
                if self.is_ordinal
                else difference_covariance(basis.functions, p, weights, ridge, OFFSET_PENALTY, pair)
            )
            tables = to_tables(basis, np.eye(len(covariance)))[0]
            return covariance, tables, determined(basis, tables, weights)

    def coefficients(
        self, codes: np.ndarray, weights: np.ndarray, p: np.ndarray, layout: Layout
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the covariance of all coefficients, and a mask of those determined by the data.

        `codes`, `weights` and `p` are the same as in `difference`. See `coefficient_covariance`.
        """
        rank = min(len(codes), RANK)
        K = p.shape[1]
        n_coefficients = K * (1.0 + layout.size)
        check_memory(
            self.memory(len(codes), layout)
            + 32.0 * ((rank + 1) * (K - 1)) ** 2
            # two covariances, two factors
            + 16.0 * n_coefficients * (n_coefficients + (rank + 1) * (K - 1)),
            f"Standard errors of {layout.size} parameters in {K} groups",
            "Use fewer predictors or fewer interactions.",
        )
        with serial_blas():
            basis = make_basis(codes, weights, layout, float(self.scale), RANK, self.ordered)
            ridge = self.ridge_of(weights.sum())
            if self.is_ordinal:
                return ordinal_coefficient_covariance(basis, p, weights, self.logits, ridge)
            return coefficient_covariance(basis, p, weights, ridge, OFFSET_PENALTY)

    def fit_groups(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        values: Sequence[float] | None,
        oof_scores: OutOfFoldScores | None,
        rng: np.random.Generator,
        start: np.ndarray | None = None,
    ) -> list[JointFit]:
        """Return one fit of all groups for each ridge in `values`, or for the engine's own ridge.

        Penalised fits use `oof_scores` as an offset, which is 0 if they are None. Unpenalised fits
        start at `start` (K, 1 + size), or at 0 if it is None. See `JointTraits`.
        """
        if isinstance(self.scale, str):
            raise OptionError(
                "scale='cv' is only available in bbl(), not in crossVal.",
                argument="scale",
                hint="Pass a number to crossVal.",
            )
        if self.ordered == "cv":
            raise OptionError(
                "ordered='cv' is only available in bbl(), not in crossVal.",
                argument="ordered",
                hint="Pass a single coding to crossVal.",
            )
        if self.logits == "cv":
            raise OptionError(
                "logits='cv' is only available in bbl(), not in crossVal.",
                argument="logits",
                hint="Pass 'nominal', 'adjacent' or 'cumulative' to crossVal.",
            )
        if not sample.in_memory:
            return [fit_in_rounds(self, cast(StoredSample, sample), layout, K)]
        grid = (
            [self.ridge_of(sample.total)] if values is None else [float(value) for value in values]
        )
        check_memory(
            # for many rows, `memory` is for one group
            (K if sample.n > ROWS else 1) * self.memory(sample.n, layout),
            f"Fitting a conditional model with {layout.D} levels to {sample.n} rows",
            "Use fewer predictors, fewer interactions or fewer rows.",
        )
        penalised = [ridge for ridge in grid if ridge > 0.0]
        fits: list[JointFit] = []
        with serial_blas():
            if len(penalised) < len(grid):  # `replace` rejects options that need a penalty
                # without values, the engine may have Firth's penalty
                engine = self if self.firth and values is None else replace(self, ridge=0.0)
                unpenalised = engine._fit_unpenalised(sample, layout, K, start)
            if penalised and self.is_ordinal:
                fits = fit_ordinal(
                    sample,
                    layout,
                    K,
                    self.logits,
                    float(self.scale),
                    penalised,
                    self.ordered,
                    ROWS,
                )
            elif penalised and (sample.n <= ROWS or layout.numbers is not None):
                # None: end early
                tolerance = None if self.early_stopping else FINAL if values is None else COMPARED
                fits = fit_by_basis(
                    sample,
                    layout,
                    K,
                    float(self.scale),
                    penalised,
                    oof_scores,
                    tolerance,
                    self.ordered,
                )
            elif penalised:
                fits = fit_many_rows(self, sample, layout, K, penalised, oof_scores, rng)
            coding = coding_of(layout, self.ordered)
            if fits and not coding.is_nominal and self.start is None and not self.is_ordinal:
                # the coding may have fewer parameters than the layout, but a start would have all
                # of them
                limits_of_groups = [
                    Limit(coding.contrast_layout(layout).size, unbounded=(), notes=())
                ] * K
                fits = [fit._replace(limits=limits_of_groups) for fit in fits]
        remaining = iter(fits)
        return [next(remaining) if ridge > 0.0 else unpenalised for ridge in grid]

    def maximum(
        self, sample: Sample, layout: Layout, K: int, start: np.ndarray | None = None
    ) -> ConditionalInfluence | OrdinalInfluence:
        """Return the influence of rows on the maximum likelihood estimate.

        The engine's ridge is ignored, but Firth's penalty is applied if the engine uses it. The
        attribute `maximum` of the result contains the estimate. The iteration starts at the
        coefficients `start` (K, 1 + size) if they are given.
        """
        codes, distinct_row = np.unique(sample.codes, axis=0, return_inverse=True)
        weights = group_weights(
            distinct_row.ravel(), len(codes), sample.response, sample.weights, K
        )
        if start is not None and layout.numbers is not None:
            # coefficients of standardised numeric predictors
            start = np.linalg.solve(cast(np.ndarray, to_raw(layout)), start.T).T
        with serial_blas():
            if self.is_ordinal:
                ordinal = find_ordinal_maximum(codes, weights, layout, self.logits, start)
                return OrdinalInfluence(layout, ordinal, codes, weights, self.logits)
            maximum = find_maximum(codes, weights, layout, start, self.firth)
        return ConditionalInfluence(layout, maximum, codes, weights, self.firth)

    def maximum_of_sample(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        coefficients: np.ndarray,
        expansion: np.ndarray,
    ) -> ConditionalInfluence:
        """Return the influence of rows at `coefficients` (K, 1 + size), the estimate from all rows.

        The information is computed from a random `sample` of the rows, drawn with probabilities ``1
        / expansion`` (n,).
        """
        codes, distinct_row = np.unique(sample.codes, axis=0, return_inverse=True)
        weights = group_weights(
            distinct_row.ravel(), len(codes), sample.response, sample.weights, K
        )
        return influence_of_sample(layout, coefficients, codes, weights, sample.weights, expansion)

    def _fit_unpenalised(
        self, sample: Sample, layout: Layout, K: int, start: np.ndarray | None
    ) -> JointFit:
        """Return the fit without a penalty.

        Parameters are differences from the first group that has rows.
        """
        # coefficients (K, 1 + size): intercepts first
        influence = self.maximum(sample, layout, K, start)
        optimum = influence.maximum
        theta = influence.coefficients[:, 1:].copy()
        constant = influence.coefficients[:, 0].copy()
        return JointFit(
            theta,
            constant,
            temperature=1.0,
            loss=-optimum.value,
            gradient=optimum.norm,
            evaluations=optimum.n_iter,
            converged=optimum.converged and not optimum.is_separated,
            limits=limits(optimum, sample, layout),
        )

    def held_out(self, sample: Sample, layout: Layout, K: int, folds: Folds) -> HeldOut | None:
        """Return a function for out-of-fold class scores; None if folds cannot share a basis."""
        if (
            self.firth
            or sample.n > ROWS
            or K < 2
            or self.start is not None
            or sample.missing is not None
        ):
            return None
        # one basis for each kernel: the folds keep the bases of all scales and codings that are
        # tried
        # (the logits share it)
        n_kernels = len(SCALES) * (len(CODINGS) if self.ordered == "cv" else 1)
        check_memory(
            n_kernels * self.memory(sample.n, layout),
            f"Fitting a conditional model with {layout.D} levels to {sample.n} rows",
            "Use fewer predictors, fewer interactions or fewer rows.",
        )
        return HeldOut(sample, layout, K, folds)

    def by_batches(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        oof_scores: OutOfFoldScores | None,
        rng: np.random.Generator,
    ) -> JointFit:
        """Fit all groups on minibatches, for any number of rows.

        The arguments are the same as in `fit_groups`.
        """
        if oof_scores is None:
            return fit_minibatches(
                sample.codes,
                sample.response,
                sample.weights,
                layout,
                K,
                float(self.scale),
                self.ridge_of(sample.total),
                self.epochs,
                rng,
            )
        y = sample.response[oof_scores.rows]
        # a function of scores: temperature * scores + offset, with an offset (K,)
        calibration = fit_calibration(oof_scores.scores, y, oof_scores.weights, "temperature")
        fit = fit_minibatches(
            sample.codes[oof_scores.rows],
            y,
            oof_scores.weights,
            layout,
            K,
            float(self.scale),
            self.ridge_of(sample.total),
            self.epochs,
            rng,
            bound_scores(calibration(oof_scores.scores)),
        )
        return fit._replace(
            constant=fit.constant + calibration.offset, temperature=calibration.temperature
        )

    joint: ClassVar[JointTraits] = JointTraits(
        fit_groups,
        generative_start,
        check_differences,
        difference,
        coefficients,
        maximum,
        maximum_of_sample,
    )
