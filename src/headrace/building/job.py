"""One source shard, from its files to published HDF5 shards: the unit of work of a build."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from headrace.building.cutting import JobCuts
from headrace.building.duplicates import Duplicates
from headrace.building.intake import Intake
from headrace.building.outflow import Outflow
from headrace.building.output import remove_attempt
from headrace.building.place import Place
from headrace.building.rolling import ignore
from headrace.building.tally import Tally
from headrace.in_progress import Key, OpenShard
from headrace.manifest import ShardEntry, SourceEntry, Store
from headrace.sources import Drop, SourceShard
from headrace.sources.chat import ChatTemplate
from headrace.sources.field import Field, Ids
from headrace.sources.files import CUT_BYTES
from headrace.storage.extents import ShardExtents
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["PART_BYTES", "ContentOptions", "Hooks", "Job", "ShardJob", "ShardOutcome", "outcome_of", "run_job"]

PART_BYTES = 1 << 27
"""Of the documents in a part of a random order; a worker holds one. A constant of the format; tests set it."""
Outcome_co = TypeVar("Outcome_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentOptions:
    """What decides the bytes of a corpus besides its inputs and its tokenizer."""

    boundary_token_id: int
    text_field: str = "text"
    ids_field: str | None = None
    """Where documents are lists of ids, and ..."""
    ids: Ids | None = None
    """... which ids they may hold."""
    text_split: str = "none"
    """Where text files are cut; the reading goes by what `discover` wrote into each."""
    bos_token_id: int | None = None
    chunk_tokens: int = 65536
    shard_tokens: int | None = None
    max_document_tokens: int | None = None
    on_bad_input: str = "error"
    max_bad: float = 0.01
    keep_empty: bool = False
    compression: str = "none"
    store: Store = "hdf5"
    """What the shards are files of."""
    id_field: str | None = None
    """Where documents have ids that are kept."""
    dedup: str = "none"
    """`exact`: of documents with one text the first is kept; and the hashes of texts are stored."""
    prompt_field: str | None = None
    """Where documents are a prompt and ..."""
    response_field: str | None = None
    """... a response, which alone counts in the loss."""
    chat_field: str | None = None
    """Where documents are conversations, likewise ..."""
    tools_field: str | None = None
    """... the tools that they are offered, and ..."""
    chat: ChatTemplate | None = None
    """... what makes texts of them."""
    max_documents: int | None = None
    """Of the whole build; each job is told its part."""
    sample_seed: int | None = None
    """Of the order of documents; None for that of the sources."""
    cut_bytes: int = CUT_BYTES
    """Where large files are cut; `discover` has to know it, too."""
    part_bytes: int = PART_BYTES
    """How large the parts of such an order are, as `spill.cost_of` counts."""

    @property
    def field(self) -> Field:
        """What is read of each row."""
        return Field.of(
            text_field=self.text_field,
            ids_field=self.ids_field,
            id_field=self.id_field,
            prompt_field=self.prompt_field,
            response_field=self.response_field,
            chat_field=self.chat_field,
            tools_field=self.tools_field,
            ids=self.ids,
            chat=self.chat,
        )

    @property
    def loss_mask(self) -> bool:
        """Whether documents say which of their tokens count in the loss."""
        return self.prompt_field is not None or self.chat_field is not None


class Job(Protocol[Outcome_co]):
    """What an engine lets a worker do with a source shard. Picklable."""

    @property
    def shard(self) -> SourceShard:
        """The source shard."""
        ...

    def run(self, tokenizer: BatchTokenizer | None, hooks: "Hooks") -> Outcome_co:
        """Do it, and return what became of it, picklable too.

        Args:
            tokenizer: the build's; None where the engine has none.
            hooks: what to call meanwhile.

        Raises:
            HeadraceError, OSError: the build has to end.
        """
        ...

    def undo(self) -> None:
        """Remove what a process has left that died of it.

        Raises:
            BuildError: it cannot be removed.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """What a worker is told."""

    shard: SourceShard
    source: int
    """Place of the shard's first file among all files of the build."""
    options: ContentOptions
    output: Path
    own_thread: bool = True
    """Whether there is a core for a second thread."""
    most: int | None = None
    """Documents kept at most: those behind the last of them are not read. None for all."""
    duplicates: Duplicates | None = None
    """What is left out, where duplicates are."""

    def run(self, tokenizer: BatchTokenizer | None, hooks: "Hooks") -> "ShardOutcome":
        """See `Job.run`."""
        assert tokenizer is not None  # noqa: S101  # engines that build have one
        return run_job(self, tokenizer, hooks)

    def undo(self) -> None:
        """See `Job.undo`."""
        remove_attempt(self.output, self.shard.key, alone=self.shard.cut is not None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardOutcome:
    """What became of a source shard."""

    index: int
    entries: tuple[ShardEntry, ...]
    sources: tuple[SourceEntry, ...]
    """Of a cut, what was read of its file."""
    documents_in: int
    replaced: int
    cut_tokens: int
    text_bytes: int
    drops: tuple[Drop, ...]
    """The first few bad ones; all that were not kept are listed in a file."""
    most: int | None = None
    """As the job was told."""
    extents: tuple[ShardExtents, ...] = ()
    cut: int = 0
    """Number of the cut, of ..."""
    cuts: int = 1
    """... so many that its file has, where these are read side by side."""
    rows: int = 0
    """Lines of such a cut, by which those of the cuts behind it come later in the file than their readers count."""
    duplicates: str = ""
    """Which documents were left out as duplicates, and for which: `Duplicates.sha256`; empty where none were looked for."""

    @property
    def key(self) -> Key:
        """Of the source shard."""
        return self.index, self.cut

    @property
    def input_bytes(self) -> int:
        """Bytes on disk that were read."""
        if self.cuts == 1:
            return sum(source.size for source in self.sources)
        return sum(cut.stop - cut.start for source in self.sources for cut in source.cuts)

    @property
    def documents(self) -> int:
        """Documents kept."""
        return sum(source.documents for source in self.sources)

    @property
    def ended_early(self) -> bool:
        """Whether as many were kept as were wanted, so that what lies behind them is not known."""
        return self.documents == self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is called while a job runs."""

    report: Callable[[Tally], None] = ignore
    """Receives the running counts, ten times a second at most, and at the end."""
    opened: Callable[[OpenShard], None] = ignore
    """Is told of each shard that is begun, once others can follow it, on another thread."""
    at: Callable[[Place], None] = ignore
    """Receives where the job is, before that is read or encoded: twice a batch."""


_NO_HOOKS = Hooks()


def run_job(job: ShardJob, tokenizer: BatchTokenizer, hooks: Hooks = _NO_HOOKS) -> ShardOutcome:
    """Read, encode and write one source shard.

    Args:
        job: what to do.
        tokenizer: the build's.
        hooks: what to call meanwhile.

    Raises:
        SourceError: input that cannot be read, or bad documents as `on_bad_input` and `max_bad` say.
        BuildError: there is not enough memory or disk.
    """
    intake = Intake(job, hooks)
    cuts = JobCuts(job.shard.key, hooks.opened)
    outflow = Outflow(
        job.options,
        tokenizer,
        job.output,
        [file.label for file in job.shard.files],
        lane=intake.lane,
        name=cuts.name,
        opened=cuts.opened,
    )
    with outflow, intake:
        _fill(intake, outflow, cuts)
        intake.finish()
        entries, extents = outflow.finish(job.source)
    return outcome_of(intake, entries, extents)


def _fill(intake: Intake, outflow: Outflow, cuts: JobCuts) -> None:
    cut = intake.job.shard.key[1], 0
    for batch in intake.batches():
        if (batch.cut, batch.row_base) != cut:
            cut = batch.cut, batch.row_base
            intake.lane.call(cuts.begin, outflow.shards, *cut)
        if batch.texts:
            encoded = outflow.add(batch)
            intake.tally.tokens += len(encoded.tokens)
            intake.tally.cut_tokens += encoded.cut_tokens


def outcome_of(
    intake: Intake, entries: tuple[ShardEntry, ...] = (), extents: tuple[ShardExtents, ...] = ()
) -> ShardOutcome:
    """What became of a source shard that was read to its end.

    Args:
        intake: by which it was read.
        entries: the shards that hold what was read.
        extents: of each of them.
    """
    job, tally = intake.job, intake.tally
    return ShardOutcome(
        index=job.shard.index,
        entries=entries,
        extents=extents,
        sources=intake.sources,
        documents_in=tally.documents_in,
        replaced=tally.replaced,
        cut_tokens=tally.cut_tokens,
        text_bytes=tally.text_bytes,
        drops=tuple(intake.log.first),
        most=job.most,
        cut=job.shard.key[1],
        cuts=job.shard.cuts,
        rows=tally.rows if job.shard.cut else 0,
        duplicates=job.duplicates.sha256 if job.duplicates else "",
    )
