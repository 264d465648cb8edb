"""Tests of the arrays of Bayesian network classifiers against outputs of R's bnclassify."""

import bncases
import numpy as np
import pytest

from bbl.bayesnet.averaged import average, naive_average, super_parents
from bbl.bayesnet.chowliu import SCORES, chow_liu
from bbl.bayesnet.dag import naive
from bbl.bayesnet.information import class_information, conditional_information, pair_information
from bbl.bayesnet.predict import class_scores, estimate
from bbl.bayesnet.search import climb
from bbl.bayesnet.weighting import (
    ConditionalLikelihood,
    conditional_weights,
    tree_weights,
    weighted,
)
from bbl.stats.metrics import log_probabilities

pytestmark = pytest.mark.usefixtures("shared")


def posterior(network, sample, rows=slice(None)):
    missing = None if sample.missing is None else sample.missing[rows]
    return np.exp(
        log_probabilities(
            class_scores(network.log_joint(np.ascontiguousarray(sample.codes[rows]), missing))
        )
    )


def check_tables(network, data, cpts, atol=1e-14):
    for f, i in enumerate(network.dag.features):
        table = network.families.table(network.theta, f)
        np.testing.assert_allclose(table, bncases.table(cpts[data.names[i]]), rtol=0, atol=atol)
    np.testing.assert_allclose(network.prior, bncases.table(cpts[data.class_]), rtol=0, atol=atol)


def log_likelihoods(network, sample):
    joint = network.log_joint(sample.codes, sample.missing)
    own = np.arange(sample.n), sample.response
    with np.errstate(invalid="ignore"):
        return joint[own].sum(), log_probabilities(class_scores(joint))[own].sum()


@pytest.mark.parametrize("name", bncases.cases("structure"))
@pytest.mark.parametrize("score", SCORES)
def test_chow_liu_finds_the_trees_of_r(name, score):
    data = bncases.data(name)
    stored = bncases.case(f"{name}_structure")["structures"][f"tan_cl_{score}"]
    found = chow_liu(data.sample, data.n_levels, data.K, score)
    assert [data.names[i] for i in found.features] == stored["features"]
    assert found == data.dag(stored["families"])
    assert found.is_semi_naive == stored["is_semi_naive"]


@pytest.mark.parametrize("name", bncases.cases("cmi"))
def test_information_agrees_with_r(name):
    data, stored = bncases.data(name), bncases.case(f"{name}_cmi")
    at = {n: i for i, n in enumerate(data.names)}
    given_class, _ = pair_information(data.sample, data.n_levels, data.K)
    for pair in stored["pairs"]:
        assert given_class[at[pair["x"]], at[pair["y"]]] == pytest.approx(
            pair["cmi_given_class"], abs=1e-12
        )
    own = class_information(data.sample, data.n_levels, data.K)
    for entry in stored["with_class"]:
        assert own[at[entry["x"]]] == pytest.approx(entry["mi"], abs=1e-12)


@pytest.mark.parametrize("name", bncases.cases("params"))
def test_tables_agree_with_r(name):
    data = bncases.data(name)
    for model in bncases.case(f"{name}_params")["models"]:
        network = estimate(
            data.dag(model["families"]), data.sample, data.n_levels, data.K, model["smooth"]
        )
        assert network.n_params == model["nparams"]
        check_tables(network, data, model["cpts"])


def recorded(data, name, model):
    """Return the network of a recorded model that goes by the name of its structure."""
    if model["structure"] == "aode":
        return average(
            super_parents(len(data.names)), data.sample, data.n_levels, data.K, model["smooth"]
        )
    stored = bncases.case(f"{name}_structure")["structures"]
    families = stored[model["structure"]]["families"]
    return estimate(data.dag(families), data.sample, data.n_levels, data.K, model["smooth"])


@pytest.mark.parametrize("name", bncases.cases("scores"))
def test_likelihoods_agree_with_r(name):
    data = bncases.data(name)
    for model in bncases.case(f"{name}_scores")["models"]:
        network = recorded(data, name, model)
        log_lik, conditional = log_likelihoods(network, data.sample)
        assert conditional == pytest.approx(bncases.number(model["cLogLik"]), rel=1e-9)
        if model.get("logLik") is not None:  # R has none for aode
            assert log_lik == pytest.approx(bncases.number(model["logLik"]), rel=1e-9)
            assert network.n_params == model["nparams"]


@pytest.mark.parametrize("name", bncases.cases("predict"))
def test_posteriors_agree_with_r(name):
    data, stored = bncases.data(name), bncases.case(f"{name}_predict")
    rows = np.array(stored["rows"]) - 1
    for model in stored["models"]:
        network = recorded(data, name, model)
        for part, sample, at in (("train", data.sample, rows), ("newdata", data.new, slice(None))):
            if f"{part}_posterior" not in model:
                continue
            want = np.array([bncases.numbers(row) for row in model[f"{part}_posterior"]])
            found = posterior(network, sample, at)
            defect = np.zeros(len(want), dtype=bool)  # R's answer is uniform there
            defect[np.array(model.get(f"{part}_defect_rows") or [], dtype=int) - 1] = True
            np.testing.assert_allclose(found[~defect], want[~defect], rtol=0, atol=1e-10)
            assert (np.ptp(want[defect], axis=1) < 1e-12).all()
            members = (
                [m.log_joint(sample.codes[at], None) for m in network.members]
                if defect.any()
                else []
            )
            assert all(np.isfinite(m).any() for m in members)


@pytest.mark.parametrize("name", bncases.cases("augmented"))
def test_structures_of_several_parents_agree_with_r(name):
    data, stored = bncases.data(name), bncases.case(f"{name}_augmented")
    rows = np.array(stored["rows"]) - 1
    for model in stored["models"]:
        network = estimate(
            data.dag(model["families"]), data.sample, data.n_levels, data.K, model["smooth"]
        )
        check_tables(network, data, model["cpts"])
        scores = model["scores"]
        log_lik, conditional = log_likelihoods(network, data.sample)
        assert log_lik == pytest.approx(bncases.number(scores["logLik"]), rel=1e-9)
        assert conditional == pytest.approx(bncases.number(scores["cLogLik"]), rel=1e-9)
        assert network.n_params == scores["nparams"]
        for part, sample, at in (("train", data.sample, rows), ("newdata", data.new, slice(None))):
            want = np.array([bncases.numbers(row) for row in model[f"{part}_posterior"]])
            np.testing.assert_allclose(posterior(network, sample, at), want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", bncases.cases("manb"))
def test_averaged_naive_bayes_agrees_with_r(name):
    data = bncases.data(name)
    for model in bncases.case(f"{name}_manb")["models"]:
        features = naive(range(len(data.names)))
        smooth, prior = model["smooth"], model["prior"]
        network, arcs = naive_average(features, data.sample, data.n_levels, data.K, smooth, prior)
        np.testing.assert_allclose(
            arcs, data.by_name(model["arc_posterior"]), rtol=1e-9, atol=1e-300
        )
        check_tables(network, data, model["cpts"], atol=1e-12)
        rows = np.array(model["train_posterior_rows"]) - 1
        want = np.array([bncases.numbers(row) for row in model["train_posterior"]])
        np.testing.assert_allclose(posterior(network, data.sample, rows), want, rtol=0, atol=1e-10)
        scored = data.sample.rows(np.array(bncases.case(f"{name}_predict")["rows"]) - 1)
        assert log_likelihoods(network, scored)[0] == pytest.approx(
            bncases.number(model["logLik"]), rel=1e-9
        )


@pytest.mark.parametrize("name", bncases.cases("wanbia"))
def test_conditional_weights_have_an_objective_no_worse_than_rs(name):
    data, stored = bncases.data(name), bncases.case(f"{name}_wanbia")
    objective = ConditionalLikelihood(data.sample, data.n_levels, data.K)
    for weights, known in (
        (np.ones(len(data.names)), stored["objective"]["at_ones"]),
        (data.by_name(stored["objective"]["at_grid"]["weights"]), stored["objective"]["at_grid"]),
    ):
        assert objective(weights)[0] == pytest.approx(known["value"], rel=1e-8)
    found = conditional_weights(data.sample, data.n_levels, data.K)
    assert objective(found)[0] <= stored["optim"]["value"] + 1e-6
    # R's gradient is not that of its objective
    assert np.abs(found - data.by_name(stored["weights"])).max() < 0.12
    slope = objective(found)[1]
    inside = (found > 0) & (found < 1)
    assert np.abs(slope[inside]).max(initial=0.0) < 1e-3 * data.sample.n
    assert (slope[found == 1] < 1e-6).all() and (slope[found == 0] > -1e-6).all()


@pytest.mark.parametrize("name", bncases.cases("wanbia"))
def test_tables_of_given_weights_agree_with_r(name):
    data, stored = bncases.data(name), bncases.case(f"{name}_wanbia")
    for model in stored["models"]:
        base = estimate(
            naive(range(len(data.names))), data.sample, data.n_levels, data.K, model["smooth"]
        )
        network = weighted(base, data.by_name(stored["weights"]))
        check_tables(network, data, model["cpts"], atol=1e-12)
        assert log_likelihoods(network, data.sample)[1] == pytest.approx(model["cLogLik"], rel=1e-9)


@pytest.mark.parametrize("name", bncases.cases("awnb"))
@pytest.mark.long
def test_weights_by_trees_agree_with_r(name):
    data, stored = bncases.data(name), bncases.case(f"{name}_awnb")
    for run in stored["seeded_runs"]:
        rows = [np.array(drawn) - 1 for drawn in run["bootstrap_rows"]]
        weights = tree_weights(data.sample, data.n_levels, data.K, rows)
        np.testing.assert_allclose(weights, data.by_name(run["weights"]), rtol=0, atol=1e-12)
        base = estimate(
            naive(range(len(data.names))), data.sample, data.n_levels, data.K, stored["smooth"]
        )
        check_tables(weighted(base, weights), data, run["cpts"], atol=1e-12)
    tan = stored["on_tan"]
    dag = data.dag(tan["families"])
    by_name = data.by_name(tan["weights"])
    network = weighted(
        estimate(dag, data.sample, data.n_levels, data.K, stored["smooth"]),
        by_name[list(dag.features)],
    )
    check_tables(network, data, tan["cpts"], atol=1e-12)


def outcome(families, log):
    return {i: set(parents) for i, parents in families}, [round(v, 10) for v in log]


@pytest.mark.parametrize("name", bncases.cases("greedy"))
@pytest.mark.long
def test_greedy_searches_end_where_rs_do(name):
    data = bncases.data(name)
    for run in bncases.case(f"{name}_greedy")["runs"]:
        held = np.zeros((len(run["folds"]), data.sample.n))
        for fold, rows in enumerate(run["folds"]):
            held[fold, np.array(rows) - 1] = 1.0
        options = {"epsilon": run["epsilon"], "smooth": run["smooth"], "kdbk": run["kdbk"] or 2}
        rng = np.random.default_rng(run["seed"])
        dag, log = climb(
            run["learner"], data.sample, data.n_levels, data.K, held, rng=rng, **options
        )
        if run["tie_free"]:
            assert dag == data.dag(run["families"])
            assert log == pytest.approx(run["scores_log"], abs=1e-12)
        else:
            at = {n: i for i, n in enumerate(data.names)}
            acceptable = [
                (
                    {
                        at[x]: {at[p] for p in ps if p != data.class_}
                        for x, ps in end["parents"].items()
                        if x in at
                    },
                    log_,
                )
                for end in run["acceptable_outcomes"]
                for log_ in end["scores_logs"]
            ]
            families, scores = outcome(dag.families, log)
            assert (families, scores) in [(f, [round(v, 10) for v in s]) for f, s in acceptable]


def test_conditional_information_of_a_feature_given_another_agrees_with_r():
    for name in bncases.cases("cmi"):
        data = bncases.data(name)
        columns = {
            n: np.where(data.sample.missing[:, i], -1, data.sample.codes[:, i].astype(int))
            if data.sample.missing is not None
            else data.sample.codes[:, i]
            for i, n in enumerate(data.names)
        }
        columns[data.class_] = data.sample.response
        for entry in bncases.case(f"{name}_cmi")["given_feature"]:
            names = [entry["x"], entry["y"], entry["z"]]
            counts = np.zeros([len(data.levels[n]) for n in names])
            known = np.all([columns[n] >= 0 for n in names], axis=0)
            np.add.at(counts, tuple(columns[n][known] for n in names), 1.0)
            assert conditional_information(counts) == pytest.approx(entry["value"], abs=1e-12)


@pytest.mark.long
def test_weights_of_least_squared_error_are_those_of_a_plain_minimisation(tmp_path):
    from scipy.optimize import approx_fprime, minimize

    import bbl
    from bbl import datasets, networks

    rng = np.random.default_rng(2)
    n = 300
    y = rng.integers(0, 3, n)
    table = {"y": y.astype(str)}
    for k, noise in enumerate((0.3, 0.5, 0.8, 1.0)):
        table[f"x{k}"] = np.where(rng.random(n) < noise, rng.integers(0, 3, n), y).astype(str)
    table["copy"] = table["x0"]  # naive Bayes counts it twice
    features = [name for name in table if name != "y"]

    def squared_error(w):
        """Half of the mean squared error of the class probabilities, from predictions alone."""
        given = dict(zip(features, np.clip(w, 0, 1).tolist(), strict=True))
        fit = networks.bnc("nb", "y ~ .", table, 1, wanbia=given)
        p = fit.predict(table, type="prob").iloc[:, :3].to_numpy(float)
        return 0.5 * ((p - (np.arange(3) == y[:, None])) ** 2).sum() / n

    fit = networks.bnc("nb", "y ~ .", table, 1, wanbia="mse")
    found = fit.wanbia_weights[features].to_numpy()
    plain = minimize(
        squared_error, np.full(5, 0.5), method="L-BFGS-B", bounds=[(0, 1)] * 5, tol=1e-14
    )
    assert squared_error(found) <= plain.fun + 1e-9
    np.testing.assert_allclose(found, plain.x, atol=2e-3)
    by_likelihood = networks.bnc("nb", "y ~ .", table, 1, wanbia=True).wanbia_weights[features]
    assert squared_error(found) < squared_error(by_likelihood.to_numpy()) - 1e-7
    # the gradient, with missing values and row weights
    from bbl.bayesnet.weighting import SquaredError
    from bbl.rows.sample import Sample

    missing = rng.random((n, 5)) < 0.1
    codes = np.column_stack([np.asarray(table[f]).astype(np.uint8) for f in features])
    sample = Sample(
        np.where(missing, 0, codes).astype(np.uint8), rng.integers(1, 4, n) * 1.0, y, missing
    )
    objective = SquaredError(sample, np.full(5, 3), 3)
    w = rng.uniform(0.2, 0.9, 5)
    slope = approx_fprime(w, lambda v: objective(v)[0], 1e-6)
    np.testing.assert_allclose(objective(w)[1], slope, rtol=1e-3, atol=1e-3)
    assert "squared error" in str(fit.summary())
    titanic = datasets.load_titanic()
    kept = networks.bnc("nb", "Survived ~ .", titanic, 1, weights="Freq", wanbia="mse")
    assert kept.recipe.wanbia == "mse" and kept.call.count("mse") == 1
    kept.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl")
    assert loaded.recipe == kept.recipe
    assert loaded.wanbia_weights.equals(kept.wanbia_weights)
