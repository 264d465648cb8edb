"""Thresholds and effects of a fit to an ordered response, as tables and sections of a summary."""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.report.machine.inference_table import parameter_names
from bbl.report.machine.summary import Section, coefficient_section, test_sections
from bbl.report.text import label_text
from bbl.results.machine.estimate_tables import estimate_table
from bbl.results.machine.inference import Inference
from bbl.stats.student import two_sided_p

__all__ = ["coefficient_sections", "thresholds", "untested_sections"]

MEANING = {
    "adjacent": "ln P({high}) / P({low}) = threshold + effects, for each pair of adjacent groups.",
    "cumulative": "ln P(y <= group) / P(y > group) = threshold - effects.",
}


def _contrasts(estimate: Estimate, engine: Engine) -> np.ndarray:
    """Return the matrix (k - 1, K) that maps intercepts of all groups to thresholds.

    k groups have rows; see `bbl.engines.conditional.ordinal_logits`.
    """
    groups = np.flatnonzero(estimate.class_prior > 0.0)
    out = np.zeros((max(len(groups) - 1, 0), len(estimate.class_prior)))
    for position, (low, high) in enumerate(zip(groups[:-1], groups[1:], strict=True)):
        if engine.cumulative:
            out[position, high] = -1.0
        else:
            out[position, high] = 1.0
            out[position, low] -= float(position > 0)
    return out


def _names(estimate: Estimate, labels: Labels) -> list[str]:
    """Return the names of the thresholds, such as ``Low|Medium``."""
    groups = [label_text(labels.groups[g]) for g in np.flatnonzero(estimate.class_prior > 0.0)]
    return [f"{low}|{high}" for low, high in zip(groups[:-1], groups[1:], strict=True)]


def thresholds(estimate: Estimate, engine: Engine, labels: Labels) -> pd.Series:
    """Return the thresholds between adjacent groups with rows."""
    intercepts = estimate.coefficients[:, 0]
    groups = np.flatnonzero(estimate.class_prior > 0.0)
    if len(groups):
        intercepts = intercepts - intercepts[groups[0]]
    values = _contrasts(estimate, engine) @ intercepts
    return pd.Series(
        values, index=pd.Index(_names(estimate, labels), dtype=object), name="threshold"
    )


def _first_effects(frame: pd.DataFrame, estimate: Estimate, labels: Labels) -> pd.DataFrame:
    """Return the rows of the first group after the reference, whose parameters are the effects."""
    groups = np.flatnonzero(estimate.class_prior > 0.0)
    return frame[frame["group"] == labels.groups[groups[min(1, len(groups) - 1)]]]


def _note(engine: Engine) -> str:
    """Return a line on the meaning of thresholds and effects."""
    logits = cast(str, vars(engine)["logits"])
    return MEANING[logits].format(low="group", high="next group")


def untested_sections(estimate: Estimate, engine: Engine, labels: Labels) -> list[Section]:
    """Return thresholds and effects without standard errors, for a fit with a penalty."""
    frame = estimate_table(labels, estimate.parameters, "group")
    effects = _first_effects(frame, estimate, labels)
    return [
        Section(
            heading,
            pd.DataFrame({"Estimate": values}, index=pd.Index(names, dtype=object)),
            note,
        )
        for heading, values, names, note in (
            (
                "Thresholds",
                thresholds(estimate, engine, labels).to_numpy(),
                _names(estimate, labels),
                "",
            ),
            (
                "Effects",
                effects["estimate"].to_numpy(),
                parameter_names(effects),
                _note(engine),
            ),
        )
    ]


def coefficient_sections(
    inference: Inference, estimate: Estimate, engine: Engine, labels: Labels
) -> list[Section]:
    """Return thresholds, effects and tests of the terms as sections of the summary."""
    values = thresholds(estimate, engine, labels)
    contrasts = _contrasts(estimate, engine)
    with np.errstate(divide="ignore", invalid="ignore"):
        se = np.sqrt(np.diag(contrasts @ inference._intercept_covariance() @ contrasts.T))
        statistic = values.to_numpy() / se
    title = inference.statistic
    threshold_table = pd.DataFrame(
        {
            "Estimate": values.to_numpy(),
            "Std. Error": se,
            title: statistic,
            f"Pr(>|{title}|)": two_sided_p(statistic, inference._df),
        },
        index=values.index,
    )
    effects = _first_effects(inference.table(), estimate, labels)
    columns = {"Estimate": "estimate", "Std. Error": "se", title: title, f"Pr(>|{title}|)": "p"}
    effect_table = pd.DataFrame(
        {shown: effects[name].to_numpy(float) for shown, name in columns.items()},
        index=pd.Index(parameter_names(effects), dtype=object),
    )
    sections = [
        coefficient_section(threshold_table, "Thresholds"),
        coefficient_section(effect_table, "Effects", _note(engine)),
    ]
    groups = [labels.groups[g] for g in np.flatnonzero(estimate.class_prior > 0.0)]
    of = (groups[1], groups[0])
    return sections + test_sections(inference.summary_tests(of), of, inference.note)
