"""Prepare calls of the functions that fit Boltzmann machines: check arguments, make the engine,
encode data.

With ``method="auto"``, which averages several engines, the formula and the rows are checked by the
rules of the engine `PREPARED_AS`. K is the number of groups.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

import numpy as np
import pandas as pd

from bbl.api.training_data import (
    FEWER_PREDICTORS,
    data_arguments,
    encode_data,
    load_rows,
    refuse_batches,
    warn_of_table,
)
from bbl.boltzmann.estimate import announce_terms
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.prediction_checks import held_out_record, log_loss_advice
from bbl.boltzmann.structural_zeros import make_support, refuse_observed_rows
from bbl.boltzmann.tuning import RULES
from bbl.boltzmann.tuning_record import Tuning
from bbl.capabilities import WITH_NUMBERS, WITH_ZEROS
from bbl.checks import arguments, choice, flag, generator, real, share
from bbl.choices import Covariance, Divisor, NumberTransform
from bbl.crossval import calibrated
from bbl.design.design import Design, EncodingRules
from bbl.design.formula import check_formula
from bbl.design.frames import Frame
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.dask_passes import choose_cluster
from bbl.design.streams.source import Source
from bbl.design.survey import SurveyDesign
from bbl.design.table_types import Batches, TableLike, Weights
from bbl.design.zeros import read_zeros
from bbl.engines import DEFAULT, ENGINES, Engine, engine_class, make_engine
from bbl.engines.pseudo.blocks import few_enough, sample_size
from bbl.errors import BBLTypeError, DataWarning, Hint, OptionError
from bbl.memory import out_of_memory
from bbl.model.layout import NO_PAIRS, Layout
from bbl.model.location import LocationModel
from bbl.model.logz import LOG_Z
from bbl.model.support import Support
from bbl.parallel import n_workers
from bbl.report.text import call_text
from bbl.results.comparisons.average import AverageResults
from bbl.results.machine.density import DensityResults
from bbl.results.machine.fit import BBLResults
from bbl.results.model import Training
from bbl.rows.fold_assignment import FoldAssignment
from bbl.rows.kept import KeptRows, keep_rows
from bbl.rows.sample import Sample, level_counts
from bbl.rows.stored import StoredSample
from bbl.stats.calibration import CALIBRATE
from bbl.stats.metrics import LossRecord

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "AUTO",
    "NumberOptions",
    "average_with_training_summary",
    "check_zeros_call",
    "is_auto",
    "out_of_fold_record",
    "pop_rule",
    "prepare",
    "refuse_numbers",
    "refuse_zeros",
    "shown_call",
    "shown_zeros",
    "support_of",
    "with_training_summary",
]

AUTO: Final = "auto"


def refuse_zeros(zeros: object, refusals: Mapping[str, str]) -> None:
    """Raise an OptionError if structural zeros are given to a method that does not support them,
    according to its `refusals`.
    """
    if zeros is not None and (reason := refusals.get("structural_zeros")) is not None:
        raise OptionError(
            f"{reason}.",
            argument="structural_zeros",
            hint="Choose method='ml', or omit the structural_zeros argument.",
        )


def shown_zeros(zeros: object) -> str | None:
    """Return the printed form of structural zeros in a call: a column's name, "given" for a table,
    or None.
    """
    return zeros if zeros is None or isinstance(zeros, str) else "given"


def check_zeros_call(
    zeros: object, refusals: Mapping[str, str], log_z: str, source: Source | None
) -> None:
    """Raise an OptionError if structural zeros cannot be combined with other arguments of a call.

    Parameters
    ----------
    zeros : object
        The argument; None if it was not given.
    refusals : mapping
        Features that the method does not support, with reasons; see `Engine.refusals`.
    log_z : str
        How ln Z is computed.
    source : Source or None
        Data read in batches.
    """
    refuse_zeros(zeros, refusals)
    if zeros is None:
        return
    if log_z not in ("auto", "exact"):
        raise OptionError(
            f"log_z={log_z!r}: {WITH_ZEROS['a choice of `log_z`']}.",
            argument="log_z",
            hint="Omit the log_z argument.",
            value=log_z,
        )
    if source is not None:
        raise OptionError(
            f"{WITH_ZEROS['data read in batches']}, but {source.text} is read in batches.",
            argument="structural_zeros",
            hint="Pass a table of the distinct rows with their counts as weights.",
        )


def support_of(zeros: object, encoded: FitData) -> Support | None:
    """Return the cells that remain possible given the structural `zeros` of a call, or None if
    there are none.

    Raises
    ------
    DataError
        If a structural zero is observed.
    """
    if zeros is None:
        return None
    labels = encoded.design.labels
    # level codes (cells, k) of the k predictors in the zeros, and the group of each cell, or None
    # for all groups
    cells = read_zeros(zeros, encoded.design, cast(Frame, encoded.frame))
    support = make_support(cells, labels)
    if support is not None:
        refuse_observed_rows(support, encoded.rows, labels)
    return support


NO_COUNTS = (
    "weights are not all integers, so they are not treated as counts: standard errors, tests and "
    "the bootstrap are not available, and cross-validation keeps each row in one fold. The weights "
    "are scaled to sum to the effective number of rows, so only their relative sizes matter."
)
MachineFit = TypeVar("MachineFit", bound=BBLResults | DensityResults)


def out_of_fold_record(
    data: FitData, spec: FitSpec, tuning: Tuning | None, option: str | None = None
) -> LossRecord | None:
    """Return the out-of-fold log-loss of a fit, or None if the fit is neither tuned nor calibrated,
    or has no classes. `option` is as in `remedy`.
    """
    if tuning is None or tuning.scored is None or data.K == 1:
        return None
    scored = tuning.scored  # out-of-fold scores (1, N, K) of the chosen setting
    scores = calibrated(scored, scored.scores[0], spec.calibrate)
    totals = np.array([data.sample.group(g).total for g in range(data.K)])
    # (folds, K): log class proportions in each fold's training rows
    baseline = scored.log_shares(totals)
    advice = log_loss_advice(data, spec.calibrate, option)
    return held_out_record(scored, scores, baseline, advice)


def with_training_summary(
    fit: MachineFit, data: FitData, engine: Engine, kept: KeptRows | None = None
) -> MachineFit:
    """Add summaries of the training rows to a model that was fitted to data read in batches.

    The summaries are the number of rows, their log-likelihood, the level counts and the rows to
    keep; `kept` contains these rows if they have already been selected.
    """
    if data.index is not None:
        return fit
    sample = data.sample
    # penalised engines that fit P(group | row) do not have a likelihood of the rows
    has_likelihood = not (engine.joint and engine.penalised)
    log_likelihood = fit._log_likelihood_of(cast(Sample, sample)) if has_likelihood else np.nan
    # a sample of rows is stored for standard errors; if there are few rows, they are stored for all
    # methods
    if kept is None and (
        sample.in_memory
        or engine.solves
        or (engine.joint and engine.has_tests)
        or few_enough(sample.n, data.layout)
    ):
        kept = _keep(data)
    stored = replace(_summary(data), log_likelihood=log_likelihood)
    return replace(fit, _stored=stored, _kept=kept, _source=data.source)


def average_with_training_summary(average: AverageResults, data: FitData) -> AverageResults:
    """Add summaries of the training rows to a model average for data read in batches, and to its
    members.

    The summaries are the number of rows, the level counts and the rows to keep.
    """
    if data.index is not None:
        return average
    kept = _keep(data)
    members = tuple(
        _member_with_summary(member, data, kept) if isinstance(member, BBLResults) else member
        for member in average.members
    )
    return replace(
        average, members=members, _stored=_summary(data), _kept=kept, _source=data.source
    )


def _member_with_summary(member: BBLResults, data: FitData, kept: KeptRows) -> BBLResults:
    """Return `with_training_summary` for a member of an average, which may have intervals or
    regressors instead of numeric predictors.
    """
    design = member.design
    own_data = replace(data, design=design)
    if design.is_number.sum() < data.design.is_number.sum():  # rows with numbers are in memory

        def recode(rows: Sample) -> Sample:
            """Return rows with intervals."""
            return replace(rows, codes=design.from_numbers(rows.codes, data.design))

        own_data = replace(own_data, sample=recode(data.rows))
        kept = replace(kept, sample=recode(kept.sample))
    return with_training_summary(member, own_data, member.engine, kept)


def _keep(data: FitData) -> KeptRows:
    """Return the training rows that are stored with a model fitted to data read in batches."""
    is_few = partial(few_enough, layout=data.layout)
    size = sample_size(data.layout)
    return keep_rows(data.sample, data.design.n_counted_levels, data.K, size, is_few)


def _summary(data: FitData) -> Training:
    """Return the number of training rows and their level counts, without a log-likelihood."""
    sample = data.sample
    nobs = round(sample.total) if sample.whole else sample.total
    if sample.in_memory and data.design.is_number.any():  # rows of numbers are counted as a whole
        in_memory = cast(Sample, sample)
        sample = replace(in_memory, codes=data.design.level_codes(in_memory.codes))
    return Training(nobs, np.nan, level_counts(sample, data.design.n_levels, data.K))


@dataclass(frozen=True)
class NumberOptions:
    """The arguments of `bbl.bbl` for numeric predictors, as the user passed them.

    Attributes
    ----------
    numeric : None, True, column name or sequence of column names
    covariance, divisor, transform : str
    shrink : float or "cv"
    """

    numeric: Any = None
    covariance: str = "group"
    divisor: str = "moment"
    shrink: float | str = 0.0
    transform: str = "none"

    @property
    def columns(self) -> bool | tuple[Hashable, ...]:
        """The columns: False for no columns, True for all columns that look numeric, or the names
        of the numeric columns.
        """
        if self.numeric is None or isinstance(self.numeric, bool):
            return bool(self.numeric)
        if isinstance(self.numeric, str) or not isinstance(self.numeric, Iterable):
            return (self.numeric,)
        return tuple(self.numeric)

    def shown(self) -> dict[str, tuple[object, object]]:
        """Return (value, default) of each argument by name, for the printed call."""
        numeric = self.numeric
        if not isinstance(numeric, str | bool | None):
            numeric = list(self.columns) if self.columns else None  # type: ignore[arg-type]
        default = NumberOptions()
        return {"numeric": (numeric, None)} | {
            name: (getattr(self, name), getattr(default, name))
            for name in ("covariance", "divisor", "shrink", "transform")
        }

    @property
    def settings(self) -> dict[str, object]:
        """Arguments that differ from their defaults, except `numeric`."""
        return {
            name: value
            for name, (value, default) in self.shown().items()
            if name != "numeric" and value != default
        }


NO_NUMBERS = NumberOptions()


def refuse_numbers(options: NumberOptions, refusals: Mapping[str, str]) -> None:
    """Raise an OptionError if numeric predictors are given to a method that does not support them,
    according to its `refusals`.
    """
    if options.columns and (reason := refusals.get("numeric")) is not None:
        raise OptionError(
            f"{reason}.",
            argument="numeric",
            hint="Choose method='pseudo', or bin the numeric predictors with bbl.bin().",
        )


def check_numbers(
    options: NumberOptions, engine: Engine, data: object, others: Mapping[str, object]
) -> None:
    """Raise an error if the arguments of numeric predictors are invalid, or cannot be combined with
    the method or with other arguments.

    `others` contains the values of ``design`` and of the arguments in `WITH_NUMBERS`; None if they
    are not used.
    """
    choice("covariance", options.covariance, get_args(Covariance))
    choice("divisor", options.divisor, get_args(Divisor))
    choice("transform", options.transform, get_args(NumberTransform))
    if isinstance(options.shrink, str):
        choice("shrink", options.shrink, ("cv",))
    else:
        real("shrink", options.shrink, 0.0, 1.0)
    if not options.columns:
        for name in options.settings:
            raise OptionError(
                f"{name} applies to numeric predictors, but there are none.",
                argument=name,
                hint=(
                    f"List numeric predictors, for example numeric='age', or omit the {name} "
                    "argument."
                ),
            )
        return
    if not isinstance(options.columns, bool):
        for column in options.columns:
            if not isinstance(column, Hashable):
                raise BBLTypeError(
                    f"numeric must be a column name, a list of names or True; got {column!r}.",
                    argument="numeric",
                    value=column,
                )
    refuse_numbers(options, engine.refusals())
    engine.check_numbers()
    if engine.regresses:
        for name, value in options.settings.items():
            raise OptionError(
                f"{name} describes the distribution of numeric predictors, which "
                f"method={engine.name!r} does not model.",
                argument=name,
                hint=f"Omit the {name} argument, or choose method='pseudo'.",
                value=value,
            )
    tuned = [name for name, value in options.settings.items() if value == "cv"]
    if others["design"] is not None and tuned:
        raise OptionError(
            f"{tuned[0]}='cv' assumes independently sampled rows, but a sampling design was given.",
            argument=tuned[0],
            hint=f"Omit the {tuned[0]} argument.",
        )
    if tuned:  # the folds consist of rows sorted by their values
        refuse_batches(data, f"{tuned[0]}='cv'", tuned[0])
    for name, value in others.items():
        if value is not None and name in WITH_NUMBERS:
            raise OptionError(
                f"numeric= and {name} cannot be combined: {WITH_NUMBERS[name]}.",
                argument="numeric",
                hint="Leave out one of them, or bin the numeric predictors with bbl.bin().",
            )


def refuse_squares(design: Design) -> None:
    """Raise an OptionError if the formula contains the square of a numeric predictor, such as
    ``u:u``.
    """
    for i in design.squares:
        name = design.predictors[i].name
        raise OptionError(
            f"The formula contains the square of the numeric predictor {name!r}, but squares are "
            "only available with method='conditional'.",
            argument="formula",
            column=name,
            hint="Remove it, or choose method='conditional'.",
        )


def location_model(options: NumberOptions, design: Design, engine: Engine) -> LocationModel | None:
    """Return the location model of the formula's numeric predictors, or None if there are none or
    if they are regressors.
    """
    if not design.is_number.any() or engine.regresses:
        return None
    refuse_squares(design)
    if design.terms.order > 2:
        for terms in design.terms.terms[1:]:
            of_number = terms[design.is_number[terms].any(axis=1)]
            if len(of_number):
                names = [str(design.predictors[i].name) for i in of_number[0]]
                raise OptionError(
                    f"The term {':'.join(names)} contains a numeric predictor, but interactions of "
                    "numeric predictors are limited to pairs.",
                    argument="formula",
                    hint="Remove the term, or combine its other predictors into one column.",
                )
    if options.transform == "cv" and not design.classes:
        raise OptionError(
            "transform='cv' compares predictions of the response, but the formula has none.",
            argument="transform",
            hint="Use transform='none' or transform='normal'.",
        )
    return LocationModel.of_pairs(
        design.n_levels,
        design.is_number,
        # naive Bayes has no interactions
        design.pairs if engine.order > 1 else NO_PAIRS,
        covariance=options.covariance,
        divisor=options.divisor,
        shrink=options.shrink if isinstance(options.shrink, str) else float(options.shrink),
        transform=options.transform,
    )


def prepare(
    public_function: Callable,
    formula: str,
    data: TableLike | Batches,
    weights: Weights | None,
    method: str | Engine,
    options: dict[str, Any],
    *,
    xlevels: Mapping[Any, Any] | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    structural_zeros: object = None,
    design: SurveyDesign | None = None,
    log_z: str = "auto",
    calibrate: str = "none",
    relevance: float | str | None = None,
    numbers: NumberOptions = NO_NUMBERS,
    seed: int | np.random.Generator | None = None,
    n_jobs: int | None = None,
    client: Client | None = None,
    verbose: int = 1,
    extra_fits: int = 0,
    make_assignment: Callable[[Engine, np.random.Generator], FoldAssignment | None] | None = None,
    needs_counts: bool = False,
    most_rows: int | None = None,
    has_folds: bool = True,
) -> tuple[FitSpec, FitData]:
    """Check the arguments shared by the public functions, make the engine, and encode the data.

    Parameters
    ----------
    public_function : callable
        The function whose signature lists the arguments that are not options of the method.
    formula, data, weights, method, options, xlevels, novarOk, missing, structural_zeros, design, \
    log_z, calibrate, relevance, seed, n_jobs, client, verbose
        The function's unchecked arguments; `options` are options of the method.
    numbers : NumberOptions, optional
        The arguments of numeric predictors, unchecked.
    extra_fits : int, default 0
        Number of additional fits besides one per group, used to estimate the cost.
    make_assignment : callable, optional
        ``make_assignment(engine, rng)`` returns the fold assignment of data read in batches.
    needs_counts : bool, default False
        Whether weights must be integers even if the method accepts real weights.
    most_rows : int, optional
        Maximum number of rows read in batches that are loaded into memory even if the method can
        read blocks. If None, they are not loaded for such a method.
    has_folds : bool, default True
        Whether the rows will be divided into folds. If so, methods that cannot read blocks load
        rows read in batches into memory.
    """
    # 1. Arguments
    check_formula(formula)
    choice("log_z", log_z, LOG_Z)
    choice("calibrate", calibrate, CALIBRATE)
    workers = n_workers(n_jobs)
    rng = generator(seed)
    engine = make_engine(method, options, arguments(public_function))
    flag("novarOk", novarOk)
    if design is not None:
        check_survey(engine, design, weights, data)
    given = {"design": design, "structural_zeros": structural_zeros}
    conflict = next((name for name, value in given.items() if value is not None), None)
    level = check_relevance(relevance, engine, data, conflict)
    check_numbers(numbers, engine, data, given | {"relevance": relevance})
    source = None if isinstance(data, pd.DataFrame) else lazy_source(data)
    check_zeros_call(structural_zeros, engine.refusals(), log_z, source)
    # the Dask workers that read the data; None if this process reads them
    is_in_memory = source is None and client is None
    cluster_passes = None if is_in_memory else choose_cluster(source, client)
    assignment = None
    if source is not None:
        check_streams(engine, source, missing)
        assignment = None if make_assignment is None else make_assignment(engine, rng)

    # 2. Data
    # the capability required by missing="marginal"
    marginal_capability = "missing_marginal" if source is None else "missing_marginal_batches"
    # simultaneous fits: there are at least two groups, but their number is not known yet
    n_parallel = min(workers, 2 + extra_fits)
    rules = EncodingRules(
        empty=True,
        # naive Bayes accepts any terms but fits only fields
        order=None if engine.order == 1 else engine.order,
        order_reason=engine.order_reason,
        whole_weights=needs_counts or engine.weights == "counts",
        one_sided=True,  # the response is optional
        # whether the error about missing values suggests missing="marginal"
        sums_out=marginal_capability not in engine.refusals(),
        numbers_advice=engine.numbers_advice,
        marks=structural_zeros,  # a column named here is not a predictor
        numeric=numbers.columns,
        measured=True,
        regressors=engine.regresses,
        check_pairs=partial(  # called before the pairs of many predictors are listed
            announce_terms,
            engine=engine,
            workers=n_parallel,
            extra=extra_fits,
            stored=source is not None,
        ),
    )
    encoded = encode_data(
        formula,
        cast(TableLike, data) if source is None else source,
        weights,
        rules=rules,
        xlevels=xlevels,
        novarOk=novarOk,
        missing=missing,
        survey=design,
        assignment=assignment,
        cluster=cluster_passes,
        verbose=verbose,
        workers=workers,
    )
    # engines that need all rows load them, unless a plain fit of many rows can read them in rounds
    is_small = most_rows is not None and encoded.sample.n <= most_rows
    is_loaded = source is not None and (is_small or not engine.streams)
    # rounds over rows do not read the values of regressors
    needs_all = has_folds or not engine.loads or (engine.regresses and bool(numbers.columns))
    if is_loaded and (is_small or needs_all):
        encoded = load_rows(encoded)
    if not encoded.design.classes:
        check_classes(formula, calibrate, relevance)
    if engine.has_tests and not encoded.sample.whole and design is None:
        warnings.warn(
            DataWarning(
                NO_COUNTS,
                argument="weights",
                hint=Hint(
                    "Round them if they are counts. If they are sampling weights, pass "
                    "design=bbl.survey(weights=...) instead to get standard errors.",
                    command_line=(
                        "Round them if they are counts. If they are sampling weights, specify "
                        "clusters and strata (--cluster, --strata) to get standard errors."
                    ),
                ),
            ),
            stacklevel=3,
        )
    warn_of_table(encoded, is_weighted=weights is not None or design is not None, stacklevel=3)

    # 3. Terms
    support = support_of(structural_zeros, encoded)
    with out_of_memory("The list of pairs in the formula", FEWER_PREDICTORS):
        # None stands for all pairs
        location = location_model(numbers, encoded.design, engine)
        layout = engine.layout_of(encoded.design, encoded.design.coupling_terms, support)
    # sampling weights are not numbers of rows
    total = encoded.sample.total if encoded.survey is None else float(encoded.sample.n)
    engine = engine.for_response(encoded.design.response).for_rows(layout, total)
    if calibrate != "none" and not engine.calibrates:
        raise OptionError(
            f"calibrate={calibrate!r} adjusts class scores, but models with cumulative logits "
            "have no class scores.",
            argument="calibrate",
            hint="Omit the calibrate argument, or use logits='adjacent'.",
            value=calibrate,
        )
    if is_loaded and not _fits_in_rounds(encoded, engine, layout):
        encoded = load_rows(encoded)
    spec = FitSpec(engine, log_z, calibrate, level, workers, rng, location=location)
    return spec, replace(encoded, layout=layout)


def _fits_in_rounds(data: FitData, engine: Engine, layout: Layout) -> bool:
    """Return whether the engine reads a file of rows repeatedly, in rounds, because a group has
    many rows.
    """
    if data.sample.in_memory or not data.design.classes:
        return False
    stored = cast(StoredSample, data.sample)
    groups = [stored.group(y) for y in range(data.K)]
    return (
        not all(few_enough(group.n, layout) for group in groups)
        and all(group.total > 0.0 for group in groups)
        and stored.complete
        and all(variant.fits_in_rounds(layout, data.K) for variant in engine.variants())
    )


def check_classes(formula: str, calibrate: str, relevance: float | str | None) -> None:
    """Raise an OptionError if calibration or selection of predictors is requested without a
    response.
    """
    if calibrate != "none":
        raise OptionError(
            f"calibrate={calibrate!r} calibrates class probabilities, but {formula!r} has no "
            "response.",
            argument="calibrate",
            hint="Omit the calibrate argument, or pass a formula with a response.",
            value=calibrate,
        )
    if relevance is not None:
        raise OptionError(
            "relevance selects the predictors whose distributions differ between groups, but "
            f"{formula!r} has no response.",
            argument="relevance",
            hint="Omit the relevance argument, or pass a formula with a response.",
        )


def check_survey(
    engine: Engine, design: object, weights: Weights | None, data: TableLike | Batches
) -> None:
    """Raise an error if the engine or other arguments cannot be combined with a sampling design."""
    if not isinstance(design, SurveyDesign):
        raise BBLTypeError(
            f"design must be the result of bbl.survey(weights=...); got {type(design).__name__}.",
            argument="design",
        )
    if weights is not None:
        raise OptionError(
            "The design already contains the weights.",
            argument="weights",
            hint="Omit the weights argument.",
        )
    if not engine.has_design_errors:
        raise OptionError(
            f"{engine.refusals()['survey']}.",
            argument="design",
            hint=(
                "Choose method='pseudo' or 'naive', 'ml' if there are few predictors, or "
                "'conditional' with ridge=0 and ordered='nominal' if the formula has a response. "
                "For estimates without standard errors, pass weights= instead of design."
            ),
        )
    refuse_batches(data, "A sampling design", "design")


def check_relevance(
    relevance: object, engine: Engine, data: TableLike | Batches, conflict: str | None
) -> float | None:
    """Check `relevance`, and return the significance level if it is a number between 0 and 1.

    Return None if `relevance` is None, which uses all predictors, or one of `RULES`, for which
    cross-validation chooses the level later. Raise an error if `relevance` is anything else, if the
    engine does not support it (see `Engine.refusals`), or if it cannot be combined with the
    argument named `conflict`.
    """
    if relevance is None:
        return None
    refusal = engine.refusals().get("relevance")
    if refusal is not None:
        raise OptionError(
            f"{refusal}.",
            argument="relevance",
            hint="Omit the relevance argument, or choose method='pseudo'.",
        )
    if conflict is not None:
        raise OptionError(
            "relevance compares likelihoods of independent rows, so it cannot be combined with "
            f"{conflict}.",
            argument="relevance",
            hint=f"Leave out relevance or {conflict}.",
        )
    refuse_batches(data, "relevance", "relevance")
    if isinstance(relevance, str):
        choice("relevance", relevance, RULES)
        return None
    return share("relevance", relevance)


def check_streams(engine: Engine, source: Source, missing: str) -> None:
    """Raise an OptionError if an engine does not support data read in batches."""
    if not (engine.streams or engine.loads):
        streaming_methods = ", ".join(
            repr(name)
            for name, engine_type in ENGINES.items()
            if engine_type.streams or engine_type.loads
        )
        raise OptionError(
            f"{engine.refusals()['batches']}, but {source.text} is read in batches.",
            argument="method",
            hint=(
                f"Choose one of {streaming_methods}, or pass a random sample of the rows: "
                "bbl.sample_rows(data, 100_000)."
            ),
        )
    # the engine needs the rows where a predictor and all its neighbours are known; counts of pairs
    # are not enough
    if missing == "marginal" and engine.streams and engine.needs == "neighbours":
        raise OptionError(
            f"{engine.refusals()['missing_marginal_batches']}, but {source.text} is read in "
            f"batches.",
            argument="missing",
            hint="Choose method='mf', or missing='level' or 'drop'.",
        )


def pop_rule(method: str | Engine, options: dict) -> str | None:
    """Remove a tuning rule, such as ``lambda_="cv"``, from `options` and return the rule, or None
    if there is none.
    """
    tuned = engine_class(method).tuned
    if tuned is None or not isinstance(options.get(tuned.option), str):
        return None
    option = tuned.option
    if options[option] in tuned.rules:  # the engine's own rules remain in the options
        return None
    if options[option] not in RULES:
        rule_names = ", ".join(map(repr, dict.fromkeys((*tuned.rules, *RULES))))
        raise OptionError(
            f"{option}={options[option]!r} is unknown.",
            argument=option,
            hint=f"Pass a number, or one of {rule_names}.",
        )
    return options.pop(option)


def shown_call(
    public_function: str,
    formula: str,
    data: object,
    weights: Weights | None,
    method: str | Engine,
    options: dict[str, Any],
    design: SurveyDesign | None = None,
    **defaulted: tuple[object, object],
) -> str:
    """Return the printed form of a call to `public_function`.

    `defaulted` maps arguments to (value, default); arguments are shown if they differ from the
    default.
    """
    arguments: dict[str, Any] = {"formula": formula, **data_arguments(data, weights, design)}
    if method != DEFAULT:
        arguments["method"] = method if isinstance(method, str) else type(method).__name__
    arguments |= options | {
        name: value for name, (value, default) in defaulted.items() if value != default
    }
    return call_text(public_function, arguments)


def is_auto(method: object) -> bool:
    """Return whether `method` is "auto"; raise an OptionError if it is neither "auto" nor an
    engine's name.
    """
    return not isinstance(method, Engine) and choice("method", method, (*ENGINES, AUTO)) == AUTO
