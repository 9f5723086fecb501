"""A bounded set of open handles, the least recently used closed first."""

import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

import numpy as np

__all__ = ["HandlePool", "handle_limit"]

Handle = TypeVar("Handle")


def handle_limit() -> int:
    """How many maps or descriptors one corpus may hold: half of what the process may open (a map holds a descriptor)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft // 2 if soft != resource.RLIM_INFINITY else 65536
    try:
        maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii")) // 2
    except OSError:
        maps = 65536  # not Linux
    return max(min(limit, maps), 4)


class HandlePool(Generic[Handle]):
    """Handles by number, opened on demand.

    Used as a context manager around each use of handles: while any thread is inside, an evicted handle stays alive, so
    that no thread has memory unmapped under it. A handle is closed by dropping the last reference to it.

    Args:
        count: how many handles there may be, numbered from 0.
        opener: opens one.
        evicted: is told which was dropped.
        capacity: how many are held at most.
    """

    def __init__(
        self, count: int, opener: Callable[[int], Handle], evicted: Callable[[int], None], capacity: int
    ) -> None:
        self.capacity = capacity
        self._open = opener
        self._evicted = evicted
        self._items: dict[int, Handle] = {}
        self._used = np.zeros(count, dtype=np.int64)
        self._clock = 0
        self._inside = 0
        self._graveyard: list[Handle] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        if self._pid != os.getpid():  # a fork may have copied the lock while another thread held it
            self._lock, self._pid, self._inside = threading.Lock(), os.getpid(), 0
        with self._lock:
            self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._graveyard.clear()

    def get(self, number: int) -> Handle:
        """The handle, opened if need be. Call it inside the context."""
        with self._lock:
            self._clock += 1
            self._used[number] = self._clock
            item = self._items.get(number)
            if item is None:
                while len(self._items) >= self.capacity:
                    oldest = min(self._items, key=self._used.__getitem__)
                    self._graveyard.append(self._items.pop(oldest))
                    self._evicted(oldest)
                item = self._items[number] = self._open(number)
            return item

    def clear(self) -> None:
        """Drop every handle."""
        with self._lock:
            for number in self._items:
                self._evicted(number)
            self._items.clear()
