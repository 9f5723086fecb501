"""How many worker processes this machine, and the container that this process is in, can bear."""

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["available_cpus", "default_workers"]

_WORKER_BYTES = 1_000_000_000
"""Memory that a worker may need: a large tokenizer, its cache, and a few batches."""
_UNLIMITED = 1 << 60
"""What cgroup v1 gives where no limit is set lies above."""
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def default_workers(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """The least of: CPUs this process may use, the CPU quota of its cgroup, its memory limit / 1 GB; at least 1.

    Args:
        root: where the cgroup file systems are mounted.
        membership: lists the cgroups of this process.
    """
    memory = (_memory(folder) for folder in _folders(root, membership))
    return max(min(int(limit) for limit in (available_cpus(root, membership), *memory) if limit is not None), 1)


def available_cpus(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> float:
    """CPUs that this process may use, and the quota of its cgroup, whichever is less; arguments as above."""
    quotas = (_quota(folder) for folder in _folders(root, membership))
    return min(limit for limit in (_cpus(), *quotas) if limit is not None)


def _cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _folders(root: Path, membership: Path) -> Iterator[Path]:
    """The cgroups of this process, each with all above it: a limit holds for everything below."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = root / controllers if controllers else root
        folder = mount / path.lstrip("/")
        yield from (place for place in (folder, *folder.parents) if place == mount or mount in place.parents)


def _quota(folder: Path) -> float | None:
    """CPUs: cgroup v2, else v1."""
    limit, _, period = (_read(folder / "cpu.max") or "").partition(" ")
    if not period:
        limit, period = _read(folder / "cpu.cfs_quota_us") or "", _read(folder / "cpu.cfs_period_us") or ""
    return int(limit) / int(period) if limit.isdigit() and period.isdigit() and int(period) else None


def _memory(folder: Path) -> float | None:
    limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes") or ""
    return int(limit) / _WORKER_BYTES if limit.isdigit() and int(limit) < _UNLIMITED else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
