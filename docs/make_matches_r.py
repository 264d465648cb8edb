"""Write the tables of the page "Does it match R?": every difference from R's stored outputs, measured by the tests.

matches_r.csv has a row for each comparison, matches_r_cases.csv for each stored problem, matches_r_rules.csv for each rule.
Run in the checkout with the folder of reference outputs beside it (or named by BBL_SHARED):
``python docs/make_matches_r.py``. It takes about a minute.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "tests")]

import rcases  # noqa: E402
from rcompare import RULES  # noqa: E402
from test_reference_r import compare  # noqa: E402


def described(case: rcases.Case) -> str:
    """Return the call behind a case in a few words: its formula or sizes, and its arguments under R's names."""
    args = ", ".join(f"{name}={_short(value)}" for name, value in case.args.items())
    weights = "" if case.weights is None else ", weights"
    return f"{_short(case.input.get('formula', 'integer codes'))}{weights}{', ' * bool(args)}{args}"


def _short(value: object) -> str:
    text = f"{len(value)} values" if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def main() -> None:
    """Compare every case and write the tables."""
    cases, checks = [], []
    for name in rcases.names():
        case = rcases.Case(name)
        cases.append([name, case.kind, described(case)])
        for check in compare(case):
            checks.append([name, check.quantity, f"{check.difference:.2g}", f"{check.tolerance:.2g}", check.rule])
    if not cases:
        raise SystemExit(f"no reference outputs in {rcases.folder()}; set BBL_SHARED")
    write("matches_r.csv", ["case", "quantity", "difference", "tolerance", "rule"], checks)
    write("matches_r_cases.csv", ["case", "kind", "call"], cases)
    write("matches_r_rules.csv", ["rule", "words"], list(RULES.items()))
    print(f"{len(checks)} comparisons of {len(cases)} cases")


def write(name: str, header: list[str], rows: list) -> None:
    """Write a table as CSV beside this file."""
    with (DOCS / name).open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([header, *rows])


if __name__ == "__main__":
    main()
