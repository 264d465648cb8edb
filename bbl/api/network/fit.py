"""The public functions that fit Bayesian network classifiers: `structure`, `lp`, `bnc`.

A *recipe* specifies how probability tables are estimated from counts: directly, or by MANB, WANBIA
or AWNB (see `lp`). K is the number of classes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from bbl.api.network.data import formula_of, prepare, restrict_features
from bbl.api.network.learn import learn_structure
from bbl.api.training_data import data_arguments
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.learners import LEARNERS
from bbl.bayesnet.parameters import Recipe, fit, standard_errors
from bbl.bayesnet.predict import Network
from bbl.boltzmann.job import FitData
from bbl.checks import check_keywords, choice, flag, generator, integer, near_match, real
from bbl.choices import NetworkLearner
from bbl.design.decisions import Priors, check_priors
from bbl.design.table_types import Batches, TableLike, Weights
from bbl.errors import BBLTypeError, OptionError
from bbl.report.text import call_text
from bbl.results.model import Training
from bbl.results.network.network import NetworkResults
from bbl.results.network.structure import AveragedStructure, Structure, make_structure
from bbl.rows.sample import level_counts

__all__ = ["bnc", "local_dags", "lp", "structure"]

AWNB_TREES = 10  # default number of trees, if only awnb_bootstrap is given
AWNB_SHARE = 0.5  # default proportion of the rows for each tree, if only awnb_trees is given


@check_keywords
def structure(class_: Hashable, families: Mapping[Any, Sequence[Hashable]]) -> Structure:
    """Build a structure from the feature parents of each feature; the class is also a parent of
    every feature.

    Parameters
    ----------
    class_ : hashable
        Name of the class.
    families : mapping of feature to list of its feature parents
        Feature parents of each feature. The order of the keys is the order of the features in the
        model.

    Returns
    -------
    Structure

    Raises
    ------
    OptionError
        If a parent is not a feature, a feature is its own ancestor, or the class appears among the
        features or parents.

    Examples
    --------
    >>> from bbl import networks
    >>> networks.structure(
    ...     "Survived", {"Sex": [], "Class": ["Sex"], "Age": ["Class", "Sex"]}
    ... ).modelstring
    '[Survived] [Sex|Survived] [Class|Sex:Survived] [Age|Class:Sex:Survived]'
    """
    if not isinstance(families, Mapping):
        raise BBLTypeError(
            "families must be a dict that maps features to lists of their parent features; got "
            f"{type(families).__name__}.",
            argument="families",
        )
    names = tuple(families)
    position = {name: i for i, name in enumerate(names)}

    def fail(problem: str, *, hint: str) -> NoReturn:
        """Raise an OptionError about the argument `families`."""
        raise OptionError(f"families: {problem}.", argument="families", hint=f"{hint}.")

    if class_ in position:
        fail(
            f"the class {class_!r} is a parent of all features and has no parents itself",
            hint="Leave its entry out",
        )
    parents = []
    for name, parent_names in families.items():
        if isinstance(parent_names, str) or not isinstance(parent_names, Sequence):
            fail(
                f"the parents of {name!r} must be a list; got {parent_names!r}",
                hint=f"Write [{parent_names!r}]",
            )
        for parent in parent_names:
            if parent == class_:
                fail(
                    f"the class {class_!r} is always a parent of {name!r}",
                    hint="Leave the class out of the lists",
                )
            if parent not in position:
                fail(
                    f"{name!r} has the parent {parent!r}, which is not a feature",
                    hint=f"{near_match(parent, names)}Add an entry for it",
                )
        if len(set(parent_names)) < len(parent_names):
            fail(
                f"{name!r} has a duplicate parent: {list(parent_names)!r}",
                hint="List each parent only once",
            )
        parents.append(tuple(position[parent] for parent in parent_names))
    dag = Dag(tuple(enumerate(parents)))
    in_cycle = next((i for i in dag.features if i in dag.ancestors(i)), None)
    if in_cycle is not None:
        fail(
            f"the arcs form a cycle through {names[in_cycle]!r}",
            hint="Reverse or drop one of its arcs",
        )
    return Structure(class_, names, (dag,))


@check_keywords
def lp(
    structure: Structure | AveragedStructure,
    data: TableLike | Batches,
    smooth: float = 0.0,
    *,
    manb_prior: float | None = None,
    wanbia: bool | str | Mapping[Any, float] = False,
    awnb_trees: int | None = None,
    awnb_bootstrap: float | None = None,
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
    priors: Priors = None,
    seed: int | np.random.Generator | None = 0,
) -> NetworkResults:
    """Estimate the probability tables of a structure from data.

    Parameters
    ----------
    structure : Structure or AveragedStructure
        Result of a learner, or of `structure`.
    data, weights, missing, xlevels
        As in `nb`. Columns that are not in the structure, and rows with a missing class, are
        ignored.
    smooth : float, default 0
        Prior count of every cell of every table, including the class table.
    manb_prior : float in [0, 1], optional
        Average naive Bayes over all subsets of features (MANB), with this prior probability of each
        arc.
    wanbia : bool, "mse" or dict of feature to weight, default False
        Raise each feature's probabilities to a power in [0, 1], and normalise. True: the powers
        that maximise the conditional likelihood under naive Bayes (WANBIA); "mse": the powers that
        minimise the squared error of the class probabilities; a dict: the given powers. The powers
        are estimated from tables with ``smooth=1``, which are renormalised after they are raised to
        a power.
    awnb_trees : int, optional
        Weight each feature by the depth at which trees first split on it (AWNB); `awnb_trees` is
        the number of trees; 10 if only `awnb_bootstrap` is given.
    awnb_bootstrap : float, optional
        Proportion of the rows drawn with replacement for each tree; 0.5 if only `awnb_trees` is
        given.
    priors : mapping or Series by class, array_like of shape (K,), or ``"equal"``, optional
        Class proportions for predictions instead of the training proportions. An array is in the
        order of the classes, which must then be numbers, booleans or levels with a declared order.
    seed : int, numpy.random.Generator or None, default 0
        Seed of the rows drawn for the trees.

    Returns
    -------
    NetworkResults

    Raises
    ------
    OptionError
        If more than one of MANB, WANBIA and AWNB is requested, or if they are not available for
        this structure.

    References
    ----------
    Wei W, Visweswaran S, Cooper GF (2011). J Am Med Inform Assoc 18(4), 370-375 (MANB).
    Zaidi NA, Cerquides J, Carman MJ, Webb GI (2013). JMLR 14, 1947-1988 (WANBIA).
    Hall M (2007). Knowledge-Based Systems 20(2), 120-126 (AWNB).

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> graph = networks.nb("Survived ~ .", titanic, weights="Freq")
    >>> fit = networks.lp(graph, titanic, smooth=1, weights="Freq", manb_prior=0.5)
    >>> fit.manb_arc_posterior.round(3).tolist()
    [1.0, 1.0, 0.998]
    """
    _check_structure(structure)
    recipe = _make_recipe(structure, smooth, manb_prior, wanbia, awnb_trees, awnb_bootstrap)
    formula = formula_of(structure.class_var, _feature_names(structure))
    # recipe.rows: the argument that requires all rows in memory, or ""
    prepared = prepare(
        formula, data, weights, xlevels, missing=missing, in_memory_argument=recipe.rows
    )
    shown_arguments = {
        **data_arguments(data, weights),
        "smooth": smooth,
        **_changed_arguments(missing, recipe),
    }
    call = call_text("lp", {"structure": structure.learner or "by hand", **shown_arguments})
    return _fit_tables(structure, prepared, recipe, call, seed, _check_shares(priors, prepared))


@check_keywords
def bnc(
    learner: NetworkLearner,
    formula: str,
    data: TableLike | Batches,
    smooth: float = 0.0,
    *,
    dag_args: Mapping[str, Any] | None = None,
    manb_prior: float | None = None,
    wanbia: bool | str | Mapping[Any, float] = False,
    awnb_trees: int | None = None,
    awnb_bootstrap: float | None = None,
    weights: Weights | None = None,
    missing: str = "marginal",
    xlevels: Mapping[Any, Any] | None = None,
    priors: Priors = None,
    seed: int | np.random.Generator | None = 0,
    verbose: int = 1,
) -> NetworkResults:
    """Learn the structure and the parameters of a Bayesian network classifier in one call.

    Parameters
    ----------
    learner : {"nb", "tan_cl", "tan_hc", "tan_hcsp", "fssj", "bsej", "kdb", "aode"}
        Name of a function of `bbl.networks` that learns a structure.
    formula, data, weights, missing, xlevels
        As in `bbl.networks.nb`.
    smooth, manb_prior, wanbia, awnb_trees, awnb_bootstrap, priors
        As in `lp`.
    dag_args : dict, optional
        Arguments of the learner, such as ``{"score": "aic"}`` or ``{"k": 5, "folds": folds}``.
    seed : int, numpy.random.Generator or None, default 0
        Seed of a search's folds, and of the rows drawn for trees.
    verbose : int, default 1
        0 hides the progress bar.

    Returns
    -------
    NetworkResults

    Examples
    --------
    >>> from bbl import datasets, networks
    >>> titanic = datasets.load_titanic()
    >>> fit = networks.bnc(
    ...     "tan_cl", "Survived ~ .", titanic, 1, dag_args={"score": "bic"}, weights="Freq"
    ... )
    >>> fit
      Bayesian network classifier
    <BLANKLINE>
      class variable:        Survived
      num. features:   3
      num. arcs:   5
      free parameters:   23
      learning algorithm:    tan_cl
    >>> fit.predict(titanic.head(2)).round(3)
          No    Yes yhat
    0  0.308  0.692  Yes
    1  0.145  0.855  Yes
    """
    choice("learner", learner, tuple(LEARNERS))
    learner_options = dict(dag_args or {})
    folds = learner_options.pop("folds", None)
    rng = generator(seed)
    # the argument that requires all rows in memory, or ""
    in_memory_argument = (
        "awnb_trees"
        if awnb_trees or awnb_bootstrap
        else LEARNERS[learner].rows_reason(learner_options)
    )
    if wanbia is True or isinstance(wanbia, str):
        in_memory_argument = "wanbia"
    prepared = prepare(
        formula,
        data,
        weights,
        xlevels,
        missing=missing,
        in_memory_argument=in_memory_argument,
        verbose=verbose,
    )
    class_shares = _check_shares(priors, prepared)
    labels = prepared.design.labels
    # these checks only raise errors about options before a long search; both are repeated below
    LEARNERS[learner].check_options(learner_options, labels.names)
    recipe_options = (smooth, manb_prior, wanbia, awnb_trees, awnb_bootstrap)
    unlearnt = make_structure(
        class_var=labels.response, columns=labels.names, dags=(), learner=learner
    )
    _make_recipe(unlearnt, *recipe_options)
    learnt = learn_structure(learner, prepared, learner_options, folds, rng, verbose)
    recipe = _make_recipe(learnt, *recipe_options)
    arguments = {
        "learner": learner,
        "formula": formula,
        **data_arguments(data, weights),
        "smooth": smooth,
    }
    call = call_text("bnc", {**arguments, **_changed_arguments(missing, recipe)})
    return _fit_tables(
        learnt, restrict_features(prepared, learnt.features), recipe, call, rng, class_shares
    )


def _check_structure(structure: object) -> None:
    """Raise a BBLTypeError unless `structure` is a structure."""
    if not isinstance(structure, Structure | AveragedStructure):
        raise BBLTypeError(
            "structure must be the result of a learner or of networks.structure(); got "
            f"{type(structure).__name__}.",
            argument="structure",
        )


def _feature_names(structure: Structure | AveragedStructure) -> list:
    """Return the names of a structure's features, in the order of the data used to learn it."""
    return [structure.columns[i] for i in sorted(structure.dags[0].features)]


def _changed_arguments(missing: str, recipe: Recipe) -> dict[str, Any]:
    """Return the arguments that differ from their defaults by name, for the printed call."""
    arguments: dict[str, Any] = {}
    if missing != "marginal":
        arguments["missing"] = missing
    if recipe.manb_prior is not None:
        arguments["manb_prior"] = recipe.manb_prior
    if recipe.wanbia is not False:
        arguments["wanbia"] = (
            list(recipe.wanbia) if isinstance(recipe.wanbia, tuple) else recipe.wanbia
        )
    if recipe.awnb is not None:
        arguments["awnb_trees"], arguments["awnb_bootstrap"] = recipe.awnb
    return arguments


def _make_recipe(
    structure: Structure | AveragedStructure,
    smooth: float,
    manb_prior: float | None,
    wanbia: bool | str | Mapping[Any, float],
    awnb_trees: int | None,
    awnb_bootstrap: float | None,
) -> Recipe:
    """Check the estimation options, described in `lp`, and return them as a recipe.

    If `structure` has not been learned yet and has no graphs, options are checked as far as
    possible without a graph. The feature weights in `wanbia` are then not read, and the recipe is
    used only as a check.
    """
    smooth = real("smooth", smooth, 0.0)
    if isinstance(wanbia, str):
        choice("wanbia", wanbia, ("mse",))
    uses_wanbia = isinstance(wanbia, Mapping | str) or flag("wanbia", wanbia)
    uses_awnb = awnb_trees is not None or awnb_bootstrap is not None
    uses = {"manb_prior": manb_prior is not None, "wanbia": uses_wanbia, "awnb": uses_awnb}
    requested = [name for name, is_used in uses.items() if is_used]
    if len(requested) > 1:
        raise OptionError(
            f"{' and '.join(requested)} cannot be combined.",
            argument=requested[1],
            hint="Pass one of them.",
        )
    if requested and isinstance(structure, AveragedStructure):
        raise OptionError(
            f"{structure.learner} averages several networks and does not support {requested[0]}.",
            argument=requested[0],
            hint=f"Omit the {requested[0]} argument.",
        )
    if manb_prior is not None:
        # naive Bayes: features have no feature parents (`most_parents` is 0)
        if (
            structure.dags
            and structure.dags[0].most_parents
            or structure.learner not in (None, "nb")
        ):
            raise OptionError(
                "manb_prior averages naive Bayes models over subsets of features, but this "
                "structure is not naive Bayes.",
                argument="manb_prior",
                hint="Choose learner='nb', or omit the manb_prior argument.",
            )
        if not smooth:
            raise OptionError(
                "manb_prior requires smooth > 0; got 0.",
                argument="smooth",
                hint="Use smooth=1.",
            )
        return Recipe(smooth, real("manb_prior", manb_prior, 0.0, 1.0))
    if uses_awnb:
        n_trees = AWNB_TREES if awnb_trees is None else integer("awnb_trees", awnb_trees, 1)
        share = (
            AWNB_SHARE
            if awnb_bootstrap is None
            else real("awnb_bootstrap", awnb_bootstrap, 0.0, open_low=True)
        )
        return Recipe(smooth, awnb=(n_trees, share))
    if isinstance(wanbia, Mapping) and structure.dags:
        return Recipe(smooth, wanbia=_check_feature_weights(wanbia, _feature_names(structure)))
    return Recipe(smooth, wanbia=wanbia if isinstance(wanbia, str) else bool(uses_wanbia))


def _check_feature_weights(wanbia: Mapping, names: list) -> tuple[float, ...]:
    """Check a dict of feature weights, and return the weights in the order of `names`."""
    for name in wanbia:
        if name not in names:
            near = near_match(name, names)
            raise OptionError(
                f"wanbia has a weight for {name!r}, which is not a feature.",
                argument="wanbia",
                hint=f"{near}Use weights for features only.",
            )
    absent = [name for name in names if name not in wanbia]
    if absent:
        raise OptionError(
            f"wanbia has no weight for {absent[0]!r}.",
            argument="wanbia",
            hint="Pass a weight for each feature.",
        )
    return tuple(real(f"wanbia[{name!r}]", wanbia[name], 0.0, 1.0) for name in names)


def local_dags(structure: Structure | AveragedStructure, names: tuple) -> list[Dag]:
    """Renumber the features in a structure's graphs: feature i becomes ``names[i]`` instead of
    ``columns[i]``.
    """
    position_of = {name: feature for feature, name in enumerate(names)}
    # position in `names`; -1 for columns that the learner excluded, which have no family
    new_positions = [position_of.get(name, -1) for name in structure.columns]
    return [
        Dag(
            tuple(
                (new_positions[feature], tuple(new_positions[parent] for parent in parents))
                for feature, parents in dag.families
            )
        )
        for dag in structure.dags
    ]


def _check_shares(priors: Priors, prepared: FitData) -> np.ndarray | None:
    """Check `priors`, and return the class proportions (K,), or None if `priors` is None."""
    return None if priors is None else check_priors(priors, prepared.design.response)


def _fit_tables(
    structure: Structure | AveragedStructure,
    prepared: FitData,
    recipe: Recipe,
    call: str,
    seed: int | np.random.Generator | None,
    priors: np.ndarray | None,
) -> NetworkResults:
    """Estimate the tables of a structure and return the results; `call` is the printed call.

    For data read in batches, the results contain summaries instead of the training rows.
    """
    design = prepared.design
    sample = prepared.sample
    dags = local_dags(structure, design.labels.names)
    averages_dags = isinstance(structure, AveragedStructure)
    estimate = fit(
        dags, sample, design.n_levels, prepared.K, recipe, generator(seed), averages_dags
    )
    # arcs: posterior probability of each arc (MANB); feature weights (WANBIA, AWNB); otherwise None
    result_fields = (structure, estimate.network, recipe, estimate.arcs, estimate.weights)
    # rows are in memory; rows that were read in batches have no labels
    if prepared.index is not None:
        return NetworkResults(
            call, design, prepared.rows, prepared.index, *result_fields, priors=priors
        )
    errors = None
    if recipe.plain and isinstance(estimate.network, Network):
        # only for tables that are neither averaged nor weighted
        errors = standard_errors(estimate.network, sample, recipe.smooth)
    # None, None: training rows and labels are not available
    result = NetworkResults(
        call, design, None, None, *result_fields, _stored_errors=errors, priors=priors
    )
    counts = level_counts(sample, design.n_levels, prepared.K)
    training = Training(round(sample.total), result._log_likelihood_of(sample), counts)
    return replace(result, _stored=training, _stored_loss=result._training_loss(sample))
