"""Hard cases from end to end: odd shapes of data, extreme options, and what a wrong argument is
told.
"""

import random

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import LevelError

METHODS = {"pseudo": {"lambda_": 0.1, "lambdah": 0.1}, "mf": {}, "naive": {}}
each_method = pytest.mark.parametrize("method", METHODS)
# that penalty is large for so few rows
stiff = pytest.mark.filterwarnings("ignore:On the training rows, the log-loss")


def table(n, m, L=3, K=2, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, L, (n, m))).add_prefix("x")
    frame["y"] = rng.permutation(np.arange(n) % K)
    return frame


def check(fit, data):
    """A fit has to be finite, converged, and pass probabilities."""
    assert (
        np.isfinite(fit.estimate.parameters.theta).all()
        and np.isfinite(fit.log_z).all()
        and np.isfinite(fit.logLik())
    )
    assert fit.converged
    prob = fit.predict(data, type="prob").iloc[:, :-1].to_numpy()
    np.testing.assert_allclose(prob.sum(axis=1), 1, atol=1e-12)
    return prob


# -- shapes of data --------------------------------------------------------------------------------
@pytest.mark.long
@each_method
def test_150_predictors_and_24_rows(method):
    data = table(24, 150)
    # as near as rounding lets L-BFGS
    options = METHODS[method] | ({"tolerance": 1e-6} if method == "pseudo" else {})
    check(bbl.bbl("y ~ .^2", data, method=method, **options), data)


@stiff
@each_method
@pytest.mark.parametrize("value", [0, 1, 2])
def test_a_predictor_that_is_constant_in_one_group(method, value):
    data = table(90, 3, K=3)
    data.loc[data["y"] == 1, "x1"] = value
    check(bbl.bbl("y ~ .^2", data, method=method, **METHODS[method]), data)


@each_method
def test_a_group_of_one_row(method):
    data = table(40, 3)
    data.loc[0, "y"] = 2
    prob = check(bbl.bbl("y ~ .^2", data, method=method, **METHODS[method]), data)
    assert prob.shape == (40, 3)


@each_method
@pytest.mark.parametrize(("n", "K"), [(210, 21), (12, 12)], ids=["21 groups", "as many as rows"])
def test_many_groups(method, n, K):
    data = table(n, 3, K=K)
    fit = bbl.bbl("y ~ .^2", data, method=method, **METHODS[method])
    assert check(fit, data).shape == (n, K) and fit.labels.groups == tuple(range(K))


@pytest.mark.long
@each_method
def test_300_levels_are_told_apart(method):
    """Level 256 + k must not be taken for level k, in the fit or in prediction."""
    levels = np.tile(np.arange(300), 6)
    data = pd.DataFrame(
        {"x": levels, "z": np.arange(1800) % 2, "y": np.where(levels < 256, "low", "high")}
    )
    options = {"lambdah": 1e-4} if method == "pseudo" else {}
    fit = bbl.bbl("y ~ x + z", data, method=method, **options)
    check(fit, data)
    got = fit.predict(pd.DataFrame({"x": [3, 259, 40, 296], "z": 0}), type="class")
    assert got.tolist() == ["low", "high", "low", "high"]


@stiff
@each_method
def test_perfect_separation_ends(method):
    data = pd.DataFrame({"y": list("abc") * 20, "x": list("uvw") * 20, "z": list("rrss") * 15})
    fit = bbl.bbl("y ~ .^2", data, method=method, **METHODS[method])
    check(fit, data)
    assert (fit.predict(data, type="class").astype(object) == data["y"]).all()


@each_method
@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "Int64", "float64", "Sparse[int64]", "int64[pyarrow]"]
)
def test_numbers_of_any_type_give_the_same_codes(method, dtype):
    data = table(60, 3)
    other = data.astype({c: dtype for c in ("x0", "x1", "x2")})
    one, two = (bbl.bbl("y ~ .^2", d, method=method, **METHODS[method]) for d in (data, other))
    np.testing.assert_array_equal(one.estimate.parameters.theta, two.estimate.parameters.theta)
    np.testing.assert_array_equal(one.fitted(), two.predict(data, type="prob").iloc[:, :-1])


@pytest.mark.parametrize(
    "pair", [["1", 1], ["True", True], [True, 0], [False, 2], [1.5, "1.5"]], ids=str
)
@pytest.mark.parametrize("role", ["response", "predictor"])
def test_levels_that_read_alike_stay_apart_everywhere(pair, role, tmp_path):
    rng = np.random.default_rng(1)
    mixed, plain = (
        pd.Series([pair[i] for i in rng.integers(0, 2, 60)], dtype=object),
        rng.integers(0, 3, 60),
    )
    y, x = (mixed, plain) if role == "response" else (plain, mixed)
    data = pd.DataFrame({"y": y, "x": x, "z": rng.integers(0, 2, 60)})
    fit = bbl.bbl("y ~ .^2", data, lambda_=0.1, lambdah=0.1)
    same = [type(v) for v in (fit.labels.groups if role == "response" else fit.labels.levels[0])]
    assert sorted(map(repr, same)) == sorted(repr(type(v)) for v in pair)
    fit.save(tmp_path / "m.bbl", store_data=True)
    back = bbl.load(tmp_path / "m.bbl")
    for one in (fit, back):
        named = one.labels.groups, one.labels.levels[0]
        assert [type(v) for v in named[role == "predictor"]] == same
        pd.testing.assert_frame_equal(
            one.model_frame.astype(object), data.astype(object), check_dtype=False
        )
        pd.testing.assert_frame_equal(one.predict(data), one.predict())
        assert one.fitted().shape == (60, len(named[0])) and str(one.summary())
    draws = bbl.mcSample(fit, 40, draws=True, seed=1, verbose=0).draws
    assert [repr(v) for v in draws[named[0][0]]["x"].cat.categories] == list(map(repr, named[1]))
    group = fit.coef().h[named[0][0]]["x"]
    assert list(map(repr, group.index)) == list(map(repr, named[1][1:]))


@pytest.mark.parametrize(
    "pair", [[1, True], [0, False], [1.0, True], [pd.Interval(0, 1), "(0, 1]"]], ids=str
)
def test_levels_that_labels_cannot_tell_apart_are_refused(pair):
    data = pd.DataFrame({"u": pd.Series(pair * 10, dtype=object), "v": [0, 1] * 10})
    for formula in ("u ~ v", "v ~ u"):
        with pytest.raises(LevelError, match="column 'u'.*the same label") as caught:
            bbl.bbl(formula, data)
        assert caught.value.column == "u" and caught.value.argument == "data"
    with pytest.raises(LevelError, match=r"xlevels\['v'\]") as caught:
        bbl.bbl("u ~ v", data.assign(u=data["v"]), xlevels={"v": [*pair, 7]})
    assert caught.value.argument == "xlevels"


def test_a_number_where_the_model_has_a_boolean_is_unknown():
    fit = bbl.bbl("y ~ x", {"y": [0, 1] * 10, "x": [True, False, False, True] * 5}, method="naive")
    with pytest.raises(LevelError, match="unknown levels: 1"):
        fit.predict({"x": [1]})


def test_a_name_of_the_callers_frame_is_not_seen():
    somewhere = [0, 1] * 20
    assert len(somewhere) == 40
    with pytest.raises(bbl.BBLError, match="somewhere"):
        bbl.bbl("y ~ somewhere", table(40, 2))


def test_columns_named_by_numbers_and_tuples():
    data = table(40, 2)
    other = data.set_axis([0, ("a", 1), "y"], axis=1)
    one, two = (bbl.bbl("y ~ .^2", d, **METHODS["pseudo"]) for d in (data, other))
    np.testing.assert_array_equal(one.estimate.parameters.theta, two.estimate.parameters.theta)
    assert two.labels.names == (0, ("a", 1))


def test_a_long_formula_is_refused():
    with pytest.raises(bbl.BBLError, match="formula"):
        bbl.bbl("y ~ " + " + ".join(["x0"] * 30_000), table(40, 2))


# -- options ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options", [{"lambda_": 1e300}, {"lambda_": 1e9, "lambdah": 1e9}, {"lambda_": 1e-300}]
)
def test_extreme_penalties_end_finite(options):
    data = table(400, 3)
    fit = bbl.bbl("y ~ .^2", data, **options)
    assert np.isfinite(fit.estimate.parameters.theta).all() and fit.converged


def test_an_objective_that_is_not_finite_is_told():
    with pytest.warns(
        bbl.ConvergenceWarning,
        match="did not converge: .*group 0, predictor 'x0' .gradient norm inf",
    ):
        fit = bbl.bbl("y ~ .^2", table(400, 3), lambdah=1e300)
    assert not fit.converged and np.isfinite(fit.estimate.parameters.theta).all()


WRONG = [
    (bbl.bbl, {"lambda_": -1}, "lambda_"),
    (bbl.bbl, {"lambda_": float("nan")}, "lambda_"),
    (bbl.bbl, {"lambda_": float("inf")}, "lambda_"),
    (bbl.bbl, {"lambda_": [0.1, 0.2]}, "lambda_"),
    (bbl.bbl, {"lambdah": "x"}, "lambdah"),
    (bbl.bbl, {"method": "mf", "eps": 1.5}, "eps"),
    (bbl.bbl, {"method": "mf", "eps": float("nan")}, "eps"),
    (bbl.bbl, {"method": "mf", "eps": -0.1}, "eps"),
    (bbl.bbl, {"method": "mf", "prior_count": -1}, "prior_count"),
    (bbl.bbl, {"method": "naive", "prior_count": float("nan")}, "prior_count"),
    (bbl.bbl, {"itmax": 0}, "itmax"),
    (bbl.bbl, {"itmax": 2.5}, "itmax"),
    (bbl.bbl, {"itmax": "many"}, "itmax"),
    (bbl.bbl, {"tolerance": 0.0}, "tolerance"),
    (bbl.bbl, {"verbose": "no"}, "verbose"),
    (bbl.bbl, {"verbose": 1.5}, "verbose"),
    (bbl.bbl, {"verbose": None}, "verbose"),
    (bbl.bbl, {"n_jobs": 1.5}, "n_jobs"),
    (bbl.bbl, {"n_jobs": "all"}, "n_jobs"),
    (bbl.bbl, {"seed": np.random.RandomState(0)}, "seed"),
    (bbl.bbl, {"seed": -1}, "seed"),
    (bbl.bbl, {"xlevels": ["a"]}, "xlevels"),
    (bbl.crossVal, {"verbose": "no"}, "verbose"),
    (bbl.crossVal, {"lambda_": [0.1, -2]}, "lambda_"),
    (bbl.crossVal, {"lambda_": float("nan")}, "lambda_"),
    (bbl.crossVal, {"method": "mf", "eps": [0.1, 1.1]}, "eps"),
    (bbl.crossVal, {"cv": [([0], [1])]}, "cv"),
    (bbl.crossVal, {"cv": 5}, "cv"),
    (bbl.crossVal, {"cv": [([0], [1000]), ([1], [2])]}, "cv"),
    (bbl.crossVal, {"refit": "yes"}, "refit"),
    (bbl.crossVal, {"method": None}, "method"),
]


@pytest.mark.parametrize(
    ("verb", "options", "name"),
    WRONG,
    ids=[f"{v.__name__} {n} {i}" for i, (v, _, n) in enumerate(WRONG)],
)
def test_a_wrong_option_is_named(verb, options, name):
    with pytest.raises(bbl.BBLError) as caught:
        verb("y ~ .", table(40, 2), **options)
    assert caught.value.argument == name and name.rstrip("_") in str(caught.value)


def test_wrong_options_of_sampling_and_results():
    fit = bbl.bbl("y ~ .", table(40, 2), **METHODS["pseudo"])
    for call, name in (
        (lambda: bbl.mcSample(fit, verbose="no"), "verbose"),
        (lambda: bbl.mcSample(fit, draws=1), "draws"),
        (lambda: bbl.mcSample(fit, thin=0), "thin"),
        (lambda: fit.bootstrap(1), "nboot"),
        (lambda: fit.bootstrap(10, level=1.5), "level"),
        (lambda: fit.summary(prior_count=-1), "prior_count"),
    ):
        with pytest.raises(bbl.BBLError) as caught:
            call()
        assert caught.value.argument == name


# -- what is left alone ----------------------------------------------------------------------------
# groups that do not differ
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
@pytest.mark.usefixtures("short_annealing")
def test_global_random_states_are_neither_read_nor_changed():
    data, found = table(60, 3), []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = random.getstate(), str(np.random.get_state())  # noqa: NPY002
        fit = bbl.bbl("y ~ .^2", data, **METHODS["pseudo"], calibrate="offset", log_z="ais")
        cv = bbl.crossVal("y ~ .^2", data, method="mf", eps=0.1, shuffle=True, seed=3)
        draws = bbl.mcSample(fit, 10, seed=4, draws=True)
        assert before == (random.getstate(), str(np.random.get_state()))  # noqa: NPY002
        found.append((fit.log_z.tolist(), cv.cvframe.to_numpy().tolist(), draws.emax.tolist()))
    assert found[0] == found[1]
