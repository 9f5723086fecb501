"""The command's entry point, and what errors become."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import typer

from headrace import __version__
from headrace.children import collect_rarely
from headrace.cli.build import build
from headrace.cli.plot import plot
from headrace.cli.read import info, show, verify
from headrace.cli.split import split
from headrace.cli.status import status
from headrace.cli.terminal import print_error
from headrace.cli.tokenizer import app as tokenizer
from headrace.cli.train import train
from headrace.errors import HeadraceError

__all__ = ["app", "run"]

_NO_THREAD = "can't start new thread"
"""As Python puts it, in an error of no class of its own."""

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
app.command()(split)
app.command()(status)
app.command()(plot)
app.command()(train)
app.add_typer(tokenizer, name="tokenizer")


def run() -> None:
    """Run the command: exit code 0, 1 for a failure (its summary and places on stderr), 2 for wrong usage, 130 for ^C."""
    # No command multiplies matrices, and numpy loads in two thirds of the time without the threads for it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    collect_rarely()
    _open_closed_streams()
    interrupt = _Interrupt()
    signal.signal(signal.SIGINT, interrupt)
    try:
        app(prog_name="headrace")  # also where Python was told to run the package
    except (SystemExit, KeyboardInterrupt, Exception) as error:
        # A library that was interrupted may have turned that into an error of its own, or have left it as it is.
        if interrupt.received:
            sys.stderr.write("headrace: interrupted\n")
            sys.exit(130)
        if isinstance(error, MemoryError):
            error = HeadraceError(f"not enough memory: {error or 'an allocation failed'}")
        if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD):
            error = HeadraceError(
                "the system starts no more threads: the limit of processes (ulimit -u, or a container's) or of memory is "
                "reached"
            )
        if not isinstance(error, HeadraceError | OSError | ValueError):
            raise
        print_error(error)
        sys.exit(2 if isinstance(error, HeadraceError) and error.usage else 1)
    finally:
        _flush_stdout()


def _flush_stdout() -> None:
    """Write what is buffered; a reader that has left, as `head` does, is no fault of ours."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its exit
        sys.exit(1)


def _open_closed_streams() -> None:
    """A stream that the caller has closed swallows what is written, as /dev/null does: the work is done all the same."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # for the process' life


class _Interrupt:
    """Does as Python does on Ctrl-C, and remembers it."""

    received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        signal.default_int_handler(number, frame)
