"""The public function `average`, and fits with ``method="auto"``, which average Boltzmann machines.

A *member* is one of the M classifiers that are averaged. K is the number of classes, N of validated
rows of all folds. *Out-of-fold* scores of a row are those of a model that was fitted without the
fold of the row. A `Scored` holds such scores (settings, N, K) and the fits of each fold. An
`Averaged` has `members` (each with `engine`, `estimate` and `tuning`), their `weights` (M,) and
out-of-fold `losses` (M,), and the `log_loss` of their average. A fitted classifier has ``_rows()``,
its training rows, and if ``_can_refit`` the method ``_refit(rows, rng)``; ``_traits.calibration``
names the calibration of its class scores. Its `training` are the training rows, or None if they
were read in batches or are not in the file that the model was loaded from; its `stored` is then a
summary of the rows (their number, log-likelihood and level counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bbl.boltzmann.averaging import fit_average, out_of_fold
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

SETTLED = "method='auto' chooses its settings itself"
IN_MEMORY = "method='auto' needs all rows in memory"
# capabilities that every average, or method="auto", lacks
AUTO_REFUSALS = AverageResults._refusals | lacking(
    tuning=SETTLED,
    gauge=SETTLED,
    relevance=SETTLED,
    third_order=PREPARED_AS.order_reason,
    real_weights=NOT_COUNTS,
    survey="an average has no standard errors that account for a sampling design",
    no_response="method='auto' averages classifiers",
    density="method='auto' averages classifiers",
    batches=IN_MEMORY,
    missing_marginal_batches=IN_MEMORY,
    structural_zeros="method='auto' assumes that every combination of levels can occur",
)
# an average treats missing values by the first of these that any member has
STRICT_POLICIES = ("raise", "drop")


def check_auto(options: dict, calibrate: str, classes: bool, design: object = None) -> None:
    """Raise if `method="auto"` gets options, ``calibrate="offset"``, a sampling design, or no
    classes.
    """
    if design is not None:
        raise OptionError(
            f"{AUTO_REFUSALS['survey']}.",
            argument="design",
            hint=(
                "Choose method='pseudo' or 'naive', or 'ml' if there are few predictors; or "
                "give counts as weights instead of a design."
            ),
        )
    if options:
        name = next(iter(options))
        raise BBLTypeError(
            f"{SETTLED}, so {name} is not one of its options.",
            argument=name,
            hint=(
                "Choose a single method such as method='pseudo', or give your own fits to "
                "average()."
            ),
        )
    if calibrate == "offset":
        raise OptionError(
            "method='auto' always calibrates by temperature.",
            argument="calibrate",
            hint="Leave calibrate out.",
        )
    if not classes:
        raise OptionError(
            f"{AUTO_REFUSALS['no_response']}, and the formula has no response.",
            argument="method",
            hint="Choose method='pseudo'.",
        )


def fit_auto(
    call_string: str, data: FitData, spec: FitSpec, priors: np.ndarray | None, verbose: int
) -> AverageResults:
    """Fit a checked call with method="auto"; `priors` are checked class shares (K,)."""
    with progress_bar(NFOLD, "auto", verbose) as progress:
        averaged = fit_average(data, spec, progress)
    labels = data.design.labels
    warn_problems(
        [
            problem
            for member in averaged.members
            for problem in list_problems(member.estimate.fits, labels)
        ],
        stacklevel=4,
    )
    warn_record(averaged.log_loss, stacklevel=4)
    training = (call_string, data.design, data.rows, data.index)
    return auto_results(training, averaged, averaged.log_loss, priors)


def _label_difference(one: Labels, other: Labels) -> str:
    """Return the end of an error message: the first difference between the labels of two models,
    and the remedy.
    """
    if one.names != other.names:
        return (
            f"their predictors: {list(one.names)} and {list(other.names)}; give both the same "
            "formula."
        )
    for name, levels, other_levels in zip(one.names, one.levels, other.levels, strict=True):
        if levels != other_levels:
            shown = list(levels)
            return (
                f"the levels of {name!r}: {shown} and {list(other_levels)}; give both "
                f"xlevels={{{name!r}: {shown}}}."
            )
    return (
        f"their groups: {list(one.groups)} of {one.response!r} and {list(other.groups)} of "
        f"{other.response!r}."
    )


def _check_members(members: tuple[Any, ...]) -> None:
    """Raise an error unless `members` are two or more classifiers with equal groups, predictors,
    levels and priors.
    """
    for member in members:
        if not isinstance(member, ClassifierResults):
            raise BBLTypeError(f"{NOT_CLASSIFIERS}; got {type(member).__name__}.", argument="fits")
    if len(members) < 2:
        raise OptionError("An average needs at least two fits.", argument="fits")
    first_member = members[0]
    for member in members:
        if member.labels != first_member.labels:
            raise OptionError(
                f"fits differ in {_label_difference(first_member.labels, member.labels)}",
                argument="fits",
            )
        if not np.array_equal(member.priors, first_member.priors):
            raise OptionError(
                "The fits have different priors.",
                argument="fits",
                hint=(
                    "Average fit.with_priors(None) of each, and give the priors of the "
                    "average with with_priors()."
                ),
            )


def _have_same_rows(one: Sample, other: Sample) -> bool:
    """Return whether two samples have equal codes, weights, responses and missing cells, in the
    same order.
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
    """Average the probabilities of fitted classifiers, with equal weights or weights chosen by
    cross-validation.

    Parameters
    ----------
    fits : sequence of BBLResults, NetworkResults, ShooterResults or AverageResults
        Two or more, with the same response, predictors, levels and order of levels (set by
        `xlevels`), and the same `priors`, if any. Pairs, methods and networks may differ.
    weights : {"cv", "equal"}, default "cv"
        "cv": convex weights that maximise the likelihood of the validated rows of 5 shuffled folds,
        for which every model is refitted with its settings; sparse regressions and averages cannot
        be refitted. "equal": 1/M each.
    seed : int, numpy.random.Generator or None, default 0
        For the folds.
    n_jobs : int, optional
        Threads; results do not depend on it.

    Returns
    -------
    AverageResults
        With the `priors` of the fits, which replace the training rows' shares in the averaged
        probabilities, as in `AverageResults.with_priors`. Missing values are an error if they are
        so for one of the fits, else their rows are dropped if they are so for one of the fits.

    Raises
    ------
    BBLTypeError, OptionError
        If there are fewer than two fits, or their groups, predictors or priors differ; or with
        ``weights="cv"``, if a fit cannot be refitted.
    DataError
        With ``weights="cv"``, if fits have different training rows, or were saved without them.

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
    # the calls of the members without their arguments
    call_string = f"average({', '.join(member.call.split('(')[0] for member in members)})"
    missing_policies = [member.design.missing for member in members]  # of missing values
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
    # the summary stands for training rows that the members do not keep
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
                "weights='cv' refits every model to other rows, which "
                f"{type(member).__name__} does not support.",
                argument="weights",
                hint="Give weights='equal'.",
            )
        if not _have_same_rows(member._rows(), rows):
            raise DataError(
                "The fits were fitted to different rows.",
                argument="weights",
                hint="Give weights='equal'.",
            )
    rng = generator(seed)
    workers = n_workers(n_jobs)
    # oof_log_p: out-of-fold ln P(y | x) (N,) of each member
    folds = shuffled_folds(rows, NFOLD, rng)
    oof_log_p = []
    for member in members:
        # the default binds this member, not the last one of the loop
        def refit(
            train: Sample, rng: np.random.Generator, member: ClassifierResults = member
        ) -> list[Any]:
            """Refit the member to the training rows of a fold; there is one setting."""
            return [member._refit(train, rng)]

        scored = cross_validate(
            rows, folds, refit, [(fold_rng,) for fold_rng in rng.spawn(NFOLD)], workers=workers
        )
        oof_log_p.append(out_of_fold(scored, member._traits.calibration))
    # (K,) weights of the classes, for the baseline of the loss
    class_totals = first_member.class_shares * rows.total
    # `scored`, of the last member: all members have the same validated rows; `member_advice`: a
    # sentence that the warning gives if the average predicts worse than the shares of the classes
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
