"""Build in a child process that kills itself at the n-th step of publishing, for n = 0, STEP, ...; see test_crashes.

Usage: killed_at_every_step.py SOURCES FOLDER STEP [CORPUS MODE]

Corpora go to FOLDER/0, FOLDER/STEP, ...; each begins as a copy of CORPUS, if one is given, and MODE is `append` or
`overwrite`. The last one is not killed.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace

steps = 0
FUNCTIONS = ((Path, "replace"), (Path, "mkdir"), (Path, "unlink"), (os, "fsync"), (os, "link"))


def deadly(function: Callable[..., Any], last: int) -> Callable[..., Any]:
    """The function, but the process dies before one of its calls."""

    def call(*args: Any, **kwargs: Any) -> Any:  # anything
        global steps  # noqa: PLW0603  # one counter for all functions
        if steps == last:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1
        return function(*args, **kwargs)

    return call


def main(sources: str, folder: str, step: str, corpus: str = "", mode: str = "") -> int:
    """Fork until a build survives; returns the exit code."""
    options = {mode: True} if mode else {}

    def build(output: Path) -> None:
        headrace.build(sources, output, workers=1, on_bad_input="skip", max_bad=1, **options)

    def place(number: int | str) -> Path:
        output = Path(folder) / str(number)
        if corpus:
            shutil.copytree(corpus, output)
        return output

    first = place("first")
    build(first)  # so that no child imports anything
    shutil.rmtree(first)
    for last in range(0, 500, int(step)):
        output = place(last)
        child = os.fork()
        if child == 0:
            for owner, name in FUNCTIONS:
                setattr(owner, name, deadly(getattr(owner, name), last))
            build(output)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
