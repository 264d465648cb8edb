"""Markov blankets of the response: scores and probabilities written out, the search, its laws, and
what users see.
"""

from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.engines import MarkovBlanket
from bbl.engines.blanket import engine as blanket_engine
from bbl.engines.blanket.families import Families
from bbl.engines.blanket.search import climb
from bbl.errors import OptionError

ISS = 4.0


def rows(n=300, seed=0, m=5, K=3):
    """Rows of a network: x0 and x1 are children of y, x1 of the last predictor too; the last but
    one is a parent.
    """
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (n, m))
    y = np.where(rng.random(n) < 0.6, x[:, m - 2] % K, rng.integers(0, K, n))
    x[:, 0] = np.where(rng.random(n) < 0.7, y % 3, x[:, 0])
    x[:, 1] = np.where(
        rng.random(n) < 0.6, np.where(rng.random(n) < 0.5, y, x[:, m - 1]) % 3, x[:, 1]
    )
    return x, y


def frame(x, y):
    levels = {f"x{i}": pd.Categorical([f"l{a}" for a in x[:, i]]) for i in range(x.shape[1])}
    return pd.DataFrame(levels | {"y": [f"g{g}" for g in y]})


def urn_score(codes, n_levels, i, parents, iss):
    """Log evidence of variable i given its parents: the product of the probabilities of each row
    after those before.
    """
    q = int(np.prod([n_levels[j] for j in parents]))
    counts, out = {}, 0.0
    for row in codes:
        count = counts.setdefault(
            tuple(row[list(parents)]), np.full(n_levels[i], iss / q / n_levels[i])
        )
        out += np.log(count[row[i]] / count.sum())
        count[row[i]] += 1.0
    return out


def network_score(codes, n_levels, parents, iss=ISS):
    return sum(urn_score(codes, n_levels, i, of, iss) for i, of in enumerate(parents))


def is_acyclic(parents):
    waiting = set(range(len(parents)))
    while waiting:
        roots = {i for i in waiting if not waiting & set(parents[i])}
        if not roots:
            return False
        waiting -= roots
    return True


def is_allowed(parents, interacts):
    """At most two parents; the predictors of a family with the response interact."""
    families = [
        [k for k in (i, *of) if k != 0] for i, of in enumerate(parents) if i == 0 or 0 in of
    ]
    return max(map(len, parents)) <= 2 and all(
        interacts[i, j] for family in families for i, j in combinations(family, 2)
    )


def neighbours(parents):
    """Networks with one arc more, less, or turned round."""
    M = len(parents)
    for i, j in permutations(range(M), 2):
        changed = [set(of) for of in parents]
        if j in changed[i]:
            changed[i].discard(j)
            yield changed
            turned = [set(of) for of in changed]
            turned[j].add(i)
            yield turned
        else:
            changed[i].add(j)
            yield changed


def network_probabilities(codes, y, K, n_levels, parents, iss, new):
    """P(y | x) of new rows by the product of all tables of a network; the response is variable
    0.
    """
    data = np.column_stack([y, codes])
    L = [K, *n_levels]
    out = np.zeros((len(new), K))
    for r, row in enumerate(new):
        for g in range(K):
            full = [g, *row]
            p = 1.0
            for i, of in enumerate(parents):
                same = (
                    np.all([data[:, j] == full[j] for j in of], axis=0)
                    if of
                    else np.ones(len(data), bool)
                )
                q = int(np.prod([L[j] for j in of]))
                prior = iss / q / L[i]
                if i == 0:  # the class proportions
                    prior = iss / q * (y == g).mean() if of else 0.0
                total = same.sum() + (0.0 if i == 0 and not of else iss / q)
                p *= ((same & (data[:, i] == full[i])).sum() + prior) / total
            out[r, g] = p
    return out / out.sum(axis=1, keepdims=True)


def probabilities(fit, table):
    return fit.predict(table, type="prob").drop(columns="yhat").astype(float)


@pytest.fixture(scope="module")
def data():
    x, y = rows()
    return frame(x, y)


def test_counts_of_cells_with_the_levels_of_all_variables_are_sums_of_weights():
    rng, L = np.random.default_rng(0), np.array([3, 1, 5])
    codes, cells = (
        np.column_stack([rng.integers(0, levels, 30) for levels in L]),
        rng.integers(0, 4, 30),
    )
    weights = rng.choice([0.0, 0.5, 2.0], 30)
    expected = [
        [
            weights[(cells == cell) & (codes[:, i] == level)].sum()
            for i in range(3)
            for level in range(L[i])
        ]
        for cell in range(4)
    ]
    np.testing.assert_array_equal(Families(codes, weights, L).count_with_others(cells, 4), expected)


def test_scores_of_families_are_the_product_of_predictions_of_each_row_from_those_before():
    x, y = rows(n=40, m=3)
    codes, L = np.column_stack([y, x]), np.array([3, 3, 3, 3])
    families = Families(codes, np.ones(40), L)
    assert families.scores_alone(ISS) == pytest.approx(
        [urn_score(codes, L, i, (), ISS) for i in range(4)], abs=1e-10
    )
    for i, j in permutations(range(4), 2):
        assert families.scores_with_parents(i, None, ISS)[j] == pytest.approx(
            urn_score(codes, L, i, (j,), ISS)
        )
        for k in set(range(4)) - {i, j}:
            assert families.scores_with_parents(i, j, ISS)[k] == pytest.approx(
                urn_score(codes, L, i, (j, k), ISS)
            )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("couples", ["all", "some", "none"])
@pytest.mark.thinned(5)
def test_no_single_arc_would_raise_the_score_of_the_network_that_is_found(seed, couples):
    x, y = rows(n=80, seed=seed, m=4)
    codes, L = np.column_stack([y, x]), np.array([3] * 5)
    interacts = np.zeros((5, 5), dtype=bool)
    if couples != "none":
        interacts[1:, 1:] = True
    if couples == "some":
        interacts[1, 2] = interacts[2, 1] = False
    parents = climb(Families(codes, np.ones(len(y)), L), interacts, ISS)
    assert is_acyclic(parents) and is_allowed(parents, interacts)
    best = network_score(codes, L, parents)
    for other in neighbours(parents):
        if is_acyclic(other) and is_allowed(other, interacts):
            assert network_score(codes, L, [tuple(of) for of in other]) <= best + 1e-8


def test_of_three_variables_the_best_of_all_networks_is_found():
    x, y = rows(n=200, seed=1, m=2)
    codes, L = np.column_stack([y, x]), np.array([3, 3, 3])
    parents = climb(Families(codes, np.ones(len(y)), L), np.ones((3, 3), dtype=bool), ISS)
    possible = [
        [of for k in range(3) for of in combinations([j for j in range(3) if j != i], k)]
        for i in range(3)
    ]
    scores = [
        network_score(codes, L, network) for network in product(*possible) if is_acyclic(network)
    ]
    assert len(scores) == 25
    assert network_score(codes, L, parents) == pytest.approx(max(scores), abs=1e-9)


@pytest.mark.parametrize("formula", ["y ~ .^2", "y ~ ."])
@pytest.mark.parametrize("iss", [1.0, 10.0, 100.0])
def test_class_probabilities_are_those_of_the_network(data, formula, iss):
    x, y = rows()
    fit = bbl.bbl(formula, data, method=MarkovBlanket(iss), verbose=0)
    order = blanket_engine._informative_predictors(fit.training, np.full(5, 3), 3)
    interacts = np.zeros((6, 6), dtype=bool)
    interacts[1:, 1:] = formula == "y ~ .^2"
    parents = climb(
        Families(np.column_stack([y, x[:, order]]), np.ones(len(y)), np.full(6, 3)), interacts, iss
    )
    new = x[:25]
    expected = network_probabilities(x[:, order], y, 3, [3] * 5, parents, iss, new[:, order])
    found = probabilities(fit, data.head(25)).to_numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_predictors_outside_the_blanket_have_no_parameters(data):
    fit = bbl.bbl("y ~ .^2", data, method="blanket", verbose=0)
    relevant = fit.relevant().index
    assert {"x0", "x1", "x3"} <= set(relevant) and not any("x2" in term for term in relevant)
    changed = data.assign(x2=data["x2"].to_numpy()[::-1])
    pd.testing.assert_frame_equal(probabilities(fit, changed), probabilities(fit, data))
    assert fit.n_parameters == sum(
        np.count_nonzero(theta) for theta in fit.estimate.parameters.theta
    )


def test_a_formula_without_pairs_gets_no_couplings(data):
    fit = bbl.bbl("y ~ .", data, method="blanket", verbose=0)
    assert len(fit.relevant()) and (fit.relevant()["order"] == 1).all()


def test_weights_are_repeated_rows_to_the_last_bit(data):
    weights = np.random.default_rng(0).integers(1, 5, len(data))
    weighted = bbl.bbl("y ~ .^2", data, weights, method="blanket", iss="cv", verbose=0)
    repeated = bbl.bbl(
        "y ~ .^2", data.loc[data.index.repeat(weights)], method="blanket", iss="cv", verbose=0
    )
    assert weighted.engine == repeated.engine
    pd.testing.assert_frame_equal(weighted.predict(data), repeated.predict(data), check_exact=True)


@pytest.mark.parametrize("seed", range(3))
def test_neither_the_order_of_columns_nor_of_rows_nor_of_levels_matters(seed):
    table = frame(*rows(seed=seed, n=150))
    first = bbl.bbl("y ~ .^2", table, method="blanket", verbose=0)
    turned = table.iloc[::-1, ::-1].copy()
    for name in ("x0", "x1", "x4"):
        turned[name] = turned[name].cat.reorder_categories(turned[name].cat.categories[::-1])
    other = bbl.bbl("y ~ .^2", turned, method="blanket", verbose=0)
    pd.testing.assert_frame_equal(
        probabilities(other, table), probabilities(first, table), rtol=1e-9
    )


def test_weights_of_a_billion_have_the_shares_of_each_cell(data):
    fit = bbl.bbl(
        "y ~ x0 + x3 + x0:x3", data, np.full(len(data), 10**9), method="blanket", verbose=0
    )
    found = probabilities(fit, data)
    shares = (
        pd.get_dummies(data["y"]).groupby([data["x0"], data["x3"]], observed=True).transform("mean")
    )
    np.testing.assert_allclose(found, shares, atol=1e-6)


def test_more_predictors_than_rows_and_than_the_network_takes(monkeypatch):
    x, y = rows(n=40, m=60)
    fit = bbl.bbl("y ~ .^2", frame(x, y), method="blanket", novarOk=True, verbose=0)
    assert fit.score() > 0.6
    monkeypatch.setattr(blanket_engine, "MAX_PREDICTORS", 1)
    one = bbl.bbl("y ~ .^2", frame(x, y), method="blanket", novarOk=True, verbose=0)
    assert len(one.relevant()) == 1


def test_a_predictor_of_one_level_and_a_group_absent_from_a_fold():
    x, y = rows(n=60)
    x[:, 4] = 0
    table = frame(x, np.where(np.arange(60) == 0, 3, y))
    cv = bbl.crossVal(
        "y ~ .^2", table, method="blanket", iss=[1, 10], novarOk=True, shuffle=True, verbose=0
    )
    assert len(cv.cvframe) == 2 and np.isfinite(cv.cvframe["score"]).all()


@pytest.mark.long
def test_of_noise_it_says_nothing():
    rng = np.random.default_rng(5)
    said = 0
    for _ in range(12):
        table = frame(rng.integers(0, 2, (200, 10)), rng.integers(0, 2, 200))
        fit = bbl.bbl("y ~ .^2", table, method="blanket", iss=1, verbose=0)
        said += bool(len(fit.relevant()))
        if not len(fit.relevant()):
            shares = table["y"].value_counts(normalize=True).sort_index()
            np.testing.assert_allclose(probabilities(fit, table.head(1)).to_numpy()[0], shares)
    assert said <= 4


def test_cross_validation_chooses_the_sample_size_and_files_keep_the_fit(data, tmp_path):
    fit = bbl.bbl("y ~ .^2", data, method="blanket", iss="cv", calibrate="temperature", verbose=0)
    assert fit.engine.iss in MarkovBlanket.tuned.grid and fit.tuning.option == "iss"
    assert "iss = " in str(fit.summary()) and "nan" not in str(fit.summary())
    fit.save(tmp_path / "model.bbl")
    pd.testing.assert_frame_equal(
        bbl.load(tmp_path / "model.bbl").predict(data), fit.predict(data), check_exact=True
    )


def test_what_a_network_cannot_tell_is_refused(data):
    with pytest.raises(OptionError, match=r"iss must be in \(0, inf\); got 0"):
        bbl.bbl("y ~ .", data, method="blanket", iss=0)
    fit = bbl.bbl("y ~ .", data, method="blanket", verbose=0)
    for ask in (lambda: fit.bse, lambda: fit.inference().table(of=("g0", "g1")), fit.cov_params):
        with pytest.raises(OptionError, match="from the rows"):
            ask()
    with pytest.raises(OptionError, match="selects predictors automatically"):
        bbl.bbl("y ~ .", data, method="blanket", relevance=0.05)
    with pytest.raises(OptionError, match="cannot average over"):
        bbl.bbl("y ~ .", data.mask(data == "l0"), method="blanket", missing="marginal")


def test_the_loss_that_a_fit_tells_is_that_of_its_predictions(data):
    fit = bbl.bbl("y ~ .^2", data, method="blanket", verbose=0)
    p = probabilities(fit, data).to_numpy()[np.arange(len(data)), [int(g[1]) for g in data["y"]]]
    assert fit.lkh == pytest.approx(np.log(p).sum(), rel=1e-12)


def test_rows_need_known_values_of_the_blanket_alone(data):
    fit = bbl.bbl("y ~ .^2", data, method="blanket", verbose=0)
    unused = next(
        name
        for name in data.columns[:-1]
        if name not in {*":".join(fit.relevant().index).split(":")}
    )
    new = data.head(4).astype(str)
    new.loc[1, unused], new.loc[2, fit.relevant().index[0]] = "never seen", "never seen"
    expected = fit.predict(data.head(4), type="prob")
    known = fit.predict(new.drop(index=2), type="prob", unseen="ignore")
    pd.testing.assert_frame_equal(known, expected.drop(index=2))
    with pytest.raises(OptionError, match="cannot be averaged over missing or unseen"):
        fit.predict(new, unseen="ignore")
    # in an average it is silent in the third row alone
    other = bbl.bbl("y ~ .^2", data, method="mf", verbose=0)
    both = bbl.average([fit, other], "equal").predict(new, type="prob", unseen="ignore").iloc[:, :3]
    single = other.predict(new, type="prob", unseen="ignore").iloc[:, :3]
    pd.testing.assert_series_equal(both.iloc[2], single.iloc[2])
    np.testing.assert_allclose(
        both.iloc[1], (expected.iloc[1, :3] + single.iloc[1]).astype(float) / 2
    )
