"""Boltzmann machines as distributions of rows: one group without a response, and what classes have
of it too.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.boltzmann.fitted import Estimate
from bbl.errors import BBLError, DataError, FormulaError, LevelError, OptionError
from bbl.stats.enrichment import rank_test

L = {"a": ["u", "v"], "b": [0, 1, 2], "c": [True, False], "d": ["x", "y"]}


def table(n=300, seed=0):
    """Rows of four predictors, b close to a and d close to c."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(2, size=(2, n))
    b = np.where(rng.random(n) < 0.7, a, rng.integers(3, size=n))
    d = np.where(rng.random(n) < 0.6, c, rng.integers(2, size=n))
    own = {"a": a, "b": b, "c": c, "d": d}
    return pd.DataFrame(
        {name: np.array(L[name], dtype=object)[codes] for name, codes in own.items()}
    )


def probabilities(fit, group=0):
    """Return the probability of every state of a model by listing them, from what ``coef()``
    says.
    """
    coef, name = fit.coef(), fit.labels.groups[group]
    names, levels = fit.labels.names, fit.labels.levels
    energy = []
    for state in itertools.product(*levels):
        row = dict(zip(names, state, strict=True))
        first = {n: own[0] for n, own in zip(names, levels, strict=True)}
        E = sum(coef.h[name][n][x] for n, x in row.items() if x != first[n])
        for i, j in coef.J[name]:
            if row[i] != first[i] and row[j] != first[j]:
                E += coef.J[name][i, j].loc[row[i], row[j]]
        energy.append(E)
    p = np.exp(energy)
    index = pd.MultiIndex.from_product(levels, names=names)
    return pd.Series(p / p.sum(), index=index)


@pytest.fixture(scope="module")
def fits():
    frame = table()
    return {m: bbl.bbl("~ .^2", frame, method=m, verbose=0) for m in ("pseudo", "mf", "naive")}


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive"])
def test_probabilities_of_rows_are_those_of_all_states_listed(fits, method):
    fit, frame = fits[method], table()
    p = probabilities(fit)
    assert isinstance(fit, bbl.DensityResults) and not isinstance(fit, bbl.BBLResults)
    expected = np.log(p[pd.MultiIndex.from_frame(frame)].to_numpy())
    np.testing.assert_allclose(fit.score_samples(frame), expected, atol=1e-12)
    assert fit.logLik() == pytest.approx(expected.sum(), abs=1e-9)
    assert fit.logLik().df == fit.estimate.parameters.layout.size and fit.nobs() == len(frame)


def pnll(p, frame):
    """Return the mean of ``-sum_i ln P(x_i | rest)`` by the table of all states."""
    total, p = 0.0, p.to_dict()
    for row in frame.itertuples(index=False, name=None):
        for i in range(len(row)):
            alike = sum(
                own
                for state, own in p.items()
                if state[:i] + state[i + 1 :] == row[:i] + row[i + 1 :]
            )
            total -= np.log(p[row] / alike)
    return total / len(frame)


@pytest.mark.parametrize("method", ["pseudo", "mf", "naive"])
def test_pnll_is_that_of_the_conditional_probabilities(fits, method):
    assert fits[method].pnll() == pytest.approx(
        pnll(probabilities(fits[method]), table()), abs=1e-12
    )


def test_pnll_sums_missing_predictors_out(fits):
    p = (
        probabilities(fits["pseudo"])
        .groupby(level=["a", "b", "d"], sort=False, observed=True)
        .sum()
    )
    frame = table(20, seed=1)
    fit = bbl.bbl("~ .^2", table(), missing="marginal", verbose=0)
    assert fit.pnll(frame.assign(c=None)) == pytest.approx(
        pnll(p, frame[["a", "b", "d"]]), abs=1e-12
    )


def test_weights_are_repeated_rows(fits):
    frame = table().value_counts().rename("n").reset_index()
    frame = frame.sample(frac=1.0, random_state=1)
    fit = bbl.bbl("~ .^2", frame, weights="n", verbose=0)
    np.testing.assert_array_equal(
        fit.estimate.parameters.theta, fits["pseudo"].estimate.parameters.theta
    )
    assert fit.logLik() == pytest.approx(fits["pseudo"].logLik(), rel=1e-13)
    assert fit.pnll() == pytest.approx(fits["pseudo"].pnll(), rel=1e-13)
    assert fit.pnll(frame, "n") == fit.pnll()


def test_draws_have_the_probabilities_of_the_model(fits):
    fit, n = fits["pseudo"], 40_000
    drawn = fit.sample(n, seed=1)
    assert drawn.equals(fit.sample(n, seed=1)) and list(drawn) == list("abcd")
    p = probabilities(fit)
    share = drawn.value_counts(normalize=True).reindex(p.index, fill_value=0.0)
    assert (np.abs(share - p) < 5.0 * np.sqrt(p * (1 - p) / n) + 1e-12).all()


def test_missing_cells_are_filled_with_their_conditional_probabilities(fits):
    fit, frame = fits["pseudo"], table(30, seed=2)
    p, rng = probabilities(fit), np.random.default_rng(0)
    lost = rng.random(frame.shape) < 0.5
    lost[0], lost[1] = False, True
    filled = fit.reconstruct(frame.mask(lost))
    for r, row in enumerate(frame.to_dict("records")):
        known = [n for n, gone in zip("abcd", lost[r], strict=True) if not gone]
        alike = (
            p[np.all([p.index.get_level_values(n) == row[n] for n in known], axis=0)]
            if known
            else p
        )
        for n in "abcd":
            share = (
                alike.groupby(level=n).sum().reindex(filled[n].columns, fill_value=0.0)
                / alike.sum()
            )
            np.testing.assert_allclose(filled[n].iloc[r], share, atol=1e-12)
    best = fit.reconstruct(frame.mask(lost), type="class")
    assert (
        best.astype(object).to_numpy()[~lost] == frame.to_numpy()[~lost]
    ).all() and not best.isna().any().any()
    pd.testing.assert_frame_equal(fit.reconstruct(frame, lost), filled)
    pd.testing.assert_frame_equal(
        fit.reconstruct(frame, pd.DataFrame(lost, columns=list("abcd"))), filled
    )
    sampled = fit.reconstruct(frame, lost, method="gibbs", n_jobs=1)
    assert np.abs(sampled - filled).max().max() < 0.05
    pd.testing.assert_frame_equal(sampled, fit.reconstruct(frame, lost, method="gibbs", n_jobs=3))
    assert np.abs(fit.reconstruct(frame, lost, method="mf") - filled).mean().mean() < 0.05
    independent = fits["naive"]
    exact, field = (independent.reconstruct(frame, lost, method=m) for m in ("exact", "mf"))
    np.testing.assert_allclose(field, exact, atol=1e-9)


def test_with_classes_a_row_is_filled_by_its_group_or_by_all_of_them():
    frame = table().rename(columns={"d": "y"})
    fit = bbl.bbl("y ~ .^2", frame, verbose=0)
    share = fit.estimate.class_prior
    p = [probabilities(fit, k) for k in (0, 1)]
    row = pd.DataFrame({"y": ["y", None], "a": ["v", "v"], "b": [None, None], "c": [True, True]})
    filled = fit.reconstruct(row)["b"]
    of_group = [own["v", :, True] for own in p]
    np.testing.assert_allclose(filled.iloc[0], of_group[1] / of_group[1].sum(), atol=1e-12)
    mixed = sum(s * own for s, own in zip(share, of_group, strict=True))
    np.testing.assert_allclose(filled.iloc[1], mixed / mixed.sum(), atol=1e-12)
    pd.testing.assert_frame_equal(
        fit.reconstruct(row.drop(columns="y")).iloc[[1]], fit.reconstruct(row).iloc[[1]]
    )
    density = sum(s * own for s, own in zip(share, p, strict=True))
    np.testing.assert_allclose(
        np.exp(fit.score_samples(frame)),
        density[pd.MultiIndex.from_frame(frame[["a", "b", "c"]])],
        rtol=1e-12,
    )
    parts = [frame[frame["y"] == g][["a", "b", "c"]] for g in ("x", "y")]
    expected = sum(pnll(own, part) * len(part) for own, part in zip(p, parts, strict=True)) / len(
        frame
    )
    assert fit.pnll(frame) == pytest.approx(expected, abs=1e-12)
    assert list(fit.sample(3, seed=1)) == ["y", "a", "b", "c"]


def test_the_level_of_missing_values_is_not_what_they_are_filled_with():
    frame = table()
    frame.loc[::5, "a"] = None
    fit = bbl.bbl("~ .^2", frame, missing="level", verbose=0)
    assert (fit.reconstruct(frame)["a"]["(missing)"] == 0.0).all()
    assert set(fit.reconstruct(frame, type="class")["a"]) == {"u", "v"}


def test_a_level_that_only_missing_values_can_be_leaves_equal_probabilities():
    frame = pd.DataFrame({"a": ["u", "v", "u", None, None], "b": ["x", "x", "y", "z", "z"]})
    fit = bbl.bbl("~ a*b", frame, missing="level", lambda_=1e-12, verbose=0)
    level = fit.estimate.parameters.theta.copy()
    # of a missing value, beyond which nothing is possible
    level[:, fit.estimate.parameters.layout.start[0] + 1] = 1e4
    object.__setattr__(fit.estimate.parameters, "theta", level)
    found = fit.reconstruct(frame.tail(1))["a"]
    assert found.to_numpy().tolist() == [[0.5, 0.5, 0.0]]


def test_missing_values_go_by_the_policy():
    frame = table()
    frame.loc[:9, "b"] = None
    with pytest.raises(DataError, match="missing"):
        bbl.bbl("~ .", frame, verbose=0)
    dropped = bbl.bbl("~ .", frame, missing="drop", method="naive", verbose=0)
    assert dropped.nobs() == len(frame) - 10 and dropped.score_samples(frame).isna().sum() == 10
    assert dropped.pnll(frame) == pytest.approx(dropped.pnll(frame.iloc[10:]))
    known = bbl.bbl("~ .", frame, missing="marginal", method="naive", prior_count=0.0, verbose=0)
    np.testing.assert_allclose(
        np.exp(known.score_samples(pd.DataFrame({"a": ["u"], "b": [1], "c": [None], "d": [None]}))),
        (frame["a"] == "u").mean() * (frame["b"].iloc[10:] == 1).mean(),
    )


def test_what_is_of_classes_says_so(fits):
    fit = fits["pseudo"]
    for name in ("predict", "fitted", "residuals", "evaluate", "score", "with_priors"):
        with pytest.raises(BBLError, match=rf"{name} requires classes.*'y ~ \.'"):
            getattr(fit, name)
    assert not hasattr(fit, "predict")
    with pytest.raises(AttributeError, match="no attribute 'forecast'"):
        fit.forecast  # noqa: B018
    with pytest.raises(OptionError, match="no response"):
        bbl.bbl("~ .", table(), calibrate="offset")
    with pytest.raises(OptionError, match="no response"):
        bbl.bbl("~ .", table(), priors="equal")
    with pytest.raises(BBLError, match="has no response"):
        fit.plot(kind="confusion")
    with pytest.raises(OptionError, match="no response"):
        bbl.crossVal("~ .", table(), score="auc")
    with pytest.raises(OptionError, match="logloss"):
        bbl.crossVal("d ~ .", table(), score="pnll")
    with pytest.raises(FormulaError, match="must have a response"):
        bbl.networks.nb("~ .", table())
    with pytest.raises(FormulaError, match="no predictors"):
        bbl.bbl("~ 1", table())


def test_bad_masks_and_data_are_named(fits):
    fit, frame = fits["pseudo"], table(3)
    with pytest.raises(DataError, match="mask must.*True and False"):
        fit.reconstruct(frame, np.ones((3, 4)))
    with pytest.raises(DataError, match="'z', which is no.*predictor"):
        fit.reconstruct(frame, pd.DataFrame({"z": [True] * 3}))
    with pytest.raises(LevelError, match="'b'"):
        fit.reconstruct(frame.assign(b=7))
    with pytest.raises(DataError, match="column"):
        fit.score_samples(frame.drop(columns="a"))
    with pytest.raises(OptionError, match="method"):
        fit.reconstruct(frame, method="guess")


def test_the_penalty_is_chosen_by_left_out_pseudo_likelihood():
    frame = table()
    cv = bbl.crossVal(
        "~ .^2", frame, lambda_=[1e-3, 0.1, 10.0], score="pnll", shuffle=True, seed=3, verbose=0
    )
    fit = bbl.bbl("~ .^2", frame, lambda_="cv", seed=3, verbose=0)
    assert (
        fit.tuning.option == "lambda_"
        and fit.engine.lambda_ == fit.tuning.values[fit.tuning.chosen]
    )
    assert isinstance(cv.model, bbl.DensityResults) and cv.score == "pnll"
    held = []
    for f, rows in enumerate(cv.folds):
        rest = np.setdiff1d(np.arange(len(frame)), rows)
        one = bbl.bbl("~ .^2", frame.iloc[rest], lambda_=0.1, verbose=0)
        held += [one.pnll(frame.iloc[[r]]) for r in rows[:3]]
        own = cv.scored.scores[1][cv.scored.fold == f][:3, 0]
        np.testing.assert_allclose(own, -np.array(held[-3:]), atol=1e-8)
    assert cv.cvframe["score"][1] == pytest.approx(-cv.scored.scores[1].mean())
    likely = bbl.crossVal("~ .^2", frame, lambda_=[1e-3, 10.0], shuffle=True, seed=3, verbose=0)
    assert (
        likely.score == "logloss" and likely.regstar == 1e-3 and list(likely.pooled) == ["log_prob"]
    )
    with pytest.raises(BBLError, match="no response"):
        likely.compare()
    with pytest.raises(BBLError, match="no response"):
        likely.predict(frame)


@pytest.mark.parametrize("rows", [False, True])
def test_a_saved_model_is_the_same(fits, tmp_path, rows):
    fit = fits["pseudo"]
    fit.save(tmp_path / "m.bbl", store_data=rows)
    back = bbl.load(tmp_path / "m.bbl")
    assert type(back) is bbl.DensityResults and repr(back) == repr(fit)
    assert str(back.summary()) == str(fit.summary()) and back.logLik() == fit.logLik()
    np.testing.assert_array_equal(back.score_samples(table(9)), fit.score_samples(table(9)))
    assert (back.training is None) == (not rows)


def test_coefficients_tests_and_figures_have_one_group(fits):
    fit = fits["pseudo"]
    assert "(all)" not in repr(fit) + str(fit.summary()) and "Responses" not in repr(fit)
    found = fit.interactions()
    assert set(map(frozenset, found[["predictor", "predictor2"]].head(2).to_numpy())) == {
        frozenset("ab"),
        frozenset("cd"),
    }
    assert fit.inference().tests()["p"].notna().sum() >= 9
    assert fit.summary().tables["levels"].loc[("a", "u"), "count"] > 0
    assert len(fit.plot()) == 2 and fit.plot()[1].get_title() == ""
    assert fit.plot_network()[0].get_title() == "" and len(fit.plot_logo()) == 1
    assert bbl.mcSample(fit, 50, seed=1, draws=True, verbose=0).draws["all"].shape[1] == 4
    assert isinstance(fit.estimate, Estimate) and fit.estimate.parameters.pooled is None


def test_enrichment_counts_known_pairs_in_a_ranked_list():
    names = list("abcdefgh")
    pairs = list(itertools.combinations(names, 2))
    known = pairs[:6]
    found = bbl.enrichment(
        [*known[:4], ("f", "g"), ("a", "b", "h"), *known[4:]], known, names, top=[2, 5, 6]
    )
    assert found.n_pairs == 28 and found.n_known == 6 and list(found.table["observed"]) == [2, 4, 4]
    np.testing.assert_allclose(
        found.table["enrichment"], [2 / (12 / 28), 4 / (30 / 28), 4 / (36 / 28)]
    )
    # by hand: all of 2 draws are known
    assert found.table["p"][0] == pytest.approx(6 * 5 / (28 * 27))
    assert found.p < 0.001 and found.area > 0.9
    assert len(found.listed) == 9 and found.listed["known"].sum() == 6
    frame = pd.DataFrame({"predictors": [("a", "b"), ("c", "d")]})
    assert bbl.enrichment(frame, known, names).table["observed"].tolist() == [1]
    everything = bbl.enrichment([("a", "b")], pairs, names)
    assert (
        np.isnan(everything.p)
        and "nan" not in str(everything)
        and "All pairs are known" in str(everything)
    )
    with pytest.raises(DataError, match="'z'"):
        bbl.enrichment([("a", "z")], known, names)
    with pytest.raises(DataError, match="no pair"):
        bbl.enrichment([("a",)], known, names)


def test_the_rank_test_of_few_pairs_is_that_of_all_choices():
    known = np.array([True, False, True, True, False])
    pairs, total = 9, 4
    rank = np.r_[0:5, [6.5] * 4]
    sums = [rank[list(c)].sum() for c in itertools.combinations(range(pairs), total)]
    own = rank[:5][known].sum() + 6.5
    area, p = rank_test(known, pairs, total)
    assert p == pytest.approx(np.mean(np.array(sums) <= own), abs=0.015)
    wins = [(a < b) + 0.5 * (a == b) for a in [0, 2, 3, 6.5] for b in [1, 4, 6.5, 6.5, 6.5]]
    assert area == pytest.approx(np.mean(wins))


def test_orders_of_terms_have_a_name_that_no_group_has():
    data = {"y": ["order", "order_", "order", "order_"], "u": list("pqqp")}
    counts = bbl.bbl("y ~ .", data).order_counts
    assert counts.index.name == "order__" and list(counts.reset_index().columns) == [
        "order__",
        "order",
        "order_",
    ]
