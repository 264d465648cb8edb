"""The command line: the Titanic session, and a user's own files."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.__main__ import main

FORMULA = "Survived ~ Class * Sex + Sex * Age"


@pytest.fixture
def titanic(tmp_path):
    path = tmp_path / "titanic.csv"
    bbl.datasets.load_titanic().to_csv(path, index=False)
    return path


def test_the_session_of_the_paper(tmp_path, capsys):
    picture = tmp_path / "figure.png"
    assert main(["--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    for part in ("dh_[Class]^(No)", "chisq = 180.9014", "Optimal lambda", "Yes"):
        assert part in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_users_file(titanic, tmp_path, capsys):
    model, new = tmp_path / "model.bbl", tmp_path / "new.csv"
    bbl.datasets.load_titanic().head(5)[["Class", "Sex", "Age"]].to_csv(new, index=False)
    assert main([FORMULA, str(titanic), "--weights", "Freq", "--newdata", str(new), "--save", str(model)]) == 0
    printed = capsys.readouterr().out
    table = pd.read_csv(__import__("io").StringIO(printed))
    expected = bbl.load(model).predict(pd.read_csv(new), type="prob")
    np.testing.assert_allclose(table[["No", "Yes"]], expected[["No", "Yes"]], rtol=1e-12)
    assert (table["yhat"] == expected["yhat"]).all()


def test_parquet_and_options(titanic, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    path = tmp_path / "titanic.parquet"
    pd.read_csv(titanic).to_parquet(path)
    assert main([FORMULA, str(path), "--weights", "Freq", "--method", "mf", "--eps", "0.5"]) == 0
    assert "eps = 0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["Survived ~ Nope", "{data}"], "Nope"),
        (["Survived ~ .", "{data}", "--weights", "Frq"], "Freq"),
        (["Survived ~ .", "missing.csv"], "missing.csv"),
        (["Survived ~ .", "{data}", "--method", "foo"], "method"),
    ],
)
def test_errors_are_one_line(titanic, capsys, arguments, word):
    assert main([a.format(data=titanic) for a in arguments]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and word in err and "Traceback" not in err


def test_a_formula_without_data_is_refused(capsys):
    with pytest.raises(SystemExit):
        main([FORMULA])
    assert "CSV" in capsys.readouterr().err
