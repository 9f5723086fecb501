"""`headrace plot`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.paths import given_path
from headrace.cli.terminal import printable

__all__ = ["plot"]


def plot(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", parser=given_path, help="Folder of a run, which may be at work.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            parser=given_path,
            help="PNG or SVG, by its name; by default RUN/run.svg.",
        ),
    ] = None,
) -> None:
    """Draw the log of a training run: loss, perplexities, learning rate, gradient norms, tokens a second, skipped steps."""
    from headrace.errors import TrainingError  # noqa: PLC0415  # heavy; not for --help
    from headrace.training.plot import checked_format, plot_run  # noqa: PLC0415

    path = run / "run.svg" if output is None else output
    try:
        checked_format(path)
    except TrainingError as error:
        raise typer.BadParameter(str(error), param_hint="--output") from error
    plot_run(run, path)
    sys.stdout.write(printable(f"{path}\n", sys.stdout))
