"""From a manifest to its token line: the extents of all shards, from the sidecar or from the shards themselves."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import CorruptShardError, FormatError, HeadraceError, MissingShardError, Problem
from headrace.manifest import PRIVATE, Manifest, ShardEntry
from headrace.shard_paths import file_size, resolve_shards, shard_candidates
from headrace.shards import column
from headrace.storage.atomic import write_bytes
from headrace.storage.derived import map_file
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.id_range import IdRange, ids_below
from headrace.storage.lance_names import is_lance
from headrace.storage.layout import LOSS_MASK
from headrace.storage.shard_files import HeldFile, Io, RangeReader, ShardFiles
from headrace.storage.stores import file_with, inspect_shard
from headrace.storage.token_line import TokenLine
from headrace.storage.user_cache import cached_file, keep
from headrace.storage.versions import extents_name

if TYPE_CHECKING:
    from headrace.storage.layout import DataLayout, ShardLayout

__all__ = [
    "MASK_SIDECAR",
    "SIDECAR",
    "checked_layout",
    "extents_of",
    "library_reader",
    "load_extents",
    "load_table",
    "make_files",
    "make_line",
    "make_mask_line",
    "open_line",
    "open_mask_line",
    "sidecar_name",
    "write_sidecars",
]

SIDECAR = Path(PRIVATE) / "extents.bin"
"""Where `headrace build` leaves the extents, in the corpus folder; and ..."""
MASK_SIDECAR = Path(PRIVATE) / "loss_mask.bin"
"""... those of the loss mask, where there is one."""


def checked_layout(path: Path, entry: ShardEntry) -> "ShardLayout":
    """A shard's layout, read from the file itself.

    Raises:
        CorruptShardError: the file's attributes contradict `entry`.
    """
    layout = inspect_shard(path)
    for name, wanted, found in (
        ("token_count", entry.token_count, layout.token_count),
        ("sha256", entry.sha256, layout.sha256),
        ("documents_sha256", entry.documents_sha256, layout.documents_sha256),
        ("loss_mask_sha256", entry.loss_mask_sha256, layout.loss_mask.sha256 if layout.loss_mask else ""),
    ):
        if wanted != found:
            raise CorruptShardError(f"{path}: {name} is {found or 'absent'}, but shards.json says {wanted}")
    return layout


def extents_of(layout: "DataLayout") -> ShardExtents:
    """What the extent tables keep of a layout: of a shard's, that of its loss mask too."""
    mask: DataLayout | None = getattr(layout, "loss_mask", None)
    return ShardExtents(
        token_count=layout.token_count,
        file_size=layout.file_size,
        digest_offset=layout.digest_offset,
        chunk_size=layout.chunk_size,
        first_crc=layout.first_crc,
        last_crc=layout.last_crc,
        first=layout.first,
        offset=layout.offset,
        loss_mask=None if mask is None else extents_of(mask),
    )


def write_sidecars(folder: Path, fingerprint: str, extents: Sequence[ShardExtents], *, version: bool = False) -> None:
    """Write the extents of a corpus, and those of its loss mask if it has one, into its folder.

    Args:
        folder: the corpus.
        fingerprint: of it.
        extents: of each shard, in order.
        version: keep them beside the index of an earlier version, not of the newest.
    """
    masks = ExtentTable.build_masks(extents)
    for mask, table in ((False, ExtentTable.build(extents)), (True, masks)):
        path = folder / (extents_name(fingerprint, mask=mask) if version else sidecar_name(mask=mask))
        path.parent.mkdir(parents=True, exist_ok=True)
        if table is not None:
            write_bytes(path, table.to_bytes(fingerprint))
        else:
            path.unlink(missing_ok=True)  # of a corpus that was there before


def sidecar_name(*, mask: bool) -> Path:
    """Where `headrace build` leaves the extents of the tokens, or of their loss mask, in the corpus folder."""
    return MASK_SIDECAR if mask else SIDECAR


def load_extents(folder: Path, manifest: Manifest) -> list[ShardExtents] | None:
    """What the sidecars of a corpus say of each shard; None unless they are there, whole, and of this corpus."""
    fingerprint = manifest.fingerprint.hex
    table = load_table(folder / SIDECAR, fingerprint)
    masks = load_table(folder / MASK_SIDECAR, fingerprint) if manifest.has_loss_mask else None
    if table is None or (masks is None and manifest.has_loss_mask):
        return None
    if masks is None:
        return table.parts()
    return [replace(part, loss_mask=mask) for part, mask in zip(table.parts(), masks.parts(), strict=True)]


def open_line(
    index: Path, manifest: Manifest, *, io: Io, verify: bool, vocab_size: int | None = None
) -> tuple[TokenLine, Sequence[ShardEntry]]:
    """The token line of a corpus, and its entries with absolute paths. Lists no folder.

    Args:
        index: path of `shards.json`.
        manifest: what it says.
        io: see `ShardFiles`; likewise ...
        verify: ... this.
        vocab_size: how many ids there are, if that was told and the corpus does not say it: others are refused.

    Raises:
        MissingShardError, CorruptShardError, FormatError: naming every shard that is not as the manifest says.
    """
    located, table, dtype = _located_table(index, manifest, mask=False)
    return make_line(table, located, dtype, io=io, verify=verify, vocab_size=vocab_size), located


def open_mask_line(index: Path, manifest: Manifest, *, io: Io, verify: bool) -> TokenLine:
    """The loss mask of a corpus that has one, as a line of uint8, a value a token; errors as of `open_line`."""
    located, table, _ = _located_table(index, manifest, mask=True)
    return make_mask_line(table, located, io=io, verify=verify)


def _located_table(
    index: Path, manifest: Manifest, *, mask: bool
) -> tuple[Sequence[ShardEntry], ExtentTable, np.dtype[Any]]:
    """Where the shards are, where the tokens lie in them, or their loss mask, and what dtype the tokens have."""
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    fingerprint = manifest.fingerprint.hex
    located, sizes = resolve_shards(index, manifest)
    if mask and manifest.store == "lance":
        sizes = list(map(file_size, _paths(located, mask=True)))
    cache = cached_file("loss_mask" if mask else "extents", os.fsencode(index), fingerprint.encode())
    if not _ambiguous(index, manifest):
        folder = index.parent
        for sidecar in (folder / sidecar_name(mask=mask), folder / extents_name(fingerprint, mask=mask), cache):
            found = load_table(sidecar, fingerprint) if sidecar else None
            if found is not None and found.shards["file_size"].tolist() == sizes:
                return located, found, dtype
    located, layouts = _derive(index, manifest)
    dtypes = {layout.dtype for layout in layouts} or {dtype}
    said = manifest.version != 1  # else the files alone say it
    if len(dtypes) > 1 or (said and dtypes != {dtype}):
        names = ", ".join(sorted(map(str, dtypes)))
        raise FormatError(
            f"{index}: the shards hold {names}, but {f'the corpus is of {dtype}' if said else 'a corpus has one dtype'}"
        )
    usual = dtypes == {dtype}
    (dtype,) = dtypes
    extents = [extents_of(layout) for layout in layouts]
    table = (ExtentTable.build_masks(extents) if mask else None) or ExtentTable.build(extents)
    if cache and usual and bool((table.shards["digest_offset"] > 0).all()):  # of no other dtype does the table tell
        keep(cache, table.to_bytes(fingerprint))
    return located, table, dtype


def make_line(
    table: ExtentTable,
    entries: Sequence[ShardEntry],
    dtype: np.dtype[Any],
    *,
    io: Io,
    verify: bool,
    vocab_size: int | None = None,
) -> TokenLine:
    """The token line of shards whose extents are known; `entries` with absolute paths. See `open_line`, `ShardFiles`."""
    below = ids_below(dtype, vocab_size)
    ids = None if below is None else IdRange(below, partial(_place, entries))
    return TokenLine(make_files(table, entries, dtype, io=io, verify=verify), ids=ids)


def _place(entries: Sequence[ShardEntry], position: int) -> str:
    starts = np.array(column(entries, "global_start"), np.int64)
    shard = int(np.searchsorted(starts, position, side="right")) - 1
    return f"{column(entries, 'path')[shard]}: token {position - int(starts[shard])}"


def make_files(
    table: ExtentTable,
    entries: Sequence[ShardEntry],
    dtype: np.dtype[Any],
    *,
    io: Io,
    verify: bool,
    held: Mapping[int, HeldFile] = MappingProxyType({}),
    readers: Mapping[int, RangeReader] = MappingProxyType({}),
    mask: bool = False,
) -> ShardFiles:
    """The files of shards whose extents are known; `entries` with absolute paths. See `ShardFiles`.

    With `mask` they are read for the loss mask, of uint8; `table` says where that lies.
    """
    return ShardFiles(
        table,
        _paths(entries, mask=mask),
        column(entries, "loss_mask_sha256" if mask else "sha256"),
        dtype,
        io=io,
        verify=verify,
        fallback=partial(library_reader, mask=mask),
        held=held,
        readers=readers,
    )


def _paths(entries: Sequence[ShardEntry], *, mask: bool) -> Sequence[str]:
    """The files that hold the tokens of shards, or their loss mask."""
    paths = column(entries, "path")
    if not mask:
        return paths
    return [str(file_with(Path(path), LOSS_MASK)) if is_lance(path) else path for path in paths]


def make_mask_line(table: ExtentTable, entries: Sequence[ShardEntry], *, io: Io, verify: bool) -> TokenLine:
    """The line of the loss mask, as `make_line` that of the tokens."""
    return TokenLine(make_files(table, entries, np.dtype(np.uint8), io=io, verify=verify, mask=True))


def library_reader(path: Path, *, mask: bool = False) -> RangeReader:
    """Reads the tokens of a shard that are not flat on disk, or its loss mask, through h5py."""
    from headrace.storage.hdf5_reader import LibraryReader  # noqa: PLC0415  # imports h5py

    return LibraryReader(path, dataset_name=LOSS_MASK) if mask else LibraryReader(path)


def load_table(path: Path, fingerprint: str) -> ExtentTable | None:
    """The table in a sidecar, mapped; None where there is none, or it is damaged or of another corpus."""
    view = map_file(path)
    return ExtentTable.from_bytes(view, fingerprint) if view else None


def _ambiguous(index: Path, manifest: Manifest) -> bool:
    """Whether a file of a version 1 corpus could be another one, so that only its content decides."""
    return manifest.version == 1 and any(
        sum(file_size(path) >= 0 for path in shard_candidates(index, manifest, entry)) > 1 for entry in manifest.shards
    )


def _derive(index: Path, manifest: Manifest) -> tuple[list[ShardEntry], list["ShardLayout"]]:
    """Read every shard's layout from the first candidate that matches the manifest."""
    located: list[ShardEntry] = []
    layouts: list[ShardLayout] = []
    faults: list[tuple[str, HeadraceError]] = []
    for entry in manifest.shards:
        fault: HeadraceError | None = None
        for path in shard_candidates(index, manifest, entry):
            try:
                layouts.append(checked_layout(path, entry))
            except HeadraceError as error:
                if fault is None or isinstance(fault, MissingShardError):  # that a file is wrong says more
                    fault = error
            else:
                located.append(replace(entry, path=str(path)))
                break
        else:
            faults.append((entry.path, fault or MissingShardError("no such file")))
    if len(faults) == 1:
        raise faults[0][1]
    if faults:
        problems = [Problem(path, fault.summary) for path, fault in faults]
        raise CorruptShardError(f"{index}: {len(faults)} shards are not as it says", problems=problems)
    return located, layouts
