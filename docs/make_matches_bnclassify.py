"""Write the table of the page "Does it match bnclassify?": the largest differences from R's stored
outputs.

Run in the checkout, with the folder of reference outputs beside it (or named by BBL_SHARED):
``python docs/make_matches_bnclassify.py``. It takes about a minute.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS.parent / "tests"), str(DOCS.parent / "tests/bayesnet")]

import bncases  # noqa: E402
from test_cases import log_likelihoods, outcome, posterior, recorded  # noqa: E402

from bbl.bayesnet.averaged import naive_average  # noqa: E402
from bbl.bayesnet.chowliu import SCORES, chow_liu  # noqa: E402
from bbl.bayesnet.dag import naive  # noqa: E402
from bbl.bayesnet.information import class_information, pair_information  # noqa: E402
from bbl.bayesnet.predict import estimate  # noqa: E402
from bbl.bayesnet.search import climb  # noqa: E402
from bbl.bayesnet.weighting import ConditionalLikelihood, conditional_weights, tree_weights  # noqa: E402

Row = tuple[str, int, str, str]  # what, how many, largest difference, tolerance


def gap(found, want) -> float:
    """Return the largest absolute difference; equal infinities do not differ."""
    found = np.asarray(found, dtype=float)
    want = np.asarray(want, dtype=float)
    with np.errstate(invalid="ignore"):
        return float(np.max(np.where(found == want, 0.0, np.abs(found - want)), initial=0.0))


def tables_gap(network, data, cpts) -> float:
    gaps = [
        gap(network.families.table(network.theta, f), bncases.table(cpts[data.names[i]]))
        for f, i in enumerate(network.dag.features)
    ]
    return max([*gaps, gap(network.prior, bncases.table(cpts[data.class_]))])


def structure(data, case, name) -> Iterator[Row]:
    hits = [
        chow_liu(data.sample, data.n_levels, data.K, s)
        == data.dag(case["structures"][f"tan_cl_{s}"]["families"])
        for s in SCORES
    ]
    yield "trees and forests, arc by arc", len(hits), f"{len(hits) - sum(hits)} differ", "0"


def cmi(data, case, name) -> Iterator[Row]:
    at = {n: i for i, n in enumerate(data.names)}
    given = pair_information(data.sample, data.n_levels, data.K)[0]
    own = class_information(data.sample, data.n_levels, data.K)
    worst = [gap(given[at[p["x"]], at[p["y"]]], p["cmi_given_class"]) for p in case["pairs"]]
    worst += [gap(own[at[p["x"]]], p["mi"]) for p in case["with_class"]]
    yield "mutual information", len(worst), f"{max(worst):.1e}", "1e-12"


def params(data, case, name) -> Iterator[Row]:
    worst = [
        tables_gap(
            estimate(data.dag(m["families"]), data.sample, data.n_levels, data.K, m["smooth"]),
            data,
            m["cpts"],
        )
        for m in case["models"]
    ]
    yield "probability tables", len(worst), f"{max(worst):.1e}", "1e-14"


def scores(data, case, name) -> Iterator[Row]:
    worst = []
    for model in case["models"]:
        found = log_likelihoods(recorded(data, name, model), data.sample)
        for value, key in zip(found, ("logLik", "cLogLik"), strict=True):
            if model.get(key) is not None:
                want = bncases.number(model[key])
                worst.append(
                    gap(value, want) / max(abs(want), 1.0)
                    if np.isfinite(want)
                    else gap(value, want)
                )
    yield "log-likelihoods, relative", len(worst), f"{max(worst):.1e}", "1e-9"


def predict(data, case, name) -> Iterator[Row]:
    worst = 0.0
    count = 0
    left_out = 0
    rows = np.array(case["rows"]) - 1
    for model in case["models"]:
        network = recorded(data, name, model)
        for part, sample, at in (("train", data.sample, rows), ("newdata", data.new, slice(None))):
            if f"{part}_posterior" in model:
                want = np.array([bncases.numbers(row) for row in model[f"{part}_posterior"]])
                good = np.ones(len(want), dtype=bool)
                good[np.array(model.get(f"{part}_defect_rows") or [], dtype=int) - 1] = False
                worst = max(worst, gap(posterior(network, sample, at)[good], want[good]))
                count = count + int(good.sum())
                left_out = left_out + int((~good).sum())
    more = f" ({left_out} rows affected by aode's defect omitted)" if left_out else ""
    yield f"posteriors by row{more}", count, f"{worst:.1e}", "1e-10"


def augmented(data, case, name) -> Iterator[Row]:
    rows = np.array(case["rows"]) - 1
    worst = 0.0
    for model in case["models"]:
        network = estimate(
            data.dag(model["families"]), data.sample, data.n_levels, data.K, model["smooth"]
        )
        worst = max(worst, tables_gap(network, data, model["cpts"]))
        for part, sample, at in (("train", data.sample, rows), ("newdata", data.new, slice(None))):
            want = [bncases.numbers(row) for row in model[f"{part}_posterior"]]
            worst = max(worst, gap(posterior(network, sample, at), want))
    yield "tables and posteriors with several parents", len(case["models"]), f"{worst:.1e}", "1e-10"


def manb(data, case, name) -> Iterator[Row]:
    arcs = 0.0
    worst = 0.0
    for model in case["models"]:
        network, found = naive_average(
            naive(range(len(data.names))),
            data.sample,
            data.n_levels,
            data.K,
            model["smooth"],
            model["prior"],
        )
        want = data.by_name(model["arc_posterior"])
        arcs = max(arcs, float(np.max(np.abs(found - want) / np.maximum(want, 1e-300))))
        worst = max(worst, tables_gap(network, data, model["cpts"]))
    yield "MANB: posterior of arcs, relative", len(case["models"]), f"{arcs:.1e}", "1e-9"
    yield "MANB: tables", len(case["models"]), f"{worst:.1e}", "1e-12"


def wanbia(data, case, name) -> Iterator[Row]:
    objective = ConditionalLikelihood(data.sample, data.n_levels, data.K)
    grid = case["objective"]["at_grid"]
    relative = gap(objective(data.by_name(grid["weights"]))[0], grid["value"]) / grid["value"]
    yield "WANBIA: objective at given weights, relative", 1, f"{relative:.1e}", "1e-8"
    found = objective(conditional_weights(data.sample, data.n_levels, data.K))[0]
    yield "WANBIA: optimum minus R's", 1, f"{found - case['optim']['value']:.1e}", "at most 1e-6"


def awnb(data, case, name) -> Iterator[Row]:
    worst = [
        gap(
            tree_weights(
                data.sample,
                data.n_levels,
                data.K,
                [np.array(drawn) - 1 for drawn in run["bootstrap_rows"]],
            ),
            data.by_name(run["weights"]),
        )
        for run in case["seeded_runs"]
    ]
    yield "AWNB: weights from R's bootstrap rows", len(worst), f"{max(worst):.1e}", "1e-12"


def greedy(data, case, name) -> Iterator[Row]:
    at = {n: i for i, n in enumerate(data.names)}
    misses = 0
    for run in case["runs"]:
        held = np.zeros((len(run["folds"]), data.sample.n))
        for fold, rows in enumerate(run["folds"]):
            held[fold, np.array(rows) - 1] = 1.0
        options = {"epsilon": run["epsilon"], "smooth": run["smooth"], "kdbk": run["kdbk"] or 2}
        rng = np.random.default_rng(run["seed"])
        dag, log = climb(
            run["learner"], data.sample, data.n_levels, data.K, held, rng=rng, **options
        )
        if run["tie_free"]:
            misses += dag != data.dag(run["families"]) or gap(log, run["scores_log"]) > 1e-12
        else:
            ends = [
                (
                    {
                        at[x]: {at[p] for p in ps if p in at}
                        for x, ps in end["parents"].items()
                        if x in at
                    },
                    one,
                )
                for end in run["acceptable_outcomes"]
                for one in end["scores_logs"]
            ]
            misses += outcome(dag.families, log) not in [
                (f, [round(v, 10) for v in one]) for f, one in ends
            ]
    yield "greedy searches: structure and accuracies", len(case["runs"]), f"{misses} differ", "0"


TOPICS = (structure, cmi, params, scores, predict, augmented, manb, wanbia, awnb, greedy)


def main() -> None:
    """Compare every case and write the table."""
    with (DOCS / "matches_bnclassify.csv").open("w", newline="", encoding="utf-8") as handle:
        out = csv.writer(handle, lineterminator="\n")
        out.writerow(["data", "what", "compared", "largest difference", "tolerance"])
        for topic in TOPICS:
            for name in bncases.cases(topic.__name__):
                for row in topic(
                    bncases.data(name), bncases.case(f"{name}_{topic.__name__}"), name
                ):
                    out.writerow([name, *row])


if __name__ == "__main__":
    main()
