"""Conditional odds ratios of interacting predictors.

The log odds ratio of level a of predictor i and level b of j against the reference levels, given
the other predictors, is ``ln(P(a, b) P(0, 0) / (P(a, 0) P(0, b)))``: the coupling ``J_ij(a, b)``,
plus the couplings of larger terms that contain i and j, at the levels of the other predictors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import pandas as pd

from bbl.boltzmann.inference.odds_ratios import (
    ConditionalRatio,
    LogOddsRatios,
    conditional_ratio,
    log_odds_ratios,
)
from bbl.boltzmann.inference.significance import Kind
from bbl.checks import check_keywords, near_match, share
from bbl.design.labels import Labels
from bbl.errors import DataError, OptionError
from bbl.report.text import label_text
from bbl.results.machine.machine import MachineResults, of_categories
from bbl.stats.survey.sample import check_single_rows

__all__ = ["OddsRatiosMixin"]

# only the penalty makes these couplings finite
NOT_ESTIMABLE = (Kind.UNBOUNDED.text, Kind.SEPARATED.text, Kind.ABSENT.text)


def _make_ratio_frame(
    labels: Labels,
    i: int,
    j: int,
    ratios: LogOddsRatios,
    exact: dict[int, ConditionalRatio],
    conf_level: float,
) -> pd.DataFrame:
    """Return a table of the n odds ratios of predictors i and j, with names, levels and confidence
    limits.

    `exact` contains the ratios without a standard error, by position.

    `ratios` contains the level codes ``levels`` (n, 2 + number of modifiers) of i, j and
    ``modifiers``, the predictors that modify the odds ratio of i and j, and the log odds ratios
    ``estimate`` (n,) with their standard errors ``se`` (n,).
    """
    from scipy.special import ndtri

    half_width = float(ndtri(0.5 + conf_level / 2)) * ratios.se
    modifier_texts = [  # `cell` is a row of `ratios.levels`
        ", ".join(
            f"{label_text(labels.names[k])}={label_text(labels.levels[k][level])}"
            for k, level in zip(ratios.modifiers, cell[2:], strict=True)
        )
        for cell in ratios.levels
    ]
    columns: dict[str, list] = {}
    for pair_column, (k, suffix) in enumerate(((i, ""), (j, "2"))):
        columns[f"predictor{suffix}"] = [labels.names[k]] * len(modifier_texts)
        columns[f"level{suffix}"] = [
            labels.levels[k][level] for level in ratios.levels[:, pair_column]
        ]
        columns[f"reference{suffix}"] = [labels.levels[k][0]] * len(modifier_texts)
    frame = pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in columns.items()}
    )
    estimate = ratios.estimate.copy()
    lower = estimate - half_width
    upper = estimate + half_width
    interval = np.full(len(estimate), "Wald", dtype=object)
    reason = np.full(len(estimate), "", dtype=object)
    for row, ratio in exact.items():
        estimate[row] = ratio.estimate
        lower[row] = ratio.lower
        upper[row] = ratio.upper
        interval[row] = "" if ratio.reason else "exact"
        reason[row] = ratio.reason
    with np.errstate(over="ignore"):  # a huge log odds ratio gives an infinite odds ratio
        limits = {
            "odds_ratio": np.exp(estimate),
            "lower": np.exp(lower),
            "upper": np.exp(upper),
        }
    return frame.assign(
        given=modifier_texts,
        **limits,
        log_odds_ratio=estimate,
        se=ratios.se,
        interval=interval,
        reason=reason,
    )


class OddsRatiosMixin(MachineResults):
    """Odds ratios of a fitted Boltzmann machine."""

    @check_keywords
    @of_categories
    def odds_ratios(
        self,
        pairs: Sequence[tuple[Hashable, Hashable]] | None = None,
        conf_level: float = 0.95,
    ) -> pd.DataFrame:
        """Return the conditional odds ratios of interacting predictors by pairs of levels, with
        confidence intervals.

        The odds ratio of two levels against the reference levels, given all other predictors, is
        the exponential of their coupling. If two predictors are part of a term of three or more
        predictors, their odds ratio depends on the levels of the other predictors. The table then
        has a row for each combination of these levels. Odds ratios are available for methods with
        standard errors of single groups, such as ``"ml"`` and ``"pseudo"``.

        For other analyses of contingency tables, see statsmodels:
        `statsmodels.stats.contingency_tables.StratifiedTable` for the Mantel-Haenszel common odds
        ratio and tests of homogeneity, `Table` for local odds ratios, and `SquareTable`.

        Parameters
        ----------
        pairs : sequence of (name, name), optional
            Interacting predictors; all interacting pairs by default.
        conf_level : float, default 0.95
            Coverage of the intervals.

        Returns
        -------
        DataFrame
            With a response, ``group``; then ``predictor``, ``level``, ``reference``,
            ``predictor2``, ``level2``, ``reference2``, ``given`` (the levels of predictors that
            modify the odds ratio; empty if there are none), ``odds_ratio``, ``lower``, ``upper``,
            ``log_odds_ratio``, its standard error ``se``, ``interval`` and ``reason``. Intervals
            are ``"Wald"``, on the logarithmic scale. With a penalty, they reflect the variance of
            the penalised estimate, but not its bias. If a cell is empty, or other predictors
            determine a coupling, there is no standard error and the interval is ``"exact"``: an
            unpenalised conditional estimate, which may be 0 or infinite, with limits of coverage at
            least `conf_level`. ``reason`` explains missing limits.

        Raises
        ------
        OptionError
            If the method has no standard errors of single groups, or a pair does not interact.
        DataError
            If the model has no interactions, weights are not counts, or the model was saved without
            its rows.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("~ Class + Sex*Survived", titanic, "Freq", method="ml", verbose=0)
        >>> fit.odds_ratios()[["level", "level2", "odds_ratio", "lower", "upper"]].round(3)
          level level2  odds_ratio  lower  upper
        0  Male    Yes       0.099  0.078  0.125
        """
        share("conf_level", conf_level)
        # why the engine has no odds ratios
        if (reason := self.engine.refusals().get("odds_ratios")) is not None:
            raise OptionError(
                f"{reason}.", argument="method", hint="Choose method='ml' or method='pseudo'."
            )
        self.engine.check_equations()  # raises an OptionError if the method has no standard errors
        position_pairs = self._resolve_pairs(pairs)
        tables = []
        # raises a DataError for a sampling design
        check_single_rows(self.survey, "A table of odds ratios")
        parameters = self.estimate.parameters
        rows = self._countable_rows()
        # a random sample of the rows has no exact distributions
        has_exact = self._kept is None or self._kept.is_complete
        # (K, size): the test of each parameter, or why it is not tested, as text
        verdicts = self._inference.verdicts().to_numpy().reshape(parameters.theta.shape)
        for g, theta in enumerate(parameters.theta):
            # (size, size); `of_group` leaves out structural zeros of the group
            covariance = self._inference._group_covariance(g)
            is_decided_by_penalty = np.isin(verdicts[g], NOT_ESTIMABLE)
            covariance[is_decided_by_penalty] = covariance[:, is_decided_by_penalty] = np.nan
            for i, j in position_pairs:
                ratios = log_odds_ratios(parameters.layout, theta, covariance, i, j)
                exact = {
                    int(row): conditional_ratio(
                        rows.group(g),
                        parameters.layout.of_group(g),
                        i,
                        j,
                        ratios.levels[row],
                        ratios.modifiers,
                        conf_level,
                    )
                    for row in np.flatnonzero(np.isnan(ratios.se) & has_exact)
                }
                table = _make_ratio_frame(self.labels, i, j, ratios, exact, conf_level)
                if self.design.classes:
                    table.insert(
                        0, "group", pd.Series([self.labels.groups[g]] * len(table), dtype=object)
                    )
                tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def _resolve_pairs(
        self, pairs: Sequence[tuple[Hashable, Hashable]] | None
    ) -> list[tuple[int, int]]:
        """Return the positions (i, j) of the predictors in each of `pairs`, in the same order.

        `pairs` contains names; None for all interacting pairs.
        """
        layout = self.estimate.parameters.layout
        names = list(self.labels.names)
        # a scope contains the predictors of a term, one or several
        interacting = {(i, j) for scope in layout.scopes for i in scope for j in scope if i < j}
        if not interacting:
            raise DataError(
                "The model has no interactions, so all odds ratios are 1.",
                argument="formula",
                hint="Use a formula such as 'a*b + c'.",
            )
        if pairs is None:
            return sorted(interacting)
        position_pairs = []
        # a string, or anything but a sequence, is reported below
        for pair in (
            list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, str) else [pairs]
        ):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise OptionError(
                    f"pairs contains {pair!r}.",
                    argument="pairs",
                    hint="Pass a list of pairs of predictors, [(a, b)].",
                )
            for name in pair:
                if name not in names:
                    raise OptionError(
                        f"{name!r} is not a predictor.",
                        argument="pairs",
                        hint=(
                            f"{near_match(name, names)}Choose from the predictors "
                            f"{', '.join(map(repr, names))}."
                        ),
                    )
            i, j = (names.index(name) for name in pair)
            if (min(i, j), max(i, j)) not in interacting:
                raise OptionError(
                    f"{pair[0]!r} and {pair[1]!r} do not interact in this model, so their odds "
                    "ratios are 1.",
                    argument="pairs",
                    hint="List the interacting pairs with interactions().",
                )
            position_pairs.append((i, j))
        return position_pairs
