"""Couplings that are linear in scores of ordered levels: pseudo-likelihood and maximum likelihood
against the oracle, R's numbers and what users see.
"""

import time

import numpy as np
import pandas as pd
import pytest
import reference
import reference_linear
import scipy.stats

import bbl
from bbl.boltzmann.estimate import fit_group
from bbl.boltzmann.inference.exact_ratio import smaller_layout
from bbl.boltzmann.inference.nested import ratio_test, zero_contrasts
from bbl.engines import MaximumLikelihood, PseudoLikelihood
from bbl.engines.pseudo import blocks
from bbl.errors import OptionError
from bbl.model.layout import Layout
from bbl.model.scored_sites import ScoredPenalty, fit_scored_sites
from bbl.model.scores import free_sizes, score_map, site_scores_of
from bbl.rows.sample import Sample

NAN = np.nan
L = (4, 3, 5, 2)
# equally spaced; none; three levels in order and one that is not; none
SCORES = [np.array([0.3, 0.7, 1.0]), None, np.array([0.5, 0.6, 1.0, NAN]), None]
OF_LEVELS = [np.array([0, 0.3, 0.7, 1.0]), None, np.array([0, 0.5, 0.6, 1.0]), None]
PAIRS = [(i, j) for i in range(4) for j in range(i + 1, 4)]
TERMS = [PAIRS, [(0, 1), (1, 2), (0, 1, 2), (2, 3)], [(0, 2)], [(1, 3)]]
# R: counts of Sat (rows) by Infl (columns) of MASS::housing, and glm(n ~ Sat + Infl + s:t, poisson)
HOUSING = np.array([[282, 206, 79], [170, 189, 87], [175, 264, 229]])
THETA, THETA_SE, G2, G2_DF = 0.3916001642463176, 0.03970430794398882, 2.6008522792215563, 3


def drawn(n=160, seed=0, weights=True):
    """Codes and weights of rows in which all levels occur."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    codes = np.column_stack(
        [np.clip(np.round(z + rng.normal(size=n) + (k - 1) / 2), 0, k - 1) for k in L]
    ).astype(np.uint8)
    return codes, rng.integers(1, 4, n).astype(float) if weights else np.ones(n)


def layout(terms=None, scores=SCORES):
    return Layout(L, terms, scores=scores)


def expect_tables(found, theta, tables, tol=1e-8):
    """The parameters of a layout equal the tables of the oracle."""
    for scope in found.scopes:
        expected = tables[scope][(slice(1, None),) * len(scope)]
        np.testing.assert_allclose(found.table(theta, *scope), expected, atol=tol)


def table(n=600, seed=1, missing=False):
    """A data frame with a response, two ordered predictors, a nominal one and two levels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    z = rng.normal(size=n) * 0.6
    a = np.clip(np.round(z + rng.normal(size=n) + 1.5 + 0.4 * y), 0, 3).astype(int)
    b = np.clip(np.round(z + rng.normal(size=n) + 2 - 0.4 * y), 0, 4).astype(int)
    a_codes = np.where(rng.random(n) < 0.1, -1, a) if missing else a
    return pd.DataFrame(
        {
            "a": pd.Categorical.from_codes(a_codes, list("pqrs"), ordered=True),
            "b": pd.Categorical.from_codes(b, list("vwxyz"), ordered=True),
            "c": rng.choice(["k", "l", "m"], n),
            "d": rng.choice(["no", "yes"], n, p=[0.6, 0.4]),
            "y": np.array(["s", "t"])[y],
        }
    )


def housing(t_ordered=True):
    codes = np.argwhere(HOUSING >= 0)
    levels = ["Low", "Medium", "High"]
    return pd.DataFrame(
        {
            "s": pd.Categorical.from_codes(codes[:, 0], levels, ordered=True),
            "t": pd.Categorical.from_codes(codes[:, 1], levels, ordered=t_ordered),
            "n": HOUSING.ravel(),
        }
    )


# -- the map of free parameters --------------------------------------------------------------------
@pytest.mark.parametrize("terms", TERMS)
def test_the_map_writes_the_tables_out(terms):
    of = layout(terms)
    shared = score_map(of)
    couplings = reference_linear.linear_terms(L, terms, OF_LEVELS)
    assert shared.n == of.D + len(couplings)
    for k, (term, tied) in enumerate(couplings):
        theta = shared.expand(np.eye(shared.n)[of.D + k])
        written = of.table(theta, *term)
        expected = tied[(slice(1, None),) * len(term)]
        # a free parameter is the coupling of a score of 1
        np.testing.assert_allclose(written, expected, atol=1e-15)
        assert np.count_nonzero(theta) == np.count_nonzero(expected)


def test_operations_of_the_map_are_products_with_its_matrix():
    shared = score_map(layout(TERMS[1]))
    A = shared.matrix.toarray()
    rng = np.random.default_rng(0)
    p, r = A.shape
    M, free, gradient = rng.normal(size=(p, p)), rng.normal(size=r), rng.normal(size=p)
    np.testing.assert_allclose(shared.expand(free), A @ free)
    np.testing.assert_allclose(shared.gather(gradient), A.T @ gradient)
    np.testing.assert_allclose(shared.project(M), A.T @ M @ A)
    np.testing.assert_allclose(shared.spread(M[:r, :r]), A @ M[:r, :r] @ A.T)
    np.testing.assert_allclose(shared.restrict(gradient), np.linalg.lstsq(A, gradient)[0])
    np.testing.assert_allclose(shared.ridge(gradient**2), np.diag(A.T * gradient**2 @ A))


def test_sizes_of_tables_count_free_parameters():
    sizes = dict(zip(layout().scopes, free_sizes(layout()).tolist(), strict=True))
    assert sizes == {(0,): 3, (1,): 2, (2,): 4, (3,): 1} | {
        (0, 1): 2, (0, 2): 2, (0, 3): 1, (1, 2): 4, (1, 3): 2, (2, 3): 2,
    }  # fmt: skip


@pytest.mark.parametrize("terms", TERMS)
def test_the_site_maps_agree_with_the_map_of_the_layout(terms):
    of = layout(terms)
    total = sum(site.n for site in site_scores_of(of).maps)
    orders = [len(scope) for scope in of.scopes]
    assert total == int(np.dot(free_sizes(of), orders))


# -- pseudo-likelihood -----------------------------------------------------------------------------
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize(
    "options",
    [{"lambda_": 0.03}, {"lambda_": 0.01, "lambdah": 0.05}, {"lambda_": 0.02, "prior_count": 3.0}],
    ids=str,
)
@pytest.mark.thinned(5)
def test_pseudo_likelihood_equals_the_oracle(terms, options):
    codes, weights = drawn()
    of = layout(terms)
    fit = PseudoLikelihood(ordered="linear", **options).fit(Sample(codes, weights), of)
    tables, objective = reference_linear.linear_pseudo(
        codes.astype(int), weights, L, terms, OF_LEVELS, **options
    )
    expect_tables(of, fit.theta, tables)
    assert fit.lkh == pytest.approx(-objective, abs=1e-10)
    assert fit.rank == score_map(of).n and fit.converged.all()


def test_missing_values_leave_rows_out_of_their_sites():
    codes, weights = drawn()
    missing = np.random.default_rng(4).random(codes.shape) < 0.1
    sample = Sample(np.where(missing, 0, codes).astype(np.uint8), weights, missing=missing)
    of = layout(TERMS[1])
    fit = PseudoLikelihood(ordered="linear", lambda_=0.02).fit(sample, of)
    tables, objective = reference_linear.linear_pseudo(
        np.where(missing, -1, codes.astype(int)), weights, L, TERMS[1], OF_LEVELS, lambda_=0.02
    )
    expect_tables(of, fit.theta, tables)
    assert fit.lkh == pytest.approx(-objective, abs=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lambda_": 0.01},
        {"lambda_": 0.02, "lambdah": 0.1, "prior_count": 2.0},
        {"lambda_": 0.03, "lambdah": 0.01, "gauge": "zero-sum"},
    ],
    ids=str,
)
def test_without_scores_the_solver_equals_the_kernel(options):
    """Newton's method in numpy, on a layout of nominal predictors, against the kernel."""
    codes, weights = drawn()
    engine = PseudoLikelihood(**options)
    nominal = engine.fit(Sample(codes, weights), Layout(L))
    of = layout(scores=[None] * 4)
    fit = fit_scored_sites(
        Sample(codes, weights),
        of,
        np.zeros((of.D, 1 + of.D)),
        ScoredPenalty(engine.lambda_, engine.lambdah, engine.prior_count, engine.zero_sum),
        tolerance=1e-11,
        itmax=100,
        floor=1e-8,
    )
    np.testing.assert_allclose(fit.site_theta, nominal.site_theta, atol=2e-9)
    np.testing.assert_allclose(-fit.value.sum(), nominal.lkh, atol=1e-12)


@pytest.mark.parametrize(
    ("terms", "gauge"), [(PAIRS, "reference"), (TERMS[1], "reference"), (PAIRS, "zero-sum")]
)
def test_influences_are_derivatives_of_the_fit(terms, gauge):
    codes, weights = drawn(weights=False)
    of = layout(terms)
    engine = PseudoLikelihood(0.02, lambdah=0.01, ordered="linear", gauge=gauge)
    influence, rows = engine.influence(Sample(codes, weights), of)
    psi = influence(rows)[7] / rows.total
    fits = []
    for sign in (-1.0, 1.0):
        changed = weights.copy()
        changed[7] += sign * 1e-3
        fits.append(engine.fit(Sample(codes, changed), of).theta)
    np.testing.assert_allclose(psi, (fits[1] - fits[0]) / 2e-3, atol=1e-6 * np.abs(psi).max())
    psi = influence(rows) / rows.total
    np.testing.assert_allclose(influence.covariance(rows), psi.T @ psi, atol=1e-12)


def test_the_zero_sum_gauge_does_not_depend_on_the_direction_of_levels():
    data = table()
    turned = data.assign(
        a=data["a"].cat.reorder_categories(list("srqp")),
        b=data["b"].cat.reorder_categories(list("zyxwv")),
    )
    one, other = (
        bbl.bbl("y ~ .^2", d, ordered="linear", gauge="zero-sum", lambda_=0.05, lambdah=0.02)
        for d in (data, turned)
    )
    np.testing.assert_allclose(
        one.predict(data, type="prob")["s"], other.predict(turned, type="prob")["s"], atol=1e-9
    )


@pytest.mark.long
def test_a_large_table_takes_less_than_a_second():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2800, 1))
    codes = np.clip(np.round(z + rng.normal(size=(2800, 25)) + 2.5), 0, 5).astype(np.uint8)
    of = Layout([6] * 25, scores=[np.arange(1, 6) / 5] * 25)
    times = []
    for _ in range(3):  # the quickest of three: other processes share the machine
        start = time.process_time()
        fit = PseudoLikelihood(ordered="linear").fit(Sample(codes, np.ones(2800)), of)
        times.append(time.process_time() - start)
        assert fit.converged.all() and fit.rank == 25 * 5 + 300
    assert min(times) < 1.0


# -- maximum likelihood ----------------------------------------------------------------------------
def test_maximum_likelihood_equals_glm_in_R():
    fit = bbl.bbl("~ s:t", housing(), "n", method="ml", ordered="linear")
    nominal = bbl.bbl("~ s:t", housing(), "n", method="ml")
    row = fit.inference().table().query("predictor2 == 't'").iloc[0]
    assert row["estimate"] == pytest.approx(THETA, abs=1e-9)
    assert row["se"] == pytest.approx(THETA_SE, abs=1e-9)
    assert 2 * (nominal._log_likelihood - fit._log_likelihood) == pytest.approx(G2, abs=1e-8)
    assert nominal.n_parameters - fit.n_parameters == G2_DF
    test = fit.goodness_of_fit()
    assert test.loc["G2", "value"] == pytest.approx(G2, abs=1e-8)
    assert test.loc["G2", "df"] == G2_DF


def test_pseudo_likelihood_of_a_pair_has_the_same_theta():
    """Both conditional distributions of a table with free margins have the likelihood's theta."""
    fit = bbl.bbl("~ s:t", housing(), "n", ordered="linear", lambda_=0)
    assert fit.tidy().query("predictor2 == 't'")["estimate"].iloc[0] == pytest.approx(
        THETA, abs=1e-9
    )


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("options", [{}, {"lambda_": 0.05, "lambdah": 0.02}], ids=str)
@pytest.mark.long
def test_maximum_likelihood_equals_the_oracle(terms, options):
    codes, weights = drawn(400)
    of = layout(terms)
    fit = MaximumLikelihood(ordered="linear", **options).fit(Sample(codes, weights), of)
    counts = np.zeros(L)
    np.add.at(counts, tuple(codes.T), weights)
    tables, value, _ = reference_linear.linear_likelihood(
        counts.ravel(), L, terms, OF_LEVELS, **options
    )
    expect_tables(of, fit.theta, tables, tol=1e-7)
    assert fit.lkh == pytest.approx(value, abs=1e-9)


@pytest.mark.long
def test_covariance_of_maximum_likelihood():
    codes, weights = drawn(400)
    of = layout(PAIRS)
    influence, rows = MaximumLikelihood(ordered="linear").influence(Sample(codes, weights), of)
    counts = np.zeros(L)
    np.add.at(counts, tuple(codes.T), weights)
    covariance = reference_linear.linear_likelihood(counts.ravel(), L, PAIRS, OF_LEVELS)[2]
    A = score_map(of).matrix.toarray()
    # the oracle lists free couplings in the same order
    np.testing.assert_allclose(influence.covariance(rows), A @ covariance @ A.T, atol=1e-8)


def test_a_junction_tree_has_the_same_maximum(monkeypatch):
    codes, weights = drawn(400)
    of = layout([(0, 1), (1, 2), (2, 3)])
    sample = Sample(codes, weights)
    engine = MaximumLikelihood(ordered="linear")
    states = engine.fit(sample, of).theta
    covariance = engine.influence(sample, of)[0].covariance(sample)
    for module in ("solve", "influence"):
        monkeypatch.setattr(f"bbl.engines.likelihood.{module}.MAX_STATES", 10)
    np.testing.assert_allclose(engine.fit(sample, of).theta, states, atol=1e-7)
    np.testing.assert_allclose(
        engine.influence(sample, of)[0].covariance(sample), covariance, atol=1e-8
    )


def test_empty_cells_are_no_obstacle():
    """With a diagonal of zeros, a table of nominal couplings has no maximum, a slope has one."""
    data = housing()
    data.loc[[2, 6], "n"] = 0
    data = data[data["n"] > 0]
    with pytest.warns(bbl.ConvergenceWarning):
        bbl.bbl("~ s:t", data, "n", method="ml")
    fit = bbl.bbl("~ s:t", data, "n", method="ml", ordered="linear")
    assert fit.converged and np.isfinite(fit.params).all()
    counts = HOUSING.copy()
    counts[0, 2] = counts[2, 0] = 0
    tables, _, _ = reference_linear.linear_likelihood(
        counts.ravel().astype(float), (3, 3), [(0, 1)], [np.array([0, 0.5, 1.0])] * 2
    )
    expect_tables(
        fit.estimate.parameters.layout, fit.estimate.parameters.theta[0], tables, tol=1e-7
    )


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_a_slope_that_separates_has_no_maximum(method):
    codes = [[0, 0], [1, 1], [2, 2], [0, 1], [1, 2]]
    data = pd.DataFrame(codes * 8, columns=["a", "b"]).astype(
        pd.CategoricalDtype([0, 1, 2], ordered=True)
    )
    with pytest.warns(bbl.ConvergenceWarning, match="finite") as caught:
        fit = bbl.bbl("~ a:b", data, method=method, ordered="linear", lambda_=0)
    assert "a" in str(caught[0].message) and not fit.converged
    tests = fit.inference().table().query("predictor2 == 'b'")["test"]
    assert tests.str.startswith("not estimable").all()
    penalised = bbl.bbl("~ a:b", data, method=method, ordered="linear", lambda_=0.01)
    assert penalised.converged


@pytest.mark.parametrize("options", [{}, {"lambda_": 0.02, "prior_count": 2.0}], ids=str)
def test_missing_values_are_summed_out(options):
    """The likelihood of rows with missing values is largest at the fit, along random directions."""
    codes, weights = drawn(300)
    missing = np.random.default_rng(4).random(codes.shape) < 0.15
    of = layout([(0, 1), (0, 2), (2, 3)])
    sample = Sample(np.where(missing, 0, codes).astype(np.uint8), weights, missing=missing)
    engine = MaximumLikelihood(ordered="linear", **options)
    fit = engine.fit(sample, of)
    shared = score_map(of)
    np.testing.assert_allclose(shared.expand(shared.restrict(fit.theta)), fit.theta, atol=1e-12)
    x = reference.states(L)
    compatible = ((codes[:, None] == x) | missing[:, None]).all(axis=2)
    statistics = np.array([reference_statistics(of, state) for state in x])

    def objective(theta):
        energy = statistics @ theta
        log_p = energy - reference.logsumexp(energy)
        known = ~missing.all(axis=1)
        rows = np.log(compatible[known] @ np.exp(log_p))
        prior = options.get("prior_count", 0.0)
        total = weights.sum() + prior
        ridge = 0.5 * options.get("lambda_", 0.0) * float(theta[of.D :] @ theta[of.D :])
        # rows without a value do not count
        return (weights[known] @ rows + prior * log_p.mean()) / (
            weights[known].sum() + prior
        ) - ridge, total

    best = objective(fit.theta)[0]
    rng = np.random.default_rng(0)
    for size in (1e-2, 1e-4):
        for _ in range(20):
            step = shared.expand(rng.normal(size=shared.n))
            assert objective(fit.theta + size * step)[0] < best
    influence, _ = engine.influence(sample, of)
    np.testing.assert_allclose(influence(sample).T @ weights, 0.0, atol=1e-6)


def reference_statistics(of, state):
    """The indicators (size,) of all parameters in a state, by definition."""
    out = np.zeros(of.size)
    for scope in of.scopes:
        if (state[list(scope)] > 0).all():
            of.table(out, *scope)[tuple(state[list(scope)] - 1)] = 1.0
    return out


# -- options and labels ----------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_theta_is_a_log_odds_ratio_of_neighbouring_levels(method):
    fit = bbl.bbl("y ~ .^2", table(), method=method, ordered="linear", lambda_=1e-4)
    of = fit.estimate.parameters.layout
    for theta in fit.estimate.parameters.theta:
        ab = of.table(theta, 0, 1)
        np.testing.assert_allclose(ab, ab[0, 0] * np.outer([1, 2, 3], [1, 2, 3, 4]), atol=1e-12)
        ac = of.table(theta, 0, 2)
        np.testing.assert_allclose(ac, np.outer([1, 2, 3], ac[0]), atol=1e-12)
    # fields 3 + 4 + 2 + 1, couplings 1 + 2 + 1 + 2 + 1 + 2
    assert fit.n_parameters == 2 * (10 + 9)


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_level_scores_are_relative(method):
    options = {"method": method, "ordered": "linear", "lambda_": 0.02}
    data = table()
    equal = bbl.bbl("y ~ .^2", data, **options)
    same = bbl.bbl("y ~ .^2", data, level_scores={"a": [10, 12, 14, 16]}, **options)
    np.testing.assert_allclose(same.params, equal.params, atol=1e-9)
    other = bbl.bbl("y ~ .^2", data, level_scores={"a": (8, 12, 16, 17)}, **options)
    of = other.estimate.parameters.layout
    ab = of.table(other.estimate.parameters.theta[0], 0, 1)
    np.testing.assert_allclose(ab[:, 0] / ab[0, 0], [1, 2, 2.25])
    # an order may be given by scores alone
    plain = data.assign(a=data["a"].astype(str), b=data["b"].astype(str))
    scored = bbl.bbl(
        "y ~ .^2", plain, level_scores={"a": [0, 1, 2, 3], "b": np.arange(5)}, **options
    )
    np.testing.assert_allclose(scored.params, equal.params, atol=1e-12)
    assert scored.engine.level_scores == (("a", (0, 1, 2, 3)), ("b", (0, 1, 2, 3, 4)))


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_missing_values_as_a_level_are_out_of_order(method):
    data = table(missing=True)
    fit = bbl.bbl("y ~ .^2", data, method=method, ordered="linear", missing="level", lambda_=0.01)
    of = fit.estimate.parameters.layout
    ab = of.table(fit.estimate.parameters.theta[0], 0, 1)
    np.testing.assert_allclose(ab[:3], ab[0, 0] * np.outer([1, 2, 3], [1, 2, 3, 4]), atol=1e-12)
    np.testing.assert_allclose(ab[3], ab[3, 0] * np.arange(1, 5), atol=1e-12)
    assert abs(ab[3, 0] - 4 * ab[0, 0]) > 1e-3


@pytest.mark.parametrize("method", ["pseudo", "ml"])
@pytest.mark.thinned(2)
def test_files_keep_the_scores(method, tmp_path):
    data = table(missing=True)
    fit = bbl.bbl(
        "y ~ .^2", data, method=method, ordered="linear", missing="marginal", lambda_=0.01,
        level_scores={"a": [1, 2, 4, 8]},
    )  # fmt: skip
    fit.save(tmp_path / "fit.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "fit.bbl")
    assert loaded.engine == fit.engine and loaded.n_parameters == fit.n_parameters
    pd.testing.assert_frame_equal(loaded.predict(data, type="prob"), fit.predict(data, type="prob"))
    pd.testing.assert_frame_equal(loaded.inference().table(), fit.inference().table())
    again = loaded.crossVal(nfold=3, seed=1, shuffle=True, lambda_=[0.01, 0.1], verbose=0)
    direct = fit.crossVal(nfold=3, seed=1, shuffle=True, lambda_=[0.01, 0.1], verbose=0)
    pd.testing.assert_frame_equal(again.cvframe, direct.cvframe)
    nominal = fit.crossVal(
        nfold=3, seed=1, shuffle=True, ordered="nominal", level_scores=None, verbose=0
    )
    assert nominal.model.estimate.parameters.layout.scores is None


@pytest.mark.long
@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_weights_are_repeated_rows(method):
    data = table(200)
    weights = np.random.default_rng(0).integers(1, 4, len(data))
    options = {"method": method, "ordered": "linear", "lambda_": 0.01}
    weighted = bbl.bbl("y ~ .^2", data.assign(w=weights), "w", **options)
    repeated = bbl.bbl("y ~ .^2", data.loc[data.index.repeat(weights)], **options)
    np.testing.assert_allclose(weighted.params, repeated.params, atol=1e-9)
    np.testing.assert_allclose(weighted.bse, repeated.bse, atol=1e-9)
    with pytest.warns(bbl.DataWarning):
        scaled = bbl.bbl("y ~ .^2", data.assign(w=weights * 0.37), "w", **options)
    np.testing.assert_allclose(scaled.params, weighted.params, atol=1e-8)


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_batches_equal_memory(method, tmp_path):
    data = table(500)
    data.to_parquet(tmp_path / "rows.parquet")
    options = {"method": method, "ordered": "linear", "lambda_": 0.01}
    memory = bbl.bbl("y ~ .^2", data, **options)
    batches = bbl.bbl("y ~ .^2", tmp_path / "rows.parquet", **options)
    np.testing.assert_allclose(batches.params, memory.params, atol=1e-12)


def test_cross_validation_of_the_penalty():
    data = table(300)
    fit = bbl.bbl("y ~ .^2", data, ordered="linear", lambda_="cv", seed=1, verbose=0)
    assert fit.engine.lambda_ in PseudoLikelihood.tuned.grid
    cv = bbl.crossVal(
        "y ~ .^2", data, ordered="linear", lambda_=[0.1, 0.01], seed=1, shuffle=True, verbose=0
    )
    assert cv.model.n_parameters == 2 * 19
    refit = bbl.bbl("y ~ .^2", data, ordered="linear", lambda_=cv.regstar)
    np.testing.assert_allclose(cv.model.params, refit.params, atol=1e-8)


def test_a_penalty_acts_on_the_tables():
    """A large penalty shrinks nominal and linear couplings alike, whatever the unit of scores."""
    data = table()
    shrunk = [
        bbl.bbl("y ~ .^2", data, ordered="linear", lambda_=0.1, level_scores={"a": scores})
        for scores in ([0, 1, 2, 3], [0, 100, 200, 300])
    ]
    np.testing.assert_allclose(shrunk[0].params, shrunk[1].params, atol=1e-10)


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_a_density_can_be_sampled(method):
    data = table().drop(columns="y")
    fit = bbl.bbl("~ .^2", data, method=method, ordered="linear")
    assert fit.sample(20, seed=1).shape == (20, 4)
    assert np.isfinite(fit.score_samples(data)).all()


@pytest.mark.parametrize("method", ["pseudo", "ml"])
@pytest.mark.long
def test_effects_have_errors_of_the_delta_method(method):
    fit = bbl.bbl("y ~ .^2", table(400), method=method, ordered="linear", lambda_=0)
    delta = fit.avg_comparisons("a")
    boot = fit.avg_comparisons("a", se="bootstrap", nboot=150, seed=1)
    ratio = np.asarray(delta.frame["std_error"] / boot.frame["std_error"])
    assert ((ratio > 0.75) & (ratio < 1.33)).all()


def test_relevant_predictors_keep_their_scores():
    data = table(800)
    fit = bbl.bbl("y ~ .^2", data, ordered="linear", relevance=0.05)
    chosen = fit.estimate.relevance.chosen
    assert set(chosen) >= {0, 1} and len(chosen) < 4
    of = fit.estimate.parameters.layout
    ab = of.table(fit.estimate.parameters.theta[0], 0, 1)
    np.testing.assert_allclose(ab, ab[0, 0] * np.outer([1, 2, 3], [1, 2, 3, 4]), atol=1e-12)


# -- tests -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_a_table_has_as_many_degrees_of_freedom_as_free_parameters(method):
    fit = bbl.bbl("y ~ .^2", table(1500), method=method, ordered="linear", lambda_=0)
    tests = fit.inference().tests().query("group == 's'")
    df = {
        (a, b): k
        for a, b, k in zip(tests["predictor"], tests["predictor2"], tests["df"], strict=True)
    }
    assert (df["a", "b"], df["a", "c"], df["b", "d"], df["c", "d"]) == (1, 2, 1, 2)
    table_ = (
        fit.inference().table().query("group == 's' and predictor == 'a' and predictor2 == 'b'")
    )
    assert (table_["test"] == "Wald").all()
    assert np.ptp(table_["z"]) < 1e-6  # all of them test theta
    statistic = tests.query("predictor == 'a' and predictor2 == 'b'")["chisq"].iloc[0]
    assert statistic == pytest.approx(table_["z"].iloc[0] ** 2, rel=1e-6)


@pytest.mark.long
def test_rejections_of_a_true_null():
    """The test of theta rejects 5 % of samples of independent predictors."""
    rng = np.random.default_rng(0)
    n_samples, rejected = 400, 0
    for _ in range(n_samples):
        data = pd.DataFrame(
            {
                name: pd.Categorical.from_codes(rng.choice(k, 150), range(k), ordered=True)
                for name, k in (("a", 4), ("b", 3))
            }
        )
        fit = bbl.bbl("~ a:b", data, ordered="linear", lambda_=0)
        rejected += float(fit.inference().interactions()["p"].iloc[0]) < 0.05
    lowest, highest = scipy.stats.binom.interval(0.999, n_samples, 0.05)
    assert lowest <= rejected <= highest


# -- refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", [PseudoLikelihood, MaximumLikelihood])
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ordered": "cubic"}, "ordered='cubic' is unknown"),
        ({"ordered": "cumulative"}, "only available with method='conditional'"),
        ({"level_scores": {"a": [1, 2]}}, "Use ordered='linear'"),
        ({"ordered": "linear", "level_scores": {"a": [1, 1, 2]}}, "must increase"),
        ({"ordered": "linear", "level_scores": {"a": [1, NAN]}}, "level_scores"),
        ({"ordered": "linear", "level_scores": {"a": "123"}}, "must be a list of numbers"),
        ({"ordered": "linear", "level_scores": 3}, "must be a dict"),
    ],
    ids=str,
)
def test_options_out_of_range(engine, options, text):
    with pytest.raises(bbl.BBLError, match=text):
        engine(**options)


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_orders_that_are_not_declared(method):
    data = table(60)
    plain = data.astype(str)
    with pytest.raises(OptionError, match=r"ordered pd\.Categorical, pass their level_scores"):
        bbl.bbl("y ~ .", plain, method=method, ordered="linear")
    for scores, text in (
        ({"a": [1, 2]}, "has 2 scores, but the predictor has 4 levels"),
        ({"e": [1, 2]}, "contains 'e', which is not a predictor"),
        ({"d": [1, 2]}, "has two levels"),
    ):
        with pytest.raises(OptionError, match=text):
            bbl.bbl("y ~ .", data, method=method, ordered="linear", level_scores=scores)
    with pytest.raises(OptionError, match="requires a formula and a table"):
        bbl.mlestimate(np.zeros((4, 2), dtype=int), method=method, ordered="linear", L=[3, 3])


def test_what_does_not_go_together():
    data = table(60)
    with pytest.raises(OptionError, match="Use ordered='nominal', or omit the penalty argument"):
        bbl.bbl("y ~ .^2", data, ordered="linear", penalty="group", lambda_=0.1)
    possible = data[(data["a"] != "s") | (data["d"] != "yes")]
    with pytest.raises(OptionError, match="with structural zeros, degrees of freedom"):
        bbl.bbl(
            "~ a*d", possible, method="ml", ordered="linear",
            structural_zeros=pd.DataFrame({"a": ["s"], "d": ["yes"]}),
        )  # fmt: skip


# -- nested models ---------------------------------------------------------------------------------
def later_rows(*fits):
    """The rows of `anova` after the first."""
    return bbl.anova(*fits).iloc[1:]


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_anova_tests_linearity(method):
    """Of a single pair both likelihood ratios have the same p; each site of the pseudo-likelihood
    has the statistic of the likelihood.
    """
    options = {"weights": "n", "method": method, "lambda_": 0}
    nominal = bbl.bbl("~ s:t", housing(), **options)
    linear = bbl.bbl("~ s:t", housing(), ordered="linear", **options)
    independent = bbl.bbl("~ s + t", housing(), **options)
    times = {"pseudo": 2, "ml": 1}[method]
    for fits in ((linear, nominal), (nominal, linear)):
        row = later_rows(*fits).iloc[0]
        assert row["ratio"] == pytest.approx(times * G2, abs=1e-8)
        assert row["df"] == G2_DF and row["p"] == pytest.approx(0.4573397, abs=1e-6)
    row = later_rows(independent, linear).iloc[0]
    # R: anova of glm(n ~ Sat + Infl) and with s:t
    assert row["ratio"] == pytest.approx(times * (106.37136448381665 - G2), abs=1e-8)
    assert row["df"] == 1


def test_anova_of_row_effects():
    """Deviances of Poisson regressions: statsmodels."""
    statsmodels = pytest.importorskip("statsmodels.api")
    s, t = np.argwhere(HOUSING >= 0).T
    design = np.column_stack(
        [np.ones(9), np.eye(3)[s][:, 1:], np.eye(3)[t][:, 1:], s[:, None] * np.eye(3)[t][:, 1:]]
    )
    family = statsmodels.families.Poisson()
    deviance = statsmodels.GLM(HOUSING.ravel(), design, family=family).fit(tol=1e-13).deviance
    options = {"weights": "n", "method": "ml"}
    rows = bbl.bbl("~ s:t", housing(t_ordered=False), ordered="linear", **options)
    nominal = bbl.bbl("~ s:t", housing(), **options)
    linear = bbl.bbl("~ s:t", housing(), ordered="linear", **options)
    row = later_rows(rows, nominal).iloc[0]
    assert row["ratio"] == pytest.approx(deviance, abs=1e-8) and row["df"] == 2
    row = later_rows(linear, rows).iloc[0]
    assert row["ratio"] == pytest.approx(G2 - deviance, abs=1e-8) and row["df"] == 1


@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_models_with_other_scores_are_not_nested(method):
    options = {"method": method, "ordered": "linear"}
    one = bbl.bbl("y ~ .^2", table(), **options)
    other = bbl.bbl("y ~ .^2", table(), level_scores={"a": [0, 1, 2, 9]}, **options)
    assert "not nested" in later_rows(one, other)["test"].iloc[0]
    assert "have the same pairs" in later_rows(one, one)["test"].iloc[0]
    # without predictors in common terms, scores do not matter
    small = bbl.bbl("y ~ a + b*d + c", table(), **options)
    assert not later_rows(small, other)["test"].str.startswith("no test").any()


@pytest.mark.parametrize("kept", [[True] * 6, [True, False, True, True, False, True]])
@pytest.mark.parametrize("scores_of_large", [None, [None, None, SCORES[2], None]])
def test_contrasts_are_zero_in_the_smaller_model(kept, scores_of_large):
    large = Layout(L, scores=scores_of_large)
    small = smaller_layout(large, np.array(kept), SCORES)
    rng = np.random.default_rng(0)
    in_small = score_map(small).expand(rng.normal(size=score_map(small).n))
    theta = np.zeros(large.size)
    for scope in small.scopes:
        large.table(theta, *scope)[...] = small.table(in_small, *scope)
    positions = rng.permutation(large.size)
    contrasts = zero_contrasts(large, small, positions)
    np.testing.assert_allclose(contrasts.T @ theta[positions], 0.0, atol=1e-12)
    n_large = large.size if scores_of_large is None else score_map(large).n
    assert contrasts.shape[1] == n_large - score_map(small).n
    # and independent, as combinations of the larger model's free parameters
    A = np.eye(large.size) if scores_of_large is None else score_map(large).matrix.toarray()
    assert np.linalg.matrix_rank(contrasts.T @ A[positions]) == contrasts.shape[1]


@pytest.mark.long
def test_the_composite_ratio_has_its_distribution():
    """Of 150 samples of a linear model of three predictors, 5 % are rejected."""
    of = Layout([3, 3, 3], scores=[np.array([0.5, 1.0])] * 3)
    states = reference.states((3, 3, 3))
    theta = np.zeros(of.size)
    for pair, value in (((0, 1), 0.8), ((0, 2), -0.6), ((1, 2), 0.5)):
        of.table(theta, *pair)[...] = value * np.outer([0.5, 1.0], [0.5, 1.0])
    energy = np.array([reference_statistics(of, x) for x in states]) @ theta
    p = np.exp(energy - reference.logsumexp(energy))
    rng = np.random.default_rng(0)
    kept = np.ones(3, dtype=bool)
    rejected = 0
    for _ in range(150):
        counts = rng.multinomial(900, p).astype(float)
        rows = Sample(states.astype(np.uint8), counts).rows(counts > 0)
        test = ratio_test(
            [(rows, None)], Layout([3, 3, 3]), np.zeros((1, of.size)), kept, of.scores
        )
        assert test.df == 9
        rejected += test.p < 0.05
    assert 1 <= rejected <= 17  # 99.9 % of Binomial(150, 0.05)


def ratings(n=20_000):
    """Three groups of rows with fourteen ratings of three levels, of which few rows are equal."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    factor = rng.normal(size=n)
    columns = {"y": np.array(["no", "yes"])[y]}
    for i in range(14):
        value = 0.5 * factor + 0.3 * y * (i % 3) + rng.normal(size=n)
        columns[f"x{i}"] = pd.Categorical.from_codes(
            np.digitize(value, [-0.3, 0.8]), ["low", "mid", "high"], ordered=True
        )
    return pd.DataFrame(columns)


@pytest.mark.long
def test_inference_from_a_sample_of_the_rows(monkeypatch):
    """Fits of batches keep 3,000 rows of a group, and test couplings and linearity with them."""
    data = ratings()
    for name, value in (("MIN_SAMPLE", 3000), ("ROWS_PER_COLUMN", 1), ("FULL_FIT_FACTOR", 2)):
        monkeypatch.setattr(blocks, name, value)
    formula = "y ~ . + x0 * x1 + x1 * x2 + x2 * x3"
    fits = {}
    for kind, source in (("memory", data), ("batches", lambda: iter([data]))):
        fits[kind] = [
            bbl.bbl(formula, source, ordered=ordered, lambda_=1e-4)
            for ordered in ("linear", "nominal")
        ]
    linear, own = fits["batches"][0], fits["memory"][0]
    np.testing.assert_allclose(linear.params, own.params, atol=1e-8)
    np.testing.assert_allclose(linear.bse, own.bse, rtol=0.1)
    found, expected = (fit.inference().tests() for fit in (linear, own))
    assert (found["df"] == expected["df"]).all()
    is_pair = expected["predictor2"].notna()
    np.testing.assert_allclose(found["chisq"][is_pair], expected["chisq"][is_pair], rtol=0.25)
    row, own_row = (later_rows(*fits[kind]).iloc[0] for kind in ("batches", "memory"))
    assert row["df"] == own_row["df"] == 2 * 3 * 3
    assert row["test"] == "Wald" and row["p"] == pytest.approx(own_row["p"], abs=0.1)


def test_unpenalised_estimates_come_from_all_rows_that_are_kept():
    fit = bbl.bbl("y ~ x0 * x1 + x1 * x2", ratings(6000), ordered="linear", lambda_=1e-2)
    tables = [fit.inference(rows=rows).table() for rows in ("all", 1500)]
    assert all((table["test"] == "Wald").all() for table in tables)
    # the centres of intervals, of which the penalty moves some by a standard error
    exact, found = ((table["lower"] + table["upper"]) / 2 for table in tables)
    assert ((exact - tables[0]["estimate"]).abs() / tables[0]["se"]).max() > 0.5
    assert ((found - exact).abs() / tables[0]["se"]).max() < 1e-5


# -- slopes ----------------------------------------------------------------------------------------
def test_slopes_have_the_numbers_of_glm_in_R():
    fit = bbl.bbl("~ s:t", housing(), "n", method="ml", ordered="linear")
    slopes = fit.inference().slopes()
    assert len(slopes) == 1 and slopes["level"].isna().all() and slopes["level2"].isna().all()
    assert slopes["estimate"].iloc[0] == pytest.approx(THETA, abs=1e-9)
    assert slopes["se"].iloc[0] == pytest.approx(THETA_SE, abs=1e-9)
    assert f"theta_[s,t]: {THETA:.7f}" in repr(fit)
    summary = repr(fit.summary())
    assert "Slopes theta:" in summary and "In order: s, t (linear)" in summary
    # per unit of the scores
    scored = bbl.bbl(
        "~ s:t", housing(), "n", method="ml", ordered="linear",
        level_scores={"s": [8, 12, 16], "t": [0, 10, 20]},
    )  # fmt: skip
    slopes = scored.inference().slopes()
    assert slopes["estimate"].iloc[0] == pytest.approx(THETA / 40, abs=1e-10)
    assert slopes["se"].iloc[0] == pytest.approx(THETA_SE / 40, abs=1e-10)
    assert "level_scores = s: 8 12 16, t: 0 10 20" in " ".join(repr(scored.summary()).split())


@pytest.mark.parametrize("of", ["group", "pooled", ("t", "s")])
def test_slopes_name_the_levels_of_nominal_predictors(of):
    data = table(missing=True)
    fit = bbl.bbl(
        "y ~ a*b + a*c + c*d",
        data,
        ordered="linear",
        missing="level",
        level_scores={"b": range(0, 10, 2)},
    )
    inference = fit.inference()
    slopes = inference.slopes(of)
    first = slopes.head(6)
    assert first["predictor2"].tolist() == ["b"] * 2 + ["c"] * 4
    names = list(zip(first["level"].fillna("-"), first["level2"].fillna("-"), strict=True))
    gap = "(missing)"
    assert names == [("-", "-"), (gap, "-"), ("-", "l"), ("-", "m"), (gap, "l"), (gap, "m")]
    full = inference.table(of)
    tests = ["estimate", "se", "lower", "upper"]
    cell = full[(full["level"] == "r") & (full["level2"] == "z")].iloc[0]  # scores 2 and 8
    np.testing.assert_allclose(slopes[tests].iloc[0].astype(float) * 16, cell[tests].astype(float))
    assert slopes["p"].iloc[0] == pytest.approx(cell["p"])
    assert bbl.bbl("y ~ a", data, missing="level").inference().slopes(of).empty


# -- surveys and other users -----------------------------------------------------------------------
@pytest.mark.parametrize("method", ["pseudo", "ml"])
def test_tests_under_a_design_count_free_parameters(method):
    data = table(900).assign(
        w=np.random.default_rng(0).gamma(2, 1, 900), cluster=np.arange(900) // 9
    )
    design = bbl.survey("w", cluster="cluster")
    fit = bbl.bbl("y ~ a*b + c", data, method=method, ordered="linear", lambda_=0, design=design)
    tests = fit.inference().tests().query("predictor2 == 'b'")
    slopes = fit.inference().slopes()
    assert tests["df"].tolist() == [1, 1]
    np.testing.assert_allclose(
        tests["chisq"], slopes["estimate"] ** 2 / slopes["se"] ** 2, rtol=1e-6
    )
    np.testing.assert_allclose(tests["p"], slopes["p"], rtol=1e-6)


def test_the_null_model_has_no_scores():
    fit = bbl.bbl("y ~ 1", table(60), ordered="linear")
    assert fit.n_parameters == 0


@pytest.mark.long
def test_estimators_and_steps_take_the_options():
    data = table(400)
    X = data.drop(columns="y")
    options = {"ordered": "linear", "level_scores": {"a": [0, 1, 2, 5]}}
    estimator = bbl.BBLClassifier(method="pseudo", lambda_=0.01, options=options)
    direct = bbl.bbl("y ~ .^2", data, lambda_=0.01, lambdah=1e-4, **options)
    np.testing.assert_allclose(
        estimator.fit(X, data["y"]).predict_proba(X)[:, 0],
        direct.predict(data, type="prob")["s"],
        atol=1e-8,
    )
    fit = bbl.bbl("y ~ .^2", data, method="ml", ordered="linear")
    steps = bbl.step(fit).path
    # a coupling of two ordered predictors has one parameter in each group, row effects have two
    assert set(steps["df"].iloc[1:]) <= {2, 4}


def test_groups_without_rows_count_free_parameters():
    of = layout()
    empty = Sample(np.zeros((0, 4), dtype=np.uint8), np.zeros(0))
    for engine in (PseudoLikelihood(ordered="linear"), MaximumLikelihood(ordered="linear")):
        (group,) = fit_group(empty, of, engine)
        assert group.fit.rank == score_map(of).n
