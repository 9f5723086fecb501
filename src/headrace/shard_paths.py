"""Where the shards of a corpus lie: from the paths in its manifest to files that are there."""

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace.errors import MissingShardError, Problem, UnreadableShardError
from headrace.manifest import INDEX_NAME, Manifest, ShardEntry, index_path, read_manifest
from headrace.shards import ShardTable

__all__ = ["file_size", "load_index", "locate_shards", "require_there", "resolve_shards", "shard_candidates"]

_ABSENT = "no such file"


def require_there(path: Path) -> None:
    """Say what a corpus can be where a path leads nowhere.

    Raises:
        MissingShardError: it does.
    """
    if not path.exists():
        raise MissingShardError(
            f"{path}: no such file; wanted a corpus folder, its {INDEX_NAME}, one .h5 file, or a Lance data set"
        )


def shard_candidates(index: Path, manifest: Manifest, entry: ShardEntry) -> Sequence[Path]:
    """Where a shard may lie, in order of trial; never the working directory.

    Version 2 has one place. Version 1 wrote paths relative to the folder its writer ran in: tried are the index's
    folder, its parent, and the bare file name beside the index.
    """
    folder = index.parent
    if manifest.version != 1:
        return (folder / entry.path,)
    return tuple(dict.fromkeys((folder / entry.path, folder.parent / entry.path, folder / Path(entry.path).name)))


def load_index(path: str | os.PathLike[str]) -> list[ShardEntry]:
    """Read `shards.json` (or the folder that holds it) into entries with absolute paths.

    Version 1 paths are tried as index folder/path, its parent/path and index folder/basename; the first file that
    exists is taken here (`headrace.open` also compares its counts).

    Returns:
        The entries in corpus order.

    Raises:
        ManifestError, MissingShardError: as `read_manifest`, and for shards that are not there, all of them named.
    """
    index = index_path(path).absolute()
    return list(resolve_shards(index, read_manifest(index))[0])


def locate_shards(index: Path, manifest: Manifest) -> tuple[Sequence[ShardEntry], list[int]]:
    """Find the shards' files.

    Returns:
        Entries with absolute paths: of the first candidate that is a file, else of the first candidate; and the files'
        sizes in bytes, -1 where there is none.
    """
    if isinstance(manifest.shards, ShardTable):
        placed = manifest.shards.in_folder(str(index.parent))
        return placed, list(map(file_size, placed.texts("path")))
    located: list[ShardEntry] = []
    sizes: list[int] = []
    for entry in manifest.shards:
        candidates = shard_candidates(index, manifest, entry)
        path, size = next(
            ((path, size) for path in candidates if (size := file_size(path)) >= 0),
            (candidates[0], -1),
        )
        located.append(replace(entry, path=str(path)))
        sizes.append(size)
    return located, sizes


def resolve_shards(index: Path, manifest: Manifest) -> tuple[Sequence[ShardEntry], list[int]]:
    """Entries with absolute paths of existing files, and the files' sizes in bytes.

    Raises:
        MissingShardError: some are not there; all are named.
        UnreadableShardError: some cannot be reached, so that nothing is known of them; all are named.
    """
    located, sizes = locate_shards(index, manifest)
    if min(sizes, default=0) >= 0:
        return located, sizes
    reasons = {entry.path: _absence(entry.path) for entry, size in zip(located, sizes, strict=True) if size < 0}
    problems = [
        Problem(entry.path, f"{reasons[entry.path]} (shard {entry.shard_id}, {entry.token_count} tokens)")
        for entry in located
        if entry.path in reasons
    ]
    head = f"{index}: {len(problems)} of {len(located)} shards"
    if set(reasons.values()) != {_ABSENT}:
        raise UnreadableShardError(f"{head} cannot be read", problems=problems)
    raise MissingShardError(f"{head} are missing; copy them back or build again", problems=problems)


def file_size(path: str | Path) -> int:
    """Bytes of a file; -1 where there is none, or what is there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116  # a Path for each of ten thousand takes longer than this does
    except (OSError, ValueError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _absence(path: str) -> str:
    """Why there is no file at a path."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT
    except (OSError, ValueError) as error:
        return str(error)
    return "is not a file"
