"""Where the likelihood has its maximum: the states that keep a probability, and the parameters that stay finite.

A log-linear model has a finite maximum of the likelihood if and only if the observed moments lie inside the polytope of
all moments. If not, they lie on a face of it: the maximum is reached in the limit along a *direction of recession*, a
vector d for which the energy ``T(x) d`` is largest, and the same, in all observed states, so that the states below it
lose their probability (Fienberg & Rinaldo 2012, Annals of Statistics 40, section 3). The states that keep it are the
*facial set*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bbl._ext.model import eigen
from bbl.engines.likelihood.contrasts import add_parameters
from bbl.engines.likelihood.states import StateTable
from bbl.model.hessian_inverse import ZERO_EIGENVALUE, ZERO_LOADING
from bbl.model.layout import Layout

__all__ = [
    "Face", "facial_set", "first_parameters", "holds_absent_level", "is_certain", "rank", "recede", "step_down",
    "zero_margins",
]  # fmt: skip

MAX_PROGRAMME_CELLS = 2**21  # states times parameters; larger tables have only their zero margins found
ROUNDING = 1e-13  # least eigenvalue of an information that is not rounding
OFF_FACE = 0.5  # the programme ends at 1 for states that lose their probability and at 0 for the others


class Face(NamedTuple):
    """The states that keep a probability at the maximum.

    Attributes
    ----------
    support : ndarray of bool, shape (n,), or None
        The facial set; None for all states that can occur.
    direction : ndarray, shape (size,)
        A direction of recession: the energy of states off the face falls along it by 1 at least; zero if all states
        are on the face.
    """

    support: np.ndarray | None
    direction: np.ndarray


def facial_set(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the facial set of the observed counts (n,) of all states.

    One linear programme finds it: the largest sum of ``z(x)`` over the empty states with ``0 <= z <= 1`` and
    ``c + T(x) d + z(x) <= 0``, where ``c + T(x) d = 0`` in the observed states. Directions add up, so that at the
    optimum each z is 0 or 1.

    Parameters
    ----------
    table : StateTable
    counts : ndarray, shape (n,)
    free : ndarray of bool, shape (size,)
        Parameters that may grow without end: those without a penalty.
    """
    size = table.layout.size
    empty = np.flatnonzero(counts == 0.0 if table.possible is None else table.possible & (counts == 0.0))
    nowhere = Face(None, np.zeros(size))
    if not len(empty) or not free.any():
        return nowhere
    if table.n * size > MAX_PROGRAMME_CELLS:
        return zero_margins(table, counts, free)
    design = _indicators(table, free)
    recession = recede(design[np.flatnonzero(counts)], design[empty])
    if recession is None:
        return zero_margins(table, counts, free)
    off, step = recession
    if not off.any():
        return nowhere
    support = np.ones(table.n, dtype=bool) if table.possible is None else table.possible.copy()
    support[empty[off]] = False
    direction = np.zeros(size)
    direction[free] = step[1:]
    return Face(support, direction)


def recede(on_observed, on_empty) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the empty cells that lose their probability along a direction, and the direction; None without a solution.

    The programme of `facial_set`: the largest sum of z over the empty cells with ``0 <= z <= 1``, ``on_empty d + z <=
    0`` and ``on_observed d = 0``.

    Parameters
    ----------
    on_observed : sparse array, shape (n, width)
        Change along each coordinate of d of what stays the same in observed cells.
    on_empty : sparse array, shape (k, width)
        The same in empty cells.

    Returns
    -------
    off : ndarray of bool, shape (k,)
    direction : ndarray, shape (width,)
    """
    from scipy import sparse
    from scipy.optimize import linprog

    k, width = on_empty.shape
    result = linprog(
        np.concatenate([np.zeros(width), -np.ones(k)]),
        A_ub=sparse.hstack([on_empty, sparse.identity(k, format="csr")], format="csr"),
        b_ub=np.zeros(k),
        A_eq=sparse.hstack([on_observed, sparse.csr_matrix((on_observed.shape[0], k))], format="csr"),
        b_eq=np.zeros(on_observed.shape[0]),
        bounds=[(None, None)] * width + [(0.0, 1.0)] * k,
        method="highs",
    )
    if result.status != 0:
        return None
    return result.x[width:] > OFF_FACE, result.x[:width]


def _indicators(table: StateTable, free: np.ndarray):
    """Return a constant and the indicators of the free parameters in all states, a sparse matrix (n, 1 + free)."""
    from scipy import sparse

    return sparse.csr_matrix(np.column_stack([np.ones(table.n), table.indicators()[:, free]]))


def zero_margins(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the face of the margins of zero: states that hold a combination of levels that never occurs.

    Combinations that cannot occur are not among them.
    """
    layout = table.layout
    possible = np.ones(table.shape, dtype=bool) if table.possible is None else table.possible.reshape(table.shape)
    support, direction = possible.copy(), np.zeros(layout.size)
    observed = counts.reshape(table.shape)
    for scope in layout.scopes:
        other_axes = tuple(i for i in range(layout.m) if i not in scope)
        is_empty = (observed.sum(axis=other_axes, keepdims=True) == 0.0) & possible.any(axis=other_axes, keepdims=True)
        step = step_down(layout, scope, is_empty.squeeze(other_axes))
        if step is not None and free[step != 0.0].all():
            support &= ~is_empty
            direction += step
    return Face(None if np.array_equal(support, possible) else support.ravel(), direction)


def step_down(layout: Layout, scope: tuple[int, ...], empty: np.ndarray) -> np.ndarray | None:
    """Return parameters (size,) with the energy -1 in the empty cells of a margin and 0 elsewhere, up to a constant.

    None if no cell is empty, or if the model lacks a sub-term that it would take.

    Parameters
    ----------
    layout : Layout
    scope : tuple of int
        Predictors of the margin.
    empty : ndarray of bool, shape (L_i, L_j, ...)
    """
    if not empty.any():
        return None
    step = np.zeros(layout.size)
    return step if add_parameters(layout, step, scope, -empty.astype(float)) else None


def is_certain(information: np.ndarray, gradient: np.ndarray, n_terms: int) -> bool:
    """Return whether a point near a maximum proves that there is one, without a search for a face.

    There is one if ``2 R |gradient|`` is less than the least eigenvalue of the information, R being the largest norm
    of the indicators of a state, at most the root of the number of terms and predictors (Bach 2010, Electronic Journal
    of Statistics 4, proposition 2). On the way to infinity both fall alike, and it never is.

    Parameters
    ----------
    information : ndarray, shape (size, size)
        Positive on the parameters that the states determine, which are taken.
    gradient : ndarray, shape (size,)
    n_terms : int
        Number of predictors and terms.
    """
    from scipy.linalg import lapack

    least = 2.0 * np.sqrt(n_terms) * float(np.linalg.norm(gradient)) + ROUNDING
    return bool(lapack.dpotrf(information - least * np.eye(len(information)), lower=1)[1] == 0)


def rank(information: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a basis of the parameters that a Fisher information (size, size) determines, and the determined ones.

    Returns
    -------
    basis : ndarray of bool, shape (size,)
        As many parameters as the rank, whose indicators are linearly independent; the determined ones are in it.
    determined : ndarray of bool, shape (size,)
        Parameters of which no combination without information holds any share.
    """
    diagonal = information.diagonal()
    informed = diagonal > ZERO_EIGENVALUE
    scale = np.sqrt(np.where(informed, diagonal, 1.0))
    scaled = np.where(np.outer(informed, informed), information / np.outer(scale, scale), 0.0)
    eigenvalues, eigenvectors = eigen.eigenvectors(scaled)
    null = eigenvalues <= ZERO_EIGENVALUE * max(len(scaled), 100)
    determined = informed & ((eigenvectors[:, null] ** 2).sum(axis=1) < ZERO_LOADING)
    basis = determined.copy()
    undetermined = np.flatnonzero(informed & ~determined)
    if len(undetermined):
        from scipy.linalg import qr

        curved = eigenvectors[undetermined][:, ~null] * np.sqrt(eigenvalues[~null])
        _, _, pivots = qr(curved.T, mode="economic", pivoting=True)
        missing = int(len(scaled) - null.sum() - determined.sum())
        basis[undetermined[pivots[:missing]]] = True
    return basis, determined


def holds_absent_level(layout: Layout, counts: list[np.ndarray]) -> np.ndarray:
    """Return which parameters (size,) belong to a level that never occurs, or whose reference level never does."""
    out = np.zeros(layout.size, dtype=bool)
    gone = [(n[1:] == 0) | (n[0] == 0) for n in counts]
    for scope in layout.scopes:
        table = layout.table(out, *scope)
        for axis, i in enumerate(scope):
            table |= gone[i].reshape([-1 if k == axis else 1 for k in range(len(scope))])
    return out


def first_parameters(layout: Layout, chosen: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return, for each predictor with `chosen` parameters (size,), one of them as in `EngineFit.unbounded`."""
    first: dict[int, tuple[int, ...]] = {}
    for scope in layout.scopes:
        table = layout.table(chosen, *scope)
        if not table.any():
            continue
        cell = [int(level) + 1 for level in np.argwhere(table)[0]]
        for axis, i in enumerate(scope):
            if i not in first:
                members = [(i, cell[axis])] + [(j, b) for j, b in zip(scope, cell, strict=True) if j != i]
                first[i] = tuple(value for member in members for value in member)
    return tuple(first[i] for i in sorted(first))
