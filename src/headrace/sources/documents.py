"""What the readers deliver: batches of documents, and a record of every one that was not kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from headrace.storage.incoming import NO_HASHES

__all__ = ["MOST_DROPS", "WHOLE_FILE", "BadInput", "BatchBuilder", "DocumentBatch", "Drop"]

WHOLE_FILE = -1
"""`Drop.row` of a fault that concerns a file, not a line of it."""
MOST_DROPS = 1000
"""A batch with this many is delivered, so that a file of nothing but faults needs no more memory than others."""


class BadInput(StrEnum):
    """What becomes of a document that is not valid UTF-8 or holds a lone surrogate.

    A line that is not JSON or has no text is dropped under all three. The readers treat `error` as `skip`: they report
    every fault in `DocumentBatch.drops`, and the caller stops after the first batch that has one.
    """

    ERROR = "error"
    SKIP = "skip"
    REPLACE = "replace"
    """Each invalid byte sequence and lone surrogate becomes U+FFFD; such documents are counted in `replaced`."""


@dataclass(frozen=True, slots=True)
class Drop:
    """One document that was not kept."""

    path: str
    """Label of the file: relative to the inputs' common root."""
    row: int
    """Line or row of the file, from 0, blank lines counted; `WHOLE_FILE` where the whole file is meant. A reader of a cut that
    does not know the lines before it counts from its own first (see `cuts.in_file`)."""
    byte: int
    """Offset in the decompressed stream, a byte order mark included: of the fault, or of its line's start. -1 where there is none:
    rows of Parquet, and a whole file that is damaged."""
    reason: str
    """Without any of the document's text; equal faults have equal reasons, so that they can be counted."""
    kept: tuple[str, int] | None = None
    """Of a duplicate, label of the file and row of the document with the same text that is kept."""

    @property
    def place(self) -> str:
        """`file:LINE`, lines from 1, or `file: byte N`, or the file alone."""
        if self.row != WHOLE_FILE:
            return f"{self.path}:{self.row + 1}"
        return self.path if self.byte < 0 else f"{self.path}: byte {self.byte}"

    @property
    def told(self) -> str:
        """The reason, with the byte where the place does not hold it."""
        return self.reason if self.row == WHOLE_FILE or self.byte < 0 else f"{self.reason} (byte {self.byte})"

    @property
    def damage(self) -> bool:
        """Whether a file is meant that cannot be read to its end."""
        return self.row == WHOLE_FILE and self.byte < 0

    def __str__(self) -> str:
        return f"{self.place}: {self.told}"


@dataclass(slots=True)
class DocumentBatch:
    """Whole documents in source order; a batch may hold none, where only drops or progress are to be told."""

    texts: list[bytes]
    """Valid UTF-8 without byte order mark; none empty unless empty documents are kept."""
    rows: NDArray[np.uint64]
    """(len(texts),) Line or row of the file, from 0; 0 for a text file. Of JSON lines read by cuts: of the cut."""
    offsets: NDArray[np.uint64]
    """(len(texts),) Byte in the decompressed stream where the document's line or text starts. A byte order mark counts:
    what follows it starts at 3. 0 for Parquet."""
    files: NDArray[np.uint32]
    """(len(texts),) Index into the source shard's files."""
    ids: list[bytes]
    """UTF-8 of each document's id; empty where none are read."""
    drops: list[Drop]
    consumed: int
    """Bytes on disk read since the last batch."""
    replaced_texts: list[int]
    """Indices in `texts`, increasing, of those in which an invalid byte or a lone surrogate became U+FFFD."""
    cut: int = 0
    """Number of the file's cut in which all of its documents begin; and ..."""
    row_base: int = 0
    """... the row at which that begins."""
    rows_read: int = 0
    """Of JSON lines: how many have gone by since the last batch, whatever became of them."""
    start: int = 0
    """Where a cut is read: byte of the file at which it begins, for JSON lines with the first one that begins in it."""
    hashes: NDArray[np.uint8] = field(default_factory=lambda: NO_HASHES)
    """(len(texts), 16) First bytes of the SHA-256 of each text; (0, 16) where nobody has asked for them."""

    @property
    def replaced(self) -> int:
        """How many of the documents were changed so."""
        return len(self.replaced_texts)

    def select(self, numbers: Sequence[int] | NDArray[np.integer]) -> "DocumentBatch":
        """The batch with some of its documents alone; what is told beside documents, drops among it, stays.

        Args:
            numbers: of the documents to keep, from 0, increasing.
        """
        chosen = np.asarray(numbers, np.intp)
        kept: list[int] = chosen.tolist()
        marked = set(self.replaced_texts)
        return replace(
            self,
            texts=[self.texts[number] for number in kept],
            rows=self.rows[chosen],
            offsets=self.offsets[chosen],
            files=self.files[chosen],
            ids=[self.ids[number] for number in kept] if self.ids else [],
            replaced_texts=[place for place, number in enumerate(kept) if number in marked],
            hashes=self.hashes[chosen] if len(self.hashes) else self.hashes,
        )


@dataclass(slots=True)
class BatchBuilder:
    """Collects documents of one or more files until a batch is full. Not thread-safe."""

    texts: list[bytes] = field(default_factory=list[bytes])
    ids: list[bytes] = field(default_factory=list[bytes])
    drops: list[Drop] = field(default_factory=list[Drop])
    replaced_texts: list[int] = field(default_factory=list[int])
    stream_bytes: int = 0
    """Decompressed bytes gone into this batch, kept or not."""
    rows_read: int = 0
    """Lines gone into this batch, kept or not."""
    cut: int = 0
    row_base: int = 0
    """See `DocumentBatch`, and `begin_cut`; likewise ..."""
    start: int = 0
    """... the byte at which the cut begins that is read."""
    _ready: list["DocumentBatch"] = field(default_factory=list[DocumentBatch])
    _rows: list[NDArray[np.uint64]] = field(default_factory=list[NDArray[np.uint64]])
    _offsets: list[NDArray[np.uint64]] = field(default_factory=list[NDArray[np.uint64]])
    _files: list[NDArray[np.uint32]] = field(default_factory=list[NDArray[np.uint32]])

    def add(
        self,
        texts: list[bytes],
        rows: NDArray[np.uint64],
        offsets: NDArray[np.uint64],
        file: int,
        *,
        ids: Sequence[bytes | str] = (),
        label: str = "",
        placed: bool = True,
    ) -> None:
        """Append documents of one file.

        Args:
            texts: of the documents.
            rows: of each, (len(texts),).
            offsets: of each, (len(texts),).
            file: number of the file.
            ids: of each, where they are read; a string is the reason why there is none, and the document is dropped.
            label: of the file, for these.
            placed: whether the offsets mean anything.
        """
        faults = {number: reason for number, reason in enumerate(ids) if isinstance(reason, str)}
        if faults:
            texts, kept = self._without(texts, faults)
            found = zip(rows.tolist(), offsets.tolist(), strict=True)
            self.drops += [
                Drop(label, row, offset if placed else -1, faults[number])
                for number, (row, offset) in enumerate(found)
                if number in faults
            ]
            self.drops.sort(key=lambda drop: drop.row)
            rows, offsets = rows[kept], offsets[kept]
        self.texts += texts
        self.ids += [found for found in ids if isinstance(found, bytes)]
        self._rows.append(rows)
        self._offsets.append(offsets)
        self._files.append(np.full(len(texts), file, np.uint32))

    def _without(self, texts: list[bytes], faults: Mapping[int, str]) -> tuple[list[bytes], list[int]]:
        """Return texts that are good, and their numbers; those in which something was replaced keep their mark."""
        base = len(self.texts)
        kept = [number for number in range(len(texts)) if number not in faults]
        marked = {number - base for number in self.replaced_texts if number >= base}
        self.replaced_texts = [number for number in self.replaced_texts if number < base]
        self.replaced_texts += [base + place for place, number in enumerate(kept) if number in marked]
        return [texts[number] for number in kept], kept

    def was_replaced(self, ahead: int = 0) -> None:
        """Note that something was replaced in the text that will be the next one but `ahead`."""
        self.replaced_texts.append(len(self.texts) + ahead)

    def begin_cut(self, cut: int, row_base: int) -> None:
        """Let what is added from now on be of another cut, and so of other batches, if it is not of that cut already."""
        if cut == self.cut:
            return
        if self.texts or self.drops or self.stream_bytes:
            self._ready.append(self.take(0))
        self.cut, self.row_base = cut, row_base

    def batches(
        self, steps: Iterable[object], consumed: Callable[[], int], batch_bytes: int
    ) -> Iterator[DocumentBatch]:
        """Yield what the steps bring, a batch whenever enough has come together, and what is left at their end.

        Args:
            steps: reading goes on as they are taken; each adds to this builder.
            consumed: says how many bytes on disk were read; asked where a batch ends.
            batch_bytes: a batch ends with the first step that reaches this many decompressed bytes, or `MOST_DROPS`; and
                with any fault among the first so many bytes, so that all of it being wrong is known at once.
        """
        told = taken = 0
        for _ in steps:
            yield from self._ready
            self._ready.clear()
            faulty = bool(self.drops or self.replaced_texts) and taken + self.stream_bytes <= batch_bytes
            if faulty or self.stream_bytes >= batch_bytes or len(self.drops) >= MOST_DROPS:
                taken += self.stream_bytes
                now = consumed()
                yield self.take(now - told)
                told = now
        now = consumed()
        if self.texts or self.drops or self.rows_read or now > told:
            yield self.take(now - told)

    def take(self, consumed: int) -> DocumentBatch:
        """Return what was collected and start again, empty."""
        batch = DocumentBatch(
            texts=self.texts,
            rows=np.concatenate([np.empty(0, np.uint64), *self._rows]),
            offsets=np.concatenate([np.empty(0, np.uint64), *self._offsets]),
            files=np.concatenate([np.empty(0, np.uint32), *self._files]),
            ids=self.ids,
            drops=self.drops,
            consumed=consumed,
            replaced_texts=self.replaced_texts,
            cut=self.cut,
            row_base=self.row_base,
            rows_read=self.rows_read,
            start=self.start,
        )
        self.texts, self.ids, self.drops, self.replaced_texts = [], [], [], []
        self.stream_bytes = self.rows_read = 0
        self._rows, self._offsets, self._files = [], [], []
        return batch
