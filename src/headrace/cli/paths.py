"""Paths on the command line."""

from pathlib import Path

import typer

__all__ = ["given_path"]


def given_path(text: str) -> Path:
    """Return the path of an argument. An empty one, as of a shell variable that is not set, is not the working directory."""
    if not text:
        raise typer.BadParameter("it is empty; wanted a path")
    return Path(text)
