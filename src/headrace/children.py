"""The programs that Headrace starts: builds' workers, and comparisons of tokenizers."""

import gc
import os
import sys
import sysconfig
from pathlib import Path

__all__ = ["child_command", "child_environment", "collect_rarely"]


def child_command(module: str) -> list[str]:
    """How a module of this package is run as a program of its own; the working directory is not searched for modules."""
    return [sys.executable, "-P", "-m", module]


def child_environment() -> dict[str, str]:
    """This process' environment, changed so that the child imports this very package, and starts quickly."""
    # No child multiplies matrices, and numpy loads in two thirds of the time without the threads for it.
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}
    root = str(Path(__file__).parents[1])
    if root != sysconfig.get_path("purelib"):  # where it is searched anyway; in front it would shadow other modules
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return environment


def collect_rarely() -> None:
    """Let Python look for cyclic garbage less often, in processes that are ours alone.

    Imports and a vocabulary are hundreds of thousands of objects that stay: looking through them takes a tenth of the
    start.
    """
    gc.set_threshold(50_000, 20, 20)
