"""`--dedup exact`: of all documents with one text the first in the order of the sources is kept.

A first pass hashes all texts, then the hashes are compared, and each job is told what it leaves out: a function of the
sources alone, whichever of them an earlier run has finished. Where documents are added to a corpus, its own come first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from headrace.building.duplicates import compare_runs, list_duplicates
from headrace.building.job import ShardJob
from headrace.building.joining import row_bases
from headrace.building.survey import Survey, SurveyJob
from headrace.building.text_hashes import RUN_DOCUMENTS, HashRuns, Run, run_of, write_run
from headrace.errors import CorruptShardError
from headrace.manifest import INDEX_NAME, Manifest, ShardEntry
from headrace.shard_paths import locate_shards
from headrace.storage.incoming import OriginsDigest
from headrace.storage.stores import read_documents_in_pieces

__all__ = ["without_duplicates"]


def without_duplicates(
    jobs: Sequence[ShardJob],
    folder: Path,
    survey: Callable[[Sequence[SurveyJob]], Sequence[Survey]],
    *,
    corpus: Path,
    base: Manifest | None,
) -> list[ShardJob]:
    """Tell each job which documents it leaves out.

    Args:
        jobs: of all source shards, in order.
        folder: empty, for what is found; it has to stay until they are done.
        survey: does the jobs of the first pass.
        corpus: the build's folder.
        base: the corpus that is appended to, which stores the hashes of its texts.

    Raises:
        HeadraceError, OSError: as of the build's own jobs; or the corpus is damaged.
    """
    known = [] if base is None else list(_runs_of_corpus(corpus, base, folder))
    surveys = survey(
        [
            SurveyJob(
                shard=job.shard,
                options=job.options,
                output=corpus,
                collectors=(partial(HashRuns, folder, job.source),),
            )
            for job in jobs
        ]
    )
    bases = list(row_bases((one.key[1], one.rows) for one in surveys))
    found = [one.results[0] for one in surveys]
    runs = [
        run_of(folder, job.shard.key, number, base)
        for job, one, base in zip(jobs, found, bases, strict=True)
        for number in range(one.runs)
    ]
    compare_runs([*known, *runs], len(known))
    for run in known:
        run.remove()
    labels = [source.path for source in base.sources] if base else []
    for job in jobs:
        labels += [file.label for file in job.shard.files] if job.shard.key[1] == 0 else []
    return [
        replace(job, duplicates=list_duplicates(folder, job.shard.key, one, base, labels))
        for job, one, base in zip(jobs, found, bases, strict=True)
    ]


def _runs_of_corpus(corpus: Path, manifest: Manifest, folder: Path) -> Iterator[Run]:
    """The documents of a corpus in runs, as if its shards were sources."""
    entries, _ = locate_shards(corpus / INDEX_NAME, manifest)
    for number, entry in enumerate(entries):
        yield from _runs_of_shard(folder / f"corpus-{number:06d}", entry)


def _runs_of_shard(stem: Path, entry: ShardEntry) -> Iterator[Run]:
    digest, files = OriginsDigest(), ()
    start = 0
    for columns in read_documents_in_pieces(Path(entry.path), entry.document_count, RUN_DOCUMENTS):
        columns.feed(digest)
        files = columns.files
        if columns.text_hashes is None:
            raise CorruptShardError(f"{entry.path}: /documents/text_hash is not there; `headrace verify` says more")
        run = Run(stem.with_name(f"{stem.name}-{start:012d}"), entry.row_base)
        write_run(run, columns.text_hashes, start, columns.rows, columns.file_indices + entry.source)
        start += len(columns.rows)
        yield run
    if entry.document_count and digest.hex(files) != entry.sources_sha256:
        raise CorruptShardError(f"{entry.path}: its hashes of texts are damaged; `headrace verify` says more")
