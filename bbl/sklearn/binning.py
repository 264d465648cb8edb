"""BinningTransformer: columns of numbers as codes of intervals, with the cuts of `bbl.bin`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bbl.checks import choice, integer
from bbl.design.bins import find_cuts
from bbl.design.weights import check_weights
from bbl.errors import DataError
from bbl.stats.cuts import CUTS

try:
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("bbl.sklearn needs scikit-learn 1.8 or later: pip install boltzmann-bayes[sklearn]") from error

__all__ = ["BinningTransformer"]


class BinningTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Cut columns of numbers into bins, for classifiers of categorical data.

    Parameters
    ----------
    bins : int, default 5
        How many at most; of no matter for ``"mdl"``.
    method : {"quantile", "width", "mdl"}, default "quantile"
        About as many rows in each; equal widths; or the cuts that tell the classes apart by more than they cost to
        describe (Fayyad & Irani 1993), up to 32.

    Attributes
    ----------
    cuts_ : list of ndarray
        Ascending cuts of each column; none where it is constant, or no cut pays.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Their names, if all of them are strings.

    See Also
    --------
    bbl.bin : The same for tables.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from bbl.sklearn import BBLClassifier, BinningTransformer
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # nothing for naive Bayes
    >>> model = make_pipeline(BinningTransformer(4), BBLClassifier("pseudo")).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(self, bins: int = 5, *, method: str = "quantile"):
        self.bins = bins
        self.method = method

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = self.method == "mdl"
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> BinningTransformer:
        """Find the cuts.

        Parameters
        ----------
        X : array_like, shape (n, m)
            Numbers; missing values (nan) stay missing.
        y : array_like, shape (n,), optional
            Classes, for ``"mdl"``.
        sample_weight : array_like, shape (n,), optional
            Frequencies, or any positive weights.

        Returns
        -------
        BinningTransformer
            The transformer itself.
        """
        count, method = integer("bins", self.bins, 2), choice("method", self.method, CUTS)
        array = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan")
        groups = None
        if method == "mdl":
            if y is None:
                raise DataError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None.", argument="y"
                )
            check_consistent_length(array, y)
            groups = np.unique(column_or_1d(y, warn=True), return_inverse=True)[1]
        row_weights = None if sample_weight is None else column_or_1d(sample_weight)
        weights = check_weights(row_weights, len(array), "sample_weight", whole=False)
        self.cuts_ = []
        for column in array.T:
            is_number = ~np.isnan(column) & (weights > 0)
            known_groups = None if groups is None else groups[is_number]
            self.cuts_.append(find_cuts(column[is_number], weights[is_number], method, count, known_groups))
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the number of the interval of each cell, from 0; nan where it is missing.

        Parameters
        ----------
        X : array_like, shape (n, m)

        Returns
        -------
        ndarray of float64, shape (n, m)
        """
        check_is_fitted(self)
        array = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan", reset=False)
        out = np.full(array.shape, np.nan)
        for k, cuts in enumerate(self.cuts_):
            is_number = ~np.isnan(array[:, k])
            out[is_number, k] = np.searchsorted(cuts, array[is_number, k], side="left")
        return out
