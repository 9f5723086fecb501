"""A live corpus beside `headrace build` in other processes, to its end, through its death and its repetition."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import headrace

COMMAND = [sys.executable, "-P", "-m", "headrace", "build"]
OPTIONS = ["--chunk-tokens", "1000", "--shard-tokens", "100000", "--live", "--workers"]
PATIENCE = 240
"""Seconds within which a build does what is waited for, however busy the machine is."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Four files of documents, of which one has none and one is large."""
    folder = tmp_path_factory.mktemp("inputs")
    random = np.random.default_rng(71)
    for name, count in (("a", 1500), ("b", 0), ("c", 8000), ("d", 2000)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for number, length in enumerate(random.integers(1, 200, count).tolist()):
                file.write(json.dumps({"text": f"{name}{number} " + chr(97 + number % 26) * length}) + "\n")
    return folder


@pytest.fixture(scope="module")
def line(inputs, tmp_path_factory):
    """What a build of them must serve: its tokens, the ends of its documents, its fingerprint; and where its shards begin."""
    folder = tmp_path_factory.mktemp("wanted")
    subprocess.run([*COMMAND, inputs, "-o", folder, *OPTIONS, "1"], check=True, capture_output=True)
    corpus = headrace.open(folder)
    starts = {entry.global_start: Path(entry.path).name for entry in corpus.entries}
    return corpus[:], np.cumsum([len(document) for document in corpus.documents]), corpus.fingerprint, starts


def shard_at(line, share):
    """Name of the shard that holds the token behind a share of the line."""
    starts = line[3]
    return starts[max(start for start in starts if start <= share * len(line[0]))]


@contextmanager
def building(*arguments, halt=None):
    """A build at work; it may wait in the midst until it is told to go on."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=halt.environment if halt else None,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Follower:
    """Follows a folder, and checks every view of it against the finished line."""

    def __init__(self, folder, line, *, base=0):
        self.tokens, self.ends, self.fingerprint, _ = line
        self.folder = folder
        self.corpus = None
        self.seen = set()
        self.base = base

    def wait_for(self, condition, process=None):
        """Look again and again until something is true of the corpus; the build must be at work until then."""
        deadline = time.monotonic() + PATIENCE
        while not condition(self.look()):
            assert time.monotonic() < deadline
            time.sleep(0.005)
            if process is not None and process.poll() is not None:
                self.look()
                assert condition(self.corpus), process.stderr.read().decode()
                return

    def look(self):
        """One view: whole documents from the beginning of the line; what is new is as it must be."""
        if self.corpus is None:
            try:
                self.corpus = headrace.open(self.folder, live=True)
            except FileNotFoundError:  # it has not begun
                return None
        before = len(self.corpus)
        grown = self.corpus.refresh()
        count = len(self.corpus)
        assert (count > before or self.corpus.finished) if grown else count == before
        assert count in {0, self.base} or count in self.ends
        assert self.corpus[max(before - 500, 0) :].tolist() == self.tokens[max(before - 500, 0) : count].tolist()
        documents = int(np.searchsorted(self.ends, count, side="right"))
        assert len(self.corpus.documents) == documents
        if documents:
            assert self.corpus.locate(count - 1).document == documents - 1
        self.seen.add(count)
        return self.corpus

    def check_end(self):
        """The finished corpus, exactly."""
        assert self.corpus.finished
        assert self.corpus.fingerprint == self.fingerprint
        np.testing.assert_array_equal(self.corpus[:], self.tokens)
        assert [report.status for report in self.corpus.verify()] == ["ok"] * len(self.corpus.entries)


def is_finished(corpus):
    """Whether the end has been seen."""
    return corpus is not None and corpus.finished


@pytest.mark.parametrize(
    ("workers", "compression"),
    [
        (1, "none"),
        (2, "gzip"),
        pytest.param(2, "none", marks=pytest.mark.extended),
        pytest.param(1, "gzip", marks=pytest.mark.extended),
        pytest.param(2, "zstd", marks=pytest.mark.extended),
    ],
)
def test_to_the_end(tmp_path, inputs, line, halted, descriptors, workers, compression):
    """From before the build begins until it is finished, every view is a prefix of what it ends as; no shard is left open."""
    follower, half = Follower(tmp_path / "corpus", line), len(line[0]) / 2
    halt = halted(shard_at(line, 0.5))
    command = [inputs, "-o", tmp_path / "corpus", *OPTIONS, workers, "--compression", compression]
    with building(*command, halt=halt) as process:
        follower.wait_for(lambda corpus: corpus is not None and len(corpus) > half, process)
        assert not follower.corpus.finished
        halt.go.touch()
        follower.wait_for(is_finished, process)
        assert process.wait() == 0
    follower.check_end()
    assert len(follower.seen) > 1
    assert len(follower.corpus.entries) > 10
    follower.corpus.close()
    assert not [name for _, name in descriptors() if name.startswith(str(tmp_path)) and ".h5" in name]


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.extended), 2])
def test_killed_and_repeated(tmp_path, inputs, line, halted, workers):
    """SIGKILL of the whole build at several moments, the same command each time: no view ever shrinks or is wrong."""
    follower = Follower(tmp_path / "corpus", line)
    command = [inputs, "-o", tmp_path / "corpus", *OPTIONS, workers]
    for share in (0.2, 0.5, 0.8):
        wanted = int(share * len(line[0]))
        with building(*command, halt=halted(shard_at(line, share))) as process:
            follower.wait_for(lambda corpus, wanted=wanted: corpus is not None and len(corpus) > wanted, process)
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        dead = headrace.open(tmp_path / "corpus", live=True)
        assert len(dead) <= len(follower.look())  # workers may have lived for a moment
        assert dead[:].tolist() == line[0][: len(dead)].tolist()
    with building(*command) as process:
        follower.wait_for(is_finished, process)
        assert process.wait() == 0
    follower.check_end()


def test_appending_and_overwriting(tmp_path, inputs, line, halted, until):
    """What is appended is followed behind what is there; a new corpus is followed from its beginning."""

    def wait_until_announced(process):
        """Until a build has begun, the corpus that is there is a finished one."""
        until(lambda: (folder / "building.json").exists() or process.poll() is not None)
        assert process.poll() is None, process.stderr.read().decode()

    folder, tokens = tmp_path / "corpus", line[0]
    subprocess.run([*COMMAND, inputs / "a.jsonl", "-o", folder, *OPTIONS, "1"], check=True, capture_output=True)
    base = headrace.open(folder)
    follower = Follower(folder, line, base=len(base))
    rest = [inputs / f"{name}.jsonl" for name in "cd"]
    halt = halted("000001-0000-0001.h5")
    with building(*rest, "-o", folder, "--append", *OPTIONS, "2", halt=halt) as process:
        wait_until_announced(process)
        follower.wait_for(lambda corpus: len(corpus) > len(base), process)
        assert headrace.open(folder, version=base.fingerprint)[:].tolist() == tokens[: len(base)].tolist()
        halt.go.touch()
        follower.wait_for(is_finished, process)
        assert process.wait() == 0
    assert follower.corpus[:].tolist() == tokens.tolist()
    assert base[:].tolist() == headrace.open(folder, version=base.fingerprint)[:].tolist()
    again = Follower(folder, line)
    halt = halted("000002-0000-0001.h5")
    with building(inputs, "-o", folder, "--overwrite", *OPTIONS, "2", halt=halt) as process:
        wait_until_announced(process)
        again.wait_for(lambda corpus: 0 < len(corpus) < len(tokens), process)
        halt.go.touch()
        again.wait_for(is_finished, process)
        assert process.wait() == 0
    again.check_end()


def test_a_build_in_this_process(tmp_path, inputs, line):
    """A build may be followed by the process that does it: it then reads its own files beside their writer."""
    follower = Follower(tmp_path / "corpus", line)
    headrace.build(
        inputs,
        tmp_path / "corpus",
        workers=1,
        chunk_tokens=1000,
        shard_tokens=100_000,
        on_event=lambda _: follower.look(),
    )
    follower.look()
    follower.check_end()
    assert len(follower.seen) > 3
