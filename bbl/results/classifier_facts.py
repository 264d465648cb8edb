"""Text for printed classifiers and their summaries: priors, log-loss, and advice for lowering
it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from bbl.boltzmann.prediction_checks import training_rows
from bbl.design.design import Design
from bbl.report.text import fill
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.metrics import HELD_OUT, LossRecord

__all__ = ["loss_facts", "loss_text", "priors_facts", "remedy", "scored_rows", "verdict"]


def verdict(record: LossRecord | None) -> str:
    """Return the warning about a log-loss above the baseline.

    It is empty if the log-loss is not above the baseline or is unknown (None).
    """
    return "" if record is None else record.verdict


def remedy(record: LossRecord | None, advice: str) -> str:
    """Return advice for lowering the log-loss, as a sentence or an empty string.

    If the log-loss is unknown (None), `advice` is returned.
    """
    return advice if record is None else record.remedy


def loss_facts(record: LossRecord | None) -> dict[str, str]:
    """Return the summary line on the log-loss as a dict by title. The dict is empty if the log-loss
    is unknown.
    """
    return {} if record is None else {"Log-loss": record.verdict or str(record)}


def loss_text(record: LossRecord | None) -> str:
    """Return the printed paragraph on the log-loss.

    For training rows, it is empty unless the log-loss exceeds the baseline.
    """
    # `record.rows` is HELD_OUT for the held-out rows of a cross-validation, else it describes the
    # training rows
    if record is None or (record.rows != HELD_OUT and record.loss <= record.baseline):
        return ""
    return f"\n\n{fill(f'Log-loss: {record.verdict or record}')}"


def priors_facts(groups: Sequence[Hashable], priors: np.ndarray | None) -> dict[str, str]:
    """Return the summary line on the priors as a dict by title, which is empty if the model has no
    priors.
    """
    if priors is None:
        return {}
    return {"Priors": ", ".join(f"{g}: {p:.4g}" for g, p in zip(groups, priors, strict=True))}


def scored_rows(rows: Rows, design: Design) -> tuple[Sample, bool]:
    """Return the training rows to score and whether these are all training rows.

    If there are very many training rows, a sample is scored.
    """
    n_levels = design.n_levels
    K = len(design.labels.groups)
    # cost of scoring a row, in numbers looked up: a constant and one for each predictor in every
    # group
    return training_rows(rows, n_levels, K, cost=K * (1.0 + len(n_levels)))
