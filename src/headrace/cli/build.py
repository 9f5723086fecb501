"""`headrace build`."""

from typing import Annotated, Literal

import typer

from headrace.cli.terminal import JsonLines, ProgressDisplay, print_report, settings

__all__ = ["build"]


Format = Literal["auto", "jsonl", "text", "parquet", "arrow"]
OnBadInput = Literal["error", "skip", "replace"]
Dedup = Literal["none", "exact"]
Store = Literal["hdf5", "lance"]


def build(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC",
            help="Files, folders, patterns, and lists of fetched files (JSON with url, bytes and sha256); put -- before a "
            "path that begins with a dash.",
        ),
    ],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FOLDER", help="The corpus folder to make.")],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENIZER",
            help="'bytes' (the default); a tokenizer.json, tiktoken file or sentencepiece model, or its folder; or a hub "
            "name. hf:PATH never uses gigatoken.",
        ),
    ] = None,
    text_field: Annotated[
        str, typer.Option(metavar="FIELD", help="Field or column that holds the text; dotted for a nested one.")
    ] = "text",
    ids_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field or column that holds lists of token ids, instead of text."),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Highest id + 1 for --ids-field, where there is no tokenizer."),
    ] = None,
    id_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field or column of a string or integer to keep with each document."),
    ] = None,
    prompt_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field or column of a prompt, for documents of two texts; not in the loss."),
    ] = None,
    response_field: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Field or column of the response to the prompt, which alone counts in the loss."
        ),
    ] = None,
    chat_field: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field or column of a list of messages (role, content), for the tokenizer's chat template.",
        ),
    ] = None,
    tools_field: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Field or column of the tools that a conversation is offered, for the same template."
        ),
    ] = None,
    chat_template: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Which of the tokenizer's templates, or another; by default its own."),
    ] = None,
    chat_date: Annotated[
        str | None, typer.Option(metavar="YYYY-MM-DD", help="The day for templates that ask for today's.")
    ] = None,
    text_split: Annotated[
        str,
        typer.Option(
            metavar="none|blank-lines|line:TEXT|TEXT",
            help="Cut text files at blank lines, at lines that are TEXT, or at TEXT wherever it stands.",
        ),
    ] = "none",
    boundary: Annotated[
        str | None,
        typer.Option(
            metavar="ID|TOKEN",
            help="Id or vocabulary entry that ends each document (id:N and token:T force one); "
            "by default the tokenizer's own.",
        ),
    ] = None,
    bos: Annotated[bool, typer.Option("--bos", help="Begin each document with the tokenizer's BOS token.")] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Worker processes; by default what this machine's CPUs and memory allow."
        ),
    ] = None,
    shard_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End a shard with the first document that reaches this many tokens."),
    ] = None,
    chunk_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens in a chunk of a shard.")] = 65536,
    compression: Annotated[
        str, typer.Option(metavar="none|gzip[:LEVEL]|zstd[:LEVEL]", help="Compression of the tokens on disk.")
    ] = "none",
    store: Annotated[
        Store, typer.Option(help="Format of the shards: HDF5 files, or Lance data sets with the same content.")
    ] = "hdf5",
    max_document_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Text tokens kept of a document; what is cut is counted.")
    ] = None,
    max_documents: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Keep this many documents, the first in the order of the sources, or at random with --sample-seed.",
        ),
    ] = None,
    sample_seed: Annotated[
        int | None, typer.Option(metavar="SEED", min=0, help="Put the documents of all sources in a random order.")
    ] = None,
    format: Annotated[  # noqa: A002  # the option's name
        Format, typer.Option(help="How files are read; auto judges each.")
    ] = "auto",
    include: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Which files of folders are read; may be repeated.")
    ] = None,
    on_bad_input: Annotated[
        OnBadInput,
        typer.Option(help="Stop and report, leave bad documents out and count them, or put U+FFFD for invalid bytes."),
    ] = "error",
    max_bad: Annotated[
        float,
        typer.Option(
            metavar="FRACTION",
            min=0,
            max=1,
            help="Share of bad documents of a source that stops it, from its thousandth document on.",
        ),
    ] = 0.01,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="Keep empty documents as a boundary alone.")] = False,
    dedup: Annotated[
        Dedup, typer.Option(help="exact: of documents with the same text keep the first; reads the sources twice.")
    ] = "none",
    allow_duplicates: Annotated[
        bool, typer.Option("--allow-duplicates", help="Accept a.jsonl beside a.jsonl.gz.")
    ] = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Read everything back and compare its hashes before ending.")
    ] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add the inputs to the corpus that is there; its old index is kept.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace what is there; the old corpus is removed once the new one is whole."),
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Work in the order of the sources, for readers that follow the build.")
    ] = False,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Let reports of bad documents quote their text.")
    ] = False,
    json_lines: Annotated[bool, typer.Option("--json", help="Write events to stdout as JSON lines.")] = False,
    max_reported: Annotated[int, typer.Option(metavar="N", min=0, help="Most places that are listed.")] = 20,
) -> None:
    """Tokenize documents into a verified, sharded corpus.

    Reads JSON lines (one document a line), JSON arrays and text files (one document a file), plain or compressed; Parquet and
    Arrow (one document a row), and folders that Hugging Face save_to_disk wrote. Nothing appears under shards.json before
    all of it is whole. After a failure, a kill or ^C the same command goes on from what is finished.
    """
    if append and overwrite:
        raise typer.BadParameter("--append adds to a corpus and --overwrite replaces it; give one of the two")
    from headrace.building.build import build as build_corpus  # noqa: PLC0415  # heavy; not for --help

    settings.max_reported = max_reported
    with ProgressDisplay() as display:
        report = build_corpus(
            sources,
            output,
            tokenizer=tokenizer,
            text_field=text_field,
            ids_field=ids_field,
            vocab_size=vocab_size,
            id_field=id_field,
            prompt_field=prompt_field,
            response_field=response_field,
            chat_field=chat_field,
            tools_field=tools_field,
            chat_template=chat_template,
            chat_date=chat_date,
            text_split=text_split,
            format=format,
            include=include or (),
            boundary=boundary,
            bos=bos,
            workers=workers,
            chunk_tokens=chunk_tokens,
            shard_tokens=shard_tokens,
            compression=compression,
            store=store,
            max_document_tokens=max_document_tokens,
            max_documents=max_documents,
            sample_seed=sample_seed,
            on_bad_input=on_bad_input,
            max_bad=max_bad,
            keep_empty=keep_empty,
            dedup=dedup,
            allow_duplicates=allow_duplicates,
            validate=validate,
            append=append,
            overwrite=overwrite,
            live=live,
            show_text=show_text,
            on_event=JsonLines() if json_lines else display,
        )
    if not json_lines:
        print_report(report)
