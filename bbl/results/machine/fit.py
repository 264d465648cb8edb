"""BBLResults: Boltzmann machines fitted to K response groups, which are used to classify rows by
Bayes' rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, Unpack, final, overload

import numpy as np
import pandas as pd

from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.inference.score_covariance import score_covariance
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.prediction_checks import remedy, untuned_option
from bbl.boltzmann.relevance import CHOSEN_BY_ROWS
from bbl.capabilities import WITH_ZEROS
from bbl.checks import check_keywords, real
from bbl.choices import PredictionType, Unseen
from bbl.crossval import Scores
from bbl.design.decisions import Costs, DrawnDecisions, Priors
from bbl.errors import DataError, Hint, OptionError
from bbl.model.location_gradient import NumberScoreGradient
from bbl.model.marginal import MarginalEnergy
from bbl.model.score_gradient import ScoreGradient
from bbl.report.explore.score_model import ScoreModel
from bbl.report.machine.numbers import mean_test_section
from bbl.report.machine.summary import Summary, fit_summary, own_summary
from bbl.report.page import Part
from bbl.report.text import head_text, label_text
from bbl.results.classifier import ClassifierResults
from bbl.results.classifier_facts import loss_facts, loss_text, priors_facts
from bbl.results.error_source import DeltaMethod, ErrorSource
from bbl.results.explanation import Attribution
from bbl.results.machine.archive import unpack
from bbl.results.machine.facts import fit_facts, render_fit
from bbl.results.machine.fitted_machine import FittedMachine
from bbl.results.machine.report_parts import machine_parts, summary_notes
from bbl.results.machine.score_sum import machine_scores
from bbl.results.machine.thresholds import thresholds
from bbl.rows.sample import Sample
from bbl.stats.likelihood_ratio import likelihood_ratio
from bbl.stats.metrics import class_scores, with_priors

__all__ = ["BBLResults"]

# Larger parameters have no finite optimum: naive Bayes without a prior count uses ln 1e-300 (-690)
# for ln 0.
LARGEST_LOG_ODDS = 100.0
CUMULATIVE_PRIORS = "With priors, the probabilities no longer follow a model with cumulative logits"
CALIBRATED = " The calibration of class scores is treated as fixed."
TEMPERATURE = (
    "calibrate='temperature' multiplied the class scores by an estimated factor, and standard "
    "errors would ignore its uncertainty."
)


@final
@dataclass(frozen=True, repr=False)
class BBLResults(FittedMachine, ClassifierResults):
    """A fitted Boltzmann Bayes learner, as returned by `bbl.bbl`.

    Attributes
    ----------
    call : str
        The call that created the fit.
    design : Design
        Formula, factors and levels; used to encode new data like the training data.
    training : Sample or None
        The encoded training rows; None in a model that was loaded from a file without them.
    index : pandas.Index or None
        Labels of the training rows (rows with positive weight).
    engine : Engine
        The inference method and its options.
    estimate : Estimate
        Parameters, ln Z and convergence of every group.
    tuning : Tuning or None
        Settings with their validation log-losses, and the selected setting; None unless the fit was
        tuned by cross-validation.
    survey : SurveySample or None
        Sampling design of the training rows.
    priors : ndarray, shape (K,), or None
        Class proportions for predictions, see `with_priors`; None for the proportions in the
        training rows.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    >>> fit.log_z.round(3).to_dict()
    {'No': 5.982, 'Yes': 1.704}
    >>> fit.n_parameters, fit.converged
    (18, True)
    >>> fit.evaluate().scores.loc["log-loss", ["estimate", "baseline"]].round(3).tolist()
    [0.487, 0.629]
    """

    _kind = "bbl"
    _can_refit = True

    @cached_property
    def _delta_method(self) -> DeltaMethod:
        """Return the covariance and gradient for the delta method.

        Raises an OptionError or DataError if the fit has none.
        """
        estimate = self.estimate
        parameters = self.estimate.parameters
        if estimate.has_cumulative_logits and self.priors is not None:
            raise OptionError(
                f"{CUMULATIVE_PRIORS}, so effects have no standard errors by the delta method.",
                argument="priors",
                hint="Fit without priors, or use se='bootstrap'.",
            )
        # otherwise the class proportions are also estimated from the rows
        has_given_shares = self.priors is not None
        is_sample = self._kept is not None and not self._kept.is_complete
        kept = self._sample_for_errors() if is_sample else None
        covariance = score_covariance(
            self._checked_rows() if kept is None else kept.sample,
            estimate,
            self.engine,
            has_given_shares,
            self.survey,
            is_sample,
            None if kept is None else kept.expansion,
        )
        if is_sample:
            covariance = replace(covariance, note=self._inference._errors_note)
        gradient: ScoreGradient | NumberScoreGradient
        if estimate.location is None:
            gradient = ScoreGradient(
                parameters.layout, parameters.theta, estimate.has_cumulative_logits
            )
        else:
            layout = self._categorical.estimate.parameters.layout
            gradient = NumberScoreGradient(
                ScoreGradient(layout, parameters.theta), estimate.location
            )
        if estimate.calibration is None:
            return DeltaMethod(covariance, gradient)
        covariance = replace(covariance, note=covariance.note + CALIBRATED)
        return DeltaMethod(covariance, gradient)

    def _error_source(self, rng: np.random.Generator) -> ErrorSource:
        """Return the source of standard errors: posterior draws if the method has them, survey
        replicates, or a covariance.

        Raises an OptionError or DataError with the reason if the fit has none. `rng` is used to
        draw class proportions for posterior draws.
        """
        if self.training is None and self._kept is None and not self.engine.posterior:
            raise DataError(
                "This model does not contain the training rows needed for effects: it was "
                "saved without them, or fitted to data read in batches.",
                hint=Hint(
                    "Save it with store_data=True.", command_line="Save it with --store-data."
                ),
            )
        self._check_calibration()
        # `unbounded`: levels (predictor, code) whose parameters diverge during the fit; effects
        # that use them get a note
        estimate = self.estimate
        unbounded = self._unbounded_levels()
        if self.engine.posterior:
            if estimate.predictive is None:  # the draws with their ln Z, for averaging predictions
                lacking = self.engine.refusals().get(
                    "effects", "The draws of this fit are stored without an exact ln Z"
                )
                raise OptionError(f"{lacking}.", argument="se", hint="Use se='bootstrap'.")
            return ErrorSource(
                delta=None, draws=tuple(self._scores_by_draw(rng)), unbounded=unbounded
            )
        # why the engine has no standard errors
        if (reason := self.engine.refusals().get("effects")) is not None:
            raise OptionError(f"{reason}.", argument="se", hint="Use se='bootstrap'.")
        if self.estimate.relevance is not None:  # the predictors were selected on the same rows
            raise OptionError(
                f"{CHOSEN_BY_ROWS}.",
                argument="se",
                hint="Use se='bootstrap', which repeats the selection in each refit.",
            )
        if self.survey is not None and self.survey.replicates is not None:
            # neither a covariance nor draws: refit to the survey's replicate weights
            return ErrorSource(delta=None, draws=(), unbounded=unbounded, survey=self.survey)
        delta = self._delta_method  # raises an error without a covariance
        return ErrorSource(delta, draws=(), unbounded=unbounded | delta.covariance.unbounded)

    def _unbounded_levels(self) -> frozenset[tuple[int, int]]:
        """Return all levels (predictor, code) of predictors with a very large parameter or without
        convergence.

        A very large parameter does not have a finite optimum. It is a log odds relative to the
        first level. All levels of the predictor are returned, because either of the two levels may
        have no rows. `converged` (m,) indicates whether the fit of each predictor converged.
        """
        layout = self.estimate.parameters.layout
        theta = self.estimate.parameters.theta
        # a run for each of the K groups (the pooled run may follow); a posterior is not an optimum,
        # so that convergence does not matter
        runs = () if self.engine.posterior else self.estimate.fits[: len(theta)]
        predictors = {int(i) for run in runs for i in np.flatnonzero(~run.converged)}
        # (size,): parameters that are huge in some group; `levels_of` returns the levels
        # (predictor, code) of parameters
        is_huge = (np.abs(theta) > LARGEST_LOG_ODDS).any(axis=0)
        predictors |= {i for i, _ in layout.levels_of(is_huge)}
        return frozenset((i, code) for i in predictors for code in range(int(layout.n_levels[i])))

    def _scores_by_draw(self, rng: np.random.Generator) -> list[Scores]:
        """Return a class score function for each of the T draws of the parameters.

        Each draw has its own class proportions (K,), from a Dirichlet distribution with the group
        sizes as parameters.
        """
        estimate = self.estimate
        priors = self.priors
        # draws of parameters `theta` (K, T, size) and of ln Z `log_z` (K, T)
        draws = estimate.predictive
        assert draws is not None  # noqa: S101  # the caller has checked it
        totals = estimate.class_prior * self.nobs()  # (K,): observations in each group
        # (T, K); 0 for a group without rows
        drawn_shares = np.zeros((draws.theta.shape[1], len(totals)))
        drawn_shares[:, totals > 0] = rng.dirichlet(totals[totals > 0], len(drawn_shares))

        def make_scores(t: int) -> Scores:
            """Return the class score function of draw number `t`."""
            energy = MarginalEnergy(draws.layout, draws.theta[:, t])
            drawn_estimate = replace(estimate, log_z=draws.log_z[:, t], class_prior=drawn_shares[t])

            def energy_with_hidden(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
                """Return the energies (n, K) of rows, averaged over hidden units.

                The hidden units are appended to the rows as missing cells.
                """
                return energy(*draws.with_units(codes, missing))

            def scores(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
                """Return the class scores (n, K) of rows under draw `t`, with the model's priors if
                it has any.
                """
                class_scores = drawn_estimate.scores_by(energy_with_hidden, codes, missing)
                return (
                    class_scores
                    if priors is None
                    else with_priors(class_scores, drawn_shares[t], priors)
                )

            return scores

        return [make_scores(t) for t in range(len(drawn_shares))]

    def _check_calibration(self) -> None:
        """Raise an OptionError if class scores were multiplied by an estimated temperature."""
        calibration = self.estimate.calibration
        if calibration is not None and calibration.temperature != 1.0:
            raise OptionError(
                TEMPERATURE,
                hint="Fit with calibrate='none' or 'offset', or use se=False.",
                argument="se",
            )

    def _model_parts(self) -> list[Part]:
        return machine_parts(self)

    def _summary_notes(self) -> list[str]:
        return summary_notes(self)

    @classmethod
    def _unpack(cls, meta: dict, arrays: dict[str, np.ndarray]) -> Self:
        """Return the model from the content of a file, as stored by `_pack`: a dict of names and
        options, and a dict of arrays.
        """
        return cls(**unpack(meta, arrays, classes=True))

    @property
    def thresholds(self) -> pd.Series:
        """Thresholds between adjacent groups of an ordered response, indexed as ``low|high``.

        With ``logits="adjacent"``, ``ln P(high) / P(low)`` at reference levels; with
        ``logits="cumulative"``, ``ln P(y <= low) / P(y > low)`` at reference levels.

        Raises
        ------
        OptionError
            If the fit does not use the order of the response.
        """
        if not self.engine.is_ordinal:
            raise OptionError(
                "This fit has no thresholds: it does not use the order of the response.",
                argument="logits",
                hint="Fit with method='conditional' and either logits='cumulative' or "
                "logits='adjacent'.",
            )
        return thresholds(self.estimate, self.engine, self.labels)

    @property
    def _bootstrap_members(self) -> tuple[tuple[BBLResults, float]]:
        """This fit, with weight 1, since it is the only fit that a bootstrap refits. Raises an
        OptionError if the fit has an estimated temperature, which refits would not include.
        """
        self._check_calibration()
        return ((self, 1.0),)

    @property
    def _population_shares(self) -> np.ndarray:
        """Class proportions (K,) used for predictions: the priors, or the proportions in the
        training rows.
        """
        return self._shares_in_use

    @property
    def _advice(self) -> str:
        """Advice for a log-loss above the baseline (predicting the class proportions); empty if the
        fit is calibrated.
        """
        # auto=False: the advice does not name ``method="auto"``
        calibrate = "none" if self.estimate.calibration is None else "temperature"
        option = (
            untuned_option(self.engine, self.estimate.parameters.layout)
            if self.tuning is None
            else None
        )
        return remedy(calibrate, auto=False, option=option)

    @check_keywords
    def summary(self, prior_count: float = 0.0) -> Summary:
        """Summarise the fit, with naive Bayes tests of each predictor.

        Parameters
        ----------
        prior_count : float, default 0.0
            Pseudocount of the naive Bayes coefficients in the tables.

        Returns
        -------
        Summary
            Can be displayed as text, HTML or LaTeX; the attribute ``tables`` contains the tables.
            The tests are the likelihood-ratio tests of eq. 27 of Woo & Wang (2022), one for each
            predictor separately. A fit with a sampling design shows the tests of its own parameters
            instead, and a fit with ``method="conditional"`` shows its coefficients with standard
            errors. A fit with ``logits="adjacent"`` or ``"cumulative"`` shows its thresholds and
            one column of effects, with standard errors if ``ridge=0``.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> list(fit.summary().tables)  # doctest: +NORMALIZE_WHITESPACE
        ['fit', 'tests', 'h', 'Tests of the fields, dh = 0 (Yes - No)',
         'Tests of the couplings, dJ = 0 (Yes - No)']
        """
        pseudocount = real("prior_count", prior_count, 0.0)
        if self._sampling_design is not None or self.engine.is_ordinal:
            facts = self._classifier_facts()
            return own_summary(self.call, self.labels, facts, self._sections)
        # `_counts` has each predictor's weighted level counts (K, L_i); `_sections` are tables of
        # tests
        part = self._categorical
        # naive Bayes has no coefficients of numbers
        tested = np.flatnonzero(~part.design.is_number)
        tests = likelihood_ratio([part._counts[i] for i in tested], pseudocount)
        tested_labels = part.design.only(tested).labels
        sections = self._sections
        head = None
        if self.design.is_number.any():
            head = head_text(self.call, self.labels)
        # weights that are not counts have no tests
        if self.estimate.location is not None and isinstance(self.nobs(), int):
            sections = [mean_test_section(self.labels, self.estimate.location), *sections]
        facts = self._classifier_facts()
        return fit_summary(self.call, tested_labels, tests, facts, sections, head)

    @overload
    def predict(
        self,
        newdata: object,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[DrawnDecisions],
    ) -> pd.Series: ...
    @overload
    def predict(
        self,
        newdata: object = ...,
        *,
        type: Literal["class"],
        unseen: Unseen = ...,
        **options: Unpack[DrawnDecisions],
    ) -> pd.Series: ...
    @overload
    def predict(
        self,
        newdata: object = ...,
        type: Literal["link", "prob"] = ...,
        unseen: Unseen = ...,
        **options: Unpack[DrawnDecisions],
    ) -> pd.DataFrame: ...
    @check_keywords
    def predict(
        self,
        newdata: object = None,
        type: PredictionType = "link",
        unseen: Unseen = "raise",
        *,
        priors: Priors = None,
        costs: Costs = None,
        draws: str = "all",
    ) -> pd.DataFrame | pd.Series:
        """Predict the response group of each row.

        Parameters
        ----------
        newdata, type, unseen, priors, costs
            As in `ClassifierResults.predict`.
        draws : {"all", "mean"}, default "all"
            How the probability of a group is computed from posterior draws: "all" averages over
            evenly spaced draws (200, or 50 if ln Z is estimated by annealing), and "mean" uses the
            mean of the draws.

        Returns
        -------
        DataFrame or Series
            Predictions with the index of `newdata`: one column per group, followed by ``yhat`` (or
            ``yhat_`` if a group has that name). For ``type="class"``, only the predicted groups.

        Raises
        ------
        DataError, LevelError
            If a column is missing, a value is unknown, or a value is missing although the fit does
            not allow it; the message names the column or value.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.predict(titanic.head(2), type="prob").round(3)
              No    Yes yhat
        0  0.400  0.600  Yes
        1  0.702  0.298   No
        >>> fit.predict(titanic.head(2), type="class").tolist()
        ['Yes', 'No']
        """
        model = self._with_point_estimate(draws)
        return super(BBLResults, model).predict(newdata, type, unseen, priors=priors, costs=costs)

    def _classifier_facts(self) -> dict[str, Any]:
        """Return the facts of the summary, as a dict of values by title: machine, calibration,
        priors and log-loss.
        """
        facts = fit_facts(self)
        calibration = self.estimate.calibration
        converged = facts.pop("Converged")  # appended again below, to be printed last
        facts["Calibration"] = "none"
        if calibration is not None:
            offsets = (
                f"{g}: {b:.4g}" for g, b in zip(self.labels.groups, calibration.offset, strict=True)
            )
            facts["Calibration"] = (
                f"temperature {calibration.temperature:.4g}, offsets {', '.join(offsets)}"
            )
        return (
            facts
            | priors_facts(self.labels.groups, self.priors)
            | loss_facts(self.log_loss)
            | {"Converged": converged}
        )

    def _attribution(self) -> Attribution:
        """Return the calibrated class scores as a constant (K,) plus a sum of fields and couplings
        in the zero-sum gauge.
        """
        estimate = self.estimate
        names = [label_text(name) for name in self.labels.names]
        layout = self.estimate.parameters.layout
        # `support`: which combinations of levels can occur (structural zeros), by group if groups
        # differ
        if layout.support is not None and layout.support.n_groups > 1:
            raise OptionError(
                f"{WITH_ZEROS['`explain()`']}.",
                argument="structural_zeros",
                hint="Use importance().",
            )
        if self._hidden is not None:
            raise OptionError(
                "The class scores of a machine with hidden units are not sums over terms.",
                hint="Call importance(), or fit with hidden=0.",
                argument="hidden",
            )
        zero_sum = estimate.zero_sum_terms()
        terms = zero_sum.terms
        if estimate.has_cumulative_logits and self.priors is not None:
            raise OptionError(
                f"{CUMULATIVE_PRIORS}, so log-odds are not sums over terms.",
                argument="priors",
                hint="Fit without priors, or with logits='adjacent'.",
            )
        # energies become scores: plus ln proportion, minus ln Z
        constant = class_scores(zero_sum.constant[None], estimate.log_z, estimate.class_prior)[0]
        if estimate.calibration is not None:
            terms = {
                scope: estimate.calibration.temperature * table for scope, table in terms.items()
            }
            # temperature times the constant, plus the offsets
            constant = estimate.calibration(constant)
        shown = list(terms)
        of_rows = None
        location = estimate.location
        if location is not None:
            components = location.model.components  # of correlated numbers
            shown += [tuple(int(i) for i in component) for component in components]
            temperature = 1.0 if estimate.calibration is None else estimate.calibration.temperature

            def of_rows(codes: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
                """Return the log densities (n, K, components) of the numeric predictors, multiplied
                by the temperature.
                """
                return temperature * location.component_densities(codes, missing)

        titles = [":".join(names[i] for i in scope) for scope in shown]
        return Attribution(
            titles,
            terms,
            shown,
            constant,
            averaged=estimate.predictive is not None,
            cumulative=estimate.has_cumulative_logits,
            of_rows=of_rows,
            origins=zero_sum.origins,
        )

    def _score_model(self) -> ScoreModel:
        names = [label_text(name) for name in self.labels.names]
        return machine_scores(self.estimate, names, self.labels.centers)

    @check_keywords
    def relevant(self) -> pd.DataFrame:
        """Return the terms that affect predictions, i.e. whose parameters differ between groups.

        All other terms cancel exactly in class probabilities, so predictions do not depend on
        predictors outside these terms. With ``relevance=``, these are the selected predictors and
        their interactions.

        Returns
        -------
        DataFrame
            Indexed by ``term`` (a predictor, or several joined by colons), largest difference
            first: ``order`` (number of predictors), ``difference`` (the largest log odds between
            two groups of any parameter), and with ``relevance=`` also ``p_value``, the p-value of
            the test that selected the predictor. It is Bonferroni-adjusted for twice the number of
            tests, because tests of predictors and tests of pairs each use half of the significance
            level.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", relevance=0.05)
        >>> fit.relevant()["order"].to_dict()
        {'Sex': 1, 'Class:Age': 2, 'Class': 1, 'Age': 1, 'Class:Sex': 2, 'Sex:Age': 2}
        """
        layout = self.estimate.parameters.layout
        relevance = self.estimate.relevance
        # a group without rows has no parameters
        theta = self.estimate.parameters.theta[self.estimate.class_prior > 0.0]
        # (size,): range of each parameter over the groups
        differences = np.ptp(theta, axis=0) if len(theta) else np.zeros(layout.size)
        predictor_names = [label_text(name) for name in self.labels.names]
        # name, order, largest difference of a parameter, predictors; ``layout.table`` has a term's
        # parameters
        terms = [
            (
                ":".join(predictor_names[i] for i in scope),
                len(scope),
                # 0 for predictors with a single level
                float(layout.table(differences, *scope).max(initial=0.0)),
                scope,
            )
            for scope in layout.scopes
        ]
        # [2]: the difference
        differing = sorted((term for term in terms if term[2] > 0.0), key=lambda term: -term[2])
        index = pd.Index([name for name, _, _, _ in differing], name="term", dtype=object)
        frame = pd.DataFrame(
            {
                "order": [order for _, order, _, _ in differing],
                "difference": [difference for _, _, difference, _ in differing],
            },
            index=index,
        )
        if relevance is None:
            return frame
        # by the predictor's position; only terms with a single predictor (order 1) have one
        p_value = dict(zip(relevance.chosen.tolist(), relevance.p_value.tolist(), strict=True))
        return frame.assign(
            p_value=[
                p_value[scope[0]] if order == 1 else np.nan for _, order, _, scope in differing
            ]
        )

    def _refit(self, train: Sample, rng: np.random.Generator, warm: bool = False) -> Estimate:
        """Return a fit to the rows `train` with the same engine and kind of ln Z.

        The calibration of this fit is kept, because a new calibration would require a
        cross-validation. If `warm`, the refit starts at the coefficients of this fit, unless
        predictors are selected again.
        """
        K = len(self.labels.groups)
        layout = self.estimate.parameters.layout
        relevance = self.estimate.relevance
        if relevance is not None:  # select predictors again, among the terms of the formula
            # of the formula; `complete` if it has all pairs, `terms.terms` lists them
            terms = self.design.terms
            # None stands for all pairs
            layout = self.engine.layout_of(self.design, None if terms.complete else terms.terms)
        level = None if relevance is None else relevance.level
        data = FitData(train, layout, K, self.labels)
        spec = FitSpec(
            self.engine,
            self.estimate.log_z_kind,
            relevance=level,
            rng=rng,
            location=self._location_model,
        )
        is_warm = warm and relevance is None
        coefficients = self.estimate.coefficients if is_warm else None
        (refit,) = estimate_path(data, spec, coefficients=coefficients)
        return replace(refit, calibration=self.estimate.calibration)

    def __repr__(self) -> str:
        return render_fit(self) + loss_text(self.log_loss)
