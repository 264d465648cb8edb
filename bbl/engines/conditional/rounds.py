"""Conditional fits to more rows than fit into memory, with the information matrix of a sample.

Each step takes one pass over all rows to compute the gradient. The steps are computed by L-BFGS,
and the initial metric is the information matrix of a random sample, including the penalty. K is the
number of groups, and k the number of groups with rows. The first of these is the reference group,
and its coefficients are zero. The design has p = 1 + size columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from bbl.engines.conditional.coding import Coding, coding_of
from bbl.engines.conditional.discriminative import HARMLESS, OFFSET_PENALTY
from bbl.engines.conditional.full_batch import inverse_contrasts
from bbl.engines.conditional.kernel import kernel_scale
from bbl.engines.conditional.likelihood import (
    Likelihood,
    TableDesign,
    assemble_information,
    independent_of_gram,
    information_weights,
)
from bbl.engines.conditional.maximum import (
    MAX_COEFFICIENTS,
    OFF_FACE_LOG,
    ConditionalMaximum,
    null_directions,
)
from bbl.engines.conditional.products import DesignProducts, has_products
from bbl.engines.conditional.separation import margins_of_sums, pair_tables
from bbl.engines.conditional.unbounded import limits
from bbl.engines.engine_fit import JointFit, Note
from bbl.engines.likelihood.existence import is_certain, rank
from bbl.engines.likelihood.newton import maximise
from bbl.engines.pseudo.blocks import sample_size
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.model.regressors import pair_cells
from bbl.rows.sample import Sample, concatenate
from bbl.rows.staged import Staged
from bbl.rows.stored import StoredSample

__all__ = ["can_fit_in_rounds", "fit_in_rounds"]

MAX_HALVINGS = 20
SLOW_RATIO = 0.5  # ratio of gradient norms above which a round is slow
SLOW_ROUNDS = 3  # number of slow rounds after which all rows determine the information
PAIRS = 10  # number of steps that L-BFGS remembers
ROUNDING = 1e-13  # relative error of the objective
SAMPLE_STEPS = 30  # Newton steps of the fit to the sample, if L-BFGS does not reach its maximum
UNSURE = "separation of the groups by combinations of levels was checked only in a sample of rows"


def can_fit_in_rounds(engine: Any, layout: Layout, K: int) -> bool:
    """Return whether this model can be fitted while its rows stay in a file.

    All predictors must be nominal, most options must have their default values, and the number of
    coefficients must not exceed `MAX_COEFFICIENTS`.
    """
    return (
        has_products(layout)
        and layout.D > 0
        and K > 1
        and engine.logits == "nominal"
        and engine.ordered == "nominal"
        and engine.start is None
        and not engine.early_stopping
        and not engine.firth
        and not isinstance(engine.scale, str)
        and np.isfinite(engine.ridge_of(1.0))
        and (K - 1) * (1 + layout.size) <= MAX_COEFFICIENTS
    )


class _Stop(NamedTuple):
    """Limits at which the iteration stops."""

    gradient: float  # norm of the gradient
    step: float  # largest change of a coefficient in the step that is not taken
    rounds: int  # number of steps


ALL_ROWS = _Stop(1e-10, 3e-12, 100)
# smaller than the gradient of all rows at the maximum of the sample
SAMPLE = _Stop(1e-4, np.inf, 40)


@dataclass(frozen=True)
class _Gradient:
    """Log-likelihood and its gradient (k - 1, p), summed over a block of rows of one group.

    Attributes
    ----------
    products : DesignProducts
    groups : ndarray of intp, shape (k,)
        The groups with rows.
    coefficients : ndarray, shape (k - 1, p)
    """

    products: DesignProducts
    groups: np.ndarray
    coefficients: np.ndarray

    @cached_property
    def lookups(self) -> list[np.ndarray]:
        """Contributions to the scores, which are the same for all blocks."""
        return self.products.lookups(self.coefficients)

    def __call__(self, composite_codes: np.ndarray, block: Sample) -> list[Any]:
        """Return the sums of a block, given the codes of its composites."""
        if not block.n:
            return [0.0, np.zeros(self.coefficients.shape)]
        group = int(np.searchsorted(self.groups, block.response[0]))

        def residuals(rows: slice, scores: np.ndarray) -> tuple[float, np.ndarray]:
            """Return the log-likelihood of a slice of rows, and their residuals (k - 1, b)."""
            weights = block.weights[rows]
            largest = np.maximum(scores.max(axis=0), 0.0)
            own = scores[group - 1] if group else 0.0
            shifted = own - largest
            scores -= largest
            p = np.exp(scores, out=scores)
            norm = p.sum(axis=0)
            norm += np.exp(-largest)
            value = float(weights @ (shifted - np.log(norm)))
            p *= -weights / norm
            if group:
                p[group - 1] += weights
            return value, p

        value, sums = self.products.scores_and_sums(composite_codes, self.lookups, residuals)
        return [value, sums]


@dataclass(frozen=True)
class _Columns:
    """Number and total weight of a block's rows that have a 1 in each design column (p,)."""

    products: DesignProducts

    def __call__(self, block: Sample) -> list[np.ndarray]:
        """Return the numbers (p,) and the total weights (p,)."""
        values = np.column_stack([block.weights > 0.0, block.weights]).astype(float)
        return [*self.products.sums(block.codes, values)]


@dataclass(frozen=True)
class _Moments:
    """Sums over a block of rows for information matrices; see `DesignProducts.moments`.

    Attributes
    ----------
    products : DesignProducts
    weights : callable
        ``weights(products, block)`` returns the row weights (w, n) for each of w matrices.
    """

    products: DesignProducts
    weights: Callable[[DesignProducts, Sample], np.ndarray]

    def __call__(self, block: Sample) -> np.ndarray:
        """Return the moments (w, M)."""
        return self.products.moments(block.codes, self.weights(self.products, block))


@dataclass(frozen=True)
class _Probabilities:
    """Row weights for the information matrix at `coefficients` (k - 1, p)."""

    coefficients: np.ndarray

    def __call__(self, products: DesignProducts, block: Sample) -> np.ndarray:
        """Return the weights (w, n) of a block's n rows."""
        p = _probabilities(products.scores(block.codes, self.coefficients))
        return information_weights(p, block.weights)


@dataclass(frozen=True)
class _EqualOnFace:
    """Row weights for the information if each row's cells on the face are equally probable.

    `direction` (k, p) is the result of `margins_of_sums`.
    """

    direction: np.ndarray

    def __call__(self, products: DesignProducts, block: Sample) -> np.ndarray:
        """Return the weights (w, n) of a block's n rows."""
        on_face = products.scores(block.codes, self.direction) > -0.5
        equal = on_face / np.maximum(on_face.sum(axis=1, keepdims=True), 1)
        return information_weights(equal, np.ones(block.n))


def _ones(products: DesignProducts, block: Sample) -> np.ndarray:
    """Return a weight of 1 for each row."""
    return np.ones((1, block.n))


class _AllRows:
    """All rows, which are in a file or on a cluster.

    Parameters
    ----------
    rows : StoredSample
    layout : Layout
    K : int
    """

    def __init__(self, rows: StoredSample, layout: Layout, K: int):
        known = tuple(bucket for bucket in rows.buckets if bucket[0] >= 0)
        rows = replace(rows, buckets=known)  # without rows of unknown groups
        self.rows = rows
        self.layout = layout
        self.products = DesignProducts(layout)
        self.key = ("composites", layout.n_levels.tobytes(), self.products.key)
        self.passes = 0
        # numbers (K, p) of rows with each column, and their weights
        counts, weights = rows.grouped_sums((self.key, "columns"), _Columns(self.products), K)
        self.row_counts = counts
        self.column_weights = weights
        self.groups = np.flatnonzero(weights[:, 0] > 0.0)
        self.total = float(weights[:, 0].sum())

    def gradient(self, coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the mean log-likelihood and its gradient (k - 1, p), computed in one pass."""
        function = Staged(
            self.key,
            self.products.compact_codes,
            _Gradient(self.products, self.groups, coefficients),
        )
        value, sums = self.rows.summed(function)
        self.passes += 1
        return value / self.total, sums / self.total

    def grams(
        self,
        products: DesignProducts,
        weights: Callable[[DesignProducts, Sample], np.ndarray],
        total: float,
    ) -> np.ndarray:
        """Return the weighted products (w, p, p) of the design's columns, divided by `total`, in
        one pass.

        `weights` is the same as in `_Moments`. These `products` are different from those of
        gradients, which are sent to the workers of a cluster without the positions of moments.
        """
        self.passes += 1
        return products.grams_of(self.rows.summed(_Moments(products, weights)) / total)

    def draw(self, size: int) -> Sample:
        """Return a random sample of about `size` rows per group, with all rows of rare levels.

        Weights are divided by the probabilities of being drawn.
        """
        parts = []
        for y in self.groups.tolist():
            group = self.rows.group(y)
            takes_all = 2 * size >= group.n
            rare = None if takes_all else group.rare_levels(size, self.layout.n_levels)
            heavy = np.inf if takes_all else group.total / size
            drawn = group.draw(
                group.n if takes_all else size, np.random.default_rng(0), rare, heavy
            )
            scale = group.total / max(drawn.total, 1e-300)
            parts.append(
                replace(drawn, weights=drawn.weights * scale, y=np.full(drawn.n, y, dtype=np.intp))
            )
        return concatenate(parts)


def _probabilities(scores: np.ndarray) -> np.ndarray:
    """Return probabilities (n, k) of groups from scores (n, k - 1) relative to the first group."""
    scores = np.column_stack([np.zeros(len(scores)), scores])
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


class _Penalised(Likelihood):
    """The mean log-likelihood minus the penalty ``x'Px / 2``, where x are the free coefficients."""

    def __init__(self, *arguments: Any, penalty: np.ndarray):
        super().__init__(*arguments)
        self.penalty = penalty
        self.theta = np.zeros(len(penalty))

    def value(self, theta: np.ndarray) -> float:
        """Return the objective at the vector `theta` of the free coefficients."""
        self.theta = theta
        return super().value(theta) - 0.5 * float(theta @ self.penalty @ theta)

    def gradient(self) -> np.ndarray:
        """Return the gradient at the most recent argument of `value`."""
        return super().gradient() - self.penalty @ self.theta

    def curvatures(self) -> list[np.ndarray]:
        """Return the information matrix, including the penalty."""
        return [super().curvatures()[0] + self.penalty]


class _Rounds:
    """Iterative fit to all rows, which takes one pass over the rows in each step.

    Parameters
    ----------
    rows : _AllRows
    sample : Sample
    penalty : ndarray, shape ((k - 1) p, (k - 1) p), or None
        Matrix of the quadratic penalty; None to maximise the likelihood.

    Attributes
    ----------
    free : ndarray of bool, shape (k - 1, p)
        The estimated coefficients.
    off_face : ndarray, shape (k - 1, p)
        Coefficients that give cells off the face a negligible probability.
    flat : ndarray, shape (k - 1, p, d)
        Directions that do not change probabilities.
    columns, aliased : ndarrays of bool, shape (p,)
        As in `ConditionalMaximum`.
    """

    def __init__(self, rows: _AllRows, sample: Sample, penalty: np.ndarray | None):
        self.rows = rows
        self.layout = rows.layout
        self.sample = sample
        groups = rows.groups
        k = len(groups)
        p = 1 + self.layout.size
        self.design = TableDesign(sample.codes, self.layout)
        self.shares = np.zeros((sample.n, k))
        group = np.searchsorted(groups, sample.response)
        self.shares[np.arange(sample.n), group] = sample.weights / sample.total
        self.penalised = penalty is not None
        self.occurs = rows.row_counts.sum(axis=0) > 0.0
        self.columns = np.ones(p, dtype=bool)
        self.aliased = np.zeros(p, dtype=bool)
        self.free = np.ones((k - 1, p), dtype=bool)
        self.flat = np.zeros((k - 1, p, 0))
        self.support = np.ones(self.shares.shape, dtype=bool)
        self.off_face = np.zeros((k - 1, p))
        self.direction = np.zeros((k, p))
        if not self.penalised:
            self._find_free()
        free = self.free.ravel()
        self.penalty = (
            np.zeros((int(free.sum()),) * 2) if penalty is None else penalty[np.ix_(free, free)]
        )

    def _find_free(self) -> None:
        """Find linearly independent columns, and the cells that determine finite estimates."""
        rows = self.rows
        gram = self.design.gram()
        self.columns, self.aliased = independent_of_gram(gram)
        if (self.occurs & (gram.diagonal() == 0.0)).any() or not self.columns.all():
            # levels that occur together in few rows: their columns are determined by all rows
            gram = rows.grams(self.design.products, _ones, 1.0)[0]
            self.columns, self.aliased = independent_of_gram(gram)
        self.free = np.repeat(self.columns[None], len(self.free), axis=0)
        self.direction = margins_of_sums(rows.row_counts[rows.groups], self.layout)
        if self.direction.any():
            self._restrict_to_face()

    def _restrict_to_face(self) -> None:
        """Restrict the free coefficients to those that are determined by the cells on the face."""
        scores = self.design.scores(self.direction)
        self.support = scores > -0.5
        relative = self.direction - self.direction[0]
        self.off_face = 2.0 * OFF_FACE_LOG * relative[1:]
        k, p = self.direction.shape

        weights = _EqualOnFace(self.direction)
        blocks = self.rows.grams(self.design.products, weights, self.rows.rows.n)
        fisher = assemble_information(blocks, self.free)
        basis = rank(fisher)[0]
        directions = null_directions(fisher, basis)
        self.flat = np.zeros((k - 1, p, directions.shape[1]))
        self.flat[self.free] = directions
        self.free[self.free] = basis

    def start(self) -> np.ndarray:
        """Return the coefficients (c,) fitted to the sample, and set the metric at this point."""
        # a ridge with the weight of one sampled row keeps the fit to the sample finite
        ridge = np.diag(np.full(len(self.penalty), 1.0 / self.sample.n))
        objective = _Penalised(
            self.design,
            self.shares,
            self.support,
            self.free,
            penalty=self.penalty if self.penalised else ridge,
        )
        theta = self._fit_sample(objective)
        objective.value(theta)
        H = objective.curvatures()[0] - objective.penalty + self.penalty + 1e-3 * ridge
        p = objective.p[:, 1:]
        spread = (objective.row_shares[:, None] * p * (1.0 - p)).sum(axis=0)
        self.metric = self._with_missing(H, spread)
        return theta

    def _fit_sample(self, objective: _Penalised) -> np.ndarray:
        """Return the coefficients (c,) that maximise the objective on the sample.

        L-BFGS needs only two information matrices: that of equal probabilities in all rows, and the
        one at the maximum.
        """
        blocks = []
        for g in range(self.shares.shape[1]):
            rows = self.sample.rows(np.flatnonzero(self.shares[:, g] > 0.0))
            if rows.n:
                blocks.append((self.rows.products.compact_codes(rows), rows))

        def evaluate(theta: np.ndarray) -> tuple[float, np.ndarray]:
            """Return the objective and its gradient (c,) on the sample."""
            function = _Gradient(self.rows.products, self.rows.groups, self._coefficients(theta))
            sums = [function(codes, rows) for codes, rows in blocks]
            value = sum(own[0] for own in sums) / self.sample.total
            gradient = sum(own[1] for own in sums) / self.sample.total
            penalty = objective.penalty @ theta
            return value - 0.5 * float(theta @ penalty), gradient[self.free] - penalty

        shares = self.shares.sum(axis=0)[1:]
        gram = self.design.products.gram(self.sample.codes, self.shares.sum(axis=1))
        among = np.diag(shares) - np.outer(shares, shares)
        k = len(among)
        metric = assemble_information(
            (among[a, b] * gram for a in range(k) for b in range(a + 1)), self.free
        )
        metric = self._with_missing(metric + objective.penalty, among.diagonal())
        metric[np.diag_indices_from(metric)] += 1e-3 / self.sample.n  # columns without a penalty
        theta, gradient = _climb(evaluate, np.zeros(len(metric)), metric, SAMPLE)
        if np.linalg.norm(gradient) > SAMPLE.gradient:
            theta = maximise(objective, theta, 10.0 * SAMPLE.gradient, SAMPLE_STEPS).theta
        return theta

    def _with_missing(self, H: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return the information of the sample, with larger diagonal elements of columns that the
        sample lacks.

        They are set to the information that the number of all rows suggests. `spread` (k - 1,)
        contains the mean variance of each group's indicator.
        """
        share = self.rows.column_weights.sum(axis=0) / self.rows.total
        expected = (spread[:, None] * share)[self.free]
        missing = np.maximum(expected - H.diagonal(), 0.0) * (H.diagonal() < 0.1 * expected)
        H[np.diag_indices_from(H)] += missing
        return H

    def _coefficients(self, theta: np.ndarray) -> np.ndarray:
        """Return the coefficients (k - 1, p), given the free coefficients (c,)."""
        out = self.off_face.copy()
        out[self.free] += theta
        return out

    def evaluate(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the objective and its gradient (c,) over all rows, in one pass."""
        value, gradient = self.rows.gradient(self._coefficients(theta))
        self.log_likelihood = value
        penalty = self.penalty @ theta
        return value - 0.5 * float(theta @ penalty), gradient[self.free] - penalty

    def maximise(self) -> tuple[np.ndarray, float]:
        """Return the coefficients (c,) of the maximum over all rows, and the gradient's norm."""
        theta = self.start()
        theta, self.gradient = _climb(
            self.evaluate, theta, self.metric, ALL_ROWS, self._metric_of_all_rows
        )
        return theta, float(np.linalg.norm(self.gradient))

    def _metric_of_all_rows(self, theta: np.ndarray) -> np.ndarray:
        """Return the information of all rows, including the penalty, and store it."""
        blocks = self.rows.grams(
            self.design.products, _Probabilities(self._coefficients(theta)), self.rows.total
        )
        H = assemble_information(blocks, self.free) + self.penalty
        H[np.diag_indices_from(H)] *= 1.0 + 1e-12
        self.metric = H
        return H


def _climb(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]],
    theta: np.ndarray,
    metric: np.ndarray,
    stop: _Stop,
    better_metric: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Maximise a function by L-BFGS, and return its maximum and the gradient there.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(theta)`` returns the objective and its gradient (c,).
    theta : ndarray, shape (c,)
        Starting point.
    metric : ndarray, shape (c, c)
        Approximation of minus the Hessian.
    stop : _Stop
    better_metric : callable, optional
        ``better_metric(theta)`` returns another metric. It is called once, after several slow
        steps, which are due to pairs of levels that are too rare for the sample.
    """
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(metric)
    value, gradient = evaluate(theta)
    pairs: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=PAIRS)
    slow = 0
    for _ in range(stop.rounds):
        direction = _direction(gradient, pairs, partial(cho_solve, factor))
        norm = float(np.linalg.norm(gradient))
        if norm <= stop.gradient and np.abs(direction).max(initial=0.0) <= stop.step:
            break
        slope = float(gradient @ direction)
        length = 1.0
        for _ in range(MAX_HALVINGS):
            new_value, new_gradient = evaluate(theta + length * direction)
            # near the maximum, rounding errors hide the increase, but not the slope
            if new_value >= value + 1e-4 * length * slope - ROUNDING * abs(value):
                break
            length *= 0.5
        new_norm = float(np.linalg.norm(new_gradient))
        if norm <= stop.gradient and new_norm > SLOW_RATIO * norm:
            break  # rounding errors
        step = length * direction
        change = gradient - new_gradient
        if step @ change > 0.0:
            pairs.append((step, change))
        slow = slow + 1 if new_norm > SLOW_RATIO * norm else 0
        theta, value, gradient = theta + step, new_value, new_gradient
        if slow >= SLOW_ROUNDS and better_metric is not None:
            factor = cho_factor(better_metric(theta))
            better_metric = None
            pairs.clear()
    return theta, gradient


def _direction(
    gradient: np.ndarray,
    pairs: Sequence[tuple[np.ndarray, np.ndarray]],
    solve: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the L-BFGS direction of ascent, with the initial inverse metric `solve`.

    `pairs` contains previous steps and the decrease in the gradient at each step, oldest first.
    """
    out = gradient
    projections = []
    for step, change in reversed(pairs):
        projections.append(float(step @ out) / float(step @ change))
        out = out - projections[-1] * change
    out = solve(out)
    for (step, change), projection in zip(pairs, reversed(projections), strict=True):
        out = out + (projection - float(change @ out) / float(step @ change)) * step
    return out


def find_maximum_in_rounds(rows: StoredSample, layout: Layout, K: int) -> tuple[Any, bool]:
    """Return the `ConditionalMaximum` of all rows, and whether it is certain to be finite."""
    all_rows = _AllRows(rows, layout, K)
    groups = all_rows.groups
    p = 1 + layout.size
    coefficients = np.zeros((K, p))
    basis = np.zeros((K, p), dtype=bool)
    rounds = _Rounds(all_rows, all_rows.draw(sample_size(layout)), None)
    theta, norm = rounds.maximise()
    own = rounds.off_face.copy()
    own[rounds.free] += theta
    coefficients[groups[1:]] = own
    basis[groups[1:]] = rounds.free
    flat = np.zeros((K, p, rounds.flat.shape[2]))
    flat[groups[1:]] = rounds.flat
    sure = is_certain(rounds.metric, rounds.gradient, n_terms=2.0 * (1 + len(layout.scopes)))
    maximum = ConditionalMaximum(
        groups,
        coefficients,
        rounds.log_likelihood,
        norm,
        all_rows.passes,
        basis,
        flat,
        rounds.columns,
        rounds.aliased,
        rounds.occurs,
        rows.n,
        is_separated=len(groups) > 1 and rounds.log_likelihood > -1e-9,
    )
    return maximum, sure


def fit_penalised(
    rows: StoredSample, layout: Layout, K: int, scale: float, ridge: float
) -> JointFit:
    """Fit all rows with a ridge, by minimising the objective of `FullBatch`."""
    all_rows = _AllRows(rows, layout, K)
    k = len(all_rows.groups)
    p = 1 + layout.size
    one = penalty_matrix(all_rows.column_weights.sum(axis=0) / all_rows.total, layout, scale, ridge)
    # the coefficients of all K groups sum to zero; those of groups without rows are equal
    among = np.eye(k - 1) - 1.0 / K
    penalty = np.kron(among, one)
    rounds = _Rounds(all_rows, all_rows.draw(sample_size(layout)), penalty)
    theta, _ = rounds.maximise()
    coefficients = np.zeros((K, p))
    coefficients[all_rows.groups[1:]] = theta.reshape(k - 1, p)
    coefficients -= coefficients.mean(axis=0)
    gradient = float(np.abs(rounds.gradient).max(initial=0.0))
    return JointFit(
        coefficients[:, 1:].copy(),
        coefficients[:, 0].copy(),
        temperature=1.0,
        loss=-rounds.log_likelihood,
        gradient=gradient,
        evaluations=all_rows.passes,
        converged=gradient <= HARMLESS,
    )


def penalty_matrix(shares: np.ndarray, layout: Layout, scale: float, ridge: float) -> np.ndarray:
    """Return the matrix (p, p) of the quadratic penalty on one group's coefficients.

    The penalty is ``ridge |f|^2`` in the kernel norm of `bbl.engines.conditional.full_batch`, plus
    the penalty on the offset. `shares` (p,) contains the proportion of rows that have a 1 in each
    column of the design.
    """
    from scipy.sparse import block_diag, coo_array, csr_array, hstack

    coding = coding_of(layout, "nominal")
    D = layout.D
    m = shares[1 : 1 + D]
    level_shares = []
    for i in range(layout.m):
        own = m[layout.start[i] : layout.start[i + 1]]
        level_shares.append(np.append(1.0 - own.sum(), own))
    field_factor, coupling_factor = _kernel_factors(shares, level_shares, layout, coding, scale)
    inverse = [
        inverse_contrasts(coding.uncorrelated_contrasts(i, own)[0])
        for i, own in enumerate(level_shares)
    ]
    to_fields = block_diag([coo_array(values) for values in inverse], format="csr")
    row, column = pair_cells(layout)
    C = len(row)
    # contributions of couplings to fields, with the other indicator at its mean
    shift = csr_array(
        (
            np.concatenate([m[column], m[row]]),
            (np.concatenate([row, column]), np.tile(np.arange(C), 2)),
        ),
        shape=(D, C),
    )
    fields = hstack([csr_array((D, 1)), to_fields, to_fields @ shift], format="csr")
    B = (fields.T @ fields).toarray() / field_factor
    if coupling_factor:
        start = 1 + D
        for i, j in layout.pairs.tolist():
            block = np.kron(inverse[i].T @ inverse[i], inverse[j].T @ inverse[j])
            B[start : start + len(block), start : start + len(block)] += block / coupling_factor
            start += len(block)
    offset = np.concatenate([[1.0], m, m @ shift - m[row] * m[column]])
    return ridge * B + OFFSET_PENALTY * np.outer(offset, offset)


def _kernel_factors(
    shares: np.ndarray,
    level_shares: list[np.ndarray],
    layout: Layout,
    coding: Coding,
    scale: float,
) -> tuple[float, float]:
    """Return the kernel's factors of fields and couplings.

    `shares` (p,) is the same as in `penalty_matrix`, and `level_shares` contains the proportions
    (L_i,) of each predictor's levels.
    """
    means = coding.feature_means(level_shares)
    # squared distances (L_i,) of the levels' features from the means
    distances = [
        coding.squared_distances(i, means[columns]) for i, columns in enumerate(coding.columns)
    ]
    a = sum(float(own @ d) for own, d in zip(level_shares, distances, strict=True))
    b = sum(
        float(distances[i] @ table @ distances[j])
        for (i, j), table in zip(layout.pairs.tolist(), pair_tables(shares, layout), strict=True)
    )
    return kernel_scale(a, b, scale)


def fit_in_rounds(engine: Any, rows: StoredSample, layout: Layout, K: int) -> JointFit:
    """Return the fit of all groups to rows that are not in memory; see `can_fit_in_rounds`."""
    n_coefficients = (K - 1.0) * (1 + layout.size)
    check_memory(  # five matrices, and the codes of the sample
        40.0 * n_coefficients**2 + 4.0 * K * sample_size(layout) * (layout.m + 8.0 * K),
        f"The information of {n_coefficients:,.0f} coefficients",
        "Use fewer predictors or fewer interactions.",
    )
    if engine.penalised:
        return fit_penalised(rows, layout, K, float(engine.scale), engine.ridge_of(rows.total))
    maximum, is_sure = find_maximum_in_rounds(rows, layout, K)
    own = limits(maximum, rows, layout)
    if not is_sure:
        own[0] = own[0]._replace(notes=(*own[0].notes, Note(-1, -1, UNSURE)))
    return JointFit(
        maximum.coefficients[:, 1:].copy(),
        maximum.coefficients[:, 0].copy(),
        temperature=1.0,
        loss=-maximum.value,
        gradient=maximum.norm,
        evaluations=maximum.n_iter,
        converged=maximum.converged and not maximum.is_separated,
        limits=own,
    )
