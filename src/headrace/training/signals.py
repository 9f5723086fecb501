"""Ctrl-C and SIGTERM, which wait for the end of a step."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Stop"]


class Stop:
    """A context manager within which the first SIGINT or SIGTERM is remembered; a second one does what it always did."""

    def __init__(self) -> None:
        self.received: int | None = None
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
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
