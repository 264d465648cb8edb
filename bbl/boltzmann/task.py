"""Task: what a Boltzmann machine is fitted to. Run: how the fit is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from bbl.boltzmann.fitted import Relevance
from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.rows.on_disk import Rows

__all__ = ["Run", "Task"]


@dataclass(frozen=True)
class Task:
    """Rows, groups and terms that are fitted, and how ln Z, the log normalising constant of each
    group, is computed.

    Attributes
    ----------
    sample : Rows
        Encoded rows of all groups: a `Sample` in memory, or rows in a file or on a cluster.
    layout : Layout
        Predictors and terms, before an engine changes them.
    K : int
        Number of groups.
    log_z : str
        How ln Z is computed; see `bbl.bbl`.
    labels : Labels, optional
        Names of groups and predictors, for errors.
    pooled : bool
        Whether all rows are fitted too, as one group.
    relevance : float, optional
        Significance level at which predictors are chosen that differ between groups (see
        `bbl.boltzmann.relevance`); None for all.
    selections : dict, optional
        Predictors that were chosen already, by the rows (see
        `bbl.boltzmann.relevance.choose_once`): shared by tasks that are fitted to the same rows by
        different engines.
    """

    sample: Rows
    layout: Layout
    K: int
    log_z: str = "auto"
    labels: Labels | None = None
    pooled: bool = False
    relevance: float | None = None
    selections: dict[bytes, Relevance] | None = None

    def with_sample(self, sample: Rows) -> Task:
        """Return the same task for other rows of the same predictors, without the pooled fit."""
        return replace(self, sample=sample, pooled=False)


@dataclass(frozen=True)
class Run:
    """How a fit is computed.

    Attributes
    ----------
    workers : int
        Number of threads; results do not depend on it.
    rng : Generator
        Source of random numbers; default: from a fixed seed.
    progress : callable, optional
        ``progress(share=1.0, note="")`` is called as the fit goes on.
    start : ndarray, optional
        Coefficients (K, 1 + layout.size), intercepts and parameters, of a fit to the same rows with
        other weights, at which engines that iterate begin; (1 + layout.size,) where a run is of one
        group.
    """

    workers: int = 1
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    progress: Callable | None = None
    start: np.ndarray | None = None

    def reporting(self, progress: Callable | None) -> Run:
        """Return the same run with another `progress`."""
        return replace(self, progress=progress)
