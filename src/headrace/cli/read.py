"""`headrace verify`, `headrace info` and `headrace show`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.terminal import JsonLines, print_error, print_rows, printable, settings, size
from headrace.errors import CorruptShardError
from headrace.events import ignore

if TYPE_CHECKING:
    from headrace.inspection import CorpusSummary, Excerpt
    from headrace.verify import ShardReport

__all__ = ["info", "show", "verify"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Control characters, and how they are shown."""

Corpus = Annotated[Path, typer.Argument(metavar="CORPUS", help="A corpus folder, its shards.json, or one HDF5 file.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]


def verify(
    path: Corpus,
    quick: Annotated[
        bool, typer.Option("--quick", help="Sizes, attributes, and the first and last chunk of each shard only.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads; by default the CPUs this process may use.")
    ] = None,
    json_lines: Json = False,
    max_reported: Annotated[int, typer.Option(min=0, help="Places listed at most.")] = 20,
) -> None:
    """Compare every shard's bytes with shards.json. Exit code 1 if any is not ok."""
    from headrace.verify import verify_path  # noqa: PLC0415  # heavy; not for --help

    settings.max_reported = max_reported
    reports = verify_path(path, quick=quick, workers=workers, on_event=JsonLines() if json_lines else ignore)
    if not json_lines:
        _print_verdicts(reports, quick=quick)
    bad = [report for report in reports if not report.ok]
    if bad:
        problems = [problem for report in bad for problem in report.problems or (report.fault,)]
        print_error(CorruptShardError(f"{len(bad)} of {len(reports)} shards are not ok", problems=problems))
        raise typer.Exit(1)


def _print_verdicts(reports: list["ShardReport"], *, quick: bool) -> None:
    counts: dict[str, int] = {}
    for report in reports:
        counts[report.status] = counts.get(report.status, 0) + 1
    for report in reports[: settings.max_reported]:
        sys.stdout.write(printable(f"{report.shard_id}  {report.status}\n", sys.stdout))
    if len(reports) > settings.max_reported:
        sys.stdout.write(f"... and {len(reports) - settings.max_reported} more\n")
    total = ", ".join(f"{count:,} {status}" for status, count in counts.items()) or "no shards"
    read = size(sum(report.bytes_read for report in reports))
    sys.stdout.write(f"{total}; {read} read{' (quick)' if quick else ''}\n")


def info(
    path: Corpus,
    window: Annotated[
        int | None, typer.Option(min=1, metavar="T", help="Also say what windows of T input tokens make of it.")
    ] = None,
    json_object: Json = False,
) -> None:
    """Sum a corpus up: totals, tokenizer, documents, and whether its shape suits the trainer."""
    from headrace.corpus import open_corpus  # noqa: PLC0415  # heavy; not for --help
    from headrace.inspection import describe  # noqa: PLC0415

    with open_corpus(path) as corpus:
        summary = describe(corpus, window=window)
    if json_object:
        sys.stdout.write(json.dumps(asdict(summary)) + "\n")
    else:
        _print_summary(summary)


def _print_summary(summary: "CorpusSummary") -> None:
    from headrace.inspection import HIGH_BOUNDARY_SHARE  # noqa: PLC0415

    rows = [
        ("corpus", summary.path),
        ("tokens", f"{summary.tokens:,} ({summary.dtype}, vocabulary of {summary.vocab_size:,})"),
        ("shards", f"{summary.shards:,} ({summary.store}, version {summary.version}, {size(summary.bytes_on_disk)})"),
        ("chunk", f"{summary.chunk_tokens:,} tokens"),
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
    if summary.dropped:
        rows.append(("dropped", ", ".join(f"{count:,} {reason}" for reason, count in summary.dropped.items())))
    if summary.window:
        window = summary.window
        rows += [
            ("windows", f"{window.windows:,} of {window.window:,} tokens an epoch, a tail of {window.tail_tokens:,}"),
            ("chunks touched", f"{window.chunks_touched:.3f} a window on average"),
        ]
    rows.append(("fingerprint", f"{summary.fingerprint} ({summary.fingerprint_kind})"))
    print_rows(rows)
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
    length: Annotated[int, typer.Option(min=1, help="Tokens of a --window.")] = 256,
    tokenizer: Annotated[
        str | None, typer.Option(help="Decode with this one; by default the copy in the corpus.")
    ] = None,
    json_object: Json = False,
) -> None:
    """Show a place of a corpus: decoded, boundaries marked, with source file and line."""
    from headrace.corpus import open_corpus  # noqa: PLC0415  # heavy; not for --help
    from headrace.inspection import corpus_tokenizer, excerpt  # noqa: PLC0415

    if (document is not None) + (at is not None) + (window is not None) != 1:
        raise typer.BadParameter("give one of --document N, --at TOKEN and --window START")
    with open_corpus(path) as corpus:
        if document is not None:
            start, stop = corpus.documents.bounds(document)
        elif at is not None:
            found = corpus.locate(at)
            start, stop = found.start, found.stop
        else:
            start = window or 0
            stop = min(start + length, corpus.token_count)
        part = excerpt(corpus, start, stop, corpus_tokenizer(corpus, tokenizer))
    if json_object:
        sys.stdout.write(json.dumps(_excerpt_json(part)) + "\n")
    else:
        _print_excerpt(part, at)


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
        for piece in part.pieces
    ]
    return {"start": part.start, "stop": part.stop, "pieces": pieces}


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
        body = piece.text if piece.text is not None else " ".join(map(str, piece.tokens.tolist()))
        end = "<|boundary|>" if piece.boundary else "<|end|>" if piece.ends else ""
        # A document must not steer the terminal; in a pipe it stays as it is.
        body = body.translate(_CONTROLS) if out.isatty() else body
        out.write(printable(f"-- {where}\n{body}{end}\n", out))
