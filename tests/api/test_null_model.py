"""The null model, ``y ~ 1``: class proportions for every row, by every method."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines import ENGINES
from bbl.errors import FormulaError, OptionError

TITANIC = bbl.datasets.load_titanic()
SHARES = TITANIC.groupby("Survived")["Freq"].sum() / TITANIC["Freq"].sum()
QUICK = {
    "bayes": {"chains": 2, "warmup": 20, "draws": 20},
    "pvi": {"draws": 2, "chains": 20, "n_iter": 20},
    "pcd": {"n_iter": 20},
}


@pytest.mark.parametrize("formula", ["Survived ~ 1", "Survived ~ Sex - Sex"])
@pytest.mark.parametrize("method", [*ENGINES, "auto"])
def test_class_proportions_are_predicted(method, formula, tmp_path):
    fit = bbl.bbl(formula, TITANIC, "Freq", method=method, verbose=0, **QUICK.get(method, {}))
    found = fit.predict(TITANIC.head(3), type="prob")[["No", "Yes"]].to_numpy(float)
    np.testing.assert_allclose(found, np.tile(SHARES.to_numpy(), (3, 1)), rtol=1e-6)
    assert str(fit.summary())
    fit.save(tmp_path / "null.bbl", store_data=True)
    again = bbl.load(tmp_path / "null.bbl").predict(TITANIC.head(3), type="prob")
    pd.testing.assert_frame_equal(again, fit.predict(TITANIC.head(3), type="prob"))


def test_a_likelihood_ratio_test_against_it_is_that_of_a_logistic_regression():
    fits = [
        bbl.bbl(f"Survived ~ {right}", TITANIC, "Freq", method="conditional", ridge=0, verbose=0)
        for right in ("1", "Sex")
    ]
    table = bbl.anova(fits)
    # R: anova(glm(Survived ~ 1, binomial, weights = Freq), glm(Survived ~ Sex, ...))
    np.testing.assert_allclose(table["ratio"].iloc[1], 434.4688, atol=1e-4)
    assert table["df"].iloc[1] == 1
    p = SHARES.to_numpy()
    np.testing.assert_allclose(fits[0].logLik(), 2201 * (p @ np.log(p)), rtol=1e-10)


def test_it_is_what_batches_and_folds_have_too():
    batches = bbl.bbl(
        "Survived ~ 1", lambda: iter([TITANIC.head(16), TITANIC.tail(16)]), "Freq", verbose=0
    )
    found = batches.predict(TITANIC.head(1), type="prob")["Yes"]
    np.testing.assert_allclose(found, SHARES["Yes"], rtol=1e-6)
    cv = bbl.crossVal(
        "Survived ~ 1", TITANIC, "Freq", lambda_=[0.1], score="logloss", verbose=0, shuffle=True
    )
    assert np.isfinite(cv.cvframe.iloc[:, 1]).all()


def test_what_needs_coefficients_says_that_there_are_none():
    fit = bbl.bbl("Survived ~ 1", TITANIC, "Freq", verbose=0)
    for ask in (fit.inference, fit.conf_int, lambda: fit.bse):
        with pytest.raises(OptionError, match="no predictors, so it has no coefficients"):
            ask()
    with pytest.raises(FormulaError, match="no predictors are left"):
        bbl.bbl("~ 1", TITANIC, "Freq", verbose=0)
