"""The jobs of a build that puts its documents in a random order: read a source shard; write a part of the order."""

from dataclasses import dataclass, replace
from pathlib import Path

from headrace.building.cutting import JobCuts
from headrace.building.intake import Intake
from headrace.building.job import ContentOptions, Hooks, ShardJob, ShardOutcome, outcome_of
from headrace.building.lane import Lane
from headrace.building.outflow import LARGE_BATCH, Outflow
from headrace.building.output import remove_attempt
from headrace.building.place import Place
from headrace.building.rolling import require_folder
from headrace.building.spill import Spill
from headrace.building.spilled import KEYS, Spilled, read_documents
from headrace.building.tally import Reports, Tally
from headrace.building.text_hashes import text_hashes
from headrace.building.wanted import not_enough_memory
from headrace.errors import BuildError
from headrace.in_progress import Key
from headrace.sources import DocumentBatch, SourceFile, SourceShard
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["PartJob", "Read", "ReadJob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What became of a source shard whose documents were read and spilled."""

    outcome: ShardOutcome
    """Without shards."""
    runs: tuple[tuple[str, int], ...]
    """Names of its runs, and how many documents each holds."""
    cost: int
    """See `spill.cost_of`."""
    text_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadJob:
    """Reads a source shard, and spills its documents: see `building.job.Job`."""

    job: ShardJob
    """How it is read."""
    folder: Path
    """For the runs."""
    seed: int
    place: Key
    """Of the source shard among those of the build, by which the keys of its documents are made."""
    most: int | None
    """Documents wanted of the whole build."""

    @property
    def shard(self) -> SourceShard:
        """The source shard."""
        return self.job.shard

    def run(self, tokenizer: BatchTokenizer | None, hooks: Hooks) -> Read:  # noqa: ARG002  # nothing is encoded
        """See `Job.run`."""
        intake = Intake(self.job, hooks)
        spill = Spill(self._stem, self.seed, self.place, most=self.most)
        with intake:
            for batch in intake.batches():
                if sum(map(len, batch.texts)) > LARGE_BATCH:
                    intake.lane.drain()
                intake.lane.call(spill.add, batch)
            intake.lane.call(spill.flush)
            intake.finish()
        outcome = outcome_of(intake)
        return Read(
            outcome=replace(outcome, replaced=0, text_bytes=0),  # counted of what is kept
            runs=tuple((spill.path(number).name, count) for number, count in enumerate(spill.runs)),
            cost=spill.cost,
            text_bytes=outcome.text_bytes,
        )

    def undo(self) -> None:
        """See `Job.undo`."""
        try:
            for path in self.folder.glob(f"{self._stem.name}-*.run"):
                path.unlink()
        except OSError as error:
            raise BuildError(f"{self.folder}: cannot be written: {error.strerror}") from error

    @property
    def _stem(self) -> Path:
        index, cut = self.shard.key
        return self.folder / f"{index:06d}-{cut:04d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartJob:
    """Writes the documents of a range of keys: see `building.job.Job`."""

    number: int
    """Of the part, of ..."""
    parts: int
    """... so many, into which all keys are cut."""
    index: int
    """Of its shards, in place of a source shard's."""
    source: int
    """Place of the build's first file among all files of the corpus."""
    cost: int
    """Of its documents, roughly."""
    folder: Path
    """Of the runs."""
    options: ContentOptions
    output: Path
    own_thread: bool = True

    @property
    def shard(self) -> SourceShard:
        """What stands for a source shard."""
        label = f"part {self.number + 1} of the shuffled documents"
        return SourceShard(self.index, (SourceFile(self.folder, label, self.cost, "spilled", None),))

    def run(self, tokenizer: BatchTokenizer | None, hooks: Hooks) -> ShardOutcome:
        """See `Job.run`."""
        assert tokenizer is not None  # noqa: S101  # engines that build have one
        tally = Tally(self.options.field)
        try:
            return self._run(tokenizer, hooks, tally)
        except MemoryError as error:
            raise not_enough_memory(self.shard, tally, error) from error

    def undo(self) -> None:
        """See `Job.undo`."""
        remove_attempt(self.output, self.shard.key)

    def _run(self, tokenizer: BatchTokenizer, hooks: Hooks, tally: Tally) -> ShardOutcome:
        spilled = Spilled.load(self.folder)
        low, high = (-(-number * KEYS // self.parts) for number in (self.number, self.number + 1))
        documents = read_documents(self.folder, spilled.entries, low, high)
        first, last = (int(documents.files.min()), int(documents.files.max())) if len(documents) else (0, 0)
        labels = spilled.labels[first : last + 1]
        lane = Lane(own_thread=self.own_thread)
        cuts = JobCuts(self.shard.key, hooks.opened)
        outflow = Outflow(self.options, tokenizer, self.output, labels, lane=lane, name=cuts.name, opened=cuts.opened)
        reports = Reports(tally, hooks.report)
        with outflow, lane:
            for batch in documents.batches(first, ids=self.options.id_field is not None):
                require_folder(self.output)
                lane.start()
                hooks.at(self._place(batch, labels))
                tally.add(batch)
                if self.options.dedup != "none":
                    batch.hashes = text_hashes(batch.texts)
                encoded = outflow.add(batch)
                tally.tokens += len(encoded.tokens)
                tally.cut_tokens += encoded.cut_tokens
                reports.tell()
            hooks.report(tally)
            lane.drain()
            entries, extents = outflow.finish(self.source + first)
        return ShardOutcome(
            index=self.index,
            entries=entries,
            extents=extents,
            sources=(),
            documents_in=0,
            replaced=tally.replaced,
            cut_tokens=tally.cut_tokens,
            text_bytes=tally.text_bytes,
            drops=(),
        )

    def _place(self, batch: DocumentBatch, labels: tuple[str, ...]) -> Place:
        """A batch, in words: it may hold documents of all sources, of which the first and the last are named."""
        ends = [f"{labels[batch.files[number]]}:{batch.rows[number] + 1}" for number in (0, -1)]
        count = f"{len(batch.texts):,} documents from " if len(batch.texts) > 1 else ""
        return Place((f"{self.shard.files[0].label}, {count}{' to '.join(dict.fromkeys(ends))}",))
