"""Loaded by every Python program that is started with the environment of the fixture `halted`."""

import os
import sys
import time
from fnmatch import fnmatch

LONGEST = 600
"""Seconds; whoever would let it go on is gone then."""


def halt(event: str, arguments: tuple[object, ...]) -> None:
    """Wait before a file is given a name of the pattern."""
    if event == "os.rename" and fnmatch(os.path.basename(str(arguments[1])), os.environ["HALT_BEFORE"]):  # noqa: PTH119
        end = time.monotonic() + LONGEST
        while not os.path.exists(os.environ["HALT_UNTIL"]) and time.monotonic() < end:  # noqa: PTH110
            time.sleep(0.01)


if "HALT_BEFORE" in os.environ:
    sys.addaudithook(halt)
