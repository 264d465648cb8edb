"""Existence of the maximum likelihood estimate, the facial set, and the finite parameters."""

# The likelihood of a log-linear model has a finite maximum if and only if the observed moments are
# in the relative interior of the polytope of all moments. Otherwise they are on a face of it, and
# the maximum is only approached in the limit along a *direction of recession*: a vector d such that
# the energy ``T(x) d`` has its maximum in all observed states. The probability of states with lower
# energy tends to zero (Fienberg & Rinaldo 2012, Annals of Statistics 40, section 3). The remaining
# states are the *facial set*. ``T(x)`` (size,) are the parameters' indicators in state x; n is the
# number of states.

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.model import eigen
from bbl.engines.likelihood.contrasts import add_parameters
from bbl.engines.likelihood.states import StateTable
from bbl.model.layout import Layout
from bbl.model.site_hessians import ZERO_EIGENVALUE, ZERO_LOADING

__all__ = [
    "Face",
    "facial_set",
    "first_parameters",
    "holds_absent_level",
    "is_certain",
    "rank",
    "recede",
    "step_down",
    "zero_margins",
]

# maximum number of states times parameters for solving the linear programme
MAX_PROGRAMME_CELLS = 2**21
ROUNDING = 1e-13  # eigenvalues of an information up to this value are rounding errors
# the programme's solution is 1 for states that lose their probability, and 0 for all others
OFF_FACE = 0.5


class Face(NamedTuple):
    """The states that have positive probability at the maximum.

    Attributes
    ----------
    support : ndarray of bool, shape (n,), or None
        The facial set; None if it contains all possible states.
    direction : ndarray, shape (size,)
        A direction of recession that decreases the energy of all states off the face by at least 1;
        zero if all states are on the face.
    """

    support: np.ndarray | None
    direction: np.ndarray


def facial_set(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the facial set for the observed counts (n,) of all states.

    It is found by a linear programme, which maximises the sum of ``z(x)`` over the empty states
    subject to ``0 <= z <= 1`` and ``c + T(x) d + z(x) <= 0``, with ``c + T(x) d = 0`` in the
    observed states, where c is a constant. Sums of directions of recession are also directions of
    recession. Therefore, a single direction decreases the energy of all states whose energy can be
    decreased. A multiple of this direction decreases each energy by at least 1, the upper bound of
    z. At the optimum, each z is therefore 0 or 1.

    Parameters
    ----------
    table : StateTable
    counts : ndarray, shape (n,)
    free : ndarray of bool, shape (size,)
        Parameters that may be infinite because they have no penalty.
    """
    size = table.size
    empty = np.flatnonzero(
        counts == 0.0 if table.possible is None else table.possible & (counts == 0.0)
    )
    whole_face = Face(None, np.zeros(size))
    if not len(empty) or not free.any():  # all states keep their probability
        return whole_face
    if table.n * size > MAX_PROGRAMME_CELLS:
        return zero_margins(table, counts, free)
    design = _indicators(table, free)
    recession = recede(design[np.flatnonzero(counts)], design[empty])
    if recession is None:
        return zero_margins(table, counts, free)
    is_off_face, coefficients = recession
    if not is_off_face.any():
        return whole_face
    support = np.ones(table.n, dtype=bool) if table.possible is None else table.possible.copy()
    support[empty[is_off_face]] = False
    direction = np.zeros(size)
    direction[free] = coefficients[1:]  # coefficients[0] is the change of the constant
    return Face(support, direction)


def recede(on_observed, on_empty) -> tuple[np.ndarray, np.ndarray] | None:
    """Find a direction d along which the probability of as many empty cells as possible vanishes.

    The linear programme maximises the sum of z over the empty cells subject to ``0 <= z <= 1``,
    ``on_empty d + z <= 0`` and ``on_observed d = 0``, as described in `facial_set`. `width` is the
    number of columns of the indicators, including a constant. The result is None if the solver
    fails.

    Parameters
    ----------
    on_observed : sparse array, shape (n_observed, width)
        Indicators of the observed cells, whose energy must not change along d.
    on_empty : sparse array, shape (n_empty, width)
        Indicators of the empty cells, whose energy may decrease along d.

    Returns
    -------
    is_off_face : ndarray of bool, shape (n_empty,)
        Empty cells with vanishing probability.
    direction : ndarray, shape (width,)
    """
    from scipy import sparse
    from scipy.optimize import linprog

    n_empty, width = on_empty.shape
    result = linprog(  # minimises over the variables d and z
        np.concatenate([np.zeros(width), -np.ones(n_empty)]),
        A_ub=sparse.hstack([on_empty, sparse.identity(n_empty, format="csr")], format="csr"),
        b_ub=np.zeros(n_empty),
        A_eq=sparse.hstack(
            [on_observed, sparse.csr_matrix((on_observed.shape[0], n_empty))], format="csr"
        ),
        b_eq=np.zeros(on_observed.shape[0]),
        bounds=[(None, None)] * width + [(0.0, 1.0)] * n_empty,
        method="highs",
    )
    if result.status != 0:  # 0: an optimum was found
        return None
    return result.x[width:] > OFF_FACE, result.x[:width]


def _indicators(table: StateTable, free: np.ndarray):
    """Return a sparse matrix (n, 1 + f) of a constant and the indicators of `free` parameters."""
    from scipy import sparse

    return sparse.csr_matrix(np.column_stack([np.ones(table.n), table.indicators()[:, free]]))


def zero_margins(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the face without states that have a level combination with a zero margin.

    `counts` (n,) contains the counts of all states. The margins are those of the model's terms. A
    zero margin is only used if all of its parameters are `free` and the level combination is
    possible.
    """
    layout = table.layout
    possible = (
        np.ones(table.shape, dtype=bool)
        if table.possible is None
        else table.possible.reshape(table.shape)
    )
    support = possible.copy()
    direction = np.zeros(table.size)
    observed = counts.reshape(table.shape)
    for scope in table.margin_scopes:
        other_axes = tuple(i for i in range(layout.m) if i not in scope)
        # margins of the scope; the other axes have length 1
        is_empty = (observed.sum(axis=other_axes, keepdims=True) == 0.0) & possible.any(
            axis=other_axes, keepdims=True
        )
        margin_direction = step_down(layout, scope, is_empty.squeeze(other_axes))
        # None: there is no empty cell, or a sub-term is not in the model; the margin stays on the
        # face
        if margin_direction is None:
            continue
        margin_direction = table.of_margin(margin_direction)
        if free[margin_direction != 0.0].all():
            support &= ~is_empty
            direction += margin_direction
    return Face(None if np.array_equal(support, possible) else support.ravel(), direction)


def step_down(layout: Layout, scope: tuple[int, ...], empty: np.ndarray) -> np.ndarray | None:
    """Return a direction (size,) that decreases the energy of a margin's empty cells by 1.

    Up to a constant, the energy of the other cells does not change. The result is None if no cell
    is empty, or if the model lacks a sub-term that would be required for this direction.

    Parameters
    ----------
    layout : Layout
    scope : tuple of int
        Predictors of the margin.
    empty : ndarray of bool, shape (L_i, L_j, ...)
        Mask of the empty cells of the margin.
    """
    if not empty.any():
        return None
    direction = np.zeros(layout.size)
    return direction if add_parameters(layout, direction, scope, -empty.astype(float)) else None


def is_certain(information: np.ndarray, gradient: np.ndarray, n_terms: float) -> bool:
    """Return whether the values at a point near a maximum prove that a finite maximum exists.

    A sufficient condition is that ``2 R |gradient|`` is less than the smallest eigenvalue of the
    information. R is the largest norm of the indicators of a state, which is at most the square
    root of the number of terms and predictors (Bach 2010, Electronic Journal of Statistics 4,
    proposition 2). If the maximum is at infinity, the gradient and the smallest eigenvalue decrease
    together, so the condition does not hold at any point. If the condition holds, a search for a
    face is unnecessary.

    Parameters
    ----------
    information : ndarray, shape (size, size)
        Fisher information of a basis of the parameters; see `rank`.
    gradient : ndarray, shape (size,)
        Gradient with respect to these parameters.
    n_terms : float
        Number of predictors and terms, or another upper bound on the square of R.
    """
    from scipy.linalg import lapack

    needed_eigenvalue = 2.0 * np.sqrt(n_terms) * float(np.linalg.norm(gradient)) + ROUNDING
    # a Cholesky factor exists if all eigenvalues are positive; dpotrf then returns 0 as its second
    # value
    return bool(
        lapack.dpotrf(information - needed_eigenvalue * np.eye(len(information)), lower=1)[1] == 0
    )


def rank(information: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a basis of the parameters identified by a Fisher information matrix (size, size).

    Returns
    -------
    basis : ndarray of bool, shape (size,)
        Parameters with linearly independent indicators, which include all determined parameters.
        The number of these parameters is the rank.
    determined : ndarray of bool, shape (size,)
        Parameters that are not part of any combination of parameters without information.
    """
    diagonal = information.diagonal()
    is_informed = diagonal > ZERO_EIGENVALUE
    scale = np.sqrt(np.where(is_informed, diagonal, 1.0))
    scaled = np.where(np.outer(is_informed, is_informed), information / np.outer(scale, scale), 0.0)
    # rounding errors grow with the number of parameters; 100 is a lower bound
    largest_null = ZERO_EIGENVALUE * max(len(scaled), 100)
    if is_informed.all():
        from scipy.linalg import lapack

        # a Cholesky factor exists if all eigenvalues are larger, and takes much less time
        if lapack.dpotrf(scaled - largest_null * np.eye(len(scaled)), lower=1)[1] == 0:
            return is_informed, is_informed.copy()
    eigenvalues, eigenvectors = eigen.eigenvectors(scaled)
    is_null = eigenvalues <= largest_null
    # The rows of parameters without information are zero, so they are null vectors too.
    # ZERO_LOADING: bound on the rounding error of the squared length of a parameter's components in
    # null vectors.
    determined = is_informed & ((eigenvectors[:, is_null] ** 2).sum(axis=1) < ZERO_LOADING)
    basis = determined.copy()
    undetermined = np.flatnonzero(is_informed & ~determined)
    if len(undetermined):
        from scipy.linalg import qr

        # columns of a root of the information; pivoted QR selects independent ones first
        root = eigenvectors[undetermined][:, ~is_null] * np.sqrt(eigenvalues[~is_null])
        _, _, pivots = qr(root.T, mode="economic", pivoting=True)
        # the rank minus the number of determined parameters
        n_missing = int(len(scaled) - is_null.sum() - determined.sum())
        basis[undetermined[pivots[:n_missing]]] = True
    return basis, determined


def holds_absent_level(layout: Layout, counts: list[np.ndarray]) -> np.ndarray:
    """Return a mask (size,) of parameters with a level or reference level that does not occur.

    `counts` contains the weights (L_i,) of each predictor's levels.
    """
    holds_absent = np.zeros(layout.size, dtype=bool)
    # for each predictor (L_i - 1,): absent levels, or all levels if the reference level is absent
    is_absent = [(n[1:] == 0) | (n[0] == 0) for n in counts]
    for scope in layout.scopes:
        table = layout.table(holds_absent, *scope)  # a view: the array is filled table by table
        for axis, i in enumerate(scope):
            # along the axis of predictor i in the table, for any levels of the others
            table |= is_absent[i].reshape([-1 if k == axis else 1 for k in range(len(scope))])
    return holds_absent


def first_parameters(layout: Layout, chosen: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the first `chosen` parameter of each predictor, in the form of `EngineFit.unbounded`.

    A parameter is a tuple of the predictor and the code of its level. For couplings, the other
    predictors and their levels follow. `chosen` (size,) is a mask of parameters.
    """
    first: dict[int, tuple[int, ...]] = {}
    for scope in layout.scopes:
        table = layout.table(chosen, *scope)
        if not table.any():
            continue
        # codes; code 0 has no parameter
        levels = [int(position) + 1 for position in np.argwhere(table)[0]]
        for axis, i in enumerate(scope):
            if i not in first:
                predictor_levels = [(i, levels[axis])] + [
                    (j, b) for j, b in zip(scope, levels, strict=True) if j != i
                ]
                first[i] = tuple(
                    number for predictor_level in predictor_levels for number in predictor_level
                )
    return tuple(first[i] for i in sorted(first))  # in the order of the predictors
