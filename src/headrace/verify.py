"""Bytes against the manifest: every shard is judged, in parallel, before anything is reported as whole.

A shard that could not be judged is `unreadable`, never `missing` or `ok`.
"""

import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from headrace.damage import unreadable_objects
from headrace.errors import (
    CorruptShardError,
    FormatError,
    GrowingShardError,
    HeadraceError,
    ManifestError,
    MissingShardError,
    Problem,
)
from headrace.events import Subscriber, ignore
from headrace.index_check import check_files, stored_extents
from headrace.manifest import Manifest, ShardEntry, index_path, is_sha256, read_manifest
from headrace.shard_check import ShardCheck
from headrace.shard_paths import locate_shards, require_there
from headrace.storage.extents import ShardExtents
from headrace.storage.loose import entry_of, made_up_manifest
from headrace.verdicts import CorpusReport, ShardReport, Status, report_file, summary

__all__ = [
    "CorpusReport",
    "ShardReport",
    "check_expectation",
    "require_fingerprint",
    "validate_corpus",
    "verify_corpus",
    "verify_path",
    "verify_shards",
]

_EXPECTATION = re.compile(r"[0-9a-f]{8,64}")
_SIGNAL_SECONDS = 0.2
"""The system may give a signal to another thread than the main one, which hears of it only when it wakes."""


class _Task(NamedTuple):
    """One shard to be judged, and what it is compared with. Small: it may be sent to another process."""

    entry: ShardEntry
    quick: bool
    first_document: int | None
    attributes: dict[str, object]
    extents: ShardExtents | None


class _Judged(NamedTuple):
    """What came of it."""

    report: ShardReport
    documents_by_file: tuple[tuple[str, int], ...] | None = None
    moved: tuple[Path, ...] = ()
    """Sidecars that say of the shard, which is whole, that it lies otherwise in its file than it does."""


def verify_shards(
    entries: Sequence[ShardEntry],
    *,
    quick: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    manifest: Manifest | None = None,
    on_event: Subscriber = ignore,
) -> list[ShardReport]:
    """Judge every shard; none stops the others.

    Args:
        entries: with absolute paths, as `load_index` gives them, or with paths that do not exist.
        quick: compare attributes, and the first and last chunk, instead of every byte.
        workers: threads; by default the CPUs that this process may use (hashing releases the interpreter's lock).
        executor: runs the work instead of a thread pool of its own.
        manifest: what the shards' other attributes are compared with.
        on_event: receives a `ShardVerified` as each shard is judged.

    Returns:
        One report for each entry, in order. Documents are numbered in the corpus where the entries are a whole one.
    """
    tasks = _tasks(entries, quick=quick, manifest=manifest)
    return [judged.report for judged in _run(tasks, workers=workers, executor=executor, on_event=on_event)]


def validate_corpus(entries: Sequence[ShardEntry] | str | os.PathLike[str]) -> list[str]:
    """Recompute every shard's SHA-256 and compare it with the index.

    Args:
        entries: shard entries, or the path of a corpus or its `shards.json`.

    Returns:
        The ids of the shards that fail, in order, and of a corpus the names of other files that do; empty if all is well.
    """
    reports = verify_path(entries) if isinstance(entries, str | os.PathLike) else verify_shards(entries)
    return [report.shard_id for report in reports if not report.ok]


def verify_path(
    path: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int | None = None,
    expect: str | None = None,
    on_event: Subscriber = ignore,
) -> list[ShardReport]:
    """Judge the shards of a corpus folder, its `shards.json`, or one HDF5 file; see `verify_corpus`.

    Returns:
        One report for each shard, in order, then one for each other file that is not as it should be.
    """
    return verify_corpus(path, quick=quick, workers=workers, expect=expect, on_event=on_event).reports


def verify_corpus(
    path: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int | None = None,
    expect: str | None = None,
    on_event: Subscriber = ignore,
) -> CorpusReport:
    """Judge a corpus folder, its `shards.json`, or one HDF5 file: all but the copy of its tokenizer.

    Missing shards are reported, not raised. See `verify_shards`.

    Args:
        path: what to judge.
        quick: see `verify_shards`; likewise `workers` and `on_event`.
        workers: threads.
        expect: the fingerprint that the corpus must have, or its first 8 digits or more. Looked at before any token.
        on_event: receives a `ShardVerified` as each shard, or another file that is not as it should be, is judged.

    Raises:
        ManifestError, MissingShardError: there is no usable index, or it is of another corpus than expected.
        FormatError, CorruptShardError, UnreadableShardError: one file that cannot be judged at all.
        ValueError: `expect` is no such digits.
    """
    if expect is not None:
        expect = check_expectation(expect)
    index = index_path(path).absolute()
    if not Path(path).is_dir() and index.suffix != ".json":
        return _verify_file(index, quick=quick, expect=expect, on_event=on_event)
    manifest = read_manifest(index)
    require_fingerprint(index, manifest, expect)
    entries, _ = locate_shards(index, manifest)
    extents = stored_extents(index, manifest)
    tasks = _tasks(entries, quick=quick, manifest=manifest, extents=extents)
    judged = _run(tasks, workers=workers, executor=None, on_event=on_event)
    moved = [(one.report.shard_id, sidecar) for one in judged for sidecar in one.moved]
    faults = check_files(index, manifest, [one.documents_by_file for one in judged], moved=moved)
    others = [
        report_file(path, str(path.relative_to(index.parent)), problems)
        for path, problems in faults.items()
        if problems
    ]
    for other in others:
        on_event(other.event)
    return CorpusReport(
        path=index,
        manifest=manifest,
        shards=tuple(one.report for one in judged),
        others=tuple(others),
    )


def check_expectation(text: str) -> str:
    """The digits of an expected fingerprint, in lower case.

    Raises:
        ValueError: not 8 to 64 hex digits.
    """
    digits = text.strip().lower()
    if not _EXPECTATION.fullmatch(digits):
        raise ValueError(f"wanted a fingerprint, or its first digits: 8 to 64 of 0-9 and a-f; found {text!r}")
    return digits


def require_fingerprint(path: Path, manifest: Manifest, expect: str | None) -> None:
    """Refuse a corpus that is not the one that was expected, by the digits of its fingerprint.

    Raises:
        ManifestError: it is another one.
    """
    found = manifest.fingerprint.hex
    if expect is None or found.startswith(expect):
        return
    reason = "it is another corpus, or was built again in another way"
    if any(append.base.startswith(expect) for append in manifest.appends):
        reason = "that is this corpus before something was appended to it"
    raise ManifestError(f"{path}: wanted the corpus with fingerprint {expect}, found {found}: {reason}")


def _verify_file(path: Path, *, quick: bool, expect: str | None, on_event: Subscriber) -> CorpusReport:
    """One HDF5 file, against what it says of itself."""
    from headrace.storage.hdf5_inspect import inspect_shard  # noqa: PLC0415  # imports h5py

    require_there(path)
    layout = inspect_shard(path)
    entry = entry_of(path, layout)
    for name, digest in (("sha256", entry.sha256), ("documents_sha256", entry.documents_sha256)):
        if not is_sha256(digest) and (digest or name == "sha256"):
            raise FormatError(f"{path}: stores no {name}, so there is nothing to verify it against")
    manifest = made_up_manifest([layout], (entry,))
    require_fingerprint(path, manifest, expect)
    reports = verify_shards([entry], quick=quick, on_event=on_event)
    return CorpusReport(path=path, manifest=manifest, shards=tuple(reports), others=())


def _tasks(
    entries: Sequence[ShardEntry],
    *,
    quick: bool,
    manifest: Manifest | None,
    extents: Sequence[ShardExtents] | None = None,
) -> list[_Task]:
    attributes: dict[str, object] = {}
    if manifest is not None and manifest.version != 1:
        attributes = {
            "format_version": manifest.version,
            "dtype": manifest.dtype,
            "vocab_size": manifest.vocab_size,
            "boundary_token_id": manifest.boundary_token_id,
            "tokenizer_sha256": manifest.tokenizer.sha256 if manifest.tokenizer else "",
            "chunk size": manifest.chunk_size,
        }
    tasks: list[_Task] = []
    tokens = documents = 0
    whole = True
    for number, entry in enumerate(entries):
        whole = whole and entry.global_start == tokens  # a selection of shards says nothing of those before it
        first = documents if whole else None
        tasks.append(_Task(entry, quick, first, attributes, extents[number] if extents else None))
        tokens, documents = tokens + entry.token_count, documents + entry.document_count
    return tasks


def _run(
    tasks: Sequence[_Task], *, workers: int | None, executor: Executor | None, on_event: Subscriber
) -> list[_Judged]:
    if executor is not None:
        return _collect([executor.submit(_judge, task) for task in tasks], on_event)
    stop = threading.Event()
    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        try:
            return _collect([pool.submit(_judge, task, stop.is_set) for task in tasks], on_event)
        finally:
            stop.set()  # on Ctrl-C the pool is left only when its threads are done


def _collect(futures: Sequence[Future[_Judged]], on_event: Subscriber) -> list[_Judged]:
    found: list[_Judged] = []
    try:
        for future in futures:
            while not wait([future], _SIGNAL_SECONDS).done:
                pass
            found.append(future.result())
            on_event(found[-1].report.event)
    finally:
        for future in futures[len(found) :]:
            future.cancel()
    return found


def _judge(task: _Task, stopped: Callable[[], bool] | None = None) -> _Judged:
    entry = task.entry

    def judged(status: Status, reason: str, problems: Sequence[Problem] = (), bytes_read: int = 0) -> _Judged:
        report = ShardReport(
            shard_id=entry.shard_id,
            path=entry.path,
            status=status,
            reason=reason,
            problems=tuple(problems),
            bytes_read=bytes_read,
        )
        return _Judged(report)

    try:
        check = ShardCheck(entry, first_document=task.first_document, stopped=stopped)
        check.compare_attributes(task.attributes)
        check.run(quick=task.quick)
        check.compare_files(quick=task.quick)
    except CancelledError:
        raise
    except MissingShardError as error:  # of its documents or its loss mask, where those are files of their own
        return judged("missing", error.summary.removeprefix(f"{entry.path}: "))
    except GrowingShardError as error:
        return judged("growing", error.summary)
    except (CorruptShardError, FormatError) as error:
        return judged("corrupt", error.summary, error.problems or unreadable_objects(Path(entry.path)))
    except (HeadraceError, OSError) as error:
        return judged("unreadable", str(error))
    except Exception as error:  # noqa: BLE001  # h5py raises KeyError, RuntimeError and others on damaged metadata
        reason = f"{entry.path}: HDF5 cannot read it: {type(error).__name__}: {error}"
        return judged("corrupt", reason, unreadable_objects(Path(entry.path)))
    found = judged("corrupt" if check.problems else "ok", summary(check.problems), check.problems, check.bytes_read)
    moved = check.wrong_sidecars(task.extents) if not check.problems and task.extents is not None else ()
    return found._replace(documents_by_file=check.documents_by_file, moved=moved)
