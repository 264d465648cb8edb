"""The ledger: how many scenarios have run and what was checked, stored as JSON and summarised on
`docs/reliability.md`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from scenarios.exceptions import EXCEPTIONS
from scenarios.laws import LAWS, Law

__all__ = ["enter", "page", "section", "write_page"]

STORED = Path(__file__).with_name("ledger.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"
FIRST, LAST = "<!-- made by python -m tests.scenarios --page -->", "<!-- end of what is made -->"


def place(law: Law) -> tuple[str, int]:
    """Return the position of a law in the source, by which laws are sorted."""
    return law.check.__module__, law.check.__code__.co_firstlineno


def enter(
    scenarios: int,
    failures: int,
    refused: int,
    seconds: float,
    cpu: float,
    jobs: int,
    checked: Counter,
) -> None:
    """Store the results of a run, replacing the last one."""
    laws = {name: checked.get(name, 0) for name in sorted({*LAWS, *checked})}
    found = {
        "scenarios": scenarios,
        "failures": failures,
        "refused": refused,
        "per_minute": round(60 * scenarios / seconds),
        "cpu_ms": round(1e3 * cpu / scenarios),
        "jobs": jobs,
        "laws": laws,
    }
    STORED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def section() -> str:
    """Return the section on laws, runs and exceptions."""
    found = json.loads(STORED.read_text(encoding="utf-8"))
    laws = found["laws"]
    ordered = sorted(LAWS.values(), key=place)
    numbers = {law.name: number for number, law in enumerate(ordered, 1)}
    lines = [
        f"The last long run drew {found['scenarios']:,} scenarios, at {found['per_minute']:,} per "
        f"minute on a busy machine ({found['jobs']} processes, {found['cpu_ms']} ms of CPU time "
        f"per scenario), and checked laws {sum(laws.values()):,} times, with {found['failures']} "
        f"failures. In {found['refused']:,} scenarios, a call raised an error, and following its "
        "hint resolved the error.",
        "",
        "| | law | checked |",
        "| --- | --- | --- |",
    ]
    lines += [
        f"| {numbers[law.name]} | {law.sentence} | {laws.get(law.name, 0):,} |" for law in ordered
    ]
    advice = laws.get("advice_works", 0)
    lines += [
        f"| {len(ordered) + 1} | Following the advice in an error message works. | {advice:,} |",
        "",
        "Some laws have exceptions. The numbers in the last column refer to the table above:",
        "",
        "| exception | laws |",
        "| --- | --- |",
    ]
    for each in EXCEPTIONS:
        affected = ", ".join(str(number) for number in sorted(numbers[name] for name in each.laws))
        lines.append(f"| {each.why} | {affected} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page with the section that is made now."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(FIRST)
    return f"{before}{FIRST}\n\n{section()}\n\n{LAST}{rest.split(LAST)[1]}"


def write_page() -> None:
    """Write the section into the page."""
    PAGE.write_text(page(), encoding="utf-8")
