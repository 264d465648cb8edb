"""Pseudo-likelihood of rows in a file: the optimum of all rows, from fits of a sample and passes
over blocks.
"""

import numpy as np
import pytest

from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.boltzmann.estimate import estimate_path
from bbl.boltzmann.inference.covariance import Covariances
from bbl.boltzmann.job import FitData, FitSpec
from bbl.engines.base import WarmStarts
from bbl.engines.engine_fit import NoProgress
from bbl.engines.pseudo import blocks as pseudo_blocks
from bbl.engines.pseudo import engine as pseudo_path
from bbl.engines.pseudo.engine import PseudoLikelihood
from bbl.errors import DataError, OptionError
from bbl.model.layout import Layout
from bbl.model.logz import approximate_log_z
from bbl.model.regressors import regressors
from bbl.rows.on_disk import CodeFile
from bbl.rows.sample import Sample

ALL_PAIRS = [(i, j) for j in range(6) for i in range(j)]


def make_rows(n=12_000, m=6, levels=3, seed=0, rare=0, weighted=False):
    """Chained columns; the last `rare` rows have a level that no others have."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(levels, size=(n, m)).astype(np.uint8)
    for j in range(1, m):
        copied = rng.random(n) < 0.4
        codes[copied, j] = codes[copied, j - 1]
    codes[n - rare :, 1] = levels
    order = rng.permutation(n)
    return Sample(codes[order], rng.integers(1, 4, n).astype(float) if weighted else np.ones(n))


def stored(sample, piece=None):
    file = CodeFile(sample.m, sample.codes.dtype, not sample.unweighted, not sample.complete)
    file.chunk_rows = piece or file.chunk_rows
    for part in sample.blocks(1000):
        file.append((0, 0), part)
    return file.finish().pooled


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 3000)
    monkeypatch.setattr(pseudo_blocks, "ROWS_PER_COLUMN", 1)
    monkeypatch.setattr(pseudo_blocks, "FULL_FIT_FACTOR", 2)


def both(sample, layout, engine, piece=1500, workers=1):
    """Fits in memory and of blocks."""
    whole = engine.prepare(sample, layout)
    rows = engine.prepare(stored(sample, piece), layout)
    return engine.fit(whole, layout), engine.fit(rows, layout, workers), whole, rows


def norms(sample, layout, engine, fit):
    """Gradient norm of each predictor on all rows."""
    wide = regressors(layout)
    problem = PseudoProblem(wide.codes(sample.codes), sample.weights, wide.n_levels, wide.mask)
    lambdah = engine.lambda_ if engine.lambdah is None else engine.lambdah
    gradient = problem.objective(fit.site_theta, engine.lambda_, lambdah)[1]
    return np.sqrt(np.add.reduceat((gradient**2).sum(axis=1), layout.start[:-1]))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lambda_", [1e-2, 1e-5])
def test_optimum_is_that_of_all_rows_in_memory(lambda_, weighted):
    sample, layout, engine = (
        make_rows(weighted=weighted),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(lambda_=lambda_),
    )
    whole, fit, _, rows = both(sample, layout, engine)
    assert rows.n == sample.n  # nothing was taken into memory
    np.testing.assert_allclose(fit.theta, whole.theta, atol=1e-8 if lambda_ > 1e-3 else 1e-6)
    assert norms(sample, layout, engine, fit).max() <= engine.tolerance * 1.01
    assert fit.converged.all()
    assert fit.lkh == pytest.approx(whole.lkh, rel=1e-13)
    assert fit.state["streamed"][2] <= 10


@pytest.mark.parametrize(
    "options", [{"prior_count": 2.0}, {"lambdah": 0.1}, {"lambdah": None, "symmetrize": False}]
)
def test_options_are_those_of_fits_in_memory(options):
    sample, layout = make_rows(seed=1), Layout([3] * 6, ALL_PAIRS[::2])
    whole, fit, *_ = both(sample, layout, PseudoLikelihood(lambda_=1e-2, **options))
    np.testing.assert_allclose(fit.theta, whole.theta, atol=1e-8)


def test_terms_of_three_predictors_with_penalties_of_their_own():
    sample, layout = (
        make_rows(seed=2, m=5, levels=2),
        Layout([2] * 5, [(0, 1), (1, 2), (0, 1, 2), (2, 3, 4)]),
    )
    whole, fit, *_ = both(sample, layout, PseudoLikelihood(lambda_=(1e-2, 3e-2)))
    np.testing.assert_allclose(fit.theta, whole.theta, atol=1e-8)


def test_single_precision_reaches_its_tolerance():
    sample, layout, engine = (
        make_rows(seed=3),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(1e-2, precision="single"),
    )
    whole, fit, *_ = both(sample, layout, engine)
    assert norms(sample, layout, engine, fit).max() < 2e-5
    np.testing.assert_allclose(fit.theta, whole.theta, atol=2e-3)


@pytest.mark.long
def test_block_sizes_and_threads():
    sample, layout, engine = (
        make_rows(seed=4),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(lambda_=1e-2),
    )
    fits = [
        both(sample, layout, engine, piece, workers)[1]
        for piece, workers in ((700, 1), (700, 3), (5000, 1))
    ]
    assert fits[0].theta.tobytes() == fits[1].theta.tobytes()
    np.testing.assert_allclose(fits[0].theta, fits[2].theta, atol=1e-9)


def test_weights_are_repeated_rows():
    sample, layout = make_rows(seed=5, weighted=True), Layout([3] * 6, ALL_PAIRS)
    rows = np.repeat(sample.codes, sample.weights.astype(int), axis=0)
    repeated, engine = Sample(rows, np.ones(len(rows))), PseudoLikelihood(lambda_=1e-2)
    once, often = (
        engine.fit(engine.prepare(stored(each), layout), layout) for each in (sample, repeated)
    )
    np.testing.assert_allclose(once.theta, often.theta, atol=1e-8)
    assert once.lkh == pytest.approx(often.lkh, rel=1e-13)


def test_rows_of_rare_levels_are_all_drawn():
    sample = make_rows(n=30_000, seed=6, rare=12)
    layout, engine = Layout([3, 4, 3, 3, 3, 3], ALL_PAIRS), PseudoLikelihood(lambda_=1e-5)
    whole, fit, _, rows = both(sample, layout, engine)
    drawn = pseudo_blocks.Corrected(engine, rows, layout, 1).sample
    assert np.count_nonzero(drawn.codes[:, 1] == 3) == 12
    np.testing.assert_array_equal(drawn.weights[drawn.codes[:, 1] == 3], 1.0)
    assert drawn.total == pytest.approx(sample.total, rel=1e-12)
    assert norms(sample, layout, engine, fit).max() <= engine.tolerance * 1.01
    assert fit.state["streamed"][2] <= 15
    assert fit.lkh == pytest.approx(whole.lkh, rel=1e-12)


def test_path_goes_on_from_stronger_penalties():
    sample, layout, grid = make_rows(seed=7), Layout([3] * 6, ALL_PAIRS), [1e-3, 1e-1, 1e-2]
    engine, rows = PseudoLikelihood(), stored(sample)
    for lambda_, fit in zip(grid, engine.path(rows, layout, grid), strict=True):
        alone = engine.at(lambda_).fit(sample, layout)
        np.testing.assert_allclose(fit.theta, alone.theta, atol=1e-7)
    near = engine.compare(rows, layout, grid, WarmStarts())
    assert max(fit.grad_norm.max() for fit in near) <= pseudo_path.CLOSE_COMPARISON_NORM
    assert near[0].state["streamed"][2] < fit.state["streamed"][2]


def test_constant_predictors_get_their_extra_row():
    sample = make_rows(seed=8)
    sample.codes[:, 3] = 0
    layout, engine = Layout([3] * 6, ALL_PAIRS), PseudoLikelihood(lambda_=1e-2, lambdah=1e-3)
    whole, fit, prepared, rows = both(sample, layout, engine)
    assert (prepared.n, rows.n) == (sample.n + 1, sample.n + 1)
    np.testing.assert_allclose(fit.theta, whole.theta, atol=1e-8)


@pytest.mark.parametrize("kind", ["pseudo", "half"])
def test_log_z_is_that_of_all_rows(kind):
    sample, layout, engine = (
        make_rows(seed=9),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(lambda_=1e-2),
    )
    whole, fit, *_ = both(sample, layout, engine)
    assert fit.log_z(kind) == pytest.approx(whole.log_z(kind), abs=1e-8)
    assert fit.log_z(kind) == pytest.approx(
        approximate_log_z(kind, sample, layout, fit.theta, fit.site_theta)
    )


def test_few_rows_are_fitted_in_memory_to_the_last_bit():
    sample, layout, engine = (
        make_rows(n=5000),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(lambda_=1e-3),
    )
    rows = engine.prepare(stored(sample), layout)
    assert isinstance(rows, Sample)
    whole = engine.fit(engine.prepare(sample.collapsed(layout.n_levels), layout), layout)
    assert engine.fit(rows, layout).theta.tobytes() == whole.theta.tobytes()


def test_a_stall_enlarges_the_sample(monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 60)
    sample, layout, engine = (
        make_rows(n=20_000, seed=10),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(lambda_=1e-6),
    )
    whole, fit, *_ = both(sample, layout, engine)
    assert fit.state["streamed"][1] > 60
    assert norms(sample, layout, engine, fit).max() <= engine.tolerance * 1.01
    np.testing.assert_allclose(fit.theta, whole.theta, atol=1e-5)


def test_a_stall_without_memory_says_so(monkeypatch):
    monkeypatch.setattr(pseudo_blocks, "MIN_SAMPLE", 60)
    monkeypatch.setattr(pseudo_blocks, "available_memory", lambda: 1000)
    layout, engine = Layout([3] * 6, ALL_PAIRS), PseudoLikelihood(lambda_=1e-6)
    with pytest.raises(NoProgress) as error:
        engine.fit(engine.prepare(stored(make_rows(n=20_000, seed=10)), layout), layout)
    assert 0 <= error.value.predictor < 6
    assert (error.value.rows, error.value.n) == (60, 20_000)
    with pytest.raises(DataError, match=r"stopped improving on a sample of 60 rows: .*bbl\.lump"):
        estimate_path(
            FitData(stored(make_rows(n=20_000, seed=10)), layout, 1), FitSpec(engine, "half")
        )


def test_memory_goes_by_the_sample_not_by_the_rows():
    layout, engine = Layout([3] * 6, ALL_PAIRS), PseudoLikelihood()
    assert (
        engine.stored_memory(10**9, layout)
        == engine.stored_memory(10**6, layout)
        < engine.memory(10**6, layout)
    )
    assert engine.stored_memory(1000, layout) == engine.memory(1000, layout)


def test_missing_values_are_refused_with_the_remedy():
    sample = make_rows()
    missing = np.zeros(sample.codes.shape, dtype=bool)
    missing[3, 2] = True
    rows = stored(Sample(sample.codes, sample.weights, missing=missing))
    with pytest.raises(OptionError, match="rows are read in blocks"):
        PseudoLikelihood().prepare(rows, Layout([3] * 6, ALL_PAIRS))


@pytest.mark.long
def test_covariances_of_estimates_go_over_blocks():
    sample, layout, engine = (
        make_rows(seed=11),
        Layout([3] * 6, ALL_PAIRS),
        PseudoLikelihood(lambda_=1e-2),
    )
    sample = Sample(
        sample.codes, sample.weights, np.random.default_rng(0).integers(2, size=sample.n)
    )
    file = CodeFile(sample.m, sample.codes.dtype)
    for y in range(2):
        file.append((y, 0), sample.group(y))
    rows = file.finish()
    found = [
        Covariances(
            each,
            estimate_path(FitData(each, layout, 2), FitSpec(engine), pooled=True)[0],
            engine,
        )
        for each in (sample, rows)
    ]
    for one, other in zip(
        found[0].group + found[0].shift, found[1].group + found[1].shift, strict=True
    ):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-12)
    for (value, size), (streamed, own) in zip(found[0].composite, found[1].composite, strict=True):
        assert (streamed, own) == (pytest.approx(value, rel=1e-10), pytest.approx(size, rel=1e-7))
