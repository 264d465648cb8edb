"""Estimates, errors, tests and limits have the names, shapes and, of the same models, the numbers
of statsmodels.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import bbl
from bbl.design.labels import Labels
from bbl.errors import BBLTypeError, OptionError
from bbl.memory import MemoryLimitError
from bbl.model.layout import Layout
from bbl.report.shooter.terms import term_frame

SERIES = ("params", "bse", "tvalues", "pvalues")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    y, a = rng.integers(0, 2, (2, 2000))
    b = (rng.random(2000) < 0.3 + 0.3 * a + 0.1 * y).astype(int)
    return pd.DataFrame({"y": y, "a": a, "b": b})


@pytest.fixture(scope="module")
def fit(rows):
    return bbl.bbl("y ~ a * b", rows, lambda_=0.0, lambdah=0.0, verbose=0)


@pytest.fixture(scope="module")
def logit(rows):
    return smf.logit("a ~ C(b)", rows[rows["y"] == 1]).fit(disp=0)


@pytest.mark.long
@pytest.mark.parametrize("ours", ["fit", "inference"])
def test_names_and_shapes_are_those_of_a_logit(fit, logit, ours):
    found = fit if ours == "fit" else fit.inference()
    for one in (found, logit):
        n, index = len(one.params), one.params.index
        assert index.is_unique
        for name in SERIES:
            column = getattr(one, name)
            assert isinstance(column, pd.Series) and column.dtype == float
            pd.testing.assert_index_equal(column.index, index)
        limits, covariance = one.conf_int(), one.cov_params()
        assert isinstance(limits, pd.DataFrame) and limits.shape == (n, 2)
        assert isinstance(covariance, pd.DataFrame) and covariance.shape == (n, n)
        for other in (limits.index, covariance.index, covariance.columns):
            pd.testing.assert_index_equal(other, index)
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), one.bse, rtol=1e-9)
        np.testing.assert_allclose(one.tvalues, one.params / one.bse, rtol=1e-6)
        wide, narrow = one.conf_int(0.01).to_numpy(), one.conf_int(alpha=0.2).to_numpy()
        assert (wide[:, 0] < narrow[:, 0]).all() and (wide[:, 1] > narrow[:, 1]).all()
        assert one.summary().as_html().count("<table") >= 1


def test_labels_of_groups_are_where_mnlogit_has_its_outcomes(fit, rows):
    several = smf.mnlogit("c ~ C(a)", rows.assign(c=rows["y"] + rows["b"])).fit(disp=0)
    assert several.conf_int().index.nlevels == fit.conf_int().index.nlevels == 2
    assert (
        several.conf_int().columns.tolist() == fit.conf_int().columns.tolist() == ["lower", "upper"]
    )
    assert fit.params.index.tolist() == [
        (g, p) for g in (0, 1) for p in ("a=1", "b=1", "a=1 : b=1")
    ]


def test_numbers_of_a_saturated_group_are_those_of_its_logit(fit, logit):
    names = [(1, "a=1"), (1, "a=1 : b=1")]
    for name in SERIES:
        np.testing.assert_allclose(
            getattr(fit, name)[names], getattr(logit, name), rtol=2e-4, err_msg=name
        )
    np.testing.assert_allclose(fit.conf_int().loc[names], logit.conf_int(), rtol=2e-4)
    np.testing.assert_allclose(fit.cov_params().loc[names, names], logit.cov_params(), rtol=2e-4)


def test_the_difference_of_two_groups_is_the_slope_of_a_logit(rows):
    one = bbl.bbl("y ~ b", rows, lambda_=0.0, lambdah=0.0, verbose=0).conf_int(of=(1, 0))
    slope = smf.logit("y ~ C(b)", rows).fit(disp=0).conf_int().loc["C(b)[T.1]"]
    np.testing.assert_allclose(one.loc[("1 - 0", "b=1")], slope, rtol=2e-4)


def test_what_has_no_standard_error_is_missing_under_every_name():
    fit = bbl.bbl(
        "Survived ~ .^2", bbl.datasets.load_titanic(), "Freq", lambda_=1e-3, lambdah=1e-3, verbose=0
    )
    lost = ("No", "Age=Child")
    assert np.isfinite(fit.params[lost])
    for number in (fit.bse[lost], fit.tvalues[lost], fit.pvalues[lost], *fit.conf_int().loc[lost]):
        assert np.isnan(number)
    covariance = fit.cov_params()
    assert covariance.loc[lost].isna().all() and covariance[lost].isna().all()
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), fit.bse, rtol=1e-9)
    assert (covariance.loc["No", "Yes"].fillna(0) == 0).all(axis=None)
    pd.testing.assert_frame_equal(fit.cov_params("Yes"), covariance.loc[["Yes"], ["Yes"]])


def test_of_two_groups_or_a_pooled_fit_limits_are_those_of_the_table(fit):
    for of in ("pooled", (1, 0)):
        table, limits = fit.inference().table(of, 0.9), fit.conf_int(0.1, of)
        np.testing.assert_array_equal(limits, table[["lower", "upper"]])
        assert limits.index.get_level_values("group").tolist() == table["group"].tolist()


def test_posteriors_have_the_same_names_and_say_what_they_lack(rows):
    drawn = bbl.bbl("y ~ a", rows, method="bayes", seed=1, verbose=0)
    np.testing.assert_allclose(np.sqrt(np.diag(drawn.cov_params())), drawn.bse, rtol=1e-9)
    assert drawn.pvalues.isna().all() and drawn.conf_int().notna().all(axis=None)
    with pytest.raises(OptionError, match="no covariances"):
        bbl.bbl(
            "y ~ a * b", rows, method="pvi", scale=0.5, n_iter=500, seed=1, verbose=0
        ).cov_params()


def test_estimates_are_there_without_inference_and_of_rows_without_groups(rows):
    field = bbl.bbl("y ~ .^2", rows, method="mf", verbose=0)
    np.testing.assert_array_equal(field.params, field.tidy()["estimate"])
    with pytest.raises(OptionError, match="likelihood equations"):
        _ = field.bse
    one = bbl.bbl("~ a * b", rows, lambda_=0.0, lambdah=0.0, verbose=0)
    assert one.params.index.equals(one.pvalues.index) and len(one.params) == 3


def test_a_level_in_the_place_of_alpha_is_told(fit):
    with pytest.raises(OptionError, match=r"alpha must be in \(0, 0.5\]; got 0.95"):
        fit.conf_int(0.95)
    with pytest.raises(BBLTypeError, match="no argument 'level'"):
        fit.conf_int(level=0.9)
    with pytest.raises(OptionError, match="not a group"):
        fit.cov_params(7)


def test_memory_of_a_covariance_is_asked_for_before_it_is_made(fit, monkeypatch):
    def refuse(needed, what, remedy):
        raise MemoryLimitError(f"{what}: {needed:g}. {remedy}")

    monkeypatch.setattr("bbl.results.machine.estimates.check_memory", refuse)
    with pytest.raises(MemoryLimitError, match="covariance of 6 parameters: 288. Pass one group"):
        fit.cov_params()
    with pytest.raises(MemoryLimitError, match="covariance of 3 parameters: 72"):
        fit.cov_params(1)


def test_an_unknown_group_or_predictor_is_answered_in_whole_sentences():
    fit = bbl.bbl("Survived ~ Sex * Age", bbl.datasets.load_titanic(), "Freq", verbose=0)
    inference = fit.inference()
    for call in (
        lambda g: inference.cov_params(g),
        lambda g: inference.table((g, "No")),
        lambda g: fit.explain(of=(g, "No")),
    ):
        with pytest.raises(
            OptionError,
            match=r"^'yes' is not a group\. Hint: Did you mean 'Yes'\?.*\['No', 'Yes'\]\.$",
        ):
            call("yes")
        with pytest.raises(OptionError, match=r"^'q' is not a group\."):
            call("q")
    exact = bbl.bbl(
        "Survived ~ Sex * Age", bbl.datasets.load_titanic(), "Freq", method="ml", verbose=0
    )
    with pytest.raises(
        OptionError, match=r"^'sex' is not a predictor\. Hint: Did you mean 'Sex'\? Choose"
    ):
        exact.odds_ratios(pairs=[("sex", "Age")])


def test_strengths_that_differ_by_rounding_keep_their_order():
    """The third is larger than the second by 6e-17."""
    labels = Labels("y", ("u",), tuple("abcd"), (("0", "1"),) * 4)
    layout = Layout([2] * 4, [(0, 1), (0, 2), (2, 3)])
    theta = np.zeros((1, layout.size))
    theta[0, layout.D :] = 0.2, 0.3, 0.1 + 0.2
    frame = term_frame(labels, layout, theta, np.ones(theta.shape, dtype=bool))
    assert frame["predictors"].head(3).tolist() == [("a", "c"), ("c", "d"), ("a", "b")]
