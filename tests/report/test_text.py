"""Printed fits, cross-validations and samples: the layout of the paper's sections 3.2, 3.3 and
3.6.
"""

import json

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.design.labels import Labels
from bbl.model.layout import Layout
from bbl.model.parameters import Parameters
from bbl.report.text import (
    call_text,
    cv_text,
    fit_text,
    format_numbers,
    head_text,
    label_text,
    sample_text,
    table_text,
    vector_text,
)

LABELS = Labels(
    "Survived",
    ("No", "Yes"),
    ("Class", "Sex", "Age"),
    (("1st", "2nd", "3rd", "Crew"), ("Female", "Male"), ("Adult", "Child")),
)
ADDITIVE = Layout([4, 2, 2], np.empty((0, 2)))
PAIRS = Layout([4, 2, 2], [(0, 1), (1, 2)])

BFIT0 = """\
Call:
 bbl(formula = Survived ~ Class + Sex + Age, data = titanic, weights = freq,
    prior.count = 0)
 3 predictor states:
   Class = 1st 2nd 3rd Crew
   Sex = Female Male
   Age = Adult Child
 Responses:
   Survived = No Yes

Coefficients:
dh_[Class]^(No):
      2nd       3rd      Crew
0.4451514 0.6891838 0.7058579

dh_[Class]^(Yes):
       2nd        3rd       Crew
-0.4112553 -0.9072555 -0.9584859

dh_[Sex]^(No):
    Male
1.078173

dh_[Sex]^(Yes):
     Male
-1.238999

dh_[Age]^(No):
     Child
-0.3651582

dh_[Age]^(Yes):
    Child
0.5145496"""

BFIT_J = """\
dJ_[Class,Sex]^(No):
          Male
2nd  -1.232254
3rd  -2.720539
Crew -1.379198

dJ_[Class,Sex]^(Yes):
            Male
2nd  -0.90344239
3rd  -0.01468673
Crew -0.30251248

dJ_[Sex,Age]^(No):
          Child
Male -0.4942682

dJ_[Sex,Age]^(Yes):
        Child
Male 1.167093"""

DH = np.array(
    [
        [0.4451514, 0.6891838, 0.7058579, 1.078173, -0.3651582],
        [-0.4112553, -0.9072555, -0.9584859, -1.238999, 0.5145496],
    ]
)
DJ = np.array(
    [
        [-1.232254, -2.720539, -1.379198, -0.4942682],
        [-0.90344239, -0.01468673, -0.30251248, 1.167093],
    ]
)
CALL = {
    "formula": "Survived ~ Class + Sex + Age",
    "data": "titanic",
    "weights": "freq",
    "prior.count": 0,
}


def test_additive_fit_as_in_the_paper():
    """bfit0, section 3.2: every line."""
    parameters = Parameters(ADDITIVE, DH, np.zeros(5))
    assert fit_text(call_text("bbl", CALL), LABELS, parameters) == BFIT0


def test_fit_with_pairs_as_in_the_paper():
    """bfit, section 3.2: the call's line break and the couplings."""
    call = call_text(
        "bbl",
        {"formula": "Survived ~ Class * Sex + Sex * Age", "data": "titanic", "weights": "freq"},
    )
    assert (
        call
        == "bbl(formula = Survived ~ Class * Sex + Sex * Age, data = titanic,\n    weights = freq)"
    )
    pooled = np.linspace(-1, 1, 9)
    parameters = Parameters(PAIRS, np.hstack((DH, DJ)) + pooled, pooled)
    text = fit_text(call, LABELS, parameters)
    assert text.endswith("\n\n" + BFIT_J)
    assert text.splitlines()[11:13] == ["dh_[Class]^(No):", "      2nd       3rd      Crew"]


def test_r_package(shared):
    """The numbers of R 1.0.0 print as its vignette prints them."""
    case = json.loads((shared / "reference/bbl/titanic_additive_w_pc0.json").read_text())
    coef = case["runs"]["default"]["coefficients"]
    flat = [
        np.concatenate([list(h[n].values()) for n in LABELS.names])
        for h in (*coef["h"].values(), coef["h0"])
    ]
    lines = fit_text(
        "bbl()", LABELS, Parameters(ADDITIVE, np.array(flat[:2]), flat[2])
    ).splitlines()
    for wanted in (
        "0.4453027 0.6893738 0.7062034",
        "-0.4114330 -0.9075005 -0.9584320",
        "0.5148763",
        "-1.239013",
    ):
        assert wanted in lines


def test_without_pooled_fit():
    """R prints numeric(0); here the parameters themselves."""
    text = fit_text("bbl()", LABELS, Parameters(PAIRS, np.hstack((DH, DJ))))
    assert "\nh_[Class]^(No):\n" in text
    assert "\nJ_[Sex,Age]^(Yes):\n        Child\nMale 1.167093" in text
    assert "dh_" not in text


@pytest.mark.long
def test_large_fit_is_cut():
    layout = Layout(np.full(60, 30))
    labels = Labels(
        "y", tuple(range(12)), tuple(f"X{i}" for i in range(60)), (tuple(range(30)),) * 60
    )
    theta = np.ones((12, layout.size))
    text = fit_text("bbl()", labels, Parameters(layout, theta, theta[0]))
    lines = text.splitlines()
    assert len(lines) < 200
    for wanted in (
        "   X0 = 0 1 2 3 4 5 6 7 8 9 ... (30 in all)",
        "   ... (50 more predictors)",
        "   y = 0 1 2 3 4 5 6 7 8 9 ... (12 in all)",
        "... (57 more predictors)",
        "... (1767 more pairs)",
        "... (29 x 29 levels in all)",
        "... (19 more levels)",
        "... (10 more groups)",
    ):
        assert wanted in lines
    assert "dh_[X2]^(1):" in lines
    assert not {"dh_[X3]^(0):", "dh_[X0]^(2):"} & set(lines)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.4451514, 0.6891838], ["0.4451514", "0.6891838"]),
        ([2.38189493145, 0.06472019068], ["2.38189493", "0.06472019"]),
        # no zeros at the end
        ([1.70772428, 0.04338029563, 1.0017624627], ["1.7077243", "0.0433803", "1.0017625"]),
        ([1.0, 2.0], ["1", "2"]),
        ([0.1, 0.25], ["0.10", "0.25"]),
        ([1e-5, 1e-2], ["1e-05", "1e-02"]),
        ([1e-5, 1.584893e-5], ["1.000000e-05", "1.584893e-05"]),
        ([0.01, 0.01584893], ["0.01000000", "0.01584893"]),
        ([5.63391903e-39], ["5.633919e-39"]),
        ([123456.7891], ["123456.8"]),
        ([123456789.0], ["123456789"]),
        ([1e5], ["1e+05"]),
        ([1e-300, 1.0], ["1e-300", "1e+00"]),
        ([0.0, -0.5], ["0.0", "-0.5"]),
        ([np.nan, 1.5, np.inf, -np.inf], ["NaN", "1.5", "Inf", "-Inf"]),
        ([np.nan], ["NaN"]),
        ([], []),
    ],
)
def test_numbers_as_r_prints_them(values, wanted):
    assert format_numbers(values) == wanted


def test_vector_wraps():
    names, values = [f"level{i:02d}" for i in range(20)], np.linspace(-1, 1, 20)
    lines = vector_text(names, values).splitlines()
    assert len(lines) == 8
    assert max(map(len, lines)) <= 80
    assert " ".join(lines[::2]).split() == names
    assert [float(v) for v in " ".join(lines[1::2]).split()] == pytest.approx(values, abs=1e-6)


def test_table_wraps_and_aligns():
    frame = pd.DataFrame(
        np.eye(30) + 0.5, index=[f"r{i}" for i in range(30)], columns=[f"c{i}" for i in range(30)]
    )
    lines = table_text(frame).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["r0", "1.5", *["0.5"] * (len(lines[0].split()) - 1)]
    blocks = [line for line in lines if line.lstrip().startswith("c")]
    assert " ".join(blocks).split() == list(frame.columns)


def test_wide_characters_take_two_columns():
    assert vector_text(["日本", "x"], [1.25, 2.5]) == "日本    x\n1.25 2.50"


def test_labels_cannot_break_the_layout():
    assert label_text("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    labels = Labels("y\n", ("\x1b[2J", "b"), ("x\t",), (("0", "1\r"),))
    text = fit_text("bbl()", labels, Parameters(Layout([2]), np.ones((2, 1))))
    assert "\x1b" not in text
    assert "   y\\n = \\x1b[2J b" in text.splitlines()
    assert "h_[x\\t]^(b):\n1\\r\n  1" in text


def test_call():
    arguments = {
        "formula": "y ~\n  a +   b",
        "data": "data",
        "method": "mf",
        "eps": [0.1, 0.30000000000000004],
        "testNull": False,
        "lambdah": None,
        "lambda_": 1e-05,
    }
    assert call_text("crossVal", arguments) == (
        "crossVal(formula = y ~ a + b, data = data, method = 'mf', eps = [0.1, 0.3],\n"
        "    testNull = False, lambdah = None, lambda_ = 1e-05)"
    )
    long = call_text(
        "bbl", {"formula": "y ~ " + " + ".join(f"X{i}" for i in range(784)), "eps": np.arange(20.0)}
    )
    assert len(long) < 300
    assert "9, ...])" in long
    assert call_text("bbl", {}) == "bbl()"


def test_head():
    lines = head_text("bbl()", Labels("y", (True, False), ("x",), ((0, 1),))).splitlines()
    assert lines == [
        "Call:",
        " bbl()",
        " 1 predictor state:",
        "   x = 0 1",
        " Responses:",
        "   y = True False",
    ]


def test_cross_validation_as_in_the_paper():
    """mf, section 3.6."""
    frame = pd.DataFrame(
        {
            "epsilon": [0.1, 0.2, 0.1 * 3, 0.4],
            "AUC": [0.8523296, 0.8530829, 0.8518778, 0.8498872],
            "ci1": [0.8350451, 0.8357946, 0.8344548, 0.8322967],
            "ci2": [0.8696140, 0.8703712, 0.8693008, 0.8674777],
        },
        index=range(1, 5),
    )
    assert cv_text(frame, 0.2, 0.8530829) == (
        "Optimal epsilon = 0.2\n"
        "Max. score: 0.8530829\n"
        "\n"
        "  epsilon       AUC       ci1       ci2\n"
        "1     0.1 0.8523296 0.8350451 0.8696140\n"
        "2     0.2 0.8530829 0.8357946 0.8703712\n"
        "3     0.3 0.8518778 0.8344548 0.8693008\n"
        "4     0.4 0.8498872 0.8322967 0.8674777"
    )


def test_cross_validation_settings_in_exponents():
    frame = pd.DataFrame(
        {"lambda": 10.0 ** np.arange(-5, -1, 0.2), "score": np.linspace(0.5, 0.9, 20)}, range(1, 21)
    )
    lines = cv_text(frame, 10**-2.8, 0.7376235).splitlines()
    assert lines[0] == "Optimal lambda = 0.001584893"
    assert lines[4].startswith("1  1.000000e-05 0.5000000")
    assert lines[15].startswith("12 1.584893e-03")


def test_losses_are_minimised():
    frame = pd.DataFrame({"lambda": [0.1], "score": [0.25]})
    assert "Min. score (logloss): 0.25" in cv_text(frame, 0.1, 0.25, "logloss")
    assert "Max. score (accuracy): 0.25" in cv_text(frame, 0.1, 0.25, "accuracy")
    assert "Max. score: 0.25" in cv_text(frame, 0.1, 0.25, "auc")


def test_sample():
    xmax = pd.DataFrame(
        {"No": ["3rd", "Male", "Adult"], "Yes": ["1st", "Female", "Adult"]}, ["Class", "Sex", "Age"]
    )
    assert sample_text(xmax, pd.Series({"No": 3.381014, "Yes": 0.0})) == (
        "xmax:\n"
        "      No    Yes\n"
        "Class 3rd   1st\n"
        "Sex   Male  Female\n"
        "Age   Adult Adult\n"
        "\n"
        "emax:\n"
        "      No      Yes\n"
        "3.381014 0.000000"
    )
    images = pd.DataFrame(np.zeros((784, 10), dtype=int), [f"X{i}" for i in range(784)])
    text = sample_text(images, pd.Series(np.arange(10.0)))
    assert len(text.splitlines()) == 17
    assert "... (774 more predictors)" in text


@pytest.mark.parametrize("symmetrize", [True, False])
def test_couplings_that_are_not_symmetrised_say_that_there_are_two_estimates(symmetrize):
    rows = np.random.default_rng(0).integers(0, 3, (60, 3))
    shown = repr(bbl.mlestimate(rows, symmetrize=symmetrize))
    assert (
        "J[j, i] comes from the regression of j and differs from J[i, j]." in shown
    ) != symmetrize
