"""Class scores under refits of a classifier: to rows drawn with replacement, or to the replicates of a survey."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.boltzmann.averaging import hide_rows, silent_rows
from bbl.checks import choice, generator, integer, share
from bbl.errors import BBLTypeError, OptionError
from bbl.model.moments import level_counts
from bbl.parallel import n_workers, progress_bar, run_tasks
from bbl.results.effects.fit import EffectFit, Scores
from bbl.rows.sample import Sample
from bbl.stats.averaging import averaged_scores
from bbl.stats.scores import with_priors
from bbl.stats.survey.sample import SurveySample, check_single_rows

__all__ = ["ErrorOptions", "bootstrap_scores", "replicate_scores"]

SE = ("auto", "bootstrap")  # values of the argument `se` besides False


@dataclass(frozen=True)
class ErrorOptions:
    """How standard errors are asked for; the arguments of the verbs."""

    se: object
    level: float
    nboot: int
    seed: object
    n_jobs: int | None
    verbose: int

    def __post_init__(self) -> None:
        if self.se is not False:
            if self.se is True:
                raise BBLTypeError("se must be 'auto', 'bootstrap' or False; got True.", argument="se")
            choice("se", self.se, SE)
        share("level", self.level)
        integer("nboot", self.nboot, 2)


def bootstrap_scores(fit: EffectFit, errors: ErrorOptions) -> tuple[list[Scores], str]:
    """Return class scores under refits to rows that are drawn with replacement, and what was drawn, in words.

    Networks have draws of their tables instead.
    """
    rows = fit._rows()
    rows = rows.rows(rows.response >= 0) if rows.y is not None else rows
    check_single_rows(getattr(fit, "survey", None), "The bootstrap")
    rows.check_whole("The bootstrap draws rows")
    members = fit._bootstrap_members
    if not members:
        reason = fit.refusals.get("effects_bootstrap", "A member of this average is not refitted")
        raise OptionError(f"{reason}; give se=False.", argument="se")
    is_redrawn = len(members) == 1 and members[0][0]._redraw(rows, generator(errors.seed)) is not None

    def refit(rng: np.random.Generator) -> Scores:
        redrawn = members[0][0]._redraw(rows, rng) if is_redrawn else None
        if redrawn is not None:
            return _with_given_priors(redrawn[0].class_scores, fit.priors, redrawn[1])
        counts = rng.multinomial(round(rows.total), rows.weights / rows.total).astype(float)
        return _refit_scores(fit, rows.weighted(counts), rng)

    streams = [(rng,) for rng in generator(errors.seed).spawn(errors.nboot)]
    with progress_bar(len(streams), "bootstrap", errors.verbose) as step:
        scores = run_tasks(refit, streams, n_workers(errors.n_jobs), step, shared=True)
    description = (
        "draws of the tables from Dirichlet distributions" if is_redrawn else "refits to rows drawn with replacement"
    )
    return scores, f"{errors.nboot} {description}"


def replicate_scores(fit: EffectFit, survey: SurveySample, errors: ErrorOptions) -> list[Scores]:
    """Return class scores under refits to the replicate weights of a sampling design.

    They are not a number in rows of a level that no row of the replicate has.
    """
    assert survey.replicates is not None  # noqa: S101  # checked by its caller
    rows, weights, n_levels = fit._rows(), survey.replicates.weights[survey.rows], fit.design.n_levels
    occurs = [counts > 0.0 for counts in level_counts(rows.pooled, n_levels)]

    def refit(r: int, rng: np.random.Generator) -> Scores:
        replicate = rows.weighted(weights[:, r])
        scores = _refit_scores(fit, replicate, rng)
        pairs = zip(occurs, level_counts(replicate.pooled, n_levels), strict=True)
        absent = [levels & (counts == 0.0) for levels, counts in pairs]
        return _without_levels(scores, absent) if any(levels.any() for levels in absent) else scores

    streams = list(enumerate(generator(errors.seed).spawn(weights.shape[1])))
    with progress_bar(len(streams), "replicates", errors.verbose) as step:
        return run_tasks(refit, streams, n_workers(errors.n_jobs), step, shared=True)


def _without_levels(scores: Scores, absent: list[np.ndarray]) -> Scores:
    """Return class scores that are not a number in rows with one of the levels that are `absent`, by predictor."""

    def known_scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        out = scores(codes, missing)
        for i, levels in enumerate(absent):
            is_absent = levels[codes[:, i]]
            out[is_absent if missing is None else is_absent & ~missing[:, i]] = np.nan
        return out

    return known_scores


def _refit_scores(fit: EffectFit, train: Sample, rng: np.random.Generator) -> Scores:
    """Return the class scores of the refitted members of a fit, averaged with their weights."""
    members = fit._bootstrap_members
    refits = [member._refit(train, rng, warm=True) for member, _ in members]
    shares = train.group_totals(len(fit.labels.groups)) / train.total
    if len(refits) == 1:
        return _with_given_priors(refits[0].class_scores, fit.priors, shares)

    def averaged(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
        silent = [silent_rows(member._traits.needs_complete_rows, missing) for member, _ in members]
        by_member = [
            model.class_scores(codes, hide_rows(missing, rows)) for model, rows in zip(refits, silent, strict=True)
        ]
        return averaged_scores(by_member, np.array([weight for _, weight in members]), silent)

    return _with_given_priors(averaged, fit.priors, shares)


def _with_given_priors(scores: Scores, priors: np.ndarray | None, shares: np.ndarray) -> Scores:
    """Return class scores with class shares `priors`, if they are given, in place of `shares`."""
    if priors is None:
        return scores
    return lambda codes, missing: with_priors(scores(codes, missing), shares, priors)
