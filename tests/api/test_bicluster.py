"""`bicluster`: tables of every kind, weights, seeds, threads, the choice of groups, and bad
input.
"""

import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from interrupts import unheard

import bbl
from bbl.errors import (
    BBLTypeError,
    ConvergenceWarning,
    DataError,
    DataWarning,
    FormulaError,
    LevelError,
    OptionError,
)

A = np.array([[1.0, 4.0, 2.0], [3.0, 1.0, 5.0]])
ROWS, COLUMNS = np.repeat([0, 1], 6), np.repeat([0, 1, 2], 4)


def noisy(seed=0, missing=0.2):
    rng = np.random.default_rng(seed)
    X = A[ROWS][:, COLUMNS] + rng.normal(0, 0.3, (12, 12))
    X[rng.random(X.shape) < missing] = np.nan
    return X


def long_table(X, **more):
    """Return the observed cells of a matrix as a long table in random order."""
    row, column = np.nonzero(~np.isnan(X))
    order = np.random.default_rng(1).permutation(len(row))
    data = {
        "user": [f"u{i:02}" for i in row],
        "movie": [f"m{j:02}" for j in column],
        "rating": X[row, column],
    }
    return pd.DataFrame(data | more).iloc[order].reset_index(drop=True)


def same(one, other):
    assert one.block_means.equals(other.block_means) and one.block_counts.equals(other.block_counts)
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.columns, other.columns)
    np.testing.assert_array_equal(one.history, other.history)
    assert one.criterion == other.criterion


@pytest.fixture(scope="module")
def fit():
    return bbl.bicluster("rating ~ user*movie", long_table(noisy()), (2, 3))


def test_blocks_are_named_and_in_order_of_their_means(fit):
    assert (
        fit.row_groups.index.name == "user"
        and fit.row_groups["u00"] == 0
        and fit.row_groups["u11"] == 1
    )
    assert (
        fit.column_groups.name == "movie group"
        and fit.column_groups.to_numpy().tolist() == [0] * 4 + [1] * 4 + [2] * 4
    )
    assert (
        fit.block_means.index.name == "user group" and fit.block_means.columns.name == "movie group"
    )
    np.testing.assert_allclose(fit.block_means, A, atol=0.3)
    assert fit.block_counts.to_numpy().sum() == fit.nobs() == (~np.isnan(noisy())).sum()


def test_a_matrix_is_the_same_as_its_long_table(fit):
    X = noisy()
    for data in (X, X.tolist(), pd.DataFrame(X), {f"c{j:02}": X[:, j] for j in range(12)}):
        other = bbl.bicluster(None, data, (2, 3))
        np.testing.assert_array_equal(other.rows, fit.rows)
        np.testing.assert_array_equal(other.columns, fit.columns)
        np.testing.assert_array_equal(other.block_means.to_numpy(), fit.block_means.to_numpy())
        np.testing.assert_array_equal(other.history, fit.history)


@pytest.mark.parametrize("formula", ["rating ~ user + movie", "rating ~ user:movie", "rating ~ ."])
def test_formulas_of_two_factors_mean_the_same(fit, formula):
    same(bbl.bicluster(formula, long_table(noisy()), (2, 3)), fit)


def test_polars_and_pyarrow_tables_are_read(fit):
    polars = pytest.importorskip("polars")
    data = long_table(noisy())
    for table in (
        polars.from_pandas(data),
        polars.from_pandas(data).to_arrow(),
        data.to_dict("list"),
    ):
        same(bbl.bicluster("rating ~ user*movie", table, (2, 3)), fit)


def test_missing_responses_are_missing_cells(fit):
    data = long_table(noisy())
    more = pd.DataFrame({"user": ["u00", "u05"], "movie": ["m01", "m03"], "rating": [np.nan, None]})
    taken = {("u00", "m01"), ("u05", "m03")}
    left = data[[pair not in taken for pair in zip(data["user"], data["movie"], strict=True)]]
    same(
        bbl.bicluster("rating ~ user*movie", pd.concat([left, more]), (2, 3)),
        bbl.bicluster("rating ~ user*movie", left, (2, 3)),
    )


@pytest.mark.parametrize(
    "options", [{}, {"metric": "pearson"}, {"move": "one"}, {"metric": "levels"}]
)
def test_weights_equal_repeated_rows(options):
    data = long_table(noisy().round())
    data["n"] = np.random.default_rng(2).integers(0, 4, len(data))
    data.loc[data.groupby("user").head(2).index, "n"] = 2
    data.loc[data.groupby("movie").head(2).index, "n"] = 3
    repeated = data.loc[np.repeat(data.index, data["n"])].sample(frac=1, random_state=0)
    one = bbl.bicluster("rating ~ user*movie", data, (2, 3), weights="n", n_init=3, **options)
    same(one, bbl.bicluster("rating ~ user*movie", repeated, (2, 3), n_init=3, **options))
    same(
        one,
        bbl.bicluster(
            "rating ~ user*movie", data, (2, 3), weights=data["n"].to_numpy(), n_init=3, **options
        ),
    )
    assert (
        one.nobs() == data["n"].sum()
        and one.table.repeats == data["n"].sum() - (data["n"] > 0).sum()
    )


def test_repeated_pairs_are_averaged():
    data = long_table(noisy(missing=0))
    twice = pd.concat(
        [data.assign(rating=data["rating"] - 0.5), data.assign(rating=data["rating"] + 0.5)]
    )
    one, two = (bbl.bicluster("rating ~ user*movie", table, (2, 3)) for table in (data, twice))
    assert (
        two.wcss == pytest.approx(2 * one.wcss)
        and two.mse == pytest.approx(one.mse)
        and two.table.repeats == 144
    )
    np.testing.assert_allclose(two.block_means, one.block_means)


def test_weights_of_a_matrix_count_rows():
    X, weights = noisy(), np.array([1, 3, 1, 2, 0, 1] * 2)
    one = bbl.bicluster(None, X, (2, 3), weights=weights)
    many = bbl.bicluster(None, np.repeat(X, weights, axis=0), (2, 3))
    assert one.wcss == pytest.approx(many.wcss, rel=1e-12) and one.nobs() == many.nobs()
    np.testing.assert_allclose(one.block_means, many.block_means, rtol=1e-12)
    np.testing.assert_array_equal(np.repeat(one.rows, weights[weights > 0]), many.rows)


METHODS = [
    ("prototype", {"groups": (3, 2)}),
    ("prototype", {"max_groups": 3}),
    ("genetic", {"generations": 30}),
    ("mcmc", {"draws": 20, "warmup": 5}),
]


def data_for(method):
    if method == "mcmc":
        return (np.random.default_rng(0).random((7, 9)) < 0.5).astype(int)
    return np.clip(noisy().round(), 1, 5)


@pytest.mark.parametrize(("method", "options"), METHODS)
def test_results_depend_on_the_seed_alone(method, options):
    def run(**more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            return bbl.bicluster(
                None,
                data_for(method),
                method=method,
                n_init=3,
                **{"seed": 4, "verbose": 0} | more,
                **options,
            )

    one = run(n_jobs=1)
    same(one, run(n_jobs=2))
    same(one, run(seed=np.random.default_rng(4), n_jobs=3))
    assert method == "prototype" or not np.array_equal(one.history, run(seed=5).history)


@pytest.mark.long
def test_groups_are_chosen_by_the_criterion():
    fit = bbl.bicluster(None, noisy(3), max_groups=5, n_init=5)
    assert fit.groups == (2, 3)
    assert len(fit.selection) == 25 and fit.selection["criterion"].min() == fit.criterion
    best = fit.selection.set_index(["row_groups", "column_groups"])["criterion"].idxmin()
    assert best == (2, 3)
    levels = bbl.bicluster(None, noisy(3, 0).round(), metric="levels", max_groups=4, n_init=3)
    assert levels.groups == (2, 3)
    # no noise, so no variance
    exact = bbl.bicluster(None, A[ROWS][:, COLUMNS], max_groups=4, n_init=3)
    assert exact.groups == (2, 3) and np.isfinite(exact.criterion)


def test_a_choice_at_the_edge_is_warned_of():
    with pytest.warns(DataWarning, match="max_groups above 2"):
        bbl.bicluster(None, noisy(), max_groups=2)


def test_chains_that_have_not_mixed_and_groups_that_still_move_are_warned_of():
    Y = np.random.default_rng(0).random((20, 20)) < 0.5
    with pytest.warns(ConvergenceWarning, match="have not mixed.*warmup"):
        bbl.bicluster(None, Y, method="mcmc", draws=8, warmup=0, n_init=2)
    with pytest.warns(ConvergenceWarning, match="after 1 iterations. Hint: Increase max_iter"):
        bbl.bicluster(None, np.random.default_rng(0).normal(size=(40, 30)), (5, 5), max_iter=1)


def test_what_has_converged_is_what_the_method_can_know(tmp_path):
    Y = np.random.default_rng(0).random((20, 20)) < 0.5
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        chains = bbl.bicluster(None, Y, method="mcmc", draws=20, warmup=1, n_init=2, seed=1)
    ratings = np.random.default_rng(1).integers(1, 6, (15, 8)).astype(float)
    bred, refined = (
        bbl.bicluster(None, ratings, method="genetic", generations=20, refine=refine, seed=0)
        for refine in (False, True)
    )
    for fit, said in ((chains, "no"), (bred, "no"), (refined, "yes")):
        fit.save(tmp_path / "fit.bbl")
        for each in (fit, bbl.load(tmp_path / "fit.bbl")):
            assert each.converged == (said == "yes") and f"Converged: {said}" in str(each.summary())


@pytest.mark.parametrize("step", [1.0, 0.1])
def test_equal_averages_of_repeated_pairs_have_no_correlations(step):
    user, movie, sign = (index.ravel() for index in np.indices((6, 5, 2)))
    data = pd.DataFrame(
        {"u": user, "m": movie, "r": 2.0 + (2 * sign - 1) * step * (1 + (user + movie) % 3)}
    )
    with pytest.raises(
        DataError, match="averaging repeated pairs, all values are equal.*metric='squared'"
    ):
        bbl.bicluster("r ~ u*m", data, (2, 2), metric="pearson")
    np.testing.assert_allclose(
        bbl.bicluster("r ~ u*m", data, (2, 2), metric="squared").block_means, 2.0
    )


@pytest.mark.parametrize("name", [3, 2.5, True, ("a", 1), "rating"])
def test_a_saved_table_finds_the_column_of_its_values_whatever_the_type_of_its_name(tmp_path, name):
    data = long_table(noisy()).rename(columns={"rating": "value"})
    data.columns = pd.Index(
        [{"value": name}.get(c, c) for c in data], dtype=object, tupleize_cols=False
    )
    fit, new_rows = (
        bbl.bicluster(f"`{name}` ~ user*movie", data, (2, 3)),
        data.assign(user="new " + data["user"]),
    )
    fit.save(tmp_path / "fit.bbl")
    pd.testing.assert_series_equal(
        bbl.load(tmp_path / "fit.bbl").assign(new_rows), fit.assign(new_rows)
    )


def test_ordered_responses_count_from_one_unless_they_are_numbers(fit):
    words = ["poor", "fair", "good", "fine", "great"]
    data = long_table(np.clip(noisy().round(), 1, 5))
    plain = bbl.bicluster("rating ~ user*movie", data, (2, 3))
    for levels in (words, [1, 2, 3, 4, 5]):
        rating = pd.Categorical.from_codes(data["rating"].astype(int) - 1, levels, ordered=True)
        same(bbl.bicluster("rating ~ user*movie", data.assign(rating=rating), (2, 3)), plain)


@pytest.mark.filterwarnings("ignore::bbl.errors.ConvergenceWarning")
def test_rated_pairs_are_read_from_all_three_forms():
    Y = np.random.default_rng(0).random((6, 5)) < 0.5
    Y[:, 0] = True
    row, column = np.nonzero(np.ones_like(Y))
    data = pd.DataFrame({"user": row, "movie": column, "seen": Y.ravel()})
    options = {"method": "mcmc", "draws": 20, "warmup": 5, "n_init": 2}
    one = bbl.bicluster("seen ~ user*movie", data, **options)
    same(one, bbl.bicluster("seen ~ user*movie", data.astype(int), **options))
    same(one, bbl.bicluster("~ user*movie", data[data["seen"]], **options))
    same(one, bbl.bicluster("~ user*movie", pd.concat([data[data["seen"]]] * 2), **options))
    other = bbl.bicluster(None, Y, **options)
    np.testing.assert_array_equal(one.history, other.history)
    assert one.block_counts.to_numpy().sum() == 30 and one.block_means.to_numpy().max() <= 1


def without(X, row=None, column=None):
    X = X.copy()
    if row is not None:
        X[row] = np.nan
    if column is not None:
        X[:, column] = np.nan
    return X


BAD = {
    "row without cells": (
        lambda: bbl.bicluster(None, without(noisy(), row=3), (2, 2)),
        DataError,
        "'row' 3 has no observed",
    ),
    "column without cells": (
        lambda: bbl.bicluster(None, without(noisy(), column=5), (2, 2)),
        DataError,
        "'column' 5 has no",
    ),
    "user without ratings": (
        lambda: bbl.bicluster(
            "y ~ a*b", {"a": ["p", "q", "q"], "b": [1, 1, 2], "y": [np.nan, 1, 2]}, (1, 1)
        ),
        DataError,
        "'a' 'p' has no observed cell",
    ),
    "fewer rows than groups": (
        lambda: bbl.bicluster(None, noisy(), (13, 2)),
        OptionError,
        "13 groups, but there are only 12 rows",
    ),
    "fewer columns than groups": (
        lambda: bbl.bicluster(None, noisy(), (2, 20)),
        OptionError,
        "20 groups, but there are only 12 columns",
    ),
    "infinite": (
        lambda: bbl.bicluster(None, np.where(np.isnan(noisy()), np.inf, 1.0), (2, 2)),
        DataError,
        "inf at row",
    ),
    "infinite in a column": (
        lambda: bbl.bicluster(
            "rating ~ user*movie", long_table(noisy()).assign(rating=np.inf), (2, 2)
        ),
        DataError,
        "'rating' has the value inf",
    ),
    "one value": (
        lambda: bbl.bicluster(None, np.ones((4, 4)), (2, 2)),
        DataError,
        "only one value, 1",
    ),
    "one level": (
        lambda: bbl.bicluster(None, np.ones((4, 4)), (2, 2), metric="levels"),
        DataError,
        "only one level",
    ),
    "unknown option": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), metrik="levels"),
        BBLTypeError,
        "Did you mean 'metric'",
    ),
    "argument misspelt": (
        lambda: bbl.bicluster(None, noisy(), group=(2, 2)),
        BBLTypeError,
        "Did you mean 'groups'",
    ),
    "option of another method": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), sigma=1),
        BBLTypeError,
        "'sigma' is not an",
    ),
    "unknown method": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), "spectral"),
        OptionError,
        "method='spectral'",
    ),
    "unknown metric": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), metric="cosine"),
        OptionError,
        "metric='cosine'",
    ),
    "groups no pair": (lambda: bbl.bicluster(None, noisy(), 3), BBLTypeError, "groups must be"),
    "no groups": (
        lambda: bbl.bicluster(None, noisy(), (0, 2)),
        OptionError,
        "groups must be at least 1",
    ),
    "groups for mcmc": (
        lambda: bbl.bicluster(None, noisy() > 2, (2, 2), "mcmc"),
        OptionError,
        "does not accept groups",
    ),
    "groups for genetic": (
        lambda: bbl.bicluster(None, data_for("genetic"), (2, 2), "genetic"),
        OptionError,
        "does not accept groups",
    ),
    "pearson without groups": (
        lambda: bbl.bicluster(None, noisy(), metric="pearson"),
        OptionError,
        "not define a likelihood",
    ),
    "one by one of levels": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), metric="levels", move="one"),
        OptionError,
        "move=",
    ),
    "three factors": (
        lambda: bbl.bicluster(
            "y ~ a + b + c", {"y": [1, 2], "a": [1, 2], "b": [1, 2], "c": [1, 2]}, (1, 1)
        ),
        FormulaError,
        "3 factors",
    ),
    "no response": (
        lambda: bbl.bicluster("~ user*movie", long_table(noisy()), (2, 2)),
        FormulaError,
        "no response",
    ),
    "missing user": (
        lambda: bbl.bicluster(
            "y ~ a*b", {"a": ["p", None, "q"], "b": [1, 1, 2], "y": [0, 1, 2]}, (1, 1)
        ),
        DataError,
        "'a' has 1 missing value",
    ),
    "words as numbers": (
        lambda: bbl.bicluster("y ~ a*b", {"a": [1, 2], "b": [1, 2], "y": ["u", "v"]}, (1, 1)),
        BBLTypeError,
        "metric='levels'",
    ),
    "one row": (lambda: bbl.bicluster(None, [[1.0, 2.0]], (1, 1)), DataError, "1 x 2"),
    "a vector": (lambda: bbl.bicluster(None, [1.0, 2.0], (1, 1)), DataError, "1 dimension"),
    "no table": (lambda: bbl.bicluster(None, 3, (1, 1)), BBLTypeError, "data must be"),
    "weights by name": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), weights="n"),
        DataError,
        "no weights column",
    ),
    "negative weights": (
        lambda: bbl.bicluster(None, noisy(), (2, 2), weights=[-1] * 12),
        DataError,
        "must all be non-negative integers",
    ),
    "ratings off the scale": (
        lambda: bbl.bicluster(None, noisy(), method="genetic"),
        DataError,
        "ratings between 1 and 5",
    ),
    "rated twice otherwise": (
        lambda: bbl.bicluster(
            "y ~ a*b", {"a": [1, 1, 2], "b": [1, 1, 2], "y": [0, 1, 1]}, method="mcmc"
        ),
        DataError,
        "both 0 and 1",
    ),
    "ratings for mcmc": (
        lambda: bbl.bicluster(None, data_for("genetic"), method="mcmc"),
        DataError,
        "requires 0 .unrated. or 1",
    ),
    "nothing rated": (
        lambda: bbl.bicluster(None, np.zeros((3, 3)), method="mcmc"),
        DataError,
        "no pair is rated",
    ),
    "all rated": (
        lambda: bbl.bicluster(None, np.ones((3, 3)), method="mcmc"),
        DataError,
        "all pairs are rated",
    ),
    "rater without items": (
        lambda: bbl.bicluster(None, np.eye(3)[[0, 1]] * [[1], [0]], method="mcmc"),
        DataError,
        "no rated",
    ),
    "popularity": (
        lambda: bbl.bicluster(None, np.eye(3), method="mcmc", popularity=[1, 2]),
        OptionError,
        "popularity",
    ),
    "scale": (
        lambda: bbl.bicluster(None, noisy(), method="genetic", scale=5),
        BBLTypeError,
        "scale",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_remedy(case):
    call, error, text = BAD[case]
    with pytest.raises(error, match=text.replace("(", r"\(")) as caught:
        call()
    assert str(caught.value).endswith(".")


def test_unknown_movies_are_refused_in_prediction(fit):
    with pytest.raises(LevelError, match="'movie'"):
        fit.predict({"user": ["u00"], "movie": ["x"]})


def test_memory_is_estimated_before_it_is_taken(monkeypatch):
    import bbl.memory

    monkeypatch.setattr(bbl.memory, "available_memory", lambda: 2**20)
    X = np.random.default_rng(0).normal(size=(1000, 400))
    with pytest.raises(MemoryError, match="Clustering a 1000 x 400 table"):
        bbl.bicluster(None, X, (200, 200), n_jobs=2)


LONG = """
rng = np.random.default_rng(0)
X = rng.integers(1, 6, (300, 200)).astype(float)
Y = (rng.random((60, 300)) < 0.5).astype(int)
bbl.bicluster(None, X[:9, :9], (2, 2), verbose=0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a POSIX system")
@pytest.mark.long
def test_an_interrupt_is_heard_by_all_methods():
    calls = [
        "bbl.bicluster(None, X, n_init=10**4, n_jobs={}, verbose=0)",
        "bbl.bicluster(None, X, method='genetic', generations=10**8, n_jobs={}, verbose=0)",
        "bbl.bicluster(None, Y, method='mcmc', draws=10**5, n_init=2, n_jobs={}, verbose=0)",
    ]
    assert not unheard(
        LONG, [call.format(n_jobs) for call in calls for n_jobs in (1, 2)], latest=3.0
    )


@pytest.mark.parametrize("metric", ["squared", "levels"])
@pytest.mark.parametrize(
    "kind", [lambda t: t, pa.Table.from_pandas, lambda t: {name: t[name] for name in t}]
)
def test_a_wide_table_of_categories_has_their_order_as_a_long_one(metric, kind):
    levels = ["poor", "fair", "good", "never"]
    codes = np.random.default_rng(0).integers(0, 3, (20, 6))
    wide = pd.DataFrame(
        {f"c{j}": pd.Categorical.from_codes(codes[:, j], levels, ordered=True) for j in range(6)}
    )
    long = pd.DataFrame({"i": np.repeat(range(20), 6), "j": [f"c{j}" for j in range(6)] * 20})
    long["r"] = pd.Categorical.from_codes(codes.ravel(), levels, ordered=True)
    one = bbl.bicluster(None, kind(wide), groups=(2, 2), metric=metric)
    other = bbl.bicluster("r ~ i*j", long, groups=(2, 2), metric=metric)
    assert one.table.levels.levels == other.table.levels.levels == ("poor", "fair", "good")
    np.testing.assert_array_equal(one.row_groups, other.row_groups)
    plain = wide.astype(str)
    if metric == "squared":
        np.testing.assert_array_equal(one.block_means, other.block_means)
        with pytest.raises(
            BBLTypeError, match="an ordered category \\(the same for all columns of a matrix\\)"
        ):
            bbl.bicluster(None, kind(plain), groups=(2, 2))
