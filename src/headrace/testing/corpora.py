"""Small corpora on disk, of tokens that a test chooses."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from headrace.building.shard_writing import hdf5_shards, lance_shards
from headrace.corpus import open_corpus
from headrace.manifest import INDEX_NAME, Manifest, ShardEntry, Store, TokenizerRef, dtype_name_for
from headrace.storage.hdf5_corpus import checked_layout, extents_of, write_sidecars
from headrace.storage.hdf5_writer import HDF5ShardWriter
from headrace.storage.index_sidecar import publish_index
from headrace.storage.lance_versions import commit
from headrace.storage.lance_writer import LanceShardWriter
from headrace.storage.stores import inspect_shard
from headrace.testing.contract import StoreCase

if TYPE_CHECKING:
    from headrace.storage.extents import ShardExtents

__all__ = ["corpus_case", "line_of", "random_documents", "small_corpus"]


def small_corpus(
    folder: str | Path,
    shards: Sequence[Sequence[ArrayLike]],
    *,
    chunk_size: int = 64,
    vocab_size: int = 257,
    boundary_token_id: int = 0,
    tokenizer: TokenizerRef | None = None,
    sidecar: bool = True,
    compression: str = "none",
    store: Store = "hdf5",
    masks: Sequence[Sequence[ArrayLike]] | None = None,
) -> Path:
    """Write a corpus as a build leaves it: shards, `shards.json` and, if asked, the sidecar.

    Args:
        folder: created if it is not there.
        shards: the documents of each shard, as token ids without the boundary, which is added; a shard may be empty.
        chunk_size: tokens a chunk.
        vocab_size: decides the dtype.
        boundary_token_id: ends each document.
        tokenizer: what the manifest says of it.
        sidecar: write the extents.
        compression: of the tokens, as for `HDF5ShardWriter`.
        store: `lance` for data sets of Lance, which list no empty shard.
        masks: which tokens of each document count in the loss, the boundary included; None for no loss mask.

    Returns:
        The folder.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    entries: list[ShardEntry] = []
    extents: list[ShardExtents] = []
    start = 0
    options: Any = {
        "vocab_size": vocab_size,
        "boundary_token_id": boundary_token_id,
        "loss_mask": masks is not None,
    }
    if store == "lance":
        begin = lance_shards(lambda path: LanceShardWriter(path, chunk_size, **options))
    else:
        begin = hdf5_shards(lambda path: HDF5ShardWriter(path, chunk_size, **options, compression=compression))
    for number, documents in enumerate(shards):
        shard = begin(folder, f"{number:06d}-0000-0000")
        for place, document in enumerate(documents):
            tokens = np.append(np.asarray(document, np.int64), boundary_token_id)
            mask = None if masks is None else np.asarray(masks[number][place])
            shard.writer.add_documents(tokens, np.array([len(tokens)]), loss_mask=mask)
        entry = shard.publish()
        extents.append(extents_of(checked_layout(Path(entry.path), entry)))
        entries.append(replace(entry, path=str(Path(entry.path).relative_to(folder)), global_start=start))
        start += entry.token_count
    manifest = Manifest(
        chunk_size=chunk_size,
        shards=tuple(entries),
        dtype=dtype_name_for(vocab_size),
        vocab_size=vocab_size,
        boundary_token_id=boundary_token_id,
        tokenizer=tokenizer,
        store=store,
    )
    if store == "lance":
        manifest = replace(manifest, lance=commit(folder, manifest))
    if sidecar:
        write_sidecars(folder, manifest.fingerprint.hex, extents)
    publish_index(folder / INDEX_NAME, manifest.to_json())
    return folder


def random_documents(
    seed: int, counts: Sequence[int], *, longest: int = 60, vocab_size: int = 257
) -> list[list[NDArray[np.int64]]]:
    """Documents of 1 to `longest` random ids from 1 on; `counts[i]` of them for shard i."""
    random = np.random.default_rng(seed)
    return [[random.integers(1, vocab_size, random.integers(1, longest + 1)) for _ in range(count)] for count in counts]


def line_of(
    shards: Sequence[Sequence[ArrayLike]], *, boundary_token_id: int = 0
) -> tuple[NDArray[np.int64], list[int]]:
    """What `small_corpus` must serve: all tokens, and each document's length, boundary included."""
    documents = [[*np.asarray(document).tolist(), boundary_token_id] for shard in shards for document in shard]
    tokens = np.array([token for document in documents for token in document], dtype=np.int64)
    return tokens, [len(document) for document in documents]


def corpus_case(
    folder: Path,
    shards: Sequence[Sequence[ArrayLike]],
    *,
    dtype: DTypeLike = np.uint16,
    store: object = None,
    **options: Any,  # noqa: ANN401  # of open_corpus
) -> StoreCase:
    """What `StoreContract` asks of a corpus that `small_corpus` has written.

    Args:
        folder: of the corpus.
        shards: that it was written of.
        dtype: that it must have.
        store: that is asked, with `entries`; the corpus itself by default.
        options: of `open_corpus`.
    """
    tokens, lengths = line_of(shards)
    found: Any = open_corpus(folder, **options) if store is None else store
    marks: set[int] = set()
    for entry in found.entries:
        layout = inspect_shard(Path(entry.path))
        firsts = [0, *layout.first.tolist(), *range(0, entry.token_count, layout.chunk_size)]
        marks.update(entry.global_start + first for first in firsts[:40])
    return StoreCase(store=found, tokens=tokens.astype(dtype), document_lengths=lengths, marks=tuple(sorted(marks)))
