"""Maximum likelihood estimation of adjacent or cumulative logits, by Newton's method."""

# The unknowns are the k - 1 intercepts and the coefficients b of the columns of the design, without
# the constant (see `bbl.engines.conditional.ordinal_logits`): q = k - 1 + size in all, of which
# those of dependent columns are zero. The likelihood has no finite maximum if there is a direction
# of the unknowns along which it increases indefinitely. The *bounds* of such a direction are linear
# forms that must not decrease: for adjacent logits the score of each observed group minus the score
# of another group of the row, for cumulative logits the logit at the lower threshold of each
# observed group and minus the logit at its upper threshold. Forms that increase have *diverged* at
# the maximum.
#
# Letters: n distinct rows, K groups, k groups with rows, d flat directions.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bbl.engines.conditional.likelihood import design, independent_columns
from bbl.engines.conditional.maximum import (
    ITMAX,
    MAX_COEFFICIENTS,
    OFF_FACE_LOG,
    TOLERANCE,
    ConditionalMaximum,
    leading_columns,
)
from bbl.engines.conditional.ordinal_logits import AdjacentLogits, OrdinalLogits, ordinal_logits
from bbl.engines.conditional.separation import MAX_CELLS
from bbl.engines.likelihood.existence import rank, recede
from bbl.engines.likelihood.newton import Maximum, Objective, maximise
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout

__all__ = ["OrdinalLikelihood", "OrdinalMaximum", "find_ordinal_maximum", "to_coefficients"]

# A bound diverges if its contribution to the gradient is not larger than this multiple of the
# gradient's norm; a linear programme then decides.
CERTAIN = 1e4


@dataclass(frozen=True)
class OrdinalMaximum(ConditionalMaximum):
    """The maximum of the likelihood of an ordered response.

    Attributes
    ----------
    unknowns : ndarray, shape (q,)
        The k - 1 intercepts, followed by the coefficients b.
    free : ndarray of bool, shape (q,)
        The unknowns that are estimated. All others are held fixed.
    fisher : ndarray, shape (r, r)
        Observed information matrix per observation of the r free unknowns, at the maximum.
    """

    unknowns: np.ndarray
    free: np.ndarray
    fisher: np.ndarray

    @property
    def reported(self) -> np.ndarray:
        """Groups with their own parameters.

        The parameters of later groups are multiples of these.
        """
        return self.groups[:2]

    @property
    def remedy(self) -> str:
        """Advice on how to make all parameters finite."""
        return "Use ridge='cv'"

    def rank(self, g: int) -> int:
        """Return the degrees of freedom of group `g`'s parameters.

        All groups have the same coefficients b, which are counted for the first group after the
        reference group.
        """
        if g not in self.groups[1:]:
            return 0
        return int(self.columns.sum()) if g == self.groups[1] else 1


def to_coefficients(unknowns: np.ndarray, logits: OrdinalLogits, K: int) -> np.ndarray:
    """Return the coefficients (K, 1 + size, ...) of all groups, given unknowns (q, ...)."""
    k = len(logits.groups)
    c = unknowns[: k - 1]
    b = unknowns[k - 1 :]
    out = np.zeros((K, 1 + len(b), *unknowns.shape[1:]))
    out[logits.groups[1:], 0] = c
    out[logits.groups, 1:] = np.multiply.outer(logits.multipliers, b)
    return out


class OrdinalLikelihood(Objective):
    """The mean of ln P(group | row) minus a penalty, as an `Objective` for Newton's method.

    Parameters
    ----------
    logits : OrdinalLogits
    X : ndarray, shape (n, p)
        Regressors of f, without the constant.
    shares : ndarray, shape (n, k)
        Fraction of the total weight in each cell.
    free : ndarray of bool, shape (q,)
        Unknowns to estimate.
    fixed : ndarray, shape (q,)
        Values of the fixed unknowns. Values at the positions of free unknowns are ignored.
    ridge : float, default 0
        Penalty ``ridge / 2 |b|^2``.
    limits : ndarray, optional
        See `OrdinalLogits`.
    """

    def __init__(
        self,
        logits: OrdinalLogits,
        X: np.ndarray,
        shares: np.ndarray,
        free: np.ndarray,
        fixed: np.ndarray,
        ridge: float = 0.0,
        limits: np.ndarray | None = None,
    ):
        self.logits = logits
        self.X = X
        self.shares = shares
        self.free = free
        self.fixed = fixed
        self.ridge = ridge
        self.limits = limits
        self._observed = shares > 0.0
        self._n_intercepts = shares.shape[1] - 1

    def spread(self, theta: np.ndarray) -> np.ndarray:
        """Return all unknowns (q,), given the free unknowns."""
        out = self.fixed.copy()
        out[self.free] = theta
        return out

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at the free unknowns, or -inf if it is not defined there."""
        unknowns = self.spread(theta)
        self.c = unknowns[: self._n_intercepts]
        self.b = unknowns[self._n_intercepts :]
        self.f = self.X @ self.b
        log_p = self.logits.log_p(self.f, self.c, self.limits)
        if log_p is None:
            return -np.inf
        self.log_likelihood = float(self.shares[self._observed] @ log_p[self._observed])
        return self.log_likelihood - 0.5 * self.ridge * float(self.b @ self.b)

    def gradient(self) -> np.ndarray:
        """Return the gradient with respect to the free unknowns.

        It is evaluated at the most recent argument of `value`.
        """
        self._derivatives = self.logits.derivatives(self.f, self.c, self.shares, self.limits)
        b_gradient = self._derivatives.f @ self.X - self.ridge * self.b
        return np.concatenate([self._derivatives.c, b_gradient])[self.free]

    def curvatures(self) -> list[np.ndarray]:
        """Return minus the Hessian with respect to the free unknowns, as a list with one element.

        It is evaluated at the same point as the last `gradient`.
        """
        d = self._derivatives
        k = self._n_intercepts
        root = np.sqrt(np.maximum(d.minus_ff, 0.0))
        scaled = self.X * root[:, None]
        out = np.empty((k + self.X.shape[1],) * 2)
        out[:k, :k] = d.minus_cc
        out[:k, k:] = d.minus_cf.T @ self.X
        out[k:, :k] = out[:k, k:].T
        out[k:, k:] = scaled.T @ scaled  # a symmetric product takes half the work
        out[k:, k:][np.diag_indices(len(self.b))] += self.ridge
        return [out[np.ix_(self.free, self.free)]]


class _Separation(NamedTuple):
    """The limits of diverging logits, and a direction (q,) of this divergence."""

    limits: np.ndarray
    direction: np.ndarray
    n_diverged: int


@dataclass(frozen=True)
class _Bounds:
    """Linear forms of the unknowns that must not decrease along a direction of separation.

    Attributes
    ----------
    matrix : sparse array, shape (N, q')
        Coefficients of the forms. The q' unknowns that may be infinite are intercepts and
        independent columns.
    row, cell : ndarrays of intp, shape (N,)
        For each form, the distinct row, and the group whose score decreases (adjacent logits) or
        the threshold (cumulative logits), as positions among the k groups.
    sign : ndarray, shape (N,)
        1 if the cell's logit may increase, -1 if it may decrease.
    is_tied : ndarray of bool, shape (N,)
        Whether the form must be constant, because its negative is also a form.
    """

    matrix: Any
    row: np.ndarray
    cell: np.ndarray
    sign: np.ndarray
    is_tied: np.ndarray


def _bounds(logits: OrdinalLogits, X: np.ndarray, counts: np.ndarray) -> _Bounds:
    """Return the bounds for the design X (n, p) and the weights of the cells, `counts` (n, k)."""
    from scipy import sparse

    observed = counts > 0.0
    k = counts.shape[1]
    if isinstance(logits, AdjacentLogits):
        modal = counts.argmax(axis=1)
        row, cell = np.nonzero(np.arange(k) != modal[:, None])
        is_tied = observed[row, cell]
        steps = logits.multipliers[modal[row]] - logits.multipliers[cell]
        # score of the modal group minus the score of the cell
        intercepts = np.eye(k)[modal[row]] - np.eye(k)[cell]
        sign = np.full(len(row), -1.0)
        return _Bounds(
            sparse.hstack(
                [
                    sparse.csr_matrix(intercepts[:, 1:]),
                    sparse.diags(steps) @ sparse.csr_matrix(X)[row],
                ],
                format="csr",
            ),
            row,
            cell,
            sign,
            is_tied,
        )
    above = observed[:, 1:]  # groups whose lower threshold it is
    below = observed[:, :-1]
    row, cell = np.nonzero(above | below)
    sign = np.where(above[row, cell], 1.0, -1.0)
    is_tied = above[row, cell] & below[row, cell]
    matrix = sparse.hstack(
        [sparse.csr_matrix(np.eye(k - 1)[cell]), sparse.csr_matrix(X)[row]], format="csr"
    )
    return _Bounds(sparse.diags(sign) @ matrix, row, cell, sign, is_tied)


class _OrdinalTable:
    """Distinct rows with their weights, as in `bbl.engines.conditional.maximum`.

    Parameters
    ----------
    logits : OrdinalLogits
    Z : ndarray, shape (n, 1 + size)
        Design, with the constant first.
    counts : ndarray, shape (n, k)
    columns : ndarray of bool, shape (1 + size,)
        Independent columns, including the constant.
    start : ndarray, shape (q,)
        Initial unknowns.
    """

    def __init__(
        self,
        logits: OrdinalLogits,
        Z: np.ndarray,
        counts: np.ndarray,
        columns: np.ndarray,
        start: np.ndarray,
    ):
        self.logits = logits
        self.Z = Z
        self.counts = counts
        self.shares = counts / counts.sum()
        self.n_intercepts = counts.shape[1] - 1
        self.columns = columns
        self.start = start
        # unknowns that the rows may determine; with one group there are none
        self.eligible = np.append(np.ones(self.n_intercepts, dtype=bool), columns[1:])
        self.eligible &= self.n_intercepts > 0

    def likelihood(self, free: np.ndarray, limits: np.ndarray | None) -> OrdinalLikelihood:
        """Return the objective for the free unknowns (q,)."""
        return OrdinalLikelihood(
            self.logits, self.Z[:, 1:], self.shares, free, self.start, limits=limits
        )

    def maximise(self, free: np.ndarray, limits: np.ndarray | None) -> _Point:
        """Maximise the objective over the free unknowns."""
        likelihood = self.likelihood(free, limits)
        maximum = maximise(likelihood, self.start[free], TOLERANCE, ITMAX)
        likelihood.value(maximum.theta)
        gradient = likelihood.gradient()
        return _Point(likelihood, maximum._replace(norm=float(np.linalg.norm(gradient))))

    def is_certain(self, point: _Point) -> bool:
        """Return whether it is certain at this point that no bound diverges.

        Along a direction of separation, the likelihood increases by at least the smallest
        contribution of any bound. The contribution of a bound is its weight times the probability
        that vanishes.
        """
        likelihood = point.likelihood
        log_p = self.logits.log_p(likelihood.f, likelihood.c)
        assert log_p is not None  # noqa: S101  # the point is feasible
        p = np.exp(log_p)
        if isinstance(self.logits, AdjacentLogits):
            contributions = (self.shares.sum(axis=1)[:, None] * p)[self.shares == 0.0]
        else:
            above = np.cumsum(p[:, :0:-1], axis=1)[:, ::-1]
            below = np.cumsum(p[:, :-1], axis=1)
            contributions = np.concatenate(
                [
                    (self.shares[:, 1:] * below)[self.shares[:, 1:] > 0.0],
                    (self.shares[:, :-1] * above)[self.shares[:, :-1] > 0.0],
                ]
            )
        return bool(contributions.min(initial=np.inf) > CERTAIN * point.maximum.norm)

    def find_separation(self) -> _Separation | None:
        """Find the separation by a linear programme.

        The result is None if the programme is too large or fails.
        """
        if self.counts.size * int(self.eligible.sum()) > MAX_CELLS:
            return None
        bounds = _bounds(self.logits, self.Z[:, self.columns][:, 1:], self.counts)
        limits = np.zeros(
            self.counts.shape
            if isinstance(self.logits, AdjacentLogits)
            else (len(self.Z), self.n_intercepts)
        )
        direction = np.zeros(len(self.start))
        if bounds.is_tied.all():
            return _Separation(limits, direction, 0)
        loose = ~bounds.is_tied
        recession = recede(bounds.matrix[bounds.is_tied], -bounds.matrix[loose])
        if recession is None:
            return None
        has_diverged, step = recession
        if has_diverged.any():
            direction[self.eligible] = step
        row = bounds.row[loose][has_diverged]
        cell = bounds.cell[loose][has_diverged]
        limits[row, cell] = np.inf * bounds.sign[loose][has_diverged]
        if not isinstance(self.logits, AdjacentLogits):
            # logits of lower thresholds are larger, and those of higher ones smaller
            above = np.maximum.accumulate(limits[:, ::-1], axis=1)[:, ::-1]
            below = np.minimum.accumulate(limits, axis=1)
            limits = np.where(np.isposinf(above), np.inf, np.where(np.isneginf(below), below, 0.0))
        return _Separation(limits, direction, int(has_diverged.sum()))

    def free_and_flat(self, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the free unknowns (q,) and flat directions (q, d), given the diverging logits.

        Both are computed from the null space of the information matrix, which is the same at all
        finite points.
        """
        likelihood = self.likelihood(self.eligible, limits)
        likelihood.value(self.start[self.eligible])
        likelihood.gradient()
        (fisher,) = likelihood.curvatures()
        basis = rank(fisher)[0]
        directions = np.zeros((len(fisher), int((~basis).sum())))
        directions[~basis] = np.eye(directions.shape[1])
        if basis.any() and directions.shape[1]:
            directions[basis] = -np.linalg.solve(
                fisher[np.ix_(basis, basis)], fisher[np.ix_(basis, ~basis)]
            )
        free = self.eligible.copy()
        free[self.eligible] = basis
        flat = np.zeros((len(self.start), directions.shape[1]))
        flat[self.eligible] = directions
        return free, flat

    def to_limit(self, point: _Point, separation: _Separation) -> np.ndarray:
        """Return unknowns (q,) near the limit, where vanishing probabilities are below exp(-40)."""
        unknowns = point.unknowns
        if not separation.n_diverged:
            return unknowns
        bounds = _bounds(self.logits, self.Z[:, self.columns][:, 1:], self.counts)
        has_diverged = np.isinf(separation.limits)[bounds.row, bounds.cell] & ~bounds.is_tied
        forms = bounds.matrix[has_diverged]
        values = forms @ unknowns[self.eligible]
        rates = forms @ separation.direction[self.eligible]
        distance = max(float(((OFF_FACE_LOG - values) / rates).max()), 0.0)
        return unknowns + distance * separation.direction


class _Point(NamedTuple):
    """An `OrdinalLikelihood` evaluated at its maximum."""

    likelihood: OrdinalLikelihood
    maximum: Maximum

    @property
    def unknowns(self) -> np.ndarray:
        """All unknowns (q,)."""
        return self.likelihood.spread(self.maximum.theta)


def _start(
    logits: OrdinalLogits, totals: np.ndarray, coefficients: np.ndarray | None, size: int
) -> np.ndarray:
    """Return initial unknowns (q,).

    They are computed from the coefficients (K, 1 + size) of an earlier fit if its intercepts are in
    order. Otherwise, the effects start at zero.
    """
    k = len(logits.groups)
    if coefficients is not None and k > 1:
        own = coefficients[logits.groups] - coefficients[logits.groups[0]]
        unknowns = np.concatenate([own[1:, 0], own[1, 1:] / logits.multipliers[1]])
        if logits.log_p(np.zeros(1), unknowns[: k - 1]) is not None:
            return unknowns
    return np.append(logits.intercepts(totals), np.zeros(size))


def find_ordinal_maximum(
    codes: np.ndarray,
    weights: np.ndarray,
    layout: Layout,
    logits_name: str,
    start: np.ndarray | None = None,
) -> OrdinalMaximum:
    """Maximise the likelihood with "adjacent" or "cumulative" logits.

    The arguments are the same as in `bbl.engines.conditional.maximum.find_maximum`.
    """
    n, K = weights.shape
    groups = np.flatnonzero(weights.sum(axis=0) > 0.0)
    logits = ordinal_logits(logits_name, groups)
    q = len(groups) - 1 + layout.size
    check_memory(  # three times the design and the table of cells, and four information matrices
        8.0 * (3.0 * n * (1 + layout.size + len(groups)) + 4.0 * min(q, MAX_COEFFICIENTS) ** 2),
        f"The information matrix of {q:,} coefficients",
        "Use fewer predictors, fewer interactions or ridge='cv'.",
    )
    counts = np.ascontiguousarray(weights[:, groups])
    Z = design(codes, layout)
    columns, aliased = independent_columns(Z)
    if not columns.all():
        # the intercepts span the constant, so that it has to be one of the independent columns
        columns = leading_columns(Z, np.arange(Z.shape[1]))
    if int(columns.sum()) > MAX_COEFFICIENTS:
        raise OptionError(
            "ridge=0 estimates all coefficients at once and supports at most "
            f"{MAX_COEFFICIENTS:,}, but this model has {int(columns.sum()):,}.",
            argument="ridge",
            hint="Use ridge='cv', fewer predictors or fewer interactions.",
        )
    table = _OrdinalTable(
        logits, Z, counts, columns, _start(logits, counts.sum(axis=0), start, layout.size)
    )
    table.start[~table.eligible] = 0.0
    flat = np.zeros((q, 0))
    separation = _Separation(np.zeros(0), np.zeros(q), 0)
    point = table.maximise(table.eligible, None)
    if not table.is_certain(point):
        found = table.find_separation()
        if found is None:  # use the information alone
            (fisher,) = point.likelihood.curvatures()
            uninformed = np.flatnonzero(table.eligible)[~rank(fisher)[0]]
            flat = np.eye(q)[:, uninformed]
        elif found.n_diverged:
            separation = found
            table.start = np.append(logits.intercepts(counts.sum(axis=0)), np.zeros(layout.size))
            free, flat = table.free_and_flat(found.limits)
            point = table.maximise(free, found.limits)
    unknowns = table.to_limit(point, separation)
    likelihood = point.likelihood
    (fisher,) = likelihood.curvatures()
    occurs = np.asarray(Z.any(axis=0))
    return OrdinalMaximum(
        groups=groups,
        coefficients=to_coefficients(unknowns, logits, K),
        value=likelihood.log_likelihood,
        norm=point.maximum.norm,
        n_iter=point.maximum.n_iter,
        basis=to_coefficients(likelihood.free.astype(float), logits, K) > 0.0,
        flat=to_coefficients(flat, logits, K),
        columns=columns,
        aliased=aliased,
        occurs=occurs,
        n_rows=n,
        is_separated=bool(likelihood.log_likelihood > -1e-12) and len(groups) > 1,
        unknowns=unknowns,
        free=likelihood.free,
        fisher=fisher,
    )
