"""Shrinking: a failing scenario made smaller, step by step, while the same law fails in the same
way.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from scenarios.runner import run
from scenarios.scenario import Scenario

__all__ = ["shrunk"]

SECONDS = 20.0


def simpler(s: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are a little simpler, the simplest first."""
    replace = dataclasses.replace
    rows = tuple(range(s.n)) if s.rows is None else s.rows
    size = len(rows) // 2
    while size:
        for first in range(0, len(rows), size):
            yield replace(s, rows=rows[:first] + rows[first + size :])
        size //= 2
    if len(s.used) > 1:
        for i in s.used:
            yield replace(s, columns=tuple(j for j in s.used if j != i))
    for name, plain in (
        ("source", "pandas"),
        ("names", "plain"),
        ("weights", "none"),
        ("gaps", 0.0),
        ("absent", 0.0),
        ("zeros", 0),
        ("design", {}),
    ):
        if getattr(s, name) != plain:
            yield replace(s, **{name: plain})
    for i, kind in enumerate(s.kinds):
        if kind != "str":
            yield replace(s, kinds=s.kinds[:i] + ("str",) + s.kinds[i + 1 :])
    if s.group_kind != "str":
        yield replace(s, group_kind="str")
    for name in s.options:
        if name != "average":
            yield replace(s, options={k: v for k, v in s.options.items() if k != name})
    if isinstance(s.terms, int):
        for k in range(1, s.terms):
            yield replace(s, terms=k)
    else:
        for t in s.terms:
            if len(t) > 1:
                yield replace(s, terms=tuple(u for u in s.terms if u != t))


def shrunk(s: Scenario, law: str, kind: str, seconds: float = SECONDS) -> tuple[Scenario, str]:
    """Return the smallest scenario that was met that fails in the same way, and the law."""
    end = time.monotonic() + seconds
    names = None if law == "fit" else [law]

    def fails(each: Scenario) -> bool:
        return any(found[:2] == (law, kind) for found in run(each, names or []).failures)

    if not fails(s):
        return s, law
    again = True
    while again and time.monotonic() < end:
        again = False
        for each in simpler(s):
            if time.monotonic() > end:
                break
            if fails(each):
                s, again = each, True
                break
    return s, law
