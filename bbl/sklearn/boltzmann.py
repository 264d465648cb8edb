"""BBLClassifier: the learner as a scikit-learn classifier; it names the columns of X and y and calls `bbl`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from bbl.api.machine.average import AUTO, is_auto
from bbl.api.machine.fit import bbl
from bbl.checks import integer
from bbl.design.columns import missing_rows
from bbl.design.formula import parse
from bbl.design.frames import Frame
from bbl.design.grammar import quoted
from bbl.design.values import factorise
from bbl.engines import Engine, engine_class
from bbl.errors import BBLTypeError, OptionError
from bbl.sklearn.base import TableClassifier, TrainingTable

__all__ = ["BBLClassifier"]

OPTIONS = ("lambda_", "lambdah", "eps", "prior_count", "tolerance", "itmax")


class BBLClassifier(TableClassifier):
    """Boltzmann Bayes learner as a scikit-learn classifier.

    Every column of `X` is a predictor, and every distinct value of it a level: strings, whole numbers, booleans and
    categories. Continuous columns are to be binned first, for example with
    ``KBinsDiscretizer(encode="ordinal")``. The model is that of `bbl.bbl` with the same method on the same columns, to
    the last bit.

    Parameters
    ----------
    method : {"auto", "pseudo", "mf", "naive", "bayes", "conditional"} or Engine, default "auto"
        The average of several that is tuned and weighed by cross-validation inside `fit`, the most accurate. Or
        pseudo-likelihood, mean field, naive Bayes, posterior draws, conditional likelihood, or one of them with its
        options set: quicker, and one table of coefficients.
    pairs : {"all", "none"}, str or list of pairs, default "all"
        Which predictors interact: the right-hand side of a formula, as ``".^2 - a:b"`` or ``"a*b + c"``, or a list
        of pairs (or terms of more) of column names or positions; a list, and "none", keep all columns as predictors.
        Columns without names are called ``x0``, ``x1``, ...; a column called ``all`` or ``none`` is written in
        backticks.
    order : int, default 2
        With ``pairs="all"``, the most predictors in a term: 3 for all pairs and all terms of three, as ``.^3``.
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
        Pseudocount, for every method.
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
    class_weight : {"balanced"} or dict of class to weight, optional
        Weights of the classes' rows (those that a dict leaves out have 1). A class is fitted to its own rows alone, so
        weights change its share in predictions, and nothing else; "balanced" makes all classes equally probable.
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
    result_ : BBLResults or AverageResults
        The fitted model: coefficients, summary, standard errors, plots. Its response has the name of the Series `y`,
        or is ``y``.

    See Also
    --------
    bbl.bbl : The same model by formula.

    Notes
    -----
    Sample weights are frequencies: how often the row is repeated. A row of weight 0 is as good as absent, with its
    levels and its class. Fractional weights are taken by methods that can ("pseudo", "mf", "naive", "pvi"), and refused
    by the others. Pseudocounts are in units of the weights, so that these should sum to about the number of rows.

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
        method: str | Engine = AUTO,
        *,
        pairs: str | Sequence = "all",
        order: int = 2,
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
        self.class_weight = class_weight
        self.n_jobs = n_jobs

    @property
    def _needs_counts(self) -> bool:
        return is_auto(self.method) or engine_class(self.method).weights == "counts"

    def _model(self, training: TrainingTable) -> Any:
        formula = _formula(training.response, self.pairs, self.order, training.features)
        return bbl(
            _without_constants(formula, training.data, training.weighted_rows, self.missing),
            training.data, training.weights, self.method, novarOk=True, testNull=False, missing=self.missing,
            log_z=self.log_z, n_jobs=effective_n_jobs(self.n_jobs), verbose=0, **self._options(),
        )  # fmt: skip

    def _options(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in OPTIONS if getattr(self, name) is not None}
        if isinstance(self.method, str) and not is_auto(self.method):
            options = {**engine_class(self.method).classifier, **options}
        if not isinstance(self.options, dict | None):
            raise BBLTypeError(
                f"options must be a dict of options of the method by name; got {self.options!r}.", argument="options"
            )
        return options | (self.options or {})


def _formula(response: str, pairs: str | Sequence | np.ndarray, order: int, names: Sequence[Hashable]) -> str:
    """Return the formula of the terms that the parameters `pairs` and `order` name."""
    max_order = integer("order", order, 1, 99)
    if isinstance(pairs, str):
        right = {"all": f".^{max_order}", "none": "."}.get(pairs, pairs)
    elif isinstance(pairs, Sequence | np.ndarray):
        right = " + ".join([".", *(_term(term, names) for term in pairs)])
    else:
        raise BBLTypeError(
            f"pairs must be 'all', 'none', the right-hand side of a formula or a list of pairs; got {pairs!r}.",
            argument="pairs",
        )
    return f"{quoted(response)} ~ {right}"


def _term(term: object, names: Sequence[Hashable]) -> str:
    """Return a term in a formula, ``a:b``, from the names or positions of its columns."""
    columns = list(term) if isinstance(term, Sequence | np.ndarray) and not isinstance(term, str) else []
    columns = [names[int(c)] if isinstance(c, int | np.integer) and 0 <= c < len(names) else c for c in columns]
    are_names = all(isinstance(c, str) and c in names for c in columns)
    if len(columns) < 2 or not are_names or len(set(columns)) < len(columns):
        raise OptionError(
            f"pairs has the entry {term!r}; give two different names or positions of the {len(names)} columns of X, or "
            "more.",
            argument="pairs",
        )
    return ":".join(map(quoted, columns))


def _without_constants(formula: str, data: Frame, keep: np.ndarray, missing: str) -> str:
    """Return the formula less the predictors that are constant in the rows to keep; if all are, the first stays."""
    predictors = parse(formula, data.columns, order=None).predictors
    if missing == "drop":
        keep = keep[~missing_rows(data, predictors)[keep]]
    constant = []
    for name in predictors:
        column = factorise(name, data.column(name).iloc[keep], "keep")
        levels = column.used().sum() - (missing == "marginal" and column.missing() is not None)
        if levels < 2 and not (missing == "raise" and column.missing() is not None):  # that is an error of the fit
            constant.append(name)
    dropped = constant[len(constant) == len(predictors) :]
    return "".join([formula, *(f" - {quoted(name)}" for name in dropped)])
