"""A second thread for the work behind the tokenizer, which lets go of the interpreter's lock while it encodes."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Self

__all__ = ["Lane"]

Arguments = ParamSpec("Arguments")


class Lane:
    """Runs calls one after another on one thread, in the order given, a few of them waiting at most.

    A context manager. An exception of a call is raised by a later `call` or by `drain`; what was given after it may have
    run. Leaving the context waits for the running call and drops the waiting ones if there was an exception.

    Args:
        depth: calls that may wait; `call` blocks when they do.
    """

    def __init__(self, depth: int = 4) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._waiting: deque[Future[Any]] = deque()
        self._depth = depth

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def call(self, function: Callable[Arguments, Any], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Run `function` after all that was given before."""
        while len(self._waiting) > self._depth:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(function, *args, **kwargs))

    def drain(self) -> None:
        """Wait until every call is done."""
        while self._waiting:
            self._waiting.popleft().result()
