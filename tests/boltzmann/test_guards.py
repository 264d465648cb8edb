"""Warnings of probabilities worse than those of naive Bayes, and of rows that are ordered."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.boltzmann import prediction_checks as guards
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.prediction_checks import warn_ordered
from bbl.design.labels import Labels
from bbl.engines import NaiveBayes
from bbl.model.layout import Layout
from bbl.model.moments import level_counts
from bbl.rows.folds import consecutive_folds
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities

ORDERED = "over the consecutive folds more unevenly"
GRID = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]


def block(n, seed):
    """Twenty independent predictors that tell the groups apart, and fourteen that are copies of one
    in one group only.

    Mean field overrates the couplings of the copies, and so ln Z of that group.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    free = rng.random((n, 20)) < np.where(y == 1, 0.7, 0.3)[:, None]
    copied = rng.random((n, 14)) < np.where(y == 1, 0.95, 0.0)[:, None]
    shared = np.where(copied, rng.random((n, 1)) < 0.5, rng.random((n, 14)) < 0.5)
    data = pd.DataFrame(np.hstack([free, shared]).astype(int)).add_prefix("x")
    return data.assign(y=np.array(["no", "yes"])[y])


@pytest.fixture(scope="module")
def biased():
    return block(1500, 1)


def test_a_fit_with_a_training_loss_above_that_of_naive_bayes_is_named(biased):
    with pytest.warns(
        bbl.DataWarning, match="On the training rows, .* for naive Bayes: .*calibrate=.*eps='cv'"
    ):
        fit = bbl.bbl("y ~ .^2", biased, method="mf", verbose=0)
    naive = bbl.bbl("y ~ .", biased, method="naive", verbose=0)
    new = block(1000, 2)
    hits = [(f.predict(new, type="class").astype(object) == new["y"]).mean() for f in (fit, naive)]
    assert hits[0] < hits[1] - 0.03  # it is as bad as the warning says


@pytest.mark.parametrize("method", ["ml", "mf"])
def test_a_fit_without_a_response_is_compared_with_all_of_its_predictors(method):
    x = np.random.default_rng(0).integers(0, 2, (200, 4))
    x[:100, 3], x[100:, 3] = 0, 1  # exactly even: its field may be 0
    data = pd.DataFrame(x, columns=list("abcd"))
    # without a warning
    assert bbl.bbl("~ a*b + b*c + c*d + a*d", data, method=method, verbose=0).nobs() == 200


@pytest.mark.long
def test_the_remedies_that_are_named_are_remedies(biased):
    new = block(1000, 2)
    fits = [
        bbl.bbl("y ~ .^2", biased, method="mf", calibrate="temperature", verbose=0),
        bbl.bbl("y ~ .^2", biased, method="mf", eps="cv", verbose=0),
        bbl.crossVal("y ~ .^2", biased, method="mf", eps=GRID, score="logloss", verbose=0).model,
        bbl.bbl("y ~ .", biased, method="naive", verbose=0),
    ]
    for fit in fits:
        assert (fit.predict(new, type="class").astype(object) == new["y"]).mean() > 0.96


def test_cross_validation_names_it_for_the_setting_that_it_chose(biased):
    with pytest.warns(
        bbl.DataWarning, match="On the held-out rows, .* for naive Bayes: .*score='logloss'"
    ):
        bbl.crossVal("y ~ .^2", biased, method="mf", eps=0.9, refit=False, verbose=0)
    bbl.crossVal(
        "y ~ .^2", biased, method="mf", eps=0.9, calibrate="temperature", refit=False, verbose=0
    )


@dataclass(frozen=True)
class Loud(NaiveBayes):
    """An engine of somebody else, whose fields are ten times too large."""

    name = "loud"

    def path(self, sample, layout, values=None, workers=1):
        return [
            replace(fit, theta=10.0 * fit.theta)
            for fit in super().path(sample, layout, values, workers)
        ]


def test_engines_are_not_asked_for_their_name(biased):
    with pytest.warns(bbl.DataWarning, match="On the training rows, .* for the class proportions"):
        bbl.bbl("y ~ x0 + x1", biased, method=Loud(), verbose=0)
    with pytest.warns(bbl.DataWarning, match="On the held-out rows, .* for the class proportions"):
        bbl.crossVal("y ~ x0 + x1", biased, method=Loud(), verbose=0)


def test_of_many_rows_some_are_looked_at_evenly_by_weight(monkeypatch, biased):
    monkeypatch.setattr(guards, "MAX_SAMPLE_ROWS", 700)
    monkeypatch.setattr(guards, "MIN_SAMPLE_ROWS", 10)
    weights = np.arange(1500) % 3
    found = []
    for data, w in ((biased, weights), (biased.loc[biased.index.repeat(weights)], None)):
        with pytest.warns(bbl.DataWarning, match="On the training rows") as caught:
            bbl.bbl("y ~ x0 + x1", data, w, Loud(), verbose=0)
        found.append(str(caught[0].message))
    assert found[0] == found[1]


def test_rows_with_missing_values_are_left_out_of_the_look(biased):
    data = biased.astype(object)
    data.loc[::2, "x0"] = None
    with pytest.warns(bbl.DataWarning, match="On the training rows"):
        bbl.bbl("y ~ .^2", data, method="mf", missing="marginal", log_z="mf", eps=1.0, verbose=0)


def alarms(codes, y, nfold, weights=None, missing=None):
    n_levels = codes.max(axis=0) + 1
    m = len(n_levels)
    labels = Labels(
        "y",
        tuple(range(y.max() + 1)),
        tuple(map(str, range(m))),
        tuple(tuple(range(L)) for L in n_levels),
    )
    weights = np.ones(len(y)) if weights is None else weights
    sample = Sample(codes.astype(np.uint8), weights, y, missing)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_ordered(sample, consecutive_folds(sample, nfold), labels)
    return [str(w.message) for w in caught]


def draw(rng, n, m, L, K):
    skewed = rng.random((n, m)) ** rng.integers(1, 6, m)  # rare levels too
    return (skewed * L).astype(int), np.append(rng.integers(0, K, n - K), np.arange(K))


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "m", "L", "K"), [(30, 4, 2, 2), (60, 10, 3, 3), (200, 6, 20, 2), (1000, 5, 4, 4)]
)
def test_shuffled_rows_give_no_false_alarms(n, m, L, K):
    rng = np.random.default_rng(n)
    found = sum(bool(alarms(*draw(rng, n, m, L, K), int(rng.integers(2, 11)))) for _ in range(150))
    assert found <= 1


@pytest.mark.parametrize(("n", "L"), [(40, 2), (60, 3), (100, 10), (400, 20)])
def test_rows_ordered_by_a_predictor_are_found(n, L):
    rng = np.random.default_rng(0)
    for _ in range(5):
        codes, y = draw(rng, n, 5, L, 2)
        codes[:, 1] = np.arange(n) % L
        order = np.argsort(codes[:, 1], kind="stable")
        (text,) = alarms(codes[order], y[order], 5)
        assert "'1'" in text and "shuffle=True" in text and "weighted" not in text


def test_a_rare_level_in_one_block_is_found_among_many():
    rng = np.random.default_rng(0)
    codes, y = draw(rng, 1000, 2, 12, 2)
    codes[codes[:, 0] == 11, 0] = 0
    codes[200:230, 0] = 11
    assert "'0'" in alarms(codes, y, 5)[0]


def test_missing_values_in_one_block_are_found():
    rng = np.random.default_rng(0)
    codes, y = draw(rng, 200, 3, 3, 2)
    missing = np.zeros(codes.shape, dtype=bool)
    missing[:40, 2] = True
    (text,) = alarms(np.where(missing, 0, codes), y, 5, missing=missing)
    assert "'2'" in text
    assert not alarms(codes, y, 5, missing=rng.permutation(missing))


def test_tables_of_counts_are_found_and_shuffled_folds_are_silent():
    titanic = bbl.datasets.load_titanic()
    with pytest.warns(bbl.DataWarning, match=ORDERED + ".*copies of weighted rows"):
        ordered = bbl.crossVal(
            "Survived ~ .^2", titanic, "Freq", lambda_=0.01, lambdah=0.01, verbose=0
        )
    dealt = bbl.crossVal(
        "Survived ~ .^2",
        titanic,
        "Freq",
        lambda_=0.01,
        lambdah=0.01,
        shuffle=True,
        seed=1,
        verbose=0,
    )
    assert dealt.maxscore > ordered.maxscore + 0.05


@pytest.mark.parametrize("share_missing", [0.0, 0.2])
def test_the_naive_bayes_beside_a_fit_is_the_one_that_its_engine_fits(share_missing):
    rng, layout = np.random.default_rng(11), Layout([2, 3, 4])
    codes = np.column_stack([rng.integers(0, L, 60) for L in layout.n_levels]).astype(np.uint8)
    missing = rng.random((60, 3)) < share_missing if share_missing else None
    y = rng.integers(0, 2, 60)  # the third group has no rows
    sample = Sample(codes, rng.integers(1, 5, 60).astype(float), y, missing)
    (fitted,) = estimate_path(FitData(sample, layout, 3), FitSpec(guards.BASELINE))
    with np.errstate(divide="ignore"):
        log_share = np.log(fitted.class_prior)
    found = log_probabilities(
        guards.naive_scores(level_counts(sample, layout.n_levels, 3), log_share, sample)
    )
    np.testing.assert_allclose(
        found, log_probabilities(fitted.class_scores(codes, missing)), rtol=0, atol=1e-12
    )
