"""Whether a build of a corpus is running, dead or done, and how far it is."""

import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.errors import MissingShardError
from headrace.in_progress import BUILDING_NAME, JOURNAL, LOCK, NEXT, Building, Mode, read_building, read_finished
from headrace.manifest import INDEX_NAME, Manifest, read_manifest

__all__ = ["BuildStatus", "build_status"]

State = Literal["running", "dead", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStatus:
    """What is known of an output folder from outside."""

    path: str
    state: State
    """`running`: a build is at work there; `dead`: one was, and did not finish; `done`: the corpus is published."""
    mode: Mode | None = None
    """Of the build that is running or dead."""
    finished: int = 0
    """Source shards that are whole on disk, of ..."""
    source_shards: int = 0
    """... these. Both are 0 when done, like all below that tell of progress."""
    input_bytes: int = 0
    """Input read, of ..."""
    total_bytes: int = 0
    """... this."""
    seconds: float = 0.0
    """How long this run has been at work, as of `age`."""
    age: float = 0.0
    """Seconds since the build has last told of itself."""
    documents: int = 0
    """Of what is being built; when done, of the corpus."""
    tokens: int = 0
    fingerprint: str = ""
    """Of the corpus that can be opened there now; empty if there is none."""
    overwriting: int = 0
    """Source shards that an overwrite has finished which is dead and not the build told of; the same command goes on."""

    @property
    def share(self) -> float:
        """Input read over all input; 0 where that is not known, as of documents that a program gives."""
        if self.state == "done":
            return 1.0
        return self.input_bytes / self.total_bytes if self.total_bytes else 0.0


def build_status(path: str | os.PathLike[str]) -> BuildStatus:
    """Look at an output folder. Changes nothing in it.

    Raises:
        MissingShardError: (a FileNotFoundError) no build was begun there, and there is no corpus.
        ManifestError, UnreadableShardError: what is there cannot be read.
    """
    folder = Path(path)
    building = read_building(folder)
    running = building is not None and _locked(folder)
    # Only now: a build that has ended between one and the other has published its corpus before.
    manifest = read_manifest(folder) if (folder / INDEX_NAME).exists() else None
    if building is not None and running:
        return _unfinished(folder, building, manifest, "running")
    if building is not None and not _superseded(folder, building, manifest):
        return _unfinished(folder, building, manifest, "dead")
    if manifest is None:
        raise MissingShardError(
            f"{folder}: neither a corpus ({INDEX_NAME}) nor a build at work ({BUILDING_NAME}); wanted the output folder of "
            "`headrace build`"
        )
    return BuildStatus(
        path=str(folder),
        state="done",
        documents=manifest.total_documents,
        tokens=manifest.total_tokens,
        fingerprint=manifest.fingerprint.hex,
        overwriting=_overwriting(folder, manifest),
    )


def _unfinished(folder: Path, building: Building, manifest: Manifest | None, state: State) -> BuildStatus:
    finished = read_finished(folder / building.folder / JOURNAL)
    return BuildStatus(
        path=str(folder),
        state=state,
        mode=building.mode,
        finished=sum(building.first_index <= index < building.stop_index for index, _ in finished),
        source_shards=building.source_shards,
        input_bytes=building.input_bytes,
        total_bytes=building.total_bytes,
        seconds=building.seconds,
        age=max(time.time() - building.updated, 0.0),
        documents=building.documents,
        tokens=building.tokens,
        fingerprint=manifest.fingerprint.hex if manifest else "",
        overwriting=0 if building.mode == "overwrite" else _overwriting(folder, manifest),
    )


def _overwriting(folder: Path, manifest: Manifest | None) -> int:
    """How many source shards lie aside, unless they are the corpus' own, and it could not tidy up any more."""
    finished = read_finished(folder / NEXT / JOURNAL)
    made = [(entry.path, entry.sha256) for key in sorted(finished) for entry in finished[key].entries]
    there = [(entry.path, entry.sha256) for entry in manifest.shards] if manifest else []
    return 0 if made == there else len(finished)


def _superseded(folder: Path, building: Building, manifest: Manifest | None) -> bool:
    """Whether the build has published its corpus, and only could not say so any more."""
    if manifest is None:
        return False
    if building.mode == "append":
        return any(append.base == building.base for append in manifest.appends)
    return building.mode == "build" or not (folder / building.folder).exists()


def _locked(folder: Path) -> bool:
    """Whether a build holds the folder."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks here: then no build either
        return False
    finally:
        os.close(lock)
    return False
