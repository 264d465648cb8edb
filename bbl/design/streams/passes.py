"""Two passes over a `Source`: the first pass collects levels and counts, and the second pass
encodes the rows.

An *assigner* assigns rows to folds, and may keep rows until `assign_remaining` assigns them. A
*sink* stores encoded rows by group and fold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from bbl.checks import choice, flag, near_match
from bbl.design.columns import (
    NO_RESPONSE,
    check_groups,
    check_levels,
    check_size,
    check_variable,
    column_factor,
    describe_missing,
    mark_rows,
    read_xlevels,
    refuse_no_rows_left,
)
from bbl.design.design import MAX_UNCHECKED, MISSING, Design, EncodingRules
from bbl.design.factors import Factor
from bbl.design.formula import FormulaTerms, parse
from bbl.design.frames import Frame
from bbl.design.numbers import NumberFactor, NumberMoments, choose_numbers, refuse_listed_levels
from bbl.design.streams.merged import Merged
from bbl.design.streams.reader import Reader, UsedRows, place_in_errors
from bbl.design.streams.source import Batch, FileVersions, Source, TrainingSource, changed_file
from bbl.design.values import ColumnProblems
from bbl.design.weights import WeightSums, check_total
from bbl.errors import DataError, LevelError, OptionError
from bbl.rows.fold_assignment import FoldAssigner, FoldAssignment, StoredFolds, make_sink
from bbl.rows.folds import Folds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample, level_counts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


__all__ = ["Encoded", "SourceSummary", "encode_rows", "encode_source", "summarise"]

READ_AGAIN = "Read the data again when no process is writing to it."


@dataclass(frozen=True)
class Encoded:
    """The result of the two passes over a source."""

    design: Design
    # distinct rows with counts if there are few states, and otherwise rows in a file or on a
    # cluster
    sample: Rows
    folds: Folds | StoredFolds | None  # None without `assignment`
    source: TrainingSource | None  # None if the data cannot be read again


@dataclass
class SourceSummary(WeightSums):
    """Values and counts in the used rows of a source; `rows` and `dropped` also count other
    rows.
    """

    columns: dict[Hashable, Merged]  # columns of the formula, by name, without numeric predictors
    numbers: dict[Hashable, NumberMoments] = field(default_factory=dict)  # numeric predictors
    n: int = 0  # number of used rows
    # weight of the used rows with a missing predictor; with missing="drop", this is finally the
    # weight of the dropped rows
    incomplete: float = 0.0
    unit: bool = True  # whether all weights are 1
    has_missing: bool = False  # whether any predictor is missing in any row
    n_incomplete: int = 0  # number of rows with a missing predictor
    dropped: float = 0.0  # weight of the rows dropped because of missing values
    n_dropped: int = 0  # number of dropped rows
    rows: int = 0  # number of all rows, including rows that are not used
    # with missing="drop", number of missing values in each column
    n_missing: Counter = field(default_factory=Counter)
    # number of all rows of each file or partition
    rows_by_place: Counter = field(default_factory=Counter)

    def join(self, other: SourceSummary) -> None:
        """Add the values and counts from another part of the source."""
        for name, column in other.columns.items():
            self.columns[name].join(column)
        for name, moments in other.numbers.items():
            self.numbers[name].join(moments)
        self.whole = self.whole and other.whole
        self.unit = self.unit and other.unit
        self.has_missing = self.has_missing or other.has_missing
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)
        self.n_missing.update(other.n_missing)
        self.rows_by_place.update(other.rows_by_place)
        for name in (
            "n",
            "total",
            "squares",
            "incomplete",
            "n_incomplete",
            "dropped",
            "n_dropped",
            "rows",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def weight_unit(self) -> float:
        """Divisor of real-valued weights (`bbl.design.weights.weight_unit`); it is 1 for counts."""
        return 1.0 if self.whole else self.divisor

    @property
    def n_observed(self) -> float:
        """Number of used rows, each counted with its frequency."""
        return self.total if self.whole else float(self.n)


def encode_source(
    source: Source,
    formula: str,
    weights: Hashable | ArrayLike | None = None,
    xlevels: Mapping | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    *,
    assignment: FoldAssignment | None = None,
    step: Callable | None = None,
    cluster: Any = None,
    rules: EncodingRules | None = None,
    workers: int = 1,
) -> Encoded:
    """Parse a formula, collect levels in one pass over a source, and encode rows in a second.

    Parameters
    ----------
    source : Source
    formula, xlevels, novarOk, missing, rules
        The same as in `Design.from_data`, which applies the same rules to tables in memory.
    weights : column name, optional
    assignment : FoldAssignment, optional
        The fold assignment.
    step : callable, optional
        ``step(1.0, text)`` is called after each batch, to report progress.
    cluster : bbl.design.streams.dask_passes.OnCluster, optional
        The cluster for the passes; by default, they run in this process.
    workers : int, default 1
        Number of threads for encoding batches.

    Returns
    -------
    Encoded
        The result. The caller must close its sample, unless the rows are stored as a table of
        counts.

    Raises
    ------
    FormulaError, DataError, LevelError, BBLTypeError
        The same as in `Design.from_data`; also if a file cannot be read or written, or if the data
        changed between the two passes.
    """
    flag("novarOk", novarOk)
    choice("missing", missing, MISSING)
    weights_name = _find_weights_name(weights, source)
    # columns that the formula's "." excludes, with a description of their contents
    exclude = {} if weights_name is None else {weights_name: "the weights"}
    rules = rules or EncodingRules()
    declared = rules.declared  # whether declared levels that do not occur are kept
    terms = parse(
        formula,
        source.columns,
        exclude,
        order=rules.order,
        empty=declared or rules.empty,
        one_sided=rules.one_sided,
        reason=rules.order_reason,
    )
    _check_names(source, terms)
    levels_by_name = read_xlevels(xlevels, terms)
    numeric: tuple[Hashable, ...] = ()
    if rules.numeric:
        numeric = choose_numbers(rules.numeric, terms.predictors, _first_rows(source, terms, rules))
    for name in numeric:
        refuse_listed_levels(name, levels_by_name)
    reader = Reader(
        source,
        terms,
        weights_name,
        missing,
        whole=rules.whole_weights,
        step=step,
        workers=workers,
        listed=frozenset(levels_by_name),
        numeric=numeric,
    )
    file_versions = source.file_versions()
    summary = _check_summary(
        summarise(reader) if cluster is None else cluster.summarise(reader), reader
    )
    # rows, totals (K,): number of rows and weight of each group, excluding rows with a missing
    # response
    problems = ColumnProblems()  # collected, so that one error can name all columns
    response, factors, rows, totals = _make_factors(
        summary, terms, levels_by_name, missing, rules, problems
    )
    if not (novarOk or declared):
        with problems.of_column():
            check_variable([f for f in factors if not f.is_measured])
    if not declared:
        check_levels(factors, summary.n_observed, problems)
    problems.refuse()
    m = len(factors)
    K = len(response.levels)
    # `padded` ensures at least two levels
    predictors = tuple(factors if declared else [f.padded() for f in factors])
    n_levels = np.array([len(f.levels) for f in predictors], dtype=np.intp)
    has_all_pairs = terms.interactions.count(2) == m * (m - 1) // 2
    if rules.check_pairs is not None and m > MAX_UNCHECKED and has_all_pairs:
        rules.check_pairs(summary.n, K, n_levels)
    check_size(terms, factors, K)
    design = Design(
        terms,
        response,
        predictors,
        missing,
        incomplete=round(summary.incomplete) if summary.whole else summary.n_incomplete,
        declared=declared,
        weights=weights_name,
    )
    unit = summary.weight_unit
    reader = replace(reader, weight_unit=unit)
    # equal real-valued weights are treated as ones from here on
    are_counts = summary.whole or summary.least == summary.most
    if assignment is not None:
        assignment = assignment.of_rows(int(rows.sum()))
    assigner = (
        None if assignment is None else FoldAssigner(assignment, rows, totals / unit, are_counts)
    )
    nfold = 0 if assignment is None else assignment.n_stored
    # whether the sink stores a mask of missing values
    masked = missing == "marginal" and summary.has_missing
    make_empty_sink = make_sink if cluster is None else cluster.make_sink
    sink = make_empty_sink(
        summary.n,
        n_levels,
        K,
        nfold,
        weighted=not summary.unit,
        masked=masked,
        dtype=design.code_dtype,
    )
    try:
        n = (encode_rows if cluster is None else cluster.encode_rows)(
            reader, design, assigner, sink
        )
        _check_files(file_versions, source)
        sample, folds = sink.finish(nfold)
        _check_unchanged(summary, n, design, sample)
    except BaseException:
        sink.close()
        raise
    again = None
    if source.is_reread:
        again = TrainingSource(source, dict(summary.rows_by_place), file_versions)
    return Encoded(design, sample, folds, again)


def _find_weights_name(weights: Hashable | ArrayLike | None, source: Source) -> Hashable | None:
    """Return `weights`, None or a column name; raise an error for arrays and unknown names."""
    if weights is None or source.has(weights):
        return weights
    if not isinstance(weights, str):
        raise OptionError(
            f"weights must be the name of a column because {source.text} is read in batches; "
            f"got {type(weights).__name__}.",
            argument="weights",
            hint="Add them to the data as a column.",
        )
    near = near_match(weights, source.columns)
    raise DataError(
        f"weights={weights!r} is not a column of the data.",
        argument="weights",
        column=weights,
        hint=f"{near}Pass the name of a column.",
        value=weights,
    )


def _first_rows(source: Source, terms: FormulaTerms, rules: EncodingRules) -> Frame | None:
    """Return the first batch if ``numeric=True`` selects the numeric predictors by its columns;
    otherwise None.
    """
    if rules.numeric is not True or not rules.measured:
        return None
    with closing(cast("Generator[Batch]", source.batches(terms.predictors))) as batches:
        return next((batch.frame for batch in batches if batch.frame.n), source.frame("data"))


def _check_names(source: Source, terms: FormulaTerms) -> None:
    """Raise an error if the source has duplicate names of columns in the formula."""
    name = next((name for name in terms.columns if list(source.columns).count(name) > 1), None)
    if name is not None:
        raise DataError(
            f"data has the duplicate column name {name!r}.",
            column=name,
            hint="Rename the columns.",
        )


def summarise(reader: Reader, cache: list[UsedRows] | None = None) -> SourceSummary:
    """Run the first pass: return the values of all columns and their counts in used rows.

    If `cache` is given, batches are appended to it; the second pass uses them as
    `Reader.cached_batches`.
    """
    terms = reader.terms
    summary = SourceSummary(
        {
            name: Merged(name, listed=name in reader.listed)
            for name in terms.columns
            if name not in reader.numeric
        },
        {name: NumberMoments(name) for name in reader.numeric},
    )
    for batch in reader.batches("pass 1"):
        if cache is not None:
            cache.append(batch.narrow())  # with codes of the smallest type
        summary.rows += batch.rows
        summary.rows_by_place[batch.place] += batch.rows
        has_missing = np.zeros(batch.n, dtype=bool)  # which rows have a missing predictor
        with place_in_errors(batch.place):  # errors contain the name of the file or partition
            problems = ColumnProblems()
            for name, column in batch.columns.items():
                with problems.of_column():
                    summary.columns[name].add(column, batch.weights)
                if name != terms.response and (is_missing := column.missing()) is not None:
                    has_missing |= is_missing
            problems.refuse()
        weights = batch.weights
        for name, values in batch.numbers.items():
            summary.numbers[name].add(values, np.ones(batch.n) if weights is None else weights)
        summary.n += batch.n
        summary.n_incomplete += int(has_missing.sum())
        summary.incomplete += float(
            has_missing.sum() if weights is None else weights[has_missing].sum()
        )
        summary.has_missing = summary.has_missing or bool(has_missing.any())
        summary.dropped += batch.dropped
        summary.n_dropped += batch.n_dropped
        summary.n_missing.update(batch.n_missing)
        if weights is None:
            summary.total += batch.n
        else:
            summary.add_weights(weights)
            summary.unit = summary.unit and bool((weights == 1.0).all())
    return summary


def _check_summary(summary: SourceSummary, reader: Reader) -> SourceSummary:
    """Return the summary; raise an error for sources without rows or with zero total weight.

    With ``missing="drop"``, the summary's `incomplete` is set to the weight of the dropped rows.
    """
    if reader.missing == "drop":
        if not summary.n and summary.dropped:
            refuse_no_rows_left(summary.n_missing, summary.n_dropped)
        summary.incomplete = summary.dropped
        summary.n_incomplete = summary.n_dropped
    if not summary.rows:
        raise DataError(
            f"{reader.source.text} has no rows.",
            hint="Provide at least one row for each response group.",
        )

    def fail(problem: str) -> NoReturn:
        """Raise an error about a sum of weights."""
        raise DataError(
            f"weights {problem}.",
            argument="weights",
            hint="Give at least one row a positive weight.",
        )

    check_total(summary.total, summary.whole, fail)
    return summary


def _make_factors(
    summary: SourceSummary,
    terms: FormulaTerms,
    levels_by_name: dict,
    missing: str,
    rules: EncodingRules,
    problems: ColumnProblems,
) -> tuple[Factor, list[Factor], np.ndarray, np.ndarray]:
    """Return the response, the predictors, and the number of rows (K,) and the weight (K,) of each
    group.

    `levels_by_name` are the factors in `xlevels`. Errors about columns are added to `problems`.
    The other arguments are the same as in `encode_source`.
    """
    described = False

    def tell_missing() -> str:
        """Return a sentence about missing values in all predictors; later calls return ""."""
        nonlocal described
        if described:
            return ""
        described = True
        counts = {
            name: summary.columns[name].counted().n_missing
            for name in terms.predictors
            if name in summary.columns
        }
        return describe_missing(counts, summary.n - summary.n_incomplete, summary.n)

    def make_factor(name: Hashable, is_response: bool) -> tuple[Factor, np.ndarray, np.ndarray]:
        """Return the factor for a column, and the number of rows and weight of each level."""
        merged = summary.columns[name]
        factor = column_factor(
            merged.counted(),
            levels_by_name,
            missing,
            rules.declared,
            is_response,
            rules.sums_out,
            tell_missing,
            merged.counted_totals() if summary.whole else None,
        )
        argument = "xlevels" if name in levels_by_name else "data"
        return factor, *merged.by_level(
            factor, argument, skip_missing=is_response or missing == "marginal"
        )

    response = NO_RESPONSE
    n_rows = np.array([float(summary.n)])
    totals = np.array([summary.total])
    if terms.response is not None:
        with problems.of_column():
            response, n_rows, totals = make_factor(terms.response, is_response=True)
            check_groups(response, n_rows, rules.declared)
    factors = []
    for name in terms.predictors:
        with problems.of_column():
            if name not in summary.numbers:
                factors.append(make_factor(name, is_response=False)[0])
                continue
            moments = summary.numbers[name]
            moments.refuse_missing(missing)
            factors.append(NumberFactor.of_moments(moments, rules.regressors))
            if not rules.regressors:
                moments.warn_of_few_values(stacklevel=7)  # the caller of a public function
    return response, factors, n_rows, totals


def encode_rows(reader: Reader, design: Design, assigner: FoldAssigner | None, sink: Any) -> int:
    """Run the second pass: encode the used rows and store them in the sink by group and fold.

    Returns the number of rows. Rows with a missing response have group -1. With an assigner, they
    also have fold -1, so they are training rows in every fold.
    """
    n = 0
    dtype = design.code_dtype
    for batch in reader.batches("pass 2"):
        with place_in_errors(batch.place):  # errors contain the name of the file or partition
            try:
                rows, y = _encode_batch(design, batch, dtype, reader.weight_unit)
            except LevelError as error:  # the first pass should have found all levels
                place = f" (in {batch.place})" if batch.place else ""
                raise DataError(
                    f"the data changed between the two passes{place}: "
                    f"{error.message.partition(';')[0]}.",
                    hint=READ_AGAIN,
                    column=error.column,
                    argument="data",
                ) from error
        n += rows.n
        for group in np.unique(y):
            # no copy is needed if all rows belong to the group
            group_rows = rows.rows(y == group) if (y != group).any() else rows
            # without folds, all rows are in the bucket of fold 0
            for f, fold_rows in (
                [(0, group_rows)] if assigner is None else assigner.put(int(group), group_rows)
            ):
                sink.put(int(group), f, fold_rows)
    for group, f, fold_rows in () if assigner is None else assigner.assign_remaining():
        sink.put(group, f, fold_rows)
    return n


def _encode_batch(
    design: Design, batch: UsedRows, dtype: np.dtype, unit: float
) -> tuple[Sample, np.ndarray]:
    """Return the encoded rows of a batch, and their groups (n,), which are -1 for a missing
    response.

    `dtype` is the type of the codes; weights are divided by `unit`.
    """
    codes = np.empty((batch.n, len(design.predictors)), dtype=dtype)
    missing = None
    skip_missing = design.missing == "marginal"
    for i, factor in enumerate(design.predictors):
        if isinstance(factor, NumberFactor):
            codes[:, i] = factor.to_codes(batch.numbers[factor.name])
            continue
        column = batch.columns[factor.name]
        codes[:, i] = factor.encode(column, skip_missing=skip_missing)[0]
        # `missing` (n, m) marks missing values; it is None if there are none so far
        missing = mark_rows(missing, codes.shape, i, column.missing() if skip_missing else None)
    y = np.zeros(batch.n, dtype=np.intp)
    if design.classes:
        column = batch.columns[design.response.name]
        y[:] = design.response.encode(column, skip_missing=True)[0]
        if (is_missing := column.missing()) is not None:
            y[is_missing] = -1
    weights = np.ones(batch.n) if batch.weights is None else batch.weights / unit
    return Sample(codes, weights, missing=missing), y


def _check_files(before: FileVersions, source: Source) -> None:
    """Raise an error if files were modified since the start of the passes; `before` contains their
    versions at that time.
    """
    place = changed_file(before, source.file_versions())
    if place is not None:
        raise DataError(
            f"{place} changed between the two passes.", hint=READ_AGAIN, argument="data"
        )


def _check_unchanged(summary: SourceSummary, n: int, design: Design, sample: Rows) -> None:
    """Raise an error if the number of rows, the weights or the level counts differ between the
    passes.
    """
    # sums of real-valued weights in the two passes may differ by rounding errors
    unit = summary.weight_unit
    if n != summary.n or not np.isclose(sample.total, summary.total / unit, rtol=1e-12):
        raise DataError(
            f"the data changed between the two passes: {summary.n:,} rows at first, then {n:,}.",
            hint=READ_AGAIN,
            argument="data",
        )
    pooled = sample.pooled  # the rows of all groups together
    for factor, counts in zip(
        design.predictors, level_counts(pooled, design.n_levels), strict=True
    ):
        if factor.name in summary.numbers:
            continue
        merged = summary.columns[factor.name]
        # weights
        expected = merged.by_level(factor, "data", skip_missing=design.missing == "marginal")[1]
        if not np.allclose(counts, expected / unit, rtol=1e-9):
            raise DataError(
                "the data changed between the two passes: the levels of column "
                f"{factor.name!r} have different counts.",
                hint=READ_AGAIN,
                column=factor.name,
                argument="data",
            )
