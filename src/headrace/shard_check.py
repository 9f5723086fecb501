"""All comparisons of one shard with its entry in the manifest: attributes, document index, checksums, hashes."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.damage import DocumentPlaces, listed, odd_ends, odd_origins, runs, unreadable_objects
from headrace.errors import CorruptShardError, NoDocumentsError, Problem, UnreadableShardError
from headrace.manifest import ShardEntry, is_sha256

if TYPE_CHECKING:
    from headrace.storage.extents import ShardExtents
    from headrace.storage.hdf5_reader import DocumentColumns

__all__ = ["ShardCheck"]

_PIECE = 1 << 22
"""Most bytes read at once."""
_Read = Callable[[int, int], Iterator[memoryview | bytes]]
"""Gives the bytes of tokens [start, stop) of the shard, piece by piece."""


class ShardCheck:
    """Compares; what is wrong collects in `problems`.

    Args:
        entry: of the shard, with an absolute path.
        first_document: number in the corpus of the shard's first document; None where that is not known.
        stopped: asked between reads; once it is true the check ends with a `CancelledError`.

    Raises:
        MissingShardError, FormatError, CorruptShardError, UnreadableShardError: the file as a whole cannot be judged.
    """

    def __init__(
        self, entry: ShardEntry, *, first_document: int | None = None, stopped: Callable[[], bool] | None = None
    ) -> None:
        from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # imports h5py

        self.entry = entry
        self.path = Path(entry.path)
        self._first_document = first_document
        self._stopped = stopped
        self.layout = inspect_shard(self.path)
        self.problems: list[Problem] = []
        self.bytes_read = 0
        self.documents_by_file: tuple[tuple[str, int], ...] | None = None
        """Label and number of documents of each source file; None where the shard does not say, or is not believed."""
        self._places: DocumentPlaces | None = None
        """Names documents, where their ends are sound."""
        self._ends_fault = ""
        self._traced = False
        """Whether what the shard says of its documents' sources is to be believed."""

    def problem(self, place: str, reason: str) -> None:
        """Note one fault."""
        self.problems.append(Problem(f"{self.entry.path}: {place}", reason))

    def compare_attributes(self, wanted: Mapping[str, object]) -> None:
        """What every shard of the corpus must say."""
        found = {**self.layout.attributes, "dtype": str(self.layout.dtype), "chunk size": self.layout.chunk_size}
        for name, value in wanted.items():
            if found.get(name) != value:
                self.problem(name, f"shards.json says {value or 'nothing'}, the file {found.get(name, 'nothing')}")

    def run(self, *, quick: bool) -> None:
        """Compare all, or with `quick` only the first and last chunk's bytes besides attributes and documents."""
        entry, layout = self.entry, self.layout
        if not is_sha256(entry.sha256):
            raise UnreadableShardError(f"{self.path}: stores no sha256, so there is nothing to verify it against")
        for name, wanted, found in (
            ("token_count", entry.token_count, layout.token_count),
            ("document_count", entry.document_count, layout.document_count),
            ("sha256", entry.sha256, layout.sha256),
            ("documents_sha256", entry.documents_sha256, layout.documents_sha256),
        ):
            unsaid = name == "document_count" and found is None and not entry.documents_sha256
            if wanted != found and not unsaid:
                self.problem(f"attribute {name}", f"shards.json says {wanted}, the file {found}")
        crcs: NDArray[np.uint32] | None = None
        columns: DocumentColumns | None = None
        if entry.documents_sha256:  # of version 1 the one hash is all there is
            columns = self._documents()
            crcs = self._stored_crcs()
        whole = self._tokens(crcs=crcs, quick=quick and crcs is not None)
        if columns is not None and self._ends_fault:
            self._report_ends(columns, search=whole)

    def differs_from(self, extents: "ShardExtents") -> bool:
        """Whether a table of extents says of this shard what is not so."""
        from headrace.storage.hdf5_corpus import extents_of  # noqa: PLC0415  # imports h5py where it is called

        found = extents_of(self.layout)
        return any(
            not np.array_equal(getattr(found, field.name), getattr(extents, field.name)) for field in fields(found)
        )

    # -- document index -----------------------------------------------------------------------------------------------

    def _documents(self) -> "DocumentColumns | None":
        """Compare the document index, all but what is wrong with its ends; None where it cannot be read."""
        from headrace.storage.hdf5_reader import read_documents  # noqa: PLC0415  # imports h5py

        entry = self.entry
        try:
            columns = read_documents(self.path, entry.document_count)
        except (CorruptShardError, NoDocumentsError) as error:
            self._unreadable("/documents", error)
            return None
        self.bytes_read += columns.ends.nbytes
        self._traced = True
        if len(columns.file_indices) and int(columns.file_indices.max()) >= len(columns.files):
            self.problem("/documents/source_file", "names a file that /documents/files does not have")
            self._traced = False
        if entry.sources_sha256 and columns.sources_sha256 != entry.sources_sha256:
            reason = "the SHA-256 of the documents' sources is not sources_sha256"
            self._traced = False
            for column, document in odd_origins(columns):
                place = self._places_in(columns).of_documents(max(document - 1, 0), document)
                reason += f"; {column} is out of order at {place}"
            place = "/documents/source_*" + " or id" * (columns.ids is not None)
            self.problem(place + " or text_hash" * (columns.text_hashes is not None), reason)
        if self._traced and columns.files:
            counts = np.bincount(columns.file_indices, minlength=len(columns.files)).tolist()
            self.documents_by_file = tuple(zip(columns.files, counts, strict=True))
        self._ends_fault = self._fault_of(columns.ends)
        if not self._ends_fault:
            self._places = self._places_in(columns)
        return columns

    def _places_in(self, columns: "DocumentColumns") -> DocumentPlaces:
        return DocumentPlaces(self.entry, columns, first_document=self._first_document, traced=self._traced)

    def _fault_of(self, ends: NDArray[np.uint64]) -> str:
        if hashlib.sha256(ends.astype("<u8").data).hexdigest() != self.entry.documents_sha256:
            return "the SHA-256 of the document ends is not documents_sha256"
        last = int(ends[-1]) if len(ends) else 0
        if last != self.entry.token_count or bool((ends[1:] <= ends[:-1]).any()) or not ends[:1].all():
            return f"the document ends do not increase to {self.entry.token_count} tokens"
        return ""

    def _report_ends(self, columns: "DocumentColumns", *, search: bool) -> None:
        """Say what is wrong with the ends, and where the tokens are whole which of them cannot be right."""
        reason = self._ends_fault
        if search:
            boundary = self.layout.attributes.get("boundary_token_id")
            at_boundary = self._last_tokens(columns.ends) == boundary
            places = self._places_in(columns)
            odd = [places.of_documents(n, n) for n in odd_ends(columns.ends, self.layout.token_count, at_boundary)]
            reason += f"; what cannot be right is the end of {listed(odd)}" * bool(odd)
        self.problem("/documents/end", reason)

    def _last_tokens(self, ends: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The token before each end, -1 where there is none."""
        layout = self.layout
        found = np.full(len(ends), -1, dtype=np.int64)
        with ExitStack() as stack:
            read = self._reader(stack)
            for number in range(self._chunks):
                start, stop = self._chunk(number)
                here = np.flatnonzero((ends > np.uint64(start)) & (ends <= np.uint64(stop)))
                if len(here):
                    tokens = np.frombuffer(b"".join(read(start, stop)), dtype=layout.dtype)
                    found[here] = tokens[(ends[here] - np.uint64(start + 1)).astype(np.intp)]
        return found

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _stored_crcs(self) -> NDArray[np.uint32] | None:
        from headrace.storage.hdf5_open import open_shard  # noqa: PLC0415  # imports h5py

        try:
            with open_shard(self.path) as file:
                stored: NDArray[np.uint32] = file["chunks/crc32"][:]
        except CorruptShardError as error:
            self._unreadable("/chunks", error)
            return None
        if stored.shape != (self._chunks,):
            self.problem("/chunks/crc32", f"{self._chunks} chunks need as many checksums, found {stored.size}")
            return None
        return stored

    def _tokens(self, *, crcs: NDArray[np.uint32] | None, quick: bool) -> bool:
        """Hash all tokens (or check the end chunks), and say which chunks are damaged.

        Returns:
            Whether all tokens are what they were; False where not all were read.
        """
        numbers: Sequence[int] = range(self._chunks)
        if quick and numbers:
            numbers = sorted({0, numbers[-1]})
        digest = hashlib.sha256()
        damaged: list[int] = []
        undecoded: dict[int, str] = {}
        with ExitStack() as stack:
            read = self._reader(stack)
            for number in numbers:
                try:
                    crc = self._crc(read(*self._chunk(number)), None if quick else digest.update)
                except CorruptShardError as error:
                    undecoded[number] = str(error.__cause__ or self._said(error))
                    continue
                if crcs is not None and crc != int(crcs[number]):
                    damaged.append(number)
        whole = not quick and not undecoded and digest.hexdigest() == self.entry.sha256
        if whole and damaged:
            self.problem(
                "/chunks/crc32",
                f"the checksums of chunks {listed(damaged)} are damaged; the tokens are whole",
            )
        elif not whole:
            self._report_chunks(damaged, undecoded)
            if not quick and not damaged and not undecoded:
                self.problem("/tokens", "the SHA-256 of the tokens is not the one in shards.json")
        return whole

    def _crc(self, pieces: Iterator[memoryview | bytes], update: Callable[[memoryview | bytes], None] | None) -> int:
        """crc32 of a chunk, whose bytes are given to a digest, too."""
        crc = 0
        for data in pieces:
            self.bytes_read += len(data)
            crc = crc32(data, crc)
            if update is not None:
                update(data)
            if self._stopped is not None and self._stopped():
                raise CancelledError
        return crc

    def _report_chunks(self, damaged: Sequence[int], undecoded: Mapping[int, str]) -> None:
        found = [(first, last, "are damaged") for first, last in runs(damaged)]
        for first, last in runs([*undecoded]):  # of the reasons the first will do
            found.append((first, last, f"cannot be decoded: {undecoded[first]}"))
        for first, last, fault in sorted(found):
            start, stop = self._chunk(first)[0], self._chunk(last)[1]
            base = self.entry.global_start
            reason = f"tokens [{start}, {stop}) of the shard (corpus [{base + start}, {base + stop}))"
            touched = self._places.of_tokens(start, stop) if self._places else ""
            reason += f", {touched}," * bool(touched) + f" {fault}"
            self.problem(f"chunk {first}" if first == last else f"chunks {first} to {last}", reason)

    @property
    def _chunks(self) -> int:
        return -(-self.layout.token_count // self.layout.chunk_size)

    def _chunk(self, number: int) -> tuple[int, int]:
        """Tokens [start, stop) of the shard that a chunk holds, padding left out."""
        size = self.layout.chunk_size
        return number * size, min((number + 1) * size, self.layout.token_count)

    def _reader(self, stack: ExitStack) -> _Read:
        """Reads tokens from the file, past its maps and page tables, or through HDF5 where they are not flat.

        A range must lie in one chunk.
        """
        if not len(self.layout.first):
            from headrace.storage.hdf5_reader import LibraryReader  # noqa: PLC0415  # imports h5py

            reader = LibraryReader(self.path)
            stack.callback(reader.close)
            return lambda start, stop: _decoded(reader, start, stop)
        descriptor = os.open(self.path, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        return lambda start, stop: self._stored(descriptor, start, stop)

    def _stored(self, descriptor: int, start: int, stop: int) -> Iterator[bytes]:
        layout = self.layout
        itemsize = layout.dtype.itemsize
        extent = int(np.searchsorted(layout.first, np.uint64(start), side="right")) - 1
        at = int(layout.offset[extent]) + (start - int(layout.first[extent])) * itemsize
        end = at + (stop - start) * itemsize
        while at < end:
            piece = os.pread(descriptor, min(end - at, _PIECE), at)
            if not piece:
                raise CorruptShardError(f"{self.path}: is truncated: it ends before byte {end}")
            yield piece
            at += len(piece)

    def _unreadable(self, place: str, error: Exception) -> None:
        """Name what HDF5 cannot read of an object and those in it."""
        inner = [part for part in unreadable_objects(self.path) if part.place.startswith(f"{self.path}: {place}")]
        self.problems += inner or [Problem(f"{self.path}: {place}", self._said(error))]

    def _said(self, error: Exception) -> str:
        """What an error says, without the path that it begins with."""
        return str(getattr(error, "summary", error)).removeprefix(f"{self.path}: ")


def _decoded(reader: Any, start: int, stop: int) -> Iterator[memoryview]:  # noqa: ANN401  # its module imports h5py
    step = max(_PIECE // 8, 1)
    for begin in range(start, stop, step):
        tokens: NDArray[Any] = reader.read(begin, min(begin + step, stop))
        yield np.ascontiguousarray(tokens).data.cast("B")
