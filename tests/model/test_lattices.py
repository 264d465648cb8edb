"""Annealed ln Z of Ising lattices whose ln Z is known exactly."""

import json

import numpy as np
import pytest

from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.gauge import to_reference
from bbl.model.layout import Layout
from bbl.rows.sample import Sample


@pytest.mark.long
@pytest.mark.parametrize("name", ["ising_ferro_s0", "ising_glass_s0", "ising_glass_s1"])
def test_annealed_log_z_is_the_exact_one_within_three_standard_errors(shared, name):
    folder = shared / "data" / "posterior"
    exact = json.loads((folder / "exact.json").read_text())[name]["lnZ_reference_gauge"]
    with np.load(folder / f"{name}.npz") as data:
        h, J, rows = data["h"], data["J"], data["x_iid"]
    layout = Layout(np.full(len(J), 2))
    theta = to_reference(layout, np.concatenate([h, J[np.triu_indices(len(J), 1)]]))
    sample = Sample((rows > 0).astype(np.uint8), np.ones(len(rows)))
    found = annealed_log_z(
        layout, theta, annealing_start(sample, layout), 300, 256, np.random.default_rng(1)
    )
    assert 0.0 < found.standard_error < 0.5
    assert abs(found.log_z - exact) < 3.0 * found.standard_error
