"""Parameters: the fitted fields and couplings of all response groups as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.model.layout import Layout

__all__ = ["Parameters"]


@dataclass(frozen=True)
class Parameters:
    """Fields ``h`` and couplings ``J`` of K groups, and of the pooled fit, that of the rows of all
    groups as one.
    """

    layout: Layout  # position of each table in a parameter vector
    theta: np.ndarray  # (K, layout.size): one parameter vector per group
    # (layout.size,): the fit of all rows (null model h0, J0), if it was made
    pooled: np.ndarray | None = None

    @property
    def shift(self) -> np.ndarray:
        """``dh``, ``dJ``: each group's parameters less the pooled ones, or the parameters if there
        is no pooled fit.
        """
        return self.theta if self.pooled is None else self.theta - self.pooled
