"""One source shard, from its files to published HDF5 shards: the unit of work of a build."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from headrace.building.encode import DocumentEncoder
from headrace.building.pipeline import Origins, RollingShards
from headrace.errors import MAX_LISTED, Problem, SourceError
from headrace.manifest import ShardEntry, SourceEntry
from headrace.sources import BadInput, DocumentBatch, Drop, SourceFile, SourceShard, read_shard
from headrace.sources.compressed import open_stream
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import checked_layout, extents_of
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["ContentOptions", "ShardJob", "ShardOutcome", "Tally", "check_sources", "run_job"]

EMPTY = "empty"
"""The one reason for dropping a document that is no fault of the input."""
MAX_BAD_AFTER = 1000
"""Documents of a source after which the share of bad ones is judged, so that small files are not cut off."""
CHECK_BYTES = 1 << 28
"""Bytes of input read on after the first bad document, in search of more to report."""
_REPORT_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentOptions:
    """What decides the bytes of a corpus besides its inputs and its tokenizer."""

    boundary_token_id: int
    text_field: str = "text"
    bos_token_id: int | None = None
    chunk_tokens: int = 65536
    shard_tokens: int | None = None
    max_document_tokens: int | None = None
    on_bad_input: str = "error"
    max_bad: float = 0.01
    keep_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """What a worker is told."""

    shard: SourceShard
    source: int
    """Place of the shard's first file among all files of the build."""
    options: ContentOptions
    output: Path

    def shard_id(self, roll: int) -> str:
        """Name of the k-th shard, known without the other sources' counts: source, cut, roll."""
        return f"{self.shard.index:06d}-0000-{roll:04d}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardOutcome:
    """What became of a source shard."""

    index: int
    entries: tuple[ShardEntry, ...]
    extents: tuple[ShardExtents, ...]
    sources: tuple[SourceEntry, ...]
    documents_in: int
    replaced: int
    cut_tokens: int
    text_bytes: int
    drops: tuple[Drop, ...]
    """The first few that were not kept; all of them are in the sidecar."""


@dataclass(slots=True)
class Tally:
    """Running counts of one source shard."""

    input_bytes: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    documents_in: int = 0
    faults: int = 0
    """Documents dropped for another reason than being empty."""
    replaced: int = 0
    cut_tokens: int = 0
    kept_by_file: Counter[int] = field(default_factory=Counter[int])
    drops_by_label: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])

    def add(self, batch: DocumentBatch) -> None:
        """Count what a batch brought."""
        self.input_bytes += batch.consumed
        self.documents += len(batch.texts)
        self.documents_in += len(batch.texts) + len(batch.drops)
        self.text_bytes += sum(map(len, batch.texts))
        self.replaced += batch.replaced
        for number, count in enumerate(np.bincount(batch.files).tolist()):
            if count:
                self.kept_by_file[number] += count
        for drop in batch.drops:
            self.drops_by_label.setdefault(drop.path, Counter())[drop.reason] += 1
            self.faults += drop.reason != EMPTY


Report = Callable[[Tally], None]


def run_job(job: ShardJob, tokenizer: BatchTokenizer, report: Report = lambda _: None) -> ShardOutcome:
    """Read, encode and write one source shard.

    Args:
        job: what to do.
        tokenizer: the build's.
        report: receives the running counts, ten times a second at most.

    Raises:
        SourceError: input that cannot be read, or bad documents as `on_bad_input` and `max_bad` say.
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
        )

    extents: list[ShardExtents] = []
    shards = RollingShards(
        job.shard_id,
        job.output,
        create,
        shard_tokens=options.shard_tokens,
        published=lambda entry: extents.append(extents_of(checked_layout(Path(entry.path), entry))),
    )
    tally = Tally()
    try:
        with _DropLog(job) as log:
            _fill(job, encoder, shards, tally, log, report)
            shards.finish()
    except BaseException:
        shards.abandon()
        raise
    return ShardOutcome(
        index=job.shard.index,
        entries=tuple(replace(entry, path=Path(entry.path).name, source=job.source) for entry in shards.entries),
        extents=tuple(extents),
        sources=tuple(_source_entry(number, file, tally) for number, file in enumerate(job.shard.files)),
        documents_in=tally.documents_in,
        replaced=tally.replaced,
        cut_tokens=tally.cut_tokens,
        text_bytes=tally.text_bytes,
        drops=tuple(log.first),
    )


def _fill(
    job: ShardJob,
    encoder: DocumentEncoder,
    shards: RollingShards,
    tally: Tally,
    log: "_DropLog",
    report: Report,
) -> None:
    options = job.options
    told = time.monotonic()
    batches = _batches(job.shard, options, tally)
    for batch in batches:
        log.add(batch.drops)
        if tally.faults:
            if options.on_bad_input == BadInput.ERROR:
                raise _bad_documents(job.shard, log.first, batches)
            _judge(job, tally, log.first)
        if batch.texts:
            encoded = encoder.encode(batch.texts)
            shards.add(encoded, Origins(batch.rows, batch.offsets, batch.files))
            tally.tokens += len(encoded.tokens)
            tally.cut_tokens += encoded.cut_tokens
        if time.monotonic() - told >= _REPORT_SECONDS:
            report(tally)
            told = time.monotonic()
    report(tally)


def _batches(shard: SourceShard, options: ContentOptions, tally: Tally) -> Iterator[DocumentBatch]:
    for batch in read_shard(
        shard, text_field=options.text_field, on_bad_input=options.on_bad_input, keep_empty=options.keep_empty
    ):
        tally.add(batch)
        yield batch


def _judge(job: ShardJob, tally: Tally, first: list[Drop]) -> None:
    """Stop where too large a share of a source is bad: it is then more likely that the options are wrong."""
    seen, limit = tally.documents_in, job.options.max_bad
    if seen >= MAX_BAD_AFTER and tally.faults > limit * seen:
        raise SourceError(
            f"{job.shard.files[0].label}: {tally.faults} of the first {seen} documents are bad, more than the "
            f"{limit:.2%} that --max-bad allows{fields_hint(job.shard, first)}",
            problems=_problems(first),
        )


def _bad_documents(shard: SourceShard, first: list[Drop], rest: Iterator[DocumentBatch]) -> SourceError:
    """Read on for a while, so that one run reports many faults."""
    found = [drop for drop in first if drop.reason != EMPTY]
    more, cut = _look_on(rest, CHECK_BYTES)
    found += more
    return bad_documents_error(found, complete=not cut, hint=fields_hint(shard, found))


def _look_on(batches: Iterator[DocumentBatch], limit: int) -> tuple[list[Drop], bool]:
    """Faults in the next `limit` bytes, and whether reading stopped before the end."""
    found: list[Drop] = []
    consumed = 0
    for batch in batches:
        found += [drop for drop in batch.drops if drop.reason != EMPTY]
        consumed += batch.consumed
        if consumed > limit or len(found) > MAX_LISTED:
            return found, True
    return found, False


def check_sources(shards: Iterator[SourceShard], options: ContentOptions, limit: int = CHECK_BYTES) -> list[Drop]:
    """Read without encoding, for faults only, until `limit` bytes or enough of them; damaged files are passed over."""
    found: list[Drop] = []
    for shard in shards:
        try:
            more, cut = _look_on(_batches(shard, options, Tally()), limit)
        except SourceError as error:
            more, cut = [Drop(shard.files[0].label, -1, 0, error.summary)], False
        found += more
        limit -= shard.size
        if cut or limit <= 0 or len(found) > MAX_LISTED:
            break
    return found


def bad_documents_error(drops: list[Drop], *, complete: bool, hint: str = "") -> SourceError:
    """The error of a build that stops at bad documents."""
    count = f"{len(drops)}" if complete else f"at least {len(drops)}"
    return SourceError(
        f"{count} bad document{'s' * (len(drops) != 1)}; nothing was published. Mend them, or build with "
        f"--on-bad-input skip to leave them out and count them{hint}",
        problems=_problems(drops),
    )


def _problems(drops: list[Drop]) -> list[Problem]:
    return [Problem(drop.place, drop.reason + (f" (byte {drop.byte})" if drop.row >= 0 else "")) for drop in drops]


def fields_hint(shard: SourceShard, drops: list[Drop]) -> str:
    """Which fields the lines do have, where the one asked for is missing from them."""
    lacking = next((drop for drop in drops if drop.reason.startswith("no field")), None)
    if lacking is None:
        return ""
    file = next(file for file in shard.files if file.label == lacking.path)
    with open_stream(file) as stream:
        head = b""
        while len(head) < 1 << 20 and (piece := stream.read(1 << 16)):
            head += piece
    names: list[str] = []
    for line in head.split(b"\n")[:100]:
        try:
            row: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            names += [str(name) for name in row if name not in names]  # pyright: ignore[reportUnknownVariableType]
    return f"; the lines have the fields {', '.join(map(repr, names[:20]))}" if names else ""


def _source_entry(number: int, file: SourceFile, tally: Tally) -> SourceEntry:
    return SourceEntry(
        path=file.label,
        size=file.size,
        sha256=tally.hashes.hex(number),
        documents=tally.kept_by_file[number],
        dropped=dict(sorted(tally.drops_by_label.get(file.label, Counter()).items())),
    )


class _DropLog:
    """Every document that was not kept, as JSON lines in the corpus' `.headrace/dropped` folder; the first in memory."""

    def __init__(self, job: ShardJob) -> None:
        self.first: list[Drop] = []
        self._path = job.output / ".headrace" / "dropped" / f"{job.shard.index:06d}-0000.jsonl"
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, drops: list[Drop]) -> None:
        if not drops:
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        for drop in drops:
            line = None if drop.row < 0 else drop.row + 1
            row = {"file": drop.path, "line": line, "byte": drop.byte, "reason": drop.reason}
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.first += drops[: max(MAX_LISTED + 1 - len(self.first), 0)]
