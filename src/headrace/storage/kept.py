"""Arrays that were decoded, kept for the next read as far as there is room."""

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

__all__ = ["Kept"]

Key = TypeVar("Key", bound=Hashable)
_all: "weakref.WeakSet[Kept[Any]]" = weakref.WeakSet()
"""Those of this process."""


class Kept(Generic[Key]):
    """Arrays by key, the least recently used given up first. Safe for threads; in the child of a fork it is empty.

    Args:
        most: bytes that they take together, if they are not fewer than ...
        least: ... so many arrays.
    """

    def __init__(self, most: int, *, least: int = 1) -> None:
        self.most = most
        self._least = least
        self.clear()
        _all.add(self)

    def clear(self) -> None:
        """Give all up. Another thread may have held the lock when this process was forked: it is a new one."""
        self._lock = threading.Lock()
        self._found: OrderedDict[Key, NDArray[Any]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Key) -> NDArray[Any] | None:
        """The array of a key; None if it is not kept."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: Key, found: NDArray[Any]) -> None:
        """Keep an array, unless another thread was faster."""
        with self._lock:
            if key in self._found:
                return
            self._found[key] = found
            self._bytes += found.nbytes
            while self._bytes > self.most and len(self._found) > self._least:
                self._bytes -= self._found.popitem(last=False)[1].nbytes


def _forked() -> None:
    for kept in list(_all):
        kept.clear()


os.register_at_fork(after_in_child=_forked)
