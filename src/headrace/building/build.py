"""`headrace.build(...)`: documents -> a published, verified corpus. The command's twin."""

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from headrace.building.existing import Existing, prepare
from headrace.building.faults import FaultyInputError
from headrace.building.form import DocumentForm
from headrace.building.job import PART_BYTES, ContentOptions
from headrace.building.limits import default_workers
from headrace.building.making import make
from headrace.building.outcome import closing_report
from headrace.building.output import OutputFolder
from headrace.building.pipeline import DEFAULT_CHUNK_SIZE
from headrace.building.plan import BuildPlan
from headrace.building.processes import Workers
from headrace.building.work import Work
from headrace.errors import BuildError, Problem, TokenizerError
from headrace.events import BuildFinished, Notice, Subscriber, ignore
from headrace.manifest import INDEX_NAME, Store
from headrace.sources import BadInput, Discovery, Documents, discover
from headrace.sources.content import Format
from headrace.sources.field import Field
from headrace.sources.files import CUT_BYTES
from headrace.sources.given import given_documents, given_file
from headrace.sources.rawfile import DamagedFileError
from headrace.storage.compression import parse_compression
from headrace.storage.hdf5_writer import largest_chunk
from headrace.storage.lance_names import LANCE_MODULES, require_lance
from headrace.tokenizers.base import BatchTokenizer, TextEncoder
from headrace.tokenizers.gigatoken import ENCODING_MODULES
from headrace.tokenizers.load import resolve_bos, resolve_boundary
from headrace.verdicts import require_ok
from headrace.verify import verify_corpus

__all__ = ["build"]


def build(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Iterable[Any] | Documents,
    output: str | os.PathLike[str],
    *,
    tokenizer: str | os.PathLike[str] | BatchTokenizer | TextEncoder | None = None,
    text_field: str = "text",
    ids_field: str | None = None,
    vocab_size: int | None = None,
    id_field: str | None = None,
    prompt_field: str | None = None,
    response_field: str | None = None,
    chat_field: str | None = None,
    tools_field: str | None = None,
    chat_template: str | None = None,
    chat_date: str | None = None,
    text_split: str = "none",
    format: Literal["auto", "jsonl", "text", "parquet", "arrow"] = "auto",  # noqa: A002  # named as the command's option
    include: Sequence[str] = (),
    boundary: str | int | None = None,
    bos: bool = False,
    workers: int | None = None,
    chunk_tokens: int = DEFAULT_CHUNK_SIZE,
    shard_tokens: int | None = None,
    compression: str = "none",
    store: Store = "hdf5",
    max_document_tokens: int | None = None,
    max_documents: int | None = None,
    sample_seed: int | None = None,
    on_bad_input: Literal["error", "skip", "replace"] = "error",
    max_bad: float = 0.01,
    keep_empty: bool = False,
    dedup: Literal["none", "exact"] = "none",
    allow_duplicates: bool = False,
    validate: bool = False,
    append: bool = False,
    overwrite: bool = False,
    live: bool = False,
    show_text: bool = False,
    on_event: Subscriber = ignore,
) -> BuildFinished:
    """Tokenize documents into a corpus.

    The corpus' bytes depend on the inputs, the tokenizer and the options from `text_field` to `dedup` (workers
    left out), not on how the work is divided. Nothing appears under `shards.json` before all of it is whole. What an
    earlier run of the same command has finished, before it failed or was killed, is checked and kept.

    Args:
        inputs: files, folders and patterns, one or a list of them; see `headrace.sources.discover`. Or documents: a list of
            mappings that have the text field, any other iterable of strings or of mappings, such as a generator or a Hugging
            Face data set, or `headrace.Documents`. They are read once, by one worker, and never taken for those of an
            earlier build: what it had not finished is begun anew, and a corpus that is there is refused.
        output: the corpus folder.
        tokenizer: `bytes` (also where None is given, for texts); a `tokenizer.json`, its folder or a hub name; or a tokenizer
            object: of `tokenizers`, `transformers`, `tiktoken` or `sentencepiece`, or any with `encode` and `vocab_size`.
        text_field: field or column that holds a document's text, dotted for a nested one; not together with `ids_field`,
            `prompt_field` or `chat_field`, which take its place.
        ids_field: field or column that holds a document as a list of token ids, instead of its text; a document with
            anything else in its list than ids of the vocabulary is bad. The boundary ends each document once, whether or not
            its list ends with it; and with `bos` the BOS begins it once. What only they make up is empty.
        vocab_size: highest id + 1 of such ids, where the tokenizer that made them is not at hand; the boundary is then
            given as an id. A corpus of them cannot be decoded without naming the tokenizer.
        id_field: field or column that holds a string or an integer that a document goes by, kept with it for `locate`; a
            document that has none is bad.
        prompt_field: field or column that holds a document's prompt, a text, where it has two texts; a document without one
            is bad, an empty one is not. Both are encoded by themselves, one behind the other, and the corpus stores which
            of its tokens count as targets in the loss (`Corpus.loss_mask`): those of the response, and the boundary
            behind it.
        response_field: field or column that holds the response; a document in which it is empty is dropped as empty.
        chat_field: field or column that holds a conversation, a list of messages with `role` and `content`, which a chat
            template of the tokenizer.json makes one text of (the extra `chat`). The ids are those of Hugging Face, but that
            a message cannot use special tokens, only spell them; the corpus stores a loss mask of what the assistant says.
        tools_field: field or column that holds the tools that a conversation is offered, a list of objects or its JSON text,
            which the template gets as `tools`; a conversation in which it is missing or null has none.
        chat_template: name of one of the tokenizer's templates, or a file; by default its own.
        chat_date: the day, YYYY-MM-DD, that a template gets which asks for today's.
        text_split: where text files are cut into documents: `none` (a file is one), `blank-lines`, `line:TEXT` (lines that
            are this text) or any other text (wherever it stands).
        format: how files are read; `auto` judges each. This, `include` and `text_split` are of files alone.
        include: patterns, or one, that select files in folders.
        boundary: id or vocabulary entry that ends each document; by default the tokenizer's own end-of-text token.
        bos: begin each document with the tokenizer's beginning-of-text token.
        workers: processes, no more than there are source shards; by default as many as there are CPUs for this process
            and GB of memory in its cgroup.
        chunk_tokens: tokens a chunk of a shard.
        shard_tokens: a shard ends with the first document that reaches this many tokens; by default a shard a source.
        compression: of the tokens: `none`, `gzip[:level]` or `zstd[:level]` (the extra `zstd`).
        store: `hdf5`, or `lance` (the extra `lance`): Lance data sets, `tokens.lance` with a token a row,
            `docs.lance` with a document a row, and of documents that have a loss mask `loss_mask.lance`. Both stores hold the
            same, and have the same fingerprint. Lance takes no compression.
        max_document_tokens: text tokens kept of each document, counted in the report.
        max_documents: keep this many documents, the first ones in the order of the sources; what lies behind them is not
            read. They are counted before they are built, which reads all sources but the last one twice, as far as needed.
            With `sample_seed` they are a sample, in which each set of so many documents is as likely as another.
        sample_seed: an integer from 0, for which the documents of all sources are put in a random order: of its own for each
            seed, and the same each time. The sources are read once, and their texts lie on disk a second time until the
            corpus is whole. By default documents keep the order of the sources.
        on_bad_input: `error` stops and reports, `skip` leaves documents out and counts them, `replace` puts U+FFFD
            where bytes are invalid.
        max_bad: share of bad documents of a source above which `skip` and `replace` stop.
        keep_empty: keep documents with an empty text, as a boundary alone.
        dedup: `exact` keeps, of all documents with one text, the first in the order of the sources, or with `append` the one
            in the corpus; the others are counted as `duplicate`, and listed with the place of the one that is kept. Sources
            are read twice. The corpus stores the hashes of texts, so that later appends can do the same.
        allow_duplicates: accept `a.jsonl` beside `a.jsonl.gz`; append what is in the corpus already.
        validate: read everything back and compare before returning.
        append: add the inputs to the corpus that is there, whose index is kept: `headrace.open(version=...)`.
        overwrite: replace what is there. A corpus goes once the new one is whole.
        live: work through the sources in their order instead of the largest first, so that what others follow by
            `headrace.open(output, live=True)` grows all the time.
        show_text: let the errors about bad documents quote them.
        on_event: receives progress.

    Returns:
        The closing report.

    Raises:
        SourceError: inputs that are missing or bad; all problems in one, of bad documents the first of many.
        MissingExtraError: an input is Parquet or Arrow, and pyarrow is not installed (the extra `parquet`).
        TokenizerError: the tokenizer cannot be loaded, has no boundary, or disagrees with its reference.
        OutputExistsError: the output holds a corpus or an unfinished build of another command (each difference is named),
            or another build is at work in it.
        BuildError: the work could not be finished.
        CorruptShardError: `validate` found a fault.
    """
    started = time.monotonic()
    _check_options(
        on_bad_input,
        max_bad,
        dedup,
        sample_seed,
        workers=workers,
        chunk_tokens=chunk_tokens,
        shard_tokens=shard_tokens,
        max_document_tokens=max_document_tokens,
        max_documents=max_documents,
    )
    form = DocumentForm(
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        text_field=text_field,
        ids_field=ids_field,
        id_field=id_field,
        prompt_field=prompt_field,
        response_field=response_field,
        chat_field=chat_field,
        tools_field=tools_field,
        chat_template=chat_template,
        chat_date=chat_date,
    )
    if not os.fspath(output):
        raise BuildError("the output is an empty path; wanted a folder", usage=True)
    if append and overwrite:
        raise BuildError("append adds to a corpus and overwrite replaces it; wanted one of the two", usage=True)
    _check_store(store, compression)
    found = _find(
        inputs,
        form.field,
        dedup=dedup,
        format=format,
        include=include,
        text_split=text_split,
        allow_duplicates=allow_duplicates,
    )
    _tell_notices(found, on_event)
    existing: Existing = "append" if append else "overwrite" if overwrite else "resume"
    count = workers or default_workers()
    with OutputFolder(Path(output).absolute()) as folder, Workers((folder.lock,)) as processes:
        wanted = min(count, len(found.shards))
        if wanted > 1 and (existing != "resume" or not (folder.path / INDEX_NAME).exists()):
            # There is something to do: they begin while the tokenizer loads.
            modules = [*(ENCODING_MODULES if form.encodes else ()), *(LANCE_MODULES if store == "lance" else ())]
            processes.start(wanted, modules)
        loaded = form.load(lambda text: on_event(Notice(kind="tokenizer", message=text)))
        boundary_id, bos_id = resolve_boundary(loaded, boundary), resolve_bos(loaded, "auto") if bos else None
        loaded = form.taking_documents(loaded, boundary_id, bos_id)
        if store == "hdf5":
            _check_chunk(chunk_tokens, loaded.vocab_size)
        options = ContentOptions(
            boundary_token_id=boundary_id,
            bos_token_id=bos_id,
            **form.options(loaded, boundary_id, bos_id),
            text_split=text_split,
            chunk_tokens=chunk_tokens,
            shard_tokens=shard_tokens,
            max_document_tokens=max_document_tokens,
            max_documents=max_documents,
            sample_seed=sample_seed,
            compression=str(parse_compression(compression)),
            store=store,
            on_bad_input=BadInput(on_bad_input).value,
            max_bad=max_bad,
            keep_empty=keep_empty,
            dedup=dedup,
            cut_bytes=CUT_BYTES,
            part_bytes=PART_BYTES,
        )
        command = BuildPlan.of("build", "", found, options, loaded.ref)
        work, plan = prepare(
            folder, command, found, existing=existing, allow_duplicates=allow_duplicates, on_event=on_event
        )
        if work.sound:
            return _nothing_to_do(str(output), work, found, on_event)
        work.begin(plan)
        try:
            made = make(
                work,
                found,
                options,
                loaded,
                count=count,
                workers=processes,
                in_order=live,
                show_text=show_text,
                on_event=on_event,
            )
        except BaseException as error:
            _keep(work, error, found, on_event)
            raise
    if validate:
        _validate(folder.path)
    corpus, added, outcomes, resumed = made
    report = closing_report(str(output), corpus, added, outcomes, resumed=resumed, seconds=time.monotonic() - started)
    on_event(report)
    return report


def _find(
    inputs: str | os.PathLike[str] | Iterable[Any] | Documents,
    field: Field,
    *,
    dedup: str,
    format: Format,  # noqa: A002  # as of `build`
    include: Sequence[str],
    text_split: str,
    allow_duplicates: bool,
) -> Discovery:
    """The files that hold the documents, or what a program gave in their place."""
    given = given_documents(inputs)
    if given is None:
        return discover(
            cast("Sequence[str]", [inputs] if isinstance(inputs, str | os.PathLike) else inputs),
            format=format,
            include=include,
            text_field=field,
            text_split=text_split,
            allow_duplicates=allow_duplicates,
            cut_bytes=CUT_BYTES,
        )
    if dedup != "none":
        raise BuildError(
            "dedup reads the documents twice, and those of a program can be read once only: write them to a file (JSON lines) "
            "and build that, or leave duplicates out before"
        )
    return Discovery.of_documents(given_file(given, field, paths=given is inputs))


def _validate(folder: Path) -> None:
    """Read everything back."""
    verdict = verify_corpus(folder)
    advice = ": they do not read back as written; check the disk"
    require_ok(verdict.shards, verdict.others, where=f"{folder}: ", advice=advice)


def _keep(work: Work, error: BaseException, found: Discovery, on_event: Subscriber) -> None:
    """Keep what is finished of a build that failed, and say so."""
    faulty: list[str] = []
    if isinstance(error, FaultyInputError):
        faulty = [drop.path for drop in error.drops]
    elif isinstance(error, DamagedFileError):
        faulty = [error.label]
    # Of a tokenizer that is not what it says, not even finished shards are right.
    kept = work.abandon(faulty, keep=not isinstance(error, TokenizerError) and not found.given)
    if kept:
        on_event(
            Notice(
                kind="kept",
                message=f"{work.journal.share(kept, len(found.shards))} are finished and stay in {work.folder.path}; the same "
                "command goes on from there",
            )
        )


def _nothing_to_do(output: str, work: Work, found: Discovery, on_event: Subscriber) -> BuildFinished:
    """The report of a command whose corpus is there and whole."""
    manifest = work.published
    assert manifest is not None  # noqa: S101  # that is what `sound` says
    added = manifest
    if work.mode == "append":
        last = manifest.appends[-1]
        added = replace(manifest, shards=manifest.shards[last.shards :], sources=manifest.sources[last.sources :])
    report = closing_report(output, manifest, added, work.done, resumed=len(found.shards), seconds=0.0)
    work.tidy()
    on_event(Notice(kind="resumed", message="the corpus of this command is there already; its bytes were checked"))
    on_event(report)
    return report


def _check_store(store: str, compression: str) -> None:
    if store not in get_args(Store):
        raise BuildError(f"store is {' or '.join(get_args(Store))}, not {store!r}", usage=True)
    if store == "hdf5":
        return
    if str(parse_compression(compression)) != "none":
        raise BuildError(
            f"compression is {compression!r}: what Lance compresses cannot be mapped; wanted none", usage=True
        )
    require_lance("store 'lance'")


def _check_chunk(chunk_tokens: int, vocab_size: int) -> None:
    most = largest_chunk(vocab_size)
    if chunk_tokens > most:
        raise BuildError(f"chunk_tokens: wanted 1 to {most} for this vocabulary, found {chunk_tokens}", usage=True)


def _check_options(
    on_bad_input: str, max_bad: float, dedup: str, sample_seed: int | None, **counts: int | None
) -> None:
    problems = [
        Problem(name, f"wanted an integer from 1, found {value!r}")
        for name, value in counts.items()
        if value is not None and (type(value) is not int or value < 1)
    ]
    if sample_seed is not None and (type(sample_seed) is not int or sample_seed < 0):
        problems.append(Problem("sample_seed", f"wanted an integer from 0, found {sample_seed!r}"))
    if on_bad_input not in set(BadInput):
        problems.append(Problem("on_bad_input", f"wanted error, skip or replace, found {on_bad_input!r}"))
    if dedup not in {"none", "exact"}:
        problems.append(Problem("dedup", f"wanted none or exact, found {dedup!r}"))
    if not 0 <= max_bad <= 1:
        problems.append(Problem("max_bad", f"wanted a fraction from 0 to 1, found {max_bad!r}"))
    if problems:
        raise BuildError("the build's options make no sense", problems=problems, usage=True)


def _tell_notices(found: Discovery, on_event: Subscriber) -> None:
    for label, reason in found.skipped:
        on_event(Notice(kind="skipped", message=f"{label}: {reason}"))
    for message in found.duplicates:
        on_event(Notice(kind="duplicate", message=message))
