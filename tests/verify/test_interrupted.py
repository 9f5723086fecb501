"""A verification that is stopped ends at once, whatever is still to be read."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.events import ShardVerified
from headrace.shard_paths import load_index
from headrace.testing.corpora import random_documents, small_corpus
from headrace.testing.sparse import sparse_corpus
from headrace.verify import verify_shards

SHARD = 1 << 34
"""Bytes."""
BEGUN = 64_000_000
"""Bytes read after which the verification is under way."""


def bytes_read(process: subprocess.Popen) -> int:
    """What a process has read so far, or has in all if it has ended and nobody waited for it."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    return int(fields["rchar"])


@pytest.mark.parametrize("workers", [1, 4])
def test_control_c(tmp_path, until, workers):
    """Of hours of work, in shards that are read and shards that wait, Ctrl-C leaves none: exit code 130 in a moment.

    That is, before even one shard has been read.
    """
    folder = sparse_corpus(tmp_path / "corpus", 30 << 33, shards=30)  # 480 GiB of holes, in shards of 16 GiB
    command = [sys.executable, "-P", "-m", "headrace", "verify", folder, "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: bytes_read(process) > BEGUN or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGSTOP)  # what it reads until the signal comes does not count
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        before = bytes_read(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert bytes_read(process) - before < SHARD
        out, err = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "headrace: interrupted")


class Recorded(ThreadPoolExecutor):
    """Keeps what was submitted. Only the first call runs before one is cancelled."""

    def __init__(self, until: Callable) -> None:
        super().__init__(1)
        self.futures: list[Future] = []
        self._until = until

    def submit(self, function, *arguments) -> Future:
        """As the base class does."""
        first = not self.futures

        def call():
            if not first:
                self._until(lambda: any(future.cancelled() for future in self.futures))
            return function(*arguments)

        self.futures.append(super().submit(call))
        return self.futures[-1]


def test_a_subscriber_that_raises(tmp_path, until):
    """What a subscriber raises comes out, and the shards that wait in the caller's executor are not judged."""
    entries = load_index(small_corpus(tmp_path, random_documents(2, [2] * 30)))

    def refuse(event: ShardVerified) -> None:
        raise KeyError(event.shard_id)

    with Recorded(until) as executor, pytest.raises(KeyError, match=entries[0].shard_id):
        verify_shards(entries, executor=executor, on_event=refuse)
    assert any(future.cancelled() for future in executor.futures)
    with pytest.raises(KeyError, match=entries[0].shard_id):
        verify_shards(entries, on_event=refuse)
