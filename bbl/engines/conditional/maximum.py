"""Maximum likelihood estimation of P(group | row): multinomial regression by Newton's method."""

# The *reference group* is the first group with rows; its coefficients are zero. The likelihood may
# have no finite maximum: it may increase indefinitely in a direction that makes the probability of
# some cells (a distinct row with a group) tend to zero. The limit is the maximum of the likelihood
# of the remaining cells, which are said to be *on the face*; the *support* is an array that marks
# them. *Flat* directions of the coefficients do not change probabilities on the face.
#
# Letters: n distinct rows, K groups, k groups with rows, p = 1 + size columns of the design (see
# `bbl.engines.conditional.likelihood`), d flat directions.

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from bbl.engines.conditional.firth import FirthLikelihood, maximise_firth
from bbl.engines.conditional.likelihood import (
    MIN_PIVOT,
    ZERO_LOADING,
    DenseDesign,
    Likelihood,
    design,
    is_large,
    make_design,
)
from bbl.engines.conditional.separation import MAX_CELLS, Separation, separated_cells, zero_margins
from bbl.engines.likelihood.existence import is_certain, rank
from bbl.engines.likelihood.newton import Maximum, maximise
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.site_hessians import informed

__all__ = [
    "MAX_COEFFICIENTS",
    "OFF_FACE_LOG",
    "ConditionalMaximum",
    "find_maximum",
    "leading_columns",
    "null_directions",
]

TOLERANCE = 1e-10  # norm of the gradient of the mean log-likelihood; one more step follows
HARMLESS = 1e-6  # gradient norm that changes coefficients in the fourth decimal at most
ITMAX = 200  # Newton steps
OFF_FACE_LOG = 40.0  # cells off the face are given a probability of at most exp(-40)
MAX_COEFFICIENTS = 5000  # of all groups together; their information matrix is factored
# smallest information in a scaled direction that counts, if no linear programme could be solved
MIN_INFORMATION = 1e-6


@dataclass(frozen=True)
class ConditionalMaximum:
    """The maximum of the likelihood P(group | row).

    Attributes
    ----------
    groups : ndarray of intp, shape (k,)
        Groups with rows; the first is the reference group.
    coefficients : ndarray, shape (K, 1 + size)
        Intercept, fields and couplings of each group, relative to the reference group; zero for
        groups without rows. If the likelihood reaches its maximum only in a limit, these are
        coefficients at which cells off the face have a probability of at most exp(-40).
    value : float
        Mean log-likelihood per observation, without Firth's penalty.
    norm : float
        Norm of the gradient.
    n_iter : int
        Number of Newton steps.
    basis : ndarray of bool, shape (K, 1 + size)
        The estimated coefficients. There are as many of them as can be determined from the cells on
        the face. All other coefficients are held fixed.
    flat : ndarray, shape (K, 1 + size, d)
        Directions, in linearly independent columns of the design, that do not change probabilities
        on the face. The likelihood may increase along these directions indefinitely.
    columns : ndarray of bool, shape (1 + size,)
        Linearly independent columns that span the design. The rank of the design is the number of
        these columns.
    aliased : ndarray of bool, shape (1 + size,)
        Columns of the design that depend linearly on other columns, because levels never occur
        together or because terms are redundant.
    occurs : ndarray of bool, shape (1 + size,)
        Whether the levels of each coefficient occur together in at least one row.
    n_rows : int
        Number of distinct rows.
    is_separated : bool
        Whether only one group has positive probability in each row.
    """

    groups: np.ndarray
    coefficients: np.ndarray
    value: float
    norm: float
    n_iter: int
    basis: np.ndarray
    flat: np.ndarray
    columns: np.ndarray
    aliased: np.ndarray
    occurs: np.ndarray
    n_rows: int
    is_separated: bool

    @property
    def reference(self) -> int:
        """The reference group."""
        return int(self.groups[0])

    @property
    def reported(self) -> np.ndarray:
        """Groups that have their own parameters."""
        return self.groups

    @property
    def remedy(self) -> str:
        """Advice on how to make all parameters finite."""
        return "Use ridge='firth', whose estimates are finite and have intervals, or ridge='cv'"

    def rank(self, g: int) -> int:
        """Return the degrees of freedom of group `g`'s parameters.

        This is the rank of the design; it is 0 for the reference group and for groups without rows.
        Coefficients without a finite maximum are counted because they increase the likelihood.
        Levels that never occur and redundant terms are not counted.
        """
        return int(self.columns.sum()) if g in self.groups[1:] else 0

    @property
    def converged(self) -> bool:
        """Whether the gradient is small enough."""
        return self.norm <= HARMLESS

    def determined(self, a: int, b: int) -> np.ndarray:
        """Return a mask (1 + size,) of the identified differences between groups `a` and `b`."""
        if a not in self.groups or b not in self.groups:
            return np.zeros(self.coefficients.shape[1], dtype=bool)
        return ~self.aliased & (
            np.abs(self.flat[a] - self.flat[b]).max(axis=1, initial=0.0) < ZERO_LOADING
        )


class _Table:
    """The design of the distinct rows, with p = 1 + size columns, and the row weights in k groups.

    Attributes
    ----------
    design : DenseDesign or TableDesign, shape (n, p)
    shares : ndarray, shape (n, k)
        Fraction of the total weight in each cell.
    columns, aliased : ndarrays of bool, shape (p,)
        Linearly independent columns that span the design, and columns that depend linearly on
        others.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    counts : ndarray, shape (n, k)
        Weight of each cell. All groups must have rows.
    layout : Layout
    start : ndarray, shape (k, p)
        Initial coefficients of the iteration.
    firth : bool
        Whether the design must be stored as a matrix, as required by Firth's penalty.
    """

    def __init__(
        self,
        codes: np.ndarray,
        counts: np.ndarray,
        layout: Layout,
        start: np.ndarray,
        firth: bool = False,
    ):
        self.codes = codes
        self.counts = counts
        self.layout = layout
        self.start = start
        self.design = DenseDesign(design(codes, layout)) if firth else make_design(codes, layout)
        self.shares = counts / counts.sum()
        self.columns, self.aliased = self.design.independent_columns()
        n_free = int(self.columns.sum()) * (counts.shape[1] - 1)
        if n_free > MAX_COEFFICIENTS:
            raise OptionError(
                "ridge=0 and ridge='firth' estimate all coefficients at once and support at most "
                f"{MAX_COEFFICIENTS:,}, but this model has {n_free:,}.",
                argument="ridge",
                hint="Use ridge='cv', fewer predictors or fewer interactions.",
            )

    def find_separation(self) -> Separation | None:
        """Find the separation by a linear programme.

        The result is None if the programme is too large or fails.
        """
        # size of the programme: cells times columns
        n_entries = self.counts.size * int(self.columns.sum())
        separation = (
            separated_cells(design(self.codes, self.layout)[:, self.columns], self.counts)
            if n_entries <= MAX_CELLS
            else None
        )
        if separation is None:
            return None
        # (k, p): zero for the other columns
        direction = np.zeros((self.counts.shape[1], self.design.shape[1]))
        direction[:, self.columns] = separation.direction
        return separation._replace(direction=direction)

    def maximise_on_face(self, support: np.ndarray) -> _Face:
        """Maximise the likelihood of the cells on the face, marked by `support` (n, k)."""
        free, flat = self._free_and_flat(support)
        likelihood = Likelihood(self.design, self.shares, support, free)
        start = self.start[1:] - self.start[0]
        # Change `start` along the flat directions so that coefficients that are not free are zero;
        # probabilities on the face stay the same. Flat direction l has a one at the l-th of the d
        # coefficients of independent columns that are not free, and zeros at the others.
        start = start - flat @ start[self.columns & ~free]
        maximum = maximise(likelihood, start[free], TOLERANCE, ITMAX)
        # so that `gradient` and `curvatures` are evaluated at the maximum
        likelihood.value(maximum.theta)
        return _Face(likelihood, maximum, flat)

    def maximise_penalised(self) -> _Face:
        """Maximise Firth's penalised likelihood of all cells, which always has a finite maximum."""
        Z = cast(DenseDesign, self.design).Z
        likelihood = FirthLikelihood(Z, self.shares, float(self.counts.sum()), self.columns)
        maximum = maximise_firth(likelihood, self.start[1:] - self.start[0])
        return _Face(likelihood, maximum, np.zeros((*likelihood.free.shape, 0)))

    def _free_and_flat(self, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the free coefficients (k - 1, p) and flat directions (k - 1, p, d).

        Both are computed from the null space of an information matrix on the support (n, k). The
        null space does not depend on the probabilities if they are positive, so all cells of a row
        are assigned the same probability.
        """
        k = self.counts.shape[1]
        p = self.design.shape[1]
        r = int(self.columns.sum())
        free = np.repeat(self.columns[None], k - 1, axis=0)
        if support.all():
            return free, np.zeros((k - 1, p, 0))
        equal_probabilities = support / support.sum(axis=1, keepdims=True)
        weights = np.full(len(support), 1.0 / len(support))
        fisher = self.design.information(equal_probabilities, weights, free)
        basis = rank(fisher)[0]  # which of the (k - 1) r coefficients to estimate
        directions = null_directions(fisher, basis)
        flat = np.zeros((k - 1, p, directions.shape[1]))
        flat[:, self.columns] = directions.reshape(k - 1, r, directions.shape[1])
        free[:, self.columns] = basis.reshape(k - 1, r)
        return free, flat


@dataclass(frozen=True)
class _Face:
    """The maximum of the likelihood of the cells on the face, i.e. with positive probability.

    Attributes
    ----------
    likelihood : Likelihood
        The likelihood, evaluated at the maximum. ``curvatures()[0]`` is the information matrix of
        its `free` coefficients.
    maximum : Maximum
        The free coefficients `theta` as a vector, the objective, the norm of its gradient, and the
        number of steps.
    flat : ndarray, shape (k - 1, p, d)
        Directions that do not change probabilities on the face.
    """

    likelihood: Likelihood
    maximum: Maximum
    flat: np.ndarray

    def is_certain(self, layout: Layout) -> bool:
        """Return whether the likelihood is certain to have a finite maximum.

        See `existence.is_certain`.
        """
        # This holds if 2 R |gradient| is below the smallest eigenvalue of the information. R bounds
        # the norm of the difference between two groups' statistics, which have a one for the
        # intercept and for each table (`scopes`).
        squared_R = 2.0 * (1 + len(layout.scopes))
        if layout.numbers is not None:
            Z = cast(DenseDesign, self.likelihood.rows).Z
            squared_R = 2.0 * float((Z**2).sum(axis=1).max())
        return is_certain(
            self.likelihood.curvatures()[0], self.likelihood.gradient(), n_terms=squared_R
        )

    def flat_and_uninformed(self) -> np.ndarray:
        """Return the flat directions (k - 1, p, d), including coefficients without information."""
        free = self.likelihood.free
        is_uninformed = np.zeros(free.shape, dtype=bool)
        if free.any():
            is_uninformed[free] = ~informed(self.likelihood.curvatures()[0], MIN_INFORMATION)
        unit_vectors = np.eye(free.size)[:, is_uninformed.ravel()].reshape(
            *free.shape, int(is_uninformed.sum())
        )
        return np.concatenate([self.flat, unit_vectors], axis=2)

    def to_limit(self, separation: Separation) -> np.ndarray:
        """Return the coefficients (k, p) at a point close to the limit.

        Coefficients are relative to the first group. Starting from the maximum on the face, the
        point lies in the direction of separation. At this point, cells off the face have a
        probability of at most exp(-40).
        """
        coefficients = np.zeros(separation.direction.shape)
        coefficients[1:] = self.likelihood.spread(self.maximum.theta)
        is_off_face = ~separation.support
        if is_off_face.any():
            shares = self.likelihood.shares
            scores = self.likelihood.rows.scores(coefficients)
            score_rates = self.likelihood.rows.scores(separation.direction)
            observed = shares.argmax(axis=1)[:, None]  # an observed group of each row
            # for each cell off the face, the rate at which its relative score decreases, and the
            # decrease needed
            drop_rate = (np.take_along_axis(score_rates, observed, axis=1) - score_rates)[
                is_off_face
            ]
            scores_on_face = np.where(separation.support, scores, -np.inf)
            # relative to the cells on the face
            log_ratio = scores - np.logaddexp.reduce(scores_on_face, axis=1, keepdims=True)
            needed_drop = log_ratio[is_off_face] + OFF_FACE_LOG
            coefficients += max(float((needed_drop / drop_rate).max()), 0.0) * separation.direction
            coefficients -= coefficients[0]
        return coefficients


def null_directions(fisher: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Return null vectors (c, d) of an information matrix (c, c).

    Each has a one at a coefficient outside the `basis` (c,).
    """
    directions = np.zeros((len(fisher), int((~basis).sum())))
    directions[~basis] = np.eye(directions.shape[1])
    if basis.any() and directions.shape[1]:
        directions[basis] = -np.linalg.solve(
            fisher[np.ix_(basis, basis)], fisher[np.ix_(basis, ~basis)]
        )
    return directions


def leading_columns(Z: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return a mask (p,) of columns that form a basis of the column space of a design (n, p).

    Columns that are earlier in `order` are preferred.
    """
    columns = np.zeros(Z.shape[1], dtype=bool)
    basis = np.zeros((len(Z), 0))  # orthonormal
    for j in order:
        scale = np.linalg.norm(Z[:, j])
        rest = Z[:, j]
        for _ in range(2):  # two passes make rounding errors negligible
            rest = rest - basis @ (basis.T @ rest)
        norm = np.linalg.norm(rest)
        if scale > 0.0 and norm > MIN_PIVOT * scale:
            columns[j] = True
            basis = np.column_stack([basis, rest / norm])
    return columns


def find_maximum(
    codes: np.ndarray,
    weights: np.ndarray,
    layout: Layout,
    start: np.ndarray | None = None,
    firth: bool = False,
) -> ConditionalMaximum:
    """Maximise the likelihood or, with `firth`, Firth's penalised likelihood.

    `codes` (n, m) contains the distinct rows, and `weights` (n, K) their weights in each group. The
    iteration starts at the coefficients `start` (K, 1 + size), which may be from a fit with
    different weights. By default, it starts at 0.
    """
    groups = np.flatnonzero(weights.sum(axis=0) > 0.0)
    n = len(codes)
    K = weights.shape[1]
    p = 1 + layout.size
    k = len(groups)
    n_free = float(min(n, p) * max(k - 1, 1))
    width = k if is_large(n, layout) and not firth else p + k
    check_memory(  # three times the design and the table of cells, and four information matrices
        8.0 * (3.0 * n * width + 4.0 * min(n_free, MAX_COEFFICIENTS) ** 2),
        f"The information matrix of {n_free:,.0f} coefficients",
        "Use fewer predictors, fewer interactions or ridge='cv'.",
    )
    start = np.zeros((K, p)) if start is None else start
    table = _Table(codes, np.ascontiguousarray(weights[:, groups]), layout, start[groups], firth)
    separation = zero_margins(codes, table.counts, layout)
    if firth:
        separation = Separation(np.ones(table.counts.shape, dtype=bool), np.zeros((k, p)))
        face = table.maximise_penalised()
    else:
        face = table.maximise_on_face(separation.support)
    flat = face.flat
    if not firth and not face.is_certain(
        layout
    ):  # there may be more separation than the zero margins show
        complete_separation = table.find_separation()
        if complete_separation is None:  # use the information alone
            flat = face.flat_and_uninformed()
        elif (complete_separation.support != separation.support).any():
            separation = complete_separation
            face = table.maximise_on_face(complete_separation.support)
            flat = face.flat
    coefficients = np.zeros((K, p))
    basis = np.zeros((K, p), dtype=bool)
    coefficients[groups] = face.to_limit(separation)
    basis[groups[1:]] = face.likelihood.free
    all_flat = np.zeros((K, p, flat.shape[2]))
    all_flat[groups[1:]] = flat
    is_separated = bool((separation.support.sum(axis=1) == 1).all()) and k > 1
    value, norm, n_iter = face.maximum[1:]  # without the point itself
    if firth:  # report the value without the penalty
        value = face.likelihood.log_likelihood
    occurs = table.design.occurs()
    return ConditionalMaximum(
        groups,
        coefficients,
        value,
        norm,
        n_iter,
        basis,
        all_flat,
        table.columns,
        table.aliased,
        occurs,
        n,
        is_separated,
    )
