"""Labelled tables, without standard errors, of the estimates and interactions that the argument
`of` selects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.permutation import permutation_tests
from bbl.boltzmann.inference.significance import Kind
from bbl.checks import flag
from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.machine.tables import parameter_columns
from bbl.results.machine.estimates import Compared, resolve_of
from bbl.rows.sample import Sample
from bbl.stats.metrics import rising_ranks
from bbl.stats.wald import adjust

__all__ = [
    "estimate_table",
    "permutation_table",
    "rank_interactions",
    "select_estimates",
    "selection_names",
    "term_labels",
    "untested_table",
]


def selection_names(of: Compared, groups: list) -> list:
    """Return the labels in the column ``group`` of tables for `of`: the groups, or ``["a - b"]``
    for a pair.
    """
    return [f"{of[0]} - {of[1]}"] if isinstance(of, tuple) else groups


def select_estimates(parameters: Parameters, of: Compared, groups: list) -> np.ndarray:
    """Return the estimates that `of` selects: (K, size), or (1, size) for a pair of groups."""
    selection = resolve_of(of, groups, parameters.pooled is not None)
    if isinstance(selection, tuple):
        return (parameters.theta[selection[0]] - parameters.theta[selection[1]])[None]
    # `shift`: theta minus the pooled parameters
    return parameters.theta if selection == "group" else parameters.shift


def estimate_table(
    labels: Labels, parameters: Parameters, of: Compared, **columns: np.ndarray
) -> pd.DataFrame:
    """Return the estimates selected by `of`, one per row.

    The columns of ``tidy()`` that identify the parameter are followed by ``estimate`` and by the
    given columns.
    """
    theta = select_estimates(parameters, of, list(labels.groups))
    row_labels = replace(labels, groups=tuple(selection_names(of, list(labels.groups))))
    identifying = parameter_columns(row_labels, parameters.layout)
    return pd.DataFrame({**identifying, "estimate": theta.ravel(), **columns})


def untested_table(
    labels: Labels, parameters: Parameters, of: Compared, reason: str
) -> pd.DataFrame:
    """Return all interactions with the columns of `Inference.tests`, but without tests.

    The column ``test`` contains `reason`.

    Rows are sorted by group and then by the order of the term.
    """
    layout = parameters.layout
    n_interactions = sum(map(len, layout.terms))
    terms = term_labels(labels, layout, layout.m)
    tests = {
        "chisq": np.nan,
        "df": 0,
        "p": np.nan,
        "p_holm": np.nan,
        "p_bh": np.nan,
        "test": reason,
    }
    names = selection_names(of, list(labels.groups))
    tables = [pd.DataFrame({"group": [name] * n_interactions, **terms, **tests}) for name in names]
    return pd.concat(tables, ignore_index=True)


def term_labels(labels: Labels, layout: Layout, first: int = 0) -> dict[str, Any]:
    """Return the columns that identify the terms of a layout, starting with term number `first`.

    Fields precede interactions.

    The columns are ``predictor``, ``predictor2`` and so on, with pd.NA for terms with fewer
    predictors. If there are terms of three or more predictors, the first column is ``order``, the
    number of predictors.
    """
    scopes = layout.scopes[first:]
    columns: dict[str, Any] = (
        {"order": np.array([len(scope) for scope in scopes], dtype=np.intp)}
        if layout.order > 2
        else {}
    )
    for k in range(max(layout.order, 2)):  # a column "predictor2" even if no predictors interact
        names = [labels.names[scope[k]] if k < len(scope) else pd.NA for scope in scopes]
        # the first column has no missing names, and its dtype may be inferred by pandas
        columns[f"predictor{k + 1}" if k else "predictor"] = (
            pd.array(names, dtype=object) if k else names
        )
    return columns


def permutation_table(
    labels: Labels,
    parameters: Parameters,
    sample: Sample,
    n_permutations: int,
    rng: np.random.Generator,
    workers: int,
) -> pd.DataFrame:
    """Return the interactions of each group as in `untested_table`, with a permutation test of each
    pair.

    Each test uses `n_permutations` permutations of the training rows `sample`. Tests run in
    `workers` threads.
    """
    layout = parameters.layout
    # text for pairs without a test below
    frame = untested_table(labels, parameters, "group", Kind.FEW.text)
    # rows of a group: pairs come first
    n_pairs = len(layout.pairs)
    n_interactions = sum(map(len, layout.terms))
    if layout.order > 2:
        frame.loc[frame["order"] > 2, "test"] = "no test: permutation tests require pairs"
    for g, group_rng in enumerate(rng.spawn(len(labels.groups))):
        # each (P,), one entry per pair; df is 0 if the rows contain no information
        chisq, df, p = permutation_tests(
            sample.group(g), layout, n_permutations, group_rng, workers
        )
        pair_rows = frame.index[g * n_interactions : g * n_interactions + n_pairs]
        columns = {
            "chisq": chisq,
            "df": df,
            "p": p,
            "p_holm": adjust(p, "holm"),
            "p_bh": adjust(p, "fdr_bh"),
        }
        for column, values in columns.items():
            frame.loc[pair_rows, column] = values
    frame.loc[frame["df"] > 0, "test"] = "permutation"
    # no permutation had a statistic as large: with more permutations, p would be smaller
    is_bound = frame["p"] <= 1.0 / (n_permutations + 1.0)
    frame.loc[is_bound, "test"] = f"permutation: p is at most 1/{n_permutations + 1:,}"
    return frame


def rank_interactions(
    interactions: pd.DataFrame, parameters: Parameters, of: Compared, groups: list, apc: bool
) -> pd.DataFrame:
    """Add the column ``strength`` to a table of interactions and sort it by decreasing strength.

    The strength is the Frobenius norm of the couplings in the zero-sum gauge. If `apc` is True, the
    average-product correction is subtracted from the strengths of pairs.
    """
    flag("apc", apc)
    selected_theta = select_estimates(parameters, of, groups)
    # in row order: by group, then by term
    strength = np.concatenate(
        [interaction_strength(parameters.layout, theta, apc) for theta in selected_theta]
    )
    # position of the last of the columns "predictor", "predictor2", ...
    last_predictor = max(
        k for k, column in enumerate(interactions.columns) if str(column).startswith("predictor")
    )
    interactions.insert(last_predictor + 1, "strength", strength)
    # strengths that differ only by rounding keep their order
    order = np.argsort(rising_ranks(-interactions["strength"].to_numpy(float)), kind="stable")
    return interactions.iloc[order].reset_index(drop=True)
