"""Command line: the paper's Titanic session, or the same steps on a file of the user's."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bbl
from bbl.errors import BBLError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bbl",
        description="Fit a Boltzmann Bayes learner; without arguments, the paper's Titanic session on shipped data.",
    )
    parser.add_argument("formula", nargs="?", help="for example 'Survived ~ Class * Sex + Sex * Age', or 'y ~ .^2'")
    parser.add_argument("data", nargs="?", type=Path, help="a CSV or Parquet file with the columns of the formula")
    parser.add_argument("--weights", metavar="COL", help="column of frequencies")
    parser.add_argument("--method", default="pseudo", help="pseudo (default), mf or naive")
    parser.add_argument("--lambda", dest="lambda_", type=float, help="penalty of couplings (pseudo)")
    parser.add_argument("--lambdah", type=float, help="penalty of fields (pseudo)")
    parser.add_argument("--eps", type=float, help="weight of the sample covariance (mf)")
    parser.add_argument("--missing", default="raise", help="missing values: raise (default), drop, level or marginal")
    parser.add_argument("--log-z", default="auto", help="auto (default), exact, pseudo, half, mf or ais")
    parser.add_argument(
        "--newdata", type=Path, metavar="FILE", help="predict the rows of this file, to standard output"
    )
    parser.add_argument("--save", type=Path, metavar="MODEL", help="write the fitted model to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the figure of the coefficients to this file")
    return parser


def read_table(path: Path) -> pd.DataFrame:
    """Return the table in a CSV or Parquet file."""
    return pd.read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else pd.read_csv(path)


def show(title: str, value: Any) -> None:
    """Print a heading and what belongs under it."""
    print(f"\n>>> {title}\n{value}")


def save_plot(fit: bbl.BBLResults, path: Path) -> None:
    """Save the figure of a fit's coefficients."""
    import matplotlib

    matplotlib.use("Agg")
    figure = fit.plot()[0].figure
    figure.savefig(path, dpi=150)
    print(f"\nThe figure is in {path}")


def titanic_session(path: Path) -> None:
    """Run the session of section 3.2 of the paper: print, summary, prediction, cross-validation, figure."""
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
    save_plot(fit, path)


def user_session(args: argparse.Namespace) -> None:
    """Fit the user's formula to the user's file; predict, save and draw what was asked for."""
    options = {k: getattr(args, k) for k in ("lambda_", "lambdah", "eps") if getattr(args, k) is not None}
    data = read_table(args.data)
    fit = bbl.bbl(args.formula, data, args.weights, args.method, missing=args.missing, log_z=args.log_z, **options)
    if args.newdata is None:
        show("fit", fit)
        show("fit.summary()", fit.summary())
    else:
        fit.predict(read_table(args.newdata), type="prob").to_csv(sys.stdout, index=False)
    if args.save is not None:
        fit.save(args.save)
    if args.plot is not None:
        save_plot(fit, args.plot)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; errors of the package become one line on stderr."""
    parser = _parser()
    args = parser.parse_args(argv)
    warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)  # type: ignore[assignment]
    if args.formula is None:
        titanic_session(args.plot or Path("titanic.png"))
        return 0
    if args.data is None:
        parser.error("give a CSV or Parquet file after the formula")
    try:
        user_session(args)
    except (BBLError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
