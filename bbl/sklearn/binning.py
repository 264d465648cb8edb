"""BinningTransformer: `bbl.bin` as a scikit-learn transformer. A *cut* is a boundary between two
bins.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from bbl.checks import choice, integer
from bbl.design.bins import find_cuts
from bbl.design.weights import check_weights
from bbl.errors import DataError
from bbl.stats.cuts import CUTS

__all__ = ["BinningTransformer"]


class BinningTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Cut columns of numbers into bins, for classifiers of categorical data.

    Parameters
    ----------
    bins : int, default 5
        Largest number of bins of a column; ``method="mdl"`` ignores it.
    method : {"quantile", "width", "mdl"}, default "quantile"
        "quantile": bins with about equal numbers of rows. "width": bins of equal width. "mdl": up
        to 32 bins; a cut is made if it saves more in the description of the classes than it costs
        (minimum description length, Fayyad & Irani 1993).

    Attributes
    ----------
    cuts_ : list of ndarray
        Ascending cuts of each column; empty if the column is constant, or no cut is worth its
        description.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Names of the columns of `X`, if all of them are strings.

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
        """Return scikit-learn's description of the inputs: cells may be missing, and "mdl" needs
        classes.
        """
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.required = self.method == "mdl"
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> BinningTransformer:
        """Find the cuts of each column.

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

        Examples
        --------
        >>> import numpy as np
        >>> from bbl.sklearn import BinningTransformer
        >>> X = np.arange(8.0)[:, None]
        >>> BinningTransformer(2).fit(X).n_features_in_
        1
        """
        max_bins = integer("bins", self.bins, 2)
        method = choice("method", self.method, CUTS)
        array = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan")
        class_codes = None
        if method == "mdl":
            if y is None:
                raise DataError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None.",
                    argument="y",
                )
            check_consistent_length(array, y)
            # (n,), 0 to K - 1
            class_codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)[1]
        row_weights = None if sample_weight is None else column_or_1d(sample_weight)
        weights = check_weights(row_weights, len(array), "sample_weight", whole=False)
        self.cuts_ = []
        for column in array.T:
            is_used = ~np.isnan(column) & (weights > 0)
            used_codes = None if class_codes is None else class_codes[is_used]
            self.cuts_.append(
                find_cuts(column[is_used], weights[is_used], method, max_bins, used_codes)
            )
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the number of the bin of each cell, from 0; nan where the cell is missing.

        A number that equals a cut is in the bin below it.

        Parameters
        ----------
        X : array_like, shape (n, m)

        Returns
        -------
        ndarray of float64, shape (n, m)

        Examples
        --------
        >>> import numpy as np
        >>> from bbl.sklearn import BinningTransformer
        >>> X = np.arange(8.0)[:, None]
        >>> BinningTransformer(2).fit(X).transform(X).ravel().tolist()
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
        """
        check_is_fitted(self)
        array = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan", reset=False)
        bin_numbers = np.full(array.shape, np.nan)
        for k, cuts in enumerate(self.cuts_):
            is_known = ~np.isnan(array[:, k])
            bin_numbers[is_known, k] = np.searchsorted(cuts, array[is_known, k], side="left")
        return bin_numbers
