"""`headrace verify`, `headrace info` and `headrace show`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.paths import given_path
from headrace.cli.terminal import JsonLines, print_rows, printable, settings, size
from headrace.events import ignore

if TYPE_CHECKING:
    from headrace.excerpts import Excerpt, Part
    from headrace.inspection import CorpusSummary
    from headrace.manifest import TokenizerRef
    from headrace.verdicts import CorpusReport

__all__ = ["info", "show", "verify"]

_WINDOW = 256
"""Tokens of a window, unless a length is given."""
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Control characters, and how they are shown."""

Corpus = Annotated[
    Path,
    typer.Argument(
        metavar="CORPUS",
        parser=given_path,
        help="A corpus folder, its shards.json, one HDF5 file, or a Lance data set.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]


def verify(
    path: Corpus,
    quick: Annotated[
        bool, typer.Option("--quick", help="Sizes, attributes, and the first and last chunk of each shard only.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads; by default the CPUs this process may use.")
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="FINGERPRINT", help="Fingerprint that the corpus must have, or its first digits, at least 8."
        ),
    ] = None,
    json_lines: Json = False,
    max_reported: Annotated[int, typer.Option(metavar="N", min=0, help="Most places that are listed.")] = 20,
) -> None:
    """Compare every byte of a corpus with shards.json. Exit code 1 if anything is not ok."""
    from headrace.inspection import verify_all  # noqa: PLC0415  # heavy; not for --help
    from headrace.verdicts import require_ok  # noqa: PLC0415
    from headrace.verify import check_expectation  # noqa: PLC0415

    settings.max_reported = max_reported
    try:
        expect = None if expect is None else check_expectation(expect)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--expect") from error
    on_event = JsonLines() if json_lines else ignore
    report = verify_all(path, quick=quick, workers=workers, expect=expect, on_event=on_event)
    if not json_lines:
        _print_verdicts(report, quick=quick)
    require_ok(report.shards, report.others)


def _print_verdicts(report: "CorpusReport", *, quick: bool) -> None:
    counts: dict[str, int] = {}
    for one in report.reports:
        counts[one.status] = counts.get(one.status, 0) + 1
    shown = report.reports
    if len(shown) > settings.max_reported:
        shown = [one for one in shown if not one.ok]
    for one in shown[: settings.max_reported]:
        sys.stdout.write(printable(f"{one.shard_id}  {one.status}\n", sys.stdout))
    if len(shown) > settings.max_reported:
        sys.stdout.write(f"... and {len(shown) - settings.max_reported} more\n")
    total = ", ".join(f"{count:,} {status}" for status, count in counts.items()) or "no shards"
    read = size(sum(one.bytes_read for one in report.shards))
    sys.stdout.write(f"{total}; {read} read{' (quick)' if quick else ''}; fingerprint {report.fingerprint}\n")


def info(
    path: Corpus,
    window: Annotated[
        int | None, typer.Option(min=1, metavar="T", help="Also say how windows of T input tokens divide it.")
    ] = None,
    json_object: Json = False,
) -> None:
    """Summarize a corpus: totals, tokenizer, documents, and whether its shape suits the trainer."""
    from headrace.corpus import open_corpus  # noqa: PLC0415  # heavy; not for --help
    from headrace.inspection import describe  # noqa: PLC0415

    with open_corpus(path) as corpus:
        summary = describe(corpus, window=window)
    if json_object:
        sys.stdout.write(json.dumps(asdict(summary)) + "\n")
    else:
        _print_summary(summary)


def _print_summary(summary: "CorpusSummary") -> None:
    rows = [
        ("corpus", summary.path),
        ("tokens", f"{summary.tokens:,} ({summary.dtype}, vocabulary of {summary.vocab_size:,})"),
        ("shards", f"{summary.shards:,} ({summary.store}, version {summary.version}, {size(summary.bytes_on_disk)})"),
        ("chunk", f"{summary.chunk_tokens:,} tokens" if summary.chunk_tokens else "none: each shard lies in one piece"),
        ("compression", summary.compression),
        ("tokenizer", f"{summary.tokenizer} ({summary.tokenizer_sha256})" if summary.tokenizer else "not recorded"),
    ]
    if summary.documents is None:
        rows.append(("documents", "no document index is stored"))
    else:
        rows.append(("documents", f"{summary.documents:,}"))
    if summary.median_document_tokens is not None:
        sampled = " (of a sample of shards)" if summary.median_is_sampled else ""
        rows.append(("median document", f"{summary.median_document_tokens:,.0f} tokens{sampled}"))
    if summary.boundary_share is not None:
        rows.append(("boundary", f"id {summary.boundary_token_id}, {summary.boundary_share:.2%} of the tokens"))
    if summary.loss_share is not None:
        sampled = " (of a sample)" if summary.loss_is_sampled else ""
        rows.append(("loss mask", f"{summary.loss_share:.2%} of the tokens count{sampled}"))
    if summary.dropped:
        rows.append(("dropped", ", ".join(f"{count:,} {reason}" for reason, count in summary.dropped.items())))
    for split in summary.splits:
        fraction = dict(split.fractions).get(split.part, "the rest")
        whole = f"{fraction} of {split.base[:16]}, by {split.by}, seed {split.seed}"
        rows.append(("part", f"{split.part}: {whole}"))
    if summary.window:
        window = summary.window
        tail = f"a tail of {window.tail_tokens:,}"
        rows.append(("windows", f"{window.windows:,} of {window.window:,} tokens an epoch, {tail}"))
        if window.chunks_touched is not None:
            rows.append(("chunks touched", f"{window.chunks_touched:.3f} a window on average"))
    rows.append(("fingerprint", f"{summary.fingerprint} ({summary.fingerprint_kind})"))
    print_rows(rows)
    _warn(summary)


def _warn(summary: "CorpusSummary") -> None:
    """Say on stderr what of a corpus' shape does not suit a trainer."""
    from headrace.inspection import HIGH_BOUNDARY_SHARE  # noqa: PLC0415  # heavy; not for --help

    window, chunk = summary.window, summary.chunk_tokens
    if window and chunk and summary.compression != "none" and not window.chunk_fits:
        better = max(round(chunk / window.window), 1) * window.window
        sys.stderr.write(
            f"warning: the chunk of {chunk:,} tokens is no multiple of the window, and a compressed chunk is decoded whole "
            f"for every window that touches it; build with --chunk-tokens {better}\n"
        )
    if summary.boundary_share is not None and summary.boundary_share > HIGH_BOUNDARY_SHARE:
        sys.stderr.write(
            f"warning: {summary.boundary_share:.1%} of the tokens are boundaries; documents this short teach the model "
            "mostly to end them. Join them before the build, or mask the boundary in the loss\n"
        )


def show(
    path: Corpus,
    document: Annotated[int | None, typer.Option(metavar="N", min=0, help="A whole document, from 0.")] = None,
    at: Annotated[
        int | None, typer.Option(metavar="TOKEN", min=0, help="The document around a token position, from 0.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(metavar="START", min=0, help="The tokens from a position on, from 0.")
    ] = None,
    length: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of tokens of a --window; 256 by default.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="TOKENIZER", help="Tokenizer to decode with; by default the copy in the corpus."),
    ] = None,
    json_object: Json = False,
) -> None:
    """Show a place of a corpus: decoded, with source file and line; boundaries are marked, and what counts in the loss."""
    from headrace.corpus import open_corpus  # noqa: PLC0415  # heavy; not for --help
    from headrace.excerpts import corpus_tokenizer, excerpt  # noqa: PLC0415

    if (document is not None) + (at is not None) + (window is not None) != 1:
        raise typer.BadParameter("give one of --document N, --at TOKEN and --window START")
    if length is not None and window is None:
        raise typer.BadParameter("goes with --window START", param_hint="--length")
    with open_corpus(path) as corpus:
        if document is not None:
            start, stop = corpus.documents.bounds(document)
        elif at is not None:
            found = corpus.locate(at)
            start, stop = found.start, found.stop
        else:
            start = window or 0
            stop = min(start + (length or _WINDOW), corpus.token_count)
        decoder = corpus_tokenizer(corpus, tokenizer)
        part = excerpt(corpus, start, stop, decoder)
        built_by = corpus.manifest.tokenizer
    _warn_of_tokenizer(built_by, None if decoder is None else decoder.ref)
    if json_object:
        sys.stdout.write(json.dumps(_excerpt_json(part)) + "\n")
    else:
        _print_excerpt(part, at)


def _warn_of_tokenizer(built_by: "TokenizerRef | None", decoder: "TokenizerRef | None") -> None:
    """Say on stderr where nothing decodes, or another tokenizer than the one that encoded."""
    from headrace.tokenizers.ready import NO_TOKENIZER  # noqa: PLC0415  # heavy; not for --help

    if decoder is None:
        sys.stderr.write("notice: the tokenizer is not stored here, so token ids are shown; --tokenizer decodes them\n")
    elif built_by is not None and built_by.kind != NO_TOKENIZER and built_by.sha256 != decoder.sha256:
        text = (
            f"warning: the corpus was built with the tokenizer {built_by.name} ({built_by.sha256[:16]}), and is decoded "
            f"here with another, {decoder.name} ({decoder.sha256[:16]})\n"
        )
        sys.stderr.write(printable(text, sys.stderr))


def _excerpt_json(part: "Excerpt") -> dict[str, object]:
    pieces = [
        {
            "start": piece.start,
            "tokens": piece.tokens.tolist(),
            "text": piece.text,
            "ends": piece.ends,
            "boundary": piece.boundary,
            "location": piece.location and asdict(piece.location),
        }
        | ({} if piece.loss_mask is None else {"loss_mask": piece.loss_mask.tolist()})
        for piece in part.pieces
    ]
    return {"start": part.start, "stop": part.stop, "pieces": pieces}


def _shown(part: "Part") -> str:
    """Text or ids; what counts in the loss is marked."""
    body = part.text if part.text is not None else " ".join(map(str, part.tokens.tolist()))
    return f"<|counts|>{body}<|/counts|>" if part.counts else body


def _print_excerpt(part: "Excerpt", at: int | None) -> None:
    out = sys.stdout
    place = f", token {at}" if at is not None else ""
    out.write(f"tokens [{part.start}, {part.stop}){place}\n")
    for piece in part.pieces:
        where = "document index not stored"
        if piece.location is not None:
            location = piece.location
            where = f"document {location.document} [{location.start}, {location.stop})"
            if location.source is not None:
                where += f" from {location.source}:{location.line} (byte {location.byte})"
            if location.id is not None:
                where += f", id {location.id}"
        body = "".join(map(_shown, piece.parts))
        end = "<|boundary|>" if piece.boundary else "<|end|>" if piece.ends else ""
        # A document must not steer the terminal; in a pipe it stays as it is.
        body = body.translate(_CONTROLS) if out.isatty() else body
        out.write(printable(f"-- {where}\n{body}{end}\n", out))
