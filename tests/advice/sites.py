"""Hints in the source of the package, and which of them a call gives."""

from __future__ import annotations

import ast
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import bbl
from bbl import errors
from bbl.boltzmann.fitted import Problem
from bbl.engines.engine_fit import Note

__all__ = ["Advice", "Site", "files", "provoke", "sites"]

ROOT = Path(bbl.__file__).parent


class Advice(NamedTuple):
    """What a message says, the call that has it, and calls that follow it."""

    says: str
    fails: Callable[[], Any]
    follows: tuple[Callable[[], Any], ...]


class Site(NamedTuple):
    """A call in the source that is given a hint: an error, a warning, or a helper that makes it."""

    path: str
    first: int
    last: int
    hint: str


@functools.cache
def sites(path: str) -> tuple[Site, ...]:
    """Return the sites of a file, a path below `bbl`."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if "hint=" not in source.replace(" ", ""):
        return ()
    tree = ast.parse(source)
    found = [
        Site(path, node.lineno, node.end_lineno or node.lineno, ast.unparse(keyword.value))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "hint"
    ]
    return tuple(sorted(found))


@functools.cache
def files() -> tuple[str, ...]:
    """Return the paths below `bbl` of all files with hints."""
    paths = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
    return tuple(path for path in paths if sites(path))


@contextmanager
def recorded(told: list[BaseException], found: set[Site]) -> Iterator[None]:
    """Add to `told` the errors and warnings with a hint that are made in the block, and to `found`
    their sites, and those of the notes and problems that become warnings.
    """
    files()  # parsed before the call: `ast` is not safe in the threads of a fit (Python 3.11)
    base = errors.BBLError.__mro__[1]
    plain = base.__init__

    def record(self: Any, message: str, **fields: Any) -> None:
        plain(self, message, **fields)
        if fields.get("hint"):
            told.append(self)
            add_callers(found)

    def recording(new: Callable[..., Any]) -> Callable[..., Any]:
        def record_new(cls: type, *values: Any, **fields: Any) -> Any:
            made = new(cls, *values, **fields)
            if made.hint:
                add_callers(found)
            return made

        return record_new

    made_by_new = {kind: kind.__new__ for kind in (Note, Problem)}
    base.__init__ = record  # type: ignore[method-assign]
    for kind, new in made_by_new.items():
        kind.__new__ = recording(new)  # type: ignore[method-assign]
    try:
        yield
    finally:
        base.__init__ = plain  # type: ignore[method-assign]
        for kind, new in made_by_new.items():
            kind.__new__ = new  # type: ignore[method-assign]


def add_callers(found: set[Site]) -> None:
    """Add to `found` the sites that are being called."""
    frame = sys._getframe(2)
    while frame is not None:
        found.update(
            site
            for site in sites_of(frame.f_code.co_filename)
            if site.first <= frame.f_lineno <= site.last
        )
        frame = frame.f_back


@functools.cache
def sites_of(filename: str) -> tuple[Site, ...]:
    """Return the sites of the file of a frame: none outside `bbl`."""
    file = Path(filename)
    return sites(file.relative_to(ROOT).as_posix()) if file.is_relative_to(ROOT) else ()


def provoke(advice: Advice) -> tuple[list[BaseException], set[Site]]:
    """Run the call that fails or warns; return its errors and warnings, and their sites.

    An error may be caught, and its hint become a note of the result.
    """
    found: set[Site] = set()
    told: list[BaseException] = []
    with warnings.catch_warnings(), recorded(told, found), suppress(errors.BBLError):
        warnings.simplefilter("ignore")
        advice.fails()
    return told, found
