"""Folds of cross-validation as weights of rows: consecutive, shuffled, stratified, or of a
splitter.

*Copy*: a row of whole weight w stands for w copies, which may fall into different folds. *Held*
rows are those that a fold validates. F is the number of folds, K that of response groups. A
`Sample` has the codes (n, m), weights (n,) and groups `response` (n,) of n rows, zeros if there is
one group; `whole` says that all weights are whole numbers, `complete` that no value is missing. R's
folds are the consecutive ones of the R package bbl.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from bbl.errors import OptionError
from bbl.memory import check_memory
from bbl.rows.sample import Rows, Sample, level_counts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "MAX_SINGLE_COPIES",
    "Fold",
    "Folds",
    "WeightedFold",
    "cluster_folds",
    "consecutive_folds",
    "assign_copies",
    "draw_copies",
    "fold_sizes",
    "shuffled_folds",
    "splitter_folds",
    "stratified_folds",
]

# up to so many copies are permuted one by one (8 bytes each); of more, counts are drawn
MAX_SINGLE_COPIES = 2**22
# up to so many copies are drawn one by one; of more, the count of each row is drawn
MAX_SINGLE_DRAWS = 1000


class Splitter(Protocol):
    """A scikit-learn splitter."""

    def split(self, X: object, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions of training and validation rows."""


RowsT = TypeVar("RowsT", bound=Rows, contravariant=True)


class Fold(ABC, Generic[RowsT]):
    """One fold of a sample: its training rows and its validation rows."""

    @abstractmethod
    def training(self, sample: RowsT) -> Any:
        """Return the training rows."""

    @abstractmethod
    def validation(self, sample: RowsT) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return the validation rows, group by group, their weights (n,), and their positions in
        the sample (n,).
        """

    @abstractmethod
    def group_totals(self, sample: RowsT, K: int) -> np.ndarray:
        """Return the weight (K,) of each group among the training rows."""

    @abstractmethod
    def validation_counts(self, sample: RowsT, n_levels: Sequence[int], K: int) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels among the validation rows, missing values as one
        more level.

        They are numbers of observations: a row counts by its weight if all weights of `sample` are
        whole numbers, else once. A sample without missing values has L_i levels, another one L_i +
        1.
        """


@dataclass(frozen=True)
class WeightedFold(Fold[Sample]):
    """One fold as two weights of each row: in training, and in validation
    (`validation_weights`)."""

    train: np.ndarray  # (n,)
    validation_weights: np.ndarray  # (n,)

    def training(self, sample: Sample) -> Sample:
        """Return the training rows."""
        return sample.weighted(self.train)

    def validation(self, sample: Sample) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return the validation rows, group by group, their weights (n,), and their positions in
        the sample (n,).
        """
        positions = np.flatnonzero(self.validation_weights > 0)
        # group by group
        positions = positions[np.argsort(sample.response[positions], kind="stable")]
        return sample.rows(positions), self.validation_weights[positions], positions

    def group_totals(self, sample: Sample, K: int) -> np.ndarray:
        """Return the weight (K,) of each group among the training rows."""
        return np.bincount(sample.response, weights=self.train, minlength=K)

    def validation_counts(
        self, sample: Sample, n_levels: Sequence[int], K: int
    ) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels among the validation rows, missing values as one
        more level.
        """
        positions = np.flatnonzero(self.validation_weights)  # of the validation rows
        validation_rows = replace(
            sample.rows(positions), weights=self.validation_weights[positions]
        )
        # numbers of observations: a row whose weight is no number of copies counts once
        return level_counts(
            validation_rows, n_levels, K, gaps=not sample.complete, once=not sample.whole
        )


@dataclass(frozen=True)
class Folds:
    """Folds as weights: in fold f, row k has weight ``train[f, k]`` in training, and
    ``validation_weights[f, k]`` in validation.

    A row may have both weights in one fold, as its copies may fall into different folds. A row has
    no copies if weights are not whole numbers.
    """

    train: np.ndarray  # (F, n)
    validation_weights: np.ndarray  # (F, n)

    def __len__(self) -> int:
        """Return the number of folds."""
        return len(self.validation_weights)

    def one(self, f: int) -> Fold[Any]:
        """Return fold `f`."""
        return WeightedFold(self.train[f], self.validation_weights[f])


def _no_validation_weights(sample: Sample, nfold: int) -> np.ndarray:
    """Return zeros (nfold, n) for the validation weights of a sample; refuse folds that do not fit
    into memory.
    """
    # two float64 for each row and fold: its weights in training and in validation
    check_memory(
        16.0 * nfold * sample.n, f"{nfold} folds of {sample.n} rows", "Give fewer folds (nfold)."
    )
    return np.zeros((nfold, sample.n))


def fold_sizes(total: float, nfold: int) -> np.ndarray:
    """Return R's fold sizes (nfold,) of `total` copies: ``total // nfold`` each; the last fold has
    the rest, too.

    With fewer copies than folds, the first `total` folds have one copy each, and the others none.
    """
    size = max(1, int(total) // nfold)
    fold_edges = np.minimum(np.arange(nfold + 1) * size, total)
    fold_edges[-1] = total
    return np.diff(fold_edges)


def _assign_undivided(make_folds: Callable[..., Folds]) -> Callable[..., Folds]:
    """Decorate a function that makes folds of a sample, so that it also takes weights that are not
    integers.

    Each row with such weights goes to one fold, with all of its weight.
    """

    @wraps(make_folds)
    def make_weighted_folds(sample: Sample, *args: Any) -> Folds:
        """Return the folds; weights that are not whole are set to 1 for it, and then multiply the
        folds' weights.
        """
        if sample.whole:
            return make_folds(sample, *args)
        folds = make_folds(replace(sample, weights=np.ones(sample.n)), *args)
        return Folds(folds.train * sample.weights, folds.validation_weights * sample.weights)

    return make_weighted_folds


@_assign_undivided
def consecutive_folds(sample: Sample, nfold: int) -> Folds:
    """Return R's folds: consecutive blocks within each response group, not shuffled."""
    held = _no_validation_weights(sample, nfold)
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        copies = sample.weights[rows]
        # row k has the copies copy_ends[k] - copies[k] to copy_ends[k] of its group
        copy_ends = np.cumsum(copies)
        # a group may have no rows: 0 copies
        fold_edges = np.concatenate(
            ([0.0], np.cumsum(fold_sizes(copy_ends[-1] if len(copy_ends) else 0.0, nfold)))
        )
        # (nfold, rows): copies of row k that lie between the edges of fold f; negative if they are
        # disjoint
        overlap = np.minimum(copy_ends, fold_edges[1:, None]) - np.maximum(
            copy_ends - copies, fold_edges[:-1, None]
        )
        held[:, rows] = np.maximum(overlap, 0.0)
    return Folds(sample.weights - held, held)


@_assign_undivided
def shuffled_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return folds of R's sizes, drawn at random within each response group."""
    held = _no_validation_weights(sample, nfold)
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        copies = sample.weights[rows]
        held[:, rows] = assign_copies(
            copies.astype(np.int64), fold_sizes(copies.sum(), nfold).astype(np.int64), rng
        )
    return Folds(sample.weights - held, held)


def cluster_folds(
    sample: Sample,
    strata: np.ndarray,
    clusters: np.ndarray,
    nfold: int,
    rng: np.random.Generator | None = None,
) -> Folds:
    """Return folds of whole clusters: the folds' numbers of clusters of a stratum differ by at most
    one.

    Parameters
    ----------
    sample : Sample
    strata, clusters : ndarray of int, shape (n,)
        Stratum and cluster of each row; a cluster lies in one stratum.
    nfold : int
        At most the number of clusters.
    rng : numpy.random.Generator, optional
        Assigns the clusters of each stratum at random; by default they are assigned in their order.
    """
    held = _no_validation_weights(sample, nfold)
    _, first_row, cluster_of_row = np.unique(clusters, return_index=True, return_inverse=True)
    # clusters are numbered from 0 here; `first_row` is the position of the first row of each
    cluster_order = np.arange(len(first_row)) if rng is None else rng.permutation(len(first_row))
    # stratum by stratum
    assigned_clusters = cluster_order[np.argsort(strata[first_row][cluster_order], kind="stable")]
    # folds take turns, so that their numbers of clusters of a stratum differ by at most one
    fold_of_cluster = np.empty(len(first_row), dtype=np.intp)
    fold_of_cluster[assigned_clusters] = np.arange(len(first_row)) % nfold
    # ravel: (n,) in any numpy
    held[fold_of_cluster[cluster_of_row.ravel()], np.arange(sample.n)] = sample.weights
    return Folds(sample.weights - held, held)


def stratified_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return random folds whose numbers of validation rows of a response group differ by at most
    one.

    The folds that are larger by one are drawn at random, group by group. No fold validates rows of
    an unknown group (y = -1).
    """
    held = _no_validation_weights(sample, nfold)
    for y in range(int(sample.response.max(initial=-1)) + 1):
        rows = np.flatnonzero(sample.response == y)
        copies = sample.weights[rows].astype(np.int64)
        # `remainder` folds, drawn at random, get one copy more
        size, remainder = divmod(int(copies.sum()), nfold)
        held[:, rows] = assign_copies(
            copies, size + (rng.permutation(nfold) < remainder).astype(np.int64), rng
        )
    return Folds(sample.weights - held, held)


def assign_copies(copies: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Assign the `copies` (n,) of n rows at random to folds of `sizes` (F,); return copies by fold
    and row, (F, n).

    Up to `MAX_SINGLE_COPIES` copies, or no more copies than rows, are put into a random order that
    is cut at the sizes. Of more copies only the count of each row is drawn, fold by fold, so that
    memory grows with rows, not copies.
    """
    if copies.sum() <= max(MAX_SINGLE_COPIES, len(copies)):
        # row of each copy, shuffled
        order = rng.permutation(np.repeat(np.arange(len(copies)), copies))
        # split at the inner edges of the folds
        rows_by_fold = np.split(order, np.cumsum(sizes)[:-1])
        return np.array(
            [np.bincount(fold_rows, minlength=len(copies)) for fold_rows in rows_by_fold]
        )
    assigned = np.empty((len(sizes), len(copies)), dtype=np.int64)
    for f, size in enumerate(sizes):
        assigned[f] = draw_copies(copies, int(size), rng)
        copies = copies - assigned[f]  # the copies that are left for the next folds
    return assigned


def draw_copies(copies: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `size` of the `copies` (n,) of n rows without replacement; return the number drawn from
    each row (n,).

    This is a multivariate hypergeometric draw, exact for any total (numpy's ends at 1e9): first
    each copy is taken with probability size / total, independently; then surplus copies are drawn
    and put back, or lacking ones are drawn.
    """
    total = int(copies.sum())
    if 2 * size > total:  # draw the copies that stay
        return copies - draw_copies(copies, total - size, rng)
    if size <= MAX_SINGLE_DRAWS:
        # numbers of copies, from 0 to total - 1
        drawn_copies = rng.choice(total, size, replace=False, shuffle=False)
        # the rows that these copies belong to
        rows = np.searchsorted(np.cumsum(copies), drawn_copies, side="right")
        return np.bincount(rows, minlength=len(copies))
    drawn = rng.binomial(copies, size / total)
    n_lacking = size - int(drawn.sum())
    if n_lacking < 0:
        return drawn - draw_copies(drawn, -n_lacking, rng)
    return drawn + draw_copies(copies - drawn, n_lacking, rng)


def splitter_folds(
    cv: Splitter | Iterable[tuple[ArrayLike, ArrayLike]],
    X: object,
    y: np.ndarray,
    weights: np.ndarray,
) -> Folds:
    """Return the folds of a scikit-learn splitter, or of pairs of row positions.

    Parameters
    ----------
    cv : splitter or iterable of (train, validation)
        Positions, or masks, of rows; a position that occurs twice counts twice. A fold may leave
        rows out of both.
    X, y : table and array of n rows
        Arguments of ``cv.split``.
    weights : ndarray, shape (n,)
        Zero for rows that the fit does not use.

    Raises
    ------
    OptionError
        If `cv` gives no such pairs or fewer than two, no validation rows, or a fold without
        training rows.
    """
    all_rows = np.arange(len(weights))
    # one array (n,) for each fold: of training, and of validation rows
    fold_weights: tuple[list, list] = ([], [])
    try:
        for pair in cv.split(X, y) if hasattr(cv, "split") else cv:
            for weights_by_fold, selection in zip(fold_weights, pair, strict=True):
                selection = np.asarray(selection)
                # an empty list is an array of floats, which cannot be an index
                positions = all_rows[selection if selection.size else selection.astype(np.intp)]
                weights_by_fold.append(
                    np.bincount(positions.ravel(), minlength=len(all_rows)) * weights
                )
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"cv does not give folds of these {len(all_rows)} rows ({error}).",
            argument="cv",
            hint=(
                "Give a scikit-learn splitter, or pairs of row positions (train, "
                "validation); for a group splitter give list(splitter.split(X, y, groups)), for a "
                "number of folds nfold=."
            ),
        ) from error
    # weights (F, n) of training and of validation (held-out) rows
    train, held = map(np.array, fold_weights)
    if len(held) < 2:
        raise OptionError("cv gives fewer than 2 folds.", argument="cv")
    folds_without_training = np.flatnonzero(~train.any(axis=1))
    if len(folds_without_training):
        raise OptionError(
            f"Fold {folds_without_training[0] + 1} of cv has no training rows that the fit uses.",
            argument="cv",
        )
    if not held.any():
        raise OptionError(
            "cv has no validation rows that the fit uses, so there is nothing to score.",
            argument="cv",
        )
    return Folds(train, held)
