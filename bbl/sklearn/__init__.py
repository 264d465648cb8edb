"""Models of the package as scikit-learn estimators."""

from bbl.sklearn.bicluster import PrototypeBiclustering
from bbl.sklearn.binning import BinningTransformer
from bbl.sklearn.boltzmann import BBLClassifier
from bbl.sklearn.features import ScoreFeatures
from bbl.sklearn.network import BNClassifier
from bbl.sklearn.shooter import ShooterClassifier, ShooterFeatures

__all__ = [
    "BBLClassifier",
    "BNClassifier",
    "BinningTransformer",
    "PrototypeBiclustering",
    "ScoreFeatures",
    "ShooterClassifier",
    "ShooterFeatures",
]
