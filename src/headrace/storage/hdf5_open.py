"""Opening an HDF5 file to read, and saying what HDF5 meant when it refuses."""

import os
import re
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py

from headrace.errors import (
    CorruptShardError,
    FormatError,
    GrowingShardError,
    HeadraceError,
    MissingShardError,
    UnreadableShardError,
)

__all__ = ["naming", "open_file", "open_shard", "system_failure"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_ERRNO = re.compile(r"errno = ([1-9]\d*)")
_GONE = "can't retrieve stat info", "can't retrieve real path"
"""What HDF5 says where a file that it has opened has its name no more."""
_LOCKING = (False, None, True, "best-effort")
"""No lock is wanted; the others are for a file that this process holds open already, whose handles must agree."""


def open_file(path: Path, **options: Any) -> Any:
    """Open a finished file for reading, without a lock where it can be helped.

    It is opened plain, so that HDF5 itself notices a cut one. Where this process already holds the file open with other
    flags, those are used. One that is being written is for `headrace.storage.growing`.

    Args:
        path: the file.
        options: for `h5py.File`.

    Returns:
        An `h5py.File` (which has no useful static types).

    Raises:
        MissingShardError, FormatError, CorruptShardError, UnreadableShardError: each naming the file.
    """
    regular = True
    with suppress(OSError):  # HDF5 will meet it, too
        regular = stat.S_ISREG(path.stat().st_mode)
    if not regular:  # HDF5 would wait for the writer of a pipe
        raise UnreadableShardError(f"{path}: is no regular file")
    swmr = False
    attempts = list(_LOCKING)
    while True:
        try:
            return h5py.File(path, "r", libver="latest" if swmr else None, swmr=swmr, locking=attempts[0], **options)
        except FileNotFoundError as error:
            raise MissingShardError(f"{path}: no such file") from error
        except OSError as error:
            text = str(error)
            if "access flag not the same" in text and not swmr:
                swmr = True
            elif "flag values don't match" in text and len(attempts) > 1:
                del attempts[0]
            elif any(words in text for words in _GONE):
                raise _gone(path) from error
            else:
                raise _explain(path, error) from error


@contextmanager
def open_shard(path: Path) -> Generator[Any]:
    """`open_file` as a context manager; what h5py raises inside becomes an error that names the file.

    Yields:
        The `h5py.File`.

    Raises:
        MissingShardError, FormatError, CorruptShardError, UnreadableShardError: each naming the file.
    """
    with naming(path), open_file(path) as file:
        yield file


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Turn what h5py raises on damaged or unreadable bytes into an error that names the file."""
    try:
        yield
    except HeadraceError:
        raise
    except FileNotFoundError as error:  # it was there, and is looked up again by its name
        raise _gone(path) from error
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error


def _gone(path: Path) -> MissingShardError:
    return MissingShardError(f"{path}: is gone: it was removed or renamed while it was read")


def _explain(path: Path, error: OSError) -> HeadraceError:
    """Say what HDF5 meant."""
    text = str(error)
    try:
        with path.open("rb") as file:
            head, length = file.read(len(_SIGNATURE)), os.fstat(file.fileno()).st_size
    except OSError as cause:
        gone = isinstance(cause, FileNotFoundError)
        return _gone(path) if gone else UnreadableShardError(f"{path}: cannot be read: {cause.strerror}")
    if head != _SIGNATURE:
        return FormatError(f"{path}: not an HDF5 file (it begins with {head!r})")
    if "truncated file" in text:
        return CorruptShardError(f"{path}: is truncated ({length} bytes); copy it again or rebuild it")
    if "already open for write" in text or "SWMR" in text:
        return GrowingShardError(
            f"{path}: its writer never closed it: it is still being written, or was killed; rebuild the shard"
        )
    if "flag values don't match" in text:
        return UnreadableShardError(f"{path}: this process holds it open in a way that cannot be shared: {text}")
    return _damaged(path, error)


def system_failure(path: Path, error: BaseException) -> OSError | None:
    """What the system reported where h5py wraps it in an error of its own (`RuntimeError` for a full disk); else None."""
    found = _ERRNO.search(str(error))
    return OSError(int(found[1]), os.strerror(int(found[1])), str(path)) if found else None


def _damaged(path: Path, error: Exception) -> HeadraceError:
    text = str(error)
    failure = system_failure(path, error)
    if failure:
        return UnreadableShardError(f"{path}: cannot be read: {failure.strerror}")
    return CorruptShardError(f"{path}: is damaged: HDF5 says {type(error).__name__}: {text}")
