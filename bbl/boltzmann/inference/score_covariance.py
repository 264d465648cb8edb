"""Covariance of the coefficients of class scores: intercepts (class shares and ln Z) and parameters of all groups.

K groups of `size` parameters. The *intercept* of group g is ``ln p_g - ln Z_g``, its *coefficients* are intercept and
parameters. Probabilities of groups depend on differences between groups alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.inference.covariance import full_covariance, occurring
from bbl.engines import Engine
from bbl.engines.likelihood.components import components
from bbl.engines.likelihood.solve import tree_order
from bbl.engines.likelihood.tree import JunctionTree
from bbl.engines.traits import JointTraits
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.rows.sample import Sample
from bbl.stats.scores import log_probabilities

__all__ = ["ScoreCovariance", "moments", "score_covariance"]

HARMLESS = 1e-6  # derivative by a coefficient that rows do not determine, up to which it does not matter


@dataclass(frozen=True)
class ScoreCovariance:
    """Covariance of the coefficients of K groups.

    Attributes
    ----------
    blocks : list of ndarray, shape (1 + size, 1 + size)
        Covariance of each group's coefficients, if the groups are independent; one of shape (K (1 + size), K (1 +
        size)) if they are not.
    determined : ndarray of bool, shape (K, 1 + size)
        Whether the rows determine a coefficient, with a finite value; others have a covariance of zero.
    note : str
        What the standard errors are, in a sentence.
    """

    blocks: list[np.ndarray]
    determined: np.ndarray
    note: str

    def variances(self, gradients: np.ndarray) -> np.ndarray:
        """Return the variances (...) of functions with `gradients` (..., K, 1 + size) by the coefficients.

        Not a number where a function depends on a coefficient that the rows do not determine.
        """
        leading = gradients.shape[:-2]
        flat = gradients.reshape(-1, self.determined.size)
        width, variance = self.determined.size // len(self.blocks), np.zeros(len(flat))
        for k, block in enumerate(self.blocks):
            part = flat[:, k * width : (k + 1) * width]
            variance += ((part @ block) * part).sum(axis=1)
        undetermined = np.abs(flat[:, ~self.determined.ravel()]).max(axis=1, initial=0.0)
        return np.where(undetermined > HARMLESS, np.nan, np.maximum(variance, 0.0)).reshape(leading)


def score_covariance(sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool) -> ScoreCovariance:
    """Return the covariance of the coefficients of all groups of a fit.

    Parameters
    ----------
    sample : Sample
        Training rows of all groups.
    estimate : Estimate
    engine : Engine
    has_fixed_shares : bool
        Whether the class shares are given numbers, not those of the rows.

    Raises
    ------
    OptionError
        If the method has no standard errors, or ln Z is not exact.
    """
    if engine.joint:
        return _of_joint_fit(sample, estimate, engine, has_fixed_shares)
    return _of_groups(sample, estimate, engine, has_fixed_shares)


def _of_groups(sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool) -> ScoreCovariance:
    """Return `score_covariance` of groups that were fitted one by one.

    The parameters of a group have the covariance of the fit, its ln Z the moments of the model as derivatives, and the
    logarithm of its share the variance ``1 / n_g`` of a Poisson count: probabilities have the same variance as with
    multinomial shares, because what moves the scores of all groups alike does not change them.
    """
    engine.check_equations()
    if estimate.log_z_kind != "exact":
        raise OptionError(
            f"The fit has an approximate ln Z (log_z={estimate.log_z_kind!r}), whose error is not known. Give "
            "se='bootstrap', or fit with log_z='exact' if the model is small enough.",
            argument="se",
        )
    layout, theta = estimate.parameters.layout, estimate.parameters.theta
    blocks, determined = [], np.ones((len(theta), 1 + layout.size), dtype=bool)
    for g, group_theta in enumerate(theta):
        rows = sample.group(g)
        if not rows.n:  # its probability is zero whatever the parameters are
            blocks.append(np.zeros((1 + layout.size, 1 + layout.size)))
            continue
        covariance = full_covariance(rows, layout, engine)
        is_known = np.isfinite(covariance.diagonal())
        determined[g, 1:] = is_known
        covariance = np.where(is_known[:, None] & is_known, covariance, 0.0)
        jacobian = np.vstack([-moments(layout, group_theta), np.eye(layout.size)])
        block = jacobian @ covariance @ jacobian.T
        block[0, 0] += 0.0 if has_fixed_shares else 1.0 / rows.total
        blocks.append(block)
    return ScoreCovariance(blocks, determined, engine.errors)


def _of_joint_fit(sample: Sample, estimate: Estimate, engine: Engine, has_fixed_shares: bool) -> ScoreCovariance:
    """Return `score_covariance` of groups that were fitted together, to P(group | row).

    Given class shares replace those of the rows by a shift of the intercepts. The covariance of the intercept of a
    group with the logarithm of its share is then ``1 / n_g``, which leaves the variance of the intercept less that
    number (Prentice & Pyke 1979).
    """
    layout, K = estimate.parameters.layout, len(estimate.parameters.theta)
    traits = cast(JointTraits, engine.joint)
    if engine.penalised:
        rows = sample.pooled.collapsed(layout.n_levels)
        traits.check_differences(engine, rows.n)
        p = np.exp(log_probabilities(replace(estimate, calibration=None).class_scores(rows.codes)))
        covariance, is_determined = traits.coefficients(engine, rows.codes, rows.weights, p, layout)
        determined = np.tile(is_determined, (K, 1))
        for g in range(K):
            determined[g, 1:] &= occurring(sample.group(g), layout)
        note = "Standard errors from the penalised multinomial information; they describe the spread, not the bias."
    else:
        influence = traits.maximum(engine, sample, layout, K)
        covariance = influence.covariance()
        determined = np.array([influence.determined(g, influence.reference) for g in range(K)])
        note = engine.errors
    block = covariance.reshape(K * (1 + layout.size), -1).copy()
    if has_fixed_shares:
        intercepts = np.arange(K) * (1 + layout.size)
        totals = sample.group_totals(K)
        block[intercepts, intercepts] -= np.divide(1.0, totals, out=np.zeros(K), where=totals > 0.0)
    return ScoreCovariance([block], determined, note)


def moments(layout: Layout, theta: np.ndarray) -> np.ndarray:
    """Return the mean (size,) of the indicator of each parameter in a model: the derivatives of its ln Z."""
    out = np.empty(layout.size)
    for component in components(layout):
        order = tree_order(component.layout)
        if order is None:
            raise OptionError(
                "The moments of the model would sum over too many table cells; give se='bootstrap'.", argument="se"
            )
        tree = JunctionTree(component.layout, order)
        out[component.positions] = tree.moments(tree.margins(theta[component.positions]))
    return out
