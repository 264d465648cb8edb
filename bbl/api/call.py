"""What the verbs share: a call's arguments checked, its data encoded, its engine made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import announce_terms
from bbl.boltzmann.tuning import RULES
from bbl.checks import arguments, choice, flag, generator
from bbl.design.design import Design
from bbl.design.frames import to_frame
from bbl.engines import Engine, engine_class, make_engine
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.logz import LOG_Z
from bbl.parallel import n_workers
from bbl.report.text import call_text
from bbl.rows.folds import Folds, splitter_folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import CALIBRATE

__all__ = ["Call", "data_folds", "pop_rule", "prepare", "shown_call"]


@dataclass(frozen=True)
class Call:
    """A call of a verb that fits: what is fitted to what, and how.

    Attributes
    ----------
    design : Design
    sample : Sample
        The encoded rows that are kept, with `index` as their labels.
    index : pandas.Index
    engine : Engine
    layout : Layout
        Of the formula's terms.
    log_z, calibrate : str
    workers : int
    rng : numpy.random.Generator
    """

    design: Design
    sample: Sample
    index: pd.Index
    engine: Engine
    layout: Layout
    log_z: str
    calibrate: str
    workers: int
    rng: np.random.Generator

    @property
    def K(self) -> int:
        """Number of groups."""
        return len(self.design.labels.groups)

    @property
    def common(self) -> dict[str, Any]:
        """What estimation, tuning and validation are all told."""
        return {"log_z": self.log_z, "workers": self.workers, "rng": self.rng}


def prepare(
    verb: Callable,
    formula: str,
    data: Any,
    weights: Any,
    method: str | Engine,
    options: dict,
    *,
    xlevels: dict | None,
    novarOk: bool,
    missing: str,
    log_z: str,
    extra: int = 0,
    **more: Any,
) -> Call:
    """Check what the verbs have in common, encode the data and make the engine; `verb` names its own arguments.

    `extra` is the number of fits beside those of the groups; `more` are `calibrate`, `seed` and `n_jobs`.
    """
    choice("log_z", log_z, LOG_Z)
    calibrate = choice("calibrate", more["calibrate"], CALIBRATE)
    workers, rng = n_workers(more["n_jobs"]), generator(more["seed"])
    engine = make_engine(method, options, arguments(verb))
    announce = partial(announce_terms, engine=engine, workers=min(workers, 2 + extra), extra=extra)
    flag("novarOk", novarOk)
    order = None if engine.order == 1 else engine.order  # fields alone are fitted whatever terms a formula names
    given = (formula, data, weights, xlevels, novarOk, missing, announce)
    whole = engine.weights == "counts"
    takes: dict[str, Any] = {"reason": engine.order_reason, "whole": whole, "one_sided": True}
    design, sample, index = Design.from_data(*given, order=order, **takes)
    if calibrate != "none" and not design.classes:
        raise OptionError(
            f"calibrate={calibrate!r} corrects the probabilities of classes, and {formula!r} has no response; leave it "
            "out, or give a response.",
            argument="calibrate",
        )
    layout = Layout(design.n_levels, None if design.terms.complete else design.terms.terms)
    return Call(design, sample, index, engine, layout, log_z, calibrate, workers, rng)


def pop_rule(method: str | Engine, options: dict) -> str | None:
    """Take a rule (``lambda_="cv"``, ``eps="cv"``) out of the options."""
    tuned = engine_class(method).tuned
    if tuned is None or not isinstance(options.get(tuned.option), str):
        return None
    name = tuned.option
    if options[name] in tuned.rules:
        return None
    if options[name] not in RULES:
        known = ", ".join(map(repr, dict.fromkeys((*tuned.rules, *RULES))))
        raise OptionError(f"{name}={options[name]!r} is unknown; give a number, or one of {known}.", argument=name)
    return options.pop(name)


def shown_call(
    verb: str, formula: str, weights: Any, method: str | Engine, options: dict, **others: tuple[Any, Any]
) -> str:
    """Return a call as text: the options of the method, and of other arguments (value, default) those that differ."""
    shown: dict[str, Any] = {"formula": formula, "data": "data"}
    if weights is not None:
        shown["weights"] = weights if isinstance(weights, str) else "weights"
    if method != "pseudo":
        shown["method"] = method if isinstance(method, str) else type(method).__name__
    shown |= options | {name: value for name, (value, default) in others.items() if value != default}
    return call_text(verb, shown)


def data_folds(cv: Any, data: Any, design: Design, sample: Sample, kept: np.ndarray) -> Folds:
    """Return the folds of `cv`, whose positions are those of the rows of `data`, for the rows that are kept."""
    if isinstance(cv, int | np.integer):
        raise OptionError(f"cv={cv} is no splitter; for {cv} folds give nfold={cv}.", argument="cv")
    frame = to_frame(data)
    weights = np.zeros(frame.n)
    weights[kept] = sample.weights
    table = data if hasattr(data, "shape") else pd.DataFrame({name: frame.column(name).array for name in frame.columns})
    folds = splitter_folds(cv, table, design.groups(frame), weights)
    return Folds(folds.train[:, kept], folds.held[:, kept])
