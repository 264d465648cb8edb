"""Grammar: the text of a formula to formulaic's syntax tree, everything that could be code refused before."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NoReturn

from bbl.errors import FormulaError

if TYPE_CHECKING:
    from formulaic.parser.types import ASTNode, Token

__all__ = ["EXAMPLE", "QUOTED", "fail", "quoted", "sanitised", "symbol_of", "syntax_tree"]

DEEPEST = 100  # nested parentheses
ALIAS = "\ua66e"  # a letter to formulaic; refused outside backticks here, so that aliases are unique
QUOTED = re.compile(r"`([^`]*(?:``[^`]*)*)`")
IDENTITY = re.compile(rf"(?<![\w.])(?:C|factor)\s*\(\s*([\w{ALIAS}][\w.]*)\s*\)")
FOREIGN = re.compile(rf"[^\w\s.+\-*:^()~]|{ALIAS}(?!\d)")
OPERATOR = re.compile(r"~[+-]?|[+-]{1,2}|\*\*?|[:^.]")
EXPONENT = re.compile(r"[1-9][0-9]?")
POWER = re.compile(r"(?:\^|\*\*)\s*([0-9][\w.]*)")
EXAMPLE = "Write it like 'y ~ a + b', 'y ~ a*b', 'y ~ (a + b + c)^2' or 'y ~ .^2'"


def quoted(name: object) -> str:
    """Return a column's name in backticks, as formulas take any name."""
    return "`" + str(name).replace("`", "``") + "`"


def fail(formula: str, what: str, remedy: str, column: Hashable = None) -> NoReturn:
    """Raise the error of a formula, with the problem and the remedy."""
    shown = formula if len(formula) <= 200 else formula[:197] + "..."
    stop = "" if what.endswith("?") else "."
    raise FormulaError(f"formula {shown!r}: {what}{stop} {remedy}.", column=column, argument="formula") from None


def sanitised(formula: str) -> tuple[str, dict[str, str]]:
    """Return text of names, numbers, operators and parentheses only, and the names that were in backticks."""
    aliases: dict[str, str] = {}

    def alias(match: re.Match) -> str:
        key = f"{ALIAS}{len(aliases)}"
        aliases[key] = match[1].replace("``", "`")
        return f" {key} "

    code = "Formulas are not evaluated: compute the column first, and put unusual column names in backticks"
    text = formula
    if ALIAS in QUOTED.sub("", formula):
        fail(formula, f"the character {ALIAS!r} cannot be read", code)
    text = IDENTITY.sub(r" \1 ", QUOTED.sub(alias, formula))
    if foreign := FOREIGN.search(text):
        fail(formula, f"the character {foreign[0]!r} has no meaning", code)
    for exponent in POWER.findall(text):  # formulaic would make "- 1" of an exponent 0
        if not EXPONENT.fullmatch(exponent):
            fail(formula, f"the exponent {exponent!r} is not a whole number in 1..99", "Write ^2 for all pairs")
    if call := re.search(r"[\w.)]\s*\(", text):
        fail(formula, f"{text[: call.end()][-30:].strip()!r} looks like a function call", code)
    # formulaic loses operators next to runs of signs, so that only single signs may reach it
    return re.sub(r"[+-](?:\s*[+-])+", lambda run: "-" if run[0].count("-") % 2 else "+", text), aliases


def syntax_tree(formula: str, text: str) -> ASTNode | Token:
    """Return formulaic's syntax tree, having bounded what makes its parser slow."""
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(include_intercept=False)
    try:
        _check_tokens(formula, list(parser.get_tokens(text)))
        return parser.get_ast(text)
    except FormulaError:
        raise
    except Exception as error:  # formulaic leaks many kinds
        reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split("\n")[0].rstrip(".")
        fail(formula, f"it cannot be read ({reason or type(error).__name__})", EXAMPLE)


def _check_tokens(formula: str, tokens: Iterable[Token]) -> None:
    depth, before = 0, ""  # before: "" after an operator, else the operand or ")" just read; "^" asks for an exponent
    for token in tokens:
        kind, word = token.kind.value, token.token
        if before in ("^", "**"):
            if kind != "value" or not EXPONENT.fullmatch(word):
                fail(formula, f"the exponent {word!r} is not a whole number in 1..99", "Write ^2 for all pairs")
            before = "exponent"
            continue
        if word in ("^", "**") and before == "exponent":
            fail(formula, "it has an exponent of an exponent", "Write ^2 for all pairs")
        starts = word == "(" or word == "." or kind in ("name", "value")
        if starts and before:
            fail(formula, f"there is no operator between {before!r} and {word!r}", EXAMPLE)
        if kind == "value" and word not in ("0", "1"):
            fail(formula, f"{word!r} is no name", f"Put a column of that name in backticks: `{word}`")
        if kind == "python" or (kind == "operator" and not OPERATOR.fullmatch(word)):
            fail(formula, f"{word!r} has no meaning", EXAMPLE)
        depth += (word == "(") - (word == ")") if kind == "context" else 0
        if depth > DEEPEST:
            fail(formula, f"parentheses are nested deeper than {DEEPEST}", "Write it with fewer")
        operator = kind == "operator" and word != "."
        before = word if word in (")", "^", "**") or (starts and word != "(") else "" if operator or starts else word


def symbol_of(node: ASTNode | Token) -> str | None:
    """Return the operator of a node, or None for a leaf."""
    operator = getattr(node, "operator", None)
    return None if operator is None else operator.symbol
