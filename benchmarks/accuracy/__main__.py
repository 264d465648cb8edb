"""Accuracy of bbl's methods and of scikit-learn's on categorical data: ``python -m
benchmarks.accuracy``.
"""

import re
import time
import warnings

from benchmarks.accuracy import summary
from benchmarks.accuracy.data import NAMES, SPLITS, Data, load
from benchmarks.accuracy.methods import methods_of, recipes
from benchmarks.accuracy.report import write
from benchmarks.report import command, rows_of

COLUMNS = (
    "data",
    "fold",
    *summary.METHOD,
    "accuracy",
    "log_loss",
    "ece",
    "brier",
    "gaps",
    "setting",
    "cv_loss",
    "seconds",
)


def run_split(data: Data, number: int, only: str) -> list[tuple]:
    """Return the rows of every method on one split."""
    rows: list[tuple] = []
    kept: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, method in methods_of(data, kept).items():
            if re.search(only, name):
                begin = time.process_time()
                rows += method(data, data.splits[number])
                print(
                    f"{data.name} {number}: {name}, {time.process_time() - begin:.1f} s", flush=True
                )
    rows += recipes(kept, data.y[data.splits[number][1]])
    return [(data.name, number, *row) for row in rows]


def main() -> None:
    """Run and write ``results/accuracy.csv``, ``accuracy_pairs.csv``, ``accuracy.md`` and
    ``accuracy.png``.
    """
    args = command(
        __doc__,
        data=(list(NAMES), "data sets"),
        method=("", "only methods whose names match this regular expression"),
        splits=(SPLITS, "at most so many splits of a data set"),
    )
    for name in args.data:
        begin = time.time()
        data = load(name)
        todo = range(min(args.splits, len(data.splits))) if data else ()
        frame = rows_of(
            run_split, [(data, number, args.method) for number in todo], args.jobs, COLUMNS
        )
        if len(frame):
            summary.store(frame, data, args.out)
            write(*summary.stored(args.out), args.out)
        print(f"{name}: {len(frame)} rows, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
