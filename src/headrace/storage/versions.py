"""The indexes of a corpus as it was before each append, kept by their fingerprints, and how one is found again."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from headrace.errors import FormatError, HeadraceError, ManifestError, MissingShardError, Problem
from headrace.manifest import PRIVATE, Manifest, read_manifest

__all__ = ["VERSIONS", "extents_name", "read_version"]

VERSIONS = Path(PRIVATE) / "versions"
"""In the corpus folder: `<fingerprint>.json`, the bytes of an earlier `shards.json` (whose paths stay relative to the
corpus folder), the sidecars of it and of its extents, `<fingerprint>.index.bin` and `<fingerprint>.extents.bin`, and where there is a
loss mask `<fingerprint>.loss_mask.bin`."""
_VERSION = re.compile(r"[0-9a-f]{8,64}")
_WHOLE = 64
"""Hex digits of a fingerprint."""


def extents_name(fingerprint: str, *, mask: bool = False) -> Path:
    """Where the extents of an earlier version lie, or those of its loss mask, in the corpus folder."""
    return VERSIONS / f"{fingerprint}.{'loss_mask' if mask else 'extents'}.bin"


def read_version(index: Path, version: str, read: Callable[[Path], Manifest] = read_manifest) -> Manifest:
    """The manifest of a corpus as it was under a fingerprint.

    No folder is listed, unless `version` is a prefix or there is no such version.

    Args:
        index: the `shards.json` of the corpus as it is now.
        version: the fingerprint, or at least 8 of its first digits.
        read: reads an index.

    Raises:
        ValueError: it is no fingerprint.
        MissingShardError: (a FileNotFoundError) no such version; the known ones are named.
        FormatError: several versions begin so.
        ManifestError: the index that was kept is damaged.
        UnreadableShardError: (an OSError) it cannot be read.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"a version is a fingerprint, 8 to 64 lower-case hex digits, not {version[:80]!r}")
    newest: Manifest | None = None
    fault: HeadraceError | None = None
    try:
        newest = read(index)
    except (MissingShardError, ManifestError) as error:
        fault = error  # earlier versions have indexes of their own
    current = newest.fingerprint.hex if newest else ""
    if len(version) < _WHOLE:
        version = _completed(index, version, current, fault)
    if newest is not None and version == current:
        return newest
    kept = index.parent / VERSIONS / f"{version}.json"
    try:
        manifest = read(kept)
    except MissingShardError as error:
        raise _unknown(index, version, current, fault) from error
    if manifest.fingerprint.hex != version:
        raise ManifestError(
            f"{kept}: holds the corpus {manifest.fingerprint}, not the one it is named for: it is damaged"
        )
    return manifest


def _completed(index: Path, prefix: str, current: str, fault: HeadraceError | None) -> str:
    """The one version that begins so."""
    found = [name for name in _known(index, current) if name.startswith(prefix)]
    if not found:
        raise _unknown(index, prefix, current, fault)
    if len(found) > 1:
        raise FormatError(
            f"{index.parent}: {len(found)} versions begin with {prefix!r}; give more digits",
            problems=[Problem(name, "is one of them") for name in found],
        )
    return found[0]


def _known(index: Path, current: str) -> list[str]:
    """Fingerprints of all versions, the current one last."""
    try:
        names = os.listdir(index.parent / VERSIONS)  # noqa: PTH208  # names are all that is wanted
    except (FileNotFoundError, NotADirectoryError):
        names = []
    kept = sorted(name.removesuffix(".json") for name in names if re.fullmatch(r"[0-9a-f]{64}\.json", name))
    return [*(name for name in kept if name != current), *([current] if current else [])]


def _unknown(index: Path, version: str, current: str, fault: HeadraceError | None) -> HeadraceError:
    known = _known(index, current)
    if not known and fault is not None:
        return fault
    return MissingShardError(
        f"{index.parent}: holds no version {version}; `headrace build --append` keeps those before it, --overwrite none",
        problems=[Problem(name, "the current one" if name == current else "kept") for name in known],
    )
