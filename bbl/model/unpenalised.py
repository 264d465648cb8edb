"""The optimum without a penalty, and which parameters have one: what the data alone determine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from bbl._ext.model import moments as kernel
from bbl.model.godambe import informed, site_hessians, solution
from bbl.model.layout import Layout
from bbl.model.moments import known_counts, level_counts, one_hot, pair_counts, usable_rows, usable_weight
from bbl.model.pairwise import cells
from bbl.model.regressors import Regressors, regressors
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample

__all__ = ["cell_counts", "cell_sizes", "unbounded_parameters", "unpenalised"]

STEPS = 16  # of Newton's method
LONGEST = 2.0  # largest change of a parameter in a step
FITTED = 30  # rounds of proportional fitting, which leave expected counts right to a percent
AT_REST = 1e-6  # largest change of a parameter in the last step of a predictor that has converged
ADRIFT = 1e-3  # change of a parameter in the last step from which on it has no finite optimum
SURE = 10.0  # log odds at which a predictor is all but certain in a row
SINGLE_PRECISION_SHARE = 0.999  # of `SURE`, to allow for the rounding of log odds in single precision
ROWS = 1024  # at a time
AT_ONCE = 16  # predictors at a time
CURVATURE_ROWS = 0.15  # share of the rows, those with most curvature, that a lower bound of it is made of
LEAST_CURVATURE = 1e-8  # a larger one is not rounding
MARGIN = 1e-6  # of log odds, that is no rounding
VANISHING = 1e-6  # share of a parameter's information that is left of it when rows become certain: none


def unpenalised(
    sample: Rows, layout: Layout, site_theta: np.ndarray, only: np.ndarray | None = None, at_rest: float = AT_REST
) -> tuple[np.ndarray, np.ndarray]:
    """Go on from a penalised solution to the optimum without a penalty.

    Newton's method. Where rows are separated there is no finite optimum: the objective rises along a direction without
    end, the Hessian falls as fast as the gradient, and every step in that direction has the same length (Albert &
    Anderson 1984 name the condition). So a parameter that still moves when the others have come to rest is not
    determined; nor is one on which the rows do not depend, as of a copied column; nor one on which only rows depend
    that become certain, whose information vanishes although it may not move.

    Parameters
    ----------
    sample : Sample
    layout : Layout
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution to start from.
    only : ndarray of int, optional
        Predictors; all with more than one level by default.
    at_rest : float, default 1e-6
        A step that moves no parameter by more than this is the last one of a predictor.

    Returns
    -------
    site_theta : ndarray, shape (layout.D, 1 + D)
        Unsymmetrised solution without a penalty; what is not determined stands where the last step left it.
    determined : ndarray of bool, shape (layout.D, 1 + D)
        Which of its parameters the rows determine; False for predictors that were not asked for.
    """
    site_theta, columns = site_theta.copy(), regressors(layout).columns
    determined = np.zeros(site_theta.shape, dtype=bool)
    active = np.flatnonzero(layout.n_levels > 1) if only is None else np.asarray(only)
    for newton_step in range(STEPS):
        moving = []
        for i, (score, H) in site_hessians(sample, layout, site_theta, active).items():
            site_cells = np.ix_(np.arange(layout.start[i], layout.start[i + 1]), columns[i])
            step, is_determined = solution(H, score)
            largest = float(np.abs(step).max())
            is_determined &= np.abs(step) < ADRIFT
            if newton_step == STEPS - 1 and not is_determined.all():
                is_determined &= informed(H, VANISHING)
            determined[site_cells] = is_determined.reshape(-1, len(columns[i]))
            site_theta[site_cells] += (step * min(1.0, LONGEST / largest if largest else 1.0)).reshape(
                -1, len(columns[i])
            )
            if largest > at_rest:
                moving.append(i)
        active = np.array(moving, dtype=np.intp)
        if not len(active):
            break
    return site_theta, determined


def unbounded_parameters(
    sample: Rows, layout: Layout, site_theta: np.ndarray, most: int
) -> tuple[tuple[int, ...], ...]:
    """Return a parameter that grows without end for each predictor that has one (see `EngineFit.unbounded`).

    The optimiser stops somewhere on the way, where the gradient is small. Only predictors that have become all but
    certain in some row are looked at, and that have fewer than `most` parameters.
    """
    wide = regressors(layout)
    sure = [
        i
        for i in _all_but_certain(sample, layout, site_theta)
        if (int(layout.n_levels[i]) - 1) * len(wide.columns_of(i)) < most
    ]
    parts = [sure[first : first + AT_ONCE] for first in range(0, len(sure), AT_ONCE)]
    sure = [i for sites in parts for i, near in near_optimum(sample, layout, site_theta, sites).items() if not near]
    if not sure:
        return ()
    separated = _separated(sample, layout, site_theta, sure)
    doubtful = np.array([i for i in sure if i not in separated], dtype=np.intp)
    _, determined = unpenalised(sample, layout, site_theta, doubtful, at_rest=ADRIFT)
    out = []
    for i in sure:
        site_columns, columns = np.arange(layout.start[i], layout.start[i + 1]), wide.columns_of(i)
        if i in separated:  # all of them may grow; the largest coupling says most
            size = np.abs(site_theta[np.ix_(site_columns, columns)])
            size[:, 0] *= len(columns) == 1
            row, column = np.unravel_index(size.argmax(), size.shape)
            row, column = site_columns[row], columns[column]
        else:
            lost = [(a, c) for a in site_columns for c in columns if not determined[a, c]]
            if not (lost and (_largest(sample, layout, site_theta, site_columns) > SURE).any()):
                continue
            row, column = max(lost, key=lambda cell: cell[1] > 0)
        neighbour_levels = wide.members(int(column) - 1) if column else []
        out.append((i, int(row - layout.start[i]) + 1, *(number for member in neighbour_levels for number in member)))
    return tuple(out)


def _separated(sample: Rows, layout: Layout, site_theta: np.ndarray, only: Sequence[int]) -> set[int]:
    """Return of which predictors every row has its most probable level: twice these parameters fit better still."""
    wide, candidates = regressors(layout), set(only)
    for chunk in sample.blocks(ROWS):
        X, usable = one_hot(wide.codes(chunk.codes), wide), usable_rows(chunk, layout)
        for i in sorted(candidates):
            at = slice(layout.start[i], layout.start[i + 1])
            field = np.column_stack((np.zeros(chunk.n), X @ site_theta[at, 1:].T + site_theta[at, 0]))[usable[:, i]]
            level = chunk.codes[usable[:, i], i, None].astype(np.intp)
            observed_field = np.take_along_axis(field, level, axis=1)
            np.put_along_axis(field, level, -np.inf, axis=1)
            if (observed_field - field.max(axis=1, keepdims=True) <= MARGIN).any():
                candidates.discard(i)
    return candidates


def _all_but_certain(sample: Rows, layout: Layout, site_theta: np.ndarray) -> list[int]:
    """Return the predictors that have log odds of `SURE` in some row, or nearly so.

    Most are ruled out by what the largest of their couplings with each other predictor add up to.
    """
    wide = regressors(layout)
    first = wide.start[:-1][np.diff(wide.start) > 0]
    fields, J = site_theta[:, 0], site_theta[:, 1:]
    highest = fields + np.maximum(np.maximum.reduceat(J, first, axis=1), 0.0).sum(axis=1)
    lowest = fields + np.minimum(np.minimum.reduceat(J, first, axis=1), 0.0).sum(axis=1)
    at = np.flatnonzero(np.maximum(highest, -lowest) > SINGLE_PRECISION_SHARE * SURE)
    if len(at):
        at = at[_largest(sample, layout, site_theta, at, np.float32) > SINGLE_PRECISION_SHARE * SURE]
    return np.unique(np.searchsorted(layout.start, at, side="right") - 1).tolist()


def _largest(sample: Rows, layout: Layout, site_theta: np.ndarray, at: np.ndarray, dtype=np.float64) -> np.ndarray:
    """Return the largest absolute field in any row of each of the levels `at`."""
    wide, out = regressors(layout), np.zeros(len(at))
    fields, J = site_theta[at, 0].astype(dtype), np.ascontiguousarray(site_theta[at, 1:].T, dtype=dtype)
    for chunk in sample.blocks(ROWS):
        field = one_hot(wide.codes(chunk.codes), wide, dtype) @ J
        field += fields
        np.maximum(out, np.maximum(field.max(axis=0), -field.min(axis=0)), out=out)
    return out


def near_optimum(sample: Rows, layout: Layout, site_theta: np.ndarray, only: Sequence[int]) -> dict[int, bool]:
    """Return of which predictors the rows prove that Newton's method goes from `site_theta` to a finite optimum nearby.

    Let g be the gradient of a predictor's mean log loss, H its Hessian, and M a matrix with ``H >= I x M`` and smallest
    eigenvalue l. A change v of parameters changes no difference of log odds in a row by more than
    ``r |v| <= r/sqrt(l) |v|_H``, ``r^2 = 2 (1 + neighbours)``, which bounds third derivatives by second ones. So
    with ``r/sqrt(l) |g|_{M^-1} <= 1/2`` there is one optimum, and Newton steps from here fall short of `ADRIFT` after a
    few (Bach 2010, Propositions 1 and 2).
    """
    from scipy.linalg import lapack

    wide, totals = regressors(layout), usable_weight(sample, layout)
    at, cuts = layout.columns(only), np.cumsum(layout.n_levels[only] - 1)[:-1]
    fields, J = site_theta[at, :1], site_theta[at, 1:]
    gradient = np.zeros((len(at), 1 + wide.D))
    M = [_Curvature(np.flatnonzero(wide.mask[i]), wide, sample.n) for i in only]
    out = {}
    for chunk in sample.blocks(ROWS):
        codes, usable = wide.codes(chunk.codes), usable_rows(chunk, layout)
        X = one_hot(codes, wide)
        residual, indicators = J @ X.T + fields, X[:, at].T
        for i, curvature, site_residual, seen in zip(
            only, M, np.split(residual, cuts), np.split(indicators, cuts), strict=True
        ):
            w, top = chunk.weights * usable[:, i] / totals[i], np.maximum(site_residual.max(axis=0), 0.0)
            p, reference = np.exp(site_residual - top), np.exp(-top)
            total = reference + p.sum(axis=0)
            p /= total
            curvature.add(codes, w * (reference / total) * p.min(axis=0))
            np.multiply(p - seen, w, out=site_residual)
        gradient[:, 0] += residual.sum(axis=1)
        gradient[:, 1:] += residual @ X
    for i, curvature, slopes in zip(only, M, np.split(gradient, cuts), strict=True):
        g = slopes[:, wide.columns_of(i)].T
        matrix = curvature.matrix()
        factor, singular = lapack.dpotrf(matrix, lower=1)
        size = np.inf
        if not singular:
            with np.errstate(over="ignore", invalid="ignore"):  # of rows that are all but certain M is all but zero
                size = float((g * lapack.dpotrs(factor, g, lower=1)[0]).sum())
        if size < np.inf:
            matrix.flat[:: len(g) + 1] -= max(8.0 * (1 + len(curvature.others)) * size, LEAST_CURVATURE)
            singular = lapack.dpotrf(matrix, lower=1)[1]
        out[i] = size < np.inf and not singular
    return out


class _Curvature:
    """A matrix M as in `near_optimum`: of a row with probabilities p and weight w, ``w p_0 min_a p_a z z'`` at most.

    Of each block it takes the rows that have most of it, and all of them as the one that has least.
    """

    def __init__(self, others: np.ndarray, wide: Regressors, n: int):
        self.others, self.layout = others, Layout(wide.n_levels[others])
        self._weight, self._pairs = 0.0, np.zeros((self.layout.D, self.layout.D))
        self._share = min(1.0, max(CURVATURE_ROWS, 4.0 * (1 + self.layout.D) / n))

    def add(self, codes: np.ndarray, weight: np.ndarray) -> None:
        first = int((1.0 - self._share) * len(weight))
        most = np.argpartition(weight, first)[first:]
        least = float(weight[most[0]])
        kernel.shared_counts(codes[most].take(self.others, axis=1), self.layout.start, self._pairs, least)
        self._weight += least * len(most)

    def matrix(self) -> np.ndarray:
        columns = self._pairs.diagonal()
        return np.block([[np.array([[self._weight]]), columns[None]], [columns[:, None], self._pairs]])


def cell_counts(sample: Sample, layout: Layout) -> np.ndarray:
    """Return the weights (2, 2, layout.size - layout.D) of the rows that a coupling compares.

    For ``J_ij(a, b)``: rows with i at its reference level or at a (first axis), j at its reference level or at b
    (second axis), both known. If one of the four is zero, the coupling has no finite value without a penalty.
    """
    predictor = np.repeat(np.arange(layout.m), np.diff(layout.start))
    row, col = cells(layout)
    i, j = predictor[row], predictor[col]
    both = pair_counts(sample, layout)
    member = (predictor[:, None] == np.arange(layout.m)).astype(float)
    of_level = both @ member  # of a level, with the other predictor at any level but its reference
    if sample.missing is None:
        known_weight = np.full((layout.m, layout.m), sample.total)
        counts = np.concatenate([n[1:] for n in level_counts(sample, layout.n_levels)])[:, None].repeat(layout.m, 1)
    else:
        known_weight, counts = known_counts(sample, layout)
    total = member.T @ of_level
    margin = member.T @ counts  # of a predictor away from its reference, with the other known
    out = np.empty((2, 2, len(row)))
    out[1, 1] = both[row, col]
    out[1, 0] = counts[row, j] - of_level[row, j]
    out[0, 1] = counts[col, i] - of_level[col, i]
    out[0, 0] = known_weight[i, j] - margin[i, j] - margin[j, i] + total[i, j]
    return out


def cell_sizes(sample: Sample, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Return how many rows the smallest of the cells that a coupling compares should hold, and whether one has none.

    A coupling of k predictors compares ``2^k`` cells: every one of the k at its reference level or at its own, and
    predictors that share a term of more with all k at their reference. What cells should hold is what they would
    without this coupling, given all those of fewer predictors.

    Returns
    -------
    expected : ndarray, shape (layout.size - layout.D,)
    absent : ndarray of bool, shape (layout.size - layout.D,)
        The coupling then has no finite value without a penalty.
    """
    if layout.order <= 2:
        cells = cell_counts(sample, layout)
        margins = np.minimum(*cells.sum(axis=0)), np.minimum(*cells.sum(axis=1))
        total = np.maximum(cells.sum(axis=(0, 1)), 1.0)
        return margins[0] * margins[1] / total, (cells == 0).any(axis=(0, 1))
    expected, absent = [], []
    for scope in layout.scopes[layout.m :]:
        cells = _compared(sample, layout, scope)
        needed = np.ones(cells.shape[:-1], dtype=bool)
        if not all(layout.index(*sub_scope) >= 0 for k in range(2, len(scope)) for sub_scope in combinations(scope, k)):
            # without all terms of fewer predictors only those cells count that the coupling itself tells apart
            needed = np.sum(np.indices(needed.shape), axis=0) >= len(scope) - 1
        absent.append((cells[needed] == 0).any(axis=0))
        expected.append(_without_highest(cells)[needed].min(axis=0))
    return np.concatenate(expected), np.concatenate(absent)


def _compared(sample: Sample, layout: Layout, scope: tuple[int, ...]) -> np.ndarray:
    """Return the weights (2, ..., 2, couplings) of the cells that the couplings of a term compare."""
    held = layout.beside(*scope)
    here = (sample.codes[:, held] == 0).all(axis=1)
    if sample.missing is not None:
        here &= ~sample.missing[:, [*scope, *held]].any(axis=1)
    shape = tuple(int(L) for L in layout.n_levels[list(scope)])
    at = np.ravel_multi_index(tuple(sample.codes[here][:, scope].T.astype(np.intp)), shape)
    cells = np.bincount(at, sample.weights[here], int(np.prod(shape))).reshape(shape)
    for axis in range(len(scope) - 1, -1, -1):  # each goes to the front as reference and own level
        axis += len(scope) - 1 - axis
        level_cells = np.delete(cells, 0, axis=axis)
        cells = np.stack([np.repeat(np.take(cells, [0], axis=axis), level_cells.shape[axis], axis=axis), level_cells])
    return cells.reshape((2,) * len(scope) + (-1,))


def _without_highest(cells: np.ndarray) -> np.ndarray:
    """Return what cells (2, ..., 2, T) would hold without the term of them all: they are fitted to their margins."""
    fitted, k = np.ones(cells.shape), cells.ndim - 1
    for _ in range(1 if k == 2 else FITTED):
        for axis in range(k):
            margin = fitted.sum(axis=axis, keepdims=True)
            fitted *= cells.sum(axis=axis, keepdims=True) / np.where(margin > 0, margin, 1.0)
    return fitted
