"""bbl: Boltzmann machines for categorical data.

``bbl(formula, data)`` fits a fully visible Boltzmann machine for each response group and classifies
by Bayes' rule.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import bbl.datasets as datasets
    import bbl.errors as errors
    import bbl.networks as networks
    from bbl.api.bicluster import bicluster, du_process
    from bbl.api.compare import anova, etable
    from bbl.api.effective import effective_size, effective_weights
    from bbl.api.enrichment import enrichment
    from bbl.api.load import load
    from bbl.api.machine.average import average
    from bbl.api.machine.crossval import crossVal
    from bbl.api.machine.fit import bbl
    from bbl.api.machine.graphs import graphs
    from bbl.api.machine.onegroup import mlestimate
    from bbl.api.machine.scores import log_scores
    from bbl.api.machine.simulate import mcSample, randompar, randomsamp, sample_xi
    from bbl.api.machine.spins import from_spins, to_spins
    from bbl.api.machine.step import step
    from bbl.api.sample_rows import sample_rows
    from bbl.api.shooter import shooter
    from bbl.design.bins import bin, lump
    from bbl.design.readers import freq2raw, readFasta, removeConst
    from bbl.design.survey import survey
    from bbl.engines import (
        Boosting,
        Conditional,
        ContrastiveDivergence,
        HighOrder,
        MarkovBlanket,
        MaximumLikelihood,
        MeanField,
        NaiveBayes,
        PersistentVI,
        Posterior,
        ProbabilityFlow,
        PseudoLikelihood,
    )
    from bbl.errors import BBLError, ConvergenceWarning, DataWarning
    from bbl.report.machine.plot import plot_comparison
    from bbl.results.bicluster.bicluster import BiclusterResults
    from bbl.results.comparisons.average import AverageResults
    from bbl.results.comparisons.graphs import GraphsResults
    from bbl.results.comparisons.step import StepResults
    from bbl.results.machine.cv import CVResults
    from bbl.results.machine.density import DensityResults
    from bbl.results.machine.draws import GroupParameters, MLEstimate, SampleResults
    from bbl.results.machine.fit import BBLResults
    from bbl.results.machine.spins import SpinParameters
    from bbl.results.shooter.shooter import ShooterResults
    from bbl.sklearn import (  # noqa: F401  # not in __all__, see ESTIMATORS_BY_MODULE
        BBLClassifier,
        BinningTransformer,
        BNClassifier,
        PrototypeBiclustering,
        ScoreFeatures,
        ShooterClassifier,
        ShooterFeatures,
    )

__version__ = "1.0.0"

__all__ = [
    "AverageResults",
    "BBLError",
    "BBLResults",
    "BiclusterResults",
    "Boosting",
    "CVResults",
    "Conditional",
    "ContrastiveDivergence",
    "ConvergenceWarning",
    "DataWarning",
    "DensityResults",
    "GraphsResults",
    "GroupParameters",
    "HighOrder",
    "MLEstimate",
    "MarkovBlanket",
    "MaximumLikelihood",
    "MeanField",
    "NaiveBayes",
    "PersistentVI",
    "Posterior",
    "ProbabilityFlow",
    "PseudoLikelihood",
    "SampleResults",
    "ShooterResults",
    "SpinParameters",
    "StepResults",
    "anova",
    "average",
    "bbl",
    "bicluster",
    "bin",
    "crossVal",
    "datasets",
    "du_process",
    "effective_size",
    "effective_weights",
    "enrichment",
    "errors",
    "etable",
    "freq2raw",
    "from_spins",
    "graphs",
    "load",
    "log_scores",
    "lump",
    "mcSample",
    "mlestimate",
    "networks",
    "plot_comparison",
    "randompar",
    "randomsamp",
    "readFasta",
    "removeConst",
    "sample_rows",
    "sample_xi",
    "shooter",
    "step",
    "survey",
    "to_spins",
]

# public names by the module that defines them; they are imported on first access
NAMES_BY_MODULE = {
    "bbl.api.machine.average": ("average",),
    "bbl.api.bicluster": ("bicluster", "du_process"),
    "bbl.api.compare": ("anova", "etable"),
    "bbl.api.effective": ("effective_size", "effective_weights"),
    "bbl.api.enrichment": ("enrichment",),
    "bbl.api.machine.crossval": ("crossVal",),
    "bbl.api.machine.fit": ("bbl",),
    "bbl.api.machine.graphs": ("graphs",),
    "bbl.api.load": ("load",),
    "bbl.api.machine.onegroup": ("mlestimate",),
    "bbl.api.machine.scores": ("log_scores",),
    "bbl.api.sample_rows": ("sample_rows",),
    "bbl.api.shooter": ("shooter",),
    "bbl.api.machine.simulate": ("mcSample", "randompar", "randomsamp", "sample_xi"),
    "bbl.api.machine.spins": ("from_spins", "to_spins"),
    "bbl.api.machine.step": ("step",),
    "bbl.design.bins": ("bin", "lump"),
    "bbl.design.readers": ("freq2raw", "readFasta", "removeConst"),
    "bbl.design.survey": ("survey",),
    "bbl.engines": (
        "Boosting",
        "Conditional",
        "ContrastiveDivergence",
        "HighOrder",
        "MarkovBlanket",
        "MaximumLikelihood",
        "MeanField",
        "NaiveBayes",
        "PersistentVI",
        "Posterior",
        "ProbabilityFlow",
        "PseudoLikelihood",
    ),
    "bbl.errors": ("BBLError", "ConvergenceWarning", "DataWarning"),
    "bbl.report.machine.plot": ("plot_comparison",),
    "bbl.results.bicluster.bicluster": ("BiclusterResults",),
    "bbl.results.machine.density": ("DensityResults",),
    "bbl.results.machine.draws": ("GroupParameters", "MLEstimate", "SampleResults"),
    "bbl.results.machine.fit": ("BBLResults",),
    "bbl.results.comparisons.average": ("AverageResults",),
    "bbl.results.machine.cv": ("CVResults",),
    "bbl.results.comparisons.graphs": ("GraphsResults",),
    "bbl.results.comparisons.step": ("StepResults",),
    "bbl.results.machine.spins": ("SpinParameters",),
    "bbl.results.shooter.shooter": ("ShooterResults",),
}

# the same for the estimators of bbl.sklearn, which are not in __all__ because
# ``from bbl import *`` must work without scikit-learn
ESTIMATORS_BY_MODULE = {
    "bbl.sklearn": (
        "BBLClassifier",
        "BinningTransformer",
        "BNClassifier",
        "PrototypeBiclustering",
        "ScoreFeatures",
        "ShooterClassifier",
        "ShooterFeatures",
    ),
}

if not TYPE_CHECKING:  # type checkers only see the imports above

    def __getattr__(name: str) -> Any:
        """Import and return a public name or module on first access (called by Python)."""
        for module, names in (NAMES_BY_MODULE | ESTIMATORS_BY_MODULE).items():
            if name in names:
                # stored in the module, so that Python finds it directly the next time
                value = globals()[name] = getattr(import_module(module), name)
                return value
        if find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, for `dir` and completion, without importing them."""
    return [*__all__, "__version__"]
