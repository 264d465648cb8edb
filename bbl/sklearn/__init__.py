"""The room of scikit-learn: the package's models as estimators."""

from bbl.sklearn.boltzmann import BBLClassifier

__all__ = ["BBLClassifier"]
