"""Tests of what notebooks show: tables in place of text, all names and levels escaped."""

import html
import re

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.report.notebook import Notebook, first_rows

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    codes = {name: rng.integers(0, 2, 120) for name in ("a", f"b {HOSTILE}")}
    codes["y"] = np.where(rng.random(120) < 0.2, 1 - codes["a"], codes["a"])
    return pd.DataFrame(
        {name: np.array([f"{HOSTILE}{name}", "b&b"])[values] for name, values in codes.items()}
    )


@pytest.fixture(scope="module")
def results(frame):
    fit = bbl.bbl("y ~ .", frame, lambda_="cv", verbose=0)
    network = bbl.networks.bnc("nb", "y ~ .", frame, 1)
    return {
        "fit": fit,
        "coefficients": fit.coef(),
        "all fields": fit.coef().h,
        "fields": fit.coef().h["b&b"],
        "couplings": bbl.bbl("y ~ .^2", frame, verbose=0).coef().J,
        "tuning": fit.tuning,
        "calibration": bbl.bbl("y ~ .", frame, calibrate="offset", verbose=0).tuning,
        "inference": fit.inference(),
        "differences": bbl.bbl("y ~ .", frame, method="conditional", verbose=0).inference(),
        "explanation": fit.explain(),
        "importance": fit.importance(),
        "evaluation": fit.evaluate(),
        "cross-validation": bbl.crossVal(
            "y ~ .", frame, lambda_=[0.1, 1], shuffle=True, seed=1, verbose=0
        ),
        "density": bbl.bbl("~ .", frame, verbose=0),
        "network": network,
        "average": bbl.average([fit, network]),
        "sparse": bbl.shooter("y ~ .", frame, order=2, verbose=0),
        "graphs": bbl.graphs(frame, verbose=0),
        "step": bbl.step(bbl.bbl("~ .^2", frame, method="ml", verbose=0), verbose=0),
        "enrichment": bbl.enrichment([("a", HOSTILE), ("a", "c")], [("a", HOSTILE)]),
        "bicluster": bbl.bicluster(
            None, np.random.default_rng(1).random((9, 6)), groups=(2, 2), verbose=0
        ),
        "table": bbl.etable(fit),
        "summary": fit.summary(),
    }


KINDS = [
    "fit",
    "coefficients",
    "all fields",
    "fields",
    "couplings",
    "tuning",
    "calibration",
    "inference",
    "differences",
    "explanation",
    "importance",
    "evaluation",
    "cross-validation",
    "density",
    "network",
    "average",
    "sparse",
    "graphs",
    "step",
    "enrichment",
    "bicluster",
    "table",
    "summary",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_a_table_in_which_names_are_escaped(results, kind):
    shown = results[kind]._repr_html_()
    assert "<table" in shown and "<td>" in shown
    assert "<script" not in shown
    assert shown.count("<table") == shown.count("</table>")
    assert not re.search(r"&(?!#?\w+;)", shown), "an ampersand is not escaped"


def test_every_kind_is_tried(results):
    assert list(results) == KINDS


def test_no_fit_shows_a_name_as_it_was_given(results):
    shown = html.unescape(results["fit"]._repr_html_())
    assert HOSTILE in shown and isinstance(results["inference"], Notebook)


def test_tuning_is_a_table_with_the_chosen_setting_marked(results):
    tuning = results["tuning"]
    assert (
        tuning.frame["chosen"].sum() == 1
        and tuning.frame["lambda_"][tuning.chosen] == tuning.values[tuning.chosen]
    )
    assert len(str(tuning).splitlines()) == len(tuning.values) + 2 and str(tuning).count("*") == 1
    assert str(results["calibration"]).startswith("Calibration only")


def test_the_title_of_a_tuning_has_the_loss_of_the_chosen_setting():
    data = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (200, 5)), columns=list("abcde"))
    data["y"] = (data[["a", "b", "c"]].sum(axis=1) > 1) ^ (data["d"] & data["e"] == 1)
    tuning = bbl.bbl("y ~ .^2", data, lambda_="cv-1se", verbose=0).tuning
    assert f"{tuning.loss[tuning.chosen]:.4g}" != f"{tuning.loss.min():.4g}"
    assert (
        str(tuning).splitlines()[0].endswith(f"out-of-fold loss {tuning.loss[tuning.chosen]:.4g}")
    )


def test_long_tables_say_where_the_rest_is():
    section = first_rows(pd.DataFrame({"x": range(1030)}), "Numbers", ".frame", "A note.")
    assert len(section.table) == 20 and section.note == "... (1,010 more rows; see .frame) A note."
    whole = first_rows(pd.DataFrame({"x": range(20)}), "Numbers", ".frame")
    assert len(whole.table) == 20 and not whole.note
