"""Write matches_r.csv and matches_r_rules.csv: every difference from R's stored outputs, measured by the tests.

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
    """Compare every case and write both tables."""
    rows = []
    for name in rcases.names():
        case = rcases.Case(name)
        for check in compare(case):
            call = [name, case.kind, described(case)]
            rows.append([*call, check.quantity, f"{check.difference:.2g}", f"{check.tolerance:.2g}", check.rule])
    if not rows:
        raise SystemExit(f"no reference outputs in {rcases.folder()}; set BBL_SHARED")
    header = ["case", "kind", "call", "quantity", "difference", "tolerance", "rule"]
    for file, table in (("matches_r.csv", [header, *rows]), ("matches_r_rules.csv", [["rule", "words"], *RULES.items()])):
        with (DOCS / file).open("w", newline="", encoding="utf-8") as handle:
            csv.writer(handle, lineterminator="\n").writerows(table)
    print(f"{len(rows)} comparisons of {len(set(r[0] for r in rows))} cases")


if __name__ == "__main__":
    main()
