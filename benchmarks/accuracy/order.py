"""What a declared order of levels is worth: ``python -m benchmarks.accuracy.order``.

Tables of people and of measurements whose columns are ratings, amounts in classes or ages. Columns
all of whose levels are numbers, three or more, are declared to be in order, or nothing is; at most
3,000 rows of a table are dealt to five folds.
"""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bbl
from benchmarks.accuracy.tables import problems
from benchmarks.files import data_folder
from benchmarks.report import command, number, rows_of, table, update, write_page

TABLES = ("beps", "bfi_gender", "contraceptive", "fair", "german", "mammographic", "marketing")
MAX_ROWS = 3000
FITS = {  # name: method, options; "in order": whether the order is declared
    "auto, nominal": ("auto", {}, False),
    "auto, in order": ("auto", {}, True),
    "logistic, nominal": ("conditional", {"ordered": "nominal"}, True),
    "logistic, linear": ("conditional", {"ordered": "linear"}, True),
    "logistic, cumulative": ("conditional", {"ordered": "cumulative"}, True),
    "logistic, cv": ("conditional", {"ordered": "cv"}, True),
}
COLUMNS = ("set", "fit", "fold", "log_loss")
KEY = ["set", "fit", "fold"]


def is_number(text: str) -> bool:
    """Return whether a level is a number."""
    return text.replace(".", "", 1).removeprefix("-").isdigit()


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose columns of three or more numbers, missing values apart, are declared to
    be in order.
    """
    columns = {}
    for name, column in frame.items():
        levels = column.cat.categories
        if name != "class" and len(levels) > 2 and all(map(is_number, levels)):
            column = column.cat.reorder_categories(sorted(levels, key=float), ordered=True)
        columns[name] = column
    return pd.DataFrame(columns)


def run_split(
    name: str, frame: pd.DataFrame, fold: int, split: tuple, fit_name: str
) -> list[tuple]:
    """Return the row of one fit to one split."""
    method, options, is_declared = FITS[fit_name]
    frame = in_order(frame) if is_declared else frame
    train, new = (frame.iloc[rows].reset_index(drop=True) for rows in split)
    formula = "class ~ .^2" if method == "auto" else "class ~ ."
    options = (
        options if method == "auto" else {"ridge": "cv", "calibrate": "temperature", **options}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bbl.bbl(
            formula,
            train,
            method=method,
            missing="level",
            novarOk=True,
            verbose=0,
            n_jobs=1,
            **options,
        )
        known = new if method == "auto" else known_rows(fit, new)
        p = fit.predict(
            known.drop(columns="class"),
            type="prob",
            unseen="ignore" if method == "auto" else "raise",
        )
    p = np.clip(
        p.reindex(columns=new["class"].cat.categories, fill_value=0.0).to_numpy(float), 1e-15, None
    )
    log_loss = -np.log(p[np.arange(len(p)), known["class"].cat.codes] / p.sum(axis=1)).mean()
    print(f"{name} {fit_name} {fold}: {log_loss:.4f}", flush=True)
    return [(name, fit_name, fold, log_loss)]


def known_rows(fit: bbl.BBLResults, new: pd.DataFrame) -> pd.DataFrame:
    """Return the new rows all of whose levels the fit knows: conditional likelihood cannot leave
    out a predictor.
    """
    is_known = np.ones(len(new), dtype=bool)
    for name, levels in zip(fit.labels.names, fit.labels.levels, strict=True):
        is_known &= (
            new[name].isin(levels) | (new[name].isna() & ("(missing)" in levels))
        ).to_numpy()
    return new[is_known]


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page: mean log-losses by table and fit."""
    means = frame.pivot_table(index="set", columns="fit", values="log_loss")[list(FITS)]
    rows = [[name, *(number(v) for v in values)] for name, *values in means.itertuples()]
    rows.append([f"mean of {len(means)}", *(number(v) for v in means.mean())])
    return [
        "# Levels in order",
        "",
        "Out-of-fold log-loss, averaged over five folds, for tables with columns of ratings, ages "
        f"and binned amounts (at most {MAX_ROWS:,} rows each). Either all columns with three or "
        "more numbers are declared to be ordered, or none; in marketing, some of these are codes "
        "of nominal classes. `auto` includes all pairs; with a declared order, its conditional "
        "members use the cumulative coding. `logistic` is conditional likelihood without "
        "interactions, calibrated, with `ridge` chosen by cross-validation, on rows without new "
        "levels. The cumulative coding for `auto` was chosen on all of these tables except "
        "bfi_gender, fair and marketing. `python -m benchmarks.accuracy.order`",
        "",
        *table(["", *FITS], rows),
    ]


def main() -> None:
    """Run and write ``results/order.csv`` and ``order.md``."""
    args = command(__doc__, only=([], "tables that are run; all by default"))
    rng = np.random.default_rng(0)
    tasks = []
    for name, frame, _ in problems((data_folder() or Path()) / "data" / "tables"):
        if name not in (args.only or TABLES):
            continue
        frame = frame.iloc[rng.permutation(len(frame))[:MAX_ROWS]].reset_index(drop=True)
        folds = rng.permutation(len(frame)) % 5
        splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(5)]
        tasks += [
            (name, frame, k, split, fit_name) for fit_name in FITS for k, split in enumerate(splits)
        ]
    rows = rows_of(run_split, tasks, args.jobs, COLUMNS)
    if len(rows):
        update(
            args.out / "order.csv",
            rows,
            KEY,
            [(n, f, str(k)) for n in TABLES for f in FITS for k in range(5)],
        )
    print(write_page(args.out / "order.md", page(pd.read_csv(args.out / "order.csv"))).read_text())


if __name__ == "__main__":
    main()
