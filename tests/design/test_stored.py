"""Designs as plain lists: stored, loaded, and refused where they are corrupt."""

import json

import numpy as np
import pandas as pd
import pytest

from bbl.design.design import Design, EncodingRules
from bbl.design.formula import parse
from bbl.errors import BBLError, BBLTypeError, DataError, FormulaError


def fitted():
    return Design.from_data(
        "y ~ (a + b)^2", {"y": ["no", "yes", "no"], "a": ["u", "v", "w"], "b": [1, 2, 10]}
    )[0]


def test_storage():
    frame = pd.DataFrame(
        {
            "y": [True, False, True, False],
            "s": pd.Categorical(["x", "y", "x", "y"], ["y", "x"], ordered=True),
            "i": [3, 1, 3, 1],
            "f": [0.1, 0.5, 0.25, 0.1],
            "mixed": np.array([2, "2", True, 1.5], dtype=object),
            "cut": pd.cut([1, 5, 9, 1], [0, 4, 8, 12]),
        }
    )
    for formula in ("y ~ .^2", "y ~ . + s:i + cut:f", "y ~ ."):
        design = Design.from_data(formula, frame)[0]
        stored = json.loads(json.dumps(design.to_dict(), allow_nan=False))
        loaded = Design.from_dict(stored)
        assert loaded.terms.text == formula and loaded.terms.predictors == design.terms.predictors
        assert np.array_equal(loaded.pairs, design.pairs) and loaded.pairs.dtype == np.intp
        assert (
            loaded.labels.groups == design.labels.groups
            and loaded.labels.levels[:4] == design.labels.levels[:4]
        )
        # intervals match by their text
        assert np.array_equal(loaded.encode(frame)[0], design.encode(frame)[0])
        assert np.array_equal(loaded.encode_response(frame), design.encode_response(frame))
        assert loaded.predictors[0].ordered and loaded.to_dict() == stored


@pytest.mark.parametrize(
    ("formula", "pairs", "terms"),
    [
        ("y ~ a*b + c + d", [[0, 1]], None),
        ("y ~ .^2", "all", None),
        ("y ~ .^3", "all", ["all"]),
        ("y ~ .^4 - a:b:c", "all", [[[0, 1, 3], [0, 2, 3], [1, 2, 3]], "all"]),
        ("y ~ . + a:b:c", [], [[[0, 1, 2]]]),
        ("y ~ .^2 + a:b:c:d", "all", [[], "all"]),
    ],
)
def test_storage_of_terms_of_any_order(formula, pairs, terms):
    frame = {"y": [0, 1], **{name: [0, 1] for name in "abcd"}}
    design = Design.from_data(formula, frame, rules=EncodingRules(order=4))[0]
    stored = json.loads(json.dumps(design.to_dict()))
    assert stored["pairs"] == pairs and stored.get("terms") == terms
    loaded = Design.from_dict(stored)
    assert loaded.to_dict() == stored
    assert len(loaded.terms.terms) == len(design.terms.terms)
    assert all(map(np.array_equal, loaded.terms.terms, design.terms.terms))


@pytest.mark.parametrize(
    "terms",
    [
        "all",
        None,
        3,
        [[[0, 1]]],
        [[[0, 0, 1]]],
        [[[2, 1, 0]]],
        [[[0, 1, 9]]],
        [[[0.5, 1, 2]]],
        ["some"],
    ]
    + [[[[0, 1, 2], [0, 1, 2]]], ["all", "all"], ["all"] * 10_000],
    ids=lambda terms: str(terms)[:30],
)
def test_corrupt_terms(terms):
    design = Design.from_data(
        "y ~ .^3", {"y": [0, 1], **{name: [0, 1] for name in "abc"}}, rules=EncodingRules(order=3)
    )[0]
    with pytest.raises(DataError, match="the stored design is corrupt"):
        Design.from_dict(design.to_dict() | {"terms": terms})


@pytest.mark.long
def test_a_model_of_too_many_terms_is_refused_before_they_are_listed():
    frame = {"y": [0, 1], **{f"v{i}": [0, 1] for i in range(784)}}
    with pytest.raises(
        BBLError,
        match=r"A model of 15,701,873,796 terms with 15,701,873,796 couplings in each of 2 groups",
    ):
        Design.from_data("y ~ .^4", frame, rules=EncodingRules(order=4))
    stored = fitted().to_dict() | {"pairs": "all"}
    assert Design.from_dict(stored).to_dict() == stored


def test_storage_of_names():
    frame = pd.DataFrame(
        [[0, 0, 1], [1, 1, 0]], columns=pd.Index(["y", 3, ("p", (1, 2.5))], tupleize_cols=False)
    )
    design = Design.from_data("y ~ .", frame)[0]
    loaded = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert loaded.terms.predictors == (3, ("p", (1, 2.5)))
    assert np.array_equal(loaded.encode(frame)[0], design.encode(frame)[0])
    odd = Design.from_data("y ~ .", {"y": [0, 1], frozenset("a"): [0, 1]})[0]
    with pytest.raises(BBLTypeError, match=r"cannot be stored\..*Rename"):
        odd.to_dict()


def corrupt():
    level = {
        "name": ["string", "a"],
        "levels": [["string", "u"], ["string", "v"]],
        "ordered": False,
    }
    yield from ({}, None, [], "x", {"formula": "y ~ a"})
    yield from (
        {"formula": 3},
        {"response": None},
        {"predictors": [level, level]},
        {"predictors": 1},
    )
    yield from (
        {"pairs": p}
        for p in (
            "some",
            [[0, 0]],
            [[1, 0]],
            [[0, 9]],
            [[-1, 0]],
            [[0.5, 1]],
            [[0]],
            [[0, 1], [0, 1]],
            None,
            [["a", "b"]],
        )
    )
    for change in (
        {"name": ["string", 3]},
        {"name": ["what", "a"]},
        {"name": "a"},
        {"name": ["string", "y"]},
        {"levels": []},
        {"levels": [["string", "u"]]},
        {"levels": [["string", "u"], ["string", "u"]]},
        {"levels": [["number", 1], ["number", 1.0]]},
        {"levels": [["number", "1"], ["number", 2]]},
        {"levels": [["number", True], ["number", 2]]},
        {"levels": [["number", float("nan")], ["number", 2]]},
        {"levels": [["number", float("inf")], ["number", 2]]},
        {"levels": [["number", 10**400], ["number", 2]]},
        {"levels": [["bool", 1], ["bool", 0]]},
        {"levels": [["string", ["u"]], ["string", "v"]]},
        {"levels": [[["string"], "u"], ["string", "v"]]},
        {"levels": [["complex", "u"], ["string", "v"]]},
        {"levels": [["string", None], ["string", "v"]]},
        {"levels": "uv"},
        {"ordered": 1},
    ):
        yield {"predictors": [level | change]}


@pytest.mark.parametrize("change", list(corrupt()), ids=str)
def test_corrupt_storage(change):
    stored = fitted().to_dict()
    assert Design.from_dict(stored).to_dict() == stored
    bad = (
        stored | change
        if isinstance(change, dict) and change and len(change) == 1 and "formula" not in change
        else change
    )
    if change == {"formula": 3}:
        bad = stored | change
    with pytest.raises(DataError, match="the stored design is corrupt"):
        Design.from_dict(bad)


def test_deeply_nested_name():
    name = ["string", "a"]
    for _ in range(100_000):
        name = ["tuple", [name]]
    stored = fitted().to_dict()
    stored["response"]["name"] = name
    with pytest.raises(DataError, match="corrupt"):
        Design.from_dict(stored)


def test_stored_formula_is_never_read():
    stored = fitted().to_dict() | {"formula": "y ~ __import__('os').system('true')"}
    assert Design.from_dict(stored).terms.text == stored["formula"]
    with pytest.raises(FormulaError):
        parse(stored["formula"], ["y", "a"])
