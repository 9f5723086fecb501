"""Replacing a corpus by a new one of other content, so that at every moment the old one opens or the new one.

Shards of both have the same names. So the old ones get second names first, under which the old index then lists them; the
new ones take the names over; the new index replaces the old one; the old shards go last. Whatever ends this early, it can
be done again from the beginning: the new shards keep their own names until the end.
"""

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.building.output import DROPPED, lance_files
from headrace.errors import ManifestError, OutputExistsError
from headrace.manifest import INDEX_NAME, Manifest, read_manifest
from headrace.shard_paths import shard_candidates
from headrace.storage.atomic import fresh_name, fsync_folder
from headrace.storage.index_sidecar import publish_index
from headrace.storage.lance_names import DATA_SETS
from headrace.storage.second_names import OLD, with_second_names
from headrace.storage.stores import files_of
from headrace.storage.versions import VERSIONS

__all__ = ["forget_data_sets", "put_in_place", "remove_old", "remove_replaced"]

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV, errno.ENOSYS}


def put_in_place(corpus: Path, shards: Path, manifest: Manifest) -> set[Path]:
    """Give the new shards their final names, the old corpus staying whole under its own index.

    Args:
        corpus: the folder, which holds a corpus.
        shards: folder of the new shards.
        manifest: of the new shards.

    Returns:
        Files of the old corpus that are not of the new one, to be removed once that is published.
    """
    old = read_manifest(corpus)
    names = {entry.path for entry in manifest.shards}
    moved = _set_aside(corpus, old, names)
    folders = {corpus}
    for name in sorted(names):
        new, final = (files_of(place / name, loss_mask=manifest.has_loss_mask) for place in (shards, corpus))
        for source, target in zip(new, final, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(source, target)
            folders |= {target.parent, target.parent.parent}
    shutil.rmtree(corpus / DROPPED, ignore_errors=True)
    if (shards / DROPPED).is_dir():
        (corpus / DROPPED).mkdir()
        for log in sorted((shards / DROPPED).iterdir()):
            _link(log, corpus / DROPPED / log.name)
        fsync_folder(corpus / DROPPED)
    for folder in sorted(folders, reverse=True):
        fsync_folder(folder)
    files = (path for entry in old.shards for path in shard_candidates(corpus / INDEX_NAME, old, entry))
    inside = {path for path in files if path.parent == corpus and path.name not in names}
    mine = {Path(name).name for name in names}
    data = {path for path in lance_files(corpus) if path.name not in mine}
    return inside | data | moved


def forget_data_sets(corpus: Path, manifest: Manifest) -> None:
    """Remove what the Lance data sets still know of a corpus that was replaced, or all of them under one of another store."""
    if manifest.lance is not None:
        from headrace.storage.lance_versions import forget_before  # noqa: PLC0415  # an extra

        forget_before(corpus, manifest.lance)
        return
    for name in DATA_SETS:
        shutil.rmtree(corpus / name, ignore_errors=True)


def remove_old(corpus: Path, files: Iterable[Path], folders: Sequence[Path]) -> None:
    """Remove what the new corpus has replaced; `folders` are relative to it."""
    for path in files:
        with suppress(OSError):  # what stays does no harm
            path.unlink()
    for folder in (OLD, *folders):
        shutil.rmtree(corpus / folder, ignore_errors=True)


def remove_replaced(corpus: Path, manifest: Manifest, shards: Path) -> None:
    """Go on with `remove_old` where the build that published the corpus could not.

    Args:
        corpus: the folder.
        manifest: what is published there.
        shards: the folder of the shards that replaced others, relative; it goes last, so that none is left without it.
    """
    if (corpus / shards).is_dir() and not any(Path(entry.path).parent == OLD for entry in manifest.shards):
        if not manifest.appends:
            forget_data_sets(corpus, manifest)
        remove_old(corpus, (), (shards,) if manifest.appends else (VERSIONS, shards))


def _set_aside(corpus: Path, old: Manifest, names: set[str]) -> set[Path]:
    """Let the old index list its shards under second names, where the new ones need theirs."""
    taken = [entry for entry in old.shards if entry.path in names]
    if not taken:
        return set()
    if old.version == 1:
        raise OutputExistsError(f"{corpus}: holds a corpus of version 1 with shards named as ours; build elsewhere")
    (corpus / OLD).mkdir(parents=True, exist_ok=True)
    moved: set[Path] = set()
    for entry in taken:
        with suppress(FileNotFoundError):  # the old corpus was not whole
            _link(corpus / entry.path, corpus / OLD / entry.path)
        moved.add(corpus / OLD / entry.path)
    fsync_folder(corpus / OLD)
    for kept in (corpus / VERSIONS).glob("*.json"):
        with suppress(ManifestError):  # damaged before
            publish_index(kept, with_second_names(read_manifest(kept), names).to_json())
    publish_index(corpus / INDEX_NAME, with_second_names(old, names).to_json())
    return moved


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, replacing what has it; a copy where the file system knows one name only."""
    fresh = fresh_name(target)
    try:
        try:
            os.link(source, fresh)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copyfile(source, fresh)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)  # also where both were names of one file: then a rename does nothing
