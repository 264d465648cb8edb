"""Standard errors of parameters for all methods that provide them, and bootstrap refits.

K is the number of groups, m the number of predictors. A *table* consists of the fields of a
predictor, or the couplings of a pair. The *influence* of a row is the derivative of the fitted
parameters with respect to its weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.survey import penalised_deviations
from bbl.engines import Engine
from bbl.engines.traits import JointTraits
from bbl.errors import DataError
from bbl.memory import check_memory
from bbl.model.drawn_rows import error_rows, residuals_on_counts
from bbl.model.godambe import Influence, RowInfluence, TermCovariances, term_covariances
from bbl.model.higher import split
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.states import sample_states
from bbl.parallel import run_tasks
from bbl.rows.kept import KeptRows
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities
from bbl.stats.survey.sample import SurveySample

__all__ = [
    "Covariances",
    "bootstrap",
    "difference_terms",
    "full_covariance",
    "occurring",
    "sampled_terms",
    "sandwich_of_shift",
]


class Covariances:
    """Covariance of each table (fields of a predictor, couplings of a pair) for each group.

    Results are computed on first access and then cached.

    Parameters
    ----------
    sample : Sample
        The rows of all groups.
    estimate : Estimate
        The fit to these rows.
    engine : Engine
    survey : SurveySample, optional
        Sampling design of the rows. If given, design covariances are computed.
    kept : KeptRows, optional
        The same rows, if they are a random sample of the fitted rows.

    Raises
    ------
    OptionError
        If the method has no standard errors.
    """

    def __init__(
        self,
        sample: Sample,
        estimate: Estimate,
        engine: Engine,
        survey: SurveySample | None = None,
        kept: KeptRows | None = None,
    ):
        engine.check_equations()
        self._kept = kept
        self._sample = sample
        self._parameters: Parameters = estimate.parameters
        self._fits = estimate.fits
        self._engine = engine
        self._survey = survey
        self.layout = self._parameters.layout

    def _influence(
        self,
        rows: Sample,
        layout: Layout,
        site_theta: np.ndarray | None = None,
        theta: np.ndarray | None = None,
    ) -> tuple[RowInfluence, Sample]:
        """Return the influence of rows on their fit, and the rows in the form used for the fit.

        `theta` contains the fitted parameters, which are used if `rows` is a random sample.
        """
        if self._kept is not None and theta is not None:
            # equal rows are not merged, because each row has its own probability of being drawn
            return self._engine.influence_at(rows, layout, theta, site_theta)
        return self._engine.influence(rows.collapsed(layout.n_levels), layout, site_theta)

    @cached_property
    def _groups(self) -> list[tuple[RowInfluence, Sample] | None]:
        """The influence and the rows of each group, or None for groups without rows."""
        groups = [self._sample.group(g) for g in range(len(self._parameters.theta))]
        return [
            self._influence(
                rows,
                self.layout.of_group(g),
                self._fits[g].site_theta,
                self._parameters.theta[g],
            )
            if rows.n
            else None
            for g, rows in enumerate(groups)
        ]

    def _for_all_groups(self, results: Iterable, placeholder: object) -> list:
        """Return one of `results` for each group with rows, and `placeholder` for other groups."""
        remaining = iter(results)
        return [placeholder if group is None else next(remaining) for group in self._groups]

    @cached_property
    def group(self) -> list[list[np.ndarray]]:
        """Covariance matrices of each group's tables; nan for groups without rows.

        The matrices for the fields of the m predictors are followed by the matrices for the
        couplings of the pairs.
        """
        if self.deviations is not None:
            return [_covariance_by_table(self.layout, own) for own in self.deviations]
        if self._kept is not None:
            return [terms for terms, _ in self._sampled]
        terms = [group[0].terms(group[1]) for group in self._groups if group is not None]
        return self._for_all_groups(terms, [np.full_like(t, np.nan) for t in terms[0]])

    @cached_property
    def _sampled(self) -> list[tuple[list[np.ndarray], np.ndarray]]:
        """The values of `group` and `sampling_errors` if the rows are a random sample."""
        assert self._kept is not None  # noqa: S101  # checked by callers
        return [
            sampled_terms(influence, rows, self._kept.expansion_of(g))
            for g, (influence, rows) in enumerate(
                group for group in self._groups if group is not None
            )
        ]

    @property
    def sampling_errors(self) -> np.ndarray:
        """Relative error (K, layout.size) of each standard error; 0 unless rows were sampled."""
        if self._kept is None:
            return np.zeros((len(self._parameters.theta), self.layout.size))
        return np.array([errors for _, errors in self._sampled])

    @cached_property
    def shift(self) -> list[list[np.ndarray]] | None:
        """Covariances of the differences from the pooled fit, in the same form as `group`, or None.

        The result is None if the model has no pooled fit. The estimates are dependent, because the
        pooled rows include each group's rows.
        """
        if self._parameters.pooled is None:
            return None
        if self.deviations is not None:
            pooled = self._deviations(
                self._sample.pooled, self.layout.of_pooled, self._parameters.pooled, None
            )
            return [_covariance_by_table(self.layout, own - pooled) for own in self.deviations]
        pooled_fit = self._fits[len(self._parameters.theta)]
        influence, _ = self._influence(
            self._sample.pooled,
            self.layout.of_pooled,
            pooled_fit.site_theta,
            self._parameters.pooled,
        )
        groups = [group for group in self._groups if group is not None]
        terms = sandwich_of_shift(self.layout, groups, influence)
        return self._for_all_groups(terms, [np.full_like(t, np.nan) for t in terms[0]])

    @cached_property
    def composite(self) -> list[tuple[float, float]]:
        """Log pseudo-likelihood and effective number of parameters of each group.

        The log pseudo-likelihood is summed over complete rows. The list is empty for methods that
        do not maximise the pseudo-likelihood.
        """
        if self._survey is not None:
            return []
        if self._kept is not None:
            return self._composite_of_sample()
        values = [
            influence.composite(rows if rows.complete else rows.complete_rows)
            for influence, rows in (group for group in self._groups if group is not None)
            if isinstance(influence, Influence)  # fits by pseudo-likelihood
        ]
        return self._for_all_groups(values, (0.0, 0.0)) if values else []

    def _composite_of_sample(self) -> list[tuple[float, float]]:
        """Return `composite`, but estimate the number of parameters from a random sample.

        The log pseudo-likelihood is summed over all rows.
        """
        assert self._kept is not None  # noqa: S101  # checked by the caller
        out = []
        for g, group in enumerate(self._groups):
            mean = self._engine.log_pseudo_likelihood(self._fits[g], self.layout.of_group(g))
            influence, rows = (None, None) if group is None else group
            if mean is None or rows is None or not isinstance(influence, Influence):
                raise DataError(
                    "Composite criteria require all rows, but this fit keeps only a random sample.",
                    hint=(
                        "Refit the model to a table in memory, such as bbl.sample_rows(data, "
                        "500_000)."
                    ),
                )
            out.append((mean * influence.total, influence.composite(rows)[1]))
        return out

    @cached_property
    def deviations(self) -> list[np.ndarray] | None:
        """A matrix E (u, layout.size) for each group; None without a sampling design.

        ``E'E`` is the covariance of the group's parameters. Each row belongs to one of u clusters
        or replicates (see `bbl.boltzmann.inference.survey`).
        """
        if self._survey is None:
            return None
        return [
            self._deviations(self._sample.group(g), self.layout.of_group(g), theta, g)
            for g, theta in enumerate(self._parameters.theta)
        ]

    def _deviations(
        self, rows: Sample, layout: Layout, theta: np.ndarray, group: int | None
    ) -> np.ndarray:
        """Return the deviations (u, size) of parameters `theta` of a group or the pooled fit."""
        survey = cast(SurveySample, self._survey)
        domain = survey if group is None else survey.of_group(self._sample.response == group)
        influence, _ = self._influence(rows, layout)
        return penalised_deviations(influence, rows, theta, self._engine, domain)

    def between(self, g: int, other: int) -> list[np.ndarray]:
        """Return the covariances of the difference between two groups, which may share clusters.

        The groups must not have rows in common.
        """
        if self.deviations is not None:
            return _covariance_by_table(self.layout, self.deviations[g] - self.deviations[other])
        return [a + b for a, b in zip(self.group[g], self.group[other], strict=True)]

    def standard_errors(self, terms: list[np.ndarray]) -> np.ndarray:
        """Return the standard errors (layout.size,) of all parameters, given table covariances."""
        return np.sqrt(np.concatenate([np.diag(t) for t in terms]))


def sampled_terms(
    influence: RowInfluence, rows: Sample, expansion: np.ndarray | None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return each table's covariance from a random sample, and relative errors of standard errors.

    Rows are drawn with probability ``1 / expansion`` and have weight w. If e are the changes of a
    variance due to the weights of rows, minus their regression on the levels, whose counts are
    exact, the relative error (layout.size,) of a standard error is ``sqrt(sum (1 - 1/expansion) w^2
    e^2) / (2 sum w psi^2)``.
    """
    # covariances of a model, or of fields alone, depend on the rows only through counts of levels,
    # which are exact
    has_exact_errors = not isinstance(influence, Influence) or not influence.layout.n_terms
    if expansion is None or has_exact_errors:
        return influence.terms(rows), np.zeros(influence.layout.size)
    drawn_share = 1.0 - 1.0 / expansion
    # a row that the engine adds was not drawn
    drawn_share = np.append(drawn_share, np.zeros(rows.n - len(drawn_share)))
    terms = influence.terms(rows)
    variances = np.concatenate([np.diag(table) for table in terms])
    changes, spread, used = _changes_of_sample(cast(Influence, influence), rows, drawn_share)
    residuals = residuals_on_counts(changes, used, influence.layout)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.sqrt(spread @ residuals**2) / (2.0 * variances * influence.total**2)
    return terms, errors


def _changes_of_sample(
    influence: Influence, rows: Sample, drawn_share: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Sample]:
    """Return changes (n, layout.size) of variances due to the weights of `error_rows`, the values
    ``(1 - 1/expansion) w^2`` of these rows, and the rows.
    """
    index, factor = error_rows(drawn_share)
    used = rows.rows(index)
    spread = factor * drawn_share[index] * used.weights**2
    used = replace(used, weights=used.weights * factor)
    if used.complete and influence.has_variance_changes:
        return influence.variance_changes(used), spread, used
    return influence(used) ** 2, spread, used


GroupInfluences = list[tuple[RowInfluence, Sample]]


def sandwich_of_shift(
    layout: Layout, groups: GroupInfluences, pooled: RowInfluence
) -> list[list[np.ndarray]]:
    """Return each table's covariance for the difference between each group and the pooled fit.

    `groups` contains the influence and the rows of each group that has rows, in order. `pooled` is
    the influence for the pooled fit. If psi and psi_0 are the influences of a row of weight w on
    the group's fit and the pooled fit, the covariance is ``sum_in w (psi - psi_0)(psi - psi_0)' +
    sum_out w psi_0 psi_0'``, over the rows inside and outside the group.
    """
    pooled_terms = []
    shift_terms = []
    for influence, rows in groups:
        pooled_covariances = TermCovariances(layout)
        shift_covariances = TermCovariances(layout)
        # psi (n, size) are the influences of a chunk of rows on the parameters of the group, or of
        # the pooled fit
        for (psi, weights), (pooled_psi, _) in zip(
            influence.blocks(rows), pooled.blocks(rows), strict=True
        ):
            pooled_covariances.add(pooled_psi, weights)
            shift_covariances.add(psi - pooled_psi, weights)
        pooled_terms.append(pooled_covariances.by_table())
        shift_terms.append(shift_covariances.by_table())
    pooled_total = [sum(terms) for terms in zip(*pooled_terms, strict=True)]
    # Rows of the group affect both estimates, other rows only the pooled one. The covariance is
    # therefore the sum of two: of the difference, from the group's rows, and of the pooled
    # estimate, from the other rows (all rows minus the group's).
    return [
        [
            shift_inside + pooled_all - pooled_inside
            for shift_inside, pooled_all, pooled_inside in zip(
                shift_covariances, pooled_total, pooled_covariances, strict=True
            )
        ]
        for shift_covariances, pooled_covariances in zip(shift_terms, pooled_terms, strict=True)
    ]


def _covariance_by_table(layout: Layout, deviations: np.ndarray) -> list[np.ndarray]:
    """Return the covariance of each table from deviations (u, layout.size)."""
    return term_covariances(layout, [(deviations, np.ones(len(deviations)))])


def full_covariance(
    sample: Sample,
    layout: Layout,
    engine: Engine,
    fitted: tuple[np.ndarray, np.ndarray | None] | None = None,
) -> np.ndarray:
    """Return the covariance (layout.size, layout.size) of all parameters of a group.

    `fitted` contains the parameters and the site solution for all rows, if `sample` is a random
    sample.
    """
    check_memory(
        8.0 * float(layout.size) ** 2,
        f"A covariance of {layout.size} parameters",
        "Use bse or tests() instead.",
    )
    rows = sample.collapsed(layout.n_levels)
    influence, rows = (
        engine.influence(rows, layout)
        if fitted is None
        else engine.influence_at(rows, layout, *fitted)
    )
    return influence.covariance(rows)


def difference_terms(
    sample: Sample, estimate: Estimate, engine: Engine, pair: tuple[int, int]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return each table's covariance for the difference between two jointly fitted groups.

    Returns
    -------
    terms : list of ndarray
        Covariance matrices of the m tables of fields, followed by one table of couplings per pair.
    is_estimable : ndarray of bool, shape (layout.size,)
        Parameters that are estimable from the rows of both groups. Other parameters are determined
        only by the penalty, because their levels (or pairs of levels) do not occur in a group, or
        because their predictors are copies of other predictors.

    Raises
    ------
    OptionError
        If covariances are not available for the fit; see `JointTraits.check_differences`.
    """
    traits = cast(JointTraits, engine.joint)
    traits.check_differences(engine, sample.n)
    layout = estimate.parameters.layout
    codes, distinct_row = np.unique(sample.codes, axis=0, return_inverse=True)
    weights = np.bincount(distinct_row.ravel(), sample.weights, len(codes))
    # fitted probabilities (rows, K)
    p = np.exp(log_probabilities(replace(estimate, calibration=None).class_scores(codes)))
    # The difference of parameters is tables' w, where w (r,) are weights of r basis functions with
    # the given covariance (r, r), and row k of tables (r, size) has the parameters of function k.
    covariance, tables, is_estimable = traits.difference(engine, codes, weights, p, layout, pair)
    terms = [
        tables[:, begin:end].T @ covariance @ tables[:, begin:end]
        for begin, end in zip(layout.cuts[:-1], layout.cuts[1:], strict=True)
    ]
    for g in pair:
        is_estimable = is_estimable & occurring(sample.group(g), layout)
    return terms, is_estimable


def occurring(rows: Sample, layout: Layout) -> np.ndarray:
    """Return a mask (layout.size,) of the parameters for which all compared levels occur.

    `layout` must not have terms of three or more predictors, which are not supported in fits of
    P(group | row). A field compares a level with the reference level; if its predictor interacts
    with another one, the comparison is made in rows where the other predictor has its reference
    level. A coupling compares the four combinations of two levels and the reference levels. The
    values of a numeric predictor do not have to occur.
    """
    is_number = layout.is_number
    # numbers have one level here, and are repeated at both levels afterwards
    L = np.where(is_number, 1, layout.n_levels).astype(int)
    codes = np.where(is_number, 0, rows.codes).astype(np.intp)
    repeats = np.where(is_number, 2, 1)
    occurs = []
    for i in range(layout.m):
        has_rows = np.bincount(codes[:, i], rows.weights, L[i]).repeat(repeats[i]) > 0.0
        occurs.append(has_rows[1:] & has_rows[:1])
    for i, j in layout.pairs:
        cells = codes[:, i] * L[j] + codes[:, j]
        counts = np.bincount(cells, rows.weights, L[i] * L[j]).reshape(L[i], L[j])
        has_rows = counts.repeat(repeats[i], axis=0).repeat(repeats[j], axis=1) > 0.0
        occurs[i] &= has_rows[1:, 0] & has_rows[0, 0]
        occurs[j] &= has_rows[0, 1:] & has_rows[0, 0]
        occurs.append(
            (has_rows[1:, 1:] & has_rows[1:, :1] & has_rows[:1, 1:] & has_rows[:1, :1]).ravel()
        )
    return np.concatenate(occurs)


def bootstrap(
    sample: Sample,
    estimate: Estimate,
    engine: Engine,
    nboot: int,
    rng: np.random.Generator,
    workers: int,
) -> np.ndarray:
    """Return the parameters (nboot, K, layout.size) of refits to samples from the fitted models.

    This is the parametric bootstrap (Efron & Tibshirani 1993, section 6.5). Samples have as many
    rows as the data, with missing values at the same positions. Each replicate has its own random
    generator. The weights of `sample` must be integers.
    """
    layout = estimate.parameters.layout
    check_memory(  # 8 bytes for each drawn value
        8.0 * sample.total * layout.m,
        f"A bootstrap of {sample.total:.0f} observations",
        "Use inference() instead.",
    )
    groups = [sample.group(g) for g in range(len(estimate.parameters.theta))]
    # for each group: layout, fields, couplings, higher terms
    models = [
        (layout.of_group(g), *split(layout, theta))
        for g, theta in enumerate(estimate.parameters.theta)
    ]
    # for each group: the number of observations, and which values (observations, m) are missing
    shapes = [
        (
            round(s.total),
            None if s.missing is None else np.repeat(s.missing, s.weights.astype(np.intp), axis=0),
        )
        for s in groups
    ]
    # stream: the generator of a replicate
    tasks = [(models, shapes, engine, stream) for stream in rng.spawn(nboot)]
    return np.array(run_tasks(_replicate, tasks, workers))


def _replicate(models: list, shapes: list, engine: Engine, rng) -> list[np.ndarray]:
    """Refit each group to rows drawn from its model, and return the parameters (layout.size,).

    `models` contains the layout, fields, couplings and higher-order terms of each group; `shapes`
    contains the number of rows and the mask (rows, m) of missing values, or None.
    """
    refits = []
    for (layout, h, J, higher_terms), (total, missing) in zip(models, shapes, strict=True):
        codes = sample_states(
            h, J, layout.n_levels, total, rng, more=higher_terms, support=layout.support
        )
        if missing is not None:
            codes = np.where(missing, 0, codes).astype(codes.dtype)
        rows = engine.prepare(
            Sample(codes, np.ones(total), missing=missing).collapsed(layout.n_levels), layout
        )
        refits.append(engine.fit(rows, layout, rng=rng).theta)
    return refits
