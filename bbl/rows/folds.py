"""Folds as weights: R's consecutive ones, shuffled ones, and those of a scikit-learn splitter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bbl.errors import OptionError
from bbl.rows.sample import Sample

__all__ = ["Folds", "consecutive_folds", "shuffled_folds", "splitter_folds", "stratified_folds"]


@dataclass(frozen=True)
class Folds:
    """Folds as weights: row k is validated ``held[f, k]`` times in fold f and trained on with the rest of its weight.

    A weight is the same as repeating the row, so a row's copies may fall into different folds.
    """

    held: np.ndarray

    def expanded_rows(self, sample: Sample) -> list[np.ndarray]:
        """Return, for each fold, the validated rows of the weight-expanded data, group by group."""
        start = np.concatenate(([0], np.cumsum(sample.weights)))[:-1] + np.cumsum(self.held, axis=0) - self.held
        out = []
        by_group = np.argsort(sample.response, kind="stable")
        for held, first in zip(self.held, start, strict=True):
            copies = held[by_group].astype(np.intp)
            within = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
            out.append(np.repeat(first[by_group].astype(np.intp), copies) + within)
        return out


def _fold_sizes(total: float, nfold: int) -> np.ndarray:
    """Return R's fold sizes: ``max(1, total // nfold)`` each, the last takes the rest."""
    each = max(1, int(total) // nfold)
    edges = np.minimum(np.arange(nfold + 1) * each, total)
    edges[-1] = total
    return np.diff(edges)


def consecutive_folds(sample: Sample, nfold: int) -> Folds:
    """Return R's folds: consecutive blocks within each response group, not shuffled."""
    held = np.zeros((nfold, sample.n))
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        end = np.cumsum(sample.weights[rows])
        edge = np.concatenate(([0.0], np.cumsum(_fold_sizes(end[-1] if len(end) else 0.0, nfold))))
        inside = np.minimum(end, edge[1:, None]) - np.maximum(end - sample.weights[rows], edge[:-1, None])
        held[:, rows] = np.maximum(inside, 0.0)
    return Folds(held)


def shuffled_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return folds of the same sizes, drawn at random within each response group."""
    held = np.zeros((nfold, sample.n))
    for y in range(int(sample.response.max()) + 1):
        rows = np.flatnonzero(sample.response == y)
        # every copy of a row is dealt by itself: a random order of all copies, cut at the fold sizes
        copies = rng.permutation(np.repeat(rows, sample.weights[rows].astype(np.intp)))
        cuts = np.cumsum(_fold_sizes(len(copies), nfold)).astype(np.intp)[:-1]
        for f, part in enumerate(np.split(copies, cuts)):
            np.add.at(held[f], part, 1.0)
    return Folds(held)


def stratified_folds(sample: Sample, nfold: int, rng: np.random.Generator) -> Folds:
    """Return folds of nearly the same size in each group: the numbers of the folds, repeated and shuffled.

    A group that `nfold` does not divide has its remainder in folds that are drawn, too. Rows of an unknown group are in
    none.
    """
    held = np.zeros((nfold, sample.n))
    for y in range(int(sample.response.max(initial=-1)) + 1):
        rows = np.flatnonzero(sample.response == y)
        copies = np.repeat(rows, sample.weights[rows].astype(np.intp))
        fold = rng.permutation(np.resize(rng.permutation(nfold), len(copies)))
        np.add.at(held, (fold, copies), 1.0)
    return Folds(held)


def splitter_folds(sample: Sample, splitter) -> Folds:
    """Return the folds of a scikit-learn splitter (or an iterable of train/validation row positions)."""
    held = []
    try:
        for _, validation in splitter.split(sample.codes, sample.y) if hasattr(splitter, "split") else splitter:
            rows = np.zeros(sample.n)
            rows[np.asarray(validation)] = sample.weights[np.asarray(validation)]
            held.append(rows)
    except (TypeError, ValueError, IndexError) as error:
        raise OptionError(
            f"cv gives no folds of these {sample.n} rows ({error}). Give a scikit-learn splitter, or pairs of row "
            "positions (train, validation).",
            argument="cv",
        ) from error
    if len(held) < 2:
        raise OptionError("cv gives fewer than 2 folds.", argument="cv")
    return Folds(np.array(held))
