"""Evaluation: against scikit-learn and by hand, its corners, priors and costs, what it shows and
draws.
"""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import trapezoid

import bbl
from bbl import networks
from bbl.errors import BBLTypeError, DataError, LevelError, OptionError

matplotlib.use("Agg")
sk = pytest.importorskip("sklearn.metrics")


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fits(titanic):
    return {
        "bbl": bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq"),
        "naive": bbl.bbl("Survived ~ .", titanic, "Freq", "naive", calibrate="temperature"),
        "tan": networks.bnc("tan_cl", "Survived ~ .", titanic, 1, weights="Freq"),
        "aode": networks.bnc("aode", "Survived ~ .", titanic, 1, weights="Freq"),
    }


@pytest.fixture(scope="module")
def digits():
    table = bbl.datasets.load_mnist().query("y in (1, 4, 7, 9)")
    table = table.loc[:, table.nunique() > 1].iloc[:, [0, *range(100, 140)]]
    return table.loc[:, table.nunique() > 1]


@pytest.mark.long
def test_numbers_are_those_of_scikit_learn(digits):
    rng = np.random.default_rng(0)
    w = rng.integers(0, 4, len(digits))
    fit = bbl.bbl("y ~ .", digits, method="naive", prior_count=1)
    found = fit.evaluate(digits, weights=w)
    p = fit.predict(digits, type="prob")
    truth, P, groups = digits["y"], p.iloc[:, :-1].to_numpy(), list(fit.labels.groups)
    yhat = p["yhat"].astype(truth.dtype)
    shared = {"sample_weight": w}
    score = found.scores["estimate"]
    assert score["accuracy"] == pytest.approx(sk.accuracy_score(truth, yhat, **shared))
    assert score["balanced accuracy"] == pytest.approx(
        sk.balanced_accuracy_score(truth, yhat, **shared)
    )
    assert score["log-loss"] == pytest.approx(sk.log_loss(truth, P, labels=groups, **shared))
    hit = truth.to_numpy()[:, None] == np.array(groups)
    assert score["Brier score"] == pytest.approx(
        np.average(((P - hit) ** 2).sum(axis=1), weights=w)
    )
    each = [sk.roc_auc_score(hit[:, k], P[:, k], **shared) for k in range(4)]
    np.testing.assert_allclose(found.report["AUC"], each, atol=1e-12)
    assert score["AUC"] == pytest.approx(np.mean(each))
    np.testing.assert_array_equal(
        found.confusion, sk.confusion_matrix(truth, yhat, labels=groups, **shared)
    )
    wanted = np.array(sk.precision_recall_fscore_support(truth, yhat, labels=groups, **shared)).T
    np.testing.assert_allclose(
        found.report[["precision", "recall", "F1", "support"]], wanted, atol=1e-12
    )
    fpr, tpr, _ = sk.roc_curve(hit[:, 0], P[:, 0], drop_intermediate=False, **shared)
    curve = found.roc(groups[0])
    mine = set(zip(curve["fpr"].round(9), curve["tpr"].round(9), strict=True))
    assert set(zip(fpr.round(9), tpr.round(9), strict=True)) <= mine
    assert trapezoid(curve["tpr"], curve["fpr"]) == pytest.approx(each[0])


@pytest.mark.long
def test_every_classifier_has_it_and_a_weight_is_a_repeated_row(fits, titanic):
    raw = bbl.freq2raw(titanic, "Freq")
    for name, fit in fits.items():
        weighted, repeated = fit.evaluate(titanic, weights="Freq"), fit.evaluate(raw)
        pd.testing.assert_frame_equal(weighted.scores, repeated.scores, rtol=1e-9)
        assert (
            weighted.accuracy
            == fit.score(titanic, "Freq")
            == fit.score()
            == fit.evaluate().accuracy
        ), name
        limits = weighted.scores
        assert (
            (limits["lower"] < limits["estimate"]) & (limits["estimate"] < limits["upper"])
        ).all()
        wider = fit.evaluate(titanic, weights="Freq", level=0.99).scores
        assert (wider["lower"] < limits["lower"]).all() and (wider["upper"] > limits["upper"]).all()
    assert fits["tan"].score("accuracy", titanic, "Freq") == fits["tan"].score(titanic, "Freq")
    with pytest.raises(OptionError, match="Did you mean 'loglik'"):
        fits["tan"].score("logLik")


def test_weights_that_are_no_counts_stand_for_as_many_rows_as_tell_the_same(fits, titanic):
    fit, w = fits["bbl"], titanic["Freq"].to_numpy(float)
    # the estimates stay, and limits know of unequal weights, not of their unit
    for scale in (0.5, 2.0 / 3.0):
        found = fit.evaluate(titanic, weights=scale * w + 0.25 * scale)
        other = fit.evaluate(titanic, weights=w / 7 + 0.25 / 7)
        pd.testing.assert_frame_equal(found.scores, other.scores, rtol=1e-6)
    alike = fit.evaluate(titanic, weights=np.full(len(titanic), 0.5)).scores
    pd.testing.assert_frame_equal(
        alike, fit.evaluate(titanic.drop(columns="Freq")).scores, rtol=1e-6
    )


def test_the_baseline_is_what_the_shares_of_the_groups_get(fits, titanic):
    found = fits["bbl"].evaluate().scores["baseline"]
    share = titanic.groupby("Survived", observed=True)["Freq"].sum() / titanic["Freq"].sum()
    entropy = -(share * np.log(share)).sum()
    np.testing.assert_allclose(found, [share.max(), 0.5, entropy, 1 - (share**2).sum(), 0.5])


def test_rows_without_prediction_or_group_are_left_out_and_counted(titanic):
    holes = titanic.astype({"Sex": object})
    gone = titanic["Freq"].idxmax()
    holes.loc[gone, "Sex"] = None
    fit = bbl.bbl("Survived ~ .", holes, "Freq", missing="drop")
    found = fit.evaluate(holes, weights="Freq")
    assert found.left_out == titanic["Freq"].max() and "Left out: " in repr(found)
    assert found.weights.sum() == titanic["Freq"].sum() - titanic["Freq"].max()
    unknown = titanic.astype({"Survived": object})
    unknown.loc[gone, "Survived"] = None
    network = networks.bnc("nb", "Survived ~ .", unknown, 1, weights="Freq")
    assert network.evaluate(unknown, weights="Freq").left_out == titanic["Freq"].max()


def test_bad_input_is_named(fits, titanic):
    fit = fits["bbl"]
    with pytest.raises(DataError, match="'Survived'"):
        fit.evaluate(titanic.drop(columns="Survived"))
    with pytest.raises(LevelError, match="'Perhaps'"):
        fit.evaluate(titanic.assign(Survived="Perhaps"))
    with pytest.raises(DataError, match="Did you mean 'Freq'"):
        fit.evaluate(titanic, weights="freq")
    with pytest.raises(DataError, match="finite and non-negative"):
        fit.evaluate(titanic, weights=-np.ones(len(titanic)))
    with pytest.raises(OptionError, match="level"):
        fit.evaluate(level=1.5)
    with pytest.raises(OptionError, match="Did you mean 'Yes'"):
        fit.evaluate().roc("yes")
    with pytest.raises(DataError, match="None of the new rows"):
        drop = bbl.bbl("Survived ~ .", titanic, "Freq", missing="drop")
        drop.evaluate(titanic.assign(Sex=None))


def test_one_group_in_the_rows_has_no_area_and_one_row_has_limits(fits, titanic):
    found = fits["bbl"].evaluate(titanic[titanic["Survived"] == "Yes"].drop(columns="Freq").head(1))
    assert np.isnan(found.scores.loc["AUC", ["estimate", "lower", "upper"]].astype(float)).all()
    assert found.scores.loc["accuracy", "upper"] - found.scores.loc["accuracy", "lower"] > 0.9
    assert np.isnan(found.report.loc["No", "recall"])
    assert found.plot("roc").get_legend() is None


def test_priors_follow_bayes_rule_and_leave_the_parameters_alone(fits, titanic):
    own = {"No": 0.9, "Yes": 0.1}
    for fit in fits.values():
        p, q = (
            fit.predict(titanic, type="prob", priors=x).iloc[:, :2].to_numpy() for x in (None, own)
        )
        odds = p[:, 1] / p[:, 0] * (0.1 / 0.9) / (fit.class_shares[1] / fit.class_shares[0])
        np.testing.assert_allclose(q[:, 1] / q[:, 0], odds, rtol=1e-9)
        kept = fit.with_priors(own)
        pd.testing.assert_frame_equal(
            kept.predict(titanic), fit.predict(titanic, priors=pd.Series(own))
        )
        assert float(kept.logLik()) == float(fit.logLik()) and fit.priors is None
        assert kept.evaluate().accuracy == fit.evaluate(priors=[0.9, 0.1]).accuracy
        assert "Priors: No: 0.9, Yes: 0.1" in str(kept.summary())


def test_priors_of_a_fit_are_in_its_file(titanic, tmp_path):
    fits = (
        bbl.bbl("Survived ~ .", titanic, "Freq", priors="equal"),
        networks.bnc("nb", "Survived ~ .", titanic, 1, weights="Freq", priors="equal"),
        networks.lp(
            networks.nb("Survived ~ .", titanic, weights="Freq"),
            titanic,
            1,
            weights="Freq",
            priors="equal",
        ),
    )
    for fit in fits:
        fit.save(tmp_path / "fit.bbl")
        again = bbl.load(tmp_path / "fit.bbl")
        np.testing.assert_array_equal(again.priors, [0.5, 0.5])
        pd.testing.assert_frame_equal(
            again.predict(titanic), fit.predict(titanic), check_exact=True
        )
        assert str(again.summary()) == str(fit.summary())


def test_a_group_of_prior_zero_is_never_predicted(fits, titanic):
    p = fits["bbl"].predict(titanic, type="prob", priors=[1, 0])
    assert (p["Yes"] == 0).all() and (p["yhat"] == "No").all()


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"No": 0.5}, "no entry for group 'Yes'"),
        ({"No": 0.5, "Maybe": 0.5}, "'Maybe'"),
        ([0.5, 0.6], "sum to 1.1"),
        ([0.5], "2 numbers"),
        ([1.5, -0.5], "not negative"),
        ("flat", "'equal'"),
    ],
)
def test_priors_that_are_none_are_refused(fits, titanic, priors, words):
    with pytest.raises(OptionError, match=words):
        fits["bbl"].predict(titanic, priors=priors)
    with pytest.raises(OptionError, match=words):
        bbl.bbl("Survived ~ .", titanic, "Freq", priors=priors)


def test_costs_choose_the_group_of_least_expected_cost(fits, titanic):
    costs = pd.DataFrame([[0, 1], [5, 0]], index=["No", "Yes"], columns=["No", "Yes"])
    for fit in fits.values():
        p = fit.predict(titanic, type="prob", costs=costs)
        wanted = np.where(5 * p["Yes"] > p["No"], "Yes", "No")
        np.testing.assert_array_equal(p["yhat"], wanted)
        np.testing.assert_array_equal(
            fit.predict(titanic, type="class", costs={"Yes": {"No": 5}, "No": {"Yes": 1}}), wanted
        )
        found = fit.evaluate(titanic, weights="Freq", costs=costs.iloc[::-1, ::-1])
        table = found.confusion
        total = table.loc["No", "Yes"] + 5 * table.loc["Yes", "No"]
        assert found.scores.loc["cost", "estimate"] == pytest.approx(total / titanic["Freq"].sum())
        n = titanic.groupby("Survived", observed=True)["Freq"].sum()
        assert found.scores.loc["cost", "baseline"] == pytest.approx(
            min(n["No"], 5 * n["Yes"]) / n.sum()
        )


def test_costs_that_are_none_are_refused(fits, titanic):
    for costs, words in (
        ([[0, 1]], "2 x 2"),
        ({"Yes": {"Maybe": 1}}, "'Maybe'"),
        ([[0, -1], [1, 0]], "not negative"),
        (pd.DataFrame([[0, 1], [1, 0]]), "not a group"),
    ):
        with pytest.raises(OptionError, match=words):
            fits["bbl"].predict(titanic, costs=costs)
    with pytest.raises(BBLTypeError, match="dict"):
        fits["bbl"].predict(titanic, costs={"Yes": 3})


def test_cross_validated_predictions_are_evaluated(titanic):
    cv = bbl.crossVal(
        "Survived ~ .", titanic, "Freq", lambda_=[0.01, 1], shuffle=True, seed=1, score="logloss"
    )
    found, table = (
        cv.evaluate(),
        cv.compare().set_index(["lambda", "calibrate"]).loc[(cv.regstar, "none")],
    )
    assert found.scores["estimate"].to_dict() == pytest.approx(
        {
            "accuracy": table["accuracy"],
            "balanced accuracy": found.report["recall"].mean(),
            "log-loss": table["logloss"],
            "Brier score": table["brier"],
            "AUC": table["AUC"],
        }
    )
    assert "5 folds" in repr(found) and cv.evaluate(priors=[1, 0]).confusion["Yes"].sum() == 0
    assert cv.evaluate(costs=[[0, 0], [1, 0]]).confusion["No"].sum() == 0
    for kind in ("cv", "confusion", "roc", "calibration"):
        cv.plot(kind=kind)
        plt.close("all")


def test_figures_say_what_they_show(fits, digits, titanic):
    ax = fits["bbl"].plot(kind="confusion", newdata=titanic, weights="Freq")
    assert {t.get_text() for t in ax.texts} == {"1,470", "20", "452", "259"}
    assert [t.get_text() for t in ax.get_yticklabels()] == ["No", "Yes"]
    ax = fits["tan"].plot(kind="roc")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["Yes: AUC 0.768", "chance"]
    many = bbl.bbl("y ~ .", digits, method="naive", prior_count=1).evaluate()
    assert len(many.plot("roc").get_legend().get_texts()) == 5
    assert len(many.plot("roc", groups=[7]).get_legend().get_texts()) == 2
    assert len(fits["bbl"].plot(kind="calibration")) == 2
    with pytest.raises(OptionError, match="Did you mean 'confusion'"):
        fits["bbl"].plot(kind="confusions")
    with pytest.raises(DataError, match="crossVal"):
        fits["bbl"].plot(kind="cv")
    tuned = bbl.bbl("Survived ~ .", titanic, "Freq", "mf", eps="cv")
    assert tuned.plot(kind="cv").get_ylabel() == "log-loss"
    plt.close("all")


@pytest.mark.long
def test_long_names_of_six_groups_stay_apart_in_the_figures():
    rng = np.random.default_rng(0)
    names = [f"a group with a very long name, number {k} of six" for k in range(6)]
    y = rng.integers(0, 6, 600)
    a = np.where(rng.random(600) < 0.5, y % 3, rng.integers(0, 3, 600))
    data = pd.DataFrame(
        {"a": a, "b": rng.integers(0, 3, 600), "response": np.array(names, dtype=object)[y]}
    )
    found = bbl.bbl("response ~ .", data).evaluate()
    ax = found.plot()
    ax.figure.canvas.draw()
    inside = ax.figure.bbox
    for side in (ax.get_xticklabels(), ax.get_yticklabels()):
        assert len({t.get_text() for t in side}) == 6
        assert all(
            inside.contains(*corner) for t in side for corner in t.get_window_extent().get_points()
        )
    assert len({t.get_text() for t in found.plot("roc").get_legend().get_texts()}) == 7
    plt.close("all")


def test_markup_escapes_names():
    data = {"y": ["<b>", "&"] * 20, "a": [0, 1, 1, 1] * 10}
    found = bbl.bbl("y ~ a", data).evaluate()
    assert "&lt;b&gt;" in found.as_html() and "<b>" not in found.as_html()
    assert r"\textless{}b\textgreater{}" in found.as_latex()
    assert found._repr_html_() == found.as_html()


def test_a_log_loss_says_where_it_is_floored(titanic, fits):
    fit = fits["bbl"]
    assert fit.evaluate().floored == (0.0, 0.0) and "1e-15" not in str(fit.evaluate())
    never = fit.evaluate(priors={"No": 1, "Yes": 0})
    assert never.floored == (711.0, 711.0)
    assert never.scores.loc["log-loss", "estimate"] == pytest.approx(-711 / 2201 * np.log(1e-15))
    assert (
        "Of these, 711 have probability 0, and the log-loss would be infinite without the floor"
        in " ".join(str(never).split())
    )
    rare = fit.evaluate(priors={"No": 1 - 1e-20, "Yes": 1e-20})
    assert rare.floored == (711.0, 0.0) and "affects 711 observations." in str(rare)
    assert "infinite" not in str(rare) and "1e-15" in rare.as_html() and "1e-15" in rare.as_latex()
