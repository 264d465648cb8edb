"""Standard errors and tests, sampled ln Z, calibration: against simulation, enumeration and
definition.
"""

import numpy as np
import pytest
import reference as oracle
from scipy.optimize import minimize

import bbl
from bbl.engines import PseudoLikelihood
from bbl.errors import OptionError
from bbl.model.ais import annealed_log_z
from bbl.model.godambe import Influence, term_covariances
from bbl.model.layout import Layout
from bbl.model.logz import exact_log_z
from bbl.model.ranking import interaction_strength
from bbl.model.site_hessians import inverse, site_hessians, solver
from bbl.rows.sample import Sample
from bbl.stats.calibration import fit_calibration
from bbl.stats.metrics import log_loss, log_probabilities
from bbl.stats.wald import adjust, wald

LEVELS = [2, 3, 3]


def simulate(rng, n, theta, layout):
    states = oracle.states(LEVELS)
    h = [layout.table(theta, i) for i in range(3)]
    J = {(int(i), int(j)): layout.table(theta, i, j) for i, j in layout.pairs}
    counts = rng.multinomial(n, oracle.probabilities(h, J, LEVELS))
    return Sample(states[counts > 0].astype(np.uint8), counts[counts > 0].astype(float))


def standard_errors(sample, layout, lambda_=0.0, lambdah=0.0):
    fit = PseudoLikelihood(lambda_=lambda_, lambdah=lambdah).fit(sample, layout)
    influence = Influence(sample, layout, fit.site_theta, lambda_, lambdah)
    terms = term_covariances(layout, [(influence(sample) / sample.total, sample.weights)])
    return fit.theta, np.sqrt(np.concatenate([np.diag(t) for t in terms])), terms


@pytest.mark.long
def test_standard_errors_are_the_spread_of_estimates():
    rng, layout = np.random.default_rng(0), Layout(LEVELS)
    theta = rng.normal(scale=0.7, size=layout.size)
    runs = [standard_errors(simulate(rng, 2000, theta, layout), layout)[:2] for _ in range(300)]
    estimates, errors = (np.array(part) for part in zip(*runs, strict=True))
    np.testing.assert_allclose(estimates.std(axis=0) / errors.mean(axis=0), 1.0, atol=0.15)
    covered = np.abs(estimates - theta) < 1.96 * errors
    assert 0.93 < covered.mean() < 0.97


def test_influence_is_the_derivative_of_the_estimate():
    rng, layout = np.random.default_rng(1), Layout(LEVELS)
    sample = simulate(rng, 500, rng.normal(scale=0.5, size=layout.size), layout)
    engine = PseudoLikelihood(lambda_=0.05, lambdah=0.02, tolerance=1e-13)
    fit = engine.fit(sample, layout)
    influence = Influence(sample, layout, fit.site_theta, 0.05, 0.02)(sample)
    for k in (0, 5):
        step = 1e-3
        moved = []
        for sign in (1.0, -1.0):
            weights = sample.weights.copy()
            weights[k] += sign * step
            moved.append(engine.fit(Sample(sample.codes, weights), layout).theta)
        derivative = (moved[0] - moved[1]) / (2 * step) * sample.total
        np.testing.assert_allclose(influence[k], derivative, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("levels", [[2, 3, 3], [2, 2, 2, 2], [6, 5, 4]])
def test_scores_and_hessians_are_sums_over_rows(levels):
    """Few ones in the design are counted one by one, many go through matrix products: both are the
    definition.
    """
    rng, layout = np.random.default_rng(4), Layout(levels)
    # more than a block of rows
    codes = np.column_stack([rng.integers(0, L, 1500) for L in levels]).astype(np.uint8)
    sample = Sample(codes, rng.integers(1, 4, 1500).astype(float))
    theta = np.where(
        rng.random((layout.D, 1 + layout.D)) < 0.9, rng.normal(size=(layout.D, 1 + layout.D)), 0.0
    )
    X = np.column_stack(
        [codes[:, i] == a for i, L in enumerate(levels) for a in range(1, L)]
    ).astype(float)
    for i, (score, H) in site_hessians(sample, layout, theta, range(layout.m)).items():
        own = np.arange(layout.start[i], layout.start[i + 1])
        Z = np.column_stack([np.ones(len(X)), np.delete(X, own, axis=1)])
        field = X @ theta[own, 1:].T + theta[own, 0]
        P = np.exp(field) / (1.0 + np.exp(field).sum(axis=1, keepdims=True))
        each = [
            np.kron(np.diag(p) - np.outer(p, p), np.outer(z, z)) for p, z in zip(P, Z, strict=True)
        ]
        wanted = np.tensordot(sample.weights, each, axes=1) / sample.total
        np.testing.assert_allclose(H, wanted, atol=1e-12)
        residual = (X[:, own] - P) * sample.weights[:, None]
        np.testing.assert_allclose(score, (residual.T @ Z).ravel() / sample.total, atol=1e-12)
        np.testing.assert_allclose(
            solver(H)[0](score), inverse(H)[0] @ score, rtol=1e-8, atol=1e-12
        )


def test_additive_fit_has_the_multinomial_standard_errors():
    data = {"y": ["a"] * 60 + ["b"] * 60, "x": ["u"] * 20 + ["v"] * 40 + ["u"] * 30 + ["v"] * 30}
    for method in ("pseudo", "naive"):
        options = {"prior_count": 0.0}
        table = bbl.bbl("y ~ x", data, method=method, **options).inference().table()
        np.testing.assert_allclose(
            table["se"], [np.sqrt(1 / 20 + 1 / 40), np.sqrt(1 / 30 + 1 / 30)], rtol=1e-6
        )
        between = bbl.bbl("y ~ x", data, method=method, **options).inference().table(("b", "a"))
        assert between["se"][0] == pytest.approx(
            np.sqrt(1 / 20 + 1 / 40 + 1 / 30 + 1 / 30), rel=1e-6
        )


def test_wald_of_one_parameter_is_z_squared_and_adjustment():
    titanic = bbl.datasets.load_titanic()
    inference = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq").inference()
    table, tests = inference.table("pooled"), inference.tests("pooled")
    np.testing.assert_allclose(tests["chisq"], table["z"] ** 2, rtol=1e-9)
    normal = table["test"] == "Wald"
    np.testing.assert_allclose(tests.loc[normal, "p"], table.loc[normal, "p"], rtol=1e-6)
    p = np.array([0.01, 0.02, 0.03])
    np.testing.assert_allclose(adjust(p, "holm"), [0.03, 0.04, 0.04])
    np.testing.assert_allclose(adjust(p, "fdr_bh"), [0.03, 0.03, 0.03])
    assert len(adjust(np.empty(0), "holm")) == 0


def test_difference_from_the_pooled_fit_is_zero_for_one_repeated_group():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2, (100, 2)).astype(str)
    data = {"y": ["a"] * 100 + ["b"] * 100, "p": np.tile(x[:, 0], 2), "q": np.tile(x[:, 1], 2)}
    table = bbl.bbl("y ~ .^2", data).inference().table("pooled")
    own = bbl.bbl("y ~ .^2", data).inference().table()
    # half the rows are shared: Var(g - (g + g')/2) = Var(g)/2 for independent halves of equal size
    np.testing.assert_allclose(table["se"], own["se"] / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(table["estimate"], 0.0, atol=1e-9)


def test_wald_statistic_by_definition():
    rng, layout = np.random.default_rng(4), Layout(LEVELS)
    theta, _, terms = standard_errors(simulate(rng, 800, np.zeros(layout.size), layout), layout)
    cuts = np.concatenate([layout.start, layout.pair_start[1:]])
    statistic, df, p = wald(np.split(theta, cuts[1:-1]), terms)
    part = layout.table(theta, 1, 2).ravel()
    assert statistic[-1] == pytest.approx(part @ np.linalg.solve(terms[-1], part))
    assert df.tolist() == [1, 2, 2, 2, 2, 4]
    assert ((p > 0) & (p <= 1)).all()


def test_composite_likelihood_and_its_effective_parameters():
    rng, layout = np.random.default_rng(9), Layout(LEVELS)
    sample = simulate(rng, 5000, rng.normal(scale=0.5, size=layout.size), layout)
    exact = oracle.PseudoFit(sample.codes, sample.weights, LEVELS, None, 0.0, 0.0)
    fit = PseudoLikelihood(lambda_=0.0).fit(sample, layout)
    value, effective = Influence(sample, layout, fit.site_theta, 0.0, 0.0).composite(sample)
    assert value == pytest.approx(sample.total * exact.lkh, rel=1e-9)
    # a right model has as many effective parameters as each predictor's own problem has: K = H
    # block by block
    own = sum((L - 1) * (1 + sum(LEVELS) - 3 - (L - 1)) for L in LEVELS)
    assert effective == pytest.approx(own, rel=0.05)
    shrunk = Influence(sample, layout, np.zeros((layout.D, 1 + layout.D)), 10.0, 10.0).composite(
        sample
    )[1]
    assert shrunk < effective
    fitted = bbl.bbl("Survived ~ .^2", bbl.datasets.load_titanic(), "Freq")
    assert fitted.claic < bbl.bbl("Survived ~ .", bbl.datasets.load_titanic(), "Freq").claic
    assert fitted.clbic > fitted.claic


@pytest.mark.long
def test_bootstrap_agrees_with_the_sandwich():
    titanic = bbl.datasets.load_titanic()
    fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq")
    boot = fit.bootstrap(200, seed=1)
    np.testing.assert_allclose(boot["se"], fit.bse, rtol=0.3)
    held = boot[boot["test"] == "Wald"]
    assert len(held) == 5 and boot["lower"].isna().sum() == 1  # 4.4 girls who died are expected
    assert (held["lower"] < held["estimate"]).all() and (held["upper"] > held["estimate"]).all()
    again = fit.bootstrap(20, seed=2, n_jobs=2)
    np.testing.assert_array_equal(again["se"], fit.bootstrap(20, seed=2, n_jobs=1)["se"])


def test_summary_has_the_tests():
    fit = bbl.bbl("Survived ~ Sex * Age", bbl.datasets.load_titanic(), "Freq")
    text = str(fit.summary())
    assert "Tests of the couplings, dJ = 0 (Yes - No):" in text and "\nSex:Age " in text
    assert "come from the penalised fit" in " ".join(text.split())
    additive = str(
        bbl.bbl("Survived ~ Sex", bbl.datasets.load_titanic(), "Freq", "naive").summary()
    )
    assert "Tests of the fields" in additive and "couplings, dJ" not in additive


def test_interactions_are_ranked_and_gauge_free():
    layout = Layout([2, 3, 3])
    theta = np.random.default_rng(5).normal(size=layout.size)
    strength = interaction_strength(layout, theta)
    # renaming the reference level is a change of gauge: the strength stays
    full = np.pad(layout.table(theta, 0, 1), ((1, 0), (1, 0)))
    other = full[:, [1, 0, 2]]
    other = other - other[:, :1] - other[:1] + other[0, 0]
    swapped = theta.copy()
    layout.table(swapped, 0, 1)[...] = other[1:, 1:]
    assert interaction_strength(layout, swapped)[0] == pytest.approx(strength[0])
    corrected = interaction_strength(layout, theta, apc=True)
    assert corrected.shape == strength.shape and (corrected != strength).any()
    table = bbl.bbl("Survived ~ .^2", bbl.datasets.load_titanic(), "Freq").interactions("pooled")
    assert (np.diff(table["strength"]) <= 0).all() and len(table) == 6


@pytest.mark.parametrize("terms", [None, [(0, 1), (0, 2), (1, 2), (0, 1, 2)]])
def test_strengths_that_are_rounding_errors_are_zero(terms):
    layout = Layout([2, 3, 3], terms)
    theta = np.random.default_rng(5).normal(size=layout.size)
    theta[layout.D :] *= 1e-16
    for apc in (False, True):
        assert not interaction_strength(layout, theta, apc).any()


def test_inference_says_why_it_cannot():
    titanic = bbl.datasets.load_titanic()
    with pytest.raises(OptionError, match="mf"):
        bbl.bbl("Survived ~ .^2", titanic, "Freq", "mf").inference()
    with pytest.raises(OptionError, match="testNull"):
        bbl.bbl("Survived ~ .^2", titanic, "Freq", testNull=False).inference().table("pooled")
    fit = bbl.bbl("Survived ~ .^2", titanic, "Freq")
    with pytest.raises(OptionError, match="Nope"):
        fit.inference().table(("Nope", "No"))
    with pytest.raises(OptionError, match="symmetrize"):
        bbl.bbl("Survived ~ .^2", titanic, "Freq", symmetrize=False).inference()


@pytest.mark.long
def test_annealed_log_z_against_enumeration():
    rng, z = np.random.default_rng(6), []
    for seed in range(20):
        layout = Layout(rng.integers(2, 5, 6))
        theta = rng.normal(scale=0.7, size=layout.size)
        found = annealed_log_z(
            layout, theta, np.zeros(layout.D), n_steps=200, n_chains=256, rng=seed
        )
        z.append((found.log_z - exact_log_z(layout, theta[None])[0]) / found.standard_error)
        assert 1 <= found.ess <= 256
    assert np.abs(z).max() < 4 and np.abs(np.mean(z)) < 1


def test_annealing_an_independent_model_is_exact():
    layout = Layout([3, 2], [])
    theta = np.array([0.5, -1.0, 2.0])
    found = annealed_log_z(layout, theta, theta, n_steps=3, n_chains=4, rng=0)
    assert found.log_z == pytest.approx(exact_log_z(layout, theta[None])[0], abs=1e-12)
    assert found.standard_error == 0.0 or found.standard_error < 1e-12


@pytest.mark.parametrize("kind", ["offset", "temperature"])
def test_calibration_repairs_what_was_broken(kind):
    rng = np.random.default_rng(7)
    truth = rng.normal(scale=2.0, size=(4000, 3))
    p = np.exp(log_probabilities(truth))
    y = (rng.random(4000)[:, None] > p.cumsum(axis=1)).sum(axis=1)
    broken = (2.5 * truth if kind == "temperature" else truth) + [3.0, -4.0, 0.5]
    found = fit_calibration(broken, y, np.ones(4000), kind)
    good, bad = (log_loss(log_probabilities(s), y, np.ones(4000)) for s in (found(broken), broken))
    assert good < log_loss(log_probabilities(truth), y, np.ones(4000)) + 0.005 < bad
    if kind == "temperature":
        assert found.temperature == pytest.approx(1 / 2.5, rel=0.1)
    weights = rng.integers(1, 4, 4000)
    one = fit_calibration(broken, y, weights.astype(float), kind)
    other = fit_calibration(
        np.repeat(broken, weights, axis=0), np.repeat(y, weights), np.ones(weights.sum()), kind
    )
    np.testing.assert_allclose(one.offset, other.offset, atol=1e-5)


def test_a_firm_calibration_is_the_minimum_of_its_loss_held_as_if_by_ten_observations():
    rng = np.random.default_rng(9)
    scores, y, weights = (
        rng.normal(scale=3.0, size=(30, 3)),
        rng.integers(0, 3, 30),
        rng.integers(1, 4, 30).astype(float),
    )

    def loss(x, held):
        log_p = log_probabilities(np.exp(x[3]) * scores + x[:3])
        return -(weights @ log_p[np.arange(30), y]) + 0.5 * held * (x @ x)

    for kind, held in (("temperature", 1.0), ("firm", 10.0)):
        x = minimize(loss, np.zeros(4), held, tol=1e-12).x
        found = fit_calibration(scores, y, weights, kind)
        np.testing.assert_allclose(
            [*found.offset, np.log(found.temperature)], [*(x[:3] - x[:3].mean()), x[3]], atol=1e-5
        )
    plain, firm = (
        fit_calibration(scores, y, 1e7 * weights, kind) for kind in ("temperature", "firm")
    )
    # of many rows it makes no difference
    assert firm.temperature == pytest.approx(plain.temperature, rel=1e-4)


def test_no_calibration_changes_nothing():
    scores = np.random.default_rng(8).normal(size=(5, 2))
    found = fit_calibration(scores, np.zeros(5, dtype=int), np.ones(5), "none")
    np.testing.assert_array_equal(found(scores), scores)


def test_a_group_that_a_fold_lacks_does_not_decide():
    scores = np.array([[0.0, -np.inf, 1.0], [1.0, 0.0, -1.0], [0.0, 3.0, 1.0], [0.0, -1.0, 2.0]])
    y, weights = np.array([1, 0, 1, 2]), np.ones(4)
    found = fit_calibration(scores, y, weights, "temperature")
    again = fit_calibration(scores[1:], y[1:], weights[1:], "temperature")
    assert found.temperature == again.temperature
    assert np.isfinite(log_loss(log_probabilities(scores), y, weights))
    data = {
        "y": ["a"] * 20 + ["b"] * 20 + ["c"],
        "x": list("uv" * 20) + ["u"],
        "z": list("uuvv" * 10) + ["v"],
    }
    # mere noise
    with pytest.warns(bbl.DataWarning, match="On the training rows, .* for the class proportions"):
        fit = bbl.bbl("y ~ .^2", data, lambda_="cv", lambdah=None, calibrate="temperature")
    assert np.isfinite(fit.tuning.loss).all() and len(set(fit.tuning.loss)) > 1
