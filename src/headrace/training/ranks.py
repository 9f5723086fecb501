"""The processes that share a run: one, or those that torchrun started."""

import gc
import os
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from headrace.adapters.torch.ranks import data_parallel
from headrace.errors import HeadraceError, TrainingError

__all__ = ["Ranks", "process_group"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which process this is, and what it asks of the others. All of them must ask alike."""

    device: torch.device
    rank: int = 0
    world_size: int = 1

    def total(self, value: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world_size > 1:
            distributed.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:  # noqa: FBT001  # the one thing to say
        """Return whether the flag is set in any process."""
        return flag if self.world_size == 1 else bool(self.total(torch.tensor(int(flag), device=self.device)))

    def first(self, work: Callable[[], T]) -> T:
        """Let rank 0 do something that must be done once; returns its result everywhere.

        Raises:
            Exception: what `work` raised, in rank 0.
            TrainingError: likewise, in all others.
        """
        if self.world_size == 1:
            return work()
        outcome: list[Any] = [None, None]
        error: Exception | None = None
        if self.rank == 0:
            try:
                outcome[0] = work()
            except (HeadraceError, OSError, ValueError) as caught:
                error, outcome[1] = caught, type(caught).__name__
        distributed.broadcast_object_list(outcome, device=self.device)
        if error is not None:
            raise error
        if outcome[1] is not None:
            raise TrainingError(f"rank {self.rank} ends, for rank 0 was stopped by a {outcome[1]}")
        return outcome[0]


@contextmanager
def process_group(device: str) -> Generator[Ranks]:
    """Join the other processes of a run, where torchrun started this one.

    The threads of the group are gone at the end, if what was made of it is no longer referred to by then. One that is
    still there when the interpreter ends may abort the process: it gives back the tensor it sent last.

    Args:
        device: as torch names it; `auto` is the GPU if there is one. With several processes on GPUs, each has its own.

    Raises:
        TrainingError: torch knows no such device, or it is not there.
    """
    found = _device(device)
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(found)
        return
    if found.type == "cuda":
        found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(found)
    # Its functions have the group of the time of the import as default arguments, which keep it alive; and
    # DistributedDataParallel imports it.
    import_module("torch.distributed.nn.functional")
    distributed.init_process_group("nccl" if found.type == "cuda" else "gloo")
    try:
        yield Ranks(found, *data_parallel())
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they refer to the model
        raise
    finally:
        gc.collect()
        distributed.destroy_process_group()


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        torch.autocast(device.type, enabled=False)  # where it cannot be, nothing is computed: `meta`
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch built without CUDA asserts
        reason = str(error).partition("\n")[0]
        raise TrainingError(f"device: wanted auto, cpu or a GPU such as cuda:0, found {name!r}: {reason}") from error
    return device
