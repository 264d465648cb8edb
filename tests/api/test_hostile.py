"""What a hostile user does with fits: wrong names and values, copies, files, and weights too large
to draw.
"""

import pickle

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.errors import BBLTypeError, ClassError, DataError, FormulaError, LevelError, OptionError

RNG = np.random.default_rng(0)
DATA = pd.DataFrame(RNG.integers(0, 2, (120, 3)), columns=list("abc")).assign(
    y=np.repeat(["u", "v"], 60)
)
FIT = bbl.bbl("y ~ .^3", DATA, lambda_=(0.1, 0.2), verbose=0)
IN_ORDER = bbl.bbl("y ~ a + b", DATA, method="naive", xlevels={"y": ["u", "v"]}, verbose=0)
DENSITY = bbl.bbl("~ a + b + c + a:b", DATA, lambda_=0.1, verbose=0)


def test_a_fit_whose_tests_were_made_can_be_pickled():
    fit = bbl.bbl("y ~ .^2", DATA, lambda_=0.1, verbose=0)
    tests = [fit.interactions(of) for of in ("group", "pooled", ("u", "v"))]
    again = pickle.loads(pickle.dumps(fit))  # noqa: S301
    for of, wanted in zip(("group", "pooled", ("u", "v")), tests, strict=True):
        pd.testing.assert_frame_equal(again.interactions(of), wanted, check_exact=True)


@pytest.mark.long
def test_a_fit_with_one_penalty_an_order_tells_them_and_is_saved_with_them(tmp_path):
    assert "lambda_ = [0.1, 0.2]" in " ".join(FIT.call.split())
    same = bbl.bbl("y ~ .^3", DATA, lambda_=(0.1, 0.1), verbose=0)
    assert "lambda_ = [0.1, 0.1]" in " ".join(same.call.split())
    FIT.save(tmp_path / "fit.bbl", store_data=True)
    loaded = bbl.load(tmp_path / "fit.bbl")
    assert loaded.engine == FIT.engine and loaded.engine.lambda_ == (0.1, 0.2)
    assert str(loaded.summary()) == str(FIT.summary())
    pd.testing.assert_frame_equal(
        loaded.inference().table(), FIT.inference().table(), check_exact=True
    )


def test_permutations_of_more_rows_than_can_be_drawn_are_refused_and_other_tests_are_there():
    heavy = DATA.assign(w=10**9)
    fit = bbl.bbl("y ~ (a + b + c)^2", heavy, weights="w", verbose=0)
    with pytest.raises(DataError, match=r"at most 3e\+09 .*but a group has 6e\+10.*pvalues='auto'"):
        fit.interactions(pvalues="permutation", n=19, seed=0)
    assert fit.interactions()["p"].notna().all()
    # beyond numpy's draws
    three = bbl.bbl("y ~ (a + b + c)^2", DATA.assign(w=2 * 10**7), weights="w", verbose=0)
    assert (three.interactions(pvalues="permutation", n=9, seed=0)["p"] == 0.1).any()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: bbl.bbl("y ~ .", DATA, lambda_=()), OptionError, "lambda_ is empty"),
        (
            lambda: bbl.bbl("y ~ .^0", DATA),
            FormulaError,
            r"the exponent '0' is not an integer between 1 and 99",
        ),
        (lambda: bbl.bbl("y ~ (a + b)**0", DATA), FormulaError, "the exponent '0'"),
        (lambda: DENSITY.explain(DATA), ClassError, "explain.*requires classes"),
        (lambda: DENSITY.importance(), ClassError, "importance.*requires classes"),
        (
            lambda: FIT.plot(ax=None),
            BBLTypeError,
            "plot.* has no argument 'ax'. Hint: Did you mean 'axes'",
        ),
        (lambda: FIT.inference(level=0.9), BBLTypeError, "inference.* has no argument 'level'"),
        (lambda: FIT.inference().table(alpha=0.1), BBLTypeError, "table.* has no argument 'alpha'"),
        (lambda: FIT.conf_int(alphas=0.9), BBLTypeError, "Did you mean 'alpha'"),
        (lambda: FIT.evaluate().plot(kinds="roc"), BBLTypeError, "Did you mean 'kind'"),
        (lambda: DENSITY.sample(size=3), BBLTypeError, "sample.* has no argument 'size'"),
        (
            lambda: DENSITY.reconstruct(DATA, mask=[[True], [True, False]]),
            DataError,
            "mask must.*True and False",
        ),
        (
            lambda: FIT.sample(2, groups=[1, 1]),
            OptionError,
            "groups has values without group names",
        ),
        (lambda: IN_ORDER.sample(2, groups=[1]), OptionError, "groups must.*2 numbers"),
        (lambda: IN_ORDER.sample(2, groups=[0, 0]), OptionError, "groups must not all be zero"),
        (lambda: FIT.sample(2, groups={"u": 1}), OptionError, "groups has no entry for group 'v'"),
        (lambda: FIT.pnll(weights=np.ones(120)), OptionError, "weights requires newdata"),
        (lambda: FIT.evaluate(weights="w"), OptionError, "weights requires newdata"),
        (lambda: FIT.score(weights="w"), OptionError, "weights requires newdata"),
        (lambda: FIT.importance(weights="w"), OptionError, "weights requires newdata"),
        (lambda: FIT.plot(kind="roc", weights="w"), OptionError, "weights requires newdata"),
        (
            lambda: FIT.evaluate(level=1),
            OptionError,
            "level must be strictly between 0 and 1; got 1",
        ),
        (
            lambda: FIT.inference().table(level=1.0),
            OptionError,
            "level must be strictly between 0 and 1",
        ),
        (lambda: FIT.conf_int(alpha=0), OptionError, r"alpha must be in \(0, 0.5\]; got 0"),
        (
            lambda: FIT.evaluate(DATA.assign(y="x")),
            LevelError,
            "'y' has unknown levels.* Refit with these levels, or leave these rows",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_the_remedy(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_groups_of_a_sample_go_by_name():
    drawn = FIT.sample(20, seed=0, groups={"v": 3.0, "u": 0.0})
    assert (drawn["y"] == "v").all()
