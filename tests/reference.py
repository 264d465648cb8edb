"""The oracle: a slow, plain numpy version of everything the package computes, by enumeration and
dense Newton steps.

Nothing here imports `bbl`. A model of one group is a pair ``(h, J)``: ``h[i]`` is an array of
length ``L_i - 1`` and ``J[i, j]`` an array ``(L_i - 1, L_j - 1)``. A symmetric model holds ``i <
j`` only; an unsymmetrised pseudo-likelihood solution holds both orders, ``J[i, j]`` being the
solution of predictor ``i``. Code 0 is the reference level, whose parameters are zero; code -1,
where it is allowed, is a missing value. Equation numbers are those of Woo & Wang.
"""

from __future__ import annotations

import itertools

import numpy as np


# -- enumeration (eqs. 6, 11) ----------------------------------------------------------------------
def states(L):
    """Return all configurations, shape (prod(L), m), the last predictor running fastest."""
    return np.array(list(itertools.product(*(range(n) for n in L))), dtype=int).reshape(-1, len(L))


def field(h, i, a):
    """Return ``h_i(a)``, zero for the reference level."""
    return h[i][a - 1] if a > 0 else 0.0


def coupling(J, i, j, a, b):
    """Return ``J_ij(a, b)``, zero for reference levels and for pairs that do not interact."""
    if a == 0 or b == 0:
        return 0.0
    if (i, j) in J:
        return J[i, j][a - 1, b - 1]
    return J[j, i][b - 1, a - 1] if (j, i) in J else 0.0


def with_references(table):
    """Return a table of non-reference levels with a row and a column of zeros for the reference
    levels in front.
    """
    out = np.zeros((table.shape[0] + 1, table.shape[1] + 1))  # a tenth of the time of np.pad
    out[1:, 1:] = table
    return out


def energy(h, J, x):
    """Return ``E(x) = sum_i h_i(x_i) + sum_{i<j} J_ij(x_i, x_j)`` of every row of `x`."""
    x = np.asarray(x, dtype=int)
    total = np.zeros(len(x))
    for i in range(len(h)):
        total += np.concatenate([[0.0], h[i]])[x[:, i]]
    for i, j in itertools.combinations(range(len(h)), 2):
        if (i, j) in J:
            total += with_references(J[i, j])[x[:, i], x[:, j]]
    return total


def logsumexp(v, axis=-1):
    """Return ``ln sum exp v`` along an axis, safe for large `v`."""
    top = np.max(v, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):  # a sum of nothing but exp(-inf)
        return np.log(np.sum(np.exp(v - top), axis=axis)) + np.squeeze(top, axis=axis)


def marginal_energy(h, J, L, x):
    """Return ``ln sum exp E`` over all states that agree with what is known of each row of `x` (-1:
    missing).
    """
    grid = states(L)
    E = energy(h, J, grid)
    return np.array(
        [logsumexp(E[((row == grid) | (row < 0)).all(axis=1)]) for row in np.asarray(x)]
    )


def log_partition(h, J, L):
    """Return the exact ``ln Z`` by summing over all states."""
    return float(logsumexp(energy(h, J, states(L))))


def probabilities(h, J, L):
    """Return ``P(x)`` of every state of `states`."""
    E = energy(h, J, states(L))
    return np.exp(E - logsumexp(E))


def flow(h, J, x, w):
    """Return the mean flow of probability out of rows: the sum over states y that differ from a row
    in one predictor of ``exp((E(y) - E(x)) / 2)`` (Sohl-Dickstein et al. 2011).
    """
    L = [len(own) + 1 for own in h]
    total = np.zeros(len(x))
    for i, n_levels in enumerate(L):
        for a in range(n_levels):
            y = np.array(x, dtype=int)
            y[:, i] = a
            rate = np.exp(0.5 * (energy(h, J, y) - energy(h, J, x)))
            total += np.where(x[:, i] == a, 0.0, rate)
    return float(w @ total / np.sum(w))


def centred_table(table):
    """Return the table (L_i, L_j) in the zero-sum gauge of the couplings of non-reference
    levels.
    """
    full = with_references(table)
    full = full - full.mean(axis=0)
    return full - full.mean(axis=1, keepdims=True)


def highest(h, J, L):
    """Return the most probable state and that energy."""
    grid = states(L)
    E = energy(h, J, grid)
    return grid[np.argmax(E)], float(E.max())


def local_fields(h, J, x, i, factor=1.0):
    """Return ``h_i(a) + factor * sum_j J_ij(a, x_j)`` for every row and level ``a`` (eq. 13), shape
    (n, L_i).
    """
    x = np.asarray(x, dtype=int)
    out = np.zeros((len(x), len(h[i]) + 1))
    out[:, 1:] = h[i]
    for j in range(len(h)):
        if j == i or ((i, j) not in J and (j, i) not in J):
            continue
        table = J[i, j] if (i, j) in J else J[j, i].T
        out += factor * with_references(table)[:, x[:, j]].T
    return out


def conditionals(h, J, x, i):
    """Return ``P_i(a | x_{-i})`` (eq. 11) for every row and level, shape (n, L_i)."""
    H = local_fields(h, J, x, i)
    return np.exp(H - logsumexp(H)[:, None])


# -- pseudo-likelihood (eqs. 10-18) ----------------------------------------------------------------
def augmented(x, w, L, rule="spec"):
    """Return rows and weights with one extra instance if a predictor is constant (end of section
    2.2).

    ``rule="spec"``: constant predictors take another level (1 if they stand at 0, else 0), the
    others their reference level. ``rule="r"``: what R's package adds, the reference level
    everywhere, which is no other level for a predictor that stands at it; only ``L_i`` unknown (1
    level) makes it code 1. ``rule="none"``: nothing is added.
    """
    x, w = np.asarray(x, dtype=int), np.asarray(w, dtype=float)
    constant = [len(np.unique(x[w > 0, i])) == 1 for i in range(x.shape[1])]
    if rule == "none" or not any(constant):
        return x, w
    extra = np.zeros(x.shape[1], dtype=int)
    if rule == "spec":
        for i in range(x.shape[1]):
            if constant[i] and x[w > 0, i][0] == 0:
                extra[i] = 1
    return np.vstack([x, extra]), np.append(w, 1.0)


def neighbours(m, pairs, i):
    """Return the predictors that interact with `i`, in order; ``pairs=None`` means all."""
    if pairs is None:
        return [j for j in range(m) if j != i]
    return [j for j in range(m) if (i, j) in pairs or (j, i) in pairs]


def site_design(x, L, pairs, i):
    """Return the matrix (n, p) of 1 and the non-reference indicators of the neighbours of predictor
    `i`.
    """
    columns = [np.ones(len(x))]
    for j in neighbours(len(L), pairs, i):
        columns += [(x[:, j] == b).astype(float) for b in range(1, L[j])]
    return np.column_stack(columns)


def site_objective(theta, X, y, w, lambda_, lambdah):
    """Return the penalised negative log pseudo-likelihood per observation of one predictor,
    gradient and Hessian.

    `theta` has shape (L_i - 1, p): column 0 the fields, the others the couplings with the columns
    of `X`.
    ``-(1/W) sum_k w_k ln P_i(x_i^k | x_{-i}^k) + lambdah/2 sum h^2 + lambda/2 sum J^2``; the
    Hessian is (q, q) over ``theta.ravel()``.
    """
    levels, p = theta.shape
    W = w.sum()
    H = np.column_stack([np.zeros(len(X)), X @ theta.T])
    lnZ = logsumexp(H)
    P = np.exp(H - lnZ[:, None])[:, 1:]
    penalty = np.full((levels, p), lambda_, dtype=float)
    penalty[:, 0] = lambdah
    value = -np.sum(w * (H[np.arange(len(y)), y] - lnZ)) / W + 0.5 * np.sum(penalty * theta**2)
    hit = (y[:, None] == np.arange(1, levels + 1)).astype(float)
    gradient = -((w[:, None] * (hit - P)).T @ X) / W + penalty * theta
    hessian = np.zeros((levels, p, levels, p))
    for a in range(levels):
        for b in range(levels):
            weight = w * P[:, a] * ((a == b) - P[:, b]) / W
            hessian[a, :, b, :] = X.T @ (weight[:, None] * X)
    hessian = hessian.reshape(levels * p, levels * p) + np.diag(penalty.ravel())
    return value, gradient, hessian


def newton_step(H, g):
    """Return ``H^-1 g``, the shortest such step where `H` is singular (no finite optimum)."""
    try:
        step = np.linalg.solve(H, g)
        if step @ g > 0 and np.abs(step).max() < 1e3:
            return step
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(H, g, rcond=1e-15)[0]


def site_optimum(X, y, w, levels, lambda_, lambdah, tol=1e-13, itmax=500):
    """Return the minimiser of `site_objective` by damped Newton steps, its value, and the gradient
    norm reached.
    """
    theta = np.zeros((levels, X.shape[1]))
    value, g, H = site_objective(theta, X, y, w, lambda_, lambdah)
    for _ in range(itmax):
        if np.abs(g).max() < tol:
            break
        step = newton_step(H, g.ravel()).reshape(theta.shape)
        size, drop = 1.0, float(np.sum(step * g))
        while True:
            trial = theta - size * step
            new, g_new, H_new = site_objective(trial, X, y, w, lambda_, lambdah)
            if new <= value - 1e-4 * size * drop + 1e-14 * abs(value) or size < 1e-8:
                break
            size /= 2
        if size < 1e-8 or (np.abs(g_new).max() >= np.abs(g).max() and np.abs(g).max() < 1e-11):
            break  # at the rounding floor
        theta, value, g, H = trial, new, g_new, H_new
    return theta, value, float(np.abs(g).max())


class PseudoFit:
    """Exact pseudo-likelihood solution of one group.

    Attributes: ``h``, ``J`` (symmetrised, i < j), ``J_raw`` (both orders), ``values`` (penalised
    objective of every predictor, to be minimised), ``lkh`` (minus their sum), ``x``, ``w``
    (augmented rows), ``gradient``. With missing values (-1), each predictor has the rows in which
    it and its neighbours are known, and the share that these are of all rows as the weight of its
    objective.
    """

    def __init__(self, x, w, L, pairs=None, lambda_=1e-5, lambdah=0.0, rule="spec"):
        self.x, self.w = augmented(x, w, L, rule)
        self.augmented = len(self.x) > len(x)
        self.h, self.J_raw, self.values, self.gradient = [], {}, [], 0.0
        cells, cell_of_row = np.unique(self.x, axis=0, return_inverse=True)
        weights = np.bincount(cell_of_row.ravel(), self.w)
        for i in range(len(L)):
            known = (cells[:, [i, *neighbours(len(L), pairs, i)]] >= 0).all(axis=1)
            X, w = site_design(cells[known], L, pairs, i), weights[known]
            theta, value, norm = site_optimum(X, cells[known, i], w, L[i] - 1, lambda_, lambdah)
            self.h.append(theta[:, 0])
            self.values.append(value * w.sum() / self.w.sum())
            self.gradient = max(self.gradient, norm)
            column = 1
            for j in neighbours(len(L), pairs, i):
                self.J_raw[i, j] = theta[:, column : column + L[j] - 1]
                column += L[j] - 1
        self.J = symmetrised(self.J_raw)
        self.lkh = -float(np.sum(self.values))

    def log_z(self, half=False, weighted=True):
        """Return ``ln Z`` of eq. (31) without (or with) the factor 1/2, from the unsymmetrised
        solution.
        """
        return pseudo_log_z(self.h, self.J_raw, self.x, self.w, half, weighted)


def symmetrised(J):
    """Return the couplings of pairs ``i < j`` averaged over both solutions (eq. 18)."""
    return {(i, j): 0.5 * (table + J[j, i].T) for (i, j), table in J.items() if i < j}


def pseudo_log_z(h, J, x, w, half=False, weighted=True):
    """Return eq. (31): the mean over rows of ``sum_i ln sum_a exp(h_i(a) + sum_j J_ij(a, x_j)
    [/2])``.

    ``weighted=False`` is R's number: rows summed without their weights and divided by the sum of
    weights. With missing values (-1) each predictor's mean is over the rows in which it and its
    neighbours are known.
    """
    if (np.asarray(x) < 0).any():
        total = 0.0
        for i in range(len(h)):
            rows = (x[:, [i, *(j for j in range(len(h)) if (i, j) in J or (j, i) in J)]] >= 0).all(
                axis=1
            )
            lnZ = logsumexp(local_fields(h, J, x[rows], i, 0.5 if half else 1.0))
            total += float(lnZ @ w[rows] / w[rows].sum())
        return total
    rows = sum(logsumexp(local_fields(h, J, x, i, 0.5 if half else 1.0)) for i in range(len(h)))
    return float(np.sum(rows * w if weighted else rows) / np.sum(w))


def zero_sum_tables(i, h, J, L):
    """Return fields (L_i,) and couplings {j: (L_i, L_j)} of predictor `i` in the zero-sum gauge, by
    enumeration.

    `h` (L_i - 1,) and `J` {j: (L_i - 1, L_j - 1)} are its own solution. The field on level a given
    the others is averaged over all their states, or over all in which one is at b; means are taken
    off until nothing is left of them.
    """
    x, a = states(L), np.arange(L[i])
    eta = np.zeros((len(x), L[i]))
    eta[:, 1:] = h
    for j, table in J.items():
        eta += np.pad(table, [(1, 0), (1, 0)])[:, x[:, j]].T
    eta = eta - eta.mean(axis=1, keepdims=True)
    fields = eta.mean(axis=0)
    return fields, {
        j: np.stack([eta[x[:, j] == b].mean(axis=0) - fields for b in range(L[j])], axis=1)[a]
        for j in J
    }


def zero_sum_penalty(i, h, J, L, lambda_, lambdah):
    """Return the penalty of predictor i's own solution in the zero-sum gauge."""
    fields, tables = zero_sum_tables(i, h, J, L)
    return 0.5 * lambdah * np.sum(fields**2) + 0.5 * lambda_ * sum(
        np.sum(K**2) for K in tables.values()
    )


# -- terms of any order ----------------------------------------------------------------------------
# A model is a dict of tables by their predictors: ``tables[i,]`` the fields (L_i - 1,), ``tables[i,
# j, k]`` an array (L_i - 1, L_j - 1, L_k - 1), and so on, with i < j < k.
def term_energy(tables, x):
    """Return the sum of all tables at every row of `x`; where one of a term's predictors is at its
    reference, zero.
    """
    x = np.asarray(x, dtype=int)
    total = np.zeros(len(x))
    for scope, table in tables.items():
        padded = np.pad(table, [(1, 0)] * len(scope))
        total += padded[tuple(x[:, i] for i in scope)]
    return total


def term_log_z(tables, L):
    """Return the exact ``ln Z`` by summing over all states."""
    return float(logsumexp(term_energy(tables, states(L))))


def term_probabilities(tables, L):
    """Return ``P(x)`` of every state of `states`."""
    E = term_energy(tables, states(L))
    return np.exp(E - logsumexp(E))


def term_marginal_energy(tables, L, x, possible=slice(None)):
    """Return ``ln sum exp E`` over all states that agree with what is known of each row of `x` (-1:
    missing).

    `possible` (S,) says which of all `states` can occur.
    """
    grid = states(L)[possible]
    E = term_energy(tables, grid)
    return np.array(
        [logsumexp(E[((row == grid) | (row < 0)).all(axis=1)]) for row in np.asarray(x)]
    )


def term_regressors(L, terms, i):
    """Return, for each term of predictor `i`, its other members and all joint non-reference levels
    of these.
    """
    found = []
    for term in sorted({tuple(sorted(t)) for t in terms if i in t}, key=lambda t: (len(t), t)):
        others = tuple(j for j in term if j != i)
        found.append((others, list(itertools.product(*(range(1, L[j]) for j in others)))))
    return found


def term_design(x, L, terms, i):
    """Return the matrix (n, p) of 1 and the indicators of the joint levels that predictor `i` is
    regressed on.
    """
    columns = [np.ones(len(x))]
    for others, levels in term_regressors(L, terms, i):
        columns += [(x[:, others] == np.array(joint)).all(axis=1).astype(float) for joint in levels]
    return np.column_stack(columns)


class TermFit:
    """Exact pseudo-likelihood solution of one group with terms of any order.

    Attributes: ``tables`` (each coupling the mean of what the members of its term say), ``raw`` (of
    each predictor a dict of tables by the term's other members), ``values``, ``lkh``, ``x``, ``w``.
    `lambda_` is one number, or a dict of order to number. Missing values (-1) as in `PseudoFit`.
    """

    def __init__(self, x, w, L, terms, lambda_=1e-5, lambdah=0.0, rule="spec"):
        self.x, self.w = augmented(x, w, L, rule)
        m = len(L)
        self.terms = sorted({tuple(sorted(t)) for t in terms}, key=lambda t: (len(t), t))
        self.tables, self.raw, self.values = {}, [], []
        for i in range(m):
            near = sorted({i} | {j for t in self.terms if i in t for j in t})
            rows = (self.x[:, near] >= 0).all(axis=1)
            own = term_regressors(L, self.terms, i)
            X, w_i = term_design(self.x[rows], L, self.terms, i), self.w[rows]
            penalty = np.zeros(X.shape[1])
            penalty[1:] = np.concatenate(
                [np.zeros(0)]
                + [
                    np.full(len(v), lambda_[len(o) + 1] if isinstance(lambda_, dict) else lambda_)
                    for o, v in own
                ]
            )
            theta, value, _ = site_optimum(X, self.x[rows, i], w_i, L[i] - 1, penalty, lambdah)
            self.tables[i,] = theta[:, 0]
            self.values.append(value * w_i.sum() / self.w.sum())
            mine, at = {}, 1
            for others, levels in own:
                mine[others] = theta[:, at : at + len(levels)].reshape(
                    L[i] - 1, *(L[j] - 1 for j in others)
                )
                at += len(levels)
            self.raw.append(mine)
        for term in self.terms:
            self.tables[term] = sum(
                np.moveaxis(self.raw[i][tuple(j for j in term if j != i)], 0, a)
                for a, i in enumerate(term)
            ) / len(term)
        self.lkh = -float(np.sum(self.values))

    def log_z(self, half=False):
        """Return eq. (31) from the unsymmetrised solutions; with `half` a term of k counts one
        k-th.
        """
        total = 0.0
        for i, mine in enumerate(self.raw):
            H = np.zeros((len(self.x), len(self.tables[i,]) + 1))
            H[:, 1:] = self.tables[i,]
            for others, table in mine.items():
                padded = np.pad(table, [(0, 0)] + [(1, 0)] * len(others))
                part = padded[(slice(None), *(self.x[:, j] for j in others))].T
                H[:, 1:] += part / (len(others) + 1) if half else part
            total += float(self.w @ logsumexp(H)) / self.w.sum()
        return total


# -- mean field and naive Bayes (eqs. 16, 19-26, 32) -----------------------------------------------
def frequencies(x, w, L, prior_count):
    """Return ``f`` (list of arrays (L_i,)) and ``f2[i, j]`` (arrays (L_i, L_j), i < j) with a
    uniform prior count.

    With missing values (-1), over the rows in which the predictor, or both, are known.
    """
    x, w = np.asarray(x, dtype=int), np.asarray(w, dtype=float)
    m = len(L)
    f, f2 = [], {}
    for i in range(m):
        counts = np.array([w[x[:, i] == a].sum() for a in range(L[i])])
        f.append((counts + prior_count / L[i]) / (counts.sum() + prior_count))
    for i, j in itertools.combinations(range(m), 2):
        counts = np.array(
            [[w[(x[:, i] == a) & (x[:, j] == b)].sum() for b in range(L[j])] for a in range(L[i])]
        )
        f2[i, j] = (counts + prior_count / (L[i] * L[j])) / (counts.sum() + prior_count)
    return f, f2


def mean_field(x, w, L, pairs=None, eps=0.9, prior_count=1.0):
    """Return ``(h, J, ln Z, C)``: eqs. (19)-(23) and (32); ``C`` is the interpolated covariance
    matrix of eq. (21).
    """
    f, f2 = frequencies(x, w, L, prior_count)
    m = len(L)
    start = np.concatenate([[0], np.cumsum([n - 1 for n in L])])
    D = int(start[-1])
    C = np.zeros((D, D))
    for i in range(m):
        block = slice(start[i], start[i + 1])
        C[block, block] = np.diag(f[i][1:]) - np.outer(f[i][1:], f[i][1:])
    for (i, j), table in f2.items():
        # the table's own margins: with missing values these are over the rows in which both are
        # known
        cov = table[1:, 1:] - np.outer(table.sum(axis=1)[1:], table.sum(axis=0)[1:])
        C[start[i] : start[i + 1], start[j] : start[j + 1]] = cov
        C[start[j] : start[j + 1], start[i] : start[i + 1]] = cov.T
    mean = np.trace(C) / D
    if (np.asarray(x) < 0).any():  # the nearest covariance matrix
        values, vectors = np.linalg.eigh(C)
        C = vectors @ np.diag(np.maximum(values, 0.0)) @ vectors.T
    C = (1 - eps) * mean * np.eye(D) + eps * C
    inverse = np.linalg.inv(C)
    kept = list(f2) if pairs is None else [p for p in f2 if p in pairs or p[::-1] in pairs]
    J = {(i, j): -inverse[start[i] : start[i + 1], start[j] : start[j + 1]] for i, j in kept}
    with np.errstate(divide="ignore"):
        h = [np.log(fi[1:] / fi[0]) for fi in f]
        lz = -float(sum(np.log(fi[0]) for fi in f))
    for (i, j), table in J.items():
        h[i] = h[i] - table @ f[j][1:]
        h[j] = h[j] - f[i][1:] @ table
        lz -= float(f[i][1:] @ table @ f[j][1:])
    return h, J, lz, C


def naive_bayes(x, w, L, prior_count=0.0):
    """Return ``(h, {}, ln Z)`` of independent predictors (eq. 25); ``-inf`` where a level is
    absent.
    """
    f, _ = frequencies(x, w, L, prior_count)
    with np.errstate(divide="ignore"):
        h = [np.log(fi[1:] / fi[0]) for fi in f]
    return h, {}, float(sum(logsumexp(np.concatenate([[0.0], hi])) for hi in h))


def naive_log_likelihood(x, w, L):
    """Return eq. (26): ``n sum_i sum_x f_i(x) ln f_i(x)`` of one group, ``0 ln 0 = 0``."""
    f, _ = frequencies(x, w, L, 0.0)
    return float(np.sum(w) * sum(np.sum(fi[fi > 0] * np.log(fi[fi > 0])) for fi in f))


def ratio_test(x, w, y, L, prior_count=0.0):
    """Return the likelihood-ratio statistics of eq. (27), one per predictor, and their degrees of
    freedom.
    """
    x, w, y = np.asarray(x), np.asarray(w, dtype=float), np.asarray(y)
    K, m = int(y.max()) + 1, len(L)

    def entropy(f):
        return np.sum(f[f > 0] * np.log(f[f > 0]))

    pooled, _ = frequencies(x, w, L, prior_count)
    q = np.zeros(m)
    for g in range(K):
        f, _ = frequencies(x[y == g], w[y == g], L, prior_count)
        for i in range(m):
            q[i] += 2 * w[y == g].sum() * (entropy(f[i]) - entropy(pooled[i]))
    return q, [(K - 1) * (n - 1) for n in L]


# -- classification (eqs. 28-30, 33) ---------------------------------------------------------------
def posterior(E, lz, share):
    """Return links ``F_y`` (eq. 29) and probabilities (eq. 28) from energies (n, K), ``ln Z`` (K,)
    and shares (K,).
    """
    score = np.asarray(E) - np.asarray(lz) + np.log(share)
    prob = np.exp(score - logsumexp(score)[:, None])
    link = np.full(score.shape, np.inf)
    for g in range(score.shape[1]):
        rest = np.delete(score, g, axis=1)
        if rest.shape[1]:
            link[:, g] = score[:, g] - logsumexp(rest)
    return link, prob


def delong(score, positive):
    """Return AUC (ties count 1/2), its DeLong 95 % interval (clipped to [0, 1]) and its variance,
    pair by pair.
    """
    cases, controls = score[positive], score[~positive]
    psi = (cases[:, None] > controls[None, :]) + 0.5 * (cases[:, None] == controls[None, :])
    auc = psi.mean()
    variance = psi.mean(axis=1).var(ddof=1) / len(cases) + psi.mean(axis=0).var(ddof=1) / len(
        controls
    )
    width = 1.959963984540054 * np.sqrt(variance)
    return float(auc), float(max(auc - width, 0.0)), float(min(auc + width, 1.0)), float(variance)


def contiguous_folds(y, nfold):
    """Return R's folds of rows 0..n-1: consecutive blocks within each response group, the last
    taking the rest.

    ``nval = max(1, floor(n_g / nfold))`` rows of every group per fold; each fold lists its rows
    group by group.
    """
    y = np.asarray(y)
    folds = []
    for k in range(nfold):
        part = []
        for g in range(int(y.max()) + 1):
            rows = np.flatnonzero(y == g)
            size = max(1, len(rows) // nfold)
            part.append(rows[k * size :] if k == nfold - 1 else rows[k * size : (k + 1) * size])
        folds.append(np.concatenate(part))
    return folds


def expanded_folds(folds, counts, weights):
    """Return the rows of the weight-expanded data that each fold holds, from its rows and how often
    it holds each.

    The first copies of a row go to the first fold that holds it.
    """
    weights = np.asarray(weights, dtype=int)
    following = np.cumsum(weights) - weights
    out = []
    for rows, times in zip(folds, counts, strict=True):
        times = np.asarray(times, dtype=int)
        out.append(
            np.concatenate([following[k] + np.arange(c) for k, c in zip(rows, times, strict=True)])
        )
        following[rows] += times
    return out


def firth_log_likelihood(coefficients, Z, Y):
    """Log-likelihood of multinomial logistic regression plus half the log determinant of its Fisher
    information.

    `coefficients` (K - 1, p) are those of groups after the first, `Z` (n, p) the design, `Y` (n, K)
    the weight of each row in each group.
    """
    scores = np.column_stack([np.zeros(len(Z)), Z @ coefficients.T])
    log_p = scores - np.array([logsumexp(row) for row in scores])[:, None]
    fisher = 0.0
    for z, p, w in zip(Z, np.exp(log_p)[:, 1:], Y.sum(axis=1), strict=True):
        fisher = fisher + w * np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z))
    return (Y * log_p).sum() + 0.5 * np.linalg.slogdet(fisher)[1]


def ordinal_log_likelihood(thresholds, b, Z, Y, logits):
    """Log-likelihood of an ordered response, and its gradient in thresholds and effects.

    `thresholds` (K - 1,) and `b` (p,) are as R prints them: ``ln P(next) / P(group) = threshold +
    z'b`` with logits "adjacent", ``ln P(y <= group) / P(y > group) = threshold - z'b`` with
    "cumulative". `Z` (n, p) is the design without a constant, `Y` (n, K) the weight of each row in
    each group.
    """
    K = Y.shape[1]
    value, in_thresholds, in_b = 0.0, np.zeros(K - 1), np.zeros(len(b))
    for z, y in zip(Z, Y, strict=True):
        f = z @ b
        if logits == "adjacent":
            scores = [0.0]
            for a in thresholds:
                scores.append(scores[-1] + a + f)
            scores = np.array(scores)
            p = np.exp(scores - logsumexp(scores))
            for g in range(K):
                value += y[g] * np.log(p[g])
                in_b += y[g] * (g - sum(h * p[h] for h in range(K))) * z
                for k in range(K - 1):  # counts in the scores of the groups above
                    in_thresholds[k] += y[g] * ((g > k) - p[k + 1 :].sum())
            continue
        F = [0.0, *(1.0 / (1.0 + np.exp(f - t)) for t in thresholds), 1.0]
        for g in range(K):
            p = F[g + 1] - F[g]
            value += y[g] * np.log(p) if y[g] else 0.0
            upper = F[g + 1] * (1.0 - F[g + 1])
            lower = F[g] * (1.0 - F[g])
            in_b -= y[g] * (upper - lower) / p * z
            if g < K - 1:
                in_thresholds[g] += y[g] * upper / p
            if g > 0:
                in_thresholds[g - 1] -= y[g] * lower / p
    return value, np.append(in_thresholds, in_b)
