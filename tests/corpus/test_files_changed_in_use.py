"""Files of a corpus that are cut or replaced while it is open."""

import os
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import headrace
from headrace.errors import CorruptShardError, MissingShardError, UnreadableShardError
from headrace.storage.hdf5_inspect import inspect_shard
from headrace.testing.corpora import line_of, random_documents, small_corpus

SHARDS = random_documents(81, (300, 20))


@pytest.fixture
def folder(tmp_path):
    """A corpus of two shards, the first of many chunks."""
    return small_corpus(tmp_path / "corpus", SHARDS)


def test_a_file_cut_in_use_without_maps(folder):
    """With `io="pread"` what is gone is an error that names the file, and what is left is served; nothing is made up."""
    tokens = line_of(SHARDS)[0]
    corpus = headrace.open(folder, io="pread")
    corpus[:]
    path = Path(corpus.entries[0].path)
    with h5py.File(path, "r") as file:
        at = file["tokens"].id.get_chunk_info_by_coord((64 * 50,)).byte_offset
    os.truncate(path, at)
    stop = corpus.entries[0].global_stop
    for start in range(0, stop, 64):
        place = slice(start, min(start + 64, stop))
        try:
            served = corpus[place]
        except UnreadableShardError as error:
            assert f"{path}: ends before byte" in str(error)  # noqa: PT017  # either is right, as long as it is true
            assert start >= 64 * 50
        else:
            np.testing.assert_array_equal(served, tokens[place])
    np.testing.assert_array_equal(corpus[stop:], tokens[stop:])
    with pytest.raises(UnreadableShardError, match="cut while in use"):
        corpus.windows(np.array([[stop - 10]]), 20).gather_into(0, np.empty((1, 20), np.int64))


@pytest.mark.parametrize("io", ["mmap", "pread"])
@pytest.mark.parametrize("content", ["other", "cut", "none"])
def test_a_file_replaced_in_use(folder, io, content):
    """Who has a shard open goes on with it; who opens it then is refused, until the right file is back."""
    tokens = line_of(SHARDS)[0]
    corpus = headrace.open(folder, io=io)
    corpus[:]
    path = Path(corpus.entries[0].path)
    kept = path.with_name("kept")
    path.rename(kept)
    if content == "other":
        other = small_corpus(folder.parent / "other", [SHARDS[0][::-1], SHARDS[1]])
        (other / path.name).rename(path)
    elif content == "cut":
        path.write_bytes(kept.read_bytes()[:-100])
    np.testing.assert_array_equal(corpus[:], tokens)
    corpus.close()
    with pytest.raises((CorruptShardError, FileNotFoundError), match=path.name):
        corpus[:]
    kept.rename(path)
    np.testing.assert_array_equal(corpus[:], tokens)


def test_a_file_that_comes_and_goes_while_its_layout_is_read(folder):
    """It is read whole, or said to be missing: who follows a build looks again then. It is never called damaged."""
    path = Path(headrace.open(folder).entries[0].path)
    wanted, away, done = inspect_shard(path), path.with_name("away"), threading.Event()

    def rename():
        while not done.is_set():
            path.rename(away)
            away.rename(path)

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        missing = found = 0
        end = time.monotonic() + 240
        while missing < 5 or found < 100:
            assert time.monotonic() < end, "never seen in one of the two states"
            try:
                assert inspect_shard(path).sha256 == wanted.sha256
                found += 1
            except MissingShardError as error:
                assert str(path) in str(error)  # noqa: PT017  # either is right
                missing += 1
    finally:
        done.set()
        thread.join()
