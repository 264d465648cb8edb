"""Continue a fit without its penalty, and find the parameters that have no finite optimum without
one.

*Site*: the predictor i whose conditional distribution given the others is modelled; the sites are
optimised separately. *Site solution* ``site_theta``, shape (layout.D, 1 + D): row (i, a) holds the
field of level a >= 1 of site i, then its couplings with the D regressor columns, the indicators of
the levels of the other predictors (see `Regressors`). *Field* of a level in a row: its log odds
against level 0, the reference. *Usable* rows of a site: those in which the site and all predictors
that it interacts with are known. ``layout.start`` (m + 1,) holds the first row of each site in
``site_theta``, ``layout.n_levels`` (m,) its number of levels; ``regressors(layout).columns_of(i)``
are the columns that site i uses, the constant first; ``codes(codes)`` adds codes of joint levels,
for terms of three predictors and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.model.layout import Layout
from bbl.model.moments import (
    known_counts,
    level_counts,
    one_hot,
    pair_counts,
    usable_rows,
    usable_weight,
)
from bbl.model.regressors import Regressors, pair_cells, regressors
from bbl.model.site_hessians import Solve, informed, site_hessians, site_scores, solver
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["cell_counts", "cell_sizes", "unbounded_parameters", "unpenalised"]

MAX_NEWTON_STEPS = 16
LONGEST_STEP = 2.0  # largest change of a parameter in a Newton step; longer steps are shortened
# rounds of iterative proportional fitting; expected counts are then right to a percent
FITTING_ROUNDS = 30
# largest change of a parameter in a Newton step after which the Hessian is kept
LONGEST_CHORD_STEP = 0.5
# steps with the same Hessian are shorter by this factor each time, or it is computed again
CHORD_SHRINKING = 10.0
# length of the last step with the same Hessian, as a share of `tol`: they converge linearly
CHORD_TOLERANCE = 1e-4
STEP_TOLERANCE = 1e-6  # a site has converged when a Newton step changes no parameter by more
DIVERGING_STEP = 1e-3  # a parameter that the last Newton step changes by more has no finite optimum
CERTAIN_LOG_ODDS = 10.0  # from these log odds on a level is all but certain in a row
# of `CERTAIN_LOG_ODDS`, to allow for the rounding of log odds in single precision
SINGLE_PRECISION_SHARE = 0.999
CHUNK_ROWS = 1024
SITES_PER_PASS = 16  # sites checked in one pass over the rows
# share of each chunk's rows, those of largest curvature, that the lower bound is the sum of
CURVATURE_ROWS = 0.15
LEAST_CURVATURE = 1e-8  # smaller eigenvalues of the curvature bound may be rounding errors
ROUNDING = 1e-6  # smaller differences of log odds may be rounding errors
# eigenvalue of a Hessian of unit diagonal at which a direction has no information left
NO_INFORMATION = 1e-6


def unpenalised(
    sample: Rows,
    layout: Layout,
    site_theta: np.ndarray,
    sites: np.ndarray | None = None,
    tol: float = STEP_TOLERANCE,
) -> tuple[np.ndarray, np.ndarray]:
    """Continue from a penalised site solution to the optimum without a penalty, by Newton steps
    ``H^-1 score``.

    Separated rows have no finite optimum: the objective rises along a direction without end,
    Hessian and gradient fall at the same rate, and every step in that direction has the same length
    (Albert & Anderson 1984 define the condition). Three kinds of parameters are therefore not
    determined: those that still move when the others have converged; those on which the likelihood
    does not depend, as with two equal columns; and those whose rows all become certain.

    Parameters
    ----------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Site solution to start from.
    sites : ndarray of int, optional
        Sites to optimise; all predictors with more than one level by default.
    tol : float, default 1e-6
        A site has converged when a step changes none of its parameters by more.

    Returns
    -------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Site solution without a penalty; undetermined parameters have their values after the last
        step.
    determined : ndarray of bool, shape (layout.D, 1 + D)
        Whether the rows determine each parameter; False for sites that are not in `sites`.
    """
    site_theta = site_theta.copy()
    columns = regressors(layout).columns
    determined = np.zeros(site_theta.shape, dtype=bool)
    active = np.flatnonzero(layout.n_levels > 1) if sites is None else np.asarray(sites)
    for newton_step in range(MAX_NEWTON_STEPS):
        unconverged = []
        chords = {}
        # (p,) and (p, p), means
        for i, (score, H) in site_hessians(sample, layout, site_theta, active).items():
            site_cells = np.ix_(np.arange(layout.start[i], layout.start[i + 1]), columns[i])
            # is_informed (p,): see `_Chord`; is_regular: H has an inverse
            solve, is_informed, is_regular = solver(H)
            step = solve(score)
            step_size = float(np.abs(step).max())
            is_determined = is_informed & (np.abs(step) < DIVERGING_STEP)
            # all Newton steps are used up: parameters whose information has vanished are not
            # determined either
            if newton_step == MAX_NEWTON_STEPS - 1 and not is_determined.all():
                is_determined &= informed(H, NO_INFORMATION)
            determined[site_cells] = is_determined.reshape(-1, len(columns[i]))
            step *= min(1.0, LONGEST_STEP / step_size if step_size else 1.0)
            site_theta[site_cells] += step.reshape(-1, len(columns[i]))
            if step_size > tol:
                unconverged.append(i)
                if is_regular and step_size <= LONGEST_CHORD_STEP:
                    chords[i] = _Chord(site_cells, solve, is_informed, step_size)
        # sites that converge with the Hessian as it is have no diverging parameters
        for i in _take_chord_steps(sample, layout, site_theta, chords, CHORD_TOLERANCE * tol):
            determined[chords[i].cells] = chords[i].is_informed.reshape(-1, len(columns[i]))
            unconverged.remove(i)
        active = np.array(unconverged, dtype=np.intp)
        if not len(active):
            break
    return site_theta, determined


@dataclass
class _Chord:
    """A site whose next steps are taken with the Hessian of the last Newton step (chord method)."""

    # rows and columns of the site's p parameters in `site_theta`, as from `numpy.ix_`
    cells: tuple[np.ndarray, ...]
    solve: Solve  # from the score (p,) to the step (p,): multiplies by the inverse Hessian
    is_informed: np.ndarray  # (p,): whether the likelihood depends on each parameter
    step_size: float  # largest change of a parameter in the last step


def _take_chord_steps(
    sample: Rows, layout: Layout, site_theta: np.ndarray, chords: dict[int, _Chord], tol: float
) -> list[int]:
    """Take steps with the Hessians of `chords`, in place in `site_theta`, and return the sites that
    converge.

    A site is given up before a step that is not much shorter than the last one: a parameter that
    diverges does so by Newton steps alone.
    """
    shrinking = dict(chords)
    converged = []
    while shrinking:
        for i, score in site_scores(sample, layout, site_theta, list(shrinking)).items():
            chord = shrinking[i]
            step = chord.solve(score)
            step_size = float(np.abs(step).max())
            # nan, too, is given up
            if not step_size <= max(tol, chord.step_size / CHORD_SHRINKING):
                del shrinking[i]
                continue
            chord.step_size = step_size
            site_theta[chord.cells] += step.reshape(chord.cells[0].size, -1)
            if step_size <= tol:
                converged.append(i)
                del shrinking[i]
    return converged


def unbounded_parameters(
    sample: Rows, layout: Layout, site_theta: np.ndarray, max_parameters: int
) -> tuple[tuple[int, ...], ...]:
    """Return one diverging parameter of each site that has any, as tuples like
    `EngineFit.unbounded`.

    A diverging parameter has no finite optimum; the optimiser stopped where the gradient was small.
    A site is checked if it is all but certain in some row and has p < `max_parameters` parameters:
    a Newton step costs p^3. Each tuple holds the site and its level code, then, for a coupling,
    predictor and level code of each other member of its term.
    """
    regs = regressors(layout)
    nearly_certain = [
        i
        for i in _find_nearly_certain_sites(sample, layout, site_theta)
        if (int(layout.n_levels[i]) - 1) * len(regs.columns_of(i)) < max_parameters
    ]
    unproven: list[int] = []
    for first in range(0, len(nearly_certain), SITES_PER_PASS):
        near_optimum = prove_near_optimum(
            sample, layout, site_theta, nearly_certain[first : first + SITES_PER_PASS]
        )
        unproven += [i for i, is_near in near_optimum.items() if not is_near]
    if not unproven:
        return ()
    separated = _find_separated_sites(sample, layout, site_theta, unproven)
    not_separated = np.array([i for i in unproven if i not in separated], dtype=np.intp)
    _, determined = unpenalised(sample, layout, site_theta, not_separated, tol=DIVERGING_STEP)
    unbounded = []
    for i in unproven:
        level_rows = np.arange(layout.start[i], layout.start[i + 1])
        columns = regs.columns_of(i)
        if i in separated:  # all parameters of the site may diverge; report the largest coupling
            abs_theta = np.abs(site_theta[np.ix_(level_rows, columns)])
            # the field only counts if the site has no couplings
            abs_theta[:, 0] *= len(columns) == 1
            row, column = np.unravel_index(abs_theta.argmax(), abs_theta.shape)
            row = level_rows[row]
            column = columns[column]
        else:
            undetermined = [(a, c) for a in level_rows for c in columns if not determined[a, c]]
            is_certain = (  # tested again: `nearly_certain` is in single precision
                undetermined
                and _find_max_abs_fields(sample, layout, site_theta, level_rows) > CERTAIN_LOG_ODDS
            )
            if not np.any(is_certain):  # a list without elements, or one value for each level
                continue
            # the first coupling, or else the first field
            row, column = max(undetermined, key=lambda cell: cell[1] > 0)
        # (predictor, code) pairs; none for a field
        other_members = regs.members(int(column) - 1) if column else []
        unbounded.append(
            (
                i,
                int(row - layout.start[i]) + 1,
                *(code for member in other_members for code in member),
            )
        )
    return tuple(unbounded)


def _find_separated_sites(
    sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Sequence[int]
) -> set[int]:
    """Return the sites whose observed level has the largest field in every row: ``2 * site_theta``
    fits them better.
    """
    regs = regressors(layout)
    separated = set(sites)
    for chunk in sample.blocks(CHUNK_ROWS):
        X = one_hot(regs.codes(chunk.codes), regs)
        usable = usable_rows(chunk, layout)
        for i in sorted(separated):
            site = slice(layout.start[i], layout.start[i + 1])
            field = np.column_stack(
                (np.zeros(chunk.n), X @ site_theta[site, 1:].T + site_theta[site, 0])
            )
            field = field[usable[:, i]]  # (rows, L), with 0 for the reference level
            observed_level = chunk.codes[usable[:, i], i, None].astype(np.intp)
            observed_field = np.take_along_axis(field, observed_level, axis=1)
            np.put_along_axis(field, observed_level, -np.inf, axis=1)
            if (observed_field - field.max(axis=1, keepdims=True) <= ROUNDING).any():
                separated.discard(i)
    return separated


def _find_nearly_certain_sites(sample: Rows, layout: Layout, site_theta: np.ndarray) -> list[int]:
    """Return the sites with a field of at least `CERTAIN_LOG_ODDS` in absolute value in some row,
    up to rounding.

    Bounds come first: a field is at most h plus the largest coupling with each regressor (0 with
    its reference level).
    """
    regs = regressors(layout)
    # first column of each regressor that has columns
    regressor_start = regs.start[:-1][np.diff(regs.start) > 0]
    h = site_theta[:, 0]
    J = site_theta[:, 1:]
    highest = h + np.maximum(np.maximum.reduceat(J, regressor_start, axis=1), 0.0).sum(axis=1)
    lowest = h + np.minimum(np.minimum.reduceat(J, regressor_start, axis=1), 0.0).sum(axis=1)
    threshold = SINGLE_PRECISION_SHARE * CERTAIN_LOG_ODDS
    level_rows = np.flatnonzero(np.maximum(highest, -lowest) > threshold)
    if len(level_rows):
        level_rows = level_rows[
            _find_max_abs_fields(sample, layout, site_theta, level_rows, np.float32) > threshold
        ]
    return np.unique(np.searchsorted(layout.start, level_rows, side="right") - 1).tolist()


def _find_max_abs_fields(
    sample: Rows, layout: Layout, site_theta: np.ndarray, level_rows: np.ndarray, dtype=np.float64
) -> np.ndarray:
    """Return the largest absolute field over all rows of each level (row of `site_theta`) in
    `level_rows`.
    """
    regs = regressors(layout)
    max_abs = np.zeros(len(level_rows))
    h = site_theta[level_rows, 0].astype(dtype)
    J = np.ascontiguousarray(site_theta[level_rows, 1:].T, dtype=dtype)
    for chunk in sample.blocks(CHUNK_ROWS):
        field = one_hot(regs.codes(chunk.codes), regs, dtype) @ J
        field += h
        np.maximum(max_abs, np.maximum(field.max(axis=0), -field.min(axis=0)), out=max_abs)
    return max_abs


def prove_near_optimum(
    sample: Rows, layout: Layout, site_theta: np.ndarray, sites: Sequence[int]
) -> dict[int, bool]:
    """Return, for each site, whether a bound proves that Newton's method converges from
    `site_theta`.

    Let g be the gradient of a site's mean log loss, H its Hessian, M a matrix with ``H >= kron(I,
    M)``, and l the smallest eigenvalue of M. A change v of parameters changes no difference of log
    odds in a row by more than ``r |v| <= r/sqrt(l) |v|_H``, ``r^2 = 2 (1 + neighbours)``, which
    bounds third derivatives by second ones. If ``r/sqrt(l)
    |g|_{M^-1} <= 1/2``, there is one finite optimum, and Newton steps are soon shorter than
    `DIVERGING_STEP` (Bach 2010, Propositions 1 and 2). `neighbours` counts the site's regressors: a
    row's design vector z, a one and an indicator of each, has ``|z|^2 <= 1 + neighbours``, and 2 is
    of two levels. False: the bound proves nothing.
    """
    from scipy.linalg import lapack

    regs = regressors(layout)
    totals = usable_weight(sample, layout)
    # cuts: between sites
    level_rows = layout.columns(sites)
    site_cuts = np.cumsum(layout.n_levels[sites] - 1)[:-1]
    # below, `field` and `indicators` are (levels, rows)
    h = site_theta[level_rows, :1]
    J = site_theta[level_rows, 1:]
    gradient = np.zeros((len(level_rows), 1 + regs.D))
    # `mask`: regressors of i
    bounds = [_CurvatureBound(np.flatnonzero(regs.mask[i]), regs, sample.n) for i in sites]
    is_near = {}
    for chunk in sample.blocks(CHUNK_ROWS):
        codes = regs.codes(chunk.codes)
        usable = usable_rows(chunk, layout)
        X = one_hot(codes, regs)
        # X begins with the D levels of the rows of site_theta
        field = J @ X.T + h
        indicators = X[:, level_rows].T
        site_arrays = zip(
            sites, bounds, np.split(field, site_cuts), np.split(indicators, site_cuts), strict=True
        )
        for i, bound, site_field, observed in site_arrays:
            w = chunk.weights * usable[:, i] / totals[i]
            max_field = np.maximum(site_field.max(axis=0), 0.0)
            p = np.exp(site_field - max_field)
            reference_p = np.exp(-max_field)
            normaliser = reference_p + p.sum(axis=0)
            p /= normaliser
            bound.add(codes, w * (reference_p / normaliser) * p.min(axis=0))
            # `field` now holds the weighted residuals of the site
            np.multiply(p - observed, w, out=site_field)
        gradient[:, 0] += field.sum(axis=1)
        gradient[:, 1:] += field @ X
    for i, bound, site_gradient in zip(sites, bounds, np.split(gradient, site_cuts), strict=True):
        g = site_gradient[:, regs.columns_of(i)].T
        M = bound.matrix()
        cholesky, singular = lapack.dpotrf(M, lower=1)  # `singular`: 0 if M is positive definite
        squared_g_norm = np.inf  # |g|^2 in the norm of M^-1, summed over the levels
        if not singular:
            # where rows are all but certain M is all but zero
            with np.errstate(over="ignore", invalid="ignore"):
                squared_g_norm = float((g * lapack.dpotrs(cholesky, g, lower=1)[0]).sum())
        if squared_g_norm < np.inf:  # l >= 4 r^2 |g|^2: M - 4 r^2 |g|^2 I has a Cholesky factor
            squared_r = 2.0 * (1 + len(bound.neighbours))
            M.flat[:: len(g) + 1] -= max(4.0 * squared_r * squared_g_norm, LEAST_CURVATURE)
            singular = lapack.dpotrf(M, lower=1)[1]
        is_near[i] = squared_g_norm < np.inf and not singular
    return is_near


class _CurvatureBound:
    """The lower bound M of the Hessian of one site in `prove_near_optimum`, summed over chunks of
    rows.

    A row with design vector z (a one, then indicators) and conditional probabilities p contributes
    at least ``c z z'``, ``c = w p_0 min_a p_a``. In each chunk only the rows of largest c count,
    all with the smallest of these: M is a multiple of pair counts. `neighbours`: the site's
    regressors, among `regs`; `n_rows`: the rows of all chunks.
    """

    def __init__(self, neighbours: np.ndarray, regs: Regressors, n_rows: int):
        # for their columns
        self.neighbours = neighbours
        self.layout = Layout(regs.n_levels[neighbours])
        # sums of c over the counted rows, and of c times the products of two indicators
        self._weight, self._pairs = 0.0, np.zeros((self.layout.D, self.layout.D))
        # with few rows, the share is larger: at least four times as many rows as M has columns
        self._share = min(1.0, max(CURVATURE_ROWS, 4.0 * (1 + self.layout.D) / n_rows))

    def add(self, codes: np.ndarray, row_curvatures: np.ndarray) -> None:
        """Add a chunk of rows: codes (n, regressors) of all regressors, and the c of each row
        (n,).
        """
        n_dropped = int((1.0 - self._share) * len(row_curvatures))
        largest_rows = np.argpartition(row_curvatures, n_dropped)[n_dropped:]
        # `argpartition` puts the least of them first
        least_curvature = float(row_curvatures[largest_rows[0]])
        neighbour_codes = codes[largest_rows].take(self.neighbours, axis=1)
        # adds to `_pairs`
        kernel.shared_counts(neighbour_codes, self.layout.start, self._pairs, least_curvature)
        self._weight += least_curvature * len(largest_rows)

    def matrix(self) -> np.ndarray:
        """Return M, shape (1 + D, 1 + D) for the D columns of the neighbours; the constant is
        first.
        """
        level_sums = self._pairs.diagonal()
        return np.block(
            [[np.array([[self._weight]]), level_sums[None]], [level_sums[:, None], self._pairs]]
        )


def cell_counts(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the weights of the four cells of rows that each pair coupling compares, shape (2, 2,
    couplings).

    For ``J_ij(a, b)``: rows with i at its reference level or at a (first axis), j at its reference
    level or at b (second axis), both known. If one of the four is zero, the coupling has no finite
    value without a penalty.
    """
    predictor_of_column = np.repeat(np.arange(layout.m), np.diff(layout.start))
    # columns of the levels a and b of each coupling, among the D
    column_i, column_j = pair_cells(layout)
    i = predictor_of_column[column_i]
    j = predictor_of_column[column_j]
    pair_weight = pair_counts(sample, layout)
    is_level_of = (predictor_of_column[:, None] == np.arange(layout.m)).astype(float)
    # (D, m): rows with this level and any level >= 1 of the other
    level_nonref = pair_weight @ is_level_of
    # both_known (m, m): rows with both known; level_known (D, m): rows with this level, the other
    # known
    if sample.missing is None:
        both_known = np.full((layout.m, layout.m), sample.total)
        level_known = np.concatenate(
            [np.empty(0), *(n[1:] for n in level_counts(sample, layout.n_levels))]
        )[:, None]
        level_known = level_known.repeat(layout.m, 1)
    else:
        both_known, level_known = known_counts(sample, layout)
    both_nonref = is_level_of.T @ level_nonref  # (m, m): rows with any level >= 1 of both
    # (m, m): rows with any level >= 1 of the one, the other known
    nonref_known = is_level_of.T @ level_known
    cell_weights = np.empty((2, 2, len(column_i)))
    cell_weights[1, 1] = pair_weight[column_i, column_j]
    cell_weights[1, 0] = level_known[column_i, j] - level_nonref[column_i, j]
    cell_weights[0, 1] = level_known[column_j, i] - level_nonref[column_j, i]
    cell_weights[0, 0] = (
        both_known[i, j] - nonref_known[i, j] - nonref_known[j, i] + both_nonref[i, j]
    )
    if not sample.whole:
        # differences of real-valued weights leave rounding errors in empty cells; counts do not
        has_weight = replace(sample, weights=(sample.weights > 0.0).astype(float))
        cell_weights[cell_counts(has_weight, layout) == 0.0] = 0.0
    return cell_weights


def cell_sizes(sample: Sample, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest expected count of the cells that each coupling compares, and whether a
    cell is empty.

    A coupling of k predictors compares ``2^k`` cells: each of the k predictors is at its reference
    level or at the coupling's level, and further predictors that share a higher term with all k are
    at their reference level. The expected count of a cell is that of the model without this
    coupling but with all couplings of fewer predictors. If a cell is empty, the coupling has no
    finite value without a penalty. Both arrays are (layout.size - layout.D,).
    """
    if layout.order <= 2:
        weights = cell_counts(sample, layout)
        # expected counts are products of margins over the total; the smallest has the smallest
        # margins
        margins = np.minimum(*weights.sum(axis=0)), np.minimum(*weights.sum(axis=1))
        total = np.maximum(weights.sum(axis=(0, 1)), 1.0)
        return margins[0] * margins[1] / total, (weights == 0).any(axis=(0, 1))
    expected = []
    absent = []
    # the predictors of each term; the first m scopes are of fields
    for scope in layout.scopes[layout.m :]:
        weights = _count_compared_cells(sample, layout, scope)
        is_compared = np.ones(weights.shape[:-1], dtype=bool)  # (2, ..., 2): the cells that count
        if not all(
            layout.index(*sub_scope) >= 0
            for k in range(2, len(scope))
            for sub_scope in combinations(scope, k)
        ):
            # if a subset has no term, the coupling is no contrast of all 2^k cells: what counts is
            # its own cell and its neighbours, in which one predictor is at its reference level
            is_compared = np.sum(np.indices(is_compared.shape), axis=0) >= len(scope) - 1
        absent.append((weights[is_compared] == 0).any(axis=0))
        expected.append(_fit_without_highest_term(weights)[is_compared].min(axis=0))
    return np.concatenate(expected), np.concatenate(absent)


def _count_compared_cells(sample: Sample, layout: Layout, scope: tuple[int, ...]) -> np.ndarray:
    """Return the weights (2, ..., 2, couplings) of the cells that the couplings of the term `scope`
    compare.

    Index 0 of an axis is the reference level of that predictor, index 1 the coupling's level (see
    `cell_sizes`).
    """
    # other members of the higher terms that hold the whole scope
    neighbours = layout.beside(*scope)
    in_rows = (sample.codes[:, neighbours] == 0).all(axis=1)
    if sample.missing is not None:
        in_rows &= ~sample.missing[:, [*scope, *neighbours]].any(axis=1)
    shape = tuple(int(L) for L in layout.n_levels[list(scope)])
    joint_level = np.ravel_multi_index(
        tuple(sample.codes[in_rows][:, scope].T.astype(np.intp)), shape
    )
    weights = np.bincount(joint_level, sample.weights[in_rows], int(np.prod(shape))).reshape(shape)
    # for each predictor, the last first: compare its reference level with each other level on a new
    # axis in front
    axis = len(scope) - 1  # of the last predictor; the new axis moves the one before it there
    for _ in scope:
        at_level = np.delete(weights, 0, axis=axis)
        at_reference = np.repeat(np.take(weights, [0], axis=axis), at_level.shape[axis], axis=axis)
        weights = np.stack([at_reference, at_level])
    return weights.reshape((2,) * len(scope) + (-1,))


def _fit_without_highest_term(observed: np.ndarray) -> np.ndarray:
    """Return the counts (2, ..., 2, couplings) that are expected without the highest-order term,
    given the observed.

    Iterative proportional fitting to the observed margins, each summed over one axis; one round is
    exact for two axes.
    """
    fitted = np.ones(observed.shape)
    n_axes = observed.ndim - 1
    for _ in range(1 if n_axes == 2 else FITTING_ROUNDS):
        for axis in range(n_axes):
            fitted_margin = fitted.sum(axis=axis, keepdims=True)
            fitted *= observed.sum(axis=axis, keepdims=True) / np.where(
                fitted_margin > 0, fitted_margin, 1.0
            )
    return fitted
