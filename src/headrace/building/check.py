"""The check of a build's tokenizer against its reference implementation."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from headrace.errors import SourceError
from headrace.sources import SourceShard, read_shard
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["SAMPLE_BYTES", "ReferenceCheck", "sample_texts"]

SAMPLE_BYTES = 256 * 1024
"""Text that is compared, at most."""
_SAMPLED_SOURCES = 16


def sample_texts(shards: Sequence[SourceShard], text_field: str) -> Iterator[bytes]:
    """Up to 256 KiB of text, spread over the sources, for the check of the tokenizer."""
    step = max(len(shards) // _SAMPLED_SOURCES, 1)
    chosen = shards[::step][:_SAMPLED_SOURCES]
    each = SAMPLE_BYTES // max(len(chosen), 1)
    for shard in chosen:
        room = each
        # A damaged source is reported by the build itself, with its place among the others.
        try:
            batch = next(read_shard(shard, text_field=text_field, on_bad_input="skip"), None)
        except SourceError:
            continue
        for text in batch.texts if batch else ():
            if room <= 0:
                break
            yield text if len(text) <= room else text[:room].decode("utf-8", "ignore").encode()
            room -= len(text)


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
