"""The penalty by cross-validation inside a fit: the same choice as fitting every setting exactly, with less work."""

import numpy as np
import pandas as pd
import pytest

import bbl
import bbl.engines.pseudo as pseudo
import bbl.engines.pseudo_path as pseudo_path
import bbl.engines.pseudo_solvers as solvers

GRID = np.array(pseudo.PseudoLikelihood.tuned.grid)


def species(n=400, m=10, kinds=7, seed=0):
    """Rows of some kinds, each with a few levels of every predictor: the best penalty is small."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(kinds, size=n)
    frame = {"y": np.array(["u", "v"])[kind % 2]}
    for i in range(m):
        allowed = [rng.choice(5, size=rng.integers(1, 4), replace=False) for _ in range(kinds)]
        frame[f"x{i}"] = [rng.choice(allowed[k]) for k in kind]
    return pd.DataFrame(frame)


def noise(n=300, m=8, seed=0):
    """Rows without interactions: the best penalty is large."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    frame = {f"x{i}": (rng.random(n) < 0.3 + 0.2 * y).astype(int) + rng.integers(2, size=n) for i in range(m)}
    return pd.DataFrame({"y": y, **frame})


@pytest.fixture
def evaluations(monkeypatch):
    """Count the evaluations of objectives and gradients by the vectorised kernel."""
    counted = []
    solve = solvers._solve_task

    def counting(problem, task, numbers, out):
        before = out["n_eval"].sum()
        solve(problem, task, numbers, out)
        counted.append(int(out["n_eval"].sum() - before))

    monkeypatch.setattr(solvers, "_solve_task", counting)
    return counted


def tuned(frame, rule="cv", lambdah=1e-3, **options):
    return bbl.bbl("y ~ .^2", frame, lambda_=rule, lambdah=lambdah, testNull=False, verbose=0, **options)


@pytest.mark.parametrize(("make", "share"), [(species, 0.45), (noise, 0.45)])
def test_the_choice_is_that_of_exact_fits_of_every_setting_with_less_work(make, share, evaluations, monkeypatch):
    frame = make()
    monkeypatch.setattr(solvers, "NEWTON_WORK", 0.0)
    fit = tuned(frame)
    searched = sum(evaluations)
    evaluations.clear()
    monkeypatch.setattr(pseudo.PseudoLikelihood, "stepwise", False)
    exact = tuned(frame)
    assert exact.engine.lambda_ == fit.engine.lambda_
    assert fit.tuning.loss[fit.tuning.chosen] == pytest.approx(exact.tuning.loss[exact.tuning.chosen], abs=1e-3)
    np.testing.assert_array_equal(fit.parameters.theta, exact.parameters.theta)  # the fit itself is exact
    assert searched < share * sum(evaluations)


def test_levels_that_a_group_lacks_cost_no_evaluations_and_do_not_change_the_choice(evaluations, monkeypatch):
    frame, rng = species(n=240, m=12), np.random.default_rng(0)
    for name in frame.columns[1:]:  # noise that leaves levels absent from a group; no penalty holds their fields
        for _, rows in frame.groupby("y"):
            some = rows.index[rng.random(len(rows)) < 0.6]
            frame.loc[some, name] = rng.permutation(frame.loc[some, name])
    monkeypatch.setattr(solvers, "NEWTON_WORK", 0.0)
    with pytest.warns(bbl.errors.ConvergenceWarning, match="never occurs"):
        fit = tuned(frame, lambdah=0.0)
    searched = sum(evaluations)
    evaluations.clear()
    monkeypatch.setattr(pseudo.PseudoLikelihood, "stepwise", False)
    with pytest.warns(bbl.errors.ConvergenceWarning, match="never occurs"):
        exact = tuned(frame, lambdah=0.0)
    assert exact.engine.lambda_ == fit.engine.lambda_ and searched < 0.4 * sum(evaluations)
    np.testing.assert_array_equal(fit.parameters.theta, exact.parameters.theta)
    every = dict(zip(exact.tuning.values, exact.tuning.loss, strict=True))
    for value, loss in zip(fit.tuning.values, fit.tuning.loss, strict=True):
        assert loss == pytest.approx(every[value], rel=0.02)


def test_what_is_told_is_what_was_tried():
    for frame in (species(n=200, m=6), noise()):
        tuning = tuned(frame).tuning
        assert len(tuning.values) == len(tuning.loss) and np.isfinite(tuning.loss).all()
        assert np.isin(tuning.values, GRID).all() and (np.diff(tuning.values) > 0).all()
        assert tuning.chosen == np.argmin(tuning.loss)
        at = int(np.flatnonzero(tuning.values[tuning.chosen] == GRID)[0])
        assert np.isin(GRID[max(at - 1, 0) : at + 2], tuning.values).all()  # the neighbours of the chosen one


def test_the_search_ends_where_the_loss_has_risen():
    tuning = tuned(noise()).tuning
    assert tuning.values[0] > GRID[0] and tuning.values[-1] == GRID[-1]
    assert tuning.loss[0] > 1.1 * tuning.loss.min()


def test_the_simplest_within_a_standard_error_has_all_stronger_settings_to_choose_from():
    tuning = tuned(species(n=200, m=6), "cv-1se").tuning
    at = int(np.flatnonzero(tuning.values[np.argmin(tuning.loss)] == GRID)[0])
    assert np.isin(GRID[at:], tuning.values).all()
    assert tuning.values[tuning.chosen] >= tuning.values[np.argmin(tuning.loss)]


@pytest.mark.parametrize("missing", ["raise", "marginal"])
def test_tuning_does_not_depend_on_the_number_of_threads(missing):
    frame = species(n=200, m=6)
    if missing == "marginal":
        frame = frame.astype({"x0": object})
        frame.loc[::7, "x0"] = None
    one, two = (tuned(frame, missing=missing, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.tuning.values, two.tuning.values)
    np.testing.assert_array_equal(one.tuning.loss, two.tuning.loss)
    np.testing.assert_array_equal(one.parameters.theta, two.parameters.theta)


def test_starts_lie_on_the_line_through_the_nearest_fits():
    def at(lambda_):
        return np.array([[np.log(lambda_), 1.0 - 2.0 * np.log(lambda_)]])

    trail = {10.0: at(10.0), 0.1: at(0.1), 1.0: at(1.0)}
    for lambda_ in (0.001, 0.1, 0.4, 1.0, 5.0, 10.0, 40.0):
        np.testing.assert_allclose(pseudo_path.on_the_line(trail, lambda_), at(lambda_), rtol=1e-12)
    bent = {**trail, 0.01: at(0.01) + 1.0}
    np.testing.assert_allclose(pseudo_path.on_the_line(bent, 0.5), at(0.5), rtol=1e-12)
    np.testing.assert_allclose(pseudo_path.on_the_line(bent, 0.01), at(0.01) + 1.0, rtol=1e-12)
    only = pseudo_path.on_the_line({1.0: trail[1.0]}, 0.1)
    assert only is not trail[1.0]
    np.testing.assert_array_equal(only, trail[1.0])
    np.testing.assert_array_equal(pseudo_path.on_the_line(trail, 0.0), trail[0.1])
