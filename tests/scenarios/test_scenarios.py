"""A few random scenarios in every run of the tests: 60, or `BBL_SCENARIOS` of them; see `python -m
tests.scenarios`.
"""

import os

import pytest

from scenarios import laws_public_functions, ledger
from scenarios.laws import LAWS
from scenarios.report import shown_failure, snippet
from scenarios.runner import run
from scenarios.scenario import draw, from_json, to_json
from scenarios.shrink import shrunk

SCENARIOS, BATCHES = int(os.environ.get("BBL_SCENARIOS", "60")), 10


@pytest.mark.scenarios
@pytest.mark.parametrize("batch", range(BATCHES))
def test_laws_hold_for_random_scenarios(batch):
    for seed in range(batch, SCENARIOS, BATCHES):
        scenario = draw(seed)
        for law, kind, message in run(scenario).failures:
            pytest.fail(f"scenario {seed}\n{shown_failure(*shrunk(scenario, law, kind), message)}")


@pytest.mark.parametrize("seed", range(20))
def test_a_scenario_is_a_line_of_json_and_a_few_of_python(seed):
    assert from_json(to_json(draw(seed))) == draw(seed)
    compile(snippet(draw(seed)), "snippet", "exec")


def test_every_law_says_what_holds():
    assert len(LAWS) > 20
    assert all(law.sentence.endswith(".") and law.cost > 0 for law in LAWS.values())


def test_every_public_function_is_called_by_some_law():
    called = {*laws_public_functions.FUNCTIONS, *laws_public_functions.ANOTHER_LAW}
    missing = sorted(set(laws_public_functions.public_functions()) - called)
    assert not missing, f"enter {missing} in FUNCTIONS of laws_public_functions.py"


def test_a_broken_law_is_found_shrunk_and_printed(monkeypatch):
    """A planted fault: groups in another order, where there are weights."""
    from scenarios.laws import Law

    def check(case):
        assert case.table.weights is None, "weights"

    monkeypatch.setitem(LAWS, "planted", Law("planted", "Planted.", check, lambda case: True, 1.0))
    seed = next(
        k for k in range(200) if draw(k).weights == "counts" and not run(draw(k), []).refused
    )
    failures = run(draw(seed), ["planted"]).failures
    assert [law for law, *_ in failures] == ["planted"]
    small, law = shrunk(draw(seed), *failures[0][:2])
    table = small.rows if small.rows is not None else range(small.n)
    assert (
        law == "planted"
        and small.weights == "counts"
        and len(table) <= 8
        and small.source == "pandas"
    )
    assert "bbl" in shown_failure(small, law, failures[0][2])


def test_the_page_matches_the_stored_ledger():
    assert ledger.page() == ledger.PAGE.read_text(encoding="utf-8"), (
        "python -m tests.scenarios --page"
    )
