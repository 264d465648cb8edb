"""Binning and lumping: cuts, tables, and that a model does the same to new data, also from its
file.
"""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.design.intervals import interval_ends
from bbl.errors import BBLTypeError, DataError, DataWarning, LevelError, OptionError
from bbl.stats.cuts import mdl_cuts, quantile_cuts, width_cuts


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, 400).round(2)
    town = rng.choice(["Bern", "Chur", "Thun"], 400, p=[0.5, 0.3, 0.2]).astype(object)
    town[:4] = ["Visp", "Brig", "Naters", "Zermatt"]
    y = np.where(rng.random(400) < np.where(age > 60, 0.9, 0.1), "old", "young")
    return pd.DataFrame({"y": y, "age": age, "town": town, "n": rng.integers(1, 3, 400)})


def test_quantile_cuts_halve_the_weight_and_never_cut_ties():
    x = np.array([1.0, 2.0, 2.0, 2.0, 3.0, 9.0])
    for cuts in (
        quantile_cuts(x, np.ones(6), 4),
        quantile_cuts(np.array([1.0, 2, 3, 9]), np.array([1.0, 3, 1, 1]), 4),
    ):
        np.testing.assert_array_equal(
            cuts, quantile_cuts(np.repeat([1.0, 2, 3, 9], [1, 3, 1, 1]), np.ones(6), 4)
        )
        assert not np.isin(cuts, x).any()
    even = np.arange(100.0)
    assert (
        np.histogram(even, [-np.inf, *quantile_cuts(even, np.ones(100), 5), np.inf])[0].tolist()
        == [20] * 5
    )
    assert (
        len(quantile_cuts(np.array([5.0]), np.ones(1), 3))
        == len(width_cuts(np.array([5.0, 5.0]), np.ones(2), 3))
        == 0
    )
    np.testing.assert_allclose(width_cuts(np.array([0.0, 10.0]), np.ones(2), 5), [2, 4, 6, 8])


def test_supervised_cuts_pay_for_themselves():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=1000)
    y = (x > 0.3).astype(int) + (x > 0.7)
    np.testing.assert_allclose(mdl_cuts(x, np.ones(1000), y), [0.3, 0.7], atol=0.01)
    false = [len(mdl_cuts(x, np.ones(1000), rng.integers(0, 3, 1000))) for _ in range(50)]
    assert sum(n > 0 for n in false) <= 3
    w = rng.integers(1, 4, 1000)
    np.testing.assert_array_equal(
        mdl_cuts(x, w.astype(float), y),
        mdl_cuts(np.repeat(x, w), np.ones(w.sum()), np.repeat(y, w)),
    )
    assert len(mdl_cuts(np.arange(200.0), np.ones(200), np.arange(200) % 2, most=3)) <= 3


def test_every_number_is_in_an_interval_and_missing_stays_missing(people):
    holes = people.assign(age=people["age"].mask(people.index < 10))
    table = bbl.bin(holes, response="y", weights="n")
    assert (
        table["age"].isna().sum() == 10
        and table["age"].cat.ordered
        and len(table["age"].cat.categories) == 5
    )
    assert (
        table["age"].cat.categories[0].left == -np.inf
        and table["age"].cat.categories[-1].right == np.inf
    )
    pd.testing.assert_frame_equal(
        table.drop(columns="age"), holes.drop(columns="age"), check_dtype=False
    )
    assert all(x in i for x, i in zip(holes["age"][10:], table["age"][10:], strict=True))
    share = (
        people["n"][10:].groupby(table["age"][10:], observed=True).sum() / people["n"][10:].sum()
    )
    assert share.between(0.17, 0.23).all()


def test_a_model_bins_new_numbers_as_it_was_binned_also_from_its_file(people, tmp_path):
    for table in (
        bbl.bin(people, "age", method="mdl", response="y"),
        bbl.bin(people, "age", bins=3, method="width"),
        people.assign(age=pd.cut(people["age"], [0, 30, 60.5, 100], right=False)),
    ):
        fit = bbl.bbl("y ~ age", table)
        fit.save(tmp_path / "fit.bbl")
        for model in (fit, bbl.load(tmp_path / "fit.bbl")):
            pd.testing.assert_frame_equal(
                model.predict(people), fit.predict(table), check_exact=True
            )
    with pytest.raises(LevelError, match="age"):
        fit.predict({"age": [150]})  # pandas.cut leaves room beyond its last interval
    assert fit.predict({"age": [150, 20]}, type="prob", unseen="ignore")["old"].between(0, 1).all()


def test_numbers_find_their_interval_beside_rare_levels_too(tmp_path):
    x = pd.cut(np.repeat([0.5, 1.5, 2.5, 3.5], [40, 40, 2, 1]), [0, 1, 2, 3, 4])
    table = bbl.lump(pd.DataFrame({"y": np.repeat([0, 1, 0], [40, 41, 2]), "x": x}))
    assert [str(level) for level in table["x"].cat.categories] == ["(0, 1]", "(1, 2]", "(rare)"]
    fit = bbl.bbl("y ~ x", table, lambdah=0.01)
    fit.save(tmp_path / "fit.bbl")
    levels = fit.predict({"x": [*table["x"].cat.categories, "(rare)"]})
    for model in (fit, bbl.load(tmp_path / "fit.bbl")):
        np.testing.assert_array_equal(model.predict({"x": [0.5, 1.5, 2.5, 7.0]}), levels)


def test_a_boundary_belongs_where_its_bracket_says():
    data = pd.DataFrame({"y": [0, 1] * 20, "x": pd.cut(np.tile([1.0, 2.0], 20), [0, 1, 2])})
    fit = bbl.bbl("y ~ x", data)
    right = fit.predict({"x": [1.0, 1.0000001]}, type="class").tolist()
    assert right == [0, 1]
    assert interval_ends(pd.Interval(1.0, 2.0, closed="left")) == (1.0, 2.0, True, False)
    assert (
        interval_ends("[a, b)") is None
        and interval_ends("plain") is None
        and interval_ends(3) is None
    )


def test_rare_levels_are_one_and_take_in_what_is_unknown(people):
    table = bbl.lump(people, response="y")
    assert table["town"].cat.categories.tolist() == ["Bern", "Chur", "Thun", "(rare)"]
    assert (table["town"] == "(rare)").sum() == 4 and table["age"].equals(people["age"])
    fit = bbl.bbl("y ~ town", table, lambdah=0.01)
    known = fit.predict({"town": ["(rare)"]}).iloc[:, :2].to_numpy()
    np.testing.assert_array_equal(
        fit.predict({"town": ["Sion", "Visp"]}).iloc[:, :2], np.vstack([known, known])
    )
    weighted = bbl.lump(people, "town", min_count=10_000, weights="n")
    assert set(weighted["town"]) == {"(rare)"}
    alone = people.assign(town=["Visp", *["Bern"] * 399])
    with pytest.raises(LevelError):
        bbl.bbl("y ~ town", alone, lambdah=0.01).predict({"town": ["Sion"]})


def test_a_single_rare_level_takes_in_what_is_unknown_too(people):
    alone = people.assign(town=["Visp", *["Bern"] * 399], old=people.index < 3)
    table = bbl.lump(alone, response="y")
    assert table["town"].tolist() == ["(rare)", *["Bern"] * 399]
    assert table["old"].equals(alone["old"])  # there are no other booleans to come
    fit = bbl.bbl("y ~ town", table, lambdah=0.01)
    rows = fit.predict({"town": ["Sion", "Visp", "(rare)"]}, type="prob")
    assert rows["old"].nunique() == 1
    again = bbl.lump(bbl.lump(people, response="y"), min_count=100, response="y")["town"]
    assert again.cat.categories.tolist() == ["Bern", "Chur", "(rare)"]


@pytest.mark.parametrize("missing", ["level", "marginal", "drop"])
def test_missing_values_are_rare_where_they_are_a_level_that_no_training_row_has(people, missing):
    fit = bbl.bbl("y ~ town", bbl.lump(people, response="y"), lambdah=0.01, missing=missing)
    found = fit.predict({"town": ["(rare)", None]}, type="prob")["old"]
    if missing == "level":
        assert found[1] == found[0]
    elif missing == "marginal":
        np.testing.assert_allclose(found[1], (people["y"] == "old").mean(), rtol=1e-6)
    else:
        assert np.isnan(found[1])
    gaps = people.assign(town=people["town"].mask(people.index % 50 == 0))
    levels = bbl.bbl(
        "y ~ town", bbl.lump(gaps, response="y"), lambdah=0.01, missing=missing
    ).labels.levels[0]
    assert (
        levels == ("Bern", "Chur", "Thun", "(rare)", "(missing)")[: 5 if missing == "level" else 4]
    )


def test_weights_need_not_be_whole_and_are_never_binned(people):
    rng = np.random.default_rng(0)
    table = people.assign(w=rng.uniform(0.1, 2.0, 400))
    named = bbl.bin(table, response="y", weights="w")
    for weights in (table["w"], table["w"].to_numpy()):
        pd.testing.assert_frame_equal(bbl.bin(table, response="y", weights=weights), named)
    assert named["w"].equals(table["w"]) and named["n"].equals(table["n"])
    share = table["w"].groupby(named["age"], observed=True).sum() / table["w"].sum()
    assert share.between(0.19, 0.21).all()
    assert (
        len(bbl.bin(table, "age", method="mdl", response="y", weights="w")["age"].cat.categories)
        > 1
    )
    quarter = bbl.lump(people.assign(w=0.25), "town", weights="w", min_count=25)["town"]
    assert (
        quarter.cat.categories.tolist()
        == bbl.lump(people, "town", min_count=100)["town"].cat.categories.tolist()
    )
    for verb in (bbl.bin, bbl.lump):
        with pytest.raises(OptionError, match="columns includes 'w', which.*the weights"):
            verb(table, ["age", "w"], weights="w")
    with pytest.warns(DataWarning, match="weights are not all integers"):
        bbl.bbl("y ~ age", named, weights="w", method="naive")
    with pytest.raises(
        BBLTypeError, match=r"were cut into intervals.*bbl\.bin\(data, weights=\.\.\.\)"
    ):
        bbl.bbl("y ~ age", bbl.bin(table, response="y"), weights="w", method="naive")


def test_bad_input_is_named(people):
    for call, error, words in (
        (lambda: bbl.bin(people, "height"), DataError, "'height'"),
        (lambda: bbl.bin(people, "town"), DataError, "not numbers"),
        (lambda: bbl.bin(people, method="mdl"), OptionError, "response"),
        (lambda: bbl.bin(people, bins=1), OptionError, "bins"),
        (lambda: bbl.bin(people, method="equal"), OptionError, "method"),
        (lambda: bbl.bin(people.assign(age=np.inf), "age"), DataError, "infinite"),
        (lambda: bbl.lump(people, ["town", "height"]), DataError, "'height'"),
    ):
        with pytest.raises(error, match=words):
            call()
    constant = bbl.bin(people.assign(age=1.0), "age")
    assert constant["age"].nunique() == 1


def test_other_tables_are_binned_too(people):
    pl = pytest.importorskip("polars")
    found = bbl.bin(pl.from_pandas(people), response="y")
    assert (
        found["age"].astype(str).tolist()
        == bbl.bin(people, response="y")["age"].astype(str).tolist()
    )
    assert bbl.bin({"x": list(range(10)), "y": ["a", "b"] * 5})["x"].nunique() == 5


def test_a_column_without_a_cut_is_told_with_what_works():
    table = pd.DataFrame({"x": np.arange(40.0), "y": list("uv") * 20, "a": list("pq") * 20})
    with pytest.warns(bbl.errors.DataWarning, match="no cut in 'x'.*are unchanged") as caught:
        binned = bbl.bin(table, method="mdl", response="y")
    assert binned["x"].equals(table["x"])
    assert caught[0].filename == __file__
    with pytest.warns(bbl.errors.DataWarning, match="have a single interval each"):
        bbl.bin(table, "x", method="mdl", response="y")
    bbl.bbl("y ~ x + a", bbl.bin(table, "x", method="quantile"), lambdah=0.1)
    bbl.bbl("y ~ . - x", binned, lambdah=0.1)


def test_decimals_are_numbers():
    values = [Decimal(k) / 10 for k in range(30)]
    binned = bbl.bin({"x": values}, "x", bins=2)["x"]
    assert binned.equals(bbl.bin({"x": [k / 10 for k in range(30)]}, "x", bins=2)["x"])


def test_all_columns_that_cannot_be_binned_are_named():
    table = {"a": ["x", "y"], "b": [[1], [2]], "c": [1, 2], "d": ["1", "2"]}
    with pytest.raises(bbl.errors.DataError, match="column 'a'.*Column 'b'.*Column 'd'") as caught:
        bbl.bin(table, ["a", "b", "c", "d"])
    assert "data['d'].astype(float)" in caught.value.hint
