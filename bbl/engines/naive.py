"""Naive Bayes: independent predictors, fitted in closed form (section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.checks import real
from bbl.engines.base import Engine, absent_levels
from bbl.engines.engine_fit import EngineFit, Equations, Note, Unpenalised
from bbl.engines.traits import Tuned
from bbl.model.godambe import Influence
from bbl.model.layout import NO_PAIRS, Layout
from bbl.model.moments import TINY, level_counts, log_ratio, smoothed
from bbl.rows.sample import Sample

__all__ = ["NaiveBayes"]


@dataclass(frozen=True)
class NaiveBayes(Engine):
    """Naive Bayes with a prior count: ``h_i(x) = ln f_i(x)/f_i(0)`` (eq. 25).

    Parameters
    ----------
    prior_count : float, default 1.0
        Pseudocount, which is spread evenly over the levels of each predictor.

    Raises
    ------
    OptionError
        If `prior_count` is negative or not finite.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .", titanic, "Freq", method=bbl.NaiveBayes(prior_count=1.0))
    >>> round(fit.score(), 3)
    0.778
    """

    prior_count: float = 1.0
    name = "naive"
    order = 1
    tuned = Tuned(
        "prior_count",
        "prior_count",
        "$c$",
        "Prior count $c$",
        tuple(10.0 ** np.arange(-2.0, 2.01, 0.5)),
        simpler="larger",
        logarithmic=True,
    )
    solves = True
    weights = "real"
    collapses = False
    streams = True

    def __post_init__(self):
        object.__setattr__(self, "prior_count", real("prior_count", self.prior_count, 0.0))

    def layout(self, sample: Sample, layout: Layout) -> Layout:
        """Return the layout without interactions."""
        return Layout(layout.n_levels, NO_PAIRS)

    def equations(
        self, sample: Sample, layout: Layout, site_theta: np.ndarray | None = None
    ) -> Equations:
        """Return the fit as a site solution with zero couplings, for standard errors."""
        site_theta = np.zeros((layout.D, 1 + layout.D))
        site_theta[:, 0] = self.fit(sample, layout).theta
        return Equations(site_theta, lambda_=0.0, lambdah=0.0, rows=sample)

    def influence_at(
        self, rows: Sample, layout: Layout, theta: np.ndarray, site_theta: np.ndarray | None
    ) -> tuple[Influence, Sample]:
        """Return the influence of sampled rows on the fit to all rows, followed by these rows."""
        site_theta = np.zeros((layout.D, 1 + layout.D))
        site_theta[:, 0] = theta
        return Influence(rows, layout, site_theta, lambda_=0.0, lambdah=0.0), rows

    def unpenalised_from(
        self,
        rows: Sample,
        layout: Layout,
        theta: np.ndarray,
        site_theta: np.ndarray | None,
        sites: np.ndarray,
        kept: Sample,
    ) -> Unpenalised:
        """Return the log odds in all rows, i.e. the fields `theta` without the prior count.

        The level counts are recovered from `theta`, the prior count and the total weight of the
        rows.
        """
        unsmoothed = np.empty(layout.D)
        for start, L in zip(layout.start[:-1], layout.n_levels, strict=True):
            fields = slice(int(start), int(start) + int(L) - 1)
            odds = np.exp(np.append(0.0, theta[fields]))
            counts = odds / odds.sum() * (rows.total + self.prior_count) - self.prior_count / L
            # counts of absent levels are zero up to rounding
            unsmoothed[fields] = log_ratio(np.maximum(counts, 0.0) / rows.total)
        influence, _ = self.influence_at(rows, layout, unsmoothed, None)
        return Unpenalised(unsmoothed, influence.determined, influence)

    def path(self, sample, layout, values=None, workers=1):
        """Fit one group at each prior count in `values`.

        `workers` is not used here, but is part of the signature of all engines.
        """
        grid = [self.prior_count] if values is None else values
        counts = level_counts(sample, layout.n_levels)
        return [self._fit_one(counts, sample.total, float(prior_count)) for prior_count in grid]

    def _fit_one(self, counts: list[np.ndarray], total: float, prior_count: float) -> EngineFit:
        """Return the fit, given each predictor's level weights and the `total` row weight."""
        f = smoothed(counts, prior_count)  # frequencies (L_i,) of each predictor's levels
        theta = np.concatenate([np.zeros(0), *map(log_ratio, f)])
        # eq. (26) per observation: the mean over rows of the log smoothed frequencies, with 0
        # replaced by TINY
        lkh = (
            sum(float(n @ np.log(np.maximum(fi, TINY))) for n, fi in zip(counts, f, strict=True))
            / total
        )
        notes: tuple[Note, ...] = ()
        if prior_count == 0:
            notes = absent_levels(counts, hint="Set prior_count > 0.")
        return EngineFit(theta, lkh, converged=np.ones(len(counts), dtype=bool), notes=notes)
