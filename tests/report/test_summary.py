"""Summary of a fit as text, HTML and LaTeX."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.design.labels import Labels
from bbl.report.machine.summary import Section, Summary, fit_summary
from bbl.report.markup import html_table, html_text, latex_table, latex_text
from bbl.report.text import call_text
from bbl.stats.likelihood_ratio import likelihood_ratio

LABELS = Labels(
    "Survived",
    ("No", "Yes"),
    ("Class", "Sex", "Age"),
    (("1st", "2nd", "3rd", "Crew"), ("Female", "Male"), ("Adult", "Child")),
)
COUNTS = [
    np.array([[122, 167, 528, 673], [203, 118, 178, 212]]),
    np.array([[126, 1364], [344, 367]]),
    np.array([[1438, 52], [654, 57]]),
]
CALL = call_text(
    "bbl",
    {
        "formula": "Survived ~ Class + Sex + Age",
        "data": "titanic",
        "weights": "freq",
        "prior.count": 0,
    },
)

# summary(bfit0), section 3.2 of the paper
PAPER = """\
Call:
 bbl(formula = Survived ~ Class + Sex + Age, data = titanic, weights = freq,
    prior.count = 0)
 3 predictor states:
   Class = 1st 2nd 3rd Crew
   Sex = Female Male
   Age = Adult Child
 Responses:
   Survived = No Yes

Fit method: mf

naive Bayes coefficients:
h_Class:
              2nd        3rd      Crew
No      0.3139728  1.4650752 1.7077243
Yes    -0.5425214 -0.1314224 0.0433803
pooled -0.1313360  0.7757901 1.0017625
chisq = 180.9014, df = 3, Pr(>chisq) = 5.633919e-39

h_Sex:
             Male
No     2.38189493
Yes    0.06472019
pooled 1.30372186
chisq = 434.4688, df = 1, Pr(>chisq) = 1.730842e-96

h_Age:
           Child
No     -3.319765
Yes    -2.440056
pooled -2.954528
chisq = 19.5606, df = 1, Pr(>chisq) = 9.745843e-06"""

NASTY = Labels(
    "y<b>",
    ("<script>", "a & b_1"),
    ("x%$#", "[z]*"),
    (("0", "{1}", "\\end{tabular}"), ("~", '"^"')),
)


class Checker(HTMLParser):
    """Checks that every element is closed in order, and gathers the elements and the text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.data = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.data.append(data)


@pytest.fixture(scope="module")
def summary():
    facts = {
        "Fit method": "pseudo",
        "Observations": 2201,
        "Log-likelihood": -2345.678912345,
        "Converged": "yes",
    }
    return fit_summary(CALL, LABELS, likelihood_ratio(COUNTS), facts)


@pytest.fixture(scope="module")
def nasty():
    tests = likelihood_ratio([np.array([[5, 3, 2], [1, 0, 9]]), np.array([[4, 6], [5, 5]])])
    return fit_summary("bbl(<&>)", NASTY, tests, {"a<b": "c>d", "50% & more": np.inf})


def test_text_as_in_the_paper():
    summary = fit_summary(CALL, LABELS, likelihood_ratio(COUNTS), {"Fit method": "mf"})
    assert str(summary) == repr(summary) == PAPER


def test_facts(summary):
    block = "Fit method: pseudo\nObservations: 2201\nLog-likelihood: -2345.679\nConverged: yes\n"
    assert block in str(summary)


def test_long_fact_is_wrapped():
    log_z = ", ".join(f"group-{k}: {k}.5" for k in range(30))
    summary = fit_summary(CALL, LABELS, likelihood_ratio(COUNTS), {"ln Z (exact)": log_z})
    assert max(map(len, str(summary).splitlines())) <= 80
    assert " ".join(str(summary).split()).count("group-29: 29.5") == 1


def test_tables(summary):
    tests = summary.tables["tests"]
    assert tests.index.tolist() == ["Class", "Sex", "Age"]
    assert tests.columns.tolist() == ["chisq", "df", "Pr(>chisq)", "test"]
    assert tests.loc["Class", ["chisq", "df"]].tolist() == pytest.approx([180.9014, 3.0])
    assert tests["test"].tolist() == ["chi-square"] * 3
    h = summary.tables["h"]
    assert h.columns.tolist() == ["No", "Yes", "pooled"]
    assert h.loc[("Class", "Crew")].round(7).tolist() == [1.7077243, 0.0433803, 1.0017625]
    assert summary.tables["fit"].loc["Observations", "value"] == 2201


@pytest.mark.long
def test_many_predictors():
    rng = np.random.default_rng(2)
    m = 784
    labels = Labels("digit", tuple(range(10)), tuple(f"X{i}" for i in range(m)), ((0, 1),) * m)
    counts = [rng.integers(1, 50, (10, 2)) for _ in range(m)]
    summary = fit_summary("bbl()", labels, likelihood_ratio(counts), {"Fit method": "mf"})
    lines = str(summary).splitlines()
    assert "the 10 of 784 predictors with the largest chi-squares:" in lines
    assert lines[-12].split() == ["chisq", "df", "Pr(>chisq)", "test"]
    tests = summary.tables["tests"]
    assert tests.shape == (784, 4)
    assert lines[-11].split()[0] == tests["chisq"].idxmax()
    assert summary.tables["h"].shape == (784, 11)


def test_html(summary):
    page = Checker(summary.as_html())
    assert page.seen.count("table") == 4
    assert page.seen.count("caption") == 3
    text = " ".join(page.data)
    for wanted in (
        "h_Class",
        "1.7077243",
        "Pr(>chisq) = 5.633919e-39",
        "-2345.679",
        "Survived ~ Class + Sex + Age",
    ):
        assert wanted in text
    assert summary._repr_html_() == summary.as_html()


def test_html_escapes(nasty):
    page = nasty.as_html()
    text = " ".join(Checker(page).data)
    assert "<script>" not in page
    for wanted in ("<script>", "a & b_1", "h_x%$#", "c>d", "bbl(<&>)", '"^"', "-Inf"):
        assert wanted in text


def latex_is_sound(text):
    """Braces and environments are closed in order, and every row of a table has its number of
    cells.
    """
    plain = text.replace("\\{", "").replace("\\}", "").replace("\\&", "")
    depth = 0
    for c in plain:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0
    for name in ("tabular", "flushleft"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") > 0
    for table in plain.split("\\begin{tabular}{")[1:]:
        columns, body = table.split("}", 1)
        rows = [
            r
            for r in body.split("\\end{tabular}")[0].splitlines()
            if r.endswith(" \\\\") and "multi" not in r
        ]
        assert rows
        assert {r.count("&") + 1 for r in rows} == {len(columns)}


def test_latex(summary):
    text = summary.as_latex()
    latex_is_sound(text)
    assert r"No & $0.3139728$ & $1.4650752$ & $1.7077243$ \\" in text
    assert r"h\_Class" in text
    assert r"Log-likelihood & $-2345.679$ \\" in text


def test_latex_escapes(nasty):
    text = nasty.as_latex()
    latex_is_sound(text)
    for wanted in (
        r"a \& b\_1",
        r"h\_x\%\$\#",
        r"{[}z]{*}",
        r"\{1\} & \textbackslash{}end\{tabular\} \\",
        r"\textasciicircum{}",
        r"50\% \& more & inf \\",
        r"& $-\infty$ &",
    ):
        assert wanted in text


def test_markup_of_single_tables():
    frame = pd.DataFrame(
        {"n": [1, 20], "p": [1e-39, 0.5], "what": ["a--b", "*"]}, index=["[r", "s"]
    )
    text = latex_table(frame, title="T_1", note="50%", header=False)
    lines = text.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrl}"
    assert lines[1] == r"\multicolumn{4}{l}{T\_1} \\"
    assert lines[3] == r"{[}r & $1$ & $1 \times 10^{-39}$ & a-{}-b \\"
    assert lines[-2] == r"\multicolumn{4}{l}{50\%} \\"
    page = html_table(frame, title="a<b", note="c", header=False)
    assert "<caption>a&lt;b</caption>" in page
    assert "<thead>" not in page
    assert '<td colspan="4">c</td>' in page
    assert Checker(page).seen.count("tr") == 3
    assert html_text("a\n<b>") == "a\\n&lt;b&gt;"
    assert latex_text("\\") == r"\textbackslash{}"


def test_cells_of_a_page_are_short_numbers_and_nothing_where_a_text_is_missing():
    p = [1.23456e-39, 0.0, 0.666666, np.nan]
    page = html_table(
        pd.DataFrame({"p": p, "level2": ["a", None, np.nan, "b"]}, index=list("wxyz"))
    )
    assert re.findall("<td>(.*?)</td>", page)[1:] == [
        "1.2e-39",
        "a",
        "0",
        "",
        "0.6667",
        "",
        "NaN",
        "b",
    ]


def test_a_table_whose_rows_have_long_names_tells_the_page_its_columns():
    frame = pd.DataFrame(
        {"n": [1, 2], "p": [0.5, 0.25]}, index=["Q1. How long have you lived here?", "Q2"]
    )
    assert html_table(frame).startswith('<table class="long" style="--columns: 2">')
    assert html_table(frame.set_axis(["Q1", "Q2"])).startswith("<table>\n")


def test_plain_summary():
    table = pd.DataFrame({"value": [0.5]}, index=["row"])
    summary = Summary("Head", {}, "Title:", [Section("Table", table, "note")], {"all": table})
    assert str(summary) == "Head\n\nTitle:\nTable:\n    value\nrow   0.5\nnote"
    latex_is_sound(summary.as_latex())
    assert Checker(summary.as_html()).seen.count("table") == 1


@pytest.mark.parametrize("of", ["group", ("Yes", "No")])
def test_estimates_without_a_penalty_stand_beside_limits_that_the_penalty_left(of):
    titanic = bbl.datasets.load_titanic()
    for penalty, is_shown in ((0.1, True), (1e-5, False)):
        fit = bbl.bbl("Survived ~ .^2", titanic, "Freq", lambda_=penalty, lambdah=penalty)
        summary = fit.inference().summary(of)
        assert "unpenalised" not in summary.tables["parameters"]
        cells = summary.sections[0].table
        assert ("no penalty" in cells) == is_shown
        if is_shown:
            limits = cells[["lower", "no penalty", "upper"]].dropna()
            assert len(limits) > 3 and (limits.diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
