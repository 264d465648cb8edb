"""Sparse high-order Boltzmann machines: chosen terms, joint fits, and the verbs over them."""

import itertools
import json
import warnings

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines.highorder import joint
from bbl.engines.highorder.engine import HighOrder
from bbl.engines.highorder.monomials import Monomials
from bbl.errors import BBLError, OptionError
from bbl.model.layout import Layout
from bbl.model.moments import one_hot
from bbl.rows.sample import Sample
from benchmarks.accuracy.highorder import draw_machine

TOY_B = Layout([2] * 5, [(0, 1), (0, 2), (1, 2), (3, 4), (0, 1, 2)])
WEIGHTS = np.array([-0.5, -0.5, -0.5, 0.0, 0.0, 0.2, 0.1, 0.2, 0.8, 1.6])
STATES = np.array(list(itertools.product([0, 1], repeat=5)), dtype=np.uint8)


def toy_b():
    """Return the probabilities of all states, from the energy written out, and their sum."""
    x = STATES.T.astype(float)
    E = -0.5 * (x[0] + x[1] + x[2]) + 0.2 * x[0] * x[1] + 0.1 * x[0] * x[2] + 0.2 * x[1] * x[2]
    E += 1.6 * x[0] * x[1] * x[2] + 0.8 * x[3] * x[4]
    return np.exp(E) / np.exp(E).sum(), np.exp(E).sum()


def test_the_exact_refits_return_the_weights_of_a_known_model():
    p, Z = toy_b()
    assert pytest.approx(31.07597, abs=5e-6) == Z
    X = one_hot(STATES, TOY_B)
    means = Monomials(TOY_B).sums(X, p)
    expected = [0.5523, 0.5595, 0.5523, 0.6173, 0.6173, 0.3820, 0.3748, 0.3820, 0.4259, 0.3064]
    np.testing.assert_allclose(means, expected, atol=5e-5)
    for objective in (
        joint.ExactObjective(TOY_B, means, 0.0),
        joint.PseudoObjective(TOY_B, Sample(STATES, p), 0.0),
    ):
        found = joint.minimise(objective, np.zeros(TOY_B.size), 1e-12)
        assert found.converged
        np.testing.assert_allclose(found.theta, WEIGHTS, atol=1e-9)


class Ramp:
    """``max(x, 0)``, but with the slope 1 below 0 too, so that no step lowers it there; of
    curvature 1.
    """

    def __call__(self, theta):
        return max(float(theta[0]), 0.0), np.ones(1)

    def curve(self, v):
        return v

    def diagonal(self):
        return np.ones(1)


@pytest.mark.parametrize(("itmax", "expected"), [(100, 3), (2, 2)])
def test_a_joint_fit_counts_the_steps_that_it_made(itmax, expected):
    found = joint.minimise(Ramp(), np.array([2.5]), 1e-9, itmax)
    assert (found.n_iter, found.theta.tolist(), found.converged) == (
        expected,
        [2.5 - expected],
        False,
    )


@pytest.mark.parametrize("kind", ["pseudo", "exact"])
def test_gradients_and_curvature_are_those_of_finite_differences(kind):
    layout = Layout([2, 3, 2, 3], [(0, 1), (1, 3), (0, 1, 2), (0, 1, 2, 3)])
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, L, 50) for L in layout.n_levels]).astype(np.uint8)
    sample = Sample(codes, rng.integers(1, 5, 50).astype(float))
    means = Monomials(layout).sums(one_hot(codes, layout), sample.weights / sample.total)
    objective = {
        "pseudo": lambda: joint.PseudoObjective(layout, sample, 0.01),
        "exact": lambda: joint.ExactObjective(layout, means, 0.01),
    }[kind]()
    theta, v = rng.normal(size=(2, layout.size))
    value, gradient = objective(theta)
    curve, diagonal = objective.curve(v), objective.diagonal()
    step = 1e-6 * np.eye(layout.size)
    slopes = [(objective(theta + e)[0] - objective(theta - e)[0]) / 2e-6 for e in step]
    np.testing.assert_allclose(gradient, slopes, atol=1e-8)
    bend = (objective(theta + 1e-6 * v)[1] - objective(theta - 1e-6 * v)[1]) / 2e-6
    np.testing.assert_allclose(curve, bend, atol=1e-7)
    objective(theta)
    if kind == "pseudo":
        np.testing.assert_allclose(
            [objective.curve(e)[i] for i, e in enumerate(np.eye(layout.size))], diagonal
        )


@pytest.fixture(scope="module")
def rows():
    """Draws of a model with a chain of pairs and one term of three, of eight predictors; x7 by
    itself.
    """
    layout = Layout([2] * 8, [(3, 4), (4, 5), (5, 6), (0, 1, 2)])
    theta = np.zeros(layout.size)
    theta[:8] = [-0.6, -0.6, -0.6, 0.3, -0.8, -0.5, 0.2, 0.4]
    theta[8:] = [1.2, 1.5, -1.5, 2.4]
    states = np.array(list(itertools.product([0, 1], repeat=8)), dtype=np.uint8)
    p = np.exp(Monomials(layout).energies(theta, one_hot(states, layout)))
    drawn = np.random.default_rng(5).choice(len(states), 900, p=p / p.sum())
    return pd.DataFrame(states[drawn], columns=[f"x{i}" for i in range(8)])


@pytest.fixture(scope="module")
def fit(rows):
    return bbl.bbl("~ .", rows, method="shbm", verbose=0)


def test_the_terms_of_the_model_are_chosen(fit, rows):
    terms = fit.terms
    chosen = set(terms.loc[terms["votes"] > 0, "predictors"])
    assert chosen >= {("x3", "x4"), ("x4", "x5"), ("x5", "x6"), ("x0", "x1", "x2")}
    assert not any("x7" in term for term in chosen)
    first = terms[terms["order"] == 3].iloc[0]
    assert (
        first["predictors"] == ("x0", "x1", "x2")
        and first["votes"] == 3
        and len(first["node_weights"]) == 3
    )
    np.testing.assert_allclose(first["weight"], first["node_weights"], atol=0.8)
    assert terms.loc[terms["order"] == 1, "votes"].eq(0).all()
    counts = fit.order_counts["all"]
    # the sub-terms of the term of three, too
    assert counts[1] == 8 and counts[3] == 1 and counts[2] >= 6
    assert fit.logLik().df == counts.sum() == fit.estimate.parameters.layout.size
    pairs = bbl.bbl("~ .^2", rows, method="pseudo", lambda_=1e-3, verbose=0)
    assert fit.pnll() < pairs.pnll()


def test_the_joint_pseudo_likelihood_is_at_its_maximum(fit, rows):
    layout, theta = fit.estimate.parameters.layout, fit.estimate.parameters.theta[0]
    sample = Sample(rows.to_numpy(dtype=np.uint8), np.ones(len(rows)))
    ridge = 2.0 / len(rows)
    value, gradient = joint.PseudoObjective(layout, sample, ridge)(theta)
    assert np.abs(gradient).max() < 1e-8 and fit.converged
    penalty = 0.5e-6 * (theta[: layout.D] ** 2).sum() + 0.5 * ridge * (theta[layout.D :] ** 2).sum()
    assert fit.pnll() == pytest.approx(value - penalty)


@pytest.fixture(scope="module")
def pcd(rows):
    return bbl.bbl("~ .", rows, method="shbm", refit="pcd", seed=3, verbose=0)


@pytest.mark.long
def test_refits_agree_where_they_should(fit, pcd, rows):
    exact = bbl.bbl("~ .", rows, method="shbm", refit="exact", ridge=0.0, verbose=0)
    X = one_hot(rows.to_numpy(dtype=np.uint8), exact.estimate.parameters.layout)
    means = Monomials(exact.estimate.parameters.layout).sums(X, np.full(len(X), 1 / len(X)))
    states = np.array(list(itertools.product([0, 1], repeat=8)), dtype=np.uint8)
    p = np.exp(exact.score_samples(pd.DataFrame(states, columns=rows.columns)).to_numpy())
    assert p.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(
        Monomials(exact.estimate.parameters.layout).sums(
            one_hot(states, exact.estimate.parameters.layout), p
        ),
        means,
    )
    assert exact.logLik() > fit.logLik()
    for sampled in (pcd, bbl.bbl("~ .", rows, method="shbm", refit="cd", verbose=0)):
        assert exact.logLik() - sampled.logLik() < 0.01 * abs(exact.logLik())
    field = bbl.bbl("~ .", rows, method="shbm", refit="mf", verbose=0)
    alone = bbl.bbl("~ .", rows, method="naive", verbose=0)
    assert fit.pnll() < field.pnll() < alone.pnll()
    most = bbl.bbl("~ .", rows, method="shbm", combine="max", verbose=0)
    nodes = np.nan_to_num(most.estimate.fits[0].state["nodes"])
    free = np.arange(most.estimate.parameters.layout.size) >= most.estimate.parameters.layout.D
    np.testing.assert_array_equal(
        np.abs(most.estimate.parameters.theta[0][free]), np.abs(nodes).max(axis=0)[free]
    )


@pytest.mark.parametrize("refit", ["pcd", "cd"])
@pytest.mark.long
def test_a_sampled_refit_has_converged_where_its_mean_gradient_is_small(rows, refit):
    few = rows[list(rows.columns[:4])]
    fit = bbl.bbl("~ .", few, method="shbm", order=2, refit=refit, seed=3, verbose=0)
    assert fit.converged and fit.estimate.fits[0].grad_norm[0] <= joint.SETTLED
    with pytest.warns(
        bbl.ConvergenceWarning, match=f"refit='{refit}'. did not converge.*use refit='pseudo'"
    ):
        hasty = bbl.bbl(
            "~ .", few, method="shbm", order=2, refit=refit, n_iter=10, seed=3, verbose=0
        )
    assert not hasty.converged and "Converged: no" in str(hasty.summary())


@pytest.mark.long
def test_two_votes_choose_fewer_terms(fit, rows):
    both = bbl.bbl("~ .", rows, method="shbm", combine="and", verbose=0)
    assert (both.order_counts <= fit.order_counts).all().all()
    votes = both.terms.loc[both.terms["votes"] > 0, "votes"]
    assert (votes >= 1).all() and set(both.terms["predictors"]) <= set(fit.terms["predictors"])


@pytest.mark.long
def test_weights_are_repeated_rows_and_threads_change_nothing(fit, pcd, rows):
    merged = rows.value_counts().rename("n").reset_index().sample(frac=1.0, random_state=0)
    weighted = bbl.bbl("~ .", merged, weights="n", method="shbm", verbose=0)
    np.testing.assert_array_equal(weighted.estimate.parameters.theta, fit.estimate.parameters.theta)
    engine = HighOrder()
    layout, sample = Layout([2] * 8, ()), Sample(rows.to_numpy(dtype=np.uint8)[:300], np.ones(300))
    one, three = (engine.path(sample, layout, workers=w)[0] for w in (1, 3))
    np.testing.assert_array_equal(one.theta, three.theta)
    again = bbl.bbl("~ .", rows, method="shbm", refit="pcd", seed=3, verbose=0)
    np.testing.assert_array_equal(again.estimate.parameters.theta, pcd.estimate.parameters.theta)


@pytest.mark.long
def test_groups_have_terms_of_their_own(rows, tmp_path):
    noise = pd.DataFrame(np.random.default_rng(1).integers(0, 2, rows.shape), columns=rows.columns)
    noise["x6"] = 1  # constant in this group alone
    data = pd.concat([rows.assign(y="a"), noise.assign(y="b")], ignore_index=True)
    fit = bbl.bbl("y ~ .", data, method="shbm", verbose=0)
    counts = fit.order_counts
    assert counts.loc[3, "a"] == 1 and counts.loc[3, "b"] == 0
    layout = fit.estimate.parameters.layout
    assert (layout.table(fit.estimate.parameters.theta[1], 0, 1, 2) == 0.0).all()
    assert fit.logLik().df == counts.to_numpy().sum() < 2 * layout.size
    assert "x6" not in {
        n for t in fit.terms.query("group == 'b' and order > 1")["predictors"] for n in t
    }
    assert fit.coef().h["b"]["x6"].iloc[0] == pytest.approx(np.log((900 + 0.5) / 0.5))
    alone = bbl.bbl("~ .", rows, method="shbm", verbose=0)
    np.testing.assert_allclose(fit.logLik() - alone.logLik(), fit_of_noise(fit, noise), rtol=1e-9)
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    pd.testing.assert_frame_equal(back.terms, fit.terms)
    pd.testing.assert_frame_equal(back.order_counts, counts)
    assert str(back.summary()) == str(fit.summary()) and back.logLik().df == fit.logLik().df
    pd.testing.assert_frame_equal(back.predict(data.head(9)), fit.predict(data.head(9)))
    assert fit.estimate.parameters.pooled is None and fit.evaluate().accuracy > 0.75
    cv = bbl.crossVal(
        "y ~ .",
        data,
        method="shbm",
        lambda_=[30.0, 300.0],
        shuffle=True,
        seed=1,
        nfold=3,
        verbose=0,
    )
    assert cv.regstar in (30.0, 300.0) and cv.maxscore > 0.8


def fit_of_noise(fit, noise):
    """Return the log-likelihood of the second group's rows under its own model."""
    codes = noise.to_numpy(dtype=np.uint8)
    energy = Monomials(fit.estimate.parameters.layout).energies(
        fit.estimate.parameters.theta[1], one_hot(codes, fit.estimate.parameters.layout)
    )
    return (energy - fit.log_z.iloc[1]).sum()


def test_bad_input_is_named(rows):
    def refused(word, error=OptionError, data=rows, **options):
        with pytest.raises(error, match=word):
            bbl.bbl("~ .", data, method="shbm", verbose=0, **options)

    refused("order", order=1)
    refused("lambda_", lambda_="best")
    refused("lambda_ has 3", lambda_=[1.0, 2.0, 3.0])
    refused("lambda_", lambda_=-1.0)
    refused("combine", combine="xor")
    refused("refit", refit="guess")
    wide = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (60, 22)))
    refused(
        "refit='exact' would enumerate", data=wide.rename(columns=str), refit="exact", lambda_=10.0
    )
    silent = rows.astype(object).mask(np.arange(len(rows))[:, None] % 8 == np.arange(8))
    refused("requires complete rows", BBLError, silent, missing="marginal")


@pytest.mark.long
def test_corners_have_finite_fits(rows):
    nothing = bbl.bbl("~ .", rows, method="shbm", lambda_=1e6, verbose=0)
    alone = bbl.bbl("~ .", rows, method="naive", prior_count=0.0, verbose=0)
    assert nothing.order_counts["all"].sum() == 8
    np.testing.assert_allclose(
        nothing.estimate.parameters.theta, alone.estimate.parameters.theta, atol=1e-3
    )
    copies = rows.assign(x8=rows["x0"], x9=1 - rows["x3"])
    copied = bbl.bbl("~ .", copies, method="shbm", verbose=0)
    assert np.isfinite(copied.estimate.parameters.theta).all() and ("x0", "x8") in set(
        copied.terms["predictors"]
    )
    never = rows.assign(x1=np.where(rows["x0"] == 1, 0, rows["x1"]))
    apart = bbl.bbl("~ .", never, method="shbm", verbose=0)
    weight = apart.terms.loc[apart.terms["predictors"] == ("x0", "x1"), "weight"].iloc[0]
    assert np.isfinite(weight) and weight < -3.0
    few = bbl.bbl("~ .", rows.head(30), method="shbm", verbose=0)
    assert np.isfinite(few.logLik())
    gone = rows.astype(object).mask(np.random.default_rng(0).random(rows.shape) < 0.02)
    known = bbl.bbl("~ .", gone, method="shbm", missing="marginal", verbose=0)
    whole = bbl.bbl("~ .", gone.dropna(), method="shbm", verbose=0)
    np.testing.assert_array_equal(known.estimate.parameters.theta, whole.estimate.parameters.theta)


@pytest.mark.parametrize("n_predictors", [1, 2, 3])
def test_an_order_above_the_number_of_predictors_is_that_number(rows, n_predictors):
    few = rows.iloc[:, 3 : 3 + n_predictors]
    fit, capped = (
        bbl.bbl("~ .", few, method="shbm", order=order, verbose=0)
        for order in (9, max(2, min(3, n_predictors)))
    )
    np.testing.assert_array_equal(fit.estimate.parameters.theta, capped.estimate.parameters.theta)
    penalties = bbl.bbl("~ .", few, method="shbm", lambda_=[20.0, 30.0], verbose=0)
    assert penalties.estimate.parameters.layout.order <= n_predictors


@pytest.mark.long
@pytest.mark.parametrize("n_varying", [0, 1, 2])
def test_a_group_of_few_varying_predictors_has_a_fit(rows, n_varying):
    second = rows.head(200).copy()
    second.iloc[:, n_varying:] = 1
    data = pd.concat([rows.assign(y="a"), second.assign(y="b")], ignore_index=True)
    fit = bbl.bbl("y ~ .", data, method="shbm", verbose=0)
    assert fit.evaluate().accuracy > 0.8 and fit.order_counts["b"].loc[2:].sum() <= n_varying // 2
    for options in ({"screen": "all"}, {"lambda_": "cv"}, {"lambda_": 20.0}, {"combine": "max"}):
        fit = bbl.bbl("y ~ .", data, method="shbm", order=2, verbose=0, **options)
        assert np.isfinite(fit.estimate.parameters.theta).all()


@pytest.mark.long
def test_the_levels_of_predictors_may_have_any_order(rows):
    fit = bbl.bbl("~ .", rows, method="shbm", verbose=0)
    turned = bbl.bbl("~ .", 1 - rows, method="shbm", verbose=0)
    assert set(fit.terms["predictors"]) == set(turned.terms["predictors"])


# per machine that `draw_machine` draws: pnll of new rows under a simple program (L1 regressions on
# products of 0 and 1 chosen by BIC, exact likelihood of their union), whose coding is that of the
# machine
SIMPLE = {0: 4.3707, 1: 4.1928, 2: 3.5006, 3: 3.6337, 4: 4.3992, 5: 4.0482}


@pytest.mark.long
def test_new_rows_of_drawn_machines_are_predicted_as_by_a_program_that_knows_their_coding():
    ratios, found = [], 0
    for seed, pnll in SIMPLE.items():
        machine = draw_machine(seed)
        fit = bbl.bbl("~ .", machine.train, method="shbm", verbose=0)
        ratios.append(fit.pnll(machine.test) / pnll)
        found += len(
            {tuple(map(str, t)) for t in machine.terms if len(t) == 3}
            & set(fit.terms["predictors"])
        )
    assert max(ratios) < 1.003 and np.mean(ratios) < 1.001 and found >= 21


@pytest.mark.long
@pytest.mark.parametrize("name", ["shbm_toy_0", "shbm_toy_1", "shbm_toy_2", "shbm_toy_3"])
def test_new_rows_of_the_toys_are_predicted_as_by_a_simple_program(shared, name):
    folder = shared / "data" / "highorder"
    with np.load(folder / f"{name}.npz") as data:
        train, test = (pd.DataFrame(data[part]).rename(columns=str) for part in ("train", "test"))
    simple = json.loads((folder / "baselines.json").read_text())[name]["test"]["own_shbm_or"]
    truth = json.loads((folder / f"{name}.json").read_text())
    fit = bbl.bbl("~ .", train, method="shbm", verbose=0)
    assert fit.pnll(test) < 1.003 * simple
    triples = {tuple(str(v) for v, _ in sorted(term)) for term in truth["terms"] if len(term) == 3}
    assert triples <= set(fit.terms["predictors"])


@pytest.mark.long
@pytest.mark.parametrize("name", ["shbm_toy_0", "cat3_toy_s0"])
def test_known_terms_are_found_and_new_rows_fit_better_than_under_all_pairs(shared, name):
    folder = shared / "data" / "highorder"
    truth = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz") as data:
        train, test = (pd.DataFrame(data[part]).rename(columns=str) for part in ("train", "test"))
    fit = bbl.bbl("~ .", train, method="shbm", verbose=0)
    assert fit.pnll(test) < truth["test"]["pairwise_ml"] - 0.05
    triples = [tuple(str(v) for v, _ in sorted(term)) for term in truth["terms"] if len(term) == 3]
    found = fit.terms.query("order == 3").drop_duplicates("predictors")["predictors"].tolist()
    assert set(found[: len(triples)]) == set(triples)


@pytest.mark.parametrize("refit", ["cd", "pcd", "mf"])
@pytest.mark.thinned(2)
def test_options_of_sampled_refits(rows, refit):
    def theta(**options):
        fit = bbl.bbl(
            "~ .", rows, method="shbm", order=2, refit=refit, lambda_=60.0, verbose=0, **options
        )
        return fit.estimate.parameters.theta

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.ConvergenceWarning)
        default = theta(n_iter=40)
        named = theta(n_iter=40, sweeps=3, lr=0.1, damping=0.2)
        np.testing.assert_array_equal(default, named)
        for change in ({"sweeps": 1}, {"lr": 0.05}, {"n_iter": 60}):
            assert np.abs(theta(**{"n_iter": 40} | change) - default).max() > 1e-6
        damped = theta(n_iter=40, damping=0.6)
        assert (np.abs(damped - default).max() > 1e-6) == (refit == "mf")


@pytest.mark.parametrize(
    ("name", "value"), [("sweeps", 0), ("n_iter", 1), ("lr", 0.0), ("damping", 1.0)]
)
def test_options_of_sampled_refits_are_checked(name, value):
    with pytest.raises(bbl.BBLError, match=name):
        HighOrder(**{name: value})


@pytest.mark.long
def test_long_chains_bring_cd_to_the_maximum_of_the_likelihood(rows):
    exact = bbl.bbl("~ .", rows, method="shbm", order=2, refit="exact", lambda_=60.0, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bbl.ConvergenceWarning)
        gap = [
            exact.logLik()
            - bbl.bbl(
                "~ .",
                rows,
                method="shbm",
                order=2,
                refit="cd",
                lambda_=60.0,
                sweeps=sweeps,
                verbose=0,
            ).logLik()
            for sweeps in (1, 10)
        ]
    assert -1e-6 < gap[1] < 0.002 * abs(exact.logLik())
