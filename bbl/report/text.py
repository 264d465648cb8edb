"""Text: calls, coefficients, cross-validation and samples, printed in R's layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.model.parameters import Parameters
from bbl.report.format import DIGITS, WIDTH, format_numbers, label_text, table_text, vector_text

__all__ = ["call_text", "cv_text", "fit_text", "group_text", "head_text", "missing_text", "sample_text"]

CALL_WIDTH = 60  # R starts a new line of a call after the argument that passes this column
SHOWN_LEVELS = 10
SHOWN_ROWS = 10  # predictors in the list of levels and in a sample's table
# of coefficients: all up to the first number, else few
ALL_OR_FEW = {"group": (4, 2), "predictor": (5, 3), "pair": (6, 3), "term": (6, 3)}


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as R prints it, broken into lines.

    Parameters
    ----------
    name : str
        Name of the function.
    arguments : mapping of str to object
        ``formula``, ``data`` and ``weights`` are shown as they are, other strings in quotes.

    Returns
    -------
    str

    Examples
    --------
    >>> print(call_text("bbl", {"formula": "y ~ a + b", "data": "data", "method": "mf", "eps": 0.5}))
    bbl(formula = y ~ a + b, data = data, method = 'mf', eps = 0.5)
    """
    lines, line = [], f"{name}("
    for k, (key, value) in enumerate(arguments.items()):
        if k:
            line += ","
        if len(line) > CALL_WIDTH + 1:
            lines.append(line)
            line = "   "
        line += f"{' ' if k else ''}{key} = {_argument(key, value)}"
    return "\n".join([*lines, line + ")"])


def _argument(key: str, value: Any) -> str:
    if isinstance(value, str):
        plain = " ".join(label_text(value.replace("\n", " ")).split())
        shown = plain if len(plain) <= 2 * WIDTH else plain[: 2 * WIDTH] + " ..."
        return shown if key in ("formula", "data", "weights") else repr(shown)
    if isinstance(value, list | tuple | np.ndarray):
        cells = [f"{v:.{DIGITS}g}" if isinstance(v, float) else str(v) for v in list(value)[:SHOWN_LEVELS]]
        return f"[{', '.join(cells)}{', ...' if len(value) > SHOWN_LEVELS else ''}]"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else label_text(value)


def _more(n: int, what: str) -> str:
    return f"... ({n} more {what}{'s' if n > 1 else ''})"


def _shown(n: int, what: str) -> tuple[int, list[str]]:
    """Return how many of `n` groups, predictors or pairs to print, and the line that stands for the rest."""
    most, n_few = ALL_OR_FEW[what]
    return (n, []) if n <= most else (n_few, [_more(n - n_few, what)])


def _some(labels: Sequence) -> str:
    shown = " ".join(label_text(x) for x in labels[:SHOWN_LEVELS])
    return shown if len(labels) <= SHOWN_LEVELS else f"{shown} ... ({len(labels)} in all)"


def head_text(call: str, labels: Labels) -> str:
    """Return what a printed fit and its summary begin with: the call, the predictors' levels, the responses.

    Parameters
    ----------
    call : str
        As made by `call_text`.
    labels : Labels

    Returns
    -------
    str
    """
    m = len(labels.names)
    lines = ["Call:", f" {call}", f" {m} predictor state{'s' if m > 1 else ''}:"]
    for name, levels in list(zip(labels.names, labels.levels, strict=True))[:SHOWN_ROWS]:
        lines.append(f"   {label_text(name)} = {_some(levels)}")
    if m > SHOWN_ROWS:
        lines.append("   " + _more(m - SHOWN_ROWS, "predictor"))
    if labels.response is not None:
        lines += [" Responses:", f"   {label_text(labels.response)} = {_some(labels.groups)}"]
    return "\n".join(lines)


def fit_text(call: str, labels: Labels, parameters: Parameters) -> str:
    """Return a fit as R prints it: call, levels, and the first fields and couplings.

    Parameters
    ----------
    call : str
        As made by `call_text`.
    labels : Labels
    parameters : Parameters
        Shown less the pooled ones (``dh``, ``dJ``), or as they are (``h``, ``J``) without a pooled fit.

    Returns
    -------
    str
    """
    layout, d = parameters.layout, "" if parameters.pooled is None else "d"
    K, more_groups = _shown(len(labels.groups), "group")
    m, more_predictors = _shown(layout.m, "predictor")
    n_terms = layout.n_terms
    P, more_terms = _shown(n_terms, "pair" if layout.order <= 2 else "term")
    theta = parameters.theta[:K] if parameters.pooled is None else parameters.theta[:K] - parameters.pooled
    names = [label_text(n) for n in labels.names]
    groups = ["" if labels.response is None else f"^({label_text(g)})" for g in labels.groups[:K]]
    parts = []
    for i in range(m):
        levels = labels.levels[i][1:]
        for g, group in enumerate(groups):
            values = vector_text(levels[:SHOWN_LEVELS], layout.table(theta[g], i)[:SHOWN_LEVELS])
            levels_line = "\n" + _more(len(levels) - SHOWN_LEVELS, "level") if len(levels) > SHOWN_LEVELS else ""
            parts.append(f"{d}h_[{names[i]}]{group}:\n{values}{levels_line}")
    parts += more_predictors
    for term in islice((tuple(term) for terms in layout.terms for term in terms.tolist()), P):
        for g, group in enumerate(groups):
            term_table = layout.table(theta[g], *term)
            first, *other_levels = (labels.levels[i][1:] for i in term)
            rows = (
                other_levels[0]
                if len(other_levels) == 1
                else [":".join(map(label_text, x)) for x in product(*other_levels)]
            )
            table = _coupling_text(term_table.reshape(len(term_table), -1), first, rows)
            parts.append(f"{d}J_[{','.join(names[i] for i in term)}]{group}:\n{table}")
    parts += more_terms + more_groups
    return f"{head_text(call, labels)}\n\nCoefficients:\n" + "\n\n".join(parts)


def group_text(
    h: Sequence[np.ndarray], J: Mapping[tuple[int, ...], np.ndarray], more: Mapping[str, Any] | None = None
) -> str:
    """Return fields and couplings of one group by level codes; couplings as the first predictor by the second.

    Parameters
    ----------
    h : sequence of ndarray, shape (L_i - 1,)
    J : mapping of (i, j) to ndarray, shape (L_i - 1, L_j - 1), and of terms of more predictors likewise
    more : mapping of str to object, optional
        What follows, a line each.

    Returns
    -------
    str

    Examples
    --------
    >>> print(group_text([[0.5], [1.0, 2.0]], {(0, 1): np.array([[0.25, 0.75]])}))
    h[0]:
      1
    0.5
    <BLANKLINE>
    h[1]:
    1 2
    1 2
    <BLANKLINE>
    J[0, 1]:
         1    2
    1 0.25 0.75
    """
    pairs = [pair for pair in J if pair[0] < pair[1] or pair[::-1] not in J]
    (m, more_predictors), (P, more_pairs) = _shown(len(h), "predictor"), _shown(len(pairs), "pair")
    parts = []
    for i in range(m):
        n_hidden = len(h[i]) - SHOWN_LEVELS
        values = vector_text(range(1, SHOWN_LEVELS + 1)[: len(h[i])], h[i][:SHOWN_LEVELS])
        parts.append(f"h[{i}]:\n{values}" + (f"\n{_more(n_hidden, 'level')}" if n_hidden > 0 else ""))
    parts += more_predictors
    for term in pairs[:P]:
        rows, *other_levels = (range(1, size + 1) for size in np.shape(J[term]))
        columns = other_levels[0] if len(other_levels) == 1 else [":".join(map(str, x)) for x in product(*other_levels)]
        table = np.reshape(J[term], (len(rows), -1))
        parts.append(f"J[{', '.join(map(str, term))}]:\n{_coupling_text(table, rows, columns)}")
    lines = [f"{name}: {_argument(name, value)}" for name, value in (more or {}).items()]
    return "\n\n".join([*parts, *more_pairs, *(["\n".join(lines)] if lines else [])])


def missing_text(policy: str, incomplete: int) -> str:
    """Return the treatment of missing values in words.

    Parameters
    ----------
    policy : {"drop", "level", "marginal"}
    incomplete : int
        Training observations with missing values.

    Returns
    -------
    str

    Examples
    --------
    >>> missing_text("drop", 3)
    '3 observations with missing values dropped'
    """
    if not incomplete:
        return "none"
    how = {"drop": " dropped", "level": ", which are levels of their own", "marginal": ", which are summed out"}
    return f"{incomplete} observation{'s' * (incomplete > 1)} with missing values{how[policy]}"


def _coupling_text(values: np.ndarray, rows: Sequence, columns: Sequence) -> str:
    n = SHOWN_LEVELS
    frame = pd.DataFrame(
        values[:n, :n], index=[label_text(x) for x in rows[:n]], columns=[label_text(x) for x in columns[:n]]
    )
    size_note = f"\n... ({len(rows)} x {len(columns)} levels in all)" if max(values.shape) > n else ""
    return table_text(frame) + size_note


def cv_text(frame: pd.DataFrame, best: float, maxscore: float, score: str | None = None) -> str:
    """Return a cross-validation as R prints it: the best setting, its score, and the table.

    Parameters
    ----------
    frame : DataFrame
        First the settings, then the scores.
    best : float
        The best setting.
    maxscore : float
        Its score.
    score : str, optional
        Name of the score, where it is not the usual one; "logloss" and "brier" are minimised.

    Returns
    -------
    str

    Examples
    --------
    >>> frame = pd.DataFrame({"epsilon": [0.1, 0.2], "AUC": [0.8523296, 0.8530829]}, index=[1, 2])
    >>> print(cv_text(frame, 0.2, 0.8530829))
    Optimal epsilon = 0.2
    Max. score: 0.8530829
    <BLANKLINE>
      epsilon       AUC
    1     0.1 0.8523296
    2     0.2 0.8530829
    """
    of = f" ({score})" if score in ("accuracy", "logloss", "brier", "pnll") else ""
    extremum = "Min." if score in ("logloss", "brier", "pnll") else "Max."
    lines = [
        f"Optimal {frame.columns[0]} = {format_numbers([best])[0]}",
        f"{extremum} score{of}: {format_numbers([maxscore])[0]}",
        "",
        table_text(frame),
    ]
    return "\n".join(lines)


def sample_text(xmax: pd.DataFrame, emax: pd.Series) -> str:
    """Return the configurations of highest energy as R prints them.

    Parameters
    ----------
    xmax : DataFrame
        Predictors by groups: a level each.
    emax : Series
        The energy of each group's configuration.

    Returns
    -------
    str

    Examples
    --------
    >>> xmax = pd.DataFrame({"No": ["Crew", "Male"], "Yes": ["1st", "Female"]}, index=["Class", "Sex"])
    >>> print(sample_text(xmax, pd.Series({"No": 5.13, "Yes": 0.0})))
    xmax:
          No   Yes
    Class Crew 1st
    Sex   Male Female
    <BLANKLINE>
    emax:
      No  Yes
    5.13 0.00
    """
    rows_line = "\n" + _more(len(xmax) - SHOWN_ROWS, "predictor") if len(xmax) > SHOWN_ROWS else ""
    table = table_text(xmax.iloc[:SHOWN_ROWS].astype(object), left=True)
    return f"xmax:\n{table}{rows_line}\n\nemax:\n{vector_text(emax.index, emax)}"
