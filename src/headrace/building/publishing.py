"""The last step of a build: everything that goes with the shards, then the index, with which the corpus exists."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.building.appending import appended_manifest, keep_version
from headrace.building.job import ShardOutcome
from headrace.building.output import keep_template, publish_corpus
from headrace.building.replacing import forget_data_sets, put_in_place, remove_old
from headrace.building.work import Work
from headrace.in_progress import BUILDING_NAME, JOURNAL, NEXT, WRITING
from headrace.manifest import LOCAL, PRIVATE, Manifest, ShardEntry
from headrace.storage.atomic import write_bytes
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import checked_layout, extents_of, load_extents
from headrace.storage.versions import VERSIONS
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["publish"]


def publish(
    work: Work, added: Manifest, outcomes: Sequence[ShardOutcome], tokenizer: BatchTokenizer, local: Mapping[str, str]
) -> Manifest:
    """Publish the new shards, as a corpus or as a part of one.

    Args:
        work: whose shards are all finished.
        added: the manifest of the new shards alone.
        outcomes: what became of each source shard, in order.
        tokenizer: the corpus keeps its files.
        local: what concerns this machine only; never hashed.

    Returns:
        The manifest of the whole corpus.
    """
    corpus = work.folder.path
    extents = [extent for outcome in outcomes for extent in _extents(work.shards, outcome)]
    write_bytes(corpus / PRIVATE / LOCAL, json.dumps(dict(local), indent=1).encode())
    if work.mode == "overwrite":
        manifest = _replace(work, added, extents, tokenizer)
    elif work.base is not None:
        work.journal.record()
        manifest = _with_versions(work, appended_manifest(work.base, added))
        old = _base_extents(corpus, work.base)
        keep_version(corpus, work.base, old)
        extents = [*old, *extents]
        keep_template(corpus, tokenizer.files())
        publish_corpus(corpus, manifest, extents, {})
    else:
        work.journal.record()
        manifest = _with_versions(work, added)
        publish_corpus(corpus, manifest, extents, tokenizer.files())
        work.remove_mended(manifest)
    (corpus / BUILDING_NAME).unlink(missing_ok=True)
    shutil.rmtree(corpus / WRITING, ignore_errors=True)  # empty now
    return manifest


def _with_versions(work: Work, manifest: Manifest) -> Manifest:
    """The manifest as it is published: of a Lance corpus with the versions that it is, which are there from now on."""
    if manifest.store == "hdf5":
        return manifest
    from headrace.storage.lance_versions import commit  # noqa: PLC0415  # an extra

    return replace(manifest, lance=commit(work.folder.path, manifest, work.there, append=work.base is not None))


def _replace(work: Work, added: Manifest, extents: Sequence[ShardExtents], tokenizer: BatchTokenizer) -> Manifest:
    """Put a new corpus in the place of the one that is there."""
    corpus = work.folder.path
    old = put_in_place(corpus, work.shards, added)
    # Of this corpus an append may be made, or the same command be repeated without --overwrite.
    work.journal.move(corpus / JOURNAL)
    manifest = _with_versions(work, added)
    publish_corpus(corpus, manifest, extents, tokenizer.files())
    (corpus / BUILDING_NAME).unlink(missing_ok=True)  # first, for what it tells of goes now
    forget_data_sets(corpus, manifest)
    remove_old(corpus, old, (VERSIONS, NEXT))
    return manifest


def _extents(folder: Path, outcome: ShardOutcome) -> Sequence[ShardExtents]:
    return outcome.extents or [_extents_of(folder, entry) for entry in outcome.entries]


def _extents_of(folder: Path, entry: ShardEntry) -> ShardExtents:
    return extents_of(checked_layout(folder / entry.path, entry))


def _base_extents(corpus: Path, base: Manifest) -> Sequence[ShardExtents]:
    return load_extents(corpus, base) or [_extents_of(corpus, entry) for entry in base.shards]
