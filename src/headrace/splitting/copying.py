"""One shard of a corpus -> one shard of each part that has documents of it: the unit of work of a split."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.building.encode import EncodedBatch
from headrace.building.job import Hooks
from headrace.building.output import remove_files, remove_lance_shard
from headrace.building.place import Place
from headrace.building.rolling import RollingShards, flush_chunks
from headrace.building.shard_writing import hdf5_shards, lance_shards
from headrace.building.tally import Reports, Tally
from headrace.corpus import MmapTokenStore
from headrace.manifest import By, ShardEntry, dtype_name_for
from headrace.sampling.sides import Sides
from headrace.sources.files import SourceFile, SourceShard
from headrace.splitting.pieces import Piece, document_hashes, read_pieces
from headrace.storage.document_columns import DocumentColumns
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import checked_layout, extents_of
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.storage.incoming import NO_HASHES, Origins
from headrace.storage.lance_names import is_lance
from headrace.tokenizers.base import BatchTokenizer

if TYPE_CHECKING:
    from headrace.storage.lance_writer import LanceShardWriter

__all__ = ["Copied", "SplitJob", "SplitOutcome"]


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
        tally = Tally()
        reports = Reports(tally, hooks.report)
        hooks.at(Place((Path(entry.path).name,)))
        try:
            with MmapTokenStore([entry], io="pread") as source:
                for piece in read_pieces(source, entry):
                    side = sides.of(document_hashes(piece, self.by, self.boundary_token_id))
                    for number, writer in enumerate(writers):
                        if writer is not None:
                            writer.add(piece, np.flatnonzero(side == number))
                    tally.input_bytes += piece.tokens.nbytes
                    tally.documents += len(piece.ends)
                    tally.tokens += len(piece.tokens)
                    reports.tell()
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
            if folder is not None:
                remove_files(folder, names.fullmatch)
                remove_lance_shard(folder, self.entry.shard_id)


class _Writer:
    """The shard of one part."""

    def __init__(self, job: SplitJob, folder: Path, compression: str) -> None:
        self._job = job
        self._folder = folder
        self._compression = compression
        self._columns: DocumentColumns | None = None
        self._documents = Counter[int]()
        begin = lance_shards(self._create_lance) if is_lance(job.entry.path) else hdf5_shards(self._create_hdf5)
        self._shards = RollingShards(lambda _: job.entry.shard_id, folder, begin)
        self.abandon = self._shards.abandon

    def _create_hdf5(self, path: Path) -> HDF5ShardWriter:
        job = self._job
        return HDF5ShardWriter(
            path,
            job.chunk_size,
            **self._options,
            compression=self._compression,
            flush_chunks=flush_chunks(job.chunk_size * job.itemsize),
        )

    def _create_lance(self, path: Path) -> "LanceShardWriter":
        from headrace.storage.lance_writer import LanceShardWriter  # noqa: PLC0415  # an extra

        return LanceShardWriter(path, self._job.chunk_size, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        """Of a writer, whichever the store."""
        job, columns = self._job, self._columns
        assert columns is not None  # noqa: S101  # a shard begins with its first document
        return {
            "vocab_size": job.vocab_size,
            "boundary_token_id": job.boundary_token_id,
            "tokenizer_sha256": job.tokenizer_sha256,
            "source_files": columns.files if len(columns.rows) else (),
            "document_ids": columns.id_ends is not None,
            "text_hashes": columns.text_hashes is not None,
            "loss_mask": bool(job.entry.loss_mask_sha256),
        }

    def add(self, piece: Piece, chosen: NDArray[np.intp]) -> None:
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
            entry=replace(
                written, path=str(path.relative_to(self._folder)), source=entry.source, row_base=entry.row_base
            ),
            extents=extents_of(checked_layout(path, written)),
            documents=self._documents,
        )


def _taken(piece: Piece, chosen: NDArray[np.intp]) -> EncodedBatch:
    """The tokens of some documents of a piece, and their loss mask."""
    ends = piece.ends
    if len(chosen) == len(ends):
        return EncodedBatch(piece.tokens, ends, 0, 0, piece.loss_mask)
    starts = np.concatenate([[0], ends[:-1]])
    # Neighbours are copied together: in the largest part there are few others between them.
    breaks = np.flatnonzero(chosen[1:] != chosen[:-1] + 1) + 1
    firsts = starts[chosen[np.concatenate([[0], breaks])]].tolist()
    stops = ends[chosen[np.concatenate([breaks - 1, [len(chosen) - 1]])]].tolist()
    runs = [slice(first, stop) for first, stop in zip(firsts, stops, strict=True)]
    tokens = np.concatenate([piece.tokens[run] for run in runs])
    mask = None if piece.loss_mask is None else np.concatenate([piece.loss_mask[run] for run in runs])
    return EncodedBatch(tokens, np.cumsum((ends - starts)[chosen]), 0, 0, mask)


def _origins(columns: DocumentColumns, chosen: NDArray[np.intp]) -> Origins | None:
    """What is stored of some documents beside what is stored of their tokens: every column that a shard may have."""
    if not len(columns.rows):
        return None
    return Origins(
        columns.rows[chosen],
        columns.offsets[chosen],
        columns.file_indices[chosen],
        [] if columns.id_ends is None else [columns.id_bytes(number) for number in chosen.tolist()],
        NO_HASHES if columns.text_hashes is None else columns.text_hashes[chosen],
    )
