"""Cross-validation of Boltzmann machines: every setting on every fold; fits that did not converge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from bbl.boltzmann.convergence_warnings import Problem, problems
from bbl.boltzmann.cost_limits import check_annealing, guard_memory
from bbl.boltzmann.estimate import Estimate, estimate_path
from bbl.crossval import Scored, cross_validate
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.warm_starts import WarmStarts
from bbl.model.layout import Layout
from bbl.rows.dealing import AnyFolds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["Validated", "validate"]


@dataclass(frozen=True)
class Validated(Scored):
    """Pooled validation predictions of Boltzmann machines.

    Attributes
    ----------
    found : list of Problem
        Fits that did not converge.
    """

    found: list[Problem]

    @property
    def last(self) -> list[Estimate]:
        """The last fold's fit at each setting."""
        return self.fits[-1]


def validate(
    sample: Rows,
    labels: Labels,
    layout: Layout,
    engine: Engine,
    values: Sequence[float] | np.ndarray | None,
    folds: AnyFolds,
    *,
    log_z: str,
    workers: int,
    rng: np.random.Generator,
    progress: Callable | None = None,
    warm_start_sets: Sequence[Sequence[WarmStarts]] | None = None,
    judge: str = "class_scores",
) -> Validated:
    """Fit every setting on every fold; the settings of a fold share warm starts or one eigendecomposition.

    With `warm_start_sets`, one for each fold, fits are precise enough to compare settings, see `Engine.compare`; their
    solutions are added to the sets. `judge` is the method of `Estimate` that scores rows.
    """
    K, nfold = len(labels.groups), len(folds)
    fitted = engine.layout(cast(Sample, sample), layout)
    models = K * nfold * (1 if values is None else len(values))
    check_annealing(log_z, fitted, models, workers)
    guard_memory(sample, fitted, K, engine, values, min(workers, nfold), folds=nfold)
    fit = partial(_fit_fold, labels, layout, engine, values, log_z)
    fold_tasks = list(
        zip(rng.spawn(nfold), [None] * nfold if warm_start_sets is None else warm_start_sets, strict=True)
    )
    scored = cross_validate(sample, folds, fit, fold_tasks, judge=judge, workers=workers, progress=progress)
    if warm_start_sets is not None and values is not None:
        for fits, warm_starts in zip(scored.fits, warm_start_sets, strict=True):
            _extend(warm_starts, values, fits)
    fold_problems = [
        problem._replace(group=f"fold {f + 1}, {problem.group}")
        for f, fits in enumerate(scored.fits)
        for fold_estimate in fits
        for problem in problems(fold_estimate.fits, labels)
    ]
    last_fit = scored.fits[-1:]  # those of all folds may fill the memory
    return Validated(**{**vars(scored), "fits": last_fit}, found=fold_problems)


def _fit_fold(
    labels: Labels,
    layout: Layout,
    engine: Engine,
    values,
    log_z: str,
    train: Rows,
    rng: np.random.Generator,
    warm_starts: Sequence[WarmStarts] | None,
) -> list[Estimate]:
    K = len(labels.groups)
    return estimate_path(
        train, layout, K, engine, values, log_z=log_z, rng=rng, labels=labels, warm_start_sets=warm_starts
    )


def _extend(warm_starts: Sequence[WarmStarts], values: Sequence[float] | np.ndarray, fits: Sequence[Estimate]) -> None:
    """Add the solutions of a fold at these settings to the warm starts of its groups."""
    for value, fold_estimate in zip(values, fits, strict=True):
        for group_starts, group_fit in zip(warm_starts, fold_estimate.fits, strict=True):
            if group_fit.site_theta is not None:  # None in a group without rows
                group_starts[float(value)] = group_fit.site_theta
