"""L-BFGS on functions whose line searches fail."""

import numpy as np
import pytest

from bbl.engines.likelihood.quasi_newton import minimise


def test_a_quadratic_function_has_its_minimum():
    curvature = np.array([1.0, 10.0, 1e4])
    minimum = minimise(lambda x: curvature * (x - 3.0), np.zeros(3), np.ones(3), 1e-10, 200)
    np.testing.assert_allclose(minimum.theta, 3.0, rtol=1e-10)
    assert minimum.norm <= 1e-10


@pytest.mark.parametrize("slope_beyond", [1e12, np.inf, np.nan])
def test_a_step_never_ends_beyond_a_cliff(slope_beyond):
    """The slope is about -1 up to 0.3 and steep beyond: no step has a small slope, none may end on
    the steep side.
    """

    def gradient(x):
        return np.array([-1.0 + 0.1 * x[0] if x[0] < 0.3 else slope_beyond])

    minimum = minimise(gradient, np.zeros(1), np.ones(1), 1e-10, 50)
    assert 0.299999 < minimum.theta[0] < 0.3
    assert minimum.norm == pytest.approx(0.97)
