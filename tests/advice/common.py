"""Tables, fits and a constructor of cases that the cases share."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import bbl
from advice.sites import Advice

RNG = np.random.default_rng(0)
CODES = RNG.integers(0, 2, (60, 3))
DATA = pd.DataFrame(CODES, columns=list("abc")).assign(
    y=np.where(RNG.random(60) < 0.3 + 0.4 * CODES[:, 0], "s", "t")
)
GAPS = DATA.astype(object).mask((np.arange(60) % 9 == 0)[:, None] & (np.arange(4) < 2))
SILENT = GAPS.assign(y=DATA["y"].mask(np.arange(60) % 7 == 3))
NUMBERS = DATA.assign(x=RNG.normal(size=60))
PEOPLE = DATA.assign(person=[f"p{i}" for i in range(60)])
CONSTANT = DATA.assign(d=1)
WEIGHTED = DATA.assign(n=1.5)
RATINGS = pd.DataFrame(
    [(u, m, float((u + m) % 3)) for u in range(8) for m in range(6)],
    columns=["user", "movie", "rating"],
)
SEEN = RATINGS[RATINGS["rating"] > 0]
NEW = DATA.drop(columns="y").assign(a=5).head(3)
QUIET = {"verbose": 0}


def fit(formula: str = "y ~ .^2", data: Any = DATA, **options: Any) -> Any:
    return bbl.bbl(formula, data, **options, **QUIET)


def shot(formula: str = "y ~ .", data: Any = DATA, **options: Any) -> Any:
    return bbl.shooter(formula, data, **options, **QUIET)


def blocks(
    formula: str = "rating ~ user*movie", data: Any = RATINGS, groups: Any = (2, 2), **options: Any
) -> Any:
    return bbl.bicluster(formula, data, groups, **options, **QUIET)


def blanks(call: Callable, also: tuple[str, ...] = ()) -> Advice:
    """Return the advice on missing values of a verb: two remedies, or three."""
    ending = (
        r"\(missing='level'\), or average over them \(missing='marginal'\)\.$"
        if also
        else r"\(missing='level'\)\.$"
    )
    return Advice(
        ending, call, tuple(lambda p=p: call(missing=p) for p in ("drop", "level", *also))
    )


FITTED = fit()
LONG = pd.DataFrame(np.random.default_rng(3).integers(0, 2, (150, 2)), columns=["a", "b"]).assign(
    x=range(150)
)
WIDE = pd.DataFrame(np.random.default_rng(2).integers(0, 2, (80, 40))).add_prefix("v")


def approximate() -> Any:
    return fit("y ~ a", method="pvi", testNull=True, draws=2, chains=20, n_iter=20).inference()


def case(says: str, fails: Callable[[], Any], *follows: Callable[[], Any]) -> Advice:
    """Return what a hint says, the call that has it, and the calls that follow it."""
    return Advice(says, fails, follows)


def survey_fit(**design: Any) -> Any:
    data = DATA.assign(w=1.0, h=np.arange(60) // 30, c=np.arange(60) // 5, r1=1.0, r2=1.0)
    return fit("y ~ a", data, method="naive", design=bbl.survey("w", **design))


def patched(name: str, value: Any, call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call with another value of the object that `name` gives, as "bbl.memory.LIMIT"."""

    def patched_call() -> Any:
        with mock.patch(name, value):
            return call()

    return patched_call


def in_folder(call: Callable[[Path], Any]) -> Callable[[], Any]:
    """Return a call of `call` with a new temporary folder."""

    def call_in_folder() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return call(Path(folder))

    return call_in_folder


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises `error`, in place of one that fails only on some computers."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail
