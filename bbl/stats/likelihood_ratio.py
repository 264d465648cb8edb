"""Likelihood-ratio tests of predictors under naive Bayes, which are exact if counts are small.

There are K groups and m predictors with L_i levels. Equation numbers refer to Woo & Wang (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bbl.stats.exact_tables import enumerated_p
from bbl.stats.goodness import is_sparse

__all__ = ["LikelihoodRatio", "likelihood_ratio"]

RANDOM_TABLES = 1999  # tables drawn if the tables with the same margins are not enumerated
MAX_TABLES = 10**6  # maximum number of 2 x 2 tables to enumerate
# maximum number of partial tables per predictor, which takes less than a second
MAX_PARTIAL = 10**6
ALL_PARTIAL = 4 * 10**6  # the same for all predictors of a call together


@dataclass(frozen=True)
class LikelihoodRatio:
    """Naive Bayes fields of m predictors in K groups, and tests of equal fields in all groups.

    Attributes
    ----------
    h : list of m ndarrays, shape (K, L_i - 1)
        ``ln f_i(x)/f_i(0)`` in each group (eq. 25): -inf for a level that does not occur, inf if
        only the reference level does not occur, nan if neither occurs.
    h0 : list of m ndarrays, shape (L_i - 1,)
        The same fields for all groups combined.
    chisq : ndarray, shape (m,)
        ``q_i`` of eq. 27.
    df : ndarray of int, shape (m,)
        ``(K - 1)(L_i - 1)``, counting only nonempty groups and levels that occur.
    p : ndarray, shape (m,)
        Asymptotic p-value of `chisq`, from a chi-square distribution with `df` degrees of freedom;
        nan where `df` is zero. If Cochran's rule (`bbl.stats.goodness.is_sparse`) is not satisfied,
        p is instead the exact conditional p-value given the margins. It is computed from all tables
        if these can be enumerated, and otherwise from 1,999 random tables (with a fixed seed).
    exact : ndarray of bool, shape (m,)
        Whether p is the exact conditional p-value.
    is_drawn : ndarray of bool, shape (m,)
        Whether p was computed from random tables. If so, p is at least 1/2,000; a p-value of
        1/2,000 is an upper bound.
    """

    h: list[np.ndarray]
    h0: list[np.ndarray]
    chisq: np.ndarray
    df: np.ndarray
    p: np.ndarray
    exact: np.ndarray
    is_drawn: np.ndarray

    @property
    def is_bound(self) -> np.ndarray:
        """Whether p (m,) is an upper bound, because the statistics of all random tables were
        smaller.
        """
        return self.is_drawn & (self.p <= 1.0 / (RANDOM_TABLES + 1.0))

    @property
    def test(self) -> np.ndarray:
        """Text that describes how each p (m,) was computed; "" for a predictor without a test."""
        texts = np.where(self.exact, "exact", "chi-square").astype(object)
        texts[self.is_drawn] = "Monte Carlo"
        texts[self.is_bound] = "Monte Carlo, upper bound"
        texts[np.isnan(self.p)] = ""
        return texts


def likelihood_ratio(counts: Sequence[np.ndarray], prior_count: float = 0.0) -> LikelihoodRatio:
    """Test, for each predictor, whether its distribution is the same in all groups.

    Parameters
    ----------
    counts : sequence of m ndarrays, shape (K, L_i)
        Weighted counts of levels in each group.
    prior_count : float, default 0.0
        Pseudocount of each group and of the pooled rows, divided equally among the levels of the
        predictor.

    Notes
    -----
    The statistics are eqs. 25 and 27 of Woo & Wang without interactions, with ``0 ln 0 = 0``.
    The chi-square distribution requires rows in nearly all cells (Cochran 1954: expected counts of
    at least 1 in all cells, and 5 in 80 % of them); the permutation distribution given the margins,
    as in Fisher's test, is valid for any counts. If weights are not integers, neither distribution
    is valid, and p is nan. `prior_count` affects `chisq`, but not the exact p-value.

    Examples
    --------
    Sex (female, male) of people who died and who survived on the Titanic:

    >>> test = likelihood_ratio([np.array([[126, 1364], [344, 367]])])
    >>> test.chisq.round(4), test.df
    (array([434.4688]), array([1]))
    """
    from scipy.special import chdtrc

    tables = [np.asarray(n, dtype=float) for n in counts]
    fits = [_fit_predictor(n, prior_count) for n in tables]  # (h, h0, q) of each predictor
    chisq = np.array([fit[2] for fit in fits])
    # groups with rows, and levels that occur
    occurring = [n[n.sum(axis=1) > 0][:, n.sum(axis=0) > 0] for n in tables]
    df = np.array([max(len(n) - 1, 0) * max(n.shape[1] - 1, 0) for n in occurring], dtype=int)
    exact = np.array(
        [
            bool(df_i) and is_sparse(_expected(n).ravel())
            for n, df_i in zip(occurring, df, strict=True)
        ],
        dtype=bool,  # also without predictors
    )
    is_count = np.array([bool((n == np.rint(n)).all()) for n in tables], dtype=bool)
    exact &= is_count
    p = np.where((df > 0) & is_count, chdtrc(np.maximum(df, 1), chisq), np.nan)
    is_drawn = np.zeros(len(p), dtype=bool)
    budget = min(MAX_PARTIAL, ALL_PARTIAL // max(int(exact.sum()), 1))
    for i in np.flatnonzero(exact):
        listed = _listed_p(occurring[i]) if _is_listed(occurring[i]) else None
        if listed is None:
            listed = enumerated_p(occurring[i], budget)
        is_drawn[i] = listed is None
        p[i] = _drawn_p(occurring[i]) if listed is None else listed
    return LikelihoodRatio(
        [fit[0] for fit in fits], [fit[1] for fit in fits], chisq, df, p, exact, is_drawn
    )


def _is_listed(n: np.ndarray) -> bool:
    """Return whether all tables with the same margins as n (K, L) are enumerated."""
    return n.shape == (2, 2) and min(n.sum(axis=0).min(), n.sum(axis=1).min()) <= MAX_TABLES


def _expected(n: np.ndarray) -> np.ndarray:
    """Return the expected counts (K, L) under equal distributions in all groups."""
    return n.sum(axis=1, keepdims=True) * n.sum(axis=0) / n.sum()


def _ratio_statistic(n: np.ndarray) -> np.ndarray:
    """Return q of eq. 27 for tables (..., K, L), up to a constant that depends only on the
    margins.
    """
    from scipy.special import xlogy

    return 2.0 * xlogy(n, n).sum(axis=(-2, -1))


def _listed_p(n: np.ndarray) -> float:
    """Return the exact conditional p-value of a table n (2, 2), given its margins."""
    from scipy.stats import hypergeom

    r = np.rint(n.sum(axis=1).min())
    c = np.rint(n.sum(axis=0).min())
    total = np.rint(n.sum())
    # the cell of the smaller row and the smaller column determines a table
    cell = np.arange(min(r, c) + 1)
    tables = np.stack([cell, r - cell, c - cell, total - r - c + cell], axis=-1)
    possible = (tables >= 0).all(axis=1)
    probability = hypergeom.pmf(cell, total, r, c)[possible]
    as_large = _ratio_statistic(tables[possible].reshape(-1, 2, 2)) >= _least_as_large(n)
    return min(1.0, float(probability[as_large].sum()))


def _drawn_p(n: np.ndarray) -> float:
    """Return the Monte Carlo p-value of a table n (K, L), given its margins.

    The observed table is counted as one of the random tables.
    """
    from scipy.stats import random_table

    # margins (K,) and (L,)
    rows, columns = (np.rint(n.sum(axis=k)).astype(np.int64) for k in (1, 0))
    drawn = random_table(rows, columns).rvs(
        size=RANDOM_TABLES, random_state=np.random.default_rng(0)
    )
    return (1.0 + float((_ratio_statistic(drawn) >= _least_as_large(n)).sum())) / (
        RANDOM_TABLES + 1.0
    )


def _least_as_large(n: np.ndarray) -> float:
    """Return the statistic of a table n (K, L) minus a tolerance for rounding errors."""
    return float(_ratio_statistic(n)) * (1.0 - 1e-12)


def _fit_predictor(n: np.ndarray, prior_count: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the fields (K, L - 1), the pooled fields (L - 1,) and the statistic q of a predictor,
    given counts.

    ``q = 2 sum_k N_k (sum_x f_k(x) ln f_k(x) - sum_x f_0(x) ln f_0(x))``, where group k has size
    N_k and level proportions f_k, and f_0 are the level proportions of all rows.
    """
    from scipy.special import xlogy

    group_counts = n + prior_count / n.shape[1]
    pooled_counts = n.sum(axis=0) + prior_count / n.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_group = np.log(group_counts)
        log_pooled = np.log(pooled_counts)
        h = log_group[:, 1:] - log_group[:, :1]
        h0 = log_pooled[1:] - log_pooled[0]
        # 0/0 in groups without rows
        f = np.nan_to_num(group_counts / group_counts.sum(axis=1, keepdims=True))
        f0 = pooled_counts / pooled_counts.sum()
    q = 2.0 * float(n.sum(axis=1) @ (xlogy(f, f).sum(axis=1) - xlogy(f0, f0).sum()))
    # q can be negative by rounding, or because a prior count shrinks small groups more than the
    # pooled rows
    return h, h0, max(q, 0.0)
