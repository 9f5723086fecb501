"""What a command finds in its output folder: nothing, a corpus, what is unfinished; of this command or another."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal

from headrace.building.appending import appended_plan, first_free_index, refuse_other_corpus
from headrace.building.cutting import lacks_log
from headrace.building.journal import Journal
from headrace.building.output import OutputFolder
from headrace.building.plan import BuildPlan
from headrace.building.source_hashes import holds
from headrace.building.work import Work
from headrace.errors import ManifestError, OutputExistsError, Problem
from headrace.events import Notice, Subscriber
from headrace.in_progress import JOURNAL, NEXT, Key
from headrace.manifest import INDEX_NAME, Manifest, SourceEntry, read_manifest
from headrace.shard_paths import locate_shards
from headrace.sources import Discovery, SourceFile
from headrace.verify import verify_shards

__all__ = ["Existing", "prepare"]

Existing = Literal["resume", "append", "overwrite"]
"""What to do about an output that is there already."""


def prepare(
    folder: OutputFolder,
    plan: BuildPlan,
    found: Discovery,
    *,
    existing: Existing,
    allow_duplicates: bool = False,
    on_event: Subscriber,
) -> tuple[Work, BuildPlan]:
    """Look at what is in the output, and compare it with the command.

    Args:
        folder: held.
        plan: of the command, as a first build.
        found: its inputs.
        existing: what to do about what is there.
        allow_duplicates: append files that are in the corpus already.
        on_event: is told what is kept and what is done again.

    Returns:
        The work, and its plan.

    Raises:
        OutputExistsError: there is a corpus, or an unfinished build, of another command; each difference is named.
    """
    manifest = _published(folder, existing)
    if manifest is not None and found.given and existing == "resume":
        raise OutputExistsError(
            f"{folder.path}: holds a corpus already ({INDEX_NAME}); whether it is of these documents is not known before "
            "they are read: choose another folder, or give append or overwrite"
        )
    if existing == "append":
        work, plan = _append(folder, manifest, plan, found, allow_duplicates=allow_duplicates)
    elif existing == "overwrite" and manifest is not None:
        journal = Journal.load(folder.path / NEXT / JOURNAL)
        work = Work(folder=folder, mode="overwrite", journal=journal, replaced=manifest)
        plan = replace(plan, mode="overwrite")
    else:
        work = Work(folder=folder, mode="build", journal=Journal.load(folder.path / JOURNAL), published=manifest)
    if existing != "overwrite" and work.overwriting:
        message = (
            f"{work.overwriting} source shards of an --overwrite that was not finished stay in {folder.path / NEXT}; its "
            "command goes on from there"
        )
        on_event(Notice(kind="kept", message=message))
    if work.published is not None:
        _compare_published(work, plan, found, on_event)
    elif work.journal.plan is not None:
        _compare_unfinished(work, plan, found, discard=existing == "overwrite", on_event=on_event)
    return work, plan


def _published(folder: OutputFolder, existing: Existing) -> Manifest | None:
    index = folder.path / INDEX_NAME
    if not index.exists():
        if existing == "append":
            raise OutputExistsError(
                f"{folder.path}: there is no corpus to append to (no {INDEX_NAME}); build it first, without --append"
            )
        return None
    try:
        return read_manifest(index)
    except ManifestError as error:
        if existing == "overwrite":
            return None  # nothing that could be opened is lost
        raise OutputExistsError(
            f"{folder.path}: holds a corpus already, whose {INDEX_NAME} cannot be used; --overwrite replaces it",
            problems=error.problems or [Problem(INDEX_NAME, error.summary)],
        ) from error


def _append(
    folder: OutputFolder, manifest: Manifest | None, plan: BuildPlan, found: Discovery, *, allow_duplicates: bool
) -> tuple[Work, BuildPlan]:
    assert manifest is not None  # noqa: S101  # `_published` saw to it
    refuse_other_corpus(folder.path, manifest, plan)
    journal = Journal.load(folder.path / JOURNAL)
    journal.take_up()
    unfinished = journal.appends_to(manifest)
    if not unfinished:
        journal.publish()
    last = appended_plan(manifest)
    if last is not None and not unfinished and not allow_duplicates and not found.given:
        again = replace(plan, mode="append", base=last.base)
        # When they were modified is not known: those that were read in part are taken for the same, and not added twice.
        known = [[source] if source.sha256 or source.cuts else [] for source in manifest.sources[-len(last.sources) :]]
        if not last.differences(again) and not _changed(found.files, again, last, known):
            return Work(folder=folder, mode="append", journal=journal, published=manifest), again
    if not allow_duplicates:
        _refuse_known_files(folder.path, manifest, found.files)
    first = first_free_index(manifest)
    work = Work(
        folder=folder,
        mode="append",
        journal=journal,
        base=manifest,
        first_index=first,
        refuse_known=found.given and not allow_duplicates,
    )
    return work, replace(plan, mode="append", base=manifest.fingerprint.hex)


def _refuse_known_files(path: Path, manifest: Manifest, files: Sequence[SourceFile]) -> None:
    """Refuse files whose bytes are in the corpus already; only those of an equal size are read for it."""
    known: dict[int, list[SourceEntry]] = {}
    for source in manifest.sources:
        if source.whole and source.size:
            known.setdefault(source.size, []).append(source)
    same = [(file.label, holds(file.path, known[file.size])) for file in files if file.size in known]
    problems = [Problem(label, f"is in the corpus already, as {source.path}") for label, source in same if source]
    if problems:
        raise OutputExistsError(
            f"{path}: {len(problems)} of {len(files)} inputs would be in the corpus twice; leave them out, or give "
            "--allow-duplicates",
            problems=problems,
        )


def _compare_published(work: Work, plan: BuildPlan, found: Discovery, on_event: Subscriber) -> None:
    """Refuse a corpus of another command; of this one, keep what is whole on disk."""
    manifest = work.published
    assert manifest is not None  # noqa: S101  # the caller's condition
    journal = work.journal
    if work.mode == "build":
        made = BuildPlan.of_manifest(manifest)
        problems = made.differences(plan)
        if manifest.appends:
            problems.append(Problem("appends", f"{len(manifest.appends)} were made since"))
        problems += [Problem("splits", f"it is the part {split.part!r} of a split") for split in manifest.splits[-1:]]
        if journal.plan is not None and not journal.plan.differences(plan):
            made = journal.plan  # knows when the sources were last modified
        problems = problems or _changed(found.files, plan, made, _published_sources(manifest))
        if problems:
            raise OutputExistsError(
                f"{work.folder.path}: holds a corpus already ({INDEX_NAME}), not of this command; choose another folder, "
                "--append to it, or replace it by --overwrite",
                problems=problems,
            )
    entries, _ = locate_shards(work.folder.path / INDEX_NAME, manifest)
    bad = {report.shard_id for report in verify_shards(entries, manifest=manifest) if not report.ok}
    lacking = set(_without_log(work, manifest, found)) if work.mode == "build" else set[Key]()
    unversioned = _data_sets(work.folder.path, manifest)
    work.sound = not bad and not lacking and not unversioned
    if work.sound:
        return
    if work.mode == "append":
        raise OutputExistsError(
            f"{work.folder.path}: this append is in the corpus already, but not all shards are whole; see `headrace "
            "verify`, and build the corpus again with --overwrite"
        )
    if work.appending:
        journal.set_aside()
    _forget_other_cuts(journal, found)
    whole = {replace(entry, global_start=0, row_base=0) for entry in manifest.shards if entry.shard_id not in bad}
    for key, outcome in list(journal.finished.items()):
        if key in lacking or not whole.issuperset(replace(entry, row_base=0) for entry in outcome.entries):
            del journal.finished[key]
    on_event(
        Notice(
            kind="resumed",
            message="the corpus is there, but not whole: "
            f"{journal.share(_total(journal, found) - len(journal.finished), len(found.shards))} are built again",
        )
    )


def _data_sets(corpus: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong with the data sets of a Lance corpus."""
    if manifest.lance is None:
        return []
    from headrace.storage.lance_versions import check_data_sets  # noqa: PLC0415  # an extra

    return check_data_sets(corpus, manifest)


def _without_log(work: Work, manifest: Manifest, found: Discovery) -> Iterator[Key]:
    """Source shards of a published corpus with documents that were dropped, and no list of them."""
    sources = iter(manifest.sources)
    read = {outcome.key: outcome for outcome in work.journal.shuffled.read} if work.journal.shuffled else {}
    for shard in found.shards:
        if shard.cut is None:
            if lacks_log(work.shards, shard.key, list(islice(sources, len(shard.files)))):
                yield shard.key
            continue
        # Which cuts have drops only the journal knows; without it, one list of the file's will do.
        if shard.is_last:
            whole = next(sources)
            keys = [(shard.index, number) for number in range(shard.cut.count)]
            outcomes = read or work.journal.finished
            parts = {key: outcomes[key] for key in keys if key in outcomes}
            yield from (key for key, part in parts.items() if lacks_log(work.shards, key, part.sources))
            if not parts and all(lacks_log(work.shards, key, [whole]) for key in keys):
                yield from keys


def _compare_unfinished(work: Work, plan: BuildPlan, found: Discovery, *, discard: bool, on_event: Subscriber) -> None:
    """Go on with an earlier run of the same command, keeping what it has finished and what is whole on disk."""
    journal = work.journal
    assert journal.plan is not None  # noqa: S101  # the caller's condition
    problems = journal.plan.differences(plan, journal.faulty)
    if not problems:
        _forget_other_cuts(journal, found)
        _forget_mended(journal, plan)
        problems = _changed(found.files, plan, journal.plan, _finished_sources(journal, found))
    if problems and discard:
        journal.finished.clear()
        return
    if problems:
        way_out = "choose another folder, or start over with --overwrite"
        if work.mode == "append":
            way_out = f"or give it up by removing {work.journal.path}"
        raise OutputExistsError(
            f"{work.folder.path}: holds an unfinished {journal.plan.mode} of another command ({len(journal.finished)} source "
            f"shards done); repeat that command, {way_out}",
            problems=problems,
        )
    if found.given:  # read anew, for nobody knows whether they are the same
        journal.finished.clear()
    found_count = len(journal.finished)
    for key, reason in _not_whole(work):
        part = f", cut {key[1]}," if journal.finished[key].cuts > 1 else ""
        del journal.finished[key]
        on_event(Notice(kind="resumed", message=f"source shard {key[0]}{part} is built again: {reason}"))
    if found_count:
        on_event(
            Notice(
                kind="resumed",
                message=f"{journal.share(len(journal.finished), len(found.shards))} are finished already; their bytes were "
                "checked",
            )
        )


def _not_whole(work: Work) -> Iterator[tuple[Key, str]]:
    """Source shards that the journal calls finished, whose files are not as it says."""
    finished = sorted(work.journal.finished.items())
    entries = [
        replace(entry, path=str(work.shards / entry.path)) for _, outcome in finished for entry in outcome.entries
    ]
    reports = {report.shard_id: report for report in verify_shards(entries)}
    for key, outcome in finished:
        bad = [reports[entry.shard_id] for entry in outcome.entries if not reports[entry.shard_id].ok]
        if bad:
            yield key, str(bad[0].fault)
        elif lacks_log(work.shards, key, outcome.sources):
            yield key, "the list of its dropped documents is gone"


def _total(journal: Journal, found: Discovery) -> int:
    return journal.shuffled.parts if journal.shuffled else len(found.shards)


def _forget_other_cuts(journal: Journal, found: Discovery) -> None:
    """Forget what was read of files that are cut otherwise now."""
    counts = {file.label: max(len(file.cuts), 1) for file in found.files}
    for key, outcome in list(journal.finished.items()):
        if any(counts.get(source.path) != outcome.cuts for source in outcome.sources):
            del journal.finished[key]


def _forget_mended(journal: Journal, plan: BuildPlan) -> None:
    """Forget the cuts of files that were mended: their lines may lie elsewhere now."""
    assert journal.plan is not None  # noqa: S101  # compared already
    pairs = zip(journal.plan.sources, plan.sources, strict=True)
    mended = {new.path for old, new in pairs if old != new and old.path in journal.faulty}
    for key, outcome in list(journal.finished.items()):
        if any(source.path in mended for source in outcome.sources):
            del journal.finished[key]


def _finished_sources(journal: Journal, found: Discovery) -> list[list[SourceEntry]]:
    """What was read of each source file, in source shards that are finished."""
    known: dict[str, list[SourceEntry]] = {}
    for outcome in (*journal.finished.values(), *(journal.shuffled.read if journal.shuffled else ())):
        for source in outcome.sources:
            known.setdefault(source.path, []).append(source)
    return [known.get(file.label, []) for file in found.files]


def _published_sources(manifest: Manifest) -> list[list[SourceEntry]]:
    """What was read of each source file of a corpus: what has a hash, and what was read in part."""
    return [[source, *([] if source.whole else [replace(source, sha256="", cuts=())])] for source in manifest.sources]


def _changed(
    files: Sequence[SourceFile], plan: BuildPlan, made: BuildPlan, known: Sequence[Sequence[SourceEntry]]
) -> list[Problem]:
    """Sources of unchanged size whose bytes are not those that were read; trusted if modified at the same time."""
    problems: list[Problem] = []
    for file, now, before, parts in zip(files, plan.sources, made.sources, known, strict=False):
        if now.mtime_ns == before.mtime_ns:
            continue
        hashed = [part for part in parts if part.sha256 or part.cuts]
        if not all(holds(file.path, [part]) for part in hashed):
            problems.append(Problem(file.label, "has changed since it was read: its SHA-256 is another"))
        elif any(part.documents for part in parts if part not in hashed):
            reason = "was modified since it was read in part (--max-documents): whether it has changed is not known"
            problems.append(Problem(file.label, reason))
    return problems
