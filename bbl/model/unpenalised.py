"""Unpenalised estimates computed from a penalised fit, and parameters without a finite estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.model.layout import Layout
from bbl.model.moments import (
    known_counts,
    one_hot,
    pair_counts,
    usable_rows,
    usable_weight,
)
from bbl.model.regressors import Regressors, pair_cells, regressors
from bbl.model.scored_sites import ScoredPenalty, fit_scored_sites
from bbl.model.site_hessians import Solve, informed, site_hessians, site_scores, solver
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["cell_counts", "cell_sizes", "unbounded_parameters", "unpenalised"]

MAX_NEWTON_STEPS = 16  # maximum number of Newton steps of a site
LONGEST_STEP = 2.0  # largest change of a parameter in a Newton step; longer steps are shortened
# rounds of iterative proportional fitting; expected counts are then accurate to one percent
FITTING_ROUNDS = 30
# the Hessian is reused after a Newton step that changes no parameter by more than this
LONGEST_CHORD_STEP = 0.5
# each step with the same Hessian must be shorter than the last by this factor; otherwise the
# Hessian is updated
CHORD_SHRINKING = 10.0
# length of the last step with the same Hessian, relative to `tol`: these steps converge linearly
CHORD_TOLERANCE = 1e-4
# a site has converged if a Newton step changes no parameter by more than this
STEP_TOLERANCE = 1e-6
# a parameter that changes by more in the last Newton step has no finite optimum
DIVERGING_STEP = 1e-3
SCORED_TOLERANCE = 1e-10  # gradient norm at which a site with scores has converged
MAX_SCORED_STEPS = 50  # maximum number of Newton steps of a site with scores
CERTAIN_LOG_ODDS = 10.0  # log odds at which a level is treated as almost certain in a row
# multiplies `CERTAIN_LOG_ODDS` to allow for the rounding of log odds in single precision
SINGLE_PRECISION_SHARE = 0.999
CHUNK_ROWS = 1024  # rows of a chunk
SITES_PER_PASS = 16  # sites checked per pass over the rows
# proportion of each chunk's rows, those with the largest curvature, used in the lower bound
CURVATURE_ROWS = 0.15
LEAST_CURVATURE = 1e-8  # smaller eigenvalues of the curvature bound may be rounding errors
ROUNDING = 1e-6  # smaller differences of log odds may be rounding errors
# eigenvalue of a Hessian scaled to unit diagonal below which a direction has no information
NO_INFORMATION = 1e-6


def unpenalised(
    sample: Rows,
    layout: Layout,
    site_theta: np.ndarray,
    sites: np.ndarray | None = None,
    tol: float = STEP_TOLERANCE,
) -> tuple[np.ndarray, np.ndarray]:
    """Continue from a penalised site solution to the unpenalised optimum by Newton steps ``H^-1
    score``.

    If the rows are separated, the optimum is not finite: the likelihood increases in some direction
    without bound, the Hessian and the gradient decrease at the same rate, and all steps in that
    direction have the same length (see Albert & Anderson 1984 for the condition). Three kinds of
    parameters are therefore undetermined: parameters that still change when the others have
    converged; parameters with no effect on the likelihood, for example if two columns are
    identical; and parameters for which all conditional probabilities approach 0 or 1.

    Parameters
    ----------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Site solution to start from.
    sites : ndarray of int, optional
        Sites to optimise; by default, all predictors with more than one level.
    tol : float, default 1e-6
        A site has converged if a step changes none of its parameters by more than `tol`.

    Returns
    -------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unpenalised site solution; undetermined parameters have the values of the last step.
    determined : ndarray of bool, shape (layout.D, 1 + D)
        Whether each parameter is determined by the rows; False for sites not in `sites`.
    """
    if layout.scores is not None:
        scored = fit_scored_sites(
            sample,
            layout,
            site_theta,
            ScoredPenalty(),
            tolerance=SCORED_TOLERANCE,
            itmax=MAX_SCORED_STEPS,
            floor=SCORED_TOLERANCE,
            sites=sites,
        )
        return scored.site_theta, scored.determined
    site_theta = site_theta.copy()
    columns = regressors(layout).columns
    determined = np.zeros(site_theta.shape, dtype=bool)
    active = np.flatnonzero(layout.n_levels > 1) if sites is None else np.asarray(sites)
    for newton_step in range(MAX_NEWTON_STEPS):
        unconverged = []
        chords = {}
        # mean score (p,) and mean Hessian (p, p)
        for i, (score, H) in site_hessians(sample, layout, site_theta, active).items():
            site_cells = np.ix_(np.arange(layout.start[i], layout.start[i + 1]), columns[i])
            # is_informed (p,): see `_Chord`; is_regular: whether H is invertible
            solve, is_informed, is_regular = solver(H)
            step = solve(score)
            step_size = float(np.abs(step).max())
            is_determined = is_informed & (np.abs(step) < DIVERGING_STEP)
            # after the last Newton step, parameters whose information has vanished are also
            # undetermined
            if newton_step == MAX_NEWTON_STEPS - 1 and not is_determined.all():
                is_determined &= informed(H, NO_INFORMATION)
            determined[site_cells] = is_determined.reshape(-1, len(columns[i]))
            step *= min(1.0, LONGEST_STEP / step_size if step_size else 1.0)
            site_theta[site_cells] += step.reshape(-1, len(columns[i]))
            if step_size > tol:
                unconverged.append(i)
                if is_regular and step_size <= LONGEST_CHORD_STEP:
                    chords[i] = _Chord(site_cells, solve, is_informed, step_size)
        # sites that converge with a fixed Hessian have no diverging parameters
        for i in _take_chord_steps(sample, layout, site_theta, chords, CHORD_TOLERANCE * tol):
            determined[chords[i].cells] = chords[i].is_informed.reshape(-1, len(columns[i]))
            unconverged.remove(i)
        active = np.array(unconverged, dtype=np.intp)
        if not len(active):
            break
    return site_theta, determined


@dataclass
class _Chord:
    """State of a site whose next steps reuse the Hessian of the last Newton step (chord method)."""

    # rows and columns of the site's p parameters in `site_theta`, as returned by `numpy.ix_`
    cells: tuple[np.ndarray, ...]
    solve: Solve  # maps the score (p,) to the step (p,): the product with the inverse Hessian
    is_informed: np.ndarray  # (p,): whether the likelihood depends on each parameter
    step_size: float  # largest change of a parameter in the last step


def _take_chord_steps(
    sample: Rows, layout: Layout, site_theta: np.ndarray, chords: dict[int, _Chord], tol: float
) -> list[int]:
    """Take steps with the Hessians of `chords`, updating `site_theta` in place, and return the
    sites that converge.

    The iterations of a site end if its next step would not be much shorter than the last one.
    Diverging parameters are therefore only found by Newton steps.
    """
    shrinking = dict(chords)
    converged = []
    while shrinking:
        for i, score in site_scores(sample, layout, site_theta, list(shrinking)).items():
            chord = shrinking[i]
            step = chord.solve(score)
            step_size = float(np.abs(step).max())
            # also abandons NaN
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
    """Return a diverging parameter of each site that has one, as in `EngineFit.unbounded`.

    A diverging parameter does not have a finite optimum, and the optimiser stopped where the
    gradient was small. A site is checked if one of its levels is almost certain in some row and it
    has p < `max_parameters` parameters, because a Newton step costs p^3. Each tuple contains the
    site and its level code. For a coupling, these are followed by the predictor and level code of
    each other member of its term.
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
            # consider the field only if the site has no couplings
            abs_theta[:, 0] *= len(columns) == 1
            row, column = np.unravel_index(abs_theta.argmax(), abs_theta.shape)
            row = level_rows[row]
            column = columns[column]
        else:
            undetermined = [(a, c) for a in level_rows for c in columns if not determined[a, c]]
            is_certain = (  # tested again, because `nearly_certain` is in single precision
                undetermined
                and _find_max_abs_fields(sample, layout, site_theta, level_rows) > CERTAIN_LOG_ODDS
            )
            if not np.any(is_certain):  # an empty list, or one value per level
                continue
            # the first coupling if there is one, otherwise the first field
            row, column = max(undetermined, key=lambda cell: cell[1] > 0)
        # (predictor, code) pairs; empty for a field
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
    """Return the sites whose observed level has the largest field in every row. The likelihood of
    these sites is higher at ``2 * site_theta``.
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
    """Return the sites that have, in some row, a field of at least `CERTAIN_LOG_ODDS` in absolute
    value.

    A bound is checked first: a field is at most h plus the largest coupling with each regressor,
    where couplings with reference levels are 0.
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
    """Return, for each level (row of `site_theta`) in `level_rows`, the largest absolute field over
    all rows.
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
    """Return a mask of the sites for which Newton's method is proven to converge from `site_theta`.

    Let g be the gradient of a site's mean log loss, H its Hessian, M a matrix with
    ``H >= kron(I, M)``, and l the smallest eigenvalue of M. If the parameters change by v, any
    difference of log odds in a row changes by at most ``r |v| <= r/sqrt(l) |v|_H``, where
    ``r^2 = 2 (1 + neighbours)``. Third derivatives are therefore bounded by second derivatives. If
    ``r/sqrt(l) |g|_{M^-1} <= 1/2``, there is a single finite optimum, and Newton steps soon become
    shorter than `DIVERGING_STEP` (Bach 2010, Propositions 1 and 2). `neighbours` is the number of
    the site's regressors: the design vector z of a row, which contains a one and an indicator for
    each regressor, satisfies ``|z|^2 <= 1 + neighbours``. The factor 2 is due to the difference
    between two levels. False means that the bound is inconclusive for this site.
    """
    from scipy.linalg import lapack

    regs = regressors(layout)
    totals = usable_weight(sample, layout)
    # cuts: boundaries between sites
    level_rows = layout.columns(sites)
    site_cuts = np.cumsum(layout.n_levels[sites] - 1)[:-1]
    # in the loop, `field` and `indicators` are (levels, rows)
    h = site_theta[level_rows, :1]
    J = site_theta[level_rows, 1:]
    gradient = np.zeros((len(level_rows), 1 + regs.D))
    # `mask`: regressors of each site
    bounds = [_CurvatureBound(np.flatnonzero(regs.mask[i]), regs, sample.n) for i in sites]
    is_near = {}
    for chunk in sample.blocks(CHUNK_ROWS):
        codes = regs.codes(chunk.codes)
        usable = usable_rows(chunk, layout)
        X = one_hot(codes, regs)
        # the first columns of X are the D levels, the rows of site_theta
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
            # `field` now contains the weighted residuals of the site
            np.multiply(p - observed, w, out=site_field)
        gradient[:, 0] += field.sum(axis=1)
        gradient[:, 1:] += field @ X
    for i, bound, site_gradient in zip(sites, bounds, np.split(gradient, site_cuts), strict=True):
        g = site_gradient[:, regs.columns_of(i)].T
        M = bound.matrix()
        cholesky, singular = lapack.dpotrf(M, lower=1)  # `singular`: 0 if M is positive definite
        squared_g_norm = np.inf  # |g|^2 in the norm of M^-1, summed over the levels
        if not singular:
            # if the rows are almost certain, M is almost zero
            with np.errstate(over="ignore", invalid="ignore"):
                squared_g_norm = float((g * lapack.dpotrs(cholesky, g, lower=1)[0]).sum())
        # tests l >= 4 r^2 |g|^2: M - 4 r^2 |g|^2 I has a Cholesky factor
        if squared_g_norm < np.inf:
            squared_r = 2.0 * (1 + len(bound.neighbours))
            M.flat[:: len(g) + 1] -= max(4.0 * squared_r * squared_g_norm, LEAST_CURVATURE)
            singular = lapack.dpotrf(M, lower=1)[1]
        is_near[i] = squared_g_norm < np.inf and not singular
    return is_near


class _CurvatureBound:
    """Lower bound M on a site's Hessian in `prove_near_optimum`, summed over chunks of rows.

    A row with design vector z (a one, then indicators) and conditional probabilities p contributes
    at least ``c z z'``, where ``c = w p_0 min_a p_a``. In each chunk, only the rows with the
    largest c are used, and c is replaced by the smallest value among them. M is then a multiple of
    pair counts. `neighbours` contains the regressors of the site (positions in `regs`), and
    `n_rows` is the total number of rows.
    """

    def __init__(self, neighbours: np.ndarray, regs: Regressors, n_rows: int):
        # layout of the neighbours' columns
        self.neighbours = neighbours
        self.layout = Layout(regs.n_levels[neighbours])
        # sums over the rows used: of c, and of c times the products of two indicators
        self._weight, self._pairs = 0.0, np.zeros((self.layout.D, self.layout.D))
        # with few rows, a larger proportion is used: at least four times as many rows as M has
        # columns
        self._share = min(1.0, max(CURVATURE_ROWS, 4.0 * (1 + self.layout.D) / n_rows))

    def add(self, codes: np.ndarray, row_curvatures: np.ndarray) -> None:
        """Add a chunk of rows, given the codes (n, regressors) of all regressors and the values c
        (n,).
        """
        n_dropped = int((1.0 - self._share) * len(row_curvatures))
        largest_rows = np.argpartition(row_curvatures, n_dropped)[n_dropped:]
        # `argpartition` puts the smallest of them first
        least_curvature = float(row_curvatures[largest_rows[0]])
        neighbour_codes = codes[largest_rows].take(self.neighbours, axis=1)
        # added to `_pairs`
        kernel.shared_counts(neighbour_codes, self.layout.start, self._pairs, least_curvature)
        self._weight += least_curvature * len(largest_rows)

    def matrix(self) -> np.ndarray:
        """Return M (1 + D, 1 + D) for the constant and the D columns of the neighbours."""
        level_sums = self._pairs.diagonal()
        return np.block(
            [[np.array([[self._weight]]), level_sums[None]], [level_sums[:, None], self._pairs]]
        )


def cell_counts(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the weights (2, 2, couplings) of the four cells that each pair coupling compares.

    The cells of ``J_ij(a, b)`` are the rows with i at its reference level or at a (first axis) and
    j at its reference level or at b (second axis), where both are known. If one of the four cells
    is empty, the unpenalised coupling is not finite.
    """
    predictor_of_column = np.repeat(np.arange(layout.m), np.diff(layout.start))
    # columns of the levels a and b of each coupling, among the D columns
    column_i, column_j = pair_cells(layout)
    i = predictor_of_column[column_i]
    j = predictor_of_column[column_j]
    pair_weight = pair_counts(sample, layout)
    is_level_of = (predictor_of_column[:, None] == np.arange(layout.m)).astype(float)
    # (D, m): rows with this level and a non-reference level of the other predictor
    level_nonref = pair_weight @ is_level_of
    # both_known (m, m): rows with both known; level_known (D, m): rows with this level and the
    # other predictor known
    if sample.missing is None:
        both_known = np.full((layout.m, layout.m), sample.total)
        level_known = pair_weight.diagonal()[:, None].repeat(layout.m, 1)
    else:
        both_known, level_known = known_counts(sample, layout)
    both_nonref = is_level_of.T @ level_nonref  # (m, m): rows with non-reference levels of both
    # (m, m): rows with a non-reference level of the first, and the second known
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
        cell_weights[cell_counts(sample.counted, layout) == 0.0] = 0.0
    return cell_weights


def cell_sizes(sample: Sample, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest expected count of the cells that each coupling compares, and a mask of
    couplings with an empty cell.

    A coupling of k predictors compares ``2^k`` cells: each of the k predictors is at its reference
    level or at the level of the coupling, and other predictors that share a higher-order term with
    all k are at their reference level. The expected count of a cell is computed under the model
    that omits this coupling and includes all couplings of fewer predictors. If a cell is empty, the
    unpenalised coupling is not finite. Both arrays have shape (layout.size - layout.D,).
    """
    if layout.order <= 2:
        weights = cell_counts(sample, layout)
        # expected counts are products of margins divided by the total, so the smallest count has
        # the smallest margins
        margins = np.minimum(*weights.sum(axis=0)), np.minimum(*weights.sum(axis=1))
        total = np.maximum(weights.sum(axis=(0, 1)), 1.0)
        return margins[0] * margins[1] / total, (weights == 0).any(axis=(0, 1))
    expected = []
    absent = []
    # the predictors of each term; the first m scopes are for fields
    for scope in layout.scopes[layout.m :]:
        weights = _count_compared_cells(sample, layout, scope)
        is_compared = np.ones(weights.shape[:-1], dtype=bool)  # (2, ..., 2): the cells to compare
        if not all(
            layout.index(*sub_scope) >= 0
            for k in range(2, len(scope))
            for sub_scope in combinations(scope, k)
        ):
            # if a subset has no term, the coupling does not contrast all 2^k cells: only its own
            # cell and the adjacent ones, with one predictor at its reference level, are relevant
            is_compared = np.sum(np.indices(is_compared.shape), axis=0) >= len(scope) - 1
        absent.append((weights[is_compared] == 0).any(axis=0))
        expected.append(_fit_without_highest_term(weights)[is_compared].min(axis=0))
    return np.concatenate(expected), np.concatenate(absent)


def _count_compared_cells(sample: Sample, layout: Layout, scope: tuple[int, ...]) -> np.ndarray:
    """Return the weights (2, ..., 2, couplings) of the cells that the couplings of the term `scope`
    compare.

    Index 0 of an axis is the reference level of its predictor, and index 1 is the level of the
    coupling (see `cell_sizes`).
    """
    # other members of the higher terms that contain the whole scope
    neighbours = layout.beside(*scope)
    in_rows = (sample.codes[:, neighbours] == 0).all(axis=1)
    if sample.missing is not None:
        in_rows &= ~sample.missing[:, [*scope, *neighbours]].any(axis=1)
    shape = tuple(int(L) for L in layout.n_levels[list(scope)])
    joint_level = np.ravel_multi_index(
        tuple(sample.codes[in_rows][:, scope].T.astype(np.intp)), shape
    )
    weights = np.bincount(joint_level, sample.weights[in_rows], int(np.prod(shape))).reshape(shape)
    # for each predictor, starting with the last: compare its reference level with each other level
    # on a new first axis
    axis = len(scope) - 1  # each new first axis moves the next predictor to this position
    for _ in scope:
        at_level = np.delete(weights, 0, axis=axis)
        at_reference = np.repeat(np.take(weights, [0], axis=axis), at_level.shape[axis], axis=axis)
        weights = np.stack([at_reference, at_level])
    return weights.reshape((2,) * len(scope) + (-1,))


def _fit_without_highest_term(observed: np.ndarray) -> np.ndarray:
    """Return the expected counts (2, ..., 2, couplings) without the highest-order term, given the
    observed counts.

    The observed margins, each summed over one axis, are matched by iterative proportional fitting.
    With two axes, one round is exact.
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
