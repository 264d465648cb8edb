"""Class shares and costs: numbers without names are taken only for groups whose order users
know.
"""

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.design.decisions import check_costs, check_priors
from bbl.design.factors import Factor
from bbl.errors import OptionError

SORTED = Factor("y", ("healthy", "sick"), ("string", "string"))
NAMES_NEEDED = (
    r"values without group names, but the order of the groups of 'y' was not declared\. "
    r"Hint: Pass a dict such as "
)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = np.tile(["sick", "healthy"], 50)
    return pd.DataFrame(
        {
            "y": y,
            "x": np.where(rng.random(100) < 0.6, y, rng.permutation(y)),
            "z": rng.integers(3, size=100),
        }
    )


def test_numbers_without_names_need_a_known_order():
    for values in ([0.1, 0.9], np.array([0.1, 0.9])):
        with pytest.raises(
            OptionError, match=NAMES_NEEDED + r"priors={'healthy': ..., 'sick': ...}, or declare"
        ):
            check_priors(values, SORTED)
    with pytest.raises(
        OptionError, match=NAMES_NEEDED + r"costs={'healthy': {...: ...}, 'sick': {...: ...}}"
    ):
        check_costs([[0, 1], [5, 0]], SORTED)
    np.testing.assert_array_equal(check_priors({"sick": 0.1, "healthy": 0.9}, SORTED), [0.9, 0.1])
    np.testing.assert_array_equal(
        check_priors(pd.Series({"sick": 0.1, "healthy": 0.9}), SORTED), [0.9, 0.1]
    )
    np.testing.assert_array_equal(check_priors("equal", SORTED), [0.5, 0.5])
    np.testing.assert_array_equal(check_costs({"sick": {"healthy": 5}}, SORTED), [[0, 0], [5, 0]])


@pytest.mark.parametrize(
    "response",
    [
        Factor("y", ("sick", "healthy"), ("string", "string"), declared=True),
        # as in files of earlier versions
        Factor("y", ("sick", "healthy"), ("string", "string"), ordered=True),
        Factor("y", (1, 2), ("number", "number")),
        Factor("y", (False, True), ("bool", "bool")),
    ],
)
def test_declared_groups_numbers_and_booleans_have_a_known_order(response):
    np.testing.assert_array_equal(check_priors([0.1, 0.9], response), [0.1, 0.9])
    np.testing.assert_array_equal(check_costs([[0, 1], [5, 0]], response), [[0, 1], [5, 0]])


def fits_of(data, **options):
    mf = bbl.bbl("y ~ x + z", data, method="mf", **options)
    return {
        "machine": mf,
        "network": bbl.networks.bnc("nb", "y ~ .", data, smooth=1, **options),
        "shooter": bbl.shooter("y ~ x + z", data, lambda_=0.1, order=2, **options),
        "average": bbl.average(
            [mf, bbl.bbl("y ~ x + z", data, method="naive", **options)], "equal"
        ),
        "auto": bbl.bbl("y ~ x + z", data, method="auto", verbose=0, **options),
    }


def uses(fit, data):
    return [
        lambda p, c: fit.predict(data, priors=p),
        lambda p, c: fit.predict(data, costs=c),
        lambda p, c: fit.predict_batches(data, costs=c),
        lambda p, c: fit.evaluate(data, priors=p),
        lambda p, c: fit.evaluate(data, costs=c),
        lambda p, c: fit.score(data, priors=p),
        lambda p, c: fit.with_priors(p),
    ]


def test_every_verb_asks_for_names_where_groups_are_sorted(table, tmp_path):
    for kind, fit in fits_of(table).items():
        fit.save(tmp_path / kind)
        for each in (fit, bbl.load(tmp_path / kind)):
            for use in uses(each, table):
                with pytest.raises(OptionError, match=NAMES_NEEDED):
                    use([0.1, 0.9], [[0, 1], [5, 0]])
    for verb in (
        lambda p: bbl.bbl("y ~ x", table, method="naive", priors=p),
        lambda p: bbl.networks.bnc("nb", "y ~ x", table, priors=p),
    ):
        with pytest.raises(OptionError, match=NAMES_NEEDED):
            verb([0.1, 0.9])
        assert verb({"sick": 0.1, "healthy": 0.9}).priors.tolist() == [0.9, 0.1]
    cv = bbl.crossVal("y ~ x", table, method="naive", nfold=2, verbose=0)
    for named in ({"priors": [0.1, 0.9]}, {"costs": [[0, 1], [5, 0]]}):
        with pytest.raises(OptionError, match=NAMES_NEEDED):
            cv.evaluate(**named)


@pytest.mark.long
def test_every_verb_takes_numbers_in_the_declared_order(table, tmp_path):
    declared = table.assign(y=pd.Categorical(table["y"], ["sick", "healthy"]))
    for kind, fit in fits_of(declared).items():
        fit.save(tmp_path / kind)
        for each in (fit, bbl.load(tmp_path / kind)):
            named = each.predict(declared, "prob", priors={"sick": 0.1, "healthy": 0.9})
            pd.testing.assert_frame_equal(each.predict(declared, "prob", priors=[0.1, 0.9]), named)
            for use in uses(each, declared):
                use([0.1, 0.9], [[0, 1], [5, 0]])
    given = bbl.bbl(
        "y ~ x", table, method="naive", xlevels={"y": ["sick", "healthy"]}, priors=[0.1, 0.9]
    )
    assert given.labels.groups == ("sick", "healthy") and given.priors.tolist() == [0.1, 0.9]


def test_shares_of_drawn_rows_need_names_too(table):
    fit = bbl.bbl("y ~ x", table, method="naive")
    with pytest.raises(OptionError, match="groups has " + NAMES_NEEDED):
        fit.sample(10, groups=[1, 0])
    assert set(fit.sample(10, groups={"sick": 1, "healthy": 0}, seed=1)["y"]) == {"sick"}


def test_weights_of_classes_are_by_name_in_estimators(table):
    from bbl.sklearn import BBLClassifier

    fit = BBLClassifier(method="naive", class_weight={"sick": 3.0}).fit(table[["x"]], table["y"])
    np.testing.assert_allclose(fit.result_.priors, [0.25, 0.75])
