"""Checks of arguments: names that are nearly right, R's names, and verbs that know their arguments."""

import inspect

import numpy as np
import pandas as pd
import pytest

import bbl
from bbl.checks import near_match, verb
from bbl.errors import BBLTypeError, OptionError

VERBS = [f for name in bbl.__all__ if inspect.isfunction(f := getattr(bbl, name))]
VERBS += [bbl.BBLResults.predict, bbl.BBLResults.summary, bbl.BBLResults.save, bbl.CVResults.predict]


def minimal(function):
    """Return arguments that let a verb get as far as its options."""
    if function is bbl.mlestimate:
        return ([[0, 1], [1, 0]],)
    if function is bbl.bicluster:
        return (None, [[1.0, 2.0], [2.0, 1.0]])
    return ("y ~ x", {"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5}) if function in (bbl.bbl, bbl.crossVal) else ()


@pytest.mark.parametrize("function", VERBS, ids=lambda f: f.__qualname__)
def test_no_verb_takes_an_argument_that_it_does_not_know(function):
    assert len(VERBS) > 12
    with pytest.raises(BBLTypeError, match="'nonsense'.*[Ii]ts (arguments|options): ") as caught:
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
    with pytest.raises(BBLTypeError, match=f"{given!r}.*; did you mean {meant!r}\\?"):
        function(*minimal(function), **{given: 1})


def test_an_engine_with_a_wrong_option_beside_it():
    data = {"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5}
    with pytest.raises(BBLTypeError, match="did you mean 'verbose'"):
        bbl.bbl("y ~ x", data, method=bbl.NaiveBayes(), progress_bar=1)
    with pytest.raises(BBLTypeError, match=r"Give prior_count to NaiveBayes\(\.\.\.\) itself"):
        bbl.bbl("y ~ x", data, method=bbl.NaiveBayes(), prior_count=1)


def test_names_that_are_near():
    assert near_match("Lambda", ["lambdah", "lambda_"]) == "; did you mean 'lambda_'?"
    assert near_match("PROGRESS.BAR", ["seed", "verbose"]) == "; did you mean 'verbose'?"
    assert near_match("progress_bar", ["seed", "progress_bars"]) == "; did you mean 'progress_bars'?"
    assert near_match("", ["a"]) == near_match("quite another", ["seed", 3, None]) == ""


def test_a_verb_keeps_its_name_signature_and_errors():
    @verb
    def halve(number: float, *, by: float = 2.0) -> float:
        """Divide."""
        return number / by

    assert halve(3.0, by=1.5) == 2.0 and halve.__doc__ == "Divide." and list(inspect.signature(halve).parameters)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        halve()
    with pytest.raises(ZeroDivisionError):
        halve(1.0, by=0.0)


@pytest.mark.parametrize("cv", [3, np.int64(3)])
def test_a_number_of_folds_is_called_nfold(cv):
    data = pd.DataFrame({"y": [0, 1] * 10, "x": [0, 0, 1, 1] * 5})
    with pytest.raises(OptionError, match="for 3 folds give nfold=3") as caught:
        bbl.crossVal("y ~ x", data, cv=cv)
    assert caught.value.argument == "cv"
