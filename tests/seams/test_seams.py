"""A few random scenarios in every run of the tests: 60, or `BBL_SEAMS` of them; see `python -m
tests.seams`.
"""

import os

import pytest

from seams import laws_verbs, ledger
from seams.laws import LAWS
from seams.report import shown_fall, snippet
from seams.runner import run
from seams.scenario import draw, from_json, to_json
from seams.shrink import shrunk

SCENARIOS, BATCHES = int(os.environ.get("BBL_SEAMS", "60")), 10


@pytest.mark.parametrize("batch", range(BATCHES))
def test_laws_hold_for_random_scenarios(batch):
    for seed in range(batch, SCENARIOS, BATCHES):
        scenario = draw(seed)
        for law, kind, message in run(scenario).falls:
            pytest.fail(f"scenario {seed}\n{shown_fall(*shrunk(scenario, law, kind), message)}")


@pytest.mark.parametrize("seed", range(20))
def test_a_scenario_is_a_line_of_json_and_a_few_of_python(seed):
    assert from_json(to_json(draw(seed))) == draw(seed)
    compile(snippet(draw(seed)), "snippet", "exec")


def test_every_law_says_what_holds():
    assert len(LAWS) > 20
    assert all(law.sentence.endswith(".") and law.cost > 0 for law in LAWS.values())


def test_every_verb_is_called_by_some_law():
    verbs = set(laws_verbs.public_verbs())
    assert not verbs - {*laws_verbs.VERBS, *laws_verbs.ANOTHER_LAW}


def test_a_law_that_falls_is_found_shrunk_and_printed(monkeypatch):
    """A planted fault: groups in another order, where there are weights."""
    from seams.laws import Law

    def check(case):
        assert case.table.weights is None, "weights"

    monkeypatch.setitem(LAWS, "planted", Law("planted", "Planted.", check, lambda case: True, 1.0))
    seed = next(
        k for k in range(200) if draw(k).weights == "counts" and not run(draw(k), []).refused
    )
    falls = run(draw(seed), ["planted"]).falls
    assert [law for law, *_ in falls] == ["planted"]
    small, law = shrunk(draw(seed), *falls[0][:2])
    table = small.rows if small.rows is not None else range(small.n)
    assert (
        law == "planted"
        and small.weights == "counts"
        and len(table) <= 8
        and small.source == "pandas"
    )
    assert "bbl" in shown_fall(small, law, falls[0][2])


def test_the_page_tells_what_is_stored():
    assert ledger.page() == ledger.PAGE.read_text(encoding="utf-8"), "python -m tests.seams --page"
