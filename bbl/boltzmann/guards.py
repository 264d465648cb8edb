"""What a fit is warned of: probabilities worse than those of naive Bayes, and folds of ordered rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.validation import validate
from bbl.crossval import Scored
from bbl.design.labels import Labels
from bbl.engines import BASELINE, Engine
from bbl.errors import DataWarning
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.model.moments import level_counts
from bbl.rows.dealing import AnyFolds
from bbl.rows.sample import Sample
from bbl.rows.stored import Rows, StoredSample
from bbl.stats.metrics import row_loss
from bbl.stats.ordering import log_p_bound
from bbl.stats.scores import log_probabilities

__all__ = ["warn_ordered", "warn_training", "warn_validation"]

ROWS, FEWEST, WORK = 2000, 100, 2e8  # training rows that are looked at, and lookups of couplings
WIDEST = 8192  # non-reference levels: beyond, a group's couplings as a matrix would take over half a GiB
SIGMAS, SLACK = 3.0, 0.05
LEVEL = 0.01
NAIVE, SHARES = "naive Bayes", "the shares of the groups"


def _worse(scores: np.ndarray, others: Mapping[str, np.ndarray], y: np.ndarray, weights: np.ndarray) -> str:
    """Return, in words, which log-losses are smaller than that of `scores` (N, K) beyond chance; empty if none is.

    That is by over 5 %, and over three standard errors of the mean difference, to which one more row that differs
    by 1 is added. Of one group it is the log-loss of the rows.
    """
    one = scores.shape[1] == 1
    own, *references = (-s[:, 0] if one else row_loss(log_probabilities(s), y) for s in (scores, *others.values()))
    total = weights.sum()
    found = []
    for name, reference in zip(others, references, strict=True):
        gap = own - reference
        mean, level = weights @ gap / total, weights @ reference / total
        if mean > max(SIGMAS * np.sqrt(weights @ (gap - mean) ** 2 + 1.0) / total, SLACK * level):
            found.append(f"{level:.3g} of {name}")
    return f"log-loss is {weights @ own / total:.3g}, against {' and '.join(found)}" if found else ""


def _probe(sample: Rows, layout: Layout, K: int) -> Sample:
    """Return the rows without missing values; of many, as many as are cheap, evenly by weight."""
    most = int(np.clip(WORK / (K * (1 + layout.n_terms)), FEWEST, ROWS))
    sample = sample.draw(most, np.random.default_rng(0)) if isinstance(sample, StoredSample) else sample
    rows = sample if sample.missing is None else sample.rows(~sample.missing.any(axis=1))
    if rows.n <= most:
        return rows
    at = (np.arange(most) + 0.5) * (rows.total / most)
    taken = np.searchsorted(np.cumsum(rows.weights), at, side="right")
    return rows.weighted(np.bincount(taken, minlength=rows.n).astype(float))


def warn_training(sample: Rows, result: Estimate, labels: Labels, engine: Engine, stacklevel: int = 3) -> None:
    """Warn where a fit's log-loss on its own rows is above that of naive Bayes, or of the shares of the groups."""
    layout, K = result.parameters.layout, len(labels.groups)
    rows = _probe(sample, layout, K)
    if not rows.n or layout.D > WIDEST:
        return
    scores = _scores(result, rows)
    log_share = np.log(result.class_prior)
    others = {} if K == 1 else {SHARES: np.broadcast_to(log_share, scores.shape)}
    if layout.order > 1:
        others = {_naive(K): _naive_scores(sample, layout, log_share, rows), **others}
    found = _worse(scores, others, rows.response, rows.weights)
    if found:
        _warn(f"On the training rows the {found}", engine, layout, K, stacklevel)


def _naive(K: int) -> str:
    return NAIVE if K > 1 else "independent predictors"


def _scores(result: Estimate, rows: Sample) -> np.ndarray:
    layout, theta = result.parameters.layout, result.parameters.theta

    def energy(codes: np.ndarray, _: None) -> np.ndarray:
        return np.column_stack([energies(codes, layout, own[None]) for own in theta])  # one matrix at a time

    return result.scores_by(energy, rows.codes)


def _naive_scores(sample: Rows, layout: Layout, log_share: np.ndarray, rows: Sample) -> np.ndarray:
    """Return the class scores (n, K) of `rows` under naive Bayes as `BASELINE` fits it to `sample`."""
    scores, c = np.tile(log_share, (rows.n, 1)), BASELINE.prior_count
    for i, n in enumerate(level_counts(sample, layout.n_levels, len(log_share))):
        f = (n + c / n.shape[1]) / (n.sum(axis=1, keepdims=True) + c)
        scores += np.log(f).T[rows.codes[:, i]]
    return scores


def warn_validation(
    sample: Rows,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    folds: AnyFolds,
    scored: Scored,
    scores: np.ndarray,
    workers: int,
    stacklevel: int = 3,
) -> None:
    """Warn where the validation log-loss of `scores` (N, K) is above that of naive Bayes, or of the groups' shares."""
    K = len(labels.groups)
    share = np.array([folds.one(f).group_totals(sample, K) for f in range(len(folds))])
    with np.errstate(divide="ignore"):
        shares = np.log(share / share.sum(axis=1, keepdims=True))
    others, fitted = {} if K == 1 else {SHARES: shares[scored.fold]}, engine.layout(cast(Sample, sample), layout)
    if fitted.order > 1 and K > 1 and isinstance(sample, Sample) and sample.complete:
        parts = []
        for f, own in enumerate(shares):
            held = sample.rows(scored.rows[scored.fold == f])
            parts.append(_naive_scores(folds.one(f).training(sample), layout, own, held))
        others = {_naive(K): np.concatenate(parts), **others}
    elif fitted.order > 1:
        rng = np.random.default_rng(0)  # which naive Bayes does not use
        told: dict[str, Any] = {"log_z": "auto", "workers": workers, "rng": rng, "judge": scored.judge}
        naive = validate(sample, labels, layout, BASELINE, None, folds, **told)
        others = {_naive(K): naive.scores[0], **others}
    found = _worse(scores, others, scored.y, scored.weights)
    if found:
        _warn(f"On the validated rows the {found}", engine, fitted, K, stacklevel)


def _warn(what: str, engine: Engine, layout: Layout, K: int, stacklevel: int) -> None:
    remedies = ["Calibrate them (calibrate='offset' or 'temperature')"] if K > 1 else []
    if engine.tuned is not None:
        name = engine.tuned.option
        remedies.append(f"choose {name} by log-loss (crossVal with score='logloss', or {name}='cv')")
    if layout.order > 1:
        remedies.append(f"take method={BASELINE.name!r}")
    of_groups = " and predicted groups may be" * (K > 1)
    remedy = ", or ".join(remedies)
    warnings.warn(
        f"{what}: ln Z, the penalty or the formula does not suit these data, so that probabilities are off{of_groups}. "
        f"{remedy[:1].upper()}{remedy[1:]}.",
        DataWarning,
        stacklevel=stacklevel + 1,
    )


def warn_ordered(sample: Rows, folds: AnyFolds, labels: Labels, stacklevel: int = 3) -> None:
    """Warn where the levels of predictors are not spread over the folds as by chance (at most 1 % of false alarms).

    Every predictor is tested within the groups, whole and level by level, with Bonferroni's correction.
    """
    levels = [len(own) for own in labels.levels]
    held = [folds.one(f).held_counts(sample, levels, len(labels.groups)) for f in range(len(folds))]
    tables = [np.stack(by_fold, axis=1) for by_fold in zip(*held, strict=True)]
    log_p = np.empty(len(levels))
    for shape in {table.shape for table in tables}:  # those of one size together: there can be thousands
        alike = [i for i, table in enumerate(tables) if table.shape == shape]
        table = np.stack([tables[i] for i in alike])
        one = np.moveaxis(table, -1, 1)
        by_level = log_p_bound(np.stack([one, table.sum(axis=-1)[:, None] - one], axis=-1))
        log_p[alike] = np.minimum(log_p_bound(table), by_level.min(axis=1))
    tested = len(levels) + sum(levels) + (0 if sample.complete else len(levels))
    log_p += np.log(tested)
    found = np.flatnonzero(log_p <= np.log(LEVEL))
    if len(found):
        most = found[np.argsort(log_p[found], kind="stable")]
        names = ", ".join(repr(labels.names[i]) for i in most[:3]) + (
            f" and {len(most) - 3} more" if len(most) > 3 else ""
        )
        copies = ", or the copies of weighted rows lie together" if sample.whole and not sample.unweighted else ""
        warnings.warn(
            f"Levels of {names} are not spread over the consecutive folds as by chance (p < {LEVEL}): the rows are "
            f"ordered{copies}. A fold is then validated on other rows than it was trained on. Pass shuffle=True with a "
            "seed.",
            DataWarning,
            stacklevel=stacklevel,
        )
