"""Design covariances of totals and means, and corrected tests of tables, against R's survey
package.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
import rsurvey

from bbl.stats.survey.rao_scott import design_effects, rao_scott, rao_scott_wald

pytestmark = pytest.mark.skipif(
    not rsurvey.folder().exists(), reason="the reference numbers of R are not here"
)


def indicators(column):
    values = pd.Series(column)
    if isinstance(values.dtype, pd.CategoricalDtype):
        return pd.get_dummies(values).to_numpy(float)
    return values.to_numpy(float)[:, None]


def parse_terms(formula, table):
    text = formula.removeprefix("~")
    if text.startswith("interaction("):
        names = [name.strip() for name in text[12:-1].split(",")]
        parts = [pd.Series(table[name]) for name in names]
        # the first varies fastest
        cells = itertools.product(*(p.cat.categories for p in reversed(parts)))
        columns = [
            np.prod(
                [(p == v).to_numpy(float) for p, v in zip(parts, cell[::-1], strict=True)], axis=0
            )
            for cell in cells
        ]
        return np.column_stack(columns)
    return np.hstack([indicators(table[name.strip()]) for name in text.split("+")])


def keep_known(formula, table):
    text = formula.removeprefix("~").removeprefix("interaction(").removesuffix(")")
    names = [name.strip() for name in text.replace("+", ",").split(",")]
    return table[names].notna().all(axis=1).to_numpy()


class Case:
    """A case with functions for weighted estimates and their covariances, by either kind of
    design.
    """

    def __init__(self, name):
        self.case, self.table = rsurvey.read(name)
        self.is_replicate = self.case["design"]["type"] == "replicate"
        if self.is_replicate:
            self.weights, self.replicates = rsurvey.replicates(self.case)
        else:
            self.plan = rsurvey.plan(self.case, self.table)
            self.weights = self.plan.weights
        self.domain = rsurvey.members(self.case, self.table)

    def covariance(self, estimate, scores, rows):
        """Covariance of ``estimate(weights)``; `scores(weights)` are its linearised rows."""
        if self.is_replicate:
            estimates = np.array([estimate(w) for w in self.replicates.weights.T])
            E = self.replicates.deviations(estimates, estimate(self.weights))
        else:
            totals = np.zeros((self.plan.n_units, scores.shape[1]))
            self.plan.totals(scores * self.weights[:, None], np.arange(len(scores)), totals)
            E = self.plan.deviations(totals, rows)
        return E.T @ E

    def mean(self, X, rows):
        def estimate(w):
            return (w * rows) @ X / (w * rows).sum()

        p = estimate(self.weights)
        scores = (X - p) * rows[:, None] / (self.weights * rows).sum()
        return p, self.covariance(estimate, scores, rows)

    def total(self, X, rows):
        X = X * rows[:, None]
        return self.weights @ X, self.covariance(lambda w: w @ X, X, rows)


def analyses(kind):
    if not rsurvey.folder().exists():
        return []
    return [
        (name, k)
        for name in rsurvey.names()
        for k, analysis in enumerate(rsurvey.read(name)[0]["analyses"])
        if analysis["analysis"] == kind and "error" not in analysis
    ]


def close(ours, theirs, rtol):
    theirs = np.array(theirs, dtype=float)
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * np.abs(theirs).max() + 1e-15)


@pytest.mark.parametrize("name, k", analyses("mean"))
def test_means(name, k):
    case = Case(name)
    analysis = case.case["analyses"][k]
    table, rows = domain(case, analysis)
    p, V = case.mean(np.nan_to_num(parse_terms(analysis["formula"], table)), rows)
    close(p, analysis["estimate"], 1e-10)
    close(V, analysis["covariance"], 1e-8)


@pytest.mark.parametrize("name, k", analyses("total"))
def test_totals(name, k):
    case = Case(name)
    analysis = case.case["analyses"][k]
    table, rows = domain(case, analysis)
    total, V = case.total(np.nan_to_num(parse_terms(analysis["formula"], table)), rows)
    close(total, analysis["estimate"], 1e-10)
    close(V, analysis["covariance"], 1e-8)


def domain(case, analysis):
    """The table, and the rows of the subpopulation that are known."""
    rows = case.domain & keep_known(analysis["formula"], case.table)
    if case.case["analyses"].index(analysis) == 5 and case.case["case"].startswith("lonely_"):
        rows &= (case.table["stype"] != "M").to_numpy()  # subset(d, stype != "M")
    return case.table, rows


@pytest.mark.parametrize("name, k", analyses("chisq"))
def test_rao_scott_of_two_way_tables(name, k):
    case = Case(name)
    analysis = case.case["analyses"][k]
    theirs = analysis["statistics"]["F"]
    if "error" in theirs:
        assert case.plan.lonely_strata[1].size
        return
    table, rows = domain(case, analysis)
    names = [text.strip() for text in analysis["formula"].removeprefix("~").split("+")]
    A, B = (indicators(table[n].cat.remove_unused_categories()) for n in names)
    cells = np.einsum("ni,nj->nij", A, B).reshape(len(A), -1)
    present = np.einsum("n,nij->ij", rows * 1.0, np.einsum("ni,nj->nij", A, B))
    A, B = A[:, present.sum(axis=1) > 0], B[:, present.sum(axis=0) > 0]
    cells = np.einsum("ni,nj->nij", A, B).reshape(len(A), -1)
    p, V = case.mean(cells, rows)
    r, c = A.shape[1], B.shape[1]
    table_p = p.reshape(r, c)
    n = rows.sum() if not case.is_replicate else np.count_nonzero(rows & (case.weights > 0))
    expected = np.outer(table_p.sum(axis=1), table_p.sum(axis=0))
    X2 = n * float(((table_p - expected) ** 2 / expected).sum())
    one_r, one_c = np.eye(r)[:, 1:], np.eye(c)[:, 1:]
    main = np.hstack(
        [np.ones((r * c, 1)), np.kron(one_r, np.ones((c, 1))), np.kron(np.ones((r, 1)), one_c)]
    )
    both = np.kron(one_r, one_c)
    contrasts = both - main @ np.linalg.lstsq(main, both, rcond=None)[0]
    # empty cells tell nothing
    C = contrasts * np.divide(1.0, p, out=np.zeros_like(p), where=p > 0)[:, None]
    effects = design_effects(n * C.T @ V @ C, contrasts.T @ C)
    df = (
        case.replicates.degrees_of_freedom()
        if case.is_replicate
        else case.plan.degrees_of_freedom(rows)
    )
    test = rao_scott(X2, effects, df)
    close([test.F, test.df, test.ddf], [theirs["statistic"], *theirs["parameter"]], 1e-7)
    np.testing.assert_allclose(test.p, theirs["p"], rtol=1e-6)


@pytest.mark.parametrize("name", rsurvey.names())
def test_degrees_of_freedom(name):
    case = Case(name)
    ours = (
        case.replicates.degrees_of_freedom()
        if case.is_replicate
        else case.plan.degrees_of_freedom(case.domain)
    )
    assert ours == case.case["degf"]


def test_lonely_strata_are_found():
    case = Case("lonely_fail")
    stage, strata = case.plan.lonely_strata
    assert stage == 0 and len(strata) == 3


def test_a_covariance_that_is_not_known_has_no_test_whatever_the_working_one():
    """A singular working covariance beside an unknown design covariance: neither an error nor a
    number.
    """
    unknown, singular = np.full((2, 2), np.nan), np.zeros((2, 2))
    statistic, df, p = rao_scott_wald(
        [np.ones(2), np.ones(1)], [unknown, np.eye(1)], [singular, np.eye(1)], 20.0
    )
    assert np.isnan([statistic[0], p[0]]).all()
    assert df.tolist() == [2, 1]
    assert statistic[1] == pytest.approx(1.0)
    assert 0.3 < p[1] < 0.4
