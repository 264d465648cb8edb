"""Any new data into `predict` of a fitted model."""

import datetime
from functools import cache

import numpy as np
import pandas as pd

import bbl

TRAIN = {
    "y": ["u", "v", "w", "u", "v", "w", "u", "v"] * 3,
    "text": ["a", "b", "c", "a", "c", "b", "b", "é"] * 3,
    "number": [0, 1, 2, 2, 1, 0, 1, 300] * 3,
    "truth": [True, False, False, True, True, False, False, True] * 3,
}
ODD = (None, float("nan"), pd.NA, pd.NaT, "a", "z", "", "é", b"a", 0, 1, 2, 300, -1, 2**70, 1.0, 0.5, 1e300, True, False)
ODDER = (1j, [1], (1,), {}, datetime.date(2020, 1, 1), np.float32(1), np.datetime64("NaT"), float("inf"), "0", "True")
KINDS = (object, "category", "float64", "int64", "uint8", "bool", "str", "Int64", "boolean", "string")


@cache
def model():
    return bbl.bbl("y ~ .^2", pd.DataFrame(TRAIN), lambda_=0.1, lambdah=0.1)


def cells(source, name, n):
    """Draw the cells of a column: levels of the model, values that are no levels, or anything."""
    pool = TRAIN[name] if source.maybe(2) else (*TRAIN[name], *ODD, *(ODDER if source.maybe(4) else ()))
    return [source.pick(pool) for _ in range(n)]


def predict(source) -> None:
    """Predict a few rows; probabilities are probabilities, and every row has its answer."""
    fit = model()
    n = source.integer(0, 3)
    names = [name for name in ("text", "number", "truth") if not source.maybe(64)]
    data = {name: cells(source, name, n + source.maybe(64)) for name in names}
    unseen = source.pick(("raise", "ignore", "ignore", "bogus"))
    kind = source.pick(("prob", "link", "class", 1))
    if source.maybe(8):
        data = pd.DataFrame({k: pd.Series(v, dtype=object) for k, v in data.items()}, dtype=object)
        for name in names:
            try:
                data[name] = data[name].astype(source.pick(KINDS))
            except (TypeError, ValueError, OverflowError):  # not a value of that kind
                pass
    found = fit.predict(data, type=kind, unseen=unseen)
    assert len(found) == len(data["text"])
    if kind == "prob":
        p = found[["u", "v", "w"]].to_numpy()
        assert (p >= 0).all() and np.allclose(p.sum(axis=1), 1)
