"""Averages of classifiers: their weights, `method="auto"`, `average`, files, missing values,
cross-validation.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import bbl
from bbl import networks
from bbl.boltzmann import averaging, refining, tuning
from bbl.engines import Conditional
from bbl.engines.conditional import engine as conditional
from bbl.errors import BBLTypeError, DataError, OptionError
from bbl.stats.averaging import averaged_scores, convex_weights
from bbl.stats.calibration import fit_calibration
from bbl.storage import read_model, write_model


def make_frame(n=240, seed=0, K=2):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (n, 4))
    y = np.where(
        rng.random(n) < 0.8, (codes[:, 0] * codes[:, 1] + codes[:, 2]) % K, rng.integers(0, K, n)
    )
    return pd.DataFrame(codes.astype(str), columns=list("abcd")).assign(y=y.astype(str))


@pytest.fixture(scope="module")
def data():
    return make_frame()


@pytest.fixture(scope="module")
def auto(data):
    return bbl.bbl("y ~ .^2", data, method="auto", verbose=0)


@pytest.mark.parametrize("a", [1.0, 0.3, np.array([1.0, 0.03, 0.5])], ids=str)
def test_weights_are_the_maximum(a):
    rng = np.random.default_rng(0)
    log_p, v = np.log(rng.random((3, 50))), rng.integers(1, 4, 50).astype(float)
    log_p[:, 7] = -np.inf  # all say that it cannot be
    log_p[1, 3] = -np.inf

    def loss(x):
        w = np.exp(x - np.logaddexp.reduce(x))
        p = np.delete(w @ np.exp(log_p), 7)
        return -(np.delete(v, 7) @ np.log(p)) - (a * np.log(w)).sum()

    x = minimize(loss, np.zeros(3), tol=1e-12).x
    np.testing.assert_allclose(
        convex_weights(log_p, v, a), np.exp(x - np.logaddexp.reduce(x)), atol=1e-5
    )
    np.testing.assert_allclose(
        convex_weights(np.repeat(log_p, v.astype(int), axis=1), np.ones(int(v.sum())), a),
        convex_weights(log_p, v, a),
        atol=1e-9,
    )
    np.testing.assert_allclose(
        convex_weights(log_p[:, 7:8], v[7:8], a), np.ones(3) * a / np.sum(np.ones(3) * a)
    )


def test_the_average_is_of_probabilities_and_leaves_rows_to_members_that_can():
    p = np.array([[[0.2, 0.8], [0.5, 0.5]], [[0.6, 0.4], [0.9, 0.1]]])
    found = np.exp(
        averaged_scores(np.log(p) + 3.0, np.array([0.25, 0.75]), [np.array([False, True]), None])
    )
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.9, 0.1]], atol=1e-12)


@pytest.mark.long
def test_auto_tunes_calibrates_and_weighs_its_members(auto, data):
    table = auto.tuning
    assert list(table.index) == [
        "mf",
        "pseudo 1",
        "conditional 1",
        "conditional 2",
        "naive",
        "pseudo 2",
        "conditional 3",
        "blanket",
        "boosting",
    ]
    assert (table["weight"] > 0).all() and table["weight"].sum() == pytest.approx(1.0)
    assert "prior_count=1" in table.loc["pseudo 1", "setting"]
    assert all(member.estimate.calibration is not None for member in auto.members)
    p = [
        np.asarray(member.predict(data, type="prob").iloc[:, :2], dtype=float)
        for member in auto.members
    ]
    own = auto.predict(data, type="prob").iloc[:, :2].to_numpy(dtype=float)
    np.testing.assert_allclose(own, np.tensordot(table["weight"], p, 1), atol=1e-12)
    assert "conditional" in str(auto) and "Members" in str(auto.summary())
    assert set(auto.coef()) == set(table.index)
    pd.testing.assert_frame_equal(
        auto.tuning, bbl.bbl("y ~ .^2", data, method="auto", verbose=0, n_jobs=2).tuning
    )


def test_large_models_are_left_out_and_named(monkeypatch, tmp_path):
    # 8 fields and 24 couplings in each of 3 groups; without column d, which is noise, 6 and 12
    data = make_frame(300, K=3)
    limited = [
        replace(candidate, most_parameters=95 if candidate.most_parameters else None)
        for candidate in averaging.CANDIDATES
    ]
    monkeypatch.setattr(averaging, "CANDIDATES", tuple(limited))
    fit = bbl.bbl("y ~ .^2", data, method="auto", verbose=0)
    table = fit.tuning
    assert list(table.index) == ["conditional 1", "naive", "pseudo", "conditional 2"]
    assert "interactions=none" in table.loc["conditional 1", "setting"]
    assert table.loc[["pseudo", "conditional 2"], "setting"].str.contains("relevance").all()
    note = "mf, pseudo, conditional, blanket, boosting (too many parameters with all pairs)"
    assert f"Left out: {note}" in repr(fit)
    assert note in " ".join(str(fit.summary()).split())
    fit.save(tmp_path / "fit.bbl")
    assert repr(bbl.load(tmp_path / "fit.bbl")) == repr(fit)


@pytest.mark.long
def test_fewer_folds_are_used_for_large_tables(data, auto, monkeypatch):
    monkeypatch.setattr(averaging, "MANY_CELLS", 1000)
    fit = bbl.bbl("y ~ .^2", data, method="auto", verbose=0)
    for average, n_folds in ((auto, 5), (fit, 3)):
        scored = [member.tuning.scored for member in average.members]
        assert {len(np.unique(of_member.fold)) for of_member in scored} == {n_folds}
    assert "Left out" not in repr(fit)


@pytest.mark.long
@pytest.mark.parametrize(("sure", "taken"), [(0.9, 1.0), (0.99, 0.1)])
def test_the_prior_count_of_less_loss_out_of_fold_is_taken(sure, taken, monkeypatch):
    # in groups so small one observation more is much
    rng, y = np.random.default_rng(0), np.repeat(np.arange(8), 8)
    codes = np.where(
        rng.random((64, 6)) < sure,
        (y[:, None] >> np.arange(6) % 3) & 1,
        rng.integers(0, 3, (64, 6)),
    )
    rows = pd.DataFrame(codes.astype(str), columns=list("abcdef")).assign(y=y.astype(str))
    losses = {}
    for counts in ((1.0,), (0.1,), (1.0, 0.1)):
        variants = tuple(
            bbl.PseudoLikelihood(prior_count=count, tolerance=1e-6) for count in counts
        )
        candidate = averaging.Candidate(variants, bbl.PseudoLikelihood.tuned.grid)
        monkeypatch.setattr(averaging, "CANDIDATES", (candidate,))
        found = bbl.bbl("y ~ .", rows, method="auto", verbose=0).tuning.loc["pseudo"]
        losses[counts] = found["log_loss"]
    # the search of one alone begins at a larger penalty, so its fits differ in the last bits
    assert losses[1.0, 0.1] == pytest.approx(losses[(taken,)], rel=1e-12)
    assert losses[1.0, 0.1] < 0.999 * max(losses.values())
    assert found["setting"].endswith(f"prior_count={taken:g}")


@pytest.mark.long
def test_few_rows_hold_calibrations_firmly_and_many_as_always(auto, data, monkeypatch):
    few_are_many(monkeypatch)
    many = bbl.bbl("y ~ .^2", data, method="auto", verbose=0)
    for fit, kind in ((auto, "firm"), (many, "temperature")):
        # the class proportions are not calibrated
        members = [member for member in fit.members if member.tuning.scored is not None]
        assert len(members) >= 5
        for member in members:
            own = member.tuning.scored
            found = fit_calibration(own.scores[0], own.y, own.weights, kind)
            assert member.estimate.calibration.temperature == pytest.approx(
                found.temperature, rel=1e-6
            )


@pytest.mark.long
def test_where_pairs_decide_conditional_likelihood_is_hardly_penalised_and_calibrated_as_it_is_fitted():  # noqa: E501
    frame = make_frame(400, seed=3)
    frame["y"] = np.where(frame["a"].eq("0") ^ frame["b"].eq("1"), "u", "v")
    fit = bbl.bbl("y ~ .^2", frame, method="auto", verbose=0)
    found = fit.members[2].tuning
    assert fit.members[2].engine.ridge == found.values[found.chosen] < 1e-6
    assert found.loss[found.chosen] == found.loss.min()
    single = bbl.bbl(
        "y ~ .^2", frame, method="conditional", ridge="cv", calibrate="temperature", verbose=0
    )
    # the grid of the method by itself
    assert single.engine.ridge >= 1e-6 > fit.members[2].engine.ridge


@pytest.mark.long
def test_the_average_is_at_least_nearly_as_good_as_each_member_on_new_rows(auto):
    new = make_frame(2000, seed=5)
    losses = [member.evaluate(new).scores.loc["log-loss", "estimate"] for member in auto.members]
    assert auto.evaluate(new).scores.loc["log-loss", "estimate"] < min(losses) + 0.01


@pytest.mark.long
def test_weights_of_rows_are_repetitions_of_members(data):
    counted = data.value_counts().rename("n").reset_index()
    fit = bbl.bbl("y ~ .^2", counted, "n", method="auto", verbose=0)
    assert fit.nobs() == len(data) and fit.n_parameters == sum(m.n_parameters for m in fit.members)


def test_a_file_has_it_all(auto, data, tmp_path):
    for stored in (False, True):
        auto.with_priors("equal").save(tmp_path / "fit.bbl", store_data=stored)
        again = bbl.load(tmp_path / "fit.bbl")
        assert isinstance(again, bbl.AverageResults)
        pd.testing.assert_frame_equal(again.tuning, auto.tuning)
        pd.testing.assert_frame_equal(
            again.predict(data, type="prob"), auto.with_priors("equal").predict(data, type="prob")
        )
        assert again.nobs() == auto.nobs() and str(again.summary()) == str(auto.summary())
    pd.testing.assert_frame_equal(again.fitted(), auto.with_priors("equal").fitted())


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: {"member_weights": arrays["member_weights"] * 0.9},
        lambda arrays: {"member_weights": arrays["member_weights"][:-1]},
        lambda arrays: {"losses": arrays["losses"][:-1]},
        lambda arrays: {"priors": np.ones(1)},
        lambda arrays: {"other": np.ones(1)},
    ],
)
def test_files_of_averages_that_cannot_have_been_saved_are_refused(auto, change, tmp_path):
    path = tmp_path / "fit.bbl"
    auto.save(path)
    meta, arrays = read_model(path, auto._kind)
    write_model(path, meta, arrays | change(arrays), auto._kind)
    with pytest.raises(bbl.errors.ModelFileError, match="array"):
        bbl.load(path)


@pytest.mark.long
def test_what_is_unknown_is_left_to_members_that_sum_it_out(data):
    fit = bbl.bbl("y ~ .", data, method="auto", missing="marginal", verbose=0)
    unknown = data.copy()
    unknown.loc[0, "a"] = None
    found = fit.predict(unknown, type="prob").iloc[:, :2].to_numpy(dtype=float)
    needed = [member.estimate.needed for member in fit.members]  # column 0 is a
    able = [k for k, predictors in enumerate(needed) if predictors is None or 0 not in predictors]
    assert 0 < len(able) < len(fit.members)
    w = fit.member_weights[able] / fit.member_weights[able].sum()
    parts = [
        fit.members[k].predict(unknown.head(1), type="prob").iloc[0, :2].to_numpy(dtype=float)
        for k in able
    ]
    np.testing.assert_allclose(found[0], w @ parts, atol=1e-12)
    np.testing.assert_allclose(
        found[1:], fit.predict(data, type="prob").iloc[1:, :2].to_numpy(dtype=float)
    )
    trained = bbl.bbl("y ~ .", unknown, method="auto", missing="marginal", verbose=0)
    assert list(trained.tuning.index) == ["mf", "pseudo 1", "naive", "pseudo 2"]
    dropped = bbl.bbl("y ~ .", unknown, method="auto", missing="drop", verbose=0)
    assert dropped.nobs() == len(data) - 1 and dropped.predict(unknown)["yhat"].isna().tolist()[
        :2
    ] == [True, False]


def few_are_many(monkeypatch):
    """Let what is done to many rows be done to few."""
    monkeypatch.setattr(averaging, "SINGLE_HOLDOUT_ABOVE", 50)
    monkeypatch.setattr(averaging, "TUNING_ROWS", (80, 30))
    monkeypatch.setattr(conditional, "ROWS", 50)
    monkeypatch.setattr(refining, "COMPARISON_ROWS", (80, 30))
    monkeypatch.setattr(refining, "MIN_VISITS", 20_000)


@pytest.mark.long
@pytest.mark.parametrize("wanted", [None, "pseudo"])
def test_many_rows_are_held_out_once_and_fitted_alone_or_on_a_start(monkeypatch, wanted):
    few_are_many(monkeypatch)
    data = make_frame(1000)
    real = Conditional.by_batches

    def worse(self, sample, layout, K, given, rng):
        """Spoil the fit that is not wanted: no calibration mends what is noise."""
        found = real(self, sample, layout, K, given, rng)
        return (
            found
            if self.start == wanted
            else found._replace(theta=50.0 * np.sin(1e3 * found.theta))
        )

    monkeypatch.setattr(Conditional, "by_batches", worse)
    fit = bbl.bbl("y ~ .^2", data, method="auto", verbose=0)
    assert fit.members[2].engine.start == wanted
    assert np.isfinite(fit.losses).all()
    assert (
        fit.members[2].engine.lambda_
        == fit.members[1].tuning.values[0]
        <= fit.members[1].engine.lambda_
    )
    # each setting is that of least log-loss among those that all rows were fitted with
    for member in fit.members:
        own = member.tuning
        assert own.loss[own.chosen] == np.nanmin(own.loss)


@pytest.mark.long
def test_settings_of_many_rows_are_no_stronger_than_what_some_rows_choose(data, monkeypatch):
    few_are_many(monkeypatch)
    seen = []
    real = tuning.validate

    def watched(data, spec, values, folds, **options):
        if spec.relevance is None:
            n_train = np.count_nonzero(folds.train[0])
            seen.append((spec.engine.name, n_train, list(np.atleast_1d(values))))
        return real(data, spec, values, folds, **options)

    monkeypatch.setattr(tuning, "validate", watched)
    fit = bbl.bbl("y ~ .^2", data, method="auto", verbose=0)
    for name, sign, member in zip(("mf", "pseudo"), (1, -1), fit.members, strict=False):
        own = [call[1:] for call in seen if call[0] == name]
        some, whole = (
            [values for rows, values in own if (rows <= 80) == few] for few in (True, False)
        )
        assert some and whole and all(len(values) == 1 for values in whole)
        tried = sign * np.concatenate(whole)
        assert (np.diff(tried) > 0).all()  # from what some rows chose on, ever less simple
        assert (
            fit.tuning["setting"].notna().all()
            and sign * member.tuning.values[member.tuning.chosen] >= tried[0]
        )


@pytest.mark.long
def test_many_rows_are_predicted_about_as_well_as_few(data, monkeypatch):
    rows = make_frame(1000)
    new = make_frame(2000, seed=5)

    def loss(seed=None):
        fit = bbl.bbl("y ~ .^2", rows, method="auto", seed=seed, verbose=0)
        return fit.evaluate(new).scores.loc["log-loss", "estimate"]

    expected = loss()
    few_are_many(monkeypatch)
    # one set of 30 rows is validated, so that a single choice of settings varies much
    assert np.mean([loss(seed) for seed in range(3)]) < expected + 0.05
    counted = data.value_counts(sort=False).rename("n").reset_index()
    fit = bbl.bbl("y ~ .^2", data, method="auto", verbose=0)
    weighed = bbl.bbl("y ~ .^2", counted, "n", method="auto", verbose=0)
    pd.testing.assert_frame_equal(fit.tuning, weighed.tuning)
    unknown = data.copy()
    unknown.loc[0, "a"] = None
    trained = bbl.bbl("y ~ .", unknown, method="auto", missing="marginal", verbose=0)
    members = [name for name in trained.tuning.index if name != "class proportions"]
    assert members == ["mf", "pseudo 1", "pseudo 2"]


@pytest.mark.long
def test_rare_groups_and_few_rows_do_not_break_it():
    small = pd.concat([make_frame(24, K=3), make_frame(1).assign(y="rare")], ignore_index=True)
    fit = bbl.bbl("y ~ .^2", small, method="auto", verbose=0, novarOk=True)
    p = fit.predict(small, type="prob").drop(columns="yhat").to_numpy(dtype=float)
    assert (
        np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1.0) and np.isfinite(fit.losses).all()
    )


# groups that hardly differ
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
@pytest.mark.long
def test_it_is_cross_validated(data):
    cv = bbl.crossVal(
        "y ~ a * b + c",
        data,
        method="auto",
        nfold=2,
        shuffle=True,
        seed=1,
        score="logloss",
        verbose=0,
    )
    assert cv.maxscore < np.log(2) and isinstance(cv.model, bbl.AverageResults)
    assert len(cv.pooled) == len(data) and cv.evaluate().accuracy > 0.6
    last = bbl.crossVal(
        "y ~ a + b", data, method="auto", nfold=2, shuffle=True, seed=1, refit=False, verbose=0
    )
    assert last.predict(data).shape[1] == 3


def test_what_it_cannot_do_is_said(auto, data):
    with pytest.raises(OptionError, match="does not define a likelihood of rows"):
        auto.logLik()
    with pytest.raises(BBLTypeError, match="lambda_ is not.*its option"):
        bbl.bbl("y ~ .", data, method="auto", lambda_=0.1)
    with pytest.raises(OptionError, match="by temperature"):
        bbl.bbl("y ~ .", data, method="auto", calibrate="offset")
    with pytest.raises(OptionError, match="no response"):
        bbl.bbl("~ .", data, method="auto")


def test_fits_of_ones_own_are_averaged(data):
    fits = [
        bbl.bbl("y ~ .", data, method="naive"),
        bbl.bbl(
            "y ~ .^2", data, method="conditional", ridge="cv", calibrate="temperature", verbose=0
        ),
        networks.bnc("tan_cl", "y ~ .", data, smooth=1),
    ]
    both = bbl.average(fits)
    assert both.tuning["weight"].idxmin() == "naive" and np.isfinite(both.losses).all()
    equal = bbl.average(fits[:1] * 2, "equal")
    assert list(equal.tuning.index) == ["naive 1", "naive 2"]
    np.testing.assert_allclose(
        equal.predict(data, type="prob").iloc[:, 0].to_numpy(float),
        fits[0].predict(data, type="prob").iloc[:, 0].to_numpy(float),
    )
    with pytest.raises(OptionError, match="two fits"):
        bbl.average(fits[:1])
    with pytest.raises(OptionError, match="different predictors: .*Hint: Fit all"):
        bbl.average([fits[0], bbl.bbl("y ~ a", data, method="naive")])
    levels = sorted(data["a"].unique(), reverse=True)
    with pytest.raises(
        OptionError, match=r"levels of 'a': .*Hint: Fit all models with xlevels=\{'a': \["
    ):
        bbl.average([fits[0], bbl.bbl("y ~ .", data, method="naive", xlevels={"a": levels})])
    other = data.assign(y=data["y"].map(lambda y: f"other {y}"))
    with pytest.raises(OptionError, match="different groups: .*'other "):
        bbl.average([fits[0], bbl.bbl("y ~ .", other, method="naive")])
    with pytest.raises(BBLTypeError, match="fitted classifiers"):
        bbl.average([fits[0], 3])
    with pytest.raises(DataError, match="different rows"):
        bbl.average([fits[0], bbl.bbl("y ~ .", data.iloc[::-1], method="naive")])


@pytest.mark.long
def test_it_is_an_estimator(data):
    sklearn = pytest.importorskip("bbl.sklearn")
    X, y = data[["a", "b"]], data["y"]
    assert sklearn.BBLClassifier().method == "auto"
    model = sklearn.BBLClassifier(class_weight="balanced").fit(X, y)
    assert isinstance(model.result_, bbl.AverageResults)
    unseen = X.copy()
    unseen.iloc[0, 0] = "never seen"
    p = model.predict_proba(unseen)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(p[1:], model.predict_proba(X)[1:])
    with pytest.raises((TypeError, ValueError), match="lambda_"):
        sklearn.BBLClassifier("auto", lambda_=0.1).fit(X, y)


@pytest.mark.long
def test_weights_are_repeated_rows_in_any_order(data):
    counted = data.value_counts(sort=False).rename("n").reset_index()
    raw = bbl.bbl("y ~ .^2", data.sample(frac=1.0, random_state=1), method="auto", verbose=0)
    weighed = bbl.bbl("y ~ .^2", counted, "n", method="auto", verbose=0)
    pd.testing.assert_frame_equal(raw.tuning, weighed.tuning)
    pd.testing.assert_frame_equal(
        raw.predict(data, type="prob"), weighed.predict(data, type="prob")
    )


@pytest.mark.parametrize("weights", ["equal", "cv"])
def test_priors_of_members_are_those_of_the_average(data, weights):
    plain = [bbl.bbl("y ~ .", data, method=m, verbose=0) for m in ("pseudo", "mf")]
    turned = [fit.with_priors({"0": 0.9, "1": 0.1}) for fit in plain]
    fit = bbl.average(turned, weights)
    assert fit.priors.tolist() == [0.9, 0.1]
    own = bbl.average(plain, weights)
    assert own.priors is None and fit.member_weights.tolist() == own.member_weights.tolist()
    expected = own.predict(data, type="prob", priors={"0": 0.9, "1": 0.1})
    pd.testing.assert_frame_equal(fit.predict(data, type="prob"), expected)
    with pytest.raises(OptionError, match="differ.*priors"):
        bbl.average([turned[0], plain[1]], weights)
    assert bbl.average([each.with_priors(None) for each in turned], weights).with_priors(
        "equal"
    ).priors.tolist() == [
        0.5,
        0.5,
    ]


@pytest.mark.long
def test_any_classifier_may_be_a_member(data, tmp_path):
    given = {"xlevels": {name: ["0", "1", "2"] for name in "abcd"}}
    members = [
        bbl.bbl("y ~ .", data, verbose=0, **given),
        bbl.shooter("y ~ .", data, lambda_=5.0, verbose=0, **given),
        networks.bnc("nb", "y ~ .", data, 1, **given),
    ]
    fit = bbl.average(members, "equal")
    p = np.mean([m.predict(data, type="prob").iloc[:, :2].to_numpy(float) for m in members], axis=0)
    np.testing.assert_allclose(
        fit.predict(data, type="prob").iloc[:, :2].to_numpy(float), p, atol=1e-12
    )
    both = bbl.average([fit, members[0]], "equal")
    both.save(tmp_path / "fit.bbl")
    again = bbl.load(tmp_path / "fit.bbl")
    pd.testing.assert_frame_equal(again.predict(data), both.predict(data))
    assert again.tuning.index.tolist() == ["average", "pseudo"]
    for others in ([members[0], members[1]], [fit, members[0]]):
        with pytest.raises(
            OptionError,
            match="every model on the training rows.*weights='equal'",
        ):
            bbl.average(others)
    with pytest.raises(
        BBLTypeError, match="members must be fitted classifiers; got DensityResults"
    ):
        bbl.average([members[0], bbl.bbl("~ .", data, verbose=0)])


def test_the_strictest_policy_of_missing_values_is_that_of_the_average(data, tmp_path):
    given = {"xlevels": {name: ["0", "1", "2"] for name in "abcd"}}
    strict = bbl.bbl("y ~ .", data, verbose=0, **given)
    drops, sums = (
        networks.bnc("nb", "y ~ .", data, 1, missing=missing, **given)
        for missing in ("drop", "marginal")
    )
    lacking = data.head(3).astype(object)
    lacking.loc[0, "a"] = None
    for members, found in (
        ([strict, sums], "raise"),
        ([sums, strict], "raise"),
        ([sums, drops], "drop"),
    ):
        fit = bbl.average(members, "equal")
        fit.save(tmp_path / "fit.bbl")
        for each in (fit, bbl.load(tmp_path / "fit.bbl")):
            assert each.design.missing == found
    assert fit.predict(lacking)["yhat"].isna().tolist() == [True, False, False]
    with pytest.raises(DataError, match="'a'"):
        bbl.average([sums, strict], "equal").predict(lacking)


def test_other_groups_of_the_same_rows_are_other_rows(data):
    shuffled = data.assign(y=data["y"].to_numpy()[::-1])
    fits = [bbl.bbl("y ~ .", each, verbose=0) for each in (data, shuffled)]
    with pytest.raises(DataError, match="different rows"):
        bbl.average(fits)


def test_coefficients_are_those_of_the_members_that_have_some(data):
    nets = [
        networks.bnc(learner, "y ~ .", data, smooth=1, verbose=0) for learner in ("nb", "tan_cl")
    ]
    machine = bbl.bbl("y ~ .", data, method="naive", verbose=0)
    assert list(bbl.average([*nets, machine], "equal").coef()) == ["naive"]
    with pytest.raises(
        OptionError, match=r"No member of this average has coefficients.*fit\.members\[0\]\.params"
    ):
        bbl.average(nets, "equal").coef()
    assert bbl.average(nets, "equal").members[0].params


def weak_fit(seed):
    """Return 120 rows of which one predictor tells the groups apart a little, 400 new rows, and the
    fit.
    """
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (520, 6))
    frame = pd.DataFrame(codes, columns=list("abcdef")).astype(str)
    frame["y"] = np.where(rng.random(520) < 0.2 + 0.3 * (codes[:, 0] == 1), "p", "q")
    return frame[:120], frame[120:], bbl.bbl("y ~ .", frame[:120], method="auto", verbose=0)


@pytest.fixture(scope="module")
def weak():
    return weak_fit(7)


@pytest.mark.long
def test_the_average_does_not_lose_to_the_class_proportions(weak):
    """Means over samples: the average predicts better than the class proportions, and than its
    other members without them.
    """
    losses = []
    for _, new, fit in (weak, *map(weak_fit, (8, 9, 10))):
        observed = (new["y"] == "q").to_numpy().astype(int)
        members = [
            m.predict(new, type="prob").drop(columns="yhat").to_numpy(float) for m in fit.members
        ]
        assert np.allclose(members[-1], fit.class_shares)
        others = np.average(members[:-1], axis=0, weights=fit.member_weights[:-1])
        average = fit.predict(new, type="prob").drop(columns="yhat").to_numpy(float)
        losses.append(
            [
                -np.log(p[np.arange(len(new)), observed]).mean()
                for p in (average, members[-1], others)
            ]
        )
    average, shares, others = np.mean(losses, axis=0)
    assert average < shares - 0.01 and average < others


@pytest.mark.long
def test_class_proportions_are_a_member_where_the_average_hardly_beats_them(weak, auto, tmp_path):
    assert "class proportions" not in auto.names  # clearly better
    rows, _, fit = weak
    assert fit.names[-1] == "class proportions" and 0.0 < fit.member_weights[-1] < 1.0
    assert np.isclose(fit.member_weights.sum(), 1.0)
    fit.save(tmp_path / "weak.bbl")
    loaded = bbl.load(tmp_path / "weak.bbl")
    assert loaded.names == fit.names
    assert loaded.predict(rows, type="prob").equals(fit.predict(rows, type="prob"))
