"""Rows in a file: settings are selected on a sample, and the models are then fitted to all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np

from bbl.boltzmann.averaging import CALIBRATION_OF_MANY_ROWS, Averaged, Member, fit_average
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.member_weights import beats_shares, limited_equality, weigh
from bbl.boltzmann.tuning import tune
from bbl.boltzmann.tuning_record import Tuning
from bbl.crossval import Scored
from bbl.engines import Conditional, Engine, PseudoLikelihood
from bbl.rows.fold_assignment import FoldAssignment
from bbl.rows.sample import Sample, concatenate
from bbl.rows.stored import StoredSample
from bbl.stats.calibration import fit_calibration
from bbl.stats.metrics import log_probabilities

__all__ = ["MANY_ROWS", "auto_assignment", "fit_average_of_all_rows", "tune_on_sample"]

MANY_ROWS = 500_000  # with more rows, settings are chosen on a sample
SAMPLE_ROWS = 100_000  # number of sampled rows
GROUP_ROWS = 2000  # minimum number of sampled rows of each group, if it has as many
HELD_OUT_ROWS = 20_000  # number of other rows that determine weights and calibrations
MOST_FOLDS = 50  # one of them is held out


def auto_assignment() -> FoldAssignment:
    """Return the fold assignment for rows read in batches; the first fold is held out."""
    return FoldAssignment(
        MOST_FOLDS, np.random.default_rng(0), least=HELD_OUT_ROWS, first_only=True
    )


def fit_average_of_all_rows(
    data: FitData, spec: FitSpec, progress: Callable | None = None
) -> Averaged:
    """Return the average for rows in a file, with the first fold held out.

    1. The average is fitted to a random sample of the other folds, as in `fit_average`.
    2. The members that can read rows in batches are fitted to all rows of the other folds, with the
       settings selected on the sample; penalties per row decrease with the number of rows.
    3. Calibrations and weights are estimated from rows of the first fold.

    If the resulting average is not clearly better than the class proportions, the average that was
    fitted to the sample is returned instead.
    """
    stored = cast(StoredSample, data.sample)
    training = stored.without(0)
    rng = np.random.default_rng(0)
    sample = _draw(training, SAMPLE_ROWS, data.K, rng)
    averaged = fit_average(data.with_sample(sample), spec, progress)
    sample_rows = int(sample.n)
    of_sample = replace(
        averaged, rows=(sample_rows,) * len(averaged.members), setting_rows=sample_rows
    )
    held_out = _draw(stored.fold(0), HELD_OUT_ROWS, data.K, rng)
    members = []
    rows = []
    share = sample.total / training.total
    for member in averaged.members:
        engine = _engine_for_all_rows(member, data.K, share)
        if engine is None:
            members.append(member)
            rows.append(sample_rows)
            continue
        layout = member.estimate.parameters.layout
        all_rows = replace(data.with_sample(training), layout=layout)
        estimate = estimate_path(all_rows, replace(spec.using(engine), relevance=None))[0]
        members.append(
            replace(
                member,
                engine=engine,
                estimate=estimate,
                tuning=replace(member.tuning, engine=engine),
            )
        )
        rows.append(training.n)
    scores = [
        replace(member.estimate, calibration=None).class_scores(held_out.codes)
        for member in members
    ]
    y, weights = held_out.response, held_out.weights
    log_p = []
    for k, (member, own) in enumerate(zip(members, scores, strict=True)):
        calibration = fit_calibration(own, y, weights, CALIBRATION_OF_MANY_ROWS)
        log_p.append(log_probabilities(calibration(own))[np.arange(len(y)), y])
        members[k] = replace(
            member,
            estimate=replace(member.estimate, calibration=calibration),
            tuning=replace(member.tuning, calibration=calibration, scored=None),
        )
    log_p_of_members = np.array(log_p)
    scored = Scored(
        scores[0][None],
        y,
        weights,
        np.zeros(len(y), dtype=np.intp),
        np.full(len(y), -1),
        [],
        "class_scores",
    )
    totals = stored.group_totals(data.K)
    with np.errstate(divide="ignore"):  # groups without rows
        shares_log_p = np.log(totals / totals.sum())[y]
    equality = limited_equality(
        np.array([member.equality for member in members]), log_p_of_members, weights
    )
    member_weights, losses, record = weigh(log_p_of_members, scored, totals, equality=equality)
    if not beats_shares(log_p_of_members, member_weights, weights, shares_log_p):
        return of_sample
    return Averaged(
        tuple(members),
        member_weights,
        losses,
        record,
        averaged.left_out,
        rows=tuple(rows),
        setting_rows=sample_rows,
    )


def tune_on_sample(
    data: FitData, spec: FitSpec, rule: str | None, progress: Callable | None = None
) -> tuple[Tuning, FitData]:
    """Select the ridge and the scale of a conditional fit to rows in a file on a random sample.

    A ridge is a penalty per row. The sample has fewer rows, so its ridges correspond to smaller
    ridges of all rows, which the result contains. The sample is returned too.
    """
    stored = cast(StoredSample, data.sample)
    sample = _draw(stored, SAMPLE_ROWS, data.K, np.random.default_rng(0))
    share = sample.total / stored.total
    sampled = data.with_sample(sample)
    tuning = tune(
        sampled, spec.using(_times_ridge(spec.engine, 1.0 / share)), rule, progress=progress
    )
    tuning = replace(
        tuning,
        values=tuning.values * (1.0 if tuning.option is None else share),
        engine=_times_ridge(tuning.engine or spec.engine, share),
        rows=sample.n,
    )
    return tuning, sampled


def _times_ridge(engine: Engine, factor: float) -> Engine:
    """Return a conditional engine with its ridge multiplied by a factor."""
    conditional = cast(Conditional, engine)
    return replace(conditional, ridge=conditional.ridge_of(1.0) * factor)


def _engine_for_all_rows(member: Member, K: int, share: float) -> Engine | None:
    """Return the engine that fits a member to all rows; None to keep its fit to the sample.

    `share` is the sample's fraction of the total weight.
    """
    engine = member.engine
    estimate: Estimate = member.estimate
    if estimate.relevance is not None or estimate.has_no_predictors:
        return None
    layout = estimate.parameters.layout
    if isinstance(engine, Conditional):
        # neither minibatches nor another fit as a start: the optimum of all rows
        plain = Conditional(
            ridge=engine.ridge_of(1.0) * share, scale=engine.scale, ordered="nominal"
        )
        return plain if plain.fits_in_rounds(layout, K) else None
    if isinstance(engine, PseudoLikelihood):
        return replace(engine, lambda_=float(engine.setting) * share)
    return engine if engine.streams else None


def _draw(stored: StoredSample, size: int, K: int, rng: np.random.Generator) -> Sample:
    """Return about `size` random rows, including at least `GROUP_ROWS` or all rows of each group.

    Weights are divided by the probabilities of being drawn, relative to the largest one.
    """
    groups = [stored.group(y) for y in range(K)]
    n = sum(group.n for group in groups)
    sizes = [min(g.n, max(round(size * g.n / n), GROUP_ROWS)) if g.n else 0 for g in groups]
    most = max(own / g.n for own, g in zip(sizes, groups, strict=True) if g.n)
    parts = []
    for y, (group, own) in enumerate(zip(groups, sizes, strict=True)):
        if not own:
            continue
        rows = group.draw(own, rng)
        copies = max(1, round(most * group.n / own))
        parts.append(
            replace(rows, weights=rows.weights * copies, y=np.full(rows.n, y, dtype=np.intp))
        )
    return concatenate(parts)
