"""Two passes over a source: the first finds levels and counts, the second turns rows into codes by group and fold."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bbl.checks import choice, flag, near_match
from bbl.design.columns import (
    NO_RESPONSE,
    check_groups,
    check_levels,
    check_size,
    check_variable,
    column_factor,
    given_levels,
    mark_rows,
    refuse_no_rows_left,
)
from bbl.design.design import MANY, MISSING, Design, EncodingRules
from bbl.design.factors import Factor
from bbl.design.formula import FormulaTerms, parse
from bbl.design.streams.merged import Merged
from bbl.design.streams.source import Batch, Source
from bbl.design.values import Column, frame_column
from bbl.design.weights import MOST, check_weights
from bbl.errors import DataError, LevelError, OptionError
from bbl.rows.counts import level_counts
from bbl.rows.dealing import Deal, Dealer, StoredFolds, make_sink
from bbl.rows.folds import Folds
from bbl.rows.on_disk import Rows
from bbl.rows.sample import Sample, code_dtype

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


__all__ = ["Encoded", "Reader", "Seen", "Used", "encode_rows", "encode_source", "look"]

CHANGED = "the data changed between the two passes over them{}: {}. Read them again when nothing else writes to them."


@dataclass(frozen=True)
class Encoded:
    """Result of the two passes over a source.

    Attributes
    ----------
    design : Design
    sample : Sample or StoredSample
        Few states, each with its count, or rows in a file.
    folds : Folds, StoredFolds or None
        What was asked for.
    """

    design: Design
    sample: Rows
    folds: Folds | StoredFolds | None


@dataclass
class Seen:
    """Values and counts that the first pass collects."""

    columns: dict[Hashable, Merged]
    n: int = 0
    total: float = 0.0
    incomplete: float = 0.0
    whole: bool = True
    unit: bool = True
    blank: bool = False  # whether a value is missing in some row that is kept
    dropped: float = 0.0
    rows: int = 0  # of the source

    def join(self, other: Seen) -> None:
        """Add the values and counts of another part."""
        for name, column in other.columns.items():
            self.columns[name].join(column)
        self.whole, self.unit = self.whole and other.whole, self.unit and other.unit
        self.blank = self.blank or other.blank
        for name in ("n", "total", "incomplete", "dropped", "rows"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Used(NamedTuple):
    """The rows of a batch that are used."""

    place: str
    rows: int  # of the batch
    n: int
    columns: dict[Hashable, Column]
    weights: np.ndarray | None  # None for ones
    dropped: float  # weight of rows that were dropped for missing values

    def narrow(self) -> Used:
        """Return the same with codes that take the fewest bytes, to be kept."""
        narrowed = {
            name: c._replace(codes=c.codes.astype(code_dtype(len(c.values)))) for name, c in self.columns.items()
        }
        return self._replace(columns=narrowed)


@dataclass(frozen=True)
class Reader:
    """Goes over a source, and says which rows are used.

    Attributes
    ----------
    source : Source
    terms : FormulaTerms
    weights : column name or None
    missing : str
    whole : bool
        Whether weights have to be whole numbers.
    step : callable or None
        Told of each batch.
    cached_batches : list of Used, optional
        What was read before, in place of the source.
    """

    source: Source
    terms: FormulaTerms
    weights: Hashable | None
    missing: str
    whole: bool
    step: Callable | None
    cached_batches: list[Used] | None = None

    def parts(self, title: str) -> Iterator[Used]:
        """Yield the used rows of all batches."""
        if self.cached_batches is not None:
            yield from self.cached_batches
            return
        done, names = 0, list(self.terms.columns)
        for batch in self.source.batches([*names, *([] if self.weights is None else [self.weights])]):
            if not batch.frame.n:
                continue
            with _place_in_errors(batch.place):
                weights = None
                if self.weights is not None:
                    series = batch.frame.column(self.weights)
                    weights = check_weights(series, batch.frame.n, whole=self.whole, part=True)
                columns = {name: frame_column(batch.frame, name) for name in names}
            yield self._used(batch, columns, weights)
            done += batch.frame.n
            if self.step is not None:
                self.step(1.0, f"{title}, {done:,} rows")

    def _used(self, batch: Batch, columns: dict[Hashable, Column], weights: np.ndarray | None) -> Used:
        keep = np.ones(batch.frame.n, dtype=bool) if weights is None else weights > 0
        dropped = 0.0
        for column in columns.values() if self.missing == "drop" else ():
            if (blank := column.missing()) is not None:
                lost = keep & blank
                dropped += float(lost.sum() if weights is None else weights[lost].sum())
                keep = keep & ~blank
        if keep.all():
            return Used(batch.place, batch.frame.n, batch.frame.n, columns, weights, dropped)
        columns = {name: column._replace(codes=column.codes[keep]) for name, column in columns.items()}
        weights = None if weights is None else weights[keep]
        return Used(batch.place, batch.frame.n, int(keep.sum()), columns, weights, dropped)


@contextmanager
def _place_in_errors(place: str) -> Iterator[None]:
    """Add to an error where the batch is from."""
    try:
        yield
    except (DataError, TypeError) as error:
        if place and place not in str(error):
            error.args = (f"{error} (In {place}.)",)
        raise


def encode_source(
    source: Source,
    formula: str,
    weights: Hashable | ArrayLike | None = None,
    xlevels: Mapping | None = None,
    novarOk: bool = False,
    missing: str = "raise",
    announce: Callable[[int, int, np.ndarray], None] | None = None,
    *,
    deal: Deal | None = None,
    step: Callable | None = None,
    cluster: Any = None,
    rules: EncodingRules | None = None,
) -> Encoded:
    """Read a formula against a source, collect the levels in a first pass, and encode the rows in a second.

    Parameters
    ----------
    source : Source
    formula, xlevels, novarOk, missing, announce, rules
        As in `Design.from_data`, which judges a table in memory by the same rules.
    weights : column name, optional
    deal : Deal, optional
        Which folds to deal the rows to.
    step : callable, optional
        Told of each batch.
    cluster : bbl.design.streams.dask_passes.OnCluster, optional
        Who makes the passes, in place of this process.

    Returns
    -------
    Encoded
        The sample has a file, to be closed, if the states are too many for a table of counts.

    Raises
    ------
    FormulaError, DataError, LevelError, BBLTypeError
        As `Design.from_data`; also if a file cannot be read or written, or the data changed between the passes.
    """
    flag("novarOk", novarOk)
    choice("missing", missing, MISSING)
    named = _named_weights(weights, source)
    exclude = () if named is None else (named,)
    rules = rules or EncodingRules()
    declared = rules.declared
    terms = parse(formula, source.columns, exclude, rules.order, declared, rules.one_sided, rules.order_reason)
    _check_names(source, terms)
    levels_by_name = given_levels(xlevels, terms)
    reader = Reader(source, terms, named, missing, rules.whole_weights, step)
    seen = _checked(look(reader) if cluster is None else cluster.look(reader), reader)
    response, factors, rows, totals = _collected_factors(seen, terms, levels_by_name, missing, declared, rules.sums_out)
    if not (novarOk or declared):
        check_variable(factors)
    if not declared:
        check_levels(factors, seen.total)
    m, K = len(factors), len(response.levels)
    predictors = tuple(factors if declared else [f.padded() for f in factors])
    n_levels = np.array([len(f.levels) for f in predictors], dtype=np.intp)
    if announce is not None and m > MANY and terms.interactions.count(2) == m * (m - 1) // 2:
        announce(seen.n, K, n_levels)
    check_size(terms, factors, K)
    design = Design(terms, response, predictors, missing, round(seen.incomplete), declared)
    dealer = None if deal is None else Dealer(deal, rows, totals, seen.whole)
    nfold, into = 0 if deal is None else deal.nfold, make_sink if cluster is None else cluster.make_sink
    sink = into(seen.n, n_levels, K, nfold, not seen.unit, _masked(seen, missing))
    try:
        n = (encode_rows if cluster is None else cluster.encode_rows)(reader, design, dealer, sink)
        sample, folds = sink.finish(nfold)
        _check_same(seen, n, design, sample)
    except BaseException:
        sink.close()
        raise
    return Encoded(design, sample, folds)


def _masked(seen: Seen, missing: str) -> bool:
    return missing == "marginal" and seen.blank


def _named_weights(weights: Any, source: Source) -> Hashable | None:
    if weights is None or source.has(weights):
        return weights
    if not isinstance(weights, str):
        raise OptionError(
            f"weights must be the name of a column where data are read in batches, as {source.text} are; got "
            f"{type(weights).__name__}. Put them into the data.",
            argument="weights",
        )
    hint = near_match(weights, source.columns) or "."
    raise DataError(
        f"weights={weights!r} is not a column of the data{hint} Give the name of one.",
        argument="weights",
        column=weights,
    )


def _check_names(source: Source, terms: FormulaTerms) -> None:
    twice = next((name for name in terms.columns if list(source.columns).count(name) > 1), None)
    if twice is not None:
        raise DataError(f"data has the duplicate column name {twice!r}. Rename the columns.", column=twice)


def look(reader: Reader, cache: list[Used] | None = None) -> Seen:
    """Find the values of all columns, and how often they occur in the rows that are used: the first pass.

    What is read goes to a list as well, if one is given: `Reader.cached_batches` for the second pass.
    """
    terms = reader.terms
    seen = Seen({name: Merged(name) for name in terms.columns})
    for batch in reader.parts("pass 1"):
        if cache is not None:
            cache.append(batch.narrow())
        seen.rows += batch.rows
        blank = np.zeros(batch.n, dtype=bool)
        with _place_in_errors(batch.place):
            for name, column in batch.columns.items():
                seen.columns[name].add(column, batch.weights)
                if name != terms.response and (unknown := column.missing()) is not None:
                    blank |= unknown
        batch_weights = batch.weights
        seen.n += batch.n
        seen.total += batch.n if batch_weights is None else float(batch_weights.sum())
        seen.incomplete += float(blank.sum() if batch_weights is None else batch_weights[blank].sum())
        seen.blank = seen.blank or bool(blank.any())
        seen.dropped += batch.dropped
        if batch_weights is not None:
            seen.unit = seen.unit and bool((batch_weights == 1.0).all())
            seen.whole = seen.whole and bool((batch_weights == np.floor(batch_weights)).all())
    return seen


def _checked(seen: Seen, reader: Reader) -> Seen:
    """Return what the first pass has seen, if there is anything to be fitted."""
    if reader.missing == "drop":
        if not seen.n and seen.dropped:
            refuse_no_rows_left()
        seen.incomplete = seen.dropped
    if not seen.rows:
        raise DataError(f"{reader.source.text} has no rows. Give at least one row for each response group.")
    if not 0 < seen.total <= MOST:
        problem = "are all zero" if not seen.total else f"sum to {seen.total:g}, more than can be counted"
        raise DataError(f"weights {problem}. Give at least one row a weight.", argument="weights")
    return seen


def _collected_factors(
    seen: Seen, terms: FormulaTerms, given: dict, policy: str, declared: bool, sums_out: bool
) -> tuple[Factor, list[Factor], np.ndarray, np.ndarray]:
    """Return the factors of response and predictors, and rows and weight of each group."""

    def collected(name: Hashable, missing: str | None) -> tuple[Factor, np.ndarray, np.ndarray]:
        merged = seen.columns[name]
        factor = column_factor(merged.counted(), given, missing, declared, policy, sums_out)
        level_weights = merged.by_level(factor, "xlevels" if name in given else "data", missing in ("marginal", None))
        return factor, *level_weights

    if terms.response is None:
        response, rows, totals = NO_RESPONSE, np.array([float(seen.n)]), np.array([seen.total])
    else:
        response, rows, totals = collected(terms.response, None)
        check_groups(response, rows, declared)
    return response, [collected(name, policy)[0] for name in terms.predictors], rows, totals


def encode_rows(reader: Reader, design: Design, dealer: Dealer | None, sink: Any) -> int:
    """Turn the rows into codes and hand them to the sink; return how many there were."""
    n = 0
    dtype = code_dtype(design.n_levels)
    for batch in reader.parts("pass 2"):
        with _place_in_errors(batch.place):
            try:
                rows, y = _encoded(design, batch, dtype)
            except LevelError as error:
                place = f" (in {batch.place})" if batch.place else ""
                text = CHANGED.format(place, str(error).partition(";")[0])
                raise DataError(text, column=error.column, argument="data") from error
        n += rows.n
        for k in np.unique(y):
            group_rows = rows.rows(y == k) if (y != k).any() else rows
            for f, dealt in [(0, group_rows)] if dealer is None else dealer.put(int(k), group_rows):
                sink.put(int(k), f, dealt)
    for k, f, dealt in () if dealer is None else dealer.remaining():
        sink.put(k, f, dealt)
    return n


def _encoded(design: Design, part: Used, dtype: np.dtype) -> tuple[Sample, np.ndarray]:
    """Return rows as codes, and their groups."""
    codes, blank = np.empty((part.n, len(design.predictors)), dtype=dtype), None
    skip = design.missing == "marginal"
    for i, factor in enumerate(design.predictors):
        column = part.columns[factor.name]
        codes[:, i] = factor.encode(column, skip_missing=skip)[0]
        blank = mark_rows(blank, codes.shape, i, column.missing() if skip else None)
    y = np.zeros(part.n, dtype=np.intp)
    if design.classes:
        column = part.columns[design.response.name]
        y[:] = design.response.encode(column, skip_missing=True)[0]
        if (unknown := column.missing()) is not None:
            y[unknown] = -1
    return Sample(codes, np.ones(part.n) if part.weights is None else part.weights, None, blank), y


def _check_same(seen: Seen, n: int, design: Design, sample: Rows) -> None:
    """Raise if the second pass did not find what the first did."""
    if n != seen.n or not np.isclose(sample.total, seen.total, rtol=1e-12):
        raise DataError(CHANGED.format("", f"{seen.n:,} rows at first, then {n:,}"), argument="data")
    pooled = sample.pooled
    for factor, counts in zip(design.predictors, level_counts(pooled, design.n_levels), strict=True):
        merged = seen.columns[factor.name]
        expected = merged.by_level(factor, "data", design.missing == "marginal")[1]
        if not np.allclose(counts, expected, rtol=1e-9):
            text = f"the levels of column {factor.name!r} have other counts"
            raise DataError(CHANGED.format("", text), column=factor.name, argument="data")
