"""Writing the data files of one Lance shard: its documents, its tokens, and their loss mask if there is one."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import WriterError
from headrace.manifest import ShardEntry
from headrace.storage.atomic import fsync_file
from headrace.storage.document_writer import DocumentWriter
from headrace.storage.incoming import Origins, OriginsDigest
from headrace.storage.lance_names import COLUMN, docs_path, mask_path, require_lance
from headrace.storage.lance_shard import Head
from headrace.storage.lance_values import DATA_STORAGE_VERSION, LanceValues
from headrace.storage.layout import LOSS_MASK

__all__ = ["MOST_ROWS", "LanceShardWriter", "docs_schema", "import_lance"]

MOST_ROWS = (1 << 32) - 1
"""Of a data file, and so of a shard: Lance numbers the rows of a fragment by 32 bits."""
_ROWS = 1 << 16
"""Documents that are written at once."""
_VERSION = 2


def import_lance(wanted: str) -> Any:  # noqa: ANN401  # a module without types
    """The module `lance`, from whose first import on no process may fork.

    Raises:
        MissingExtraError: (an ImportError) it is not installed.
    """
    require_lance(wanted)
    import lance  # noqa: PLC0415  # heavy, an extra

    return lance


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


class LanceShardWriter(DocumentWriter):
    """Writes documents into the data files of a Lance shard, which no data set has until they are committed.

    A context manager. Left normally, all files are whole and on disk. What decides the rows is the sequence of documents.
    Not safe for use by several threads at once.

    Args:
        path: the data file of the tokens; those of the documents and of the loss mask lie at `docs_path(path)` and
            `mask_path(path)`. Their folders exist.
        chunk_size: tokens for which there is a checksum, at least 1.
        vocab_size, boundary_token_id, tokenizer_sha256, source_files, document_ids, text_hashes, loss_mask: see
            `DocumentWriter`.

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
        loss_mask: bool = False,
    ) -> None:
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
        import_lance("a Lance corpus")
        names = ["end", *(["source_row", "source_byte", "source_file"] if source_files else [])]
        names += ["text_hash"] * text_hashes + ["id"] * document_ids
        self._docs_schema = docs_schema(names)
        self._files: tuple[LanceValues, Any, LanceValues | None] | None = None
        self._pending: list[tuple[NDArray[np.uint64], Origins | None]] = []
        self._pending_rows = 0
        self._id_bytes = 0
        self._ends_sha256, self._origins_sha256 = hashlib.sha256(), OriginsDigest()
        self._entry: ShardEntry | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        from lance.file import LanceFileWriter  # noqa: PLC0415  # heavy

        self._files = (
            LanceValues(self.path, COLUMN, self.dtype, self.chunk_size),
            LanceFileWriter(str(docs_path(self.path)), self._docs_schema, version=DATA_STORAGE_VERSION),
            LanceValues(mask_path(self.path), LOSS_MASK, np.dtype(np.uint8), self.chunk_size)
            if self.loss_mask
            else None,
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
        tokens, docs, mask = self._open_files()
        self._write_rows()
        tokens.close()
        if mask is not None:
            mask.close()
        head = Head(
            format_version=_VERSION,
            token_count=self._tokens,
            document_count=self._documents,
            sha256=tokens.sha256,
            documents_sha256=self._ends_sha256.hexdigest(),
            chunk_size=self.chunk_size,
            vocab_size=self.vocab_size,
            boundary_token_id=self.boundary_token_id,
            tokenizer_sha256=self.tokenizer_sha256,
            frame_sha256=tokens.frame_sha256,
            files=self.source_files,
            columns=tuple(self._docs_schema.names),
            loss_mask_sha256=mask.sha256 if mask else "",
            loss_mask_frame_sha256=mask.frame_sha256 if mask else "",
        )
        docs.add_global_buffer(head.to_json())
        for values in (tokens, mask):
            if values is not None and values.crcs:
                docs.add_global_buffer(np.array(values.crcs, "<u4").tobytes())
        docs.close()
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
            loss_mask_sha256=head.loss_mask_sha256,
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
    def buffered_bytes(self) -> int:
        """Size of the tokens that are not written yet, and of their mask."""
        tokens, _, mask = self._open_files()
        return tokens.buffered_bytes + (mask.buffered_bytes if mask else 0)

    @property
    def paths(self) -> tuple[Path, ...]:
        """All of its files, that of the tokens last."""
        return (docs_path(self.path), *([mask_path(self.path)] if self.loss_mask else []), self.path)

    def _open_files(self) -> "tuple[LanceValues, Any, LanceValues | None]":
        if self._files is None:
            raise WriterError(f"{self.path}: the writer is not open: use it in a `with` statement")
        return self._files

    # -- documents --------------------------------------------------------------------------------------------------

    def _begin_documents(self) -> None:
        self._open_files()

    def _take(
        self, tokens: NDArray[Any], ends: NDArray[np.uint64], origins: Origins | None, mask: NDArray[np.uint8]
    ) -> None:
        token_file, _, mask_file = self._open_files()
        if self._tokens + len(tokens) > MOST_ROWS:
            raise WriterError(f"{self.path}: a Lance shard holds {MOST_ROWS:,} tokens at most; give --shard-tokens")
        self._pending.append((ends + np.uint64(self._tokens), origins))
        self._pending_rows += len(ends)
        self._documents += len(ends)
        self._tokens += len(tokens)
        token_file.append(tokens)
        if mask_file is not None:
            mask_file.append(mask)
        if self._pending_rows >= _ROWS:
            self._write_rows()

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
        self._write(columns)

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

    def _write(self, columns: Sequence[Any]) -> None:
        import pyarrow as pa  # noqa: PLC0415  # heavy

        arrays = [pa.array(column) if isinstance(column, np.ndarray) else column for column in columns]
        self._open_files()[1].write_batch(pa.record_batch(arrays, schema=self._docs_schema))


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
