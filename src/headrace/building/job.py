"""One source shard, from its files to published HDF5 shards: the unit of work of a build."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from headrace.building.cutting import JobCuts, unplaced_log
from headrace.building.drop_log import DropLog
from headrace.building.duplicates import Duplicates
from headrace.building.encode import DocumentEncoder
from headrace.building.lane import Lane
from headrace.building.output import drop_log, remove_attempt
from headrace.building.place import Place, place_after, place_of, start_of
from headrace.building.rolling import Origins, RollingShards, flush_chunks, ignore, require_folder
from headrace.building.source_hashes import SourceHashes, check_promise
from headrace.building.tally import Tally
from headrace.building.wanted import not_enough_memory, refuse_faults, wanted_batches
from headrace.in_progress import Key, OpenShard
from headrace.manifest import ShardEntry, SourceEntry
from headrace.sources import DocumentBatch, Drop, SourceFile, SourceShard
from headrace.sources.chat import ChatTemplate
from headrace.sources.field import Field, Ids
from headrace.sources.files import CUT_BYTES
from headrace.sources.given import framed
from headrace.sources.rawfile import Observer
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import checked_layout, extents_of
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["REPORT_SECONDS", "ContentOptions", "Hooks", "Job", "ShardJob", "ShardOutcome", "run_job"]

Outcome_co = TypeVar("Outcome_co", covariant=True)
REPORT_SECONDS = 0.1
"""Between two reports of a job."""
_LARGE_BATCH = 1 << 24
"""UTF-8 bytes above which a batch is encoded only after all before it are written."""


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
    id_field: str | None = None
    """Where documents have ids that are kept."""
    dedup: str = "none"
    """`exact`: of documents with one text the first is kept; and the hashes of texts are stored."""
    prompt_field: str | None = None
    """Where documents are a prompt and ..."""
    response_field: str | None = None
    """... a response, which alone counts in the loss."""
    chat_field: str | None = None
    """Where documents are conversations, and ..."""
    chat: ChatTemplate | None = None
    """... what makes texts of them."""
    max_documents: int | None = None
    """Of the whole build; each job is told its part."""
    cut_bytes: int = CUT_BYTES
    """Where large files are cut; `discover` has to know it, too."""

    @property
    def field(self) -> Field:
        """What is read of each row."""
        if self.chat_field is not None:
            return Field(self.chat_field, id_name=self.id_field, chat=self.chat or ChatTemplate())
        if self.prompt_field is not None:
            return Field(self.prompt_field, id_name=self.id_field, response=self.response_field)
        if self.ids_field is None:
            return Field(self.text_field, id_name=self.id_field)
        return Field(self.ids_field, self.ids or Ids(), self.id_field)

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
    options = job.options
    encoder = DocumentEncoder(
        tokenizer,
        options.boundary_token_id,
        bos=options.bos_token_id,
        max_document_tokens=options.max_document_tokens,
    )
    labels = [file.label for file in job.shard.files]

    def create(path: Path) -> HDF5ShardWriter:
        return HDF5ShardWriter(
            path,
            options.chunk_tokens,
            vocab_size=tokenizer.vocab_size,
            boundary_token_id=options.boundary_token_id,
            tokenizer_sha256=tokenizer.ref.sha256,
            source_files=labels,
            document_ids=options.id_field is not None,
            text_hashes=job.duplicates is not None,
            loss_mask=options.loss_mask,
            compression=options.compression,
            flush_chunks=flush_chunks(options.chunk_tokens * encoder.dtype.itemsize),
        )

    extents: list[ShardExtents] = []
    cuts = JobCuts(job.shard.key, hooks.opened)
    shards = RollingShards(
        cuts.name,
        job.output,
        create,
        shard_tokens=options.shard_tokens,
        opened=cuts.opened,
        published=lambda entry: extents.append(extents_of(checked_layout(Path(entry.path), entry))),
    )
    tally = Tally(options.field)
    hashes = SourceHashes(job.shard)
    try:
        with DropLog(_log(job)) as log, Lane(own_thread=job.own_thread) as lane:
            _fill(job, encoder, shards, _Books(tally, log, hashes, lane, hooks, cuts))
            lane.drain()
            for file in () if job.shard.cut else job.shard.files:
                check_promise(file, hashes.hex(file))
            shards.finish()
    except MemoryError as error:
        shards.abandon()
        raise not_enough_memory(job.shard, tally, error) from error
    except BaseException:
        shards.abandon()
        raise
    return ShardOutcome(
        index=job.shard.index,
        entries=tuple(replace(entry, path=Path(entry.path).name, source=job.source) for entry in shards.entries),
        extents=tuple(extents),
        sources=tuple(_source_entry(job, number, tally, hashes) for number in range(len(job.shard.files))),
        documents_in=tally.documents_in,
        replaced=tally.replaced,
        cut_tokens=tally.cut_tokens,
        text_bytes=tally.text_bytes,
        drops=tuple(log.first),
        most=job.most,
        cut=job.shard.key[1],
        cuts=job.shard.cuts,
        rows=tally.rows if job.shard.cut else 0,
        duplicates=job.duplicates.sha256 if job.duplicates else "",
    )


def _log(job: ShardJob) -> Path:
    """Where documents that are not kept are listed; where the lines before are not known yet, they are still to be added."""
    cut = job.shard.cut
    known = cut is None or cut.row_base is not None
    return drop_log(job.output, job.shard.key) if known else unplaced_log(job.output, job.shard.key)


class _Books(NamedTuple):
    """Where a job's progress is kept and told."""

    tally: Tally
    log: DropLog
    hashes: SourceHashes
    lane: Lane
    """Hashes and writes while the next batch is read and encoded."""
    hooks: Hooks
    cuts: JobCuts


def _fill(job: ShardJob, encoder: DocumentEncoder, shards: RollingShards, books: _Books) -> None:
    options = job.options
    tally, log, hashes, lane, hooks, cuts = books

    def observe(file: SourceFile, data: bytes) -> None:
        lane.call(hashes.update, file, data)

    told = time.monotonic()
    cut = job.shard.key[1], 0
    hooks.at(start_of(job.shard))
    batches = _batches(job, tally, observe)
    for batch in batches:
        require_folder(job.output)
        lane.start()  # the batch before, while this one is encoded
        log.add(batch.drops)
        refuse_faults(job.shard, options, tally, log.first, batches)
        if (batch.cut, batch.row_base) != cut:
            cut = batch.cut, batch.row_base
            lane.call(cuts.begin, shards, *cut)
        if batch.texts:
            if sum(map(len, batch.texts)) > _LARGE_BATCH:
                lane.drain()  # for the memory: no tokens of large documents wait
            hooks.at(place_of(batch, job.shard))
            encoded = encoder.encode(batch.texts)
            rows = batch.rows - np.uint64(batch.row_base)
            lane.call(shards.add, encoded, Origins(rows, batch.offsets, batch.files, batch.ids, batch.hashes))
            tally.tokens += len(encoded.tokens)
            tally.cut_tokens += encoded.cut_tokens
        if place := place_after(batch, job.shard):
            hooks.at(place)
        if time.monotonic() - told >= REPORT_SECONDS:
            hooks.report(tally)
            told = time.monotonic()
    hooks.report(tally)


def _batches(job: ShardJob, tally: Tally, observe: Observer) -> Iterator[DocumentBatch]:
    for batch in wanted_batches(job.shard, job.options, most=job.most, duplicates=job.duplicates, observe=observe):
        tally.add(batch)
        if job.shard.files[0].given is not None:
            observe(job.shard.files[0], framed(batch.texts))
        yield batch


def _source_entry(job: ShardJob, number: int, tally: Tally, hashes: SourceHashes) -> SourceEntry:
    file, cut = job.shard.files[number], job.shard.cut
    documents = tally.kept_by_file[number]
    return SourceEntry(
        path=file.label,
        size=hashes.size(file),
        sha256="" if cut else hashes.hex(file),
        # Of a cut that as many documents were wanted of as there are it is not known whether it was read to its end.
        cuts=hashes.cuts(file, tally.start) if cut and documents != job.most else (),
        documents=documents,
        dropped=dict(sorted(tally.drops_by_label.get(file.label, Counter()).items())),
    )
