"""Networks on the data of the accuracy benchmark: ``python -m benchmarks.networks_accuracy``.

They get the splits of `benchmarks.accuracy`, whose stored means give the Boltzmann machine and
logistic regression.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bbl.bayesnet.learners import LEARNERS, Task
from bbl.bayesnet.parameters import Recipe, fit
from bbl.bayesnet.predict import class_scores
from bbl.rows.sample import Sample
from bbl.stats.metrics import log_probabilities
from benchmarks.accuracy import summary
from benchmarks.accuracy.data import NAMES, Data, load
from benchmarks.accuracy.methods import metrics
from benchmarks.report import RESULTS

# label, learner, options of the learner, how tables are estimated
MODELS = (
    ("naive Bayes", "nb", {}, Recipe(1.0)),
    ("naive Bayes, WANBIA", "nb", {}, Recipe(1.0, wanbia=True)),
    ("TAN", "tan_cl", {}, Recipe(1.0)),
    ("TAN, BIC", "tan_cl", {"score": "bic"}, Recipe(1.0)),
    ("KDB by information, k = 2", "kdb", {"search": "information"}, Recipe(1.0)),
    ("AODE", "aode", {}, Recipe(1.0)),
)
STORED = {  # methods of accuracy.csv, with their kind of ln Z and calibration
    "Boltzmann, mean of both": ("bbl mean of both", "auto", "temperature"),
    "Boltzmann, pseudo-likelihood": ("bbl pseudo, lambdah 0.0001", "auto", "temperature"),
    "Boltzmann, mean field": ("bbl mf", "auto", "temperature"),
    "logistic regression": ("logistic", "", ""),
}
WIDE = 100_000_000  # family cells of a fit of AODE beyond which it is left out


def run(data: Data, number: int) -> list[dict]:
    """Return the measurements of one split."""
    train, test = data.splits[number]
    sample = Sample(
        np.ascontiguousarray(data.codes[train]), np.ones(len(train)), data.y[train].astype(np.intp)
    )
    codes, y = np.ascontiguousarray(data.codes[test]), data.y[test]
    rows = []
    for label, learner, given, recipe in MODELS:
        if learner == "aode" and float(len(train)) * data.codes.shape[1] ** 2 > 20.0 * WIDE:
            continue
        begin, rng = time.process_time(), np.random.default_rng(0)
        options = LEARNERS[learner].check_options(given, ())
        dags = LEARNERS[learner].learn(Task(sample, data.n_levels, data.K, rng), options).dags
        network = fit(
            dags, sample, data.n_levels, data.K, recipe, rng, LEARNERS[learner].averages
        ).network
        log_p = log_probabilities(class_scores(network.log_joint(codes)))
        accuracy, loss, error, _, _ = metrics(log_p, y)
        seconds = time.process_time() - begin
        row = {
            "data": data.name,
            "fold": number,
            "method": label,
            "accuracy": accuracy,
            "log_loss": loss,
        }
        rows.append(row | {"ece": error, "seconds": seconds})
    return rows


def stored() -> pd.DataFrame:
    """Return what `benchmarks.accuracy` measured of the other methods: means over splits, which
    have no fold.
    """
    table = summary.stored(RESULTS)[0]
    parts = [
        summary.select(table, *how).assign(method=label, fold=pd.NA)
        for label, how in STORED.items()
    ]
    return pd.concat(parts)[["data", "fold", "method", "accuracy", "log_loss", "ece", "seconds"]]


def page(table: pd.DataFrame) -> str:
    """Return the page's tables: means over splits by data and method, and mean ranks, as
    Markdown.
    """
    order = [*STORED, *(label for label, *_ in MODELS)]
    complete = [name for name, part in table.groupby("data") if set(order) <= set(part["method"])]
    names = [name for name in NAMES if name in complete]
    lines = []
    for what, title, best in (("accuracy", "Accuracy", max), ("log_loss", "Log-loss", min)):
        means = table.pivot_table(index="method", columns="data", values=what).loc[order, names]
        ranks = means.rank(axis=0, ascending=best is min).mean(axis=1)
        lines += [f"## {title}", "", "| method | " + " | ".join(names) + " | mean rank |"]
        lines.append("| --- |" + " ---: |" * (len(names) + 1))
        for method, row in means.iterrows():
            cells = [
                f"**{v:.3f}**" if v == best(means[name]) else f"{v:.3f}" for name, v in row.items()
            ]
            lines.append(f"| {method} | " + " | ".join(cells) + f" | {ranks[method]:.1f} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run and write ``results/networks_accuracy.csv`` and ``networks_accuracy.md``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=[name for name in NAMES if name != "mnist"])
    parser.add_argument(
        "--splits", type=int, default=100, help="at most so many splits of a data set"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows = []
    for name in args.data:
        data = load(name)
        for number in range(min(args.splits, len(data.splits))) if data else ():
            rows += run(data, number)
        print(f"{name}: {'done' if data else 'not there'}", flush=True)
    table = pd.concat([pd.DataFrame(rows), stored()], ignore_index=True)
    table.to_csv(args.out / "networks_accuracy.csv", index=False, float_format="%.6g")
    (args.out / "networks_accuracy.md").write_text(page(table) + "\n", encoding="utf-8")
    print(page(table))


if __name__ == "__main__":
    main()
