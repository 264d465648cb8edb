"""Tests of the vignettes: their form, and the data that they carry against the stored R runs;
.ci/run executes them.
"""

import ast
import base64
import gzip
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from expected_errors import expecting, until_last_error

import bbl
from bbl.datasets import load_titanic

FOLDER = Path(__file__).resolve().parents[1] / "vignettes"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def literal(script, name):
    """Return the constant that a vignette assigns to `name`."""
    for node in ast.parse((FOLDER / script).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"{script} has no {name}")


def unpacked(text):
    return np.frombuffer(base64.b85decode(text.replace("\n", "")), dtype=np.uint8)


def letters(text, n, m):
    bits = np.unpackbits(unpacked(text)).reshape(n, m, 2)
    return np.array(list("acgt"))[bits[..., 0] * 2 + bits[..., 1]]


def columns(case, *names):
    table = {column["name"]: column["values"] for column in case["input"]["data"]["columns"]}
    return np.array([table[name] for name in names]).T


def test_all_are_there():
    names = [
        "binding_sites",
        "contingency_tables",
        "digit_scores",
        "discriminant",
        "from_csv",
        "genetic_code",
        "high_order",
        "mnist",
        "network_classifiers",
        "persistent_inference",
        "posteriors",
        "protein_contacts",
        "r_users",
        "reconstruction",
        "simulated",
        "sparse_couplings",
        "sparse_interactions",
        "survey",
        "titanic",
        "two_way_clustering",
        "two_way_simulations",
    ]
    assert [script.stem for script in SCRIPTS] == names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_is_a_percent_script_with_a_title(script):
    text = script.read_text(encoding="utf-8")
    header, *cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    assert header.startswith("# ---\n# jupyter:\n") and "format_name: percent" in header
    assert re.match(r" \[markdown\]\n# # \S", cells[0])
    assert sum(bool(re.search(r"^# # ", cell, flags=re.MULTILINE)) for cell in cells) == 1
    for cell in cells:
        if cell.startswith(" [markdown]"):
            lines = cell.strip().split("\n")[1:]
            assert lines and all(line == "" or line.startswith("#") for line in lines)
        else:
            options, code = cell.split("\n", 1)
            assert options in ("", ' tags=["hide-input"]')
            ast.parse(code)
    assert not re.search(r"/work|/tmp|/home|\.\./", text)


ERRORS = [script for script in SCRIPTS if until_last_error(script.read_text(encoding="utf-8"))]


def test_some_show_errors():
    assert {"from_csv", "r_users"} <= {script.stem for script in ERRORS}


@pytest.mark.parametrize("script", ERRORS, ids=lambda script: script.stem)
def test_errors_that_are_shown_occur(script, capsys):
    code = until_last_error(script.read_text(encoding="utf-8"))
    exec(expecting(code, script.name), {"__name__": "__main__"})  # noqa: S102


def test_an_error_that_is_shown_and_does_not_occur_fails():
    once = "try:\n    int('1')\nexcept ValueError as error:\n    print(error)"
    in_a_loop = (
        "for text in ('x', '1'):\n    try:\n        int(text)\n    except ValueError as error:\n   "
        "     print(error)"
    )
    for code in (once, in_a_loop):
        with pytest.raises(AssertionError, match="ValueError, and nothing was raised"):
            exec(expecting(code, "page"), {})  # noqa: S102
    exec(expecting(once.replace("'1'", "'x'"), "page"), {})  # noqa: S102
    exec(expecting(once.replace(" as error", "").replace("error)", "0)"), "page"), {})  # noqa: S102  # a way round


def test_titanic_training_half_is_that_of_r(shared):
    case = json.loads((shared / "reference" / "bbl" / "titanic_split159.json").read_text())
    freq = load_titanic()["Freq"].to_numpy()
    row = np.repeat(np.arange(32), freq)
    train = np.array(case["input"]["train_rows_1based"]) - 1
    assert literal("titanic.py", "TRAIN") == np.bincount(row[train], minlength=32).tolist()


def test_simulated_rows_and_parameters_are_those_of_r(shared):
    case = json.loads((shared / "reference" / "bbl" / "sim135_cv_mf_paper.json").read_text())
    rows = letters(literal("simulated.py", "ROWS"), 1000, 5)
    np.testing.assert_array_equal(rows, columns(case, "v1", "v2", "v3", "v4", "v5"))
    assert columns(case, "y").ravel().tolist() == ["ctrl"] * 487 + ["case"] * 513
    expected = [
        np.concatenate(
            [
                *(list(h.values()) for h in par["h"].values()),
                *(np.ravel(e["values"]) for e in par["J"]),
            ]
        )
        for par in case["truth"]["par"]
    ]
    numbers = unpacked(literal("simulated.py", "TRUE")).view("<i2").reshape(2, 105) / 30_000
    np.testing.assert_allclose(numbers, expected, rtol=0, atol=2e-5)


def test_numbers_worked_by_hand_in_the_lesson_are_those_of_its_model():
    text = (FOLDER / "discriminant.py").read_text(encoding="utf-8")
    cell = next(cell for cell in text.split("# %%") if "clinic = " in cell)
    names = {"pd": pd, "bbl": bbl}
    exec(cell.split("print(")[0], names)  # noqa: S102
    ask = [
        (fever, priors) for fever in ("yes", "no") for priors in (None, {"flu": 0.5, "cold": 0.5})
    ]
    found = [
        names["clinic"].predict({"fever": [fever]}, type="prob", priors=p)["flu"].iloc[0]
        for fever, p in ask
    ]
    np.testing.assert_allclose(found, [18 / 34, 0.45 / 0.55, 2 / 66, 0.05 / 0.45])
    twice = names["patients"].assign(cough=names["patients"]["fever"])
    both = bbl.bbl("illness ~ .", twice, "patients", method="naive", prior_count=0)
    found.append(both.predict({"fever": ["yes"], "cough": ["yes"]}, type="prob")["flu"].iloc[0])
    for number in found:
        assert re.search(rf"=\s(?:# )?{number:.3f}\b", text), number
    decide = {"type": "class", "costs": {"flu": {"cold": 10}, "cold": {"flu": 1}}}
    treated = [
        names["clinic"].predict({"fever": ["no"]}, priors=p, **decide).iloc[0]
        for p in (None, "equal")
    ]
    assert treated == ["cold", "flu"]  # 0.030 and 0.111, on both sides of 1 / 11


def test_densities_worked_by_hand_in_the_lesson_are_those_of_its_model():
    text = (FOLDER / "discriminant.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%.*\n", text, flags=re.MULTILINE)
    names: dict = {}
    for start in ("import itertools", "iris = ", "length = "):
        exec(next(cell for cell in cells if cell.startswith(start)), names)  # noqa: S102
    length = names["length"]
    flower = {"petal_length": [5.0]}
    priors = {"setosa": 0, "versicolor": 0.75, "virginica": 0.25}
    p = [length.predict(flower, type="prob", priors=own)["virginica"][0] for own in (None, priors)]
    mu = length.means().to_numpy()[0]
    S = length.covariances("setosa").to_numpy()[0, 0]
    densities = np.exp(-((5.0 - mu) ** 2) / (2 * S))
    for number in (*densities[1:], *p):
        assert f"= {number:.3f}$" in text, number
    assert f"0.74^2 / {2 * S:.4f})" in text


def test_the_table_of_the_lesson_on_log_linear_models_is_that_of_r(shared):
    case = json.loads((shared / "reference" / "loglin" / "ucb_AD_GD.json").read_text())
    columns = {column["name"]: column for column in case["data"]["columns"]}
    keys = [
        np.array(columns[name]["levels"])[columns[name]["codes"]]
        for name in ("Dept", "Gender", "Admit")
    ]
    expected = dict(zip(zip(*keys, strict=True), columns["n"]["values"], strict=True))
    cells = itertools.product(*literal("contingency_tables.py", "LEVELS").values())
    assert dict(zip(cells, literal("contingency_tables.py", "COUNTS"), strict=True)) == expected


def test_numbers_in_the_text_of_the_lesson_on_log_linear_models():
    text = (FOLDER / "contingency_tables.py").read_text(encoding="utf-8")
    # department, gender, admission
    n = np.reshape(literal("contingency_tables.py", "COUNTS"), (6, 2, 2)).astype(float)
    of_gender, admitted = n.sum(axis=(0, 2)), n[..., 1].sum(axis=0)
    expected = (
        n.sum(axis=2, keepdims=True)
        * n.sum(axis=1, keepdims=True)
        / n.sum(axis=(1, 2), keepdims=True)
    )
    parts = 2 * (n * np.log(n / expected)).sum(axis=(1, 2))
    to_a_and_b = n[:2].sum(axis=(0, 2)) / of_gender
    for words in (
        f"admitted {admitted[0] / of_gender[0]:.1%}".replace("%", " %"),
        f"{admitted[1] / of_gender[1]:.1%}".replace("%", " %") + " of the women",
        f"{n.sum():,.0f} applicants",
        f"of the {of_gender[1]:,.0f} women",
        (
            f"= {of_gender[1] * admitted.sum() / n.sum():.1f}$ would be admitted, but "
            f"only {admitted[1]:.0f} were"
        ),
        f"{to_a_and_b[1]:.0%} of the women but {to_a_and_b[0]:.0%} of the men".replace("%", " %"),
        f"sum to {parts[1:].sum():.1f}",
    ):
        assert words in " ".join(text.replace("\n#", "").split()), words


def test_digits_of_the_thesis_are_read_from_their_files(tmp_path, monkeypatch):
    text = (FOLDER / "digit_scores.py").read_text(encoding="utf-8")
    cells = [
        cell for cell in re.split(r"^# %%.*\n", text, flags=re.MULTILINE) if "\nimport " in cell
    ]
    (reading,) = (
        cell for cell in re.split(r"^# %%\n", text, flags=re.MULTILINE) if "def read_zip" in cell
    )
    names: dict = {}
    exec(cells[0], names)  # noqa: S102
    rng = np.random.default_rng(0)
    written = {}
    for part, n in (("zip.train", 20), ("zip.test", 10)):
        digits = np.arange(n) % 10
        pixels = rng.uniform(-1, 1, (n, 256)).round(3)
        written[part] = (pixels, digits)
        # a digit is written as 6.0000, and a line ends in a blank
        lines = [
            " ".join([f"{digit:.4f}", *(f"{pixel:.3f}" for pixel in row)]) + " "
            for digit, row in zip(digits, pixels, strict=True)
        ]
        content = ("\n".join(lines) + "\n").encode()
        if part == "zip.test":
            (tmp_path / "zip.test.gz").write_bytes(gzip.compress(content))
        else:
            (tmp_path / part).write_bytes(content)
    monkeypatch.setenv("BBL_DATA", str(tmp_path))
    exec(reading.split("# %%")[0], names)  # noqa: S102
    found = [names[name] for name in ("train", "y_train", "test", "y_test", "side")]
    for got, expected in zip(found, [*written["zip.train"], *written["zip.test"], 16], strict=True):
        np.testing.assert_array_equal(got, expected)
    monkeypatch.delenv("BBL_DATA")
    exec(reading.split("# %%")[0], names)  # noqa: S102
    assert names["side"] == 8 and names["train"].shape[1] == 64


def test_codons_are_those_of_r(shared):
    case = json.loads((shared / "reference" / "bbl" / "codon_cv_paper.json").read_text())
    codons = letters(literal("genetic_code.py", "CODONS"), 2000, 3)
    np.testing.assert_array_equal(codons, columns(case, "b1", "b2", "b3"))


def functions(script, *names):
    """Return the functions of a vignette, without running its cells."""
    wanted = ("RRandom", "NumpyRandom", *names)
    tree = ast.parse((FOLDER / script).read_text(encoding="utf-8"))
    kept = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in wanted)
    ]
    namespace = {}
    exec(compile(ast.Module(kept, []), script, "exec"), namespace)  # noqa: S102
    return namespace


def test_binding_sites_takes_a_folder_of_jaspar_files(tmp_path):
    page = functions(
        "binding_sites.py", "with_controls", "read_motif", "read_motifs", "best_scores"
    )
    rng = np.random.default_rng(0)
    first = rng.choice(list("ACGT"), size=(60, 6), p=[0.7, 0.1, 0.1, 0.1])
    first[:, 3] = np.where(first[:, 2] == "A", "G", first[:, 3])
    flanked = [f">MA0001.1\tsite{i}\nacg{''.join(site)}t\nttt\n" for i, site in enumerate(first)]
    odd = [">short\nAC\n", ">unknown\nACNGTA\n", ">flanks\nacgt\n"]
    (tmp_path / "MA0001.1.sites").write_text("".join(flanked + odd))
    (tmp_path / "MA0002.1.fasta").write_text(">a\nACGT\n" * 29)  # one too few
    (tmp_path / "MA0003.1.fa").write_text("")
    (tmp_path / "README.txt").write_text(">a\nACGT\n" * 40)
    ((name, sites),) = page["read_motifs"](tmp_path)
    assert name == "MA0001.1"
    np.testing.assert_array_equal(sites, first)
    assert len(page["read_motifs"](tmp_path, 29)) == 2
    scores = page["best_scores"](sites, 0)
    assert scores[1] >= scores[0] > 0.5 and scores[3] >= scores[2] > 0.5
    assert page["read_motifs"](tmp_path / "absent") == []


def test_high_order_takes_a_table_of_factors(tmp_path):
    read = functions("high_order.py", "read_factors")["read_factors"]
    assert read(tmp_path) is None
    (tmp_path / "tf").mkdir()
    (tmp_path / "tf" / "binding.csv").write_text("MYC,MAX,FOS\n1,1,0\n0,0,1\n")
    assert read(tmp_path) is None  # the pairs are not there yet
    (tmp_path / "tf" / "known_pairs.csv").write_text("a,b\nMYC,MAX\nSTAT1,STAT2\n")
    rows, pairs = read(tmp_path)
    assert rows.to_dict("list") == {"MYC": [1, 0], "MAX": [1, 0], "FOS": [0, 1]}
    assert pairs == [("MYC", "MAX"), ("STAT1", "STAT2")]
