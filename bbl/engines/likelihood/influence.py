"""Fisher information of an exact fit, and the influence of rows on it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bbl.engines.likelihood.gaps import IncompleteLikelihood
from bbl.engines.likelihood.solve import MAX_STATES, Penalty, Solution, n_states, tree_order
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import JunctionTree
from bbl.memory import check_memory
from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import one_hot
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["LikelihoodInfluence"]


class LikelihoodInfluence(RowInfluence):
    """Influence of rows on the maximum likelihood estimate of one group, and the covariances of the estimate.

    A row moves the estimate by ``H^-1 (T(x) - mu - gradient of the penalty) / W``: H is the mean of minus the Hessian
    of the penalised log-likelihood, mu the moments of the model, W the total weight. The covariance of the estimate is
    ``H^-1 I H^-1 / W`` with the Fisher information I (the observed one where values are missing), which is
    ``I^-1 / W`` without a penalty.

    Parameters
    ----------
    rows : Sample
        The rows that the group was fitted to.
    layout : Layout
    solution : Solution
    penalty : Penalty
    """

    def __init__(self, rows: Sample, layout: Layout, solution: Solution, penalty: Penalty):
        self.layout, self.theta, self.total = layout, solution.theta, rows.total
        self._penalty, self.determined = penalty, solution.determined
        check_memory(
            32.0 * float(layout.size) ** 2,
            f"The information of {layout.size} parameters",
            "Fit fewer predictors or fewer interactions.",
        )
        with serial_blas():
            if rows.complete:
                self._incomplete = None
                self.mu, self._information = _information(layout, solution.theta)
            else:
                table = StateTable(layout)
                self._incomplete = IncompleteLikelihood(table, rows, np.zeros(table.n), np.zeros(layout.size), None)
                self._incomplete.value(solution.theta)
                self._incomplete.gradient()
                self.mu, self._information = self._incomplete.mu, self._incomplete.curvatures()[0]
                self.total = self._incomplete.total

    @cached_property
    def _inverse(self) -> np.ndarray:
        """Inverse (size, size) of H among the determined parameters; zero for the others."""
        share = self._penalty.prior_count / (self.total + self._penalty.prior_count)
        H = self._information + np.diag(self._penalty.ridge) / (1.0 - share)
        at = np.flatnonzero(self.determined)
        out = np.zeros_like(H)
        scale = np.sqrt(H.diagonal()[at])
        out[np.ix_(at, at)] = np.linalg.inv(H[np.ix_(at, at)] / np.outer(scale, scale)) / np.outer(scale, scale)
        return 0.5 * (out + out.T)

    @cached_property
    def _covariance(self) -> np.ndarray:
        """Covariance (size, size) of the estimate; nan for parameters that are not determined."""
        out = self._inverse @ self._information @ self._inverse / self.total
        out[~self.determined] = np.nan
        out[:, ~self.determined] = np.nan
        return out

    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the covariance (layout.size, layout.size) of the estimate."""
        return self._covariance

    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the covariance of each table of fields, then of each table of couplings."""
        cuts = self.layout.cuts
        return [self._covariance[a:b, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, size) of rows on the parameters."""
        if self._incomplete is None or rows.missing is None:
            scores = row_indicators(self.layout, rows.codes) - self.mu
        else:
            scores = self._incomplete.row_means(rows) - self.mu
        return (scores - self._penalty.ridge * self.theta) @ self._inverse


def row_indicators(layout: Layout, codes: np.ndarray) -> np.ndarray:
    """Return the indicators (n, size) of all parameters in rows of codes (n, m)."""
    X = np.column_stack([one_hot(codes, layout), np.ones(len(codes))])
    out = np.ones((len(codes), layout.size))
    for columns in term_columns(layout):
        out *= X[:, columns]
    return out


def _information(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments (size,) and the Fisher information (size, size) of one complete observation."""
    if n_states(layout) <= MAX_STATES:
        table = StateTable(layout)
        _, p = table.log_partition(theta)
        mu = table.moments(p)
        return mu, table.covariances(p, mu)
    tree = JunctionTree(layout, tree_order(layout))
    margins = tree.margins(theta)
    return tree.moments(margins), tree.information(margins)
