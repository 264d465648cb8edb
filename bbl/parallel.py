"""Threads: number of workers, pools of tasks, the stop flag, BLAS limited to one thread; and
progress bars.

*Stop flag*: an int32 array of one entry that every task of a call shares; a kernel that sees it
non-zero gives up.
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

    None or -1 means all cores, or all workers of a joblib backend; -2 means all but one, and so on.
    """
    requested = -1 if n_jobs is None else integer("n_jobs", n_jobs)
    if requested == 0:
        raise OptionError(
            "n_jobs must not be 0.",
            argument="n_jobs",
            hint="Give 1 for one thread or -1 for all cores.",
        )
    if requested > 0:
        return requested
    from joblib.parallel import get_active_backend

    # [0] is the backend; without prefer="threads" joblib counts processes, and warns inside a
    # worker of a pool
    return max(1, int(get_active_backend(prefer="threads")[0].effective_n_jobs(-1)) + 1 + requested)


def run_tasks(
    function: Callable,
    tasks: Sequence[tuple],
    workers: int,
    progress: Callable | None = None,
    shared: bool = False,
) -> list:
    """Return ``[function(*task) for task in tasks]``, computed in threads or by the user's joblib
    backend.

    Threads are the default. A backend that the user has set, as by ``with
    joblib.parallel_config("loky")``, may run tasks in other processes, to which function and
    arguments are pickled.

    Tasks must not write what other tasks read or write, so that results do not depend on `workers`.
    With `shared`, tasks run in threads under any backend, because they write into arrays of this
    process or cannot be pickled. `progress` is called without arguments after each task.
    """
    # that of an outer call of `run_tasks`, if this one is inside of its tasks; else a new one
    stop = stop_flag()
    results = []
    if workers == 1 or len(tasks) < 2:
        # in this thread: inside of tasks `stop` is its flag already, outside nobody else can set it
        for task in tasks:
            if stop[0]:
                raise Stopped
            results.append(function(*task))
            if progress is not None:
                progress()
        return results
    from joblib.parallel import Parallel, delayed, get_active_backend

    # the former forces threads
    backend = {"require": "sharedmem"} if shared else {"prefer": "threads"}
    # False for multiprocessing
    has_generator = get_active_backend(**backend)[0].supports_return_generator
    joblib_pool = Parallel(
        n_jobs=min(workers, len(tasks)),
        return_as="generator" if has_generator else "list",
        **backend,
    )
    try:
        for result in joblib_pool(delayed(_run_with_flag)(function, stop, *task) for task in tasks):
            results.append(result)
            if progress is not None:
                progress()
    except BaseException:
        # an interrupt is raised in this thread only; tasks of other threads read the flag
        stop[0] = 1
        raise
    # `_run_with_flag` returns the class if a task gave up
    if any(result is Stopped for result in results):
        raise Stopped
    return results


def read_ahead(function: Callable[[S], T], items: Iterable[S], workers: int) -> Iterator[T]:
    """Yield ``function(item)`` of all `items` in their order; threads are up to `workers` items
    ahead of the caller.

    Items are taken in the caller's thread. An error comes after the results of the items before it.
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
            # raised where the items are made; the results before it come first
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
    """Pool of threads for many short rounds of tasks: `run` costs some 0.05 ms a round, `run_tasks`
    a few ms.

    The threads end with the ``with`` statement, or with the object.

    Parameters
    ----------
    workers : int
        Number of threads, including the caller's.
    """

    def __init__(self, workers: int):
        self.workers = workers
        # the caller's thread works, too
        self._pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None

    def __enter__(self) -> ThreadPool:
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, function: Callable, tasks: Iterable[tuple]) -> None:
        """Call ``function(*task)`` for each of `tasks`, which must not write what other tasks read
        or write.
        """
        queue = deque(tasks)
        # beside the caller's thread
        n_helpers = 0 if self._pool is None else min(self.workers, len(queue)) - 1
        helpers = [self._pool.submit(_run_queue, function, queue) for _ in range(n_helpers)]  # type: ignore[union-attr]
        try:
            _run_queue(function, queue)
        finally:
            queue.clear()  # after an error or an interrupt no further task is started
            errors = [helper.exception() for helper in helpers]  # waits for the helpers
        for error in errors:
            if error is not None:
                raise error


def _run_queue(function: Callable, queue: deque) -> None:
    """Call ``function(*task)`` with tasks from the left of the shared `queue` until it is empty."""
    while True:
        try:
            task = queue.popleft()
        except IndexError:
            return
        function(*task)


class Stopped(Exception):
    """A task gave up because its call of `run_tasks` failed or was interrupted in another
    thread.
    """


_local = threading.local()  # its attribute `stop` is the stop flag of the task that the thread runs


def stop_flag() -> np.ndarray:
    """Return the stop flag, int32 of shape (1,), of the task that this thread runs; a new one
    outside of tasks.
    """
    task_flag = getattr(_local, "stop", None)
    return np.zeros(1, dtype=np.int32) if task_flag is None else task_flag


def _run_with_flag(
    function: Callable[..., T], stop: np.ndarray, *task: object
) -> T | type[Stopped]:
    """Return ``function(*task)``, run with `stop` as the thread's stop flag; the class Stopped if
    the task gave up.
    """
    outer_flag = getattr(_local, "stop", None)
    _local.stop = stop
    try:
        return function(*task)
    except Stopped:
        return Stopped  # raised, it could reach the caller before the error that set the flag
    finally:
        _local.stop = outer_flag


class _Steps:
    """Callable that advances a tqdm bar by a share of a step and shows a note; does nothing without
    a bar.
    """

    def __init__(self, bar: tqdm | None = None):
        self._bar = bar

    def __call__(self, share: float = 1.0, note: str = "") -> None:
        """Advance the bar by `share` of a step, and show `note` behind it."""
        if self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(share)
            # a note without progress is shown at once, but not during the delay in which tqdm shows
            # no bar
            if (
                not (share or self._bar.disable)
                and time.time() > self._bar.start_t + self._bar.delay
            ):
                self._bar.refresh()  # update(0) would not show the new note

    def __reduce__(self):
        """Pickle without the bar: in another process it does nothing."""
        return _Steps, ()


@dataclass(frozen=True)
class _ScaledProgress:
    """Callable that passes shares of a task's work on to `progress`, multiplied by `scale`."""

    progress: Callable
    scale: float

    def __call__(self, share: float = 1.0, note: str = "") -> None:
        """Report the `share` of the task, 1 for all of it, with a `note`."""
        self.progress(self.scale * share, note)


def scaled_progress(progress: Callable | None, scale: float) -> Callable | None:
    """Return a progress function for a task that is the share `scale` of a step; None if `progress`
    is None.
    """
    return None if progress is None else _ScaledProgress(progress, scale)


@contextmanager
def progress_bar(total: int | None, title: str, verbose: int):
    """Show a progress bar if stderr is a terminal and `verbose`; yield ``progress(share=1.0,
    note="")``.

    `total` is the number of steps, None if unknown; `share` is the share of a step that was done
    since the last call, `note` a text behind the bar. Bars within a hidden bar are hidden too.
    """
    from tqdm import tqdm

    is_asked_for = verbose if isinstance(verbose, bool) else integer("verbose", verbose) > 0
    is_shown = is_asked_for and SHOWS_BARS.get()
    # disable=None: no bar if stderr is no terminal; delay: no bar in the first second
    # steps advance by shares, and are shown as whole numbers
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
    """Return threadpoolctl's controllers of the BLAS libraries that are loaded: numpy's and
    scipy's.
    """
    import scipy.linalg  # noqa: F401  (loads scipy's BLAS)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


def _set_blas_threads(library: Any, n_threads: int) -> None:
    """Limit a BLAS library, given by its threadpoolctl controller, to `n_threads` threads."""
    # since 3.8 threadpoolctl's set_num_threads silently does nothing except in one Python thread
    getattr(library, "_real_set_num_threads", library.set_num_threads)(n_threads)


class _SerialBlas:
    """Context in which BLAS runs on one thread, so that results do not depend on the number of
    workers.

    Most BLAS libraries have one limit of threads for the whole process; those with OpenMP have one
    for each thread. `n_inside` counts the threads in the context; `limits_before` are the limits,
    one per library, to be restored.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all threads that are inside, and their lock."""
        # [0] is a placeholder, which the first thread that enters replaces
        self.lock = threading.Lock()
        self.n_inside = 0
        self.limits_before = [0]

    def __enter__(self) -> None:
        """Limit all BLAS libraries to one thread; the first thread that enters stores their
        limits.
        """
        libraries = _find_blas_libraries()
        with self.lock:
            if not self.n_inside:
                self.limits_before = [library.get_num_threads() for library in libraries]
            self.n_inside += 1
            for library in libraries:
                _set_blas_threads(library, 1)

    def __exit__(self, *_: object) -> None:
        """Restore the limits: of the whole process if no thread is inside any more, of this thread
        at once.
        """
        with self.lock:
            self.n_inside -= 1
            for library, n_threads in zip(_find_blas_libraries(), self.limits_before, strict=True):
                has_limit_per_thread = getattr(library, "threading_layer", "") == "openmp"
                if not self.n_inside or has_limit_per_thread:
                    _set_blas_threads(library, n_threads)


_serial_blas = _SerialBlas()  # the one context of this process
# a forked child has none of the other threads, but would keep their lock
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_serial_blas.reset)


def serial_blas() -> _SerialBlas:
    """Return the context in which BLAS runs on one thread; it may be entered more than once."""
    return _serial_blas
