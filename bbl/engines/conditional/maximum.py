"""The maximum of the likelihood P(group | row) without a penalty: multinomial logistic regression by Newton's method.

The *design* of a row is a one, for the intercept, and the indicators of its fields and couplings. Each group but the
*reference group*, the first with rows, has a coefficient for each column of the design; those of the reference group
are zero. A *cell* is a distinct row with a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.engines.conditional.separation import MAX_CELLS, Separation, separated_cells, zero_margins
from bbl.engines.likelihood.existence import is_certain, rank
from bbl.engines.likelihood.influence import row_indicators
from bbl.engines.likelihood.newton import Maximum, maximise
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.hessian_inverse import informed
from bbl.model.layout import Layout

__all__ = ["ConditionalMaximum", "design", "find_maximum", "information"]

TOLERANCE = 1e-10  # norm of the gradient of one observation's log-likelihood; one more step follows
HARMLESS = 1e-6  # gradient norm that moves coefficients in the fourth decimal at most
ITMAX = 200
OFF_FACE_LOG = 40.0  # cells that lose their probability end with at most exp(-40)
MIN_PIVOT = 1e-6  # least pivot of linearly independent columns of the design, scaled to unit norm
MAX_COEFFICIENTS = 5000  # of all groups, whose information is factored
ZERO_LOADING = 1e-6  # of a coefficient on a direction along which the likelihood is flat
MIN_INFORMATION = 1e-6  # in a direction, where no programme tells whether the likelihood ends


@dataclass(frozen=True)
class ConditionalMaximum:
    """The maximum of the likelihood P(group | row).

    Attributes
    ----------
    groups : ndarray of intp, shape (k,)
        Those with rows; the first is the reference group.
    coefficients : ndarray, shape (K, 1 + size)
        Intercept, fields and couplings of each group less those of the reference group; zero for groups without rows.
        Where the maximum is reached in a limit, a point at which what loses its probability has at most exp(-40).
    value : float
        Mean log-likelihood of an observation.
    norm : float
        Norm of the gradient.
    n_iter : int
        Newton steps.
    basis : ndarray of bool, shape (K, 1 + size)
        As many coefficients as the rows determine: the degrees of freedom of the cells that keep a probability.
    flat : ndarray, shape (K, 1 + size, d)
        Directions that leave these cells as they are, in linearly independent columns of the design: the likelihood
        rises along them without end.
    aliased : ndarray of bool, shape (1 + size,)
        Columns of the design that depend linearly on others: of levels that never occur together, or of terms that say
        the same.
    occurs : ndarray of bool, shape (1 + size,)
        Whether the levels of each coefficient occur together in some row.
    n_rows : int
        Number of distinct rows.
    is_separated : bool
        Whether each row keeps one group alone.
    """

    groups: np.ndarray
    coefficients: np.ndarray
    value: float
    norm: float
    n_iter: int
    basis: np.ndarray
    flat: np.ndarray
    aliased: np.ndarray
    occurs: np.ndarray
    n_rows: int
    is_separated: bool

    @property
    def reference(self) -> int:
        """The reference group."""
        return int(self.groups[0])

    @property
    def converged(self) -> bool:
        """Whether the gradient is small enough."""
        return self.norm <= HARMLESS

    def determined(self, a: int, b: int) -> np.ndarray:
        """Return whether the rows determine the coefficients (1 + size,) of group `a` less those of group `b`."""
        if a not in self.groups or b not in self.groups:
            return np.zeros(self.coefficients.shape[1], dtype=bool)
        return ~self.aliased & (np.abs(self.flat[a] - self.flat[b]).max(axis=1, initial=0.0) < ZERO_LOADING)


def design(codes: np.ndarray, layout: Layout) -> np.ndarray:
    """Return the design (n, 1 + size) of rows (n, m)."""
    return np.column_stack([np.ones(len(codes)), row_indicators(layout, codes)])


def information(Z: np.ndarray, p: np.ndarray, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return ``sum_n w_n (diag(p_n) - p_n p_n') kron z_n z_n'`` for the `free` coefficients of groups after the first.

    `Z` (n, c) holds z_n, `p` (n, k) the probabilities of the groups, `weights` (n,) w_n, `free` (k - 1, c).
    """
    stops = np.cumsum(free.sum(axis=1))
    starts = stops - free.sum(axis=1)
    out = np.empty((int(free.sum()),) * 2)
    for a in range(len(free)):
        root = np.sqrt(weights * p[:, 1 + a] * np.maximum(1.0 - p[:, 1 + a], 0.0))
        scaled = Z[:, free[a]] * root[:, None]
        out[starts[a] : stops[a], starts[a] : stops[a]] = scaled.T @ scaled  # half the work of a general product
        for b in range(a):
            curvature = -weights * p[:, 1 + a] * p[:, 1 + b]
            block = (Z[:, free[a]] * curvature[:, None]).T @ Z[:, free[b]]
            out[starts[a] : stops[a], starts[b] : stops[b]] = block
            out[starts[b] : stops[b], starts[a] : stops[a]] = block.T
    return out


class _Likelihood:
    """`bbl.engines.likelihood.newton.Objective`: the mean of ln P(group | row).

    Parameters
    ----------
    Z : ndarray, shape (n, p)
        Design.
    shares : ndarray, shape (n, k)
        Share of each cell in the weight of all rows; groups are those with rows, the reference group first.
    support : ndarray of bool, shape (n, k)
        Cells that keep a probability.
    free : ndarray of bool, shape (k - 1, p)
        Coefficients that are estimated; the others are zero.
    """

    def __init__(self, Z: np.ndarray, shares: np.ndarray, support: np.ndarray, free: np.ndarray):
        self.Z, self.shares, self.support, self.free = Z, shares, support, free
        self.row_shares, self.observed = shares.sum(axis=1), shares > 0.0

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Return the coefficients (k - 1, p), from those that are free."""
        out = np.zeros(self.free.shape)
        out[self.free] = theta
        return out

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at `theta`."""
        scores = np.zeros(self.shares.shape)
        scores[:, 1:] = self.Z @ self.spread(theta).T
        scores[~self.support] = -np.inf
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        norm = p.sum(axis=1)
        self.p = p / norm[:, None]
        return float(self.shares[self.observed] @ scores[self.observed] - self.row_shares @ np.log(norm))

    def gradient(self) -> np.ndarray:
        """Return the gradient by the free coefficients."""
        residual = self.shares - self.row_shares[:, None] * self.p
        return (residual[:, 1:].T @ self.Z)[self.free]

    def curvatures(self) -> list[np.ndarray]:
        """Return the Fisher information of one observation."""
        return [information(self.Z, self.p, self.row_shares, self.free)]


class _Table:
    """The distinct rows: their design and their weights in the k groups that have rows; p = 1 + size columns.

    Attributes
    ----------
    Z : ndarray, shape (n, p)
        The design.
    shares : ndarray, shape (n, k)
        Share of each cell in the weight of all rows.
    columns, aliased : ndarrays of bool, shape (p,)
        Independent columns of the design that span it, and those that depend linearly on others.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    counts : ndarray, shape (n, k)
    layout : Layout
    start : ndarray, shape (k, p)
        Coefficients at which the iteration begins.
    """

    def __init__(self, codes: np.ndarray, counts: np.ndarray, layout: Layout, start: np.ndarray):
        self.codes, self.counts, self.layout, self.start = codes, counts, layout, start
        self.Z, self.shares = design(codes, layout), counts / counts.sum()
        self.columns, self.aliased = _independent_columns(self.Z)
        n_free = int(self.columns.sum()) * (counts.shape[1] - 1)
        if n_free > MAX_COEFFICIENTS:
            raise OptionError(
                f"ridge=0 solves for all coefficients at once, up to {MAX_COEFFICIENTS:,} of them, and these rows have "
                f"{n_free:,}. Give ridge='cv', or use fewer predictors or fewer interactions.",
                argument="ridge",
            )

    def separation(self) -> Separation | None:
        """Return the cells that keep a probability by a linear programme; None if it is too large, or fails."""
        n_cells = self.counts.size * int(self.columns.sum())
        separation = separated_cells(self.Z[:, self.columns], self.counts) if n_cells <= MAX_CELLS else None
        if separation is None:
            return None
        direction = np.zeros((self.counts.shape[1], self.Z.shape[1]))
        direction[:, self.columns] = separation.direction
        return separation._replace(direction=direction)

    def on_face(self, support: np.ndarray) -> _Face:
        """Maximise the likelihood of the cells (n, k) that keep a probability."""
        free, flat = self._free(support)
        likelihood = _Likelihood(self.Z, self.shares, support, free)
        start = self.start[1:] - self.start[0]
        start = start - flat @ start[self.columns & ~free]  # what is not free is zero, all else on the face the same
        maximum = maximise(likelihood, start[free], TOLERANCE, ITMAX)
        likelihood.value(maximum.theta)
        return _Face(likelihood, maximum, flat)

    def _free(self, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coefficients (k - 1, p) to estimate on a support (n, k), and the flat directions (k - 1, p, d)."""
        k, p, r = self.counts.shape[1], self.Z.shape[1], int(self.columns.sum())
        free = np.repeat(self.columns[None], k - 1, axis=0)
        if support.all():
            return free, np.zeros((k - 1, p, 0))
        even = support / support.sum(axis=1, keepdims=True)
        weights, every = np.full(len(even), 1.0 / len(even)), np.ones((k - 1, r), dtype=bool)
        matrix = information(self.Z[:, self.columns], even, weights, every)
        basis = rank(matrix)[0]
        directions = np.zeros((len(matrix), int((~basis).sum())))
        directions[~basis] = np.eye(directions.shape[1])
        if basis.any() and directions.shape[1]:
            directions[basis] = -np.linalg.solve(matrix[np.ix_(basis, basis)], matrix[np.ix_(basis, ~basis)])
        flat = np.zeros((k - 1, p, directions.shape[1]))
        flat[:, self.columns] = directions.reshape(k - 1, r, directions.shape[1])
        free[:, self.columns] = basis.reshape(k - 1, r)
        return free, flat


@dataclass(frozen=True)
class _Face:
    """The maximum of the likelihood of the cells that keep a probability.

    Attributes
    ----------
    likelihood : _Likelihood
        At the maximum.
    maximum : Maximum
    flat : ndarray, shape (k - 1, p, d)
    """

    likelihood: _Likelihood
    maximum: Maximum
    flat: np.ndarray

    def is_certain(self, layout: Layout) -> bool:
        """Return whether the point proves that the likelihood has a maximum; see `existence.is_certain`."""
        # the root of twice the terms of a row bounds the norm of the difference of the statistics of two groups
        n_terms = 2 * (1 + len(layout.scopes))
        return is_certain(self.likelihood.curvatures()[0], self.likelihood.gradient(), n_terms)

    def without_uninformed(self) -> np.ndarray:
        """Return the flat directions, and one for each coefficient about which there is next to no information."""
        free = self.likelihood.free
        lost = np.zeros(free.shape, dtype=bool)
        if free.any():
            lost[free] = ~informed(self.likelihood.curvatures()[0], MIN_INFORMATION)
        unit = np.eye(free.size)[:, lost.ravel()].reshape(*free.shape, int(lost.sum()))
        return np.concatenate([self.flat, unit], axis=2)

    def pushed(self, separation: Separation) -> np.ndarray:
        """Return the coefficients (k, p), so far along the direction that cells off the face are lost."""
        coefficients = np.zeros(separation.direction.shape)
        coefficients[1:] = self.likelihood.spread(self.maximum.theta)
        off = ~separation.support
        if off.any():
            Z, shares = self.likelihood.Z, self.likelihood.shares
            scores, steps = Z @ coefficients.T, Z @ separation.direction.T
            observed = shares.argmax(axis=1)[:, None]
            drop = (np.take_along_axis(steps, observed, axis=1) - steps)[off]
            on_face = np.where(separation.support, scores, -np.inf)
            excess = (scores - np.logaddexp.reduce(on_face, axis=1, keepdims=True))[off] + OFF_FACE_LOG
            coefficients += max(float((excess / drop).max()), 0.0) * separation.direction
            coefficients -= coefficients[0]
        return coefficients


def _independent_columns(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return independent columns (p,) of a design (n, p), as many as its rank, and those that depend on others.

    A column that does not depend on others is among them.
    """
    from scipy.linalg import lapack, qr, solve_triangular

    n, p = Z.shape
    scale = np.sqrt((Z * Z).sum(axis=0))
    scaled = Z / np.where(scale > 0.0, scale, 1.0)
    if n >= p:
        factor, failed = lapack.dpotrf(scaled.T @ scaled, lower=1)
        if not failed and factor.diagonal().min() > MIN_PIVOT:
            return np.ones(p, dtype=bool), np.zeros(p, dtype=bool)
        scaled = qr(scaled, mode="r")[0][:p]
    R, pivots = qr(scaled, mode="r", pivoting=True)
    diagonal = np.abs(R.diagonal())
    r = int((diagonal > MIN_PIVOT * diagonal.max(initial=0.0)).sum())
    columns, aliased = np.zeros(p, dtype=bool), np.zeros(p, dtype=bool)
    columns[pivots[:r]] = True
    aliased[pivots[r:]] = True
    aliased[pivots[:r]] = np.abs(solve_triangular(R[:r, :r], R[:r, r:])).max(axis=1, initial=0.0) > ZERO_LOADING
    return columns, aliased


def find_maximum(
    codes: np.ndarray, weights: np.ndarray, layout: Layout, start: np.ndarray | None = None
) -> ConditionalMaximum:
    """Return the maximum of the likelihood of distinct rows (n, m) with `weights` (n, K) in each group.

    The iteration begins at the coefficients `start` (K, 1 + size), such as those of a fit to other weights; else at 0.
    """
    groups = np.flatnonzero(weights.sum(axis=0) > 0.0)
    n, K, p, k = len(codes), weights.shape[1], 1 + layout.size, len(groups)
    n_free = float(min(n, p) * max(k - 1, 1))
    check_memory(
        8.0 * (3.0 * n * (p + k) + 4.0 * min(n_free, MAX_COEFFICIENTS) ** 2),
        f"The information of {n_free:,.0f} coefficients",
        "Use fewer predictors or fewer interactions, or give ridge='cv'.",
    )
    start = np.zeros((K, p)) if start is None else start
    table = _Table(codes, np.ascontiguousarray(weights[:, groups]), layout, start[groups])
    separation = zero_margins(codes, table.counts, layout)
    face = table.on_face(separation.support)
    flat = face.flat
    if not face.is_certain(layout):
        programmed = table.separation()
        if programmed is None:
            flat = face.without_uninformed()
        elif (programmed.support != separation.support).any():
            separation, face = programmed, table.on_face(programmed.support)
            flat = face.flat
    coefficients, basis = np.zeros((K, p)), np.zeros((K, p), dtype=bool)
    coefficients[groups], basis[groups[1:]] = face.pushed(separation), face.likelihood.free
    all_flat = np.zeros((K, p, flat.shape[2]))
    all_flat[groups[1:]] = flat
    is_separated = bool((separation.support.sum(axis=1) == 1).all()) and k > 1
    value, norm, n_iter = face.maximum[1:]
    occurs = np.asarray(table.Z.any(axis=0))
    return ConditionalMaximum(
        groups, coefficients, value, norm, n_iter, basis, all_flat, table.aliased, occurs, n, is_separated
    )
