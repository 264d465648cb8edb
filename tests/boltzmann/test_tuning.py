"""The penalty by cross-validation inside a fit: the same choice as fitting every setting exactly,
with less work.
"""

import pickle
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bbl
import bbl.api.machine.fit
import bbl.boltzmann.tuning as tuning
import bbl.engines.pseudo.engine as pseudo
import bbl.engines.pseudo.engine as pseudo_path
import bbl.engines.pseudo.solvers as solvers
from bbl.boltzmann.grid_search import walk_variants
from bbl.boltzmann.job import FitData, FitSpec
from bbl.boltzmann.validation import Validated
from bbl.design.design import Design
from bbl.engines.base import WarmStarts
from bbl.model.layout import Layout

GRID = np.array(pseudo.PseudoLikelihood.tuned.grid)


def species(n=400, m=8, kinds=7, seed=0):
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
    frame = {
        f"x{i}": (rng.random(n) < 0.3 + 0.2 * y).astype(int) + rng.integers(2, size=n)
        for i in range(m)
    }
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
    return bbl.bbl(
        "y ~ .^2", frame, lambda_=rule, lambdah=lambdah, testNull=False, verbose=0, **options
    )


@pytest.mark.parametrize(("make", "share"), [(species, 0.45), (noise, 0.45)])
@pytest.mark.long
def test_the_choice_is_that_of_exact_fits_of_every_setting_with_less_work(
    make, share, evaluations, monkeypatch
):
    frame = make()
    monkeypatch.setattr(solvers, "NEWTON_WORK", 0.0)
    fit = tuned(frame)
    searched = sum(evaluations)
    evaluations.clear()
    monkeypatch.setattr(pseudo.PseudoLikelihood, "stepwise", lambda *_: False)
    exact = tuned(frame)
    assert exact.engine.lambda_ == fit.engine.lambda_
    assert fit.tuning.loss[fit.tuning.chosen] == pytest.approx(
        exact.tuning.loss[exact.tuning.chosen], abs=1e-3
    )
    # the fit itself is exact
    np.testing.assert_array_equal(fit.estimate.parameters.theta, exact.estimate.parameters.theta)
    assert searched < share * sum(evaluations)


@pytest.mark.long
def test_levels_that_a_group_lacks_cost_no_evaluations_and_do_not_change_the_choice(
    evaluations, monkeypatch
):
    frame, rng = species(n=240, m=10), np.random.default_rng(0)
    # noise that leaves levels absent from a group; no penalty holds their fields
    for name in frame.columns[1:]:
        for _, rows in frame.groupby("y"):
            some = rows.index[rng.random(len(rows)) < 0.6]
            frame.loc[some, name] = rng.permutation(frame.loc[some, name])
    monkeypatch.setattr(solvers, "NEWTON_WORK", 0.0)
    with pytest.warns(bbl.errors.ConvergenceWarning, match="never occurs"):
        fit = tuned(frame, lambdah=0.0)
    searched = sum(evaluations)
    evaluations.clear()
    monkeypatch.setattr(pseudo.PseudoLikelihood, "stepwise", lambda *_: False)
    with pytest.warns(bbl.errors.ConvergenceWarning, match="never occurs"):
        exact = tuned(frame, lambdah=0.0)
    assert exact.engine.lambda_ == fit.engine.lambda_ and searched < 0.4 * sum(evaluations)
    np.testing.assert_array_equal(fit.estimate.parameters.theta, exact.estimate.parameters.theta)
    every = dict(zip(exact.tuning.values, exact.tuning.loss, strict=True))
    for value, loss in zip(fit.tuning.values, fit.tuning.loss, strict=True):
        assert loss == pytest.approx(every[value], rel=0.02)


@pytest.mark.long
def test_what_is_told_is_what_was_tried():
    for frame in (species(n=200, m=6), noise()):
        told = tuned(frame).tuning
        assert len(told.values) == len(told.loss) and np.isfinite(told.loss).all()
        assert np.isin(told.values, GRID).all() and (np.diff(told.values) > 0).all()
        assert told.chosen == np.argmin(told.loss)
        at = int(np.flatnonzero(told.values[told.chosen] == GRID)[0])
        # the neighbours of the chosen one
        assert np.isin(GRID[max(at - 1, 0) : at + 2], told.values).all()


@pytest.mark.long
def test_the_search_ends_where_the_loss_has_risen():
    told = tuned(noise()).tuning
    assert told.values[0] > GRID[0] and told.values[-1] == GRID[-1]
    assert told.loss[0] > 1.1 * told.loss.min()


def test_each_variant_is_tried_until_its_own_loss_has_risen():
    losses = [  # from the weakest setting, the last that is tried, to the strongest
        [0.1, 0.1, 0.53, 0.52, 0.5, 0.7],  # risen twice in a row
        [0.1, 0.1, 0.1, 0.9, 0.5, 0.72],  # risen far
        [0.1, 0.1, 0.1, 0.1, 0.6, 0.8],  # far behind the others twice in a row
        [0.3, 0.35, 0.4, 0.5, 0.6, 0.7],  # falls to the end
    ]
    tried, told = [], []

    def fit(v, k):
        tried.append((v, k))
        return losses[v][k]

    walk_variants(fit, 4, 5, False, lambda: told.append(len(tried)))
    assert [min(k for tried_v, k in tried if tried_v == v) for v in range(4)] == [2, 3, 4, 0]
    assert told == [4, 7, 9, 15] and len(set(tried)) == 15
    tried.clear()
    walk_variants(fit, 4, 5, True, None)
    assert len(tried) == 24


@pytest.mark.parametrize(
    ("second", "is_tried"), [([0.7, 0.6], False), ([0.7, 0.646], True), ([0.9, 0.8], True)]
)
def test_the_third_variant_on_a_line_is_left_out_if_the_second_is_clearly_better_than_the_first(
    second, is_tried
):
    tried, told, losses = [], [], [[0.8, 0.65], second, [0.5, 0.4]]

    def fit(v, k):
        tried.append(v)
        return losses[v][k]

    walk_variants(fit, 3, 1, False, lambda: told.append(len(tried)), True)
    assert (2 in tried) == is_tried and len(told) == 3  # progress is told of all
    tried.clear()
    walk_variants(fit, 3, 1, True, None, True)
    assert tried.count(2) == 2


@pytest.mark.parametrize(
    ("second", "left_at"),
    [
        ([0.1, 0.45, 0.44, 0.45, 0.46], 1),  # risen past the best setting of the first, 2
        ([0.1, 0.1, 0.47, 0.46, 0.45], 2),  # risen twice there
        ([0.4, 0.41, 0.42, 0.46, 0.45], 0),  # risen once before it
    ],
)
def test_a_later_variant_is_left_where_its_loss_rises_past_the_best_setting_before(second, left_at):
    losses, tried = [[0.1, 0.45, 0.4, 0.5, 0.6], second], []

    def fit(v, k):
        tried.append((v, k))
        return losses[v][k] if (v, k) != (0, 0) else 0.47  # the first is left there

    walk_variants(fit, 2, 4, False, None)
    assert min(k for v, k in tried if v == 1) == left_at


@pytest.mark.long
@pytest.mark.parametrize(("rule", "n_tried"), [("cv", 5), ("cv-1se", len(GRID))])
def test_other_variants_are_searched_near_the_best_setting_of_the_first(rule, n_tried, monkeypatch):
    grids, tune_one, frame = [], tuning._tune_one, species(n=200, m=6)

    def noting(data, spec, settings, *others):
        grids.append((settings, tune_one(data, spec, settings, *others)))
        return grids[-1][1]

    monkeypatch.setattr(tuning, "_tune_one", noting)
    design, sample, *_ = Design.from_data("y ~ .^2", frame)
    data = FitData(sample, Layout(design.n_levels, design.pairs), 2, design.labels)
    variants = tuple(
        pseudo.PseudoLikelihood(lambdah=1e-3, prior_count=count) for count in (1.0, 0.1)
    )
    best = tuning.tune(
        data,
        FitSpec(variants[0], rng=np.random.default_rng(0)),
        rule,
        among=(variants, tuple(GRID)),
    )
    (whole, first), (near, second) = grids
    k = list(GRID).index(first.values[first.chosen])
    assert tuple(whole) == tuple(GRID) and len(near) == n_tried
    assert 2 <= k < len(GRID) - 2 and (
        rule == "cv-1se" or tuple(near) == tuple(GRID[k - 2 : k + 3])
    )
    assert best.loss[best.chosen] == min(each.loss[each.chosen] for each in (first, second))


@pytest.mark.long
def test_the_simplest_within_a_standard_error_has_all_stronger_settings_to_choose_from():
    told = tuned(species(n=200, m=6), "cv-1se").tuning
    at = int(np.flatnonzero(told.values[np.argmin(told.loss)] == GRID)[0])
    assert np.isin(GRID[at:], told.values).all()
    assert told.values[told.chosen] >= told.values[np.argmin(told.loss)]


@pytest.mark.parametrize("missing", ["raise", "marginal"])
@pytest.mark.long
def test_tuning_does_not_depend_on_the_number_of_threads(missing):
    frame = species(n=200, m=6)
    if missing == "marginal":
        frame = frame.astype({"x0": object})
        frame.loc[::7, "x0"] = None
    one, two = (tuned(frame, missing=missing, n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(one.tuning.values, two.tuning.values)
    np.testing.assert_array_equal(one.tuning.loss, two.tuning.loss)
    np.testing.assert_array_equal(one.estimate.parameters.theta, two.estimate.parameters.theta)


def test_starts_lie_on_the_line_through_the_nearest_fits():
    def at(lambda_):
        return np.array([[np.log(lambda_), 1.0 - 2.0 * np.log(lambda_)]])

    warm_starts = {10.0: at(10.0), 0.1: at(0.1), 1.0: at(1.0)}
    for lambda_ in (0.001, 0.1, 0.4, 1.0, 5.0, 10.0, 40.0):
        np.testing.assert_allclose(
            pseudo_path.extrapolate(warm_starts, lambda_), at(lambda_), rtol=1e-12
        )
    bent = {**warm_starts, 0.01: at(0.01) + 1.0}
    np.testing.assert_allclose(pseudo_path.extrapolate(bent, 0.5), at(0.5), rtol=1e-12)
    np.testing.assert_allclose(pseudo_path.extrapolate(bent, 0.01), at(0.01) + 1.0, rtol=1e-12)
    only = pseudo_path.extrapolate({1.0: warm_starts[1.0]}, 0.1)
    assert only is not warm_starts[1.0]
    np.testing.assert_array_equal(only, warm_starts[1.0])
    np.testing.assert_array_equal(pseudo_path.extrapolate(warm_starts, 0.0), warm_starts[0.1])


@pytest.mark.long
def test_rows_are_prepared_once_for_all_settings_and_what_is_kept_changes_nothing(monkeypatch):
    counted = []
    prepared = solvers.prepare_problem

    def counting(*arguments):
        counted.append(arguments[2])
        return prepared(*arguments)

    monkeypatch.setattr(solvers, "NEWTON_WORK", 0.0)
    monkeypatch.setattr(solvers, "prepare_problem", counting)
    frame = species(n=200, m=6)
    with pytest.warns(bbl.errors.ConvergenceWarning, match="never occurs"):
        kept = tuned(frame, lambdah=0.0)
    folds_and_groups = tuning.NFOLD * 2
    assert counted == ["single"] * folds_and_groups + ["double"] * 2  # then the fit itself
    monkeypatch.setattr(tuning, "MAX_PREPARED_BYTES", 0.0)
    with pytest.warns(bbl.errors.ConvergenceWarning, match="never occurs"):
        anew = tuned(frame, lambdah=0.0)
    assert len(counted) > 4 * folds_and_groups
    np.testing.assert_array_equal(kept.tuning.values, anew.tuning.values)
    np.testing.assert_array_equal(kept.tuning.loss, anew.tuning.loss)
    np.testing.assert_array_equal(kept.estimate.parameters.theta, anew.estimate.parameters.theta)


def test_a_trail_goes_to_another_process_without_what_was_made_of_the_rows():
    warm_starts = WarmStarts({0.1: np.arange(3.0)}, keeps=True)
    calls = []
    for _ in range(2):
        warm_starts.cached("rows", lambda: calls.append("made"))
    assert len(calls) == 1
    there = pickle.loads(pickle.dumps(warm_starts))  # noqa: S301
    assert there.keeps and list(there) == [0.1]
    np.testing.assert_array_equal(there[0.1], warm_starts[0.1])
    there.cached("rows", lambda: calls.append("made anew"))
    assert calls == ["made", "made anew"]


def fitted_in_search(loss_of):
    """Return the positions in GRID that a search fits, in order; ``loss_of(position, n)`` is the
    loss of fit n.
    """
    fitted = []

    def compare(values, progress):
        scores = []
        for value in values:
            fitted.append(int(np.flatnonzero(value == GRID)[0]))
            share = np.exp(-loss_of(fitted[-1], fitted.count(fitted[-1])))
            scores.append(np.log([[share, 1.0 - share]]))
        one = np.zeros(1, dtype=np.intp)
        return Validated(np.array(scores), one, np.ones(1), one, one, [], "class_scores", [])

    tuning._search(compare, GRID, "none", "cv", None)
    return fitted


@pytest.mark.parametrize(
    ("losses", "last"),
    [
        ([0.4, 0.4, 0.44, 0.1, 0.1, 0.1], 6),  # far above the least
        ([0.4, 0.4, 0.415, 0.415, 0.1, 0.1], 4),  # clearly above it twice
        ([0.4, 0.4, 0.415, 0.41, 0.405, 0.41], 0),
    ],
)
def test_the_coarse_search_ends_where_the_loss_has_risen_far_or_twice(losses, last):
    fitted = fitted_in_search(lambda at, n: losses[(10 - at) // 2] if at % 2 == 0 else 0.43)
    assert min(at for at in fitted if at % 2 == 0) == last


@pytest.mark.parametrize(
    ("loss", "again"), [((0.5, 0.4, 0.5), 1), ((0.5, 0.4, 0.402), 2), ((0.4, 0.4, 0.4), 3)]
)
def test_only_settings_that_may_be_the_best_are_fitted_again(loss, again):
    """Settings whose losses move by 0.2 % when they are fitted again."""
    fitted = fitted_in_search(
        lambda at, n: (loss[at - 4] if 4 <= at <= 6 else 0.6) * (1.0 if n == 1 else 1.002)
    )
    assert len(fitted) - len(set(fitted)) == again


def test_of_a_small_problem_all_settings_are_fitted_exactly(monkeypatch):
    monkeypatch.setattr(pseudo_path, "COMPARISON_NORM", None)  # no comparison takes place
    frame = noise(m=3)
    several = tuned(pd.concat([frame] * 40))  # many rows of few states
    assert tuned(frame).tuning.values.tolist() == several.tuning.values.tolist() == GRID.tolist()


def recorded(monkeypatch, module):
    """Return a list of [total, steps taken] of the progress bars of a module of verbs."""
    bars = []

    @contextmanager
    def bar(total, title, verbose):
        bars.append([total, 0.0])

        def step(share=1.0, note=""):
            assert share >= 0.0 and isinstance(note, str)
            bars[-1][1] += share

        yield step

    monkeypatch.setattr(module, "progress_bar", bar)
    return bars


@pytest.mark.parametrize(
    "options",
    [
        {"lambda_": "cv", "lambdah": 1e-3},
        {"lambda_": "cv-1se", "lambdah": 1e-3},
        {"method": "mf", "eps": "cv"},
        {"method": "naive", "prior_count": "cv"},
        {"method": "conditional", "ridge": "cv", "scale": "cv"},
    ],
)
@pytest.mark.parametrize("make", [species, noise])
@pytest.mark.thinned(3)
def test_progress_ends_at_the_whole_and_never_goes_beyond(options, make, monkeypatch):
    # as of large problems
    monkeypatch.setattr(pseudo.PseudoLikelihood, "stepwise", lambda *_: True)
    bars = recorded(monkeypatch, bbl.api.machine.fit)
    bbl.bbl(
        "y ~ .^2" if options.get("method") != "naive" else "y ~ .",
        make(n=200, m=5),
        testNull=False,
        **options,
    )
    assert len(bars) == 2
    for total, taken in bars:
        assert taken == pytest.approx(total, rel=1e-9)


def test_variants_share_the_progress(monkeypatch):
    frame, engine = noise(n=200, m=4), pseudo.PseudoLikelihood(lambdah=1e-3)
    monkeypatch.setattr(pseudo.PseudoLikelihood, "stepwise", lambda *_: True)
    design, sample, *_ = Design.from_data("y ~ .^2", frame)
    taken = []

    def progress(share=1.0, note=""):
        assert isinstance(note, str)
        taken.append(share)

    variants = [engine, replace(engine, prior_count=1.0)]
    data = FitData(
        sample,
        Layout(design.n_levels, design.pairs),
        len(design.labels.groups),
        design.labels,
    )
    tuning.tune(data, FitSpec(engine), "cv", progress=progress, among=(variants, engine.tuned.grid))
    assert sum(taken) == pytest.approx(tuning.NFOLD)
