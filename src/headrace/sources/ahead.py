"""Items made on a thread, a few ahead of whoever takes them."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

__all__ = ["made_ahead"]

Item = TypeVar("Item")


@contextmanager
def made_ahead(items: Iterator[Item], depth: int) -> Generator[Iterator[Item]]:
    """Let a thread make the next `depth` items while the present one is used; what making one raises, taking it raises.

    For work that lets go of the interpreter's lock. Leaving the context waits for the item that is being made.
    """
    pool = ThreadPoolExecutor(1)
    try:
        yield _taken(pool, items, depth)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _taken(pool: ThreadPoolExecutor, items: Iterator[Item], depth: int) -> Iterator[Item]:
    coming: deque[Future[list[Item]]] = deque(pool.submit(_next, items) for _ in range(depth))
    while made := coming.popleft().result():
        coming.append(pool.submit(_next, items))
        yield from made


def _next(items: Iterator[Item]) -> list[Item]:
    """The next item in a list; an empty list at the end."""
    return list(islice(items, 1))
