"""Formulas: grammar, odd names, refusals, and that nothing in a formula ever runs."""

import itertools
import random
import time

import numpy as np
import pytest

from bbl.design.formula import parse
from bbl.errors import BBLTypeError, FormulaError

COLUMNS = ["y", "a", "b", "c", "d"]


def read(formula, columns=COLUMNS, exclude=()):
    """Return predictors and pairs, by name."""
    terms = parse(formula, columns, exclude)
    assert terms.text == formula
    assert terms.pairs.shape == (len(terms.pairs), 2) and terms.pairs.dtype == np.intp
    i, j = terms.pairs.T
    assert (i < j).all() and (np.diff(i * len(terms.predictors) + j) > 0).all()
    return list(terms.predictors), [terms.predictors[i] + terms.predictors[j] for i, j in terms.pairs]


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
    ["y~1+a+b", "y~0+a+b", "y~-1+a+b", "y~a+b-1", "y~a+0+b", "y~a-0+b", "y~+a+b", "y~a - -b", "y~a+-1+b", "y~(a+1)+b"],
)
def test_intercept_and_signs_change_nothing(formula):
    assert read(formula) == (["a", "b"], [])


def test_first_sign_drops():
    assert read("y ~ -a + b") == (["b"], [])
    assert read("y ~ (a + 1)^2 + b") == (["a", "b"], [])


@pytest.mark.parametrize(
    "name",
    ["1", "0", "-1", "2.5", "a b", "a:b", "a+b", "a*b", "^2", ".", "..", "~", "(", "for", "é", "e\u0301", "漢字", "x'y"]
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


@pytest.mark.parametrize("name", ["for", "in", "é", "漢字", "a.b", "_x", "x1", "1x", "lambda", "None", "C", "factor"])
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
    assert read("y ~ .", [*COLUMNS, "w"], {"w"}) == (list("abcd"), [])
    assert read("y ~ . - w", [*COLUMNS, "w"], {"w"}) == (list("abcd"), [])
    with pytest.raises(FormulaError, match=r"'w' holds the weights and is also a predictor") as caught:
        parse("y ~ a + w", [*COLUMNS, "w"], {"w"})
    assert caught.value.column == "w" and caught.value.argument == "formula"
    with pytest.raises(FormulaError, match="'w' holds the weights and cannot be the response"):
        parse("w ~ a", [*COLUMNS, "w"], {"w"})


@pytest.mark.parametrize(
    "formula",
    ["y ~ a:b:c", "y ~ a*b*c", "y ~ (a+b+c)^3", "y ~ .^3", "y ~ (a:b + c)^2", "y ~ (a*b):c", "y ~ a:b:(c + d)"]
    + ["y ~ (a:b):(c:d)", "y ~ c*(a:b)", "y ~ .:.:.", "y ~ (a + b):c:(a:d)", "y ~ (a:b):(a:c)"],
)
def test_three_way_terms(formula):
    with pytest.raises(FormulaError, match=r"of three or more predictors.*pairwise.*Write \(\w \+ \w \+ \w\)\^2"):
        parse(formula, COLUMNS)


def test_three_way_term_is_named():
    with pytest.raises(FormulaError, match=r"the term a:c:d .*Write \(a \+ c \+ d\)\^2 for all pairs"):
        parse("y ~ a:c:d", COLUMNS)


@pytest.mark.parametrize(
    "formula",
    ["y ~ 1", "y ~ 0", "y ~ -1", "y ~ a - a", "y ~ -a", "y ~ a*b - a - b", "y ~ . - .", "y ~ .^2 - (a + b + c + d)"],
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
        FormulaError, match=r"'class' is not a column.*did you mean 'Class'\? The columns are outcome, Class"
    ):
        parse("outcome ~ class", columns)
    with pytest.raises(FormulaError, match=r"'outcom' is not a column.*did you mean 'outcome'\?.*and more") as caught:
        parse("outcom ~ Class", columns)
    assert caught.value.column == "outcom"
    caller = 1  # a name of the caller is no column
    with pytest.raises(FormulaError, match="'caller' is not a column"):
        parse("outcome ~ caller", columns)
    assert caller == 1


MALFORMED = [
    "", " ", "y", "~", "~ a", "y ~", "y ~ ~ a", "y ~ a ~ b", "(y ~ a)", "y ~ a +", "y ~ * a", "y ~ a * ", "y ~ a : : b",
    "y ~ a b", "y ~ (a", "y ~ a)", "y ~ )a(", "y ~ ()", "y ~ a + ()", "y ~ a^", "y ~ ^2", "y ~ a^b", "y ~ a^0", "y ~ a^-1",
    "y ~ a^2.0", "y ~ a^1e2", "y ~ a^(2)", "y ~ a^2^2", "y ~ a^100", "y ~ a**", "y ~ a ** * 2", "y ~ a +* b", "y ~ a +-* b",
    "y ~ ..", "y ~ . .", "y ~ .a.", "y ~ 2", "y ~ 2*a", "y ~ a*1", "y ~ a:0", "y ~ 1^2", "1 ~ a", "y + a ~ b", ". ~ a", "y:a ~ b",
    "-y ~ a", "y ~ `a", "y ~ a`", "y ~ ``a`", "y ~ `a``", "y ~ a | b", "y ~ a / b", "y ~ a %in% b", "y ~ a, b", "y = a", "y ~ a == b",
    "y ~ a & b", "y ~ !a", "y ~ 'a'", 'y ~ "a"', "y ~ a; b", "y ~ a # b", "y ~ \\a", "y ~ [a]", "y ~ a[0]", "y ~ {a}", "y ~ $a",
    "y ~ a\x00", "y ~ \ud800", "y ~ /[漢", "y ~ \ua66e", "y ~ \ua66e0", "y ~ a (b)", "y ~ (a)(b)", "y ~ C()", "y ~ C(a)(b)", "y ~ C(a + b)",
    "y ~ C(.)", "y ~ factor(a, b)", "y ~ C(C(a", "log(y) ~ a", "y ~ a.b", "y ~ a.__class__", "y ~ e\u0301",
]  # fmt: skip


@pytest.mark.parametrize("formula", MALFORMED)
def test_malformed(formula):
    with pytest.raises(FormulaError) as caught:
        parse(formula, COLUMNS)
    text = str(caught.value)
    assert text.startswith("formula ") and repr(formula) in text and text.endswith(".")
    assert caught.value.argument == "formula"
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "formula", [None, 1, 1.5, b"y ~ a", ["y ~ a"], ("y", "a"), {"y": "a"}, np.array("y ~ a"), object()]
)
def test_wrong_type(formula):
    with pytest.raises(BBLTypeError, match="formula must be a string") as caught:
        parse(formula, COLUMNS)
    assert caught.value.argument == "formula" and type(formula).__name__ in str(caught.value)


def payloads(path):
    touch = f"open('{path}', 'w')"
    call = f"__import__('pathlib').Path('{path}').touch()"
    system = f"__import__('os').system('touch {path}')"
    names = ["I({})", "C(a, {})", "{{{}}}", "poly({})", "Q({})", "np.abs({})", "log({})", "factor({})", "C(`a`, {})"]
    for code in (touch, call, system):
        yield from (f"y ~ {name.format(code)}" for name in names)
        yield f"y ~ {code}"
        yield f"{code} ~ a"
        yield f"y ~ `{code}`"
        yield f"y ~ a + `x` + {code}"
        yield f"y ~ a[{code}]"
        yield f"y ~ a^{code}"
        yield f"y ~ a ** {code}"
        yield f"y ~ . - {code}"
    yield f"y ~ np.savetxt('{path}', [1])"
    yield f"y ~ a.__class__.__base__.__subclasses__()[0]('{path}')"
    yield f"y ~ poly.__globals__['__builtins__']['open']('{path}','w')"
    yield f"y ~ (lambda: {touch})()"
    yield f"y ~ [{touch} for i in a]"
    yield f"y ~ f'{{{touch}}}'"
    yield f"y ~ `{{{touch}}}` + {{{touch}}}"
    yield "y ~ sys.exit()"
    yield "y ~ exit()"
    yield "y ~ breakpoint()"


def test_nothing_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "ran"
    tried = list(payloads(target))
    assert len(tried) >= 30
    for formula in tried:
        with pytest.raises(FormulaError) as caught:
            parse(formula, COLUMNS)
        if "is not a column" not in str(caught.value):
            assert "compute the column first" in str(caught.value) or "exponent" in str(caught.value), formula
    assert not list(tmp_path.iterdir())


def test_column_named_like_code_is_a_name(tmp_path):
    target = tmp_path / "ran"
    names = [formula.removeprefix("y ~ ") for formula in payloads(target)]
    columns = list(dict.fromkeys(["y", *names]))
    assert parse("y ~ .^2", columns).predictors == tuple(columns[1:])
    assert not target.exists()


def seconds(formula, columns):
    start = time.perf_counter()
    try:
        parse(formula, columns)
    except FormulaError:
        pass
    return time.perf_counter() - start


def test_all_pairs_of_784_columns_take_milliseconds():
    columns = ["y", *map(str, range(784))]
    terms = parse("y ~ .^2", columns)
    assert np.array_equal(terms.pairs, np.column_stack(np.triu_indices(784, 1)))
    assert min(seconds("y ~ .^2", columns) for _ in range(5)) < 0.05
    assert min(seconds("y ~ .^2 - `3` - `4`:`5`", columns) for _ in range(3)) < 0.2
    spelled = "y ~ (" + " + ".join(f"`{k}`" for k in range(784)) + ")^2"
    assert parse(spelled, columns).pairs.shape == terms.pairs.shape


def test_high_powers_do_not_blow_up():
    columns = ["y", *"abcdefgh"]
    names = " + ".join("abcdefgh")
    for formula in (f"y ~ ({names})^8", f"y ~ ({names})^100000", "y ~ (a + b)^99", "y ~ " + "*".join("abcdefgh" * 3)):
        assert seconds(formula, columns) < 1
    assert parse("y ~ (a + b)^99", columns).pairs.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    "text",
    ["a+" * 9_000 + "a", "a:" * 9_000 + "a", "a*" * 9_000 + "a", "a-" * 9_000 + "a", "-" * 90_000 + "a", "a " * 9_000]
    + [
        "(" * 40_000 + "a" + ")" * 40_000,
        "a^" * 9_000 + "a",
        "a**" * 9_000 + "2",
        "`" * 90_000,
        "x" * 90_000,
        "C(" * 30_000,
    ]
    + [
        "+".join([".^2"] * 9_000),
        "+".join(["(.^2 - a)"] * 9_000),
        ".^2" + " - a:b + a:b" * 7_000,
        "+".join(["."] * 9_000),
    ]
    + ["a" + "(" * 300, ")" * 90_000, "~" * 90_000, "(-" * 90 + "a" + ")" * 90, "a b+" * 9_000, " " * 90_000 + "a"],
    ids=lambda text: text[:12],
)
def test_long_formulas_end_soon(text):
    assert seconds(f"y ~ {text}", ["y", *"ab", *map(str, range(400))]) < 5


def test_length_and_depth_are_bounded():
    with pytest.raises(FormulaError, match="100,001 characters"):
        parse("y ~ a" + "+a" * 49_998, COLUMNS)
    with pytest.raises(FormulaError, match="nested deeper than 100"):
        parse("y ~ " + "(" * 101 + "a" + ")" * 101, COLUMNS)
    assert parse("y ~ " + "(" * 100 + "a" + ")" * 100, COLUMNS).predictors == ("a",)
    with pytest.raises(FormulaError, match="repeats itself"):
        parse("y ~ " + "+".join([".^2"] * 2_000), ["y", *map(str, range(100))])


def test_long_sums_of_pairs():
    names = [f"v{k}" for k in range(120)]
    pairs = list(itertools.combinations(names, 2))[:6_000]
    terms = parse("y ~ " + "+".join(f"{a}:{b}" for a, b in pairs), ["y", *names])
    assert len(terms.pairs) == len(pairs)


def test_random_text_raises_formula_errors_only():
    random.seed(1)
    pieces = [
        "y",
        "a",
        "b",
        "`a`",
        "~",
        "+",
        "-",
        "*",
        ":",
        "^",
        "**",
        "2",
        "0",
        "1",
        ".",
        "(",
        ")",
        " ",
        "C(",
        "`",
        "\\",
        "漢",
    ]
    pieces += ["{", "}", "[", "]", "'", '"', "%", "|", "/", "in", "a.b", "\t", "é", "@", ","]
    read_at_all = 0
    for _ in range(4_000):
        text = "y ~ " * random.randint(0, 1) + "".join(
            random.choices(pieces[: random.choice((18, 35))], k=random.randint(1, 12))
        )
        try:
            terms = parse(text, COLUMNS)
        except FormulaError:
            continue
        read_at_all += 1
        assert terms.predictors and set(terms.predictors) <= set("abcd")
    assert read_at_all > 20


def model_of(text):
    """Return singles and pairs of a formula's right side by the rules, over Python sets (slow, the truth)."""
    position = 0

    def peek():
        return text[position] if position < len(text) else ""

    def take():
        nonlocal position
        position += 1
        return text[position - 1]

    def implied(terms):
        return {frozenset(name) for term in terms for name in term}

    def total():
        left = product()
        while peek() in ("+", "-"):
            sign, right = take(), product()
            if sign == "+":
                left = left | right
            else:
                gone = {name for term in right if len(term) == 1 for name in term}
                left = {t for t in (left | implied(left)) - right if not (set(t) & gone)}
        return left

    def product():
        left = crossing()
        while peek() == "*":
            take()
            right = crossing()
            left = left | right | {a | b for a in left for b in right}
        return left

    def crossing():
        left = power()
        while peek() == ":":
            take()
            right = power()
            left = {a | b for a in left for b in right}
        return left

    def power():
        base = atom()
        if peek() == "^":
            take(), take()
            return base | {a | b for a in base for b in base}
        return base

    def atom():
        if peek() == "(":
            take()
            inside = total()
            take()
            return inside
        name = take()
        return {frozenset(k) for k in "abcd"} if name == "." else {frozenset(name)}

    terms = total()
    return terms | implied(terms)


def random_side(depth):
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice("abcd.")
    if kind < 0.4:
        return f"({random_side(depth - 1)})^2"
    left, right = random_side(depth - 1), random_side(depth - 1)
    return f"({left}{random.choice('++--*:')}{right})" if kind < 0.8 else f"{left}+{right}"


def test_agrees_with_sets():
    random.seed(7)
    compared = 0
    for _ in range(2_000):
        side = random_side(3)
        try:
            terms = parse(f"y ~ {side}", COLUMNS)
        except FormulaError:
            continue
        singles = set(terms.predictors)
        pairs = {frozenset((terms.predictors[i], terms.predictors[j])) for i, j in terms.pairs}
        assert {frozenset(k) for k in singles} | pairs == model_of(side), side
        compared += 1
    assert compared > 500


def test_result_is_frozen():
    terms = parse("y ~ .^2", COLUMNS)
    with pytest.raises(ValueError, match="read-only"):
        terms.pairs[0, 0] = 3
    with pytest.raises(AttributeError):
        terms.response = "a"
