"""Tables of term weights in the zero-sum gauge and the reference gauge, and links of new rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from bbl.sparse.products import Levels, Term, contrasts, simplex, term_states

__all__ = ["log_odds", "reference_tables", "term_features", "term_links", "zero_sum_table"]


UNIT_STEP = np.array([[0.0], [1.0]])  # feature of a numeric predictor at 0 and at 1


def zero_sum_table(
    term: Term, n_levels: Levels, theta: np.ndarray, numbers: Collection[int] = ()
) -> np.ndarray:
    """Return the contribution of a term with weights (d, q) to the link at all joint levels, shape
    (L_1, ..., L_k, q).

    The resulting table is in the zero-sum gauge. `theta` contains the weights, and `n_levels` the
    numbers of levels of all predictors. For a numeric predictor in `numbers`, the two entries along
    its axis are for the values 0 and 1, so the second entry is the effect of one unit.
    """
    binary = [i for i in term if n_levels[i] == 2]
    # the order in which `term_states` multiplies features
    axis_order = [i for i in term if n_levels[i] > 2] + binary
    features = np.ones((1, 1))  # for all joint levels
    for i in axis_order:
        features = np.kron(features, UNIT_STEP if i in numbers else simplex(n_levels[i]))
    out = (features @ theta).reshape(*(n_levels[i] for i in axis_order), theta.shape[1])
    return np.moveaxis(out, range(len(term)), [term.index(i) for i in axis_order])


def log_odds(link: np.ndarray) -> np.ndarray:
    """Convert links (..., K - 1) to log odds (..., K - 1) of each class relative to the first
    class.
    """
    to_scores = contrasts(link.shape[-1] + 1)  # (K, K - 1): class scores are to_scores @ link
    return link @ (to_scores[1:] - to_scores[0]).T


def _states_of_rows(
    codes: np.ndarray, n_levels: Levels, terms: Sequence[Term], missing: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the state of each term in each row (n,), its features in each state (S, d), and whether
    it is known in each row (n, 1).

    `codes` and `missing` have shape (n, m). A term is known in a row if all its predictors are
    known.
    """
    for term in terms:
        term_codes = np.ascontiguousarray(codes[:, term].T)
        levels = [n_levels[i] for i in term]
        is_known = np.ones((len(codes), 1), dtype=bool)
        if missing is not None:
            is_known[missing[:, term].any(axis=1)] = False
        # renumber the predictors of the term as 0, 1, ...
        yield *term_states(term_codes, levels, tuple(range(len(term)))), is_known


def term_links(
    codes: np.ndarray,
    n_levels: Levels,
    weights: Mapping[Term, np.ndarray],
    missing: np.ndarray | None,
    q: int,
) -> np.ndarray:
    """Return the summed contributions (n, q) of terms to the links of rows (n, m).

    A term that is unknown in a row contributes 0.
    """
    link = np.zeros((len(codes), q))
    term_rows = _states_of_rows(codes, n_levels, list(weights), missing)
    for (state, table, is_known), theta in zip(term_rows, weights.values(), strict=True):
        link += np.where(is_known, (table @ theta)[state], 0.0)
    return link


def term_features(
    codes: np.ndarray, n_levels: Levels, terms: Sequence[Term], missing: np.ndarray | None
) -> np.ndarray:
    """Return the features (n, D) of all terms in rows (n, m); they are zero if a predictor of the
    term is missing.
    """
    term_rows = _states_of_rows(codes, n_levels, terms, missing)
    features = [np.where(is_known, table[state], 0.0) for state, table, is_known in term_rows]
    return np.concatenate([np.empty((len(codes), 0)), *features], axis=1)


def reference_tables(tables: dict[Term, np.ndarray]) -> dict[Term, np.ndarray]:
    """Convert tables from any gauge to the reference gauge, without changing their sum over all
    terms.

    Tables have shape (L_1, ..., L_k, q). Along each axis, an entry is the sum of the value at the
    reference level and the difference from this value. A table is therefore a sum over subsets of
    its axes. The part of a subset contains the differences along its axes, at the reference level
    of all other axes. Each part is added to the table of its subset; the empty subset corresponds
    to the intercept.
    """
    out: dict[Term, np.ndarray] = {}
    for term, table in tables.items():
        k = len(term)
        for size in range(k + 1):
            for axes in combinations(range(k), size):
                contribution = table
                # difference from the reference level, or value at the reference level
                for axis in range(k):
                    at_reference = np.take(contribution, [0], axis=axis)
                    contribution = contribution - at_reference if axis in axes else at_reference
                sub_term = tuple(term[a] for a in axes)
                contribution = contribution.reshape(
                    *(contribution.shape[a] for a in axes), contribution.shape[-1]
                )
                out[sub_term] = out[sub_term] + contribution if sub_term in out else contribution
    return out
