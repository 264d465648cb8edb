"""bbl: learning from categorical data with Boltzmann machines.

``bbl(formula, data)`` fits a fully visible Boltzmann machine for each response group and classifies by Bayes' rule.
"""

import bbl.datasets as datasets
import bbl.errors as errors
import bbl.networks as networks
from bbl.api.average import average
from bbl.api.bicluster import bicluster
from bbl.api.compare import anova, etable
from bbl.api.effective import effective_size, effective_weights
from bbl.api.enrichment import enrichment
from bbl.api.fit import bbl, crossVal
from bbl.api.load import load
from bbl.api.onegroup import mlestimate
from bbl.api.scores import log_scores
from bbl.api.shooter import shooter
from bbl.api.simulate import mcSample, randompar, randomsamp, sample_xi
from bbl.design.bins import bin, lump
from bbl.design.readers import freq2raw, readFasta, removeConst
from bbl.engines import Conditional, HighOrder, MeanField, NaiveBayes, PersistentVI, Posterior, PseudoLikelihood
from bbl.errors import BBLError, ConvergenceWarning, DataWarning
from bbl.report.plot import plot_comparison
from bbl.results import (
    AverageResults,
    BBLResults,
    BiclusterResults,
    CVResults,
    DensityResults,
    GroupParameters,
    MLEstimate,
    SampleResults,
)
from bbl.results.shooter import ShooterResults

__version__ = "0.1.0"

__all__ = [
    "BBLError",
    "AverageResults",
    "BBLResults",
    "BiclusterResults",
    "CVResults",
    "Conditional",
    "ConvergenceWarning",
    "DataWarning",
    "DensityResults",
    "GroupParameters",
    "HighOrder",
    "MLEstimate",
    "MeanField",
    "NaiveBayes",
    "PersistentVI",
    "Posterior",
    "PseudoLikelihood",
    "SampleResults",
    "ShooterResults",
    "anova",
    "average",
    "bbl",
    "bicluster",
    "bin",
    "crossVal",
    "datasets",
    "enrichment",
    "effective_size",
    "effective_weights",
    "errors",
    "etable",
    "freq2raw",
    "load",
    "lump",
    "log_scores",
    "mcSample",
    "mlestimate",
    "networks",
    "plot_comparison",
    "randompar",
    "randomsamp",
    "readFasta",
    "removeConst",
    "sample_xi",
    "shooter",
]
