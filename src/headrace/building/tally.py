"""The running counts of a job."""

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.building.drop_log import faults_in
from headrace.events import Progress
from headrace.in_progress import Key
from headrace.sources import DocumentBatch
from headrace.sources.field import Field

__all__ = ["REPORT_SECONDS", "Counts", "Reports", "Sums", "Tally"]

REPORT_SECONDS = 0.1
"""Between two reports of a job."""

Counts = tuple[int, int, int, int]
"""Input bytes, documents, tokens and text bytes of one job so far."""


@dataclass(slots=True)
class Tally:
    """Running counts of one source shard."""

    field: Field | None = None
    """What is read of each row; None where nothing is, and so no bytes of text are counted."""
    input_bytes: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    documents_in: int = 0
    faults: int = 0
    """Documents dropped for a fault of the input."""
    replaced: int = 0
    cut_tokens: int = 0
    rows: int = 0
    """Lines gone by: see `DocumentBatch.rows_read`."""
    start: int = 0
    """See `DocumentBatch`."""
    kept_by_file: Counter[int] = dataclasses.field(default_factory=Counter[int])
    drops_by_label: dict[str, Counter[str]] = dataclasses.field(default_factory=dict[str, Counter[str]])

    def add(self, batch: DocumentBatch) -> None:
        """Count what a batch brought."""
        self.input_bytes += batch.consumed
        self.documents += len(batch.texts)
        self.documents_in += len(batch.texts) + len(batch.drops)
        self.text_bytes += self.field.text_bytes(batch.texts) if self.field else 0
        self.replaced += batch.replaced
        self.rows += batch.rows_read
        self.start = batch.start
        for number, count in enumerate(np.bincount(batch.files).tolist()):
            if count:
                self.kept_by_file[number] += count
        for drop in batch.drops:
            self.drops_by_label.setdefault(drop.path, Counter())[drop.reason] += 1
        self.faults += len(faults_in(batch.drops))


class Reports:
    """Tells of a job's running counts, from time to time.

    Args:
        tally: the counts.
        report: receives them.
    """

    def __init__(self, tally: Tally, report: Callable[[Tally], None]) -> None:
        self._tally = tally
        self._report = report
        self._told = time.monotonic()

    def tell(self) -> None:
        """Tell of them, unless that was done a moment ago."""
        if time.monotonic() - self._told >= REPORT_SECONDS:
            self._report(self._tally)
            self._told = time.monotonic()


class Sums:
    """The counts of all jobs together."""

    def __init__(self) -> None:
        self.of_jobs: dict[Key, Counts] = {}
        self._started = time.monotonic()
        self._all = [0, 0, 0, 0]

    def add(self, key: Key, counts: Counts) -> Progress:
        """Take the running counts of a job, by the key of its source shard; gives those of all."""
        before = self.of_jobs.get(key, (0, 0, 0, 0))
        self.of_jobs[key] = counts
        self._all = [total + new - old for total, new, old in zip(self._all, counts, before, strict=True)]
        input_bytes, documents, tokens, text_bytes = self._all
        return Progress(
            input_bytes=input_bytes,
            documents=documents,
            tokens=tokens,
            text_bytes=text_bytes,
            seconds=time.monotonic() - self._started,
        )
