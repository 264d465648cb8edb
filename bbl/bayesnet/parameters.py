"""Parameters: from structures and rows to networks, by the estimate that a recipe names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from bbl.bayesnet.averaged import Averaged, average, naive_average
from bbl.bayesnet.dag import Dag
from bbl.bayesnet.families import class_counts
from bbl.bayesnet.predict import Network, estimate
from bbl.bayesnet.weighting import bootstrap, conditional_weights, tree_weights, weighted
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["Fitted", "Recipe", "fit", "standard_errors"]


@dataclass(frozen=True)
class Recipe:
    """Options of the estimate of tables; at most one of the last three is set.

    Attributes
    ----------
    smooth : float
        Prior count of every cell.
    manb_prior : float or None
        Prior probability of an arc from the class, for naive Bayes averaged over all subsets of features.
    wanbia : bool or tuple of float
        Whether features are weighted by conditional likelihood; or their weights, by position.
    awnb : (int, float) or None
        Trees, and their share of the rows, for weights by trees.
    """

    smooth: float = 0.0
    manb_prior: float | None = None
    wanbia: bool | tuple[float, ...] = False
    awnb: tuple[int, float] | None = None

    @property
    def rows(self) -> str:
        """The argument that needs all rows in memory; empty if counts are enough."""
        return "awnb_trees" if self.awnb is not None else "wanbia" if self.wanbia is True else ""

    @property
    def plain(self) -> bool:
        """Whether tables are Dirichlet estimates as they are."""
        return self.manb_prior is None and self.wanbia is False and self.awnb is None


@dataclass(frozen=True)
class Fitted:
    """Result of a fit.

    Attributes
    ----------
    network : Network or Averaged
    arcs : ndarray, shape (m,), or None
        Posterior of each feature's arc from the class, in the order of the model.
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
    """Estimate the tables of a structure, or of several that are averaged.

    Parameters
    ----------
    dags : sequence of Dag
    sample : Sample
    n_levels : ndarray, shape (m,)
    K : int
        Classes.
    recipe : Recipe
    rng : numpy.random.Generator
        For the rows of trees.
    averaged : bool, default False
        Whether the structures are averaged, though there may be one.

    Returns
    -------
    Fitted
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
    rows = cast(Sample, sample)  # no others come this far: `Recipe.rows`
    if recipe.awnb is not None:
        by_position = tree_weights(rows, n_levels, K, bootstrap(rows, *recipe.awnb, rng))
    elif recipe.wanbia is True:
        by_position = conditional_weights(rows, n_levels, K)
    else:
        by_position = np.array(recipe.wanbia)
    weights = by_position[list(dag.features)]
    return Fitted(weighted(network, weights), weights=weights)


def standard_errors(network: Network, sample: Rows, smooth: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviations of the Dirichlet posteriors of all tables (cells, K) and of the classes (K,).

    ``sqrt(p (1 - p) / (N_ij + r_i a + 1))``; missing where neither rows nor a prior say anything.
    """
    families, p = network.families, network.prior
    below = families.sums(families.count(sample)) + families.cell_widths[:, None] * smooth
    total = float(class_counts(sample, len(p)).sum()) + len(p) * smooth
    theta = network.theta
    errors = np.where(below > 0, np.sqrt(theta * (1.0 - theta) / (below + 1.0)), np.nan)
    return errors, np.sqrt(p * (1.0 - p) / (total + 1.0)) if total > 0 else np.full(len(p), np.nan)
