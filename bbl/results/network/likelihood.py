"""Likelihoods and scores of rows under fitted Bayesian networks: methods of `NetworkResults`.

n rows, K classes. ``_rows()`` of a fit returns its training rows, a `Sample` with level ``codes``
and ``missing`` cells; ``_encoded_scores`` returns the class scores (n, K) of such rows, ln P(class,
known features) with the priors in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bbl.bayesnet.predict import sum_at_class
from bbl.checks import choice
from bbl.design.design import Design
from bbl.design.frames import to_frame
from bbl.results.classifier import ClassifierResults
from bbl.results.log_likelihood import LogLikelihood
from bbl.results.model import training_log_likelihood
from bbl.results.predictions import accuracy_score
from bbl.rows.sample import Sample
from bbl.stats.scores import log_probabilities

__all__ = ["cLogLik", "logLik", "score"]


def _encode_new(design: Design, newdata: Any) -> Sample:
    """Return a table of features and class as level codes, without rows that the design drops for
    missing values.
    """
    newdata = to_frame(newdata, "newdata")
    codes, missing = design.encode(newdata)  # (n, m); `missing` is None if no value is missing
    y = design.encode_response(newdata)  # (n,), -1 for a missing class
    rows = Sample(codes, np.ones(len(codes)), y, missing)  # each row counts once
    is_dropped = design.dropped(newdata)  # (n,), or None if the design drops no rows
    return rows if is_dropped is None else rows.rows(~is_dropped)


def logLik(self: ClassifierResults, newdata: Any = None) -> LogLikelihood:
    """Return the log-likelihood of class and known features, for the training rows or new rows.

    Missing features are summed out. The result is nan if the class of a row is missing, and -inf if
    a row has probability zero. The joint probability under an average is the mean over its members.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> fit.logLik()
    'log Lik.' -5166.983 (df=23)
    """
    if newdata is None:
        return training_log_likelihood(self)
    rows = _encode_new(self.design, newdata)
    # new rows have weight 1
    return LogLikelihood(self.log_likelihood(rows), self.n_parameters, rows.n)


def cLogLik(self: ClassifierResults, newdata: Any = None) -> float:
    """Return the conditional log-likelihood: the weighted sum of ``ln P(class | known features)``.

    Priors of the classes are those that predictions use. The result is nan if the class of a row is
    missing.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> round(fit.cLogLik(titanic), 2)
    -37.62
    """
    rows = self._rows() if newdata is None else _encode_new(self.design, newdata)
    scores = self._encoded_scores(rows.codes, rows.missing, dropped=None, priors=None)
    # weighted sum over rows, at the class of each row
    return sum_at_class(log_probabilities(scores), rows)


def score(
    self: ClassifierResults,
    kind: Any = "accuracy",
    newdata: Any = None,
    weights: Any = None,
    *,
    priors: Any = None,
    costs: Any = None,
) -> float:
    """Return the accuracy, or a score of the R package bnclassify; larger is better.

    Parameters
    ----------
    kind : {"accuracy", "loglik", "aic", "bic"}, default "accuracy"
        "accuracy": the share of rows whose class is predicted. "loglik": the log-likelihood. "aic":
        the log-likelihood minus the number of free parameters. "bic": the log-likelihood minus
        ``log(n) / 2`` times that number, where n counts all rows, incomplete ones included. (The
        attributes `aic` and `bic` are on the usual scale: smaller is better.) ``score(newdata)``
        with a table is the accuracy on it.
    newdata : DataFrame, optional
        The training rows by default.
    weights, priors, costs
        For the accuracy, as in `evaluate`.

    Returns
    -------
    float

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc("tan_cl", "Survived ~ .", titanic, smooth=1, weights="Freq")
    >>> round(fit.score(titanic, weights="Freq"), 4)
    0.7892
    """
    # score(newdata, weights), as of other classifiers: by position, `kind` holds newdata, a table
    # or None; `newdata` holds the weights, unless weights= names them
    if kind is None or not isinstance(kind, str):
        return accuracy_score(
            self, kind, newdata if weights is None else weights, priors=priors, costs=costs
        )
    if kind == "accuracy":
        return accuracy_score(self, newdata, weights, priors=priors, costs=costs)
    choice("kind", kind, ("accuracy", "loglik", "aic", "bic"))
    log_lik = logLik(self, newdata)
    penalty_per_parameter = {
        "loglik": 0.0,
        "aic": 1.0,
        "bic": 0.5 * float(np.log(max(log_lik.nobs, 1))),
    }
    return float(log_lik) - penalty_per_parameter[kind] * self.n_parameters
