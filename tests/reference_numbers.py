"""The oracle of numeric predictors: the location model by least squares on rows, one at a time.

Nothing here imports `bbl`. Rows have `codes` (n, m) of levels, numbers `u` (n, q) and groups `y`;
`partners` (q, m) says on which levels the mean of each number depends.
"""

import itertools

import numpy as np


def design(codes, L, partners):
    """Return the indicators of the non-reference levels of the partners of one number, with a
    constant.
    """
    columns = [np.ones(len(codes))]
    for i in np.flatnonzero(partners):
        columns += [(codes[:, i] == a).astype(float) for a in range(1, L[i])]
    return np.column_stack(columns)


def location(codes, u, y, L, partners, correlated, shared=False, moment=True):
    """Return the coefficients of each number in each group, and the covariances (K, q, q).

    Weights are repeated rows.
    """
    K, q = y.max() + 1, u.shape[1]
    means, residuals, ranks = [], np.empty_like(u), np.zeros((K, q))
    for g in range(K):
        own = y == g
        group = []
        for j in range(q):
            z = design(codes[own], L, partners[j])
            c, _, ranks[g, j], _ = np.linalg.lstsq(z, u[own, j], rcond=None)
            residuals[own, j] = u[own, j] - z @ c
            group.append(c)
        means.append(group)
    S = np.zeros((K, q, q))
    for g in range(K):
        rows = residuals if shared else residuals[y == g]
        lost = ranks.sum(axis=0) if shared else ranks[g]
        df = len(rows) - (lost if moment else 0 * lost)
        S[g] = rows.T @ rows / np.sqrt(np.outer(df, df))
        S[g][~correlated] = 0.0  # only right if no number is correlated with some of the others
    return means, S


def log_normal(u, mean, S):
    """Return the log density of one row."""
    r = u - mean
    return -0.5 * (r @ np.linalg.solve(S, r) + np.linalg.slogdet(2 * np.pi * S)[1])


def log_joint(x, u, log_p, means, S, L, partners):
    """Return ln P(x, u) of one row in one group, where unknown levels (-1) and numbers (nan) are
    summed and integrated out; `log_p` maps states to log-probabilities.
    """
    known = ~np.isnan(u)
    out = -np.inf
    for state in itertools.product(
        *(range(n) if a < 0 else (a,) for a, n in zip(x, L, strict=True))
    ):
        z = [design(np.array([state]), L, p)[0] for p in partners]
        mean = np.array([z[j] @ means[j] for j in range(len(u))])
        density = 0.0
        if known.any():
            density = log_normal(u[known], mean[known], S[np.ix_(known, known)])
        out = np.logaddexp(out, log_p[state] + density)
    return out


def products(columns, pairs):
    """Return the columns (n, d_i) of all predictors, then the products of those of each pair."""
    parts = list(columns)
    for i, j in pairs:
        parts.append((columns[i][:, :, None] * columns[j][:, None, :]).reshape(len(parts[0]), -1))
    return parts


def regressors(codes, is_number, L):
    """Return the columns of regressors: the numbers, and indicators of non-reference levels."""
    return [
        codes[:, [i]] if is_number[i] else (codes[:, [i]] == np.arange(1, L[i])).astype(float)
        for i in range(len(L))
    ]


def ridge_scores(codes, y, is_number, L, pairs, ridge, scale):
    """Return the class scores (n, K) of the conditional likelihood with a ridge, up to a constant
    in each row: the minimum of ``-mean ln P(y | x) + ridge / 2 |f|^2``.
    """
    columns = []
    for i in range(len(L)):
        own = codes[:, [i]] if is_number[i] else (codes[:, [i]] == np.arange(L[i])).astype(float)
        own = own - own.mean(axis=0)
        columns.append(own / own.std() if is_number[i] else own)
    parts = products(columns, pairs)
    squares = [float((part**2).sum(axis=1).mean()) for part in parts]
    a, b = sum(squares[: len(L)]), sum(squares[len(L) :])
    weights = [np.sqrt(1.0 / a / (1.0 + scale if b else 1.0))] * len(L)
    weights += [np.sqrt(scale / b / (1.0 + scale)) for _ in pairs]
    X = np.column_stack([weight * part for weight, part in zip(weights, parts, strict=True)])
    X = np.column_stack([np.ones(len(X)), X])
    K = y.max() + 1
    penalty = np.repeat([1e-8, ridge], [1, X.shape[1] - 1])
    coefficients = np.zeros((X.shape[1], K))
    for _ in range(60):  # Newton steps
        p = np.exp(X @ coefficients)
        p /= p.sum(axis=1, keepdims=True)
        gradient = X.T @ (p - np.eye(K)[y]) / len(y) + penalty[:, None] * coefficients
        H = np.zeros((K, X.shape[1], K, X.shape[1]))
        for g, k in itertools.product(range(K), range(K)):
            w = p[:, g] * ((g == k) - p[:, k])
            H[g, :, k] = (X * w[:, None]).T @ X / len(y) + (g == k) * np.diag(penalty)
        step = np.linalg.solve(H.reshape(K * X.shape[1], -1), gradient.T.ravel())
        coefficients -= step.reshape(K, -1).T
    return X @ coefficients
