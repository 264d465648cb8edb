"""Products with a design of indicators by tables of composites: equal to those of its matrix."""

import numpy as np
import pytest

from bbl.engines.conditional import likelihood
from bbl.engines.conditional.likelihood import (
    DenseDesign,
    TableDesign,
    independent_columns,
    independent_of_gram,
    raw_design,
)
from bbl.engines.conditional.maximum import find_maximum
from bbl.engines.conditional.products import DesignProducts, has_products
from bbl.engines.conditional.separation import margins_of_sums, zero_margins
from bbl.model.layout import Layout

LAYOUTS = [
    ([2, 3, 4, 5, 2, 2, 3], None),
    ([2] * 9, None),
    ([7, 3, 20, 2], [(0, 2), (1, 3)]),
    ([3, 1, 4, 2], None),
    ([3, 1, 4, 2], []),
    ([5], []),
    ([40, 30, 2], None),  # more joint levels than a composite may have
    ([300, 2, 2], None),
    ([2] * 6, [(0, 1), (2, 5)]),
]


def draw(n_levels, n=300, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, L, n) for L in n_levels]).astype(np.uint16)


@pytest.mark.parametrize(("n_levels", "terms"), LAYOUTS)
@pytest.mark.thinned(4)
def test_products_are_those_of_the_matrix(n_levels, terms):
    layout = Layout(n_levels, terms)
    codes = draw(n_levels)
    Z = raw_design(codes, layout)
    rng = np.random.default_rng(1)
    coefficients = rng.normal(size=(2, Z.shape[1]))
    values = rng.normal(size=(len(Z), 2))
    weights = rng.random((3, len(Z)))
    products = DesignProducts(layout)
    np.testing.assert_allclose(products.scores(codes, coefficients), Z @ coefficients.T, atol=1e-12)
    np.testing.assert_allclose(products.sums(codes, values), values.T @ Z, atol=1e-11)
    np.testing.assert_allclose(
        products.grams(codes, weights), [Z.T @ (w[:, None] * Z) for w in weights], atol=1e-11
    )


def test_some_layouts_have_no_tables():
    assert has_products(Layout([4] * 20))
    assert not has_products(Layout([2, 2, 2], [(0, 1, 2)]))
    assert not has_products(Layout([200] * 4))


def test_information_is_that_of_the_matrix():
    layout = Layout([3, 2, 4])
    codes = draw([3, 2, 4])
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), size=len(codes))
    weights = rng.random(len(codes))
    free = rng.random((2, 1 + layout.size)) < 0.7
    expected = DenseDesign(raw_design(codes, layout)).information(p, weights, free)
    found = TableDesign(codes, layout).information(p, weights, free)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_dependent_columns_are_found_from_products():
    layout = Layout([3, 3, 2])
    codes = draw([3, 3, 2])
    codes = codes[(codes[:, 0] != 1) | (codes[:, 1] != 2)]  # never together
    codes[:, 2] = codes[:, 0] == 2  # the third predictor is a function of the first
    Z = raw_design(codes, layout)
    columns, aliased = independent_of_gram(Z.T @ Z)
    expected = independent_columns(Z)
    assert columns.sum() == expected[0].sum() == np.linalg.matrix_rank(Z)
    assert np.linalg.matrix_rank(Z[:, columns]) == columns.sum()
    np.testing.assert_array_equal(aliased, expected[1])


def test_zero_margins_are_those_of_the_rows():
    layout = Layout([3, 2, 4])
    codes = draw([3, 2, 4])
    rng = np.random.default_rng(2)
    counts = rng.poisson(1.0, size=(len(codes), 2)).astype(float)
    counts[(codes[:, 0] == 1) & (codes[:, 2] == 3), 0] = 0.0
    counts[codes[:, 2] == 2, 1] = 0.0
    sums = TableDesign(codes, layout).sums(counts)
    expected = zero_margins(codes, counts, layout)
    np.testing.assert_array_equal(margins_of_sums(sums, layout), expected.direction)


@pytest.mark.parametrize("separated", [False, True])
def test_maximum_does_not_depend_on_the_form_of_the_design(separated, monkeypatch):
    layout = Layout([3, 2, 4, 2])
    codes = np.unique(draw([3, 2, 4, 2]), axis=0)
    counts = np.random.default_rng(3).poisson(5.0, size=(len(codes), 3)).astype(float)
    if separated:
        counts[(codes[:, 0] == 1) & (codes[:, 2] == 3), 1] = 0.0
    dense = find_maximum(codes, counts, layout)
    monkeypatch.setattr(likelihood, "MAX_DENSE", 0)
    tables = find_maximum(codes, counts, layout)
    np.testing.assert_allclose(tables.value, dense.value, rtol=1e-13)
    for g in range(3):
        own = dense.determined(g, 0)
        np.testing.assert_array_equal(tables.determined(g, 0), own)
        np.testing.assert_allclose(
            tables.coefficients[g, own], dense.coefficients[g, own], atol=1e-9
        )
