"""Class scores under refits of a classifier: to rows drawn with replacement, or to the replicates
of a survey.

`Scores` are functions of level codes and missing cells (n, m) with class scores (n, K) as values. A
fit has *members*, ``_bootstrap_members``, pairs (fit, weight): the members of an average of fits,
else the fit itself. A member's ``_refit`` returns a fit to other rows; ``_redraw`` returns (a draw
of the model from its posterior, its class shares (K,)), or None if the model has no such posterior.
Predictor i has L_i levels. ``fit.priors`` (K,) are class shares for predictions, None for the
shares of the training rows. ``rows.pooled`` are rows without their response.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.averaging import average_members
from bbl.checks import choice, generator, integer, share
from bbl.errors import BBLTypeError, OptionError
from bbl.model.moments import level_counts
from bbl.parallel import n_workers, progress_bar, run_tasks
from bbl.results.classifier_base import ClassifierBase
from bbl.results.effects.error_source import Scores
from bbl.rows.sample import Sample
from bbl.stats.metrics import with_priors
from bbl.stats.survey.sample import SurveySample, check_single_rows

__all__ = ["ErrorOptions", "refit_bootstrap", "refit_replicates"]

SE_OPTIONS = ("auto", "bootstrap")  # values of the argument `se` besides False


@dataclass(frozen=True)
class ErrorOptions:
    """Arguments on standard errors of ``fit.avg_comparisons`` and its like, which `__post_init__`
    checks.

    Attributes
    ----------
    se : {"auto", "bootstrap", False}
    level : float
        Coverage of the intervals.
    nboot : int
        Number of refits or draws of the bootstrap.
    seed : int, numpy.random.Generator or None
    n_jobs : int or None
        Threads of refits.
    verbose : int
        0 for no progress bar.
    """

    se: object
    level: float
    nboot: int
    seed: object
    n_jobs: int | None
    verbose: int

    def __post_init__(self) -> None:
        """Raise an OptionError or a BBLTypeError for an option that does not exist, or is out of
        range.
        """
        if self.se is not False:
            if self.se is True:
                raise BBLTypeError(
                    "se must be 'auto', 'bootstrap' or False; got True.", argument="se"
                )
            choice("se", self.se, SE_OPTIONS)
        share("level", self.level)
        integer("nboot", self.nboot, 2)


def refit_bootstrap(fit: ClassifierBase, errors: ErrorOptions) -> tuple[list[Scores], str]:
    """Return (functions for the class scores, one for each bootstrap refit; what was drawn, as
    text).

    Models are refitted to rows drawn with replacement. Networks, which have posteriors of their
    tables, draw tables.
    """
    rows = fit._rows()  # the training rows
    # without rows of an unknown group, whose code is -1; `response` is `y`, or zeros if that is
    # None for lack of one
    rows = rows.rows(rows.response >= 0) if rows.y is not None else rows
    # raises a DataError under a sampling design
    check_single_rows(getattr(fit, "survey", None), "The bootstrap")
    # raises a DataError for weights that are no counts
    rows.check_whole("The bootstrap draws rows")
    members = fit._bootstrap_members  # pairs (fit, weight)
    if not members:
        reason = fit._refusals.get("effects_bootstrap", "A member of this average is not refitted")
        raise OptionError(f"{reason}.", argument="se", hint="Give se=False.")
    # whether the model draws its tables itself; this first draw is not used
    is_redrawn = (
        len(members) == 1 and members[0][0]._redraw(rows, generator(errors.seed)) is not None
    )

    def refit_drawn_rows(rng: np.random.Generator) -> Scores:
        """Return the function for the class scores under one refit, or one draw of the tables."""
        drawn_model_and_shares = members[0][0]._redraw(rows, rng) if is_redrawn else None
        if drawn_model_and_shares is not None:
            drawn_model, drawn_shares = drawn_model_and_shares
            return _replace_shares(drawn_model.class_scores, fit.priors, drawn_shares)
        # how often each row is drawn: `rows.total`, the sum of the weights, is the number of draws
        drawn_weights = rng.multinomial(round(rows.total), rows.weights / rows.total).astype(float)
        return _refit_scores(fit, rows.weighted(drawn_weights), rng)

    # a generator for each refit
    tasks = [(rng,) for rng in generator(errors.seed).spawn(errors.nboot)]
    with progress_bar(len(tasks), "bootstrap", errors.verbose) as step:
        # shared: in threads, because nested functions cannot be sent to other processes
        scores_by_refit = run_tasks(
            refit_drawn_rows, tasks, n_workers(errors.n_jobs), step, shared=True
        )
    description = (
        "Dirichlet draws of the tables" if is_redrawn else "refits to rows drawn with replacement"
    )
    return scores_by_refit, f"{errors.nboot} {description}"


def refit_replicates(
    fit: ClassifierBase, survey: SurveySample, errors: ErrorOptions
) -> list[Scores]:
    """Return functions for the class scores, one for the refit to each set of replicate weights of
    a sampling design.

    Scores are nan in rows at a level that is in the data, but in no row of the replicate.
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its caller
    # weights (n, R) of the training rows in R replicates; `survey.rows` are their positions in the
    # whole sample
    rows = fit._rows()
    replicate_weights = survey.replicates.weights[survey.rows]
    n_levels = fit.design.n_levels
    # for each predictor a mask (L_i,) of the levels that some row has; `level_counts` returns m
    # arrays (L_i,)
    occurring_levels = [counts > 0.0 for counts in level_counts(rows.pooled, n_levels)]

    def refit_replicate(r: int, rng: np.random.Generator) -> Scores:
        """Return the function for the class scores under the refit to replicate number `r`."""
        replicate = rows.weighted(replicate_weights[:, r])  # without rows of weight 0
        refit_scores = _refit_scores(fit, replicate, rng)
        levels_and_counts = zip(
            occurring_levels, level_counts(replicate.pooled, n_levels), strict=True
        )
        absent_levels = [occurs & (counts == 0.0) for occurs, counts in levels_and_counts]
        return (
            _hide_absent_levels(refit_scores, absent_levels)
            if any(is_absent.any() for is_absent in absent_levels)
            else refit_scores
        )

    # (number of the replicate, its generator)
    tasks = list(enumerate(generator(errors.seed).spawn(replicate_weights.shape[1])))
    # shared: threads, as in `refit_bootstrap`
    with progress_bar(len(tasks), "replicates", errors.verbose) as step:
        return run_tasks(refit_replicate, tasks, n_workers(errors.n_jobs), step, shared=True)


def _hide_absent_levels(scores: Scores, absent_levels: list[np.ndarray]) -> Scores:
    """Return the function `scores` with nan in rows at an absent level.

    `absent_levels` has for each predictor a mask (L_i,) of its levels.
    """

    def scores_or_nan(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        """Return the class scores (n, K), nan in rows where some cell has an absent level and is
        not missing.
        """
        row_scores = scores(codes, missing)
        for i, is_absent_level in enumerate(absent_levels):
            is_hidden_row = is_absent_level[codes[:, i]]
            row_scores[is_hidden_row if missing is None else is_hidden_row & ~missing[:, i]] = (
                np.nan
            )
        return row_scores

    return scores_or_nan


def _refit_scores(fit: ClassifierBase, train: Sample, rng: np.random.Generator) -> Scores:
    """Return a function for the class scores of `fit` with its members refitted to `train`.

    With several members they are the members' probabilities averaged by weight, as
    log-probabilities.
    """
    members = fit._bootstrap_members
    # warm: each refit starts at the solution of its member
    refits = [member._refit(train, rng, warm=True) for member, _ in members]
    # (K,): class proportions in the rows `train`
    train_shares = train.group_totals(len(fit.labels.groups)) / train.total
    if len(refits) == 1:
        return _replace_shares(refits[0].class_scores, fit.priors, train_shares)

    weights = np.array([weight for _, weight in members])
    needed = [refit.needed for refit in refits]
    return _replace_shares(
        lambda codes, missing: average_members(refits, needed, weights, codes, missing),
        fit.priors,
        train_shares,
    )


def _replace_shares(scores: Scores, priors: np.ndarray | None, shares: np.ndarray) -> Scores:
    """Return the function `scores` with the class shares `priors` (K,) in place of `shares` (K,),
    those of its model.

    If `priors` is None, `scores` is returned as it is.
    """
    if priors is None:
        return scores
    return lambda codes, missing: with_priors(scores(codes, missing), shares, priors)
