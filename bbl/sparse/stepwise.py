"""Stepwise choice of terms by the extended BIC, one joint state of predictors at a time.

A model is a sum of indicators of joint states, ``1[x_j = a, x_k = b]``. All levels are alike: none is the reference,
and an interaction that concerns one state costs one weight, where its whole table with all sub-terms costs many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from bbl.parallel import serial_blas
from bbl.sparse.products import Problem, Term
from bbl.sparse.refit import Objective, maximise

__all__ = ["GAMMA", "choose_stepwise", "close"]

GAMMA = 1.0  # of the extended BIC: indicators of one table overlap, and there are many
FITTED = 3  # additions that are fitted at a step: those with the largest score statistics
PROJECTED = 30  # additions whose score statistics are taken given the model, of all those given nothing
COLLINEAR = 1e-6  # share of an indicator's variance that the model must leave
MAX_STEPS = 500
MIN_GAIN = 1e-6  # fall of the EBIC below which a step is rounding


class State(NamedTuple):
    """Joint levels of some predictors."""

    term: Term
    levels: tuple[int, ...]


class Model(NamedTuple):
    """Indicators of states with their weights (D + 1, q), the last the intercept's, and their EBIC."""

    states: tuple[State, ...]
    theta: np.ndarray
    objective: Objective
    ebic: float


def close(terms: Iterable[Term]) -> list[Term]:
    """Return terms with all their sub-terms, in rising order of size and predictors.

    Examples
    --------
    >>> close([(0, 3), (2,)])
    [(0,), (2,), (3,), (0, 3)]
    """
    subterms = {sub for term in terms for k in range(1, len(term) + 1) for sub in combinations(term, k)}
    return sorted(subterms, key=lambda t: (len(t), t))


def choose_stepwise(problem: Problem, order: int, parents: Iterable[Term], screen: str = "heredity") -> list[Term]:
    """Return the terms of the indicators that no single step makes better, with their sub-terms.

    A step adds or removes one indicator, or puts those of one predictor fewer in its place. The search begins without
    indicators, and takes the step with the least
    ``2 NLL + df ln n + 2 gamma sum_s ln(number of weights of as many predictors)``, gamma = 1.

    Parameters
    ----------
    problem : Problem
    order : int
        Largest number of predictors in a term.
    parents : iterable of terms
        Terms whose products with one more predictor are candidates, besides products of terms in the model.
    screen : {"heredity", "all"}
        Whether all pairs are candidates besides.
    """
    fixed = set(close(parents))
    if screen == "all":
        fixed |= {(i,) for i, L in enumerate(problem.n_levels) if L > 1}
    visited: set[frozenset[State]] = set()
    with serial_blas():
        model = _fit(problem, (), np.zeros((1, problem.K - 1)))
        for _ in range(MAX_STEPS):
            sources = {(), *(t for t in fixed.union(_terms(model)) if len(t) < order)}
            steps = [*_additions(problem, model, sources), *_removals(model), *_splits(model)]
            new = [(states, theta) for states, theta in steps if frozenset(states) not in visited]
            visited.update(frozenset(states) for states, _ in new)
            best = min((_fit(problem, *step) for step in new), key=lambda fitted: fitted.ebic, default=model)
            if best.ebic >= model.ebic - MIN_GAIN:
                break
            model = best
    return _terms(model)


def _terms(model: Model) -> list[Term]:
    return close(state.term for state in model.states)


def _cost(problem: Problem, order: int, size: int) -> float:
    """Return what an indicator of a term of so many predictors and weights adds to the EBIC."""
    n_weights = math.comb(problem.m, order) * size
    return (problem.K - 1) * math.log(problem.total) + 2.0 * GAMMA * math.log(n_weights)


def _indicators(problem: Problem, states: Sequence[State]) -> np.ndarray:
    """Return the indicators of states, shape (states, n)."""
    out = np.ones((len(states), problem.n))
    for row, state in zip(out, states, strict=True):
        for i, level in zip(*state, strict=True):
            row *= problem.codes[i] == level
    return out


def _fit(problem: Problem, states: tuple[State, ...], start: np.ndarray) -> Model:
    objective = Objective(problem, np.vstack([_indicators(problem, states), np.ones(problem.n)]))
    theta, loss = maximise(objective, start)
    costs = sum(_cost(problem, len(state.term), problem.size(state.term)) for state in states)
    return Model(states, theta, objective, 2.0 * loss + costs)


def _information(objective: Objective) -> np.ndarray:
    """Return the Hessian of two classes, and near it that of any number, in the weights of one contrast."""
    return (objective.Z * objective.curve) @ objective.Z.T + objective.ridge * np.eye(len(objective.Z))


def _additions(problem: Problem, model: Model, sources: set[Term]) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models of one state more that promise the least EBIC by their score statistics given the model."""
    objective = model.objective
    shortlist = [state for state in _shortlist(problem, objective, sources) if state not in model.states]
    new = _indicators(problem, shortlist[:PROJECTED])
    cross = (objective.Z * objective.curve) @ new.T
    variance = (new * objective.curve).sum(axis=1)
    remaining_variance = variance - (cross * np.linalg.solve(_information(objective), cross)).sum(axis=0)
    square = ((new @ objective.slope.T) ** 2).sum(axis=1)
    promise = np.divide(
        square,
        remaining_variance,
        out=np.zeros(len(remaining_variance)),
        where=remaining_variance > COLLINEAR * variance,
    )
    for k, (term, _) in enumerate(shortlist[:PROJECTED]):
        promise[k] -= _cost(problem, len(term), problem.size(term))
    start = np.insert(model.theta, len(model.states), 0.0, axis=0)
    return [((*model.states, shortlist[k]), start) for k in np.argsort(-promise, kind="stable")[:FITTED].tolist()]


def _shortlist(problem: Problem, objective: Objective, sources: set[Term]) -> list[State]:
    """Return states of a source and one more predictor, the best first by score statistics given nothing."""
    varying = [i for i, L in enumerate(problem.n_levels) if L > 1]
    singles = [State((i,), (level,)) for i in varying for level in range(problem.n_levels[i])]
    predictors = np.array([state.term[0] for state in singles])
    single_indicators = _indicators(problem, singles).astype(np.float32)
    each = np.vstack([objective.slope, objective.curve])
    best: dict[State, float] = {}
    for source in sorted(sources):
        states = [State(source, at) for at in np.ndindex(*(problem.n_levels[i] for i in source))]
        right = (_indicators(problem, states)[:, None] * each).astype(np.float32)
        sums = (single_indicators @ right.reshape(-1, problem.n).T).reshape(len(singles), len(states), len(each))
        square, curve = (sums[..., :-1] ** 2).sum(axis=2), sums[..., -1]
        promise = np.divide(square, curve, out=np.zeros(square.shape), where=curve > 0)
        size = np.array([problem.size(source) * (problem.n_levels[i] - 1) for i in predictors])
        promise -= np.array([_cost(problem, len(source) + 1, n) for n in size.tolist()])[:, None]
        promise[np.isin(predictors, source)] = -np.inf
        for flat in np.argsort(-promise, axis=None, kind="stable")[: 2 * PROJECTED].tolist():
            row, column = divmod(flat, len(states))
            if np.isfinite(promise[row, column]):
                best[_joined(states[column], singles[row])] = float(promise[row, column])
    return sorted(best, key=lambda state: (-best[state], state))


def _joined(state: State, single: State) -> State:
    """Return the state of all predictors of two states, in rising order."""
    pairs = sorted(zip(state.term + single.term, state.levels + single.levels, strict=True))
    return State(tuple(i for i, _ in pairs), tuple(level for _, level in pairs))


def _removals(model: Model) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models of one state less whose weights have the least Wald statistics."""
    variance = np.diag(np.linalg.inv(_information(model.objective)))
    wald = ((model.theta**2).sum(axis=1) / variance)[:-1]
    return [
        (model.states[:k] + model.states[k + 1 :], np.delete(model.theta, k, axis=0))
        for k in np.argsort(wald, kind="stable")[:FITTED].tolist()
    ]


def _splits(model: Model) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models with the states of one predictor fewer in place of a joint state.

    Two predictors that act alike and by themselves resemble one joint state of them, which costs half as much.
    """
    models = []
    for k, state in enumerate(model.states):
        size = len(state.term) - 1
        if size == 0:
            continue
        fewer = [State(*zip(*pairs, strict=True)) for pairs in combinations(zip(*state, strict=True), size)]
        new = [replacement for replacement in fewer if replacement not in model.states]
        theta = np.insert(np.delete(model.theta, k, axis=0), len(model.states) - 1, np.zeros((len(new), 1)), axis=0)
        models.append(((*model.states[:k], *model.states[k + 1 :], *new), theta))
    return models
