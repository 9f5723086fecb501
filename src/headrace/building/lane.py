"""A second thread for the work behind the tokenizer, which lets go of the interpreter's lock while it encodes."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, Self

__all__ = ["Lane"]

Arguments = ParamSpec("Arguments")
_MOST_GIVEN = 32
"""Calls held back at most, for they hold what they were given: a long line is read in many pieces."""


class Lane:
    """Runs calls one after another on one thread, in the order given, a few of them waiting at most.

    The thread and its owner share the interpreter's lock, and whoever asks for it waits for the other. So calls are held
    back until the owner says that it is about to let go of it for a while.

    A context manager. An exception of a call is raised by a later `start` or by `drain`; what was given after it may have
    run. Leaving the context waits for the running calls and drops the waiting ones if there was an exception.

    Args:
        depth: starts whose calls may wait; `start` blocks when they do.
        own_thread: if false, every call runs where it is given, at once: without an idle core a thread only costs.
    """

    def __init__(self, depth: int = 4, *, own_thread: bool = True) -> None:
        self._pool = ThreadPoolExecutor(1) if own_thread else None
        self._waiting: deque[Future[Any]] = deque()
        self._depth = depth
        self._given: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def call(self, function: Callable[Arguments, Any], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Take a call, which runs once it is started, after all that were given before. Many are started at once."""
        if self._pool is None:
            function(*args, **kwargs)
            return
        self._given.append(partial(function, *args, **kwargs))
        if len(self._given) >= _MOST_GIVEN:
            self.start()

    def start(self) -> None:
        """Let the thread run what was given."""
        if self._pool is None:
            return
        while len(self._waiting) > self._depth:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(_run, self._given))
        self._given = []

    def drain(self) -> None:
        """Start what was given, and wait until every call is done."""
        self.start()
        while self._waiting:
            self._waiting.popleft().result()


def _run(calls: list[Callable[[], Any]]) -> None:
    for call in calls:
        call()
