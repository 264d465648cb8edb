"""Names that users chose, as labels of frames, and names of the package's columns that stand beside them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd

__all__ = ["distinct_names", "label_index"]


def distinct_names(names: Iterable[Hashable]) -> list[Any]:
    """Return names of which no two are equal: underscores are added to one that was there before.

    Whoever adds a column of the package to those that users named puts its name last, so that users' names stay.

    Examples
    --------
    >>> distinct_names(["No", "yhat", "yhat"])
    ['No', 'yhat', 'yhat_']
    """
    distinct: dict[Any, None] = {}
    for name in names:
        unique_name: Any = name
        while unique_name in distinct:
            unique_name = f"{unique_name}_"
        distinct[unique_name] = None
    return list(distinct)


def label_index(labels: Iterable, name: Hashable = None) -> pd.Index:
    """Return names or levels, of any kind, as an index; tuples are names, too."""
    return pd.Index(list(labels), dtype=object, name=name, tupleize_cols=False).infer_objects()
