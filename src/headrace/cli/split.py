"""`headrace split`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from headrace.cli.paths import given_path
from headrace.cli.terminal import JsonLines, ProgressDisplay, print_split, settings

__all__ = ["split"]

By = Literal["auto", "text", "tokens"]


def split(
    path: Annotated[
        Path, typer.Argument(metavar="CORPUS", parser=given_path, help="A corpus folder, or its shards.json.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            parser=given_path,
            help="The folder of the parts, which are folders in it.",
        ),
    ],
    fractions: Annotated[
        list[str],
        typer.Option(
            "--fraction",
            metavar="NAME=FRACTION",
            help="A part and its share of the documents, a decimal: val=0.001; may be repeated.",
        ),
    ],
    rest: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the part with all other documents; by default train.")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="SEED", min=0, max=(1 << 63) - 1, help="With the content of a document, decides its part."
        ),
    ] = 0,
    by: Annotated[
        By,
        typer.Option(
            help="What of a document is hashed; auto: its text where hashes of texts are stored, else its tokens."
        ),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Worker processes; by default what this machine's CPUs and memory allow."
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(
            metavar="none|gzip[:LEVEL]|zstd[:LEVEL]", help="Compression of the parts; by default as in the corpus."
        ),
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Write events to stdout as JSON lines.")] = False,
    max_reported: Annotated[int, typer.Option(metavar="N", min=0, help="Most places that are listed.")] = 20,
) -> None:
    """Split a corpus into parts that share no text, such as train and val: each a corpus in a folder of its own.

    Where a document goes depends on the seed and its own content alone: equal documents go together, and when the corpus has
    grown, each old document goes where it went before. The corpus stays as it is. After a failure, a kill or ^C the same
    command ends alike.
    """
    from headrace.errors import SplitError  # noqa: PLC0415  # heavy; not for --help
    from headrace.splitting.request import SplitRequest  # noqa: PLC0415
    from headrace.splitting.split import split as split_corpus  # noqa: PLC0415

    settings.max_reported = max_reported
    for text in fractions:
        if "=" not in text:
            raise typer.BadParameter(
                f"wanted NAME=FRACTION, such as val=0.001, found {text!r}", param_hint="--fraction"
            )
    pairs = [(name, value) for name, _, value in (text.partition("=") for text in fractions)]
    try:
        SplitRequest.of(pairs, rest=rest, seed=seed)
    except SplitError as error:
        raise typer.BadParameter("; ".join(map(str, error.problems)), param_hint="--fraction") from error
    with ProgressDisplay() as display:
        report = split_corpus(
            path,
            output,
            pairs,
            rest=rest,
            seed=seed,
            by=by,
            workers=workers,
            compression=compression,
            on_event=JsonLines() if json_lines else display,
        )
    if not json_lines:
        print_split(report)
