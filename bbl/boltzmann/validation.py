"""Cross-validation of Boltzmann machines at each setting of the tuned option."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from bbl.boltzmann.estimate import check_annealing, estimate_path, guard_memory
from bbl.boltzmann.fitted import Estimate, Problem, list_problems
from bbl.boltzmann.job import FitData, FitSpec
from bbl.crossval import Scored, cross_validate
from bbl.design.labels import Labels
from bbl.engines.base import WarmStarts
from bbl.rows.fold_assignment import AnyFolds
from bbl.rows.on_disk import Rows

__all__ = ["Validated", "validate"]


@dataclass(frozen=True)
class Validated(Scored):
    """Class scores of all held-out rows, pooled over the folds.

    `fits` contains only the fits to the last fold. The other attributes are inherited from
    `Scored`: the `scores` (settings, N, K) of the N held-out rows; their groups `y`, `weights`,
    `fold` and positions `rows` in the sample, all of shape (N,); and `score_method`, the name of
    the scoring method.

    Attributes
    ----------
    found : list of Problem
        Problems of fits that did not converge, with their folds.
    """

    found: list[Problem]

    @property
    def last(self) -> list[Estimate]:
        """The fits to the last fold, one for each setting."""
        return self.fits[-1]


def validate(
    data: FitData,
    spec: FitSpec,
    values: Sequence[float] | np.ndarray | None,
    folds: AnyFolds,
    *,
    progress: Callable | None = None,
    warm_start_sets: Sequence[Sequence[WarmStarts]] | None = None,
    score_method: str = "class_scores",
) -> Validated:
    """Fit the training rows of each fold at each setting, and score the validation rows.

    `values` contains the settings, or is None for the engine's own setting. If `warm_start_sets`
    (one for each fold) are given, fits stop as soon as they are precise enough to compare settings
    (see `Engine.compare`), and their site solutions are added to the sets. `score_method` is the
    name of the method of `Estimate` that scores rows.
    """
    labels = cast(Labels, data.labels)
    nfold = len(folds)
    fitted_layout = spec.engine.layout(data.nominal.rows, data.layout)
    n_models = data.K * nfold * (1 if values is None else len(values))
    check_annealing(spec.log_z, fitted_layout, n_models, spec.workers)
    n_parallel = min(spec.workers, nfold)
    if spec.relevance is None:  # otherwise each fit checks the memory for its chosen predictors
        guard_memory(
            data.sample, fitted_layout, data.K, spec.engine, values, n_parallel, folds=nfold
        )
    # without the table of the rows, because the job is sent to other processes
    fit = partial(_fit_fold, data.with_sample(data.sample), spec, values)
    fold_tasks = list(  # last arguments of `_fit_fold`
        zip(
            spec.rng.spawn(nfold),
            [None] * nfold if warm_start_sets is None else warm_start_sets,
            strict=True,
        )
    )
    scored = cross_validate(
        data.sample,
        folds,
        fit,
        fold_tasks,
        score_method=score_method,
        workers=spec.workers,
        progress=progress,
    )
    if warm_start_sets is not None and values is not None:
        for fits, warm_starts in zip(scored.fits, warm_start_sets, strict=True):
            _add_warm_starts(warm_starts, values, fits)
    fold_problems = [
        problem._replace(group=f"fold {fold + 1}, {problem.group}")
        for fold, fits in enumerate(scored.fits)
        for fold_estimate in fits
        for problem in list_problems(fold_estimate.fits, labels)
    ]
    last_fit = scored.fits[-1:]  # keeping the fits of all folds might fill the memory
    # other fields as in `scored`
    return Validated(**{**vars(scored), "fits": last_fit}, found=fold_problems)


def _fit_fold(
    data: FitData,
    spec: FitSpec,
    values: Sequence[float] | np.ndarray | None,
    train: Rows,
    rng: np.random.Generator,
    warm_starts: Sequence[WarmStarts] | None,
) -> list[Estimate]:
    """Fit the training rows of a fold at each of the `values`, with warm starts for each group."""
    fold_spec = replace(spec, rng=rng, workers=1)
    return estimate_path(data.with_sample(train), fold_spec, values, warm_start_sets=warm_starts)


def _add_warm_starts(
    warm_starts: Sequence[WarmStarts],
    values: Sequence[float] | np.ndarray,
    fits: Sequence[Estimate],
) -> None:
    """Add the site solutions in a fold's `fits` (one fit for each value) to its warm starts."""
    for value, fold_estimate in zip(values, fits, strict=True):
        for group_starts, group_fit in zip(warm_starts, fold_estimate.fits, strict=True):
            if group_fit.site_theta is not None:  # None for groups without rows
                group_starts[float(value)] = group_fit.site_theta
