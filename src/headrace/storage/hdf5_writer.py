"""Writing one HDF5 shard, readable by others while it grows."""

import hashlib
import operator
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import ArrayLike, NDArray

from headrace.errors import WriterError
from headrace.manifest import ShardEntry, dtype_name_for
from headrace.storage.atomic import fresh_name, fsync_file, fsync_folder, start_writeback
from headrace.storage.compression import parse_compression
from headrace.storage.document_writer import NO_MASK, DocumentWriter
from headrace.storage.hdf5_layout import Column, ShardFile, create_shard_file
from headrace.storage.hdf5_open import system_failure
from headrace.storage.hdf5_rows import DocumentRows
from headrace.storage.incoming import Origins, checked_tokens
from headrace.storage.layout import LOSS_MASK

__all__ = ["HDF5ShardWriter", "largest_chunk"]

_MAX_CHUNK_BYTES = (1 << 32) - 1
"""HDF5 before version 2 allows no larger chunk."""
_WRITEBACK_BYTES = 1 << 24
"""After so many more bytes, they begin to go to the disk."""
_TAKEN_NAMES = {"", ".", "documents", "chunks", LOSS_MASK}


class HDF5ShardWriter(DocumentWriter):
    """Writes documents into an HDF5 file in SWMR mode: buffer one chunk, then grow by exactly one chunk.

    With `flush_chunks`, it is so many chunks at once: fewer calls of HDF5, and readers see growth later.

    A context manager. Left normally, the residual tokens are written, the attributes `token_count`, `document_count`,
    `sha256` and `documents_sha256` become final and the file is on disk. Left by an exception, `sha256` stays the sixty
    four zeros of a growing shard, so that nobody takes it for a whole one.

    Nothing but the sequence of documents decides the bytes of the file: not the clock, nor how the calls are batched.
    Not safe for use by several threads at once.

    Args:
        path: where the shard appears, replacing a file of that name; it appears already in SWMR mode.
        chunk_size: tokens a chunk, at least 1.
        dataset_name: name of the token data set.
        vocab_size: highest token id + 1; decides the dtype (uint16 up to 65,536, else uint32).
        boundary_token_id: the id that `add_boundary` appends.
        tokenizer_sha256: identity of the tokenizer, 64 hex digits or empty.
        source_files: labels of the files that documents come from; empty if their origin is not recorded.
        compression: of the tokens: `none`, `gzip` or `zstd`, a level after a colon (`gzip:9`); see `parse_compression`.
        flush_chunks: chunks that are buffered, written and flushed at once, at least 1.
        document_ids: whether each document has an id, beside its source.
        text_hashes: whether the hash of each document's text is stored, likewise.
        loss_mask: whether it is kept of each token whether it counts in the loss: each call of `add_documents` then gives it.

    Raises:
        WriterError: (a ValueError) for arguments or calls that would lose or blur documents.
        MissingExtraError: (an ImportError) zstd is asked for, and hdf5plugin is not installed.
        TokenIdError: (a ValueError) for an id that is negative or not below `vocab_size`.
        OSError: the disk is full, or fails; the writer then takes no more.
    """

    def __init__(
        self,
        path: str | Path,
        chunk_size: int,
        dataset_name: str = "tokens",
        *,
        vocab_size: int = 65536,
        boundary_token_id: int = 0,
        tokenizer_sha256: str = "",
        source_files: Sequence[str] = (),
        compression: str = "none",
        flush_chunks: int = 1,
        document_ids: bool = False,
        text_hashes: bool = False,
        loss_mask: bool = False,
    ) -> None:
        if dataset_name in _TAKEN_NAMES or "/" in dataset_name or "\0" in dataset_name:
            raise WriterError(
                f"dataset_name {dataset_name!r}: wanted a plain name other than 'documents', 'chunks' and 'loss_mask'"
            )
        super().__init__(
            path,
            chunk_size,
            vocab_size=vocab_size,
            boundary_token_id=boundary_token_id,
            tokenizer_sha256=tokenizer_sha256,
            source_files=source_files,
            document_ids=document_ids,
            text_hashes=text_hashes,
            loss_mask=loss_mask,
        )
        self.chunk_size = chunk_size = _whole_chunk(chunk_size, largest_chunk(self.vocab_size))
        if flush_chunks < 1:
            raise WriterError(f"flush_chunks is at least 1, not {flush_chunks}")
        self.dataset_name = dataset_name
        self.compression = parse_compression(compression)

        self._shard: ShardFile | None = None
        self._entered = self._whole = False
        self._buffer = np.empty(flush_chunks * chunk_size, dtype=self.dtype)
        self._mask_buffer = np.empty(len(self._buffer) if loss_mask else 0, dtype=np.uint8)
        self._buffered = 0
        self._on_its_way = 0
        """Bytes of the file that need not wait for the end to go to the disk."""
        self._open_document: int | None = None
        """Tokens of the document begun by `add_document` and not yet ended."""
        self._rows = DocumentRows()
        self._sha256 = hashlib.sha256()
        self._mask_sha256 = hashlib.sha256()

    # -- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._entered:
            raise WriterError(f"{self.path}: a writer is entered once")
        hidden = fresh_name(self.path)
        try:
            self._shard = create_shard_file(
                hidden,
                chunk_size=self.chunk_size,
                dataset_name=self.dataset_name,
                dtype=self.dtype,
                compression=self.compression,
                vocab_size=self.vocab_size,
                boundary_token_id=self.boundary_token_id,
                tokenizer_sha256=self.tokenizer_sha256,
                source_files=self.source_files,
                document_ids=self.document_ids,
                text_hashes=self.text_hashes,
                loss_mask=self.loss_mask,
            )
        except OSError as error:  # h5py's own words hide the name that the user gave
            raise (system_failure(self.path, error) or error) from error
        self._entered = True
        try:
            # Renamed only now, so that no reader ever meets the name before SWMR mode.
            hidden.replace(self.path)
        except BaseException:
            self._abandon()
            hidden.unlink(missing_ok=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def close(self) -> None:
        """Write what is buffered and the final attributes, and wait until all of it is on disk. Idempotent."""
        if self._whole:
            return
        self._writing()
        with self._abandoning():
            self._finish()

    def _finish(self) -> None:
        shard = self._writing()
        self._end_document()
        if self._buffered:
            self._write_tokens(self._buffer[: self._buffered], self._mask_buffer[: self._buffered])
        self._rows.write(shard, self._tokens + 1)
        shard.file.flush()
        shard.token_count.set(self._tokens)
        shard.document_count.set(self._documents)
        shard.sha256.set(self._sha256.hexdigest().encode())
        shard.documents_sha256.set(self._rows.ends_sha256.encode())
        if shard.loss_mask_sha256 is not None:
            shard.loss_mask_sha256.set(self._mask_sha256.hexdigest().encode())
        shard.file.flush()
        shard.file.close()
        self._shard = None
        fsync_file(self.path)
        fsync_folder(self.path.parent)
        self._whole = True

    @contextmanager
    def _abandoning(self) -> Generator[None]:
        """Take no more once a write has failed: what was counted is not in the file."""
        try:
            yield
        except BaseException as error:
            failure = system_failure(self.path, error)
            if failure and self._shard is not None:
                # Where the disk is full, HDF5 needs room to close a file, and crashes later without it.
                with suppress(OSError):
                    os.truncate(self.path, 0)
            self._abandon()
            if failure:
                raise failure from error
            raise

    def _abandon(self) -> None:
        """Close the file as it is: a growing shard, which readers refuse."""
        if self._shard is None:
            return
        shard, self._shard = self._shard, None
        with suppress(OSError, RuntimeError):  # a full disk was reported already
            shard.file.close()

    def result(self, shard_id: str) -> ShardEntry:
        """The manifest entry of the closed shard, with `global_start` 0.

        Raises:
            WriterError: the writer is not closed, or was left by an exception.
        """
        if not self._whole:
            raise WriterError(f"{self.path}: result() is known once the writer is closed without an error")
        return ShardEntry(
            shard_id=shard_id,
            path=str(self.path),
            token_count=self._tokens,
            document_count=self._documents,
            sha256=self._sha256.hexdigest(),
            documents_sha256=self._rows.ends_sha256,
            sources_sha256=self._rows.origins.hex(self.source_files) if self.source_files else "",
            loss_mask_sha256=self._mask_sha256.hexdigest() if self.loss_mask else "",
        )

    @property
    def buffered_bytes(self) -> int:
        """Size of the tokens that are not written yet, and of their mask."""
        return self._buffered * (self.dtype.itemsize + self.loss_mask)

    # -- documents, one by one --------------------------------------------------------------------------------------

    def add_document(self, ids: ArrayLike) -> None:
        """Begin a document with these tokens; it goes on until `add_boundary`, the next `add_document` or the close.

        Args:
            ids: integers, shape (n,); n may be 0 if `add_boundary` follows.
        """
        self._writing()
        if self.source_files:
            raise WriterError(f"{self.path}: this writer has source files: use add_documents, which takes the origins")
        if self.loss_mask:
            raise WriterError(f"{self.path}: this writer keeps a loss mask: use add_documents, which takes it")
        self._end_document()
        tokens = checked_tokens(ids, self.dtype, self.vocab_size, path=self.path, document=self._documents)
        self._append(tokens, NO_MASK)
        self._open_document = len(tokens)

    def add_boundary(self) -> None:
        """End the current document with the boundary token, which belongs to that document."""
        self._writing()
        if self._open_document is None:
            raise WriterError(f"{self.path}: a boundary ends a document, and none is open (document {self._documents})")
        self._append(np.array([self.boundary_token_id], dtype=self.dtype), NO_MASK)
        self._open_document += 1
        self._end_document()

    def _end_document(self) -> None:
        if self._open_document is None:
            return
        if self._open_document == 0:
            raise WriterError(f"{self.path}: document {self._documents} has no tokens and no boundary")
        self._open_document = None
        self._end_at(np.array([self._tokens], dtype=np.uint64), None)

    # -- documents, many at once ------------------------------------------------------------------------------------

    def _begin_documents(self) -> None:
        self._writing()
        self._end_document()

    def _take(
        self, tokens: NDArray[Any], ends: NDArray[np.uint64], origins: Origins | None, mask: NDArray[np.uint8]
    ) -> None:
        self._end_at(ends + np.uint64(self._tokens), origins)
        self._append(tokens, mask)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _writing(self) -> ShardFile:
        if self._shard is None:
            left = "is closed" if self._whole else "was left by an error; its shard is incomplete"
            state = left if self._entered else "is not open; use it in a `with` statement"
            raise WriterError(f"{self.path}: the writer {state}")
        return self._shard

    def _end_at(self, ends: NDArray[np.uint64], origins: Origins | None) -> None:
        self._rows.add(ends, origins)
        self._documents += len(ends)

    def _append(self, tokens: NDArray[Any], mask: NDArray[np.uint8]) -> None:
        at, size = 0, len(self._buffer)
        self._tokens += len(tokens)
        while len(tokens) - at >= size - self._buffered:
            if self._buffered == 0:
                full, full_mask = tokens[at : at + size], mask[at : at + size]  # needs no copy
            else:
                stop = at + size - self._buffered
                self._buffer[self._buffered :] = tokens[at:stop]
                self._mask_buffer[self._buffered :] = mask[at:stop]
                full, full_mask = self._buffer, self._mask_buffer
            at += size - self._buffered
            self._buffered = 0
            with self._abandoning():
                self._write_tokens(full, full_mask)
                self._flush()
        rest = slice(self._buffered, self._buffered + len(tokens) - at)
        self._buffer[rest] = tokens[at:]
        self._mask_buffer[rest] = mask[at:]
        self._buffered = rest.stop

    def _write_tokens(self, tokens: NDArray[Any], mask: NDArray[np.uint8]) -> None:
        """Write chunks, all but the last of them full, and the mask of their tokens."""
        shard = self._writing()
        self._write_chunks(tokens, shard.tokens, shard.crc32, self._sha256)
        if shard.loss_mask is not None and shard.loss_mask_crc32 is not None:
            self._write_chunks(mask, shard.loss_mask, shard.loss_mask_crc32, self._mask_sha256)

    def _write_chunks(self, values: NDArray[Any], column: Column, checksums: Column, digest: Any) -> None:  # of hashlib
        values = np.ascontiguousarray(values)
        column.append(values)
        chunks = (values[start : start + self.chunk_size] for start in range(0, len(values), self.chunk_size))
        checksums.append(np.array([crc32(chunk.data) for chunk in chunks], dtype="<u4"))
        digest.update(values.data)

    def _flush(self) -> None:
        """Make what was written visible: tokens and documents first, then the attributes that count them."""
        shard = self._writing()
        written = shard.tokens.length
        documents = self._rows.write(shard, written)
        shard.file.flush()
        shard.token_count.set(written)
        shard.document_count.set(documents)
        shard.file.flush()
        size = self.path.stat().st_size
        if size - self._on_its_way >= _WRITEBACK_BYTES:
            start_writeback(self.path, self._on_its_way, size)
            self._on_its_way = size


def largest_chunk(vocab_size: int) -> int:
    """Tokens of a chunk at most, for tokens of a vocabulary of so many ids."""
    return _MAX_CHUNK_BYTES // np.dtype(dtype_name_for(vocab_size)).itemsize


def _whole_chunk(chunk_size: int, most: int) -> int:
    """`chunk_size` as an `int`, if HDF5 can have such chunks."""
    try:
        size = operator.index(chunk_size)
    except TypeError:
        size = 0
    if not 1 <= size <= most:
        raise WriterError(f"chunk_size is a number of tokens from 1 to {most}, not {chunk_size!r}")
    return size
