"""Labels of DataFrames: users' names and levels as an index, and distinct names of users' and the
package's columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import pandas as pd

__all__ = ["distinct_names", "label_index"]


def distinct_names(names: Iterable[Hashable]) -> list[Any]:
    """Return the names, each repeated name made distinct by trailing underscores.

    The first of equal names stays. So callers put the package's own column names after those of
    users.

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
    """Return names or levels of any type as an index, numeric if all are numbers.

    A tuple is one label, not a row of a MultiIndex.
    """
    return pd.Index(list(labels), dtype=object, name=name, tupleize_cols=False).infer_objects()
