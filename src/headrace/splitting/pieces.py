"""The documents of a shard, a piece at a time, every byte verified; and the hashes by which they go."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.corpus import Corpus
from headrace.errors import CorruptShardError
from headrace.manifest import By, ShardEntry
from headrace.storage.document_columns import DocumentColumns
from headrace.storage.incoming import HASH_BYTES, OriginsDigest
from headrace.storage.stores import read_documents_in_pieces

__all__ = ["Piece", "document_hashes", "read_pieces"]

_ROWS = 1 << 16
"""Documents whose index is read at once."""
_TOKENS = 1 << 22
"""Tokens that are read at once, if the first document is not longer."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some documents of a shard."""

    columns: DocumentColumns
    """The index of these and others: ..."""
    first: int
    """... these begin here, and are as many as ..."""
    ends: NDArray[np.int64]
    """... there are ends in ..."""
    tokens: NDArray[Any]
    """... their tokens."""
    loss_mask: NDArray[np.uint8] | None
    """Of the tokens; None where none is stored."""


def read_pieces(source: Corpus, entry: ShardEntry) -> Iterator[Piece]:
    """The documents of a shard in order, compared with its entry once they are all given; `source` serves it alone.

    Raises:
        CorruptShardError: the shard is not what the entry says.
    """
    path = Path(entry.path)
    tokens_sha256, ends_sha256, mask_sha256, origins = *(hashlib.sha256() for _ in range(3)), OriginsDigest()
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
            mask = source.loss_mask(begin, stop) if source.has_loss_mask else None
            if mask is not None:
                mask_sha256.update(mask.data)
            yield Piece(columns, first, ends[first:last] - begin, tokens, mask)
            first, begin = last, stop
    for what, wanted, found in (
        ("number of tokens in its documents", entry.token_count, begin),
        ("SHA-256 of its tokens", entry.sha256, tokens_sha256.hexdigest()),
        ("SHA-256 of its loss mask", entry.loss_mask_sha256, mask_sha256.hexdigest()),
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


def document_hashes(piece: Piece, by: By, boundary: int) -> NDArray[np.uint8]:
    """The hash of each document of a piece, shape (n, 16)."""
    ends = piece.ends
    if by == "text":
        stored = piece.columns.text_hashes
        assert stored is not None  # noqa: S101  # looked at before the split began
        return stored[piece.first : piece.first + len(ends)]
    # Of every dtype the same, and of every boundary.
    data = piece.tokens.astype("<u4").data.cast("B")
    stops = (4 * (ends - (piece.tokens[ends - 1] == boundary))).tolist()
    starts = (4 * np.concatenate([[0], ends[:-1]])).tolist()
    sha256 = hashlib.sha256
    hashes = [sha256(data[start:stop]).digest()[:HASH_BYTES] for start, stop in zip(starts, stops, strict=True)]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES)
