"""Log-loss of ``method="auto"`` where no predictor tells groups apart: ``python -m
benchmarks.accuracy.noise``.

Tables of 300 rows of 30 predictors with two to four levels, and of two or three groups, all drawn
evenly and independently. The excess of a log-loss is over the entropy of the groups, ln K, which no
method can beat.
"""

import warnings

import numpy as np
import pandas as pd

import bbl
from benchmarks.report import command, number, rows_of, table, update, write_page

ROWS, PREDICTORS, NEW_ROWS = 300, 30, 3000
TABLES = 200
GROUPS = (2, 3)
BATCH = 10  # tables of a task
# excess of auto, and of predicting the shares of the groups in the rows; number of terms that the
# prediction uses
COLUMNS = ("groups", "table", "levels", "excess", "excess_of_shares", "n_relevant")
KEY = ["groups", "table"]


def run_table(K: int, number_of_table: int) -> tuple:
    """Return the row of one table."""
    rng = np.random.default_rng([K, number_of_table])
    L = 2 + number_of_table % 3
    codes, y = rng.integers(0, L, (ROWS + NEW_ROWS, PREDICTORS)), rng.integers(0, K, ROWS)
    levels = [str(a) for a in range(L)]
    frame = pd.DataFrame(
        {f"x{i}": pd.Categorical.from_codes(codes[:, i], levels) for i in range(PREDICTORS)}
    )
    groups = [str(k) for k in range(K)]
    train = frame[:ROWS].assign(group=pd.Categorical.from_codes(y, groups))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bbl.bbl("group ~ .^2", train, method="auto", novarOk=True, verbose=0, n_jobs=1)
        # [groups]: without `yhat`
        p = fit.predict(frame[ROWS:], type="prob")[groups].to_numpy(float)
    shares = np.bincount(y, minlength=K) / ROWS
    # expected over new rows, whose groups are even and independent of the predictors
    excess, excess_of_shares = (float(-np.log(q).mean() - np.log(K)) for q in (p, shares))
    return K, number_of_table, L, excess, excess_of_shares, len(fit.relevant())


def run_batch(K: int, tables: range) -> list[tuple]:
    """Return the rows of some tables."""
    rows = [run_table(K, k) for k in tables]
    print(f"{K} groups, tables {tables.start} to {tables.stop - 1}", flush=True)
    return rows


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page: mean excess by number of groups, and how often nothing is named."""
    rows = []
    for K, own in frame.groupby("groups"):
        error = own["excess"].std() / np.sqrt(len(own))
        rows.append(
            [
                str(K),
                str(len(own)),
                f"{number(own['excess'].mean())} ({number(error)})",
                number(own["excess_of_shares"].mean()),
                number((K - 1) / (2 * ROWS)),
                f"{100 * (own['n_relevant'] == 0).mean():.1f} %",
            ]
        )
    return [
        "# Tables of noise",
        "",
        f"Expected log-loss on {NEW_ROWS:,} new rows minus the entropy, for {ROWS} rows of "
        f"{PREDICTORS} predictors that are not informative about the group. Estimating the class "
        "proportions from n rows alone increases the log-loss by about (K - 1) / 2n. In brackets: "
        "standard error. `python -m benchmarks.accuracy.noise`",
        "",
        *table(
            [
                "groups",
                "tables",
                "auto",
                "class proportions",
                "(K - 1) / 2n",
                "no predictor selected",
            ],
            rows,
        ),
    ]


def main() -> None:
    """Run and write ``results/noise.csv`` and ``noise.md``."""
    args = command(__doc__, tables=(TABLES, "tables for each number of groups"))
    tasks = [
        (K, range(k, min(k + BATCH, args.tables)))
        for K in GROUPS
        for k in range(0, args.tables, BATCH)
    ]
    rows = rows_of(run_batch, tasks, args.jobs, COLUMNS)
    order = [(str(K), str(k)) for K in GROUPS for k in range(TABLES)]
    update(args.out / "noise.csv", rows, KEY, order)
    print(write_page(args.out / "noise.md", page(pd.read_csv(args.out / "noise.csv"))).read_text())


if __name__ == "__main__":
    main()
