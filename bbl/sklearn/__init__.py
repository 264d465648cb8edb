"""The room of scikit-learn: the package's models as estimators."""

from bbl.sklearn.bicluster import PrototypeBiclustering
from bbl.sklearn.boltzmann import BBLClassifier

__all__ = ["BBLClassifier", "PrototypeBiclustering"]
