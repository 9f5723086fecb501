"""Which token positions a step reads, as a pure function of the plan, the step and the rank."""

import hashlib
import json
from dataclasses import dataclass
from math import isqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.sampling.checks import POSITION_LIMIT, checked_int
from headrace.sampling.keys import Stream, key_words
from headrace.sampling.permutation import ROUNDS, permute
from headrace.sampling.philox import KEY_WORDS, multiply_high, random_words
from headrace.sampling.windows import Targets, WindowGrid, targets_per_window

__all__ = ["Order", "Plan", "Targets"]

Order = Literal["random", "blocks", "sequential"]

SCHEME = 1
"""Version of all orders together. Any change of an order is a change of this number, and of the golden values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An order over a line of tokens. It knows no file and remembers nothing between steps.

    Sample s of the order is row `s % batch_size` of step `s // batch_size`. Batches may straddle epochs; none is short.

    - `random`: start s is uniform over `[0, token_count - read_length]`, inclusive; endless.
    - `blocks`: epoch e is samples `[e * windows, (e + 1) * windows)` and visits every window once, in an order of its
      own; endless.
    - `sequential`: every window once, from the front; finite, for evaluation. The last batch is filled up with repeats
      of the last window, which `valid` and `loss_mask` leave out.

    A plan is checked when it is made, hashable, picklable, and safe to share between threads.

    Raises:
        PlanError: a field is no integer or out of range, fields exclude each other, or the line is too short.
    """

    order: Order
    token_count: int
    """Tokens of the corpus."""
    window: int
    """T: inputs of a row, in tokens."""
    batch_size: int
    """Rows of the global batch, over all ranks."""
    seed: int = 0
    """Any integer >= 0."""
    targets: Targets = "next"
    """`next`: row i of the targets is the inputs moved on by one. `inside`: the labels are the inputs themselves."""
    stride: int | None = None
    """Tokens from a window's start to the next one's. None serves each target once: T for `next`, T - 1 for `inside`.
    A larger one loses targets, a smaller one repeats them (`sequential` then counts each the first time only)."""
    corpus: str = ""
    """Fingerprint of the corpus, hex; empty where it is not known."""

    def __post_init__(self) -> None:
        for name, value, allowed in (("order", self.order, Order), ("targets", self.targets, Targets)):
            if value not in get_args(allowed):
                raise PlanError(f"{name} must be one of {', '.join(get_args(allowed))}; found {value!r}")
        least_window = 1 if self.targets == "next" else 2
        for name, least in (("token_count", 0), ("window", least_window), ("batch_size", 1)):
            object.__setattr__(self, name, checked_int(name, getattr(self, name), least=least))
        object.__setattr__(self, "seed", checked_int("seed", self.seed, least=0, below=None))
        if self.stride is not None:
            if self.order == "random":
                raise PlanError("a random plan has no stride: its starts are drawn one by one; leave stride out")
            object.__setattr__(self, "stride", checked_int("stride", self.stride, least=1))
        if self.token_count < self.read_length:
            raise PlanError(
                f"the corpus holds {self.token_count} tokens; a window of {self.window} with targets={self.targets!r} "
                f"reads {self.read_length}. Take a smaller window or a larger corpus"
            )

    @property
    def read_length(self) -> int:
        """R: tokens that a row reads, `window + 1` for `next` and `window` for `inside`."""
        return targets_per_window(self.window, self.targets) + 1

    @property
    def effective_stride(self) -> int:
        """Tokens from a window's start to the next one's; 1 for a random plan."""
        if self.order == "random":
            return 1
        return targets_per_window(self.window, self.targets) if self.stride is None else self.stride

    @property
    def windows(self) -> int:
        """Windows of an epoch; for a random plan the number of different starts."""
        return self._grid.windows

    @property
    def tail_tokens(self) -> int:
        """Tokens after the last window: as many targets that no window serves. 0 for a random plan."""
        return self._grid.tail_tokens

    @property
    def lost_targets(self) -> int:
        """Targets between two windows that neither serves, in an epoch; the tail is not among them."""
        return self._grid.lost_targets

    @property
    def repeated_targets(self) -> int:
        """Targets served more than once in an epoch, once for each repeat; 0 for a random plan, which has no epoch."""
        return 0 if self.order == "random" else self._grid.repeated_targets

    @property
    def steps(self) -> int | None:
        """Steps of a sequential plan, the padded last one included; None for an endless one."""
        return -(-self.windows // self.batch_size) if self.order == "sequential" else None

    @property
    def step_limit(self) -> int:
        """Exclusive bound of step numbers: `steps`, or for an endless plan as many as have samples below 2**63."""
        return POSITION_LIMIT // self.batch_size if self.steps is None else self.steps

    @property
    def fingerprint(self) -> str:
        """SHA-256, hex, of all that decides the sequence of samples.

        The batch size is not in it: it cuts the sequence into steps and changes none of it.
        """
        fields = {
            "scheme": SCHEME,
            "order": self.order,
            "token_count": self.token_count,
            "window": self.window,
            "targets": self.targets,
            "stride": self.effective_stride,
            "seed": hex(self.seed),
            "corpus": self.corpus,
        }
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def epoch(self, step: int) -> int:
        """Return the epoch of the step's first sample; always 0 for a random plan."""
        first = self._checked_steps(step, 1) * self.batch_size
        return first // self.windows if self.order == "blocks" else 0

    def starts(self, step: int, rank: int = 0, world_size: int = 1) -> NDArray[np.int64]:
        """Return the token position at which each row of one step begins.

        Args:
            step: number of the step, from 0.
            rank: which part of the batch; all parts in rank order are the batch of a world of 1.
            world_size: number of parts; it must divide the batch size.

        Returns:
            int64 `(batch_size // world_size,)`.

        Raises:
            PlanError: the step, rank or world size is not one of this plan.
        """
        return self.starts_many(step, 1, rank, world_size)[0]

    def starts_many(self, first_step: int, steps: int, rank: int = 0, world_size: int = 1) -> NDArray[np.int64]:
        """Return the starts of `steps` steps from `first_step` on, in one vectorised pass.

        The cost and memory grow with the result alone, not with the step. Other arguments and errors as for `starts`.

        Returns:
            int64 `(steps, batch_size // world_size)`; row i is `starts(first_step + i)`.
        """
        steps = checked_int("steps", steps, least=0)
        first_step = self._checked_steps(first_step, steps)
        first_row, rows = self._checked_rows(rank, world_size)
        first = first_step * self.batch_size + first_row
        if steps == 0:
            return np.empty((0, rows), np.int64)
        if self.order == "random":
            key = key_words(self.seed, 0, Stream.RANDOM, KEY_WORDS)
            words = random_words(key, first, runs=steps, count=rows, stride=self.batch_size)
            return multiply_high(words, self.windows).astype(np.int64)
        samples = np.uint64(first) + np.add.outer(
            np.arange(steps, dtype=np.uint64) * np.uint64(self.batch_size), np.arange(rows, dtype=np.uint64)
        )
        if self.order == "sequential":
            window = np.minimum(samples, np.uint64(self.windows - 1))
        else:
            window = self._shuffled(samples.reshape(-1)).reshape(samples.shape)
        return (window * np.uint64(self.effective_stride)).astype(np.int64)

    def valid(self, step: int, rank: int = 0, world_size: int = 1) -> NDArray[np.bool_]:
        """Return which rows of a step are windows of their own, not the padding of a finite plan's last batch.

        Returns:
            bool `(batch_size // world_size,)`; all True for an endless plan. Arguments and errors as for `starts`.
        """
        step = self._checked_steps(step, 1)
        first_row, rows = self._checked_rows(rank, world_size)
        if self.order != "sequential":
            return np.ones(rows, np.bool_)
        return np.arange(rows) < self.windows - (step * self.batch_size + first_row)

    def loss_mask(self, step: int, rank: int = 0, world_size: int = 1) -> NDArray[np.bool_] | None:
        """Return which predictions of a step count, so that a whole pass counts each served target exactly once.

        Returns:
            bool `(batch_size // world_size, window)`, about the token predicted at each input: False in padding rows,
            at targets that the window before has served already and, for `inside`, at the last input, whose next token
            is not read. None for an endless plan: every target that is there counts. Arguments and errors as for
            `starts`.
        """
        valid = self.valid(step, rank, world_size)
        if self.order != "sequential":
            return None
        served = targets_per_window(self.window, self.targets)
        mask = np.zeros((valid.size, self.window), np.bool_)
        mask[:, max(0, served - self.effective_stride) : served] = valid[:, np.newaxis]
        if step == 0 and rank == 0:
            mask[0, :served] = True
        return mask

    @property
    def _grid(self) -> WindowGrid:
        return WindowGrid(self.token_count, self.read_length, self.effective_stride)

    def _shuffled(self, samples: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Map ascending sample numbers to window numbers, each under the key of its epoch."""
        if self.windows == 1:
            return np.zeros_like(samples)
        epoch, index = np.divmod(samples, np.uint64(self.windows))
        begins = np.flatnonzero(np.diff(epoch, prepend=epoch[0] + np.uint64(1)))
        keys = np.stack([key_words(self.seed, int(e), Stream.BLOCKS, ROUNDS) for e in epoch[begins]], axis=1)
        # One key a sample only where epochs meet: a small corpus has thousands of epochs in one call.
        key = keys[:, 0] if begins.size == 1 else np.repeat(keys, np.diff(begins, append=samples.size), axis=1)
        return permute(index, length=self.windows, key=key)

    def _checked_steps(self, first: int, count: int) -> int:
        first = checked_int("step", first, least=0)
        last = first + max(count, 1) - 1
        if last >= self.step_limit:
            raise PlanError(f"the plan has the steps 0 to {self.step_limit - 1}, found step {last}")
        return first

    def _checked_rows(self, rank: int, world_size: int) -> tuple[int, int]:
        """Return the first row of the rank's part of a batch, and how many rows it has."""
        world_size = checked_int("world_size", world_size, least=1)
        rank = checked_int("rank", rank, least=0, below=world_size)
        rows, rest = divmod(self.batch_size, world_size)
        if rest or not rows:
            raise PlanError(
                f"world_size must divide the batch size {self.batch_size}, found {world_size}; "
                f"the nearest that does is {_nearest_divisor(self.batch_size, world_size)}"
            )
        return rank * rows, rows


def _nearest_divisor(number: int, wanted: int) -> str:
    """Return the divisor of `number` nearest to `wanted`, or both where two are equally near."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    divisors = sorted({*small, *(number // d for d in small)})
    gap = min(abs(d - wanted) for d in divisors)
    return " or ".join(str(d) for d in divisors if abs(d - wanted) == gap)
