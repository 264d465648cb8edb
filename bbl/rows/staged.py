"""Functions of blocks of rows in two stages, the first of which is cached between passes over the
rows.

A *block* is a `Sample` of some of the rows; a *pass* reads all rows once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from bbl.rows.sample import Sample

__all__ = ["BlockCache", "Staged"]


@dataclass(frozen=True)
class Staged:
    """The function ``finish(prepare(block), block)`` of blocks; results of `prepare` are cached
    between passes.
    """

    key: Hashable  # identifies `prepare`
    prepare: Callable[[Sample], Any]  # from a block to an object with ``nbytes``
    finish: Callable[[Any, Sample], Any]  # from the prepared object and the block to sums

    def __call__(self, block: Sample) -> Any:
        """Return the sums of a block, without the cache."""
        return self.finish(self.prepare(block), block)


class BlockCache:
    """Cached results of the first stage of `Staged` functions, by function and block; safe with
    threads.

    Parameters
    ----------
    free_bytes : callable
        ``free_bytes(cached_bytes)`` returns how many more bytes may be cached, if `cached_bytes`
        are.
    """

    def __init__(self, free_bytes: Callable[[int], float]):
        self._free_bytes = free_bytes
        self._cached_bytes = 0
        self._lock = threading.Lock()
        # of `prepare`, by (key of the function, key of the block)
        self._results: dict[Hashable, Any] = {}

    def apply(self, function: Callable[[Sample], Any], block_key: Hashable, block: Sample) -> Any:
        """Return ``function(block)``; the first stage of a `Staged` function is cached, if there is
        room.

        `block_key` identifies the block among those of its store.
        """
        if not isinstance(function, Staged):
            return function(block)
        key = (function.key, block_key)
        prepared = self._results.get(key)
        if prepared is None:
            prepared = function.prepare(block)
            with self._lock:
                if prepared.nbytes <= self._free_bytes(self._cached_bytes):
                    self._results[key] = prepared
                    self._cached_bytes += prepared.nbytes
        return function.finish(prepared, block)

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._results.clear()
            self._cached_bytes = 0
