"""The second names that shards have while their corpus is replaced by another one with shards of the same names."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from headrace.manifest import PRIVATE, Manifest

__all__ = ["OLD", "with_first_names", "with_second_names"]

OLD = Path(PRIVATE) / "old"
"""Where they are, in the corpus folder."""


def with_second_names(manifest: Manifest, names: Collection[str]) -> Manifest:
    """The index that lists those shards under their second names whose first ones are in `names`."""
    shards = (replace(entry, path=str(OLD / entry.path)) if entry.path in names else entry for entry in manifest.shards)
    return replace(manifest, shards=tuple(shards))


def with_first_names(manifest: Manifest) -> Manifest:
    """The index as it was before."""
    shards = (replace(entry, path=entry.path.removeprefix(f"{OLD}/")) for entry in manifest.shards)
    return replace(manifest, shards=tuple(shards))
