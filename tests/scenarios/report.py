"""How a failure is shown: its scenario as plain Python, and the command that checks it again."""

from __future__ import annotations

import pandas as pd

from scenarios import build
from scenarios.laws import LAWS
from scenarios.scenario import Scenario, to_json

__all__ = ["shown_failure", "snippet"]

SHOWN = 40  # rows that are written out


def snippet(s: Scenario) -> str:
    """Return a scenario as plain Python."""
    table = build.make_table(s)
    frame = table.frame()
    lines = [
        "import numpy as np, pandas as pd, bbl",
        "nan, NA = np.nan, None",
        "d = pd.DataFrame({",
    ]
    if len(frame) > SHOWN:
        lines[2:] = [f"d = tests.scenarios.build.make_table(scenario).frame()  # {len(frame)} rows"]
    else:
        for name in frame:
            dtype = frame[name].dtype
            cells = [None if pd.isna(v) else v for v in frame[name].astype(object).tolist()]
            text = repr(cells)
            if str(dtype) == "category":
                cats, ordered = dtype.categories.tolist(), dtype.ordered
                text = f"pd.Categorical({text}, {cats!r}{', ordered=True' if ordered else ''})"
            elif str(dtype) not in ("str", "object", "int64", "bool", "float64"):
                text = f"pd.array({text}, dtype={str(dtype)!r})"
            lines.append(f"    {name!r}: {text},")
        lines.append("})")
    data = "d" if s.source == "pandas" else f"{s.source}(d)"
    options = build.arguments(s, table)
    weights = (
        "" if table.weights is None or "design" in options else f", weights={table.weight_name!r}"
    )
    text = ", ".join(f"{name}={value!r}" for name, value in options.items())
    formula = build.formula(s, table)
    function = {
        "bbl": "bbl.bbl(",
        "shooter": "bbl.shooter(",
        "average": f"average of {s.method}: (",
    }.get(s.family, f"bbl.networks.bnc({s.method!r}, ")
    lines.append(f"fit = {function}{formula!r}, {data}{weights}, {text})")
    return "\n".join(lines)


def shown_failure(s: Scenario, law: str, message: str) -> str:
    """Return a failure as text."""
    sentence = (
        LAWS[law].sentence
        if law in LAWS
        else "Every call is answered, or refused with an error of the package."
    )
    return "\n".join(
        [
            f"# {sentence}",
            f"# {message}",
            snippet(s),
            f"# python -m tests.scenarios --law {law} --record '{to_json(s)}'",
        ]
    )
