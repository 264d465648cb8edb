"""Any weights, groups and positions into folds, and groups without rows through every engine."""

import numpy as np

from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.job import FitData, FitSpec
from bbl.engines import MeanField, NaiveBayes, PseudoLikelihood
from bbl.model.layout import Layout
from bbl.rows import folds as rows_folds
from bbl.rows.folds import consecutive_folds, shuffled_folds, splitter_folds
from bbl.rows.sample import Sample
from bbl.stats.metrics import link, log_probabilities

ENGINES = (NaiveBayes(), MeanField(), PseudoLikelihood(lambda_=0.1, lambdah=0.1))
FIT = 16  # one input in so many is fitted, which takes a hundred times as long
HEAVY = (1, 1, 2, 3, 1000, 10**9, 2**40)


def folds(source) -> None:
    """Folds hold every copy once, at R's sizes, or what a splitter says; what one trains on is
    fitted and scores.
    """
    n, K, m = source.integer(1, 12), source.integer(2, 3), source.integer(1, 3)
    y = np.array([source.integer(0, K - 1) for _ in range(n)])
    weights = np.array([float(source.pick(HEAVY)) for _ in range(n)])
    codes = np.ascontiguousarray(source.array("u1", n, m) % 3).astype(np.uint8)
    missing = None if source.maybe(2) else source.array("u1", n, m) % 4 == 3
    sample = Sample(
        np.where(False if missing is None else missing, 0, codes).astype(np.uint8),
        weights,
        y,
        missing,
    )
    way = source.integer(0, 2)
    if way == 0:
        found = splitter_folds(
            [positions(source, n) for _ in range(source.integer(0, 3))], codes, y, weights
        )
    else:
        rng, nfold = np.random.default_rng(source.integer(0, 99)), source.integer(2, 6)
        found = consecutive_folds(sample, nfold) if way == 1 else shuffled_folds(sample, nfold, rng)
        np.testing.assert_array_equal(found.validation_weights.sum(axis=0), weights)
        np.testing.assert_array_equal(
            found.train + found.validation_weights,
            np.broadcast_to(weights, found.validation_weights.shape),
        )
        for group in range(K):
            sizes = rows_folds.fold_sizes(weights[y == group].sum(), nfold)
            np.testing.assert_array_equal(
                found.validation_weights[:, y == group].sum(axis=1), sizes
            )
    assert (found.train >= 0).all() and (found.validation_weights >= 0).all()
    if source.maybe(FIT):
        fit(source, sample.weighted(found.train[-1]), sample, K)


def positions(source, n: int) -> tuple:
    """Return positions to train on and to validate; some are none, or not there."""
    kind = source.pick(("i8", "i8", "i4", "?", "f8"))
    parts = [
        source.array("u1", n if kind == "?" else source.integer(0, 6)) % (n + source.maybe(16))
        for _ in range(2)
    ]
    return tuple(part.astype(kind) for part in parts)


def fit(source, train: Sample, sample: Sample, K: int) -> None:
    """Groups may be empty; then they are never predicted, and nothing is NaN."""
    if not train.n:
        return
    layout = Layout([3] * sample.codes.shape[1])
    log_z = source.pick(("auto", "exact", "half", "mf"))
    (result,) = estimate_path(FitData(train, layout, K), FitSpec(source.pick(ENGINES), log_z))
    scores = result.class_scores(sample.codes, sample.missing)
    assert np.isfinite(result.parameters.theta).all() and not np.isnan(link(scores)).any()
    p = np.exp(log_probabilities(scores))
    assert (p[:, result.class_prior == 0] == 0).all() and (abs(p.sum(axis=1) - 1) < 1e-9).all()
