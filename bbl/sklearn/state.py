"""ResultState: pickle estimators (by pickle, joblib or skops) without pickling the package's
objects.
"""

from __future__ import annotations

from typing import Any

from bbl.api.load import restored
from bbl.errors import BBLTypeError

__all__ = ["ResultState"]


class ResultState:
    """Mixin that pickles ``result_`` as plain text, numbers and arrays, like a model file."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes. ``result_`` is replaced by a dict with the kind, meta and arrays
        of its model file.
        """
        attributes: Any = super().__getstate__()  # of scikit-learn's BaseEstimator
        state = dict(attributes)
        if "result_" in state:
            result = state["result_"]
            try:
                # a dict of plain values, and arrays by name
                meta, arrays = result._pack(store_data=True)
            except BBLTypeError:  # a user-defined engine is pickled as an object
                return state
            state["result_"] = {"kind": result._kind, "meta": meta, "arrays": arrays}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes returned by `__getstate__`."""
        if isinstance(state.get("result_"), dict):
            # rebuild the object from the model file's contents
            state = {**state, "result_": restored(**state["result_"])}
        super().__setstate__(state)  # type: ignore[misc]
