"""Options of numeric predictors that are chosen by cross-validation."""

import itertools

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import bbl
from bbl.boltzmann.location_search import SETTINGS
from bbl.errors import OptionError

CV = {"covariance": "cv", "transform": "cv", "shrink": "cv"}


def rows(n=150, ratio=1.0, power=1.0, seed=1):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    scale = np.where(y == 1, ratio, 1.0)
    u = scale * rng.normal(size=n) + 0.7 * y
    v = 0.5 * u + rng.normal(size=n)
    u = np.sign(u) * np.abs(u) ** power
    return pd.DataFrame({"y": np.array(["n", "s"])[y], "u": u, "v": v})


def fitted(data, **options):
    return bbl.bbl("y ~ u*v", data, **{"numeric": ["u", "v"], "verbose": 0} | options)


def chosen(fit):
    model = fit.estimate.location.model
    return {name: getattr(model, name) for name in CV}


@pytest.mark.long
def test_the_chosen_options_have_the_least_out_of_fold_loss():
    data = rows(ratio=1.6)
    ordered = data.sort_values(["y", "v", "u"])
    fold = ordered.groupby("y").cumcount().to_numpy() % 5
    losses = {}
    for values in itertools.product(*(SETTINGS[name] for name in CV)):
        loss = 0.0
        for f in range(5):
            train = ordered[fold != f]
            held = ordered[fold == f]
            counts = train["y"].value_counts() + 0.5
            fit = fitted(train, **dict(zip(CV, values, strict=True)))
            p = fit.predict(held, type="prob", priors=(counts / counts.sum()).to_dict())
            loss -= np.log(np.where(held["y"] == "n", p["n"], p["s"])).sum()
        losses[values] = loss
    best = min(losses, key=losses.get)
    fit = fitted(data, **CV)
    assert tuple(chosen(fit).values()) == best
    alone = fitted(data, **dict(zip(CV, best, strict=True)))
    assert_allclose(fit.predict(data)[["n", "s"]], alone.predict(data)[["n", "s"]], rtol=1e-12)
    assert "by cross-validation: covariance, transform, shrink" in str(fit)


@pytest.mark.long
def test_the_choice_follows_the_data():
    assert chosen(fitted(rows(400, ratio=4.0), covariance="cv"))["covariance"] == "group"
    small = [chosen(fitted(rows(40, seed=k), covariance="cv"))["covariance"] for k in range(12)]
    assert small.count("shared") > 6
    assert chosen(fitted(rows(400, power=4.0), transform="cv"))["transform"] == "normal"
    assert chosen(fitted(rows(400), shrink="cv"))["shrink"] < 1.0


@pytest.mark.long
def test_the_choice_does_not_depend_on_the_order_of_rows_or_on_repetition():
    data = rows(90, ratio=1.3)
    counts = np.arange(len(data)) % 3
    one = fitted(data.assign(w=counts), weights="w", **CV)
    repeated = data.loc[data.index.repeat(counts)].sample(frac=1.0, random_state=1)
    other = fitted(repeated, **CV)
    assert chosen(one) == chosen(other)
    assert_allclose(one.covariances(), other.covariances(), rtol=1e-9)


@pytest.mark.long
def test_the_simplest_of_equal_settings_is_chosen():
    for seed in range(10):  # shrinking the variance of one predictor towards itself does nothing
        data = rows(40, seed=seed)
        fit = bbl.bbl("y ~ u", data, numeric="u", covariance="shared", shrink="cv", verbose=0)
        assert chosen(fit)["shrink"] == 0.0


def test_choices_are_saved_and_searched_in_every_fold(tmp_path):
    data = rows(80)
    fit = fitted(data, **CV)
    fit.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    assert str(loaded) == str(fit)
    assert_allclose(loaded.predict(data)[["n", "s"]], fit.predict(data)[["n", "s"]], rtol=0)
    cv = bbl.crossVal("y ~ u*v", data, numeric=True, lambda_=[0.1], verbose=0, **CV)
    assert chosen(cv.model) == chosen(fit)


def test_the_prior_count_that_is_tuned_also_shrinks_the_means():
    data = rows(60).assign(a=np.arange(60) % 4)
    cv = bbl.crossVal(
        "y ~ a*u", data, method="pseudo", prior_count=0.7, lambda_=[0.1], numeric="u", verbose=0
    )
    fit = bbl.bbl("y ~ a*u", data, prior_count=0.7, lambda_=0.1, numeric="u", verbose=0)
    assert_allclose(cv.model.covariances(), fit.covariances(), rtol=1e-12)
    cv = bbl.crossVal("y ~ a + u", data, method="naive", prior_count=[0.5], numeric="u", verbose=0)
    assert cv.model.estimate.location.model.prior_count == 0.5


def test_a_transformation_is_not_chosen_without_classes():
    with pytest.raises(OptionError, match="transform='none'"):
        bbl.bbl("~ u*v", rows(), numeric=["u", "v"], transform="cv")
    assert chosen(bbl.bbl("~ u*v", rows(), numeric=["u", "v"], shrink="cv"))["shrink"] <= 0.1
