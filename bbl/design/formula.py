"""Parse a formula into the response, the predictors and their interaction terms of any order.

formulaic parses the text and expands its operators. No model matrix is built, and no part of a
formula is evaluated as code. Names in backticks are replaced by aliases and column names by
numbers, and only characters of a fixed alphabet are passed to formulaic.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from bbl.capabilities import NO_RESPONSE  # the words "it must have a response"
from bbl.checks import near_match
from bbl.design.grammar import (
    ALIAS_PREFIX,
    EXAMPLE,
    QUOTED,
    fail,
    import_parser,
    key_of,
    quoted,
    sanitise,
    symbol_of,
    syntax_tree,
)
from bbl.design.interactions import Cube, Interactions
from bbl.errors import BBLTypeError, FormulaError

if TYPE_CHECKING:
    from formulaic.parser.types import ASTNode, Token

__all__ = ["FormulaTerms", "as_term", "check_formula", "parse", "write_formula"]

MAX_LENGTH = 100_000  # maximum number of characters of a formula
# maximum number of terms created for a formula, or 2 x (columns + 1)^2 if this is larger
MAX_TERMS = 5_000_000
# columns with the row labels that pandas stores in Arrow and Parquet
ROW_INDEX = re.compile(r"__index_level_\d+__")
# a sign or a space next to a letter, or a leading digit
NEEDS_BACKTICKS = re.compile(r"\w[^\w.]|[^\w.]\w|\A\d+[^\W\d]")


@dataclass(frozen=True, eq=False)
class FormulaTerms:
    """The variables and terms of a formula.

    Attributes
    ----------
    text : str
        The formula as written by the user.
    interactions : Interactions
        Terms of two or more predictors, represented by positions in `predictors`.
    """

    text: str
    response: Hashable  # column name; None if the formula has no response
    predictors: tuple[Hashable, ...]  # m column names, in order of appearance
    interactions: Interactions

    @property
    def columns(self) -> list[Hashable]:
        """The columns in the formula: the response, if there is one, and the predictors."""
        return [*([] if self.response is None else [self.response]), *self.predictors]

    @property
    def terms(self) -> tuple[np.ndarray, ...]:
        """Terms of order 2, 3, ..., a read-only array (T_k, k) for each order."""
        return self.interactions.arrays

    @property
    def pairs(self) -> np.ndarray:
        """The terms of order 2, shape (P, 2), read-only: the upper triangle of ``qJ`` in R's
        bbl.
        """
        return self.interactions.list_terms(2)

    @property
    def complete(self) -> bool:
        """Whether the interaction terms are exactly all pairs of predictors."""
        return self.interactions.are_all_pairs(len(self.predictors))

    @property
    def order(self) -> int:
        """The highest order of a term, or 1 if the formula has no interactions."""
        return self.interactions.order


def parse(
    formula: str,
    columns: Sequence[Hashable],
    exclude: Mapping[Hashable, str] | None = None,
    order: int | None = 2,
    empty: bool = False,
    one_sided: bool = False,
    reason: str = "",
    aside: Collection[Hashable] = (),
) -> FormulaTerms:
    """Parse a formula.

    Grammar: one name, ``~``, then names and ``.`` (all columns except the response, `exclude` and
    pandas row labels in Arrow) joined by ``+``, ``-``, ``:``, ``*``, ``/``, ``%in%``, ``^k`` (or
    ``**k``) and parentheses. ``C(a)`` and ``factor(a)`` are equivalent to ``a``. Column names can
    be written in backticks; backticks within a name are doubled. The intercept (``1``, ``0``,
    ``-1``) has no effect.

    - ``a:b`` also adds ``a`` and ``b``, so ``a/b`` and ``b %in% a`` are the same as ``a*b``; ``(a +
      b)/c`` adds ``a:b:c``.
    - ``- a`` drops ``a`` and its terms; ``- a:b`` drops only the pair, also inside parentheses.
      Later terms override earlier ones.
    - Terms of more than `order` predictors, function calls and arithmetic raise an error.

    Parameters
    ----------
    formula : str
    columns : sequence of hashable
        Column names of the data. Names that are not strings are matched by their text if it is
        unique.
    exclude : mapping of hashable to str, optional
        Columns that are excluded from ``.`` and cannot be predictors, with a description of their
        contents, such as ``"the weights"``.
    order : int or None, default 2
        Highest order of a term that the engine supports (`Engine.order`); None for any order.
    empty : bool, default False
        Whether the formula may have no predictors.
    one_sided : bool, default False
        Whether the formula may omit the response: ``"~ a + b"``.
    reason : str, optional
        Reason why the engine supports no higher order, for the error message.
    aside : collection of hashable, optional
        Columns of a sampling design, which are excluded from ``.`` but may be named in the formula.

    Returns
    -------
    FormulaTerms

    Raises
    ------
    FormulaError
        If the formula is malformed, contains an unknown column, has a term of more than `order`
        predictors, or has no predictors.
    BBLTypeError
        If the formula is not a string.

    References
    ----------
    Woo & Wang (2022), section 2.1: the pairs are the non-zero entries of the matrix ``qJ``.

    Examples
    --------
    >>> terms = parse("y ~ a*b + `c d`", ["y", "a", "b", "c d"])
    >>> terms.predictors, terms.pairs.tolist()
    (('a', 'b', 'c d'), [[0, 1]])
    >>> [rows.tolist() for rows in parse("y ~ a*b*c - a:b", ["y", "a", "b", "c"], order=3).terms]
    [[[0, 2], [1, 2]], [[0, 1, 2]]]
    """
    check_formula(formula)
    try:
        return _parse(formula, columns, exclude or {}, order, empty, one_sided, reason, aside)
    except FormulaError as error:
        if (name := _unquoted_name(formula, columns)) is None:
            raise
        raise FormulaError(
            error.message,
            column=error.column,
            argument="formula",
            hint=f"Write the column {name!r} in backticks: {quoted(name)}.",
        ) from None


def check_formula(formula: object) -> None:
    """Raise an error if the formula is not a string, for example because data and formula are
    swapped.
    """
    if not isinstance(formula, str):
        raise BBLTypeError(
            f"formula must be a string such as 'y ~ a + b'; got {type(formula).__name__}.",
            argument="formula",
            hint="Pass the formula before the data.",
        )


def _unquoted_name(formula: str, columns: Iterable[Hashable]) -> str | None:
    """Return the longest column name that is written without the backticks it needs, or None."""
    unquoted_text = QUOTED.sub(" ", formula[:MAX_LENGTH])
    names = [str(c) for c in columns if NEEDS_BACKTICKS.search(str(c)) and str(c) in unquoted_text]
    return max(names, key=len, default=None)


def _parse(
    formula: str,
    columns: Sequence[Hashable],
    exclude: Mapping[Hashable, str],
    order: int | None,
    empty: bool,
    one_sided: bool,
    reason: str,
    aside: Collection[Hashable],
) -> FormulaTerms:
    """Parse a formula in the same way as `parse`, but without the hint about backticks."""
    if len(formula) > MAX_LENGTH:
        fail(
            formula,
            f"it has {len(formula):,} characters",
            hint=f"Write at most {MAX_LENGTH:,} characters, for example with '.' for all columns",
        )
    text, aliases = sanitise(formula)
    numbered_columns = _Columns(formula, columns, exclude, aliases, aside)
    import_parser()
    from bbl.design.expansion import Expansion  # this imports formulaic, which is slow

    expansion = Expansion(numbered_columns.spend, numbered_columns.refuse_intercept)
    tokens, tree = syntax_tree(formula, text, expansion)
    # two sides; a formula with one side is allowed if the response may be omitted
    if symbol_of(tree) != "~" or len(tree.args) not in ((1, 2) if one_sided else (2,)):
        fail(formula, f"{NO_RESPONSE}, '~', and predictors", hint=EXAMPLE)
    if len(tree.args) == 2:
        numbered_columns.response = _find_response(tree.args[0], numbered_columns)
    all_columns = numbered_columns.replace_names(tokens)
    term_set = expansion.expand(tree.args[-1], all_columns)
    predictor_numbers = term_set.predictors()
    interactions = term_set.interactions()
    predictors = tuple(numbered_columns.columns[k] for k in predictor_numbers)
    numbered_columns.check_predictors(predictors, empty)
    # position in `predictors` by column number
    position_of_number = np.zeros(numbered_columns.width, dtype=np.intp)
    position_of_number[predictor_numbers] = np.arange(len(predictor_numbers))
    terms = FormulaTerms(
        formula, numbered_columns.response, predictors, interactions.renumbered(position_of_number)
    )
    if order is not None and terms.order > order:
        _refuse_order(terms, order, reason)
    return terms


def write_formula(
    response: Hashable, predictors: Sequence[Hashable], terms: Collection[tuple[int, ...]]
) -> FormulaTerms:
    """Return the formula of a model with these terms.

    Parameters
    ----------
    response : column name; None for a formula without a response
    predictors : sequence of m column names
    terms : collection of tuples of int
        Terms of two or more predictors, as increasing positions in `predictors`. If the model
        contains all subterms of its terms, only the largest terms are written.

    Examples
    --------
    >>> write_formula("y", ["a", "b", "c d"], [(0, 1)]).text
    'y ~ a*b + `c d`'
    """
    term_sets = {frozenset(term) for term in terms}
    # all terms with one predictor removed; smaller sub-terms are sub-terms of these
    sub_terms = {part for term in term_sets for part in (term - {i} for i in term) if len(part) > 1}
    # if the model contains all sub-terms, write a*b*c, otherwise a:b:c
    operator, written_sets = (
        ("*", term_sets - sub_terms) if sub_terms <= term_sets else (":", term_sets)
    )
    covered = frozenset().union(*written_sets)
    written_terms = sorted(
        [sorted(term) for term in written_sets]
        + [[i] for i in range(len(predictors)) if i not in covered]
    )
    right_side = " + ".join(
        operator.join(as_term(predictors[i]) for i in term) for term in written_terms
    )
    left_side = "" if response is None else f"{as_term(response)} "
    terms_by_order: dict[int, list[tuple[int, ...]]] = {}
    for term in sorted(terms):
        terms_by_order.setdefault(len(term), []).append(term)
    arrays = {k: np.array(rows, dtype=np.intp) for k, rows in terms_by_order.items()}
    return FormulaTerms(
        f"{left_side}~ {right_side}", response, tuple(predictors), Interactions(Cube(), arrays)
    )


def as_term(name: Hashable) -> str:
    """Return a column name in the form required in a formula, which is in backticks unless it is a
    plain word.
    """
    text = str(name)
    return text if text.isidentifier() and ALIAS_PREFIX not in text else quoted(text)


def has_square(formula: str, name: Hashable) -> bool:
    """Return whether a formula contains the product of a column with itself.

    Examples
    --------
    >>> has_square("y ~ a + u:u", "u"), has_square("y ~ u + a:u", "u")
    (True, False)
    """
    term = re.escape(as_term(name))
    return re.search(rf"(?<![\w.`]){term}\s*:\s*{term}(?![\w.`])", formula) is not None


def _find_response(left: ASTNode | Token, columns: _Columns) -> Hashable:
    """Return the response, which is the column named in `left`, the tree to the left of the
    tilde.
    """
    if symbol_of(left) is not None or left.kind.value != "name":
        text = "the response must be the name of one column"
        fail(columns.formula, text, hint="Put an unusual name in backticks, as in `1`")
    response = columns.find(left.token)
    # A column may have the name None, but elsewhere None means "no response".
    if response is None:
        fail(columns.formula, "the response is a column without a name", hint="Rename it")
    if response in columns.exclude:
        fail(
            columns.formula,
            f"{response!r} contains {columns.exclude[response]} and cannot be the response",
            hint="Choose another column",
        )
    return response


def _refuse_order(terms: FormulaTerms, order: int, reason: str) -> NoReturn:
    """Raise an error about a term of more than `order` predictors.

    `reason` states why the engine does not support such terms; it may be empty.
    """
    # positions of a term with more than `order` predictors
    term = terms.interactions.find_term(order + 1) or ()
    names = [as_term(terms.predictors[i]) for i in term][: order + 1]
    count = f"{order + 1}"
    why = f"the method supports at most {order}"
    allowed = f"terms of up to {order}"
    if order == 2:
        count = "three"
        why = "the model is pairwise"
        allowed = "pairs"
    why = reason or why
    text = f"it contains {':'.join(names)}, a term of {count} or more predictors, but {why}"
    fail(terms.text, text, hint=f"Write ({' + '.join(names)})^{order} for all {allowed}")


class _Columns:
    """The columns of the data, numbered in order of appearance in the formula.

    `aliases` maps the words that replace names in backticks to these names; the other arguments are
    the same as in `parse`.
    """

    def __init__(
        self,
        formula: str,
        columns: Sequence[Hashable],
        exclude: Mapping[Hashable, str],
        aliases: dict,
        aside: Collection[Hashable],
    ):
        self.formula = formula
        self.available = tuple(columns)
        self.exclude = exclude
        self.aliases = aliases
        self.aside = aside
        # a number and its text may both be column names
        self.columns_by_text: dict[str, list[Hashable]] = {}
        for column in self.available:
            self.columns_by_text.setdefault(str(column), []).append(column)
        self.width = len(self.available) + 1  # larger than all column numbers
        self.columns: list[Hashable] = []  # by number
        self.numbers: dict[Hashable, int] = {}  # by column
        self.response: Hashable = None
        self.n_terms = 0  # created so far

    def find(self, word: str) -> Hashable:
        """Return the column named by a word in the syntax tree; raise an error for other words."""
        name = self.aliases.get(word, word)
        matches = self.columns_by_text.get(name, ())
        # if several columns have this text, the column with a string as its name is used
        if len(matches) != 1:
            matches = [column for column in matches if isinstance(column, str)]
        if not matches:
            shown = ", ".join(map(str, self.available[:10])) + (
                ", and more" if len(self.available) > 10 else ""
            )
            near = near_match(name[:100], self.available)
            fail(
                self.formula,
                f"{name!r} is not a column of the data",
                hint=f"{near}Choose one of its columns: {shown}",
                column=name,
            )
        return matches[0]

    def number(self, column: Hashable) -> int:
        """Return the number of a column; a new column receives the next number."""
        if column not in self.numbers:
            self.numbers[column] = len(self.columns)
            self.columns.append(column)
        return self.numbers[column]

    @cached_property
    def dot_numbers(self) -> list[int]:
        """Return the numbers of all columns that ``.`` represents; new columns receive numbers."""
        left_out = {
            *self.exclude,
            *self.aside,
            *([] if self.response is None else [self.response]),
        }
        columns = [
            c for c in self.available if c not in left_out and not ROW_INDEX.fullmatch(str(c))
        ]
        if not self.columns:
            self.columns = [*dict.fromkeys(columns)]
            self.numbers = {column: number for number, column in enumerate(self.columns)}
        return [*map(self.number, columns)]

    def replace_names(self, tokens: Iterable[Token]) -> list[int]:
        """Number the predictors in order of appearance, and replace their names by keys.

        The names are replaced in the tokens, which are shared with the syntax tree. Return the
        numbers represented by ``.`` if it is one of the tokens, and otherwise an empty list.
        """
        is_right = False
        all_columns: list[int] = []
        for token in tokens:
            word = token.token
            kind = token.kind.value
            if kind == "operator":
                is_right = is_right or word.startswith("~")
                if is_right and word == ".":
                    all_columns = self.dot_numbers
            elif is_right and kind == "name":
                token.token = key_of(self.number(self.find(word)))
        return all_columns

    def spend(self, terms: int) -> None:
        """Add `terms` to the number of terms created so far, and raise an error if a formula
        creates too many.
        """
        # limits the length of the number in the message
        self.n_terms = min(self.n_terms + terms, 10**15)
        # `.^2` creates about width^2 terms and is allowed for any width
        if self.n_terms > max(MAX_TERMS, 2 * self.width**2):
            fail(
                self.formula,
                f"it is too repetitive and expands to more than {self.n_terms:,} terms",
                hint="Shorten it",
            )

    def refuse_intercept(self) -> NoReturn:
        """Raise an error about a product with the intercept."""
        fail(
            self.formula,
            "1 is the intercept and cannot be part of an interaction",
            hint="If you mean a column named 1, put its name in backticks",
        )

    def check_predictors(self, predictors: tuple, empty: bool) -> None:
        """Raise an error if the formula has no predictors, or if a predictor already has another
        role.
        """
        if not predictors and not empty:
            fail(
                self.formula,
                "no predictors are left",
                hint="Add at least one column to the right of '~'",
            )
        if self.response is not None and self.response in predictors:
            fail(
                self.formula,
                f"the response {self.response!r} is also a predictor",
                hint="Drop it",
                column=self.response,
            )
        if excluded := set(predictors).intersection(self.exclude):
            column = excluded.pop()
            problem = f"{column!r} contains {self.exclude[column]} and is also a predictor"
            fail(self.formula, problem, hint="Use the column for only one purpose", column=column)
