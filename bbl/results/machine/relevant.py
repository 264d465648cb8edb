"""Terms that a prediction uses: those whose parameters differ between groups. A method of the
result classes.

A *term* is a predictor with its fields, or interacting predictors with their couplings; its *scope*
is the tuple of the positions of its predictors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bbl.checks import verb
from bbl.report.text import label_text

if TYPE_CHECKING:
    from bbl.results.machine.machine import MachineResults

__all__ = ["relevant"]


@verb
def relevant(self: MachineResults) -> pd.DataFrame:
    """Return the terms that predictions use: those whose parameters are not the same in all groups.

    All other terms cancel in class probabilities, exactly: a change of a predictor in none of the
    terms changes no prediction. With ``relevance=`` these are the chosen predictors and their
    interactions.

    Returns
    -------
    DataFrame
        By the index ``term`` (a predictor, or several joined by colons), the largest difference
        first: ``order`` (number of predictors), ``difference`` (the largest of any parameter
        between two groups, as log odds), and with ``relevance=`` the ``p_value`` of the test that
        chose a predictor, times twice the number of tests (Bonferroni; twice, as tests of
        predictors and tests of pairs have half of the level each).

    Examples
    --------
    >>> import bbl
    >>> titanic = bbl.datasets.load_titanic()
    >>> fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", relevance=0.05)
    >>> fit.relevant()["order"].to_dict()
    {'Sex': 1, 'Class:Age': 2, 'Class': 1, 'Age': 1, 'Class:Sex': 2, 'Sex:Age': 2}
    """
    layout = self.parameters.layout
    relevance = self.estimate.relevance
    # a group without rows has no parameters
    theta = self.parameters.theta[self.estimate.class_prior > 0.0]
    # (size,): largest less least value of each parameter over the groups
    differences = np.ptp(theta, axis=0) if len(theta) else np.zeros(layout.size)
    predictor_names = [label_text(name) for name in self.labels.names]
    # name, order, largest difference of a parameter, predictors; ``layout.table`` has the
    # parameters of a term
    terms = [
        (
            ":".join(predictor_names[i] for i in scope),
            len(scope),
            # 0 for predictors with a single level
            float(layout.table(differences, *scope).max(initial=0.0)),
            scope,
        )
        for scope in layout.scopes
    ]
    # [2]: the difference
    differing = sorted((term for term in terms if term[2] > 0.0), key=lambda term: -term[2])
    index = pd.Index([name for name, _, _, _ in differing], name="term", dtype=object)
    frame = pd.DataFrame(
        {
            "order": [order for _, order, _, _ in differing],
            "difference": [difference for _, _, difference, _ in differing],
        },
        index=index,
    )
    if relevance is None:
        return frame
    # by position of the predictor; only terms of a single predictor (order 1) have one
    p_value = dict(zip(relevance.chosen.tolist(), relevance.p_value.tolist(), strict=True))
    return frame.assign(
        p_value=[p_value[scope[0]] if order == 1 else np.nan for _, order, _, scope in differing]
    )
