"""Sparse high-order Boltzmann machines: terms chosen predictor by predictor, then all fitted together.

Min, Ning, Cheng, Gerstein (2014), Interpretable Sparse High-Order Boltzmann Machines, AISTATS, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bbl.checks import choice, integer, real
from bbl.engines.base import Engine
from bbl.engines.engine_fit import EngineFit, Note
from bbl.engines.highorder.joint import REFITS, Fitted, fit_jointly
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
from bbl.sparse.stepwise import choose_stepwise, close
from bbl.sparse.tables import reference_tables, zero_sum_table

__all__ = ["HighOrder"]

RULES = ("ebic", "cv")
COMBINE = ("or", "and", "max")
PENALTIES = ("group", "l1")
RIDGE = 2.0  # of terms by default, on the sum of the losses of all observations
NODES = 0.8  # share of a fit's progress that the choice of terms takes

Term = tuple[int, ...]


@dataclass(frozen=True)
class HighOrder(Engine):
    """A sparse high-order Boltzmann machine (SHBM): the method chooses the terms; the formula names the predictors.

    In each group every predictor is regressed on products of the others. Products in the regression of a predictor i
    make terms of them and i. The terms of all predictors are put together with their sub-terms (a product in the
    zero-sum gauge is a sum of products of all lower orders in the reference gauge), and all parameters are fitted at
    once.

    Parameters
    ----------
    order : int, default 3
        Most predictors in a term; an order above the number of predictors is the same as that number.
    lambda_ : {"ebic", "cv"}, float, or sequence of ``order - 1`` floats, default "ebic"
        How the terms of a regression are chosen. A number is the penalty of `bbl.shooter` on the sum of losses, one for
        products of 1, 2, ... predictors or for all; by "cv" it is the one with the least held-out loss of 5 folds. With
        "ebic" a path of such penalties, to its least extended BIC and beyond, says which products are candidates. A
        stepwise search adds and removes indicators of joint levels of them, as long as the extended BIC (gamma = 1)
        falls.
    combine : {"or", "and", "max"}, default "or"
        A term is kept that the regression of one of its predictors has, or of two at least; a regression has the
        sub-terms of its terms, too. "max" keeps those of "or" with the weight of largest magnitude that a regression
        gives them, without a fit of all together.
    refit : {"pseudo", "exact", "pcd", "cd", "mf"}, default "pseudo"
        How all parameters are fitted: pseudo-likelihood, exact likelihood (up to 2**20 states), persistent contrastive
        divergence, contrastive divergence from the rows, damped mean field.
    penalty : {"group", "l1"}, default "group"
        Whether all levels of a term enter together.
    screen : {"heredity", "all"}, default "heredity"
        Which products of two are candidates of a regression: those with a chosen predictor, or all.
    ridge : float, optional
        L2 penalty per observation of all terms in the fit of all parameters, which keeps them finite where rows are
        separated; fields have 1e-6 at most. By default 2 divided by the number of observations: weights of few rows
        are drawn towards zero, and the penalty fades as rows become more. Raise it where there are few rows for many
        terms.
    tolerance : float, default 1e-9
        Norm of the gradient at which the convex refits end.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is outside its range, naming it.

    Notes
    -----
    Predictors that are constant in a group get ``h = ln f`` with a prior count of 1, and no terms. With
    ``missing="marginal"`` the complete rows are fitted.
    """

    order: int = 3  # type: ignore[misc]  # of its terms, and so of this very engine
    lambda_: str | float | tuple[float, ...] = "ebic"
    combine: str = "or"
    refit: str = "pseudo"
    penalty: str = "group"
    screen: str = "heredity"
    ridge: float | None = None
    tolerance: float = 1e-9
    name = "shbm"
    tuned = Tuned(
        "lambda_", "lambda", r"$\lambda$", r"Penalty $\lambda$",
        tuple(10.0 ** np.arange(0.5, 3.01, 0.25)), "larger", logarithmic=True, rules=RULES,
    )  # fmt: skip
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

    @property
    def penalised(self) -> bool:
        """Whether a penalty is in force."""
        return True

    @property
    def setting(self) -> float:
        """The penalty; nan where it is chosen, or differs between orders."""
        return self.lambda_ if isinstance(self.lambda_, float) else float("nan")

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout without terms, which are to be chosen."""
        return Layout(layout.n_levels, ())

    def prepare(self, sample: Sample, layout: Layout) -> Sample:
        """Return the complete rows."""
        if sample.missing is None:
            return sample
        complete = sample.rows(~sample.missing.any(axis=1))
        if not complete.n:
            raise DataError(
                "no row of a group has all predictors known, which method='shbm' needs. Leave some predictors out, or "
                "give missing values a level of their own (missing='level')."
            )
        return complete

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the bytes of the rows' levels, their probabilities and what the regressions hold."""
        return 40.0 * n * layout.D

    def path(
        self,
        sample: Sample,
        layout: Layout,
        values: Sequence[float] | None = None,
        workers: int = 1,
        rng: np.random.Generator | None = None,
        progress: Callable | None = None,
    ) -> list[EngineFit]:
        """Choose the terms of a group and fit them, at each penalty of `values`."""
        engines = [self] if values is None else [replace(self, lambda_=float(v)) for v in values]
        rng = np.random.default_rng(0) if rng is None else rng
        report_share = None if progress is None else (lambda share: progress(share / len(engines)))
        return [engine._fit(sample, layout, workers, rng, report_share) for engine in engines]

    def _fit(
        self, sample: Sample, layout: Layout, workers: int, rng: np.random.Generator, progress: Callable | None
    ) -> EngineFit:
        varying = np.flatnonzero((sample.codes != sample.codes[:1]).any(axis=0))
        varying_sample = Sample(np.ascontiguousarray(sample.codes[:, varying]), sample.weights)
        n_levels = layout.n_levels[varying]
        streams = rng.spawn(len(varying) + 1)
        tasks = [(varying_sample, n_levels, i, self, stream) for i, stream in enumerate(streams[:-1])]
        step = None if progress is None else (lambda: progress(NODES / len(tasks)))
        nodes = run_tasks(_regress, tasks, workers, step)
        terms, votes = _united([node.terms for node in nodes], 2 if self.combine == "and" else 1)
        varying_layout = Layout(n_levels, terms)
        seen = _seen(varying_layout, nodes)
        start = _strongest(varying_layout, seen)
        start[: varying_layout.D] = np.concatenate([node.field for node in nodes] or [np.empty(0)])
        fitted = Fitted(start, float("nan"), 0.0, 0, True)
        if self.combine != "max" and varying_layout.D:
            begin = start if self.refit in ("pseudo", "exact") else _independent(varying_sample, varying_layout)
            ridge = RIDGE / varying_sample.total if self.ridge is None else self.ridge
            args = (varying_layout, varying_sample, self.refit, ridge, self.tolerance, begin, streams[-1])
            fitted = fit_jointly(*args)
        if progress is not None:
            progress(1.0 - NODES if tasks else 1.0)
        return self._embedded(sample, layout, varying, varying_layout, fitted, votes, seen)

    def _embedded(
        self,
        sample: Sample,
        layout: Layout,
        varying: np.ndarray,
        own: Layout,
        fitted: Fitted,
        votes: dict[Term, int],
        seen: np.ndarray,
    ) -> EngineFit:
        """Return the fit of the varying predictors as one of all; constant ones have fields of their frequencies."""
        full_layout = Layout(layout.n_levels, [varying[terms] for terms in own.terms])
        theta, counts = np.zeros(full_layout.size), np.zeros(full_layout.size)
        theta[: full_layout.D] = np.concatenate([log_ratio(f) for f in frequencies(sample, layout, 1.0)])
        columns = full_layout.columns(varying)
        theta[columns], theta[full_layout.D :] = fitted.theta[: own.D], fitted.theta[own.D :]
        views = np.full((len(seen), full_layout.size), np.nan)
        views[:, columns], views[:, full_layout.D :] = seen[:, : own.D], seen[:, own.D :]
        for term, count in votes.items():
            full_layout.table(counts, *varying[list(term)])[...] = count
        notes: tuple[Note, ...] = ()
        if not fitted.converged:
            detail = f"gradient norm {fitted.norm:.2g} after {fitted.n_iter} iterations"
            remedy = "raise ridge" if self.refit in ("pseudo", "exact") else "raise ridge, or take refit='pseudo'"
            notes = (Note(-1, -1, f"did not converge (refit={self.refit!r} of all predictors); {remedy}", detail),)
        return EngineFit(
            theta,
            fitted.value,
            grad_norm=np.full(layout.m, fitted.norm),
            n_iter=np.full(layout.m, fitted.n_iter),
            converged=np.full(layout.m, fitted.converged),
            notes=notes,
            layout=full_layout,
            state={"votes": counts, "nodes": views},
        )


class Node(NamedTuple):
    """The regression of one predictor: its terms with all sub-terms, its fields, and a table of each term."""

    terms: list[Term]
    field: np.ndarray
    tables: dict[Term, np.ndarray]


def _regress(sample: Sample, n_levels: np.ndarray, i: int, engine: HighOrder, rng: np.random.Generator) -> Node:
    """Regress predictor `i` on the others; tables are over non-reference levels, its own along the last axis."""
    other_predictors = np.delete(np.arange(len(n_levels)), i)
    occurring_levels, y = np.unique(
        sample.codes[:, i], return_inverse=True
    )  # levels that do not occur have no regression
    K, levels = len(occurring_levels), [int(n_levels[j]) for j in other_predictors]
    lambda_ = engine.lambda_ if not isinstance(engine.lambda_, float) else (engine.lambda_,) * (engine.order - 1)
    problem = Problem.make(
        np.ascontiguousarray(sample.codes[:, other_predictors]), levels, y.ravel(), K, sample.weights
    )
    order = max(1, min(engine.order - 1, len(other_predictors)))
    chosen = choose(
        problem,
        order=order,
        lambda_=lambda_[:order] if isinstance(lambda_, tuple) else lambda_,
        group=engine.penalty == "group",
        screen=engine.screen,
        refit=True,
        rng=rng,
    )
    weights, intercept = chosen.weights, chosen.intercept
    if engine.lambda_ == "ebic":
        candidates = {term for point in chosen.path for stage in point.stages[-1:] for term in stage.weights}
        selected = choose_stepwise(problem, order, candidates, engine.screen)
        start = {term: np.zeros((problem.size(term), K - 1)) for term in selected}
        weights, intercept = refit(problem, start, intercept)[:2]
    tables = {t: zero_sum_table(t, levels, w) for t, w in weights.items()}
    tables[()] = intercept[None] + tables.get((), 0.0)
    out, scale = {}, contrasts(K).T
    for term, table in reference_tables(tables).items():
        score = table.reshape(*table.shape[-1 - len(term) :]) @ scale
        log_odds = np.zeros((*score.shape[:-1], int(n_levels[i])))
        log_odds[..., occurring_levels] = score - score[..., :1]
        log_odds = log_odds - log_odds[..., :1]  # the reference may be a level that does not occur
        out[tuple(int(other_predictors[j]) for j in term)] = log_odds[(slice(1, None),) * (len(term) + 1)]
    terms = [tuple(sorted((i, *(int(other_predictors[j]) for j in term)))) for term in close(weights)]
    return Node(terms, out.pop(()), out)


def _united(chosen: Sequence[list[Term]], least: int) -> tuple[list[Term], dict[Term, int]]:
    """Return the terms that `least` predictors ask for, with their sub-terms, and how many ask for each."""
    votes: dict[Term, int] = {}
    for terms in chosen:
        for term in terms:
            votes[term] = votes.get(term, 0) + 1
    voted_terms = [term for term, count in votes.items() if count >= least]
    closed = {sub for term in voted_terms for k in range(2, len(term) + 1) for sub in combinations(term, k)}
    return sorted(closed), {term: count for term, count in votes.items() if term in closed}


def _seen(layout: Layout, nodes: Sequence[Node]) -> np.ndarray:
    """Return what the first, second, ... member of its term says of each parameter (order, size); nan for nothing."""
    out = np.full((max(layout.order, 2), layout.size), np.nan)
    for terms in layout.terms:
        for term in terms.tolist():
            for axis, i in enumerate(term):
                other_members = tuple(j for j in term if j != i)
                if other_members in nodes[i].tables:
                    layout.table(out[axis], *other_members, i)[...] = nodes[i].tables[other_members]
    return out


def _strongest(layout: Layout, seen: np.ndarray) -> np.ndarray:
    """Return of each parameter the value of largest magnitude that a predictor gives it; 0 where none does."""
    weights = np.nan_to_num(seen)
    return np.take_along_axis(weights, np.abs(weights).argmax(axis=0)[None], axis=0)[0]


def _independent(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the parameters of independent predictors."""
    theta = np.zeros(layout.size)
    theta[: layout.D] = np.concatenate([log_ratio(f) for f in frequencies(sample, layout, 1.0)])
    return theta


def _penalties(value: Any, n: int) -> str | float | tuple[float, ...]:
    """Return a rule, one penalty, or one for products of each order, after checking them."""
    if isinstance(value, str):
        return choice("lambda_", value, RULES)
    if isinstance(value, Sequence | np.ndarray):
        if len(value) != n:
            raise OptionError(
                f"lambda_ holds {len(value)} penalties; give {n}, for products of 1 to {n} predictors, or one number.",
                argument="lambda_",
            )
        return tuple(real("lambda_", v, 0.0, open_low=True) for v in value)
    if value is None:
        raise BBLTypeError("lambda_ must be 'ebic', 'cv' or a number.", argument="lambda_")
    return real("lambda_", value, 0.0, open_low=True)
