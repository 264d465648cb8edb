"""Convert a formula to formulaic's syntax tree, and raise an error if it contains code.

An *alias* is a word that replaces a name in backticks.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Hashable, Iterable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from bbl.errors import FormulaError

if TYPE_CHECKING:
    from formulaic.parser.types import ASTNode, OperatorResolver, Token

__all__ = [
    "ALIAS_PREFIX",
    "EXAMPLE",
    "QUOTED",
    "fail",
    "import_parser",
    "key_of",
    "number_of",
    "quoted",
    "sanitise",
    "symbol_of",
    "syntax_tree",
]

MAX_DEPTH = 100  # maximum depth of nested parentheses
# formulaic treats this character as a letter. Users can write it only in backticks, so aliases are
# never equal to column names
ALIAS_PREFIX = "\ua66e"
# a name in backticks; backticks within the name are doubled
QUOTED = re.compile(r"`([^`]*(?:``[^`]*)*)`")
# C(a), factor(a)
FACTOR_CALL = re.compile(rf"(?<![\w.])(?:C|factor)\s*\(\s*([\w{ALIAS_PREFIX}][\w.]*)\s*\)")
# C(a, Treatment("q")), relevel(a, ref="q"): a choice of the reference level
REFERENCE_CALL = re.compile(
    r"(?<![\w.])(?:C|factor|relevel|fct_relevel|contr_treatment)\s*\(\s*(`[^`]*`|[\w.]+)\s*,"
    r"\s*(?:Treatment|contr|ref|base|[\"'])"
)
# a character that cannot occur in formulas
FOREIGN = re.compile(rf"(?!%in%|(?<=%in)%)[^\w\s.+\-*/:^()~]|{ALIAS_PREFIX}(?!\d)")
OPERATOR = re.compile(r"~[+-]?|[+-]{1,2}|\*\*?|[/:^.]|in")
EXPONENT = re.compile(r"[1-9][0-9]?")
POWER = re.compile(r"(?:\^|\*\*)\s*([0-9][\w.]*)")  # the group is the exponent
EXAMPLE = "Write it like 'y ~ a + b', 'y ~ a*b', 'y ~ (a + b + c)^2' or 'y ~ .^2'"


def quoted(name: object) -> str:
    """Return a column name in backticks."""
    return "`" + str(name).replace("`", "``") + "`"


def fail(formula: str, what: str, *, hint: str, column: Hashable = None) -> NoReturn:
    """Raise a FormulaError with the message `what` about `formula`.

    `what` and `hint` must not end with a full stop.
    """
    shown_formula = formula if len(formula) <= 200 else formula[:197] + "..."
    raise FormulaError(
        f"formula {shown_formula!r}: {what}.",
        hint=f"{hint}.",
        column=column,
        argument="formula",
        value=formula,
    ) from None


def sanitise(formula: str) -> tuple[str, dict[str, str]]:
    """Replace names in backticks by aliases, and raise an error if the formula contains code.

    Return the formula and a dict from aliases to names.
    """
    aliases: dict[str, str] = {}

    def replace_by_alias(match: re.Match) -> str:
        """Store the name matched by `QUOTED` under a new alias, and return this alias."""
        word = f"{ALIAS_PREFIX}{len(aliases)}"
        aliases[word] = match[1].replace("``", "`")
        return f" {word} "

    remedy = (
        "Formulas are not evaluated: compute the column first, and put unusual column names in "
        "backticks"
    )
    if levels_match := REFERENCE_CALL.search(formula):
        name = levels_match[1].strip("`")
        remedy = (
            f"Write only the column name, and list its levels with the reference level first: "
            f"xlevels={{{name!r}: [...]}}"
        )
    if ALIAS_PREFIX in QUOTED.sub("", formula):
        fail(formula, f"the character {ALIAS_PREFIX!r} is not allowed", hint=remedy)
    # C(a) and factor(a) are replaced by a
    text = FACTOR_CALL.sub(r" \1 ", QUOTED.sub(replace_by_alias, formula))
    if foreign_match := FOREIGN.search(text):
        fail(formula, f"the character {foreign_match[0]!r} is not allowed", hint=remedy)
    for exponent in POWER.findall(text):  # formulaic would treat an exponent of 0 as "- 1"
        if not EXPONENT.fullmatch(exponent):
            fail(
                formula,
                f"the exponent {exponent!r} is not an integer between 1 and 99",
                hint="Write ^2 for all pairs",
            )
    if call_match := re.search(r"[\w.)]\s*\(", text):
        fail(
            formula,
            f"{text[: call_match.end()][-30:].strip()!r} looks like a function call",
            hint=remedy,
        )
    # formulaic loses operators next to repeated signs, so each run of signs is replaced by one sign
    return re.sub(
        r"[+-](?:\s*[+-])+", lambda sign_run: "-" if sign_run[0].count("-") % 2 else "+", text
    ), aliases


class _LatePackage(ModuleType):
    """A package that runs its ``__init__`` only when an attribute other than a submodule is used.

    With the standard library's ``LazyLoader``, importing a submodule would already run
    ``__init__``.
    """

    def __getattr__(self, name: str) -> Any:
        """Run the package's ``__init__`` unless it has run already, and return the attribute
        `name`.
        """
        with _package_lock:
            if type(self) is _LatePackage:
                self.__class__ = ModuleType  # type: ignore[assignment]
                self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)


_package_lock = threading.RLock()


def import_parser() -> None:
    """Import ``formulaic.parser`` without the rest of formulaic.

    formulaic's model matrices, which bbl does not use, import most of scipy and would take half the
    time of the first fit.
    """
    with _package_lock:
        spec = None if "formulaic" in sys.modules else find_spec("formulaic")
        if spec is not None:
            package = module_from_spec(spec)
            package.__class__ = _LatePackage
            sys.modules["formulaic"] = package
    import_module("formulaic.parser")


def key_of(number: int) -> str:
    """Return the name that formulaic uses for a column; the intercept is the literal 1."""
    return f"_{number}"


def number_of(key: str) -> int:
    """Return the column number of a key (inverse of `key_of`)."""
    return int(key[1:])


def syntax_tree(
    formula: str, text: str, operators: OperatorResolver
) -> tuple[list[Token], ASTNode | Token]:
    """Return formulaic's tokens and syntax tree of `text`, which is the sanitised `formula`.

    Text that formulaic would misinterpret raises an error.
    """
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(operators, include_intercept=False)
    try:
        tokens = list(parser.get_tokens(text))
        _check_tokens(formula, tokens)
        return tokens, parser.get_ast_from_tokens(tokens, context={})
    except FormulaError:
        raise
    except Exception as error:  # formulaic raises errors of many types
        # the first line of the message, without colour codes
        reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split("\n")[0].rstrip(".")
        fail(formula, f"it cannot be read ({reason or type(error).__name__})", hint=EXAMPLE)


def _check_tokens(formula: str, tokens: Iterable[Token]) -> None:
    """Raise an error for tokens that only formulaic accepts: missing operators, invalid exponents,
    deep nesting.

    A token has the text `token` and a kind, ``kind.value``: "name", "value" (a number), "operator",
    "context" (a parenthesis) or "python" (code). `previous` is "" at the beginning and after an
    operator or "(", where an operand may start. After a power sign, `previous` is this sign, and an
    exponent must follow. After an operand, `previous` is the operand, ")" or the word "exponent",
    and an operator must follow.
    """
    depth = 0
    previous = ""
    for token in tokens:
        kind = token.kind.value
        word = token.token
        if previous in ("^", "**"):
            if kind != "value" or not EXPONENT.fullmatch(word):
                fail(
                    formula,
                    f"the exponent {word!r} is not an integer between 1 and 99",
                    hint="Write ^2 for all pairs",
                )
            previous = "exponent"
            continue
        if word in ("^", "**") and previous == "exponent":
            fail(formula, "one exponent follows another", hint="Write ^2 for all pairs")
        starts_operand = word == "(" or word == "." or kind in ("name", "value")
        if starts_operand and previous:
            fail(formula, f"there is no operator between {previous!r} and {word!r}", hint=EXAMPLE)
        if kind == "value" and word not in ("0", "1"):
            fail(
                formula,
                f"{word!r} is not a name",
                hint=f"If this is a column name, put it in backticks: `{word}`",
            )
        if kind == "python" or (kind == "operator" and not OPERATOR.fullmatch(word)):
            fail(formula, f"{word!r} is not allowed", hint=EXAMPLE)
        depth += (word == "(") - (word == ")") if kind == "context" else 0  # of parentheses
        if depth > MAX_DEPTH:
            fail(
                formula,
                f"parentheses are nested deeper than {MAX_DEPTH}",
                hint="Use fewer nested parentheses",
            )
        if word in (")", "^", "**") or (starts_operand and word != "("):
            previous = word
        # "(" or an operator; formulas contain no other kinds of tokens
        else:
            previous = "" if starts_operand or kind == "operator" else word


def symbol_of(node: ASTNode | Token) -> str | None:
    """Return the operator in a node of the syntax tree, such as ``"+"``, or None for a leaf."""
    operator = getattr(node, "operator", None)
    return None if operator is None else operator.symbol
