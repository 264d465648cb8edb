"""Folds as weights: R's consecutive ones, shuffled ones, and those of a scikit-learn splitter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.rows.counts import level_counts
from bbl.rows.sample import Rows, Sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "MAX_SINGLE_COPIES",
    "Fold",
    "Folds",
    "WeightedFold",
    "consecutive_folds",
    "dealt_copies",
    "drawn_copies",
    "fold_sizes",
    "shuffled_folds",
    "splitter_folds",
    "stratified_folds",
]

MAX_SINGLE_COPIES = 2**22  # up to so many, each copy of a row is dealt by itself; more are counted
MAX_SINGLE_DRAWS = 1000  # draws that are made one by one


class Splitter(Protocol):
    """A scikit-learn splitter."""

    def split(self, X: object, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions of training and validation rows."""


RowsT = TypeVar("RowsT", bound=Rows, contravariant=True)


class Fold(Protocol[RowsT]):
    """One fold of a sample: its training rows and its validation rows."""

    def training(self, sample: RowsT) -> Any:
        """Return the rows that are trained on."""

    def validation(self, sample: RowsT) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return rows that are validated, group by group, their weights, and their positions in the sample."""

    def group_totals(self, sample: RowsT, K: int) -> np.ndarray:
        """Return the weight (K,) of each group among the rows that are trained on."""

    def held_counts(self, sample: RowsT, n_levels: Sequence[int], K: int) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels among the rows that are held, missing values as one more level.

        Rows whose weights are no numbers of copies count once.
        """


@dataclass(frozen=True)
class WeightedFold(Fold[Sample]):
    """One fold as weights of all rows, shape (n,) each."""

    train: np.ndarray
    held: np.ndarray

    def training(self, sample: Sample) -> Sample:
        """Return the rows that are trained on."""
        return sample.weighted(self.train)

    def validation(self, sample: Sample) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return the rows that are validated, group by group, their weights, and their positions in the sample."""
        rows = np.flatnonzero(self.held > 0)
        rows = rows[np.argsort(sample.response[rows], kind="stable")]
        return sample.rows(rows), self.held[rows], rows

    def group_totals(self, sample: Sample, K: int) -> np.ndarray:
        """Return the weight (K,) of each group among the rows that are trained on."""
        return np.bincount(sample.response, self.train, K)

    def held_counts(self, sample: Sample, n_levels: Sequence[int], K: int) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels among the rows that are held, missing values as one more level."""
        at = np.flatnonzero(self.held)
        weights = self.held[at] if sample.whole else np.ones(len(at))
        return level_counts(replace(sample.rows(at), weights=weights), n_levels, K, gaps=not sample.complete)


@dataclass(frozen=True)
class Folds:
    """Folds as weights: row k is trained on ``train[f, k]`` times in fold f, and validated ``held[f, k]`` times.

    A weight is the same as repeating the row, so a row's copies may fall into different folds. Rows whose
    weights are no whole numbers have no copies, and stay together.

    Attributes
    ----------
    train, held : ndarray, shape (F, n)
    """

    train: np.ndarray
    held: np.ndarray

    def __len__(self) -> int:
        return len(self.held)

    def one(self, f: int) -> Fold[Any]:
        """Return fold `f`."""
        return WeightedFold(self.train[f], self.held[f])


def _rest(sample: Sample, held: np.ndarray) -> Folds:
    """Return the folds that train on all that they do not hold."""
    return Folds(sample.weights - held, held)


def _nothing_held(sample: Sample, nfold: int) -> np.ndarray:
    check_memory(16.0 * nfold * sample.n, f"{nfold} folds of {sample.n} rows", "Give fewer folds (nfold).")
    return np.zeros((nfold, sample.n))


def fold_sizes(total: float, nfold: int) -> np.ndarray:
    """Return R's fold sizes: ``max(1, total // nfold)`` each, the last takes the rest."""
    each = max(1, int(total) // nfold)
    edges = np.minimum(np.arange(nfold + 1) * each, total)
    edges[-1] = total
    return np.diff(edges)


def _of_rows(deal: Callable) -> Callable:
    """Let what deals copies of rows deal the rows themselves where weights are no numbers of copies."""

    @wraps(deal)
    def dealt(sample: Sample, *args: Any) -> Folds:
        if sample.whole:
            return deal(sample, *args)
        folds = deal(replace(sample, weights=np.ones(sample.n)), *args)
        return Folds(folds.train * sample.weights, folds.held * sample.weights)

    return dealt


@_of_rows
def consecutive_folds(sample: Sample, nfold: int) -> Folds:
    """Return R's folds: consecutive blocks within each response group, not shuffled."""
    held = _nothing_held(sample, nfold)
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        end = np.cumsum(sample.weights[rows])
        edge = np.concatenate(([0.0], np.cumsum(fold_sizes(end[-1] if len(end) else 0.0, nfold))))
        inside = np.minimum(end, edge[1:, None]) - np.maximum(end - sample.weights[rows], edge[:-1, None])
        held[:, rows] = np.maximum(inside, 0.0)
    return _rest(sample, held)


@_of_rows
def shuffled_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return folds of the same sizes, drawn at random within each response group."""
    held = _nothing_held(sample, nfold)
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        weights = sample.weights[rows]
        held[:, rows] = dealt_copies(weights.astype(np.int64), fold_sizes(weights.sum(), nfold).astype(np.int64), rng)
    return _rest(sample, held)


def stratified_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return folds of the same size in each group, to within one, drawn at random.

    Which folds are larger by one is drawn, too. Rows of an unknown group are validated in none.
    """
    held = _nothing_held(sample, nfold)
    for y in range(int(sample.response.max(initial=-1)) + 1):
        rows = np.flatnonzero(sample.response == y)
        weights = sample.weights[rows].astype(np.int64)
        each, remainder = divmod(int(weights.sum()), nfold)
        held[:, rows] = dealt_copies(weights, each + (rng.permutation(nfold) < remainder).astype(np.int64), rng)
    return _rest(sample, held)


def dealt_copies(copies: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Deal all copies (n,) of rows at random to folds of `sizes` (F,); return how many of each row a fold gets (F, n).

    While they are few, or no more than the rows, a random order of all copies is cut at the sizes: weights are then
    dealt as repeated rows are. Beyond that no copy is ever looked at by itself, and memory goes by rows.
    """
    if copies.sum() <= max(MAX_SINGLE_COPIES, len(copies)):
        order = rng.permutation(np.repeat(np.arange(len(copies)), copies))
        parts = np.split(order, np.cumsum(sizes)[:-1])
        return np.array([np.bincount(fold_rows, minlength=len(copies)) for fold_rows in parts])
    out = np.empty((len(sizes), len(copies)), dtype=np.int64)
    for f, size in enumerate(sizes):
        out[f] = drawn_copies(copies, int(size), rng)
        copies = copies - out[f]
    return out


def drawn_copies(copies: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return how many of each row's copies (n,) are among `size` of all that are drawn without replacement.

    Exact, for any total: every copy is taken by itself with probability size / total, which makes a random set that is
    a little too large or too small; as many as are too many are drawn from it and given back, or the lacking ones from
    the rest. (numpy's multivariate hypergeometric distribution ends at a total of 1e9.)
    """
    total = int(copies.sum())
    if 2 * size > total:
        return copies - drawn_copies(copies, total - size, rng)
    if size <= MAX_SINGLE_DRAWS:
        at = rng.choice(total, size, replace=False, shuffle=False)
        return np.bincount(np.searchsorted(np.cumsum(copies), at, side="right"), minlength=len(copies))
    drawn = rng.binomial(copies, size / total)
    lacking = size - int(drawn.sum())
    if lacking < 0:
        return drawn - drawn_copies(drawn, -lacking, rng)
    return drawn + drawn_copies(copies - drawn, lacking, rng)


def splitter_folds(
    cv: Splitter | Iterable[tuple[ArrayLike, ArrayLike]], X: object, y: np.ndarray, weights: np.ndarray
) -> Folds:
    """Return the folds of a scikit-learn splitter, or of pairs of row positions.

    Parameters
    ----------
    cv : splitter or iterable of (train, validation)
        Positions, or masks, of rows; one that occurs twice counts twice. Rows in neither are left out of that fold.
    X, y : table and array of n rows
        What the splitter is called with.
    weights : ndarray, shape (n,)
        Zero for rows that take no part.

    Raises
    ------
    OptionError
        If they are no such pairs, fewer than two, validate no rows at all, or leave one fold none to train on.
    """
    rows = np.arange(len(weights))
    counts: tuple[list, list] = ([], [])
    try:
        for pair in cv.split(X, y) if hasattr(cv, "split") else cv:
            for fold_counts, positions in zip(counts, pair, strict=True):
                at = np.asarray(positions)
                at = rows[at if at.size else at.astype(np.intp)]
                fold_counts.append(np.bincount(at.ravel(), minlength=len(rows)) * weights)
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"cv gives no folds of these {len(rows)} rows ({error}). Give a scikit-learn splitter, or pairs of row "
            "positions (train, validation); for a splitter of groups list(splitter.split(X, y, groups)), for a number "
            "of folds nfold=.",
            argument="cv",
        ) from error
    train, held = map(np.array, counts)
    if len(held) < 2:
        raise OptionError("cv gives fewer than 2 folds.", argument="cv")
    idle = np.flatnonzero(~train.any(axis=1))
    if len(idle):
        raise OptionError(f"Fold {idle[0] + 1} of cv leaves no rows to train on that the fit uses.", argument="cv")
    if not held.any():
        raise OptionError("cv validates no row that the fit uses, so there is nothing to score.", argument="cv")
    return Folds(train, held)
