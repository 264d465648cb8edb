"""A model's priors: all that speaks of the groups' shares takes them, as predictions do."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl import networks

PRIORS = {"No": 0.1, "Yes": 0.9}
P = np.array([0.1, 0.9])


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module", params=[None, "temperature"])
def fit(request, titanic):
    options = {} if request.param is None else {"calibrate": request.param, "verbose": 0}
    return bbl.bbl("Survived ~ .^2", titanic, "Freq", priors=PRIORS, **options)


def test_rows_are_as_likely_as_the_priors_make_them(fit, titanic, tmp_path):
    inside = bbl.log_scores(fit, titanic, normalised=True).to_numpy()  # ln P(x | y)
    truth = np.log(np.exp(inside) @ P)
    np.testing.assert_allclose(fit.score_samples(titanic), truth, atol=1e-12)
    np.testing.assert_allclose(
        bbl.log_scores(fit, titanic, True, True), inside + np.log(P), atol=1e-12
    )
    levels = dict(zip(fit.labels.names, fit.labels.levels, strict=True))
    states = pd.MultiIndex.from_product(levels.values(), names=levels.keys()).to_frame(index=False)
    assert np.exp(fit.score_samples(states)).sum() == pytest.approx(1.0, abs=1e-9)
    fit.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    np.testing.assert_array_equal(again.score_samples(titanic), fit.score_samples(titanic))
    plain = fit.with_priors(None).score_samples(titanic)
    assert np.abs(plain - truth).min() > 1e-3


def test_rows_are_drawn_in_these_shares(fit):
    drawn = fit.sample(20_000, seed=0)
    assert (drawn["Survived"] == "Yes").mean() == pytest.approx(0.9, abs=0.01)
    female = np.exp(fit.score_samples({"Class": ["Crew"], "Sex": ["Female"], "Age": ["Adult"]}))[0]
    crew = (drawn["Class"] == "Crew") & (drawn["Sex"] == "Female") & (drawn["Age"] == "Adult")
    assert crew.mean() == pytest.approx(female, abs=0.005)
    assert (fit.sample(2000, seed=0, groups={"No": 1, "Yes": 1})["Survived"] == "Yes").mean() < 0.6
    network = networks.bnc(
        "nb",
        "Survived ~ Class + Sex + Age",
        bbl.datasets.load_titanic(),
        weights="Freq",
        smooth=1,
        priors=PRIORS,
    )
    assert (network.sample(20_000, seed=0)["Survived"] == "Yes").mean() == pytest.approx(
        0.9, abs=0.01
    )
    plain = network.with_priors(None).sample(20_000, seed=0)["Survived"]
    assert (plain == "Yes").mean() == pytest.approx(711 / 2201, abs=0.01)


def test_what_is_missing_is_filled_as_the_priors_make_groups_probable(fit):
    known = {"Class": ["1st"], "Sex": [None], "Age": ["Adult"]}
    cells = {name: values * 2 for name, values in known.items()} | {"Sex": ["Male", "Female"]}
    # P(x | y) of both completions
    inside = np.exp(bbl.log_scores(fit, cells, normalised=True).to_numpy())
    # groups given what is known, calibrated as predictions are; then the missing predictor within
    # each group
    whole = (
        fit._class_scores(*fit.design.encode(known, missing="marginal"))
        + np.log(P)
        - np.log(fit.class_shares)
    )
    group = np.exp(whole - np.logaddexp.reduce(whole, axis=1))[0]
    truth = (inside / inside.sum(axis=0)) @ group
    found = fit.reconstruct(pd.DataFrame(known), verbose=0)["Sex"]
    np.testing.assert_allclose(found[["Male", "Female"]].to_numpy()[0], truth, atol=1e-10)
    told = fit.reconstruct(pd.DataFrame(known | {"Survived": ["No"]}), verbose=0)["Sex"]
    np.testing.assert_allclose(
        told[["Male", "Female"]].to_numpy()[0], inside[:, 0] / inside[:, 0].sum(), atol=1e-10
    )


def test_a_group_without_rows_has_no_part():
    frame = pd.DataFrame(
        {"y": pd.Categorical(["a", "b"] * 20, ["a", "b", "c"]), "x": [0, 1, 1, 0] * 10}
    )
    fit = bbl.crossVal(
        "y ~ x", frame.assign(w=1), "w", nfold=2, refit=False, verbose=0, lambda_=[0.1]
    ).model
    prior = {group: 1.0 / len(fit.labels.groups) for group in fit.labels.groups}
    shares = fit.with_priors(prior)._shares_in_use
    assert shares.sum() == pytest.approx(1.0) and (shares[fit.class_shares == 0.0] == 0.0).all()
