"""Replicate weights of a survey, supplied or generated, and scales for variance estimation.

See Wolter (2007) and Rao, Wu & Yue (1992). R is the number of replicates, and n the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.stats.survey.plan import SamplingPlan

__all__ = ["KINDS", "Replicates", "default_scales", "make_replicates"]

KINDS = ("JK1", "JKn", "BRR", "Fay", "bootstrap")


@dataclass(frozen=True)
class Replicates:
    """Replicate weights, and scales for the squared deviations of replicate estimates.

    Attributes
    ----------
    weights : ndarray, shape (n, R)
        Non-negative weights of each replicate, including the sampling weights.
    scale : float
        Factor for the squared deviations of all replicates.
    rscales : ndarray, shape (R,)
        Additional factor for the squared deviations of each replicate.
    mse : bool
        Whether deviations are from the full-sample estimate instead of the mean of the replicates.
    """

    weights: np.ndarray
    scale: float
    rscales: np.ndarray
    mse: bool = False

    def degrees_of_freedom(self, rows: np.ndarray | slice = slice(None)) -> int:
        """Return the rank of the replicate weights of the `rows` of a domain, minus 1."""
        return int(np.linalg.matrix_rank(self.weights[rows])) - 1

    def deviations(self, estimates: np.ndarray, full: np.ndarray) -> np.ndarray:
        """Return a matrix E (R, p) such that ``E'E`` is the covariance of an estimate.

        `full` (p,) is the full-sample estimate, and `estimates` (R, p) contains the replicate
        estimates. Replicates with non-finite estimates are omitted. E is nan if the number of
        remaining replicates is too small.
        """
        varies = self.rscales > 0.0
        is_used = varies & np.isfinite(estimates).all(axis=1)
        # deviations from the mean require at least two replicates
        if varies.any() and is_used.sum() < (1 if self.mse else 2):
            return np.full(estimates.shape, np.nan)
        out = np.zeros(estimates.shape)
        if is_used.any():
            centre = full if self.mse else estimates[is_used].mean(axis=0)
            out[is_used] = (estimates[is_used] - centre) * np.sqrt(
                self.scale * self.rscales[is_used]
            )[:, None]
        return out


def default_scales(kind: str, n_replicates: int, rho: float = 0.0) -> tuple[float, np.ndarray]:
    """Return scale and rscales (R,) for a kind of replicates: "JK1", "BRR", "Fay" or "bootstrap".

    `rho` is the parameter of Fay's method (see `make_replicates`); it is ignored for other kinds.
    """
    R = n_replicates
    scales = {
        "JK1": (R - 1) / R,
        "BRR": 1.0 / R,
        "Fay": 1.0 / (R * (1.0 - rho) ** 2),
        "bootstrap": 1.0 / max(R - 1, 1),
    }
    return scales[kind], np.ones(R)


def make_replicates(
    plan: SamplingPlan,
    kind: str,
    n_replicates: int = 0,
    rho: float = 0.0,
    rng: np.random.Generator | None = None,
) -> Replicates:
    """Return replicate weights that drop or repeat the first-stage clusters of a plan.

    Parameters
    ----------
    plan : SamplingPlan
        A plan with a single stratum for "JK1", and two clusters per stratum for "BRR" and "Fay".
    kind : {"JK1", "JKn", "BRR", "Fay", "bootstrap"}
        "JK1", "JKn": jackknife without and with strata, where one cluster at a time is dropped.
        "BRR": balanced repeated replication. "Fay": the same, but the weights in one half of each
        stratum are multiplied by `rho`, and the weights in the other half by ``2 - rho``.
        "bootstrap": n - 1 draws with replacement from the n clusters of each stratum (Rao, Wu & Yue
        1992).
    n_replicates : int
        Number of bootstrap replicates; for other kinds, the number is determined by the plan.
    rho : float
        Parameter of Fay's method, between 0 and 1.
    rng : numpy.random.Generator, optional
        Random number generator for the bootstrap.
    """
    # `plan.clusters[0]` and `plan.strata` (n,): first-stage cluster and stratum of each row,
    # numbered from 0
    clusters, first_rows = np.unique(plan.clusters[0], return_index=True)
    stratum = plan.strata[first_rows]  # (clusters,)
    n_drawn = np.bincount(stratum)  # (strata,)
    # finite population corrections: the proportions of each stratum's clusters not drawn; unused by
    # "BRR" and "Fay"
    fpc = (
        np.ones(len(n_drawn))
        if plan.population is None
        else 1.0 - n_drawn / _count_population(plan, first_rows, stratum)
    )
    if kind in ("JK1", "JKn"):
        n_in_stratum = n_drawn[stratum].astype(float)
        # (clusters, R), R = clusters: a replicate has factor 0 for its cluster, and a larger one
        # for the others in the stratum
        factors = np.where(
            stratum[:, None] == stratum, (n_in_stratum / (n_in_stratum - 1.0))[:, None], 1.0
        )
        np.fill_diagonal(factors, 0.0)
        rscales = (n_in_stratum - 1.0) / n_in_stratum * fpc[stratum]
        scale = 1.0
        if kind == "JK1":
            # the same for all, because of the single stratum
            scale = float(rscales[0])
            rscales = np.ones(len(clusters))
    elif kind == "bootstrap":
        assert rng is not None  # noqa: S101  # given by its caller
        factors = _bootstrap_factors(stratum, n_drawn, n_replicates, rng)
        factors = 1.0 + np.sqrt(fpc)[stratum][:, None] * (factors - 1.0)
        scale, rscales = default_scales(kind, n_replicates)
    else:  # "BRR" is Fay's method with rho = 0
        # (R, strata); column 0 is constant
        signs = _hadamard(len(n_drawn))[:, 1 : len(n_drawn) + 1]
        is_first = np.zeros(len(clusters), dtype=bool)
        # the first cluster of each stratum
        is_first[np.unique(stratum, return_index=True)[1]] = True
        # (R, clusters): 1 for the half whose weights are increased in a replicate, -1 for the other
        # half
        cluster_signs = np.where(is_first, -1.0, 1.0) * signs[:, stratum]
        rho = rho if kind == "Fay" else 0.0
        factors = (1.0 + (1.0 - rho) * cluster_signs).T
        scale, rscales = default_scales("Fay", len(signs), rho)
    return Replicates(plan.weights[:, None] * factors[plan.clusters[0]], scale, rscales)


def _count_population(
    plan: SamplingPlan, first_rows: np.ndarray, stratum: np.ndarray
) -> np.ndarray:
    """Return the number of first-stage clusters in the population of each stratum."""
    assert plan.population is not None  # noqa: S101  # checked by its caller
    out = np.ones(int(stratum.max()) + 1)
    # `population[0]` (n,): number of clusters in each row's stratum
    out[stratum] = plan.population[0][first_rows]
    return out


def _bootstrap_factors(
    stratum: np.ndarray, n_drawn: np.ndarray, R: int, rng: np.random.Generator
) -> np.ndarray:
    """Return factors (clusters, R) for n - 1 draws with replacement from the n clusters of each
    stratum.
    """
    factors = np.zeros((len(stratum), R))  # the factor n / (n - 1) makes their mean 1
    for h, n in enumerate(n_drawn):
        draws = rng.multinomial(n - 1, np.full(n, 1.0 / n), size=R)
        factors[stratum == h] = draws.T * (n / (n - 1.0))
    return factors


def _hadamard(n_strata: int) -> np.ndarray:
    """Return a matrix of 1 and -1 with orthogonal columns, shape (R, R).

    R is the smallest power of 2 above the number of strata.
    """
    from scipy.linalg import hadamard

    return hadamard(1 << n_strata.bit_length())
