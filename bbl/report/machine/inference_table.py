"""Tables of parameters with standard errors and tests: row names, summary and figure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.report.machine.summary import (
    Section,
    Summary,
    coefficient_section,
    sections_of_tests,
    shown_note,
)
from bbl.report.plot_coefficients import plot_coefficients
from bbl.report.text import distinct_names, label_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "absent",
    "inference_summary",
    "labelled",
    "parameter_names",
    "plot_table",
    "reference_condition",
    "slope_section",
]

MAX_PARAMETERS = 20  # rows in a printed summary
MAX_SLOPES = 20  # slopes in a printed summary
SLOPES_NOTE = (
    "Each coupling is a slope times the scores of its levels. To list the slopes, use "
    "fit.inference().slopes()."
)
MAX_REFERENCES = 12  # reference levels listed in a sentence
# in a printed summary, so that its columns fit side by side; smaller p keep more decimals
DECIMALS = 5


def parameter_names(table: pd.DataFrame) -> list[str]:
    """Return a name for each row: ``Sex=Female`` for a field, ``Sex=Female : Age=Child`` for a
    coupling, and the predictor's name for the slope of a numeric predictor.
    """
    names = [""] * len(table)
    for column in (c for c in table.columns if str(c).startswith("predictor")):
        levels = table[f"level{str(column).removeprefix('predictor')}"]
        for k, (name, level) in enumerate(zip(table[column], levels, strict=True)):
            if not absent(name):
                level_text = "" if absent(level) else f"={label_text(level)}"
                names[k] += (" : " if names[k] else "") + f"{label_text(name)}{level_text}"
    return names


def labelled(table: pd.DataFrame, columns: str | list[str]) -> Any:
    """Return one column of a table of parameters as a Series, or several as a DataFrame, indexed
    by group and parameter name.
    """
    # the rows of a group are contiguous and all groups have the same parameters, so that the names
    # are made from one group
    K = max(table["group"].nunique(), 1)  # 1: the table may be empty
    names = distinct_names(parameter_names(table.head(len(table) // K))) * K
    index = pd.MultiIndex.from_arrays([table["group"], names], names=["group", "parameter"])
    return table[columns].set_axis(index)


def absent(name: Hashable) -> bool:
    """Return whether a cell of a ``predictor`` column is empty because the row's term has fewer
    predictors.
    """
    return name is None or name is pd.NA or (isinstance(name, float) and np.isnan(name))


def inference_summary(table: pd.DataFrame, tests: pd.DataFrame, note: str, of: object) -> Summary:
    """Return the summary of the parameters with the smallest p-values and of the joint tests.

    `table` contains a row for each parameter, with its estimate, test and limits, and in the column
    ``unpenalised`` the estimate without a penalty. This column is shown if the penalty moves an
    estimate outside its limits. `tests` contains the joint tests, and `note` is the line below
    them. `of` specifies what was compared, as in `sections_of_tests`.
    """
    # sort by p; several p may be rounded to 0, and these are sorted by |z|, largest first
    # (`distance` is -|z|)
    # z, or t under a sampling design
    statistic = "t" if "t" in table else "z"
    sorted_table = table.assign(distance=-(table[statistic].abs())).sort_values(
        ["p", "distance"], kind="stable"
    )
    shown = sorted_table.head(MAX_PARAMETERS)
    groups = shown["group"].map(label_text).astype(str)
    index = [f"{g}: {name}" for g, name in zip(groups, parameter_names(shown), strict=True)]
    columns = {
        "estimate": "estimate",
        "se": "se",
        statistic: statistic,
        "p": f"Pr(>|{statistic}|)",
        "lower": "lower",
        "upper": "upper",
    }
    is_outside = (shown["estimate"] < shown["lower"]) | (shown["estimate"] > shown["upper"])
    if (is_outside & shown["unpenalised"].notna()).any():
        # inserted after se: a key keeps its first position
        columns = {"estimate": "estimate", "se": "se", "unpenalised": "no penalty"} | columns
    if shown[statistic].isna().all():  # exact tests have no such statistic
        del columns[statistic]
        columns["p"] = "p"
    cells = shown[list(columns)].rename(columns=columns).set_axis(pd.Index(index, dtype=object))
    cells = cells.round({name: DECIMALS for name in cells.columns if name != columns["p"]})
    cells = cells.assign(test=shown["test"].to_numpy())
    sections = [
        Section(f"Parameters{shown_note(shown, table)}", cells),
        *sections_of_tests(tests, of, note),
    ]
    table = table.drop(columns="unpenalised")
    tables = {"parameters": table, "tests": tests.drop(columns="odds_ratio")}
    return Summary(
        "Inference", facts={}, title="Estimates and tests:", sections=sections, tables=tables
    )


def slope_section(table: pd.DataFrame, names: list[str], classes: bool) -> Section:
    """Return the slopes with the smallest p-values as a section of the summary.

    `table` is the result of ``Inference.slopes()``, and `names` are the names of its rows for one
    group; `classes` indicates whether the model has a response.
    """
    statistic = "t" if "t" in table else "z"
    named = table.set_axis(pd.Index(names * (len(table) // max(len(names), 1)), dtype=object))
    if classes:
        groups = table["group"].map(label_text).astype(str)
        named.index = pd.Index(
            [f"{group}: {name}" for group, name in zip(groups, named.index, strict=True)]
        )
    # by position, because rows may have equal names
    order = np.argsort(named["p"].fillna(np.inf).to_numpy(), kind="stable")[:MAX_SLOPES]
    shown = named.iloc[np.sort(order)]
    columns = {
        "Estimate": "estimate",
        "Std. Error": "se",
        statistic: statistic,
        f"Pr(>|{statistic}|)": "p",
    }
    cells = pd.DataFrame({title: shown[name] for title, name in columns.items()})
    return coefficient_section(cells, f"Slopes theta{shown_note(shown, named)}", SLOPES_NOTE)


def reference_condition(labels: Labels, layout: Layout) -> str:
    """Return the sentence that lists the reference levels at which the fields of interacting
    predictors apply. The text is empty if there are no interactions.
    """
    interacting = np.unique(layout.pairs).tolist()
    if not interacting:
        return ""
    references = [
        f"{label_text(labels.names[i])}={label_text(labels.levels[i][0])}" for i in interacting
    ]
    rest = f" and {len(references) - MAX_REFERENCES} more" * (len(references) > MAX_REFERENCES)
    return (
        "A predictor's fields and their tests apply when the predictors it interacts with are at "
        f"their reference levels: {', '.join(references[:MAX_REFERENCES])}{rest}. They are not "
        "average effects."
    )


def plot_table(table: pd.DataFrame, pairs: bool, level: float, ax: Axes | None = None) -> Axes:
    """Draw a table's fields, or with `pairs` its couplings, with intervals of this `level`; return
    the Axes.

    Raises an OptionError if there are none.
    """
    is_coupling = ~table["predictor2"].map(absent).to_numpy(dtype=bool)
    shown = table[is_coupling == pairs]
    if not len(shown):
        raise OptionError(
            "The model has no couplings, so there is nothing to plot."
            if pairs
            else "The model has no fields, so there is nothing to plot.",
            argument="pairs",
            hint="Omit the pairs argument to plot fields."
            if pairs
            else "Use the plot() method of the fit, which shows numeric predictors.",
        )
    groups = list(dict.fromkeys(table["group"]))
    names = parameter_names(shown[(shown["group"] == groups[0]).to_numpy()])
    # estimates and limits, (groups, parameters)
    numbers = (
        shown[c].to_numpy(float).reshape(len(groups), len(names))
        for c in ("estimate", "lower", "upper")
    )
    kind = "Coupling" if pairs else "Field"
    return plot_coefficients(
        names, groups, *numbers, title=f"{kind} with its {100 * level:g} % interval", ax=ax
    )
