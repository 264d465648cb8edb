"""Compute weights for the members of an average, and compare their log-losses.

M, K and N are the numbers of members, groups and held-out rows.
"""

from __future__ import annotations

import numpy as np

from bbl.crossval import Scored
from bbl.stats.averaging import convex_weights
from bbl.stats.metrics import HELD_OUT, LossRecord

__all__ = [
    "CLEARLY_WORSE",
    "MIN_ERRORS",
    "beats_shares",
    "limited_equality",
    "losses_of",
    "shrinkage_to_shares",
    "weigh",
]

# a log-loss is clearly lower than another if the difference exceeds this many standard errors
MIN_ERRORS = 3.0
# maximum `equality`, in rows, of members that are clearly worse than the best one
CLEARLY_WORSE = 0.2
# candidate weights of the class proportions
SHARES_WEIGHTS = np.linspace(0.0, 1.0, 101)


def limited_equality(
    equality: np.ndarray, log_p: np.ndarray, row_weights: np.ndarray
) -> np.ndarray:
    """Limit `equality` (M,) to `CLEARLY_WORSE` for members that are clearly worse than the best.

    `log_p` (M, N) contains the log-probabilities of the observed groups in the held-out rows, and
    `row_weights` (N,) the weights of these rows.
    """
    # False if the fold has no training row from the row's group
    is_scored = np.isfinite(log_p).all(axis=0)
    log_p = log_p[:, is_scored]
    row_weights = row_weights[is_scored]
    best = log_p[(log_p @ row_weights).argmax()]
    is_worse = [
        _standard_errors(best - member_log_p, row_weights) > MIN_ERRORS for member_log_p in log_p
    ]
    return np.where(is_worse, np.minimum(equality, CLEARLY_WORSE), equality)


def beats_shares(
    log_p: np.ndarray, member_weights: np.ndarray, row_weights: np.ndarray, shares_log_p: np.ndarray
) -> bool:
    """Return whether the average of members has a clearly lower loss than the class proportions.

    `log_p` (M, N) and `shares_log_p` (N,) contain the log-probabilities of the observed groups in
    the held-out rows, as predicted by each of M members and by the class proportions of the
    training rows. `member_weights` has shape (M,) and `row_weights` (N,).
    """
    # False if the fold has no training row from the row's group
    is_scored = np.isfinite(log_p).all(axis=0)
    average_log_p = _average(log_p[:, is_scored], member_weights)
    gain = average_log_p - shares_log_p[is_scored]
    return _standard_errors(gain, row_weights[is_scored]) > MIN_ERRORS


def shrinkage_to_shares(
    log_p: np.ndarray, member_weights: np.ndarray, row_weights: np.ndarray, shares_log_p: np.ndarray
) -> float:
    """Return the weight (0 to 1) of the class proportions when they are averaged with the members.

    This is the largest weight at which the log-loss exceeds the minimum by at most one standard
    error of the difference, following the one-standard-error rule of Breiman et al. (1984). The
    arguments are the same as in `beats_shares`.
    """
    is_scored = np.isfinite(log_p).all(axis=0)
    average_log_p = _average(log_p[:, is_scored], member_weights)
    row_weights = row_weights[is_scored]
    with np.errstate(divide="ignore"):  # weights of 0
        # (weights, N) log-probabilities of the observed groups
        shrunk_log_p = np.logaddexp(
            np.log(1.0 - SHARES_WEIGHTS)[:, None] + average_log_p,
            np.log(SHARES_WEIGHTS)[:, None] + shares_log_p[is_scored],
        )
    best = shrunk_log_p[(shrunk_log_p @ row_weights).argmax()]
    is_close = [_standard_errors(best - one, row_weights) <= 1.0 for one in shrunk_log_p]
    return float(SHARES_WEIGHTS[is_close].max())


def _average(log_p: np.ndarray, member_weights: np.ndarray) -> np.ndarray:
    """Return ``ln sum_k weight_k P_k`` (N,) over members k with log-probabilities (M, N)."""
    averaged: np.ndarray = np.logaddexp.reduce(log_p + np.log(member_weights)[:, None], axis=0)
    return averaged


def _standard_errors(gain: np.ndarray, row_weights: np.ndarray) -> float:
    """Return the mean of the rows' gains (N,), divided by its standard error.

    A row with weight w counts as w identical rows.
    """
    total = float(row_weights.sum())
    summed = float(row_weights @ gain)
    # standard error of the sum
    error = float(np.sqrt(row_weights @ (gain - summed / total) ** 2)) if total else 0.0
    if not error:
        return np.inf if summed > 0.0 else 0.0
    return summed / error


def weigh(
    log_p: np.ndarray,
    scored: Scored,
    totals: np.ndarray,
    advice: str = "",
    equality: float | np.ndarray = 1.0,
) -> tuple[np.ndarray, np.ndarray, LossRecord | None]:
    """Return the weights (M,) and log-losses (M,) of the members, and the average's log-loss.

    Parameters
    ----------
    log_p : ndarray, shape (M, N)
        Log-probability of the observed group of each validated row, for each member.
    scored : Scored
        Scores of any member, which provide the groups, weights and folds of the validated rows.
    totals : ndarray, shape (K,)
        Total weight of each group in all rows.
    advice : str
        Hint for a log-loss above that of the class proportions.
    equality : float or ndarray, shape (M,), default 1.0
        Strength of the term that pulls weights towards equality: `a` in `convex_weights`, which
        maximises ``sum_rows v ln sum_k w_k P_k + sum_k a_k ln w_k`` over the weights w of members
        k, with row weights v.
    """
    # `convex_weights` ignores rows for which all members have the log-probability -inf
    weights = convex_weights(log_p, scored.weights, equality)
    losses, record = losses_of(log_p, weights, scored, totals, advice)
    return weights, losses, record


def losses_of(
    log_p: np.ndarray,
    weights: np.ndarray,
    scored: Scored,
    totals: np.ndarray,
    advice: str = "",
) -> tuple[np.ndarray, LossRecord | None]:
    """Return each member's log-loss (M,), and the log-loss of their average with `weights` (M,).

    The other arguments are the same as in `weigh`.
    """
    row_weights = scored.weights
    # False if the fold has no training row from the row's group
    is_scored = np.isfinite(log_p).all(axis=0)
    if not is_scored.any():
        return np.full(len(log_p), np.nan), None
    # from the log class proportions (F, K) in training rows
    baseline_log_p = scored.log_shares(totals)[scored.fold, scored.y]
    average_log_p = _average(log_p, weights)
    # mean of -ln P over the scored rows: (M,), then two numbers
    losses, loss, baseline = (
        -(log_p_of_rows[..., is_scored] @ row_weights[is_scored]) / row_weights[is_scored].sum()
        for log_p_of_rows in (log_p, average_log_p, baseline_log_p)
    )
    return losses, LossRecord(float(loss), float(baseline), HELD_OUT, advice)
