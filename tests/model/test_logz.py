"""The choice of how ln Z is computed."""

from bbl.model.elimination import elimination_order
from bbl.model.layout import Layout
from bbl.model.logz import AUTO_CELLS, resolve_log_z

EDGE = [2] * 4 + [3] * 4 + [5, 5, 4]  # 129,600 states


def test_whether_ln_z_is_exact_does_not_depend_on_the_order_of_predictors():
    layouts = [Layout(EDGE), Layout(EDGE[::-1])]
    costs = [elimination_order(layout.n_levels, layout.mask, AUTO_CELLS) for layout in layouts]
    # predictors of many levels summed out first cost less
    assert costs[0] is None and costs[1] is not None
    assert [resolve_log_z("auto", layout, "half") for layout in layouts] == ["exact", "exact"]
