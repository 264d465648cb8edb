"""Folds and cuts follow from the content of rows, not from the names or positions of columns."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.rows.content import order_by_content
from bbl.rows.sample import Sample


def make_sample(n=40, m=5, seed=0, gaps=False):
    """Return distinct rows of two groups, with weights."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (n, m)).astype(np.uint8)
    missing = rng.random(codes.shape) < 0.1 if gaps else None
    if gaps:
        codes[missing] = 0
    sample = Sample(codes, np.ones(n), rng.integers(0, 2, n), missing)
    return sample.by_state([3] * m, 2)


@pytest.mark.parametrize("gaps", [False, True])
def test_neither_columns_nor_levels_nor_scale_change_the_order(gaps):
    sample = make_sample(gaps=gaps)
    rng = np.random.default_rng(1)
    columns = rng.permutation(5)
    levels = np.array([rng.permutation(3) for _ in range(5)])
    renamed = np.column_stack([levels[i][sample.codes[:, i]] for i in range(5)])[:, columns]
    missing = None if sample.missing is None else sample.missing[:, columns]
    other = Sample(renamed, 0.3 * sample.weights, sample.response, missing)
    rows = rng.permutation(sample.n)
    one = order_by_content(sample, [3] * 5)
    two = order_by_content(other.rows(rows), [3] * 5)
    assert np.array_equal(one.rows, rows[two.rows])
    assert np.array_equal(one.columns, columns[two.columns])
    assert (np.diff(sample.response[one.rows]) >= 0).all()


def few_rows(seed, n):
    """Return a table of few rows, with an interaction."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 3, (n, 5))
    p = 0.2 + 0.3 * (codes[:, 1] == 1) + 0.25 * (codes[:, 2] == codes[:, 3])
    frame = pd.DataFrame(codes, columns=list("abcde")).astype(str)
    return frame.assign(y=np.where(rng.random(n) < p, "p", "q"))


@pytest.mark.parametrize(("method", "seed"), [("boosting", 0), ("boosting", 3), ("auto", 1)])
@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.thinned(3)
def test_few_rows_are_predicted_alike_by_columns_in_another_order(method, seed, n):
    data = few_rows(seed, n)
    turned = data[[*"dbeac", "y"]].rename(columns={"a": "q", "d": "zz"})
    fits = [bbl.bbl("y ~ .^2", one, method=method, verbose=0) for one in (data, turned)]
    p, other = (
        fit.predict(one, type="prob").drop(columns="yhat").to_numpy(dtype=float)
        for fit, one in zip(fits, (data, turned), strict=True)
    )
    assert p == pytest.approx(other, abs=1e-6)
