"""Log-loss of a classifier and of the shares of the groups, and the warning if the former is larger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["HELD_OUT", "TRAINING", "LossRecord", "log_share", "shares_loss"]

HELD_OUT = "validated rows"
TRAINING = "training rows"
MARGIN = 1e-3  # share of the baseline up to which a loss above it is as good: pseudocounts and ridges make so much
DIGITS = range(3, 12)  # significant digits: as few as tell the two losses apart


@dataclass(frozen=True)
class LossRecord:
    """The log-loss of a fitted classifier on some rows, beside that of the shares of the groups.

    Attributes
    ----------
    loss : float
        Mean of ``-ln P(y | x)``.
    baseline : float
        The same of the constant prediction: of each row the shares of the groups in the training rows.
    rows : str
        Which rows these are: "validated rows" of a cross-validation inside the fit, or "training rows".
    remedy : str
        What lowers the loss, as a sentence; empty where nothing is known that does.

    Examples
    --------
    >>> record = LossRecord(0.674, 0.565, HELD_OUT, "Give calibrate='temperature'.")
    >>> record.is_worse
    True
    >>> print(record)
    0.674 of validated rows; 0.565 of the shares of the groups
    """

    loss: float
    baseline: float
    rows: str
    remedy: str = ""

    @property
    def is_worse(self) -> bool:
        """Whether the constant prediction has the smaller loss, by more than a thousandth."""
        return self.loss > self.baseline * (1.0 + MARGIN)

    @property
    def verdict(self) -> str:
        """The sentence about a log-loss above that of the shares, with the remedy; empty if it is not above."""
        if not self.is_worse:
            return ""
        loss, baseline = self._numbers
        remedy = self.remedy or "No better prediction from these predictors and terms is known than these shares."
        return (
            f"On the {self.rows} the log-loss is {loss}, against {baseline} of the shares of the groups: the same "
            f"prediction for every row is better than these probabilities. {remedy}"
        )

    @property
    def _numbers(self) -> tuple[str, str]:
        for digits in DIGITS:
            loss, baseline = f"{self.loss:.{digits}g}", f"{self.baseline:.{digits}g}"
            if loss != baseline:
                break
        else:
            return f"{self.loss:.3g}", f"{self.baseline:.3g}"
        return loss, baseline

    def __str__(self) -> str:
        loss, baseline = self._numbers
        return f"{loss} of {self.rows}; {baseline} of the shares of the groups"


def log_share(totals: np.ndarray) -> np.ndarray:
    """Return the logarithms of the shares of the groups, shape (..., K), from their `totals`; -inf of an empty one."""
    with np.errstate(divide="ignore"):
        return np.log(totals / totals.sum(axis=-1, keepdims=True))


def shares_loss(totals: np.ndarray) -> float:
    """Return the log-loss of the shares of the groups on rows of which each group has `totals` (K,).

    Examples
    --------
    >>> shares_loss(np.array([3.0, 3.0, 0.0]))
    0.6931471805599453
    """
    present = totals[totals > 0.0]
    return float(-(present / present.sum()) @ log_share(present))
