"""Select the penalty from a path by the extended BIC (EBIC) or by cross-validation.

*Raw* weights are penalised; *refitted* weights are not. The *loss* is the weighted sum of ``-ln p``
over the rows, where p is the probability of the row's class. The path starts at the largest
penalty, and each fit starts from the previous one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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

PATH_LENGTH = 30  # number of penalties on a path
SMALLEST_SHARE = 0.02  # last penalty of a path, as a proportion of the first
GAMMA = 0.5  # gamma of the extended BIC
# a path ends if the loss falls below this proportion of the loss without terms
SATURATED_SHARE = 0.01
# if the loss of a refit in a fold exceeds the loss without terms by this proportion of the total
# loss without terms, raw weights are chosen
HOPELESS = 1.0
# a path ends after this many consecutive penalties without improvement of the EBIC or the held-out
# loss
PATIENCE = 12
NO_LOSS = np.full(2, np.nan)  # if held-out losses are not computed


@dataclass(frozen=True, eq=False)
class Point:
    """A penalty on a path, and the fits with this penalty."""

    penalty: Penalty
    stages: list[Stage]  # one stage for each order
    refit: Refit | None  # the selected terms without penalties
    ebic: float  # EBIC of the refit; nan without a refit
    # (2,): mean -ln p for raw and refitted weights; nan if not computed
    held_out_loss: np.ndarray

    @property
    def criterion(self) -> float:
        """The criterion that is minimised: the EBIC or the smaller held-out loss; nan if neither
        was computed.
        """
        # fmin ignores nan
        return float(np.fmin.reduce(self.held_out_loss)) if math.isnan(self.ebic) else self.ebic


@dataclass(frozen=True, eq=False)
class Choice:
    """The selected terms and their weights."""

    # (d, K - 1) for each term, in increasing order of terms; see `zero_sum_table` and
    # `reference_tables`
    weights: Weights
    intercept: np.ndarray  # (K - 1,)
    refitted: bool  # whether the weights are unpenalised
    loss: float  # weighted sum of -ln p over the rows
    unbounded: tuple[Term, ...]  # for refits, the terms that separate classes
    path: list[Point]  # one point for each fitted penalty
    chosen: int  # position of the chosen penalty in `path`


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
    """Select terms of up to `order` predictors that discriminate between classes, and fit their
    weights.

    Parameters
    ----------
    problem : Problem
        Rows with their classes and weights; each class should have at least one row. Constant
        predictors are never selected.
    order : int
        Maximum number of predictors in a term.
    lambda_ : "ebic", "cv", or a sequence of `order` positive numbers
        Penalties on the scale of the summed loss, one for each order; or the criterion that selects
        a common penalty for all orders from a path of 30 penalties. "ebic" minimises ``2 loss + df
        ln n + 2 gamma sum_t ln C(m, |t|)`` over the refitted terms, where gamma = 0.5, df is the
        number of weights and intercepts, and n is the sum of the row weights. "cv" minimises the
        held-out loss. A path ends early after 12 consecutive penalties without improvement.
    group : bool, default True
        Penalty on a term: ``lambda sqrt(d) ||W_t||`` if True, and otherwise lambda times the sum of
        the norms of the weights of the term's features.
    screen : {"heredity", "all"}
        Candidate pairs: pairs that contain a selected predictor, or all pairs.
    refit : "auto", True or False
        Whether to refit the weights without a penalty; with "auto", the held-out loss decides.
    nfold : int, default 5
        Number of folds for "cv" and "auto", stratified by class.
    rng : numpy.random.Generator, optional
        Generator for assigning rows to folds; required for "cv" and "auto".
    workers : int
        Number of threads for the folds. The result does not depend on it.
    progress : callable, optional
        Function called after each penalty and each fold.

    Notes
    -----
    Rows are merged and sorted by `Problem.make`, so results with weights and with repeated rows are
    bitwise identical. The global interpreter lock is released in inner loops, so several
    regressions can run in threads.
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
        # evaluate(point, last) returns a point with its criterion; see `_fit_path`. The criterion
        # is the EBIC, or the held-out losses for "cv". Given penalties without a refit do not need
        # a criterion, and the EBIC would require a refit
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
        # already computed for the EBIC
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
    """Return the penalties of a path, starting with the smallest penalty at which no term is
    selected.

    The last penalty is a fixed proportion of the first.
    """
    largest = largest_penalty(problem, group, screen)
    if largest <= 0:  # no term has a gradient, so every penalty results in the model without terms
        return [Penalty((1.0,) * order, group)]
    return [
        Penalty((float(v),) * order, group)
        for v in largest * np.geomspace(1.0, SMALLEST_SHARE, PATH_LENGTH)
    ]


def ebic(problem: Problem, terms: Sequence[Term], loss: float) -> float:
    """Return the EBIC of terms, given the summed loss `loss` of their refit; see `choose`."""
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
    """Fit the penalties of a path; each fit starts from the previous one.

    ``evaluate(point, last)`` returns a point with its criterion; `last` is the previous point, or
    None. The path ends early if the loss is nearly zero, if the penalty term of the EBIC exceeds
    the best EBIC, or after `PATIENCE` penalties without improvement.
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
    """Return the position of the smallest value of the criterion, or 0 if all are nan."""
    return int(np.argmin([point.criterion for point in points]))


def _keep_unevaluated(point: Point, last: Point | None) -> Point:
    """Return the point unchanged, without a criterion.

    `last` is not used; it is part of the signature of all `evaluate` functions.
    """
    return point


def _evaluate_ebic(problem: Problem, point: Point, last: Point | None) -> Point:
    """Return the point with the refit of its terms and the EBIC. The refit of `last` is reused if
    the terms are the same.
    """
    final = point.stages[-1]
    terms = list(final.weights)
    refit = last.refit if last is not None else None
    if refit is None or list(refit.weights) != terms:
        refit = refit_terms(problem, final.weights, final.intercept)
    return replace(point, refit=refit, ebic=ebic(problem, terms, refit.loss))


class CrossValidation:
    """Held-out losses of the penalties on a path, in their order.

    The parameters are described in `choose`.

    Attributes
    ----------
    folds : Folds
        Row weights (folds, n) in each fold: `train` for training, and `held` for validation.
    fold_losses : ndarray, shape (folds, 2)
        Summed losses of raw and refitted weights at the last penalty; inf if the loss of the refit
        exceeds its limit.
    limits : list of float
        For each fold, the largest loss of a refit (see HOPELESS); inf if there is no limit.
    refits : list of Refit or None
        The last refit of each fold; None if there is none yet.
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
        # rows without predictors, because folds depend only on weights and classes
        sample = Sample(np.empty((problem.n, 0), dtype=np.uint8), problem.weights, problem.y)
        # at least two folds, and at most as many as observations
        self.folds = stratified_folds(sample, min(nfold, max(2, int(problem.total))), rng)
        self.fold_losses = np.zeros((len(self.folds), 2))
        self.refits: list[Refit | None] = [None] * len(self.folds)
        self.limits = [math.inf] * len(self.folds)
        if refit == "auto":
            _, _, null_loss = null_slope(problem)  # for all rows, without terms
            self.limits = [
                _null_loss_of_fold(problem, train, held_out) + HOPELESS * null_loss
                for train, held_out in self._fold_weights()
            ]

    def _fold_weights(self) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Return the row weights (n,) in training and in validation for each fold."""
        return zip(self.folds.train, self.folds.validation_weights, strict=True)

    def evaluate(self, point: Point, last: Point | None = None) -> Point:
        """Return the point with the mean held-out losses (2,) of raw and refitted weights.

        The points of a path must be passed in order, because folds keep their last refits. `last`
        is not used; it is part of the signature shared with `_evaluate_ebic`. The loss of raw
        weights is nan if the option `refit` is True, and the loss of refitted weights is nan if it
        is False.
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
                limit,
                last_refit,
            )
            for (train, held_out), limit, last_refit_loss, last_refit in zip(
                self._fold_weights(), self.limits, self.fold_losses[:, 1], self.refits, strict=True
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
    limit: float,
    last_refit: Refit | None,
) -> tuple[tuple[float, float], Refit | None]:
    """Return the summed held-out losses of raw and of refitted weights in one fold, and the refit.

    Terms are selected again from the training rows. `train` and `held_out` (n,) are the row weights
    in training and in validation. Gradients of irrelevant terms increase with the square root of
    the number of rows. The penalty is therefore scaled by the square root of the proportion of
    training rows, so that about as many irrelevant terms are selected as from all rows. If the loss
    of the refit exceeds the `limit` at this penalty, or did so at a larger one (`is_hopeless`), it
    is replaced by infinity, because refits with more terms do not improve and take a long time.
    `last_refit` is reused if the terms are the same.
    """
    if not train.any():  # without training rows, the fold has no losses
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
    return (raw_loss, math.inf if loss > limit else loss), last_refit


def _null_loss_of_fold(problem: Problem, train: np.ndarray, held_out: np.ndarray) -> float:
    """Return the summed held-out loss of the model without terms, or 0 without training rows.

    `train` and `held_out` are the same as in `_losses_of_fold`.
    """
    if not train.any():
        return 0.0
    intercept, _, _ = null_slope(problem.weighted(train))
    return _loss(problem.weighted(held_out), {}, intercept)


def _loss(problem: Problem, weights: Weights, intercept: np.ndarray) -> float:
    """Return the weighted sum of ``-ln p`` over the rows, given weights and an intercept.

    The weights of a term have shape (d, K - 1), and the intercept (K - 1,).
    """
    from scipy.special import log_softmax

    products = Products(problem.codes, problem.n_levels, list(weights))
    theta = np.concatenate([*weights.values(), np.empty((0, problem.K - 1))])
    log_p = log_softmax(contrasts(problem.K) @ products.link(theta, intercept), axis=0)
    return float(-problem.weights @ log_p[problem.y, np.arange(problem.n)])
