"""`structural_zeros=` of exact fits: ways to give it, what all results make of it, files, and plain
refusals.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.capabilities import WITH_ZEROS
from bbl.errors import (
    BBLTypeError,
    DataError,
    FormulaError,
    LevelError,
    ModelFileError,
    OptionError,
)
from bbl.stats.metrics import log_probabilities
from bbl.storage import read_model, write_model

TITANIC = bbl.datasets.load_titanic()
CREW_CHILDREN = pd.DataFrame({"Class": ["Crew"], "Age": ["Child"]})
MARKED = TITANIC.assign(never=(TITANIC["Class"] == "Crew") & (TITANIC["Age"] == "Child"))
LEVELS = {name: sorted(TITANIC[name].unique()) for name in ("Class", "Sex", "Age")}
QUIET = {"method": "ml", "verbose": 0}
pytestmark = pytest.mark.filterwarnings("ignore::bbl.errors.DataWarning")


def fit(formula="~ Class*Sex + Age", data=TITANIC, zeros=CREW_CHILDREN, **options):
    return bbl.bbl(formula, data, "Freq", structural_zeros=zeros, **QUIET | options)


def cells(model, data=TITANIC):
    """Return the fitted counts of the rows of a table."""
    return model.nobs() * np.exp(model.score_samples(data).to_numpy())


def quasi_independence(counts, possible, rounds=5000):
    """Return fitted counts by iterative proportional fitting of the margins of cells that can
    occur.
    """
    m = possible.astype(float)
    for _ in range(rounds):
        m *= (counts.sum(axis=1) / m.sum(axis=1))[:, None]
        m *= counts.sum(axis=0) / m.sum(axis=0)
    return m


def test_quasi_independence_is_that_of_proportional_fitting():
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 60, (4, 4)).astype(float)
    np.fill_diagonal(counts, 0.0)
    table = pd.DataFrame(
        [(i, j, counts[i, j]) for i in range(4) for j in range(4)], columns=["a", "b", "n"]
    )
    diagonal = pd.DataFrame({"a": range(4), "b": range(4)})
    model = bbl.bbl("~ a + b", table, "n", structural_zeros=diagonal, **QUIET)
    expected = quasi_independence(counts, ~np.eye(4, dtype=bool)).ravel()
    np.testing.assert_allclose(model.cells()["fitted"], expected, rtol=1e-8)
    assert (model.goodness_of_fit()["df"] == 12 - 1 - 6).all()
    assert model.n_parameters == 6 and "-inf" not in repr(model)


def test_a_table_a_dict_and_marks_are_the_same_fit():
    model = fit()
    for zeros in ({"Age": ["Child"], "Class": ["Crew"]}, CREW_CHILDREN.assign(Sex="Male").iloc[:0]):
        other = fit(zeros=zeros)
        same = not isinstance(zeros, pd.DataFrame)
        assert (other.estimate.parameters.layout.support is not None) == same
        if same:
            np.testing.assert_array_equal(other.params, model.params)
    for formula in ("~ Class*Sex + Age", "~ . - Survived + Class:Sex"):
        marked = fit(formula, MARKED, "never")
        np.testing.assert_allclose(cells(marked), cells(model), rtol=1e-9)
        assert marked.goodness_of_fit()["df"].equals(model.goodness_of_fit()["df"])
        assert "never" not in marked.labels.names
    assert (
        "structural_zeros = 'never'" in marked.call and "structural_zeros = 'given'" in model.call
    )


def test_a_weight_is_the_same_as_repeating_the_row_whatever_the_order():
    raw = bbl.freq2raw(TITANIC, "Freq")
    model = fit()
    for rows in (raw, raw.sample(frac=1.0, random_state=1)):
        repeated = bbl.bbl("~ Class*Sex + Age", rows, structural_zeros=CREW_CHILDREN, **QUIET)
        np.testing.assert_array_equal(repeated.params, model.params)
    batches = [
        bbl.bbl("~ Class*Sex + Age", raw, structural_zeros=CREW_CHILDREN, n_jobs=n, **QUIET)
        for n in (1, 2)
    ]
    np.testing.assert_array_equal(batches[0].params, batches[1].params)


def test_the_reference_level_changes_no_probability():
    turned = {name: levels[::-1] for name, levels in LEVELS.items()}
    np.testing.assert_allclose(cells(fit(xlevels=turned)), cells(fit()), rtol=1e-8)


@pytest.mark.long
def test_zeros_of_single_groups_are_those_of_fits_to_their_rows():
    zeros = pd.DataFrame(
        {"Survived": ["Yes", "Yes"], "Class": ["Crew", "1st"], "Age": ["Child", "Child"]}
    )
    data = TITANIC[
        (TITANIC["Class"] != "1st") | (TITANIC["Age"] != "Child") | (TITANIC["Survived"] == "No")
    ]
    both = fit("Survived ~ Class + Sex*Age", data, zeros)
    for group, listed in (("Yes", zeros[["Class", "Age"]]), ("No", None)):
        rows = data[data["Survived"] == group]
        alone = fit("~ Class + Sex*Age", rows, listed, xlevels=LEVELS)
        assert both.log_z[group] == pytest.approx(alone.log_z["all"], rel=1e-12)
        frame = both.inference().table()
        assert len(frame) == 2 * len(alone.inference().table())
        own = frame[frame["group"] == group]
        for column in ("estimate", "se", "z"):
            np.testing.assert_allclose(
                own[column], alone.inference().table()[column], rtol=1e-7, atol=1e-9
            )
    predicted = both.predict(
        pd.DataFrame({"Class": ["1st"], "Sex": ["Male"], "Age": ["Child"]}), type="prob"
    )
    assert predicted["Yes"].tolist() == [0.0] and predicted["No"].tolist() == [1.0]
    assert np.isfinite(both.log_loss.loss) and both.evaluate().accuracy > 0.5
    draws = both.sample(3000, seed=1)
    is_zero = (
        (draws["Survived"] == "Yes")
        & draws["Class"].isin(["Crew", "1st"])
        & (draws["Age"] == "Child")
    )
    assert len(draws) == 3000 and not is_zero.any()
    assert both.estimate.parameters.pooled is not None and len(both.inference().table(of="pooled"))
    table = both.cells()
    is_zero = (
        (table["group"] == "Yes") & table["Class"].isin(["Crew", "1st"]) & (table["Age"] == "Child")
    )
    assert (table.loc[is_zero, "fitted"] == 0.0).all() and (
        table.loc[~is_zero, "fitted"] > 0.0
    ).all()


@pytest.mark.long
def test_no_test_takes_margins_for_odds_or_conditions_on_cells_that_cannot_occur():
    zeros = CREW_CHILDREN.assign(Survived="Yes")
    for zeros_of_groups in (zeros, CREW_CHILDREN):
        model = fit("Survived ~ Class + Sex + Age", zeros=zeros_of_groups)
        for of in ("pooled", ("No", "Yes")):
            frame = model.inference().table(of=of)
            joined = frame[frame["predictor"].isin(["Class", "Age"])]
            assert set(joined["test"]) == {"Wald"}
            if of != "pooled":
                np.testing.assert_allclose(
                    joined["z"], joined["estimate"] / joined["se"], rtol=1e-6
                )
        groups = model.inference().table()
        by_group = [groups.loc[groups["group"] == g, "se"].to_numpy() for g in ("No", "Yes")]
        np.testing.assert_allclose(frame["se"], np.hypot(*by_group), rtol=1e-6)


def test_probabilities_given_some_cells_are_shares_of_the_sums():
    model, states = (
        fit("~ Class*Sex + Age*Sex"),
        pd.DataFrame(
            [(c, s, a) for c in LEVELS["Class"] for s in LEVELS["Sex"] for a in LEVELS["Age"]],
            columns=["Class", "Sex", "Age"],
        ),
    )
    p = np.exp(model.score_samples(states))
    assert p.sum() == pytest.approx(1.0) and (p == 0.0).sum() == 2
    gaps = pd.DataFrame({"Class": ["Crew", None], "Sex": ["Male", None], "Age": [None, "Child"]})
    filled = model.reconstruct(gaps)
    assert filled["Age", "Adult"].tolist() == [1.0, 0.0]
    children = p[states["Age"] == "Child"]
    for name in ("Class", "Sex"):
        shares = children.groupby(states[name]).sum() / children.sum()
        for level, share in shares.items():
            assert filled[name, level].iloc[1] == pytest.approx(share, abs=1e-12)
    known = fit("~ Class*Sex + Age*Sex", TITANIC, missing="marginal").score_samples(gaps)
    np.testing.assert_allclose(
        np.exp(known),
        [p[(states["Class"] == "Crew") & (states["Sex"] == "Male")].sum(), children.sum()],
    )
    assert np.isfinite(model.pnll())


def test_predictions_of_cells_that_cannot_occur_are_refused_by_name():
    model = fit("Survived ~ Class*Sex + Age")
    with pytest.raises(
        DataError,
        match="row 1 of newdata .*its cell, .*Class=Crew, Age=Child.*Leave such",
    ):
        model.predict(
            {"Class": ["1st", "Crew"], "Sex": ["Male", "Male"], "Age": ["Adult", "Child"]}
        )
    with pytest.raises(DataError, match="row 0 of newdata cannot be predicted: its cell"):
        model.reconstruct({"Class": ["Crew"], "Sex": [None], "Age": ["Child"], "Survived": ["Yes"]})
    impossible = model.score_samples({"Class": ["Crew"], "Sex": ["Male"], "Age": ["Child"]})
    assert impossible.tolist() == [-np.inf]


def test_a_file_keeps_them(tmp_path):
    for formula, zeros in (
        ("~ Class*Sex + Age", CREW_CHILDREN),
        ("Survived ~ Class*Sex + Age", CREW_CHILDREN.assign(Survived="Yes")),
    ):
        model = fit(formula, zeros=zeros)
        model.save(tmp_path / "model.bbl", store_data=True)
        loaded = bbl.load(tmp_path / "model.bbl")
        assert loaded.estimate.parameters.layout == model.estimate.parameters.layout
        possible = TITANIC[~MARKED["never"]]
        np.testing.assert_array_equal(loaded.score_samples(possible), model.score_samples(possible))
        pd.testing.assert_frame_equal(loaded.sample(50, seed=2), model.sample(50, seed=2))
        pd.testing.assert_frame_equal(loaded.cells(), model.cells())


@pytest.mark.parametrize(
    "name, change",
    [
        ("zeros_scope", lambda scope: scope[::-1]),
        ("zeros_scope", lambda scope: scope + 5),
        ("zeros_scope", lambda scope: scope[:0]),
        ("zeros_possible", lambda possible: possible | True),
        ("zeros_possible", lambda possible: possible & False),
        ("zeros_possible", lambda possible: possible[:, :-1]),
        ("zeros_possible", lambda possible: np.repeat(possible, 3, axis=0)),
    ],
)
def test_a_file_with_other_zeros_is_refused(name, change, tmp_path):
    model = fit()
    model.save(tmp_path / "model.bbl")
    assert bbl.load(tmp_path / "model.bbl").estimate.parameters.layout.support is not None
    meta, arrays = read_model(tmp_path / "model.bbl", model._kind)
    changed = arrays | {name: np.ascontiguousarray(change(arrays[name]))}
    write_model(tmp_path / "changed.bbl", meta, changed, model._kind)
    with pytest.raises(ModelFileError, match="zeros"):
        bbl.load(tmp_path / "changed.bbl")


def test_steps_tests_cross_validation_and_bootstraps_know_them():
    model = fit("~ Class*Sex + Age*Sex + Survived")
    chosen = bbl.step(model, k="bic", verbose=0).fit
    assert chosen.estimate.parameters.layout.support == model.estimate.parameters.layout.support
    again = fit(chosen.formula)
    assert chosen.logLik() == pytest.approx(again.logLik(), rel=1e-10)
    small, large = fit("~ Class + Sex + Age"), fit("~ Class*Sex + Age")
    row = bbl.anova(small, large).iloc[1]
    assert row["ratio"] == pytest.approx(2.0 * (large.logLik() - small.logLik())) and row["df"] == 3
    other = bbl.bbl("~ Class + Sex + Age", TITANIC, "Freq", **QUIET)
    assert "different structural zeros" in bbl.anova(other, large).iloc[1]["test"]
    raw = bbl.freq2raw(TITANIC, "Freq")
    for formula, score in (
        ("~ Class + Sex + Age", "logloss"),
        ("Survived ~ Class + Sex + Age", None),
    ):
        validated = bbl.crossVal(
            formula,
            raw,
            structural_zeros=CREW_CHILDREN,
            nfold=3,
            shuffle=True,
            seed=1,
            score=score,
            **QUIET,
        )
        assert np.isfinite(validated.maxscore)
        assert validated.model.estimate.parameters.layout.support is not None
    boot = large.bootstrap(5, seed=1)
    assert len(boot)
    assert large.goodness_of_fit(bootstrap=20)["p_bootstrap"].between(0.0, 1.0).all()
    penalised = fit(lambda_="cv")
    assert penalised.tuning is not None and penalised.estimate.parameters.layout.support is not None


def test_explanations_add_up_to_the_scores():
    model = fit("Survived ~ Class*Sex + Age")
    rows = TITANIC[~MARKED["never"]].head(6)
    explained = model.explain(rows)
    assert np.isfinite(explained.frame.select_dtypes("number").to_numpy()).all()
    assert len(model.importance(rows, "Freq").frame) == 3


@pytest.mark.parametrize(
    "zeros, error, text",
    [
        ("nowhere", DataError, "'nowhere' is no.*column of the data"),
        (7.5, BBLTypeError, "must be a table of combinations, or the name of a column"),
        ({"Klass": ["Crew"]}, DataError, "has the column 'Klass', which is not in the formula"),
        ({"Class": ["Stowaway"]}, LevelError, "'Stowaway'.*Leave these rows out"),
        ({"Class": [None]}, DataError, "column 'Class' is missing in row 0"),
        (
            {"Class": ["1st", "Crew"]},
            DataError,
            "Class=1st cannot occur, but the data.*such rows",
        ),
        ("Survived", DataError, "column 'Survived'.*with True or 1"),
    ],
)
def test_wrong_zeros_are_named(zeros, error, text):
    with pytest.raises(error, match=text):
        fit(zeros=zeros)


def test_what_leaves_nothing_or_names_a_group_is_refused():
    every = pd.DataFrame({"Class": LEVELS["Class"]})
    with pytest.raises(OptionError, match="exclude every combination"):
        fit(zeros=every)
    with pytest.raises(DataError, match="no predictor columns"):
        fit("Survived ~ Class", zeros={"Survived": ["Yes"]})
    with pytest.raises(DataError, match="Class=Crew, Age=Adult, of group Yes cannot occur"):
        fit(
            "Survived ~ Class + Age",
            zeros={"Survived": ["Yes"], "Class": ["Crew"], "Age": ["Adult"]},
        )
    with pytest.raises(
        FormulaError, match="'never' contains the marks of structural zeros and is also a predictor"
    ):
        fit("~ Class + never", MARKED, "never")
    with pytest.raises(DataError, match="the data.*such rows"):
        bbl.bbl("~ Class + Age + Sex", MARKED, structural_zeros="never", **QUIET)


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive", "conditional", "auto"])
def test_other_methods_refuse_them_and_the_advice_works(method):
    with pytest.raises(
        OptionError,
        match=f"method='{method}' assumes that every .*Choose method='ml', or omit",
    ):
        bbl.bbl(
            "Survived ~ Class + Age",
            TITANIC,
            "Freq",
            method,
            structural_zeros=CREW_CHILDREN,
            verbose=0,
        )


def test_each_declared_refusal_is_one(tmp_path):
    model = fit("Survived ~ Class*Sex + Age", zeros=CREW_CHILDREN.assign(Survived="Yes"))
    gaps = {"Class": ["Crew"], "Sex": [None], "Age": ["Adult"], "Survived": ["Yes"]}
    TITANIC.to_parquet(tmp_path / "titanic.parquet")
    ordered = TITANIC.assign(Class=pd.Categorical(TITANIC["Class"], ordered=True))
    calls = {
        "data read in batches": lambda: fit(data=str(tmp_path / "titanic.parquet")),
        "a choice of `log_z`": lambda: fit(log_z="pseudo"),
        "`mcSample`": lambda: bbl.mcSample(model, 10, verbose=0),
        '`ordered="linear"`': lambda: fit(data=ordered, ordered="linear"),
        "`explain()`": lambda: model.explain(TITANIC.head(2)),
        '`reconstruct(method="gibbs")` and `"mf"`': lambda: model.reconstruct(gaps, method="gibbs"),
    }
    assert list(calls) == list(WITH_ZEROS)
    for name, call in calls.items():
        with pytest.raises(OptionError, match=WITH_ZEROS[name][:40]):
            call()
    assert fit(log_z="exact").log_z.equals(fit().log_z)
    assert len(model.reconstruct(gaps, method="exact")) == 1


def test_a_row_that_cannot_occur_in_the_groups_of_a_fold_has_no_probability():
    """Its only group is left out with it, and the other one cannot have its level."""
    data = pd.DataFrame({"y": ["v0", "v1", "v1"], "x": ["q", "p", "p"]})
    zeros = {"x": ["p", "q"], "y": ["v0", "v1"]}
    with pytest.warns((bbl.ConvergenceWarning, bbl.DataWarning)):
        model = bbl.bbl("y ~ x", data, calibrate="offset", structural_zeros=zeros, **QUIET)
    assert np.isfinite(model.log_loss.loss)  # probabilities of 0 are raised a little
    assert log_probabilities(np.full((1, 2), -np.inf)).tolist() == [[-np.inf, -np.inf]]
