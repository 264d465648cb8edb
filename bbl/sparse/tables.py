"""Tables of weights of terms over joint levels, in two gauges, and what terms add to the links of new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from bbl.sparse.products import Levels, Term, contrasts, simplex, term_states

__all__ = ["log_odds", "reference_tables", "term_features", "term_links", "zero_sum_table"]


def zero_sum_table(term: Term, n_levels: Levels, theta: np.ndarray) -> np.ndarray:
    """Return what a term with weights (d, q) adds to the link at all joint levels, shape (L_1, ..., L_k, q).

    Sums over the levels of each predictor are zero.
    """
    binary = [i for i in term if n_levels[i] == 2]
    order = [i for i in term if n_levels[i] > 2] + binary  # as the features are multiplied
    table = np.ones((1, 1))
    for i in order:
        table = np.kron(table, simplex(n_levels[i]))
    out = (table @ theta).reshape(*(n_levels[i] for i in order), theta.shape[1])
    return np.moveaxis(out, range(len(term)), [term.index(i) for i in order])


def log_odds(link: np.ndarray) -> np.ndarray:
    """Return links (..., K - 1) as log odds of every class against the first."""
    scores = contrasts(link.shape[-1] + 1)
    return link @ (scores[1:] - scores[0]).T


def _used(codes: np.ndarray, n_levels: Levels, terms: Sequence[Term], missing: np.ndarray | None) -> Iterator:
    """Yield for each term its states in rows (n, m), its table, and in which rows all its predictors are known."""
    for term in terms:
        term_codes, levels = np.ascontiguousarray(codes[:, term].T), [n_levels[i] for i in term]
        is_known = np.ones((len(codes), 1), dtype=bool)
        if missing is not None:
            is_known[missing[:, term].any(axis=1)] = False
        yield *term_states(term_codes, levels, tuple(range(len(term)))), is_known


def term_links(
    codes: np.ndarray, n_levels: Levels, weights: Mapping[Term, np.ndarray], missing: np.ndarray | None, q: int
) -> np.ndarray:
    """Return what terms add to the links of rows (n, m), shape (n, q); nothing where a predictor is missing."""
    out = np.zeros((len(codes), q))
    parts = _used(codes, n_levels, list(weights), missing)
    for (state, table, is_known), theta in zip(parts, weights.values(), strict=True):
        out += np.where(is_known, (table @ theta)[state], 0.0)
    return out


def term_features(codes: np.ndarray, n_levels: Levels, terms: Sequence[Term], missing: np.ndarray | None) -> np.ndarray:
    """Return all features of terms in rows (n, m) as a matrix (n, D); zero where a predictor is missing."""
    parts = _used(codes, n_levels, terms, missing)
    return np.concatenate(
        [np.empty((len(codes), 0)), *(np.where(is_known, table[state], 0.0) for state, table, is_known in parts)],
        axis=1,
    )


def reference_tables(tables: dict[Term, np.ndarray]) -> dict[Term, np.ndarray]:
    """Return tables in the reference gauge: zero where any level is the reference; sums over all terms are the same.

    A term in the zero-sum gauge gives tables to all its subsets, the empty one (the intercept) included.
    """
    out: dict[Term, np.ndarray] = {}
    for term, table in tables.items():
        k = len(term)
        for size in range(k + 1):
            for axes in combinations(range(k), size):
                piece = table
                for axis in range(k):  # the level less the reference, or at the reference
                    base = np.take(piece, [0], axis=axis)
                    piece = piece - base if axis in axes else base
                sub_term = tuple(term[a] for a in axes)
                piece = piece.reshape(*(piece.shape[a] for a in axes), piece.shape[-1])
                out[sub_term] = out[sub_term] + piece if sub_term in out else piece
    return out
