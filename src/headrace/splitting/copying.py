"""One shard of a corpus -> one shard of each part that has documents of it: the unit of work of a split."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.building.encode import EncodedBatch
from headrace.building.job import REPORT_SECONDS, Hooks
from headrace.building.place import Place
from headrace.building.rolling import Origins, RollingShards, flush_chunks
from headrace.building.tally import Tally
from headrace.corpus import Corpus, MmapTokenStore
from headrace.errors import BuildError, CorruptShardError
from headrace.manifest import By, ShardEntry, dtype_name_for
from headrace.sampling.sides import HASH_BYTES, Sides
from headrace.sources.files import SourceFile, SourceShard
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import checked_layout, extents_of
from headrace.storage.hdf5_reader import DocumentColumns, read_documents_in_pieces
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.storage.incoming import OriginsDigest
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["Copied", "SplitJob", "SplitOutcome"]

_ROWS = 1 << 16
"""Documents whose index is read at once."""
_TOKENS = 1 << 22
"""Tokens that are read at once, if the first document is not longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A shard of a part."""

    entry: ShardEntry
    """`path` in the folder of the part, `global_start` 0."""
    extents: ShardExtents
    documents: Counter[int]
    """By the number of their source."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitOutcome:
    """What became of a shard."""

    number: int
    copied: tuple[Copied | None, ...]
    """By the number of the part; None where the part has no document of it, or was not to be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitJob:
    """Copies the documents of a shard, each into the part that its side says, in their order. See `headrace.building.job.Job`."""

    number: int
    """Of the shard in its corpus."""
    entry: ShardEntry
    """With an absolute path."""
    folders: tuple[Path | None, ...]
    """Of the parts, by number; None for one that is made already."""
    seed: int
    fractions: tuple[Fraction, ...]
    """Of the parts but the rest."""
    by: By
    """Of what a document's hash is."""
    compression: str | None
    """Of the new shards; None for the shard's own."""
    chunk_size: int
    vocab_size: int
    boundary_token_id: int
    tokenizer_sha256: str

    @property
    def shard(self) -> SourceShard:
        """The shard, as engines know those of a build."""
        path = Path(self.entry.path)
        file = SourceFile(path, path.name, self.entry.token_count * self.itemsize, "given", None)
        return SourceShard(self.number, (file,))

    @property
    def itemsize(self) -> int:
        """Bytes a token."""
        return np.dtype(dtype_name_for(self.vocab_size)).itemsize

    def run(self, tokenizer: BatchTokenizer | None, hooks: Hooks) -> SplitOutcome:  # noqa: ARG002  # as the protocol has it
        """Copy it.

        Raises:
            CorruptShardError: the shard is not what its entry says; nothing of it was published.
            NoDocumentsError: it stores no document index.
            BuildError: the disk is full, or a file cannot be written.
        """
        entry = self.entry
        layout = checked_layout(Path(entry.path), entry)
        compression = self.compression or layout.compression
        writers = [None if folder is None else _Writer(self, folder, compression) for folder in self.folders]
        sides = Sides(self.seed, self.fractions)
        tally = Tally(are_texts=False)
        told = time.monotonic()
        hooks.at(Place((Path(entry.path).name,)))
        try:
            with MmapTokenStore([entry], io="pread") as source:
                for piece in _pieces(source, entry):
                    side = sides.of(_hashes(piece, self.by, self.boundary_token_id))
                    for number, writer in enumerate(writers):
                        if writer is not None:
                            writer.add(piece, np.flatnonzero(side == number))
                    tally.input_bytes += piece.tokens.nbytes
                    tally.documents += len(piece.ends)
                    tally.tokens += len(piece.tokens)
                    if time.monotonic() - told >= REPORT_SECONDS:
                        hooks.report(tally)
                        told = time.monotonic()
            hooks.report(tally)
            copied = tuple(None if writer is None else writer.finish() for writer in writers)
        except BaseException:
            for writer in writers:
                if writer is not None:
                    writer.abandon()
            raise
        return SplitOutcome(number=self.number, copied=copied)

    def undo(self) -> None:
        """Remove what a process has left that died of it.

        Raises:
            BuildError: it cannot be removed.
        """
        names = re.compile(rf"(?:\.+{re.escape(self.entry.shard_id)}\.h5\..*)|{re.escape(self.entry.shard_id)}\.h5")
        for folder in self.folders:
            try:
                for path in folder.iterdir() if folder is not None else ():
                    if names.fullmatch(path.name):
                        path.unlink(missing_ok=True)
            except OSError as error:
                raise BuildError(f"{folder}: cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Some documents of a shard."""

    columns: DocumentColumns
    """The index of these and others: ..."""
    first: int
    """... these begin here, and are as many as ..."""
    ends: NDArray[np.int64]
    """... there are ends in ..."""
    tokens: NDArray[Any]
    """... their tokens."""


class _Writer:
    """The shard of one part."""

    def __init__(self, job: SplitJob, folder: Path, compression: str) -> None:
        self._job = job
        self._compression = compression
        self._columns: DocumentColumns | None = None
        self._documents = Counter[int]()
        self._shards = RollingShards(lambda _: job.entry.shard_id, folder, self._create)
        self.abandon = self._shards.abandon

    def _create(self, path: Path) -> HDF5ShardWriter:
        job, columns = self._job, self._columns
        assert columns is not None  # noqa: S101  # a shard begins with its first document
        return HDF5ShardWriter(
            path,
            job.chunk_size,
            vocab_size=job.vocab_size,
            boundary_token_id=job.boundary_token_id,
            tokenizer_sha256=job.tokenizer_sha256,
            source_files=columns.files if len(columns.rows) else (),
            document_ids=columns.id_ends is not None,
            compression=self._compression,
            flush_chunks=flush_chunks(job.chunk_size * job.itemsize),
        )

    def add(self, piece: _Piece, chosen: NDArray[np.intp]) -> None:
        """Append some documents of a piece, by their numbers in it."""
        if not len(chosen):
            return
        columns = self._columns = piece.columns
        self._shards.add(_taken(piece, chosen), _origins(columns, chosen + piece.first))
        if len(columns.rows):
            for file, count in enumerate(np.bincount(columns.file_indices[chosen + piece.first]).tolist()):
                self._documents[self._job.entry.source + file] += count

    def finish(self) -> Copied | None:
        """Publish the shard, if it has documents."""
        self._shards.finish()
        if not self._shards.entries:
            return None
        (written,) = self._shards.entries
        path, entry = Path(written.path), self._job.entry
        return Copied(
            entry=replace(written, path=path.name, source=entry.source, row_base=entry.row_base),
            extents=extents_of(checked_layout(path, written)),
            documents=self._documents,
        )


def _taken(piece: _Piece, chosen: NDArray[np.intp]) -> EncodedBatch:
    """The tokens of some documents of a piece."""
    ends = piece.ends
    starts = np.concatenate([[0], ends[:-1]])
    lengths = (ends - starts)[chosen]
    if len(chosen) == len(ends):
        return EncodedBatch(piece.tokens, ends, 0, 0)
    # Neighbours are copied together: in the largest part there are few others between them.
    breaks = np.flatnonzero(chosen[1:] != chosen[:-1] + 1) + 1
    firsts = starts[chosen[np.concatenate([[0], breaks])]].tolist()
    stops = ends[chosen[np.concatenate([breaks - 1, [len(chosen) - 1]])]].tolist()
    runs = [piece.tokens[first:stop] for first, stop in zip(firsts, stops, strict=True)]
    return EncodedBatch(np.concatenate(runs), np.cumsum(lengths), 0, 0)


def _origins(columns: DocumentColumns, chosen: NDArray[np.intp]) -> Origins | None:
    """What is stored of some documents beside their tokens. Every column that a shard may have is named here."""
    if not len(columns.rows):
        return None
    ids = [] if columns.id_ends is None else [columns.id_bytes(number) for number in chosen.tolist()]
    return Origins(columns.rows[chosen], columns.offsets[chosen], columns.file_indices[chosen], ids)


def _pieces(source: Corpus, entry: ShardEntry) -> Iterator[_Piece]:
    """The documents of a shard in order, compared with its entry once they are all given; `source` serves it alone.

    Raises:
        CorruptShardError: the shard is not what the entry says.
    """
    path = Path(entry.path)
    tokens_sha256, ends_sha256, origins = hashlib.sha256(), hashlib.sha256(), OriginsDigest()
    files: tuple[str, ...] = ()
    begin = 0
    for columns in read_documents_in_pieces(path, entry.document_count, _ROWS):
        files = columns.files
        ends_sha256.update(columns.ends.astype("<u8", copy=False).data)
        columns.feed(origins)
        _require_sound(columns, begin, entry)
        ends = columns.ends.astype(np.int64)
        first = 0
        while first < len(ends):
            last = max(int(np.searchsorted(ends, begin + _TOKENS, side="right")), first + 1)
            stop = int(ends[last - 1])
            tokens = source.get_slice(begin, stop)
            tokens_sha256.update(tokens.data)
            yield _Piece(columns, first, ends[first:last] - begin, tokens)
            first, begin = last, stop
    for what, wanted, found in (
        ("number of tokens in its documents", entry.token_count, begin),
        ("SHA-256 of its tokens", entry.sha256, tokens_sha256.hexdigest()),
        ("SHA-256 of its document ends", entry.documents_sha256, ends_sha256.hexdigest()),
        ("SHA-256 of its sources", entry.sources_sha256, origins.hex(files) if files else ""),
    ):
        if wanted not in {found, ""}:
            raise _damaged(entry, f"the {what} is {found}, but shards.json says {wanted}")


def _require_sound(columns: DocumentColumns, begin: int, entry: ShardEntry) -> None:
    """Refuse what would be read beyond the shard, or put into no file."""
    ends = columns.ends
    if int(ends[0]) <= begin or int(ends[-1]) > entry.token_count or bool((ends[1:] <= ends[:-1]).any()):
        raise _damaged(entry, f"its document ends do not increase to its {entry.token_count} tokens")
    if len(columns.rows) and int(columns.file_indices.max()) >= len(columns.files):
        raise _damaged(entry, f"it names source file {int(columns.file_indices.max())} of {len(columns.files)}")


def _damaged(entry: ShardEntry, fault: str) -> CorruptShardError:
    return CorruptShardError(
        f"{entry.path}: {fault}; nothing was split (`headrace verify` lists everything that is damaged)"
    )


def _hashes(piece: _Piece, by: By, boundary: int) -> NDArray[np.uint8]:
    """The hash of each document of a piece, shape (n, 16)."""
    if by == "text":
        raise NotImplementedError
    ends = piece.ends
    # Of every dtype the same, and of every boundary.
    data = piece.tokens.astype("<u4").data.cast("B")
    stops = (4 * (ends - (piece.tokens[ends - 1] == boundary))).tolist()
    starts = (4 * np.concatenate([[0], ends[:-1]])).tolist()
    hashes = b"".join(
        hashlib.sha256(data[start:stop]).digest()[:HASH_BYTES] for start, stop in zip(starts, stops, strict=True)
    )
    return np.frombuffer(hashes, np.uint8).reshape(-1, HASH_BYTES)
