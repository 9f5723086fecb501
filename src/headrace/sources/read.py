"""One entry for the readers: a source shard to batches of documents."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headrace.sources.array import read_array
from headrace.sources.arrow import read_arrow
from headrace.sources.documents import BadInput, DocumentBatch
from headrace.sources.field import Field
from headrace.sources.files import CUT_BYTES, SourceShard
from headrace.sources.given import read_given
from headrace.sources.jsonl import read_jsonl
from headrace.sources.parquet import read_parquet
from headrace.sources.rawfile import Observer
from headrace.sources.split import NO_SPLIT, read_split
from headrace.sources.text import read_text

__all__ = ["first_documents", "read_shard"]

_READERS = {"jsonl": read_jsonl, "array": read_array, "arrow": read_arrow}


def read_shard(
    shard: SourceShard,
    *,
    text_field: str | Field = "text",
    on_bad_input: BadInput | str = BadInput.ERROR,
    keep_empty: bool = False,
    observe: Observer | None = None,
    cut_bytes: int = CUT_BYTES,
) -> Iterator[DocumentBatch]:
    """Yield all documents of a source shard, in order, as batches of about 1 MiB.

    `files` of a batch indexes `shard.files`. The sum of `consumed` over all batches is `shard.size`. `observe`
    receives the files' bytes as they lie on disk. Of a file that is read from start to end, cuts begin every `cut_bytes`;
    several files in one source shard are not cut, nor is a text file that is one document.

    Raises:
        SourceError: a file ends early, is damaged or has changed since it was listed.
    """
    if shard.files[0].kind == "text" and shard.files[0].split != NO_SPLIT:
        for index, file in enumerate(shard.files):
            yield from read_split(
                file,
                on_bad_input=on_bad_input,
                keep_empty=keep_empty,
                file_index=index,
                observe=observe,
                cut_bytes=cut_bytes if len(shard.files) == 1 else None,
            )
        return
    if shard.files[0].kind == "text":
        yield from read_text(shard.files, on_bad_input=on_bad_input, keep_empty=keep_empty, observe=observe)
        return
    for index, file in enumerate(shard.files):
        options: dict[str, Any] = {
            "text_field": text_field,
            "on_bad_input": on_bad_input,
            "keep_empty": keep_empty,
            "file_index": index,
            "observe": observe,
        }
        if file.kind == "parquet":
            yield from read_parquet(file, **options, cut=shard.cut)
        elif file.kind == "given":
            yield from read_given(file, **options)
        elif shard.cut is not None:
            yield from read_jsonl(file, **options, cut=shard.cut)
        else:
            yield from _READERS[file.kind](file, **options, cut_bytes=cut_bytes)


def first_documents(batches: Iterator[DocumentBatch], shard: SourceShard, count: int) -> Iterator[DocumentBatch]:
    """Yield the batches of a source shard up to its `count`-th document, what was not kept before it included.

    What lies behind that document is not read, but for the rest of its batch, which is not told of.
    """
    for batch in batches:
        if len(batch.texts) < count:
            count -= len(batch.texts)
            yield batch
            continue
        yield _cut(batch, shard, count)
        return


def _cut(batch: DocumentBatch, shard: SourceShard, count: int) -> DocumentBatch:
    numbers = {file.label: number for number, file in enumerate(shard.files)}
    last = (int(batch.files[count - 1]), int(batch.rows[count - 1]))
    drops = [drop for drop in batch.drops if (numbers[drop.path], drop.row) < last]
    return replace(batch.select(range(count)), drops=drops)
