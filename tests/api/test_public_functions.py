"""The verbs that sample and simulate, under their labels."""

import numpy as np
import pandas as pd
import pytest
import reference as oracle

import bbl
from bbl.errors import BBLTypeError, ConvergenceWarning, OptionError
from bbl.memory import MemoryLimitError

PREDICTORS = {"a": ["u", "v"], "b": [0, 1, 2], "c": ["x", "y", "z"]}


@pytest.fixture(scope="module")
def fit():
    return bbl.bbl(
        "Survived ~ Class * Sex + Sex * Age", bbl.datasets.load_titanic(), weights="Freq"
    )


def test_mcsample_finds_the_highest_state(fit):
    got = bbl.mcSample(fit, nsteps=200, seed=1)
    for k, group in enumerate(("No", "Yes")):
        layout = fit.estimate.parameters.layout
        h = [layout.table(fit.estimate.parameters.theta[k], i) for i in range(3)]
        J = {
            (int(i), int(j)): layout.table(fit.estimate.parameters.theta[k], i, j)
            for i, j in layout.pairs
        }
        states = oracle.states([4, 2, 2])
        energy = oracle.energy(h, J, states)
        best = states[energy.argmax()]
        assert got.emax[group] == pytest.approx(energy.max(), abs=1e-12)
        assert got.xmax[group].tolist() == [fit.labels.levels[i][a] for i, a in enumerate(best)]
    assert got.xmax.index.tolist() == ["Class", "Sex", "Age"]
    again = bbl.mcSample(fit, nsteps=200, seed=1)
    pd.testing.assert_frame_equal(got.xmax, again.xmax)
    assert "xmax" in repr(got) and "emax" in repr(got)


def test_draws_have_the_fitted_frequencies(fit):
    got = bbl.mcSample(fit, nsteps=2000, nchains=64, draws=True, seed=2)
    draws = got.draws["No"]
    assert list(draws.columns) == ["Class", "Sex", "Age"] and len(draws) == 64 * 1000
    observed = bbl.datasets.load_titanic().query("Survived == 'No'")
    share = observed.groupby("Class", observed=True)["Freq"].sum() / observed["Freq"].sum()
    got_share = draws["Class"].value_counts(normalize=True)
    for level in ("1st", "2nd", "3rd", "Crew"):
        assert got_share[level] == pytest.approx(share[level], abs=0.03)
    assert (got.rhat < 1.02).all() and (got.ess > 1000).all()


def test_mcsample_of_a_crossval_and_of_a_single_level():
    data = {"y": list("aabb") * 5, "p": list("uvuu") * 5, "q": ["k"] * 20}
    fit = bbl.bbl("y ~ .^2", data, novarOk=True, lambda_=0.1, lambdah=0.1)
    assert bbl.mcSample(fit, nsteps=20, seed=0).xmax.shape == (2, 2)
    cv = bbl.crossVal("y ~ p", data, lambda_=0.1, lambdah=0.1, nfold=2)
    assert bbl.mcSample(cv, nsteps=20, seed=0).xmax.shape == (1, 2)


def test_randompar_and_sample_xi_recover_their_parameters():
    par = bbl.randompar(PREDICTORS, dh=0.5, dJ=0.5, seed=3)
    assert [h.shape for h in par.h] == [(1,), (2,), (2,)]
    np.testing.assert_array_equal(par.J[2, 0], par.J[0, 2].T)
    assert all(np.abs(t).max() <= 0.5 for t in [*par.h, *par.J.values()])
    xi = bbl.sample_xi(200_000, PREDICTORS, par.h, par.J, code_out=True, seed=4)
    assert xi.columns.tolist() == ["a", "b", "c"]
    fit = bbl.mlestimate(xi.to_numpy(), lambda_=0.0)
    for i in range(3):
        np.testing.assert_allclose(fit.h[i], par.h[i], atol=0.08)
    labelled = bbl.sample_xi(5, PREDICTORS, par.h, par.J, seed=4)
    assert set(labelled["a"]) <= {"u", "v"}
    assert len(bbl.sample_xi(1, PREDICTORS, par.h, par.J)) == 1


def test_randompar_normal():
    par = bbl.randompar([[0, 1]] * 40, "norm", h0=3.0, dh=0.1, J0=-1.0, dJ=0.01, seed=0)
    assert np.mean(par.h) == pytest.approx(3.0, abs=0.1)
    assert np.mean(list(par.J.values())) == pytest.approx(-1.0, abs=0.01)


def test_probabilities_by_name_go_by_name():
    par = {g: bbl.randompar(PREDICTORS, seed=k) for k, g in enumerate("uv")}
    rows = [
        bbl.randomsamp(PREDICTORS, "uv", prob, par, 50, seed=1)
        for prob in ([0.1, 0.9], {"v": 0.9, "u": 0.1}, pd.Series({"v": 0.9, "u": 0.1}))
    ]
    pd.testing.assert_frame_equal(rows[0], rows[1])
    pd.testing.assert_frame_equal(rows[0], rows[2])


def test_randomsamp_groups_and_rows():
    par = [bbl.randompar(PREDICTORS, seed=s) for s in (1, 2)]
    data = bbl.randomsamp(PREDICTORS, ["case", "ctrl"], [0.2, 0.8], par, 5000, seed=5)
    assert data.columns.tolist() == ["y", "a", "b", "c"]
    assert (data["y"] == "case").mean() == pytest.approx(0.2, abs=0.03)
    assert (data["y"].iloc[:100] != data["y"].iloc[0]).any()
    same = bbl.randomsamp(
        PREDICTORS,
        ["case", "ctrl"],
        [0.2, 0.8],
        dict(zip(["case", "ctrl"], par, strict=True)),
        5000,
        seed=5,
    )
    pd.testing.assert_frame_equal(same, data)
    assert len(bbl.randomsamp(PREDICTORS, ["case", "ctrl"], [0.0, 1.0], par, 3, seed=0)) == 3


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda f: bbl.mcSample(f, nsteps=0), "nsteps"),
        (lambda f: bbl.mcSample(f, nsteps=-5), "nsteps"),
        (lambda f: bbl.mcSample(f, nsteps=1.5), "nsteps"),
        (lambda f: bbl.mcSample(f, nchains=0), "nchains"),
        (lambda f: bbl.mcSample(f, seed="x"), "seed"),
        (lambda f: bbl.mcSample(f, seed=np.random.RandomState(0)), "seed"),
        (lambda f: bbl.mcSample("fit"), "fit"),
        (lambda f: bbl.randompar("abc"), "predictors"),
        (lambda f: bbl.randompar([]), "predictors"),
        (lambda f: bbl.randompar(PREDICTORS, "cauchy"), "distr"),
        (lambda f: bbl.randompar(PREDICTORS, dh=-1.0), "dh"),
        (lambda f: bbl.sample_xi(-1, PREDICTORS, [[0.0], [0.0, 0.0], [0.0, 0.0]]), "nsample"),
        (lambda f: bbl.sample_xi(1, PREDICTORS, [[0.0]]), "h, J"),
        (lambda f: bbl.randomsamp(PREDICTORS, ["a", "b"], par=[1]), "par"),
        (lambda f: bbl.randomsamp(PREDICTORS, ["a"], [-1.0], [bbl.randompar(PREDICTORS)]), "prob"),
        (
            lambda f: bbl.randomsamp(PREDICTORS, ["a"], {"b": 1.0}, [bbl.randompar(PREDICTORS)]),
            "prob",
        ),
        (
            lambda f: bbl.randomsamp(PREDICTORS, [1, True], par=[bbl.randompar(PREDICTORS)] * 2),
            "response",
        ),
    ],
)
def test_bad_input_is_named(fit, call, name):
    with pytest.raises((OptionError, BBLTypeError, bbl.BBLError)) as caught:
        call(fit)
    assert caught.value.argument == name


def test_too_few_or_equal_levels():
    for predictors in ([["a"]], [["a", "a"]]):
        with pytest.raises(OptionError, match="two distinct levels"):
            bbl.randompar(predictors)


def test_parameters_are_found_by_name_as_in_r(fit):
    par = bbl.randompar(PREDICTORS, seed=1)
    assert par["h"] is par.h and par["J"] is par.J
    one = bbl.mlestimate([[0, 1], [1, 0], [1, 1]], lambda_=0.1, lambdah=0.1)
    assert one["lz"] == one.lz and one["h"] is one.h
    coef = fit.coef()
    assert coef["h"]["No"]["Class"].equals(coef.h["No"]["Class"]) and coef["J0"] is coef.J0
    for holder, name in ((par, "j"), (one, "Lz"), (coef, "_labels"), (coef, 0)):
        with pytest.raises(KeyError, match="this model.*Choose from h, J"):
            holder[name]
    with pytest.raises(TypeError, match="not iterable"):
        list(par)


def test_group_parameters_print_fields_and_couplings():
    par = bbl.GroupParameters(
        [np.array([0.5]), np.array([1.0, -2.0])], {(0, 1): np.array([[0.25, 0.125]])}
    )
    assert (
        repr(par)
        == "h[0]:\n  1\n0.5\n\nh[1]:\n 1  2\n 1 -2\n\nJ[0, 1]:\n     1     2\n1 0.25 0.125"
    )
    many = repr(bbl.randompar([range(15)] * 9, seed=1))
    assert (
        "... (6 more predictors)" in many
        and "... (33 more pairs)" in many
        and "... (4 more levels)" in many
    )
    one = bbl.mlestimate([[0, 1], [1, 0], [1, 1]], lambda_=0.1, lambdah=0.1)
    assert (
        "J[0, 1]:" in repr(one)
        and "J[1, 0]:" not in repr(one)
        and repr(one).endswith("converged: True")
    )
    assert "J" not in repr(bbl.mlestimate([[0, 1], [1, 0], [1, 1]], naive=True, method="naive"))


def test_tables_of_couplings_can_be_written_to_each_by_itself():
    par = bbl.randompar([range(3)] * 4, seed=1)
    before = {pair: table.copy() for pair, table in par.J.items()}
    par.J[0, 1][:] = 7.0
    assert (par.J[0, 1] == 7.0).all()
    for pair in before.keys() - {(0, 1)}:
        np.testing.assert_array_equal(par.J[pair], before[pair])
    assert list(par.J)[:4] == [(0, 1), (0, 2), (0, 3), (1, 0)] and type(next(iter(par.J))[0]) is int


def test_memory_of_a_table_for_each_pair_is_asked_for_before_a_fit(monkeypatch):
    """A thousand predictors have a million tables, which take more than all arrays do."""
    monkeypatch.setattr("bbl.memory.available_memory", lambda: 2**28)
    xi = np.tile([[0, 1], [1, 0], [1, 1]], (1, 500))
    with pytest.raises(
        MemoryLimitError, match="1000 non-reference levels would need .* or pass pairs in qJ"
    ):
        bbl.mlestimate(xi, method="mf")
    with pytest.raises(
        MemoryLimitError,
        match="Tables of 1000 non-reference levels would need .* Use fewer predictors",
    ):
        bbl.randompar([range(2)] * 1000)
    assert not bbl.mlestimate(xi, method="naive").J


def test_chains_that_have_not_mixed_are_told():
    """In one group six predictors nearly always agree, so that chains hardly leave the mode where
    they began.
    """
    rng = np.random.default_rng(1)
    together = np.where(
        rng.random((200, 6)) < 0.05, rng.integers(0, 2, (200, 6)), rng.random((200, 1)) < 0.2
    )
    data = pd.DataFrame(np.vstack([together, rng.integers(0, 2, (200, 6))]), columns=list("abcdef"))
    data["y"] = ["same"] * 200 + ["any"] * 200
    stuck = bbl.bbl("y ~ .^2", data, lambda_=1e-4, lambdah=1e-4, testNull=False)
    with pytest.warns(
        ConvergenceWarning,
        match=r"have not mixed: the split R-hat .* in group 'same', .* nsteps",
    ) as caught:
        got = bbl.mcSample(stuck, nsteps=100, draws=True, seed=1, verbose=0)
    assert got.rhat["same"] > 1.1 > got.rhat["any"] and "'any'" not in str(caught[0].message)
    assert caught[0].filename == __file__
    # too few draws to say anything of them
    bbl.mcSample(stuck, nsteps=10, draws=True, seed=1, verbose=0)
    bbl.mcSample(stuck, nsteps=100, seed=1, verbose=0)


@pytest.mark.long
def test_short_runs_of_a_model_that_mixes_do_not_warn(fit):
    for seed in range(20):
        bbl.mcSample(fit, nsteps=40, draws=True, seed=seed, verbose=0)
        bbl.mcSample(fit, nsteps=100, nchains=2, draws=True, seed=seed, verbose=0)
        bbl.mcSample(fit, nsteps=8, nchains=1, draws=True, seed=seed, verbose=0)
