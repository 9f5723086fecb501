"""Windows out of packed pages of a Lance data set, unpacked many at once, without Lance."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError
from headrace.storage.kept import Kept
from headrace.storage.lance_dictionary import Dictionary
from headrace.storage.lance_fragments import Fragment
from headrace.storage.lance_packed import Packing, chunk_offsets, items_of, look_up, unpack_chunks
from headrace.storage.lance_pieces import PackedPiece
from headrace.storage.pool import HandlePool
from headrace.storage.shard_files import Io
from headrace.storage.stored_file import StoredFile

__all__ = ["PackedPages"]

_OFFSET_BYTES = 8 << 20
"""Most that the offsets of chunks take which are kept."""
_ITEM_BYTES = 32 << 20
"""Most that the dictionaries take which are kept decoded; one may be larger."""
_LOG = Packing._fields.index("log")
_CHUNKS = 64
"""Chunks unpacked at once: more would not stay in the processor's cache."""


class _Files(HandlePool[StoredFile]):
    """The data files, mapped on demand."""

    def __init__(self, fragments: Sequence[Fragment], io: Io) -> None:
        super().__init__()
        self._fragments = fragments
        self._io = io

    def open(self, number: int) -> StoredFile:
        fragment = self._fragments[number]
        file = StoredFile(fragment.file, fragment.file_size)
        if self._io == "mmap":
            file.map_whole(fragment.file_size)
        return file

    def evicted(self, number: int) -> None:
        """Nobody else keeps its address."""


class PackedPages:
    """Reads pages that follow one another. Safe for threads and in the child of a fork.

    Args:
        pieces: in order, without gaps.
        fragments: of the data set.
        dtype: of the tokens.
        io: with maps, or without.
    """

    def __init__(
        self, pieces: Sequence[PackedPiece], fragments: Sequence[Fragment], dtype: np.dtype[Any], io: Io
    ) -> None:
        base = pieces[0].first
        self._dtype = dtype
        self._first = np.array([piece.first - base for piece in pieces], dtype=np.int64)
        self._stops = np.append(self._first[1:], pieces[-1].first + pieces[-1].count - base)
        self._packings = np.array(
            [[*piece.packing[:-1], *piece.packing.dictionary] for piece in pieces], dtype=np.int64
        )
        """Shape (pages, 13): each a `Packing`, and its `Dictionary`."""
        self._kinds = np.array([_kind(piece.packing) for piece in pieces])
        """By which those pages have one number that are unpacked together, shape (pages,)."""
        self._fragment = np.array([piece.fragment for piece in pieces], dtype=np.int64)
        self._fragments = fragments
        self._files = _Files(fragments, io)
        self._offsets: Kept[int] = Kept(_OFFSET_BYTES)
        self._items: Kept[int] = Kept(_ITEM_BYTES)

    def read(self, start: int, stop: int, /) -> NDArray[Any]:
        """Tokens [start, stop) of the pages, which must exist, as a new array.

        Raises:
            MissingShardError, CorruptShardError, UnreadableShardError: naming the file.
        """
        out = np.empty(stop - start, self._dtype)
        done = start
        while done < stop:
            page = int(np.searchsorted(self._first, done, side="right")) - 1
            within = done - int(self._first[page])
            log = self._packing(page).log
            end = min(stop, int(self._stops[page]), int(self._first[page]) + ((within >> log) + _CHUNKS << log))
            self._unpack([(page, within, end - done)], out[None, done - start : end - start])
            done = end
        return out

    def gather_into(self, starts: NDArray[np.int64], out: NDArray[Any], /) -> None:
        """Fill `out`, shape (n, length), with the tokens of the pages from each start on, int64 (n,).

        Raises:
            MissingShardError, CorruptShardError, UnreadableShardError: naming the file.
        """
        length = out.shape[1]
        pages = np.searchsorted(self._first, starts, side="right") - 1
        whole = starts + length <= self._stops[pages]
        for row in np.flatnonzero(~whole).tolist():
            out[row] = self.read(int(starts[row]), int(starts[row]) + length)
        rows = np.flatnonzero(whole)
        if not rows.size:
            return
        # Windows of one kind of page together, and in the order in which they lie on the disk.
        kinds = self._kinds[pages[rows]]
        rows = rows[np.lexsort((starts[rows], kinds))]
        kinds = np.sort(kinds)
        within = (starts[rows] - self._first[pages[rows]]).tolist()
        step = self._windows_at_once(length)
        begins = sorted({*range(0, len(rows), step), *(np.flatnonzero(np.diff(kinds)) + 1).tolist()})
        for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
            those = rows[begin:end]
            wanted = [(int(pages[row]), at, length) for row, at in zip(those.tolist(), within[begin:end], strict=True)]
            if len(those) == 1:
                self._unpack(wanted, out[those[0]][None])
            else:
                some = np.empty((len(those), length), out.dtype)
                self._unpack(wanted, some)
                out[those] = some

    def _windows_at_once(self, length: int) -> int:
        smallest = 1 << int(self._packings[:, _LOG].min())
        return max(_CHUNKS // (length // smallest + 2), 1)

    def _packing(self, page: int) -> Packing:
        bitpacked, table, chunks, wide, *rest = self._packings[page].tolist()
        data, data_size, log, itemsize, *dictionary = rest
        return Packing(
            bool(bitpacked), table, chunks, bool(wide), data, data_size, log, itemsize, Dictionary(*dictionary)
        )

    def _unpack(self, windows: Sequence[tuple[int, int, int]], out: NDArray[Any]) -> None:
        """Read windows, each (page, first token in it, tokens), all of one length and one kind of page."""
        data: list[NDArray[np.uint8]] = []
        places: list[NDArray[np.int64]] = []
        begins: list[int] = []
        size = chunks = 0
        packing = self._packing(windows[0][0])
        held: list[StoredFile] = []  # their maps stay while they are read
        for page, start, count in windows:
            packing = self._packing(page)
            file = self._files.get(int(self._fragment[page]))
            held.append(file)
            offsets = self._chunk_offsets(page, packing, file)
            first, last = start >> packing.log, (start + count - 1) >> packing.log
            at = offsets[first : last + 2].astype(np.int64)
            begin, end = int(at[0]), int(at[-1])
            data.append(file.read(packing.data + begin, end - begin))
            places.append(at[:-1] + (size - begin))
            begins.append((chunks << packing.log) + start - (first << packing.log))
            size, chunks = size + end - begin, chunks + last + 1 - first
        length = windows[0][2]
        try:
            values = unpack_chunks(np.concatenate(data), np.concatenate(places), packing, packing.dtype_of(self._dtype))
            found = np.lib.stride_tricks.sliding_window_view(values.reshape(-1), length)[begins]
            if packing.dictionary.items:
                for row, ((page, _, _), file) in enumerate(zip(windows, held, strict=True)):
                    out[row] = look_up(self._items_of(page, file), found[row])
                return
        except ValueError as error:
            raise self._damaged(windows, error) from error
        np.copyto(out, found, casting="same_kind")

    def _damaged(self, windows: Sequence[tuple[int, int, int]], error: ValueError) -> CorruptShardError:
        pages = sorted({page for page, _, _ in windows})
        files = ", ".join(dict.fromkeys(self._fragments[int(self._fragment[page])].file for page in pages))
        return CorruptShardError(f"{files}: a page cannot be unpacked: {error}; the file is damaged")

    def _chunk_offsets(self, page: int, packing: Packing, file: StoredFile) -> NDArray[np.uint32]:
        offsets = self._offsets.get(page)
        if offsets is None:
            try:
                offsets = chunk_offsets(file.read, packing)
            except ValueError as error:
                raise self._damaged([(page, 0, 0)], error) from error
            self._offsets.put(page, offsets)
        return offsets

    def _items_of(self, page: int, file: StoredFile) -> NDArray[Any]:
        items = self._items.get(page)
        if items is None:
            items = items_of(file.read, self._packing(page), self._dtype)
            self._items.put(page, items)
        return items


def _kind(packing: Packing) -> int:
    return ((packing.itemsize << 1 | packing.bitpacked) << 1 | (packing.dictionary.items > 0)) << 6 | packing.log
