"""BBLClassifier: `bbl.bbl` as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs

from bbl.api.machine.call import AUTO, is_auto
from bbl.api.machine.fit import bbl
from bbl.checks import integer
from bbl.choices import LogZ, Method, MissingPolicy, Unseen
from bbl.design.columns import missing_rows
from bbl.design.formula import parse
from bbl.design.frames import Frame
from bbl.design.grammar import quoted
from bbl.design.values import factorise
from bbl.engines import Engine, engine_class
from bbl.errors import BBLTypeError, OptionError
from bbl.sklearn.base import TableClassifier, TrainingTable

__all__ = ["BBLClassifier"]

# parameters of the estimator that are also options of the method
ENGINE_PARAMETERS = ("lambda_", "lambdah", "eps", "prior_count", "tolerance", "itmax")


class BBLClassifier(TableClassifier):
    """Boltzmann Bayes learner as a scikit-learn classifier.

    Every column of `X` is a predictor, and its distinct values (strings, integers, booleans or
    categories) are its levels. Bin continuous columns first, for example with
    ``KBinsDiscretizer(encode="ordinal")``. The model is bitwise identical to `bbl.bbl` with the
    same method on the same columns.

    Parameters
    ----------
    method : {"auto", "pseudo", "mf", "naive", "bayes", "conditional"} or Engine, default "auto"
        "auto" averages several methods, tuned and weighted by cross-validation inside `fit`; it is
        usually the most accurate. Pseudo-likelihood, mean field, naive Bayes, posterior draws and
        conditional likelihood are faster, and use a single table of coefficients. Pass an Engine
        for a method with options.
    pairs : {"all", "none"}, str or list of pairs, default "all"
        Which predictors interact: all pairs; none; the right-hand side of a formula, such as ``".^2
        - a:b"`` or ``"a*b + c"``; or a list of pairs (or larger terms) of column names or
        positions. With a list or "none", all columns are predictors. Columns without names are
        called ``x0``, ``x1``, ...; put a column called ``all`` or ``none`` in backticks.
    order : int, default 2
        With ``pairs="all"``, the maximum number of predictors in a term: 3 means all pairs and
        triples, as in ``.^3``.
    log_z : {"auto", "exact", "pseudo", "half", "mf", "ais"}, default "auto"
        How ln Z is computed (see `bbl.bbl`).
    lambda_ : float or {"cv", "cv-1se"}, optional
        Penalty on couplings, for ``method="pseudo"``. Here and below, None selects the method's
        default; options that the method does not have must be None.
    lambdah : float, optional
        Penalty on fields, for ``method="pseudo"``. None means 1e-4, which keeps the fields of
        levels that do not occur in a class finite; the default of `bbl.bbl` is 0.
    eps : float or {"cv", "cv-1se"}, optional
        Weight of the sample covariance, for ``method="mf"``.
    prior_count : float, optional
        Pseudocount, for all methods.
    tolerance : float, optional
        Gradient norm at which iterations stop, for ``method="pseudo"``.
    itmax : int, optional
        Maximum number of iterations, for ``method="pseudo"``.
    options : dict, optional
        Further options of the method by name, such as ``{"symmetrize": False}``. With
        ``{"logits": "cumulative"}`` or ``"adjacent"`` for ``method="conditional"``, classes are in
        the order of an ordered categorical `y`, or in increasing order if `y` is numeric.
    unseen : {"ignore", "raise"}, default "ignore"
        Whether to marginalise over levels that were not in the training data, or to raise an error.
        For rows without any known level, the class proportions are predicted.
    missing : {"raise", "drop", "level", "marginal"}, default "raise"
        Treatment of missing values (None, nan, NA, NaT) in `X`. "raise": raise an error. "drop":
        drop their rows in `fit`, and predict nan for such rows. "level": treat them as a separate
        level. "marginal": marginalise over them. See `bbl.bbl`.
    numeric : column name, list of names, or True, optional
        Numeric columns of `X`; see `bbl.bbl`. The arguments ``covariance``, ``divisor``, ``shrink``
        and ``transform`` of `bbl.bbl` are passed in `options`.
    class_weight : {"balanced"} or dict of class to weight, optional
        Weights of the rows of each class; classes missing from a dict have weight 1. Each class is
        fitted to its own rows only, so weights only change the class proportions used for
        predictions; "balanced" makes them equal.
    n_jobs : int, optional
        Number of threads. None means 1, or the number set by `joblib.parallel_config`; -1 uses all
        cores. Results do not depend on it.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Names of the columns of `X`, if all of them are strings.
    result_ : BBLResults or AverageResults
        The fitted model: coefficients, summary, standard errors, plots. Its response has the name
        of the Series `y`, otherwise ``y``.

    See Also
    --------
    bbl.bbl : The same model from a formula.

    Notes
    -----
    Sample weights are frequencies. A row of weight 0 is ignored, including its levels and its
    class. The methods "pseudo", "mf", "naive", "pvi", "pcd" and "mpf" accept fractional weights.
    Pseudocounts are in units of the weights, so the weights should sum to about the number of rows.

    A column with a single value in the training rows (of a fold, for example) is omitted from the
    formula; if all columns have a single value, the first one is kept.

    References
    ----------
    Woo J, Wang J (2022). bbl: Boltzmann Bayes Learner for High-Dimensional Inference with Discrete
    Predictors in R. Journal of Statistical Software.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> import bbl
    >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq").sample(frac=1.0, random_state=0)
    >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
    >>> BBLClassifier().fit(X, y).predict_proba(X.head(2)).round(2)
    array([[0.54, 0.46],
           [0.9 , 0.1 ]])
    >>> model = BBLClassifier("pseudo", pairs=".^2 - Class:Age").fit(X, y)
    >>> model.predict_proba(X.head(2)).round(2)
    array([[0.54, 0.46],
           [0.87, 0.13]])
    >>> float(cross_val_score(model, X, y, cv=3).mean().round(2))
    0.79
    """

    def __init__(
        self,
        method: Method | Literal["auto"] | Engine = AUTO,
        *,
        pairs: str | Sequence = "all",
        order: int = 2,
        log_z: LogZ = "auto",
        lambda_: float | str | None = None,
        lambdah: float | None = None,
        eps: float | str | None = None,
        prior_count: float | None = None,
        tolerance: float | None = None,
        itmax: int | None = None,
        options: dict[str, Any] | None = None,
        unseen: Unseen = "ignore",
        missing: MissingPolicy = "raise",
        numeric: Any = None,
        class_weight: Mapping | str | None = None,
        n_jobs: int | None = None,
    ):
        self.method = method
        self.pairs = pairs
        self.order = order
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
        self.numeric = numeric
        self.class_weight = class_weight
        self.n_jobs = n_jobs

    @property
    def _needs_counts(self) -> bool:
        """Whether the method requires integer weights."""
        # the average ("auto") accepts counts only; an engine's `weights` is "counts" or "real"
        return is_auto(self.method) or engine_class(self.method).weights == "counts"

    @property
    def _uses_order(self) -> bool:
        """Whether the method uses the order of the classes."""
        if isinstance(self.method, Engine):
            return getattr(self.method, "logits", "nominal") != "nominal"
        options = self.options if isinstance(self.options, Mapping) else {}
        return options.get("logits", "nominal") != "nominal"

    def _fit_model(self, training: TrainingTable) -> Any:
        """Return the results of `bbl.bbl` for checked training data."""
        formula = _make_formula(training.response, self.pairs, self.order, training.features)
        # novarOk: accept predictors with one level; testNull: no pooled fit
        return bbl(
            _remove_constants(formula, training.data, training.weighted_rows, self.missing),
            training.data,
            training.weights,
            self.method,
            novarOk=True,
            testNull=False,
            missing=self.missing,
            numeric=self.numeric,
            log_z=self.log_z,
            n_jobs=effective_n_jobs(self.n_jobs),
            verbose=0,
            **self._engine_options(),
        )

    def _engine_options(self) -> dict[str, Any]:
        """Return the options of the method by name.

        The parameter `options` overrides parameters that are not None, which override the defaults
        for classifiers.
        """
        options = {
            name: getattr(self, name)
            for name in ENGINE_PARAMETERS
            if getattr(self, name) is not None
        }
        if isinstance(self.method, str) and not is_auto(self.method):
            # an engine's `classifier` contains the defaults that differ for this class
            options = options | (self.options if isinstance(self.options, dict) else {})
            options = {**engine_class(self.method).classifier_defaults(options), **options}
        if not isinstance(self.options, dict | None):
            raise BBLTypeError(
                f"options must be a dict that maps option names to values; got {self.options!r}.",
                argument="options",
                value=self.options,
            )
        return options | (self.options or {})


def _make_formula(
    response: str, pairs: str | Sequence | np.ndarray, order: int, names: Sequence[Hashable]
) -> str:
    """Return the formula given by the parameters `pairs` and `order` of `BBLClassifier`.

    `response` is the name of the class column, and `names` are the columns of X.
    """
    max_order = integer("order", order, 1, 99)
    if isinstance(pairs, str):
        # other strings are right-hand sides
        right_side = {"all": f".^{max_order}", "none": "."}.get(pairs, pairs)
    elif isinstance(pairs, Sequence | np.ndarray):
        right_side = " + ".join([".", *(_write_term(term, names) for term in pairs)])
    else:
        raise BBLTypeError(
            "pairs must be 'all', 'none', the right-hand side of a formula, or a list of pairs; "
            f"got {pairs!r}.",
            argument="pairs",
            value=pairs,
        )
    return f"{quoted(response)} ~ {right_side}"


def _write_term(term: object, names: Sequence[Hashable]) -> str:
    """Return the text ``a:b`` of a term, a sequence of names or positions of columns; `names` are
    all columns of X.
    """
    columns = (
        list(term) if isinstance(term, Sequence | np.ndarray) and not isinstance(term, str) else []
    )
    # positions become names; anything else stays, and is rejected unless it is a name
    columns = [
        names[int(column)]
        if isinstance(column, int | np.integer) and 0 <= column < len(names)
        else column
        for column in columns
    ]
    are_names = all(isinstance(column, str) and column in names for column in columns)
    if len(columns) < 2 or not are_names or len(set(columns)) < len(columns):
        raise OptionError(
            f"pairs contains {term!r}, which is not a valid term.",
            argument="pairs",
            hint=(
                "Pass the names or positions of two or more different columns of X, which has "
                f"{len(names)} columns."
            ),
        )
    return ":".join(map(quoted, columns))


def _remove_constants(formula: str, data: Frame, rows: np.ndarray, missing: str) -> str:
    """Return the formula without the predictors that are constant in the rows at `rows`. If all
    predictors are constant, the first is kept.

    `missing` is the parameter of `BBLClassifier`.
    """
    # order=None accepts terms of any order; the fit rejects terms above its own limit
    predictors = parse(formula, data.columns, order=None).predictors
    if missing == "drop":
        rows = rows[~missing_rows(data, predictors)[rows]]  # `missing_rows` returns a mask (n,)
    constant_names = []
    for name in predictors:
        # its distinct values, including missing ones
        column = factorise(name, data.column(name).iloc[rows], "keep")
        has_missing = column.missing() is not None  # a mask, or None if no value is missing
        # `used` marks the distinct values that occur; missing is one of them, but not a level if
        # averaged over
        n_used = column.used().sum() - (missing == "marginal" and has_missing)
        # the fit raises the error about missing values
        if n_used < 2 and not (missing == "raise" and has_missing):
            constant_names.append(name)
    removed_names = constant_names[1:] if len(constant_names) == len(predictors) else constant_names
    return "".join([formula, *(f" - {quoted(name)}" for name in removed_names)])
