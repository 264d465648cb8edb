"""Covariance of the coefficients of class scores: intercepts (class shares and ln Z) and parameters
of all groups.

There are K groups of `size` parameters each. The *intercept* of group g is ``ln p_g - ln Z_g``, of
its class share p_g and the normalising constant Z_g of its model; its 1 + size *coefficients* are
the intercept and the parameters. Probabilities of groups depend on differences between groups
alone. ``engine.joint`` holds the functions (`JointTraits`) of an engine that fits all groups
together; it is None for engines that fit them one by one. ``engine.errors`` is a sentence on where
standard errors come from. ``estimate.parameters.theta`` (K, size) are the fitted parameters.

With the covariance C (size, size) of a group's parameters and the Jacobian J (1 + size, size) of
its coefficients by them, whose first row is ``-d ln Z / d theta``, the coefficients have the
covariance ``J C J'``. The *influence* of a row on a fit is the derivative of the parameters by the
row's weight. A `RowInfluence` has the mask `determined` (size,) of parameters that rows, or a
penalty, determine, and ``covariance(rows)`` (size, size), not finite for the others.
``of_combinations()`` returns a `RowInfluence` for the functions of parameters that rows do
determine, and directions (size, d) along which parameters can move without a change of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.covariance import occurring
from bbl.boltzmann.inference.survey import joint_deviations, penalised_deviations, share_deviations
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
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities
from bbl.stats.survey.sample import SurveySample

__all__ = ["ScoreCovariance", "moments", "score_covariance"]

# Derivative of a function in a direction that rows do not determine, up to which the function
# counts as determined.
HARMLESS = 1e-6


@dataclass(frozen=True)
class ScoreCovariance:
    """Covariance of the coefficients of K groups.

    Attributes
    ----------
    blocks : list of ndarray, shape (1 + size, 1 + size)
        Covariance of each group's coefficients, if the groups are independent; one of shape (K (1 +
        size), K (1 + size)) if they are not.
    flat : list of ndarray, shape (1 + size, d)
        For each block, d directions in which the coefficients can move without loss of fit, or move
        without end as the fit improves. The block is then the covariance with some coefficients
        fixed, at values that fit as well.
    note : str
        What the standard errors are, in a sentence.
    unbounded : frozenset of (int, int)
        Levels, as (predictor, code), of parameters for which the rows determine no finite value,
        although rows in all states that can occur would.
    df : float
        Degrees of freedom of a t distribution; infinite without a sampling design.
    """

    blocks: list[np.ndarray]
    flat: list[np.ndarray]
    note: str
    unbounded: frozenset[tuple[int, int]] = frozenset()
    df: float = np.inf

    def variances(self, gradients: np.ndarray) -> np.ndarray:
        """Return the variances (...) of functions whose derivatives by the coefficients are
        `gradients`.

        `gradients` has shape (..., K, 1 + size). A variance is nan where its function changes in a
        direction that the rows do not determine.
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


def score_covariance(
    sample: Sample,
    estimate: Estimate,
    engine: Engine,
    has_fixed_shares: bool,
    survey: SurveySample | None = None,
) -> ScoreCovariance:
    """Return the covariance of the coefficients of all groups of a fit.

    Parameters
    ----------
    sample : Sample
        Training rows of all groups.
    estimate : Estimate
    engine : Engine
    has_fixed_shares : bool
        Whether the class shares are given numbers, not those of the rows.
    survey : SurveySample, optional
        The sampling design of the rows.

    Raises
    ------
    OptionError
        If the method has no standard errors, or ln Z is not exact.
    """
    if not engine.joint:
        _check_log_z(estimate, engine)
    if survey is not None:
        return _covariance_under_design(sample, estimate, engine, has_fixed_shares, survey)
    if engine.joint:
        return _covariance_of_joint_fit(sample, estimate, engine, has_fixed_shares)
    return _covariance_of_groups(sample, estimate, engine, has_fixed_shares)


def _check_log_z(estimate: Estimate, engine: Engine) -> None:
    """Raise an OptionError if groups that were fitted one by one have no covariance, or no
    derivatives of ln Z.
    """
    engine.check_equations()
    if estimate.log_z_kind != "exact":
        raise OptionError(
            f"ln Z of the fit is approximate (log_z={estimate.log_z_kind!r}), with unknown error.",
            argument="se",
            hint="Give se='bootstrap', or fit with log_z='exact' if the model is small enough.",
        )


def _covariance_of_groups(
    sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool
) -> ScoreCovariance:
    """Return `score_covariance` of groups that were fitted one by one.

    The parameters of a group have the covariance of the fit. The derivatives of ln Z are the
    moments of the model. The logarithm of the group's share has the variance ``1 / n_g`` of a
    Poisson count: probabilities then have the same variance as with multinomial shares, because
    they do not change if the scores of all groups shift alike.
    """
    layout = estimate.parameters.layout
    theta = estimate.parameters.theta
    check_memory(
        8.0 * float(layout.size) ** 2, f"A covariance of {layout.size} parameters", "Give se=False."
    )
    blocks = []
    flat = []
    unbounded = set()
    for g, group_theta in enumerate(theta):
        rows = sample.group(g)
        if not rows.n:  # its probability is zero whatever the parameters are
            blocks.append(np.zeros((1 + layout.size, 1 + layout.size)))
            flat.append(np.zeros((1 + layout.size, 0)))
            continue
        group_layout = layout.of_group(g)
        influence, fitted_rows = engine.influence(
            rows.collapsed(layout.n_levels), group_layout, estimate.fits[g].site_theta
        )
        unbounded |= _unbounded_levels(influence)
        # undetermined parameters are fixed, so that the others stand for functions of all that rows
        # determine; and directions (size, d) along which the fit does not change
        influence, undetermined_directions = influence.of_combinations()
        covariance = influence.covariance(fitted_rows)
        is_known = np.isfinite(covariance.diagonal())
        covariance = np.where(is_known[:, None] & is_known, covariance, 0.0)
        # derivatives (1 + size, size) of the coefficients by the parameters
        jacobian = np.vstack([-moments(group_layout, group_theta), np.eye(layout.size)])
        block = jacobian @ covariance @ jacobian.T
        block[0, 0] += 0.0 if has_fixed_shares else 1.0 / rows.total
        blocks.append(block)
        flat.append(
            np.hstack(
                [jacobian @ undetermined_directions, _unit_vectors(np.append(True, is_known))]
            )
        )
    return ScoreCovariance(blocks, flat, engine.errors, frozenset(unbounded))


def _unbounded_levels(influence: RowInfluence) -> set[tuple[int, int]]:
    """Return the levels of parameters that rows do not determine, but states which can occur
    would.
    """
    if influence.determined.all():
        return set()
    return influence.layout.levels_of(
        ~influence.determined & determined_by_states(influence.layout)
    )


def _unit_vectors(is_determined: np.ndarray) -> np.ndarray:
    """Return unit vectors (p, d) in the directions of the d coefficients, of p, that are not
    determined.
    """
    return np.eye(is_determined.size)[:, ~is_determined.ravel()]


def _covariance_of_joint_fit(
    sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool
) -> ScoreCovariance:
    """Return `score_covariance` of groups that were fitted together, to P(group | row).

    Class shares that are given replace those of the rows by a shift of the intercepts. As the
    covariance of the intercept of group g with the logarithm of its share is ``1 / n_g``, the
    shifted intercept has the variance of the fitted one less ``1 / n_g`` (Prentice & Pyke 1979).
    """
    layout = estimate.parameters.layout
    K = len(estimate.parameters.theta)
    traits = cast(JointTraits, engine.joint)
    if engine.penalised:
        rows = sample.pooled.collapsed(layout.n_levels)
        traits.check_differences(engine, rows.n)
        # fitted probabilities (n, K), without the calibration
        p = np.exp(log_probabilities(replace(estimate, calibration=None).class_scores(rows.codes)))
        # covariance (K, 1 + size, K, 1 + size), and which coefficients (1 + size,) the rows of all
        # groups determine
        covariance, is_determined = traits.coefficients(engine, rows.codes, rows.weights, p, layout)
        determined = np.tile(is_determined, (K, 1))
        for g in range(K):
            determined[g, 1:] &= occurring(sample.group(g), layout)
        flat = _unit_vectors(determined)
        unbounded = set()
        note = (
            "Standard errors from the penalised multinomial information; they reflect variance, "
            "not bias."
        )
    else:
        influence = traits.maximum(engine, sample, layout, K, estimate.coefficients)
        # (K, 1 + size, K, 1 + size); (K, 1 + size, d), as `ScoreCovariance.flat`; levels
        covariance = influence.covariance()
        flat = influence.flat
        unbounded = influence.unbounded
        note = engine.errors
    block = covariance.reshape(K * (1 + layout.size), -1).copy()
    if has_fixed_shares:
        intercepts = np.arange(K) * (1 + layout.size)
        totals = sample.group_totals(K)
        block[intercepts, intercepts] -= np.divide(1.0, totals, out=np.zeros(K), where=totals > 0.0)
    return ScoreCovariance(
        [block], [flat.reshape(K * (1 + layout.size), -1)], note, frozenset(unbounded)
    )


def _covariance_under_design(
    sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool, survey: SurveySample
) -> ScoreCovariance:
    """Return `score_covariance` under a sampling design, by which estimates of all groups are
    dependent.

    The covariance is ``E'E`` of the deviations E (u, K (1 + size)) of all coefficients, one row for
    each cluster or replicate of the design; see `bbl.boltzmann.inference.survey`.
    """
    layout = estimate.parameters.layout
    theta = estimate.parameters.theta
    K = len(theta)
    n_coefficients = 1 + layout.size
    check_memory(  # room for three such matrices, 8 bytes an entry
        24.0 * float(K * n_coefficients) ** 2,
        f"A covariance of {K * n_coefficients} coefficients",
        "Fit fewer predictors, or se=False.",
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
        # of each group (u, 1 + size)
        deviations = [
            *joint_deviations(influence, fit_unpenalised, sample, survey).transpose(1, 0, 2)
        ]
        flat = [influence.flat.reshape(K * n_coefficients, -1)]
        unbounded = influence.unbounded
    # of each group: all deviations if it was fitted by itself; of a joint fit only the shares are
    # left to put in
    for g, group_theta in enumerate(theta):
        in_group = sample.response == g
        # domain: the design, of which the rows of the group are used
        rows = sample.group(g)
        domain = survey.of_group(in_group)
        group_layout = layout.of_group(g)
        log_share_deviations = share_deviations(rows, domain)
        if traits:
            if has_fixed_shares:
                # given shares replace those of the rows
                deviations[g][:, :1] -= log_share_deviations
            continue
        row_influence, _ = engine.influence(
            rows.collapsed(layout.n_levels), group_layout, estimate.fits[g].site_theta
        )
        unbounded |= _unbounded_levels(row_influence)
        # as in `_covariance_of_groups`
        row_influence, undetermined_directions = row_influence.of_combinations()
        theta_deviations = penalised_deviations(row_influence, rows, group_theta, engine, domain)
        is_known = row_influence.determined & np.isfinite(theta_deviations).all(axis=0)
        theta_deviations[:, ~is_known] = 0.0
        # derivatives (1 + size, size) of the coefficients by the parameters
        jacobian = np.vstack([-moments(group_layout, group_theta), np.eye(layout.size)])
        deviations.append(theta_deviations @ jacobian.T)
        deviations[g][:, :1] += 0.0 if has_fixed_shares else log_share_deviations
        group_flat = np.hstack(
            [jacobian @ undetermined_directions, _unit_vectors(np.append(True, is_known))]
        )
        # zeros for the coefficients of the groups before and after
        flat.append(
            np.pad(group_flat, ((g * n_coefficients, (K - 1 - g) * n_coefficients), (0, 0)))
        )
    E = np.hstack(deviations)
    note = f"{engine.errors} They account for the sampling design ({survey.text}): t distribution."
    return ScoreCovariance([E.T @ E], [np.hstack(flat)], note, frozenset(unbounded), survey.df)


def moments(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the mean (size,) of the indicator of each parameter in a model, which is the gradient
    of its ln Z.

    Predictors that no term and no structural zero connects are independent: each connected
    component is summed alone, over all its states if it has structural zeros, else along a junction
    tree.
    """
    means = np.empty(layout.size)
    # `positions` are those of its parameters in the vector of the whole model
    for component in components(layout):
        if component.layout.support is not None:
            table = StateTable(component.layout)
            _, p = table.log_partition(theta[component.positions])  # of all states
            means[component.positions] = table.moments(p)
            continue
        elimination_order = tree_order(component.layout)
        if elimination_order is None:
            raise OptionError(
                "The moments of the model would need sums over too many table cells.",
                argument="se",
                hint="Give se='bootstrap'.",
            )
        tree = JunctionTree(component.layout, elimination_order)
        means[component.positions] = tree.moments(tree.margins(theta[component.positions]))
    return means
