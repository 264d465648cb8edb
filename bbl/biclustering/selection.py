"""Two-way clustering by block prototypes from many starts, and selection of the numbers of
groups.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bbl.biclustering.bicluster_fit import BiclusterFit, draw_seeds, set_options
from bbl.biclustering.cells import Cells
from bbl.biclustering.likelihood import Noise, block_criterion
from bbl.biclustering.prototype import METRICS, PrototypeFit, fit_once, make_tables
from bbl.biclustering.starts import STARTS, Starts
from bbl.checks import choice, integer, real
from bbl.errors import DataWarning, OptionError
from bbl.memory import check_memory
from bbl.parallel import run_tasks

__all__ = ["Prototype"]

# fits are tied if their objectives differ by less than this proportion of the largest starting
# objective
TIED = 1e-9


@dataclass(frozen=True)
class Prototype:
    """Cluster rows and columns by assigning them to the closest block prototypes.

    Parameters
    ----------
    metric : {"squared", "levels", "pearson"}, default "squared"
        "squared": sum of squares. "levels": deviance, with a distribution of levels for each block.
        "pearson": ``1 - r``, where r is the correlation between a row and a prototype.
    move : {"all", "one"}, default "all"
        Whether all rows are moved at once, or one after another, which takes longer but reaches a
        lower objective (only for "squared").
    start : {"kmeans", "hierarchical", "random"}, default "kmeans"
        Initial groups of rows and columns. "kmeans": k-means++ and a few steps of Lloyd's
        algorithm. "hierarchical": Ward's clustering, which compares all pairs of rows; there is
        only one start, regardless of `n_init`. "random": assignment to the nearest of several
        random rows, as in Li (2014).
    empty : {"reseed", "drop"}, default "reseed"
        Whether an empty group receives the worst-fitting row or is dropped.
    fill : float, optional
        Mean of blocks without cells; by default, 3 for ratings from 1 to 5, and otherwise the mean
        of all cells.
    prior_count : float, default 1.0
        Prior count that is divided among the levels of each block, for "levels".
    max_iter : int, default 100
    max_groups : int, default 10
        Maximum number of row groups and of column groups to try if `groups` is not given.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.
    """

    metric: str = "squared"
    move: str = "all"
    start: str = "kmeans"
    empty: str = "reseed"
    fill: float | None = None
    prior_count: float = 1.0
    max_iter: int = 100
    max_groups: int = 10
    name: ClassVar[str] = "prototype"

    def __post_init__(self):
        choice("metric", self.metric, METRICS)
        if choice("move", self.move, ("all", "one")) == "one" and self.metric != "squared":
            raise OptionError(
                f"move='one' needs metric='squared', not {self.metric!r}.", argument="move"
            )
        choice("start", self.start, STARTS)
        choice("empty", self.empty, ("reseed", "drop"))
        set_options(
            self,
            fill=None if self.fill is None else real("fill", self.fill),
            prior_count=real("prior_count", self.prior_count, 0.0, open_low=True),
            max_iter=integer("max_iter", self.max_iter, 1),
            max_groups=integer("max_groups", self.max_groups, 1),
        )

    @property
    def response(self) -> str:
        """Kind of cells that the metric requires: "levels" (categorical) or "numeric"."""
        return "levels" if self.metric == "levels" else "numeric"

    def steps(self, n_init: int, groups: tuple[int, int] | None, shape: tuple[int, int]) -> int:
        """Return the number of tasks for the progress bar, which is the total number of starts over
        all numbers of groups.
        """
        return self._n_starts(n_init) * len(self._grid(groups, shape))

    def _n_starts(self, n_init: int) -> int:
        """Return the number of starts for each pair of numbers of groups."""
        return 1 if self.start == "hierarchical" else n_init

    def _grid(
        self, groups: tuple[int, int] | None, shape: tuple[int, int]
    ) -> list[tuple[int, int]]:
        """Return the numbers of row groups and column groups to try: the given ones, or all up to
        `max_groups`.
        """
        if groups is not None:
            return [groups]
        if self.metric == "pearson":
            raise OptionError(
                "metric='pearson' does not define a likelihood, so the numbers of groups cannot "
                "be selected.",
                argument="groups",
                hint="Use groups=(rows, columns).",
            )
        largest = [min(n, self.max_groups) for n in shape]
        return list(itertools.product(range(1, largest[0] + 1), range(1, largest[1] + 1)))

    def empty_block_mean(self, cells: Cells) -> float:
        """Return the mean of blocks without cells, which is the option `fill` or its default."""
        if self.fill is not None:
            return self.fill
        value = cells.value
        are_ratings = value.min() >= 1 and value.max() <= 5 and (value == np.rint(value)).all()
        return 3.0 if are_ratings else float(np.average(value, weights=cells.weight))

    def fit(self, cells, groups, n_init, rng, workers=1, progress=None, n_levels=1) -> BiclusterFit:
        """Run the algorithm from `n_init` starts for each pair of numbers of groups, and return the
        best fit.

        The best fit has the smallest value of the criterion. `groups` is (rows, columns), or None
        to try all up to `max_groups`; `n_levels` is 1 for numeric cells.
        """
        grid = self._grid(groups, cells.shape)
        largest = max(a for a, _ in grid), max(b for _, b in grid)  # numbers of groups
        # four numbers for each line (row or column) and group in each worker; for each cell, the
        # table, the cells of the starts, and the transposes of both
        check_memory(
            32.0 * workers * n_levels * sum(cells.shape) * sum(largest)
            + 100.0 * n_levels * cells.n,
            f"Clustering a {cells.shape[0]} x {cells.shape[1]} table with {cells.n} observed cells",
            "Use fewer groups or fewer threads (n_jobs).",
        )
        fill = self.prior_count if self.metric == "levels" else self.empty_block_mean(cells)
        table, start_cells = make_tables(cells, self.metric, n_levels, fill)
        table.cells.T  # noqa: B018  the transpose is cached here once, for all threads
        starts = Starts.from_cells(start_cells, n_levels, self.start)
        n_init = self._n_starts(n_init)
        options = {"max_iter": self.max_iter, "move": self.move, "empty": self.empty}
        tasks = [
            (table, starts, size, seed, options)
            for size in grid
            for seed in draw_seeds(rng, n_init)
        ]
        fits = run_tasks(fit_once, tasks, workers, progress)
        # best_fits: (fit, groups, criterion)
        best_fits = []
        noise = Noise.from_cells(cells)
        for k, size in enumerate(grid):  # size: the numbers (a, b) of groups
            best = _choose_fit(fits[k * n_init : (k + 1) * n_init])
            criterion = best.value  # not changed for "pearson", which has a single size
            if self.metric != "pearson":
                criterion = block_criterion(
                    cells, best.rows, best.columns, best.value, n_levels, noise
                )
            best_fits.append((best, size, criterion))
        best, size, criterion = min(best_fits, key=lambda candidate: candidate[2])
        if groups is None:
            self._warn_border(best, cells.shape)
        selection = (
            None
            if groups is not None
            else [(*size, fit.value, score) for fit, size, score in best_fits]
        )
        return BiclusterFit(
            best.rows, best.columns, criterion, best.history, best.n_iter, best.converged, selection
        )

    def _warn_border(self, best: PrototypeFit, shape: tuple[int, int]) -> None:
        """Warn if a selected number of groups is the largest that was tried, but not the largest
        possible number.
        """
        chosen = int(best.rows.max()) + 1, int(best.columns.max()) + 1
        if any(k == self.max_groups < n for k, n in zip(chosen, shape, strict=True)):
            warnings.warn(
                DataWarning(
                    f"The criterion chose {chosen[0]} x {chosen[1]} groups, the largest number "
                    "tried.",
                    hint=f"Increase max_groups above {self.max_groups}, or pass groups=.",
                ),
                stacklevel=5,
            )


def _choose_fit(fits: list[PrototypeFit]) -> PrototypeFit:
    """Return the fit with the smallest objective; if several are tied up to rounding, return the
    first.
    """
    least = min(fit.value for fit in fits)
    # history[0]: the objective at the start
    tolerance = TIED * max(abs(fit.history[0]) for fit in fits)
    return next(fit for fit in fits if fit.value <= least + tolerance)
