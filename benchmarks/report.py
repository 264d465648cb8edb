"""What all benchmarks share: the command line of a study, its rows and their summaries, tables in
Markdown and CSV.
"""

import argparse
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

RESULTS = Path(__file__).resolve().parent / "results"


def command(doc: str | None, **options: tuple[Any, str]) -> argparse.Namespace:
    """Parse a command line: ``--jobs``, ``--out``, and options as (default, help); a list takes
    many words.
    """
    parser = argparse.ArgumentParser(description=doc)
    shared = {"jobs": (1, "how many processes"), "out": (RESULTS, "folder of the tables")}
    for name, (default, text) in (options | shared).items():
        kind = {"nargs": "*"} if isinstance(default, list) else {"type": type(default)}
        parser.add_argument(f"--{name}", default=default, help=text, **kind)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def rows_of(
    function: Callable[..., list[tuple]], tasks: Iterable[tuple], jobs: int, columns
) -> pd.DataFrame:
    """Return the rows of all tasks, in their order, as one frame."""
    runs = Parallel(n_jobs=jobs)(delayed(function)(*task) for task in tasks)
    return pd.DataFrame([row for run in runs for row in run], columns=columns)


def condensed(frame: pd.DataFrame, sample: str, means: list[str]) -> pd.DataFrame:
    """Merge samples that differ only in their number and in `means`.

    Parameters
    ----------
    frame : DataFrame
        A row for each sample.
    sample : str
        The column with the number of the sample.
    means : list of str
        Real-valued columns, replaced by their means within the groups.

    Returns
    -------
    DataFrame
        The other columns, the size of the group (``samples``) and the means.
    """
    counts = [name for name in frame.columns if name not in (sample, *means)]
    groups = frame.groupby(counts, sort=False, dropna=False)
    found = groups[means].mean()
    found.insert(0, "samples", groups.size())
    return found.reset_index()


def share(count: pd.Series, of: pd.Series, samples: pd.Series) -> str:
    """Return a pooled percentage with its Monte-Carlo standard error over samples.

    `samples` is the number of equal samples that a row represents.
    """
    total = (samples * of).sum()
    if not total:
        return ""
    rate = (samples * count).sum() / total
    spread = np.sqrt((samples * (count - rate * of) ** 2).sum()) / total
    return f"{100 * rate:.2f} ± {100 * spread:.2f}%"


def number(value: float) -> str:
    """Return a number to three digits."""
    if not np.isfinite(value):
        return ""
    if value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a Markdown table: the first column to the left, the others to the right."""
    align = ["---" if c < 1 else "---:" for c in range(len(head))]
    return ["| " + " | ".join(r) + " |" for r in (head, align, *rows)] + [""]


def write_page(path: Path, lines: list[str]) -> Path:
    """Write the lines of a Markdown page and return its path."""
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return path


def store(frame: pd.DataFrame, path: Path, digits: str | None = None) -> None:
    """Write a CSV file."""
    frame.to_csv(path, index=False, float_format=digits)


def as_text(frame: pd.DataFrame, digits: str = "%.6g") -> pd.DataFrame:
    """Return a frame as it is written, every cell as text."""
    written = io.StringIO(frame.to_csv(index=False, float_format=digits))
    return pd.read_csv(written, dtype=str, keep_default_na=False)


def update(
    path: Path,
    rows: pd.DataFrame,
    key: list[str],
    order: list[tuple[str, ...]],
    digits: str = "%.6g",
) -> pd.DataFrame:
    """Put rows into a CSV file in place of those with the same key, and return all of it, as text.

    Rows are kept in the `order` of the first columns of the key; what is not in it goes.
    """
    new = as_text(rows, digits)
    if path.is_file():
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
        replaced = pd.MultiIndex.from_frame(old[key]).isin(pd.MultiIndex.from_frame(new[key]))
        new = pd.concat([old[~replaced], new], ignore_index=True)
    at = {place: p for p, place in enumerate(order)}
    found = pd.Series(
        [at.get(k) for k in new[key[: len(order[0])]].itertuples(index=False, name=None)],
        dtype=float,
    )
    new = new.iloc[found.dropna().sort_values(kind="stable").index]
    store(new, path)
    return new
