"""Which token positions a step reads, as a pure function of the plan, the step and the rank."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.sampling.checks import POSITION_LIMIT, checked_int, checked_numbers, checked_run, nearest_divisors
from headrace.sampling.fields import Order
from headrace.sampling.inverse import Places, random_samples_reading, windows_reading
from headrace.sampling.phases import phases_of
from headrace.sampling.steps import PlanSteps
from headrace.sampling.uniform import random_starts, random_starts_of
from headrace.sampling.windows import Targets, targets_per_window

__all__ = ["Order", "Plan", "Targets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanSteps):
    """An order over a line of tokens. It knows no file and remembers nothing between steps.

    The order is a sequence of samples, one a row; `batch_size` cuts it into steps. With one batch size, sample s is row
    `s % batch_size` of step `s // batch_size`. Batches may straddle epochs; none is short.

    - `random`: start s is uniform over `[0, token_count - read_length]`, inclusive; endless.
    - `blocks`: epoch e is samples `[e * windows, (e + 1) * windows)` and visits every window once, in an order of its
      own; endless.
    - `sequential`: every window once, from the front; finite, for evaluation. The last batch is filled up with repeats
      of the last window, which `valid` and `loss_mask` leave out.
    - `documents`: as `blocks`, but what is visited is documents: each row begins with one and holds its first
      `read_length` tokens. The plan knows them by their numbers alone; a loader looks up where they begin and end, and
      pads the short ones.

    A plan is checked when it is made, hashable, picklable, and safe to share between threads.

    Raises:
        PlanError: a field is no integer or out of range, fields exclude each other, or the line is too short.
    """

    # -- what a step reads ------------------------------------------------------------------------------------------

    def starts(self, step: int, rank: int = 0, world_size: int = 1) -> NDArray[np.int64]:
        """Return the token position at which each row of one step begins.

        Args:
            step: number of the step, from 0.
            rank: which part of the batch; all parts in rank order are the batch of a world of 1.
            world_size: number of parts; it must divide the batch size.

        Returns:
            int64 `(batch_size // world_size,)`.

        Raises:
            PlanError: the step, rank or world size is not one of this plan, or it is a plan of documents.
        """
        return self.starts_many(step, 1, rank, world_size)[0]

    def starts_many(self, first_step: int, steps: int, rank: int = 0, world_size: int = 1) -> NDArray[np.int64]:
        """Return the starts of `steps` steps from `first_step` on, in one vectorised pass.

        The cost and memory grow with the result alone, not with the step. Other arguments and errors as for `starts`;
        the steps have one batch size (see `steps_alike`).

        Returns:
            int64 `(steps, batch_size // world_size)`; row i is `starts(first_step + i)`.
        """
        if self.order == "documents":
            raise PlanError("a plan of documents does not know where they begin: take documents_many, or a Loader")
        return self._numbers(first_step, steps, rank, world_size)

    def documents_many(self, first_step: int, steps: int, rank: int = 0, world_size: int = 1) -> NDArray[np.int64]:
        """Return the number of each row's document, of a plan of documents. All else as for `starts_many`."""
        self._require_documents()
        return self._numbers(first_step, steps, rank, world_size)

    def starts_of(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where any samples begin, or the numbers of their documents, for a plan of documents.

        Args:
            samples: of the order, int64 `(S,)`; a step's are `first_sample(step)` and those after it.

        Returns:
            int64 `(S,)`. Samples of a finite plan's last batch that fill it up begin where its last window does.

        Raises:
            PlanError: the plan has no such sample.
        """
        wanted = checked_numbers("samples", samples)
        limit = self._batches.first_sample(self.step_limit)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < limit:
            raise PlanError(f"the plan has the samples 0 to {limit - 1}, found {wanted.min()} to {wanted.max()}")
        return self._of_samples(wanted.astype(np.uint64))

    def valid(self, step: int, rank: int = 0, world_size: int = 1) -> NDArray[np.bool_]:
        """Return which rows of a step are windows of their own, not the padding of a finite plan's last batch.

        Returns:
            bool `(batch_size // world_size,)`; all True for an endless plan. Arguments and errors as for `starts`.
        """
        step = self._checked_steps(step, 1)
        first, rows = self._checked_rows(step, rank, world_size)
        return np.arange(rows) < self._total - first if self.finite else np.ones(rows, np.bool_)

    def loss_mask(self, step: int, rank: int = 0, world_size: int = 1) -> NDArray[np.bool_] | None:
        """Return which predictions of a step count, so that a whole pass counts each served target exactly once.

        Returns:
            bool `(batch_size // world_size, window)`, about the token predicted at each input: False in padding rows,
            at targets that the window before has served already and, for `inside`, at the last input, whose next token
            is not read. None for an endless plan: every target that is there counts. Of documents it knows no lengths:
            their padding counts here. Arguments and errors as for `starts`.
        """
        valid = self.valid(step, rank, world_size)
        if not self.finite:
            return None
        served = targets_per_window(self.window, self.targets)
        new = served if self.order == "documents" else min(served, self.effective_stride)
        mask = np.zeros((valid.size, self.window), np.bool_)
        mask[:, served - new : served] = valid[:, np.newaxis]
        for row, gap in self._rows_after_gaps(step, rank, world_size):
            mask[row, max(0, served - gap * self.effective_stride) : served] = valid[row]
        return mask

    def loss_mask_of(self, samples: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Return which predictions of any samples, int64 `(S,)`, count; bool `(S, window)`, or None, as `loss_mask`."""
        samples = checked_numbers("samples", samples)
        if not self.finite:
            return None
        single = replace(self, batch_size=1)
        mask = np.zeros((samples.size, self.window), np.bool_)  # none of the samples that fill up the last batch
        for row, sample in enumerate(samples.tolist()):
            if sample < single.step_limit:
                mask[row] = single.loss_mask(sample)
        return mask

    # -- which steps read something ---------------------------------------------------------------------------------

    def steps_of(self, tokens: range, epochs: range | None = None, *, steps: range | None = None) -> Places:
        """Find the rows whose windows read any of some tokens: which steps saw this document, or this damage?

        The order of blocks is inverted, which costs as much as is found; of a random plan, each row of `steps` is looked
        at, some thirty million a second.

        Args:
            tokens: positions in the corpus, without gaps.
            epochs: those to look into. A finite plan has one.
            steps: those to look into. An endless plan needs epochs or steps, a random one steps.

        Returns:
            Every such row, but those that fill up a finite plan's last batch.

        Raises:
            PlanError: no such tokens, epochs or steps, or a plan of documents: `Loader.steps_of` knows their tokens.
        """
        if self.order == "documents":
            raise PlanError("a plan of documents does not know their tokens: take documents_steps, or Loader.steps_of")
        tokens = checked_run("tokens", tokens, below=self.token_count)
        if self.order == "random":
            if epochs is not None or steps is None:
                raise PlanError("a random plan has no epochs: say which steps to look into, as steps=range(0, 10_000)")
            samples = self._order_range(steps)
            found = random_samples_reading(
                tokens, samples, seed=self.seed, bound=self.windows, read_length=self.read_length
            )
            return self._places(found, steps)
        samples = [np.empty(0, np.uint64)]
        for epoch in self._epochs(epochs, steps):
            units = windows_reading(
                tokens,
                windows=self.windows,
                first_start=self.tails(epoch)[0],
                stride=self.effective_stride,
                read_length=self.read_length,
            )
            samples.append(self._shuffle.samples(units, epoch))
        return self._places(np.concatenate(samples), steps)

    def documents_steps(self, documents: range, epochs: range | None = None, *, steps: range | None = None) -> Places:
        """Find the rows of some documents, by their numbers, of a plan of documents. All else as for `steps_of`."""
        self._require_documents()
        documents = checked_run("documents", documents, below=self.windows)
        units = np.arange(documents.start, documents.stop, dtype=np.uint64)
        samples = [self._shuffle.samples(units, epoch) for epoch in self._epochs(epochs, steps)]
        return self._places(np.concatenate([np.empty(0, np.uint64), *samples]), steps)

    # -- how it is done ---------------------------------------------------------------------------------------------

    def _numbers(self, first_step: int, steps: int, rank: int, world_size: int) -> NDArray[np.int64]:
        """Return starts, or numbers of documents, `(steps, rows)`."""
        steps = checked_int("steps", steps, least=0)
        first_step = self._checked_steps(first_step, steps)
        first, rows = self._checked_rows(first_step, rank, world_size)
        size = self._batches.size(first_step)
        if steps == 0:
            return np.empty((0, rows), np.int64)
        if self._batches.segment(first_step + steps - 1) != self._batches.segment(first_step):
            raise PlanError(
                f"the batch size changes within steps {first_step} to {first_step + steps - 1}: ask in parts"
            )
        if self.order == "random" and not self.skipped:
            drawn = random_starts(self.seed, self.windows, first, runs=steps, count=rows, stride=size)
            return drawn.astype(np.int64)
        samples = np.uint64(first) + np.add.outer(
            np.arange(steps, dtype=np.uint64) * np.uint64(size), np.arange(rows, dtype=np.uint64)
        )
        return self._of_samples(samples)

    def _of_samples(self, samples: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the start, or the document's number, of each sample; of those that fill up a finite plan, the last one's."""
        if not samples.size:
            return np.empty(samples.shape, np.int64)
        if self.finite:
            samples = np.minimum(samples, np.uint64(self._total - 1))
        samples = self._skips.to_order_many(samples)
        if self.order == "random":
            return random_starts_of(self.seed, self.windows, samples).astype(np.int64)
        flat = samples.reshape(-1)
        units = self._shuffle.units(flat)
        if self.order != "documents":
            units *= np.uint64(self.effective_stride)
        if self.phase:
            units += phases_of(self.seed, flat // np.uint64(self.windows), self.effective_stride)
        return units.reshape(samples.shape).astype(np.int64)

    def _rows_after_gaps(self, step: int, rank: int, world_size: int) -> Iterator[tuple[int, int]]:
        """Yield each row of a sequential step that does not come one window after the row before it: row, and by how many.

        The first row of all comes after none, and so after as many as are needed.
        """
        first, rows = self._checked_rows(step, rank, world_size)
        if self.order == "sequential" and first == 0:
            yield 0, self.window
        for begin, stop in self.skipped if self.order == "sequential" else ():
            sample = begin - sum(b - a for a, b in self.skipped if b <= begin)
            if max(first, 1) <= sample < min(first + rows, self._total):
                yield sample - first, stop - begin + 1

    def _order_range(self, steps: range) -> range:
        """Return the order's own samples that lie within some steps, and those skipped between them."""
        steps = checked_run("steps", steps)
        self._checked_steps(steps.start, len(steps))
        first, stop = self.first_sample(steps.start), self.first_sample(steps.stop)
        return range(self._skips.to_order(first), self._skips.to_order(stop - 1) + 1)

    def _epochs(self, epochs: range | None, steps: range | None) -> range:
        """Return which epochs to look into."""
        if epochs is not None:
            epochs = checked_run("epochs", epochs, below=1 if self.finite else POSITION_LIMIT // self.windows)
        if steps is None:
            if epochs is None and not self.finite:
                raise PlanError("an endless plan: say which epochs or steps to look into, as epochs=range(0, 3)")
            return range(1) if epochs is None else epochs
        samples = self._order_range(steps)
        of_steps = range(samples.start // self.windows, (samples.stop - 1) // self.windows + 1)
        if epochs is None:
            return of_steps
        return range(max(of_steps.start, epochs.start), min(of_steps.stop, epochs.stop))

    def _places(self, found: NDArray[np.uint64], steps: range | None) -> Places:
        """Return step and row of the order's own samples, but for those skipped and those outside of `steps`."""
        served, kept = self._skips.from_order_many(found)
        at, rows = self._batches.steps_of(np.sort(served[kept]))
        if steps is not None:
            inside = (at >= steps.start) & (at < steps.stop)
            at, rows = at[inside], rows[inside]
        return Places(at, rows)

    def _checked_rows(self, step: int, rank: int, world_size: int) -> tuple[int, int]:
        """Return the first sample of the rank's part of a batch, and how many rows it has."""
        world_size = checked_int("world_size", world_size, least=1)
        rank = checked_int("rank", rank, least=0, below=world_size)
        size = self._batches.size(step)
        rows, rest = divmod(size, world_size)
        if rest or not rows:
            raise PlanError(
                f"world_size must divide the batch size {size}, found {world_size}; "
                f"the nearest that does is {nearest_divisors(size, world_size)}"
            )
        return self._batches.first_sample(step) + rank * rows, rows

    def _require_documents(self) -> None:
        if self.order != "documents":
            raise PlanError(f"a plan of order={self.order!r} has windows, not documents: take starts or steps_of")
