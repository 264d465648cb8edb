"""Couplings that are linear in scores of ordered levels, by dense Newton steps on designs that are
written out; see `reference`.
"""

import itertools

import numpy as np
from reference import logsumexp, newton_step, states


def level_features(L, scores):
    """Return the numbers (L, d) that stand for the levels of a predictor in its couplings.

    `scores` (k,) are those of its first k levels, counted from the first; every level after them
    has an indicator. With `scores` None, all levels but the first have one.
    """
    k = 1 if scores is None else len(scores)
    own = np.eye(L)[:, k:]
    return own if scores is None else np.column_stack([np.append(scores, np.zeros(L - k)), own])


def linear_terms(L, terms, scores):
    """Return the table (L_i, L_j, ...) of each free coupling, with its term, in storage order."""
    features = [level_features(n, u) for n, u in zip(L, scores, strict=True)]
    out = []
    for term in sorted({tuple(sorted(t)) for t in terms}, key=lambda t: (len(t), t)):
        for columns in itertools.product(*(range(features[i].shape[1]) for i in term)):
            table = np.ones(())
            for i, c in zip(term, columns, strict=True):
                table = np.multiply.outer(table, features[i][:, c])
            out.append((term, table))
    return out


def linear_optimum(T, y, w, R, tol=1e-13):
    """Return the minimum of ``-mean ln softmax(T b)_y + b' R b / 2``, for T (n, levels, p)."""
    b = np.zeros(T.shape[2])

    def value(b):
        eta = T @ b
        return -float(w @ (eta[np.arange(len(y)), y] - logsumexp(eta))) / w.sum() + 0.5 * b @ R @ b

    for _ in range(200):
        eta = T @ b
        P = np.exp(eta - logsumexp(eta)[:, None])
        mean = np.einsum("na,nap->np", P, T)
        gradient = (w @ (mean - T[np.arange(len(y)), y])) / w.sum() + R @ b
        H = np.einsum("n,na,nap,naq->pq", w, P, T, T) - np.einsum("n,np,nq->pq", w, mean, mean)
        H = H / w.sum() + R
        if np.linalg.norm(gradient) < tol:
            break
        step = newton_step(H, gradient)
        while value(b - step) > value(b) + 1e-15:
            step = 0.5 * step
        b = b - step
    return b, value(b), H


def linear_site_design(x, L, terms, scores, i):
    """Return T (n, L_i, p) of predictor i given the others: its fields, then its free couplings.

    Also returns the free couplings: term, table and the penalty's matrix (p, p) for lambda 1.
    """
    mine = [(term, table) for term, table in linear_terms(L, terms, scores) if i in term]
    T = np.zeros((len(x), L[i], L[i] - 1 + len(mine)))
    for a in range(1, L[i]):
        T[:, a, a - 1] = 1.0
    for k, (term, table) in enumerate(mine):
        for r, row in enumerate(x):
            for a in range(L[i]):
                T[r, a, L[i] - 1 + k] = table[tuple(a if j == i else row[j] for j in term)]
    R = np.zeros((T.shape[2],) * 2)
    for k, (term, table) in enumerate(mine):
        for j, (other, second) in enumerate(mine):
            if term == other:
                R[L[i] - 1 + k, L[i] - 1 + j] = (table * second).sum()
    return T, mine, R


def linear_pseudo(x, w, L, terms, scores, lambda_=0.0, lambdah=0.0, prior_count=0.0):
    """Return the tables {scope: table} of the pseudo-likelihood fit, averaged over the sites.

    Tables of fields are (L_i,), those of couplings (L_i, L_j, ...), with zeros at reference levels.
    Rows in which a predictor or a member of its terms is missing (-1) are left out at its site.
    Also returns the sum of the sites' objectives.
    """
    tables, total = {}, 0.0
    for i in range(len(L)):
        near = sorted({i} | {j for t in terms if i in t for j in t})
        rows = (x[:, near] >= 0).all(axis=1)
        T, mine, R = linear_site_design(x[rows], L, terms, scores, i)
        R = lambda_ * R
        R[: L[i] - 1, : L[i] - 1] = lambdah * np.eye(L[i] - 1)
        y, w_i = x[rows, i], w[rows]
        share = prior_count / (w_i.sum() + prior_count)
        if share:  # each row also counts at every level
            T = np.concatenate([T] + [T] * L[i])
            w_i = np.concatenate([w_i * (1 - share)] + [w_i * share / L[i]] * L[i])
            y = np.concatenate([y] + [np.full(rows.sum(), a) for a in range(L[i])])
        b, value, _ = linear_optimum(T, y, w_i, R)
        total += value * w[rows].sum() / w.sum()
        tables[i,] = np.append(0.0, b[: L[i] - 1])
        for (term, table), v in zip(mine, b[L[i] - 1 :], strict=True):
            tables[term] = tables.get(term, 0.0) + v * table / len(term)
    return tables, total


def linear_likelihood(counts, L, terms, scores, lambda_=0.0, lambdah=0.0):
    """Return the tables of the maximum likelihood fit of counts of all `states`, the mean
    log-likelihood minus the penalty, and the covariance of the fields and free couplings.
    """
    x = states(L)
    columns, owners = [], []
    for i in range(len(L)):
        for a in range(1, L[i]):
            columns.append((x[:, i] == a).astype(float))
            owners.append(((i,), (np.arange(L[i]) == a).astype(float)))
    for term, table in linear_terms(L, terms, scores):
        columns.append(table[tuple(x[:, i] for i in term)])
        owners.append((term, table))
    T = np.column_stack(columns)[None]
    n = counts.sum()
    R = np.zeros((len(owners),) * 2)
    for k, (term, table) in enumerate(owners):
        for j, (other, second) in enumerate(owners):
            if term == other:
                R[k, j] = (table * second).sum() * (lambdah if len(term) == 1 else lambda_)
    seen = np.flatnonzero(counts)
    b, value, H = linear_optimum(np.repeat(T, len(seen), axis=0), seen, counts[seen], R)
    tables = {}
    for (term, table), v in zip(owners, b, strict=True):
        tables[term] = tables.get(term, 0.0) + v * table
    return tables, -value, np.linalg.inv(H) / n
