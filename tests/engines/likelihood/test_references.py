"""Exact maximum likelihood against the stored outputs of R's log-linear models, and against
statsmodels.
"""

import numpy as np
import pandas as pd
import pytest
import reference as oracle
import reference_likelihood as truth
import rloglinear

import bbl


@pytest.mark.parametrize("name", rloglinear.names() or [None])
@pytest.mark.thinned(3)
def test_numbers_of_r(name, shared):
    checks = rloglinear.compare(name)
    assert len(checks) > 4
    for check in checks:
        assert check.difference <= check.tolerance, check


def test_all_cases_are_there(shared):
    kinds = [rloglinear.read(name)["kind"] for name in rloglinear.names()]
    counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    assert counts == {"conditional_independence": 6, "fit": 42, "logit_equivalence": 4, "nested": 4}


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("nested_dayton", ("model 2", "model 3")),  # the fourth has a table with too small counts
        ("nested_heart", ("model 2", "model 3", "model 5")),  # the fourth does not hold the third
        ("nested_hec", ("model 2", "model 3", "model 4", "model 5")),
        ("nested_housing", ("model 2", "model 3", "model 4", "model 5")),
        *(
            (f"cmh_{name}", ("all pairs",))
            for name in ("arthritis", "dayton", "hec", "housing", "titanic", "ucb")
        ),
    ],
)
@pytest.mark.thinned(3)
def test_anova_shows_the_ratio_of_r_where_rows_are_enough(name, models, shared):
    shown = {
        check.quantity
        for check in rloglinear.compare(name)
        if check.quantity.endswith("ratio of anova")
    }
    assert shown == {f"{model}: ratio of anova" for model in models}


# of saturated models
@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.PerfectSeparationWarning")
@pytest.mark.long
def test_random_tables_have_the_fit_of_a_poisson_regression():
    import statsmodels.api as sm

    for seed in range(100):
        rng = np.random.default_rng([seed, 29])
        L = [int(n) for n in rng.integers(2, 5, rng.integers(2, 5))]
        while np.prod(L) > 64:
            L.pop()
        m = len(L)
        terms = [(i, j) for i in range(m) for j in range(i + 1, m) if rng.random() < 0.7]
        X = truth.indicators(L, terms)
        counts = rng.poisson(60 * rng.uniform(0.3, 1.5, len(X))).astype(float) + 1.0
        names = [f"x{i}" for i in range(m)]
        table = pd.DataFrame(oracle.states(L), columns=names).astype("category").assign(n=counts)
        formula = "~ " + " + ".join([*names, *(f"x{i}:x{j}" for i, j in terms)])
        fit = bbl.bbl(formula, table, weights="n", method="ml")
        # degrees of freedom of saturated models
        with np.errstate(divide="ignore", invalid="ignore"):
            poisson = sm.GLM(counts, sm.add_constant(X), family=sm.families.Poisson()).fit(
                tol=1e-14, maxiter=200
            )
        np.testing.assert_allclose(
            fit.estimate.parameters.theta[0], poisson.params[1:], rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(
            np.sqrt(np.diag(rloglinear.covariance(fit))), poisson.bse[1:], rtol=1e-7
        )
        np.testing.assert_allclose(
            counts.sum() * np.exp(fit.score_samples(table)), poisson.fittedvalues, rtol=1e-8
        )
        assert rloglinear.deviance(fit, counts) == pytest.approx(
            poisson.deviance, rel=1e-8, abs=1e-8
        )
