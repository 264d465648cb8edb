"""Tables of the numeric predictors: means, covariances and correlations, as text and as DataFrames.

There are K groups and q numeric predictors. The means have p columns: a constant, and the
non-reference levels of the predictors on which some mean depends.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.model.location import Location
from bbl.report.markup import Section
from bbl.report.text import (
    ALL_OR_FEW,
    SHOWN_LEVELS,
    distinct_names,
    label_index,
    label_text,
    p_texts,
    statistic_texts,
)
from bbl.stats.group_means import equal_means, wilks

__all__ = ["column_names", "covariance_frame", "mean_frame", "mean_test_section", "numbers_text"]

CONSTANT = "(reference levels)"
CONSTANT_ALONE = "mean"  # if the mean depends on no other predictor


def column_names(labels: Labels, location: Location) -> list[str]:
    """Return the names (p,) of the columns of the means, in the form "predictor: level"."""
    model = location.model
    names = [CONSTANT]
    for i in model.used:
        name = label_text(labels.names[i])
        names += [f"{name}: {label_text(level)}" for level in labels.levels[i][1:]]
    return names


def mean_frame(labels: Labels, location: Location, centers: np.ndarray) -> pd.DataFrame:
    """Return the coefficients of the means, with a row for each numeric predictor and term, and a
    column for each group.

    Codes are values minus `centers` (q,); transformed values are not shifted.
    """
    model = location.model
    names = column_names(labels, location)
    numbers = []
    terms = []
    rows = []
    for j, i in enumerate(model.numbers):
        has_partners = model.has_column[j].sum() > 1
        for column in np.flatnonzero(model.has_column[j]):
            values = location.C[:, column, j]
            if column == 0 and location.scores is None:
                values = values + centers[j]
            terms.append(names[column] if column or has_partners else CONSTANT_ALONE)
            numbers.append(labels.names[i])
            rows.append(values)
    return pd.DataFrame(
        np.array(rows),
        index=pd.MultiIndex.from_arrays(
            [label_index(numbers), terms],
            names=distinct_names([*labels.groups, "number", "term"])[-2:],
        ),
        columns=pd.Index(labels.groups, dtype=object),
    )


def covariance_frame(labels: Labels, location: Location, g: int) -> pd.DataFrame:
    """Return the covariance (q, q) of the numeric predictors in group `g`, given the levels."""
    names = pd.Index([labels.names[i] for i in location.model.numbers], dtype=object)
    return pd.DataFrame(location.S[g], index=names, columns=names)


def mean_test_section(labels: Labels, location: Location) -> Section:
    """Return one-way analyses of variance of the numeric predictors as a table for the summary."""
    model = location.model
    columns = slice(model.p, model.p + model.q)
    sums = location.T[:, 0, columns]
    products = location.T[:, columns, columns]
    tests = equal_means(location.n, sums, products.diagonal(0, 1, 2))
    table = pd.DataFrame(
        {
            "F": statistic_texts(tests.F),
            "df": f"{tests.df:g} and {tests.residual_df:,.7g}",
            "Pr(>F)": p_texts(tests.p),
        },
        index=label_index([labels.names[i] for i in model.numbers]),
    )
    note = "These tests assume normal distributions with equal variances in all groups."
    together = wilks(location.n, sums, products) if model.q > 1 else None
    if together is not None:
        note = (
            f"Wilks' lambda = {together.lambda_:.4g}, F = {together.F:.4g}, df = "
            f"{together.df:g} and {together.residual_df:.6g}, Pr(>F) = {together.p:.4g}. {note}"
        )
    return Section("One-way analysis of variance of the numeric predictors", table, note)


def numbers_text(labels: Labels, location: Location, centers: np.ndarray) -> str:
    """Return the printed text on the numeric predictors: the coefficients of each mean and the
    standard deviations, followed by the correlations.
    """
    model = location.model
    n_groups = len(labels.groups)
    all_up_to, few = ALL_OR_FEW["group"]
    shown_groups = n_groups if n_groups <= all_up_to else few
    all_up_to, few = ALL_OR_FEW["predictor"]
    shown_numbers = model.q if model.q <= all_up_to else few
    group_names = [label_text(g) for g in labels.groups[:shown_groups]]
    means = mean_frame(labels, location, centers)
    sd = np.sqrt(location.S.diagonal(0, 1, 2))
    facts = (
        f"rows: {location.n.sum():,.7g}; covariance: {model.covariance}; divisor: {model.divisor}"
    )
    if model.shrink:
        facts += f"; shrink: {model.shrink:g}"
    if model.transform != "none":
        facts += "; normal scores of ranks"
    if model.tuned:
        facts += f"; by cross-validation: {', '.join(model.tuned)}"
    blocks = []
    n_terms = model.has_column.sum(axis=1)  # of each number, one after the other in `means`
    stops = np.cumsum(n_terms)
    for j in range(shown_numbers):
        name = label_text(labels.names[model.numbers[j]])
        own = means.iloc[stops[j] - n_terms[j] : stops[j]].droplevel(0)
        table = own.iloc[: SHOWN_LEVELS + 1, :shown_groups].set_axis(group_names, axis=1)
        table.loc["sd"] = sd[:shown_groups, j]
        blocks.append(f"Means of {name} ({facts}):\n{_table_text(table)}")
        omitted = len(own) - SHOWN_LEVELS - 1
        if omitted > 0:
            blocks[-1] += f"\n... ({omitted} more level{'s' * (omitted > 1)})"
    if model.q > shown_numbers:
        blocks.append(f"... ({model.q - shown_numbers} more numeric predictors)")
    names = [label_text(labels.names[i]) for i in model.numbers[:shown_numbers]]
    is_pair = model.correlated & ~np.eye(model.q, dtype=bool)
    if is_pair.any():
        is_shared = model.covariance == "shared"
        for g in range(1 if is_shared else shown_groups):
            R = location.S[g] / np.outer(sd[g], sd[g])
            suffix = "" if is_shared or labels.response is None else f"^({group_names[g]})"
            shown = pd.DataFrame(R[:shown_numbers, :shown_numbers], names, names)
            blocks.append(f"Correlations{suffix}:\n{_table_text(shown)}")
    return "\n\n".join(blocks)


def _table_text(table: pd.DataFrame) -> str:
    """Return a table of numbers with four decimals, or in scientific notation."""
    largest = float(np.abs(table.to_numpy()).max(initial=0.0))
    is_plain = 1e-3 < largest < 1e7
    return table.to_string(float_format=(lambda v: f"{v:.4f}") if is_plain else None)
