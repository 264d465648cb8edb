"""Any text as a formula: parsed to known columns, or refused."""

import numpy as np

from bbl.design.formula import parse

COLUMNS = ("y", "a", "b", "c", "d e", "1", "é", "`", "for", 7, ("t", 1), "a:b", "w")
NAMES = (
    "a",
    "b",
    "c",
    "`d e`",
    "(a+b)",
    "(b+c+`1`)^2",
    ".",
    "a:b",
    "é*c",
    "-(a)",
    "C(b)",
    "7",
    "`a:b`",
    "````",
    "1",
)
SIGNS = ("+", "-", ":", "*", " + ", "^2 -", "+ ", "+")
WORDS = (
    *(
        "y",
        "a",
        "b",
        "c",
        "`d e`",
        "`1`",
        "é",
        "````",
        "for",
        "7",
        "`a:b`",
        "w",
        "~",
        "~",
        "+",
        "-",
        "*",
        ":",
        "^2",
    ),
    *(
        "**2",
        ".",
        "(",
        ")",
        "(",
        ")",
        " ",
        "0",
        "1",
        "^",
        "**",
        "3",
        "C(",
        "factor(a)",
        "I(a)",
        "{a}",
        "a.b",
        "__a__",
    ),
    *(
        "`",
        "'",
        '"',
        "[",
        "]",
        "|",
        "/",
        "%in%",
        "\n",
        "\0",
        "\ua66e",
        "\ua66e0",
        "中",
        "lambda:",
        "1e9",
        "99",
        "Q(a)",
    ),
)


def formula(source) -> None:
    """Parse words of the grammar, or any text, against columns of all kinds of names."""
    way = source.integer(0, 3)
    data = source.data[:24]  # the parser takes its time for each character
    if way == 0:
        text = "y~" + "".join(NAMES[b % len(NAMES)] + SIGNS[b // 32] for b in data[:9]) + "a"
    elif way == 1:
        text = data.decode("utf-8", "surrogateescape")
    else:
        text = "y ~ " * source.integer(0, 1) + "".join(WORDS[b % len(WORDS)] for b in data)
    terms = parse(text, COLUMNS, {"w": "the weights"})
    assert terms.predictors and {terms.response, *terms.predictors} <= set(COLUMNS) - {"w"}
    assert terms.response not in terms.predictors
    i, j = terms.pairs.T
    assert (
        (i < j).all()
        and (np.diff(i * len(COLUMNS) + j) > 0).all()
        and (j < len(terms.predictors)).all()
    )
