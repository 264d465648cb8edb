"""Results: what the verbs return; frozen, their methods only arrange what the rooms below compute."""

from bbl.results.average import AverageResults
from bbl.results.blocks import BiclusterResults
from bbl.results.cv import CVResults
from bbl.results.density import DensityResults
from bbl.results.draws import GroupParameters, MLEstimate, SampleResults
from bbl.results.fit import BBLResults
from bbl.results.model import LogLikelihood

__all__ = [
    "AverageResults",
    "BBLResults",
    "BiclusterResults",
    "CVResults",
    "DensityResults",
    "GroupParameters",
    "LogLikelihood",
    "MLEstimate",
    "SampleResults",
]
