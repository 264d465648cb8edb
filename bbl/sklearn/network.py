"""BNClassifier: `bbl.networks.bnc` as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bbl.api.network.fit import bnc
from bbl.choices import MissingPolicy, NetworkLearner, Unseen
from bbl.design.grammar import quoted
from bbl.results.network.network import NetworkResults
from bbl.sklearn.base import TableClassifier, TrainingTable

__all__ = ["BNClassifier"]


class BNClassifier(TableClassifier):
    """Bayesian network classifier as a scikit-learn classifier.

    Every column of `X` is a feature. Its levels are its distinct values (strings, integers or
    booleans), or all declared levels of a categorical column. Bin continuous columns first, for
    example with ``KBinsDiscretizer(encode="ordinal")``. The model is bitwise identical to
    `networks.bnc` on the same columns.

    Parameters
    ----------
    learner : str, default "tan_cl"
        Function of `networks` that learns the structure: naive Bayes ("nb"); tree-augmented naive
        Bayes by Chow and Liu's algorithm ("tan_cl"), by hill climbing ("tan_hc"), or with
        super-parents ("tan_hcsp"); semi-naive Bayes, which joins features ("fssj", "bsej");
        k-dependence ("kdb"); averaged one-dependence estimators ("aode").
    smooth : float, default 1.0
        Prior count of every cell of every table.
    dag_args : dict, optional
        Options of the learner, such as ``{"score": "bic"}`` or ``{"k": 5}``.
    manb_prior : float in [0, 1], optional
        Average naive Bayes over all subsets of features (MANB), with this prior probability of each
        arc.
    wanbia : bool, "mse" or dict of feature to weight, default False
        Raise the probabilities of each feature to a power in [0, 1]. True: powers that maximise the
        conditional likelihood under naive Bayes (WANBIA); "mse": powers that minimise the squared
        error of the class probabilities; a dict: these powers.
    awnb_trees : int, optional
        Weight each feature by the depth at which decision trees first split on it (AWNB); this is
        the number of trees, 10 if only `awnb_bootstrap` is given.
    awnb_bootstrap : float, optional
        Proportion of the rows drawn with replacement for each tree; 0.5 if only `awnb_trees` is
        given.
    unseen : {"ignore", "raise"}, default "ignore"
        Whether to marginalise over levels that were not in the training data, or to raise an error.
    missing : {"marginal", "raise", "drop", "level"}, default "marginal"
        Treatment of missing values in `X`. "marginal": each count uses the rows where its
        variables are known, and predictions marginalise over missing features. "raise": raise an
        error. "drop": drop their rows in `fit`, and predict nan for such rows. "level": treat them
        as a separate level.
    class_weight : {"balanced"} or dict of class to weight, optional
        Weights of the classes; classes missing from a dict have weight 1. They only change the
        class proportions used for predictions; "balanced" makes them equal.
    random_state : int, numpy.random.Generator or None, default 0
        Seed of a search's folds, and of the rows drawn for trees.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Names of the columns of `X`, if all of them are strings.
    result_ : NetworkResults
        The fitted model: structure, tables, summary, plots. Its class has the name of the Series
        `y`, otherwise ``y``.

    See Also
    --------
    bbl.networks.bnc : The same model from a formula.

    Notes
    -----
    Sample weights are integer frequencies.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> import bbl
    >>> titanic = bbl.freq2raw(bbl.datasets.load_titanic(), "Freq").sample(frac=1.0, random_state=0)
    >>> X, y = titanic.drop(columns="Survived"), titanic["Survived"]
    >>> model = BNClassifier("tan_cl").fit(X, y)
    >>> model.predict_proba(X.head(2)).round(2)
    array([[0.56, 0.44],
           [0.88, 0.12]])
    >>> float(cross_val_score(model, X, y, cv=3).mean().round(2))
    0.79
    """

    def __init__(
        self,
        learner: NetworkLearner = "tan_cl",
        smooth: float = 1.0,
        *,
        dag_args: Mapping[str, Any] | None = None,
        manb_prior: float | None = None,
        wanbia: bool | str | Mapping = False,
        awnb_trees: int | None = None,
        awnb_bootstrap: float | None = None,
        unseen: Unseen = "ignore",
        missing: MissingPolicy = "marginal",
        class_weight: Mapping | str | None = None,
        random_state: int | np.random.Generator | None = 0,
    ):
        self.learner = learner
        self.smooth = smooth
        self.dag_args = dag_args
        self.manb_prior = manb_prior
        self.wanbia = wanbia
        self.awnb_trees = awnb_trees
        self.awnb_bootstrap = awnb_bootstrap
        self.unseen = unseen
        self.missing = missing
        self.class_weight = class_weight
        self.random_state = random_state

    def _fit_model(self, training: TrainingTable) -> NetworkResults:
        """Return the results of `bnc` for checked training data."""
        # the formula: the class column, with all other columns of the table as features
        return bnc(
            self.learner,
            f"{quoted(training.response)} ~ .",
            training.data,
            self.smooth,
            dag_args=self.dag_args,
            manb_prior=self.manb_prior,
            wanbia=self.wanbia,
            awnb_trees=self.awnb_trees,
            awnb_bootstrap=self.awnb_bootstrap,
            weights=training.weights,
            missing=self.missing,
            seed=self.random_state,
            verbose=0,
        )
