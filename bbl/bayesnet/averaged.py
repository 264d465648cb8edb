"""Averages of networks: one-dependence estimators (AODE), and naive Bayes over all subsets of m
features (MANB).

A cell of a table is a level of the feature with one combination of its parents' levels; tables are
(cells, K), one after the other. Of the cells, `Families` tell the feature's position
(`cell_family`) and its number of levels (`cell_widths`); `sum_over_levels` replaces each cell by
the sum over the levels of its feature. A `Network` has a structure `dag`, the layout `families`,
class probabilities `prior` (K,), and tables `theta` (cells, K); a `Dag` holds tuples (feature, its
feature parents).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bbl.bayesnet.dag import Dag, naive
from bbl.bayesnet.families import Families, class_probabilities, dirichlet
from bbl.bayesnet.predict import Network, class_scores, estimate
from bbl.memory import check_memory
from bbl.rows.on_disk import Rows

__all__ = ["Averaged", "Refitted", "arc_posterior", "average", "naive_average", "super_parents"]


@dataclass(frozen=True, eq=False)
class Averaged:
    """Networks of the same features, averaged with equal weights."""

    members: tuple[Network, ...]

    @property
    def prior(self) -> np.ndarray:
        """Probabilities of the classes, shape (K,)."""
        return self.members[0].prior

    @property
    def n_params(self) -> int:
        """Free parameters of all members together."""
        return sum(member.n_params for member in self.members)

    def log_joint(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the log of the mean joint probability of class and known features, shape (n,
        K).
        """
        total = self.members[0].log_joint(codes, missing)
        for member in self.members[1:]:
            np.logaddexp(total, member.log_joint(codes, missing), out=total)
        return total - np.log(len(self.members))


def super_parents(m: int) -> tuple[Dag, ...]:
    """Return the structures of AODE: in each, one feature is the parent of all others; naive Bayes
    if m < 2.
    """
    if m < 2:
        return (naive(range(m)),)
    return tuple(Dag(((s, ()), *((i, (s,)) for i in range(m) if i != s))) for s in range(m))


def average(
    dags: tuple[Dag, ...], sample: Rows, n_levels: np.ndarray, K: int, smooth: float
) -> Averaged:
    """Return the average of networks with Dirichlet estimates, `smooth` being the prior count of
    every cell.
    """
    D = int(np.sum(n_levels))  # levels of all features
    # probabilities and their logarithms; the members of AODE have about D^2 cells together
    check_memory(
        16.0 * K * D * D,
        f"Averaging {len(dags)} networks of {D} levels and {K} classes",
        "Use fewer features or levels, or another learner.",
    )
    return Averaged(tuple(estimate(dag, sample, n_levels, K, smooth) for dag in dags))


def arc_posterior(counts: np.ndarray, smooth: float, prior: float) -> float:
    """Return the posterior probability of the arc from the class to a feature of r levels, from the
    counts (r, K).

    It is the logistic function of ``ln B + logit(prior)``, B the ratio of the Dirichlet-multinomial
    evidence with and without the arc (Dash & Cooper 2002, eq. 8); `smooth` is the prior count of
    every cell, `prior` the arc's prior probability.
    """
    from scipy.special import expit, gammaln, logit

    if prior in (0.0, 1.0):  # counts do not change a certainty
        return prior
    prior_count, n_levels = smooth, len(counts)  # of each cell; of the feature

    def log_evidence(n: np.ndarray) -> np.ndarray:
        """Return the log evidence (...) of the counts n (r, ...) of the feature's levels, with N
        their sum.

        ``ln [G(r a) / G(N + r a) prod_k G(n_k + a) / G(a)]``, G the gamma function and a the prior
        count of a cell.
        """
        return (
            gammaln(n_levels * prior_count)
            - gammaln(n.sum(axis=0) + n_levels * prior_count)
            + (gammaln(n + prior_count) - gammaln(prior_count)).sum(axis=0)
        )

    # with the arc one table for each class, without it one for all classes
    log_bayes_factor = log_evidence(counts).sum() - log_evidence(counts.sum(axis=1))
    return float(expit(log_bayes_factor + logit(prior)))


def naive_average(
    dag: Dag, sample: Rows, n_levels: np.ndarray, K: int, smooth: float, prior: float
) -> tuple[Network, np.ndarray]:
    """Return naive Bayes averaged over all subsets of features (MANB), and the posterior (m,) of
    each arc.

    `dag` is a naive Bayes structure, `smooth` > 0 the prior count of every cell, `prior` in [0, 1]
    the prior probability of each arc. (Wei, Visweswaran & Cooper 2011. J Am Med Inform Assoc 18(4),
    370-375, online appendix.)
    """
    families = Families(dag.families, list(n_levels), K)
    counts = families.count(sample)
    # (r, K) of each feature
    tables = [families.table(counts, f) for f in range(len(families.families))]
    posterior = np.array([arc_posterior(table, smooth, prior) for table in tables])
    arc_probability = posterior[families.cell_family][:, None]  # (cells, 1)
    with_arc = dirichlet(counts, families.sum_over_levels(counts), families.cell_widths, smooth)
    # all classes have the same table
    pooled = np.repeat(counts.sum(axis=1, keepdims=True), K, axis=1)
    without_arc = dirichlet(pooled, families.sum_over_levels(pooled), families.cell_widths, smooth)
    theta = arc_probability * with_arc + (1.0 - arc_probability) * without_arc
    return Network(dag, families, class_probabilities(sample, K, smooth), theta), posterior


@dataclass(frozen=True)
class Refitted:
    """A network that was refitted to the training rows of a fold; cross-validation calls
    `class_scores`.
    """

    network: Network | Averaged
    needed: ClassVar[np.ndarray | None] = None  # no feature must be known: any can be summed out

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, known features)`` (n, K) for rows (n, m)."""
        return class_scores(self.network.log_joint(codes, missing))
