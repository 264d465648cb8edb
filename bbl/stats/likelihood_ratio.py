"""Inference about parameters: the likelihood-ratio test of each predictor under naive Bayes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["LikelihoodRatio", "likelihood_ratio"]


@dataclass(frozen=True)
class LikelihoodRatio:
    """Naive Bayes fields of m predictors in K groups, and the test that they are the same in all groups.

    Attributes
    ----------
    h : list of m ndarrays, shape (K, L_i - 1)
        ``ln f_i(x)/f_i(0)`` of every group (eq. 25): -inf for a level that never occurs, inf where only the
        reference level never occurs, nan where neither does.
    h0 : list of m ndarrays, shape (L_i - 1,)
        The same for all groups together.
    chisq : ndarray, shape (m,)
        ``q_i`` of eq. (27).
    df : ndarray of int, shape (m,)
        ``(K - 1)(L_i - 1)``.
    p : ndarray, shape (m,)
        Probability that a chi-square variable of `df` degrees of freedom exceeds `chisq`; nan for a single group.
    """

    h: list[np.ndarray]
    h0: list[np.ndarray]
    chisq: np.ndarray
    df: np.ndarray
    p: np.ndarray


def likelihood_ratio(counts: Sequence[np.ndarray], prior_count: float = 0.0) -> LikelihoodRatio:
    """Test, predictor by predictor, whether its levels are distributed alike in all groups.

    Parameters
    ----------
    counts : sequence of m ndarrays, shape (K, L_i)
        Weighted count of every level in every group.
    prior_count : float, default 0.0
        Pseudocount of each group, and of all groups together, spread evenly over the levels of a predictor.

    Returns
    -------
    LikelihoodRatio

    Notes
    -----
    Eqs. (25) and (27) of Woo & Wang, with ``0 ln 0 = 0``. Interactions play no part.

    Examples
    --------
    Sex (female, male) of those who died and of those who survived on the Titanic:

    >>> test = likelihood_ratio([np.array([[126, 1364], [344, 367]])])
    >>> test.chisq.round(4), test.df
    (array([434.4688]), array([1]))
    """
    from scipy.special import chdtrc

    fits = [_one_predictor(np.asarray(n, dtype=float), prior_count) for n in counts]
    chisq = np.array([fit[2] for fit in fits])
    df = np.array([(len(n) - 1) * (np.shape(n)[1] - 1) for n in counts])
    return LikelihoodRatio([fit[0] for fit in fits], [fit[1] for fit in fits], chisq, df, chdtrc(df, chisq))


def _one_predictor(n: np.ndarray, prior_count: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the fields (K, L - 1), the pooled fields (L - 1,) and the statistic q of one predictor."""
    from scipy.special import xlogy

    group, pooled = n + prior_count / n.shape[1], n.sum(axis=0) + prior_count / n.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_group, log_pooled = np.log(group), np.log(pooled)
        h, h0 = log_group[:, 1:] - log_group[:, :1], log_pooled[1:] - log_pooled[0]
        f = np.nan_to_num(group / group.sum(axis=1, keepdims=True))  # 0/0 in a group without rows
        f0 = pooled / pooled.sum()
    q = 2.0 * float(n.sum(axis=1) @ (xlogy(f, f).sum(axis=1) - xlogy(f0, f0).sum()))
    # rounding, or a prior count (it pulls small groups harder than all rows together), can make q negative
    return h, h0, max(q, 0.0)
