"""Engine `HighOrder`: sparse high-order Boltzmann machines (Min et al. 2014, section 3)."""

# Min, Ning, Cheng, Gerstein (2014), Interpretable Sparse High-Order Boltzmann Machines, AISTATS.
#
# Regressions of single predictors on products of the others select the terms; then all parameters
# are fitted jointly. A regression *votes* for the terms that it selects, and for their sub-terms
# that contain its predictor.

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bbl.checks import choice, integer, real
from bbl.engines.base import Engine
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.highorder.joint import REFITS, Ascent, Fitted, fit_jointly
from bbl.engines.traits import Tuned
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.moments import frequencies, log_ratio
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample
from bbl.sparse.choice import choose
from bbl.sparse.orders import SCREENS
from bbl.sparse.products import Problem, contrasts
from bbl.sparse.refit import refit
from bbl.sparse.stepwise import add_subterms, choose_stepwise
from bbl.sparse.tables import reference_tables, zero_sum_table

__all__ = ["HighOrder"]

RULES = (
    "ebic",
    "cv",
)  # values of lambda_ that select terms by a rule instead of by a given penalty
COMBINE = ("or", "and", "max")
PENALTIES = ("group", "l1")
RIDGE = 2.0  # default penalty on terms, relative to the sum of the losses of all observations
REGRESSIONS_SHARE = 0.8  # fraction of a fit's time used by the regressions, for progress

Term = tuple[int, ...]


@dataclass(frozen=True)
class HighOrder(Engine):
    """Fit a sparse high-order Boltzmann machine (SHBM) with automatically selected terms.

    The predictors in the formula are used, but its interactions are ignored. In each group, every
    predictor is regressed on products of the others. If a product is selected in the regression of
    predictor i, a term of its predictors and i is added. The terms of all regressions are merged,
    and their sub-terms are added, because a product in the zero-sum gauge is a sum of products of
    all lower orders in the reference gauge. Finally, all parameters are fitted jointly.

    Parameters
    ----------
    order : int, default 3
        Maximum number of predictors in a term.
    lambda_ : {"ebic", "cv"}, float, or sequence of ``order - 1`` floats, default "ebic"
        How terms are selected in a regression. A number is a penalty on all products relative to
        the sum of losses, as in `bbl.shooter`. A sequence contains one penalty for products of each
        order 1, 2, ... "cv" selects the penalty with the smallest held-out loss in 5 folds. With
        "ebic", the candidates are the products on a path of penalties that ends slightly beyond the
        minimum of the extended BIC. A stepwise search then adds and removes indicators of their
        joint levels as long as the extended BIC (gamma = 1) decreases.
    combine : {"or", "and", "max"}, default "or"
        Which terms are kept. A term must be selected in the regression of at least one ("or") or
        two ("and") of its predictors, where sub-terms of selected terms also count as selected.
        "max" keeps the same terms as "or", but without a joint fit: each weight is the estimate of
        largest magnitude in any regression.
    refit : {"pseudo", "exact", "pcd", "cd", "mf"}, default "pseudo"
        Method of the joint fit: pseudo-likelihood, exact likelihood (up to 2**20 states),
        persistent contrastive divergence, contrastive divergence with chains that start at the
        rows, or damped mean field.
    penalty : {"group", "l1"}, default "group"
        Whether all levels of a term are selected together ("group") or separately ("l1").
    screen : {"heredity", "all"}, default "heredity"
        Which products of two predictors are candidates in a regression: products that contain a
        selected predictor ("heredity"), or all products.
    ridge : float, optional
        L2 penalty per observation on all terms in the joint fit, which keeps estimates finite if
        rows are separated. The penalty on fields is at most 1e-6. The default is 2 divided by the
        number of observations. Increase it if there are many terms but few rows.
    tolerance : float, default 1e-9
        Gradient norm at which "pseudo" and "exact" fits stop.
    sweeps : int, default 3
        Gibbs sweeps, or mean-field updates, per step of "cd" (the T of CD-T), "pcd" and "mf".
    n_iter : int, default 1000
        Number of steps of "cd", "pcd" and "mf".
    lr : float, default 0.1
        Initial step size of "cd", "pcd" and "mf", in units of the inverse variance of a parameter's
        monomial. The step size is halved after 200 steps.
    damping : float in [0, 0.99], default 0.2
        Weight d of the previous means in each update of "mf": ``r <- d r + (1 - d) P(v | r)``.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.

    Notes
    -----
    Predictors that are constant in a group have fields ``h = ln f``, with a prior count of 1, and
    no terms. With ``missing="marginal"``, only complete rows are fitted.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl(
    ...     "Survived ~ .^2", titanic, "Freq", method=bbl.HighOrder(lambda_=10.0), verbose=0
    ... )
    >>> fit.order_counts  # doctest: +NORMALIZE_WHITESPACE
           No  Yes
    order
    1       3    3
    2       3    3
    3       1    1
    """

    order: int = 3  # type: ignore[misc]  # the user's option, also declared as `Engine.order`
    lambda_: str | float | tuple[float, ...] = "ebic"
    combine: str = "or"
    refit: str = "pseudo"
    penalty: str = "group"
    screen: str = "heredity"
    ridge: float | None = None
    tolerance: float = 1e-9
    sweeps: int = 3
    n_iter: int = 1000
    lr: float = 0.1
    damping: float = 0.2
    name = "shbm"
    tuned = Tuned(
        "lambda_",
        "lambda",
        r"$\lambda$",
        r"Penalty $\lambda$",
        tuple(10.0 ** np.arange(0.5, 3.01, 0.25)),
        simpler="larger",
        logarithmic=True,
        rules=RULES,
    )
    log_z = "half"
    samples = True
    chooses = True
    classifier: ClassVar[dict[str, Any]] = {}

    def __post_init__(self):
        object.__setattr__(self, "order", integer("order", self.order, 2))
        object.__setattr__(self, "lambda_", _penalties(self.lambda_, self.order - 1))
        choice("combine", self.combine, COMBINE)
        choice("refit", self.refit, REFITS)
        choice("penalty", self.penalty, PENALTIES)
        choice("screen", self.screen, SCREENS)
        if self.ridge is not None:
            object.__setattr__(self, "ridge", real("ridge", self.ridge, 0.0))
        object.__setattr__(self, "tolerance", real("tolerance", self.tolerance, 0.0, open_low=True))
        object.__setattr__(self, "sweeps", integer("sweeps", self.sweeps, 1))
        object.__setattr__(self, "n_iter", integer("n_iter", self.n_iter, 2))
        object.__setattr__(self, "lr", real("lr", self.lr, 0.0, open_low=True))
        object.__setattr__(self, "damping", real("damping", self.damping, 0.0, 0.99))

    @property
    def penalised(self) -> bool:
        """Always True, because terms are penalised."""
        return True

    @property
    def setting(self) -> float:
        """The penalty, or nan if it is selected automatically or differs between orders."""
        return self.lambda_ if isinstance(self.lambda_, float) else float("nan")

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout without terms, because the fit selects them."""
        return Layout(layout.n_levels, ())

    def prepare(self, sample: Sample, layout: Layout) -> Sample:
        """Return the complete rows."""
        if sample.missing is None:
            return sample
        complete = sample.rows(~sample.missing.any(axis=1))
        if not complete.n:
            raise DataError(
                "method='shbm' requires complete rows, but one of the groups has none.",
                hint=(
                    "Leave some predictors out, or make missing values a separate level "
                    "(missing='level')."
                ),
            )
        return complete

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the approximate memory, in bytes, of indicators, probabilities and regressions."""
        return 40.0 * n * layout.D  # five arrays (n, D) with 8 bytes per number

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
        rng: np.random.Generator | None = None,
        progress: Callable | None = None,
    ) -> list[EngineFit]:
        """Select the terms of one group and fit them at each penalty in `values`.

        If `values` is None, the engine's own penalty is used.
        """
        engines = [self] if values is None else [replace(self, lambda_=float(v)) for v in values]
        rng = np.random.default_rng(0) if rng is None else rng
        report_share = None if progress is None else (lambda share: progress(share / len(engines)))
        return [engine._fit(sample, layout, workers, rng, report_share) for engine in engines]

    def _fit(
        self,
        sample: Sample,
        layout: Layout,
        workers: int,
        rng: np.random.Generator,
        progress: Callable | None,
    ) -> EngineFit:
        """Fit one group.

        Constant predictors are excluded from the regressions and from the joint fit. `progress` is
        called with fractions of the work. The joint fit starts from the weights of the regressions
        or, with sampling or mean field, from independent predictors.
        """
        varying = np.flatnonzero((sample.codes != sample.codes[:1]).any(axis=0))
        varying_sample = Sample(np.ascontiguousarray(sample.codes[:, varying]), sample.weights)
        n_levels = layout.n_levels[varying]
        rngs = rng.spawn(len(varying) + 1)  # one for each regression, and one for the joint fit
        tasks = [
            (varying_sample, n_levels, i, self, task_rng) for i, task_rng in enumerate(rngs[:-1])
        ]
        report_regression = (
            None if progress is None else (lambda: progress(REGRESSIONS_SHARE / len(tasks)))
        )
        regressions = run_tasks(_regress, tasks, workers, report_regression)
        min_votes = 2 if self.combine == "and" else 1
        terms, votes = _merge_terms([regression.terms for regression in regressions], min_votes)
        varying_layout = Layout(n_levels, terms)
        site_weights = _site_weights(varying_layout, regressions)
        start = _largest_magnitude(site_weights)
        # or: concatenate needs at least one array
        start[: varying_layout.D] = np.concatenate(
            [regression.field for regression in regressions] or [np.empty(0)]
        )
        # the result without a joint fit
        fitted = Fitted(start, value=float("nan"), norm=0.0, n_iter=0, converged=True)
        if self.combine != "max" and varying_layout.D:
            if self.refit not in ("pseudo", "exact"):
                start = _independent_start(varying_sample, varying_layout)
            ridge = RIDGE / varying_sample.total if self.ridge is None else self.ridge
            options = self.refit, ridge, self.tolerance
            ascent = Ascent(self.sweeps, self.n_iter, self.lr, self.damping)
            fitted = fit_jointly(varying_layout, varying_sample, *options, start, rngs[-1], ascent)
        if progress is not None:
            progress(1.0 - REGRESSIONS_SHARE if tasks else 1.0)
        return self._embed(sample, layout, varying, varying_layout, fitted, votes, site_weights)

    def _embed(
        self,
        sample: Sample,
        layout: Layout,
        varying: np.ndarray,
        varying_layout: Layout,
        fitted: Fitted,
        votes: dict[Term, int],
        site_weights: np.ndarray,
    ) -> EngineFit:
        """Extend a fit of the varying predictors to all predictors.

        `varying` contains the positions of the varying predictors among all predictors. Constant
        predictors have fields ``ln f(x)/f(0)`` from their smoothed frequencies f, and no terms.
        `fitted`, `votes` and `site_weights` (order, size) refer to the varying predictors: the
        joint fit, the number of regressions that select each term, and the estimates from single
        regressions (see `_site_weights`). The state of the result contains two arrays in the layout
        of all predictors: "votes" (size,), the number of regressions that select each parameter's
        term (0 for fields), and "nodes" (order, size), the site weights.
        """
        full_layout = Layout(layout.n_levels, [varying[terms] for terms in varying_layout.terms])
        D = varying_layout.D
        theta = np.zeros(full_layout.size)
        full_votes = np.zeros(full_layout.size)
        theta[: full_layout.D] = np.concatenate(
            [log_ratio(f) for f in frequencies(sample, layout, 1.0)]
        )
        columns = full_layout.columns(varying)
        # constant predictors have no terms, so couplings are in the same order in both layouts
        theta[columns], theta[full_layout.D :] = fitted.theta[:D], fitted.theta[D:]
        full_weights = np.full((len(site_weights), full_layout.size), np.nan)
        full_weights[:, columns], full_weights[:, full_layout.D :] = (
            site_weights[:, :D],
            site_weights[:, D:],
        )
        for term, count in votes.items():
            full_layout.table(full_votes, *varying[list(term)])[...] = count
        notes: tuple[Note, ...] = ()
        if not fitted.converged:
            detail = f"gradient norm {fitted.norm:.2g} after {fitted.n_iter} iterations"
            notes = (
                Note(
                    predictor=-1,  # the fit as a whole
                    level=-1,  # none
                    what=f"the joint refit (refit={self.refit!r}) did not converge",
                    detail=detail,
                    hint=(
                        "Increase ridge."
                        if self.refit in ("pseudo", "exact")
                        else "Increase ridge, or use refit='pseudo'."
                    ),
                ),
            )
        return EngineFit(
            theta,
            fitted.value,
            grad_norm=np.full(layout.m, fitted.norm),
            n_iter=np.full(layout.m, fitted.n_iter),
            converged=np.full(layout.m, fitted.converged),
            notes=notes,
            layout=full_layout,
            state={"votes": full_votes, "nodes": full_weights},
        )


class Regression(NamedTuple):
    """The regression of a predictor i with L levels.

    Attributes
    ----------
    terms : list of tuple of int
        The selected terms, which contain i, and all their sub-terms.
    field : ndarray, shape (L - 1,)
        Fields of the non-reference levels of i.
    tables : dict of ndarray
        Coefficients of non-reference levels for each term, with predictor i on the last axis. The
        key of a term contains its predictors other than i.
    """

    terms: list[Term]
    field: np.ndarray
    tables: dict[Term, np.ndarray]


def _regress(
    sample: Sample, n_levels: np.ndarray, i: int, engine: HighOrder, rng: np.random.Generator
) -> Regression:
    """Regress predictor `i` on products of the others, with the options of `engine`.

    `n_levels` (m,) contains the number of levels of each predictor. The regressors are the other m
    - 1 predictors, in order, and the classes are the K levels of i that occur. The weights of a
    term with d features have shape (d, K - 1). They define K - 1 links, which `contrasts` converts
    to scores of the K classes. `engine.lambda_` is a penalty on all terms, a tuple with one penalty
    for each order of products, or the rule "ebic" or "cv".
    """
    others = np.delete(np.arange(len(n_levels)), i)
    occurring_levels, y = np.unique(sample.codes[:, i], return_inverse=True)
    K = len(occurring_levels)
    levels = [int(n_levels[j]) for j in others]
    lambda_ = (
        engine.lambda_
        if not isinstance(engine.lambda_, float)
        else (engine.lambda_,) * (engine.order - 1)
    )
    problem = Problem.make(
        np.ascontiguousarray(sample.codes[:, others]), levels, y.ravel(), K, sample.weights
    )
    order = max(1, min(engine.order - 1, len(others)))
    chosen = choose(
        problem,
        order=order,
        lambda_=lambda_[:order] if isinstance(lambda_, tuple) else lambda_,
        group=engine.penalty == "group",
        screen=engine.screen,
        refit=True,
        rng=rng,
    )
    weights = chosen.weights
    intercept = chosen.intercept
    if engine.lambda_ == "ebic":
        # a point of the path has a stage for each order; the last stage has the selected products
        # of all orders ([-1:]: the last one, or none)
        candidates = {
            term for point in chosen.path for stage in point.stages[-1:] for term in stage.weights
        }
        selected = choose_stepwise(problem, order, candidates, engine.screen)
        start = {term: np.zeros((problem.size(term), K - 1)) for term in selected}
        # the first two fields of a `Refit`
        weights, intercept = refit(problem, start, intercept)[:2]
    # Convert tables of links from the zero-sum to the reference gauge, then links to log odds of
    # the levels of i. A table has an axis for each predictor of its term, followed by the K - 1
    # links; the table of () is the intercept.
    zero_sum_tables = {term: zero_sum_table(term, levels, w) for term, w in weights.items()}
    zero_sum_tables[()] = intercept[None] + zero_sum_tables.get((), 0.0)
    tables = {}
    level_contrasts = contrasts(K).T
    for term, table in reference_tables(zero_sum_tables).items():
        # the reshape drops the intercept's leading axis of length 1; the last axis of scores is for
        # levels that occur
        score = table.reshape(*table.shape[-1 - len(term) :]) @ level_contrasts
        log_odds = np.zeros((*score.shape[:-1], int(n_levels[i])))
        log_odds[..., occurring_levels] = score - score[..., :1]
        log_odds = log_odds - log_odds[..., :1]  # the reference level may not occur
        # without the reference levels along all axes
        tables[tuple(int(others[j]) for j in term)] = log_odds[(slice(1, None),) * (len(term) + 1)]
    terms = [tuple(sorted((i, *(int(others[j]) for j in term)))) for term in add_subterms(weights)]
    # the table without other predictors contains the fields
    return Regression(terms, tables.pop(()), tables)


def _merge_terms(
    chosen: Sequence[list[Term]], min_votes: int
) -> tuple[list[Term], dict[Term, int]]:
    """Return the terms selected in at least `min_votes` regressions, with sub-terms and votes.

    `chosen` contains the terms of each regression. The number of votes of a term is the number of
    regressions that contain it.
    """
    votes: dict[Term, int] = {}
    for terms in chosen:
        for term in terms:
            votes[term] = votes.get(term, 0) + 1
    elected = [term for term, count in votes.items() if count >= min_votes]
    closure = {
        sub for term in elected for k in range(2, len(term) + 1) for sub in combinations(term, k)
    }
    return sorted(closure), {term: count for term, count in votes.items() if term in closure}


def _site_weights(layout: Layout, regressions: Sequence[Regression]) -> np.ndarray:
    """Return the estimates (order, size) of all parameters from single regressions.

    Row k contains the estimates from the regression of the k-th predictor in the parameter's term,
    or nan if that regression does not contain the term.
    """
    out = np.full((max(layout.order, 2), layout.size), np.nan)
    for terms in layout.terms:
        for term in terms.tolist():
            for axis, i in enumerate(term):
                others = tuple(j for j in term if j != i)
                # its axes are the others, followed by i, as requested from `table`
                if others in regressions[i].tables:
                    layout.table(out[axis], *others, i)[...] = regressions[i].tables[others]
    return out


def _largest_magnitude(site_weights: np.ndarray) -> np.ndarray:
    """Return the entry of largest magnitude in each column of `site_weights`; 0 if all are nan."""
    weights = np.nan_to_num(site_weights)
    return np.take_along_axis(weights, np.abs(weights).argmax(axis=0)[None], axis=0)[0]


def _independent_start(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the parameters (size,) of independent predictors, with a prior count of 1.

    The fields are ``ln f/f_0``, where f are the smoothed frequencies.
    """
    theta = np.zeros(layout.size)
    theta[: layout.D] = np.concatenate([log_ratio(f) for f in frequencies(sample, layout, 1.0)])
    return theta


def _penalties(value: Any, n: int) -> str | float | tuple[float, ...]:
    """Return the validated option `lambda_`.

    The option is a rule, a single penalty, or `n` penalties for products of 1 to `n` predictors.
    """
    if isinstance(value, str):
        return choice("lambda_", value, RULES)
    if isinstance(value, Sequence | np.ndarray):
        if len(value) != n:
            raise OptionError(
                f"lambda_ has {len(value)} penalties, but terms have 1 to {n} predictors.",
                argument="lambda_",
                hint=(
                    f"Pass {n} penalties, one for each number of predictors in a term, or a "
                    "single number."
                ),
            )
        return tuple(real("lambda_", v, 0.0, open_low=True) for v in value)
    if value is None:
        raise BBLTypeError("lambda_ must be 'ebic', 'cv' or a number.", argument="lambda_")
    return real("lambda_", value, 0.0, open_low=True)
