"""Build in a child process that kills itself at the n-th step of publishing, for n = 0, 1, ...; see test_crashes.

Usage: killed_at_every_step.py SOURCES FOLDER   (corpora go to FOLDER/0, FOLDER/1, ...)
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace

steps = 0


def deadly(function: Callable[..., Any], last: int) -> Callable[..., Any]:
    """The function, but the process dies before one of its calls."""

    def call(*args: Any, **kwargs: Any) -> Any:  # anything
        global steps  # noqa: PLW0603  # one counter for all functions
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1
        return function(*args, **kwargs)

    return call


def main(sources: str, folder: str) -> int:
    """Fork until a build survives; returns the exit code."""

    def build(number: int | str) -> None:
        headrace.build(sources, Path(folder) / str(number), workers=1, on_bad_input="skip", max_bad=1)

    build("first")  # so that no child imports anything
    for last in range(500):
        child = os.fork()
        if child == 0:
            Path.replace, os.fsync, Path.mkdir = (deadly(f, last) for f in (Path.replace, os.fsync, Path.mkdir))
            build(last)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
