"""Model files with the right checksums around content that no fit has: refused before a kernel sees
it.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import ModelFileError
from bbl.report.machine.summary import Section
from bbl.storage import read_model, write_model


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "model.bbl"
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        {"y": list("uvw") * 8, "a": rng.integers(0, 3, 24), "b": rng.integers(0, 2, 24)}
    )
    # mere noise
    with pytest.warns(bbl.DataWarning, match="On the held-out rows, .* for the class proportions"):
        fit = bbl.bbl("y ~ .^2", data, lambda_=0.1, lambdah=0.1, testNull=True, calibrate="offset")
    fit.save(path, store_data=True)
    return path, *read_model(path)


SECTION = {
    "heading": "Tests",
    "note": "",
    "rows": ["a"],
    "columns": [{"name": "p", "kind": "float", "cells": [0.5]}],
}
TUNING = {
    "option": "lambda_",
    "values": [0.1, 1.0],
    "loss": [0.5, "nan"],
    "chosen": 0,
    "temperature": 1.0,
}
TUNING |= {"offset": [0.0, 0.0, 0.0], "found": []}


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
        ("weights", lambda a: put(a, -0.5)),
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
    with pytest.raises(ModelFileError, match="not a model saved by this package"):
        bbl.load(tmp_path / "forged.bbl")


def test_counts_whose_sum_is_infinite(content, tmp_path):
    _, meta, arrays = content
    # the first files had no number of rows
    old = {name: value for name, value in meta.items() if name != "nobs"}
    write_model(
        tmp_path / "forged.bbl", old, arrays | {"counts": np.full_like(arrays["counts"], 1e308)}
    )
    with np.errstate(over="ignore"), pytest.raises(ModelFileError, match="infinity"):
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
        ("sections", 3),
        ("sections", [{}]),
        ("sections", [SECTION | {"heading": 1}]),
        ("sections", [SECTION | {"rows": ["a", "b"]}]),
        ("sections", [SECTION | {"rows": [1]}]),
        ("sections", [SECTION | {"columns": [{"name": "p", "kind": "object", "cells": [0.5]}]}]),
        ("sections", [SECTION | {"columns": [{"name": "p", "kind": "float", "cells": "0.5"}]}]),
        ("sections", [SECTION | {"columns": [{"name": "p", "kind": "float", "cells": ["half"]}]}]),
        ("sections", [SECTION | {"columns": [{"name": "p", "kind": "int", "cells": [2**63]}]}]),
        ("sections", [SECTION | {"columns": [{"name": "p", "kind": "text", "cells": [[]]}]}]),
        ("tuning", 3),
        ("tuning", {}),
        ("tuning", TUNING | {"chosen": 2}),
        ("tuning", TUNING | {"option": "itmax"}),
        ("tuning", TUNING | {"loss": [0.5]}),
        ("tuning", TUNING | {"temperature": None}),
        ("tuning", TUNING | {"found": [["fold 1"]]}),
        ("tuning", TUNING | {"found": [[1, 2, 3, 4, 5]]}),
    ],
)
def test_names_and_options_that_no_fit_has(content, tmp_path, name, value):
    _, meta, arrays = content
    write_model(tmp_path / "forged.bbl", meta | {name: value}, arrays)
    with pytest.raises(ModelFileError, match="not a model saved by this package"):
        bbl.load(tmp_path / "forged.bbl")


def test_tables_of_any_columns_come_back_as_they_print(content, tmp_path):
    path, meta, arrays = content
    table = pd.DataFrame(
        {
            "chisq": [1.5, np.nan, np.inf],
            "df": [1, 2, 3],
            "sure": [True, False, True],
            "why": ["", "None", "not estimable: no rows"],
            "Pr(>chisq)": [0.1 + 0.2, 5e-324, -0.0],
        },
        index=["dh_[a]^(u)", "dh_[a]^(u)", "\u00e9"],
    )
    fit = bbl.load(path)
    gaps = pd.DataFrame(
        {
            "k": pd.array([1, None], dtype="Int64"),
            "t": ["a", None],
            "o": pd.Series([None, 2], dtype=object),
        }
    )
    sections = [
        ("Tests", table, "a note"),
        ("Nothing", pd.DataFrame(), "why not"),
        ("Gaps", gaps, ""),
    ]
    fit.__dict__["_sections"] = [Section(*section) for section in sections]
    fit.save(tmp_path / "m.bbl")
    back = bbl.load(tmp_path / "m.bbl")._sections
    pd.testing.assert_frame_equal(
        back[0].table, table, check_exact=True, check_index_type=False, check_column_type=False
    )
    assert [(s.heading, s.note) for s in back] == [(s[0], s[2]) for s in sections] and back[
        1
    ].table.empty
    assert str(bbl.load(tmp_path / "m.bbl").summary()) == str(fit.summary())
    bad = meta | {"sections": [SECTION | {"heading": "\x1b[2J", "rows": ["\x07"]}]}
    write_model(tmp_path / "m.bbl", bad, arrays)
    # nothing that a terminal would obey
    assert "\x1b" not in str(bbl.load(tmp_path / "m.bbl").summary())


def test_the_content_itself_is_loaded(content, tmp_path):
    path, meta, arrays = content
    write_model(tmp_path / "same.bbl", meta, dict(arrays))
    assert (tmp_path / "same.bbl").read_bytes() == path.read_bytes()
    assert repr(bbl.load(tmp_path / "same.bbl")) == repr(bbl.load(path))


def test_a_tuned_member_that_knows_no_log_loss_has_none_when_loaded(tmp_path):
    data = pd.DataFrame({"y": ["a", "b"], "x": ["u", "v"]})
    fit = bbl.bbl("y ~ x", data, np.array([3e9, 1e9]), method="auto", verbose=0)
    fit.save(tmp_path / "first.bbl")
    bbl.load(tmp_path / "first.bbl").save(tmp_path / "second.bbl")
    assert (tmp_path / "first.bbl").read_bytes() == (tmp_path / "second.bbl").read_bytes()
