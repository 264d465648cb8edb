"""Advice of errors and warnings: the call that fails or warns, what it says, and the call that
follows it.
"""

import functools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from advice import (
    api,
    convergence,
    design,
    engines,
    fitted,
    methods,
    numbers,
    ordinal,
    outside,
    results,
)
from advice.common import SILENT
from advice.sites import files, provoke, sites

import bbl
from bbl.__main__ import main
from bbl.errors import ConvergenceWarning

TABLES = (
    methods.TABLE,
    design.TABLE,
    api.TABLE,
    engines.TABLE,
    convergence.TABLE,
    numbers.TABLE,
    results.TABLE,
    fitted.TABLE,
    outside.TABLE,
    ordinal.TABLE,
)
TABLE = {name: advice for table in TABLES for name, advice in table.items()}
assert len(TABLE) == sum(map(len, TABLES))  # noqa: S101  # a name twice would hide a case


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.thinned(10)
def test_advice_works_when_it_is_followed(name):
    advice = TABLE[name]
    told, found = provoked_by(name)
    hints = [error.hint or "" for error in told]
    assert any(re.search(advice.says, hint) for hint in hints), [str(error) for error in told]
    assert found  # the hint is a field, and is found in the source
    for follows in advice.follows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            follows()


@functools.cache
def provoked_by(name):
    """Return what the call of a case that fails or warns says, and the sites; see `provoke`."""
    return provoke(TABLE[name])


def provoked():
    """Return the sites of the hints that the cases give."""
    return set().union(*(provoked_by(name)[1] for name in TABLE))


def test_every_hint_has_a_case():
    given = provoked()
    missing = {
        path: [f"{site.first}: {site.hint}" for site in sites(path) if site not in given]
        for path in files()
    }
    missing = {path: hints for path, hints in missing.items() if hints}
    assert not missing, missing


@pytest.mark.parametrize("remedy", ["table", "--missing"])
def test_advice_of_the_command_line_on_an_unknown_response(tmp_path, monkeypatch, capsys, remedy):
    # in batches: of a table in memory the command line leaves these rows out itself
    def run(data, *options):
        data.to_parquet(tmp_path / "d.parquet")
        monkeypatch.chdir(tmp_path)
        return main(["y ~ c", "*.parquet", *options]), capsys.readouterr().err

    status, told = run(SILENT)
    assert status == 1
    assert "Leave these rows out of the table, or pass --missing drop to drop all rows" in told
    status, told = (
        run(SILENT.dropna(subset=["y"])) if remedy == "table" else run(SILENT, "--missing", "drop")
    )
    assert status == 0, told


@pytest.mark.long
def test_firths_penalty_is_advised_for_separated_groups_and_is_finite():
    rows = pd.DataFrame({"y": list("uuvv") * 5, "a": list("ppqq") * 5})
    with pytest.warns(ConvergenceWarning, match="Use ridge='firth'.*or ridge='cv'"):
        bbl.bbl("y ~ a", rows, method="conditional", ridge=0, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        firth = bbl.bbl("y ~ a", rows, method="conditional", ridge="firth", verbose=0)
    table = firth.inference().profile(of=("v", "u"))
    # half an observation more in each cell
    assert table["estimate"].iloc[0] == pytest.approx(2 * np.log(10.5 / 0.5), rel=1e-4)
    assert np.isfinite(table[["lower", "upper"]]).all(axis=None) and table["lower"].iloc[0] > 0
