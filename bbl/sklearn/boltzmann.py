"""BBLClassifier: the learner as a scikit-learn classifier; it names the columns of X and y and calls `bbl`."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from scipy.sparse import issparse

from bbl.api.fit import bbl
from bbl.checks import choice
from bbl.design.design import MISSING, missing_rows
from bbl.design.factors import Factor, factorise
from bbl.design.formula import parse
from bbl.design.frames import Frame, to_frame
from bbl.design.weights import check_weights
from bbl.engines import Engine, engine_class
from bbl.errors import BBLTypeError, DataError, DataWarning, OptionError
from bbl.stats.scores import link, log_probabilities

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_array
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("bbl.sklearn needs scikit-learn 1.8 or later: pip install boltzmann-bayes[sklearn]") from error

__all__ = ["BBLClassifier"]

OPTIONS = ("lambda_", "lambdah", "eps", "prior_count", "tolerance", "itmax")


class BBLClassifier(ClassifierMixin, BaseEstimator):
    """Boltzmann Bayes learner as a scikit-learn classifier.

    Every column of `X` is a predictor, and every distinct value of it a level: strings, whole numbers, booleans and
    categories. Continuous columns are to be binned first, for example with
    ``KBinsDiscretizer(encode="ordinal")``. The model is that of `bbl.bbl` on the same columns, to the last bit.

    Parameters
    ----------
    method : {"pseudo", "mf", "naive"} or Engine, default "pseudo"
        Pseudo-likelihood, mean field, naive Bayes, or one of them with its options set.
    pairs : {"all", "none"}, str or list of pairs, default "all"
        Which predictors interact: the right-hand side of a formula, as ``".^2 - a:b"`` or ``"a*b + c"``, or a list
        of pairs of column names or positions; a list, and "none", keep all columns as predictors. Columns without
        names are called ``x0``, ``x1``, ...; a column called ``all`` or ``none`` is written in backticks.
    log_z : {"auto", "exact", "pseudo", "half", "mf", "ais"}, default "auto"
        How ln Z is computed, see `bbl.bbl`.
    lambda_ : float or {"cv", "cv-1se"}, optional
        Penalty on couplings, for ``method="pseudo"``. None for the method's default, here and below; an option that
        the method does not have must be None.
    lambdah : float, optional
        Penalty on fields, for ``method="pseudo"``. None for 1e-4, so that a level that a class never has keeps a
        finite field; `bbl.bbl` has 0 by default.
    eps : float or {"cv", "cv-1se"}, optional
        Weight of the sample covariance, for ``method="mf"``.
    prior_count : float, optional
        Pseudocount, for ``method="mf"`` and ``"naive"``.
    tolerance : float, optional
        Largest gradient norm, for ``method="pseudo"``.
    itmax : int, optional
        Most iterations, for ``method="pseudo"``.
    options : dict, optional
        Further options of the method by name, such as ``{"symmetrize": False}``.
    unseen : {"ignore", "raise"}, default "ignore"
        Whether, in a row with a level that was not in the training data, that predictor is summed out, or it is an
        error. A row of which nothing is known gets the shares of the classes.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        What is done with missing values (None, nan, NA, NaT) of `X`, see `bbl.bbl`: an error; their rows are dropped in
        `fit`, and have neither class nor probabilities (nan); a level of their own; or summed out.
    n_jobs : int, optional
        Threads; None for 1, unless in a `joblib.parallel_config` context, and -1 for all cores. Results do not
        depend on it.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Their names, if all of them are strings.
    result_ : BBLResults
        The fitted model: coefficients, summary, standard errors, plots. Its response has the name of the Series `y`,
        or is ``y``.

    See Also
    --------
    bbl.bbl : The same model by formula.

    Notes
    -----
    Sample weights are frequencies: a whole number of times that the row is repeated. A row of weight 0 is as good as
    absent, with its levels and its class. Fractional weights are refused, because pseudocounts, penalties, folds and
    tests count observations: multiply them to whole numbers, or repeat rows.

    A column with a single value in the training rows (of a fold, say) is no predictor of that fit; if all columns are
    so, the first stays.

    References
    ----------
    Woo J, Wang J (2022). bbl: Boltzmann Bayes Learner for High-Dimensional Inference with Discrete Predictors
    in R. Journal of Statistical Software.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> import bbl
    >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq").sample(frac=1.0, random_state=0)
    >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
    >>> model = BBLClassifier(pairs=".^2 - Class:Age").fit(X, y)
    >>> model.predict_proba(X.head(2)).round(2)
    array([[0.54, 0.46],
           [0.87, 0.13]])
    >>> float(cross_val_score(model, X, y, cv=3).mean().round(2))
    0.79
    """

    def __init__(
        self,
        method: str | Engine = "pseudo",
        *,
        pairs: str | Sequence = "all",
        log_z: str = "auto",
        lambda_: float | str | None = None,
        lambdah: float | None = None,
        eps: float | str | None = None,
        prior_count: float | None = None,
        tolerance: float | None = None,
        itmax: int | None = None,
        options: dict[str, Any] | None = None,
        unseen: str = "ignore",
        missing: str = "raise",
        n_jobs: int | None = None,
    ):
        self.method = method
        self.pairs = pairs
        self.log_z = log_z
        self.lambda_ = lambda_
        self.lambdah = lambdah
        self.eps = eps
        self.prior_count = prior_count
        self.tolerance = tolerance
        self.itmax = itmax
        self.options = options
        self.unseen = unseen
        self.missing = missing
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # not input_tags.string, though strings are levels: it would promise that cells may hold any object
        tags.input_tags.categorical = True
        tags.input_tags.allow_nan = self.missing != "raise"
        return tags

    def fit(self, X, y, sample_weight=None) -> BBLClassifier:
        """Fit the model.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            One column per predictor.
        y : array_like, shape (n,)
            Class of each row.
        sample_weight : array_like, shape (n,), optional
            Frequencies, whole numbers. As everywhere in scikit-learn, `X`, `y` and weights go by position, whatever
            index they have.

        Returns
        -------
        BBLClassifier
            The classifier itself.

        Raises
        ------
        ValueError
            If rows, columns, weights or options cannot be used, or there is but one class; the message names them.
        TypeError
            If cells hold what cannot be levels, or an option is of a type that cannot be used.

        Warns
        -----
        ConvergenceWarning
            If a predictor did not reach its optimum.
        DataWarning
            If a column of an array looks continuous: its numbers are levels all the same. In a DataFrame, where
            columns can be declared to be categories, it is an error.
        """
        choice("unseen", self.unseen, ("raise", "ignore"))
        choice("missing", self.missing, MISSING)
        name = getattr(y, "name", None)
        y = _labels(self, y)
        table = self._table(X, reset=True)
        if not table.n:
            raise DataError("X has no rows. Give rows of at least two classes.", argument="X")
        check_consistent_length(y, pd.RangeIndex(table.n))
        weights = None if sample_weight is None else column_or_1d(sample_weight)
        counts = check_weights(weights, table.n, "sample_weight")
        keep = np.flatnonzero(counts)
        classes = np.unique(y[keep])
        if len(classes) < 2:
            raise DataError(f"y has one class, {classes.tolist()[0]!r}; give rows of at least two classes.")
        response = _response_name(name, table.columns)
        data = _with_response(table, response, y, classes)
        formula = _formula(response, self.pairs, table.columns)
        try:
            result = bbl(
                _without_constants(formula, data, keep, self.missing),
                data,
                counts,
                self.method,
                novarOk=True,
                testNull=False,
                missing=self.missing,
                log_z=self.log_z,
                n_jobs=effective_n_jobs(self.n_jobs),
                verbose=0,
                **self._options(),
            )
        except BBLTypeError as error:
            if error.column is None:
                raise
            text = f"{error} The argument must be a table of strings, numbers, booleans or categories."
            raise BBLTypeError(text, column=error.column, argument="X") from error
        # a class may have lost all its rows to missing="drop"
        kept = set(result.labels.groups)
        self.classes_ = classes[[c in kept for c in pd.Index(classes).tolist()]]
        self.result_ = result
        return self

    def __sklearn_is_fitted__(self) -> bool:  # by default, lambda_ would be taken for a fitted attribute
        return hasattr(self, "result_")

    def _options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        if isinstance(self.method, str):
            options = {**engine_class(self.method).classifier, **options}
        return options | (self.options or {})

    def _table(self, X, reset: bool) -> Frame:
        """Return X as a table whose columns have the names of the features, having checked their number and names."""
        frame = _as_frame(X)
        if frame is None:
            finite = True if self.missing == "raise" else "allow-nan"
            array = validate_data(self, _strings_apart(X), reset=reset, dtype=None, ensure_all_finite=finite)
            frame = to_frame(_categories(array) if reset else pd.DataFrame(array), "X")
        else:
            # a stand-in for the names: not every scikit-learn knows every kind of table
            validate_data(self, pd.DataFrame(columns=list(frame.columns)), reset=reset, skip_check_array=True)
        names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])
        return Frame(tuple(names), frame.index, frame.get, "X")

    def _scores(self, X) -> np.ndarray:
        """Return the class scores (n, K) of rows."""
        check_is_fitted(self)
        return self.result_._new_scores(self._table(X, reset=False), self.unseen)

    def predict(self, X) -> np.ndarray:
        """Return the most likely class of each row, shape (n,).

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n,)
            Missing (nan) in rows with missing values if ``missing="drop"``.
        """
        scores = self._scores(X)
        best = self.classes_[scores.argmax(axis=1)]
        dropped = np.isnan(scores).any(axis=1)
        if dropped.any():
            best = best.astype(float if best.dtype.kind in "iuf" else object)
            best[dropped] = np.nan
        return best

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class (eq. 28), in the order of ``classes_``.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, K)
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X) -> np.ndarray:
        """Return the logarithm of the probability of each class.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, K)
        """
        return log_probabilities(self._scores(X))

    def decision_function(self, X) -> np.ndarray:
        """Return ``F_y(x)`` of eq. (29), the log-odds of each class.

        Parameters
        ----------
        X : DataFrame (pandas, polars), pyarrow Table or array_like, shape (n, m)
            Columns as in `fit`.

        Returns
        -------
        ndarray, shape (n, K), or (n,) for two classes
            For two classes that of ``classes_[1]``.
        """
        scores = link(self._scores(X))
        return scores[:, 1] if len(self.classes_) == 2 else scores


def _labels(estimator: BBLClassifier, y: Any) -> np.ndarray:
    """Return the class labels as a checked 1-d array."""
    if y is None:
        raise DataError("BBLClassifier requires y to be passed, but the target y is None.", argument="y")
    y = column_or_1d(y, warn=True)
    missing = pd.isna(y)
    if missing.any():
        raise DataError(f"y has {missing.sum()} missing values (NaN). Drop these rows.", argument="y")
    check_array(y, ensure_2d=False, dtype=None, ensure_min_samples=0, input_name="y")  # infinite or complex
    try:
        np.unique(y)
    except TypeError:
        kinds = ", ".join(sorted({type(v).__name__ for v in y}))
        raise BBLTypeError(
            f"y mixes labels of the types {kinds}. Make them all strings or all numbers.", argument="y"
        ) from None
    check_classification_targets(y)
    return y


def _as_frame(X: Any) -> Frame | None:
    """Return X as a table, or None if it is none (an array, nested lists)."""
    if issparse(X):  # some of its kinds are dicts
        return None
    try:
        return to_frame(X, "X")
    except BBLTypeError:
        return None


def _strings_apart(X: Any) -> Any:
    """Return nested lists that hold strings as objects: numpy would turn the numbers among them into strings."""
    if isinstance(X, list | tuple):
        try:
            return np.array(X, dtype=object) if np.asarray(X).dtype.kind == "U" else X
        except ValueError:  # ragged: refused by scikit-learn
            return X
    return X


def _categories(array: np.ndarray) -> pd.DataFrame:
    """Return an array as a DataFrame whose columns of fractional numbers are declared to be categories.

    An array cannot declare them itself.
    """
    data = pd.DataFrame(array)
    if array.dtype.kind != "f":
        return data
    continuous = []
    for k in np.flatnonzero((np.isfinite(array) & (array != np.floor(array))).any(axis=0)):
        column = factorise(k, data[k], "keep")
        try:
            Factor.collect(column)
        except DataError:
            continuous.append(k)
        data[k] = data[k].astype("category")
    if continuous:
        shown = ", ".join(map(str, continuous[:5])) + (f", and {len(continuous) - 5} more" * (len(continuous) > 5))
        warnings.warn(
            f"Columns of X that look continuous: {shown}. Every number in them is a level of its own, so nothing is "
            "learnt about the numbers between; bin them first, for example with KBinsDiscretizer(encode='ordinal').",
            DataWarning,
            stacklevel=4,
        )
    return data


def _response_name(name: Any, columns: Sequence[Hashable]) -> str:
    """Return the name of the Series y, or "y", with underscores added where a column has that name."""
    response = name if isinstance(name, str) and name else "y"
    while response in columns:
        response += "_"
    return response


def _with_response(table: Frame, response: str, y: np.ndarray, classes: np.ndarray) -> Frame:
    """Return the table with one more column: the classes, in their order; missing where all rows have weight 0."""
    levels = pd.Index(classes)
    column = pd.Series(pd.Categorical.from_codes(levels.get_indexer(y), levels), index=table.index)
    m = len(table.columns)
    return Frame((*table.columns, response), table.index, lambda k: column if k == m else table.get(k), table.argument)


def _formula(response: str, pairs: Any, names: Sequence[Any]) -> str:
    """Return the formula that `pairs` stands for."""
    if isinstance(pairs, str):
        right = {"all": ".^2", "none": "."}.get(pairs, pairs)
    elif isinstance(pairs, Sequence | np.ndarray):
        right = " + ".join([".", *(_pair(pair, names) for pair in pairs)])
    else:
        raise BBLTypeError(
            f"pairs must be 'all', 'none', the right-hand side of a formula or a list of pairs; got {pairs!r}.",
            argument="pairs",
        )
    return f"{_quoted(response)} ~ {right}"


def _pair(pair: Any, names: Sequence[Any]) -> str:
    ends = list(pair) if isinstance(pair, Sequence | np.ndarray) and not isinstance(pair, str) else []
    ends = [names[int(e)] if isinstance(e, int | np.integer) and 0 <= e < len(names) else e for e in ends]
    if len(ends) != 2 or ends[0] == ends[1] or not all(isinstance(e, str) and e in names for e in ends):
        raise OptionError(
            f"pairs has the entry {pair!r}; give two different names or positions of the {len(names)} columns of X.",
            argument="pairs",
        )
    return ":".join(map(_quoted, ends))


def _quoted(name: Any) -> str:
    return "`" + str(name).replace("`", "``") + "`"


def _without_constants(formula: str, data: Frame, keep: np.ndarray, missing: str) -> str:
    """Return the formula less the predictors that are constant in the rows to keep; if all are, the first stays."""
    predictors = parse(formula, data.columns).predictors
    if missing == "drop":
        keep = keep[~missing_rows(data, predictors)[keep]]
    constant = []
    for name in predictors:
        column = factorise(name, data.column(name).iloc[keep], missing)
        levels = column.used().sum() - (missing == "marginal" and column.missing() is not None)
        if levels < 2:
            constant.append(name)
    dropped = constant[len(constant) == len(predictors) :]
    return "".join([formula, *(f" - {_quoted(name)}" for name in dropped)])
