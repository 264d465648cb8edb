"""Report: everything that a fitted model can tell of itself, as one page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bbl.errors import BBLError
from bbl.report.markup import html_table
from bbl.report.page import Part, figure_html, page_html
from bbl.report.text import label_text, missing_text

__all__ = ["report_html"]

MOST = 20  # rows of a table of predictors or pairs


def report_html(fit: Any, newdata: Any = None, weights: Any = None) -> str:
    """Return the report of a fitted model as HTML; see ``fit.report``."""
    response = fit.labels.response
    what = "its rows" if response is None else label_text(response)
    parts = [_data(fit), Part("Summary", html=[fit.summary().as_html()])]
    if hasattr(fit, "evaluate"):
        parts.append(_evaluation(fit, newdata, weights))
    if hasattr(fit, "tidy"):
        parts += [_parameters(fit), _interactions(fit)]
    elif hasattr(fit, "structure"):
        parts.append(_structure(fit))
    elif hasattr(fit, "terms"):
        parts.append(_terms(fit))
    title = f"Model of {what}: {label_text(fit.formula)}"
    lead = f"{fit.nobs():g} observations, {len(fit.labels.names)} predictors, {fit.n_parameters} parameters."
    return page_html(title, lead, parts, "Made by bbl, the Boltzmann Bayes learner. The page holds no script.")


def _data(fit: Any) -> Part:
    """Tell of the predictors, of what was dropped, and of what was put together."""
    labels, design = fit.labels, fit.design
    rows = []
    for factor, counts in zip(design.predictors, fit._counts, strict=True):
        total = np.asarray(counts).sum(axis=0)
        most, least = int(total.argmax()), int(total.argmin())
        levels = [label_text(x) for x in factor.levels]
        notes = ["numbers in intervals"] if factor.binned else []
        notes += [f"rare levels put together ({total[levels.index('(rare)')]:g})"] if "(rare)" in levels else []
        notes += ["missing values are a level"] if "missing" in factor.kinds else []
        shown = ", ".join(levels[:6]) + (f", ... {len(levels)} in all" if len(levels) > 6 else "")
        rows.append([shown, levels[most], f"{levels[least]} ({total[least]:g})", "; ".join(notes)])
    table = pd.DataFrame(rows, columns=["levels", "most frequent", "rarest", "what was done"], dtype=object)
    table.index = pd.Index([label_text(name) for name in labels.names], dtype=object)
    more = f" The first {MOST} of {len(table)} predictors are shown." if len(table) > MOST else ""
    text = [f"Call: {' '.join(fit.call.split())}"]
    if design.incomplete:
        text.append(f"Missing values: {missing_text(design.missing, design.incomplete)}.")
    else:
        text.append("No row was dropped, and no value is missing.")
    if len(labels.groups) > 1:
        share = ", ".join(f"{label_text(g)} {s:.1%}" for g, s in zip(labels.groups, fit.class_shares, strict=True))
        text.append(f"Groups of {label_text(labels.response)} in the training rows: {share}.")
    return Part("Data", [*text, *([more.strip()] if more else [])], [html_table(table.head(MOST), "Predictors")])


def _evaluation(fit: Any, newdata: Any, weights: Any) -> Part:
    try:
        found = fit.evaluate(newdata, weights)
    except BBLError as error:
        return Part("Evaluation", [f"There is none: {error}"])
    scores = found.scores
    best = f"Accuracy {scores.loc['accuracy', 'estimate']:.3f}, AUC {scores.loc['AUC', 'estimate']:.3f}."
    figures = [
        figure_html(
            found.plot("confusion").figure,
            f"Confusion matrix: observed against predicted groups. {best} The numbers are in the table above.",
            "Observed (rows) and predicted (columns) groups; the darker, the larger the share of its row.",
        ),
        figure_html(
            found.plot("roc").figure,
            f"ROC curves: true against false positive rates. {best}",
            "ROC curves: how many of a group are found against how many others are taken for it.",
        ),
        figure_html(
            found.plot("calibration")[0].figure,
            "Reliability diagrams: observed shares against predicted probabilities, and histograms of the predictions.",
            "Calibration: points on the diagonal mean that predicted probabilities hold; bars are 95 % intervals.",
        ),
    ]
    return Part("Evaluation and calibration", html=[found.as_html(), *figures])


def _parameters(fit: Any) -> Part:
    try:
        inference = fit.inference()
        figure = inference.plot().figure
        alt = "Estimates of the fields with 95 % intervals, a line for each level. The numbers are in the table above."
        drawn = figure_html(figure, alt, "Fields of each group with their 95 % intervals, against the reference level.")
        try:
            table = inference.summary().as_html()
        except (AttributeError, BBLError):
            table = html_table(fit.tidy().head(MOST), "Parameters")
        return Part("Parameters", html=[table, drawn])
    except BBLError as error:
        figure = fit.plot()[0].figure
        drawn = figure_html(
            figure, "Fields as bars, and couplings of each group as a map.", "Fields and couplings of each group."
        )
        return Part("Parameters", [f"No standard errors: {error}"], [drawn])


def _interactions(fit: Any) -> Part:
    if not len(fit.parameters.layout.pairs):
        return Part("Interactions", ["The model has none: given the group, predictors are independent."])
    table = fit.interactions()
    shown = table.head(MOST).copy()
    names = [
        f"{label_text(a)} and {label_text(b)}" for a, b in zip(shown["predictor"], shown["predictor2"], strict=True)
    ]
    if len(fit.labels.groups) > 1:
        names = [f"{label_text(g)}: {name}" for g, name in zip(shown["group"], names, strict=True)]
    columns = [c for c in ("strength", "sd", "inclusion", "p", "p_holm", "test") if c in shown]
    shown = shown[columns].set_axis(pd.Index(names, dtype=object))
    numbers = shown.select_dtypes("number").columns
    shown[numbers] = shown[numbers].round(4)
    title = f"The {len(shown)} strongest of {len(table)} interactions" if len(table) > MOST else "Interactions"
    drawn = figure_html(
        fit.plot_network()[0].figure,
        "Graph of the strongest interactions of each group. The strongest are in the table above.",
        "Predictors joined by their strongest interactions; the wider a line, the stronger.",
    )
    return Part("Interactions", html=[html_table(shown, title), drawn])


def _structure(fit: Any) -> Part:
    try:
        figure = fit.plot().figure
    except BBLError as error:  # an average of networks
        return Part("Structure", [str(error)])
    alt = f"Graph of the network {fit.modelstring}" if len(fit.labels.names) <= MOST else "Graph of the network"
    return Part("Structure", html=[figure_html(figure, alt, "The class is a parent of every feature.")])


def _terms(fit: Any) -> Part:
    alt = "Bars of the chosen terms by their strength. The numbers are in the tables of the summary."
    return Part("Terms", html=[figure_html(fit.plot().figure, alt, "The chosen terms, the strongest first.")])
