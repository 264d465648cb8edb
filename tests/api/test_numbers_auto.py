"""``method="auto"`` with numeric predictors: members and their out-of-fold scores."""

import numpy as np
import pandas as pd
import pytest
import reference_numbers as oracle
from numpy.testing import assert_allclose

import bbl
from bbl.boltzmann.number_members import INTERVALS, NumberIntervals
from bbl.errors import BBLTypeError, OptionError


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    n = 240
    y = rng.integers(0, 2, n)
    a = (rng.random(n) < 0.3 + 0.4 * y).astype(int)
    b = rng.integers(0, 3, n)
    u = np.exp(0.5 * rng.normal(size=n) + 0.6 * y + 0.3 * a)
    v = rng.normal(size=n) + 100.0 + 0.8 * u
    return pd.DataFrame({"y": np.array(["n", "s"])[y], "a": a, "b": b, "u": u, "v": v})


@pytest.fixture(scope="module")
def fit(table):
    return auto("y ~ (a + b + u + v)^2", table)


def auto(formula, data, **options):
    return bbl.bbl(
        formula,
        data,
        **{"method": "auto", "numeric": ["u", "v"], "seed": 1, "verbose": 0} | options,
    )


def kinds(fit):
    """Return what numbers are in each member."""
    return [
        "density"
        if member.estimate.location is not None
        else "intervals"
        if not member.design.is_number.any()
        else "regressors"
        for member in fit.members
    ]


def test_there_are_members_of_three_kinds(fit):
    found = kinds(fit)
    assert found == sorted(found, key=["density", "regressors", "intervals"].index)
    assert {"density", "regressors", "intervals"} == set(found)
    assert fit.member_weights.sum() == pytest.approx(1.0)
    assert np.isfinite(fit.losses).all()
    assert fit.log_loss.loss < fit.log_loss.baseline


def test_members_on_intervals_need_no_ln_z(fit):
    names = {
        member.engine.name
        for member, kind in zip(fit.members, kinds(fit), strict=True)
        if kind == "intervals"
    }
    assert names == {"conditional", "blanket", "boosting"}


def test_probabilities_are_the_average_of_the_members(fit, table):
    new = table.drop(columns="y").head(30)
    p = [member.predict(new, type="prob")[["n", "s"]].to_numpy() for member in fit.members]
    expected = np.einsum("k,knp->np", fit.member_weights, p)
    assert_allclose(fit.predict(new, type="prob")[["n", "s"]], expected, rtol=1e-9)


def test_members_multiply_probabilities_given_levels_by_a_density(fit, table):
    member = fit.members[0]
    location = member.estimate.location
    model = location.model
    codes = member.training.codes[:20]
    numbers = location.numbers(codes)
    for row, x in enumerate(codes.astype(int)):
        for g in range(2):
            z = np.ones(1 + sum(model.n_levels[i] - 1 for i in model.used))
            z[1:] = np.concatenate(
                [[], *(x[i] == np.arange(1, model.n_levels[i]) for i in model.used)]
            )
            expected = oracle.log_normal(numbers[row], z @ location.C[g], location.S[g])
            assert location.log_density(codes[[row]])[0, g] == pytest.approx(expected)
    p = member._categorical.predict(table.head(20), type="prob")[["n", "s"]].to_numpy()
    assert np.isfinite(p).all()


@pytest.mark.long
def test_the_location_model_is_chosen_among_sixteen(table):
    chosen = set()
    for data in (
        table,
        table.assign(u=np.random.default_rng(0).normal(size=240), v=table["b"] + table["u"] * 3.0),
        table.assign(u=np.random.default_rng(0).normal(size=240) * (1 + 3 * (table["y"] == "s"))),
    ):
        location = auto("y ~ (a + b + u + v)^2", data).members[0].estimate.location
        assert location.model.prior_count == 1.0
        chosen.add((location.model.covariance, location.model.transform))
    assert len(chosen) > 1


@pytest.mark.long
def test_cuts_of_folds_do_not_see_held_out_rows(table, monkeypatch):
    seen = []
    original = NumberIntervals.of_rows.__func__

    def recorded(cls, rows, n_levels, numbers):
        seen.append(float(rows.weights.sum()))
        return original(cls, rows, n_levels, numbers)

    monkeypatch.setattr(NumberIntervals, "of_rows", classmethod(recorded))
    fit = auto("y ~ a + b + u + v", table)
    n_intervals = kinds(fit).count("intervals")
    # once for all rows, and for the training rows of five folds and each member
    assert seen.count(240.0) == 1
    assert len(seen) - 1 == 5 * n_intervals
    assert max(seen[1:]) < 240.0 if seen[0] == 240.0 else True
    assert all(weight < 200.0 for weight in seen if weight != 240.0)


def test_intervals_have_about_the_same_number_of_rows(fit, table):
    member = next(m for m, kind in zip(fit.members, kinds(fit), strict=True) if kind == "intervals")
    levels = member.design.predictors[2].levels
    assert len(levels) == INTERVALS
    counts = np.histogram(table["u"], [-np.inf, *(level.right for level in levels)])[0]
    assert counts.min() > 0.7 * counts.max()
    assert member.training.codes[:, 2].max() == INTERVALS - 1


@pytest.mark.parametrize("formula", ["y ~ u*v", "y ~ a*u"])
@pytest.mark.long
def test_the_order_and_the_repetition_of_rows_do_not_matter(table, formula):
    numeric = [name for name in ("u", "v") if name in formula]
    counts = 1 + np.arange(len(table)) % 2
    weighted = auto(formula, table.assign(w=counts), weights="w", numeric=numeric)
    repeated = table.loc[table.index.repeat(counts)].sample(frac=1, random_state=1)
    other = auto(formula, repeated, numeric=numeric, n_jobs=2)
    one, two = (fit.predict(table, type="prob")["s"] for fit in (weighted, other))
    assert_allclose(one, two, rtol=1e-9)


@pytest.mark.parametrize("store_data", [True, False])
@pytest.mark.parametrize("formula", ["y ~ u + v", "y ~ a*u + b"])
@pytest.mark.long
def test_saved_averages_predict_the_same_bits(table, tmp_path, store_data, formula):
    numeric = [name for name in ("u", "v") if name in formula]
    fit = auto(formula, table, numeric=numeric)
    fit.save(tmp_path / "model.bbl", store_data=store_data)
    loaded = bbl.load(tmp_path / "model.bbl")
    new = table.drop(columns="y")
    assert loaded.predict(new, type="prob").equals(fit.predict(new, type="prob"))
    assert str(loaded.summary()) == str(fit.summary())
    if store_data:
        frames = [model.avg_slopes(se=False).frame for model in (loaded, fit)]
        assert_allclose(frames[0]["estimate"], frames[1]["estimate"])


@pytest.mark.long
def test_effects_and_cross_validation(fit, table):
    frame = fit.avg_comparisons("u", step=0.5, se=False).frame
    moved = fit.predict(table.assign(u=table["u"] + 0.5), type="prob")["s"].mean()
    expected = moved - fit.predict(table, type="prob")["s"].mean()
    assert_allclose(frame["estimate"].iloc[-1], expected, rtol=1e-9)
    drawn = fit.avg_comparisons("u", se="bootstrap", nboot=3, verbose=0).frame
    assert (drawn["std_error"] > 0.0).all()
    cv = fit.crossVal(nfold=2, score="logloss", shuffle=True, seed=1, verbose=0)
    assert 0.3 < cv.maxscore < 0.69


def test_unrelated_numbers_give_nearly_the_class_proportions():
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"y": rng.integers(0, 2, 100), "u": rng.normal(size=100)})
    fit = auto("y ~ u", data, numeric="u")
    p = fit.predict(data, type="prob")[1]
    assert np.abs(p - data["y"].mean()).max() < 0.1


def test_missing_numbers_are_averaged_over_by_members_that_can(table):
    gaps = table.assign(b=table["b"].astype("Int64").mask(table.index % 9 == 0))
    fit = auto("y ~ a*u + b", gaps, numeric="u", missing="marginal")
    assert "regressors" not in kinds(fit)
    new = pd.DataFrame({"a": [1, None], "b": [0, 1], "u": [np.nan, 2.0]})
    assert np.isfinite(fit.predict(new, type="prob")["s"]).all()


@pytest.mark.long
def test_many_rows_have_a_single_holdout():
    rng = np.random.default_rng(3)
    n = 5200
    data = pd.DataFrame({"a": rng.integers(0, 2, n), "u": rng.normal(size=n).round(3)})
    data["y"] = (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * data["u"]))).astype(int)
    data["w"] = rng.normal(size=n)
    fit = auto("y ~ (a + u + w)^2", data, numeric=["u", "w"])
    p = fit.predict(data, type="prob")[1]
    loss = -np.log(np.where(data["y"] == 1, p, 1.0 - p)).mean()
    truth = 1.0 / (1.0 + np.exp(-2.0 * data["u"]))
    best = -np.log(np.where(data["y"] == 1, truth, 1.0 - truth)).mean()
    assert loss < best + 0.01


def test_settings_of_numbers_are_chosen(table):
    with pytest.raises(BBLTypeError, match="chooses its settings automatically, so covariance"):
        auto("y ~ a + u", table, numeric="u", covariance="shared")


def test_averages_need_one_kind_of_numbers(table):
    fits = [
        bbl.bbl("y ~ a*u", data, numeric="u", method=method, verbose=0)
        for data, method in ((table, "pseudo"), (table, "conditional"), (table.head(200), "pseudo"))
    ]
    for other in fits[1:]:
        with pytest.raises(OptionError, match="have different numeric predictors"):
            bbl.average([fits[0], other], "equal")
    both = bbl.average([fits[0], bbl.bbl("y ~ a + u", table, numeric="u", method="mf")], "equal")
    assert both.predict(table, type="prob")["s"].between(0, 1).all()
