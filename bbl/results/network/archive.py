"""Model file of a Bayesian network classifier: `pack` converts a result to a dict and arrays, and
`unpack` validates and restores it.

K is the number of classes, and m is the number of features. A *family* is a feature with its
feature parents. A model may average several networks, its *members*. `theta` (cells, K) contains
the concatenated probability tables of all families of all members, with one row for each joint
level of a feature and its parents.
"""
# A `Dag` of the structure numbers features by position in ``columns``, the names of all candidate
# features; a `Dag` of the networks by position in the design, which only has the features of the
# graph.

from __future__ import annotations

from typing import Any

import numpy as np

from bbl.bayesnet.averaged import Averaged
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.families import Families
from bbl.bayesnet.learners import LEARNERS
from bbl.bayesnet.parameters import Recipe
from bbl.bayesnet.predict import Network
from bbl.checks import choice, integer, real
from bbl.design.design import Design
from bbl.design.factor_storage import name_from_list, name_to_list
from bbl.results.archive import check_model, pack_model, unpack_model
from bbl.results.array_table import NON_NEGATIVE, PROBABILITY, ArraySpec
from bbl.results.network.structure import AveragedStructure, make_structure

__all__ = ["pack", "unpack"]

# arrays of a model file: kind of dtype, shape, range of values (any if missing; below a length if
# named)
TABLE = {
    "members": ArraySpec("i", ("members",), NON_NEGATIVE),  # number of families of each member
    # feature of each family, member after member
    "features": ArraySpec("i", ("families",), (0, "columns")),
    # number of feature parents of each family
    "n_parents": ArraySpec("i", ("families",), NON_NEGATIVE),
    "parents": ArraySpec("i", ("parents",), (0, "columns")),  # feature parents, family after family
    "score_log": ArraySpec("f", ("steps",)),  # accuracy at each step of a greedy search
    "prior": ArraySpec("f", ("K",), PROBABILITY),
    "theta": ArraySpec("f", ("cells", "K"), PROBABILITY),
    "arc_posterior": ArraySpec("f", ("m",), PROBABILITY, required=False),
    "feature_weights": ArraySpec("f", ("m",), PROBABILITY, required=False),
    "errors": ArraySpec("f", ("cells", "K"), required=False),  # standard errors of `theta`
    "class_errors": ArraySpec("f", ("K",), required="errors"),  # standard errors of `prior`
}


def pack(fit: Any, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the options of a `NetworkResults` as a dict, and its arrays.

    Training rows are only included with `store_data`.
    """
    structure = fit.structure
    recipe = fit.recipe
    members = fit.network.members if isinstance(fit.network, Averaged) else (fit.network,)
    entries = {
        "columns": [name_to_list(name) for name in structure.columns],
        "learner": structure.learner,
        "options": dict(structure.options),
        "recipe": {
            "smooth": recipe.smooth,
            "manb_prior": recipe.manb_prior,
            "wanbia": recipe.wanbia
            if isinstance(recipe.wanbia, bool | str)
            else list(recipe.wanbia),
            "awnb": None if recipe.awnb is None else list(recipe.awnb),
        },
        "nobs": fit.nobs(),
    }
    errors, class_errors = fit._errors or (None, None)
    arrays = {
        **_pack_dags(structure.dags),
        "score_log": np.array(structure.score_log, dtype=float),
        "prior": fit.network.prior,
        "theta": np.concatenate([member.theta for member in members]),
        "log_likelihood": np.array([fit._log_likelihood]),
        "arc_posterior": fit.arc_posterior,
        "feature_weights": fit.feature_weights,
        "errors": errors,
        "class_errors": class_errors,
    }
    return pack_model(fit, entries, arrays, store_data)


def _pack_dags(dags: tuple[Dag, ...]) -> dict[str, np.ndarray]:
    """Return the first arrays of `TABLE`: the families of all members, one member after another."""
    families = [family for dag in dags for family in dag.families]
    return {
        "members": np.array([len(dag.families) for dag in dags], dtype=np.int64),
        "features": np.array([i for i, _ in families], dtype=np.int64),
        "n_parents": np.array([len(parents) for _, parents in families], dtype=np.int64),
        "parents": np.array([p for _, parents in families for p in parents], dtype=np.int64),
    }


def _unpack_dags(arrays: dict[str, np.ndarray]) -> tuple[Dag, ...]:
    """Return the graphs stored by `_pack_dags`. Raises a ValueError for inconsistent arrays."""
    n_families, features, n_parents, parents = (
        arrays[name] for name in ("members", "features", "n_parents", "parents")
    )
    n_all_families = len(features)
    if not len(n_families) or n_families.sum() != n_all_families or n_parents.sum() != len(parents):
        raise ValueError("its structure is malformed")
    # without families, `np.split` returns one empty part
    family_parents = np.split(parents, np.cumsum(n_parents)[:-1]) if n_all_families else []
    families = [
        (int(i), tuple(map(int, positions)))
        for i, positions in zip(features, family_parents, strict=True)
    ]
    ends = np.cumsum(n_families)  # end of each member's families
    dags = tuple(
        Dag(tuple(families[end - size : end])) for end, size in zip(ends, n_families, strict=True)
    )
    for dag in dags:
        dag_features = set(dag.features)
        if len(dag_features) < len(dag.families):
            raise ValueError("its structure has a duplicate feature")
        # the feature and its parents must be distinct features of the graph
        if any(
            len({i, *parents_of_i}) < 1 + len(parents_of_i)
            or not dag_features.issuperset(parents_of_i)
            for i, parents_of_i in dag.families
        ):
            raise ValueError("a family of its structure is malformed")
        dag.layers  # noqa: B018  # raises a ValueError if there is a cycle
    if len({frozenset(dag.features) for dag in dags}) > 1:
        raise ValueError("the networks that it averages have different features")
    return dags


def _unpack_recipe(stored: dict, m: int) -> Recipe:
    """Validate and return the `stored` options of the estimate; `m` is the number of features.

    The functions `real` and `integer` return a number, or raise an error if it is out of range.
    """
    wanbia: Any = stored["wanbia"]
    if isinstance(wanbia, str):
        choice("wanbia", wanbia, ("mse",))
    elif not isinstance(wanbia, bool):
        wanbia = tuple(real("weights", w, 0.0, 1.0) for w in wanbia)
        if len(wanbia) != m:
            raise ValueError("its weights are malformed")
    awnb = stored["awnb"]  # number of trees, and fraction of the rows for each tree
    arc_prior = stored["manb_prior"]
    return Recipe(
        smooth=real("smooth", stored["smooth"], 0.0),
        manb_prior=None if arc_prior is None else real("manb_prior", arc_prior, 0.0, 1.0),
        wanbia=wanbia,
        awnb=None
        if awnb is None
        else (integer("trees", awnb[0], 1), real("share", awnb[1], 0.0, open_low=True)),
    )


def _unpack_options(learner: str | None, stored: dict, m: int) -> dict[str, Any]:
    """Return the options of a learner after validation.

    Names must be known, and types must match the defaults.

    The value of any other option must be a feature: a position below `m`, the number of candidate
    features, or None.
    """
    options = {} if learner is None else LEARNERS[learner].options  # option objects by name
    if stored.keys() != options.keys():
        raise ValueError("the options of its learner are malformed")
    for name, value in stored.items():
        default_value = options[name].default
        if options[name].check is None:
            is_valid = value is None or (type(value) is int and 0 <= value < m)
        else:
            # an integer may be used for a float
            is_valid = type(value) is type(default_value) or (
                type(default_value) is float and type(value) is int
            )
        if not is_valid:
            raise ValueError(f"the option {name} of its learner is malformed")
    return dict(stored)


def unpack(meta: dict, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of `NetworkResults` from content stored by `pack`.

    Raises a ValueError for invalid values.
    """
    design = Design.from_dict(meta["design"])
    columns = tuple(name_from_list(name) for name in meta["columns"])
    labels = design.labels
    K = len(design.response.levels)
    if not design.classes or len(set(columns)) < len(columns):  # no response, or a repeated name
        raise ValueError("its names are malformed")
    check_model(meta, arrays, TABLE, design, columns=len(columns))
    dags = _unpack_dags(arrays)
    if {columns[i] for i in dags[0].features} != set(labels.names):
        raise ValueError("its features do not match its design")
    # maps positions in `columns` to positions in the design
    to_design = {columns.index(name): i for i, name in enumerate(labels.names)}
    design_dags = [
        Dag(
            tuple(
                (to_design[i], tuple(to_design[p] for p in parents)) for i, parents in dag.families
            )
        )
        for dag in dags
    ]
    n_levels = [len(levels) for levels in labels.levels]
    families = [Families(dag.families, n_levels, K) for dag in design_dags]
    ends = np.cumsum([f.cells for f in families])  # end of each member's rows of `theta`
    if len(arrays["theta"]) != ends[-1]:
        raise ValueError("the array 'theta' is malformed")
    thetas = np.split(arrays["theta"], ends[:-1])
    networks = tuple(
        Network(d, f, arrays["prior"], t)
        for d, f, t in zip(design_dags, families, thetas, strict=True)
    )
    structure = make_structure(
        class_var=labels.response,
        columns=columns,
        dags=dags,
        learner=meta["learner"],
        options=_unpack_options(meta["learner"], meta["options"], len(columns)),
        score_log=tuple(map(float, arrays["score_log"])),
    )
    averaged = isinstance(structure, AveragedStructure)
    if len(networks) > 1 and not averaged:
        raise ValueError("it has several structures")
    integer("nobs", meta["nobs"], 0)  # raises an error unless it is a non-negative integer
    # -1: a row whose class is missing
    return unpack_model(meta, arrays, design, lowest_group=-1) | {
        "structure": structure,
        "network": Averaged(networks) if averaged else networks[0],
        "recipe": _unpack_recipe(meta["recipe"], len(n_levels)),
        "arc_posterior": arrays.get("arc_posterior"),
        "feature_weights": arrays.get("feature_weights"),
        "_stored_errors": (arrays["errors"], arrays["class_errors"])
        if "errors" in arrays
        else None,
    }
