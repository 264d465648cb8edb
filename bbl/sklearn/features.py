"""ScoreFeatures: class scores of a Boltzmann machine as features for other estimators.

The numbers of rows, columns and classes are n, m and K. Columns are numeric for method="conjugate"
(`NUMERIC`), otherwise categorical.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from bbl.api.machine.scores import log_scores
from bbl.checks import choice, flag, integer, real
from bbl.choices import Method, MissingPolicy
from bbl.engines import DEFAULT, Engine
from bbl.engines.bayes.conjugate import signed_log
from bbl.engines.bayes.grey import MAX_COUPLED, GreyMachine, fit_grey
from bbl.errors import BBLTypeError, ConvergenceWarning, DataError, DataWarning, OptionError
from bbl.sklearn.base import table_errors
from bbl.sklearn.boltzmann import BBLClassifier

__all__ = ["ScoreFeatures"]

NUMERIC = "conjugate"  # the only method for numeric columns


class ScoreFeatures(TransformerMixin, BaseEstimator):
    """Transform rows to their scores in each class, from one Boltzmann machine per class.

    In a pipeline, the next estimator is trained on out-of-fold scores: each row is scored by models
    that were not fitted to this row. Scores for a model's own training rows are too optimistic, and
    an estimator trained on them would rely on them too heavily.

    Parameters
    ----------
    method : {"pseudo", "mf", "naive", "bayes", "conjugate"} or Engine, default "pseudo"
        The methods of `BBLClassifier` accept categorical columns. ``"conjugate"`` accepts numeric
        columns with values between about -1 and 1, such as grey values. It computes the posterior
        mean of the conjugate model of Li (2014) in closed form; scores have no normalising
        constant.
    pairs : {"all", "none"}, str or list of pairs, default "all"
        Which predictors interact (see `BBLClassifier`); "all" or "none" for ``"conjugate"``.
    normalised : bool, optional
        Whether to subtract ln Z, which gives ``ln P(x | y)`` instead of an energy. True by default,
        except for ``"conjugate"``, which has no ln Z.
    signed_log : bool, default False
        Whether to transform scores by Li's ``h(t) = sgn(t) ln |t|``, which is linear between -2 and
        2.
    cv : int or None, default 5
        Number of folds for the out-of-fold scores of `fit_transform`, shuffled within each class.
        None returns each model's scores for its own training rows, which leak the class.
    options : dict, optional
        Options of the method by name, such as ``{"eps": 0.1}``.

        Options of ``"conjugate"``: ``{"c": 100.0}`` sets the factor ``exp(-c |phi|^2)`` of the
        prior of the coefficients phi; by default c is half the number of rows of the class.
        ``{"hidden": 100}`` adds hidden units (-1 or 1) coupled to all columns, and ``{"hidden":
        (100, 50)}`` adds a second layer of units coupled to the first; with ``pairs="none"``, this
        is a restricted Boltzmann machine. ``{"hidden": 10, "hidden_pairs": True}`` also couples the
        units of a single layer (at most 16) to each other, which results in a full Boltzmann
        machine. ``{"sweeps": 50}`` sets the number of Gibbs sweeps for drawing the units.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        Treatment of missing values (see `BBLClassifier`).
    n_jobs : int, optional
        Number of threads; results do not depend on it.
    random_state : int, RandomState instance or None, default 0
        Seed of the fold assignment.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted; each has one feature.
    model_ : BBLClassifier, or tuple (classes, machines)
        The model fitted to all rows. For ``"conjugate"``, a tuple of the class labels (K,) and a
        list of machines, one per class, with the posterior means of the coefficients.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, shape (m,)
        Names of the columns of `X`, if all of them are strings.

    See Also
    --------
    bbl.log_scores : The same scores for a model fitted from a formula.

    Notes
    -----
    With folds, `fit_transform` and `transform` return different scores, as in scikit-learn's
    `TargetEncoder`. Two of scikit-learn's checks require equal scores,
    ``check_transformer_general`` and ``check_transformer_data_not_an_array``: list them in
    ``expected_failed_checks`` of `check_estimator`. All other checks pass, and with ``cv=None``
    these two pass as well.

    References
    ----------
    Li (2014). Biclustering methods and a Bayesian approach to fitting Boltzmann machines. Iowa
    State, section 3.3.

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
        method: Method | Engine = DEFAULT,
        *,
        pairs: str | Sequence = "all",
        normalised: bool | None = None,
        signed_log: bool = False,
        cv: int | None = 5,
        options: dict[str, Any] | None = None,
        missing: MissingPolicy = "raise",
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
        """Whether columns are numeric instead of categorical."""
        return isinstance(self.method, str) and self.method == NUMERIC

    def __sklearn_tags__(self):
        """Return scikit-learn's input tags: y is required, columns are categorical or numeric."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.categorical = not self._numeric
        tags.input_tags.allow_nan = not self._numeric and self.missing != "raise"
        return tags

    def fit(self, X, y) -> ScoreFeatures:
        """Fit a model for each class to all rows.

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
            If rows, columns or options are invalid, or there is only one class.
        TypeError
            If a cell contains an object that cannot be a level, or an option has the wrong type.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import ScoreFeatures
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> ScoreFeatures().fit(X, y).classes_.tolist()
        ['No', 'Yes']
        """
        if self.cv is not None:
            integer("cv", self.cv, 2)
        flag("signed_log", self.signed_log)
        if self._numeric and self.normalised:
            raise OptionError(
                "With method='conjugate', scores cannot be normalised.",
                argument="normalised",
                hint="Leave normalised=None.",
            )
        if self._numeric:
            # also sets n_features_in_ and feature names
            self.model_: Any = self._fit_conjugate(X, y, reset=True)
        else:
            self.model_ = self._fit_classifier(X, y)
            self.n_features_in_ = self.model_.n_features_in_
            if hasattr(self.model_, "feature_names_in_"):
                self.feature_names_in_ = self.model_.feature_names_in_
        self.classes_ = self._model_classes(self.model_)
        return self

    def _model_classes(self, model: Any) -> np.ndarray:
        """Return the classes of a fitted model such as ``model_``, sorted."""
        return model[0] if self._numeric else model.classes_

    def transform(self, X) -> np.ndarray:
        """Return the score of each row in each class, from the model fitted to all rows.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, K)

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import ScoreFeatures
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> ScoreFeatures().fit(X, y).transform(X).shape
        (2201, 2)
        """
        check_is_fitted(self, "model_")
        return self._transform_scores(self._score_rows(self.model_, X))

    def fit_transform(self, X, y=None, **fit_params) -> np.ndarray:
        """Fit the model to all rows, and return out-of-fold scores of these rows.

        Parameters
        ----------
        X, y
            As in `fit`.

        Returns
        -------
        ndarray, shape (n, K)
            If a class has fewer rows than there are folds, the models of some folds lack this
            class. Its score for a row is then the row's lowest score in any class.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import ScoreFeatures
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> ScoreFeatures(random_state=0).fit_transform(X, y).shape
        (2201, 2)
        """
        self.fit(X, y, **fit_params)  # checks X and y
        if self.cv is None:
            return self.transform(X)
        y = column_or_1d(y)
        X = X if hasattr(X, "__getitem__") else np.asarray(X)  # rows of X are selected below
        scores = np.full((len(y), len(self.classes_)), np.nan)
        # a new generator, so that the caller's RandomState advances by one number for any number of
        # rows
        rng = np.random.RandomState(check_random_state(self.random_state).randint(2**31 - 1))
        # more folds than rows in the largest class would be an error
        folds = StratifiedKFold(
            min(self.cv, self._count_largest_class(y)), shuffle=True, random_state=rng
        )
        with warnings.catch_warnings():
            # the fit to all rows has already warned; classes with fewer rows than folds are handled
            # below
            warnings.simplefilter("ignore", category=ConvergenceWarning)
            warnings.simplefilter("ignore", category=DataWarning)
            warnings.filterwarnings(
                "ignore", message="The least populated class", category=UserWarning
            )
            # row positions for training and validation; the splitter reads only y
            for train, validation in folds.split(np.zeros(len(y)), y):
                rows = _safe_indexing(X, train)
                labels = y[train]
                # _numeric: the method is "conjugate", which requires numeric columns
                model = (
                    self._fit_conjugate(rows, labels, reset=False)
                    if self._numeric
                    else self._fit_classifier(rows, labels)
                )
                # positions of the fold model's classes among all classes, which are sorted
                columns = np.searchsorted(self.classes_, self._model_classes(model))
                scores[np.ix_(validation, columns)] = self._score_rows(
                    model, _safe_indexing(X, validation)
                )
        # nan: the fold's model lacks the class
        lowest = np.nanmin(scores, axis=1, keepdims=True)
        return self._transform_scores(np.where(np.isnan(scores), lowest, scores))

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Return the feature names: ``score_`` followed by the class.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str, shape (K,)

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import ScoreFeatures
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> ScoreFeatures().fit(X, y).get_feature_names_out().tolist()
        ['score_No', 'score_Yes']
        """
        check_is_fitted(self, "model_")
        return np.array([f"score_{name}" for name in self.classes_], dtype=object)

    def _count_largest_class(self, y: np.ndarray) -> int:
        """Return the number of rows in the largest class; raise a DataError if it is 1."""
        n_rows = int(np.unique(y, return_counts=True)[1].max())
        if n_rows < 2:
            raise DataError(
                "y contains only one row of each class, but out-of-fold scores require a "
                "class with at least two rows.",
                argument="y",
                hint="Use cv=None.",
            )
        return n_rows

    def _transform_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return scores (n, K), transformed by `signed_log` if that parameter is True."""
        return signed_log(scores) if self.signed_log else scores

    def _fit_classifier(self, X, y) -> BBLClassifier:
        """Return a classifier with the transformer's parameters, fitted to rows."""
        model = BBLClassifier(
            self.method,
            pairs=self.pairs,
            options=self.options,
            missing=self.missing,
            n_jobs=self.n_jobs,
        )
        return model.fit(X, y)

    def _fit_conjugate(self, X, y, reset: bool) -> tuple[np.ndarray, list[GreyMachine]]:
        """Return the classes (K,) and one machine per class for method="conjugate".

        With `reset`, the number and names of the columns of X are stored; otherwise X is checked
        against them.
        """
        X, y = validate_data(self, X, y, reset=reset, dtype=np.float64, y_numeric=False)
        check_classification_targets(y)
        options = dict(self.options or {})
        c = options.pop("c", None)
        c = None if c is None else real("c", c, 0.0, open_low=True)
        hidden = _layers(options.pop("hidden", ()))
        sweeps = integer("sweeps", options.pop("sweeps", 50), 1)
        hidden_pairs = flag("hidden_pairs", options.pop("hidden_pairs", False))
        if hidden_pairs and (len(hidden) != 1 or not 2 <= hidden[0] <= MAX_COUPLED):
            raise OptionError(
                "hidden_pairs=True requires one layer of 2 to "
                f"{MAX_COUPLED} hidden units, but hidden is {hidden or 0}.",
                hint="Add 'hidden': 10 to options, or omit 'hidden_pairs'.",
                argument="options",
            )
        if options:
            raise BBLTypeError(
                f"{next(iter(options))!r} is not an option of method='conjugate'.",
                hint="Pass c, hidden, hidden_pairs or sweeps.",
                argument="options",
            )
        pairs = choice("pairs", self.pairs, ("all", "none")) == "all"
        classes = np.unique(y)
        if len(classes) < 2:
            raise DataError(
                f"y has one class, {classes.tolist()[0]!r}.",
                hint="Pass rows of two or more classes.",
            )
        # the same units whatever else draws from random_state
        seed = self.random_state if isinstance(self.random_state, int | np.integer) else 0
        rngs = np.random.default_rng(int(seed)).spawn(len(classes))
        machines = []
        for label, rng in zip(classes, rngs, strict=True):
            rows = X[y == label]
            class_c = 0.5 * len(rows) if c is None else c
            machines.append(fit_grey(rows, class_c, hidden, pairs, sweeps, rng, hidden_pairs))
        return classes, machines

    def sample(
        self, label: Any, n: int = 1, *, sweeps: int = 100, random_state: int | None = 0
    ) -> np.ndarray:
        """Draw rows of a class, such as grey-scale images, from the model fitted to all rows.

        Only available for ``method="conjugate"``. Rows are drawn by Gibbs sampling of the hidden
        units and the columns. Given the other columns and the units, the density of a column is
        proportional to ``exp(a x)`` on [-1, 1].

        Parameters
        ----------
        label : a class
        n : int, default 1
            Number of rows; each is the final state of a separate chain.
        sweeps : int, default 100
            Number of sweeps per chain. Chains start from the fields, scaled to [-1, 1].
        random_state : int or None, default 0

        Returns
        -------
        ndarray, shape (n, m)

        Raises
        ------
        OptionError
            If `method` is not "conjugate", or `label` is not a class.

        Examples
        --------
        >>> import numpy as np
        >>> from bbl.sklearn import ScoreFeatures
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["dark", "light"], 50)
        >>> mean = np.where(y == "light", 0.5, -0.5)
        >>> X = np.clip(mean[:, None] + rng.normal(0, 0.3, (100, 4)), -1, 1)
        >>> features = ScoreFeatures("conjugate", pairs="none", options={"hidden": 2}).fit(X, y)
        >>> bool(features.sample("light", 20).mean() > features.sample("dark", 20).mean())
        True
        """
        check_is_fitted(self, "model_")
        if not self._numeric:
            raise OptionError(
                f"sample() requires method='conjugate'; got method={self.method!r}.",
                hint="Call model_.result_.sample().",
                argument="method",
            )
        classes = self.classes_.tolist()
        if label not in classes:
            raise OptionError(
                f"label={label!r} is not a class.",
                hint=f"Pass one of {', '.join(map(repr, classes[:5]))}.",
                argument="label",
            )
        machine: GreyMachine = self.model_[1][classes.index(label)]
        rng = np.random.default_rng(random_state)
        return machine.sample(integer("n", n, 0), integer("sweeps", sweeps, 1), rng)

    def _score_rows(self, model: Any, X) -> np.ndarray:
        """Return the scores of rows from a fitted model such as ``model_``, with one column for
        each class of the model.
        """
        if self._numeric:
            X = validate_data(self, X, reset=False, dtype=np.float64)
            _, machines = model
            return np.column_stack([machine.scores(X) for machine in machines])
        # errors about the type of a column refer to the argument X. Other calls need no such block:
        # scikit-learn checks numeric columns, and `BBLClassifier.fit` has its own
        with table_errors():
            # X as a table, after checking its columns against `fit`
            table = model._read_features(X, reset=False)
            normalised = True if self.normalised is None else flag("normalised", self.normalised)
            # prior=False: ln P(x | y) without the log class proportion. unseen: rows of a fold may
            # have levels that are missing from its model's training rows; these are averaged over
            return log_scores(
                model.result_, table, normalised, prior=False, unseen="ignore"
            ).to_numpy(float)


def _layers(hidden: object) -> tuple[int, ...]:
    """Return the number of units in each layer, given one number or several."""
    if isinstance(hidden, tuple | list):
        return tuple(integer("hidden", q, 1) for q in hidden)
    return () if hidden == 0 else (integer("hidden", hidden, 1),)
