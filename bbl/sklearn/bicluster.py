"""PrototypeBiclustering: `bbl.bicluster` as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bbl.api.bicluster import bicluster
from bbl.sklearn.state import ResultState

try:
    from sklearn.base import BaseEstimator, BiclusterMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "bbl.sklearn needs scikit-learn 1.8 or later: pip install boltzmann-bayes[sklearn]"
    ) from error

__all__ = ["PrototypeBiclustering"]


class PrototypeBiclustering(BiclusterMixin, ResultState, BaseEstimator):
    """Checkerboard clustering of rows and columns by prototypes; cells may be missing.

    With a row groups and b column groups there are a * b blocks, numbered along the rows of
    ``block_means_``.

    Parameters
    ----------
    n_clusters : int, (int, int) or None, default 3
        Numbers of row groups and column groups; a single number applies to both. If None, they are
        chosen by the integrated completed likelihood.
    metric : {"squared", "pearson"}, default "squared"
        Distance of a row or column from a prototype: sum of squared differences, or 1 minus the
        correlation.
    move : {"all", "one"}, default "all"
        Whether an iteration moves all rows at once or one at a time.
    start : {"kmeans", "hierarchical", "random"}, default "kmeans"
        Initial grouping of rows and columns.
    n_init : int, default 10
        Number of starts. The hierarchical start is deterministic and runs once.
    max_iter : int, default 100
        Maximum number of iterations.
    n_jobs : int, optional
        Number of threads; None means 1, and -1 uses all cores. Results do not depend on it.
    random_state : int, RandomState instance or None, default None
        Seed of the random starts.

    Attributes
    ----------
    rows_ : ndarray of bool, shape (a * b, n_samples)
        Rows in each block.
    columns_ : ndarray of bool, shape (a * b, n_features)
        Columns in each block.
    row_labels_ : ndarray of int32, shape (n_samples,)
        Row group of each row.
    column_labels_ : ndarray of int32, shape (n_features,)
        Column group of each column.
    block_means_ : ndarray, shape (a, b)
        Mean of the observed cells of each block.
    inertia_ : float
        Sum of squared differences between the observed cells and their block means.
    n_iter_ : int
        Number of iterations.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (n_features,)
        Names of the columns of `X`, if all of them are strings.
    result_ : BiclusterResults
        The fitted model: summary, plots, predictions.

    See Also
    --------
    bbl.bicluster : The same model from a formula, also for long tables and with other methods.

    Examples
    --------
    >>> import numpy as np
    >>> from bbl.sklearn import PrototypeBiclustering
    >>> X = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
    >>> X[0, 0] = np.nan
    >>> model = PrototypeBiclustering(n_clusters=(2, 2), random_state=0).fit(X)
    >>> model.row_labels_.tolist()
    [0, 0, 0, 1, 1, 1]
    >>> model.get_shape(0)
    (3, 4)
    """

    def __init__(
        self,
        n_clusters: int | tuple[int, int] | None = 3,
        *,
        metric: str = "squared",
        move: str = "all",
        start: str = "kmeans",
        n_init: int = 10,
        max_iter: int = 100,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_clusters = n_clusters
        self.metric = metric
        self.move = move
        self.start = start
        self.n_init = n_init
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self):
        """Return scikit-learn's input tags: cells may be missing."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: ArrayLike, y: object = None) -> PrototypeBiclustering:
        """Group the rows and columns of `X`.

        Parameters
        ----------
        X : array_like, shape (n_samples, n_features)
            Data matrix; missing cells are nan.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        DataError, OptionError
            As in `bbl.bicluster`.

        Examples
        --------
        >>> import numpy as np
        >>> from bbl.sklearn import PrototypeBiclustering
        >>> X = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> model = PrototypeBiclustering(n_clusters=(2, 2), random_state=0).fit(X)
        >>> model.column_labels_.tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
        """
        X = validate_data(
            self,
            X,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=2,
            ensure_min_features=2,
        )
        n_clusters = self.n_clusters
        # None, a pair (row groups, column groups), or one number for both
        groups: Any = (
            n_clusters
            if n_clusters is None or isinstance(n_clusters, tuple | list | np.ndarray)
            else (n_clusters, n_clusters)
        )
        # the seed is drawn from `random_state`
        self.result_ = bicluster(
            formula=None,
            data=X,
            groups=groups,  # a matrix needs no formula
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            n_init=self.n_init,
            n_jobs=1 if self.n_jobs is None else self.n_jobs,
            verbose=0,
            metric=self.metric,
            move=self.move,
            start=self.start,
            max_iter=self.max_iter,
        )
        # group of each row (n_samples,) and of each column (n_features,)
        self.row_labels_ = self.result_.rows
        self.column_labels_ = self.result_.columns
        self.block_means_ = self.result_.block_means.to_numpy()
        # wcss: within-block sum of squares
        self.inertia_ = self.result_.wcss
        self.n_iter_ = self.result_.n_iter
        a, b = self.result_.groups  # numbers of row groups and of column groups
        # masks (a b, n_samples) and (a b, n_features) of the rows and columns in each block; block
        # r * b + c crosses row group r and column group c
        self.rows_ = np.repeat(self.row_labels_ == np.arange(a)[:, None], b, axis=0)
        self.columns_ = np.tile(self.column_labels_ == np.arange(b)[:, None], (a, 1))
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the row group whose prototype is closest to the observed cells of each row.

        Parameters
        ----------
        X : array_like, shape (n_samples, n_features)

        Returns
        -------
        ndarray of int32, shape (n_samples,)

        Examples
        --------
        >>> import numpy as np
        >>> from bbl.sklearn import PrototypeBiclustering
        >>> X = np.kron([[1.0, 4.0], [2.0, 5.0]], np.ones((3, 4)))
        >>> model = PrototypeBiclustering(n_clusters=(2, 2), random_state=0).fit(X)
        >>> model.predict(X[:2]).tolist()
        [0, 0]
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=False)
        return self.result_.assign(X).to_numpy()
