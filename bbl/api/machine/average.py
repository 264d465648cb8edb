"""The public function `average`, and ``method="auto"``, which averages Boltzmann machines.

A *member* is one of the M classifiers that are averaged, and N is the number of held-out rows in
all folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bbl.boltzmann.averaging import fit_average, out_of_fold
from bbl.boltzmann.averaging_all_rows import fit_average_of_all_rows
from bbl.boltzmann.fitted import list_problems, warn_problems
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.member_weights import weigh
from bbl.boltzmann.prediction_checks import warn_record
from bbl.boltzmann.tuning import NFOLD
from bbl.capabilities import NOT_COUNTS, lacking
from bbl.checks import check_keywords, choice, generator
from bbl.crossval import cross_validate
from bbl.design.labels import Labels
from bbl.engines import PREPARED_AS
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.parallel import n_workers, progress_bar
from bbl.results.classifier import ClassifierResults
from bbl.results.comparisons.average import (
    NOT_CLASSIFIERS,
    AverageResults,
    auto_results,
    member_advice,
)
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample

__all__ = ["average", "check_auto", "fit_auto"]

SETTLED = "method='auto' chooses its settings automatically"
# capabilities that are not available for averages, or for method="auto"
AUTO_REFUSALS = AverageResults._refusals | lacking(
    tuning=SETTLED,
    gauge=SETTLED,
    relevance=SETTLED,
    third_order=PREPARED_AS.order_reason,
    real_weights=NOT_COUNTS,
    survey="an average has no standard errors that account for a sampling design",
    no_response="method='auto' averages classifiers",
    density="method='auto' averages classifiers",
    structural_zeros="method='auto' assumes that every combination of levels can occur",
)
# an average treats missing values by the first of these policies that any member has
STRICT_POLICIES = ("raise", "drop")


def check_auto(options: dict, calibrate: str, classes: bool, design: object = None) -> None:
    """Raise an error if ``method="auto"`` is combined with options, ``calibrate="offset"``, a
    sampling design, or a formula without classes.
    """
    if design is not None:
        raise OptionError(
            f"{AUTO_REFUSALS['survey']}.",
            argument="design",
            hint=(
                "Choose method='pseudo' or 'naive', or 'ml' if there are few predictors. If the "
                "weights are counts, pass them as weights instead of a design."
            ),
        )
    if options:
        name = next(iter(options))
        raise BBLTypeError(
            f"{SETTLED}, so {name} is not one of its options.",
            argument=name,
            hint=(
                "Choose a single method such as method='pseudo', or pass your own fits to "
                "average()."
            ),
        )
    if calibrate == "offset":
        raise OptionError(
            "method='auto' always calibrates by temperature.",
            argument="calibrate",
            hint="Omit the calibrate argument.",
        )
    if not classes:
        raise OptionError(
            f"{AUTO_REFUSALS['no_response']}, but the formula has no response.",
            argument="method",
            hint="Choose method='pseudo'.",
        )


def fit_auto(
    call_string: str, data: FitData, spec: FitSpec, priors: np.ndarray | None, verbose: int
) -> AverageResults:
    """Fit and average the models for ``method="auto"``; all arguments have already been checked,
    and `priors` contains the class proportions (K,).
    """
    with progress_bar(NFOLD, "auto", verbose) as progress:
        find = fit_average if data.sample.in_memory else fit_average_of_all_rows
        averaged = find(data, spec, progress)
    labels = data.design.labels
    warn_problems(
        [
            problem
            for member in averaged.members
            for problem in list_problems(member.estimate.fits, member.labels or labels)
        ],
        stacklevel=4,
    )
    warn_record(averaged.log_loss, stacklevel=4)
    # rows that were read in batches have no labels; the caller adds them
    training = (call_string, data.design, data.training, data.index)
    return auto_results(training, averaged, averaged.log_loss, priors)


def _check_labels(one: Labels, other: Labels) -> None:
    """Raise an OptionError if two models differ in their predictors, levels or groups."""
    if one.names != other.names:
        raise OptionError(
            f"The fits have different predictors: {list(one.names)} and {list(other.names)}.",
            argument="fits",
            hint="Fit all models with the same predictors in the formula.",
        )
    kinds = [
        [(labels.names[i], labels.levels[i], labels.center(i)) for i in labels.measured]
        for labels in (one, other)
    ]
    if kinds[0] != kinds[1]:
        raise OptionError(
            "The fits have different numeric predictors, or numeric predictors centred at "
            "different means.",
            argument="fits",
            hint="Fit all models to the same data with the same numeric argument, or use "
            "method='auto', which averages normal distributions, intervals and regressions.",
        )
    for name, levels, other_levels in zip(one.names, one.levels, other.levels, strict=True):
        if levels != other_levels:
            shown = list(levels)
            raise OptionError(
                f"The fits have different levels of {name!r}: {shown} and {list(other_levels)}.",
                argument="fits",
                hint=f"Fit all models with xlevels={{{name!r}: {shown}}}.",
            )
    if one != other:
        raise OptionError(
            f"The fits have different groups: {list(one.groups)} for the response "
            f"{one.response!r}, but {list(other.groups)} for {other.response!r}.",
            argument="fits",
            hint="Fit all models with the same response.",
        )


def _check_members(members: tuple[Any, ...]) -> None:
    """Raise an error unless `members` are two or more classifiers with the same groups, predictors,
    levels and priors.
    """
    for member in members:
        if not isinstance(member, ClassifierResults):
            raise BBLTypeError(f"{NOT_CLASSIFIERS}; got {type(member).__name__}.", argument="fits")
    if len(members) < 2:
        raise OptionError("An average requires at least two fits.", argument="fits")
    first_member = members[0]
    for member in members:
        _check_labels(first_member.labels, member.labels)
        if not np.array_equal(member.priors, first_member.priors):
            raise OptionError(
                "The fits have different priors.",
                argument="fits",
                hint=(
                    "Average the fits returned by fit.with_priors(None), and set the priors of "
                    "the average with with_priors()."
                ),
            )


def _have_same_rows(one: Sample, other: Sample) -> bool:
    """Return whether two samples have the same rows in the same order: equal codes, weights,
    responses and missing cells.
    """
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("codes", "weights", "response", "missing")
    )


@check_keywords
def average(
    fits: Sequence[ClassifierResults],
    weights: str = "cv",
    *,
    seed: int | np.random.Generator | None = 0,
    n_jobs: int | None = None,
) -> AverageResults:
    """Average the class probabilities of fitted classifiers, with equal weights or weights chosen
    by cross-validation.

    Parameters
    ----------
    fits : sequence of BBLResults, NetworkResults, ShooterResults or AverageResults
        At least two fitted models with the same response, predictors, levels and order of levels
        (set by `xlevels`), and the same `priors`, if any. Interactions, methods and networks may
        differ.
    weights : {"cv", "equal"}, default "cv"
        "cv": convex weights that maximise the likelihood of the held-out rows of 5 shuffled folds.
        Every model is refitted in each fold with its own settings; sparse regressions and averages
        cannot be refitted. "equal": 1/M each.
    seed : int, numpy.random.Generator or None, default 0
        Seed of the fold assignment.
    n_jobs : int, optional
        Number of threads. Results do not depend on it.

    Returns
    -------
    AverageResults
        If the fits have `priors`, the averaged probabilities use these instead of the class
        proportions of the training rows, as in `AverageResults.with_priors`. Missing values raise
        an error if any model was fitted with ``missing="raise"``. Otherwise, rows with missing
        values are dropped if any model was fitted with ``missing="drop"``.

    Raises
    ------
    BBLTypeError, OptionError
        If there are fewer than two fits; if their groups, predictors or priors differ; or, with
        ``weights="cv"``, if a fit cannot be refitted.
    DataError
        With ``weights="cv"``, if the fits have different training rows or were saved without them.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fits = [
    ...     bbl.bbl("Survived ~ .^2", titanic, weights="Freq", method=m)
    ...     for m in ("pseudo", "conditional")
    ... ]
    >>> bbl.average(fits, "equal").tuning["weight"].tolist()
    [0.5, 0.5]
    """
    members = tuple(fits)
    choice("weights", weights, ("cv", "equal"))
    _check_members(members)
    first_member = members[0]
    # the members' calls without their arguments
    call_string = f"average({', '.join(member.call.split('(')[0] for member in members)})"
    missing_policies = [member.design.missing for member in members]
    missing_policy = next(
        (policy for policy in STRICT_POLICIES if policy in missing_policies),
        first_member.design.missing,
    )
    average_fields = (
        call_string,
        replace(first_member.design, missing=missing_policy),
        first_member.training,
        first_member.index,
        members,
    )
    # used for training rows that are not stored with the members
    priors = first_member.priors
    training_summary = first_member._stored
    M = len(members)
    if weights == "equal":
        return AverageResults(
            *average_fields,
            np.full(M, 1.0 / M),
            np.full(M, np.nan),
            priors=priors,
            _stored=training_summary,
        )
    rows = first_member._rows()
    for member in members:
        if not member._can_refit:
            raise OptionError(
                "weights='cv' refits every model on the training rows of each fold, which "
                f"{type(member).__name__} does not support.",
                argument="weights",
                hint="Use weights='equal'.",
            )
        if not _have_same_rows(member._rows(), rows):
            raise DataError(
                "The models were fitted to different rows.",
                argument="weights",
                hint="Use weights='equal'.",
            )
    rng = generator(seed)
    workers = n_workers(n_jobs)
    # oof_log_p: out-of-fold ln P(y | x) (N,) of each member
    folds = shuffled_folds(rows, NFOLD, rng)
    oof_log_p = []
    for member in members:
        # the default argument binds the current member, not the last one of the loop
        def refit(
            train: Sample, rng: np.random.Generator, member: ClassifierResults = member
        ) -> list[Any]:
            """Refit a model on the training rows of a fold, with the model's own setting."""
            return [member._refit(train, rng)]

        scored = cross_validate(
            rows, folds, refit, [(fold_rng,) for fold_rng in rng.spawn(NFOLD)], workers=workers
        )
        oof_log_p.append(out_of_fold(scored, member._traits.calibration))
    # (K,) total weights of the classes, for the baseline loss
    class_totals = first_member.class_shares * rows.total
    # all members have the same held-out rows, so the `scored` of the last member is used.
    # `member_advice` is the remedy for an average that predicts worse than the class proportions
    member_weights, losses, loss = weigh(
        np.array(oof_log_p), scored, class_totals, member_advice(members)
    )
    warn_record(loss, stacklevel=4)
    return AverageResults(
        *average_fields,
        member_weights,
        losses,
        _stored_loss=loss,
        priors=priors,
        _stored=training_summary,
    )
