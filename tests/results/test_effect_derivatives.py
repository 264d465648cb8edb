"""Standard errors of effects against derivatives by central differences, end to end, of random
fits.
"""

import warnings
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.special import softmax

import bbl
from bbl.boltzmann.inference.covariance import full_covariance
from bbl.boltzmann.inference.score_covariance import moments, score_covariance
from bbl.engines.likelihood.engine import MaximumLikelihood
from bbl.errors import ConvergenceWarning, DataWarning
from bbl.model.elimination import log_sum
from bbl.model.layout import Layout
from bbl.model.logz import exact_elimination
from bbl.results import effects
from bbl.results.effect_values import estimate_effects
from tests.reference import states

METHODS = ("ml", "pseudo", "naive", "conditional")
STEP = 1e-4  # of a central difference of fourth order


def random_fit(rng):
    """A fit of a random method to random rows: 2 to 3 groups, 2 to 4 predictors of 2 to 3 levels,
    some interactions.
    """
    method, m, K, n = (
        str(rng.choice(METHODS)),
        int(rng.integers(2, 5)),
        int(rng.integers(2, 4)),
        600,
    )
    names = [f"x{i}" for i in range(m)]
    shared = rng.normal(size=n)
    codes = {
        name: np.digitize(
            shared * rng.normal() + rng.normal(size=n), [-0.4, 0.6][: rng.integers(1, 3)]
        )
        for name in names
    }
    data = pd.DataFrame(
        {"y": np.digitize(shared + rng.normal(size=n), [0.0, 0.9][: K - 1]), **codes}
    )
    options = {"missing": "raise"}
    if method in ("ml", "naive") and rng.random() < 0.4:
        hole = rng.random((n, m)) < 0.05
        data[names] = data[names].astype(object).mask(hole)
        options = {"missing": "marginal"}
    pairs = [f"{a}:{b}" for k, a in enumerate(names) for b in names[k + 1 :]]
    chosen = (
        []
        if method == "naive"
        else list(rng.choice(pairs, min(len(pairs), int(rng.integers(0, 4))), False))
    )
    if method == "ml" and m > 2 and rng.random() < 0.3:
        chosen = ["x0*x1*x2"]
    if rng.random() < 0.25:
        options["priors"] = "equal"
    if rng.random() < 0.25 and options["missing"] == "raise":
        options["calibrate"] = "offset"
    if method == "conditional":
        options["ridge"] = float(rng.choice([0.0, 0.1]))
    formula = "y ~ " + " + ".join([*names, *chosen])
    return bbl.bbl(formula, data, method=method, seed=1, n_jobs=1, verbose=0, **options), data


def shifted(model, step):
    """The model with other ln shares (groups that are fitted together: intercepts) and parameters,
    by `step`.
    """
    estimate = model.estimate
    parameters = replace(estimate.parameters, theta=estimate.parameters.theta + step[:, 1:])
    if estimate.log_z_kind == "exact":
        log_z = log_sum(
            parameters.layout.factors(parameters.theta), exact_elimination(parameters.layout)[0]
        )
        shares = estimate.class_prior * np.exp(step[:, 0])
    else:
        log_z, shares = estimate.log_z - step[:, 0], estimate.class_prior
    return replace(
        model, estimate=replace(estimate, parameters=parameters, class_prior=shares, log_z=log_z)
    )


def gradient(model, effect):
    """Derivatives (effects, K (1 + size)) by what `shifted` shifts."""
    K, size = model.estimate.parameters.theta.shape
    out = []
    for k in range(K * (1 + size)):
        step = np.zeros(K * (1 + size))
        values = {}
        for factor in (-2, -1, 1, 2):
            step[k] = factor * STEP
            values[factor] = effect(shifted(model, step.reshape(K, 1 + size)))
        out.append((8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * STEP))
    return np.array(out).T


def of_states(layout):
    """All states (T, m), and whether each parameter is part of their energy (T, size)."""
    codes = states(layout.n_levels)
    is_part = np.zeros((len(codes), layout.size))
    for scope in layout.scopes:
        for cell, k in np.ndenumerate(layout.table(np.arange(layout.size), *scope)):
            is_part[:, k] = (codes[:, list(scope)] == np.array(cell) + 1).all(axis=1)
    return codes, is_part


def enumerated_covariance(rows, layout, theta):
    """Inverse of the observed information of one group: ``n Cov(f) - sum over rows Cov(f | observed
    cells)``.

    Directions in which the likelihood rises without end have no information: the inverse is that of
    the others.
    """
    codes, is_part = of_states(layout)

    def spread(agrees=slice(None)):
        p = softmax(is_part[agrees] @ theta)
        deviations = is_part[agrees] - p @ is_part[agrees]
        return (deviations.T * p) @ deviations

    H = rows.total * spread()
    if not rows.complete:
        for row, is_missing, weight in zip(rows.codes, rows.missing, rows.weights, strict=True):
            H -= weight * spread((is_missing | (codes == row)).all(axis=1))
    return np.linalg.pinv(H, rcond=1e-9, hermitian=True)


def covariance(model):
    """Covariance of what `shifted` shifts; given shares have none."""
    estimate, engine, has_fixed_shares = model.estimate, model.engine, model.priors is not None
    rows, layout = model.training, estimate.parameters.layout
    if engine.joint:
        return score_covariance(rows, estimate, engine, has_fixed_shares).blocks[0]
    blocks = []
    for g in range(len(estimate.parameters.theta)):
        of_group = rows.group(g), layout.of_group(g)
        if isinstance(engine, MaximumLikelihood):
            V = enumerated_covariance(*of_group, estimate.parameters.theta[g])
        else:
            V = np.nan_to_num(full_covariance(*of_group, engine))
        blocks += [[[0.0 if has_fixed_shares else 1.0 / rows.group(g).total]], V]
    return block_diag(*blocks)


def questions(model, data, rng):
    """A function of a model to the frame of some effects of it."""
    transform, contrast = (
        str(rng.choice(c))
        for c in (["difference", "ratio", "lift", "lnoddsratio"], ["reference", "pairwise"])
    )
    name = str(rng.choice(model.labels.names))
    kind = int(rng.integers(4))

    def ask(fit):
        if kind == 0:
            return fit.avg_predictions(by=name).frame
        if kind == 1:
            return fit.comparisons(name, contrast, transform, newdata=data.head(3)).frame
        cross = kind == 2
        variables = list(fit.labels.names[:2]) if cross else name
        return fit.avg_comparisons(variables, contrast, transform, cross=cross).frame

    return ask


def asked(model, ask):
    """The frame of effects, and a function of a model to its estimates of them, which makes no
    frame.
    """
    with mock.patch.object(effects, "find_effects", wraps=effects.find_effects) as found:
        frame = ask(model)
    _, contrasts, rows, _ = found.call_args.args

    def estimate(fit):
        scores = partial(fit._encoded_scores, dropped=None, priors=None)
        return estimate_effects(contrasts, rows, scores).estimate.ravel()

    np.testing.assert_array_equal(estimate(model), frame["estimate"])
    return frame, estimate


def check(seed):
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        model, data = random_fit(rng)
    frame, estimate = asked(model, questions(model, data, rng))
    G = gradient(model, estimate)
    errors = np.sqrt(np.maximum(((G @ covariance(model)) * G).sum(axis=1), 0.0))
    known = frame["std_error"].notna().to_numpy()
    assert (known | (frame["note"] != "")).all()
    np.testing.assert_allclose(frame["std_error"][known], errors[known], rtol=1e-6, atol=1e-9)
    return known.sum()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(2)
def test_errors_are_those_of_central_differences(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", [8, 33, 58, 83])  # four times, so that no core waits for another
def test_errors_of_25_fits_are_those_of_central_differences(first):
    assert sum(check(seed) for seed in range(first, first + 25)) > 40


@pytest.mark.parametrize("has_zeros", [False, True])
def test_moments_are_derivatives_of_ln_z(has_zeros):
    """With a cell that cannot occur too."""
    rng = np.random.default_rng(3)
    data = pd.DataFrame(rng.integers(0, 2, (400, 3)), columns=list("abc")).assign(
        y=rng.integers(0, 2, 400)
    )
    zeros = pd.DataFrame({"a": [1], "b": [1]}) if has_zeros else None
    data = data[(data["a"] * data["b"] == 0) | (not has_zeros)]
    model = bbl.bbl("y ~ a*b + b*c", data, method="ml", structural_zeros=zeros, verbose=0)
    layout, theta = model.estimate.parameters.layout, model.estimate.parameters.theta
    assert isinstance(layout, Layout) and (layout.support is not None) == has_zeros
    order = exact_elimination(layout)[0]
    for k in range(layout.size):
        step = 1e-5 * (np.arange(layout.size) == k)
        numeric = (
            log_sum(layout.factors(theta + step), order)
            - log_sum(layout.factors(theta - step), order)
        ) / 2e-5
        found = [moments(layout.of_group(g), row)[k] for g, row in enumerate(theta)]
        np.testing.assert_allclose(found, numeric, atol=1e-8)
