"""Tests of fitted sparse regressions: tables, predictions, figures and files."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import ModelFileError
from bbl.results.shooter.shooter import ShooterResults
from bbl.storage import read_model, write_model

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fit(titanic):
    return bbl.shooter("Survived ~ .", titanic, "Freq", order=2, lambda_=60.0, refit=True)


def scores(frame, rows, base=0.0):
    """Log odds of rows from a frame of coefficients, by a plain loop."""
    out = []
    for _, row in rows.iterrows():
        total = base
        for _, c in frame.iterrows():
            if all(row[p] == x for p, x in zip(c["predictors"], c["levels"], strict=True)):
                total += c["Yes vs No"]
        out.append(total)
    return np.array(out)


def test_both_kinds_of_coefficients_give_the_log_odds(fit, titanic):
    prob = fit.predict(titanic, type="prob")
    want = np.log(prob["Yes"] / prob["No"])
    for gauge in ("reference", "zero-sum"):
        assert np.allclose(scores(fit.coef(gauge), titanic), want)
    tables = fit.coef("zero-sum")
    assert np.allclose(tables[tables["order"] == 1].groupby("predictors")["Yes vs No"].sum(), 0)


def test_a_refit_has_the_likelihood_of_its_table(fit, titanic):
    assert [*fit.chosen] == [(0,), (1,), (1, 2)]
    prob = fit.predict(titanic, type="prob")
    own = np.where(titanic["Survived"] == "Yes", prob["Yes"], prob["No"])
    assert float(fit.logLik()) == pytest.approx((titanic["Freq"] * np.log(own)).sum())
    assert fit.logLik().df == fit.n_parameters == 1 + 3 + 1 + 1
    assert fit.bic == pytest.approx(-2 * float(fit.logLik()) + 6 * np.log(2201))


def test_terms_come_strongest_first_with_their_step(fit):
    terms = fit.terms
    assert list(terms.columns) == ["order", "predictors", "levels", "step", "strength", "Yes vs No"]
    assert terms["strength"].is_monotonic_decreasing
    assert terms.groupby("predictors")["step"].first().to_dict()[("Sex", "Age")] == 1
    reference = fit.coef().set_index(["predictors", "levels"])["Yes vs No"]
    same = terms.set_index(["predictors", "levels"])["Yes vs No"]
    assert (reference.loc[same.index] == same).all()
    strength = terms.groupby("predictors")["strength"].first()
    tables = fit.coef("zero-sum")
    for predictors, own in tables[tables["order"] > 0].groupby("predictors"):
        assert strength[predictors] == pytest.approx(np.sqrt((own["Yes vs No"] ** 2).mean()))


def test_the_weight_of_a_product_of_signs_is_its_strength():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (500, 4)), columns=list("abcd"))
    data["y"] = (2 * data["a"] - 1) * (2 * data["b"] - 1) + rng.logistic(size=500) > 0
    found = bbl.shooter("y ~ .", data, order=2, lambda_=25.0, refit=False, screen="all")
    assert [*found.chosen] == [(0, 1)]
    assert found.terms["strength"].iloc[0] == abs(found.chosen[(0, 1)][0, 0])
    assert found.terms["True vs False"].iloc[0] == pytest.approx(4 * found.chosen[(0, 1)][0, 0])


def test_the_strength_is_the_same_whatever_levels_are_first_and_the_weights_are_not():
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"a": rng.integers(0, 2, 400), "b": rng.integers(0, 3, 400)})
    link = (2 * data["a"] - 1) * (1 + 2 * (data["b"] == 0))
    data["y"] = np.where(link + rng.logistic(size=400) > 0, "yes", "no")
    given = {"order": 2, "lambda_": 8.0, "refit": False, "verbose": 0}
    one = bbl.shooter("y ~ .", data, xlevels={"a": [0, 1], "b": [0, 1, 2]}, **given)
    two = bbl.shooter("y ~ .", data, xlevels={"a": [0, 1], "b": [2, 0, 1]}, **given)
    firsts = [fit.terms.drop_duplicates("predictors").set_index("predictors") for fit in (one, two)]
    assert {("a",), ("a", "b")} <= {*firsts[0].index}
    assert np.allclose(firsts[0]["strength"], firsts[1].loc[firsts[0].index, "strength"], atol=1e-6)
    weights = [f.loc[[("a",)]].iloc[0, -1] for f in firsts]
    assert abs(weights[0] - weights[1]) > 0.5


def test_an_unknown_level_leaves_its_terms_out(fit, titanic):
    new = titanic.head(1).astype(object).assign(Sex="never seen")
    known = fit.coef("zero-sum")
    without = known[[("Sex" not in p) for p in known["predictors"]]]
    prob = fit.predict(new, type="prob", unseen="ignore")
    assert np.allclose(np.log(prob["Yes"] / prob["No"]), scores(without, new))


def test_the_text_and_the_summary_tell_the_terms(fit):
    assert "Terms: 2 of order 1, 1 of order 2" in repr(fit) and "unpenalised" in repr(fit)
    text = str(fit.summary())
    assert "Sex[Male]:Age[Child]" in text and "Observations: 2201" in text
    assert set(fit.summary().tables) == {"fit", "terms"}


def test_figures_have_what_the_tables_have(fit, titanic):
    ax = fit.plot()
    assert len(ax.patches) == 3
    widths = sorted(patch.get_width() for patch in ax.patches)
    assert np.allclose(widths, sorted(fit.terms.drop_duplicates("predictors")["strength"]))
    assert fit.plot(kind="path").get_xlabel() == "Order"
    path = bbl.shooter("Survived ~ .", titanic, "Freq", order=1, lambda_="cv", nfold=2)
    ax = path.plot(kind="path")
    line = ax.lines[0]
    last = path.path.groupby("point").tail(1)
    assert np.allclose(line.get_ydata(), last["loss"]) and ax.get_xlabel() == "Penalty"
    with pytest.warns(bbl.DataWarning):
        none = bbl.shooter("Survived ~ .", titanic, "Freq", order=1, lambda_=1e5)
    assert none.plot().texts[0].get_text() == "no terms"


@pytest.mark.parametrize("store", [False, True])
def test_a_saved_model_is_the_same_to_the_last_bit(fit, titanic, tmp_path, store):
    fit.save(tmp_path / "fit.bbl", store_data=store)
    back = bbl.load(tmp_path / "fit.bbl")
    assert isinstance(back, ShooterResults)
    assert (
        back.terms.equals(fit.terms)
        and back.path.equals(fit.path)
        and back.coef().equals(fit.coef())
    )
    assert back.predict(titanic).equals(fit.predict(titanic))
    assert (float(back.logLik()), back.logLik().df, back.nobs()) == (
        float(fit.logLik()),
        fit.logLik().df,
        2201,
    )
    assert str(back.summary()) == str(fit.summary()) and repr(back) == repr(fit)
    assert (back.training is not None) == store


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, arrays: arrays.update(orders=np.array([9])),
        lambda meta, arrays: arrays.update(predictors=arrays["predictors"] + 5),
        lambda meta, arrays: arrays.update(predictors=arrays["predictors"][::-1].copy()),
        lambda meta, arrays: arrays.update(weights_of_terms=arrays["weights_of_terms"][1:]),
        lambda meta, arrays: arrays.update(intercept=np.array([np.nan])),
        lambda meta, arrays: arrays.update(path=arrays["path"][:, 1:]),
        lambda meta, arrays: arrays.update(entered=arrays["entered"] + 100),
        lambda meta, arrays: arrays.update(more=np.zeros(1)),
        lambda meta, arrays: meta.update(penalties=[1.0]),
        lambda meta, arrays: meta.update(separating=[7]),
        lambda meta, arrays: meta.update(refitted=3),
        lambda meta, arrays: meta.pop("penalty"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(fit, tmp_path, change):
    fit.save(tmp_path / "fit.bbl")
    meta, arrays = read_model(tmp_path / "fit.bbl", fit._kind)
    change(meta, arrays)
    write_model(tmp_path / "changed.bbl", meta, arrays, fit._kind)
    with pytest.raises(ModelFileError, match="is not a model saved by this package"):
        bbl.load(tmp_path / "changed.bbl")
