"""Errors that name all bad columns of a table at once, and what they advise."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import BBLTypeError, DataError, LevelError

RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {
        "y": list("uv") * 30,
        "age": RNG.normal(size=60),
        "income": RNG.normal(size=60),
        "day": pd.date_range("2020", periods=60),
        "id": [f"p{i}" for i in range(60)],
        "k": 1,
        "a": list("pqr") * 20,
    }
)


# a source read in batches is refused before all its rows are read if it has continuous columns
@pytest.mark.parametrize(
    ("columns", "batches"),
    [
        (["age", "income", "id", "k"], False),
        (["age", "income"], True),
        (["id", "k"], True),
    ],
)
def test_all_bad_columns_are_named_at_once(columns, batches):
    data = PEOPLE[["y", *columns, "a"]]
    with pytest.raises(DataError) as caught:
        bbl.bbl("y ~ .", (lambda: iter([data])) if batches else data)
    for name in columns:
        assert repr(name) in str(caught.value)
    assert "'a'" not in str(caught.value)
    assert caught.value.column in columns


def test_the_advice_of_an_error_on_all_columns_works():
    with pytest.raises(DataError) as caught:
        bbl.bbl("y ~ .", PEOPLE)
    hint = caught.value.hint
    assert "bbl.bin(data, 'age')" in hint
    assert "Do the same for 'income'" in hint
    assert "'day': Convert it to strings" in hint
    assert "(- id)" in hint
    assert "--novar-ok" in hint.command_line
    data = PEOPLE.assign(day=PEOPLE["day"].dt.month)
    fit = bbl.bbl("y ~ . - id", bbl.bin(data, ["age", "income"]), lambdah=0.1, novarOk=True)
    assert fit.nobs() == 60


def test_alike_problems_share_their_hint():
    data = PEOPLE.assign(a=PEOPLE["a"].mask(PEOPLE.index < 2), b=PEOPLE["a"].mask(PEOPLE.index < 9))
    with pytest.raises(DataError) as caught:
        bbl.bbl("y ~ a + b", data)
    text = str(caught.value)
    assert "'a' has 2 missing values. 51 of 60 rows are complete. Column 'b'" in text
    assert "Column 'b' has 9 missing values. Hint: Drop" in text
    assert text.count("rows are complete") == 1


def test_many_bad_columns_are_cut_short():
    data = pd.DataFrame(RNG.normal(size=(60, 30))).add_prefix("x").assign(y=PEOPLE["y"])
    with pytest.raises(DataError, match="Other columns cannot be used either: 'x5'.*and 15 more"):
        bbl.bbl("y ~ .", data)


def test_unknown_levels_of_all_columns_are_named():
    fit = bbl.bbl("y ~ a + b", PEOPLE.assign(b=PEOPLE["a"]), lambdah=0.1)
    with pytest.raises(LevelError, match="column 'a'.*'s'.*Column 'b'.*'t'"):
        fit.predict({"a": ["s"], "b": ["t"]})


def test_dates_of_a_batch_are_all_named():
    data = PEOPLE[["y", "a", "day"]].assign(night=PEOPLE["day"])
    with pytest.raises(BBLTypeError, match="Column 'night'.*In batch 0"):
        bbl.bbl("y ~ .", lambda: iter([data]))
