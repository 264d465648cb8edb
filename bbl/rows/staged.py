"""Two-stage functions of blocks of rows; the result of the first stage is cached between passes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from bbl.rows.sample import Sample

__all__ = ["BlockCache", "Staged"]


@dataclass(frozen=True)
class Staged:
    """The function ``finish(prepare(block), block)`` of a block of rows.

    The results of `prepare` are cached between passes.
    """

    key: Hashable  # key that identifies `prepare`
    prepare: Callable[[Sample], Any]  # maps a block to an object with ``nbytes``
    finish: Callable[[Any, Sample], Any]  # maps the prepared object and the block to sums

    def __call__(self, block: Sample) -> Any:
        """Return ``finish(prepare(block), block)`` without using a cache."""
        return self.finish(self.prepare(block), block)


class BlockCache:
    """A thread-safe cache of the first-stage results of `Staged` functions, by function and block.

    Parameters
    ----------
    free_bytes : callable
        ``free_bytes(cached_bytes)`` returns the number of additional bytes that can be cached,
        given the number of bytes in the cache.
    """

    def __init__(self, free_bytes: Callable[[int], float]):
        self._free_bytes = free_bytes
        self._cached_bytes = 0
        self._lock = threading.Lock()
        # results of `prepare`, by (key of the function, key of the block)
        self._results: dict[Hashable, Any] = {}

    def apply(self, function: Callable[[Sample], Any], block_key: Hashable, block: Sample) -> Any:
        """Return ``function(block)``, and cache the first stage if it is a `Staged` function.

        The result is cached only if there is enough memory. `block_key` identifies the block within
        its store.
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
        """Clear the cache."""
        with self._lock:
            self._results.clear()
            self._cached_bytes = 0
