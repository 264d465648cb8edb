"""Sessions with a saved model: predict, evaluate, explain, explore, effects.

Errors name Python arguments such as ``keep=``; `bbl.__main__` replaces them with options when it
prints the errors.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pandas as pd

import bbl
from bbl.checks import near_match
from bbl.cli.messages import replace_arguments
from bbl.cli.options import option_names
from bbl.cli.output import (
    check_figure,
    check_readable,
    check_writable,
    draw_into_files,
    print_note,
    save_figure,
)
from bbl.cli.tables import (
    is_read_in_batches,
    list_missing_texts,
    list_model_levels,
    list_model_types,
    read_table,
)
from bbl.cli.training import drop_unknown_groups
from bbl.errors import DataError, DataWarning, LevelError, OptionError
from bbl.report.text import distinct_names
from bbl.results.classifier import ClassifierResults
from bbl.results.machine.density import DensityResults

__all__ = ["NewTable", "predict", "read_new", "run_saved"]

Model = ClassifierResults | DensityResults
# cells that usually mean a missing value; --na may have replaced the default texts of `read_table`
MARKER = re.compile(r"[^\w\s]+|NA|N/A|n/a|na|NULL|null|none|None|missing|unknown", re.ASCII)


class NewTable(NamedTuple):
    """New data for a saved model: the rows, and the columns that are copied to the result."""

    rows: pd.DataFrame
    copied: pd.DataFrame


def run_saved(args: argparse.Namespace) -> None:
    """Run the command in the parsed arguments on a saved model."""
    # some commands lack the options --plot, --report and --page
    if getattr(args, "plot", None) is not None:
        check_figure(args.plot)
    check_writable("report", getattr(args, "report", None))
    check_writable("page", getattr(args, "page", None))
    sessions = {
        "predict": predict,
        "evaluate": _evaluate,
        "explain": _explain,
        "explore": _explore,
        "effects": _effects,
    }
    if args.newdata is not None:
        check_readable(args.newdata)
    sessions[args.command](bbl.load(args.model), args)


def predict(fit: Model, args: argparse.Namespace, table: NewTable | None = None) -> None:
    """Print predictions for the rows of --newdata as CSV. For a model without classes, print
    log-probabilities.

    `table` is the --newdata table if it has been read already, because standard input can be read
    only once.
    """
    if is_read_in_batches(args.newdata) and isinstance(fit, ClassifierResults):
        if args.keep is not None:
            raise OptionError(
                f"keep requires a table in memory, but {args.newdata} is read in batches.",
                argument="keep",
                hint="Leave --keep out.",
            )
        header = True  # whether to print column names: before the first batch only
        for batch in fit.predict_batches(str(args.newdata), type=args.type, unseen=args.unseen):
            batch.to_csv(sys.stdout, index=False, lineterminator="\n", header=header)
            header = False
        return
    table = table or read_new(fit, args)
    # errors about unknown levels mention possible missing values
    with _marker_remedy(fit, table.rows, args):
        if isinstance(fit, ClassifierResults):
            result = fit.predict(table.rows, type=args.type, unseen=args.unseen)
        else:
            result = fit.score_samples(table.rows, unseen=args.unseen)
    _print_beside(table.copied, result)


def _evaluate(fit: Model, args: argparse.Namespace) -> None:
    """Print the evaluation of predictions, draw it to --plot, and write the report to --report."""
    if not isinstance(fit, ClassifierResults):
        raise OptionError("The model has no response, so there are no predictions to evaluate.")
    rows: Any = str(args.newdata)
    if is_read_in_batches(args.newdata):
        evaluation = fit.evaluate(rows, args.weights, unseen=args.unseen)
    else:
        rows = drop_unknown_groups(read_new(fit, args).rows, fit.design.response.name)
        # errors about unknown levels mention possible missing values
        with _marker_remedy(fit, rows, args):
            evaluation = fit.evaluate(rows, args.weights, unseen=args.unseen)
    if args.plot is not None:
        save_figure(lambda: _get_figure(evaluation.plot(args.kind)), args.plot)
    if args.report is not None:
        draw_into_files()
        fit.report(args.report, rows, args.weights)
        print_note(f"Report saved to {args.report}")
    text = str(evaluation)
    # the remedy names options
    options = {
        name: option
        for name, option in option_names().items()
        if name == "calibrate" or f"{name}='cv'" in text
    }
    print(replace_arguments(text, options))


def _explain(fit: Model, args: argparse.Namespace) -> None:
    """Print the contributions of terms to the log-odds of each row as CSV, and save a figure of one
    row's contributions to --plot.
    """
    if not isinstance(fit, ClassifierResults):
        raise OptionError("The model has no response, so there are no predictions to explain.")
    table = read_new(fit, args)
    group_pair = None if args.of is None else tuple(_find_group(fit, text) for text in args.of)
    if args.plot is not None and not 1 <= args.row <= len(table.rows):
        raise OptionError(
            f"row must be between 1 and {len(table.rows)}; got {args.row}.", argument="row"
        )
    # errors about unknown levels mention possible missing values
    with _marker_remedy(fit, table.rows, args):
        explanation = fit.explain(table.rows, of=group_pair, unseen=args.unseen)  # type: ignore[arg-type]  # a pair
    if args.plot is not None:
        save_figure(lambda: _get_figure(explanation.plot(args.row - 1)), args.plot)
    _print_beside(table.copied, explanation.frame)


def _explore(fit: Model, args: argparse.Namespace) -> None:
    """Write an interactive what-if page to --page."""
    print_note(f"{fit.explore(args.page)}")


def _effects(fit: Model, args: argparse.Namespace) -> None:
    """Print comparisons of levels as CSV, and draw them to --plot; notes are printed to standard
    error.
    """
    row_options: dict[str, Any] = {"grid": args.grid, "weights": args.weights}
    if args.newdata is not None:
        row_options["newdata"] = (
            str(args.newdata) if is_read_in_batches(args.newdata) else read_new(fit, args).rows
        )
    # predictors by their printed names
    names = {str(name): name for name in fit.labels.names}
    variables, by = (
        [names.get(text, text) for text in texts] if texts else None
        for texts in (args.variables, args.by)
    )
    bootstrap_options = {} if args.nboot is None else {"se": "bootstrap", "nboot": args.nboot}
    effects = fit.avg_comparisons(
        variables,
        contrast=args.contrast,
        transform=args.transform,
        by=by,
        cross=args.cross,
        seed=args.seed,
        **row_options,
        **bootstrap_options,
    )
    if args.plot is not None:
        save_figure(lambda: effects.plot()[0].figure, args.plot)
    print_note(replace_arguments(effects.note, option_names()))
    effects.frame.to_csv(sys.stdout, index=False, lineterminator="\n")


def read_new(fit: Model, args: argparse.Namespace) -> NewTable:
    """Return the --newdata table, with the column names and types of the model, and its --keep
    columns.
    """
    na_texts = list_missing_texts(args.na)
    copied_names = getattr(args, "keep", None) or []
    design = fit.design
    types: dict[Any, str] = dict.fromkeys(copied_names, "text") | list_model_types(design)
    rows = read_table(
        args.newdata, na_texts, types, list_model_levels(design), args.sep, args.decimal or "."
    )
    for name in copied_names:
        if name not in rows.columns:
            raise DataError(
                f"{args.newdata} has no column {name!r}. Its columns are "
                f"{', '.join(map(repr, rows.columns))}.",
                column=name,
                hint=f"{near_match(name, rows.columns)}Use one of its columns.",
            )
    copied = rows[copied_names]
    # column names in a CSV file are strings; the model's may have other types
    return NewTable(
        rows.rename(columns={str(f.name): f.name for f in (*design.predictors, design.response)}),
        copied,
    )


def _print_beside(copied: pd.DataFrame, result: pd.DataFrame | pd.Series) -> None:
    """Print a result as CSV after the `copied` columns of its rows; repeated names get an
    underscore.
    """
    frame = result.to_frame() if isinstance(result, pd.Series) else result
    names = distinct_names([*copied.columns, *frame.columns])
    joined = frame
    if len(copied.columns):
        # a result may have fewer rows, identified by their labels
        joined = pd.concat([copied.loc[frame.index], frame], axis=1)
    joined.columns = pd.Index(names, dtype=object)
    joined.to_csv(sys.stdout, index=False, lineterminator="\n")


def _find_group(fit: ClassifierResults, text: str) -> Any:
    """Return the model's group that is printed as `text`, or the text itself if there is none."""
    groups = {str(group): group for group in fit.labels.groups}
    return groups.get(text, text)


def _get_figure(axes: Any) -> Any:
    """Return the figure of an Axes, or of the first of several Axes."""
    return (axes if hasattr(axes, "figure") else axes[0]).figure


@contextmanager
def _marker_remedy(fit: Model, rows: pd.DataFrame, args: argparse.Namespace) -> Iterator[None]:
    """Look for cells of new data that are not levels of the model and usually represent a missing
    value.

    If predictions in the ``with`` block raise an error about an unknown level, the first such cell
    is added to the error. If they do not raise an error, because the model codes unknown levels as
    "(rare)", a warning reports the cell.
    """
    column_of_marker: dict[str, str] = {}  # the first column that contains each marker
    for factor in fit.design.predictors:
        if factor.name not in rows.columns:
            continue
        for cell in rows[factor.name].dropna().unique():
            if isinstance(cell, str) and MARKER.fullmatch(cell) and cell not in factor.levels:
                column_of_marker.setdefault(cell, str(factor.name))
    # --na replaces the default texts, so the hint repeats "NA" or the texts given before
    options = " ".join(
        f"--na {text}" for text in (["NA"] if args.na is None else args.na) + list(column_of_marker)
    )
    try:
        yield
    except LevelError as error:
        if not column_of_marker or error.argument != "newdata":
            raise
        raise LevelError(
            error.message,
            column=error.column,
            argument=error.argument,
            value=error.value,
            hint=f"If {next(iter(column_of_marker))!r} means a missing value, pass {options}.",
        ) from error
    if column_of_marker:
        marker, name = next(iter(column_of_marker.items()))
        warnings.warn(
            DataWarning(
                f"column {name!r} contains {marker!r}, which is not a level of the model.",
                column=name,
                value=marker,
                hint=f"If they are missing values, pass {options}.",
            ),
            stacklevel=2,
        )
