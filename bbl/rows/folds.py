"""Cross-validation folds as row weights: consecutive, shuffled, stratified, or from a splitter.

A row with integer weight w counts as w *copies*, which may be in different folds. F is the number
of folds, and K is the number of response groups.
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
    "systematic_folds",
]

# at most this many copies are permuted individually (8 bytes each); for more copies, counts are
# drawn
MAX_SINGLE_COPIES = 2**22
# at most this many copies are drawn individually; for more copies, the count for each row is drawn
MAX_SINGLE_DRAWS = 1000


class Splitter(Protocol):
    """A scikit-learn splitter."""

    def split(self, X: object, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield positions of training and validation rows."""


RowsT = TypeVar("RowsT", bound=Rows, contravariant=True)


class Fold(ABC, Generic[RowsT]):
    """One fold of a sample, with its training rows and validation rows."""

    @abstractmethod
    def training(self, sample: RowsT) -> Any:
        """Return the training rows."""

    @abstractmethod
    def validation(self, sample: RowsT) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return the validation rows by group, their weights (n,) and positions (n,) in the
        sample.
        """

    @abstractmethod
    def group_totals(self, sample: RowsT, K: int) -> np.ndarray:
        """Return the total weight of the training rows of each group, shape (K,)."""

    @abstractmethod
    def validation_counts(self, sample: RowsT, n_levels: Sequence[int], K: int) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels in the validation rows; missing values are an
        additional level.

        If no values are missing in the sample, the additional level is omitted. Each row is counted
        with its weight if all weights in `sample` are integers, and otherwise once.
        """


@dataclass(frozen=True)
class WeightedFold(Fold[Sample]):
    """One fold, represented by the weights of the rows in training and in validation."""

    train: np.ndarray  # (n,)
    validation_weights: np.ndarray  # (n,)

    def training(self, sample: Sample) -> Sample:
        """Return the training rows."""
        return sample.weighted(self.train)

    def validation(self, sample: Sample) -> tuple[Sample, np.ndarray, np.ndarray]:
        """Return the validation rows by group, their weights (n,) and positions (n,) in the
        sample.
        """
        positions = np.flatnonzero(self.validation_weights > 0)
        # order by group
        positions = positions[np.argsort(sample.response[positions], kind="stable")]
        return sample.rows(positions), self.validation_weights[positions], positions

    def group_totals(self, sample: Sample, K: int) -> np.ndarray:
        """Return the total weight of the training rows of each group, shape (K,)."""
        return np.bincount(sample.response, weights=self.train, minlength=K)

    def validation_counts(
        self, sample: Sample, n_levels: Sequence[int], K: int
    ) -> list[np.ndarray]:
        """Return the counts (K, L_i) of levels in the validation rows; missing values are an
        additional level.
        """
        positions = np.flatnonzero(self.validation_weights)  # positions of the validation rows
        validation_rows = replace(
            sample.rows(positions), weights=self.validation_weights[positions]
        )
        # numbers of observations: if weights are not numbers of copies, each row counts once
        return level_counts(
            validation_rows, n_levels, K, gaps=not sample.complete, once=not sample.whole
        )


@dataclass(frozen=True)
class Folds:
    """Folds represented by row weights.

    In fold f, row k has the weight ``train[f, k]`` in training and the weight
    ``validation_weights[f, k]`` in validation. With integer weights, both may be positive, because
    copies of a row may be in different folds.
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
    """Return validation weights of zero, shape (nfold, n); raise an error if folds do not fit into
    memory.
    """
    # two float64 for each row and fold: the weights in training and in validation
    check_memory(
        16.0 * nfold * sample.n, f"{nfold} folds of {sample.n} rows", "Use fewer folds (nfold)."
    )
    return np.zeros((nfold, sample.n))


def fold_sizes(total: float, nfold: int) -> np.ndarray:
    """Return the fold sizes of the R package bbl (nfold,) for `total` copies.

    Each size is ``total // nfold``, and the remainder is added to the last fold.

    If there are fewer copies than folds, the first `total` folds have one copy each.
    """
    size = max(1, int(total) // nfold)
    fold_edges = np.minimum(np.arange(nfold + 1) * size, total)
    fold_edges[-1] = total
    return np.diff(fold_edges)


def _assign_undivided(make_folds: Callable[..., Folds]) -> Callable[..., Folds]:
    """Decorate a function that creates folds, so that it also accepts non-integer weights.

    Rows with such weights are not divided: the entire weight of a row is assigned to one fold.
    """

    @wraps(make_folds)
    def make_weighted_folds(sample: Sample, *args: Any) -> Folds:
        """Return the folds.

        Non-integer weights are replaced by 1 to create the folds; the folds' weights are then
        multiplied by them.
        """
        if sample.whole:
            return make_folds(sample, *args)
        folds = make_folds(replace(sample, weights=np.ones(sample.n)), *args)
        return Folds(folds.train * sample.weights, folds.validation_weights * sample.weights)

    return make_weighted_folds


@_assign_undivided
def consecutive_folds(sample: Sample, nfold: int) -> Folds:
    """Return the folds of the R package bbl: consecutive blocks within each response group, without
    shuffling.
    """
    held = _no_validation_weights(sample, nfold)
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        copies = sample.weights[rows]
        # row k has the copies copy_ends[k] - copies[k] to copy_ends[k] of its group
        copy_ends = np.cumsum(copies)
        # a group without rows has 0 copies
        fold_edges = np.concatenate(
            ([0.0], np.cumsum(fold_sizes(copy_ends[-1] if len(copy_ends) else 0.0, nfold)))
        )
        # (nfold, rows): copies of row k between the edges of fold f; negative if there are none
        overlap = np.minimum(copy_ends, fold_edges[1:, None]) - np.maximum(
            copy_ends - copies, fold_edges[:-1, None]
        )
        held[:, rows] = np.maximum(overlap, 0.0)
    return Folds(sample.weights - held, held)


@_assign_undivided
def systematic_folds(sample: Sample, nfold: int) -> Folds:
    """Return folds that do not depend on the order of the rows.

    Within each group, rows are sorted by their codes, and successive copies are assigned to folds
    0, 1, ..., nfold - 1, 0, 1, ...
    """
    held = _no_validation_weights(sample, nfold)
    order = np.lexsort((*sample.codes.T, sample.response))
    fold = np.arange(nfold)[:, None]
    for y in range(int(sample.response.max()) + 1):
        rows = order[sample.response[order] == y]
        ends = np.cumsum(sample.weights[rows])
        starts = ends - sample.weights[rows]
        # copies with a number that is congruent to the number of the fold
        held[:, rows] = np.ceil((ends - fold) / nfold) - np.ceil((starts - fold) / nfold)
    return Folds(sample.weights - held, held)


@_assign_undivided
def shuffled_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return random folds within each response group, with the fold sizes of the R package bbl."""
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
    """Return folds of entire clusters that are balanced within strata.

    Within a stratum, the number of clusters differs by at most one between folds.

    Parameters
    ----------
    sample : Sample
    strata, clusters : ndarray of int, shape (n,)
        Stratum and cluster of each row; each cluster is within one stratum.
    nfold : int
        Number of folds, at most the number of clusters.
    rng : numpy.random.Generator, optional
        Generator for assigning the clusters of each stratum at random; by default, they are
        assigned in order.
    """
    held = _no_validation_weights(sample, nfold)
    _, first_row, cluster_of_row = np.unique(clusters, return_index=True, return_inverse=True)
    # renumber clusters from 0; `first_row` is the position of the first row of each cluster
    cluster_order = np.arange(len(first_row)) if rng is None else rng.permutation(len(first_row))
    # one stratum after another
    assigned_clusters = cluster_order[np.argsort(strata[first_row][cluster_order], kind="stable")]
    # clusters are assigned to one fold after another, so the numbers of clusters in a stratum
    # differ by at most one between folds
    fold_of_cluster = np.empty(len(first_row), dtype=np.intp)
    fold_of_cluster[assigned_clusters] = np.arange(len(first_row)) % nfold
    # ravel: the shape is (n,) in any version of numpy
    held[fold_of_cluster[cluster_of_row.ravel()], np.arange(sample.n)] = sample.weights
    return Folds(sample.weights - held, held)


def stratified_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return random folds that are balanced within response groups.

    Within a group, the number of validation rows differs by at most one between folds. In each
    group, the folds with one additional row are drawn at random. Rows of an unknown group (y = -1)
    are not validated in any fold.
    """
    held = _no_validation_weights(sample, nfold)
    for y in range(int(sample.response.max(initial=-1)) + 1):
        rows = np.flatnonzero(sample.response == y)
        copies = sample.weights[rows].astype(np.int64)
        # `remainder` random folds receive one additional copy
        size, remainder = divmod(int(copies.sum()), nfold)
        held[:, rows] = assign_copies(
            copies, size + (rng.permutation(nfold) < remainder).astype(np.int64), rng
        )
    return Folds(sample.weights - held, held)


def assign_copies(copies: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Assign the `copies` (n,) of n rows at random to folds; return copies (F, n) by fold.

    The folds have `sizes` (F,). If there are at most `MAX_SINGLE_COPIES` copies, or not more copies
    than rows, the copies are permuted and divided according to the sizes. If there are more copies,
    only the count for each row is drawn, for one fold after another. Memory use then depends on the
    number of rows instead of the number of copies.
    """
    if copies.sum() <= max(MAX_SINGLE_COPIES, len(copies)):
        # the row of each copy, shuffled
        order = rng.permutation(np.repeat(np.arange(len(copies)), copies))
        # split the copies at the inner edges of the folds
        rows_by_fold = np.split(order, np.cumsum(sizes)[:-1])
        return np.array(
            [np.bincount(fold_rows, minlength=len(copies)) for fold_rows in rows_by_fold]
        )
    assigned = np.empty((len(sizes), len(copies)), dtype=np.int64)
    for f, size in enumerate(sizes):
        assigned[f] = draw_copies(copies, int(size), rng)
        copies = copies - assigned[f]  # copies left for the other folds
    return assigned


def draw_copies(copies: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw `size` of the `copies` (n,) without replacement; return the number drawn from each row
    (n,).

    This is an exact draw from the multivariate hypergeometric distribution for any total (numpy is
    limited to 1e9). Each copy is first drawn independently with probability size / total; then
    copies are removed or added at random until the size is reached.
    """
    total = int(copies.sum())
    if 2 * size > total:  # draw the copies that are not selected
        return copies - draw_copies(copies, total - size, rng)
    if size <= MAX_SINGLE_DRAWS:
        # copies are numbered from 0 to total - 1
        drawn_copies = rng.choice(total, size, replace=False, shuffle=False)
        # the rows of these copies
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
        Splitter, or pairs of row positions or masks; a position that occurs twice is counted twice.
        A row may be in neither the training nor the validation part of a fold.
    X, y : table and array of n rows
        Arguments passed to ``cv.split``.
    weights : ndarray, shape (n,)
        Row weights; zero for rows that are not used in the fit.

    Raises
    ------
    OptionError
        If `cv` does not yield such pairs or yields fewer than two, if there are no validation rows,
        or if a fold has no training rows.
    """
    all_rows = np.arange(len(weights))
    # one array (n,) for each fold: training rows, and validation rows
    fold_weights: tuple[list, list] = ([], [])
    try:
        for pair in cv.split(X, y) if hasattr(cv, "split") else cv:
            for weights_by_fold, selection in zip(fold_weights, pair, strict=True):
                selection = np.asarray(selection)
                # an empty list would be converted to an array of floats, which is not a valid index
                positions = all_rows[selection if selection.size else selection.astype(np.intp)]
                weights_by_fold.append(
                    np.bincount(positions.ravel(), minlength=len(all_rows)) * weights
                )
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"cv cannot split these {len(all_rows)} rows into folds ({error}).",
            argument="cv",
            hint=(
                "Pass a scikit-learn splitter, or pairs of row positions (train, validation). "
                "For a group splitter, pass list(splitter.split(X, y, groups)). For a number of "
                "folds, use nfold=."
            ),
        ) from error
    # weights (F, n) of training rows and of validation rows
    train, held = map(np.array, fold_weights)
    if len(held) < 2:
        raise OptionError("cv must produce at least 2 folds.", argument="cv")
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
