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
    """Return whether `method` names the average; a name of neither it nor an engine is an error."""
    return not isinstance(method, Engine) and choice("method", method, (*ENGINES, AUTO)) == AUTO


def check_auto(options: dict, calibrate: str, classes: bool) -> None:
    """Raise where `method="auto"` is given what it has no use for."""
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
            f"{AUTO_REFUSALS['no_response']}, and the formula has no response; take method='pseudo'.",
            argument="method",
        )


def _wrapped(
    text: str, call: Call, found: Averaged, shares: np.ndarray | None = None, record: LossRecord | None = None
) -> AverageResults:
    training = (text, call.design, call.rows, call.index)
    members = tuple(BBLResults(*training, member.engine, member.estimate, member.tuning) for member in found.members)
    record = found.log_loss if record is None else record
    return AverageResults(*training, members, found.weights, found.losses, priors=shares, stored_loss=record)


def fit_auto(text: str, call: Call, shares: np.ndarray | None, verbose: int) -> AverageResults:
    """Fit the average that a checked call asks for."""
    with progress_bar(MEMBERS * NFOLD, "auto", verbose) as step:
        averaged = fit_average(
            call.rows, call.design.labels, call.layout, log_z=call.log_z, workers=call.workers, rng=call.rng,
            progress=step,
        )  # fmt: skip
    labels = call.design.labels
    warn_problems([each for member in averaged.members for each in problems(member.estimate.fits, labels)], 4)
    warn_record(averaged.log_loss, 4)
    return _wrapped(text, call, averaged, shares)


def cross_auto(
    text: str, call: Call, folds: Folds, score: str, refit: bool, verbose: int
) -> tuple[pd.DataFrame, Scored, AverageResults]:
    """Cross-validate the average; return the table of its score, its pooled predictions and the model."""
    labels = call.design.labels

    def fit(train: Sample, own: np.random.Generator) -> list[Averaged]:
        return [fit_average(train, labels, call.layout, log_z=call.log_z, workers=1, rng=own)]

    with progress_bar(len(folds), "crossVal", verbose) as step:
        rngs = [(stream,) for stream in call.rng.spawn(len(folds))]
        scored = cross_validate(call.rows, folds, fit, rngs, workers=call.workers, progress=step)
    table, _ = score_settings(scored, score)
    averaged = scored.fits[-1][0]
    if refit:
        averaged = fit_average(call.rows, labels, call.layout, log_z=call.log_z, workers=call.workers, rng=call.rng)
    record = held_out_record(scored, scored.scores[0], fold_log_shares(call.rows, folds, call.K), "")
    warn_record(record, 4)
    return score_frame(table, score, "setting", np.nan), scored, _wrapped(text, call, averaged, record=record)


def _difference(one: Labels, other: Labels) -> str:
    """Return where the labels of two models differ, and what makes them alike."""
    if one.names != other.names:
        return f"their predictors: {list(one.names)} and {list(other.names)}; give both the same formula."
    for name, a, b in zip(one.names, one.levels, other.levels, strict=True):
        if a != b:
            return f"the levels of {name!r}: {list(a)} and {list(b)}; give both xlevels={{{name!r}: {list(a)}}}."
    return f"their groups: {list(one.groups)} of {one.response!r} and {list(other.groups)} of {other.response!r}."


def _check_members(members: tuple[Any, ...]) -> None:
    """Raise unless these are two or more classifiers of the same groups and predictors, and with the same priors."""
    for member in members:
        if not isinstance(member, ClassifierResults):
            raise BBLTypeError(f"{NOT_CLASSIFIERS}; got {type(member).__name__}.", argument="fits")
    if len(members) < 2:
        raise OptionError("An average takes two fits or more.", argument="fits")
    first = members[0]
    for member in members:
        if member.labels != first.labels:
            raise OptionError(f"fits differ in {_difference(first.labels, member.labels)}", argument="fits")
        if not np.array_equal(member.priors, first.priors):
            raise OptionError(
                "fits differ in their priors. Average fit.with_priors(None) of each, and give the average priors by "
                "with_priors().",
                argument="fits",
            )


def _same_rows(one: Sample, other: Sample) -> bool:
    pairs = zip(*((rows.codes, rows.weights, rows.response, rows.missing) for rows in (one, other)), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


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
        if not member.can_refit:
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

        def again(train: Sample, own: np.random.Generator, member: ClassifierResults = member) -> list[Any]:
            return [member._refit(train, own)]

        scored = cross_validate(rows, folds, again, [(stream,) for stream in rng.spawn(NFOLD)], workers=workers)
        log_p.append(out_of_fold(scored, member._traits.calibration))
    totals = first.class_shares * rows.total
    convex, losses, record = weigh(np.array(log_p), scored, totals, member_advice(members))
    warn_record(record, 4)
    return AverageResults(*parts, convex, losses, stored_loss=record, **options)
