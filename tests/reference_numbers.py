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
