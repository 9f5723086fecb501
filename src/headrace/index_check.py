"""What can be said against `shards.json`, the extents, and the earlier indexes, once every shard has been looked into."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from headrace.errors import HeadraceError, ManifestError, MissingShardError, Problem
from headrace.manifest import Append, Manifest, checksum_of
from headrace.storage.derived import is_sealed
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import load_extents, sidecar_name
from headrace.storage.index_sidecar import contradicts, index_sidecar
from headrace.storage.second_names import with_first_names
from headrace.storage.versions import VERSIONS, extents_name, read_version

__all__ = ["check_files", "stored_extents"]

_ADVICE = "remove it: opening derives it again from the shards"
_INDEX_ADVICE = "remove it: opening goes without it"
DocumentsByFile = tuple[tuple[str, int], ...] | None
"""Label and documents of each source file of a shard, in order; None where they are not known."""


def check_files(
    index: Path, manifest: Manifest, shards: Sequence[DocumentsByFile], *, moved: Sequence[tuple[str, Path]]
) -> dict[Path, list[Problem]]:
    """Judge the files beside the shards. What can be derived again, or is kept for others, may be absent.

    Args:
        index: the corpus' `shards.json`.
        manifest: what was read from it.
        shards: what each shard says of its sources.
        moved: ids of whole shards that lie otherwise in their files than a sidecar says, and that.

    Returns:
        The faults of each file, which may be none, each fault once.
    """
    found = {index: _index(index, manifest, shards)}
    masks = (False, True) if manifest.has_loss_mask else (False,)
    for sidecar in (index.parent / sidecar_name(mask=mask) for mask in masks):
        wrong = [name for name, path in moved if index.parent / path == sidecar]
        found[sidecar] = [Problem(str(sidecar), f"is not as shard {name} lies on disk; {_ADVICE}") for name in wrong]
        found[sidecar] += _sidecar(sidecar)
    found[index_sidecar(index)] = _index_sidecar(index)
    if manifest.lance is not None:
        from headrace.storage.lance_versions import check_data_sets  # noqa: PLC0415  # an extra

        found |= {Path(problem.place): [problem] for problem in check_data_sets(index.parent, manifest)}
    for append in manifest.appends:
        kept = index.parent / VERSIONS / f"{append.base}.json"
        found[kept] = _kept(index, kept, manifest, append)
        extents = [index.parent / extents_name(append.base, mask=mask) for mask in masks]
        found |= {path: _sidecar(path) for path in extents}
        found[index_sidecar(kept)] = _index_sidecar(kept)
    return found


def _index(index: Path, manifest: Manifest, shards: Sequence[DocumentsByFile]) -> list[Problem]:
    """What `shards.json` says beside the entries of its shards."""
    if manifest.version == 1:
        return []
    found = [*_lost_keys(index, manifest), *_appends(manifest), *_sources(manifest, shards)]
    found = found or _checksum(index)  # which only says that something is wrong
    return [Problem(f"{index}: {problem.place}", problem.reason) for problem in found]


def _lost_keys(index: Path, manifest: Manifest) -> list[Problem]:
    """Keys that are not there, so that a default stands in for what was written under them."""
    with suppress(OSError, ManifestError):
        data = index.read_bytes()
        if Manifest.from_json(data) == manifest:  # else it was replaced since
            return [
                Problem(place, "is not there; every build writes it")
                for place in _absent(json.loads(manifest.to_json()), json.loads(data), "")
            ]
    return []


def _checksum(index: Path) -> list[Problem]:
    with suppress(OSError, ValueError):  # else it was replaced since
        body: dict[str, Any] = json.loads(index.read_bytes())
        if "checksum" in body and body["checksum"] != checksum_of(body):
            return [Problem("checksum", "is not that of the rest: the file was damaged, or changed by hand")]
    return []


def _absent(wanted: object, found: object, place: str) -> list[str]:
    """Paths of keys of `wanted` that `found` lacks."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        known = cast("Mapping[str, Any]", found)
        paths: list[str] = []
        for key, value in cast("Mapping[str, Any]", wanted).items():
            path = f"{place}.{key}" if place else key
            paths += _absent(value, known[key], path) if key in known else [path]
        return paths
    if isinstance(wanted, list) and isinstance(found, list):
        pairs = zip(cast("list[object]", wanted), cast("list[object]", found), strict=True)
        return [path for n, (one, other) in enumerate(pairs) for path in _absent(one, other, f"{place}[{n}]")]
    return []


def _appends(manifest: Manifest) -> list[Problem]:
    """Each names the corpus before it by a fingerprint, which follows from the shards before it."""
    found: list[Problem] = []
    for number, append in enumerate(manifest.appends):
        base = replace(manifest, shards=manifest.shards[: append.shards]).fingerprint.hex
        if base != append.base:
            reason = f"says {append.base}, but the first {append.shards} shards are the corpus {base}"
            found.append(Problem(f"appends[{number}].base", reason))
    return found


def _sources(manifest: Manifest, shards: Sequence[DocumentsByFile]) -> list[Problem]:
    """Sources by the names that the shards have for them, and by their documents."""
    sources = manifest.sources
    counts = [0] * len(sources)
    faults: dict[str, str] = {}
    known = True
    for entry, files in zip(manifest.shards, shards, strict=True):
        if files is None:
            known = known and not entry.document_count
            continue
        for place, (label, count) in enumerate(files, entry.source):
            if place < len(sources) and sources[place].path == label:
                counts[place] += count
            elif sources:
                says = repr(sources[place].path) if place < len(sources) else "nothing"
                faults.setdefault(f"sources[{place}].path", f"says {says}, shard {entry.shard_id} {label!r}")
    if known and not faults:
        for place, (source, count) in enumerate(zip(sources, counts, strict=True)):
            if source.documents != count:
                reason = f"says {source.documents}, the shards hold {count} of {source.path}"
                faults[f"sources[{place}].documents"] = reason
    return [Problem(place, reason) for place, reason in faults.items()]


def stored_extents(index: Path, manifest: Manifest) -> list[ShardExtents] | None:
    """What the sidecar of a corpus says of each shard; None where there is no whole one of this corpus."""
    extents = load_extents(index.parent, manifest)
    return extents if extents is not None and len(extents) == len(manifest.shards) else None


def _sidecar(path: Path, advice: str = _ADVICE) -> list[Problem]:
    """Whether a sidecar is whole. One of another corpus is none of this one's: it is left by a build that was killed."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        return [Problem(str(path), f"cannot be read: {error.strerror}")]
    if is_sealed(data):
        return []
    return [Problem(str(path), f"is damaged: its checksum is not that of its content; {advice}")]


def _index_sidecar(index: Path) -> list[Problem]:
    """Whether the sidecar of an index is whole and, if it is of this one's bytes, says what they say."""
    path = index_sidecar(index)
    found = _sidecar(path, _INDEX_ADVICE)
    if not found:
        with suppress(OSError):  # there is none; or it or the index was replaced since
            if contradicts(path.read_bytes(), index.read_bytes()):
                found.append(Problem(str(path), f"and {index.name} say different things; {_INDEX_ADVICE}"))
    return found


def _kept(index: Path, path: Path, manifest: Manifest, append: Append) -> list[Problem]:
    """An index that was kept when something was appended is the beginning of the one there is now."""
    try:
        kept = read_version(index, append.base)
    except MissingShardError:
        return []
    except HeadraceError as error:
        return [Problem(str(path), error.summary.removeprefix(f"{path}: ")), *error.problems]
    except OSError as error:
        return [Problem(str(path), f"cannot be read: {error.strerror}")]
    begun = replace(
        manifest,
        shards=manifest.shards[: append.shards],
        sources=manifest.sources[: append.sources],
        appends=tuple(one for one in manifest.appends if one.shards < append.shards),
        lance=kept.lance,  # that of another version
    )
    if kept == begun or with_first_names(kept) == with_first_names(begun):
        return []
    return [Problem(str(path), f"and {index.name} say different things of what was there before the append")]
