"""Slow truth of exact maximum likelihood: a dense matrix of indicators, Newton steps, plain EM,
linear programmes.

Imports nothing of the package. Parameters run field by field, then term by term (by order, then
lexicographic), the last level fastest; the reference level is code 0. States are those of
`reference.states`.
"""

import itertools

import numpy as np
from reference import logsumexp, states
from scipy.optimize import linprog


def scopes(L, terms):
    """Return the predictors of each table of parameters: single ones, then sorted terms, shorter
    ones first.
    """
    return [(i,) for i in range(len(L))] + sorted(
        {tuple(sorted(t)) for t in terms}, key=lambda t: (len(t), t)
    )


def indicators(L, terms):
    """Return the indicators (n states, size) of all parameters."""
    grid, columns = states(L), []
    for scope in scopes(L, terms):
        for levels in itertools.product(*(range(1, L[i]) for i in scope)):
            columns.append((grid[:, scope] == np.array(levels)).all(axis=1).astype(float))
    return np.column_stack(columns)


def probabilities(X, theta, support=None):
    """Return ``P(x)`` of all states, and ln Z; states off the support have none."""
    E = X @ theta if support is None else np.where(support, X @ theta, -np.inf)
    log_z = float(logsumexp(E))
    return np.exp(E - log_z), log_z


def information(X, p):
    """Return the covariance of all indicators."""
    centred = X - p @ X
    return (centred * p[:, None]).T @ centred


def maximum(X, counts, ridge=0.0, support=None, steps=200):
    """Return the parameters that maximise ``sum counts ln P / sum counts - ridge . theta^2 / 2``,
    by Newton's method.

    Where the states of the support do not determine all parameters, one of the solutions.
    """
    N, theta = counts.sum(), np.zeros(X.shape[1])

    def objective(theta):
        return (
            counts @ X @ theta / N
            - probabilities(X, theta, support)[1]
            - 0.5 * np.sum(ridge * theta**2)
        )

    for _ in range(steps):
        p, _ = probabilities(X, theta, support)
        gradient = X.T @ (counts / N - p) - ridge * theta
        step = np.linalg.lstsq(
            information(X, p) + np.diag(ridge * np.ones(len(theta))), gradient, rcond=1e-12
        )[0]
        length = 1.0
        while objective(theta + length * step) < objective(theta) - 1e-15 and length > 1e-9:
            length /= 2
        theta = theta + length * step
        if np.linalg.norm(gradient) < 1e-13:
            break
    return theta


def log_likelihood(p, counts):
    """Return ``sum counts ln p``, ``0 ln 0 = 0``."""
    return float(counts[counts > 0] @ np.log(p[counts > 0]))


# -- existence -------------------------------------------------------------------------------------
def facial_set(X, counts):
    """Return which states keep a probability at the maximum, by a linear programme for each empty
    state.

    A state x loses it if some direction d has ``T(x) d < T(y) d`` for an observed y, while all
    observed states share the largest value that ``T d`` has in any state.
    """
    observed, keeps = np.flatnonzero(counts), np.ones(len(counts), dtype=bool)
    others = X - X[observed[0]]
    for state in np.flatnonzero(counts == 0):
        result = linprog(
            others[state],
            A_ub=others,
            b_ub=np.zeros(len(X)),
            A_eq=others[observed],
            b_eq=np.zeros(len(observed)),
            bounds=[(-1, 1)] * X.shape[1],
            method="highs",
        )
        assert result.status == 0
        keeps[state] = result.fun > -1e-7
    return keeps


def rank_on(X, support):
    """Return the rank of the indicators and a constant on the states of a support, less one."""
    return int(np.linalg.matrix_rank(np.column_stack([np.ones(support.sum()), X[support]]))) - 1


# -- missing values --------------------------------------------------------------------------------
def compatible(L, x):
    """Return which states (n rows, n states) each row of `x` may be (-1: missing)."""
    grid = states(L)
    return ((x[:, None, :] == grid) | (x[:, None, :] < 0)).all(axis=2)


def observed_log_likelihood(p, may_be, w):
    """Return the weighted sum of the log-probabilities of what is known of each row."""
    return float(w @ np.log(may_be @ p))


def expectation_maximisation(L, terms, x, w, steps):
    """Return parameters and the observed-data log-likelihood after each of `steps` rounds of plain
    EM.
    """
    X, may_be = indicators(L, terms), compatible(L, x)
    theta, trace = np.zeros(X.shape[1]), []
    for _ in range(steps):
        p, _ = probabilities(X, theta)
        shares = may_be * p
        theta = maximum(X, w @ (shares / shares.sum(axis=1, keepdims=True)))
        trace.append(observed_log_likelihood(probabilities(X, theta)[0], may_be, w))
    return theta, trace
