"""Pack the log-loss of a classifier into the dict of a model file, and unpack it."""

from __future__ import annotations

import dataclasses

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.prediction_checks import remedy
from bbl.boltzmann.tuning import Tuning
from bbl.stats.loss_record import HELD_OUT, LossRecord, shares_loss

__all__ = ["pack_loss", "unpack_loss", "unpack_tuned_loss"]


def pack_loss(record: LossRecord | None, tuned: bool = False) -> dict[str, dict | None]:
    """Return the entry of the dict that holds a log-loss; no entry without a log-loss, or None for a `tuned` model.

    A tuned model needs an entry: `unpack_tuned_loss` takes a missing one for a file of an earlier version.
    """
    if record is None:
        return {"log_loss": None} if tuned else {}
    return {"log_loss": dataclasses.asdict(record)}


def unpack_loss(meta: dict) -> LossRecord | None:
    """Return the log-loss that `pack_loss` stored, or None; a ValueError if it has wrong types or negative numbers."""
    if meta.get("log_loss") is None:
        return None
    record = LossRecord(**meta["log_loss"])
    losses, texts = (record.loss, record.baseline), (record.rows, record.remedy)
    if not all(type(loss) is float and loss >= 0.0 for loss in losses) or not all(type(text) is str for text in texts):
        raise ValueError("its log-loss is not as saved")
    return record


def unpack_tuned_loss(meta: dict, tuning: Tuning | None, estimate: Estimate) -> LossRecord | None:
    """Return the log-loss in a file, or from the tuning if an earlier version wrote the file without a log-loss."""
    if "log_loss" in meta or tuning is None:
        return unpack_loss(meta)
    loss, calibration = float(tuning.loss[tuning.chosen]), "none" if estimate.calibration is None else "temperature"
    return LossRecord(loss, shares_loss(estimate.class_prior), HELD_OUT, remedy(calibration, auto=False))
