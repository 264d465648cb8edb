"""Calls of the functions that fit Boltzmann machines: arguments checked, data encoded, engine made.

A *verb* is a public function; an *engine* is a method with its options; a *layout* has the
positions of the parameters of the formula's terms in the flat parameter vector; a *source* is data
that are read in batches; a *deal* describes folds to which rows are dealt while they are read in
batches. K is the number of groups. An engine says in `refusals()` which capabilities it lacks, with
the reasons; `joint` is not None if it fits all groups together, to P(group | row); and ``tuned``
says which option is tuned: its name `option`, and its own `rules`, words that the engine takes in
place of a number. These are not the `RULES`, "cv" and "cv-1se", by which cross-validation chooses a
number. `PREPARED_AS` is the engine by whose rules formula and rows are checked and encoded for
``method="auto"``, an average of several engines.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bbl.api.caller import data_arguments
from bbl.api.machine.data_warnings import warn_of_table
from bbl.api.machine.zeros import check_zeros_call, support_of
from bbl.api.training_data import (
    FEWER_PREDICTORS,
    EncodedData,
    TrainingData,
    encode_data,
    refuse_batches,
)
from bbl.boltzmann.averaging import PREPARED_AS
from bbl.boltzmann.cost_limits import announce_terms
from bbl.boltzmann.estimate import estimate
from bbl.boltzmann.fitted import Estimate
from bbl.boltzmann.prediction_checks import held_out_record, remedy
from bbl.boltzmann.task import Run, Task
from bbl.boltzmann.tuning import RULES
from bbl.boltzmann.tuning_record import Tuning
from bbl.checks import arguments, choice, flag, generator, share
from bbl.crossval import calibrated
from bbl.design.design import EncodingRules
from bbl.design.formula import check_formula
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.dask_passes import choose_cluster
from bbl.design.streams.source import Source
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Weights
from bbl.engines import DEFAULT, ENGINES, Engine, engine_class, make_engine
from bbl.errors import BBLTypeError, DataWarning, Hint, OptionError
from bbl.memory import out_of_memory
from bbl.model.layout import Layout
from bbl.model.logz import LOG_Z
from bbl.parallel import n_workers
from bbl.report.text import call_text
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.results.model import Training
from bbl.rows.counts import level_counts
from bbl.rows.dealing import AnyFolds, Deal
from bbl.rows.folds import Folds, WeightedFold, cluster_folds
from bbl.rows.sample import Sample
from bbl.stats.calibration import CALIBRATE
from bbl.stats.loss_record import LossRecord

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "Call",
    "RunOptions",
    "check_relevance",
    "check_streams",
    "pop_rule",
    "prepare",
    "shown_call",
]

NO_COUNTS = (
    "weights are not all integers, so they are not counts: there are no standard errors, tests or "
    "bootstrap, and in cross-validation each row stays in one fold. They are scaled to sum to the "
    "effective number of rows, so their scale does not matter."
)
MachineFit = TypeVar("MachineFit", BBLResults, DensityResults)


@dataclass(frozen=True)
class RunOptions:
    """Unchecked arguments of a verb that do not name data, formula or method; `bbl.bbl` describes
    them.
    """

    log_z: str
    calibrate: str
    seed: int | np.random.Generator | None
    n_jobs: int | None
    client: Client | None
    verbose: int
    relevance: float | str | None = None


@dataclass(frozen=True)
class Call(EncodedData):
    """A checked call of a verb that fits Boltzmann machines: its encoded data, its engine, and how
    it computes.

    The attributes of `EncodedData` are: `design`, the formula with response, predictors and levels;
    `sample`, the rows as codes (`rows`, the same if they are in memory); `index`, labels of the
    rows, or None if they were read in batches; `frame`; `row_positions`, positions of the rows in
    the frame; `dealt_folds` or None; `survey`, the sampling design or None.

    Attributes
    ----------
    engine : Engine
    layout : Layout
        Positions of the parameters of the formula's terms.
    log_z, calibrate : str
        As in `bbl.bbl`.
    workers : int
        Number of threads.
    rng : Generator
    relevance : float or None
        Significance level at which predictors are chosen; None for all predictors, or where a rule
        chooses it.
    """

    engine: Engine
    layout: Layout
    log_z: str
    calibrate: str
    workers: int
    rng: np.random.Generator
    relevance: float | None

    @property
    def training(self) -> Sample | None:
        """The rows that a fitted model keeps; None if the data were read in batches."""
        return None if self.index is None else self.rows

    @property
    def advice(self) -> str:
        """Text that advises a user whose model has a larger log-loss than predicting the shares of
        the groups.
        """
        # method="auto" takes whole weights and terms up to an order, and needs all rows in memory
        can_average = (
            self.index is not None and self.rows.whole and self.layout.order <= PREPARED_AS.order
        )
        return remedy(self.calibrate, can_average)

    def held_out(self, tuning: Tuning | None) -> LossRecord | None:
        """Return the out-of-fold log-loss of a tuned or calibrated fit; None without tuning or
        without classes.
        """
        if tuning is None or tuning.scored is None or self.K == 1:
            return None
        scored = tuning.scored  # out-of-fold scores (1, N, K) of the chosen setting
        scores = calibrated(scored, scored.scores[0], self.calibrate)
        totals = np.array([self.sample.group(g).total for g in range(self.K)])
        # (folds, K): ln shares of the groups in the training rows
        baseline = scored.log_shares(totals)
        return held_out_record(scored, scores, baseline, self.advice)

    def estimate(self, engine: Engine, pooled: bool, progress: Callable | None = None) -> Estimate:
        """Fit every group by an engine and, with `pooled`, all rows as one group too."""
        # the imported function
        return estimate(replace(self.task, pooled=pooled), engine, self.run(progress))

    @property
    def task(self) -> Task:
        """The rows, groups and terms to fit."""
        return Task(
            self.sample,
            self.layout,
            self.K,
            self.log_z,
            self.design.labels,
            relevance=self.relevance,
        )

    def run(self, progress: Callable | None = None) -> Run:
        """Return how fits are computed: threads, generator and progress function of this call."""
        return Run(self.workers, self.rng, progress)

    def with_training_summary(self, fit: MachineFit) -> MachineFit:
        """Add number, log-likelihood and level counts of the training rows to a fit that does not
        keep them.
        """
        if self.index is not None:
            return fit
        sample = self.sample
        K = self.K
        # engines that fit P(group | row) have no likelihood of rows
        log_likelihood = np.nan if self.engine.joint else fit.log_likelihood(sample)
        nobs = round(sample.total) if sample.whole else sample.total
        return replace(
            fit,
            stored=Training(nobs, log_likelihood, level_counts(sample, self.design.n_levels, K)),
        )

    def cluster_folds(self, nfold: int, shuffle: bool) -> Folds:
        """Return folds of whole clusters of the sampling design, dealt at random if `shuffle`, else
        in order.
        """
        assert self.survey is not None  # noqa: S101  # checked by its callers
        n_clusters = len(np.unique(self.survey.clusters))
        if n_clusters < nfold:
            raise OptionError(
                f"{nfold} folds of whole clusters need at least as many clusters, and the "
                f"sampling design has {n_clusters}.",
                argument="nfold",
                hint="Give fewer folds to crossVal (nfold), or a number instead of a rule.",
            )
        return cluster_folds(
            self.rows,
            self.survey.strata,
            self.survey.clusters,
            nfold,
            self.rng if shuffle else None,
        )

    def of_last_fold(self, folds: AnyFolds) -> Call:
        """Return this call with the training rows of the last fold as its rows."""
        fold = folds.one(len(folds) - 1)
        index = None
        survey = self.survey
        # of rows in memory; `train` are their weights in training, 0 if left out
        if isinstance(fold, WeightedFold):
            index = None if self.index is None else self.index[fold.train > 0]
            survey = None if survey is None else survey.only(fold.train > 0)
        return replace(self, sample=fold.training(self.sample), index=index, survey=survey)


def prepare(
    verb: Callable,
    training: TrainingData,
    method: str | Engine,
    options: dict[str, Any],
    run: RunOptions,
    *,
    extra_fits: int = 0,
    make_deal: Callable[[Engine, np.random.Generator], Deal | None] | None = None,
    needs_counts: bool = False,
) -> Call:
    """Check the arguments that the verbs share, make the engine, and encode the data.

    Parameters
    ----------
    verb : callable
        Public function whose signature names the arguments that are not options of the method.
    training, method, options, run
        Unchecked arguments of the verb; `options` are those of the method.
    extra_fits : int, default 0
        Number of fits besides one for each group, for the estimate of the cost.
    make_deal : callable, optional
        ``make_deal(engine, rng)`` returns the folds to which rows are dealt while they are read in
        batches.
    needs_counts : bool, default False
        Whether weights have to be whole numbers whatever the method is.
    """
    check_formula(training.formula)
    log_z = choice("log_z", run.log_z, LOG_Z)
    calibrate = choice("calibrate", run.calibrate, CALIBRATE)
    workers = n_workers(run.n_jobs)
    rng = generator(run.seed)
    engine = make_engine(method, options, arguments(verb))
    flag("novarOk", training.novarOk)
    if training.survey is not None:
        check_survey(engine, training)
    relevance_level = check_relevance(run.relevance, engine, training)
    source = lazy_source(training.data)
    deal = None
    check_zeros_call(training.structural_zeros, engine.refusals(), log_z, source)
    # passes over the data by Dask workers; None: by this process
    cluster_passes = choose_cluster(source, run.client)
    # the capability that missing="marginal" needs
    marginal_capability = "missing_marginal" if source is None else "missing_marginal_batches"
    # fits at once: the number of groups, 2 or more, is not known yet
    n_parallel = min(workers, 2 + extra_fits)
    rules = EncodingRules(
        # naive Bayes accepts any terms and fits the fields only
        order=None if engine.order == 1 else engine.order,
        order_reason=engine.order_reason,
        whole_weights=needs_counts or engine.weights == "counts",
        one_sided=True,  # a formula may be without a response
        # whether the error of missing values advises missing="marginal"
        sums_out=marginal_capability not in engine.refusals(),
        marks=training.structural_zeros,  # if it names a column, that is no predictor
        check_pairs=partial(  # called before all pairs of many predictors are listed
            announce_terms,
            engine=engine,
            workers=n_parallel,
            extra=extra_fits,
            stored=source is not None,
        ),
    )
    if source is not None:
        check_streams(engine, source, training.missing)
        training = replace(training, data=source)
        deal = None if make_deal is None else make_deal(engine, rng)
    encoded = encode_data(training, rules, deal, cluster_passes, run.verbose, workers)
    design = encoded.design
    if not design.classes:
        check_classes(training.formula, calibrate, run.relevance)
    if engine.has_tests and not encoded.sample.whole and training.survey is None:
        warnings.warn(
            DataWarning(
                NO_COUNTS,
                argument="weights",
                hint=Hint(
                    "If they were meant as counts, round them; if they are sampling weights, give "
                    "design=bbl.survey(weights=...) instead, for standard errors.",
                    command_line="If they were meant as counts, round them; if they are sampling "
                    "weights, name clusters and strata (--cluster, --strata) for standard errors.",
                ),
            ),
            stacklevel=3,
        )
    warn_of_table(training, encoded, stacklevel=3)
    support = support_of(training, encoded)
    with out_of_memory("A list of the pairs of the formula", FEWER_PREDICTORS):
        terms = None if design.terms.complete else design.terms.terms  # None: all pairs
        layout = Layout(design.n_levels, terms, support, design.n_ordered)
    engine = engine.for_order(layout)  # for the predictors whose levels are in order
    return Call(
        **vars(encoded),
        engine=engine,
        layout=layout,
        log_z=log_z,
        calibrate=calibrate,
        workers=workers,
        rng=rng,
        relevance=relevance_level,
    )


def check_classes(formula: str, calibrate: str, relevance: float | str | None) -> None:
    """Raise an OptionError for a calibration, or a choice of predictors, with a formula that has no
    response.
    """
    if calibrate != "none":
        raise OptionError(
            f"calibrate={calibrate!r} corrects class probabilities, and {formula!r} has no "
            "response.",
            argument="calibrate",
            hint="Leave calibrate out, or give a formula with a response.",
            value=calibrate,
        )
    if relevance is not None:
        raise OptionError(
            "relevance chooses the predictors whose distributions differ between groups, and "
            f"{formula!r} has no response.",
            argument="relevance",
            hint="Leave relevance out, or give a formula with a response.",
        )


def check_survey(engine: Engine, training: TrainingData) -> None:
    """Raise an error if an engine, or the other arguments, cannot go with a sampling design."""
    if not isinstance(training.survey, SurveyDesign):
        raise BBLTypeError(
            "design must be made by bbl.survey(weights=...); got "
            f"{type(training.survey).__name__}.",
            argument="design",
        )
    if training.weights is not None:
        raise OptionError(
            "The design already has the weights.", argument="weights", hint="Leave weights out."
        )
    if not engine.has_tests:
        raise OptionError(
            f"{engine.refusals()['survey']}.",
            argument="design",
            hint=(
                "Choose method='pseudo' or 'naive', 'ml' if there are few predictors, or "
                "method='conditional' with ridge=0 if the formula has a response; or give "
                "weights= instead of design for estimates without standard errors."
            ),
        )
    refuse_batches(training.data, "A sampling design", "design")


def check_relevance(relevance: object, engine: Engine, training: TrainingData) -> float | None:
    """Check the argument `relevance`, and return it if it is a number: the significance level,
    between 0 and 1.

    The result is None, no level, in two cases: if `relevance` is None, all predictors are used; if
    it is one of `RULES`, cross-validation chooses the level later. Raises an error if `relevance`
    is something else, or cannot go with the engine (by its `refusals()`, reasons by capability) or
    with the arguments in `training`.
    """
    if relevance is None:
        return None
    refusal = engine.refusals().get("relevance")
    if refusal is not None:
        raise OptionError(
            f"{refusal}.",
            argument="relevance",
            hint="Leave relevance out, or choose method='pseudo'.",
        )
    if training.survey is not None or training.structural_zeros is not None:
        other = "design" if training.survey is not None else "structural_zeros"
        raise OptionError(
            f"relevance chooses predictors by the likelihood of single rows, which {other} "
            "changes.",
            argument="relevance",
            hint=f"Leave out relevance or {other}.",
        )
    refuse_batches(
        training.data, "relevance, which tests predictors one after another,", "relevance"
    )
    if isinstance(relevance, str):
        choice("relevance", relevance, RULES)
        return None
    return share("relevance", relevance)


def check_streams(engine: Engine, source: Source, missing: str) -> None:
    """Raise an OptionError if an engine cannot be fitted to data that are read in batches."""
    if not engine.streams:
        streaming_methods = ", ".join(
            repr(name) for name, engine_type in ENGINES.items() if engine_type.streams
        )
        raise OptionError(
            f"{engine.refusals()['batches']}, and {source.text} is read in batches.",
            argument="method",
            hint=(
                f"Choose one of {streaming_methods}, or give a table with a random sample of "
                "the rows."
            ),
        )
    # the engine needs rows in which a predictor and all that it interacts with are known, not
    # counts of pairs
    if missing == "marginal" and engine.needs == "neighbours":
        raise OptionError(
            f"{engine.refusals()['missing_marginal_batches']}, and {source.text} is read in "
            "batches.",
            argument="missing",
            hint="Choose method='mf', or missing='level' or 'drop'.",
        )


def pop_rule(method: str | Engine, options: dict) -> str | None:
    """Remove a tuning rule, such as ``lambda_="cv"``, from `options` and return it; None if there
    is none.
    """
    tuned = engine_class(method).tuned
    if tuned is None or not isinstance(options.get(tuned.option), str):
        return None
    option = tuned.option
    if options[option] in tuned.rules:  # a rule of the engine itself stays an option
        return None
    if options[option] not in RULES:
        rule_names = ", ".join(map(repr, dict.fromkeys((*tuned.rules, *RULES))))
        raise OptionError(
            f"{option}={options[option]!r} is unknown.",
            argument=option,
            hint=f"Give a number, or one of {rule_names}.",
        )
    return options.pop(option)


def shown_call(
    verb: str,
    formula: str,
    data: object,
    weights: Weights | None,
    method: str | Engine,
    options: dict[str, Any],
    design: SurveyDesign | None = None,
    **defaulted: tuple[object, object],
) -> str:
    """Return a call of `verb` as text; arguments in `defaulted`, (value, default) by name, are
    shown if they differ.
    """
    arguments: dict[str, Any] = {"formula": formula, **data_arguments(data, weights, design)}
    if method != DEFAULT:
        arguments["method"] = method if isinstance(method, str) else type(method).__name__
    arguments |= options | {
        name: value for name, (value, default) in defaulted.items() if value != default
    }
    return call_text(verb, arguments)
