"""Model files of every format version so far: they load for ever, with the predictions that they had when written.

`python tests/results/test_stored_models.py` adds the files of the present version to `tests/results/models`;
those of earlier ones stay.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.storage import VERSION

FOLDER = Path(__file__).parent / "models"
STORED = sorted(FOLDER.glob("*.bbl"))
FITS = {
    "pseudo": {"lambda_": 0.1, "lambdah": 0.1, "calibrate": "temperature"},
    "mf": {"eps": 0.5, "testNull": False},
    "naive": {"prior_count": 2.0},
}


def data():
    """Return a table with names, levels and row labels of every kind that a file holds."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"class of": rng.permutation(["é", "b:c", "d`e"] * 20)}, index=[f"row {k}" for k in range(60)])
    frame["flag"] = rng.random(60) < 0.5
    frame[3] = rng.integers(-1, 2, 60)
    frame["half"] = rng.integers(0, 3, 60) / 2
    frame["ordered"] = pd.Categorical(rng.permutation(["low", "high"] * 30), ["low", "high"], ordered=True)
    return frame


def write():
    for method, options in FITS.items():
        fit = bbl.bbl("`class of` ~ .^2 - flag:half", data(), method=method, **options)
        stem = FOLDER / f"version{VERSION}_{method}"
        fit.save(stem.with_suffix(".bbl"), store_data=method != "naive")
        stem.with_suffix(".json").write_text(
            json.dumps(facts(bbl.load(stem.with_suffix(".bbl"))), indent=1) + "\n", encoding="utf-8"
        )


def facts(fit):
    """Return what a loaded model has to give again."""
    return {
        "formula": fit.formula,
        "method": fit.engine.name,
        "levels": [list(map(repr, own)) for own in fit.labels.levels],
        "groups": list(fit.labels.groups),
        "probabilities": fit.predict(data().head(10), type="prob").iloc[:, :-1].to_numpy().tolist(),
        "log_lik": float(fit.logLik()),
        "nobs": fit.nobs(),
        "theta": fit.params.theta.sum(axis=1).tolist(),
        "stored_rows": 0 if fit.sample is None else len(fit.model_frame),
    }


def test_each_method_is_stored_in_the_present_version():
    assert {path.stem for path in STORED} >= {f"version{VERSION}_{method}" for method in FITS}


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_models_load_and_predict_as_they_did(path, tmp_path):
    fit, expected = bbl.load(path), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    got = facts(fit)
    for name, value in expected.items():
        if name in ("probabilities", "log_lik", "theta"):
            np.testing.assert_allclose(got[name], value, rtol=1e-12)
        else:
            assert got[name] == value, name
    assert f"Settings: {next(iter(vars(fit.engine)))} = " in str(fit.summary())
    fit.save(tmp_path / "again.bbl", store_data=fit.sample is not None)
    assert facts(bbl.load(tmp_path / "again.bbl")) == got


if __name__ == "__main__":
    write()
