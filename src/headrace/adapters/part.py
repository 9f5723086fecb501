"""What adapters serve: a loader, and which part of every batch a process is to have of it."""

from typing import NamedTuple

from headrace.loading import Loader

__all__ = ["DataParallel", "require_loader"]


class DataParallel(NamedTuple):
    """Arguments of a `Loader`: `Loader(corpus, plan, rank=ranks.rank, world_size=ranks.world_size)`."""

    rank: int
    world_size: int


def require_loader(loader: object) -> Loader:
    """Return what was given, if it is a loader.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(loader, Loader):
        raise TypeError(
            f"loader: wanted a headrace.Loader, found {type(loader).__name__}; make one: headrace.Loader(corpus, plan)"
        )
    return loader
