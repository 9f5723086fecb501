"""The folder that a build fills: its lock, what may already lie in it, and the publishing of the whole."""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.errors import BuildError, OutputExistsError
from headrace.manifest import INDEX_NAME, Manifest
from headrace.storage.atomic import fsync_file, fsync_folder, write_bytes
from headrace.storage.extents import ExtentTable, ShardExtents
from headrace.storage.hdf5_corpus import SIDECAR

__all__ = ["TOKENIZER_FOLDER", "OutputFolder"]

TOKENIZER_FOLDER = "tokenizer"
"""Holds a copy of the tokenizer, so that decoding needs nothing else."""
_OURS = re.compile(r"\d{6}-\d{4}-\d{4,}\.h5|\.\d{6}-\d{4}-\d{4,}\.h5\..*")
"""Shards of an earlier build that ended before its `shards.json`, whole or partial."""


class OutputFolder:
    """An output folder held by this build. A context manager: leaving it by an exception removes what was built.

    Args:
        path: created if it is not there.

    Raises:
        OutputExistsError: there is a corpus in it, or another build is at work there.
        BuildError: it cannot be created or locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.private = path / ".headrace"
        self.lock = -1
        """Descriptor of the lock; workers inherit it, so that it is held until the last of them is gone."""
        self._made = False

    def __enter__(self) -> Self:
        self._made = not self.path.exists()
        try:
            self.private.mkdir(parents=True, exist_ok=True)
            self.lock = os.open(self.private / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileExistsError as error:
            raise OutputExistsError(f"{self.path}: is a file; wanted a folder for the corpus") from error
        except OSError as error:
            raise BuildError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            self._take_lock()
            self._refuse_corpus()
            self._remove_leftovers()
        except BaseException:
            os.close(self.lock)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not (self.path / INDEX_NAME).exists():
            self._remove_leftovers()
            shutil.rmtree(self.private, ignore_errors=True)
            shutil.rmtree(self.path / TOKENIZER_FOLDER, ignore_errors=True)
            if self._made and not any(self.path.iterdir()):
                self.path.rmdir()
        os.close(self.lock)

    def _take_lock(self) -> None:
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

    def _refuse_corpus(self) -> None:
        if (self.path / INDEX_NAME).exists():
            raise OutputExistsError(
                f"{self.path}: holds a corpus already ({INDEX_NAME}); choose another folder or remove this one"
            )

    def _remove_leftovers(self) -> None:
        for entry in os.scandir(self.path):
            if _OURS.fullmatch(entry.name):
                Path(entry.path).unlink(missing_ok=True)

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
        if tokenizer_files:
            folder = self.path / TOKENIZER_FOLDER
            folder.mkdir(exist_ok=True)
            for name, data in tokenizer_files.items():
                write_bytes(folder / name, data)
        write_bytes(self.path / SIDECAR, ExtentTable.build(extents).to_bytes(manifest.fingerprint.hex))
        write_bytes(self.private / "local.json", json.dumps(dict(local), indent=1).encode())
        dropped = self.private / "dropped"
        if dropped.is_dir():
            for log in dropped.iterdir():
                fsync_file(log)
            fsync_folder(dropped)
        write_bytes(self.path / INDEX_NAME, manifest.to_json())
