"""Warnings about predictions that are worse than a baseline, and about folds of ordered rows.

The numbers of scored rows, held-out rows, groups and folds are n, N, K and F. Predictor i has L_i
levels.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.validation import validate
from bbl.crossval import Scored, fold_log_shares
from bbl.design.labels import Labels
from bbl.engines import BASELINE, PREPARED_AS, Engine
from bbl.errors import DataWarning
from bbl.model.layout import Layout
from bbl.model.logz import APPROXIMATE
from bbl.model.marginal import MarginalEnergy
from bbl.model.moments import level_counts
from bbl.rows.fold_assignment import AnyFolds
from bbl.rows.sample import Rows, Sample
from bbl.stats.metrics import (
    HELD_OUT,
    TRAINING,
    LossRecord,
    log_loss,
    log_probabilities,
    log_share,
    row_loss,
)

__all__ = [
    "check_training",
    "check_validation",
    "held_out_record",
    "log_loss_advice",
    "log_p_bound",
    "naive_scores",
    "remedy",
    "training_record",
    "training_rows",
    "untuned_option",
    "warn_ordered",
    "warn_record",
]


def log_p_bound(tables: np.ndarray) -> np.ndarray:
    """Return an upper bound (...) on the log p-value of count tables under a random row order.

    Parameters
    ----------
    tables : ndarray, shape (..., K, F, L)
        Number of rows in each of K groups, F folds and L levels.

    Notes ----- The p-value is the probability of all tables that are at most as probable as the
    observed table, given the totals of folds and levels. The probability of a table is ``prod N_f!
    prod n_l! / (N! prod o_fl!)``, where N_f is the number of rows in fold f, n_l the number at
    level l, o_fl the number in both, and N the total. The bound is the observed probability times
    an upper bound on the number of tables with these totals: the number of ways to distribute all
    levels except one over the folds, or all folds except one over the levels. The bounds of the K
    groups are multiplied. The test therefore keeps its significance level even if tables are very
    sparse.

    Examples
    --------
    Ten rows of each of two levels, in order and alternating, in four folds:

    >>> ordered = np.array([[[5, 0], [5, 0], [0, 5], [0, 5]]])
    >>> float(np.exp(log_p_bound(ordered)).round(4))
    0.0012
    >>> bool(log_p_bound(np.array([[[2, 3], [3, 2], [2, 3], [3, 2]]])) > 0)
    True
    """
    from scipy.special import gammaln

    tables = np.asarray(tables, dtype=float)
    folds = tables.sum(axis=-1)
    levels = tables.sum(axis=-2)
    total = tables.sum(axis=(-1, -2))
    F = tables.shape[-2]
    L = tables.shape[-1]
    log_p = gammaln(folds + 1).sum(axis=-1) + gammaln(levels + 1).sum(axis=-1)
    log_p -= gammaln(total + 1) + gammaln(tables + 1).sum(axis=(-1, -2))
    # numbers of ways to distribute the rows of each level over the folds (..., L), and of each fold
    # over the levels (..., F)
    log_ways = (
        gammaln(levels + F) - gammaln(levels + 1) - gammaln(F),
        gammaln(folds + L) - gammaln(folds + 1) - gammaln(L),
    )
    # omit the level or fold with the most ways, because the totals determine its counts
    log_n_tables = [log_way.sum(axis=-1) - log_way.max(axis=-1) for log_way in log_ways]
    return (log_p + np.minimum(*log_n_tables)).sum(axis=-1)


MAX_LOOKUPS = 2e7  # with more parameter lookups, only a sample of the training rows is scored
# maximum number of parameter lookups for a sample of training rows, unless it is very small
MAX_LOOKUPS_OF_SAMPLE = 2e8
MAX_SAMPLE_ROWS = 2000  # rows of the sample
MIN_SAMPLE_ROWS = 100  # minimum number of rows in the sample, even if they require more lookups
MAX_SUMMED_CELLS = 4096  # rows with more joint levels of missing predictors are not scored
MAX_LEVELS = 8192  # non-reference levels; a larger coupling matrix would take over half a GiB
# A warning requires that the log-loss exceeds the log-loss of naive Bayes by both of these.
MIN_ERRORS = 3.0  # standard errors of the difference
MIN_EXCESS = 0.05  # proportion of the log-loss of naive Bayes
MAX_FALSE_ALARMS = 0.01  # significance level of the test for ordered rows
AUTO = ", or method='auto'"  # part of a hint
TEMPERED = ("temperature", "firm")  # calibrations that shrink useless scores to class proportions


def remedy(calibrate: str, auto: bool, option: str | None = None) -> str:
    """Return a hint, possibly empty, for a log-loss that exceeds that of the class proportions.

    `auto` indicates whether ``method="auto"`` can fit these rows. `option` is the name of an option
    that could be selected by cross-validation, which is suggested because calibration cannot
    correct poor estimates. It is None if the method has no such option, or if the option has
    already been selected by cross-validation.
    """
    arguments = [] if option is None else [f"{option}='cv'"]
    if calibrate not in TEMPERED:
        arguments.append("calibrate='temperature'")
    if not arguments:
        return ""
    return f"Use {' and '.join(arguments)}{AUTO if auto else ''}."


def untuned_option(engine: Engine, layout: Layout) -> str | None:
    """Return the option that could be tuned in a fit with interactions, or None."""
    return engine.tuned.option if engine.tuned is not None and layout.order > 1 else None


def _naming_log_z(record: LossRecord, log_z_kind: str) -> LossRecord:
    """Add a hint that mentions `log_z` to the record if ln Z is approximate."""
    if log_z_kind not in APPROXIMATE:
        return record
    advice = f"Use log_z='ais', because ln Z is approximate (log_z={log_z_kind!r})."
    return replace(record, remedy=f"{record.remedy} {advice}".strip())


def held_out_record(
    scored: Scored, scores: np.ndarray, log_shares: np.ndarray, advice: str
) -> LossRecord:
    """Return the log-losses of held-out class scores (N, K) and of the class proportions.

    `log_shares` (F, K) contains the log class proportions of the training rows of each fold.
    """
    return LossRecord(
        scored.log_loss(scores), scored.log_loss(log_shares[scored.fold]), HELD_OUT, advice
    )


def check_training(
    sample: Rows,
    result: Estimate,
    labels: Labels,
    engine: Engine,
    advice: str,
    held_out: LossRecord | None = None,
    stacklevel: int = 3,
) -> LossRecord | None:
    """Return the log-loss of a fit: `held_out` if given, otherwise the loss on its training rows.

    A warning is issued if the held-out or training log-loss exceeds the log-loss of the class
    proportions, or if the training log-loss clearly exceeds that of naive Bayes. The result is None
    for a single group, or if scoring the training rows would take too long. `advice` is a sentence
    on how to lower the loss.
    """
    layout = result.parameters.layout
    K = len(labels.groups)
    # number of parameters looked up to score a row: one for each table, group and draw
    cost = (
        K
        * (1.0 + layout.n_terms)
        * (1 if result.predictive is None else result.predictive.theta.shape[1])
    )
    # kind "none": the predictors are not modelled, so missing values cannot be averaged over
    rows, is_complete = training_rows(
        sample, layout.n_levels, K, cost, no_missing=result.log_z_kind == "none"
    )
    if not rows.n or layout.D > MAX_LEVELS:
        return held_out
    scores = _class_scores(result, rows)
    training = (
        None if K == 1 else training_record(rows, is_complete, scores, result.class_prior, advice)
    )
    record = held_out or training
    # if there are both, the held-out log-loss comes first
    worse = next((one for one in (record, training) if one is not None and one.is_worse), None)
    if worse is not None:
        # 1: the frame of this function; `_warn_of_losses` adds it itself
        warn_record(_naming_log_z(worse, result.log_z_kind), stacklevel + 1)
    elif layout.order > 1 and result.location is None and layout.numbers is None:
        counts = level_counts(sample, layout.n_levels, K)
        naive = naive_scores(counts, log_share(result.class_prior), rows, _used_predictors(result))
        text = _describe_excess(scores, naive, rows)
        if text:
            finding = f"On the training rows, the {text}"
            _warn_of_losses(finding, engine, layout, K, result.log_z_kind, stacklevel)
    return record


def warn_record(record: LossRecord | None, stacklevel: int = 3) -> None:
    """Warn if the log-loss in `record` exceeds that of the class proportions.

    No warning is issued if `record` is None.
    """
    if record is not None and record.is_worse:
        # without a remedy, the message only describes the finding
        warnings.warn(
            DataWarning(record.finding, hint=record.remedy or None), stacklevel=stacklevel
        )


def _describe_excess(scores: np.ndarray, naive: np.ndarray, rows: Sample | Scored) -> str:
    """Return a text with both log-losses if `scores` (N, K) are clearly worse than `naive` (N, K).

    The text is empty otherwise. Clearly worse means a difference of more than 5 % and of more than
    three standard errors, where the standard error includes an additional row with a squared
    difference of 1. With a single group (K = 1), scores are log-probabilities of rows.
    """
    is_one_group = scores.shape[1] == 1
    weights = rows.weights
    y = rows.response if isinstance(rows, Sample) else rows.y  # groups of the rows
    loss, naive_loss = (
        -s[:, 0] if is_one_group else row_loss(log_probabilities(s), y) for s in (scores, naive)
    )
    excess = loss - naive_loss
    total = weights.sum()
    mean = weights @ excess / total
    naive_mean = weights @ naive_loss / total
    if mean <= max(
        MIN_ERRORS * np.sqrt(weights @ (excess - mean) ** 2 + 1.0) / total, MIN_EXCESS * naive_mean
    ):
        return ""
    name = "independent predictors" if is_one_group else "naive Bayes"
    return f"log-loss is {weights @ loss / total:.3g}, compared with {naive_mean:.3g} for {name}"


def training_rows(
    sample: Rows, n_levels: np.ndarray, K: int, cost: float, no_missing: bool = False
) -> tuple[Sample, bool]:
    """Return the training rows to score, and whether these are all training rows.

    `cost` is the number of parameters that are looked up to score one row. If there are too many
    rows, a systematic sample with probabilities proportional to weight is used. Rows with many
    missing values are omitted. If `no_missing` is True, all rows with missing values are omitted.
    If all rows are used, the distinct rows of each group are returned in a fixed order. The result
    then does not depend on the order, repetition or source of the rows.
    """
    max_rows = int(np.clip(MAX_LOOKUPS_OF_SAMPLE / cost, MIN_SAMPLE_ROWS, MAX_SAMPLE_ROWS))
    # a row of weight w counts as w rows, but weights may also be less than 1
    total = max(sample.n, sample.total)
    has_all_rows = (
        total * cost <= MAX_LOOKUPS
        and (sample.complete or total <= MAX_SAMPLE_ROWS)
        and not sample.remote
    )
    # all rows of a `Sample`
    rows = sample.draw(sample.n if has_all_rows else max_rows, np.random.default_rng(0))
    is_used = rows.response >= 0
    if rows.missing is not None:
        # number of joint levels of a row's missing predictors, over which scores are averaged
        is_scored = np.where(rows.missing, n_levels, 1).prod(axis=1, dtype=float) <= (
            1 if no_missing else MAX_SUMMED_CELLS
        )
        # rows of unknown groups (response -1) are ignored
        has_all_rows = has_all_rows and bool(is_scored[is_used].all())
        is_used = is_used & is_scored
    rows = rows.rows(is_used)
    return (
        (rows.by_state(n_levels, K), True)
        if has_all_rows
        else (rows.systematic_sample(max_rows), False)
    )


def training_record(
    rows: Sample, is_complete: bool, scores: np.ndarray, shares: np.ndarray, advice: str
) -> LossRecord | None:
    """Return the log-loss of class scores (n, K) of `training_rows`, and of class proportions.

    `is_complete` indicates whether `rows` contains all training rows. If `rows` is a sample, the
    log-loss is returned only if it exceeds the baseline.
    """
    loss, baseline = (
        log_loss(log_probabilities(s), rows.response, rows.weights)
        for s in (scores, np.broadcast_to(log_share(shares), scores.shape))
    )
    record = LossRecord(
        loss,
        baseline,
        TRAINING if is_complete else f"{rows.total:,.0f} {TRAINING} that were scored",
        advice,
    )
    return record if is_complete or record.is_worse else None


def _class_scores(result: Estimate, rows: Sample) -> np.ndarray:
    """Return class scores (n, K) of rows.

    Unless there are posterior draws, the coupling matrices of the groups are built one at a time to
    save memory.
    """
    if result.predictive is not None or result.location is not None:
        return result.class_scores(rows.codes, rows.missing)
    layout = result.parameters.layout
    theta = result.parameters.theta

    def marginal_energies(codes: np.ndarray, unknown: np.ndarray | None) -> np.ndarray:
        """Return the energies (n, K) of rows, marginalised over unknown cells (n, m)."""
        models = (
            MarginalEnergy(layout.of_group(g), group_theta[None])
            for g, group_theta in enumerate(theta)
        )
        return np.column_stack([model(codes, unknown) for model in models])

    return result.scores_by(marginal_energies, rows.codes, rows.missing)


def _used_predictors(result: Estimate) -> np.ndarray:
    """Return the predictors whose fields differ between groups, or all predictors for one group.

    If naive Bayes used many more predictors than the model, it would fit the training rows better
    regardless of its predictions for new rows.
    """
    layout = result.parameters.layout
    theta = result.parameters.theta
    if len(theta) == 1:
        return np.arange(layout.m)
    is_different = (theta[:, : layout.D] != theta[0, : layout.D]).any(axis=0)
    n_before = np.concatenate([[0], np.cumsum(is_different)])  # number before each column
    return np.flatnonzero(np.diff(n_before[layout.start]))


def naive_scores(
    counts: Sequence[np.ndarray],
    log_shares: np.ndarray,
    rows: Sample,
    predictors: Iterable[int] | None = None,
) -> np.ndarray:
    """Return the class scores (n, K) of `rows` under naive Bayes, as fitted by `BASELINE`.

    The score of group g is ``ln share_g + sum_i ln P(x_i | g)``, where ``P(a | g) = (n_a + prior /
    L_i) / (n + prior)`` if n_a of the group's n rows have level a. `counts` contains the level
    counts (K, L_i) of each predictor in each group, and `log_shares` (K,) the log class
    proportions. Missing values are ignored. By default, all `predictors` are used.
    """
    scores = np.tile(log_shares, (rows.n, 1))
    prior_count = BASELINE.prior_count
    for i in range(len(counts)) if predictors is None else predictors:
        n = counts[i]
        # proportions (K, L_i) of the levels of predictor i
        shares = (n + prior_count / n.shape[1]) / (n.sum(axis=1, keepdims=True) + prior_count)
        log_p = np.log(shares).T[rows.codes[:, i]]  # (n, K)
        scores += log_p if rows.missing is None else np.where(rows.missing[:, [i]], 0.0, log_p)
    return scores


def check_validation(
    sample: Rows,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    folds: AnyFolds,
    scored: Scored,
    scores: np.ndarray,
    workers: int,
    advice: str,
    log_z_kind: str,
    stacklevel: int = 3,
) -> LossRecord | None:
    """Return the validation log-loss of `scores` (N, K).

    A warning is issued if it exceeds the log-loss of the class proportions or of naive Bayes.
    `scores` contains the calibrated scores at the selected setting, for the rows in `scored`, fold
    by fold. `advice` is a sentence on how to lower the loss, and `log_z_kind` specifies how ln Z is
    computed.
    """
    K = len(labels.groups)
    log_shares = fold_log_shares(sample, folds, K)
    record = None if K == 1 else held_out_record(scored, scores, log_shares, advice)
    # the terms of the formula that the engine fits
    fitted_layout = engine.layout(cast(Sample, sample), layout)
    if record is not None and record.is_worse:
        warn_record(_naming_log_z(record, log_z_kind), stacklevel + 1)
    elif fitted_layout.order > 1 and layout.numbers is None:  # naive Bayes of levels
        if K > 1 and sample.in_memory and sample.complete:
            held_out_rows = [
                sample.rows(scored.rows[scored.fold == fold]) for fold in range(len(folds))
            ]
            training_samples = [folds.one(fold).training(sample) for fold in range(len(folds))]
            by_fold = zip(training_samples, log_shares, held_out_rows, strict=True)
            naive = np.concatenate(  # fold by fold, like `scores`
                [
                    naive_scores(level_counts(rows, layout.n_levels, K), shares, validation_rows)
                    for rows, shares, validation_rows in by_fold
                ]
            )
        # without complete rows in memory to count, naive Bayes is fitted to the folds
        else:
            data = FitData(sample, layout, K, labels)
            spec = FitSpec(BASELINE, workers=workers)
            naive = validate(data, spec, None, folds, score_method=scored.score_method).scores[0]
        text = _describe_excess(scores, naive, scored)
        if text:
            _warn_of_losses(
                f"On the held-out rows, the {text}",
                engine,
                fitted_layout,
                K,
                log_z_kind,
                stacklevel,
            )
    return record


def _warn_of_losses(
    finding: str, engine: Engine, layout: Layout, K: int, log_z_kind: str, stacklevel: int
) -> None:
    """Issue a DataWarning about large log-losses, with remedies for this model.

    `finding` describes the losses and is the first part of the message.
    """
    remedies = ["Calibrate them (calibrate='offset' or 'temperature')"] if K > 1 else []
    if engine.tuned is not None:
        name = engine.tuned.option
        remedies.append(
            f"choose {name} by log-loss (crossVal with score='logloss', or {name}='cv')"
        )
    if log_z_kind in APPROXIMATE:
        remedies.append("use log_z='ais' for a more accurate ln Z")
    if layout.order > 1:
        remedies.append(f"use method={BASELINE.name!r}")
    unreliable = "probabilities, and possibly the predicted groups," if K > 1 else "probabilities"
    advice = ", or ".join(remedies)
    warnings.warn(
        DataWarning(
            f"{finding}: ln Z is inaccurate, or the penalty or the formula is unsuitable for "
            f"these data, so the {unreliable} are unreliable.",
            hint=f"{advice[:1].upper()}{advice[1:]}.",
        ),
        stacklevel=stacklevel + 1,
    )


def warn_ordered(sample: Rows, folds: AnyFolds, labels: Labels, stacklevel: int = 3) -> None:
    """Warn if levels are distributed over the folds more unevenly than expected (p < 1 %).

    Each predictor and each of its levels, including missing values, is tested within the groups,
    with Bonferroni's correction.
    """
    n_levels = [len(levels_of_one) for levels_of_one in labels.levels]
    # for each fold and predictor: counts (K, L_i) in the validation rows, with missing values as an
    # additional level
    validation_counts = [
        folds.one(fold).validation_counts(sample, n_levels, len(labels.groups))
        for fold in range(len(folds))
    ]
    # for each predictor: (K, F, L_i)
    tables = [np.stack(by_fold, axis=1) for by_fold in zip(*validation_counts, strict=True)]
    log_p = np.empty(len(n_levels))
    # process tables of the same shape together, because there may be thousands
    for shape in {table.shape for table in tables}:
        predictors = [i for i, table in enumerate(tables) if table.shape == shape]
        # counts (predictors, K, folds, levels), then tables of one level against all others, with
        # levels as axis 1
        stacked = np.stack([tables[i] for i in predictors])
        by_level = np.moveaxis(stacked, -1, 1)
        # log_p_bound: upper bound on ln p for the independence of levels and folds in each group,
        # over the last 3 axes
        level_log_p = log_p_bound(
            np.stack([by_level, stacked.sum(axis=-1)[:, None] - by_level], axis=-1)
        )
        log_p[predictors] = np.minimum(log_p_bound(stacked), level_log_p.min(axis=1))
    # one test for each predictor, each level, and the missing values of each predictor
    n_tests = len(n_levels) + sum(n_levels) + (0 if sample.complete else len(n_levels))
    log_p += np.log(n_tests)
    unevenly_spread = np.flatnonzero(log_p <= np.log(MAX_FALSE_ALARMS))
    if len(unevenly_spread):
        ordered_by_p = unevenly_spread[np.argsort(log_p[unevenly_spread], kind="stable")]
        names = ", ".join(repr(labels.names[i]) for i in ordered_by_p[:3]) + (
            f" and {len(ordered_by_p) - 3} more" if len(ordered_by_p) > 3 else ""
        )
        # integer weights are numbers of copies, which are assigned to folds individually
        cause = (
            "The rows are ordered, or copies of weighted rows are adjacent"
            if sample.whole and not sample.unweighted
            else "The rows are ordered"
        )
        warnings.warn(
            DataWarning(
                f"The levels of {names} are distributed over the consecutive folds more unevenly "
                f"than expected by chance (p < {MAX_FALSE_ALARMS}). {cause}, so each fold is "
                "validated on rows that differ from its training rows.",
                hint="Use shuffle=True with a seed.",
            ),
            stacklevel=stacklevel,
        )


def log_loss_advice(data: FitData, calibrate: str, option: str | None = None) -> str:
    """Return the hint for a log-loss that exceeds that of the class proportions (see `remedy`)."""
    # method="auto" accepts integer weights and terms up to an order, and requires all rows in
    # memory
    can_average = (
        data.index is not None and data.rows.whole and data.layout.order <= PREPARED_AS.order
    )
    return remedy(calibrate, can_average, option)
