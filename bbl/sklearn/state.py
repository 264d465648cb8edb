"""ResultState: what estimators hand to pickle, joblib and skops: their fitted model as the model file holds it."""

from __future__ import annotations

from typing import Any

from bbl.api.load import restored
from bbl.errors import BBLTypeError

__all__ = ["ResultState"]


class ResultState:
    """An estimator whose ``result_`` goes to other processes and files as plain text, numbers and arrays."""

    def __getstate__(self) -> dict[str, Any]:
        attributes: Any = super().__getstate__()  # of scikit-learn's BaseEstimator
        state = dict(attributes)
        if "result_" in state:
            result = state["result_"]
            try:
                meta, arrays = result.pack(store_data=True)
            except BBLTypeError:  # an engine that is not the package's own: as Python has it
                return state
            state["result_"] = {"kind": result.kind, "meta": meta, "arrays": arrays}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("result_"), dict):
            state = {**state, "result_": restored(**state["result_"])}
        super().__setstate__(state)  # type: ignore[misc]
