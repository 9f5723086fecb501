"""Adding sources to a corpus that is there: what must agree, and what keeps the old one open."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.building.plan import BuildPlan, PlannedSource
from headrace.errors import OutputExistsError, Problem
from headrace.in_progress import SHARD_NAME
from headrace.manifest import INDEX_NAME, Append, Manifest
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import write_sidecars
from headrace.storage.index_sidecar import publish_index
from headrace.storage.versions import VERSIONS

__all__ = ["appended_manifest", "appended_plan", "first_free_index", "keep_version", "refuse_other_corpus"]

_SHARED = ("boundary_token_id", "chunk_tokens", "bos_token_id", "store")
"""Options that hold for a corpus as a whole."""


def refuse_other_corpus(path: Path, manifest: Manifest, plan: BuildPlan) -> None:
    """Refuse to mix what one corpus cannot hold.

    Raises:
        OutputExistsError: another tokenizer, boundary or chunk size, or a corpus that does not say; or duplicates are to be
            left out, and it does not store the hashes of its texts.
    """
    if manifest.version == 1 or manifest.tokenizer is None:
        raise OutputExistsError(f"{path}: does not say which tokenizer wrote it, so nothing can be appended safely")
    made = BuildPlan.of_manifest(manifest)
    options = _shared(plan)
    mine = replace(made, options=_shared(made), sources=())
    problems = mine.differences(replace(plan, mode="build", base="", options=options, sources=()))
    used = {other.get("chat_template") for other in (made.options, *(append.options for append in manifest.appends))}
    wanted = plan.options.get("chat_template")
    if wanted is not None and used != {None} and wanted not in used:
        problems.append(
            Problem("chat_template (--chat-template)", "the corpus keeps another one, which wrote what it holds")
        )
    if manifest.has_loss_mask != plan.has_loss_mask:
        was, now = ("has a loss mask", "has none") if manifest.has_loss_mask else ("has none", "has a loss mask")
        problems.append(
            Problem("loss mask (--prompt-field, --chat-field)", f"the corpus {was}, what would be added {now}")
        )
    if problems:
        raise OutputExistsError(f"{path}: cannot be appended to by this command", problems=problems)
    parts = [("the corpus", manifest.options), *(("an append to it", append.options) for append in manifest.appends)]
    unhashed = [Problem(name, "was built without --dedup exact") for name, options in parts if "dedup" not in options]
    if "dedup" in plan.options and unhashed:
        raise OutputExistsError(
            f"{path}: does not store the hashes of all its texts, so what it holds already is not known; append without "
            "--dedup, or build all of it again with --dedup exact and --overwrite",
            problems=unhashed,
        )


def _shared(plan: BuildPlan) -> dict[str, Any]:
    return {name: plan.options[name] for name in _SHARED if name in plan.options}


def appended_plan(manifest: Manifest) -> BuildPlan | None:
    """The plan of the last append; None where there was none."""
    if not manifest.appends:
        return None
    last = manifest.appends[-1]
    sources = (PlannedSource(source.path, source.size, "", 0) for source in manifest.sources[last.sources :])
    made = BuildPlan.of_manifest(manifest)
    options = {name: made.options[name] for name in ("boundary_token_id", "chunk_tokens")}
    return BuildPlan(
        mode="append",
        base=last.base,
        options={**last.options, **options},
        tokenizer=made.tokenizer,
        sources=tuple(sources),
    )


def first_free_index(base: Manifest) -> int:
    """Index of the first source shard that is added: a function of the manifest alone, beyond all that were used."""
    used = [int(found[1]) for entry in base.shards if (found := re.fullmatch(SHARD_NAME, entry.shard_id))]
    return max([len(base.sources), *(index + 1 for index in used)])


def appended_manifest(base: Manifest, added: Manifest) -> Manifest:
    """The manifest of a corpus and what was added to it.

    Args:
        base: the corpus.
        added: the new shards and sources; the shards' `source` counts the base's, their `global_start` does not.
    """
    shards = [replace(entry, global_start=entry.global_start + base.total_tokens) for entry in added.shards]
    append = Append(
        base=base.fingerprint.hex, sources=len(base.sources), shards=len(base.shards), options=added.options
    )
    return replace(
        base,
        shards=(*base.shards, *shards),
        sources=(*base.sources, *added.sources),
        appends=(*base.appends, append),
    )


def keep_version(folder: Path, base: Manifest, extents: Sequence[ShardExtents]) -> None:
    """Keep a corpus' index and extents under its fingerprint, so that runs which began on it can go on."""
    name = base.fingerprint.hex
    write_sidecars(folder, name, extents, version=True)
    publish_index(folder / VERSIONS / f"{name}.json", (folder / INDEX_NAME).read_bytes())
