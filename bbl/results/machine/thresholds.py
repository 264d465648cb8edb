"""Thresholds of a fit to an ordered response: estimates and names."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.report.text import label_text

__all__ = ["threshold_contrasts", "thresholds"]


def threshold_contrasts(estimate: Estimate, engine: Engine) -> np.ndarray:
    """Return the matrix (k - 1, K) that maps the intercepts of all K groups to thresholds.

    k is the number of groups with rows. See `bbl.engines.conditional.ordinal_logits`.
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
    values = threshold_contrasts(estimate, engine) @ intercepts
    return pd.Series(
        values, index=pd.Index(_names(estimate, labels), dtype=object), name="threshold"
    )
