"""The verb that averages classifiers, and the fits of `method="auto"`: `average`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bbl.api.machine.call import Call
from bbl.boltzmann.averaging import PREPARED_AS, Averaged, fit_average, out_of_fold, weigh
from bbl.boltzmann.convergence_warnings import problems, warn_problems
from bbl.boltzmann.prediction_checks import held_out_record, warn_record
from bbl.boltzmann.tuning import NFOLD
from bbl.capabilities import NOT_COUNTS, lacking
from bbl.checks import choice, generator, verb
from bbl.crossval import Scored, cross_validate, fold_log_shares, score_settings
from bbl.design.labels import Labels
from bbl.engines import ENGINES, Engine
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.parallel import n_workers, progress_bar
from bbl.results.classifier import ClassifierResults
from bbl.results.machine.fit import BBLResults
from bbl.results.together.average import NOT_CLASSIFIERS, AverageResults, member_advice
from bbl.results.together.cv import score_frame
from bbl.rows.folds import Folds, shuffled_folds
from bbl.rows.sample import Sample
from bbl.stats.loss_record import LossRecord

__all__ = ["AUTO", "average", "check_auto", "cross_auto", "fit_auto", "is_auto"]

AUTO = "auto"
MEMBERS = 3
SETTLED = "method='auto' chooses its settings itself"
IN_MEMORY = "method='auto' needs all rows in memory"
AUTO_REFUSALS = AverageResults.refusals | lacking(  # what method="auto" lacks beside what every average does
    tuning=SETTLED, gauge=SETTLED, third_order=PREPARED_AS.order_reason, real_weights=NOT_COUNTS,
    no_response="method='auto' averages classifiers", density="method='auto' averages classifiers",
    batches=IN_MEMORY, missing_marginal_batches=IN_MEMORY,
)  # fmt: skip
STRICTEST = ("raise", "drop")  # policies of missing values that an average takes from any member


def is_auto(method: object) -> bool:
    """Return whether `method` is "auto"; a name that is neither "auto" nor an engine's raises an OptionError."""
    return not isinstance(method, Engine) and choice("method", method, (*ENGINES, AUTO)) == AUTO


def check_auto(options: dict, calibrate: str, classes: bool) -> None:
    """Raise if `method="auto"` gets options, ``calibrate="offset"``, or a formula without classes."""
    if options:
        name = next(iter(options))
        raise BBLTypeError(
            f"{SETTLED}, so {name} is not its option; take a single method such as "
            "method='pseudo' with it, or give fits of your own to average().",
            argument=name,
        )
    if calibrate == "offset":
        raise OptionError("method='auto' calibrates by temperature; leave calibrate out.", argument="calibrate")
    if not classes:
        raise OptionError(
            f"{AUTO_REFUSALS['no_response']}, and the formula has no response; take method='pseudo'.", argument="method"
        )


def _average_results(
    text: str, call: Call, averaged: Averaged, priors: np.ndarray | None = None, record: LossRecord | None = None
) -> AverageResults:
    """Return an average as a result; `record` overrules its own log-loss of validated rows."""
    training = (text, call.design, call.rows, call.index)
    members = tuple(BBLResults(*training, member.engine, member.estimate, member.tuning) for member in averaged.members)
    record = averaged.log_loss if record is None else record
    return AverageResults(*training, members, averaged.weights, averaged.losses, priors=priors, stored_loss=record)


def fit_auto(text: str, call: Call, priors: np.ndarray | None, verbose: int) -> AverageResults:
    """Return the fit of a checked call with method="auto"; `priors` are checked class shares (K,)."""
    with progress_bar(MEMBERS * NFOLD, "auto", verbose) as step:
        averaged = fit_average(
            call.rows, call.design.labels, call.layout, log_z=call.log_z, workers=call.workers, rng=call.rng,
            progress=step,
        )  # fmt: skip
    labels = call.design.labels
    warn_problems([each for member in averaged.members for each in problems(member.estimate.fits, labels)], 4)
    warn_record(averaged.log_loss, 4)
    return _average_results(text, call, averaged, priors)


def cross_auto(
    text: str, call: Call, folds: Folds, score: str, refit: bool, verbose: int
) -> tuple[pd.DataFrame, Scored, AverageResults]:
    """Return the table of an average's cross-validated score, its scores of the validated rows, and its model."""
    labels = call.design.labels

    def fit(train: Sample, rng: np.random.Generator) -> list[Averaged]:
        return [fit_average(train, labels, call.layout, log_z=call.log_z, workers=1, rng=rng)]

    with progress_bar(len(folds), "crossVal", verbose) as step:
        rngs = [(stream,) for stream in call.rng.spawn(len(folds))]
        scored = cross_validate(call.rows, folds, fit, rngs, workers=call.workers, progress=step)
    table, _ = score_settings(scored, score)
    averaged = scored.fits[-1][0]
    if refit:
        averaged = fit_average(call.rows, labels, call.layout, log_z=call.log_z, workers=call.workers, rng=call.rng)
    record = held_out_record(scored, scored.scores[0], fold_log_shares(call.rows, folds, call.K), "")
    warn_record(record, 4)
    return score_frame(table, score, "setting", np.nan), scored, _average_results(text, call, averaged, record=record)


def _label_difference(a: Labels, b: Labels) -> str:
    """Return, as the end of a message, the first difference between the labels of two models and its remedy."""
    if a.names != b.names:
        return f"their predictors: {list(a.names)} and {list(b.names)}; give both the same formula."
    for name, levels, levels_b in zip(a.names, a.levels, b.levels, strict=True):
        if levels != levels_b:
            shown = list(levels)
            return f"the levels of {name!r}: {shown} and {list(levels_b)}; give both xlevels={{{name!r}: {shown}}}."
    return f"their groups: {list(a.groups)} of {a.response!r} and {list(b.groups)} of {b.response!r}."


def _check_members(members: tuple[Any, ...]) -> None:
    """Raise unless `members` are two or more classifiers of the same groups and predictors, with the same priors."""
    for member in members:
        if not isinstance(member, ClassifierResults):
            raise BBLTypeError(f"{NOT_CLASSIFIERS}; got {type(member).__name__}.", argument="fits")
    if len(members) < 2:
        raise OptionError("An average takes two fits or more.", argument="fits")
    first = members[0]
    for member in members:
        if member.labels != first.labels:
            raise OptionError(f"fits differ in {_label_difference(first.labels, member.labels)}", argument="fits")
        if not np.array_equal(member.priors, first.priors):
            raise OptionError(
                "fits differ in their priors. Average fit.with_priors(None) of each, and give the average priors by "
                "with_priors().",
                argument="fits",
            )


def _same_rows(a: Sample, b: Sample) -> bool:
    """Return whether two samples have equal codes, weights, responses and missing cells."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name)) for name in ("codes", "weights", "response", "missing")
    )


@verb
def average(
    fits: Sequence[ClassifierResults],
    weights: str = "cv",
    *,
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
) -> AverageResults:
    """Average fitted classifiers: their probabilities, with equal weights or those that predict left-out rows best.

    Parameters
    ----------
    fits : sequence of BBLResults, NetworkResults, ShooterResults or AverageResults
        Two or more, of the same response and predictors with the same levels in the same order (`xlevels` says it);
        pairs, methods and networks may differ. If they have `priors`, all have the same.
    weights : {"cv", "equal"}, default "cv"
        Convex weights that maximise the likelihood of the rows in 5 shuffled folds, for which every model is fitted
        again with its settings; or the same for all. Sparse regressions and averages are not fitted again.
    seed : int, numpy.random.Generator or None, default 0
        For the folds.
    n_jobs : int, optional
        Threads; results do not depend on it.

    Returns
    -------
    AverageResults
        With the `priors` of the fits: they take the place of the training rows' shares in the averaged probabilities,
        as `AverageResults.with_priors` puts them there. Where fits treat missing values differently, the average
        refuses them if one of the fits does, else it drops rows if one does.

    Raises
    ------
    BBLTypeError, OptionError
        If there are fewer than two, they are not of the same groups and predictors, or have different priors; or if a
        fit that is not fitted again is to be weighed by cross-validation.
    DataError
        If weights are to be found and models were saved without their training rows, or not fitted to the same ones.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fits = [bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method=m) for m in ("pseudo", "conditional")]
    >>> bbl.average(fits, "equal").tuning["weight"].tolist()
    [0.5, 0.5]
    """
    members = tuple(fits)
    choice("weights", weights, ("cv", "equal"))
    _check_members(members)
    first = members[0]
    call = f"average({', '.join(member.call.split('(')[0] for member in members)})"
    policies = [member.design.missing for member in members]
    policy = next((each for each in STRICTEST if each in policies), first.design.missing)
    parts = (call, replace(first.design, missing=policy), first.training, first.index, members)
    options: dict[str, Any] = {"priors": first.priors, "stored": first.stored}
    if weights == "equal":
        M = len(members)
        return AverageResults(*parts, np.full(M, 1.0 / M), np.full(M, np.nan), **options)
    rows = first._rows()
    for member in members:
        if not member._can_refit:
            raise OptionError(
                f"weights='cv' fits every model again to other rows, which {type(member).__name__} cannot; give "
                "weights='equal'.",
                argument="weights",
            )
        if not _same_rows(member._rows(), rows):
            raise DataError("fits were fitted to different rows; give weights='equal'.", argument="weights")
    rng, workers = generator(seed), n_workers(n_jobs)
    folds, log_p = shuffled_folds(rows, NFOLD, rng), []
    for member in members:

        def refit(train: Sample, rng: np.random.Generator, member: ClassifierResults = member) -> list[Any]:
            return [member._refit(train, rng)]

        scored = cross_validate(rows, folds, refit, [(stream,) for stream in rng.spawn(NFOLD)], workers=workers)
        log_p.append(out_of_fold(scored, member._traits.calibration))
    totals = first.class_shares * rows.total
    convex, losses, record = weigh(np.array(log_p), scored, totals, member_advice(members))
    warn_record(record, 4)
    return AverageResults(*parts, convex, losses, stored_loss=record, **options)
