"""Read the used rows of a `Source` in batches, with columns as codes and distinct values.

The *place* of a batch is its file or partition, for use in messages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bbl.design.formula import FormulaTerms
from bbl.design.numbers import read_numbers
from bbl.design.streams.source import Batch, Source
from bbl.design.values import Column, ColumnProblems, frame_column
from bbl.design.weights import check_weights
from bbl.errors import BBLTypeError, DataError
from bbl.parallel import read_ahead
from bbl.rows.sample import code_dtype

__all__ = ["Reader", "UsedRows", "place_in_errors"]

MAX_AHEAD = 2  # maximum number of batches encoded at the same time, to limit memory
MAX_COLUMNS_AHEAD = 100  # if a source has more columns than this, batches are encoded one at a time


class UsedRows(NamedTuple):
    """The rows of a batch with positive weight and, if ``missing="drop"``, no missing values."""

    place: str  # place of the batch, for messages
    rows: int  # number of all rows of the batch, including rows that are not used
    n: int  # number of used rows
    columns: dict[Hashable, Column]  # columns of the used rows, without numeric predictors
    numbers: dict[Hashable, np.ndarray]  # values (n,) of the numeric predictors; nan if missing
    weights: np.ndarray | None  # (n,); None if all weights are 1
    dropped: float  # weight of the rows dropped because of missing values
    n_dropped: int  # number of dropped rows
    n_missing: dict[Hashable, int]  # with missing="drop", number of missing values in each column

    def narrow(self) -> UsedRows:
        """Return the same rows, with codes in the smallest integer type to save memory."""
        columns = {
            name: column._replace(codes=column.codes.astype(code_dtype(len(column.values))))
            for name, column in self.columns.items()
        }
        return self._replace(columns=columns)


@dataclass(frozen=True)
class Reader:
    """A reader of the used rows of a source, which reads one batch at a time.

    Attributes
    ----------
    source : Source
        The data; ``batches(names)`` yields all rows with these columns.
    terms : FormulaTerms
        The formula; its `columns` are the names of the response and the predictors.
    weights : column name or None
        Column of row weights.
    missing : {"raise", "drop", "level", "marginal"}
        How missing values are treated; only "drop" is relevant here.
    whole : bool
        Whether weights must be integers.
    step : callable or None
        ``step(1.0, text)`` is called after each batch, to report progress.
    cached_batches : list of UsedRows, optional
        The batches of an earlier pass, used instead of the source.
    workers : int, default 1
        Number of threads that encode batches while the caller processes earlier batches.
    weight_unit : float, default 1.0
        Divisor of the weights in the second pass, when rows are encoded.
    listed : frozenset of column names
        Columns with levels listed in `xlevels`.
    numeric : tuple of column names
        The numeric predictors.
    """

    source: Source
    terms: FormulaTerms
    weights: Hashable | None
    missing: str
    whole: bool
    step: Callable | None
    cached_batches: list[UsedRows] | None = None
    workers: int = 1
    weight_unit: float = 1.0
    listed: frozenset[Hashable] = frozenset()
    numeric: tuple[Hashable, ...] = ()

    def batches(self, title: str) -> Iterator[UsedRows]:
        """Yield the used rows of each batch; `title` is the name of the pass in progress
        reports.
        """
        if self.cached_batches is not None:
            yield from self.cached_batches
            return
        n_read = 0  # number of rows so far
        columns = [*self.terms.columns, *([] if self.weights is None else [self.weights])]
        # skip empty batches
        batches = (batch for batch in self.source.batches(columns) if batch.frame.n)
        n_threads = min(self.workers, MAX_AHEAD) if len(columns) <= MAX_COLUMNS_AHEAD else 1
        for used_rows in read_ahead(self._code_batch, batches, n_threads):
            yield used_rows
            n_read += used_rows.rows
            if self.step is not None:
                self.step(1.0, f"{title}, {n_read:,} rows")

    def _code_batch(self, batch: Batch) -> UsedRows:
        """Return the used rows of a batch, with columns as codes and distinct values."""
        with place_in_errors(batch.place):  # errors contain the name of the file or partition
            weights = None
            if self.weights is not None:
                series = batch.frame.column(self.weights)
                # part=True: all weights of a batch may be 0
                weights = check_weights(series, batch.frame.n, whole=self.whole, part=True)
            columns = {}
            problems = ColumnProblems()
            numbers = {}
            for name in self.terms.columns:
                with problems.of_column():
                    if name in self.numeric:
                        numbers[name] = read_numbers(name, batch.frame.column(name))
                    else:
                        columns[name] = frame_column(batch.frame, name)
            problems.refuse()
        return self._select_used_rows(batch, columns, numbers, weights)

    def _select_used_rows(
        self,
        batch: Batch,
        columns: dict[Hashable, Column],
        numbers: dict[Hashable, np.ndarray],
        weights: np.ndarray | None,
    ) -> UsedRows:
        """Return the rows of a batch with positive weight and, if rows with missing values are
        dropped, no missing values.
        """
        # mask of the used rows
        keep = np.ones(batch.frame.n, dtype=bool) if weights is None else weights > 0
        dropped = 0.0
        n_dropped = 0
        n_missing: dict[Hashable, int] = {}
        has_weight = keep
        missing_values = {name: column.missing() for name, column in columns.items()}
        missing_values |= {name: np.isnan(values) for name, values in numbers.items()}
        for name, is_missing in missing_values.items() if self.missing == "drop" else ():
            if is_missing is not None and is_missing.any():
                n_missing[name] = int((has_weight & is_missing).sum())
                newly_dropped = keep & is_missing
                n_dropped += int(newly_dropped.sum())
                dropped += float(
                    newly_dropped.sum() if weights is None else weights[newly_dropped].sum()
                )
                keep = keep & ~is_missing
        if keep.all():
            return UsedRows(
                batch.place,
                batch.frame.n,
                batch.frame.n,
                columns,
                numbers,
                weights,
                dropped,
                n_dropped,
                {},
            )
        columns = {
            name: column._replace(codes=column.codes[keep]) for name, column in columns.items()
        }
        numbers = {name: values[keep] for name, values in numbers.items()}
        weights = None if weights is None else weights[keep]
        return UsedRows(
            batch.place,
            batch.frame.n,
            int(keep.sum()),
            columns,
            numbers,
            weights,
            dropped,
            n_dropped,
            n_missing,
        )


@contextmanager
def place_in_errors(place: str) -> Iterator[None]:
    """Add the place of the batch to the message of an error that is raised in the ``with``
    block.
    """
    try:
        yield
    except (DataError, BBLTypeError) as error:
        if place and place not in error.message:
            error.message = f"{error.message} (In {place}.)"
        raise
