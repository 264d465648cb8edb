"""Estimate the tables of a network: plain, averaged (MANB) or weighted (WANBIA, AWNB)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.bayesnet.averaged import Averaged, average, naive_average
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.families import class_counts, dirichlet
from bbl.bayesnet.predict import Network, estimate
from bbl.bayesnet.weighting import (
    ConditionalLikelihood,
    SquaredError,
    bootstrap,
    conditional_weights,
    tree_weights,
    weighted,
)
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["Fitted", "Recipe", "draw_tables", "fit", "standard_errors"]


@dataclass(frozen=True)
class Recipe:
    """Options for the estimation of tables; at most one of `manb_prior`, `wanbia` and `awnb` is
    set.

    Attributes
    ----------
    smooth : float
        Prior count of each cell.
    manb_prior : float or None
        Prior probability of each arc from the class, if naive Bayes is averaged over all subsets of
        features (MANB).
    wanbia : bool, "mse" or tuple of float
        Whether features are weighted (WANBIA): by maximising the conditional likelihood or, with
        "mse", by minimising the squared error. A tuple contains the given weights by position.
    awnb : (int, float) or None
        Number of trees and proportion of the rows for each tree, if features are weighted by trees
        (AWNB).
    """

    smooth: float = 0.0
    manb_prior: float | None = None
    wanbia: bool | str | tuple[float, ...] = False
    awnb: tuple[int, float] | None = None

    @property
    def rows(self) -> str:
        """Name of the argument that requires all rows in memory; "" if counts are sufficient."""
        return (
            "awnb_trees"
            if self.awnb is not None
            else "wanbia"
            if self.wanbia is True or self.wanbia == "mse"
            else ""
        )

    @property
    def plain(self) -> bool:
        """Whether tables are Dirichlet estimates, neither averaged nor weighted."""
        return self.manb_prior is None and self.wanbia is False and self.awnb is None


@dataclass(frozen=True)
class Fitted:
    """Result of a fit.

    Attributes
    ----------
    network : Network or Averaged
    arcs : ndarray, shape (m,), or None
        Posterior probability of each feature's arc from the class, in the order of the model.
    weights : ndarray, shape (m,), or None
        Weight of each feature, in the order of the model.
    """

    network: Network | Averaged
    arcs: np.ndarray | None = None
    weights: np.ndarray | None = None


def fit(
    dags: Sequence[Dag],
    sample: Rows,
    n_levels: np.ndarray,
    K: int,
    recipe: Recipe,
    rng: np.random.Generator,
    averaged: bool = False,
) -> Fitted:
    """Estimate the tables of ``dags[0]``; if `averaged`, estimate and average all structures.

    `n_levels` (m,) contains the number of levels of each feature, `K` is the number of classes, and
    `rng` is used to draw the rows for trees.
    """
    if averaged:
        return Fitted(average(tuple(dags), sample, n_levels, K, recipe.smooth))
    dag = dags[0]
    if recipe.manb_prior is not None:
        network, arcs = naive_average(dag, sample, n_levels, K, recipe.smooth, recipe.manb_prior)
        return Fitted(network, arcs=arcs)
    network = estimate(dag, sample, n_levels, K, recipe.smooth)
    if recipe.plain:
        return Fitted(network)
    rows = cast(Sample, sample)  # the rows are in memory: see `Recipe.rows`
    if recipe.awnb is not None:
        # awnb: number of trees, proportion of rows
        weights = tree_weights(rows, n_levels, K, bootstrap(rows, *recipe.awnb, rng))
    elif recipe.wanbia is True or recipe.wanbia == "mse":
        loss = SquaredError if recipe.wanbia == "mse" else ConditionalLikelihood
        weights = conditional_weights(rows, n_levels, K, loss)
    else:
        weights = np.array(recipe.wanbia)
    weights = weights[list(dag.features)]  # from column order to model order
    return Fitted(weighted(network, weights), weights=weights)


def standard_errors(network: Network, sample: Rows, smooth: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the posterior standard deviations of the tables (cells, K) and of the class
    probabilities (K,).

    The posteriors are Dirichlet distributions. The standard deviations are ``sqrt(p (1 - p) / (N_ij
    + r_i a + 1))`` with ``a = smooth``, and nan if ``N_ij + r_i a`` is zero. N_ij is the weight of
    the rows in the cell's parent configuration, and r_i the number of levels of the feature. The
    class probabilities are treated as one configuration with K levels.
    """
    families = network.families
    p = network.prior
    # (cells, K): N_ij + r_i a for each cell's parent configuration
    concentration = (
        families.sum_over_levels(families.count(sample)) + families.cell_widths[:, None] * smooth
    )
    class_total = float(class_counts(sample, len(p)).sum()) + len(p) * smooth
    theta = network.theta
    errors = np.where(
        concentration > 0, np.sqrt(theta * (1.0 - theta) / (concentration + 1.0)), np.nan
    )
    return errors, np.sqrt(p * (1.0 - p) / (class_total + 1.0)) if class_total > 0 else np.full(
        len(p), np.nan
    )


def draw_tables(
    network: Network | Averaged, sample: Sample, smooth: float, rng: np.random.Generator
) -> Network | Averaged:
    """Return the network or average with probabilities drawn from their Dirichlet posteriors.

    The weight of each row is drawn from a gamma distribution with the original weight as its shape,
    and the prior count of each cell from a gamma distribution with shape `smooth`. Each table is
    then a draw from the Dirichlet distribution with its counts plus `smooth`. The tables of the
    networks in an average are computed from the same rows and therefore drawn jointly (Rubin 1981).
    """
    rows = sample.weighted(rng.gamma(sample.weights))
    prior = class_counts(rows, len(network.prior)) + rng.gamma(smooth, size=len(network.prior))
    prior /= prior.sum()

    def draw_member(member: Network) -> Network:
        """Return a network with tables computed from the drawn weights and prior counts."""
        families = member.families
        counts = families.count(rows) + rng.gamma(smooth, size=member.theta.shape)
        # `counts` already include prior counts
        theta = dirichlet(counts, families.sum_over_levels(counts), families.cell_widths, 0.0)
        return replace(member, prior=prior, theta=theta)

    if isinstance(network, Averaged):
        return Averaged(tuple(draw_member(member) for member in network.members))
    return draw_member(network)
