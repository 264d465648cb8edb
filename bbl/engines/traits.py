"""Optional traits of engines: a tuned option, joint fits of P(group | row), and a posterior.

The first argument of the functions in these records is the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bbl.engines.engine_fit import EngineFit, JointFit
from bbl.model.joint_influence import JointInfluence
from bbl.model.layout import Layout
from bbl.model.ranking import interaction_strength

__all__ = ["JointTraits", "OutOfFoldScores", "PosteriorTraits", "Tuned"]


@dataclass(frozen=True)
class Tuned:
    """The option of an engine that can be selected by cross-validation.

    Attributes
    ----------
    option : str
        Name of the option as an argument.
    column : str
        Name of the option as a column in tables.
    symbol : str
        Symbol of the option in figures.
    title : str
        Axis label of the option in figures.
    grid : tuple of float
        Values that ``"cv"`` compares, in increasing order.
    simpler : {"larger", "smaller"}
        Whether larger or smaller values lead to simpler models, which ``"cv-1se"`` prefers.
    logarithmic : bool
        Whether figures use a logarithmic scale.
    rules : tuple of str
        Names of rules for selecting the value. They are accepted instead of a value.
    """

    option: str
    column: str
    symbol: str
    title: str
    grid: tuple[float, ...]
    simpler: str
    logarithmic: bool = False
    rules: tuple[str, ...] = ()


class OutOfFoldScores(NamedTuple):
    """Class scores of rows, computed by models that were not fitted to these rows.

    Attributes
    ----------
    rows : ndarray of intp, shape (N,)
        Positions in the sample. A position can occur several times, because copies of a weighted
        row may be in different folds.
    weights : ndarray, shape (N,)
    scores : ndarray, shape (N, K)
    """

    rows: np.ndarray
    weights: np.ndarray
    scores: np.ndarray


def without_start(engine: Any) -> None:
    """Return None, because fits of this engine start from equal scores."""


def refuse_errors(engine: Any, *arguments: object, **keywords: object) -> Any:
    """Raise an OptionError that explains why fits of `engine` have no standard errors."""
    engine.check_equations()


@dataclass(frozen=True)
class JointTraits:
    """How an engine fits P(group | row) for all K groups jointly, without modelling P(row | group).

    Engines without standard errors only define `fit_groups` and `start`.

    In the signatures below, `codes` (n, m) contains the distinct rows, `weights` (n,) the numbers
    of observations, `p` (n, K) the fitted probabilities of the groups, and `pair` the indices of
    two groups.

    Attributes
    ----------
    fit_groups : callable
        ``fit_groups(engine, sample, layout, K, values, oof_scores, rng, start)`` returns a
        `JointFit` of all K groups for each of the `values` of the tuned option. If `oof_scores` is
        not None, it contains out-of-fold scores from the generative start, which are used as an
        offset. If `start` (K, 1 + size) is not None, unpenalised fits start at these coefficients.
    start : callable
        ``start(engine)`` returns the generative engine that the fit starts from, and the settings
        to compare. It returns None if the fit starts from equal scores.
    check_differences : callable
        ``check_differences(engine, n)`` raises an OptionError if a fit to `n` distinct rows has no
        standard errors for differences between groups.
    difference : callable
        ``difference(engine, codes, weights, p, layout, pair)`` returns the covariance of the
        difference between two groups; see `Conditional.difference`.
    coefficients : callable
        ``coefficients(engine, codes, weights, p, layout)`` returns the covariance of the intercepts
        and parameters of all groups of a penalised fit; see `Conditional.coefficients`.
    maximum : callable
        ``maximum(engine, sample, layout, K, start)`` returns the maximum of the unpenalised
        likelihood P(group | row), as a `JointInfluence` with the Fisher information. `start` is the
        same as in `fit_groups`.
    maximum_of_sample : callable
        ``maximum_of_sample(engine, sample, layout, K, coefficients, expansion)`` returns the same
        result at `coefficients` (K, 1 + size), the estimate from all rows, if `sample` is a random
        sample of these rows with probabilities ``1 / expansion`` (n,).
    """

    fit_groups: Callable[..., list[JointFit]]
    start: Callable[..., tuple[Any, Sequence[float] | None] | None] = without_start
    check_differences: Callable[..., None] = refuse_errors
    difference: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]] = refuse_errors
    coefficients: Callable[..., tuple[np.ndarray, np.ndarray]] = refuse_errors
    maximum: Callable[..., JointInfluence] = refuse_errors
    maximum_of_sample: Callable[..., JointInfluence] = refuse_errors


def strengths_of_draws(
    engine: object, layout: Layout, fit: EngineFit, rng: np.random.Generator
) -> np.ndarray | None:
    """Return the strength (n_draws, n_pairs) of each pair in each posterior draw, or None.

    The result is None if the fit has no draws. `engine` and `rng` are not used, but are part of the
    signature of `PosteriorTraits.strengths`.
    """
    if fit.draws is None:
        return None
    # the draws (chains, draws, size) of all chains
    return np.array(
        [interaction_strength(layout, theta) for theta in fit.draws.reshape(-1, layout.size)]
    )


@dataclass(frozen=True)
class PosteriorTraits:
    """Description of the posterior in an engine's fits, with a mean and an `sd` for each parameter.

    Attributes
    ----------
    name : callable
        ``name(engine)`` returns the name of the posterior, for tables.
    describe : callable
        ``describe(engine, layout)`` returns a description of a model's posterior and of the
        sampler.
    has_draws : bool
        Whether fits store posterior draws.
    keeps_history : bool
        Whether fits record their progress.
    strengths : callable
        ``strengths(engine, layout, fit, rng)`` returns draws of the strength of each pair, shape
        (n_draws, n_pairs).
    """

    name: Callable[..., str]
    describe: Callable[..., str]
    has_draws: bool = False
    keeps_history: bool = False
    strengths: Callable[..., np.ndarray | None] = strengths_of_draws

    def strength(
        self, engine: object, layout: Layout, fit: EngineFit, tau: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior sd of each pair's strength, and its probability of exceeding `tau`.

        The sd refers to the Frobenius norm of a pair's couplings in the zero-sum gauge. `tau` is
        compared with the root mean square of these couplings, including reference levels, so that
        pairs with different numbers of levels are comparable. With two levels, the root mean square
        is the Ising coupling. Both arrays have shape (n_pairs,) and are nan for fits without draws.
        """
        strengths = self.strengths(engine, layout, fit, rng)
        if strengths is None:
            return (np.full(len(layout.pairs), np.nan),) * 2
        # a strength is the root of a sum of squares over the cells of the pair's table, tau is the
        # root of their mean
        root_cells = np.sqrt(layout.n_levels[layout.pairs].astype(float).prod(axis=1))
        return strengths.std(axis=0, ddof=1), (strengths > tau * root_cells).mean(axis=0)
