"""Writing the two data files of one Lance shard: its tokens, and its documents."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from isal.isal_zlib import crc32
from numpy.typing import NDArray

from headrace.errors import TokenIdError, WriterError
from headrace.manifest import ShardEntry, dtype_name_for
from headrace.storage.atomic import fsync_file, start_writeback
from headrace.storage.incoming import NO_HASHES, Origins, OriginsDigest, checked_ends, checked_tokens
from headrace.storage.lance_file import read_lance_file
from headrace.storage.lance_names import COLUMN, docs_path, require_lance
from headrace.storage.lance_shard import Head, frame_sha256, token_layout

__all__ = ["DATA_STORAGE_VERSION", "MOST_ROWS", "LanceShardWriter", "docs_schema", "import_lance", "token_schema"]

DATA_STORAGE_VERSION = "2.0"
"""The newest in which plain values lie on disk as they are."""
MOST_ROWS = (1 << 32) - 1
"""Of a data file, and so of a shard: Lance numbers the rows of a fragment by 32 bits."""
_BLOCK_BYTES = 1 << 23
"""Tokens that become a page: a multiple of what pages are aligned to, so that one lies right behind the other."""
_ROWS = 1 << 16
"""Documents that are written at once."""
_WRITEBACK_BYTES = 1 << 24
"""After so many more bytes, they begin to go to the disk."""
_VERSION = 2
_SHA256_KEY = "headrace.sha256"


def import_lance(wanted: str) -> Any:  # noqa: ANN401  # a module without types
    """The module `lance`, from whose first import on no process may fork.

    Raises:
        MissingExtraError: (an ImportError) it is not installed.
    """
    require_lance(wanted)
    import lance  # noqa: PLC0415  # heavy, an extra

    return lance


def token_schema(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401  # pyarrow has no types
    """Of the data set of tokens, without metadata."""
    import pyarrow as pa  # noqa: PLC0415  # heavy

    return pa.schema([pa.field(COLUMN, pa.from_numpy_dtype(dtype.newbyteorder("=")), nullable=False)])


def docs_schema(names: Sequence[str] | None = None) -> Any:  # noqa: ANN401  # likewise
    """Of the data set of documents, without metadata.

    Args:
        names: the columns of one data file, which all have values; by default all that there may be: a shard has none of
            those that its build did not keep.
    """
    import pyarrow as pa  # noqa: PLC0415  # heavy

    types = {
        "end": pa.uint64(),
        "source_row": pa.uint64(),
        "source_byte": pa.uint64(),
        "source_file": pa.uint32(),
        "text_hash": pa.binary(16),
        "id": pa.large_string(),
    }
    nullable = names is None
    return pa.schema([pa.field(name, types[name], nullable=nullable and name != "end") for name in names or types])


class LanceShardWriter:
    """Writes documents into the two data files of a Lance shard, which no data set has until they are committed.

    A context manager. Left normally, both files are whole and on disk. What decides the rows is the sequence of documents.
    Not safe for use by several threads at once.

    Args:
        path: the data file of the tokens; that of the documents lies at `docs_path(path)`. Both folders exist.
        chunk_size: tokens for which there is a checksum, at least 1.
        vocab_size: highest token id + 1; decides the dtype (uint16 up to 65,536, else uint32).
        boundary_token_id: as the shard says it.
        tokenizer_sha256: identity of the tokenizer, 64 hex digits or empty.
        source_files: labels of the files that documents come from; empty if their origin is not recorded.
        document_ids: whether each document has an id, beside its source.
        text_hashes: whether the hash of each document's text is stored, likewise.

    Raises:
        WriterError: (a ValueError) for arguments or calls that would lose or blur documents.
        MissingExtraError: (an ImportError) pylance is not installed.
        TokenIdError: (a ValueError) for an id that is not below `vocab_size`.
        OSError, ValueError: Lance cannot write, as where the disk is full.
    """

    def __init__(
        self,
        path: Path,
        chunk_size: int,
        *,
        vocab_size: int = 65536,
        boundary_token_id: int = 0,
        tokenizer_sha256: str = "",
        source_files: Sequence[str] = (),
        document_ids: bool = False,
        text_hashes: bool = False,
    ) -> None:
        if not 0 <= boundary_token_id < vocab_size:
            raise TokenIdError(f"boundary_token_id {boundary_token_id} is not in a vocabulary of {vocab_size} ids")
        import_lance("a Lance corpus")
        self.path = path
        self.chunk_size = chunk_size
        self.vocab_size = vocab_size
        self.boundary_token_id = boundary_token_id
        self.tokenizer_sha256 = tokenizer_sha256
        self.source_files = tuple(source_files)
        self.document_ids = document_ids
        self.text_hashes = text_hashes
        self.dtype: np.dtype[Any] = np.dtype(dtype_name_for(vocab_size)).newbyteorder("<")
        self._schema = token_schema(self.dtype)
        names = ["end", *(["source_row", "source_byte", "source_file"] if source_files else [])]
        names += ["text_hash"] * text_hashes + ["id"] * document_ids
        self._docs_schema = docs_schema(names)
        self._files: tuple[Any, Any] | None = None
        self._block = np.empty(_BLOCK_BYTES // self.dtype.itemsize, self.dtype)
        self._buffered = self._tokens = self._documents = self._written = self._on_its_way = 0
        self._pending: list[tuple[NDArray[np.uint64], Origins | None]] = []
        self._pending_rows = 0
        self._crc = 0
        """Of the chunk that is not whole yet, and ..."""
        self._crcs: list[int] = []
        """... of those before it."""
        self._id_bytes = 0
        self._sha256, self._ends_sha256, self._origins_sha256 = hashlib.sha256(), hashlib.sha256(), OriginsDigest()
        self._entry: ShardEntry | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        from lance.file import LanceFileWriter  # noqa: PLC0415  # heavy

        self._files = (
            LanceFileWriter(str(self.path), self._schema, version=DATA_STORAGE_VERSION),
            LanceFileWriter(str(docs_path(self.path)), self._docs_schema, version=DATA_STORAGE_VERSION),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._files = None  # Lance removes what is not whole

    def close(self) -> None:
        """Write what is buffered, and wait until all of it is on disk. Idempotent."""
        if self._entry is not None:
            return
        tokens, docs = self._open_files()
        self._write_tokens()
        self._write_rows()
        if self._tokens % self.chunk_size:
            self._crcs.append(self._crc)
        tokens.add_schema_metadata(_SHA256_KEY, self._sha256.hexdigest())
        tokens.close()
        file = read_lance_file(self.path)
        token_layout(file, self.dtype, self._tokens)  # or it is not as we read it
        head = Head(
            format_version=_VERSION,
            token_count=self._tokens,
            document_count=self._documents,
            sha256=self._sha256.hexdigest(),
            documents_sha256=self._ends_sha256.hexdigest(),
            chunk_size=self.chunk_size,
            vocab_size=self.vocab_size,
            boundary_token_id=self.boundary_token_id,
            tokenizer_sha256=self.tokenizer_sha256,
            frame_sha256=frame_sha256(file),
            files=self.source_files,
            columns=tuple(self._docs_schema.names),
        )
        docs.add_global_buffer(head.to_json())
        if self._crcs:
            docs.add_global_buffer(np.array(self._crcs, "<u4").tobytes())
        docs.close()
        fsync_file(self.path)
        fsync_file(docs_path(self.path))
        self._files = None
        self._entry = ShardEntry(
            shard_id="",
            path=str(self.path),
            token_count=self._tokens,
            document_count=self._documents,
            sha256=head.sha256,
            documents_sha256=head.documents_sha256,
            sources_sha256=self._origins_sha256.hex(self.source_files) if self.source_files else "",
            docs_sha256=_sha256_of(docs_path(self.path)),
        )

    def result(self) -> ShardEntry:
        """The manifest entry of the closed shard, without a `shard_id`, with `global_start` 0.

        Raises:
            WriterError: the writer is not closed, or was left by an exception.
        """
        if self._entry is None:
            raise WriterError(f"{self.path}: result() is known once the writer is closed without an error")
        return self._entry

    @property
    def token_count(self) -> int:
        """Tokens taken so far, buffered ones included."""
        return self._tokens

    @property
    def buffered_bytes(self) -> int:
        """Size of the tokens that are not written yet."""
        return self._buffered * self.dtype.itemsize

    def _open_files(self) -> tuple[Any, Any]:
        if self._files is None:
            raise WriterError(f"{self.path}: the writer is not open: use it in a `with` statement")
        return self._files

    # -- documents --------------------------------------------------------------------------------------------------

    def add_documents(
        self,
        tokens: NDArray[Any],
        ends: NDArray[Any],
        *,
        rows: NDArray[Any] | None = None,
        offsets: NDArray[Any] | None = None,
        files: NDArray[Any] | None = None,
        ids: Sequence[bytes] = (),
        hashes: NDArray[np.uint8] = NO_HASHES,
        loss_mask: NDArray[Any] | None = None,
        checked: bool = False,
    ) -> None:
        """Append whole documents, boundaries included: see `HDF5ShardWriter.add_documents`. No loss mask is kept."""
        self._open_files()
        if loss_mask is not None:
            raise WriterError(f"{self.path}: a Lance shard keeps no loss mask")
        if not checked or tokens.dtype != self.dtype:
            tokens = checked_tokens(tokens, self.dtype, self.vocab_size, path=self.path, document=self._documents)
        stops = checked_ends(ends, len(tokens), path=self.path)
        origins = self._origins(len(stops), rows, offsets, files)
        if len(ids) != self.document_ids * len(stops) or len(hashes) != self.text_hashes * len(stops):
            raise WriterError(f"{self.path}: {len(stops)} documents, {len(ids)} ids and {len(hashes)} hashes of texts")
        if origins is not None:
            origins.ids, origins.hashes = tuple(ids), hashes.copy()
        if not len(stops):
            return
        if self._tokens + len(tokens) > MOST_ROWS:
            raise WriterError(f"{self.path}: a Lance shard holds {MOST_ROWS:,} tokens at most; give --shard-tokens")
        self._pending.append((stops + np.uint64(self._tokens), origins))
        self._pending_rows += len(stops)
        self._documents += len(stops)
        self._append(tokens)
        if self._pending_rows >= _ROWS:
            self._write_rows()

    def _origins(
        self, count: int, rows: NDArray[Any] | None, offsets: NDArray[Any] | None, files: NDArray[Any] | None
    ) -> Origins | None:
        if rows is None and offsets is None and files is None and not self.source_files:
            return None
        if rows is None or offsets is None or files is None or not self.source_files:
            raise WriterError(
                f"{self.path}: rows, offsets and files are given together, iff the writer has source files"
            )
        return Origins.checked(rows, offsets, files, count=count, file_count=len(self.source_files), path=self.path)

    # -- writing ----------------------------------------------------------------------------------------------------

    def _append(self, tokens: NDArray[Any]) -> None:
        done = 0
        while done < len(tokens):
            count = min(len(tokens) - done, len(self._block) - self._buffered)
            self._block[self._buffered : self._buffered + count] = tokens[done : done + count]
            self._buffered += count
            self._tokens += count
            done += count
            if self._buffered == len(self._block):
                self._write_tokens()

    def _write_tokens(self) -> None:
        """Write the block, which is Lance's from then on."""
        if not self._buffered:
            return
        block, self._block = self._block[: self._buffered], np.empty(len(self._block), self.dtype)
        self._buffered = 0
        self._sha256.update(block.data)
        self._sum(block)
        self._write(0, [block])
        self._written += block.nbytes
        if self._written - self._on_its_way >= _WRITEBACK_BYTES:
            self._start_writeback()

    def _sum(self, block: NDArray[Any]) -> None:
        """Take the checksums of the chunks that end in a block; `_crc` is that of the one behind them, so far."""
        first = self._tokens - len(block)
        at = 0
        while at < len(block):
            count = min(self.chunk_size - (first + at) % self.chunk_size, len(block) - at)
            self._crc = crc32(block[at : at + count].data, self._crc)
            at += count
            if (first + at) % self.chunk_size == 0:
                self._crcs.append(self._crc)
                self._crc = 0

    def _start_writeback(self) -> None:
        growing = [entry for entry in self.path.parent.iterdir() if entry.name.startswith(".")]
        for path in growing:  # as Lance names a file before it is whole
            start_writeback(path, self._on_its_way, self._written)
        self._on_its_way = self._written

    def _write_rows(self) -> None:
        runs, self._pending, self._pending_rows = self._pending, [], 0
        if not runs:
            return
        ends = np.concatenate([stops for stops, _ in runs])
        self._ends_sha256.update(ends.astype("<u8", copy=False).data)
        columns: list[Any] = [ends]
        origins = [one for _, one in runs if one is not None]
        if origins:
            columns += self._origin_columns(origins)
        self._write(1, columns)

    def _origin_columns(self, runs: Sequence[Origins]) -> list[Any]:
        import pyarrow as pa  # noqa: PLC0415  # heavy

        rows, offsets, files = (
            np.concatenate([getattr(one, name) for one in runs]) for name in ("rows", "offsets", "files")
        )
        self._origins_sha256.update(rows, offsets, files)
        columns: list[Any] = [rows, offsets, files]
        if self.text_hashes:
            hashes = np.concatenate([one.hashes for one in runs])
            self._origins_sha256.update_hashes(hashes)
            columns.append(
                pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(hashes), [None, pa.py_buffer(hashes)])
            )
        if self.document_ids:
            names = [name for one in runs for name in one.ids]
            stops = np.cumsum([len(name) for name in names], dtype=np.uint64)
            self._origins_sha256.update_ids(stops + np.uint64(self._id_bytes), np.frombuffer(b"".join(names), np.uint8))
            self._id_bytes += int(stops[-1])
            columns.append(pa.array([name.decode() for name in names], pa.large_string()))
        return columns

    def _write(self, file: int, columns: Sequence[Any]) -> None:
        import pyarrow as pa  # noqa: PLC0415  # heavy

        schema = (self._schema, self._docs_schema)[file]
        arrays = [pa.array(column) if isinstance(column, np.ndarray) else column for column in columns]
        self._open_files()[file].write_batch(pa.record_batch(arrays, schema=schema))


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
