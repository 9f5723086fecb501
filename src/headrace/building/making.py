"""The making of a corpus: run the jobs that are not finished, then publish."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from headrace.building.announce import Announcer
from headrace.building.check import sample_texts
from headrace.building.dedup import without_duplicates
from headrace.building.engine import Listener
from headrace.building.first import agrees, not_read, share_out
from headrace.building.job import ContentOptions, ShardJob, ShardOutcome
from headrace.building.joining import in_files, publish_logs
from headrace.building.outcome import make_manifest, nothing_kept
from headrace.building.output import FIRST_PASS, first_pass_folder
from headrace.building.passes import Setting
from headrace.building.processes import Workers
from headrace.building.publishing import publish
from headrace.building.room import RoomCheck
from headrace.building.shuffling import in_random_order, is_read, shuffled_outcomes
from headrace.building.source_hashes import PromiseCheck
from headrace.building.survey import Survey, SurveyJob
from headrace.building.tally import Counts, Sums
from headrace.building.teller import Teller
from headrace.building.work import Work
from headrace.errors import BuildError
from headrace.events import FirstPass, Notice, Subscriber
from headrace.in_progress import Key
from headrace.manifest import Manifest
from headrace.sources import Discovery
from headrace.tokenizers.base import BatchTokenizer

__all__ = ["make"]


def make(
    work: Work,
    found: Discovery,
    options: ContentOptions,
    tokenizer: BatchTokenizer,
    *,
    count: int,
    workers: Workers,
    in_order: bool,
    show_text: bool,
    on_event: Subscriber,
) -> tuple[Manifest, Manifest, Sequence[ShardOutcome], int]:
    """Run the jobs that are not finished, and publish.

    Returns:
        The manifest of the whole corpus, that of what was added, what became of each source shard, and how many of them
        were finished before.
    """
    setting = Setting(
        work=work,
        found=found,
        options=options,
        tokenizer=tokenizer,
        count=count,
        workers=workers,
        in_order=in_order,
        show_text=show_text,
        on_event=on_event,
    )
    jobs = work.jobs(found, options)
    with ExitStack() as stack:
        if options.sample_seed is not None and is_read(work):
            finished, resumed = shuffled_outcomes(work), len(work.journal.finished)
        else:
            folder = work.folder.path / FIRST_PASS
            if options.dedup != "none" or options.sample_seed is not None:
                stack.enter_context(first_pass_folder(work.folder.path))
            if options.dedup != "none":
                jobs = _without_duplicates(setting, jobs, folder)
            if options.sample_seed is not None:
                finished, resumed = in_random_order(setting, jobs, folder)
            else:
                finished, resumed = _in_source_order(setting, jobs)
    outcomes = list(in_files(finished))
    work.refuse_known_documents(outcomes)
    manifest = make_manifest(outcomes, tokenizer, options)
    if not manifest.total_documents:
        raise BuildError(nothing_kept(outcomes))
    publish_logs(work.shards, finished)
    corpus = publish(work, manifest, outcomes, tokenizer, {"root": str(found.root)})
    _tell_drops(outcomes, manifest, on_event)
    _tell_counts(outcomes, manifest, found, on_event)
    _tell_unread(manifest, on_event)
    _tell_same(manifest, on_event)
    return corpus, manifest, outcomes, resumed


def _in_source_order(setting: Setting, jobs: Sequence[ShardJob]) -> tuple[list[ShardOutcome], int]:
    """Run the jobs that are not finished.

    Returns:
        What became of each source shard, and how many were finished before.
    """
    work = setting.work
    jobs = list(share_out(jobs, work.journal.finished, setting.options))
    work.discard([job.shard.key for job in jobs if not agrees(work.journal.finished.get(job.shard.key), job)])
    resumed = len(work.journal.finished)
    used = [job for job in jobs if job.most != 0]
    todo = [job for job in used if job.shard.key not in work.journal.finished]
    todo = [replace(job, own_thread=setting.own_threads(len(todo))) for job in todo]
    sample = list(sample_texts([job.shard for job in used], setting.options.field))
    announcer = Announcer(work.folder.path, setting.building([job.shard for job in used]))
    setting.tell_start([job.shard for job in todo])
    whole = [job.shard for job in todo if job.most is None]
    teller = Teller(setting.on_event, work.journal, announcer, RoomCheck(work.shards, whole))
    unread = {job.shard.files[0].label for job in jobs if job.most is not None}
    try:
        with (
            setting.reporting(lambda: [shard for shard in whole if shard.key not in work.journal.finished]),
            PromiseCheck([file for file in setting.found.files if file.label not in unread]) as promises,
        ):
            setting.engine(len(todo), sample=sample).run(todo, teller.listener)
            promises.finish()
    finally:
        announcer.stopped()
    return [work.journal.finished[job.shard.key] if job.most != 0 else not_read(job) for job in jobs], resumed


def _without_duplicates(setting: Setting, jobs: Sequence[ShardJob], folder: Path) -> list[ShardJob]:
    """Find the duplicates by a first pass, and say so."""
    work, on_event = setting.work, setting.on_event
    Announcer(work.folder.path, setting.building([job.shard for job in jobs]))

    def survey(surveys: Sequence[SurveyJob]) -> list[Survey]:
        found = dict[Key, Survey]()
        sums, total = Sums(), sum(job.shard.size for job in surveys)

        def progress(key: Key, counts: Counts) -> None:
            now = sums.add(key, counts)
            told = FirstPass(
                input_bytes=now.input_bytes, total_bytes=total, documents=now.documents, seconds=now.seconds
            )
            on_event(told)

        listener: Listener[Survey] = Listener(
            progress=progress,
            outcome=lambda one: found.update({one.key: one}),
            retry=lambda message: on_event(Notice(kind="retried", message=message)),
        )
        with setting.reporting(lambda: [job.shard for job in surveys if job.shard.key not in work.journal.finished]):
            setting.engine(len(surveys), reads=True).run(surveys, listener)
        return [found[job.shard.key] for job in surveys]

    on_event(Notice(kind="dedup", message="all sources are read once first, to find documents that are there twice"))
    started = time.monotonic()
    jobs = without_duplicates(jobs, folder, survey, corpus=work.folder.path, base=work.base)
    documents, left_out = (sum(getattr(job.duplicates, name) for job in jobs) for name in ("documents", "count"))
    seconds = time.monotonic() - started
    on_event(Notice(kind="dedup", message=f"{left_out:,} of {documents:,} documents are duplicates ({seconds:,.1f} s)"))
    return jobs


def _tell_counts(outcomes: Sequence[ShardOutcome], added: Manifest, found: Discovery, on_event: Subscriber) -> None:
    """Where a list of fetched files counts other documents than were read; what counts is for its writer to say."""
    counts = {source.path: source.documents + sum(source.dropped.values()) for source in added.sources}
    unread = {source.path for source in added.sources if not source.whole}
    # A small file is read in one piece, of which documents behind the last that was wanted are not counted.
    unread.update(source.path for outcome in outcomes if outcome.ended_early for source in outcome.sources)
    for file in found.files:
        promised = file.promise.documents if file.promise else None
        if promised not in {None, counts[file.label]} and file.label not in unread:
            message = f"{file.label}: {counts[file.label]} documents, but the list of fetched files says {promised}"
            on_event(Notice(kind="documents", message=message))


def _tell_same(added: Manifest, on_event: Subscriber) -> None:
    """Which files hold the same bytes under different names: likely copies, but nobody asked for them to be left out."""
    first: dict[str, str] = {}
    for source in added.sources:
        if source.sha256 and source.documents:
            before = first.setdefault(source.sha256, source.path)
            if before != source.path:
                message = f"{source.path} holds the same bytes as {before}; both were read"
                on_event(Notice(kind="duplicate", message=message))


def _tell_unread(added: Manifest, on_event: Subscriber) -> None:
    """How much lies behind the last document that was wanted."""
    unread = [source for source in added.sources if not source.whole]
    if unread:
        begun = sum(source.documents > 0 for source in unread)
        size = sum(source.size for source in unread)
        message = f"{len(unread)} source files of {size:,} bytes were not read to their ends, {len(unread) - begun} not at all"
        on_event(Notice(kind="unread", message=message))


def _tell_drops(outcomes: Sequence[ShardOutcome], added: Manifest, on_event: Subscriber) -> None:
    """The first bad documents of each source, in order, and the files that hold none."""
    for outcome in outcomes:
        for drop in outcome.drops:
            on_event(Notice(kind="dropped", message=str(drop)))
    for source in added.sources:
        if not source.documents and not source.dropped and source.whole:
            on_event(Notice(kind="empty", message=f"{source.path}: 0 documents"))
