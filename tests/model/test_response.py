"""Linear response: its Hessian and slopes by finite differences, its sds against exact
posteriors.
"""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from reference import states
from reference_variational import Enumerated, evidence, rows, settled
from reference_variational import features as written_down

import bbl
from bbl.engines import PersistentVI
from bbl.engines.variational.persistent import model_sums
from bbl.engines.variational.priors import PRIORS
from bbl.engines.variational.response import (
    bound_hessian,
    count_multiplications,
    mean_slopes,
    response_covariance,
    state_features,
)
from bbl.engines.variational.scaled import Approximation
from bbl.errors import OptionError
from bbl.model.gauge import to_reference
from bbl.model.layout import Layout
from bbl.rows.sample import Sample

CASES = [
    ("horseshoe", 1.0, None),
    ("laplace", np.inf, None),
    ("student", 2.0, 0.3),
    ("gaussian", np.inf, None),
    ("gaussian", np.inf, 0.7),
    ("flat", np.inf, 1.0),
]


def approximation(layout, name, slab, scale, seed=0):
    """Return some approximation, at no optimum."""
    rng, n = np.random.default_rng(seed), Approximation.length(layout, PRIORS[name], scale)
    return Approximation(
        layout,
        PRIORS[name],
        slab,
        scale,
        rng.normal(scale=0.5, size=n),
        np.log(rng.uniform(0.2, 0.7, n)),
    )


def shifted(at, step):
    n = len(at.mean)
    return replace(at, mean=at.mean + step[:n], log_sd=at.log_sd + step[n:])


def test_features_of_all_states_are_as_written_down():
    layout = Layout([3, 1, 2, 4], [(0, 2), (2, 3)])
    assert_allclose(state_features(layout), written_down(layout, states(layout.n_levels)))
    assert count_multiplications(layout) == 24 * layout.size**2


@pytest.mark.parametrize(("name", "slab", "scale"), CASES)
@pytest.mark.thinned(3)
def test_the_hessian_of_the_bound_is_that_of_finite_differences(name, slab, scale):
    layout = Layout([2, 3], [(0, 1)])
    sample, at = rows(layout, 20), approximation(layout, name, slab, scale)
    likelihood, n = Enumerated(layout, sample), len(at.mean)
    noise = np.random.default_rng(1).standard_normal((2, n))
    found = bound_hessian(at, likelihood.sums, likelihood.total, noise)
    d, unit = 1e-3, np.eye(2 * n)

    def bound(step):
        return evidence(likelihood, shifted(at, d * step), noise)

    numeric = np.empty((2 * n, 2 * n))
    for i in range(2 * n):
        for j in range(i + 1):
            four = [a * b * bound(a * unit[i] + b * unit[j]) for a in (1, -1) for b in (1, -1)]
            numeric[i, j] = numeric[j, i] = sum(four) / (4 * d * d)
    gradient = np.array([(bound(e) - bound(-e)) / (2 * d) for e in unit])
    # zero at an optimum, which this is not
    numeric[np.arange(n, 2 * n), np.arange(n, 2 * n)] -= gradient[n:]
    assert_allclose(found, numeric, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("name", "slab", "scale"), CASES)
def test_the_slopes_of_the_means_are_those_of_finite_differences(name, slab, scale):
    at = approximation(Layout([2, 3, 2], [(0, 1)]), name, slab, scale, 2)
    n, d = len(at.mean), 1e-5
    numeric = [
        (shifted(at, d * e).simplex - shifted(at, -d * e).simplex) / (2 * d) for e in np.eye(2 * n)
    ]
    assert_allclose(mean_slopes(at), np.array(numeric).T, rtol=1e-6, atol=1e-8)


@pytest.mark.long
def test_sds_are_those_of_the_exact_posterior_where_the_factorised_are_too_small():
    layout = Layout([2, 2])
    sample = Sample(states([2, 2]).astype(np.uint8), np.array([30.0, 3.0, 5.0, 40.0]))
    fit = PersistentVI("gaussian", scale=1.0, n_iter=3000, average=0.3, seed=1, sd="lrvb").fit(
        sample, layout
    )
    axis = np.linspace(-2.5, 2.5, 101)
    grid = np.array(np.meshgrid(axis, axis, axis, indexing="ij")).reshape(3, -1).T
    F = written_down(layout, states([2, 2]))
    energy = grid @ F.T
    log_p = (
        energy @ sample.weights
        - sample.total * np.logaddexp.reduce(energy, axis=1)
        - 0.5 * (grid**2).sum(axis=1)
    )
    p = np.exp(log_p - log_p.max())
    theta = to_reference(layout, grid)
    mean = p @ theta / p.sum()
    exact = np.sqrt(p @ (theta - mean) ** 2 / p.sum())
    assert_allclose(fit.sd, exact, rtol=0.06)
    factorised = PersistentVI("gaussian", scale=1.0, n_iter=3000, average=0.3, seed=1).fit(
        sample, layout
    )
    assert (factorised.sd < 0.85 * exact).any()


@pytest.mark.long
@pytest.mark.parametrize(("file", "levels"), [("toyA", [2] * 4), ("toyC_group_L233", [2, 3, 3])])
def test_sds_are_those_that_another_program_found(shared, file, levels):
    stored, layout, sample, _, at = settled(shared / f"data/posterior/{file}.json", tuple(levels))
    found = response_covariance(
        at, model_sums(sample, layout), sample.total, np.random.default_rng(0)
    )
    assert_allclose(np.sqrt(found.diagonal()), stored["exact_sd"], rtol=0.07)
    if "exact_corr" in stored:
        sd = np.sqrt(found.diagonal())
        assert_allclose(found / np.outer(sd, sd), stored["exact_corr"], atol=0.05)


def test_the_option_is_checked_and_said(tmp_path):
    data = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (200, 3)), columns=["a", "b", "c"])
    quick = {
        "n_iter": 600,
        "chains": 32,
        "draws": 1,
        "prior": "gaussian",
        "method": "pvi",
        "verbose": 0,
    }
    plain, fit = (bbl.bbl("~ .^2", data, sd=sd, **quick) for sd in ("factorised", "lrvb"))
    table = fit.inference().table()
    np.testing.assert_array_equal(table["estimate"], plain.inference().table()["estimate"])
    assert "linear response" in table["test"][0] and not np.allclose(
        table["se"], plain.inference().table()["se"]
    )
    fit.save(tmp_path / "m.bbl")
    np.testing.assert_array_equal(
        bbl.load(tmp_path / "m.bbl").inference().table()["se"], table["se"]
    )
    with pytest.raises(OptionError, match="sd='mean' is unknown"):
        PersistentVI(sd="mean")
    with pytest.raises(OptionError, match="likelihood='pseudo'"):
        PersistentVI(sd="lrvb", likelihood="pseudo")
    with pytest.raises(OptionError, match="15 predictors with 120 parameters") as caught:
        bbl.mlestimate(np.random.default_rng(0).integers(0, 2, (50, 15)), method="pvi", sd="lrvb")
    assert caught.value.argument == "sd"


@pytest.mark.long
def test_where_the_bound_is_flat_the_fit_says_that_there_is_no_response(shared):
    stored = json.loads((shared / "data/posterior/toyA.json").read_text())
    counts = np.array(stored["counts"], float)
    sample = Sample(states([2] * 4).astype(np.uint8), counts).weighted(counts)
    flat, plain = (
        PersistentVI(n_iter=4000, seed=1, sd=sd).fit(sample, Layout([2] * 4))
        for sd in ("lrvb", "factorised")
    )
    assert "prior='gaussian'" in flat.notes[-1].hint
    np.testing.assert_array_equal(flat.sd, plain.sd)
