"""Results: what the verbs return; frozen, their methods only arrange what the rooms below compute."""

from bbl.results.blocks import BiclusterResults
from bbl.results.classifier import LogLikelihood
from bbl.results.cv import CVResults
from bbl.results.draws import GroupParameters, MLEstimate, SampleResults
from bbl.results.fit import BBLResults

__all__ = [
    "BBLResults",
    "BiclusterResults",
    "CVResults",
    "GroupParameters",
    "LogLikelihood",
    "MLEstimate",
    "SampleResults",
]
