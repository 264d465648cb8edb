"""Text and values with titles that describe a fitted network, for its printed form and summary.

Its probabilities are Dirichlet estimates, or one of three variants: MANB averages over all subsets
of the features, WANBIA weights features by conditional likelihood, and AWNB weights them by
decision trees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bbl.bayesnet.information import conditional_information
from bbl.bayesnet.parameters import Recipe
from bbl.design.design import Design
from bbl.design.labels import Labels
from bbl.report.network.text import structure_text
from bbl.report.text import label_index, missing_text
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import loss_facts, priors_facts
from bbl.results.network.structure import AveragedStructure, Structure

__all__ = ["feature_facts", "network_facts", "network_text"]


def network_text(
    structure: Structure | AveragedStructure, n_parameters: int, design: Design
) -> str:
    """Return the printed form: the structure, and the treatment of missing values."""
    n_arcs, n_networks = (
        (structure.narcs, None) if isinstance(structure, Structure) else (None, len(structure.dags))
    )
    head = structure_text(
        structure.class_var,
        len(structure.features),
        structure.learner,
        n_arcs=n_arcs,
        n_networks=n_networks,
        n_parameters=n_parameters,
    )
    missing_line = (
        f"\n\nMissing values: {missing_text(design.missing, design.incomplete)}"
        if design.incomplete
        else ""
    )
    return head + missing_line


def network_facts(
    fit: ClassifierResults, structure: Structure | AveragedStructure, recipe: Recipe
) -> dict[str, Any]:
    """Return the key statistics of the summary by title; `recipe` contains the options of the
    estimate.
    """
    log_lik = fit.logLik()
    n_incomplete = fit.design.incomplete
    # `wanbia` is True for fitted weights, a tuple for given weights, and False without WANBIA
    method = (
        f"averaged over subsets of features (MANB), prior {recipe.manb_prior:.4g}"
        if recipe.manb_prior is not None
        else "weighted by conditional likelihood (WANBIA)"
        if recipe.wanbia is True
        else "weighted by squared error (WANBIA)"
        if recipe.wanbia == "mse"
        else "weighted as given"
        if recipe.wanbia is not False
        else f"weighted by {recipe.awnb[0]} trees (AWNB)"
        if recipe.awnb is not None
        else "Dirichlet"
    )
    facts: dict[str, Any] = {"Learner": structure.learner or "given by hand"}
    if isinstance(structure, Structure):
        facts["Arcs"] = structure.narcs
    else:
        facts["Networks"] = len(structure.dags)
    if structure.score_log:
        facts["Accuracy in the search"] = ", ".join(f"{s:.4g}" for s in structure.score_log)
    return facts | {
        "Parameters": f"{fit.n_parameters}, {method}, smooth = {recipe.smooth:.7g}",
        "Observations": fit.nobs(),
        **(
            {"Missing values": missing_text(fit.design.missing, n_incomplete)}
            if n_incomplete
            else {}
        ),
        "Log-likelihood": float(log_lik),
        "AIC": fit.aic,
        "BIC": fit.bic,
        **priors_facts(fit.labels.groups, fit.priors),
        **loss_facts(fit.log_loss),
    }


def feature_facts(
    labels: Labels,
    counts: list[np.ndarray],
    structure: Structure | AveragedStructure,
    arc_posterior: np.ndarray | None,
    feature_weights: np.ndarray | None,
) -> pd.DataFrame:
    """Return a row for each feature: number of levels, parents, mutual information with the class
    (nats), weight.

    `counts` contains a table (K, L) for each feature: the weighted counts of its L levels by class.
    `arc_posterior` (m,) is the posterior probability of the arc from the class to each feature
    (MANB), and `feature_weights` (m,) contains the weight of each feature (WANBIA, AWNB), both in
    the order of ``structure.features``. They are None for other fits.
    """
    # in `labels` and `counts`, which follow the design's order, not ``structure.features``
    position = {name: i for i, name in enumerate(labels.names)}
    features = structure.features
    n_levels = [len(labels.levels[position[x]]) for x in features]
    table = pd.DataFrame({"levels": n_levels}, index=label_index(features))
    if isinstance(structure, Structure):
        families = structure.feature_families
        table["feature parents"] = [", ".join(map(str, families[x][1:])) or "-" for x in features]
    # mutual information of feature and class: conditional information (K, L, 1) given a third
    # variable with one level
    table["information"] = [
        conditional_information(counts[position[x]][:, :, None]) for x in features
    ]
    if arc_posterior is not None:
        table["arc posterior"] = arc_posterior
    if feature_weights is not None:
        table["weight"] = feature_weights
    return table
