"""Memory: how much is free, and the check that an allocation fits before it is made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bbl.errors import BBLError

__all__ = ["MemoryLimitError", "available_memory", "check_memory", "out_of_memory"]


class MemoryLimitError(BBLError, MemoryError):
    """An allocation would not fit, or did not: it is refused before it is made, where an estimate foresees it."""


def available_memory() -> int:
    """Return the bytes that this process may still allocate: the least of free memory, cgroup and ulimit."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                limits.append(int(line.split()[1]) * 1024)
    except OSError:  # not Linux: all physical memory, where the system tells
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            limits.append(int(Path(limit).read_text()) - int(Path(usage).read_text()))
        except (OSError, ValueError):
            continue
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft - _address_space())
    except ImportError:  # not a Unix
        pass
    return min(limits, default=2**63)


def _address_space() -> int:
    """Return the bytes of virtual memory that this process has; 0 where /proc does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Raise an error if an allocation of `needed` bytes would take over 80 % of the available memory.

    Raises
    ------
    BBLError
        With the sizes, `what` needs them and the `remedy`. It is a MemoryError too.
    """
    if needed < 64 * 2**20:
        return
    free = available_memory()
    if needed > 0.8 * free:
        raise MemoryLimitError(
            f"{what} needs about {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are available. {remedy}"
        )


@contextmanager
def out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Say in words `what` it was that memory ran out for, and the `remedy`, where no estimate foresaw it.

    Raises
    ------
    BBLError
        In place of a MemoryError without words. It is a MemoryError too.
    """
    try:
        yield
    except MemoryLimitError:
        raise
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        raise MemoryLimitError(f"{what} took more memory than there is{reason}. {remedy}") from error
