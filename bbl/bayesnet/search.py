"""Greedy search over network structures by cross-validated accuracy.

There are m features, K classes and k folds; TIE is the relative difference below which sums are
considered equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bbl._ext.network import families as kernel
from bbl.bayesnet.dag import Dag, Family, naive
from bbl.bayesnet.families import Families, dirichlet
from bbl.bayesnet.moves import MOVES, Moves
from bbl.bayesnet.predict import add_features, log_table
from bbl.rows.sample import Sample, code_dtype
from bbl.stats.metrics import TIE

__all__ = ["Validation", "climb"]

# smaller differences in accuracy count as ties: the square root of the machine precision
EQUAL = 1.5e-8
MAX_CACHED_BYTES = 2**28  # maximum size of the cached contributions

# number of families with contributions to the log joint that are computed and cached at once
Unit = tuple[Family, ...]


class Validation:
    """Cross-validated accuracy of structures; each family is fitted only once, for all folds
    together.

    There are N held-out rows in all folds; the fold is an additional variable of each table. The
    log joint probability of a row is a sum over units. A unit is a family or, if values are
    missing, a connected component of the features.

    `fold_weights` (k, n) contains the row weights in the validation part of each fold. Rows with an
    unknown class (``y < 0``) are not used for training or validation. `smooth` is the prior count
    of each cell. `n_levels` (m,) contains the number of levels of each feature; the attribute of
    this name is a list with the number of folds k as an additional last entry.

    Attributes
    ----------
    sample : Sample
        The N held-out rows; the last column of their codes, after the m features, is the fold.
    fold : ndarray of int, shape (N,)
        The fold that validates each row.
    context : (int, int)
        The column of the fold and the number of folds, for `Families`.
    fold_totals : ndarray, shape (k,)
        Total weight of each fold.
    log_prior : ndarray, shape (N, K)
        Log class probabilities in the training rows of each row's fold.
    cache : dict of Unit to ndarray, shape (N, K)
        Contributions of the units computed so far, which use `cached_bytes` bytes in total.
    """

    def __init__(
        self,
        sample: Sample,
        n_levels: Sequence[int] | np.ndarray,
        K: int,
        fold_weights: np.ndarray,
        smooth: float,
    ):
        fold_weights = np.where(sample.response >= 0, fold_weights, 0.0)
        fold_weights = fold_weights[fold_weights.any(axis=1)]  # drop folds without held-out rows
        # shape (N,) each: a row of the sample occurs once for each fold that validates it
        fold, row = np.nonzero(fold_weights)
        m = sample.codes.shape[1]
        k = len(fold_weights)
        self.K = K
        self.smooth = smooth
        self.fold = np.ascontiguousarray(fold)
        self.n_levels = [*map(int, n_levels), k]
        self.context = (m, k)
        # the last code is the fold, with k levels
        codes = np.empty((len(row), m + 1), dtype=code_dtype(self.n_levels))
        codes[:, :m], codes[:, m] = sample.codes[row], fold
        missing = None
        if sample.missing is not None:
            missing = np.zeros(codes.shape, dtype=bool)
            missing[:, :m] = sample.missing[row]
        # codes, weights, response, missing
        self.sample = Sample(codes, fold_weights[fold, row], sample.response[row], missing)
        self.fold_totals = np.bincount(fold, self.sample.weights, k)
        fold_counts = np.zeros((k, K))
        np.add.at(fold_counts, (fold, self.sample.response), self.sample.weights)
        # (K, k): class weights in each fold's training rows, in the form of the table of a feature
        # with K levels
        counts = (fold_counts.sum(axis=0) - fold_counts).T
        share = dirichlet(
            counts, np.broadcast_to(counts.sum(axis=0), counts.shape), np.full(K, K), smooth
        )
        self.log_prior = np.ascontiguousarray(log_table(share).T[fold])
        self.cache: dict[Unit, np.ndarray] = {}
        self.cached_bytes = 0

    def units(self, dag: Dag) -> frozenset[Unit]:
        """Return the units whose contributions add up to the log joint probability under a
        structure.
        """
        if self.sample.missing is None:
            return frozenset((family,) for family in dag.families)
        return frozenset(
            tuple(sorted((i, dag.parents[i]) for i in component)) for component in dag.components
        )

    def contribution(self, unit: Unit) -> np.ndarray:
        """Return the contribution of a unit to the log joint probability of the held-out rows,
        shape (N, K).
        """
        log_joint = self.cache.get(unit)
        if log_joint is None:
            log_joint = self._compute_contribution(unit)
            if self.cached_bytes + log_joint.nbytes <= MAX_CACHED_BYTES:
                self.cache[unit] = log_joint
                self.cached_bytes += log_joint.nbytes
        return log_joint

    def _compute_contribution(self, unit: Unit) -> np.ndarray:
        """Return the contribution of a unit to the log joint probability, shape (N, K).

        The tables for each row are estimated from the rows outside its fold.

        The fold is an additional column of the codes, after the features; `context` is its position
        and number of levels.
        """
        n_folds = self.context[1]
        families = Families(unit, self.n_levels, self.K, self.context)
        counts = families.count(self.sample)
        fold_counts = counts.reshape(n_folds, families.cells, self.K)
        training_counts = (fold_counts.sum(axis=0) - fold_counts).reshape(counts.shape)
        cell_widths = np.tile(families.cell_widths, n_folds)
        theta = dirichlet(
            training_counts, families.sum_over_levels(training_counts), cell_widths, self.smooth
        )
        out = np.zeros((self.sample.n, self.K))
        return add_features(
            families, theta, log_table(theta), self.sample.codes, self.sample.missing, out
        )

    def scores(
        self, candidates: Sequence[Dag], base: Dag, progress: Callable | None = None
    ) -> np.ndarray:
        """Return the mean accuracy over folds of each candidate; only units that are not in `base`
        are fitted.
        """
        base_units = self.units(base)
        # group candidates by the units that they have in addition to `base`
        unchanged_sums: dict[frozenset[Unit], np.ndarray] = {}
        out = np.empty(len(candidates))
        for position, dag in enumerate(candidates):
            units = self.units(dag)
            removed_units = base_units - units
            if removed_units not in unchanged_sums:
                unchanged_sums[removed_units] = self._add_contributions(
                    self.log_prior, base_units & units
                )
            new_units = sorted(units - base_units)
            unchanged = unchanged_sums[removed_units]
            changed = (
                self.contribution(new_units[0])
                if len(new_units) == 1
                else self._add_contributions(np.zeros_like(self.log_prior), new_units)
            )
            # (k,): the kernel adds the weight of correct predictions
            weight_right = np.zeros(len(self.fold_totals))
            kernel.add_correct(
                unchanged,
                changed,
                self.sample.response,
                self.sample.weights,
                self.fold,
                TIE,
                weight_right,
            )
            out[position] = (weight_right / self.fold_totals).mean()
            if progress is not None:
                progress()
        return out

    def _add_contributions(
        self, initial: np.ndarray, units: Sequence[Unit] | frozenset[Unit]
    ) -> np.ndarray:
        """Return the sum of `initial` (N, K) and the contributions of the units."""
        total = initial.copy()
        # sort, because a set has no fixed order and rounding errors depend on the order of
        # summation
        for unit in sorted(units):
            total += self.contribution(unit)
        return total


def climb(
    learner: str,
    sample: Sample,
    n_levels: Sequence[int] | np.ndarray,
    K: int,
    fold_weights: np.ndarray,
    *,
    epsilon: float,
    smooth: float,
    rng: np.random.Generator,
    kdbk: int = 2,
    progress: Callable | None = None,
) -> tuple[Dag, list[float]]:
    """Search greedily; return the final structure and the accuracies of the successive structures.

    `learner` is a key of `MOVES`: ``"tan_hc"``, ``"tan_hcsp"``, ``"fssj"``, ``"bsej"`` or
    ``"kdb"``. `fold_weights` (k, n) contains the row weights in the validation part of each of k
    folds. A step must increase the accuracy by at least `epsilon`; with 0, an equal accuracy is
    sufficient. `smooth` is the prior count of each cell, and `kdbk` the maximum number of feature
    parents for ``"kdb"``. `rng` is used to resolve ties; `progress` is called for each structure
    that is scored.
    """
    m = len(n_levels)
    validation = Validation(sample, n_levels, K, fold_weights, smooth)
    # [0]: the position of the best candidate
    moves = Moves(
        m,
        kdbk,
        lambda candidates, base: _choose_best(validation.scores(candidates, base, progress), rng)[
            0
        ],
    )
    # "fssj" adds features one after another
    dag = naive(()) if learner == "fssj" else naive(range(m))
    score_log: list[float] = []
    candidates = [dag]  # the initial structure is scored first
    # an accuracy of 1 cannot increase
    while candidates and not (score_log and abs(score_log[-1] - 1.0) < EQUAL):
        best, score = _choose_best(validation.scores(candidates, dag, progress), rng)
        # the gain is smaller than `epsilon` by more than rounding errors; EQUAL is larger and
        # defines ties among candidates
        if score_log and score - epsilon < score_log[-1] - TIE:
            break
        dag = candidates[best]
        score_log.append(score)
        candidates = MOVES[learner](moves, dag)
    return dag, score_log


def _choose_best(scores: np.ndarray, rng: np.random.Generator) -> tuple[int, float]:
    """Return the position of the largest score (a random one in case of ties), and the score."""
    tied = np.flatnonzero(scores > scores.max() - EQUAL)
    position = int(tied[0] if len(tied) == 1 else rng.choice(tied))
    return position, float(scores[position])
