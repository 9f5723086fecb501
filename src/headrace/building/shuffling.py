"""Documents in a random order: all sources are read and spilled, then parts of the order are written side by side.

A part is a range of keys, so that it is known without the others; how many parts there are depends on what was read alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from headrace.building.announce import Announcer
from headrace.building.check import sample_texts
from headrace.building.cutting import lacks_log
from headrace.building.drop_log import NOT_SAMPLED
from headrace.building.engine import Listener
from headrace.building.job import ShardJob, ShardOutcome
from headrace.building.joining import row_bases
from headrace.building.journal import Shuffled
from headrace.building.passes import Setting
from headrace.building.room import RoomCheck
from headrace.building.sample import choose, kept_by_file
from headrace.building.shuffle_jobs import PartJob, Read, ReadJob
from headrace.building.source_hashes import PromiseCheck
from headrace.building.spill import DOCUMENT_COST
from headrace.building.spilled import KEYS, RunEntry, Spilled, SpilledRun
from headrace.building.teller import Teller
from headrace.building.work import Work
from headrace.events import Progress
from headrace.in_progress import Key
from headrace.manifest import dtype_name_for

__all__ = ["in_random_order", "is_read", "shuffled_outcomes"]


def is_read(work: Work) -> bool:
    """Whether an earlier run of the same command has written all parts, so that nothing needs to be read."""
    shuffled, finished = work.journal.shuffled, work.journal.finished
    return (
        shuffled is not None
        and len(finished) == shuffled.parts
        and not any(lacks_log(work.shards, outcome.key, outcome.sources) for outcome in shuffled.read)
    )


def shuffled_outcomes(work: Work) -> list[ShardOutcome]:
    """What became of each source shard, and of each part, all of which are finished."""
    shuffled = work.journal.shuffled
    assert shuffled is not None  # noqa: S101  # that is what the caller has seen to
    return [*shuffled.read, *(work.journal.finished[key] for key in sorted(work.journal.finished))]


def in_random_order(setting: Setting, jobs: Sequence[ShardJob], folder: Path) -> tuple[list[ShardOutcome], int]:
    """Read all sources, and write the parts of the order that an earlier run has not finished.

    Half of the input counts as read where it is spilled, the other half where it is written.

    Args:
        setting: of the build.
        jobs: of all source shards.
        folder: empty, for what is read.

    Returns:
        What became of each source shard and of each part, and how many parts were finished before.
    """
    work, shards = setting.work, [job.shard for job in jobs]
    total = sum(shard.size for shard in shards)
    sample = list(sample_texts(shards, setting.options.field))
    setting.tell_start(shards)
    building = setting.building(shards)
    found = _read_all(setting, jobs, folder, sample, Announcer(work.folder.path, replace(building, input_bytes=0)))
    parts = _part_jobs(setting, jobs, found, folder)
    resumed = len(work.journal.finished)
    todo = [job for job in parts if job.shard.key not in work.journal.finished]
    todo = [replace(job, own_thread=setting.own_threads(len(todo))) for job in todo]
    done = sum(job.cost for job in parts) - sum(job.cost for job in todo)

    def told(written: int) -> int:
        return total // 2 + (total - total // 2) * (done + written) // max(
            sum(job.cost for job in parts), done + written, 1
        )

    building = setting.building([job.shard for job in parts])
    announcer = Announcer(work.folder.path, replace(building, total_bytes=total))
    room = RoomCheck(work.shards, [job.shard for job in todo])
    teller = Teller(setting.on_event, work.journal, announcer, room, told=told)
    try:
        with setting.reporting(lambda: ()):
            setting.engine(len(todo), sample=None).run(todo, teller.listener)
    finally:
        announcer.stopped()
    return shuffled_outcomes(work), resumed


def _read_all(
    setting: Setting, jobs: Sequence[ShardJob], folder: Path, sample: Sequence[bytes], announcer: Announcer
) -> list[Read]:
    """Read and spill all sources; the tokenizer is checked meanwhile."""
    work, options = setting.work, setting.options
    assert options.sample_seed is not None  # noqa: S101  # else nothing is shuffled
    work.forget_logs()
    reads = [
        ReadJob(
            job=replace(job, own_thread=setting.own_threads(len(jobs))),
            folder=folder,
            seed=options.sample_seed,
            place=(job.shard.index - work.first_index, job.shard.key[1]),
            most=options.max_documents,
        )
        for job in jobs
    ]
    found = dict[Key, Read]()
    shards = [job.shard for job in jobs]
    room = RoomCheck(folder, shards, written=lambda: _spilled(teller.read), more=lambda: _corpus_share(setting, sample))
    teller = Teller(setting.on_event, work.journal, announcer, room, told=lambda count: count // 2)
    listener: Listener[Read] = Listener(
        progress=teller.progress,
        outcome=lambda read: found.update({read.outcome.key: read}),
        retry=teller.retry,
    )
    with (
        setting.reporting(lambda: [shard for shard in shards if shard.key not in found]),
        PromiseCheck(setting.found.files) as promises,
    ):
        setting.engine(len(jobs), sample=sample).run(reads, listener)
        promises.finish()
    return [found[shard.key] for shard in shards]


def _spilled(read: Progress) -> int:
    """About how large what was read is on disk, or will be: workers hold some of it. Of ids, bytes are not counted."""
    return (read.text_bytes or read.input_bytes) + DOCUMENT_COST * read.documents


def _corpus_share(setting: Setting, sample: Sequence[bytes]) -> float:
    """About how large the corpus will be, for a byte of text or of ids."""
    size = np.dtype(dtype_name_for(setting.tokenizer.vocab_size)).itemsize
    ids, _ = setting.tokenizer.encode_documents(sample)
    return (len(ids) + len(sample)) * size / sum(map(len, sample)) if sample else 1.0


def _part_jobs(setting: Setting, jobs: Sequence[ShardJob], found: Sequence[Read], folder: Path) -> list[PartJob]:
    """Cut the order into parts, and record what was read; what an earlier run has finished is kept if it read the same."""
    work, options, most = setting.work, setting.options, setting.options.max_documents
    runs = list(_runs(work, jobs, found))
    outcomes = [one.outcome for one in found]
    documents = sum(outcome.documents for outcome in outcomes)
    share = 1.0
    if most is not None and most < documents:
        share = most / documents
        chosen = iter(choose(folder, [entry for some in runs for entry in some], most))
        runs = [[next(chosen) for _ in some] for some in runs]
        outcomes = [_sampled(folder, outcome, some) for outcome, some in zip(outcomes, runs, strict=True)]
    entries = tuple(entry for some in runs for entry in some)
    labels = tuple(file.label for job in jobs if job.shard.key[1] == 0 for file in job.shard.files)
    Spilled(labels, entries).write(folder)
    cost = sum(one.cost for one in found)
    count = max(-(-cost // options.part_bytes), 1)
    used = _used(folder, entries, count)
    work.begin_parts(Shuffled(used, tuple(outcomes)))
    return [
        PartJob(
            number=number,
            parts=count,
            index=work.first_index + number,
            source=work.first_source,
            cost=int(cost * share) // used,
            folder=folder,
            options=options,
            output=work.shards,
        )
        for number in range(used)
    ]


def _runs(work: Work, jobs: Sequence[ShardJob], found: Sequence[Read]) -> Iterator[list[RunEntry]]:
    """The runs of each source shard."""
    bases = row_bases((one.outcome.cut, one.outcome.rows) for one in found)
    for job, one, base in zip(jobs, found, bases, strict=True):
        yield [RunEntry(name, count, job.source - work.first_source, base) for name, count in one.runs]


def _sampled(folder: Path, outcome: ShardOutcome, entries: Sequence[RunEntry]) -> ShardOutcome:
    """What became of a source shard of whose documents some are left out."""
    kept = kept_by_file(folder, entries, len(outcome.sources))
    sources = (
        replace(
            source,
            documents=count,
            dropped=dict(sorted({**source.dropped, NOT_SAMPLED: source.documents - count}.items()))
            if count < source.documents
            else source.dropped,
        )
        for source, count in zip(outcome.sources, kept, strict=True)
    )
    return replace(outcome, sources=tuple(sources))


def _used(folder: Path, entries: Sequence[RunEntry], parts: int) -> int:
    """How many parts, from the first on, hold all wanted documents: of a sample, the last ones hold none."""
    ends = [int(SpilledRun(folder / entry.name).keys[entry.documents - 1]) for entry in entries if entry.documents]
    return max(ends, default=0) * parts // KEYS + 1
