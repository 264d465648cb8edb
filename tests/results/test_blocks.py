"""BiclusterResults: predictions, comparisons, printing, figures and files of all methods."""

import warnings

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import BBLTypeError, ConvergenceWarning, DataError, LevelError, ModelFileError
from bbl.storage import read_model, write_model

A = np.array([[1.0, 4.0, 2.0], [3.0, 1.0, 5.0]])
ROWS, COLUMNS = np.repeat([0, 1], 6), np.repeat([0, 1, 2], 4)


def matrix(seed=0):
    rng = np.random.default_rng(seed)
    X = np.clip(np.rint(A[ROWS][:, COLUMNS] + rng.normal(0, 0.4, (12, 12))), 1, 5)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X


def long_table(X):
    row, column = np.nonzero(~np.isnan(X))
    return pd.DataFrame(
        {"user": [f"u{i:02}" for i in row], "movie": column, "rating": X[row, column]}
    )


def pairs(X):
    return (X > 3).astype(int)


def make(kind):
    table = long_table(matrix())
    if kind == "levels":
        return bbl.bicluster("rating ~ user*movie", table, (2, 3), metric="levels")
    if kind == "genetic":
        return bbl.bicluster("rating ~ user*movie", table, method="genetic")
    if kind == "mcmc":
        with warnings.catch_warnings():
            # chains as short as these may not have mixed
            warnings.simplefilter("ignore", ConvergenceWarning)
            rated = table[table["rating"] > 2]
            return bbl.bicluster(
                "~ user*movie", rated, method="mcmc", draws=100, warmup=100, n_init=2
            )
    if kind == "chosen":
        return bbl.bicluster("rating ~ user*movie", table, max_groups=4, n_init=3)
    return (
        bbl.bicluster(None, matrix(), (2, 3))
        if kind == "matrix"
        else bbl.bicluster("rating ~ user*movie", table, (2, 3))
    )


KINDS = ["prototype", "levels", "genetic", "mcmc", "chosen", "matrix"]


@pytest.fixture(scope="module")
def fits():
    return {kind: make(kind) for kind in KINDS}


@pytest.mark.long
def test_fitted_values_are_the_means_of_blocks(fits):
    fit, X = fits["prototype"], matrix()
    table = fit.fitted()
    assert (
        table.columns.tolist() == ["user", "movie", "rating", "fitted"]
        and len(table) == (~np.isnan(X)).sum()
    )
    means = table.groupby(
        [fit.row_groups[table["user"]].to_numpy(), fit.column_groups[table["movie"]].to_numpy()]
    )
    np.testing.assert_allclose(means["rating"].mean(), means["fitted"].first(), rtol=1e-12)
    assert fit.wcss == pytest.approx(((table["rating"] - table["fitted"]) ** 2).sum())
    assert fit.mse == pytest.approx(((table["rating"] - table["fitted"]) ** 2).mean())
    full = fits["matrix"].fitted()
    assert full.shape == (12, 12) and not full.isna().any(axis=None)
    np.testing.assert_allclose(full.to_numpy()[~np.isnan(X)], table["fitted"])


@pytest.mark.long
def test_missing_cells_are_predicted_by_their_block(fits):
    fit = fits["prototype"]
    new = pd.DataFrame({"user": ["u00", "u11"], "movie": [5, 11]}, index=["p", "q"])
    found = fit.predict(new)
    assert found.index.tolist() == ["p", "q"] and found.name == "rating"
    np.testing.assert_allclose(found, A[[0, 1], [1, 2]], atol=0.3)


@pytest.mark.parametrize("kind", ["prototype", "levels", "genetic"])
def test_new_rows_go_to_the_group_that_fits_best(fits, kind):
    fit = fits[kind]
    rating = [3, 1, 5, np.nan, 1, 4, 2, np.nan]
    new = pd.DataFrame({"user": ["x"] * 4 + ["y"] * 4, "movie": [0, 4, 8, 9] * 2, "rating": rating})
    labels = fit.assign(new)
    assert labels["x"] == fit.row_groups["u11"] and labels["y"] == fit.row_groups["u00"]
    expected = fit.predict(pd.DataFrame({"user": ["u11"] * 4 + ["u00"] * 4, "movie": new["movie"]}))
    assert fit.predict(new).tolist() == expected.tolist()
    with pytest.raises(LevelError, match="'z' is new"):
        fit.predict({"user": ["z"], "movie": [0]})


def test_new_raters_go_to_the_group_with_the_same_items(fits):
    fit = fits["mcmc"]
    old = long_table(matrix()).query("rating > 2 and user == 'u00'")
    assert fit.assign(old.assign(user="new"))["new"] == fit.row_groups["u00"]
    assert (
        fit.predict({"user": ["u00"], "movie": [4]})[0]
        > 0.5
        > fit.predict({"user": ["u00"], "movie": [0]})[0]
    )


def test_new_rows_of_a_matrix_are_predicted_whole(fits):
    fit = fits["matrix"]
    new = np.full((2, 12), np.nan)
    new[0, [0, 5, 9]], new[1, [1, 6, 10]] = [3, 1, 5], [1, 4, 2]
    assert fit.assign(new).tolist() == [fit.rows[11], fit.rows[0]]
    np.testing.assert_allclose(fit.predict(new), A[[1, 0]][:, COLUMNS], atol=0.3)
    shuffled = pd.DataFrame(new).iloc[:, ::-1]
    pd.testing.assert_frame_equal(fit.predict(shuffled), fit.predict(pd.DataFrame(new)))
    with pytest.raises(DataError, match="12 columns"):
        fit.predict(new[:, :3])
    with pytest.raises(LevelError, match="is new"):
        fit.predict(np.full((1, 12), np.nan))


def test_levels_have_shares_and_a_most_frequent_one(fits):
    fit = fits["levels"]
    shares = fit.block_means
    np.testing.assert_allclose(shares.T.groupby(level=0).sum(), 1.0)
    new = {"user": ["u00", "u11"], "movie": [5, 11]}
    prob = fit.predict(new, type="prob")
    assert prob.columns.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0] and fit.predict(new).tolist() == [
        4.0,
        5.0,
    ]
    assert prob.idxmax(axis=1).tolist() == [4.0, 5.0] and np.isnan(fit.wcss)
    with pytest.raises(BBLTypeError, match="type="):
        fits["prototype"].predict(new, type="prob")


def test_rand_index_compares_rows_and_columns(fits):
    table = fits["prototype"].rand_index((ROWS, COLUMNS))
    assert table.loc["rows"].tolist() == [1.0, 1.0] and table.loc["columns", "adjusted"] == 1.0
    assert fits["prototype"].rand_index(fits["matrix"]).to_numpy().min() == 1.0
    assert fits["prototype"].rand_index((ROWS[::-1], np.zeros(12))).loc["columns", "rand"] < 1
    with pytest.raises(DataError, match="12 rows"):
        fits["prototype"].rand_index((ROWS[1:], COLUMNS))


def test_the_genetic_algorithm_tells_of_its_population(fits):
    fit = fits["genetic"]
    assert fit.groups == (2, 3) and len(fit.fitness_history) == 1001
    assert fit.population.shape == (6, 25) and fit.population["fitness"].is_monotonic_increasing
    assert fit.criterion <= fit.population["fitness"].min() + 1e-9
    assert fit.population.columns[1] == "user:u00" and fit.population.columns[-1] == "movie:11"


def test_the_posterior_tells_of_groups_and_chains(fits):
    posterior = fits["mcmc"].posterior
    assert posterior.row_similarity.loc["u00", "u01"] > posterior.row_similarity.loc["u00", "u11"]
    np.testing.assert_allclose(posterior.n_groups.sum(), 1.0)
    assert posterior.rhat.index.tolist() == ["log posterior", "row groups", "column groups"]
    assert (posterior.ess > 1).all() and posterior.popularity.sum() == pytest.approx(1.0)
    assert posterior.loyalty.between(0, 1).all() and "2 chains x 100 draws" in repr(posterior)
    assert fits["prototype"].posterior is None
    with pytest.raises(DataError, match="no posterior"):
        fits["prototype"].plot_similarity()


@pytest.mark.parametrize("kind", KINDS)
def test_summaries_print_in_all_forms(fits, kind):
    fit = fits[kind]
    summary = fit.summary()
    assert (
        "Blocks:" in str(summary) and "Means:" in str(summary) and str(fit.nobs()) in str(summary)
    )
    assert summary.as_html().startswith("<div") and "tabular" in summary.as_latex()
    assert summary.tables["means"].equals(fit.block_means)
    assert repr(fit).startswith("Call:\n bicluster(") and "Block means:" in repr(fit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_gives_everything_back(fits, kind, tmp_path):
    fit, path = fits[kind], tmp_path / "blocks.bbl"
    fit.save(path, store_data=True)
    other = bbl.load(path)
    assert type(other) is bbl.BiclusterResults and repr(other) == repr(fit)
    assert str(other.summary()) == str(fit.summary()) and other.method == fit.method
    pd.testing.assert_frame_equal(other.fitted(), fit.fitted())
    np.testing.assert_array_equal(other.history, fit.history)
    for name in ("selection", "population"):
        one, two = getattr(fit, name), getattr(other, name)
        assert (one is None and two is None) or one.equals(two)
    if fit.posterior is not None:
        assert other.posterior.row_similarity.equals(fit.posterior.row_similarity)
        assert other.posterior.rhat.equals(fit.posterior.rhat)
    fit.save(path)
    bare = bbl.load(path)
    assert bare.cells is None and bare.block_means.equals(fit.block_means)
    bare.plot(fitted=True)
    with pytest.raises(DataError, match="store_data=True"):
        bare.plot()


def change(name, value):
    def apply(meta, arrays):
        arrays[name] = value(arrays[name].copy())

    return apply


def spoil(array, value):
    array.flat[0] = value
    return array


HOSTILE = {
    "labels out of range": change("rows", lambda a: spoil(a, 7)),
    "negative labels": change("columns", lambda a: spoil(a, -1)),
    "too few labels": change("rows", lambda a: a[1:]),
    "sums not finite": change("sums", lambda a: spoil(a, np.nan)),
    "sums of another shape": change("sums", lambda a: a[:, :, :1].copy()),
    "cells out of range": change("cells_column", lambda a: spoil(a, 99)),
    "cells that end elsewhere": change("cells_start", lambda a: a + 1),
    "values of another kind": change("values", lambda a: a.astype(int)),
    "cells of no weight": change("cells_weight", lambda a: spoil(a, 0.0)),
    "an array of its own": lambda meta, arrays: arrays.update(other=np.zeros(1)),
    "another method": lambda meta, arrays: meta["method"].update(name="mcmc"),
    "no method": lambda meta, arrays: meta.pop("method"),
    "a number as call": lambda meta, arrays: meta.update(call=3),
    "no table": lambda meta, arrays: meta.update(table={}),
    "another content": lambda meta, arrays: meta["table"].update(holds="anything"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_files_that_no_fit_wrote_are_refused(fits, case, tmp_path):
    path = tmp_path / "blocks.bbl"
    fits["prototype"].save(path, store_data=True)
    meta, arrays = read_model(path, kind="bicluster")
    arrays = dict(arrays)
    HOSTILE[case](meta, arrays)
    write_model(path, meta, arrays, kind="bicluster")
    with pytest.raises(ModelFileError):
        bbl.load(path)


def test_draws_that_no_chain_made_are_refused(fits, tmp_path):
    path = tmp_path / "blocks.bbl"
    fits["mcmc"].save(path)
    meta, arrays = read_model(path, kind="bicluster")
    for name, wrong in (
        ("draws_rows", arrays["draws_rows"] + 50),
        ("draws_loyalty", arrays["draws_loyalty"][:, 1:]),
    ):
        write_model(path, meta, dict(arrays) | {name: wrong}, kind="bicluster")
        with pytest.raises(ModelFileError):
            bbl.load(path)


@pytest.fixture
def closed():
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thinned(3)
def test_figures_show_the_table_in_blocks(fits, kind, closed):
    fit = fits[kind]
    ax = fit.plot()
    image = ax.images[0].get_array()
    rows, columns = np.argsort(fit.rows, kind="stable"), np.argsort(fit.columns, kind="stable")
    if kind in ("prototype", "levels", "genetic", "chosen", "matrix"):
        X = matrix() - (kind == "levels")  # codes
        np.testing.assert_array_equal(np.ma.filled(image, np.nan), X[rows][:, columns])
    else:
        assert image.sum() == (matrix() > 2).sum()
    assert len(ax.get_yticks()) == 12 and ax.get_ylabel() == fit.table.rows.name
    own = closed.subplots()[1]
    assert fit.plot(fitted=True, ax=own) is own


def test_large_tables_are_averaged_into_pixels(closed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 8)) + np.repeat([0.0, 5.0], 2000)[:, None]
    ax = bbl.bicluster(None, X, (2, 1), n_init=1).plot()
    image = np.asarray(ax.images[0].get_array())
    assert image.shape == (1500, 8) and image[:740].mean() == pytest.approx(0, abs=0.05)
    assert image[760:].mean() == pytest.approx(5, abs=0.05) and ax.get_ylim() == (4000, 0)


def test_the_choice_of_groups_is_drawn(fits, closed):
    ax = fits["chosen"].plot_selection()
    (star,) = (line for line in ax.lines if line.get_marker() == "*")
    assert (star.get_ydata()[0], star.get_xdata()[0]) == fits["chosen"].groups == (2, 3)
    with pytest.raises(DataError, match="groups=None"):
        fits["prototype"].plot_selection()


@pytest.mark.parametrize("kind", ["prototype", "levels", "genetic", "mcmc"])
def test_the_history_of_the_search_is_drawn(fits, closed, kind):
    fit = fits[kind]
    ax = fit.plot_history()
    drawn = np.concatenate([line.get_ydata() for line in ax.lines[: 2 if kind == "mcmc" else 1]])
    np.testing.assert_array_equal(drawn, fit.history)
    names = {
        "prototype": ("Half-step", "Sum of squares"),
        "levels": ("Half-step", "Deviance"),
        "genetic": ("Generation", "Best fitness"),
        "mcmc": ("Draw", "Log posterior"),
    }
    assert (ax.get_xlabel(), ax.get_ylabel()) == names[kind]
    assert (ax.get_legend() is not None) == (kind == "mcmc")
    own = closed.subplots()[1]
    assert fit.plot_history(own) is own


def test_similarities_are_drawn_in_the_order_of_groups(fits, closed):
    fit = fits["mcmc"]
    axes = fit.plot_similarity()
    order = np.argsort(fit.rows, kind="stable")
    shown = np.asarray(axes[0].images[0].get_array())
    np.testing.assert_array_equal(shown, fit.posterior.row_share[order][:, order])
    assert len(axes) == 2 and fit.plot_similarity(axes=axes) == axes


def test_many_groups_have_no_numbers_and_thin_lines(closed):
    X = np.random.default_rng(0).normal(size=(80, 60))
    ax = bbl.bicluster(None, X, (40, 20), n_init=1).plot()
    assert (
        len(ax.get_yticks()) == 0
        and "80 in 40 groups" in ax.get_ylabel()
        and len(ax.get_xticks()) > 5
    )


def test_columns_of_new_rows_are_matched_by_text(fits):
    """A table from an array has columns 0, 1, ...; the same columns of a CSV file are "0", "1",
    ...
    """
    fit, values = fits["matrix"], A[[1, 0]][:, COLUMNS]
    new = pd.DataFrame(values, columns=[str(c) for c in range(values.shape[1])])
    assert fit.assign(new.iloc[:, ::-1]).tolist() == fit.assign(values).tolist()
