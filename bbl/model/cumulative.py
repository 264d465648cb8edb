"""Cumulative logits for an ordered response: group probabilities and their derivatives."""

# With K groups in order, the cumulative logit of group g is ``ln P(y >= g) / P(y < g)``. It has no
# meaning for the first group with rows. Groups without rows have probability 0.

from __future__ import annotations

import numpy as np

__all__ = ["log_group_probabilities", "logit_slopes", "odds_logits"]


def log_group_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return ``ln P(y = g | row)`` (n, K) from cumulative logits (n, K).

    The logits of a group without rows are -inf. The logits of the first group with rows are not
    used. The other logits must decrease from group to group.

    Examples
    --------
    >>> np.exp(log_group_probabilities(np.array([[0.0, 1.0, -1.0]]))).round(3)
    array([[0.269, 0.462, 0.269]])
    """
    from scipy.special import log_expit

    has_rows = ~np.isneginf(logits).all(axis=0)
    n_groups = int(has_rows.sum())
    out = np.full(logits.shape, -np.inf)
    if not n_groups:
        return out
    inner = logits[:, has_rows][:, 1:]
    # P(y = g) = F(l_g) - F(l_{g+1}) = F(l_g) F(-l_{g+1}) (1 - exp(l_{g+1} - l_g)), with the
    # logistic function F: without cancellation
    log_p = np.zeros((len(logits), n_groups))
    log_p[:, 1:] += log_expit(inner)
    log_p[:, :-1] += log_expit(-inner)
    if n_groups > 2:
        with np.errstate(divide="ignore"):
            log_p[:, 1:-1] += np.log(-np.expm1(inner[:, 1:] - inner[:, :-1]))
    out[:, has_rows] = log_p
    return out


def odds_logits(p: np.ndarray) -> np.ndarray:
    """Return the cumulative logits (n, k - 1) of groups after the first, from probabilities (n, k).

    All groups must have rows. Probabilities are summed over the smaller tail, which keeps small
    tail probabilities accurate.
    """
    above = np.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
    below = np.cumsum(p[:, :-1], axis=1)
    tiny = np.finfo(float).tiny
    return np.log(np.maximum(above, tiny)) - np.log(np.maximum(below, tiny))


def logit_slopes(p: np.ndarray) -> np.ndarray:
    """Return the derivatives (n, K, K) of P(y = g) with respect to the logit of group h.

    `p` (n, K) contains the probabilities of the groups. The derivatives with respect to the logit
    of the first group are zero.
    """
    n, K = p.shape
    out = np.zeros((n, K, K))
    above = np.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
    # derivative (n, K - 1) of P(y >= h)
    slope = above * np.cumsum(p[:, :-1], axis=1)
    inner = np.arange(1, K)
    out[:, inner, inner] = slope
    out[:, inner - 1, inner] = -slope
    return out
