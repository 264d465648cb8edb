"""Two-way clustering: time of a start, error, blocks found again: ``python -m
benchmarks.studies.blocks``.
"""

import json
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd

from bbl.biclustering.cells import Cells
from bbl.biclustering.methods import Genetic, Prototype
from bbl.biclustering.partition import rand_index
from benchmarks.files import shared_file
from benchmarks.report import command, number, table, write_page

FOLDER = ("data", "bicluster")  # of the data that are not shipped
COLUMNS = ("problem", "method", "run", "seconds", "mse", "hits")


def cells_of(X: np.ndarray) -> Cells:
    row, column = np.nonzero(~np.isnan(X))
    return Cells.from_entries(row, column, X[row, column], np.ones(len(row)), X.shape)


def expression() -> tuple[str, np.ndarray]:
    """Return NCI60, or a table of its shape."""
    if (path := shared_file(*FOLDER, "nci60.npz")) is not None:
        with np.load(path) as data:
            return "NCI60, 6,830 x 64, (100, 10) groups", data["x"].astype(float)
    rng = np.random.default_rng(0)
    means = rng.normal(0, 0.6, (150, 12))
    X = means[rng.integers(150, size=6830)][:, rng.integers(12, size=64)] + rng.normal(
        0, 0.7, (6830, 64)
    )
    return "made up, 6,830 x 64, (100, 10) groups", X


def movies(rows: int = 943, columns: int = 1682, share: float = 0.063) -> np.ndarray:
    """Return ratings of 20 x 20 blocks at the size and the sparsity of MovieLens 100K: few films
    have most ratings.
    """
    rng = np.random.default_rng(0)
    means = rng.uniform(1.5, 4.8, (20, 20))[rng.integers(20, size=rows)][
        :, rng.integers(20, size=columns)
    ]
    rate = np.outer(rng.gamma(1.2, size=rows), rng.gamma(0.5, size=columns))
    seen = rng.random((rows, columns)) < np.clip(rate * share * 1.25 / rate.mean(), 0, 0.9)
    seen[np.arange(rows), rng.integers(columns, size=rows)] = True
    seen[rng.integers(rows, size=columns), np.arange(columns)] = True
    return np.where(seen, np.clip(np.rint(means + rng.normal(0, 0.9, means.shape)), 1, 5), np.nan)


def squares(X: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> float:
    """Return the mean squared difference from the block means, over the cells that are known."""
    G, H, known = np.eye(rows.max() + 1)[rows], np.eye(columns.max() + 1)[columns], ~np.isnan(X)
    means = (G.T @ np.nan_to_num(X) @ H) / np.maximum(G.T @ known @ H, 1)
    return float(((X - means[rows][:, columns]) ** 2)[known].mean())


def prototypes(name: str, X: np.ndarray, groups: tuple[int, int], runs: int) -> Iterator[tuple]:
    """Yield time and error of single starts, and of ten; the table is made, not timed."""
    cells = cells_of(X)
    for label, method, starts, times in (
        ("bicluster, move='all', 1 start", Prototype(), 1, runs),
        ("bicluster, move='one', 1 start", Prototype(move="one"), 1, runs),
        ("bicluster, move='all', 10 starts", Prototype(), 10, 1),
        # does not depend on the seed
        ("bicluster, start='hierarchical'", Prototype(start="hierarchical"), 1, 1),
    ):
        for run in range(times):
            began = time.process_time()
            found = method.fit(cells, groups, starts, np.random.default_rng(run))
            used = time.process_time() - began
            yield name, label, run, used, squares(X, found.rows, found.columns), np.nan


def spectral(name: str, X: np.ndarray, groups: tuple[int, int]) -> Iterator[tuple]:
    """Yield time and error of scikit-learn's method, on the table moved above zero."""
    from sklearn.cluster import SpectralBiclustering

    for method in ("bistochastic", "log", "scale"):
        began = time.process_time()
        model = SpectralBiclustering(groups, method=method, random_state=0).fit(X - X.min() + 1)
        used = time.process_time() - began
        error = squares(X, model.row_labels_, model.column_labels_)
        yield name, f"SpectralBiclustering, {method}", 0, used, error, np.nan


def genetic(runs: int) -> Iterator[tuple]:
    """Yield time of a population, and whether it finds the best known partitions, on ratings of 15
    x 10.
    """
    path = shared_file(*FOLDER, "ga_table12.json")
    for one in json.loads(path.read_text())["sets"] if path else ():
        X = np.array(one["ratings"], dtype=float)
        for penalty, key in (("bic", "pen1"), ("thesis", "pen0.5")):
            for run in range(runs):
                began = time.process_time()
                found = Genetic(penalty=penalty).fit(
                    cells_of(X), None, 1, np.random.default_rng(run)
                )
                used = time.process_time() - began
                hit = found.criterion <= one[key]["best_found"] + 1e-6
                yield (
                    "ratings of table 1.2, 15 x 10",
                    f"genetic, penalty={penalty!r}",
                    run,
                    used,
                    np.nan,
                    hit,
                )


def reconstructions(sets: int) -> Iterator[tuple]:
    """Yield whether blocks without noise are found again exactly, by share of missing cells."""
    for kind in ("fixed", "random"):
        path = shared_file(*FOLDER, f"ratings_{kind}.npz")
        if path is None:
            continue
        with np.load(path) as data:
            for level, missing in enumerate(data["missing_percent"]):
                for starts in (1, 10):
                    for k in range(min(sets, len(data["rows"]))):
                        X = data["X"][level, k].astype(float)
                        X[X == 0] = np.nan
                        began = time.process_time()
                        found = Prototype().fit(
                            cells_of(X), (5, 5), starts, np.random.default_rng(0)
                        )
                        used = time.process_time() - began
                        pairs = ((found.rows, data["rows"][k]), (found.columns, data["cols"][k]))
                        hit = all(rand_index(one, other)[0] == 1.0 for one, other in pairs)
                        label = f"{missing}% missing, {starts} start{'s' * (starts > 1)}"
                        yield f"100 x 150, {kind} prototypes", label, k, used, np.nan, hit


def run(runs: int, sets: int) -> pd.DataFrame:
    """Return all measurements."""
    name, X = expression()
    found = [*prototypes(name, X, (100, 10), runs), *spectral(name, X, (100, 10))]
    found += prototypes(
        "ratings, 943 x 1,682 at 6% observed, (20, 20) groups", movies(), (20, 20), runs
    )
    found += [*genetic(runs), *reconstructions(sets)]
    return pd.DataFrame(found, columns=COLUMNS)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown page."""
    lines = [
        "# Two-way clustering",
        "",
        "CPU seconds with one thread, excluding the construction of the table.",
        "",
    ]
    for problem, part in frame.groupby("problem", sort=False):
        rows = []
        for method, own in part.groupby("method", sort=False):
            error = (
                f"{own['mse'].min():.4f} to {own['mse'].max():.4f}"
                if own["mse"].notna().any()
                else ""
            )
            hits = (
                f"{100 * own['hits'].astype(float).mean():.0f}%"
                if own["hits"].notna().any()
                else ""
            )
            rows.append(
                [str(method), str(len(own)), number(float(own["seconds"].median())), error, hits]
            )
        head = ["", "runs", "seconds, median", "mean squared error", "found exactly"]
        lines += [f"## {str(problem)[0].upper()}{str(problem)[1:]}", "", *table(head, rows)]
    return lines


def main() -> None:
    """Run and write ``results/blocks.csv`` and ``blocks.md``."""
    args = command(__doc__, runs=(5, "starts of each kind"), sets=(100, "data sets of each kind"))
    frame = run(args.runs, args.sets)
    frame.to_csv(args.out / "blocks.csv", index=False, float_format="%.6g")
    print(write_page(args.out / "blocks.md", summarise(frame)).read_text())


if __name__ == "__main__":
    main()
