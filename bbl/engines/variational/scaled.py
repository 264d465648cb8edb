"""Factorised normal approximation to the posterior under scale-mixture priors."""

# Parameters in simplex coding are ``theta = sigma z``. The parameters of a table form a group with
# a common scale sigma; s is the global scale of all fields or of all couplings, the two kinds. The
# approximation is over z, ``u = ln sigma`` and ``v = ln s``. A slab bounds the scales (see
# `bbl.engines.variational.priors.slabbed`).
#
# This is the noncentred parameterisation (Ingraham & Marks 2017, eq. 11). In the centred one the
# approximation is over theta, u and v. Ungrouped parameters have one scale each.

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bbl.engines.variational.priors import ScalePrior, scale_moments, slabbed
from bbl.model.gauge import reference_variance, scale_variance, to_reference, to_simplex
from bbl.model.layout import Layout
from bbl.model.moments import frequencies, log_ratio
from bbl.rows.sample import Sample

__all__ = ["Approximation", "Groups", "start"]

STRENGTH_DRAWS = 400  # number of draws of pair strengths


class Groups:
    """The G groups of parameters that have a common scale.

    If `grouped` is True, the groups are the nonempty tables of a layout, with fields before
    couplings. Otherwise, each parameter is a group.

    Attributes
    ----------
    cuts : ndarray of intp, shape (G + 1,)
        Position of each group's first parameter, followed by the number of parameters.
    fields : int
        Number of groups of fields.
    of_parameter : ndarray of intp, shape (size,)
        Group of each parameter.
    table : ndarray of intp, shape (G,)
        Table of each group. Tables 0..m-1 are fields, and tables m..m+P-1 are couplings.
    """

    def __init__(self, layout: Layout, grouped: bool = True):
        # first parameter of each table, followed by the end
        table_cuts = np.concatenate([layout.start, layout.pair_start[1:]])
        if grouped:
            self.table = np.flatnonzero(np.diff(table_cuts))
            self.cuts = np.append(table_cuts[self.table], layout.size).astype(np.intp)
        else:
            self.table = np.repeat(np.arange(len(table_cuts) - 1), np.diff(table_cuts))
            self.cuts = np.arange(layout.size + 1, dtype=np.intp)
        self.fields = int((self.table < layout.m).sum())
        self.of_parameter = np.repeat(np.arange(len(self.table)), np.diff(self.cuts))

    def __len__(self) -> int:
        return len(self.table)

    def sum_by_kind(self, values: np.ndarray) -> np.ndarray:
        """Return the sums (2,) of `values` (G,) over fields and over couplings."""
        return np.array([values[: self.fields].sum(), values[self.fields :].sum()])

    def repeat_by_kind(self, values: np.ndarray) -> np.ndarray:
        """Return, for each group (G,), the element of `values` (2,) for fields or for couplings."""
        return np.repeat(values, (self.fields, len(self) - self.fields))


@dataclass(frozen=True)
class Approximation:
    """A factorised normal approximation to the posterior of z, u and v.

    Attributes
    ----------
    layout : Layout
    prior : ScalePrior
        The prior on the scales. Its `slope` is None if all groups have the global scale.
    slab : float
        Upper bound on the scales, which is inf if scales are not bounded.
    scale : float or None
        The global scale; None if it is estimated.
    mean, log_sd : ndarray, shape (n,)
        Means and log sds of z, u and v. There are `layout.size` entries for z, G for u (unless all
        groups have the global scale), and 2 for v (if the global scales are estimated).
    centred : bool, default False
        Whether theta is approximated instead of z.
    grouped : bool, default True
        Whether all parameters of a table have the same scale.
    empirical_bayes : bool, default False
        Whether scales are fixed at the exponentials of the means of u instead of being averaged
        over.
    """

    layout: Layout
    prior: ScalePrior
    slab: float
    scale: float | None
    mean: np.ndarray
    log_sd: np.ndarray
    centred: bool = False
    grouped: bool = True
    empirical_bayes: bool = False

    @staticmethod
    def length(layout: Layout, prior: ScalePrior, scale: float | None, grouped: bool = True) -> int:
        """Return the total number n of means of z, u and v."""
        n_scales = len(Groups(layout, grouped)) if prior.slope else 0
        return layout.size + n_scales + (2 if scale is None else 0)

    @cached_property
    def groups(self) -> Groups:
        """Groups of parameters that have a common scale."""
        return Groups(self.layout, self.grouped)

    @property
    def global_scales(self) -> np.ndarray:
        """Global scales (2,) of fields and couplings: exponentials of the posterior means of v."""
        return np.exp(self.mean[-2:]) if self.scale is None else np.full(2, self.scale)

    @cached_property
    def log_scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and sds (G,) of each group's log scale, which may be the global scale."""
        if self.prior.slope:
            u = slice(self.layout.size, self.layout.size + len(self.groups))
            return self.mean[u], np.exp(self.log_sd[u])
        if self.scale is not None:
            return np.full(len(self.groups), np.log(self.scale)), np.zeros(len(self.groups))
        return self.groups.repeat_by_kind(self.mean[-2:]), self.groups.repeat_by_kind(
            np.exp(self.log_sd[-2:])
        )

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and mean squares (G,) of the bounded scales.

        They are 1 in the centred parameterisation.
        """
        if self.centred:
            return np.ones(len(self.groups)), np.ones(len(self.groups))
        mean, sd = self.log_scales
        return scale_moments(mean, np.zeros_like(sd) if self.empirical_bayes else sd, self.slab)

    @property
    def simplex(self) -> np.ndarray:
        """Posterior means (layout.size,) in simplex coding."""
        return self.mean[: self.layout.size] * self._scales[0][self.groups.of_parameter]

    @property
    def theta(self) -> np.ndarray:
        """Posterior means (layout.size,) in the reference gauge."""
        return to_reference(self.layout, self.simplex)

    @property
    def simplex_variance(self) -> np.ndarray:
        """Posterior variances (layout.size,) in simplex coding."""
        z_mean = self.mean[: self.layout.size]
        z_variance = np.exp(2.0 * self.log_sd[: self.layout.size])
        scale_mean, scale_square = (moment[self.groups.of_parameter] for moment in self._scales)
        return scale_square * (z_mean**2 + z_variance) - (scale_mean * z_mean) ** 2

    @property
    def sd(self) -> np.ndarray:
        """Posterior sds (layout.size,) in the reference gauge."""
        layout = self.layout
        if self.prior.slope and not self.grouped:  # no two parameters share a scale
            return np.sqrt(reference_variance(layout, self.simplex_variance))
        z_mean = self.mean[: layout.size]
        z_variance = np.exp(2.0 * self.log_sd[: layout.size])
        scale_mean, scale_square = self._scales
        # independent over parameters: the variance of z times the mean square of the scale
        variance = reference_variance(layout, scale_square[self.groups.of_parameter] * z_variance)
        # shared by the parameters of a scale: the variance of the scale times the squared mean of z
        group_variance = np.maximum(scale_square - scale_mean**2, 0.0)
        if self.prior.slope is None:  # one scale for all groups of a kind
            for kind, positions in enumerate((slice(0, layout.D), slice(layout.D, layout.size))):
                kind_z = np.zeros(layout.size)
                kind_z[positions] = z_mean[positions]
                # all groups of a kind have the same variance, so use group 0 for fields and the
                # last for couplings
                if kind_z.any():  # otherwise the kind may not have any groups
                    variance += (
                        group_variance[0 if kind == 0 else -1] * to_reference(layout, kind_z) ** 2
                    )
        else:
            table_variance = np.zeros(layout.m + len(layout.pairs))
            table_variance[self.groups.table] = group_variance
            variance += scale_variance(layout, z_mean, table_variance)
        return np.sqrt(variance)

    def strengths(self, rng: np.random.Generator, n: int = STRENGTH_DRAWS) -> np.ndarray:
        """Return draws (n, P) of all pair strengths, i.e. Frobenius norms in the zero-sum gauge."""
        layout = self.layout
        groups = self.groups
        z_mean = self.mean[: layout.size]
        z_sd = np.exp(self.log_sd[: layout.size])
        u_mean, u_sd = self.log_scales
        if self.empirical_bayes:
            u_sd = np.zeros_like(u_sd)
        out = np.zeros((n, layout.m + len(layout.pairs)))
        # noise of the two global scales, repeated for each group; used if groups have no scales of
        # their own
        kind_noise = np.repeat(
            rng.standard_normal((n, 2)), (groups.fields, len(groups) - groups.fields), axis=1
        )
        for k in range(n):
            noise = rng.standard_normal(len(groups)) if self.prior.slope else kind_noise[k]
            if self.centred:
                scale = np.ones(len(groups))
            else:
                scale, _ = slabbed(u_mean + u_sd * noise, self.slab)
            square = (z_mean + z_sd * rng.standard_normal(layout.size)) ** 2
            if self.grouped:
                out[k, groups.table] = scale * np.sqrt(np.add.reduceat(square, groups.cuts[:-1]))
            else:
                squares = scale**2 * square
                out[k] = np.sqrt(np.bincount(groups.table, squares, minlength=out.shape[1]))
        # norm of a pair's table in the zero-sum gauge, divided by the norm of its simplex
        # coefficients
        L = layout.n_levels[layout.pairs].astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            # C'C = L / (L - 1) I for the contrasts C of a predictor with L levels
            norm_ratio = np.sqrt(np.where(L > 1, L / (L - 1.0), 0.0).prod(axis=1))
        return out[:, layout.m :] * norm_ratio


def start(
    sample: Sample,
    layout: Layout,
    prior: ScalePrior,
    slab: float,
    scale: float | None,
    *,
    centred: bool = False,
    grouped: bool = True,
) -> Approximation:
    """Return the initial approximation, which has naive Bayes fields and no couplings.

    The initial scales are the same as in Ingraham & Marks' code for Ising models. The options are
    described in `Approximation`.
    """
    n = Approximation.length(layout, prior, scale, grouped)
    groups = Groups(layout, grouped)
    mean = np.zeros(n)
    log_sd = np.full(n, -3.0)
    if prior.slope:
        u = slice(layout.size, layout.size + len(groups))
        mean[u] = -1.0
        log_sd[u] = np.log(0.8)
    if scale is None:
        mean[-2:] = -3.0 if prior.slope else -1.0
    approximation = Approximation(layout, prior, slab, scale, mean, log_sd, centred, grouped)
    naive = np.zeros(layout.size)
    if layout.D:
        naive[: layout.D] = np.concatenate([log_ratio(f) for f in frequencies(sample, layout, 1.0)])
    # `_scales[0]` is the mean scale of each group
    first_mean = mean.copy()
    first_mean[: layout.size] = (
        to_simplex(layout, naive) / approximation._scales[0][groups.of_parameter]
    )
    return replace(approximation, mean=first_mean)
