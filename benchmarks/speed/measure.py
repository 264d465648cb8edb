"""What is measured and how: CPU seconds, wall seconds, peak memory; and the register of methods."""

import gc
import math
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm, dgemv

from bbl.memory import return_freed_memory

METHODS: dict[tuple[str, str], Callable] = {}
REPEAT_SECONDS = 0.5
SHORTEST = 0.01


@dataclass(frozen=True)
class Options:
    """What a method is asked for."""

    # largest gradient at which a fit may stop, measured by each tool in its own way
    tolerance: float = 1e-6
    threads: int = 1
    # (part, predictor) pairs that a slow method is restricted to; or all
    sites: list[tuple[int, int]] | None = None
    # pairs over which the objective is the mean, whatever is fitted
    compare: list[tuple[int, int]] | None = None
    repeat: float = REPEAT_SECONDS  # what repeats of a short measurement add up to
    more: dict[str, Any] = field(default_factory=dict)  # what single methods take beyond this


@dataclass
class Measurement:
    """What every method returns."""

    objective: float  # at the solution, computed by the same code for all methods
    grad_norm: float  # the largest of a site at the solution; nan where there is none
    user_s: float  # of short runs rough, as the kernel splits user from system by clock ticks
    cpu_s: float  # user + system
    wall_s: float
    # most memory held above what was held before the work began, in units of 1e6 bytes
    peak_mb: float
    more: dict[str, Any] = field(default_factory=dict)  # other figures, by name


def method(job: str, name: str) -> Callable:
    """Register a function ``(problem, options) -> Measurement`` as the method `name` for a
    `job`.
    """

    def register(function: Callable) -> Callable:
        METHODS[job, name] = function
        return function

    return register


def peak_meter() -> Callable[[], float]:
    """Return a function that gives the most memory held from now on above the level of now, in
    units of 1e6 bytes.

    On Linux the kernel's mark is reset first, so what came before (imports, reading data) does not
    hide the work. Elsewhere, and where that is not allowed, it is the growth of ``ru_maxrss``, a
    lower bound.
    """
    gc.collect()
    return_freed_memory()  # so that its use counts again
    try:
        reset_peak()
        before, now = _status("VmRSS"), peak_memory
    except OSError:
        now = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # noqa: E731
        before = now()
    return lambda: max(0, now() - before) / 1e6


def reset_peak() -> None:
    """Let the kernel's mark of the peak memory begin at the present use (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the peak memory of this process since the last `reset_peak`, in bytes (Linux)."""
    return _status("VmHWM")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def warm_blas() -> None:
    """Have numpy's and SciPy's BLAS allocate their buffers (32 MB each), which the first large
    product does.
    """
    a = np.ones((400, 400))
    a @ a
    a @ a[0]
    dgemm(1.0, a, a)
    dgemv(1.0, a, a[0])


def _timed(work: Callable, count: int) -> tuple[Any, float, float, float]:
    """Run `work` `count` times; return its result and user, CPU and wall seconds of one run."""
    user, cpu, wall = (
        resource.getrusage(resource.RUSAGE_SELF).ru_utime,
        time.process_time(),
        time.perf_counter(),
    )
    for _ in range(count):
        result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - user
    return result, user / count, cpu / count, wall / count


def measured(
    work: Callable[[], Any],
    check: Callable[[Any], tuple[float, float, dict[str, Any]]],
    options: Options,
) -> Measurement:
    """Measure `work`, from the data to the solution, and `check` what it returned (not timed).

    Work of more than four times ``options.repeat`` seconds runs once. Shorter work runs at least
    three times more, until ``options.repeat`` seconds are spent, and the median of these is taken;
    very short work runs in batches of at least 10 ms. Memory is that of the first run, whose time
    is kept as ``first_wall_s``. What `check` returns is the objective, the largest gradient norm
    and other figures.
    """
    warm_blas()
    peak = peak_meter()
    result, user, cpu, first = _timed(work, 1)
    peak_mb, wall = peak(), first
    if wall < 4.0 * options.repeat:  # the first run may have loaded something
        batch = max(1, math.ceil(SHORTEST / max(wall, 1e-7)))
        runs, spent = [], 0.0
        while len(runs) < 3 or spent < options.repeat:
            runs.append(_timed(work, batch)[1:])
            spent += batch * runs[-1][2]
        user = sum(run[0] for run in runs) / len(runs)  # a median of ticks would be 0 or 1 tick
        cpu, wall = (statistics.median(run[k] for run in runs) for k in (1, 2))
    objective, grad_norm, more = check(result)
    return Measurement(
        objective, grad_norm, user, cpu, wall, peak_mb, {"first_wall_s": first, **more}
    )
