"""step: paths of R's stepAIC, the chosen model as a fit, and refusals."""

import json

import numpy as np
import pandas as pd
import pytest

import bbl

CASES = [
    "danish_forward_BIC",
    "dayton_backward_AIC",
    "dayton_backward_BIC",
    "heart_forward_AIC",
    "heart_forward_BIC",
    "hec_backward_AIC",
    "hec_backward_BIC",
    "housing_both_AIC",
    "presex_backward_BIC",
]


@pytest.fixture(scope="module")
def survey():
    """Four variables without empty cells: Sex and Answer depend on Class, and Age on both of
    them.
    """
    rng = np.random.default_rng(11)
    x = rng.integers(0, 3, 2000)
    a, b = (rng.random((2, 2000)) < 0.3 + 0.15 * x).astype(int)
    c = (rng.random(2000) < 0.3 + 0.2 * a + 0.2 * b).astype(int)
    names = {"Class": np.array(["1st", "2nd", "3rd"])[x], "Sex": a, "Answer": b, "Age": c}
    return pd.DataFrame(names).value_counts().rename("Freq").reset_index()


def term_names(step):
    """Return sign and predictors of a step such as "- a:b"."""
    sign, names = step.split(" ")
    return sign, frozenset(names.split(":"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.long
def test_paths_are_those_of_r(shared, case):
    path = shared / "reference" / "loglin" / f"step_{case}.json"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    reference = json.loads(path.read_text())
    columns = reference["data"]["columns"]
    data = pd.DataFrame(
        {
            c["name"]: np.array(c["levels"], dtype=object)[c["codes"]]
            if "codes" in c
            else c["values"]
            for c in columns
        }
    )
    levels = {c["name"]: c["levels"] for c in columns if "codes" in c}
    fit = bbl.bbl(reference["start"], data, "n", method="ml", xlevels=levels)
    k = "bic" if reference["criterion"] == "BIC" else reference["k"]
    found = bbl.step(fit, reference["direction"], k, (reference["lower"], reference["upper"]))
    steps = reference["result"]["steps"]
    signs = {"drop": "-", "add": "+"}
    expected = [
        (signs[s["chosen"]["action"]], frozenset(s["chosen"]["term"].split(":")))
        for s in steps[:-1]
    ]
    assert steps[-1]["chosen"] is None or len(steps) == len(expected) + 1
    assert [term_names(term) for term in found.path["term"][1:]] == expected
    criterion = found.path[reference["criterion"]].to_numpy()
    # R's AIC leaves out a constant: the log-likelihood of the saturated model
    by_r = np.array([s["AIC"] for s in steps])
    np.testing.assert_allclose(criterion - criterion[0], by_r - by_r[0], rtol=0, atol=1e-7)
    assert len(found.candidates) == sum(len(s["candidates"]) for s in steps)
    by_r = {(n, c["term"]): c["LRT"] for n, s in enumerate(steps, 1) for c in s["candidates"]}
    deviances = [by_r[n, term[2:]] for n, term in found.candidates["term"].items()]
    np.testing.assert_allclose(found.candidates["deviance"], deviances, rtol=1e-6, atol=1e-8)


def test_the_chosen_model_is_that_of_its_formula(survey):
    start = bbl.bbl("~ .^3", survey, "Freq", method="ml")
    found = bbl.step(start, "backward", "bic")
    again = bbl.bbl(found.fit.formula, survey, "Freq", method="ml")
    assert found.fit.formula == again.formula
    assert len(found.path) > 1
    assert found.path["BIC"].is_monotonic_decreasing
    np.testing.assert_allclose([found.fit.bic, found.path["BIC"].iloc[-1]], again.bic, rtol=1e-12)
    assert found.fit.n_parameters == found.path["parameters"].iloc[-1] == again.n_parameters
    assert str(found).splitlines()[-1] == f"Chosen: {again.formula}"
    shared_names = again.params.index
    np.testing.assert_allclose(found.fit.params[shared_names], again.params, rtol=1e-8, atol=1e-10)


def test_groups_have_the_same_terms_and_their_criteria_are_summed(survey, tmp_path):
    start = bbl.bbl("Answer ~ Class + Sex + Age", survey, "Freq", method="ml")
    found = bbl.step(start)
    assert found.path["AIC"].iloc[0] == pytest.approx(start.aic, rel=1e-12)
    assert found.path["AIC"].iloc[-1] == pytest.approx(found.fit.aic, rel=1e-12)
    again = bbl.bbl(found.fit.formula, survey, "Freq", method="ml")
    assert again.aic == pytest.approx(found.fit.aic, rel=1e-12)
    np.testing.assert_allclose(
        found.fit.predict(type="prob").iloc[:, :2], again.predict(type="prob").iloc[:, :2]
    )
    assert found.fit.estimate.parameters.pooled is not None  # as in the first fit
    found.fit.save(tmp_path / "chosen.bbl", store_data=True)
    assert bbl.load(tmp_path / "chosen.bbl").aic == found.fit.aic


def test_a_scope_with_the_response_and_one_that_keeps_terms(survey):
    fit = bbl.bbl("Answer ~ (Class + Sex + Age)^2", survey, "Freq", method="ml")
    kept = bbl.step(fit, k=1e9, scope=("Answer ~ Class:Sex", "Answer ~ .^2"))
    assert kept.fit.formula == "Answer ~ Class*Sex + Age"
    assert list(kept.path["term"][1:]) and set(kept.path["df"][1:]) <= {2, 6, 4}
    none = bbl.step(fit, "forward", scope=("~ 1", "~ .^2"))
    assert none.fit is fit and len(none.path) == 1 and none.candidates.empty


def test_names_that_need_backticks_and_gaps():
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, 2, (3, 400))
    data = pd.DataFrame({"an a": a, "b": np.where(rng.random(400) < 0.7, a, b), 3: c}).astype(
        object
    )
    data.iloc[:30, 1] = None
    fit = bbl.bbl("~ .", data, method="ml", missing="marginal")
    found = bbl.step(fit, k="bic")
    assert found.fit.formula == "~ `an a`*b + `3`"
    assert found.fit.bic == pytest.approx(found.path["BIC"].iloc[-1], rel=1e-10)
    assert bbl.bbl(found.fit.formula, data, method="ml", missing="marginal").bic == pytest.approx(
        found.fit.bic
    )


def test_terms_whose_tables_are_too_large_are_left_out(survey, monkeypatch):
    from bbl.engines.likelihood import engine, solve

    monkeypatch.setattr(engine, "MAX_STATES", 4)
    monkeypatch.setattr(solve, "MAX_CELLS", 20.0)
    fit = bbl.bbl("~ Class + Sex + Age + Answer", survey, "Freq", method="ml")
    with pytest.warns(bbl.DataWarning, match="models were skipped"):
        found = bbl.step(fit)
    assert len(found.path) > 1


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"method": "pseudo"}, bbl.errors.OptionError, "method='ml'"),
        ({"lambda_": 0.1}, bbl.errors.OptionError, "penalty or a prior count"),
        ({"calibrate": "offset"}, bbl.errors.OptionError, "calibrate='none'"),
    ],
)
def test_fits_without_a_maximum_are_refused(survey, arguments, error, match):
    with pytest.raises(error, match=match):
        bbl.step(bbl.bbl("Answer ~ Class + Sex", survey, "Freq", **{"method": "ml"} | arguments))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"direction": "up"}, bbl.errors.OptionError, "direction"),
        ({"k": "aic"}, bbl.errors.OptionError, "k='aic'|k must"),
        ({"k": -1}, bbl.errors.OptionError, "k"),
        ({"scope": "~ .^2"}, bbl.errors.BBLTypeError, "two formulas"),
        ({"scope": (1, 2)}, bbl.errors.BBLTypeError, "formula"),
        (
            {"scope": ("~ 1", "~ Class*Sex")},
            bbl.errors.OptionError,
            "the fit contains the term .*Hint: Use a larger model",
        ),
        (
            {"scope": ("~ .^3", "~ .^2")},
            bbl.errors.OptionError,
            "Hint: Add it to the largest model",
        ),
        (
            {"scope": ("~ .^3", "~ .^3")},
            bbl.errors.OptionError,
            "Hint: Use a formula with this term",
        ),
        ({"scope": ("~ 1", "Sex ~ .^3")}, bbl.errors.OptionError, "a predictor in the fit"),
        ({"scope": ("~ 1", "~ Klass*Sex")}, bbl.errors.FormulaError, "Klass"),
    ],
)
def test_bad_arguments_are_named(survey, arguments, error, match):
    fit = bbl.bbl("Answer ~ (Class + Sex + Age)^2", survey, "Freq", method="ml")
    with pytest.raises(error, match=match):
        bbl.step(fit, **arguments)


def test_other_objects_and_models_without_rows_are_refused(survey, tmp_path):
    with pytest.raises(bbl.errors.BBLTypeError, match="got str"):
        bbl.step("fit")
    bbl.bbl("~ Class*Sex", survey, "Freq", method="ml").save(tmp_path / "fit.bbl")
    with pytest.raises(bbl.errors.DataError, match="no training rows"):
        bbl.step(bbl.load(tmp_path / "fit.bbl"))
