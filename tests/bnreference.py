"""Bayesian network classifiers by enumeration: slow, obvious, and free of the package's code."""

import itertools
import math

import numpy as np


def random_dag(m, most, rng):
    """Return a random structure of `m` features with up to `most` feature parents, features in
    random order.
    """
    order = rng.permutation(m)
    families = []
    for place, i in enumerate(order):
        k = rng.integers(0, min(most, place) + 1)
        families.append((int(i), tuple(int(p) for p in rng.permutation(order[:place])[:k])))
    return tuple(families[k] for k in rng.permutation(m))


def tables(families, rows, y, weights, n_levels, K, smooth):
    """Return the table (parents..., feature, class) of every family from rows with -1 for missing,
    by counting.
    """
    out = {}
    for i, parents in families:
        scope = (*parents, i)
        counts = np.zeros([*(n_levels[v] for v in scope), K])
        for row, c, w in zip(rows, y, weights, strict=True):
            cell = tuple(row[v] for v in scope)
            if min(cell) >= 0 and c >= 0:
                counts[(*cell, c)] += w
        total = counts.sum(axis=-2, keepdims=True)
        uniform = np.full_like(counts, 1.0 / n_levels[i])
        below = total + n_levels[i] * smooth
        out[i] = np.divide(counts + smooth, below, out=uniform, where=below > 0)
    return out


def joint(families, theta, prior, row, n_levels):
    """Return P(class, known features) of one row, -1 standing for missing, by summing over all
    states of the others.
    """
    features = [i for i, _ in families]
    choices = [[row[i]] if row[i] >= 0 else range(n_levels[i]) for i in features]
    total = np.zeros(len(prior))
    for state in itertools.product(*choices):
        x = dict(zip(features, state, strict=True))
        p = prior.copy()
        for i, parents in families:
            p = p * theta[i][(*(x[v] for v in parents), x[i])]
        total += p
    return total


def information(counts):
    """Return the mutual information of X and Y given Z in nats from a table (x, y, z), cell by
    cell.
    """
    n, total = counts.sum(), 0.0
    for (x, y, z), c in np.ndenumerate(counts):
        if c:
            total += (
                c
                / n
                * math.log(
                    c * counts[:, :, z].sum() / (counts[x, :, z].sum() * counts[:, y, z].sum())
                )
            )
    return total


def gaps(rows, share, rng):
    """Return the rows with a share of the cells missing (-1)."""
    return np.where(rng.random(rows.shape) < share, -1, rows)
