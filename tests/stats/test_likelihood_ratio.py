"""Naive Bayes likelihood-ratio test (eq. 27)."""

import json

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

from bbl.stats.likelihood_ratio import likelihood_ratio

TITANIC = {
    "Class": np.array([[122, 167, 528, 673], [203, 118, 178, 212]]),
    "Sex": np.array([[126, 1364], [344, 367]]),
    "Age": np.array([[1438, 52], [654, 57]]),
}


def test_paper():
    """The numbers of summary(bfit0), section 3.2, to all printed digits."""
    test = likelihood_ratio(list(TITANIC.values()))
    assert test.chisq.round(4).tolist() == [180.9014, 434.4688, 19.5606]
    assert test.df.tolist() == [3, 1, 1]
    np.testing.assert_allclose(test.p, [5.633919e-39, 1.730842e-96, 9.745843e-06], rtol=1e-6)
    np.testing.assert_allclose(
        test.h[0],
        [[0.3139728, 1.4650752, 1.7077243], [-0.5425214, -0.1314224, 0.0433803]],
        atol=5e-8,
    )
    np.testing.assert_allclose(test.h0[0], [-0.1313360, 0.7757901, 1.0017625], atol=5e-8)


@pytest.mark.parametrize("which", [0, 1])
def test_r_package(shared, which):
    """R's summary with prior counts 0 and 1."""
    case = json.loads((shared / "reference/bbl/titanic_additive_w_pc0.json").read_text())
    wanted = case["runs"]["default"]["summary"][which]
    test = likelihood_ratio(list(TITANIC.values()), wanted["prior_count"])
    for i, name in enumerate(TITANIC):
        for g, group in enumerate(("No", "Yes")):
            np.testing.assert_allclose(
                test.h[i][g], list(wanted["h"][group][name].values()), rtol=1e-12
            )
        np.testing.assert_allclose(test.h0[i], list(wanted["h0"][name].values()), rtol=1e-12)
        assert test.chisq[i] == pytest.approx(wanted["chisqNaive"][name], rel=1e-12)
        assert test.df[i] == wanted["dfNaive"][name]
        assert test.p[i] == pytest.approx(wanted["pvNaive"][name], rel=1e-9)


def test_is_the_g_test():
    """Without a prior count the statistic is the G test of the table of groups by levels."""
    rng = np.random.default_rng(5)
    for K, L in ((2, 2), (3, 4), (5, 2)):
        n = rng.integers(20, 60, (K, L))
        wanted = chi2_contingency(n, correction=False, lambda_="log-likelihood")
        test = likelihood_ratio([n])
        assert test.chisq[0] == pytest.approx(wanted.statistic, rel=1e-10)
        assert test.df[0] == wanted.dof
        assert test.p[0] == pytest.approx(wanted.pvalue, rel=1e-9)


def test_absent_level():
    """0 ln 0 = 0 where a level never occurs in a group, so that the test stays finite (R gives
    NaN).
    """
    test = likelihood_ratio(
        [np.array([[5, 5, 0], [2, 3, 5]]), np.array([[0, 4], [3, 3]]), np.array([[4, 0], [6, 0]])]
    )
    assert test.h[0][0].tolist() == [0.0, -np.inf]
    assert test.h[1][0].tolist() == [np.inf]
    wanted = 2 * (10 * np.log(0.5) + 2 * np.log(0.2) + 3 * np.log(0.3) + 5 * np.log(0.5))
    wanted -= 2 * (7 * np.log(7 / 20) + 8 * np.log(8 / 20) + 5 * np.log(5 / 20))
    assert test.chisq[0] == pytest.approx(wanted)
    # a level that occurs nowhere tells nothing
    assert (test.chisq[2], test.df[2]) == (0.0, 0) and np.isnan(test.p[2])
    assert np.isfinite(likelihood_ratio([np.array([[5, 0], [2, 3]])], 1.0).h[0]).all()


def test_prior_count_and_equal_groups():
    """Never negative, even where the prior count pulls equal groups apart from the pooled fit."""
    n = np.array([[10, 30], [10, 30]])
    assert likelihood_ratio([n]).chisq[0] == pytest.approx(0.0, abs=1e-12)
    assert likelihood_ratio([n], 20.0).chisq[0] == 0.0
    group, pooled = likelihood_ratio([n], 20.0).h[0][0], likelihood_ratio([n], 20.0).h0[0]
    np.testing.assert_allclose([group, pooled], [[np.log(40 / 20)], [np.log(70 / 30)]])


def test_one_group():
    test = likelihood_ratio([np.array([[10, 30]])])
    assert test.chisq[0] == 0.0
    assert test.df[0] == 0
    assert np.isnan(test.p[0])


def test_small_counts_have_the_permutation_distribution():
    test = likelihood_ratio(
        [
            np.array([[3, 1], [0, 9]]),
            np.array([[3, 1, 0], [0, 9, 0]]),
            np.array([[30, 10], [20, 40]]),
        ]
    )
    assert test.exact.tolist() == [True, True, False] and test.df.tolist() == [1, 1, 1]
    assert test.p[1] == pytest.approx(test.p[0])  # the level that never occurs does not count
    assert test.p[0] == pytest.approx(4 / 286)  # of the tables with these margins only this one


def test_a_small_p_is_that_of_all_tables_with_the_same_margins():
    """One in 2,000 random tables is no p-value of a table this far from independence."""
    test = likelihood_ratio([np.array([[60, 0, 3], [0, 60, 1]])])
    assert test.test.tolist() == ["exact"] and not test.is_bound[0]
    assert test.p[0] == pytest.approx(5.345222e-36, rel=1e-6)


def test_random_tables_give_a_bound_and_say_so():
    drawn = likelihood_ratio([np.eye(7, dtype=int) * 12 + np.arange(49).reshape(7, 7) % 5])
    assert drawn.is_drawn[0] and drawn.is_bound[0] and drawn.p[0] == 1 / 2000
    assert drawn.test.tolist() == ["Monte Carlo, upper bound"]
    listed = likelihood_ratio([np.array([[60, 0], [0, 4]])])
    assert listed.exact[0] and not listed.is_drawn[0] and not listed.is_bound[0]


def test_chi_square_is_used_where_cochrans_rule_holds():
    """Of six cells one expects fewer than 5 rows, but more than 1."""
    test = likelihood_ratio([np.array([[40, 30, 2], [60, 50, 7]]), np.array([[9, 0], [0, 9]])])
    assert test.test.tolist() == ["chi-square", "exact"]
    assert test.p[0] == pytest.approx(chi2.sf(test.chisq[0], 2))
