"""Shards without a `shards.json`: what the files say of themselves."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.manifest import Fingerprint, Manifest, ShardEntry
from headrace.storage.extents import ExtentTable
from headrace.storage.hdf5_corpus import extents_of, make_line, make_mask_line
from headrace.storage.id_range import id_limit
from headrace.storage.token_line import Io, TokenLine

if TYPE_CHECKING:
    from headrace.storage.layout import ShardLayout

__all__ = ["entry_of", "line_of", "made_up_manifest", "mask_opener", "stat_fingerprint"]


def entry_of(path: Path, layout: "ShardLayout") -> ShardEntry:
    """The entry that an HDF5 file would have in a manifest, by its own attributes."""
    return ShardEntry(
        shard_id=path.stem,
        path=str(path),
        token_count=layout.token_count,
        document_count=layout.document_count or 0,
        sha256=layout.sha256,
        documents_sha256=layout.documents_sha256,
        loss_mask_sha256=layout.loss_mask.sha256 if layout.loss_mask else "",
    )


def line_of(
    layouts: Sequence["ShardLayout"],
    entries: Sequence[ShardEntry],
    *,
    io: Io,
    verify: bool,
    vocab_size: int | None = None,
) -> TokenLine:
    """The token line of inspected files of one dtype, in the order given; `vocab_size` as for `open_line`."""
    table = ExtentTable.build([extents_of(layout) for layout in layouts])
    return make_line(table, entries, layouts[0].dtype, io=io, verify=verify, vocab_size=vocab_size)


def mask_opener(
    layouts: Sequence["ShardLayout"], entries: Sequence[ShardEntry], *, io: Io, verify: bool
) -> Callable[[], TokenLine] | None:
    """Opens the line of the loss mask of inspected files, as `line_of` that of their tokens; None unless all have one."""
    table = ExtentTable.build_masks([extents_of(layout) for layout in layouts])
    if table is None:
        return None
    return lambda: make_mask_line(table, entries, io=io, verify=verify)


def made_up_manifest(layouts: Sequence["ShardLayout"], entries: tuple[ShardEntry, ...]) -> Manifest:
    """What the files themselves say, where no `shards.json` does."""
    head = layouts[0]
    narrow = head.dtype.itemsize <= np.dtype(np.uint16).itemsize
    return Manifest(
        chunk_size=head.chunk_size,
        shards=entries,
        dtype="uint16" if narrow else "uint32",
        vocab_size=int(head.attributes.get("vocab_size", id_limit(head.dtype))),
        boundary_token_id=int(head.attributes.get("boundary_token_id", 0)),
        version=2 if all(entry.documents_sha256 for entry in entries) else 1,
    )


def stat_fingerprint(path: Path) -> Fingerprint:
    """Of size and 16 evenly spread pages: what can be said of a large file without reading it."""
    page = 4096
    size = path.stat().st_size
    digest = hashlib.sha256(f"headrace stat 1 {size}".encode())
    with path.open("rb") as file:
        for number in range(16):
            file.seek(max(size - page, 0) * number // 15)
            digest.update(file.read(page))
    return Fingerprint(digest.hexdigest(), "stat")
