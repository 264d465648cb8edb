"""Warnings about tables: responses that are amounts, and counts that are not named as weights."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import DataWarning


def test_a_response_of_many_numbers_is_told():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"age": np.arange(240) % 40, "a": rng.integers(0, 2, 240), "b": rng.integers(0, 2, 240)}
    )
    with pytest.warns(DataWarning, match=r"'age' has 40 distinct numbers.*bbl.bin\(data, 'age'\)"):
        bbl.bbl("age ~ a + b", table, method="naive", verbose=0)
    bbl.bbl(
        "age ~ a + b",
        table.assign(age=table["age"].map("{}".format)),
        method="naive",
        prior_count=1,
        verbose=0,
    )


def test_a_table_of_counts_without_weights_is_told():
    titanic = bbl.datasets.load_titanic()
    with pytest.warns(
        DataWarning, match=r"the same number of rows, so all coefficients are 0. .* weights='Freq'"
    ):
        fit = bbl.bbl("Survived ~ Class + Sex", titanic, verbose=0)
    assert np.abs(fit.params).max() < 1e-6
    bbl.bbl("Survived ~ Class + Sex", titanic.drop(columns="Freq"), verbose=0)
    bbl.bbl("Survived ~ Class + Sex", titanic, "Freq", verbose=0)
    bbl.bbl("Survived ~ Class + Sex", titanic.iloc[1:], verbose=0)
