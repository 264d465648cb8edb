"""Worker threads, the stop flag, single-threaded BLAS, and progress bars.

The *stop flag* is an int32 array with one element, which is shared by all tasks of a call. Kernels
stop when the flag is nonzero.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bbl.checks import integer
from bbl.errors import OptionError

if TYPE_CHECKING:
    from joblib import Parallel
    from tqdm import tqdm

__all__ = [
    "ThreadPool",
    "Stopped",
    "n_workers",
    "progress_bar",
    "read_ahead",
    "run_tasks",
    "scaled_progress",
    "serial_blas",
    "stop_flag",
]

SHOWS_BARS: ContextVar[bool] = ContextVar("SHOWS_BARS", default=True)
S = TypeVar("S")
T = TypeVar("T")


def n_workers(n_jobs: int | None) -> int:
    """Return the number of workers for ``n_jobs``.

    None or -1 means all cores, or all workers of a joblib backend; -2 means all except one, and so
    on. Raises an OptionError for 0.
    """
    requested = -1 if n_jobs is None else integer("n_jobs", n_jobs)
    if requested == 0:
        raise OptionError(
            "n_jobs must not be 0.",
            argument="n_jobs",
            hint="Pass 1 for one thread, or -1 for all cores.",
        )
    if requested > 0:
        return requested
    from joblib.parallel import get_active_backend

    # [0] is the backend. Without prefer="threads", joblib counts processes, and warns if this runs
    # inside the worker of a pool
    return max(1, int(get_active_backend(prefer="threads")[0].effective_n_jobs(-1)) + 1 + requested)


def run_tasks(
    function: Callable,
    tasks: Sequence[tuple],
    workers: int,
    progress: Callable | None = None,
    shared: bool = False,
) -> list:
    """Return ``[function(*task) for task in tasks]``, computed in parallel.

    Tasks run in threads by default. A backend that the user has set, for example with
    ``joblib.parallel_config("loky")``, may run them in other processes; the function and the
    arguments are then pickled.

    A task must not write data that another task reads or writes; results then do not depend on
    `workers`. With `shared`, tasks run in threads under any backend, because they write to arrays
    of this process or cannot be pickled. `progress` is called without arguments after each task.
    """
    # inside a task of an outer call of `run_tasks`, use the flag of that call; otherwise, create a
    # new flag
    stop = stop_flag()
    results = []
    if workers == 1 or len(tasks) < 2:
        # run in this thread. Inside a task, `stop` is already the flag; outside of tasks, no other
        # thread can set it
        for task in tasks:
            if stop[0]:
                raise Stopped
            results.append(function(*task))
            if progress is not None:
                progress()
        return results
    run = functools.partial(_run_with_flag, function, stop)
    n = min(workers, len(tasks))
    joblib_pool = _joblib_pool(n, shared)
    threads = ThreadPoolExecutor(n)  # no thread is started before the first task
    try:
        if joblib_pool is None:
            futures = [threads.submit(run, *task) for task in tasks]
            returned = (future.result() for future in futures)
        else:
            from joblib.parallel import delayed

            returned = joblib_pool(delayed(run)(*task) for task in tasks)
        for result in returned:
            results.append(result)
            if progress is not None:
                progress()
    except BaseException:
        # an interrupt is raised only in this thread; tasks in other threads check the flag
        stop[0] = 1
        raise
    finally:
        threads.shutdown(cancel_futures=True)
    # `_run_with_flag` returns the class Stopped if a task ended early
    if any(result is Stopped for result in results):
        raise Stopped
    return results


def _joblib_pool(workers: int, shared: bool) -> Parallel | None:
    """Return a joblib pool for the backend that the user has set, or None if tasks run in threads.

    Threads are not started by joblib, which checks for results only every 10 ms. A small fit takes
    less time than that.
    """
    from joblib.parallel import Parallel, ThreadingBackend, get_active_backend

    # "require" forces threads
    preference = {"require": "sharedmem"} if shared else {"prefer": "threads"}
    backend = get_active_backend(**preference)[0]
    if type(backend) is ThreadingBackend:
        return None
    # the multiprocessing backend has no generator
    return_as = "generator" if backend.supports_return_generator else "list"
    return Parallel(n_jobs=workers, return_as=return_as, **preference)


def read_ahead(function: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    """Yield ``function(item)`` for all `items` in order; the results are computed ahead in threads.

    Up to `workers` items are processed ahead of the caller. Items are read in the caller's thread.
    If reading fails, the results of earlier items are yielded before the error is raised.
    """
    if workers == 1:
        yield from map(function, items)
        return
    queue: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        remaining_items = iter(items)
        read_error = None
        while True:
            try:
                item = next(remaining_items)
            except StopIteration:
                break
            # raised while an item is read; the results of earlier items are yielded first
            except Exception as error:
                read_error = error
                break
            queue.append(pool.submit(function, item))
            if len(queue) >= workers:
                yield queue.popleft().result()
        while queue:
            yield queue.popleft().result()
    if read_error is not None:
        raise read_error


class ThreadPool:
    """A pool of threads for many short rounds of tasks.

    A round of `run` has an overhead of about 0.05 ms, compared with a few ms for `run_tasks`. The
    threads end when the ``with`` statement ends or the object is deleted.

    Parameters
    ----------
    workers : int
        Number of threads, including the caller's.
    """

    def __init__(self, workers: int):
        self.workers = workers
        # the caller's thread also runs tasks
        self._pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None

    def __enter__(self) -> ThreadPool:
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, function: Callable, tasks: Iterable[tuple]) -> None:
        """Call ``function(*task)`` for each of the `tasks`.

        A task must not write data that another task reads or writes.
        """
        queue = deque(tasks)
        # threads in addition to the caller's
        n_helpers = 0 if self._pool is None else min(self.workers, len(queue)) - 1
        helpers = [self._pool.submit(_run_queue, function, queue) for _ in range(n_helpers)]  # type: ignore[union-attr]
        try:
            _run_queue(function, queue)
        finally:
            queue.clear()  # do not start any further tasks after an error or an interrupt
            errors = [helper.exception() for helper in helpers]  # wait for the helpers
        for error in errors:
            if error is not None:
                raise error


def _run_queue(function: Callable, queue: deque) -> None:
    """Call ``function(*task)`` for tasks from the front of the shared `queue`, until the queue is
    empty.
    """
    while True:
        try:
            task = queue.popleft()
        except IndexError:
            return
        function(*task)


class Stopped(Exception):
    """Raised to stop a task after the call to `run_tasks` has failed or been interrupted."""


_local = threading.local()  # its attribute `stop` is the stop flag of the thread's current task


def stop_flag() -> np.ndarray:
    """Return the stop flag of the thread's current task, an int32 array of shape (1,).

    Outside of tasks, a new flag is returned.
    """
    task_flag = getattr(_local, "stop", None)
    return np.zeros(1, dtype=np.int32) if task_flag is None else task_flag


def _run_with_flag(
    function: Callable[..., T], stop: np.ndarray, *task: object
) -> T | type[Stopped]:
    """Return ``function(*task)``, or the class Stopped; `stop` is the stop flag of the thread
    during the call.

    An error sets the flag, and the other tasks then stop.
    """
    outer_flag = getattr(_local, "stop", None)
    _local.stop = stop
    try:
        return Stopped if stop[0] else function(*task)
    except Stopped:
        # if it were raised, it could reach the caller before the error that set the flag
        return Stopped
    except BaseException:
        stop[0] = 1
        raise
    finally:
        _local.stop = outer_flag


class _Steps:
    """A callable that advances a tqdm bar, if there is one, and shows a note."""

    def __init__(self, bar: tqdm | None = None):
        self._bar = bar

    def __call__(self, share: float = 1.0, note: str = "") -> None:
        """Advance the bar by a fraction `share` of a step, and show `note` after the bar."""
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(share)
            # show a note immediately, even without progress, unless tqdm does not show the bar yet
            if (
                not (share or self._bar.disable)
                and time.time() > self._bar.start_t + self._bar.delay
            ):
                self._bar.refresh()  # update(0) would not show the new note

    def __reduce__(self):
        """Pickle without the bar, because other processes do not show progress."""
        return _Steps, ()


@dataclass(frozen=True)
class _ScaledProgress:
    """A callable that multiplies fractions of a task by `scale` and reports them to `progress`."""

    progress: Callable
    scale: float

    def __call__(self, share: float = 1.0, note: str = "") -> None:
        """Report that a fraction `share` of the task is done (1 for all of it), with a `note`."""
        self.progress(self.scale * share, note)


def scaled_progress(progress: Callable | None, scale: float) -> Callable | None:
    """Return a progress function for a task that is a fraction `scale` of a step, or None if
    `progress` is None.
    """
    return None if progress is None else _ScaledProgress(progress, scale)


@contextmanager
def progress_bar(total: int | None, title: str, verbose: int):
    """Show a progress bar if stderr is a terminal and `verbose` is nonzero; yield a progress
    function.

    The function is called as ``progress(share=1.0, note="")``, where `share` is the fraction of a
    step done since the last call and `note` is shown after the bar. `total` is the number of steps,
    or None if it is unknown. Bars inside a hidden bar are also hidden.
    """
    from tqdm import tqdm

    is_asked_for = verbose if isinstance(verbose, bool) else integer("verbose", verbose) > 0
    is_shown = is_asked_for and SHOWS_BARS.get()
    # disable=None: no bar unless stderr is a terminal; delay: no bar in the first
    # second. Fractional steps are displayed as integers.
    counts = "{n:.0f}" if total is None else "{percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f}"
    with tqdm(
        total=total,
        desc=title,
        disable=None if is_shown else True,
        delay=1.0,
        leave=False,
        bar_format=f"{{desc}}: {counts} [{{elapsed}}{{postfix}}]",
    ) as bar:
        token = SHOWS_BARS.set(is_shown)
        try:
            yield _Steps(bar)
        finally:
            SHOWS_BARS.reset(token)


@functools.cache
def _find_blas_libraries() -> list[Any]:
    """Return the threadpoolctl controllers of all loaded BLAS libraries (of numpy and scipy)."""
    import scipy.linalg  # noqa: F401  (loads scipy's BLAS)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_blas_threads(library: Any, n_threads: int) -> None:
    """Limit the BLAS library of a threadpoolctl controller to `n_threads` threads."""
    # since version 3.8, set_num_threads of threadpoolctl silently does nothing in all Python
    # threads except one
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


def _has_limit_per_thread(library: Any) -> bool:
    """Return whether each thread has a limit of its own, as with OpenMP."""
    return getattr(library, "threading_layer", "") == "openmp"


class _SerialBlas:
    """A context that limits BLAS to one thread, so that results do not depend on `n_jobs`.

    Most BLAS libraries have a single thread limit for the whole process; OpenMP has one for each
    thread. `n_inside` is the number of threads inside the context; `limits_before` contains the
    limits to restore, one for each library.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Create a new lock, and set the number of threads inside to 0."""
        # [0] is a placeholder that the first thread to enter replaces
        self.lock = threading.Lock()
        self.n_inside = 0
        self.limits_before = [0]

    def __enter__(self) -> None:
        """Limit BLAS libraries to one thread: the first thread that enters stores the previous
        limits and sets those of the process, and each thread sets its own.
        """
        libraries = _find_blas_libraries()
        with self.lock:
            is_first = not self.n_inside
            if is_first:
                self.limits_before = [library.get_num_threads() for library in libraries]
            self.n_inside += 1
            for library in libraries:
                if is_first or _has_limit_per_thread(library):
                    _set_blas_threads(library, 1)

    def __exit__(self, *_: object) -> None:
        """Restore the limits of this thread and, if no thread is left inside, of the process."""
        with self.lock:
            self.n_inside -= 1
            for library, n_threads in zip(_find_blas_libraries(), self.limits_before, strict=True):
                if not self.n_inside or _has_limit_per_thread(library):
                    _set_blas_threads(library, n_threads)


_serial_blas = _SerialBlas()  # the only instance in this process
# a forked child has no other threads, but would inherit a lock that they may hold
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_serial_blas.reset)


def serial_blas() -> _SerialBlas:
    """Return the context that limits BLAS to one thread, which can be entered repeatedly."""
    return _serial_blas
