"""The check of a build's tokenizer against its reference implementation."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Self

from headrace.errors import SourceError
from headrace.sources import BadInput, SourceFile, SourceShard, read_shard
from headrace.sources.compressed import open_stream
from headrace.sources.field import Field, as_field
from headrace.sources.given import sample_of
from headrace.sources.lines import LineFault, LineParser
from headrace.sources.utf8 import BOM
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["SAMPLE_BYTES", "ReferenceCheck", "sample_texts"]

SAMPLE_BYTES = 256 * 1024
"""Text that is compared, at most."""
_SAMPLED_SOURCES = 16
_LEAST_READ = 128 * 1024
"""Bytes read of a file at most are twice what it is to give, or this many: one long document is not read whole."""
_PIECE = 64 * 1024
_MANY_LINES = 20


def sample_texts(shards: Sequence[SourceShard], text_field: str | Field) -> Iterator[bytes]:
    """Up to 256 KiB of text, spread over the sources, for the check of the tokenizer.

    What is bad or damaged is passed over: the build itself reports it. Of a source that begins with a longer line, that
    line is given as it lies there, for any text will do. Where the documents are ids, there is nothing to check, nor where
    they are conversations, which the reference itself encodes.
    """
    field = as_field(text_field)
    if field.ids is not None or field.chat is not None:
        return
    shards = [shard for shard in shards if shard.key[1] == 0]  # files are read from their start
    count = min(len(shards), _SAMPLED_SOURCES)
    for number in range(count):
        yield from _texts_of(shards[number * len(shards) // count], field, SAMPLE_BYTES // count)


def _texts_of(shard: SourceShard, field: Field, room: int) -> Iterator[bytes]:
    for file in shard.files[:_SAMPLED_SOURCES]:
        for text in _documents(file, field, max(2 * room, _LEAST_READ)):
            cut = text[:room].decode(errors="ignore").encode()
            room -= len(text)
            if cut:
                yield cut
            if room <= 0:
                return


def _documents(file: SourceFile, field: Field, limit: int) -> Iterator[bytes]:
    if file.given is not None:
        yield from sample_of(file, field)
        return
    if file.kind in {"jsonl", "text"}:
        yield from _lines(file, field, limit)
        return
    with suppress(SourceError):
        for batch in read_shard(SourceShard(0, (file,)), text_field=field):
            yield from (text for document in batch.texts for text in field.samples(document))
            limit -= batch.consumed
            if limit <= 0:
                return


def _lines(file: SourceFile, field: Field, limit: int) -> Iterator[bytes]:
    parser = LineParser(field, BadInput.SKIP, keep_empty=False)
    rest, read, given = b"", 0, 0
    with suppress(SourceError), open_stream(file, buffer_bytes=_PIECE) as stream:
        while read < limit and (piece := stream.read(_PIECE)):
            piece = piece if read else piece.removeprefix(BOM)
            read += len(piece)
            if file.kind == "text":
                yield piece
                continue
            *lines, rest = (rest + piece).split(b"\n")
            texts = [found for line in lines if not isinstance(found := parser.parse(line)[0], LineFault)]
            yield from (text for document in texts for text in field.samples(document))
            given += len(texts)
            if len(lines) > _MANY_LINES and 2 * len(texts) < len(lines):  # the build is about to say so
                return
    last = parser.parse(rest)[0]
    if not isinstance(last, LineFault):
        yield from field.samples(last)
    elif not given and read >= limit:
        yield rest


class ReferenceCheck:
    """Compares a sample with the tokenizer's reference while the build goes on; it is stopped if they disagree.

    Loading the reference takes as long as building 20 MB; it is done in a process of its own.
    """

    def __init__(self, tokenizer: BatchTokenizer, sample: list[bytes]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(tokenizer.check, sample)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)

    def poll(self) -> None:
        """Raise what the comparison found, if it is done."""
        if self._done.done():
            self._done.result()

    def finish(self) -> None:
        """Wait for it, and raise what it found."""
        self._done.result()
