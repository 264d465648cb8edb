"""Expand the right side of a formula into predictors and terms with formulaic's operators.

formulaic evaluates the syntax tree with its own operators ``. + : * / %in% ^``, with the following
changes:

- ``-`` drops a predictor and all its terms; in formulaic, it drops only identical terms.
- ``+`` adds terms to its left side in place; formulaic copies the left side, so a sum of n terms
  takes n^2 steps.
- ``.`` and ``^`` of many columns are stored as a `Cube`, without listing their terms: formulaic
  creates an object for each of the n^k products, which takes seconds for ``.^2`` and 2,000 columns.
- The number of products is checked before formulaic creates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from formulaic.parser import DefaultOperatorResolver
from formulaic.parser.types import ASTNode, Factor, Operator, OrderedSet, Term, Token

from bbl.design.grammar import key_of, number_of
from bbl.design.interactions import Cube, Interactions

__all__ = ["Expansion"]

ALL_COLUMNS = "all columns"  # key in the context of operators
# products that formulaic may list although a cube could represent them (this takes 0.3 ms)
MAX_LISTED = 150
# in formulaic, one product takes as much time as this many terms in a list of pairs
PRODUCT_COST = 20


def _numbers(term: Term) -> list[int]:
    """Return the column numbers of a term, or an empty result for the intercept, which is the
    literal 1.
    """
    return [
        number_of(f.expr) for f in term.factors if f.eval_method is not Factor.EvalMethod.LITERAL
    ]


@dataclass(eq=False)
class TermSet:
    """A set of terms of one or more predictors: a list, plus all terms of a cube except removed
    terms.

    Attributes
    ----------
    terms : dict
        The listed terms, which are not in the cube; a dict keeps their order.
    columns : set of int
        Columns of the cube: all terms of up to `order` of these columns are in the set.
    removed : set of Term
        Terms in the cube that are not in the set.
    used : set of int
        Columns of listed terms. These columns remain predictors even if all their terms are
        dropped.
    """

    terms: dict[Term, None] = field(default_factory=dict)
    columns: set[int] = field(default_factory=set)
    order: int = 1
    removed: set[Term] = field(default_factory=set)
    used: set[int] = field(default_factory=set)

    def count(self) -> int:
        """Return the number of terms."""
        return len(self.terms) + self.n_cube_terms() - len(self.removed)

    def n_cube_terms(self) -> int:
        """Return the number of terms in the cube."""
        if not self.columns:
            return 0
        return sum(math.comb(len(self.columns), k) for k in range(1, self.order + 1))

    def cube_has(self, numbers: list[int]) -> bool:
        """Return whether the cube contains the term with the columns `numbers`."""
        return len(numbers) <= self.order and self.columns.issuperset(numbers)

    def __contains__(self, term: Term) -> bool:
        if self.cube_has(_numbers(term)):
            return term not in self.removed
        return term in self.terms

    def insert(self, terms: Iterable[Term]) -> TermSet:
        """Add terms, except the intercept, and return the set itself."""
        for term in terms:
            numbers = _numbers(term)
            if self.cube_has(numbers):  # the intercept has no columns and is in every cube
                self.removed.discard(term)
            else:
                self.terms[term] = None
                if len(numbers) > 1:
                    self.used.update(numbers)
        return self

    def as_cube(self) -> TermSet | None:
        """Return the set as a cube without listed or removed terms, or None if this is
        impossible.
        """
        if not self.terms and not self.removed:
            return self
        listed = [_numbers(term) for term in self.terms]
        if not self.columns and all(len(numbers) == 1 for numbers in listed):
            return TermSet(columns={numbers[0] for numbers in listed})
        return None

    def predictors(self) -> np.ndarray:
        """Return the numbers of all columns in increasing order, including columns of dropped
        terms.
        """
        listed = (number for term in self.terms for number in _numbers(term))
        return np.array(sorted(self.columns.union(self.used, listed)), dtype=np.intp)

    def interactions(self) -> Interactions:
        """Return the terms of two or more columns, as column numbers."""
        columns = np.array(sorted(self.columns), dtype=np.intp)
        cube = Cube(columns, self.order) if self.order > 1 else Cube()
        return Interactions(cube, _sort_by_order(self.terms), _sort_by_order(self.removed))


class Expansion(DefaultOperatorResolver):
    """Formulaic's operators for one formula, with the changes listed in the module's docstring.

    Parameters
    ----------
    spend : callable
        ``spend(n)`` is called before n terms are created; it raises an error if n is too large.
    refuse_intercept : callable
        Function that is called to raise an error if the intercept is multiplied.
    """

    def __init__(self, spend: Callable[[int], None], refuse_intercept: Callable[[], Any]):
        super().__init__()
        self.spend = spend
        self.refuse_intercept = refuse_intercept

    @property
    def operators(self) -> list[Operator]:
        """Operators by name; those redefined in this class return a `TermSet`."""
        operators = super().operators
        rules: dict[tuple[str, int], Any] = {
            ("+", 2): self._add,
            ("-", 2): self._drop,
            (".", 0): self._list_all,
            ("^", 2): self._raise,
            ("**", 2): self._raise,
        } | {(symbol, 2): self._multiply for symbol in (":", "*", "/", "in")}
        for operator in operators:
            rule = rules.get((operator.symbol, operator.arity))
            if rule is not None:
                operator.to_terms = partial(rule, operator, operator.to_terms)
        return operators

    def expand(self, tree: ASTNode | Token, all_columns: Sequence[int]) -> TermSet:
        """Return the terms of a syntax tree whose names have been replaced by keys; ``.`` means
        `all_columns`.
        """
        return _as_set(tree.to_terms(context={ALL_COLUMNS: all_columns}))

    def _add(self, operator: Operator, formulaic: Callable, left: Any, right: Any, context: Any):
        """Return ``left + right``; the terms of one side are added to the side with the larger
        cube.
        """
        large = _as_set(left)
        small = _as_set(right)
        if large.n_cube_terms() < small.n_cube_terms():
            large, small = small, large
        if small.columns:
            self.spend(len(large.removed) + len(small.terms))
            large.removed = {term for term in large.removed if term not in small}
            if not (small.order <= large.order and small.columns <= large.columns):
                large.insert(self._list(small))
        large.insert(small.terms)
        large.used |= small.used
        return large

    def _drop(self, operator: Operator, formulaic: Callable, left: Any, right: Any, context: Any):
        """Return ``left - right``; each predictor in `right` is dropped with all of its terms."""
        left = _as_set(left)
        right = _as_set(right)
        listed = [(term, _numbers(term)) for term in right.terms]
        dropped = right.columns.union(numbers[0] for _, numbers in listed if len(numbers) == 1)
        if dropped:
            self.spend(len(left.terms) + len(left.removed))
            left.terms = {t: None for t in left.terms if dropped.isdisjoint(_numbers(t))}
            left.removed = {t for t in left.removed if dropped.isdisjoint(_numbers(t))}
            left.columns -= dropped
            left.order = max(min(left.order, len(left.columns)), 1)
            left.used -= dropped
        for term, numbers in listed:
            if left.cube_has(numbers):
                left.removed.add(term)
            else:
                left.terms.pop(term, None)
        return left

    def _list_all(self, operator: Operator, formulaic: Callable, context: Any):
        """Return the terms of ``.``."""
        numbers = context[ALL_COLUMNS]
        self.spend(len(numbers))
        if len(numbers) ** 2 > MAX_LISTED:
            return TermSet(columns={*numbers})
        names = {
            "__formulaic_variables_available__": map(key_of, numbers),
            "__formulaic_variables_used_lhs__": (),  # `numbers` does not include the response
        }
        return formulaic(context=names)

    def _multiply(
        self, operator: Operator, formulaic: Callable, left: Any, right: Any, context: Any
    ):
        """Return ``left : right``, or the terms of another operator that forms such products."""
        self._check_factor(left)
        self._check_factor(right)
        n_products = _count(left) * _count(right)
        if n_products > MAX_LISTED and operator.symbol in (":", "*"):
            left_cube = _as_set(left).as_cube()
            right_cube = _as_set(right).as_cube()
            if left_cube and right_cube and left_cube.columns == right_cube.columns:
                return self._make_cube(left_cube.columns, left_cube.order + right_cube.order)
        size = max(1, (_highest_order(left) + _highest_order(right)) // 2)
        self.spend(PRODUCT_COST * n_products * size)
        terms = formulaic(self._list(left), self._list(right))
        return terms if operator.symbol == ":" else _with_used(terms, left, right)

    def _raise(self, operator: Operator, formulaic: Callable, base: Any, power: Any, context: Any):
        """Return ``base ^ power``, which contains the products of up to `power` terms of `base`."""
        exponent = int(next(iter(power)).factors[0].expr)
        if exponent == 1:
            return base
        self._check_factor(base)
        if _count(base) ** exponent <= MAX_LISTED:
            return _with_used(formulaic(self._list(base), power), base)
        if cube := _as_set(base).as_cube():
            return _with_used(self._make_cube(cube.columns, cube.order * exponent), base)
        # multiply one factor at a time, and drop repeated products in between
        multiply = self.operator_table[":"][0].to_terms
        result = base
        for _ in range(exponent - 1):
            n_before = _count(result)
            result = multiply(result, base, context=context)
            if _count(result) == n_before:
                break
        return _with_used(result, base)

    def _check_factor(self, value: TermSet | OrderedSet) -> None:
        """Raise an error because the intercept is a factor of a product."""
        if not isinstance(value, TermSet) and value and not any(map(_numbers, value)):
            self.refuse_intercept()

    def _make_cube(self, columns: set[int], order: int) -> TermSet:
        """Return the set of all terms that contain at most `order` of the `columns`."""
        self.spend(math.comb(len(columns), 2))
        return TermSet({}, {*columns}, max(min(order, len(columns)), 1))

    def _list(self, value: TermSet | OrderedSet) -> OrderedSet:
        """Return all terms, including the cube's terms, in the form accepted by formulaic's
        operators.
        """
        if not isinstance(value, TermSet):
            return value
        self.spend(value.n_cube_terms())
        factors = [Factor(key_of(number)) for number in sorted(value.columns)]
        orders = range(1, value.order + 1)
        cube = (Term(chosen) for k in orders for chosen in combinations(factors, k))
        return OrderedSet([*(term for term in cube if term not in value.removed), *value.terms])


def _as_set(value: TermSet | OrderedSet) -> TermSet:
    """Convert a result of formulaic's operators to a `TermSet` that can be changed."""
    return value if isinstance(value, TermSet) else TermSet().insert(value)


def _count(value: TermSet | OrderedSet) -> int:
    """Return the number of terms, which can be too large for `len` if the set contains a large
    cube.
    """
    return value.count() if isinstance(value, TermSet) else len(value)


def _highest_order(value: TermSet | OrderedSet) -> int:
    """Return the largest number of columns in a term."""
    terms = value.terms if isinstance(value, TermSet) else value
    order = value.order if isinstance(value, TermSet) else 1
    return max(order, max((len(term.factors) for term in terms), default=1))


def _with_used(terms: TermSet | OrderedSet, *operands: TermSet | OrderedSet) -> Any:
    """Return `terms`, and keep all predictors of the operands."""
    used = set().union(*(value.used for value in operands if isinstance(value, TermSet)))
    if not used:
        return terms
    result = _as_set(terms)
    result.used |= used
    return result


def _sort_by_order(terms: Iterable[Term]) -> dict[int, np.ndarray]:
    """Return terms as an array (T, k) of increasing column numbers for each order k > 1."""
    rows: dict[int, list[list[int]]] = {}
    for term in terms:
        numbers = _numbers(term)
        if len(numbers) > 1:
            rows.setdefault(len(numbers), []).append(sorted(numbers))
    return {k: np.array(sorted(rows[k]), dtype=np.intp) for k in sorted(rows)}
