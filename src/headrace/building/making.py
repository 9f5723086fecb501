"""The making of a corpus: run the jobs that are not finished, then publish."""

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from headrace.building.announce import Announcer
from headrace.building.check import sample_texts
from headrace.building.dedup import without_duplicates
from headrace.building.engine import Engine, Listener, PoolEngine, SerialEngine
from headrace.building.faults import FaultyInputError, show_texts, with_more
from headrace.building.first import agrees, not_read, share_out
from headrace.building.job import ContentOptions, ShardJob, ShardOutcome
from headrace.building.joining import in_files, publish_logs
from headrace.building.limits import available_cpus
from headrace.building.outcome import make_manifest, nothing_kept
from headrace.building.output import first_pass_folder
from headrace.building.processes import Workers
from headrace.building.publishing import publish
from headrace.building.rolling import require_folder
from headrace.building.room import RoomCheck
from headrace.building.source_hashes import PromiseCheck
from headrace.building.survey import Survey, SurveyJob
from headrace.building.tally import Counts, Sums
from headrace.building.teller import Teller
from headrace.building.work import Work
from headrace.errors import BuildError, SourceError
from headrace.events import BuildStarted, FirstPass, Notice, Subscriber
from headrace.in_progress import Building, Key
from headrace.manifest import Manifest, dtype_name_for
from headrace.sources import BadInput, Discovery, SourceShard
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
    jobs = work.jobs(found, options)
    with ExitStack() as stack:
        if options.dedup != "none":
            Announcer(work.folder.path, _building(work, jobs, options, tokenizer))
            folder = stack.enter_context(first_pass_folder(work.folder.path))
            with _reporting(work, jobs, found, options, show_text=show_text):
                jobs = _without_duplicates(work, jobs, folder, count=count, workers=workers, on_event=on_event)
        jobs = list(share_out(jobs, work.journal.finished, options))
        work.discard([job.shard.key for job in jobs if not agrees(work.journal.finished.get(job.shard.key), job)])
        resumed = len(work.journal.finished)
        used = [job for job in jobs if job.most != 0]
        todo = [job for job in used if job.shard.key not in work.journal.finished]
        count = max(min(count, len(todo)), 1)
        if available_cpus() <= count:
            todo = [replace(job, own_thread=False) for job in todo]
        sample = list(sample_texts([job.shard for job in used], options.field))
        announcer = Announcer(work.folder.path, _building(work, used, options, tokenizer))
        on_event(
            BuildStarted(
                output=str(work.folder.path),
                source_shards=len(todo),
                input_bytes=sum(job.shard.size for job in todo),
                workers=count,
                tokenizer=tokenizer.ref.name,
            )
        )
        teller = Teller(on_event, work.journal, announcer, RoomCheck(work.shards, _read_whole(todo)))
        engine = _engine(tokenizer, count, sample, workers=workers, in_order=in_order)
        unread = {job.shard.files[0].label for job in jobs if job.most is not None}
        stack.callback(announcer.stopped)
        with (
            _reporting(work, _read_whole(todo), found, options, show_text=show_text),
            PromiseCheck([file for file in found.files if file.label not in unread]) as promises,
        ):
            engine.run(todo, teller.listener)
            promises.finish()
    finished = [work.journal.finished[job.shard.key] if job.most != 0 else not_read(job) for job in jobs]
    outcomes = list(in_files(finished))
    work.refuse_known_documents(outcomes)
    manifest = make_manifest(outcomes, tokenizer, options)
    if not manifest.total_documents:
        raise BuildError(nothing_kept(outcomes))
    publish_logs(work.shards, finished)
    corpus = publish(work, manifest, outcomes, tokenizer, {"root": str(found.root)})
    _tell_drops(outcomes, manifest, on_event)
    _tell_counts(manifest, found, on_event)
    _tell_unread(manifest, on_event)
    _tell_same(manifest, on_event)
    return corpus, manifest, outcomes, resumed


def _engine(
    tokenizer: BatchTokenizer | None, count: int, sample: Sequence[bytes], *, workers: Workers, in_order: bool
) -> Engine:
    if count == 1:
        workers.start(0)
        return SerialEngine(tokenizer, sample)
    return PoolEngine(tokenizer, count, sample, workers=workers, in_order=in_order)


def _without_duplicates(
    work: Work, jobs: Sequence[ShardJob], folder: Path, *, count: int, workers: Workers, on_event: Subscriber
) -> list[ShardJob]:
    """Find the duplicates by a first pass, and say so."""

    def survey(surveys: Sequence[SurveyJob]) -> list[Survey]:
        found: dict[Key, Survey] = {}
        engine = _engine(None, min(count, len(surveys)), (), workers=workers, in_order=False)
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
        engine.run(surveys, listener)
        return [found[job.shard.key] for job in surveys]

    on_event(Notice(kind="dedup", message="all sources are read once first, to find documents that are there twice"))
    started = time.monotonic()
    jobs = without_duplicates(jobs, folder, survey, corpus=work.folder.path, base=work.base)
    documents, left_out = (sum(getattr(job.duplicates, name) for job in jobs) for name in ("documents", "count"))
    seconds = time.monotonic() - started
    on_event(Notice(kind="dedup", message=f"{left_out:,} of {documents:,} documents are duplicates ({seconds:,.1f} s)"))
    return jobs


@contextmanager
def _reporting(
    work: Work, jobs: Sequence[ShardJob], found: Discovery, options: ContentOptions, *, show_text: bool
) -> Generator[None]:
    """Let what stops the jobs say all that is known of it."""
    try:
        yield
    except SourceError as error:
        rest = [job.shard for job in jobs if job.shard.key not in work.journal.finished]
        reported = _reported(error, rest, found, options, show_text=show_text)
        if reported is error:
            raise
        raise reported from error
    except (BuildError, FileNotFoundError):
        require_folder(work.folder.path)  # which says it, if it was removed meanwhile
        raise


def _read_whole(jobs: Sequence[ShardJob]) -> list[ShardJob]:
    return [job for job in jobs if job.most is None]


def _reported(
    error: SourceError, rest: Sequence[SourceShard], found: Discovery, options: ContentOptions, *, show_text: bool
) -> SourceError:
    """What stopped the build, with what else is wrong with the sources that are not finished."""
    if options.on_bad_input == BadInput.ERROR:
        order = {file.label: number for number, file in enumerate(found.files)}
        error = with_more(error, rest, order, options.field)
    if show_text and isinstance(error, FaultyInputError):
        error.problems = tuple(show_texts(error, found.files))
    return error


def _building(work: Work, jobs: Sequence[ShardJob], options: ContentOptions, tokenizer: BatchTokenizer) -> Building:
    finished = work.journal.finished.values()
    assert work.journal.plan is not None  # noqa: S101  # it has begun
    return Building(
        mode=work.mode,
        folder=str(work.shards.relative_to(work.folder.path)),
        base=work.base.fingerprint.hex if work.base else "",
        dtype=dtype_name_for(tokenizer.vocab_size),
        vocab_size=tokenizer.vocab_size,
        boundary_token_id=options.boundary_token_id,
        chunk_size=options.chunk_tokens,
        tokenizer=tokenizer.ref,
        first_index=work.first_index,
        source_shards=len(jobs),
        more_cuts=sum(job.shard.key[1] > 0 for job in jobs),
        total_bytes=sum(job.shard.size for job in jobs),
        plan=work.journal.plan.digest,
        input_bytes=sum(outcome.input_bytes for outcome in finished),
        documents=sum(entry.document_count for outcome in finished for entry in outcome.entries),
        tokens=sum(entry.token_count for outcome in finished for entry in outcome.entries),
    )


def _tell_counts(added: Manifest, found: Discovery, on_event: Subscriber) -> None:
    """Where a list of fetched files counts other documents than were read; what counts is for its writer to say."""
    counts = {source.path: source.documents + sum(source.dropped.values()) for source in added.sources}
    unread = {source.path for source in added.sources if not source.whole}
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
