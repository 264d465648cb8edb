"""DifferenceInference: standard errors and intervals of differences between groups of a conditional
fit.
"""

from __future__ import annotations

from typing import NoReturn, cast, final

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.covariance import difference_terms
from bbl.checks import check_keywords, flag, share
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.traits import JointTraits
from bbl.errors import OptionError
from bbl.report.text import fill
from bbl.results.machine.estimate_tables import estimate_table, rank_interactions, untested_table
from bbl.results.machine.estimates import Compared, Estimates, resolve_jointly
from bbl.rows.sample import Sample

__all__ = ["DifferenceInference"]

# texts of the column ``test``
NO_TEST = "no test: the penalty shrinks differences"
PENALTY_DECIDES = "not estimable: determined by the penalty"
NOT_CONVERGED = "not estimable: the fit did not converge"


@final
class DifferenceInference(Estimates):
    """Standard errors and intervals of differences between groups, as returned by
    ``fit.inference()`` for a penalised conditional fit.

    The argument `of` is a pair of groups ``(a, b)`` and selects the difference a minus b. Inference
    is not available for single groups, because P(y|x) only depends on differences.

    Standard errors come from the penalised multinomial information, ``H^-1 I H^-1``, with `ridge`
    and `scale` taken as fixed. Intervals are for the expected value of the penalised estimate,
    which is biased towards zero. They reflect the variance of the estimate, but not its bias, which
    is negligible with a small `ridge` and many rows. The hypothesis that a difference is zero is
    not tested, because shrinkage of other parameters may move the expected value of its estimate
    away from zero.

    Estimates are the values of ``coef()``, before any calibration of class scores. Parameters that
    are only determined by the penalty do not have standard errors. This is the case if a level or
    pair of levels, or its reference, does not occur in one of the groups, or if predictors are
    copies of others. Standard errors are not available if the fit did not converge.

    Parameters
    ----------
    labels : Labels
        Names of the groups, the predictors and their levels.
    estimate : Estimate
        The fitted parameters of all groups.
    engine : Engine
        The method of the fit with its options; ``engine.joint`` contains the functions of joint
        fits.
    sample : Sample
        The training rows.

    Attributes
    ----------
    note : str
        Note on the standard errors, printed below them.

    Raises
    ------
    OptionError
        If the fit refines another fit, has over 5,000 distinct rows, stopped early, or has an
        infinite ridge.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Sex + Age", titanic, "Freq", method="conditional", verbose=0)
    >>> table = fit.inference().table(of=("Yes", "No"))
    >>> table["group"].unique().tolist(), bool((table["lower"] < table["estimate"]).all())
    (['Yes - No'], True)
    """

    def __init__(self, labels: Labels, estimate: Estimate, engine: Engine, sample: Sample):
        # one row for each distinct state in each group; `check_differences` limits their number
        # `sample.n`
        sample = sample.by_state([len(levels) for levels in labels.levels], len(labels.groups))
        cast(JointTraits, engine.joint).check_differences(engine, sample.n)
        self._labels = labels
        self._estimate = estimate
        self._engine = engine
        self._sample = sample
        # results of `_covariances`, by the positions of the two groups
        self._covariance_cache: dict[tuple[int, int], tuple[list[np.ndarray], np.ndarray]] = {}
        self.note = (
            "Standard errors from the penalised multinomial information. Intervals cover the "
            "expected value of the penalised estimate: they reflect its variance, not its bias. "
            "Penalised differences are not tested."
        )
        self._reason_without_se = PENALTY_DECIDES if estimate.converged else NOT_CONVERGED
        if not estimate.converged:
            self.note = (
                "Standard errors are not available: the fit did not converge. Increase ridge."
            )

    def _covariances(self, of: Compared) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the covariance matrix of the differences for each term, and a mask (size,) of
        parameters with a standard error.

        `of` is a pair of groups; "group" and "pooled" raise an OptionError. Standard errors are
        missing for parameters that are only determined by the penalty, and if the fit did not
        converge.
        """
        selection = resolve_jointly(of, list(self._labels.groups), self._engine)
        if isinstance(selection, str):  # "group"
            self._engine.check_equations()  # always raises, as these fits have a penalty
        pair = (int(selection[0]), int(selection[1]))  # positions of the two groups
        if pair not in self._covariance_cache:
            covariances, has_se = difference_terms(self._sample, self._estimate, self._engine, pair)
            self._covariance_cache[pair] = covariances, has_se & self._estimate.converged
        return self._covariance_cache[pair]

    @check_keywords
    def table(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
        """Return every difference with its standard error and interval.

        Parameters
        ----------
        of : (group, group)
            The default raises an OptionError; it exists for consistency with other classes.
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        DataFrame
            The columns of ``tidy()`` that identify the parameter (``group``, ``predictor``, ...),
            then ``estimate``, ``se``, ``z`` and ``p`` (missing), ``lower``, ``upper``, and
            ``test``, the reason why p is missing.

        Raises
        ------
        OptionError
            If `of` is not a pair of groups.
        BBLError
            If the information matrix would not fit into memory.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Sex + Age", titanic, "Freq", method="conditional", verbose=0)
        >>> fit.inference().table(of=("Yes", "No"))[
        ...     ["predictor", "level", "estimate", "lower", "upper"]
        ... ].round(2)
          predictor  level  estimate  lower  upper
        0       Sex   Male     -2.29  -2.52  -2.05
        1       Age  Child      0.55   0.11   0.99
        """
        from scipy.special import ndtri

        share("level", level)
        covariances, has_se = self._covariances(of)
        frame = estimate_table(self._labels, self._estimate.parameters, of)
        se = np.where(
            has_se,
            np.sqrt(np.concatenate([np.diag(covariance) for covariance in covariances])),
            np.nan,
        )
        half_width = float(ndtri(0.5 + level / 2)) * se
        lower = frame["estimate"] - half_width
        upper = frame["estimate"] + half_width
        reason = np.where(has_se, NO_TEST, self._reason_without_se)
        return frame.assign(se=se, z=np.nan, p=np.nan, lower=lower, upper=upper, test=reason)

    def tests(self, of: Compared = "group") -> NoReturn:
        """Raise an OptionError, because tests are not available for penalised differences.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Sex + Age", titanic, "Freq", method="conditional", verbose=0)
        >>> fit.inference().tests()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        bbl.errors.OptionError: A conditional fit with ridge > 0 provides no standard errors ...
        """
        self._engine.check_equations()  # raises an OptionError with a hint
        raise OptionError(NO_TEST)

    def _covariance(self, groups: list[int]) -> NoReturn:
        """Raise an OptionError, because covariances are not available for single groups."""
        self.tests()

    @check_keywords
    def interactions(
        self, of: Compared = "group", apc: bool = False, level: float = 0.95
    ) -> pd.DataFrame:
        """Return the interacting pairs, sorted by the strength of their difference, with confidence
        limits.

        Parameters
        ----------
        of : (group, group)
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths. If so, limits are
            not available.
        level : float, default 0.95
            Minimum coverage of the limits.

        Returns
        -------
        DataFrame
            The columns of ``fit.interactions()``, with ``lower`` and ``upper`` after ``strength``;
            p is missing. The strength is a norm, so its estimate is never zero. The limits are
            therefore the smallest and the largest norm in a ball around the estimate that covers
            the expected value with probability at least `level`. Limits are missing if the interval
            of any of the couplings is missing.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", method="conditional", verbose=0)
        >>> fit.inference().interactions(of=("Yes", "No"))[
        ...     ["predictor", "predictor2", "strength"]
        ... ].round(3)
          predictor predictor2  strength
        0       Sex        Age      0.86
        """
        share("level", level)
        parameters = self._estimate.parameters
        groups = list(self._labels.groups)
        # (P,), in the order of the rows of `frame`
        pair_radii = self._confidence_radii(*self._covariances(of), level)
        frame = untested_table(self._labels, parameters, of, NO_TEST)
        frame["test"] = np.where(np.isnan(pair_radii), self._reason_without_se, NO_TEST)
        # a column, to be sorted with the rows
        frame["radius"] = np.nan if flag("apc", apc) else pair_radii
        frame = rank_interactions(frame, parameters, of, groups, apc)
        row_radii = frame.pop("radius")
        strength = frame["strength"]
        lower_position = list(frame.columns).index("strength") + 1
        frame.insert(lower_position, "lower", (strength - row_radii).clip(lower=0.0))
        frame.insert(lower_position + 1, "upper", strength + row_radii)
        return frame

    def _confidence_radii(
        self, covariances: list[np.ndarray], has_se: np.ndarray, level: float
    ) -> np.ndarray:
        """Return the radii (P,) of confidence balls around the couplings of each of P pairs.

        The balls have coverage `level`. The radius is nan if a coupling does not have a standard
        error.

        Couplings are in the zero-sum gauge. Their squared distance from the expectation is at most
        the largest eigenvalue of the covariance times a chi-square variable. `covariances` and
        `has_se` come from `_covariances`.
        """
        from scipy.special import chdtri

        layout = self._estimate.parameters.layout
        radii = np.zeros(len(layout.pairs))
        for k, (i, j) in enumerate(layout.pairs):
            # matrices (L, L) that subtract the mean over the L levels; the reference level has no
            # coupling and is dropped
            centre_i, centre_j = (
                np.eye(L) - 1.0 / L for L in (int(layout.n_levels[i]), int(layout.n_levels[j]))
            )
            to_zero_sum = np.kron(centre_i[:, 1:], centre_j[:, 1:])  # (L_i L_j, (L_i - 1)(L_j - 1))
            covariance = to_zero_sum @ covariances[layout.m + k] @ to_zero_sum.T
            pair_couplings = slice(*layout.cuts[layout.m + k : layout.m + k + 2])
            if not has_se[pair_couplings].all():
                radii[k] = np.nan
            # shape[1] is the number of couplings; a predictor with one level has none, and its
            # radius is 0
            # eigenvalues are increasing; `chdtri` is the chi-square quantile of an upper tail
            elif to_zero_sum.shape[1]:
                radii[k] = np.sqrt(
                    np.linalg.eigvalsh(covariance)[-1] * chdtri(to_zero_sum.shape[1], 1.0 - level)
                )
        return radii

    def __repr__(self) -> str:
        K = len(self._labels.groups)
        size = self._estimate.parameters.layout.size
        head = f"Differences of {size} parameters between {K} groups."
        return f"{head}\n{fill(self.note)}"
