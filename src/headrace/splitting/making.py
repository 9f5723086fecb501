"""The making of the parts: run the jobs, then publish."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

from headrace.building.engine import Listener, PoolEngine, SerialEngine
from headrace.building.limits import default_workers
from headrace.building.output import DROPPED, TOKENIZER_FOLDER, publish_corpus
from headrace.building.processes import Workers
from headrace.building.tally import Sums
from headrace.corpus import Corpus
from headrace.errors import TokenizerError
from headrace.events import Notice, SplitStarted, Subscriber
from headrace.manifest import LOCAL, PRIVATE, Manifest, Split
from headrace.splitting.copying import SplitJob, SplitOutcome
from headrace.splitting.place import Part
from headrace.storage.atomic import write_bytes
from headrace.tokenizers.load import load_from_corpus

__all__ = ["make"]

_WORTH_BYTES = 1 << 27
"""Of tokens, for which one more process is worth its start."""


def make(
    source: Corpus,
    parts: Sequence[Part],
    record: Split,
    compression: str | None,
    *,
    workers: int | None,
    lock: int,
    on_event: Subscriber,
) -> None:
    """Copy all documents of the parts that are not whole; then publish these, and set their `manifest`.

    Args:
        source: the corpus.
        parts: in order; their folders are there.
        record: what the parts say of their origin.
        compression: of the parts; None for that of each shard.
        workers: processes at most; None for what is worth it.
        lock: descriptor of the output's lock.
        on_event: receives progress.
    """
    tokenizer = _tokenizer_files(source)
    jobs = list(_jobs(source, parts, record, compression))
    for outcome in _run(jobs, parts, workers=workers, lock=lock, on_event=on_event):
        for part, copied in zip(parts, outcome.copied, strict=True):
            if copied is not None:
                part.copied.append(copied)
    for part in parts:
        if part.whole:
            continue
        part.manifest = _manifest(source.manifest, part, replace(record, part=part.name), compression)
        _copy_private(source.path.parent, part.folder)
        if part.manifest.store == "lance":
            from headrace.storage.lance_versions import commit  # noqa: PLC0415  # an extra

            part.manifest = replace(part.manifest, lance=commit(part.folder, part.manifest, part.published))
        publish_corpus(part.folder, part.manifest, [copied.extents for copied in part.copied], tokenizer)


def _copy_private(whole: Path, part: Path) -> None:
    """Copy where the sources are, and which of their documents were not kept: a part counts these as the corpus does."""
    local, dropped = whole / PRIVATE / LOCAL, whole / DROPPED
    if local.is_file():
        (part / PRIVATE).mkdir(exist_ok=True)
        write_bytes(part / PRIVATE / LOCAL, local.read_bytes())
    if dropped.is_dir():
        shutil.copytree(dropped, part / DROPPED, dirs_exist_ok=True)


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
