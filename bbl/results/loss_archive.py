"""The log-loss that a classifier knows as what the model file holds, and back."""

from __future__ import annotations

import dataclasses

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.prediction_checks import remedy
from bbl.boltzmann.tuning import Tuning
from bbl.stats.loss_record import HELD_OUT, LossRecord, shares_loss

__all__ = ["pack_loss", "unpack_loss", "unpack_tuned_loss"]


def pack_loss(record: LossRecord | None, tuned: bool = False) -> dict[str, dict | None]:
    """Return the log-loss that a model knows, if it knows one, as an entry of its dict.

    A `tuned` model without one has an entry None, because files of earlier versions have none although it is known.
    """
    if record is None:
        return {"log_loss": None} if tuned else {}
    return {"log_loss": dataclasses.asdict(record)}


def unpack_loss(meta: dict) -> LossRecord | None:
    """Return the log-loss of `pack_loss`, after checking it."""
    if meta.get("log_loss") is None:
        return None
    record = LossRecord(**meta["log_loss"])
    numbers, words = (record.loss, record.baseline), (record.rows, record.remedy)
    if not all(type(v) is float and v >= 0.0 for v in numbers) or not all(type(word) is str for word in words):
        raise ValueError("its log-loss is not as saved")
    return record


def unpack_tuned_loss(meta: dict, tuning: Tuning | None, estimate: Estimate) -> LossRecord | None:
    """Return the log-loss that the file has; earlier versions stored that of a tuning alone, without the shares'."""
    if "log_loss" in meta or tuning is None:
        return unpack_loss(meta)
    loss, calibrate = float(tuning.loss[tuning.chosen]), "none" if estimate.calibration is None else "temperature"
    return LossRecord(loss, shares_loss(estimate.class_prior), HELD_OUT, remedy(calibrate, auto=False))
