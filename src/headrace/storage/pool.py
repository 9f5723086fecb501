"""A bounded set of open handles, the least recently used closed first."""

import errno
import os
import resource
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["HandlePool", "handle_limit"]

Handle = TypeVar("Handle")

_LEAST = 4
"""Handles that a pool may hold whatever the limits are."""
_pools: "weakref.WeakSet[HandlePool[Any]]" = weakref.WeakSet()
"""All pools of this process, which share its descriptors."""


def handle_limit() -> int:
    """How many maps or descriptors this process may hold in pools: half of what it may open (a map holds a descriptor)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft // 2 if soft != resource.RLIM_INFINITY else 65536
    try:
        maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii")) // 2
    except OSError:
        maps = 65536  # not Linux
    return min(limit, maps)


class HandlePool(ABC, Generic[Handle]):
    """Handles by number, opened on demand. Safe for threads, and in the child of a fork.

    A handle is closed by dropping the last reference to it, so whoever holds one may use it. Who uses only an address
    out of one pins the pool meanwhile: what is evicted while any thread has it pinned stays alive until that thread is
    done.

    A subclass says how one is opened. (Callbacks in their place would make a cycle, and keep maps until it is collected.)
    """

    def __init__(self) -> None:
        self._limit = handle_limit()
        self._items: OrderedDict[int, Handle] = OrderedDict()
        self._evictions = 0
        self._pins: dict[int, int] = {}
        """How many threads pin the pool, by the number of evictions when they began."""
        self._graveyard: list[tuple[int, Handle]] = []
        """Evicted handles that a thread may be using, each with the number of evictions before it."""
        self._lock = threading.Lock()
        _pools.add(self)
        for pool in list(_pools):
            pool.trim()

    @abstractmethod
    def open(self, number: int) -> Handle:
        """Open a handle. Called by one thread at a time."""

    @abstractmethod
    def evicted(self, number: int) -> None:
        """Take note that a handle is no longer held."""

    def note_opened(self, items: Mapping[int, Handle]) -> None:
        """Take note of what is held after one more was opened. Called by one thread at a time."""

    @property
    def capacity(self) -> int:
        """Handles that this pool may hold now: all pools of the process have an equal share."""
        return max(self._limit // max(len(_pools), 1), _LEAST)

    def pinned(self) -> "_Pin":
        """A context in which no handle that is alive at its start is closed."""
        return _Pin(self)

    def pin(self) -> int:
        """Begin a pin; returns what `unpin` needs."""
        with self._lock:
            now = self._evictions
            self._pins[now] = self._pins.get(now, 0) + 1
        return now

    def unpin(self, begun: int) -> None:
        """End a pin."""
        with self._lock:
            left = self._pins.get(begun, 1) - 1
            if left:
                self._pins[begun] = left
            else:
                self._pins.pop(begun, None)
            if self._graveyard:
                oldest = min(self._pins, default=self._evictions)
                self._graveyard = [item for item in self._graveyard if item[0] >= oldest]

    def get(self, number: int) -> Handle:
        """The handle, opened if need be."""
        with self._lock:
            item = self._items.get(number)
            if item is not None:
                self._items.move_to_end(number)
                return item
            while len(self._items) >= self.capacity:
                self._evict()
            try:
                item = self.open(number)
            except OSError as error:
                if not _out_of_handles(error) or not self._items:
                    raise
                while self._items:  # others in this process hold many: make room, and hold fewer
                    self._evict()
                item = self.open(number)
            self._items[number] = item
            self.note_opened(self._items)
            return item

    def held(self) -> list[Handle]:
        """The handles that are open now."""
        with self._lock:
            return list(self._items.values())

    def _evict(self) -> None:
        number, item = self._items.popitem(last=False)
        if self._pins:
            self._graveyard.append((self._evictions, item))
        self._evictions += 1
        self.evicted(number)

    def trim(self) -> None:
        """Close what is beyond the capacity."""
        with self._lock:
            while len(self._items) > self.capacity:
                self._evict()

    def clear(self) -> None:
        """Drop every handle."""
        with self._lock:
            while self._items:
                self._evict()

    def forked(self) -> None:
        """In the child of a fork: other threads are gone, whatever they held."""
        self._lock = threading.Lock()
        self._pins.clear()
        self._graveyard.clear()


class _Pin:
    """Pins a pool in a `with` statement."""

    __slots__ = ("_begun", "_pool")

    def __init__(self, pool: HandlePool[Any]) -> None:
        self._pool = pool
        self._begun = 0

    def __enter__(self) -> None:
        self._begun = self._pool.pin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.unpin(self._begun)


def _out_of_handles(error: OSError) -> bool:
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return cause.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def _after_fork() -> None:
    for pool in list(_pools):
        pool.forked()


os.register_at_fork(after_in_child=_after_fork)
