"""The command line: the Titanic session, a user's own tables, predictions of a saved model,
messages and exit codes.
"""

import io
import os
import re
import subprocess
import sys
import warnings

import lazydata
import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.__main__ import main
from bbl.cli.options import option_names
from bbl.cli.tables import read_table
from bbl.errors import DataWarning

FORMULA = "Survived ~ Class * Sex + Sex * Age"


@pytest.fixture
def titanic(tmp_path):
    path = tmp_path / "titanic.csv"
    bbl.datasets.load_titanic().to_csv(path, index=False)
    return path


@pytest.fixture
def table(tmp_path):
    """Return a function that writes text to a file and returns its path."""

    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def zips(table):
    """A table whose codes begin with a zero in some rows only."""
    return table("y,zip\n" + "u,01\nv,02\nu,01\nv,10\nu,10\nv,02\n" * 3)


@pytest.fixture
def run(capsys):
    """Return a function that runs the command line and returns its status, output and messages."""

    def call(*arguments):
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        return status, *capsys.readouterr()

    return call


def frame(text, **options):
    return pd.read_csv(io.StringIO(text), **options)


def test_the_session_of_the_paper(tmp_path, run):
    picture = tmp_path / "figure.png"
    status, out, _ = run("--plot", picture)
    assert status == 0
    for part in ("dh_[Class]^(No)", "chisq = 180.9014", "Optimal lambda", "Yes"):
        assert part in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_users_file(titanic, tmp_path, run):
    model, new = tmp_path / "model.bbl", tmp_path / "new.csv"
    bbl.datasets.load_titanic().head(5)[["Class", "Sex", "Age"]].to_csv(new, index=False)
    status, out, err = run(FORMULA, titanic, "--weights", "Freq", "--newdata", new, "--save", model)
    assert status == 0 and err == f"Model saved to {model}\n"
    expected = bbl.load(model).predict(pd.read_csv(new), type="prob")
    np.testing.assert_allclose(frame(out)[["No", "Yes"]], expected[["No", "Yes"]], rtol=1e-12)
    assert (frame(out)["yhat"] == expected["yhat"]).all()


def test_parquet_and_options(titanic, tmp_path, run):
    pytest.importorskip("pyarrow")
    path = tmp_path / "titanic.parquet"
    pd.read_csv(titanic).to_parquet(path)
    status, out, _ = run(FORMULA, path, "--weights", "Freq", "--method", "mf", "--eps", "0.5")
    assert status == 0 and "eps = 0.5" in out


def test_real_weights_are_taken_and_left_as_they_are_by_bin_and_lump(tmp_path, run):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"y": np.tile(["a", "b"], 100), "x": rng.normal(size=200), "w": rng.uniform(0.1, 2, 200)}
    )
    table.to_csv(tmp_path / "rows.csv", index=False)
    options = ("--weights", "w", "--bin", "quantile:4", "--lump", "3", "--method", "naive")
    with warnings.catch_warnings():
        warnings.simplefilter("default", DataWarning)
        status, out, error = run("y ~ .", tmp_path / "rows.csv", *options)
    assert status == 0 and "1 predictor state" in out
    assert error.startswith("warning: --weights are not all integers")


def test_parquet_files_have_their_declared_order_or_say_that_it_is_lost(tmp_path, run):
    y, path = np.tile([1, 0], 50), tmp_path / "rows.parquet"
    status = pd.Categorical(np.where(y, "sick", "healthy"), ["sick", "healthy"])
    dose = pd.Categorical(np.roll(y, 1), [1, 0], ordered=True)
    pd.DataFrame({"status": status, "dose": dose, "x": y % 2}).to_parquet(path)
    assert "status = sick healthy" in run("status ~ x", path, "--method", "naive")[1]
    code, _, error = run("status ~ dose", path, "--method", "naive")
    assert code == 1 and error.startswith("error: column 'dose' was written as categories")
    assert error.endswith("Write the column as dictionary-encoded categories that are strings.\n")


@pytest.mark.parametrize("type_", ["prob", "link", "class"])
def test_predict_gives_what_the_saved_model_predicts(titanic, tmp_path, run, type_):
    model = tmp_path / "model.bbl"
    fit = bbl.bbl(FORMULA, bbl.datasets.load_titanic(), "Freq")
    fit.save(model)
    status, out, err = run("predict", model, titanic, "--type", type_)
    assert (status, err) == (0, "")
    expected = fit.predict(pd.read_csv(titanic), type=type_)
    assert out == expected.to_csv(index=False, lineterminator="\n")


def test_effects_are_those_of_the_saved_model(titanic, tmp_path, run):
    model, figure = tmp_path / "model.bbl", tmp_path / "effects.png"
    fit = bbl.bbl(FORMULA, bbl.datasets.load_titanic(), "Freq")
    fit.save(model, store_data=True)
    status, out, err = run(
        "effects", model, "--variables", "Sex", "--by", "Class", "--plot", figure
    )
    assert status == 0 and figure.exists() and "Delta method" in err
    assert out == fit.avg_comparisons("Sex", by="Class").frame.to_csv(
        index=False, lineterminator="\n"
    )
    fit.save(model)
    status, out, err = run("effects", model)
    assert (status, out) == (1, "") and "a table after the model, use --grid" in err
    status, out, err = run("effects", model, titanic, "--weights", "Freq", "--transform", "ratio")
    assert status == 0 and out.count("\n") == 11 and "contain the training rows" in err
    assert "Save it with --store-data." in err
    assert (
        run(
            "effects",
            model,
            "--grid",
            "mode",
            "--variables",
            "Sex",
            "--variables",
            "Age",
            "--cross",
        )[0]
        == 0
    )


def test_tables_come_through_standard_input(titanic, tmp_path, run, monkeypatch):
    model = tmp_path / "model.bbl"
    assert run(FORMULA, titanic, "--weights", "Freq", "--save", model)[0] == 0
    from_file = run("predict", model, titanic)[1]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(titanic.read_bytes())))
    assert run("predict", model, "-")[1] == from_file


@pytest.mark.long
def test_the_penalty_is_chosen_inside_the_fit(titanic, tmp_path, run):
    model = tmp_path / "model.bbl"
    data = bbl.datasets.load_titanic().astype(
        {c: object for c in ("Class", "Sex", "Age", "Survived")}
    )
    for options, given in (
        (["--lambda", "cv-1se", "--seed", "3"], {"lambda_": "cv-1se", "seed": 3}),
        (
            ["--method", "mf", "--eps", "cv", "--calibrate", "temperature"],
            {"method": "mf", "eps": "cv"},
        ),
    ):
        assert (
            run("Survived ~ .^2", titanic, "--weights", "Freq", "--save", model, *options)[0] == 0
        )
        calibrate = {"calibrate": "temperature"} if "--calibrate" in options else {}
        expected = bbl.bbl("Survived ~ .^2", data, "Freq", **given, **calibrate, verbose=0)
        loaded = bbl.load(model)
        assert loaded.engine == expected.engine
        pd.testing.assert_frame_equal(loaded.predict(data), expected.predict(data))


def test_cross_validation_is_that_of_crossval(titanic, tmp_path, run):
    model, picture = tmp_path / "model.bbl", tmp_path / "cv.svg"
    folds = [
        "--cv",
        "--nfold",
        "3",
        "--shuffle",
        "--seed",
        "7",
        "--score",
        "logloss",
        "--lambda",
        "0.001,0.1",
    ]
    status, out, _ = run(
        "Survived ~ .^2", titanic, "--weights", "Freq", *folds, "--save", model, "--plot", picture
    )
    data = bbl.datasets.load_titanic().astype(
        {c: object for c in ("Class", "Sex", "Age", "Survived")}
    )
    options = {
        "nfold": 3,
        "shuffle": True,
        "seed": 7,
        "score": "logloss",
        "lambda_": [0.001, 0.1],
        "verbose": 0,
    }
    cv = bbl.crossVal("Survived ~ .^2", data, "Freq", **options)
    assert status == 0 and out == f"\n>>> cv\n{cv}\n"
    assert bbl.load(model).engine == cv.model.engine
    assert b"<svg" in picture.read_bytes()


def test_codes_with_leading_zeros_stay_text(zips, table, tmp_path, run):
    model = tmp_path / "model.bbl"
    status, out, _ = run("y ~ zip", zips, "--method", "naive", "--save", model)
    assert status == 0 and "zip = 01 02 10" in out
    # alone, 10 would be a number, which the model does not know
    status, out, _ = run("predict", model, table("zip\n10\n10\n", "new.csv"))
    assert status == 0 and len(frame(out)) == 2
    status, _, err = run("predict", model, table("zip\n1\n", "new.csv"))
    assert (
        status == 1
        and "'1'. The model was fitted with '01', '02', '10'" in err
        and "--unseen ignore" in err
    )
    assert run("predict", model, table("zip\n1\n10\n", "new.csv"), "--unseen", "ignore")[0] == 0


def test_types_can_be_given(zips, run):
    assert "zip = 1 2 10" in run("y ~ zip", zips, "--method", "naive", "--dtype", "zip=number")[1]
    status, _, err = run("y ~ zip", zips, "--dtype", "y=number")
    assert status == 1 and "Column 'y' contains 'u', which is not a number" in err


@pytest.mark.parametrize(
    ("cells", "options", "expected"),
    [
        (["1", "2"], {}, [1, 2]),
        (["1", ""], {}, [1, pd.NA]),
        (["1.5", "-2"], {}, [1.5, -2.0]),
        (["0", "0.5", "-0.5"], {}, [0.0, 0.5, -0.5]),
        (["00", "7"], {}, ["00", "7"]),
        (["-01", "7"], {}, ["-01", "7"]),
        (["1234567890123456789", "7"], {}, ["1234567890123456789", "7"]),
        (["1", "x"], {}, ["1", "x"]),
        (["True", "false"], {}, [True, False]),
        (["true", "NA"], {}, [True, np.nan]),
        (["1", "2"], {"types": {None: "text"}}, ["1", "2"]),
        (["01", "2"], {"types": {"b": "number", None: "text"}}, [1, 2]),
        (["01", "x"], {"types": {"b": "numbers"}}, [1, "x"]),
        (["NA", "?"], {"missing": ("", "?")}, ["NA", np.nan]),
        (["NA", "x"], {"levels": {"b": {"NA"}}}, ["NA", "x"]),
        (["inf", "1"], {}, ["inf", "1"]),
    ],
)
def test_cells_become_numbers_truth_values_or_text(table, cells, options, expected):
    path = table("a,b\n" + "".join(f"k,{cell}\n" for cell in cells))
    found = read_table(path, **options)["b"].tolist()
    assert [str(value) for value in found] == [str(value) for value in expected]
    assert [type(value) for value in found] == [type(value) for value in expected]


def test_tab_separated_packed_and_windows_files_are_read(tmp_path):
    expected = pd.DataFrame({"a": ["k", "é"], "b": [1, 2]})
    expected.to_csv(tmp_path / "t.tsv", sep="\t", index=False)
    expected.to_csv(tmp_path / "t.csv.gz", index=False)
    expected.to_csv(tmp_path / "t.csv", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    for name in ("t.tsv", "t.csv.gz", "t.csv"):
        assert read_table(tmp_path / name).to_dict("list") == expected.to_dict("list")


@pytest.mark.filterwarnings("default::bbl.DataWarning")
@pytest.mark.parametrize("header", ['"","y","a"', '"y","a"'])
def test_row_names_of_r_are_no_predictor(table, run, header):
    path = table(
        header + "\n" + "".join(f'"{k}","{"uv"[k % 2]}","{"rs"[k // 2 % 2]}"\n' for k in range(12))
    )
    status, out, err = run("y ~ .", path, "--method", "naive")
    assert status == 0 and " 1 predictor state:\n   a = r s\n" in out
    assert err.startswith("warning: the first column of ") and "left out" in err


def test_missing_markers_can_be_given(table, run):
    path = table("y,a\n" + "u,NA\nv,k\nu,k\nv,?\n" * 3)
    status, _, err = run("y ~ a", path)
    assert status == 1 and "3 missing values. Hint: Drop the rows (--missing drop)" in err
    status, out, _ = run("y ~ a", path, "--na", "?", "--missing", "drop", "--method", "naive")
    assert status == 0 and "a = NA k" in out


@pytest.mark.long
def test_averages_take_missing_values_as_a_level(table, tmp_path, run):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 80))
    cells = pd.DataFrame({"y": np.where(a == b, "u", "v"), "a": a, "b": b}).astype(str)
    cells.loc[rng.random(80) < 0.2, "a"] = ""
    path, model = table(cells.to_csv(index=False)), tmp_path / "model.bbl"
    given = ("--method", "auto", "--missing", "level", "--save", model)
    status, out, err = run("y ~ a * b", path, *given)
    assert status == 0, err
    assert "Average of 7 members" in out and "conditional" in out
    fit = bbl.load(model)
    assert isinstance(fit, bbl.AverageResults) and fit.nobs() == 80
    status, out, _ = run("predict", model, table("a,b\n0,1\n,1\n", "new.csv"))
    told = frame(out)
    assert status == 0 and len(told) == 2 and np.allclose(told[["u", "v"]].sum(axis=1), 1.0)
    status, _, err = run(
        "y ~ a * b", path, "--method", "auto", "--missing", "drop", "--lambda", "0.1"
    )
    assert status == 1 and "--lambda is not one of its options" in err and "--method pseudo" in err


def test_a_text_that_is_a_level_is_not_missing_in_new_data(table, tmp_path, run):
    model = tmp_path / "model.bbl"
    path = table("y,a\n" + "u,NA\nv,k\nu,k\nv,NA\n" * 3)
    assert run("y ~ a", path, "--na", "?", "--method", "naive", "--save", model)[0] == 0
    assert run("predict", model, table("a\nNA\nk\n", "new.csv"))[0] == 0


def test_models_of_numbered_columns_find_them_in_a_table(table, tmp_path, run):
    model = tmp_path / "model.bbl"
    fit = bbl.bbl("y ~ .", pd.DataFrame({"y": [*"uvuv"] * 3, 0: [0, 1, 1, 0] * 3}), method="naive")
    fit.save(model)
    assert run("predict", model, table("0\n1\n0\n", "new.csv"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Survived ~ Nope", "{data}"], ["Nope"]),
        (["Survived ~ .", "{data}", "--weights", "Frq"], ["--weights Frq", "'Freq'"]),
        (["Survived ~ .", "missing.csv"], ["'missing.csv': No such file"]),
        (["Survived ~ .", "{data}", "--newdata", "missing.csv"], ["'missing.csv': No such file"]),
        (["predict", "missing.bbl", "{data}"], ["missing.bbl"]),
        (["predict", "{data}", "{data}"], ["not a model file"]),
        (["Survived ~ .", "{data}", "--lambda", "-1"], ["--lambda must be in [0, inf)"]),
        (["Survived ~ .", "{data}", "--eps", "0.5"], ["--eps is not an option of --method pseudo"]),
        (["Survived ~ .", "{data}", "--prior-count", "-1"], ["--prior-count must be in [0, inf)"]),
        (["Survived ~ .", "{data}", "--jobs", "0"], ["--jobs must not be 0"]),
        (
            ["Survived ~ .", "{data}", "--weights", "Freq", "--cv", "--nfold", "1"],
            ["--nfold must be"],
        ),
        (
            ["Class ~ .", "{data}", "--weights", "Freq", "--cv", "--score", "auc"],
            ["--score auc requires two"],
        ),
        (["Freq ~ .", "-", "--newdata", "-"], ["DATA and --newdata"]),
        (
            ["Survived ~ .", "{data}", "--plot", "fit.xyz"],
            ["--plot: 'fit.xyz' is not a supported", ".png"],
        ),
        (
            ["Survived ~ .", "{data}", "--plot", "nowhere/fit.png"],
            ["--plot: the directory 'nowhere' does not exist"],
        ),
        (
            ["Survived ~ .", "{data}", "--save", "nowhere/fit.bbl"],
            ["--save: the directory 'nowhere' does not exist"],
        ),
        (["Survived ~ .", "{data}", "--save", "."], ["--save: '.' is a directory"]),
        (["--plot", "fit.xyz"], ["--plot: 'fit.xyz' is not"]),
        (["evaluate", "missing.bbl", "{data}"], ["missing.bbl"]),
        (["explain", "missing.bbl", "nowhere.csv"], ["'nowhere.csv': No such file"]),
    ],
)
def test_errors_are_one_line_that_names_options(titanic, run, arguments, words):
    status, out, err = run(*(a.format(data=titanic) for a in arguments))
    assert (status, out) == (1, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert all(word in err for word in words), err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read as a table"),
        ('y,a\n"u,1\n', "cannot be read as a table"),
        (b"y,a\n\xff\xfe,1\n", "cannot be decoded as UTF-8"),
        ("y,a\nu,1,2,3\nv,1,2,3\n", "more fields than the header"),
        ("y,y\nu,1\nv,2\n", "duplicate column name 'y'"),
        ("y,a\n", "table.csv has no rows"),
        ("y,a\n,1\n,2\n,2\n", "missing values, but the response"),
        ("y,a\nu,1\nv,1\n", "or pass --novar-ok"),
        ("y,a\n" + "".join(f"u,{k}.5\nv,{k}.25\n" for k in range(30)), "pass --dtype 'a=text'"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_in_one_line(table, run, text, words):
    status, _, err = run("y ~ a", table(text))
    assert status == 1 and words in err and err.count("\n") == 1
    assert not re.search(r"\w=['\[]|\w\(|xlevels|pandas", err.replace("(novarOk", "")), err


@pytest.mark.parametrize("name", ["fit.xyz", "nowhere/fit.png"])
def test_figures_are_refused_before_the_fit(titanic, run, name, monkeypatch):
    monkeypatch.setattr(bbl, "bbl", None)  # a fit would fail
    assert run(FORMULA, titanic, "--plot", name)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([FORMULA], "CSV"),
        ([FORMULA, "d.csv", "--method", "foo"], "pseudo"),
        ([FORMULA, "d.csv", "--lambda", "foo"], "cv-1se"),
        ([FORMULA, "d.csv", "--lambda", "0.1,1"], "require --cv"),
        ([FORMULA, "d.csv", "--lambda", "cv", "--cv"], "grid"),
        ([FORMULA, "d.csv", "--shuffle"], "--cv"),
        ([FORMULA, "d.csv", "--dtype", "zip"], "zip=text"),
        (["predict", "model.bbl"], "NEWDATA"),
        (["predict", "model.bbl", "d.csv", "--sep", ";;"], "not a single character"),
        ([FORMULA, "d.csv", "--keep", "id"], "--newdata"),
        ([FORMULA, "d.csv", "--store-data"], "--save"),
        ([FORMULA, "d.csv", "--cluster", "place"], "--weights"),
    ],
)
def test_commands_that_are_not_understood_end_with_status_2(capsys, arguments, word):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    out, err = capsys.readouterr()
    assert out == "" and word in err


@pytest.mark.parametrize(
    ("arguments", "word"), [(["--version"], f"bbl {bbl.__version__}"), (["--help"], "predict")]
)
def test_version_and_help_are_printed(capsys, arguments, word):
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert word in capsys.readouterr().out


def test_help_fits_into_120_columns_and_names_every_option(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    with pytest.raises(SystemExit):
        main(["effects", "--help"])
    for command in ("evaluate", "explain", "explore"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 120
    assert all(option in out for option in option_names().values())


@pytest.mark.filterwarnings("default::bbl.ConvergenceWarning")
def test_warnings_name_options_and_do_not_mix_with_predictions(titanic, run):
    status, out, err = run(
        FORMULA,
        titanic,
        "--weights",
        "Freq",
        "--lambda",
        "0",
        "--itmax",
        "1",
        "--newdata",
        titanic,
        "--jobs",
        "1",
    )
    assert status == 0 and err.startswith("warning: In 9 places: did not converge: group 'No'")
    assert "Hint: Increase --itmax, --tolerance or --lambda." in err
    assert len(frame(out)) == 32


def test_an_interrupt_ends_with_status_130(titanic, run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bbl, "bbl", interrupted)
    assert run(FORMULA, titanic) == (130, "", "error: interrupted\n")


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_a_closed_pipe_leaves_no_traceback(titanic):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "bbl", FORMULA, str(titanic), "--weights", "Freq"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_network_is_fitted_predicted_from_and_cross_validated(titanic, tmp_path, run):
    network = ("Survived ~ .", titanic, "--learner", "tan_cl", "--smooth", "1", "--weights", "Freq")
    status, out, _ = run(*network, "--save", tmp_path / "net.bbl", "--plot", tmp_path / "net.png")
    assert (
        status == 0
        and "learning algorithm:    tan_cl" in out
        and (tmp_path / "net.png").stat().st_size
    )
    data = bbl.datasets.load_titanic()
    status, out, _ = run("predict", tmp_path / "net.bbl", titanic)
    levels = data.astype({c: str for c in data.columns[:-1]})
    fit = bbl.networks.bnc("tan_cl", "Survived ~ .", levels, 1, weights="Freq")
    pd.testing.assert_frame_equal(
        frame(out), fit.predict(levels).astype({"yhat": str}), check_dtype=False
    )
    status, out, _ = run(*network, "--cv", "--nfold", "4", "--score", "logloss")
    want = bbl.networks.cv(fit, levels, k=4, score="logloss", weights="Freq")["tan_cl"]
    assert f"{want:.6f}" in out and "k = 4, score = logloss" in out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--learner", "nb", "--eps", "1"], "--eps applies only to Boltzmann machines"),
        (["--learner", "nb", "--method", "mf"], "--method applies only to Boltzmann machines"),
        (["--smooth", "1"], "--smooth needs --learner"),
    ],
)
def test_options_of_the_other_family_are_refused(titanic, capsys, arguments, word):
    with pytest.raises(SystemExit) as ended:
        main(["Survived ~ .", str(titanic), *arguments])
    assert ended.value.code == 2 and word in capsys.readouterr().err


def test_numbers_are_binned_and_rare_levels_lumped_as_new_data_are(table, run, tmp_path):
    rng = np.random.default_rng(0)
    age, town = rng.uniform(18, 90, 300).round(1), rng.choice(["Bern", "Chur"], 300).astype(object)
    town[:3] = ["Visp", "Brig", "Sion"]
    data = pd.DataFrame(
        {"y": np.where(age + rng.normal(0, 10, 300) > 50, "old", "young"), "age": age, "town": town}
    )
    path, model = table(data.to_csv(index=False)), tmp_path / "fit.bbl"
    new = table("age,town\n19.5,Lugano\n88,Bern\n", "new.csv")
    options = (
        "--bin",
        "quantile:4",
        "--lump",
        "5",
        "--lambdah",
        "0.01",
        "--gauge",
        "zero-sum",
        "--save",
        model,
    )
    status, out, _ = run("y ~ .", path, *options, "--newdata", new)
    assert status == 0 and frame(out)["yhat"].tolist() == ["young", "old"]
    lumped = bbl.lump(bbl.bin(data, bins=4, response="y"), min_count=5, response="y")
    expected = bbl.bbl("y ~ .", lumped, lambdah=0.01, gauge="zero-sum")
    np.testing.assert_allclose(
        frame(out)["old"], expected.predict(pd.read_csv(new), type="prob")["old"], rtol=1e-9
    )
    status, again, _ = run("predict", model, new)
    assert status == 0 and again == out
    with pytest.raises(SystemExit):
        run("y ~ .", path, "--bin", "equal")


def test_a_report_is_written(titanic, tmp_path, run):
    page = tmp_path / "fit.html"
    status, out, err = run(FORMULA, titanic, "--weights", "Freq", "--report", page)
    assert status == 0 and err == f"Report saved to {page}\n" and "Call:" in out
    assert "<h1>Model of Survived</h1>" in (text := page.read_text(encoding="utf-8"))
    assert "Survived ~ Class * Sex + Sex * Age" in text
    status, _, err = run(FORMULA, titanic, "--report", tmp_path / "absent" / "fit.html")
    assert status == 1 and "--report" in err


@pytest.mark.long
def test_new_data_of_a_report_may_be_standard_input(titanic, tmp_path, run, monkeypatch, undrawn):
    page = tmp_path / "fit.html"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(titanic.read_bytes())))
    status, out, _ = run(FORMULA, titanic, "--weights", "Freq", "--newdata", "-", "--report", page)
    assert status == 0 and len(frame(out)) == 32
    assert "new rows" in page.read_text(encoding="utf-8")


SURVEY = """id;moving, soon?;mood;age;weight
007;yes;often;40;1.5
008;no;never;-;0.5
009;;some;50;1.0
010;yes;some;40;2.0
011;no;often;60;1.0
012;no;some;30;1.0
013;no;some;-;1.0
"""


@pytest.fixture
def survey(table):
    """A survey with semicolons, "-" for missing numbers, a scale, an answer that is missing, and
    identifiers.
    """
    rows = SURVEY.splitlines()
    return table("\n".join([rows[0]] + rows[1:] * 10), "survey.csv")


MOVING = [
    "`moving, soon?` ~ mood + age",
    "--sep",
    ";",
    "--method",
    "naive",
    "--prior-count",
    "1",
    "--missing",
    "marginal",
]


def test_rows_without_a_response_are_left_out_and_counted(survey, run, tmp_path):
    status, out, err = run(
        MOVING[0],
        survey,
        *MOVING[1:],
        "--na",
        "-",
        "--bin",
        "quantile:2",
        "--save",
        tmp_path / "m.bbl",
    )
    assert status == 0 and err.startswith(
        "10 of 70 rows were left out because 'moving, soon?' is missing\n"
    )
    assert bbl.load(tmp_path / "m.bbl").nobs() == 60


@pytest.mark.filterwarnings("default")
def test_levels_are_in_the_order_that_is_given(survey, run, tmp_path):
    options = [*MOVING[1:], "--na", "-", "--bin", "quantile:2", "--save", tmp_path / "m.bbl"]
    for levels in ("mood=never,some,often", "never,some,often"):
        status, _, err = run(
            MOVING[0], survey, *options, "--levels", levels, "--levels", "moving, soon?=yes,no"
        )
        fit = bbl.load(tmp_path / "m.bbl")
        assert status == 0 and "alphabet" not in err
        assert fit.labels.levels[0] == ("never", "some", "often") and fit.labels.groups == (
            "yes",
            "no",
        )
    assert (
        run(MOVING[0], survey, *options, "--levels", "some,often")[2]
        .splitlines()[-1]
        .startswith("error: --levels")
    )
    status, _, err = run(MOVING[0], survey, *options, "--levels", "mood=some,often")
    assert status == 1 and "'never', which --levels does not list" in err
    assert (
        "Did you mean 'mood'" in run(MOVING[0], survey, *options, "--levels", "mod=some,often")[2]
    )
    assert (
        "two or more different levels"
        in run(MOVING[0], survey, *options, "--levels", "mood=some,some")[2]
    )
    assert (
        "no row has the level 'always'"
        in run(MOVING[0], survey, *options, "--levels", "mood=never,some,often,always")[2]
    )
    both = [*options, "--levels", "mood=never,some,often", "--levels", "never,some"]
    status, _, err = run(MOVING[0], survey, *both)
    assert status == 1 and "column 'mood' has the level 'often', which is not in --levels" in err


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_a_forgotten_marker_of_missing_values_is_named(survey, run, tmp_path):
    model = tmp_path / "m.bbl"
    options = [*MOVING[1:], "--na", "-", "--save", model]
    assert run(MOVING[0], survey, *options, "--bin", "quantile:2")[0] == 0
    status, _, err = run("predict", model, survey, "--sep", ";")
    assert status == 1 and err.endswith(
        "Hint: If '-' means a missing value, pass --na NA --na -.\n"
    )
    assert run("predict", model, survey, "--sep", ";", "--na", "-")[0] == 0
    assert run(MOVING[0], survey, *options, "--dtype", "age=text", "--lump", "11")[0] == 0
    status, out, err = run("predict", model, survey, "--sep", ";")
    assert status == 0 and err.startswith(
        "warning: column 'age' contains '-', which is not a level of the model."
    )
    assert "pass --na NA --na -" in err
    _, _, err = run(MOVING[0], survey, *MOVING[1:])
    assert (
        "column 'age' contains '-' as well as numbers, so it is read as text. Hint: If they are "
        "missing values, add --na NA" in err
    )


def test_identifiers_are_kept_beside_predictions_and_explanations(survey, run, tmp_path):
    model = tmp_path / "m.bbl"
    assert (
        run(MOVING[0], survey, *MOVING[1:], "--na", "-", "--bin", "quantile:2", "--save", model)[0]
        == 0
    )
    new = ("predict", model, survey, "--sep", ";", "--na", "-", "--keep", "id", "--keep", "mood")
    status, out, _ = run(*new)
    kept = frame(out, dtype=str)
    assert status == 0 and kept.columns.tolist() == ["id", "mood", "no", "yes", "yhat"]
    assert kept["id"].tolist()[:3] == ["007", "008", "009"] and kept["mood"].tolist()[:2] == [
        "often",
        "never",
    ]
    status, out, _ = run(
        "explain",
        *new[1:8],
        "id",
        "--of",
        "no",
        "yes",
        "--plot",
        tmp_path / "row.png",
        "--row",
        "3",
    )
    explained = frame(out, dtype=str)
    assert (
        status == 0
        and explained["id"].tolist()[:2] == ["007", "008"]
        and set(explained["group"]) == {"no"}
    )
    assert (tmp_path / "row.png").stat().st_size > 1000
    assert "Hint: Did you mean 'id'?" in run("predict", *new[1:7], "--keep", "ID")[2]
    fit = bbl.load(model)
    newdata = read_table(survey, ["", "-"], sep=";")
    assert np.allclose(
        explained["log_odds"].astype(float), fit.explain(newdata, ("no", "yes")).frame["log_odds"]
    )
    assert (
        "--row must be between 1 and 70"
        in run("explain", *new[1:7], "--plot", tmp_path / "r.png", "--row", "0")[2]
    )


@pytest.mark.filterwarnings("default")
def test_a_saved_model_is_evaluated(survey, run, tmp_path):
    model, options = tmp_path / "m.bbl", ["--sep", ";", "--na", "-"]
    assert (
        run(MOVING[0], survey, *MOVING[1:], "--na", "-", "--bin", "quantile:2", "--save", model)[0]
        == 0
    )
    page, figure = tmp_path / "page.html", tmp_path / "roc.png"
    status, out, err = run(
        "evaluate",
        model,
        survey,
        *options,
        "--weights",
        "weight",
        "--plot",
        figure,
        "--kind",
        "roc",
        "--report",
        page,
    )
    newdata = read_table(survey, ["", "-"], sep=";").dropna(subset="moving, soon?")
    expected = str(bbl.load(model).evaluate(newdata, "weight")).strip()
    assert status == 0 and out.strip() == expected.replace(
        "calibrate='temperature'", "--calibrate temperature"
    )
    assert "10 of 70 rows" in err and page.exists() and figure.exists()
    density = tmp_path / "density.bbl"
    assert run("~ mood + id", survey, "--sep", ";", "--save", density)[0] == 0
    for command in ("evaluate", "explain"):
        assert "has no response" in run(command, density, survey, *options)[2]


@pytest.mark.filterwarnings("default")
def test_a_saved_model_is_explored_on_a_page(survey, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "m.bbl"
    assert run("~ mood + id", survey, "--sep", ";", "--save", model)[0] == 0
    status, out, err = run("explore", model)
    assert status == 0 and not out and err.endswith("written to explore.html\n")
    page = (tmp_path / "explore.html").read_text(encoding="utf-8")
    assert 'id="whatif-model"' in page and page == bbl.load(model).explore("other.html").html
    status, _, err = run("explore", model, "--page", tmp_path / "nowhere" / "page.html")
    assert status == 1 and "--page: the directory" in err
    status, _, err = run("explore", tmp_path / "no.bbl")
    assert status == 1 and "No such file" in err


@pytest.mark.filterwarnings("default")
def test_the_report_is_evaluated_on_new_data_that_have_the_response(survey, run, tmp_path, undrawn):
    page = tmp_path / "page.html"
    options = [
        *MOVING[1:],
        "--na",
        "-",
        "--bin",
        "quantile:2",
        "--weights",
        "weight",
        "--report",
        page,
    ]
    assert run(MOVING[0], survey, *options, "--newdata", survey)[0] == 0
    assert "new rows" in page.read_text(encoding="utf-8")
    without = tmp_path / "without.csv"
    read_table(survey, ["", "-"], sep=";").drop(columns=["moving, soon?", "weight"]).to_csv(
        without, sep=";", index=False
    )
    assert run(MOVING[0], survey, *options, "--newdata", without)[0] == 0
    assert "training rows" in page.read_text(encoding="utf-8")


def test_a_sampling_design_is_that_of_survey(run, tmp_path):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({name: rng.choice([*"uv"], 200) for name in ("y", "a", "b")})
    table["w"], table["point"] = rng.uniform(0.5, 2, 200).round(3), np.arange(200) // 10
    table["region"] = np.where(table["point"] < 10, "n", "s")
    path, model = tmp_path / "table.csv", tmp_path / "m.bbl"
    table.to_csv(path, index=False)
    options = [
        "--weights",
        "w",
        "--strata",
        "region",
        "--cluster",
        "point",
        "--bin",
        "quantile:2",
        "--lump",
        "3",
    ]
    assert run("y ~ a + b", path, *options, "--save", model, "--store-data")[0] == 0
    fit = bbl.bbl("y ~ a + b", table, design=bbl.survey("w", "region", "point"), verbose=0)
    assert bbl.load(model).bse.equals(fit.bse)


def test_folders_and_globs_of_parquet_files_are_read_in_batches(run, tmp_path):
    table = lazydata.make_table(n=600, m=4)
    lazydata.write_parts(table, tmp_path / "parts")
    table.to_csv(tmp_path / "table.csv", index=False)
    for data, newdata in (
        (tmp_path / "parts", tmp_path / "parts"),
        (tmp_path / "parts" / "p*.parquet", "table.csv"),
    ):
        fitted = run("y ~ .", data, "--method", "naive", "--save", tmp_path / "model.bbl")
        assert fitted[0] == 0 and "Fit method: naive" in fitted[1]
        new = newdata if newdata == data else tmp_path / newdata
        status, predicted, _ = run("predict", tmp_path / "model.bbl", new)
        expected = bbl.bbl("y ~ .", table, method="naive").predict(table, type="prob")
        assert status == 0 and frame(predicted)["yhat"].tolist() == expected["yhat"].tolist()
    status, evaluated, _ = run("evaluate", tmp_path / "model.bbl", tmp_path / "parts")
    assert status == 0 and "Observations: 600" in evaluated
    assert evaluated == run("evaluate", tmp_path / "model.bbl", tmp_path / "table.csv")[1]
    status, effects, _ = run("effects", tmp_path / "model.bbl", tmp_path / "parts")
    expected = bbl.load(tmp_path / "model.bbl").avg_comparisons(newdata=table).frame
    assert status == 0
    np.testing.assert_allclose(frame(effects)["estimate"], expected["estimate"], rtol=1e-9)
    assert run("y ~ .", tmp_path / "parts", "--learner", "tan_cl")[0] == 0
    assert run("y ~ .", tmp_path / "parts", "--bin", "quantile")[2].startswith(
        "error: --bin requires a table in memory"
    )
    status, _, error = run("y ~ .", tmp_path / "nothing*.parquet")
    assert status == 1 and "is not a Parquet file, or a directory or glob of Parquet" in error


def test_decimal_commas(table, run, tmp_path):
    text = "y;x;a\n" + "u;1,5;p\nv;2,25;q\nu;0,5;p\nv;2,25;p\n" * 5
    commas = table(text, "commas.csv")
    points = table(text.replace(",", ".").replace(";", ","), "points.csv")
    options = ["--method", "naive", "--prior-count", "1"]
    status, out, err = run("y ~ x + a", commas, "--decimal", ",", *options)
    assert status == 0, err
    assert out.replace("commas", "points") == run("y ~ x + a", points, *options)[1]
    model = tmp_path / "m.bbl"
    assert run("y ~ x + a", points, *options, "--save", model)[0] == 0
    predicted = run("predict", model, commas, "--decimal", ",")
    assert predicted[:2] == run("predict", model, points)[:2]
    with pytest.raises(SystemExit):
        run("y ~ x + a", commas, "--decimal", ";")


@pytest.mark.parametrize(("character", "option"), [(";", "';'"), ("\t", "tab"), ("|", "'|'")])
def test_a_file_of_another_separator(table, run, character, option):
    data = table(("y,a\n" + "u,p\nv,q\nv,p\n" * 5).replace(",", character), "other.csv")
    status, _, err = run("y ~ a", data)
    assert status == 1
    assert f"Specify the field separator: --sep {option}." in err
    assert "Did you mean" not in err
    status, _, err = run("y ~ a", data, "--sep", option.strip("'"), "--method", "mf")
    assert status == 0, err


def test_logits_of_an_ordered_response(run, tmp_path):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 200)
    y = np.array(["low", "mid", "high"])[np.digitize(a + rng.logistic(size=200), [0.3, 1.7])]
    path = tmp_path / "rated.csv"
    pd.DataFrame({"y": y, "a": np.array(list("uvw"))[a]}).to_csv(path, index=False)
    call = ("y ~ a", path, "--method", "conditional", "--ridge", "0", "--logits", "cumulative")
    status, out, err = run(*call)
    assert status == 1 and "--levels y=LOWEST,...,HIGHEST" in err
    status, out, err = run(*call, "--levels", "y=low,mid,high", "--save", tmp_path / "m.bbl")
    assert status == 0, err
    assert re.search(r"Thresholds:\n.*\nlow\|mid .*\nmid\|high ", out)
    status, out, err = run("explain", tmp_path / "m.bbl", path)
    assert status == 0 and "mid or higher,lower" in out
    status, out, err = run("y ~ a", path, "--logits", "adjacent", "--levels", "y=low,mid,high")
    assert status == 1 and "--logits" in err
