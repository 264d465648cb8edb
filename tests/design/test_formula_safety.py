"""Formulas that are malformed, malicious, huge or random: refused by name, soon, and never run."""

import contextlib
import itertools
import math
import random
import time
import tracemalloc

import numpy as np
import pytest

from bbl.design.formula import parse
from bbl.errors import BBLTypeError, FormulaError

COLUMNS = ["y", "a", "b", "c", "d"]

SIDES = """
~ a @ a ~ b @ a + @ * a @ a : : b @ a b @ (a @ a) @ )a( @ () @ a + () @ a^ @ ^2 @ a^b @ a^0 @ a^-1 @ a^2.0 @ a^1e2
a^(2) @ a^2^2 @ a^100 @ a** @ a ** * 2 @ a +* b @ a +-* b @ .. @ . . @ .a. @ 2 @ 2*a @ a*1 @ a:0 @ 1^2 @ `a @ a`
``a` @ `a`` @ a | b @ a // b @ a / 1 @ a %% b @ a %x% b @ a % in % b @ a %in% @ %in% a @ a %in%in% b @ a /- b @ a, b @ a == b @ a & b @ !a @ 'a' @ a; b @ a # b @ \\a @ [a] @ a[0] @ {a}
$a @ a (b) @ (a)(b) @ C() @ C(a)(b) @ C(a + b) @ C(.) @ factor(a, b) @ C(C(a @ a.b @ a.__class__
"""  # noqa: E501
MALFORMED = [
    "y ~ " + side.strip() for line in SIDES.strip().splitlines() for side in line.split(" @ ")
]
MALFORMED += [
    "",
    " ",
    "y",
    "~",
    "~ a",
    "y ~",
    "(y ~ a)",
    "y ~ a * ",
    "1 ~ a",
    "y + a ~ b",
    ". ~ a",
    "y:a ~ b",
]
MALFORMED += ["-y ~ a", "y = a", 'y ~ "a"', "y ~ a\x00", "y ~ \ud800", "y ~ /[\u6f22", "y ~ \ua66e"]
MALFORMED += ["y ~ \ua66e0", "log(y) ~ a", "y ~ e\u0301"]


@pytest.mark.parametrize("formula", MALFORMED)
def test_malformed(formula):
    with pytest.raises(FormulaError) as caught:
        parse(formula, COLUMNS)
    text = str(caught.value)
    assert text.startswith("formula ") and repr(formula) in text and text.endswith(".")
    assert caught.value.argument == "formula"
    assert "\x1b" not in text


@pytest.mark.parametrize(
    "formula",
    [None, 1, 1.5, b"y ~ a", ["y ~ a"], ("y", "a"), {"y": "a"}, np.array("y ~ a"), object()],
)
def test_wrong_type(formula):
    with pytest.raises(BBLTypeError, match="formula must be a string") as caught:
        parse(formula, COLUMNS)
    assert caught.value.argument == "formula" and type(formula).__name__ in str(caught.value)


def payloads(path):
    touch = f"open('{path}', 'w')"
    call = f"__import__('pathlib').Path('{path}').touch()"
    system = f"__import__('os').system('touch {path}')"
    names = [
        "I({})",
        "C(a, {})",
        "{{{}}}",
        "poly({})",
        "Q({})",
        "np.abs({})",
        "log({})",
        "factor({})",
        "C(`a`, {})",
    ]
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
            assert "compute the column first" in str(caught.value) or "exponent" in str(
                caught.value
            ), formula
    assert not list(tmp_path.iterdir())


def test_column_named_like_code_is_a_name(tmp_path):
    target = tmp_path / "ran"
    names = [formula.removeprefix("y ~ ") for formula in payloads(target)]
    columns = list(dict.fromkeys(["y", *names]))
    assert parse("y ~ .^2", columns).predictors == tuple(columns[1:])
    assert not target.exists()


def seconds(formula, columns):
    # of this thread alone: what else the machine does is no fault of the formula
    start = time.thread_time()
    with contextlib.suppress(FormulaError):
        parse(formula, columns)
    return time.thread_time() - start


def test_all_pairs_of_784_columns_take_milliseconds():
    columns = ["y", *map(str, range(784))]
    terms = parse("y ~ .^2", columns)
    assert np.array_equal(terms.pairs, np.column_stack(np.triu_indices(784, 1)))
    assert min(seconds("y ~ .^2", columns) for _ in range(5)) < 0.05
    assert min(seconds("y ~ .^2 - `3` - `4`:`5`", columns) for _ in range(3)) < 0.2
    spelled = "y ~ (" + " + ".join(f"`{k}`" for k in range(784)) + ")^2"
    assert parse(spelled, columns).pairs.shape == terms.pairs.shape


def test_all_triples_of_784_columns_are_known_by_their_number():
    columns = ["y", *map(str, range(784))]
    tracemalloc.start()
    terms = parse("y ~ .^3 - `0`:`1`:`2` - `5`", columns, order=3)
    assert terms.order == 3 and terms.interactions.count(2) == 783 * 782 // 2
    assert terms.interactions.count(3) == 783 * 782 * 781 // 6 - 1
    assert terms.interactions.n_couplings(np.full(783, 3)) == 4 * (783 * 782 // 2) + 8 * (
        783 * 782 * 781 // 6 - 1
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6
    with pytest.raises(FormulaError, match="a term of three"):
        parse("y ~ .^3 - `0`:`1`:`2`", columns)


def test_high_powers_do_not_blow_up():
    columns = ["y", *"abcdefgh"]
    names = " + ".join("abcdefgh")
    for formula in (
        f"y ~ ({names})^8",
        f"y ~ ({names})^100000",
        "y ~ (a + b)^99",
        "y ~ " + "*".join("abcdefgh" * 3),
    ):
        assert seconds(formula, columns) < 1
    assert parse(f"y ~ ({names})^99", columns, order=None).order == 8
    with pytest.raises(FormulaError, match="too repetitive"):
        parse("y ~ a:(.^9 - `3`:`4`)", ["y", "a", *map(str, range(400))], order=None)
    terms = parse("y ~ a + (.^9 - `3`:`4`)", ["y", "a", *map(str, range(400))], order=None)
    assert terms.interactions.count(9) == math.comb(401, 9)
    assert terms.interactions.count(2) == math.comb(401, 2) - 1
    assert parse("y ~ (a + b)^99", columns).pairs.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("right", "what"),
    [
        (".^5", "of three or more predictors"),
        ("(.^2 - `1`:`2`)^3", "it is too repetitive"),
        ("(. + `1`:`2`)^4", "it is too repetitive"),
        ("(.^2):(. - `1`)", "it is too repetitive"),
        (". / .^2", "it is too repetitive"),
        (". %in% (.^2)", "it is too repetitive"),
    ],
)
def test_products_are_counted_before_they_are_made(right, what):
    columns = ["y", *map(str, range(500))]
    assert seconds(f"y ~ {right}", columns) < 0.5
    tracemalloc.start()
    with pytest.raises(FormulaError, match=what):
        parse(f"y ~ {right}", columns)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def long_texts(part):
    """Return texts that repeat one thing, a part of the length that each can have, or of a depth
    that stops it.
    """
    n = {k: k // part for k in (2_500, 3_000, 4_000, 30_000, 40_000, 90_000)}
    texts = [sign * n[2_500] + "a" for sign in ("a+", "a:", "a*", "a-", "a^")]
    texts += [
        "-" * n[90_000] + "a",
        "a " * n[4_000],
        "(" * n[40_000] + "a" + ")" * n[40_000],
        "a**" * n[4_000] + "2",
    ]
    texts += [sign * n[90_000] for sign in "`x)~"] + [
        "C(" * n[30_000],
        "a b+" * n[4_000],
        " " * n[90_000] + "a",
    ]
    texts += ["+".join([own] * n[2_500]) for own in (".^2", "(.^2 - a)", ".")] + [
        ".^2" + " - a:b + a:b" * n[3_000]
    ]
    return [*texts, "a" + "(" * 300, "(-" * 90 + "a" + ")" * 90]


@pytest.mark.parametrize(
    ("text", "limit"),
    [(text, 2) for text in long_texts(4)]
    + [pytest.param(text, 5, marks=pytest.mark.long) for text in long_texts(1)],
    ids=lambda own: own[:12] if isinstance(own, str) else str(own),
)
def test_long_formulas_end_soon(text, limit):
    assert seconds(f"y ~ {text}", ["y", *"ab", *map(str, range(400))]) < limit


@pytest.mark.long
def test_length_and_depth_are_bounded():
    with pytest.raises(FormulaError, match="100,001 characters"):
        parse("y ~ a" + "+a" * 49_998, COLUMNS)
    with pytest.raises(FormulaError, match="nested deeper than 100"):
        parse("y ~ " + "(" * 101 + "a" + ")" * 101, COLUMNS)
    assert parse("y ~ " + "(" * 100 + "a" + ")" * 100, COLUMNS).predictors == ("a",)
    with pytest.raises(FormulaError, match="too repetitive"):
        parse("y ~ " + "+".join([".^2"] * 2_000), ["y", *map(str, range(100))])


@pytest.mark.long
def test_long_sums_of_pairs():
    names = [f"v{k}" for k in range(120)]
    pairs = list(itertools.combinations(names, 2))[:6_000]
    terms = parse("y ~ " + "+".join(f"{a}:{b}" for a, b in pairs), ["y", *names])
    assert len(terms.pairs) == len(pairs)


@pytest.mark.long
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
    for _ in range(3_000):
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
