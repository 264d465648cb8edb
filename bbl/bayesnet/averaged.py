"""Averages of networks: AODE, and MANB (naive Bayes averaged over all subsets of features)."""

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
    """Networks with the same features that are averaged with equal weights."""

    members: tuple[Network, ...]

    @property
    def prior(self) -> np.ndarray:
        """Class probabilities (K,)."""
        return self.members[0].prior

    @property
    def n_params(self) -> int:
        """Total number of free parameters of all members."""
        return sum(member.n_params for member in self.members)

    def log_joint(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the log of the mean joint probability of the class and the known features, shape
        (n, K).
        """
        total = self.members[0].log_joint(codes, missing)
        for member in self.members[1:]:
            np.logaddexp(total, member.log_joint(codes, missing), out=total)
        return total - np.log(len(self.members))


def super_parents(m: int) -> tuple[Dag, ...]:
    """Return the structures of AODE (averaged one-dependence estimators) for m features.

    In each structure, one feature is the parent of all others; with fewer than two features, the
    structure is naive Bayes.
    """
    if m < 2:
        return (naive(range(m)),)
    return tuple(Dag(((s, ()), *((i, (s,)) for i in range(m) if i != s))) for s in range(m))


def average(
    dags: tuple[Dag, ...], sample: Rows, n_levels: np.ndarray, K: int, smooth: float
) -> Averaged:
    """Return the average of networks with Dirichlet estimates and prior count `smooth` per cell."""
    D = int(np.sum(n_levels))  # number of levels of all features
    # probabilities and their logarithms; all members of AODE together have about D^2 cells
    check_memory(
        16.0 * K * D * D,
        f"Averaging {len(dags)} networks with {D} levels and {K} classes",
        "Use fewer features or levels, or another learner.",
    )
    return Averaged(tuple(estimate(dag, sample, n_levels, K, smooth) for dag in dags))


def arc_posterior(counts: np.ndarray, smooth: float, prior: float) -> float:
    """Return the posterior probability of the arc from the class to a feature with r levels.

    The probability is the logistic function of ``ln B + logit(prior)``, where B is the
    Dirichlet-multinomial evidence of `counts` (r, K) with the arc divided by the evidence without
    it (Dash & Cooper 2002, eq. 8). `smooth` is the prior count of each cell, and `prior` the prior
    probability of the arc.
    """
    from scipy.special import expit, gammaln, logit

    if prior in (0.0, 1.0):  # counts cannot change a prior probability of 0 or 1
        return prior
    prior_count, n_levels = smooth, len(counts)  # per cell; of the feature

    def log_evidence(n: np.ndarray) -> np.ndarray:
        """Return the log evidence of the level counts n (r, ...) of a feature; N is the sum of the
        counts over the r levels.

        It is ``ln [G(r a) / G(N + r a) prod_k G(n_k + a) / G(a)]``, where G is the gamma function
        and a is the prior count of a cell.
        """
        return (
            gammaln(n_levels * prior_count)
            - gammaln(n.sum(axis=0) + n_levels * prior_count)
            + (gammaln(n + prior_count) - gammaln(prior_count)).sum(axis=0)
        )

    # with the arc, there is one table for each class; without it, there is a single table
    log_bayes_factor = log_evidence(counts).sum() - log_evidence(counts.sum(axis=1))
    return float(expit(log_bayes_factor + logit(prior)))


def naive_average(
    dag: Dag, sample: Rows, n_levels: np.ndarray, K: int, smooth: float, prior: float
) -> tuple[Network, np.ndarray]:
    """Return naive Bayes averaged over all subsets of features (MANB), and the arc posteriors (m,).

    `dag` is a naive Bayes structure, `smooth` > 0 is the prior count of each cell, and `prior` in
    [0, 1] is the prior probability of each arc (Wei, Visweswaran & Cooper 2011, J Am Med Inform
    Assoc 18(4), 370-375, online appendix).
    """
    families = Families(dag.families, list(n_levels), K)
    counts = families.count(sample)
    # (r, K) for each feature
    tables = [families.table(counts, f) for f in range(len(families.families))]
    posterior = np.array([arc_posterior(table, smooth, prior) for table in tables])
    arc_probability = posterior[families.cell_family][:, None]  # (cells, 1)
    with_arc = dirichlet(counts, families.sum_over_levels(counts), families.cell_widths, smooth)
    # the same table for all classes
    pooled = np.repeat(counts.sum(axis=1, keepdims=True), K, axis=1)
    without_arc = dirichlet(pooled, families.sum_over_levels(pooled), families.cell_widths, smooth)
    theta = arc_probability * with_arc + (1.0 - arc_probability) * without_arc
    return Network(dag, families, class_probabilities(sample, K, smooth), theta), posterior


@dataclass(frozen=True)
class Refitted:
    """A network refitted to the training rows of a fold, for cross-validation."""

    network: Network | Averaged
    # no features must be known, because any feature can be marginalised
    needed: ClassVar[np.ndarray | None] = None

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return ``ln P(y, known features)`` (n, K) for rows (n, m)."""
        return class_scores(self.network.log_joint(codes, missing))
