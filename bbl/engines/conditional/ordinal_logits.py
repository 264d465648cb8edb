"""Adjacent and cumulative logits for an ordered response, with one function f of the predictors."""

# Groups are in order; k of them have rows, and the first of these is the reference group. The
# parameters of the logits are an *intercept* c_g of each group after the first, and f:
#
#   adjacent:   ln P(y = g) / P(y = first) = c_g + v_g f
#   cumulative: ln P(y >= g) / P(y < g)    = c_g + f
#
# where v_g is the number of steps from the first group,
# so that the thresholds are c_g - c_{g-1} and -c_g. Both log-likelihoods are concave. Letters: n
# distinct rows, K groups in all.

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bbl.model.cumulative import log_group_probabilities, odds_logits
from bbl.stats.metrics import log_probabilities

__all__ = ["AdjacentLogits", "CumulativeLogits", "Derivatives", "OrdinalLogits", "ordinal_logits"]


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of a mean log-likelihood with respect to f (at n rows) and the intercepts.

    Attributes
    ----------
    f : ndarray, shape (n,)
    c : ndarray, shape (k - 1,)
    minus_ff : ndarray, shape (n,)
        Minus the second derivatives with respect to f.
    minus_cf : ndarray, shape (n, k - 1)
        Minus the mixed derivatives.
    minus_cc : ndarray, shape (k - 1, k - 1)
        Minus the second derivatives with respect to the intercepts.
    """

    f: np.ndarray
    c: np.ndarray
    minus_ff: np.ndarray
    minus_cf: np.ndarray
    minus_cc: np.ndarray


@dataclass(frozen=True)
class OrdinalLogits(ABC):
    """Probabilities of k ordered groups, given f and k - 1 intercepts.

    In the methods below, `limits` (n, k) or (n, k - 1) is added to the logits. It is infinite for
    logits that diverge because the groups are separated, and 0 otherwise.

    Attributes
    ----------
    groups : ndarray of intp, shape (k,)
        The groups with rows, in order.
    """

    groups: np.ndarray

    @property
    @abstractmethod
    def multipliers(self) -> np.ndarray:
        """Factors (k,) of f in the logits of the groups; 0 for the first group."""

    @property
    @abstractmethod
    def penalty_factor(self) -> float:
        """Multiplier of ``ridge |f|^2 / 2``.

        For two groups, it is 1/2, as with nominal groups.
        """

    @abstractmethod
    def log_p(
        self, f: np.ndarray, c: np.ndarray, limits: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Return ln P(group) (n, k), or None if the intercepts are not in order."""

    @abstractmethod
    def derivatives(
        self, f: np.ndarray, c: np.ndarray, shares: np.ndarray, limits: np.ndarray | None = None
    ) -> Derivatives:
        """Return the derivatives of ``sum(shares * log_p)``, with the weights `shares` (n, k)."""

    @abstractmethod
    def intercepts(self, totals: np.ndarray) -> np.ndarray:
        """Return the intercepts (k - 1,) at f = 0, given the total weights (k,) of the groups."""

    @abstractmethod
    def intercepts_of(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f (n,) and the intercepts (k - 1,), given fitted probabilities (n, k)."""

    @abstractmethod
    def logit_scores(self, p: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the derivatives (n, k) of ln P(y) with respect to the logits.

        They are 0 for the first group.

        `p` (n, k) contains probabilities, and `y` (n,) positions among the k groups.
        """


@dataclass(frozen=True)
class AdjacentLogits(OrdinalLogits):
    """Multinomial logits for which all log odds of adjacent groups depend on f in the same way."""

    @property
    def multipliers(self) -> np.ndarray:
        """Number of steps (k,) from the first group to each group."""
        return (self.groups - self.groups[0]).astype(float)

    @property
    def penalty_factor(self) -> float:
        """Sum of squared deviations of the multipliers from their mean.

        With this factor, the penalty is the same as for nominal groups with functions that are
        multiples of f.
        """
        return float(((self.multipliers - self.multipliers.mean()) ** 2).sum())

    def log_p(
        self, f: np.ndarray, c: np.ndarray, limits: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Return ln P(group) (n, k)."""
        scores = np.append(0.0, c) + f[:, None] * self.multipliers
        return log_probabilities(scores if limits is None else scores + limits)

    def derivatives(
        self, f: np.ndarray, c: np.ndarray, shares: np.ndarray, limits: np.ndarray | None = None
    ) -> Derivatives:
        """Return the derivatives of ``sum(shares * log_p)``."""
        log_p = self.log_p(f, c, limits)
        assert log_p is not None  # noqa: S101  # any intercepts are allowed
        row_shares = shares.sum(axis=1)
        p = np.exp(log_p)
        v = self.multipliers
        centred = v - (p @ v)[:, None]
        expected = row_shares[:, None] * p
        residual = shares - expected
        inner = expected[:, 1:]
        return Derivatives(
            residual @ v,
            residual[:, 1:].sum(axis=0),
            (expected * centred**2).sum(axis=1),
            inner * centred[:, 1:],
            np.diag(inner.sum(axis=0)) - inner.T @ p[:, 1:],
        )

    def intercepts(self, totals: np.ndarray) -> np.ndarray:
        """Return the log ratios (k - 1,) of later groups' totals to the first group's total."""
        return np.log(totals[1:] / totals[0])

    def intercepts_of(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f (n,), zero in the first row, and intercepts (k - 1,)."""
        scores = np.log(np.maximum(p, np.finfo(float).tiny))
        c = scores[0, 1:] - scores[0, 0]
        last = self.multipliers[-1]
        return (scores[:, -1] - scores[:, 0] - c[-1]) / last, c

    def logit_scores(self, p: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the residuals (n, k), which are group indicators minus probabilities."""
        out = -p
        out[np.arange(len(p)), y] += 1.0
        out[:, 0] = 0.0
        return out


@dataclass(frozen=True)
class CumulativeLogits(OrdinalLogits):
    """Cumulative logits with a common f: the proportional odds model."""

    @property
    def multipliers(self) -> np.ndarray:
        """Factors (k,) of f: 0 for the first group, 1 for all others."""
        return (np.arange(len(self.groups)) > 0).astype(float)

    @property
    def penalty_factor(self) -> float:
        """Multiplier of ``ridge |f|^2 / 2``, which is 1/2 as for two nominal groups."""
        return 0.5

    def log_p(
        self, f: np.ndarray, c: np.ndarray, limits: np.ndarray | None = None
    ) -> np.ndarray | None:
        """Return ln P(group) (n, k), or None if the intercepts do not decrease.

        With limits, intercepts do not have to decrease where the distance between two thresholds is
        infinite. If two other thresholds are not in order, the group between them has ln P = -inf.
        """
        from scipy.special import log_expit

        if limits is None:
            if (np.diff(c) >= 0.0).any():
                return None
            return log_group_probabilities(np.column_stack([np.zeros(len(f)), f[:, None] + c]))
        logits = f[:, None] + c + limits
        out = np.zeros((len(f), 1 + len(c)))
        out[:, 1:] += log_expit(logits)
        out[:, :-1] += log_expit(-logits)
        gaps = self._gaps(c, limits)
        with np.errstate(divide="ignore"):
            out[:, 1:-1] += np.log(-np.expm1(-np.maximum(gaps, 0.0)))
        return out

    def _gaps(self, c: np.ndarray, limits: np.ndarray) -> np.ndarray:
        """Return the distances (n, k - 2) between adjacent thresholds; infinite if one diverges."""
        is_infinite = np.isinf(limits)
        return np.where(is_infinite[:, :-1] | is_infinite[:, 1:], np.inf, c[:-1] - c[1:])

    def derivatives(
        self, f: np.ndarray, c: np.ndarray, shares: np.ndarray, limits: np.ndarray | None = None
    ) -> Derivatives:
        """Return the derivatives of ``sum(shares * log_p)``."""
        from scipy.special import expit

        logits = f[:, None] + c
        gaps = np.broadcast_to(c[:-1] - c[1:], (len(f), max(len(c) - 1, 0)))
        if limits is not None:
            logits = logits + limits
            gaps = self._gaps(c, limits)
        above = expit(logits)  # P(y >= g)
        below = expit(-logits)
        slope = above * below
        touching = shares[:, :-1] + shares[:, 1:]  # weight of the two groups at each threshold
        # derivatives of ln (1 - exp(-gap)) for the groups between two thresholds
        middle = shares[:, 1:-1]
        gaps = np.clip(
            gaps, 1e-300, 600.0
        )  # exp(-600) is negligible, and its inverse does not overflow
        pull = (middle / np.expm1(gaps)).sum(axis=0)
        curve = (middle / (4.0 * np.sinh(gaps / 2.0) ** 2)).sum(axis=0)
        to_c = shares[:, 1:] * below - shares[:, :-1] * above
        minus_cf = touching * slope
        c_gradient = to_c.sum(axis=0)
        c_gradient[:-1] += pull
        c_gradient[1:] -= pull
        minus_cc = np.diag(minus_cf.sum(axis=0))
        first = np.arange(len(curve))
        minus_cc[first, first] += curve
        minus_cc[first + 1, first + 1] += curve
        minus_cc[first, first + 1] -= curve
        minus_cc[first + 1, first] -= curve
        return Derivatives(to_c.sum(axis=1), c_gradient, minus_cf.sum(axis=1), minus_cf, minus_cc)

    def intercepts(self, totals: np.ndarray) -> np.ndarray:
        """Return the logits (k - 1,) of the proportions of rows at or above each later group."""
        return odds_logits(totals[None] / totals.sum())[0]

    def intercepts_of(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return f (n,), zero in the first row, and intercepts (k - 1,)."""
        logits = odds_logits(p)
        c = logits[0]
        # the logit nearest to 0 in each row is the most accurate
        nearest = np.abs(logits).argmin(axis=1)
        return logits[np.arange(len(p)), nearest] - c[nearest], c

    def logit_scores(self, p: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the derivatives (n, k) of ln P(y) with respect to the cumulative logits."""
        above = np.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
        slope = above * np.cumsum(p[:, :-1], axis=1)
        row = np.arange(len(p))
        ratio = slope / np.maximum(p[row, y], np.finfo(float).tiny)[:, None]
        out = np.zeros(p.shape)
        threshold = np.arange(1, p.shape[1])
        out[:, 1:] = ratio * (
            (threshold == y[:, None]).astype(float) - (threshold == 1 + y[:, None])
        )
        return out


def ordinal_logits(logits: str, groups: np.ndarray) -> OrdinalLogits:
    """Return the "adjacent" or "cumulative" logits for the groups (k,) that have rows."""
    return AdjacentLogits(groups) if logits == "adjacent" else CumulativeLogits(groups)
