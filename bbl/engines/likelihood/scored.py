"""Tables of states and junction trees for models with couplings that are linear in scores.

The classes have the same methods as those for nominal models, but use the r free parameters of
`bbl.model.scores.ScoreMap` instead of all parameters. The statistics of couplings are products of
scores instead of indicators.
"""

from __future__ import annotations

import numpy as np

from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import JunctionTree, Margins
from bbl.model.layout import Layout
from bbl.model.scores import ScoreMap, is_scored, score_map

__all__ = ["ScoredStates", "ScoredTree", "tied_parameters"]


def tied_parameters(layout: Layout) -> ScoreMap | None:
    """Return the map from free to all parameters; None if all parameters of the layout are free."""
    shared = score_map(layout)
    return None if shared is None or shared.n == layout.size else shared


class ScoredStates(StateTable):
    """`StateTable` for the r free parameters of a layout with scores."""

    def __init__(self, layout: Layout, shared: ScoreMap):
        super().__init__(layout)
        self.shared = shared
        self.size = shared.n

    @property
    def margin_scopes(self) -> list[tuple[int, ...]]:
        """Scopes with parameters that form a full marginal table, i.e. fields and nominal terms."""
        return [s for s in self.layout.scopes if len(s) == 1 or not is_scored(self.layout, s)]

    def of_margin(self, direction: np.ndarray) -> np.ndarray:
        """Convert a direction (layout.size,) for `margin_scopes` to free parameters."""
        return direction[self.shared.first]

    def energies(self, theta: np.ndarray) -> np.ndarray:
        """Return the energies (n,) of all states for the free parameters (r,)."""
        return super().energies(self.shared.expand(theta))

    def moments(self, values: np.ndarray) -> np.ndarray:
        """Return the sum (r,) of each statistic over states, weighted by `values` (n,)."""
        return self.shared.gather(super().moments(values))

    def indicator_products(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (r, r) of products of two statistics over weighted states."""
        return self.shared.project(super().indicator_products(values))

    def indicators(self) -> np.ndarray:
        """Return the statistics (n, r) of all free parameters in all states."""
        return self.shared.gather_rows(super().indicators())


class ScoredTree(JunctionTree):
    """`JunctionTree` for the r free parameters of a layout with scores."""

    def __init__(self, layout: Layout, order: list[int], shared: ScoreMap):
        super().__init__(layout, order)
        self.shared = shared

    def margins(
        self, theta: np.ndarray, log_support: np.ndarray | None = None, spent: Margins | None = None
    ) -> Margins:
        """Return ln Z and the probabilities of all cliques for the free parameters (r,)."""
        return super().margins(self.shared.expand(theta), log_support, spent)

    def moments_of(self, values: np.ndarray) -> np.ndarray:
        """Return the sum (r,) of `values` (n_cells,) times each statistic."""
        return self.shared.gather(super().moments_of(values))

    def information(self, margins: Margins) -> np.ndarray:
        """Return the Fisher information (r, r) per observation."""
        return self.shared.project(super().information(margins))
