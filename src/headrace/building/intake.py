"""Reading a source shard for a build: what is counted, listed, hashed and told of while its documents go by."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.building.cutting import unplaced_log
from headrace.building.drop_log import DropLog
from headrace.building.lane import Lane
from headrace.building.output import drop_log
from headrace.building.place import place_after, place_of, start_of
from headrace.building.rolling import require_folder
from headrace.building.source_hashes import SourceHashes, check_promise
from headrace.building.tally import Reports, Tally
from headrace.building.wanted import not_enough_memory, refuse_faults, wanted_batches
from headrace.manifest import SourceEntry
from headrace.sources import DocumentBatch, SourceFile
from headrace.sources.given import framed

if TYPE_CHECKING:
    from headrace.building.job import Hooks, ShardJob

__all__ = ["Intake"]


class Intake:
    """One reading of a source shard. A context manager, in which all batches are taken, and then `finish` is called.

    Args:
        job: what is read, and how.
        hooks: what to call meanwhile.

    Attributes:
        tally: of what was read so far; what becomes of it, its tokens among it, is for its reader to add.
        log: lists the documents that were not kept.
        lane: runs the hashing, and what its reader gives it, while the next batch is read and encoded.
    """

    def __init__(self, job: "ShardJob", hooks: "Hooks") -> None:
        self.job = job
        self.tally = Tally(job.options.field)
        self.log = DropLog(_log(job))
        self.lane = Lane(own_thread=job.own_thread)
        self._hashes = SourceHashes(job.shard)
        self._hooks = hooks
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self.log)
        self._stack.enter_context(self.lane)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if isinstance(error, MemoryError):
            raise not_enough_memory(self.job.shard, self.tally, error) from error

    def batches(self) -> Iterator[DocumentBatch]:
        """Yield what is read, batch by batch; some hold no document.

        Raises:
            SourceError: input that cannot be read, or bad documents as `on_bad_input` and `max_bad` say.
        """
        job, hooks = self.job, self._hooks
        reports = Reports(self.tally, hooks.report)
        hooks.at(start_of(job.shard))
        batches = self._read()
        for batch in batches:
            require_folder(job.output)
            self.lane.start()  # the batch before, while this one is encoded
            self.log.add(batch.drops)
            refuse_faults(job.shard, job.options, self.tally, self.log.first, batches)
            if batch.texts:
                hooks.at(place_of(batch, job.shard))
            yield batch
            if place := place_after(batch, job.shard):
                hooks.at(place)
            reports.tell()
        hooks.report(self.tally)

    def finish(self) -> None:
        """Wait for the lane, and compare what was read with what a list of fetched files says.

        Raises:
            DamagedFileError: it is something else.
        """
        self.lane.drain()
        for file in () if self.job.shard.cut else self.job.shard.files:
            check_promise(file, self._hashes.hex(file))

    @property
    def sources(self) -> tuple[SourceEntry, ...]:
        """What was read of each file."""
        return tuple(self._source(number) for number in range(len(self.job.shard.files)))

    def _read(self) -> Iterator[DocumentBatch]:
        job = self.job
        batches = wanted_batches(
            job.shard, job.options, most=job.most, duplicates=job.duplicates, observe=self._observe
        )
        for batch in batches:
            self.tally.add(batch)
            if job.shard.files[0].given is not None:
                self._observe(job.shard.files[0], framed(batch.texts))
            yield batch

    def _observe(self, file: SourceFile, data: bytes) -> None:
        self.lane.call(self._hashes.update, file, data)

    def _source(self, number: int) -> SourceEntry:
        job, tally = self.job, self.tally
        file, cut = job.shard.files[number], job.shard.cut
        documents = tally.kept_by_file[number]
        return SourceEntry(
            path=file.label,
            size=self._hashes.size(file),
            sha256="" if cut else self._hashes.hex(file),
            # Of a cut that as many documents were wanted of as there are it is not known whether it was read to its end.
            cuts=self._hashes.cuts(file, tally.start) if cut and documents != job.most else (),
            documents=documents,
            dropped=dict(sorted(tally.drops_by_label.get(file.label, Counter()).items())),
        )


def _log(job: "ShardJob") -> Path:
    """Where documents that are not kept are listed; where the lines before are not known yet, they are still to be added."""
    cut = job.shard.cut
    known = cut is None or cut.row_base is not None
    return drop_log(job.output, job.shard.key) if known else unplaced_log(job.output, job.shard.key)
