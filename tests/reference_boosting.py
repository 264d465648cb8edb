"""The oracle of boosting: rounds of fields and of pairs in plain numpy, every cut tried; nothing
here imports `bbl`.
"""

from __future__ import annotations

import itertools

import numpy as np


def part_sums(rows, y, weights, p):
    """Return gradients (K,), curvatures (K,) and the weight of the rows where `rows` is True."""
    w = (weights * rows)[:, None]
    observed = np.eye(p.shape[1])[y]
    return (w * (observed - p)).sum(axis=0), (w * p * (1 - p)).sum(axis=0), w.sum()


def gain_and_step(rows, y, weights, p, rate, ridge, least):
    """Return the gain of the part of these rows, and its step (K,)."""
    G, H, weight = part_sums(rows, y, weights, p)
    if weight < least:
        return 0.0, np.zeros(p.shape[1])
    return float((G**2 / (H + ridge)).sum()), rate * G / (H + ridge)


def level_parts(codes, L, y, weights, p, ridge):
    """Yield the masks over levels of all cuts of a predictor, for the order of the slopes of each
    group.
    """
    for group in range(p.shape[1] if p.shape[1] > 2 else 1):
        slopes = []
        for level in range(L):
            G, H, _ = part_sums(codes == level, y, weights, p)
            slopes.append((G[group] / (H[group] + ridge), level))
        order = [level for _, level in sorted(slopes)]
        for cut in range(1, L):
            yield np.isin(np.arange(L), order[cut:])


def take_best(partitions, y, weights, p, rate, ridge, least):
    """Return the number of the partition of largest gain, that gain, and the steps of its parts;
    None if none gains.

    A partition is an array (n,) of the part of each row.
    """
    best = None
    for number, part in enumerate(partitions):
        found = [
            gain_and_step(part == q, y, weights, p, rate, ridge, least)
            for q in range(part.max() + 1)
        ]
        gain = sum(gain for gain, _ in found)
        if gain > (best[1] if best else 0.0):
            best = number, gain, np.array([step for _, step in found])
    return best


def softmax(scores):
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def round_of_fields(codes, n_levels, y, weights, p, rate, ridge, least, entry):
    """Return the tables (L_i, K) of all predictors after a first round, and the new probabilities;
    codes are (m, n).
    """
    tables = []
    for i, L in enumerate(n_levels):
        masks = list(level_parts(codes[i], L, y, weights, p, ridge))
        table = np.zeros((L, p.shape[1]))
        best = take_best(
            [mask[codes[i]].astype(int) for mask in masks], y, weights, p, rate, ridge, least
        )
        if best is not None and best[1] > entry:
            steps = best[2] if len(best[2]) == 2 else np.vstack([best[2], np.zeros(p.shape[1])])
            table = steps[masks[best[0]].astype(int)]
            p = softmax(np.log(p) + table[codes[i]])
        tables.append(table)
    return tables, p


def pair_cuts(A, B):
    """Yield arrays (A, B) of the part of each cell, for every cut of both predictors."""
    for a, b in itertools.product(range(A - 1), range(B - 1)):
        yield 2 * (np.arange(A)[:, None] > a) + (np.arange(B) > b)


def pair_gain(codes_i, codes_j, A, B, y, weights, p, ridge, least):
    """Return the gain of the best cuts of a pair."""
    parts = [cells[codes_i, codes_j] for cells in pair_cuts(A, B)]
    best = take_best(parts, y, weights, p, 1.0, ridge, least)
    return 0.0 if best is None else best[1]


def round_of_pairs(codes, n_levels, pairs, y, weights, p, rate, ridge, least, entry):
    """Return the tables (A, B, K) of all pairs after a first round, and the new probabilities."""
    tables = []
    for i, j in pairs:
        cuts = list(pair_cuts(n_levels[i], n_levels[j]))
        rows_parts = [cells[codes[i], codes[j]] for cells in cuts]
        best = take_best(rows_parts, y, weights, p, rate, ridge, least)
        table = np.zeros((n_levels[i], n_levels[j], p.shape[1]))
        if best is not None and best[1] > entry:
            steps = np.zeros((4, p.shape[1]))
            steps[: len(best[2])] = best[2]
            table = steps[cuts[best[0]]]
            p = softmax(np.log(p) + table[codes[i], codes[j]])
        tables.append(table)
    return tables, p
