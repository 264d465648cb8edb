"""Threads: their number, tasks spread over them, the flag that stops them, BLAS held to one; progress bars."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bbl.checks import integer
from bbl.errors import OptionError

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["Crew", "Stopped", "n_workers", "progress_bar", "run_tasks", "scaled_progress", "serial_blas", "stop_flag"]

T = TypeVar("T")


def n_workers(n_jobs: int | None) -> int:
    """Return the number of workers for ``n_jobs``: None or -1 for all cores, of a joblib backend if one is set."""
    count = -1 if n_jobs is None else integer("n_jobs", n_jobs)
    if count == 0:
        raise OptionError("n_jobs must not be 0; give 1 for one thread or -1 for all cores.", argument="n_jobs")
    if count > 0:
        return count
    from joblib.parallel import get_active_backend

    # joblib's default backend would count for processes, and warn where this is one of a pool
    return max(1, int(get_active_backend(prefer="threads")[0].effective_n_jobs(-1)) + 1 + count)


def run_tasks(
    function: Callable, tasks: Sequence[tuple], workers: int, progress: Callable | None = None, shared: bool = False
) -> list:
    """Return ``[function(*task) for task in tasks]``, by threads or the joblib backend that the caller configured.

    The tasks must not share anything that they write, so the results do not depend on `workers`. Tasks that are
    `shared` write into arrays of this process, or cannot be pickled: they run in threads under any backend.
    `progress` is called once for each finished task.
    """
    stop = stop_flag()
    if workers == 1 or len(tasks) < 2:
        done: Iterable = (_run_one(function, stop, *task) for task in tasks)
    else:
        from joblib.parallel import Parallel, delayed, get_active_backend

        place = {"require": "sharedmem"} if shared else {"prefer": "threads"}
        one_by_one = get_active_backend(**place)[0].supports_return_generator  # multiprocessing's does not
        pool = Parallel(n_jobs=min(workers, len(tasks)), return_as="generator" if one_by_one else "list", **place)
        done = pool(delayed(_run_task)(function, stop, *task) for task in tasks)
    results = []
    try:
        for result in done:
            results.append(result)
            if progress is not None:
                progress()
    except BaseException:
        stop[0] = 1  # an interrupt reaches this thread alone; the others look at the flag
        raise
    if any(result is Stopped for result in results):
        raise Stopped
    return results


class Crew:
    """Threads that stay for many short rounds of tasks: a round costs some 0.05 ms, where `run_tasks` takes a few.

    The threads go at the end of a ``with`` statement, or with the object.

    Parameters
    ----------
    workers : int
        Threads, the caller's own among them.
    """

    def __init__(self, workers: int):
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, function: Callable, tasks: Iterable[tuple]) -> None:
        """Call ``function(*task)`` for each of `tasks`, which must not share anything that they write."""
        remaining = deque(tasks)
        helpers = (
            []
            if self._pool is None
            else [
                self._pool.submit(_work_off, function, remaining) for _ in range(min(self.workers, len(remaining)) - 1)
            ]
        )
        try:
            _work_off(function, remaining)
        finally:
            remaining.clear()  # after an error or an interrupt nothing new is begun
            failed = [helper.exception() for helper in helpers]
        for error in failed:
            if error is not None:
                raise error


def _work_off(function: Callable, tasks: deque) -> None:
    """Call `function` with tasks from the left of the queue until it is empty."""
    while True:
        try:
            task = tasks.popleft()
        except IndexError:
            return
        function(*task)


class Stopped(Exception):
    """The call that a task belongs to was given up in another thread; nobody waits for the task."""


def _run_one(function: Callable[..., T], stop: np.ndarray, *task: object) -> T:
    """Return ``function(*task)``, or raise Stopped if the flag `stop`, shape (1,), is set."""
    if stop[0]:
        raise Stopped
    return function(*task)


_local = threading.local()


def stop_flag() -> np.ndarray:
    """Return the int32 array (1,) whose non-zero entry tells the kernels of this thread's task to give up."""
    flag = getattr(_local, "stop", None)
    return np.zeros(1, dtype=np.int32) if flag is None else flag


def _run_task(function: Callable[..., T], stop: np.ndarray, *task: object) -> T | type[Stopped]:
    """Return ``function(*task)``, with `stop` as this thread's flag; the class Stopped if the task gave up."""
    before = getattr(_local, "stop", None)
    _local.stop = stop
    try:
        return function(*task)
    except Stopped:
        return Stopped  # no error of its own, which the caller could hear of in place of the first one
    finally:
        _local.stop = before


class _Steps:
    """Function that advances a progress bar; a copy in another process does nothing."""

    def __init__(self, bar: tqdm | None = None):
        self._bar = bar

    def __call__(self, share: float = 1.0, note: str = "") -> None:
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(share)
            if not (share or self._bar.disable) and time.time() > self._bar.start_t + self._bar.delay:  # only a note
                self._bar.refresh()

    def __reduce__(self):
        return _Steps, ()


@dataclass(frozen=True)
class _ScaledProgress:
    progress: Callable
    scale: float

    def __call__(self, share: float = 1.0, note: str = "") -> None:
        self.progress(self.scale * share, note)


def scaled_progress(progress: Callable | None, scale: float) -> Callable | None:
    """Return a progress function for a task that is the share `scale` of all work; None if `progress` is None."""
    return None if progress is None else _ScaledProgress(progress, scale)


@contextmanager
def progress_bar(total: int | None, title: str, verbose: int):
    """Show a progress bar on stderr if that is a terminal and `verbose`; yield the function to call after each step.

    It may be called with the share of a step that is done, and with a note on how it goes. Without a `total` the bar
    counts the steps.
    """
    from tqdm import tqdm

    shown = verbose if isinstance(verbose, bool) else integer("verbose", verbose) > 0
    with tqdm(total=total, desc=title, disable=None if shown else True, delay=1.0, leave=False) as bar:
        yield _Steps(bar)


@functools.cache
def _blas() -> list[Any]:
    """Return threadpoolctl's controllers of the BLAS libraries: numpy's, and scipy's, which has to be loaded first."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_blas_threads(library: Any, count: int) -> None:
    """Limit a BLAS library, given by its threadpoolctl controller, to `count` threads."""
    # since 3.8 threadpoolctl lets one Python thread alone change a limit, and ignores all others without a word
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


class _SerialBlas:
    """BLAS held to one thread: workers are ours, and results must not depend on their number.

    Most libraries have one limit for the process. So it is lifted by the last thread that leaves, whoever came first.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, [0]

    def __enter__(self) -> None:
        libraries = _blas()
        with self.lock:
            if not self.inside:
                self.before = [library.get_num_threads() for library in libraries]
            self.inside += 1
            for library in libraries:
                _set_blas_threads(library, 1)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            for library, count in zip(_blas(), self.before, strict=True):
                if not self.inside or getattr(library, "threading_layer", "") == "openmp":  # one limit per thread
                    _set_blas_threads(library, count)


_serial_blas = _SerialBlas()
if hasattr(os, "register_at_fork"):  # a fork in the middle of a fit leaves its other threads, and their lock, behind
    os.register_at_fork(after_in_child=_serial_blas.reset)


def serial_blas() -> _SerialBlas:
    """Return the context in which BLAS runs on one thread."""
    return _serial_blas
