"""Search: greedy hill climbs over structures by cross-validated accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bbl._ext.network import families as kernel
from bbl.bayesnet.dag import Dag, Family, naive
from bbl.bayesnet.families import Families, dirichlet
from bbl.bayesnet.moves import MOVES, Moves
from bbl.bayesnet.predict import add_features, log_table
from bbl.rows.sample import Sample, code_dtype
from bbl.stats.ties import TIE

__all__ = ["Validation", "climb"]

EQUAL = 1.5e-8  # scores closer than this are the same
MAX_CACHED_BYTES = 2**28  # contributions of units are cached up to this size

Unit = tuple[Family, ...]


class Validation:
    """Cross-validated accuracy of structures, every family being fitted once for all folds.

    The fold is one more variable of every table. The log joint of a validated row is a sum over units: families, or,
    where values are missing, the components of the features, in which missing ones are summed out.

    Parameters
    ----------
    sample : Sample
        Rows of unknown class (``y < 0``) are neither trained on nor validated.
    n_levels : sequence of int, length m
    K : int
    held : ndarray, shape (k, n)
        Weight of each row that each fold validates.
    smooth : float
    """

    def __init__(self, sample: Sample, n_levels: Sequence[int] | np.ndarray, K: int, held: np.ndarray, smooth: float):
        held = np.where(sample.response >= 0, held, 0.0)
        held = held[held.any(axis=1)]
        fold, row = np.nonzero(held)
        m, k = sample.codes.shape[1], len(held)
        self.K, self.smooth, self.fold = K, smooth, np.ascontiguousarray(fold)
        self.n_levels, self.context = [*map(int, n_levels), k], (m, k)
        codes = np.empty((len(row), m + 1), dtype=code_dtype([*n_levels, k, 2]))
        codes[:, :m], codes[:, m] = sample.codes[row], fold
        missing = None
        if sample.missing is not None:
            missing = np.zeros(codes.shape, dtype=bool)
            missing[:, :m] = sample.missing[row]
        self.sample = Sample(codes, held[fold, row], sample.response[row], missing)
        self.total = np.bincount(fold, self.sample.weights, k)
        fold_counts = np.zeros((k, K))
        np.add.at(fold_counts, (fold, self.sample.response), self.sample.weights)
        training_weights = (fold_counts.sum(axis=0) - fold_counts).T
        share = dirichlet(
            training_weights,
            np.broadcast_to(training_weights.sum(axis=0), training_weights.shape),
            np.full(K, K),
            smooth,
        )
        self.class_part = np.ascontiguousarray(log_table(share).T[fold])
        self.parts: dict[Unit, np.ndarray] = {}
        self.bytes = 0

    def units(self, dag: Dag) -> frozenset[Unit]:
        """Return the units whose contributions add up to the log joint of a structure."""
        if self.sample.missing is None:
            return frozenset((family,) for family in dag.families)
        return frozenset(tuple(sorted((i, dag.parents[i]) for i in component)) for component in dag.components)

    def part(self, unit: Unit) -> np.ndarray:
        """Return the contribution (N, K) of a unit to the log joint of the validated rows."""
        contribution = self.parts.get(unit)
        if contribution is None:
            contribution = self._fit(unit)
            if self.bytes + contribution.nbytes <= MAX_CACHED_BYTES:
                self.parts[unit] = contribution
                self.bytes += contribution.nbytes
        return contribution

    def _fit(self, unit: Unit) -> np.ndarray:
        families = Families(unit, self.n_levels, self.K, self.context)
        fold_counts = families.count(self.sample)
        by_fold = fold_counts.reshape(self.context[1], families.cells, self.K)
        training_counts = (by_fold.sum(axis=0) - by_fold).reshape(fold_counts.shape)
        widths = np.tile(families.cell_widths, self.context[1])
        theta = dirichlet(training_counts, families.sums(training_counts), widths, self.smooth)
        out = np.zeros((self.sample.n, self.K))
        return add_features(families, theta, log_table(theta), self.sample.codes, self.sample.missing, out)

    def scores(self, candidates: Sequence[Dag], base: Dag, progress: Callable | None = None) -> np.ndarray:
        """Return the mean over folds of the accuracy of each structure; those near `base` are quick to score."""
        base_units = self.units(base)
        unchanged_sums: dict[frozenset[Unit], np.ndarray] = {}
        out = np.empty(len(candidates))
        for position, dag in enumerate(candidates):
            units = self.units(dag)
            removed = base_units - units
            if removed not in unchanged_sums:
                unchanged_sums[removed] = self._sum(self.class_part, base_units & units)
            new = sorted(units - base_units)
            if len(new) == 1:
                unchanged, changed = unchanged_sums[removed], self.part(new[0])
            else:
                unchanged, changed = unchanged_sums[removed], self._sum(np.zeros_like(self.class_part), new)
            n_right = np.zeros(len(self.total))
            kernel.hits(unchanged, changed, self.sample.response, self.sample.weights, self.fold, TIE, n_right)
            out[position] = (n_right / self.total).mean()
            if progress is not None:
                progress()
        return out

    def _sum(self, start: np.ndarray, units: Sequence[Unit] | frozenset[Unit]) -> np.ndarray:
        total = start.copy()
        for unit in sorted(units):
            total += self.part(unit)
        return total


def climb(
    learner: str,
    sample: Sample,
    n_levels: Sequence[int] | np.ndarray,
    K: int,
    held: np.ndarray,
    *,
    epsilon: float,
    smooth: float,
    rng: np.random.Generator,
    kdbk: int = 2,
    progress: Callable | None = None,
) -> tuple[Dag, list[float]]:
    """Return the structure at which a greedy search stops, and the score of each structure on its way.

    Parameters
    ----------
    learner : {"tan_hc", "tan_hcsp", "fssj", "bsej", "kdb"}
    sample : Sample
    n_levels : sequence of int, length m
    K : int
    held : ndarray, shape (k, n)
        Weight of each row that each fold validates.
    epsilon : float
        Least gain in accuracy for which a step is taken; with 0 an equal score is taken too.
    smooth : float
        Prior count of every table.
    rng : numpy.random.Generator
        For ties.
    kdbk : int
        Most feature parents, for ``"kdb"``.
    progress : callable, optional
        Called for each structure that is scored.

    Returns
    -------
    (Dag, list of float)
    """
    m = len(n_levels)
    validation = Validation(sample, n_levels, K, held, smooth)
    moves = Moves(m, kdbk, lambda candidates, base: _best(validation.scores(candidates, base, progress), rng)[0])
    dag = naive(()) if learner == "fssj" else naive(range(m))
    log: list[float] = []
    candidates = [dag]
    while candidates and not (log and abs(log[-1] - 1.0) < EQUAL):
        position, score = _best(validation.scores(candidates, dag, progress), rng)
        if log and score - epsilon < log[-1] - TIE:
            break
        dag = candidates[position]
        log.append(score)
        candidates = MOVES[learner](moves, dag)
    return dag, log


def _best(scores: np.ndarray, rng: np.random.Generator) -> tuple[int, float]:
    """Return the position of the largest score, drawn at random among equal ones, and the score."""
    tied = np.flatnonzero(scores > scores.max() - EQUAL)
    position = int(tied[0] if len(tied) == 1 else rng.choice(tied))
    return position, float(scores[position])
