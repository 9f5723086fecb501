"""What happens in a run, as frozen values; beside them a subscriber receives a `StepRecord` for each step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["CheckpointSaved", "EpochEnded", "Evaluated", "RunReport", "RunStarted", "Watcher"]

Watcher = Callable[[Any], None]
"""Receives these, `StepRecord` and `headrace.events.Event`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """All is checked and made; the first step comes next."""

    output: str
    step: int
    """From which it goes on."""
    steps: int
    """Of the whole run."""
    schedule_steps: int
    parameters: int
    device: str
    processes: int
    step_tokens: int
    """Input tokens of a step, over all processes."""
    epoch_steps: float | None
    """Steps of a pass over the corpus; None where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded:
    """A pass over the corpus."""

    step: int
    """Steps taken."""
    epoch: int
    """Passes ended."""
    train_perplexity: float
    """exp of the mean loss of its steps, but for those skipped; infinite where that is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The held-out corpus was read once."""

    step: int
    perplexity: float
    mean_loss: float
    targets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint is on disk."""

    step: int
    path: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The end of a run; counts are of this process, since it began."""

    output: str
    step: int
    """Steps taken, those before included."""
    loss: float | None
    """Of the last step; None if there was none."""
    perplexity: float | None
    """Of the last evaluation; None if there was none."""
    tokens: int
    """Input tokens of the steps."""
    skipped: int
    seconds: float
    """Of steps, evaluations and checkpoints."""
    data_wait_s: float
    """Of these, how long steps waited for their batches."""
    checkpoint: str
    """The last one; empty where none was written."""
    rank: int = 0
    """Of this process."""
