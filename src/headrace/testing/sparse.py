"""Corpora of any size that take a few kilobytes: shards as the writer lays them out, their tokens holes in the file.

All tokens are zero. Counts, hashes and checksums are true, so that a corpus of 10^12 tokens opens, verifies (if one has
the hour) and is sampled like any other: for tests of offsets beyond 2^32, and of costs that must not grow with tokens.
"""

import hashlib
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from headrace.manifest import INDEX_NAME, Manifest, ShardEntry, TokenizerRef, dtype_name_for
from headrace.storage.atomic import write_bytes
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.hdf5_corpus import SIDECAR
from headrace.storage.hdf5_layout import create_attributes, create_columns, create_file
from headrace.storage.index_sidecar import publish_index
from headrace.storage.swmr import SwmrFile

__all__ = ["sparse_corpus"]

_CHUNK = 65536
"""Tokens a chunk."""
_SMALLEST = 21
"""Shards of fewer bytes than 2 to this power are hashed; of a power of two from here on the digest is known."""
_ZERO_SHA256 = (
    "5647f05ec18958947d32874eeb788fa396a05d0bab7c1b71f112ceb7e9b31eee",
    "bb9f8df61474d25e71fa00722318cd387396ca1736605e1248821cc0de3d3af8",
    "2daeb1f36095b44b318410b3f4e8b5d989dcc7bb023d1426c492dab0a3053e74",
    "080acf35a507ac9849cfcba47dc2ad83e01b75663a516279c8b9d243b719643e",
    "83ee47245398adee79bd9c0a8bc57b821e92aba10f5f9ade8a5d1fae4d8c4302",
    "3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351",
    "254bcc3fc4f27172636df4bf32de9f107f620d559b20d760197e452b97453917",
    "a6d72ac7690f53be6ae46ba88506bd97302a093f7108472bd9efc3cefda06484",
    "9acca8e8c22201155389f65abbf6bc9723edc7384ead80503839f49dcc56d767",
    "49bc20df15e412a64472421e13fe86ff1c5165e18b2afccf160d4dc19fe68a14",
    "a7c744c13cc101ed66c29f672f92455547889cc586ce6d44fe76ae824958ea51",
    "8479e43911dc45e89f934fe48d01297e16f51d17aa561d4d1c216b1ae0fcddca",
    "ebfb4ef19ae410f190327b5ebd312711263bc7579970e87d9c1e2d84e06b3c25",
    "07d217ebccc55480b7afa191674ec5da87f2d14efbc04dbc7e40efe345f16776",
    "97af759fc4597bc41706df77cbab318a57d935bacb262bd409e3ab767e07066f",
    "57b295ba06757c81edca2d1e299133b2f059bea28e6cf9f438d7741611c36541",
    "2d2ddd0154e004375a20ebe75e18de4f1fabc39acecf3169c4c5dc19228422f5",
    "b30e5372bd6e0a5cf8cf0d3c42ecead6826aa08f56565b4aa7f981b416dcb16d",
    "78168e433d450773cc1497cd9a944aed3448586cb4a47927108d05c1cf8b68fc",
)
"""SHA-256 of 2**21, 2**22, ... 2**39 zero bytes."""
_TOKENIZER = TokenizerRef(kind="bytes", name="zeros", sha256=hashlib.sha256(b"zeros").hexdigest(), vocab_size=1)


def sparse_corpus(folder: str | Path, n: int, *, vocab_size: int = 50257, shards: int | None = None) -> Path:
    """Write a corpus of `n` zero tokens, one document a shard, with its index and its sidecar.

    The data sets have a fixed size and are allocated at once, so that HDF5 needs no index of their chunks; the file
    system keeps their bytes as holes. A shard takes some 44 KiB; 10**12 tokens take a dozen shards and half a second.

    Args:
        folder: created if it is not there; holds no shards yet.
        n: tokens, at least 1.
        vocab_size: decides the dtype, as in any corpus.
        shards: how many, of nearly equal size: then every token is hashed, at about 1 GB/s for each of two sizes. By
            default the few sizes whose digests are known.

    Returns:
        The folder.

    Raises:
        ValueError: fewer tokens than shards, or no shards.
    """
    count = 1 if shards is None else shards
    if not 1 <= count <= n:
        raise ValueError(f"wanted at least 1 shard and as many tokens, found {count} and {n}")
    folder = Path(folder)
    (folder / SIDECAR).parent.mkdir(parents=True, exist_ok=True)
    dtype = np.dtype(dtype_name_for(vocab_size)).newbyteorder("<")
    sizes = list(_known_sizes(n, dtype.itemsize)) if shards is None else [(n + i) // shards for i in range(shards)]
    entries: list[ShardEntry] = []
    extents: list[ShardExtents] = []
    start = 0
    for number, size in enumerate(sizes):
        entry = _entry(number, size, start, dtype)
        extents.append(_write(folder / entry.path, entry, dtype, vocab_size))
        entries.append(entry)
        start += size
    manifest = Manifest(
        chunk_size=_CHUNK,
        shards=tuple(entries),
        dtype=dtype_name_for(vocab_size),
        vocab_size=vocab_size,
        tokenizer=_TOKENIZER,
    )
    write_bytes(folder / SIDECAR, ExtentTable.build(extents).to_bytes(manifest.fingerprint.hex))
    publish_index(folder / INDEX_NAME, manifest.to_json())
    return folder


def _known_sizes(n: int, itemsize: int) -> Iterator[int]:
    """`n` tokens as a sum of powers of two, of those below the smallest known digest only one."""
    power = _SMALLEST + len(_ZERO_SHA256) - 1
    while n * itemsize >= 1 << _SMALLEST:
        if n * itemsize >= 1 << power:
            yield (1 << power) // itemsize
            n -= (1 << power) // itemsize
        else:
            power -= 1
    if n:
        yield n


@cache
def _zero_sha256(size: int) -> str:
    """SHA-256 of `size` zero bytes."""
    power = size.bit_length() - 1
    if size == 1 << power and 0 <= power - _SMALLEST < len(_ZERO_SHA256):
        return _ZERO_SHA256[power - _SMALLEST]
    digest, piece = hashlib.sha256(), bytes(1 << 22)
    for _ in range(size >> 22):
        digest.update(piece)
    digest.update(piece[: size % (1 << 22)])
    return digest.hexdigest()


def _zero_crc32(tokens: int, itemsize: int) -> int:
    return zlib.crc32(bytes(tokens * itemsize))


def _entry(number: int, size: int, start: int, dtype: np.dtype[np.uint16 | np.uint32]) -> ShardEntry:
    return ShardEntry(
        shard_id=f"{number:06d}-0000-0000",
        path=f"{number:06d}-0000-0000.h5",
        token_count=size,
        document_count=1,
        sha256=_zero_sha256(size * dtype.itemsize),
        documents_sha256=hashlib.sha256(size.to_bytes(8, "little")).hexdigest(),
        global_start=start,
    )


def _write(path: Path, entry: ShardEntry, dtype: np.dtype[np.uint16 | np.uint32], vocab_size: int) -> ShardExtents:
    chunks = -(-entry.token_count // _CHUNK)
    tail = entry.token_count - (chunks - 1) * _CHUNK
    first_crc = _zero_crc32(min(_CHUNK, entry.token_count), dtype.itemsize)
    last_crc = _zero_crc32(tail, dtype.itemsize)
    with create_file(path) as file:
        shard = SwmrFile(file)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((_CHUNK,))
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)  # else zeros would be written
        space = h5py.h5s.create_simple((chunks * _CHUNK,))
        tokens = h5py.Dataset(h5py.h5d.create(file.id, b"tokens", h5py.h5t.py_create(dtype), space, properties))
        create_attributes(
            shard,
            tokens,
            boundary_token_id=0,
            vocab_size=vocab_size,
            tokenizer_sha256=_TOKENIZER.sha256,
            token_count=entry.token_count,
            document_count=1,
            sha256=entry.sha256.encode(),
            documents_sha256=entry.documents_sha256.encode(),
        )
        columns = create_columns(shard, (), crc_fill=_zero_crc32(_CHUNK, dtype.itemsize))
        columns["ends"].append(np.array([entry.token_count], dtype="<u8"))
        # All but the last are the fill value, which takes no space.
        checksums: Any = file["chunks/crc32"]
        checksums.resize((chunks,))
        checksums[chunks - 1] = last_crc
        offset = tokens.id.get_chunk_info_by_coord((0,)).byte_offset
    with path.open("rb") as file:
        digest_offset = file.read(offset).find(entry.sha256.encode())
    return ShardExtents(
        token_count=entry.token_count,
        file_size=path.stat().st_size,
        digest_offset=max(digest_offset, 0),
        chunk_size=_CHUNK,
        first_crc=first_crc,
        last_crc=last_crc,
        first=np.zeros(1, dtype=np.uint64),
        offset=np.array([offset], dtype=np.uint64),
    )
