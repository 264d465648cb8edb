"""Thresholds and effects of a fit to an ordered response, as tables and sections of a summary."""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.report.machine.inference_table import parameter_names
from bbl.report.machine.summary import Section, coefficient_section, sections_of_tests
from bbl.results.machine.estimate_tables import estimate_table
from bbl.results.machine.inference import Inference
from bbl.results.machine.thresholds import thresholds

__all__ = ["coefficient_sections", "untested_sections"]

MEANING = {
    "adjacent": "ln P({high}) / P({low}) = threshold + effects, for each pair of adjacent groups.",
    "cumulative": "ln P(y <= group) / P(y > group) = threshold - effects.",
}


def _first_effects(frame: pd.DataFrame, estimate: Estimate, labels: Labels) -> pd.DataFrame:
    """Return the rows of the first group after the reference group, which contain the effects."""
    groups = np.flatnonzero(estimate.class_prior > 0.0)
    return frame[frame["group"] == labels.groups[groups[min(1, len(groups) - 1)]]]


def _note(engine: Engine) -> str:
    """Return a sentence that explains the meaning of thresholds and effects."""
    logits = cast(str, vars(engine)["logits"])
    return MEANING[logits].format(low="group", high="next group")


def untested_sections(estimate: Estimate, engine: Engine, labels: Labels) -> list[Section]:
    """Return thresholds and effects without standard errors, for a fit with a penalty."""
    frame = estimate_table(labels, estimate.parameters, "group")
    effects = _first_effects(frame, estimate, labels)
    values = thresholds(estimate, engine, labels)
    return [
        coefficient_section(pd.DataFrame({"Estimate": values}), "Thresholds"),
        coefficient_section(
            pd.DataFrame(
                {"Estimate": effects["estimate"].to_numpy()},
                index=pd.Index(parameter_names(effects), dtype=object),
            ),
            "Effects",
            _note(engine),
        ),
    ]


def coefficient_sections(
    inference: Inference, estimate: Estimate, engine: Engine, labels: Labels
) -> list[Section]:
    """Return thresholds, effects and tests of the terms as sections of the summary."""
    statistic = inference.statistic
    columns = {
        "Estimate": "estimate",
        "Std. Error": "se",
        statistic: statistic,
        f"Pr(>|{statistic}|)": "p",
    }
    own = inference.thresholds()
    threshold_table = own[list(columns.values())].set_axis(list(columns), axis=1)
    effects = _first_effects(inference.table(), estimate, labels)
    effect_table = pd.DataFrame(
        {title: effects[name].to_numpy(float) for title, name in columns.items()},
        index=pd.Index(parameter_names(effects), dtype=object),
    )
    sections = [
        coefficient_section(threshold_table, "Thresholds"),
        coefficient_section(effect_table, "Effects", _note(engine)),
    ]
    groups = [labels.groups[g] for g in np.flatnonzero(estimate.class_prior > 0.0)]
    of = (groups[1], groups[0])
    return sections + sections_of_tests(inference.summary_tests(of), of, inference.note)
