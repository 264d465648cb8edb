"""Tables of the arrays in a model file: symbols of lengths, ranges, sums, and arrays that come
together.
"""

import re

import numpy as np
import pytest

from bbl.results.array_table import POSITIVE, ArraySpec, check_arrays, check_types

TABLE = {
    "codes": ArraySpec("u", ("n", "m"), required=False),
    "y": ArraySpec("i", ("n",), (-1, "K"), required="codes"),
    "orders": ArraySpec("i", ("terms",), (1, "m+1")),
    "offsets": ArraySpec("f", ("K+1",), required=False),
    "shares": ArraySpec("f", ("K",), POSITIVE, sum_tolerance=1e-6),
}
ARRAYS = {
    "codes": np.zeros((4, 3), dtype=np.uint8),
    "y": np.array([-1, 0, 1, 1]),
    "orders": np.array([1, 3]),
    "offsets": np.full(3, np.nan),
    "shares": np.array([0.25, 0.75]),
}


def test_arrays_of_the_table_are_admitted():
    check_arrays(ARRAYS, TABLE, K=2, m=3)
    check_arrays({name: ARRAYS[name] for name in ("orders", "shares")}, TABLE, K=2, m=3)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("y", np.array([0, 1, 1]), "the array 'y' is malformed"),
        ("y", np.array([0, 1, 1, 2]), "the array 'y' is malformed"),
        ("y", np.array([0, 1, 1, -2]), "the array 'y' is malformed"),
        ("y", np.zeros((4, 1), dtype=int), "the array 'y' is malformed"),
        ("y", None, "it lacks the array 'y'"),
        ("codes", np.zeros((4, 2), dtype=np.uint8), "the array 'codes' is malformed"),
        ("codes", np.zeros((4, 3), dtype=np.int8), "the array 'codes' is malformed"),
        ("orders", np.array([1, 4]), "the array 'orders' is malformed"),
        ("orders", None, "it lacks the array 'orders'"),
        ("offsets", np.zeros(2), "the array 'offsets' is malformed"),
        ("shares", np.array([0.25, 0.7]), "the array 'shares' is malformed"),
        ("shares", np.array([0.0, 1.0]), "the array 'shares' is malformed"),
        ("shares", np.array([np.nan, 1.0]), "the array 'shares' is malformed"),
        ("other", np.zeros(2), "this kind of model has no array 'other'"),
    ],
)
def test_other_arrays_are_refused(name, array, message):
    arrays = ARRAYS | {name: array}
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check_arrays({k: v for k, v in arrays.items() if v is not None}, TABLE, K=2, m=3)


def test_entries_have_their_types():
    check_types(
        {"call": "bbl()", "converged": True, "other": None}, {"call": str, "converged": bool}
    )
    with pytest.raises(ValueError, match="'n_iter' is malformed"):
        check_types({"n_iter": True}, {"n_iter": int})
