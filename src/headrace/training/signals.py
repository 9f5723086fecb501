"""Ctrl-C and SIGTERM, which wait for the end of a step."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Stop"]

AGAIN = 1.0
"""Seconds from which on a signal is another one."""


class Stop:
    """A context manager within which the first SIGINT or SIGTERM is remembered; a later one does what it always did.

    Later is a second later: torchrun passes on to its processes the Ctrl-C that they have had from the terminal.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others are told of no signal
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def deliver(self) -> None:
        """Let the signal that was remembered, if any, do what it would have done."""
        if self.received is not None:
            signal.raise_signal(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # the form of handlers
        if self.received is None:
            self.received, self._at = number, time.monotonic()
        elif time.monotonic() > self._at + AGAIN:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
