"""Slow truth of sparse regression: every candidate as columns of a matrix, and what makes a point
the minimum.

Imports nothing of the package. The objective is convex, so its minimum is where no optimality
condition is violated.
"""

import numpy as np


def simplex(L):
    """Corners of a regular simplex with sum zero and mean square 1 a column, from the eigenvectors
    of centring.
    """
    centring = np.eye(L) - 1.0 / L
    _, vectors = np.linalg.eigh(centring)
    return np.sqrt(L) * vectors[:, 1:]


def features(codes, levels, term):
    """All d columns of a term, (n, d), in this file's own coordinates."""
    out = np.ones((len(codes), 1))
    for i in term:
        own = simplex(levels[i])[codes[:, i]]
        out = (out[:, :, None] * own[:, None, :]).reshape(len(codes), -1)
    return out


def log_p(eta):
    eta = eta - eta.max(axis=1, keepdims=True)
    return eta - np.log(np.exp(eta).sum(axis=1, keepdims=True))


def weights_of(codes, levels, link, terms):
    """The weights (d, q) of each term that give a link (n, q), and what is left of it; features
    must be independent.
    """
    blocks = [features(codes, levels, t) for t in terms]
    X = np.column_stack([np.ones((len(link), 1)), *blocks])
    found, *_ = np.linalg.lstsq(X, link, rcond=None)
    at = np.cumsum([1] + [b.shape[1] for b in blocks])
    return [found[a:b] for a, b in zip(at[:-1], at[1:], strict=True)], np.abs(
        X @ found - link
    ).max()


def judged(codes, levels, y, w, link, chosen, terms, lambdas):
    """Objective of a link (n, q) under the group penalty, and the largest violation over all of
    `terms`.

    Violations are in units of each term's penalty; `chosen` are those with weights.
    """
    C = simplex(link.shape[1] + 1) / np.sqrt(2 * (link.shape[1] + 1))
    log = log_p(link @ C.T)
    residual = np.exp(log)
    residual[np.arange(len(y)), y] -= 1.0
    slope = (w[:, None] * residual) @ C
    theta, left = weights_of(codes, levels, link, chosen)
    assert left < 1e-9
    objective, worst = (
        -float(w @ log[np.arange(len(y)), y]),
        np.abs(slope.sum(axis=0)).max() / min(lambdas),
    )
    for t in terms:
        G = features(codes, levels, t).T @ slope
        lam = lambdas[len(t) - 1] * np.sqrt(len(G))
        if t in chosen:
            B = theta[list(chosen).index(t)]
            objective += lam * np.linalg.norm(B)
            worst = max(worst, np.linalg.norm(G + lam * B / np.linalg.norm(B)) / lam)
        else:
            worst = max(worst, np.linalg.norm(G) / lam - 1.0)
    return objective, worst
