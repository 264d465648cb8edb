"""Sessions of the command line: the paper's example, a fit or cross-validation of a table, predictions, effects."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import bbl
from bbl.cli.options import engine_options
from bbl.cli.tables import MISSING_TEXTS, STDIN, in_batches, model_levels, model_types, read_table, read_training
from bbl.design.formula import parse
from bbl.design.frames import Frame
from bbl.errors import OptionError
from bbl.results.classifier import ClassifierResults
from bbl.results.machine.density import DensityResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["run"]

Model = ClassifierResults | DensityResults
TrainingInput = Frame | pd.DataFrame | str  # a table, or the path of data that are read in batches


def run(args: argparse.Namespace) -> None:
    """Check files and options, and run the session that the parsed arguments describe."""
    if "transform" in args:
        _effects(bbl.load(args.model), args)
        return
    if "model" in args:
        _check_readable(args.newdata)
        _predict(bbl.load(args.model), args)
        return
    _check_writable("save", args.save)
    _check_writable("report", args.report)
    if args.formula is None:
        path = args.plot or Path("titanic.png")
        _check_figure(path)
        titanic_session(path)
        return
    if args.plot is not None:
        _check_figure(args.plot)
    if args.newdata is not None:
        _check_readable(args.newdata)
        if args.newdata == args.data == STDIN:
            raise OptionError("DATA and --newdata cannot both be standard input.", argument="newdata")
    user_session(args)


def user_session(args: argparse.Namespace) -> None:
    """Fit or cross-validate a model on the user's table; then save, draw, report and predict as the options say."""
    data: TrainingInput
    if in_batches(args.data):
        for name in ("dtype", "na", "bin", "lump"):
            if getattr(args, name) is not None:
                text = f"{name}= is of tables in memory, and {args.data} is read in batches. Prepare the files first."
                raise OptionError(text, argument=name)
        data = str(args.data)
    else:
        types = dict(args.dtype or [])
        if args.weights is not None:
            types.setdefault(args.weights, "number")
        data = _bin_and_lump(args, read_training(args.data, _missing_texts(args), types))
    if args.learner is not None:
        _finish(args, *_fit_network(args, data))
        return
    names = ("missing", "novarOk", "log_z", "calibrate", "seed", "n_jobs")
    fit_options: dict[str, Any] = {name: getattr(args, name) for name in names} | engine_options(args)
    shown: dict[str, Any]  # values to print, or functions that return them, by title
    fit: Any
    if args.cv:
        fit_options |= {name: getattr(args, name) for name in ("nfold", "score") if getattr(args, name) is not None}
        cv = bbl.crossVal(args.formula, data, args.weights, args.method, shuffle=args.shuffle, **fit_options)
        fit, shown, plot = cv.model, {"cv": cv}, cv.plot
    else:
        fit = bbl.bbl(args.formula, data, args.weights, args.method, **fit_options)
        shown, plot = {"fit": fit, "fit.summary()": fit.summary}, fit.plot
    _finish(args, fit, shown, lambda: np.atleast_1d(np.asarray(plot(), dtype=object))[0].figure)


def _bin_and_lump(args: argparse.Namespace, data: Frame) -> TrainingInput:
    """Return the table with numbers binned (--bin) and rare levels lumped (--lump)."""
    if args.bin is None and args.lump is None:
        return data
    exclude = {} if args.weights is None else {args.weights: "the weights"}
    response = parse(args.formula, tuple(data.columns), exclude).response
    table: Frame | pd.DataFrame = data
    if args.bin is not None:
        table = bbl.bin(table, method=args.bin[0], bins=args.bin[1], response=response, weights=args.weights)
    if args.lump is not None:
        table = bbl.lump(table, min_count=args.lump, response=response, weights=args.weights)
    return table


def _fit_network(
    args: argparse.Namespace, data: TrainingInput
) -> tuple[ClassifierResults, dict[str, Any], Callable[[], Figure]]:
    """Fit a Bayesian network classifier; return it, the values to print by title, and a function that draws it."""
    smooth = 0.0 if args.smooth is None else args.smooth
    fit = bbl.networks.bnc(
        args.learner, args.formula, data, smooth, missing=args.missing, weights=args.weights, seed=args.seed
    )
    shown: dict[str, Any] = {"fit": fit, "fit.summary()": fit.summary}
    if args.cv:
        k, score = args.nfold or 10, args.score or "accuracy"
        scores = bbl.networks.cv(fit, data, k, score=score, n_jobs=args.n_jobs, weights=args.weights, seed=args.seed)
        shown = {f"cv (k = {k}, score = {score})": scores}
    return fit, shown, lambda: fit.plot().figure


def _finish(
    args: argparse.Namespace, fit: ClassifierResults | DensityResults, shown: dict[str, Any], draw: Callable[[], Figure]
) -> None:
    """Save, draw and report a fit; then print predictions of --newdata, or without it the `shown` values by title."""
    if args.save is not None:
        fit.save(args.save)
        note(f"The model is in {args.save}")
    if args.plot is not None:
        save_figure(draw, args.plot)
    if args.report is not None:
        _draw_into_files()
        fit.report(args.report)
        note(f"The report is in {args.report}")
    if args.newdata is None:
        for title, value in shown.items():
            show(title, value() if callable(value) else value)
    else:
        _predict(fit, args)


def titanic_session(path: Path) -> None:
    """Run the example of section 3.2 of the paper, and save its figure at `path`."""
    titanic = bbl.datasets.load_titanic()
    fit = bbl.bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")
    show('bbl("Survived ~ Class * Sex + Sex * Age", titanic, weights="Freq")', fit)
    show("fit.summary()", fit.summary())
    persons = titanic[["Class", "Sex", "Age"]].drop_duplicates().reset_index(drop=True)
    predicted = pd.concat([persons, fit.predict(persons, type="prob")], axis=1)
    show('fit.predict(persons, type="prob")', predicted.to_string(index=False))
    grid = 10 ** np.arange(-5, -1.9, 0.5)
    cv = bbl.crossVal("Survived ~ .^2", titanic, weights="Freq", lambda_=grid, lambdah=None, shuffle=True, seed=1)
    show('crossVal("Survived ~ .^2", titanic, weights="Freq", lambda_=grid, lambdah=None, shuffle=True, seed=1)', cv)
    save_figure(lambda: fit.plot()[0].figure, path)


def show(title: str, value: object) -> None:
    """Print a title and a value under it."""
    print(f"\n>>> {title}\n{value}")


def note(text: str) -> None:
    """Print a note on standard error, where it does not mix with results."""
    print(text, file=sys.stderr)


def _draw_into_files() -> None:
    """Make matplotlib draw into files, without a screen."""
    import matplotlib

    matplotlib.use("Agg")


def save_figure(draw: Callable[[], Figure], path: Path) -> None:
    """Call `draw` and save the figure that it returns."""
    _draw_into_files()
    draw().savefig(path, dpi=150)
    note(f"The figure is in {path}")


def _predict(fit: Model, args: argparse.Namespace) -> None:
    """Print predictions of the rows of --newdata as CSV; log-probabilities if the model has no classes."""
    if in_batches(args.newdata) and isinstance(fit, ClassifierResults):
        header = True
        for rows in fit.predict_batches(str(args.newdata), type=args.type, unseen=args.unseen):
            rows.to_csv(sys.stdout, index=False, lineterminator="\n", header=header)
            header = False
        return
    newdata = _read_for(fit, args)
    if isinstance(fit, ClassifierResults):
        rows = fit.predict(newdata, type=args.type, unseen=args.unseen)
    else:
        rows = fit.score_samples(newdata, args.unseen)
    rows.to_csv(sys.stdout, index=False, lineterminator="\n")


def _effects(fit: Model, args: argparse.Namespace) -> None:
    """Print comparisons of levels as CSV, and draw them into --plot; notes go to standard error."""
    if args.plot is not None:
        _check_figure(args.plot)
    rows: dict[str, Any] = {"grid": args.grid, "weights": args.weights}
    if args.newdata is not None:
        rows["newdata"] = _read_for(fit, args)
    names = {str(name): name for name in fit.labels.names}
    variables, by = ([names.get(x, x) for x in given] if given else None for given in (args.variables, args.by))
    refits = {} if args.nboot is None else {"se": "bootstrap", "nboot": args.nboot}
    effects = fit.avg_comparisons(
        variables, args.contrast, args.transform, by, cross=args.cross, seed=args.seed, **rows, **refits
    )
    if args.plot is not None:
        save_figure(lambda: effects.plot()[0].figure, args.plot)
    note(effects.note)
    effects.frame.to_csv(sys.stdout, index=False, lineterminator="\n")


def _read_for(fit: Model, args: argparse.Namespace) -> pd.DataFrame:
    """Return the table --newdata with columns of the types and names that the model knows."""
    _check_readable(args.newdata)
    newdata = read_table(args.newdata, _missing_texts(args), model_types(fit.design), model_levels(fit.design))
    return newdata.rename(columns={str(factor.name): factor.name for factor in fit.design.predictors})


def _missing_texts(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the texts of cells that mean a missing value (--na)."""
    return MISSING_TEXTS if args.na is None else ("", *args.na)


def _check_readable(path: Path) -> None:
    """Raise an OSError if a file cannot be opened; standard input and data read in batches are not checked."""
    if path != STDIN and not in_batches(path):
        with path.open("rb"):
            pass


def _check_writable(argument: str, path: Path | None) -> None:
    """Raise an OptionError if a file cannot be written at `path`."""
    if path is None:
        return
    folder = path.parent
    problem = ""
    if path.is_dir():
        problem = f"{str(path)!r} is a folder. Give the name of a file in it."
    elif not folder.is_dir():
        problem = f"there is no folder {str(folder)!r}. Make it first, or name another."
    elif not os.access(folder, os.W_OK):
        problem = f"the folder {str(folder)!r} does not let you write into it. Name another."
    if problem:
        raise OptionError(f"{argument}: {problem}", argument=argument)


def _check_figure(path: Path) -> None:
    """Raise an OptionError if matplotlib cannot write a figure of the type of `path`, or the file is not writable."""
    from matplotlib.backend_bases import FigureCanvasBase

    file_types = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in file_types:
        raise OptionError(
            f"plot: no figure can be written to {path.name!r}. Give a name that ends in "
            + ", ".join(f".{suffix}" for suffix in file_types[:-1])
            + f" or .{file_types[-1]}.",
            argument="plot",
        )
    _check_writable("plot", path)
