"""Two-way clustering methods: METHODS maps the values of ``method=`` to classes of options.

Each class has a `name`, the kind of cells that it requires (`response`), and a `fit` method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bbl.biclustering.bicluster_fit import BiclusterFit, draw_seeds, refuse_groups, set_options
from bbl.biclustering.cells import Cells
from bbl.biclustering.genetic import Ratings, evolve
from bbl.biclustering.mcmc import MIXED, Draws, sample
from bbl.biclustering.partition import LOSSES, expected_loss, point_partition, similarity
from bbl.biclustering.selection import Prototype
from bbl.checks import choice, flag, integer, near_match, real
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.memory import check_memory
from bbl.parallel import run_tasks
from bbl.stats.diagnostics import split_rhat

__all__ = ["METHODS", "Genetic", "Mcmc", "Prototype", "make_method"]

# penalty of each block, as a multiple of the log of the number of ratings
PENALTIES = {"bic": 1.0, "thesis": 0.5}


@dataclass(frozen=True)
class Genetic:
    """Cluster ordinal ratings by a genetic algorithm, which also determines the numbers of groups.

    Parameters
    ----------
    scale : (int, int), default (1, 5)
        The lowest and the highest rating; ratings are integers.
    sigma : float, default 0.5
        Standard deviation of a rating before rounding.
    penalty : {"bic", "thesis"} or float, default "bic"
        Penalty per block as a multiple of ln N: 1 ("bic"), 1/2 (as in Li 2014), or a number.
    mean : {"block", "mle"}, default "block"
        How the mean of a block is estimated: by the mean of its ratings, or by the
        maximum-likelihood estimate before truncation.
    population : int, default 6
    generations : int, default 1000
    crossover, mutation : float, default 0.8 and 0.2
        Probabilities of crossover and mutation.
    elitism : bool, default True
        Whether the best individual is always kept.
    refine : bool, default True
        Whether to improve the best individual at the end by moving single items as long as the
        fitness decreases.

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
            raise BBLTypeError(
                f"scale must be the pair (lowest rating, highest rating); got {self.scale!r}.",
                argument="scale",
                value=self.scale,
            )
        low = integer("scale", self.scale[0])
        if isinstance(self.penalty, str):
            choice("penalty", self.penalty, tuple(PENALTIES))
        choice("mean", self.mean, ("block", "mle"))
        set_options(
            self,
            # at most 1,000 ratings, because the kernel counts each rating in every block, and
            # initially each item and user form a block
            scale=(low, integer("scale", self.scale[1], low + 1, low + 999)),
            sigma=real("sigma", self.sigma, 0.0, open_low=True),
            penalty=self.penalty
            if isinstance(self.penalty, str)
            else real("penalty", self.penalty, 0.0),
            population=integer("population", self.population, 2),
            generations=integer("generations", self.generations, 1),
            crossover=real("crossover", self.crossover, 0.0, 1.0),
            mutation=real("mutation", self.mutation, 0.0, 1.0),
            elitism=flag("elitism", self.elitism),
            refine=flag("refine", self.refine),
        )

    def steps(self, n_init: int, groups: tuple[int, int] | None, shape: tuple[int, int]) -> int:
        """Return the number of tasks for the progress bar: `n_init` populations."""
        return n_init

    def ratings(self, cells: Cells) -> Ratings:
        """Return the ratings with the block model; raise a DataError for values outside the
        scale.
        """
        low, high = self.scale
        off_scale = (
            (cells.value != np.rint(cells.value)) | (cells.value < low) | (cells.value > high)
        )
        if off_scale.any():
            raise DataError(
                f"method='genetic' requires integer ratings between {low} and {high}, but the "
                f"data contains {cells.value[off_scale][0]:g}.",
                hint="Use scale=(lowest, highest), or choose method='prototype'.",
            )
        factor = PENALTIES[self.penalty] if isinstance(self.penalty, str) else self.penalty
        return Ratings.from_cells(cells, low, high, self.sigma, factor, self.mean == "mle")

    def log_shares(self, means: np.ndarray) -> np.ndarray:
        """Return the log-probabilities (a, b, levels) of the ratings in blocks with means (a,
        b).
        """
        from scipy.special import ndtr

        low, high = self.scale
        # the intervals that are rounded
        edges = (np.arange(low, high + 2) - 0.5 - means[..., None]) / self.sigma
        # tails of the distribution; differences of the smaller tails lose fewer digits
        lower = ndtr(edges)
        upper = ndtr(-edges)
        shares = np.where(
            edges[..., :-1] > 0.0,
            upper[..., :-1] - upper[..., 1:],
            lower[..., 1:] - lower[..., :-1],
        )
        return np.log(np.maximum(shares, 1e-300) / shares.sum(axis=-1, keepdims=True))

    def fit(self, cells, groups, n_init, rng, workers=1, progress=None, n_levels=1) -> BiclusterFit:
        """Run the algorithm from `n_init` populations and return the best individual.

        `groups` must be None. `n_levels` is not used; it is part of the signature of all methods.
        """
        refuse_groups(groups, self.name, "the fitness")
        ratings = self.ratings(cells)
        names = ("population", "generations", "crossover", "mutation", "elitism", "refine")
        options = {name: getattr(self, name) for name in names}
        tasks = [(ratings, seed, options) for seed in draw_seeds(rng, n_init)]
        runs = run_tasks(evolve, tasks, workers, progress)  # an `Evolved` for each population
        best = min(runs, key=lambda run: run.fitness)
        labels = best.items, best.users
        return BiclusterFit(
            *labels,
            criterion=best.fitness,
            history=best.history,
            n_iter=self.generations,
            converged=self.refine,  # because then no move of an item or user decreases the fitness
            evolved=best,
        )


@dataclass(frozen=True)
class Mcmc:
    """Cluster raters and items by MCMC, given the items that were rated by each rater.

    Parameters
    ----------
    draws : int, default 1000
        Number of draws per chain. The number of chains is given by the argument `n_init` of
        `bicluster`.
    warmup : int, default 1000
        Number of sweeps before the first draw.
    thin : int, default 1
        Number of sweeps per draw.
    alpha : float, default 1.0
        Concentration of the Dirichlet prior of the items' weights.
    sigma : float, default 1.0
        Prior standard deviation of the logit of lambda; 0 fixes lambda at 1/2.
    step : float, default 1.0
        Proposal standard deviation for the logit of lambda.
    popularity : array_like of shape (columns,), optional
        Fixed weights of the items, in column order; by default, weights are sampled from their
        posterior.
    loss : {"vi", "binder"}, default "vi"
        Loss whose posterior expectation is minimised by the reported partition. For "vi", the
        variation of information, a lower bound on the expectation is minimised instead (Wade &
        Ghahramani 2018); the partition that minimises it may be different. The best draw is
        improved by moves of single items.

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
        set_options(
            self,
            draws=integer("draws", self.draws, 4),  # split R-hat needs two draws in each half
            warmup=integer("warmup", self.warmup, 0),
            thin=integer("thin", self.thin, 1),
            alpha=real("alpha", self.alpha, 0.0, open_low=True),
            sigma=real("sigma", self.sigma, 0.0),
            step=real("step", self.step, 0.0, open_low=True),
        )

    def steps(self, n_init: int, groups: tuple[int, int] | None, shape: tuple[int, int]) -> int:
        """Return the number of tasks for the progress bar: `n_init` chains."""
        return n_init

    def _popularity(self, n: int) -> np.ndarray | None:
        """Return the validated weights of the `n` items, which sum to 1, or None if they are
        sampled.
        """
        if self.popularity is None:
            return None
        try:
            w = np.asarray(self.popularity, dtype=float)
        except (TypeError, ValueError):
            raise BBLTypeError("popularity must contain numbers.", argument="popularity") from None
        if w.shape != (n,) or not (np.isfinite(w) & (w > 0.0)).all():
            raise OptionError(
                f"popularity must contain one positive number for each of the {n} columns.",
                argument="popularity",
            )
        return w / w.sum()

    def fit(self, cells, groups, n_init, rng, workers=1, progress=None, n_levels=1) -> BiclusterFit:
        """Run `n_init` chains, and return the partitions with the smallest expected loss.

        For "vi", a lower bound on the expected loss is minimised. `groups` must be None. `n_levels`
        is not used; it is part of the signature of all methods.
        """
        refuse_groups(groups, self.name, "the posterior")
        n, m = cells.shape  # raters and items
        most_rated = int(np.diff(cells.start).max())  # maximum number of items rated by a rater
        # labels of all draws (int32); in each chain, two ranks (int32) of the m items for at most n
        # groups of raters, and two arrays of log symmetric polynomials (n, most_rated);
        # similarities and a temporary array of the same size
        check_memory(
            4.0 * n_init * self.draws * (n + m)
            + workers * 8.0 * n * (m + 2.0 * most_rated)
            + 16.0 * (n**2 + m**2),
            f"Storing {self.draws} draws from each of {n_init} chains for {n} raters and {m} items",
            "Increase thin, or use fewer draws or chains (n_init).",
        )
        names = ("draws", "warmup", "thin", "alpha", "sigma", "step")
        options = {name: getattr(self, name) for name in names}
        popularity = self._popularity(m)
        chains = run_tasks(
            sample,
            [(cells, seed, options, popularity) for seed in draw_seeds(rng, n_init)],
            workers,
            progress,
        )
        # each array contains the values of all chains
        draws = Draws(*(np.stack(arrays) for arrays in zip(*chains, strict=True)))
        # first for raters, then for items; the sum of both expected losses
        labels = []
        share = []
        loss = 0.0
        for arrays in (draws.rows, draws.columns):
            pooled = arrays.reshape(-1, arrays.shape[-1])  # the draws of all chains
            share.append(similarity(pooled))
            labels.append(point_partition(pooled, share[-1], self.loss))
            loss += expected_loss(labels[-1], share[-1], self.loss)
        history = draws.log_posterior.ravel()
        sweeps = self.warmup + self.draws * self.thin
        # nan, which results from a constant trace, counts as mixed
        mixed = bool(np.nan_to_num(split_rhat(draws.traces), nan=1.0).max() <= MIXED)
        return BiclusterFit(
            labels[0],
            labels[1],
            loss,
            history,
            sweeps,
            mixed,
            draws=draws,
            share=(share[0], share[1]),
        )


METHODS: dict[str, Callable[..., Any]] = {kind.name: kind for kind in (Prototype, Genetic, Mcmc)}


def make_method(method: str, options: dict, beside: Iterable[str] = ()) -> Any:
    """Return an instance of the class in `METHODS` for this method, with the given options.

    For an unknown option, the error suggests the closest name among the method's options and
    `beside`, the other arguments of the caller.
    """
    method_class = METHODS[choice("method", method, list(METHODS))]
    option_names = [f.name for f in dataclasses.fields(method_class)]  # type: ignore[arg-type]
    for name in options:
        if name not in option_names:
            raise BBLTypeError(
                f"{name!r} is not an option of method={method!r}.",
                argument=name,
                hint=(
                    f"{near_match(name, [*option_names, *beside])}Its options are "
                    f"{', '.join(option_names)}."
                ),
            )
    return method_class(**options)
