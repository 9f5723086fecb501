"""Batches on a device, copied out of pinned memory while the trainer computes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace.adapters.part import require_loader
from headrace.adapters.torch.tensors import checked_ignore_index, marks_of, with_marks
from headrace.loading import Loader
from headrace.sampling.checks import checked_int

__all__ = ["PinnedBatches"]

_BUFFERS = 2


class PinnedBatches:
    """Iterates over a loader's batches as tensors on a device, one of them copied ahead.

    The loader reads tokens straight into one of two pinned buffers, from where they travel without blocking, on a stream of
    their own, while the other one is filled; a buffer is used again once its copy is done. Make the loader with
    `dtype=corpus.dtype`, and the stored 2 or 4 bytes a token travel, and become int64 on the device.

    Iteration goes on from `loader.step` and moves it before a batch is handed out, so `loader.state_dict()` says what the
    trainer took. Where the plan ends, so does iteration. On the CPU nothing is pinned; the tensors are the same. Each batch
    is a dict, as `as_tensors` gives it: `input_ids` with `targets` or `labels`, int64 `(B, T)`, ...

    Args:
        loader: makes the batches.
        device: where the tensors are to be, such as `cuda` or `cpu`.
        of: parts of a step that are batches of their own; `loader.step` counts steps of which all were handed out.
        ignore_index: as for `as_tensors`.

    Raises:
        PlanError: `of` or `ignore_index` is out of range.
        TypeError: it is not a loader.
    """

    def __init__(
        self, loader: Loader, device: torch.device | str, *, of: int = 1, ignore_index: int | None = None
    ) -> None:
        self.loader = require_loader(loader)
        self.device = torch.device(device)
        self.of = checked_int("of", of, least=1)
        self.ignore_index = checked_ignore_index(ignore_index)
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        loader = self.loader
        slots = [_Slot(self._stream is not None) for _ in range(_BUFFERS)]
        if loader.step == loader.plan.step_limit:
            loader.step = 0
        number, end = loader.step * self.of, loader.plan.step_limit * self.of
        staged = self._staged(number, slots)
        while staged is not None:
            ready, number = staged, number + 1
            staged = self._staged(number, slots) if number < end else None
            loader.step = number // self.of
            yield self._handed_out(ready)
            if loader.step != number // self.of:  # set by whoever iterates
                number = loader.step * self.of
                staged = self._staged(number, slots) if number < end else None

    def _staged(self, number: int, slots: "list[_Slot]") -> "_Staged":
        """Read a batch, and let it travel."""
        step, micro = divmod(number, self.of)
        slot = slots[number % _BUFFERS]
        plan = self.loader.plan
        rows = plan.batch_size_at(step) // self.loader.world_size // self.of
        out = slot.array(rows, plan.read_length, self.loader.dtype)
        batch = self.loader.batch(step, micro=micro, of=self.of, out=out)
        if not out.dtype.isnative:
            out.byteswap(inplace=True)  # torch has no other order
        event = None
        with torch.cuda.stream(self._stream):
            tokens = _widened(slot.tensor.to(self.device, non_blocking=True), copied=self._stream is not None)
            if batch.targets is None:
                ids = {"input_ids": tokens, "labels": tokens}
            else:
                ids = {"input_ids": tokens[:, :-1], "targets": tokens[:, 1:]}
            marks = {name: mark.to(self.device) for name, mark in marks_of(batch).items()}
            moved = with_marks(ids, marks, self.ignore_index)
            if self._stream is not None:
                event = slot.event = torch.cuda.Event()
                event.record(self._stream)
        return _Staged(moved, event)

    def _handed_out(self, staged: "_Staged") -> dict[str, Tensor]:
        """Let the trainer's stream wait for the copy, and keep its memory for as long as that stream uses it."""
        if staged.event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(staged.event)
            for tensor in staged.tensors.values():
                tensor.record_stream(stream)
        return staged.tensors


class _Staged(NamedTuple):
    tensors: dict[str, Tensor]
    event: torch.cuda.Event | None


class _Slot:
    """A buffer that is filled again and again."""

    def __init__(self, pinned: bool) -> None:  # noqa: FBT001  # the one thing to say
        self._pinned = pinned
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self.tensor = self._bytes
        self.event: torch.cuda.Event | None = None

    def array(self, rows: int, length: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array to be filled, once what it held before has left; `tensor` is the same memory."""
        if self.event is not None:
            self.event.synchronize()
        size = rows * length * dtype.itemsize
        if self._bytes.numel() < size:
            self._bytes = torch.empty(size, dtype=torch.uint8, pin_memory=self._pinned)
        # In place of the unsigned types, for which torch has not all operations on all devices.
        signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        self.tensor = self._bytes[:size].view(signed).view(rows, length)
        return self.tensor.numpy().view(dtype)


def _widened(tokens: Tensor, *, copied: bool) -> Tensor:
    """Return unsigned ids, sent as the signed integers of their size, as int64 in memory of their own."""
    bits = 8 * tokens.element_size()
    if tokens.dtype == torch.int64:
        return tokens if copied else tokens.clone()
    return tokens.to(torch.int64) & ((1 << bits) - 1)
