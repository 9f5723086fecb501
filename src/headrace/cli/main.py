"""The command's entry point, and what errors become."""

import sys

import typer

from headrace import __version__
from headrace.cli.build import build
from headrace.cli.read import info, show, verify
from headrace.cli.terminal import print_error
from headrace.errors import HeadraceError

__all__ = ["app", "run"]

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="From raw documents to training batches: build, verify and look into token corpora.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """From raw documents to training batches: build, verify and look into token corpora."""


app.command()(build)
app.command()(verify)
app.command()(info)
app.command()(show)


def run() -> None:
    """Run the command: exit code 0, 1 for a failure (its summary and places on stderr), 2 for wrong usage."""
    try:
        app()
    except HeadraceError as error:
        print_error(error)
        sys.exit(1)
    except (OSError, ValueError) as error:
        print_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("headrace: interrupted\n")
        sys.exit(130)
