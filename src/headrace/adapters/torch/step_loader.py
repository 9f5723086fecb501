"""A DataLoader that counts what its trainer has taken."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from headrace.adapters.torch.stream import BatchStream
from headrace.adapters.torch.tensors import WholeBatch
from headrace.errors import PlanError
from headrace.loading import Loader
from headrace.sampling.checks import checked_int

__all__ = ["StepDataLoader"]

_DECIDED = (
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "drop_last",
    "collate_fn",
    "worker_init_fn",
    "generator",
)
"""Options of a DataLoader that the plan decides, or that have nothing to do."""
T = TypeVar("T")


class StepDataLoader(DataLoader[WholeBatch]):
    """torch's DataLoader over whole batches, which knows how far its trainer is.

    Iteration goes on from `step`, as that of `Loader` does, and its state is a loader's: it is right with any number of
    workers, whatever they have made ahead, and can be loaded with another number of them, of ranks or of parts. Without
    workers, the default, it is fast enough; see `Loader`.

    Args:
        batches: a stream, or a loader, for a stream of it.
        options: of a DataLoader, such as `num_workers`, `pin_memory`, `persistent_workers`, `multiprocessing_context`.

    Raises:
        PlanError: an option is given that the plan decides: its order, the size of its batches.
    """

    def __init__(self, batches: BatchStream | Loader, **options: Any) -> None:  # noqa: ANN401  # torch's own
        self._taken = 0
        # What is left out, or says False, is as the plan has it.
        decided = [name for name in _DECIDED if options.get(name) is not None and options[name] is not False]
        if decided or not options.get("in_order", True):
            raise PlanError(
                f"{', '.join(decided) or 'in_order=False'}: the plan says which rows are in which batch, and in which order; "
                "leave it out, and change the plan instead"
            )
        options = {name: value for name, value in options.items() if name not in _DECIDED}
        stream = batches if isinstance(batches, BatchStream) else BatchStream(batches)
        # A generator of its own: else each iterator takes a number from torch's, and a resumed model's dropout is another.
        super().__init__(stream, batch_size=None, collate_fn=_unchanged, generator=torch.Generator(), **options)
        self.stream = stream
        self.set_step(stream.step)

    @property
    def step(self) -> int:
        """How many whole steps were handed out: with those, a run goes on."""
        return self._taken // self.stream.of

    def set_step(self, step: int) -> None:
        """Go on from a step. Within a loop over the loader, it ends what the workers have made ahead."""
        limit = self.stream.loader.plan.step_limit
        self._taken = checked_int("step", step, least=0, below=limit + 1) * self.stream.of

    def __iter__(self) -> Iterator[WholeBatch]:  # pyright: ignore[reportIncompatibleMethodOverride]  # torch's is private
        stream = self.stream
        if stream.steps is not None and self.step >= stream.steps:
            self.set_step(0)
        while True:
            self._taken = expected = self.step * stream.of  # a step that was begun is taken again, whole
            stream.set_step(self.step)
            # Without workers and pinning, torch's iterator has nothing to do, for a fifth of the time of a batch.
            for batch in super().__iter__() if self.num_workers or self.pin_memory else stream:
                self._taken = expected = expected + 1
                yield batch
                del batch  # so that its memory is there for the next one
                if self._taken != expected:  # set by whoever iterates
                    break
            else:
                return

    def state_dict(self) -> dict[str, Any]:
        """Return how far the trainer is, as `Loader.state_dict` does. A step of which parts are missing is not counted."""
        loader = self.stream.loader
        loader.step = self.step
        return loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, allow: Collection[str] = ()) -> None:
        """Go on where a state was saved, as `Loader.load_state_dict` does.

        Raises:
            PlanError: it is the state of another run; or its batch sizes are others, and workers that were kept from an
                iteration before do not know them.
        """
        loader = self.stream.loader
        before = loader.plan
        loader.load_state_dict(state, allow=allow)
        if loader.plan != before and self._iterator is not None:
            raise PlanError("load the state before the first iteration: workers that are kept know the plan as it was")
        self.set_step(loader.step)


def _unchanged(batch: T) -> T:
    return batch
