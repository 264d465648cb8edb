"""What only some engines have, as records: a tuned option, joint fits to P(group | row), a
posterior.

Functions in these records take the engine as their first argument.
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
    """The option of an engine that cross-validation varies.

    Attributes
    ----------
    option : str
        Its name as an argument.
    column : str
        Its name as a column of tables.
    symbol : str
        Its symbol in figures.
    title : str
        Its name on the axes of figures.
    grid : tuple of float
        Values that ``"cv"`` tries, rising.
    simpler : {"larger", "smaller"}
        Which values make simpler models, which ``"cv-1se"`` prefers.
    logarithmic : bool
        Whether figures show it on a logarithmic scale.
    rules : tuple of str
        Words that may stand in place of a value: rules by which the engine chooses the value by
        itself.
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
    """Class scores of rows by models that were not fitted to them.

    Attributes
    ----------
    rows : ndarray of intp, shape (N,)
        Positions in the sample; copies of a weighted row may stand in several folds.
    weights : ndarray, shape (N,)
    scores : ndarray, shape (N, K)
    """

    rows: np.ndarray
    weights: np.ndarray
    scores: np.ndarray


def without_start(engine: Any) -> None:
    """Return None: the fits of `engine` start from equal scores."""


def refuse_errors(engine: Any, *arguments: object, **keywords: object) -> Any:
    """Raise an OptionError that says why fits of `engine` have no standard errors, whatever they
    are asked of.
    """
    engine.check_equations()


@dataclass(frozen=True)
class JointTraits:
    """How an engine fits all K groups at once, to P(group | row), so that P(row | group) is not
    modelled.

    An engine whose fits have no standard errors leaves all functions out but `fit_groups` and
    `start`.

    Distinct rows are `codes` (n, m) with the numbers of observations `weights` (n,) and the fitted
    probabilities of the groups `p` (n, K); `pair` holds the numbers of two groups.

    Attributes
    ----------
    fit_groups : callable
        ``fit_groups(engine, sample, layout, K, values, oof_scores, rng, start)`` returns a
        `JointFit` of all K groups for each of `values` of the tuned option; the fit is added to
        `oof_scores`, out-of-fold scores of the generative start, if not None. Without a penalty it
        begins at the coefficients `start` (K, 1 + size), if not None.
    start : callable
        ``start(engine)`` returns the generative engine that the fit starts from and the settings
        that are tried for it; None where the fit starts from equal scores.
    check_differences : callable
        ``check_differences(engine, n)`` raises an OptionError if a fit to `n` distinct rows has no
        standard errors of differences between groups.
    difference : callable
        ``difference(engine, codes, weights, p, layout, pair)`` returns covariances of the
        difference between two groups; see `Conditional.difference`.
    coefficients : callable
        ``coefficients(engine, codes, weights, p, layout)`` returns the covariance of the intercepts
        and parameters of all groups of a penalised fit; see `Conditional.coefficients`.
    maximum : callable
        ``maximum(engine, sample, layout, K, start)`` returns the maximum of the likelihood P(group
        | row) without a penalty, as a `JointInfluence` with the Fisher information; `start` is as
        of `fit_groups`.
    """

    fit_groups: Callable[..., list[JointFit]]
    start: Callable[..., tuple[Any, Sequence[float] | None] | None] = without_start
    check_differences: Callable[..., None] = refuse_errors
    difference: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]] = refuse_errors
    coefficients: Callable[..., tuple[np.ndarray, np.ndarray]] = refuse_errors
    maximum: Callable[..., JointInfluence] = refuse_errors


def strengths_of_draws(
    engine: object, layout: Layout, fit: EngineFit, rng: np.random.Generator
) -> np.ndarray | None:
    """Return the strength of each pair in each posterior draw, shape (n_draws, n_pairs); None
    without draws.

    `engine` and `rng` are not used: the arguments are those of `PosteriorTraits.strengths`.
    """
    if fit.draws is None:
        return None
    # the draws (chains, draws, size) of all chains
    return np.array(
        [interaction_strength(layout, theta) for theta in fit.draws.reshape(-1, layout.size)]
    )


@dataclass(frozen=True)
class PosteriorTraits:
    """What an engine says of the posterior that its fits hold: a mean and an `sd` of each
    parameter.

    Attributes
    ----------
    name : callable
        ``name(engine)`` returns the posterior in words, for tables.
    describe : callable
        ``describe(engine, layout)`` returns the posterior of a model and the sampler in words.
    has_draws : bool
        Whether fits have draws.
    keeps_history : bool
        Whether fits record how they went.
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
        """Return each pair's posterior sd of its strength, and the probability that its couplings
        exceed `tau`.

        `tau` is compared with the root mean square of a pair's couplings in the zero-sum gauge,
        reference levels included, so that pairs with different numbers of levels are held to one
        standard. With two levels it is the Ising coupling. Both arrays have shape (n_pairs,), and
        are nan without draws.
        """
        strengths = self.strengths(engine, layout, fit, rng)
        if strengths is None:
            return (np.full(len(layout.pairs), np.nan),) * 2
        # a strength is the root of a sum of squares over the cells of the pair's table, tau the
        # root of their mean
        root_cells = np.sqrt(layout.n_levels[layout.pairs].astype(float).prod(axis=1))
        return strengths.std(axis=0, ddof=1), (strengths > tau * root_cells).mean(axis=0)
