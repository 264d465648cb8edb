"""ResultState: pickling of estimators (by pickle, joblib or skops) with the fitted model as in a
model file.
"""

from __future__ import annotations

from typing import Any

from bbl.api.load import restored
from bbl.errors import BBLTypeError

__all__ = ["ResultState"]


class ResultState:
    """Mixin that pickles ``result_`` as plain text, numbers and arrays, in place of the package's
    objects.
    """

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with ``result_`` as a dict of what a model file holds: kind, meta
        and arrays.
        """
        attributes: Any = super().__getstate__()  # of scikit-learn's BaseEstimator
        state = dict(attributes)
        if "result_" in state:
            result = state["result_"]
            try:
                # a dict of plain values, and arrays by name
                meta, arrays = result._pack(store_data=True)
            except BBLTypeError:  # an engine that a user defined: pickled as an object
                return state
            state["result_"] = {"kind": result.kind, "meta": meta, "arrays": arrays}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes that `__getstate__` returned."""
        if isinstance(state.get("result_"), dict):
            # the object of the model file's content
            state = {**state, "result_": restored(**state["result_"])}
        super().__setstate__(state)  # type: ignore[misc]
