"""Assign rows to folds while they are read, and store them in a file or a table of counts.

A row with integer weight w counts as w *copies*, which may be in different folds. F is the number
of folds, and K is the number of response groups.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bbl.errors import OptionError
from bbl.rows.folds import MAX_SINGLE_COPIES, Fold, Folds, assign_copies, draw_copies, fold_sizes
from bbl.rows.on_disk import CodeFile
from bbl.rows.sample import Rows, Sample, code_dtype, concatenate, level_counts
from bbl.rows.stored import StoredSample

__all__ = [
    "AnyFolds",
    "FoldAssignment",
    "FoldAssigner",
    "FileSink",
    "Sink",
    "StoredFolds",
    "TableSink",
    "make_sink",
]

# number of rows in a chunk: this many rows of a group are assigned together, unless all folds are
# drawn at once
ASSIGNED_ROWS = 4096
# maximum number of cells in a table of state counts (groups x folds x states), 8 bytes each
MAX_TABLE_CELLS = 4_000_000
MAX_VALIDATED_ROWS = 2**20  # maximum number of validation rows that are scored over all folds


@dataclass(frozen=True)
class FoldAssignment:
    """Specification of a fold assignment."""

    nfold: int  # number of folds
    rng: np.random.Generator | None = None  # for shuffled folds; None for consecutive folds
    # least number of rows of a fold: with fewer rows, there are fewer folds, or none
    least: int = 0
    # whether only the first fold is held out: the rows of all others are stored together as fold 1
    first_only: bool = False

    @property
    def n_stored(self) -> int:
        """Number of folds that are stored separately."""
        return 2 if self.first_only else self.nfold

    def of_rows(self, n: int) -> FoldAssignment | None:
        """Return the specification for `n` rows; None if there are too few for two folds."""
        if not self.least:
            return self
        nfold = min(self.nfold, n // self.least)
        return replace(self, nfold=nfold) if nfold > 1 else None


class FoldAssigner:
    """Assigns the rows of each response group to consecutive folds, as in R, or to random folds.

    Random folds have the same sizes as consecutive folds. For up to 2**22 unweighted rows, they are
    identical to those of `shuffled_folds`. Weighted rows, and larger data, are assigned in chunks:
    first, the number of copies of a chunk in each fold is drawn; then the copies are assigned. The
    distribution of the folds does not depend on how the rows are divided into batches.

    Parameters
    ----------
    assignment : FoldAssignment
        Specification of the number of folds, and whether they are random.
    rows, totals : ndarray, shape (K,)
        Number of rows and total weight of each group.
    whole : bool
        Whether weights are numbers of copies, which are assigned individually. If False, each row
        counts as one copy.

    Attributes
    ----------
    copies_left : list of K ndarrays, shape (F,)
        Number of copies in each group that remain to be assigned to each fold; initially
        `fold_sizes`, as in the R package bbl.
    fold_edges : list of K ndarrays, shape (F + 1,)
        Consecutive fold f contains the copies ``fold_edges[y][f]`` to ``fold_edges[y][f + 1]`` of
        group y.
    n_assigned : ndarray, shape (K,)
        Number of copies of each group assigned so far; with `fold_of_row`, number of rows.
    waiting : list of K lists of Sample
        Rows of each group that wait until a chunk is full.
    fold_of_row : list of K ndarrays of int16, or None
        Folds of all rows of each group, if they are drawn at once.
    """

    def __init__(
        self, assignment: FoldAssignment, rows: np.ndarray, totals: np.ndarray, whole: bool
    ):
        self.whole = whole
        self.nfold = assignment.nfold
        self.first_only = assignment.first_only
        self.rng = assignment.rng
        n_copies = totals if whole else rows
        if assignment.nfold > n_copies.sum():
            raise OptionError(
                f"nfold must be between 2 and {n_copies.sum():.0f}, the number of rows; "
                f"got {assignment.nfold}.",
                argument="nfold",
            )
        self.copies_left = [fold_sizes(float(n), assignment.nfold) for n in n_copies]
        self.fold_edges = [np.concatenate(([0.0], np.cumsum(sizes))) for sizes in self.copies_left]
        self.n_assigned = np.zeros(len(rows))
        self.waiting: list[list[Sample]] = [[] for _ in rows]
        self.fold_of_row: list[np.ndarray] | None = None
        # if the totals are equal, each row is one copy, because integer weights are at least 1 and
        # rows with other weights count once
        if self.rng is not None and (totals == rows).all() and rows.sum() <= MAX_SINGLE_COPIES:
            self.fold_of_row = [np.empty(int(n), dtype=np.int16) for n in rows]
            for group_folds, n, sizes in zip(self.fold_of_row, rows, self.copies_left, strict=True):
                one_copy_each = np.ones(int(n), dtype=np.int64)
                # `assign_copies` returns an array (F, n) with 1 in the fold of each row
                group_folds[:] = assign_copies(
                    one_copy_each, sizes.astype(np.int64), self.rng
                ).argmax(axis=0)

    def put(self, y: int, rows: Sample) -> Iterator[tuple[int, Sample]]:
        """Assign the next rows of group `y` to folds; yield each fold with its rows.

        Some rows may wait until a chunk is full. Rows of an unknown group (y = -1) have fold -1:
        they are training rows in all folds and are never validated.
        """
        if y < 0:
            yield -1, rows
            return
        # consecutive folds, or folds that have all been drawn before
        if self.rng is None or self.fold_of_row is not None:
            yield from self._split_by_fold(rows, self._copies_per_fold(y, rows))
            return
        self.waiting[y].append(rows)
        while sum(waiting_rows.n for waiting_rows in self.waiting[y]) >= ASSIGNED_ROWS:
            yield from self._assign_chunk(y, ASSIGNED_ROWS)

    def assign_remaining(self) -> Iterator[tuple[int, int, Sample]]:
        """Assign all waiting rows; yield each group and fold with its rows."""
        for y, waiting_rows in enumerate(self.waiting):
            n = sum(rows.n for rows in waiting_rows)
            for f, fold_rows in self._assign_chunk(y, n) if n else ():
                yield y, f, fold_rows

    def split_by_part(
        self, rows: Sequence[np.ndarray], totals: Sequence[np.ndarray]
    ) -> list[FoldAssigner]:
        """Return one assigner for each part of the data, which contains consecutive rows on one
        worker.

        This assigner is then exhausted. `rows` and `totals` contain an array (K,) for each part:
        the number of rows and the total weight of each group. Unless random folds are drawn for all
        rows at once, this draws the number of copies of each part in each fold.
        """
        assigners = []
        n_copies_before = np.zeros(len(self.copies_left))
        for n_rows, total in zip(rows, totals, strict=True):
            n_copies = total if self.whole else n_rows  # (K,), of the part
            assigner = copy(self)
            # consecutive folds continue after the copies of earlier parts
            assigner.waiting = [[] for _ in n_rows]
            assigner.n_assigned = n_copies_before.copy()
            if self.fold_of_row is not None:  # each row is one copy
                group_slices = zip(
                    self.fold_of_row, n_copies_before.astype(int), n_rows.astype(int), strict=True
                )
                assigner.fold_of_row = [
                    group_folds[start : start + size] for group_folds, start, size in group_slices
                ]
                # `fold_of_row` of the new assigner starts with the part
                assigner.n_assigned = np.zeros(len(n_rows))
            elif self.rng is not None:
                # draw the number of copies of the part in each fold; the other copies are left for
                # later parts
                assigner.copies_left = [
                    draw_copies(group_copies_left.astype(np.int64), int(size), self.rng)
                    for group_copies_left, size in zip(
                        self.copies_left, n_copies.astype(int), strict=True
                    )
                ]
                copies_by_group = zip(self.copies_left, assigner.copies_left, strict=True)
                self.copies_left = [
                    group_copies - part_copies for group_copies, part_copies in copies_by_group
                ]
                assigner.rng = self.rng.spawn(1)[0]  # an independent random generator
            assigners.append(assigner)
            n_copies_before += n_copies
        return assigners

    def _copies_per_fold(self, y: int, rows: Sample) -> np.ndarray:
        """Return the number of copies that the next n rows of group `y` have in each fold, shape
        (F, n).

        This method is used for consecutive folds, and for random folds drawn for all rows at once.
        """
        if self.fold_of_row is not None:
            start = int(self.n_assigned[y])
            self.n_assigned[y] += rows.n
            return (
                self.fold_of_row[y][start : start + rows.n] == np.arange(self.nfold)[:, None]
            ).astype(float)
        copies = rows.weights if self.whole else np.ones(rows.n)
        # row k has the copies copy_ends[k] - copies[k] to copy_ends[k] of its group
        copy_ends = self.n_assigned[y] + np.cumsum(copies)
        self.n_assigned[y] = copy_ends[-1]
        edges = self.fold_edges[y]
        # (F, n): copies of row k between the edges of fold f; negative if there are none
        overlap: np.ndarray = np.minimum(copy_ends, edges[1:, None]) - np.maximum(
            copy_ends - copies, edges[:-1, None]
        )
        return np.maximum(overlap, 0.0)

    def _assign_chunk(self, y: int, n: int) -> Iterator[tuple[int, Sample]]:
        """Assign the first `n` waiting rows of group `y` to random folds; yield folds and rows."""
        assert self.rng is not None  # noqa: S101  # only random folds wait
        waiting_rows = concatenate(self.waiting[y])
        self.waiting[y] = [waiting_rows.rows(slice(n, None))]
        rows = waiting_rows.rows(slice(n))
        copies = (rows.weights if self.whole else np.ones(rows.n)).astype(np.int64)
        sizes = draw_copies(self.copies_left[y].astype(np.int64), int(copies.sum()), self.rng)
        self.copies_left[y] = self.copies_left[y] - sizes
        yield from self._split_by_fold(rows, assign_copies(copies, sizes, self.rng))

    def _split_by_fold(self, rows: Sample, copies: np.ndarray) -> Iterator[tuple[int, Sample]]:
        """Yield each fold that contains some of the `copies` (F, n), together with its rows.

        Integer weights are replaced by the number of copies in the fold; other weights remain
        unchanged.
        """
        if self.first_only:
            copies = np.stack([copies[0], copies[1:].sum(axis=0)])
        for f, fold_copies in enumerate(copies):  # fold_copies: (n,)
            positions = np.flatnonzero(fold_copies > 0)
            if len(positions):
                fold_rows = rows.rows(positions)
                weights = (
                    np.asarray(fold_copies[positions], float) if self.whole else fold_rows.weights
                )
                yield f, replace(fold_rows, weights=weights)


class Sink(ABC):
    """A store that collects encoded rows: `TableSink`, `FileSink`, or a cluster's sink.

    A cluster's sink does not have `put`.
    """

    @abstractmethod
    def finish(self, nfold: int) -> tuple[Rows, Folds | StoredFolds | None]:
        """Return all rows and their folds; the folds are None if `nfold` is 0."""

    @abstractmethod
    def close(self) -> None:
        """Remove the stored rows."""


class FileSink(Sink):
    """A sink that writes rows to a `CodeFile`, a temporary file.

    Parameters
    ----------
    n : int
        Expected number of rows; an error is raised if there is not enough disk space.
    n_levels : ndarray of int, shape (m,)
        Number of levels of each predictor.
    weighted : bool
        Whether rows have weights other than 1.
    masked : bool
        Whether values may be missing.
    dtype : numpy.dtype
        Data type of the codes.
    buckets : int
        Maximum number of buckets; a bucket contains the rows of one group that are validated by one
        fold.
    """

    def __init__(
        self,
        n: int,
        n_levels: np.ndarray,
        weighted: bool,
        masked: bool,
        dtype: np.dtype,
        buckets: int,
    ):
        self.file = CodeFile(len(n_levels), dtype, weighted, masked, buckets)
        self.file.check_room(n)

    def put(self, y: int, f: int, rows: Sample) -> None:
        """Store rows of group `y` that belong to the validation rows of fold `f`."""
        self.file.append((y, f), rows)  # (y, f) is the bucket

    def finish(self, nfold: int) -> tuple[StoredSample, StoredFolds | None]:
        """Return all rows and their folds; the folds are None if `nfold` is 0."""
        return self.file.finish(), StoredFolds(nfold) if nfold else None

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


@dataclass
class TableSink(Sink):
    """A sink that sums row weights by group, fold and state, for data with many rows but few
    states.

    With missing values, each predictor has an additional level L_i for missing values.
    """

    n_levels: np.ndarray  # (m,); of each predictor
    masked: bool  # whether values may be missing; missing values are then an additional level
    K: int  # number of response groups
    nfold: int  # number of folds
    # (K + 1, nfold + 1, states); index -1 is the unknown group, or no fold
    counts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Create the empty table."""
        # a state is a cell of a table of this shape
        self.shape = tuple(int(L) + self.masked for L in self.n_levels)
        self.counts = np.zeros((self.K + 1, self.nfold + 1, math.prod(self.shape)))

    def put(self, y: int, f: int, rows: Sample) -> None:
        """Count the rows of group `y` that are validated in fold `f`; -1 stands for an unknown
        group or no fold.
        """
        codes = rows.codes.astype(np.intp)
        if rows.missing is not None:
            # missing values have the code after the last level
            codes = np.where(rows.missing, self.n_levels, codes)
        # without predictors, there is a single state
        state_of_row = (
            np.ravel_multi_index(tuple(codes.T), self.shape)
            if self.shape
            else np.zeros(rows.n, np.intp)
        )
        # up to the largest state in the rows
        state_weights = np.bincount(state_of_row, rows.weights)
        self.counts[y, f, : len(state_weights)] += state_weights

    def finish(self, nfold: int) -> tuple[Sample, Folds | None]:
        """Return one row for each state and group that occurs, and the folds as weights, if there
        are folds.
        """
        weight_by_state = self.counts.sum(axis=1)  # (K + 1, states)
        group_of_row, state_of_row = np.nonzero(weight_by_state)
        codes = np.empty((len(state_of_row), len(self.shape)), dtype=code_dtype(self.n_levels))
        missing = np.zeros(codes.shape, dtype=bool)
        # state_codes: codes of predictor i, one for each row
        for i, state_codes in enumerate(
            np.unravel_index(state_of_row, self.shape) if self.shape else ()
        ):
            missing[:, i] = state_codes == self.n_levels[i]  # the code after the last level
            codes[:, i] = np.where(missing[:, i], 0, state_codes)
        y = np.where(group_of_row == self.K, -1, group_of_row)
        sample = Sample(
            codes,
            weight_by_state[group_of_row, state_of_row],
            y,
            missing if missing.any() else None,
        )
        if not nfold:
            return sample, None
        # (nfold, rows): row weights in the validation part of each fold
        validation_weights = np.ascontiguousarray(self.counts[group_of_row, :nfold, state_of_row].T)
        return sample, Folds(sample.weights - validation_weights, validation_weights)

    def close(self) -> None:
        """Do nothing, because a table has no file to remove."""


def make_sink(
    n: int,
    n_levels: np.ndarray,
    K: int,
    nfold: int,
    weighted: bool,
    masked: bool,
    make_store: Callable[..., Sink] = FileSink,
    dtype: np.dtype | None = None,
) -> Sink:
    """Return a `TableSink` if there are few possible states, and otherwise the sink made by
    `make_store`.

    `n` is the number of rows to store; `nfold` is 0 if rows are not assigned to folds. `weighted`
    indicates whether weights may differ from 1, and `masked` whether values may be missing.
    `make_store` is called with `n`, `n_levels` (m,), `weighted`, `masked`, `dtype` and the number
    of buckets (group, fold). `dtype` is the type of the codes; by default, the smallest type for
    these levels. It is float64 if there are numeric predictors, which have too many values for a
    table. The number of buckets only determines the size of buffers; it does not include the few
    buckets with rows of an unknown group.
    """
    n_states = math.prod(int(L) + masked for L in n_levels)
    dtype = dtype or code_dtype(n_levels)
    # + 1: for the unknown group, and for no fold
    if dtype.kind != "f" and n_states * (K + 1) * (nfold + 1) <= MAX_TABLE_CELLS:
        return TableSink(np.asarray(n_levels), masked, K, nfold)
    return make_store(n, n_levels, weighted, masked, dtype, K * max(1, nfold))


@dataclass(frozen=True)
class StoredFolds:
    """Folds of a `StoredSample`, where the validation rows of each fold are stored separately."""

    nfold: int  # number of folds

    def __len__(self) -> int:
        """Return the number of folds."""
        return self.nfold

    def one(self, f: int) -> Fold[Any]:
        """Return fold `f`."""
        return StoredFold(f, self.nfold)


@dataclass(frozen=True)
class StoredFold(Fold[StoredSample]):
    """One fold of a `StoredSample`; its training rows are the rows of all other folds."""

    f: int  # number of the fold, starting at 0
    nfold: int  # number of folds

    def training(self, sample: StoredSample) -> Rows:
        """Return the training rows."""
        return sample.without(self.f)

    def validation(self, sample: StoredSample) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return the validation rows by group, their weights, and positions of -1, because the
        positions are unknown.

        If there are more than 2**20 / nfold validation rows, return a random sample of this size.
        """
        # the number of the fold is the seed, so the draw is always the same
        validated = sample.fold(self.f).draw(
            MAX_VALIDATED_ROWS // self.nfold, np.random.default_rng(self.f)
        )
        return validated, validated.weights, np.full(validated.n, -1)

    def group_totals(self, sample: StoredSample, K: int) -> np.ndarray:
        """Return the total weight of the training rows of each group, shape (K,)."""
        return self.training(sample).group_totals(K)

    def validation_counts(
        self, sample: StoredSample, n_levels: Sequence[int], K: int
    ) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels in the validation rows, where missing values are an
        additional level.
        """
        # numbers of observations: if weights are not numbers of copies, each row counts once
        return level_counts(
            sample.fold(self.f), n_levels, K, gaps=not sample.complete, once=not sample.whole
        )


AnyFolds = Folds | StoredFolds
