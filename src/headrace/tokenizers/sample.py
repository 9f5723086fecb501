"""A bounded sample of the documents in the sources, spread over all of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from headrace.errors import SourceError, SourceNotFoundError
from headrace.sources import DocumentBatch, SourceShard, discover, read_shard
from headrace.sources.content import Format

__all__ = ["SampledTexts", "TextSample"]

_MOST_PLACES = 20
"""Places of dropped documents that are kept; all are counted."""


@dataclass(frozen=True, slots=True)
class SampledTexts:
    """Some documents, in source order."""

    texts: list[bytes]
    """Valid UTF-8 each."""
    batch: DocumentBatch
    """What they were read with; its first `len(texts)` documents are these."""
    shard: SourceShard

    def place(self, index: int) -> str:
        """`file:LINE` of a document, lines from 1."""
        return f"{self.shard.files[int(self.batch.files[index])].label}:{int(self.batch.rows[index]) + 1}"


class TextSample:
    """Reads documents, at most `max_bytes` of text; bad ones are left out and counted.

    What does not fit is left out of every source alike: each gives, from its beginning on, a share by its size on disk,
    and the last document of a share may be cut. The same sources give the same sample.

    Args:
        sources: files, folders and patterns.
        text_field: field that holds the text of a line.
        format: how files are read.
        max_bytes: of text, at most.

    Raises:
        SourceError: nothing there, or what cannot be read as asked.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        *,
        text_field: str = "text",
        format: Format = "auto",  # noqa: A002  # named as the command's option
        max_bytes: int,
    ) -> None:
        self._shards = discover(sources, format=format, text_field=text_field).shards
        self._text_field = text_field
        self._max_bytes = max_bytes
        self.documents = 0
        """Documents in the sample so far."""
        self.text_bytes = 0
        """Their UTF-8 bytes."""
        self.complete = True
        """False as soon as something did not fit."""
        self.dropped = Counter[str]()
        """Documents left out, by reason."""
        self.places: list[str] = []
        """Place and reason of the first of them, empty ones aside: those are no fault."""

    def read(self) -> Iterator[SampledTexts]:
        """Yield the sample; once.

        Raises:
            SourceNotFoundError: it holds no document; the message says what was dropped.
            SourceError: a file is damaged.
        """
        disk_bytes = sum(shard.size for shard in self._shards)
        # Small ones first: what they leave of their share goes to those that have more than theirs.
        for shard in sorted(self._shards, key=lambda shard: shard.size):
            left = self._max_bytes - self.text_bytes
            yield from self._read_shard(shard, -(-left * shard.size // max(disk_bytes, 1)))
            disk_bytes -= shard.size
        if not self.documents:
            raise self._nothing()

    def _read_shard(self, shard: SourceShard, share: int) -> Iterator[SampledTexts]:
        for batch in read_shard(shard, text_field=self._text_field, on_bad_input="skip"):
            self._count_drops(batch)
            texts: list[bytes] = []
            for text in batch.texts:
                if len(text) > share:
                    self.complete = False
                    if kept := text[:share].decode(errors="ignore").encode():
                        texts.append(kept)
                    share = 0
                    break
                texts.append(text)
                share -= len(text)
            self.documents += len(texts)
            self.text_bytes += sum(map(len, texts))
            if texts:
                yield SampledTexts(texts, batch, shard)
            if not self.complete and not share:
                return

    def _count_drops(self, batch: DocumentBatch) -> None:
        self.dropped.update(drop.reason for drop in batch.drops)
        faults = (str(drop) for drop in batch.drops if drop.reason != "empty")
        self.places += islice(faults, _MOST_PLACES - len(self.places))

    def _nothing(self) -> SourceError:
        if not self.complete:
            return SourceError(f"a sample of {self._max_bytes} bytes of text is too small for any document")
        if not self.places:
            return SourceNotFoundError("the sources hold no documents")
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common(3))
        return SourceNotFoundError(f"the sources hold no usable documents: {reasons}. First of all: {self.places[0]}")
