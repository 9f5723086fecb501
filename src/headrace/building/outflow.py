"""From batches of documents to the shards of a job: encoded on its own thread, written on the lane's."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.building.encode import DocumentEncoder, EncodedBatch
from headrace.building.lane import Lane
from headrace.building.rolling import Opened, RollingShards, flush_chunks
from headrace.building.shard_writing import BeginShard, hdf5_shards, lance_shards
from headrace.errors import TokenizerError
from headrace.manifest import ShardEntry
from headrace.sources import DocumentBatch
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import checked_layout, extents_of
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.storage.incoming import Origins
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.reference import UnencodedTextError

if TYPE_CHECKING:
    from headrace.building.job import ContentOptions

__all__ = ["LARGE_BATCH", "Outflow"]

LARGE_BATCH = 1 << 24
"""UTF-8 bytes above which a batch is encoded only after all before it are written."""


class Outflow:
    """Writes the shards of a job. A context manager: leaving it with an exception removes the unfinished shard.

    Args:
        options: of the build.
        tokenizer: the build's.
        folder: where the shards go.
        labels: of the files that documents come from.
        lane: on which they are written.
        name: shard id of the k-th shard of a cut.
        opened: is called with each shard that is begun, once others can follow it.

    Attributes:
        shards: what is written; only the lane calls it, until `finish`.
    """

    def __init__(
        self,
        options: "ContentOptions",
        tokenizer: BatchTokenizer,
        folder: Path,
        labels: Sequence[str],
        *,
        lane: Lane,
        name: Callable[[int], str],
        opened: Opened,
    ) -> None:
        self._lane = lane
        self._encoder = DocumentEncoder(
            tokenizer,
            options.boundary_token_id,
            bos=options.bos_token_id,
            max_document_tokens=options.max_document_tokens,
        )
        self._extents: list[ShardExtents] = []

        self._folder = folder
        self._labels = labels
        begin = _begin_by(options, tokenizer, labels, self._encoder.dtype.itemsize)
        self.shards = RollingShards(
            name, folder, begin, shard_tokens=options.shard_tokens, opened=opened, published=self._published
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.shards.abandon()

    def add(self, batch: DocumentBatch) -> EncodedBatch:
        """Encode the documents of a batch that has some, let them be written, and return them encoded.

        Raises:
            TokenizerError: a document that the tokenizer has no ids for; the message names file and line.
        """
        if sum(map(len, batch.texts)) > LARGE_BATCH:
            self._lane.drain()  # for the memory: no tokens of large documents wait
        try:
            encoded = self._encoder.encode(batch.texts)
        except UnencodedTextError as error:
            place = f"{self._labels[int(batch.files[error.index])]}:{int(batch.rows[error.index]) + 1}"
            raise TokenizerError(f"{place}: {error.summary}") from error
        rows = batch.rows - batch.rows.dtype.type(batch.row_base)
        self._lane.call(self.shards.add, encoded, Origins(rows, batch.offsets, batch.files, batch.ids, batch.hashes))
        return encoded

    def finish(self, source: int) -> tuple[tuple[ShardEntry, ...], tuple[ShardExtents, ...]]:
        """Close the last shard, after the lane is drained.

        Args:
            source: see `ShardEntry`.

        Returns:
            All entries, their paths relative to the folder; and the extents of each.

        Raises:
            BuildError: a file cannot be written.
        """
        self.shards.finish()
        entries = (
            replace(entry, path=str(Path(entry.path).relative_to(self._folder)), source=source)
            for entry in self.shards.entries
        )
        return tuple(entries), tuple(self._extents)

    def _published(self, entry: ShardEntry) -> None:
        self._extents.append(extents_of(checked_layout(Path(entry.path), entry)))


def _begin_by(options: "ContentOptions", tokenizer: BatchTokenizer, labels: Sequence[str], itemsize: int) -> BeginShard:
    """Begins shards of the build's store; a token has `itemsize` bytes."""
    common: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "boundary_token_id": options.boundary_token_id,
        "tokenizer_sha256": tokenizer.ref.sha256,
        "source_files": labels,
        "document_ids": options.id_field is not None,
        "text_hashes": options.dedup != "none",
        "loss_mask": options.loss_mask,
    }
    if options.store == "lance":
        from headrace.storage.lance_writer import LanceShardWriter  # noqa: PLC0415  # an extra

        return lance_shards(lambda path: LanceShardWriter(path, options.chunk_tokens, **common))
    return hdf5_shards(
        lambda path: HDF5ShardWriter(
            path,
            options.chunk_tokens,
            **common,
            compression=options.compression,
            flush_chunks=flush_chunks(options.chunk_tokens * itemsize),
        )
    )
