"""Documents on their way into a random order: written as sorted runs, and read again a range of keys at a time.

A run holds some documents of one source shard in the order of their keys: a header, the keys, a row each, the texts, the
ids. It lies there while a build is at work, and is no part of a corpus.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.sources import DocumentBatch
from headrace.storage.atomic import naming_file

__all__ = ["DOCUMENT_COST", "HEADER", "ROW", "Spill", "cost_of"]

DOCUMENT_COST = 64
"""Bytes that a document is counted for besides those of its text and its id."""
_RUN_COST = 1 << 26
"""Of a run, at least; what a worker holds of it takes some twice as much memory."""
_MOST_LIMITED = 1 << 21
"""Samples of more documents are not told apart before all are written: for that, so many keys would have to be held."""
_WRITTEN_AT_ONCE = 1 << 22
HEADER = struct.Struct("<QQ")
"""Of a run: how many documents it holds, and the bytes of their texts."""
ROW = np.dtype(
    [
        ("row", "<u8"),
        ("byte", "<u8"),
        ("text_end", "<u8"),
        ("id_end", "<u8"),
        ("file", "<u4"),
        ("replaced", "<u4"),
    ]
)
"""Where a document comes from (`row` and `file` as its reader counts), and where in the run its text and its id end."""


def cost_of(batch: DocumentBatch) -> int:
    """The bytes that the documents of a batch are counted for: a function of the documents alone."""
    return sum(map(len, batch.texts)) + sum(map(len, batch.ids)) + DOCUMENT_COST * len(batch.texts)


class Spill:
    """Writes the runs of one source shard. What is there under its names is replaced.

    Args:
        stem: path of the runs, but for their numbers.
        seed: of the order.
        place: number of the source shard among those of the build, and of its cut.
        most: documents wanted of the whole build; what cannot be among them is left out, as far as it is known. None for
            all.

    Attributes:
        runs: documents in each run that is written.
        cost: of all documents, those left out among them.
    """

    def __init__(self, stem: Path, seed: int, place: tuple[int, int], *, most: int | None = None) -> None:
        self.runs: list[int] = []
        self.cost = 0
        self._stem = stem
        self._seed = seed
        self._place = place
        self._most = most if most is not None and most <= _MOST_LIMITED else None
        self._smallest = np.empty(0, np.uint64)
        """Keys of the documents that may still be wanted, `most` of them at most."""
        self._documents = 0
        self._held: list[tuple[NDArray[np.uint64], DocumentBatch]] = []
        self._held_cost = 0

    def add(self, batch: DocumentBatch) -> None:
        """Take the next documents.

        Raises:
            OSError: naming the run that cannot be written.
        """
        from headrace.sampling.document_keys import document_keys  # noqa: PLC0415  # numpy's generators: few builds need them

        keys = document_keys(self._seed, *self._place, self._documents, len(batch.texts))
        self._documents += len(keys)
        self.cost += cost_of(batch)
        if self._most is not None and len(self._smallest) == self._most:
            wanted = np.flatnonzero(keys <= self._smallest[-1])
            keys, batch = keys[wanted], batch.select(wanted)
        if len(keys):
            self._held.append((keys, batch))
            self._held_cost += cost_of(batch)
        if self._held_cost >= _RUN_COST:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        held, self._held, self._held_cost = self._held, [], 0
        if not held:
            return
        keys = np.concatenate([keys for keys, _ in held])
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        if self._most is not None:
            self._smallest = np.sort(np.concatenate([self._smallest, keys]))[: self._most]
            if len(self._smallest) == self._most:
                order = order[: int(np.searchsorted(keys, self._smallest[-1], side="right"))]
                keys = keys[: len(order)]
        if len(keys):
            path = self.path(len(self.runs))
            with naming_file(path):
                _write(path, keys, order, [batch for _, batch in held])
            self.runs.append(len(keys))

    def path(self, number: int) -> Path:
        """Where the k-th run lies."""
        return self._stem.with_name(f"{self._stem.name}-{number:04d}.run")


def _write(path: Path, keys: NDArray[np.uint64], order: NDArray[np.intp], batches: Sequence[DocumentBatch]) -> None:
    texts = [text for batch in batches for text in batch.texts]
    ids = [one for batch in batches for one in batch.ids] or [b""] * len(texts)
    chosen: list[int] = order.tolist()
    rows = np.zeros(len(chosen), ROW)
    rows["row"] = np.concatenate([batch.rows for batch in batches])[order]
    rows["byte"] = np.concatenate([batch.offsets for batch in batches])[order]
    rows["file"] = np.concatenate([batch.files for batch in batches])[order]
    rows["replaced"] = np.concatenate([_marks(batch) for batch in batches])[order]
    rows["text_end"] = np.cumsum([len(texts[number]) for number in chosen])
    rows["id_end"] = np.cumsum([len(ids[number]) for number in chosen])
    with path.open("wb") as file:
        file.write(HEADER.pack(len(chosen), int(rows["text_end"][-1])))
        file.write(keys.astype("<u8").tobytes())
        file.write(rows.tobytes())
        for column in (texts, ids):
            for piece in _pieces([column[number] for number in chosen]):
                file.write(piece)


def _marks(batch: DocumentBatch) -> NDArray[np.uint32]:
    marks = np.zeros(len(batch.texts), np.uint32)
    marks[batch.replaced_texts] = 1
    return marks


def _pieces(parts: Sequence[bytes]) -> Iterator[bytes]:
    """Put parts together until they are worth a call."""
    some: list[bytes] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part)
        if size >= _WRITTEN_AT_ONCE:
            yield b"".join(some)
            some, size = [], 0
    yield b"".join(some)
