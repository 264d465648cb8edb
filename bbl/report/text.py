"""Printed forms of numbers, names, tables, calls, fits, cross-validations and modes (the most
probable configurations), in R's layout.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import pandas as pd

from bbl.design.labels import Labels
from bbl.model.parameters import Parameters
from bbl.model.scores import Slope, slopes

__all__ = [
    "DIGITS",
    "WIDTH",
    "call_text",
    "cv_head",
    "cv_text",
    "decimal_texts",
    "distinct_names",
    "fill",
    "fit_text",
    "format_column",
    "format_numbers",
    "group_text",
    "head_text",
    "label_index",
    "label_text",
    "missing_text",
    "p_texts",
    "sample_text",
    "slope_name",
    "statistic_texts",
    "table_text",
    "vector_text",
]


def distinct_names(names: Iterable[Hashable]) -> list[Any]:
    """Return the names, with trailing underscores that make repeated names distinct.

    The first of several equal names is kept. Callers should therefore list users' names before the
    package's own column names.

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


def fill(text: str, indent: str = "") -> str:
    """Break a string into lines of at most `WIDTH` characters, and indent all lines except the
    first by `indent`.

    Examples
    --------
    >>> print(fill("Coverage: " + "a well-known set " * 5, indent="    "))
    Coverage: a well-known set a well-known set a well-known set a well-known set a
        well-known set
    """
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def label_index(labels: Iterable, name: Hashable = None) -> pd.Index:
    """Return names or levels of any type as an index, which is numeric if all are numbers.

    A tuple is one label, not a row of a MultiIndex.
    """
    return pd.Index(list(labels), dtype=object, name=name, tupleize_cols=False).infer_objects()


DIGITS = 7  # significant digits, as R prints
WIDTH = 80  # characters of a line
INDENT = 3  # blanks before the cells of a row whose name is on the line above


def format_numbers(values: Iterable[float], digits: int = DIGITS) -> list[str]:
    """Format numbers as R prints a vector: all with the same number of decimals.

    Each number is rounded to `digits` significant digits, without trailing zeros. All numbers then
    have as many decimals as the one with the most. All numbers are in scientific notation if that
    is shorter.

    Examples
    --------
    >>> format_numbers([0.31397276768, 1.46507523897, 0.043380295630])
    ['0.3139728', '1.4650752', '0.0433803']
    >>> format_numbers([1e-05, 0.01])
    ['1e-05', '1e-02']
    """
    numbers = [float(v) for v in values]
    finite = [v for v in numbers if math.isfinite(v)]
    mantissas_exponents = [f"{abs(v):.{digits - 1}e}".split("e") for v in finite]
    n_significant = [
        max(len(mantissa.replace(".", "").rstrip("0")), 1) for mantissa, _ in mantissas_exponents
    ]
    exponents = [int(e) for _, e in mantissas_exponents]
    # a number with s significant digits and exponent e needs s - 1 - e decimals
    decimals = max(
        0, max((s - 1 - e for s, e in zip(n_significant, exponents, strict=True)), default=0)
    )
    max_significant = max(n_significant, default=1)
    # width of the longest number in either notation: digits, a point if needed, and an exponent
    # such as e-05 or e+100
    fixed_width = max((e for e in exponents if e > 0), default=0) + 1 + decimals + (decimals > 0)
    exponent_width = max((4 + (abs(e) >= 100) for e in exponents), default=0)
    scientific_width = max_significant + (max_significant > 1) + exponent_width
    use_fixed = fixed_width <= scientific_width or not finite
    style = f".{decimals}f" if use_fixed else f".{max_significant - 1}e"
    return [f"{v:{style}}" if math.isfinite(v) else _non_finite_text(v) for v in numbers]


def p_texts(values: Iterable[float], digits: int = 3) -> list[str]:
    """Format each p-value to `digits` significant digits. A missing p-value is formatted as "".

    Examples
    --------
    >>> p_texts([1.562274e-25, 0.97241379, 0.00054701968, float("nan")])
    ['1.56e-25', '0.972', '0.000547', '']
    """
    return ["" if math.isnan(v) else f"{v:.{digits}g}" for v in values]


def statistic_texts(values: Iterable[float], digits: int = 4) -> list[str]:
    """Format statistics with a common number of decimals: at most as many as the largest statistic
    has with `digits` significant digits. A missing statistic is formatted as "".

    Examples
    --------
    >>> statistic_texts([26.31548, float("nan"), 3.4])
    ['26.32', '', '3.40']
    """
    numbers = [float(v) for v in values]
    largest = max((abs(v) for v in numbers if math.isfinite(v)), default=0.0)
    decimals = max(0, digits - 1 - (math.floor(math.log10(largest)) if largest > 0 else 0))
    return decimal_texts(numbers, decimals)


def decimal_texts(values: Iterable[float], decimals: int) -> list[str]:
    """Format numbers with a fixed number of decimals. A missing number is formatted as "".

    Examples
    --------
    >>> decimal_texts([0.54321, float("nan"), -1], 2)
    ['0.54', '', '-1.00']
    """
    return [
        "" if math.isnan(v) else f"{v:.{decimals}f}" if math.isfinite(v) else _non_finite_text(v)
        for v in map(float, values)
    ]


def _non_finite_text(v: float) -> str:
    """Return a non-finite number in R's format."""
    return "NaN" if math.isnan(v) else "Inf" if v > 0 else "-Inf"


def label_text(label: object) -> str:
    """Return a name or a level as one line of text without control characters."""
    text = str(label)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _width(text: str) -> int:
    """Return the number of terminal columns of a string: 2 for a wide character, and 0 for a
    combining one.
    """
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    # 0: not a combining character
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _pad(text: str, width: int, left: bool = False) -> str:
    """Pad a string with blanks on the left or, with `left`, on the right, to `width` characters."""
    space = " " * (width - _width(text))
    return text + space if left else space + text


def _table_lines(
    row_names: Sequence[str], columns: Sequence[Sequence[str]], left: bool = False
) -> list[str]:
    """Return the lines of a table.

    Columns that do not fit into `WIDTH` follow below, with the row names repeated, unless they fit
    when long row names are placed on separate lines. The first row name and the first text of each
    column form the heading. `left` left-aligns the cells.
    """
    name_width = max(map(_width, row_names), default=0)
    widths = [max(map(_width, column)) for column in columns]
    lines = []
    # all columns fit side by side if long names get a line of their own, above their cells
    all_columns = INDENT + sum(widths) + len(widths)
    if len(widths) > 1 and all_columns <= WIDTH < name_width + sum(widths) + len(widths):
        for row, name in enumerate(row_names):
            cells = [_pad(columns[c][row], widths[c], left) for c in range(len(columns))]
            lines += [name] * bool(name) + [" ".join([" " * INDENT, *cells]).rstrip()]
        return lines
    # columns begin..end-1 fit side by side
    begin = 0
    while begin < len(columns):
        end = begin
        line_width = name_width
        while end < len(columns) and (
            end == begin or line_width + widths[end] + (line_width > 0) <= WIDTH
        ):
            line_width += widths[end] + (line_width > 0)  # a blank before the column
            end += 1
        for row, name in enumerate(row_names):
            cells = [_pad(columns[c][row], widths[c], left) for c in range(begin, end)]
            lines.append(
                " ".join(
                    ([_pad(name, name_width, left=True)] if name_width else []) + cells
                ).rstrip()
            )
        begin = end
    return lines


def vector_text(names: Iterable, values: Iterable[float]) -> str:
    """Return a named vector as R prints it: names above numbers, all padded to one width."""
    cells = format_numbers(values)
    headings = [label_text(name) for name in names]
    width = max(map(_width, [*cells, *headings]))
    columns = [(_pad(h, width), _pad(c, width)) for h, c in zip(headings, cells, strict=True)]
    return "\n".join(_table_lines(["", ""], columns))  # without names of the two rows


def format_column(column: pd.Series) -> list[str]:
    """Return the cells of a column: floats with a common number of decimals, others as text."""
    if pd.api.types.is_float_dtype(column.dtype):
        return format_numbers(column)
    return [label_text(v) for v in column]


def table_text(frame: pd.DataFrame, left: bool = False) -> str:
    """Return a table as R prints a data frame, with a common number of decimals in each column;
    `left` left-aligns the cells.
    """
    names = ["", *map(label_text, frame.index)]
    columns = [
        [label_text(c), *format_column(frame.iloc[:, k])] for k, c in enumerate(frame.columns)
    ]
    return "\n".join(_table_lines(names, columns, left))


CALL_WIDTH = 60  # R breaks a call after the argument that exceeds this column
SHOWN_LEVELS = 10  # printed levels of a predictor
SHOWN_ROWS = 10  # printed predictors in the list of levels and in the table of modes
# a pair (a, b) for each kind of item: up to a items are all printed; of a longer list, only b
ALL_OR_FEW = {"group": (4, 2), "predictor": (5, 3), "pair": (6, 3), "term": (6, 3)}


def argument_texts(arguments: Mapping[str, Any]) -> list[str]:
    """Return arguments as they appear in a printed call.

    Examples
    --------
    >>> argument_texts({"method": "mf", "eps": 0.5})
    ["method = 'mf'", 'eps = 0.5']
    """
    return [f"{name} = {_argument_text(name, value)}" for name, value in arguments.items()]


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in the form printed by R, broken into lines.

    Parameters
    ----------
    name : str
        Name of the function.
    arguments : mapping of str to object
        Values by name; strings are quoted, except for ``formula``, ``data``, ``weights`` and
        ``design``.

    Examples
    --------
    >>> print(
    ...     call_text("bbl", {"formula": "y ~ a + b", "data": "data", "method": "mf", "eps": 0.5})
    ... )
    bbl(formula = y ~ a + b, data = data, method = 'mf', eps = 0.5)
    """
    # complete lines, and the line being filled
    lines = []
    line = f"{name}("
    for k, argument in enumerate(argument_texts(arguments)):
        if k:
            line += ","
        if len(line) > CALL_WIDTH + 1:  # 1: the comma
            lines.append(line)
            line = "   "
        line += f"{' ' if k else ''}{argument}"
    return "\n".join([*lines, line + ")"])


def _argument_text(key: str, value: Any) -> str:
    """Return the value of the argument `key` as text; long strings and lists are truncated."""
    if isinstance(value, str):
        one_line = " ".join(label_text(value.replace("\n", " ")).split())
        text = one_line if len(one_line) <= 2 * WIDTH else one_line[: 2 * WIDTH] + " ..."
        return text if key in ("formula", "data", "weights", "design") else repr(text)
    if isinstance(value, list | tuple | np.ndarray):
        cells = [
            f"{v:.{DIGITS}g}" if isinstance(v, float) else str(v)
            for v in list(value)[:SHOWN_LEVELS]
        ]
        return f"[{', '.join(cells)}{', ...' if len(value) > SHOWN_LEVELS else ''}]"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else label_text(value)


def _omitted_text(n: int, noun: str) -> str:
    """Return the line that replaces `n` items that are not printed."""
    return f"... ({n} more {noun}{'s' if n > 1 else ''})"


def _n_printed(n: int, noun: str) -> tuple[int, list[str]]:
    """Return how many of `n` items to print according to `ALL_OR_FEW`, and the line that replaces
    the others.

    The line is in a list, which is empty if all items are printed. `noun` is a key of `ALL_OR_FEW`.
    """
    all_up_to, n_few = ALL_OR_FEW[noun]
    return (n, []) if n <= all_up_to else (n_few, [_omitted_text(n - n_few, noun)])


def _levels_text(levels: Sequence) -> str:
    """Return the first `SHOWN_LEVELS` levels, and the number of levels if there are more."""
    text = " ".join(label_text(x) for x in levels[:SHOWN_LEVELS])
    return text if len(levels) <= SHOWN_LEVELS else f"{text} ... ({len(levels)} in all)"


def head_text(call: str, labels: Labels) -> str:
    """Return the head of a printed fit or summary: the call (made by `call_text`), the levels of
    the predictors, and the responses.
    """
    m = len(labels.names)
    lines = ["Call:", f" {call}", f" {m} predictor state{'s' if m > 1 else ''}:"]
    for i, (name, levels) in enumerate(zip(labels.names, labels.levels, strict=True)):
        if i == SHOWN_ROWS:
            lines.append("   " + _omitted_text(m - SHOWN_ROWS, "predictor"))
            break
        text = "number" if i in labels.numbers else _levels_text(levels)
        lines.append(f"   {label_text(name)} = {text}")
    if labels.response is not None:
        lines += [
            " Responses:",
            f"   {label_text(labels.response)} = {_levels_text(labels.groups)}",
        ]
    return "\n".join(lines)


def fit_text(
    call: str,
    labels: Labels,
    parameters: Parameters,
    thresholds: pd.Series | None = None,
    ranges: np.ndarray | None = None,
) -> str:
    """Return a fit as R prints it: the call (made by `call_text`), the levels, and the first
    fields and couplings.

    With a pooled fit, parameters are differences from it, printed as ``dh`` and ``dJ`` instead of
    ``h`` and ``J``. A model of an ordered response has `thresholds`. Its groups share one table of
    parameters, which is printed once. Couplings that are linear in level scores are printed as
    slopes ``theta`` per unit of the scores. The `ranges` (m,) of the scores are the same as in
    `slopes`.
    """
    layout = parameters.layout
    slopes_of: dict[tuple[int, ...], list[Slope]] = {}
    for slope in [] if ranges is None else slopes(layout, ranges):
        slopes_of.setdefault(slope.scope, []).append(slope)
    d = "" if parameters.pooled is None else "d"
    # K groups, m predictors and n_terms terms are printed; a line in a list replaces those that
    # are omitted, if any
    K, groups_line = _n_printed(len(labels.groups), "group")
    # numbers with a distribution have a single level, and no coefficients
    predictors = [
        i for i in range(layout.m) if i not in labels.numbers or len(labels.levels[i]) > 1
    ]
    m, predictors_line = _n_printed(len(predictors), "predictor")
    # (`order`: the largest number of predictors of a term)
    n_terms, terms_line = _n_printed(layout.n_terms, "pair" if layout.order <= 2 else "term")
    theta = (
        parameters.theta[:K]
        if parameters.pooled is None
        else parameters.theta[:K] - parameters.pooled
    )
    names = [label_text(n) for n in labels.names]
    # all parameters of a joint fit's reference group are zero and are not printed
    is_reference = (layout.size > 0) & (len(labels.groups) > 1) & ~theta.any(axis=1)
    is_reference &= parameters.pooled is None and not is_reference.all()
    group_suffixes = {
        g: "" if labels.response is None else f"^({label_text(group)})"
        for g, group in enumerate(labels.groups[:K])
        if not is_reference[g]
    }
    if thresholds is not None:
        group_suffixes = dict.fromkeys(list(group_suffixes)[:1], "")
        is_reference &= False  # no line about it
    blocks = []
    for i in predictors[:m]:
        levels = labels.levels[i][1:]
        for g, group_suffix in group_suffixes.items():
            values = vector_text(levels[:SHOWN_LEVELS], layout.table(theta[g], i)[:SHOWN_LEVELS])
            n_omitted = len(levels) - SHOWN_LEVELS
            levels_line = "\n" + _omitted_text(n_omitted, "level") if n_omitted > 0 else ""
            blocks.append(f"{d}h_[{names[i]}]{group_suffix}:\n{values}{levels_line}")
    blocks += predictors_line
    # `layout.terms`: for each order 2, 3, ..., the predictors of the terms, (terms, order)
    for term in islice((tuple(term) for terms in layout.terms for term in terms.tolist()), n_terms):
        rows, *other_levels = (labels.levels[i][1:] for i in term)
        columns = _joint_levels(other_levels)
        for g, group_suffix in group_suffixes.items():
            if term in slopes_of:
                blocks.append(
                    f"{d}theta_[{','.join(names[i] for i in term)}]{group_suffix}:"
                    f"{_slopes_text(slopes_of[term], theta[g], labels)}"
                )
                continue
            table = _coupling_text(layout.table(theta[g], *term), rows, columns)
            blocks.append(f"{d}J_[{','.join(names[i] for i in term)}]{group_suffix}:\n{table}")
    zero_groups = [
        f"All parameters of {label_text(labels.groups[g])} are zero: it is the reference group."
        for g in np.flatnonzero(is_reference)
    ]
    blocks += terms_line + groups_line + (zero_groups if group_suffixes else [])
    head = f"{head_text(call, labels)}\n\n"
    if thresholds is not None and len(thresholds):
        head += f"Thresholds:\n{vector_text(thresholds.index, thresholds)}\n\n"
    if labels.numbers and not blocks:  # all predictors are numbers, which have no coefficients
        return head.rstrip()
    return f"{head}Coefficients:\n" + "\n\n".join(blocks)


def slope_name(slope: Slope, labels: Labels) -> str:
    """Return the levels of a slope's nominal predictors as text, such as ``b=low``. The text is
    empty if the slope is linear in the scores of all predictors.
    """
    return ", ".join(
        f"{label_text(labels.names[i])}={label_text(labels.levels[i][level])}"
        for i, level in zip(slope.scope, slope.levels, strict=True)
        if level is not None
    )


def _slopes_text(term_slopes: list[Slope], theta: np.ndarray, labels: Labels) -> str:
    """Return the slopes of a term as text. A single slope without a name is on the same line as the
    term.
    """
    values = np.array([theta[slope.position] / slope.unit for slope in term_slopes])
    names = [slope_name(slope, labels) or "slope" for slope in term_slopes]
    if names == ["slope"]:
        return f" {vector_text(names, values).split()[-1]}"
    n_omitted = len(names) - SHOWN_LEVELS
    levels_line = "\n" + _omitted_text(n_omitted, "level") if n_omitted > 0 else ""
    return f"\n{vector_text(names[:SHOWN_LEVELS], values[:SHOWN_LEVELS])}{levels_line}"


def group_text(
    h: Sequence[np.ndarray],
    J: Mapping[tuple[int, ...], np.ndarray],
    diagnostics: Mapping[str, Any] | None = None,
) -> str:
    """Return the first fields and couplings of one group as text, with predictors and levels
    numbered.

    Parameters
    ----------
    h : sequence of ndarray, shape (L_i - 1,)
        Fields of predictor i.
    J : mapping of (i, j) to ndarray, shape (L_i - 1, L_j - 1); (i, j, k) likewise
        Couplings. Of the pairs (i, j) and (j, i), the one with i < j is printed. A term of three or
        more predictors has one key.
    diagnostics : mapping of str to object, optional
        Values by name, printed at the end, one per line.

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
    # (j, i) only without (i, j)
    terms = [term for term in J if term[0] < term[1] or term[::-1] not in J]
    m, predictors_line = _n_printed(len(h), "predictor")
    n_terms, terms_line = _n_printed(len(terms), "pair")
    blocks = []
    for i in range(m):
        n_omitted = len(h[i]) - SHOWN_LEVELS
        values = vector_text(range(1, SHOWN_LEVELS + 1)[: len(h[i])], h[i][:SHOWN_LEVELS])
        blocks.append(
            f"h[{i}]:\n{values}"
            + (f"\n{_omitted_text(n_omitted, 'level')}" if n_omitted > 0 else "")
        )
    blocks += predictors_line
    for term in terms[:n_terms]:
        rows, *other_levels = (range(1, size + 1) for size in np.shape(J[term]))
        table = _coupling_text(np.asarray(J[term]), rows, _joint_levels(other_levels))
        blocks.append(f"J[{', '.join(map(str, term))}]:\n{table}")
    lines = [
        f"{name}: {_argument_text(name, value)}" for name, value in (diagnostics or {}).items()
    ]
    pairs = [term for term in terms if len(term) == 2 and term[::-1] in J]
    # not symmetrised
    if any(not np.array_equal(J[i, j], np.asarray(J[j, i]).T, equal_nan=True) for i, j in pairs):
        terms_line = [
            *terms_line,
            "J[j, i] comes from the regression of j and differs from J[i, j].",
        ]
    return "\n\n".join([*blocks, *terms_line, *(["\n".join(lines)] if lines else [])])


def missing_text(policy: str, incomplete: int) -> str:
    """Describe the treatment of missing values.

    Parameters
    ----------
    policy : {"drop", "level", "marginal"}
    incomplete : int
        Number of training observations with missing values.

    Examples
    --------
    >>> missing_text("drop", 3)
    '3 observations with missing values dropped'
    """
    if not incomplete:
        return "none"
    treatment = {
        "drop": " dropped",
        "level": ", treated as separate levels",
        "marginal": ", averaged over",
    }
    return (
        f"{incomplete} observation{'s' * (incomplete > 1)} with missing values{treatment[policy]}"
    )


def _joint_levels(levels: Sequence[Sequence]) -> Sequence:
    """Return the levels of one predictor, or the joint levels of several predictors, joined by
    colons. The last predictor varies fastest.
    """
    return (
        levels[0] if len(levels) == 1 else [":".join(map(label_text, x)) for x in product(*levels)]
    )


def _coupling_text(couplings: np.ndarray, rows: Sequence, columns: Sequence) -> str:
    """Return couplings (L_i - 1, L_j - 1, ...) as a table with the levels `rows` and the (joint)
    levels `columns`.
    """
    # levels of the first predictor by the joint levels of the others
    n = SHOWN_LEVELS
    values = couplings.reshape(len(rows), -1)
    index = [label_text(x) for x in rows[:n]]
    header = [label_text(x) for x in columns[:n]]
    frame = pd.DataFrame(values[:n, :n], index=index, columns=header)
    size_note = (
        f"\n... ({len(rows)} x {len(columns)} levels in all)" if max(values.shape) > n else ""
    )
    return table_text(frame) + size_note


def cv_text(frame: pd.DataFrame, best: float, maxscore: float, score: str | None = None) -> str:
    """Return a cross-validation as R prints it: the best setting, its score, and the table.

    Parameters
    ----------
    frame : DataFrame
        Settings in the first column, then their scores.
    best, maxscore : float
        The best setting and its score.
    score : str, optional
        Name of the score; ``"logloss"``, ``"brier"`` and ``"pnll"`` are minimised, all others
        maximised.

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
    return f"{cv_head(frame, best, maxscore, score)}\n\n{table_text(frame)}"


def cv_head(frame: pd.DataFrame, best: float, maxscore: float, score: str | None = None) -> str:
    """Return the best setting and its score, the first two lines of `cv_text`."""
    # the AUC, R's score, is not named, as in R. "pnll": mean negative log pseudo-likelihood
    score_name = f" ({score})" if score in ("accuracy", "logloss", "brier", "pnll") else ""
    extremum = "Min." if score in ("logloss", "brier", "pnll") else "Max."
    score_text = f"{extremum} score{score_name}: {format_numbers([maxscore])[0]}"
    return f"Optimal {frame.columns[0]} = {format_numbers([best])[0]}\n{score_text}"


def sample_text(xmax: pd.DataFrame, emax: pd.Series) -> str:
    """Return the most probable configurations as R prints them.

    Parameters
    ----------
    xmax : DataFrame
        Level of each predictor (row) in the best configuration of each group (column).
    emax : Series
        Energy of that configuration, by group.

    Examples
    --------
    >>> xmax = pd.DataFrame(
    ...     {"No": ["Crew", "Male"], "Yes": ["1st", "Female"]}, index=["Class", "Sex"]
    ... )
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
    rows_line = (
        "\n" + _omitted_text(len(xmax) - SHOWN_ROWS, "predictor") if len(xmax) > SHOWN_ROWS else ""
    )
    table = table_text(xmax.iloc[:SHOWN_ROWS].astype(object), left=True)
    return f"xmax:\n{table}{rows_line}\n\nemax:\n{vector_text(emax.index, emax)}"
