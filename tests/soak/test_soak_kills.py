"""Builds that are killed again and again, and begun again by the same command."""

import random
import runpy
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

comparable = runpy.run_path(str(Path(__file__).parents[1] / "building" / "corpus_files.py"))["comparable"]
ORPHAN_SECONDS = 10
"""How soon after their parent workers must be gone."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of build."""

    kills: int
    options: tuple[str, ...] = ()
    append: bool = False


KINDS = {
    "build": Kind(200),
    "compressed": Kind(40, ("--compression", "zstd")),
    "append": Kind(40, append=True),
    "compressed append": Kind(20, ("--compression", "gzip:1"), append=True),
    "Lance": Kind(100, ("--store", "lance")),
    "Lance append": Kind(40, ("--store", "lance"), append=True),
}


def write_sources(folder: Path, files: int, first: int) -> Path:
    """Files of some 20,000 documents each, all different."""
    folder.mkdir()
    for number in range(first, first + files):
        lines = (
            f'{{"text": "document {n} of file {number} {"turns the wheel " * (n % 37)}"}}\n' for n in range(20_000)
        )
        (folder / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def build(sources: Path, output: Path, *options: str) -> list[str | Path]:
    """The command."""
    command = [sys.executable, "-P", "-m", "headrace", "build", sources, "-o", output]
    return [*command, "--workers", "2", "--shard-tokens", "2000000", *options]


def contents(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a corpus that a build of equal inputs makes equal, as far as it is not random."""
    found = comparable(folder) if folder.exists() else {}
    ours = [name for name in found if name.endswith((".h5", ".lance", "shards.json")) and not name.startswith(".")]
    return {name: found[name] for name in ours}


def inodes(folder: Path) -> dict[str, int]:
    """Which file each shard is: one that is written anew is another file."""
    paths = [*folder.glob("*.h5"), *folder.glob("tokens.lance/data/0*.lance")]
    return {path.name: path.stat().st_ino for path in paths}


def run_and_kill(command: list[str | Path], seconds: float, *, alone: bool) -> None:
    """Begin a build, and kill it after a while: the parent alone, or all its processes; wait until all are gone."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    parent = psutil.Process(child.pid)
    family: list[psutil.Process] = parent.children(recursive=True) if child.poll() is None else []
    child.kill()
    child.wait()
    if not alone:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    deadline = time.monotonic() + ORPHAN_SECONDS
    while any(lives(process) for process in family):
        assert time.monotonic() < deadline, f"workers outlived their parent by {ORPHAN_SECONDS} s"
        time.sleep(0.01)


def lives(process: psutil.Process) -> bool:
    """Whether a process still runs; one that has ended may wait long for an init that fetches its exit code."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("name", KINDS)
def test_a_build_killed_at_any_moment_goes_on(tmp_path, scale, name):
    """After SIGKILL at a random moment the old corpus is there, or none; the same command goes on, to the same bytes."""
    kind = KINDS[name]
    sources = write_sources(tmp_path / "sources", 8, 0)
    old = tmp_path / "old"
    options = kind.options
    if kind.append:
        subprocess.run(build(write_sources(tmp_path / "first", 2, 100), old, *options), check=True, capture_output=True)
        options = (*options, "--append")

    def begin(output: Path) -> Path:
        if kind.append:
            shutil.copytree(old, output)
        return output

    wanted = begin(tmp_path / "wanted")
    started = time.monotonic()
    subprocess.run(build(sources, wanted, *options), check=True, capture_output=True)
    whole = time.monotonic() - started
    before, known, after = contents(old), inodes(old), contents(wanted)
    moments = random.Random(name)
    output, done, kept = begin(tmp_path / "output-0"), 0, 0
    for _ in range(max(1, round(kind.kills * scale))):
        found = {item for item in inodes(output).items() if item[0] not in known}
        run_and_kill(build(sources, output, *options), moments.uniform(0, whole), alone=moments.random() < 0.5)
        if (output / "shards.json").exists() and contents(output) == after:
            kept += len(found & inodes(output).items())
            shutil.rmtree(output)
            done += 1
            output = begin(tmp_path / f"output-{done}")
        elif kind.append:
            assert contents(output).items() >= before.items()
        else:
            assert not (output / "shards.json").exists()
    subprocess.run(build(sources, output, *options), check=True, capture_output=True)
    assert contents(output) == after
    assert not [*output.glob(".*.partial"), *output.glob(".headrace/writing")]
    assert not (output / "building.json").exists()
    assert kept or scale < 1
    print(f"\n{name}: {done} builds ended between the kills; {kept} of their shards are of a build killed before")  # noqa: T201
