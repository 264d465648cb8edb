"""Feature weights for naive Bayes: the table of each feature is raised to a power in [0, 1]."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bbl.bayesnet.dag import naive
from bbl.bayesnet.families import Families
from bbl.bayesnet.predict import Network, estimate
from bbl.bayesnet.trees import split_depths
from bbl.errors import DataError
from bbl.memory import check_memory
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities

__all__ = [
    "ConditionalLikelihood",
    "SquaredError",
    "bootstrap",
    "conditional_weights",
    "tree_weights",
    "weighted",
]


def _raise_to_weights(families: Families, theta: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ``theta ** w`` (cells, K), renormalised within parent configurations.

    `theta` (cells, K) contains the tables, and `weights` (m,) the weight w of each feature in the
    order of the tables. ``0 ** 0`` is 1.
    """
    # `cell_family` (cells,): the feature of each cell
    powered = theta ** weights[families.cell_family][:, None]
    return powered / families.sum_over_levels(powered)


def weighted(network: Network, weights: np.ndarray) -> Network:
    """Return the network with each feature's table raised to the power of its weight; `weights`
    (m,) are in the order of the model.
    """
    return replace(network, theta=_raise_to_weights(network.families, network.theta, weights))


class ConditionalLikelihood:
    """Negative conditional log-likelihood of weighted naive Bayes, with its gradient.

    The objective is ``-sum_i v_i ln P(y_i | x_i)`` with row weights v_i, where ``P(y, x)`` is the
    product of P(y) and the weighted table entries of the known features. The unweighted tables are
    the estimates of naive Bayes with ``smooth=1`` from the rows with a known class. Because
    weighted tables are renormalised, the gradient contains log-probabilities that are centred at
    their means under the weighted tables. The features have `n_levels` (m,) levels, and there are
    `K` classes.

    Attributes
    ----------
    sample : Sample
        The rows with a known class.
    base : Network
        Unweighted naive Bayes.
    counts, log_theta : ndarray, shape (cells, K)
        Row counts of the cells, and the logarithms of the tables of `base`.
    """

    def __init__(self, sample: Sample, n_levels: np.ndarray, K: int):
        self.sample = sample = sample.rows(sample.response >= 0)
        self.base = estimate(naive(range(len(n_levels))), sample, n_levels, K, smooth=1.0)
        self.counts = self.base.families.count(sample)
        self.log_theta = np.log(self.base.theta)

    def __call__(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective and its gradient (m,) at the weights (m,)."""
        sample = self.sample
        families = self.base.families
        theta = _raise_to_weights(families, self.base.theta, weights)
        log_prior = np.tile(np.log(self.base.prior), (sample.n, 1))  # (n, K)
        # `score` adds the log-probabilities of the known features in place
        log_joint = families.score(np.log(theta), sample.codes, sample.missing, log_prior)
        # class probabilities (n, K)
        value, cell_residual = self._loss(log_probabilities(log_joint))
        centred = self.log_theta - families.sum_over_levels(theta * self.log_theta)
        # derivative with respect to a feature's weight, which is the sum of this over the cells of
        # its table
        cell_gradient = (cell_residual * centred).sum(axis=1)
        return value, np.bincount(families.cell_family, cell_gradient, len(weights))

    def _loss(self, log_p: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective for given class log-probabilities, and its derivative with respect
        to the log tables.
        """
        sample = self.sample
        value = -float(sample.weights @ log_p[np.arange(sample.n), sample.response])
        # expected counts of the cells if each row's class is drawn from its probabilities
        expected = self.base.families.spread(
            sample.codes, sample.missing, np.exp(log_p) * sample.weights[:, None]
        )
        return value, expected - self.counts


class SquaredError(ConditionalLikelihood):
    """Squared error of the class probabilities of weighted naive Bayes, with its gradient.

    The objective is ``1/2 sum_i v_i sum_y (1[y = y_i] - P(y | x_i))^2``; everything else is the
    same as in the base class.
    """

    def _loss(self, log_p: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective for given class log-probabilities, and its derivative with respect
        to the log tables.
        """
        sample = self.sample
        p = np.exp(log_p)
        error = p.copy()
        error[np.arange(sample.n), sample.response] -= 1.0
        value = 0.5 * float(sample.weights @ (error * error).sum(axis=1))
        # dp_k / ds_j = p_k (1[j = k] - p_j) for class scores s
        by_score = p * (error - (p * error).sum(axis=1, keepdims=True)) * sample.weights[:, None]
        return value, self.base.families.spread(sample.codes, sample.missing, by_score)


def conditional_weights(
    sample: Sample,
    n_levels: np.ndarray,
    K: int,
    loss: type[ConditionalLikelihood] = ConditionalLikelihood,
) -> np.ndarray:
    """Return the weights (m,) in [0, 1] that minimise `loss` (WANBIA); the search starts with
    weights of 1.

    `loss` is the negative conditional log-likelihood or the squared error.

    References
    ----------
    Zaidi NA, Cerquides J, Carman MJ, Webb GI (2013). JMLR 14, 1947-1988.
    """
    from scipy.optimize import Bounds, minimize

    m = len(n_levels)
    if not m:
        return np.ones(0)
    objective = loss(sample, n_levels, K)
    total_weight = max(objective.sample.total, 1.0)

    def mean_objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective and its gradient (m,) per observation."""
        value, gradient = objective(w)
        return value / total_weight, gradient / total_weight

    limits = {"maxiter": 1000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-10}
    optimum = minimize(
        mean_objective,
        np.ones(m),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, 1.0),
        options=limits,
    )
    return np.clip(optimum.x, 0.0, 1.0)


def bootstrap(
    sample: Sample, trees: int, share: float, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return each tree's row positions: ``trunc(share * total weight)`` rows are drawn with
    replacement.

    Rows are drawn in proportion to their integer weights.
    """
    cumulated_weights = np.cumsum(sample.weights)
    size = int(share * sample.total)
    check_memory(  # 8 bytes for the position of each draw, and temporary arrays
        24.0 * trees * size,
        f"Drawing {size:,} rows for each of {trees} trees",
        "Use fewer trees (awnb_trees) or rows per tree (awnb_bootstrap).",
    )
    return [
        np.searchsorted(
            cumulated_weights, rng.integers(0, int(cumulated_weights[-1]), size), side="right"
        )
        for _ in range(trees)
    ]


def tree_weights(
    sample: Sample, n_levels: np.ndarray, K: int, rows_of_trees: list[np.ndarray]
) -> np.ndarray:
    """Return the weight (m,) of each feature, which is the mean over trees of ``1 / sqrt(d)``
    (AWNB).

    Here d is the smallest depth at which a tree splits on the feature; it is 1 at the root, and inf
    if the tree does not split on the feature. `rows_of_trees` contains the positions of each tree's
    rows.

    References
    ----------
    Hall M (2007). Knowledge-Based Systems 20(2), 120-126.
    """
    depths = np.array([split_depths(sample, n_levels, K, drawn) for drawn in rows_of_trees])
    if not np.isfinite(depths).any():
        raise DataError(
            "AWNB cannot weight the features: no tree has a split, so no feature separates "
            "the classes.",
            argument="awnb_bootstrap",
            hint="Omit awnb_trees and awnb_bootstrap, or draw more rows (awnb_bootstrap).",
        )
    return (1.0 / np.sqrt(depths)).mean(axis=0)
