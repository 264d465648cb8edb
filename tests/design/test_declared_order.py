"""The declared order of categories: every source has the same levels in the same order, or says why
not.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import bbl
from bbl.design.streams.merged import Merged
from bbl.design.values import factorise
from bbl.errors import DataError

N = 300
STATUS = ["sick", "unknown", "healthy"]  # no order of text, and one that does not occur
DOSE = ["low", "mid", "high", "never"]
TOWNS = ["Thun", "Chur", "Bern"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    dose = rng.integers(3, size=N)
    status = np.where(rng.random(N) < 0.2 + 0.3 * dose, "sick", "healthy")
    return pd.DataFrame(
        {
            "status": pd.Categorical(status, STATUS),
            "dose": pd.Categorical(np.array(DOSE)[dose], DOSE, ordered=True),
            "town": pd.Categorical(rng.choice(["Thun", "Bern", "Chur"], N), TOWNS),
        }
    )


class Stream:
    """Anything that gives an Arrow stream as often as it is asked."""

    def __init__(self, arrow):
        self.arrow = arrow

    def __arrow_c_stream__(self, requested_schema=None):
        return self.arrow.__arrow_c_stream__(requested_schema)


def write_files(table, folder):
    folder.mkdir(exist_ok=True)
    for k, first in enumerate(range(0, N, 100)):
        table.iloc[first : first + 100].to_parquet(folder / f"{k}.parquet")
    return folder


def with_enums(table):
    """Return the table with polars' and DuckDB's own way to declare an order."""
    plain = pl.DataFrame({name: table[name].astype(str).tolist() for name in table})
    return plain.with_columns(
        pl.col("status").cast(pl.Enum(STATUS)),
        pl.col("dose").cast(pl.Enum(DOSE)),
        pl.col("town").cast(pl.Enum(TOWNS)),
    )


def relation(table):
    import duckdb

    connection = duckdb.connect()
    for name, levels in (("of_status", STATUS), ("of_dose", DOSE), ("of_town", TOWNS)):
        connection.execute(f"create type {name} as enum({', '.join(map(repr, levels))})")
    plain = table.astype(str)  # noqa: F841  # DuckDB finds it by its name
    connection.execute(
        "create table t as select status::of_status as status, dose::of_dose as dose, "
        "town::of_town as town from plain"
    )
    return connection.sql("select * from t")


def dask_frame(table):
    import dask.dataframe as dd

    return dd.from_pandas(table, npartitions=3)


def parts(table):
    return [table.iloc[first : first + 100] for first in range(0, N, 100)]


def arrow_of(table):
    return pa.Table.from_pandas(table, preserve_index=False)


def one_file(table, folder):
    table.to_parquet(folder / "rows.parquet", row_group_size=70)
    return folder / "rows.parquet"


def polars_file(table, folder):
    with_enums(table).write_parquet(folder / "polars.parquet")
    return folder / "polars.parquet"


def arrow_file(table, folder):
    pyarrow.feather.write_feather(arrow_of(table), folder / "rows.arrow")
    return ds.dataset(folder / "rows.arrow", format="ipc")


def reader_of(table):
    arrow = arrow_of(table)
    return pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches(max_chunksize=70))


SOURCES = {
    "dict of Series": lambda t, _: {name: t[name] for name in t},
    "dict of Categoricals": lambda t, _: {name: t[name].array for name in t},
    "dict of polars Series": lambda t, _: {name: with_enums(t)[name] for name in t},
    "arrow table": lambda t, _: arrow_of(t),
    "arrow table of a file": lambda t, f: pq.read_table(one_file(t, f)),
    "record batch": lambda t, _: arrow_of(t).combine_chunks().to_batches()[0],
    "polars Enum": lambda t, _: with_enums(t),
    "LazyFrame": lambda t, _: with_enums(t).lazy(),
    "LazyFrame of a file": lambda t, f: pl.scan_parquet(polars_file(t, f)),
    "Parquet file": lambda t, f: str(one_file(t, f)),
    "Parquet file of polars": lambda t, f: polars_file(t, f),
    "Parquet folder": lambda t, f: write_files(t, f / "parts"),
    "Parquet glob": lambda t, f: str(write_files(t, f / "parts") / "*.parquet"),
    "Parquet list": lambda t, f: sorted(write_files(t, f / "parts").iterdir()),
    "Dataset": lambda t, f: ds.dataset(write_files(t, f / "parts")),
    "Dataset in memory": lambda t, _: ds.dataset(arrow_of(t)),
    "Dataset of Arrow files": arrow_file,
    "RecordBatchReader": lambda t, _: reader_of(t),
    "Arrow stream": lambda t, _: Stream(arrow_of(t)),
    "DuckDB": lambda t, _: relation(t),
    "Dask": lambda t, _: dask_frame(t),
    "callable of pandas": lambda t, _: lambda: iter(parts(t)),
    "callable of arrow": lambda t, _: lambda: map(arrow_of, parts(t)),
    "callable of record batches": lambda t, _: (
        lambda: iter(arrow_of(t).to_batches(max_chunksize=70))
    ),
    "callable of polars": lambda t, _: lambda: map(with_enums, parts(t)),
}


@pytest.fixture(scope="module")
def memory(table):
    return bbl.bbl("status ~ .", table, method="naive")


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.thinned(3)
def test_every_source_has_the_levels_of_the_table_in_their_order(kind, table, memory, tmp_path):
    fit = bbl.bbl("status ~ .", SOURCES[kind](table, tmp_path), method="naive")
    assert memory.labels.groups == ("sick", "healthy")
    assert memory.labels.levels == (("low", "mid", "high"), tuple(TOWNS))
    assert fit.labels == memory.labels
    new = table.head(20)
    pd.testing.assert_frame_equal(
        fit.predict(new, "prob", priors=[0.1, 0.9]), memory.predict(new, "prob", priors=[0.1, 0.9])
    )
    assert (
        fit.evaluate(new).scores.loc["AUC", "estimate"]
        == memory.evaluate(new).scores.loc["AUC", "estimate"]
    )


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.thinned(3)
def test_networks_have_the_levels_that_do_not_occur_from_every_source(kind, table, tmp_path):
    fit = bbl.networks.bnc("nb", "status ~ dose + town", SOURCES[kind](table, tmp_path), smooth=1)
    assert fit.labels.groups == tuple(STATUS)
    assert fit.labels.levels == (tuple(DOSE), tuple(TOWNS))


@pytest.mark.parametrize(
    "kind", ["Parquet file", "Parquet folder", "RecordBatchReader", "DuckDB", "callable of arrow"]
)
def test_new_rows_of_every_source_are_predicted_alike(kind, table, tmp_path):
    fit = bbl.bbl("status ~ .", table, method="naive")
    expected = fit.predict(table, "prob").reset_index(drop=True)
    found = pd.concat(fit.predict(SOURCES[kind](table, tmp_path), "prob"), ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)


def numbers_of(table):
    """Return a table with ordered categories of numbers, of which Parquet keeps the numbers
    alone.
    """
    return table.assign(dose=table["dose"].cat.rename_categories([3, 1, 2, 0]))


@pytest.mark.parametrize(
    "kind", ["arrow table", "RecordBatchReader", "Dataset in memory", "Dataset of Arrow files"]
)
def test_ordered_categories_of_numbers_keep_their_order(kind, table, tmp_path):
    fit = bbl.bbl("status ~ dose", SOURCES[kind](numbers_of(table), tmp_path), method="naive")
    assert fit.labels.levels == ((3, 1, 2),)


@pytest.mark.parametrize(
    "kind", ["arrow table of a file", "Parquet file", "Parquet folder", "Dataset"]
)
def test_categories_of_numbers_in_parquet_need_xlevels_where_their_order_counts(
    kind, table, tmp_path
):
    numbers = numbers_of(table)
    with pytest.raises(DataError, match=r"'dose' was written as categories.*xlevels={'dose': "):
        bbl.bbl("status ~ dose", SOURCES[kind](numbers, tmp_path), method="naive")
    fit = bbl.bbl(
        "status ~ dose",
        SOURCES[kind](numbers, tmp_path),
        method="naive",
        xlevels={"dose": [3, 1, 2]},
    )
    assert fit.labels.levels == ((3, 1, 2),)
    unordered = numbers.assign(dose=numbers["dose"].cat.as_unordered())
    fit = bbl.bbl("status ~ dose", SOURCES[kind](unordered, tmp_path), method="naive")
    assert fit.labels.levels == ((1, 2, 3),)
    with pytest.raises(DataError, match="'dose' was written as categories"):
        bbl.bbl("dose ~ town", SOURCES[kind](unordered, tmp_path), method="naive")


def test_categories_in_the_names_of_folders_need_xlevels(table, tmp_path):
    table.to_parquet(tmp_path / "hive", partition_cols=["status"])
    with pytest.raises(DataError, match="'status' was written as categories.*or directory names"):
        bbl.bbl("status ~ dose", tmp_path / "hive", method="naive")
    fit = bbl.bbl(
        "status ~ dose", tmp_path / "hive", method="naive", xlevels={"status": ["sick", "healthy"]}
    )
    assert fit.labels == bbl.bbl("status ~ dose", table, method="naive").labels


def test_categories_that_are_stored_value_by_value_need_xlevels(table, tmp_path):
    table.to_parquet(tmp_path / "rows.parquet", use_dictionary=False)
    for formula, name in (
        ("status ~ town", "status"),
        ("town ~ dose", "town"),
        ("town ~ dose", "dose"),
    ):
        given = {} if name != "dose" else {"town": ["Bern", "Chur", "Thun"]}
        with pytest.raises(
            DataError, match=f"'{name}' was written as categories.*xlevels={{'{name}': "
        ):
            bbl.bbl(formula, tmp_path / "rows.parquet", method="naive", xlevels=given)
    given = {"status": ["sick", "healthy"], "town": TOWNS}
    fit = bbl.bbl("status ~ town", tmp_path / "rows.parquet", method="naive", xlevels=given)
    assert fit.labels == bbl.bbl("status ~ town", table, method="naive").labels


def other_order(table):
    """Return pieces of the table of which the last declares the response in another order."""
    first, *_, last = parts(table)
    return [first, last.assign(status=last["status"].cat.reorder_categories(STATUS[::-1]))]


def files_in_other_order(table, folder):
    for k, piece in enumerate(other_order(table)):
        piece.to_parquet(folder / f"{k}.parquet")
    return folder


@pytest.mark.parametrize(
    "make",
    [
        files_in_other_order,
        lambda t, _: lambda: iter(other_order(t)),
        lambda t, _: lambda: map(arrow_of, other_order(t)),
        lambda t, _: pa.concat_tables([arrow_of(piece) for piece in other_order(t)]),
    ],
)
def test_an_order_that_is_not_the_same_everywhere_needs_xlevels(make, table, tmp_path):
    with pytest.raises(
        DataError, match=r"'status' has categories that differ between .*'sick', 'unknown'"
    ):
        bbl.bbl("status ~ dose", make(table, tmp_path), method="naive")
    given = {"status": ["sick", "healthy"]}
    fit = bbl.bbl("status ~ dose", make(table, tmp_path), method="naive", xlevels=given)
    assert fit.labels.groups == ("sick", "healthy")
    # levels of a predictor whose order differs are sorted
    fit = bbl.bbl("town ~ status", make(table, tmp_path), method="naive")
    assert fit.labels.levels == (("healthy", "sick"),)
    # but networks take them as they are declared
    with pytest.raises(DataError, match="differ between"):
        bbl.networks.bnc("nb", "town ~ status", make(table, tmp_path))


def test_what_only_some_batches_declare_needs_xlevels(table):
    first, *_, last = parts(table)
    mixed = [first, last.assign(status=last["status"].astype(str))]
    for pieces in (mixed, mixed[::-1]):
        with pytest.raises(
            DataError, match="'status' does not have the same categories in all batches"
        ):
            bbl.bbl("status ~ dose", lambda pieces=pieces: iter(pieces), method="naive")


def test_batches_without_a_known_value_declare_nothing(table):
    nothing = table.head(10).assign(dose=pd.Series([None] * 10, dtype=object))
    fit = bbl.bbl("status ~ dose", lambda: iter([nothing, table]), method="naive", missing="drop")
    assert fit.labels.levels == (("low", "mid", "high"),)


def test_row_labels_of_pandas_are_no_predictor(table, tmp_path):
    shuffled = table.sample(frac=1.0, random_state=1)
    shuffled.to_parquet(tmp_path / "rows.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "rows.parquet").names
    for data in (tmp_path / "rows.parquet", pq.read_table(tmp_path / "rows.parquet"), shuffled):
        assert bbl.bbl("status ~ .", data, method="naive").labels.names == ("dose", "town")


def test_dictionaries_that_only_store_values_declare_nothing(table):
    plain = pa.table(
        {name: pa.array(table[name].astype(str)).dictionary_encode() for name in table}
    )
    lazy = lambda: iter(plain.to_batches(max_chunksize=70))  # noqa: E731
    for data in (plain, lazy, {name: plain[name] for name in table}, pl.from_pandas(table)):
        labels = bbl.bbl("status ~ .", data, method="naive").labels
        assert labels.groups == ("healthy", "sick") and labels.levels[0] == ("high", "low", "mid")


def test_what_workers_of_a_cluster_saw_is_joined_like_batches(table):
    first, *_, last = other_order(table)

    def seen(piece, name):
        merged = Merged(name)
        merged.add(factorise(name, piece[name]), None)
        return merged

    for name, problem in (("status", "differ between batches"), ("dose", "")):
        joined = seen(first, name)
        joined.join(seen(last, name))
        again = Merged(name)
        again.join(joined)
        assert problem in again.counted().order_problem and bool(problem) == bool(
            again.order_problem
        )
        assert again.counted().declared and again.counted().n == 200


@pytest.mark.parametrize(
    "levels",
    [
        lambda t: bbl.networks.bnc("nb", "status ~ town", t, smooth=1).labels.levels[0],
        lambda t: bbl.BBLClassifier("naive").fit(t[["town"]], t["status"]).result_.labels.levels[0],
        lambda t: (
            bbl.BNClassifier("nb", smooth=1).fit(t[["town"]], t["status"]).result_.labels.levels[0]
        ),
        lambda t: bbl.shooter("status ~ .", t, verbose=0).labels.levels[1],
        lambda t: bbl.bbl("~ dose + town", t, method="ml").labels.levels[1],
        lambda t: bbl.bbl("status ~ dose*town", t, method="conditional").labels.levels[1],
        lambda t: bbl.lump(t, min_count=1)["town"].cat.categories,
        lambda t: bbl.bin(t.assign(x=range(N)))["town"].cat.categories,
    ],
)
def test_everything_keeps_declared_levels_of_predictors(levels, table):
    assert list(levels(table)) == TOWNS
