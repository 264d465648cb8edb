"""ShooterClassifier and ShooterFeatures: `bbl.shooter` as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bbl.api.shooter import shooter
from bbl.choices import MissingPolicy, Unseen
from bbl.design.grammar import quoted
from bbl.report.text import distinct_names, label_text
from bbl.results.shooter.shooter import ShooterResults
from bbl.sklearn.base import TableClassifier, TableEstimator, TrainingTable
from bbl.sparse.products import feature_values
from bbl.sparse.tables import term_features

__all__ = ["ShooterClassifier", "ShooterFeatures"]


def _fit_terms(
    estimator: ShooterClassifier | ShooterFeatures, training: TrainingTable
) -> ShooterResults:
    """Fit `bbl.shooter` to checked training data, with the parameters of an estimator.

    All columns of X are predictors in the formula. Columns with a single level are accepted.
    """
    return shooter(
        f"{quoted(training.response)} ~ .",
        training.data,
        training.weights,
        order=estimator.order,
        lambda_=estimator.lambda_,
        penalty=estimator.penalty,
        refit=estimator.refit,
        screen=estimator.screen,
        scale=estimator.scale,
        numeric=_numeric_columns(estimator, training.features),
        standardise=estimator.standardise,
        nfold=estimator.nfold,
        novarOk=True,
        missing=estimator.missing,
        seed=estimator.random_state,
        n_jobs=estimator.n_jobs,
        verbose=0,
    )


def _numeric_columns(
    estimator: ShooterClassifier | ShooterFeatures, names: tuple
) -> bool | Sequence:
    """Return the parameter `numeric` with column names instead of positions."""
    numeric = estimator.numeric
    if isinstance(numeric, bool | np.bool_ | str) or not np.iterable(numeric):
        return numeric
    has_names = hasattr(estimator, "feature_names_in_")
    return [
        names[k]
        if not has_names and isinstance(k, int | np.integer) and -len(names) <= k < len(names)
        else k
        for k in numeric
    ]


class ShooterClassifier(TableClassifier):
    """Sparse logistic regression on products of columns as a scikit-learn classifier.

    Every column of `X` is a predictor, and its distinct values (strings, integers, booleans or
    categories) are its levels. For continuous columns, set ``numeric=True``, or bin them first, for
    example with ``KBinsDiscretizer(encode="ordinal")``. The model is bitwise identical to
    `bbl.shooter` on the same columns.

    Parameters
    ----------
    order : int, default 3
        Maximum number of columns in a term; at most the number of columns of `X`.
    lambda_ : "ebic", "cv", float or sequence of `order` floats, default "ebic"
        Penalty of each order. "ebic" and "cv" choose one penalty for all orders: by the extended
        BIC of the refitted terms, or by the loss on held-out rows.
    penalty : {"group", "l1"}, default "group"
        Whether the weights of a term are selected as a whole (by their norm), or one by one (by
        their absolute values).
    refit : "auto", True or False, default "auto"
        Whether the selected terms are refitted without penalty; "auto" decides by the loss on
        held-out rows.
    screen : {"heredity", "all"}, default "heredity"
        Candidate pairs: pairs with at least one selected column, or all pairs.
    scale : {"sum", "mean"}, default "sum"
        Whether the penalties in `lambda_` apply to the sum of the losses of all rows, or to their
        mean.
    numeric : bool or sequence of columns, default False
        Columns to treat as real numbers instead of categories: True for all, or a list of names
        (positions, if columns have no names).
    standardise : bool, default False
        Whether numeric columns are centred and divided by their standard deviation.
    nfold : int, default 5
        Number of folds for ``lambda_="cv"`` and ``refit="auto"``.
    class_weight : {"balanced"} or dict of class to weight, optional
        Weights of the classes; classes missing from a dict have weight 1. They only change the
        class proportions used for predictions; "balanced" makes them equal.
    unseen : {"ignore", "raise"}, default "ignore"
        Treatment of levels that were not in the training data: "ignore" sets all terms of the
        column to 0 in that row, "raise" raises an error.
    missing : {"raise", "drop", "level"}, default "raise"
        Treatment of missing values in `X`. "raise": raise an error. "drop": drop their rows in
        `fit`, and predict nan for such rows. "level": treat them as a separate level.
    random_state : int, numpy.random.Generator or None, default 0
        Seed of the fold assignment.
    n_jobs : int, optional
        Number of threads for the folds; results do not depend on it.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Names of the columns of `X`, if all of them are strings.
    result_ : ShooterResults
        The fitted model: terms, path, summary, plots.

    See Also
    --------
    bbl.shooter : The same model from a formula.
    ShooterFeatures : The features of the selected terms as columns, for other estimators.

    Notes
    -----
    Sample weights are integer frequencies.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 2, (500, 6))
    >>> y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(0, 0.3, 500) > 0.5).astype(int)
    >>> model = ShooterClassifier(2).fit(X, y)
    >>> model.result_.order_counts.to_dict()
    {1: 3, 2: 1}
    >>> round(model.score(X, y), 2)
    0.95
    """

    def __init__(
        self,
        order: int = 3,
        lambda_: str | float | Sequence[float] = "ebic",
        *,
        penalty: str = "group",
        refit: str | bool = "auto",
        screen: str = "heredity",
        scale: str = "sum",
        numeric: bool | Sequence = False,
        standardise: bool = False,
        nfold: int = 5,
        class_weight: Mapping | str | None = None,
        unseen: Unseen = "ignore",
        missing: MissingPolicy = "raise",
        random_state: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ):
        self.order = order
        self.lambda_ = lambda_
        self.penalty = penalty
        self.refit = refit
        self.screen = screen
        self.scale = scale
        self.numeric = numeric
        self.standardise = standardise
        self.nfold = nfold
        self.class_weight = class_weight
        self.unseen = unseen
        self.missing = missing
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_model(self, training: TrainingTable) -> ShooterResults:
        """Return the results of `shooter` for checked training data."""
        return _fit_terms(self, training)


class ShooterFeatures(TransformerMixin, TableEstimator):
    """Transform rows to the products of columns selected by `bbl.shooter`, for other estimators.

    A term of two-level columns is a single feature with values -1 and 1, named ``a:b``. A column
    with L levels has L - 1 features, which code its levels as the corners of a simplex. Terms of
    such columns have several features, named ``a:b[1]``, ``a:b[2]`` and so on. A logistic
    regression on the features is equivalent to refitting the terms.

    Parameters
    ----------
    order, lambda_, penalty, refit, screen, scale, numeric, standardise, nfold
        As in `ShooterClassifier`.
    unseen, missing, random_state, n_jobs
        As in `ShooterClassifier`. With ``missing="drop"``, features of rows with missing values are
        nan. `refit` is False by default because the coefficients of the regression are not used.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Names of the columns of `X`, if all of them are strings.
    result_ : ShooterResults
        The sparse regression that selected the terms.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 2, (500, 6))
    >>> y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(0, 0.3, 500) > 0.5).astype(int)
    >>> chosen = ShooterFeatures(2).fit(X, y)
    >>> chosen.get_feature_names_out().tolist()
    ['x0', 'x1', 'x2', 'x1:x2']
    >>> chosen.transform(X[:2])
    array([[ 1.,  1.,  1.,  1.],
           [-1., -1., -1.,  1.]])
    """

    def __init__(
        self,
        order: int = 3,
        lambda_: str | float | Sequence[float] = "ebic",
        *,
        penalty: str = "group",
        refit: str | bool = False,
        screen: str = "heredity",
        scale: str = "sum",
        numeric: bool | Sequence = False,
        standardise: bool = False,
        nfold: int = 5,
        unseen: Unseen = "ignore",
        missing: MissingPolicy = "raise",
        random_state: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ):
        self.order = order
        self.lambda_ = lambda_
        self.penalty = penalty
        self.refit = refit
        self.screen = screen
        self.scale = scale
        self.numeric = numeric
        self.standardise = standardise
        self.nfold = nfold
        self.unseen = unseen
        self.missing = missing
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_model(self, training: TrainingTable) -> ShooterResults:
        """Return the results of `shooter` for checked training data."""
        return _fit_terms(self, training)

    def __sklearn_tags__(self):
        """Return scikit-learn's input tags: y is required."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def transform(self, X) -> np.ndarray:
        """Return the features of the selected terms.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, D)
            D features, which are 0 if a column of the term has an unknown level.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import ShooterFeatures
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> chosen = ShooterFeatures(2, lambda_=60).fit(X, y)
        >>> chosen.transform(X).shape
        (2201, 5)
        """
        check_is_fitted(self)
        design = self.result_.design
        table = self._read_features(X, reset=False)
        # (n, m) each: level codes, and a mask of unknown values
        codes, missing = design.encode(table, self.unseen)
        # result_.chosen: weights (d, K - 1) of the d features of each selected term, by its column
        # positions
        codes = feature_values(codes, design.n_levels, design.is_number)
        features = term_features(codes, design.n_levels, list(self.result_.chosen), missing)
        if (dropped := design.dropped(table)) is not None:  # rows dropped by missing="drop"
            features[dropped] = np.nan
        return features

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the names of the columns of `transform`, shape (D,).

        Parameters
        ----------
        input_features : array_like of str, shape (m,), optional
            Names of the columns of `X`, if it had none in `fit`.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import ShooterFeatures
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> chosen = ShooterFeatures(2, lambda_=60).fit(X, y)
        >>> chosen.get_feature_names_out()[:2].tolist()
        ['Class[1]', 'Class[2]']
        """
        check_is_fitted(self)
        names = self._column_names(input_features)
        feature_names: list[str] = []
        # term: column positions; weights: (d, K - 1), of its d features
        for term, weights in self.result_.chosen.items():
            term_text = ":".join(names[i] for i in term)
            feature_names += (
                [term_text]
                if len(weights) == 1
                else [f"{term_text}[{k}]" for k in range(1, len(weights) + 1)]
            )
        return np.array(distinct_names(feature_names), dtype=object)

    def _column_names(self, input_features: Sequence[str] | np.ndarray | None) -> list[str]:
        """Check `input_features`, and return the column names of `X` as strings."""
        # columns of X in `fit`
        predictor_names = [label_text(name) for name in self.result_.labels.names]
        if input_features is None:
            return predictor_names
        if hasattr(self, "feature_names_in_") and list(input_features) != list(
            self.feature_names_in_
        ):
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(input_features) != self.n_features_in_:
            raise ValueError("input_features should have length equal to number of features in X")
        return [str(name) for name in input_features]
