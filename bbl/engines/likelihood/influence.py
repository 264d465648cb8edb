"""Fisher information of an exact fit, and the influence of rows on the estimate."""

# A row's influence is the first-order change of the estimate as its weight increases. `size` is the
# number of parameters of the model, or of a component, which does not interact with the rest of the
# model. A basis is a mask of as many parameters as the rows or a penalty can determine: with the
# others held fixed, their estimate is unique (see `existence.rank`).

from __future__ import annotations

from copy import copy

import numpy as np

from bbl.engines.likelihood.gaps import IncompleteLikelihood, missing_patterns
from bbl.engines.likelihood.scored import tied_parameters
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

NO_INFORMATION = 1e-18  # diagonal elements of an information up to this are rounding errors


class LikelihoodInfluence(RowInfluence):
    """Influence of rows on one group's maximum likelihood estimate, and its covariances.

    A row changes the estimate by ``s H^-1 (T(x) - mu) / W``, up to a constant that makes all
    changes sum to zero. H is minus the Hessian of the objective per observation, mu contains the
    moments of the model, and W is the total weight of the rows. If a prior count adds rows, s is
    the proportion of the observed rows among all rows. The covariance of the estimate is ``s^2 H^-1
    I H^-1 / W``, where I is the Fisher information (the observed information if values are
    missing). Without a penalty, this is ``I^-1 / W``. Estimates of different components of the
    model are independent.

    Parameters
    ----------
    rows : Sample
        The training rows of the group.
    layout : Layout
    solution : Solution
        The fit. `theta` (size,) is the estimate, and `determined` (size,) is a mask of the
        parameters that are finite and unique at the maximum. The mask `basis` (size,) also includes
        some other parameters, so that it has as many parameters as there are degrees of freedom.
    penalty : Penalty
        `ridge` (size,) contains the L2 penalties, and `prior_count` is the number of rows spread
        evenly over all states.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The estimate.
    total : float
        Weight W of the rows.
    determined : ndarray of bool, shape (size,)
        Parameters that are determined by the rows or by a penalty. Rows have no influence on the
        other parameters.
    """

    def __init__(self, rows: Sample, layout: Layout, solution: Solution, penalty: Penalty):
        self.layout = layout
        self.theta = solution.theta
        self.total = rows.total
        check_memory(
            32.0 * float(layout.size) ** 2,  # four matrices (size, size), 8 bytes per number
            f"The information matrix of {layout.size} parameters",
            "Use fewer predictors or fewer interactions.",
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
        # Parameters of the solution's basis without information are not determined after all.
        self.determined = solution.determined.copy()
        for part in self._parts:
            self.determined[part.component.positions] &= ~part.uninformed

    @property
    def pull(self) -> np.ndarray:
        """Gradient (size,) of the prior count and of the penalty, per observation.

        At the optimum, this is minus the gradient of the mean log-likelihood of the rows.
        """
        out = np.zeros(self.layout.size)
        for part in self._parts:
            out[part.component.positions] = part.pull / part.share
        return out

    def times_inverse(self, gradient: np.ndarray) -> np.ndarray:
        """Return ``H^-1 gradient`` (size,), where H is minus the Hessian per observation."""
        out = np.zeros(self.layout.size)
        for part in self._parts:
            positions = part.component.positions
            out[positions] = part.inverse @ gradient[positions]
        return out

    def covariance(self, rows: Sample) -> np.ndarray:
        """Return the covariance (layout.size, layout.size) of the estimate; nan if not determined.

        `rows` is not used here, but is part of the signature of `RowInfluence`.
        """
        out = np.zeros((self.layout.size, self.layout.size))
        for part in self._parts:
            positions = part.component.positions
            out[np.ix_(positions, positions)] = part.covariance
        out[~self.determined] = np.nan
        out[:, ~self.determined] = np.nan
        return out

    def of_combinations(self) -> tuple[LikelihoodInfluence, np.ndarray]:
        """Return ``(influences, directions)``, for standard errors of combinations of parameters.

        A combination, such as the difference between two parameters, may be determined even if its
        parameters are not. The influences are on the parameters in the basis; the other d
        parameters are held fixed. `directions` (size, d) has a column for each of the d fixed
        parameters, which contains the changes in all parameters if the fixed parameter increases by
        1. Along these directions, the likelihood is constant or increases indefinitely. The
        influences determine the standard error of any combination that is constant along all
        directions.
        """
        on_basis = copy(self)
        # `__call__` then keeps all influences, which are 0 outside the basis
        on_basis.determined = np.ones(self.layout.size, dtype=bool)
        directions = np.zeros((self.layout.size, self.layout.size))
        for part in self._parts:
            positions = part.component.positions
            directions[np.ix_(positions, positions)] = part.flat_directions
        return on_basis, directions[:, directions.any(axis=0)]

    def terms(self, rows: Sample) -> list[np.ndarray]:
        """Return the covariance of each table of fields, followed by each table of couplings.

        `rows` is not used.
        """
        # cuts: where each table of parameters begins
        covariance = self.covariance(rows)
        cuts = self.layout.cuts
        return [covariance[a:b, a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]

    def __call__(self, rows: Sample) -> np.ndarray:
        """Return the influences (n, size) of rows, multiplied by `total`.

        The influence on parameters that are not determined is zero.
        """
        out = np.empty((rows.n, self.layout.size))
        for part in self._parts:
            out[:, part.component.positions] = part.row_influences(
                part.component.columns(rows), self.total
            )
        return out * self.determined


class _Part:
    """`LikelihoodInfluence` for one component; see that class for the formulas.

    Parameters
    ----------
    component : Component
    rows : Sample
        The training rows, restricted to the component's columns.
    theta : ndarray, shape (size,)
        Fitted parameters.
    basis : ndarray of bool, shape (size,)
        The basis of the solution.
    penalty : Penalty

    Attributes
    ----------
    total : float
        Weight of the rows that have at least one observed value.
    uninformed : ndarray of bool, shape (size,)
        Parameters in the solution's basis about which H contains no information. The influence of
        rows on them is zero.
    mu : ndarray, shape (size,)
        Moments of the model.
    share : float
        Proportion s of the observed rows among all rows, including the rows that a prior count
        adds.
    inverse : ndarray, shape (size, size)
        Inverse of H for the other parameters in the basis.
    flat_directions : ndarray, shape (size, size)
        If parameter k is outside the basis, column k contains the changes in all parameters if
        parameter k increases by 1. Columns of parameters in the basis are 0.
    covariance : ndarray, shape (size, size)
        Covariance of the estimate.
    pull : ndarray, shape (size,)
        Gradient of the prior count and the penalty, which makes the influences sum to zero: ``(1 -
        s) (moments of equally probable states - mu) - ridge theta``.
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
            # `rows` contains only the columns of the component, so that its predictors are numbered
            # from 0
            table = StateTable(component.layout)
            renumbered = component._replace(predictors=np.arange(component.layout.m))
            patterns = missing_patterns(table, renumbered, rows)
            # zeros: the prior count and the penalty are added to H below
            self._incomplete = IncompleteLikelihood(
                table, patterns, np.zeros(table.n), np.zeros(component.layout.size)
            )
            # sets the probabilities and, with `gradient`, the moments at theta
            self._incomplete.value(theta)
            self._incomplete.gradient()
            mu = self._incomplete.mu
            self.total = self._incomplete.total
            # the information of the rows, and the information if they were complete
            information, complete_information = self._incomplete.curvatures()
        self.mu = mu
        self.share = self.total / (self.total + penalty.prior_count)
        # the rows of the prior count are complete
        H = (
            self.share * information
            + (1.0 - self.share) * complete_information
            + np.diag(penalty.ridge)
        )
        shared = tied_parameters(component.layout)
        if shared is None:
            informed_basis = basis & (H.diagonal() > NO_INFORMATION)
            self.uninformed = basis & ~informed_basis
            self.inverse = inverse_on_basis(H, informed_basis)
            # column k: 1 at k and -(H_bb)^-1 H_bk in the basis b, so that the gradient there stays
            # zero
            self.flat_directions = np.where(informed_basis, 0.0, np.eye(len(H)) - self.inverse @ H)
        else:  # the same for the free parameters, in the columns of those that represent them
            free_H = shared.project(H)
            has_information = free_H.diagonal() > NO_INFORMATION
            free_basis = basis[shared.first] & has_information
            self.uninformed = (basis[shared.first] & ~has_information)[shared.index]
            free_inverse = inverse_on_basis(free_H, free_basis)
            self.inverse = shared.spread(free_inverse)
            directions = np.where(free_basis, 0.0, np.eye(len(free_H)) - free_inverse @ free_H)
            self.flat_directions = np.zeros(H.shape)
            self.flat_directions[:, shared.first] = shared.matrix @ directions
        self.covariance = self.inverse @ information @ self.inverse * (self.share**2 / self.total)
        # negative variances are rounding errors
        np.fill_diagonal(self.covariance, np.maximum(self.covariance.diagonal(), 0.0))
        self.pull = (1.0 - self.share) * (
            _even_moments(component.layout) - mu
        ) - penalty.ridge * theta

    def row_influences(self, rows: Sample, total_of_all_rows: float) -> np.ndarray:
        """Return the influences (n, size) of rows on the parameters, times `total_of_all_rows`."""
        if self._incomplete is None or rows.missing is None:
            means = row_indicators(self.component.layout, rows.codes)
        else:
            means = self._incomplete.row_means(rows)
        # the first factors give the influence times `self.total`, the total weight in this
        # component
        return (
            (self.share * (means - self.mu) + self.pull)
            @ self.inverse
            * (total_of_all_rows / self.total)
        )


def _even_moments(layout: Layout) -> np.ndarray:
    """Return the moments (size,) if all possible states are equally probable."""
    if layout.support is not None:  # structural zeros: some states are impossible
        table = StateTable(layout)
        return table.moments(table.spread(1.0))
    moments = np.empty(layout.size)  # predictors are independent: products of 1 / L
    for scope in layout.scopes:
        layout.table(moments, *scope)[...] = 1.0 / np.prod(
            layout.n_levels[list(scope)].astype(float)
        )
    return moments


def inverse_on_basis(H: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return the inverse (size, size) of H on the parameters in `basis`, with zeros elsewhere.

    The entries of determined parameters do not depend on the basis.
    """
    from scipy.linalg import lapack, pinvh

    basis = basis & (H.diagonal() > NO_INFORMATION)
    basis_block = np.ix_(basis, basis)
    scale = np.sqrt(H.diagonal()[basis])  # H is scaled to a unit diagonal before inversion
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
    """Return the indicators (n, size) of all parameters in rows with the given codes (n, m)."""
    # term_columns (order, size): the columns in one_hot (n, D) of each parameter's levels; -1, here
    # the column of ones, if a term has fewer predictors than the highest order
    X = np.column_stack([one_hot(codes, layout), np.ones(len(codes))])
    out = np.ones((len(codes), layout.size))
    for columns in term_columns(layout):
        out *= X[:, columns]
    return out


def _information(layout: Layout, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return moments (size,) and Fisher information (size, size) of a complete observation."""
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
