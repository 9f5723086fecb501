"""The folder that a build fills: its lock, what an earlier build left in it, and the parts of a corpus beside its shards."""

import errno
import fcntl
import glob
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from headrace.errors import BuildError, HeadraceError, OutputExistsError
from headrace.in_progress import LOCK, SHARD_NAME, WRITING, Key
from headrace.manifest import INDEX_NAME, PRIVATE, Manifest
from headrace.storage.atomic import write_bytes
from headrace.storage.extents import ShardExtents
from headrace.storage.hdf5_corpus import write_sidecars
from headrace.storage.index_sidecar import publish_index
from headrace.storage.lance_names import DATA_FILE, DATA_SETS
from headrace.storage.lance_open import is_lance
from headrace.storage.versions import VERSIONS
from headrace.tokenizers.base import REF_NAME
from headrace.tokenizers.chat_template import TEMPLATE_NAME

__all__ = [
    "DROPPED",
    "FIRST_PASS",
    "TOKENIZER_FOLDER",
    "OutputFolder",
    "drop_log",
    "first_pass_folder",
    "keep_template",
    "lance_files",
    "publish_corpus",
    "refuse_foreign_tokenizer",
    "remove_attempt",
    "remove_empty_data_sets",
    "remove_files",
    "remove_first_pass",
    "remove_lance_shard",
    "remove_logs",
    "remove_partial",
    "remove_shards",
]

TOKENIZER_FOLDER = "tokenizer"
"""Holds a copy of the tokenizer, so that decoding needs nothing else."""
DROPPED = Path(PRIVATE) / "dropped"
"""Holds, a file a source shard, the documents that were not kept."""
FIRST_PASS = Path(PRIVATE) / "first-pass"
"""Holds what a first pass over the sources has found, while a build is at work that needs it."""
_WHOLE = re.compile(rf"{SHARD_NAME}\.h5")
_PARTIAL = re.compile(rf"\.+{SHARD_NAME}\.h5\..*")
_PARTIAL_INDEX = re.compile(r"\.(?:building|shards)\.json\.\d+\.[0-9a-f]{8}")
"""Shards and indexes under the names that they have before they are whole."""
_ATTEMPT = re.compile(rf"\.{SHARD_NAME}\.")
"""Begins the name of the folder in which the files of a Lance shard grow."""
_LOG = re.compile(r"(\d{6,})-(\d{4,})\.")
_LOCK_TRIES, _LOCK_PAUSE = 5, 0.1
"""`headrace status` holds the lock for a moment."""


class OutputFolder:
    """An output folder held by this build. A context manager: leaving it lets go of the folder, and removes it if empty.

    Args:
        path: created if it is not there.
        of: what holds it: a `build`, which puts a corpus into it, or a `split`, whose parts are folders in it.

    Raises:
        OutputExistsError: it is a file or a Lance data set, or another build or split is at work there.
        BuildError: it cannot be created or locked; or, when it is left, what the system refused to do in it.
    """

    def __init__(self, path: Path, of: Literal["build", "split"] = "build") -> None:
        self.path = path
        self._of = of
        self.private = path / PRIVATE
        self.lock = -1
        """Descriptor of the lock; workers inherit it, so that it is held until the last of them is gone."""
        self._made = False

    def __enter__(self) -> Self:
        if os.path.lexists(self.path) and not self.path.is_dir():
            kind = "a file" if self.path.exists() else "a link to nothing"
            raise OutputExistsError(f"{self.path}: is {kind}; wanted a folder for the corpus")
        if is_lance(self.path):  # and would be opened as such, whatever else lies in it
            raise OutputExistsError(f"{self.path}: is a Lance data set; wanted a folder for the corpus: choose another")
        if self._of == "build":
            refuse_foreign_tokenizer(self.path)  # before anything is made in it
        self._made = not self.path.exists()
        self._take_lock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what cannot be removed is no reason to hide what went wrong
            if kind is not None and {entry.name for entry in os.scandir(self.private)} <= {"lock"}:
                shutil.rmtree(self.private)
                if self._made:
                    self.path.rmdir()
        os.close(self.lock)
        if isinstance(error, OSError) and not isinstance(error, HeadraceError):
            name = error.filename
            if isinstance(name, str) and Path(name).is_relative_to(self.path):
                raise BuildError(f"{name}: cannot be written: {error.strerror}; nothing was published") from error

    def _take_lock(self) -> None:
        lock = self.path / LOCK
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
        for left in reversed(range(_LOCK_TRIES)):
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if left:
                    time.sleep(_LOCK_PAUSE)
                    continue
                told = "; `headrace status` says how far it is" if self._of == "build" else ""
                raise OutputExistsError(
                    f"{self.path}: another {self._of} is at work there (it holds .headrace/lock){told}: wait for it or end it"
                ) from error
            except OSError as error:
                if error.errno in {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}:
                    raise BuildError(
                        f"{self.path}: this file system has no locks ({error.strerror}), so two {self._of}s could mix; {self._of} "
                        "on a local disk and copy the corpus"
                    ) from error
                raise
            return


def remove_partial(folder: Path) -> None:
    """Remove what a build that ended early has left half written in a corpus folder."""
    hidden = re.compile(r"\..*")
    others = (PRIVATE, VERSIONS, DROPPED, TOKENIZER_FOLDER, *(Path(name) / "data" for name in DATA_SETS))
    places = (folder, _PARTIAL), (folder, _PARTIAL_INDEX), *((folder / name, hidden) for name in others)
    for place, pattern in places:
        for entry in os.scandir(place) if place.is_dir() else ():
            if pattern.fullmatch(entry.name):
                Path(entry.path).unlink(missing_ok=True)
    shutil.rmtree(folder / WRITING, ignore_errors=True)


@contextmanager
def first_pass_folder(folder: Path) -> Generator[Path]:
    """An empty folder for what a first pass finds; it goes at the end."""
    path = folder / FIRST_PASS
    remove_first_pass(folder)
    path.mkdir()
    try:
        yield path
    finally:
        remove_first_pass(folder)


def remove_first_pass(folder: Path) -> None:
    """Remove what a build that was killed has left of its first pass."""
    shutil.rmtree(folder / FIRST_PASS, ignore_errors=True)


def remove_shards(folder: Path, keep: Collection[str]) -> None:
    """Remove all shards of builds but those whose paths in the folder are in `keep`."""
    for entry in os.scandir(folder):
        if _WHOLE.fullmatch(entry.name) and entry.name not in keep:
            Path(entry.path).unlink(missing_ok=True)
    names = {Path(path).name for path in keep}
    for path in lance_files(folder):
        if path.name not in names:
            path.unlink(missing_ok=True)


def lance_files(folder: Path) -> Iterator[Path]:
    """The data files of Lance shards in the folder of a corpus, of all data sets."""
    for data_set in DATA_SETS:
        with suppress(FileNotFoundError):
            for entry in os.scandir(folder / data_set / "data"):
                if DATA_FILE.fullmatch(entry.name):
                    yield Path(entry.path)


def remove_empty_data_sets(folder: Path) -> None:
    """Remove the folders of Lance data sets in which there is nothing."""
    for data_set in DATA_SETS:
        for path in (folder / data_set / "data", folder / data_set):
            with suppress(OSError):
                path.rmdir()


def remove_attempt(folder: Path, key: Key, *, alone: bool = False) -> None:
    """Remove all shards of one source shard, whole and partial.

    Args:
        folder: of the shards.
        key: of the source shard.
        alone: its file has other cuts, which stay.

    Raises:
        BuildError: the folder is gone, or cannot be changed.
    """

    def is_of_it(name: str) -> bool:
        found = _WHOLE.fullmatch(name) or _PARTIAL.fullmatch(name)
        return bool(found) and int(found[1]) == key[0] and (not alone or int(found[2]) == key[1])

    remove_files(folder, is_of_it)
    for path in lance_files(folder):
        found = DATA_FILE.fullmatch(path.name)
        if found and int(found[1]) == key[0] and (not alone or int(found[2]) == key[1]):
            path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder / WRITING):
            found = _ATTEMPT.match(entry.name)
            if found and int(found[1]) == key[0] and (not alone or int(found[2]) == key[1]):
                shutil.rmtree(entry.path, ignore_errors=True)


def remove_lance_shard(folder: Path, shard_id: str) -> None:
    """Remove the files of a Lance shard, whole or growing."""
    for path in lance_files(folder):
        if path.name.startswith(f"{shard_id}-"):
            path.unlink(missing_ok=True)
    for attempt in (folder / WRITING).glob(f".{glob.escape(shard_id)}.*"):
        shutil.rmtree(attempt, ignore_errors=True)


def remove_files(folder: Path, wanted: Callable[[str], object]) -> None:
    """Remove the files of some names.

    Raises:
        BuildError: the folder is gone, or cannot be changed.
    """
    try:
        for entry in os.scandir(folder):
            if wanted(entry.name):
                Path(entry.path).unlink(missing_ok=True)
    except OSError as error:
        raise BuildError(f"{folder}: cannot be written: {error.strerror}") from error


def drop_log(folder: Path, key: Key) -> Path:
    """Where the documents of a source shard that are not kept are listed."""
    return folder / DROPPED / f"{key[0]:06d}-{key[1]:04d}.jsonl"


def remove_logs(folder: Path, first_index: int, keys: Collection[Key]) -> None:
    """Remove the lists of dropped documents of the source shards from `first_index` on, but for those in `keys`."""
    with suppress(FileNotFoundError):
        for log in os.scandir(folder / DROPPED):
            found = _LOG.match(log.name)
            if found and int(found[1]) >= first_index and (int(found[1]), int(found[2])) not in keys:
                Path(log.path).unlink(missing_ok=True)


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
    """Write the copy of the tokenizer, the sidecars, and last the manifest of shards that lie there.

    Args:
        folder: the corpus.
        manifest: of the shards, which lie in the folder under their final names.
        extents: of each shard, in order.
        tokenizer_files: name and content.
    """
    if tokenizer_files:
        _copy_tokenizer(folder / TOKENIZER_FOLDER, tokenizer_files)
    write_sidecars(folder, manifest.fingerprint.hex, extents)
    publish_index(folder / INDEX_NAME, manifest.to_json())


def keep_template(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put a chat template beside the copy of the tokenizer in a corpus that has no other.

    Args:
        folder: the corpus.
        files: of the tokenizer that adds to it.
    """
    path = folder / TOKENIZER_FOLDER / TEMPLATE_NAME
    if TEMPLATE_NAME in files and path.parent.is_dir() and not path.exists():
        write_bytes(path, files[TEMPLATE_NAME])


def _copy_tokenizer(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    # The file that says whose folder this is comes first: a build that is killed after it can be repeated.
    for name in sorted(files, key=lambda name: (name != REF_NAME, name)):
        write_bytes(folder / name, files[name])
    for leftover in folder.iterdir():
        if leftover.name not in files and leftover.is_file():
            leftover.unlink()
