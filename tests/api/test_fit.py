"""The verbs as a user calls them: bbl, predict, mlestimate, save and load, and what bad input
gets.
"""

import itertools
import sys

import numpy as np
import pandas as pd
import pytest
import reference as oracle
from interrupts import unheard

import bbl
from bbl.errors import BBLTypeError, DataError, LevelError, OptionError
from bbl.memory import MemoryLimitError

FORMULA = "Survived ~ Class * Sex + Sex * Age"


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fit(titanic):
    return bbl.bbl(FORMULA, titanic, weights="Freq")


def random_frame(n=200, levels=(2, 3, 4), K=3, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {f"x{i}": [f"{'abcd'[v]}" for v in rng.integers(0, L, n)] for i, L in enumerate(levels)}
    )
    frame.insert(0, "y", [f"g{v}" for v in rng.integers(0, K, n)])
    return frame


@pytest.mark.parametrize("log_z", ["exact", "pseudo", "half"])
def test_probabilities_are_those_of_the_oracle(log_z):
    data, levels = random_frame(), [2, 3, 4]
    fit = bbl.bbl("y ~ .^2", data, lambda_=0.05, lambdah=0.05, log_z=log_z)
    groups = sorted(data["y"].unique())
    codes = np.column_stack(
        [data[f"x{i}"].map({c: k for k, c in enumerate("abcd")}) for i in range(3)]
    )
    E, lz, share = [], [], []
    for g in groups:
        x = codes[data["y"] == g]
        exact = oracle.PseudoFit(x, np.ones(len(x)), levels, None, 0.05, 0.05)
        E.append(oracle.energy(exact.h, exact.J, codes))
        lz.append(
            oracle.log_partition(exact.h, exact.J, levels)
            if log_z == "exact"
            else exact.log_z(log_z == "half")
        )
        share.append(len(x) / len(data))
    links, prob = oracle.posterior(np.array(E).T, np.array(lz), np.array(share))
    np.testing.assert_allclose(fit.predict(type="prob").iloc[:, :3], prob, atol=1e-9)
    np.testing.assert_allclose(fit.predict().iloc[:, :3], links, atol=1e-8)
    assert (fit.predict(type="class") == np.array(groups)[prob.argmax(axis=1)]).all()
    np.testing.assert_allclose(fit.fitted(), prob, atol=1e-9)
    hit = np.array(groups)[prob.argmax(axis=1)] == data["y"]
    np.testing.assert_array_equal(fit.residuals(), hit.astype(int))
    own = np.searchsorted(groups, data["y"])
    log_lik = sum(E[g][k] - lz[g] for k, g in enumerate(own))
    assert fit.logLik() == pytest.approx(log_lik, abs=1e-7)
    if log_z == "exact":
        assert fit.aic == pytest.approx(-2 * log_lik + 2 * 3 * fit.estimate.parameters.layout.size)
        assert fit.bic == pytest.approx(
            -2 * log_lik + np.log(200) * 3 * fit.estimate.parameters.layout.size
        )
    else:
        with pytest.raises(OptionError, match="AIC and BIC are not available"):
            _ = fit.aic


@pytest.mark.parametrize(
    ("method", "options", "tolerance"),
    [("pseudo", {"lambda_": 1e-3}, 1e-8), ("mf", {}, 1e-10), ("naive", {}, 1e-10)],
)
def test_weights_are_repeated_rows_in_every_number(titanic, method, options, tolerance):
    raw = bbl.freq2raw(titanic, "Freq")
    formula = "Survived ~ .^2"
    one = bbl.bbl(formula, titanic, "Freq", method, **options)
    other = bbl.bbl(formula, raw, None, method, **options)
    np.testing.assert_allclose(
        one.estimate.parameters.theta, other.estimate.parameters.theta, atol=tolerance
    )
    np.testing.assert_allclose(
        one.estimate.parameters.pooled, other.estimate.parameters.pooled, atol=tolerance
    )
    np.testing.assert_allclose(one.log_z, other.log_z, atol=tolerance)
    assert one.lkh == pytest.approx(other.lkh, rel=tolerance)
    assert float(one.logLik()) == pytest.approx(float(other.logLik()), rel=tolerance)
    assert one.nobs() == other.nobs() == 2201
    cells = titanic[["Class", "Sex", "Age"]]
    pd.testing.assert_frame_equal(one.predict(cells), other.predict(cells), rtol=1e-7)
    pd.testing.assert_frame_equal(
        one.summary().tables["tests"], other.summary().tables["tests"], rtol=1e-9
    )
    if method == "pseudo":
        np.testing.assert_allclose(one.bse, other.bse, rtol=1e-6)


@pytest.mark.long
def test_results_are_the_same_bits_for_any_n_jobs():
    data = random_frame(3000, (2, 3, 4, 4, 3, 4, 2, 4, 4, 4))
    for method in ("pseudo", "mf"):
        fits = [bbl.bbl("y ~ .^2", data, method=method, n_jobs=k) for k in (1, 2, 3, 8)]
        for other in fits[1:]:
            np.testing.assert_array_equal(
                other.estimate.parameters.theta, fits[0].estimate.parameters.theta
            )
            np.testing.assert_array_equal(other.log_z, fits[0].log_z)


def test_labels_of_a_fit(fit, titanic):
    assert fit.formula == FORMULA
    assert fit.labels.groups == ("No", "Yes")
    assert fit.converged
    assert fit.model_frame.shape == (24, 4)
    assert (fit.weights == titanic["Freq"][fit.weights.index]).all()
    coef = fit.coef()
    pd.testing.assert_frame_equal(coef.J["No"]["Sex", "Class"], coef.J["No"]["Class", "Sex"].T)
    assert len(fit.tidy()) == 2 * fit.estimate.parameters.layout.size
    assert "dh_[Class]^(No)" in repr(fit)
    assert "predictor states" in fit.summary()._repr_html_()


def test_without_the_pooled_fit(titanic):
    fit = bbl.bbl(FORMULA, titanic, "Freq", testNull=False)
    assert fit.estimate.parameters.pooled is None
    assert fit.coef().h0 is None
    assert "h_[Class]^(No)" in repr(fit) and "dh_" not in repr(fit)


def test_prediction_keeps_the_index_and_ignores_what_it_does_not_need(fit, titanic):
    new = titanic[["Age", "Freq", "Class", "Sex"]].iloc[[5, 3, 3, 9]]
    new.index = ["p", "q", "q", "r"]
    got = fit.predict(new, type="prob")
    assert got.index.tolist() == ["p", "q", "q", "r"]
    assert got.columns.tolist() == ["No", "Yes", "yhat"]
    plain = fit.predict(titanic, type="prob").iloc[[5, 3, 3, 9]]
    np.testing.assert_array_equal(got.iloc[:, :2], plain.iloc[:, :2])
    empty = fit.predict(titanic.iloc[:0])
    assert empty.shape == (0, 3)


def test_other_frames_give_the_same(titanic):
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    plain = titanic.astype({c: str for c in ("Class", "Sex", "Age", "Survived")})
    expected = bbl.bbl(FORMULA, plain, "Freq")
    for data in (
        plain.to_dict("list"),
        pl.DataFrame(plain.to_dict("list")),
        pa.Table.from_pandas(plain),
    ):
        got = bbl.bbl(FORMULA, data, "Freq")
        np.testing.assert_array_equal(
            got.estimate.parameters.theta, expected.estimate.parameters.theta
        )
        predicted = got.predict(data)
        if isinstance(data, pl.DataFrame):  # a polars table gives a polars table
            assert isinstance(predicted, pl.DataFrame)
            predicted = pd.DataFrame(predicted.to_dict(as_series=False))
            predicted["yhat"] = pd.Categorical(predicted["yhat"], ["No", "Yes"])
        pd.testing.assert_frame_equal(predicted, expected.predict(plain))


def test_unseen_levels(fit, titanic):
    new = titanic[["Class", "Sex", "Age"]].head(3).astype(str)
    new.loc[1, "Class"] = "4th"
    with pytest.raises(LevelError, match="4th.*ignore|ignore.*4th") as caught:
        fit.predict(new)
    assert caught.value.column == "Class"
    got = fit.predict(new, type="prob", unseen="ignore")
    cells = pd.DataFrame(
        [(c, new.loc[1, "Sex"], new.loc[1, "Age"]) for c in ("1st", "2nd", "3rd", "Crew")]
    )
    cells.columns = ["Class", "Sex", "Age"]
    joint = np.exp(bbl.log_scores(fit, cells, normalised=True, prior=True)).sum().to_numpy()
    np.testing.assert_allclose(got.iloc[1, :2].astype(float), joint / joint.sum(), atol=1e-12)


def test_one_predictor_and_many_groups():
    data = pd.DataFrame({"y": list("abcabcabca"), "x": list("uvwuuvwwuv")})
    fit = bbl.bbl("y ~ x", data, lambdah=0.1)
    np.testing.assert_allclose(fit.predict(type="prob").iloc[:, :3].sum(axis=1), 1.0)


def test_warning_names_group_predictor_and_level():
    data = random_frame()
    data.loc[(data["y"] == "g1") & (data["x2"] == "d"), "x2"] = "a"
    with pytest.warns(
        bbl.ConvergenceWarning, match=r"group 'g1', predictor 'x2': level 'd' never occurs"
    ) as caught:
        fit = bbl.bbl("y ~ .^2", data, lambda_=0.1)
    assert len(caught) == 1
    assert np.isfinite(fit.estimate.parameters.theta).all()
    with pytest.warns(bbl.ConvergenceWarning, match="did not converge"):
        assert not bbl.bbl("y ~ .^2", random_frame(), lambda_=0.1, itmax=1).converged


# groups that do not differ
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
def test_what_happens_in_many_places_is_one_line():
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.integers(0, 4, (60, 20)), columns=[f"x{i}" for i in range(20)])
    data["y"] = list("abcdef") * 10
    xlevels = {f"x{i}": [0, 1, 2, 3] for i in range(20)}
    absent = sum(
        (data.loc[data["y"] == g, f"x{i}"] == v).sum() == 0
        for g in "abcdef"
        for i in range(20)
        for v in range(4)
    )
    with pytest.warns(bbl.ConvergenceWarning) as caught:
        bbl.bbl("y ~ .", data, xlevels=xlevels, lambda_=0.1, testNull=False, itmax=1)
    assert len(caught) == 1
    levels, steps = str(caught[0].message).split("\n  in ")
    assert levels.startswith(
        f"In {absent} places: a level never occurs, so its field has no finite estimate: "
    )
    assert levels.endswith(f"; and {absent - 5} more") and all(
        f"group {g!r}" in levels for g in "abcde"
    )
    assert (
        steps.startswith("120 places: did not converge: ")
        and "gradient norm" in steps
        and steps.endswith(". Hint: Set lambdah > 0. Increase itmax, tolerance or lambda_.")
    )
    with pytest.warns(
        bbl.ConvergenceWarning, match=r"places: .* fold 1, group 'a', predictor 'x"
    ) as caught:
        bbl.crossVal("y ~ .", data, xlevels=xlevels, lambda_=0.1, nfold=2)
    assert len(str(caught[0].message).splitlines()) == 1
    with pytest.warns(
        bbl.ConvergenceWarning,
        match="In 2 places: .*: predictor 0, level 2; predictor 1, level 2. Hint: Set lambdah",
    ):
        bbl.mlestimate([[0, 1], [1, 0], [1, 1], [0, 0]], L=3)


def test_a_flat_optimum_that_is_nearly_reached_is_reached():
    """Separated groups under weak penalties, where the quasi-Newton steps creep for more than 1,000
    iterations.
    """
    rng = np.random.default_rng(2)
    data = pd.DataFrame(rng.integers(0, 5, (40, 10)), columns=[f"x{i}" for i in range(10)])
    data["y"] = np.arange(40) % 2
    for k in range(1, 10):
        data.loc[rng.random(40) < 0.8, f"x{k}"] = data["x0"]
    fit = bbl.bbl("y ~ .^2", data, lambda_=1e-7, lambdah=1e-6, itmax=200, testNull=False)
    assert fit.converged and max(f.grad_norm.max() for f in fit.estimate.fits) < 1e-9


@pytest.mark.long
def test_tuning_inside_the_fit(titanic):
    fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv", lambdah=None, calibrate="offset")
    again = bbl.bbl(
        "Survived ~ .^2", titanic, "Freq", lambda_="cv", lambdah=None, calibrate="offset"
    )
    assert (
        fit.engine.lambda_ == fit.tuning.values[np.argmin(fit.tuning.loss)] == again.engine.lambda_
    )
    assert "chosen by" in str(fit.summary())
    assert fit.estimate.calibration.offset.sum() == pytest.approx(0.0, abs=1e-12)
    simpler = bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv-1se", lambdah=None)
    assert (
        simpler.engine.lambda_
        >= bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="cv", lambdah=None).engine.lambda_
    )
    mean_field = bbl.bbl("Survived ~ .^2", titanic, "Freq", "mf", eps="cv")
    assert mean_field.engine.eps in mean_field.tuning.values
    with pytest.raises(OptionError, match="lambda_='best'"):
        bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_="best")


@pytest.mark.long
def test_sampled_log_z_is_near_the_exact_one(titanic):
    exact = bbl.bbl("Survived ~ .^2", titanic, "Freq", log_z="exact")
    sampled = bbl.bbl("Survived ~ .^2", titanic, "Freq", log_z="ais")
    again = bbl.bbl("Survived ~ .^2", titanic, "Freq", log_z="ais")
    np.testing.assert_array_equal(sampled.log_z, again.log_z)
    assert (np.abs(sampled.log_z - exact.log_z) < 4 * sampled.estimate.log_z_error).all()


@pytest.mark.parametrize("store_data", [False, True])
@pytest.mark.parametrize("method", ["pseudo", "mf", "naive"])
def test_save_and_load_give_the_same_bits(tmp_path, titanic, method, store_data):
    fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", method, calibrate="offset")
    path = tmp_path / "model.bbl"
    fit.save(path, store_data=store_data)
    back = bbl.load(path)
    for a, b in (
        (fit.estimate.parameters.theta, back.estimate.parameters.theta),
        (fit.estimate.parameters.pooled, back.estimate.parameters.pooled),
    ):
        np.testing.assert_array_equal(a, b)
    pd.testing.assert_frame_equal(back.predict(titanic), fit.predict(titanic), check_exact=True)
    assert back.logLik() == fit.logLik() and back.nobs() == fit.nobs() and back.aic == fit.aic
    assert repr(back) == repr(fit)
    for name in ("fit", "tests", "h"):
        pd.testing.assert_frame_equal(
            back.summary().tables[name], fit.summary().tables[name], check_exact=True
        )
    if store_data:
        assert str(back.summary()) == str(fit.summary())
        pd.testing.assert_frame_equal(back.fitted(), fit.fitted(), check_exact=True)
        pd.testing.assert_frame_equal(back.model_frame, fit.model_frame)
    else:
        for method_ in (back.fitted, back.residuals, back.predict):
            with pytest.raises(DataError, match="store_data"):
                method_()
    back.save(tmp_path / "again.bbl", store_data=store_data)
    assert (tmp_path / "again.bbl").read_bytes() == path.read_bytes()


def test_load_refuses_what_is_no_model(tmp_path):
    from bbl.storage import write_model

    path = tmp_path / "other.bbl"
    write_model(path, {"design": 3}, {"theta": np.zeros(2)})
    with pytest.raises(bbl.errors.ModelFileError, match="other.bbl"):
        bbl.load(path)


def test_mlestimate_against_the_oracle():
    rng = np.random.default_rng(4)
    levels = [2, 3, 3]
    xi = np.column_stack([rng.integers(0, L, 150) for L in levels])
    w = rng.integers(0, 4, 150)
    fit = bbl.mlestimate(xi, w, lambda_=0.1, symmetrize=False)
    keep = w > 0
    exact = oracle.PseudoFit(xi[keep], w[keep].astype(float), levels, None, 0.1, 0.0)
    for i, j in itertools.permutations(range(3), 2):
        np.testing.assert_allclose(fit.J[i, j], exact.J_raw[i, j], atol=1e-8)
    both = bbl.mlestimate(xi, w, lambda_=0.1)
    np.testing.assert_allclose(both.J[2, 0], both.J[0, 2].T)
    one = bbl.mlestimate(xi, w, qJ=np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]), lambda_=0.1)
    assert set(one.J) == {(0, 1), (1, 0)}
    assert not bbl.mlestimate(xi, naive=True).J
    assert bbl.mlestimate(xi, L=[2, 3, 5], lambdah=0.1).h[2].shape == (4,)


@pytest.mark.parametrize(
    ("args", "name"),
    [
        ({"xi": [[0.5, 1.0]]}, "xi"),
        ({"xi": [[-1, 1]]}, "xi"),
        ({"xi": [["a", "b"]]}, "xi"),
        ({"xi": np.zeros((0, 2), dtype=int)}, "xi"),
        ({"xi": np.zeros(3, dtype=int)}, "xi"),
        ({"xi": [[0, 1e300], [1, 0]]}, "xi"),
        ({"xi": np.array([[0, 2**64 - 1], [1, 0]], dtype=np.uint64)}, "xi"),
        ({"xi": [[0, 2**40], [1, 0]]}, "xi"),
        ({"xi": [[0, 1], [1, 0]], "L": [2, 1]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": [2, 2**32 + 2]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": [2, 2, 2]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": "x"}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": [2, 2.5]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": [2, np.nan]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": [2, None]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "L": [[2], [2, 2]]}, "L"),
        ({"xi": [[0, 1], [1, 0]], "qJ": np.ones((3, 3))}, "qJ"),
        ({"xi": [[0, 1], [1, 0]], "qJ": [[0, 1], [0, 0]]}, "qJ"),
        ({"xi": [[0, 1], [1, 0]], "qJ": [[0, 1], [1]]}, "qJ"),
        ({"xi": [[0, 1], [1, 0]], "qJ": [[0, np.nan], [np.nan, 0]]}, "qJ"),
        ({"xi": [[0, 1], [1, 0]], "qJ": [["", "no"], ["no", ""]]}, "qJ"),
        ({"xi": [[0, 1], [1, 0]], "qJ": [[None, True], [True, None]]}, "qJ"),
        ({"xi": [[0, 1], [1, 0]], "qJ": [[0, 0.5], [0.5, 0]]}, "qJ"),
        (
            {
                "xi": pd.DataFrame({"a": [0, 1], "b": [1, 0]}),
                "weights": pd.Series([1, 2], index=[1, 0]),
            },
            "weights",
        ),
        ({"xi": pd.DataFrame({"a": [0, 1], "b": [1, 0]}), "L": pd.Series({"b": 2, "a": 3})}, "L"),
        (
            {"xi": pd.DataFrame({"a": [0, 1], "b": [1, 0]}), "qJ": pd.DataFrame(np.ones((2, 2)))},
            "qJ",
        ),
        ({"xi": [[0, 1], [1, 0]], "weights": [1, -1]}, "weights"),
        ({"xi": [[0, 1], [1, 0]], "weights": [1]}, "weights"),
        ({"xi": [[0, 1], [1, 0]], "naive": "yes"}, "naive"),
    ],
)
def test_mlestimate_names_what_is_wrong(args, name):
    with pytest.raises(bbl.BBLError) as caught:
        bbl.mlestimate(**args)
    assert caught.value.argument == name


def test_an_asymmetric_qj_is_called_so():
    with pytest.raises(
        bbl.BBLError, match="qJ is not symmetric: predictor 0 interacts with 2, but.*with 0"
    ):
        bbl.mlestimate([[0, 1, 0], [1, 0, 1]], qJ=[[0, 1, 1], [1, 0, 0], [0, 0, 0]])


def test_labels_that_agree_are_taken_by_mlestimate():
    xi = pd.DataFrame({"a": [0, 1, 1, 0], "b": [1, 0, 0, 0]}, index=list("wxyz"))
    labelled = {
        "weights": pd.Series([1, 2, 3, 1], index=xi.index),
        "qJ": pd.DataFrame(~np.eye(2, dtype=bool), index=xi.columns, columns=xi.columns),
        "L": pd.Series({"a": 2, "b": 2}),
    }
    plain = {name: value.to_numpy() for name, value in labelled.items()}
    one = bbl.mlestimate(xi, **labelled, lambda_=0.1, lambdah=0.1)
    np.testing.assert_array_equal(
        one.J[0, 1], bbl.mlestimate(xi, **plain, lambda_=0.1, lambdah=0.1).J[0, 1]
    )


@pytest.mark.parametrize("verb", [bbl.bbl, bbl.crossVal])
def test_series_of_another_index_are_refused(verb):
    data = pd.DataFrame({"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5})
    with pytest.raises(
        bbl.BBLError, match=r"weights is a Series with a different index.*weights\.to_numpy"
    ) as caught:
        verb("y ~ x", data, pd.Series(1, index=data.index + 1))
    assert caught.value.argument == "weights"
    with pytest.raises(
        bbl.BBLError, match="is a dict of Series, but 'x' and 'y' have different indexes"
    ) as caught:
        verb("y ~ x", {"y": data["y"], "x": data["x"][::-1]})
    assert caught.value.column == "x"


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"formula": "Survived ~ Clas"}, bbl.BBLError, "Class"),
        ({"formula": "Survivd ~ Class"}, bbl.BBLError, "Survived"),
        ({"formula": 3}, BBLTypeError, "formula"),
        (
            {"formula": "Survived ~ Class * Sex * Age", "method": "mf"},
            bbl.BBLError,
            "pairwise|three|order|pairs",
        ),
        ({"formula": "Survived ~ I(Class)"}, bbl.BBLError, "compute|column first"),
        ({"data": None}, BBLTypeError, "data"),
        ({"data": [1, 2]}, BBLTypeError, "data"),
        ({"weights": "Frq"}, bbl.BBLError, "Freq"),
        ({"weights": -np.ones(32)}, bbl.BBLError, "weights"),
        ({"weights": np.full(32, 0.5), "method": "bayes"}, bbl.BBLError, "weights"),
        ({"weights": np.zeros(32)}, bbl.BBLError, "weights"),
        ({"weights": np.ones(31)}, bbl.BBLError, "weights"),
        ({"weights": np.full(32, np.nan)}, bbl.BBLError, "weights"),
        ({"weights": 2}, bbl.BBLError, "weights"),
        ({"method": "foo"}, OptionError, "method"),
        ({"log_z": "best"}, OptionError, "log_z"),
        ({"calibrate": "yes"}, OptionError, "calibrate"),
        ({"seed": "x"}, BBLTypeError, "seed"),
        ({"testNull": 1}, BBLTypeError, "testNull"),
        ({"novarOk": 1}, BBLTypeError, "novarOk"),
        ({"xlevels": {"Nope": ["a", "b"]}}, bbl.BBLError, "Nope"),
        ({"xlevels": {"Class": ["1st", "2nd"]}}, bbl.BBLError, "3rd"),
        ({"n_jobs": 0}, OptionError, "n_jobs"),
        ({"lamda_": 1.0}, BBLTypeError, "lambda_"),
    ],
)
def test_bad_input_is_named(titanic, change, error, word):
    with pytest.raises(error, match=word):
        bbl.bbl(**{"formula": FORMULA, "data": titanic, "weights": "Freq", **change})


def test_bad_input_to_predict(fit, titanic):
    for new, word in (
        (titanic[["Class", "Sex"]], "Age"),
        ("text", "newdata"),
        (np.zeros((2, 3)), "newdata"),
        (titanic.assign(Sex=None), "Sex"),
    ):
        with pytest.raises(bbl.BBLError, match=word):
            fit.predict(new)
    with pytest.raises(OptionError, match="type"):
        fit.predict(titanic, type="bogus")
    with pytest.raises(OptionError, match="unseen"):
        fit.predict(titanic, unseen="drop")


def test_inputs_are_not_changed(titanic):
    before = titanic.copy(deep=True)
    bbl.bbl(FORMULA, titanic, "Freq").predict(titanic)
    pd.testing.assert_frame_equal(titanic, before)


LONG = """
rng = np.random.default_rng(0)
codes = (3 * (0.7 * rng.random((6000, 200)) + 0.3 * rng.random((6000, 1)))).astype(int)
data = pd.DataFrame(codes).add_prefix("x").assign(y=rng.integers(0, 2, 6000))
bbl.bbl("y ~ x0", data)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a POSIX system")
@pytest.mark.long
def test_an_interrupt_is_heard_and_work_stops():
    calls = ["bbl.bbl('y ~ .^2', data, lambda_=1e-6, n_jobs={})"]
    calls += ["bbl.crossVal('y ~ .^2', data, lambda_=[1e-6, 1e-5], n_jobs={}, verbose=0)"]
    assert not unheard(LONG, [call.format(n_jobs) for call in calls for n_jobs in (1, 2)])


# groups that do not differ
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
def test_the_positive_class_does_not_change_with_the_encoding():
    pa = pytest.importorskip("pyarrow")
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(3)
    y, x = ["yes", *rng.choice(["yes", "no"], 79).tolist()], rng.integers(0, 3, 80)
    dictionary = pa.array(y).dictionary_encode()
    assert dictionary.dictionary.to_pylist() == ["yes", "no"]
    tables = [
        pd.DataFrame({"y": y, "x": x}),
        pa.table({"y": y, "x": x}),
        pa.table({"y": dictionary, "x": x}),
        pd.DataFrame({"y": pd.arrays.ArrowExtensionArray(dictionary), "x": x}),
        pl.DataFrame({"y": pl.Series(y, dtype=pl.Categorical), "x": x}),
    ]
    runs = [
        bbl.crossVal("y ~ x", t, method="naive", shuffle=True, seed=1, verbose=0) for t in tables
    ]
    assert {run.model.labels.groups for run in runs} == {("no", "yes")}
    assert len({run.maxscore for run in runs}) == 1


def test_too_many_pairs_are_refused_before_they_are_listed(monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(4, size=(40, 1500)), columns=[f"x{i}" for i in range(1500)])
    frame.iloc[:4] = np.arange(4)[:, None]  # all levels occur
    frame["y"] = [0, 1] * 20
    monkeypatch.setattr("bbl.memory.available_memory", lambda: 2**28)
    with monkeypatch.context() as listing:
        listing.setattr("bbl.design.formula.np.triu_indices", None)  # what lists pairs
        for verb in (bbl.bbl, bbl.crossVal):
            with pytest.raises(
                MemoryLimitError,
                match="1,124,250 pairs of predictors and 10,118,250 couplings each would need",
            ):
                verb("y ~ .^2", frame)
    with pytest.raises(MemoryLimitError, match="pairs of predictors"):
        bbl.bbl("y ~ .^2", frame, method="mf")
    assert bbl.bbl("y ~ .^2", frame, method="naive").n_parameters > 0


def test_pairs_that_a_method_does_not_use_are_not_listed(monkeypatch):
    def listed(*_):
        raise AssertionError("all pairs are listed")

    monkeypatch.setattr("bbl.design.interactions.Cube.list_terms", listed)
    monkeypatch.setattr("bbl.model.layout.np.argwhere", listed)
    data = pd.DataFrame(
        {"y": list("aabb"), "u": list("pqpq"), "v": list("rssr"), "w": list("ttuu")}
    )
    fit = bbl.bbl("y ~ .^2", data, method="naive")
    assert fit.predict(data).shape[0] == 4


def test_folds_without_training_rows_are_refused_alike_by_every_method():
    data = {"y": ["a", "b"], "u": ["p", "q"]}
    for method in ("conditional", "naive", "pseudo"):
        with pytest.raises(DataError, match="A fold has no training rows"):
            bbl.bbl("y ~ .", data, method=method, calibrate="offset", verbose=0)


def test_a_file_with_training_rows_keeps_the_labels_of_a_part_of_a_table(tmp_path):
    data = pd.DataFrame({"y": list("ababab"), "u": [None, *"pqqpp"]})
    fit = bbl.bbl("y ~ .", data, missing="drop", verbose=0)
    fit.save(tmp_path / "fit.bbl", store_data=True)
    pd.testing.assert_frame_equal(
        bbl.load(tmp_path / "fit.bbl").fitted(), fit.fitted(), check_exact=True
    )
    assert fit.fitted().index.tolist() == [1, 2, 3, 4, 5]
