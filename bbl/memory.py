"""Available memory, and errors for allocations that exceed it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bbl.errors import BBLError

__all__ = [
    "MemoryLimitError",
    "available_memory",
    "check_memory",
    "out_of_memory",
    "return_freed_memory",
]

ALWAYS_ALLOWED = 64 * 2**20  # bytes; smaller allocations are not checked
# proportion of the available memory that an allocation may use; the rest is for temporary arrays
USABLE_SHARE = 0.8


class MemoryLimitError(BBLError, MemoryError):
    """An allocation failed, or was prevented because its estimated size exceeds the available
    memory.
    """


def available_memory() -> int:
    """Return the number of bytes that this process can still allocate.

    This is the minimum of the free memory, the cgroup limit and the ulimit.
    """
    free_bytes = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                free_bytes.append(int(line.split()[1]) * 1024)  # the number is in KiB
    except OSError:  # not Linux: use all physical memory, if the system reports it
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            free_bytes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    # limits of control groups (containers), versions 2 and 1; "max" means no limit, and int()
    # raises a ValueError
    for limit_file, usage_file in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            free_bytes.append(int(Path(limit_file).read_text()) - int(Path(usage_file).read_text()))
        except (OSError, ValueError):
            continue
    try:
        import resource

        # limit on the address space, as set by ulimit -v
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft_limit != resource.RLIM_INFINITY:
            free_bytes.append(soft_limit - _address_space())
    except ImportError:  # not a Unix system
        pass
    return min(free_bytes, default=2**63)  # default: no known limit


def _address_space() -> int:
    """Return the number of bytes of virtual memory of this process, or 0 on systems without
    /proc.
    """
    try:  # the first number in statm is the size in pages
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Raise a MemoryLimitError if `needed` bytes exceed 80 % of the available memory.

    The message begins with `what`, a noun phrase for the purpose of the allocation; `remedy` is a
    sentence that is used as the hint.
    """
    if needed < ALWAYS_ALLOWED:
        return
    free = available_memory()
    if needed > USABLE_SHARE * free:
        raise MemoryLimitError(
            f"{what} would need about {needed / 2**30:.1f} GiB of memory, but "
            f"{free / 2**30:.1f} GiB are available.",
            hint=remedy,
        )


@contextmanager
def out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Convert a MemoryError in the ``with`` block to a MemoryLimitError.

    The message begins with `what`, a noun phrase for the result of the block; `remedy` is a
    sentence that is used as the hint.
    """
    try:
        yield
    except MemoryLimitError:
        raise  # the error already has a message
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        raise MemoryLimitError(
            f"{what} needed more memory than is available{reason}.", hint=remedy
        ) from error


def return_freed_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    Passes over many rows allocate and free arrays of different sizes. glibc keeps the gaps between
    the remaining arrays, which can amount to hundreds of megabytes.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
