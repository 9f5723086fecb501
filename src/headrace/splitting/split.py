"""`headrace.split(...)`: a corpus -> parts that share no text. The command's twin."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import sqrt
from pathlib import Path
from typing import Literal

from headrace.building.engine import Listener, PoolEngine, SerialEngine
from headrace.building.limits import default_workers
from headrace.building.output import TOKENIZER_FOLDER, OutputFolder, publish_corpus
from headrace.building.processes import Workers
from headrace.building.tally import Sums
from headrace.corpus import Corpus, open_corpus
from headrace.errors import BuildError, FormatError, NoDocumentsError, SplitError, TokenizerError
from headrace.events import Notice, SplitFinished, SplitPart, SplitStarted, Subscriber, ignore
from headrace.manifest import LOCAL, PRIVATE, Manifest, Split
from headrace.splitting.copying import SplitJob, SplitOutcome
from headrace.splitting.place import Part, begin, finish, give_up, look_at, record_of, refuse_corpus
from headrace.splitting.request import Fractions, SplitRequest
from headrace.storage.atomic import write_bytes
from headrace.storage.compression import parse_compression
from headrace.tokenizers.load import load_from_corpus

__all__ = ["split"]

_WORTH_BYTES = 1 << 27
"""Of tokens, for which one more process is worth its start."""
_FEW = 4
_FAR = 0.5
"""A part that is so many standard deviations below what was asked for, and has less than this share of it, is small."""


def split(
    corpus: str | os.PathLike[str],
    output: str | os.PathLike[str],
    fractions: Fractions,
    *,
    rest: str | None = None,
    seed: int = 0,
    by: Literal["auto", "text", "tokens"] = "auto",
    workers: int | None = None,
    compression: str | None = None,
    on_event: Subscriber = ignore,
) -> SplitFinished:
    """Split a corpus into parts that share no text, each a corpus in a folder of its own: `output/val`, `output/train`.

    Where a document goes depends on the seed and its own content alone: so equal documents go together, and a corpus that
    has grown gives each of its old documents to the part that it was in. Documents keep their order, their shards' names,
    and what is known of their sources. The corpus stays as it is; every byte that is read of it is verified. Nothing opens
    before it is whole. What an earlier run of the same command has published is checked and kept.

    Args:
        corpus: its folder, or its `shards.json`.
        output: the folder of the parts; no corpus.
        fractions: names of parts and how much of the documents each gets, about: `{"val": 0.001}`. Above 0, and 1 in all at
            most; taken as the decimals that they are written as. They share the hashes in this order.
        rest: name of the part that has all other documents, by default `train`; there is none if the fractions are 1 in all.
        seed: another one gives other parts: an integer from 0 to 2**63 - 1.
        by: of what a document's hash is: its `text`, where the corpus stores hashes of texts, or its `tokens` without the
            boundary. `auto` is `text` where it can be.
        workers: processes, no more than there are shards; by default as for `headrace.build`, and fewer for a small corpus.
            The parts do not depend on it.
        compression: of the parts' tokens, as for `headrace.build`; by default as they are in the corpus.
        on_event: receives progress.

    Returns:
        The closing report.

    Raises:
        SplitError: (a ValueError) parts, fractions or a seed that make no split, or not of this corpus.
        OutputExistsError: the output holds something else, which is named, or another split is at work in it.
        MissingShardError, ManifestError, CorruptShardError, UnreadableShardError: the corpus cannot be read, or is damaged.
        NoDocumentsError: (a LookupError) the corpus stores no document index.
        FormatError: one HDF5 file, which is no corpus.
        BuildError: the disk is full, or the output cannot be written; nothing was published.
    """
    started = time.monotonic()
    request = SplitRequest.of(fractions, rest=rest, seed=seed)
    if not os.fspath(output):
        raise BuildError("the output is an empty path; wanted a folder")
    given = None if compression is None else str(parse_compression(compression))
    place = Path(output).absolute()
    with open_corpus(corpus, io="pread") as source:
        record = _record(source, request, by)
        refuse_corpus(place)
        with OutputFolder(place, of="split") as folder:
            wanted = record_of(record, given or source.manifest.options.get("compression", "none"))
            parts = look_at(folder.path, request, wanted, source.path.parent, on_event=on_event)
            todo = [part for part in parts if not part.whole]
            begin(folder.path, todo, wanted)
            try:
                if todo:
                    _require_room(source, todo, folder.path, given)
                    _make(source, parts, record, given, workers=workers, lock=folder.lock, on_event=on_event)
            except BaseException:
                give_up(folder.path, todo)
                raise
            finish(folder.path)
    if not todo:
        on_event(Notice(kind="resumed", message="the parts of this split are there already; their bytes were checked"))
    _tell_small(parts, source.manifest, on_event)
    report = _report(str(output), record, parts, kept=len(parts) - len(todo), seconds=time.monotonic() - started)
    on_event(report)
    return report


def _record(source: Corpus, request: SplitRequest, by: Literal["auto", "text", "tokens"]) -> Split:
    """What the parts will say of their origin; without the name of the part."""
    manifest = source.manifest
    if source.path.suffix != ".json":
        raise FormatError(
            f"{source.path}: is one HDF5 file; wanted a corpus with its shards.json, as `headrace build` makes it"
        )
    if manifest.version == 1:
        raise NoDocumentsError(
            f"{source.path}: is of version 1, which stores no document index; build it again to split it"
        )
    if any(earlier.seed == request.seed for earlier in manifest.splits):
        raise SplitError(
            f"{source.path}: is a part of a split by seed {request.seed}: by the same one, its parts would not be of the "
            "sizes that are asked for; give another --seed"
        )
    if by not in {"auto", "text", "tokens"}:
        raise SplitError(f"by is 'auto', 'text' or 'tokens', not {by!r}")
    if by == "text":
        raise SplitError(f"{source.path}: stores no hashes of texts; split it by tokens")
    return Split(
        base=source.fingerprint.hex,
        part="",
        seed=request.seed,
        by="tokens",
        fractions=request.fractions,
        rest=request.rest,
        appends=manifest.appends,
    )


def _require_room(source: Corpus, todo: Sequence[Part], folder: Path, compression: str | None) -> None:
    """Stop before hours of copying onto a disk that is too small, where that can be told."""
    compressed = compression or source.manifest.options.get("compression", "none")
    if compressed != "none" or any(part.published for part in todo):
        return
    needed = int(source.token_count * source.dtype.itemsize * sum((part.share for part in todo), Fraction(0)))
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if needed > free:
        raise BuildError(
            f"{folder}: the disk will not hold the parts: they need {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free; "
            "make room, split elsewhere, or give --compression"
        )


def _make(
    source: Corpus,
    parts: Sequence[Part],
    record: Split,
    compression: str | None,
    *,
    workers: int | None,
    lock: int,
    on_event: Subscriber,
) -> None:
    """Copy all documents of the parts that are not there; then publish these."""
    tokenizer = _tokenizer_files(source)
    jobs = list(_jobs(source, parts, record, compression))
    for outcome in _run(jobs, parts, workers=workers, lock=lock, on_event=on_event):
        for part, copied in zip(parts, outcome.copied, strict=True):
            if copied is not None:
                part.copied.append(copied)
    local = source.path.parent / PRIVATE / LOCAL
    for part in parts:
        if part.whole:
            continue
        part.manifest = _manifest(source.manifest, part, replace(record, part=part.name), compression)
        if local.is_file():
            (part.folder / PRIVATE).mkdir(exist_ok=True)
            write_bytes(part.folder / PRIVATE / LOCAL, local.read_bytes())
        publish_corpus(part.folder, part.manifest, [copied.extents for copied in part.copied], tokenizer)


def _jobs(source: Corpus, parts: Sequence[Part], record: Split, compression: str | None) -> Iterator[SplitJob]:
    manifest = source.manifest
    for number, entry in enumerate(source.entries):
        if entry.document_count or entry.token_count:
            yield SplitJob(
                number=number,
                entry=entry,
                folders=tuple(None if part.whole else part.folder for part in parts),
                seed=record.seed,
                fractions=tuple(Fraction(text) for _, text in record.fractions),
                by=record.by,
                compression=compression,
                chunk_size=manifest.chunk_size,
                vocab_size=manifest.vocab_size,
                boundary_token_id=manifest.boundary_token_id,
                tokenizer_sha256=manifest.tokenizer.sha256 if manifest.tokenizer else "",
            )


def _run(
    jobs: Sequence[SplitJob], parts: Sequence[Part], *, workers: int | None, lock: int, on_event: Subscriber
) -> list[SplitOutcome]:
    """What became of each shard, in order."""
    size = sum(job.shard.size for job in jobs)
    most = default_workers() if workers is None else workers
    count = max(min(most, len(jobs), most if workers else 1 + size // _WORTH_BYTES), 1)
    on_event(
        SplitStarted(
            output=str(parts[0].folder.parent),
            parts=tuple(part.name for part in parts if not part.whole),
            shards=len(jobs),
            input_bytes=size,
            workers=count,
        )
    )
    sums = Sums()
    outcomes: list[SplitOutcome] = []
    listener = Listener(
        progress=lambda key, counts: on_event(sums.add(key, counts)),
        outcome=outcomes.append,
        retry=lambda message: on_event(Notice(kind="retried", message=message)),
    )
    if count == 1:
        SerialEngine(None).run(jobs, listener)
    else:
        with Workers((lock,)) as processes:
            PoolEngine(None, count, workers=processes).run(jobs, listener)
    return sorted(outcomes, key=lambda outcome: outcome.number)


def _tokenizer_files(source: Corpus) -> dict[str, bytes]:
    """The copy of the tokenizer, which must be the corpus' own; nothing where there is none.

    Raises:
        TokenizerError: it is not what it says, or another one.
    """
    ref, folder = source.manifest.tokenizer, source.path.parent
    if ref is None or not (folder / TOKENIZER_FOLDER).exists():
        return {}
    tokenizer = load_from_corpus(folder)
    if tokenizer.ref != ref:
        raise TokenizerError(
            f"{folder / TOKENIZER_FOLDER}: is {tokenizer.ref.name!r} with sha256 {tokenizer.ref.sha256}, but the corpus was "
            f"written by {ref.name!r} with {ref.sha256}; see `headrace verify`"
        )
    return tokenizer.files()


def _manifest(whole: Manifest, part: Part, record: Split, compression: str | None) -> Manifest:
    """The manifest of a part whose shards are there."""
    entries = [copied.entry for copied in part.copied]
    starts = accumulate((entry.token_count for entry in entries), initial=0)
    documents = sum((copied.documents for copied in part.copied), Counter[int]())
    sources = (replace(source, documents=documents[number]) for number, source in enumerate(whole.sources))
    return replace(
        whole,
        shards=tuple(replace(entry, global_start=start) for entry, start in zip(entries, starts, strict=False)),
        options=whole.options if compression is None else {**whole.options, "compression": compression},
        sources=tuple(sources),
        appends=(),
        splits=(*whole.splits, record),
    )


def _tell_small(parts: Sequence[Part], whole: Manifest, on_event: Subscriber) -> None:
    """Say which parts have no document, or far fewer than were asked for."""
    total = whole.total_documents
    for part in parts:
        found = part.manifest.total_documents if part.manifest else 0
        share = float(part.share)
        wanted = total * share
        if not found or found < min(wanted - _FEW * sqrt(wanted * (1 - share)), wanted * _FAR):
            message = (
                f"{part.name} has {found:,} of {total:,} documents, where {wanted:,.1f} were to be expected; documents go by "
                "the hash of their content, so a part of a small corpus, or of one with many equal documents, can be empty"
            )
            on_event(Notice(kind="small", message=message))


def _report(output: str, record: Split, parts: Sequence[Part], *, kept: int, seconds: float) -> SplitFinished:
    asked = dict(record.fractions)
    made = [(part, part.manifest) for part in parts if part.manifest is not None]
    return SplitFinished(
        output=output,
        base=record.base,
        seed=record.seed,
        by=record.by,
        parts=tuple(
            SplitPart(
                name=part.name,
                path=str(Path(output) / part.name),
                fingerprint=manifest.fingerprint.hex,
                fraction=asked.get(part.name, ""),
                documents=manifest.total_documents,
                tokens=manifest.total_tokens,
                shards=len(manifest.shards),
            )
            for part, manifest in made
        ),
        kept=kept,
        seconds=seconds,
    )
