"""Documents -> tokenizer -> shards: the part of a build that one process does."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.building.encode import DocumentEncoder
from headrace.building.output import publish_corpus, refuse_foreign_tokenizer
from headrace.building.rolling import RollingShards
from headrace.building.shard_writing import hdf5_shards
from headrace.errors import TokenizerError, WriterError
from headrace.manifest import INDEX_NAME, Manifest, ShardEntry, dtype_name_for
from headrace.storage.atomic import fsync_folder
from headrace.storage.hdf5_corpus import checked_layout, extents_of
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.load import resolve_boundary

__all__ = ["DEFAULT_CHUNK_SIZE", "ShardedTokenizationPipeline", "pack_documents"]

DEFAULT_CHUNK_SIZE = 65536
"""Tokens a chunk."""
_BATCH_BYTES = 1 << 21
"""UTF-8 bytes of documents encoded at once."""


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

        Raises:
            WriterError: a shard id that is no plain file name, or a text in place of texts.
            TokenizerError: a text that is not Unicode.
            BuildError: the disk is full, or the file cannot be written.
        """
        _check_shard(shard_id, documents)
        shards = RollingShards(lambda _: shard_id, self.output_dir, hdf5_shards(self._writer))
        try:
            for texts in self._batches(documents):
                shards.add(self._encoder.encode(texts))
            shards.create_empty()
            shards.finish()
        except BaseException:
            shards.abandon()
            raise
        return shards.entries[0]

    def write_corpus(self, shards: Mapping[str, Iterable[str]]) -> list[ShardEntry]:
        """Write every shard in the mapping's order, then `shards.json`. A corpus that is there is replaced.

        The old index goes first, so that whatever ends this early, no index tells of shards that are not its own.

        Args:
            shards: documents by shard id.

        Returns:
            The entries, with the output folder in their paths, and their `global_start`.

        Raises:
            OutputExistsError: a folder `tokenizer` that no build has left.
        """
        for shard_id, documents in shards.items():
            _check_shard(shard_id, documents)
        refuse_foreign_tokenizer(self.output_dir)
        (self.output_dir / INDEX_NAME).unlink(missing_ok=True)
        fsync_folder(self.output_dir)
        entries: list[ShardEntry] = []
        start = 0
        for shard_id, documents in shards.items():
            entry = replace(self.write_shard(shard_id, documents), global_start=start)
            entries.append(entry)
            start += entry.token_count
        manifest = Manifest(
            chunk_size=self.chunk_size,
            shards=tuple(replace(entry, path=Path(entry.path).name) for entry in entries),
            dtype=dtype_name_for(self.tokenizer.vocab_size),
            vocab_size=self.tokenizer.vocab_size,
            boundary_token_id=self.boundary_token_id,
            tokenizer=self.tokenizer.ref,
        )
        extents = [extents_of(checked_layout(Path(entry.path), entry)) for entry in entries]
        publish_corpus(self.output_dir, manifest, extents, self.tokenizer.files())
        return entries

    def _writer(self, path: Path) -> HDF5ShardWriter:
        return HDF5ShardWriter(
            path,
            self.chunk_size,
            vocab_size=self.tokenizer.vocab_size,
            boundary_token_id=self.boundary_token_id,
            tokenizer_sha256=self.tokenizer.ref.sha256,
        )

    def _batches(self, documents: Iterable[str]) -> Iterator[list[bytes]]:
        texts: list[bytes] = []
        size = 0
        for number, document in enumerate(documents):
            if not isinstance(document, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
                raise WriterError(f"document {number}: wanted a str, found {type(document).__name__}")
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


def _check_shard(shard_id: str, documents: Iterable[str]) -> None:
    if not shard_id or shard_id.startswith(".") or "/" in shard_id or not shard_id.isprintable():
        raise WriterError(f"a shard id is a plain file name, not {shard_id!r}")
    _refuse_one_text(documents, f"shard {shard_id}: ")


def _refuse_one_text(documents: Iterable[str], where: str = "") -> None:
    """Refuse a text, whose characters would be documents."""
    if isinstance(documents, str | bytes):
        raise WriterError(f"{where}wanted an iterable of documents, found one {type(documents).__name__}")


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

    Raises:
        ValueError: `max_tokens` is below 1.
        WriterError: (a ValueError) a text in place of texts.
        BoundaryError: (a ValueError) the tokenizer does not say its boundary and none was given.
    """
    _refuse_one_text(documents)
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
