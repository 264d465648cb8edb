"""What is measured and how: CPU seconds, wall seconds, peak memory; and the register of methods."""

from __future__ import annotations

import contextlib
import ctypes
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

__all__ = ["METHODS", "Measurement", "Options", "measured", "method"]

METHODS: dict[tuple[str, str], Callable] = {}
REPEAT_SECONDS = 0.5
SHORTEST = 0.01


@dataclass(frozen=True)
class Options:
    """What a method is asked for.

    Attributes
    ----------
    tolerance : float
        Largest gradient at which a fit may stop; each tool measures it in its own way (the norm reached is reported).
    threads : int
    sites : list of (int, int), or None
        (part, predictor) pairs that a slow method is restricted to; None for all.
    compare : list of (int, int), or None
        Pairs over which the objective is the mean, also for methods that fit all; None for all.
    repeat : float
        Seconds that repeats of a short measurement add up to.
    more : dict
        What single methods take beyond this.
    """

    tolerance: float = 1e-6
    threads: int = 1
    sites: list[tuple[int, int]] | None = None
    compare: list[tuple[int, int]] | None = None
    repeat: float = REPEAT_SECONDS
    more: dict[str, Any] = field(default_factory=dict)


@dataclass
class Measurement:
    """What every method returns.

    Attributes
    ----------
    objective : float
        The objective reached, computed from the solution by the same code for all methods.
    grad_norm : float
        Largest gradient norm of a site at the solution; nan where there is none.
    user_s, cpu_s, wall_s : float
        User CPU, user + system CPU and elapsed seconds. The kernel splits user from system by clock ticks, so
        `user_s` of a short run is rough, while their sum `cpu_s` is exact.
    peak_mb : float
        Most memory held above what was held before the work began, in units of 1e6 bytes.
    more : dict
        Other figures, by name.
    """

    objective: float
    grad_norm: float
    user_s: float
    cpu_s: float
    wall_s: float
    peak_mb: float
    more: dict[str, Any] = field(default_factory=dict)


def method(job: str, name: str) -> Callable:
    """Register a function ``(problem, options) -> Measurement`` as the method `name` for a `job`."""

    def register(function: Callable) -> Callable:
        METHODS[job, name] = function
        return function

    return register


def _status(key: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise OSError(key)


class Peak:
    """Memory high-water mark above the level at the start.

    On Linux the kernel's mark is reset first, so what came before (imports, reading data) does not hide the work.
    Elsewhere, and where that is not allowed, it is the growth of ``ru_maxrss``, a lower bound.
    """

    def __init__(self):
        gc.collect()
        with contextlib.suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)  # glibc: give back what is free, so that its use counts again
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.before = _status("VmRSS")
            self.exact = True
        except OSError:
            self.before = self._maxrss()
            self.exact = False

    def _maxrss(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def megabytes(self) -> float:
        """Return the peak so far above the start, in units of 1e6 bytes."""
        return max(0, (_status("VmHWM") if self.exact else self._maxrss()) - self.before) / 1e6


def warm_blas() -> None:
    """Have numpy's and SciPy's BLAS allocate their buffers (32 MB each), which the first large product does."""
    a = np.ones((400, 400))
    a @ a
    a @ a[0]
    dgemm(1.0, a, a)
    dgemv(1.0, a, a[0])


def _timed(work: Callable, count: int) -> tuple[Any, float, float, float]:
    """Run `work` `count` times; return its result and user, CPU and wall seconds of one run."""
    user, cpu, wall = resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.process_time(), time.perf_counter()
    for _ in range(count):
        result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - user
    return result, user / count, cpu / count, wall / count


def measured(
    work: Callable[[], Any], check: Callable[[Any], tuple[float, float, dict[str, Any]]], options: Options
) -> Measurement:
    """Measure `work`, and `check` what it returned.

    Work of more than four times ``options.repeat`` seconds runs once. Shorter work runs at least three times more,
    until ``options.repeat`` seconds are spent, and the median of these is taken; very short work runs in batches of
    at least 10 ms. Memory is that of the first run, whose time is kept as ``first_wall_s``.

    Parameters
    ----------
    work : callable
        From the data to the solution, set-up included.
    check : callable
        Takes what `work` returned; gives objective, largest gradient norm and other figures. Not timed.
    options : Options
    """
    warm_blas()
    peak = Peak()
    result, user, cpu, wall = _timed(work, 1)
    peak_mb = peak.megabytes()
    first = wall
    if wall < 4.0 * options.repeat:  # the first run may have loaded something
        batch = max(1, math.ceil(SHORTEST / max(wall, 1e-7)))
        runs, spent = [], 0.0
        while len(runs) < 3 or spent < options.repeat:
            runs.append(_timed(work, batch)[1:])
            spent += batch * runs[-1][2]
        user = sum(run[0] for run in runs) / len(runs)  # a median of ticks would be 0 or 1 tick
        cpu, wall = (statistics.median(run[k] for run in runs) for k in (1, 2))
    objective, grad_norm, more = check(result)
    return Measurement(objective, grad_norm, user, cpu, wall, peak_mb, {"first_wall_s": first, **more})
