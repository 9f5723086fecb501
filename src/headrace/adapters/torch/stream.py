"""Whole batches, one after another, as a data set of PyTorch."""

from collections.abc import Iterator, Mapping
from copy import copy
from itertools import count
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from headrace.adapters.part import require_loader
from headrace.adapters.torch.numbered import load_number, state_at
from headrace.adapters.torch.place import Place
from headrace.adapters.torch.tensors import WholeBatch, as_tensors, checked_ignore_index
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.loading.prefetch import prefetched
from headrace.sampling.checks import checked_int

__all__ = ["BatchStream", "BatchStreamIterator"]


class BatchStream(IterableDataset[WholeBatch]):
    """Batches in the order of the steps: `DataLoader(stream, batch_size=None, num_workers=...)`.

    It is stateless: every iteration begins at the step that was set last in the main process, by `set_step`, whatever was
    iterated before; a trainer that goes on sets the number of steps it has taken. Worker w of W makes batches w, w + W, ...
    from there on, so that a DataLoader hands out the same batches in the same order with any number of workers. With
    torchdata's `StatefulDataLoader` its state says what was consumed; `StepDataLoader` counts by itself.

    Args:
        loader: makes the batches; the stream goes on from its step, with a loader of its own.
        of: parts of a step that are batches of their own, for gradients that are accumulated: the batches of a step are its
            parts in order.
        steps: iteration ends before this step; by default with the plan, or never.
        ignore_index: as for `as_tensors`.

    Raises:
        PlanError: the plan has no so many steps.
    """

    def __init__(
        self, loader: Loader, *, of: int = 1, steps: int | None = None, ignore_index: int | None = None
    ) -> None:
        super().__init__()
        loader = require_loader(loader)
        limit = loader.plan.step_limit
        self.loader = copy(loader)
        self.of = checked_int("of", of, least=1)
        self.steps = loader.plan.steps if steps is None else checked_int("steps", steps, least=0, below=limit + 1)
        self.ignore_index = checked_ignore_index(ignore_index)
        self._place = Place(loader.step)

    @property
    def step(self) -> int:
        """The step at which iteration begins."""
        return self._place.get()

    def set_step(self, step: int) -> None:
        """Let the next iteration begin at a step; also that of workers which are kept (`persistent_workers`).

        Raises:
            PlanError: the plan has no such step, or this is a worker's process.
        """
        if get_worker_info() is not None:
            raise PlanError("set_step: a step is set in the main process, not in a worker of a DataLoader")
        self._place.set(checked_int("step", step, least=0, below=self.loader.plan.step_limit + 1))

    def __len__(self) -> int:
        """Return the batches from step 0 to the end, wherever iteration begins.

        Raises:
            TypeError: there is no end.
        """
        if self.steps is None:
            raise TypeError("the plan is endless and the stream has no len(); give it steps=")
        return self.steps * self.of

    def __iter__(self) -> "BatchStreamIterator":
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return BatchStreamIterator(self, self.step * self.of + number, workers)

    def batch(self, number: int) -> WholeBatch:
        """Return one batch; they are counted from step 0 on, `of` of them a step."""
        step, micro = divmod(number, self.of)
        return WholeBatch(as_tensors(self.loader.batch(step, micro=micro, of=self.of), self.ignore_index))


class BatchStreamIterator(Iterator[WholeBatch]):
    """Every `stride`-th batch of a stream, from number `first` on. `StatefulDataLoader` keeps its state."""

    def __init__(self, stream: BatchStream, first: int, stride: int) -> None:
        self._stream = stream
        self._stride = stride
        self._next = first
        self._coming: Iterator[WholeBatch] | None = None

    def __next__(self) -> WholeBatch:
        if self._coming is None:
            self._coming = self._batches()
        batch = next(self._coming)
        self._next += self._stride
        return batch

    def _batches(self) -> Iterator[WholeBatch]:
        stream, first, stride = self._stream, self._next, self._stride
        end = None if stream.steps is None else stream.steps * stream.of
        numbers = count(first, stride) if end is None else range(first, end, stride)
        depth = stream.loader.prefetch
        return prefetched(stream.batch, numbers, depth) if depth else map(stream.batch, numbers)

    def state_dict(self) -> dict[str, Any]:
        """Return what comes next, and of what."""
        return state_at(self._stream.loader, self._next, self._stream.of)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where the state was taken.

        Raises:
            PlanError: it is of another run; see `Loader.load_state_dict`.
        """
        self._next = load_number(state, self._stream.loader, self._stream.of, "stream")
        self._coming = None
