"""`headrace.build(...)`: documents -> a published, verified corpus. The command's twin."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headrace.building.check import ReferenceCheck, sample_texts
from headrace.building.engine import Counts, Engine, PoolEngine, SerialEngine
from headrace.building.faults import BadDocumentsError, check_sources
from headrace.building.job import ContentOptions, ShardJob, ShardOutcome
from headrace.building.limits import default_workers
from headrace.building.outcome import closing_report, make_manifest, nothing_kept
from headrace.building.output import OutputFolder
from headrace.building.pipeline import DEFAULT_CHUNK_SIZE
from headrace.errors import MAX_LISTED, BuildError, CorruptShardError, Problem
from headrace.events import BuildFinished, BuildStarted, Notice, Progress, ShardWritten, Subscriber, ignore
from headrace.sources import BadInput, Discovery, discover
from headrace.tokenizers.base import BatchTokenizer
from headrace.tokenizers.load import load_tokenizer, resolve_bos, resolve_boundary
from headrace.verify import verify_path

__all__ = ["build"]


def build(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | BatchTokenizer = "bytes",
    text_field: str = "text",
    format: Literal["auto", "jsonl", "text"] = "auto",  # noqa: A002  # named as the command's option
    include: Sequence[str] = (),
    boundary: str | None = None,
    bos: bool = False,
    workers: int | None = None,
    chunk_tokens: int = DEFAULT_CHUNK_SIZE,
    shard_tokens: int | None = None,
    max_document_tokens: int | None = None,
    on_bad_input: Literal["error", "skip", "replace"] = "error",
    max_bad: float = 0.01,
    keep_empty: bool = False,
    allow_duplicates: bool = False,
    validate: bool = False,
    on_event: Subscriber = ignore,
) -> BuildFinished:
    """Tokenize documents into a corpus.

    The corpus' bytes depend on the inputs, the tokenizer and the options from `text_field` to `keep_empty` (workers
    left out), not on how the work is divided. Nothing appears under `shards.json` before all of it is whole.

    Args:
        inputs: files, folders and patterns; see `headrace.sources.discover`.
        output: the corpus folder.
        tokenizer: `bytes`; a `tokenizer.json`, its folder or a hub name; or a tokenizer object.
        text_field: field that holds a document's text, dotted for a nested one.
        format: how files are read; `auto` judges each.
        include: patterns that select files in folders.
        boundary: id or vocabulary entry that ends each document; by default the tokenizer's own end-of-text token.
        bos: begin each document with the tokenizer's beginning-of-text token.
        workers: processes, no more than there are source shards; by default as many as there are CPUs for this process
            and GB of memory in its cgroup.
        chunk_tokens: tokens a chunk of a shard.
        shard_tokens: a shard ends with the first document that reaches this many tokens; by default a shard a source.
        max_document_tokens: text tokens kept of each document, counted in the report.
        on_bad_input: `error` stops and reports, `skip` leaves documents out and counts them, `replace` puts U+FFFD
            where bytes are invalid.
        max_bad: share of bad documents of a source above which `skip` and `replace` stop.
        keep_empty: keep documents with an empty text, as a boundary alone.
        allow_duplicates: accept `a.jsonl` beside `a.jsonl.gz`.
        validate: read everything back and compare before returning.
        on_event: receives progress.

    Returns:
        The closing report.

    Raises:
        SourceError: inputs that are missing or bad; all problems in one, of bad documents the first of many.
        TokenizerError: the tokenizer cannot be loaded, has no boundary, or disagrees with its reference.
        OutputExistsError: the output holds a corpus, or another build is at work in it.
        BuildError: the work could not be finished.
        CorruptShardError: `validate` found a fault.
    """
    started = time.monotonic()
    _check_options(
        on_bad_input,
        max_bad,
        workers=workers,
        chunk_tokens=chunk_tokens,
        shard_tokens=shard_tokens,
        max_document_tokens=max_document_tokens,
    )
    if not os.fspath(output):
        raise BuildError("the output is an empty path; wanted a folder")
    given = [inputs] if isinstance(inputs, str | os.PathLike) else list(inputs)
    found = discover(
        [os.fspath(item) for item in given],
        format=format,
        include=include,
        text_field=text_field,
        allow_duplicates=allow_duplicates,
    )
    _tell_notices(found, on_event)
    loaded = load_tokenizer(tokenizer)
    options = ContentOptions(
        boundary_token_id=resolve_boundary(loaded, boundary),
        bos_token_id=resolve_bos(loaded, "auto") if bos else None,
        text_field=text_field,
        chunk_tokens=chunk_tokens,
        shard_tokens=shard_tokens,
        max_document_tokens=max_document_tokens,
        on_bad_input=BadInput(on_bad_input).value,
        max_bad=max_bad,
        keep_empty=keep_empty,
    )
    count = min(workers or default_workers(), len(found.shards))
    sample = list(sample_texts(found.shards, options.text_field))
    with OutputFolder(Path(output).absolute()) as folder, ReferenceCheck(loaded, sample) as check:
        on_event(
            BuildStarted(
                output=str(output),
                source_shards=len(found.shards),
                input_bytes=sum(shard.size for shard in found.shards),
                workers=count,
                tokenizer=loaded.ref.name,
            )
        )
        engine: Engine = SerialEngine(loaded) if count == 1 else PoolEngine(loaded, count, (folder.lock,))
        outcomes = _run(engine, found, options, folder.path, _Teller(on_event, started, check))
        check.finish()
        manifest = make_manifest(outcomes, loaded, options)
        if not manifest.total_documents:
            raise BuildError(nothing_kept(outcomes))
        extents = [extent for outcome in outcomes for extent in outcome.extents]
        folder.publish(manifest, extents, loaded.files(), {"root": str(found.root)})
    _tell_drops(outcomes, on_event)
    if validate:
        _validate(folder.path)
    report = closing_report(str(output), manifest, outcomes, time.monotonic() - started)
    on_event(report)
    return report


def _check_options(on_bad_input: str, max_bad: float, **counts: int | None) -> None:
    problems = [
        Problem(name, f"wanted an integer from 1, found {value!r}")
        for name, value in counts.items()
        if value is not None and (type(value) is not int or value < 1)
    ]
    if on_bad_input not in set(BadInput):
        problems.append(Problem("on_bad_input", f"wanted error, skip or replace, found {on_bad_input!r}"))
    if not 0 <= max_bad <= 1:
        problems.append(Problem("max_bad", f"wanted a fraction from 0 to 1, found {max_bad!r}"))
    if problems:
        raise BuildError("the build's options make no sense", problems=problems)


def _tell_notices(found: Discovery, on_event: Subscriber) -> None:
    for label, reason in found.skipped:
        on_event(Notice(kind="skipped", message=f"{label}: {reason}"))
    for message in found.duplicates:
        on_event(Notice(kind="duplicate", message=message))


def _tell_drops(outcomes: Sequence[ShardOutcome], on_event: Subscriber) -> None:
    """The first bad documents of each source, in order, and the files that hold none."""
    for outcome in outcomes:
        for drop in outcome.drops:
            on_event(Notice(kind="dropped", message=str(drop)))
        for source in outcome.sources:
            if not source.documents and not source.dropped:
                on_event(Notice(kind="empty", message=f"{source.path}: 0 documents"))


class _Teller:
    """Turns what the engine reports into events."""

    def __init__(self, on_event: Subscriber, started: float, check: ReferenceCheck) -> None:
        self._tell = on_event
        self._check = check
        self._started = started
        self._counts: dict[int, Counts] = {}
        self._sums = [0, 0, 0, 0]
        self.outcomes: dict[int, ShardOutcome] = {}

    def progress(self, index: int, counts: Counts) -> None:
        self._check.poll()
        before = self._counts.get(index, (0, 0, 0, 0))
        self._counts[index] = counts
        self._sums = [total + new - old for total, new, old in zip(self._sums, counts, before, strict=True)]
        input_bytes, documents, tokens, text_bytes = self._sums
        self._tell(
            Progress(
                input_bytes=input_bytes,
                documents=documents,
                tokens=tokens,
                text_bytes=text_bytes,
                seconds=time.monotonic() - self._started,
            )
        )

    def outcome(self, outcome: ShardOutcome) -> None:
        self.outcomes[outcome.index] = outcome
        for entry in outcome.entries:
            self._tell(
                ShardWritten(
                    shard_id=entry.shard_id,
                    tokens=entry.token_count,
                    documents=entry.document_count,
                    sha256=entry.sha256,
                )
            )


def _run(
    engine: Engine, found: Discovery, options: ContentOptions, output: Path, teller: _Teller
) -> list[ShardOutcome]:
    """Run all jobs; outcomes in source order."""
    jobs: list[ShardJob] = []
    first = 0
    for shard in found.shards:
        jobs.append(ShardJob(shard=shard, source=first, options=options, output=output))
        first += len(shard.files)
    try:
        engine.run(jobs, teller.progress, teller.outcome)
    except BadDocumentsError as error:
        raise _with_more(error, found, options, teller.outcomes) from error
    return [teller.outcomes[job.shard.index] for job in jobs]


def _with_more(
    error: BadDocumentsError, found: Discovery, options: ContentOptions, done: dict[int, ShardOutcome]
) -> BadDocumentsError:
    """The same error with the faults of the sources not yet read, so that one run reports many; in source order."""
    if len(error.drops) > MAX_LISTED:
        return error
    order = {file.label: number for number, file in enumerate(found.files)}
    told = {drop.path for drop in error.drops}
    rest = (
        shard for shard in found.shards if shard.index not in done and told.isdisjoint(f.label for f in shard.files)
    )
    more, cut = check_sources(rest, options.text_field)
    drops = sorted([*error.drops, *more], key=lambda drop: order[drop.path])
    return BadDocumentsError(drops, error.count + len(more), complete=error.complete and not cut, hint=error.hint)


def _validate(path: Path) -> None:
    reports = verify_path(path)
    problems = [report.fault for report in reports if not report.ok]
    if problems:
        raise CorruptShardError(
            f"{path}: {len(problems)} of {len(reports)} shards do not read back as written; check the disk",
            problems=problems,
        )
