"""graphs: tables of graphs and edges against fits of their formulas, the greedy search, and
refusals.
"""

import numpy as np
import pandas as pd
import pytest

import bbl


@pytest.fixture(scope="module")
def survey():
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2, (500, 9))
    for i in range(1, 9):
        x[:, i] = np.where(rng.random(500) < 0.5, x[:, i - 1], x[:, i])
    return pd.DataFrame(x, columns=["marital status", *"bcdefghi"])


@pytest.mark.long
def test_rows_of_the_table_are_fits_of_their_formulas(survey):
    data = survey.iloc[:, :5]
    found = bbl.graphs(data, top=8)
    assert len(found.table) == 8 and found.n_graphs == 1024 and found.is_exhaustive
    assert found.formula == found.table["formula"][0]
    assert found.table["BIC"].is_monotonic_increasing
    for row in found.table.itertuples():
        fit = bbl.bbl(row.formula, data, method="ml")
        assert (fit.n_parameters, fit.logLik(), fit.bic) == pytest.approx(
            (row.parameters, row.logLik, row.BIC)
        )
    shares = np.exp(-0.5 * (found.table["BIC"] - found.table["BIC"][0]))
    np.testing.assert_allclose(found.table["weight"] / found.table["weight"][0], shares, rtol=1e-10)
    every = bbl.graphs(data, top=2000).table
    assert len(every) == 1024 and every["weight"].sum() == pytest.approx(1.0)
    edge = found.edges.iloc[3]
    names = {edge["variable"], edge["variable2"]}
    has_edge = [
        any(
            names <= {name.strip("`") for name in part.split("*")}
            for part in formula[2:].split(" + ")
        )
        for formula in every["formula"]
    ]
    assert every["weight"][has_edge].sum() == pytest.approx(edge["probability"])
    assert len(found.edges) == 10 and found.edges["probability"].is_monotonic_decreasing


def test_weights_are_repeated_rows_and_the_order_of_rows_is_nothing(survey):
    data = survey.iloc[:, :4]
    counted = data.value_counts().rename("n").reset_index()
    one, other = bbl.graphs(data, criterion="aic"), bbl.graphs(counted, "n", "aic")
    pd.testing.assert_frame_equal(one.table, other.table)
    pd.testing.assert_frame_equal(one.table, bbl.graphs(data.iloc[::-1], criterion="aic").table)
    assert "AIC" in one.table and str(one).startswith("The 20 best of all 64 graphs")


@pytest.mark.long
def test_the_best_graphs_are_the_first_of_all_graphs():
    """Tables of 1,024 cells: graphs are fitted in several rounds, each of which drops those that
    are out of reach.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (300, 5))
    for i in range(1, 5):
        x[:, i] = np.where(rng.random(300) < 0.3, x[:, i - 1 if i % 2 else 0], x[:, i])
    data = pd.DataFrame(x, columns=list("abcde"))
    every = bbl.graphs(data, criterion="aic", top=1024).table
    best = bbl.graphs(data, criterion="aic", top=20).table
    assert len(every) == 1024
    pd.testing.assert_frame_equal(best, every.head(20))


def test_more_variables_are_searched(survey):
    found = bbl.graphs(survey, top=1)
    assert not found.is_exhaustive and "found by the search" in str(found)
    assert found.formula == "~ " + " + ".join(
        f"{a}*{b}" for a, b in zip(["`marital status`", *"bcdefgh"], "bcdefghi", strict=True)
    )
    fit = bbl.bbl(found.formula, survey, method="ml")
    assert fit.bic == pytest.approx(found.table["BIC"][0])
    assert 0.5 < found.edges["probability"][0] <= 1.0


def test_tables_of_too_many_cells_are_searched(monkeypatch, survey):
    from bbl.api.machine import graphs as module

    monkeypatch.setattr(module, "MAX_STATES", 8)
    assert not bbl.graphs(survey.iloc[:, :4]).is_exhaustive


def test_missing_values(survey):
    data = survey.iloc[:, :3].astype(object)
    data.iloc[:5, 1] = None
    with pytest.raises(bbl.errors.DataError, match="missing='drop'"):
        bbl.graphs(data)
    pd.testing.assert_frame_equal(
        bbl.graphs(data, missing="drop").table,
        bbl.graphs(survey.iloc[5:, :3]).table,
        check_exact=False,
    )
    assert bbl.graphs(data, missing="level").table["parameters"].max() == 11
    with pytest.raises(bbl.errors.OptionError, match="missing"):
        bbl.graphs(data, missing="marginal")


def test_the_figure_names_all_variables(survey):
    import matplotlib.pyplot as plt

    ax = bbl.graphs(survey.iloc[:, :4]).plot()
    texts = " ".join(text.get_text().replace("\n", " ") for text in ax.texts)
    assert all(name in texts for name in survey.columns[:4])
    _, own = plt.subplots()
    assert bbl.graphs(survey).plot(own) is own
    plt.close("all")


def test_independent_variables_have_a_figure_without_edges():
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    found = bbl.graphs(pd.DataFrame(rng.integers(0, 4, (3000, 3)), columns=list("abc")))
    assert found.formula == "~ a + b + c"
    found.plot()
    plt.close("all")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"criterion": "dic"}, bbl.errors.OptionError, "criterion"),
        ({"top": 0}, bbl.errors.OptionError, "top"),
        ({"weights": np.full(500, 0.5)}, bbl.errors.DataError, "integer"),
        ({"weights": "none"}, bbl.errors.DataError, "none"),
    ],
)
def test_bad_arguments_are_named(survey, arguments, error, match):
    with pytest.raises(error, match=match):
        bbl.graphs(survey, **arguments)


def test_bad_data_are_refused(survey):
    with pytest.raises(bbl.errors.DataError, match="variables"):
        bbl.graphs(survey[["b"]])
    with pytest.raises(bbl.errors.LevelError, match="one level"):
        bbl.graphs(survey[["b", "c"]].assign(d=1))
    with pytest.raises(bbl.errors.BBLTypeError):
        bbl.graphs(3)
    with pytest.raises(bbl.errors.OptionError, match="read in batches"):
        bbl.graphs(lambda: iter([survey]))
