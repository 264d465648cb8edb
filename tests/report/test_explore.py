"""Pages that answer what-if questions: their numbers, in a real browser, are those of predict()."""

import json

import numpy as np
import pandas as pd
import pytest
from browser import browser, needs_browser  # noqa: F401  # a fixture

import bbl
from bbl import networks

N_STATES = 2000


def make_table(n=400, seed=0):
    """Return a table with three classes and six predictors, one of them with many levels."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, [3, 2, 2, 4, 2, 3], (n, 6))
    score = codes[:, 0] - codes[:, 1] * codes[:, 2] + (codes[:, 3] == 2) + rng.normal(size=n)
    table = pd.DataFrame(
        {f"x{i}": np.char.add("abcdef"[i], codes[:, i].astype(str)) for i in range(6)}
    )
    table["y"] = np.array(["low", "mid", "high"])[np.digitize(score, [0.0, 1.0])]
    table["two"] = np.where(score > 0.5, "yes", "no")
    return table


TABLE = make_table()
ZEROS = pd.DataFrame({"x1": ["b0"], "x2": ["c1"]})
ALLOWED = TABLE[(TABLE["x1"] != "b0") | (TABLE["x2"] != "c1")]


def fit_machine(formula, data=TABLE, **options):
    return bbl.bbl(formula, data, verbose=0, **options)


def fit_ordered(logits):
    ordered = pd.Categorical(TABLE["y"], ["low", "mid", "high"], ordered=True)
    data = TABLE.assign(y=ordered)
    return fit_machine("y ~ x0*x1 + x2", data, method="conditional", logits=logits, ridge=0)


def average():
    fits = [
        fit_machine("y ~ x0*x1", method="mf"),
        fit_machine("y ~ x0*x1", method="conditional"),
        networks.bnc("tan_cl", "y ~ x0 + x1", TABLE, smooth=1),
        bbl.shooter("y ~ x0 + x1", TABLE, lambda_=5),
    ]
    return bbl.average(fits, "equal")


MODELS = {
    "pseudo": lambda: fit_machine("y ~ x0*x1 + x2*x3 + x4 + x5"),
    "two groups, all pairs": lambda: fit_machine("two ~ .^2 - y", lambda_=0.01),
    "third order": lambda: fit_machine("two ~ x0*x1*x2 + x3", method="ml"),
    "mean field": lambda: fit_machine("y ~ x0*x1 + x3", method="mf"),
    "naive": lambda: fit_machine("y ~ x0 + x1 + x2 + x3", method="naive"),
    "temperature": lambda: fit_machine("y ~ x0*x1 + x2", calibrate="temperature"),
    "priors": lambda: fit_machine("two ~ x0*x1", priors="equal"),
    "conditional": lambda: fit_machine("y ~ x0*x1 + x2", method="conditional"),
    "adjacent logits": lambda: fit_ordered("adjacent"),
    "cumulative logits": lambda: fit_ordered("cumulative"),
    "boosting": lambda: fit_machine("two ~ x0 + x1 + x2", method="boosting"),
    "blanket": lambda: fit_machine("y ~ x0 + x1 + x2 + x3", method="blanket"),
    "posterior draws": lambda: fit_machine("two ~ x0*x1", method="bayes", seed=1),
    "variational": lambda: fit_machine("two ~ x0*x1", method="pvi", seed=1),
    "relevance": lambda: fit_machine("two ~ x0*x1 + x4 + x5", relevance=0.01),
    "structural zeros": lambda: fit_machine(
        "two ~ x0 + x1*x2", ALLOWED, method="ml", structural_zeros=ZEROS
    ),
    "naive network": lambda: networks.bnc("nb", "y ~ x0 + x1 + x2", TABLE, smooth=0),
    "tree": lambda: networks.bnc("tan_cl", "y ~ . - two", TABLE, smooth=1),
    "averaged networks": lambda: networks.bnc("aode", "y ~ x0 + x1 + x2 + x3", TABLE, smooth=1),
    "weighted network": lambda: networks.lp(
        networks.nb("y ~ x0 + x1 + x2", TABLE), TABLE, smooth=1, awnb_trees=5, seed=1
    ),
    "regression on products": lambda: bbl.shooter("y ~ . - two", TABLE, order=2, lambda_=8),
    "average": average,
    "auto": lambda: fit_machine("two ~ x0 + x1 + x2", method="auto", seed=1),
}


def random_states(fit, n=N_STATES, seed=1):
    """Return answers (n, m), -1 for unknown, of which a third of the rows has some."""
    rng = np.random.default_rng(seed)
    levels = [len(own) for own in fit.labels.levels]
    answers = rng.integers(0, levels, (n, len(levels)))
    unknown = rng.random(answers.shape) < 0.4
    unknown[: 2 * n // 3] = False
    unknown[-1] = True
    return np.where(unknown, -1, answers)


def as_table(fit, answers):
    """Return the answers as a table, with a level that no model has for unknown ones."""
    return pd.DataFrame(
        {
            name: np.array([*levels, "(unknown)"], dtype=object)[answers[:, i]]
            for i, (name, levels) in enumerate(
                zip(fit.labels.names, fit.labels.levels, strict=True)
            )
        }
    )


def of_browser(page, path, answers, priors):
    """Return the probabilities that the page at `path` computes; nan where it has none."""
    page.open(path)
    found = page.run(
        f"""(() => {{
          const model = whatif.load(document.getElementById("whatif-model").textContent);
          const priors = {json.dumps(None if priors is None else priors.tolist())} || model.priors;
          return {answers.tolist()}.map((row) => whatif.probabilities(model, row, priors));
        }})()"""
    )
    assert page.problems() == []
    groups = len(next(row for row in found if row is not None))
    return np.array([[np.nan] * groups if row is None else row for row in found])


def predicted(fit, answers, priors):
    """Return the probabilities of predict(); nan for rows that it refuses."""
    answers, position = np.unique(answers, axis=0, return_inverse=True)
    rows = as_table(fit, answers)
    given = None if priors is None else dict(zip(fit.labels.groups, priors, strict=True))

    def of_rows(chosen):
        try:
            frame = fit.predict(rows.iloc[chosen], "prob", "ignore", priors=given)
            return frame.iloc[:, :-1].to_numpy(float)
        except (bbl.errors.OptionError, bbl.errors.DataError):
            if len(chosen) == 1:
                return np.full((1, len(fit.labels.groups)), np.nan)
            return np.vstack([of_rows(half) for half in np.array_split(chosen, 2)])

    return of_rows(np.arange(len(rows)))[position.ravel()]


@needs_browser
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_page_has_the_probabilities_of_predict(browser, name, tmp_path):  # noqa: F811
    fit = MODELS[name]()
    path = fit.explore(tmp_path / "page.html").path
    answers = random_states(fit)
    K = len(fit.labels.groups)
    for priors in (None, np.arange(1.0, K + 1) / np.arange(1.0, K + 1).sum()):
        found = of_browser(browser, path, answers, priors)
        expected = predicted(fit, answers, priors)
        assert np.isfinite(expected).all(axis=1).mean() > 0.6
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
