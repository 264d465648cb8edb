"""Model files of every format version so far: they load for ever, with the predictions that they
had when written.

`python tests/results/test_stored_models.py` adds the files that are not there yet to
`tests/results/models`; the others stay as they are.
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
    "summary": {
        "method": "pseudo",
        "lambda_": "cv",
        "lambdah": 0.1,
        "missing": "marginal",
    },  # tests and tuning are stored
}


def data():
    """Return a table with names, levels and row labels of every kind that a file holds."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"class of": rng.permutation(["é", "b:c", "d`e"] * 20)},
        index=[f"row {k}" for k in range(60)],
    )
    frame["flag"] = rng.random(60) < 0.5
    frame[3] = rng.integers(-1, 2, 60)
    frame["half"] = rng.integers(0, 3, 60) / 2
    frame["ordered"] = pd.Categorical(
        rng.permutation(["low", "high"] * 30), ["low", "high"], ordered=True
    )
    return frame


def write():
    for name, options in FITS.items():
        stem = FOLDER / f"version{VERSION}_{name}"
        if stem.with_suffix(".bbl").exists():
            continue
        fit = bbl.bbl("`class of` ~ .^2 - flag:half", data(), **{"method": name, **options})
        fit.save(stem.with_suffix(".bbl"), store_data=name in ("pseudo", "mf"))
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
        "theta": fit.estimate.parameters.theta.sum(axis=1).tolist(),
        "stored_rows": 0 if fit.training is None else len(fit.model_frame),
        "sections": None
        if fit.training is not None
        else [plain(section) for section in fit._sections],
        "tuning": None if fit.tuning is None else [fit.tuning.chosen, *fit.tuning.loss.tolist()],
    }


def plain(section):
    """Return a table of the summary as text."""
    table = section.table
    return [
        section.heading,
        section.note,
        list(table.columns),
        list(table.index),
        table.astype(str).to_numpy().tolist(),
    ]


def test_each_kind_is_stored_in_the_present_version():
    assert {path.stem for path in STORED} >= {f"version{VERSION}_{name}" for name in FITS}


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_models_load_and_predict_as_they_did(path, tmp_path):
    fit, expected = (
        bbl.load(path),
        json.loads(path.with_suffix(".json").read_text(encoding="utf-8")),
    )
    got = facts(fit)
    for name, value in expected.items():
        if name in ("probabilities", "log_lik", "theta"):
            np.testing.assert_allclose(got[name], value, rtol=1e-12)
        else:
            assert got[name] == value, name
    assert f"Settings: {next(iter(vars(fit.engine)))} = " in str(fit.summary())
    fit.save(tmp_path / "again.bbl", store_data=fit.training is not None)
    assert facts(bbl.load(tmp_path / "again.bbl")) == got


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"testNull": False},
        {"method": "mf", "eps": "cv"},
        {"method": "naive"},
        {"lambda_": "cv-1se", "calibrate": "temperature", "missing": "drop"},
    ],
    ids=str,
)
# groups that do not differ
@pytest.mark.filterwarnings("ignore:On the .* rows:bbl.errors.DataWarning")
def test_a_loaded_model_prints_the_summary_that_was_saved(options, tmp_path):
    options = options if "method" in options else {"lambdah": 0.1, **options}
    fit = bbl.bbl("`class of` ~ .^2 - flag:half", data(), **options)
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")
    was, now = fit.summary(), back.summary()
    assert (
        str(now) == str(was) and now.as_html() == was.as_html() and now.as_latex() == was.as_latex()
    )
    assert list(now.tables) == list(was.tables) and ("Wald tests" in str(now)) == (
        options.get("method") != "mf"
    )
    assert (back.tuning is None) == (fit.tuning is None)
    if fit.tuning is not None:
        np.testing.assert_array_equal(back.tuning.loss, fit.tuning.loss)
        assert back.tuning.option == fit.tuning.option and back.tuning.found == fit.tuning.found
    back.save(tmp_path / "again.bbl")
    assert (tmp_path / "again.bbl").read_bytes() == (tmp_path / "m.bbl").read_bytes()


if __name__ == "__main__":
    write()
