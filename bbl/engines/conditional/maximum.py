"""The maximum of the likelihood P(group | row) without a penalty: multinomial logistic regression
by Newton's method.

The *design* of a row is a one, for the intercept, and the indicators of its fields and couplings.
Each group but the *reference group*, the first with rows, has a coefficient for each column of the
design; those of the reference group are zero. A *cell* is a distinct row with a group.

The likelihood may have no finite maximum, but rise without end along a direction of the
coefficients, in which some cells lose their probability. The limit is the maximum of the likelihood
of the other cells, which are said to be *on the face*; the *support* is an array that marks them.
*Flat* directions of the coefficients do not change probabilities on the face.

Letters: n distinct rows, K groups, k groups with rows, p = 1 + size columns of the design, d flat
directions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.engines.conditional.firth import FirthLikelihood, maximise_firth
from bbl.engines.conditional.likelihood import Likelihood, design, information
from bbl.engines.conditional.separation import MAX_CELLS, Separation, separated_cells, zero_margins
from bbl.engines.likelihood.existence import is_certain, rank
from bbl.engines.likelihood.newton import Maximum, maximise
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.site_hessians import informed

__all__ = ["ConditionalMaximum", "find_maximum", "leading_columns"]

TOLERANCE = 1e-10  # norm of the gradient of the mean log-likelihood; one more step follows
HARMLESS = 1e-6  # gradient norm that moves coefficients in the fourth decimal at most
ITMAX = 200  # Newton steps
OFF_FACE_LOG = 40.0  # cells that lose their probability in the limit are given at most exp(-40)
MIN_PIVOT = 1e-6  # least pivot of linearly independent columns of the design, scaled to unit norm
MAX_COEFFICIENTS = 5000  # of all groups together; their information matrix is factored
# least component of a flat direction that is not rounding: its coefficient changes along it
ZERO_LOADING = 1e-6
# least in a scaled direction that counts, where no linear programme tells what is determined
MIN_INFORMATION = 1e-6


@dataclass(frozen=True)
class ConditionalMaximum:
    """The maximum of the likelihood P(group | row).

    Attributes
    ----------
    groups : ndarray of intp, shape (k,)
        Those with rows; the first is the reference group.
    coefficients : ndarray, shape (K, 1 + size)
        Intercept, fields and couplings of each group less those of the reference group; zero for
        groups without rows. Where the maximum is reached in a limit, a point at which cells off the
        face have a probability of at most exp(-40).
    value : float
        Mean log-likelihood of an observation, without Firth's penalty.
    norm : float
        Norm of the gradient.
    n_iter : int
        Newton steps.
    basis : ndarray of bool, shape (K, 1 + size)
        Coefficients that are estimated, as many as the cells on the face determine; the others are
        held fixed.
    flat : ndarray, shape (K, 1 + size, d)
        Directions that do not change probabilities on the face, in linearly independent columns of
        the design. The likelihood may rise along them without end.
    columns : ndarray of bool, shape (1 + size,)
        Linearly independent columns of the design that span it: their number is its rank.
    aliased : ndarray of bool, shape (1 + size,)
        Columns of the design that depend linearly on others: of levels that never occur together,
        or of terms that say the same.
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
    columns: np.ndarray
    aliased: np.ndarray
    occurs: np.ndarray
    n_rows: int
    is_separated: bool

    @property
    def reference(self) -> int:
        """The reference group."""
        return int(self.groups[0])

    def rank(self, g: int) -> int:
        """Return the number of parameters of group `g` in degrees of freedom: the rank of the
        design, 0 for the reference group and groups without rows.

        Coefficients without a finite maximum count, as the likelihood has gained by them; levels
        that never occur and terms that say the same as others do not.
        """
        return int(self.columns.sum()) if g in self.groups[1:] else 0

    @property
    def converged(self) -> bool:
        """Whether the gradient is small enough."""
        return self.norm <= HARMLESS

    def determined(self, a: int, b: int) -> np.ndarray:
        """Return whether the rows determine the coefficients (1 + size,) of group `a` less those of
        group `b`.
        """
        if a not in self.groups or b not in self.groups:
            return np.zeros(self.coefficients.shape[1], dtype=bool)
        return ~self.aliased & (
            np.abs(self.flat[a] - self.flat[b]).max(axis=1, initial=0.0) < ZERO_LOADING
        )


class _Table:
    """The distinct rows: their design and their weights in the k groups that have rows; p = 1 +
    size columns.

    Attributes
    ----------
    Z : ndarray, shape (n, p)
        The design.
    shares : ndarray, shape (n, k)
        Share of each cell in the weight of all rows.
    columns, aliased : ndarrays of bool, shape (p,)
        Linearly independent columns of the design that span it; columns that depend linearly on
        others.

    Parameters
    ----------
    codes : ndarray, shape (n, m)
    counts : ndarray, shape (n, k)
        Weight of each cell.
    layout : Layout
    start : ndarray, shape (k, p)
        Coefficients at which the iteration begins.
    """

    def __init__(self, codes: np.ndarray, counts: np.ndarray, layout: Layout, start: np.ndarray):
        self.codes = codes
        self.counts = counts
        self.layout = layout
        self.start = start
        self.Z = design(codes, layout)
        self.shares = counts / counts.sum()
        self.columns, self.aliased = _independent_columns(self.Z)
        n_free = int(self.columns.sum()) * (counts.shape[1] - 1)
        if n_free > MAX_COEFFICIENTS:
            raise OptionError(
                "ridge=0 and ridge='firth' solve for all coefficients at once, up to "
                f"{MAX_COEFFICIENTS:,} of them, but this model has {n_free:,}.",
                argument="ridge",
                hint="Give ridge='cv', or use fewer predictors or fewer interactions.",
            )

    def find_separation(self) -> Separation | None:
        """Return the separation that a linear programme finds; None if the programme is too large,
        or fails.
        """
        # of the programme: cells times columns
        n_entries = self.counts.size * int(self.columns.sum())
        separation = (
            separated_cells(self.Z[:, self.columns], self.counts)
            if n_entries <= MAX_CELLS
            else None
        )
        if separation is None:
            return None
        # (k, p): zero for the other columns
        direction = np.zeros((self.counts.shape[1], self.Z.shape[1]))
        direction[:, self.columns] = separation.direction
        return separation._replace(direction=direction)

    def maximise_on_face(self, support: np.ndarray) -> _Face:
        """Maximise the likelihood of the cells on the face, which `support` (n, k) marks."""
        free, flat = self._free_and_flat(support)
        likelihood = Likelihood(self.Z, self.shares, support, free)
        start = self.start[1:] - self.start[0]
        # the same probabilities on the face, with coefficients of zero where they are not free:
        # flat direction l has a one at the l-th of the d coefficients of independent columns that
        # are not free, and zeros at the others
        start = start - flat @ start[self.columns & ~free]
        maximum = maximise(likelihood, start[free], TOLERANCE, ITMAX)
        # so that `gradient` and `curvatures` are those at the maximum
        likelihood.value(maximum.theta)
        return _Face(likelihood, maximum, flat)

    def maximise_penalised(self) -> _Face:
        """Maximise Firth's penalised likelihood of all cells, which has a finite maximum."""
        likelihood = FirthLikelihood(self.Z, self.shares, float(self.counts.sum()), self.columns)
        maximum = maximise_firth(likelihood, self.start[1:] - self.start[0])
        return _Face(likelihood, maximum, np.zeros((*likelihood.free.shape, 0)))

    def _free_and_flat(self, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which coefficients (k - 1, p) to estimate on a support (n, k), and the flat
        directions (k - 1, p, d).

        Both come from the null space of an information matrix on the support. That space is the
        same at all positive probabilities; here the cells of a row have equal ones.
        """
        k = self.counts.shape[1]
        p = self.Z.shape[1]
        r = int(self.columns.sum())
        free = np.repeat(self.columns[None], k - 1, axis=0)
        if support.all():
            return free, np.zeros((k - 1, p, 0))
        equal_probabilities = support / support.sum(axis=1, keepdims=True)
        weights = np.full(len(support), 1.0 / len(support))
        all_free = np.ones((k - 1, r), dtype=bool)
        fisher = information(self.Z[:, self.columns], equal_probabilities, weights, all_free)
        basis = rank(fisher)[0]  # of the (k - 1) r coefficients, those that are estimated
        # null vectors of the information: each has a one at a coefficient outside the basis
        directions = np.zeros((len(fisher), int((~basis).sum())))
        directions[~basis] = np.eye(directions.shape[1])
        if basis.any() and directions.shape[1]:
            directions[basis] = -np.linalg.solve(
                fisher[np.ix_(basis, basis)], fisher[np.ix_(basis, ~basis)]
            )
        flat = np.zeros((k - 1, p, directions.shape[1]))
        flat[:, self.columns] = directions.reshape(k - 1, r, directions.shape[1])
        free[:, self.columns] = basis.reshape(k - 1, r)
        return free, flat


@dataclass(frozen=True)
class _Face:
    """The maximum of the likelihood of the cells on the face: those that keep a probability.

    Attributes
    ----------
    likelihood : Likelihood
        Evaluated at the maximum: ``curvatures()[0]`` is the information about its `free`
        coefficients.
    maximum : Maximum
        The point `theta`, a vector of the free coefficients; the objective, the norm of its
        gradient, and the number of steps.
    flat : ndarray, shape (k - 1, p, d)
        Directions that do not change probabilities on the face.
    """

    likelihood: Likelihood
    maximum: Maximum
    flat: np.ndarray

    def is_certain(self, layout: Layout) -> bool:
        """Return whether the point proves that this likelihood has a finite maximum; see
        `existence.is_certain`.
        """
        # that holds if 2 R |gradient| is below the least eigenvalue of the information. R bounds
        # the norm of the difference of two groups' statistics, which have a one each for the
        # intercept and each table (`scopes`)
        squared_R = 2 * (1 + len(layout.scopes))
        return is_certain(
            self.likelihood.curvatures()[0], self.likelihood.gradient(), n_terms=squared_R
        )

    def flat_and_uninformed(self) -> np.ndarray:
        """Return the flat directions (k - 1, p, d), with one for each coefficient that has next to
        no information.
        """
        free = self.likelihood.free
        is_uninformed = np.zeros(free.shape, dtype=bool)
        if free.any():
            is_uninformed[free] = ~informed(self.likelihood.curvatures()[0], MIN_INFORMATION)
        unit_vectors = np.eye(free.size)[:, is_uninformed.ravel()].reshape(
            *free.shape, int(is_uninformed.sum())
        )
        return np.concatenate([self.flat, unit_vectors], axis=2)

    def to_limit(self, separation: Separation) -> np.ndarray:
        """Return the coefficients (k, p) of a point close to the limit, less those of the first
        group.

        From the maximum on the face it goes along the separation's direction, until cells off the
        face have a probability of at most exp(-40).
        """
        coefficients = np.zeros(separation.direction.shape)
        coefficients[1:] = self.likelihood.spread(self.maximum.theta)
        is_off_face = ~separation.support
        if is_off_face.any():
            Z = self.likelihood.Z
            shares = self.likelihood.shares
            scores = Z @ coefficients.T
            score_rates = Z @ separation.direction.T
            observed = shares.argmax(axis=1)[:, None]  # an observed group of each row
            # of each cell off the face: how fast its score falls behind, and how much it has to
            # fall
            drop_rate = (np.take_along_axis(score_rates, observed, axis=1) - score_rates)[
                is_off_face
            ]
            scores_on_face = np.where(separation.support, scores, -np.inf)
            # to the cells on the face
            log_ratio = scores - np.logaddexp.reduce(scores_on_face, axis=1, keepdims=True)
            needed_drop = log_ratio[is_off_face] + OFF_FACE_LOG
            coefficients += max(float((needed_drop / drop_rate).max()), 0.0) * separation.direction
            coefficients -= coefficients[0]
        return coefficients


def _independent_columns(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which columns (p,) of a design (n, p) are a basis of its column space, and which
    depend on others.

    Columns that do not depend on others are all in the basis. With as many rows as columns, a
    Cholesky factor of Z'Z shows quickly if all are independent; else a QR factorisation with
    pivoting finds the rank.
    """
    from scipy.linalg import lapack, qr, solve_triangular

    n, p = Z.shape
    scale = np.sqrt((Z * Z).sum(axis=0))
    scaled = Z / np.where(scale > 0.0, scale, 1.0)
    if n >= p:
        # failed: not 0 if a pivot is not positive
        factor, failed = lapack.dpotrf(scaled.T @ scaled, lower=1)
        if not failed and factor.diagonal().min() > MIN_PIVOT:
            return np.ones(p, dtype=bool), np.zeros(p, dtype=bool)
        scaled = qr(scaled, mode="r")[0][:p]  # (p, p), whose columns have the same dependences
    R, pivots = qr(scaled, mode="r", pivoting=True)
    diagonal = np.abs(R.diagonal())
    r = int((diagonal > MIN_PIVOT * diagonal.max(initial=0.0)).sum())
    columns = np.zeros(p, dtype=bool)
    aliased = np.zeros(p, dtype=bool)
    columns[pivots[:r]] = True
    aliased[pivots[r:]] = True
    # columns of the basis that others are combinations of
    aliased[pivots[:r]] = (
        np.abs(solve_triangular(R[:r, :r], R[:r, r:])).max(axis=1, initial=0.0) > ZERO_LOADING
    )
    return columns, aliased


def leading_columns(Z: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return which columns (p,) of a design (n, p) are a basis of its column space, where a column
    that comes first in `order` is preferred.
    """
    columns = np.zeros(Z.shape[1], dtype=bool)
    basis = np.zeros((len(Z), 0))  # orthonormal
    for j in order:
        scale = np.linalg.norm(Z[:, j])
        rest = Z[:, j]
        for _ in range(2):  # twice is enough against rounding
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
    """Return the maximum of the likelihood of distinct rows (n, m) with `weights` (n, K) in each
    group, or with `firth` that of Firth's penalised likelihood.

    The iteration begins at the coefficients `start` (K, 1 + size), such as those of a fit to other
    weights; else at 0.
    """
    groups = np.flatnonzero(weights.sum(axis=0) > 0.0)
    n = len(codes)
    K = weights.shape[1]
    p = 1 + layout.size
    k = len(groups)
    n_free = float(min(n, p) * max(k - 1, 1))
    check_memory(  # three times the design and the table of cells, and four information matrices
        8.0 * (3.0 * n * (p + k) + 4.0 * min(n_free, MAX_COEFFICIENTS) ** 2),
        f"The information of {n_free:,.0f} coefficients",
        "Use fewer predictors or fewer interactions, or give ridge='cv'.",
    )
    start = np.zeros((K, p)) if start is None else start
    table = _Table(codes, np.ascontiguousarray(weights[:, groups]), layout, start[groups])
    separation = zero_margins(codes, table.counts, layout)
    if firth:
        separation = Separation(np.ones(table.counts.shape, dtype=bool), np.zeros((k, p)))
        face = table.maximise_penalised()
    else:
        face = table.maximise_on_face(separation.support)
    flat = face.flat
    if not firth and not face.is_certain(
        layout
    ):  # there may be more separation than by zero margins
        complete_separation = table.find_separation()
        if complete_separation is None:  # judge by the information alone
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
    if firth:  # without the penalty
        value = face.likelihood.log_likelihood
    occurs = np.asarray(table.Z.any(axis=0))
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
