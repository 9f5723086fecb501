"""`headrace tokenizer`: train, look into, try out and compare tokenizers."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.build import Format
from headrace.cli.terminal import ProgressDisplay, print_rows, printable, settings, size

if TYPE_CHECKING:
    from headrace.tokenizers.compare import Comparison, TokenizerSummary
    from headrace.tokenizers.train import TrainingReport

__all__ = ["app"]

_STDIN = "-"

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Train, look into, try out and compare tokenizers.")

Sources = Annotated[list[str], typer.Argument(metavar="SRC", help="Files, folders and patterns, as for a build.")]
TextField = Annotated[
    str, typer.Option(metavar="FIELD", help="Field that holds the text of a line; dotted for a nested one.")
]
HowRead = Annotated[Format, typer.Option(help="How files are read; auto judges each.")]
Tok = Annotated[
    str,
    typer.Argument(metavar="TOK", help="What --tokenizer of a build takes, or a corpus: the copy in it."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
MaxReported = Annotated[int, typer.Option(metavar="N", min=0, help="Most places that are listed.")]


@app.command()
def train(
    sources: Sources,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A name that ends in .json, or a folder for a tokenizer.json."
        ),
    ],
    vocab_size: Annotated[
        int, typer.Option(metavar="N", min=257, help="Size of the vocabulary, special tokens included.")
    ],
    text_field: TextField = "text",
    format: HowRead = "auto",  # noqa: A002  # the option's name
    end_of_text: Annotated[
        str, typer.Option(metavar="TOKEN", help="Special token that ends each document.")
    ] = "<|endoftext|>",
    special: Annotated[
        list[str] | None, typer.Option(metavar="TOKEN", help="One more special token; may be repeated.")
    ] = None,
    max_bytes: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Most bytes of text to train on; of more, each source gives a share."),
    ] = 500_000_000,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    json_object: Json = False,
    max_reported: MaxReported = 20,
) -> None:
    """Train a byte-level BPE of your own text.

    Writes a Hugging Face tokenizer.json, and a tokenizer_config.json beside it that names the end of text. The same
    documents give the same bytes. Documents that cannot be read are left out and counted.
    """
    from headrace.tokenizers.train import train_tokenizer  # noqa: PLC0415  # heavy; not for --help

    settings.max_reported = max_reported
    with ProgressDisplay() as display:
        report = train_tokenizer(
            sources,
            output,
            vocab_size=vocab_size,
            text_field=text_field,
            format=format,
            end_of_text=end_of_text,
            special=special or (),
            max_bytes=max_bytes,
            overwrite=overwrite,
            on_event=display,
        )
    if json_object:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
    else:
        _print_training(report, vocab_size)


def _print_training(report: "TrainingReport", wanted: int) -> None:
    for place in report.places[: settings.max_reported]:
        sys.stderr.write(printable(f"left out: {place}\n", sys.stderr))
    sampled = "" if report.complete else ", a sample of the sources (--max-bytes)"
    fewer = "" if report.vocab_size == wanted else f", not {wanted:,}: the text has no more pairs to merge"
    rate = report.text_bytes / 1e6 / max(report.seconds, 1e-9)
    print_rows(
        [
            ("tokenizer", report.path),
            ("documents", f"{report.documents:,}, {size(report.text_bytes)} of text{sampled}"),
            ("left out", ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items()) or "none"),
            ("vocabulary", f"{report.vocab_size:,} ids{fewer}"),
            ("special tokens", _listed(report.special_tokens)),
            ("time", f"{report.seconds:.2f} s, {rate:.1f} MB/s of text"),
            ("identity", report.sha256),
        ]
    )


@app.command()
def info(tokenizer: Tok, json_object: Json = False) -> None:
    """Say what a tokenizer is: identity, vocabulary, special tokens, and the boundary that a build would use."""
    from headrace.tokenizers.compare import describe_tokenizer, open_tokenizer  # noqa: PLC0415  # heavy

    summary = describe_tokenizer(open_tokenizer(tokenizer))
    if json_object:
        sys.stdout.write(json.dumps(asdict(summary)) + "\n")
    else:
        _print_summary(summary)


def _print_summary(summary: "TokenizerSummary") -> None:
    boundary = f"id {summary.boundary}, {summary.boundary_token!r}"
    bos = f"id {summary.bos}, {summary.bos_token!r} (with --bos)"
    print_rows(
        [
            ("tokenizer", summary.name),
            ("kind", summary.kind),
            ("identity", summary.sha256),
            ("vocabulary", f"{summary.vocab_size:,} ids, stored as {summary.dtype}"),
            ("special tokens", _listed(summary.special_tokens)),
            ("boundary", "not known: a build needs --boundary" if summary.boundary is None else boundary),
            ("bos", "not known" if summary.bos is None else bos),
        ]
    )


def _listed(tokens: dict[str, int]) -> str:
    shown = [f"{token!r} {token_id}" for token, token_id in tokens.items()]
    more = f" and {len(shown) - settings.max_reported:,} more" if len(shown) > settings.max_reported else ""
    return (", ".join(shown[: settings.max_reported]) + more) or "none"


@app.command()
def encode(
    tokenizer: Tok,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text; - is what comes in on stdin.")] = _STDIN,
    json_object: Json = False,
) -> None:
    """Write the ids of a text, as a build would store them: nothing is added, special tokens are ordinary text."""
    from headrace.tokenizers.compare import open_tokenizer  # noqa: PLC0415  # heavy

    loaded = open_tokenizer(tokenizer)
    ids = loaded.encode(_read_stdin() if text == _STDIN else text)
    if json_object:
        row = {"ids": ids, "tokens": [loaded.id_to_token(token_id) for token_id in ids]}
        sys.stdout.write(json.dumps(row) + "\n")
    else:
        sys.stdout.write(" ".join(map(str, ids)) + "\n")


@app.command()
def decode(
    tokenizer: Tok,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids; - or none reads them from stdin, as encode writes.")
    ] = None,
    json_object: Json = False,
) -> None:
    """Write the text of ids, special tokens spelled out, with nothing added behind it."""
    from headrace.tokenizers.compare import open_tokenizer  # noqa: PLC0415  # heavy

    given = _read_stdin() if not ids or ids == [_STDIN] else " ".join(ids)
    text = open_tokenizer(tokenizer).decode(_parse_ids(given))
    if json_object:
        sys.stdout.write(json.dumps({"text": text}) + "\n")
    else:
        sys.stdout.write(printable(text, sys.stdout) + ("\n" if sys.stdout.isatty() else ""))


def _read_stdin() -> str:
    """Text that comes in, to the last byte as it is."""
    data = sys.stdin.buffer.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"what comes in on stdin is not UTF-8 (byte {error.start})") from None


def _parse_ids(text: str) -> list[int]:
    """Ids between white space or commas, with or without brackets around them."""
    words = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    wrong = next((word for word in words if not (word.isascii() and word.isdigit())), None)
    if wrong is not None:
        raise typer.BadParameter(f"wanted ids in digits, found {wrong!r}", param_hint="ID")
    return [int(word) for word in words]


@app.command()
def compare(
    left: Annotated[str, typer.Argument(metavar="A", help="A tokenizer, as for info.")],
    right: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SRC", help="Texts to compare ids on; built-in hard ones if there are none."),
    ] = None,
    text_field: TextField = "text",
    format: HowRead = "auto",  # noqa: A002  # the option's name
    max_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most bytes of text to compare; of more, each source gives a share.")
    ] = 16_000_000,
    json_object: Json = False,
) -> None:
    """Compare two tokenizers: identity, vocabulary, and the ids of texts. Exit code 1 if entries or ids differ."""
    from headrace.tokenizers.compare import compare_tokenizers, open_tokenizer  # noqa: PLC0415  # heavy

    pair = open_tokenizer(left), open_tokenizer(right)
    found = compare_tokenizers(*pair, sources or (), text_field=text_field, format=format, max_bytes=max_bytes)
    if json_object:
        sys.stdout.write(json.dumps({**asdict(found), "differ": found.differ}) + "\n")
    else:
        _print_comparison(found, (pair[0].vocab_size, pair[1].vocab_size))
    if found.differ:
        raise typer.Exit(1)


def _print_comparison(found: "Comparison", sizes: tuple[int, int]) -> None:
    compared = f"{found.texts:,} texts, {size(found.text_bytes)}{'' if found.complete else ', a sample (--max-bytes)'}"
    same = f"{sizes[0]:,} entries" if sizes[0] == sizes[1] else f"{sizes[0]:,} and {sizes[1]:,} entries"
    print_rows(
        [
            ("identity", "equal" if found.identical else "different: a corpus of one does not take the other"),
            ("vocabulary", f"{same}, {_count(found.different_entries)}"),
            *_more(found.entries, found.different_entries),
            ("ids", f"{compared}, {_count(found.different_texts)}"),
            *_more([str(place) for place in found.places], found.different_texts),
        ]
    )


def _count(different: int) -> str:
    return f"{different:,} different" if different else "all equal"


def _more(shown: Sequence[str], count: int) -> list[tuple[str, str]]:
    rest = [f"... and {count - len(shown):,} more"] if count > len(shown) else []
    return [("", line) for line in (*shown, *rest)]
