"""Inference: standard errors, intervals and tests of a fit, under its labels."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bbl.boltzmann.covariance import Covariances
from bbl.boltzmann.significance import (
    Comparison,
    Evidence,
    Kind,
    compare_groups,
    compare_pooled,
    of_group,
    significance,
)
from bbl.checks import choice, flag, near_match, real
from bbl.design.labels import Labels
from bbl.errors import OptionError
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.tables import Coefficients
from bbl.rows.sample import Sample
from bbl.stats.wald import adjust

__all__ = ["Inference", "compared"]


def compared(of: Any, groups: list, pooled: bool) -> str | tuple[int, int]:
    """Return what `of` asks for: ``"group"``, ``"pooled"``, or the numbers of two groups."""
    if isinstance(of, tuple) and len(of) == 2:
        for g in of:
            if g not in groups:
                raise OptionError(f"{g!r} is no group{near_match(g, groups)}; groups are {groups}.", argument="of")
        return groups.index(of[0]), groups.index(of[1])
    if choice("of", of, ("group", "pooled")) == "pooled" and not pooled:
        raise OptionError("There is no pooled fit to compare with; fit with testNull=True.", argument="of")
    return of


NOTE = (
    "Sandwich (Godambe) standard errors of the pseudo-likelihood estimator. Tests and limits do not lean on a penalty: "
    "they come from the rows alone, by the normal distribution where cells are well filled and by exact conditional "
    "distributions where they are sparse; what the rows cannot determine has none."
)
PENALTY = " With a penalty in force the standard errors describe the spread of the penalised estimate, not its bias."
TESTS = ("auto", "permutation")


class Inference:
    """Standard errors, confidence intervals and tests; made by ``fit.inference()``.

    Every table is a DataFrame. `of` says which estimates are meant: ``"group"`` for each group's own parameters,
    ``"pooled"`` for their difference from the pooled fit (``dh``, ``dJ``), or a pair of groups ``(a, b)`` for the
    parameters of a less those of b. In the column ``test`` each says how it was tested, or why it could not be.

    Parameters
    ----------
    labels : Labels
    parameters : Parameters
    covariances : Covariances
    sample : Sample
        The training rows.
    penalised : bool
        Whether a penalty was in force; then `note` says what that means.
    """

    def __init__(
        self, labels: Labels, parameters: Parameters, covariances: Covariances, sample: Sample, penalised: bool
    ):
        self._labels, self._parameters, self._covariances, self._sample = labels, parameters, covariances, sample
        self.note = NOTE + PENALTY * penalised

    @property
    def composite(self) -> list[tuple[float, float]]:
        """Log pseudo-likelihood of each group, and its effective number of parameters."""
        return self._covariances.composite

    @cached_property
    def _evidence(self) -> tuple[list[Evidence], Evidence | None]:
        return significance(self._sample, self._covariances)

    def _estimates(self, of: Any) -> tuple[list, np.ndarray, list[list[np.ndarray]], list[Comparison]]:
        """Return names, estimates (rows of parameters), table covariances and tests of what `of` asks for."""
        groups, theta = list(self._labels.groups), self._parameters.theta
        found = compared(of, groups, self._parameters.pooled is not None)
        own, pooled = self._evidence
        if isinstance(found, tuple):
            a, b = found
            name = f"{groups[a]} - {groups[b]}"
            return (
                [name],
                (theta[a] - theta[b])[None],
                [self._covariances.between(a, b)],
                [compare_groups(own[a], own[b])],
            )
        if pooled is None or found == "group" or self._covariances.shift is None:
            return groups, theta, self._covariances.group, [of_group(g) for g in own]
        return groups, self._parameters.shift, self._covariances.shift, compare_pooled(own, pooled)

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
            ``upper`` and ``test``: ``"Wald"``, ``"exact"`` (without z), or why there is no test.
        """
        real("level", level, 0.0, 1.0, open_low=True)
        names, theta, terms, tested = self._estimates(of)
        labels = Labels(self._labels.response, tuple(names), self._labels.names, self._labels.levels)
        frame = Coefficients(labels, Parameters(self._parameters.layout, theta)).to_frame()
        frame = frame.drop(columns=["pooled", "difference"])
        kinds = np.concatenate([t.verdict for t in tested])
        se = np.concatenate([self._covariances.standard_errors(t) for t in terms])
        frame["se"] = np.where(kinds <= Kind.EXACT, se, np.nan)
        frame["z"] = np.concatenate([t.z for t in tested])
        frame["p"] = np.concatenate([t.p for t in tested])
        lower, upper = zip(*(t.limits(level) for t in tested), strict=True)
        frame["lower"], frame["upper"] = np.concatenate(lower), np.concatenate(upper)
        frame["test"] = np.array([kind.text for kind in Kind], dtype=object)[kinds]
        return frame

    def tests(self, of: Any = "group") -> pd.DataFrame:
        """Return the joint test of every predictor's fields and of every pair's couplings being zero.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2`` (missing for fields), ``chisq``, ``df``, ``p``, p adjusted within
            each group over the predictors or over the pairs that were tested: ``p_holm`` and ``p_bh``
            (Benjamini-Hochberg), and ``test``: ``"Wald"`` or ``"exact"``, with how many of the table's parameters it
            is of where some cannot be tested, or why there is no test. An exact test has no ``chisq``.
        """
        names, _, _, tested = self._estimates(of)
        layout, labels = self._parameters.layout, list(self._labels.names)
        m, parts = layout.m, []
        for name, comparison in zip(names, tested, strict=True):
            statistic, df, p, words = comparison.tables()
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
            part["test"] = words
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
