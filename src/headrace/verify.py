"""Bytes against the manifest: every shard is judged, in parallel, before anything is reported as whole.

A shard that could not be judged is `unreadable`, never `missing` or `ok`.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.errors import CorruptShardError, FormatError, HeadraceError, MissingShardError, Problem
from headrace.events import ShardVerified, Subscriber, ignore
from headrace.manifest import Manifest, ShardEntry, index_path, is_sha256, locate_shards, read_manifest
from headrace.shard_check import ShardCheck
from headrace.storage.loose import entry_of_file

__all__ = ["ShardReport", "Status", "validate_corpus", "verify_path", "verify_shards"]

Status = Literal["ok", "corrupt", "missing", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """The verdict on one shard."""

    shard_id: str
    path: str
    status: Status
    reason: str = ""
    """What is wrong; empty where `ok`."""
    problems: tuple[Problem, ...] = ()
    """Each damaged chunk: its token range in the shard, and the documents it touches."""
    bytes_read: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.status == "ok"

    @property
    def fault(self) -> Problem:
        """The verdict on a shard that is not ok, in one line."""
        return Problem(self.path, f"{self.status}: {self.reason}")


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
        One report for each entry, in order.
    """
    if executor is None:
        with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
            return verify_shards(entries, quick=quick, executor=pool, manifest=manifest, on_event=on_event)
    futures = [executor.submit(_judge, entry, quick, manifest) for entry in entries]
    reports: list[ShardReport] = []
    for future in futures:
        report = future.result()
        on_event(
            ShardVerified(
                shard_id=report.shard_id, status=report.status, reason=report.reason, bytes_read=report.bytes_read
            )
        )
        reports.append(report)
    return reports


def validate_corpus(entries: Sequence[ShardEntry] | str | os.PathLike[str]) -> list[str]:
    """Recompute every shard's SHA-256 and compare it with the index.

    Args:
        entries: shard entries, or the path of a corpus or its `shards.json`.

    Returns:
        The ids of the shards that fail, in order; empty if all is well.
    """
    reports = verify_path(entries) if isinstance(entries, str | os.PathLike) else verify_shards(entries)
    return [report.shard_id for report in reports if not report.ok]


def verify_path(
    path: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int | None = None,
    on_event: Subscriber = ignore,
) -> list[ShardReport]:
    """Judge the shards of a corpus folder, its `shards.json`, or one HDF5 file.

    Missing shards are reported, not raised. See `verify_shards`.

    Raises:
        ManifestError, MissingShardError: there is no usable index.
    """
    index = index_path(path).absolute()
    if not Path(path).is_dir() and index.suffix != ".json":
        entry = entry_of_file(index)
        if not is_sha256(entry.sha256):
            raise FormatError(f"{index}: stores no sha256, so there is nothing to verify it against")
        return verify_shards([entry], quick=quick, on_event=on_event)
    manifest = read_manifest(index)
    entries, _ = locate_shards(index, manifest)
    return verify_shards(entries, quick=quick, workers=workers, manifest=manifest, on_event=on_event)


def _judge(
    entry: ShardEntry,
    quick: bool,  # noqa: FBT001  # passed through an executor
    manifest: Manifest | None,
) -> ShardReport:
    def report(status: Status, reason: str, problems: Sequence[Problem] = (), bytes_read: int = 0) -> ShardReport:
        return ShardReport(
            shard_id=entry.shard_id,
            path=entry.path,
            status=status,
            reason=reason,
            problems=tuple(problems),
            bytes_read=bytes_read,
        )

    try:
        check = ShardCheck(entry)
        if manifest is not None and manifest.version != 1:
            check.compare_with(manifest)
        check.run(quick=quick)
    except MissingShardError:
        return report("missing", "no such file")
    except (CorruptShardError, FormatError) as error:
        return report("corrupt", error.summary, error.problems)
    except (HeadraceError, OSError) as error:
        return report("unreadable", str(error))
    except Exception as error:  # noqa: BLE001  # h5py raises KeyError, RuntimeError and others on damaged metadata
        return report("corrupt", f"{entry.path}: HDF5 cannot read it: {type(error).__name__}: {error}")
    if check.problems:
        reason = f"{len(check.problems)} problem{'s' * (len(check.problems) > 1)}: {check.problems[0].reason}"
        return report("corrupt", reason, check.problems, check.bytes_read)
    return report("ok", "", bytes_read=check.bytes_read)
