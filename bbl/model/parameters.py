"""`Parameters`: the fitted fields and couplings of all response groups, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.model.layout import Layout

__all__ = ["Parameters"]


@dataclass(frozen=True)
class Parameters:
    """Fields ``h`` and couplings ``J`` of K groups and of the pooled fit."""

    layout: Layout  # position of each table in a parameter vector
    theta: np.ndarray  # (K, layout.size): one parameter vector per group
    # (layout.size,): the pooled fit (null model h0, J0), if available
    pooled: np.ndarray | None = None

    @property
    def shift(self) -> np.ndarray:
        """``dh``, ``dJ``: each group's parameters minus the pooled parameters.

        Without a pooled fit, these equal the parameters.
        """
        return self.theta if self.pooled is None else self.theta - self.pooled
