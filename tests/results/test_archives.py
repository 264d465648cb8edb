"""Model files with the right checksums around content that no fit has: refused before a kernel sees it."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import ModelFileError
from bbl.storage import read_model, write_model


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "model.bbl"
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"y": list("uvw") * 8, "a": rng.integers(0, 3, 24), "b": rng.integers(0, 2, 24)})
    bbl.bbl("y ~ .^2", data, lambda_=0.1, lambdah=0.1, testNull=True, calibrate="offset").save(path, store_data=True)
    return path, *read_model(path)


def put(array, value, at=0):
    array = array.copy()
    array.reshape(-1)[at] = value
    return array


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("codes", lambda a: put(a, 7)),
        ("codes", lambda a: a.astype(np.uint16)),
        ("codes", lambda a: a[:, :1].copy()),
        ("y", lambda a: put(a, 3)),
        ("y", lambda a: put(a, -1)),
        ("y", lambda a: a[:-1]),
        ("weights", lambda a: put(a, np.nan)),
        ("weights", lambda a: put(a, 0.5)),
        ("theta", lambda a: a[:, :-1].copy()),
        ("theta", lambda a: a[:2]),
        ("theta", lambda a: put(a, np.inf)),
        ("theta", lambda a: a.astype(np.int64)),
        ("pooled", lambda a: a[:1]),
        ("pairs", lambda a: put(a, 9, 1)),
        ("pairs", lambda a: put(a, 1)),
        ("pairs", lambda a: put(a, -1)),
        ("log_z", lambda a: a[:1]),
        ("log_z_error", lambda a: a[:1]),
        ("prior", lambda a: put(a, -1.0)),
        ("lkh", lambda a: a[:0]),
        ("grad_norm", lambda a: a[:, :1].copy()),
        ("n_iter", lambda a: a.astype(float)),
        ("converged", lambda a: a.astype(np.int8)),
        ("counts", lambda a: -a - 1),
        ("log_likelihood", lambda a: a[:0]),
        ("calibration", lambda a: put(a, 0.0, -1)),
        ("calibration", lambda a: a[:1]),
    ],
)
def test_arrays_that_no_fit_has(content, tmp_path, name, change):
    _, meta, arrays = content
    write_model(tmp_path / "forged.bbl", meta, arrays | {name: change(arrays[name])})
    with pytest.raises(ModelFileError, match="not a model of this package"):
        bbl.load(tmp_path / "forged.bbl")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("call", 1),
        ("log_z_kind", None),
        ("engine", []),
        ("engine", {"name": "pseudo", "lambda_": -1}),
        ("engine", {"name": "other"}),
        ("index", {"labels": [1], "name": None}),
        ("index", {"labels": [[1]] * 24, "name": None}),
        ("index", {"labels": None, "name": {}}),
        ("index", None),
        ("design", {}),
    ],
)
def test_names_and_options_that_no_fit_has(content, tmp_path, name, value):
    _, meta, arrays = content
    write_model(tmp_path / "forged.bbl", meta | {name: value}, arrays)
    with pytest.raises(ModelFileError, match="not a model of this package"):
        bbl.load(tmp_path / "forged.bbl")


def test_the_content_itself_is_loaded(content, tmp_path):
    path, meta, arrays = content
    write_model(tmp_path / "same.bbl", meta, dict(arrays))
    assert (tmp_path / "same.bbl").read_bytes() == path.read_bytes()
    assert repr(bbl.load(tmp_path / "same.bbl")) == repr(bbl.load(path))
