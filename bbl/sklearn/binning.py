"""BinningTransformer: `bbl.bin` as a scikit-learn transformer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pandas.api.types import infer_dtype, is_bool_dtype
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from bbl.checks import choice, integer
from bbl.design.bins import find_cuts, refuse_text, to_numbers
from bbl.design.frames import to_frame
from bbl.design.weights import check_weights
from bbl.errors import DataError
from bbl.sklearn.tables import as_frame
from bbl.stats.cuts import CUTS

__all__ = ["BinningTransformer"]


class BinningTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Cut numeric columns into bins for categorical classifiers; strings, categories and dates pass
    through unchanged.

    Parameters
    ----------
    bins : int, default 5
        Maximum number of bins per column; ignored by ``method="mdl"``.
    method : {"quantile", "width", "mdl"}, default "quantile"
        "quantile": bins with about equal numbers of rows. "width": bins of equal width. "mdl": up
        to 32 bins, by recursive cuts that reduce the description length of the classes (Fayyad &
        Irani 1993).

    Attributes
    ----------
    cuts_ : list of ndarray or None
        Boundaries between the bins of each column, in increasing order; empty if the column is
        constant or no cut reduces the description length. None for a column that is not binned.
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
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)  # not learnable by naive Bayes
    >>> model = make_pipeline(BinningTransformer(4), BBLClassifier("pseudo")).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(self, bins: int = 5, *, method: str = "quantile"):
        self.bins = bins
        self.method = method

    def __sklearn_tags__(self):
        """Return scikit-learn's input tags: cells may be missing, and "mdl" requires classes."""
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
            Data; missing numbers (nan) remain missing.
        y : array_like, shape (n,), optional
            Classes, required for ``"mdl"``.
        sample_weight : array_like, shape (n,), optional
            Frequencies or any positive weights.

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
        columns = self._read_columns(X, reset=True)
        class_codes = None
        if method == "mdl":
            if y is None:
                raise DataError(
                    f"{type(self).__name__} requires y to be passed, but the target y is None.",
                    argument="y",
                )
            check_consistent_length(columns[0], y)
            # class codes (n,) from 0 to K - 1
            class_codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)[1]
        row_weights = None if sample_weight is None else column_or_1d(sample_weight)
        weights = check_weights(row_weights, len(columns[0]), "sample_weight", whole=False)
        self.cuts_: list[np.ndarray | None] = []
        for column in columns:
            if column.dtype == object:
                self.cuts_.append(None)
                continue
            is_used = ~np.isnan(column) & (weights > 0)
            used_codes = None if class_codes is None else class_codes[is_used]
            self.cuts_.append(
                find_cuts(column[is_used], weights[is_used], method, max_bins, used_codes)
            )
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the bin number of each cell, starting at 0; nan where the cell is missing.

        A number equal to a cut belongs to the bin below it.

        Parameters
        ----------
        X : array_like, shape (n, m)

        Returns
        -------
        ndarray of float64, shape (n, m)
            An object array if any column is passed through.

        Examples
        --------
        >>> import numpy as np
        >>> from bbl.sklearn import BinningTransformer
        >>> X = np.arange(8.0)[:, None]
        >>> BinningTransformer(2).fit(X).transform(X).ravel().tolist()
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
        """
        check_is_fitted(self)
        columns = self._read_columns(X, reset=False)
        is_passed = any(cuts is None for cuts in self.cuts_)
        cells = np.empty((len(columns[0]), len(columns)), dtype=object if is_passed else float)
        for k, (column, cuts) in enumerate(zip(columns, self.cuts_, strict=True)):
            if cuts is None:
                cells[:, k] = column
                continue
            if column.dtype == object:
                name = getattr(self, "feature_names_in_", range(len(columns)))[k]
                refuse_text(name, pd.Series(column))
            cells[:, k] = np.nan
            is_known = ~np.isnan(column)
            cells[is_known, k] = np.searchsorted(cuts, column[is_known], side="left")
        return cells

    def _read_columns(self, X: ArrayLike, reset: bool) -> list[np.ndarray]:
        """Return the columns of X, each of shape (n,): numeric columns as floats, other columns as
        objects.

        `reset` (in `fit`) stores the number and names of the columns; otherwise they are checked
        against the stored ones.
        """
        table = as_frame(X)
        if table is None and isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2:
            table = to_frame(pd.DataFrame(X).infer_objects(), "X")
        columns = [] if table is None else [table.get(k) for k in range(len(table.columns))]
        if table is None or not any(_is_passed(column) for column in columns):
            array = validate_data(self, X, dtype=float, ensure_all_finite="allow-nan", reset=reset)
            return list(array.T)
        # pass only the names: scikit-learn would convert the cells to numbers
        names = X if isinstance(X, np.ndarray) else pd.DataFrame(columns=list(table.columns))
        validate_data(self, names, reset=reset, skip_check_array=True)
        return [
            column.to_numpy(dtype=object)
            if _is_passed(column)
            else column.to_numpy(dtype=float, na_value=np.nan)
            for column in columns
        ]


def _is_passed(column: pd.Series) -> bool:
    """Return whether a column contains strings, categories or dates and is passed through."""
    if is_bool_dtype(column.dtype) or column.dtype.kind == "c":
        return False
    if column.dtype == object and infer_dtype(column, skipna=True) != "string":
        return False  # an object array is left for scikit-learn to convert or reject
    return to_numbers(column) is None
