"""Fixtures for all tests."""

import functools
import gc
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from clusters import local_cluster

# tests leave few cycles, and a collection looks at all that pytest keeps: a tenth of the time
gc.set_threshold(50_000)

# without cached bytecode, every worker and every Python that a test starts compiles all modules
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

PACKAGE = Path(__file__).resolve().parents[1] / "bbl"

collect_ignore = ["fuzz", "sanitize"]  # programs of their own; test_fuzz runs the first

# threads of BLAS and of fits (n_jobs) on all cores would wait for the other workers
if "PYTEST_XDIST_WORKER" in os.environ:
    share = (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for name in ("OMP_NUM_THREADS", "LOKY_MAX_CPU_COUNT"):
        os.environ.setdefault(name, str(max(1, share)))

# as a shell leaves it to what it starts in the background
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class SourcesWithoutExamples:
    """Leaves out modules of the package whose docstrings have no examples: each worker would search
    them.
    """

    def pytest_ignore_collect(self, collection_path):
        """Ignore such a module; None leaves the decision about other files to pytest."""
        if collection_path.suffix == ".py" and PACKAGE in collection_path.parents:
            return ">>>" not in collection_path.read_text(encoding="utf-8") or None
        return None


def pytest_configure(config):
    """Register the hook for files outside this folder too."""
    config.pluginmanager.register(SourcesWithoutExamples())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave one of `step` cases of a grid that is ``thinned(step)`` in every run, and the others to
    the long one.
    """
    seen = Counter()
    for item in items:
        mark = item.get_closest_marker("thinned")
        if mark:
            step, name = mark.args[0], (item.path, item.originalname)
            if seen[name] % step:
                item.add_marker("long")
            seen[name] += 1


def pytest_collection_finish():
    """Leave what was imported and collected to the end: a full collection then takes a hundredth of
    the time.
    """
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """After each file, also leave what its tests keep: late in a run a full collection took 0.9 s,
    and some libraries ask for one in each call.
    """
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference outputs and data sets; where it is absent, its tests are skipped (an
    error under CI).
    """
    folder = Path(os.environ.get("BBL_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not folder.is_dir():
        reason = f"{folder} is absent; set BBL_SHARED to the folder of reference outputs"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture
def short_annealing(monkeypatch):
    """Fits anneal 64 chains in 50 steps: enough where numbers are held against each other, not
    against the truth.
    """
    from bbl.boltzmann import estimate

    short = functools.partial(estimate.annealed_log_z, n_steps=50, n_chains=64)
    monkeypatch.setattr(estimate, "annealed_log_z", short)


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made but not rendered, half of the time of a report: enough where its text is
    read.
    """
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)


@pytest.fixture(scope="module")
def client():
    """Two Dask workers, each a process of one thread; beside other tests they would take time even
    where idle.
    """
    with local_cluster(2, 1) as (_, client):
        yield client
