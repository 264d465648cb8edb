"""Fisher information of an exact fit, and the influence of rows on its estimate.

The influence of a row is the change of the estimate, to first order, as its weight grows. `size` is
the number of parameters of the model, or of a part of it that does not interact with the rest; each
parameter has an indicator in a row, whose mean is its moment. A basis is a mask of as many
parameters as the rows, or a penalty, can determine: with the others held fixed, their estimate is
unique (see `existence.rank`).

A `Component` is a part of the model that does not interact with the rest: `positions` are those of
its parameters among all, `layout` is that of its predictors alone, and ``columns(rows)`` are the
rows with the codes of these predictors.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from bbl.engines.likelihood.gaps import IncompleteLikelihood, missing_patterns
from bbl.engines.likelihood.solve import MAX_STATES, Penalty, Solution, n_states, tree_order
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import Component, JunctionTree, components
from bbl.memory import check_memory
from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout, term_columns
from bbl.model.moments import one_hot
from bbl.parallel import serial_blas
from bbl.rows.sample import Sample

__all__ = ["LikelihoodInfluence", "inverse_on_basis", "row_indicators"]

NO_INFORMATION = 1e-18  # diagonal element of an information that is zero but for rounding


class LikelihoodInfluence(RowInfluence):
    """Influence of rows on the maximum likelihood estimate of one group, and the covariances of the
    estimate.

    A row moves the estimate by ``s H^-1 (T(x) - mu) / W``, up to a constant that makes all moves
    sum to zero: H is minus the Hessian of the objective per observation, mu the moments of the
    model, W the weight of the rows, and s their share when a prior count adds others. The
    covariance of the estimate is ``s^2 H^-1 I H^-1 / W`` with the Fisher information I (the
    observed one where values are missing), which is ``I^-1 / W`` without a penalty. Parts of the
    model that do not interact have independent estimates.

    Parameters
    ----------
    rows : Sample
        The rows that the group was fitted to.
    layout : Layout
    solution : Solution
        The fit: `theta` (size,), and the masks (size,) `determined`, of the parameters that are
        finite and unique at the maximum, and `basis`, which marks these and some others, as many in
        all as there are degrees of freedom.
    penalty : Penalty
        `ridge` (size,) holds the L2 penalties, `prior_count` the number of rows that are spread
        evenly over all states.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The estimate.
    total : float
        Weight W of the rows.
    determined : ndarray of bool, shape (size,)
        Parameters that the rows, or a penalty, determine; the others have no influences.
    """

    def __init__(self, rows: Sample, layout: Layout, solution: Solution, penalty: Penalty):
        self.layout = layout
        self.theta = solution.theta
        self.total = rows.total
        check_memory(
            32.0 * float(layout.size) ** 2,  # four matrices (size, size) of numbers of 8 bytes
            f"The information of {layout.size} parameters",
            "Fit fewer predictors or fewer interactions.",
        )
        with serial_blas():
            self._parts = [
                _Part(
                    component,
                    component.columns(rows),
                    self.theta[component.positions],
                    solution.basis[component.positions],
                    Penalty(penalty.ridge[component.positions], penalty.prior_count),
                )
                for component in components(layout)
            ]
        # a part drops parameters without information from its basis: if they were in the solution's
        # basis, they are not determined after all; `|`: parameters outside the solution's basis
        # keep their value of `determined`
        self.determined = solution.determined.copy()
        for part in self._parts:
            self.determined[part.component.positions] &= (
                part.basis | ~solution.basis[part.component.positions]
            )

    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the covariance (layout.size, layout.size) of the estimate; nan where it is not
        determined.

        `rows` are not used: the argument is that of all `RowInfluence`.
        """
        out = np.zeros((self.layout.size, self.layout.size))
        for part in self._parts:
            positions = part.component.positions
            out[np.ix_(positions, positions)] = part.covariance
        out[~self.determined] = np.nan
        out[:, ~self.determined] = np.nan
        return out

    def of_combinations(self) -> tuple[LikelihoodInfluence, np.ndarray]:
        """Return ``(influences, directions)``, from which the errors of combinations of parameters
        follow.

        Rows may determine a combination, such as a difference of two parameters, although they
        determine neither. The influences are those on the parameters of the basis; the d others are
        held fixed. `directions` (size, d) has a column for each of these: the change of all
        parameters as it grows by 1, along which the likelihood is flat or rises without end. A
        combination that is constant along these has the errors that follow from the influences.
        """
        on_basis = copy(self)
        # `__call__` drops none: they are 0 off the basis
        on_basis.determined = np.ones(self.layout.size, dtype=bool)
        directions = np.zeros((self.layout.size, self.layout.size))
        for part in self._parts:
            positions = part.component.positions
            directions[np.ix_(positions, positions)] = part.flat_directions
        return on_basis, directions[:, directions.any(axis=0)]

    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the covariance of each table of fields, then of each table of couplings; `rows`
        are not used.
        """
        # cuts: where each table of parameters begins
        covariance = self.covariance(rows)
        cuts = self.layout.cuts
        return [covariance[a:b, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, size) of rows, times `total`; zero on parameters that are not
        determined.
        """
        out = np.empty((rows.n, self.layout.size))
        for part in self._parts:
            out[:, part.component.positions] = part.row_influences(
                part.component.columns(rows), self.total
            )
        return out * self.determined


class _Part:
    """`LikelihoodInfluence` of a part of the model; formulas are those of that class.

    Parameters
    ----------
    component : Component
    rows : Sample
        Its columns of the fitted rows.
    theta : ndarray, shape (size,)
        Fitted parameters.
    basis : ndarray of bool, shape (size,)
        That of the solution.
    penalty : Penalty

    Attributes
    ----------
    total : float
        Weight of the rows; of those of which something is known, where values are missing.
    basis : ndarray of bool, shape (size,)
        The solution's basis without parameters of which H holds no information.
    mu : ndarray, shape (size,)
        Moments of the model.
    share : float
        Share s of the rows, when a prior count adds others.
    inverse : ndarray, shape (size, size)
        Inverse of H among the parameters of the basis.
    flat_directions : ndarray, shape (size, size)
        Column k: the direction in which the parameters change if parameter k, not in the basis,
        grows by 1; 0 for k in the basis.
    covariance : ndarray, shape (size, size)
        Covariance of the estimate.
    pull : ndarray, shape (size,)
        Gradient of the prior count and of the penalty, ``(1 - s) (moments of even rows - mu) -
        ridge theta``, which makes the influences sum to zero.
    """

    def __init__(
        self,
        component: Component,
        rows: Sample,
        theta: np.ndarray,
        basis: np.ndarray,
        penalty: Penalty,
    ):
        self.component = component
        self.total = rows.total
        self._incomplete: IncompleteLikelihood | None = None
        if rows.complete:
            mu, information = _information(component.layout, theta)
            complete_information = information
        else:
            # `rows` hold the columns of the component alone, so that its predictors have the
            # numbers 0, 1, ... in them
            table = StateTable(component.layout)
            renumbered = component._replace(predictors=np.arange(component.layout.m))
            patterns = missing_patterns(table, renumbered, rows)
            # zeros: no prior count and no penalty, which H gets below
            self._incomplete = IncompleteLikelihood(
                table, patterns, np.zeros(table.n), np.zeros(component.layout.size)
            )
            # sets the probabilities, and `gradient` the moments, at theta
            self._incomplete.value(theta)
            self._incomplete.gradient()
            mu = self._incomplete.mu
            self.total = self._incomplete.total
            # that of the rows, and what it would be if they were complete
            information, complete_information = self._incomplete.curvatures()
        self.mu = mu
        self.share = self.total / (self.total + penalty.prior_count)
        # the rows of a prior count are complete
        H = (
            self.share * information
            + (1.0 - self.share) * complete_information
            + np.diag(penalty.ridge)
        )
        self.basis = basis & (H.diagonal() > NO_INFORMATION)
        self.inverse = inverse_on_basis(H, self.basis)
        # column k: 1 at k, -(H_bb)^-1 H_bk at the basis b, where the gradient then stays zero
        self.flat_directions = np.where(self.basis, 0.0, np.eye(len(H)) - self.inverse @ H)
        self.covariance = self.inverse @ information @ self.inverse * (self.share**2 / self.total)
        # rounding below zero is none
        np.fill_diagonal(self.covariance, np.maximum(self.covariance.diagonal(), 0.0))
        self.pull = (1.0 - self.share) * (
            _even_moments(component.layout) - mu
        ) - penalty.ridge * theta

    def row_influences(self, rows: Sample, total_of_all_rows: float) -> np.ndarray:
        """Return the influences (n, size) of rows on the parameters, times the weight
        `total_of_all_rows` fitted.
        """
        if self._incomplete is None or rows.missing is None:
            means = row_indicators(self.component.layout, rows.codes)
        else:
            means = self._incomplete.row_means(rows)
        # the product is the influence times `self.total`, the weight of the rows in the likelihood
        # of this part
        return (
            (self.share * (means - self.mu) + self.pull)
            @ self.inverse
            * (total_of_all_rows / self.total)
        )


def _even_moments(layout: Layout) -> np.ndarray:
    """Return the moments (size,) if all states that can occur are equally probable."""
    if layout.support is not None:  # structural zeros: some states cannot occur
        table = StateTable(layout)
        return table.moments(table.spread(1.0))
    moments = np.empty(layout.size)  # predictors are independent: products of 1 / L
    for scope in layout.scopes:
        layout.table(moments, *scope)[...] = 1.0 / np.prod(
            layout.n_levels[list(scope)].astype(float)
        )
    return moments


def inverse_on_basis(H: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return the inverse (size, size) of H (size, size) among the parameters of a mask `basis`;
    zero for the others.

    Entries of determined parameters are the same for every basis.
    """
    from scipy.linalg import lapack, pinvh

    basis = basis & (H.diagonal() > NO_INFORMATION)
    basis_block = np.ix_(basis, basis)
    scale = np.sqrt(H.diagonal()[basis])  # H is inverted with a unit diagonal
    out = np.zeros_like(H)
    if not basis.any():
        return out
    scaled = H[basis_block] / np.outer(scale, scale)
    factor, failed = lapack.dpotrf(scaled, lower=1)
    if failed:  # not positive definite, by rounding
        out[basis_block] = pinvh(scaled) / np.outer(scale, scale)
        return out
    inverted = np.tril(lapack.dpotri(factor, lower=1)[0])  # only the lower triangle is filled
    out[basis_block] = (inverted + np.tril(inverted, -1).T) / np.outer(scale, scale)
    return out


def row_indicators(layout: Layout, codes: np.ndarray) -> np.ndarray:
    """Return the indicators (n, size) of all parameters in rows of codes (n, m)."""
    # term_columns (order, size): for each place in a term, the column of its level in one_hot (n,
    # D) by parameter; -1, here the column of ones, where a term has fewer predictors than the
    # highest order
    X = np.column_stack([one_hot(codes, layout), np.ones(len(codes))])
    out = np.ones((len(codes), layout.size))
    for columns in term_columns(layout):
        out *= X[:, columns]
    return out


def _information(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments (size,) and the Fisher information (size, size) of one complete
    observation.
    """
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
