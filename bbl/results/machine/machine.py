"""MachineResults: parameters, ln Z, energies and standard errors of fitted Boltzmann machines with
or without classes.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
import pandas as pd

from bbl.boltzmann.fitted import Estimate, Predictive
from bbl.boltzmann.inference.numbers import NumberTests
from bbl.boltzmann.relevance import CHOSEN_BY_ROWS
from bbl.boltzmann.structural_zeros import refuse_impossible_rows
from bbl.boltzmann.tuning_record import Tuning
from bbl.capabilities import MethodTraits
from bbl.checks import choice
from bbl.engines import Engine
from bbl.errors import DataError, OptionError
from bbl.memory import check_memory
from bbl.model.energy import known_energy
from bbl.model.location import Location, LocationModel
from bbl.model.logz import APPROXIMATE
from bbl.report.machine.inference_table import labelled, slope_section
from bbl.report.machine.summary import Section, coefficient_section, sections_of_tests
from bbl.report.machine.tables import Coefficients
from bbl.report.shooter.terms import order_counts, term_frame
from bbl.results.batches import find_weights_column, new_blocks
from bbl.results.deprecated import Deprecated
from bbl.results.log_likelihood import LogLikelihood
from bbl.results.machine.archive import pack
from bbl.results.machine.contrasts import DifferenceInference
from bbl.results.machine.credible import PosteriorInference
from bbl.results.machine.estimates import Compared
from bbl.results.machine.inference import Inference
from bbl.results.machine.ordinal import coefficient_sections, untested_sections
from bbl.results.machine.posterior import PosteriorDraws
from bbl.results.model import ModelResults
from bbl.rows.kept import KeptRows
from bbl.rows.sample import Rows, Sample, concatenate
from bbl.stats.metrics import log_probabilities
from bbl.stats.survey.sample import SurveySample

__all__ = ["MachineResults", "of_categories"]

ROWS_PER_BLOCK = 65536  # rows for which energies are computed together
# per group; summaries of larger models have no tests, which require the covariances
MAX_TESTED_PARAMETERS = 2000
# rows of each group that standard errors of data read in batches use by default
AUTO_ROWS = 50_000


Result = TypeVar("Result")


def of_categories(method: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a method that ignores numeric predictors, to use the fit averaged over them."""

    @wraps(method)
    def on_part(self: MachineResults, *args: Any, **keywords: Any) -> Result:
        return method(self._categorical, *args, **keywords)

    return on_part


@dataclass(frozen=True, repr=False)
class MachineResults(ModelResults):
    """Fitted Boltzmann machines: one for each response group, or a single one if the formula has no
    response.
    """

    engine: Engine  # the inference method and its options
    estimate: Estimate
    tuning: Tuning | None = None  # the cross-validation inside the fit
    # sampling design of the training rows
    survey: SurveySample | None = field(default=None, kw_only=True, repr=False)

    class_scores = Deprecated("_class_scores", "predict(type='prob') or score_samples()")
    df = Deprecated("_n_group_parameters", "n_parameters, of all groups")
    log_scores = Deprecated("_log_scores", "bbl.log_scores(fit)")
    parameters = Deprecated(
        "estimate.parameters", "params, or estimate.parameters for plain arrays"
    )
    plugged = Deprecated("_with_point_estimate", "predict(draws='mean')")

    @property
    @abstractmethod
    def _population_shares(self) -> np.ndarray:
        """Class proportions (K,) used for predictions."""

    @property
    def params(self) -> pd.Series:
        """Estimate of every parameter by group and name, indexed like `bse` and `conf_int`."""
        return labelled(self.tidy(), "estimate")

    @property
    def log_z(self) -> pd.Series:
        """ln Z of each group."""
        self.engine.check_density("ln Z")
        return pd.Series(self.estimate.log_z, index=list(self.labels.groups), name="log_z")

    @property
    def lkh(self) -> float:
        """Maximised (penalised) objective, summed over predictors and over the observations of all
        groups.
        """
        return self.estimate.lkh

    @property
    def _n_group_parameters(self) -> int:
        """Number of parameters of one group in the formula, including parameters that are not
        estimable.
        """
        return self.estimate.parameters.layout.size

    @property
    def converged(self) -> bool:
        """Whether the fit of every predictor in every group converged."""
        return self.estimate.converged

    @property
    def history(self) -> pd.DataFrame:
        """Convergence history: a row for each record of each group (and of the pooled fit),
        identified by the column ``group``.

        With ``method="pvi"``: ``iteration``, ``gradient`` (root mean square of the gradient with
        respect to the means of the standardised parameters), ``change`` (relative change of the
        posterior mean since the previous record), ``scale_fields``, ``scale_couplings``.

        Raises
        ------
        DataError
            If the method does not record the history, or the model was loaded from a file, which
            does not contain it.
        """
        names = [*self.labels.groups, "pooled"]
        # a run's `history` is a dict of columns; there may be one more name than runs
        histories = [
            (name, run.history)
            for name, run in zip(names, self.estimate.fits, strict=False)
            if run.history
        ]
        if not histories:
            reason = self.engine.refusals().get(
                "history", "the model was loaded from a file, which does not contain it"
            )
            raise DataError(f"This fit has no convergence history: {reason}.")
        return pd.concat(
            [pd.DataFrame({"group": name, **columns}) for name, columns in histories],
            ignore_index=True,
        )

    @property
    def class_shares(self) -> np.ndarray:
        """Weighted class proportions in the training rows."""
        return self.estimate.class_prior

    @property
    def n_parameters(self) -> int:
        """Number of parameters of all groups; with ``method="ml"``, the number of estimable
        parameters (the rank).

        The rank of a group is less than its number of parameters if margins are empty. With
        ``method="conditional", ridge=0`` this is the rank of the design, as in R's `glm`, which
        includes levels that separate groups.
        """
        return self.estimate.n_parameters

    @property
    def _traits(self) -> MethodTraits:
        """Properties of the engine and calibration that averages and comparisons use."""
        engine = self.engine
        calibration = self.estimate.calibration
        # the tuned option is always shown
        options = [] if engine.tuned is None else [engine.tuned.option]
        options += [  # other options are shown if they are not 0 or None
            name
            for name in ("scale", "start", "prior_count")
            if name not in options and getattr(engine, name, None)
        ]
        settings = {name: getattr(engine, name) for name in options}
        if self.estimate.relevance is not None:
            settings["relevance"] = self.estimate.relevance.level
        # the fit has none
        elif (
            engine.order > 1
            and self.estimate.parameters.layout.order == 1
            and len(self.design.pairs)
        ):
            settings["interactions"] = "none"
        return MethodTraits(
            name=engine.name,
            learner=engine.name,
            variant=f"{vars(engine)['logits']} logits" if engine.is_ordinal else "",
            setting=", ".join(
                f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in settings.items()
            ),
            converged=self.converged,
            stops_early=engine.stops_early,
            needed=self.estimate.needed,
            calibration="none" if calibration is None else "temperature",
            relevance=None if self.estimate.relevance is None else self.estimate.relevance.level,
            # a calibrated fit cannot be calibrated again
            can_calibrate=calibration is None,
            models_predictors=not engine.joint,
        )

    @of_categories
    def coef(self) -> Coefficients:
        """Return the coefficients: ``.h[group][predictor]``, ``.J[group][a, b]``, ``.h0``, ``.J0``,
        ``.to_frame()``.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.coef().J["Yes"]["Sex", "Age"].round(3)  # doctest: +NORMALIZE_WHITESPACE
        Age   Child
        Sex
        Male    0.4
        """
        return Coefficients(self.labels, self.estimate.parameters)

    def _notebook(self) -> tuple[str, list[Section]]:
        """Return the notebook display: the call with a line of text, and tables of coefficients."""
        text, sections = self.coef()._notebook()
        return f"{self.call}\n\n{text}", sections

    def tidy(self) -> pd.DataFrame:
        """Return all coefficients as a frame in long format, with one row per coefficient.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.tidy()[["group", "predictor", "level", "estimate"]].head(2).round(3)
          group predictor level  estimate
        0    No     Class   2nd     1.174
        1    No     Class   3rd     3.274
        """
        return self.coef().to_frame()

    @property
    @of_categories
    def terms(self) -> pd.DataFrame:
        """Parameters of each group with their terms, one row per parameter.

        ``weight`` is the parameter, a field or coupling at the ``levels`` of the term's
        ``predictors``; ``order`` is the number of predictors; and ``strength`` is the Frobenius
        norm of the term in the zero-sum gauge. Within each group, terms are sorted by decreasing
        strength, and single predictors come last. ``method="shbm"`` adds ``votes``, the number of
        predictors whose regression includes the term, and ``node_weights``, the weights in these
        regressions (missing if a regression does not include the term).
        """
        chosen_terms = None
        # arrays "votes" (K, size) and "nodes" (K, order, size), the weights by regression
        if self.engine.chooses:
            runs = self.estimate.fits
            chosen_terms = {
                name: np.array([run.state[name] for run in runs]) for name in ("votes", "nodes")
            }
        return term_frame(
            self.labels,
            self.estimate.parameters.layout,
            self.estimate.parameters.theta,
            self._has_parameter,
            chosen_terms,
        )

    @property
    @of_categories
    def order_counts(self) -> pd.DataFrame:
        """Number of terms by group and order."""
        return order_counts(self.labels, self.estimate.parameters.layout, self._has_parameter)

    @property
    def _has_parameter(self) -> np.ndarray:
        """Whether each group has each parameter (K, size); always True unless the engine selected
        the terms of each group.
        """
        K, size = self.estimate.parameters.theta.shape
        return np.array(
            [run.state.get("free", np.ones(size, dtype=bool)) for run in self.estimate.fits[:K]]
        )

    @cached_property
    def _energy(self) -> Callable:
        """Function that maps codes and missing cells, both (n, m), to energies (n, K) at the
        estimates or, with posterior draws, at their means.
        """
        return replace(self.estimate, predictive=None).energy()

    @cached_property
    def _averaged(self) -> Callable:
        """Function like `_energy`, except that with posterior draws it returns ln(mean over draws
        of P(x|y)) + `estimate.log_z`.
        """
        return self._energy if self.estimate.predictive is None else self.estimate.energy()

    @property
    def _hidden(self) -> Predictive | None:
        """Posterior draws of machines with hidden units; None for other machines."""
        draws = self.estimate.predictive
        return None if draws is None or not draws.hidden else draws

    def _with_point_estimate(self, draws: str) -> Self:
        """Return the model with predictions averaged over posterior draws ("all") or at their mean
        ("mean").
        """
        if choice("draws", draws, ("all", "mean")) == "all":
            return self
        if self._hidden is not None:
            raise OptionError(
                "Hidden units have different signs in each chain, so the mean of the draws is not "
                "a valid model.",
                argument="draws",
                hint="Use draws='all'.",
            )
        model = copy.copy(self)
        # the cached function averages over the draws; the copy builds another
        vars(model).pop("_averaged", None)
        # frozen, but a new copy
        object.__setattr__(model, "estimate", replace(self.estimate, predictive=None))
        return model

    def _class_scores(self, codes: np.ndarray, missing: np.ndarray | None = None) -> np.ndarray:
        """Return the class scores (n, K) of encoded rows, or their log-probabilities if K = 1.

        See `Estimate.class_scores`.

        If there are several groups, raises a DataError for rows in cells that cannot occur in any
        group.
        """
        support = self.estimate.parameters.layout.support
        if support is not None and len(self.labels.groups) > 1:
            refuse_impossible_rows(support, self.labels, codes, missing)
        return self.estimate.scores_by(self._averaged, codes, missing)

    def _log_scores(
        self, newdata: object, normalised: bool, prior: bool, unseen: str
    ) -> pd.DataFrame:
        """Return the energies (n, K) of rows, optionally minus ln Z (`normalised`) and plus ln P(y)
        (`prior`); see `bbl.log_scores`.
        """
        if newdata is not None:
            choice("unseen", unseen, ("raise", "ignore"))
        codes, missing, dropped, row_labels = self._encode_rows(newdata, unseen)
        # with draws, probabilities are averaged over them; energies without ln Z use the mean of
        # the draws or, with hidden units, which have no such mean, the mean energy over the draws
        unnormalised_energy = self._energy if self._hidden is None else self._hidden.free_energy
        scores = (self._averaged if normalised else unnormalised_energy)(codes, missing)
        if normalised:
            scores = scores - self.estimate.log_z
        if prior:
            with np.errstate(divide="ignore"):
                scores = scores + np.log(self._population_shares)
        if dropped is not None:
            scores[dropped] = np.nan
        return pd.DataFrame(
            scores, index=row_labels, columns=pd.Index(self.labels.groups, dtype=object)
        )

    def _check_likelihood(self) -> None:
        """Raise an OptionError unless the fit models P(row | group) or, without a penalty, P(group
        | row).
        """
        if self.engine.joint and self.engine.penalised:
            raise OptionError(
                f"{self.engine.refusals()['likelihood']}. The likelihood of rows requires a model "
                "of the predictors, P(x|y).",
                argument="method",
                hint="Choose method='pseudo', or assess predictions with evaluate().",
            )

    def _log_likelihood_of(self, rows: Rows) -> float:
        """Return the log-likelihood ``sum_k w_k (E_y(x_k) - ln Z_y)`` of rows k with group y and
        weight w_k.

        Missing cells are averaged over. For a joint fit of all groups, the result is the sum of
        ``w_k ln P(y | x_k)``.
        """
        self._check_likelihood()
        if self.engine.joint:
            if not rows.in_memory:
                return sum(map(self._log_likelihood_of, rows.blocks(ROWS_PER_BLOCK)))
            rows = cast(Sample, rows)
            scores = replace(self.estimate, calibration=None).class_scores(rows.codes, rows.missing)
            return float(rows.weights @ log_probabilities(scores)[np.arange(rows.n), rows.response])
        # rows of a file: block by block, or if complete, from counts of levels and pairs
        if not rows.in_memory:
            if (
                not rows.complete
                or self.estimate.predictive is not None
                or self.estimate.location is not None
            ):
                return sum(map(self._log_likelihood_of, rows.blocks(ROWS_PER_BLOCK)))
            layout = self.estimate.parameters.layout
            thetas = self.estimate.parameters.theta
            # (sum w, sum w E)
            sums = [known_energy(rows.group(y), layout, theta) for y, theta in enumerate(thetas)]
            return sum(
                energy - n * log_z
                for (n, energy), log_z in zip(sums, self.estimate.log_z, strict=True)
            )
        rows = cast(Sample, rows)
        # rows without a known predictor have ln P = 0, regardless of the error of log_z
        if rows.missing is not None:
            rows = rows.rows(~rows.missing.all(axis=1))
        # at the mean of the draws, if any; hidden units have no such mean
        energy = self._energy if self._hidden is None else self._averaged
        energies = energy(rows.codes, rows.missing)
        group_energy = energies[np.arange(rows.n), rows.response]
        return float(rows.weights @ (group_energy - self.estimate.log_z[rows.response]))

    def logLik(self) -> LogLikelihood:
        """Return the log-likelihood of the training rows.

        Its attribute ``df`` is the number of parameters of all groups.

        With ``missing="marginal"``, missing predictors are averaged over.

        An approximate ln Z (`log_z` "half", "pseudo" or "mf") has an unknown error, which may
        amount to thousands when summed over the rows. The printed value is then marked as
        approximate, and `aic` and `bic` raise an error.

        Raises
        ------
        OptionError
            If P(x|y) is not modelled and the fit of P(y|x) is penalised.

        Examples
        --------
        >>> import bbl
        >>> titanic = bbl.datasets.load_titanic()
        >>> fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
        >>> fit.logLik()
        'log Lik.' -3865.815 (df=18)
        """
        likelihood = super().logLik()
        kind = self.estimate.log_z_kind
        # without interactions every approximation is exact
        is_approximate = kind in APPROXIMATE and self.estimate.parameters.layout.n_terms > 0
        return LogLikelihood(
            likelihood, likelihood.df, likelihood.nobs, kind if is_approximate else None
        )

    @cached_property
    def _inference(self) -> Inference:
        """The tables of ``inference(rows="auto")`` if the method has likelihood equations."""
        return self._inference_from("auto")

    def _inference_from(self, rows: str | int) -> Inference:
        """Return the inference from all rows or a random sample (see `inference`)."""
        self._check_testable()
        part = self._categorical
        kept = self._kept
        if kept is None:
            sample = self._testable_rows()
            if not isinstance(rows, str):
                if self.survey is not None or self.engine.joint:
                    raise OptionError(
                        "rows can be a number only for methods that fit each group separately, "
                        "and only without a sampling design.",
                        argument="rows",
                        hint="Omit the rows argument.",
                    )
                counts = sample.group_totals(len(self.labels.groups))
                n_rows = tuple(round(n) for n in counts)
                kept = KeptRows(sample, None, n_rows, whole=True)
        else:
            self._check_counts("Standard errors and tests require")
            if rows == "all" and not kept.is_complete:
                kept = self._read_all_rows(kept)
        if kept is not None:
            if rows != "all":
                size = AUTO_ROWS if isinstance(rows, str) else rows
                # kept rows contain numeric predictors; those of a table do not at this point
                design = part.design if self._kept is None else self.design
                kept = kept.thinned(size, design.n_counted_levels)
            kept = self._without_numbers(kept)
            sample = kept.sample
        return Inference(
            part.labels,
            part.estimate,
            self.engine,
            sample,
            self.survey,
            None if kept is None or kept.is_complete else kept,
            self._number_tests(),
            self.labels.names,
        )

    def _without_numbers(self, kept: KeptRows) -> KeptRows:
        """Return the kept rows with integer codes of the predictors that are not numeric."""
        location = self.estimate.location
        if location is None or kept.sample.codes.dtype.kind != "f":
            return kept
        coded = replace(kept, sample=location.model.without_numbers(kept.sample))
        if kept.drawn_from is None:
            return coded
        return replace(coded, drawn_from=location.model.without_numbers(kept.drawn_from))

    def _sample_for_errors(self) -> KeptRows:
        """Return the random sample of the rows used for standard errors of effects."""
        kept = cast(KeptRows, self._kept)
        return kept.thinned(AUTO_ROWS, self.design.n_counted_levels)

    def _number_tests(self) -> NumberTests | None:
        """Return the tests of the means of numeric predictors; None if no predictor is numeric."""
        location = self.estimate.location
        if location is None or self.training is None:
            return None
        return NumberTests(location, self.training, self.survey)

    @cached_property
    def _posterior(self) -> PosteriorInference:
        """The tables of ``inference()`` if the method has a posterior."""
        return PosteriorInference(self.labels, self.estimate, self.engine)

    @cached_property
    def _contrasts(self) -> DifferenceInference:
        """The tables of ``inference()`` if all groups were fitted jointly with a penalty."""
        part = self._categorical
        return DifferenceInference(part.labels, part.estimate, self.engine, part._checked_rows())

    @cached_property
    def _categorical(self) -> Self:
        """This fit averaged over its numeric predictors, or the fit itself if it has none."""
        location = self.estimate.location
        if location is None:
            return self
        chosen = location.model.categories
        rows = self.training
        kept = self._kept
        if kept is not None:
            kept = self._without_numbers(kept)
        stored = self._stored
        if stored is not None:
            stored = replace(stored, counts=[stored.counts[i] for i in chosen], sections=None)
        return replace(
            self,
            design=self.design.only(chosen),
            training=None if rows is None else location.model.without_numbers(rows),
            estimate=self.estimate.only(chosen),
            _stored=stored,
            _kept=kept,
        )

    def _location(self) -> Location:
        """Return the location model. Raises a DataError if no predictor is numeric."""
        if self.estimate.location is None:
            raise DataError(
                "This fit has no numeric predictors.",
                hint="List numeric predictors in the call, for example numeric='age'.",
            )
        return self.estimate.location

    @property
    def _location_model(self) -> LocationModel | None:
        """Model of the numeric predictors, for refits; None if no predictor is numeric."""
        location = self.estimate.location
        return None if location is None else location.model

    def _testable_rows(self) -> Sample:
        """Return the training rows without numeric predictors (see `_checked_rows`)."""
        return self._categorical._checked_rows()

    def _checked_rows(self) -> Sample:
        """Return the training rows, after checking that they can be used for tests.

        Raises a DataError if a group has no rows, or if weights are neither counts nor survey
        weights. Raises an OptionError if predictors were selected on the same rows.
        """
        self._check_testable()
        rows = self._all_rows()
        if self.survey is None:
            # raises a DataError that begins like this unless weights are counts
            rows.check_whole("Standard errors and tests require")
        return rows

    def _read_all_rows(self, kept: KeptRows) -> KeptRows:
        """Read and encode all training rows again, and return them instead of the sample `kept`.

        Raises a DataError if the data cannot be read again or have changed, and a MemoryError if
        the codes of all rows do not fit into memory.
        """
        training = self._source
        if training is None:
            raise DataError(
                "This model keeps a random sample of the training rows, and the data cannot be "
                "read again.",
                argument="rows",
                hint=(
                    "Omit the rows argument, or refit the model to a table in memory, such as "
                    "bbl.sample_rows(data, 500_000)."
                ),
            )
        n = sum(kept.n_rows)
        check_memory(
            n * (3.0 * kept.sample.codes.itemsize * kept.sample.m + 40.0),
            f"Standard errors from {n:,} rows",
            "Omit the rows argument, or pass a number of rows.",
        )
        source = training.source
        column = find_weights_column(self.design, source, None)
        blocks = new_blocks(
            self.design, source, column, "reading", has_response=True, training=training
        )
        dtype = kept.sample.codes.dtype
        sample = concatenate(
            [
                Sample(block.codes.astype(dtype), block.weights, block.y, block.missing)
                for block in blocks
            ]
        )
        order = np.argsort(sample.response, kind="stable")
        return replace(kept, sample=sample.rows(order), expansion=None)

    def _countable_rows(self) -> Sample:
        """Return the training rows, or the random sample that the fit keeps.

        Raises the same errors as `_testable_rows`.
        """
        if self._kept is None:
            return self._testable_rows()
        self._check_testable()
        self._check_counts("Standard errors and tests require")
        return self._kept.sample

    def _check_counts(self, what: str) -> None:
        """Raise a DataError unless the weights of the training rows are counts.

        `what` is the beginning of the message.
        """
        if self._kept is None:
            self._rows().check_whole(what)
        elif not self._kept.whole:
            self._kept.sample.check_whole(what)

    def _check_testable(self) -> None:
        """Raise an OptionError if predictors were selected on the training rows, or a DataError if
        a group has no rows.
        """
        if self.estimate.relevance is not None:
            raise OptionError(
                f"{CHOSEN_BY_ROWS}.",
                argument="relevance",
                hint=(
                    "Fit without relevance, or assess predictions with crossVal() and evaluate()."
                ),
            )
        empty_groups = np.flatnonzero(self.estimate.class_prior == 0.0)
        if len(empty_groups):
            raise DataError(
                f"group {self.labels.groups[empty_groups[0]]!r} has no training rows in this fit, "
                "which uses the training rows of a single fold because of refit=False, so its "
                "parameters have no standard errors.",
                hint="Fit with refit=True.",
            )

    @abstractmethod
    def inference(self) -> Inference | PosteriorInference | DifferenceInference:
        """Return standard errors, intervals and tests (see
        `bbl.results.machine.uncertainty.inference`).
        """

    @property
    def bse(self) -> pd.Series:
        """Standard error of every parameter, indexed like `params` (see `Inference.bse`)."""
        return self.inference().bse

    @property
    def tvalues(self) -> pd.Series:
        """Statistic z of every parameter, indexed like `params`; missing if not available."""
        return self.inference().tvalues

    @property
    def pvalues(self) -> pd.Series:
        """P-value of every parameter, indexed like `params`; missing if it is not tested."""
        return self.inference().pvalues

    @cached_property
    def posterior(self) -> PosteriorDraws:
        """Draws from the posterior, with the methods ``.summary()`` and ``.plot()``; for
        ``method="bayes"``.
        """
        return PosteriorDraws._of(self.labels, self.estimate, self.engine)

    @property
    def _sampling_design(self) -> str | None:
        """Text of the summary on the sampling design, or None if the fit has none.

        Model files without rows also contain this text.
        """
        if self.survey is None:
            return None if self._stored is None else self._stored.sampling_design
        return f"{len(self.survey.rows):,} rows, {self.survey.text}"

    @cached_property
    def _sections(self) -> list[Section]:
        """Tables of tests for the summary; loaded from the model file if it contains them."""
        # `self._stored` has summaries of the training rows for a model from a file, else None
        stored = None if self._stored is None else self._stored.sections
        return self._test_sections() if stored is None else stored

    def _test_sections(self) -> list[Section]:
        """Return the sections with joint tests of fields and couplings.

        The list is empty for large models, and if the method has no tests. For an ordered response,
        it begins with thresholds and effects.
        """
        is_ordinal = self.engine.is_ordinal and self.estimate.parameters.layout.size > 0
        if is_ordinal and not self.engine.has_tests:
            return untested_sections(self.estimate, self.engine, self.labels)
        if (
            (self.training is None and self._kept is None)
            or not 0 < self.estimate.parameters.layout.size <= MAX_TESTED_PARAMETERS
            or not self.engine.has_tests
        ):
            return []
        try:
            inference = self._inference
        except (DataError, OptionError) as error:
            tests_section = Section("Tests", pd.DataFrame(), str(error))
            if is_ordinal:
                shown = untested_sections(self.estimate, self.engine, self.labels)
                return [*shown, tests_section]
            return [tests_section]
        if is_ordinal:
            return coefficient_sections(inference, self.estimate, self.engine, self.labels)
        of: Compared = "group"
        if self.estimate.parameters.pooled is not None:
            # two groups have one difference; with more, each group is compared with all rows
            groups = self.labels.groups
            of = (groups[1], groups[0]) if len(groups) == 2 else "pooled"
        tests = inference.summary_tests(of)
        sections = sections_of_tests(tests, of, inference.note, self.design.classes)
        if self.estimate.parameters.layout.scores is not None:
            names = inference._slope_names()
            slopes = slope_section(inference.slopes(), names, self.design.classes)
            sections = [*([slopes] if names else []), *sections]
        if self.engine.joint and self.survey is not None:
            return [coefficient_section(inference._coefficients()), *sections]
        return sections

    def _pack(self, store_data: bool) -> tuple[dict, dict[str, np.ndarray]]:
        """Return the content of a model file, with the training rows if `store_data` (see
        `archive.pack`).
        """
        survey = self.survey
        design_text = self._sampling_design
        return pack(
            self,
            self.engine,
            self.estimate,
            self.tuning,
            self._sections,
            store_data,
            survey,
            design_text,
        )
