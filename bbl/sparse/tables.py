"""Tables of weights of terms over joint levels, in two gauges, and the links and features of new
rows.

*Term*: a product of predictors, a tuple of their numbers in rising order, with d features (zero-sum
contrasts, see `products`) and weights (d, q), q = K - 1 for K classes. *Link*: the q linear
predictors of a row. *Gauge*: the convention that makes tables unique: in the zero-sum gauge they
sum to zero along each axis, in the reference gauge they are zero at level 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from bbl.sparse.products import Levels, Term, contrasts, simplex, term_states

__all__ = ["log_odds", "reference_tables", "term_features", "term_links", "zero_sum_table"]


UNIT_STEP = np.array([[0.0], [1.0]])  # the feature of a number at 0 and at 1


def zero_sum_table(
    term: Term, n_levels: Levels, theta: np.ndarray, numbers: Collection[int] = ()
) -> np.ndarray:
    """Return the contribution of a term with weights (d, q) to the link at all joint levels, (L_1,
    ..., L_k, q).

    The table is in the zero-sum gauge. `theta` holds the weights, `n_levels` the levels of all
    predictors. The two entries along the axis of a predictor in `numbers` are those at its values 0
    and 1, so that the second one is the effect of a unit.
    """
    binary = [i for i in term if n_levels[i] == 2]
    # the order in which `term_states` multiplies features
    axis_order = [i for i in term if n_levels[i] > 2] + binary
    features = np.ones((1, 1))  # of all joint levels
    for i in axis_order:
        features = np.kron(features, UNIT_STEP if i in numbers else simplex(n_levels[i]))
    out = (features @ theta).reshape(*(n_levels[i] for i in axis_order), theta.shape[1])
    return np.moveaxis(out, range(len(term)), [term.index(i) for i in axis_order])


def log_odds(link: np.ndarray) -> np.ndarray:
    """Return the log odds (..., K - 1) of every class against the first, from links (..., K -
    1).
    """
    to_scores = contrasts(link.shape[-1] + 1)  # (K, K - 1): scores of classes are to_scores @ link
    return link @ (to_scores[1:] - to_scores[0]).T


def _states_of_rows(
    codes: np.ndarray, n_levels: Levels, terms: Sequence[Term], missing: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, for each term, its state in each row (n,), its features in each state (S, d), and if
    it is known (n, 1).

    `codes` and `missing` are (n, m). A term is known in a row if none of its predictors is missing.
    """
    for term in terms:
        term_codes = np.ascontiguousarray(codes[:, term].T)
        levels = [n_levels[i] for i in term]
        is_known = np.ones((len(codes), 1), dtype=bool)
        if missing is not None:
            is_known[missing[:, term].any(axis=1)] = False
        # the term's predictors are now numbered 0, 1, ...
        yield *term_states(term_codes, levels, tuple(range(len(term)))), is_known


def term_links(
    codes: np.ndarray,
    n_levels: Levels,
    weights: Mapping[Term, np.ndarray],
    missing: np.ndarray | None,
    q: int,
) -> np.ndarray:
    """Return the summed contributions (n, q) of terms to the links of rows (n, m); a term that is
    not known adds 0.
    """
    link = np.zeros((len(codes), q))
    term_rows = _states_of_rows(codes, n_levels, list(weights), missing)
    for (state, table, is_known), theta in zip(term_rows, weights.values(), strict=True):
        link += np.where(is_known, (table @ theta)[state], 0.0)
    return link


def term_features(
    codes: np.ndarray, n_levels: Levels, terms: Sequence[Term], missing: np.ndarray | None
) -> np.ndarray:
    """Return the features (n, D) of all terms in rows (n, m); zero where a predictor of the term is
    missing.
    """
    term_rows = _states_of_rows(codes, n_levels, terms, missing)
    features = [np.where(is_known, table[state], 0.0) for state, table, is_known in term_rows]
    return np.concatenate([np.empty((len(codes), 0)), *features], axis=1)


def reference_tables(tables: dict[Term, np.ndarray]) -> dict[Term, np.ndarray]:
    """Return tables in the reference gauge, given those in any gauge; their sum over all terms is
    the same.

    Tables are (L_1, ..., L_k, q). Each term contributes to the tables of all its subsets, the empty
    one (the intercept) included. Along each axis an entry is the value at the reference level plus
    the difference from it. The whole table is thus a sum over subsets of its axes: differences
    along the axes of the subset, the reference level along the others. This part goes to the table
    of the subset.
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
