"""Sessions of the command line: fits and cross-validation, and the paper's example (Woo & Wang
2022).

`args` are the parsed arguments; options that were not given are None or False.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import bbl
from bbl.cli.options import engine_options
from bbl.cli.output import (
    check_figure,
    check_readable,
    check_writable,
    draw_into_files,
    print_note,
    save_figure,
    show_titled,
)
from bbl.cli.saved import NewTable, predict, read_new, run_saved
from bbl.cli.tables import STDIN, is_read_in_batches
from bbl.cli.training import TrainingInput, drop_unknown_groups, read_training_input
from bbl.errors import OptionError
from bbl.results.classifier import ClassifierResults
from bbl.results.machine.density import DensityResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Check files and options, and run the requested session."""
    if "command" in args:  # commands on a saved model only
        run_saved(args)
        return
    check_writable("save", args.save)
    check_writable("report", args.report)
    if args.formula is None:  # no arguments
        path = args.plot or Path("titanic.png")
        check_figure(path)
        titanic_session(path)
        return
    if args.plot is not None:
        check_figure(args.plot)
    if args.newdata is not None:
        check_readable(args.newdata)
        if args.newdata == args.data == STDIN:
            raise OptionError(
                "DATA and --newdata cannot both be standard input.", argument="newdata"
            )
    user_session(args)


def user_session(args: argparse.Namespace) -> None:
    """Fit or cross-validate a model on the user's table; then save, draw, report and predict as
    requested.
    """
    data = read_training_input(args)
    if args.learner is not None:
        _deliver_results(args, *_fit_network(args, data))
        return
    names = (
        "missing",
        "novarOk",
        "log_z",
        "calibrate",
        "relevance",
        "numeric",
        "covariance",
        "seed",
        "n_jobs",
    )
    fit_options: dict[str, Any] = {name: getattr(args, name) for name in names} | engine_options(
        args
    )
    weights = args.weights
    if args.strata or args.cluster:
        design = bbl.survey(weights, strata=args.strata, cluster=args.cluster)
        # the design contains the weights
        fit_options = fit_options | {"design": design}
        weights = None
    shown: dict[str, Any]  # values to print, or functions that return them, by title
    fit: Any
    if args.cv:
        fit_options |= {
            name: getattr(args, name)
            for name in ("nfold", "score")
            if getattr(args, name) is not None
        }
        cv = bbl.crossVal(
            args.formula, data, weights, args.method, shuffle=args.shuffle, **fit_options
        )
        # cv.model: the fit at the best setting
        fit = cv.model
        shown = {"cv": cv}
        plot = cv.plot
    else:
        fit = bbl.bbl(args.formula, data, weights, args.method, **fit_options)
        shown = {"fit": fit, "fit.summary()": fit.summary}
        plot = fit.plot
    # plots return an Axes or an array of Axes of the same figure
    _deliver_results(
        args, fit, shown, lambda: np.atleast_1d(np.asarray(plot(), dtype=object))[0].figure
    )


def _fit_network(
    args: argparse.Namespace, data: TrainingInput
) -> tuple[ClassifierResults, dict[str, Any], Callable[[], Figure]]:
    """Fit a Bayesian network classifier; return it, the values to print by title, and a function
    that draws it.
    """
    smooth = 0.0 if args.smooth is None else args.smooth
    fit = bbl.networks.bnc(
        args.learner,
        args.formula,
        data,
        smooth,
        missing=args.missing,
        weights=args.weights,
        seed=args.seed,
    )
    shown: dict[str, Any] = {"fit": fit, "fit.summary()": fit.summary}
    if args.cv:
        # defaults of `networks.cv`
        n_folds = args.nfold or 10
        score = args.score or "accuracy"
        scores = bbl.networks.cv(
            fit,
            data,
            n_folds,
            score=score,
            n_jobs=args.n_jobs,
            weights=args.weights,
            seed=args.seed,
        )
        shown = {f"cv (k = {n_folds}, score = {score})": scores}
    return fit, shown, lambda: fit.plot().figure


def _deliver_results(
    args: argparse.Namespace,
    fit: ClassifierResults | DensityResults,
    shown: dict[str, Any],
    draw: Callable[[], Figure],
) -> None:
    """Save, draw and report a fit; then print predictions for --newdata, or otherwise the values
    `shown`.
    """
    if args.save is not None:
        fit.save(args.save, store_data=args.store_data)
        print_note(f"Model saved to {args.save}")
    if args.plot is not None:
        save_figure(draw, args.plot)
    table = None
    if args.report is not None:
        draw_into_files()
        # read here, for both report and predictions, because standard input can be read only once
        is_in_memory = args.newdata is not None and not is_read_in_batches(args.newdata)
        table = read_new(fit, args) if is_in_memory else None
        _report(args, fit, table)
        print_note(f"Report saved to {args.report}")
    if args.newdata is None:
        for title, value in shown.items():
            show_titled(title, value() if callable(value) else value)
    else:
        predict(fit, args, table)


def _report(
    args: argparse.Namespace, fit: ClassifierResults | DensityResults, table: NewTable | None
) -> None:
    """Write the report of a fit; the new `table` is used for evaluation if it contains the
    response.
    """
    if table is not None and isinstance(fit, ClassifierResults):
        rows = drop_unknown_groups(table.rows, fit.design.response.name)
        # notna: leave out rows of unknown group, unless all are unknown
        if (
            fit.design.response.name in rows.columns
            and rows[fit.design.response.name].notna().all()
        ):
            # the new table may lack the column of weights
            weights = args.weights if args.weights in rows.columns else None
            fit.report(args.report, rows, weights)
            return
    fit.report(args.report)


def titanic_session(path: Path) -> None:
    """Run the example of section 3.2 of Woo & Wang (2022), and save its figure to `path`."""
    titanic = bbl.datasets.load_titanic()
    fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    show_titled(
        "titanic = bbl.datasets.load_titanic()\n"
        'fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")',
        fit,
    )
    show_titled("fit.summary()", fit.summary())
    persons = titanic[["Class", "Sex", "Age"]].drop_duplicates().reset_index(drop=True)
    predicted = pd.concat([persons, fit.predict(persons, type="prob")], axis=1)
    show_titled(
        'persons = titanic[["Class", "Sex", "Age"]].drop_duplicates()\n'
        'fit.predict(persons, type="prob")',
        predicted.to_string(index=False),
    )
    grid = 10 ** np.arange(-5, -1.9, 0.5)
    cv = bbl.crossVal(
        "Survived ~ .^2", titanic, weights="Freq", lambda_=grid, lambdah=None, shuffle=True, seed=1
    )
    show_titled(
        "grid = 10 ** np.arange(-5, -1.9, 0.5)\n"
        'bbl.crossVal("Survived ~ .^2", titanic, weights="Freq", lambda_=grid, lambdah=None, '
        "shuffle=True, seed=1)",
        cv,
    )
    save_figure(lambda: fit.plot()[0].figure, path)
