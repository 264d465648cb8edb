"""Labelled arrays of a fitted network: probability tables and terms of class scores, and export to
BIF.

K is the number of classes, and m is the number of features. *Cells* are the rows of the
concatenated probability tables of all families (a feature with its feature parents).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.bayesnet.averaged import Averaged
from bbl.bayesnet.predict import Network, log_table
from bbl.design.labels import Labels
from bbl.report.explore.score_model import (
    ScoreMixture,
    ScoreModel,
    ScoreSum,
    ScoreTerm,
    check_size,
)
from bbl.report.network.text import bif_text
from bbl.report.text import label_index, label_text
from bbl.results.explanation import Attribution

__all__ = ["attribution", "cell_tables", "interchange_text", "label_by_feature", "network_scores"]


def cell_tables(
    labels: Labels, network: Network, cell_values: np.ndarray, class_values: np.ndarray
) -> dict[Hashable, pd.DataFrame]:
    """Return a table for each variable.

    `cell_values` (cells, K) contains the values for the features, and `class_values` (K,) contains
    the values for the class.

    The rows are joint levels of the feature parents and the class, and the columns are levels of
    the feature. The class has one row.
    """
    frames = {}
    for f, (i, parents) in enumerate(network.dag.families):
        # the axes become (parents..., class, feature)
        table = np.moveaxis(network.families.table(cell_values, f), -2, -1)
        row_names = [*(labels.names[p] for p in parents), labels.response]
        row_levels = [*(labels.levels[p] for p in parents), labels.groups]
        columns = label_index(labels.levels[i], labels.names[i])
        index = (
            label_index(row_levels[0], row_names[0])
            if not parents
            else pd.MultiIndex.from_product(row_levels, names=row_names)
        )
        frames[labels.names[i]] = pd.DataFrame(table.reshape(-1, table.shape[-1]), index, columns)
    frames[labels.response] = pd.DataFrame(
        class_values[None].copy(), columns=label_index(labels.groups, labels.response)
    )
    return frames


def label_by_feature(features: tuple, values: np.ndarray | None) -> pd.Series | None:
    """Return `values` (m,), one per feature, as a series indexed by the names `features`, or None
    if `values` is None.
    """
    return None if values is None else pd.Series(values, index=label_index(features))


def attribution(labels: Labels, network: Network) -> Attribution:
    """Return ``ln P(y, x)`` as a sum: the log prior, plus one table of log probabilities per
    family.

    The axes of a table are (class, parents..., feature), and its contribution is attributed to the
    feature alone.
    """
    names = [label_text(x) for x in labels.names]
    tables = {}
    titles = []
    # the same as `network.dag.families`
    for f, (i, parents) in enumerate(network.families.families):
        # logarithms, -inf for probability 0
        log_p = log_table(network.families.table(network.theta, f))
        tables[(*parents, i)] = np.moveaxis(log_p, -1, 0)  # the class first
        parent_names = ", ".join(names[p] for p in parents)
        titles.append(f"{names[i]} | {parent_names}" if parent_names else names[i])
    return Attribution(
        names=titles,
        terms=tables,
        # the feature, which is the last axis
        shown=[family_features[-1:] for family_features in tables],
        constant=log_table(network.prior),
    )


def network_scores(labels: Labels, network: Network | Averaged) -> ScoreModel:
    """Return ``ln P(y, x)`` as a sum of tables or, for an average of networks, as the logarithm of
    a mean.

    Rows that are impossible in all classes have equal scores.
    """
    if isinstance(network, Averaged):
        members = [_score_sum(labels, member) for member in network.members]
        weights = np.full(len(members), 1.0 / len(members))
        mixture = ScoreMixture(
            weights=weights, members=members, averages_posteriors=False, equal_if_impossible=True
        )
        return ScoreModel(mixture, None, "The scores of an average of networks are not sums.")
    scores = replace(_score_sum(labels, network), equal_if_impossible=True)
    return ScoreModel(scores, scores)


def _score_sum(labels: Labels, network: Network) -> ScoreSum:
    """Return ``ln P(y, x)`` of a network as a sum of tables."""
    check_size(network.theta.size)
    parts = attribution(labels, network)
    terms = [
        ScoreTerm(scope, table, name, shown)
        for (scope, table), name, shown in zip(
            parts.terms.items(), parts.names, parts.shown, strict=True
        )
    ]
    return ScoreSum(constant=parts.constant, terms=terms)


def interchange_text(
    labels: Labels, families: dict[Hashable, tuple[Any, ...]], network: Network
) -> str:
    """Return the network in the Interchange Format for Bayesian Networks, given the `families` of
    its structure.
    """
    # axes (parents..., class, variable)
    tables: dict[Hashable, np.ndarray] = {labels.response: network.prior}
    for f, i in enumerate(network.dag.features):  # family f belongs to feature i
        tables[labels.names[i]] = np.moveaxis(network.families.table(network.theta, f), -2, -1)
    levels = {**dict(zip(labels.names, labels.levels, strict=True)), labels.response: labels.groups}
    return bif_text(families, levels, tables)
