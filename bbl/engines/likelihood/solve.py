"""Exact maximum likelihood by a closed form, a table of all states, or a junction tree."""

# The components of a model, which do not interact, are fitted separately. If the likelihood
# increases indefinitely, the maximum is only approached in the limit along a *direction of
# recession*, where only the states of a *face* keep a positive probability (see
# `bbl.engines.likelihood.existence`).

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.engines.likelihood.existence import (
    Face,
    facial_set,
    is_certain,
    rank,
    step_down,
    zero_margins,
)
from bbl.engines.likelihood.gaps import IncompleteLikelihood, missing_patterns
from bbl.engines.likelihood.newton import Maximum, StateLikelihood, maximise
from bbl.engines.likelihood.quasi_newton import minimise
from bbl.engines.likelihood.scored import ScoredStates, ScoredTree, tied_parameters
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import (
    Component,
    JunctionTree,
    TreeLikelihood,
    clique_scopes,
    components,
    perfect_order,
)
from bbl.model.elimination import elimination_order
from bbl.model.layout import Layout
from bbl.model.scores import is_scored
from bbl.parallel import serial_blas
from bbl.rows.sample import Rows, Sample

__all__ = [
    "MAX_CELLS",
    "MAX_INFORMATION_SIZE",
    "MAX_NEWTON_SIZE",
    "MAX_STATES",
    "Penalty",
    "Solution",
    "Solver",
    "least_width",
    "n_states",
    "tree_cells",
    "tree_order",
]

MAX_STATES = 2**16  # maximum number of states for sums over a table of all states
MAX_NEWTON_SIZE = 600  # maximum number of parameters for Newton's method
# maximum number of parameters for finding the rank of their information
MAX_INFORMATION_SIZE = 1500
MAX_CELLS = 2.0**24  # maximum number of cells of all cliques of a junction tree
OFF_FACE_LOG = 40.0  # states off the face are given a probability of at most exp(-40)
NO_PROBABILITY = 1e-16  # cells of a junction tree with a probability below this never occur
# gradient norm to aim for, relative to the frequency of the rarest state
AIM_OF_RAREST = 1e-6
MAX_TRIAL_STEPS = 15  # Newton steps before the search for a facial set
MAX_PUSHES = 12  # number of times a step along a direction of recession is doubled


@dataclass(frozen=True)
class Penalty:
    """Terms added to the mean log-likelihood.

    Attributes
    ----------
    ridge : ndarray, shape (size,)
        L2 penalties. Half the sum of ``ridge theta^2`` is subtracted.
    prior_count : float
        Number of rows spread evenly over all possible states.
    """

    ridge: np.ndarray
    prior_count: float

    @property
    def is_zero(self) -> bool:
        """Whether both the penalty and the prior count are zero."""
        return not self.prior_count and not self.ridge.any()


@dataclass(frozen=True)
class Solution:
    """The maximum of the likelihood of one group.

    Attributes
    ----------
    theta : ndarray, shape (size,)
        The maximum. If the maximum is only approached in a limit, this is a point at which each
        state off the face has a probability below 1e-16.
    value : float
        Mean log-likelihood of the rows minus the penalty.
    norm : float
        Norm of the gradient.
    n_iter : int
        Number of steps; 0 for the closed form.
    determined : ndarray of bool, shape (size,)
        Parameters with a finite and unique value at the maximum.
    basis : ndarray of bool, shape (size,)
        A subset of the parameters. Their number equals the degrees of freedom on the states with
        positive probability; see `rank`.
    """

    theta: np.ndarray
    value: float
    norm: float
    n_iter: int
    determined: np.ndarray
    basis: np.ndarray


def n_states(layout: Layout) -> float:
    """Return the number of joint states of all predictors."""
    with np.errstate(over="ignore"):
        return float(np.prod(layout.n_levels.astype(float)))


def tree_order(layout: Layout) -> list[int] | None:
    """Return an elimination order of the predictors with at most MAX_CELLS cells in total.

    The result is None if no such order was found.
    """
    # if all pairs interact, all predictors are in one clique
    if layout.complete and n_states(layout) > MAX_CELLS:
        return None
    order = perfect_order(layout)
    if order is None:
        elimination = elimination_order(layout.n_levels, layout.mask, MAX_CELLS)
        return None if elimination is None else elimination[0]  # [1]: the number of cells
    return order if _n_cells(layout, order) <= MAX_CELLS else None


def tree_cells(layout: Layout) -> float:
    """Return the total number of cells in the junction tree, or infinity if there are too many."""
    order = tree_order(layout)
    return np.inf if order is None else _n_cells(layout, order)


def _n_cells(layout: Layout, order: list[int]) -> float:
    """Return the number of cells of all cliques for this elimination order.

    The result does not overflow even if it is very large.
    """
    log_L = np.log(layout.n_levels)
    return float(
        np.exp(
            [min(log_L[list(scope)].sum(), 700.0) for scope in clique_scopes(layout, order)]
        ).sum()
    )


def least_width(layout: Layout) -> int:
    """Return a lower bound on the number of predictors in the largest clique of any junction tree.

    The bound is the degeneracy of the interaction graph plus 1. The degeneracy is computed by
    removing one predictor after the other, always one with the fewest remaining partners. It is the
    largest number of partners that a predictor has when it is removed.
    """
    mask = layout.mask.astype(np.intp)
    degree = mask.sum(axis=1)
    remaining = np.ones(layout.m, dtype=bool)
    width = 0
    for _ in range(layout.m):
        i = int(np.argmin(np.where(remaining, degree, layout.m)))
        width = max(width, int(degree[i]))
        remaining[i] = False
        degree = degree - mask[i]
    return width + 1


class Solver:
    """Exact maximum likelihood fits of models with the same layout.

    Parameters
    ----------
    layout : Layout
    tolerance : float
        Gradient norm of the mean log-likelihood at which a fit stops.
    itmax : int
        Maximum number of steps of Newton's method. L-BFGS may take ten times as many.
    """

    def __init__(self, layout: Layout, tolerance: float, itmax: int):
        self.layout = layout
        self.tolerance = tolerance
        self.itmax = itmax

    def fit(self, rows: Rows, penalty: Penalty, start: np.ndarray | None = None) -> Solution:
        """Fit the rows of one group, one component at a time.

        A component with missing values requires a table of all of its states. The iteration starts
        at `start` (size,). By default, it starts at the fields of independent predictors.
        """
        theta = np.zeros(self.layout.size)
        (determined, basis) = np.ones((2, self.layout.size), dtype=bool)
        value = 0.0
        norm = 0.0
        n_iter = 0
        with serial_blas():
            for component in components(self.layout):
                part_penalty = Penalty(penalty.ridge[component.positions], penalty.prior_count)
                part_start = None if start is None else start[component.positions]
                fit = self._fit_part(component, rows, part_penalty, part_start)
                theta[component.positions] = fit.theta
                determined[component.positions] = fit.determined
                basis[component.positions] = fit.basis
                value = value + fit.value
                norm = float(np.hypot(norm, fit.norm))
                n_iter = max(n_iter, fit.n_iter)
        return Solution(theta, value, norm, n_iter, determined, basis)

    def _fit_part(
        self, component: Component, rows: Rows, penalty: Penalty, start: np.ndarray | None
    ) -> Solution:
        """Fit a component from `start` (size,), using the first applicable method.

        `size` is the number of parameters of the component.
        """
        shared = tied_parameters(component.layout)
        if shared is None:
            return self._fit_free(component, rows, penalty, start)
        # in the free parameters
        solution = self._fit_free(
            component,
            rows,
            Penalty(shared.ridge(penalty.ridge), penalty.prior_count),
            None if start is None else shared.restrict(start),
        )
        return replace(
            solution,
            theta=shared.expand(solution.theta),
            determined=solution.determined[shared.index],
            basis=shared.firsts(solution.basis),
        )

    def _fit_free(
        self, component: Component, rows: Rows, penalty: Penalty, start: np.ndarray | None
    ) -> Solution:
        """Fit the free parameters of a component.

        Here and in the methods below, `size` is the number of free parameters, which is smaller
        than the number of parameters if some of them are shared.
        """
        if rows.in_memory:  # from here on, the rows contain only the component's columns
            rows = component.columns(cast(Sample, rows))
            component = component._replace(predictors=np.arange(component.layout.m))
        if not rows.complete:
            return self._fit_incomplete(component, rows, penalty, start)
        # structural zeros with too many states were refused earlier
        has_zeros = component.layout.support is not None
        has_closed_form = (
            penalty.is_zero and not has_zeros and tied_parameters(component.layout) is None
        )
        order = perfect_order(component.layout) if has_closed_form else None
        if order is not None:
            solution = self._fit_closed(component, rows, order)
            if solution is not None:
                return solution
        if n_states(component.layout) > MAX_STATES:
            return self._fit_tree(component, rows, penalty, start)
        return self._fit_states(component, rows, penalty, start)

    def _fit_closed(self, component: Component, rows: Rows, order: list[int]) -> Solution | None:
        """Fit a decomposable model from the frequencies of its cliques.

        The result is None if a required term is not in the model, or if a cell is empty.
        """
        if any(
            len(s) > 1 and component.layout.index(*s) < 0
            for s in clique_scopes(component.layout, order)
        ):
            return None
        tree = JunctionTree(component.layout, order)
        counts = _sum_rows(component, rows, ("cliques", tuple(order)), tree.counts)
        closed_form = tree.closed_form(counts)
        if closed_form is None:
            return None
        theta, log_likelihood = closed_form
        all_parameters = np.ones(component.layout.size, dtype=bool)
        # 0: the gradient is zero, up to rounding
        return Solution(theta, log_likelihood / rows.total, 0.0, 0, all_parameters, all_parameters)

    def _fit_states(
        self, component: Component, rows: Rows, penalty: Penalty, start: np.ndarray | None
    ) -> Solution:
        """Fit a component on a table of all states.

        The fit uses Newton's method or, with many parameters, L-BFGS. The fit is first restricted
        to the face determined by zero margins. If the result of Newton's method does not prove that
        this face is correct, the fit is repeated on the facial set. L-BFGS cannot provide such a
        proof, so its first face is kept.
        """
        table = _state_table(component.layout)
        counts = _sum_rows(component, rows, "states", table.counts) + table.spread(
            penalty.prior_count
        )
        target = table.moments(counts / counts.sum())
        free = penalty.ridge == 0.0
        start = _independent_start(component.layout, target) if start is None else start
        face = zero_margins(table, counts, free)
        basis, determined = _rank_on_face(table, face, penalty)
        objective = StateLikelihood(table, target, penalty.ridge, face.support, basis)
        if table.size > MAX_NEWTON_SIZE:
            maximum = self._climb(
                objective.value, objective.gradient, start, target, counts.sum(), penalty.ridge
            )
            return Solution(*_push_to_face(table, maximum, face), determined, basis)
        aim = AIM_OF_RAREST * float(counts[counts > 0.0].min() / counts.sum())
        maximum = maximise(objective, start, self.tolerance, MAX_TRIAL_STEPS, aim)
        information = objective.curvatures()[0][np.ix_(basis, basis)]
        if not is_certain(information, objective.gradient()[basis], len(component.layout.scopes)):
            face = facial_set(table, counts, free)
            basis, determined = _rank_on_face(table, face, penalty)
            objective = StateLikelihood(table, target, penalty.ridge, face.support, basis)
            maximum = maximise(objective, start, self.tolerance, self.itmax, aim)
        elif maximum.n_iter == MAX_TRIAL_STEPS:  # sufficient for the proof, but not for `tolerance`
            further = maximise(objective, maximum.theta, self.tolerance, self.itmax, aim)
            maximum = further._replace(n_iter=maximum.n_iter + further.n_iter)
        # `*` unpacks the four fields of a `Maximum`
        return Solution(*_push_to_face(table, maximum, face), determined, basis)

    def _fit_incomplete(
        self, component: Component, rows: Rows, penalty: Penalty, start: np.ndarray | None
    ) -> Solution:
        """Fit rows with missing values on a table of all states, by Newton's method.

        The first fit is on the facial set of all states that are compatible with a row. States with
        negligible probability are then treated as empty, and the fit is repeated if this reduces
        the facial set.
        """
        table = _state_table(component.layout)
        prior_counts = table.spread(penalty.prior_count)
        patterns = missing_patterns(table, component, rows)
        objective = IncompleteLikelihood(table, patterns, prior_counts, penalty.ridge)
        face = facial_set(table, objective.compatible_states().astype(float), penalty.ridge == 0.0)
        objective.support = face.support
        if start is None:
            even_p = objective.evenly_spread_counts() / max(objective.total, 1.0)
            start = _independent_start(component.layout, table.moments(even_p))
        if not objective.total:  # all values of these predictors are missing
            none = np.zeros(len(start), dtype=bool)
            return Solution(0.0 * start, value=0.0, norm=0.0, n_iter=0, determined=none, basis=none)
        maximum = maximise(objective, start, self.tolerance, self.itmax)
        limit_face = facial_set(table, objective.counts_without_negligible(), penalty.ridge == 0.0)
        # a < b for two masks: in b but not in a
        if limit_face.support is not None and (
            face.support is None or (limit_face.support < face.support).any()
        ):
            face = limit_face
            objective.support = limit_face.support
            on_face = maximise(objective, maximum.theta, self.tolerance, self.itmax)
            maximum = on_face._replace(n_iter=maximum.n_iter + on_face.n_iter)
        # sets the probabilities and the moments that `curvatures` uses
        objective.value(maximum.theta)
        objective.gradient()
        # from the information, as no row may be informative about an interaction
        basis, determined = rank(objective.curvatures()[0])
        # `value` is a mean over the rows with observed values
        known_share = objective.total / (rows.total + penalty.prior_count)
        maximum = _push_to_face(table, maximum._replace(value=known_share * maximum.value), face)
        # from the face, for all rows: parameters with finite values
        _, determined_on_face = _rank_on_face(table, face, penalty)
        return Solution(*maximum, determined & determined_on_face, basis)

    def _fit_tree(
        self, component: Component, rows: Rows, penalty: Penalty, start: np.ndarray | None
    ) -> Solution:
        """Fit a component on a junction tree by L-BFGS."""
        order = tree_order(component.layout)
        assert order is not None  # noqa: S101  # the engine has refused models without one
        shared = tied_parameters(component.layout)
        tree = (
            JunctionTree(component.layout, order)
            if shared is None
            else ScoredTree(component.layout, order, shared)
        )
        ridge = penalty.ridge
        total = rows.total + penalty.prior_count
        counts = _sum_rows(component, rows, ("cliques", tuple(order)), tree.counts) + tree.spread(
            penalty.prior_count
        )
        free = ridge == 0.0
        log_support, direction = _find_tree_face(
            tree, counts, free if shared is None else free[shared.index]
        )
        if shared is not None:  # it is zero in tables that share parameters
            direction = direction[shared.first]
        target = tree.moments_of(counts / total)
        objective = TreeLikelihood(tree, target, ridge, log_support)
        start = _independent_start(component.layout, target) if start is None else start
        maximum = self._climb(objective.value, objective.gradient, start, target, total, ridge)
        all_parameters = np.ones(len(ridge), dtype=bool)
        if log_support is None:
            return Solution(*maximum, all_parameters, all_parameters)
        basis = determined = direction == 0.0  # if there are too many parameters to find a rank
        if len(ridge) <= MAX_INFORMATION_SIZE:
            # parameters identified by equally probable states of the support; adding one makes
            # every penalised parameter determined
            even_information = tree.information(tree.margins(np.zeros(len(ridge)), log_support))
            basis, determined = rank(even_information + np.diag((ridge > 0.0).astype(float)))
        theta = _push_on_tree(tree, maximum.theta, direction, log_support)
        return Solution(theta, maximum.value, maximum.norm, maximum.n_iter, determined, basis)

    def _climb(
        self,
        value: Callable[[np.ndarray], float],
        gradient: Callable[[], np.ndarray],
        start: np.ndarray,
        target: np.ndarray,
        total: float,
        ridge: np.ndarray,
    ) -> Maximum:
        """Maximise an objective by L-BFGS, from `start` (size,).

        `gradient` is evaluated at the most recent argument of `value`. `target` (size,) contains
        the observed moments, `total` is the total weight of the rows, and `ridge` (size,) contains
        the penalties.
        """

        def descent(theta: np.ndarray) -> np.ndarray:  # minus the gradient (size,) at `theta`
            value(theta)
            return -gradient()

        # If a moment is small in the rows but not at the start, use the curvature at the start:
        # with the curvature of the rows, the first step would be too long to be corrected later.
        # `expected` are the moments mu at the start, since descent is mu - target + ridge theta.
        expected = target + descent(start) - ridge * start
        variance = np.maximum(target * (1.0 - target), expected * (1.0 - expected))
        # 1 / total: the curvature of a moment that occurs in a single row
        inverse_curvature = 1.0 / np.maximum(variance + ridge, 1.0 / total)
        minimum = minimise(descent, start, inverse_curvature, self.tolerance, 10 * self.itmax)
        return Maximum(minimum.theta, value(minimum.theta), minimum.norm, minimum.n_iter)


def _sum_rows(
    component: Component, rows: Rows, name: Hashable, function: Callable[[Sample], np.ndarray]
) -> np.ndarray:
    """Return the sum of ``function(columns of the component)`` over all blocks of rows.

    Rows in memory contain only the component's columns. For rows in a file, `pooled` caches the sum
    under `name`, which identifies `function`.
    """
    if rows.in_memory:
        return function(cast(Sample, rows))
    key = (name, tuple(component.predictors.tolist()))
    return rows.pooled.sums(key, lambda chunk: function(component.columns(chunk)))


def _state_table(layout: Layout) -> StateTable:
    """Return the table of states for the free parameters of a layout."""
    shared = tied_parameters(layout)
    return StateTable(layout) if shared is None else ScoredStates(layout, shared)


def _independent_start(layout: Layout, target: np.ndarray) -> np.ndarray:
    """Return the parameters (size,) of independent predictors with moments `target` (size,).

    Moments of fields come first. Moments below 0.001 are replaced by 0.001.
    """
    theta = np.zeros(len(target))
    for i in range(layout.m):
        level_shares = layout.table(target, i)
        reference_share = max(1.0 - float(level_shares.sum()), 1e-3)
        layout.table(theta, i)[...] = np.log(np.maximum(level_shares, 1e-3) / reference_share)
    return theta


def _rank_on_face(table: StateTable, face: Face, penalty: Penalty) -> tuple[np.ndarray, np.ndarray]:
    """Return a basis of the parameters identified on a face, and the determined parameters.

    Both masks are defined in the same way as in `rank`. With more than MAX_INFORMATION_SIZE
    parameters, both contain the parameters that do not change along the direction of recession.
    """
    support = table.possible if face.support is None else face.support
    if support is None:
        return (np.ones(table.size, dtype=bool),) * 2
    if table.size > MAX_INFORMATION_SIZE:
        return (face.direction == 0.0,) * 2
    # equal probabilities; the ones added below make penalised parameters determined
    even_p = support / support.sum()
    return rank(
        table.covariances(even_p, table.moments(even_p))
        + np.diag((penalty.ridge > 0.0).astype(float))
    )


def _push_to_face(table: StateTable, maximum: Maximum, face: Face) -> Maximum:
    """Move the maximum along a direction of recession until only states on the face are probable.

    ``face.support`` (n,) is a mask of the states on the face, or None if all states are on the
    face. ``face.direction`` (size,) is the direction.
    """
    if face.support is None:
        return maximum
    lost = ~face.support if table.possible is None else table.possible & ~face.support
    direction_energy = table.energies(face.direction)
    # (n_lost,): decrease of each lost state's energy per unit step, relative to the face (argmax:
    # one of its states)
    drop = direction_energy[np.argmax(face.support)] - direction_energy[lost]
    log_z, _ = table.log_partition(maximum.theta, face.support)
    # excess of the lost states' log-probabilities over the bound
    excess = table.energies(maximum.theta)[lost] - log_z + OFF_FACE_LOG
    return maximum._replace(
        theta=maximum.theta + max(float((excess / drop).max()), 0.0) * face.direction
    )


def _find_tree_face(
    tree: JunctionTree, counts: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Find the face determined by zero margins of terms, and its direction of recession (size,).

    The face is an array (n_cells,) with 0 in cells that have positive probability and -inf in the
    others, or None if all cells have positive probability. `counts` (n_cells,) contains the
    observed counts, and `free` (size,) marks the parameters without a penalty.
    """
    layout = tree.layout
    direction = np.zeros(tree.layout.size)
    support = np.ones(tree.n_cells, dtype=bool)
    for scope, clique_number in zip(layout.scopes, tree.clique_of_term.tolist(), strict=True):
        if len(scope) > 1 and is_scored(layout, scope):  # its parameters are not a table
            continue
        clique = tree.cliques[clique_number]
        outside = tuple(axis for axis, i in enumerate(clique.scope) if i not in scope)
        margin = counts[clique.cells].reshape(clique.shape).sum(axis=outside, keepdims=True)
        # axes of the margin, in the order of the clique
        margin_scope = [i for i in clique.scope if i in scope]
        is_empty = margin.squeeze(outside) == 0.0
        margin_direction = step_down(
            layout, scope, is_empty.transpose([margin_scope.index(i) for i in scope])
        )
        if margin_direction is not None and free[margin_direction != 0.0].all():
            support[clique.cells] &= np.broadcast_to(margin > 0.0, clique.shape).ravel()
            direction += margin_direction
    if support.all():
        return None, direction
    return np.where(support, 0.0, -np.inf), direction


def _push_on_tree(
    tree: JunctionTree, theta: np.ndarray, direction: np.ndarray, log_support: np.ndarray
) -> np.ndarray:
    """Move `theta` along `direction` until the probability of cells outside the support vanishes.

    `log_support` (n_cells,) is -inf in these cells.
    """
    length = OFF_FACE_LOG
    for _ in range(MAX_PUSHES):
        pushed = theta + length * direction  # `joint` below: the probabilities (n_cells,) of cells
        if tree.margins(pushed).joint[np.isneginf(log_support)].max() < NO_PROBABILITY:
            break
        length *= 2.0
    return pushed
