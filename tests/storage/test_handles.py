"""Open files are few, whatever the number of shards, corpora and threads, and none is closed under a reader."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import headrace
from headrace.storage import pool
from headrace.storage.pool import HandlePool
from headrace.testing.corpora import line_of, random_documents, small_corpus

SHARDS = random_documents(8, (2,) * 40, longest=40)


class Handle:
    """Something that is closed when the last reference goes."""

    def __init__(self, number):
        self.number = number


class Pool(HandlePool):
    """A pool that counts."""

    def __init__(self, monkeypatch, limit=4):
        monkeypatch.setattr(pool, "handle_limit", lambda: limit)
        self.opened, self.dropped = [], []
        self.alive = weakref.WeakSet()
        super().__init__()

    def open(self, number):
        """Open one."""
        self.opened.append(number)
        handle = Handle(number)
        self.alive.add(handle)
        return handle

    def evicted(self, number):
        """Count it."""
        self.dropped.append(number)


def test_the_least_recently_used_is_closed(monkeypatch):
    """At the limit, the handle that was not asked for longest goes, and only that one."""
    handles = Pool(monkeypatch)
    for number in (0, 1, 2, 3, 0, 1, 4):
        assert handles.get(number).number == number
    assert handles.dropped == [2]
    handles.get(0)
    assert handles.opened == [0, 1, 2, 3, 4]
    assert {handle.number for handle in handles.alive} == {0, 1, 3, 4}
    handles.clear()
    assert sorted(handles.dropped) == [0, 1, 2, 3, 4]
    assert not handles.alive


def test_a_pin_keeps_what_was_open_when_it_began(monkeypatch):
    """What is evicted during a pin lives until that pin ends, however many others begin and end meanwhile."""
    handles = Pool(monkeypatch)
    handles.get(0)
    first = handles.pin()
    for number in range(1, 9):
        with handles.pinned():
            handles.get(number)
    assert {handle.number for handle in handles.alive} >= {0, 5, 6, 7, 8}
    later = handles.pin()
    handles.unpin(first)
    assert {handle.number for handle in handles.alive} == {5, 6, 7, 8}
    handles.get(9)
    assert len(handles.alive) == 5
    handles.unpin(later)
    assert {handle.number for handle in handles.alive} == {6, 7, 8, 9}
    handles.clear()
    assert not handles.alive


def test_overlapping_pins_do_not_hoard(monkeypatch):
    """With pins that always overlap, so that none is ever the last, evicted handles are closed all the same."""
    handles = Pool(monkeypatch)
    held = handles.pin()
    for number in range(200):
        after = handles.pin()
        handles.get(number)
        handles.unpin(held)
        held = after
        assert len(handles.alive) <= 6
    handles.unpin(held)
    assert len(handles.alive) == 4


def test_pools_share_the_limit(monkeypatch):
    """A second pool halves what each may hold, at once; when it is gone, the first has all again."""
    gc.collect()
    others = len(pool._pools)
    one = Pool(monkeypatch, limit=24 * (others + 1))
    for number in range(24):
        one.get(number)
    assert len(one.alive) == 24
    two = Pool(monkeypatch, limit=24 * (others + 1))
    assert one.capacity == two.capacity == 24 * (others + 1) // (others + 2)
    assert len(one.alive) == one.capacity
    del two
    gc.collect()
    assert one.capacity == 24


def test_a_failed_opening_holds_nothing(monkeypatch):
    """An opener that raises leaves the pool as it was."""
    handles = Pool(monkeypatch)
    handles.get(0)

    def fail(number):
        raise ValueError(number)

    monkeypatch.setattr(handles, "open", fail)
    with pytest.raises(ValueError, match="7"):
        handles.get(7)
    assert handles.get(0).number == 0


def test_a_dropped_corpus_closes_its_files_at_once(tmp_path):
    """No cycle keeps maps alive until the collector runs."""
    corpus = headrace.open(small_corpus(tmp_path, SHARDS))
    corpus[:]
    files = weakref.ref(corpus._line._files)
    gc.disable()
    try:
        del corpus
        assert files() is None
    finally:
        gc.enable()


def test_threads_and_evictions(tmp_path, monkeypatch):
    """Threads that gather over ten times more shards than may be open read right, and none reads freed memory."""
    monkeypatch.setattr(pool, "handle_limit", lambda: 4)
    tokens, _ = line_of(SHARDS)
    corpus = headrace.open(small_corpus(tmp_path, SHARDS, chunk_size=8))
    faults = []

    def read(seed):
        random = np.random.default_rng(seed)
        out = np.empty((6, 12), np.int64)
        try:
            for _ in range(60):
                starts = random.integers(0, len(tokens) - 12, (2, 6))
                starts[1] = starts[1, 0]  # a row within one shard, which takes the short way once it is mapped
                block = corpus.windows(starts, 12)
                for row in (0, 1, 1, 1):
                    block.gather_into(row, out)
                    np.testing.assert_array_equal(out, tokens[starts[row][:, None] + np.arange(12)])
                if seed == 0:
                    corpus.close()
        except BaseException as fault:  # noqa: BLE001  # reported below
            faults.append(fault)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]


FEW_DESCRIPTORS = """
import os, resource, sys
import numpy as np
import headrace

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
wanted = np.load(sys.argv[2])
corpora = [headrace.open(sys.argv[1], io=io) for io in ("mmap", "pread", "mmap")]
most = 0
for corpus in corpora:
    assert np.array_equal(corpus[:], wanted)
    most = max(most, len(os.listdir("/proc/self/fd")))
    starts = np.linspace(0, len(wanted) - 20, 300).astype(np.int64)[None]
    out = np.empty((300, 20), np.int64)
    for _ in range(3):
        corpus.windows(starts, 20).gather_into(0, out)
        assert np.array_equal(out, wanted[starts[0][:, None] + np.arange(20)])
    most = max(most, len(os.listdir("/proc/self/fd")))
assert most < 64, most
hoard = []
try:
    while True:
        hoard.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    for _ in range(3):
        os.close(hoard.pop())
assert np.array_equal(corpora[0][:], wanted)
print("right", most)
"""


def test_300_shards_and_64_descriptors(tmp_path):
    """Three corpora of 300 shards are read whole and by windows with 64 descriptors, even when others hold nearly all."""
    shards = random_documents(9, (1,) * 300, longest=40)
    folder = small_corpus(tmp_path / "corpus", shards)
    np.save(tmp_path / "wanted.npy", line_of(shards)[0])
    arguments = [sys.executable, "-c", FEW_DESCRIPTORS, folder, tmp_path / "wanted.npy"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("right"), done.stderr


def test_a_fork_while_another_thread_reads(tmp_path):
    """A child forked at any moment of a thread's reading has usable locks."""
    tokens, _ = line_of(SHARDS)
    corpus = headrace.open(small_corpus(tmp_path, SHARDS))
    stop = threading.Event()

    def read():
        while not stop.is_set():
            corpus[:]
            corpus.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                signal.alarm(240)
                os._exit(0 if np.array_equal(corpus[:], tokens) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("io", "compression"), [("mmap", "none"), ("pread", "none"), ("mmap", "zstd"), ("pread", "gzip")]
)
def test_handles_that_are_left_at_exit_are_closed_in_silence(tmp_path, io, compression):
    """Also where the interpreter has taken what is in their modules away before them."""
    folder = small_corpus(tmp_path / "corpus", SHARDS[:2], compression=compression)
    code = (
        "import sys, headrace\n"
        "corpus = headrace.open(sys.argv[1], io=sys.argv[2])\n"
        "corpus[0:5]\n"
        "for name, module in list(sys.modules.items()):\n"
        "    if name.startswith('headrace.storage.'):\n"
        "        module.os = None\n"
    )
    words = [sys.executable, "-P", "-c", code, str(folder), io]
    ended = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
