"""Parameters: the fitted fields and couplings of all response groups as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.model.layout import Layout

__all__ = ["Parameters"]


@dataclass(frozen=True)
class Parameters:
    """Fields ``h`` and couplings ``J`` of K groups, and of the pooled fit.

    Attributes
    ----------
    layout : Layout
        Where each table lies in a parameter vector.
    theta : ndarray of float64, shape (K, layout.size)
        One parameter vector per response group.
    pooled : ndarray of float64, shape (layout.size,), or None
        The fit of all rows together (the null model ``h0``, ``J0``), if it was made.
    """

    layout: Layout
    theta: np.ndarray
    pooled: np.ndarray | None = None

    @property
    def shift(self) -> np.ndarray:
        """``dh``, ``dJ``: each group's parameters less the pooled ones, or as they are without a pooled fit."""
        return self.theta if self.pooled is None else self.theta - self.pooled
