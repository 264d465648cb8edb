"""Engine `Boosting`: boosted fields and couplings of all groups, averaged over five models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bbl.checks import integer, real
from bbl.engines.base import NEED_ERRORS, Engine
from bbl.engines.boosting.rounds import MAX_CELLS, BoostedModel, Rows, boost
from bbl.engines.engine_fit import JointFit, Limit
from bbl.engines.score_tables import add_table
from bbl.engines.traits import JointTraits, OutOfFoldScores
from bbl.memory import check_memory
from bbl.model.layout import Layout
from bbl.rows.content import order_by_content
from bbl.rows.folds import stratified_folds
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_loss, log_probabilities

__all__ = ["Boosting"]

NFOLD = 5  # number of models: each is fitted to four fifths of the rows
# ends the message "method='boosting' ..."
NO_ERRORS = "stops before its optimum, so standard errors are not available"


@dataclass(frozen=True)
class Boosting(Engine):
    """Fields and couplings estimated by boosting, intended for prediction.

    The class scores, ``ln P(y|x)`` up to its normaliser, are a sum of tables, one for each
    predictor and one for each selected pair. All tables start at zero and are updated in rounds. In
    each round, a small step in each table increases the likelihood. A cut divides the levels of the
    predictor (or of both predictors of a pair) into two sets, and the step adds a constant on each
    side of the cut. Levels with similar effects therefore have equal parameters. A table is updated
    for the first time only if the gain from its best cut is clearly larger than expected by chance,
    so irrelevant predictors have no parameters. Fields are fitted first, followed by the most
    promising pairs. The rows are assigned to five folds, and five models are fitted, each to four
    of the folds. For each model, the round with the lowest log-loss on the remaining fold is used.
    The result is the mean of the five models. P(x|y) is not modelled, so row likelihoods and ln Z
    are not available, and missing values cannot be marginalised.

    Parameters
    ----------
    rate : float, default 0.2
        Step size, as a fraction of a Newton step. Smaller steps require more rounds.
    pairs : int, optional
        Number of pairs that each model selects from the formula. The default is the number of
        predictors.

    Raises
    ------
    OptionError
        If `rate` is not between 0 and 1, or `pairs` is negative.

    Notes
    -----
    Friedman, Hastie & Tibshirani (2000, Annals of Statistics 28) introduced the boosting of
    additive logistic models by Newton steps. Lou, Caruana, Gehrke & Hooker (2013, KDD) introduced
    pairs that are added to the fields and selected by their best cuts. The levels of a pair are cut
    in the order of their fields. Pairs with more than 4096 cells are not used. With more than 45
    predictors, pairs of predictors with small fields are not used either.

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method="boosting", verbose=0)
    >>> round(fit.score(), 3)
    0.791
    """

    rate: float = 0.2
    pairs: int | None = None
    name = "boosting"
    loads = True
    log_z = "half"

    def __post_init__(self):
        object.__setattr__(self, "rate", real("rate", self.rate, 0.0, 1.0, open_low=True))
        if self.pairs is not None:
            object.__setattr__(self, "pairs", integer("pairs", self.pairs, 0))

    @property
    def penalised(self) -> bool:
        """Always True, because stopping early shrinks estimates towards equal probabilities."""
        return True

    @property
    def stops_early(self) -> bool:
        """Whether fits stop before reaching the optimum, which is always True for this engine."""
        return True

    @classmethod
    def refusals(cls) -> dict[str, str]:
        """Return the capabilities that the method lacks, with the reason for each."""
        return super().refusals() | dict.fromkeys(NEED_ERRORS, f"method={cls.name!r} {NO_ERRORS}")

    def memory(self, n: int, layout: Layout, settings: int = 1) -> float:
        """Return the memory, in bytes, for fold weights, pair tables and the codes in two orders.

        The codes have shape (m, n). `settings` has no effect.
        """
        n_pairs = min(layout.count(2), layout.m if self.pairs is None else self.pairs)
        largest = min(float(np.sort(layout.n_levels)[-2:].prod()), MAX_CELLS) if n_pairs else 0.0
        return (
            n * (8.0 * layout.m + 16.0 * NFOLD) + 16.0 * layout.count(2) + 48.0 * n_pairs * largest
        )

    def fit_groups(
        self,
        sample: Sample,
        layout: Layout,
        K: int,
        values: Sequence[float] | None,
        oof_scores: OutOfFoldScores | None,
        rng: np.random.Generator,
        start: np.ndarray | None = None,
    ) -> list[JointFit]:
        """Return the fit of all groups; see `JointTraits`.

        `rng` is used to assign the rows to folds and to draw the cuts of the first rounds.
        `values`, `oof_scores` and `start` are not used, because the engine has no tuned option and
        fits start from equal scores.
        """
        check_memory(
            self.memory(sample.n, layout),
            f"Boosting of {layout.m} predictors on {sample.n} rows",
            "Use fewer predictors or fewer rows.",
        )
        # cuts are drawn column by column, so use an order of columns, rows and pairs that does not
        # depend on names
        order = order_by_content(sample, layout.n_levels)
        sample = sample.rows(order.rows)
        place = np.argsort(order.columns)
        # groups with rows; `y` contains each row's position among these groups
        groups, y = np.unique(sample.response, return_inverse=True)
        folds = stratified_folds(sample, NFOLD, rng)
        codes = np.ascontiguousarray(sample.codes.T, dtype=np.int32)
        sorted_codes = codes[order.columns]
        y = y.ravel()
        log_shares = np.log(np.bincount(y, sample.weights) / sample.total)
        n_levels = np.asarray(layout.n_levels, dtype=np.intp)[order.columns]
        pairs = np.sort(place[np.asarray(layout.pairs, dtype=np.intp).reshape(-1, 2)], axis=1)
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        models = [
            boost(
                Rows(sorted_codes, n_levels, y, train, held),
                log_shares,
                pairs,
                layout.m if self.pairs is None else self.pairs,
                self.rate,
                model_rng,
            )
            for train, held, model_rng in zip(
                folds.train, folds.validation_weights, rng.spawn(NFOLD), strict=True
            )
        ]
        theta, constant, scores, used = _mean_scores(
            [_in_columns_of_layout(model, order.columns) for model in models],
            layout,
            log_shares,
            codes,
        )
        all_theta = np.zeros((K, layout.size))
        all_constants = np.zeros(K)
        all_theta[groups] = theta
        all_constants[groups] = constant
        return [
            JointFit(
                all_theta,
                all_constants,
                temperature=1.0,
                loss=log_loss(log_probabilities(scores.T), y, sample.weights),
                gradient=np.nan,
                evaluations=sum(model.rounds for model in models),
                converged=all(model.converged for model in models),
                limits=[Limit(int(used.sum()), unbounded=(), notes=())] * K,
            )
        ]

    joint: ClassVar[JointTraits] = JointTraits(fit_groups)


def _in_columns_of_layout(model: BoostedModel, columns: np.ndarray) -> BoostedModel:
    """Convert a model of sorted columns to a model with tables in the order of the layout.

    `columns` (m,) contains the positions of the sorted columns.
    """
    tables = []
    for predictors, table in model.tables:
        positions = columns[list(predictors)]
        axes = np.argsort(positions)
        tables.append(
            (tuple(positions[axes].tolist()), np.transpose(table, (0, *(axes + 1).tolist())))
        )
    return replace(model, tables=tables)


def _mean_scores(
    models: list[BoostedModel], layout: Layout, log_shares: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return class scores averaged over models, as parameters, constants and row scores.

    The shapes are (G, size), (G,) and (G, n). `log_shares` (G,) contains the log class proportions
    over all rows, and `codes` (m, n) contains the levels of the rows. The fourth array returned is
    a mask (size,) of the parameters that occur in a table.
    """
    theta = np.zeros((len(log_shares), layout.size))
    constant = log_shares.copy()
    used = np.zeros(layout.size, dtype=bool)
    scores = np.repeat(log_shares[:, None], codes.shape[1], axis=1)
    for model in models:
        for predictors, table in model.tables:
            mean_table = table / len(models)
            add_table(layout, theta, constant, predictors, mean_table, used)
            scores += mean_table[(slice(None), *(codes[i] for i in predictors))]
    return theta, constant, scores, used
