"""A corpus and a plan together: step -> batch."""

from collections.abc import Iterator
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.errors import PlanError
from headrace.loading.batch import Batch
from headrace.sampling import Plan
from headrace.sampling.checks import checked_int
from headrace.verdicts import Verify, checked_verify, require_ok

__all__ = ["Loader", "MaskSource", "WindowBlock", "WindowSource", "verify_store"]

BLOCK_STEPS = 1_024
"""Steps whose starts are worked out together: numpy's cost of a call is paid once for them."""
BLOCK_STARTS = 131_072
"""Most starts of a block (1 MiB), whatever the batch size."""
BLOCK_EPOCHS = 1_024
"""Most epochs of a block: each costs a key, and a tiny corpus has many in few steps."""


class WindowBlock(Protocol):
    """The windows of several steps, located once."""

    def gather_into(self, row: int, out: NDArray[Any], /) -> None:
        """Fill `out`, C-contiguous `(B, length)` of int64 or the corpus' dtype, with the windows of one row."""
        ...


class WindowSource(Protocol):
    """What a loader needs of a corpus."""

    @property
    def token_count(self) -> int:
        """Tokens of the whole line."""
        ...

    @property
    def fingerprint(self) -> object:
        """Identity of the content; `str()` gives its hex digits."""
        ...

    def windows(self, starts: NDArray[np.int64], length: int, /) -> WindowBlock:
        """Locate windows of `length` tokens at `starts`, int64 `(S, B)`."""
        ...


@runtime_checkable
class MaskSource(Protocol):
    """What a loader asks, too, of a corpus that may store which tokens count in the loss."""

    @property
    def has_loss_mask(self) -> bool:
        """Whether it does."""
        ...

    def loss_mask_windows(self, starts: NDArray[np.int64], length: int, /) -> WindowBlock:
        """Locate the mask of windows of `length` tokens at `starts`, int64 `(S, B)`; it is gathered as uint8, 0 or 1."""
        ...


class Loader:
    """Serves the batches of a plan. `batch(step)` is a pure function: any step, any number of times, at equal cost.

    Iteration goes on from `step`, the number of batches already taken, and moves it before it hands a batch out; so
    `step` is all there is to save, and setting it resumes there. An endless plan iterates for ever. A finite one stops
    after its last step; iteration that begins there begins anew.

    Args:
        corpus: what serves the tokens; see `WindowSource`. Where it stores a loss mask (see `MaskSource`), the batches
            have it, put together with the plan's own.
        plan: made for this corpus.
        rank: which part of every batch to serve.
        world_size: number of parts; it must divide the plan's batch size. Every rank serves equally many batches.
        dtype: of the tokens handed out, int64 or the corpus' own.
        verify: `full` compares every byte of the corpus with its manifest now, once and whatever the corpus was opened
            with. `quick` reads nothing now and leaves it to the corpus, which checks each shard's stored digest and its
            first and last chunk when it is first touched; but one that was opened with `verify="off"` checks sizes
            only. `off` asks for nothing: the corpus does what it was opened to do.

    Raises:
        PlanError: the plan is for another corpus, or the rank and world size do not fit it.
        CorruptShardError: `full` found damage; it names shard, chunk, tokens, documents and lines.
        ValueError, TypeError: `verify` is none of the three, or `full` and the corpus has no `verify()`.
    """

    def __init__(
        self,
        corpus: WindowSource,
        plan: Plan,
        *,
        rank: int = 0,
        world_size: int = 1,
        dtype: DTypeLike = np.int64,
        verify: Verify = "quick",
    ) -> None:
        if plan.token_count != corpus.token_count:
            raise PlanError(
                f"token_count: the plan was made for {plan.token_count} tokens, the corpus holds {corpus.token_count}"
            )
        if plan.corpus and plan.corpus != str(corpus.fingerprint):
            raise PlanError(f"corpus: the plan was made for the corpus {plan.corpus}, this one is {corpus.fingerprint}")
        self.plan = plan
        self.rank = rank
        self.world_size = world_size
        self.dtype = np.dtype(dtype)
        self._corpus = corpus
        self._rows = plan.starts(0, rank, world_size).size
        self._length = plan.read_length
        self._steps = plan.steps
        self._inside = plan.targets == "inside"
        epoch_steps = BLOCK_EPOCHS * plan.windows // plan.batch_size
        self._block_steps = max(1, min(BLOCK_STEPS, BLOCK_STARTS // self._rows, epoch_steps))
        self._block: tuple[int, NDArray[np.int64], WindowBlock] | None = None
        self._masked = isinstance(corpus, MaskSource) and corpus.has_loss_mask
        self._mask_block: tuple[NDArray[np.int64], WindowBlock] | None = None
        self._step = 0
        verify_store(corpus, verify)

    @property
    def step(self) -> int:
        """The step that iteration serves next: how many batches of the plan were taken. May be set."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        self._step = checked_int("step", value, least=0, below=self.plan.step_limit + 1)

    def __len__(self) -> int:
        """Return the number of steps of a finite plan.

        Raises:
            TypeError: the plan is endless.
        """
        if self._steps is None:
            raise TypeError(f"a plan of order {self.plan.order!r} is endless and has no len(); stop at a step")
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        if self._step == self._steps:
            self._step = 0
        while self._step != self._steps:
            batch = self.batch(self._step)
            self._step += 1
            yield batch

    def batch(self, step: int) -> Batch:
        """Return this rank's rows of one step, in arrays of their own.

        Raises:
            PlanError: the plan has no such step.
        """
        step = checked_int("step", step, least=0)
        number, row = divmod(step, self._block_steps)
        # First of all, for it refuses a step that a finite plan does not have.
        mask = None if self._steps is None else self.plan.loss_mask(step, self.rank, self.world_size)
        block = self._block
        if block is None or block[0] != number:
            self._block = block = self._located(number)
        tokens = np.empty((self._rows, self._length), self.dtype)
        block[2].gather_into(row, tokens)
        if self._masked:
            mask = self._with_stored(block[1], row, mask)
        return Batch(
            step=step,
            input_ids=tokens if self._inside else tokens[:, :-1],
            targets=None if self._inside else tokens[:, 1:],
            labels=tokens if self._inside else None,
            loss_mask=mask,
            starts=block[1][row].copy(),
        )

    def _with_stored(self, starts: NDArray[np.int64], row: int, planned: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        """What counts of one step: what is stored of the token after each input, and is not left out by the plan."""
        length = self._length - 1
        block = self._mask_block
        if block is None or block[0] is not starts:
            source = cast("MaskSource", self._corpus)
            self._mask_block = block = starts, source.loss_mask_windows(starts + 1, length)
        stored = np.empty((self._rows, length), np.uint8)
        block[1].gather_into(row, stored)
        mask = np.zeros((self._rows, self.plan.window), np.bool_)  # inside, the token after the last input is not read
        np.not_equal(stored, 0, out=mask[:, :length])
        return mask if planned is None else mask & planned

    def _located(self, number: int) -> tuple[int, NDArray[np.int64], WindowBlock]:
        first = number * self._block_steps
        count = min(self._block_steps, max(1, self.plan.step_limit - first))
        starts = self.plan.starts_many(first, count, self.rank, self.world_size)
        return number, starts, self._corpus.windows(starts, self._length)


def verify_store(store: object, verify: Verify) -> None:
    """Do what `Loader` promises of `verify`.

    Raises:
        CorruptShardError, ValueError, TypeError: as there.
    """
    if checked_verify(verify) != "full":
        return
    method = getattr(store, "verify", None)
    if not callable(method):
        raise TypeError(
            f"verify='full' needs a corpus that can verify itself, such as headrace.open gives; {type(store).__name__} "
            "has no verify(): leave it at 'quick'"
        )
    reports: Any = method()
    require_ok(reports)
