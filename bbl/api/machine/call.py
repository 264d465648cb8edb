"""What the verbs share: a call's arguments checked, its data encoded, its engine made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd

from bbl.boltzmann.averaging import PREPARED_AS
from bbl.boltzmann.cost_limits import announce_terms
from bbl.boltzmann.prediction_checks import held_out_record, remedy
from bbl.boltzmann.tuning import RULES, Tuning
from bbl.checks import arguments, choice, flag, generator
from bbl.crossval import calibrated
from bbl.design.design import Design
from bbl.design.formula import check_formula
from bbl.design.frames import to_frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.dask_passes import passes
from bbl.design.streams.passes import encode_source
from bbl.design.streams.source import Source
from bbl.engines import DEFAULT, ENGINES, Engine, engine_class, make_engine
from bbl.errors import DataWarning, OptionError
from bbl.memory import out_of_memory
from bbl.model.layout import Layout
from bbl.model.logz import LOG_Z
from bbl.parallel import n_workers, progress_bar
from bbl.report.text import call_text
from bbl.results.model import Training
from bbl.rows.counts import level_counts
from bbl.rows.dealing import AnyFolds, Deal
from bbl.rows.folds import Folds, WeightedFold, splitter_folds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample
from bbl.stats.calibration import CALIBRATE
from bbl.stats.loss_record import LossRecord

__all__ = ["Call", "check_streams", "data_folds", "in_memory", "pop_rule", "prepare", "shown_call"]

READ = "Formula and levels of the data"
NO_COUNTS = (
    "weights are not all whole numbers, so they are no counts: there are no standard errors, tests and "
    "bootstrap, and in cross-validation each row stays in one fold. Penalties go by shares of the weights, "
    "prior counts by their sum, which is best the number of rows. If they were meant as counts, round them."
)
ENCODED = "Use fewer rows or columns, or give a file, which is read in batches."
FEWER = "Use fewer predictors or levels, or a formula with fewer interactions."


@dataclass(frozen=True)
class Call:
    """A call of a verb that fits: what is fitted to what, and how.

    Attributes
    ----------
    design : Design
    sample : Sample or StoredSample
        The encoded rows that are kept, with `index` as their labels.
    index : pandas.Index or None
        None of data that were read in batches: their rows are not kept.
    engine : Engine
    layout : Layout
        Of the formula's terms.
    log_z, calibrate : str
    workers : int
    rng : numpy.random.Generator
    """

    design: Design
    sample: Rows
    index: pd.Index | None
    engine: Engine
    layout: Layout
    log_z: str
    calibrate: str
    workers: int
    rng: np.random.Generator
    folds: AnyFolds | None = None  # of data that were read in batches

    @property
    def K(self) -> int:
        """Number of groups."""
        return len(self.design.labels.groups)

    @property
    def common(self) -> dict[str, Any]:
        """What estimation, tuning and validation are all told."""
        return {"log_z": self.log_z, "workers": self.workers, "rng": self.rng}

    @property
    def training(self) -> Sample | None:
        """The rows that a fitted model brings along; none of data that were read in batches."""
        return None if self.index is None else self.rows

    @property
    def rows(self) -> Sample:
        """The rows, where nothing but rows in memory comes this far."""
        return cast(Sample, self.sample)

    @property
    def advice(self) -> str:
        """What lowers a log-loss above that of the shares of the groups."""
        auto = self.index is not None and self.rows.whole and self.layout.order <= PREPARED_AS.order
        return remedy(self.calibrate, auto)

    def held_out(self, tuning: Tuning | None) -> LossRecord | None:
        """Return the out-of-fold log-loss of a fit with classes that was tuned or calibrated."""
        if tuning is None or tuning.scored is None or self.K == 1:
            return None
        scored = tuning.scored
        scores = calibrated(scored, scored.scores[0], self.calibrate)
        totals = np.array([self.sample.group(y).total for y in range(self.K)])
        return held_out_record(scored, scores, scored.log_shares(totals), self.advice)

    def with_training_summary(self, fit: Any) -> Any:
        """Return a fitted model with summaries of the training rows, if it does not store them."""
        if self.index is not None:
            return fit
        rows, K = self.sample, self.K
        likelihood = np.nan if self.engine.joint else fit.log_likelihood(rows)
        nobs = round(rows.total) if rows.whole else rows.total
        return replace(fit, stored=Training(nobs, likelihood, level_counts(rows, self.design.n_levels, K)))

    def left(self, folds: AnyFolds) -> Call:
        """Return the call of the rows that the last fold is trained on."""
        last = folds.one(len(folds) - 1)
        index = self.index[last.train > 0] if isinstance(last, WeightedFold) and self.index is not None else None
        return replace(self, sample=last.training(self.sample), index=index)


def in_memory(data: Any, what: str, argument: str) -> None:
    """Raise an OptionError if `data`, for which `what` needs all rows in memory, are read in batches."""
    source = lazy_source(data)
    if source is not None:
        raise OptionError(
            f"{what} needs all rows in memory, and {source.text} are read in batches. Give a table, of a random sample "
            "of the rows if they are too many.",
            argument=argument,
        )


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
    extra: int = 0,
    deal: Callable[[Engine, np.random.Generator], Deal | None] | None = None,
    counts: bool = False,
    **more: Any,
) -> Call:
    """Check what the verbs have in common, encode the data and make the engine; `verb` names its own arguments.

    `extra` is the number of fits beside those of the groups, and `deal` tells the folds that data read in batches are
    dealt to. With `counts`, weights have to be counts whatever the method is; `more` are `log_z`, `calibrate`, `seed`,
    `n_jobs`, `verbose` and `client`.
    """
    check_formula(formula)
    log_z, calibrate = choice("log_z", more["log_z"], LOG_Z), choice("calibrate", more["calibrate"], CALIBRATE)
    workers, rng = n_workers(more["n_jobs"]), generator(more["seed"])
    engine = make_engine(method, options, arguments(verb))
    announce = partial(announce_terms, engine=engine, workers=min(workers, 2 + extra), extra=extra)
    flag("novarOk", novarOk)
    order = None if engine.order == 1 else engine.order  # fields alone are fitted whatever terms a formula names
    needs_counts = counts or engine.weights == "counts"
    takes: dict[str, Any] = {"order": order, "reason": engine.order_reason, "whole": needs_counts, "one_sided": True}
    source, folds = lazy_source(data), None
    takes["sums_out"] = f"missing_marginal{'' if source is None else '_batches'}" not in engine.refusals()
    cluster = passes(source, more.get("client"))
    rows: Rows
    index: pd.Index | None = None
    if source is None:
        with out_of_memory("Formula and codes of the rows", ENCODED):
            design, rows, index = Design.from_data(formula, data, weights, xlevels, novarOk, missing, announce, **takes)
    else:
        check_streams(engine, source, missing)
        announce = partial(announce, stored=True)
        reading_options: dict[str, Any] = {
            **takes,
            "deal": None if deal is None else deal(engine, rng),
            "cluster": cluster,
        }
        with progress_bar(None, "reading", more["verbose"]) as step, out_of_memory(READ, FEWER):
            encoded = encode_source(
                source, formula, weights, xlevels, novarOk, missing, announce, step=step, **reading_options
            )
        design, rows, folds = encoded.design, encoded.sample, encoded.folds
    if calibrate != "none" and not design.classes:
        raise OptionError(
            f"calibrate={calibrate!r} corrects the probabilities of classes, and {formula!r} has no response; leave it "
            "out, or give a response.",
            argument="calibrate",
        )
    if engine.solves and not rows.whole:
        warnings.warn(NO_COUNTS, DataWarning, stacklevel=3)
    with out_of_memory("A list of the pairs of the formula", FEWER):
        layout = Layout(design.n_levels, None if design.terms.complete else design.terms.terms)
    return Call(design, rows, index, engine, layout, log_z, calibrate, workers, rng, folds)


def check_streams(engine: Engine, source: Source, missing: str) -> None:
    """Raise an OptionError if a method cannot go over data that are read in batches."""
    if not engine.streams:
        streaming_methods = ", ".join(repr(name) for name, engine_type in ENGINES.items() if engine_type.streams)
        raise OptionError(
            f"{engine.refusals()['batches']}, and {source.text} are read in batches. Take one of {streaming_methods}, "
            "or give a table of a random sample of the rows.",
            argument="method",
        )
    if missing == "marginal" and engine.needs == "neighbours":
        raise OptionError(
            f"{engine.refusals()['missing_marginal_batches']}, and {source.text} are read in batches. Take "
            "method='mf', or missing='level' or 'drop'.",
            argument="missing",
        )


def pop_rule(method: str | Engine, options: dict) -> str | None:
    """Take a rule (``lambda_="cv"``, ``eps="cv"``) out of the options."""
    tuned = engine_class(method).tuned
    if tuned is None or not isinstance(options.get(tuned.option), str):
        return None
    name = tuned.option
    if options[name] in tuned.rules:
        return None
    if options[name] not in RULES:
        rule_names = ", ".join(map(repr, dict.fromkeys((*tuned.rules, *RULES))))
        raise OptionError(f"{name}={options[name]!r} is unknown; give a number, or one of {rule_names}.", argument=name)
    return options.pop(name)


def shown_call(
    verb: str, formula: str, weights: Any, method: str | Engine, options: dict, **others: tuple[Any, Any]
) -> str:
    """Return a call as text: the options of the method, and of other arguments (value, default) those that differ."""
    shown: dict[str, Any] = {"formula": formula, "data": "data"}
    if weights is not None:
        shown["weights"] = weights if isinstance(weights, str) else "weights"
    if method != DEFAULT:
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
