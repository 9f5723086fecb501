"""The first documents of a build: how many of them each source shard gives.

The workers do not know each other's counts. So the documents are counted first, in source order, without encoding any, as
far as the one that is to be the last: which source shard holds it, and which documents go before it, is then known, however
the work is divided. Nothing is counted of the last source shard, for it may give all that is missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from headrace.building.job import ContentOptions, ShardJob, ShardOutcome
from headrace.building.wanted import wanted_batches
from headrace.in_progress import Key
from headrace.manifest import SourceEntry

__all__ = ["agrees", "not_read", "share_out"]


def share_out(
    jobs: Sequence[ShardJob], finished: Mapping[Key, ShardOutcome], options: ContentOptions
) -> Iterator[ShardJob]:
    """Tell each job how many documents it may keep; 0 for the source shards behind the last document.

    Args:
        jobs: in source order.
        finished: what became of some of them in an earlier run.
        options: of the build.

    Raises:
        SourceError: a file that is counted is damaged, or has changed.
    """
    left = options.max_documents
    for job in jobs:
        if not left or job is jobs[-1]:  # not limited, or none are wanted any more
            yield replace(job, most=left)
        else:
            count = _documents(job, finished.get(job.shard.key), left)
            yield replace(job, most=left if count >= left else None)
            left -= min(count, left)


def _documents(job: ShardJob, outcome: ShardOutcome | None, most: int) -> int:
    """How many there are; if more than `most`, at least so many."""
    if job.duplicates is not None:  # they were counted when these were looked for
        return job.duplicates.kept
    if outcome is not None and not outcome.ended_early:
        return outcome.documents
    return sum(len(batch.texts) for batch in wanted_batches(job.shard, job.options, most=most))


def agrees(outcome: ShardOutcome | None, job: ShardJob) -> bool:
    """Whether a source shard that was finished is as a job would make it: as many documents, and the same left out."""
    if outcome is None:
        return True
    if outcome.duplicates != (job.duplicates.sha256 if job.duplicates else ""):
        return False
    most = job.most
    if outcome.ended_early:
        return most == outcome.most
    return most is None or outcome.documents < most


def not_read(job: ShardJob) -> ShardOutcome:
    """What became of a source shard of which no document is wanted."""
    sources = [SourceEntry(path=file.label, size=file.size, sha256="", documents=0) for file in job.shard.files]
    return ShardOutcome(
        index=job.shard.index,
        entries=(),
        sources=tuple(sources),
        documents_in=0,
        replaced=0,
        cut_tokens=0,
        text_bytes=0,
        drops=(),
        most=0,
        cut=job.shard.key[1],
        cuts=job.shard.cuts,
    )
