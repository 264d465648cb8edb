"""A model with a group that has no training rows, as the last fold of a cross-validation may be,
can be used.
"""

import numpy as np
import pandas as pd
import pytest

import bbl

OPTIONS = {"pseudo": {"lambda_": 0.1, "lambdah": 0.1}, "mf": {"eps": 0.3}, "naive": {}}


def crossed(method, empty, missing="raise"):
    """Return a cross-validation whose last fold trains on one group alone, and its data."""
    other = "v" if empty == "u" else "u"
    data = pd.DataFrame(
        {
            "y": [other] * 8 + [empty] * 2,
            "a": [0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
            "b": [0, 0, 1, 1] * 2 + [0, 1],
        }
    )
    if missing != "raise":
        data = data.astype(object)
        data.loc[5, "a"] = None
    rows = np.arange(10)
    folds = [(rows[2:], rows[:2]), (rows[:8], rows[8:])]
    cv = bbl.crossVal(
        "y ~ a * b",
        data,
        method=method,
        cv=folds,
        refit=False,
        missing=missing,
        verbose=0,
        **OPTIONS[method],
    )
    return cv, data


@pytest.mark.parametrize("missing", ["raise", "marginal"])
@pytest.mark.parametrize("empty", ["u", "v"])
@pytest.mark.parametrize("method", OPTIONS)
@pytest.mark.filterwarnings("ignore:On the held-out rows, the log-loss")
def test_all_of_it_can_be_used(method, empty, missing, tmp_path):
    cv, data = crossed(method, empty, missing)
    fit, other = cv.model, "v" if empty == "u" else "u"
    link, prob = fit.predict(data), fit.predict(data, type="prob")
    assert (link[empty] == -np.inf).all() and (link[other] == np.inf).all()
    assert (
        (prob[empty] == 0.0).all()
        and (prob[other] == 1.0).all()
        and (fit.predict(data, type="class") == other).all()
    )
    assert fit.predict().index.tolist() == list(range(8)) and np.isfinite(fit.logLik())
    assert (
        not cv.pooled[["u", "v"]].isna().any().any()
        and np.isfinite(cv.compare().drop(columns="calibrate")).all().all()
    )
    assert (cv.pooled[empty][2:] == -np.inf).all()
    text = str(fit.summary())
    assert "Fit method" in text and (
        method == "mf" or f"group '{empty}' has no training rows" in " ".join(text.split())
    )
    for ask in (
        fit.inference,
        lambda: fit.bse,
        lambda: fit.claic,
        lambda: fit.bootstrap(2),
        lambda: fit.conf_int(),
    ):
        with pytest.raises(
            bbl.BBLError, match="no training rows|standard errors are there for"
        ) as caught:
            ask()
        assert empty in str(caught.value) or method == "mf"
    assert fit.tidy()["estimate"].notna().all() and fit.coef().h[empty]["a"].tolist() == [0.0]
    assert len(fit.model_frame) == len(fit.fitted()) == len(fit.residuals()) == 8
    assert bbl.mcSample(fit, 3, seed=1, verbose=0).emax.shape
    for store_data in (False, True):
        fit.save(tmp_path / "model.bbl", store_data=store_data)
        again = bbl.load(tmp_path / "model.bbl")
        pd.testing.assert_frame_equal(again.predict(data), link)
        assert again.logLik() == fit.logLik() and again.converged == fit.converged
        assert [c.shape for c in again._counts] == [(2, 2), (2, 2)]


def test_a_group_of_one_row_in_consecutive_folds():
    data = pd.DataFrame({"y": ["v"] * 12 + ["u"], "a": [0, 1] * 6 + [0]})
    cv = bbl.crossVal(
        "y ~ a", data, lambda_=0.1, lambdah=0.1, calibrate="none", verbose=0, score="accuracy"
    )
    assert (cv.pooled["u"][cv.observed["y"] == "u"] == -np.inf).all() and cv.maxscore == 12 / 13


def test_the_bytes_of_no_rows_can_be_asked_for():
    from bbl._ext.pseudo.pseudo import memory_estimate

    for n_levels in ([2], [2, 3, 400], [2] * 50):
        for precision in ("double", "single"):
            none, one = (memory_estimate(n, n_levels, precision=precision) for n in (0, 1))
            assert 0 < none[0] <= one[0] and 0 < none[1] <= one[1]
