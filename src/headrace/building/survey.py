"""The first pass over the sources of a build that needs one: what is in them, before anything is encoded.

Each source shard is read as the build will read it, by the same processes, and stops the build at the same faults. What the
pass is made for is left to collectors, which see every batch; what they write lies in a folder that goes with the build.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from headrace.building.drop_log import MOST_KEPT, faults_in
from headrace.building.job import ContentOptions, Hooks
from headrace.building.place import place_after, start_of
from headrace.building.rolling import require_folder
from headrace.building.tally import Reports, Tally
from headrace.building.wanted import not_enough_memory, refuse_faults, wanted_batches
from headrace.in_progress import Key
from headrace.sources import DocumentBatch, Drop, SourceShard
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["Collector", "Survey", "SurveyJob"]


class Collector(Protocol):
    """Sees the documents of one source shard go by, in order. A context manager, left before `result` is asked for."""

    def __enter__(self) -> Self:
        """Begin. What a worker that died has left of the same source shard is replaced."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what is still held."""
        ...

    def add(self, batch: DocumentBatch, /) -> None:
        """Take the next documents."""
        ...

    def result(self) -> Any:  # noqa: ANN401  # its own
        """What the parent is to know, picklable and small."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the first pass found in a source shard."""

    key: Key
    """Of the source shard."""
    documents: int
    """Documents that are kept, as far as reading them tells."""
    rows: int
    """Of a cut, its lines: see `ShardOutcome.rows`."""
    results: tuple[Any, ...]
    """Of the collectors, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyJob:
    """What a worker is told: see `building.job.Job`."""

    shard: SourceShard
    options: ContentOptions
    output: Path
    """The build's folder, which has to be there."""
    collectors: tuple[Callable[[SourceShard], Collector], ...] = ()
    """Make the collectors of a source shard; picklable."""

    def run(self, tokenizer: BatchTokenizer | None, hooks: Hooks) -> Survey:  # noqa: ARG002  # nothing is encoded
        """See `Job.run`."""
        tally = Tally(self.options.field)
        with ExitStack() as stack:
            collectors = [stack.enter_context(make(self.shard)) for make in self.collectors]
            try:
                self._read(tally, collectors, hooks)
            except MemoryError as error:
                raise not_enough_memory(self.shard, tally, error) from error
        return Survey(
            key=self.shard.key,
            documents=tally.documents,
            rows=tally.rows if self.shard.cut else 0,
            results=tuple(collector.result() for collector in collectors),
        )

    def undo(self) -> None:
        """See `Job.undo`: collectors begin anew what is there."""

    def _read(self, tally: Tally, collectors: list[Collector], hooks: Hooks) -> None:
        first: list[Drop] = []
        reports = Reports(tally, hooks.report)
        hooks.at(start_of(self.shard))
        batches = self._batches(tally)
        for batch in batches:
            require_folder(self.output)
            first += faults_in(batch.drops)[: MOST_KEPT - len(first)]
            refuse_faults(self.shard, self.options, tally, first, batches)
            for collector in collectors:
                collector.add(batch)
            if place := place_after(batch, self.shard):
                hooks.at(place)
            reports.tell()
        hooks.report(tally)

    def _batches(self, tally: Tally) -> Iterator[DocumentBatch]:
        """Yield what is read; it is counted at once, for bad documents are looked for behind the batch that holds one."""
        for batch in wanted_batches(self.shard, self.options):
            tally.add(batch)
            yield batch
