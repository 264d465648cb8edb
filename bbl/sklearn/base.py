"""Base classes of the estimators, which convert X and y to a table, and predictions to arrays.

The numbers of rows, columns and classes are n, m and K. ``result_.class_shares`` (K,) are the class
proportions of the training rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from bbl.checks import choice, real
from bbl.choices import MissingPolicy, Unseen
from bbl.design.design import MISSING
from bbl.design.frames import Frame, to_frame
from bbl.design.weights import check_weights
from bbl.errors import BBLError, BBLTypeError, DataError, Hint, OptionError
from bbl.results.classifier import ClassifierResults
from bbl.sklearn.state import ResultState
from bbl.sklearn.tables import (
    amounts_as_categories,
    as_frame,
    column_of_used_categories,
    keep_numbers,
    response_name,
    with_response,
)
from bbl.stats.metrics import first_largest, link, log_probabilities

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_array
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError as error:
    raise ImportError(
        "bbl.sklearn needs scikit-learn 1.8 or later: pip install boltzmann-bayes[sklearn]"
    ) from error

__all__ = ["TableClassifier", "TableEstimator", "TrainingTable", "table_errors"]


class TrainingTable(NamedTuple):
    """The checked arguments of `fit`."""

    data: Frame  # the columns of X, followed by the classes y
    response: str  # name of the column with the classes
    classes: np.ndarray  # sorted labels (K,) of the rows of positive weight
    weights: np.ndarray  # frequencies or other weights of the rows, (n,)
    weighted_rows: np.ndarray  # positions of the rows of positive weight
    features: tuple  # names of the columns of X


class TableEstimator(ResultState, BaseEstimator):
    """Base class of estimators with categorical X and classes y.

    Subclasses have the parameters `missing` and `unseen`, and define `_fit_model`.
    """

    missing: MissingPolicy  # treatment of missing values in X
    unseen: Unseen  # treatment of unknown levels in new rows
    result_: Any  # the fitted model

    def __sklearn_tags__(self):
        """Return scikit-learn's input tags: categorical, and missing values if they are allowed."""
        tags = super().__sklearn_tags__()
        # not input_tags.string: scikit-learn's checks would then require that `fit` accepts a dict
        # as a cell
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing != "raise"
        return tags

    def fit(self, X, y, sample_weight=None) -> Self:
        """Fit the model to rows of categorical values and their classes.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            One column per predictor.
        y : array_like, shape (n,)
            Class of each row.
        sample_weight : array_like, shape (n,), optional
            Integer frequencies, or any positive numbers if the method accepts them. `X`, `y` and
            weights are matched by position; pandas indexes are ignored.

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        ValueError
            If rows, columns, weights or options are invalid, or there is only one class.
        TypeError
            If a cell contains an object that cannot be a level, or an option has the wrong type.

        Warns
        -----
        DataWarning
            If a column of an array looks continuous, because each distinct number becomes a level.
            For a DataFrame, in which columns can be declared categorical, an error is raised
            instead.
        ConvergenceWarning, DataWarning
            As in the function that fits the same model from a formula.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import BBLClassifier
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> BBLClassifier("pseudo").fit(X, y).result_.formula
        '`Survived` ~ .^2'
        """
        training = self._read_training(X, y, sample_weight, whole=self._needs_counts)
        with table_errors():  # errors about the type of a column refer to the argument X
            result = self._fit_model(training)
        self._store_result(result, training)
        return self

    @property
    def _needs_counts(self) -> bool:
        """Whether the model requires integer weights (counts of rows)."""
        return True

    @property
    def _uses_order(self) -> bool:
        """Whether the model uses the order of the classes."""
        return False

    def _fit_model(self, training: TrainingTable) -> Any:
        """Return the results of the package's function for the checked arguments of `fit`."""
        raise NotImplementedError

    def _store_result(self, result: Any, training: TrainingTable) -> None:
        """Set ``result_``."""
        self.result_ = result

    def _read_training(self, X, y, sample_weight, whole: bool) -> TrainingTable:
        """Check the arguments of `fit`, and combine X and y in one table; `whole` requires integer
        weights.
        """
        choice("unseen", self.unseen, ("raise", "ignore"))
        choice("missing", self.missing, MISSING)
        y_name = getattr(y, "name", None)
        declared = y
        y = _check_labels(self, y)
        table = self._read_features(X, reset=True)
        if not table.n:
            raise DataError(
                "X has no rows.", argument="X", hint="Pass rows of at least two classes."
            )
        check_consistent_length(y, pd.RangeIndex(table.n))  # the index stands in for the rows of X
        weights = None if sample_weight is None else column_or_1d(sample_weight)
        row_weights = check_weights(weights, table.n, "sample_weight", whole=whole)
        weighted_rows = np.flatnonzero(row_weights)
        classes = np.unique(y[weighted_rows])
        if len(classes) < 2:
            raise DataError(
                f"y has one class, {classes.tolist()[0]!r}.",
                hint="Pass rows of at least two classes.",
            )
        response = response_name(y_name, table.columns)
        # `amounts_as_categories` made categories from all rows of an array; drop those that occur
        # only with weight 0. Categories declared in a DataFrame stay
        if as_frame(X) is None and len(weighted_rows) < table.n:
            # ``get(k)`` now returns ``column_of_used_categories(table, weighted_rows, k)``
            table = replace(table, get=partial(column_of_used_categories, table, weighted_rows))
        in_order = _in_order(declared, classes) if self._uses_order else None
        data = with_response(
            table, response, y, classes if in_order is None else in_order, in_order is not None
        )
        return TrainingTable(data, response, classes, row_weights, weighted_rows, table.columns)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` was called. scikit-learn's default check would mistake lambda_ for a
        fitted attribute.
        """
        return hasattr(self, "result_")

    def _read_features(self, X, reset: bool) -> Frame:
        """Return X as a table with the feature names as column names.

        `reset` (in `fit`) stores the number and names of the columns; otherwise they are checked
        against the stored ones.
        """
        frame = as_frame(X)
        if frame is None:  # an array or nested lists
            finite = True if self.missing == "raise" else "allow-nan"
            array = validate_data(
                self, keep_numbers(X), reset=reset, dtype=None, ensure_all_finite=finite
            )
            # in `fit`, fractions must be categories or they are rejected as continuous; new data
            # need no categories because their values are looked up among the levels
            is_levels = reset and not getattr(self, "numeric", False)
            table = amounts_as_categories(array) if is_levels else pd.DataFrame(array)
            frame = to_frame(table, "X")
        else:
            # pass an empty DataFrame with the names: some versions of scikit-learn do not support
            # all table types
            validate_data(
                self, pd.DataFrame(columns=list(frame.columns)), reset=reset, skip_check_array=True
            )
        # `validate_data` sets n_features_in_ and, if all column names are strings,
        # feature_names_in_ (with `reset`); columns without names are called x0, x1, ..., as in
        # scikit-learn
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        return replace(frame, columns=tuple(names), argument="X")


class TableClassifier(ClassifierMixin, TableEstimator):
    """Base class of classifiers; subclasses also have the parameter `class_weight`."""

    class_weight: Mapping | str | None

    def _store_result(self, result: Any, training: TrainingTable) -> None:
        """Set ``result_`` and ``classes_``. Classes are omitted if missing="drop" dropped all of
        their rows.
        """
        fitted_classes = set(result.labels.groups)
        classes = training.classes
        # tolist: plain Python objects, as in `fitted_classes`
        self.classes_ = classes[[c in fitted_classes for c in pd.Index(classes).tolist()]]
        self.result_ = result.with_priors(_make_priors(self.class_weight, classes, result))

    def _class_scores(self, X) -> np.ndarray:
        """Return the class scores (n, K) of the rows of X, in the order of `classes_`."""
        check_is_fitted(self)
        scores = self.result_._new_scores(self._read_features(X, reset=False), self.unseen)
        # groups of an ordered y need not be sorted
        position = {group: k for k, group in enumerate(self.result_.labels.groups)}
        return scores[:, [position[c] for c in pd.Index(self.classes_).tolist()]]

    def predict(self, X) -> np.ndarray:
        """Return the most probable class of each row, shape (n,).

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n,)
            nan for rows with missing values if ``missing="drop"``.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import BBLClassifier
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> model = BBLClassifier("pseudo").fit(X, y)
        >>> model.predict(X.head(2)).tolist()
        ['No', 'No']
        """
        scores = self._class_scores(X)
        predicted = self.classes_[first_largest(scores)]  # ties go to the first class
        dropped = np.isnan(scores).any(axis=1)  # rows with missing values, under missing="drop"
        if dropped.any():  # nan requires floats or objects
            predicted = predicted.astype(float if predicted.dtype.kind in "iuf" else object)
            predicted[dropped] = np.nan
        return predicted

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability ``P(y | x)`` of each class in ``classes_``; eq. (28) of Woo & Wang
        (2022).

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
        >>> from bbl.sklearn import BBLClassifier
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> model = BBLClassifier("pseudo").fit(X, y)
        >>> model.predict_proba(X.head(1)).round(3).tolist()
        [[0.875, 0.125]]
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X) -> np.ndarray:
        """Return the log-probability of each class.

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
        >>> from bbl.sklearn import BBLClassifier
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> model = BBLClassifier("pseudo").fit(X, y)
        >>> model.predict_log_proba(X.head(1)).round(3).tolist()
        [[-0.133, -2.08]]
        """
        return log_probabilities(self._class_scores(X))

    def decision_function(self, X) -> np.ndarray:
        """Return the log-odds of each class, ``F_y(x) = ln(P(y | x) / (1 - P(y | x)))``, eq. (29)
        of Woo & Wang (2022).

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, K), or (n,) for two classes
            With two classes, the log-odds of ``classes_[1]``.

        Examples
        --------
        >>> import bbl
        >>> from bbl.sklearn import BBLClassifier
        >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq")
        >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
        >>> model = BBLClassifier("pseudo").fit(X, y)
        >>> model.decision_function(X.head(2)).round(3).tolist()
        [-1.946, -1.946]
        """
        scores = link(self._class_scores(X))  # log-odds (n, K)
        return scores[:, 1] if len(self.classes_) == 2 else scores


@contextmanager
def table_errors() -> Iterator[None]:
    """Replace hints in errors with those for estimators, and re-raise a BBLTypeError about a column
    as an error about X.
    """
    try:
        yield
    except BBLError as error:
        if isinstance(error.hint, Hint):
            error.hint = error.hint.estimators
        if error.column is None or not isinstance(error, BBLTypeError):
            raise
        raise BBLTypeError(
            f"{error.message} The argument must be a table of strings, numbers, booleans or "
            "categories.",
            hint=error.hint,
            column=error.column,
            argument="X",
            value=error.value,
        ) from error


def _check_labels(estimator: TableEstimator, y: Any) -> np.ndarray:
    """Check the classes y and return them as an array (n,)."""
    if y is None:
        raise DataError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None.",
            argument="y",
        )
    y = column_or_1d(y, warn=True)
    is_missing = pd.isna(y)
    if is_missing.any():
        raise DataError(
            f"y has {is_missing.sum()} missing values (NaN).",
            argument="y",
            hint="Drop these rows.",
        )
    # rejects infinite and complex values
    check_array(y, ensure_2d=False, dtype=None, ensure_min_samples=0, input_name="y")
    try:
        np.unique(y)  # sorts the labels, which fails for mixed types
    except TypeError:
        type_names = ", ".join(sorted({type(label).__name__ for label in y}))
        raise BBLTypeError(
            f"y mixes labels of the types {type_names}.",
            argument="y",
            hint="Convert all labels to strings, or all to numbers.",
        ) from None
    check_classification_targets(y)
    return y


def _in_order(y: Any, classes: np.ndarray) -> np.ndarray | None:
    """Return the sorted labels `classes` (K,) in the order that y declares, or in increasing order
    if they are numbers. Returns None if their order is unknown.
    """
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
        categories = dtype.categories
        return classes[np.argsort(categories.get_indexer(pd.Index(classes)))]
    return classes if classes.dtype.kind in "iuf" else None


def _make_priors(
    class_weight: Mapping | str | None, classes: np.ndarray, result: ClassifierResults
) -> dict | str | None:
    """Return the argument of `with_priors` for `class_weight`: a dict of class proportions for
    predictions.

    The proportions are class weights times training proportions, normalised: ``w_k s_k / sum_l w_l
    s_l``. Returns None if there are no weights, and "equal" for "balanced". `classes` are all
    labels of y; ``result.labels.groups`` are the K labels of the rows used, with proportions
    ``result.class_shares`` (K,).
    """
    if class_weight is None:
        return None
    class_names = pd.Index(classes).tolist()  # including classes whose rows were dropped
    if isinstance(class_weight, Mapping):
        for name, weight in class_weight.items():
            if name not in class_names:
                raise OptionError(
                    f"class_weight contains {name!r}, which is not a class of y.",
                    argument="class_weight",
                )
            real(f"class_weight[{name!r}]", weight, 0.0)
        class_weights = np.array([class_weight.get(group, 1.0) for group in result.labels.groups])
        shares = class_weights * result.class_shares
        if not shares.sum() > 0.0:
            raise OptionError(
                "class_weight is zero for every class.",
                argument="class_weight",
                hint="Give at least one class a positive weight.",
            )
        return dict(zip(result.labels.groups, shares / shares.sum(), strict=True))
    if not isinstance(class_weight, str) or class_weight != "balanced":
        raise OptionError(
            "class_weight must be None, 'balanced' or a dict that maps classes to weights; got "
            f"{class_weight!r}.",
            argument="class_weight",
            value=class_weight,
        )
    return "equal"
