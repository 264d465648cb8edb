"""Live pages of the gallery: pages that answer "what if", written beside the HTML pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import bbl

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "live"  # in the HTML output


def write_titanic(path: Path) -> None:
    """Write the page of a model of the survivors of the Titanic."""
    titanic = bbl.datasets.load_titanic()
    bbl.bbl("Survived ~ Class*Sex + Sex*Age", titanic, weights="Freq").explore(path)


def write_passengers(path: Path) -> None:
    """Write the page of a model of the passengers of the Titanic with their ages."""
    known = bbl.datasets.load_titanic_passengers().dropna()
    fit = bbl.bbl("Survived ~ .^2", known, numeric="Age", method="ml", missing="marginal")
    fit.explore(path)


def write_screening(path: Path) -> None:
    """Write a page for teaching Bayes' rule: a test that finds 90 % of the cases of a disease, and
    is positive for 9 % of the others.
    """
    table = pd.DataFrame(
        {
            "Disease": ["no", "no", "yes", "yes"],
            "Test": ["negative", "positive"] * 2,
            "Freq": [910, 90, 100, 900],
        }
    )
    priors = {"no": 0.99, "yes": 0.01}
    bbl.bbl("Disease ~ Test", table, weights="Freq", method="ml", priors=priors).explore(path)


def write_survey(path: Path) -> None:
    """Write the report of a simulated survey with sampling weights and sampling points."""
    rng = np.random.default_rng(15)
    point = np.repeat(np.arange(60), 15)
    n = len(point)
    rent = rng.random(n) < 0.4
    content = rng.choice(["dissatisfied", "neither", "satisfied"], n, p=[0.3, 0.3, 0.4])
    age = rng.choice(["18-39", "40-64", "65+"], n)
    log_odds = rng.normal(0.0, 0.5, 60)[point] - 1.0 + 1.2 * rent
    log_odds += 0.8 * (content == "dissatisfied") - 1.0 * (age == "65+")
    table = pd.DataFrame(
        {
            "moving": np.where(rng.random(n) < 1 / (1 + np.exp(-log_odds)), "yes", "no"),
            "home": np.where(rent, "rents", "owns"),
            "place": content,
            "age": age,
            "weight": np.where(point < 20, 0.5, 1.25),
            "point": point,
        }
    )
    design = bbl.survey("weight", cluster="point")
    fit = bbl.bbl("moving ~ home*place + age", table, design=design)
    fit.report(path, verbose=0)


PAGES = {
    "titanic": write_titanic,
    "passengers": write_passengers,
    "screening": write_screening,
    "survey": write_survey,
}


def write_pages(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        write(folder / f"{name}.html")


def write_with_html(app: Sphinx, error: Exception | None) -> None:
    """Write the pages after those of the documentation."""
    if error is None and app.builder.format == "html":
        write_pages(Path(app.outdir, FOLDER))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the pages with Sphinx."""
    app.connect("build-finished", write_with_html)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
