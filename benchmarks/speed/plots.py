"""Plots of the results: fits by method, scaling with exponents, distance to the floor, sampling,
R's run times.
"""

from pathlib import Path

import numpy as np

from benchmarks.speed.summary import Results, exponent

# Okabe and Ito's colours, told apart under all common forms of colour blindness; markers differ as
# well
STYLE = {
    "bbl": ("#0072B2", "o"),
    "bbl-single": ("#0072B2", "d"),
    "bbl-frame": ("#56B4E9", "o"),
    "numpy": ("#E69F00", "s"),
    "sklearn-lbfgs": ("#009E73", "^"),
    "sklearn-newton-cholesky": ("#009E73", "v"),
    "sklearn-categoricalnb": ("#009E73", "D"),
    "glum-lbfgs": ("#D55E00", "<"),
    "glum-irls": ("#D55E00", ">"),
    "statsmodels-newton": ("#CC79A7", "P"),
    "dwave-samplers": ("#CC79A7", "X"),
    "quoted": ("#555555", "x"),
}
FITS = ("W1", "W2", "W3", "W4", "W5", "W1, no penalty", "W3, no penalty", "wide", "MNIST")
PLAIN = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e0e0e0",
}


def draw(folder: Path) -> list[Path]:
    """Draw every plot whose results are in `folder`; return the files."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results, out = Results(folder), []
    with plt.rc_context(PLAIN | {"font.size": 9, "legend.frameon": False}):
        for plot in (fit, scaling, threads, gradient, gibbs, r):
            figure = plot(plt, results)
            if figure is not None:
                out.append(folder / f"{plot.__name__}.png")
                figure.savefig(out[-1], dpi=130, bbox_inches="tight")
                plt.close(figure)
    return out


def _panels(plt, count: int):
    """Return a figure of panels side by side."""
    figure, axes = plt.subplots(1, count, figsize=(3.6 * count, 3.2), squeeze=False, layout="tight")
    return figure, axes[0]


def _log_axes(ax, label: str, values: list[float]) -> None:
    ax.set(xscale="log", yscale="log", xlabel=label)
    ax.set_xticks(values, [f"{v / 1000:g}k" if v >= 1000 else f"{v:g}" for v in values])
    ax.minorticks_off()


def _lines(ax, results: Results, case: str, label: str) -> list[dict]:
    """Draw CPU seconds over what varies in a case, for the package and numpy; return the rows of
    the package.
    """
    for name in ("bbl", "numpy"):
        x, y = results.line(case, name)
        if len(x) > 1:
            slope = f", {exponent(x, y):.2f}" if len(x) > 3 else ""
            ax.plot(x, y, STYLE[name][1] + "-", color=STYLE[name][0], ms=5, label=name + slope)
    own = results.of(suite="scaling", case=case, method="bbl")
    _log_axes(ax, label, [row["value"] for row in own])
    return own


def _grouped_bars(ax, names: list[str], values: list, width: float, text: str, size: int) -> None:
    """Draw the values (one list for each method) of several cases as bars side by side, with
    numbers on them.
    """
    for k, (name, heights) in enumerate(zip(names, values, strict=True)):
        at = np.arange(len(heights)) + 1.07 * width * (k - (len(names) - 1) / 2)
        bars = ax.bar(
            at, heights, width, color=STYLE[name][0], label=name, hatch=("", "//", "..")[k]
        )
        ax.bar_label(
            bars, [format(v, text) if np.isfinite(v) else "" for v in heights], fontsize=size
        )
    ax.set_yscale("log")


def fit(plt, results: Results):
    """Dots: CPU seconds of each method on each problem, at the tightest tolerance."""
    cases = [c for c in FITS if results.of(suite="fit", case=c, method="bbl", threads=1.0)]
    if not cases:
        return None
    figure, ax = plt.subplots(figsize=(8, 0.5 * len(cases) + 1.6))
    for y, case in enumerate(reversed(cases)):
        rows = results.of(suite="fit", case=case, threads=1.0)
        tightest = min(r["tolerance"] for r in rows)
        for r in rows:
            if r["tolerance"] == tightest:
                color, marker = STYLE[r["method"]]
                ax.plot(
                    r["total_cpu_s"],
                    y,
                    marker,
                    color=color,
                    label=r["method"],
                    ms=7,
                    alpha=0.9,
                    clip_on=False,
                )
        for q in results.quoted:
            if q["suite"] == "fit" and q["case"] == case:
                ax.plot(q["cpu_s"], y, "x", color=STYLE["quoted"][0], label="quoted", ms=5)
    ax.set(xscale="log", xlabel="CPU seconds, whole problem, gradient norm 1e-6, one core")
    ax.set(yticks=range(len(cases)), yticklabels=reversed(cases), ylim=(-0.6, len(cases) - 0.4))
    unique = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    order = [name for name in STYLE if name in unique]
    ax.legend([unique[name] for name in order], order, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def scaling(plt, results: Results):
    """Log-log: CPU seconds of a fit over rows, predictors and levels."""
    titles = {"n": "rows n (m = 50, L = 2)", "m": "predictors m (n = 5,000, L = 2)"}
    titles["L"] = "levels L (n = 5,000, m = 20)"
    panels = [c for c in titles if len(results.line(c, "bbl")[0]) > 1]
    if not panels:
        return None
    figure, axes = _panels(plt, len(panels))
    for ax, case in zip(axes, panels, strict=True):
        _lines(ax, results, case, titles[case])
        ax.legend(title="method, exponent", fontsize=8, title_fontsize=8)
    axes[0].set_ylabel("CPU seconds of a fit")
    return figure


def threads(plt, results: Results):
    """Log-log: elapsed time of a fit with one thread over that with several."""
    lines = {}
    for case in FITS:
        rows = results.of(suite="fit", case=case, method="bbl", tolerance=1e-6)
        seconds = sorted((r["threads"], r["wall_s"]) for r in rows)
        if len(seconds) > 1:
            lines[case] = [(k, seconds[0][1] / s) for k, s in seconds]
    if not lines:
        return None
    figure, (ax,) = _panels(plt, 1)
    counts = sorted({k for line in lines.values() for k, _ in line})
    ax.plot(counts, counts, "k--", lw=1, label="as many times faster as threads")
    styles = [s for name, s in STYLE.items() if not name.startswith("bbl-")]
    for (case, line), (color, marker) in zip(lines.items(), styles, strict=False):
        ax.plot(
            *zip(*line, strict=True),
            marker + "-",
            color=color,
            ms=5,
            label=f"{case}, {line[-1][1]:.2f}",
        )
    _log_axes(ax, "threads", counts)
    ax.set(yticks=counts, yticklabels=[f"{k:g}" for k in counts], ylabel="times faster, elapsed")
    ax.legend(fontsize=8)
    return figure


def gradient(plt, results: Results):
    """Bars and lines: time of one gradient over the floor of the processor."""
    names = [n for n in ("W1", "W2", "W3", "W4") if np.isfinite(results.over_floor(n))]
    lines = [c for c in ("gradient, m", "gradient, L") if len(results.line(c, "bbl")[0]) > 1]
    if not names and not lines:
        return None
    figure, (ax, *others) = _panels(plt, 1 + len(lines))
    values = [[results.over_floor(n, method) for n in names] for method in ("bbl", "numpy")]
    _grouped_bars(ax, ["bbl", "numpy"], values, 0.38, ".1f", 8)
    ax.axhline(1.0, color="black", lw=0.8)
    ax.set(ylim=(0.7, 2.5 * max(values[1], default=10.0)), ylabel="one gradient over the floor")
    ax.set_xticks(range(len(names)), names)
    ax.legend()
    for ax, case in zip(others, lines, strict=True):
        rows = _lines(ax, results, case, "predictors m" if case.endswith("m") else "levels L")
        ax.plot(
            [r["value"] for r in rows],
            [1e-3 * r["more"]["floor_ms"] for r in rows],
            "k--",
            lw=1,
            label="floor",
        )
        ax.legend(fontsize=8)
        ax.set_ylabel("CPU seconds of one gradient")
    return figure


def gibbs(plt, results: Results):
    """Bars: site updates per second."""
    rows = results.of(suite="gibbs")
    if not rows:
        return None
    cases, found = list(dict.fromkeys(r["case"] for r in rows)), {r["method"] for r in rows}
    names = [n for n in ("bbl", "numpy", "dwave-samplers") if n in found]
    figure, ax = plt.subplots(figsize=(8, 3.4))
    values = [
        [results.one("updates_per_s", suite="gibbs", case=c, method=n) for c in cases]
        for n in names
    ]
    _grouped_bars(ax, names, values, 0.25, ".1e", 7)
    ax.set_xticks(range(len(cases)), cases)
    ax.set_ylabel("site updates per second, one core")
    ax.legend(loc="upper right")
    return figure


def r(plt, results: Results):
    """Bars: how many times faster whole calls are than R's bbl."""
    quoted = [q for q in results.quoted if q["suite"] == "latency"]
    found = [(q["case"], q["cpu_s"], results.own(suite="latency", case=q["case"])) for q in quoted]
    found = [row for row in found if np.isfinite(row[2])][::-1]
    if not found:
        return None
    cases, theirs, ours = zip(*found, strict=True)
    ratio = np.array(theirs) / np.array(ours)
    figure, ax = plt.subplots(figsize=(8, 0.3 * len(found) + 1.0))
    bars = ax.barh(range(len(found)), ratio, color=STYLE["bbl"][0])
    texts = zip(ratio, theirs, ours, strict=True)
    ax.bar_label(
        bars, [f" {x:,.0f} x   ({r:.3g} s -> {own:.2g} s)" for x, r, own in texts], fontsize=8
    )
    ax.set(xscale="log", xlim=(0.5, 50 * ratio.max()), yticks=range(len(found)), yticklabels=cases)
    ax.set_xlabel("times faster than R bbl 1.0.0, whole call, CPU time (R: quoted)")
    return figure
