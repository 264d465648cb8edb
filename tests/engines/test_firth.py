"""Firth's penalty of conditional likelihood: closed forms, numerical maxima, profiles, and every
verb under separation.
"""

import numpy as np
import pandas as pd
import pytest
import reference
from scipy.optimize import minimize
from scipy.stats import chi2

import bbl
from bbl.__main__ import main
from bbl.errors import ConvergenceWarning, OptionError

pytestmark = pytest.mark.filterwarnings("error")
SEPARATED = pd.DataFrame(
    [("m", "x", 7), ("m", "z", 5), ("w", "x", 9), ("w", "z", 0)], columns=["y", "a", "n"]
)


def fit(formula, data, weights=None, **options):
    options = {"method": "conditional", "ridge": "firth", "verbose": 0} | options
    return bbl.bbl(formula, data, weights, **options)


def rows_of(n=60, seed=0, K=3):
    rng = np.random.default_rng(seed)
    names = ["u", "v", "w"][:K]
    data = {"a": rng.choice(list("pqr"), n), "b": rng.choice(list("st"), n)}
    return pd.DataFrame(data | {"y": rng.choice(names, n)})


def design_of(data, interaction):
    A = np.column_stack([data["a"] == level for level in "qr"]).astype(float)
    B = (data["b"] == "t").to_numpy(float)[:, None]
    columns = [np.ones((len(data), 1)), A, B, A * B]
    return np.column_stack(columns[: 3 + interaction])


def maximum(Z, Y, held=None):
    """Return the maximum of the penalised likelihood over coefficients that are not `held`."""
    shape = (Y.shape[1] - 1, Z.shape[1])
    held = np.full(shape, np.nan) if held is None else held
    free = np.isnan(held)

    def whole(theta):
        out = held.copy()
        out[free] = theta
        return out

    def loss(theta):
        return -reference.firth_log_likelihood(whole(theta), Z, Y)

    found = minimize(loss, np.zeros(int(free.sum())), method="BFGS", options={"gtol": 1e-6})
    return -found.fun, whole(found.x)


def coefficients(model):
    return model._inference._joint_tests.influence.coefficients[1:]


@pytest.mark.parametrize("counts", [(7, 5, 9, 0), (12, 3, 4, 8), (0, 6, 5, 0), (1, 0, 0, 1)])
def test_of_two_by_two_tables_it_adds_half_to_each_cell(counts):
    data = SEPARATED.assign(n=counts)
    model = fit("y ~ a", data, "n")
    m_x, m_z, w_x, w_z = np.array(counts) + 0.5
    table = model.inference().table(of=("w", "m"))
    assert table["estimate"].item() == pytest.approx(np.log(w_z * m_x / (w_x * m_z)), abs=1e-9)
    assert model.converged and model.n_parameters == 2
    # information of each row: its weight times p (1 - p)
    x, z = (1 / (n * p * (1 - p)) for n, p in ((m_x + w_x - 1, w_x / (m_x + w_x)),
                                             (m_z + w_z - 1, w_z / (m_z + w_z))))  # fmt: skip
    assert table["se"].item() == pytest.approx(np.sqrt(x + z), rel=1e-8)
    p = model.predict(pd.DataFrame({"a": ["x", "z"]}), type="prob")["w"]
    np.testing.assert_allclose(p, [w_x / (m_x + w_x), w_z / (m_z + w_z)], rtol=1e-9)


def test_of_saturated_tables_of_more_groups_it_adds_half_to_each_cell():
    counts = np.array([[5, 0, 3], [0, 0, 4], [2, 7, 0]])
    data = pd.DataFrame(
        [(y, a, counts[i, j]) for i, a in enumerate("pqr") for j, y in enumerate("uvw")],
        columns=["y", "a", "n"],
    )
    model = fit("y ~ a", data, "n")
    p = model.predict(pd.DataFrame({"a": list("pqr")}), type="prob")[list("uvw")]
    expected = (counts + 0.5) / (counts + 0.5).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(p, expected, rtol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("interaction", [False, True])
@pytest.mark.parametrize("separated", [False, True])
@pytest.mark.thinned(4)
def test_maximum(K, interaction, separated):
    data = rows_of(K=K, n=40)
    if separated:
        data = data[~((data["a"] == "r") & (data["y"] == "v"))]
    model = fit("y ~ a * b" if interaction else "y ~ a + b", data)
    Y = np.column_stack([data["y"] == g for g in "uvw"[:K]]).astype(float)
    value, expected = maximum(design_of(data, interaction), Y)
    np.testing.assert_allclose(coefficients(model), expected, atol=2e-5)
    found = reference.firth_log_likelihood(coefficients(model), design_of(data, interaction), Y)
    assert found >= value - 1e-10
    assert model.converged and np.isfinite(model.inference().table()["se"].dropna()).all()


@pytest.mark.long
def test_profile_limits_are_where_the_test_rejects():
    data = rows_of(K=3, n=40)
    data = data[~((data["a"] == "r") & (data["y"] == "v"))]
    model = fit("y ~ a + b", data)
    Z, Y = design_of(data, False), np.column_stack([data["y"] == g for g in "uvw"]).astype(float)
    best, estimate = maximum(Z, Y)

    def loss(value):
        held = np.full((2, 4), np.nan)
        held[0, 2] = value  # of a = r in v
        return 2 * (best - maximum(Z, Y, held)[0])

    table = model.inference().profile(level=0.9).set_index(["group", "predictor", "level"])
    row = table.loc[("v", "a", "r")]
    quantile = chi2.ppf(0.9, 1)
    assert row["lower"] < estimate[0, 2] < row["upper"]
    assert [loss(row[side]) for side in ("lower", "upper")] == pytest.approx(
        [quantile] * 2, abs=1e-5
    )
    assert row["chisq"] == pytest.approx(loss(0.0), abs=1e-5)
    assert row["p"] == pytest.approx(chi2.sf(loss(0.0), 1), abs=1e-5)
    # between two other groups, either way round
    one, two = (model.inference().profile(of=of) for of in (("v", "w"), ("w", "v")))
    np.testing.assert_allclose(one["lower"], -two["upper"], rtol=1e-6)
    np.testing.assert_allclose(one["chisq"], two["chisq"], rtol=1e-6, atol=1e-9)


@pytest.mark.long
def test_nested_fits_have_the_penalised_likelihood_ratio():
    data = rows_of(K=3, n=40)
    Z, Y = design_of(data, True), np.column_stack([data["y"] == g for g in "uvw"]).astype(float)
    held = np.full((2, 6), np.nan)
    held[:, 4:] = 0.0
    expected = 2 * (maximum(Z, Y)[0] - maximum(Z, Y, held)[0])
    table = bbl.anova([fit("y ~ a + b", data), fit("y ~ a * b", data)])
    row = table.iloc[1]
    assert row["ratio"] == pytest.approx(expected, abs=1e-5)
    assert row["df"] == 4 and row["test"] == "penalised likelihood ratio"
    assert row["p"] == pytest.approx(chi2.sf(expected, 4), abs=1e-6)
    # of one parameter it is the test of the profile
    binary = rows_of(K=2)
    ratio = bbl.anova([fit("y ~ a", binary), fit("y ~ a + b", binary)])["ratio"].iloc[1]
    profile = fit("y ~ a + b", binary).inference().profile().set_index("predictor")
    assert ratio == pytest.approx(profile.loc["b", "chisq"], rel=1e-8)
    # another reference level changes neither
    turned_levels = {"a": ["r", "q", "p"]}, {"a": ["r", "q", "p"], "b": ["t", "s"]}
    turned = [
        fit(formula, binary, xlevels=levels)
        for formula, levels in zip(("y ~ a", "y ~ a + b"), turned_levels, strict=True)
    ]
    assert bbl.anova(turned)["ratio"].iloc[1] == pytest.approx(ratio, rel=1e-8)
    mixed = bbl.anova([fit("y ~ a", binary), fit("y ~ a + b", binary, ridge=0)])
    assert "Firth's penalty" in mixed["test"].iloc[1] and mixed["p"].isna().all()


def test_levels_that_do_not_occur_together_are_not_determined():
    data = rows_of(K=2)
    data = data[~((data["a"] == "r") & (data["b"] == "t"))]
    with pytest.warns(ConvergenceWarning, match="fewer distinct rows"):
        model = fit("y ~ a * b", data)
    table, profile = model.inference().table(), model.inference().profile()
    table = table[table["group"] == "v"].reset_index(drop=True)
    assert table["se"].isna().sum() == 1
    np.testing.assert_array_equal(table["se"].isna(), profile["lower"].isna())
    assert bbl.anova([fit("y ~ a + b", data), model])["df"].iloc[1] == 1


def test_weights_are_repeated_rows_and_order_does_not_matter():
    data = rows_of(K=3, n=30)
    counts = np.random.default_rng(2).integers(1, 4, 30)
    weighted = fit("y ~ a * b", data.assign(n=counts), "n")
    repeated = fit("y ~ a * b", data.loc[np.repeat(data.index, counts)].sample(frac=1.0))
    np.testing.assert_array_equal(coefficients(weighted), coefficients(repeated))


@pytest.mark.long
def test_verbs_under_separation(tmp_path, capsys):
    rows = SEPARATED.loc[np.repeat(SEPARATED.index, SEPARATED["n"]), ["y", "a"]]
    model = fit("y ~ a", rows)
    assert "ridge = firth" in str(model.summary())
    effect = model.avg_comparisons("a").frame
    assert np.isfinite(effect["std_error" if "std_error" in effect else "se"]).all()
    model.save(tmp_path / "firth.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "firth.bbl")
    pd.testing.assert_frame_equal(loaded.inference().profile(), model.inference().profile())
    assert loaded.engine == model.engine and loaded.aic == model.aic
    options = {"nfold": 3, "shuffle": True, "seed": 1, "verbose": 0}
    cv = bbl.crossVal("y ~ a", rows, method="conditional", ridge="firth", **options)
    near = bbl.crossVal("y ~ a", rows, method="conditional", ridge=1e-3, **options)
    assert cv.maxscore == pytest.approx(near.maxscore, abs=0.2)
    assert coefficients(cv.model) == pytest.approx(coefficients(model))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    arguments = ["y ~ a", str(tmp_path / "rows.csv"), "--method", "conditional"]
    assert main([*arguments, "--ridge", "firth"]) == 0
    assert "ridge = firth" in capsys.readouterr().out


def test_separation_advises_it_and_the_advice_works():
    with pytest.warns(ConvergenceWarning, match="ridge='firth'"):
        bbl.bbl("y ~ a", SEPARATED, "n", method="conditional", ridge=0, verbose=0)
    apart = pd.DataFrame({"a": list("xxzz") * 5, "y": list("uuvv") * 5})
    with pytest.warns(ConvergenceWarning, match="separate the groups.*ridge='firth'"):
        fit("y ~ a", apart, ridge=0)
    limits = fit("y ~ a", apart).inference().profile().iloc[0]
    assert 0 < limits["lower"] < limits["estimate"] < limits["upper"] < np.inf


def test_refusals():
    with pytest.raises(OptionError, match="'firht' is unknown.*'firth'"):
        fit("y ~ a", SEPARATED, "n", ridge="firht")
    for options in ({"start": "pseudo"}, {"early_stopping": True}, {"ordered": "linear"}):
        with pytest.raises(OptionError, match="Hint: Use"):
            fit("y ~ a", SEPARATED, "n", **options)
    with pytest.raises(OptionError, match="sampling design.*ridge=0"):
        fit("y ~ a", rows_of().assign(w=1.0), design=bbl.survey(weights="w"))
    with pytest.raises(OptionError, match=r"Hint: .*ridge='firth'"):
        fit("y ~ a", rows_of(), ridge=0).inference().profile()


@pytest.mark.long
def test_profile_limits_cover_under_separation():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(500):
        a = rng.integers(0, 2, 30)
        y = rng.random(30) < np.where(a == 1, 0.95, 0.5)
        data = pd.DataFrame(
            {
                "a": pd.Categorical.from_codes(a, list("01")),
                "y": pd.Categorical.from_codes(y.astype(int), list("uv")),
            }
        )
        row = fit("y ~ a", data).inference().profile().iloc[0]
        covered.append(row["lower"] <= np.log(19.0) <= row["upper"])
    assert 0.92 <= np.mean(covered) <= 0.99
