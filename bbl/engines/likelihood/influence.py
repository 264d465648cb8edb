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

    A row moves the estimate by ``s H^-1 (T(x) - mu) / W``, up to a constant that makes all moves sum to zero: H is
    minus the Hessian of the objective per observation, mu the moments of the model, W the weight of the rows, and s
    their share when a prior count adds others. The covariance of the estimate is ``s^2 H^-1 I H^-1 / W`` with the
    Fisher information I (the observed one where values are missing), which is ``I^-1 / W`` without a penalty.

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
                curvature = self._information
            else:
                table = StateTable(layout)
                self._incomplete = IncompleteLikelihood(table, rows, np.zeros(table.n), np.zeros(layout.size), None)
                self._incomplete.value(solution.theta)
                self._incomplete.gradient()
                self.mu, self.total = self._incomplete.mu, self._incomplete.total
                self._information, curvature = self._incomplete.curvatures()
        self._share = self.total / (self.total + penalty.prior_count)
        H = self._share * self._information + (1.0 - self._share) * curvature + np.diag(penalty.ridge)
        self._inverse = _inverse(H, solution.basis)

    @cached_property
    def _covariance(self) -> np.ndarray:
        """Covariance (size, size) of the estimate; nan for parameters that are not determined."""
        out = self._inverse @ self._information @ self._inverse * (self._share**2 / self.total)
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
        """Return the influences (n, size) of rows on the parameters; zero on those that are not determined."""
        if self._incomplete is None or rows.missing is None:
            scores = row_indicators(self.layout, rows.codes) - self.mu
        else:
            scores = self._incomplete.row_means(rows) - self.mu
        return (self._share * scores + self._pull) @ self._inverse * self.determined

    @cached_property
    def _pull(self) -> np.ndarray:
        """Gradient (size,) of what the penalty adds to the objective."""
        layout, even = self.layout, np.empty(self.layout.size)
        for scope in layout.scopes:
            layout.table(even, *scope)[...] = 1.0 / np.prod(layout.n_levels[list(scope)].astype(float))
        return (1.0 - self._share) * (even - self.mu) - self._penalty.ridge * self.theta


def _inverse(H: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return the inverse (size, size) of H among the parameters of a `basis`; zero for the others.

    For determined parameters it does not depend on the basis, though on their being estimated along with the others.
    """
    at = np.ix_(basis, basis)
    scale = np.sqrt(H.diagonal()[basis])
    out = np.zeros_like(H)
    out[at] = np.linalg.inv(H[at] / np.outer(scale, scale)) / np.outer(scale, scale)
    return 0.5 * (out + out.T)


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
    order = tree_order(layout)
    assert order is not None  # noqa: S101  # the model was fitted
    tree = JunctionTree(layout, order)
    margins = tree.margins(theta)
    return tree.moments(margins), tree.information(margins)
