"""From a manifest to its token line: the extents of all HDF5 shards, from the sidecar or from the shards themselves."""

import hashlib
import mmap
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import CorruptShardError, FormatError, HeadraceError, MissingShardError, Problem
from headrace.manifest import Manifest, ShardEntry, resolve_shards, shard_candidates
from headrace.storage.atomic import write_bytes
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.token_line import Io, RangeReader, TokenLine

if TYPE_CHECKING:
    from headrace.storage.hdf5_inspect import ShardLayout

__all__ = ["SIDECAR", "checked_layout", "extents_of", "library_reader", "load_table", "open_line"]

SIDECAR = Path(".headrace") / "extents.bin"
"""Where `headrace build` leaves the extents, in the corpus folder."""


def checked_layout(path: Path, entry: ShardEntry) -> "ShardLayout":
    """A shard's layout, read from the file itself.

    Raises:
        CorruptShardError: the file's attributes contradict `entry`.
    """
    from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # imports h5py

    layout = inspect_shard(path)
    for name, wanted, found in (
        ("token_count", entry.token_count, layout.token_count),
        ("sha256", entry.sha256, layout.sha256),
        ("documents_sha256", entry.documents_sha256, layout.documents_sha256),
    ):
        if wanted != found:
            raise CorruptShardError(f"{path}: {name} is {found or 'absent'}, but shards.json says {wanted}")
    return layout


def extents_of(layout: "ShardLayout") -> ShardExtents:
    """What the extent table keeps of a layout."""
    return ShardExtents(
        token_count=layout.token_count,
        file_size=layout.file_size,
        digest_offset=layout.digest_offset,
        chunk_size=layout.chunk_size,
        first_crc=layout.first_crc,
        last_crc=layout.last_crc,
        first=layout.first,
        offset=layout.offset,
    )


def open_line(index: Path, manifest: Manifest, *, io: Io, verify: bool) -> tuple[TokenLine, tuple[ShardEntry, ...]]:
    """The token line of a corpus, and its entries with absolute paths. Lists no folder.

    Raises:
        MissingShardError, CorruptShardError, FormatError: naming every shard that is not as the manifest says.
    """
    fingerprint = manifest.fingerprint.hex
    entries = resolve_shards(index, manifest)
    cache = _cache_path(index, fingerprint)
    table = load_table(index.parent / SIDECAR, fingerprint) or load_table(cache, fingerprint)
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    if table is None or _stale(table, entries):
        if manifest.version == 1:
            entries = _matching(index, manifest)
        table, dtypes = _derive(entries)
        if dtypes and dtypes != {dtype}:
            names = ", ".join(sorted(str(found) for found in dtypes))
            raise FormatError(f"{index}: the shards hold {names}, but the corpus is of {dtype}")
        if bool((table.shards["digest_offset"] > 0).all()):
            with suppress(OSError):  # the cache is a convenience; a full or read-only disk is no reason to fail
                cache.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(cache, table.to_bytes(fingerprint))
    line = TokenLine(
        table,
        [entry.path for entry in entries],
        [entry.sha256 for entry in entries],
        dtype,
        io=io,
        verify=verify,
        fallback=library_reader,
    )
    return line, tuple(entries)


def library_reader(path: Path) -> RangeReader:
    """Reads a shard that is not flat on disk through h5py."""
    from headrace.storage.hdf5_reader import LibraryReader  # noqa: PLC0415  # imports h5py

    return LibraryReader(path)


def load_table(path: Path, fingerprint: str) -> ExtentTable | None:
    """The table in a sidecar, mapped; None where there is none, or it is damaged or of another corpus."""
    try:
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    return ExtentTable.from_bytes(memoryview(view), fingerprint)


def _cache_path(index: Path, fingerprint: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    key = hashlib.sha256(os.fsencode(index.absolute()) + b"\0" + fingerprint.encode()).hexdigest()
    return Path(base).expanduser() / "headrace" / "extents" / f"{key}.bin"


def _stale(table: ExtentTable, entries: Sequence[ShardEntry]) -> bool:
    """Whether a file's size is not the one that the table was made from."""
    sizes = table.shards["file_size"].tolist()
    return any(Path(entry.path).stat().st_size != size for entry, size in zip(entries, sizes, strict=True))


def _derive(entries: Iterable[ShardEntry]) -> tuple[ExtentTable, set[np.dtype[np.integer]]]:
    found: list[ShardExtents] = []
    dtypes: set[np.dtype[np.integer]] = set()
    faults: list[HeadraceError] = []
    for entry in entries:
        try:
            layout = checked_layout(Path(entry.path), entry)
        except HeadraceError as error:
            faults.append(error)
            continue
        found.append(extents_of(layout))
        dtypes.add(layout.dtype)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        problems = [Problem("shard", fault.summary) for fault in faults]
        raise CorruptShardError(f"{len(faults)} shards are not as shards.json says", problems=problems)
    return ExtentTable.build(found), dtypes


def _matching(index: Path, manifest: Manifest) -> list[ShardEntry]:
    """Version 1: for each shard the first candidate that exists and matches the manifest's count and hash."""
    entries: list[ShardEntry] = []
    for entry in manifest.shards:
        fault: HeadraceError = MissingShardError(f"{entry.path}: no such file (shard {entry.shard_id})")
        for path in shard_candidates(index, manifest, entry):
            try:
                checked_layout(path, entry)
            except MissingShardError:
                continue
            except HeadraceError as error:
                fault = error
                continue
            entries.append(replace(entry, path=str(path)))
            break
        else:
            raise fault
    return entries
