"""What lies where in the file of a shard: what everything else is derived from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DATASET", "LOSS_MASK", "DataLayout", "ShardLayout", "crc_name"]

DATASET = "tokens"
"""The data set of a shard that holds its tokens, and ..."""
LOSS_MASK = "loss_mask"
"""... that which is there where documents say which of their tokens count in the loss: 1 for those that do, else 0."""


def crc_name(dataset: str) -> str:
    """Name of the data set that holds the checksums of the chunks of another one."""
    return f"chunks/{LOSS_MASK}_crc32" if dataset == LOSS_MASK else "chunks/crc32"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataLayout:
    """Where one value for each token lies in a shard's file: the tokens themselves, or their loss mask."""

    file_size: int
    """Bytes."""
    dtype: np.dtype[Any]
    token_count: int
    sha256: str
    """As the attribute says; empty where there is none."""
    digest_offset: int
    """Byte offset of the 64 hex digits of `sha256` in the file; 0 where they cannot be found."""
    first: NDArray[np.uint64]
    """First token of each extent, shape (n,), increasing from 0; empty where the data is not flat on disk."""
    offset: NDArray[np.uint64]
    """Byte offset of each extent, shape (n,)."""
    chunk_size: int
    """Tokens a chunk; where the file has no chunks, a nominal size."""
    first_crc: int
    """crc32 of the bytes of the first chunk, and ..."""
    last_crc: int
    """... of the last; 0 for an empty shard."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShardLayout(DataLayout):
    """Where the tokens of one shard lie in its file, and what else it says of them."""

    document_count: int | None
    """None where the file does not say."""
    documents_sha256: str
    compression: str
    """`none`, `gzip:4`, `zstd:3`, or the names of whatever other filters the data set has."""
    attributes: dict[str, int | str]
    """The other attributes that Headrace gives the token data set, as far as they are there."""
    loss_mask: DataLayout | None = None
    """None where it has none."""
