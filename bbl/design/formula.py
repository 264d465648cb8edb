"""Formula: text to response, predictors and interacting pairs; formulaic reads the grammar, nothing is evaluated.

formulaic's lexer and operator grammar give a tree, and this file works out the tree over sets of columns and pairs
of columns. No term is expanded in Python, no model matrix is built, and no part of a formula ever runs: text is
checked against a closed alphabet before formulaic sees it, names in backticks travel under an alias, and all that
looks like code is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from bbl.checks import near_match
from bbl.errors import BBLTypeError, FormulaError

__all__ = ["FormulaTerms", "parse"]

LONGEST = 100_000  # characters of a formula
DEEPEST = 100  # nested parentheses
MANY = 1000  # predictors whose pairs are announced before they are listed
ALIAS = "\ua66e"  # a letter to formulaic; refused outside backticks here, so that aliases are unique
QUOTED = re.compile(r"`([^`]*(?:``[^`]*)*)`")
IDENTITY = re.compile(rf"(?<![\w.])(?:C|factor)\s*\(\s*([\w{ALIAS}][\w.]*)\s*\)")
FOREIGN = re.compile(rf"[^\w\s.+\-*:^()~]|{ALIAS}(?!\d)")
OPERATOR = re.compile(r"~[+-]?|[+-]{1,2}|\*\*?|[:^.]")
ODD = re.compile(r"\w[^\w.]|[^\w.]\w|\A\d+[^\W\d]")  # in a name: a sign or space beside a letter, a digit first
EXPONENT = re.compile(r"[1-9][0-9]?")
EXAMPLE = "Write it like 'y ~ a + b', 'y ~ a*b', 'y ~ (a + b + c)^2' or 'y ~ .^2'"


@dataclass(frozen=True, eq=False)
class FormulaTerms:
    """What a formula asks for.

    Attributes
    ----------
    text : str
        The formula as it was given.
    response : hashable
        Name of the response column.
    predictors : tuple of length m
        Names of the predictors, in order of appearance.
    pairs : ndarray of intp, shape (P, 2), read-only
        Interacting pairs as positions in `predictors`, ``i < j``, lexicographic: the upper triangle of ``qJ``.
    """

    text: str
    response: Hashable
    predictors: tuple[Hashable, ...]
    pairs: np.ndarray


def parse(
    formula: str,
    columns: Sequence[Hashable],
    exclude: Collection[Hashable] = (),
    announce: Callable[[Hashable, list[Hashable]], None] | None = None,
) -> FormulaTerms:
    """Read a formula.

    Grammar: one name, ``~``, then names and ``.`` (all columns but the response and `exclude`) joined by ``+``,
    ``-``, ``:``, ``*``, ``^2`` (or ``**2``) and parentheses. ``C(a)`` and ``factor(a)`` mean ``a``. Any column name
    may stand in backticks, with a backtick in it doubled. The intercept (``1``, ``0``, ``-1``) changes nothing.

    - ``a:b`` also adds ``a`` and ``b``; ``- a`` drops ``a`` and its pairs; ``- a:b`` drops the pair alone, inside
      parentheses too. A later term overrules an earlier one.
    - Terms of three or more predictors are refused, as is everything that would need evaluation.

    Parameters
    ----------
    formula : str
    columns : sequence of hashable
        Column names of the data. A name that is no string is found by its text if that is unambiguous.
    exclude : collection of hashable, optional
        Columns that ``.`` leaves out and that cannot be predictors: the weights.
    announce : callable, optional
        ``announce(response, predictors)`` is called before all pairs of over 1,000 predictors are listed, in a formula
        that drops no terms. It may raise.

    Returns
    -------
    FormulaTerms

    Raises
    ------
    FormulaError
        If the formula is malformed, asks for a name that is no column, or leaves no predictors.
    BBLTypeError
        If it is not a string.

    References
    ----------
    Woo & Wang, section 2.1: the pairs are the non-zero entries of the matrix ``qJ``.

    Examples
    --------
    >>> terms = parse("y ~ a*b + `c d`", ["y", "a", "b", "c d"])
    >>> terms.predictors, terms.pairs.tolist()
    (('a', 'b', 'c d'), [[0, 1]])
    """
    if not isinstance(formula, str):
        raise BBLTypeError(
            f"formula must be a string such as 'y ~ a + b'; got {type(formula).__name__}.", argument="formula"
        )
    try:
        return _parsed(formula, columns, exclude, announce)
    except FormulaError as error:
        if (name := _bare(formula, columns)) is None:
            raise
        text = f"{error} Write the column {name!r} in backticks: {'`' + name.replace('`', '``') + '`'}."
        raise FormulaError(text, column=error.column, argument="formula") from None


def _bare(formula: str, columns: Iterable[Hashable]) -> str | None:
    """Return the longest column name that needs backticks and stands in the formula without them."""
    outside = QUOTED.sub(" ", formula[:LONGEST])
    odd = [str(c) for c in columns if ODD.search(str(c)) and str(c) in outside]
    return max(odd, key=len, default=None)


def _parsed(
    formula: str, columns: Sequence[Hashable], exclude: Collection[Hashable], announce: Callable | None
) -> FormulaTerms:
    """Return what `parse` does."""
    if len(formula) > LONGEST:
        _fail(formula, f"it has {len(formula):,} characters", f"At most {LONGEST:,} are read; use '.' for all columns")
    text, aliases = _sanitise(formula)
    tree = _tree(formula, text)
    if _symbol(tree) != "~" or len(tree.args) != 2:
        _fail(formula, "it must have a response, '~', and predictors", EXAMPLE)
    left, right = tree.args
    names = _Names(formula, columns, exclude, aliases)
    names.announce = None if "-" in text else announce
    if _symbol(left) is not None or left.kind.value != "name":
        _fail(formula, "the response must be the name of one column", "Put an unusual name in backticks, as in `1`")
    names.response = names.find(left.token)
    if names.response in exclude:
        _fail(formula, f"{names.response!r} holds the weights and cannot be the response", "Take another column")
    singles, keys = _evaluate(right, names)
    ends = np.column_stack(np.divmod(keys, names.width))
    present = np.zeros(names.width, dtype=bool)
    present[singles] = present[ends] = True
    predictors = tuple(names.columns[k] for k in np.flatnonzero(present))
    names.check(predictors)
    pairs = (np.cumsum(present, dtype=np.intp) - 1)[ends]
    pairs.setflags(write=False)
    return FormulaTerms(formula, names.response, predictors, pairs)


def _fail(formula: str, what: str, remedy: str, column: Hashable = None) -> NoReturn:
    shown = formula if len(formula) <= 200 else formula[:197] + "..."
    stop = "" if what.endswith("?") else "."
    raise FormulaError(f"formula {shown!r}: {what}{stop} {remedy}.", column=column, argument="formula") from None


def _sanitise(formula: str) -> tuple[str, dict[str, str]]:
    """Return text of names, numbers, operators and parentheses only, and the names that were in backticks."""
    aliases: dict[str, str] = {}

    def alias(match: re.Match) -> str:
        key = f"{ALIAS}{len(aliases)}"
        aliases[key] = match[1].replace("``", "`")
        return f" {key} "

    code = "Formulas are not evaluated: compute the column first, and put unusual column names in backticks"
    text = formula
    if ALIAS in QUOTED.sub("", formula):
        _fail(formula, f"the character {ALIAS!r} cannot be read", code)
    text = IDENTITY.sub(r" \1 ", QUOTED.sub(alias, formula))
    if foreign := FOREIGN.search(text):
        _fail(formula, f"the character {foreign[0]!r} has no meaning", code)
    if call := re.search(r"[\w.)]\s*\(", text):
        _fail(formula, f"{text[: call.end()][-30:].strip()!r} looks like a function call", code)
    # formulaic loses operators next to runs of signs, so that only single signs may reach it
    return re.sub(r"[+-](?:\s*[+-])+", lambda run: "-" if run[0].count("-") % 2 else "+", text), aliases


def _tree(formula: str, text: str) -> Any:
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
        _fail(formula, f"it cannot be read ({reason or type(error).__name__})", EXAMPLE)


def _check_tokens(formula: str, tokens: Iterable[Any]) -> None:
    depth, before = 0, ""  # before: "" after an operator, else the operand or ")" just read; "^" asks for an exponent
    for token in tokens:
        kind, word = token.kind.value, token.token
        if before in ("^", "**"):
            if kind != "value" or not EXPONENT.fullmatch(word):
                _fail(formula, f"the exponent {word!r} is not a whole number in 1..99", "Write ^2 for all pairs")
            before = "exponent"
            continue
        if word in ("^", "**") and before == "exponent":
            _fail(formula, "it has an exponent of an exponent", "Write ^2 for all pairs")
        starts = word == "(" or word == "." or kind in ("name", "value")
        if starts and before:
            _fail(formula, f"there is no operator between {before!r} and {word!r}", EXAMPLE)
        if kind == "value" and word not in ("0", "1"):
            _fail(formula, f"{word!r} is no name", f"Put a column of that name in backticks: `{word}`")
        if kind == "python" or (kind == "operator" and not OPERATOR.fullmatch(word)):
            _fail(formula, f"{word!r} has no meaning", EXAMPLE)
        depth += (word == "(") - (word == ")") if kind == "context" else 0
        if depth > DEEPEST:
            _fail(formula, f"parentheses are nested deeper than {DEEPEST}", "Write it with fewer")
        operator = kind == "operator" and word != "."
        before = word if word in (")", "^", "**") or (starts and word != "(") else "" if operator or starts else word


def _symbol(node: Any) -> str | None:
    """Return the operator of a node, or None for a leaf."""
    operator = getattr(node, "operator", None)
    return None if operator is None else operator.symbol


class _Names:
    """The columns of the data, numbered in order of appearance in the formula."""

    def __init__(self, formula: str, columns: Sequence[Hashable], exclude: Collection[Hashable], aliases: dict):
        self.formula, self.available, self.exclude, self.aliases = formula, tuple(columns), exclude, aliases
        self.known: dict[str, list[Hashable]] = {}
        for column in self.available:
            self.known.setdefault(str(column), []).append(column)
        self.width = len(self.available) + 1
        self.columns: list[Hashable] = []
        self.ids: dict[Hashable, int] = {}
        self.response: Hashable = None
        self.spent = 0
        self.announce: Callable[[Hashable, list[Hashable]], None] | None = None
        self._rest: np.ndarray | None = None

    def find(self, word: str) -> Hashable:
        """Return the column that a word of the formula names."""
        name = self.aliases.get(word, word)
        found = self.known.get(name, ())
        if len(found) != 1:
            found = [column for column in found if isinstance(column, str)]
        if not found:
            shown = ", ".join(map(str, self.available[:10])) + (", and more" if len(self.available) > 10 else "")
            hint = near_match(name[:100], self.available)
            _fail(self.formula, f"{name!r} is not a column of the data{hint}", f"The columns are {shown}", name)
        return found[0]

    def number(self, column: Hashable) -> int:
        """Return the number of a column, which is the next one if the column is new."""
        if column not in self.ids:
            self.ids[column] = len(self.columns)
            self.columns.append(column)
        return self.ids[column]

    def rest(self) -> np.ndarray:
        """Return the numbers of all columns that ``.`` stands for."""
        if self._rest is None:
            left_out = {self.response, *self.exclude}
            self._rest = np.array(sorted(self.number(c) for c in self.available if c not in left_out), dtype=np.int64)
        return self._rest

    def spend(self, terms: int) -> None:
        """Bound the memory and time of formulas that repeat themselves."""
        self.spent += terms
        if self.spent > max(5_000_000, 2 * self.width**2):
            _fail(self.formula, f"it repeats itself: over {self.spent:,} terms", "Write it shorter")

    def triple(self, ids: Iterable[int]) -> NoReturn:
        """Refuse a term of three predictors."""
        three = [str(self.columns[k]) for k in ids][:3]
        what = f"it asks for the term {':'.join(three)} of three or more predictors, but the model is pairwise"
        _fail(self.formula, what, f"Write ({' + '.join(three)})^2 for all pairs")

    def check(self, predictors: tuple) -> None:
        """Refuse formulas without predictors, or with a predictor that has another role."""
        if not predictors:
            _fail(self.formula, "no predictors are left", "Name at least one column on the right of '~'")
        taken = set(predictors)
        if self.response in taken:
            _fail(self.formula, f"the response {self.response!r} is also a predictor", "Drop it", self.response)
        if both := taken.intersection(self.exclude):
            column = both.pop()
            _fail(self.formula, f"{column!r} holds the weights and is also a predictor", "Drop it from one", column)


NONE = np.empty(0, dtype=np.int64)


class _Step(NamedTuple):
    sign: int
    singles: np.ndarray
    keys: np.ndarray
    brought: np.ndarray = NONE  # predictors that stay from pairs which are gone again


class _TermSet:
    """A set of predictors and pairs, kept as steps that add or drop; worked out when it is asked for.

    Pairs are keys ``i * width + j`` with ``i < j``. Keeping the steps makes long sums linear in their length.
    """

    def __init__(self, names: _Names, singles: np.ndarray = NONE, keys: np.ndarray = NONE, number: bool = False):
        self.names = names
        self.steps = [_Step(1, singles, keys)]
        self.number = number  # the intercept: no factor of a product
        names.spend(len(singles) + len(keys))

    def add(self, other: _TermSet, sign: int) -> _TermSet:
        """Add (or drop) the terms of `other`, in place."""
        if sign > 0 and all(step.sign > 0 for step in other.steps):
            self.steps.extend(other.steps)
        else:
            other.resolve()
            self.steps.append(other.steps[0]._replace(sign=sign))
        self.number = False
        return self

    def resolve(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the predictors that stand by themselves and the pair keys that are left, each sorted."""
        if len(self.steps) > 1:
            if all(step.sign > 0 for step in self.steps):
                left = [_union(list(parts)) for parts in zip(*(step[1:] for step in self.steps), strict=True)]
            else:
                left = self._replay()
            self.steps = [_Step(1, *left)]
        return self.steps[0].singles, self.steps[0].keys

    def predictors(self) -> np.ndarray:
        """Return all predictors that are left but for those of the pairs that are left."""
        self.resolve()
        return _union([self.steps[0].singles, self.steps[0].brought])

    def _replay(self) -> list[np.ndarray]:
        """Work out steps some of which drop terms."""
        width = self.names.width
        present, brought = np.zeros((2, width), dtype=bool)
        dropped = np.full(width, -1)
        for at, step in enumerate(self.steps):
            present[step.singles] = step.sign > 0
            if step.sign > 0:
                brought[step.brought] = brought[step.keys // width] = brought[step.keys % width] = True
            else:
                brought[step.singles] = False
                dropped[step.singles] = at
        left = [np.flatnonzero(present), NONE, np.flatnonzero(brought)]
        steps = [(at, step.sign, step.keys) for at, step in enumerate(self.steps) if len(step.keys)][::-1]
        if not steps:
            return left
        # the last step that touches a pair decides, unless one of its predictors is dropped later
        length = [len(keys) for _, _, keys in steps]
        keys, last = np.unique(np.concatenate([keys for _, _, keys in steps]), return_index=True)
        when = np.repeat([at for at, _, _ in steps], length)[last]
        alive = np.repeat([sign > 0 for _, sign, _ in steps], length)[last]
        alive &= (when > dropped[keys // width]) & (when > dropped[keys % width])
        left[1] = keys[alive]
        return left

    def product(self, other: _TermSet) -> _TermSet:
        """Return all terms made of one term of each: ``self:other``."""
        if self.number or other.number:
            _fail(self.names.formula, "1 is the intercept and no factor of a product", "Put the column 1 in backticks")
        self.names.spend(300)
        (singles, keys), (others, other_keys) = self.resolve(), other.resolve()
        crossed, both = self._cross(singles, others), np.intersect1d(singles, others)
        if not len(keys) and not len(other_keys):
            return _TermSet(self.names, both, crossed)
        self._check_pairs(keys, others, other_keys)
        self._check_pairs(other_keys, singles, keys)
        own = keys if len(others) or len(other_keys) else NONE
        theirs = other_keys if len(singles) or len(keys) else NONE
        return _TermSet(self.names, both, _union([own, theirs, crossed]))

    def _check_pairs(self, keys: np.ndarray, singles: np.ndarray, others: np.ndarray) -> None:
        """Refuse a product of pairs with predictors, or other pairs, that are not inside each of the pairs."""
        width = self.names.width
        ends = np.column_stack(np.divmod(keys, width))
        for k in singles[:3]:  # no pair holds a third
            outside = (ends != k).all(axis=1)
            if outside.any():
                self.names.triple([*ends[outside.argmax()], k])
        if len(keys) and len(others) and (outside := keys != others[0]).any():
            self.names.triple(dict.fromkeys([*ends[outside.argmax()], *divmod(others[0], width)]))

    def _cross(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the keys of all pairs of one predictor in `a` and another in `b`."""
        if len(a) == len(b) and (a == b).all():
            self.names.spend(len(a) ** 2 // 2)
            if self.names.announce is not None and len(a) > MANY:
                self.names.announce(self.names.response, [self.names.columns[k] for k in a])
            i, j = np.triu_indices(len(a), 1)
            return a[i] * self.names.width + a[j]
        if len(a) == len(b) == 1:
            return np.sort([a[0], b[0]]).dot([self.names.width, 1])[None]
        self.names.spend(len(a) * len(b))
        i, j = np.repeat(a, len(b)), np.tile(b, len(a))
        keys = np.minimum(i, j) * self.names.width + np.maximum(i, j)
        return np.unique(keys[i != j])

    def power(self, exponent: int) -> _TermSet:
        """Return the terms made of up to `exponent` terms."""
        base, result = _TermSet(self.names, *self.resolve()), self
        if exponent > 2 and len(base.steps[0].singles) > 2:
            self.names.triple(base.steps[0].singles)
        for _ in range(min(exponent, 3) - 1):  # a third factor adds nothing unless it is refused
            result = result.product(base)
        if result is not self:
            result.steps.append(_Step(1, NONE, NONE, self.steps[0].brought))
        return result


def _union(arrays: list[np.ndarray]) -> np.ndarray:
    """Return the sorted union of arrays, each sorted and without repeats."""
    filled = [array for array in arrays if len(array)]
    return np.unique(np.concatenate(filled)) if len(filled) > 1 else filled[0] if filled else NONE


def _evaluate(tree: Any, names: _Names) -> tuple[np.ndarray, np.ndarray]:
    """Work out a syntax tree from the leaves up, left to right, without recursion."""
    todo: list[tuple[Any, bool]] = [(tree, False)]
    done: list[_TermSet] = []
    while todo:
        node, ready = todo.pop()
        symbol = _symbol(node)
        if symbol is None:
            number = node.kind.value == "value"
            leaf = NONE if number else np.array([names.number(names.find(node.token))])
            done.append(_TermSet(names, leaf, number=number))
        elif symbol == ".":
            done.append(_TermSet(names, names.rest()))
        elif not ready:
            todo.append((node, True))
            args = node.args[:1] if symbol in ("^", "**") else node.args
            todo.extend((arg, False) for arg in reversed(args))
        elif symbol in ("^", "**"):
            done.append(done.pop().power(int(node.args[1].token)))
        elif len(node.args) == 1:  # a sign in front
            if symbol == "-":
                done[-1] = _TermSet(names)
        else:
            right, left = done.pop(), done.pop()
            done.append(_combine(symbol, left, right))
    return done[0].predictors(), done[0].resolve()[1]


def _combine(symbol: str, left: _TermSet, right: _TermSet) -> _TermSet:
    if symbol == "+" or symbol == "-":
        return left.add(right, 1 if symbol == "+" else -1)
    crossed = left.product(right)
    return crossed if symbol == ":" else left.add(right, 1).add(crossed, 1)
