"""Effects on the scale of probabilities: references, closed forms, laws, and what is refused."""

import json

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import rlogistic

import bbl
from bbl.errors import BBLTypeError, DataError, OptionError

TITANIC = bbl.datasets.load_titanic()
TRANSFORMS = {"difference": "difference", "ratio": "ratio", "ln_odds_ratio": "lnoddsratio"}
TEXTS = {"difference": "{} - {}", "ratio": "{} / {}", "ln_odds_ratio": "ln(odds({}) / odds({}))"}
NUMBERS = ["estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high"]


def fit(
    formula="Survived ~ Class * Sex + Age", method="ml", data=TITANIC, weights="Freq", **options
):
    return bbl.bbl(formula, data, weights, method=method, verbose=0, **options)


def pairs(rows, high, low):
    return list(dict.fromkeys((row[high], row[low]) for row in rows))


def asked(model, analysis):
    """Return the frame of an analysis of the references; None if it is of another kind."""
    options = {"by": analysis.get("by"), "grid": analysis.get("newdata")}
    kind, rows = analysis["type"], analysis["result"]["rows"]
    if kind == "avg_predictions":
        return model.avg_predictions(variables=analysis.get("variable"), **options).frame
    if kind == "avg_comparisons" and analysis["comparison"] in TRANSFORMS:
        transform = TRANSFORMS[analysis["comparison"]]
        return model.avg_comparisons(
            analysis["variable"], analysis["contrast"], transform, **options
        ).frame
    if kind == "diff_in_diff":
        variables = {analysis["variable"]: pairs(rows, "v_hi", "v_lo")}
        variables[analysis["by_counterfactual"]] = pairs(rows, "u_hi", "u_lo")
        return model.avg_comparisons(variables, cross=True, **options).frame
    return None


def contrast_of(analysis, row):
    """Return the text of the column ``contrast`` for a row of the references."""
    if analysis["type"] == "avg_predictions":
        return "".join(value for name, value in row.items() if name.startswith("set_"))
    text = TEXTS[analysis.get("comparison", "difference")]
    if "hi" in row:
        return text.format(row["hi"], row["lo"])
    return f"{text.format(row['v_hi'], row['v_lo'])}, {text.format(row['u_hi'], row['u_lo'])}"


@pytest.mark.parametrize("name", rlogistic.names())
@pytest.mark.thinned(3)
def test_effects_of_regressions_are_those_of_the_references(name):
    case = rlogistic.read(name)
    model = case.fit()
    stored = json.loads((rlogistic.folder() / f"{name}.json").read_text(encoding="utf-8"))
    n_compared = 0
    for analysis in stored["analyses"]:
        frame = asked(model, analysis)
        if frame is None:
            continue
        by, result = analysis.get("by") or [], analysis["result"]
        keys = frame.assign(group=frame["group"].astype(str)).set_index(["group", "contrast", *by])[
            NUMBERS
        ]
        assert keys.index.is_unique
        for k, row in enumerate(result["rows"]):
            key = (
                row.get("class", case.classes[-1]),
                contrast_of(analysis, row),
                *(row[b] for b in by),
            )
            found = keys.loc[key]
            assert found["estimate"] == pytest.approx(result["estimate"][k], abs=1e-9)
            assert found["std_error"] == pytest.approx(result["se"][k], rel=1e-7)
            assert found["conf_low"] == pytest.approx(result["lower"][k], abs=1e-8)
            assert found["conf_high"] == pytest.approx(result["upper"][k], abs=1e-8)
            assert found["p_value"] == pytest.approx(result["p"][k], rel=1e-6, abs=1e-300)
            n_compared += 1
    assert n_compared >= 20


def test_a_saturated_model_has_the_shares_of_cells():
    frame = fit("Survived ~ Sex * Age").avg_predictions(by=["Sex", "Age"]).frame
    cells = TITANIC.groupby(["Sex", "Age", "Survived"], observed=True)["Freq"].sum()
    n = cells.groupby(level=["Sex", "Age"], observed=True).transform("sum")
    share = (cells / n).rename_axis(index={"Survived": "group"})
    error = np.sqrt(share * (1 - share) / n.to_numpy())
    found = frame.set_index(["Sex", "Age", "group"])
    np.testing.assert_allclose(found["estimate"], share.reindex(found.index), rtol=1e-10)
    np.testing.assert_allclose(found["std_error"], error.reindex(found.index), rtol=1e-8)


def test_naive_bayes_of_one_predictor_has_the_shares_of_cells():
    frame = fit("Survived ~ Class", "naive", prior_count=0.0).avg_predictions(by="Class").frame
    cells = TITANIC.groupby(["Class", "Survived"], observed=True)["Freq"].sum().unstack()
    share = cells["Yes"] / cells.sum(axis=1)
    found = frame[frame["group"] == "Yes"].set_index("Class")
    np.testing.assert_allclose(found["estimate"], share.reindex(found.index), rtol=1e-10)
    np.testing.assert_allclose(
        found["std_error"],
        np.sqrt(share * (1 - share) / cells.sum(axis=1)).reindex(found.index),
        rtol=1e-8,
    )


@pytest.mark.parametrize("method", ["ml", "pseudo", "naive", "conditional"])
@pytest.mark.parametrize("options", [{}, {"priors": "equal"}])
@pytest.mark.thinned(3)
def test_weights_are_repeated_rows(method, options):
    repeated = (
        TITANIC.loc[TITANIC.index.repeat(TITANIC["Freq"])]
        .drop(columns="Freq")
        .sample(frac=1.0, random_state=1)
    )
    one = fit(method=method, **options).avg_comparisons(by="Sex").frame
    other = (
        fit(method=method, data=repeated, weights=None, **options).avg_comparisons(by="Sex").frame
    )
    pd.testing.assert_frame_equal(
        one.sort_values(["group", "contrast", "Sex"], ignore_index=True),
        other.sort_values(["group", "contrast", "Sex"], ignore_index=True),
        rtol=1e-7,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"priors": {"No": 0.9, "Yes": 0.1}},
        {"calibrate": "offset"},
        {"calibrate": "temperature"},
    ],
)
@pytest.mark.parametrize("method", ["ml", "pseudo", "mf", "conditional"])
@pytest.mark.thinned(3)
def test_predictions_are_those_of_predict(method, options):
    model = fit(method=method, **options)
    frame = model.predictions(TITANIC.head(8)).frame
    found = frame["estimate"].to_numpy().reshape(8, 2)
    np.testing.assert_allclose(
        found, model.predict(TITANIC.head(8), type="prob")[["No", "Yes"]], rtol=1e-12
    )
    has_errors = method != "mf" and options.get("calibrate") != "temperature"
    assert np.isfinite(frame["std_error"]).all() == has_errors


@pytest.mark.parametrize("options", [{}, {"calibrate": "offset"}, {"priors": "equal"}])
def test_missing_cells_are_summed_out(options):
    rng = np.random.default_rng(2)
    rows = TITANIC.loc[TITANIC.index.repeat(TITANIC["Freq"])].drop(columns="Freq").astype(object)
    for name in ("Class", "Sex", "Age"):
        rows.loc[rng.random(len(rows)) < 0.1, name] = None
    model = fit(
        "Survived ~ Class * Sex + Age", data=rows, weights=None, missing="marginal", **options
    )
    mean = model.predict(type="prob")[["No", "Yes"]].mean()
    frame = model.avg_predictions().frame
    np.testing.assert_allclose(frame["estimate"], mean, rtol=1e-12)
    assert (frame["std_error"] > 0.0).all() and (frame["std_error"] < 0.05).all()
    frame = model.avg_comparisons("Sex").frame
    assert (frame["std_error"] > 0.0).all() and set(frame["note"]) == {""}


def test_an_estimated_temperature_leaves_effects_without_errors():
    """Its uncertainty is missing from them: they had .53 to .87 of the true spread."""
    model = fit(method="ml", calibrate="temperature")
    effects = model.avg_comparisons("Sex")
    assert effects.frame["std_error"].isna().all()
    assert "estimated factor" in effects.note
    with pytest.raises(OptionError, match="estimated factor.*Hint: Fit with calibrate='none'"):
        model.avg_comparisons("Sex", se="bootstrap", nboot=2)
    for remedy in ("none", "offset"):
        followed = fit(method="ml", calibrate=remedy).avg_comparisons("Sex").frame
        assert (followed["std_error"] > 0.0).all()


def test_predictors_in_the_columns_of_the_frame_keep_their_names():
    data = TITANIC.rename(columns={"Sex": "estimate", "Age": "group", "Class": "row"})
    effects = fit("Survived ~ row + estimate + group", data=data).avg_comparisons(
        "row", by=["estimate", "group"]
    )
    frame = effects.frame
    assert list(frame.columns[:5]) == ["group_", "term", "contrast", "estimate", "group"]
    assert frame["estimate"].isin(["Male", "Female"]).all() and (frame["estimate_"].abs() < 1).all()
    assert frame.columns.is_unique and effects.columns["group"] == "group_"
    assert "estimate=Male" in str(effects)
    effects.plot()
    mpl.pyplot.close("all")


def test_levels_may_be_any_sequence():
    data = pd.DataFrame({"y": ["a", "b", "b", "a"] * 5, "x": [1, 2, 3, 2] * 5})
    model = bbl.bbl("y ~ x", data, method="ml", prior_count=1.0)
    expected = model.avg_predictions(grid={"x": [1, 2]}).frame
    for levels in (pd.Series([1, 2]), pd.Index([1, 2]), range(1, 3), np.array([1, 2])):
        pd.testing.assert_frame_equal(model.avg_predictions(grid={"x": levels}).frame, expected)


def test_whole_numbers_stay_so_beside_a_missing_value():
    data = pd.DataFrame({"y": ["a", "b"] * 20, "x": pd.array([1, 2, 1, None] * 10, dtype="Int64")})
    frame = (
        bbl.bbl("y ~ x", data, method="ml", missing="marginal", prior_count=1.0)
        .avg_predictions(by="x")
        .frame
    )
    assert list(map(repr, frame["x"])) == ["1", "1", "2", "2", "None", "None"]


def test_a_column_of_the_name_row_is_no_number_of_a_row():
    data = pd.DataFrame({"y": ["a", "b", "b", "a"] * 5, "row": ["p", "q"] * 10})
    model = bbl.bbl("y ~ row", data, method="ml", prior_count=1.0)
    assert model.avg_predictions(by="row").title == "Probability, averaged over training rows"
    assert model.predictions().title == "Probability, training rows"


def test_small_p_values_are_printed():
    effects = fit("Survived ~ Sex + Age").avg_comparisons("Sex")
    assert 0.0 < effects.frame["p_value"].max() < 1e-5
    (line,) = (line for line in str(effects).splitlines() if line.startswith("Sex: Male - Female"))
    printed = float(line.split()[-3])  # before both limits
    assert printed == pytest.approx(effects.frame["p_value"].iloc[-1], rel=5e-3)


def test_groups_contrasts_and_transforms_agree():
    model = fit()
    p = model.avg_predictions(variables="Sex").frame.set_index(["contrast", "group"])["estimate"]
    for transform, value in {
        "difference": p["Male"] - p["Female"],
        "ratio": p["Male"] / p["Female"],
        "lift": (p["Male"] - p["Female"]) / p["Female"],
        "lnoddsratio": np.log(p["Male"] / (1 - p["Male"]))
        - np.log(p["Female"] / (1 - p["Female"])),
    }.items():
        found = model.avg_comparisons("Sex", ("Male", "Female"), transform).frame.set_index(
            "group"
        )["estimate"]
        np.testing.assert_allclose(found, value, rtol=1e-12)
    several = model.avg_comparisons({"Class": "sequential", "Age": ("Adult", "Child")}).frame
    assert several["contrast"].unique().tolist() == [
        "2nd - 1st",
        "3rd - 2nd",
        "Crew - 3rd",
        "Adult - Child",
    ]
    crossed = model.avg_comparisons(
        {"Sex": ("Male", "Female"), "Age": ("Adult", "Child")}, cross=True
    ).frame
    means = (
        model.avg_predictions(variables=["Sex", "Age"])
        .frame.query("group == 'Yes'")
        .set_index("contrast")
    )
    p = means["estimate"]
    expected = p["Male, Adult"] - p["Male, Child"] - p["Female, Adult"] + p["Female, Child"]
    assert crossed.query("group == 'Yes'")["estimate"].item() == pytest.approx(expected)


def test_grids_are_made():
    model = fit()
    assert model.avg_predictions(grid="mode").frame["estimate"].tolist() == pytest.approx(
        model.predict({"Class": ["Crew"], "Sex": ["Male"], "Age": ["Adult"]}, type="prob")
        .iloc[0, :2]
        .tolist()
    )
    rows = model.predictions(grid={"Class": ["1st", "Crew"], "Sex": "Female"}).frame
    assert len(rows) == 4
    balanced = model.avg_comparisons("Sex", by="Class", grid="balanced").frame
    assert len(balanced) == 8
    by_column = model.avg_predictions(by="Freq", newdata=TITANIC.head(3), weights=np.ones(3)).frame
    assert by_column["Freq"].tolist() == sorted(TITANIC.head(3)["Freq"].unique().repeat(2))


@pytest.mark.filterwarnings("ignore::bbl.ConvergenceWarning")  # of short chains
def test_posterior_draws_and_refits_have_intervals_around_the_estimate():
    model = fit("Survived ~ Sex + Age", "bayes", chains=2, warmup=100, draws=100, seed=1)
    exact = fit("Survived ~ Sex + Age").avg_comparisons().frame
    for effects in (
        model.avg_comparisons(),
        fit("Survived ~ Sex + Age", "mf").avg_comparisons(
            se="bootstrap", nboot=60, verbose=0, n_jobs=2
        ),
        bbl.networks.bnc(
            "tan_cl", "Survived ~ Sex + Age", TITANIC, 1.0, weights="Freq"
        ).avg_comparisons(se="bootstrap", nboot=60, verbose=0),
    ):
        frame = effects.frame.set_index(["group", "term"])
        contrast = effects.frame["contrast"].to_numpy()
        sign = np.where(contrast == exact["contrast"].to_numpy(), 1.0, -1.0)
        np.testing.assert_allclose(sign * frame["estimate"], exact["estimate"], atol=0.08)
        np.testing.assert_allclose(frame["std_error"], exact["std_error"], rtol=0.45)
        assert (
            (frame["conf_low"] < frame["estimate"]) & (frame["estimate"] < frame["conf_high"])
        ).all()
    assert model.avg_comparisons().frame["p_value"].isna().all()


def test_tables_of_networks_are_drawn_from_their_posteriors():
    """Of naive Bayes with one feature, shares of cells are ratios of Dirichlet draws."""
    model = bbl.networks.bnc("nb", "Survived ~ Class", TITANIC, 1.0, weights="Freq")
    effects = model.avg_predictions(by="Class", se="bootstrap", nboot=1500, verbose=0, n_jobs=1)
    frame = effects.frame.query("group == 'Yes'").set_index("Class")
    n = TITANIC.groupby(["Class", "Survived"], observed=True)["Freq"].sum().unstack()
    share = n["Yes"] / n.sum(axis=1)
    expected = np.sqrt(share * (1 - share) / n.sum(axis=1)).reindex(frame.index)
    np.testing.assert_allclose(frame["std_error"], expected, rtol=0.08)
    assert "1500 Dirichlet draws of the tables" in effects.note
    weighted = bbl.networks.bnc("nb", "Survived ~ .", TITANIC, 1.0, weights="Freq", manb_prior=0.5)
    assert "5 refits to rows" in weighted.avg_predictions(se="bootstrap", nboot=5, verbose=0).note
    equal = model.with_priors("equal").avg_predictions(
        se="bootstrap", nboot=20, verbose=0, n_jobs=1
    )
    assert equal.frame["std_error"].between(1e-4, 0.05).all()


def test_an_average_is_refitted_member_by_member():
    model = fit("Survived ~ Sex + Age", "auto")
    assert "se='bootstrap'" in model.avg_comparisons("Sex").note
    frame = model.avg_comparisons("Sex", se="bootstrap", nboot=10, verbose=0).frame
    assert (frame["std_error"] > 0.005).all()


def test_refits_do_not_depend_on_threads():
    model = fit("Survived ~ Sex + Age", "mf")
    one, two = (
        model.avg_comparisons("Sex", se="bootstrap", nboot=6, n_jobs=n, seed=3, verbose=0)
        for n in (1, 2)
    )
    pd.testing.assert_frame_equal(one.frame, two.frame, check_exact=True)


def test_what_has_no_interval_says_why():
    data = pd.DataFrame(
        {"y": [0, 0, 1, 1, 0, 1, 1, 1], "a": list("ababccbc"), "n": [30, 20, 25, 15, 40, 10, 9, 0]}
    )
    data = pd.concat([data, pd.DataFrame({"y": [0], "a": ["d"], "n": [12]})])
    with pytest.warns(bbl.ConvergenceWarning, match="never occurs"):
        model = bbl.bbl("y ~ a", data, "n", method="ml", verbose=0)
    frame = model.avg_comparisons("a").frame.set_index(["contrast", "group"])
    assert np.isfinite(frame["estimate"]).all()
    assert frame.loc[("d - a", 1), "note"] != "" and frame.loc[("b - a", 1), "note"] == ""
    ratio = model.avg_comparisons({"a": ("a", "d")}, transform="ratio").frame.set_index("group")
    assert "undefined" in ratio.loc[1, "note"] or np.isnan(ratio.loc[1, "std_error"])
    with pytest.warns(bbl.ConvergenceWarning, match="never occurs"):
        naive = bbl.bbl("y ~ a", data, "n", method="naive", prior_count=0.0, verbose=0)
    assert naive.avg_comparisons("a").frame["note"].ne("").all()
    mean_field = fit(method="mf").avg_comparisons("Sex")
    assert mean_field.frame["std_error"].isna().all() and "No standard errors" in mean_field.note
    assert "se=False" in fit().avg_comparisons("Sex", se=False).note


def test_loaded_models_answer_alike_and_ask_for_rows(tmp_path):
    model = fit()
    model.save(tmp_path / "rows.bbl", store_data=True)
    model.save(tmp_path / "plain.bbl")
    with_rows, plain = bbl.load(tmp_path / "rows.bbl"), bbl.load(tmp_path / "plain.bbl")
    pd.testing.assert_frame_equal(
        with_rows.avg_comparisons().frame, model.avg_comparisons().frame, check_exact=True
    )
    with pytest.raises(DataError, match="newdata= or grid="):
        plain.avg_comparisons()
    effects = plain.avg_comparisons("Sex", newdata=TITANIC, weights="Freq")
    assert "saved without" in effects.note
    np.testing.assert_allclose(
        effects.frame["estimate"], model.avg_comparisons("Sex").frame["estimate"]
    )
    assert len(plain.predictions(grid="mode").frame) == 2


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: m.avg_comparisons("Sxe"), OptionError, "Did you mean 'Sex'"),
        (lambda m: m.avg_comparisons(["Sex", "Sex"]), OptionError, "duplicate"),
        (lambda m: m.avg_comparisons({"Sex": ("Male", "Mle")}), OptionError, "'Mle' is no.*level"),
        (lambda m: m.avg_comparisons({"Sex": ("Male", "Male")}), OptionError, "with itself"),
        (lambda m: m.avg_comparisons("Sex", 3), BBLTypeError, "pair"),
        (lambda m: m.avg_comparisons("Sex", transform="odds"), OptionError, "transform"),
        (lambda m: m.avg_comparisons("Sex", cross=True), OptionError, "two predictors"),
        (lambda m: m.avg_comparisons("Sex", by="Freq"), OptionError, "columns of newdata"),
        (lambda m: m.avg_comparisons("Sex", by=["Sex", "Sex"]), OptionError, "duplicate"),
        (lambda m: m.avg_comparisons(by=3), BBLTypeError, "name or a list"),
        (
            lambda m: m.avg_comparisons(newdata=TITANIC, grid="mode"),
            OptionError,
            "cannot be combined",
        ),
        (lambda m: m.avg_comparisons(weights="Freq"), OptionError, "newdata"),
        (lambda m: m.avg_predictions(grid=3), BBLTypeError, "balanced"),
        (lambda m: m.avg_predictions(grid="all"), OptionError, "grid"),
        (lambda m: m.avg_predictions([]), OptionError, ""),
        (lambda m: m.avg_predictions(se=True), BBLTypeError, "se must be"),
        (lambda m: m.avg_predictions(level=1.0), OptionError, "level"),
        (lambda m: m.avg_predictions(variables=[]), OptionError, "empty"),
        (lambda m: m.avg_predictions(variables={"Sex": []}), OptionError, "no levels of 'Sex'"),
        (lambda m: m.avg_predictions(grid={"Sex": []}), OptionError, "no levels of 'Sex'"),
        (
            lambda m: m.avg_predictions(by="Age", grid={"Sex": []}),
            OptionError,
            "no levels of 'Sex'",
        ),
        (lambda m: m.predictions(grid={"Sex": []}), OptionError, "no levels of 'Sex'"),
        (lambda m: m.avg_comparisons({"Sex": []}), BBLTypeError, "pair"),
    ],
)
def test_refusals_name_the_argument(call, error, text):
    if text:
        with pytest.raises(error, match=text):
            call(fit("Survived ~ Sex + Age"))
    else:
        assert len(call(fit("Survived ~ Sex + Age")).frame) == 2


def test_a_shooter_has_no_errors_and_says_so():
    model = bbl.shooter("Survived ~ .", TITANIC, weights="Freq", lambda_=60.0)
    effects = model.avg_comparisons("Sex")
    assert effects.frame["std_error"].isna().all() and "se=False" in effects.note
    with pytest.raises(OptionError, match="se=False"):
        model.avg_comparisons("Sex", se="bootstrap")
    assert "no standard errors" not in model.avg_comparisons("Sex", se=False).note


def test_figures_have_a_panel_for_each_group():
    model = fit("Class ~ Sex + Age", "naive")
    effects = model.avg_comparisons()
    assert len(effects.plot()) == 4 and len(effects.plot(groups=["1st"])) == 1
    assert (
        len(fit().avg_comparisons().plot()) == 1
        and len(fit().avg_predictions(by="Sex").plot()) == 2
    )
    axes = mpl.pyplot.subplots(1, 4)[1]
    assert effects.plot(axes=axes, top=1) == list(axes)
    mpl.pyplot.close("all")
    assert "<table>" in effects.as_html() and "tabular" in effects.as_latex()


def test_a_fit_without_any_interval_says_why():
    data = pd.DataFrame({"y": list("aabbabba"), "x": list("pqpqpqqp"), "u": list("ststtsst")})
    data = pd.concat([data, pd.DataFrame({"y": ["c"], "x": ["p"], "u": ["s"]})], ignore_index=True)
    model = bbl.bbl("y ~ x*u", data, method="conditional", ridge=0.01, novarOk=True, verbose=0)
    effects = model.avg_comparisons("x")
    assert effects.frame["std_error"].isna().all() and effects.frame["estimate"].notna().all()
    assert effects.frame["note"].str.contains("not estimable").all()
