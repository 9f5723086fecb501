"""Documents -> tokenizer -> shards: the part of a build that one process does."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.building.encode import DocumentEncoder, EncodedBatch
from headrace.errors import BuildError, TokenizerError, WriterError
from headrace.manifest import INDEX_NAME, Manifest, ShardEntry
from headrace.storage.atomic import fresh_name, publish, write_bytes
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.load import resolve_boundary

__all__ = ["DEFAULT_CHUNK_SIZE", "Origins", "RollingShards", "ShardedTokenizationPipeline", "pack_documents"]

DEFAULT_CHUNK_SIZE = 65536
"""Tokens a chunk."""
_BATCH_BYTES = 1 << 21
"""UTF-8 bytes of documents encoded at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Origins:
    """Where the documents of a batch come from: three arrays of one length."""

    rows: NDArray[np.uint64]
    offsets: NDArray[np.uint64]
    files: NDArray[np.uint32]


class RollingShards:
    """Writes documents into one shard after another, each published under its final name when it is whole.

    A shard is closed at the first document end at or after `shard_tokens`. Nothing is created before the first document.

    Args:
        name: shard id of the k-th shard.
        folder: where the shards go.
        create: opens the writer of a shard at a path.
        shard_tokens: tokens after which a shard ends; None for one shard.
        published: is called with each whole shard.
    """

    def __init__(
        self,
        name: Callable[[int], str],
        folder: Path,
        create: Callable[[Path], HDF5ShardWriter],
        *,
        shard_tokens: int | None = None,
        published: Callable[[ShardEntry], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._folder = folder
        self._create = create
        self._shard_tokens = shard_tokens
        self._published = published
        self._writer: HDF5ShardWriter | None = None
        self._partial = folder
        self._stack = ExitStack()
        self.entries: list[ShardEntry] = []

    def add(self, batch: EncodedBatch, origins: Origins | None = None) -> None:
        """Append whole documents, rolling over as often as they need."""
        start, ends = 0, batch.ends
        while start < len(ends):
            writer = self._writer or self._begin()
            base = int(ends[start - 1]) if start else 0
            stop = len(ends)
            if self._shard_tokens is not None:
                room = self._shard_tokens - writer.token_count
                stop = min(int(np.searchsorted(ends, base + room, side="left")) + 1, stop)
            cut = slice(start, stop)
            writer.add_documents(
                batch.tokens[base : int(ends[stop - 1])],
                ends[cut] - base,
                rows=origins and origins.rows[cut],
                offsets=origins and origins.offsets[cut],
                files=origins and origins.files[cut],
            )
            if self._shard_tokens is not None and writer.token_count >= self._shard_tokens:
                self.finish()
            start = stop

    def _begin(self) -> HDF5ShardWriter:
        final = self._folder / f"{self._name(len(self.entries))}.h5"
        # Unique to this attempt, so that a second one never meets the first one's file.
        self._partial = fresh_name(final).with_suffix(".partial")
        self._writer = self._stack.enter_context(self._create(self._partial))
        return self._writer

    def finish(self) -> None:
        """Close and publish the open shard, if there is one."""
        if self._writer is None:
            return
        shard_id = self._name(len(self.entries))
        final = self._folder / f"{shard_id}.h5"
        self._stack.close()
        publish(self._partial, final)
        entry = replace(self._writer.result(shard_id), path=str(final))
        self._writer = None
        self.entries.append(entry)
        self._published(entry)

    def abandon(self) -> None:
        """Remove the unfinished shard, if there is one; published ones stay."""
        if self._writer is not None:
            self._stack.__exit__(BuildError, BuildError("abandoned"), None)
            self._partial.unlink(missing_ok=True)
            self._writer = None


class ShardedTokenizationPipeline:
    """Tokenizes documents into HDF5 shards and writes their `shards.json`.

    Args:
        tokenizer: a `BatchTokenizer`, such as `Tokenizer()` or what `load_tokenizer` returns.
        output_dir: the corpus folder; created if it is not there.
        chunk_size: tokens a chunk.
        boundary_token_id: id that ends each document; by default the tokenizer's own (see `resolve_boundary`).

    Raises:
        BoundaryError: the tokenizer does not say its boundary and none was given.
    """

    def __init__(
        self,
        tokenizer: BatchTokenizer,
        output_dir: str | Path,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
        *,
        boundary_token_id: int | None = None,
    ) -> None:
        if not callable(getattr(tokenizer, "encode_documents", None)):
            raise TokenizerError(
                f"{type(tokenizer).__name__} has no encode_documents(texts); wanted headrace.Tokenizer() or what "
                "headrace.tokenizers.load_tokenizer(path) returns"
            )
        if boundary_token_id is None:
            boundary_token_id = resolve_boundary(tokenizer, None)
        self.tokenizer = tokenizer
        self.output_dir = Path(output_dir)
        self.chunk_size = chunk_size
        self.empty_documents = 0
        """Documents with an empty text, dropped so far."""
        self._encoder = DocumentEncoder(tokenizer, boundary_token_id)
        self.output_dir.mkdir(parents=True, exist_ok=True)

    @property
    def boundary_token_id(self) -> int:
        """The id that ends each document."""
        return self._encoder.boundary

    def write_shard(self, shard_id: str, documents: Iterable[str]) -> ShardEntry:
        """Write one shard; its file appears when it is whole. Documents with an empty text are dropped and counted.

        Args:
            shard_id: a plain file name, without the `.h5`.
            documents: texts, read once.

        Returns:
            Its entry, with `global_start` 0.
        """
        if not shard_id or shard_id.startswith(".") or "/" in shard_id or "\0" in shard_id:
            raise WriterError(f"a shard id is a plain file name, not {shard_id!r}")
        shards = RollingShards(lambda _: shard_id, self.output_dir, self._writer)
        try:
            for texts in self._batches(documents):
                shards.add(self._encoder.encode(texts))
            shards.finish()
        except BaseException:
            shards.abandon()
            raise
        return shards.entries[0] if shards.entries else self._empty_shard(shard_id)

    def write_corpus(self, shards: Mapping[str, Iterable[str]]) -> list[ShardEntry]:
        """Write every shard in the mapping's order, then `shards.json`.

        Args:
            shards: documents by shard id.

        Returns:
            The entries, with absolute or given folder in their paths and their `global_start`.
        """
        entries: list[ShardEntry] = []
        start = 0
        for shard_id, documents in shards.items():
            entry = replace(self.write_shard(shard_id, documents), global_start=start)
            entries.append(entry)
            start += entry.token_count
        manifest = Manifest(
            chunk_size=self.chunk_size,
            shards=tuple(replace(entry, path=Path(entry.path).name) for entry in entries),
            dtype="uint16" if self._encoder.dtype.itemsize == 2 else "uint32",  # noqa: PLR2004  # bytes
            vocab_size=self.tokenizer.vocab_size,
            boundary_token_id=self.boundary_token_id,
            tokenizer=self.tokenizer.ref,
        )
        write_bytes(self.output_dir / INDEX_NAME, manifest.to_json())
        return entries

    def _writer(self, path: Path) -> HDF5ShardWriter:
        return HDF5ShardWriter(
            path,
            self.chunk_size,
            vocab_size=self.tokenizer.vocab_size,
            boundary_token_id=self.boundary_token_id,
            tokenizer_sha256=self.tokenizer.ref.sha256,
        )

    def _empty_shard(self, shard_id: str) -> ShardEntry:
        final = self.output_dir / f"{shard_id}.h5"
        partial = fresh_name(final).with_suffix(".partial")
        with self._writer(partial) as writer:
            pass
        publish(partial, final)
        return replace(writer.result(shard_id), path=str(final))

    def _batches(self, documents: Iterable[str]) -> Iterator[list[bytes]]:
        texts: list[bytes] = []
        size = 0
        for number, document in enumerate(documents):
            try:
                text = document.encode()
            except UnicodeEncodeError as error:
                raise TokenizerError(
                    f"document {number}: a lone surrogate at character {error.start}: no text"
                ) from error
            if not text:
                self.empty_documents += 1
                continue
            texts.append(text)
            size += len(text)
            if size >= _BATCH_BYTES:
                yield texts
                texts, size = [], 0
        if texts:
            yield texts


def pack_documents(
    tokenizer: Any,  # noqa: ANN401  # anything with encode(text) -> list[int]
    documents: Iterable[str],
    max_tokens: int,
    *,
    boundary_token_id: int | None = None,
) -> Generator[list[int], None, None]:
    """Pack documents into groups of exactly `max_tokens` ids, a boundary between documents.

    Long documents are split over groups; the last group may be short. The groups, joined, are the documents with one
    boundary between each two, wherever the groups' edges fall. Documents without tokens are left out.

    Args:
        tokenizer: has `encode(text) -> list[int]`.
        documents: texts.
        max_tokens: ids a group, at least 1.
        boundary_token_id: by default the tokenizer's own.

    Yields:
        Lists of `max_tokens` ids, the last one shorter if need be.
    """
    if max_tokens < 1:
        raise ValueError(f"max_tokens is at least 1, not {max_tokens}")
    boundary = resolve_boundary(tokenizer, None) if boundary_token_id is None else boundary_token_id
    group: list[int] = []
    first = True
    for document in documents:
        ids: Sequence[int] = tokenizer.encode(document)
        if not ids:
            continue
        if not first:
            group.append(boundary)
        first = False
        group.extend(ids)
        start = 0
        while len(group) - start >= max_tokens:
            yield group[start : start + max_tokens]
            start += max_tokens
        group = group[start:]
    if group:
        yield group
