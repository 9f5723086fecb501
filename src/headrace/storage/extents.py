"""The map from token ranges to byte ranges, for a whole corpus, and its binary sidecar.

An extent is a run of tokens that lie one after another in a file. With the table at hand, opening a corpus opens no
HDF5 file. The sidecar can always be rebuilt from the shards; it is bound to the corpus' fingerprint, and a shard's rows
are trusted only for (file size, the digits of its `sha256` where the table says they lie, the crc32 of its first and
last chunk): see `token_line`.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.storage.derived import is_sealed, seal

__all__ = ["NOT_FLAT", "ExtentTable", "ShardExtents"]

MAGIC = b"headrace extents 1\n"
_HEADER = struct.Struct("<32s32sQQQ")
NOT_FLAT = np.uint64(2**64 - 1)
"""The byte offset of an extent whose tokens only the file's own library can read."""
_SHARD = np.dtype(
    [
        ("file_size", "<u8"),
        ("digest_offset", "<u8"),
        ("first_extent", "<u8"),
        ("chunk_size", "<u8"),
        ("first_crc", "<u4"),
        ("last_crc", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardExtents:
    """What the table needs to know of one shard."""

    token_count: int
    file_size: int
    """Bytes."""
    digest_offset: int
    """Byte offset of the 64 hex digits of the shard's sha256 in the file; 0 if unknown."""
    chunk_size: int
    """Tokens a chunk."""
    first_crc: int
    last_crc: int
    first: NDArray[np.uint64]
    """First token of each extent in the shard, shape (n,); empty where the shard is empty or not flat."""
    offset: NDArray[np.uint64]
    """Byte offset of each extent, shape (n,)."""
    loss_mask: "ShardExtents | None" = None
    """Where the shard's loss mask lies, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExtentTable:
    """All extents of a corpus, in token order."""

    shards: NDArray[Any]
    """Structured, one row a shard: 40 bytes."""
    first: NDArray[np.uint64]
    """Corpus position of each extent's first token, shape (e,), increasing."""
    offset: NDArray[np.uint64]
    """Byte offset of each extent in its shard's file, or `NOT_FLAT`, shape (e,)."""
    shard: NDArray[np.uint32]
    """Shard of each extent, shape (e,)."""
    token_count: int

    @classmethod
    def build(cls, shards: Sequence[ShardExtents]) -> Self:
        """The table of shards in corpus order."""
        rows = np.zeros(len(shards), dtype=_SHARD)
        first: list[NDArray[np.uint64]] = []
        offset: list[NDArray[np.uint64]] = []
        extents = tokens = 0
        for row, shard in zip(rows, shards, strict=True):
            flat = len(shard.first) > 0 or shard.token_count == 0
            row["file_size"], row["digest_offset"] = shard.file_size, shard.digest_offset
            row["chunk_size"], row["first_crc"], row["last_crc"] = shard.chunk_size, shard.first_crc, shard.last_crc
            row["first_extent"] = extents
            first.append(np.uint64(tokens) + (shard.first if flat else np.zeros(1, np.uint64)))
            offset.append(shard.offset if flat else np.array([NOT_FLAT]))
            extents += len(first[-1])
            tokens += shard.token_count
        counts = [len(part) for part in first]
        return cls(
            shards=rows,
            first=np.concatenate([*first, np.empty(0, np.uint64)]),
            offset=np.concatenate([*offset, np.empty(0, np.uint64)]),
            shard=np.repeat(np.arange(len(shards), dtype=np.uint32), counts),
            token_count=tokens,
        )

    @classmethod
    def build_masks(cls, shards: Sequence[ShardExtents]) -> Self | None:
        """The table of the loss masks of shards in corpus order; None unless all have one, and there is a shard."""
        masks = [shard.loss_mask for shard in shards if shard.loss_mask is not None]
        return cls.build(masks) if masks and len(masks) == len(shards) else None

    def parts(self) -> list[ShardExtents]:
        """What `build` makes this table of, but for loss masks, of which it knows nothing."""
        rows = self.shards
        begins = [*rows["first_extent"].tolist(), len(self.first)]
        parts: list[ShardExtents] = []
        for row, begin, end in zip(rows, begins, begins[1:], strict=False):
            base = int(self.first[begin]) if end > begin else 0
            stop = int(self.first[end]) if end < len(self.first) else self.token_count
            flat = slice(begin, end) if end > begin and self.offset[begin] != NOT_FLAT else slice(0, 0)
            parts.append(
                ShardExtents(
                    token_count=stop - base if end > begin else 0,
                    file_size=int(row["file_size"]),
                    digest_offset=int(row["digest_offset"]),
                    chunk_size=int(row["chunk_size"]),
                    first_crc=int(row["first_crc"]),
                    last_crc=int(row["last_crc"]),
                    first=self.first[flat] - np.uint64(base),
                    offset=self.offset[flat],
                )
            )
        return parts

    def to_bytes(self, fingerprint: str) -> bytes:
        """The sidecar: magic, header, four little-endian arrays, crc32 of all before it."""
        head = _HEADER.pack(
            MAGIC.ljust(32, b"\0"), bytes.fromhex(fingerprint), len(self.shards), len(self.first), self.token_count
        )
        return seal((head, *(array.tobytes() for array in (self.shards, self.first, self.offset, self.shard))))

    @classmethod
    def from_bytes(cls, data: memoryview, fingerprint: str) -> Self | None:
        """The table in these bytes (not copied), or None if they are not a whole sidecar of that corpus."""
        if len(data) < _HEADER.size + 4:
            return None
        magic, corpus, shards, extents, tokens = _HEADER.unpack_from(data)
        size = _HEADER.size + shards * _SHARD.itemsize + extents * (8 + 8 + 4)
        if magic.rstrip(b"\0") != MAGIC or corpus.hex() != fingerprint or len(data) != size + 4:
            return None
        if not is_sealed(data):
            return None
        at = _HEADER.size

        def take(dtype: str | np.dtype[Any], count: int) -> NDArray[Any]:
            nonlocal at
            array = np.frombuffer(data, dtype=dtype, count=count, offset=at)
            at += array.nbytes
            return array

        return cls(
            shards=take(_SHARD, shards),
            first=take("<u8", extents),
            offset=take("<u8", extents),
            shard=take("<u4", extents),
            token_count=tokens,
        )
