"""Influences of rows on the parameters of a site, compared with dense matrix products."""

import numpy as np
import pytest

from bbl._ext.pseudo.influence import add_influences


def make_site(rng, n, n_columns, q):
    """Return the arguments of `add_influences` except `out`, and its number of rows."""
    design = (rng.random((n, n_columns)) < 0.4).astype(float)
    design[:, 0] = 1.0
    c = int(rng.integers(1, n_columns + 1))
    columns = np.sort(rng.choice(n_columns, c, replace=False)).astype(np.intp)
    p = q * c
    n_out = p + int(rng.integers(0, 5))
    arguments = (
        design,
        columns,
        rng.normal(size=(n, q)),
        rng.random(n),
        rng.normal(size=(p, p)),
        rng.normal(size=p),
        rng.permutation(n_out)[:p].astype(np.intp),
        rng.random(p),
    )
    return arguments, n_out


# few and many parameters, every compiled number of logits, more than one block of rows
@pytest.mark.parametrize("n", [1, 31, 33, 1500])
@pytest.mark.parametrize("q", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n_columns", [1, 5, 30])
def test_influences_are_products_with_the_inverse(n, q, n_columns):
    rng = np.random.default_rng([n, q, n_columns])
    arguments, n_out = make_site(rng, n, n_columns, q)
    design, columns, residuals, weights, inverse, offset, out_rows, factors = arguments
    out = rng.normal(size=(n_out, n))
    expected = out.copy()
    products = (residuals[:, :, None] * design[:, None, columns]).reshape(n, -1) @ inverse
    expected[out_rows] += (weights[:, None] * (products - offset) * factors).T
    add_influences(*arguments, out)
    np.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("q", [1, 3, 5])
def test_the_influence_of_a_row_does_not_depend_on_the_other_rows(q):
    rng = np.random.default_rng(q)
    arguments, n_out = make_site(rng, 1100, 30, q)
    out = np.zeros((n_out, 1100))
    add_influences(*arguments, out)
    for k in (0, 31, 32, 1023, 1024, 1099):
        design, columns, residuals, weights, *site = arguments
        row = slice(k, k + 1)
        alone = np.zeros((n_out, 1))
        add_influences(design[row], columns, residuals[row], weights[row], *site, alone)
        np.testing.assert_array_equal(out[:, k], alone[:, 0])
