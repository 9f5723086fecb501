"""The folder that a build fills: its lock, what may already lie in it, and the publishing of the whole."""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import BuildError, OutputExistsError
from headrace.manifest import INDEX_NAME, Manifest
from headrace.storage.atomic import fsync_file, fsync_folder, write_bytes
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.hdf5_corpus import SIDECAR
from headrace.tokenizers.base import REF_NAME

__all__ = ["DROPPED", "TOKENIZER_FOLDER", "OutputFolder", "publish_corpus", "refuse_foreign_tokenizer"]

TOKENIZER_FOLDER = "tokenizer"
"""Holds a copy of the tokenizer, so that decoding needs nothing else."""
PRIVATE = ".headrace"
DROPPED = Path(PRIVATE) / "dropped"
"""Holds, a file a source shard, the documents that were not kept."""
_OURS = re.compile(
    r"\d{6,}-\d{4,}-\d{4,}\.h5|\.+\d{6,}-\d{4,}-\d{4,}\.h5\..*|\." + re.escape(INDEX_NAME) + r"\.\d+\.[0-9a-f]{8}"
)
"""What a build that ended before its `shards.json` leaves: shards, whole or partial, and a partial index."""


class OutputFolder:
    """An output folder held by this build. A context manager: leaving it by an exception removes what was built.

    Args:
        path: created if it is not there.

    Raises:
        OutputExistsError: there is a corpus or a foreign `tokenizer` in it, or another build is at work there.
        BuildError: it cannot be created or locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path / PRIVATE
        self.lock = -1
        """Descriptor of the lock; workers inherit it, so that it is held until the last of them is gone."""
        self._made = False
        self._made_tokenizer = False

    def __enter__(self) -> Self:
        self._refuse_what_is_there()  # before anything is made in it
        self._made = not self.path.exists()
        self._take_lock()
        try:
            self._refuse_what_is_there()
            self._remove_leftovers()
        except BaseException:
            os.close(self.lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not (self.path / INDEX_NAME).exists():
            with suppress(OSError):  # what cannot be removed is no reason to hide what went wrong
                self._remove_leftovers()
                if self._made_tokenizer:
                    shutil.rmtree(self.path / TOKENIZER_FOLDER, ignore_errors=True)
                shutil.rmtree(self.private, ignore_errors=True)
                if self._made:
                    self.path.rmdir()
        os.close(self.lock)

    def _take_lock(self) -> None:
        lock = self.private / "lock"
        while True:
            try:
                self.private.mkdir(parents=True, exist_ok=True)
                self.lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise BuildError(f"{self.path}: cannot be written: {error.strerror}") from error
            try:
                self._lock_now()
            except BaseException:
                os.close(self.lock)
                raise
            # A build that failed since may have removed the file: then the lock on it keeps nobody out.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self.lock), lock.stat()):
                    return
            os.close(self.lock)

    def _lock_now(self) -> None:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OutputExistsError(
                f"{self.path}: another build is at work there (it holds .headrace/lock); wait for it or end it"
            ) from error
        except OSError as error:
            if error.errno in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
                raise BuildError(
                    f"{self.path}: this file system has no locks ({error.strerror}), so two builds could mix; build on "
                    "a local disk and copy the corpus"
                ) from error
            raise

    def _refuse_what_is_there(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"{self.path}: is a file; wanted a folder for the corpus")
        refuse_foreign_tokenizer(self.path)
        if (self.path / INDEX_NAME).exists():
            raise OutputExistsError(
                f"{self.path}: holds a corpus already ({INDEX_NAME}); choose another folder or remove this one"
            )

    def _remove_leftovers(self) -> None:
        for entry in os.scandir(self.path):
            if _OURS.fullmatch(entry.name):
                Path(entry.path).unlink(missing_ok=True)
        shutil.rmtree(self.path / DROPPED, ignore_errors=True)
        for leftover in self.private.glob(".*"):
            leftover.unlink(missing_ok=True)

    def publish(
        self,
        manifest: Manifest,
        extents: Sequence[ShardExtents],
        tokenizer_files: Mapping[str, bytes],
        local: Mapping[str, str],
    ) -> None:
        """Write everything that goes with the shards, then the manifest: with it the corpus exists.

        Args:
            manifest: of the shards, which lie in the folder under their final names.
            extents: of each shard, in order.
            tokenizer_files: name and content, copied into the corpus.
            local: what concerns this machine only; never hashed.
        """
        self._made_tokenizer = not (self.path / TOKENIZER_FOLDER).exists()
        write_bytes(self.private / "local.json", json.dumps(dict(local), indent=1).encode())
        dropped = self.path / DROPPED
        if dropped.is_dir():
            for log in dropped.iterdir():
                fsync_file(log)
            fsync_folder(dropped)
        publish_corpus(self.path, manifest, extents, tokenizer_files)


def refuse_foreign_tokenizer(output: Path) -> None:
    """Keep a user's own `tokenizer` from being overwritten.

    Raises:
        OutputExistsError: there is one in the output folder that no build has left.
    """
    folder = output / TOKENIZER_FOLDER
    if folder.is_dir():
        names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
        if not names or REF_NAME in names:
            return
    if os.path.lexists(folder):
        raise OutputExistsError(
            f"{folder}: was not made by Headrace, and the corpus keeps the copy of its tokenizer under this name; choose "
            "another output folder"
        )


def publish_corpus(
    folder: Path, manifest: Manifest, extents: Sequence[ShardExtents], tokenizer_files: Mapping[str, bytes]
) -> None:
    """Write the copy of the tokenizer, the sidecar of the extents, and last the manifest of shards that lie there.

    Args:
        folder: the corpus.
        manifest: of the shards, which lie in the folder under their final names.
        extents: of each shard, in order.
        tokenizer_files: name and content.
    """
    if tokenizer_files:
        _copy_tokenizer(folder / TOKENIZER_FOLDER, tokenizer_files)
    (folder / SIDECAR).parent.mkdir(exist_ok=True)
    write_bytes(folder / SIDECAR, ExtentTable.build(extents).to_bytes(manifest.fingerprint.hex))
    write_bytes(folder / INDEX_NAME, manifest.to_json())


def _copy_tokenizer(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    # The file that says whose folder this is comes first: a build that is killed after it can be repeated.
    for name in sorted(files, key=lambda name: (name != REF_NAME, name)):
        write_bytes(folder / name, files[name])
    for leftover in folder.iterdir():
        if leftover.name not in files and leftover.is_file():
            leftover.unlink()
