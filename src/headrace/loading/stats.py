"""What a loader has served, and how long its trainer waited for it."""

import time
from dataclasses import dataclass

__all__ = ["LoaderStats", "Tally"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """Of this loader, in this process, since it was made."""

    batches: int
    """Batches handed out."""
    tokens: int
    """Input tokens in them, of this rank."""
    seconds: float
    """From when the first batch was asked for to when the last one was handed out."""
    wait_seconds: float
    """Of these, how long whoever asked for batches waited for them."""
    cold_share: float | None
    """Share of a sample of the present windows that had to come from the disk, 0 to 1; None before a second batch."""

    @property
    def tokens_per_second(self) -> float:
        """Input tokens handed out a second, the trainer's own time included; 0 before the first batch."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time that was spent waiting, 0 to 1."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0


class Tally:
    """Counts what a loader hands out. For one thread at a time."""

    __slots__ = ("_batches", "_first", "_last", "_tokens", "_waited")

    def __init__(self) -> None:
        self._batches = self._tokens = 0
        self._first = self._last = self._waited = 0.0

    def add(self, tokens: int, asked: float) -> None:
        """Count a batch that is handed out now, and was asked for at this time of `time.perf_counter`."""
        self._last = time.perf_counter()
        if not self._batches:
            self._first = asked
        self._waited += self._last - asked
        self._batches += 1
        self._tokens += tokens

    def stats(self, cold_share: float | None) -> LoaderStats:
        """Return what was counted so far."""
        return LoaderStats(
            batches=self._batches,
            tokens=self._tokens,
            seconds=self._last - self._first,
            wait_seconds=self._waited,
            cold_share=cold_share,
        )
