"""Corpora beyond any memory: positions past 2**32, and costs that do not grow with tokens."""

import hashlib
import os
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.storage.hdf5_corpus import SIDECAR
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.testing import sparse
from headrace.testing.sparse import sparse_corpus
from headrace.verify import verify_path

SIZES = [1, 2, 65_535, 65_536, 65_537, 1_000_000, (1 << 20) + 5, (1 << 22) - 1]


@pytest.mark.parametrize("vocab_size", [50_257, 151_936])
@pytest.mark.parametrize("n", SIZES)
def test_a_sparse_corpus_is_a_whole_corpus(tmp_path, n, vocab_size):
    """Counts, hashes, checksums and sidecar are true: full verification finds nothing, nor does derivation anew."""
    folder = sparse_corpus(tmp_path, n, vocab_size=vocab_size)
    corpus = headrace.open(folder, verify="full")
    assert len(corpus) == n
    assert not corpus[:].any()
    assert sum(len(document) for document in corpus.documents) == n
    table = corpus._line.table
    (folder / SIDECAR).unlink()
    derived = headrace.open(folder)._line.table
    for name in ("shards", "first", "offset", "shard"):
        np.testing.assert_array_equal(getattr(derived, name), getattr(table, name))


@pytest.mark.parametrize(("n", "shards"), [(10, 3), (1_000_001, 7), (5, 5)])
def test_as_many_shards_as_asked(tmp_path, n, shards):
    """With a number of shards, their sizes differ by one token at most, and all is true too."""
    corpus = headrace.open(sparse_corpus(tmp_path, n, shards=shards), verify="full")
    sizes = [entry.token_count for entry in corpus.entries]
    assert (len(sizes), sum(sizes)) == (shards, n)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("n", "shards"), [(0, None), (-1, None), (3, 4), (3, 0)])
def test_what_cannot_be(tmp_path, n, shards):
    """A corpus has tokens, and no shard is empty."""
    with pytest.raises(ValueError, match=str(n)):
        sparse_corpus(tmp_path, n, shards=shards)


def test_known_digests_are_true():
    """The digests that are not worked out are those of zeros, as far as a test can hash."""
    for power, digest in enumerate(sparse._ZERO_SHA256[:6], start=sparse._SMALLEST):
        assert hashlib.sha256(bytes(1 << power)).hexdigest() == digest
    assert len(set(sparse._ZERO_SHA256)) == len(sparse._ZERO_SHA256) == 19


def test_half_a_billion_tokens(tmp_path):
    """They take little time, and under a megabyte of the disk."""
    begun = time.process_time()
    folder = sparse_corpus(tmp_path, 500_000_000)
    assert time.process_time() - begun < 0.5
    assert sum(path.stat().st_blocks * 512 for path in folder.rglob("*")) < 1_000_000
    assert {report.status for report in verify_path(folder, quick=True)} == {"ok"}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """10**12 tokens."""
    return sparse_corpus(tmp_path_factory.mktemp("large"), 10**12)


MARKS = [(1 << 31) - 1, 1 << 31, (1 << 32) - 3, 1 << 32, (1 << 33) + 1, (1 << 38) - 1, 1 << 38, 10**12 - 1]


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """The same, with the token `i + 1` at the i-th of the marks, and without the check of the ends that this breaks."""
    corpus = headrace.open(sparse_corpus(tmp_path_factory.mktemp("marked"), 10**12))
    for number, mark in enumerate(MARKS):
        entry = next(entry for entry in corpus.entries if entry.global_start <= mark < entry.global_stop)
        with h5py.File(entry.path, "r+") as file:
            file["tokens"][mark - entry.global_start] = number + 1
    return headrace.open(corpus.path, verify="off")


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_positions_beyond_32_bits(marked, io):
    """Each mark is where it was put: by slices, by windows of either dtype, by integers of any type."""
    corpus = headrace.open(marked.path, verify="off", io=io)
    assert len(corpus) == 10**12
    for number, mark in enumerate(MARKS):
        assert corpus[mark] == corpus[mark - 10**12] == corpus[np.uint64(mark)] == number + 1
        around = corpus.get_slice(mark - 2, min(mark + 3, 10**12))
        assert around[2] == number + 1
    starts = np.array([[max(mark - 5, 0) for mark in MARKS]])
    for length in (np.int8(6), np.int32(6), 6):
        for dtype in (np.int64, np.uint16):
            out = np.empty((len(MARKS), 6), dtype)
            corpus.windows(starts, length).gather_into(0, out)
            assert out[:, 5].tolist() == list(range(1, len(MARKS) + 1))
    out = np.empty((len(MARKS), 6), np.int64)
    corpus.windows(starts.astype(np.uint64), 6).gather_into(0, out)
    assert out[:, 5].tolist() == list(range(1, len(MARKS) + 1))


def test_long_strides_read_no_more_than_they_serve(marked):
    """A slice over the whole line by a step of 2**31 is some hundred tokens, not two terabytes."""
    tokens = marked[:: 1 << 31]
    assert len(tokens) == len(range(0, 10**12, 1 << 31))
    assert tokens[1] == MARKS.index(1 << 31) + 1
    assert tokens[2] == MARKS.index(1 << 32) + 1
    assert marked[:: -(1 << 31)][0] == MARKS.index(10**12 - 1) + 1


def test_documents_beyond_32_bits(large):
    """Bounds and places of documents are 64-bit."""
    corpus = headrace.open(large)
    found = corpus.locate(10**12 - 1)
    assert (found.document, found.stop) == (len(corpus.documents) - 1, 10**12)
    assert corpus.documents.bounds(1) == (1 << 38, 1 << 39)
    assert corpus.documents.lengths(0).tolist() == [1 << 38]


def test_layout_of_half_a_terabyte(large):
    """Extents derived from the file itself agree with those that were written."""
    corpus = headrace.open(large)
    entry = corpus.entries[-2]
    layout = inspect_shard(Path(entry.path))
    assert layout.first.tolist() == [0]
    assert layout.offset[0] == corpus._line.table.offset[-2]


FIRST_BATCH = """
import headrace
corpus = headrace.open({folder!r})
import numpy as np
starts = np.linspace(0, corpus.token_count - 1025, 64).astype(np.int64)[None]
corpus.windows(starts, 1025).gather_into(0, np.empty((64, 1025), np.int64))
"""


def cpu_seconds(code):
    """User and system time of a Python process that runs the code."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def test_the_first_batch_costs_the_same_at_any_size(tmp_path, large):
    """Opening and reading a first batch is a small matter beside starting Python, at 10**6 tokens and at 10**12.

    How small is for `bench/startup.py` to say; what looks at all tokens, or at a table of them, takes minutes.
    """
    small = sparse_corpus(tmp_path, 10**6)
    codes = ["import numpy", *(FIRST_BATCH.format(folder=str(folder)) for folder in (small, large))]
    rounds = [[cpu_seconds(code) for code in codes] for _ in range(7)]
    numpy, million, trillion = (min(column) for column in zip(*rounds, strict=True))
    assert million < 4 * numpy
    assert trillion < 4 * numpy
    assert trillion - million < numpy


def test_nothing_is_held_that_grows_with_the_tokens(tmp_path, large):
    """Of an open corpus of 10**12 tokens, tables and columns take no more than those of 10**6, shard for shard."""
    for folder, shards in ((sparse_corpus(tmp_path, 10**6), 1), (large, 12)):
        corpus = headrace.open(folder)
        corpus[len(corpus) - 1]
        table = corpus._line.table
        held = [table.shards, table.first, table.offset, table.shard, corpus._line._stops]
        held += [corpus._line._files.bases, corpus._line._files._identities]
        assert len(corpus.entries) == shards
        assert sum(array.nbytes for array in held) <= 200 * shards
