"""Log-loss of a classifier beside its baseline, and the warning if the classifier's loss is larger.

The *baseline* is the loss of the constant prediction: the class proportions, for every row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["HELD_OUT", "TRAINING", "LossRecord", "log_share", "shares_loss"]

HELD_OUT = "validated rows"
TRAINING = "training rows"
# relative excess over the baseline that counts as equal: pseudocounts and ridges cause as much
TOLERANCE = 1e-3
# significant digits to try: the fewest in which the two losses differ are printed
DIGITS = range(3, 12)


@dataclass(frozen=True)
class LossRecord:
    """The log-loss of a fitted classifier on some rows, and the baseline.

    Attributes
    ----------
    loss : float
        Mean of ``-ln P(y | x)``.
    baseline : float
        Mean loss of the class proportions in the training rows.
    rows : str
        Which rows the losses are of: "validated rows" of a cross-validation inside the fit, or
        "training rows".
    remedy : str
        A sentence on what lowers the loss; empty if nothing is known.

    Examples
    --------
    >>> record = LossRecord(0.674, 0.565, HELD_OUT, "Give calibrate='temperature'.")
    >>> record.is_worse
    True
    >>> print(record)
    0.674 on validated rows; 0.565 for the class proportions
    """

    loss: float
    baseline: float
    rows: str
    remedy: str = ""

    @property
    def is_worse(self) -> bool:
        """Whether the loss exceeds the baseline by more than a thousandth of it."""
        return self.loss > self.baseline * (1.0 + TOLERANCE)

    @property
    def verdict(self) -> str:
        """The warning about a loss above the baseline, with the remedy; empty if `is_worse` is
        false.
        """
        if not self.is_worse:
            return ""
        loss, baseline = self._formatted
        remedy = self.remedy or "No better prediction was found with these predictors and terms."
        return (
            f"On the {self.rows} the log-loss is {loss}, against {baseline} for the class "
            f"proportions: predicting them for every row is better than these probabilities. "
            f"{remedy}"
        )

    @property
    def _formatted(self) -> tuple[str, str]:
        """Loss and baseline with the fewest digits in which they differ; with three if they do
        not.
        """
        for digits in DIGITS:
            loss = f"{self.loss:.{digits}g}"
            baseline = f"{self.baseline:.{digits}g}"
            if loss != baseline:
                return loss, baseline
        return f"{self.loss:.3g}", f"{self.baseline:.3g}"

    def __str__(self) -> str:
        loss, baseline = self._formatted
        return f"{loss} on {self.rows}; {baseline} for the class proportions"


def log_share(totals: np.ndarray) -> np.ndarray:
    """Return the log shares (..., K) of groups with total weights `totals` (..., K); -inf for an
    empty group.
    """
    with np.errstate(divide="ignore"):
        return np.log(totals / totals.sum(axis=-1, keepdims=True))


def shares_loss(totals: np.ndarray) -> float:
    """Return the log-loss of the class proportions, on the rows with total weights `totals`
    (K,).

    Examples
    --------
    >>> shares_loss(np.array([3.0, 3.0, 0.0]))
    0.6931471805599453
    """
    present = totals[totals > 0.0]
    return float(-(present / present.sum()) @ log_share(present))
