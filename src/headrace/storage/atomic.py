"""Publishing files so that a name appears only when its content is whole and on disk."""

import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "fresh_name",
    "fsync_file",
    "fsync_folder",
    "naming_file",
    "publish",
    "start_writeback",
    "write_all",
    "write_bytes",
]


def fresh_name(path: Path) -> Path:
    """A hidden name beside `path` that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")


def fsync_file(path: Path) -> None:
    """Wait until the bytes of the file are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Wait until the names in the folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def start_writeback(path: Path, start: int, stop: int) -> None:
    """Have the bytes [start, stop) of the file, just written, go to the disk from now on, where the system can.

    A later `fsync_file` then waits for the last of them only, and no burst of all of them delays what others write.
    """
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # On Linux it begins to write what is dirty, and keeps that in memory; `sync_file_range` is not in Python.
        os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def publish(partial: Path, final: Path) -> None:
    """Give a whole file its final name: fsync, rename, fsync of the folder."""
    fsync_file(partial)
    partial.replace(final)
    fsync_folder(final.parent)


@contextmanager
def naming_file(path: Path) -> Generator[None]:
    """Let what the system refuses name this file, not a hidden one beside it, or none (where the disk is full)."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a small file so that after a crash it holds either its old content or all of the new."""
    write_all({path: data})


def write_all(contents: Mapping[Path, bytes]) -> None:
    """Write small files that belong together as `write_bytes` does; none gets its name before all are on disk."""
    partials = {path: fresh_name(path) for path in contents}
    try:
        for path, data in contents.items():
            with naming_file(path):
                partials[path].write_bytes(data)
                fsync_file(partials[path])
        for path, partial in partials.items():
            with naming_file(path):
                partial.replace(path)
                fsync_folder(path.parent)
    except BaseException:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        raise
