"""The runs of a build as one line of documents in the order of their keys, a range of which is read at a time."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from headrace.building.spill import DOCUMENT_COST, HEADER, ROW
from headrace.sources import DocumentBatch
from headrace.sources.decoder import BATCH_BYTES

__all__ = ["KEYS", "RunEntry", "Spilled", "SpilledRun", "read_documents"]

KEYS = 1 << 64
"""How many keys there are."""
_TABLE = "runs.json"


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run, and what its reader did not know."""

    name: str
    documents: int
    """Of them, the first so many are wanted."""
    file: int
    """Place of its first file among all files of the build."""
    row_base: int
    """Row of the file from which on its reader counted."""


@dataclass(frozen=True, slots=True)
class Spilled:
    """All runs of a build, in the order of the sources."""

    labels: tuple[str, ...]
    """Of all files of the build."""
    entries: tuple[RunEntry, ...]

    def write(self, folder: Path) -> None:
        """Write them down beside the runs, for the processes that read them."""
        with (folder / _TABLE).open("w", encoding="ascii") as file:
            file.write(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> "Spilled":
        """Read what `write` wrote."""
        table = json.loads((folder / _TABLE).read_bytes())
        return cls(tuple(table["labels"]), tuple(RunEntry(**entry) for entry in table["entries"]))


class SpilledRun:
    """A run that is read.

    Args:
        path: of its file.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            count, text_bytes = HEADER.unpack(file.read(HEADER.size))
        self._rows_at = HEADER.size + count * np.dtype(np.uint64).itemsize
        self._texts_at = self._rows_at + count * ROW.itemsize
        self._ids_at = self._texts_at + text_bytes
        self.keys: NDArray[np.uint64] = np.memmap(path, "<u8", "r", HEADER.size, (count,))
        """Of its documents, increasing."""

    def find(self, border: int) -> int:
        """How many documents have a key below `border`, which is 2**64 at most."""
        return len(self.keys) if border == KEYS else int(np.searchsorted(self.keys, np.uint64(border), side="left"))

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """The rows of the documents [start, stop)."""
        with self._path.open("rb") as file:
            return np.frombuffer(_read(file, self._rows_at, ROW.itemsize, start, stop), ROW)

    def read(self, start: int, stop: int) -> "_Piece":
        """Read the documents [start, stop), which are some."""
        rows = self.rows(max(start - 1, 0), stop)
        first = rows[0] if start else np.zeros((), ROW)
        rows = rows[start > 0 :]
        with self._path.open("rb") as file:
            texts = _read(file, self._texts_at, 1, int(first["text_end"]), int(rows["text_end"][-1]))
            ids = _read(file, self._ids_at, 1, int(first["id_end"]), int(rows["id_end"][-1]))
        return _Piece(
            keys=np.array(self.keys[start:stop]),
            rows=rows,
            text_ends=np.append(first["text_end"], rows["text_end"]) - first["text_end"],
            id_ends=np.append(first["id_end"], rows["id_end"]) - first["id_end"],
            texts=texts,
            ids=ids,
        )


def _read(file: IO[bytes], place: int, size: int, start: int, stop: int) -> bytes:
    file.seek(place + size * start)
    return file.read(size * (stop - start))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piece:
    """Neighbouring documents of a run."""

    keys: NDArray[np.uint64]
    rows: NDArray[Any]
    text_ends: NDArray[np.uint64]
    """Where in `texts` the texts end, 0 before the first; and ..."""
    id_ends: NDArray[np.uint64]
    """... where in `ids` the ids do."""
    texts: bytes
    ids: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Documents in the order of their keys: columns of one length."""

    files: NDArray[np.uint32]
    """Among all files of the build."""
    rows: NDArray[np.uint64]
    offsets: NDArray[np.uint64]
    replaced: NDArray[np.bool_]
    pieces: NDArray[np.intp]
    """Where a document's text and id lie: number of the piece; and ..."""
    places: NDArray[np.int64]
    """(4, d) ... in it start and end of the text, start and end of the id."""
    texts: list[bytes]
    ids: list[bytes]

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, first_file: int, *, ids: bool) -> Iterator[DocumentBatch]:
        """Yield them as batches of about 1 MiB.

        Args:
            first_file: from which on `files` of the batches counts.
            ids: whether documents have ids.
        """
        costs = np.cumsum(self.places[1] - self.places[0] + self.places[3] - self.places[2] + DOCUMENT_COST)
        start = 0
        while start < len(self):
            before = int(costs[start - 1]) if start else 0
            stop = max(int(np.searchsorted(costs, before + BATCH_BYTES, side="right")), start + 1)
            cut = slice(start, stop)
            pieces: list[int] = self.pieces[cut].tolist()
            places: list[list[int]] = self.places[:, cut].tolist()
            yield DocumentBatch(
                texts=[self.texts[n][a:b] for n, a, b in zip(pieces, *places[:2], strict=True)],
                rows=self.rows[cut],
                offsets=self.offsets[cut],
                files=self.files[cut] - np.uint32(first_file),
                ids=[self.ids[n][a:b] for n, a, b in zip(pieces, *places[2:], strict=True)] if ids else [],
                drops=[],
                consumed=int(costs[stop - 1]) - before,
                replaced_texts=np.flatnonzero(self.replaced[cut]).tolist(),
            )
            start = stop


def read_documents(folder: Path, entries: Sequence[RunEntry], low: int, high: int) -> Documents:
    """Read the wanted documents with keys in [low, high), of one key in the order of the runs.

    Raises:
        OSError: a run cannot be read.
    """
    pieces: list[_Piece] = []
    files: list[NDArray[np.uint32]] = []
    rows: list[NDArray[np.uint64]] = []
    for entry in entries:
        run = SpilledRun(folder / entry.name)
        start, stop = (min(run.find(border), entry.documents) for border in (low, high))
        if start < stop:
            piece = run.read(start, stop)
            pieces.append(piece)
            files.append(piece.rows["file"] + np.uint32(entry.file))
            rows.append(piece.rows["row"] + np.uint64(entry.row_base))
    order = np.argsort(_joined([piece.keys for piece in pieces], np.uint64), kind="stable")
    ends = [(piece.text_ends, piece.id_ends) for piece in pieces]
    places = [np.array([texts[:-1], texts[1:], ids[:-1], ids[1:]], np.int64) for texts, ids in ends]
    return Documents(
        files=_joined(files, np.uint32)[order],
        rows=_joined(rows, np.uint64)[order],
        offsets=_joined([piece.rows["byte"] for piece in pieces], np.uint64)[order],
        replaced=_joined([piece.rows["replaced"] for piece in pieces], np.uint32)[order] > 0,
        pieces=np.repeat(np.arange(len(pieces)), [len(piece.keys) for piece in pieces])[order],
        places=np.concatenate([np.empty((4, 0), np.int64), *places], axis=1)[:, order],
        texts=[piece.texts for piece in pieces],
        ids=[piece.ids for piece in pieces],
    )


def _joined(parts: Sequence[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])
