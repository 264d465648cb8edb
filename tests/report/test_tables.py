"""Labelled tables of coefficients."""

import itertools
import time

import numpy as np
import pandas as pd
import pytest

from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report.machine.tables import Coefficients
from bbl.report.text import fit_text

LABELS = Labels(
    "Survived",
    ("No", "Yes"),
    ("Class", "Sex", "Age"),
    (("1st", "2nd", "3rd"), ("Female", "Male"), (0, 10, 20)),
)
LAYOUT = Layout([3, 2, 3], [(0, 1), (1, 2)])  # 5 fields, J of Class x Sex (2) and Sex x Age (2)
THETA = np.arange(18.0).reshape(2, 9)
POOLED = 0.5 * np.arange(9.0)


@pytest.fixture
def coef():
    return Coefficients(LABELS, Parameters(LAYOUT, THETA, POOLED))


def test_fields(coef):
    pd.testing.assert_series_equal(
        coef.h["Yes"]["Class"], pd.Series([9.0, 10.0], index=["2nd", "3rd"], name="Class")
    )
    pd.testing.assert_series_equal(
        coef.h["No"]["Age"], pd.Series([3.0, 4.0], index=[10, 20], name="Age")
    )
    pd.testing.assert_series_equal(coef.h0["Sex"], pd.Series([1.0], index=["Male"], name="Sex"))


def test_couplings_in_either_order(coef):
    table = coef.J["Yes"]["Sex", "Age"]
    assert (table.index.tolist(), table.columns.tolist()) == (["Male"], [10, 20])
    assert (table.index.name, table.columns.name) == ("Sex", "Age")
    assert table.to_numpy().tolist() == [[16.0, 17.0]]
    pd.testing.assert_frame_equal(coef.J["Yes"]["Age", "Sex"], table.T)
    assert coef.J0["Class", "Sex"].loc["3rd", "Male"] == 3.0


def test_mappings(coef):
    assert list(coef.h) == list(coef.J) == ["No", "Yes"]
    assert list(coef.h["No"]) == ["Class", "Sex", "Age"]
    assert list(coef.J["No"]) == [("Class", "Sex"), ("Sex", "Age")] == list(coef.J0)
    assert (len(coef.h), len(coef.h0), len(coef.J0)) == (2, 3, 2)
    assert "Sex" in coef.h0
    assert "sex" not in coef.h0
    assert ("Age", "Sex") in coef.J0
    assert ("Age", "Class") not in coef.J0
    assert {k: len(v) for k, v in coef.h["No"].items()} == {"Class": 2, "Sex": 1, "Age": 2}


def test_tables_are_copies(coef):
    fields, couplings = coef.h["No"]["Class"], coef.J["No"]["Class", "Sex"]
    fields.iloc[0] = couplings.iloc[0, 0] = 99.0
    assert coef.h["No"]["Class"].iloc[0] == 0.0
    assert coef.J["No"]["Class", "Sex"].iloc[0, 0] == 5.0


def test_without_pooled_fit():
    coef = Coefficients(LABELS, Parameters(LAYOUT, THETA))
    assert coef.h0 is None
    assert coef.J0 is None
    frame = coef.to_frame()
    assert frame[["pooled", "difference"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (lambda c: c.h["Maybe"], ["'Maybe'", "group", "'No', 'Yes'"]),
        (lambda c: c.h["No"]["Clas"], ["'Clas'", "predictor", "Did you mean 'Class'?"]),
        (lambda c: c.h0["Fare"], ["'Fare'", "predictor"]),
        (lambda c: c.J["No"]["Class", "Agee"], ["'Agee'", "Did you mean 'Age'?"]),
        (lambda c: c.J["No"]["Class", "Age"], ["'Class' and 'Age' do not interact"]),
        (lambda c: c.J["No"]["Sex", "Sex"], ["'Sex' and 'Sex' do not interact"]),
        (lambda c: c.J["No"]["Class"], ["pair of predictors", "'Class'"]),
        (lambda c: c.h[["No"]], ["['No']", "group"]),
    ],
)
def test_unknown_names(coef, look, words):
    with pytest.raises(KeyError) as error:
        look(coef)
    assert all(word in error.value.args[0] for word in words), error.value.args[0]


def test_to_frame(coef):
    frame = coef.to_frame()
    names = [
        "term",
        "group",
        "predictor",
        "level",
        "predictor2",
        "level2",
        "estimate",
        "pooled",
        "difference",
    ]
    assert frame.columns.tolist() == names
    assert frame["estimate"].tolist() == THETA.ravel().tolist()
    assert frame["pooled"].tolist() == [*POOLED, *POOLED]
    np.testing.assert_array_equal(frame["difference"], (THETA - POOLED).ravel())
    assert frame["term"].tolist() == (["h"] * 5 + ["J"] * 4) * 2
    fields = frame[frame["term"] == "h"]
    assert fields[["predictor2", "level2"]].isna().all(axis=None)
    for row in frame.itertuples():
        if row.term == "h":
            assert coef.h[row.group][row.predictor][row.level] == row.estimate
        else:
            assert (
                coef.J[row.group][row.predictor, row.predictor2].loc[row.level, row.level2]
                == row.estimate
            )
            assert coef.J0[row.predictor, row.predictor2].loc[row.level, row.level2] == row.pooled


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_terms_of_any_order(order):
    labels = Labels(
        "y",
        ("no", "yes"),
        tuple("abcd"),
        ((0, 1, 2), ("u", "v"), (False, True), ("p", "q", "r", "s")),
    )
    terms = [
        t for k in range(2, order + 1) for t in itertools.combinations(range(4), k) if t != (0, 2)
    ]
    layout = Layout([3, 2, 2, 4], terms)
    theta = np.arange(2.0 * layout.size).reshape(2, -1)
    coef = Coefficients(labels, Parameters(layout, theta, 0.5 * theta[0]))
    assert list(coef.J["no"]) == [tuple("abcd"[i] for i in term) for term in terms] and len(
        coef.J0
    ) == len(terms)
    for term in terms:
        for asked in itertools.permutations(term):
            table = coef.J["yes"][tuple("abcd"[i] for i in asked)]
            np.testing.assert_array_equal(
                table, layout.table(theta[1], *asked).reshape(len(table), -1)
            )
            assert table.index.tolist() == list(labels.levels[asked[0]][1:])
            assert list(table.columns.names) == ["abcd"[i] for i in asked[1:]]
            expected = list(itertools.product(*(labels.levels[i][1:] for i in asked[1:])))
            assert table.columns.tolist() == (
                [x for (x,) in expected] if len(asked) == 2 else expected
            )
    frame = coef.to_frame()
    more = [f"{what}{k}" for k in range(2, max(order, 2) + 1) for what in ("predictor", "level")]
    assert frame.columns.tolist() == [
        "term",
        "group",
        "predictor",
        "level",
        *more,
        "estimate",
        "pooled",
        "difference",
    ]
    assert frame["estimate"].tolist() == theta.ravel().tolist()
    for row in frame.to_dict("records"):
        named = [row[f"predictor{k}"] for k in ("", *range(2, max(order, 2) + 1))]
        levels = [row[f"level{k}"] for k in ("", *range(2, max(order, 2) + 1))]
        named = [name for name in named if not pd.isna(name)]
        assert row["term"] == ("h" if len(named) == 1 else "J")
        if row["term"] == "h":
            assert coef.h[row["group"]][named[0]][levels[0]] == row["estimate"]
        else:
            table = coef.J[row["group"]][tuple(named)]
            across = levels[1] if len(named) == 2 else tuple(levels[1 : len(named)])
            column = table.columns.get_loc(across)
            assert table.loc[levels[0]].iloc[column] == row["estimate"]
    if order > 2:
        with pytest.raises(KeyError, match=f"two to {order} predictors"):
            coef.J["no"]["a"]
        with pytest.raises(KeyError, match="'a', 'b' and 'b' do not interact"):
            coef.J["no"]["a", "b", "b"]
        assert "('a', 'b', 'c')" in repr(coef.J["no"])
        text = fit_text("bbl()", labels, Parameters(layout, theta))
        assert "more terms" in text
        some = Layout([3, 2, 2, 4], [(0, 1, 3)])
        text = fit_text("bbl()", labels, Parameters(some, theta[:, : some.size])).split(
            "J_[a,b,d]^(no):\n"
        )[1]
        assert [line.split() for line in text.splitlines()[:3]] == [
            ["v:q", "v:r", "v:s"],
            ["1", "7", "8", "9"],
            ["2", "10", "11", "12"],
        ]


def test_to_frame_keeps_levels_that_compare_equal_apart():
    labels = Labels("y", ("a", "b"), ("u", "v"), ((0, 1), (False, True)))
    frame = Coefficients(labels, Parameters(Layout([2, 2]), np.zeros((2, 3)))).to_frame()
    assert [type(x) for x in frame["level"][:2]] == [int, bool]


@pytest.mark.long
def test_to_frame_of_images_is_quick():
    """Ten groups of 784 binary pixels and all their pairs: 3 million rows."""
    layout = Layout(np.full(784, 2))
    theta = np.random.default_rng(1).normal(size=(10, layout.size))
    labels = Labels("digit", tuple(range(10)), tuple(f"X{i}" for i in range(784)), ((0, 1),) * 784)
    coef = Coefficients(labels, Parameters(layout, theta, theta.mean(axis=0)))
    start = time.thread_time()
    frame = coef.to_frame()
    assert time.thread_time() - start < 5
    assert frame.shape == (10 * layout.size, 9)
    row = frame.iloc[-1]
    assert (row["group"], row["predictor"], row["predictor2"]) == (9, "X782", "X783")
    assert row["estimate"] == coef.J[9]["X782", "X783"].loc[1, 1] == theta[-1, -1]


def test_repr(coef):
    text = repr(coef)
    assert "2 groups of Survived: 5 fields and 4 couplings each" in text
    lines = text.splitlines()
    assert lines[-6].split() == ["pooled", "No", "Yes"]
    assert lines[-5].split() == ["Class:", "2nd", "0.0", "0.0", "9.0"]
    assert repr(coef.J["No"]) == "<Couplings of ('Class', 'Sex'), ('Sex', 'Age')>"
    assert repr(coef.h) == "<Tables of 'No', 'Yes'>"
    empty = Coefficients(LABELS, Parameters(Layout([3, 2, 3], np.empty((0, 2))), THETA[:, :5]))
    assert repr(empty.J["No"]) == "<Couplings of nothing>"


def test_repr_of_many():
    labels = Labels("y", tuple(range(30)), tuple(f"X{i}" for i in range(40)), ((0, 1),) * 40)
    layout = Layout(np.full(40, 2))
    coef = Coefficients(labels, Parameters(layout, np.zeros((30, layout.size))))
    assert "first 10 of 40, first 10 of 30 groups" in repr(coef)
    assert len(repr(coef).splitlines()) == 15
    assert repr(coef.h[0]).endswith("'X9', ... (40 in all)>")
