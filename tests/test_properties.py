"""Properties that hold for any data: hypothesis draws seeds and sizes, or whole frames, and looks
for a counterexample.

`BBL_HYPOTHESIS=nightly` draws 20,000 examples of each, at random; otherwise the same few are drawn
every time.
"""

import io
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as hpd

import bbl
from bbl._ext.pseudo.pseudo import PseudoProblem
from bbl.design.design import Design
from bbl.model.chains import Chains
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.energy import energies
from bbl.model.layout import Layout
from bbl.model.marginal import MarginalEnergy
from bbl.model.regressors import from_matrix, to_matrix
from bbl.model.states import random_parameters
from bbl.rows.sample import code_dtype
from bbl.stats.metrics import auc, class_scores, log_probabilities

EFFORT = os.environ.get("BBL_HYPOTHESIS")
NIGHTLY = EFFORT == "nightly"
# tables are drawn at random, and mean field does not suit all of them
pytestmark = [
    pytest.mark.properties,
    pytest.mark.filterwarnings("ignore:On the training rows, the log-loss"),
]
METHODS = {"pseudo": {"lambda_": 0.1, "lambdah": 0.1}, "mf": {}, "naive": {}}
NAMES = ["a", "b", "c", "d", "e"]


def examples(n):
    """The number of examples by their cost; a counterexample of the nightly run is printed with its
    seed.
    """
    count = 20_000 if NIGHTLY else n if EFFORT == "full" else max(n // 20, 10)
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=not NIGHTLY,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def counts(low, high, max_size, min_size=1):
    """Draw a list of integers from `low` to `high`, as the digits of one number.

    Hypothesis draws a number much faster than a list, and a smaller number is a shorter list.
    """
    n_values, n_sizes = high - low + 1, max_size - min_size + 1

    def digits(number):
        number, extra = divmod(number, n_sizes)
        return [low + number // n_values**k % n_values for k in range(min_size + extra)]

    return st.integers(0, n_sizes * n_values**max_size - 1).map(digits)


# seeds and sizes are drawn by hypothesis, which shrinks them; the numbers by numpy, which is quick
seeds = st.integers(0, 2**32 - 1)
level_counts = counts(2, 4, max_size=5)
methods = st.sampled_from(list(METHODS))
shapes = st.tuples(seeds, st.integers(6, 40), level_counts, st.integers(2, 3))


def table(shape):
    """Draw a frame of strings: response y of K groups, each of them present, and correlated
    predictors a, b, ...
    """
    seed, n, levels, K = shape
    rng = np.random.default_rng(seed)
    hidden = rng.random(n)
    y = rng.permutation(np.arange(n) % K)
    codes = [
        np.where(rng.random(n) < 0.3, hidden * L, rng.random(n) * L).astype(int) for L in levels
    ]
    frame = pd.DataFrame(
        {name: np.array(list("klmn"))[c] for name, c in zip(NAMES, codes, strict=False)}
    )
    frame["y"] = np.array(list("PQR"))[y]
    return frame, {name: list("klmn"[:L]) for name, L in zip(NAMES, levels, strict=False)}


def fitted(frame, xlevels, method, formula="y ~ .^2", weights=None, **options):
    given_options = METHODS[method] | options
    return bbl.bbl(
        formula, frame, weights, method, xlevels=xlevels, n_jobs=1, verbose=0, **given_options
    )


def model(seed, levels, K=1, density=1.0, scale=1.0):
    """Draw a layout with some of its pairs, and K parameter vectors."""
    rng = np.random.default_rng(seed)
    pairs = [p for p in itertools.combinations(range(len(levels)), 2) if rng.random() < density]
    layout = Layout(levels, np.array(pairs, dtype=np.intp).reshape(-1, 2))
    return layout, scale * rng.normal(size=(K, layout.size)), rng


def all_states(levels):
    return np.array(list(itertools.product(*map(range, levels))), dtype=np.uint8)


def same_bits(one, other):
    np.testing.assert_array_equal(one.estimate.parameters.theta, other.estimate.parameters.theta)
    np.testing.assert_array_equal(one.estimate.parameters.pooled, other.estimate.parameters.pooled)
    np.testing.assert_array_equal(one.log_z, other.log_z)


# -- fits ------------------------------------------------------------------------------------------
@examples(200)
@given(shapes, methods)
def test_row_order_does_not_change_a_bit(shape, method):
    frame, xlevels = table(shape)
    shuffled = frame.sample(frac=1, random_state=shape[0])
    same_bits(fitted(frame, xlevels, method), fitted(shuffled, xlevels, method))


@examples(200)
@given(shapes, methods)
def test_column_order_does_not_change_probabilities(shape, method):
    frame, xlevels = table(shape)
    one, other = fitted(frame, xlevels, method), fitted(frame.iloc[:, ::-1], xlevels, method)
    atol = 1e-6 if method == "pseudo" else 1e-9
    np.testing.assert_allclose(one.fitted(), other.fitted(), rtol=0, atol=atol)
    first, second = one.coef(), other.coef()
    for a, b in itertools.combinations(xlevels, 2) if method != "naive" else ():
        np.testing.assert_allclose(first.J["P"][a, b], second.J["P"][a, b], atol=1e-6)


@examples(200)
@given(shapes, methods, st.lists(st.text(max_size=5), min_size=4, max_size=4, unique=True))
def test_names_of_levels_do_not_change_a_bit(shape, method, names):
    frame, xlevels = table(shape)
    renamed = dict(zip("klmn", sorted(names), strict=True))
    other = frame.assign(**{name: frame[name].map(renamed).astype(object) for name in xlevels})
    new_levels = {name: [renamed[v] for v in own] for name, own in xlevels.items()}
    same_bits(fitted(frame, xlevels, method), fitted(other, new_levels, method))


@examples(200)
@given(shapes, st.sampled_from(["naive", "mf"]))
def test_another_reference_level_does_not_change_probabilities(shape, method):
    frame, xlevels = table(shape)
    # shrinking towards the diagonal does depend on the reference
    options = {"eps": 1.0} if method == "mf" else {}
    one = fitted(frame, xlevels, method, log_z="exact", **options)
    turned = {name: own[::-1] for name, own in xlevels.items()}
    other = fitted(frame, turned, method, log_z="exact", **options)
    np.testing.assert_allclose(one.fitted(), other.fitted(), atol=1e-7)


@examples(200)
@given(
    shapes,
    methods,
    st.sampled_from(["object", "category", "arrow", "dictionary", "polars", "dict"]),
)
def test_the_type_of_a_column_does_not_change_a_bit(shape, method, kind):
    frame, xlevels = table(shape)
    other = {
        "object": lambda: frame.astype(object),
        "category": lambda: frame.astype("category"),
        "arrow": lambda: pa.table({c: pa.array(frame[c].tolist()) for c in frame}),
        "dictionary": lambda: pa.table(
            {c: pa.array(frame[c].tolist()).dictionary_encode() for c in frame}
        ),
        "polars": lambda: pl.DataFrame(frame.to_dict("list")),
        "dict": lambda: frame.to_dict("list"),
    }[kind]()
    one, two = fitted(frame, xlevels, method), fitted(other, xlevels, method)
    # a dictionary declares its values in their order of appearance
    if one.labels.groups == two.labels.groups:
        same_bits(one, two)
    columns = [*one.labels.groups]
    pd.testing.assert_frame_equal(
        one.fitted()[columns], two.fitted()[columns], check_exact=kind != "dictionary"
    )


@examples(200)
@given(shapes, methods)
def test_a_weight_is_the_row_repeated(shape, method):
    frame, xlevels = table(shape)
    weights = np.random.default_rng(shape[0]).integers(1, 5, len(frame))
    one = fitted(frame, xlevels, method, weights=weights)
    raw = bbl.freq2raw(frame, weights)
    other = fitted(raw, xlevels, method)
    same_bits(one, other)
    assert one.nobs() == other.nobs() == weights.sum()
    assert float(one.logLik()) == pytest.approx(float(other.logLik()), rel=1e-12)


@examples(200)
@given(shapes, methods)
def test_weight_zero_is_the_row_removed(shape, method):
    frame, _ = table(shape)
    weights = np.random.default_rng(shape[0]).integers(0, 3, len(frame))
    kept = frame[weights > 0]
    assume(len(kept) and kept.nunique().min() > 1)
    one = fitted(frame, None, method, weights=weights)
    other = fitted(kept, None, method, weights=weights[weights > 0])
    assert one.labels == other.labels
    same_bits(one, other)


@examples(200)
@given(shapes, methods, st.integers(2, 1000))
def test_weights_times_a_number_leave_the_estimate(shape, method, factor):
    frame, xlevels = table(shape)
    constant = frame.groupby("y").nunique().min().min() == 1
    assume(method != "pseudo" or not constant)  # the extra instance of section 2.2 has weight 1
    options = {} if method == "pseudo" else {"prior_count": 1.0}
    one = fitted(frame, xlevels, method, **options)
    options = {k: factor * v for k, v in options.items()}
    other = fitted(frame, xlevels, method, weights=np.full(len(frame), factor), **options)
    np.testing.assert_allclose(
        one.estimate.parameters.theta, other.estimate.parameters.theta, atol=1e-8
    )
    np.testing.assert_allclose(one.log_z, other.log_z, atol=1e-8)


@pytest.mark.long
@examples(200)
@given(shapes)
def test_groups_of_the_same_rows_share_the_probability_of_one(shape):
    frame, xlevels = table(shape)
    twin = frame[frame["y"] == "P"].assign(y="Z")
    one = fitted(pd.concat([frame, frame[frame["y"] == "P"]]), xlevels, "pseudo")
    other = fitted(pd.concat([frame, twin]), xlevels, "pseudo")
    cells = frame[list(xlevels)]
    assume((frame[frame["y"] == "P"].nunique()[list(xlevels)] > 1).all())
    split, whole = other.predict(cells, type="prob"), one.predict(cells, type="prob")
    np.testing.assert_array_equal(split["P"], split["Z"])
    np.testing.assert_allclose(split["P"] + split["Z"], whole["P"], atol=1e-7)


@examples(200)
@given(shapes, st.lists(st.text(min_size=1, max_size=6), min_size=6, max_size=6, unique=True))
def test_names_of_columns_do_not_change_a_bit(shape, names):
    assume(not any("`" in name or "\\" in name for name in names))
    frame, xlevels = table(shape)
    renamed = dict(zip([*xlevels, "y"], names, strict=False))
    quoted = {old: f"`{new}`" for old, new in renamed.items()}
    terms = [*xlevels, *(f"{a}:{b}" for a, b in itertools.combinations(xlevels, 2))]
    plain = fitted(frame, xlevels, "mf", "y ~ " + " + ".join(terms))
    right = " + ".join(":".join(quoted[part] for part in term.split(":")) for term in terms)
    levels = {renamed[name]: own for name, own in xlevels.items()}
    same_bits(
        plain, fitted(frame.rename(columns=renamed), levels, "mf", f"{quoted['y']} ~ {right}")
    )


@examples(200)
@given(shapes, methods)
def test_probabilities_are_probabilities_and_agree_with_link_and_class(shape, method):
    frame, xlevels = table(shape)
    fit = fitted(frame, xlevels, method)
    cells = pd.DataFrame(list(itertools.product(*xlevels.values())), columns=list(xlevels))
    prob = fit.predict(cells, type="prob")
    p = prob.iloc[:, :-1].to_numpy()
    assert (p >= 0).all() and (p <= 1).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    link = fit.predict(cells)
    np.testing.assert_allclose(1 / (1 + np.exp(-link.iloc[:, :-1].to_numpy())), p, atol=1e-12)
    # of equally probable groups
    first = (p > p.max(axis=1, keepdims=True) * (1 - 1e-10)).argmax(axis=1)
    best = prob.columns[first].astype(object)
    assert (prob["yhat"].astype(object) == best).all() and (link["yhat"] == prob["yhat"]).all()
    assert (fit.predict(cells, type="class").astype(object).to_numpy() == best.to_numpy()).all()


@examples(200)
@given(shapes, methods, st.data())
def test_any_choice_of_rows_is_predicted_with_the_same_bits(shape, method, data):
    frame, xlevels = table(shape)
    fit = fitted(frame, xlevels, method)
    rows = data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=50))
    whole, part = fit.predict(frame), fit.predict(frame.iloc[rows, ::-1])
    pd.testing.assert_frame_equal(part, whole.iloc[rows], check_exact=True)


any_level = st.one_of(
    st.text(max_size=6), st.integers(-(2**40), 2**40), st.booleans(), st.floats(-1e9, 1e9, width=32)
)


@pytest.mark.long
@examples(100)
@given(shapes, methods, st.lists(any_level, min_size=4, max_size=4, unique_by=repr), st.booleans())
def test_a_saved_model_comes_back_with_the_same_bits(shape, method, names, store_data):
    frame, xlevels = table(shape)
    assume(len(set(names)) == 4)  # 1 and 1.0 are one level, and 1 and True cannot both be levels
    renamed = dict(zip("klmn", names, strict=True))
    frame = frame.assign(
        **{c: pd.Series([renamed[v] for v in frame[c]], dtype=object) for c in xlevels}
    )
    fit = fitted(frame, {c: [renamed[v] for v in own] for c, own in xlevels.items()}, method)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.bbl"
        fit.save(path, store_data=store_data)
        back = bbl.load(path)
    same_bits(fit, back)
    assert back.labels == fit.labels and back.logLik() == fit.logLik() and repr(back) == repr(fit)
    pd.testing.assert_frame_equal(back.predict(frame), fit.predict(frame), check_exact=True)


@examples(500)
@given(shapes)
def test_codes_lead_back_to_the_values(shape):
    frame, xlevels = table(shape)
    design, sample, *_ = Design.from_data("y ~ .", frame, None, xlevels)
    for i, factor in enumerate(design.predictors):
        assert [factor.levels[a] for a in sample.codes[:, i]] == frame[factor.name].tolist()
    assert [design.response.levels[a] for a in sample.y] == frame["y"].tolist()
    again, unknown = Design.from_dict(design.to_dict()).encode(frame)
    np.testing.assert_array_equal(again, sample.codes)
    assert unknown is None


@examples(200)
@given(shapes)
def test_counts_of_the_repeated_rows_are_the_frequencies(shape):
    frame, _ = table(shape)
    cells = frame.drop_duplicates()
    cells = cells.assign(
        n=np.append(1, np.random.default_rng(shape[0]).integers(0, 5, len(cells) - 1))
    )
    back = bbl.freq2raw(cells, "n").value_counts().to_dict()
    assert back == {row[:-1]: row[-1] for row in cells.itertuples(index=False) if row[-1]}


# -- whole frames of any kind ----------------------------------------------------------------------
# bounded, because hypothesis also draws numbers that occur in modules imported so far, and rejects
# an example if one of them overflows
half_floats = st.floats(-65504, 65504, width=16) | st.sampled_from([np.nan, np.inf, -np.inf])
columns = [
    hpd.column("y", elements=st.sampled_from(["no", "yes"]), fill=st.nothing()),
    hpd.column(
        "a", dtype=object, elements=st.one_of(st.booleans(), st.integers(0, 2), st.text(max_size=1))
    ),
    hpd.column("b", elements=half_floats, fill=st.nothing()),
    hpd.column("c", dtype=np.int8, elements=st.integers(-1, 1)),
    hpd.column("d", dtype=object, elements=st.sampled_from(["u", "v", None, b"w"])),
]
subsets = st.lists(st.sampled_from("abcd"), min_size=1, unique=True)


@examples(200)
@given(
    hpd.data_frames(columns, index=hpd.range_indexes(min_size=2, max_size=12)),
    subsets,
    methods,
    st.booleans(),
)
def test_any_frame_is_fitted_or_refused_in_words(frame, predictors, method, novar_ok):
    try:
        fit = fitted(frame, None, method, f"y ~ ({' + '.join(predictors)})^2", novarOk=novar_ok)
    except bbl.BBLError as error:
        assert str(error).rstrip().endswith((".", ")")) and len(str(error)) > 30
        return
    assert np.isfinite(fit.estimate.parameters.theta).all()
    np.testing.assert_allclose(fit.fitted().sum(axis=1), 1, atol=1e-12)


# -- the model -------------------------------------------------------------------------------------
@examples(2000)
@given(seeds, level_counts, st.floats(0, 1), st.floats(0, 30))
def test_log_z_by_elimination_is_the_sum_over_states(seed, levels, density, scale):
    layout, theta, _ = model(seed, levels, 2, density, scale)
    E = energies(all_states(levels), layout, theta)
    top = E.max(axis=0)
    found = log_sum(layout.factors(theta), elimination_order(layout.n_levels, layout.mask, 1e6)[0])
    np.testing.assert_allclose(
        found, top + np.log(np.exp(E - top).sum(axis=0)), rtol=1e-12, atol=1e-12
    )


@pytest.mark.long
@examples(2000)
@given(seeds, level_counts, st.floats(0, 1))
def test_another_gauge_has_the_same_probabilities(seed, levels, density):
    layout, theta, rng = model(seed, levels, 2, density)
    turn = [rng.permutation(L) for L in levels]
    moved = np.array([_with_reference(layout, t, turn) for t in theta])
    states = all_states(levels)
    new = np.column_stack([np.argsort(p)[states[:, i]] for i, p in enumerate(turn)]).astype(
        np.uint8
    )
    p, q = (
        log_probabilities(_exact_scores(layout, t, x)) for t, x in ((theta, states), (moved, new))
    )
    np.testing.assert_allclose(p, q, atol=1e-10)


def _exact_scores(layout, theta, codes):
    log_z = log_sum(layout.factors(theta), elimination_order(layout.n_levels, layout.mask, 1e6)[0])
    return class_scores(energies(codes, layout, theta), log_z, np.array([0.3, 0.7]))


def _with_reference(layout, theta, turn):
    """Return the parameters of the same model when code a of predictor i stands for what was
    ``turn[i][a]``.
    """
    out = np.zeros_like(theta)
    h = [np.append(0.0, layout.table(theta, i))[p] for i, p in enumerate(turn)]
    for i, j in layout.pairs:
        J = np.pad(layout.table(theta, i, j), ((1, 0), (1, 0)))[np.ix_(turn[i], turn[j])]
        h[i], h[j] = h[i] + J[:, 0], h[j] + J[0]
        layout.table(out, i, j)[...] = (J - J[:, :1] - J[:1] + J[0, 0])[1:, 1:]
    for i, field in enumerate(h):
        layout.table(out, i)[...] = (field - field[0])[1:]
    return out


@examples(2000)
@given(seeds, level_counts, st.floats(0, 1))
def test_unknown_values_are_summed_out(seed, levels, density):
    layout, theta, rng = model(seed, levels, 2, density)
    codes = np.array([[rng.integers(L) for L in levels]], dtype=np.uint8)
    unknown = rng.random((1, len(levels))) < 0.5
    states = all_states(levels)
    match = (states == codes)[:, ~unknown[0]].all(axis=1)
    expected = np.log(np.exp(energies(states[match], layout, theta)).sum(axis=0))
    np.testing.assert_allclose(
        MarginalEnergy(layout, theta)(codes, unknown)[0], expected, atol=1e-10
    )


@examples(2000)
@given(seeds, counts(2, 5, min_size=2, max_size=5), st.floats(0, 1), st.integers(1, 60))
def test_the_gradient_is_the_slope_of_the_objective(seed, levels, density, n):
    layout, _, rng = model(seed, levels, density=density)
    codes = np.column_stack([rng.integers(0, L, n) for L in levels]).astype(np.uint8)
    weights = rng.integers(1, 4, n).astype(float)
    # entries of pairs that do not interact are no parameters
    free = np.repeat(
        np.repeat(layout.mask, layout.n_levels - 1, axis=0), layout.n_levels - 1, axis=1
    )
    free = np.column_stack([np.ones(layout.D), free])
    theta, way = (rng.normal(size=free.shape) * free for _ in range(2))
    problem = PseudoProblem(codes, weights, layout.n_levels, layout.mask)
    penalties = rng.random(2)
    slope = problem.objective(theta, *penalties)[1] * way
    up, down = (problem.objective(theta + step * way, *penalties)[0] for step in (1e-5, -1e-5))
    by_predictor = np.add.reduceat(slope.sum(axis=1), layout.start[:-1])
    np.testing.assert_allclose((up - down) / 2e-5, by_predictor, atol=1e-6, rtol=1e-6)


@examples(2000)
@given(seeds, counts(1, 5, max_size=6), st.floats(0, 1))
def test_parameters_go_to_matrices_and_back(seed, levels, density):
    layout, theta, rng = model(seed, levels, density=density)
    h, J = to_matrix(layout, theta[0])
    np.testing.assert_array_equal(J, J.T)
    np.testing.assert_array_equal(from_matrix(layout, h, J), theta[0])
    for i, j in layout.pairs:
        np.testing.assert_array_equal(layout.table(theta[0], i, j), layout.table(theta[0], j, i).T)


@examples(2000)
@given(seeds, st.integers(2, 40))
def test_auc_sees_the_order_of_scores_alone_and_weights_as_copies(seed, n):
    rng = np.random.default_rng(seed)
    score, positive, weights = rng.integers(0, 6, n) / 4, rng.random(n) < 0.5, rng.integers(1, 4, n)
    found = auc(score, positive, weights.astype(float))
    np.testing.assert_allclose(
        auc(np.exp(3 * score), positive, weights.astype(float)), found, rtol=1e-12
    )
    copies = [np.repeat(v, weights) for v in (score, positive)]
    np.testing.assert_allclose(auc(*copies, np.ones(weights.sum())), found, rtol=1e-9)
    mirrored = auc(-score, positive, weights.astype(float))
    np.testing.assert_allclose(mirrored, 1 - np.array(found)[[0, 2, 1]], rtol=1e-9, atol=1e-12)


@examples(200)
@given(
    seeds,
    st.lists(st.integers(2, 20), min_size=1, max_size=6),
    st.integers(1, 70),
    st.integers(1, 12),
)
def test_chains_do_not_depend_on_how_many_run_or_on_threads(seed, levels, n_chains, n_sweeps):
    layout = Layout(levels)
    h, J = to_matrix(
        layout,
        random_parameters(layout, "norm", 0.0, 1.0, 0.0, 1.0, np.random.default_rng(seed))[0],
    )
    many = Chains(h, J, levels, n_chains + 5, np.random.default_rng(seed), n_jobs=2)
    few = Chains(h, J, levels, n_chains, np.random.default_rng(seed))
    for chains in (many, few):
        chains.sweep(n_sweeps)
    np.testing.assert_array_equal(many.codes[:n_chains], few.codes)
    np.testing.assert_array_equal(many.best_codes[:n_chains], few.best_codes)
    assert few.codes.min() >= 0 and (few.codes < np.array(levels)).all()


@examples(500)
@given(
    st.lists(st.text(alphabet="ACGTacgt-", min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(1, 5),
)
def test_fasta_gives_back_what_was_written(sequences, width):
    m = len(sequences[0])
    sequences = [(s * m)[:m] for s in sequences]
    lines = [
        f">s{k}\n" + "\n".join(s[i : i + width] for i in range(0, m, width))
        for k, s in enumerate(sequences)
    ]
    read = bbl.readFasta(io.StringIO("\n".join(lines)), rownames=True, fold_case=False)
    assert ["".join(row) for row in read.to_numpy()] == sequences
    assert read.index.tolist() == [f"s{k}" for k in range(len(sequences))]


@examples(2000)
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=6))
def test_codes_are_as_wide_as_they_must_be_and_no_wider(levels):
    dtype, top = code_dtype(np.array(levels)), max(levels) - 1
    assert np.iinfo(dtype).max >= top
    assert dtype == np.uint8 or np.iinfo({2: np.uint8, 4: np.uint16}[dtype.itemsize]).max < top
