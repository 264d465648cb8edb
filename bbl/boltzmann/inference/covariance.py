"""Standard errors of all methods that have some, as plain arrays per parameter and table, and the bootstrap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.survey import penalised_deviations
from bbl.engines import Engine
from bbl.engines.traits import JointTraits
from bbl.memory import check_memory
from bbl.model.godambe import Influence, RowInfluence, TermCovariances, term_covariances
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.states import sample_states
from bbl.parallel import run_tasks
from bbl.rows.sample import Sample
from bbl.stats.scores import log_probabilities
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "Covariances",
    "bootstrap",
    "covariances",
    "difference_terms",
    "full_covariance",
    "occurring",
    "sandwich_of_shift",
]


@dataclass(frozen=True)
class Covariances:
    """Covariance of every table (fields of a predictor, couplings of a pair) of every group.

    Attributes
    ----------
    layout : Layout
    group : list of K lists of ndarray
        Covariance matrices of a group's tables: m of fields, then one per pair.
    shift : list of K lists of ndarray, or None
        The same for the difference from the pooled fit, which shares the group's rows.
    composite : list of K (float, float)
        Log pseudo-likelihood of the complete rows of each group, and its effective number of parameters; empty if the
        method has another likelihood.
    deviations : list of K ndarrays, shape (u, layout.size), or None
        Under a sampling design; see `bbl.boltzmann.inference.survey`.
    """

    layout: Layout
    group: list[list[np.ndarray]]
    shift: list[list[np.ndarray]] | None
    composite: list[tuple[float, float]]
    deviations: list[np.ndarray] | None = None

    def between(self, g: int, other: int) -> list[np.ndarray]:
        """Return the covariances of the difference of two groups, which share no rows, but may share clusters."""
        if self.deviations is not None:
            return _products(self.layout, self.deviations[g] - self.deviations[other])
        return [a + b for a, b in zip(self.group[g], self.group[other], strict=True)]

    def standard_errors(self, terms: list[np.ndarray]) -> np.ndarray:
        """Return the standard errors (layout.size,) of the tables `terms`."""
        return np.sqrt(np.concatenate([np.diag(t) for t in terms]))


Fitted = list[tuple[RowInfluence, Sample]]


def sandwich_of_shift(layout: Layout, groups: Fitted, pooled: RowInfluence) -> list[list[np.ndarray]]:
    """Return the covariances of every table of each group's difference from the pooled fit."""
    elsewhere, inside = [], []
    for influence, rows in groups:
        outside, difference = TermCovariances(layout), TermCovariances(layout)
        for (psi, weights), (pooled_psi, _) in zip(influence.blocks(rows), pooled.blocks(rows), strict=True):
            outside.add(pooled_psi, weights)
            difference.add(psi - pooled_psi, weights)
        elsewhere.append(outside.by_table())
        inside.append(difference.by_table())
    total = [sum(terms) for terms in zip(*elsewhere, strict=True)]
    # a row of the group moves both estimates, any other row the pooled one alone
    return [
        [a + t - b for a, t, b in zip(difference, total, outside, strict=True)]
        for difference, outside in zip(inside, elsewhere, strict=True)
    ]


def covariances(sample: Sample, estimate: Estimate, engine: Engine, survey: SurveySample | None = None) -> Covariances:
    """Return the covariances of all groups, and of their differences from the pooled fit if there is one.

    By the sampling design `survey` of the rows, if there is one.

    Raises
    ------
    OptionError
        If the method has no standard errors.
    """
    engine.check_equations()
    parameters: Parameters = estimate.parameters
    layout = parameters.layout
    if survey is not None:
        return _design_covariances(sample, parameters, engine, survey)

    def influence(rows: Sample, layout: Layout) -> tuple[RowInfluence, Sample]:
        return engine.influence(rows.collapsed(layout.n_levels), layout)

    parts = [sample.group(y) for y in range(len(parameters.theta))]
    groups = [influence(group_sample, layout.of_group(y)) for y, group_sample in enumerate(parts) if group_sample.n]
    group_terms, shift = [fitted.terms(rows) for fitted, rows in groups], None
    composite = [
        fitted.composite(rows if rows.complete else rows.complete_rows)
        for fitted, rows in groups
        if isinstance(fitted, Influence)
    ]
    if parameters.pooled is not None:
        shift = sandwich_of_shift(layout, groups, influence(sample.pooled, layout.of_pooled)[0])
        shift = _with_empty(parts, shift, [np.full_like(t, np.nan) for t in shift[0]])
    group_terms = _with_empty(parts, group_terms, [np.full_like(t, np.nan) for t in group_terms[0]])
    if composite:
        composite = _with_empty(parts, composite, (0.0, 0.0))
    return Covariances(layout, group_terms, shift, composite)


def _design_covariances(sample: Sample, parameters: Parameters, engine: Engine, survey: SurveySample) -> Covariances:
    """Return the covariances under a sampling design."""
    layout, shift = parameters.layout, None

    def deviations(rows: Sample, layout: Layout, theta: np.ndarray, domain: SurveySample) -> np.ndarray:
        influence, _ = engine.influence(rows.collapsed(layout.n_levels), layout)
        return penalised_deviations(influence, rows, theta, engine, domain)

    groups = [
        deviations(sample.group(g), layout.of_group(g), theta, survey.only(sample.response == g))
        for g, theta in enumerate(parameters.theta)
    ]
    if parameters.pooled is not None:
        pooled = deviations(sample.pooled, layout.of_pooled, parameters.pooled, survey)
        shift = [_products(layout, of_group - pooled) for of_group in groups]
    return Covariances(layout, [_products(layout, of_group) for of_group in groups], shift, [], groups)


def _products(layout: Layout, deviations: np.ndarray) -> list[np.ndarray]:
    """Return the covariance of every table from deviations (u, layout.size)."""
    return term_covariances(layout, [(deviations, np.ones(len(deviations)))])


def full_covariance(sample: Sample, layout: Layout, engine: Engine) -> np.ndarray:
    """Return the covariance (layout.size, layout.size) of all parameters of one group, from its rows."""
    check_memory(8.0 * float(layout.size) ** 2, f"A covariance of {layout.size} parameters", "See bse, or tests().")
    influence, rows = engine.influence(sample.collapsed(layout.n_levels), layout)
    return influence.covariance(rows)


def difference_terms(
    sample: Sample, estimate: Estimate, engine: Engine, pair: tuple[int, int]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the covariances of the difference of two jointly fitted groups by table, and which parameters have one.

    Returns
    -------
    terms : list of ndarray
        Covariance matrices of the m tables of fields, then of one of couplings per pair.
    given : ndarray of bool, shape (layout.size,)
        Parameters that rows of both groups determine: not the penalty, as where a level or a pair of levels never
        occurs in a group, or predictors are copies of others.

    Raises
    ------
    OptionError
        If the fit has none; see `JointTraits.check_differences`.
    """
    traits = cast(JointTraits, engine.joint)
    traits.check_differences(engine, sample.n)
    layout = estimate.parameters.layout
    codes, at = np.unique(sample.codes, axis=0, return_inverse=True)
    weights = np.bincount(at.ravel(), sample.weights, len(codes))
    p = np.exp(log_probabilities(replace(estimate, calibration=None).class_scores(codes)))
    covariance, tables, is_estimable = traits.difference(engine, codes, weights, p, layout, pair)
    terms = [
        tables[:, a:b].T @ covariance @ tables[:, a:b] for a, b in zip(layout.cuts[:-1], layout.cuts[1:], strict=True)
    ]
    for g in pair:
        is_estimable = is_estimable & occurring(sample.group(g), layout)
    return terms, is_estimable


def occurring(rows: Sample, layout: Layout) -> np.ndarray:
    """Return of which parameters (layout.size,) all levels, or pairs of levels, that they compare occur.

    Fields compare levels where the others, as far as they interact, have their reference level.
    """
    L = layout.n_levels.astype(int)
    occurs = []
    for i in range(layout.m):
        n = np.bincount(rows.codes[:, i], rows.weights, L[i]) > 0.0
        occurs.append(n[1:] & n[:1])
    for i, j in layout.pairs:
        cells = rows.codes[:, i].astype(np.intp) * L[j] + rows.codes[:, j]
        n = np.bincount(cells, rows.weights, L[i] * L[j]).reshape(L[i], L[j]) > 0.0
        occurs[i] &= n[1:, 0] & n[0, 0]
        occurs[j] &= n[0, 1:] & n[0, 0]
        occurs.append((n[1:, 1:] & n[1:, :1] & n[:1, 1:] & n[:1, :1]).ravel())
    return np.concatenate(occurs)


def _with_empty(parts: list[Sample], found: list, nothing: object) -> list:
    """Return one entry per group: the next of `found` for groups with rows, `nothing` for those without."""
    remaining = iter(found)
    return [next(remaining) if group_sample.n else nothing for group_sample in parts]


def bootstrap(
    sample: Sample, estimate: Estimate, engine: Engine, nboot: int, rng: np.random.Generator, workers: int
) -> np.ndarray:
    """Return refits (nboot, K, layout.size) to samples drawn from the fitted models, as large as the groups.

    The parametric bootstrap (Efron & Tibshirani 1993, section 6.5); each replicate has a generator of its own. What is
    missing in the data is missing in the replicates too.
    """
    layout = estimate.parameters.layout
    check_memory(
        8.0 * sample.total * layout.m, f"A bootstrap of {sample.total:.0f} observations", "Use inference() instead."
    )
    groups = [sample.group(y) for y in range(len(estimate.parameters.theta))]
    models = [(layout.of_group(y), *split(layout, theta)) for y, theta in enumerate(estimate.parameters.theta)]
    # of each group: the number of rows, and what is missing in each of them
    shapes = [(round(g.total), None if g.missing is None else np.repeat(g.missing, g.weights.astype(np.intp), axis=0))
              for g in groups]  # fmt: skip
    tasks = [(models, shapes, engine, stream) for stream in rng.spawn(nboot)]
    return np.array(run_tasks(_replicate, tasks, workers))


def _replicate(models: list, shapes: list, engine: Engine, rng) -> list[np.ndarray]:
    out = []
    for (layout, h, J, higher_terms), (total, missing) in zip(models, shapes, strict=True):
        codes = sample_states(h, J, layout.n_levels, total, rng, more=higher_terms, support=layout.support)
        if missing is not None:
            codes = np.where(missing, 0, codes).astype(codes.dtype)
        rows = engine.prepare(Sample(codes, np.ones(total), missing=missing).collapsed(layout.n_levels), layout)
        out.append(engine.fit(rows, layout, rng=rng).theta)
    return out
