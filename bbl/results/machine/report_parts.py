"""Sections of a Boltzmann machine's HTML report: fields with their intervals, and the strongest interactions."""

from __future__ import annotations

import pandas as pd

from bbl.errors import BBLError
from bbl.report.markup import html_table
from bbl.report.page import Part, figure_html
from bbl.report.text import label_text
from bbl.results.machine.figures import plot, plot_network
from bbl.results.machine.inference import Inference
from bbl.results.machine.machine import MachineResults
from bbl.results.machine.uncertainty import interactions
from bbl.results.report_page import MAX_TABLE_ROWS

__all__ = ["machine_parts"]


def machine_parts(self: MachineResults) -> list[Part]:
    """Return the sections on parameters and interactions."""
    return [_parameters(self), _interactions(self)]


def _parameters(fit: MachineResults) -> Part:
    """Return the section on fields: their intervals where the method has standard errors, else their estimates."""
    try:
        inference = fit.inference()
        figure = inference.plot().figure
        alt = "Estimates of the fields with 95 % intervals, a line for each level. The numbers are in the table above."
        drawn = figure_html(figure, alt, "Fields of each group with their 95 % intervals, against the reference level.")
        if isinstance(inference, Inference):
            summary = inference.summary().as_html()
        else:
            summary = html_table(fit.tidy().head(MAX_TABLE_ROWS), "Parameters")
        return Part("Parameters", html=[summary, drawn])
    except BBLError as error:
        figure = plot(fit)[0].figure
        drawn = figure_html(
            figure, "Fields as bars, and couplings of each group as a map.", "Fields and couplings of each group."
        )
        return Part("Parameters", [f"No standard errors: {error}"], [drawn])


def _interactions(fit: MachineResults) -> Part:
    """Return the section on couplings: the strongest pairs as a table and a graph."""
    if not len(fit.parameters.layout.pairs):
        return Part("Interactions", ["The model has none: given the group, predictors are independent."])
    table = interactions(fit)
    shown = table.head(MAX_TABLE_ROWS).copy()
    names = [
        f"{label_text(a)} and {label_text(b)}" for a, b in zip(shown["predictor"], shown["predictor2"], strict=True)
    ]
    if len(fit.labels.groups) > 1:
        names = [f"{label_text(g)}: {name}" for g, name in zip(shown["group"], names, strict=True)]
    columns = [c for c in ("strength", "sd", "inclusion", "p", "p_holm", "test") if c in shown]
    shown = shown[columns].set_axis(pd.Index(names, dtype=object))
    numbers = shown.select_dtypes("number").columns
    shown[numbers] = shown[numbers].round(4)
    title = (
        f"The {len(shown)} strongest of {len(table)} interactions" if len(table) > MAX_TABLE_ROWS else "Interactions"
    )
    drawn = figure_html(
        plot_network(fit)[0].figure,
        "Graph of the strongest interactions of each group. The strongest are in the table above.",
        "Predictors joined by their strongest interactions; the wider a line, the stronger.",
    )
    return Part("Interactions", html=[html_table(shown, title), drawn])
