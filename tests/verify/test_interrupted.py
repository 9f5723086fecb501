"""A verification that is stopped ends at once, whatever is still to be read."""

import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.events import ShardVerified
from headrace.shard_paths import load_index
from headrace.testing.corpora import random_documents, small_corpus
from headrace.testing.sparse import sparse_corpus
from headrace.verify import verify_shards

BEGUN = 64_000_000
"""Bytes read after which the verification is under way."""


def bytes_read(process: subprocess.Popen) -> int:
    """What a process has read so far."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    return int(fields["rchar"])


@pytest.mark.parametrize("workers", [1, 4])
def test_control_c(tmp_path, workers):
    """Of hours of work, in shards that are read and shards that wait, Ctrl-C leaves none: exit code 130 in a moment."""
    folder = sparse_corpus(tmp_path / "corpus", 30 << 33, shards=30)  # 480 GiB of holes, in shards of 16 GiB
    command = [sys.executable, "-P", "-m", "headrace", "verify", folder, "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while bytes_read(process) < BEGUN:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - sent < 5  # a second at most, but for other programs on the machine
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "headrace: interrupted")


class Recorded(ThreadPoolExecutor):
    """Keeps what was submitted."""

    def submit(self, *arguments) -> Future:
        """As the base class does."""
        self.futures = [*getattr(self, "futures", []), super().submit(*arguments)]
        return self.futures[-1]


def test_a_subscriber_that_raises(tmp_path):
    """What a subscriber raises comes out, and the shards that wait in the caller's executor are not judged."""
    entries = load_index(small_corpus(tmp_path, random_documents(2, [2] * 30)))

    def refuse(event: ShardVerified) -> None:
        raise KeyError(event.shard_id)

    with Recorded(1) as executor, pytest.raises(KeyError, match=entries[0].shard_id):
        verify_shards(entries, executor=executor, on_event=refuse)
    assert any(future.cancelled() for future in executor.futures)
    with pytest.raises(KeyError, match=entries[0].shard_id):
        verify_shards(entries, on_event=refuse)
