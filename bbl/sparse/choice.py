"""The choice of the penalty: a path of penalties, the extended BIC, cross-validation; raw or refitted weights.

This is where other rooms enter: `choose`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bbl.parallel import run_tasks, serial_blas
from bbl.rows.folds import stratified_folds
from bbl.rows.sample import Sample
from bbl.sparse.orders import grow, largest_penalty
from bbl.sparse.products import Problem, Products, Term, contrasts
from bbl.sparse.refit import Refit, refit
from bbl.sparse.workingset import Penalty, Stage, Weights, null_slope

__all__ = ["Choice", "Point", "choose", "ebic"]

GRID = 30  # penalties of a path
SMALLEST = 0.02  # the last penalty of a path, as a share of the first
GAMMA = 0.5
SATURATED = 0.01  # share of the loss without terms below which a path ends
PATIENCE = 12  # penalties in a row without a better EBIC after which it does


@dataclass(frozen=True, eq=False)
class Point:
    """One penalty of a path.

    Attributes
    ----------
    penalty : Penalty
    stages : list of Stage
        One for each order.
    refit : Refit or None
        The chosen terms without their penalties.
    ebic : float
    held : ndarray, shape (2,)
        Mean held-out ``-ln p`` of raw and of refitted weights; nan where it was not asked for.
    """

    penalty: Penalty
    stages: list[Stage]
    refit: Refit | None
    ebic: float
    held: np.ndarray


@dataclass(frozen=True, eq=False)
class Choice:
    """The terms that are chosen.

    Attributes
    ----------
    weights : dict of term to ndarray, shape (d, K - 1)
        Rising tuples of predictors, in rising order, with the weights of their features (`bbl.sparse.products`):
        `zero_sum_table` and `reference_tables` make tables over levels of them, and ``table @ contrasts(K).T`` the
        scores of the classes.
    intercept : ndarray, shape (K - 1,)
    refitted : bool
        Whether the weights are without penalty.
    loss : float
        Weighted sum of ``-ln p`` of the rows.
    unbounded : tuple of terms
        Those that separate classes, if refitted.
    path : list of Point
        One for each penalty that was tried.
    chosen : int
        The one that was taken.
    """

    weights: Weights
    intercept: np.ndarray
    refitted: bool
    loss: float
    unbounded: tuple[Term, ...]
    path: list[Point]
    chosen: int


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
    """Choose the terms of up to `order` predictors that tell the classes apart, and their weights.

    Parameters
    ----------
    problem : Problem
        Rows, their classes and weights; each class should have a row. A predictor of one level is never chosen.
    order : int
        Largest number of predictors in a term.
    lambda_ : "ebic", "cv", or a sequence of `order` positive numbers
        Penalties on the sum of losses, or how one penalty for all orders is chosen from a path of 30: by the least
        ``2 NLL + df ln n + 2 gamma sum_t ln C(m, |t|)`` of the refitted terms, gamma = 0.5 (a term of a Boltzmann
        machine that has |t| predictors beside the one regressed), or by the least held-out loss.
    group : bool, default True
        The group penalty ``lambda sqrt(d) ||W_t||``, or one for each feature.
    screen : {"heredity", "all"}
        Which pairs are candidates: those with a chosen predictor, or all.
    refit : "auto", True or False
        Whether weights are without penalty; "auto" for whichever has the smaller held-out loss.
    nfold : int, default 5
        Folds for "cv" and "auto", stratified by class.
    rng : numpy.random.Generator, optional
        For the folds; needed if there are any.
    workers : int
        Threads for the folds. The result does not depend on it.
    progress : callable, optional
        Called for every penalty and every fold that is done.

    Returns
    -------
    Choice

    Notes
    -----
    `Problem.make` merges and sorts rows, so that weights are the same as repeated rows to the last bit. The global
    interpreter lock is released in the inner loops: many regressions run side by side in threads.
    """
    with serial_blas():
        if isinstance(lambda_, str):
            penalties = _grid(problem, order, group, screen)
        else:
            penalties = [Penalty(tuple(float(v) for v in lambda_), group)]
        needed = lambda_ == "ebic" or refit is not False
        path_points = _walk(problem, penalties, screen, needed, lambda_ == "ebic", progress)
        folded = range(len(path_points))
        if lambda_ == "ebic":
            best = int(np.argmin([p.ebic for p in path_points]))
            folded = range(best, best + 1)
        if lambda_ == "cv" or refit == "auto":
            assert rng is not None  # noqa: S101  # as the docstring says
            fold_points = [path_points[k] for k in folded]
            held = _held_out(problem, fold_points, screen, refit, (nfold, rng, workers, progress))
            for k, loss in zip(folded, held, strict=True):
                path_points[k] = Point(
                    path_points[k].penalty, path_points[k].stages, path_points[k].refit, path_points[k].ebic, loss
                )
        if lambda_ != "ebic":
            best = int(np.argmin([_least(p.held) for p in path_points])) if lambda_ == "cv" else 0
    point = path_points[best]
    refitted = bool(point.held[1] < point.held[0]) if refit == "auto" else bool(refit)
    if refitted and point.refit is not None:
        chosen_weights: Any = point.refit
        return Choice(
            chosen_weights.weights,
            chosen_weights.intercept,
            True,
            chosen_weights.loss,
            chosen_weights.unbounded,
            path_points,
            best,
        )
    if not point.stages:
        intercept, _, loss = null_slope(problem)
        return Choice({}, intercept, False, loss, (), path_points, best)
    last = point.stages[-1]
    return Choice(last.weights, last.intercept, False, last.loss, (), path_points, best)


def _least(held: np.ndarray) -> float:
    return float(np.nanmin(held))


def _grid(problem: Problem, order: int, group: bool, screen: str) -> list[Penalty]:
    """Return the penalties of a path, largest first: from where no term is chosen."""
    top = largest_penalty(problem, group, screen)
    if top <= 0:  # nothing to choose from
        return [Penalty((1.0,) * order, group)]
    return [Penalty((float(v),) * order, group) for v in top * np.geomspace(1.0, SMALLEST, GRID)]


def ebic(problem: Problem, terms: Sequence[Term], loss: float) -> float:
    """Return the extended BIC of terms with the loss that they leave."""
    q = problem.K - 1
    df = q * (1 + sum(problem.size(t) for t in terms))
    space = sum(math.log(math.comb(problem.m, len(t))) for t in terms)
    return 2.0 * loss + df * math.log(problem.total) + 2.0 * GAMMA * space


def _walk(
    problem: Problem,
    penalties: Sequence[Penalty],
    screen: str,
    refitted: bool,
    by_ebic: bool,
    progress: Callable | None,
    start: Sequence[Point] | None = None,
) -> list[Point]:
    """Fit a path of penalties, each from the one before; it ends where a better one is not to be expected."""
    out: list[Point] = []
    unknown, alone = np.full(2, np.nan), null_slope(problem)[2]
    for k, penalty in enumerate(penalties):
        hint = start[k].stages if start else out[-1].stages if out else None
        stages = grow(problem, penalty, screen, hint)
        last = stages[-1]
        terms = list(last.weights)
        again, value = None, math.nan
        if refitted:
            current_refit = out[-1].refit if out else None
            if current_refit is None or list(current_refit.weights) != terms:
                current_refit = refit(problem, last.weights, last.intercept)
            again = current_refit
            value = ebic(problem, terms, again.loss)
        out.append(Point(penalty, stages, again, value, unknown))
        if progress is not None:
            progress()
        if start is None and len(penalties) > 1:
            best = int(np.argmin([p.ebic for p in out])) if by_ebic else k
            beaten = by_ebic and ebic(problem, terms, 0.0) > out[best].ebic
            if last.loss < SATURATED * alone or beaten or k - best >= PATIENCE:
                break
    return out


def _held_out(problem: Problem, points: list[Point], screen: str, refit: str | bool, common: tuple) -> np.ndarray:
    """Return the mean held-out loss of raw and refitted weights at each point, shape (points, 2)."""
    nfold, rng, workers, progress = common
    sample = Sample(np.empty((problem.n, 0), dtype=np.uint8), problem.weights, problem.y)
    folds = stratified_folds(sample, min(nfold, max(2, int(problem.total))), rng)
    tasks = [(problem, points, screen, refit, folds.train[f], folds.held[f]) for f in range(len(folds))]
    fold_losses = run_tasks(_one_fold, tasks, workers, progress)
    return np.sum(fold_losses, axis=0) / problem.total


def _one_fold(
    problem: Problem, points: list[Point], screen: str, refit: str | bool, train: np.ndarray, held: np.ndarray
) -> np.ndarray:
    """Return the held-out loss (points, 2) of one fold, in which terms are chosen anew.

    Penalties go by the square root of the number of observations, as the gradients of terms that mean nothing do: as
    many of these are then chosen as of all rows.
    """
    out = np.full((len(points), 2), np.nan)
    if not train.any():
        return np.zeros_like(out)
    training, validation = problem.weighted(train), problem.weighted(held)
    share = math.sqrt(training.total / problem.total)
    walked = _walk(training, [p.penalty.scaled(share) for p in points], screen, refit is not False, False, None, points)
    for k, point in enumerate(walked):
        last = point.stages[-1]
        if refit is not True:
            out[k, 0] = _loss(validation, last.weights, last.intercept)
        if point.refit is not None:
            out[k, 1] = _loss(validation, point.refit.weights, point.refit.intercept)
    return out


def _loss(problem: Problem, weights: Weights, intercept: np.ndarray) -> float:
    """Return the weighted sum of ``-ln p`` of rows under given weights."""
    from scipy.special import log_softmax

    products = Products(problem.codes, problem.n_levels, list(weights))
    theta = np.concatenate([*weights.values(), np.empty((0, problem.K - 1))])
    log_p = log_softmax(contrasts(problem.K) @ products.link(theta, intercept), axis=0)
    return float(-problem.weights @ log_p[problem.y, np.arange(problem.n)])
