"""Terms of any order: known terms found, and masked pixels filled in: ``python -m
benchmarks.accuracy.highorder``.
"""

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

import bbl
from benchmarks.files import shared_file
from benchmarks.report import command, table, write_page

FOLDER = ("data", "highorder")  # of the data that are not shipped
# in baselines.json: L1 regressions on products of 0 and 1, BIC, exact likelihood
TRIAL = "own_shbm_or"
TOYS = ("shbm_toy_0", "shbm_toy_1", "shbm_toy_2", "shbm_toy_3", "cat3_toy_s0")
COLUMNS = ("problem", "method", "pnll", "triples", "error", "log_loss", "seconds")
OPTIONS = (
    {},
    {"combine": "and"},
    {"combine": "max"},
    {"lambda_": "cv"},
    {"refit": "exact"},
    {"refit": "pcd"},
    {"refit": "cd"},
    {"refit": "mf"},
)
DRAWN = 6  # machines that are drawn
N_PREDICTORS, N_TRAIN, N_TEST = 10, 2000, 2000
ENTROPY = (2.8, 4.5)  # range of the true pnll of a drawn machine: below the shared toys'
RARE = 0.03  # least share of a level of a drawn machine
# share of masked pixels, test images, training images that choose settings
MASKED, ROWS, HELD = 0.25, 1000, 200


class Machine(NamedTuple):
    """Terms of predictors of two levels, rows drawn from their machine, and its true pnll."""

    terms: list[tuple[int, ...]]
    train: pd.DataFrame
    test: pd.DataFrame
    pnll: float


def draw_machine(seed: int) -> Machine:
    """Draw a machine of ten predictors with ten fields, five or six pairs and four terms of three,
    and rows of it.
    """
    rng = np.random.default_rng([seed, 1])
    states = np.array(list(product([0, 1], repeat=N_PREDICTORS)), dtype=np.uint8)
    by_size = {k: list(combinations(range(N_PREDICTORS), k)) for k in (2, 3)}
    while True:
        n_pairs = int(rng.integers(5, 7))
        terms: list[tuple[int, ...]] = [(i,) for i in range(N_PREDICTORS)]
        for k, count in ((2, n_pairs), (3, 4)):
            terms += sorted(
                by_size[k][t] for t in rng.choice(len(by_size[k]), count, replace=False)
            )
        fields = rng.normal(-0.5, 0.7, N_PREDICTORS)
        pairs = rng.choice([-1, 1], n_pairs) * rng.uniform(0.8, 2.0, n_pairs)
        triples = np.where(rng.random(4) < 0.7, 1, -1) * rng.uniform(1.5, 3.5, 4)
        energy = np.zeros(len(states))
        for term, weight in zip(terms, np.concatenate([fields, pairs, triples]), strict=True):
            energy += weight * states[:, term].all(axis=1)
        p = np.exp(energy - energy.max())
        p /= p.sum()
        shares, pnll = p @ states, _pnll(p)
        if ENTROPY[0] < pnll < ENTROPY[1] and shares.min() > RARE and shares.max() < 1 - RARE:
            break
    drawn = states[rng.choice(len(states), N_TRAIN + N_TEST, p=p)]
    train, test = (
        pd.DataFrame(rows).rename(columns=str) for rows in (drawn[:N_TRAIN], drawn[N_TRAIN:])
    )
    return Machine(terms, train, test, pnll)


def _pnll(p: np.ndarray) -> float:
    """Return the mean under the probabilities of all states of minus their log
    pseudo-likelihood.
    """
    table = p.reshape((2,) * N_PREDICTORS)
    return float(
        sum(
            -(table * np.log(table / table.sum(axis=i, keepdims=True))).sum()
            for i in range(N_PREDICTORS)
        )
    )


def toys() -> Iterator[tuple]:
    """Yield the negative log pseudo-likelihood of new rows of known models, and how many of the
    terms of three lead.
    """
    for name in TOYS:
        rows, truth = shared_file(*FOLDER, f"{name}.npz"), shared_file(*FOLDER, f"{name}.json")
        if rows is None or truth is None:
            continue
        known = json.loads(truth.read_text())
        with np.load(rows) as data:
            train, test = (
                pd.DataFrame(data[part]).rename(columns=str) for part in ("train", "test")
            )
        triples = {tuple(str(v) for v, _ in sorted(t)) for t in known["terms"] if len(t) == 3}
        labels = {
            "truth": "the true model",
            "pairwise_ml": "all pairs, maximum likelihood",
            TRIAL: "a simple program",
        }
        for method in ("truth", "pairwise_ml", "independent", TRIAL):
            if method in known["test"]:
                yield (
                    name,
                    labels.get(method, method),
                    known["test"][method],
                    "",
                    np.nan,
                    np.nan,
                    np.nan,
                )
        yield from _fits(name, train, test, triples, OPTIONS)


def drawn() -> Iterator[tuple]:
    """Yield the same of machines that are drawn."""
    for seed in range(DRAWN):
        machine = draw_machine(seed)
        name = f"drawn machine {seed}"
        yield name, "the true model, of all rows", machine.pnll, "", np.nan, np.nan, np.nan
        triples = {tuple(map(str, t)) for t in machine.terms if len(t) == 3}
        yield from _fits(name, machine.train, machine.test, triples, OPTIONS[:2])


def _fits(
    name: str, train: pd.DataFrame, test: pd.DataFrame, triples: set, settings: Iterable[dict]
) -> Iterator[tuple]:
    """Yield the pnll of new rows and the leading terms of three of fits with some options."""
    for options in settings:
        began = time.process_time()
        fit = bbl.bbl("~ .", train, method="shbm", n_jobs=1, verbose=0, **options)
        used = time.process_time() - began
        found = fit.terms.query("order == 3")["predictors"].drop_duplicates().tolist()
        hits = f"{len(triples & set(found[: len(triples)]))} of {len(triples)}"
        label = ", ".join(["shbm", *(f"{k}={v!r}" for k, v in options.items())])
        yield name, label, fit.pnll(test), hits, np.nan, np.nan, used


def pixels(part: str) -> pd.DataFrame:
    """Return digits of 14 x 14 pixels, black where two of four pixels are."""
    digits = bbl.datasets.load_mnist(part).drop(columns="y").to_numpy(dtype=float)
    blocks = digits.reshape(len(digits), 14, 2, 14, 2).sum(axis=(2, 4))
    return pd.DataFrame((blocks >= 2).astype(int).reshape(len(digits), -1)).add_prefix("p")


def contestants() -> dict[str, tuple[str, list[dict]]]:
    """Return formula and settings of each method, of which one is chosen on images held back from
    training.
    """
    pairs = [{"lambda_": v, "log_z": "half"} for v in (1e-3, 3e-3, 1e-2, 3e-2)]
    sparse = [
        {"method": "shbm", "order": 2, "lambda_": penalty, "ridge": ridge, "log_z": "half"}
        for penalty in (10.0, 20.0, 40.0)
        for ridge in (1e-3, 3e-3)
    ]
    return {
        "naive Bayes": ("~ .", [{"method": "naive"}]),
        "pseudo-likelihood, all pairs": ("~ .^2", pairs),
        "shbm, order 2": ("~ .", sparse),
    }


def reconstructions(methods: dict | None = None) -> Iterator[tuple]:
    """Yield how well masked pixels of new images are filled in."""
    train, test = pixels("train"), pixels("test").head(ROWS)
    kept = train.columns[(train.mean() > 0.01) & (train.mean() < 0.99)]
    train, test = train[kept], test[kept]
    mask = np.random.default_rng(1).random(test.shape) < MASKED
    first, held = train.iloc[:-HELD], train.iloc[-HELD:]
    for name, (formula, settings) in (contestants() if methods is None else methods).items():
        options = (
            min(settings, key=_held(formula, first, held)) if len(settings) > 1 else settings[0]
        )
        began = time.process_time()
        fit = bbl.bbl(formula, train, n_jobs=1, verbose=0, **options)
        used = time.process_time() - began
        p = (
            fit.reconstruct(test, mask, n_jobs=1, verbose=0)
            .xs(1, axis=1, level="level")[list(kept)]
            .to_numpy()[mask]
        )
        true = test.to_numpy()[mask]
        error = float(np.mean((p > 0.5) != true))
        loss = float(-np.mean(np.log(np.clip(np.where(true, p, 1 - p), 1e-12, 1))))
        shown = ", ".join(f"{k}={v}" for k, v in options.items() if k in ("lambda_", "ridge"))
        label = f"{name} ({shown})" if shown else name
        yield f"MNIST, {len(kept)} pixels", label, fit.pnll(test), "", error, loss, used


def _held(formula: str, first: pd.DataFrame, held: pd.DataFrame) -> Callable[[dict], float]:
    """Return a function of the loss on held images of a fit to the others."""

    def loss(options: dict) -> float:
        return bbl.bbl(formula, first, n_jobs=1, verbose=0, **options).pnll(held)

    return loss


def run(parts: list[str]) -> pd.DataFrame:
    """Return all measurements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ln Z plays no part here
        found = [
            row
            for part in parts
            for row in {"toys": toys, "drawn": drawn, "pixels": reconstructions}[part]()
        ]
    return pd.DataFrame(found, columns=COLUMNS)


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown page."""
    lines = [
        "# Terms of any order",
        "",
        "CPU seconds per fit with one thread. pnll is the mean negative log pseudo-likelihood of "
        "new rows. Triples: the number of true three-way terms among the strongest of that order. "
        f"Pixels: {100 * MASKED:.0f}% of the pixels of {ROWS} new images are masked at random and "
        f"imputed; settings are chosen by the pnll of {HELD} of the 1,000 training images, which "
        "the first fit leaves out.",
        "",
    ]
    for problem, part in frame.groupby("problem", sort=False):
        with_error = part["error"].notna().any()
        head = ["", "pnll", *(["error, %", "log-loss"] if with_error else ["triples"]), "seconds"]
        rows = [
            [
                str(row["method"]),
                f"{row['pnll']:.4f}",
                *(
                    [f"{100 * row['error']:.2f}", f"{row['log_loss']:.4f}"]
                    if with_error
                    else [str(row["triples"])]
                ),
                "" if np.isnan(row["seconds"]) else f"{row['seconds']:.2f}",
            ]
            for _, row in part.iterrows()
        ]
        lines += [f"## {problem}", "", *table(head, rows)]
    return lines


def main() -> None:
    """Run and write ``results/highorder.csv`` and ``highorder.md``."""
    args = command(__doc__, parts=(["toys", "drawn", "pixels"], "what to run"))
    frame = run(args.parts)
    frame.to_csv(args.out / "highorder.csv", index=False, float_format="%.6g")
    print(write_page(args.out / "highorder.md", summarise(frame)).read_text())


if __name__ == "__main__":
    main()
