"""Inference: standard errors, intervals and tests of a fit, under its labels."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import Estimate
from bbl.boltzmann.inference.comparisons import compare_groups, compare_pooled
from bbl.boltzmann.inference.covariance import Covariances, covariances, full_covariance
from bbl.boltzmann.inference.permutation import permutation_tests
from bbl.boltzmann.inference.significance import Comparison, Evidence, Kind, evidence, of_group
from bbl.checks import choice, flag, near_match, share, verb
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.model.ranking import interaction_strength
from bbl.report.machine.inference_table import inference_summary
from bbl.report.machine.summary import Summary
from bbl.report.machine.tables import Coefficients
from bbl.results.machine.estimates import Compared, Estimates
from bbl.rows.sample import Sample
from bbl.stats.wald import adjust

__all__ = ["PVALUES", "Inference", "permuted", "ranked", "untested"]


def compared(of: Compared, groups: list, pooled: bool) -> str | tuple[int, int]:
    """Return ``"group"``, ``"pooled"`` or the numbers of two groups, having checked `of`."""
    if isinstance(of, tuple) and len(of) == 2:
        for g in of:
            if g not in groups:
                raise OptionError(f"{g!r} is no group{near_match(g, groups)}; groups are {groups}.", argument="of")
        if of[0] == of[1]:
            raise OptionError(f"of must be a pair of different groups; got {of!r}.", argument="of")
        return groups.index(of[0]), groups.index(of[1])
    if choice("of", of, ("group", "pooled")) == "pooled" and not pooled:
        raise OptionError("There is no pooled fit to compare with; fit with testNull=True.", argument="of")
    return of


NOTE = (  # below every summary
    "Sandwich (Godambe) standard errors of the pseudo-likelihood estimator. Tests and limits do not lean on a penalty: "
    "they come from the rows alone, by the normal distribution where cells are well filled and by exact conditional "
    "distributions where they are sparse; what the rows cannot determine has none."
)
PENALTY_NOTE = (
    " With a penalty in force the standard errors describe the spread of the penalised estimate, not its bias."
)
PVALUES = ("auto", "permutation")


def compared_names(of: Compared, groups: list) -> list:
    """Return the entries of the column ``group``: the groups, or ``"a - b"`` for a pair."""
    return [f"{of[0]} - {of[1]}"] if isinstance(of, tuple) else groups


def compared_estimates(parameters: Parameters, of: Compared, groups: list) -> np.ndarray:
    """Return the estimates (rows, size) of `of`: one row for each group, or one for a pair."""
    selection = compared(of, groups, parameters.pooled is not None)
    if isinstance(selection, tuple):
        return (parameters.theta[selection[0]] - parameters.theta[selection[1]])[None]
    return parameters.theta if selection == "group" else parameters.shift


def compared_frame(labels: Labels, parameters: Parameters, of: Compared) -> pd.DataFrame:
    """Return the columns of ``tidy()`` that name the parameters, and ``estimate``, for the rows of `of`."""
    theta = compared_estimates(parameters, of, list(labels.groups))
    row_labels = replace(labels, groups=tuple(compared_names(of, list(labels.groups))))
    frame = Coefficients(row_labels, Parameters(parameters.layout, theta)).to_frame()
    return frame.drop(columns=["pooled", "difference"])


def untested(labels: Labels, parameters: Parameters, of: Compared, reason: str) -> pd.DataFrame:
    """Return the interactions in the columns of `Inference.tests`, without tests; ``test`` holds the reason."""
    tables = [
        pd.DataFrame(
            {
                "group": [name] * sum(map(len, parameters.layout.terms)),
                **term_labels(labels, parameters.layout, parameters.layout.m),
                **dict.fromkeys(("chisq", "p", "p_holm", "p_bh"), np.nan),
                "df": 0,
                "test": reason,
            }
        )
        for name in compared_names(of, list(labels.groups))
    ]
    frame = pd.concat(tables, ignore_index=True)
    last = ["chisq", "df", "p", "p_holm", "p_bh", "test"]
    return frame[[column for column in frame.columns if column not in last] + last]


def term_labels(labels: Labels, layout: Layout, first: int = 0) -> dict[str, Any]:
    """Return the columns that name the terms of a layout from number `first` on, fields before interactions.

    ``predictor``, ``predictor2`` and, with terms of three, ``predictor3`` and so on, missing where a term has fewer;
    then there is ``order`` too.
    """
    scopes = layout.scopes[first:]
    out: dict[str, Any] = {} if layout.order <= 2 else {"order": np.array([len(s) for s in scopes], dtype=np.intp)}
    for a in range(max(layout.order, 2)):
        names = [labels.names[scope[a]] if a < len(scope) else pd.NA for scope in scopes]
        out[f"predictor{a + 1}" if a else "predictor"] = pd.array(names, dtype=object) if a else names
    return out


def permuted(
    labels: Labels, parameters: Parameters, sample: Sample, n: int, rng: np.random.Generator, workers: int
) -> pd.DataFrame:
    """Return the interactions of each group in the columns of `untested`, with `n` permutations to test each pair."""
    layout = parameters.layout
    frame, P, T = untested(labels, parameters, "group", Kind.FEW.text), len(layout.pairs), sum(map(len, layout.terms))
    if layout.order > 2:
        frame.loc[frame["order"] > 2, "test"] = "no test: permutation tests are of pairs"
    for g, stream in enumerate(rng.spawn(len(labels.groups))):
        statistic, df, p = permutation_tests(sample.group(g), layout, n, stream, workers)
        pair_rows = frame.index[g * T : g * T + P]
        values = {"chisq": statistic, "df": df, "p": p, "p_holm": adjust(p, "holm"), "p_bh": adjust(p, "fdr_bh")}
        for column, value in values.items():
            frame.loc[pair_rows, column] = value
    frame.loc[frame["df"] > 0, "test"] = "permutation"
    return frame


def ranked(pairs: pd.DataFrame, parameters: Parameters, of: Compared, groups: list, apc: bool) -> pd.DataFrame:
    """Return the table of interactions with the column ``strength``, strongest first; `apc` corrects pairs."""
    flag("apc", apc)
    rows = compared_estimates(parameters, of, groups)
    strength = [interaction_strength(parameters.layout, row, apc) for row in rows]
    last = max(k for k, column in enumerate(pairs.columns) if str(column).startswith("predictor"))
    pairs.insert(last + 1, "strength", np.concatenate(strength))
    return pairs.sort_values("strength", ascending=False, ignore_index=True)


@final
class Inference(Estimates):
    """Standard errors, confidence intervals and tests; made by ``fit.inference()``.

    Every table is a DataFrame. `of` says which estimates are meant: ``"group"`` for each group's own parameters,
    ``"pooled"`` for their difference from the pooled fit (``dh``, ``dJ``), or a pair of groups ``(a, b)`` for the
    parameters of a less those of b. In the column ``test`` each says how it was tested, or why it could not be.
    A p-value is below 0.05 if and only if the interval of 95 % leaves out zero. Differences are judged by the rows of
    both sides: of a group and of all other groups together for ``"pooled"``.

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
    """

    def __init__(self, labels: Labels, estimate: Estimate, engine: Engine, sample: Sample):
        engine.check_equations()
        self._labels, self._estimate, self._engine, self._sample = labels, estimate, engine, sample
        self.note = NOTE + PENALTY_NOTE * engine.penalised

    @property
    def _parameters(self) -> Parameters:
        return self._estimate.parameters

    @cached_property
    def _covariances(self) -> Covariances:
        return covariances(self._sample, self._estimate, self._engine)

    @property
    def composite(self) -> list[tuple[float, float]]:
        """Log pseudo-likelihood of each group, and its effective number of parameters."""
        return self._covariances.composite

    @cached_property
    def _groups(self) -> list[Evidence]:
        """Unpenalised evidence of the rows of each group about its parameters."""
        theta = self._parameters.theta
        return [evidence(self._sample.group(y), self._parameters.layout, row) for y, row in enumerate(theta)]

    @cached_property
    def _differences(self) -> list[Comparison]:
        """Tests of each group against the pooled fit."""
        parameters = self._parameters
        start = parameters.theta[0] if parameters.pooled is None else parameters.pooled
        return compare_pooled(self._groups, evidence(self._sample.pooled, parameters.layout, start))

    def _tested(self, of: Compared) -> list[Comparison]:
        """Return the tests of the parameters that `of` selects, one for each row of the tables."""
        selection = compared(of, list(self._labels.groups), self._parameters.pooled is not None)
        if isinstance(selection, tuple):
            return [compare_groups(self._groups[selection[0]], self._groups[selection[1]])]
        return [of_group(g) for g in self._groups] if selection == "group" else self._differences

    def _errors(self, of: Compared) -> np.ndarray:
        """Return the standard errors of the parameters that `of` selects, of the estimator with its penalty."""
        selection = compared(of, list(self._labels.groups), self._parameters.pooled is not None)
        covariances = self._covariances
        if isinstance(selection, tuple):
            terms = [covariances.between(*selection)]
        else:
            terms = covariances.group if selection == "group" or covariances.shift is None else covariances.shift
        return np.concatenate([covariances.standard_errors(t) for t in terms])

    @verb
    def table(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
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
        share("level", level)
        tested, frame = self._tested(of), compared_frame(self._labels, self._parameters, of)
        kinds = np.concatenate([t.verdict for t in tested])
        frame["se"] = np.where(kinds <= Kind.EXACT, self._errors(of), np.nan)
        frame["z"] = np.concatenate([t.z for t in tested])
        frame["p"] = np.concatenate([t.p for t in tested])
        lower, upper = zip(*(t.limits(level) for t in tested), strict=True)
        frame["lower"], frame["upper"] = np.concatenate(lower), np.concatenate(upper)
        frame["test"] = self.verdicts(of).to_numpy()
        return frame

    def verdicts(self, of: Compared = "group") -> pd.Series:
        """Return of every parameter how it is tested, or why it is not: the column ``test`` of `table`."""
        kinds = np.concatenate([t.verdict for t in self._tested(of)])
        return pd.Series(np.array([kind.text for kind in Kind], dtype=object)[kinds], name="test")

    @verb
    def tests(self, of: Compared = "group") -> pd.DataFrame:
        """Return the joint test of every predictor's fields and of every pair's couplings being zero.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2`` (missing for fields; with terms of three predictors ``order``
            before them, and ``predictor3`` after), ``chisq``, ``df``, ``p``, p adjusted within each group over the
            predictors or over the interactions that were tested: ``p_holm`` and ``p_bh``
            (Benjamini-Hochberg), and ``test``: ``"Wald"`` or ``"exact"``, with how many of the table's parameters it
            is of where some cannot be tested, or why there is no test. An exact test has no ``chisq``, and is there
            also where no parameter has a finite estimate.
        """
        names, tested = compared_names(of, list(self._labels.groups)), self._tested(of)
        layout = self._parameters.layout
        m, tables = layout.m, []
        for name, comparison in zip(names, tested, strict=True):
            statistic, df, p, words = comparison.tables()
            table = pd.DataFrame(
                {"group": name, **term_labels(self._labels, layout), "chisq": statistic, "df": df, "p": p}
            )
            for column, method in (("p_holm", "holm"), ("p_bh", "fdr_bh")):
                table[column] = np.concatenate([adjust(p[:m], method), adjust(p[m:], method)])
            table["test"] = words
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @verb
    def interactions(self, of: Compared = "group", apc: bool = False) -> pd.DataFrame:
        """Return the interacting pairs, strongest first, with their tests; as ``fit.interactions()`` (see there)."""
        tests = self.tests(of)
        pairs = tests[tests["predictor2"].notna()].reset_index(drop=True)
        return ranked(pairs, self._parameters, of, list(self._labels.groups), apc)

    def _covariance(self, g: int) -> np.ndarray:
        return full_covariance(self._sample.group(g), self._parameters.layout, self._engine)

    @verb
    def summary(self, of: Compared = "group", level: float = 0.95) -> Summary:
        """Return the tables as one summary: the parameters with their tests, and the joint tests.

        Parameters
        ----------
        of, level
            As in `table`.

        Returns
        -------
        Summary
            Prints as text (the 20 parameters with the smallest p), as HTML or LaTeX; ``.tables`` has all of them.
        """
        return inference_summary(self.table(of, level), self.tests(of), self.note)

    def __repr__(self) -> str:
        return (
            f"Inference on {self._parameters.layout.size} parameters of {len(self._labels.groups)} groups.\n{self.note}"
        )
