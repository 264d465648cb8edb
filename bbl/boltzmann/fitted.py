"""Estimate: a fitted model of all groups as plain arrays. Relevance: which predictors it uses to
tell groups apart.

K is the number of groups, m of predictors, n of rows, q of chosen predictors. An *energy* is the
exponent of P(row | group), ln P(row | group) + ln Z with the normalising constant Z of the group's
model; x stands for a row, y for a group. ``parameters.theta`` (K, size) are the fitted parameters
of all groups, at the positions of ``parameters.layout``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from bbl.boltzmann.predictive import Predictive
from bbl.engines import EngineFit
from bbl.errors import OptionError
from bbl.model.fields import pseudo_log_likelihood
from bbl.model.marginal import MarginalEnergy
from bbl.model.parameters import Parameters
from bbl.stats.calibration import Calibration
from bbl.stats.scores import class_scores

__all__ = ["Estimate", "Relevance"]


@dataclass(frozen=True)
class Relevance:
    """Which predictors a fit uses to tell groups apart.

    Attributes
    ----------
    level : float
        Significance level at which they were chosen.
    chosen : ndarray of intp, shape (q,)
        Their positions, rising.
    p_value : ndarray, shape (q,)
        p-value of each when it was chosen, times the number of candidates at that step.
    """

    level: float
    chosen: np.ndarray
    p_value: np.ndarray


@dataclass(frozen=True)
class Estimate:
    """A fitted model as plain arrays.

    Attributes
    ----------
    parameters : Parameters
    log_z : ndarray, shape (K,)
        ln Z of each group.
    log_z_kind : str
        How `log_z` was computed: "exact", "pseudo", "half", "mf" or "ais"; "none" if P(x|y) is not
        modelled: then `log_z` holds the constants that are subtracted from class scores.
    class_prior : ndarray, shape (K,)
        Weighted share of each group.
    lkh : float
        Maximised objective, summed over the observations of all groups.
    fits : tuple of EngineFit
        One per group, then the pooled one if it was made.
    log_z_error : ndarray, shape (K,)
        Standard error of `log_z`; zero unless it was sampled.
    calibration : Calibration or None
        Transformation of class scores before they become probabilities.
    predictive : Predictive or None
        Posterior draws over which class scores are averaged, if the method has draws.
    relevance : Relevance or None
        The predictors that differ between groups, if they were chosen; None for all.
    """

    parameters: Parameters
    log_z: np.ndarray
    log_z_kind: str
    class_prior: np.ndarray
    lkh: float
    fits: tuple[EngineFit, ...]
    log_z_error: np.ndarray
    calibration: Calibration | None = None
    predictive: Predictive | None = None
    relevance: Relevance | None = None

    @property
    def coefficients(self) -> np.ndarray:
        """Intercepts ``ln share - ln Z`` and parameters of all groups, (K, 1 + size); 0 in place of
        the log of 0.
        """
        log_share = np.log(np.where(self.class_prior > 0.0, self.class_prior, 1.0))
        return np.column_stack([log_share - self.log_z, self.parameters.theta])

    @property
    def has_no_predictors(self) -> bool:
        """Whether predictors were chosen, and none was: predictions are the class proportions."""
        return self.relevance is not None and not len(self.relevance.chosen)

    @cached_property
    def needed(self) -> np.ndarray | None:
        """The predictors that a row must have to be scored, rising; None if all can be summed out.

        A method that does not model the predictors needs those with parameters that differ between
        groups.
        """
        if self.log_z_kind != "none":
            return None
        # a group without rows has no parameters
        theta = self.parameters.theta[self.class_prior > 0.0]
        return np.flatnonzero(
            self.parameters.layout.predictors_of((theta != theta[:1]).any(axis=0))
        )

    def energy(self) -> Callable:
        """Return a function of codes (n, m) and missing values (n, m) to energies (n, K).

        With posterior draws, the function averages probabilities over them; see
        `Predictive.energy`.
        """
        if self.predictive is not None:
            return self.predictive.energy(self.log_z)
        return MarginalEnergy(self.parameters.layout, self.parameters.theta)

    def class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows, calibrated if the model is.

        Parameters
        ----------
        codes : ndarray, shape (n, m)
        missing : ndarray of bool, shape (n, m), optional
            Predictors that are summed out, or left out if the model does not use them. The scores
            of a row without known predictors are the logarithms of the groups' shares.
        """
        return self.scores_by(self.energy(), codes, missing)

    def scores_by(
        self, energy: Callable, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return `class_scores` from a function that `energy` returned, which can serve many
        calls.
        """
        # of rows without known predictors nothing is summed out: their scores are set below
        is_all_missing = (
            np.zeros(len(codes), dtype=bool) if missing is None else np.array(missing.all(axis=1))
        )
        summed_out = None if missing is None else missing & ~is_all_missing[:, None]
        if summed_out is not None and self.needed is not None:
            if summed_out[:, self.needed].any():
                raise OptionError(
                    "This model has no distribution of the predictors, P(x|y), so missing or "
                    "unseen values cannot be averaged over.",
                    argument="newdata",
                    hint="Give complete rows of known levels, or fit with method='pseudo'.",
                )
            # the other predictors add the same to the scores of all groups at any level
            codes = np.where(summed_out, 0, codes).astype(codes.dtype)
            summed_out = None
        scores = class_scores(energy(codes, summed_out), self.log_z, self.class_prior)
        if self.calibration is not None:
            scores = self.calibration(scores)
        with np.errstate(divide="ignore"):  # a share of 0 gives -inf
            scores[is_all_missing] = np.log(self.class_prior)
        return scores

    def log_density(
        self, energy: Callable, codes: np.ndarray, missing: np.ndarray | None = None
    ) -> np.ndarray:
        """Return ``ln sum_y P(y) P(x|y)`` of encoded rows, shape (n,), without calibration; see
        `scores_by`.
        """
        scores = replace(self, calibration=None).scores_by(energy, codes, missing)
        return np.logaddexp.reduce(scores, axis=1)

    def pseudo_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the log pseudo-likelihood (n, K) of encoded rows under each group's model."""
        groups = range(len(self.parameters.theta))
        return np.column_stack([self._pseudo_log_likelihood(g, codes, missing) for g in groups])

    def _pseudo_log_likelihood(
        self, g: int, codes: np.ndarray, missing: np.ndarray | None
    ) -> np.ndarray:
        """Return ``sum_i ln P(x_i | the other predictors)`` of rows under group g, shape (n,)."""
        if self.predictive is not None and self.predictive.hidden:
            return self.predictive.pseudo_log_likelihood(g, codes, missing)
        layout = self.parameters.layout.of_group(g)
        return pseudo_log_likelihood(layout, self.parameters.theta[g], codes, missing)

    def pnll(
        self, codes: np.ndarray, missing: np.ndarray | None, y: np.ndarray, weights: np.ndarray
    ) -> float:
        """Return the weighted mean of the negative log pseudo-likelihood of rows under their own
        groups' models.

        Rows have `codes` and a mask `missing` (n, m), the groups `y` (n,), all of them known, and
        `weights` (n,).
        """
        total = 0.0
        for g in range(len(self.parameters.theta)):
            rows = np.flatnonzero((y == g) & (weights > 0.0))
            if len(rows):
                group_missing = None if missing is None else missing[rows]
                log_p = self._pseudo_log_likelihood(g, codes[rows], group_missing)
                total -= float(weights[rows] @ log_p)
        return total / float(weights.sum())

    @property
    def n_parameters(self) -> int:
        """Number of parameters, summed over groups: of each those that it chose and that its rows
        determine.
        """
        K, size = self.parameters.theta.shape
        # `free` (size,): parameters of terms that the group chose; `rank`: number of those
        # determined, None for all
        n_free = [
            int(fit.state["free"].sum()) if "free" in fit.state else size for fit in self.fits[:K]
        ]
        # not strict: the pooled fit, which does not count, may follow those of the groups
        return sum(
            n if fit.rank is None else fit.rank for n, fit in zip(n_free, self.fits, strict=False)
        )

    @property
    def converged(self) -> bool:
        """Whether every predictor of every group reached its optimum."""
        return all(fit.converged.all() for fit in self.fits)
