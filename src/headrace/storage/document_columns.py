"""The document index of a shard, in memory."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.storage.incoming import OriginsDigest

__all__ = ["DocumentColumns"]


@dataclass(frozen=True, slots=True, eq=False)
class DocumentColumns:
    """The document index of one shard."""

    ends: NDArray[np.uint64]
    """Exclusive end of each document in the shard, shape (d,)."""
    rows: NDArray[np.uint64]
    """0-based line of each in its source's cut, shape (d,), or (0,) where the origin is not recorded; likewise ..."""
    offsets: NDArray[np.uint64]
    """... its byte in the decompressed source, and ..."""
    file_indices: NDArray[np.uint32]
    """... its source's place in `files`."""
    files: tuple[str, ...]
    id_ends: NDArray[np.uint64] | None = None
    """Exclusive end of each document's id in `ids`, shape (d,); None where documents have none."""
    ids: NDArray[np.uint8] | None = None
    """UTF-8 of all ids, one behind the other."""
    first_id: int = field(default=0, kw_only=True)
    """Byte of the shard's `/documents/id` with which `ids` begins."""
    text_hashes: NDArray[np.uint8] | None = None
    """First 16 bytes of the SHA-256 of each document's text, shape (d, 16); None where they are not stored."""

    def id_of(self, document: int) -> str | None:
        """The id of one document; None where they have none."""
        if self.id_ends is None or self.ids is None:
            return None
        return self.id_bytes(document).decode(errors="replace")

    def id_bytes(self, document: int) -> bytes:
        """UTF-8 of the id of a document that has one."""
        assert self.id_ends is not None  # noqa: S101  # so the caller says
        assert self.ids is not None  # noqa: S101
        start = int(self.id_ends[document - 1]) if document else self.first_id
        return self.ids[start - self.first_id : int(self.id_ends[document]) - self.first_id].tobytes()

    @property
    def sources_sha256(self) -> str:
        """What the manifest's `sources_sha256` should be; empty where no origin is recorded."""
        if not self.files:
            return ""
        digest = OriginsDigest()
        self.feed(digest)
        return digest.hex(self.files)

    def feed(self, digest: OriginsDigest) -> None:
        """Let a digest take these documents; those before them it has."""
        digest.update(self.rows, self.offsets, self.file_indices)
        if self.id_ends is not None and self.ids is not None:
            digest.update_ids(self.id_ends, self.ids)
        if self.text_hashes is not None:
            digest.update_hashes(self.text_hashes)
