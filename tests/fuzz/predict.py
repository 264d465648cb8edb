"""Any new data into prediction with a fitted model."""

import datetime
import warnings
from contextlib import suppress
from functools import cache

import numpy as np
import pandas as pd

import bbl
from bbl.design.values import KINDS, Column
from bbl.stats.metrics import link, log_probabilities

TRAIN = {
    "y": ["u", "v", "w", "u", "v", "w", "u", "v"] * 2,
    "text": ["a", "b", "c", "a", "c", "b", "b", "é"] * 2,
    "number": [0, 1, 2, 2, 1, 0, 1, 300] * 2,
    "truth": [True, False, False, True, True, False, False, True] * 2,
}
FRAMES = 256  # one input in so many is a whole frame, which takes pandas a hundred times as long
CELLS = (
    None,
    float("nan"),
    pd.NA,
    pd.NaT,
    "a",
    "z",
    "",
    "é",
    b"a",
    0,
    1,
    2,
    300,
    -1,
    2**70,
    1.0,
    0.5,
    1e9,
    True,
    "0",
)
ODD = (
    1j,
    [1],
    (1,),
    {},
    datetime.date(2020, 1, 1),
    np.float32(1),
    np.datetime64("NaT", "ns"),
    np.inf,
    pd.Interval(0, 1),
)
DTYPES = (
    object,
    "category",
    "float64",
    "int64",
    "uint8",
    "bool",
    "str",
    "Int64",
    "boolean",
    "string",
)


@cache
def model():
    return bbl.bbl("y ~ .^2", pd.DataFrame(TRAIN), lambda_=0.1, lambdah=0.1)


@cache
def model_of_a_fold():
    """Return a model whose last group has no training rows."""
    rows, w = np.arange(16), np.array(TRAIN["y"]) == "w"
    folds = [(rows[8:], rows[:8]), (rows[~w], rows[w])]
    with warnings.catch_warnings(action="ignore"):
        cv = bbl.crossVal(
            "y ~ .^2",
            pd.DataFrame(TRAIN),
            lambda_=0.1,
            lambdah=0.1,
            cv=folds,
            refit=False,
            verbose=0,
        )
    return cv.model


def predict(source) -> None:
    """Predict a few rows; probabilities are probabilities, and every row has its answer."""
    (whole if source.maybe(FRAMES) else coded)(source)


def coded(source) -> None:
    """Any distinct values and any codes into them, the way that columns of frames are seen."""
    fit = source.pick((model, model, model_of_a_fold))()
    n = source.integer(0, 3)
    codes = np.empty((n, 3), dtype=np.uint8)
    unknown = np.zeros((n, 3), dtype=bool)
    for i, factor in enumerate(fit.design.predictors):
        found = [(factor.kinds[0], v) for v in factor.levels]
        found += [
            (source.pick(KINDS), source.pick(("a", 0, 300, True, "z", 2**70, 0.5)))
        ] * source.integer(0, 1)
        values = [found[source.integer(0, len(found) - 1)] for _ in range(n)] or found
        column = Column(
            factor.name, np.arange(n), [v for _, v in values], [k for k, _ in values], False, False
        )
        codes[:, i], own = factor.encode(column, source.pick(("ignore", "raise", "ignore")))
        unknown[:, i] = False if own is None else own
    scores = fit._class_scores(codes, unknown if source.maybe(2) else None)
    p = np.exp(log_probabilities(scores))
    assert not np.isnan(link(scores)).any()
    assert (
        p.shape == link(scores).shape == (n, 3)
        and (p >= 0).all()
        and (abs(p.sum(axis=1) - 1) < 1e-9).all()
    )


def whole(source) -> None:
    """Frames and dicts of cells of any type."""
    n = source.integer(0, 3)
    names = [name for name in ("text", "number", "truth") if not source.maybe(64)]
    data = {}
    for name in names:
        pool = (
            TRAIN[name]
            if source.maybe(2)
            else (*TRAIN[name], *CELLS, *(ODD if source.maybe(4) else ()))
        )
        data[name] = [source.pick(pool) for _ in range(n + source.maybe(64))]
    if source.maybe(2):
        data = pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in data.items()}, dtype=object)
        for name in names:
            with suppress(TypeError, ValueError, OverflowError):  # not a value of that type
                data[name] = data[name].astype(source.pick(DTYPES))
    kind = source.pick(("prob", "link", "class", 1))
    with warnings.catch_warnings():
        # a column without a known level, of another type
        warnings.simplefilter("ignore", bbl.errors.DataWarning)
        found = model().predict(
            data, type=kind, unseen=source.pick(("raise", "ignore", "ignore", "bogus"))
        )
    assert len(found) == len(data["text"])
    if kind == "prob":
        p = found[["u", "v", "w"]].to_numpy()
        assert (p >= 0).all() and np.allclose(p.sum(axis=1), 1)
