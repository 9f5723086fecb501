"""Where this user's copies of what can be derived of a corpus lie."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from headrace.storage.atomic import write_bytes

__all__ = ["cached_file", "keep"]


def cached_file(kind: str, *identity: bytes) -> Path | None:
    """The file that a derived value has in this user's cache folder, whether or not it is there.

    Args:
        kind: names the folder of its like.
        identity: what it was derived of.

    Returns:
        None where there is no home for it.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the convention says to ignore others  # noqa: PTH117  # no Path yet: it may be empty
        base = os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118  # Path raises without a home
    if not os.path.isabs(base):  # noqa: PTH117
        return None
    return Path(base) / "headrace" / kind / f"{hashlib.sha256(bytes(1).join(identity)).hexdigest()}.bin"


def keep(path: Path, data: bytes) -> None:
    """Write such a file, if that is possible: it is a convenience, and a full or read-only disk is no reason to fail."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
