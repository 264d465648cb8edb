"""A boosted model: tables of class scores for predictors and pairs, updated in small steps."""

# There are n rows, m predictors with ``n_levels[i]`` levels each, and G groups. Rows have `codes`
# (m, n), the level of each predictor, the observed group `y` (n,), and two sets of weights (n,):
# the model is fitted with weights `train`, and ends where the log-loss with `validation_weights` is
# lowest. `p` (n, G) are the group probabilities. Cuts, gains, steps and the order of a pair's
# levels are defined in `bbl._ext.boosting.boosting`.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bbl._ext.boosting import boosting as kernel
from bbl.stats.metrics import falling_order

__all__ = ["MAX_CELLS", "BoostedModel", "Rows", "boost"]

RIDGE = 1.0  # added to the curvature of every part, in rows
LEAST = 4.0  # minimum number of rows in a part that takes a step
# significance level of the test that the first cut of a table gains more than expected by chance
ENTRY_LEVEL = 0.05
RANDOM_ROUNDS = 7  # number of initial rounds with random cuts, which make tables start smooth
# after the random rounds, tables may only start in every eighth round, as looking for cuts is slow
ENTRY_ROUNDS = 8
PATIENCE = 5  # number of rounds without improvement of the held-out log-loss that ends a model
MAX_ROUNDS = 1000  # number of rounds that ends a model in any case
GAIN = 1e-6  # smallest decrease of the log-loss that counts as improvement
MAX_CELLS = 4096  # maximum number of cells in the table of a pair; larger pairs are left out
MAX_PAIR_PREDICTORS = 45  # pairs are compared among this many predictors with the largest fields


@dataclass(frozen=True)
class Rows:
    """The rows used to fit a model; see the comment at the top of the module."""

    codes: np.ndarray
    n_levels: np.ndarray
    y: np.ndarray
    train: np.ndarray
    validation_weights: np.ndarray


@dataclass(frozen=True)
class BoostedModel:
    """A boosted model. Class scores are the log class proportions plus entries of the tables.

    Attributes
    ----------
    tables : list of (tuple of int, ndarray)
        Each predictor or pair of predictors, with the class scores (G, L_i) or (G, L_i, L_j) of its
        levels.
    rounds : int
        Number of rounds.
    converged : bool
        Whether fitting stopped before `MAX_ROUNDS`.
    """

    tables: list[tuple[tuple[int, ...], np.ndarray]]
    rounds: int
    converged: bool


def boost(
    rows: Rows,
    log_shares: np.ndarray,
    pairs: np.ndarray,
    n_pairs: int,
    rate: float,
    rng: np.random.Generator,
) -> BoostedModel:
    """Fit the fields of all predictors, then `n_pairs` of the `pairs`, and return the model.

    `pairs` has shape (pairs, 2). The model starts at the class proportions, given as `log_shares`
    (G,). Each step is the fraction `rate` of a Newton step, and `rng` is used to draw the random
    cuts.
    """
    G = len(log_shares)
    steps = _Steps(
        rows,
        rate,
        rng.integers(1, 2**63, 4, dtype=np.uint64),
        np.tile(np.exp(log_shares), (len(rows.y), 1)),
    )
    fields = np.zeros((int(rows.n_levels.sum()), G))
    rounds, converged = _repeat(lambda number: steps.of_fields(fields, number), steps, fields)
    # m tables (L_i, G); `split` returns one even without predictors
    by_predictor = np.split(fields, np.cumsum(rows.n_levels)[:-1])[: len(rows.n_levels)]
    tables: list[tuple[tuple[int, ...], np.ndarray]] = [
        ((i,), table.T) for i, table in enumerate(by_predictor) if table.any()
    ]
    ranks = [_rank_levels(table) for table in by_predictor]
    pairs = _pairs_of_large_fields(pairs, by_predictor, rows) if n_pairs else pairs[:0]
    if len(pairs):
        # discard the rounds after the best one
        scores = log_shares + sum(
            table[codes] for table, codes in zip(by_predictor, rows.codes, strict=True)
        )
        steps.p[:] = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
        # levels in the order of their fields, along which pairs are cut
        steps.codes = np.array([rank[codes] for rank, codes in zip(ranks, rows.codes, strict=True)])
        chosen = pairs[falling_order(steps.gains(pairs))[:n_pairs]]
        sizes = rows.n_levels[chosen].prod(axis=1)
        cells = np.zeros((int(sizes.sum()), G))
        more, has_ended = _repeat(
            lambda number: steps.of_pairs(chosen, cells, number), steps, cells
        )
        rounds = rounds + more
        converged = converged and has_ended
        for (i, j), table in zip(
            chosen.tolist(), np.split(cells, np.cumsum(sizes)[:-1]), strict=True
        ):
            if table.any():
                by_level = table.reshape(len(ranks[i]), len(ranks[j]), G)[ranks[i]][:, ranks[j]]
                tables.append(((i, j), np.moveaxis(by_level, -1, 0)))
    return BoostedModel(tables, rounds, converged)


class _Steps:
    """Calls the compiled kernel for the rows of a model.

    Attributes
    ----------
    codes : ndarray of int32, shape (m, n)
        Levels of the rows, in the order used for cutting pairs.
    boosted : BoostedRows
        The rows in the kernel's format.
    p : ndarray, shape (n, G)
        Group probabilities of the rows, updated in every step.
    entry : float
        Gain required for the first cut of a table. If a cut is uninformative, (G - 1) / G times its
        gain has approximately a chi-square distribution with G - 1 degrees of freedom.
    """

    def __init__(self, rows: Rows, rate: float, stream: np.ndarray, p: np.ndarray):
        from scipy.special import gammainccinv

        self.codes = rows.codes
        self.rows = rows
        self.rate = rate
        self.stream = stream
        self.boosted = kernel.BoostedRows(rows.y, rows.train, p)
        self.p = self.boosted.p
        G = p.shape[1]
        self.entry = (
            G / (G - 1) * 2.0 * float(gammainccinv(0.5 * (G - 1), ENTRY_LEVEL)) if G > 1 else np.inf
        )

    def rule(self, number: int) -> tuple[float, float, float, float, bool]:
        """Return the rate, ridge, minimum weight and entry gain, and whether cuts are random."""
        is_random = number < RANDOM_ROUNDS
        may_begin = is_random or (number - RANDOM_ROUNDS) % ENTRY_ROUNDS == 0
        return self.rate, RIDGE, LEAST, self.entry if may_begin else np.inf, is_random

    def of_fields(self, fields: np.ndarray, number: int) -> None:
        """Update the `fields` (sum of n_levels, G) of all predictors in round `number`."""
        if not len(fields):  # no predictors
            return
        kernel.round_of_fields(
            self.boosted, self.codes, self.rows.n_levels, *self.rule(number), self.stream, fields
        )

    def of_pairs(self, pairs: np.ndarray, cells: np.ndarray, number: int) -> None:
        """Update the class scores `cells` of the `pairs` (pairs, 2) in round `number`."""
        kernel.round_of_pairs(
            self.boosted,
            self.codes,
            self.rows.n_levels,
            pairs,
            *self.rule(number),
            self.stream,
            cells,
        )

    def gains(self, pairs: np.ndarray) -> np.ndarray:
        """Return the gain (pairs,) from the best cuts of each pair."""
        gains = np.empty(len(pairs))
        kernel.pair_gains(self.boosted, self.codes, self.rows.n_levels, pairs, RIDGE, LEAST, gains)
        return gains


def _repeat(step: Callable[[int], None], steps: _Steps, tables: np.ndarray) -> tuple[int, bool]:
    """Perform rounds until the held-out log-loss stops decreasing, and return (rounds, converged).

    ``step(number)`` performs a round, which changes ``steps.p`` and `tables`. At the end, `tables`
    contains the tables of the best round.
    """
    best = np.inf
    best_round = 0
    best_tables = tables.copy()
    weights = steps.rows.validation_weights
    if not weights.any():  # no basis for deciding when to end
        return 0, True
    shares = weights / weights.sum()
    for made in range(MAX_ROUNDS + 1):
        loss = steps.boosted.loss(shares)
        if loss < best - GAIN:
            best = loss
            best_round = made
            best_tables[:] = tables
        elif made - max(best_round, RANDOM_ROUNDS) >= PATIENCE:
            break
        if made < MAX_ROUNDS:
            step(made)
    tables[:] = best_tables
    return made, made < MAX_ROUNDS


def _pairs_of_large_fields(pairs: np.ndarray, fields: list[np.ndarray], rows: Rows) -> np.ndarray:
    """Return those `pairs` (pairs, 2) that have tables of moderate size and large fields.

    At most `MAX_PAIR_PREDICTORS` predictors are used, namely those with `fields` that vary most
    over the training rows. `fields` contains m tables (L_i, G).
    """
    n_levels = rows.n_levels[pairs]
    pairs = pairs[(n_levels.min(axis=1, initial=2) > 1) & (n_levels.prod(axis=1) <= MAX_CELLS)]
    if len(fields) <= MAX_PAIR_PREDICTORS:
        return pairs
    variance = np.empty(len(fields))
    for i, table in enumerate(fields):
        centred = table - table.mean(axis=1, keepdims=True)
        shares = np.bincount(rows.codes[i], rows.train, len(table)) / rows.train.sum()
        variance[i] = float(shares @ ((centred - shares @ centred) ** 2).sum(axis=1))
    return pairs[np.isin(pairs, falling_order(variance)[:MAX_PAIR_PREDICTORS]).all(axis=1)]


def _rank_levels(table: np.ndarray) -> np.ndarray:
    """Rank the levels of a table along the direction of the largest variation of its scores.

    `table` (L, G) contains the class scores.
    """
    centred = table - table.mean(axis=1, keepdims=True)
    centred = centred - centred.mean(axis=0)
    position = (
        centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
        if centred.any()
        else np.zeros(len(table))
    )
    ranks = np.empty(len(table), dtype=np.int32)
    ranks[np.argsort(position, kind="stable")] = np.arange(len(table))
    return ranks
