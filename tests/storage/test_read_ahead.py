"""Windows are asked for before they are read, where they are not in memory; what is read is the same."""

import os
from pathlib import Path

import numpy as np
import pytest

import headrace

LENGTH = 1025
TOKENS = 8_000_000


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two shards of the bytes of random letters."""
    text = np.random.default_rng(0).integers(97, 123, TOKENS // 2, dtype=np.uint8)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(b'{"text": "' + text.tobytes() + b'"}\n')
    headrace.build([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "c", workers=1)
    return tmp_path / "c"


def drop(folder: Path) -> None:
    """Take the shards out of the page cache, as far as the file system does that."""
    for shard in folder.glob("*.h5"):
        descriptor = os.open(shard, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def starts_of(corpus: headrace.Corpus, steps: int) -> np.ndarray:
    """Starts all over the corpus, windows over the border of the shards among them."""
    starts = np.random.default_rng(1).integers(0, len(corpus) - LENGTH, (steps, 16))
    starts[:, 3] = TOKENS // 2 - 100
    return starts


def test_what_was_asked_for_comes_into_memory(folder, until):
    """Windows of a dropped file are cold; those that were asked for are soon in memory, without being read."""
    drop(folder)
    with headrace.open(folder, verify="off") as corpus:
        block = corpus.windows(starts_of(corpus, 8), LENGTH)
        if block.cold_share() < 0.9:
            pytest.skip("this file system keeps its pages in memory")

        def asked_for() -> bool:
            for step in range(8):  # again, where memory is short and some went
                block.will_need(step)
            return block.cold_share() == 0

        until(asked_for)


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_asking_changes_nothing(tmp_path, io, compression):
    """The windows are the tokens there, asked for or not, flat or not, mapped or not."""
    (tmp_path / "a.txt").write_text("".join(map(chr, range(32, 0x3000))) * 30)
    headrace.build(tmp_path / "a.txt", tmp_path / "c", workers=1, compression=compression)
    with headrace.open(tmp_path / "c", io=io) as corpus:
        tokens = corpus[:]
        starts = np.random.default_rng(1).integers(0, len(corpus) - LENGTH, (4, 16))
        block = corpus.windows(starts, LENGTH)
        flat, mapped = compression == "none", io == "mmap"
        assert block.cold_share() == (1.0 if flat and not mapped else 0.0)
        out = np.empty((16, LENGTH), np.int64)
        for step in range(4):
            block.will_need(step)
            block.gather_into(step, out)
            assert np.array_equal(out, tokens[starts[step][:, np.newaxis] + np.arange(LENGTH)])


def test_no_windows_are_not_cold(folder):
    """A block without steps has nothing to ask for."""
    with headrace.open(folder) as corpus:
        assert corpus.windows(np.empty((0, 4), np.int64), LENGTH).cold_share() == 0.0
