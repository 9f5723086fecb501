"""A build that will not fit on its disk is stopped once the first 100 MB of input show it, not when the disk is full."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import pytest

import headrace
from headrace.building import room
from headrace.errors import BuildError
from headrace.events import Event, Progress
from headrace.sources import SourceFile, SourceShard


@pytest.fixture
def small_numbers(monkeypatch) -> None:
    """Judge after 5 MB, so that the test need not write 100 MB.

    Then at least eight of ten files are written, whatever two workers have only read.
    """
    monkeypatch.setattr(room, "_AFTER_BYTES", 5_000_000)


def free(monkeypatch, count: int) -> None:
    """Let the disk have so many bytes free."""

    class Disk:
        f_bavail, f_frsize = count, 1

    monkeypatch.setattr(os, "statvfs", lambda _: Disk)


@pytest.fixture
def sources(tmp_path, write_jsonl) -> Path:
    """Twenty files of 500 kB, some 20 MB of tokens in all."""
    for number in range(20):
        write_jsonl(tmp_path / "in" / f"{number:02}.jsonl", ["x" * 4989] * 100)
    return tmp_path / "in"


@pytest.mark.usefixtures("small_numbers")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_is_too_small(sources, tmp_path, monkeypatch, workers):
    """The build stops early, with what it needs and what is free; nothing is published."""
    free(monkeypatch, 3_000_000)
    told: list[Event] = []
    with pytest.raises(BuildError, match=r"will not hold the corpus: .* needs about 0\.0 GB, and 0\.0 GB are free"):
        headrace.build(sources, tmp_path / "c", workers=workers, on_event=told.append)
    read = max(event.input_bytes for event in told if isinstance(event, Progress))
    assert 5_000_000 <= read < 8_000_000
    assert not (tmp_path / "c" / "shards.json").exists()
    free(monkeypatch, 10**12)
    assert headrace.build(sources, tmp_path / "c", workers=1).documents == 2000


@pytest.mark.usefixtures("small_numbers")
def test_what_compresses_well_fits(sources, tmp_path, monkeypatch):
    """The estimate is of bytes on disk, not of tokens."""
    free(monkeypatch, 3_000_000)
    assert headrace.build(sources, tmp_path / "c", workers=1, compression="gzip").documents == 2000


@pytest.mark.parametrize(("free_bytes", "fits"), [(95_000_000, False), (105_000_000, True)])
def test_a_shard_that_gets_its_name_meanwhile(tmp_path, monkeypatch, free_bytes, fits):
    """It is counted, once, and no reason to stop."""
    free(monkeypatch, free_bytes)
    check = room.RoomCheck(tmp_path, [SourceShard(0, (SourceFile(tmp_path / "0", "0", 200_000_000, "jsonl", None),))])
    partial = tmp_path / ".000000-0000-0000.h5.partial"
    partial.touch()
    os.truncate(partial, 100_000_000)
    scandir = os.scandir

    def named_once_listed(path):
        with scandir(path) as entries:
            listed = list(entries)
        if partial.exists():
            partial.rename(tmp_path / "000000-0000-0000.h5")
        return nullcontext(listed)

    monkeypatch.setattr(os, "scandir", named_once_listed)
    with nullcontext() if fits else pytest.raises(BuildError, match=r"rest needs about 0\.1 GB"):
        check.look({(0, 0): 100_000_000})
    assert not partial.exists()


@pytest.mark.parametrize(("free_bytes", "fits"), [(140_000_000, False), (160_000_000, True)])
def test_compressed_input_is_weighed(tmp_path, monkeypatch, free_bytes, fits):
    """Plain files that follow compressed ones are not taken to expand as those do.

    100 MB of compressed input became 400 MB; the 150 MB of plain input that follow are, decompressed, 3/8 of it.
    """
    free(monkeypatch, free_bytes)

    def shard(index: int, size: int, compression: Literal["gzip"] | None) -> SourceShard:
        return SourceShard(index, (SourceFile(tmp_path / str(index), str(index), size, "jsonl", compression),))

    check = room.RoomCheck(tmp_path, [shard(0, 100_000_000, "gzip"), shard(1, 150_000_000, None)])
    with (tmp_path / ".000000-0000-0000.h5.partial").open("wb") as file:
        file.truncate(400_000_000)
    check.look({(0, 0): 99_000_000})
    with nullcontext() if fits else pytest.raises(BuildError, match=r"rest needs about 0\.1 GB, and 0\.1 GB are free"):
        check.look({(0, 0): 100_000_000})
    check.look({(0, 0): 100_000_000, (1, 0): 150_000_000})
