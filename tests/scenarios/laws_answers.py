"""Laws of answers: files, printing, every public method, advice."""

from __future__ import annotations

import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bbl
from bbl.results.effect_table import Effects
from scenarios.advice import follow
from scenarios.case import Case, LawBroken, expect
from scenarios.introspection import COSTLY, answer, difference, public_names
from scenarios.laws import Law, law

WITHOUT_ROWS = re.compile("training rows|were read in|fitted to different rows|from a file")
NOT_IN_FILES = {"history", "converged"}  # a file has no record of the way


def drawn(case: Case, result: Any, count: int) -> list[str]:
    """Draw a few public names of a result, costly ones rarely."""
    names = public_names(result)
    p = np.array(
        [1.0 / COSTLY.get(name, 2 if not name.startswith("plot") else 150) for name in names]
    )
    return list(case.rng.choice(names, min(count, len(names)), replace=False, p=p / p.sum()))


@law(cost=8)
def every_public_name_answers(case: Case) -> None:
    """Every public method and property returns a result, or raises an error of the package that
    gives the reason.
    """
    for name in drawn(case, case.fit, 4):
        said, found = answer(case, case.fit, name, new=bool(case.rng.integers(2)))
        expect(said == "value" or len(found) > 20, f"{name}: refused with {found!r}")
        module = type(found).__module__
        if (
            said == "value"
            and module.startswith("bbl.results")
            and type(found) is not type(case.fit)
        ):
            for inner in drawn(case, found, 2):
                answer(case, found, inner)


@law(cost=12)
def a_loaded_model_answers_alike(case: Case) -> None:
    """A saved and loaded model gives the same results, except for methods that need training rows
    not in the file.
    """
    store = bool(case.rng.integers(2)) and case.in_memory
    with tempfile.TemporaryDirectory(prefix="scenario-") as folder:
        paths = [Path(folder) / f"{k}.bbl" for k in range(2)]
        case.fit.save(paths[0], store_data=store)
        loaded = bbl.load(paths[0])
        loaded.save(paths[1], store_data=store)
        expect(paths[0].read_bytes() == paths[1].read_bytes(), "a loaded model saves other bytes")
    names = drawn(case, case.fit, 4)
    absent = set(public_names(case.fit)) ^ set(public_names(loaded))
    expect(not absent, f"public names of one only: {sorted(absent)}")
    for name in names:
        new = bool(case.rng.integers(2))
        before, after = answer(case, case.fit, name, new), answer(case, loaded, name, new)
        what = difference(before[1], after[1], name)
        if name in NOT_IN_FILES or not what or (not store and lacks_rows(name, *after)):
            continue
        raise LawBroken(f"{what} (store_data={store})")


def lacks_rows(name: str, said: str, found: Any) -> bool:
    """Return whether an answer says that the model has no training rows."""
    if said == "refused":
        return bool(WITHOUT_ROWS.search(found))
    if isinstance(found, pd.DataFrame) and "test" in found:
        return bool(found["test"].astype(str).str.contains("without its training rows").all())
    if isinstance(found, Effects):  # estimates without standard errors
        return bool(WITHOUT_ROWS.search(found.note))
    return name in ("index", "survey") and found is None


class Tags(HTMLParser):
    """Checks that tags are closed in order, and collects the text."""

    VOID = frozenset({"meta", "img", "br", "hr", "link", "input", "col"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        expect(self.open and self.open.pop() == tag, f"HTML: </{tag}> closes another tag")


def check_html(text: str) -> None:
    """Raise `LawBroken` unless tags are closed, and no name of the user's became one."""
    tags = Tags()
    tags.feed(text)
    tags.close()
    expect(not tags.open, f"HTML: {tags.open} are not closed")
    expect("scenario" not in tags.seen, "HTML: a name became a tag")


def printable(case: Case) -> list[Any]:
    """Return the results of a fit that print."""
    calls = [lambda: case.fit, lambda: case.fit.summary()]
    if case.classes:
        calls += [
            lambda: case.fit.evaluate(case.new_frame),
            lambda: case.fit.explain(case.new_frame),
        ]
    calls += [
        lambda: case.fit.inference().summary(),
        lambda: case.fit.coef(),
        lambda: bbl.etable([case.fit, case.fit]),
    ]
    return calls


@law(cost=25)
def results_print(case: Case) -> None:
    """Every result prints, as text and as HTML, with all names escaped."""
    calls = printable(case)
    for k in case.rng.choice(len(calls), 2, replace=False):
        try:
            result = calls[k]()
        except (bbl.BBLError, AttributeError) as error:
            if isinstance(error, bbl.BBLError) or "has no attribute" in str(error):
                continue
            raise
        if isinstance(result, dict):
            continue
        expect(
            len(str(result)) > 5 and len(repr(result)) > 5,
            f"{type(result).__name__} prints nothing",
        )
        for form in ("_repr_html_", "as_html"):
            if hasattr(result, form) and not hasattr(result, "dtypes"):
                check_html(getattr(result, form)())
        for form in ("as_latex", "as_markdown", "_repr_latex_"):
            text = getattr(result, form, lambda: None)()
            expect(text is None or len(text) > 5, f"{form} is empty")


@law(cost=1500)
def reports_open(case: Case) -> None:
    """The report of a model is valid HTML, with all tags closed and all names escaped."""
    with tempfile.TemporaryDirectory(prefix="scenario-") as folder:
        path = Path(folder) / "report.html"
        if case.classes and case.rng.random() < 0.5:
            case.fit.report(path, case.new_frame)
        else:
            case.fit.report(path)
        check_html(path.read_text(encoding="utf-8"))


def advice_of_errors(case: Case, error: bbl.BBLError) -> None:
    """Following the advice in an error message works."""
    follow(case, error)


REFUSED = Law(
    "advice_works",
    "What an error advises works when it is followed.",
    advice_of_errors,
    lambda _: False,
    5.0,
)
