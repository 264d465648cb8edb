"""What prints and summaries say of a classifier: its priors, its log-loss, and what lowers it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from textwrap import fill

import numpy as np

from bbl.boltzmann.prediction_checks import training_rows
from bbl.design.design import Design
from bbl.report.format import WIDTH
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.loss_record import HELD_OUT, LossRecord

__all__ = ["loss_facts", "loss_text", "priors_facts", "remedy", "scored_rows", "verdict"]


def verdict(record: LossRecord | None) -> str:
    """Return the warning about a log-loss above that of the shares of the groups; empty if it is not."""
    return "" if record is None else record.verdict


def remedy(record: LossRecord | None, advice: str) -> str:
    """Return what lowers the log-loss, as a sentence: `advice` where the loss is unknown; empty if nothing is known."""
    return advice if record is None else record.remedy


def loss_facts(record: LossRecord | None) -> dict[str, str]:
    """Return the summary's line on the log-loss, by its title."""
    return {} if record is None else {"Log-loss": record.verdict or str(record)}


def loss_text(record: LossRecord | None) -> str:
    """Return the printed paragraph on the log-loss; empty on training rows unless it exceeds that of the shares."""
    if record is None or (record.rows != HELD_OUT and record.loss <= record.baseline):
        return ""
    return f"\n\n{fill(f'Log-loss: {record.verdict or record}', WIDTH, break_on_hyphens=False)}"


def priors_facts(groups: Sequence[Hashable], priors: np.ndarray | None) -> dict[str, str]:
    """Return the summary's line on the priors, by its title; empty without priors."""
    if priors is None:
        return {}
    return {"Priors": ", ".join(f"{g}: {p:.4g}" for g, p in zip(groups, priors, strict=True))}


def scored_rows(rows: Rows, design: Design) -> tuple[Sample, bool]:
    """Return the training rows, or a sample of very many, and whether these are all rows."""
    n_levels, K = design.n_levels, len(design.labels.groups)
    return training_rows(rows, n_levels, K, K * (1.0 + len(n_levels)))
