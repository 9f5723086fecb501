"""The processes that share a run: one, or those that torchrun started."""

import gc
import os
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from headrace.adapters.torch.ranks import data_parallel
from headrace.errors import HeadraceError, TrainingError

__all__ = ["Ranks", "process_group"]

T = TypeVar("T")
PATIENCE = timedelta(days=1)
"""For which processes wait for work of rank 0, such as to verify a corpus; that it has ended is noticed at once all the same."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which process this is, and what it asks of the others. All of them must ask alike.

    `Ranks(device)` is a process alone; `process_group` joins those that torchrun started.
    """

    device: torch.device
    rank: int = 0
    world_size: int = 1
    waiting: list[Any] = field(default_factory=list[Any])
    """Of one: the group in which the others wait for rank 0; the one of the steps gives up after some minutes."""

    def total(self, value: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world_size > 1:
            distributed.all_reduce(value)
        return value

    def most(self, value: int) -> int:
        """Return the highest of a number in all processes."""
        if self.world_size == 1:
            return value
        found = torch.tensor(value, device=self.device)
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return int(found)

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
        distributed.broadcast_object_list(outcome, group=self.waiting[0])
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
        TrainingError: torch knows no such device, or it is not there; or another process has ended or does not answer.
    """
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(_device(device))
        return
    found = _device(device, own=os.environ.get("LOCAL_RANK", "0"))
    if found.type == "cuda":
        torch.cuda.set_device(found)
    # Its functions have the group of the time of the import as default arguments, which keep it alive; and
    # DistributedDataParallel imports it.
    import_module("torch.distributed.nn.functional")
    waiting: list[Any] = []  # it is emptied, for this object outlives the group
    try:
        distributed.init_process_group("nccl" if found.type == "cuda" else "gloo")
        waiting.append(distributed.new_group(backend="gloo", timeout=PATIENCE))
        yield Ranks(found, *data_parallel(), waiting)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they refer to the model
        if isinstance(error, distributed.DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error)):
            raise TrainingError(
                f"rank {os.environ.get('RANK', '?')} ends, for another process of the run has ended or does not answer; that "
                f"one may have said why. Torch says: {_first_line(error)}"
            ) from error
        raise
    finally:
        waiting.clear()
        gc.collect()
        if distributed.is_initialized():
            distributed.destroy_process_group()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _device(name: str, *, own: str | None = None) -> torch.device:
    """Return a device that is there; a GPU is number `own`, where that is given."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if own is not None and device.type == "cuda":
            device = torch.device(name := f"cuda:{own}")
        torch.empty(0, device=device)
        torch.autocast(device.type, enabled=False)  # where it cannot be, nothing is computed: `meta`
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch built without CUDA asserts
        raise TrainingError(
            f"device: wanted auto, cpu or a GPU such as cuda:0, found {name!r}: {_first_line(error)}"
        ) from error
    return device
