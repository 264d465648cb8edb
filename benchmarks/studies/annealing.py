"""Annealed importance sampling of ln Z against exact values: ``python -m benchmarks.annealing``."""

import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bbl.model.ais import annealed_log_z, annealing_start
from bbl.model.layout import Layout
from bbl.model.logz import exact_log_z
from bbl.model.regressors import to_matrix
from bbl.model.states import random_parameters, sample_states
from bbl.rows.sample import Sample
from benchmarks.report import command, rows_of, table, write_page

ROWS = 1000
STRENGTHS = {"weak": 0.2, "medium": 0.6, "strong": 1.5, "very strong": 3.0}
DEFAULT = (500, 512, 0.5)
SETTINGS = (
    DEFAULT,
    (500, 512, 1.0),
    (500, 512, 0.0),
    (100, 512, 0.5),
    (500, 128, 0.5),
    (2000, 512, 0.5),
    (500, 2048, 0.5),
    (2000, 512, 1.0),
    (500, 2048, 1.0),
)
COLUMNS = (
    "model",
    "strength",
    "graph",
    "m",
    "steps",
    "chains",
    "scale",
    "exact",
    "estimate",
    "se",
    "ess",
    "seconds",
)


def random_layout(graph: str, rng: np.random.Generator) -> Layout:
    """Return a layout whose ln Z is cheap to compute: all pairs of few predictors, or a narrow
    lattice of many.
    """
    if graph == "complete":
        levels = rng.integers(2, 6, int(rng.integers(5, 17)))
        keep = np.cumsum(np.log(levels)) < np.log(2e5)
        return Layout(levels[keep])
    width, length = 4, int(rng.integers(8, 16))
    site = np.arange(width * length).reshape(length, width)
    along = np.column_stack([site[:-1].ravel(), site[1:].ravel()])
    across = np.column_stack([site[:, :-1].ravel(), site[:, 1:].ravel()])
    return Layout(rng.integers(2, 4, site.size), np.vstack([along, across]))


def random_model(index: int) -> tuple[str, str, Layout, np.ndarray, np.ndarray]:
    """Return strength, graph, layout, parameters and the naive Bayes fields of a sample."""
    rng = np.random.default_rng([index, 20])
    strength = list(STRENGTHS)[index % len(STRENGTHS)]
    graph = ("complete", "complete", "lattice")[index // len(STRENGTHS) % 3]
    layout = random_layout(graph, rng)
    # half of the models attract: their couplings tend to one sign, the hard case for annealing
    J0 = STRENGTHS[strength] / 2 if index // (3 * len(STRENGTHS)) % 2 else 0.0
    theta = random_parameters(layout, "norm", dh=0.5, J0=J0, dJ=STRENGTHS[strength], rng=rng)[0]
    h, J = to_matrix(layout, theta)
    rows = Sample(sample_states(h, J, layout.n_levels, ROWS, rng), np.ones(ROWS))
    return strength, graph, layout, theta, annealing_start(rows, layout) / DEFAULT[2]


def compare(index: int, settings: Sequence[tuple[int, int, float]]) -> list[tuple]:
    """Return one row for each setting on one random model."""
    strength, graph, layout, theta, start = random_model(index)
    exact = float(exact_log_z(layout, theta[None])[0])
    out = []
    for steps, chains, scale in settings:
        begin = time.process_time()
        rng = np.random.default_rng([index, steps, chains])
        found = annealed_log_z(layout, theta, scale * start, steps, chains, rng=rng)
        figures = (exact, found.log_z, found.standard_error, found.ess, time.process_time() - begin)
        out.append((index, strength, graph, layout.m, steps, chains, scale, *figures))
    return out


def summarise(frame: pd.DataFrame) -> list[str]:
    """Return the Markdown tables: by setting, and by strength at the default setting."""
    frame = frame.assign(z=(frame["estimate"] - frame["exact"]) / frame["se"])
    by = frame.groupby(["steps", "chains", "scale"], sort=False)
    default = by.get_group(DEFAULT)
    head = [
        "",
        "models",
        "within 1 se",
        "2 se",
        "3 se",
        "largest abs z",
        "mean z",
        "largest abs error",
        "mean se",
    ]
    head += ["mean ESS share", "CPU s per model"]

    def line(name: str, part: pd.DataFrame) -> list[str]:
        z, error = part["z"].abs(), (part["estimate"] - part["exact"]).abs().max()
        shares = [f"{100 * (z < k).mean():.1f}%" for k in (1, 2, 3)]
        mean = part.assign(ess=100 * part["ess"] / part["chains"])[
            ["z", "se", "ess", "seconds"]
        ].mean()
        return [
            name,
            str(len(part)),
            *shares,
            f"{z.max():.2f}",
            f"{mean['z']:+.2f}",
            f"{error:.3f}",
        ] + [f"{mean['se']:.4f}", f"{mean['ess']:.0f}%", f"{mean['seconds']:.2f}"]

    by_strength = [line("all", default)]
    by_strength += [line(s, default[default["strength"] == s]) for s in STRENGTHS]
    by_strength += [
        line(f"{g} graph", default[default["graph"] == g]) for g in ("complete", "lattice")
    ]
    by_setting = [line(f"{s[0]} steps, {s[1]} chains, start x {s[2]:g}", part) for s, part in by]
    n = len(default)
    return [
        "# Annealed importance sampling against exact ln Z",
        "",
        f"{n} random models (`python -m benchmarks.annealing`): all pairs of 5 to 16 predictors "
        "with 2 to 5 levels, or 4 x 8 to 4 x 15 lattices; couplings normal with standard "
        "deviation "
        + ", ".join(f"{v:g} ({k})" for k, v in STRENGTHS.items())
        + ", half of the models with a positive mean of half that. The path starts from the naive "
        "Bayes fields of a sample of 1,000 rows, multiplied by a factor, which is one half in "
        "`bbl(log_z='ais')`: starting from the full fields, some chains miss secondary modes, and "
        "the standard error does not include this.",
        "",
        f"For comparison, 68.3%, 95.4% and 99.7% of {n} standard normal z-values are expected "
        "within 1, 2 and 3; the largest of 200 is between 2.4 and 3.8 with probability 0.95, with "
        "median 2.9.",
        "",
        f"## Default setting ({DEFAULT[0]} steps, {DEFAULT[1]} chains, start x {DEFAULT[2]:g})",
        "",
        *table(head, by_strength),
        "## By setting",
        "",
        *table(head, by_setting),
    ]


def main() -> None:
    """Run and write ``results/annealing.csv`` and ``annealing.md``."""
    args = command(
        __doc__, models=(200, "how many models"), settings=(len(SETTINGS), "how many to compare")
    )
    frame = rows_of(
        compare, [(i, SETTINGS[: args.settings]) for i in range(args.models)], args.jobs, COLUMNS
    )
    frame.to_csv(args.out / "annealing.csv", index=False, float_format="%.10g")
    print(write_page(args.out / "annealing.md", summarise(frame)).read_text())


if __name__ == "__main__":
    main()
