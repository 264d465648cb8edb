"""Checks of arguments: names that are nearly right, R's names, and verbs that know their
arguments.
"""

import dataclasses
import inspect
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.boltzmann.cross_fit import pop_grid
from bbl.checks import check_keywords, near_match
from bbl.engines import ENGINES
from bbl.errors import BBLTypeError, OptionError

VERBS = [f for name in bbl.__all__ if inspect.isfunction(f := getattr(bbl, name))]
VERBS += [
    bbl.BBLResults.predict,
    bbl.BBLResults.summary,
    bbl.BBLResults.save,
    bbl.CVResults.predict,
]


def minimal(function):
    """Return arguments that let a verb get as far as its options."""
    if function is bbl.mlestimate:
        return ([[0, 1], [1, 0]],)
    if function is bbl.du_process:
        return (3,)
    if function is bbl.bicluster:
        return (None, [[1.0, 2.0], [2.0, 1.0]])
    return (
        ("y ~ x", {"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5})
        if function in (bbl.bbl, bbl.crossVal)
        else ()
    )


@pytest.mark.parametrize("function", VERBS, ids=lambda f: f.__qualname__)
def test_no_verb_takes_an_argument_that_it_does_not_know(function):
    assert len(VERBS) > 12
    with pytest.raises(BBLTypeError, match="'nonsense'.*[Ii]ts (arguments|options) are ") as caught:
        function(*minimal(function), nonsense=1)
    assert caught.value.argument == "nonsense"


@pytest.mark.parametrize(
    ("function", "given", "meant"),
    [
        (bbl.bbl, "lambda", "lambda_"),
        (bbl.bbl, "Lambda", "lambda_"),
        (bbl.bbl, "lamda", "lambda_"),
        (bbl.bbl, "lambda_h", "lambdah"),
        (bbl.bbl, "progress_bar", "verbose"),
        (bbl.bbl, "progress.bar", "verbose"),
        (bbl.bbl, "prior.count", "prior_count"),
        (bbl.bbl, "novarok", "novarOk"),
        (bbl.bbl, "lz.half", "log_z"),
        (bbl.crossVal, "use.auc", "use_auc"),
        (bbl.crossVal, "storeOpt", "refit"),
        (bbl.crossVal, "lambda", "lambda_"),
        (bbl.mlestimate, "lambda", "lambda_"),
        (bbl.mcSample, "nstep", "nsteps"),
        (bbl.mcSample, "progress_bar", "verbose"),
        (bbl.sample_xi, "code.out", "code_out"),
        (bbl.randompar, "dist", "distr"),
        (bbl.readFasta, "row.names", "rownames"),
        (bbl.BBLResults.predict, "new_data", "newdata"),
        (bbl.BBLResults.summary, "prior.count", "prior_count"),
    ],
)
def test_the_argument_that_is_meant_is_named(function, given, meant):
    with pytest.raises(BBLTypeError, match=f"{given!r}.*. Hint: Did you mean {meant!r}\\?"):
        function(*minimal(function), **{given: 1})


def test_an_engine_with_a_wrong_option_beside_it():
    data = {"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5}
    with pytest.raises(BBLTypeError, match="Did you mean 'verbose'"):
        bbl.bbl("y ~ x", data, method=bbl.NaiveBayes(), progress_bar=1)
    with pytest.raises(BBLTypeError, match=r"Pass prior_count to NaiveBayes\(\.\.\.\) itself"):
        bbl.bbl("y ~ x", data, method=bbl.NaiveBayes(), prior_count=1)


def test_names_that_are_near():
    assert near_match("Lambda", ["lambdah", "lambda_"]) == "Did you mean 'lambda_'? "
    assert near_match("PROGRESS.BAR", ["seed", "verbose"]) == "Did you mean 'verbose'? "
    assert near_match("progress_bar", ["seed", "progress_bars"]) == "Did you mean 'progress_bars'? "
    assert near_match("", ["a"]) == near_match("quite another", ["seed", 3, None]) == ""


def test_a_verb_keeps_its_name_signature_and_errors():
    @check_keywords
    def halve(number: float, *, by: float = 2.0) -> float:
        """Divide."""
        return number / by

    assert (
        halve(3.0, by=1.5) == 2.0
        and halve.__doc__ == "Divide."
        and list(inspect.signature(halve).parameters)
    )
    with pytest.raises(TypeError, match="missing a required argument"):
        halve()
    with pytest.raises(ZeroDivisionError):
        halve(1.0, by=0.0)


@pytest.mark.parametrize("cv", [3, np.int64(3)])
def test_a_number_of_folds_is_called_nfold(cv):
    data = pd.DataFrame({"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5})
    with pytest.raises(OptionError, match="3 folds use nfold=3") as caught:
        bbl.crossVal("y ~ x", data, cv=cv)
    assert caught.value.argument == "cv"


def takes(make, value):
    try:
        make(value)
    except OptionError:
        return False
    return True


def numeric_options():
    """Return every numeric option of every engine, alone and as a grid of a cross-validation, and
    those of verbs.
    """
    data = {"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5, "z": [0, 1, 1, 0] * 5}
    found = {}
    for name, engine in ENGINES.items():
        for field in dataclasses.fields(engine):
            if type(field.default) is float:
                found[f"{name} {field.name}"] = lambda v, e=engine, o=field.name: e(**{o: v})
        if engine.tuned is not None:
            found[f"{name} grid"] = lambda v, e=engine: pop_grid(e, {e.tuned.option: [v]})
    found["bayes tau of horseshoe"] = lambda v: ENGINES["bayes"](prior="horseshoe", tau=v)
    shooter = partial(bbl.shooter, "y ~ x + z", data, order=2, verbose=0)
    found["shooter lambda_"] = lambda v: shooter(lambda_=v)
    found["shooter penalties"] = lambda v: shooter(lambda_=[v, v])
    found["level"] = lambda v: bbl.checks.share("level", v)
    found["unbounded"] = lambda v: bbl.checks.real("h0", v)
    found["smooth"] = lambda v: bbl.networks.bnc("nb", "y ~ .", data, v)
    return found


@pytest.mark.parametrize("option", numeric_options())
def test_the_range_that_an_error_tells_is_the_one_that_is_tested(option):
    make = numeric_options()[option]
    with pytest.raises(OptionError) as caught:
        make(float("nan"))
    text = str(caught.value)
    if "strictly between 0 and 1" in text:
        low, high, with_low, with_high = 0.0, 1.0, False, False
    else:
        left, low, high, right = re.search(
            r"must be in ([\[(])(\S+), (\S+?)([\])]); got", text
        ).groups()
        low, high, with_low, with_high = float(low), float(high), left == "[", right == "]"
    assert takes(make, low) == with_low and takes(make, high) == with_high
    for outside in (-np.inf, -1e300, low - 1.0, high + 1.0, np.inf):
        if not low <= outside <= high:
            with pytest.raises(OptionError) as again:
                make(outside)
            assert str(again.value).partition(";")[0] == text.partition(";")[0]


@pytest.mark.parametrize("verb", [bbl.bbl, bbl.crossVal])
def test_an_unknown_method_is_told_all_there_are(verb):
    data = {"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5}
    for method, error in (("nonsense", OptionError), ("Auto", OptionError), (3, BBLTypeError)):
        with pytest.raises(error, match=", ".join(map(repr, [*ENGINES, "auto"]))):
            verb("y ~ x", data, method=method)
    with pytest.raises(OptionError, match="Did you mean 'auto'"):
        verb("y ~ x", data, method="Auto")


def test_a_near_match_is_written_as_what_it_is():
    assert near_match("True", [False, True]) == "Did you mean True? "
    assert near_match("1", [0, 1]) == "Did you mean 1? "
    fit = bbl.bbl("y ~ x", {"y": [False, True] * 10, "x": [0, 0, 1, 1] * 5}, method="naive")
    with pytest.raises(KeyError, match=r"'True' is no.*group of this model\..*Did you mean True\?"):
        fit.coef().h["True"]


def test_a_formula_in_place_of_data_is_told():
    data = pd.DataFrame({"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5})
    fit = bbl.bbl("y ~ x", data, method="naive")
    verbs = [
        bbl.bbl,
        bbl.crossVal,
        bbl.shooter,
        bbl.bicluster,
        bbl.networks.nb,
        bbl.networks.tan_cl,
    ]
    for function in [*verbs, lambda a, b: bbl.networks.bnc("nb", a, b)]:
        with pytest.raises(
            BBLTypeError, match=r"formula must be a string .*got DataFrame\..*before the data"
        ):
            function(data, "y ~ x")
    for formula in ("y ~ x", "y ~ .^2", "~ x*y"):
        with pytest.raises(
            BBLTypeError,
            match=f"got the string {re.escape(repr(formula))}. Hint: Pass the formula first",
        ):
            bbl.bbl("y ~ x", formula)
    for newdata in ("a", ["a"], ["a", "b"]):
        for method in (fit.predict, fit.evaluate, fit.predict_batches):
            with pytest.raises(
                BBLTypeError, match=r"newdata must be .*got (the string 'a'\.|list\.|str\.)"
            ):
                method(newdata)
