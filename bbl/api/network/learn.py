"""The public functions that learn structures: nb, tan_cl, tan_hc, tan_hcsp, fssj, bsej,
kdb, aode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from bbl.api.network.data import make_folds, prepare
from bbl.bayesnet.learners import LEARNERS, Task
from bbl.boltzmann.job import FitData
from bbl.checks import check_keywords, generator
from bbl.design.table_types import Batches, Splitter, TableLike, Weights
from bbl.errors import OptionError
from bbl.parallel import progress_bar
from bbl.results.network.structure import AveragedStructure, Structure, make_structure

__all__ = ["aode", "bsej", "fssj", "kdb", "learn_structure", "nb", "tan_cl", "tan_hc", "tan_hcsp"]

P = ParamSpec("P")
TAN_HC_SECTIONS = """

Parameters
----------
formula, data, k, epsilon, smooth, folds, seed, weights, missing, xlevels, verbose
    As in `tan_hc`.

Returns
-------
Structure
"""  # end of the docstring of learners with the signature of tan_hc


def learn_structure(
    name: str,
    prepared: FitData,
    options: Mapping[str, Any],
    folds: Splitter | Iterable[ArrayLike] | None = None,
    seed: int | np.random.Generator | None = 0,
    verbose: int = 0,
) -> Structure | AveragedStructure:
    """Check the options of the learner `name`, and return the structure learned from encoded data.

    `folds` is the argument of the public function; learners without cross-validation ignore it.
    """
    learner = LEARNERS[name]
    design = prepared.design
    sample = prepared.sample
    labels = design.labels
    rng = generator(seed)
    options = learner.check_options(options, labels.names)
    # (F, n): row weights in the validation part of each of F folds
    validation_weights = None
    if learner.uses_folds(options):
        checked_folds = make_folds(folds, prepared, options["k"], rng)
        # (F, n): row weights in training and in validation
        if (checked_folds.train + checked_folds.validation_weights != prepared.rows.weights).any():
            raise OptionError(
                "The training rows of each fold must be all rows outside its validation rows, "
                "but some folds leave rows out.",
                argument="folds",
                hint="Pass a splitter such as KFold, or lists of row positions.",
            )
        validation_weights = checked_folds.validation_weights
    with progress_bar(None, name, verbose) as progress:
        task = Task(sample, design.n_levels, prepared.K, rng, validation_weights, progress)
        learnt = learner.learn(task, options)
    return make_structure(
        labels.response, labels.names, learnt.dags, name, options, learnt.score_log
    )


@check_keywords
def nb(
    formula: str,
    data: TableLike | Batches,
    *,
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
) -> Structure:
    """Return the structure of naive Bayes: the class is the only parent of every feature.

    Parameters
    ----------
    formula : str
        ``"class ~ ."``, ``"class ~ a + b"``, ``"class ~ . - d"``, or the name of the class.
        The formula cannot contain interactions because the structure is learned.
    data : DataFrame (pandas, polars), pyarrow Table or dict of lists
        One row per observation, or per distinct row with `weights`. A categorical column has its
        declared levels in their order, including levels that do not occur; other columns have their
        sorted values as levels. Learners that use only counts also accept data read in batches, as
        in `bbl.bbl`.
    weights : column name or array of length n, optional
        Integer frequencies; a row of weight w counts as w identical rows.
    missing : {"marginal", "raise", "drop", "level"}, default "marginal"
        Treatment of missing values. "marginal": each count uses the rows where its variables are
        known, and predictions marginalise over missing features. "raise": raise an error. "drop":
        drop their rows. "level": treat them as a separate level of their feature.
    xlevels : dict of column name to list of levels, optional
        All levels of a column in order, whether they occur or not.

    Returns
    -------
    Structure

    Raises
    ------
    FormulaError, DataError, LevelError, OptionError
        The message names the column or argument and suggests a remedy.

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
    return learn_structure("nb", prepare(formula, data, weights, xlevels, missing=missing), {})  # type: ignore[return-value]


@check_keywords
def tan_cl(
    formula: str,
    data: TableLike | Batches,
    score: str = "loglik",
    root: Hashable = None,
    *,
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
) -> Structure:
    """Learn a tree-augmented naive Bayes by Chow and Liu's algorithm (Friedman, Geiger & Goldszmidt
    1997).

    Parameters
    ----------
    formula, data, weights, missing, xlevels
        As in `nb`.
    score : {"loglik", "aic", "bic"}, default "loglik"
        Criterion that the structure maximises. "loglik" always results in a tree; the penalties of
        "aic" and "bic" may result in a forest. Two features are not joined if no row has known
        values of both. In case of ties, the first pair is joined.
    root : name of a feature, optional
        Root of the tree that contains this feature: arcs point away from it. In other trees, the
        first feature is the root.

    Returns
    -------
    Structure

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> networks.tan_cl(
    ...     "Survived ~ .", datasets.load_titanic(), "bic", root="Age", weights="Freq"
    ... ).modelstring
    '[Survived] [Age|Survived] [Class|Age:Survived] [Sex|Class:Survived]'
    """
    prepared = prepare(formula, data, weights, xlevels, missing=missing)
    return learn_structure("tan_cl", prepared, {"score": score, "root": root})  # type: ignore[return-value]


@check_keywords
def aode(
    formula: str,
    data: TableLike | Batches,
    *,
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
) -> AveragedStructure:
    """Return the structures of averaged one-dependence estimators (Webb, Boughton & Wang 2005).

    In each structure, one feature is a parent of all other features. Predictions average the joint
    probabilities of the structures.

    Parameters
    ----------
    formula, data, weights, missing, xlevels
        As in `nb`.

    Returns
    -------
    AveragedStructure

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> graphs = networks.aode("Survived ~ .", titanic, weights="Freq")
    >>> list(graphs.members)
    ['Class', 'Sex', 'Age']
    """
    return learn_structure("aode", prepare(formula, data, weights, xlevels, missing=missing), {})  # type: ignore[return-value]


def _search(
    learner: str,
    options: Mapping[str, Any],
    *,
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None,
    xlevels: Mapping[Any, Any] | None,
    missing: str,
    folds: Splitter | Iterable[ArrayLike] | None,
    seed: int | np.random.Generator | None,
    verbose: int,
) -> Structure:
    """Return the structure found by a greedy search; `options` contains the learner's arguments by
    name.
    """
    prepared = prepare(
        formula,
        data,
        weights,
        xlevels,
        missing=missing,
        in_memory_argument=LEARNERS[learner].rows_reason(options),
        verbose=verbose,
    )
    return learn_structure(learner, prepared, options, folds, seed, verbose)  # type: ignore[return-value]


@check_keywords
def tan_hc(
    formula: str,
    data: TableLike | Batches,
    k: int = 10,
    epsilon: float = 0.01,
    smooth: float = 0.0,
    folds: Splitter | Iterable[ArrayLike] | None = None,
    seed: int | np.random.Generator | None = 0,
    *,
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
    verbose: int = 1,
) -> Structure:
    """Learn a tree-augmented naive Bayes by hill climbing on cross-validated accuracy (Keogh &
    Pazzani 2002).

    The search starts from naive Bayes. Each step adds an arc to a feature without a feature parent:
    the arc that increases the accuracy most.

    Parameters
    ----------
    formula, data, weights, missing, xlevels
        As in `nb`.
    k : int, default 10
        Number of folds, which are drawn once and have nearly equal sizes within each class.
    epsilon : float, default 0.01
        The search continues while the accuracy increases by at least this amount; with 0, it also
        continues if the accuracy does not change.
    smooth : float, default 0
        Prior count of every cell while structures are compared.
    folds : list of arrays of row positions, or scikit-learn splitter, optional
        The rows validated by each fold, among the rows of positive weight that are not dropped;
        overrides `k`.
    seed : int, numpy.random.Generator or None, default 0
        Seed for the folds and for the choice among structures of equal accuracy.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    Structure
        ``score_log`` contains the accuracies of the successive structures.

    Warns
    -----
    DataWarning
        If a class has fewer rows than there are folds.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> found = networks.tan_hc(
    ...     "Survived ~ .", datasets.load_titanic(), k=5, epsilon=0, smooth=1, weights="Freq"
    ... )
    >>> found.narcs, len(found.score_log)
    (5, 3)
    """
    return _search(
        "tan_hc",
        {"k": k, "epsilon": epsilon, "smooth": smooth},
        formula=formula,
        data=data,
        weights=weights,
        xlevels=xlevels,
        missing=missing,
        folds=folds,
        seed=seed,
        verbose=verbose,
    )


def _with_arguments(
    model: Callable[P, Structure],
) -> Callable[[Callable[[], None]], Callable[P, Structure]]:
    """Return a decorator that replaces a stub by a public function, which runs the learner with the
    stub's name.

    The function has the signature of `model`. Its docstring is the stub's docstring with sections
    on parameters and results.
    """
    return partial(_make_learner, model)


def _make_learner(
    model: Callable[P, Structure], stub: Callable[[], None]
) -> Callable[P, Structure]:
    """Return a public function for the learner that has the stub's name; the function has the
    signature of `model`.
    """

    @wraps(stub)
    # signature and docstring are set below
    def learn(*args: P.args, **keywords: P.kwargs) -> Structure:
        bound_arguments = signature.bind(*args, **keywords)
        bound_arguments.apply_defaults()
        arguments = dict(bound_arguments.arguments)
        options = {name: arguments.pop(name) for name in ("k", "epsilon", "smooth")}
        return _search(stub.__name__, options, **arguments)

    signature = inspect.signature(model)
    learn.__signature__ = signature  # type: ignore[attr-defined]
    learn.__doc__ = inspect.cleandoc(stub.__doc__ or "") + TAN_HC_SECTIONS
    return check_keywords(learn)


@_with_arguments(tan_hc)
def tan_hcsp() -> None:
    """Learn a tree-augmented naive Bayes with super-parents by hill climbing (Keogh & Pazzani
    2002).

    Each step finds the feature with the best accuracy as a parent of all features without a feature
    parent (the super-parent), and adds the best single arc from it.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> networks.tan_hcsp(
    ...     "Survived ~ .", titanic, k=5, epsilon=0, smooth=1, weights="Freq", seed=1
    ... ).modelstring
    '[Survived] [Age|Survived] [Class|Age:Survived] [Sex|Class:Survived]'
    """


@_with_arguments(tan_hc)
def fssj() -> None:
    """Learn a semi-naive Bayes by forward selection and joining (Pazzani 1996).

    The search starts from a structure without features. Each step adds a feature, either alone or
    joined to a group of features in the structure.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> networks.fssj(
    ...     "Survived ~ .", titanic, k=5, epsilon=0, smooth=1, weights="Freq", seed=1
    ... ).modelstring
    '[Survived] [Sex|Survived] [Class|Sex:Survived] [Age|Sex:Class:Survived]'
    """


@_with_arguments(tan_hc)
def bsej() -> None:
    """Learn a semi-naive Bayes by backward elimination and joining (Pazzani 1996).

    The search starts from naive Bayes. Each step removes a feature, or joins two groups of
    features.

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> networks.bsej(
    ...     "Survived ~ .", titanic, k=5, epsilon=0, smooth=1, weights="Freq", seed=1
    ... ).modelstring
    '[Survived] [Age|Survived] [Sex|Age:Survived] [Class|Sex:Age:Survived]'
    """


@check_keywords
def kdb(
    formula: str,
    data: TableLike | Batches,
    k: int = 10,
    epsilon: float = 0.01,
    smooth: float = 0.0,
    folds: Splitter | Iterable[ArrayLike] | None = None,
    seed: int | np.random.Generator | None = 0,
    kdbk: int = 2,
    *,
    search: str = "accuracy",
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
    verbose: int = 1,
) -> Structure:
    """Learn a k-dependence Bayesian classifier, with at most `kdbk` feature parents per feature.

    Parameters
    ----------
    formula, data, k, epsilon, smooth, folds, seed, weights, missing, xlevels, verbose
        As in `tan_hc`.
    kdbk : int, default 2
        Maximum number of feature parents per feature.
    search : {"accuracy", "information"}, default "accuracy"
        "accuracy": hill climbing over all arcs by cross-validated accuracy, as in R's bnclassify.
        "information": the algorithm of Sahami (1996), which orders the features by their mutual
        information with the class. The parents of a feature are the earlier features with the
        largest conditional mutual information given the class. No folds are needed.

    Returns
    -------
    Structure

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> networks.kdb(
    ...     "Survived ~ .", titanic, k=5, kdbk=1, epsilon=0, smooth=1, weights="Freq", seed=1
    ... ).modelstring
    '[Survived] [Sex|Survived] [Class|Sex:Survived] [Age|Class:Survived]'
    """
    options = {"k": k, "epsilon": epsilon, "smooth": smooth, "kdbk": kdbk, "search": search}
    return _search(
        "kdb",
        options,
        formula=formula,
        data=data,
        weights=weights,
        xlevels=xlevels,
        missing=missing,
        folds=folds,
        seed=seed,
        verbose=verbose,
    )
