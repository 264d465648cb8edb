"""Hints of the command line, the estimators, and files: models, data sets, tables."""

import gzip
import hashlib
import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import bbl
from advice.common import DATA, FITTED, case, fit, in_folder, patched, raising
from bbl import storage
from bbl.__main__ import main
from bbl.rows.on_disk import CodeFile
from bbl.rows.sample import Sample
from bbl.sklearn import BBLClassifier, BinningTransformer, ScoreFeatures

X = DATA[["a", "b"]]
Y = DATA["y"].to_numpy()
GREY = np.random.default_rng(5).uniform(-1, 1, (20, 3))
CLASSES = np.arange(20) % 2
CSV = DATA.to_csv(index=False)
GAPPED = CSV.replace("\n0,", "\n-,", 3)
NAIVE = ("--method", "naive", "--prior-count", "1")


def tried(
    *arguments: str, text: str = CSV, encoding: str = "utf-8", status: int | None = None
) -> Any:
    """Return a call of the command line in a folder with the table `d.csv`, a saved model `m.bbl`,
    and a folder `parts` of Parquet files.
    """

    def run(folder: Path) -> None:
        (folder / "d.csv").write_text(text, encoding=encoding)
        if "{}/m.bbl" in arguments:
            NAIVE_FIT.save(folder / "m.bbl")
        if "{}/rare.bbl" in arguments:
            RARE.save(folder / "rare.bbl")
        if any("parts" in argument for argument in arguments):
            (folder / "parts").mkdir()
            DATA.to_parquet(folder / "parts" / "one.parquet")
        found = main([argument.replace("{}", str(folder)) for argument in arguments])
        assert status is None or found == status  # noqa: S101

    return in_folder(run)


def ran(*arguments: str, **options: Any) -> Any:
    """Return a call of the command line that has to succeed."""
    return tried(*arguments, **options, status=0)


NAIVE_FIT = fit("y ~ a + b", method="naive", prior_count=1.0)
TEXTUAL = fit("y ~ a + b", DATA.assign(a=DATA["a"].map(str)), method="naive", prior_count=1.0)

RARE = fit("y ~ a", bbl.lump(DATA.assign(a=["p", "q"] + ["u", "v"] * 29)), method="naive")
WORDS = DATA.assign(a=["-"] + ["u"] * 59).to_csv(index=False)
COMMANDS = {
    "marks beside rare levels": case(
        "If they are missing values, pass --na NA --na -",
        tried("predict", "{}/rare.bbl", "{}/d.csv", text=WORDS),
        ran("predict", "{}/rare.bbl", "{}/d.csv", text=WORDS.replace("-", "v")),
    ),
    "a report in a folder": case(
        "Pass the path of a file in this directory",
        tried("y ~ a", "{}/d.csv", *NAIVE, "--report", "{}"),
        ran("y ~ a", "{}/d.csv", *NAIVE, "--report", "{}/page.html"),
    ),
    "a figure of an unknown type": case(
        r"Pass a name that ends in .*\.pdf.* or ",
        tried("evaluate", "{}/m.bbl", "{}/d.csv", "--plot", "{}/figure.doc"),
        ran("evaluate", "{}/m.bbl", "{}/d.csv", "--plot", "{}/figure.svg"),
    ),
    "kept columns of batches": case(
        "Leave --keep out",
        tried("predict", "{}/m.bbl", "{}/parts", "--keep", "c"),
        ran("predict", "{}/m.bbl", "{}/parts"),
    ),
    "a kept column that is absent": case(
        "Use one of its columns",
        tried("predict", "{}/m.bbl", "{}/d.csv", "--keep", "z"),
        ran("predict", "{}/m.bbl", "{}/d.csv", "--keep", "c"),
    ),
    "surplus cells": case(
        "Give every column a name in the header",
        tried("y ~ a", "{}/d.csv", text="y,a\n" + "s,0,1,2\nt,1,0,1\n" * 9),
        ran("y ~ a", "{}/d.csv", *NAIVE, text="y,a,b,c\n" + "s,0,1,2\nt,1,0,1\n" * 9),
    ),
    "text in another encoding": case(
        "Save it as a CSV file in UTF-8",
        tried("y ~ a", "{}/d.csv", text="y,a\n" + "é,0\nt,1\n" * 9, encoding="latin-1"),
        ran("y ~ a", "{}/d.csv", *NAIVE, text="y,a\n" + "é,0\nt,1\ns,0\n" * 9),
    ),
    "cells that semicolons separate": case(
        "Specify the field separator: --sep ';'",
        tried("y ~ a", "{}/d.csv", text=CSV.replace(",", ";")),
        ran("y ~ a", "{}/d.csv", *NAIVE, "--sep", ";", text=CSV.replace(",", ";")),
    ),
    "levels of batches": case(
        "Prepare the files first",
        tried("y ~ a", "{}/parts", "--lump", "5"),
        ran("y ~ a", "{}/parts", *NAIVE),
    ),
    "ordered levels of no column": case(
        "Use one of its columns",
        tried("y ~ a", "{}/d.csv", "--levels", "z=0,1"),
        ran("y ~ a", "{}/d.csv", *NAIVE, "--levels", "a=0,1"),
    ),
    "one level alone": case(
        "Write them as in Never,Sometimes,Often",
        tried("y ~ a", "{}/d.csv", "--levels", "a=0"),
        ran("y ~ a", "{}/d.csv", *NAIVE, "--levels", "a=0,1"),
    ),
    "a level that is not listed": case(
        r"Add it to --levels\.",
        tried("y ~ a", "{}/d.csv", "--levels", "a=1,2"),
        ran("y ~ a", "{}/d.csv", *NAIVE, "--levels", "a=0,1,2"),
    ),
    "marks among numbers": case(
        "If they are missing values, add --na NA --na -",
        tried("y ~ a", "{}/d.csv", *NAIVE, text=GAPPED),
        ran(
            "y ~ a", "{}/d.csv", *NAIVE, "--na", "NA", "--na", "-", "--missing", "drop", text=GAPPED
        ),
    ),
    "marks in new data": case(
        "If '-' means a missing value, pass --na NA --na -",
        tried("predict", "{}/m.bbl", "{}/d.csv", text=GAPPED),
        ran(
            "predict",
            "{}/m.bbl",
            "{}/d.csv",
            "--na",
            "NA",
            "--na",
            "-",
            "--unseen",
            "ignore",
            text=GAPPED.replace("\n-,", "\n0,"),
        ),
    ),
}


def features(**options: Any) -> Any:
    return ScoreFeatures("conjugate", pairs="none", **options)


def weighted(**weights: float) -> Any:
    return BBLClassifier("naive", class_weight=weights, options={"prior_count": 1.0})


def naive(**options: Any) -> Any:
    return BBLClassifier("naive", options={"prior_count": 1.0}, **options)


ESTIMATORS = {
    "an estimator without rows": case(
        "Pass rows of at least two classes",
        lambda: naive().fit(X.head(0), Y[:0]),
        lambda: naive().fit(X, Y),
    ),
    "an estimator of one class": case(
        "Pass rows of at least two classes",
        lambda: naive().fit(X, ["s"] * 60),
        lambda: naive().fit(X, Y),
    ),
    "dates of an estimator": case(
        "Convert it to strings, numbers or categories. For dates, extract a part such as the month",
        lambda: naive().fit(X.assign(d=DAYS), Y),
        lambda: naive().fit(X.assign(d=DAYS.astype(str).str[:7]), Y),
        lambda: naive().fit(X.assign(d=DAYS.dt.month), Y),
    ),
    "missing classes": case(
        r"Drop these rows\.",
        lambda: naive().fit(X, [None, *Y[1:]]),
        lambda: naive().fit(X[1:], Y[1:]),
    ),
    "classes of two types": case(
        "Convert all labels to strings, or all to numbers",
        lambda: naive().fit(X, np.array([1, *Y[1:]], dtype=object)),
        lambda: naive().fit(X, np.array(["1", *Y[1:]], dtype=object)),
        lambda: naive().fit(X, (Y == "s").astype(int)),
    ),
    "class weights of zero": case(
        "Give at least one class a positive weight",
        lambda: weighted(s=0.0, t=0.0).fit(X, Y),
        lambda: weighted(s=0.0, t=1.0).fit(X, Y),
    ),
    "a pair of no columns": case(
        "Pass the names or positions of two or more different columns of X, which has 2 columns",
        lambda: BBLClassifier("mf", pairs=[("a", "z")]).fit(X, Y),
        lambda: BBLClassifier("mf", pairs=[("a", "b")]).fit(X, Y),
        lambda: BBLClassifier("mf", pairs=[(0, 1)]).fit(X, Y),
    ),
    "normalised scores of numbers": case(
        "Leave normalised=None",
        lambda: features(normalised=True).fit(GREY, CLASSES),
        lambda: features().fit(GREY, CLASSES),
    ),
    "one row of each class": case(
        r"Use cv=None\.",
        lambda: features().fit_transform(GREY[:2], CLASSES[:2]),
        lambda: features(cv=None).fit_transform(GREY[:2], CLASSES[:2]),
    ),
    "an option of no conjugate model": case(
        "Pass c, hidden, hidden_pairs or sweeps",
        lambda: features(options={"eps": 0.1}).fit(GREY, CLASSES),
        lambda: features(options={"c": 9.0, "hidden": 1, "sweeps": 2}).fit(GREY, CLASSES),
    ),
    "pairs of no hidden units": case(
        "Add 'hidden': 10 to options, or omit 'hidden_pairs'",
        lambda: features(options={"hidden_pairs": True}).fit(GREY, CLASSES),
        lambda: features(options={"hidden_pairs": True, "hidden": 10, "sweeps": 2}).fit(
            GREY, CLASSES
        ),
        lambda: features().fit(GREY, CLASSES),
    ),
    "features of one class": case(
        "Pass rows of two or more",
        lambda: features().fit(GREY, CLASSES * 0),
        lambda: features().fit(GREY, CLASSES),
    ),
    "draws of features of categories": case(
        r"Call model_\.result_\.sample\(\)",
        lambda: CATEGORICAL.sample("s"),
        lambda: CATEGORICAL.model_.result_.sample(2, seed=0),
    ),
    "draws of no class": case(
        "Pass one of 0, 1",
        lambda: CONJUGATE.sample(7),
        lambda: CONJUGATE.sample(1),
    ),
    "an array of amounts": case(
        r"Bin them first, for example with BinningTransformer\(\) in the pipeline",
        lambda: naive().fit(np.random.default_rng(0).normal(size=(60, 2)), Y),
        lambda: naive().fit(
            BinningTransformer().fit_transform(np.random.default_rng(0).normal(size=(60, 2))), Y
        ),
    ),
}
DAYS = pd.Series(pd.date_range("2020", periods=60, freq="7D"))
CATEGORICAL = ScoreFeatures("naive", pairs="none", options={"prior_count": 1.0}).fit(X, Y)
CONJUGATE = features(options={"hidden": 1, "sweeps": 2}).fit(GREY, CLASSES)


def written(meta: Any, **arrays: Any) -> Any:
    """Return a call that writes a model file."""
    return in_folder(lambda f: storage.write_model(f / "m.bbl", meta, arrays, "kind"))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"x": value}


def damaged(folder: Path, size: int | None) -> Any:
    """Save a model, cut its file to `size` bytes, and load it."""
    FITTED.save(folder / "m.bbl")
    (folder / "m.bbl").write_bytes((folder / "m.bbl").read_bytes()[:size])
    return bbl.load(folder / "m.bbl")


def stored(content: bytes | None) -> Any:
    """Return a call that reads a data set from a file of the folder BBL_DATA with this content,
    or whose digest is that of the original if it is None.
    """
    name = "t10k-labels-idx1-ubyte.gz"
    original = b"\0\0\x08\x01\0\0\0\x02\x03\x04"

    def call(folder: Path) -> Any:
        (folder / name).write_bytes(gzip.compress(original) if content is None else content)
        remote = replace(
            datasets._REMOTE[name], content_sha256=hashlib.sha256(original).hexdigest()
        )
        with (
            mock.patch.dict(os.environ, {"BBL_DATA": str(folder)}),
            mock.patch.dict(datasets._REMOTE, {name: remote}),
        ):
            return datasets._fetch(name)

    return in_folder(call)


def downloaded(data_folder: str, **modules: Any) -> Any:
    """Return a call that fetches a data set with these modules, and BBL_DATA of that name."""

    def call() -> Any:
        with (
            mock.patch.dict(os.environ, {"BBL_DATA": data_folder}),
            mock.patch.dict(sys.modules, modules),
        ):
            return datasets._fetch("t10k-labels-idx1-ubyte.gz")

    return call


datasets = importlib.import_module("bbl.datasets")
OFFLINE = mock.Mock(retrieve=raising(OSError("no network")))


def write_codes(room: bool = True) -> Any:
    """Store the codes of a row in a file, on a disk that is full without `room`."""
    file = CodeFile(2, np.dtype(np.uint8))
    if not room:
        file._file = mock.Mock(write=mock.Mock(side_effect=OSError("No space left on device")))
    file.append((0, 0), Sample(np.zeros((1, 2), np.uint8), np.ones(1), None, None))
    return file.finish()


FILES = {
    "room for codes": case(
        "Set the environment variable TMPDIR to a directory with enough free space",
        lambda: CodeFile(2, np.dtype(np.uint8)).check_room(10**15),
        lambda: CodeFile(2, np.dtype(np.uint8)).check_room(1),
    ),
    "codes on a full disk": case(
        "Set the environment variable TMPDIR to a directory with enough free space",
        lambda: write_codes(room=False),
        write_codes,
    ),
    "a damaged model file": case(
        "If it is damaged, save the model again or get an intact copy",
        in_folder(lambda f: damaged(f, 100)),
        in_folder(lambda f: damaged(f, None)),
    ),
    "a model file of other content": case(
        r"Save the model again\.",
        in_folder(
            lambda f: (storage.write_model(f / "m.bbl", {}, {}, "bbl"), bbl.load(f / "m.bbl"))
        ),
        in_folder(lambda f: damaged(f, None)),
    ),
    "a name that no file has": case(
        r"Choose another file name\.",
        lambda: FITTED.save("m\0.bbl"),
        in_folder(lambda f: FITTED.save(f / "m.bbl")),
    ),
    "an array of objects": case(
        r"Convert it first\.",
        written({}, x=np.array(["u"], dtype=object)),
        written({}, x=np.array([1.0])),
    ),
    "a number that is too long": case(
        r"Make it smaller\.", written({"x": 10**5000}), written({"x": 10**50})
    ),
    "a deep list": case(r"Reduce the nesting\.", written(nested(100)), written(nested(3))),
    "an infinite number of a model file": case(
        r"Pass None\.", written({"x": np.inf}), written({"x": None})
    ),
    "a set in a model file": case(
        "Use str, int, float, bool, None, list or dict",
        written({"x": {1}}),
        written({"x": [1, 1.0, "u", True, None, {}]}),
    ),
    "a data set that is cut": case(
        "Replace it with the original", stored(b"\x1f\x8b"), stored(None)
    ),
    "a data set that is another": case(
        "Replace it or delete it", stored(gzip.compress(b"other")), stored(None)
    ),
    "a folder of data that is absent": case(
        "Set it to the directory that contains the downloaded files, or unset it",
        downloaded("/no/such/folder"),
        stored(None),
    ),
    "a download without pooch": case(
        "Run pip install 'boltzmann-bayes.data.', or put t10k.* set the environment variable",
        downloaded("", pooch=None),
        stored(None),
    ),
    "a download without a network": case(
        "Put t10k-labels-idx1-ubyte.gz into a directory and set the environment variable BBL_DATA",
        downloaded("", pooch=OFFLINE),
        stored(None),
    ),
    "predictions of another type of file": case(
        r"Pass a name that ends in \.csv or \.parquet",
        in_folder(lambda f: FITTED.predict_batches(X.assign(c=0), to=f / "p.xlsx")),
        in_folder(lambda f: FITTED.predict_batches(X.assign(c=0), to=f / "p.csv")),
        in_folder(lambda f: FITTED.predict_batches(X.assign(c=0), to=f / "p.parquet")),
    ),
    "predictions on a full disk": case(
        "Free some space, or pass another directory",
        in_folder(
            lambda f: patched(
                "bbl.results.batches.os.replace",
                raising(OSError(28, "No space left on device")),
                lambda: FITTED.predict_batches(X.assign(c=0), to=f / "p.csv"),
            )()
        ),
        in_folder(lambda f: FITTED.predict_batches(X.assign(c=0), to=f / "p.csv")),
    ),
}
TABLE = COMMANDS | ESTIMATORS | FILES
