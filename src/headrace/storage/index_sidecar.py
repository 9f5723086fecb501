"""The index of a large corpus as columns: a binary sidecar of `shards.json`, which takes far longer to read.

It can always be made again, and is bound to the very bytes of `shards.json` by their SHA-256: whoever opens a corpus reads
those bytes in any case, and parses them where nothing that was made of them is at hand.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from headrace.compact import Digests, Texts
from headrace.errors import ManifestError
from headrace.manifest import INDEX_NAME, PRIVATE, Fingerprint, Manifest, SourceEntry, index_path, read_index
from headrace.shards import HASHES, STORED_COUNTS, TEXTS, ShardTable
from headrace.storage.atomic import write_bytes
from headrace.storage.derived import is_sealed, map_file, seal
from headrace.storage.user_cache import cached_file, keep

__all__ = ["contradicts", "index_sidecar", "open_manifest", "publish_index", "sidecar_bytes"]

MAGIC = b"headrace index 1\n".ljust(32, b"\0")
LEAST = 1 << 16
"""Bytes of an index from which on it has a sidecar: a smaller one is read in a few milliseconds."""
_HEADER = struct.Struct("<32s32s32s7Q")
_SHA256 = 32


def index_sidecar(index: Path) -> Path:
    """Where the sidecar of an index lies: of a corpus' `shards.json`, or of an earlier version of it."""
    if index.name == INDEX_NAME:
        return index.parent / PRIVATE / "index.bin"
    return index.with_suffix(".index.bin")


def publish_index(index: Path, data: bytes) -> None:
    """Write an index, its sidecar first.

    Args:
        index: where, in a folder that is there.
        data: its bytes.
    """
    sidecar, content = index_sidecar(index), sidecar_bytes(data)
    if content is None:
        sidecar.unlink(missing_ok=True)  # of a corpus that was there before
    else:
        sidecar.parent.mkdir(exist_ok=True)
        write_bytes(sidecar, content)
    write_bytes(index, data)


def open_manifest(path: Path) -> Manifest:
    """As `read_manifest`, with the same errors, but sooner: entries of a large corpus are made when they are looked at.

    They come out of the sidecar; where there is none, out of a copy in the user's cache folder, which is made if need be.
    """
    index = index_path(path)
    data = read_index(index)
    if len(data) < LEAST:
        return Manifest.from_json(data, name=str(index))
    digest = hashlib.sha256(data).digest()
    cache = cached_file("index", digest)
    for sidecar in (index_sidecar(index), cache):
        view = map_file(sidecar) if sidecar else None
        found = _manifest(view, digest) if view else None
        if found is not None:
            return found
    manifest = Manifest.from_json(data, name=str(index))
    content = _sidecar(manifest, digest)
    if cache and content:
        keep(cache, content)
    return manifest


def sidecar_bytes(data: bytes) -> bytes | None:
    """The sidecar of an index of these bytes; None where it has none: it is small, or damaged, or no build's."""
    if len(data) < LEAST:
        return None
    try:
        manifest = Manifest.from_json(data)
    except ManifestError:
        return None
    return _sidecar(manifest, hashlib.sha256(data).digest())


def contradicts(sidecar: bytes, data: bytes) -> bool:
    """Whether a sidecar claims to be of an index of these bytes, and is another than they have."""
    return sidecar.startswith(MAGIC + hashlib.sha256(data).digest()) and sidecar != sidecar_bytes(data)


def _sidecar(manifest: Manifest, digest: bytes) -> bytes | None:
    """The sidecar of a manifest that was read from bytes of this SHA-256."""
    shards = manifest.shards
    if not isinstance(shards, ShardTable):
        return None
    texts = [shards.texts(name).data for name in TEXTS]
    hashes = [shards.digests(name) for name in HASHES]
    head = replace(manifest, shards=(), sources=()).to_json()
    sources = replace(manifest, shards=()).to_json()
    header = _HEADER.pack(
        MAGIC,
        digest,
        bytes.fromhex(manifest.fingerprint.hex),
        len(shards),
        len(manifest.sources),
        sum(1 << bit for bit, column in enumerate(hashes) if not column.absent),
        *map(len, (*texts, head, sources)),
    )
    counts = (shards.counts(name).astype("<i8") for name in STORED_COUNTS)
    known = (column.rows for column in hashes if not column.absent)
    return seal((header, *(column.tobytes() for column in (*counts, *known, *texts)), head, sources))


def _manifest(data: memoryview, digest: bytes) -> Manifest | None:
    """The manifest in a sidecar, of which nothing is copied; None unless it is whole, and of bytes of this SHA-256."""
    if len(data) < _HEADER.size:
        return None
    magic, index, fingerprint, shards, sources, known, *sizes = _HEADER.unpack_from(data)
    if magic != MAGIC or index != digest or not is_sealed(data):
        return None
    at = _HEADER.size

    def take(size: int) -> NDArray[np.uint8]:
        nonlocal at
        at += size
        return np.frombuffer(data, np.uint8, size, at - size)

    counts = {name: take(8 * shards).view("<i8") for name in STORED_COUNTS}
    digests = {
        name: Digests(take(_SHA256 * shards).reshape(-1, _SHA256)) if known >> bit & 1 else Digests.none(shards)
        for bit, name in enumerate(HASHES)
    }
    texts = {name: Texts(take(size)) for name, size in zip(TEXTS, sizes, strict=False)}
    head, rest = (take(size) for size in sizes[len(TEXTS) :])
    manifest = replace(
        Manifest.from_json(head.tobytes()), shards=ShardTable(counts, texts, digests), sources=_Sources(rest, sources)
    )
    manifest.take_fingerprint(Fingerprint(fingerprint.hex(), "content"))
    return manifest


class _Sources(Sequence[SourceEntry]):
    """The sources of an index, read when one is looked at. Equal to every sequence of equal entries; pickled as a tuple."""

    __slots__ = ("_count", "_entries", "_index")

    def __init__(self, index: NDArray[np.uint8], count: int) -> None:
        self._index = index
        self._count = count
        self._entries: tuple[SourceEntry, ...] | None = None

    def _all(self) -> tuple[SourceEntry, ...]:
        if self._entries is None:
            self._entries = tuple(Manifest.from_json(self._index.tobytes()).sources)
        return self._entries

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._all(),)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> SourceEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SourceEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> SourceEntry | tuple[SourceEntry, ...]:
        return self._all()[index]

    def __iter__(self) -> Iterator[SourceEntry]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return self._all() == tuple(cast("Sequence[Any]", other))

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"<{len(self)} sources>"
