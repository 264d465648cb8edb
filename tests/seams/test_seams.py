"""The scenarios of the machine that finds seams, as such; see `python -m tests.seams`."""

import pytest

from seams.laws import LAWS
from seams.scenario import draw, from_json, to_json


@pytest.mark.parametrize("seed", range(50))
def test_a_scenario_is_a_line_of_json(seed):
    assert from_json(to_json(draw(seed))) == draw(seed)


def test_every_law_says_what_holds():
    assert all(law.sentence.endswith(".") and law.cost > 0 for law in LAWS.values())
