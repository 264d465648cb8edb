"""Tests of the benchmarks: shapes of generated problems, agreement of methods, tables, accuracy,
studies.
"""

import gc
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are no part of the installed package

from bbl.engines import PersistentVI  # noqa: E402
from bbl.model.listing import state_energies  # noqa: E402
from benchmarks import networks_accuracy, report  # noqa: E402
from benchmarks.accuracy import __main__ as accuracy  # noqa: E402
from benchmarks.accuracy import methods as contestants  # noqa: E402
from benchmarks.accuracy import noise  # noqa: E402
from benchmarks.accuracy import report as accuracy_report  # noqa: E402
from benchmarks.accuracy import shooter as products  # noqa: E402
from benchmarks.accuracy import summary as accuracy_summary  # noqa: E402
from benchmarks.accuracy import tables as other_tables  # noqa: E402
from benchmarks.accuracy.data import Data, load  # noqa: E402
from benchmarks.speed import (  # noqa: E402
    SUITES,
    methods,
    plmc,
    plots,
    problems,
    run,
    sites,
    summary,
    uses,
    widths,
)
from benchmarks.speed import likelihood as exact_speed  # noqa: E402
from benchmarks.speed import shooter as products_speed  # noqa: E402
from benchmarks.speed.measure import METHODS, Options, measured  # noqa: E402
from benchmarks.speed.problems import PROBLEMS, Part, Problem, Table  # noqa: E402
from benchmarks.studies import (  # noqa: E402
    annealing,
    blocks,
    coverage,
    digits,
    effects,
    efficiency,
    level,
    likelihood,
    pooled,
    posterior,
)

LIBRARY = {
    "sklearn": "sklearn",
    "glum": "glum",
    "statsmodels": "statsmodels",
    "dwave": "dwave.samplers",
}


def available(name):
    """Whether the library of a method is installed; the tools compared with are no requirement of
    the tests.
    """
    library = LIBRARY.get(name.split("-")[0])
    return library is None or (
        importlib.util.find_spec(library.split(".")[0]) is not None
        and importlib.util.find_spec(library) is not None
    )


def names(job):
    return [name for kind, name in METHODS if kind == job and available(name)]


@pytest.fixture(scope="module", autouse=True)
def _quick_collections():
    """Each measurement collects garbage: what other tests have left is looked at once, and then no
    more.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_files(monkeypatch, tmp_path):
    """Problems are generated, from chains that have not forgotten their start: their shape is the
    same.
    """
    monkeypatch.setenv("BBL_SHARED", str(tmp_path / "absent"))
    for name in ("sample_states", "sample_groups"):
        draw = getattr(problems, name)

        def short(*arguments, burn_in, thin, draw=draw, **options):
            return draw(*arguments, burn_in=10, thin=1, **options)

        monkeypatch.setattr(problems, name, short)


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
    assert (
        codes.shape == (rows, len(levels)) and codes.dtype == np.uint8 and codes.flags.c_contiguous
    )
    assert list(made.parts[0].n_levels) == levels
    assert (codes.max(axis=0) == np.array(levels) - 1).all() and (codes.min(axis=0) == 0).all()


@pytest.mark.long
def test_generator_of_small_sets(no_files):
    made = PROBLEMS["W5"]()
    assert len(made.parts) == 80
    assert [p.codes.shape for p in made.parts[::8]] == [(1000, m) for m in range(3, 13)]
    assert all(p.n_levels.min() >= 2 and p.n_levels.max() <= 6 for p in made.parts)


def test_generators_match_the_files(shared):
    for name in ("W1", "W3", "W4"):
        made = PROBLEMS[name]()
        assert made.source == "file"
        assert (
            made.parts[0].codes.shape
            == {"W1": (5000, 100), "W3": (10000, 50), "W4": (5000, 60)}[name]
        )


@pytest.mark.parametrize("name", PROBLEMS)
def test_quick_problems_are_small(name):
    made = PROBLEMS[name](quick=True)
    if isinstance(made, Table):
        assert made.frame.size < 100_000
    else:
        assert sum(p.codes.size for p in made.parts) < 100_000
        for part in made.parts:
            assert (
                part.codes.shape[1] == len(part.n_levels)
                and (part.codes.max(axis=0) < part.n_levels).all()
            )


@pytest.fixture(scope="module")
def tiny():
    return {
        2: Problem([problems.potts(300, 5, 2, 0.5, seed=k) for k in (1, 2)], "generated"),
        3: Problem([problems.potts(300, 4, 3, 0.5)], "generated"),
    }


def fit(problem, name, penalty, **more):
    options = Options(tolerance=1e-7, repeat=0.0, more={"penalty": penalty}, **more)
    return METHODS["pseudo", name](problem, options)


@pytest.mark.parametrize(
    ("name", "L"),
    [
        (name, L)
        for name in names("pseudo")
        for L in (2, 3)
        if L == 2 or not name.startswith("glum")
    ],
)
@pytest.mark.thinned(5)
def test_pseudo_likelihood_methods_agree(tiny, name, L):
    penalty = (
        0.0 if name.startswith("statsmodels") or (name.startswith("sklearn") and L > 2) else 0.02
    )
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
    value, norm = methods.evaluate(Problem([part], ""), 0.1, {(0, 0): theta})
    z = 0.3 - 0.7 * np.array([1, 0, 1])
    y = np.array([0, 1, 1])
    assert value == pytest.approx(np.mean(np.log1p(np.exp(z)) - z * y) + 0.05 * 0.49)
    residual = 1 / (1 + np.exp(-z)) - y
    gradient = [residual.mean(), (residual * [1, 0, 1]).mean() - 0.07]
    assert norm == pytest.approx(np.hypot(*gradient))


@pytest.mark.parametrize("job", ["meanfield", "naive"])
def test_closed_forms_agree(tiny, job):
    options = Options(repeat=0.0, more={"eps": 0.6})
    values = [METHODS[job, name](tiny[2], options).objective for name in names(job)]
    assert len(values) == 2 and values[0] == pytest.approx(values[1], abs=1e-10)


def test_predictions_agree():
    table = PROBLEMS["rows4"](quick=True)
    found = [
        METHODS["predict", name](table, Options(repeat=0.0)).objective for name in ("bbl", "numpy")
    ]
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
        assert uses.floor_ms(part) == pytest.approx(ms, rel=0.01)


@pytest.mark.long
def test_measured_repeats_short_work_and_counts_memory():
    count = []

    def work():
        count.append(1)
        return np.ones(10_000_000)

    found = measured(work, lambda x: (float(x.sum()), 0.0, {}), Options(repeat=0.3))
    assert len(count) > 3 and found.objective == 1e7
    assert found.peak_mb == pytest.approx(80, abs=4) or sys.platform != "linux"


@pytest.mark.parametrize("suite", SUITES)
def test_configuration_names_what_exists(suite):
    tasks = run.tasks(suite)
    assert tasks and len({tuple(t[k] for k in run.KEY) for t in tasks}) == len(tasks)
    for task in tasks:
        assert (task["job"], task["method"]) in METHODS
        assert task["problem"] in PROBLEMS


def test_quoted_figures_belong_to_cases():
    cases = {(t["suite"], t["case"]) for suite in SUITES for t in run.tasks(suite)}
    quoted = pd.read_csv(Path(run.__file__).with_name("quoted.csv"))
    assert len(quoted)
    for row in quoted.to_dict("records"):
        assert (
            (row["suite"], row["case"]) in cases
            and float(row["cpu_s"]) > 0
            and row["tool"]
            and row["remark"]
        )


def test_targets_name_cases():
    cases = {(t["suite"], t["case"], t["method"]) for suite in SUITES for t in run.tasks(suite)}

    class Probe(summary.Results):
        def __init__(self):
            self.rows, self.quoted, self.asked = [], [], set()

        def one(self, column, **want):
            if want["method"] not in summary.LIBRARIES:  # not every library takes every case
                self.asked.add((want["suite"], want["case"], want["method"]))
            return 1.0

        def quote(self, case, tool):
            return 1.0

    probe = Probe()
    texts = []
    for text, figure, sign, limit, unit in summary.targets():
        texts.append(text)
        assert sign in (">=", "<=") and limit > 0 and unit in ("x", "s", "ms", "/s")
        assert figure(probe) == (1000.0 if unit == "ms" else 1.0)
    assert probe.asked <= cases and len(set(texts)) == len(texts) > 20


def test_short_names_of_the_commands_are_found():
    for name in ("run", "coverage", "annealing", "accuracy.__main__"):
        assert importlib.util.find_spec(f"benchmarks.{name}") is not None


@pytest.mark.long
def test_command_writes_tables_and_plots(tmp_path, capsys):
    only = "W1 bbl 1e-06 1"  # one measurement, in an interpreter of its own
    assert run.main(["--suite", "fit", "--quick", "--only", only, "--out", str(tmp_path)]) == 0
    assert f"{only}:" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "fit.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert [(r["method"], r["tolerance"], r["threads"]) for r in rows] == [("bbl", "1e-06", "1")]
    assert all(float(r["cpu_s"]) > 0 and not r["error"] for r in rows)
    text = (tmp_path / "summary.md").read_text()
    assert (
        "### W1 (generated data)" in text and "| bbl | 1e-06 |" in text and "only a check" in text
    )
    assert (tmp_path / "fit.png").stat().st_size > 1000


def test_rows_replace_those_of_the_same_key_in_order(tmp_path):
    order = [("b", "0"), ("b", "1"), ("a", "0")]
    old = pd.DataFrame(
        {"name": ["a", "b", "gone"], "fold": [0, 1, 0], "method": "m", "value": [1 / 3, 2.0, 3.0]}
    )
    new = pd.DataFrame({"name": ["b", "b"], "fold": [0, 1], "method": "m", "value": [np.nan, 5.0]})
    key = ["name", "fold", "method"]
    report.update(tmp_path / "x.csv", old, key, order)
    found = report.update(tmp_path / "x.csv", new, key, order)
    stored = "name,fold,method,value\nb,0,m,\nb,1,m,5\na,0,m,0.333333\n"
    assert (tmp_path / "x.csv").read_text() == stored and found.to_csv(index=False) == stored


@pytest.mark.long
def test_failure_becomes_a_row():
    row = run.launch(run.tasks("fit", quick=True)[0] | {"method": "nothing"}, None)
    assert "KeyError" in row["error"]
    assert json.loads(run.table_row(row)["more"].item()) == {}
    row = run.launch(run.tasks("fit", quick=True)[0] | {"timeout": 0.01}, None)
    assert row["error"] == "not finished after 0.01 s"


@pytest.mark.long
def test_ratios_and_exponents(tmp_path):
    base = {k: "" for k in run.COLUMNS} | {
        "suite": "fit",
        "case": "W1",
        "threads": "1",
        "more": "{}",
        "source": "file",
    }
    base |= {"tolerance": "1e-06", "sites": "100", "all_sites": "100"}
    own = base | {"method": "bbl", "cpu_s": "0.02", "total_cpu_s": "0.02"}
    slow = base | {"method": "glum-lbfgs", "cpu_s": "0.2", "total_cpu_s": "1.0", "sites": "20"}
    pd.DataFrame([own, slow]).to_csv(tmp_path / "fit.csv", index=False)
    results = summary.Results(tmp_path)
    assert results.speedup("W1", 1e-6) == pytest.approx(50)
    text = summary.write_summary(tmp_path).read_text()
    assert (
        "| W1: times faster than the best node-wise library, tolerance 1e-06 | >= 30 x | 50 x | "
        "yes |" in text
    )
    assert "glum-lbfgs (20 of 100 sites, scaled)" in text and "| 50 |" in text
    x = np.array([10.0, 20, 40, 80, 160])
    assert summary.exponent(x, 3 * x**1.5) == pytest.approx(1.5)
    assert plots.draw(tmp_path)


@pytest.mark.long
def test_accuracy_of_every_kind_of_method_on_one_split(tmp_path, monkeypatch):
    monkeypatch.setattr(
        contestants, "GRIDS", {name: values[::5] for name, values in contestants.GRIDS.items()}
    )
    monkeypatch.setattr(contestants, "NFOLD", 2)
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], 60)
    codes = (rng.random((120, 4)) < 0.3 + 0.4 * y[:, None]).astype(np.uint8)
    data = Data("vote", codes, np.full(4, 2), y, [(np.arange(120)[::2], np.arange(120)[1::2])])
    rows = accuracy.run_split(data, 0, "^bbl (mf|pseudo, lambdah 0.0001)$|CategoricalNB|^logistic$")
    frame = pd.DataFrame(rows, columns=accuracy.COLUMNS)
    both = {"bbl better of both", "bbl mean of both"}
    assert set(frame["method"]) == {
        "bbl mf",
        "bbl pseudo, lambdah 0.0001",
        "CategoricalNB",
        "logistic",
        *both,
    }
    assert set(frame.loc[frame["method"] == "bbl mf", "log_z"]) == {
        "auto",
        "exact",
        "pseudo",
        "half",
        "mf",
        "ais",
    }
    assert frame["accuracy"].between(0.6, 0.95).all() and (frame["log_loss"] < np.log(2)).all()
    better, fits = (
        frame[frame["method"].isin(both)].iloc[0],
        frame[frame["calibrate"] == "temperature"],
    )
    assert better["cv_loss"] == fits["cv_loss"].min()
    accuracy_summary.store(frame, data, tmp_path)
    accuracy.write(*accuracy_summary.stored(tmp_path), tmp_path)
    assert "| bbl mean of both |" in (tmp_path / "accuracy.md").read_text()


def test_calibration_errors_are_pooled_over_the_folds_of_a_repeat():
    part = pd.DataFrame({"fold": range(10), "gaps": ["1 -2", "-1 2", "0 0", "0 0", "3 0"] * 2})
    assert accuracy_summary.pooled_error(part, np.full(10, 10)) == pytest.approx(3.0 / 50.0)
    y, log_p = np.array([0, 1, 1]), np.log([[0.9, 0.1], [0.4, 0.6], [0.7, 0.3]])
    accurate, loss, error, brier, gaps = contestants.metrics(log_p, y)
    assert accurate == pytest.approx(2 / 3) and loss == pytest.approx(
        -np.log([0.9, 0.6, 0.3]).mean()
    )
    assert brier == pytest.approx((2 * 0.1**2 + 2 * 0.4**2 + 2 * 0.7**2) / 3)
    assert error == pytest.approx((0.1 + 0.4 + 0.7) / 3)
    assert np.abs([float(gap) for gap in gaps.split()]).sum() == pytest.approx(3 * error)


FIVE_SPLITS = [(np.delete(np.arange(10), [k, k + 5]), np.array([k, k + 5])) for k in range(5)]


def five_folds(data, log_loss, **columns):
    """Return rows of one method on five splits."""
    scores = {"accuracy": 0.5, "ece": 0.1, "brier": 0.2, "cv_loss": np.nan}
    rows = pd.DataFrame({"data": data, "fold": range(5), "log_loss": log_loss})
    texts = {"log_z": "", "calibrate": "", "gaps": "", "setting": ""}
    return rows.assign(**texts, **scores, seconds=1.0 + rows["fold"]).assign(**columns)


def keep_summaries(frame, folder):
    """Summarise rows of each data set into the folder's tables, and return all that is stored."""
    for name, part in frame.groupby("data", sort=False):
        data = Data(name, np.zeros((10, 1), np.uint8), np.ones(1), np.arange(10) % 2, FIVE_SPLITS)
        accuracy_summary.store(part, data, folder)
    return accuracy_summary.stored(folder)


def test_summaries_are_means_over_splits_and_paired_differences(tmp_path):
    losses = np.array([0.3, 0.5, 0.2, 0.6, 0.4])
    one = five_folds("zoo", losses, method="CategoricalNB", gaps="1 -1", setting=["a", *"bbbb"])
    other = five_folds("zoo", losses + [0.1, 0.2, 0.0, 0.1, 0.1], method="bbl naive", log_z="auto")
    auto = five_folds("zoo", 0.2, method="bbl auto", log_z="auto", calibrate="temperature")
    frame, compared = keep_summaries(pd.concat([one, other, auto.assign(setting="x")]), tmp_path)
    row = frame[frame["method"] == "CategoricalNB"].iloc[0]
    assert (row["rows"], row["folds"], row["seconds"], row["setting"]) == (10, 5, 3.0, "")
    assert row["log_loss"] == pytest.approx(losses.mean())
    # Nadeau and Bengio: one fifth of the rows is held out, so the correction is 1/4
    error = np.sqrt((1 / 5 + 1 / 4) * losses.var(ddof=1))
    assert row["log_loss_se"] == pytest.approx(error, rel=1e-6)
    assert row["pooled_ece"] == pytest.approx((5 + 5) / 10)
    assert frame.loc[2, "setting"] == "x" and np.isnan(frame.loc[1, "pooled_ece"])
    gap = compared.set_index("comparison").loc["bbl auto against CategoricalNB"]
    assert gap["log_loss"] == pytest.approx((0.2 - losses).mean()) and gap["folds"] == 5
    assert gap["log_loss_se"] == pytest.approx(error, rel=1e-5) and gap["accuracy_se"] == 0.0


@pytest.mark.long
def test_summaries_of_a_data_set_that_is_run_again_replace_the_stored_ones(tmp_path):
    auto = {"method": "bbl auto", "log_z": "auto", "calibrate": "temperature"}
    first = [five_folds(name, 0.3, **auto) for name in ("vote", "zoo")]
    first += [five_folds(name, 0.2, method="TAN") for name in ("vote", "zoo")]
    before, pairs = keep_summaries(pd.concat(first), tmp_path)
    text = "\n".join(accuracy_report.auto_tables(before, pairs))
    assert "| `auto` clearly worse on |  | vote, zoo |" in text
    # of one method alone, whose splits cannot be paired with those of a method that did not run
    after, pairs = keep_summaries(five_folds("zoo", 0.1, **auto), tmp_path)
    assert len(after) == len(before) == 4
    loss = after.set_index(["data", "method"])["log_loss"]
    assert loss.to_dict() == {
        ("vote", "bbl auto"): 0.3,
        ("vote", "TAN"): 0.2,
        ("zoo", "bbl auto"): 0.1,
        ("zoo", "TAN"): 0.2,
    }
    folds = pairs[pairs["comparison"] == "bbl auto against TAN"].set_index("data")["folds"]
    assert folds.to_dict() == {"vote": 5, "zoo": 0}
    text = "\n".join(accuracy_report.auto_tables(after, pairs))
    assert "| zoo | 0.100 | 0.200 |" in text and "| vote; not compared: zoo |" in text


@pytest.mark.long
def test_the_average_is_compared_with_methods_that_ran_on_the_same_splits(tmp_path):
    auto = {"method": "bbl auto", "log_z": "auto", "calibrate": "temperature"}
    tan = five_folds("zoo", 0.2, method="TAN")
    rows = [five_folds("zoo", 0.1, **auto), tan]

    def page(folder, *more):
        (tmp_path / folder).mkdir()
        found = keep_summaries(pd.concat([*rows, *more]), tmp_path / folder)
        return "\n".join(accuracy_report.auto_tables(*found))

    text = page("both")
    assert (
        "1 data sets, 5 splits" in text
        and "| zoo | 0.100 | 0.200 |" in text
        and "| average rank | 1.00 | 2.00 |" in text
        and "the mean log-loss of `auto` is 0.1000" in text
        and "| zoo | 3 | 3 |" in text
    )
    more = [part.assign(data="vote") for part in rows]
    catboost = five_folds("zoo", 0.15, method="CatBoost")
    text = page("optional", *more, catboost)
    assert "| vote | 0.100 |  | 0.200 |" in text and "| zoo | 0.100 | 0.150 | 0.200 |" in text
    assert (
        "| average rank | 1.00 |  | 2.00 |" in text
        and "| on the 1 sets of CatBoost | 1.00 | 2.00 | 3.00 |" in text
    )
    assert "| zoo | 0.100 |  | 0.200 |" in page("optional on few", *more, catboost[:-1])
    rows[1] = tan[:-1]
    assert page("field on few") == "" and "| vote | 0.100 | 0.200 |" in page("other set", *more)
    rows[0] = rows[1]
    assert page("field alone") == ""


@pytest.mark.long
def test_the_pages_of_accuracy_are_those_of_the_stored_numbers(tmp_path):
    accuracy.write(*accuracy_summary.stored(report.RESULTS), tmp_path)
    assert (tmp_path / "accuracy.md").read_bytes() == (report.RESULTS / "accuracy.md").read_bytes()
    assert (tmp_path / "accuracy.png").stat().st_size > 5000
    networks = pd.read_csv(report.RESULTS / "networks_accuracy.csv")
    stored = (report.RESULTS / "networks_accuracy.md").read_text(encoding="utf-8")
    assert networks_accuracy.page(networks) + "\n" == stored


def test_networks_are_compared_with_the_stored_means(tmp_path, monkeypatch, capsys):
    words = ["networks_accuracy", "--data", "titanic", "--splits", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    networks_accuracy.main()
    assert "titanic: done" in capsys.readouterr().out
    frame = pd.read_csv(tmp_path / "networks_accuracy.csv")
    own = frame[frame["fold"].notna()]
    assert len(own) == 2 * len(networks_accuracy.MODELS) and own["accuracy"].between(0.7, 0.9).all()
    means = accuracy_summary.stored(report.RESULTS)[0]
    logistic = means[(means["data"] == "titanic") & (means["method"] == "logistic")]["log_loss"]
    row = f"| logistic regression | {logistic.item():.3f} |"
    assert row in (tmp_path / "networks_accuracy.md").read_text().split("## Log-loss")[1]


def test_data_sets_of_the_accuracy_benchmark_are_split_by_class():
    data = load("titanic")
    assert data.codes.shape == (2201, 3) and data.n_levels.tolist() == [4, 2, 2] and data.K == 2
    assert len(data.splits) == 15 and all(
        len(train) + len(test) == 2201 for train, test in data.splits
    )


@pytest.fixture
def few_products(monkeypatch):
    """Rows of 8 predictors, of which one pair tells the classes apart."""
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 2, (400, 8)).astype(np.uint8)
    sign = 2 * codes.astype(int) - 1
    y = (sign[:, 0] + 3 * sign[:, 0] * sign[:, 1] + rng.logistic(size=400) > 0).astype(int)
    made = codes[:300], y[:300], codes[300:], y[300:]
    for where in (products, products_speed):
        monkeypatch.setattr(where, "synthetic", lambda: made)
        monkeypatch.setattr(where, "PENALTIES", (4.0, 4.0, 4.0))
    monkeypatch.setattr(products, "digits", lambda: made)
    monkeypatch.setattr(products, "GRID", (4.0, 100.0))
    return made


@pytest.mark.long
def test_errors_of_products_are_below_those_of_linear_methods(few_products, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["shooter", "--out", str(tmp_path)])
    products.main()
    frame = pd.read_csv(tmp_path / "shooter.csv")
    assert list(frame.columns) == list(products.COLUMNS) and len(frame) == 16
    error = frame.pivot(index="problem", columns="method", values="error")
    assert (
        error["shooter, order 2, penalised"] + 0.1 < error["L1 logistic regression, liblinear"]
    ).all()
    terms = frame[frame["method"] == "shooter, order 1, penalised"]["terms"]
    linear = frame[frame["method"] == "L1 logistic regression, liblinear"]["terms"]
    assert terms.tolist() == linear.tolist()
    text = (tmp_path / "shooter.md").read_text()
    assert (
        "## digits 0 and 6" in text
        and "| shooter, order 3, refitted | 4, 4, 4 |" in text.split("## digits")[0]
    )

    monkeypatch.setattr(sys, "argv", ["shooter", "--only", "digits", "--out", str(tmp_path)])
    products.main()
    again = pd.read_csv(tmp_path / "shooter.csv")
    kept = ["problem", "method", "terms", "error"]
    assert sorted(map(tuple, again[kept].to_numpy())) == sorted(map(tuple, frame[kept].to_numpy()))


def test_penalty_of_the_digits_is_that_of_the_least_loss_on_rows_left_out(few_products):
    assert products.chosen(few_products, 2) == (4.0, 4.0)  # at 100 no term is left


@pytest.mark.long
def test_speed_of_products_is_measured_at_one_objective(few_products, tmp_path):
    rows = [products_speed.measured(method) for method in products_speed.NAMES]
    frame = pd.DataFrame(rows, columns=products_speed.COLUMNS)
    first = frame[frame["problem"] == "order 1"]["objective"]
    assert len(first) == 3 and np.ptp(first) < 1e-3 and (frame["seconds"] > 0).all()
    assert frame["objective"].min() < first.min() - 10
    text = "\n".join(products_speed.page(frame))
    assert (
        "| orders 1-3 | shooter (orders 1-3, auto) |" in text and "times that of liblinear" in text
    )


def test_study_of_blocks_measures_time_error_and_what_is_found():
    X = blocks.movies(60, 50, 0.4)
    frame = pd.DataFrame([*blocks.prototypes("small", X, (3, 3), 2)], columns=blocks.COLUMNS)
    assert (
        len(frame) == 6
        and (frame["seconds"] > 0).all()
        and frame["mse"].between(0, np.nanvar(X)).all()
    )
    text = "\n".join(blocks.summarise(frame))
    assert "## Small" in text and "bicluster, move='one', 1 start | 2 |" in text


def test_annealing_study_compares_with_the_exact_value():
    frame = pd.DataFrame(annealing.compare(0, annealing.SETTINGS[3:4]), columns=annealing.COLUMNS)
    assert abs(frame["estimate"] - frame["exact"]).item() < 5 * frame["se"].item() < 0.1


@pytest.mark.long
def test_the_study_of_posteriors_counts_what_lies_inside(monkeypatch):
    monkeypatch.setitem(posterior.METHODS, "pvi, horseshoe", PersistentVI(n_iter=500, average=0.3))
    for method in ("exact", "pvi, horseshoe"):
        frame = pd.DataFrame(posterior.fits(method, 200, 0, 2), columns=posterior.COLUMNS)
        assert (
            len(frame) == 2 * 14
            and (frame["inside"] >= frame["narrow"]).all()
            and frame["inside"].mean() > 0.5
        )
        assert frame["rank"].isna().all() or frame["rank"].between(0, posterior.KEPT - 1).all()
        row = posterior.shares(frame).iloc[0]
        assert row["models"] == 2 and np.isnan(row["p"]) == frame["rank"].isna().all()
        assert row["couplings_narrow"] == frame.loc[frame["coupling"], "narrow"].mean()
        assert f"| {method} | 200 | 2 |" in "\n".join(
            posterior.summarise(report.as_text(posterior.shares(frame)))
        )


# of mean field with a fixed eps, on so few rows
@pytest.mark.filterwarnings("ignore:On the training rows")
@pytest.mark.long
def test_the_study_of_digits_compares_scores_that_work():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    X = np.tanh(2 * rng.normal(size=(3, 12))[y] + 0.3 * rng.normal(size=(90, 12)))
    made = digits.pipelines(5)
    assert len(made) == 8
    for (features, _), make in made.items():
        assert make().fit(X, y).score(X, y) > 0.8, features
    data = {"train_x": X, "train_y": y, "test_x": X, "test_y": y}
    frame = pd.DataFrame(digits.largest(data), columns=digits.COLUMNS)
    assert frame["accuracy"].between(0.3, 1).all() and "| the largest |" in "\n".join(
        digits.summarise(frame)
    )


def test_the_study_of_pooled_differences_counts_tests_and_limits():
    cells = [pooled.Cell((30, 60), (0.6, 0.4)), pooled.Cell((60, 40), (0.5, 0.5), 0.5, (0.7, 0.3))]
    cells.append(pooled.Cell((200, 200), (0.5, 0.5), ratio=3.0))
    found = [row for at, cell in enumerate(cells) for row in pooled.run_cell(cell, at, 4)]
    frame = pd.DataFrame(found, columns=pooled.COLUMNS)
    fields = frame[(frame["cell"] == cells[0].name) & (frame["kind"] == "fields")]
    assert (
        fields["size"].tolist() == [30, 60]
        and (fields["made"] == 4).all()
        and (fields["limits"] == 4).all()
    )
    assert (frame["disagree"] == 0).all() and set(frame["what"]) == {
        "alike",
        "differences",
        "power",
    }
    assert frame.loc[frame["what"] == "power", "rejected_5"].sum() > 0
    text = "\n".join(pooled.summarise(frame))
    assert cells[0].name in text and cells[1].name in text and "shift over its error" in text
    assert len({cell.name + cell.what for cell in pooled.CELLS}) == len(pooled.CELLS)


@pytest.mark.long
def test_the_page_of_coverage_is_that_of_the_stored_numbers(tmp_path, monkeypatch, capsys):
    for file in ("coverage.csv", "level.csv", "pooled.csv", "surveys.csv", "effects.csv"):
        (tmp_path / file).write_bytes((report.RESULTS / file).read_bytes())
    monkeypatch.setattr(sys, "argv", ["coverage", "--only", "--out", str(tmp_path)])
    coverage.main()
    assert (tmp_path / "coverage.md").read_bytes() == (report.RESULTS / "coverage.md").read_bytes()
    assert "Differences from the pooled fit" in capsys.readouterr().out


def test_the_page_of_exact_likelihood_is_that_of_the_stored_numbers():
    stored = [pd.read_csv(report.RESULTS / f"likelihood{part}.csv") for part in ("", "_level")]
    page = "\n".join(likelihood.summarise(*stored)).rstrip() + "\n"
    assert page == (report.RESULTS / "likelihood.md").read_text(encoding="utf-8")


def test_condensed_samples_have_the_sums_of_single_ones():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "kind": rng.choice(["a", "b"], 200),
            "sample": np.arange(200),
            "of": rng.choice([3.0, 4.0, np.nan], 200, p=[0.5, 0.4, 0.1]),
            "width": rng.normal(size=200),
        }
    ).assign(count=lambda rows: rng.binomial(3, 0.7, 200))
    found = report.condensed(frame, "sample", ["width"])
    assert list(found.columns) == ["kind", "of", "count", "samples", "width"]
    assert len(found) == len(frame.drop(columns=["sample", "width"]).drop_duplicates()) < 25
    assert found["samples"].sum() == 200
    assert (found["samples"] * found["width"]).sum() == pytest.approx(frame["width"].sum())
    known, single = found.dropna(), frame.dropna()
    rate = single["count"].sum() / single["of"].sum()
    spread = np.sqrt(((single["count"] - rate * single["of"]) ** 2).sum()) / single["of"].sum()
    text = report.share(known["count"], known["of"], known["samples"])
    assert text == f"{100 * rate:.2f} ± {100 * spread:.2f}%"
    assert report.share(known["count"][:0], known["of"][:0], known["samples"][:0]) == ""


@pytest.mark.long
def test_the_study_of_models_counts_parameters_and_true_nulls():
    setting = coverage.Setting((2, 2, 2), 400)
    found = [row for number in range(3) for row in coverage.replicate(setting, 0, number)]
    found.append((setting.name, 3, "undetermined", "covered", 0, 0, np.nan))
    frame = pd.DataFrame(found, columns=coverage.COLUMNS)
    assert len(frame) == 3 * 2 * 3 + 1 and (frame["count"] <= frame["of"]).all()
    made = frame[frame["what"] == "covered"].groupby("kind")["of"].sum()
    assert made["group"] == 3 * 12 and made["difference of groups"] == 3 * 6
    text = "\n".join(coverage.summarise(report.condensed(frame, "replicate", ["seconds"])))
    assert "| **all: group** | 3 | 36 |" in text and " 1 samples could not be fitted." in text


@pytest.mark.long
def test_the_effects_study_counts_covered_effects():
    found = [row for number in range(2) for row in effects.replicate(number, 200)]
    frame = pd.DataFrame(found, columns=effects.COLUMNS)
    assert (
        set(frame["method"]) == set(effects.METHODS)
        and (frame["covered"] <= frame["with limits"]).all()
    )
    assert frame.groupby(["method", "sample"])["effects"].sum().eq(3 + 4 * 3 + 2).all()
    both = effects.with_totals(pd.concat([frame.assign(n=200), frame.assign(n=2000)]))
    totals = both[both["effect"] == effects.ALL].groupby("method")[["effects", "covered"]].sum()
    assert totals.equals(2 * frame.groupby("method")[["effects", "covered"]].sum())
    text = "\n".join(effects.summarise(report.condensed(both, "sample", ["log width"])))
    assert "## Effects on probabilities" in text and "| 2,000 | ml | **all** | 2 |" in text


def test_the_level_study_counts_tests_made_and_rejected():
    found = level.cell(4, 50, 0.2, False, 2)
    frame = pd.DataFrame(found, columns=level.COLUMNS)
    pairs = frame[(frame["what"] == "pairs") & (frame["test"] == "bbl")]
    assert pairs["offered"].sum() == 2 * 2 * 6 and (frame["rejected"] <= frame["made"]).all()
    power = pd.DataFrame(level.cell(2, 400, 0.5, True, 3), columns=level.COLUMNS)
    assert (
        set(power["test"]) == {"bbl", "penalised Wald", "Fisher", "log-linear"}
        and (power["offered"] == 6).all()
    )
    text = "\n".join(level.summarise(pd.concat([frame, power])))
    assert "## Level" in text and "| 400 | 0.5 |" in text
    assert level.fisher(((30, 12), (9, 14))) == pytest.approx(fisher_exact([[30, 12], [9, 14]])[1])


@pytest.mark.long
def test_study_of_exact_likelihood_has_a_row_for_each_kind_of_table():
    frame = likelihood.run(2, 1)
    assert list(frame["setting"].unique()) == [setting.name for setting in likelihood.SETTINGS]
    assert (frame["wald_covered"] <= frame["wald"]).all()
    assert (frame["wald"] + frame["exact"] <= frame["parameters"]).all()
    assert frame["wald"].sum() and frame["exact"].sum()
    dense = frame[frame["setting"].str.contains("2,000")]
    assert set(dense["test"]) == {"likelihood ratio"}
    level = likelihood.run_level(700, 1)
    assert (
        level["tables"].tolist() == [700] and 0.01 < level["rejected"][0] / level["tested"][0] < 0.1
    )
    page = "\n".join(likelihood.summarise(report.condensed(frame, "replicate", ["least"]), level))
    assert f"repeated with 700 tables: it is available for {level['tested'][0]}" in page
    assert all(page.count(f"| {setting.name} |") == 2 for setting in likelihood.SETTINGS)


@pytest.mark.long
# statsmodels' word for fitted counts near the observed
@pytest.mark.filterwarnings("ignore:Perfect separation")
@pytest.mark.skipif(not available("statsmodels"), reason="statsmodels is absent")
def test_speed_of_exact_likelihood_is_measured_at_one_maximum(monkeypatch):
    known = exact_speed.problems()
    assert set(exact_speed.TARGETS) <= set(known)
    rows = [
        row
        for name in ("Titanic, terms of three", "8 binary, all pairs")
        for row in exact_speed.measured(name, *known[name])
    ]
    frame = pd.DataFrame(rows, columns=exact_speed.COLUMNS)
    with_r = ["R loglin"] if shutil.which("Rscript") else []
    assert frame["method"].tolist() == ["bbl", "statsmodels", *with_r] * 2
    is_loglin = frame["method"] == "R loglin"  # cycles until fitted counts change by less than 1e-6
    assert (frame["gradient"] < np.where(is_loglin, 1e-6, 1e-9)).all() and (
        frame["seconds"] > 0
    ).all()
    monkeypatch.setattr(exact_speed, "PEER_STATES", 2)
    assert len(exact_speed.measured("8 binary, all pairs", *known["8 binary, all pairs"])) == 1
    text = "\n".join(exact_speed.page(frame))
    assert (
        text.count("met)") + text.count("met**)") == 1
        and "| 8 binary, all pairs | statsmodels | 36 |" in text
    )


@pytest.mark.long
def test_study_of_efficiency_compares_both_methods_and_their_limits(monkeypatch):
    monkeypatch.setattr(efficiency, "SIZES", (200, 1000))
    monkeypatch.setattr(efficiency, "STRENGTHS", {"medium": 1.0, "very strong": 3.0})
    cases = [("all pairs of 6", "medium"), ("star of 9", "very strong")]
    frame = pd.DataFrame(
        [row for case in cases for row in efficiency.study(*case, 12)], columns=efficiency.COLUMNS
    )
    assert frame["n"].tolist() == [0, 200, 1000] * 2
    limits = frame[frame["n"] == 0].set_index("graph")
    # with all pairs the two estimates are nearly the same, and on a star the pseudo-likelihood
    # loses most
    assert (
        0.999 < limits.loc["all pairs of 6", "efficiency"] <= 1.0
        and limits.loc["star of 9", "efficiency"] < 0.3
    )
    assert frame[frame["graph"] == "all pairs of 6"]["efficiency"].between(0.9, 1.1).all()
    by_size = frame.set_index(["graph", "n"])["fitted"]
    # most have no finite optimum
    assert by_size["star of 9", 200] < 6 < by_size["all pairs of 6", 200]
    lines = "\n".join(efficiency.summarise(frame))
    assert (
        "| all pairs of 6 | medium |" in lines
        and "lowest for very strong ones on the star of 9" in lines
    )


@pytest.mark.long
def test_tables_of_other_people_are_split_and_told_beside_quoted_methods(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "tables"
    folder.mkdir(parents=True)
    for name, n in (
        ("people.csv.gz", 120),
        ("net_small.train.csv.gz", 3000),
        ("net_small.test.csv.gz", 100),
    ):
        x = rng.integers(0, 3, (n, 3)).astype(str)
        x[rng.random(n) < 0.1, 0] = ""
        pd.DataFrame(x, columns=list("abc")).assign(
            **{"class": np.where(rng.random(n) < 0.8, x[:, 1], "2")}
        ).to_csv(folder / name, index=False)
    found = list(other_tables.problems(folder))
    assert [name for name, _, _ in found] == ["net_small_300", "net_small_3000", "people"]
    assert [len(splits) for _, _, splits in found] == [1, 1, 10]
    rows = [other_tables.run_split(name, frame, 0, splits[0])[0] for name, frame, splits in found]
    frame = pd.DataFrame(rows, columns=other_tables.COLUMNS)
    assert frame["log_loss"].between(0.1, 1.1).all() and (frame["rows"] > 0).all()
    assert all(
        0.0 <= other_tables.calibration_error(frame[frame["set"] == name]) <= 1.0
        for name, _, _ in found
    )
    quoted = pd.DataFrame(
        [(name, method, 0.5) for name, _, _ in found for method in other_tables.PEERS]
        + [("net_small_300", "true network", 0.4), ("net_small_3000", "true network", 0.4)],
        columns=["set", "method", "log_loss"],
    )
    quoted.to_csv(tmp_path / "quoted.csv", index=False)
    monkeypatch.setattr(other_tables, "QUOTED", tmp_path / "quoted.csv")
    text = "\n".join(other_tables.page(frame))
    assert "| 300 rows |" in text and "| people |" in text and "mean of 2" in text
    other_tables.plot(frame, tmp_path / "tables.png")
    assert (tmp_path / "tables.png").stat().st_size > 5000


@pytest.mark.long
def test_tables_of_noise_are_told_by_their_number_of_groups(monkeypatch):
    monkeypatch.setattr(noise, "PREDICTORS", 5)
    rows = noise.run_batch(3, range(2)) + [(2, 0, 2, 0.004, 0.001, 2), (2, 1, 3, 0.002, 0.003, 0)]
    assert [row[:3] for row in rows[:2]] == [(3, 0, 2), (3, 1, 3)]
    assert all(0.0 <= row[3] < 0.1 and row[4] >= 0.0 for row in rows[:2])
    lines = noise.page(pd.DataFrame(rows, columns=noise.COLUMNS))
    assert "| 2 | 2 | 0.003 (0.001) | 0.002 | 0.00167 | 50.0 % |" in lines


@pytest.mark.long
def test_the_page_of_sequences_has_the_growth_with_sites(tmp_path):
    shapes = [(5000, m, False, "single", 1) for m in (30, 60, 120, 200)]
    shapes += [(5000, 200, False, "double", 1)]
    shapes += [(5000, m, True, "single", 1) for m in (60, 120, 200)]
    rows = [
        (*shape, (shape[1] / 60) ** (3 if shape[2] else 2), 1.0, 20 + k, 1e-4, 100.0, 0.1)
        for k, shape in enumerate(shapes)
    ]
    frame = pd.DataFrame(rows, columns=sites.COLUMNS)
    assert sites.exponent(frame, False) == pytest.approx(2.0)
    text = "\n".join(sites.page(frame))
    assert "the power 2.00" in text and "| 5,000 | 200 | double | 1 | 11.1 | 1.0 | 24 |" in text
    assert "3.00 for closely related" in text and "| 5,000, closely related | 60 |" in text
    sites.draw(frame, tmp_path / "sites.png")
    assert (tmp_path / "sites.png").stat().st_size > 5000
    groups = sites.SHAPES, sites.CLOSE, sites.DOUBLE, sites.PARALLEL
    assert len(sites.settings()) == sum(map(len, groups))


def test_a_fit_to_sequences_is_measured_where_it_has_converged():
    shape = 300, 6, True, "single", 1
    *measured, cpu, wall, iterations, norm, memory, weights = sites.measured(*shape)
    assert tuple(measured) == shape and norm <= 1e-4 and iterations > 3
    assert min(cpu, wall, memory) > 0 <= weights


@pytest.mark.long
def test_each_vector_width_is_measured_in_a_process_of_its_own():
    name = "calibration, 50,000 rows, 4 classes"
    best = {name: {w: widths.in_a_process(name, w) for w in widths.WIDTHS}}
    frame = pd.DataFrame.from_dict(best, orient="index", columns=list(widths.WIDTHS))
    assert (frame > 0.0).all(axis=None)
    frame.loc["two"] = (0.001, 0.0015, 0.003)
    text = "\n".join(widths.page(frame))
    assert "| two | 1 | 1.5 | 3 | 1.50 | 2.00 |" in text and name in text


@pytest.mark.long
def test_the_page_of_plmc_has_its_time_relative_to_a_gradient(tmp_path, monkeypatch):
    """A program that takes longer with more iterations stands for plmc."""
    program = tmp_path / "plmc"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\n"
        "assert sum(line[0] == '>' for line in open(sys.argv[-1])) == 300\n"
        "end = time.process_time() + 0.02 * min(10, int(sys.argv[sys.argv.index('-m') + 1]))\n"
        "while time.process_time() < end: pass\n"
        "print('1', '0.1', '2.00', '9.0', '8.0', '3.0', '4.0', sep='\\t')\n"
        "print('17', '0.2', '1.50', '9.0', '8.0', '6.0', '8.0', sep='\\t')\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(plmc, "ROWS", 300)
    codes = problems.alignment(300, 6).codes
    plmc.write_fasta(codes, tmp_path / "sequences.fa")
    assert 0.01 < plmc.iteration_seconds(str(program), tmp_path / "sequences.fa") < 0.1
    assert 0.0 < plmc.gradient_seconds(6) < 1.0
    assert 0.0 < plmc.fit_seconds(6) < 5.0
    found = plmc.whole_fit(str(program), tmp_path / "sequences.fa", 4)
    assert found["iterations"] == 17 and found["norm"] == pytest.approx(1.5 * 10.0 / 300 / 2)
    assert 0.1 < found["plmc"] < 1.0
    row = {64: 0.1, 32: 0.2, 16: 0.4, "plmc": 1.0}
    fits = {60: row | {"plmc": 20.0, "iterations": 48.0, "norm": 0.002}}
    lines = plmc.page(*(pd.DataFrame.from_dict(f, orient="index") for f in ({60: row}, fits)))
    assert "| 60 | 1.00 | 0.100 (10.0 x) | 0.200 (5.0 x) | 0.400 (2.5 x) |" in lines
    assert "| 60 | 20 | 48 | 2.0e-03 | 0.10 (200 x) | 0.20 (100 x) | 0.40 (50 x) |" in lines
