"""FittedMachine: the base class of fitted Boltzmann machines with or without a response."""

from __future__ import annotations

from bbl.results.machine.composite import CompositeMixin
from bbl.results.machine.cross_validation import CrossValidationMixin
from bbl.results.machine.distribution import DistributionMixin
from bbl.results.machine.figures import FiguresMixin
from bbl.results.machine.goodness import GoodnessMixin
from bbl.results.machine.interaction_graph import GraphMixin
from bbl.results.machine.monte_carlo import ChainsMixin
from bbl.results.machine.nested import machine_ratio_test
from bbl.results.machine.odds_ratios import OddsRatiosMixin
from bbl.results.machine.uncertainty import UncertaintyMixin
from bbl.results.model import ModelResults

__all__ = ["FittedMachine"]


class FittedMachine(
    UncertaintyMixin,
    CompositeMixin,
    GoodnessMixin,
    OddsRatiosMixin,
    DistributionMixin,
    ChainsMixin,
    CrossValidationMixin,
    GraphMixin,
    FiguresMixin,
):
    """Base class of `BBLResults` and `DensityResults`, with one mixin per topic."""

    def _ratio_test(self, other: ModelResults) -> dict[str, float | int | str]:
        return machine_ratio_test(self, other)
