"""Dealing rows to folds as they come by, and where they go: a file of codes, or a table of counts of equal rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from bbl.errors import OptionError
from bbl.rows.counts import level_counts
from bbl.rows.folds import MAX_SINGLE_COPIES, Fold, Folds, dealt_copies, drawn_copies, fold_sizes
from bbl.rows.on_disk import CodeFile
from bbl.rows.sample import Rows, Sample, code_dtype, concatenate
from bbl.rows.stored import StoredSample

__all__ = ["Sink", "AnyFolds", "Deal", "Dealer", "FileSink", "StoredFolds", "TableSink", "make_sink"]

CHUNK_ROWS = 4096  # of a group that are dealt together, where they are too many to be dealt at once
MAX_TABLE_CELLS = 4_000_000  # of a table of states, all groups and folds together
MAX_VALIDATED_ROWS = 2**20  # left-out rows that are scored, all folds together


@dataclass(frozen=True)
class Deal:
    """The folds that a call asks for.

    Attributes
    ----------
    nfold : int
    rng : numpy.random.Generator or None
        For shuffled folds; None for consecutive ones.
    """

    nfold: int
    rng: np.random.Generator | None = None


class Dealer:
    """Deals the rows of each group to folds: R's consecutive ones, or random ones of the same sizes.

    Random folds of rows without weights are those of `shuffled_folds`, up to 2**22 rows. More, and rows with weights,
    are dealt chunk by chunk, each fold getting a share of a chunk that is drawn too: random folds of the same
    distribution, whatever the batches are.

    Parameters
    ----------
    deal : Deal
    rows, totals : ndarray, shape (K,)
        Rows and sum of weights of each group.
    whole : bool
        Whether weights are numbers of copies, which are dealt one by one.
    """

    def __init__(self, deal: Deal, rows: np.ndarray, totals: np.ndarray, whole: bool):
        self.whole, self.nfold, self.rng = whole, deal.nfold, deal.rng
        copies = totals if whole else rows
        if deal.nfold > copies.sum():
            raise OptionError(
                f"nfold must be in 2..{copies.sum():.0f}, the number of rows; got {deal.nfold}.", argument="nfold"
            )
        self.copies_left = [fold_sizes(float(n), deal.nfold) for n in copies]
        self.edges = [np.concatenate(([0.0], np.cumsum(sizes_of_group))) for sizes_of_group in self.copies_left]
        self.n_dealt = np.zeros(len(rows))
        self.waiting: list[list[Sample]] = [[] for _ in rows]
        self.fold_of_row: list[np.ndarray] | None = None
        if self.rng is not None and (totals == rows).all() and rows.sum() <= MAX_SINGLE_COPIES:
            self.fold_of_row = [np.empty(int(n), dtype=np.int16) for n in rows]
            for sizes_of_group, n, sizes in zip(self.fold_of_row, rows, self.copies_left, strict=True):
                ones = np.ones(int(n), dtype=np.int64)
                sizes_of_group[:] = dealt_copies(ones, sizes.astype(np.int64), self.rng).argmax(axis=0)

    def put(self, y: int, rows: Sample) -> Iterator[tuple[int, Sample]]:
        """Yield a fold and its rows, of rows of group `y` that have come by; some may wait."""
        if y < 0:
            yield -1, rows  # trained on, and validated in none
            return
        if self.rng is None or self.fold_of_row is not None:
            yield from self._parts(rows, self._fold_shares(y, rows))
            return
        self.waiting[y].append(rows)
        while sum(waiting_rows.n for waiting_rows in self.waiting[y]) >= CHUNK_ROWS:
            yield from self._chunk(y, CHUNK_ROWS)

    def remaining(self) -> Iterator[tuple[int, int, Sample]]:
        """Yield group, fold and rows of all that wait."""
        for y, waiting_rows in enumerate(self.waiting):
            n = sum(rows.n for rows in waiting_rows)
            for f, rows in self._chunk(y, n) if n else ():
                yield y, f, rows

    def for_parts(self, rows: Sequence[np.ndarray], totals: Sequence[np.ndarray]) -> list[Dealer]:
        """Return a dealer for each consecutive part of the rows, of which rows and weight (K,) of each group are known.

        Shuffled folds take a share of each part that is drawn too, where the rows are not dealt all at once.
        """
        out, past = [], np.zeros(len(self.copies_left))
        for n, total in zip(rows, totals, strict=True):
            dealer, copies = copy(self), total if self.whole else n
            dealer.waiting, dealer.n_dealt = [[] for _ in n], past.copy()
            if self.fold_of_row is not None:
                spans = zip(self.fold_of_row, past.astype(int), n.astype(int), strict=True)
                dealer.fold_of_row, dealer.n_dealt = (
                    [spans_of_group[first : first + size] for spans_of_group, first, size in spans],
                    np.zeros(len(n)),
                )
            elif self.rng is not None:
                pairs = zip(self.copies_left, copies.astype(int), strict=True)
                dealer.copies_left = [
                    drawn_copies(remaining_copies.astype(np.int64), int(size), self.rng)
                    for remaining_copies, size in pairs
                ]
                pairs_left = zip(self.copies_left, dealer.copies_left, strict=True)
                self.copies_left = [copies_left - used for copies_left, used in pairs_left]
                dealer.rng = self.rng.spawn(1)[0]
            out.append(dealer)
            past += copies
        return out

    def _fold_shares(self, y: int, rows: Sample) -> np.ndarray:
        """Return how much of each of the next rows of a group every fold holds, shape (F, n)."""
        if self.fold_of_row is not None:
            first = int(self.n_dealt[y])
            self.n_dealt[y] += rows.n
            return (self.fold_of_row[y][first : first + rows.n] == np.arange(self.nfold)[:, None]).astype(float)
        weights = rows.weights if self.whole else np.ones(rows.n)
        end = self.n_dealt[y] + np.cumsum(weights)
        self.n_dealt[y] = end[-1]
        edge = self.edges[y]
        held: np.ndarray = np.minimum(end, edge[1:, None]) - np.maximum(end - weights, edge[:-1, None])
        return np.maximum(held, 0.0)

    def _chunk(self, y: int, n: int) -> Iterator[tuple[int, Sample]]:
        assert self.rng is not None  # noqa: S101  # only random folds wait
        rows = concatenate(self.waiting[y])
        self.waiting[y] = [rows.rows(slice(n, None))]
        rows = rows.rows(slice(n))
        copies = (rows.weights if self.whole else np.ones(rows.n)).astype(np.int64)
        sizes = drawn_copies(self.copies_left[y].astype(np.int64), int(copies.sum()), self.rng)
        self.copies_left[y] = self.copies_left[y] - sizes
        yield from self._parts(rows, dealt_copies(copies, sizes, self.rng))

    def _parts(self, rows: Sample, held: np.ndarray) -> Iterator[tuple[int, Sample]]:
        for f, held_rows in enumerate(held):
            at = np.flatnonzero(held_rows > 0)
            if len(at):
                fold_rows = rows.rows(at)
                yield (
                    f,
                    replace(fold_rows, weights=np.asarray(held_rows[at], float) if self.whole else fold_rows.weights),
                )


class Sink(Protocol):
    """A store of encoded rows while it is filled: `TableSink`, `FileSink` or a cluster's."""

    def finish(self, nfold: int) -> tuple[Rows, Folds | StoredFolds | None]:
        """Return all rows, and their folds if `nfold` is not 0."""

    def close(self) -> None:
        """Remove what is stored."""


class FileSink:
    """Rows on their way to a `CodeFile`."""

    def __init__(self, n: int, n_levels: np.ndarray, weighted: bool, masked: bool, buckets: int):
        self.file = CodeFile(len(n_levels), code_dtype(n_levels), weighted, masked, buckets)
        self.file.check_room(n)

    def put(self, y: int, f: int, rows: Sample) -> None:
        """Take rows of a group and a fold."""
        self.file.append((y, f), rows)

    def finish(self, nfold: int) -> tuple[StoredSample, StoredFolds | None]:
        """Return all rows, and their folds."""
        return self.file.finish(), StoredFolds(nfold) if nfold else None

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


@dataclass
class TableSink:
    """Rows on their way to a table of how often each state occurs in each group and fold: few states, many rows."""

    n_levels: np.ndarray
    masked: bool
    K: int
    nfold: int
    counts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.shape = tuple(int(L) + self.masked for L in self.n_levels)
        # the last group has the rows of no known one, the last fold those that none holds
        self.counts = np.zeros((self.K + 1, self.nfold + 1, math.prod(self.shape)))

    def put(self, y: int, f: int, rows: Sample) -> None:
        """Take rows of a group and a fold."""
        codes = rows.codes.astype(np.intp)
        if rows.missing is not None:
            codes = np.where(rows.missing, self.n_levels, codes)
        key = np.ravel_multi_index(tuple(codes.T), self.shape) if self.shape else np.zeros(rows.n, dtype=np.intp)
        state_weights = np.bincount(key, rows.weights)
        self.counts[y, f, : len(state_weights)] += state_weights

    def finish(self, nfold: int) -> tuple[Sample, Folds | None]:
        """Return one row for each state and group, and its folds as weights."""
        total = self.counts.sum(axis=1)
        y, state = np.nonzero(total)
        codes = np.empty((len(state), len(self.shape)), dtype=code_dtype(self.n_levels))
        missing = np.zeros(codes.shape, dtype=bool)
        for i, state_codes in enumerate(np.unravel_index(state, self.shape) if self.shape else ()):
            missing[:, i] = state_codes == self.n_levels[i]
            codes[:, i] = np.where(missing[:, i], 0, state_codes)
        group = np.where(y == self.K, -1, y)
        sample = Sample(codes, total[y, state], group, missing if missing.any() else None)
        if not nfold:
            return sample, None
        held = np.ascontiguousarray(self.counts[y, :nfold, state].T)
        return sample, Folds(sample.weights - held, held)

    def close(self) -> None:
        """Do nothing: there is no file."""


def make_sink(
    n: int,
    n_levels: np.ndarray,
    K: int,
    nfold: int,
    weighted: bool,
    masked: bool,
    make_store: Callable[..., Sink] = FileSink,
) -> Sink:
    """Return where `n` rows go: to a `TableSink` if their states are few, else to what `make_store` returns."""
    states = math.prod(int(L) + masked for L in n_levels)
    if states * (K + 1) * (nfold + 1) <= MAX_TABLE_CELLS:
        return TableSink(np.asarray(n_levels), masked, K, nfold)
    return make_store(n, n_levels, weighted, masked, K * max(1, nfold))


@dataclass(frozen=True)
class StoredFolds:
    """The folds of a `StoredSample`, which has the rows of each apart."""

    nfold: int

    def __len__(self) -> int:
        return self.nfold

    def one(self, f: int) -> Fold[Any]:
        """Return fold `f`."""
        return StoredFold(f, self.nfold)


@dataclass(frozen=True)
class StoredFold(Fold[StoredSample]):
    """One fold of a `StoredSample`: it is trained on all other rows, and scored on up to 2**20 / nfold of its own."""

    f: int
    nfold: int

    def training(self, sample: StoredSample) -> Rows:
        """Return the rows that are trained on."""
        return sample.without(self.f)

    def validation(self, sample: StoredSample) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return a random sample of the rows that are held, group by group; their weights; and no positions: -1."""
        held = sample.fold(self.f).draw(MAX_VALIDATED_ROWS // self.nfold, np.random.default_rng(self.f))
        return held, held.weights, np.full(held.n, -1)

    def group_totals(self, sample: StoredSample, K: int) -> np.ndarray:
        """Return the weight (K,) of each group among the rows that are trained on."""
        return self.training(sample).group_totals(K)

    def held_counts(self, sample: StoredSample, n_levels: Sequence[int], K: int) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels among the rows that are held, missing values as one more level."""
        return level_counts(sample.fold(self.f), n_levels, K, gaps=not sample.complete)


AnyFolds = Folds | StoredFolds
