"""The three methods of two-way clustering: METHODS maps the name given as ``method=`` to its class of options."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import ndtr

from bbl.biclust.cells import Cells
from bbl.biclust.genetic import Evolved, Ratings, evolve
from bbl.biclust.likelihood import Noise, block_criterion
from bbl.biclust.mcmc import Draws, sample
from bbl.biclust.partition import LOSSES, expected_loss, point_partition, similarity
from bbl.biclust.prototype import METRICS, PrototypeFit, fit_once, make_tables
from bbl.checks import choice, flag, integer, near_match, real
from bbl.errors import BBLTypeError, DataError, DataWarning, OptionError
from bbl.memory import check_memory
from bbl.parallel import run_tasks

__all__ = ["METHODS", "Found", "Genetic", "Mcmc", "Prototype", "make_method"]

PENALTIES = {"bic": 1.0, "thesis": 0.5}  # of a block, by ln N
TIED = 1e-9  # of the objective at the start: less is no gain


class Found(NamedTuple):
    """What a method found: labels, the criterion that compares partitions (less is better), and how it got there.

    Attributes
    ----------
    rows, columns : ndarray of int32
        Labels 0..a-1 and 0..b-1, all in use.
    criterion : float
    history : ndarray
        The objective step by step, of the best start; the log posterior of all draws, chain by chain.
    n_iter : int
    converged : bool
    selection : list of (a, b, objective, criterion), or None
        Of every number of groups that was tried.
    evolved : Evolved or None
    draws : Draws or None
        With the chains in front.
    share : (ndarray, ndarray) or None
        Similarity matrices of rows and columns.
    """

    rows: np.ndarray
    columns: np.ndarray
    criterion: float
    history: np.ndarray
    n_iter: int
    converged: bool = True
    selection: list[tuple[int, int, float, float]] | None = None
    evolved: Evolved | None = None
    draws: Draws | None = None
    share: tuple[np.ndarray, np.ndarray] | None = None


def _set(options: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(options, name, value)


def _seeds(rng: np.random.Generator, n: int) -> list[int]:
    return [int(seed) for seed in rng.integers(0, 2**63, n)]


@dataclass(frozen=True)
class Prototype:
    """Prototypes of blocks: rows and columns go to the block means that they are closest to.

    Parameters
    ----------
    metric : {"squared", "levels", "pearson"}, default "squared"
        Sum of squares; the deviance of each block's own distribution of levels; or ``1 - r`` of a row and a prototype.
    move : {"all", "one"}, default "all"
        Whether all rows move at once, or one after the other, which takes longer and ends lower ("squared" only).
    empty : {"reseed", "drop"}, default "reseed"
        Whether an empty group takes the row that fits worst, or is left out.
    fill : float, optional
        Mean of a block without cells; by default 3 for ratings 1 to 5, else the mean of all cells.
    prior_count : float, default 1.0
        Pseudocount spread over the levels of each block, for "levels".
    max_iter : int, default 100
    max_groups : int, default 10
        Largest number of groups, of rows and of columns, that are tried where none are given.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.
    """

    metric: str = "squared"
    move: str = "all"
    empty: str = "reseed"
    fill: float | None = None
    prior_count: float = 1.0
    max_iter: int = 100
    max_groups: int = 10
    name: ClassVar[str] = "prototype"

    def __post_init__(self):
        choice("metric", self.metric, METRICS)
        if choice("move", self.move, ("all", "one")) == "one" and self.metric != "squared":
            raise OptionError(f"move='one' needs metric='squared', not {self.metric!r}.", argument="move")
        choice("empty", self.empty, ("reseed", "drop"))
        _set(
            self,
            fill=None if self.fill is None else real("fill", self.fill),
            prior_count=real("prior_count", self.prior_count, 0.0, open_low=True),
            max_iter=integer("max_iter", self.max_iter, 1),
            max_groups=integer("max_groups", self.max_groups, 1),
        )

    @property
    def response(self) -> str:
        """What the cells hold: "numeric" values, "levels" of a factor, or whether they are "rated"."""
        return "levels" if self.metric == "levels" else "numeric"

    def steps(self, n_init: int, groups: tuple[int, int] | None, shape: tuple[int, int]) -> int:
        """Return the number of starts."""
        return n_init * len(self._grid(groups, shape))

    def _grid(self, groups, shape) -> list[tuple[int, int]]:
        if groups is not None:
            return [groups]
        if self.metric == "pearson":
            raise OptionError(
                "metric='pearson' has no likelihood to choose the number of groups by. Give groups=(rows, columns).",
                argument="groups",
            )
        most = [min(n, self.max_groups) for n in shape]
        return list(itertools.product(range(1, most[0] + 1), range(1, most[1] + 1)))

    def filled(self, cells: Cells) -> float:
        """Return the mean of a block without cells."""
        if self.fill is not None:
            return self.fill
        value = cells.value
        ratings = value.min() >= 1 and value.max() <= 5 and (value == np.rint(value)).all()
        return 3.0 if ratings else float(np.average(value, weights=cells.weight))

    def fit(self, cells, groups, n_init, rng, workers=1, progress=None, n_levels=1) -> Found:
        """Fit from `n_init` random starts for each number of groups, and take the best of the best number."""
        grid = self._grid(groups, cells.shape)
        most = max(a for a, _ in grid), max(b for _, b in grid)
        check_memory(
            32.0 * workers * n_levels * sum(cells.shape) * sum(most) + 100.0 * n_levels * cells.n,
            f"Clustering a table of {cells.shape[0]} x {cells.shape[1]} with {cells.n} cells",
            "Use fewer groups or fewer threads (n_jobs).",
        )
        fill = self.prior_count if self.metric == "levels" else self.filled(cells)
        table, wide = make_tables(cells, self.metric, n_levels, fill)
        wide.T, table.cells.T  # noqa: B018  sorted once, for all threads
        options = {"max_iter": self.max_iter, "move": self.move, "empty": self.empty}
        tasks = [(table, wide, size, seed, options) for size in grid for seed in _seeds(rng, n_init)]
        fits = run_tasks(fit_once, tasks, workers, progress)
        found, noise = [], Noise.of(cells)
        for k, size in enumerate(grid):
            best = _best(fits[k * n_init : (k + 1) * n_init])
            criterion = best.value
            if self.metric != "pearson":
                criterion = block_criterion(cells, best.rows, best.columns, best.value, n_levels, noise)
            found.append((best, size, criterion))
        best, size, criterion = min(found, key=lambda one: one[2])
        if groups is None:
            self._warn_border(best, cells.shape)
        selection = None if groups is not None else [(*s, f.value, c) for f, s, c in found]
        return Found(best.rows, best.columns, criterion, best.history, best.n_iter, best.converged, selection)

    def _warn_border(self, best: PrototypeFit, shape: tuple[int, int]) -> None:
        chosen = int(best.rows.max()) + 1, int(best.columns.max()) + 1
        if any(k == self.max_groups < n for k, n in zip(chosen, shape, strict=True)):
            warnings.warn(
                f"the criterion chose {chosen[0]} x {chosen[1]} groups, the largest number that "
                f"was tried. Raise max_groups={self.max_groups}, or give groups=.",
                DataWarning,
                stacklevel=5,
            )


def _best(fits: list[PrototypeFit]) -> PrototypeFit:
    """Return the fit of least objective; the first of those that are as good, so that rounding decides nothing."""
    least = min(fit.value for fit in fits)
    slack = TIED * max(abs(fit.history[0]) for fit in fits)
    return next(fit for fit in fits if fit.value <= least + slack)


@dataclass(frozen=True)
class Genetic:
    """A genetic algorithm for ordinal ratings, which finds the numbers of groups too.

    Parameters
    ----------
    scale : (int, int), default (1, 5)
        Lowest and highest rating; all are whole numbers between.
    sigma : float, default 0.5
        Standard deviation of a rating before it is rounded.
    penalty : {"bic", "thesis"} or float, default "bic"
        Factor of ln N for each block: 1, 1/2 (of the thesis), or a number.
    mean : {"block", "mle"}, default "block"
        Mean of a block's ratings, or the mean before truncation that makes them most likely.
    population : int, default 6
    generations : int, default 1000
    crossover, mutation : float, default 0.8 and 0.2
        Probabilities.
    elitism : bool, default True
        Whether the best individual stays in the population.
    refine : bool, default True
        Whether single items of the best individual are moved at the end, as long as that helps.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.
    """

    scale: tuple[int, int] = (1, 5)
    sigma: float = 0.5
    penalty: str | float = "bic"
    mean: str = "block"
    population: int = 6
    generations: int = 1000
    crossover: float = 0.8
    mutation: float = 0.2
    elitism: bool = True
    refine: bool = True
    name: ClassVar[str] = "genetic"
    response: ClassVar[str] = "ordinal"

    def __post_init__(self):
        if not isinstance(self.scale, tuple | list) or len(self.scale) != 2:
            raise BBLTypeError(f"scale must be (lowest, highest) rating; got {self.scale!r}.", argument="scale")
        low = integer("scale", self.scale[0])
        if isinstance(self.penalty, str):
            choice("penalty", self.penalty, tuple(PENALTIES))
        choice("mean", self.mean, ("block", "mle"))
        _set(
            self,
            scale=(low, integer("scale", self.scale[1], low + 1, low + 999)),
            sigma=real("sigma", self.sigma, 0.0, open_low=True),
            penalty=self.penalty if isinstance(self.penalty, str) else real("penalty", self.penalty, 0.0),
            population=integer("population", self.population, 2),
            generations=integer("generations", self.generations, 1),
            crossover=real("crossover", self.crossover, 0.0, 1.0),
            mutation=real("mutation", self.mutation, 0.0, 1.0),
            elitism=flag("elitism", self.elitism),
            refine=flag("refine", self.refine),
        )

    def steps(self, n_init: int, groups, shape) -> int:
        """Return the number of populations."""
        return n_init

    def ratings(self, cells: Cells) -> Ratings:
        """Return the ratings with the model of a block, having refused what is not on the scale."""
        low, high = self.scale
        wrong = (cells.value != np.rint(cells.value)) | (cells.value < low) | (cells.value > high)
        if wrong.any():
            raise DataError(
                f"method='genetic' is for whole ratings in {low}..{high}; there is {cells.value[wrong][0]:g}. Give "
                "scale=(lowest, highest), or use method='prototype'."
            )
        factor = PENALTIES[self.penalty] if isinstance(self.penalty, str) else self.penalty
        return Ratings.from_cells(cells, low, high, self.sigma, factor, self.mean == "mle")

    def log_shares(self, means: np.ndarray) -> np.ndarray:
        """Return the log-probability of each rating in blocks of these means (a, b), shape (a, b, levels)."""
        low, high = self.scale
        edges = (np.arange(low, high + 2) - 0.5 - means[..., None]) / self.sigma
        # differences of the smaller tails
        below, above = ndtr(edges), ndtr(-edges)
        shares = np.where(edges[..., :-1] > 0.0, above[..., :-1] - above[..., 1:], below[..., 1:] - below[..., :-1])
        return np.log(np.maximum(shares, 1e-300) / shares.sum(axis=-1, keepdims=True))

    def fit(self, cells, groups, n_init, rng, workers=1, progress=None, n_levels=1) -> Found:
        """Breed `n_init` populations, and take the best individual of all."""
        _refuse_groups(groups, self.name, "the fitness")
        ratings = self.ratings(cells)
        names = ("population", "generations", "crossover", "mutation", "elitism", "refine")
        options = {name: getattr(self, name) for name in names}
        tasks = [(ratings, seed, options) for seed in _seeds(rng, n_init)]
        runs = run_tasks(evolve, tasks, workers, progress)
        best = min(runs, key=lambda run: run.fitness)
        return Found(best.items, best.users, best.fitness, best.history, self.generations, evolved=best)


@dataclass(frozen=True)
class Mcmc:
    """The posterior of the groups of raters and of items, from which items each rater rated.

    Parameters
    ----------
    draws : int, default 1000
        Of each chain; `n_init` of `bicluster` is the number of chains.
    warmup : int, default 1000
        Sweeps before the first draw.
    thin : int, default 1
        Sweeps per draw.
    alpha : float, default 1.0
        Of the Dirichlet prior of the items' weights.
    sigma : float, default 1.0
        Prior standard deviation of the logit of lambda; 0 holds lambda at 1/2.
    step : float, default 1.0
        Standard deviation of the proposals for it.
    popularity : array_like of shape (columns,), optional
        Known weights of the items, in the order of the columns; their posterior is sampled by default.
    loss : {"vi", "binder"}, default "vi"
        Whose least expected value the reported partition has.

    Raises
    ------
    OptionError, BBLTypeError
        If an option is out of range.
    """

    draws: int = 1000
    warmup: int = 1000
    thin: int = 1
    alpha: float = 1.0
    sigma: float = 1.0
    step: float = 1.0
    popularity: Any = None
    loss: str = "vi"
    name: ClassVar[str] = "mcmc"
    response: ClassVar[str] = "rated"

    def __post_init__(self):
        choice("loss", self.loss, tuple(LOSSES))
        _set(
            self,
            draws=integer("draws", self.draws, 4),
            warmup=integer("warmup", self.warmup, 0),
            thin=integer("thin", self.thin, 1),
            alpha=real("alpha", self.alpha, 0.0, open_low=True),
            sigma=real("sigma", self.sigma, 0.0),
            step=real("step", self.step, 0.0, open_low=True),
        )

    def steps(self, n_init: int, groups, shape) -> int:
        """Return the number of chains."""
        return n_init

    def _popularity(self, n: int) -> np.ndarray | None:
        if self.popularity is None:
            return None
        try:
            w = np.asarray(self.popularity, dtype=float)
        except (TypeError, ValueError):
            raise BBLTypeError("popularity must hold numbers.", argument="popularity") from None
        if w.shape != (n,) or not (np.isfinite(w) & (w > 0.0)).all():
            raise OptionError(
                f"popularity must hold one positive number for each of the {n} columns.", argument="popularity"
            )
        return w / w.sum()

    def fit(self, cells, groups, n_init, rng, workers=1, progress=None, n_levels=1) -> Found:
        """Run `n_init` chains; the partitions are those of least posterior expected loss."""
        _refuse_groups(groups, self.name, "the posterior")
        n, m = cells.shape
        top = int(np.diff(cells.start).max())
        check_memory(
            4.0 * n_init * self.draws * (n + m) + workers * 8.0 * n * (m + 2.0 * top) + 16.0 * (n**2 + m**2),
            f"Keeping {n_init} x {self.draws} draws of the groups of {n} raters and {m} items",
            "Raise thin, or use fewer draws or chains (n_init).",
        )
        names = ("draws", "warmup", "thin", "alpha", "sigma", "step")
        options = {name: getattr(self, name) for name in names}
        popularity = self._popularity(m)
        chains = run_tasks(
            sample, [(cells, seed, options, popularity) for seed in _seeds(rng, n_init)], workers, progress
        )
        draws = Draws(*(np.stack(part) for part in zip(*chains, strict=True)))
        labels, share, loss = [], [], 0.0
        for part in (draws.rows, draws.columns):
            flat = part.reshape(-1, part.shape[-1])
            share.append(similarity(flat))
            labels.append(point_partition(flat, share[-1], self.loss))
            loss += expected_loss(labels[-1], share[-1], self.loss)
        history = draws.log_posterior.ravel()
        sweeps = self.warmup + self.draws * self.thin
        return Found(labels[0], labels[1], loss, history, sweeps, draws=draws, share=(share[0], share[1]))


def _refuse_groups(groups: tuple[int, int] | None, method: str, chooser: str) -> None:
    if groups is not None:
        raise OptionError(
            f"method={method!r} takes no groups=: {chooser} chooses their number. Leave groups out, or use "
            "method='prototype'.",
            argument="groups",
        )


METHODS: dict[str, Callable[..., Any]] = {kind.name: kind for kind in (Prototype, Genetic, Mcmc)}


def make_method(method: str, options: dict, beside: Iterable[str] = ()) -> Any:
    """Return the options of the method of that name.

    Unknown ones are refused with the nearest known name, which may be one of the arguments `beside` the options.
    """
    kind = METHODS[choice("method", method, list(METHODS))]
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            raise BBLTypeError(
                f"{name!r} is not an option of method={method!r}{near_match(name, [*known, *beside]) or '.'} Its "
                f"options: {', '.join(known)}.",
                argument=name,
            )
    return kind(**options)
