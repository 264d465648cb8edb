"""Fit P(group | row) jointly for all groups, optionally starting from a generative fit.

A *generative* fit models P(row | group) separately for each group. The class score of group g is
``temperature (ln share_g - ln Z_g + start energy_g) + energy_g + constant_g``: the score of the
generative start times a fitted temperature, plus the energy and constant of the joint fit. K is the
number of groups and m the number of predictors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from bbl.crossval import cross_validate, score_settings
from bbl.engines import Engine, EngineFit
from bbl.engines.engine_fit import Limit, Note
from bbl.engines.traits import JointTraits, OutOfFoldScores
from bbl.model.layout import Layout
from bbl.rows.folds import shuffled_folds
from bbl.rows.sample import Sample

__all__ = ["Joint", "joint_path"]

NFOLD = 5  # number of folds for scoring and tuning the start


class Joint(NamedTuple):
    """The joint fit at one setting, including the class scores at its starting point.

    Attributes
    ----------
    theta : ndarray, shape (K, layout.size)
        Parameters of all groups.
    constant : ndarray, shape (K,)
        Constants that are added to the energies of the groups to obtain class scores.
    fits : tuple of EngineFit
        The fit of each group.
    """

    theta: np.ndarray
    constant: np.ndarray
    fits: tuple[EngineFit, ...]


def joint_path(
    sample: Sample,
    layout: Layout,
    K: int,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    fit_start: Callable[..., list],
    rng: np.random.Generator,
    start: tuple[OutOfFoldScores, Any] | None = None,
    coefficients: np.ndarray | None = None,
) -> list[Joint]:
    """Fit all groups at each of the `values` of the engine's tuned option.

    Parameters
    ----------
    fit_start : callable
        ``fit_start(sample, engine, values, rng)`` fits groups separately and returns an `Estimate`
        for each value.
    start : (OutOfFoldScores, Estimate), optional
        Out-of-fold scores of the start and its fit to all rows, if already computed. The scores
        refer to rows by position, so the row order of `sample` is kept.
    coefficients : ndarray, shape (K, 1 + layout.size), optional
        Coefficients from a fit with different weights, used as starting values for an unpenalised
        fit. They are independent of `start`.
    """
    if sample.in_memory:
        engine.check_missing(sample)
    if K < 2:
        engine.path(sample, layout)  # raises an OptionError: joint engines cannot fit single groups
    oof_scores = None
    start_theta = np.zeros((K, layout.size))
    start_constant = np.zeros(K)
    # rows are merged and sorted, so that results do not depend on their order or repetition
    if start is None and sample.in_memory:
        sample = sample.by_state(layout.n_levels, K)
    traits = cast(JointTraits, engine.joint)
    # (engine of the start, its settings to try); None if there is no start
    start_arguments = traits.start(engine)
    if start_arguments is not None:
        oof_scores, start_fit = start or _tune_start(sample, *start_arguments, fit_start, rng)
        start_theta = start_fit.parameters.theta
        # (K,) ln share - ln Z of the start, where ln 0 is replaced by 0
        start_constant = (
            np.log(np.where(start_fit.class_prior > 0.0, start_fit.class_prior, 1.0))
            - start_fit.log_z
        )
    results = []
    for joint_fit in traits.fit_groups(
        engine, sample, layout, K, values, oof_scores, rng, coefficients
    ):
        added_theta = joint_fit.theta
        temperature = joint_fit.temperature
        notes: tuple[Note, ...] = ()
        if not (joint_fit.converged or engine.stops_early):
            detail = f"largest gradient {joint_fit.gradient:.2g} in scaled parameters"
            # -1: no single predictor or level
            notes = (
                Note(-1, -1, "the joint fit did not converge", detail, hint="Increase ridge."),
            )
        # all predictors get the convergence figures of the joint fit; theta is replaced below
        group_fit = EngineFit(
            np.zeros(0),
            -joint_fit.loss,
            grad_norm=np.full(layout.m, joint_fit.gradient),
            n_iter=np.full(layout.m, joint_fit.evaluations),
            converged=np.full(layout.m, joint_fit.converged),
            notes=notes,
        )
        fits = [
            # once
            replace(
                group_fit,
                theta=temperature * start_theta[g] + added_theta[g],
                notes=notes * (g == 0),
            )
            for g in range(K)
        ]
        if joint_fit.limits is not None:
            fits = [
                _with_limit(fit, limit) for fit, limit in zip(fits, joint_fit.limits, strict=True)
            ]
        results.append(
            Joint(
                np.array([fit.theta for fit in fits]),
                temperature * start_constant + joint_fit.constant,
                tuple(fits),
            )
        )
    return results


def _with_limit(fit: EngineFit, limit: Limit) -> EngineFit:
    """Copy `limit` to a group's fit, and mark unbounded predictors as not converged."""
    converged = fit.converged.copy()
    # the first number of an unbounded parameter is a predictor
    converged[[i for i, *_ in limit.unbounded]] = False
    return replace(
        fit,
        converged=converged,
        notes=(*fit.notes, *limit.notes),
        unbounded=limit.unbounded,
        rank=limit.rank,
        remedy=limit.remedy,
    )


def _tune_start(
    sample: Sample,
    engine: Engine,
    values: Sequence[float] | None,
    fit_start: Callable,
    rng: np.random.Generator,
) -> tuple[OutOfFoldScores, Any]:
    """Return out-of-fold class scores of the start at its best setting, and its fit to all rows.

    `values` contains the settings to compare, or is None for the engine's own setting. `fit_start`
    is the same as in `joint_path`.
    """
    folds = shuffled_folds(sample, NFOLD, rng)

    def fit(train: Sample, fold_rng: np.random.Generator) -> list:
        """Return the generative fits to the training rows of a fold, one for each setting."""
        return fit_start(train, engine, values, fold_rng)

    # one generator for each fold, the last argument of `fit`
    scored = cross_validate(sample, folds, fit, [(fold_rng,) for fold_rng in rng.spawn(NFOLD)])
    # `score_settings` returns the scores of all settings, and the position of the best
    best = score_settings(scored, "logloss", "temperature")[1] if values is not None else 0
    if values is not None:
        engine = engine.at(float(values[best]))
    # scored.scores (settings, N, K)
    return OutOfFoldScores(scored.rows, scored.weights, scored.scores[best]), fit_start(
        sample, engine, None, rng
    )[0]
