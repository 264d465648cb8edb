"""The documentation: its code runs, the reference is complete, and the comparison with R is that of the tests."""

import contextlib
import csv
import re
from pathlib import Path

import pytest
import rcases
from rcompare import RULES

import bbl

DOCS = Path(__file__).resolve().parents[1] / "docs"
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "{code-cell}" in page.read_text(encoding="utf-8")]


def cells(page):
    """Return the code cells of a page without their options."""
    return [re.sub(r"\A(:.*\n)+", "", code) for code in CELL.findall(page.read_text(encoding="utf-8"))]


def test_pages_are_found():
    """Ten pages or more have code, so that the test below does not pass for want of any."""
    assert len(PAGES) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_code_of_pages_runs(page, tmp_path, monkeypatch, capsys):
    """The cells of a page run one after the other, without warnings."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    with contextlib.ExitStack() as stack:
        stack.callback(plt.close, "all")
        for number, code in enumerate(cells(page)):
            exec(compile(code, f"{page.name}, cell {number}", "exec"), names)  # noqa: S102


def table(name):
    with (DOCS / name).open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize("module", [bbl, bbl.datasets, bbl.errors], ids=lambda module: module.__name__)
def test_reference_lists_every_public_name(module):
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api" / "index.rst").read_text(encoding="utf-8"), re.MULTILINE))
    prefix = "" if module is bbl else module.__name__.removeprefix("bbl.") + "."
    public = {name for name in module.__all__ if name not in ("datasets", "errors")}
    assert public <= {name.removeprefix(prefix) for name in listed}


def test_comparison_with_r_passed_under_the_rules_of_the_tests():
    checks = table("matches_r.csv")
    assert len(checks) > 3000
    assert all(float(row["difference"]) <= float(row["tolerance"]) for row in checks)
    rules = {row["rule"]: row["what is compared"] for row in table("matches_r_rules.csv") if row["rule"] != "all"}
    assert rules == {rule: RULES[rule] for rule in {row["rule"] for row in checks}}


def test_comparison_with_r_has_all_cases(shared):
    assert [row["problem"] for row in table("matches_r_cases.csv")] == rcases.names()
