"""Frames, columns, levels and codes: every kind of table and column gives the same codes."""

import datetime
import decimal
import enum
import io

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bbl.design.design import Design, EncodingRules
from bbl.design.factors import Factor, check_discrete
from bbl.design.frames import to_frame
from bbl.design.values import factorise, level_key
from bbl.errors import BBLTypeError, DataError, LevelError

LETTERS = ["b", "a", "c", "a", "b"]


def column(values, name="x"):
    return factorise(name, values if isinstance(values, pd.Series) else pd.Series(values))


def collect(values):
    return Factor.collect(column(values))


def codes_of(values):
    found = column(values)
    factor = Factor.collect(found)
    codes, unknown = factor.encode(found)
    assert unknown is None
    return factor.levels, codes.tolist()


def tables():
    frame = pd.DataFrame({"x": LETTERS, "n": [3, 1, 2, 1, 3]})
    yield "pandas", frame
    yield "polars", pl.DataFrame({"x": LETTERS, "n": [3, 1, 2, 1, 3]})
    yield "arrow", pa.table({"x": LETTERS, "n": [3, 1, 2, 1, 3]})
    yield "dict of lists", {"x": LETTERS, "n": [3, 1, 2, 1, 3]}
    yield "dict of arrays", {"x": np.array(LETTERS), "n": np.array([3, 1, 2, 1, 3])}
    yield "dict of series", {"x": pd.Series(LETTERS, index=range(5, 10)), "n": [3, 1, 2, 1, 3]}


@pytest.mark.parametrize("data", [pytest.param(d, id=k) for k, d in tables()])
def test_tables(data):
    frame = to_frame(data)
    assert frame.columns == ("x", "n") and frame.n == 5 and frame.index.tolist() == list(range(5))
    assert codes_of(frame.column("x")) == (("a", "b", "c"), [1, 0, 2, 0, 1])
    assert codes_of(frame.column("n")) == ((1, 2, 3), [2, 0, 1, 0, 2])
    assert (
        frame.has("x")
        and not frame.has("y")
        and not frame.has([1])
        and not frame.has(frame.column("x"))
    )
    with pytest.raises(
        DataError, match=r"data has no column 'xx'.*\. Hint: Did you mean 'x'\?"
    ) as caught:
        frame.column("xx")
    assert caught.value.column == "xx"
    assert to_frame(frame) is frame


@pytest.mark.parametrize(
    "data",
    [
        None,
        1,
        "data.csv",
        [1, 2],
        (1, 2),
        np.zeros((2, 2)),
        np.array(1),
        pd.Series([1]),
        pl.Series([1]),
        pl.LazyFrame({"a": [1]}),
    ]
    + [pa.array([1]), object(), b"x", 1.5, {1, 2}],
    ids=lambda data: type(data).__name__,
)
def test_no_table(data):
    with pytest.raises(
        BBLTypeError, match="newdata must be a pandas or polars DataFrame"
    ) as caught:
        to_frame(data, "newdata")
    remedy = "pandas.read_csv(" if isinstance(data, str) else "pandas.DataFrame("
    assert caught.value.argument == "newdata" and remedy in str(caught.value)
    assert "builtins" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        {"a": [1, 2], "b": [1]},
        {"a": 1},
        {"a": np.zeros((2, 2))},
        {"a": [1], "b": pd.Series([1, 2])},
    ],
)
def test_bad_dicts(data):
    with pytest.raises(DataError, match="data is a dict that.*table") as caught:
        to_frame(data)
    assert caught.value.argument == "data"


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"]),
    ],
    ids=["pandas", "arrow"],
)
def test_duplicate_names(data):
    with pytest.raises(DataError, match=r"duplicate column name 'a', 2 times\..*Rename") as caught:
        to_frame(data)
    assert caught.value.column == "a"


def test_odd_column_names():
    frame = to_frame(
        pd.DataFrame([[1, 2, 3]], columns=pd.Index([0, ("a", 1), "b"], tupleize_cols=False))
    )
    assert frame.columns == (0, ("a", 1), "b") and frame.column(("a", 1)).tolist() == [2]
    frame = to_frame(pd.DataFrame({("a", 1): [1], ("a", 2): [2]}))
    assert frame.column(("a", 2)).tolist() == [2]


STRINGS = {
    "object": pd.Series(LETTERS, dtype=object),
    "str": pd.Series(LETTERS, dtype="str"),
    "string": pd.Series(LETTERS, dtype="string"),
    "string[pyarrow]": pd.Series(LETTERS, dtype="string[pyarrow]"),
    "arrow": pd.Series(LETTERS, dtype=pd.ArrowDtype(pa.string())),
    "arrow dictionary": pd.Series(
        LETTERS, dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
    ),
    "category": pd.Series(LETTERS, dtype="category"),
    "category, declared": pd.Series(pd.Categorical(LETTERS, ["z", "c", "b", "a"])),
    "ordered": pd.Series(pd.Categorical(LETTERS, ["a", "b", "bb", "c"], ordered=True)),
    "numpy": pd.Series(np.array(LETTERS)),
    "np.str_": pd.Series([np.str_(v) for v in LETTERS], dtype=object),
    "pa.Table": to_frame(pa.table({"x": LETTERS})).column("x"),
    "pa.Table, dictionary": to_frame(pa.table({"x": pa.array(LETTERS).dictionary_encode()})).column(
        "x"
    ),
    "pa.Table, chunks": to_frame(
        pa.table(
            {
                "x": pa.chunked_array(
                    [
                        pa.array(LETTERS[:2]).dictionary_encode(),
                        pa.array(LETTERS[2:]).dictionary_encode(),
                    ]
                )
            }
        )
    ).column("x"),
    "pl.String": to_frame(pl.DataFrame({"x": LETTERS})).column("x"),
    "pl.Categorical": to_frame(
        pl.DataFrame({"x": pl.Series(LETTERS, dtype=pl.Categorical)})
    ).column("x"),
    "pl.Enum": to_frame(
        pl.DataFrame({"x": pl.Series(LETTERS, dtype=pl.Enum(["a", "b", "bb", "c"]))})
    ).column("x"),
}


@pytest.mark.parametrize("series", [pytest.param(v, id=k) for k, v in STRINGS.items()])
def test_strings_of_any_type(series):
    before = series.copy(deep=True)
    is_reversed = isinstance(series.dtype, pd.CategoricalDtype) and series.cat.categories[0] == "z"
    if is_reversed:  # declared: z, c, b, a
        assert codes_of(series) == (("c", "b", "a"), [1, 2, 0, 2, 1])
    else:
        assert codes_of(series) == (("a", "b", "c"), [1, 0, 2, 0, 1])
    pd.testing.assert_series_equal(series, before)


NUMBERS = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint64",
    "Int8",
    "Int64",
    "UInt16",
    "float32",
    "float64",
    "Float64",
    "object",
]
NUMBERS += [
    "int64[pyarrow]",
    "double[pyarrow]",
    "category",
    pd.SparseDtype("int64", 0),
    pd.SparseDtype("float64", 0.0),
]


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numbers_of_any_type(dtype):
    series = pd.Series([10, 2, 0, 2, 10]).astype(dtype)
    levels, codes = codes_of(series)
    assert levels == (0, 2, 10) and codes == [2, 1, 0, 1, 2]  # by number, not by text
    assert all(type(v) in (int, float) for v in levels)
    fitted = collect(pd.Series([0, 2, 10]))
    assert fitted.encode(column(series))[0].tolist() == [2, 1, 0, 1, 2]


@pytest.mark.parametrize(
    "dtype",
    ["bool", "boolean", "object", "bool[pyarrow]", "category", pd.SparseDtype("bool", False)],
    ids=str,
)
def test_booleans_of_any_type(dtype):
    levels, codes = codes_of(pd.Series([True, False, True]).astype(dtype))
    assert levels == (False, True) and codes == [1, 0, 1] and type(levels[0]) is bool


def test_other_frames_of_numbers_and_booleans():
    for data in (
        pl.DataFrame({"x": [2, 1, 2], "b": [True, False, True]}),
        pa.table({"x": [2, 1, 2], "b": [True, False, True]}),
    ):
        frame = to_frame(data)
        assert codes_of(frame.column("x")) == ((1, 2), [1, 0, 1])
        assert codes_of(frame.column("b")) == ((False, True), [1, 0, 1])


def test_kind_counts():
    mixed = pd.Series([2, True, "1", 2.0, "True", False, 3, np.True_, np.int64(2)], dtype=object)
    levels, codes = codes_of(mixed)
    assert [(type(v), v) for v in levels] == [
        (bool, False),
        (bool, True),
        (int, 2),
        (int, 3),
        (str, "1"),
        (str, "True"),
    ]
    assert codes == [2, 1, 4, 2, 5, 0, 3, 1, 2]
    numbers, text, flags = (
        collect(pd.Series([0, 1])),
        collect(pd.Series(["0", "1"])),
        collect(pd.Series([False, True])),
    )
    for factor in (numbers, text, flags):
        for other in (numbers, text, flags):
            if other is not factor:
                with pytest.raises(LevelError, match="unknown levels"):
                    factor.encode(column(pd.Series(list(other.levels), dtype=object)))
    assert numbers.encode(column(pd.Series([1.0, 0.0])))[0].tolist() == [1, 0]
    assert numbers.encode(column(pd.Series([decimal.Decimal(1)], dtype=object)))[0].tolist() == [1]
    assert level_key("number", 1) == level_key("number", 1.0)
    assert level_key("number", 0.1 + 0.2) != level_key("number", 0.3)


def test_other_kinds():
    intervals = pd.Series(pd.cut([1, 5, 9, 1], [0, 4, 8, 12]))
    factor = collect(intervals)
    assert (
        factor.ordered
        and factor.levels == tuple(intervals.cat.categories)
        and factor.kinds == ("other",) * 3
    )
    assert codes_of(pd.Series([b"b", b"a"]))[1] == [1, 0]
    assert codes_of(pd.Series(pd.IntervalIndex.from_breaks([0, 1, 2])[::-1]))[1] == [1, 0]

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    # sorted by text
    assert codes_of(pd.Series([Colour.RED, Colour.BLUE], dtype=object))[1] == [1, 0]
    days = pd.Series(pd.Categorical(pd.to_datetime(["2020-01-02", "2020-01-01"])))
    assert codes_of(days)[1] == [1, 0]  # declared categories may be anything


def test_order_of_levels():
    declared = pd.Categorical(["lo", "hi", "mid"], ["lo", "mid", "hi", "never"])
    ordered = declared.as_ordered()
    assert collect(pd.Series(declared)).levels == ("lo", "mid", "hi")
    assert collect(pd.Series(ordered)).levels == ("lo", "mid", "hi")
    assert collect(pd.Series(ordered)).ordered and not collect(pd.Series(declared)).ordered
    assert collect(pd.Series(["b", "B", "a", "é", "10", "9"])).levels == (
        "10",
        "9",
        "B",
        "a",
        "b",
        "é",
    )
    enum = to_frame(
        pl.DataFrame({"x": pl.Series(["lo", "hi"], dtype=pl.Enum(["lo", "mid", "hi"]))})
    ).column("x")
    assert collect(enum).levels == ("lo", "hi") and collect(enum).ordered
    arrow = to_frame(pa.Table.from_pandas(pd.DataFrame({"x": declared}))).column("x")
    assert collect(arrow).levels == ("lo", "mid", "hi")
    text = pd.Series(["lo", "hi"])
    assert collect(text).levels == ("hi", "lo")


def encodings(values):
    """Yield columns that hold the same strings, none of which says anything of their order."""
    dictionary = pa.array(values).dictionary_encode()
    yield to_frame(pa.table({"x": values})).column("x")
    yield to_frame(pa.table({"x": dictionary})).column("x")
    yield pd.Series(pd.arrays.ArrowExtensionArray(dictionary))
    yield to_frame(pl.DataFrame({"x": values})).column("x")
    yield to_frame(pl.DataFrame({"x": pl.Series(values, dtype=pl.Categorical)})).column("x")
    yield to_frame(pl.DataFrame({"x": pl.Series(values, dtype=pl.Categorical)}).to_arrow()).column(
        "x"
    )
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": values}), buffer)
    yield to_frame(pq.read_table(buffer, read_dictionary=["x"])).column("x")


def test_an_encoding_declares_no_order():
    for series in encodings(["lo", "mid", "hi", "lo"]):
        found = collect(series)
        assert found.levels == ("hi", "lo", "mid") and not found.ordered


def through_parquet(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return pq.read_table(buffer)


def test_what_was_declared_stays_declared_in_arrow_and_parquet():
    values, levels = ["lo", "hi", "lo"], ["lo", "mid", "hi"]
    for ordered in (False, True):
        table = pa.Table.from_pandas(
            pd.DataFrame({"x": pd.Categorical(values, levels, ordered=ordered)})
        )
        for arrow in (table, through_parquet(table)):
            found = collect(to_frame(arrow).column("x"))
            assert found.levels == ("lo", "hi") and found.ordered is ordered
    enum = pl.DataFrame({"x": pl.Series(values, dtype=pl.Enum(levels))})
    ordered = pd.Series(pd.arrays.ArrowExtensionArray(enum.to_arrow()["x"].combine_chunks()))
    for series in (to_frame(through_parquet(enum.to_arrow())).column("x"), ordered):
        assert collect(series).levels == ("lo", "hi") and collect(series).ordered


def test_a_dictionary_of_numbers_is_judged_as_numbers():
    values = np.random.default_rng(1).normal(size=100)
    for series in (values, pa.array(values).dictionary_encode()):
        with pytest.raises(DataError, match="looks continuous"):
            check_discrete(column(to_frame(pa.table({"x": series})).column("x")))


MISSING = {
    "None in object": pd.Series(["a", None, "b", None], dtype=object),
    "nan in object": pd.Series(["a", np.nan, "b", np.nan], dtype=object),
    "NaT in object": pd.Series(["a", pd.NaT, "b", pd.NaT], dtype=object),
    "NA in object": pd.Series(["a", pd.NA, "b", pd.NA], dtype=object),
    "mixed": pd.Series([1, None, True, np.nan], dtype=object),
    "str": pd.Series(["a", None, "b", None], dtype="str"),
    "string": pd.Series(["a", None, "b", None], dtype="string"),
    "category": pd.Series(["a", None, "b", None], dtype="category"),
    "float64": pd.Series([1, np.nan, 2, np.nan]),
    "Int64": pd.Series([1, None, 2, None], dtype="Int64"),
    "boolean": pd.Series([True, None, False, None], dtype="boolean"),
    "arrow": pd.Series(["a", None, "b", None], dtype=pd.ArrowDtype(pa.string())),
    "arrow float": pd.Series(
        pd.arrays.ArrowExtensionArray(pa.array([1.0, None, 2.0, float("nan")]))
    ),
    "sparse": pd.Series(pd.arrays.SparseArray([1.0, np.nan, 0.0, np.nan])),
    "arrow dictionary": pd.Series(
        pd.arrays.ArrowExtensionArray(pa.array(["a", None, "b", None]).dictionary_encode())
    ),
}
for library, make in (("polars", pl.DataFrame), ("pa.Table", pa.table)):
    for label, values in {
        "strings": ["a", None, "b", None],
        "ints": [1, None, 2, None],
        "bools": [True, None, False, None],
    }.items():
        MISSING[f"{library} {label}"] = to_frame(make({"x": values})).column("x")
MISSING["polars nan"] = to_frame(pl.DataFrame({"x": [1.0, float("nan"), 2.0, None]})).column("x")
MISSING["polars Enum"] = to_frame(
    pl.DataFrame({"x": pl.Series(["a", None, "b", None], dtype=pl.Enum(["a", "b"]))})
).column("x")
MISSING["polars Categorical"] = to_frame(
    pl.DataFrame({"x": pl.Series(["a", None, "b", None], dtype=pl.Categorical)})
).column("x")


@pytest.mark.parametrize("series", [pytest.param(v, id=k) for k, v in MISSING.items()])
def test_missing_values(series):
    with pytest.raises(
        DataError,
        match=(
            r"column 'x' has 2 missing values\..*Drop the rows.*'drop'.*separate "
            "level.*'marginal'"
        ),
    ) as caught:
        column(series)
    assert caught.value.column == "x"


def test_one_missing_value_is_singular():
    with pytest.raises(DataError, match=r"has 1 missing value\."):
        column([None, "a"])


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1j, 2]),
        pd.Series([1j, 2], dtype=object),
        pd.Series([[1], [2]]),
        pd.Series([(1,), (2,)]),
        pd.Series([{"a": 1}, {"a": 2}]),
        pd.Series([np.zeros(2), np.ones(2)]),
        pd.to_datetime(pd.Series(["2020-01-01", "2020-01-02"])),
        pd.to_datetime(pd.Series(["2020-01-01"])).dt.tz_localize("UTC"),
        pd.Series(pd.to_timedelta([1, 2])),
        pd.Series(pd.period_range("2020", periods=2, freq="M")),
        pd.Series([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]),
        pd.Series([datetime.time(1), datetime.time(2)]),
        to_frame(pl.DataFrame({"x": [datetime.datetime(2020, 1, 1)]})).column("x"),
        to_frame(pl.DataFrame({"x": [datetime.date(2020, 1, 1)]})).column("x"),
        to_frame(pl.DataFrame({"x": [[1], [2]]})).column("x"),
        to_frame(pa.table({"x": [[1], [2]]})).column("x"),
        to_frame(pa.table({"x": [datetime.date(2020, 1, 1)]})).column("x"),
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([[1], [2]]))),
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([datetime.date(2020, 1, 1)]))),
    ],
    ids=lambda series: str(series.dtype),
)
def test_values_that_cannot_be_levels(series):
    with pytest.raises(
        BBLTypeError,
        match=(
            r"column 'x'.*, which cannot be levels\..*(Convert it to strings.* For dates, extract "
            "a part|Put each part into a separate column, or convert the values to strings)"
        ),
    ) as caught:
        column(series)
    assert caught.value.column == "x"


def test_infinite_value():
    with pytest.raises(DataError, match="inf is no.*level of column 'x'"):
        column([1.0, np.inf])


def test_continuous_column():
    rng = np.random.default_rng(0)
    for values in (
        rng.normal(size=13),
        rng.normal(size=5_000),
        rng.normal(size=50_000).round(3),
        np.arange(0, 20, 0.5).repeat(300),  # however often they occur
        np.append(np.arange(12), 0.5),  # one fraction among whole numbers
    ):
        with pytest.raises(
            DataError,
            match=r"column 'x' looks continuous:.*distinct numbers in.* rows.* Hint: Cut it",
        ) as caught:
            check_discrete(column(values))
        assert caught.value.column == "x" and f"{len(np.unique(values))} distinct" in str(
            caught.value
        )
    check_discrete(column(rng.normal(size=12).repeat(2)))  # few
    check_discrete(column(pd.Series(rng.normal(size=30)).astype("category")))  # declared
    check_discrete(column([str(x) for x in rng.normal(size=30)]))  # text


def test_integers_of_few_rows_are_amounts():
    check_discrete(column(np.arange(30)))  # few
    check_discrete(column(np.arange(31).repeat(6)))  # each of them has rows
    # 16 of 31 have five rows, and then 15
    rows = np.where(np.arange(31) < 16, 5, 6)
    with pytest.raises(DataError, match="'x' looks continuous: 31 distinct numbers in 170 rows"):
        check_discrete(column(np.arange(31).repeat(rows)))
    rows[15] = 6
    check_discrete(column(np.arange(31).repeat(rows)))
    check_discrete(column(np.arange(40)), np.full(40, 6))  # frequencies stand for rows
    with pytest.raises(DataError, match="'x' looks like an identifier or a quantity: 500 distinct"):
        check_discrete(column(np.arange(500)))
    check_discrete(column(pd.Series(np.arange(500)).astype("category")))
    with pytest.raises(DataError, match="looks continuous"):  # missing values are no numbers
        check_discrete(
            factorise("x", pd.Series([np.nan] * 50 + list(range(40)) * 3), missing="keep")
        )


@pytest.mark.parametrize(
    ("L", "dtype"),
    [(2, np.uint8), (256, np.uint8), (257, np.uint16), (300, np.uint16), (70_000, np.int32)],
)
def test_many_levels_do_not_wrap(L, dtype):
    values = np.random.default_rng(1).permutation(np.arange(L).repeat(2))
    for series in (pd.Series(values), pd.Series(values).astype("category")):
        found = column(series)
        factor = Factor.collect(found)
        codes, unknown = factor.encode(found)
        assert codes.dtype == dtype and unknown is None
        assert np.array_equal(np.array(factor.levels)[codes], values)


def test_unseen_levels():
    factor = collect(["a", "b"])
    new = column(pd.Series(["a", "zzz", "b", "q", "zzz"]), "x")
    with pytest.raises(
        LevelError,
        match=r"column 'x' has unknown levels: 'zzz', 'q'. The model was fitted with 'a', 'b'",
    ) as caught:
        factor.encode(new, argument="newdata")
    assert (
        caught.value.column == "x"
        and caught.value.argument == "newdata"
        and "unseen='ignore'" in str(caught.value)
    )
    codes, unknown = factor.encode(new, "ignore")
    assert codes.tolist() == [0, 0, 1, 0, 0] and unknown.tolist() == [
        False,
        True,
        False,
        True,
        True,
    ]
    many = column(pd.Series([f"z{k}" for k in range(100)]))
    with pytest.raises(LevelError, match=r"'z4', and 95 more. The model was fitted with"):
        factor.encode(many)
    # a category that does not occur is no matter
    unused = column(pd.Series(pd.Categorical(["b"], ["zzz", "b"])))
    assert factor.encode(unused)[0].tolist() == [1]
    assert factor.encode(column(pd.Series([], dtype=object)))[0].tolist() == []


def test_given_levels():
    factor = Factor.from_list("x", np.array(["c", "a", "b"]))
    assert factor.levels == ("c", "a", "b") and type(factor.levels[0]) is str
    assert factor.encode(column(LETTERS))[0].tolist() == [2, 1, 0, 1, 2]
    assert Factor.from_list("x", range(3)).levels == (0, 1, 2)
    assert Factor.from_list("x", [1, False, "1"]).levels == (1, False, "1")
    with pytest.raises(
        LevelError,
        match=r"column 'x' has levels that are not in xlevels: 'c'\..*Add them to 'a', 'b'",
    ):
        Factor.from_list("x", ["a", "b"]).encode(column(LETTERS), argument="xlevels")
    for bad in ("abc", 3, None, b"ab", {"a": 1}):
        with pytest.raises(
            BBLTypeError, match=r"xlevels\['x'\] must be a list of levels"
        ) as caught:
            Factor.from_list("x", bad)
        assert caught.value.argument == "xlevels" and caught.value.column == "x"
    with pytest.raises(LevelError, match="contains a duplicate level"):
        Factor.from_list("x", [1, 2, 1.0])
    with pytest.raises(LevelError, match="missing value"):
        Factor.from_list("x", ["a", None])
    with pytest.raises(BBLTypeError, match="cannot be levels"):
        Factor.from_list("x", [["a"], "b"])


def test_padded():
    assert collect(["a", "a"]).padded().levels == ("a", "(other)")
    assert collect(["(other)"]).padded().levels == ("(other)", "(other 2)")
    assert collect(["a", "b"]).padded().levels == ("a", "b")


def test_read_only_input():
    array = np.array([2, 1, 2])
    array.setflags(write=False)
    assert codes_of(pd.Series(array))[1] == [1, 0, 1]
    cells = np.array([True, 2, "x"], dtype=object)
    cells.setflags(write=False)
    assert codes_of(pd.Series(cells))[1] == [0, 1, 2] and cells.tolist() == [True, 2, "x"]


def test_polars_without_pyarrow(monkeypatch):
    def absent(self):
        raise ModuleNotFoundError("pyarrow")

    monkeypatch.setattr(nw.Series, "to_pandas", absent)
    frame = to_frame(pl.DataFrame({"x": LETTERS, "c": pl.Series(LETTERS, dtype=pl.Categorical)}))
    for name in frame.columns:
        assert codes_of(frame.column(name)) == (("a", "b", "c"), [1, 0, 2, 0, 1])


# -- declared levels -------------------------------------------------------------------------------
def declared_frame():
    return pd.DataFrame(
        {
            "y": pd.Categorical(["b", "a", "b", "a"], ["c", "b", "a"]),
            "x": pd.Categorical(["w", "u", "w", None], ["w", "never", "u"]),
            "z": pd.Categorical([2, 1, 2, 1], [3, 2, 1], ordered=True),
            "s": ["q", "p", "q", "p"],
        }
    )


def levels_of(data, declared=False, **options):
    rules = EncodingRules(declared=declared)
    design, sample, *_ = Design.from_data("y ~ .", data, missing="marginal", rules=rules, **options)
    return design.response.levels, [f.levels for f in design.predictors], sample


def test_declared_levels_count_in_their_order_if_asked():
    groups, levels, sample = levels_of(declared_frame(), declared=True)
    assert groups == ("c", "b", "a")
    assert levels == [("w", "never", "u"), (3, 2, 1), ("p", "q")]
    assert sample.codes.tolist() == [
        [0, 1, 1],
        [2, 2, 0],
        [0, 1, 1],
        [0, 2, 0],
    ] and sample.y.tolist() == [1, 2, 1, 2]
    assert sample.missing.tolist() == [[False] * 3] * 3 + [[True, False, False]]


def test_declared_levels_that_do_not_occur_are_left_out_by_default():
    groups, levels, _ = levels_of(declared_frame())
    assert groups == ("b", "a") and levels == [("w", "u"), (2, 1), ("p", "q")]
    assert levels_of(declared_frame(), declared=False)[:2] == (groups, levels)


def test_declared_levels_of_other_tables():
    columns = {"y": ["b", "a"], "x": ["w", "u"]}
    enums = pl.DataFrame(
        columns, schema={"y": pl.Enum(["c", "b", "a"]), "x": pl.Enum(["w", "never", "u"])}
    )
    assert levels_of(enums, declared=True)[:2] == (("c", "b", "a"), [("w", "never", "u")])
    coded = pa.table(
        {
            "y": pa.DictionaryArray.from_arrays([1, 2], ["c", "b", "a"]),
            "x": pa.DictionaryArray.from_arrays([0, 2], ["w", "never", "u"]),
        }
    )
    # an encoding, which declares nothing
    assert levels_of(coded, declared=True)[:2] == (("a", "b"), [("u", "w")])
    same = levels_of(declared_frame(), declared=True)[:2]
    assert levels_of(pa.Table.from_pandas(declared_frame()), declared=True)[:2] == same


def test_declared_levels_stand_back_behind_xlevels_and_stay_in_dropped_rows():
    _, levels, _ = levels_of(declared_frame(), declared=True, xlevels={"x": ["u", "w"]})
    assert levels[0] == ("u", "w")
    design, sample, *_ = Design.from_data(
        "y ~ x + z", declared_frame().iloc[2:], missing="drop", rules=EncodingRules(declared=True)
    )
    assert sample.n == 1 and design.response.levels == ("c", "b", "a")
    assert design.predictors[1].levels == (3, 2, 1)
    assert design.encode(declared_frame().iloc[:2])[0].tolist() == [[0, 1], [2, 2]]
    with pytest.raises(BBLTypeError, match="declared"):
        levels_of(declared_frame(), declared="yes")
