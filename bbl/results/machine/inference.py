"""Inference: labelled tables of standard errors, intervals and tests of a fit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, cast, final

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.comparisons import compare_groups, compare_pooled
from bbl.boltzmann.inference.covariance import Covariances, full_covariance
from bbl.boltzmann.inference.joint import JointTests
from bbl.boltzmann.inference.numbers import NumberTests
from bbl.boltzmann.inference.significance import (
    Comparison,
    Evidence,
    Fitted,
    Kind,
    evidence,
    variances,
)
from bbl.boltzmann.inference.significance import of_group as compare_with_zero
from bbl.checks import check_keywords, share
from bbl.design.labels import Labels
from bbl.engines import Engine
from bbl.engines.level_scores import score_ranges
from bbl.errors import OptionError
from bbl.model.parameters import Parameters
from bbl.model.scores import slopes
from bbl.parallel import progress_bar
from bbl.report.machine.inference_table import inference_summary, labelled, parameter_names
from bbl.report.machine.summary import Summary
from bbl.report.text import fill, label_text, slope_name
from bbl.results.machine.estimate_tables import (
    estimate_table,
    rank_interactions,
    selection_names,
    term_labels,
)
from bbl.results.machine.estimates import (
    Compared,
    Estimates,
    resolve_jointly,
    resolve_of,
    without_reference,
)
from bbl.results.machine.thresholds import threshold_contrasts, thresholds
from bbl.rows.kept import KeptRows
from bbl.rows.sample import Sample
from bbl.stats.student import t_quantile, two_sided_p
from bbl.stats.survey.sample import SurveySample
from bbl.stats.wald import adjust, wald

__all__ = ["PVALUES", "Inference"]


# notes below the tables of summaries
NOTE = (
    " Tests and intervals do not depend on the penalty: Wald tests where cell counts are "
    "sufficient, exact conditional tests where they are sparse."
)
JOINT_NOTE = (
    " Parameters are log odds ratios against {}, as in logistic and multinomial regression, with "
    "Wald tests."
)
CUMULATIVE_NOTE = (
    " Parameters are log odds ratios of a group or a higher one against all lower groups, with "
    "Wald tests. They are the same for all groups above {}."
)
SURVEY_NOTE = (
    "{}: t and F distributions, joint tests with the Rao-Scott correction. Tests do not depend "
    "on the penalty. Terms with too few rows or clusters are not tested."
)
PENALTY_NOTE = (
    " Estimates and standard errors come from the penalised fit and are biased towards zero, so "
    "an estimate may lie outside its interval."
)
SAMPLE_NOTE = (
    "from {} (random, with all rows of rare levels). Standard errors are exact to about {:.1g} "
    '%. inference(rows="all") uses all rows.'
)
SAMPLE_TESTS_NOTE = (
    " Tests and intervals do not depend on the penalty: Wald tests where cell counts are "
    "sufficient. Exact tests of sparse cells require all rows in memory."
)
TEST_COLUMNS = [
    "group",
    "predictor",
    "predictor2",
    "chisq",
    "df",
    "p",
    "p_holm",
    "p_bh",
    "test",
]
PVALUES = ("auto", "permutation")  # values of the argument `pvalues` of ``fit.interactions()``


@final
class Inference(Estimates):
    """Standard errors, confidence intervals and tests, as returned by ``fit.inference()``.

    Every table is a DataFrame. The argument `of` selects the estimates: ``"group"`` for the
    parameters of each group, ``"pooled"`` for their differences from the pooled fit (``dh``,
    ``dJ``), or a pair of groups ``(a, b)`` for the difference a minus b. The column ``test``
    contains the test of each row, or the reason why it is missing. A p-value is below 0.05 if and
    only if the 95 % interval excludes zero. Differences are tested using the rows of both groups
    being compared. With ``"pooled"``, each group is compared with all other groups combined. Under
    a sampling design (`bbl.survey`), z is replaced by a t statistic with the degrees of freedom of
    the design.

    Parameters
    ----------
    labels : Labels
        Names of the groups, the predictors and their levels.
    estimate : Estimate
        The fitted (penalised) parameters of all groups.
    engine : Engine
        The method of the fit, with its options.
    sample : Sample
        The training rows.
    survey : SurveySample, optional
        The rows' sampling design.
    kept : KeptRows, optional
        The same rows, if they are a random sample of the rows of data read in batches.
    numbers : NumberTests, optional
        Tests of the means of numeric predictors, which are not part of the other arguments.
    names : sequence
        Names of all predictors, including numeric predictors.

    Attributes
    ----------
    note : str
        Note on the standard errors and tests, printed below them.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> inference = fit.inference()
    >>> inference.bse["Yes"].round(3).head(2).to_dict()
    {'Class=2nd': 0.134, 'Class=3rd': 0.135}
    """

    def __init__(
        self,
        labels: Labels,
        estimate: Estimate,
        engine: Engine,
        sample: Sample,
        survey: SurveySample | None = None,
        kept: KeptRows | None = None,
        numbers: NumberTests | None = None,
        names: Sequence[Hashable] = (),
    ):
        engine.check_equations()  # raises an OptionError if the method has no standard errors
        self._labels = labels
        self._estimate = estimate
        self._engine = engine
        self._sample = sample
        self._survey = survey
        self._kept = kept
        self._numbers = numbers
        self._names = names

    @cached_property
    def note(self) -> str:
        """Note on the standard errors and tests, printed below them."""
        joint_note = ""
        if self._engine.joint:
            text = CUMULATIVE_NOTE if self._engine.cumulative else JOINT_NOTE
            joint_note = text.format(label_text(self._labels.groups[0]))
        if self._survey is not None:
            note = SURVEY_NOTE.format(self._survey.errors) + joint_note
        elif self._kept is not None:
            note = self._errors_note + (joint_note or SAMPLE_TESTS_NOTE)
        else:
            # `engine.errors` is a sentence on the source of the standard errors
            note = self._engine.errors + (joint_note or NOTE)
        return note + PENALTY_NOTE * self._engine.penalised

    @property
    def _errors_note(self) -> str:
        """Sentence on the source of the standard errors and, if they are based on a random sample
        of the rows, on this sample.
        """
        kept = self._kept
        if kept is None:
            return self._engine.errors
        error = self._typical_sampling_error
        if not error:
            return self._engine.errors
        groups = [label_text(group) for group in self._labels.groups]
        counts = [
            f"{n_kept:,} of {n_rows:,} rows{f' of {group}' if len(groups) > 1 else ''}"
            for group, n_kept, n_rows in zip(groups, kept.n_kept, kept.n_rows, strict=True)
        ]
        source = self._engine.errors.removesuffix(".")
        return f"{source}, {SAMPLE_NOTE.format(' and '.join(counts), 100.0 * error)}"

    @property
    def _typical_sampling_error(self) -> float:
        """Median of `sampling_error`."""
        errors = self._sampling_errors
        errors = errors[np.isfinite(errors) & (errors > 0.0)]
        return float(np.median(errors)) if len(errors) else 0.0

    @property
    def sampling_error(self) -> pd.Series:
        """Relative error of each standard error that is estimated from a random sample of the rows;
        0 if all rows were used.

        A fit of data read in batches keeps a sample of each group with over 500,000 rows. The error
        includes the error of the Hessians, which are computed from the same sample, and the gain
        from exact counts of levels.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex", titanic, weights="Freq")
        >>> float(fit.inference().sampling_error.max())
        0.0
        """
        error = self._sampling_errors.ravel()
        return labelled(
            estimate_table(self._labels, self._parameters, "group", error=error), "error"
        )

    @cached_property
    def _sampling_errors(self) -> np.ndarray:
        """Relative error (K, size) of each standard error; see `sampling_error`."""
        if self._kept is None:
            return np.zeros(self._parameters.theta.shape)
        if self._engine.joint:
            influence = self._joint_tests.influence
            expansion = cast(np.ndarray, self._kept.expansion)
            return influence.sampling_errors(self._kept.sample, expansion)[:, 1:]
        return self._covariances.sampling_errors

    @property
    def _parameters(self) -> Parameters:
        """Fitted (penalised) parameters of all groups."""
        return self._estimate.parameters

    @cached_property
    def _covariances(self) -> Covariances:
        """Sandwich covariances of the penalised estimates of each group."""
        return Covariances(self._sample, self._estimate, self._engine, self._survey, self._kept)

    def _fitted(self, g: int) -> Fitted | None:
        """Return fit number `g` to all rows if only a random sample of the rows is available,
        otherwise None.

        The pooled fit is the last.
        """
        if self._kept is None:
            return None
        fits = self._estimate.fits
        kept = self._kept.drawn_from or self._kept.sample
        is_pooled = g == len(self._parameters.theta)
        return Fitted(
            fits[g].site_theta if g < len(fits) else None,
            kept.pooled if is_pooled else kept.group(g),
        )

    @property
    def composite(self) -> list[tuple[float, float]]:
        """Log pseudo-likelihood of the complete rows and effective number of parameters, for each
        group.
        """
        return self._covariances.composite

    @cached_property
    def _group_evidence(self) -> list[Evidence]:
        """For each group: unpenalised estimates, their covariances, and the kind of test of each
        parameter.
        """
        layout = self._parameters.layout
        engine = self._engine
        found = []
        with progress_bar(len(self._parameters.theta), "unpenalised fits", True) as progress:
            # start at the penalised parameters `theta`
            for g, theta in enumerate(self._parameters.theta):
                group_layout = layout.of_group(g)
                design = self._group_survey(g)
                found.append(
                    evidence(
                        self._sample.group(g),
                        group_layout,
                        theta,
                        engine,
                        design,
                        fitted=self._fitted(g),
                    )
                )
                progress()
        return found

    def _group_survey(self, g: int) -> SurveySample | None:
        """Return the sampling design of the rows of group number `g`, or None."""
        return None if self._survey is None else self._survey.of_group(self._sample.response == g)

    @cached_property
    def _pooled_evidence(self) -> Evidence:
        """Evidence from all rows, pooled into one group."""
        parameters = self._parameters
        # start of the unpenalised fit, even without a penalised pooled fit
        start = parameters.theta[0] if parameters.pooled is None else parameters.pooled
        return evidence(
            self._sample.pooled,
            parameters.layout.of_pooled,
            start,
            self._engine,
            self._survey,
            fitted=self._fitted(len(parameters.theta)),
        )

    @cached_property
    def _pooled_tests(self) -> list[Comparison]:
        """For each group: tests of the differences between its parameters and the pooled
        parameters.
        """
        return compare_pooled(self._group_evidence, self._pooled_evidence)

    @cached_property
    def _joint_tests(self) -> JointTests:
        """Wald tests of groups that are fitted jointly: ``of_group(g)``, ``between(a, b)``,
        ``covariance(groups)``.
        """
        expansion = None if self._kept is None else self._kept.expansion
        return JointTests(self._sample, self._estimate, self._engine, self._survey, expansion)

    def _selection(self, of: Compared) -> str | tuple[int, int]:
        """Return what `of` selects: "group", "pooled" or the positions of two groups; see
        `resolve_of`.
        """
        if self._engine.joint:
            return resolve_jointly(of, list(self._labels.groups), self._engine)
        return resolve_of(of, list(self._labels.groups), self._parameters.pooled is not None)

    def _comparisons(self, of: Compared) -> list[Comparison]:
        """Return the tests of the selected parameters: one `Comparison` per group, or one for a
        pair.
        """
        selection = self._selection(of)
        if not self._parameters.layout.size:  # all predictors are numeric
            return []
        if self._engine.joint:
            if isinstance(selection, tuple):
                return [self._joint_tests.between(*selection)]
            return [self._joint_tests.of_group(g) for g in range(len(self._labels.groups))]
        group_evidence = self._group_evidence
        if isinstance(selection, tuple):
            one, other = (group_evidence[g] for g in selection)
            return [compare_groups(one, other, self._pooled_evidence)]
        return (
            [compare_with_zero(group) for group in group_evidence]
            if selection == "group"
            else self._pooled_tests
        )

    def _standard_errors(self, of: Compared) -> np.ndarray:
        """Return the standard errors (K * size,), or (size,) for a pair, of the penalised
        estimates.
        """
        if self._engine.joint:
            return _joined(
                [np.sqrt(variances(comparison.terms)) for comparison in self._comparisons(of)]
            )
        selection = self._selection(of)
        if not self._parameters.layout.size:
            return np.zeros(0)
        # lists with a covariance matrix for each term. `group`: one list per group. `shift`:
        # likewise for differences from the pooled fit (None without one, but then `_selection` has
        # rejected "pooled"). `between` returns the list for a difference of two groups
        sandwich = self._covariances
        if isinstance(selection, tuple):
            group_matrices = [sandwich.between(*selection)]
        else:
            group_matrices = (
                sandwich.group if selection == "group" or sandwich.shift is None else sandwich.shift
            )
        return np.concatenate([sandwich.standard_errors(matrices) for matrices in group_matrices])

    @property
    def bse(self) -> pd.Series:
        """Standard error of every parameter; missing if not available."""
        # computed without the tests, intervals and differences of `table`
        kinds = _joined([comparison.verdict for comparison in self._comparisons("group")])
        se = np.where(self._has_se(kinds), self._standard_errors("group"), np.nan)
        return labelled(estimate_table(self._labels, self._parameters, "group", se=se), "se")

    def _has_se(self, kinds: np.ndarray) -> np.ndarray:
        """Return a mask of the parameters that have a standard error, given the kinds of their
        tests.
        """
        # `Kind` is an integer: WALD < EXACT < FEW (too few rows for a test) < all kinds without a
        # standard error. Under a sampling design there are no exact tests: parameters with too few
        # rows have an se but no test
        if self._kept is not None:
            return kinds <= Kind.MOVED
        return kinds <= (Kind.EXACT if self._survey is None else Kind.FEW)

    @check_keywords
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
            The columns of ``tidy()`` that identify the parameter (``term``, ``group``,
            ``predictor``, ``level``, ``predictor2``, ``level2``), then ``estimate``, ``se``, ``z``
            (``t`` under a sampling design), ``p``, ``lower``, ``upper`` and ``test``: ``"Wald"``,
            ``"exact"`` or ``"exact (mid-p)"`` (without z), or the reason why the parameter is not
            tested. With a penalty, ``estimate`` and ``se`` refer to the penalised fit, and ``z``,
            ``p`` and the limits to an unpenalised fit.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> inference.table(of=("Yes", "No"))[
        ...     ["predictor", "level", "estimate", "lower", "upper"]
        ... ].head(2).round(2)
          predictor level  estimate  lower  upper
        0     Class   2nd     -1.59  -2.99  -0.48
        1     Class   3rd     -3.72  -5.02  -2.77
        """
        share("level", level)
        comparisons = self._comparisons(of)
        kinds = _joined([comparison.verdict for comparison in comparisons])
        limits = [comparison.limits(level) for comparison in comparisons]
        columns = {
            "se": np.where(self._has_se(kinds), self._standard_errors(of), np.nan),
            self.statistic: _joined([comparison.z for comparison in comparisons]),
            "p": _joined([comparison.p for comparison in comparisons]),
            "lower": _joined([lower for lower, _ in limits]),
            "upper": _joined([upper for _, upper in limits]),
            "test": _joined([comparison.verdict_texts for comparison in comparisons]),
        }
        return estimate_table(self._labels, self._parameters, of, **columns)

    @property
    def statistic(self) -> str:
        """Name of a parameter's test statistic: t under a sampling design, otherwise z."""
        return "z" if self._survey is None else "t"

    @property
    def _df(self) -> float:
        """Degrees of freedom of the test statistic; infinite unless there is a sampling design."""
        return np.inf if self._survey is None else self._survey.df

    def _intercept_covariance(self) -> np.ndarray:
        """Return the covariance (K, K) of the intercepts of a joint fit, relative to the reference
        group.

        It is NaN for intercepts that are not identified.
        """
        influence = self._joint_tests.influence
        if self._survey is None:
            out = influence.covariance()[:, 0, :, 0].copy()
        else:
            deviations = self._joint_tests.deviations[:, :, 0]
            out = deviations.T @ deviations
        reference = influence.reference
        is_unknown = [
            g != reference and not influence.determined(g, reference)[0] for g in range(len(out))
        ]
        out[is_unknown] = np.nan
        out[:, is_unknown] = np.nan
        return out

    def _intercepts(self) -> pd.DataFrame:
        """Return the intercepts of a joint fit, with a row for each group except the reference.

        The columns are ``group``, ``estimate``, ``se``, ``p`` and the test statistic.
        """
        influence = self._joint_tests.influence
        reference = influence.reference
        groups = [g for g in range(len(self._labels.groups)) if g != reference]
        if self._survey is None:
            variances_of = influence.covariance()[groups, 0, groups, 0]
        else:
            deviations = self._joint_tests.deviations[:, :, 0]
            variances_of = ((deviations[:, groups] - deviations[:, [reference]]) ** 2).sum(axis=0)
        is_determined = [bool(influence.determined(g, reference)[0]) for g in groups]
        se = np.where(is_determined, np.sqrt(variances_of), np.nan)
        estimates = influence.coefficients[groups, 0] - influence.coefficients[reference, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = estimates / se
        df = np.inf if self._survey is None else self._survey.df
        return pd.DataFrame(
            {
                "group": [self._labels.groups[g] for g in groups],
                "estimate": estimates,
                "se": se,
                self.statistic: statistic,
                "p": two_sided_p(statistic, df),
            }
        )

    def _coefficients(self) -> pd.DataFrame:
        """Return all coefficients of a joint fit as a regression table.

        The intercepts are followed by a row for each coefficient of each group except the
        reference.
        """
        table = self.table()
        parts = []
        for _, intercept in self._intercepts().iterrows():
            rows = table[table["group"] == intercept["group"]]
            names = ["(Intercept)", *parameter_names(rows)]
            if len(self._labels.groups) > 2:
                names = [f"{label_text(intercept['group'])}: {name}" for name in names]
            columns = {"Estimate": "estimate", "Std. Error": "se", self.statistic: self.statistic}
            columns[f"Pr(>|{self.statistic}|)"] = "p"
            part = {
                title: np.append(intercept[name], rows[name]).astype(float)
                for title, name in columns.items()
            }
            parts.append(pd.DataFrame(part, index=pd.Index(names, dtype=object)))
        return pd.concat(parts)

    @check_keywords
    def thresholds(self, level: float = 0.95) -> pd.DataFrame:
        """Return the thresholds of an ordered response with standard errors and intervals.

        Parameters
        ----------
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        DataFrame
            Indexed as ``fit.thresholds``, with ``estimate``, ``se``, ``z`` (``t`` under a sampling
            design), ``p``, ``lower`` and ``upper``.

        Raises
        ------
        OptionError
            If the fit does not use the order of the response.

        Examples
        --------
        >>> import pandas as pd
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic().query("Class != 'Crew'")
        >>> classes = titanic["Class"].astype(str)
        >>> titanic["Class"] = pd.Categorical(classes, ["3rd", "2nd", "1st"], ordered=True)
        >>> fit = bbl.bbl(
        ...     "Class ~ Sex + Age",
        ...     titanic,
        ...     weights="Freq",
        ...     method="conditional",
        ...     ridge=0,
        ...     logits="cumulative",
        ... )
        >>> fit.inference().thresholds()[["estimate", "se"]].round(3)
                 estimate     se
        3rd|2nd    -0.367  0.094
        2nd|1st     0.636  0.095
        """
        share("level", level)
        if not self._engine.is_ordinal:
            raise OptionError(
                "This fit has no thresholds: it does not use the order of the response.",
                argument="logits",
                hint="Fit with method='conditional', ridge=0 and either logits='cumulative' or "
                "logits='adjacent'.",
            )
        estimates = thresholds(self._estimate, self._engine, self._labels)
        contrasts = threshold_contrasts(self._estimate, self._engine)
        se = np.sqrt(np.diag(contrasts @ self._intercept_covariance() @ contrasts.T))
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = estimates.to_numpy() / se
        half_width = t_quantile(0.5 + level / 2.0, self._df) * se
        return pd.DataFrame(
            {
                "estimate": estimates,
                "se": se,
                self.statistic: statistic,
                "p": two_sided_p(statistic, self._df),
                "lower": estimates - half_width,
                "upper": estimates + half_width,
            }
        )

    def verdicts(self, of: Compared = "group") -> pd.Series:
        """Return the column ``test`` of `table`: the test of each parameter, or the reason why it
        is not tested.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> inference.verdicts().value_counts().to_dict()
        {'Wald': 10, 'exact': 4, 'exact (mid-p)': 4}
        """
        texts = [comparison.verdict_texts for comparison in self._comparisons(of)]
        return pd.Series(_joined(texts), name="test")

    @check_keywords
    def profile(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
        """Return penalised likelihood ratio tests and profile limits, with ``ridge="firth"``.

        A test compares the maxima of the penalised likelihood with and without the parameter fixed
        at 0. The limits are the parameter values for which such a test has the p-value
        ``1 - level``. With separated groups, the likelihood is highly asymmetric. Profile limits
        then have better coverage than Wald limits (Heinze & Schemper 2002, Statistics in Medicine
        21).

        Parameters
        ----------
        of : "group" or (group, group), default "group"
            Each group against the first group with rows, or one group against another.
        level : float, default 0.95
            Coverage of the interval.

        Returns
        -------
        DataFrame
            The columns of ``tidy()`` that identify the parameter, then ``estimate``, ``chisq``
            (with 1 degree of freedom), ``p``, ``lower`` and ``upper``; missing for parameters that
            are not estimable.

        Raises
        ------
        OptionError
            If the fit does not use ``ridge="firth"``.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl(
        ...     "Survived ~ Class * Sex + Age",
        ...     titanic,
        ...     weights="Freq",
        ...     method="conditional",
        ...     ridge="firth",
        ... )
        >>> table = fit.inference().profile(of=("Yes", "No"))
        >>> table[["predictor", "level", "estimate", "lower", "upper"]].head(2).round(2)
          predictor level  estimate  lower  upper
        0     Class   2nd     -1.60  -2.82  -0.57
        1     Class   3rd     -3.77  -4.90  -2.89
        """
        from scipy.stats import chi2

        share("level", level)
        if not self._engine.has_profiles:
            raise OptionError(
                "Profile intervals require a fit with Firth's penalty.",
                argument="method",
                hint="Fit with method='conditional' and ridge='firth', or use the intervals from "
                "table().",
            )
        selection = self._selection(of)
        influence = self._joint_tests.influence
        reference = influence.reference
        pairs = (
            [selection]
            if isinstance(selection, tuple)
            else [(g, reference) for g in range(len(self._labels.groups))]
        )
        quantile = float(chi2.ppf(level, 1))
        parts = [
            influence.profile(a, b, quantile)
            if a != b
            else np.full((3, self._parameters.layout.size), np.nan)
            for a, b in pairs
        ]
        statistic, lower, upper = np.concatenate(parts, axis=1)
        columns = {"chisq": statistic, "p": chi2.sf(statistic, 1), "lower": lower, "upper": upper}
        frame = estimate_table(self._labels, self._parameters, of, **columns)
        if isinstance(selection, tuple):
            return frame
        is_reference = frame["group"] == self._labels.groups[reference]
        return frame[~is_reference].reset_index(drop=True)

    @check_keywords
    def tests(self, of: Compared = "group") -> pd.DataFrame:
        """Return joint tests that all fields of a predictor, or all couplings of a pair, are zero.

        Additional rows contain tests of the means of numeric predictors. For a numeric predictor,
        the hypothesis is that its mean at the reference levels is equal in two groups. For a pair
        of a categorical and a numeric predictor, it is that the levels do not affect the mean
        (``of="group"``) or have the same effect in two groups. These Wald tests do not assume a
        normal distribution.

        Parameters
        ----------
        of : "group", "pooled" or (group, group), default "group"

        Returns
        -------
        DataFrame
            ``group``, ``predictor``, ``predictor2`` (missing for fields; if there are terms of
            three predictors, these are preceded by ``order`` and followed by ``predictor3``),
            ``chisq``, ``df``, ``p``, ``p_holm`` and ``p_bh`` (p adjusted by the Holm and
            Benjamini-Hochberg methods within each group, separately for predictors and
            interactions, and separately for terms with and without numeric predictors), and
            ``test``: ``"Wald"``, ``"exact"`` or ``"exact (mid-p)"``, followed by the number of
            tested parameters if some parameters of the term cannot be tested; or the reason why the
            term is not tested. Exact tests do not have a ``chisq`` and do not require finite
            estimates.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> inference.tests(of=("Yes", "No"))[["predictor", "predictor2", "df", "p"]].round(4)
          predictor predictor2  df       p
        0     Class        NaN   3  0.0000
        1       Sex        NaN   1  0.0000
        2       Age        NaN   1  0.0915
        3     Class        Sex   3  0.0000
        4       Sex        Age   1  0.0001
        """
        parts = [self._term_tests(of), *self._number_tests(of)]
        return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)

    def _number_tests(self, of: Compared) -> list[pd.DataFrame]:
        """Return the rows of `tests` for numeric predictors.

        The list is empty if no predictor is numeric, and for differences from the pooled fit, which
        does not include them.
        """
        numbers = self._numbers
        selection = self._selection(of)
        if numbers is None or selection == "pooled":
            return []
        if isinstance(selection, tuple):
            found = [numbers.between(*selection)]
        else:
            found = [numbers.of_group(g) for g in range(len(self._labels.groups))]
        tables = []
        for group, tests in zip(selection_names(of, list(self._labels.groups)), found, strict=True):
            scopes = [test.scope for test in tests]
            columns: dict[str, Any] = {"group": [group] * len(tests)}
            if self._parameters.layout.order > 2:
                columns["order"] = [len(scope) for scope in scopes]
            columns["predictor"] = [self._names[scope[0]] for scope in scopes]
            partners = [self._names[scope[1]] if len(scope) > 1 else pd.NA for scope in scopes]
            columns["predictor2"] = pd.array(partners, dtype=object)
            p = np.array([test.p for test in tests])
            columns |= {
                "chisq": [test.statistic for test in tests],
                "df": [test.df for test in tests],
                "p": p,
            }
            columns |= _adjusted(p, sum(len(scope) == 1 for scope in scopes))
            columns["test"] = [test.text for test in tests]
            if tests:
                tables.append(pd.DataFrame(columns))
        return tables

    def _term_tests(self, of: Compared) -> pd.DataFrame:
        """Return the rows of `tests` for categorical predictors."""
        if not self._parameters.layout.size:
            return pd.DataFrame(columns=TEST_COLUMNS)
        groups = selection_names(of, list(self._labels.groups))
        comparisons = self._comparisons(of)
        layout = self._parameters.layout
        m = layout.m
        tables = []
        with progress_bar(len(groups), "tests", True) as progress:
            for group, comparison in zip(groups, comparisons, strict=True):
                # one entry per term: m predictors, then interactions
                chisq, df, p, test_texts = comparison.tables(progress)
                table = pd.DataFrame(
                    {
                        "group": group,
                        **term_labels(self._labels, layout),
                        "chisq": chisq,
                        "df": df,
                        "p": p,
                    }
                )
                table = table.assign(**_adjusted(p, m))
                table["test"] = test_texts
                tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @check_keywords
    def slopes(self, of: Compared = "group", level: float = 0.95) -> pd.DataFrame:
        """Return the slopes of couplings that are linear in level scores (``ordered="linear"``).

        Parameters
        ----------
        of, level
            As in `table`.

        Returns
        -------
        DataFrame
            The columns of `table` except ``term``, with a row for each free coupling of the terms
            with scores. The ``level`` of predictors with scores is missing. ``estimate``, ``se``
            and the limits are per unit of the scores: for two predictors with scores 0, 1, 2, ...
            the estimate is the log odds ratio of neighbouring levels. The table is empty if the
            model has no level scores.

        Examples
        --------
        >>> import pandas as pd
        >>> import bbl
        >>> levels = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
        >>> housing = pd.DataFrame(
        ...     {
        ...         "satisfaction": pd.Series(["low", "mid", "high"] * 3, dtype=levels),
        ...         "influence": pd.Series(["low", "mid", "high"], dtype=levels).repeat(3).array,
        ...         "n": [282, 170, 175, 206, 189, 264, 79, 87, 229],
        ...     }
        ... )
        >>> fit = bbl.bbl("~ satisfaction:influence", housing, "n", method="ml", ordered="linear")
        >>> fit.inference().slopes()[["predictor", "predictor2", "estimate", "se"]].round(4)
              predictor predictor2  estimate      se
        0  satisfaction  influence    0.3916  0.0397
        """
        layout = self._parameters.layout
        found = slopes(layout, score_ranges(self._engine, self._labels.names, layout))
        table = self.table(of, level)
        n_groups = len(table) // max(layout.size, 1)
        positions = np.array([slope.position for slope in found], dtype=np.intp)
        rows = (np.arange(n_groups)[:, None] * layout.size + positions).ravel()
        frame = table.iloc[rows].reset_index(drop=True).drop(columns="term")
        units = np.tile([slope.unit for slope in found], n_groups)
        for column in ("estimate", "se", "lower", "upper"):
            frame[column] = frame[column] / units
        for axis in range(layout.order):
            column = "level" if axis == 0 else f"level{axis + 1}"
            is_linear = np.array(
                [axis < len(slope.levels) and slope.levels[axis] is None for slope in found],
                dtype=bool,
            )
            frame[column] = frame[column].astype(object).mask(np.tile(is_linear, n_groups), np.nan)
        return frame

    def _slope_names(self) -> list[str]:
        """Return the row names of `slopes` for one group, such as ``a:b`` or ``a:c, c=l``."""
        layout = self._parameters.layout
        names = []
        for slope in slopes(layout, score_ranges(self._engine, self._labels.names, layout)):
            term = ":".join(label_text(self._labels.names[i]) for i in slope.scope)
            levels = slope_name(slope, self._labels)
            names.append(f"{term}, {levels}" if levels else term)
        return names

    def summary_tests(self, of: Compared = "group") -> pd.DataFrame:
        """Return `tests` of categorical predictors for printing, with the column ``odds_ratio`` for
        exact tests.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> "odds_ratio" in fit.inference().summary_tests(of=("Yes", "No"))
        True
        """
        odds_ratios = [comparison.odds_ratios() for comparison in self._comparisons(of)]
        tests = self._term_tests(of).assign(odds_ratio=_joined(odds_ratios))
        return without_reference(tests)

    @check_keywords
    def interactions(self, of: Compared = "group", apc: bool = False) -> pd.DataFrame:
        """Return the interactions with their tests, strongest first (see ``fit.interactions()``).

        If `apc` is True, the average-product correction is subtracted from the strengths. It is the
        product of the mean strengths of both predictors divided by the overall mean.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> inference.interactions(of=("Yes", "No"))[["predictor", "predictor2", "strength"]].round(
        ...     3
        ... )
          predictor predictor2  strength
        0     Class        Sex     1.477
        1       Sex        Age     0.831
        """
        tests = self._term_tests(of)
        interactions = tests[tests["predictor2"].notna()].reset_index(drop=True)
        return rank_interactions(interactions, self._parameters, of, list(self._labels.groups), apc)

    def _covariance(self, groups: list[int]) -> np.ndarray:
        """Return the covariance (q, q) of the q (penalised) estimates of `groups`, ordered by
        group.
        """
        from scipy.linalg import block_diag

        if self._engine.joint:
            return self._joint_tests.covariance(groups)
        # under a sampling design: E (u, size) per group, for u clusters; the covariance is E'E
        if self._covariances.deviations is not None:
            deviations = np.hstack([self._covariances.deviations[g] for g in groups])
            return deviations.T @ deviations
        return block_diag(*(self._group_covariance(g) for g in groups))

    def _group_covariance(self, g: int) -> np.ndarray:
        """Return the covariance (size, size) of the estimates of group number `g`."""
        fit = self._estimate.fits[g]
        return full_covariance(
            self._sample.group(g),
            self._parameters.layout.of_group(g),
            self._engine,
            None if self._kept is None else (self._parameters.theta[g], fit.site_theta),
        )

    def _joint_wald_test(
        self, is_tested: np.ndarray, contrasts: np.ndarray
    ) -> tuple[float, int, list[tuple[int, int]]]:
        """Test that combinations of some parameters are zero in all groups, using unpenalised
        estimates.

        Parameters
        ----------
        is_tested : ndarray of bool, shape (size,)
            The q parameters in the combinations.
        contrasts : ndarray, shape (q, r)
            Coefficients of each combination (column).

        Returns
        -------
        statistic : float
            Statistic of the chi-square test; nan if some parameter does not have a Wald test.
        df : int
        refused : list of (int, int)
            Group number and position of each parameter without a Wald test.
        """
        positions = np.flatnonzero(is_tested)
        statistic = 0.0
        df = 0
        refused = []
        for g, group in enumerate(self._group_evidence):
            kind = group.kind[positions]
            refused += [(g, int(k)) for k in positions[kind != Kind.WALD]]
            if refused or group.influence is None:
                continue
            covariance = np.zeros((contrasts.shape[1],) * 2)
            for psi, weights in group.influence.blocks(group.rows):
                tested = psi[:, positions] @ contrasts
                covariance += (tested.T * weights) @ tested
            group_statistic, group_df, _ = wald([group.theta[positions] @ contrasts], [covariance])
            statistic += float(group_statistic[0])
            df += int(group_df[0])
        return (np.nan if refused else statistic), df, refused

    @check_keywords
    def summary(self, of: Compared = "group", level: float = 0.95) -> Summary:
        """Return a summary of the parameters with their tests and of the joint tests.

        Parameters
        ----------
        of, level
            As in `table`.

        Returns
        -------
        Summary
            Can be displayed as text (the 20 parameters with the smallest p, in increasing order),
            HTML or LaTeX; ``.tables`` contains all parameters.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> inference = fit.inference()
        >>> list(inference.summary().tables)
        ['parameters', 'tests']
        """
        # printed as a column only if the penalty moves an estimate outside its limits; not in
        # ``.tables``
        unpenalised = _joined([comparison.unpenalised for comparison in self._comparisons(of)])
        table = without_reference(self.table(of, level).assign(unpenalised=unpenalised))
        tests = self.summary_tests(of)
        return inference_summary(table, tests, self.note, of)

    def __repr__(self) -> str:
        head = (
            f"Inference on {self._parameters.layout.size} parameters in "
            f"{len(self._labels.groups)} groups."
        )
        return f"{head}\n{fill(self.note)}"


def _adjusted(p: np.ndarray, m: int) -> dict[str, np.ndarray]:
    """Return the adjusted p-values of m predictors, followed by the adjusted p-values of
    interactions.

    Predictors and interactions are adjusted separately for multiple testing.
    """
    return {
        column: np.concatenate([adjust(p[:m], method), adjust(p[m:], method)])
        for column, method in (("p_holm", "holm"), ("p_bh", "fdr_bh"))
    }


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays; the result is empty for an empty sequence."""
    return np.concatenate(parts) if parts else np.zeros(0)
