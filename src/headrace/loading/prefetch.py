"""Batches made on a thread while the trainer is at work on the ones before."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["prefetched"]

Step = TypeVar("Step")
Made = TypeVar("Made")


def prefetched(make: Callable[[Step], Made], steps: Iterable[Step], depth: int) -> Iterator[Made]:
    """Yield `make(step)` of each step, in order, made by one thread, `depth` of them ahead of what is asked for.

    The thread ends when the iterator does: at its end, when it is closed or collected, and when `make` or whoever
    consumes it raises. An exception of `make` is raised where its result would have come. An iterator that a fork has copied
    goes on in the child as here, without a thread.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # most loaders have no thread

    left, owner = iter(steps), os.getpid()
    waiting: deque[tuple[Step, Future[Made]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="headrace-prefetch") as thread:
        try:
            waiting.extend((step, thread.submit(make, step)) for step in islice(left, depth))
            while waiting and os.getpid() == owner:
                made = waiting.popleft()[1].result()
                waiting.extend((step, thread.submit(make, step)) for step in islice(left, 1))
                yield made
            # What is left in the child of a fork, which has no thread to wait for.
            yield from map(make, chain([step for step, _ in waiting], left))
        finally:
            thread.shutdown(wait=True, cancel_futures=True)
