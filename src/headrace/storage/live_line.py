"""The token line of a build that is at work, put together from what it writes down and what of that is whole."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import CorruptShardError, ManifestError, MissingShardError
from headrace.in_progress import JOURNAL, Building, Finished, Key, OpenShard, file_mark, read_finished
from headrace.manifest import NO_HASH, Manifest, ShardEntry
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.hdf5_corpus import (
    checked_layout,
    extents_of,
    library_reader,
    make_files,
    open_line,
    open_mask_line,
)
from headrace.storage.lance_names import is_lance
from headrace.storage.layout import LOSS_MASK
from headrace.storage.loose import entry_of
from headrace.storage.shard_files import DocumentReader, Io, RangeReader, ShardFiles
from headrace.storage.stores import file_with, read_documents
from headrace.storage.token_line import TokenLine
from headrace.storage.versions import read_version

if TYPE_CHECKING:
    from headrace.storage.document_columns import DocumentColumns
    from headrace.storage.growing import GrowingShard, HeldShard

__all__ = ["LiveLine", "LiveLineMaker"]

_MOST_HELD = 128
"""Finished shards of the source shard at work that are held open; what is removed of others cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveLine:
    """What is whole of a build. It does not change."""

    line: TokenLine
    manifest: Manifest
    """As it would be if the build ended here. A shard that is being written has a `sha256` of zeros; it is the last."""
    documents: Mapping[int, DocumentReader]
    """What reads the document index of some shards, by the shard's number."""
    loss_mask: TokenLine | None = None
    """Where the build keeps one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A finished shard."""

    entry: ShardEntry
    """With an absolute path."""
    extents: ShardExtents
    mark: object = None
    """Of a source shard that is not finished, so that the file may be removed: tells whether it is still there, ..."""
    held: "HeldShard | _MovingShard | None" = None
    """... what finds it even then, ..."""
    mask_held: "_MovingShard | None" = None
    """... and its loss mask, if that is in a file of its own, ..."""
    reader: RangeReader | None = None
    """... and what reads it, if it is compressed, ..."""
    mask_reader: RangeReader | None = None
    """... and its loss mask."""


class _MovingShard:
    """A finished shard that is in one folder until all are finished, and then in another."""

    def __init__(self, path: Path, then: Path) -> None:
        self._places = path, then

    @property
    def path(self) -> Path:
        """Where it is."""
        return next(filter(Path.exists, self._places), self._places[-1])

    def open(self) -> int:
        """A new descriptor of it."""
        # Only where the first has gone is the second it: before that, the corpus that is replaced may have one so named.
        with suppress(FileNotFoundError):
            return os.open(self._places[0], os.O_RDONLY | os.O_CLOEXEC)
        return os.open(self._places[1], os.O_RDONLY | os.O_CLOEXEC)

    def documents(self, count: int, /) -> "DocumentColumns":
        """Its first `count` documents."""
        with suppress(MissingShardError):
            return read_documents(self._places[0], count)
        return read_documents(self._places[1], count)


@dataclass(frozen=True, slots=True, eq=False)
class _Last:
    """What was put together last."""

    parts: Sequence[_Part]
    growing: "GrowingShard | None"
    files: ShardFiles
    mask_files: ShardFiles | None
    live: LiveLine


class LiveLineMaker:
    """Puts the line of a build together, again and again, doing no more each time than has changed.

    Args:
        index: absolute, of the `shards.json` that there is or will be.
        io, verify: see `ShardFiles`.
    """

    def __init__(self, index: Path, *, io: Io, verify: bool) -> None:
        self._index = index
        self._io: Io = io
        self._verify = verify
        self._base: tuple[Manifest, Sequence[_Part]] | None = None
        self._parts: dict[str, _Part] = {}
        self._journal: tuple[object, Mapping[Key, Finished]] = None, {}
        self._growing: GrowingShard | None = None
        self._last: _Last | None = None

    def finished(self, building: Building) -> Mapping[Key, Finished]:
        """The finished source shards.

        Raises:
            ManifestError: the journal is damaged.
        """
        journal = self._index.parent / building.folder / JOURNAL
        mark = file_mark(journal)
        if mark is None:
            return {}
        if self._journal[0] != mark:
            try:
                self._journal = mark, read_finished(journal)
            except (KeyError, TypeError, AttributeError) as error:
                raise ManifestError(f"{journal}: is damaged ({type(error).__name__}: {error})") from error
        return self._journal[1]

    def make(self, building: Building) -> LiveLine:
        """What is whole of the build: see `LiveLine`. The same object again if nothing has changed.

        Raises:
            MissingShardError: a shard is not there; the build may have moved on since it wrote `building`.
            ManifestError, CorruptShardError, UnreadableShardError: naming the file.
        """
        shards = self._index.parent / building.folder
        finished = self.finished(building)
        parts = [*self._base_parts(building)]
        index, cut, base = building.first_index, 0, 0
        while (index, cut) in finished and index < building.stop_index:  # beyond may be those of an append that waits
            done = finished[index, cut]
            entries = (replace(entry, row_base=entry.row_base + base) for entry in done.entries)
            parts += [self._finished_part(building, entry) for entry in entries]
            last = cut + 1 == done.cuts
            index, cut, base = (index + 1, 0, 0) if last else (index, cut + 1, base + done.rows)
        growing: GrowingShard | None = None
        for opened in building.open:
            if opened.key == (index, cut):
                rolls, growing = self._at_work(shards, opened, base)
                parts += rolls
                base += opened.row_base
        if growing is not None and not growing.document_count:
            growing = None
        return self._joined(building, parts, growing, base)

    # -- the parts --------------------------------------------------------------------------------------------------

    def _base_parts(self, building: Building) -> Sequence[_Part]:
        """The shards of the corpus that is appended to."""
        if not building.base:
            return ()
        if self._base is None or self._base[0].fingerprint.hex != building.base:
            manifest = read_version(self._index, building.base)
            line, entries = open_line(self._index, manifest, io=self._io, verify=False)
            extents: Sequence[ShardExtents] = line.table.parts()
            if manifest.has_loss_mask:
                masks = open_mask_line(self._index, manifest, io=self._io, verify=False).table.parts()
                extents = [replace(part, loss_mask=mask) for part, mask in zip(extents, masks, strict=True)]
            self._base = manifest, [_Part(*pair) for pair in zip(entries, extents, strict=True)]
        return self._base[1]

    def _finished_part(self, building: Building, entry: ShardEntry) -> _Part:
        """A shard that the journal lists."""
        path, then = self._index.parent / building.folder / entry.path, self._index.parent / entry.path
        entry = replace(entry, path=str(path))
        part = self._parts.get(entry.shard_id)
        if part is None or part.entry != entry or part.mark is not None:  # not known, or as one that was at work
            same = part is not None and part.entry.sha256 == entry.sha256
            extents = part.extents if same and part else extents_of(checked_layout(path, entry))
            part = _Part(entry, extents)
            if path != then:
                masks = [file_with(place, LOSS_MASK) for place in (path, then)]
                part = replace(part, held=_MovingShard(path, then), mask_held=_MovingShard(*masks))
        self._parts[entry.shard_id] = part
        return part

    def _at_work(self, shards: Path, opened: OpenShard, base: int) -> "tuple[Sequence[_Part], GrowingShard | None]":
        """What is whole of a source shard that is not finished: finished shards, and the one that is being written."""
        rolls: list[_Part] = []
        try:
            for name, row_base in opened.finished:
                rolls.append(self._roll(shards / name, base + row_base))  # those before one that is missing are kept
        except MissingShardError:  # it is begun anew
            return rolls, None
        try:
            return rolls, self._grown(shards / opened.path, opened)
        except MissingShardError:  # it is begun anew, or was finished a moment ago
            with suppress(MissingShardError):
                rolls.append(self._roll(shards / opened.name, base + opened.row_base))
        return rolls, None

    def _roll(self, path: Path, row_base: int) -> _Part:
        """A finished shard of a source shard that is not."""
        from headrace.storage.growing import HeldShard  # noqa: PLC0415  # imports h5py
        from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # likewise

        mark = file_mark(path)
        part = self._parts.get(path.stem)
        if part is None or part.mark != mark:
            layout = inspect_shard(path)
            part = _Part(replace(entry_of(path, layout), row_base=row_base), extents_of(layout), mark)
            if sum(part.mark is not None for part in self._parts.values()) < _MOST_HELD:
                part = replace(part, held=HeldShard(path))
                if layout.token_count and not len(layout.first):
                    readers = [library_reader(path), library_reader(path, mask=True) if layout.loss_mask else None]
                    for reader in readers:
                        if reader is not None:
                            reader.read(0, 1)  # it opens the file, while that has its name
                    part = replace(part, reader=readers[0], mask_reader=readers[1])
            self._parts[path.stem] = part
        return part

    def _grown(self, path: Path, opened: OpenShard) -> "GrowingShard":
        from headrace.storage.growing import GrowingShard, is_gone  # noqa: PLC0415  # imports h5py

        try:
            if self._growing is not None and self._growing.path == path:
                self._growing.refresh()
            else:
                self._growing = GrowingShard(path, opened.name.removesuffix(".h5"))
        except CorruptShardError as error:
            if not is_gone(path):
                raise
            raise MissingShardError(f"{path}: was given up by its writer") from error
        return self._growing

    # -- the whole --------------------------------------------------------------------------------------------------

    def _joined(
        self, building: Building, parts: Sequence[_Part], growing: "GrowingShard | None", row_base: int
    ) -> LiveLine:
        entries = [part.entry for part in parts]
        extents = [part.extents for part in parts]
        if growing is not None:
            entries.append(_growing_entry(growing, row_base))
            extents.append(_growing_extents(growing, building.chunk_size))
        table = ExtentTable.build(extents)
        last = self._last
        same = last is not None and last.growing is growing and _are(last.parts, parts)
        if same and last is not None and last.live.line.token_count == table.token_count:
            return last.live
        held = {number: part.held for number, part in enumerate(parts) if part.held is not None}
        documents: dict[int, DocumentReader] = {**held}
        if growing is not None:
            documents[len(parts)] = growing
        masks = ExtentTable.build_masks(extents)
        if same and last is not None:
            files, mask_files = last.files, last.mask_files
        else:
            how: Any = {"io": self._io, "verify": self._verify}
            dtype = np.dtype(building.dtype).newbyteorder("<")
            readers = _readers([*(part.reader for part in parts), growing and growing.tokens])
            files = make_files(table, entries, dtype, **how, held=held, readers=readers)
            readers = _readers([*(part.mask_reader for part in parts), growing and growing.loss_mask])
            mask_files = None
            if masks is not None:
                how["held"] = {number: parts[number].mask_held or file for number, file in held.items()}
                mask_files = make_files(masks, entries, np.dtype(np.uint8), **how, readers=readers, mask=True)
        manifest = _manifest(building, self._base and self._base[0], entries)
        mask = None if mask_files is None else TokenLine(mask_files, masks)
        live = LiveLine(TokenLine(files, table), manifest, documents, mask)
        self._last = _Last(parts, growing, files, mask_files, live)
        return live


def _readers(found: Sequence[RangeReader | None]) -> dict[int, RangeReader]:
    """Those that are there, by the number of their shard."""
    return {number: reader for number, reader in enumerate(found) if reader is not None}


def _are(some: Sequence[_Part], others: Sequence[_Part]) -> bool:
    """Whether they are the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def _growing_entry(shard: "GrowingShard", row_base: int) -> ShardEntry:
    return ShardEntry(
        shard_id=shard.shard_id,
        path=str(shard.path),
        token_count=shard.token_count,
        document_count=shard.document_count,
        sha256=NO_HASH,
        documents_sha256=NO_HASH,
        loss_mask_sha256=NO_HASH if shard.loss_mask else "",
        row_base=row_base,
    )


def _growing_extents(shard: "GrowingShard", chunk_size: int) -> ShardExtents:
    """Not flat: its file cannot be mapped, for it may be cut at any moment."""
    nothing = np.empty(0, np.uint64)
    extents = ShardExtents(
        token_count=shard.token_count,
        file_size=0,
        digest_offset=0,
        chunk_size=chunk_size,
        first_crc=0,
        last_crc=0,
        first=nothing,
        offset=nothing,
    )
    return replace(extents, loss_mask=extents) if shard.loss_mask else extents


def _manifest(building: Building, base: Manifest | None, entries: Sequence[ShardEntry]) -> Manifest:
    starts = accumulate((entry.token_count for entry in entries), initial=0)
    return Manifest(
        chunk_size=building.chunk_size,
        shards=tuple(replace(entry, global_start=start) for entry, start in zip(entries, starts, strict=False)),
        dtype=building.dtype,
        vocab_size=building.vocab_size,
        boundary_token_id=building.boundary_token_id,
        tokenizer=building.tokenizer,
        options=base.options if base else {},
        sources=base.sources if base else (),
        store="lance" if any(is_lance(Path(entry.path)) for entry in entries) else "hdf5",
    )
