"""The oracle of two-way clustering: slow, plain numpy by loops and enumeration. Nothing here
imports `bbl`.

Tables are dense, nan where missing; `w` are weights of cells. Partitions are tuples of labels in
order of first appearance (restricted growth strings). Ratings count from 1.
"""

from __future__ import annotations

import itertools
from math import erfc, lgamma, log, sqrt

import numpy as np


def partitions(n):
    """Return all partitions of n items, in lexicographic order."""
    found = [()]
    for _ in range(n):
        found = [p + (g,) for p in found for g in range(max(p, default=-1) + 2)]
    return found


def canonical(labels):
    names = {}
    return tuple(names.setdefault(g, len(names)) for g in labels)


def du_matrix(n):
    """Return the transition matrix of the Du process over `partitions` (appendix A)."""
    states = partitions(n)
    at = {p: k for k, p in enumerate(states)}
    T = np.zeros((len(states), len(states)))
    for p in states:
        K = max(p) + 1
        for i in range(n):
            alone = p.count(p[i]) == 1
            targets = [g for g in range(K) if g != p[i]] + ([] if alone else [K])
            for g in targets or [p[i]]:
                T[at[p], at[canonical(p[:i] + (g,) + p[i + 1 :])]] += 1 / n / len(targets or [0])
    return T


def block_means(X, w, rows, columns, a, b, fill):
    A = np.full((a, b), fill, dtype=float)
    for g, h in itertools.product(range(a), range(b)):
        inside = np.outer(rows == g, columns == h) & ~np.isnan(X)
        if w[inside].sum() > 0:
            A[g, h] = (w * np.nan_to_num(X))[inside].sum() / w[inside].sum()
    return A


def wcss(X, w, rows, columns, fill=0.0):
    """Return the sum of squares of eq. 2.1 with weights."""
    a, b = max(rows) + 1, max(columns) + 1
    A = block_means(X, w, rows, columns, a, b, fill)
    known = ~np.isnan(X)
    return float((w * (X - A[rows][:, columns]) ** 2)[known].sum())


def assign_rows(X, w, rows, columns, a, b, fill):
    """Move each row to the prototype that is nearest over its observed cells; it stays where that
    is as near.
    """
    A = block_means(X, w, rows, columns, a, b, fill)
    new = rows.copy()
    for i in range(len(X)):
        known = ~np.isnan(X[i])
        cost = [(w[i] * (X[i] - A[g][columns]) ** 2)[known].sum() for g in range(a)]
        if min(cost) < cost[rows[i]] - 1e-9:
            new[i] = int(np.argmin(cost))
    return new


def levels_deviance(codes, rows, columns, L, prior_count):
    """Return the deviance of smoothed level shares; codes are -1 where missing."""
    total = 0.0
    for g, h in itertools.product(set(rows), set(columns)):
        inside = codes[np.ix_(rows == g, columns == h)]
        c = np.array([(inside == x).sum() for x in range(L)]) + prior_count / L
        total -= 2 * (c * np.log(c / c.sum())).sum()
    return float(total)


def interval(a, b):
    """Return the normal probability of (a, b)."""
    s = sqrt(2)
    return 0.5 * (erfc(a / s) - erfc(b / s)) if a > 0 else 0.5 * (erfc(-b / s) - erfc(-a / s))


def block_deviance(ratings, mean, sigma=0.5, top=5):
    """Return minus twice the log-likelihood of the ratings of a block, a rounded and truncated
    normal.
    """
    z = log(interval((0.5 - mean) / sigma, (top + 0.5 - mean) / sigma))
    return -2 * sum(
        log(interval((r - 0.5 - mean) / sigma, (r + 0.5 - mean) / sigma)) - z for r in ratings
    )


def fitness(X, items, users, penalty=1.0, sigma=0.5):
    """Return the fitness of section 1.3.2.5, the penalty being a factor of ln N for each block."""
    value = penalty * len(set(items)) * len(set(users)) * log((~np.isnan(X)).sum())
    for g, h in itertools.product(set(items), set(users)):
        ratings = X[np.ix_(np.array(items) == g, np.array(users) == h)].ravel()
        ratings = ratings[~np.isnan(ratings)]
        if len(ratings):
            value += block_deviance(ratings, ratings.mean(), sigma)
    return value


def elementary(v, n):
    """Return the elementary symmetric polynomial e_n(v) as a sum over all subsets."""
    return sum(
        np.prod([v[i] for i in subset]) for subset in itertools.combinations(range(len(v)), n)
    )


def rated_loglik(Y, P, Q, gamma, rank, w, normalised=True):
    """Return the log-likelihood of rated (1) items (columns of Y) by raters (rows); the thesis
    leaves out e_n.
    """
    total = 0.0
    for j, row in enumerate(np.asarray(Y)):
        lam = 1 / (1 + np.exp(-gamma[Q[j]]))
        v = np.array([w[i] * lam ** rank[Q[j]][P[i]] for i in range(len(row))])
        total += np.log(v[row == 1]).sum()
        if normalised:
            total -= log(elementary(v, int(row.sum())))
    return float(total)


def rand_index(p, q):
    pairs = list(itertools.combinations(range(len(p)), 2))
    return sum((p[i] == p[j]) == (q[i] == q[j]) for i, j in pairs) / len(pairs)


def variation_of_information(p, q):
    n = len(p)
    value = 0.0
    for g, h in itertools.product(set(p), set(q)):
        both = sum(a == g and b == h for a, b in zip(p, q, strict=True)) / n
        if both:
            value -= both * (log(both * n / list(p).count(g)) + log(both * n / list(q).count(h)))
    return value


def log_bell(n):
    """Return the logarithm of the number of partitions of n items (Dobinski)."""
    terms = [n * log(k) - lgamma(k + 1) for k in range(1, 200)]
    return max(terms) + log(sum(np.exp(np.array(terms) - max(terms)))) - 1
