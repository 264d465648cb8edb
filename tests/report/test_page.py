"""The report: one page that fetches nothing, which a screen reader and a telephone can read, and
what it says.
"""

import html
import re
import shutil
import subprocess
from html.parser import HTMLParser

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import bbl
from bbl import networks
from bbl.report.machine.plot_interactions import draw_network as original
from bbl.report.page import STYLE

matplotlib.use("Agg")
VOID = {"meta", "img", "br", "input"}


class Outline(HTMLParser):
    """What a screen reader goes by: elements with their attributes, and that all that is opened is
    closed.
    """

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.headings, self.texts = [], [], [], {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def titanic():
    return bbl.datasets.load_titanic()


@pytest.fixture(scope="module")
def pages(titanic, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    formula = "Survived ~ Class * Sex + Sex * Age"
    fits = {
        "pseudo": bbl.bbl(formula, titanic, "Freq"),
        "mf": bbl.bbl("Survived ~ .^2", titanic, "Freq", "mf"),
        "density": bbl.bbl("~ Class * Sex", titanic, "Freq"),
        "tan": networks.bnc("tan_cl", "Survived ~ .", titanic, 1, weights="Freq"),
    }
    fits["shooter"] = bbl.shooter("Survived ~ .", titanic, weights="Freq", lambda_=60)
    fits["average"] = bbl.average([fits["mf"], bbl.bbl(formula, titanic, "Freq", "naive")], "equal")
    fits["pseudo"].save(folder / "fit.bbl")
    fits["loaded"] = bbl.load(folder / "fit.bbl")
    found, drawn = {}, plt.get_fignums()
    for name, fit in fits.items():
        with pytest.MonkeyPatch.context() as patch:
            if name in ("average", "loaded"):  # of the kinds that the first two draw
                patch.setattr(Figure, "savefig", lambda *_, **__: None)
            fit.report(folder / f"{name}.html")
        found[name] = folder / f"{name}.html"
    assert plt.get_fignums() == drawn
    return found


NAMES = ("pseudo", "mf", "density", "tan", "shooter", "average", "loaded")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thinned(5)
def test_a_page_can_be_read_by_a_screen_reader(pages, name):
    page = Outline(pages[name].read_text(encoding="utf-8"))
    assert page.all("html") == [{"lang": "en"}] and page.texts["title"][0].strip()
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert (
        levels[0] == 1
        and levels.count(1) == 1
        and all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))
    )
    assert all(len(own.get("alt", "")) > 20 for own in page.all("img"))
    assert len(page.all("main")) == 1 and page.all("nav")[0]["aria-label"]
    ids = [own["id"] for _, own in page.elements if "id" in own]
    assert len(set(ids)) == len(ids)
    assert {own["href"].removeprefix("#") for own in page.all("a")} <= set(ids)
    regions = [own for _, own in page.elements if own.get("role") == "group"]
    # bars are as wide as the page
    scrolling = [own for own in page.all("table") if own.get("class") != "bars"]
    assert len(scrolling) <= len(regions)
    assert all(own["aria-label"] and own["tabindex"] == "0" for own in regions)
    assert all(own["scope"] in ("row", "col") for own in page.all("th"))
    notes = (
        pages[name].read_text(encoding="utf-8").count("<tfoot>")
    )  # each in a box as wide as the screen, not the table
    assert pages[name].read_text(encoding="utf-8").count("</div></td></tr></tfoot>") == notes


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fetches_nothing_and_runs_only_its_own_script(pages, name):
    text = pages[name].read_text(encoding="utf-8")
    page = Outline(text)
    assert not {"link", "iframe", "object"} & {tag for tag, _ in page.elements}
    *data, script = page.all("script")
    assert script == {} and all(own["type"] == "application/json" for own in data)
    assert not any("action" in own for own in page.all("form"))
    (policy,) = (own["content"] for own in page.all("meta") if "http-equiv" in own)
    assert policy.startswith("default-src 'none'") and "http" not in policy
    assert all(own["src"].startswith("data:image/png;base64,") for own in page.all("img"))
    assert not re.search(r"https?://|url\(|@import|\son\w+=", re.sub(r"base64,[^\"]*", "", text))


def test_a_report_without_a_form_runs_nothing(titanic, tmp_path, undrawn):
    fit = bbl.bbl("Survived ~ Sex", titanic, "Freq")
    fit.report(tmp_path / "page.html", interactive=False)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    tags = {tag for tag, _ in Outline(text).elements}
    assert not tags & {"script", "form", "input"} and "What if" not in text
    with pytest.raises(bbl.errors.BBLTypeError, match="interactive"):
        fit.report(tmp_path / "page.html", interactive="no")


def luminance(colour):
    colour = colour.lstrip("#")
    colour = "".join(2 * c for c in colour) if len(colour) == 3 else colour
    parts = np.array([int(colour[k : k + 2], 16) for k in (0, 2, 4)]) / 255
    parts = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(parts @ [0.2126, 0.7152, 0.0722])


def test_text_stands_out_from_what_is_behind_it():
    assert not re.search(r"[^-]color: #", STYLE)  # all colours of text are variables of a theme
    themes = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in STYLE.split(":root")[1:]]
    assert len(themes) == 3 and themes[0] == themes[2] != themes[1]  # light, dark and printed
    for theme in themes:
        for text in ("ink", "soft", "link"):
            for ground in ("paper", "code"):
                pair = (luminance(theme[text]), luminance(theme[ground]))
                dark, light = sorted(pair)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def test_what_is_cut_on_a_narrow_screen_shows_that_it_scrolls(pages):
    text = pages["mf"].read_text(encoding="utf-8")
    page = Outline(text)
    # background of boxes: a shade at an edge behind which there is more
    assert re.search(r"\.scroll \{[^}]*local[^}]*var\(--shade\)[^}]*scroll", STYLE)
    wide = [attrs for attrs in page.all("div") if attrs.get("class") == "scroll wide"]
    assert wide and text.count('<p class="hint">') == len(wide)
    for limit, content in re.findall(r'<figure class="to(\d+)">(.*?)</figure>', text, re.DOTALL):
        assert int(re.search(r'width="(\d+)"', content)[1]) < int(limit)
        assert f".to{limit} .hint {{ display: block; }}" in STYLE


def test_table_and_graph_of_interactions_have_one_quantity(titanic, tmp_path, monkeypatch, undrawn):
    import bbl.results.machine.report_parts as module

    drawn = []
    monkeypatch.setattr(
        module,
        "draw_network",
        lambda *args, **options: drawn.append((args, options)) or original(*args, **options),
    )
    fit = bbl.bbl("Survived ~ .^2", titanic, "Freq")
    text = section(fit, "Interactions", tmp_path)
    ((_, parameters), options) = drawn[0]
    strengths = fit.interactions(of=("Yes", "No"), pvalues=None).set_index("predictor2")["strength"]
    assert options["groups"] == [("Yes", "No")] and parameters.pooled is None
    assert "the difference in couplings, Yes minus No" in text
    assert all(f"{value:.4f}" in text for value in strengths)
    three = pd.DataFrame({name: titanic[name] for name in ("Class", "Sex", "Age", "Freq")})
    fit = bbl.bbl("Class ~ .^2", three, "Freq")
    text = section(fit, "Interactions", tmp_path)
    ((_, parameters), options) = drawn[1]
    assert options["groups"] is None and parameters.pooled is not None
    strongest = fit.interactions(of="pooled")["strength"].max()
    assert f"{strongest:.4f}" in text and "between a group and the fit to all rows" in text


def test_tests_of_fields_say_at_which_levels_they_hold(pages):
    text = pages["pseudo"].read_text(encoding="utf-8")
    condition = "at their reference levels: Class=1st, Sex=Female, Age=Adult."
    assert text.count(condition) == 2  # by the differences, and by the summary
    assert "reference levels" not in pages["shooter"].read_text(encoding="utf-8")


@pytest.mark.long
def test_a_report_has_a_bar_in_whole_numbers(titanic, tmp_path, monkeypatch, undrawn):
    import sys
    from io import StringIO

    class Terminal(StringIO):
        def isatty(self):
            return True

    import tqdm

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    real = tqdm.tqdm
    monkeypatch.setattr(
        tqdm, "tqdm", lambda **options: real(**options | {"delay": 0, "mininterval": 0})
    )
    fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", lambda_="cv")
    fit.report(tmp_path / "page.html")
    assert re.search(r"report: +100%\|[^|]*\| 4/4 \[", screen.getvalue())
    assert "tuning" in screen.getvalue() and not re.search(r"\d\.\d+/", screen.getvalue())
    shown = len(screen.getvalue())
    fit.report(tmp_path / "page.html", verbose=0)
    assert len(screen.getvalue()) == shown


def test_a_report_says_what_the_model_says(pages, titanic):
    text = pages["pseudo"].read_text(encoding="utf-8")
    for words in (
        "Confusion matrix",
        "0.7856",
        "chisq = 180.9014",
        "Sex and Age",
        "No rows were dropped",
        "67.7%",
    ):
        assert words in text
    assert "no finite" not in text and "training rows" in text
    assert "No standard errors" in pages["mf"].read_text(encoding="utf-8")
    assert "Evaluation" not in re.sub(
        "<style>.*?</style>", "", pages["density"].read_text(encoding="utf-8"), flags=re.S
    )
    assert "Not available: This model has no training rows" in pages["loaded"].read_text(
        encoding="utf-8"
    )


def test_a_report_begins_with_what_predictions_are_worth(pages, titanic):
    text = pages["pseudo"].read_text(encoding="utf-8")
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert headings[:2] == ["What if", "In short"] and headings[-2:] == ["Summary", "Data"]
    assert "<title>Model of Survived</title>" in text
    first = html.unescape(re.sub("<[^>]+>", " ", text.split("<h2")[2]))
    fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, "Freq")
    scores = fit.evaluate().scores
    naive = bbl.bbl("Survived ~ .", titanic, "Freq", "naive", prior_count=1).evaluate().scores
    assert f"{scores.loc['accuracy', 'estimate']:.1%} are classified correctly" in first
    for loss in (
        scores.loc["log-loss", "estimate"],
        scores.loc["log-loss", "baseline"],
        naive.loc["log-loss", "estimate"],
    ):
        assert f"{loss:.3g} for" in first or f"is {loss:.3g}" in first
    importance = fit.importance(titanic, weights="Freq").frame["importance"]
    drivers = re.findall(r"(\w+) \(\+(\d\.\d+)\)", first)
    assert [name for name, _ in drivers] == list(importance.index[: len(drivers)])
    assert [float(rise) for _, rise in drivers] == [round(v, 3) for v in importance[: len(drivers)]]
    assert "Yes minus No" in text and "each group minus" not in text


def test_what_was_dropped_binned_and_lumped_is_told_and_names_are_escaped(tmp_path, undrawn):
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"<y>": rng.integers(0, 2, 300), "age & more": rng.uniform(0, 9, 300)})
    data["town"] = rng.choice(["a", "b"], 300).astype(object)
    data.loc[:3, "town"] = ["<script>alert(1)</script>", "u", "v", None]
    ready = bbl.lump(bbl.bin(data, bins=3, response="<y>"), response="<y>")
    fit = bbl.bbl("`<y>` ~ .", ready, missing="drop", lambda_=0.1, lambdah=0.01)
    fit.report(tmp_path / "page.html", data, interactive=False)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "binned numbers" in text and "rare levels merged (fewer than 5)" in text
    assert "<script" not in text and "<y>" not in text and "age &amp; more" in text
    assert "new rows" in text and "with a missing value" in text
    Outline(text)


def section(fit, heading, folder):
    """The section of a fit's report under a heading, as text without its figure."""
    fit.report(folder / "page.html")
    text = (folder / "page.html").read_text(encoding="utf-8")
    part = next(part for part in re.split("<h2", text) if f">{heading}</h2>" in part)
    return html.unescape(re.sub("<[^>]*>", "  ", part))


@pytest.mark.long
def test_the_zeros_of_a_reference_group_are_no_interactions(titanic, tmp_path, undrawn):
    fit = bbl.bbl("Survived ~ Class + Sex * Age", titanic, "Freq", "conditional", ridge=0)
    text = section(fit, "Interactions", tmp_path)
    assert "Sex and Age" in text and "No: " not in text


def test_interactions_name_all_their_predictors_and_small_p_values(tmp_path, undrawn):
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 2, (3, 600))
    y = np.where(rng.random(600) < 0.2 + 0.6 * (a ^ b ^ c), "yes", "no")
    data = pd.DataFrame({"y": y, "a": a, "b": b, "c": c})
    fit = bbl.bbl("y ~ a * b * c", data, method="ml")
    p = fit.interactions(of=("yes", "no"))["p"].min()
    assert p < 1e-10 and f"{p:.2g}" in section(fit, "Interactions", tmp_path)
    fit.save(tmp_path / "fit.bbl")
    # without tests, and so of all terms
    text = section(bbl.load(tmp_path / "fit.bbl"), "Interactions", tmp_path)
    assert "  a and b and c" in text and "  a and b  " in text


def test_intervals_without_tests_are_of_the_differences_too(titanic, tmp_path, undrawn):
    fit = bbl.bbl("Survived ~ Sex * Age", titanic, "Freq", "conditional")
    row = fit.inference().table(of=("Yes", "No")).iloc[0]
    text = section(fit, "Differences between the groups", tmp_path)
    assert "Yes - No: Sex=Male" in text and all(
        f"{row[name]:.5f}" in text for name in ("estimate", "lower", "upper")
    )


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


MEASURE = """<iframe width="{width}" height="2000" style="border:0" srcdoc="{page}"
onload="const d = this.contentDocument.documentElement, w = this.contentWindow; document.title +=
['/', {width},
d.scrollWidth, d.clientWidth,
w.performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length].join(' ')">
</iframe>"""  # noqa: E501


@pytest.mark.skipif(BROWSER is None, reason="there is no browser")
def test_a_browser_shows_the_page_without_errors_requests_or_sideways_scrolling(pages, tmp_path):
    inside, widths = (
        html.escape(pages["pseudo"].read_text(encoding="utf-8"), quote=True),
        (390, 1280),
    )
    frames = "".join(
        MEASURE.replace("{width}", str(width)).replace("{page}", inside) for width in widths
    )
    page = tmp_path / "page.html"
    page.write_text(
        f"<!DOCTYPE html><html><head><title></title></head><body>{frames}</body></html>",
        encoding="utf-8",
    )
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--enable-logging=stderr",
    ]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,2100", "--dump-dom"]
    run = subprocess.run(
        [BROWSER, *options, page.as_uri()], capture_output=True, text=True, timeout=120
    )
    found = np.array(
        re.search(r"<title>([\d /]+)</title>", run.stdout)[1].replace("/", " ").split(), dtype=int
    )
    found = sorted(found.reshape(2, 4).tolist())
    assert [own[0] for own in found] == list(widths)
    for width, taken, there, fetched in found:
        assert taken <= there <= width and not fetched
    assert "CONSOLE" not in run.stderr


def test_a_report_of_numbers_alone(tmp_path):
    """The section on parameters shows the means of numeric predictors."""
    data = pd.DataFrame({"y": list("ab") * 15, "x": np.arange(30.0)})
    fit = bbl.bbl("y ~ x", data, numeric="x", method="ml", verbose=0)
    fit.report(tmp_path / "numbers.html")
    page = (tmp_path / "numbers.html").read_text(encoding="utf-8")
    assert "The model has no fields and no interactions" in page
    assert "Means of numeric predictors in each group." in page
