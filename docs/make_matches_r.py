"""Write the tables of the page "Does it match R?": every difference from R's stored outputs,
measured by the tests.

matches_r.csv has a row for each comparison; matches_r_rules.csv and matches_r_cases.csv sum them up
by rule and by stored problem; matches_r_loglinear.csv sums up those of exact maximum likelihood
with R's log-linear models. Run in the checkout, with the folder of reference outputs beside it (or
named by BBL_SHARED): ``python docs/make_matches_r.py``. It takes about a minute.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pandas as pd

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "tests")]

import rcases  # noqa: E402
import rloglinear  # noqa: E402
from rcompare import RULES  # noqa: E402
from test_reference_r import compare  # noqa: E402


def described(case: rcases.Case) -> str:
    """Return the call behind a case in a few words: its formula, if it has one, and its arguments
    under R's names.
    """
    parts = [case.input["formula"]] if "formula" in case.input else []
    parts += [] if case.weights is None else ["weights"]
    return ", ".join(parts + [f"{name}={_short(value)}" for name, value in case.args.items()])


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} values"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measured() -> tuple[pd.DataFrame, dict[str, str]]:
    """Return a row for each comparison of every case, and the call behind each case."""
    rows = []
    calls = {}
    for name in rcases.names():
        case = rcases.Case(name)
        calls[name] = f"{case.kind}: {described(case)}"
        rows += [[name, c.quantity, c.difference, c.tolerance, c.rule] for c in compare(case)]
    if not rows:
        raise SystemExit(f"no reference outputs in {rcases.folder()}; set BBL_SHARED")
    return pd.DataFrame(
        rows, columns=["problem", "quantity", "difference", "tolerance", "rule"]
    ), calls


def by_rule(checks: pd.DataFrame) -> list[list]:
    """Return a row for each rule, the most frequent first, and one for all."""
    rows = []
    for rule, part in [
        *sorted(checks.groupby("rule"), key=lambda pair: -len(pair[1])),
        ("all", checks),
    ]:
        passed = (part["difference"] <= part["tolerance"]).sum()
        top = f"{part['difference'].max():.1e}" if rule != "all" else ""
        rows.append([rule, RULES.get(rule, ""), part["problem"].nunique(), len(part), passed, top])
    return rows


def by_case(checks: pd.DataFrame, calls: dict[str, str]) -> list[list]:
    """Return a row for each case, with the comparison that used up most of its tolerance."""
    share = checks["difference"] / checks["tolerance"].where(checks["tolerance"] > 0, 1.0)
    rows = []
    for name, part in checks.groupby("problem"):
        worst = part.loc[share[part.index].idxmax()]
        numbers = [f"{worst['difference']:.1e}", f"{worst['tolerance']:.0e}"]
        rows.append([name, calls[str(name)], len(part), worst["quantity"], *numbers, worst["rule"]])
    return rows


def by_number() -> list[list]:
    """Return a row for each kind of comparison with log-linear models of R, and number that is
    compared.
    """
    found: dict[tuple[str, str], list] = {}
    for name in rloglinear.names():
        for check in rloglinear.compare(name):
            quantity = check.quantity.split(": ")[-1]
            found.setdefault((check.rule, quantity), []).append((name, check))
    rows = []
    for kind, words in rloglinear.RULES.items():
        for (rule, quantity), checks in found.items():
            if rule == kind:
                problems = len({name for name, _ in checks})
                largest = max(check.difference for _, check in checks)
                limit = max(check.tolerance for _, check in checks)
                rows.append([words, quantity, problems, f"{largest:.1e}", f"{limit:.0e}"])
    return rows


def write(name: str, header: list[str], rows: list) -> None:
    """Write a table as CSV beside this file."""
    with (DOCS / name).open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle, lineterminator="\n").writerows([header, *rows])


def main() -> None:
    """Compare every case and write the tables."""
    checks, calls = measured()
    texts = checks.assign(
        difference=checks["difference"].map("{:.2g}".format),
        tolerance=checks["tolerance"].map("{:.2g}".format),
    )
    write("matches_r.csv", list(texts), texts.to_numpy().tolist())
    header = [
        "rule",
        "what is compared",
        "problems",
        "comparisons",
        "within tolerance",
        "largest difference",
    ]
    write("matches_r_rules.csv", header, by_rule(checks))
    header = [
        "problem",
        "call",
        "comparisons",
        "closest to its tolerance",
        "difference",
        "tolerance",
        "rule",
    ]
    write("matches_r_cases.csv", header, by_case(checks, calls))
    header = ["what is compared", "number", "problems", "largest difference", "tolerance"]
    write("matches_r_loglinear.csv", header, by_number())
    print(f"{len(checks)} comparisons of {len(calls)} problems")


if __name__ == "__main__":
    main()
