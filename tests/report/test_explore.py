"""Pages that answer what-if questions: their numbers, in a real browser, are those of predict()."""

import html
import json
import os
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from browser import browser, needs_browser  # noqa: F401  # a fixture

import bbl
from bbl import networks

N_STATES = 600


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


def with_numbers(table=TABLE, seed=4):
    """Return the table with three numbers, one of them large and correlated with another."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(3, len(table)))
    shift = (table["y"] == "high") + 0.5 * (table["x0"] == "a1")
    u = z[0] + shift
    v = 1e4 + 250 * (0.6 * z[0] + z[1]) + 100 * (table["x3"] == "d2")
    return table.assign(u=u.round(3), v=v.round(1), w=np.exp(z[2] / 2).round(3))


def fit_numbers(formula, data=None, **options):
    data = with_numbers() if data is None else data
    numbers = [name for name in "uvw" if re.search(rf"\b{name}\b", formula)]
    return fit_machine(formula, data, numeric=numbers, missing="marginal", **options)


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
    "linear couplings": lambda: fit_machine(
        "two ~ x0*x1 + x0*x3",
        TABLE.assign(x0=pd.Categorical(TABLE["x0"], ordered=True)),
        ordered="linear",
    ),
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
    "variational": lambda: fit_machine("two ~ x0*x1", method="pvi", n_iter=200, chains=20, seed=1),
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
    "numbers": lambda: fit_numbers("y ~ (x0 + x1 + x3 + u + v + w)^2", method="ml"),
    "numbers alone": lambda: fit_numbers("y ~ u*v + w", covariance="shared"),
    "numbers of some levels": lambda: fit_numbers(
        "two ~ x0*x1 + x1:u + x3:v + x3 + u*w + v", shrink=0.1, calibrate="temperature"
    ),
    "naive numbers": lambda: fit_numbers("two ~ x0 + x3 + u + v", method="naive"),
    "numbers as regressors": lambda: fit_machine(
        "y ~ x0*u + u*v + x3 + x0:v", with_numbers(), numeric=["u", "v"], method="conditional"
    ),
    "average of numbers": lambda: bbl.average(
        [fit_numbers("y ~ x0*u"), fit_numbers("y ~ x0 + u", method="naive")], "equal"
    ),
    "auto": lambda: fit_machine("two ~ x0 + x1 + x2", method="auto", seed=1),
}


def random_states(fit, n=N_STATES, seed=1):
    """Return answers (n, m), of which a third of the rows has unknown ones: -1 for levels, and nan
    for numbers.
    """
    rng = np.random.default_rng(seed)
    levels = [len(own) for own in fit.labels.levels]
    answers = rng.integers(0, levels, (n, len(levels))).astype(float)
    unknown = rng.random(answers.shape) < 0.4
    unknown[: 2 * n // 3] = False
    unknown[-1] = True
    answers[unknown] = -1
    for i in fit.labels.measured:
        own = with_numbers()[fit.labels.names[i]]
        drawn = rng.normal(own.mean(), 2 * own.std(), n)
        drawn[: n // 10] = -1.0  # a number like others
        answers[:, i] = np.where(unknown[:, i], np.nan, drawn)
    return answers


def as_table(fit, answers):
    """Return the answers as a table, with a level that no model has for unknown ones."""
    columns = {}
    for i, (name, levels) in enumerate(zip(fit.labels.names, fit.labels.levels, strict=True)):
        own = answers[:, i]
        if i not in fit.labels.measured:
            own = np.array([*levels, "(unknown)"], dtype=object)[own.astype(int)]
        columns[name] = own
    return pd.DataFrame(columns)


def as_json(fit, answers):
    """Return answers as JavaScript has them: integers, and null for unknown numbers."""
    return json.dumps(
        [
            [
                (None if np.isnan(a) else a) if i in fit.labels.measured else int(a)
                for i, a in enumerate(row)
            ]
            for row in answers.tolist()
        ]
    )


def of_browser(page, fit, path, answers, priors):
    """Return the probabilities that the page at `path` computes; nan where it has none."""
    page.open(path)
    found = page.run(
        f"""(() => {{
          const model = whatif.load(document.getElementById("whatif-model").textContent);
          const priors = {json.dumps(None if priors is None else priors.tolist())} || model.priors;
          return {as_json(fit, answers)}.map((row) => whatif.probabilities(model, row, priors));
        }})()"""
    )
    assert page.problems() == []
    groups = len(next(row for row in found if row is not None))
    return np.array([[np.nan] * groups if row is None else row for row in found])


def predicted(fit, answers, priors):
    """Return the probabilities of predict(); nan for rows that it refuses.

    A model that refuses unknown predictors refuses all rows in which the same ones are unknown.
    """
    answers, position = np.unique(answers, axis=0, return_inverse=True)
    rows = as_table(fit, answers)
    given = None if priors is None else dict(zip(fit.labels.groups, priors, strict=True))
    is_number = np.isin(np.arange(answers.shape[1]), fit.labels.measured)
    unknown = np.where(is_number, np.isnan(answers), answers == -1)

    refused = np.full((1, len(fit.labels.groups)), np.nan)

    def of_rows(chosen, at_once=False):
        try:
            with warnings.catch_warnings():  # of columns that are unknown in all of these rows
                warnings.simplefilter("ignore", bbl.errors.DataWarning)
                frame = fit.predict(rows.iloc[chosen], "prob", "ignore", priors=given)
            return frame.iloc[:, :-1].to_numpy(float)
        except (bbl.errors.OptionError, bbl.errors.DataError):
            if at_once or len(chosen) == 1:
                return refused
            return np.vstack([of_rows(half) for half in np.array_split(chosen, 2)])

    every = np.arange(len(rows))
    found = of_rows(every, at_once=True)
    if found is not refused:
        return found[position.ravel()]
    expected = np.repeat(refused, len(rows), axis=0)
    patterns, pattern = np.unique(unknown, axis=0, return_inverse=True)
    answered = np.array(
        [
            not own.any() or np.isfinite(of_rows(every[pattern.ravel() == number][:1])).all()
            for number, own in enumerate(patterns)
        ]
    )
    chosen = every[answered[pattern.ravel()]]
    expected[chosen] = of_rows(chosen)
    return expected[position.ravel()]


@needs_browser
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.thinned(10)
def test_a_page_has_the_probabilities_of_predict(browser, name, tmp_path):  # noqa: F811
    fit = MODELS[name]()
    path = fit.explore(tmp_path / "page.html").path
    answers = random_states(fit)
    K = len(fit.labels.groups)
    for priors in (None, np.arange(1.0, K + 1) / np.arange(1.0, K + 1).sum()):
        found = of_browser(browser, fit, path, answers, priors)
        expected = predicted(fit, answers, priors)
        assert np.isfinite(expected).all(axis=1).mean() > 0.6
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def fit(titanic):
    return bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")


@pytest.fixture(scope="module")
def page(fit, tmp_path_factory):
    return fit.explore(tmp_path_factory.mktemp("page") / "titanic.html").path


def bars(tab, name="bars"):
    """Return the names and numbers of a table of bars, as text."""
    return tab.run(
        f"""Array.from(document.querySelectorAll("#whatif-{name} tr")).map((row) =>
          [row.querySelector("th").textContent, row.querySelector("td:last-child").textContent])"""
    )


def percents(frame):
    return [[str(name), f"{p:.1%}"] for name, p in frame.iloc[0, :-1].items()]


FIRST = {"Class": ["1st"], "Sex": ["Male"], "Age": ["Child"]}


@needs_browser
def test_the_keyboard_alone_fills_in_the_form(browser, page, fit, titanic):  # noqa: F811
    browser.open(page)
    assert bars(browser) == percents(
        fit.predict({"Class": ["Crew"], "Sex": ["Male"], "Age": ["Adult"]}, "prob")
    )
    focused = []
    for _ in range(20):
        browser.press("Tab")
        focused.append(
            browser.run(
                "(document.activeElement.closest('[data-predictor]') || document.activeElement)"
                ".dataset.predictor || document.activeElement.id || document.activeElement.tagName"
            )
        )
        if focused[-1] == "2":
            break
    assert focused[-5:] == ["whatif-start", "whatif-reset", "0", "1", "2"]
    browser.press("ArrowRight")  # from Adult to Child
    browser.press("Tab", shift=True)
    browser.press("Tab", shift=True)
    browser.press("ArrowRight")  # from Crew to unknown
    browser.press("ArrowRight")  # and on to 1st
    assert bars(browser) == percents(fit.predict(FIRST, "prob"))
    status = browser.run("document.getElementById('whatif-status').textContent")
    assert status.startswith("Most probable: ") and browser.problems() == []


@needs_browser
def test_a_link_reopens_the_page_in_the_same_state(browser, page, fit):  # noqa: F811
    browser.open(page)
    browser.run("document.querySelector('[name=whatif0][value=\"0\"]').click()")
    browser.run("document.querySelector('[name=whatif1][value=\"-1\"]').click()")
    browser.run(
        """(() => { const input = document.querySelector('[data-prior="1"][type=range]');
        input.value = "0.25"; input.dispatchEvent(new Event("input", { bubbles: true })); })()"""
    )
    browser.run(
        """(() => { const input = document.querySelector('[data-cost="1 0"]');
        input.value = "5"; input.dispatchEvent(new Event("input", { bubbles: true })); })()"""
    )
    shown = bars(browser)
    decision = browser.run("document.getElementById('whatif-status').textContent")
    answers = {"Class": ["1st"], "Sex": ["?"], "Age": ["Adult"]}
    options = {"priors": {"No": 0.75, "Yes": 0.25}, "unseen": "ignore"}
    costs = {"Yes": {"No": 5}, "No": {"Yes": 1}}
    expected = fit.predict(answers, "prob", **options, costs=costs)
    assert shown == percents(expected)
    assert decision.startswith(f"Decision with the lowest expected cost: {expected['yhat'][0]}.")
    fragment = browser.run("location.hash")
    assert fragment == browser.run("document.getElementById('whatif-link').getAttribute('href')")
    browser.open(page, fragment)
    assert bars(browser) == shown
    assert browser.run("document.getElementById('whatif-status').textContent") == decision
    assert browser.run("document.querySelector('[name=whatif1][value=\"-1\"]').checked")
    for wrong in (
        "#whatif=9.x",
        "#whatif=&priors=2_-1&costs=a",
        "#whatif=0.0.0.0.0&of=7",
        "#part1",
    ):
        browser.open(page, wrong)
        assert len(bars(browser)) == 2 and browser.problems() == []


@needs_browser
@pytest.mark.parametrize(
    "name",
    ["pseudo", "conditional", "tree", "regression on products", "numbers", "numbers as regressors"],
)
@pytest.mark.filterwarnings("ignore")
def test_contributions_are_those_of_explain(browser, name, tmp_path):  # noqa: F811
    model = MODELS[name]()
    answers = random_states(model, 60, seed=3)
    answers = answers[(as_table(model, answers) != "(unknown)").all(axis=1)]
    answers = answers[np.isfinite(answers).all(axis=1)]
    browser.open(model.explore(tmp_path / "page.html").path)
    found = browser.run(
        f"""(() => {{
          const model = whatif.load(document.getElementById("whatif-model").textContent);
          return {as_json(model, answers)}.map((row) =>
            whatif.contributions(model, row, model.priors, 2, 0));
        }})()"""
    )
    groups = model.labels.groups
    expected = model.explain(as_table(model, answers), of=(groups[2], groups[0])).frame
    amounts = np.array([[amount for _, amount in row["rows"]] for row in found])
    np.testing.assert_allclose(amounts, expected.iloc[:, 2:-1].to_numpy(float), atol=1e-9)
    np.testing.assert_allclose([row["total"] for row in found], expected["log_odds"], atol=1e-9)


@needs_browser
def test_a_model_without_a_response_shows_each_predictor_given_the_others(  # noqa: D103
    browser,  # noqa: F811
    titanic,
    tmp_path,
):
    model = bbl.bbl("~ .^2", titanic, weights="Freq")
    browser.open(model.explore(tmp_path / "page.html").path)
    for target, name in enumerate(model.labels.names):
        rows = {other: ["?"] for other in model.labels.names} | {"Class": ["3rd"]}
        rows[name] = ["?"]
        answers = [list(model.labels.levels[0]).index("3rd"), -1, -1, -1]
        found = browser.run(
            f"""whatif.levelProbabilities(whatif.load(
            document.getElementById("whatif-model").textContent), {answers}, {target})"""
        )
        data = pd.DataFrame(rows).replace("?", None)
        expected = model.reconstruct(data, verbose=0)[name].to_numpy(float)[0]
        np.testing.assert_allclose(found, expected, atol=1e-9)
    browser.run(
        """(() => { const list = document.getElementById("whatif-target");
        list.value = "2"; list.dispatchEvent(new Event("input", { bubbles: true })); })()"""
    )
    assert [bar[0] for bar in bars(browser)] == [str(x) for x in model.labels.levels[2]]
    assert "of=2" in browser.run("location.hash") and browser.problems() == []


@pytest.fixture(scope="module")
def passengers():
    """A model of the passengers of the Titanic with their ages."""
    known = bbl.datasets.load_titanic_passengers().dropna()
    return bbl.bbl("Survived ~ .^2", known, numeric="Age", method="ml", missing="marginal")


def set_number(tab, kind, value):
    """Put a value into an input of the number Age, and tell the page."""
    tab.run(
        f"""(() => {{ const input = document.querySelector(
        "[data-predictor='2'] input[type={kind}]");
        if ("{kind}" === "checkbox") input.checked = {json.dumps(value)};
        else input.value = "{value}";
        input.dispatchEvent(new Event("input", {{ bubbles: true }})); }})()"""
    )


@needs_browser
def test_numbers_have_a_slider_and_can_be_unknown(browser, passengers, tmp_path):  # noqa: F811
    browser.open(passengers.explore(tmp_path / "page.html").path)
    browser.run("document.querySelector('[name=whatif0][value=\"2\"]').click()")
    browser.run("document.querySelector('[name=whatif1][value=\"0\"]').click()")
    values = """Array.from(document.querySelectorAll("[data-predictor='2'] input"))
        .map((input) => input.type === "checkbox" ? input.checked : input.value)"""
    girl = {"Class": ["3rd"], "Sex": ["Female"]}
    expected = {}
    for kind, value in (("range", 8), ("number", -1.25), ("number", 8.5), ("checkbox", True)):
        set_number(browser, kind, value)
        age = None if kind == "checkbox" else value
        expected[age] = percents(passengers.predict({**girl, "Age": [age]}, "prob"))
        assert bars(browser) == expected[age]
    assert expected[None] != expected[8.5]
    assert browser.run(values)[1:] == ["", True]
    set_number(browser, "number", 8.5)
    # the slider is at a step
    assert browser.run(values) == ["9", "8.5", False] and "8p5" in browser.run("location.hash")
    browser.run("location.hash = '#whatif=2.0.u'")
    browser.run("new Promise((done) => setTimeout(done, 50))")
    assert bars(browser) == expected[None]
    browser.open(tmp_path / "page.html", "#whatif=2.0.8p5")
    assert bars(browser) == expected[8.5] and browser.problems() == []
    contributions = browser.run("document.getElementById('whatif-contributions').textContent")
    assert "Age=8.5" in contributions
    # the keyboard alone
    browser.run("document.querySelector(\"[data-predictor='2'] input\").focus()")
    browser.press("ArrowRight")
    assert bars(browser) == percents(passengers.predict({**girl, "Age": [10.0]}, "prob"))


def test_sliders_do_not_show_single_values(passengers, tmp_path):
    content = json.loads(
        passengers.explore(tmp_path / "page.html")
        .html.split('id="whatif-model">')[1]
        .split("</")[0]
    )
    ages = bbl.datasets.load_titanic_passengers()["Age"].dropna()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    low, high, step = (
        float(re.search(rf'<input type="range"[^>]* {name}="([^"]+)"', page)[1])
        for name in ("min", "max", "step")
    )
    assert (ages <= low + step).sum() >= 5 and (ages >= high - step).sum() >= 5
    assert (low, step) == (0.0, 1.0) and high < ages.max()
    labels = [start["label"] for start in content["starts"]]
    assert labels[:2] == [
        "Most frequent levels and means",
        "Most frequent levels and means if Survived is No",
    ]
    no = bbl.datasets.load_titanic_passengers().query("Survived == 'No'")["Age"].mean()
    assert content["starts"][1]["answers"] == [2, 1, round(no)]
    # a model without rows has a range from its mean and standard deviation
    passengers.save(tmp_path / "fit.bbl")
    loaded = bbl.load(tmp_path / "fit.bbl").explore(tmp_path / "loaded.html")
    assert 'max="66" step="1"' in loaded.html


@needs_browser
def test_a_notebook_shows_the_page_and_writes_no_file(
    browser,  # noqa: F811
    fit,
    tmp_path,
    monkeypatch,
):
    monkeypatch.chdir(tmp_path)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    made = fit.explore()
    assert made.path is None and not list(tmp_path.iterdir()) and "kB)" in repr(made)
    assert html.unescape(made._repr_html_().split('"')[1]) == made.html
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!DOCTYPE html><body>{made._repr_html_()}</body>", encoding="utf-8")
    browser.open(notebook)
    assert browser.problems() == []
    before = browser.call("Page.captureScreenshot")["data"]
    for _ in range(6):
        browser.press("Tab")
    browser.press("ArrowRight")
    assert browser.call("Page.captureScreenshot")["data"] != before
    assert browser.problems() == []


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 900, 1400])
def test_nothing_is_wider_than_the_screen(  # noqa: D103
    browser,  # noqa: F811
    passengers,
    page,
    tmp_path,
    width,
    scheme,
):
    browser.emulate(scheme)
    for path in (page, passengers.explore(tmp_path / "numbers.html").path):
        browser.open(path, width=width)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.problems() == []
    browser.emulate()


@needs_browser
def test_large_models_limit_the_number_of_unknown_predictors(browser, tmp_path):  # noqa: F811
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 3, (300, 16))).rename(columns=lambda i: f"x{i}")
    table["y"] = rng.choice(["no", "yes"], 300)
    model = bbl.bbl("y ~ .^2", table, lambda_=0.1, verbose=0)
    path = model.explore(tmp_path / "page.html").path
    assert path.stat().st_size < 700_000
    answers = rng.integers(0, 3, (20, 16))
    answers[:, :8] = np.where(rng.random((20, 8)) < 0.7, -1, answers[:, :8])
    found = of_browser(browser, model, path, answers, None)
    np.testing.assert_allclose(found, predicted(model, answers, None), rtol=0, atol=1e-9)
    browser.open(path, "#whatif=" + ".".join("u" * 9 + "0" * 7))
    status = browser.run("document.getElementById('whatif-status').textContent")
    assert status == "At most 8 predictors can be unknown at once. Choose more levels."
    starts = browser.run("document.getElementById('whatif-start').textContent")
    assert "No answers" not in starts
    browser.run(
        """(() => { const input = document.getElementById("whatif-search");
        input.value = "X15"; input.dispatchEvent(new Event("input", { bubbles: true })); })()"""
    )
    shown = "Array.from(document.querySelectorAll('[data-predictor]')).filter((f) => !f.hidden)"
    assert browser.run(f"{shown}.length") == 1


@pytest.mark.long
@needs_browser
def test_interactions_have_a_threshold_and_tables_are_sorted_and_searched(
    browser,  # noqa: F811
    tmp_path,
):
    model = MODELS["two groups, all pairs"]()
    path = tmp_path / "report.html"
    model.report(path, verbose=0)
    browser.open(path)
    strength = model.interactions(of=("yes", "no"))["strength"].to_numpy()
    lines = "document.querySelectorAll('#interactions-graph line').length"
    assert browser.run(lines) == len(strength) == 15
    browser.run(
        """(() => { const slider = document.getElementById("interactions-threshold");
        slider.value = "0.3"; slider.dispatchEvent(new Event("input", { bubbles: true })); })()"""
    )
    assert browser.run(lines) == (strength >= 0.3).sum() < 15
    assert browser.run("document.querySelectorAll('#interactions-heat td[title]').length") == 30
    title = browser.run("document.querySelector('#interactions-graph line title').textContent")
    assert f"strength {strength.max():.3f}, p = " in title
    table = "document.querySelector('#interactions').closest('section').querySelector('table')"
    p_values = f"Array.from({table}.tBodies[0].rows).map((row) => +row.cells[2].textContent)"
    browser.run(f"{table}.querySelectorAll('thead button')[1].click()")
    found = browser.run(p_values)
    assert found == sorted(found) and len(set(found)) > 5
    browser.run(f"{table}.querySelectorAll('thead button')[1].click()")
    assert browser.run(p_values) == sorted(found, reverse=True)
    browser.run(
        f"""(() => {{ const input = {table}.parentElement.querySelector("input");
        input.value = "x0"; input.dispatchEvent(new Event("input")); }})()"""
    )
    assert browser.run(f"{table}.querySelectorAll('tbody tr:not([hidden])').length") == 5
    browser.run("document.querySelector('figure button').focus()")
    browser.press("Enter")
    widths = "['dialog img', 'figure img'].map((own) => document.querySelector(own).width)"
    large, small = browser.run(widths)
    assert large == 2 * small > 0 and browser.run("document.querySelector('dialog').open")
    browser.run("document.querySelector('dialog').click()")
    assert not browser.run("document.querySelector('dialog').open")
    assert browser.problems() == []
    model.report(path, interactive=False, verbose=0)
    assert "interactions-graph" not in path.read_text(encoding="utf-8")


@pytest.mark.long
@needs_browser
def test_couplings_have_estimates_intervals_and_tests(browser, tmp_path):  # noqa: F811
    model = MODELS["two groups, all pairs"]()
    path = tmp_path / "report.html"
    model.report(path, verbose=0)
    browser.open(path)
    strongest = model.interactions(of=("yes", "no")).iloc[0]
    table = model.inference().table(of=("yes", "no"))
    own = table[
        (table["predictor"] == strongest["predictor"])
        & (table["predictor2"] == strongest["predictor2"])
    ].reset_index(drop=True)
    cells = """Array.from(document.querySelectorAll("#interactions-couplings tr"))
        .map((row) => Array.from(row.cells).map((cell) => cell.textContent))"""

    def expected(rows):
        numbers = rows[["estimate", "lower", "upper"]].map(lambda x: f"{float(f'{x:.4g}'):.3f}")
        return numbers.map(lambda x: x.replace("-", "\u2212")).to_numpy().tolist()

    shown = browser.run(cells)
    assert [row[1:4] for row in shown] == expected(own) and len(own) >= 1
    first = own.iloc[0]
    levels = f"{first['predictor']}={first['level']}, {first['predictor2']}={first['level2']}"
    assert shown[0][0] == levels
    tooltip = browser.run("document.querySelector('#interactions-graph line title').textContent")
    largest = own.loc[own["estimate"].abs().idxmax()]
    (texts,) = expected(largest.to_frame().T)
    assert f"{texts[0]} [{texts[1]}, {texts[2]}], p = " in tooltip.split("\n")[1]
    # a click on another edge, and the list with the keyboard
    browser.run(
        """document.querySelectorAll("#interactions-graph line")[1]
        .dispatchEvent(new Event("click"))"""
    )
    assert browser.run("document.getElementById('interactions-pair').value") == "1"
    assert browser.run(cells) != shown
    browser.run("document.getElementById('interactions-pair').focus()")
    browser.press("ArrowUp")
    assert browser.run(cells) == shown and browser.problems() == []


@needs_browser
@pytest.mark.parametrize("name", ["tree", "averaged networks"])
@pytest.mark.long
def test_arcs_of_networks_have_a_heat_map(browser, tmp_path, name):  # noqa: F811
    model = MODELS[name]()
    path = tmp_path / "report.html"
    model.report(path, verbose=0)
    browser.open(path)
    names = list(model.labels.names)
    arcs = {frozenset(arc) for dag in model.structure.dags for arc in dag.arcs}
    assert browser.run("document.querySelectorAll('#interactions-graph line').length") == len(arcs)
    assert not browser.run("!!document.getElementById('interactions-pair')")
    title = browser.run("document.querySelector('#interactions-graph line title').textContent")
    expected = {
        arc: networks.cmi(*(names[i] for i in sorted(arc)), TABLE, model.labels.response)
        for arc in arcs
    }
    assert title.endswith(f": strength {max(expected.values()):.3f}")
    assert browser.problems() == []


def test_reports_list_no_counts_below_five(tmp_path, undrawn):
    table = pd.DataFrame({"a": [*"pq"] * 20, "y": ["n", "m"] * 18 + ["m", "n", "m", "r"]})
    model = bbl.bbl("y ~ a", table, lambdah=0.1)
    evaluation = model.evaluate()
    path = tmp_path / "report.html"
    model.report(path, verbose=0)
    text = path.read_text(encoding="utf-8")
    confusion = text.split("predicted groups (columns)</caption>")[1]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", confusion.split("</table>")[0])
    counts = evaluation.confusion.to_numpy().ravel()
    assert (counts < 5).any() and (counts >= 5).any()
    assert [html.unescape(cell) for cell in cells][-len(counts) :] == [
        "<5" if count < 5 else str(count) for count in counts
    ]
    assert "Counts below 5 are shown as &lt;5; row totals and rates may still reveal them." in text
    by_group = text.split("<caption>By group</caption>")[1].split("</table>")[0]
    assert "&lt;5" in re.search(r"<tr><th[^>]*>r</th>.*?</tr>", by_group)[0]


@needs_browser
@pytest.mark.skipif("BBL_AXE" not in os.environ, reason="BBL_AXE names no axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["explore", "report"])
def test_axe_finds_no_barriers(browser, page, tmp_path, scheme, name):  # noqa: F811
    path = page
    if name == "report":
        path = tmp_path / "report.html"
        MODELS["two groups, all pairs"]().report(path, verbose=0)
    browser.emulate(scheme)
    browser.open(path)
    browser.run("document.querySelectorAll('details').forEach((own) => (own.open = true))")
    browser.run(Path(os.environ["BBL_AXE"]).read_text(encoding="utf-8"))
    found = browser.run(
        """axe.run().then((result) => result.violations.map((own) =>
        [own.id, own.help, own.nodes.slice(0, 3).map((node) => node.html.slice(0, 150))]))"""
    )
    browser.emulate()
    assert found == []


def test_pages_are_small_and_have_no_rare_combinations(titanic, tmp_path, monkeypatch):
    table = pd.DataFrame(
        {"a": [*"pq"] * 20 + ["r"], "b": [*"uuvv"] * 10 + ["w"], "y": [0, 1, 1] * 13 + [0, 0]}
    )
    model = bbl.bbl("y ~ a + b", table, lambdah=0.1)
    monkeypatch.chdir(tmp_path)
    made = model.explore()
    assert made.path.name == "explore.html" and "written to explore.html" in repr(made)
    assert len(made.html.encode()) < 60_000
    content = json.loads(made.html.split('id="whatif-model">')[1].split("</script>")[0])
    combinations = [s["label"] for s in content["starts"] if "rows)" in s["label"]]
    assert len(combinations) == 4 and not any(text.startswith("r") for text in combinations)
    frame = made._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and 'sandbox="allow-scripts"' in frame


@pytest.fixture
def hidden(titanic):
    """A machine with a hidden unit, whose class scores are not sums of tables."""
    return bbl.bbl(
        "Survived ~ Sex",
        titanic,
        weights="Freq",
        method="bayes",
        prior="conjugate",
        hidden=1,
        draws=50,
        warmup=50,
        verbose=0,
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_reports_without_a_page_say_why(hidden, tmp_path, undrawn):
    hidden.report(tmp_path / "page.html", verbose=0)
    assert "Not available: The class scores of a machine with hidden" in (
        tmp_path / "page.html"
    ).read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")  # of the sampler, after few draws
def test_models_without_a_page_say_why(hidden, tmp_path):
    with pytest.raises(bbl.errors.OptionError, match="hidden units are not sums of tables"):
        hidden.explore(tmp_path / "page.html")
    scores = fit_numbers("y ~ x0 + u", transform="normal")
    with pytest.raises(bbl.errors.OptionError, match="all training values, but a page does not"):
        scores.explore(tmp_path / "page.html")
    numbers = pd.DataFrame({"y": [0, 1] * 30, "x": np.arange(60.0)})
    with pytest.raises(bbl.errors.OptionError, match="'x' is numeric"):
        bbl.shooter("y ~ x", numbers, numeric=True, lambda_=1).explore(tmp_path / "page.html")
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.integers(0, 3, (60, 120))).rename(columns=lambda i: f"x{i}")
    wide["y"] = rng.integers(0, 2, 60)
    with pytest.raises(bbl.errors.OptionError, match="a page can contain at most 48,000"):
        bbl.bbl("y ~ .^2", wide, method="mf").explore(tmp_path / "page.html")
