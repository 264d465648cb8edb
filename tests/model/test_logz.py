"""The choice of how ln Z is computed."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import DataWarning, OptionError
from bbl.model import elimination
from bbl.model.elimination import elimination_order, log_sum
from bbl.model.layout import Layout
from bbl.model.logz import resolve_log_z

EDGE = [2] * 4 + [3] * 4 + [5, 5, 4]  # 129,600 states


def test_whether_ln_z_is_exact_does_not_depend_on_the_order_of_predictors():
    layouts = [Layout(EDGE), Layout(EDGE[::-1])]
    max_cells = 2e5
    costs = [elimination_order(layout.n_levels, layout.mask, max_cells) for layout in layouts]
    # predictors of many levels summed out first cost less
    assert costs[0] is None and costs[1] is not None
    assert [resolve_log_z("auto", layout, "half", max_cells) for layout in layouts] == [
        "exact",
        "exact",
    ]


def rows_of_one_cause(L, n=3000):
    """Rows of L binary predictors, each a noisy copy of one that is not observed."""
    rng = np.random.default_rng(0)
    z = (rng.random(n) < 0.7).astype(int)
    codes = (z[:, None] ^ (rng.random((n, L)) < 0.08)).astype(int)
    return pd.DataFrame(codes, columns=[f"s{i}" for i in range(L)])


def chain_and_full(L):
    X = rows_of_one_cause(L)
    formula = "~ " + " + ".join(f"s{i}:s{i + 1}" for i in range(L - 1))
    return bbl.bbl(formula, X), bbl.bbl("~ .^2", X)


@pytest.mark.long
def test_aic_prefers_the_full_model_where_it_is_right():
    chain, full = chain_and_full(18)
    assert full.estimate.log_z_kind == "exact"
    assert full.log_z.iloc[0] == pytest.approx(2.3158, abs=1e-4)
    table = bbl.anova(chain, full)
    assert table["AIC"].round(1).tolist() == [47514.7, 34981.5]


@pytest.mark.parametrize(("L", "kind"), [(22, "exact"), (23, "half")])
def test_auto_is_exact_up_to_22_binary_predictors(L, kind):
    layout = Layout([2] * L)
    assert resolve_log_z("auto", layout, "half") == kind


def test_an_approximate_ln_z_is_in_no_criterion():
    chain, full = chain_and_full(23)
    assert full.estimate.log_z_kind == "half" and chain.estimate.log_z_kind == "exact"
    for criterion in ("aic", "bic"):
        with pytest.raises(OptionError, match=r"log_z='half'.*Hint: Fit with log_z='ais'"):
            getattr(full, criterion)
    assert "ln Z is approximate, log_z='half'" in repr(full.logLik())
    assert "with approximate ln Z (see log_z=)" in str(full.summary())
    with pytest.warns(DataWarning, match="log_z='ais'"):
        table = bbl.anova(chain, full)
    assert table[["logLik", "AIC", "BIC"]].isna().all(axis=1).tolist() == [False, True]
    assert table["p"].iloc[1] < 1e-9  # the composite likelihood ratio needs no ln Z


@pytest.mark.long
def test_an_annealed_ln_z_is_right_to_its_error():
    X = rows_of_one_cause(18)
    exact, annealed = bbl.bbl("~ .^2", X), bbl.bbl("~ .^2", X, log_z="ais", seed=1)
    assert annealed.log_z.iloc[0] == pytest.approx(exact.log_z.iloc[0], abs=0.02)
    assert annealed.aic == pytest.approx(exact.aic, abs=2 * len(X) * 0.02)
    assert repr(annealed.logLik()).endswith("(df=171)")


def test_the_warning_of_a_poor_fit_names_log_z():
    with pytest.warns(DataWarning, match="use log_z='ais'"):
        bbl.bbl("~ .^2", rows_of_one_cause(12), log_z="pseudo")
    # predictors depend on each other in group a alone
    a = rows_of_one_cause(10)
    b = pd.DataFrame({name: np.roll(column, 7 * k) for k, (name, column) in enumerate(a.items())})
    with pytest.warns(
        DataWarning, match="Use log_z='ais', because ln Z is approximate .log_z='pseudo'"
    ):
        bbl.bbl("y ~ .^2", pd.concat([a.assign(y="a"), b.assign(y="b")]), log_z="pseudo")


@pytest.mark.parametrize("shape", [(1, 2, 3, 5, 7), (60, 4, 3), (7, 5, 2, 2), (3, 2), (0, 3, 2)])
def test_sums_do_not_depend_on_blocks(shape, monkeypatch):
    """The sum over a variable of one table, whose first axis is of models."""
    rng = np.random.default_rng(0)
    table = np.where(rng.random(shape) < 0.3, -np.inf, rng.normal(0.0, 3.0, shape))
    table[:1, :, ...] = -np.inf  # impossible whatever the level
    factors = [(tuple(range(len(shape) - 1)), table)]
    expected = np.logaddexp.reduce(table, axis=1)
    for cells in (1, 10, 50, 2**16):
        monkeypatch.setattr(elimination, "BLOCK_CELLS", cells)
        np.testing.assert_allclose(log_sum(factors, [0]), expected, rtol=1e-13)
