"""Sections of a Boltzmann machine's HTML report: parameters with their intervals, and the strongest
interactions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.errors import BBLError
from bbl.report.explore.interactions import Coupling, Pair, interactions_html
from bbl.report.machine.inference_table import absent, parameter_names, reference_condition
from bbl.report.machine.plot_interactions import draw_network
from bbl.report.markup import html_table
from bbl.report.page import Part, figure_html
from bbl.report.text import label_text
from bbl.results.machine.estimates import Compared, without_reference
from bbl.results.machine.fitted_machine import FittedMachine
from bbl.results.machine.inference import Inference
from bbl.results.report_page import MAX_TABLE_ROWS

__all__ = ["machine_parts", "summary_notes"]


def machine_parts(fit: FittedMachine) -> list[Part]:
    """Return the sections on parameters and interactions."""
    if not fit.estimate.parameters.layout.D:
        return [_numbers_part(fit)]
    return [_parameters_part(fit), _interactions_part(fit)]


def _numbers_part(fit: FittedMachine) -> Part:
    """Return the section on parameters of a model without fields: a figure of its numbers."""
    text = ["The model has no fields and no interactions: no predictor has several levels."]
    if fit.estimate.location is None:
        return Part("Parameters", text, [])
    caption = "Means of numeric predictors in each group."
    return Part("Parameters", text, [figure_html(fit.plot()[0].figure, caption, caption)])


def summary_notes(fit: FittedMachine) -> list[str]:
    """Return a sentence that states the levels of other predictors for which fields and tests hold,
    if predictors interact.
    """
    condition = reference_condition(fit.labels, fit.estimate.parameters.layout)
    return [condition] if condition else []


def _choose_estimates(fit: FittedMachine) -> tuple[Compared, str, str]:
    """Return the argument `of` of ``inference().table`` that selects the estimates to show, a
    heading and a description.
    """
    groups = fit.labels.groups
    if len(groups) == 2:  # a pair (a, b) selects a minus b: the second group minus the first
        one, other = map(label_text, groups)
        return (groups[1], groups[0]), "Differences between the groups", f"{other} minus {one}"
    if len(groups) > 2 and fit.estimate.parameters.pooled is not None:
        return "pooled", "Differences between the groups", "each group minus the fit to all rows"
    return "group", "Parameters", "against the reference level"


def _parameters_part(fit: FittedMachine) -> Part:
    """Return the section on parameters: a table and a figure with intervals.

    Without standard errors, the section only contains the figure.
    """
    of, heading, description = _choose_estimates(fit)
    try:
        inference = fit.inference()
        figure = inference.plot(of).figure
        alt_text = (
            "Estimates of the fields with 95 % intervals, one line per level. The numbers are "
            "in the table above."
        )
        figure_markup = figure_html(
            figure, alt_text, f"Fields with 95 % intervals where available: {description}."
        )
        # otherwise intervals without tests: a posterior, or a penalised joint fit
        if isinstance(inference, Inference):
            table = inference.summary(of).as_html()
        else:
            table = html_table(
                _interval_table(inference.table(of).head(MAX_TABLE_ROWS)), "Parameters"
            )
        text = (
            []
            if of == "group"
            else [
                f"Log odds ratios: {description}. At zero, a level carries no information about "
                "the group."
            ]
        )
        return Part(heading, [*text, *summary_notes(fit)], [table, figure_markup])
    except BBLError as error:  # its message gives the reason
        figure = fit.plot()[0].figure
        figure_markup = figure_html(
            figure,
            "Fields as bars, and the couplings of each group as a heat map.",
            "Fields and couplings of each group.",
        )
        return Part("Parameters", [f"No standard errors: {error}"], [figure_markup])


def _interval_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the estimates and intervals of a table of parameters without tests, indexed by
    parameter name.
    """
    names = zip(table["group"], parameter_names(table), strict=True)
    index = pd.Index([f"{label_text(group)}: {name}" for group, name in names], dtype=object)
    return table[["estimate", "se", "lower", "upper"]].round(5).set_axis(index)


def _name_terms(table: pd.DataFrame) -> list[str]:
    """Return the names of the predictors in each row of a table of interactions, such as "a and
    b".
    """
    columns = [name for name in table.columns if str(name).startswith("predictor")]
    # in a row with fewer predictors than columns, the remaining cells are missing: see `absent`
    terms = zip(*(table[name] for name in columns), strict=True)
    return [" and ".join(label_text(name) for name in term if not absent(name)) for term in terms]


def _interactions_part(fit: FittedMachine) -> Part:
    """Return the section on interactions: the strongest interactions as a table and a graph."""
    if not len(fit.estimate.parameters.layout.pairs):
        return Part(
            "Interactions",
            ["The model has no interactions: predictors are independent given the group."],
        )
    ranking, of = _rank(fit)
    # including terms without a test, as in the graph; the column `test` gives the reason
    table = ranking.head(MAX_TABLE_ROWS).copy()
    row_names = _name_terms(table)
    if ranking["group"].nunique() > 1:
        row_names = [
            f"{label_text(g)}: {name}" for g, name in zip(table["group"], row_names, strict=True)
        ]
    # only a posterior has sd and inclusion
    columns = [
        column
        for column in ("strength", "sd", "inclusion", "p", "p_holm", "test")
        if column in table
    ]
    table = table[columns].set_axis(pd.Index(row_names, dtype=object))
    table = table.round({name: 4 for name in ("strength", "sd", "inclusion")})
    for name in ("p", "p_holm"):
        # 4 significant digits: 4 decimals would print 0
        table[name] = [float(f"{p:.4g}") for p in table[name]]
    is_cut = len(ranking) > len(table)
    title = (
        f"The {len(table)} strongest of {len(ranking)} interactions" if is_cut else "Interactions"
    )
    drawn = (
        fit.estimate.parameters if of == "pooled" else replace(fit.estimate.parameters, pooled=None)
    )
    panels = draw_network(fit.labels, drawn, groups=[of] if isinstance(of, tuple) else None)
    figure_markup = figure_html(
        panels[0].figure,
        "Graph of the strongest interactions, which are listed in the table above.",
        "The strongest interactions between predictors. Wider lines indicate stronger "
        "interactions.",
    )
    if isinstance(of, tuple):
        quantity = f"the difference in couplings, {label_text(of[0])} minus {label_text(of[1])}"
    elif of == "pooled":
        quantity = "the difference in couplings between a group and the fit to all rows"
    else:
        quantity = "the couplings" + " in a group" * (len(fit.labels.groups) > 1)
    text = f"Strength is the norm of {quantity}, in the zero-sum gauge."
    return Part(
        "Interactions",
        [text],
        [html_table(table, title), figure_markup],
        widget=_interactions_widget(fit, ranking, of),
    )


def _list_couplings(
    fit: FittedMachine, of: Compared
) -> dict[tuple[str, frozenset], list[Coupling]]:
    """Return the selected couplings with intervals and tests, by group and pair, or an empty dict
    if the method has no standard errors.
    """
    try:
        table = fit.inference().table(of)
    except BBLError:
        return {}
    if "predictor3" in table:  # terms of three or more predictors are not drawn
        table = table[[absent(name) for name in table["predictor3"]]]
    table = table[[not absent(name) for name in table["predictor2"]]]

    def digits(value: Any) -> float | None:
        """Return a number with four significant digits; None if it is missing or infinite."""
        return float(f"{value:.4g}") if np.isfinite(value) else None

    found: dict[tuple[str, frozenset], list[Coupling]] = {}
    for row in table.itertuples():
        one = f"{label_text(row.predictor)}={label_text(row.level)}"
        other = f"{label_text(row.predictor2)}={label_text(row.level2)}"
        key = (label_text(row.group), frozenset([row.predictor, row.predictor2]))
        found.setdefault(key, []).append(
            Coupling(
                f"{one}, {other}",
                float(f"{row.estimate:.4g}"),
                digits(row.lower),
                digits(row.upper),
                digits(row.p),
            )
        )
    return found


def _interactions_widget(fit: FittedMachine, ranking: pd.DataFrame, of: Compared) -> str:
    """Return the graph, the heat map and the couplings of the pairs in a table of interactions."""
    names = fit.labels.names
    pairs = ranking
    if "predictor3" in ranking:  # terms of three or more predictors are not drawn
        pairs = ranking[[absent(name) for name in ranking["predictor3"]]]
    couplings = _list_couplings(fit, of)
    p_values = pairs["p"] if "p" in pairs else [float("nan")] * len(pairs)
    return interactions_html(
        [label_text(name) for name in names],
        [
            Pair(
                label_text(group),
                names.index(one),
                names.index(other),
                float(strength),
                None if pd.isna(p) else float(p),
                couplings.get((label_text(group), frozenset([one, other])), ()),
            )
            for group, one, other, strength, p in zip(
                pairs["group"],
                pairs["predictor"],
                pairs["predictor2"],
                pairs["strength"],
                p_values,
                strict=True,
            )
        ],
    )


def _rank(fit: FittedMachine) -> tuple[pd.DataFrame, Compared]:
    """Return the interactions, strongest first, and the argument `of` that selects them.

    As in the section on parameters, these are differences between groups if the method provides
    them, and otherwise the couplings of each group. The reference group of a joint fit is omitted,
    because its couplings are zero.
    """
    of = _choose_estimates(fit)[0]
    try:
        return without_reference(fit.interactions(of)), of
    except BBLError:  # a method that has no differences
        return without_reference(fit.interactions()), "group"
