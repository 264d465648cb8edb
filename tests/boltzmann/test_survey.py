"""Design covariances of regressions of single predictors against svyglm of R's survey package, and
of fits.
"""

import numpy as np
import pytest
import rsurvey

from bbl.boltzmann.inference.survey import linearised, replicated
from bbl.model.godambe import Influence
from bbl.model.layout import Layout
from bbl.model.regressors import regressors
from bbl.model.unpenalised import unpenalised
from bbl.rows.sample import Sample
from bbl.stats.survey.plan import SamplingPlan
from bbl.stats.survey.sample import SurveySample

pytestmark = pytest.mark.skipif(
    not rsurvey.folder().exists(), reason="the reference numbers of R are not here"
)


def regressions():
    if not rsurvey.folder().exists():
        return []
    return [
        (name, k)
        for name in rsurvey.names()
        for k, analysis in enumerate(rsurvey.read(name)[0]["analyses"])
        if analysis["analysis"] == "glm"
    ]


def parse_regression(formula):
    """The response, the predictors, and the sets of predictors of the terms."""
    response, right = (text.strip() for text in formula.split("~"))
    names, terms = [], []
    for term in right.split("+"):
        factors = [name.strip() for name in term.split("*")]
        names += [name for name in factors if name not in names]
        terms += [(name,) for name in factors] + ([tuple(factors)] if len(factors) > 1 else [])
    return response, names, terms


@pytest.mark.parametrize("name, k", regressions())
@pytest.mark.thinned(5)
def test_site_regressions_are_those_of_svyglm(name, k):
    case, table = rsurvey.read(name)
    analysis = case["analyses"][k]
    response, names, terms = parse_regression(analysis["formula"])
    is_replicate = case["design"]["type"] == "replicate"
    inside = rsurvey.members(case, table) & table[[response, *names]].notna().all(axis=1).to_numpy()
    if is_replicate:
        weights, replicates = rsurvey.replicates(case)
        inside &= weights > 0
        trivial = np.arange(len(table))
        survey = SurveySample(
            SamplingPlan(weights, 0 * trivial, (trivial,)), replicates, np.flatnonzero(inside)
        )
    else:
        plan = rsurvey.plan(case, table)
        weights, survey = plan.weights, SurveySample(plan, None, np.flatnonzero(inside))
    columns = [table[column][inside].cat.remove_unused_categories() for column in names]
    codes = np.column_stack(
        [table[response][inside].astype(int), *(column.cat.codes for column in columns)]
    )
    n_levels = [2, *(len(column.cat.categories) for column in columns)]
    scopes = {(0, *sorted(1 + names.index(part) for part in term)) for term in terms}
    scopes |= {scope[1:] for scope in scopes if len(scope) > 2}
    layout = Layout(n_levels, sorted(scopes, key=lambda scope: (len(scope), scope)))
    rows = Sample(np.ascontiguousarray(codes.astype(np.uint8)), weights[inside])
    n_parameters = len(regressors(layout).columns[0])

    def solve(chosen, start):
        return unpenalised(chosen.collapsed(layout.n_levels), layout, start, np.array([0]))[0]

    site_theta = solve(rows, np.zeros((layout.D, 1 + regressors(layout).D)))
    order = rsurvey.order_of_r(
        [len(column.cat.categories) - 1 for column in columns], any(len(t) > 1 for t in terms)
    )
    order = np.append(0, 1 + order)  # the constant first
    at = regressors(layout).columns[0][order]
    theta = site_theta[0][at]
    np.testing.assert_allclose(theta, analysis["estimate"], rtol=1e-7, atol=1e-9)
    if is_replicate:
        E = replicated(lambda chosen: solve(chosen, site_theta)[0][at], theta, rows, survey)
    else:
        influence = Influence(rows.collapsed(layout.n_levels), layout, site_theta, 0.0, 0.0)
        position = {0: order}
        E = linearised(
            lambda chunk: influence.site_influences(chunk, position), n_parameters, rows, survey
        )
    theirs = np.array(analysis["covariance"], dtype=float)
    errors = np.sqrt(theirs.diagonal())
    np.testing.assert_allclose(
        E.T @ E / np.outer(errors, errors), theirs / np.outer(errors, errors), atol=2e-7
    )
