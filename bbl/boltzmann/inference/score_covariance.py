"""Covariance of the coefficients of class scores (intercepts and parameters of all groups).

The *intercept* of group g is ``ln p_g - ln Z_g``, where p_g is the class proportion. The 1 + size
*coefficients* of the group are the intercept and the parameters. If C is the covariance of a
group's parameters and J (1 + size, size) is the Jacobian of the coefficients with respect to the
parameters, the covariance of the coefficients is ``J C J'``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.covariance import occurring
from bbl.boltzmann.inference.survey import (
    joint_deviations,
    location_deviations,
    penalised_deviations,
    share_deviations,
)
from bbl.engines import Engine
from bbl.engines.likelihood.solve import tree_order
from bbl.engines.likelihood.states import StateTable
from bbl.engines.likelihood.tree import JunctionTree, components
from bbl.engines.likelihood.zeros import determined_by_states
from bbl.engines.traits import JointTraits
from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.model.godambe import RowInfluence
from bbl.model.layout import Layout
from bbl.model.location import Location
from bbl.model.location_gradient import LocationInfluence
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities
from bbl.stats.survey.sample import SurveySample

__all__ = ["ScoreCovariance", "moments", "score_covariance"]

# A function is treated as estimable if its derivatives in unidentified directions do not exceed
# this.
HARMLESS = 1e-6
FUNCTIONS = 256  # functions whose degrees of freedom are computed at a time
MAX_ROWS_OF_DF = 5_000
ROBUST = "Sandwich standard errors, valid even if numeric predictors are not normally distributed."


@dataclass(frozen=True)
class ScoreCovariance:
    """Covariance of the coefficients of K groups.

    Attributes
    ----------
    blocks : list of ndarray, shape (1 + size, 1 + size)
        Covariance of each group's coefficients if the groups are independent; otherwise, a single
        block of shape (K (1 + size), K (1 + size)).
    flat : list of ndarray, shape (1 + size, d)
        For each block, the d unidentified directions of the coefficients. Along such a direction,
        the fit does not change, or it improves without bound. The block is then the covariance with
        some coefficients held fixed.
    note : str
        A sentence that describes the standard errors.
    unbounded : frozenset of (int, int)
        Levels, as (predictor, code), whose parameters have no finite estimate but would have one if
        all possible states occurred in the rows.
    df : float
        Degrees of freedom of a t distribution; infinite unless there is a sampling design.
    influences : tuple of ndarray
        For each block, the influences (n, coefficients) of rows. Empty unless degrees of freedom
        are estimated from them.
    row_weights : tuple of ndarray, shape (n,)
        Weights of the rows in `influences`.
    """

    blocks: list[np.ndarray]
    flat: list[np.ndarray]
    note: str
    unbounded: frozenset[tuple[int, int]] = frozenset()
    df: float = np.inf
    influences: tuple[np.ndarray, ...] = ()
    row_weights: tuple[np.ndarray, ...] = ()

    def degrees_of_freedom(self, gradients: np.ndarray) -> np.ndarray | float:
        """Return the degrees of freedom (...) of t distributions for functions with the given
        `gradients` (..., K, 1 + size).

        The chi-square distribution with these degrees of freedom has the same coefficient of
        variation as the estimated variance, which is a sum over rows (Satterthwaite). The degrees
        of freedom are small if the influences of rows have heavy tails, for example with skewed
        numeric predictors.
        """
        if not self.influences:
            return self.df
        leading = gradients.shape[:-2]
        by_block = gradients.reshape(-1, len(self.blocks), self.blocks[0].shape[0])
        squares, fourth_powers = np.zeros((2, len(by_block)))
        for part in range(0, len(by_block), FUNCTIONS):
            chunk = slice(part, part + FUNCTIONS)
            # influences of the rows of each block on the functions, (rows, functions); the result
            # does not depend on their scale, but fourth powers would overflow
            psi = [E @ by_block[chunk, k].T for k, E in enumerate(self.influences)]
            largest = np.max([np.abs(own).max(axis=0, initial=0.0) for own in psi], axis=0)
            largest[largest == 0.0] = 1.0
            for own, weights in zip(psi, self.row_weights, strict=True):
                psi_squares = (own / largest) ** 2
                squares[chunk] += weights @ psi_squares
                fourth_powers[chunk] += weights @ psi_squares**2
        n = sum(float(weights.sum()) for weights in self.row_weights)
        spread = np.maximum(fourth_powers - squares**2 / n, 1e-300)
        return np.maximum(2.0 * squares**2 / spread, 1.0).reshape(leading)

    def variances(self, gradients: np.ndarray) -> np.ndarray:
        """Return the variances (...) of functions with the given `gradients` (..., K, 1 + size).

        Gradients are with respect to the coefficients. The variance is nan if the function changes
        along an unidentified direction.
        """
        leading = gradients.shape[:-2]
        # (functions, blocks, coefficients of a block)
        by_block = gradients.reshape(-1, len(self.blocks), self.blocks[0].shape[0])
        variance, largest_change = np.zeros((2, len(by_block)))
        for k, (block, flat) in enumerate(zip(self.blocks, self.flat, strict=True)):
            variance += ((by_block[:, k] @ block) * by_block[:, k]).sum(axis=1)
            largest_change = np.maximum(
                largest_change, np.abs(by_block[:, k] @ flat).max(axis=1, initial=0.0)
            )
        return np.where(largest_change > HARMLESS, np.nan, np.maximum(variance, 0.0)).reshape(
            leading
        )

    def directions(self, gradients: np.ndarray) -> np.ndarray:
        """Return the directions ``V g / sqrt(g' V g)`` (..., K, 1 + size) of the coefficients for
        functions with the given `gradients` (..., K, 1 + size); zero where the variance is zero.

        These are the least favourable directions, i.e. the most plausible of all changes in the
        coefficients that change a function by one standard error.
        """
        by_block = gradients.reshape(-1, len(self.blocks), self.blocks[0].shape[0])
        moves = np.stack([by_block[:, k] @ block for k, block in enumerate(self.blocks)], axis=1)
        variances = np.maximum((moves * by_block).sum(axis=(1, 2)), 0.0)
        scale = np.sqrt(np.where(variances > 0.0, variances, np.inf))
        return (moves / scale[:, None, None]).reshape(gradients.shape)


def score_covariance(
    sample: Sample,
    estimate: Estimate,
    engine: Engine,
    has_fixed_shares: bool,
    survey: SurveySample | None = None,
    is_sample: bool = False,
    expansion: np.ndarray | None = None,
) -> ScoreCovariance:
    """Return the covariance of all groups' coefficients in a fit.

    Parameters
    ----------
    sample : Sample
        Training rows of all groups.
    estimate : Estimate
    engine : Engine
    has_fixed_shares : bool
        Whether the class proportions are specified by the user instead of estimated from the rows.
    survey : SurveySample, optional
        The sampling design of the rows.
    is_sample : bool, default False
        Whether `sample` is a random sample of the training rows; see `bbl.rows.kept.KeptRows`.
    expansion : ndarray, shape (n,), optional
        The inverse probability of each row of a sample, for joint fits.

    Raises
    ------
    OptionError
        If the method has no standard errors, or ln Z is not exact.
    """
    if not engine.joint:
        _check_log_z(estimate, engine)
    if survey is not None:
        return _covariance_under_design(sample, estimate, engine, has_fixed_shares, survey)
    if estimate.location is not None:
        return _covariance_with_numbers(sample, estimate, engine, has_fixed_shares, is_sample)
    if engine.joint:
        return _covariance_of_joint_fit(
            sample, estimate, engine, has_fixed_shares, expansion if is_sample else None
        )
    return _covariance_of_groups(sample, estimate, engine, has_fixed_shares, is_sample)


def _check_log_z(estimate: Estimate, engine: Engine) -> None:
    """Raise an OptionError if the covariance or the gradient of ln Z is not available."""
    engine.check_equations()
    if estimate.log_z_kind != "exact":
        raise OptionError(
            f"ln Z of this fit is an approximation (log_z={estimate.log_z_kind!r}) with unknown "
            "error.",
            argument="se",
            hint="Use se='bootstrap', or fit with log_z='exact' if the model is small enough.",
        )


def _covariance_of_groups(
    sample: Sample,
    estimate: Estimate,
    engine: Engine,
    has_fixed_shares: bool,
    is_sample: bool,
) -> ScoreCovariance:
    """Return `score_covariance` for groups that were fitted separately.

    The covariance of a group's parameters is taken from the fit, and the derivatives of ln Z are
    the moments of the model. The log class proportion has variance ``1 / n_g``, as for a Poisson
    count. The variances of probabilities are then the same as for multinomial proportions, because
    probabilities do not change if the scores of all groups are shifted equally.
    """
    layout = estimate.parameters.layout
    theta = estimate.parameters.theta
    check_memory(
        8.0 * float(layout.size) ** 2, f"A covariance of {layout.size} parameters", "Use se=False."
    )
    blocks = []
    flat = []
    unbounded = set()
    for g, group_theta in enumerate(theta):
        rows = sample.group(g)
        if not rows.n:  # its probability is zero for any parameters
            blocks.append(np.zeros((1 + layout.size, 1 + layout.size)))
            flat.append(np.zeros((1 + layout.size, 0)))
            continue
        group_layout = layout.of_group(g)
        site_theta = estimate.fits[g].site_theta
        merged_rows = rows.collapsed(layout.n_levels)
        influence, fitted_rows = (
            engine.influence_at(merged_rows, group_layout, group_theta, site_theta)
            if is_sample
            else engine.influence(merged_rows, group_layout, site_theta)
        )
        unbounded |= _unbounded_levels(influence)
        # Unidentified parameters are held fixed, so that the others represent estimable functions;
        # also returns the directions (size, d) along which the fit does not change.
        influence, undetermined_directions = influence.of_combinations()
        covariance = influence.covariance(fitted_rows)
        is_known = np.isfinite(covariance.diagonal())
        covariance = np.where(is_known[:, None] & is_known, covariance, 0.0)
        jacobian = _jacobian(group_layout, group_theta)
        block = jacobian @ covariance @ jacobian.T
        block[0, 0] += 0.0 if has_fixed_shares else 1.0 / rows.total
        blocks.append(block)
        flat.append(_flat_directions(jacobian, undetermined_directions, is_known))
    return ScoreCovariance(blocks, flat, engine.errors, frozenset(unbounded))


def _unbounded_levels(influence: RowInfluence) -> set[tuple[int, int]]:
    """Return the levels with parameters that are unidentified only because states do not occur."""
    if influence.determined.all():
        return set()
    return influence.layout.levels_of(
        ~influence.determined & determined_by_states(influence.layout)
    )


def _unit_vectors(is_determined: np.ndarray) -> np.ndarray:
    """Return unit vectors (p, d) for the d unidentified coefficients among all p coefficients."""
    return np.eye(is_determined.size)[:, ~is_determined.ravel()]


def _jacobian(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the Jacobian (1 + size, size) of a group's coefficients in terms of its parameters."""
    return np.vstack([-moments(layout, theta), np.eye(layout.size)])


def _flat_directions(
    jacobian: np.ndarray, directions: np.ndarray, is_known: np.ndarray
) -> np.ndarray:
    """Return directions (1 + size, d) of coefficients along which a group's fit does not change.

    These are the given `directions` (size, .) of the parameters, converted by the `jacobian`, and
    the parameters without a covariance.
    """
    return np.hstack([jacobian @ directions, _unit_vectors(np.append(True, is_known))])


def _covariance_of_joint_fit(
    sample: Sample,
    estimate: Estimate,
    engine: Engine,
    has_fixed_shares: bool,
    expansion: np.ndarray | None,
) -> ScoreCovariance:
    """Return `score_covariance` for joint fits of P(group | row).

    If class proportions are specified, they replace the observed proportions by a shift of the
    intercepts. Because the covariance between the intercept of group g and its log proportion is
    ``1 / n_g``, the variance of the shifted intercept is the fitted variance minus ``1 / n_g``
    (Prentice & Pyke 1979).
    """
    layout = estimate.parameters.layout
    K = len(estimate.parameters.theta)
    traits = cast(JointTraits, engine.joint)
    if engine.penalised:
        rows = sample.pooled.collapsed(layout.n_levels)
        traits.check_differences(engine, rows.n)
        # fitted probabilities (n, K), without the calibration
        p = np.exp(log_probabilities(replace(estimate, calibration=None).class_scores(rows.codes)))
        # covariance (K, 1 + size, K, 1 + size), and which coefficients (1 + size,) are estimable
        covariance, is_determined = traits.coefficients(engine, rows.codes, rows.weights, p, layout)
        determined = np.tile(is_determined, (K, 1))
        for g in range(K):
            determined[g, 1:] &= occurring(sample.group(g), layout)
        flat = _unit_vectors(determined)
        unbounded = set()
        note = (
            "Standard errors from the penalised multinomial information. They reflect variance "
            "but not bias."
        )
    else:
        start = estimate.coefficients
        influence = (
            traits.maximum(engine, sample, layout, K, start)
            if expansion is None
            else traits.maximum_of_sample(engine, sample, layout, K, start, expansion)
        )
        # (K, 1 + size, K, 1 + size); (K, 1 + size, d), as `ScoreCovariance.flat`; levels
        covariance = influence.covariance()
        flat = influence.flat
        unbounded = influence.unbounded
        note = engine.errors
    block = covariance.reshape(K * (1 + layout.size), -1)
    if has_fixed_shares:
        intercepts = np.arange(K) * (1 + layout.size)
        totals = sample.group_totals(K)
        block[intercepts, intercepts] -= np.divide(1.0, totals, out=np.zeros(K), where=totals > 0.0)
    return ScoreCovariance(
        [block], [flat.reshape(K * (1 + layout.size), -1)], note, frozenset(unbounded)
    )


def _covariance_with_numbers(
    sample: Sample,
    estimate: Estimate,
    engine: Engine,
    has_fixed_shares: bool,
    is_sample: bool,
) -> ScoreCovariance:
    """Return `score_covariance` for groups with numeric predictors.

    The parameters of the numeric predictors follow the parameters of the other predictors. The
    covariance is a sum over rows of products of influences, which is valid even if numeric
    predictors are not normally distributed. Groups with a common covariance matrix are not
    independent.
    """
    from scipy.linalg import block_diag

    location = cast(Location, estimate.location)
    chosen = location.model.categories
    of_levels = estimate.only(chosen)
    layout = of_levels.parameters.layout
    theta = of_levels.parameters.theta
    K = len(theta)
    of_numbers = LocationInfluence(location)
    n_own = 1 + layout.size + len(of_numbers.coefficients[0])  # all but the covariances
    n_coefficients = 1 + layout.size + of_numbers.size
    is_shared = location.model.covariance == "shared"
    check_memory(
        8.0 * (1 + (K - 1) * is_shared) ** 2 * float(n_coefficients) ** 2 * K,
        f"A covariance of {K * n_coefficients} coefficients",
        "Use se=False.",
    )
    n_blocks = 1 if is_shared else K
    size = K * n_coefficients // n_blocks
    blocks = [np.zeros((size, size)) for _ in range(n_blocks)]
    # for few rows only: with more, t distributions are normal ones
    keeps_influences = sample.n <= MAX_ROWS_OF_DF
    influences: list[list[np.ndarray]] = [[] for _ in range(n_blocks)]
    row_weights: list[list[np.ndarray]] = [[] for _ in range(n_blocks)]
    flat = []
    unbounded = set()
    for g in range(K):
        rows = sample.group(g)
        group_flat = np.zeros((n_coefficients, 0))
        if rows.n:
            levels = location.model.without_numbers(rows)
            group_layout = layout.of_group(g)
            of_levels_flat = np.zeros((1, 0))
            if layout.size:
                site_theta = of_levels.fits[g].site_theta
                merged_rows = levels.collapsed(layout.n_levels)
                influence, _ = (
                    engine.influence_at(merged_rows, group_layout, theta[g], site_theta)
                    if is_sample
                    else engine.influence(merged_rows, group_layout, site_theta)
                )
                unbounded |= {(int(chosen[i]), code) for i, code in _unbounded_levels(influence)}
                influence, directions = influence.of_combinations()
                jacobian = _jacobian(group_layout, theta[g])
                of_levels_flat = _flat_directions(jacobian, directions, influence.determined)
            for block, level_block in zip(rows.blocks(), levels.blocks(), strict=True):
                own = np.zeros((block.n, n_own))
                if layout.size:
                    of_rows = influence(level_block) / influence.total
                    own[:, : 1 + layout.size] = of_rows @ jacobian.T
                own[:, 0] += 0.0 if has_fixed_shares else 1.0 / rows.total
                own[:, 1 + layout.size :] = of_numbers.coefficient_influences(block.codes, g)
                shared = of_numbers.covariance_influences(block.codes, g)
                E = np.zeros((block.n, size))
                first = g * n_coefficients if is_shared else 0
                E[:, first : first + n_own] = own
                for h in range(K) if is_shared else (g,):
                    stop = (h + 1) * n_coefficients if is_shared else n_coefficients
                    E[:, stop - shared.shape[1] : stop] = shared
                k = 0 if is_shared else g
                blocks[k] += E.T @ (E * block.weights[:, None])
                if keeps_influences:
                    influences[k].append(E)
                    row_weights[k].append(block.weights)
            group_flat = block_diag(of_levels_flat, of_numbers.directions(g))
        if is_shared:
            before = g * n_coefficients
            group_flat = np.pad(group_flat, ((before, size - before - n_coefficients), (0, 0)))
        flat.append(group_flat)
    if is_shared:
        flat = [np.hstack(flat)]
    if not keeps_influences:
        return ScoreCovariance(blocks, flat, ROBUST, frozenset(unbounded))
    return ScoreCovariance(
        blocks,
        flat,
        f"{ROBUST} t distributions.",
        frozenset(unbounded),
        influences=tuple(np.vstack([np.zeros((0, size)), *parts]) for parts in influences),
        row_weights=tuple(np.concatenate([np.zeros(0), *parts]) for parts in row_weights),
    )


def _covariance_under_design(
    sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool, survey: SurveySample
) -> ScoreCovariance:
    """Return `score_covariance` under a sampling design, where all groups are dependent.

    The covariance is ``E'E``, where the deviations E (u, K (1 + size)) of all coefficients have a
    row for each cluster or replicate; see `bbl.boltzmann.inference.survey`. The parameters of
    numeric predictors follow the parameters of the other predictors.
    """
    from scipy.linalg import block_diag

    location = estimate.location
    of_numbers = None if location is None else LocationInfluence(location)
    n_of_numbers = 0 if of_numbers is None else of_numbers.size
    chosen = np.arange(estimate.parameters.layout.m)
    if location is not None:
        chosen = location.model.categories
        estimate = estimate.only(chosen)
    layout = estimate.parameters.layout
    theta = estimate.parameters.theta
    K = len(theta)
    n_coefficients = 1 + layout.size + n_of_numbers
    check_memory(  # three such matrices with 8 bytes per entry
        24.0 * float(K * n_coefficients) ** 2,
        f"A covariance of {K * n_coefficients} coefficients",
        "Use fewer predictors or se=False.",
    )
    traits = engine.joint
    deviations = []
    flat = []
    unbounded = set()
    if traits:
        fit_unpenalised = partial(
            traits.maximum, engine, layout=layout, K=K, start=estimate.coefficients
        )
        influence = fit_unpenalised(sample)
        # for each group (u, 1 + size)
        deviations = [
            *joint_deviations(influence, fit_unpenalised, sample, survey).transpose(1, 0, 2)
        ]
        flat = [influence.flat.reshape(K * n_coefficients, -1)]
        unbounded = influence.unbounded
    if of_numbers is not None:  # (u, K, d)
        number_deviations = location_deviations(of_numbers, sample, survey)
    # separately fitted groups: add all deviations; joint fits: only for given class proportions
    for g, group_theta in enumerate(theta):
        in_group = sample.response == g
        # the design restricted to the rows of the group
        rows = sample.group(g)
        domain = survey.of_group(in_group)
        group_layout = layout.of_group(g)
        log_share_deviations = share_deviations(rows, domain)
        if traits:
            if has_fixed_shares:
                # given proportions replace the observed ones
                deviations[g][:, :1] -= log_share_deviations
            continue
        if location is not None:
            rows = location.model.without_numbers(rows)
        own = np.zeros((len(log_share_deviations), 1 + layout.size))
        group_flat = np.zeros((1, 0))
        if layout.size:
            row_influence, _ = engine.influence(
                rows.collapsed(layout.n_levels), group_layout, estimate.fits[g].site_theta
            )
            unbounded |= {(int(chosen[i]), code) for i, code in _unbounded_levels(row_influence)}
            # as in `_covariance_of_groups`
            row_influence, undetermined_directions = row_influence.of_combinations()
            theta_deviations = penalised_deviations(
                row_influence, rows, group_theta, engine, domain
            )
            is_known = row_influence.determined & np.isfinite(theta_deviations).all(axis=0)
            theta_deviations[:, ~is_known] = 0.0
            jacobian = _jacobian(group_layout, group_theta)
            own = theta_deviations @ jacobian.T
            group_flat = _flat_directions(jacobian, undetermined_directions, is_known)
        own[:, :1] += 0.0 if has_fixed_shares else log_share_deviations
        if of_numbers is not None:
            own = np.hstack([own, number_deviations[:, g]])
            group_flat = block_diag(group_flat, of_numbers.directions(g))
        deviations.append(own)
        # zeros for the coefficients of the other groups
        flat.append(
            np.pad(group_flat, ((g * n_coefficients, (K - 1 - g) * n_coefficients), (0, 0)))
        )
    E = np.hstack(deviations)
    note = f"{survey.errors}: t distribution."
    return ScoreCovariance([E.T @ E], [np.hstack(flat)], note, frozenset(unbounded), survey.df)


def moments(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the means (size,) of a model's indicators, which are the gradient of ln Z.

    Predictors that are not connected by a term or a structural zero are independent, so each
    connected component is summed separately. Components with structural zeros are summed over all
    of their states, and other components along a junction tree.
    """
    means = np.empty(layout.size)
    # `positions` are the positions of its parameters in the whole vector
    for component in components(layout):
        if component.layout.support is not None:
            table = StateTable(component.layout)
            _, p = table.log_partition(theta[component.positions])  # of all states
            means[component.positions] = table.moments(p)
            continue
        elimination_order = tree_order(component.layout)
        if elimination_order is None:
            raise OptionError(
                "Computing the moments of the model would require sums over too many table cells.",
                argument="se",
                hint="Use se='bootstrap'.",
            )
        tree = JunctionTree(component.layout, elimination_order)
        means[component.positions] = tree.moments(tree.margins(theta[component.positions]))
    return means
