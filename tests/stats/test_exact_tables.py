"""Enumeration of the tables with the margins of a table."""

import numpy as np
import pytest
from scipy.special import gammaln, xlogy
from scipy.stats import fisher_exact

from bbl.stats.exact_tables import enumerated_p


def tables_with(rows, columns):
    """Yield all tables with these margins, cell by cell."""
    if len(rows) == 1:
        yield np.array([columns])
        return

    def first_rows(k, left):
        if k == len(columns) - 1:
            if left <= columns[k]:
                yield [left]
            return
        for cell in range(min(left, columns[k]) + 1):
            for rest in first_rows(k + 1, left - cell):
                yield [cell, *rest]

    for row in first_rows(0, rows[0]):
        for rest in tables_with(rows[1:], [c - x for c, x in zip(columns, row, strict=True)]):
            yield np.vstack([row, rest])


def slow_p(table):
    rows = table.sum(axis=1)
    columns = table.sum(axis=0)
    observed = xlogy(table, table).sum() * (1.0 - 1e-12)
    log_total = gammaln(table.sum() + 1) - gammaln(rows + 1).sum() - gammaln(columns + 1).sum()
    return sum(
        np.exp(-gammaln(t + 1).sum() - log_total)
        for t in tables_with(list(rows), list(columns))
        if xlogy(t, t).sum() >= observed
    )


@pytest.mark.long
def test_p_is_the_sum_over_all_tables():
    rng = np.random.default_rng(0)
    for _ in range(40):
        table = rng.poisson(1.4, rng.integers(2, 5, 2))
        table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
        if min(table.shape) > 1 and table.sum() <= 20:  # a few thousand tables each
            assert enumerated_p(table, 10**6) == pytest.approx(slow_p(table), rel=1e-9)


def test_a_p_value_far_below_any_share_of_random_tables():
    """Of 2 x 2 tables with these margins only two are as extreme: 2 / C(152, 76) = 4.3e-45."""
    table = np.diag([76, 76])
    assert enumerated_p(table, 10**5) == pytest.approx(fisher_exact(table)[1], rel=1e-9)
    assert enumerated_p(table, 10**5) == pytest.approx(
        2 / np.exp(np.log(np.arange(77, 153)).sum() - gammaln(77)), rel=1e-9
    )


def test_merged_statistics_leave_three_digits(monkeypatch):
    table = np.array([[30, 2, 3, 8, 2], [20, 20, 30, 2, 1]])
    exact = enumerated_p(table, 10**6)
    monkeypatch.setattr("bbl.stats.exact_tables.MAX_STATES", 10)
    assert enumerated_p(table, 10**6) == pytest.approx(exact, rel=1e-3)
    assert enumerated_p(table, 100) is None
