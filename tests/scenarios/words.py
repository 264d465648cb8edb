"""Names of columns, groups and levels: plain ones, and those that are likely to meet something of
ours.
"""

from __future__ import annotations

import functools
import inspect
import warnings

import pandas as pd

import bbl

__all__ = ["NAME_STYLES", "column_names", "level_names"]

NAME_STYLES = ("plain", "words", "unicode", "punctuation", "long")
PUNCTUATION = (
    "a:b",
    "a b",
    "a=b",
    "x, y",
    "(baseline)",
    "a | b",
    "1",
    "a`b",
    '"q"',
    "<scenario>",
    "%s",
    "{0}",
    "a\\b",
    "$x$",
    "_",
    "a.b",
    "a*b",
    "~",
    "^2",
    "&amp;",
    "#",
    "a/b",
    "'",
    "a-b",
    "nan",
    "NA",
    "None",
    "True",
    "-1",
    "1e5",
    "a\tb",
    " a",
)
UNICODE = (
    "été",
    "naïve",
    "雪",
    "Ωmega",
    "ß",
    "дом",
    "e\u0301",
    "🙂",
    "\u200bx",
    "İ",
    "ſ",
    "ﬁ",
    "µ",
    "μ",
    "Å",
)  # noqa: RUF001


@functools.cache
def frame_words() -> tuple[str, ...]:
    """Return every column and index name of the frames that a small fit returns, and words of other
    frames.
    """
    data = pd.DataFrame({"y": list("aabbab"), "u": list("pqpqpp"), "v": list("stssts")})
    words = {
        "yhat",
        "weights",
        "index",
        "observed",
        "predicted",
        "level_0",
        "predictor3",
        "order",
        "fold",
        "count",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bbl.bbl("y ~ .^2", data, verbose=0)
        parts = [fit, fit.inference(), fit.explain(data), fit.evaluate(data), fit.importance(data)]
        for part in parts:
            for name in dir(part):
                if name.startswith("_"):
                    continue
                try:
                    value = getattr(part, name)
                    if callable(value) and name in (
                        "table",
                        "tests",
                        "interactions",
                        "tidy",
                        "roc",
                    ):
                        value = value()
                except bbl.BBLError:
                    continue
                if isinstance(value, pd.DataFrame | pd.Series):
                    found = [
                        *value.index.names,
                        *(value.columns if isinstance(value, pd.DataFrame) else [value.name]),
                    ]
                    words |= {word for word in found if isinstance(word, str)}
    words |= {name for name in inspect.signature(bbl.bbl).parameters if name != "formula"}
    return tuple(sorted(words - {"a", "b", "p", "q"} | {"p"}))


def column_names(style: str, m: int, seed: int) -> list[str]:
    """Return the name of the response and of `m` predictors."""
    if style == "plain":
        return ["y", *(f"x{i}" for i in range(m))]
    pool = {
        "words": frame_words(),
        "unicode": UNICODE,
        "punctuation": PUNCTUATION,
        "long": ("n" * 60,),
    }[style]
    names: list[str] = []
    for i in range(m + 1):
        name = pool[(seed + i * 7) % len(pool)]
        names.append(name if name not in names and style != "long" else f"{name}{i}")
    return names


def level_names(style: str, count: int, seed: int) -> list[str]:
    """Return `count` different texts for the levels of a column."""
    if style == "plain":
        return [f"v{a}" for a in range(count)]
    pool = {
        "words": frame_words(),
        "unicode": UNICODE,
        "punctuation": PUNCTUATION,
        "long": ("L" * 60,),
    }[style]
    names: list[str] = []
    for a in range(count):
        name = pool[(seed * 5 + a) % len(pool)]
        names.append(name if name not in names and style != "long" else f"{name}{a}")
    return names
