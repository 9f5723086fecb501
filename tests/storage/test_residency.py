"""Advice to the kernel is for pages that are not there: long reads of resident data give none."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

import headrace
from headrace.storage.residency import is_resident

PAGES = 64


def test_pages_that_were_read_are_resident(tmp_path, until):
    """Before a page was read none is, where the file's pages were dropped; afterwards all are, whatever part is meant."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = int(np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0])
    before = is_resident(start, PAGES * mmap.PAGESIZE)
    for offset, size in ((0, 1), (0, PAGES * mmap.PAGESIZE), (mmap.PAGESIZE - 1, 2), (100, 3 * mmap.PAGESIZE)):
        until(lambda at=start + offset, size=size: len(view[:]) and is_resident(at, size))  # unless memory is short
    if before:
        pytest.skip("this file system keeps its pages in memory")


def test_an_address_that_is_not_mapped():
    """Nothing is known of it, so it is not resident."""
    assert not is_resident(0, 1)


def test_long_windows_of_resident_data_ask_for_nothing(tmp_path: Path, monkeypatch, until):
    """Scattered windows of 64 KiB and more: advice while the data is not in memory, none once it is."""
    (tmp_path / "a.txt").write_text("x" * 3_000_000)
    headrace.build(tmp_path / "a.txt", tmp_path / "c", workers=1)
    advised = []
    with headrace.open(tmp_path / "c") as corpus:
        starts = np.array([[5], [2_500_000], [1_000_000]])
        from headrace.storage import residency

        out = np.empty((1, 40_000), dtype=np.int64)
        real = residency.is_resident

        def seen(address: int, size: int) -> bool:
            advised.append(not real(address, size))
            return not advised[-1]

        monkeypatch.setattr(residency, "is_resident", seen)
        block = corpus.windows(starts, 40_000)

        def read_all() -> list[bool]:
            tokens = corpus[:]
            advised.clear()
            for step in range(3):
                block.gather_into(step, out)
                assert np.array_equal(out[0], tokens[starts[step, 0] : starts[step, 0] + 40_000])
            return advised

        until(lambda: read_all() == [False, False, False])  # at once, unless memory is short
