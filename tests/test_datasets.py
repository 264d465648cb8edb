"""Tests of bbl.datasets: the shipped tables against figures known from elsewhere, and downloads
from a local server.
"""

import gzip
import hashlib
import http.server
import runpy
import sys
import threading
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bbl.datasets
from bbl.datasets import (
    fetch_ma0014,
    fetch_mnist,
    load_crp_sites,
    load_genetic_code,
    load_mnist,
    load_splice_sites,
    load_titanic,
    load_titanic_passengers,
)
from bbl.errors import DataError, OptionError

MNIST = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


def test_titanic_has_r_levels_in_r_order():
    titanic = load_titanic()
    assert list(titanic.columns) == ["Class", "Sex", "Age", "Survived", "Freq"]
    levels = {name: list(titanic[name].cat.categories) for name in titanic.columns[:4]}
    assert levels == {
        "Class": ["1st", "2nd", "3rd", "Crew"],
        "Sex": ["Female", "Male"],
        "Age": ["Adult", "Child"],
        "Survived": ["No", "Yes"],
    }
    assert not any(titanic[name].cat.ordered for name in levels)
    assert titanic["Freq"].dtype == "int64"
    # R's row order: the first factor runs fastest
    codes = titanic[list(levels)].apply(lambda column: column.cat.codes)
    assert list(codes.assign(Sex=1 - codes["Sex"], Age=1 - codes["Age"]) @ [1, 4, 8, 16]) == list(
        range(32)
    )


@pytest.mark.parametrize(
    ("column", "totals"),
    [
        ("Class", {"1st": 325, "2nd": 285, "3rd": 706, "Crew": 885}),
        ("Sex", {"Male": 1731, "Female": 470}),
        ("Age", {"Child": 109, "Adult": 2092}),
        ("Survived", {"No": 1490, "Yes": 711}),
    ],
)
def test_titanic_margins_are_the_published_ones(column, totals):
    titanic = load_titanic()
    assert titanic.groupby(column, observed=True)["Freq"].sum().to_dict() == totals


def test_titanic_survivors_by_sex_and_class():
    titanic = load_titanic()
    alive = (
        titanic[titanic["Survived"] == "Yes"].groupby(["Sex", "Class"], observed=True)["Freq"].sum()
    )
    assert alive["Female"].to_dict() == {"1st": 141, "2nd": 93, "3rd": 90, "Crew": 20}
    assert alive["Male"].to_dict() == {"1st": 62, "2nd": 25, "3rd": 88, "Crew": 192}


def test_passengers_of_the_titanic():
    passengers = load_titanic_passengers()
    assert list(passengers.columns) == ["Class", "Sex", "Age", "Survived"]
    known = passengers["Age"].dropna()
    # the summaries that are published with the data
    assert (len(passengers), len(known), round(known.mean(), 2)) == (1309, 1046, 29.88)
    assert (known.min(), known.max()) == (0.1667, 80.0)
    alive = passengers[passengers["Survived"] == "Yes"].groupby(["Sex", "Class"], observed=True)
    assert alive.size().tolist() == [139, 94, 106, 61, 25, 75]
    # as in the table of the report, but without its crew
    report = load_titanic().query("Class != 'Crew'").groupby("Class", observed=True)["Freq"].sum()
    counts = passengers["Class"].value_counts()
    assert (counts - report).dropna().abs().max() <= 8


def test_genetic_code_counts_per_amino_acid():
    code = load_genetic_code()
    assert list(code.columns) == ["b1", "b2", "b3", "aa"]
    codons = code["b1"] + code["b2"] + code["b3"]
    assert codons.is_unique and len(codons) == 64 and set("".join(codons)) == set("acgt")
    degeneracy = code["aa"].value_counts().to_dict()
    expected = {6: "LRS", 4: "AGPTV", 3: "I*", 2: "CDEFHKNQY", 1: "MW"}
    assert degeneracy == {aa: count for count, letters in expected.items() for aa in letters}
    assert (code["aa"] != "*").sum() == 61


@pytest.mark.parametrize(
    ("codon", "aa"),
    [
        ("atg", "M"),
        ("tgg", "W"),
        ("taa", "*"),
        ("tag", "*"),
        ("tga", "*"),
        ("gat", "D"),
        ("aaa", "K"),
    ],
)
def test_genetic_code_of_known_codons(codon, aa):
    code = load_genetic_code().set_index(["b1", "b2", "b3"])["aa"]
    assert code[tuple(codon)] == aa


def test_each_call_returns_a_fresh_table():
    first = load_titanic()
    first["Freq"] = -1
    assert (load_titanic()["Freq"] >= 0).all()


def test_every_data_file_is_described():
    folder = files("bbl.data")
    readme = folder.joinpath("README.md").read_text(encoding="utf-8")
    tables = [file for file in folder.iterdir() if file.name.endswith((".csv", ".csv.gz"))]
    assert len(tables) == 6
    for file in tables:
        section = readme.split(f"## {file.name}\n")[1].split("\n## ")[0]
        assert "Source:" in section and "Licence:" in section
        columns = bbl.datasets._read(file.name).columns
        assert all(f"`{name}`" in section for name in columns)


@pytest.mark.long
def test_mnist_sample_is_drawn_from_the_originals(shared):
    draw = runpy.run_path(
        str(Path(__file__).resolve().parents[1] / "data" / "drawing" / "mnist.py")
    )["draw"]
    assert (
        draw(shared / "data" / "mnist")
        == gzip.decompress(files("bbl.data").joinpath("mnist.csv.gz").read_bytes()).decode()
    )


@pytest.mark.long
@pytest.mark.parametrize(("part", "n"), [("train", 1000), ("test", 500)])
def test_mnist_sample_matches_all_of_mnist(shared, monkeypatch, part, n):
    monkeypatch.setenv("BBL_DATA", str(shared / "data"))
    sample, everything = load_mnist(part), fetch_mnist(part)
    assert (
        sample.shape == (n, 785) and sample.index.is_unique and set(sample["y"]) == set(range(10))
    )
    pd.testing.assert_frame_equal(sample, everything.loc[sample.index], check_names=False)
    # the usual counts of ones in the original files
    assert (everything["y"] == 1).sum() == {"train": 6742, "test": 1135}[part]


def test_mnist_thresholds(shared, monkeypatch):
    monkeypatch.setenv("BBL_DATA", str(shared / "data" / "mnist"))
    grey = fetch_mnist("test", threshold=None)
    assert grey.iloc[:, 1:].to_numpy().max() == 255
    np.testing.assert_array_equal(
        fetch_mnist("test", threshold=50).iloc[:, 1:], grey.iloc[:, 1:] > 50
    )
    with pytest.raises(OptionError, match="threshold"):
        fetch_mnist("test", threshold=255)
    with pytest.raises(OptionError, match="part='valid'"):
        load_mnist("valid")


def test_crp_sites():
    sites = load_crp_sites()
    assert sites.shape == (358, 26) and set(sites.to_numpy().ravel()) == set("ACGT")
    assert sites.index[4] == "araBp" and "".join(sites.loc["caiFp"]) == "ATAAGCAGGATTTAGCTCACACTTAT"
    # the motif is TGTGA-N6-TCACA
    consensus = "".join(sites.mode().iloc[0])
    assert "TGTGA" in consensus and "TCACA" in consensus


def test_splice_sites():
    sites = load_splice_sites()
    assert list(sites.columns) == [*"123456789", "count"] and sites["count"].sum() == 298_479
    assert not sites.iloc[:, :9].duplicated().any()
    assert set(sites["4"]) == {"G"} and set(sites["5"]) == {"C", "T"}
    common = sites.groupby("5")["count"].sum()
    assert 0.01 < common["C"] / common["T"] < 0.03  # few introns begin with GC


def test_ma0014_of_the_folder(shared, monkeypatch):
    monkeypatch.setenv("BBL_DATA", str(shared / "data"))
    sites = fetch_ma0014()
    assert sites.shape == (948, 12) and list(sites.columns) == [str(j) for j in range(1, 13)]
    assert ["".join(row) for row in sites.to_numpy()[:2]] == ["GGGCGTGACTTC", "CAGCGTGACGCG"]


def test_files_in_the_folder_are_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("BBL_DATA", str(tmp_path))
    (tmp_path / "MA0014.3.fasta").write_text(">a\nACGT\n")
    with pytest.raises(DataError, match=r"MA0014.*not the original"):
        fetch_ma0014()
    for name in MNIST:
        (tmp_path / f"{name}.gz").write_bytes(b"no gzip file")
    with pytest.raises(DataError, match="cannot be read"):
        fetch_mnist("test")
    monkeypatch.setenv("BBL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="BBL_DATA=.*folder"):
        fetch_ma0014()


class _Server(http.server.ThreadingHTTPServer):
    """A server of one file at every address, which counts the requests."""

    def __init__(self, content: bytes):
        self.content, self.requests = content, 0
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of a small FASTA file that stands for MA0014.3, with an empty cache."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("BBL_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    content = b">a\nACGT\n>b\nAGGT\n"
    digest = hashlib.sha256(content).hexdigest()
    server = _Server(content)
    monkeypatch.setitem(
        bbl.datasets._REMOTE, "MA0014.3.fasta", bbl.datasets._Remote(server.url, digest, digest)
    )
    yield server
    server.shutdown()
    server.server_close()


def test_download_is_cached(server, tmp_path):
    assert fetch_ma0014().shape == (2, 4)
    assert server.requests == 1 and (tmp_path / "bbl" / "MA0014.3.fasta").is_file()
    assert fetch_ma0014()["2"].tolist() == ["C", "G"]
    assert server.requests == 1


def test_download_of_another_file_is_refused(server, tmp_path):
    server.content = b">a\nTTTT\n"
    with pytest.raises(DataError, match=r"MA0014.*could not be downloaded.*BBL_DATA"):
        fetch_ma0014()
    assert not (tmp_path / "bbl" / "MA0014.3.fasta").exists()


def test_download_without_network_says_what_to_do(server):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"could not be downloaded from http://127.*BBL_DATA"):
        fetch_ma0014()


def test_download_without_pooch_says_what_to_do(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match=r"pip install 'boltzmann-bayes\[data\]'.*BBL_DATA"):
        fetch_ma0014()
    assert server.requests == 0
