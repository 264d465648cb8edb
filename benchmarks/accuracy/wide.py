"""Log-loss and time of ``method="auto"`` on wide tables of many levels: ``python -m
benchmarks.accuracy.wide``.

The tables are drawn from example networks of pgmpy, with the node of most neighbours as the class.
"""

import gzip
import re
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.accuracy.tables import fit_and_predict
from benchmarks.report import command, number, rows_of, store, table, write_page

# the class of each network
CLASSES = {"barley": "aks_vgt", "mildew": "lai_2", "munin1": "R_LNLBE_MED_PATHO"}
ROWS = (300, 3000)
NEW_ROWS = 5000
SEED = 7
PENALTIES = (0.1, 1.0, 10.0)  # C of logistic regression; the best on the new rows is shown
COLUMNS = ("network", "rows", "method", "log_loss", "seconds")
METHODS = ("auto", "logistic", "boosting")


class Node(NamedTuple):
    """The parents of a node, and its probabilities given their levels, on the last axis."""

    parents: list[str]
    probabilities: np.ndarray


def read_network(path: Path) -> tuple[dict[str, list[str]], dict[str, Node]]:
    """Return the levels and the nodes of a network in a compressed BIF file."""
    text = gzip.decompress(path.read_bytes()).decode()
    levels = {
        name: [level.strip() for level in names.split(",")]
        for name, names in re.findall(
            r"variable\s+(\S+)\s*\{\s*type discrete \[\s*\d+\s*\]\s*\{([^}]*)\}", text
        )
    }
    nodes = {}
    block = r"probability\s*\(\s*([^)|]+?)\s*(?:\|\s*([^)]*?))?\s*\)\s*\{([^}]*)\}"
    for name, given, body in re.findall(block, text):
        parents = [parent.strip() for parent in given.split(",")] if given else []
        shape = [len(levels[parent]) for parent in parents] + [len(levels[name])]
        probabilities = np.full(shape, np.nan)
        for line in filter(None, map(str.strip, body.split(";"))):
            if line.startswith("table"):
                numbers = [float(value) for value in line.removeprefix("table").split(",")]
                probabilities[...] = np.reshape(numbers, shape)
                continue
            names, values = re.fullmatch(r"\((.*?)\)\s*(.*)", line, re.DOTALL).groups()
            row = [
                levels[parent].index(level.strip())
                for parent, level in zip(parents, names.split(","), strict=True)
            ]
            probabilities[tuple(row)] = [float(value) for value in values.split(",")]
        nodes[name] = Node(parents, probabilities)
    return levels, nodes


def draw(path: Path, n: int) -> pd.DataFrame:
    """Return `n` rows of a network, drawn parents first."""
    levels, nodes = read_network(path)
    rng = np.random.default_rng(SEED)
    codes: dict[str, np.ndarray] = {}
    while len(codes) < len(nodes):
        for name, (parents, probabilities) in nodes.items():
            if name in codes or not codes.keys() >= set(parents):
                continue
            rows = probabilities[tuple(codes[parent] for parent in parents)]
            cumulated = np.broadcast_to(rows, (n, len(levels[name]))).cumsum(axis=1)
            chance = rng.random(n)[:, None] * cumulated[:, -1:]
            codes[name] = (chance > cumulated).sum(axis=1)
    return pd.DataFrame({x: pd.Categorical.from_codes(codes[x], levels[x]) for x in levels})


def fit_sklearn(train: pd.DataFrame, new: pd.DataFrame, method: str) -> list[np.ndarray]:
    """Return the probabilities (n, K) of the classes of new rows for each setting of a method."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import OneHotEncoder

    x, x_new = train.drop(columns="class"), new.drop(columns="class")
    if method == "boosting":
        codes, codes_new = (frame.apply(lambda c: c.cat.codes) for frame in (x, x_new))
        models = [HistGradientBoostingClassifier(max_iter=60, random_state=0)]
    else:
        encoder = OneHotEncoder(handle_unknown="ignore").fit(x)
        codes, codes_new = encoder.transform(x), encoder.transform(x_new)
        models = [LogisticRegression(C=C, max_iter=2000) for C in PENALTIES]
    found = []
    for model in models:
        p = model.fit(codes, train["class"].cat.codes).predict_proba(codes_new)
        out = np.zeros((len(new), len(new["class"].cat.categories)))
        out[:, model.classes_] = p
        found.append(out)
    return found


def run(path: Path, n: int, method: str) -> list[tuple]:
    """Return the row of one table and method."""
    name = path.name.removesuffix(".bif.gz")
    rows = draw(path, max(ROWS) + NEW_ROWS).rename(columns={CLASSES[name]: "class"})
    train, new = rows[:n].reset_index(drop=True), rows[max(ROWS) :].reset_index(drop=True)
    # levels without a training row have no probability with any method
    for c in rows:
        new = new[new[c].isin(train[c].unique())]
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = (
            [fit_and_predict(train, new, method)]
            if method == "auto"
            else fit_sklearn(train, new, method)
        )
    seconds = time.process_time() - begin
    y = new["class"].cat.codes.to_numpy()
    losses = [-np.log(np.clip(p[np.arange(len(y)), y], 1e-15, None)).mean() for p in found]
    return [(name, n, method, min(losses), seconds)]


def page(frame: pd.DataFrame) -> list[str]:
    """Return the page."""
    rows = []
    for (name, n), part in frame.groupby(["network", "rows"], sort=False):
        by_method = part.set_index("method")
        losses = [number(by_method.loc[method, "log_loss"]) for method in METHODS]
        rows.append([name, f"{n:,}", *losses, f"{by_method.loc['auto', 'seconds']:.1f}"])
    head = ["network", "rows", *METHODS, "CPU s of `auto`"]
    return [
        "# Wide tables of many levels",
        "",
        "Log-loss on 5,000 new rows of tables drawn from example networks of pgmpy, without new "
        "rows that have a level that no training row has; smaller is better. barley: 47 predictors "
        "of up to 67 levels; mildew: 34 of up to 100; munin1: 185 of up to 21. Logistic regression "
        "(ridge on dummies, the best of three values of C on the new rows) and histogram boosting "
        "(60 rounds) are scikit-learn's. CPU seconds of `auto`, on a shared machine, include "
        "predictions. "
        "`python -m benchmarks.accuracy.wide`",
        "",
        *table(head, rows),
    ]


def main() -> None:
    """Run and write ``results/wide.csv`` and ``wide.md``."""
    args = command(__doc__, only=([], "networks that are drawn; all by default"))
    spec = find_spec("pgmpy")
    if spec is None or spec.origin is None:
        raise SystemExit("python -m pip install --no-deps pgmpy")
    folder = Path(spec.origin).parent / "utils" / "example_models"
    tasks = [
        (folder / f"{name}.bif.gz", n, method)
        for name in args.only or CLASSES
        for n in ROWS
        for method in METHODS
    ]
    frame = rows_of(run, tasks, args.jobs, COLUMNS)
    store(frame, args.out / "wide.csv", "%.4g")
    print(write_page(args.out / "wide.md", page(frame)).read_text())


if __name__ == "__main__":
    main()
