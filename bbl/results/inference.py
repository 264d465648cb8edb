"""Inference: standard errors, intervals and tests of a fit, under its labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.covariance import Covariances, adjust, wald
from bbl.checks import choice, flag, near_match, real
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.tables import Coefficients

__all__ = ["Inference"]

NOTE = (
    "Sandwich (Godambe) standard errors of the pseudo-likelihood estimator. With a penalty in force they describe the "
    "spread of the penalised estimate around its own expectation, not its bias towards zero."
)


class Inference:
    """Standard errors, confidence intervals and Wald tests; made by ``fit.inference()``.

    Every table is a DataFrame. `of` says which estimates are meant: ``"group"`` for each group's own parameters,
    ``"pooled"`` for their difference from the pooled fit (``dh``, ``dJ``), or a pair of groups ``(a, b)`` for the
    parameters of a less those of b.

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
    covariances : Covariances
    penalised : bool
        Whether a penalty was in force; then `note` says what the intervals mean.
    """

    def __init__(self, labels: Labels, parameters: Parameters, covariances: Covariances, penalised: bool):
        self._labels, self._parameters, self._covariances = labels, parameters, covariances
        self.note = NOTE if penalised else NOTE.split(" With")[0]

    @property
    def composite(self) -> list[tuple[float, float]]:
        """Log pseudo-likelihood of each group, and its effective number of parameters."""
        return self._covariances.composite

    def _estimates(self, of: Any) -> tuple[list, np.ndarray, list[list[np.ndarray]]]:
        """Return names, estimates (rows of parameters) and table covariances of what `of` asks for."""
        groups, theta = list(self._labels.groups), self._parameters.theta
        if isinstance(of, tuple) and len(of) == 2:
            for g in of:
                if g not in groups:
                    raise OptionError(f"{g!r} is no group{near_match(g, groups)}; groups are {groups}.", argument="of")
            a, b = groups.index(of[0]), groups.index(of[1])
            return [f"{of[0]} - {of[1]}"], (theta[a] - theta[b])[None], [self._covariances.between(a, b)]
        if choice("of", of, ("group", "pooled")) == "group":
            return groups, theta, self._covariances.group
        if self._covariances.shift is None:
            raise OptionError("There is no pooled fit to compare with; fit with testNull=True.", argument="of")
        return groups, self._parameters.shift, self._covariances.shift

    def table(self, of: Any = "group", level: float = 0.95) -> pd.DataFrame:
        """Return every parameter with its standard error, z, p and confidence limits.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        DataFrame
            The columns of ``tidy()`` that name the parameter, then ``estimate``, ``se``, ``z``, ``p``, ``lower``,
            ``upper``.
        """
        from scipy.special import ndtr, ndtri

        real("level", level, 0.0, 1.0, open_low=True)
        names, theta, terms = self._estimates(of)
        labels = Labels(self._labels.response, tuple(names), self._labels.names, self._labels.levels)
        frame = Coefficients(labels, Parameters(self._parameters.layout, theta)).to_frame()
        frame = frame.drop(columns=["pooled", "difference"])
        se = np.concatenate([self._covariances.standard_errors(t) for t in terms])
        frame["se"] = se
        with np.errstate(divide="ignore", invalid="ignore"):
            frame["z"] = frame["estimate"] / se
        frame["p"] = 2.0 * ndtr(-frame["z"].abs())
        half = float(ndtri(0.5 + level / 2)) * se
        frame["lower"], frame["upper"] = frame["estimate"] - half, frame["estimate"] + half
        return frame

    def tests(self, of: Any = "group") -> pd.DataFrame:
        """Return the joint Wald test of every predictor's fields and of every pair's couplings being zero.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2`` (missing for fields), ``chisq``, ``df``, ``p``, and p adjusted
            within each group over the predictors or over the pairs: ``p_holm`` and ``p_bh`` (Benjamini-Hochberg).
        """
        names, theta, terms = self._estimates(of)
        layout, labels = self._parameters.layout, list(self._labels.names)
        parts = []
        for name, row, table in zip(names, theta, terms, strict=True):
            statistic, df, p = wald(layout, row, table)
            m = layout.m
            part = pd.DataFrame(
                {
                    "group": name,
                    "predictor": labels + [labels[i] for i in layout.pairs[:, 0]],
                    "predictor2": pd.array([pd.NA] * m + [labels[j] for j in layout.pairs[:, 1]], dtype=object),
                    "chisq": statistic,
                    "df": df,
                    "p": p,
                }
            )
            for column, method in (("p_holm", "holm"), ("p_bh", "fdr_bh")):
                part[column] = np.concatenate([adjust(p[:m], method), adjust(p[m:], method)])
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def interactions(self, of: Any = "group", apc: bool = False) -> pd.DataFrame:
        """Return the interacting pairs, strongest first.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"
        apc : bool, default False
            Whether to subtract the average-product correction from the strengths.

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2``, ``strength`` (Frobenius norm of the couplings in the zero-sum
            gauge), ``chisq``, ``df``, ``p``, ``p_holm``, ``p_bh``.
        """
        flag("apc", apc)
        _, theta, _ = self._estimates(of)
        tests = self.tests(of)
        pairs = tests[tests["predictor2"].notna()].reset_index(drop=True)
        strength = [interaction_strength(self._parameters.layout, row, apc) for row in theta]
        pairs.insert(3, "strength", np.concatenate(strength))
        return pairs.sort_values("strength", ascending=False, ignore_index=True)

    def __repr__(self) -> str:
        return (
            f"Inference on {self._parameters.layout.size} parameters of {len(self._labels.groups)} groups.\n{self.note}"
        )
