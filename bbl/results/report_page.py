"""Sections of the HTML report that all model families share: the data, and the evaluation of
predictions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bbl.design.design import Design
from bbl.design.numbers import NumberFactor
from bbl.report.markup import html_table
from bbl.report.page import Part, figure_html
from bbl.report.plot_evaluation import plot_confusion
from bbl.report.text import label_text, missing_text
from bbl.results.evaluation import Evaluation

__all__ = ["MAX_TABLE_ROWS", "MIN_CELL", "data_part", "evaluation_part"]

MIN_CELL = 5  # rows below which a page gives no number
MAX_TABLE_ROWS = 20  # rows of a table of predictors, parameters or pairs on the page


def _count_text(count: float) -> str:
    """Return a number of rows as text.

    Small numbers are suppressed, because they may identify individuals.
    """
    return f"{count:g}" if count >= MIN_CELL else f"fewer than {MIN_CELL}"


def data_part(
    call: str, design: Design, counts: Sequence[np.ndarray], class_shares: np.ndarray
) -> Part:
    """Return the section on the data: levels of the predictors, dropped rows, merged levels and
    class proportions.

    `counts` contains the weighted counts (K, L_i) of each predictor's levels in the K groups, and
    `class_shares` (K,) contains the class proportions.
    """
    labels = design.labels
    table_rows = []
    for factor, group_counts in zip(design.predictors, counts, strict=True):
        if isinstance(factor, NumberFactor):
            mean = factor.center + factor.scale * factor.mean
            table_rows.append(["numbers", "", "", f"mean {mean:.4g}"])
            continue
        totals = group_counts.sum(axis=0)  # total row weight at each level
        most_frequent = int(totals.argmax())
        rarest = int(totals.argmin())
        levels = [label_text(level) for level in factor.levels]
        # the levels are intervals of numbers
        notes = ["binned numbers"] if factor.binned else []
        # "(rare)": the level that `bbl.lump` creates from rare levels
        notes += (
            [f"rare levels merged ({_count_text(totals[levels.index('(rare)')])})"]
            if "(rare)" in levels
            else []
        )
        # `kinds`: the type of each level, such as "number" or "missing"
        notes += ["missing values as a level"] if "missing" in factor.kinds else []
        level_list = ", ".join(levels[:6]) + (
            f", ... {len(levels)} in all" if len(levels) > 6 else ""
        )
        table_rows.append(
            [
                level_list,
                levels[most_frequent],
                f"{levels[rarest]} ({_count_text(totals[rarest])})",
                "; ".join(notes),
            ]
        )
    table = pd.DataFrame(
        table_rows, columns=["levels", "most frequent", "rarest", "preparation"], dtype=object
    )
    table.index = pd.Index([label_text(name) for name in labels.names], dtype=object)
    sentences = [f"Call: {' '.join(call.split())}"]
    # number of training observations with missing values, and how they are treated
    if design.incomplete:
        sentences.append(f"Missing values: {missing_text(design.missing, design.incomplete)}.")
    else:
        sentences.append("No rows were dropped, and no values are missing.")
    if len(labels.groups) > 1:
        shares = ", ".join(
            f"{label_text(g)} {s:.1%}" for g, s in zip(labels.groups, class_shares, strict=True)
        )
        sentences.append(f"Class proportions in the training rows: {shares}.")
    if len(table) > MAX_TABLE_ROWS:
        sentences.append(f"Showing the first {MAX_TABLE_ROWS} of {len(table)} predictors.")
    return Part("Data", sentences, [html_table(table.head(MAX_TABLE_ROWS), "Predictors")])


def evaluation_part(evaluation: Evaluation) -> Part:
    """Return the section on predictions: scores, confusion matrix, ROC curves and calibration."""
    accuracy, auc = evaluation.scores.loc[["accuracy", "AUC"], "estimate"].to_numpy(float)
    scores_text = f"Accuracy {accuracy:.3f}, AUC {auc:.3f}."
    figures = [
        figure_html(
            plot_confusion(evaluation.labels, evaluation._counts, min_count=MIN_CELL).figure,
            (
                f"Confusion matrix: observed against predicted groups. {scores_text} The numbers "
                "are in the table above."
            ),
            (
                "Observed groups (rows) and predicted groups (columns). Darker cells have a "
                "larger proportion of their row."
            ),
        ),
        figure_html(
            evaluation.plot("roc").figure,
            f"ROC curves: true against false positive rates. {scores_text}",
            "ROC curves: true positive rate against false positive rate.",
        ),
        figure_html(
            evaluation.plot("calibration")[0].figure,  # [0]: all axes are in one figure
            (
                "Reliability diagrams: observed proportions against predicted probabilities, and "
                "histograms of the predictions."
            ),
            (
                "Calibration: on the diagonal, predicted probabilities match the observed "
                "proportions. Bars are 95 % intervals."
            ),
        ),
    ]
    tables = evaluation._summarise(min_count=MIN_CELL).as_html()
    return Part("Evaluation and calibration", html=[tables, *figures])
