"""Designs: formula, data and weights to encoded rows; new data encoded the same way."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bbl.design.design import Design, EncodingRules
from bbl.design.frames import to_frame
from bbl.design.weights import check_weights
from bbl.errors import BBLTypeError, DataError, DataWarning, FormulaError, LevelError, OptionError

FRAME = pd.DataFrame(
    {
        "y": ["no", "yes", "no", "yes", "no"],
        "a": ["u", "v", "w", "u", "v"],
        "b": [1, 2, 1, 10, 2],
        "n": [3, 1, 0, 2, 4],
    },
    index=[10, 11, 12, 13, 14],
)


def data(**columns):
    return {
        "y": ["no", "yes", "no", "yes"],
        "a": ["u", "v", "u", "v"],
        "b": [1, 2, 2, 1],
        **columns,
    }


def test_from_data():
    design, sample, index, _ = Design.from_data("y ~ .^2", FRAME.drop(columns="n"))
    assert sample.codes.tolist() == [[0, 0], [1, 1], [2, 0], [0, 2], [1, 1]]
    assert sample.codes.dtype == np.uint8 and sample.codes.flags.c_contiguous
    assert sample.y.tolist() == [0, 1, 0, 1, 0] and sample.y.dtype == np.intp
    assert sample.weights.tolist() == [1.0] * 5 and sample.weights.dtype == np.float64
    assert index.tolist() == [10, 11, 12, 13, 14]
    assert design.pairs.tolist() == [[0, 1]] and design.n_levels.tolist() == [3, 3]
    labels = design.labels
    assert (labels.response, labels.groups, labels.names) == ("y", ("no", "yes"), ("a", "b"))
    assert labels.levels == (("u", "v", "w"), (1, 2, 10))
    with pytest.raises(AttributeError):
        design.response = None


@pytest.mark.parametrize(
    "weights",
    [
        "n",
        FRAME["n"],
        FRAME["n"].to_numpy(),
        FRAME["n"].tolist(),
        tuple(FRAME["n"]),
        FRAME["n"].astype("Int64"),
        pl.Series(FRAME["n"].tolist()),
        pa.array(FRAME["n"].tolist()),
    ],
)
def test_weight_zero_rows_go_before_levels_are_collected(weights):
    formula = "y ~ ." if isinstance(weights, str) else "y ~ . - n"
    design, sample, index, _ = Design.from_data(formula, FRAME, weights)
    assert design.labels.names == ("a", "b") and design.labels.levels == (("u", "v"), (1, 2, 10))
    assert (
        sample.codes.tolist() == [[0, 0], [1, 1], [0, 2], [1, 1]]
        and sample.codes.flags.c_contiguous
    )
    assert sample.weights.tolist() == [3.0, 1.0, 2.0, 4.0] and index.tolist() == [10, 11, 13, 14]
    removed, same, *_ = Design.from_data(
        formula, FRAME[FRAME["n"] > 0], "n" if isinstance(weights, str) else None
    )
    assert removed.labels == design.labels and np.array_equal(same.codes, sample.codes)


def test_weights_column_may_be_no_predictor():
    with pytest.raises(FormulaError, match="'n' contains the weights and is also a predictor"):
        Design.from_data("y ~ a + n", FRAME, "n")
    with pytest.raises(FormulaError, match="the weights and cannot be the response"):
        Design.from_data("n ~ a", FRAME, "n")
    assert Design.from_data("y ~ . - n", FRAME, "n")[0].labels.names == ("a", "b")


BAD_WEIGHTS = [
    ([1, -1, 1, 1], DataError, r"row 1 has -1"),
    ([1, 1, np.nan, 1], DataError, r"row 2 has nan"),
    ([1, 1, None, 1], DataError, r"row 2 has nan"),
    (pd.Series([1, 1, 1, None], dtype="Int64"), DataError, r"row 3 has nan"),
    ([np.inf, 1, 1, 1], DataError, r"row 0 has inf"),
    ([1, 0.5, 1, 1], DataError, r"row 1 has 0.5"),
    ([1, 1], DataError, "length 2, but there are 4 rows"),
    ([1] * 5, DataError, "length 5, but there are 4 rows"),
    ([], DataError, "length 0"),
    ([0, 0, 0, 0], DataError, "all zero"),
    ([1e300] * 4, DataError, "too large for computations"),
    (["1", "2", "3", "4"], BBLTypeError, "not numeric"),
    (np.array(["1", 2, 3, 4], dtype=object), BBLTypeError, "'1', which is not a number"),
    ([[1, 1], [1, 1]], BBLTypeError, "2 dimensions"),
    ([[1], [1, 1]], BBLTypeError, "not an array"),
    (np.ones((4, 1)), BBLTypeError, "2 dimensions"),
    (pd.DataFrame({"w": [1] * 4}), BBLTypeError, "2 dimensions"),
    ([1j, 1, 1, 1], BBLTypeError, "complex"),
    (pd.to_datetime(["2020-01-01"] * 4), BBLTypeError, "datetime64"),
    (3, BBLTypeError, "array or the name of a column; got 3"),
    (2.5, BBLTypeError, "got 2.5"),
    (True, BBLTypeError, "got True"),
    (object(), BBLTypeError, "got <object"),
]


@pytest.mark.parametrize(("weights", "error", "text"), BAD_WEIGHTS)
def test_bad_weights(weights, error, text):
    with pytest.raises(error, match=text) as caught:
        Design.from_data("y ~ a", data(), weights)
    assert caught.value.argument == "weights" and "weights" in str(caught.value)
    assert "integer" in str(caught.value)


def test_weights_that_are_no_column():
    with pytest.raises(
        DataError, match=r"weights='bb' is not a column of the data. Hint: Did you mean 'b'\?"
    ) as caught:
        Design.from_data("y ~ a", data(), "bb")
    assert caught.value.argument == "weights"
    with pytest.raises(DataError, match="weights must .* integers, but row 0 has -1"):
        Design.from_data("y ~ a", data(w=[-1, 1, 1, 1]), "w")
    with pytest.raises(BBLTypeError, match="weights contain 'u', which is not a number"):
        Design.from_data("y ~ b", data(), "a")


def test_weights_series_with_another_index():
    series = pd.Series([1, 2, 3, 4, 5])
    with pytest.raises(DataError, match=r"different index.*reindex.*to_numpy") as caught:
        Design.from_data("y ~ a", FRAME, series)
    assert caught.value.argument == "weights"
    by_position = Design.from_data("y ~ a", FRAME, series.to_numpy())[1]
    assert by_position.weights.tolist() == [1, 2, 3, 4, 5]
    assert (
        Design.from_data("y ~ a", data(), pd.Series([1, 2, 3, 4], index=list("abcd")))[1].total
        == 10
    )  # dicts have none


@pytest.mark.parametrize(
    "weights",
    [
        pl.Series([1, 2, 3, 4]),
        pa.array([1, 2, 3, 4]),
        np.array([1, 2, 3, 4], dtype=np.uint8),
        range(1, 5),
    ],
)
def test_weights_of_any_type(weights):
    assert check_weights(weights, 4).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert check_weights([True, False], 2).tolist() == [1.0, 0.0]
    assert check_weights(None, 2).tolist() == [1.0, 1.0]


def test_no_rows():
    for empty in (FRAME[:0], {"y": [], "a": []}, pl.DataFrame({"y": [], "a": []})):
        with pytest.raises(DataError, match="data has no rows"):
            Design.from_data("y ~ a", empty)


def test_missing_values_count_only_where_they_matter():
    columns = data(a=["u", None, "u", "v"], unused=[None] * 4)
    with pytest.raises(DataError, match="column 'a' has 1 missing value") as caught:
        Design.from_data("y ~ a", columns)
    assert caught.value.column == "a"
    assert Design.from_data("y ~ b", columns)[1].n == 4
    assert Design.from_data("y ~ a", columns, [1, 0, 1, 1])[1].n == 3  # its row has no weight
    with pytest.raises(DataError, match="column 'y' has 2 missing values"):
        Design.from_data("y ~ b", data(y=[None, "yes", None, "no"]))


def test_one_response_level():
    with pytest.raises(DataError, match="response 'y' has only one level, 'no'") as caught:
        Design.from_data("y ~ a", data(y=["no"] * 4))
    assert caught.value.column == "y"
    with pytest.raises(DataError, match="only one level, 'no'"):
        Design.from_data("y ~ b", data(), [1, 0, 1, 0])


def test_as_many_groups_as_rows():
    design, sample, *_ = Design.from_data("y ~ a", data(y=list("pqrs")))
    assert design.labels.groups == tuple("pqrs") and sample.y.tolist() == [0, 1, 2, 3]


def test_constant_predictor():
    columns = data(c=["k"] * 4, d=[1] * 4)
    with pytest.raises(
        LevelError, match=r"predictors with one level: 'c', 'd'\..*Drop them with removeConst"
    ) as caught:
        Design.from_data("y ~ .", columns)
    assert caught.value.column == "c" and "novarOk=True" in str(caught.value)
    many = data(**{f"x{k}": [0] * 4 for k in range(9)})
    with pytest.raises(LevelError, match="'x4', and 4 more"):
        Design.from_data("y ~ .", many)
    design, sample, *_ = Design.from_data("y ~ .", columns, novarOk=True)
    assert (
        design.labels.levels[2:] == (("k", "(other)"), (1, "(other)"))
        and design.n_levels.tolist() == [2] * 4
    )
    assert not sample.codes[:, 2:].any()
    for bad in (1, "yes", None):
        with pytest.raises(BBLTypeError, match="novarOk must be True or False"):
            Design.from_data("y ~ a", columns, novarOk=bad)


def test_unused_categories():
    columns = pd.DataFrame(data())
    plain = Design.from_data("y ~ a", columns)
    columns["y"] = pd.Categorical(columns["y"], ["never", "no", "yes"])
    columns["a"] = pd.Categorical(columns["a"], ["t", "u", "v", "x"])
    design, sample, *_ = Design.from_data("y ~ a", columns)
    assert design.labels == plain[0].labels and np.array_equal(sample.codes, plain[1].codes)


def test_declared_order():
    columns = pd.DataFrame(data())
    columns["y"] = pd.Categorical(columns["y"], ["yes", "no"])
    columns["a"] = pd.Categorical(columns["a"], ["v", "u"])
    assert Design.from_data("y ~ a", columns)[0].labels.groups == ("yes", "no")
    assert Design.from_data("y ~ a", columns)[0].labels.levels == (("v", "u"),)
    columns["a"] = columns["a"].cat.as_ordered()
    assert Design.from_data("y ~ a", columns)[0].labels.levels == (("v", "u"),)


def test_xlevels():
    given = {"a": ["w", "v", "u"], "y": ["yes", "no"]}
    design, sample, *_ = Design.from_data("y ~ a + b", data(), xlevels=given)
    assert design.labels.levels == (("w", "v", "u"), (1, 2)) and design.labels.groups == (
        "yes",
        "no",
    )
    assert sample.codes[:, 0].tolist() == [2, 1, 2, 1] and sample.y.tolist() == [1, 0, 1, 0]
    assert Design.from_data("y ~ a", data(a=["u"] * 4), xlevels={"a": ["u", "v"]})[
        0
    ].n_levels.tolist() == [2]
    with pytest.raises(
        LevelError, match="column 'a' has levels that are not in xlevels: 'v'"
    ) as caught:
        Design.from_data("y ~ a", data(), xlevels={"a": ["u", "w"]})
    assert caught.value.column == "a" and caught.value.argument == "xlevels"
    with pytest.raises(
        DataError,
        match=r"xlevels contains 'aa', which is not in the formula. Hint: Did you mean 'a'\?",
    ):
        Design.from_data("y ~ a", data(), xlevels={"aa": ["u", "v"]})
    with pytest.raises(BBLTypeError, match="xlevels must be a dict") as caught:
        Design.from_data("y ~ a", data(), xlevels=["u", "v"])
    assert caught.value.argument == "xlevels"
    with pytest.raises(LevelError, match="response 'y' has no rows of level 'maybe'"):
        Design.from_data("y ~ a", data(), xlevels={"y": ["no", "yes", "maybe"]})
    with pytest.raises(LevelError, match="one level: 'a'"):
        Design.from_data("y ~ a", data(a=["u"] * 4), xlevels={"a": ["u"]})


def test_codes_widen():
    columns = {"y": [0, 1] * 300, "a": [f"{k:03}" for k in range(300)] * 2, "b": [0, 0, 1] * 200}
    with pytest.warns(DataWarning, match="rare"):
        design, sample, *_ = Design.from_data("y ~ .", columns)
    assert sample.codes.dtype == np.uint16 and sample.codes[:, 0].tolist() == [*range(300)] * 2
    assert design.encode(columns)[0].dtype == np.uint16
    assert np.array_equal(design.encode(columns)[0], sample.codes)


def fitted():
    return Design.from_data("y ~ (a + b)^2", FRAME)[0]


def test_encode():
    design = fitted()
    codes, unknown = design.encode(FRAME)
    assert unknown is None and codes.tolist() == [[0, 0], [1, 1], [2, 0], [0, 2], [1, 1]]
    assert codes.flags.c_contiguous and codes.dtype == np.uint8
    other = FRAME[["b", "a"]].assign(extra=[[1]] * 5, more=np.nan)[
        ["extra", "b", "more", "a"]
    ]  # other order, no response
    assert np.array_equal(design.encode(other)[0], codes)
    for kind in (
        FRAME.to_dict("list"),
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        FRAME.astype({"a": "category", "b": float}),
    ):
        assert np.array_equal(design.encode(kind)[0], codes)
    assert design.encode(FRAME[:1])[0].tolist() == [[0, 0]]
    assert np.array_equal(design.encode(FRAME.iloc[[3, 3, 0]])[0], codes[[3, 3, 0]])


def test_encode_no_rows():
    for empty in (FRAME[:0], {"a": [], "b": []}, pl.DataFrame({"a": [], "b": []})):
        codes, unknown = fitted().encode(empty)
        assert codes.shape == (0, 2) and unknown is None


def test_encode_unseen():
    new = FRAME.assign(a=["u", "zz", "w", "u", "qq"])
    with pytest.raises(
        LevelError,
        match=(
            r"column 'a' has unknown levels: 'zz', 'qq'. The model was fitted with 'u', 'v', "
            r"'w'"
        ),
    ):
        fitted().encode(new)
    codes, unknown = fitted().encode(new, unseen="ignore")
    assert codes.tolist() == [[0, 0], [0, 1], [2, 0], [0, 2], [0, 1]]
    assert unknown.tolist() == [
        [False, False],
        [True, False],
        [False, False],
        [False, False],
        [True, False],
    ]
    with pytest.raises(LevelError, match="column 'b' .*'1'. The model was fitted with 1, 2, 10"):
        fitted().encode(FRAME.assign(b=["1"] * 5))
    with pytest.raises(OptionError, match="unseen='reference' is unknown"):
        fitted().encode(new, "reference")


def test_encode_missing():
    with pytest.raises(
        DataError, match=r"newdata has no column 'b'\. Its columns are: a"
    ) as caught:
        fitted().encode(FRAME[["a"]])
    assert caught.value.column == "b" and caught.value.argument == "newdata"
    for unseen in ("raise", "ignore"):
        with pytest.raises(
            DataError,
            match="column 'b' of newdata has 1 missing value,.*missing='marginal'.*predict",
        ):
            fitted().encode(FRAME.assign(b=[1, 2, None, 1, 1]), unseen)


@pytest.mark.parametrize(
    "newdata", [None, [1, 2], np.zeros((2, 2)), "new.csv", 3], ids=lambda v: type(v).__name__
)
def test_encode_no_table(newdata):
    for use in (fitted().encode, fitted().encode_response):
        with pytest.raises(BBLTypeError, match="newdata must be") as caught:
            use(newdata)
        assert caught.value.argument == "newdata"


def test_encode_response():
    design = fitted()
    assert design.encode_response({"y": ["yes", "no"]}).tolist() == [1, 0]
    with pytest.raises(
        LevelError, match="column 'y' .*'perhaps'. The model was fitted with 'no', 'yes'"
    ):
        design.encode_response({"y": ["perhaps"]})
    with pytest.raises(DataError, match="no column 'y'"):
        design.encode_response({"a": ["u"]})


def test_index():
    odd = FRAME.set_axis(pd.Index(["p", "p", "q", "r", "r"], name="key"))
    assert to_frame(odd).index.equals(odd.index) and to_frame(odd).index.name == "key"
    assert to_frame(pl.from_pandas(FRAME)).index.tolist() == list(range(5))
    index = Design.from_data("y ~ a", odd, "n").row_labels
    assert index.tolist() == ["p", "p", "r", "r"] and index.name == "key"


def test_odd_column_names():
    names = ["1", "a b", "a:b", "for", "é", "漢字", "x'y", "1+1", "__import__('os').system('x')"]
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.integers(0, 3, (40, len(names) + 1)))
    renamed = frame.set_axis(["y", *names], axis=1)
    design, sample, *_ = Design.from_data("y ~ .^2", renamed)
    plain, same, *_ = Design.from_data("`0` ~ .^2", frame)
    assert design.labels.names == tuple(names) and plain.labels.names == tuple(
        range(1, len(names) + 1)
    )
    assert np.array_equal(sample.codes, same.codes) and np.array_equal(design.pairs, plain.pairs)
    quoted = Design.from_data("y ~ (" + " + ".join(f"`{n}`" for n in names) + ")^2", renamed)[1]
    assert np.array_equal(quoted.codes, sample.codes)
    assert np.array_equal(design.encode(renamed[names[::-1]])[0], sample.codes)
    tuples = frame.set_axis(pd.MultiIndex.from_product([["p", "q"], range(5)]), axis=1)
    assert Design.from_data("`('p', 0)` ~ .", tuples)[0].labels.names[0] == ("p", 1)


def test_row_and_column_order_do_not_matter():
    design, sample, *_ = Design.from_data("y ~ a + b", FRAME)
    again, other, index, _ = Design.from_data("y ~ a + b", FRAME.iloc[::-1, ::-1])
    assert again.labels == design.labels and index.tolist() == [14, 13, 12, 11, 10]
    assert np.array_equal(other.codes[::-1], sample.codes) and np.array_equal(
        other.y[::-1], sample.y
    )


def test_input_is_not_changed_and_may_be_read_only():
    frame = FRAME.copy()
    weights = np.array([1, 2, 0, 1, 1])
    weights.setflags(write=False)
    for name in ("b", "n"):
        array = frame[name].to_numpy().copy()
        array.setflags(write=False)
        frame[name] = array
    before = frame.copy(deep=True)
    design, sample, *_ = Design.from_data("y ~ .^2", frame, weights)
    sample.weights[0] = 99.0  # the sample owns its arrays
    sample.codes[0, 0] = 1
    design.encode(frame, "ignore")
    pd.testing.assert_frame_equal(frame, before)
    assert weights.tolist() == [1, 2, 0, 1, 1]


class TestManyLevels:
    def test_identifiers_are_refused(self):
        for ids in (np.arange(500), [f"patient {k}" for k in range(500)], np.arange(500) // 1 * 3):
            with pytest.raises(
                DataError, match=r"'id' looks like an identifier.*: 500 distinct \w+ in 500"
            ) as caught:
                Design.from_data("y ~ .", dict(y=np.arange(500) % 2, a=np.arange(500) % 3, id=ids))
            assert caught.value.column == "id"

    def test_declared_levels_are_taken_with_a_warning(self):
        frame = pd.DataFrame({"y": np.arange(500) % 2, "id": pd.Categorical(np.arange(500))})
        with pytest.warns(
            DataWarning, match=r"Most levels are rare in 'id' \(500 levels in 500 observations\)"
        ):
            design, *_ = Design.from_data("y ~ .", frame)
        assert design.n_levels.tolist() == [500]
        with pytest.warns(DataWarning, match="Most levels are rare in 'id'"):
            Design.from_data(
                "y ~ id",
                {"y": [0, 1] * 100, "id": list(range(200))},
                xlevels={"id": list(range(200))},
            )

    def test_many_rare_levels_are_warned_of(self):
        with pytest.warns(
            DataWarning, match=r"'zip' \(150 levels in 800 observations\).*Merge the rare levels"
        ):
            Design.from_data(
                "y ~ .", dict(y=np.arange(800) % 2, zip=[f"z{k % 150}" for k in range(800)])
            )

    def test_a_toy_table_may_have_as_many_levels_as_rows(self):
        design, *_ = Design.from_data("y ~ .", dict(y=np.arange(20) % 2, a=np.arange(20)))
        assert design.n_levels.tolist() == [20]

    def test_observations_count_and_not_rows(self):
        table = dict(y=np.arange(60) % 2, a=np.arange(60) // 2, n=np.full(60, 100))
        assert Design.from_data("y ~ a", table, weights="n")[0].n_levels.tolist() == [30]
        with pytest.raises(DataError, match="30 distinct values in 30 observations"):
            Design.from_data("y ~ a", dict(y=np.arange(30) % 2, a=np.arange(30)))

    @pytest.mark.long
    def test_pairs_of_very_many_predictors_are_checked_before_they_are_listed(self):
        rng = np.random.default_rng(0)
        table = dict(
            y=[0, 1, 2, 0],
            **{f"x{i}": rng.permutation(4) % 3 for i in range(1200)},
            z=["a", "b", "a", "b"],
        )
        told = []

        def check_pairs(n, K, n_levels):
            told.append((n, K, len(n_levels), n_levels.tolist()))
            raise MemoryError

        rules = EncodingRules(check_pairs=check_pairs)

        for formula in ("y ~ .^2", "y ~ .^2 - z"):
            with pytest.raises(MemoryError):
                Design.from_data(formula, table, rules=rules)
        assert told == [(4, 3, 1201, [3] * 1200 + [2]), (4, 3, 1200, [3] * 1200)]
        for formula in ("y ~ .", "y ~ (x1 + x2 + z)^2"):
            Design.from_data(formula, table, rules=rules)
        assert len(told) == 2


class TestDeclaredLevels:
    DATA = pd.DataFrame(
        {
            "y": pd.Categorical(["b", "a", None], ["c", "b", "a"]),
            "x": pd.Categorical(["u", None, "u"], ["w", "u"]),
            "z": ["q", "p", "q"],
            "one": ["k"] * 3,
        }
    )

    def test_they_count_in_their_order_and_the_class_may_be_missing(self):
        design, sample, *_ = Design.from_data(
            "y ~ .", self.DATA, missing="marginal", rules=EncodingRules(declared=True)
        )
        assert design.labels.groups == ("c", "b", "a")
        assert design.labels.levels == (("w", "u"), ("p", "q"), ("k",))
        assert sample.y.tolist() == [1, 2, -1] and sample.missing[:, 0].tolist() == [
            False,
            True,
            False,
        ]
        assert design.encode_response(self.DATA).tolist() == [1, 2, -1]
        again = Design.from_dict(json.loads(json.dumps(design.to_dict())))
        assert again.labels == design.labels and again.declared

    def test_without_them_nothing_is_stored_of_them(self):
        design, *_ = Design.from_data("y ~ z", {"y": [0, 1], "z": ["p", "q"]})
        assert "declared" not in design.to_dict()

    def test_there_need_be_no_predictors(self):
        design, sample, *_ = Design.from_data(
            "y ~ 1", {"y": [0, 1]}, rules=EncodingRules(declared=True)
        )
        assert design.labels.names == () and sample.codes.shape == (2, 0)
        with pytest.raises(FormulaError, match="no predictors are left"):
            Design.from_data("y ~ 1", {"y": [0, 1]})

    def test_a_missing_class_is_refused_where_missing_values_are(self):
        with pytest.raises(DataError, match="the response must not contain missing values"):
            Design.from_data(
                "y ~ z", self.DATA, missing="level", rules=EncodingRules(declared=True)
            )
