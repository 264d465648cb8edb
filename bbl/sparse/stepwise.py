"""Stepwise selection of terms by the extended BIC, one joint state of predictors at a time.

A *model* is a logistic regression on indicators of states, ``1[x_j = a, x_k = b]``; all levels are
treated equally, without a reference level. An interaction that is limited to one state requires a
single indicator, whereas the complete table of its term requires many.
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

__all__ = ["GAMMA", "add_subterms", "choose_stepwise"]

GAMMA = 1.0  # gamma of the extended BIC; large because a table has many overlapping indicators
MAX_FITS = 3  # number of the most promising additions (and removals) that are fitted at each step
# number of the best additions for which score statistics are adjusted for the model
MAX_PROJECTED = 30
# an indicator is collinear if at most this proportion of its variance is unexplained by the model
COLLINEAR_SHARE = 1e-6
MAX_STEPS = 500
MIN_GAIN = 1e-6  # smaller decreases of the EBIC are rounding errors


class State(NamedTuple):
    """A joint level of several predictors, with a level code for each predictor in `term`."""

    term: Term
    levels: tuple[int, ...]


class Model(NamedTuple):
    """Indicators of states, their weights `theta` (states + 1, q), and the EBIC.

    The intercept is the last weight. `objective` contains `Z` (states + 1, n), the indicators in
    all rows followed by a row of ones; a small `ridge`; and the `slope` (q, n) and curvature
    `curve` (n,) at the weights.
    """

    states: tuple[State, ...]
    theta: np.ndarray
    objective: Objective
    ebic: float


def add_subterms(terms: Iterable[Term]) -> list[Term]:
    """Return terms with all their sub-terms, in increasing order of size and predictors.

    Examples
    --------
    >>> add_subterms([(0, 3), (2,)])
    [(0,), (2,), (3,), (0, 3)]
    """
    subterms = {
        sub for term in terms for k in range(1, len(term) + 1) for sub in combinations(term, k)
    }
    return sorted(subterms, key=lambda t: (len(t), t))


def choose_stepwise(
    problem: Problem, order: int, parents: Iterable[Term], screen: str = "heredity"
) -> list[Term]:
    """Select indicators by a stepwise search; return their terms with all sub-terms.

    A step adds or removes an indicator, or replaces it by the indicators of the states that result
    from removing one predictor. The search starts without indicators. It always takes the step to
    the smallest EBIC, and ends when no step decreases the EBIC. The EBIC is ``2 loss + (K - 1) S ln
    n + 2 gamma sum_s ln(C(m, |s|) d_s)`` for S states s, where |s| is the number of predictors of
    s, d_s the number of features of its term, n the total row weight, and gamma = 1.

    Parameters
    ----------
    problem : Problem
    order : int
        Maximum number of predictors in a term.
    parents : iterable of terms
        Terms whose products with one more predictor are candidates, in addition to such products of
        terms in the model.
    screen : {"heredity", "all"}
        With "all", all pairs are additional candidates.
    """
    # terms: each candidate is the product of a source and one more predictor
    fixed_sources = set(add_subterms(parents))
    if screen == "all":
        fixed_sources |= {(i,) for i, L in enumerate(problem.n_levels) if L > 1}
    # models that have been fitted before were worse than a model chosen earlier, and are therefore
    # worse than the current one
    visited: set[frozenset[State]] = set()
    with serial_blas():
        model = _fit(problem, (), np.zeros((1, problem.K - 1)))
        for _ in range(MAX_STEPS):
            sources = {(), *(t for t in fixed_sources.union(_terms(model)) if len(t) < order)}
            # (states, starting weights) of the models reached by a step
            steps = [*_additions(problem, model, sources), *_removals(model), *_splits(model)]
            new_steps = [
                (states, theta) for states, theta in steps if frozenset(states) not in visited
            ]
            visited.update(frozenset(states) for states, _ in new_steps)
            best = min(
                (_fit(problem, *step) for step in new_steps),
                key=lambda fitted: fitted.ebic,
                default=model,
            )
            if best.ebic >= model.ebic - MIN_GAIN:
                break
            model = best
    return _terms(model)


def _terms(model: Model) -> list[Term]:
    """Return the terms of the model's states, with all their sub-terms."""
    return add_subterms(state.term for state in model.states)


def _cost(problem: Problem, order: int, size: int) -> float:
    """Return the EBIC penalty for one indicator of a term with `order` predictors and `size`
    features.

    The penalty is ``(K - 1) ln n + 2 gamma ln(C(m, order) size)``, where n is the sum of the
    weights; see `choose_stepwise`.
    """
    n_possible = math.comb(problem.m, order) * size  # features of all terms of this order
    return (problem.K - 1) * math.log(problem.total) + 2.0 * GAMMA * math.log(n_possible)


def _indicators(problem: Problem, states: Sequence[State]) -> np.ndarray:
    """Return the indicators of states, as an array (len(states), n)."""
    out = np.ones((len(states), problem.n))
    for row, state in zip(out, states, strict=True):
        for i, level in zip(*state, strict=True):
            row *= problem.codes[i] == level
    return out


def _fit(problem: Problem, states: tuple[State, ...], start: np.ndarray) -> Model:
    """Fit the model with the given states by maximum likelihood, starting from the weights `start`
    (states + 1, q).
    """
    objective = Objective(problem, np.vstack([_indicators(problem, states), np.ones(problem.n)]))
    theta, loss = maximise(objective, start)
    costs = sum(_cost(problem, len(state.term), problem.size(state.term)) for state in states)
    return Model(states, theta, objective, 2.0 * loss + costs)


def _information(objective: Objective) -> np.ndarray:
    """Return the Hessian with respect to the weights of one of the q linear predictors, shape
    (states + 1, states + 1).

    The Hessian is exact for K = 2, and approximate for more classes.
    """
    return (objective.Z * objective.curve) @ objective.Z.T + objective.ridge * np.eye(
        len(objective.Z)
    )


def _additions(
    problem: Problem, model: Model, sources: set[Term]
) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models with one more state and their starting weights, in decreasing order of
    adjusted score statistics.

    Candidates are states of the terms in `sources` joined with a level of one more predictor.
    """
    objective = model.objective
    shortlist = [
        state for state in _shortlist(problem, objective, sources) if state not in model.states
    ]
    candidates = _indicators(problem, shortlist[:MAX_PROJECTED])
    # weighted by curvature: covariances (states + 1, candidates) between the indicators of the
    # model and the candidates, variances of the candidates, and the part of these variances that
    # the model does not explain. The gain is the score statistic, which is the squared gradient
    # divided by the remaining variance
    covariance = (objective.Z * objective.curve) @ candidates.T
    variance = (candidates * objective.curve).sum(axis=1)
    remaining_variance = variance - (
        covariance * np.linalg.solve(_information(objective), covariance)
    ).sum(axis=0)
    squared_gradient = ((candidates @ objective.slope.T) ** 2).sum(axis=1)
    gain = np.divide(
        squared_gradient,
        remaining_variance,
        out=np.zeros(len(remaining_variance)),
        where=remaining_variance > COLLINEAR_SHARE * variance,
    )
    # the gain is now the decrease of the EBIC
    for k, (term, _) in enumerate(shortlist[:MAX_PROJECTED]):
        gain[k] -= _cost(problem, len(term), problem.size(term))
    # the new state has weight 0, before the intercept
    start = np.insert(model.theta, len(model.states), 0.0, axis=0)
    return [
        ((*model.states, shortlist[k]), start)
        for k in np.argsort(-gain, kind="stable")[:MAX_FITS].tolist()
    ]


def _shortlist(problem: Problem, objective: Objective, sources: set[Term]) -> list[State]:
    """Return states of a term in `sources` and one more predictor, in decreasing order of score
    statistic minus cost.

    The score statistic is the squared gradient for the state's indicator divided by its
    information. `_additions` takes correlations with the model's indicators into account. At most
    ``2 * MAX_PROJECTED`` states are returned for each source, twice as many as `_additions`
    requires, because some are already in the model or are found from several sources.
    """
    varying = [i for i, L in enumerate(problem.n_levels) if L > 1]
    # each level of each predictor
    singles = [State((i,), (level,)) for i in varying for level in range(problem.n_levels[i])]
    predictors = np.array([state.term[0] for state in singles])
    single_indicators = _indicators(problem, singles).astype(np.float32)
    slope_and_curve = np.vstack([objective.slope, objective.curve])
    gain_of: dict[State, float] = {}
    for source in sorted(sources):
        states = [
            State(source, levels) for levels in np.ndindex(*(problem.n_levels[i] for i in source))
        ]
        # slopes and, as the last column, curvature, summed over the rows of each joint state
        # (singles, states of the source, q + 1)
        weighted = (_indicators(problem, states)[:, None] * slope_and_curve).astype(np.float32)
        state_sums = single_indicators @ weighted.reshape(-1, problem.n).T
        state_sums = state_sums.reshape(len(singles), len(states), len(slope_and_curve))
        squared_gradient = (state_sums[..., :-1] ** 2).sum(axis=2)
        curve = state_sums[..., -1]
        gain = np.divide(
            squared_gradient, curve, out=np.zeros(squared_gradient.shape), where=curve > 0
        )
        n_features = np.array(
            [problem.size(source) * (problem.n_levels[i] - 1) for i in predictors]
        )
        gain -= np.array([_cost(problem, len(source) + 1, n) for n in n_features.tolist()])[:, None]
        # a source is not joined with its own predictors
        gain[np.isin(predictors, source)] = -np.inf
        for flat_index in np.argsort(-gain, axis=None, kind="stable")[: 2 * MAX_PROJECTED].tolist():
            row, column = divmod(flat_index, len(states))
            if np.isfinite(gain[row, column]):
                gain_of[_joint_state(states[column], singles[row])] = float(gain[row, column])
    return sorted(gain_of, key=lambda state: (-gain_of[state], state))


def _joint_state(state: State, single: State) -> State:
    """Return the joint state of the predictors of both states, in increasing order."""
    pairs = sorted(zip(state.term + single.term, state.levels + single.levels, strict=True))
    return State(tuple(i for i, _ in pairs), tuple(level for _, level in pairs))


def _removals(model: Model) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models without one of the states, and their starting weights.

    Only the states with the smallest Wald statistics are removed.

    The Wald statistic is the sum of the q squared weights of a state, each divided by its variance.
    """
    variance = np.diag(np.linalg.inv(_information(model.objective)))
    wald = ((model.theta**2).sum(axis=1) / variance)[:-1]  # without the intercept
    return [
        (model.states[:k] + model.states[k + 1 :], np.delete(model.theta, k, axis=0))
        for k in np.argsort(wald, kind="stable")[:MAX_FITS].tolist()
    ]


def _splits(model: Model) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models that replace a joint state by its states with one predictor removed, and
    their starting weights.

    The effects of two predictors with equal separate effects resemble the effect of their joint
    state, which has half the penalty. The search may therefore add the joint state first, and this
    cannot be undone by a single addition or removal.
    """
    models = []
    for k, state in enumerate(model.states):
        size = len(state.term) - 1
        if size == 0:
            continue
        # (predictor, level) pairs of the state, with one pair removed
        smaller_states = [
            State(*zip(*pairs, strict=True))
            for pairs in combinations(zip(*state, strict=True), size)
        ]
        added = [smaller for smaller in smaller_states if smaller not in model.states]
        # remove the row of the state, and add rows of zeros before the intercept
        theta = np.insert(
            np.delete(model.theta, k, axis=0),
            len(model.states) - 1,
            np.zeros((len(added), 1)),
            axis=0,
        )
        models.append(((*model.states[:k], *model.states[k + 1 :], *added), theta))
    return models
