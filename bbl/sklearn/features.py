"""ScoreFeatures: class scores of a Boltzmann machine as features for other estimators."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from bbl.api.machine.scores import log_scores
from bbl.checks import flag, integer
from bbl.engines import DEFAULT, Engine
from bbl.engines.bayes.conjugate import conjugate_scores, signed_log
from bbl.errors import ConvergenceWarning, DataError, DataWarning, OptionError
from bbl.sklearn.base import table_errors
from bbl.sklearn.boltzmann import BBLClassifier

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.model_selection import StratifiedKFold
    from sklearn.utils import _safe_indexing, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("bbl.sklearn needs scikit-learn 1.8 or later: pip install boltzmann-bayes[sklearn]") from error

__all__ = ["ScoreFeatures"]

NUMERIC = "conjugate"  # the one method whose columns are numbers


class ScoreFeatures(TransformerMixin, BaseEstimator):
    """A score of each row in each class, from a Boltzmann machine for each class, as features.

    In a pipeline the estimator that follows is trained on out-of-fold scores: those that a model gives to rows it was
    not fitted to. Scores of training rows by their own model are too good, and an estimator that is trained on them
    trusts them too much.

    Parameters
    ----------
    method : {"pseudo", "mf", "naive", "bayes", "conjugate"} or Engine, default "pseudo"
        The methods of `BBLClassifier`, where every column is categorical; or ``"conjugate"``, where every column is a
        number, about -1 to 1 (grey values, say): the posterior mean of the thesis' conjugate model, a closed form whose
        scores have no normaliser.
    pairs : {"all", "none"}, str or list of pairs, default "all"
        Which predictors interact, see `BBLClassifier`; not for ``"conjugate"``, where all do.
    normalised : bool, optional
        Whether ln Z is subtracted: ``ln P(x | y)`` rather than an energy. By default wherever there is a ln Z, that is
        with all methods but ``"conjugate"``.
    signed_log : bool, default False
        Whether scores go through the thesis' ``h(t) = sgn(t) ln |t|``, linear between -2 and 2.
    cv : int or None, default 5
        Folds of the out-of-fold scores of `fit_transform`, shuffled within each class; None for scores of training rows
        by their own model, which leak.
    options : dict, optional
        Options of the method by name, such as ``{"eps": 0.1}``; ``{"c": 100.0}`` for ``"conjugate"``, half of the
        class' rows by default.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        What is done with missing values, see `BBLClassifier`.
    n_jobs : int, optional
        Threads of a fit; results do not depend on it.
    random_state : int, RandomState instance or None, default 0
        For the folds.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted; a feature for each.
    model_ : BBLClassifier, or tuple
        The model of all rows.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, shape (m,)
        If all names of columns are strings.

    See Also
    --------
    bbl.log_scores : The same scores of a model that is fitted by formula.

    Notes
    -----
    With folds, `fit_transform` does not return what `transform` does, as with scikit-learn's own `TargetEncoder`. Two
    of scikit-learn's checks ask for it, ``check_transformer_general`` and ``check_transformer_data_not_an_array``: name
    them in ``expected_failed_checks`` of `check_estimator`. All others pass, and with ``cv=None`` these two as well.

    References
    ----------
    Li (2014). Biclustering methods and a Bayesian approach to fitting Boltzmann machines. Iowa State, section 3.3.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 3, (300, 4))
    >>> y = (X[:, 0] == X[:, 1]) ^ (rng.random(300) < 0.1)
    >>> model = make_pipeline(ScoreFeatures(), LogisticRegression()).fit(X, y)
    >>> float(model.score(X, y)) > 0.85
    True
    """

    def __init__(
        self,
        method: str | Engine = DEFAULT,
        *,
        pairs: str | Sequence = "all",
        normalised: bool | None = None,
        signed_log: bool = False,
        cv: int | None = 5,
        options: dict[str, Any] | None = None,
        missing: str = "raise",
        n_jobs: int | None = None,
        random_state: Any = 0,
    ):
        self.method = method
        self.pairs = pairs
        self.normalised = normalised
        self.signed_log = signed_log
        self.cv = cv
        self.options = options
        self.missing = missing
        self.n_jobs = n_jobs
        self.random_state = random_state

    @property
    def _numeric(self) -> bool:
        return isinstance(self.method, str) and self.method == NUMERIC

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.categorical = not self._numeric
        tags.input_tags.allow_nan = not self._numeric and self.missing != "raise"
        return tags

    def fit(self, X, y) -> ScoreFeatures:
        """Fit a model of each class to all rows.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
        y : array_like, shape (n,)
            Class of each row.

        Returns
        -------
        ScoreFeatures
            The transformer itself.

        Raises
        ------
        ValueError
            If rows, columns or options cannot be used, or there is but one class; the message names them.
        TypeError
            If cells hold what cannot be levels, or an option is of a type that cannot be used.
        """
        if self.cv is not None:
            integer("cv", self.cv, 2)
        flag("signed_log", self.signed_log)
        if self._numeric and self.normalised:
            raise OptionError(
                "Scores of method='conjugate' have no normaliser; leave normalised=None.", argument="normalised"
            )
        if self._numeric:
            self.model_: Any = self._conjugate_rows(X, y, True)
        else:
            self.model_ = self._fit_classifier(X, y)
            self.n_features_in_ = self.model_.n_features_in_
            if hasattr(self.model_, "feature_names_in_"):
                self.feature_names_in_ = self.model_.feature_names_in_
        self.classes_ = self._classes(self.model_)
        return self

    def _classes(self, model: Any) -> np.ndarray:
        return model[0] if self._numeric else model.classes_

    def transform(self, X) -> np.ndarray:
        """Return the scores of rows in each class.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, K)
        """
        check_is_fitted(self, "model_")
        return self._scaled(self._scores(self.model_, X))

    def fit_transform(self, X, y=None, **fit_params) -> np.ndarray:
        """Fit all rows, and return the scores of each by the models of the other folds.

        Parameters
        ----------
        X, y
            As for `fit`.

        Returns
        -------
        ndarray, shape (n, K)
            A class with fewer rows than folds is unknown to some of the models; where it is, it gets the row's lowest
            score.
        """
        self.fit(X, y, **fit_params)
        if self.cv is None:
            return self.transform(X)
        y = column_or_1d(y)
        X = X if hasattr(X, "__getitem__") else np.asarray(X)
        out = np.full((len(y), len(self.classes_)), np.nan)
        rng = np.random.RandomState(check_random_state(self.random_state).randint(2**31 - 1))
        folds = StratifiedKFold(min(self.cv, self._largest_class(y)), shuffle=True, random_state=rng)
        with warnings.catch_warnings():
            # the fit to all rows has said it; and that a class has fewer rows than there are folds is provided for
            warnings.simplefilter("ignore", category=ConvergenceWarning)
            warnings.simplefilter("ignore", category=DataWarning)
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            split = list(folds.split(np.zeros(len(y)), y))
            for train, held in split:
                rows, labels = _safe_indexing(X, train), y[train]
                model = (
                    self._conjugate_rows(rows, labels, False) if self._numeric else self._fit_classifier(rows, labels)
                )
                columns = np.searchsorted(self.classes_, self._classes(model))
                out[np.ix_(held, columns)] = self._scores(model, _safe_indexing(X, held))
        lowest = np.nanmin(out, axis=1, keepdims=True)
        return self._scaled(np.where(np.isnan(out), lowest, out))

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the names of the features: ``score_`` and the class.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str, shape (K,)
        """
        check_is_fitted(self, "model_")
        return np.array([f"score_{name}" for name in self.classes_], dtype=object)

    def _largest_class(self, y: np.ndarray) -> int:
        """Return the number of rows of the largest class, which must be two or more."""
        n_rows = int(np.unique(y, return_counts=True)[1].max())
        if n_rows < 2:
            raise DataError(
                "y has one row of each class; out-of-fold scores need two of one. Give cv=None.", argument="y"
            )
        return n_rows

    def _scaled(self, scores: np.ndarray) -> np.ndarray:
        return signed_log(scores) if self.signed_log else scores

    def _fit_classifier(self, X, y) -> BBLClassifier:
        model = BBLClassifier(
            self.method, pairs=self.pairs, options=self.options, missing=self.missing, n_jobs=self.n_jobs
        )
        return model.fit(X, y)

    def _conjugate_rows(self, X, y, reset: bool) -> tuple:
        """Return the classes, and for each its rows with the constant c of the closed form (n_class / 2 by default)."""
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=False)
        check_classification_targets(y)
        classes = np.unique(y)
        if len(classes) < 2:
            raise DataError(f"y has one class, {classes.tolist()[0]!r}; give rows of at least two classes.")
        rows_by_class = [X[y == group] for group in classes]
        c = (self.options or {}).get("c")
        return classes, [(group_rows, 0.5 * len(group_rows) if c is None else float(c)) for group_rows in rows_by_class]

    def _scores(self, model: Any, X) -> np.ndarray:
        if self._numeric:
            X = validate_data(self, X, reset=False, dtype=np.float64)
            return np.column_stack(
                [conjugate_scores(group_rows, np.ones(len(group_rows)), c, X) for group_rows, c in model[1]]
            )
        with table_errors():
            table = model._table(X, reset=False)
            normalised = True if self.normalised is None else flag("normalised", self.normalised)
            return log_scores(model.result_, table, normalised, False, "ignore").to_numpy(float)
