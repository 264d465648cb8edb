"""Threads, processes and signals: the same bits however the work is spread, no hang, Ctrl-C heard,
memory in bounds.
"""

import dataclasses
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pandas as pd
import pytest
from clusters import local_cluster
from interrupts import unheard
from threadpoolctl import threadpool_info, threadpool_limits

import bbl
from bbl.engines import NaiveBayes
from bbl.errors import DataError, DataWarning
from bbl.model.regressors import to_matrix
from bbl.parallel import ThreadPool, n_workers, read_ahead, run_tasks, stop_flag

PSEUDO = {"lambda_": 0.01, "lambdah": 0.01}
# see conftest.py
ALL_CORES = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


@pytest.fixture(autouse=True)
def _all_cores():
    """BLAS takes all cores here, as it does unless it is told otherwise."""
    with threadpool_limits(os.cpu_count()):
        yield


def table(n=4000, m=24, L=4, K=3, seed=0):
    rng = np.random.default_rng(seed)
    hidden = rng.random((n, 1))
    frame = pd.DataFrame((L * (0.7 * rng.random((n, m)) + 0.3 * hidden)).astype(int)).add_prefix(
        "x"
    )
    frame["y"] = rng.integers(0, K, n)
    return frame


@pytest.fixture(scope="module")
def data():
    return table()  # large enough that groups and predictors are dealt to workers


def digest(*arrays):
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def fits(data, n_jobs):
    """Return the numbers of everything that runs in parallel."""
    common = {"n_jobs": n_jobs, "verbose": 0}
    pseudo = bbl.bbl("y ~ .^2", data, **PSEUDO, **common)
    meanfield = bbl.bbl("y ~ .^2", data, method="mf", **common)
    cv = bbl.crossVal("y ~ .^2", data, method="mf", eps=[0.3, 0.9], nfold=3, **common)
    one = bbl.mlestimate(data.iloc[:, :-1].to_numpy(), lambda_=0.1, n_jobs=n_jobs)
    boot = bbl.bbl("y ~ x0 * x1", data, **PSEUDO).bootstrap(4, seed=1, n_jobs=n_jobs)
    return [
        pseudo.estimate.parameters.theta,
        meanfield.estimate.parameters.theta,
        cv.cvframe.to_numpy(),
        *one.h,
        boot["se"].to_numpy(),
    ]


def run(code, *arguments, timeout=120):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, env=ALL_CORES
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def serial(data):
    """What all that runs in parallel gives in one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # groups that do not differ
        return digest(*fits(data, 1))


# -- the same bits ---------------------------------------------------------------------------------
def gibbs(fit, n_jobs):
    from bbl.model.chains import gibbs as sample

    h, J = to_matrix(fit.estimate.parameters.layout, fit.estimate.parameters.theta[0])
    draws = sample(h, J, fit.estimate.parameters.layout.n_levels, 40, 200, 1, thin=1, n_jobs=n_jobs)
    return draws.draws, draws.best


@pytest.mark.long
def test_one_digest_for_any_number_of_threads(data):
    found = {"pseudo": set(), "mf": set(), "gibbs": set()}
    for n_jobs in [1, 2, 3, 4, 8] * 2:
        for method, options in (("pseudo", PSEUDO), ("mf", {})):
            fit = bbl.bbl("y ~ .^2", data, method=method, n_jobs=n_jobs, verbose=0, **options)
            found[method].add(
                digest(fit.estimate.parameters.theta, fit.estimate.parameters.pooled, fit.log_z)
            )
        found["gibbs"].add(digest(*gibbs(fit, n_jobs)))
    assert {name: len(own) for name, own in found.items()} == {"pseudo": 1, "mf": 1, "gibbs": 1}


@pytest.mark.long
def test_eight_python_threads_at_once_give_the_serial_bits():
    before = [library["num_threads"] for library in threadpool_info()]
    # of different size, so that they interleave
    tables = [table(300, 40 + 10 * (k % 3), seed=k) for k in range(8)]

    def work(frame):
        fit = bbl.bbl("y ~ .^2", frame, method="mf", n_jobs=1, verbose=0)
        small = bbl.bbl("y ~ (x0 + x1 + x2)^2", frame, n_jobs=2, verbose=0, **PSEUDO)
        prob = fit.predict(frame, type="prob").iloc[:, :-1]
        return digest(
            fit.estimate.parameters.theta,
            small.estimate.parameters.theta,
            prob,
            bbl.mcSample(fit, 20, seed=1).emax,
        )

    serial = list(map(work, tables))
    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, tables)) == serial
    assert [library["num_threads"] for library in threadpool_info()][: len(before)] == before


@pytest.mark.parametrize(
    "backend",
    [
        {"backend": "threading"},
        {"backend": "multiprocessing"},
        pytest.param({"backend": "loky", "max_nbytes": 100}, marks=pytest.mark.long),
        # last: the next test finds its processes running
        pytest.param({"backend": "loky"}, marks=pytest.mark.long),
    ],
    ids=["threads", "multiprocessing", "memmaps", "loky"],
)
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded, use of fork:DeprecationWarning")
# groups that do not differ
@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
@pytest.mark.long
def test_any_joblib_backend_gives_the_same_bits(data, serial, backend):
    """With `max_nbytes` every array reaches the worker as a read-only memory map."""
    with joblib.parallel_config(**backend):
        assert digest(*fits(data, 2)) == serial


class Elsewhere(NaiveBayes):
    """Naive Bayes that notes the process that it ran in."""

    def path(self, sample, layout, values=None, workers=1):
        return [
            dataclasses.replace(fit, grad_norm=np.array([os.getpid()]))
            for fit in super().path(sample, layout)
        ]


def where(data, **options):
    """Return the processes in which groups were fitted."""
    fit = bbl.bbl("y ~ .", data, method=Elsewhere(), n_jobs=2, verbose=0, **options)
    return {int(group.grad_norm[0]) for group in fit.estimate.fits}


@pytest.mark.long
def test_groups_are_fitted_in_processes_if_joblib_is_told_to(data):
    assert where(data) == {os.getpid()}
    with joblib.parallel_config("loky"):
        assert os.getpid() not in where(data)


@pytest.fixture(scope="module")
def cluster():
    with local_cluster(1, 2) as (own, _):
        yield own


@pytest.mark.filterwarnings("ignore:On the held-out rows:bbl.errors.DataWarning")
def test_dask_workers_give_the_same_bits(data, serial, cluster):
    with joblib.parallel_config("dask"):
        assert digest(*fits(data, None)) == serial
        found = where(data)
    assert found and os.getpid() not in found


FORKED = """
import multiprocessing, sys, warnings
import numpy as np
import bbl

def work(seed):
    rng = np.random.default_rng(seed)
    data = {f"x{i}": rng.integers(0, 4, 4000) for i in range(24)} | {"y": rng.integers(0, 2, 4000)}
    fit = bbl.bbl("y ~ .^2", data, method="mf", n_jobs=2, verbose=0)
    return fit.estimate.parameters.theta.tobytes() + bbl.mcSample(fit, 5, seed=1).emax.to_numpy().tobytes()

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any fork beside threads
    here = [work(seed) for seed in range(6)]
    for method, tasks in zip(sys.argv[1::2], sys.argv[2::2]):
        with multiprocessing.get_context(method).Pool(2, maxtasksperchild=int(tasks)) as pool:
            if pool.map(work, range(6), chunksize=1) == here:
                print(method)
"""  # noqa: E501


@pytest.mark.skipif(sys.platform == "win32", reason="there is only spawn")
@pytest.mark.long
def test_processes_started_after_a_fit(tmp_path):
    """With fork 6 processes are started, each from one that has run threads and BLAS."""
    script = tmp_path / "script.py"  # spawn imports it again
    script.write_text(FORKED)
    command = [sys.executable, str(script), "fork", "1", "forkserver", "10", "spawn", "10"]
    env = ALL_CORES | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, env=env
    )
    assert done.stdout.split() == ["fork", "forkserver", "spawn"], done.stdout + done.stderr


@pytest.mark.long
def test_beside_another_copy_of_libgomp():
    """scikit-learn brings an OpenMP of its own; a fit between its regions, and a limit on both,
    change nothing.
    """
    pytest.importorskip("sklearn")
    code = """
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits
import bbl

rng = np.random.default_rng(0)
X, y = rng.integers(0, 3, (1000, 20)), rng.integers(0, 2, 1000)
data = {f"x{i}": X[:, i] for i in range(12)} | {"y": y}
found = []
for limit in (None, 1, 2):
    with threadpool_limits(limit):
        for _ in range(2):
            trees = HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=8).fit(X, y).predict_proba(X)
            fit = bbl.bbl("y ~ .^2", data, method="mf", n_jobs=2, verbose=0)
            found.append((trees.tobytes(), fit.estimate.parameters.theta.tobytes()))
print(len(set(found)))
"""  # noqa: E501
    assert run(code) == "1"


# -- faults ----------------------------------------------------------------------------------------
class Failing(NaiveBayes):
    """Naive Bayes that fails on small groups."""

    def path(self, sample, layout, values=None, workers=1):
        if sample.total < 2000:
            raise DataError("this group is too small. Pass more rows.")
        return super().path(sample, layout, values, workers)


@pytest.mark.parametrize(
    ("backend", "n_jobs", "calls"),
    [
        *(("threading", n_jobs, (bbl.bbl, bbl.crossVal)) for n_jobs in (1, 2, 8)),
        pytest.param("loky", 2, (bbl.crossVal,), marks=pytest.mark.long),
        pytest.param("loky", 2, (bbl.bbl,), marks=pytest.mark.long),  # an error ends the processes
    ],
)
def test_an_error_in_a_worker_is_raised_once(data, backend, n_jobs, calls):
    with joblib.parallel_config(backend):
        for call in calls:
            with pytest.raises(DataError, match="too small") as caught:
                call("y ~ .", data, method=Failing(), n_jobs=n_jobs, verbose=0)
            error = caught.value
            # loky shows where it was raised
            assert error.__context__ is None or error.__suppress_context__ or backend == "loky"
        assert where(data)  # and the next call works


def failing(k):
    """Fail in the second task, whose error is still on its way when the first one hears of it."""
    if k == 0:
        while not stop_flag()[0]:
            time.sleep(0.001)
    try:
        return run_tasks(int, [("1",), ("no number",)], 1)
    except ValueError:
        time.sleep(0.2)
        raise


def test_the_error_that_stopped_the_others_is_the_one_that_is_raised():
    with pytest.raises(ValueError, match="no number"):
        run_tasks(failing, [(0,), (1,)], 2)


LONG = """
rng = np.random.default_rng(0)
codes = (3 * (0.7 * rng.random((50_000, 60)) + 0.3 * rng.random((50_000, 1)))).astype(np.int8)
data = pd.DataFrame(codes).add_prefix("x").assign(y=rng.integers(0, 2, len(codes)))
fit = bbl.bbl("y ~ .^2", data, method="mf", verbose=0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a POSIX system")
@pytest.mark.long
def test_an_interrupt_is_heard():
    calls = [
        "fit.predict(data)",
        "fit.predict(data.iloc[:5000].assign(x0='new', x1='new', x2='new'), unseen='ignore')",
        "bbl.mcSample(fit, 10**7, verbose=0)",
        "bbl.bbl('y ~ x0 * x1', data, lambda_=0.1, verbose=0).bootstrap(10**5, n_jobs=2)",
        "bbl.mlestimate(codes, n_jobs=2, lambda_=1e-6)",
    ]
    assert not unheard(LONG, calls)


# -- memory ----------------------------------------------------------------------------------------
PEAK = """
import json, os, sys
import numpy as np
import pandas as pd
import bbl
import bbl.boltzmann.estimate

def peak():  # of a process that is forked it begins with what there is (that of ru_maxrss, with the parent's)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))

estimates = []
check = bbl.boltzmann.estimate.check_memory
bbl.boltzmann.estimate.check_memory = lambda needed, *text: (estimates.append(needed / 2**20), check(needed, *text))
for warm_up in ("pseudo", "mf"):  # so that imports do not count
    bbl.bbl("y ~ .^2", {"y": [0, 1] * 4, "a": [0, 0, 1, 1] * 2, "b": [0, 1, 1, 1] * 2}, method=warm_up, n_jobs=1)

def measure(n, m, L, method, n_jobs, itmax):
    imported = peak()
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.integers(0, L, (n, m), dtype=np.int8)).add_prefix("x")
    data["y"] = rng.integers(0, 2, n, dtype=np.int8)
    before, estimates[:] = peak(), []
    options = {"lambda_": 0.1, "lambdah": 0.1, "itmax": itmax} if method == "pseudo" else {}
    bbl.bbl("y ~ .^2", data, method=method, n_jobs=n_jobs, verbose=0, **options)
    print(json.dumps([peak() - imported, peak() - before, max(estimates)]), flush=True)

for case in json.loads(sys.argv[1]):  # each in a process of its own
    if (child := os.fork()) == 0:
        measure(*case)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""  # noqa: E501


def peaks(*cases):
    """Return of each fit its peak (MiB) above the imports and above the data, and the estimate of
    that.
    """
    return [json.loads(line) for line in run(PEAK, json.dumps(cases)).splitlines()]


linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak")


ROWS = {"pseudo": (200_000, 20, 4, "pseudo", 2, 100), "mf": (200_000, 20, 4, "mf", 2, 100)}
# three iterations take the memory of all
PAIRS = [(400, 400, 5, "mf", 2, 3), (400, 150, 5, "pseudo", 2, 3)]


def is_near(above_data, estimated):
    return above_data / 1.5 < estimated < above_data * 1.5


@linux
@pytest.mark.long
def test_the_peak_of_memory_is_low_and_near_its_estimate():
    rows, *pairs = peaks(ROWS["pseudo"], *PAIRS)
    assert 1 < rows[0] < 300
    for _, above_data, estimated in pairs:
        assert is_near(above_data, estimated)


@linux
@pytest.mark.long
def test_the_peak_of_memory_of_mean_field():
    rows, (_, above_data, estimated) = peaks(ROWS["mf"], (400, 400, 5, "mf", 1, 3))
    assert 1 < rows[0] < 300
    assert is_near(above_data, estimated)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_crew_does_each_task_once_round_after_round(workers):
    done = np.zeros((200, 7), dtype=int)
    with ThreadPool(workers) as pool:
        for k in range(len(done)):
            pool.run(
                lambda i, k=k: done[k].__setitem__(i, done[k, i] + 1), [(i,) for i in range(7)]
            )
            assert (done[: k + 1] == 1).all()  # the round is over when run() returns
        pool.run(int, [])


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_a_crew_is_the_callers_and_ends_the_round(workers):
    begun = []

    def fail(k):
        begun.append(k)
        time.sleep(0.01)
        raise DataError(f"task {k}")

    with ThreadPool(workers) as pool:
        with pytest.raises(DataError, match="task"):
            pool.run(fail, [(k,) for k in range(50)])
        assert len(begun) <= 2 * workers
        pool.run(begun.append, [(99,)])  # the pool lives on
    assert begun[-1] == 99


def test_a_process_of_a_pool_has_its_threads_and_no_warning(monkeypatch):
    whole = n_workers(None)
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    assert n_workers(None) == whole and n_workers(-1) == whole


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_is_read_ahead_comes_in_order_and_so_do_errors(workers):
    def items():
        yield from range(6)
        raise OSError("the disk is gone")

    def square(number):
        time.sleep(0.01 * (number % 3))
        return number**2

    seen = []
    with pytest.raises(OSError, match="disk"):
        # extend() takes all that comes before the error
        seen.extend(read_ahead(square, items(), workers))
    assert seen == [0, 1, 4, 9, 16, 25]
    ahead = read_ahead(lambda number: 1 // number, iter([1, 0, 5]), workers)
    assert next(ahead) == 1
    with pytest.raises(ZeroDivisionError):
        next(ahead)
