"""Formulas: grammar, odd names, unknown names, and agreement with sets of terms."""

import inspect
import random
import re

import numpy as np
import pytest

from bbl.design.design import EncodingRules
from bbl.design.formula import parse
from bbl.engines import Engine
from bbl.errors import FormulaError
from bbl.model.layout import Layout

COLUMNS = ["y", "a", "b", "c", "d"]


def read(formula, columns=COLUMNS, exclude=None):
    """Return predictors and pairs, by name."""
    terms = parse(formula, columns, exclude)
    assert terms.text == formula
    assert terms.pairs.shape == (len(terms.pairs), 2) and terms.pairs.dtype == np.intp
    i, j = terms.pairs.T
    assert (i < j).all() and (np.diff(i * len(terms.predictors) + j) > 0).all()
    return list(terms.predictors), [
        terms.predictors[i] + terms.predictors[j] for i, j in terms.pairs
    ]


@pytest.mark.parametrize(
    ("formula", "predictors", "pairs"),
    [
        ("y ~ a", "a", ""),
        ("y~a+b", "ab", ""),
        ("y ~ b + a", "ba", ""),
        ("y ~ a:b", "ab", "ab"),
        ("y ~ b:a", "ba", "ba"),
        ("y ~ c + a:b", "cab", "ab"),
        ("y ~ a*b", "ab", "ab"),
        ("y ~ a*b + b*c", "abc", "ab bc"),
        ("y ~ (a + b + c)^2", "abc", "ab ac bc"),
        ("y ~ (a + b + c)**2", "abc", "ab ac bc"),
        ("y ~ (a + b):(c + d)", "abcd", "ac ad bc bd"),
        ("y ~ (a + b)*c", "abc", "ac bc"),
        ("y ~ (a + b):(a + c)", "abc", "ab ac bc"),
        ("y ~ .", "abcd", ""),
        ("y ~ .^2", "abcd", "ab ac ad bc bd cd"),
        ("y ~ .:.", "abcd", "ab ac ad bc bd cd"),
        ("y ~ c + .", "cabd", ""),
        ("y ~ . + a:b", "abcd", "ab"),
        ("y ~ . - d", "abc", ""),
        ("y ~ .^2 - d", "abc", "ab ac bc"),
        ("y ~ .^2 - a:b", "abcd", "ac ad bc bd cd"),
        ("y ~ .^2 - a:b - c", "abd", "ad bd"),
        ("y ~ (. - d)^2", "abc", "ab ac bc"),
        ("y ~ .^2 - (a + b)", "cd", "cd"),
        ("y ~ a*b - a", "b", ""),
        ("y ~ a:b - a", "b", ""),
        ("y ~ a:b - a:b", "ab", ""),
        ("y ~ . - (a:b + c - c)", "abcd", ""),
        ("y ~ .^2 - (a:b + c - c)", "abcd", "ac ad bc bd cd"),
        ("y ~ . - (a:b - a:b)", "abcd", ""),
        ("y ~ . - (a:b - c)*a", "bcd", ""),
        ("y ~ c + (a:b - a:b)", "cab", ""),
        ("y ~ (c + a:b - a:b)^2 - c:d", "cab", ""),
        ("y ~ a - a:b + b", "ab", ""),
        ("y ~ .^2 - a:b + a:b", "abcd", "ab ac ad bc bd cd"),
        ("y ~ .^2 - a + a", "abcd", "bc bd cd"),
        ("y ~ . - y", "abcd", ""),
        ("y ~ a^1", "a", ""),
        ("y ~ a^9", "a", ""),
        ("y ~ (a + b)^3", "ab", "ab"),
        ("y ~ (a*b)^2", "ab", "ab"),
        ("y ~ a:a", "a", ""),
        ("y ~ a:b:a", "ab", "ab"),
        ("y ~ a:b + a:b + b:a", "ab", "ab"),
        ("y ~ (a:b + a:c):a", "abc", "ab ac"),
        ("y ~ a/b", "ab", "ab"),
        ("y ~ a/(b + c)", "abc", "ab ac"),
        ("y ~ b %in% a", "ba", "ba"),
        ("y ~ (b + c) %in% a - c", "ba", "ba"),
        ("y ~ a + b/c:d - c:d:b", "abcd", ""),
        ("y ~ C(a) + factor( b )", "ab", ""),
        ("C(y) ~ a", "a", ""),
        ("(y) ~ (a)", "a", ""),
        ("y ~ a\n + b\t", "ab", ""),
    ],
)
def test_grammar(formula, predictors, pairs):
    assert read(formula) == (list(predictors), pairs.split())


@pytest.mark.parametrize(
    "formula",
    [
        "y~1+a+b",
        "y~0+a+b",
        "y~-1+a+b",
        "y~a+b-1",
        "y~a+0+b",
        "y~a-0+b",
        "y~+a+b",
        "y~a - -b",
        "y~a+-1+b",
        "y~(a+1)+b",
    ],
)
def test_intercept_and_signs_change_nothing(formula):
    assert read(formula) == (["a", "b"], [])


def test_first_sign_drops():
    assert read("y ~ -a + b") == (["b"], [])
    assert read("y ~ (a + 1)^2 + b") == (["a", "b"], [])


@pytest.mark.parametrize(
    "name",
    [
        "1",
        "0",
        "-1",
        "2.5",
        "a b",
        "a:b",
        "a+b",
        "a*b",
        "^2",
        ".",
        "..",
        "~",
        "(",
        "for",
        "é",
        "e\u0301",
        "漢字",
        "x'y",
    ]
    + [
        'say "x"',
        "a`b",
        "``",
        "\\",
        "a\\",
        "",
        " ",
        "{x}",
        "C(a)",
        "__import__('os')",
        "I(1)",
        "\ua66e0",
        "y ~ a",
        "\n",
    ],
)
def test_any_name_works_in_backticks(name):
    quoted = "`" + name.replace("`", "``") + "`"
    columns = ["y", name, "b", "c"]
    terms = parse(f"y ~ ({quoted} + b)^2 + c:{quoted} - 1", columns)
    assert terms.predictors == (name, "b", "c")
    assert terms.pairs.tolist() == [[0, 1], [0, 2]]
    assert parse(f"y ~ . - {quoted}", columns).predictors == ("b", "c")
    assert parse(f"y ~ C({quoted})", columns).predictors == (name,)
    assert parse(f"{quoted} ~ .", columns).response == name
    assert parse("y ~ .^2", columns).predictors == (name, "b", "c")


@pytest.mark.parametrize(
    "name", ["for", "in", "é", "漢字", "a.b", "_x", "x1", "1x", "lambda", "None", "C", "factor"]
)
def test_words_need_no_backticks(name):
    assert parse(f"y ~ {name}:b", ["y", name, "b"]).predictors == (name, "b")
    assert parse(f"{name} ~ b", ["y", name, "b"]).response == name


def test_names_that_are_no_strings():
    columns = ["y", 0, 1, ("a", 2), None]
    assert parse("y ~ .", columns).predictors == (0, 1, ("a", 2), None)
    assert parse("y ~ `1` + `('a', 2)`", columns).predictors == (1, ("a", 2))
    assert parse("`0` ~ .", columns).response == 0
    assert parse("y ~ `1`", ["y", 1, "1"]).predictors == ("1",)  # the string is meant
    with pytest.raises(FormulaError, match="'1' is not a column"):
        parse("y ~ `1`", ["y", 1, 1.0 + 0j, "a", type("One", (), {"__str__": lambda self: "1"})()])


def test_excluded_columns():
    assert read("y ~ .", [*COLUMNS, "w"], {"w": "the weights"}) == (list("abcd"), [])
    assert read("y ~ . - w", [*COLUMNS, "w"], {"w": "the weights"}) == (list("abcd"), [])
    with pytest.raises(
        FormulaError, match=r"'w' contains the weights and is also a predictor"
    ) as caught:
        parse("y ~ a + w", [*COLUMNS, "w"], {"w": "the weights"})
    assert caught.value.column == "w" and caught.value.argument == "formula"
    with pytest.raises(FormulaError, match="the weights and cannot be the response"):
        parse("w ~ a", [*COLUMNS, "w"], {"w": "the weights"})


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ a:b:c",
        "y ~ a*b*c",
        "y ~ (a+b+c)^3",
        "y ~ .^3",
        "y ~ (a:b + c)^2",
        "y ~ (a*b):c",
        "y ~ a:b:(c + d)",
    ]
    + ["y ~ (a:b):(c:d)", "y ~ c*(a:b)", "y ~ .:.:.", "y ~ (a + b):c:(a:d)", "y ~ (a:b):(a:c)"],
)
def test_three_way_terms(formula):
    with pytest.raises(
        FormulaError, match=r"of three or more predictors.*pairwise.*Write \(\w \+ \w \+ \w\)\^2"
    ):
        parse(formula, COLUMNS)


def test_three_way_term_is_named():
    with pytest.raises(
        FormulaError, match=r"contains a:c:d, .*Write \(a \+ c \+ d\)\^2 for all pairs"
    ):
        parse("y ~ a:c:d", COLUMNS)


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ 1",
        "y ~ 0",
        "y ~ -1",
        "y ~ a - a",
        "y ~ -a",
        "y ~ a*b - a - b",
        "y ~ . - .",
        "y ~ .^2 - (a + b + c + d)",
    ],
)
def test_no_predictors_left(formula):
    with pytest.raises(FormulaError, match="no predictors are left"):
        parse(formula, COLUMNS)


def test_response_also_on_the_right():
    with pytest.raises(FormulaError, match="the response 'y' is also a predictor") as caught:
        parse("y ~ a + y", COLUMNS)
    assert caught.value.column == "y"
    with pytest.raises(FormulaError, match="no predictors are left"):
        parse("y ~ .", ["y"])


def test_unknown_names():
    columns = ["outcome", "Class", "Sex", *map(str, range(20))]
    with pytest.raises(
        FormulaError,
        match=r"'class' is not a column.*Did you mean 'Class'\?.*columns.*outcome, Class",
    ):
        parse("outcome ~ class", columns)
    with pytest.raises(
        FormulaError, match=r"'outcom' is not a column.*Did you mean 'outcome'\?.*and more"
    ) as caught:
        parse("outcom ~ Class", columns)
    assert caught.value.column == "outcom"
    caller = 1  # a name of the caller is no column
    with pytest.raises(FormulaError, match="'caller' is not a column"):
        parse("outcome ~ caller", columns)
    assert caller == 1


@pytest.mark.parametrize(
    ("right", "name"),
    [
        ("cap-shape", "cap-shape"),
        ("b + cap-shape*b", "cap-shape"),
        ("travel class", "travel class"),
        ("b + a:c", "a:c"),
        ("f(x)", "f(x)"),
        ("`f(x)` + 2nd class", "2nd class"),
        ("a`b", "a`b"),
    ],
)
def test_a_name_that_needs_backticks_is_told_so(right, name):
    columns = ["y", "b", "cap-shape", "travel class", "a:c", "f(x)", "2nd class", "1", "1.5", "a`b"]
    with pytest.raises(FormulaError) as caught:
        parse(f"y ~ {right}", columns)
    quoted = name.replace("`", "``")
    assert str(caught.value).endswith(f"Write the column {name!r} in backticks: `{quoted}`.")
    with pytest.raises(FormulaError) as caught:
        parse("y ~ elsewhere + 1 + 1.5 + `cap-shape`", columns)
    assert "Write the column" not in str(caught.value)


class SlowReader:
    """The rules of a formula's right side over Python sets: a value is its terms, and the
    predictors that stay from pairs which were dropped again.
    """

    def __init__(self, text):
        self.text, self.position = text, 0

    def peek(self):
        return self.text[self.position] if self.position < len(self.text) else ""

    def take(self):
        self.position += 1
        return self.text[self.position - 1]

    def total(self):
        left, kept = self.product()
        while self.peek() in ("+", "-"):
            sign, (right, more) = self.take(), self.product()
            if sign == "+":
                left, kept = left | right, kept | more
            else:
                gone = {name for term in right if len(term) == 1 for name in term}
                kept = (kept | implied(t for t in left if len(t) > 1)) - gone
                left = {t for t in left - right if not (set(t) & gone)}
        return left, kept

    def product(self):
        left, kept = self.crossing()
        while self.peek() == "*":
            self.take()
            right, more = self.crossing()
            left, kept = left | right | {a | b for a in left for b in right}, kept | more
        return left, kept

    def crossing(self):
        left, kept = self.power()
        while self.peek() == ":":
            self.take()
            right, _ = self.power()
            left, kept = {a | b for a in left for b in right}, set()
        return left, kept

    def power(self):
        base, kept = self.atom()
        if self.peek() == "^":
            self.take()
            terms = base
            for _ in range(int(self.take()) - 1):
                terms = terms | {a | b for a in terms for b in base}
            return terms, kept
        return base, kept

    def atom(self):
        if self.peek() == "(":
            self.take()
            inside = self.total()
            self.take()
            return inside
        name = self.take()
        return ({frozenset(k) for k in "abcd"} if name == "." else {frozenset(name)}), set()


def implied(terms):
    return {name for term in terms for name in term}


def model_of(text):
    """Return predictors and terms of a formula's right side by the rules (slow, the truth)."""
    terms, kept = SlowReader(text).total()
    return terms | {frozenset(name) for name in implied(terms) | kept}


def random_side(depth):
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice("abcd.")
    if kind < 0.4:
        return f"({random_side(depth - 1)})^{random.choice('223')}"
    left, right = random_side(depth - 1), random_side(depth - 1)
    return f"({left}{random.choice('++--*:')}{right})" if kind < 0.8 else f"{left}+{right}"


def by_name(terms):
    """Return predictors and terms of all orders as sets of names."""
    return {
        frozenset(terms.predictors[i] for i in row) for rows in terms.terms for row in rows.tolist()
    } | {frozenset([name]) for name in terms.predictors}


@pytest.mark.long
def test_agrees_with_sets():
    random.seed(7)
    orders = {1: 0, 2: 0, 3: 0, 4: 0}
    for _ in range(1_000):
        side = random_side(3)
        expected = model_of(side)
        if not expected:
            continue
        terms = parse(f"y ~ {side}", COLUMNS, order=None)
        assert by_name(terms) == expected, side
        assert terms.order == max(map(len, expected)), side
        for k, rows in enumerate(terms.terms, 2):
            assert rows.dtype == np.intp and rows.shape == (terms.interactions.count(k), k), side
            assert [*map(tuple, rows.tolist())] == sorted(map(tuple, rows.tolist())) and (
                np.diff(rows) > 0
            ).all(), side
        orders[terms.order] += 1
        for order in (2, 3):
            if terms.order > order:
                with pytest.raises(FormulaError, match="or more predictors, but the m") as caught:
                    parse(f"y ~ {side}", COLUMNS, order=order)
                named = re.search(r"contains (\S+), a term of", str(caught.value))[1].split(":")
                assert any(set(named) <= term for term in expected if len(term) > order), side
            else:
                assert by_name(parse(f"y ~ {side}", COLUMNS, order=order)) == expected
    assert min(orders.values()) > 20, orders


def random_sum(depth):
    """Return a right side without ``-``, which drops more here than in formulaic."""
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice("abcd.")
    if kind < 0.4:
        return f"({random_sum(depth - 1)} + a)^{random.choice('23')}"
    sign = random.choice(["+", "+", "*", ":", "/", "%in%"])
    return f"({random_sum(depth - 1)} + b) {sign} ({random_sum(depth - 1)} + c)"


@pytest.mark.parametrize("max_listed", [150, 0])
def test_terms_are_those_of_formulaic(max_listed, monkeypatch):
    """With and without lists of the terms of ``.`` and powers."""
    from formulaic.parser import DefaultFormulaParser

    monkeypatch.setattr("bbl.design.expansion.MAX_LISTED", max_listed)
    random.seed(8)
    parser = DefaultFormulaParser()
    n_terms = set()
    for _ in range(150):
        formula = f"y ~ {random_sum(3)}"
        context = {"__formulaic_variables_available__": COLUMNS}
        terms = parser.get_terms(formula, context=context).rhs
        names = [[f.expr for f in t.factors if f.expr != "1"] for t in terms]
        expected = {frozenset(term) for term in names if term}
        expected |= {frozenset([name]) for term in names for name in term}
        assert by_name(parse(formula, COLUMNS, order=None)) == expected, formula
        n_terms.add(len(expected))
    assert len(n_terms) > 5


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("y ~ a:b:c", "a b c abc"),
        ("y ~ a*b*c", "a b c ab ac bc abc"),
        ("y ~ (a + b + c)^3 - a:b:c", "a b c ab ac bc"),
        ("y ~ .^3 - a:b", "a b c d ac ad bc bd cd abc abd acd bcd"),
        ("y ~ .^4 - (a:b + c):d", "a b c d ab ac ad bc bd abc acd bcd abcd"),
        ("y ~ .^3 - d", "a b c ab ac bc abc"),
        ("y ~ .^3 - d + a:d", "a b c d ab ac ad bc abc"),
        ("y ~ (a + b)^2 + (b + c + d)^3", "a b c d ab bc bd cd bcd"),
        ("y ~ a + (.^3 - b - c:d)", "a c d ac ad acd"),
        ("y ~ .^3 - (a + b)^2", "c d cd"),
        ("y ~ .^3 - (a:b + c - c)^2", "a b c d ac ad bc bd cd abc abd acd bcd"),
        ("y ~ (.^2):.", "a b c d ab ac ad bc bd cd abc abd acd bcd"),
        ("y ~ (a:b + c)^2", "a b c ab abc"),
        ("y ~ (a + b)/c", "a b c abc"),
        ("y ~ a/b/c", "a b c ab abc"),
        ("y ~ a/b*c", "a b c ab ac abc"),
        ("y ~ (a + b) %in% (c + d)", "a b c d acd bcd"),
    ],
)
def test_terms_of_three_and_more(formula, expected):
    terms = parse(formula, COLUMNS, order=None)
    assert by_name(terms) == set(map(frozenset, expected.split()))
    assert terms.predictors == tuple(
        dict.fromkeys("".join(sorted(expected.split()[: len(terms.predictors)])))
    )


def test_the_order_of_an_engine_is_where_a_formula_ends():
    assert Engine.order == inspect.signature(parse).parameters["order"].default == 2
    assert Engine.order == EncodingRules().order
    with pytest.raises(
        FormulaError,
        match=r"a:b:c:d, a term of 4 or more predictors, but the method supports at most 3",
    ):
        parse("y ~ .^4", COLUMNS, order=3)
    with pytest.raises(
        FormulaError,
        match=r"contains a:b:d, a term of three .*Write \(a \+ b \+ d\)\^2 for all pairs",
    ):
        parse("y ~ .^3 - a:b:c", COLUMNS)


@pytest.mark.parametrize("k", [3, 9, 20])
def test_long_terms_of_many_columns_are_told_apart(k):
    """Twenty of 900 columns are more than one number of 64 bits can tell."""
    rng = np.random.default_rng(k)
    rows = [sorted(rng.choice(900, k, replace=False).tolist()) for _ in range(60)]
    side = " + ".join(":".join(f"`{i}`" for i in rng.permutation(row)) for row in rows + rows[:15])
    gone = " - ".join(":".join(f"`{i}`" for i in row) for row in rows[:20])
    terms = parse(f"y ~ . + {side} - {gone}", ["y", *map(str, range(900))], order=None)
    assert terms.terms[-1].tolist() == sorted(rows[20:])


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_numbers_are_those_of_the_list(order):
    formula = f"y ~ (a + b + c + d + e)^{order}" + (
        " - a:b - c:d:e + f:a:b:c - b:c:d" if order > 2 else ""
    )
    terms = parse(formula, ["y", *"abcdef"], order=None)
    n_levels = [2, 3, 4, 1, 5, 3][: len(terms.predictors)]
    layout = Layout(n_levels, terms.terms)
    assert [terms.interactions.count(k) for k in range(2, 6)] == [
        *map(len, layout.terms),
        0,
        0,
        0,
        0,
    ][:4]
    assert terms.interactions.n_couplings(n_levels) == layout.size - layout.D
    assert all(map(np.array_equal, layout.terms, terms.terms))
    assert terms.order == layout.order


def test_result_is_frozen():
    terms = parse("y ~ .^2", COLUMNS)
    with pytest.raises(ValueError, match="read-only"):
        terms.pairs[0, 0] = 3
    with pytest.raises(ValueError, match="read-only"):
        parse("y ~ .^3", COLUMNS, order=3).terms[1][0, 0] = 3
    with pytest.raises(AttributeError):
        terms.response = "a"


def test_a_formula_may_be_without_a_response_where_that_is_allowed():
    columns = ["y", "a", "b", None]
    terms = parse("~ .^2 - b", columns[:3], one_sided=True)
    assert terms.response is None and terms.predictors == ("y", "a") and terms.columns == ["y", "a"]
    assert parse("~ .", columns[:3], exclude=("a",), one_sided=True).predictors == ("y", "b")
    assert parse("y ~ a", columns, one_sided=True).columns == ["y", "a"]
    assert parse("~ .", columns, one_sided=True).predictors == tuple(columns)
    with pytest.raises(FormulaError, match="must have a response"):
        parse("~ a + b", columns)
    with pytest.raises(FormulaError, match="without a name"):
        parse("None ~ a", columns, one_sided=True)


@pytest.mark.parametrize(
    "right, complete",
    [
        (".^2", True),
        ("a*b*c", False),
        ("a*b", True),
        (".^2 - a:b", False),
        (".", False),
        (".^3", False),
        ("a", True),
    ],
)
def test_a_formula_knows_whether_it_asks_for_all_pairs(right, complete):
    assert parse(f"y ~ {right}", ["y", "a", "b", "c"], order=3).complete is complete
