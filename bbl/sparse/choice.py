"""Choice of the penalty from a path, by the extended BIC or cross-validation, and of raw or
refitted weights: `choose`.

*Term*: a product of predictors, a tuple of their numbers in rising order, with d features (see
`products`) and weights (d, K - 1) for K classes; its *order* is the number of predictors. *Path*:
falling penalties, each fitted from the one before. *Stage*: a fit with terms up to some order (see
`grow`): their `weights` by term, `intercept` (K - 1,) and `loss`. *Raw* weights are penalised,
*refitted* weights are not. EBIC: extended BIC. NLL, the *loss*: the weighted sum over rows of ``-ln
p`` of their class. A `Problem` has n rows of m predictors with classes `y` and `weights`, each
(n,), whose sum is `total`; its ``size(term)`` is d. A `Penalty` has one factor for each order,
`lambdas`, and `group`, whether it is on the norms of terms rather than of features. `run_tasks`
calls a function in threads, or by the user's joblib backend. `null_slope` returns intercept (K -
1,), slope, and loss without terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bbl.parallel import run_tasks, serial_blas
from bbl.rows.folds import stratified_folds
from bbl.rows.sample import Sample
from bbl.sparse.orders import grow, largest_penalty
from bbl.sparse.products import Problem, Products, Term, contrasts
from bbl.sparse.refit import Refit
from bbl.sparse.refit import refit as refit_terms
from bbl.sparse.workingset import Penalty, Stage, Weights, null_slope

__all__ = ["Choice", "Point", "choose", "ebic"]

PATH_LENGTH = 30  # penalties of a path
SMALLEST_SHARE = 0.02  # the last penalty of a path, as a share of the first
GAMMA = 0.5  # of the extended BIC
SATURATED_SHARE = 0.01  # a path ends when the loss falls below this share of the loss without terms
# a refit that loses so much more in one fold than no terms do, as a share of the loss of all rows
# without terms, is not compared further: raw weights win
HOPELESS = 1.0
# a path ends after so many penalties in a row without a better EBIC, or a smaller held-out loss
PATIENCE = 12
NO_LOSS = np.full(2, np.nan)  # held-out losses that were not computed


@dataclass(frozen=True, eq=False)
class Point:
    """One penalty of a path and its fits."""

    penalty: Penalty
    stages: list[Stage]  # one for each order
    refit: Refit | None  # the chosen terms without their penalties
    ebic: float  # of the refit; nan without one
    # (2,): mean -ln p of raw and of refitted weights; nan where it was not computed
    held_out_loss: np.ndarray

    @property
    def criterion(self) -> float:
        """The criterion, the less the better: the EBIC or, without one, the smaller held-out loss;
        nan without both.
        """
        # fmin passes over nan
        return float(np.fmin.reduce(self.held_out_loss)) if math.isnan(self.ebic) else self.ebic


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen terms and their weights."""

    # (d, K - 1) of each term, in rising order of terms; see `zero_sum_table` and `reference_tables`
    weights: Weights
    intercept: np.ndarray  # (K - 1,)
    refitted: bool  # whether the weights are without penalty
    loss: float  # weighted sum of -ln p of the rows
    unbounded: tuple[Term, ...]  # terms that separate classes, if refitted
    path: list[Point]  # one for each penalty that was fitted
    chosen: int  # index of the chosen penalty in `path`


def choose(
    problem: Problem,
    *,
    order: int,
    lambda_: str | Sequence[float] = "ebic",
    group: bool = True,
    screen: str = "heredity",
    refit: str | bool = "auto",
    nfold: int = 5,
    rng: np.random.Generator | None = None,
    workers: int = 1,
    progress: Callable | None = None,
) -> Choice:
    """Choose terms of up to `order` predictors that tell the classes apart, and their weights.

    Parameters
    ----------
    problem : Problem
        Rows, their classes and weights; each class should have a row. A predictor of one level is
        never chosen.
    order : int
        Largest number of predictors in a term.
    lambda_ : "ebic", "cv", or a sequence of `order` positive numbers
        Penalties on the sum of losses, one per order; or the criterion that chooses one penalty for
        all orders from a path of 30. "ebic": the least ``2 NLL + df ln n + 2 gamma sum_t ln C(m,
        |t|)`` of the refitted terms, gamma = 0.5, df the number of weights and intercepts, n the
        sum of the rows' weights (with the class, a term has |t| + 1 variables of a Boltzmann
        machine). "cv": the least held-out loss. A path ends early after 12 penalties in a row that
        are no better.
    group : bool, default True
        Whether the penalty is ``lambda sqrt(d) ||W_t||`` for each term, else lambda times the sum
        of the norms of its features' weights.
    screen : {"heredity", "all"}
        Candidate pairs: those with a chosen predictor, or all.
    refit : "auto", True or False
        Whether the weights are refitted without penalty; "auto" takes the smaller held-out loss.
    nfold : int, default 5
        Folds for "cv" and "auto", stratified by class.
    rng : numpy.random.Generator, optional
        Assigns rows to folds; needed for "cv" and "auto".
    workers : int
        Threads for the folds. The result does not depend on their number.
    progress : callable, optional
        Called after every penalty and every fold.

    Notes
    -----
    `Problem.make` merges and sorts rows, so that weights and repeated rows give the same result to
    the last bit. The global interpreter lock is released in the inner loops: many regressions can
    run side by side in threads.
    """
    with serial_blas():
        if isinstance(lambda_, str):
            penalties = _path_penalties(problem, order, group, screen)
        else:
            penalties = [Penalty(tuple(float(v) for v in lambda_), group)]
        validation = None
        if lambda_ == "cv" or refit == "auto":
            assert rng is not None  # noqa: S101  # as the docstring says
            validation = CrossValidation(problem, screen, refit, nfold, rng, workers, progress)
        # evaluate(point, last) returns a point of the path with its criterion, see `_fit_path`: the
        # EBIC, or held-out losses for "cv"; none for given penalties without a refit, as the EBIC
        # would cost a refit that nobody needs
        evaluate: Callable[[Point, Point | None], Point] = partial(_evaluate_ebic, problem)
        if lambda_ == "cv":
            assert validation is not None  # noqa: S101
            evaluate = validation.evaluate
        elif lambda_ != "ebic" and refit is False:
            evaluate = _keep_unevaluated
        path_points = _fit_path(problem, penalties, screen, evaluate, progress)
        best = _best_index(path_points)
        # refit="auto" needs the held-out losses of the chosen penalty
        if lambda_ != "cv" and validation is not None:
            path_points[best] = validation.evaluate(path_points[best])
    point = path_points[best]
    raw_loss, refit_loss = point.held_out_loss
    is_refitted = bool(refit_loss < raw_loss) if refit == "auto" else bool(refit)
    final = point.stages[-1]
    if is_refitted:
        # the EBIC has fitted it already
        fit = point.refit or refit_terms(problem, final.weights, final.intercept)
        return Choice(
            fit.weights,
            fit.intercept,
            refitted=True,
            loss=fit.loss,
            unbounded=fit.unbounded,
            path=path_points,
            chosen=best,
        )
    return Choice(
        final.weights,
        final.intercept,
        refitted=False,
        loss=final.loss,
        unbounded=(),
        path=path_points,
        chosen=best,
    )


def _path_penalties(problem: Problem, order: int, group: bool, screen: str) -> list[Penalty]:
    """Return the penalties of a path, from the smallest at which no term is chosen down to a share
    of it.
    """
    largest = largest_penalty(problem, group, screen)
    if largest <= 0:  # no term has a gradient: any penalty gives the model without terms
        return [Penalty((1.0,) * order, group)]
    return [
        Penalty((float(v),) * order, group)
        for v in largest * np.geomspace(1.0, SMALLEST_SHARE, PATH_LENGTH)
    ]


def ebic(problem: Problem, terms: Sequence[Term], loss: float) -> float:
    """Return the extended BIC of terms whose refit has the sum of losses `loss`; see `choose` for
    the formula.
    """
    q = problem.K - 1
    df = q * (1 + sum(problem.size(t) for t in terms))
    search_space = sum(math.log(math.comb(problem.m, len(t))) for t in terms)
    return 2.0 * loss + df * math.log(problem.total) + 2.0 * GAMMA * search_space


def _fit_path(
    problem: Problem,
    penalties: Sequence[Penalty],
    screen: str,
    evaluate: Callable[[Point, Point | None], Point],
    progress: Callable | None,
) -> list[Point]:
    """Fit a path of penalties, each from the one before.

    ``evaluate(point, last)`` returns a point with its criterion; `last` is the point before, None
    for the first. The path ends early when the loss is nearly zero, when the EBIC of the chosen
    terms would exceed the least one even if they had no loss, or after `PATIENCE` penalties that
    are no better.
    """
    points: list[Point] = []
    _, _, null_loss = null_slope(problem)  # the loss without terms
    least_loss = SATURATED_SHARE * null_loss
    for penalty in penalties:
        last = points[-1] if points else None
        stages = grow(problem, penalty, screen, last.stages if last is not None else None)
        points.append(
            evaluate(Point(penalty, stages, refit=None, ebic=math.nan, held_out_loss=NO_LOSS), last)
        )
        if progress is not None:
            progress()
        # final: the stage of the highest order
        best = _best_index(points)
        final = stages[-1]
        # False without an EBIC
        is_beaten = ebic(problem, list(final.weights), 0.0) > points[best].ebic
        if final.loss < least_loss or is_beaten or len(points) - 1 - best >= PATIENCE:
            break
    return points


def _best_index(points: Sequence[Point]) -> int:
    """Return the index of the point with the least criterion; 0 if points have no criterion."""
    return int(np.argmin([point.criterion for point in points]))


def _keep_unevaluated(point: Point, last: Point | None) -> Point:
    """Return the point as it is, without a criterion; `last` is there for the signature that all
    judges share.
    """
    return point


def _evaluate_ebic(problem: Problem, point: Point, last: Point | None) -> Point:
    """Return the point with a refit of its terms, taken from the point `last` if that has the same
    terms, and EBIC.
    """
    final = point.stages[-1]
    terms = list(final.weights)
    refit = last.refit if last is not None else None
    if refit is None or list(refit.weights) != terms:
        refit = refit_terms(problem, final.weights, final.intercept)
    return replace(point, refit=refit, ebic=ebic(problem, terms, refit.loss))


class CrossValidation:
    """Held-out losses of the penalties of a path, one after the other; parameters are as in
    `choose`.

    Attributes
    ----------
    folds : Folds
        Weights (folds, n) of the rows in each fold: `train` in training, `held` in validation.
    fold_losses : ndarray, shape (folds, 2)
        Those of the last penalty: summed losses of raw and of refitted weights; inf of a refit that
        is hopeless.
    refits : list of Refit or None
        The last refit of each fold; None if it was not computed.
    """

    def __init__(
        self,
        problem: Problem,
        screen: str,
        refit: str | bool,
        nfold: int,
        rng: np.random.Generator,
        workers: int,
        progress: Callable | None,
    ):
        self.problem = problem
        self.screen = screen
        self.refit = refit
        self.workers = workers
        self.progress = progress
        # rows without predictors: folds depend on weights and classes alone
        sample = Sample(np.empty((problem.n, 0), dtype=np.uint8), problem.weights, problem.y)
        # no more folds than observations, and two at least
        self.folds = stratified_folds(sample, min(nfold, max(2, int(problem.total))), rng)
        self.fold_losses = np.zeros((len(self.folds), 2))
        self.refits: list[Refit | None] = [None] * len(self.folds)

    def evaluate(self, point: Point, last: Point | None = None) -> Point:
        """Return the point with the mean losses of held-out rows, (2,) of raw and of refitted
        weights.

        Points of a path are given in order, as folds keep their last refits. `last` is not used;
        `_evaluate_ebic` needs it. The loss of raw weights is nan if the option `refit` is True,
        that of refitted weights if it is False.
        """
        tasks = [
            (
                self.problem,
                point,
                self.screen,
                self.refit,
                train,
                held_out,
                math.isinf(last_refit_loss),
                last_refit,
            )
            for train, held_out, last_refit_loss, last_refit in zip(
                self.folds.train,
                self.folds.validation_weights,
                self.fold_losses[:, 1],
                self.refits,
                strict=True,
            )
        ]
        results = run_tasks(_losses_of_fold, tasks, self.workers, self.progress)
        self.fold_losses = np.array([losses for losses, _ in results])
        self.refits = [refit for _, refit in results]
        return replace(point, held_out_loss=self.fold_losses.sum(axis=0) / self.problem.total)


def _losses_of_fold(
    problem: Problem,
    point: Point,
    screen: str,
    refit: str | bool,
    train: np.ndarray,
    held_out: np.ndarray,
    is_hopeless: bool,
    last_refit: Refit | None,
) -> tuple[tuple[float, float], Refit | None]:
    """Return the summed held-out losses of raw and of refitted weights in one fold, and the refit.

    Terms are chosen anew from the training rows. `train` and `held_out` (n,) are the weights of the
    rows in the two parts. The penalty is scaled by the root of the share of training rows, because
    gradients of irrelevant terms grow with the root of the number of rows: about as many irrelevant
    terms are chosen as from all rows. If the refit is hopeless (see HOPELESS) at this penalty, or
    `is_hopeless` says that it was at a larger one, its loss is infinite: with more terms, refits
    are no better, and take long. `last_refit` is returned again if it has the same terms.
    """
    if not train.any():  # no rows to fit to: the fold adds nothing
        return (0.0, 0.0), None
    training = problem.weighted(train)
    validation = problem.weighted(held_out)
    penalty = point.penalty.scaled(math.sqrt(training.total / problem.total))
    final = grow(training, penalty, screen, point.stages)[-1]
    raw_loss = math.nan if refit is True else _loss(validation, final.weights, final.intercept)
    if refit is False or is_hopeless:
        return (raw_loss, math.nan if refit is False else math.inf), None
    if last_refit is None or list(last_refit.weights) != list(final.weights):
        last_refit = refit_terms(training, final.weights, final.intercept)
    loss = _loss(validation, last_refit.weights, last_refit.intercept)
    if refit == "auto":
        null_intercept, _, _ = null_slope(training)
        loss_without_terms = _loss(validation, {}, null_intercept)  # of the fold's validation rows
        _, _, null_loss = null_slope(problem)  # of all rows, without terms
        loss = math.inf if loss > loss_without_terms + HOPELESS * null_loss else loss
    return (raw_loss, loss), last_refit


def _loss(problem: Problem, weights: Weights, intercept: np.ndarray) -> float:
    """Return the weighted sum of ``-ln p`` of the rows, by weights (d, K - 1) of terms and an
    intercept (K - 1,).
    """
    from scipy.special import log_softmax

    products = Products(problem.codes, problem.n_levels, list(weights))
    theta = np.concatenate([*weights.values(), np.empty((0, problem.K - 1))])
    log_p = log_softmax(contrasts(problem.K) @ products.link(theta, intercept), axis=0)
    return float(-problem.weights @ log_p[problem.y, np.arange(problem.n)])
