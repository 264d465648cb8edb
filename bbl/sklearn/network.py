"""BNClassifier: Bayesian network classifiers as a scikit-learn classifier; it names columns and calls `bnc`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bbl.api.network.fit import bnc
from bbl.design.grammar import quoted
from bbl.sklearn.base import TableClassifier, TrainingTable

__all__ = ["BNClassifier"]


class BNClassifier(TableClassifier):
    """Bayesian network classifier as a scikit-learn classifier.

    Every column of `X` is a feature, and every distinct value of it a level: strings, whole numbers, booleans and
    categories, whose declared levels count whether they occur or not. Continuous columns are to be binned first, for
    example with ``KBinsDiscretizer(encode="ordinal")``. The model is that of `networks.bnc` on the same columns, to the
    last bit.

    Parameters
    ----------
    learner : {"nb", "tan_cl", "tan_hc", "tan_hcsp", "fssj", "bsej", "kdb", "aode"}, default "tan_cl"
        How the structure is learnt.
    smooth : float, default 1.0
        Prior count of every cell of every table.
    dag_args : dict, optional
        Options of the learner, such as ``{"score": "bic"}`` or ``{"k": 5}``.
    manb_prior, wanbia, awnb_trees, awnb_bootstrap
        Averaged or weighted tables, see `networks.lp`.
    unseen : {"ignore", "raise"}, default "ignore"
        Whether, in a row with a level that was not in the training data, that feature is summed out, or it is an error.
    missing : {"marginal", "raise", "drop", "level"}, default "marginal"
        What is done with missing values of `X`: each count takes the rows in which its variables are known, and
        predictions sum over what is not; they are an error; their rows are dropped in `fit`, and have neither class nor
        probabilities (nan); or a level of their own.
    class_weight : {"balanced"} or dict of class to weight, optional
        Weights of the classes' rows (those that a dict leaves out have 1). A class is fitted to its own rows alone, so
        weights change its share in predictions, and nothing else; "balanced" makes all classes equally probable.
    random_state : int, numpy.random.Generator or None, default 0
        For the folds of a search, and the rows of trees.

    Attributes
    ----------
    classes_ : ndarray, shape (K,)
        Class labels, sorted.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str, shape (m,)
        Their names, if all of them are strings.
    result_ : NetworkResults
        The fitted model: structure, tables, summary, plots. Its class has the name of the Series `y`, or is ``y``.

    See Also
    --------
    bbl.networks.bnc : The same model by formula.

    Notes
    -----
    Sample weights are frequencies: a whole number of times that the row is repeated.

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
        learner: str = "tan_cl",
        smooth: float = 1.0,
        *,
        dag_args: Mapping[str, Any] | None = None,
        manb_prior: float | None = None,
        wanbia: bool | Mapping = False,
        awnb_trees: int | None = None,
        awnb_bootstrap: float | None = None,
        unseen: str = "ignore",
        missing: str = "marginal",
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

    def _model(self, training: TrainingTable) -> Any:
        return bnc(
            self.learner, f"{quoted(training.response)} ~ .", training.data, self.smooth, dag_args=self.dag_args,
            manb_prior=self.manb_prior, wanbia=self.wanbia, awnb_trees=self.awnb_trees,
            awnb_bootstrap=self.awnb_bootstrap, weights=training.weights, missing=self.missing,
            seed=self.random_state, verbose=0,
        )  # fmt: skip
