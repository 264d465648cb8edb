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

from bbl.engines.likelihood.contrasts import add_parameters
from bbl.engines.likelihood.states import StateTable
from bbl.model.godambe import ZERO_EIGENVALUE, ZERO_LOADING
from bbl.model.layout import Layout

__all__ = ["Face", "facial_set", "is_certain", "rank", "step_down", "zero_margins"]

MAX_PROGRAMME_CELLS = 2**21  # states times parameters; larger tables have only their zero margins found
ROUNDING = 1e-13  # least eigenvalue of an information that is not rounding
OFF_FACE = 0.5  # the programme ends at 1 for states that lose their probability and at 0 for the others


class Face(NamedTuple):
    """The states that keep a probability at the maximum.

    Attributes
    ----------
    support : ndarray of bool, shape (n,), or None
        The facial set; None for all states.
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
    empty = np.flatnonzero(counts == 0.0)
    nowhere = Face(None, np.zeros(size))
    if not len(empty) or not free.any():
        return nowhere
    if table.n * size > MAX_PROGRAMME_CELLS:
        return zero_margins(table, counts, free)
    from scipy import sparse
    from scipy.optimize import linprog

    design = _indicators(table, free)
    k = len(empty)
    on_empty = sparse.hstack([design[empty], sparse.identity(k, format="csr")], format="csr")
    observed = np.flatnonzero(counts)
    on_observed = sparse.hstack([design[observed], sparse.csr_matrix((len(observed), k))], format="csr")
    width = design.shape[1]
    objective = np.concatenate([np.zeros(width), -np.ones(k)])
    result = linprog(
        objective,
        A_ub=on_empty,
        b_ub=np.zeros(k),
        A_eq=on_observed,
        b_eq=np.zeros(len(observed)),
        bounds=[(None, None)] * width + [(0.0, 1.0)] * k,
        method="highs",
    )
    if result.status != 0:
        return zero_margins(table, counts, free)
    off = result.x[width:] > OFF_FACE
    if not off.any():
        return nowhere
    support = np.ones(table.n, dtype=bool)
    support[empty[off]] = False
    direction = np.zeros(size)
    direction[free] = result.x[1:width]
    return Face(support, direction)


def _indicators(table: StateTable, free: np.ndarray):
    """Return a constant and the indicators of the free parameters in all states, a sparse matrix (n, 1 + free)."""
    from scipy import sparse

    return sparse.csr_matrix(np.column_stack([np.ones(table.n), table.indicators()[:, free]]))


def zero_margins(table: StateTable, counts: np.ndarray, free: np.ndarray) -> Face:
    """Return the face of the margins of zero: states that hold a combination of levels that never occurs."""
    layout = table.layout
    support, direction = np.ones(table.shape, dtype=bool), np.zeros(layout.size)
    observed = counts.reshape(table.shape)
    for scope in layout.scopes:
        margin = observed.sum(axis=tuple(i for i in range(layout.m) if i not in scope), keepdims=True)
        step = step_down(layout, scope, margin.squeeze(tuple(i for i in range(layout.m) if i not in scope)) == 0.0)
        if step is not None and free[step != 0.0].all():
            support &= margin > 0.0
            direction += step
    return Face(None if support.all() else support.ravel(), direction)


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
    eigenvalues, eigenvectors = np.linalg.eigh(scaled)
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
