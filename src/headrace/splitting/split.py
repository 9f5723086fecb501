"""`headrace.split(...)`: a corpus -> parts that share no text. The command's twin."""

import os
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Literal

from headrace.building.output import OutputFolder
from headrace.corpus import Corpus, open_corpus
from headrace.errors import BuildError, FormatError, NoDocumentsError, SplitError
from headrace.events import Notice, SplitFinished, Subscriber, ignore
from headrace.manifest import By, Split
from headrace.splitting.making import make
from headrace.splitting.place import Part, begin, finish, give_up, look_at, record_of, refuse_corpus, tidy
from headrace.splitting.report import closing_report, tell_cut, tell_small
from headrace.splitting.request import Fractions, SplitRequest
from headrace.storage.compression import parse_compression
from headrace.storage.lance_names import require_lance
from headrace.storage.lance_open import is_lance

__all__ = ["split"]


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
    has grown gives each of its old documents to the part that it was in. Parts are of the corpus' own store. Documents keep their order, their shards' names,
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
        raise BuildError("the output is an empty path; wanted a folder", usage=True)
    given = None if compression is None else str(parse_compression(compression))
    place = Path(output).absolute()
    with open_corpus(corpus, io="pread") as source:
        record = _record(source, request, by)
        if source.manifest.store == "lance":
            _check_lance(source, given)
        refuse_corpus(place)
        with OutputFolder(place, of="split") as folder:
            wanted = record_of(record, given or source.manifest.options.get("compression", "none"))
            parts = look_at(folder.path, request, wanted, source.path.parent, on_event=on_event)
            todo = [part for part in parts if not part.whole]
            if todo:
                try:
                    begin(folder.path, todo, wanted)
                    _require_room(source, todo, folder.path, given)
                    make(source, parts, record, given, workers=workers, lock=folder.lock, on_event=on_event)
                except BaseException:
                    give_up(folder.path, todo)
                    raise
            tidy(parts)
            finish(folder.path)
    if not todo:
        on_event(Notice(kind="resumed", message="the parts of this split are there already; their bytes were checked"))
    tell_cut(source.manifest, record, on_event)
    tell_small(parts, source.manifest, on_event)
    report = closing_report(str(output), record, parts, kept=len(parts) - len(todo), seconds=time.monotonic() - started)
    on_event(report)
    return report


def _record(source: Corpus, request: SplitRequest, by: Literal["auto", "text", "tokens"]) -> Split:
    """What the parts will say of their origin; without the name of the part."""
    manifest = source.manifest
    if source.path.suffix != ".json":
        kind = "a Lance data set" if is_lance(source.path) else "one HDF5 file"
        raise FormatError(
            f"{source.path}: is {kind}; wanted a corpus with its shards.json, as `headrace build` makes it"
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
    return Split(
        base=source.fingerprint.hex,
        part="",
        seed=request.seed,
        by=_hashed(source, by),
        fractions=request.fractions,
        rest=request.rest,
        appends=manifest.appends,
    )


def _check_lance(source: Corpus, compression: str | None) -> None:
    if compression not in {None, "none"}:
        raise SplitError(
            f"{source.path}: is a Lance corpus, whose parts are not compressed either; leave compression out"
        )
    require_lance(f"{source.path}: to split a Lance corpus")


def _hashed(source: Corpus, by: Literal["auto", "text", "tokens"]) -> By:
    """Of what the hashes are: of texts only if all shards have those."""
    from headrace.storage.stores import stores_text_hashes  # noqa: PLC0415

    if by == "tokens":
        return by
    if by not in {"auto", "text"}:
        raise SplitError(f"by is 'auto', 'text' or 'tokens', not {by!r}", usage=True)
    for entry in source.entries:
        if entry.document_count and not stores_text_hashes(Path(entry.path)):
            if by == "auto":
                return "tokens"
            raise SplitError(
                f"{entry.path}: stores no hashes of texts, as `headrace build --dedup exact` does; split the corpus by tokens"
            )
    return "text"


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
