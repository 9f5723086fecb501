"""Where iteration begins: set in the main process, read in the workers of a DataLoader."""

import os
from ctypes import c_longlong
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawValue
from typing import Any

__all__ = ["Place"]


class Place:
    """A number that one process sets and the workers it starts read.

    A worker's first reading is what the number was when it was started (as copied by fork, or pickled), however long its
    start takes. Later ones, of workers that are kept for another iteration, are what the number is then.
    """

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._shared = RawValue(c_longlong, value)
        self._owner = self._reader = os.getpid()

    def get(self) -> int:
        """Return the number."""
        process = os.getpid()
        if process != self._reader:
            self._reader = process
            return self._value
        return self._shared.value

    def set(self, value: int) -> None:
        """Change the number for this process and the workers it has."""
        if os.getpid() != self._owner:
            self.__init__(value)
        self._value = self._shared.value = value

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is None:  # no worker is being started: a copy, which is on its own
            return {"_value": self._value}
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        if len(state) == 1:
            self.__init__(state["_value"])
        self.__dict__.update(state)
