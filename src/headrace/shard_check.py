"""All comparisons of one shard with its entry in the manifest: attributes, document index, checksums, hashes."""

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import MAX_LISTED, CorruptShardError, NoDocumentsError, Problem, UnreadableShardError
from headrace.manifest import Manifest, ShardEntry, is_sha256

__all__ = ["ShardCheck"]

_PIECE = 1 << 22
"""Most bytes read at once."""


class ShardCheck:
    """Compares; what is wrong collects in `problems`.

    Args:
        entry: of the shard, with an absolute path.

    Raises:
        MissingShardError, FormatError, CorruptShardError, UnreadableShardError: the file as a whole cannot be judged.
    """

    def __init__(self, entry: ShardEntry) -> None:
        from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # imports h5py

        self.entry = entry
        self.path = Path(entry.path)
        self.layout = inspect_shard(self.path)
        self.problems: list[Problem] = []
        self.bytes_read = 0
        self._ends: NDArray[np.uint64] | None = None

    def problem(self, place: str, reason: str) -> None:
        """Note one fault."""
        self.problems.append(Problem(f"{self.entry.path}: {place}" if place else self.entry.path, reason))

    def compare_with(self, manifest: Manifest) -> None:
        """What every shard of the corpus must say."""
        tokenizer = manifest.tokenizer.sha256 if manifest.tokenizer else ""
        found = {**self.layout.attributes, "dtype": str(self.layout.dtype), "chunk size": self.layout.chunk_size}
        for name, wanted in (
            ("format_version", manifest.version),
            ("dtype", manifest.dtype),
            ("vocab_size", manifest.vocab_size),
            ("boundary_token_id", manifest.boundary_token_id),
            ("tokenizer_sha256", tokenizer),
            ("chunk size", manifest.chunk_size),
        ):
            if found.get(name) != wanted:
                self.problem(name, f"shards.json says {wanted or 'nothing'}, the file {found.get(name, 'nothing')}")

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
        if entry.documents_sha256:  # of version 1 the one hash is all there is
            self._documents()
            crcs = self._stored_crcs()
        try:
            self._tokens(crcs=crcs, quick=quick and crcs is not None)
        except CorruptShardError as error:
            self.problem("/tokens", error.summary.removeprefix(f"{self.path}: "))

    def _documents(self) -> None:
        from headrace.storage.hdf5_reader import read_documents  # noqa: PLC0415  # imports h5py

        try:
            columns = read_documents(self.path, self.entry.document_count)
        except (CorruptShardError, NoDocumentsError) as error:
            self.problem("/documents", error.summary.removeprefix(f"{self.path}: "))
            return
        self._ends = columns.ends
        self.bytes_read += columns.ends.nbytes
        if hashlib.sha256(columns.ends.astype("<u8").data).hexdigest() != self.entry.documents_sha256:
            self.problem("/documents/end", "the SHA-256 of the document ends is not documents_sha256")
        if self.entry.sources_sha256 and columns.sources_sha256 != self.entry.sources_sha256:
            self.problem("/documents/source_*", "the SHA-256 of the documents' sources is not sources_sha256")
        if len(columns.file_indices) and int(columns.file_indices.max()) >= len(columns.files):
            self.problem("/documents/source_file", "names a file that /documents/files does not have")

    def _stored_crcs(self) -> NDArray[np.uint32] | None:
        from headrace.storage.hdf5_open import open_shard  # noqa: PLC0415  # imports h5py

        chunks = -(-self.layout.token_count // self.layout.chunk_size)
        try:
            with open_shard(self.path) as file:
                stored: NDArray[np.uint32] = file["chunks/crc32"][:]
        except CorruptShardError as error:
            self.problem("/chunks/crc32", error.summary.removeprefix(f"{self.path}: "))
            return None
        if stored.shape != (chunks,):
            self.problem("/chunks/crc32", f"{chunks} chunks need as many checksums, found {stored.size}")
            return None
        return stored

    def _tokens(self, *, crcs: NDArray[np.uint32] | None, quick: bool) -> None:
        """Hash all tokens (or check the end chunks), and say which chunks are damaged."""
        last = -(-self.layout.token_count // self.layout.chunk_size) - 1
        digest = hashlib.sha256()
        bad: list[int] = []
        for number, data in self._chunks({0, last} if quick else None):
            self.bytes_read += len(data)
            if crcs is not None and zlib.crc32(data) != int(crcs[number]):
                bad.append(number)
            if not quick:
                digest.update(data)
        if not quick and digest.hexdigest() == self.entry.sha256:
            if bad:
                self.problem(
                    "/chunks/crc32", f"the checksums of chunks {_listed(bad)} are damaged; the tokens are whole"
                )
            return
        for number in bad:
            self._report_chunk(number)
        if not quick and not bad:
            self.problem("/tokens", "the SHA-256 of the tokens is not the one in shards.json")

    def _report_chunk(self, number: int) -> None:
        size, count = self.layout.chunk_size, self.layout.token_count
        start, stop = number * size, min((number + 1) * size, count)
        reason = f"tokens [{start}, {stop}) of the shard are damaged (corpus [{self.entry.global_start + start}, "
        reason += f"{self.entry.global_start + stop}))"
        if self._ends is not None and len(self._ends):
            first = int(np.searchsorted(self._ends, np.uint64(start), side="right"))
            last = min(int(np.searchsorted(self._ends, np.uint64(stop - 1), side="right")), len(self._ends) - 1)
            reason += f", documents {first} to {last} of the shard"
        self.problem(f"chunk {number}", reason)

    def _chunks(self, wanted: set[int] | None) -> Iterator[tuple[int, memoryview | bytes]]:
        """The token bytes of each chunk (padding left out), read from the file, past its maps and page tables."""
        layout = self.layout
        size, itemsize = layout.chunk_size, layout.dtype.itemsize
        total = -(-layout.token_count // size)
        numbers = range(total) if wanted is None else sorted(number for number in wanted if 0 <= number < total)
        if not len(layout.first):
            yield from self._library_chunks(numbers)
            return
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            for number in numbers:
                start, stop = number * size, min((number + 1) * size, layout.token_count)
                extent = int(np.searchsorted(layout.first, np.uint64(start), side="right")) - 1
                offset = int(layout.offset[extent]) + (start - int(layout.first[extent])) * itemsize
                yield number, _read_exactly(descriptor, (stop - start) * itemsize, offset, self.path)
        finally:
            os.close(descriptor)

    def _library_chunks(self, numbers: Sequence[int]) -> Iterator[tuple[int, memoryview | bytes]]:
        from headrace.storage.hdf5_reader import LibraryReader  # noqa: PLC0415  # imports h5py

        reader = LibraryReader(self.path)
        size = self.layout.chunk_size
        try:
            for number in numbers:
                tokens: NDArray[Any] = reader.read(number * size, min((number + 1) * size, self.layout.token_count))
                yield number, np.ascontiguousarray(tokens).data.cast("B")
        finally:
            reader.close()


def _read_exactly(descriptor: int, size: int, offset: int, path: Path) -> bytes:
    pieces: list[bytes] = []
    done = 0
    while done < size:
        piece = os.pread(descriptor, min(size - done, _PIECE), offset + done)
        if not piece:
            raise CorruptShardError(f"{path}: is truncated: it ends before byte {offset + size}")
        pieces.append(piece)
        done += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _listed(numbers: Sequence[int]) -> str:
    rest = f" and {len(numbers) - MAX_LISTED} more" if len(numbers) > MAX_LISTED else ""
    return ", ".join(map(str, numbers[:MAX_LISTED])) + rest
