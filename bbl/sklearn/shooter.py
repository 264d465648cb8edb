"""ShooterClassifier and ShooterFeatures: sparse regression on products of columns as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bbl.api.shooter import shooter
from bbl.design.grammar import quoted
from bbl.names import distinct_names
from bbl.report.format import label_text
from bbl.results.shooter.shooter import ShooterResults
from bbl.sklearn.base import TableClassifier, TableEstimator, TrainingTable
from bbl.sparse.tables import term_features

__all__ = ["ShooterClassifier", "ShooterFeatures"]


def _fit_terms(estimator: ShooterClassifier | ShooterFeatures, training: TrainingTable) -> ShooterResults:
    """Return the sparse regression of the class on products of columns, with the parameters of an estimator."""
    return shooter(
        f"{quoted(training.response)} ~ .", training.data, training.weights, order=estimator.order,
        lambda_=estimator.lambda_, penalty=estimator.penalty, refit=estimator.refit, screen=estimator.screen,
        scale=estimator.scale, nfold=estimator.nfold, novarOk=True, missing=estimator.missing,
        seed=estimator.random_state, n_jobs=estimator.n_jobs, verbose=0,
    )  # fmt: skip


class ShooterClassifier(TableClassifier):
    """Sparse logistic regression on products of columns as a scikit-learn classifier.

    Every column of `X` is a predictor, and every distinct value of it a level: strings, whole numbers, booleans and
    categories. Continuous columns are to be binned first, for example with ``KBinsDiscretizer(encode="ordinal")``. The
    model is that of `bbl.shooter` on the same columns, to the last bit.

    Parameters
    ----------
    order : int, default 3
        Largest number of columns in a term; with fewer columns, their number.
    lambda_, penalty, refit, screen, scale, nfold
        As in `bbl.shooter`.
    class_weight : {"balanced"} or dict of class to weight, optional
        Weights of the classes (those that a dict leaves out have 1), which change their shares in predictions and
        nothing else; "balanced" makes all classes equally probable.
    unseen : {"ignore", "raise"}, default "ignore"
        Whether, in a row with a level that was not in the training data, the terms of that column add nothing, or it is
        an error.
    missing : {"raise", "drop", "level"}, default "raise"
        What is done with missing values of `X`: they are an error; their rows are dropped in `fit`, and have neither
        class nor probabilities (nan); or a level of their own.
    random_state : int, numpy.random.Generator or None, default 0
        For the folds.
    n_jobs : int, optional
        Threads for the folds; results do not depend on it.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Their names, if all of them are strings.
    result_ : ShooterResults
        The fitted model: terms, path, summary, plots.

    See Also
    --------
    bbl.shooter : The same model by formula.
    ShooterFeatures : The chosen products as columns, for other estimators.

    Notes
    -----
    Sample weights are frequencies: a whole number of times that the row is repeated.

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
        nfold: int = 5,
        class_weight: Mapping | str | None = None,
        unseen: str = "ignore",
        missing: str = "raise",
        random_state: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ):
        self.order = order
        self.lambda_ = lambda_
        self.penalty = penalty
        self.refit = refit
        self.screen = screen
        self.scale = scale
        self.nfold = nfold
        self.class_weight = class_weight
        self.unseen = unseen
        self.missing = missing
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _model(self, training: TrainingTable) -> ShooterResults:
        return _fit_terms(self, training)


class ShooterFeatures(TransformerMixin, TableEstimator):
    """Products of columns that tell classes apart, as columns for other estimators.

    The terms are those that `bbl.shooter` chooses. A product of columns with two levels is one column of -1 and 1,
    named ``a:b``. A column with L levels has L - 1 features, the corners of a simplex, and so has its product with
    others several columns, named ``a:b[1]``, ``a:b[2]`` and so on. A logistic regression on the columns is the refit of
    the terms.

    Parameters
    ----------
    order, lambda_, penalty, refit, screen, scale, nfold, unseen, missing, random_state, n_jobs
        As in `ShooterClassifier`. With ``missing="drop"`` rows with missing values have no features (nan). `refit` is
        False by default: weights are not used.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Their names, if all of them are strings.
    result_ : ShooterResults
        The model that chose them.

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
        nfold: int = 5,
        unseen: str = "ignore",
        missing: str = "raise",
        random_state: int | np.random.Generator | None = 0,
        n_jobs: int | None = None,
    ):
        self.order = order
        self.lambda_ = lambda_
        self.penalty = penalty
        self.refit = refit
        self.screen = screen
        self.scale = scale
        self.nfold = nfold
        self.unseen = unseen
        self.missing = missing
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _model(self, training: TrainingTable) -> ShooterResults:
        return _fit_terms(self, training)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def transform(self, X) -> np.ndarray:
        """Return the features of the chosen terms.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, D)
            Zero where a term's column has an unknown level.
        """
        check_is_fitted(self)
        design, table = self.result_.design, self._table(X, reset=False)
        codes, missing = design.encode(table, self.unseen)
        out = term_features(codes, design.n_levels, list(self.result_.chosen), missing)
        if (dropped := design.dropped(table)) is not None:
            out[dropped] = np.nan
        return out

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the names of the columns of `transform`, shape (D,).

        Parameters
        ----------
        input_features : array_like of str, shape (m,), optional
            Names of the columns of `X`, if those of `fit` had none.
        """
        check_is_fitted(self)
        names = self._names(input_features)
        out: list[str] = []
        for term, weights in self.result_.chosen.items():
            text = ":".join(names[i] for i in term)
            out += [text] if len(weights) == 1 else [f"{text}[{k}]" for k in range(1, len(weights) + 1)]
        return np.array(distinct_names(out), dtype=object)

    def _names(self, input_features: Sequence[str] | np.ndarray | None) -> list[str]:
        """Return the names of the columns of `X` as text."""
        predictor_names = [label_text(name) for name in self.result_.labels.names]
        if input_features is None:
            return predictor_names
        if hasattr(self, "feature_names_in_") and list(input_features) != list(self.feature_names_in_):
            raise ValueError("input_features is not equal to feature_names_in_")
        if len(input_features) != self.n_features_in_:
            raise ValueError("input_features should have length equal to number of features in X")
        return [str(name) for name in input_features]
