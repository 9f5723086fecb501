"""The documents of a corpus: where each begins and ends, and where it came from."""

import hashlib
import operator
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CorruptShardError, NoDocumentsError, OutOfRangeError
from headrace.manifest import NO_HASH, Manifest, ShardEntry, is_sha256
from headrace.shards import column, counts
from headrace.storage.document_columns import DocumentColumns
from headrace.storage.document_ends import document_ends
from headrace.storage.shard_files import DocumentReader
from headrace.storage.stores import read_documents
from headrace.storage.token_line import TokenLine

__all__ = ["Documents", "Location"]

_SHARDS_HELD = 8
"""Document indices kept in memory, the least recently used dropped first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a token came from."""

    position: int
    """Its place in the corpus."""
    shard_id: str
    document: int
    """Number of its document in the corpus, from 0."""
    start: int
    """Corpus position of the document's first token, and ..."""
    stop: int
    """... after its last (exclusive)."""
    source: str | None
    """The source file, relative to the inputs' common root; None where not recorded, likewise ..."""
    line: int | None
    """... the 1-based line of the document in it, and ..."""
    byte: int | None
    """... the byte at which that line (or text file) begins in the decompressed source."""
    id: str | None = None
    """What the document's id field held; None where the build kept none."""


class Documents(Sequence[NDArray[Any]]):
    """The documents of a corpus, in order; `documents[i]` is a new array of its tokens, boundary included.

    Borders come from the stored document index, read a shard at a time. Version 1 stores none and defines id 0 as its
    boundary: there, and only there, the shard is searched for it.

    Args:
        line: serves the tokens.
        manifest: of the corpus.
        entries: its shards, with absolute paths.
        known: whether a document index is stored.
        readers: read those of some shards, by the shard's number, in place of the file that its entry names.
    """

    def __init__(
        self,
        line: TokenLine,
        manifest: Manifest,
        entries: Sequence[ShardEntry],
        *,
        known: bool = True,
        readers: Mapping[int, DocumentReader] = MappingProxyType({}),
    ) -> None:
        self._line = line
        self._manifest = manifest
        self._entries = entries
        self._known = known
        self._readers = readers
        self._cumulative = np.append(0, counts(entries, "document_count")).cumsum()
        self._starts = np.append(counts(entries, "global_start"), line.token_count)
        self._columns: OrderedDict[int, DocumentColumns] = OrderedDict()
        self._ends: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """How many documents there are.

        Raises:
            NoDocumentsError: (a LookupError) the corpus stores no document index.
        """
        self._require()
        return int(self._cumulative[-1])

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401  # int -> array; slices are refused below
        """Tokens of one document, negative numbers counting from the end.

        Raises:
            OutOfRangeError: (an IndexError) no such document.
        """
        if isinstance(index, slice):
            raise TypeError("documents are read one at a time: documents[i]")
        start, stop = self.bounds(index)
        return self._line.get_slice(start, stop)

    def bounds(self, index: int) -> tuple[int, int]:
        """Corpus positions [start, stop) of a document, boundary included."""
        count = len(self)
        number = operator.index(index)
        number += count if number < 0 else 0
        if not 0 <= number < count:
            raise OutOfRangeError(f"document {index} does not exist: the corpus has {count} documents")
        shard = int(np.searchsorted(self._cumulative, number, side="right")) - 1
        local = number - int(self._cumulative[shard])
        ends = self._shard(shard).ends
        base = self._entries[shard].global_start
        return base + (int(ends[local - 1]) if local else 0), base + int(ends[local])

    @property
    def ends(self) -> NDArray[np.int64]:
        """Corpus position after each document's last token, int64 `(documents,)`, ascending, read-only.

        The first call reads the index of every shard, once for all processes of this user: beyond 65,536 documents the
        array is a map of a file in the cache folder, and memory holds only what of it is looked at.

        Raises:
            NoDocumentsError: the corpus stores no document index.
            CorruptShardError, MissingShardError, UnreadableShardError: naming the shard.
        """
        if self._ends is None:
            hashes = all(is_sha256(each) and each != NO_HASH for each in column(self._entries, "sha256"))
            # What is read in place of files may change, and has no hashes.
            known = self._manifest.fingerprint.hex if hashes and not self._readers else None
            self._ends = document_ends(len(self), self._pieces_of_ends, fingerprint=known)
        return self._ends

    def _pieces_of_ends(self) -> Iterator[NDArray[np.int64]]:
        for shard, entry in enumerate(self._entries):
            yield self._read(shard).ends.astype(np.int64) + entry.global_start

    def lengths(self, shard: int) -> NDArray[np.int64]:
        """Tokens of each document of one shard, boundary included, shape (documents of the shard,)."""
        self._require()
        return np.diff(self._shard(shard).ends.astype(np.int64), prepend=0)

    def text_hashes(self, shard: int) -> NDArray[np.uint8]:
        """The first 16 bytes of the SHA-256 of the text of each document of one shard, shape (documents of the shard, 16).

        Of the UTF-8 text as it was encoded; of a document that came as ids, of these in the corpus' dtype.

        Raises:
            NoDocumentsError: (a LookupError) the shard stores none: it was built without `dedup`.
        """
        self._require()
        hashes = self._shard(shard).text_hashes
        if hashes is None:
            raise NoDocumentsError(
                f"{self._entries[shard].path}: stores no hashes of texts; a build with dedup='exact' (--dedup exact) does"
            )
        return hashes

    def locate(self, position: int) -> Location:
        """Where the token at a corpus position came from.

        Raises:
            OutOfRangeError: (an IndexError) no such position.
            NoDocumentsError: the corpus stores no document index.
        """
        self._require()
        position = operator.index(position)
        if not 0 <= position < self._line.token_count:
            raise OutOfRangeError(f"position {position} is outside the corpus of {self._line.token_count} tokens")
        shard = int(np.searchsorted(self._starts, position, side="right")) - 1
        entry = self._entries[shard]
        columns = self._shard(shard)
        local = int(np.searchsorted(columns.ends, np.uint64(position - entry.global_start), side="right"))
        if local == len(columns.ends):
            raise NoDocumentsError(f"position {position} (shard {entry.shard_id}) belongs to no document")
        known = len(columns.rows) > 0
        return Location(
            position=position,
            shard_id=entry.shard_id,
            document=int(self._cumulative[shard]) + local,
            start=entry.global_start + (int(columns.ends[local - 1]) if local else 0),
            stop=entry.global_start + int(columns.ends[local]),
            source=columns.files[int(columns.file_indices[local])] if known else None,
            line=entry.row_base + int(columns.rows[local]) + 1 if known else None,
            byte=int(columns.offsets[local]) if known else None,
            id=columns.id_of(local),
        )

    def _require(self) -> None:
        if not self._known:
            raise NoDocumentsError("this corpus stores no document index; only its tokens can be read")

    def _shard(self, shard: int) -> DocumentColumns:
        columns = self._columns.get(shard)
        if columns is None:
            columns = self._columns[shard] = self._read(shard)
            if len(self._columns) > _SHARDS_HELD:
                self._columns.popitem(last=False)
        with suppress(KeyError):  # another thread may have dropped it
            self._columns.move_to_end(shard)
        return columns

    def _read(self, shard: int) -> DocumentColumns:
        entry, reader = self._entries[shard], self._readers.get(shard)
        if not entry.documents_sha256:  # version 1
            return self._split_at_zeros(entry)
        if reader is None:
            columns = read_documents(Path(entry.path), entry.document_count)
        else:
            columns = reader.documents(entry.document_count)
        growing = reader is not None and entry.documents_sha256 == NO_HASH
        fault = _fault(columns, entry, growing=growing)
        if fault:
            raise CorruptShardError(f"{entry.path}: its document index is damaged: {fault}")
        return columns

    def _split_at_zeros(self, entry: ShardEntry) -> DocumentColumns:
        tokens = self._line.get_slice(entry.global_start, entry.global_stop)
        ends = np.flatnonzero(tokens == self._manifest.boundary_token_id).astype(np.uint64) + np.uint64(1)
        if entry.token_count and (not len(ends) or int(ends[-1]) != entry.token_count):
            ends = np.append(ends, np.uint64(entry.token_count))
        if len(ends) != entry.document_count:
            raise CorruptShardError(
                f"{entry.path}: the index says {entry.document_count} documents, but its boundaries make {len(ends)}"
            )
        nothing = np.empty(0, np.uint64)
        return DocumentColumns(ends, nothing, nothing, np.empty(0, np.uint32), ())


def _fault(columns: DocumentColumns, entry: ShardEntry, *, growing: bool) -> str:
    """What is wrong with a stored index; empty if nothing is."""
    ends = columns.ends
    last = int(ends[-1]) if len(ends) else 0
    if last != entry.token_count or bool((ends[1:] <= ends[:-1]).any()) or not ends[:1].all():
        return f"its ends do not increase to its {entry.token_count} tokens"
    if not growing and hashlib.sha256(ends.astype("<u8").data).hexdigest() != entry.documents_sha256:
        return "the SHA-256 of its ends is not documents_sha256"
    if entry.sources_sha256 and columns.sources_sha256 != entry.sources_sha256:
        return "the SHA-256 of its sources is not sources_sha256"
    if len(columns.file_indices) and int(columns.file_indices.max()) >= len(columns.files):
        return f"it names source file {int(columns.file_indices.max())} of {len(columns.files)}"
    return ""
