"""DifferenceInference: standard errors and intervals of differences between groups fitted jointly, under labels."""

from __future__ import annotations

from typing import NoReturn, cast, final

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.inference.covariance import difference_terms
from bbl.checks import flag, share, verb
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.traits import JointTraits
from bbl.errors import OptionError
from bbl.results.machine.estimates import Compared, Estimates
from bbl.results.machine.inference import compared, compared_frame, ranked, untested
from bbl.rows.sample import Sample

__all__ = ["DifferenceInference"]

NO_TEST = "no test: the penalty shrinks differences"
PENALTY_DECIDES = "not estimable: the penalty decides"
NOT_CONVERGED = "not estimable: the fit did not converge"


@final
class DifferenceInference(Estimates):
    """Standard errors and intervals of differences between groups; made by ``fit.inference()`` of a conditional fit.

    `of` is a pair of groups ``(a, b)``, whose parameters of a less those of b are meant. Single groups have none: only
    differences say anything of P(y|x).

    Standard errors come from the penalised multinomial information, ``H^-1 I H^-1``. Intervals are of the penalised
    estimate's expectation, which the penalty draws towards zero: they tell its spread, not its bias, and take `ridge`
    and `scale` as given. With a small `ridge` and many rows that is the difference itself. There are no tests, as the
    expectation of what is zero need not be zero where other parameters are shrunk. They are of ``coef()``, before
    any calibration of class scores. What the penalty decides alone has neither: a level or a pair of levels, or what
    they are compared with, never occurs in one of the groups, or predictors are copies of others. A fit that did not
    converge has no standard errors at all, since they are those of the optimum.

    Parameters
    ----------
    labels : Labels
    estimate : Estimate
    engine : Engine
    sample : Sample
        The training rows.

    Attributes
    ----------
    note : str
        What the numbers mean.

    Raises
    ------
    OptionError
        If the fit refines another, was made by minibatches, or has an infinite ridge.

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
        sample = sample.by_state([len(levels) for levels in labels.levels], len(labels.groups))
        cast(JointTraits, engine.joint).check_differences(engine, sample.n)
        self._labels, self._estimate, self._engine, self._sample = labels, estimate, engine, sample
        self._cache: dict[tuple[int, int], tuple[list[np.ndarray], np.ndarray]] = {}
        self.note = (
            "Standard errors from the penalised multinomial information. Intervals are of the penalised estimate's "
            "expectation: they tell its spread, not its bias. There are no tests."
        )
        self._no_interval = PENALTY_DECIDES if estimate.converged else NOT_CONVERGED
        if not estimate.converged:
            self.note = "There are no standard errors: the fit did not converge. Raise ridge."

    def _terms(self, of: Compared) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the covariance of each term's difference (by term), and whether each parameter has one (size,)."""
        groups = compared(of, list(self._labels.groups), True)
        if isinstance(groups, str):
            self._engine.check_equations()  # raises: single groups have no standard errors
        pair = (int(groups[0]), int(groups[1]))
        if pair not in self._cache:
            terms, has_error = difference_terms(self._sample, self._estimate, self._engine, pair)
            self._cache[pair] = terms, has_error & self._estimate.converged
        return self._cache[pair]

    @verb
    def table(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
        """Return every difference with its standard error and interval.

        Parameters
        ----------
        of : (group, group)
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        DataFrame
            The columns of `Inference.table`: those of ``tidy()`` that name the parameter, then ``estimate``, ``se``,
            ``z`` and ``p`` (missing: there is no test), ``lower``, ``upper``, and ``test``, which says why.

        Raises
        ------
        OptionError
            If `of` is not two groups.
        BBLError
            If the information would not fit into memory.
        """
        from scipy.special import ndtri

        share("level", level)
        terms, has_error = self._terms(of)
        frame = compared_frame(self._labels, self._estimate.parameters, of)
        se = np.where(has_error, np.sqrt(np.concatenate([np.diag(covariance) for covariance in terms])), np.nan)
        half = float(ndtri(0.5 + level / 2)) * se
        limits = {"lower": frame["estimate"] - half, "upper": frame["estimate"] + half}
        return frame.assign(se=se, z=np.nan, p=np.nan, **limits, test=np.where(has_error, NO_TEST, self._no_interval))

    def tests(self, of: Compared = "group") -> NoReturn:
        """Raise an OptionError: penalised differences have no tests."""
        self._engine.check_equations()
        raise OptionError(NO_TEST)

    def _covariance(self, g: int) -> NoReturn:
        raise OptionError("Single groups of a conditional fit have no covariances; see table(of=(a, b)).")

    @verb
    def interactions(self, of: Compared = "group", apc: bool = False, level: float = 0.95) -> pd.DataFrame:
        """Return the interacting pairs, those that differ most first, with limits of how much.

        Parameters
        ----------
        of : (group, group)
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths; there are no limits then.
        level : float, default 0.95
            Least coverage of the limits.

        Returns
        -------
        DataFrame
            The columns of ``fit.interactions()``, with ``lower`` and ``upper`` after ``strength``; p is missing. The
            strength is a norm, so its estimate is never zero: the limits are the least and the largest norm within a
            ball around the estimate that holds the expectation at least as often as `level` says. They are missing
            where one of the couplings has no interval.
        """
        share("level", level)
        parameters, groups = self._estimate.parameters, list(self._labels.groups)
        radius = self._radii(*self._terms(of), level)
        pairs = untested(self._labels, parameters, of, NO_TEST)
        pairs["test"] = np.where(np.isnan(radius), self._no_interval, NO_TEST)
        pairs["radius"] = np.nan if flag("apc", apc) else radius
        frame = ranked(pairs, parameters, of, groups, apc)
        radii, strength = frame.pop("radius"), frame["strength"]
        position = list(frame.columns).index("strength") + 1
        frame.insert(position, "lower", (strength - radii).clip(lower=0.0))
        frame.insert(position + 1, "upper", strength + radii)
        return frame

    def _radii(self, terms: list[np.ndarray], has_error: np.ndarray, level: float) -> np.ndarray:
        """Return a radius (P,) around each pair's couplings that holds their expectation with probability `level`.

        Couplings are in the zero-sum gauge. The squared distance is at most the largest eigenvalue of the covariance
        times a chi-square. nan where a coupling has no standard error.
        """
        from scipy.special import chdtri

        layout = self._estimate.parameters.layout
        radii = np.zeros(len(layout.pairs))
        for k, (i, j) in enumerate(layout.pairs):
            one, two = (np.eye(L) - 1.0 / L for L in (int(layout.n_levels[i]), int(layout.n_levels[j])))
            to_zero_sum = np.kron(one[:, 1:], two[:, 1:])
            covariance = to_zero_sum @ terms[layout.m + k] @ to_zero_sum.T
            couplings = slice(*layout.cuts[layout.m + k : layout.m + k + 2])
            if not has_error[couplings].all():
                radii[k] = np.nan
            elif to_zero_sum.shape[1]:
                radii[k] = np.sqrt(np.linalg.eigvalsh(covariance)[-1] * chdtri(to_zero_sum.shape[1], 1.0 - level))
        return radii

    def __repr__(self) -> str:
        K = len(self._labels.groups)
        return f"Differences of {self._estimate.parameters.layout.size} parameters between {K} groups.\n{self.note}"
