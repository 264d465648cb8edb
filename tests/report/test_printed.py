"""What is printed, as somebody who sees it first reads it: the call, tests, effects, `anova`."""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.report.text import WIDTH

TITANIC = bbl.datasets.load_titanic()


def width(text):
    return max(map(len, str(text).splitlines()))


def test_a_call_names_the_variables_of_the_caller():
    passengers = TITANIC[["Sex", "Survived"]]
    freq = TITANIC["Freq"].to_numpy()
    fit = bbl.bbl("Survived ~ Sex", passengers, freq)
    assert fit.call == "bbl(formula = Survived ~ Sex, data = passengers, weights = freq)"
    assert bbl.bbl("Survived ~ Sex", TITANIC, "Freq").call == (
        "bbl(formula = Survived ~ Sex, data = TITANIC, weights = Freq)"
    )
    nameless = bbl.bbl("Survived ~ Sex", TITANIC.head(99), TITANIC["Freq"].head(99) + 1)
    assert nameless.call == "bbl(formula = Survived ~ Sex, weights = <Series>)"


def test_calls_of_the_other_models_name_them_too():
    passengers = TITANIC
    assert "data = passengers" in bbl.shooter("Survived ~ Sex", passengers, "Freq").call
    assert "data = passengers" in bbl.networks.bnc("nb", "Survived ~ Sex", passengers).call


def test_exact_tests_have_odds_ratios_and_no_column_is_empty():
    fit = bbl.bbl("Survived ~ .^2", TITANIC, "Freq")
    text = str(fit.summary())
    assert "NaN" not in text and "Wald tests of" not in text
    tests = fit.inference().tests(of=("Yes", "No"))
    for section in fit.summary().sections[3:]:
        assert not (section.table == "").all().any()
        assert "chisq" not in section.table and "odds ratio" in section.table
    # one parameter: its exact estimate
    sex_age = fit.summary().sections[-1].table.loc["Sex:Age"]
    own = tests[(tests["predictor"] == "Sex") & (tests["predictor2"] == "Age")].iloc[0]
    assert float(sex_age["p"]) == pytest.approx(own["p"], rel=1e-2)
    assert float(sex_age["odds ratio"]) > 1


def test_wald_tests_have_their_statistic():
    fit = bbl.bbl("Survived ~ Class + Sex", TITANIC, "Freq", method="naive")
    table = fit.summary().sections[-1].table
    tests = fit.inference().tests(of=("Yes", "No")).set_index("predictor")
    assert "odds ratio" not in table
    np.testing.assert_allclose(table["chisq"].astype(float), tests["chisq"], rtol=1e-3)


@pytest.mark.filterwarnings("ignore::bbl.ConvergenceWarning", "ignore::bbl.DataWarning")
@pytest.mark.long
def test_the_summary_of_many_groups_fits_a_page():
    codons = bbl.datasets.load_genetic_code()  # 21 amino acids
    summary = bbl.bbl("aa ~ .^2", codons).summary()
    assert len(str(summary).splitlines()) <= 60 and width(summary) <= WIDTH
    assert "NaN" not in str(summary) and "38 in all" in str(summary)
    assert " parameters have no finite value" in str(summary)
    assert summary.tables["h"].shape == (9, 22)  # what is not printed


def test_settings_without_effect_are_not_printed():
    default = str(bbl.bbl("Survived ~ Sex + Age", TITANIC, "Freq", method="conditional").summary())
    assert "Settings: ridge = 0.001\n" in default
    other = bbl.bbl("Survived ~ Sex + Age", TITANIC, "Freq", method="conditional", epochs=3)
    assert "Settings: ridge = 0.001, epochs = 3\n" in str(other.summary())


@pytest.mark.filterwarnings("ignore::bbl.ConvergenceWarning")
def test_a_separated_fit_says_why_it_has_not_converged():
    fit = bbl.bbl("Survived ~ .^2", TITANIC, "Freq", method="conditional", ridge=0)
    text = str(fit.summary())
    assert "no finite value, because levels do not occur or separate the groups" in " ".join(
        text.split()
    )
    assert "Not tested (" in text
    # the tables of the reference group, all zeros, are not printed
    assert "^(No)" not in str(fit) and "h_[Sex]^(Yes)" in str(fit)
    assert "All parameters of No are zero" in str(fit)


def test_effects_of_two_groups_are_printed_once():
    fit = bbl.bbl("Survived ~ Class * Sex", TITANIC, "Freq", method="conditional", ridge=0)
    effects = fit.avg_comparisons(by="Sex")
    text = str(effects)
    assert text.startswith("Probabilities of Survived = Yes\n") and width(text) <= WIDTH
    assert text.count("Class: 2nd - 1st, Sex=Male") == 1
    assert (effects.frame["group"] == "No").any()  # the frame has both
    # no test of a probability against zero
    predictions = fit.avg_predictions("Class")._summary.sections[0].table
    assert list(predictions) == ["estimate", "se", "lower", "upper"]
    three = bbl.bbl("Class ~ Survived", TITANIC, "Freq").avg_comparisons()
    assert "1st: Survived: Yes - No" in str(three) and "Crew: Survived: Yes - No" in str(three)


def test_long_names_have_a_line_of_their_own():
    labels = {"a": "nobody else has ever had such a long name", "b": "another"}
    table = pd.DataFrame({"y": list("nynyyn") * 30, "x": list("aabbab") * 30}).replace(labels)
    effects = bbl.bbl("y ~ x", table).avg_comparisons()
    lines = str(effects).splitlines()
    at = lines.index("x: nobody else has ever had such a long name - another")
    assert lines[at + 1].startswith("   ") and "upper" in lines[at - 1]


def test_anova_prints_its_p_value():
    fits = [
        bbl.bbl(f"Survived ~ {terms}", TITANIC, "Freq", method="ml")
        for terms in ("Class + Sex + Age", "Class * Sex + Age")
    ]
    table = bbl.anova(*fits)
    text = str(table)
    assert width(text) <= WIDTH and "..." not in text
    assert text.splitlines()[0] == "(1) Survived ~ Class + Sex + Age, ml"
    assert f"{table['p'].iloc[1]:.3g}" in text and text.endswith("(2): likelihood ratio")
    assert type(table[["p"]]) is pd.DataFrame


def test_strengths_without_tests():
    fit = bbl.bbl("Survived ~ .^2", TITANIC, "Freq")
    strengths = fit.interactions(pvalues=None)
    tested = fit.interactions()
    assert strengths["strength"].tolist() == tested["strength"].tolist()
    assert strengths["p"].isna().all() and (strengths["test"] == "not requested").all()


@pytest.mark.parametrize("of", ["group", "pooled", ("u", "v")])
def test_the_note_below_a_cut_table_names_the_tests_of_the_table(of):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, 2, (600, 6))).add_prefix("x")
    data["y"] = rng.choice(["u", "v", "w"], 600)
    inference = bbl.bbl("y ~ .^2", data, verbose=0).inference()
    printed = str(inference.summary(of=of)).replace("\n", " ")
    assert f"inference().tests({'' if of == 'group' else f'of={of!r}'})." in printed
