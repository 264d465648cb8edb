"""Data read in batches: every kind of source has the rows of its table, and a fault names the file
or the column.
"""

import tempfile

import lazydata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bbl
from bbl.design.design import Design
from bbl.design.streams.adapters import lazy_source
from bbl.design.streams.passes import encode_source
from bbl.errors import BBLTypeError, DataError, LevelError, OptionError
from bbl.rows.fold_assignment import FoldAssignment
from bbl.rows.folds import consecutive_folds, shuffled_folds
from bbl.rows.sample import Sample, level_counts
from bbl.rows.stored import StoredSample


@pytest.fixture(scope="module")
def table():
    return lazydata.make_table()


@pytest.fixture(autouse=True)
def no_file_is_left(monkeypatch, tmp_path):
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield
    assert not list(place.iterdir())


def rows_of(sample):
    """Return codes and weights of each group, in the order of the data."""
    parts = [list(sample.group(y).blocks()) for y in range(2)]
    return [
        (np.concatenate([p.codes for p in own]), np.concatenate([p.weights for p in own]))
        for own in parts
    ]


def assert_same(found, table, *args, **named):
    design, sample, *_ = Design.from_data("y ~ .", table, *args, **named)
    assert found.design.labels == design.labels
    assert found.design.to_dict() == design.to_dict()
    for (codes, weights), own in zip(
        rows_of(found.sample), [sample.group(0), sample.group(1)], strict=True
    ):
        np.testing.assert_array_equal(codes, own.codes)
        np.testing.assert_array_equal(weights, own.weights)


@pytest.mark.parametrize("kind", lazydata.KINDS)
def test_every_kind_of_source_gives_the_design_and_the_rows_of_its_table(kind, table, tmp_path):
    source = lazy_source(lazydata.lazy(kind, table, tmp_path))
    assert set(source.columns) == set(table.columns)
    assert_same(encode_source(source, "y ~ ."), table)


def test_tables_in_memory_are_no_sources(table):
    import polars as pl

    arrow = pa.Table.from_pandas(table)
    for data in (
        table,
        arrow,
        pl.from_pandas(table),
        table.to_dict("list"),
        table.to_numpy(),
        None,
        3,
        [1, 2],
    ):
        assert lazy_source(data) is None


@pytest.mark.parametrize("missing", ["raise", "drop", "level", "marginal"])
@pytest.mark.thinned(2)
def test_missing_values_go_by_the_policy_as_in_memory(missing, table, tmp_path):
    table = table.copy()
    table.loc[table.index % 7 == 0, "x1"] = None
    table.loc[table.index % 11 == 0, "x3"] = None
    table["x3"] = table["x3"].astype("Int64")
    table["n"] = np.arange(len(table)) % 3
    source = lazy_source(lazydata.lazy("folder", table, tmp_path))
    if missing == "raise":
        with pytest.raises(DataError, match=r"column 'x1' has.*missing values\..*Drop the rows"):
            encode_source(source, "y ~ .", "n")
        return
    assert_same(encode_source(source, "y ~ .", "n", missing=missing), table, "n", missing=missing)


def test_few_states_become_a_table_of_counts(table, tmp_path):
    source = lazy_source(lazydata.lazy("folder", table, tmp_path))
    found = encode_source(source, "y ~ x0 + x1 + x3")
    assert isinstance(found.sample, Sample) and found.sample.n < 2 * 6**3 < len(table)
    _, sample, *_ = Design.from_data("y ~ x0 + x1 + x3", table)
    for y in range(2):
        own, expected = found.sample.group(y), sample.group(y).collapsed([6, 6, 6])
        np.testing.assert_array_equal(own.codes, expected.codes)
        np.testing.assert_array_equal(own.weights, expected.weights)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("formula", ["y ~ .", "y ~ x0 + x1"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.thinned(3)
def test_rows_are_dealt_to_the_folds_of_a_table_in_memory(
    shuffled, formula, weighted, table, tmp_path
):
    table = table.assign(n=np.arange(len(table)) % 4 + 1)
    formula, weights = f"{formula} - n", "n" if weighted else None
    source = lazy_source(lazydata.lazy("callable", table, tmp_path))
    rng = np.random.default_rng(3) if shuffled else None
    found = encode_source(source, formula, weights, assignment=FoldAssignment(4, rng))
    _, sample, *_ = Design.from_data(formula, table, weights)
    folds = (
        shuffled_folds(sample, 4, np.random.default_rng(3))
        if shuffled
        else consecutive_folds(sample, 4)
    )
    for f in range(4):
        one, other = found.folds.one(f), folds.one(f)
        if shuffled and weighted:  # other draws of as many copies
            held = (
                found.sample.fold(f)
                if isinstance(found.sample, StoredSample)
                else one.validation(found.sample)[0]
            )
            total = (
                held.total
                if isinstance(found.sample, StoredSample)
                else one.validation(found.sample)[1].sum()
            )
            assert total == folds.validation_weights[f].sum()
            continue
        for k in range(2):
            levels = found.design.n_levels
            a, b = (
                level_counts(own.training(s).group(k), levels)
                for own, s in ((one, found.sample), (other, sample))
            )
            assert all(map(np.array_equal, a, b))


def test_shuffled_folds_of_weighted_rows_do_not_depend_on_batches(table):
    table = table.assign(n=np.arange(len(table)) % 4 + 1)

    def counts(size):
        parts = lambda: (table.iloc[k : k + size] for k in range(0, len(table), size))  # noqa: E731
        found = encode_source(
            lazy_source(parts), "y ~ .", "n", assignment=FoldAssignment(3, np.random.default_rng(1))
        )
        return [level_counts(found.sample.fold(f), found.design.n_levels, 2) for f in range(3)]

    for a, b in zip(counts(100), counts(1777), strict=True):
        assert all(map(np.array_equal, a, b))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_fold_can_be_held_out_alone(weighted, table):
    table = table.assign(n=np.arange(len(table)) % 4 + 1)
    weights = "n" if weighted else None

    def read(first_only):
        assignment = FoldAssignment(5, np.random.default_rng(1), first_only=first_only)
        source = lazy_source(lambda: iter([table]))
        return encode_source(source, "y ~ . - n", weights, assignment=assignment).sample

    found, expected = read(True), read(False)
    assert {f for _, f in found.buckets} == {0, 1}
    for own, other in (
        (found.fold(0), expected.fold(0)),
        (found.fold(1), expected.without(0)),
    ):
        own, other = (rows.draw(rows.n, np.random.default_rng(0)) for rows in (own, other))
        levels = [6] * 9
        assert own.total == other.total
        assert all(
            map(np.array_equal, level_counts(own, levels, 2), level_counts(other, levels, 2))
        )


def test_ordered_categories_keep_their_order_and_have_to_agree(table):
    order = pd.CategoricalDtype(["c", "a", "b", "f", "e", "d"], ordered=True)
    declared = table.assign(x0=table["x0"].astype(order))
    parts = lambda: (declared.iloc[k : k + 500] for k in range(0, len(table), 500))  # noqa: E731
    assert encode_source(lazy_source(parts), "y ~ .").design.predictors[0].levels == tuple("cabfed")
    other = table.assign(x0=table["x0"].astype(pd.CategoricalDtype(list("abcdef"), ordered=True)))
    with pytest.raises(DataError, match="'x0' has categories that differ between batches"):
        encode_source(lazy_source(lambda: iter([declared, other])), "y ~ .")


@pytest.mark.long
def test_columns_that_are_no_levels_are_refused_while_they_are_read():
    seen = []

    def numbers(values):
        for k in range(50):
            seen.append(k)
            yield pd.DataFrame({"y": ["a", "b"] * 1000, "x": values(2000, k)})

    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="'x' looks continuous"):
        encode_source(lazy_source(lambda: numbers(lambda n, k: rng.random(n))), "y ~ .")
    assert len(seen) < 5
    with pytest.raises(
        DataError,
        match="'x' looks like an identifier: [123][0-9]000 distinct values in [123][0-9]000 observ",
    ):
        encode_source(lazy_source(lambda: numbers(lambda n, k: np.arange(n) + n * k)), "y ~ .")
    assert len(seen) < 25
    # amounts are found when all rows are counted, unless xlevels lists them
    amounts = lambda: numbers(lambda n, k: (np.arange(n) + n * k) % 20_000)  # noqa: E731
    with pytest.raises(DataError, match="'x' looks continuous: .* in 100000 rows.*same bounds"):
        encode_source(lazy_source(amounts), "y ~ .")
    fractions = lambda: numbers(lambda n, k: np.arange(n) % 15 / 2)  # noqa: E731
    with pytest.raises(DataError, match="'x' looks continuous: 15 distinct numbers in 2000 rows"):
        encode_source(lazy_source(fractions), "y ~ .")
    listed = {"x": [k / 2 for k in range(15)]}
    assert encode_source(lazy_source(fractions), "y ~ .", xlevels=listed).sample.total == 100_000
    text = lambda: numbers(lambda n, k: (np.arange(n) % 15 / 2).astype(str))  # noqa: E731
    assert encode_source(lazy_source(text), "y ~ .").sample.total == 100_000


def test_dates_and_lists_are_refused_by_the_column_and_its_file(table, tmp_path):
    for values in (pd.date_range("2020-01-01", periods=len(table)), [[1]] * len(table)):
        lazydata.write_parts(table.assign(x0=values), tmp_path / "parts")
        with pytest.raises(
            BBLTypeError,
            match="column 'x0'.* cannot be levels.*In the file '.*part0.parquet'",
        ):
            encode_source(lazy_source(tmp_path / "parts"), "y ~ .")


def test_a_missing_or_unreadable_file_is_named(table, tmp_path):
    with pytest.raises(DataError, match=r"data='.*nothing\.parquet' is no.*Parquet file"):
        lazy_source(str(tmp_path / "nothing.parquet"))
    paths = lazydata.write_parts(table, tmp_path / "parts")
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"file '.*part1.parquet' cannot be read"):
        encode_source(lazy_source(paths), "y ~ .")
    paths[0].write_text("y,x\n1,2\n")
    with pytest.raises(DataError, match=r"'.*part0.parquet' cannot be read as Parquet"):
        lazy_source(paths)


def test_a_schema_that_differs_between_files_is_told_with_the_file(table, tmp_path):
    paths = lazydata.write_parts(table, tmp_path / "parts")
    pq.write_table(pa.Table.from_pandas(table.drop(columns="x2").head(50)), paths[1])
    with pytest.raises(DataError, match=r"file '.*part1.parquet' has no column 'x2'"):
        encode_source(lazy_source(paths), "y ~ .")
    pq.write_table(pa.Table.from_pandas(table.assign(x2=1).head(50)), paths[1])
    with pytest.raises(
        DataError,
        match=r"column 'x2' is of type int64 in the file '.*part1.parquet' but of type .*string",
    ):
        encode_source(lazy_source(paths), "y ~ .")


def test_data_that_change_between_the_passes_are_told(table):
    def changing(second):
        calls = []

        def read():
            calls.append(1)
            # the first call looks at the columns
            return iter([table if len(calls) < 3 else second])

        return lazy_source(read)

    with pytest.raises(
        DataError, match="the data changed between the two passes.*3,000 rows at first, then 2,999"
    ):
        encode_source(changing(table.iloc[1:]), "y ~ .")
    other = table.copy()
    other.loc[5, "x1"] = "new"
    with pytest.raises(
        DataError, match="changed between the two passes.*column 'x1' has unknown levels: 'new'"
    ):
        encode_source(changing(other), "y ~ .")
    with pytest.raises(
        DataError, match="changed between the two passes.*levels of column 'x1' have.*counts"
    ):
        encode_source(
            changing(table.assign(x1=table["x1"].to_numpy()[::-1] * 0 + table["x1"].iloc[0])),
            "y ~ .",
        )


def test_empty_batches_are_passed_over_and_no_rows_at_all_told(table):
    parts = lambda: iter([table.head(0), table.head(1500), table.head(0), table.tail(1500)])  # noqa: E731
    assert_same(encode_source(lazy_source(parts), "y ~ ."), table)
    with pytest.raises(DataError, match="has no rows"):
        encode_source(lazy_source(lambda: iter([table.head(0)])), "y ~ .")
    with pytest.raises(DataError, match="has no batches"):
        lazy_source(lambda: iter([]))
    with pytest.raises(
        BBLTypeError, match="a callable that returns DataFrame, not an iterator of tables"
    ):
        lazy_source(lambda: table)


def test_an_interrupt_or_an_error_in_the_middle_goes_through_and_leaves_no_file(table, monkeypatch):
    calls = []

    def read(error):
        calls.append(1)
        yield table
        if len(calls) == 3:
            raise error

    with pytest.raises(KeyboardInterrupt):
        encode_source(lazy_source(lambda: read(KeyboardInterrupt())), "y ~ .")
    calls.clear()
    with pytest.raises(
        DataError, match=r"batch 0 of the iterator returned by .* cannot be read \(OSError: gone\)"
    ):
        encode_source(lazy_source(lambda: read(OSError("gone"))), "y ~ .")


def test_weights_are_a_column_and_checked_with_their_file(table, tmp_path):
    source = lazy_source(lazydata.lazy("folder", table.assign(n=-1), tmp_path))
    with pytest.raises(OptionError, match="weights must be the name of a column"):
        encode_source(source, "y ~ .", np.ones(3000))
    with pytest.raises(DataError, match="weights='m' is not a column of the data"):
        encode_source(source, "y ~ .", "m")
    with pytest.raises(
        DataError, match=r"non-negative integers, but row 0 has -1.*\(In the file '.*part0.parquet'"
    ):
        encode_source(source, "y ~ .", "n")
    zeros = lazy_source(lambda: iter([table.assign(n=0)]))
    with pytest.raises(DataError, match="weights are all zero"):
        encode_source(zeros, "y ~ .", "n")


def test_levels_that_are_given_hold_for_all_batches(table, tmp_path):
    source = lazy_source(lazydata.lazy("folder", table, tmp_path))
    found = encode_source(source, "y ~ .", xlevels={"x0": list("fedcba"), "y": ["yes", "no"]})
    assert_same(found, table, xlevels={"x0": list("fedcba"), "y": ["yes", "no"]})
    with pytest.raises(LevelError, match="'x0' has levels that are not in xlevels"):
        encode_source(source, "y ~ .", xlevels={"x0": list("abc")})


def test_a_reader_is_kept_for_the_second_pass_but_not_for_other_columns(table, tmp_path):
    source = lazy_source(lazydata.lazy("reader", table, tmp_path))
    assert encode_source(source, "y ~ x0 + x1").sample.total == 3000
    with pytest.raises(DataError, match="the RecordBatchReader"):
        encode_source(source, "y ~ .")


def test_folders_of_partitions_have_the_columns_of_their_names(table, tmp_path):
    for name, own in table.groupby("x0"):
        folder = tmp_path / "hive" / f"x0={name}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.Table.from_pandas(own.drop(columns="x0"), preserve_index=False),
            folder / "part.parquet",
        )
    found = encode_source(lazy_source(tmp_path / "hive"), "y ~ x0 + x1")
    assert found.design.labels.levels[0] == tuple("abcdef")
    _, sample, *_ = Design.from_data("y ~ x0 + x1", table)
    for a, b in zip(
        level_counts(found.sample, [6, 6], 2), level_counts(sample, [6, 6], 2), strict=True
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", ["relation", "polars", "arrow", "pandas", "lazy", "int128"])
def test_sums_of_sql_are_weights_and_levels(kind):
    # DuckDB's sum() is a HUGEINT, a decimal in Arrow
    duckdb = pytest.importorskip("duckdb")
    pl = pytest.importorskip("polars")
    counts = pd.DataFrame({"a": list("aabb"), "x": list("xyxy"), "n": [3, 1, 2, 4]})
    relation = duckdb.sql("select a, x, sum(n) as n, sum(n) as k from counts group by all")
    wide = pl.DataFrame(counts).with_columns(k=pl.col("n")).cast({"n": pl.Int128, "k": pl.Int128})
    data = {
        "relation": relation,
        "polars": relation.pl(),
        "arrow": relation.to_arrow_table(),
        "pandas": relation.to_arrow_table().to_pandas(),
        "lazy": wide.lazy(),
        "int128": wide,
    }[kind]
    fit = bbl.bbl("x ~ a + k", data, weights="n", lambdah=0.1)
    assert fit.nobs() == 10
    assert fit.labels.levels[1] == (1, 2, 3, 4)


def test_nested_columns_of_polars_are_refused_by_name():
    pl = pytest.importorskip("polars")
    data = pl.DataFrame({"y": ["u", "v"] * 4, "a": ["p", "q", "q", "p"] * 2}).with_columns(
        parts=pl.Series([[1], [2, 3]] * 4),
        pair=pl.Series([{"k": 1}, {"k": 2}] * 4),
        fixed=pl.Series([[1, 2], [3, 4]] * 4, dtype=pl.Array(pl.Int64, 2)),
    )
    assert bbl.bbl("y ~ a", data, lambdah=0.1).nobs() == 8  # other columns do not matter
    for name in ("parts", "pair", "fixed"):
        for table in (data, data.lazy()):
            with pytest.raises(
                BBLTypeError, match="Put each part into a separate column"
            ) as caught:
                bbl.bbl(f"y ~ a + {name}", table, lambdah=0.1)
            assert caught.value.column == name
    assert bbl.bbl("y ~ a + k", data.unnest("pair"), lambdah=0.1).nobs() == 8
