"""Where the likelihood has its maximum: the states that keep a probability, and the parameters that
stay finite.

A log-linear model has a finite maximum of the likelihood if and only if the observed moments lie
inside the polytope of all moments. If not, they lie on a face of it: the maximum is reached in the
limit along a *direction of recession*, a vector d for which the energy ``T(x) d`` is largest, and
the same, in all observed states, so that the states below it lose their probability (Fienberg &
Rinaldo 2012, Annals of Statistics 40, section 3). The states that keep it are the *facial set*.
``T(x)`` (size,) holds the indicators of the parameters in state x: whether it has all levels that
the parameter belongs to. A *scope* is the predictors of a term, or of fields; n is the number of
states. A `StateTable` holds the number `n`, the numbers of levels `shape`, and `possible`, a mask
(n,) of the states that can occur, None if all can.
"""

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

MAX_PROGRAMME_CELLS = 2**21  # up to so many states times parameters the linear programme is solved
ROUNDING = 1e-13  # least eigenvalue of an information that is not rounding
# between the two values that the programme ends at: 1 for states that lose their probability, else
# 0
OFF_FACE = 0.5


class Face(NamedTuple):
    """The states that keep a probability at the maximum.

    Attributes
    ----------
    support : ndarray of bool, shape (n,), or None
        The facial set; None for all states that can occur.
    direction : ndarray, shape (size,)
        A direction of recession: the energy of states off the face falls along it by 1 at least;
        zero if all states are on the face.
    """

    support: np.ndarray | None
    direction: np.ndarray


def facial_set(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the facial set of the observed counts (n,) of all states.

    One linear programme finds it: the largest sum of ``z(x)`` over the empty states with ``0 <= z
    <= 1`` and ``c + T(x) d + z(x) <= 0``, where ``c + T(x) d = 0`` in the observed states; c is a
    constant. The sum of two directions of recession is one too, so that one of them lowers all
    states that any lowers; a multiple of it lowers each by 1 at least, where z is capped. At the
    optimum each z is therefore 0 or 1.

    Parameters
    ----------
    table : StateTable
    counts : ndarray, shape (n,)
    free : ndarray of bool, shape (size,)
        Parameters that may grow without end: those without a penalty.
    """
    size = table.layout.size
    empty = np.flatnonzero(
        counts == 0.0 if table.possible is None else table.possible & (counts == 0.0)
    )
    whole_face = Face(None, np.zeros(size))
    if not len(empty) or not free.any():  # no state can lose its probability
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
    """Return the empty cells that lose their probability along a direction d, and d; None if the
    solver fails.

    The programme of `facial_set`: the largest sum of z over the empty cells with ``0 <= z <= 1``,
    ``on_empty d + z <= 0`` and ``on_observed d = 0``. `width` counts the columns of indicators, a
    constant among them.

    Parameters
    ----------
    on_observed : sparse array, shape (n_observed, width)
        Indicators of observed cells, by which the energy along d must not change.
    on_empty : sparse array, shape (n_empty, width)
        Indicators of empty cells, whose energy along d may fall.

    Returns
    -------
    is_off_face : ndarray of bool, shape (n_empty,)
        Which empty cells lose their probability.
    direction : ndarray, shape (width,)
    """
    from scipy import sparse
    from scipy.optimize import linprog

    n_empty, width = on_empty.shape
    result = linprog(  # its variables are d, then z; it minimises
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
    """Return a sparse matrix (n, 1 + f): a constant, then the indicators of the f `free` parameters
    in all states.
    """
    from scipy import sparse

    return sparse.csr_matrix(np.column_stack([np.ones(table.n), table.indicators()[:, free]]))


def zero_margins(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the face without the states that hold a combination of levels of a term that never
    occurs.

    `counts` (n,) are those of all states. A zero margin counts only if its parameters are all
    `free`, and if the combination can occur.
    """
    layout = table.layout
    possible = (
        np.ones(table.shape, dtype=bool)
        if table.possible is None
        else table.possible.reshape(table.shape)
    )
    support = possible.copy()
    direction = np.zeros(layout.size)
    observed = counts.reshape(table.shape)
    for scope in layout.scopes:
        other_axes = tuple(i for i in range(layout.m) if i not in scope)
        # margins of the scope; the other axes have length 1
        is_empty = (observed.sum(axis=other_axes, keepdims=True) == 0.0) & possible.any(
            axis=other_axes, keepdims=True
        )
        margin_direction = step_down(layout, scope, is_empty.squeeze(other_axes))
        # None: no empty cell, or the model lacks a sub-term, and the margin stays on the face
        if margin_direction is not None and free[margin_direction != 0.0].all():
            support &= ~is_empty
            direction += margin_direction
    return Face(None if np.array_equal(support, possible) else support.ravel(), direction)


def step_down(layout: Layout, scope: tuple[int, ...], empty: np.ndarray) -> np.ndarray | None:
    """Return a direction (size,) of the parameters along which the energy of empty cells of a
    margin falls by 1.

    That of the other cells stays, up to a constant. None if no cell is empty, or if the model lacks
    a sub-term that the direction would take.

    Parameters
    ----------
    layout : Layout
    scope : tuple of int
        Predictors of the margin.
    empty : ndarray of bool, shape (L_i, L_j, ...)
        Which cells of the margin are empty.
    """
    if not empty.any():
        return None
    direction = np.zeros(layout.size)
    return direction if add_parameters(layout, direction, scope, -empty.astype(float)) else None


def is_certain(information: np.ndarray, gradient: np.ndarray, n_terms: int) -> bool:
    """Return whether a point near a maximum proves that there is one, without a search for a face.

    There is one if ``2 R |gradient|`` is less than the least eigenvalue of the information. R is
    the largest norm of the indicators of a state, at most the root of the number of terms and
    predictors (Bach 2010, Electronic Journal of Statistics 4, proposition 2). If the maximum is at
    infinity, gradient and least eigenvalue fall alike on the way, so that no point passes the test.

    Parameters
    ----------
    information : ndarray, shape (size, size)
        Fisher information of a basis of the parameters, see `rank`.
    gradient : ndarray, shape (size,)
        Gradient by these parameters.
    n_terms : int
        Number of predictors and terms.
    """
    from scipy.linalg import lapack

    needed_eigenvalue = 2.0 * np.sqrt(n_terms) * float(np.linalg.norm(gradient)) + ROUNDING
    # a Cholesky factor exists if all eigenvalues are positive; dpotrf returns it, then 0 if it
    # exists
    return bool(
        lapack.dpotrf(information - needed_eigenvalue * np.eye(len(information)), lower=1)[1] == 0
    )


def rank(information: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a basis of the parameters that a Fisher information (size, size) determines, and the
    determined ones.

    Returns
    -------
    basis : ndarray of bool, shape (size,)
        As many parameters as the rank, whose indicators are linearly independent; the determined
        ones are in it.
    determined : ndarray of bool, shape (size,)
        Parameters that are in no combination of parameters without information.
    """
    diagonal = information.diagonal()
    is_informed = diagonal > ZERO_EIGENVALUE
    scale = np.sqrt(np.where(is_informed, diagonal, 1.0))
    scaled = np.where(np.outer(is_informed, is_informed), information / np.outer(scale, scale), 0.0)
    eigenvalues, eigenvectors = eigen.eigenvectors(scaled)
    # rounding grows with their number; 100: a floor
    is_null = eigenvalues <= ZERO_EIGENVALUE * max(len(scaled), 100)
    # parameters without information are null vectors too, as their rows are zero ZERO_LOADING:
    # squared length of a parameter's components in null vectors that is zero but for rounding
    determined = is_informed & ((eigenvectors[:, is_null] ** 2).sum(axis=1) < ZERO_LOADING)
    basis = determined.copy()
    undetermined = np.flatnonzero(is_informed & ~determined)
    if len(undetermined):
        from scipy.linalg import qr

        # columns of a root of the information; pivoted QR takes independent ones first
        root = eigenvectors[undetermined][:, ~is_null] * np.sqrt(eigenvalues[~is_null])
        _, _, pivots = qr(root.T, mode="economic", pivoting=True)
        # the rank, less the determined ones
        n_missing = int(len(scaled) - is_null.sum() - determined.sum())
        basis[undetermined[pivots[:n_missing]]] = True
    return basis, determined


def holds_absent_level(layout: Layout, counts: list[np.ndarray]) -> np.ndarray:
    """Return which parameters (size,) belong to a level that never occurs, or whose reference level
    never does.

    `counts` holds the weights (L_i,) of each predictor's levels.
    """
    holds_absent = np.zeros(layout.size, dtype=bool)
    # (L_i - 1,) each: of the non-reference levels
    is_absent = [(n[1:] == 0) | (n[0] == 0) for n in counts]
    for scope in layout.scopes:
        table = layout.table(holds_absent, *scope)  # a view: the array is filled table by table
        for axis, i in enumerate(scope):
            # along the axis of predictor i of the table, for any levels of the others
            table |= is_absent[i].reshape([-1 if k == axis else 1 for k in range(len(scope))])
    return holds_absent


def first_parameters(layout: Layout, chosen: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return, for each predictor with `chosen` parameters, the first of them, as
    `EngineFit.unbounded` holds it.

    That is a tuple: the predictor and the code of its level, then those of the other predictors of
    the parameter, if it is no field. `chosen` (size,) is a mask of parameters.
    """
    first: dict[int, tuple[int, ...]] = {}
    for scope in layout.scopes:
        table = layout.table(chosen, *scope)
        if not table.any():
            continue
        # codes; code 0 has no parameters
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
