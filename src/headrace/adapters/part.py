"""Which part of every batch a process serves."""

from typing import NamedTuple

__all__ = ["DataParallel"]


class DataParallel(NamedTuple):
    """Arguments of a `Loader`: `Loader(corpus, plan, rank=ranks.rank, world_size=ranks.world_size)`."""

    rank: int
    world_size: int
