"""Tests of the benchmarks: shapes of generated problems, agreement of all methods on tiny ones, the tables."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

import benchmarks.closed_form  # noqa: E402, F401
import benchmarks.methods  # noqa: E402, F401
import benchmarks.uses  # noqa: E402
from bbl.model.chains import state_energies  # noqa: E402
from benchmarks import level, plots, problems, report, run  # noqa: E402
from benchmarks.measure import METHODS, Options, measured  # noqa: E402
from benchmarks.problems import PROBLEMS, TABLES, Part, Problem  # noqa: E402

LIBRARY = {"sklearn": "sklearn", "glum": "glum", "statsmodels": "statsmodels", "dwave": "dwave.samplers"}


def available(name):
    """Whether the library of a method is installed; the tools compared with are no requirement of the tests."""
    library = LIBRARY.get(name.split("-")[0])
    return library is None or (
        importlib.util.find_spec(library.split(".")[0]) is not None and importlib.util.find_spec(library) is not None
    )


def names(job):
    return [name for kind, name in METHODS if kind == job and available(name)]


@pytest.fixture
def no_files(monkeypatch, tmp_path):
    monkeypatch.setenv("BBL_SHARED", str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("name", "parts", "rows", "levels"),
    [
        ("W1", 1, 5000, [2] * 100),
        ("W2", 1, 6000, [2] * 784),
        ("W3", 1, 10000, [4] * 50),
        ("W4", 1, 5000, [21] * 60),
    ],
)
def test_generators_have_the_shapes_of_the_files(no_files, name, parts, rows, levels):
    made = PROBLEMS[name]()
    assert made.source == "generated" and len(made.parts) == parts
    codes = made.parts[0].codes
    assert codes.shape == (rows, len(levels)) and codes.dtype == np.uint8 and codes.flags.c_contiguous
    assert list(made.parts[0].n_levels) == levels
    assert (codes.max(axis=0) == np.array(levels) - 1).all() and (codes.min(axis=0) == 0).all()


def test_generator_of_small_sets(no_files):
    made = PROBLEMS["W5"]()
    assert len(made.parts) == 80
    assert [p.codes.shape for p in made.parts[::8]] == [(1000, m) for m in range(3, 13)]
    assert all(p.n_levels.min() >= 2 and p.n_levels.max() <= 6 for p in made.parts)


def test_generators_match_the_files(shared):
    for name in ("W1", "W3", "W4"):
        made = PROBLEMS[name]()
        assert made.source == "file"
        assert made.parts[0].codes.shape == {"W1": (5000, 100), "W3": (10000, 50), "W4": (5000, 60)}[name]


@pytest.mark.parametrize("name", [*PROBLEMS, *TABLES])
def test_quick_problems_are_small(name):
    if name in TABLES:
        assert TABLES[name](quick=True).frame.size < 100_000
    else:
        made = PROBLEMS[name](quick=True)
        assert sum(p.codes.size for p in made.parts) < 100_000
        for part in made.parts:
            assert part.codes.shape[1] == len(part.n_levels) and (part.codes.max(axis=0) < part.n_levels).all()


@pytest.fixture(scope="module")
def tiny():
    return {2: Problem([problems.potts(300, 5, 2, 0.5, seed=k) for k in (1, 2)], "generated"),
            3: Problem([problems.potts(300, 4, 3, 0.5)], "generated")}  # fmt: skip


def fit(problem, name, penalty, **more):
    options = Options(tolerance=1e-7, repeat=0.0, more={"penalty": penalty}, **more)
    return METHODS["pseudo", name](problem, options)


@pytest.mark.parametrize(
    ("name", "L"), [(name, L) for name in names("pseudo") for L in (2, 3) if L == 2 or not name.startswith("glum")]
)
def test_pseudo_likelihood_methods_agree(tiny, name, L):
    penalty = 0.0 if name.startswith("statsmodels") or (name.startswith("sklearn") and L > 2) else 0.02
    found, own = fit(tiny[L], name, penalty), fit(tiny[L], "bbl", penalty)
    assert own.grad_norm < 1e-6 and found.grad_norm < 3e-6
    assert found.objective == pytest.approx(own.objective, abs=1e-9)
    assert found.wall_s > 0 and found.cpu_s >= 0 and found.peak_mb >= 0


def test_full_gauge_objective_is_lower(tiny):
    full, own = fit(tiny[3], "sklearn-lbfgs", 0.05), fit(tiny[3], "bbl", 0.05)
    assert full.objective < own.objective - 1e-6


def test_subset_of_sites(tiny):
    sites = problems.pick_sites(tiny[2], 4)
    assert len(set(sites)) == 4 and problems.pick_sites(tiny[2], 10) is None
    part = fit(tiny[2], "numpy", 0.02, sites=sites, compare=sites)
    whole = fit(tiny[2], "bbl", 0.02, compare=sites)
    assert (part.more["sites"], whole.more["sites"], whole.more["all_sites"]) == (4, 10, 10)
    assert part.objective == pytest.approx(whole.objective, abs=1e-9)


def test_check_computes_the_objective_by_its_definition():
    part = Part(np.array([[0, 1], [1, 0], [1, 1]], dtype=np.uint8), np.array([2, 2]))
    theta = np.array([[0.3, 0.0, -0.7]])
    value, norm = benchmarks.methods.evaluate(Problem([part], ""), 0.1, {(0, 0): theta})
    z = 0.3 - 0.7 * np.array([1, 0, 1])
    y = np.array([0, 1, 1])
    assert value == pytest.approx(np.mean(np.log1p(np.exp(z)) - z * y) + 0.05 * 0.49)
    residual = 1 / (1 + np.exp(-z)) - y
    gradient = [residual.mean(), (residual * [1, 0, 1]).mean() - 0.07]
    assert norm == pytest.approx(np.hypot(*gradient))


@pytest.mark.parametrize("job", ["meanfield", "naive"])
def test_closed_forms_agree(tiny, job):
    options = Options(repeat=0.0, more={"eps": 0.6})
    values = []
    for name in names(job):
        values.append(METHODS[job, name](tiny[2], options).objective)
    assert len(values) == 2 and values[0] == pytest.approx(values[1], abs=1e-10)


def test_predictions_agree():
    table = TABLES["rows4"](quick=True)
    found = [METHODS["predict", name](table, Options(repeat=0.0)).objective for name in ("bbl", "numpy")]
    assert found[0] == pytest.approx(found[1], abs=1e-12)


@pytest.mark.parametrize("name", names("gibbs"))
def test_samplers_agree(name):
    model = problems.make_model("W1", quick=True)
    more = {
        f"{tool}{unit}": 400 if unit == "chains" else 30
        for tool in ("", "numpy_", "dwave_")
        for unit in ("chains", "sweeps")
    }
    found = METHODS["gibbs", name](model, Options(repeat=0.0, more=more))

    energy = state_energies(model.h, model.J, model.n_levels)
    weight = np.exp(energy - energy.max())
    exact = float(energy @ weight / weight.sum())
    assert abs(found.objective - exact) < 5 * found.more["objective_se"]
    assert found.more["updates_per_s"] > 0


def test_gradients_agree():
    made = PROBLEMS["W3"](quick=True)
    options = Options(repeat=0.0, more={"penalty": 1e-3})
    own, other = (METHODS["gradient", name](made, options) for name in ("bbl", "numpy"))
    assert own.objective == pytest.approx(other.objective, abs=1e-10)
    assert own.grad_norm == pytest.approx(other.grad_norm, abs=1e-8)


def test_floor_of_the_named_problems():
    for n, m, L, ms in ((5000, 100, 2, 0.62), (10000, 50, 4, 2.0), (5000, 60, 21, 16.5)):
        part = Part(np.empty((n, m), dtype=np.uint8), np.full(m, L))
        assert benchmarks.uses.floor_ms(part) == pytest.approx(ms, rel=0.01)


def test_measured_repeats_short_work_and_counts_memory():
    count = []

    def work():
        count.append(1)
        return np.ones(1_000_000)

    found = measured(work, lambda x: (float(x.sum()), 0.0, {}), Options(repeat=0.3))
    assert len(count) > 3 and found.objective == 1e6
    assert found.peak_mb == pytest.approx(8, abs=2) or sys.platform != "linux"


@pytest.mark.parametrize("suite", run.SUITES)
def test_configuration_names_what_exists(suite):
    tasks = run.tasks(suite)
    assert tasks and len({tuple(t[k] for k in run.KEY) for t in tasks}) == len(tasks)
    for task in tasks:
        assert (task["job"], task["method"]) in METHODS
        assert task["problem"] in PROBLEMS or task["problem"] in TABLES


def test_quoted_figures_belong_to_cases():
    cases = {(t["suite"], t["case"]) for suite in run.SUITES for t in run.tasks(suite)}
    quoted = run.read_rows(ROOT / "benchmarks" / "quoted.csv")
    assert quoted
    for row in quoted:
        assert (row["suite"], row["case"]) in cases and float(row["cpu_s"]) > 0 and row["tool"] and row["remark"]


def test_targets_name_cases():
    cases = {(t["suite"], t["case"], t["method"]) for suite in run.SUITES for t in run.tasks(suite)}

    class Probe(report.Results):
        def __init__(self):
            self.rows, self.quoted, self.asked = [], [], set()

        def one(self, column, **want):
            self.asked.add((want["suite"], want["case"], want.get("method", "bbl")))
            return 1.0

        def of(self, **want):
            self.asked |= {key for key in cases if key[:2] == (want["suite"], want["case"])} or {tuple(want.items())}
            return []

    probe = Probe()
    for _, figure, sign, limit, _ in report.targets():
        figure(probe)
        assert sign in (">=", "<=") and limit > 0
    assert probe.asked <= cases


def test_command_writes_tables_and_plots(tmp_path):
    command = [
        sys.executable,
        "-m",
        "benchmarks.run",
        "--suite",
        "fit",
        "--quick",
        "--only",
        "W1 bbl ",
        "--out",
        tmp_path,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "W1 bbl 1e-06 1:" in done.stdout
    rows = run.read_rows(tmp_path / "fit.csv")
    assert [(r["method"], r["tolerance"], r["threads"]) for r in rows] == [
        ("bbl", t, k) for t in ("0.0001", "1e-06") for k in ("1", "2")
    ]
    assert all(float(r["cpu_s"]) > 0 and not r["error"] for r in rows)
    text = (tmp_path / "summary.md").read_text()
    assert "### W1 (generated data)" in text and "| bbl | 1e-06 |" in text and "only a check" in text
    assert (tmp_path / "fit.png").stat().st_size > 1000
    # a second run of one measurement replaces its row
    run.write_rows(
        tmp_path / "fit.csv", run.merge(rows, rows[0] | {"cpu_s": "7"}, [tuple(r[k] for k in run.KEY) for r in rows])
    )
    again = run.read_rows(tmp_path / "fit.csv")
    assert [r["cpu_s"] for r in again] == ["7", *(r["cpu_s"] for r in rows[1:])]


def test_failure_becomes_a_row():
    task = run.tasks("fit", quick=True)[0] | {"method": "nothing"}
    run.DISTRIBUTIONS.setdefault("nothing", "numpy")
    row = run.launch(task, None)
    assert "KeyError" in row["error"]
    assert json.loads(run.text_row(row)["more"]) == {}


def test_ratios_and_exponents(tmp_path):
    base = {k: "" for k in run.COLUMNS} | {"suite": "fit", "case": "W1", "threads": "1", "more": "{}", "source": "file"}
    base |= {"tolerance": "1e-06", "sites": "100", "all_sites": "100"}
    own = base | {"method": "bbl", "cpu_s": "0.02", "total_cpu_s": "0.02"}
    slow = base | {"method": "glum-lbfgs", "cpu_s": "0.2", "total_cpu_s": "1.0", "sites": "20"}
    run.write_rows(tmp_path / "fit.csv", [own, slow])
    results = report.Results(tmp_path)
    assert results.speedup("W1", 1e-6) == pytest.approx(50)
    text = report.write_summary(tmp_path).read_text()
    assert "| W1: times faster than the best node-wise library, tolerance 1e-06 | >= 30 x | 50 x | yes |" in text
    assert "glum-lbfgs (20 of 100 sites, scaled)" in text and "| 50 |" in text
    x = np.array([10.0, 20, 40, 80, 160])
    assert report.exponent(x, 3 * x**1.5) == pytest.approx(1.5)
    assert plots.draw(tmp_path)


def test_the_level_study_counts_tests_made_and_rejected():
    found = level.cell(4, 50, 0.2, False, 2)
    frame = pd.DataFrame(found, columns=level.COLUMNS)
    pairs = frame[(frame["what"] == "pairs") & (frame["test"] == "bbl")]
    assert pairs["offered"].sum() == 2 * 2 * 6 and (frame["rejected"] <= frame["made"]).all()
    power = pd.DataFrame(level.cell(2, 400, 0.5, True, 3), columns=level.COLUMNS)
    assert set(power["test"]) == {"bbl", "penalised Wald", "Fisher", "log-linear"} and (power["offered"] == 6).all()
    text = "\n".join(level.summarise(pd.concat([frame, power])))
    assert "## Level" in text and "| 400 | 0.5 |" in text
    assert level.fisher(((30, 12), (9, 14))) == pytest.approx(fisher_exact([[30, 12], [9, 14]])[1])
