"""The verbs that learn structures: nb, tan_cl, tan_hc, tan_hcsp, fssj, bsej, kdb, aode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from bbl.api.network.data import given_folds, prepare
from bbl.api.training_data import EncodedData, TrainingData
from bbl.bayesnet.learners import LEARNERS, Task
from bbl.checks import generator, verb
from bbl.errors import OptionError
from bbl.parallel import progress_bar
from bbl.results.network.structure import AveragedStructure, Structure, make_structure

__all__ = ["learn_structure", "aode", "bsej", "fssj", "kdb", "nb", "tan_cl", "tan_hc", "tan_hcsp"]

ALIKE = """

Parameters
----------
formula, data, k, epsilon, smooth, folds, seed, weights, missing, xlevels, verbose
    As in `tan_hc`.

Returns
-------
Structure
"""  # end of the docstrings of the other greedy searches


def learn_structure(
    name: str, prepared: EncodedData, options: Mapping[str, Any], folds: Any = None, seed: Any = 0, verbose: int = 0
) -> Structure | AveragedStructure:
    """Return the structure that the learner of this name learns from encoded data, having checked its options."""
    learner = LEARNERS[name]
    design, sample = prepared.design, prepared.sample
    labels, rng = design.labels, generator(seed)
    options = learner.check_options(options, labels.names)
    held = None
    if learner.uses_folds(options):
        drawn = given_folds(folds, prepared, options["k"], rng)
        if (drawn.train + drawn.held != prepared.rows.weights).any():
            raise OptionError(
                "folds leave rows out that they do not validate, and a search trains on all that a fold does not "
                "validate. Give a splitter such as KFold, or lists of row positions.",
                argument="folds",
            )
        held = drawn.held
    with progress_bar(None, name, verbose) as step:
        learnt = learner.learn(Task(sample, design.n_levels, prepared.K, rng, held, step), options)
    return make_structure(
        class_var=labels.response,
        columns=labels.names,
        dags=learnt.dags,
        learner=name,
        options=options,
        score_log=learnt.score_log,
    )


@verb
def nb(
    formula: str, data: Any, *, weights: Any = None, missing: str = "marginal", xlevels: Mapping | None = None
) -> Structure:
    """Return the structure of naive Bayes: the class is the only parent of every feature.

    Parameters
    ----------
    formula : str
        ``"class ~ ."``, ``"class ~ a + b"``, ``"class ~ . - d"``, or the class's name alone. Structures are learnt, so
        interactions are an error.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`. The declared levels of a category count, in their
        order, whether they occur or not; other columns have their values sorted. Or data that are read in batches, as
        of `bbl.bbl`, for learners that need nothing but counts.
    weights : column name or array of length n, optional
        Frequencies, whole numbers; a weight is the same as repeating the row.
    missing : {"marginal", "raise", "drop", "level"}, default "marginal"
        What is done with missing values: each count takes the rows in which its variables are known, and predictions
        sum over what is not; they are an error; their rows are dropped; or they are a level of their feature.
    xlevels : dict of column name to list of levels, optional
        All levels of a column, in order, whether they occur or not.

    Returns
    -------
    Structure

    Raises
    ------
    FormulaError, DataError, LevelError, OptionError
        Each names the column or argument, and what to do.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> networks.nb("Survived ~ .", datasets.load_titanic(), weights="Freq")
      Bayesian network classifier
    <BLANKLINE>
      class variable:        Survived
      num. features:   3
      num. arcs:   3
      learning algorithm:    nb
    """
    return learn_structure("nb", prepare(TrainingData(formula, data, weights, xlevels, missing=missing)), {})  # type: ignore[return-value]


@verb
def tan_cl(
    formula: str,
    data: Any,
    score: str = "loglik",
    root: Hashable = None,
    *,
    weights: Any = None,
    missing: str = "marginal",
    xlevels: Mapping | None = None,
) -> Structure:
    """Learn a tree-augmented naive Bayes by Chow and Liu's algorithm (Friedman, Geiger & Goldszmidt 1997).

    Parameters
    ----------
    formula, data, weights, missing, xlevels
        As in `nb`.
    score : {"loglik", "aic", "bic"}, default "loglik"
        What the structure maximises. Likelihood always gives a tree; with a penalty the features may form a forest, and
        features that no row has together are not joined. Of equally good pairs the first is taken.
    root : name of a feature, optional
        Feature from which its tree is directed away; other trees are directed away from their first feature.

    Returns
    -------
    Structure

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> networks.tan_cl("Survived ~ .", datasets.load_titanic(), "bic", root="Age", weights="Freq").modelstring
    '[Survived] [Age|Survived] [Class|Age:Survived] [Sex|Class:Survived]'
    """
    prepared = prepare(TrainingData(formula, data, weights, xlevels, missing=missing))
    return learn_structure("tan_cl", prepared, {"score": score, "root": root})  # type: ignore[return-value]


@verb
def aode(
    formula: str, data: Any, *, weights: Any = None, missing: str = "marginal", xlevels: Mapping | None = None
) -> AveragedStructure:
    """Return the structures of averaged one-dependence estimators (Webb, Boughton & Wang 2005).

    One for each feature, in which it is a parent of all others; predictions average their joint probabilities.

    Parameters
    ----------
    formula, data, weights, missing, xlevels
        As in `nb`.

    Returns
    -------
    AveragedStructure
    """
    return learn_structure("aode", prepare(TrainingData(formula, data, weights, xlevels, missing=missing)), {})  # type: ignore[return-value]


def _climb(
    learner: str, formula: str, data: Any, folds, seed, *, weights, missing, xlevels, verbose, **options
) -> Structure:
    """Return the structure that a learner with folds finds; `options` are those of the learner."""
    prepared = prepare(
        TrainingData(formula, data, weights, xlevels, missing=missing), LEARNERS[learner].rows_reason(options), verbose
    )
    return learn_structure(learner, prepared, options, folds, seed, verbose)  # type: ignore[return-value]


@verb
def tan_hc(
    formula: str,
    data: Any,
    k: int = 10,
    epsilon: float = 0.01,
    smooth: float = 0.0,
    folds: Any = None,
    seed: int | np.random.Generator | None = 0,
    *,
    weights: Any = None,
    missing: str = "marginal",
    xlevels: Mapping | None = None,
    verbose: int = 1,
) -> Structure:
    """Learn a tree-augmented naive Bayes by hill climbing on cross-validated accuracy (Keogh & Pazzani 2002).

    It starts from naive Bayes. Each step adds the arc to a feature without feature parents that gains most.

    Parameters
    ----------
    formula, data, weights, missing, xlevels
        As in `nb`.
    k : int, default 10
        Folds; they are drawn once, of nearly the same size in each class.
    epsilon : float, default 0.01
        Least gain in accuracy for which a step is taken; with 0 an equal accuracy is enough.
    smooth : float, default 0
        Prior count of every cell while structures are compared.
    folds : list of arrays of row positions, or scikit-learn splitter, optional
        The rows that each fold validates, among those of positive weight that are not dropped; overrules `k`.
    seed : int, numpy.random.Generator or None, default 0
        For the folds, and for the choice among structures of the same accuracy.
    verbose : int, default 1
        0 for no progress bar.

    Returns
    -------
    Structure
        ``score_log`` has the accuracy of every structure on the way.

    Warns
    -----
    DataWarning
        If a class has fewer rows than there are folds.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> found = networks.tan_hc("Survived ~ .", datasets.load_titanic(), k=5, epsilon=0, smooth=1, weights="Freq")
    >>> found.narcs, len(found.score_log)
    (5, 3)
    """
    shared = {"weights": weights, "missing": missing, "xlevels": xlevels, "verbose": verbose}
    return _climb("tan_hc", formula, data, folds, seed, k=k, epsilon=epsilon, smooth=smooth, **shared)


def _like_tan_hc(described: Callable[[], None]) -> Callable[..., Structure]:
    """Return the verb of another greedy search, with the arguments and the return value of `tan_hc`."""

    @wraps(described)
    def learn_it(*args: Any, **named: Any) -> Structure:
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        return _climb(described.__name__, **bound.arguments)

    signature = inspect.signature(tan_hc)
    learn_it.__signature__ = signature  # type: ignore[attr-defined]
    learn_it.__doc__ = inspect.cleandoc(described.__doc__ or "") + ALIKE
    return verb(learn_it)


@_like_tan_hc
def tan_hcsp() -> None:
    """Learn a tree-augmented naive Bayes with super-parents by hill climbing (Keogh & Pazzani 2002).

    Each step finds the feature that does best as a parent of all features it can be one of, and adds the best of its
    arcs.
    """


@_like_tan_hc
def fssj() -> None:
    """Learn a semi-naive Bayes by forward selection and joining (Pazzani 1996).

    It starts from the class alone. Each step includes a feature, by itself or joined to features that are in.
    """


@_like_tan_hc
def bsej() -> None:
    """Learn a semi-naive Bayes by backward elimination and joining (Pazzani 1996).

    It starts from naive Bayes. Each step excludes a feature, or joins two groups of features.
    """


@verb
def kdb(
    formula: str,
    data: Any,
    k: int = 10,
    epsilon: float = 0.01,
    smooth: float = 0.0,
    folds: Any = None,
    seed: int | np.random.Generator | None = 0,
    kdbk: int = 2,
    *,
    search: str = "accuracy",
    weights: Any = None,
    missing: str = "marginal",
    xlevels: Mapping | None = None,
    verbose: int = 1,
) -> Structure:
    """Learn a k-dependence Bayesian classifier: no feature has more than `kdbk` feature parents.

    Parameters
    ----------
    formula, data, k, epsilon, smooth, folds, seed, weights, missing, xlevels, verbose
        As in `tan_hc`.
    kdbk : int, default 2
        Most feature parents.
    search : {"accuracy", "information"}, default "accuracy"
        Hill climbing over all arcs by cross-validated accuracy, as R's bnclassify does; or Sahami's algorithm (1996),
        which orders the features by their information about the class, and gives each the parents before it that tell
        most about it given the class. The latter needs no folds.

    Returns
    -------
    Structure
    """
    options = {"k": k, "epsilon": epsilon, "smooth": smooth, "kdbk": kdbk, "search": search}
    shared = {"weights": weights, "missing": missing, "xlevels": xlevels, "verbose": verbose}
    return _climb("kdb", formula, data, folds, seed, **options, **shared)
