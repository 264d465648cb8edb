"""Stepwise choice of terms by the extended BIC, one joint state of predictors at a time.

*Term*: a product of predictors, a tuple of their numbers in rising order. *State*: joint levels of
the predictors of a term. A *model* is a logistic regression on an intercept and the indicators of
some states, ``1[x_j = a, x_k = b]``, with q = K - 1 weights each for K classes. All levels are
treated alike, without a reference. An interaction in a single state costs one indicator, where the
whole table of the term and its sub-terms costs many. *Score statistic* of a new indicator: the
squared gradient by its weight at zero over the information, about the fall of twice the loss if it
is added. EBIC: extended BIC. *Loss*: the weighted sum of ``-ln p`` over the n rows. *Slope* (q, n)
and *curvature* (n,): first derivative of the loss by the q linear predictors of each row, and (a
bound of) the second. A `Problem` has m predictors: `codes` (m, n) are the rows' level codes,
`n_levels` (m,) the numbers of levels, `total` the sum of weights.
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

GAMMA = 1.0  # of the extended BIC: indicators of one table overlap, and there are many
MAX_FITS = 3  # additions (and removals) that are fitted at a step, those that promise most
# additions whose score statistics are adjusted for the model, the best by unadjusted ones
MAX_PROJECTED = 30
# an indicator is collinear if the model leaves at most this share of its variance
COLLINEAR_SHARE = 1e-6
MAX_STEPS = 500
MIN_GAIN = 1e-6  # smaller falls of the EBIC are rounding errors


class State(NamedTuple):
    """Joint levels of some predictors: a level code for each predictor of `term`."""

    term: Term
    levels: tuple[int, ...]


class Model(NamedTuple):
    """Indicators of states with their weights `theta` (states + 1, q), the last the intercept's,
    and their EBIC.

    `objective` holds the indicators of the rows and a last row of ones, `Z` (states + 1, n), a
    small `ridge`, and the `slope` (q, n) and curvature `curve` (n,) at the weights.
    """

    states: tuple[State, ...]
    theta: np.ndarray
    objective: Objective
    ebic: float


def add_subterms(terms: Iterable[Term]) -> list[Term]:
    """Return terms with all their sub-terms, in rising order of size and predictors.

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
    """Return the terms, with their sub-terms, of a set of indicators that no single step improves.

    A step adds or removes one indicator, or replaces one by the indicators of its states with one
    predictor less. The search starts without indicators, and takes the step to the least EBIC. With
    S states s, of |s| predictors whose term has d_s features, in rows of weight n it is ``2 loss +
    (K - 1) S ln n + 2 gamma sum_s ln(C(m, |s|) d_s)``, gamma = 1.

    Parameters
    ----------
    problem : Problem
    order : int
        Largest number of predictors in a term.
    parents : iterable of terms
        Their products with one more predictor are candidates, besides such products of terms in the
        model.
    screen : {"heredity", "all"}
        With "all", all pairs are candidates too.
    """
    # terms: a candidate is a source times one more predictor
    fixed_sources = set(add_subterms(parents))
    if screen == "all":
        fixed_sources |= {(i,) for i, L in enumerate(problem.n_levels) if L > 1}
    # models that were fitted: they were no better than the model chosen then, so than the present
    # one
    visited: set[frozenset[State]] = set()
    with serial_blas():
        model = _fit(problem, (), np.zeros((1, problem.K - 1)))
        for _ in range(MAX_STEPS):
            sources = {(), *(t for t in fixed_sources.union(_terms(model)) if len(t) < order)}
            # (states, starting weights) of the models that a step leads to
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
    """Return the terms of the model's states, with their sub-terms."""
    return add_subterms(state.term for state in model.states)


def _cost(problem: Problem, order: int, size: int) -> float:
    """Return the EBIC penalty of one indicator of a term with `order` predictors and `size`
    features.

    It is ``(K - 1) ln n + 2 gamma ln(C(m, order) size)``, n the sum of the weights: see
    `choose_stepwise`.
    """
    n_possible = math.comb(problem.m, order) * size  # features of all terms with as many predictors
    return (problem.K - 1) * math.log(problem.total) + 2.0 * GAMMA * math.log(n_possible)


def _indicators(problem: Problem, states: Sequence[State]) -> np.ndarray:
    """Return the indicators of states, shape (len(states), n)."""
    out = np.ones((len(states), problem.n))
    for row, state in zip(out, states, strict=True):
        for i, level in zip(*state, strict=True):
            row *= problem.codes[i] == level
    return out


def _fit(problem: Problem, states: tuple[State, ...], start: np.ndarray) -> Model:
    """Fit the model of some states by maximum likelihood, from weights `start` (states + 1, q)."""
    objective = Objective(problem, np.vstack([_indicators(problem, states), np.ones(problem.n)]))
    theta, loss = maximise(objective, start)
    costs = sum(_cost(problem, len(state.term), problem.size(state.term)) for state in states)
    return Model(states, theta, objective, 2.0 * loss + costs)


def _information(objective: Objective) -> np.ndarray:
    """Return the Hessian (states + 1, states + 1) by the weights of one of the q linear predictors
    of classes.

    It is exact for K = 2, approximate for more classes.
    """
    return (objective.Z * objective.curve) @ objective.Z.T + objective.ridge * np.eye(
        len(objective.Z)
    )


def _additions(
    problem: Problem, model: Model, sources: set[Term]
) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return models with one state more, best first by score statistics given the model, and their
    starting weights.

    `sources` are the terms whose states, joined with a level of one more predictor, are candidates.
    """
    objective = model.objective
    shortlist = [
        state for state in _shortlist(problem, objective, sources) if state not in model.states
    ]
    candidates = _indicators(problem, shortlist[:MAX_PROJECTED])
    # with the curvature as weights: covariances (states + 1, candidates) of the model's indicators
    # with the candidates, variances of the candidates, and what the model's indicators leave of
    # these; the gain is the score statistic, the squared gradient over the remaining variance
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
    for k, (term, _) in enumerate(shortlist[:MAX_PROJECTED]):  # gain is then the fall of the EBIC
        gain[k] -= _cost(problem, len(term), problem.size(term))
    # the new state has weight 0, before the intercept
    start = np.insert(model.theta, len(model.states), 0.0, axis=0)
    return [
        ((*model.states, shortlist[k]), start)
        for k in np.argsort(-gain, kind="stable")[:MAX_FITS].tolist()
    ]


def _shortlist(problem: Problem, objective: Objective, sources: set[Term]) -> list[State]:
    """Return states of a term in `sources` and one more predictor, best first by their score
    statistics less costs.

    The score statistic is that of the state's indicator alone; its correlation with the indicators
    of the model is left to `_additions`. Each source gives at most ``2 * MAX_PROJECTED`` states,
    twice as many as `_additions` needs: some are in the model already, or come from several
    sources.
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
        # slopes and, last, curvature summed over the rows of each joint state (singles, states of
        # the source, q + 1)
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
        gain[np.isin(predictors, source)] = -np.inf  # no joint state with a predictor of the source
        for flat_index in np.argsort(-gain, axis=None, kind="stable")[: 2 * MAX_PROJECTED].tolist():
            row, column = divmod(flat_index, len(states))
            if np.isfinite(gain[row, column]):
                gain_of[_joint_state(states[column], singles[row])] = float(gain[row, column])
    return sorted(gain_of, key=lambda state: (-gain_of[state], state))


def _joint_state(state: State, single: State) -> State:
    """Return the state of the predictors of both states, in rising order."""
    pairs = sorted(zip(state.term + single.term, state.levels + single.levels, strict=True))
    return State(tuple(i for i, _ in pairs), tuple(level for _, level in pairs))


def _removals(model: Model) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return the models without one state, for the states of least Wald statistics, and their
    starting weights.

    The Wald statistic is the sum of the squares of a state's q weights over their variance.
    """
    variance = np.diag(np.linalg.inv(_information(model.objective)))
    wald = ((model.theta**2).sum(axis=1) / variance)[:-1]  # without the intercept's
    return [
        (model.states[:k] + model.states[k + 1 :], np.delete(model.theta, k, axis=0))
        for k in np.argsort(wald, kind="stable")[:MAX_FITS].tolist()
    ]


def _splits(model: Model) -> list[tuple[tuple[State, ...], np.ndarray]]:
    """Return models with a joint state replaced by its states of one predictor less, and their
    starting weights.

    Two predictors with equal separate effects resemble an effect of their joint state, which costs
    half as much. So the search may take the joint state first; no single addition or removal leads
    out of that, but this step does.
    """
    models = []
    for k, state in enumerate(model.states):
        size = len(state.term) - 1
        if size == 0:
            continue
        # (predictor, level) pairs of the state, one less
        smaller_states = [
            State(*zip(*pairs, strict=True))
            for pairs in combinations(zip(*state, strict=True), size)
        ]
        added = [smaller for smaller in smaller_states if smaller not in model.states]
        # without the row of the state, and with rows of zeros before the intercept's
        theta = np.insert(
            np.delete(model.theta, k, axis=0),
            len(model.states) - 1,
            np.zeros((len(added), 1)),
            axis=0,
        )
        models.append(((*model.states[:k], *model.states[k + 1 :], *added), theta))
    return models
